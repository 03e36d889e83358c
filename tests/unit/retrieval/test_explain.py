"""`explain`: every hit with its way through the stages, shares that add up, JSON and text."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import (
    Condition,
    DataType,
    DocField,
    DocNode,
    Document,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
    explain,
    why_not,
)
from lazyrag.data.encoding import to_dict
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.retrieval import (
    MMR,
    AutoMerge,
    Explanation,
    FeedbackRetriever,
    MultiQueryRetriever,
    ScoreThreshold,
    Windows,
)
from lazyrag.retrieval.explain import clipped, text_width

WORDS = "tea leaf green black water salt 茶 水".split()
TEXTS = {
    "a": "green tea\nblack tea\nsalt\nwater for tea\nleaf",
    "b": "tea leaf\ngreen leaf\n绿茶和水\nwater",
    "c": "black salt\nsalt water\ntea tea tea\ngreen\nblack leaf",
    "d": "茶叶\nwater leaf tea\nsalt of the earth",
}


def embed(text: str) -> list[float]:
    """Counts of letters."""
    return [text.count(one) + 0.25 for one in "aelst"]


def other(text: str) -> list[float]:
    """Counts of other letters."""
    return [text.count(one) + 0.5 for one in "bgkrw"]


@pytest.fixture(scope="module")
def docs():
    """Four documents of lines and words, with two embed keys."""
    made = Document(
        embed={"one": embed, "two": other}, doc_fields={"year": DocField(DataType.INT32)}
    )
    made.create_node_group("line", transform=str.splitlines)
    made.create_node_group("word", transform=str.split, parent="line")
    made.add_texts(TEXTS)
    return made


@pytest.fixture(scope="module")
def retrievers(docs):
    """A retriever of every kind, and chains of them."""
    words = Retriever(docs, "line", similarity="bm25", topk=6)
    both = Retriever(docs, "line", topk=5, similarity_cut_off={"one": 0.8})
    cosine = Retriever(docs, "line", embed_keys=["one"], topk=6)
    hybrid = HybridRetriever(words, cosine, topk=5, depth=8)
    return {
        "bm25": words,
        "cosine": cosine,
        "cut off": Retriever(docs, "line", similarity="bm25", topk=6, similarity_cut_off=0.5),
        "both keys": both,
        "mapped": Retriever(docs, "word", similarity="bm25", topk=6, target="line"),
        "hybrid": hybrid,
        "weighted": HybridRetriever(words, both, fusion_method="weighted", topk=4, depth=7),
        "function": lambda query, filters=None, topk=None: words(query, filters, topk),
        "chain": RetrievalChain(hybrid, MMR(embed_key="one", topk=7), ScoreThreshold(-0.2), topk=4),
        "merging": RetrievalChain(
            Retriever(docs, "word", similarity="bm25", topk=9), AutoMerge(least=1), topk=5
        ),
        "widening": RetrievalChain(
            words, Reranker("KeywordFilter", exclude_keys=["salt"]), Windows(1, 0), topk=3
        ),
        "around": RetrievalChain(words, Windows(0, 1, merge=False), lambda nodes, query: nodes[1:]),
        "queries": MultiQueryRetriever(words, lambda query: [query, "tea", "salt"], topk=4),
        "feedback": FeedbackRetriever(cosine),
        "mixed": RetrievalChain(hybrid, Reranker("BM25Reranker", weight=0.4), topk=3),
        "two fusions": RetrievalChain(
            hybrid,
            Reranker(
                "FusionReranker",
                rerankers=[Reranker("BM25Reranker", weight=0.5)],
                fusion="weighted",
            ),
        ),
        "merged fusions": RetrievalChain(
            HybridRetriever(words, Retriever(docs, "word", similarity="bm25", topk=9), topk=9),
            AutoMerge(up_to="line", least=1, ratio=0.1),
        ),
        "wide fusions": RetrievalChain(hybrid, Windows(1, 1)),
        "of chains": HybridRetriever(
            RetrievalChain(words, topk=4), RetrievalChain(hybrid, topk=3), topk=4
        ),
    }


NAMES = [
    *("bm25", "cosine", "cut off", "both keys", "mapped", "hybrid", "weighted", "function"),
    *("chain", "merging", "widening", "around", "of chains"),
    *("queries", "feedback", "mixed"),
    *("two fusions", "merged fusions", "wide fusions"),
]
queries = st.lists(st.sampled_from(WORDS), min_size=0, max_size=3).map(" ".join)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(query=queries, topk=st.sampled_from([None, 1, 3]))
def test_every_returned_node_is_explained(retrievers, name, query, topk):
    """The hits are those of a call, in its order, with its scores; each begins at a retriever and
    ends at its rank.
    """
    retriever = retrievers[name]
    nodes = retriever(query, topk=topk)
    explanation = explain(retriever, query, topk=topk)
    assert [(hit.uid, hit.score) for hit in explanation] == [
        (node.uid, node.score) for node in nodes
    ]
    assert [hit.rank for hit in explanation] == list(range(1, len(nodes) + 1))
    for hit in explanation:
        assert (hit.standings[0].kind, hit.standings[-1].uid) == ("retriever", hit.uid)
        assert (hit.standings[-1].rank, hit.standings[-1].score) == (hit.rank, hit.score)
        assert hit.standings[-1].stage == len(explanation.stages)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(query=queries)
def test_shares_add_up_to_the_score(retrievers, name, query):
    """What the inputs of a fusion added is the fused score: of the last fusion, and of those
    below.
    """
    explanation = explain(retrievers[name], query)
    numbers = {stage.number: stage for stage in explanation.stages}
    for hit in explanation:
        assert (hit.fused is None) == (not hit.contributions) == (name not in FUSED)
        if hit.fused is not None:
            assert math.fsum(hit.contributions.values()) == hit.fused
            # behind which MMR has scores of its own
            assert hit.fused == hit.score or name == "chain"
        for standing in hit.standings:
            if (
                standing.kind in ("fusion", "queries")
                and standing.rank is not None
                and not hit.merged_from
            ):
                parts = {
                    one.stage: one.contributions[standing.stage]
                    for one in hit.standings
                    if standing.stage in one.contributions
                }
                assert set(parts) == _sources(numbers, standing.stage)
                assert math.fsum(parts.values()) == standing.score
            if standing.contributions:
                assert standing.share == standing.contributions[max(standing.contributions)]


FUSED = {"both keys", "hybrid", "weighted", "chain", "of chains", "queries", "mixed"}
FUSED |= {"two fusions", "merged fusions", "wide fusions", "side by side"}


def _sources(numbers, stage):
    """The stages under a fusion, cuts left out."""
    found = set()
    for one in numbers[stage].inputs:
        below = one
        while numbers[below].kind == "cut":
            [below] = numbers[below].inputs
        found.add(below)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None)
@given(query=queries, topk=st.sampled_from([None, 2]))
def test_each_node_has_one_fate(docs, retrievers, name, query, topk):
    """A node is in the result at its rank, or another one stands for it there, or one stage dropped
    it.
    """
    retriever = retrievers[name]
    nodes = retriever(query, topk=topk)
    ranks = {node.uid: rank for rank, node in reversed(list(enumerate(nodes, start=1)))}
    merged = {uid for node in nodes for uid in node.merged_from}
    explanation = explain(retriever, query, topk=topk)
    stages = {stage.name for stage in explanation.stages} | {"filter", "similarity_cut_off"}
    dropped = {one.uid: one for one in explanation.dropped}
    for node in docs.get_nodes("line") + docs.get_nodes("word"):
        reason = why_not(retriever, node.uid, query, topk=topk)
        assert reason.uid == node.uid
        assert reason.message
        if node.uid in ranks:
            assert (reason.stage, reason.cause, reason.rank) == ("result", "found", ranks[node.uid])
            continue
        assert reason.stage in stages
        assert reason.cause != "found"
        if reason.cause == "merged":
            assert node.uid in merged or node.uid in {
                uid for hit in explanation for uid in hit.merged_from
            }
        if reason.cause == "dropped" and node.uid in dropped:
            assert (reason.rank, reason.score) == (dropped[node.uid].rank, dropped[node.uid].score)
        if reason.cause == "inputs":
            assert len(reason.inputs) > 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["bm25", "cosine", "cut off"])
@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(query=queries.filter(bool), topk=st.integers(1, 4))
def test_the_true_rank_is_that_of_the_whole_ranking(docs, retrievers, name, query, topk):
    """A node that a retriever ranks too low has the rank and score that it has where all are asked
    for.
    """
    retriever = retrievers[name]
    everything = {
        node.uid: (rank, node.score)
        for rank, node in enumerate(retriever(query, topk=1000), start=1)
    }
    for node in docs.get_nodes("line"):
        reason = retriever.why_not(node.uid, query, topk=topk)
        if node.uid in everything:
            assert (reason.rank, reason.score) == everything[node.uid]
            assert reason.cause == ("found" if reason.rank <= topk else "depth")
        else:
            assert reason.cause in ("terms", "cut-off")


def test_every_kind_of_retriever_is_asked(retrievers):
    """The tests above ask each of them."""
    assert set(retrievers) == set(NAMES)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_kept_as_json(retrievers, name):
    """The JSON reads back as the dict; keys and order are those that the documentation tells."""
    explanation = explain(retrievers[name], "green tea", {"year": [2000, None]})
    read = json.loads(explanation.to_json(indent=1))
    assert read == explanation.to_dict()
    assert list(read) == ["query", "filters", "seconds", "hits", "stages", "dropped"]
    assert read["filters"] == "year in [2000, None]"
    assert {tuple(hit) for hit in read["hits"]} <= {HIT}
    assert {tuple(one) for hit in read["hits"] for one in hit["standings"]} <= {STANDING}
    assert read["hits"]


HIT = tuple(
    "rank uid score group path number text merged_from contributions fused standings".split()
)
STANDING = tuple("stage kind name uid rank score share contributions".split())


def test_numbers_that_are_none_are_null_in_json():
    """JSON has neither nan nor infinity."""
    found = [
        DocNode(text="a", score=math.nan),
        DocNode(text="b", score=math.inf),
        DocNode(text="c", score=-math.inf),
    ]
    explanation = explain(lambda query, filters=None, topk=None: found, "x")
    assert [hit["score"] for hit in json.loads(explanation.to_json())["hits"]] == [None, None, None]


def test_what_a_stage_was_set_to_is_plain():
    """Functions by name, objects without their addresses, sets in an order, numpy's numbers as
    numbers.
    """

    class Model:
        pass

    given = {
        "call": embed,
        "model": Model(),
        "set": {"b", "a"},
        "count": np.int64(3),
        "share": np.float32(0.5),
        1: b"x",
    }
    told = {
        "call": "embed",
        "model": "Model",
        "set": ["a", "b"],
        "count": 3,
        "share": 0.5,
        "1": "b'x'",
    }
    assert to_dict(given) == told
    json.dumps(to_dict(given))


def test_a_trace_must_be_a_stage():
    """What else a retriever's trace returns is refused."""

    class Odd:
        def __call__(self, query, filters=None, topk=None):
            return []

        def trace(self, query, filters=None, topk=None):
            return []

    with pytest.raises(RetrievalError, match=r"must be a lazyrag\.retrieval\.stages\.Stage"):
        explain(Odd(), "tea")


