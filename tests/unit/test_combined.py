"""WeightedRetriever and PriorityRetriever: results side by side."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, HybridRetriever, Retriever
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.retrieval import MultiQueryRetriever, PriorityRetriever, WeightedRetriever
from lazyrag.retrieval.hybrid import allocate_seats


class Finds:
    """A retriever that finds the same nodes whenever it is asked, and notes how it was asked."""

    def __init__(self, names, topk=None):
        self.nodes = [DocNode(text=name, uid=name, score=10.0 - rank) for rank, name in enumerate(names.split())]
        self.topk = topk
        self.asked = []

    def __call__(self, query, filters=None, topk=None):
        """See `NodeRetriever`."""
        self.asked.append((query, filters, topk))
        return self.nodes[: self.topk if topk is None else topk]


def uids(nodes):
    """What a result comes down to."""
    return [node.uid for node in nodes]


A, B, C = "a1 a2 a3 a4 a5 a6 a7 a8", "b1 b2 b3 b4 b5 b6 b7 b8", "c1 c2 c3 c4 c5 c6 c7 c8"

pytestmark = pytest.mark.parametrize("how", ["call", "trace"])


def found(retriever, how, query="tea", **kwargs):
    """The nodes of a call, or of its trace: they must be the same."""
    return uids(retriever(query, **kwargs) if how == "call" else retriever.trace(query, **kwargs).nodes)


class TestWeighted:
    """Places in proportion to weights."""

    def test_two_by_position(self, how):
        """Retrievers are given by position, weights beside them; six places are shared out as 4 and 2."""
        assert found(WeightedRetriever(Finds(A), Finds(B), weights=[2, 1]), how) == ["a1", "b1", "a2", "a3", "b2", "a4"]

    def test_without_weights_all_count_the_same(self, how):
        """Places left over go to the first."""
        assert found(WeightedRetriever(Finds(A), Finds(B), topk=5), how) == ["a1", "b1", "a2", "b2", "a3"]

    @pytest.mark.parametrize(
        ("weights", "topk", "expected"),
        [([1, 1, 1], 10, (4, 3, 3)), ([5, 3, 2], 10, (5, 3, 2)), ([6, 3, 1], 4, (3, 1, 0)), ([1, 0, 1], 4, (2, 0, 2))],
    )
    def test_places_by_largest_remainder(self, how, weights, topk, expected):
        """Whole parts first, then the largest rests."""
        result = found(WeightedRetriever(Finds(A), Finds(B), Finds(C), weights=weights, topk=topk), how)
        assert tuple(sum(uid[0] == letter for uid in result) for letter in "abc") == expected

    def test_what_one_lacks_the_others_fill(self, how):
        """A retriever that finds one node leaves its places to the others, by their weights."""
        weighted = WeightedRetriever(Finds("a1"), Finds(B), Finds(C), weights=[4, 2, 1], topk=7)
        result = found(weighted, how)
        assert [sum(uid[0] == letter for uid in result) for letter in "abc"] == [1, 4, 2]

    def test_all_there_is_where_nothing_more_is_found(self, how):
        """The result is shorter than topk only where the retrievers find no more."""
        assert sorted(found(WeightedRetriever(Finds("a1 a2"), Finds("b1"), topk=9), how)) == ["a1", "a2", "b1"]

    def test_a_node_counts_once_for_the_one_that_ranks_it_best(self, how):
        """Nothing comes twice, and both retrievers still fill their places."""
        result = found(WeightedRetriever(Finds("x a1 a2 a3"), Finds("b1 x b2 b3"), topk=4), how)
        assert result == ["x", "b1", "a1", "b2"]

    def test_weight_zero_is_not_asked(self, how):
        """Not even where the others find too little."""
        never = Finds(A)
        assert found(WeightedRetriever(never, Finds("b1"), weights=[0, 1]), how) == ["b1"]
        assert never.asked == []

    def test_topk_of_none_takes_all_that_each_gives(self, how):
        """A list of nodes, not of lists; each retriever's own topk holds."""
        weighted = WeightedRetriever(Finds(A, topk=2), Finds(B, topk=3), topk=None)
        assert sorted(found(weighted, how)) == ["a1", "a2", "b1", "b2", "b3"]
        assert len(found(weighted, how, topk=4)) == 4

    def test_filters_reach_every_retriever(self, how):
        """And so does the bound."""
        one, two = Finds(A), Finds(B)
        found(WeightedRetriever(one, two, topk=3), how, filters={"x": 1})
        assert one.asked == two.asked == [("tea", {"x": 1}, 3)]

    def test_a_blank_query_asks_nobody(self, how):
        """White space finds nothing."""
        one = Finds(A)
        assert found(WeightedRetriever(one), how, query=" ") == []
        assert one.asked == []

    def test_real_documents(self, how):
        """Over two Documents: each hit keeps its own retriever's score."""
        one, two = Document(), Document()
        one.add_texts({"a": "green tea", "b": "tea"})
        two.add_texts({"a": "black tea", "c": "tea leaves"})
        parts = [Retriever(docs, "FineChunk", "bm25") for docs in (one, two)]
        weighted = WeightedRetriever(*parts, topk=4)
        nodes = weighted("tea") if how == "call" else weighted.trace("tea").nodes
        assert len(nodes) == 4  # the two nodes of path "a" have one uid, and are two
        own = {(node.text, node.score) for part in parts for node in part("tea")}
        assert {(node.text, node.score) for node in nodes} == own


