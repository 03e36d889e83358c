"""HybridRetriever: several retrievers, one ranking."""

from __future__ import annotations

import asyncio
import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import (
    BM25Retriever,
    DocNode,
    Document,
    HybridRetriever,
    RetrievalResult,
    Retriever,
    register_fusion,
    register_similarity,
)
from lazyrag.errors import ConfigError, NotRegisteredError, RetrievalError
from lazyrag.ranking.fusion import KeywordSetting, VectorSetting, Weights, fusions, rrf, weighted
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.retrieval.stages import Stage

WORDS = (
    "tea leaf garden kettle steam cup water spring harvest roast green black 茶叶 春天 水温".split()
)


def corpus(count, seed=0):
    """Seeded texts from few words, so that many nodes share terms."""
    chance = random.Random(seed)
    return {
        f"{number:03d}": " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 30)))
        for number in range(count)
    }


def embed(text):
    """A bag of words in numbers."""
    return [1.0 + text.split().count(word) for word in WORDS]


def document(texts=None, **kwargs):
    """A Document in memory, over texts by id."""
    docs = Document(embed=embed, **kwargs)
    docs.add_texts(texts or corpus(80))
    return docs


@pytest.fixture(scope="module")
def docs():
    """Eighty texts."""
    return document()


def pair(docs, **kwargs):
    """By meaning and by words."""
    return HybridRetriever(
        Retriever(docs, "FineChunk"), Retriever(docs, "FineChunk", "bm25"), **kwargs
    )


def told(nodes):
    """What a result comes down to."""
    return [(node.uid, node.score) for node in nodes]


def by_hand(docs, query, depth, **kwargs):
    """What the two retrievers of `pair` find, as rankings."""
    return [
        told(Retriever(docs, "FineChunk", name)(query, topk=depth, **kwargs))
        for name in (None, "bm25")
    ]


def fixed(*nodes):
    """A retriever that always finds the same nodes."""
    return lambda query, filters=None, topk=None: list(nodes)[:topk]


class TestFusion:
    """What is fused, and to what."""

    @pytest.mark.parametrize("query", ["green tea", "春天的茶叶 kettle", "steam"])
    @pytest.mark.parametrize("topk", [1, 6, 20])
    def test_the_result_is_the_retrievers_own_results_fused(self, docs, query, topk):
        """RRF of what the two retrievers give by themselves, at the default depth, gives the very
        result.
        """
        expected = rrf(by_hand(docs, query, max(50, 4 * topk)))[:topk]
        assert told(pair(docs, topk=topk)(query)) == expected
        assert len(expected) == topk

    def test_weighted_fusion_is_that_of_the_retrievers_own_scores(self, docs):
        """Weights and normalisation reach the fusion."""
        expected = weighted(by_hand(docs, "green tea", 50), weights=[0.2, 0.8])[:6]
        assert (
            told(pair(docs, fusion_method="weighted", weights=[0.2, 0.8])("green tea")) == expected
        )

    def test_two_retrievers_are_weighed_as_in_spec_003_by_default(self, docs):
        """0.7 for the first and 0.3 for the second, under "weighted" alone."""
        assert (
            told(pair(docs, fusion_method="weighted")("green tea"))
            == (weighted(by_hand(docs, "green tea", 50), weights=[0.7, 0.3])[:6])
        )
        three = HybridRetriever(
            *[Retriever(docs, "FineChunk", "bm25")] * 3, fusion_method="weighted"
        )
        ranking = by_hand(docs, "green tea", 50)[1]
        assert told(three("green tea")) == weighted([ranking] * 3)[:6]

    def test_depth_bounds_what_is_fused(self, docs):
        """With depth=5 each retriever adds five nodes, and no more than ten can come out."""
        found = pair(docs, depth=5, topk=40)("green tea")
        assert told(found) == rrf(by_hand(docs, "green tea", 5))
        assert 5 <= len(found) <= 10

    def test_the_fusions_keywords_reach_it(self, docs):
        """k of RRF, and the normalisation of weighted."""
        rankings = by_hand(docs, "green tea", 50)
        assert told(pair(docs, k=1)("green tea")) == rrf(rankings, k=1)[:6]
        raw = pair(docs, fusion_method="weighted", normalise=False)("green tea")
        assert told(raw) == weighted(rankings, weights=[0.7, 0.3], normalise=False, depth=50)[:6]

    @pytest.mark.parametrize("method", ["rrf", "weighted"])
    @pytest.mark.parametrize("similarity", ["bm25", "cosine"])
    def test_a_hybrid_of_one_keeps_its_order(self, docs, method, similarity):
        """One retriever alone is not reordered, whatever the fusion."""
        one = Retriever(docs, "FineChunk", similarity, topk=50)
        alone = HybridRetriever(one, fusion_method=method, topk=50)
        assert [node.uid for node in alone("green tea")] == [node.uid for node in one("green tea")]

    @pytest.mark.slow
    def test_hybrids_can_be_nested(self, docs):
        """A hybrid is a retriever like any other."""
        inner = pair(docs)
        outer = HybridRetriever(inner, Retriever(docs, "FineChunk", "bm25_chinese"))
        chinese = told(Retriever(docs, "FineChunk", "bm25_chinese")("春天 tea", topk=50))
        assert told(outer("春天 tea")) == rrf([told(inner("春天 tea", topk=50)), chinese])[:6]

    def test_smaller_scores_can_be_better(self, docs):
        """A similarity with descend=False is turned round before scores are added."""

        @register_similarity(mode="text", descend=False, batch=False)
        def length(query, node):
            return len(node.text)

        shortest = Retriever(docs, "FineChunk", "length", topk=50)
        fused = HybridRetriever(shortest, fusion_method="weighted", topk=50)
        assert [node.uid for node in fused("tea")] == [node.uid for node in shortest("tea")]
        assert fused("tea")[0].score == 1.0
        assert fused.trace("tea").nodes == tuple(fused("tea"))

    def test_a_target_is_fused_after_the_mapping(self, docs):
        """A Retriever with target= gives nodes of the target group, and these are fused."""
        up = Retriever(docs, "FineChunk", "bm25", target="CoarseChunk")
        found = HybridRetriever(up)("green tea")
        assert {node.group for node in found} == {"CoarseChunk"}
        assert [node.uid for node in found] == [node.uid for node in up("green tea", topk=50)][:6]


