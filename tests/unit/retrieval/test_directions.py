"""Scores of which a smaller one is better, and negative ones, under fusions that add scores."""

from __future__ import annotations

import pytest

from lazyrag import (
    DocNode,
    Document,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
    register_reranker,
    register_similarity,
)
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.ranking.fusion import normalised, weighted
from lazyrag.retrieval import (
    MMR,
    AutoMerge,
    FeedbackRetriever,
    MultiQueryRetriever,
    ScoreThreshold,
    Windows,
)
from lazyrag.retrieval.similarity import similarities

TEXTS = {"a": "tea", "b": "tea pot", "c": "tea pot and two cups"}


@pytest.fixture(scope="module", autouse=True)
def distances():
    """Similarities of which a smaller score is better: by text, and by vector. They are gone after
    the module.
    """
    with similarities.isolated():

        @register_similarity(descend=False, replace=True)
        def length_apart(query, node):
            return abs(len(query) - len(node.text))

        @register_similarity(mode="embedding", descend=False, replace=True)
        def apart(query, node):
            return sum(abs(one - other) for one, other in zip(query, node.embedding, strict=True))

        yield


@pytest.fixture(scope="module")
def docs():
    """Three texts, the longer the further from the query."""
    docs = Document(embed=lambda text: [float(len(text)), 1.0])
    docs.add_texts(TEXTS)
    return docs


def by_length(docs):
    """The retriever by distance of the texts' lengths."""
    return Retriever(docs, "FineChunk", "length_apart")


def paths(nodes):
    """Which texts were found."""
    return [node.path for node in nodes]


class TestNegativeScores:
    """Rankings with nothing above the lowest score."""

    @pytest.mark.parametrize(("how", "lowest"), [("max", None), ("theoretical", 0.0)])
    def test_their_order_is_kept(self, how, lowest):
        """All below the bound: min-max instead of 0 for all, so the best is the best."""
        cosines = [("a", -0.1), ("b", -0.2), ("c", -0.9)]
        assert normalised(cosines, how, lowest) == [
            ("a", 1.0),
            ("b", pytest.approx(0.875)),
            ("c", 0.0),
        ]

    def test_a_ranking_that_reaches_the_bound(self):
        """The best is the bound itself, the others below it: the order is kept as well; equal ones
        at it stay 0.
        """
        assert normalised([("a", 0.0), ("b", -2.0)], "max") == [("a", 1.0), ("b", 0.0)]
        assert normalised([("a", 0.0), ("b", 0.0)], "max") == [("a", 0.0), ("b", 0.0)]
        assert normalised([("a", 0.5), ("b", -2.0)], "max") == [("a", 1.0), ("b", 0.0)]

    def test_in_a_weighted_sum(self):
        """A retriever whose cosines are all negative keeps its weight."""
        fused = weighted(
            [[("b", -0.2), ("a", -0.9)], [("a", 1.0), ("b", 0.9)]], weights=[3, 1], normalise="max"
        )
        assert [uid for uid, _ in fused] == ["b", "a"]


class TestSmallerIsBetter:
    """Distances in a hybrid."""

    @pytest.mark.parametrize(
        "keywords",
        [
            {"normalise": "max"},
            {"normalise": ["min_max", "max"]},
            {"normalise": "theoretical", "lowest": 0},
            {"normalise": ["min_max", "theoretical"], "lowest": [None, 0.0]},
        ],
    )
    def test_a_lowest_of_zero_is_refused(self, docs, keywords):
        """Turned round, all distances are below 0; the message says what to take instead."""
        for method in ("weighted", "comb_mnz", "comb_max"):
            with pytest.raises(
                ConfigError, match=r"Smaller scores of retriever 2.*normalise='min_max'"
            ):
                HybridRetriever(
                    Retriever(docs, "FineChunk"), by_length(docs), fusion_method=method, **keywords
                )

    def test_over_says_so(self, docs):
        """The default of `over` divides by the best score, so a distance needs another one, which
        works.
        """
        with pytest.raises(ConfigError, match="normalise='min_max'"):
            HybridRetriever.over(docs, "FineChunk", similarity="length_apart")
        hybrid = HybridRetriever.over(
            docs, "FineChunk", similarity="length_apart", normalise="min_max", weights=[0, 1]
        )
        assert paths(hybrid("tea")) == ["a", "b", "c"]

    def test_a_bound_below_the_largest_distance(self, docs):
        """With the measure's own bound, negated, theoretical takes distances."""
        hybrid = HybridRetriever(
            by_length(docs), fusion_method="weighted", normalise="theoretical", lowest=-100
        )
        assert paths(hybrid("tea")) == ["a", "b", "c"]
        assert [round(node.score, 2) for node in hybrid("tea")] == [1.0, 0.96, 0.83]

    def test_several_queries(self, docs):
        """`MultiQueryRetriever` refuses the same."""
        with pytest.raises(ConfigError, match="Smaller scores"):
            MultiQueryRetriever(
                by_length(docs), lambda _: [], fusion_method="weighted", normalise="max"
            )