class TestPriority:
    """Whole lists, the most important first."""

    def test_high_before_normal_before_low(self, how):
        """Lists follow each other by priority, whatever the order they are given in."""
        retriever = PriorityRetriever(
            Finds("c1"), Finds("a1 a2"), Finds("b1"), priorities=["low", "high", "normal"], topk=None
        )
        assert found(retriever, how) == ["a1", "a2", "b1", "c1"]

    def test_nobody_is_asked_for_what_is_not_needed(self, how):
        """As soon as there is enough, the others are left alone; the list is cut to topk."""
        high, low = Finds(A, topk=5), Finds(B)
        assert found(PriorityRetriever(high, low, priorities=["high", "low"], topk=4), how) == ["a1", "a2", "a3", "a4"]
        assert low.asked == []
        assert high.asked == [("tea", None, 4)]

    def test_the_next_fills_up(self, how):
        """A list that is too short is followed by the next one, without what is there already."""
        retriever = PriorityRetriever(Finds("a1 x"), Finds("x b1 b2 b3"), priorities=["high", "normal"], topk=4)
        assert found(retriever, how) == ["a1", "x", "b1", "b2"]

    def test_ignored_ones_are_never_asked(self, how):
        """Not even if nothing else is found."""
        ignored = Finds(A)
        assert found(PriorityRetriever(ignored, Finds("b1"), priorities=["ignore", "low"]), how) == ["b1"]
        assert ignored.asked == []

    def test_topk_of_none_is_no_error(self, how):
        """All that all of them give."""
        assert found(PriorityRetriever(Finds("a1"), Finds("b1"), topk=None), how) == ["a1", "b1"]

    def test_without_priorities_the_order_decides(self, how):
        """All are normal."""
        assert found(PriorityRetriever(Finds("b1"), Finds("a1")), how) == ["b1", "a1"]

    def test_a_blank_query_asks_nobody(self, how):
        """White space finds nothing."""
        one = Finds(A)
        assert found(PriorityRetriever(one), how, query="\n") == []
        assert one.asked == []


