"""`why_not`: the one reason for which a node is not in a result, leaf by leaf."""

from __future__ import annotations

import pytest

from lazyrag import (
    LAZY_ROOT_NAME,
    And,
    BM25Retriever,
    Condition,
    DataType,
    DocField,
    Document,
    HybridRetriever,
    IngestionWarning,
    Not,
    Or,
    RetrievalChain,
    Retriever,
    explain,
    register_similarity,
    why_not,
)
from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.retrieval import (
    AutoMerge,
    FeedbackRetriever,
    MultiQueryRetriever,
    Windows,
)
from lazyrag.retrieval.similarity import VectorSearch, indexes

TEXTS = {"tea": "green tea\ntea tea tea\nblack tea", "salt": "salt\nsea salt\n茶水"}


def embed(text: str) -> list[float]:
    """Counts of letters."""
    return [text.count(one) + 0.25 for one in "aelst"]


def build(**options) -> Document:
    """Two documents of lines and words, of two years."""
    made = Document(doc_fields={"year": DocField(DataType.INT32)}, **options)
    made.create_node_group("line", transform=str.splitlines)
    made.create_node_group("word", transform=str.split, parent="line")
    for year, (name, text) in enumerate(TEXTS.items(), start=2000):
        made.add_texts({name: text}, metadata={name: {"year": year}})
    return made


@pytest.fixture
def docs():
    """With one embed key."""
    return build(embed=embed)


def line(docs: Document, text: str):
    """The line with a text."""
    return next(node for node in docs.get_nodes("line") if node.text == text)


def test_a_node_in_the_result_has_its_rank(docs):
    """Its rank and score there, and no stage that dropped it."""
    words = Retriever(docs, "line", similarity="bm25")
    second = words("tea")[1]
    reason = words.why_not(second.uid, "tea")
    assert (reason.stage, reason.cause, reason.rank, reason.score) == (
        "result",
        "found",
        2,
        second.score,
    )
    assert str(reason) == "result: It is in the result at rank 2."


def test_an_unknown_node(docs):
    """There is none in the Document, or in any of several."""
    words = Retriever(docs, "line", similarity="bm25")
    assert words.why_not("nowhere", "tea").cause == "unknown"
    assert (
        "in the Documents"
        in Retriever([docs, build()], "line", similarity="bm25").why_not("nowhere", "tea").message
    )


def test_a_node_of_another_group(docs):
    """The group is named, and the one that is searched."""
    reason = Retriever(docs, "line", similarity="bm25").why_not(
        docs.get_nodes(LAZY_ROOT_NAME)[0].uid, "tea"
    )
    assert reason.cause == "group"
    assert repr(LAZY_ROOT_NAME) in reason.message
    assert "'line'" in reason.message


def test_a_node_that_the_filter_excludes(docs):
    """The condition that excludes it is named, with what the node has instead; the others are
    not.
    """
    wanted = Condition("file_name", "exists") & Condition("year", ">", 2000)
    reason = Retriever(docs, "line", similarity="bm25").why_not(
        line(docs, "green tea").uid, "tea", wanted
    )
    assert (reason.stage, reason.cause) == ("filter", "filter")
    assert reason.message == "The filter year > 2000 excludes it: its year is 2000."
    either = Condition("year", "in", [1, 2]) | ~Condition("year", "exists")
    told = (
        Retriever(docs, "line", similarity="bm25")
        .why_not(line(docs, "green tea").uid, "tea", either)
        .message
    )
    assert told == "The filter year in [1, 2] or not (year exists) excludes it: its year is 2000."


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Or(), "The filter nothing excludes it."),
        (Not(And()), "The filter not (everything) excludes it."),
        (
            Condition("year", "exists", False),
            "The filter year is missing excludes it: its year is 2000.",
        ),
        (
            Condition("year", "<", 9)
            & (Condition("year", "eq", None) | Condition("file_size", "exists", False)),
            "The filter year < 9 excludes it: its year is 2000.",
        ),
        (
            (Condition("year", "<", 9) & Condition("year", ">", 3))
            | Condition("file_type", "eq", ".pdf"),
            "The filter (year < 9 and year > 3) or file_type == 'application/pdf' excludes it: its year is 2000, ",
        ),
    ],
)
def test_filters_are_told_as_people_write_them(docs, wanted, told):
    """Signs, brackets, missing values, and filters without any condition."""
    reason = Retriever(docs, "line", similarity="bm25").why_not(
        line(docs, "green tea").uid, "tea", wanted
    )
    assert reason.message.startswith(told)


