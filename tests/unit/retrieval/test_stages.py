"""`RetrievalChain` and its steps."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DocNode, Document, HybridRetriever, Reranker, RetrievalChain, Retriever
from lazyrag.errors import ConfigError, NotRegisteredError, RetrievalError
from lazyrag.ranking.mmr import mmr
from lazyrag.retrieval import MMR, AutoMerge, ScoreThreshold, Windows, auto_merge
from lazyrag.retrieval.stages import Stage

TEXTS = {
    "tea": "green tea\ntea tea tea\nblack tea\nwater",
    "salt": "salt\nsea salt\ntea with salt\nsalt salt",
}


def embed(text: str) -> list[float]:
    """Counts of letters."""
    return [text.count(one) + 0.25 for one in "aelst"]


def build(texts=TEXTS, **options) -> Document:
    """Documents of lines and words."""
    made = Document(**options)
    made.create_node_group("line", transform=str.splitlines)
    made.create_node_group("word", transform=str.split, parent="line")
    made.add_texts(texts)
    return made


@pytest.fixture(scope="module")
def docs():
    """With one embed key."""
    return build(embed=embed)


@pytest.fixture(scope="module")
def words(docs):
    """Lines by bm25."""
    return Retriever(docs, "line", similarity="bm25")


def scored(nodes):
    """What tests look at."""
    return [(node.uid, node.score) for node in nodes]


def test_steps_are_done_in_order(words):
    """Each step gets what the one before gave, and the query."""
    seen = []

    def first(nodes, query):
        seen.append((len(nodes), query))
        return nodes[::-1]

    def second(nodes, query):
        seen.append((scored(nodes), query))
        return nodes[:2]

    found = words("tea")
    assert scored(RetrievalChain(words, first, second)("tea")) == scored(found[::-1][:2])
    assert seen == [(4, "tea"), (scored(found[::-1]), "tea")]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    topk=st.integers(1, 8),
    fetch=st.none() | st.integers(1, 8),
    query=st.sampled_from(["tea", "salt tea", " "]),
)
def test_it_is_what_its_parts_are(docs, topk, fetch, query):
    """A chain gives what its retriever and steps give, called by hand; a trace ends with the same
    nodes.
    """
    words = Retriever(docs, "line", similarity="bm25")
    chain = RetrievalChain(words, MMR(lam=0.7), ScoreThreshold(-0.5), topk=topk, fetch=fetch)
    by_hand = ScoreThreshold(-0.5)(MMR(lam=0.7)(words(query, topk=fetch or max(20, 4 * topk))))[
        :topk
    ]
    assert scored(chain(query)) == scored(by_hand) == scored(chain.trace(query).nodes)


def test_how_many_nodes_the_retriever_is_asked_for():
    """Four times topk and at least 20 before steps, topk without any, and what fetch says."""
    asked = []

    def found(query, filters=None, topk=None):
        asked.append(topk)
        return []

    def same(nodes, query):
        return nodes

    for chain, topk in (
        (RetrievalChain(found), None),
        (RetrievalChain(found, topk=3), None),
        (RetrievalChain(found, same, topk=3), None),
        (RetrievalChain(found, same, topk=3), 10),
        (RetrievalChain(found, same, topk=3, fetch=5), 10),
        (RetrievalChain(found, same), None),
    ):
        chain("tea", topk=topk)
    assert asked == [None, 3, 20, 40, 5, None]


def test_filters_reach_the_retriever(docs, words):
    """A filter restricts what is found, not what windows show."""
    chain = RetrievalChain(words, Windows(1, 1, merge=False))
    assert {node.path for node in chain("tea")} == {"tea", "salt"}
    assert {node.path for node in chain("tea", {"file_name": ["salt"]})} == {"salt"}


def test_output_formats(words):
    """Texts, one text, dicts; a trace has nodes in each."""
    assert RetrievalChain(words, topk=2, output_format="content")("tea") == [
        node.text for node in words("tea")[:2]
    ]
    assert RetrievalChain(words, topk=2, output_format="content", join="|")("tea").count("|") == 1
    assert RetrievalChain(words, topk=1, output_format="dict")("tea")[0]["source"] == "tea"
    assert RetrievalChain(words, topk=1, output_format="dict").trace("tea").nodes == tuple(
        words("tea")[:1]
    )


def test_auto_merge_is_the_function(docs):
    """The step gives what `auto_merge` gives with the same arguments."""
    retriever = Retriever(docs, "word", similarity="bm25", topk=9)
    chain = RetrievalChain(retriever, AutoMerge(ratio=0.6, least=1, up_to="line"))
    expected = auto_merge(retriever("tea"), ratio=0.6, least=1, up_to="line")
    assert scored(chain("tea")) == scored(expected)
    assert any(node.merged_from for node in expected)


def test_windows_are_those_of_the_document(docs, words):
    """As nodes and as texts, in the order of the best of each, with its score."""
    hits = words("tea")
    assert scored(Windows(1, 1)(hits)) == scored(docs.window(hits, 1, 1, merge=True))
    assert scored(Windows(0, 1, merge=False)(hits)) == scored(docs.window(hits, 0, 1))
    assert Windows(1, 1)([]) == []


def test_windows_over_several_documents():
    """Windows of two Documents stand in the order of their hits."""
    one, two = (
        build(),
        build({"other": "tea tea tea tea tea\nnothing\nblack leaf with tea and more of it"}),
    )
    hits = Retriever([one, two], "line", similarity="bm25", topk=9)("tea")
    trees = [node.reader.document_token for node in hits]
    assert trees != sorted(trees, key=id)
    widened = Windows(0, 0)(hits)
    joined = [node.merged_from or (node.uid,) for node in widened]
    best = [min(rank for rank, hit in enumerate(hits) if hit.uid in uids) for uids in joined]
    assert best == sorted(best)
    assert {uid for uids in joined for uid in uids} == {hit.uid for hit in hits}


def test_mmr_is_the_function_on_stored_vectors(docs):
    """The step chooses as `mmr` does on the nodes' vectors."""
    hits = Retriever(docs, "line", similarity="cosine", topk=8)("tea")
    expected = mmr(
        [(node.uid, node.score) for node in hits],
        np.array([node.embedding for node in hits]),
        lam=0.4,
    )
    assert scored(MMR(lam=0.4)(hits)) == expected
    assert scored(MMR(lam=0.4, topk=3)(hits)) == expected[:3]