class TestIdentity:
    """What makes nodes the same."""

    def test_equal_texts_stay_apart(self):
        """Nodes are known by their uid, not by their text."""
        docs = document(dict.fromkeys("abcdefgh", "green tea"))
        assert len({node.uid for node in pair(docs, topk=20)("green tea")}) == 8

    def test_dedupe_keeps_the_best_of_equal_texts(self):
        """dedupe="text" leaves one node of each text, the one that ranks best, and fills up with
        others.
        """
        docs = document(
            {**dict.fromkeys("abcdefgh", "green tea"), "x": "green leaf", "y": "tea leaf"}
        )
        every, distinct = (
            pair(docs, topk=20)("green tea"),
            pair(docs, topk=3, dedupe="text")("green tea"),
        )
        assert [node.text for node in distinct] == list(dict.fromkeys(node.text for node in every))
        assert len(distinct) == 3
        assert told(distinct)[0] == told(every)[0]
        with pytest.raises(ConfigError, match="dedupe"):
            pair(docs, dedupe="uid")

    def test_one_uid_in_two_documents_is_two_nodes(self):
        """Equal paths give equal uids; a hybrid over two Documents keeps both nodes, each with its
        own text.
        """
        one, two = document({"a": "green tea"}), document({"a": "tea of spring"})
        assert one.get_nodes("FineChunk")[0].uid == two.get_nodes("FineChunk")[0].uid
        hybrid = HybridRetriever(
            Retriever(one, "FineChunk", "bm25"), Retriever(two, "FineChunk", "bm25")
        )
        found = hybrid("tea")
        assert sorted(node.text for node in found) == ["green tea", "tea of spring"]
        assert [node.score for node in found] == [1 / 61, 1 / 61]
        stage = hybrid.trace("tea").inputs[0]
        assert {
            node: sum(contributions) for node, contributions in stage.contributions.items()
        } == dict.fromkeys(found, 1 / 61)

    def test_documents_are_the_same_in_any_order(self):
        """Retrievers that name the Documents in another order still mean the same nodes."""
        one, two = document({"a": "green tea"}), document({"a": "tea of spring harvest"})
        hybrid = HybridRetriever(
            Retriever([one, two], "FineChunk", "bm25"), Retriever([two, one], "FineChunk", "bm25")
        )
        found = hybrid("tea")
        assert [node.text for node in found] == ["green tea", "tea of spring harvest"]
        assert [node.score for node in found] == [2 / 61, 2 / 62]

    @pytest.mark.parametrize("memory_first", [True, False])
    def test_an_index_over_a_documents_uids_finds_its_nodes(self, docs, memory_first):
        """Spec 003's way: BM25 over mappings with the uids of a Document's nodes. A uid is one
        node, the Document's.
        """
        memory = BM25Retriever(analyser="en")
        memory.index_documents(
            [{"id": node.uid, "text": node.text} for node in docs.get_nodes("FineChunk")]
        )
        by_meaning = Retriever(docs, "FineChunk")
        parts = [memory, by_meaning] if memory_first else [by_meaning, memory]
        hybrid = HybridRetriever(*parts, depth=80, topk=80)
        assert told(hybrid("green tea")) == told(pair(docs, depth=80, topk=80)("green tea"))
        assert all(node.root.path == node.path for node in hybrid("green tea"))
        last = hybrid.trace("green tea")
        assert told(last.nodes) == told(hybrid("green tea"))
        assert [math.fsum(last.inputs[0].contributions[node.uid]) for node in last.nodes] == [
            node.score for node in last.nodes
        ]
        explanation = hybrid.explain("green tea")
        assert all(len(hit.contributions) == 2 for hit in explanation)
        assert explanation.dropped == ()

    def test_the_trace_breaks_ties_as_the_call_does(self):
        """Equal scores and equal uids in two Documents: both keep the order in which retrievers
        name the Documents.
        """
        one, two = document({"a": "tea b b b b b"}), document({"a": "tea"})
        both = Retriever([one, two], "FineChunk", "bm25")
        hybrid = HybridRetriever(
            both, Retriever(one, "FineChunk", "bm25"), fusion_method="comb_max"
        )
        # the second one's is met first
        assert [node.text for node in both("tea")] == ["tea", "tea b b b b b"]
        found = hybrid("tea")
        assert [(node.text, node.score) for node in found] == [("tea b b b b b", 1.0), ("tea", 1.0)]
        assert [node.text for node in hybrid.trace("tea").nodes] == [node.text for node in found]

    def test_ties_go_by_uid(self):
        """Nodes with equal fused scores stand in the order of their uids."""
        a, b = DocNode(text="a", uid="1", score=1.0), DocNode(text="b", uid="2", score=1.0)
        assert [node.uid for node in HybridRetriever(fixed(b, a), fixed(a, b))("tea")] == ["1", "2"]