def test_a_node_without_the_querys_terms(docs):
    """The terms that were looked for are named, as the analyser made them."""
    reason = Retriever(docs, "line", similarity="bm25").why_not(
        line(docs, "sea salt").uid, "green teas"
    )
    assert (reason.stage, reason.cause, reason.rank) == ("bm25", "terms", None)
    assert "'green', 'tea'" in reason.message
    assert (
        Retriever(docs, "line", similarity="bm25").why_not(line(docs, "salt").uid, "?!").cause
        == "query"
    )


def test_a_node_that_ranks_too_low(docs):
    """Its true rank and score are those of a ranking of everything."""
    words = Retriever(docs, "line", similarity="bm25", topk=1)
    last = words("tea green black", topk=50)[-1]
    reason = words.why_not(last.uid, "tea green black")
    assert (reason.stage, reason.cause, reason.rank, reason.score) == (
        "bm25",
        "depth",
        3,
        last.score,
    )
    assert reason.message == "Its rank is 3 of 3, and 1 were requested."
    assert words.why_not(last.uid, "tea green black", topk=3).cause == "found"


def test_a_node_worse_than_the_cut_off(docs):
    """It is the cut-off's doing also where the node is beyond topk: a larger one would not help."""
    nodes = Retriever(docs, "line", similarity="bm25", topk=50)("tea green")
    bound = (nodes[0].score + nodes[1].score) / 2
    for topk in (1, 50):
        retriever = Retriever(docs, "line", similarity="bm25", topk=topk, similarity_cut_off=bound)
        reason = retriever.why_not(nodes[2].uid, "tea green")
        assert (reason.stage, reason.cause) == ("similarity_cut_off", "cut-off")
        assert (reason.rank, reason.score) == (3, nodes[2].score)


def test_a_view_says_nothing_of_what_it_hides(docs):
    """A node that a restricted view does not see is told as one that does not exist, in the same
    words.
    """
    view = docs.restricted({"year": [2001]})
    for group, similarity in (("line", "bm25"), ("word", "bm25"), ("line", "cosine")):
        retriever = Retriever(view, group, similarity=similarity)
        hidden, nowhere = line(docs, "green tea").uid, "0" * 32
        told = retriever.why_not(hidden, "tea").message
        assert told == retriever.why_not(nowhere, "tea").message.replace(nowhere, hidden)
        assert retriever.why_not(line(docs, "salt").uid, "salt").cause in ("found", "group")
    assert "2001" not in str(retriever.explain("salt"))


def test_a_view_ranks_among_what_it_sees(docs):
    """The true rank is that among the nodes of the view: hidden ones would show in the count."""
    view = docs.restricted({"year": [2001]})
    retriever = Retriever(view, "line", similarity="cosine", topk=1)
    assert {retriever.why_not(node.uid, "tea").rank for node in view.get_nodes("line")} == {1, 2, 3}


def test_a_node_with_no_dimension_of_the_query():
    """Sparse vectors are ranked only where they share a dimension with the query's."""
    nothing = Document(embed={"sparse": lambda text: {0: 1.0} if "tea" in text else {}})
    nothing.create_node_group("line", transform=str.splitlines)
    nothing.add_texts(TEXTS)
    reason = Retriever(nothing, "line").why_not(line(nothing, "salt").uid, "tea")
    assert (reason.stage, reason.cause) == ("ip", "terms")
    assert "dimension" in reason.message


def test_a_node_without_a_vector():
    """A text that the model refused has no place in a ranking by embedding."""

    def refusing(text):
        if "sea" in text:
            msg = "no vector"
            raise RuntimeError(msg)
        return embed(text)

    made = build(embed=refusing)
    retriever = Retriever(made, "line")
    with pytest.warns(IngestionWarning):
        retriever("tea")
    reason = retriever.why_not(line(made, "sea salt").uid, "tea")
    assert (reason.stage, reason.cause) == ("cosine", "embedding")
    assert "'default'" in reason.message


def test_a_function_that_gives_no_score(docs):
    """A batch function may leave nodes out, and is named."""

    @register_similarity(mode="text", batch=True, replace=True)
    def only_first(query, nodes):
        return [(nodes[0], 1.0)]

    retriever = Retriever(docs, "line", similarity="only_first")
    [first] = retriever("tea")
    for node in lines(docs):
        reason = retriever.why_not(node.uid, "tea")
        if node == first:
            assert (reason.cause, reason.rank) == ("found", 1)
        else:
            told = "The similarity 'only_first' gave it no score."
            assert (reason.cause, reason.message, reason.rank) == ("terms", told, None)


def lines(docs: Document):
    """All lines."""
    return docs.get_nodes("line")