def test_long_tables_are_short_on_uids(docs):
    """Of many nodes that a hit stands for three are named, of many dropped ones the best three,
    with their numbers.
    """
    chain = RetrievalChain(
        Retriever(docs, "word", similarity="bm25", topk=30), Windows(9, 9), topk=1
    )
    explanation = chain.explain("tea leaf water salt")
    text = str(explanation)
    assert f"and {len(explanation[0].merged_from) - 3} more" in text
    assert len(explanation[0].merged_from) > 3
    [line] = [
        line
        for line in str(explain(Retriever(docs, "line"), "tea", topk=2)).splitlines()
        if " dropped #" in line
    ]
    assert line.endswith("more")


def test_what_a_stage_drops_is_told_with_its_rank(docs):
    """A cut names the nodes behind it, each with its rank and score before."""
    words = Retriever(docs, "line", similarity="bm25", topk=6)
    nodes = words("tea leaf")
    explanation = RetrievalChain(words, topk=2, fetch=6).explain("tea leaf")
    assert [(one.name, one.uid, one.rank, one.score) for one in explanation.dropped] == [
        ("topk", node.uid, rank, node.score) for rank, node in enumerate(nodes[2:], start=3)
    ]
    assert [stage.dropped for stage in explanation.stages] == [0, 4]