class TestCallables:
    """Retrievers of users."""

    def test_any_callable_is_a_retriever(self, docs):
        """A function of query, filters and topk, over nodes of any origin."""
        free = DocNode(text="from elsewhere", uid="free", score=3.0)
        found = HybridRetriever(Retriever(docs, "FineChunk", "bm25"), fixed(free))("green tea")
        assert free.uid in [node.uid for node in found]
        assert next(node for node in found if node.uid == "free").score == 1 / 61

    def test_it_is_asked_for_depth_nodes_and_cut_to_them(self):
        """The callable gets query, filters and depth; what it gives too much is not used."""
        asked = []

        def retriever(query, filters=None, topk=None):
            asked.append((query, filters, topk))
            return [DocNode(text=str(n), uid=f"{n:02d}", score=-n) for n in range(90)]

        found = HybridRetriever(retriever, topk=80, depth=7)("tea", {"file_type": ".md"})
        assert asked == [("tea", {"file_type": ".md"}, 7)]
        assert len(found) == 7

    def test_scores_are_needed_where_they_are_added(self):
        """Nodes without a score can be fused by rank, and by score not: the message says what to
        do.
        """
        bare = fixed(DocNode(text="tea", uid="1"), DocNode(text="tea", uid="2"))
        assert [node.uid for node in HybridRetriever(bare)("tea")] == ["1", "2"]
        for normalise in ("min_max", "none"):
            with pytest.raises(RetrievalError, match=r"without scores.*rrf"):
                HybridRetriever(bare, fusion_method="weighted", normalise=normalise)("tea")

    @pytest.mark.parametrize("returned", [None, ["text"], "text", [{"text": 1}]])
    def test_what_is_no_list_of_nodes_is_refused(self, returned):
        """A retriever that gives texts or nothing is named."""
        with pytest.raises(RetrievalError, match="list of nodes"):
            HybridRetriever(lambda query, filters=None, topk=None: returned)("tea")

    def test_an_error_of_a_retriever_comes_through(self):
        """Nothing is swallowed."""

        def broken(query, filters=None, topk=None):
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            HybridRetriever(broken)("tea")


