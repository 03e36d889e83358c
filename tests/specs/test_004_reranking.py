"""Specification 004, sections 5 and 10: rerankers. Each docstring quotes the sentence that it
tests.
"""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import AlreadyRegisteredError, ConfigError, NotRegisteredError, RetrievalError
from lazyrag.interop.dify import (
    BaseRerankRunner,
    Document,
    RerankMode,
    RerankModelRunner,
    RerankRunnerFactory,
    WeightRerankRunner,
)
from lazyrag.interop.dify.retrieval import rerank_runners
from lazyrag.ranking import KeywordSetting, VectorSetting, Weights

DOCS = [
    Document(text, {"doc_id": str(number)})
    for number, text in enumerate(["black tea", "green tea", "coffee"])
]


def weights(vector):
    """Weights with so much for vectors."""
    return Weights(VectorSetting(vector, "toy", "words"), KeywordSetting(1 - vector))


def embed(text):
    """Whether two words are there."""
    return [float("coffee" in text), float("tea" in text)]


def never(query, documents, top_n):
    """A rerank model that is not to be asked."""
    pytest.fail("asked")


def by_length(query, documents, top_n):
    """A rerank model: longer is better."""
    return [(position, len(document) / 10) for position, document in enumerate(documents)]


def told(found):
    """A result as texts."""
    return [document.page_content for document in found]


def test_the_interface():
    """「自定义重排序算法：实现 `BaseRerankRunner` 接口」: one method that takes documents and gives them in
    order.
    """
    parameters = ["self", "query", "documents", "score_threshold", "top_n", "user"]
    for kind in (BaseRerankRunner, RerankModelRunner, WeightRerankRunner):
        assert [*inspect.signature(kind.run).parameters] == parameters
    with pytest.raises(TypeError, match="abstract"):
        BaseRerankRunner()


def test_the_modes():
    """「重排序类：`Weights`、`VectorSetting`、`KeywordSetting`、`RerankMode`」: every mode has a runner."""
    assert {one.value for one in RerankMode} == set(rerank_runners)
    made = RerankRunnerFactory.create_rerank_runner(RerankMode.WEIGHTED_SCORE, weights(0.5), embed)
    assert type(made) is WeightRerankRunner
    assert (
        type(RerankRunnerFactory.create_rerank_runner("reranking_model", by_length))
        is RerankModelRunner
    )


def test_a_runner_of_ones_own():
    """「注册到 `RerankRunnerFactory`」: by a name that is then known."""

    class Backwards(BaseRerankRunner):
        def run(self, query, documents, score_threshold=None, top_n=None, user=None):
            return documents[::-1]

    with rerank_runners.isolated():
        assert RerankRunnerFactory.register("backwards", Backwards) is Backwards
        made = RerankRunnerFactory.create_rerank_runner("backwards")
        assert told(made.run("tea", DOCS)) == ["coffee", "green tea", "black tea"]
        with pytest.raises(AlreadyRegisteredError):
            RerankRunnerFactory.register("weighted_score", Backwards)
        RerankRunnerFactory.register("none", lambda: None)
        with pytest.raises(ConfigError, match="a BaseRerankRunner"):
            RerankRunnerFactory.create_rerank_runner("none")
    with pytest.raises(NotRegisteredError, match="reranking_model, weighted_score"):
        RerankRunnerFactory.create_rerank_runner("backwards")
    with pytest.raises(ConfigError, match="subclass of BaseRerankRunner"):
        RerankRunnerFactory.register("seven", 7)


def test_a_rerank_model():
    """「E -->|DataPostProcessor| F[Reranked Documents]」: best first, with the model's scores, the
    input untouched.
    """
    found = RerankModelRunner(by_length).run("tea", DOCS)
    assert [(one.page_content, one.metadata["score"]) for one in found] == [
        ("black tea", 0.9),
        ("green tea", 0.9),
        ("coffee", 0.6),
    ]
    assert all("score" not in document.metadata for document in DOCS)


def test_threshold_and_number():
    """「F -->|过滤截取| G[最终结果]」: what is worse than the threshold goes, and what is too many."""
    runner = RerankModelRunner(by_length)
    assert told(runner.run("tea", DOCS, score_threshold=0.9)) == ["black tea", "green tea"]
    assert told(runner.run("tea", DOCS, top_n=1)) == ["black tea"]
    assert runner.run("tea", []) == []
    for wrong, name in (
        ({"top_n": 0}, "top_n"),
        ({"top_n": 101}, "top_n"),
        ({"score_threshold": 2}, "2"),
    ):
        for one in (RerankModelRunner(never), WeightRerankRunner(weights(0.7), embed)):
            with pytest.raises(ConfigError, match=name):
                one.run("tea", DOCS, **wrong)