class TestArguments:
    """What is refused, in both."""

    @pytest.mark.parametrize("weights", [[1], [1, -1], [0, 0], "ab", [1, math.inf], [1, None], [1e308, 1e308, 1e308]])
    def test_weights_must_fit(self, how, weights):
        """One number >= 0 for each retriever, not all 0, in the constructor and in a call."""
        with pytest.raises(ConfigError, match="weights must be"):
            WeightedRetriever(Finds(A), Finds(B), weights=weights)
        if how == "call":
            with pytest.raises(ConfigError, match="weights must be"):
                WeightedRetriever(Finds(A), Finds(B))("tea", weights=weights)

    @pytest.mark.parametrize("priorities", [["high"], ["high", "hihg"], "high", ["high", None]])
    def test_priorities_must_be_known(self, how, priorities):
        """One of four words for each retriever; the nearest is named."""
        with pytest.raises(ConfigError, match=r"priorities must be|Did you mean 'high'|Unknown priority None"):
            PriorityRetriever(Finds(A), Finds(B), priorities=priorities)

    @pytest.mark.parametrize("kind", [WeightedRetriever, PriorityRetriever])
    def test_retrievers_and_bounds(self, how, kind):
        """At least one retriever of nodes; topk of at least 1; a query that is a text."""
        with pytest.raises(ConfigError, match="needs a retriever"):
            found(kind(), how)
        with pytest.raises(ConfigError, match="topk"):
            kind(Finds(A), topk=0)
        with pytest.raises(ConfigError, match="topk"):
            found(kind(Finds(A)), how, topk=0)
        with pytest.raises(ConfigError, match="query must be a string"):
            found(kind(Finds(A)), how, query=3)
        with pytest.raises(RetrievalError, match="list of nodes"):
            found(kind(lambda query, filters=None, topk=None: ["text"]), how)
        with pytest.raises(ConfigError, match="Did you mean 'topk'"):
            kind(Finds(A), top_k=3)

    def test_combine_is_used(self, how):
        """A function of the retrievers' lists puts them together; one of a call goes before; the bound holds."""

        def behind(lists):
            return [node for nodes in lists for node in nodes]

        weighted = WeightedRetriever(Finds(A), Finds(B), topk=4, combine=behind)
        assert found(weighted, how) == ["a1", "a2", "b1", "b2"]
        if how == "call":
            assert uids(weighted("tea", combine=lambda lists: behind(lists)[::-1])) == ["b2", "b1", "a2", "a1"]
            assert uids(weighted("tea", weights=[0, 1])) == ["b1", "b2", "b3", "b4"]
        with pytest.raises(ConfigError, match="combine"):
            WeightedRetriever(Finds(A), combine="behind")
        with pytest.raises(RetrievalError, match="combine must return a list"):
            found(WeightedRetriever(Finds(A), combine=lambda lists: lists), how)

    def test_combine_gets_a_list_for_each_retriever(self, how):
        """Also for one of weight 0, in a call and in a trace alike."""
        seen = []

        def behind(lists):
            seen.append([[node.uid for node in nodes] for nodes in lists])
            return [node for nodes in lists for node in nodes]

        weighted = WeightedRetriever(Finds("a1"), Finds("b1"), Finds("c1"), weights=[1, 0, 1], combine=behind)
        assert found(weighted, how) == ["a1", "c1"]
        assert seen == [[["a1"], [], ["c1"]]]

    def test_an_error_of_combine_is_told(self, how):
        """What it raises is named, as with other functions; an error of this package stays; no node comes twice."""

        def broken(lists):
            return lists[9]

        def refuses(lists):
            raise ConfigError("no such list")

        with pytest.raises(RetrievalError, match="combine raised IndexError: list index"):
            found(WeightedRetriever(Finds(A), combine=broken), how)
        with pytest.raises(ConfigError, match="no such list"):
            found(WeightedRetriever(Finds(A), combine=refuses), how)
        with pytest.raises(RetrievalError, match="combine returned the node 'a1' twice"):
            found(WeightedRetriever(Finds(A), combine=lambda lists: lists[0] * 2), how)

    def test_they_are_retrievers_like_any_other(self, how):
        """A hybrid takes them."""
        weighted = WeightedRetriever(Finds(A), Finds(B))
        assert found(HybridRetriever(weighted, topk=3), how) == found(weighted, how, topk=3)