class TestArguments:
    """What is refused, and what a call may say."""

    def test_the_names_of_spec_003(self, docs):
        """Retrievers by position, by name, and the fusion behind them as a text, are the same
        retriever.
        """
        one, two = Retriever(docs, "FineChunk"), Retriever(docs, "FineChunk", "bm25")
        expected = told(HybridRetriever(one, two, fusion_method="weighted")("green tea"))
        assert told(HybridRetriever(one, two, "weighted")("green tea")) == expected
        assert (
            told(HybridRetriever(one, bm25_retriever=two, fusion_method="weighted")("green tea"))
            == expected
        )
        named = HybridRetriever(fusion_method="weighted", bm25_retriever=two, vector_retriever=one)
        assert told(named("green tea")) == expected

    def test_two_fusions_are_refused(self, docs):
        """One by position and another by name is a mistake."""
        one = Retriever(docs, "FineChunk", "bm25")
        for positional in ("comb_max", "rrf"):
            with pytest.raises(ConfigError, match="Two fusions"):
                HybridRetriever(one, one, positional, fusion_method="weighted")

    def test_what_a_view_hides_is_never_found(self):
        """Neither in a result nor in its trace, whatever the retrievers; a wider one beside it
        finds what it may.
        """
        docs = document({str(n): "green tea" for n in range(9)})
        view = docs.restricted({"file_name": ["1", "5"]})
        hybrid = HybridRetriever.over(view, "FineChunk", topk=40)
        assert sorted(node.path for node in hybrid("green tea")) == ["1", "5"]
        assert sorted(node.path for node in hybrid.trace("green tea").inputs[0].nodes) == ["1", "5"]
        beside = HybridRetriever(
            Retriever(view, "FineChunk", "bm25"), Retriever(docs, "FineChunk", "bm25"), topk=40
        )
        found = beside("green tea")
        assert len(found) == 9
        assert {node.path for node in found[:2]} == {"1", "5"}

    def test_a_blank_query_finds_nothing_and_asks_nobody(self):
        """White space is no question."""

        def never(query, filters=None, topk=None):
            raise AssertionError

        hybrid = HybridRetriever(never)
        assert hybrid(" \n") == []
        assert hybrid.trace("").nodes == ()

    @pytest.mark.parametrize("query", [None, 3, ["tea"]])
    def test_a_query_that_is_no_text_is_refused(self, docs, query):
        """Only text can be asked."""
        with pytest.raises(ConfigError, match="query must be a string"):
            pair(docs)(query)

    def test_filters_hold_for_every_retriever(self):
        """What a filter hides is found by neither."""
        docs = document({str(n): "green tea" for n in range(9)})
        found = pair(docs, topk=40)("green tea", {"file_name": ["1", "5"]})
        assert sorted(node.path for node in found) == ["1", "5"]
        with pytest.raises(ConfigError, match="file_typ"):
            pair(docs)("tea", {"file_typ": [".md"]})

    @pytest.mark.parametrize("topk", [0, -1, True, "3", None, 2.5])
    def test_impossible_numbers_are_refused(self, docs, topk):
        """topk and depth are whole numbers of at least 1."""
        with pytest.raises(ConfigError, match="topk"):
            pair(docs, topk=topk)
        if topk is not None:
            with pytest.raises(ConfigError, match="topk"):
                pair(docs)("tea", topk=topk)
            with pytest.raises(ConfigError, match="depth"):
                pair(docs, depth=topk)

    def test_a_call_may_ask_for_more(self, docs):
        """topk of a call goes before the retriever's, and the depth grows with it."""
        assert len(pair(docs, topk=2)("green tea")) == 2
        assert (
            told(pair(docs, topk=2)("green tea", topk=30))
            == rrf(by_hand(docs, "green tea", 120))[:30]
        )

    @pytest.mark.parametrize(
        "weights", [[1], [1, 2, 3], [-1, 2], [0, 0], [math.nan, 1], "ab", 3, [True, 1], ["1", 1]]
    )
    def test_weights_must_fit(self, docs, weights):
        """One number >= 0 for each retriever, not all 0; in the constructor and in a call."""
        for method in ("rrf", "weighted"):
            with pytest.raises(ConfigError, match="weights"):
                pair(docs, fusion_method=method, weights=weights)
            with pytest.raises(ConfigError, match="weights"):
                pair(docs, fusion_method=method)("tea", weights=weights)

    def test_weights_count_in_rrf_too(self, docs):
        """A weight multiplies a retriever's part; 0 leaves its order without effect."""
        rankings = by_hand(docs, "green tea", 50)
        assert told(pair(docs, weights=[3, 1])("green tea")) == rrf(rankings, weights=[3, 1])[:6]
        assert (
            told(pair(docs)("green tea", weights=[0.1, 0.9]))
            == rrf(rankings, weights=[0.1, 0.9])[:6]
        )
        only = pair(docs, weights=np.array([0, 1]))("green tea")
        assert [node.uid for node in only] == [uid for uid, _ in rankings[1][:6]]

    @pytest.mark.parametrize("method", ["rrf", "weighted", "comb_mnz", "comb_max"])
    def test_weight_zero_is_not_asked(self, docs, method):
        """The result has nothing of such a retriever, not even to fill it; a trace says why, and
        why_not too.
        """

        def never(query, filters=None, topk=None):
            raise OSError("asked")

        few = fixed(*Retriever(docs, "FineChunk", "bm25")("green tea", topk=2))
        hybrid = HybridRetriever(never, few, fusion_method=method, weights=[0, 1])
        found = hybrid("green tea")
        assert len(found) == 2
        alone = HybridRetriever(few, fusion_method=method, weights=[1])
        assert told(found) == told(alone("green tea")) == told(hybrid.trace("green tea").nodes)
        [fused] = hybrid.trace("green tea").inputs
        assert [len(stage.nodes) for stage in fused.inputs] == [0, 2]
        assert fused.inputs[0].settings == {"skipped": "its weight is 0"}
        reason = hybrid.why_not("elsewhere", "green tea").inputs[0]
        assert (reason.stage, reason.cause) == ("never", "weight")
        assert "weight is 0" in str(reason)
        assert [hit.uid for hit in hybrid.explain("green tea")] == [node.uid for node in found]
        with pytest.raises(OSError, match="asked"):
            hybrid("green tea", weights=[1, 1])
        assert told(
            HybridRetriever(never, few, fusion_method=method)("green tea", weights=[0, 1])
        ) == told(found)

    def test_what_is_unknown_is_named(self, docs):
        """Fusions and keywords, with what was meant."""
        with pytest.raises(NotRegisteredError, match="Did you mean 'rrf'"):
            pair(docs, fusion_method="rff")
        with pytest.raises(ConfigError, match="Did you mean 'topk'"):
            pair(docs, top_k=3)
        with pytest.raises(ConfigError, match="k must be"):
            pair(docs, k=-1)
        with pytest.raises(ConfigError, match="Did you mean 'topk'"):
            pair(docs)("tea", top_k=3)

    @pytest.mark.parametrize("retrievers", [(), (3,), (None,), (Retriever,)])
    def test_what_is_no_retriever_is_refused(self, retrievers):
        """At least one, and each a callable that is no class."""
        with pytest.raises(ConfigError, match="HybridRetriever"):
            HybridRetriever(*retrievers)

    def test_retrievers_must_give_nodes(self, docs):
        """A Retriever that gives texts is refused when the hybrid is made."""
        with pytest.raises(ConfigError, match="output_format='content'"):
            HybridRetriever(Retriever(docs, "FineChunk", "bm25", output_format="content"))


