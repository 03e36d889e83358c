"""Spec 003, rerankers: every test quotes the sentence it checks and says what is expected."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, HttpRerankModel, OnnxEmbedder, Reranker
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.models import AsyncReranker, CrossEncoderReranker, OnnxCrossEncoder
from tests.model_server import PATIENCE_S, RawServer
from tests.shared import read_squad, shared
from tests.tiny_models import write_cross_encoder

DOCUMENTS = [
    "late frost",
    "a cup of green tea",
    "tea",
    "green tea",
    "early harvest of tea",
    "cup",
    "late tea",
]


@pytest.fixture
def reranker(tmp_path) -> CrossEncoderReranker:
    """A tiny cross-encoder in a folder, by name."""
    return CrossEncoderReranker(str(write_cross_encoder(tmp_path / "tiny")))


def by_length(query, documents, top_n):
    """Stands for a model: longer is better."""
    return [(index, float(len(text))) for index, text in enumerate(documents)]


def test_a_reranker_is_made_of_a_models_name(tmp_path, monkeypatch):
    """「def __init__(self, model_name: str = "BAAI/bge-reranker-large"): 初始化重排序模型」

    The default is this name, looked up on this machine: in a folder of that name, else in the hub's
    cache. Where it is not, the error says what to do.
    """
    parameters = inspect.signature(CrossEncoderReranker).parameters
    assert [(name, one.default) for name, one in parameters.items()] == [
        ("model_name", "BAAI/bge-reranker-large")
    ]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"'BAAI/bge-reranker-large' on this machine.*HF_ENDPOINT.*modelscope download",
    ):
        CrossEncoderReranker()
    write_cross_encoder(tmp_path / "BAAI" / "bge-reranker-large")
    assert CrossEncoderReranker().get_scores("green tea", ["tea", "frost"])[0] > 0.5


def test_rerank_gives_indexes_and_scores(reranker):
    """「async def rerank(self, query: str, documents: List[str], top_k: int = 5) -> List[Tuple[int,
    float]]: 重排序文档 Returns: [(doc_index, score), ...]」

    It is awaited, and gives the best five, best first, with the model's scores; or as many as are
    asked for.
    """
    assert inspect.iscoroutinefunction(CrossEncoderReranker.rerank)
    expected = reranker.model("green tea", DOCUMENTS)
    assert asyncio.run(reranker.rerank("green tea", DOCUMENTS)) == expected[:5]
    assert asyncio.run(reranker.rerank("green tea", DOCUMENTS, top_k=2)) == expected[:2]
    assert asyncio.run(reranker.rerank("green tea", DOCUMENTS, top_k=50)) == expected
    assert asyncio.run(reranker.rerank("green tea", [])) == []
    assert DOCUMENTS[expected[0][0]] in {"a cup of green tea", "green tea"}


def test_get_scores_keeps_the_documents_order(reranker):
    """「def get_scores(self, query: str, documents: List[str]) -> List[float]: 获取相关性分数」

    It is a plain method, and gives each document's score at the document's place.
    """
    ranked = dict(reranker.model("green tea", DOCUMENTS))
    assert reranker.get_scores("green tea", DOCUMENTS) == [
        ranked[position] for position in range(len(DOCUMENTS))
    ]
    assert asyncio.run(reranker.aget_scores("green tea", DOCUMENTS)) == reranker.get_scores(
        "green tea", DOCUMENTS
    )
    assert reranker.get_scores("green tea", []) == []


def test_a_cross_encoder_reads_query_and_document_together(reranker):
    """「Cross-Encoder直接对(query, doc)对打分，比Bi-Encoder更准确：score = cross_encode([query, doc])」

    A document's score depends on the query, and on no other document.
    """
    [alone] = reranker.get_scores("green tea", ["tea"])
    assert reranker.get_scores("green tea", DOCUMENTS)[DOCUMENTS.index("tea")] == alone
    assert reranker.get_scores("late frost", ["tea"]) != [alone]


def test_the_model_goes_into_a_reranker_of_nodes(reranker):
    """「使用交叉编码器模型」

    One model in a process, whichever face it is asked by.
    """
    assert isinstance(reranker.model, OnnxCrossEncoder)
    assert CrossEncoderReranker(reranker.model).model is reranker.model


def test_every_rerank_model_has_the_same_methods(model):
    """「创建Reranker接口」

    A function and an endpoint are asked in the same way.
    """
    with HttpRerankModel(model.url, "m") as http:
        for one in (by_length, http):
            asked = AsyncReranker(one)
            assert asyncio.run(asked.rerank("tea?", DOCUMENTS, top_k=1)) == [(4, 20.0)]
            assert asked.get_scores("tea?", DOCUMENTS) == [float(len(text)) for text in DOCUMENTS]


@given(st.lists(st.text(max_size=4), max_size=8), st.integers(1, 9))
def test_any_documents_are_ranked(documents, top_k):
    """「[(doc_index, score), ...]」

    The indexes are distinct and in range, as many as asked for, best first, ties by index; scores
    are those of get_scores.
    """
    reranker = AsyncReranker(by_length)
    found = asyncio.run(reranker.rerank("q", documents, top_k))
    scores = reranker.get_scores("q", documents)
    assert found == sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))[:top_k]


def test_the_event_loop_goes_on(reranker):
    """「async def rerank」

    While a model is at work, others on the loop are, too; and several rerankings are under way at
    once.
    """
    waiting = threading.Barrier(2, timeout=PATIENCE_S)

    def slow(query, documents, top_n):
        waiting.wait()  # until two are here
        return [(0, 1.0)]

    async def both():
        return await asyncio.gather(*(AsyncReranker(slow).rerank("q", ["a"]) for _ in range(2)))

    assert asyncio.run(both()) == [[(0, 1.0)]] * 2


def test_a_cancelled_task_is_left_at_once():
    """「async def rerank」

    Although what the model computes cannot be stopped.
    """
    begun, end = threading.Event(), threading.Event()

    def slow(query, documents, top_n):
        begun.set()
        end.wait(PATIENCE_S)
        return [(0, 1.0)]

    async def cancelled():
        task = asyncio.create_task(AsyncReranker(slow).rerank("q", ["a"]))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        taken = time.monotonic() - started
        end.set()
        return taken

    assert asyncio.run(cancelled()) < PATIENCE_S / 2


def test_a_cancelled_call_of_an_endpoint_ends():
    """「async def rerank」

    Its connection is closed.
    """
    with RawServer(b"", hold=True) as server:

        async def cancelled():
            with HttpRerankModel(server.url, "m") as model:
                task = asyncio.create_task(AsyncReranker(model).rerank("q", ["a"]))
                assert await asyncio.to_thread(server.asked.wait, PATIENCE_S)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                return await asyncio.to_thread(server.gone.wait, PATIENCE_S)

        assert asyncio.run(cancelled())


def test_what_makes_no_sense_is_refused():
    """「top_k: int = 5」

    No document at all, a text instead of a list, a model that leaves one out.
    """
    for top_k in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="top_k"):
            asyncio.run(AsyncReranker(by_length).rerank("q", ["a"], top_k))
    with pytest.raises(ConfigError, match="must be a list of strings"):
        AsyncReranker(by_length).get_scores("q", "text")
    with pytest.raises(RetrievalError, match="documents"):
        AsyncReranker(lambda query, documents, top_n: [(0, 1.0)]).get_scores("q", ["a", "b"])
    with pytest.raises(ConfigError, match="callable"):
        AsyncReranker(3)


def test_bm25_is_a_reranker():
    """「**BM25 Reranker** - 基于关键词的重排序（可选）」

    The candidate that shares the query's keywords comes first; Chinese and English.
    """
    for query, texts in (("frost", ["tea", "late frost"]), ("霜冻", ["绿茶", "晚春霜冻"])):
        nodes = [DocNode(text=text) for text in texts]
        assert Reranker("BM25Reranker", topk=1)(nodes, query=query)[0].text == texts[1]


def test_several_orders_are_fused():
    """「**Reciprocal Rank Fusion** - 融合多种排序结果」

    Of the order that came and a reranker's: 1 / (60 + rank) of each, ranks from 1.
    """
    nodes = [DocNode(text=text) for text in ("a", "bbb", "cc")]
    longest = Reranker("ModuleReranker", model=by_length)
    found = Reranker("FusionReranker", rerankers=[longest])(nodes, query="q")
    assert {node.text: node.score for node in found} == {
        "a": pytest.approx(1 / 61 + 1 / 63),
        "bbb": pytest.approx(1 / 62 + 1 / 61),
        "cc": pytest.approx(1 / 63 + 1 / 62),
    }
    assert [node.text for node in found] == ["bbb", "a", "cc"]


@pytest.mark.shared
@pytest.mark.slow
def test_reranking_finds_more_than_vectors_alone():
    """「Reranker正确提升检索准确率」

    Of 80 questions of XQuAD on 30 paragraphs, more find their paragraph first after reranking than
    by vectors. A single question costs one embedding, as the paragraphs' token embeddings are kept.
    """
    paragraphs, questions = read_squad(shared("data", "retrieval", "xquad", "xquad.en.json"))
    questions = [(question, right) for question, right in questions if right < 30][:80]
    embedder = OnnxEmbedder(shared("models", "all-minilm-l6-v2"))
    vectors = embedder.embed(paragraphs[:30])
    reranker = Reranker("MaxSimReranker", embedder=embedder, weight=0.5)
    by_vector = reranked = 0
    asked = embedder.embed([question for question, _ in questions], "query")
    for (question, right), vector in zip(questions, asked, strict=True):
        scores = vectors @ vector
        nodes = [
            DocNode(text=paragraphs[position], score=float(scores[position]))
            for position in np.argsort(-scores)[:10]
        ]
        by_vector += nodes[0].text == paragraphs[right]
        reranked += reranker(nodes, query=question)[0].text == paragraphs[right]
    assert reranked > by_vector > 0.8 * len(questions)