def test_a_reranker_shows_before_and_after(docs):
    """A hit has its rank and score from the retriever, and those from the reranker."""

    def backwards(nodes, query):
        return [node.with_score(float(at)) for at, node in enumerate(reversed(nodes))]

    words = Retriever(docs, "line", similarity="bm25", topk=3)
    nodes = words("tea leaf")
    hit = RetrievalChain(words, backwards).explain("tea leaf")[0]
    assert [(one.name, one.rank, one.score) for one in hit.standings] == [
        ("bm25", 3, nodes[2].score),
        ("backwards", 1, 0.0),
    ]
    assert str(hit).endswith(f"bm25 #3 {nodes[2].score:.4g} > backwards #1 0")


def test_a_merged_node_tells_what_it_stands_for(docs):
    """A parent has the ranks of its children among the hits; a window those of the nodes in it that
    were found.
    """
    words = Retriever(docs, "word", similarity="bm25", topk=9)
    hit = next(
        hit
        for hit in RetrievalChain(words, AutoMerge(up_to="line")).explain("tea")
        if hit.merged_from
    )
    assert [one.uid for one in hit.standings if one.kind == "retriever"] == list(hit.merged_from)
    assert hit.node is not None
    assert set(hit.merged_from) == set(hit.node.merged_from)
    lines = Retriever(docs, "line", similarity="bm25", topk=1)
    [hit] = RetrievalChain(lines, Windows(1, 1)).explain("earth")
    assert hit.merged_from == (lines("earth")[0].uid,)
    assert len(hit.node.merged_from) == 2