class TestSearch:
    """Spec 003's asynchronous face."""

    def test_it_gives_a_result_of_hits(self, docs):
        """A sequence of hits with texts, uids and scores; top_k of five by default."""
        result = asyncio.run(pair(docs).search("green tea"))
        assert isinstance(result, RetrievalResult)
        assert [(hit.id, hit.score) for hit in result] == told(pair(docs)("green tea", topk=5))

    def test_weights_of_a_call(self, docs):
        """They act in RRF and in weighted fusion; one alone leaves the rest to the other."""
        for method in ("rrf", "weighted"):
            hybrid = pair(docs, fusion_method=method)
            expected = told(hybrid("green tea", topk=4, weights=[0.25, 0.75]))
            for weights in (
                {"vector_weight": 0.25, "bm25_weight": 0.75},
                {"vector_weight": 0.25},
                {"bm25_weight": 0.75},
            ):
                result = asyncio.run(hybrid.search("green tea", top_k=4, **weights))
                assert [(hit.id, hit.score) for hit in result] == expected

    def test_two_weights_are_for_two_retrievers(self, docs):
        """With another number, the message says how to give them; a single one must leave
        something.
        """
        with pytest.raises(ConfigError, match="two retrievers; there are 1"):
            asyncio.run(
                HybridRetriever(Retriever(docs, "FineChunk")).search("tea", vector_weight=0.5)
            )
        with pytest.raises(ConfigError, match="from 0 to 1"):
            asyncio.run(pair(docs).search("tea", bm25_weight=2))


class TestWhatWasNotFound:
    """A ranking of full length was cut: what it lacks is at most as good as its last."""

    @pytest.mark.slow
    def test_words_are_not_outweighed_by_the_mere_presence_of_alike_vectors(self):
        """All cosines are alike; the one node with the word is first, though the vectors' fifty
        lack it.
        """
        docs = Document(embed=lambda text: [1.0, 0.001 * (len(text) % 7)])
        docs.add_texts(
            {f"{at:03d}": f"leaf {'x' * at}" for at in range(120)}
            | {"zz": "samovar and nothing else"}
        )
        hybrid = HybridRetriever.over(docs, "FineChunk", weights=[0.6, 0.4])
        assert "zz" not in {node.path for node in Retriever(docs, "FineChunk")("samovar", topk=50)}
        assert hybrid("samovar")[0].path == "zz"
        [first, *_] = hybrid.explain("samovar")
        assert math.fsum(first.contributions.values()) == pytest.approx(first.score)
        assert all(share > 0 for share in first.contributions.values())

    @pytest.mark.slow
    def test_a_short_ranking_is_complete(self):
        """What shares no term with the query gets nothing from BM25, as fewer than fifty do."""
        hybrid = HybridRetriever.over(document(), "FineChunk", topk=80)
        hits = hybrid.explain("kettle harvest", topk=80)
        assert 0.0 in {hit.contributions["bm25_chinese"] for hit in hits}