@given(seats=st.integers(0, 200), weights=st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=6))
def test_places_add_up_and_stay_near_the_share(how, seats, weights):
    """All seats are given, and nobody is a whole seat away from the exact share."""
    given_out = allocate_seats(seats, weights)
    assert sum(given_out) == seats
    total = math.fsum(weights)
    assert all(abs(one - seats * (weight / total)) < 1 + 1e-9 for one, weight in zip(given_out, weights, strict=True))


def test_why_not_says_that_it_found_no_place(how):
    """explain and why_not work on both."""
    for retriever in (WeightedRetriever(Finds(A), Finds(B), topk=4), PriorityRetriever(Finds(A), topk=3)):
        assert [hit.uid for hit in retriever.explain("tea")] == uids(retriever("tea"))
        reason = retriever.why_not("a4", "tea")
        assert (reason.stage in ("weighted places", "priority")) or reason.cause == "no-reason"
        assert retriever.why_not("a1", "tea").rank == 1


def test_why_not_says_who_was_not_asked(how):
    """A retriever whose turn did not come, that is ignored or has no weight; a blank query has one reason."""
    priority = PriorityRetriever(Finds(A), Finds(B), Finds(B), priorities=["high", "low", "ignore"], topk=2)
    reason = priority.why_not("nowhere", "tea")
    assert [one.cause for one in reason.inputs] == ["no-reason", "not-run", "not-run"]
    assert [one.message for one in reason.inputs[1:]] == [
        "Finds did not run: earlier retrievers returned enough nodes.",
        "Finds did not run: its priority is 'ignore'.",
    ]
    assert [stage.given for stage in priority.explain("tea").stages] == [2, 0, 0, 2]
    weighted = WeightedRetriever(Finds(A), Finds(B), weights=[1, 0], topk=2)
    assert weighted.why_not("nowhere", "tea").inputs[1].message == "Finds did not run: its weight is 0."
    assert {one.why_not("nowhere", " ").cause for one in (priority, weighted)} == {"query"}


@pytest.fixture(scope="module")
def teas():
    """Twenty texts about tea, the first two of them green."""
    docs = Document()
    docs.add_texts({f"{number:02}": f"tea {number}" + " green" * (number < 2) for number in range(20)})
    return docs


def test_a_members_own_topk_holds_where_the_combination_sets_none(how, teas):
    """It returns so many, neither more nor fewer; a number for the combination, or for a call, goes to all of them."""
    few, many = Retriever(teas, "FineChunk", "bm25", topk=2), Retriever(teas, "FineChunk", "bm25_chinese", topk=9)
    for kind in (WeightedRetriever, PriorityRetriever):
        result = found(kind(few, Finds(B)), how)
        assert sorted(uid for uid in result if not uid.startswith("b")) == sorted(uids(few("tea")))
        assert len(result) == 6
        assert len(found(kind(many), how)) == 9
        assert len(found(kind(few, many), how)) == len({*uids(few("tea")), *uids(many("tea"))})
        assert found(kind(few, topk=8), how) == found(kind(few), how, topk=8) == uids(few("tea", topk=8))


def test_a_members_own_topk_holds_in_a_fusion_that_sets_none(how, teas):
    """Hybrid search and several wordings fuse so many of it; with their own ``topk`` or ``depth`` what that says."""
    few = Retriever(teas, "FineChunk", "bm25", topk=2)
    for make in (HybridRetriever, lambda one, **kw: MultiQueryRetriever(one, lambda _: [], **kw)):
        assert found(make(few), how) == uids(few("tea"))
        assert found(HybridRetriever(make(few)), how) == uids(few("tea"))
        assert found(make(few, depth=4), how) == uids(few("tea", topk=4))
        assert found(make(few, topk=9), how) == found(make(few), how, topk=9) == uids(few("tea", topk=9))
        assert len(found(make(Retriever(teas, "FineChunk", "bm25"), topk=9), how)) == 9
    assert len(found(HybridRetriever(HybridRetriever(Retriever(teas, "FineChunk", "bm25"), topk=3)), how)) == 3