def test_a_neighbour_stands_for_the_hit_beside_it(docs):
    """A node that a window brought has the standing of the hit in whose window it is."""
    lines = Retriever(docs, "line", similarity="bm25", topk=1)
    [found] = lines("earth")
    before, hit = RetrievalChain(lines, Windows(1, 0, merge=False)).explain("earth")
    assert (before.merged_from, hit.merged_from) == ((found.uid,), ())
    assert (hit.uid, before.number) == (found.uid, found.number - 1)


def test_mapped_hits_tell_what_led_to_them(docs):
    """With a target each node names all the hits that lead to it."""
    retriever = Retriever(docs, "word", similarity="bm25", topk=20, target="line")
    words = Retriever(docs, "word", similarity="bm25", topk=20)("tea")
    for hit in retriever.explain("tea"):
        assert set(hit.merged_from) == {word.uid for word in words if word.parent.uid == hit.uid}


def test_one_uid_in_two_documents(docs):
    """Equal uids of two Documents are two hits with shares of their own."""
    twin = Document(
        embed={"one": embed, "two": other}, doc_fields={"year": DocField(DataType.INT32)}
    )
    twin.create_node_group("line", transform=str.splitlines)
    twin.add_texts({"a": "green tea\nblack tea and salt"})
    retriever = Retriever([docs, twin], "line", topk=30)
    explanation = retriever.explain("green tea")
    uids = [hit.uid for hit in explanation]
    assert len(set(uids)) < len(uids)
    assert [hit.uid for hit in explanation] == [node.uid for node in retriever("green tea")]
    for hit in explanation:
        assert math.fsum(hit.contributions.values()) == hit.fused == hit.score


def test_inputs_of_one_name_are_told_apart(docs):
    """Two retrievers by the same similarity have shares under two names."""
    hybrid = HybridRetriever(
        Retriever(docs, "line", similarity="bm25"), Retriever(docs, "line", similarity="bm25")
    )
    assert list(hybrid.trace("tea").inputs) != []
    assert list(explain(hybrid, "tea")[0].contributions) == ["bm25", "bm25 (2)"]


def test_each_wording_of_a_question_is_told(docs):
    """Leaves of one name say which query they were asked, where it is not the one that was put."""
    several = MultiQueryRetriever(
        Retriever(docs, "line", similarity="bm25"), lambda query: [query, "salt"]
    )
    explanation = several.explain("tea")
    assert [
        stage.settings["query"] for stage in explanation.stages if stage.kind == "retriever"
    ] == ["tea", "salt"]
    assert str(explanation).count("query=") == 1