def test_a_similarity_of_which_less_is_better(docs):
    """Rank and cut-off go by the similarity's direction."""

    @register_similarity(mode="text", descend=False, replace=True)
    def lengths(query, node):
        return float(len(node.text))

    retriever = Retriever(docs, "line", similarity="lengths", topk=1, similarity_cut_off=8)
    assert retriever.why_not(line(docs, "salt").uid, "tea").rank == 2
    assert retriever.why_not(line(docs, "sea salt").uid, "tea").cause == "depth"
    assert retriever.why_not(line(docs, "green tea").uid, "tea").cause == "cut-off"


def test_a_node_that_an_inexact_index_missed(docs):
    """Its rank in the exact ranking is told, and that the index is to blame."""

    class Forgetful(VectorSearch):
        def rank(self, question):
            found = VectorSearch.rank(self, question)
            return found if self.mode == "exact" else found[1:]

    with indexes.isolated():
        indexes.register("forgetful", lambda similarity, kwargs: Forgetful(mode="native"))
        first = Retriever(docs, "line", similarity="cosine")("tea")[0]
        reason = Retriever(docs, "line", similarity="cosine", index="forgetful").why_not(
            first.uid, "tea"
        )
    assert (reason.cause, reason.rank, reason.score) == ("depth", 1, first.score)
    assert "missed it" in reason.message


def test_a_blank_query_finds_nothing(docs):
    """That is the reason for each node, in a retriever and in chains."""
    words = Retriever(docs, "line", similarity="bm25")
    uid = line(docs, "salt").uid
    assert words.why_not(uid, " ").cause == "query"
    assert RetrievalChain(words, AutoMerge(), topk=3).why_not(uid, "").cause == "query"


def test_each_of_several_retrievers_has_its_reason(docs):
    """Where none gave it, the reasons stand one below the other."""
    words = Retriever(docs, "line", similarity="bm25")
    meaning = Retriever(docs, "line", similarity="cosine")
    hybrid = HybridRetriever(words, meaning, depth=1)
    reason = why_not(hybrid, line(docs, "sea salt").uid, "tea")
    assert (reason.stage, reason.cause) == ("rrf", "inputs")
    assert [(one.stage, one.cause) for one in reason.inputs] == [
        ("bm25", "terms"),
        ("cosine", "depth"),
    ]
    assert str(reason).splitlines()[1].startswith("  bm25: ")
    assert reason.to_dict()["inputs"][0]["cause"] == "terms"


def test_several_embed_keys_have_reasons_by_key():
    """Each key's ranking is a leaf under its own name."""
    made = build(embed={"one": embed, "two": embed})
    for number in range(60):
        made.add_texts({f"{number}": "tea " * (number + 2)})
    retriever = Retriever(made, "line", topk=1)
    reason = retriever.why_not(line(made, "茶水").uid, "tea")
    assert reason.stage == "rrf"
    assert [one.stage for one in reason.inputs] == ["cosine:one", "cosine:two"]


def test_a_node_of_the_target_group_that_no_hit_leads_to(docs):
    """It has the reason of the best node that would lead to it: the true rank, the terms, the
    filter, the cut-off.
    """
    retriever = Retriever(docs, "word", similarity="bm25", topk=1, target="line")
    words = Retriever(docs, "word", similarity="bm25", topk=50)("salt tea")
    last = line(docs, "black tea")
    rank, word = next(
        (rank, one) for rank, one in enumerate(words, 1) if one.parent.uid == last.uid
    )
    reason = retriever.why_not(last.uid, "salt tea")
    assert (reason.uid, reason.stage, reason.cause) == (last.uid, "bm25", "depth")
    assert (reason.rank, reason.score) == (rank, word.score)
    assert reason.message.startswith(
        "No hit of 'word' leads to it. Of the best of the 2 nodes that would: its rank is "
    )
    assert retriever.why_not(last.uid, "green").cause == "terms"
    assert retriever.why_not(last.uid, "salt tea", {"year": [2001]}).cause == "filter"
    cut = Retriever(docs, "word", similarity="bm25", target="line", similarity_cut_off=99)
    assert (cut.why_not(last.uid, "tea").cause, cut.why_not(last.uid, "tea").rank) == (
        "cut-off",
        rank - 2,
    )


def test_a_target_that_nothing_leads_to():
    """A line without words is led to by none, and a hit that leads nowhere was dropped there."""
    made = Document()
    made.create_node_group("line", transform=str.splitlines)
    made.create_node_group(
        "word", transform=lambda text: text.split() if "tea" in text else [], parent="line"
    )
    made.add_texts({"a": "green tea\nsalt"})
    reason = Retriever(made, "word", similarity="bm25", target="line").why_not(
        line(made, "salt").uid, "green"
    )
    assert reason.cause == "group"
    assert "no node of 'word' leads to it" in reason.message
    retriever = Retriever(made, "line", similarity="bm25", target="word")
    reason = retriever.why_not(line(made, "salt").uid, "salt")
    assert (retriever("salt"), reason.stage, reason.cause, reason.rank) == (
        [],
        "word",
        "dropped",
        1,
    )