def test_mmr_embeds_what_has_no_vector():
    """Windows, and nodes of a group that was never searched by embedding, are embedded by the
    Document.
    """
    made = build(embed=embed)
    words = Retriever(made, "line", similarity="bm25")
    hits = words("tea")
    assert hits[0].embeddings == {}
    expected = mmr([(node.uid, node.score) for node in hits], [embed(node.text) for node in hits])
    assert [uid for uid, _ in scored(MMR()(hits))] == [uid for uid, _ in expected]
    windows = RetrievalChain(words, Windows(1, 0), MMR(topk=2))("tea")
    assert len(windows) == 2


def test_mmr_of_sparse_vectors():
    """Equal sparse vectors push each other back; those of the opposite sign count as unlike."""
    made = build(embed=lambda text: {ord(word[0]): 1.0 for word in text.split()})
    hits = Retriever(made, "line")("tea salt")
    assert {type(node.embedding) for node in hits} == {dict}
    first, second = MMR(topk=2)(hits)
    assert first == hits[0]
    assert first.embedding != second.embedding


def test_mmr_needs_scores_and_vectors(docs, words):
    """What is missing is named."""
    with pytest.raises(RetrievalError, match="MMR needs nodes with scores"):
        MMR()([DocNode(text="a", embeddings={"e": [1.0]})])
    with pytest.raises(ConfigError, match="has 0"):
        MMR()([DocNode(text="a", score=1.0)])
    with pytest.raises(ConfigError, match="no Document"):
        MMR(embed_key="e")([DocNode(text="a", score=1.0)])
    two = build(embed={"one": embed, "two": embed})
    with pytest.raises(ConfigError, match="one, two"):
        MMR()(Retriever(two, "line", similarity="bm25")("tea"))
    with pytest.raises(ConfigError, match="embed key 'three'"):
        MMR(embed_key="three")(words("tea"))
    with pytest.raises(ConfigError, match="lam"):
        MMR(lam=2)


@given(
    st.lists(st.floats(0.01, 10), max_size=8),
    st.none() | st.floats(-1, 10),
    st.none() | st.floats(0.05, 1),
)
def test_a_threshold_keeps_what_is_good_enough(scores, bound, share):
    """What is kept is not worse than the bounds, what is dropped is worse than one; equality
    stays.
    """
    if bound is None and share is None:
        return
    nodes = [DocNode(text=str(at), score=score) for at, score in enumerate(scores)]
    kept = ScoreThreshold(bound, of_best=share)(nodes)
    least = max(
        [
            -1.0 if bound is None else bound,
            0.0 if share is None else share * max(scores, default=0.0),
        ]
    )
    assert kept == [node for node in nodes if node.score >= least]