class TestOver:
    """The usual pair."""

    def test_what_is_no_document_is_refused(self):
        """As a Retriever refuses it."""
        for wrong in (3, "corpus", None):
            with pytest.raises(ConfigError, match="doc must be a Document"):
                HybridRetriever.over(wrong, "FineChunk")

    def test_it_is_the_usual_pair(self, docs):
        """By meaning and by words, fused as the constants say."""
        assert (
            told(HybridRetriever.over(docs, "FineChunk", fusion_method="rrf")("green tea"))
            == (rrf(by_hand(docs, "green tea", 100))[:6])
        )
        assert len(HybridRetriever.over(docs, "FineChunk", 3)("green tea")) == 3

    @pytest.mark.parametrize("query", ["green tea", "春天的茶叶 kettle", "steam"])
    def test_its_defaults(self, docs, query):
        """By default BM25 with Chinese words counts 0.4, the embeddings 0.6, both divided by their
        best score.
        """
        rankings = [
            told(Retriever(docs, "FineChunk", name)(query, topk=100))
            for name in (None, "bm25_chinese")
        ]
        expected = weighted(rankings, weights=[0.6, 0.4], normalise="max", depth=100)[:6]
        assert told(HybridRetriever.over(docs, "FineChunk")(query)) == expected
        swung = weighted(rankings, weights=[0.1, 0.9], normalise="min_max")[:6]
        over = HybridRetriever.over(docs, "FineChunk", weights=[0.1, 0.9], normalise="min_max")
        assert told(over(query)) == swung != expected

    def test_several_documents(self):
        """They are ranked together."""
        both = [document({"a": "green tea"}), document({"b": "black tea"})]
        assert len(HybridRetriever.over(both, "FineChunk")("tea")) == 2

    def test_a_document_without_embeddings_is_refused(self):
        """The message says both ways out."""
        with pytest.raises(ConfigError, match=r"embed=.*similarity='bm25'"):
            HybridRetriever.over(Document(), "FineChunk")


class TestTrace:
    """The record of a call."""

    @given(
        query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
        topk=st.integers(1, 30),
    )
    @settings(max_examples=settings.default.max_examples // 3, deadline=None)
    def test_shares_add_up_and_the_trace_is_the_call(self, docs, query, topk):
        """For every node the shares of a fusion sum to its score; the last stage's nodes are those
        of a call.
        """
        for method, keywords in (
            ("rrf", {}),
            ("weighted", {"weights": [2, 1]}),
            ("rrf", {"k": 3, "weights": [1, 4]}),
        ):
            hybrid = pair(docs, fusion_method=method, **keywords)
            last = hybrid.trace(query, topk=topk)
            assert told(last.nodes) == told(hybrid(query, topk=topk))
            [fusion] = last.inputs
            assert [math.fsum(fusion.contributions[node.uid]) for node in fusion.nodes] == [
                node.score for node in fusion.nodes
            ]

    def test_it_is_a_tree_of_stages(self, docs):
        """A cut over a fusion over the retrievers; dedupe stands between."""
        last = pair(docs, dedupe="text").trace("green tea")
        kinds = []
        stage: Stage = last
        while stage.inputs:
            kinds.append((stage.kind, stage.name))
            stage = stage.inputs[0]
        assert kinds == [("cut", "topk"), ("step", "dedupe"), ("fusion", "rrf")]
        assert stage.kind == "retriever"


def test_all_retrievers_see_one_state():
    """What becomes live between two retrievers of one question is seen by neither or by both."""
    docs = document({"a": "green tea"})
    inner = Retriever(docs, "FineChunk", "bm25")
    seen = []

    def meddling(query, filters=None, topk=None):
        if not seen:
            seen.append(True)
            docs.add_texts({"b": "green tea too"})
        return inner(query, filters, topk)

    found = HybridRetriever(inner, meddling, inner)("green tea")
    counts = {node.path: round(node.score * 60) for node in found}
    assert seen == [True]
    assert set(counts.values()) == {3}


def test_weights_of_spec_004(docs):
    """Weights(VectorSetting, KeywordSetting) is the pair of its two numbers, for the constructor
    and a call.
    """
    weights = Weights(VectorSetting(0.6, "local", "all-minilm-l6-v2"), KeywordSetting(0.4))
    for method in ("rrf", "weighted"):
        expected = told(pair(docs, fusion_method=method, weights=[0.6, 0.4])("green tea"))
        assert told(pair(docs, fusion_method=method, weights=weights)("green tea")) == expected
        assert told(pair(docs, fusion_method=method)("green tea", weights=weights)) == expected
    with pytest.raises(ConfigError, match="there are 1"):
        HybridRetriever(fixed(), weights=weights)


def test_only_nodes_of_the_result_are_read(docs, monkeypatch):
    """Fifty nodes of each retriever are fused; six are fetched from the store."""
    read = []
    own = LocalSnapshot.nodes

    def counted(self, group, hits, embed_key=None):
        read.append(len(hits))
        return own(self, group, hits, embed_key)

    hybrid = pair(docs)
    expected = told(hybrid("green tea"))
    monkeypatch.setattr(LocalSnapshot, "nodes", counted)
    assert told(hybrid("green tea")) == expected
    assert sum(read) == 6


def test_several_threads_may_ask(docs):
    """One hybrid answers all of them as it answers one."""
    hybrid, queries = pair(docs), ["green tea", "春天", "steam kettle", "black"] * 8
    expected = [told(hybrid(query)) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda query: told(hybrid(query)), queries)) == expected