def test_a_target_behind_a_fusion_of_embed_keys():
    """What one key found and the cut took away has its rank in the fused ranking."""
    made = build(embed={"one": embed, "two": embed})
    retriever = Retriever(made, "word", topk=1, target="line")
    [first] = retriever("tea")
    ranks = {}
    for rank, word in enumerate(Retriever(made, "word", topk=99)("tea"), start=1):
        ranks.setdefault(word.parent.uid, rank)
    for one in made.get_nodes("line"):
        if one.uid != first.uid:
            reason = retriever.why_not(one.uid, "tea")
            assert (reason.stage, reason.cause, reason.rank) == ("topk", "dropped", ranks[one.uid])


def test_a_merged_node_is_in_what_stands_for_it(docs):
    """A child whose parent took its place is found there, with the rank that it had before."""
    words = Retriever(docs, "word", similarity="bm25", topk=9)
    chain = RetrievalChain(words, AutoMerge(up_to="line"))
    rank, first = next(
        (rank, one) for rank, one in enumerate(words("tea"), 1) if one.parent.text == "tea tea tea"
    )
    reason = chain.why_not(first.uid, "tea")
    assert (reason.stage, reason.cause, reason.rank, reason.score) == (
        "AutoMerge",
        "merged",
        rank,
        first.score,
    )
    parent = next(node for node in chain("tea") if first.uid in node.merged_from)
    assert parent.uid in reason.message


def test_a_neighbour_in_a_window_is_in_the_result(docs):
    """A node that a window brought is there, though no retriever gave it."""
    words = Retriever(docs, "line", similarity="bm25", topk=1)
    chain = RetrievalChain(words, Windows(0, 1))
    [window] = chain("sea")
    reason = chain.why_not(line(docs, "茶水").uid, "sea")
    assert "茶水" in window.text
    assert (reason.stage, reason.cause, reason.rank) == ("Windows", "merged", None)
    assert window.uid in reason.message


def test_a_document_that_changes_meanwhile(docs):
    """The trace and the reason see one state, whatever a step of the chain does to the Document
    between them.
    """
    words = Retriever(docs, "line", similarity="bm25", topk=1)
    last = line(docs, "green tea").uid

    def changing(nodes, query):
        docs.add_texts({f"more {len(lines(docs))}": "green tea green tea"})
        return nodes

    reason = RetrievalChain(words, changing).why_not(last, "black")
    assert (reason.stage, reason.cause) == ("bm25", "terms")
    assert words.why_not(last, "tea").rank == 1 + [
        node.uid for node in words("tea", topk=99)
    ].index(last)


def test_arguments_are_checked(docs):
    """A topk of 0 and an unknown field are refused, as in a call."""
    words = Retriever(docs, "line", similarity="bm25")
    with pytest.raises(ConfigError):
        words.why_not("x", "tea", topk=0)
    with pytest.raises(ConfigError):
        words.why_not("x", "tea", {"nothing": 1})


@pytest.mark.parametrize("ask", ["__call__", "trace", "explain", "why_not"])
def test_a_misspelt_keyword_is_named_with_the_nearest(docs, ask):
    """By every retriever, in each of its methods, and by the functions."""
    words = Retriever(docs, "line", similarity="bm25")
    vectors = Retriever(docs, "line", similarity="cosine")
    for retriever in (
        words,
        BM25Retriever(docs, "line"),
        HybridRetriever(words, vectors),
        RetrievalChain(words, topk=1),
        FeedbackRetriever(vectors),
        MultiQueryRetriever(words, lambda query: []),
    ):
        given = ("uid", "tea") if ask == "why_not" else ("tea",)
        with pytest.raises(
            UnknownKeywordError, match=r"takes no argument 'top_k'.* Did you mean 'topk'\?"
        ):
            getattr(retriever, ask)(*given, top_k=3)
    for function, given in ((explain, ("tea",)), (why_not, ("uid", "tea"))):
        with pytest.raises(UnknownKeywordError, match="Did you mean 'topk'"):
            function(words, *given, top_k=3)


def test_a_function_cannot_tell_why(docs):
    """That is another thing than a node that does not exist."""
    words = Retriever(docs, "line", similarity="bm25")
    reason = why_not(
        lambda query, filters=None, topk=None: words(query, filters, topk),
        line(docs, "green tea").uid,
        "salt",
    )
    assert reason.cause == "no-reason"
    assert "records no reasons" in reason.message