def test_a_threshold_of_distances():
    """Where less is better, what is more is dropped."""
    nodes = [
        DocNode(text="a", score=1.0),
        DocNode(text="b", score=2.0),
        DocNode(text="c", score=float("nan")),
    ]
    assert ScoreThreshold(1.0, descend=False)(nodes) == nodes[:1]


@pytest.mark.parametrize(
    "make",
    [
        ScoreThreshold,
        lambda: ScoreThreshold("high"),
        lambda: ScoreThreshold(of_best=0),
        lambda: ScoreThreshold(of_best=0.5, descend=False),
        lambda: AutoMerge(ratio=0),
        lambda: Windows(before=-1),
        lambda: MMR(topk=0),
        lambda: MMR(topk=-1.0),
        lambda: MMR(lam=True),
        lambda: MMR(descend="no"),
        lambda: Reranker("BM25Reranker", topk=-1.0),
        lambda: RetrievalChain("bm25"),
        lambda: RetrievalChain(Retriever),
        lambda: RetrievalChain(lambda query: []),
        lambda: RetrievalChain(lambda query, filters=None, topk=None: [], "MMR"),
        lambda: RetrievalChain(lambda query, filters=None, topk=None: [], MMR),
        lambda: RetrievalChain(lambda query, filters=None, topk=None: [], lambda nodes: nodes),
        lambda: RetrievalChain(lambda query, filters=None, topk=None: [], topk=0),
        lambda: RetrievalChain(lambda query, filters=None, topk=None: [], fetch=0),
        lambda: RetrievalChain(lambda query, filters=None, topk=None: [], output_format="xml"),
    ],
)
def test_wrong_arguments_are_refused_when_it_is_made(make):
    """Before any question."""
    with pytest.raises(ConfigError):
        make()


def test_a_retriever_of_texts_is_refused(docs):
    """The chain renders, not the retriever within."""
    with pytest.raises(ConfigError, match="output_format"):
        RetrievalChain(Retriever(docs, "line", similarity="bm25", output_format="content"))


def test_errors_of_steps_name_them(words):
    """A step that raises, or gives something else than nodes, is named, in a call and in a
    trace.
    """

    def broken(nodes, query):
        return nodes[0].nothing

    def texts(nodes, query):
        return [node.text for node in nodes]

    for ask in (RetrievalChain(words, broken), RetrievalChain(words, broken).trace):
        with pytest.raises(RetrievalError, match="'broken' raised AttributeError"):
            ask("tea")
    with pytest.raises(RetrievalError, match="'texts' must return"):
        RetrievalChain(words, texts)("tea")
    with pytest.raises(RetrievalError, match="above 0"):
        ScoreThreshold(of_best=0.5)([DocNode(text="a", score=-1.0)])
    with pytest.raises(ConfigError, match="nodes of a Document"):
        Windows()([DocNode(text="a")])
    with pytest.raises(NotRegisteredError):
        RetrievalChain(words, AutoMerge(up_to="nothing"))("tea")
    with pytest.raises(ConfigError, match="query must be a string; got None"):
        RetrievalChain(words)(None)


def test_errors_of_a_function_that_retrieves_come_through():
    """As they are, in a call as in a trace: as in hybrids."""

    def lost(query, filters=None, topk=None):
        raise OSError(query)

    for ask in (RetrievalChain(lost), RetrievalChain(lost).trace, RetrievalChain(lost).explain):
        with pytest.raises(OSError, match="tea"):
            ask("tea")


def test_mmr_of_blank_texts():
    """Without any vector the order is that of the scores."""
    made = build(embed=embed)
    hits = [
        DocNode.from_segment(
            node.segment._replace(uid=f"{at}", content=" "), node.reader, score=3.0 - at
        )
        for at, node in enumerate(made.get_nodes("line")[:3])
    ]
    assert [node.uid for node in MMR()(hits)] == ["0", "1", "2"]