def test_a_fusion_of_ones_own(docs):
    """A registered function is a fusion like any other; one without weights refuses them."""
    with fusions.isolated():

        @register_fusion
        def votes(rankings):
            uids = {uid for ranking in rankings for uid, _ in ranking}
            return {uid: [float(uid in dict(ranking)) for ranking in rankings] for uid in uids}

        found = pair(docs, fusion_method="votes", depth=5)("green tea")
        assert {node.score for node in found} <= {1.0, 2.0}
        with pytest.raises(ConfigError, match="takes no weights"):
            pair(docs, fusion_method="votes", weights=[1, 2])


TOPICS = tuple(tuple(f"{name}{number}" for number in range(6)) for name in "abcdefgh")


def texts_by_topic(count=80):
    """Texts of words of one topic each, and a word of their own."""
    chance = random.Random(1)
    return {
        f"{number:03d}": " ".join([*chance.choices(TOPICS[number % 8], k=8), f"own{number}"])
        for number in range(count)
    }


def embed_topic(text):
    """How many words a text has of each topic."""
    return [0.01 + sum(word in topic for word in text.split()) for topic in TOPICS]


def embed_at_random(text):
    """A vector that only equal texts share."""
    return np.random.default_rng(list(text.encode())).standard_normal(32)


def embed_weakly(text):
    """A vector that is mostly random."""
    return np.concatenate([embed_topic(text), 5 * embed_at_random(text)])


def topic_documents(embed, count=80):
    """A Document over texts by topic."""
    docs = Document(embed=embed)
    docs.add_texts(texts_by_topic(count))
    return docs


def fusion_settings(docs, query="a1", **kwargs):
    """The settings of the fusion of a default hybrid."""
    [fusion] = HybridRetriever.over(docs, "FineChunk").trace(query, **kwargs).inputs
    return fusion.settings