def test_doubles_are_taken_once():
    """「合并去重」: by doc_id; of documents without one, those with the same text and metadata."""
    more = [
        *DOCS,
        Document("green tea", {"doc_id": "1", "score": 0.1}),
        Document("new"),
        Document("new"),
    ]
    assert told(RerankModelRunner(by_length).run("tea", more)) == [
        "black tea",
        "green tea",
        "coffee",
        "new",
    ]
    with pytest.raises(ConfigError, match="Document objects"):
        RerankModelRunner(by_length).run("tea", ["green tea"])
    for doc_id in (["1"], ({},)):
        with pytest.raises(ConfigError, match="doc_id must be a string"):
            RerankModelRunner(by_length).run("tea", [Document("green tea", {"doc_id": doc_id})])


def test_scores_of_a_model_that_knows_no_bounds():
    """「相关性分数 `score` 范围为 [0, 1]」: logits are an error that says what to do, or are brought
    there.
    """

    def logits(query, documents, top_n):
        return [(position, 5.0 - 4 * position) for position in range(len(documents))]

    with pytest.raises(ConfigError, match="from 0 to 1"):
        RerankModelRunner(logits).run("tea", DOCS)
    found = RerankModelRunner(logits, normalise="min_max").run("tea", DOCS)
    assert [one.metadata["score"] for one in found] == [1.0, 0.5, 0.0]
    with pytest.raises(ConfigError, match="normalise"):
        RerankModelRunner(by_length, normalise="minmax")
    with pytest.raises(RetrievalError):
        RerankModelRunner(lambda query, documents, top_n: [(9, 1.0)]).run("tea", DOCS)


@given(st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]))
def test_the_weighted_score(vector):
    """「vector_score * weights.vector_setting.vector_weight + keyword_score * … .keyword_weight」"""
    scores = {}
    for share in (1.0, 0.0, vector):
        runner = WeightRerankRunner(weights(share), embed)
        scores[share] = {
            one.page_content: one.metadata["score"] for one in runner.run("green tea", DOCS)
        }
    for text in scores[1.0]:
        by_words = scores[0.0][text]
        assert scores[vector][text] == pytest.approx(
            scores[1.0][text] * vector + by_words * (1 - vector)
        )
        assert 0 <= scores[vector][text] <= 1
    assert scores[0.0]["green tea"] == scores[1.0]["green tea"] == 1.0
    assert scores[0.0]["coffee"] == scores[1.0]["coffee"] == 0.0
    assert 0 < scores[0.0]["black tea"] < 1


def test_what_scores_came_with_does_not_count():
    """「vector_score」 is the cosine of query and text, whatever ``metadata["score"]`` says."""
    documents = [
        Document("coffee", {"doc_id": "1", "score": 1.0}),
        Document("tea", {"doc_id": "2", "score": 0.0}),
    ]
    assert told(WeightRerankRunner(weights(1.0), embed).run("tea", documents)) == ["tea", "coffee"]


def test_a_blank_query():
    """To a blank query nothing is close: every score is 0, and the order stays. What is no text is
    an error.
    """
    for runner in (WeightRerankRunner(weights(0.7), embed), RerankModelRunner(never)):
        for query in ("", " \n"):
            found = runner.run(query, DOCS)
            assert [(one.page_content, one.metadata["score"]) for one in found] == [
                (text, 0.0) for text in told(DOCS)
            ]
            assert runner.run(query, DOCS, score_threshold=0.1) == []
        for documents in (DOCS, []):
            with pytest.raises(ConfigError, match="query must be a string; got None"):
                runner.run(None, documents)


def test_words_alone_need_no_model():
    """「keyword_weight」 of 1 embeds nothing; above 0 for vectors, embeddings are needed."""
    assert told(
        WeightRerankRunner(weights(0.0)).run("绿茶", [Document("红茶"), Document("绿茶")])
    ) == ["绿茶", "红茶"]
    with pytest.raises(ConfigError, match="Pass embeddings="):
        WeightRerankRunner(weights(0.7))
    with pytest.raises(ConfigError, match="weights must be Weights"):
        WeightRerankRunner(0.7, embed)
    assert WeightRerankRunner(weights(0.0)).run("tea", []) == []
    assert [one.metadata["score"] for one in WeightRerankRunner(weights(0.0)).run(" ", DOCS)] == [
        0.0
    ] * 3