def test_a_step_that_traces_itself(words):
    """Its own stages stand in the trace, and must be stages."""

    class Halving:
        name = "Halving"

        def __call__(self, nodes, query):
            return nodes[: len(nodes) // 2]

        def trace(self, stage, query):
            nodes = tuple(self(stage.nodes, query))
            return Stage("cut", "half", nodes, (Stage("step", "looked", stage.nodes, (stage,)),))

    chain = RetrievalChain(words, Halving())
    assert [stage.name for stage in chain.explain("tea").stages] == ["bm25", "looked", "half"]
    assert scored(chain.trace("tea").nodes) == scored(chain("tea"))
    wrong = Halving()
    wrong.trace = lambda stage, query: stage.nodes
    with pytest.raises(RetrievalError, match="must be a"):
        RetrievalChain(words, wrong).trace("tea")


def test_what_steps_are_called(words):
    """Rerankers by their names, own steps by their classes, with what they were set to."""

    def own(nodes, query):
        return nodes

    chain = RetrievalChain(
        words, Reranker("KeywordFilter", required_keys=["tea"]), MMR(topk=3), own, topk=2
    )
    stages = chain.explain("tea").stages
    assert [(stage.kind, stage.name) for stage in stages] == [
        ("retriever", "bm25"),
        ("reranker", "KeywordFilter"),
        ("diversity", "MMR"),
        ("step", "own"),
        ("cut", "topk"),
    ]
    assert stages[2].settings == {"lam": 0.5, "topk": 3, "descend": True}


def test_chains_stand_where_retrievers_do(docs, words):
    """In another chain, in a hybrid; which way scores go is known."""
    chain = RetrievalChain(words, ScoreThreshold(0.1), topk=3)
    assert scored(RetrievalChain(chain, topk=2)("tea")) == scored(chain("tea", topk=2))
    hybrid = HybridRetriever(chain, Retriever(docs, "line", similarity="cosine"), topk=4)
    assert len(hybrid("tea")) == 4
    assert chain.higher_is_better
    assert chain.output_format is None
    assert chain.sources == words.sources


def test_all_of_a_chain_sees_one_state():
    """What is added while a step works is not seen by the steps behind it, nor is what is taken
    away missed.
    """
    made = build()
    words = Retriever(made, "line", similarity="bm25")
    times = []

    def meanwhile(nodes, query):
        if not times:
            times.append(1)
            other = threading.Thread(
                target=lambda: made.add_texts({"tea": "green tea\nNEW\nblack tea"})
            )
            other.start()
            other.join()
        return nodes

    before = RetrievalChain(words, Windows(1, 1))("black")
    during = RetrievalChain(words, meanwhile, Windows(1, 1))("black")
    after = RetrievalChain(words, Windows(1, 1))("black")
    assert times == [1]
    assert [node.text for node in during] in (
        [node.text for node in before],
        [node.text for node in after],
    )
    assert "NEW" in after[0].text
    assert "NEW" not in before[0].text


def test_a_steps_own_trace_fails_as_a_call_does(words):
    """The error is the same, and names the step."""

    class Failing:
        name = "Failing"

        def __call__(self, nodes, query):
            msg = "boo"
            raise ValueError(msg)

        def trace(self, stage, query):
            return self(stage.nodes, query)

    for ask in (RetrievalChain(words, Failing()), RetrievalChain(words, Failing()).explain):
        with pytest.raises(RetrievalError, match="The step 'Failing' raised ValueError: boo"):
            ask("tea")


def test_mmr_asks_the_store_once_for_all_vectors(docs, monkeypatch):
    """However many nodes there are."""
    hits = Retriever(docs, "line", similarity="cosine", topk=8)("tea")
    store = docs.reader.indexer.nodes.vectors
    asked = []
    get = type(store).get
    monkeypatch.setattr(
        type(store),
        "get",
        lambda self, *args, **kwargs: asked.append(args) or get(self, *args, **kwargs),
    )
    MMR()(hits)
    assert len(asked) == 1
    assert len(hits) == 8


def test_mmr_names_vectors_that_do_not_compare():
    """Of two models, or dense and sparse: the nodes, and what they have."""
    two, three = (
        DocNode(text=str(n), uid=str(n), score=1.0, embeddings={"e": [1.0] * n}) for n in (2, 3)
    )
    with pytest.raises(ConfigError, match=r"has one of 2 numbers, and .* has one of 3 numbers"):
        MMR()([two, three])
    sparse = DocNode(text="x", score=1.0, embeddings={"e": {1: 1.0}})
    with pytest.raises(ConfigError, match="has a sparse one"):
        MMR()([two, sparse])


def test_a_merged_window_is_not_widened_again(words):
    """The error says so, and not that the Document was built anew; windows node by node can be."""
    with pytest.raises(ConfigError, match=r"merged window of \d nodes .* Use one"):
        RetrievalChain(words, Windows(), Windows())("tea")
    assert RetrievalChain(words, Windows(1, 0, merge=False), Windows(0, 1))("tea")