class TestAgreement:
    """Vectors that do not agree with the words of their texts."""

    def test_vectors_that_agree_have_the_default_weights(self):
        """As if the weights were passed."""
        docs = topic_documents(embed_topic)
        fixed = HybridRetriever.over(docs, "FineChunk", weights=[0.6, 0.4])
        hybrid = HybridRetriever.over(docs, "FineChunk")
        assert told(hybrid("b3 a1")) == told(fixed("b3 a1"))
        assert "agreement" not in fusion_settings(docs)

    def test_random_vectors_are_left_out(self):
        """The ranking is that of keyword search, with a warning; explain shows why."""
        docs = topic_documents(embed_at_random)
        hybrid = HybridRetriever.over(docs, "FineChunk")
        with pytest.warns(UserWarning, match="no more than random ones"):
            nodes = hybrid("own7 a1")
        keyword = Retriever(docs, "FineChunk", "bm25_chinese")
        assert [node.uid for node in nodes] == [node.uid for node in keyword("own7 a1")]
        with pytest.warns(UserWarning, match="no more than random ones"):
            stages = hybrid.explain("own7 a1").stages
        assert stages[0].settings["skipped"] == "its weight is 0"
        assert stages[2].settings["weights"] == (0.0, 0.4)
        assert stages[2].settings["agreement"] == 0

    def test_weak_vectors_have_less_weight(self):
        """Vectors that are mostly random keep a part of their weight."""
        docs = topic_documents(embed_weakly)
        settings = fusion_settings(docs)
        assert 0 < settings["agreement"] < 1
        weaker = f"have less weight in hybrid search, agreement {settings['agreement']}"
        assert weaker in str(docs.status())
        assert settings["weights"] == (0.6 * settings["agreement"], 0.4)

    def test_each_of_several_models_has_its_own_agreement(self):
        """A broken one beside one that works changes nothing, a weak one has less weight."""
        query = "own7 a1 b2"
        alone = HybridRetriever.over(topic_documents(embed_topic), "FineChunk")
        docs = topic_documents({"good": embed_topic, "broken": embed_at_random})
        hybrid = HybridRetriever.over(docs, "FineChunk")
        with pytest.warns(UserWarning, match="the vectors of 'broken' out"):
            nodes = hybrid(query)
        expected = [(node.text, node.score) for node in alone(query)]
        assert [(node.text, node.score) for node in nodes] == expected
        with pytest.warns(UserWarning, match="the vectors of 'broken' out"):
            assert fusion_settings(docs, query)["agreement"] == {"good": 1, "broken": 0}
        weak = topic_documents({"good": embed_topic, "weak": embed_weakly})
        settings = fusion_settings(weak, query)
        assert settings["weights"] == (0.6, 0.4)
        assert 0 < settings["agreement"]["weak"] < settings["agreement"]["good"]
        broken = topic_documents({"broken": embed_at_random, "other": embed_at_random})
        with pytest.warns(UserWarning, match="the vectors of 'broken', 'other' out"):
            assert fusion_settings(broken, query)["weights"] == (0, 0.4)

    def test_chosen_weights_stay(self):
        """Passed to a call or to the constructor."""
        docs = topic_documents(embed_at_random)
        weights = [0.6, 0.4]
        settings = fusion_settings(docs, weights=weights)
        assert list(settings["weights"]) == weights
        assert "agreement" not in settings
        chosen = HybridRetriever.over(docs, "FineChunk", weights=weights)
        by_call = HybridRetriever.over(docs, "FineChunk")("a1", weights=weights)
        assert told(chosen("a1")) == told(by_call)

    def test_few_texts_tell_nothing(self):
        """Below 48 texts the weights stay."""
        docs = topic_documents(embed_at_random, 40)
        assert "agreement" not in fusion_settings(docs)

    def test_hidden_texts_change_nothing(self):
        """A restricted view ranks as a Document of what it shows, whatever the others' vectors."""

        def embed_some(text):
            is_hidden = int(text.partition("own")[2] or 0) >= 60
            return np.pad(embed_topic(text), (0, 24)) if is_hidden else embed_at_random(text)

        texts = texts_by_topic(400)
        shown = dict(list(texts.items())[:60])
        docs = Document(embed=embed_some)
        docs.add_texts(texts)
        alone = Document(embed=embed_some)
        alone.add_texts(shown)
        view = docs.restricted({"file_name": list(shown)})
        with pytest.warns(UserWarning, match="no more than random ones"):
            rankings = [
                told(HybridRetriever.over(some, "FineChunk")("a1 b2")) for some in (view, alone)
            ]
        assert rankings[0] == rankings[1]
        assert "agreement" not in fusion_settings(docs)

    def test_the_status_shows_what_a_search_has_measured(self):
        """Until the next change; vectors that agree, and searches of a part, add nothing to it."""
        docs = topic_documents(embed_at_random)
        assert {group.agreement for group in docs.status().groups} == {None}
        shown = docs.restricted({"file_name": [f"{number:03d}" for number in range(60)]})
        with pytest.warns(UserWarning, match="no more than random ones"):
            fusion_settings(shown)
        assert "agreement" not in str(docs.status())
        with pytest.warns(UserWarning, match="no more than random ones"):
            fusion_settings(docs)
        groups = {group.name: group for group in docs.status().groups}
        assert (groups["FineChunk"].agreement, groups["lazyllm_root"].agreement) == (0, None)
        left_out = "vectors are left out of hybrid search, agreement 0.0: check the model"
        assert left_out in str(docs.status())
        docs.delete_files([f"{number:03d}" for number in range(40)])
        fusion_settings(docs)
        assert "agreement" not in str(docs.status())
        good = topic_documents(embed_topic)
        fusion_settings(good)
        assert "agreement" not in str(good.status())
        assert 1 in {group.agreement for group in good.status().groups}

    def test_agreement_follows_changes(self):
        """New vectors are measured again."""
        docs = topic_documents(embed_at_random)
        with pytest.warns(UserWarning, match="no more than random ones"):
            assert fusion_settings(docs)["agreement"] == 0
        docs.delete_files([f"{number:03d}" for number in range(40)])
        assert "agreement" not in fusion_settings(docs)