def test_the_table_is_aligned(docs):
    """Columns stand under their heads, also behind paths and names of wide characters."""
    made = Document()
    made.create_node_group("行", transform=str.splitlines)
    made.add_texts({"茶园手册.txt": "茶\n绿茶\u001b[31m", "tea.txt": "茶 tea"})
    text = str(
        Retriever(made, "行", similarity="bm25_chinese").explain(
            "茶", Condition("file_name", "exists")
        )
    )
    assert "\u001b" not in text
    head, *lines = text.split("\n\n")[1].splitlines()
    column = text_width(head[: head.index("1 bm25_chinese")])
    assert len(lines) == 6
    for line in lines[::2]:
        assert text_width(line[: line.rindex("#")]) == column
    assert "filter: file_name exists" in text
    assert "no hits" in str(Retriever(made, "行", similarity="bm25").explain("chair"))


@given(st.text(max_size=30), st.integers(5, 20))
def test_clipped_text_fits(text, width):
    """A clipped text takes no more columns than it may, and is the text itself where that fits."""
    assert text_width(clipped(text, width)) <= max(width, 3)
    if text_width(text) <= width:
        assert clipped(text, width) == text


def test_it_is_a_sequence(retrievers):
    """Hits by index, by slice, in a loop; of a result with none, nothing."""
    explanation = explain(retrievers["bm25"], "tea")
    assert isinstance(explanation, Explanation)
    assert list(explanation)[1:3] == list(explanation[1:3])
    assert len(explain(retrievers["bm25"], " ")) == 0
    assert explanation.seconds >= 0


def test_what_is_no_retriever_is_refused(docs):
    """Errors say what was given, and what is needed."""
    with pytest.raises(ConfigError, match="retriever 'str' cannot be called"):
        explain("bm25", "tea")
    with pytest.raises(RetrievalError, match="list of nodes"):
        explain(lambda query, filters=None, topk=None: ["tea"], "tea")
    with pytest.raises(ConfigError, match="query must be a string; got 3"):
        Retriever(docs, "line", similarity="bm25").explain(3)
    with pytest.raises(ConfigError, match="uid must be a string"):
        Retriever(docs, "line", similarity="bm25").why_not(docs.get_nodes("line")[0], "tea")


def test_any_output_format_is_explained(docs):
    """A retriever that hands out texts is traced as nodes."""
    retriever = Retriever(docs, "line", similarity="bm25", output_format="content")
    assert [hit.text for hit in retriever.explain("salt")] == retriever("salt")


@pytest.mark.slow
def test_many_rerankers_are_explained_in_time(docs, retrievers):
    """Each weighted reranker takes a stage twice: the ways through thirty of them are not counted
    one by one.
    """
    chain = RetrievalChain(retrievers["bm25"], *[Reranker("BM25Reranker", weight=0.5)] * 30, topk=1)
    started = time.process_time()
    explanation = chain.explain("tea leaf")
    assert len(explanation.stages) == 62
    causes = {chain.why_not(node.uid, "tea leaf").cause for node in docs.get_nodes("line")}
    assert causes == {"found", "dropped", "terms"}
    assert time.process_time() - started < 10


@pytest.mark.parametrize("query", ["tea leaf", "salt water", "green black"])
@pytest.mark.parametrize("turn", [1, -1])
def test_a_merged_hit_has_the_shares_of_its_best_node(docs, retrievers, query, turn):
    """Of the nodes in a window that is the one which the reranker before put first, whatever the
    fusion gave it.
    """

    def turned(nodes, query):
        return [node.with_score(float(len(nodes) - at)) for at, node in enumerate(nodes[::turn])]

    fused = {node.uid: node.score for node in retrievers["hybrid"](query, topk=20)}
    for step in (Windows(9, 9), AutoMerge(least=1, ratio=0.01)):
        chain = RetrievalChain(retrievers["hybrid"], turned, step)
        explanation = chain.explain(query)
        last = next(stage.number for stage in explanation.stages if stage.name == "turned")
        merged = [hit for hit in explanation if len(hit.merged_from) > 1]
        assert merged
        for hit in merged:
            best = min(
                (one for one in hit.standings if one.stage == last), key=lambda one: one.rank
            )
            assert (best.score, fused[best.uid]) == (hit.score, hit.fused)


def test_an_explanation_can_stand_in_a_set(retrievers):
    """With all that it is made of, whatever a stage was set to."""
    explanation = explain(retrievers["weighted"], "tea", {"year": [2000, None]})
    assert len({explanation, explanation}) == 1
    assert len(set(explanation.stages)) == len(explanation.stages)
    assert len(set(explanation)) == len(explanation)
    assert explanation[0].standings[0] in set(explanation[0].standings)