class TestWrappers:
    """The direction of retrievers that are made of others."""

    @pytest.mark.parametrize(
        "wrap",
        [
            RetrievalChain,
            lambda one: RetrievalChain(one, Reranker("KeywordFilter", required_keys=["tea"])),
            lambda one: RetrievalChain(one, AutoMerge(descend=False)),
        ],
    )
    def test_they_have_that_of_what_they_ask(self, docs, wrap):
        """In a call and in a trace the nearest text is still the first."""
        retriever = by_length(docs)
        retriever.docs = docs
        wrapped = wrap(retriever)
        assert wrapped.higher_is_better is False
        hybrid = HybridRetriever(wrapped, fusion_method="weighted")
        assert paths(hybrid("tea")) == paths(hybrid.trace("tea").nodes) == ["a", "b", "c"]

    def test_feedback(self, docs):
        """A retriever that is asked twice has the direction of the one that it asks."""
        feedback = FeedbackRetriever(Retriever(docs, "FineChunk", "apart"), nodes=1)
        assert feedback.higher_is_better is False
        assert paths(HybridRetriever(feedback, fusion_method="weighted")("tea")) == ["a", "b", "c"]
        assert FeedbackRetriever(Retriever(docs, "FineChunk")).higher_is_better is True


class TestSteps:
    """What a chain's steps do to its direction."""

    def test_what_gives_scores_of_its_own(self, docs):
        """Behind a reranker by a model, and behind a step that says so, a higher score is
        better.
        """

        class Ten:
            """Scores by itself."""

            rescores = True

            def __call__(self, nodes, query):
                """Ten for what came last."""
                return [node.with_score(10.0 - at) for at, node in enumerate(reversed(nodes))]

        assert RetrievalChain(by_length(docs), Reranker("BM25Reranker")).higher_is_better is True
        chain = RetrievalChain(by_length(docs), Ten(), lambda nodes, _: nodes)
        assert chain.higher_is_better is True
        assert paths(HybridRetriever(chain, fusion_method="weighted")("tea")) == ["c", "b", "a"]

    def test_a_step_that_does_not_say(self, docs):
        """A function behind distances may have left them or not: no guess; behind other scores it
        does not matter.
        """

        def same(nodes, query):
            return nodes

        @register_reranker(batch=True, replace=True)
        def as_they_came(nodes):
            return nodes

        for step in (same, Reranker("as_they_came")):
            chain = RetrievalChain(by_length(docs), step)
            assert chain.higher_is_better is None
            with pytest.raises(RetrievalError, match="rescores"):
                HybridRetriever(chain, fusion_method="weighted")("tea")
            assert paths(HybridRetriever(chain)("tea")) == ["a", "b", "c"]
            assert RetrievalChain(Retriever(docs, "FineChunk"), step).higher_is_better is True
        same.rescores = False
        chain = RetrievalChain(by_length(docs), same)
        assert paths(HybridRetriever(chain, fusion_method="weighted")("tea")) == ["a", "b", "c"]

    def test_own_retrievers(self):
        """A callable says it by an attribute."""

        def near(query, filters=None, topk=None):
            return [
                DocNode(text="near", uid="1", score=1.0),
                DocNode(text="far", uid="2", score=9.0),
            ]

        near.descends = False
        assert [node.text for node in HybridRetriever(near, fusion_method="weighted")("tea")] == [
            "near",
            "far",
        ]


@pytest.mark.parametrize(
    "step",
    [
        lambda: MMR(lam=1),
        AutoMerge,
        lambda: ScoreThreshold(3),
        lambda: Reranker("BM25Reranker", weight=0.5),
        lambda: Reranker("FusionReranker", rerankers=["BM25Reranker"], fusion="weighted"),
        lambda: Reranker(
            "FusionReranker", rerankers=["KeywordFilter"], fusion="weighted", incoming=False
        ),
        lambda: Reranker("FusionReranker", rerankers=[Reranker("BM25Reranker", weight=0.5)]),
    ],
)
def test_a_step_that_wants_higher_scores_is_refused_behind_distances(docs, step):
    """A chain that would turn the order round in silence is not made; behind what gives scores of
    its own it is.
    """
    with pytest.raises(ConfigError, match="expects a higher score to be better"):
        RetrievalChain(by_length(docs), Windows(0, 0), step())
    RetrievalChain(by_length(docs), Reranker("BM25Reranker"), step())
    RetrievalChain(Retriever(docs, "FineChunk", "bm25"), step())


@pytest.mark.parametrize(
    "step",
    [
        lambda: MMR(lam=1, descend=False),
        lambda: MMR(lam=1, descend=False, embed_key="default"),
        lambda: ScoreThreshold(99, descend=False),
        lambda: Reranker(
            "FusionReranker", rerankers=[Reranker("KeywordFilter", exclude_keys=["x"])]
        ),
    ],
)
def test_a_step_that_is_told_keeps_the_order_of_distances(docs, step):
    """The nearest stays first."""
    nodes = by_length(docs)("tea")
    assert paths(RetrievalChain(by_length(docs), step())("tea")) == paths(nodes) == ["a", "b", "c"]
