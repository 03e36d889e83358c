"""Spec 003, task 1 `RAGPipeline`, and the flow of its technical notes: each test quotes what it
checks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect

import pytest

import lazyrag

TEXTS = {
    "绿茶.txt": "绿茶用八十度的水冲泡。水太热会发苦。",
    "红茶.txt": "红茶用沸水冲泡。",
    "白茶.txt": "白茶用七十度的水冲泡。",
    "咖啡.txt": "咖啡用九十二度的水冲泡。",
}


@pytest.fixture
def docs():
    """Four documents with embeddings."""
    docs = lazyrag.Document(embed=lambda text: [0.1 + text.count(word) for word in "绿红白咖茶水"])
    docs.add_texts(TEXTS)
    return docs


class EmbeddingManager:
    """As the document's stage 2.1 has one."""

    async def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        return [float(len(text)), 1.0]


class MilvusClient:
    """Three rows behind the methods of ``pymilvus.AsyncMilvusClient`` that are asked; tests/live
    asks the real one.
    """

    def __init__(self):
        self.asked = []

    async def list_collections(self):
        """One."""
        return ["docs"]

    async def describe_collection(self, collection_name):
        """Its fields."""
        fields = [
            {"name": "id", "type": 21, "is_primary": True, "params": {}},
            {"name": "text", "type": 21, "params": {}},
            {"name": "source", "type": 21, "params": {}},
            {"name": "document_id", "type": 21, "params": {}},
            {"name": "chunk_id", "type": 5, "params": {}},
            {"name": "vector", "type": 101, "params": {"dim": 2}},
        ]
        return {"collection_name": collection_name, "fields": fields, "enable_dynamic_field": False}

    async def describe_index(self, collection_name, index_name):
        """By cosine; None for a name that no index has, as pymilvus says it."""
        told = {"metric_type": "COSINE", "index_name": index_name, "field_name": "vector"}
        return told if index_name == "by_cosine" else None

    async def list_indexes(self, collection_name):
        """One, with a name of its own."""
        return ["by_cosine"]

    async def search(self, **arguments):
        """Its rows."""
        self.asked.append(arguments)
        rows = [
            {
                "id": str(n),
                "distance": 1 / (n + 1),
                "entity": {"text": text, "source": name, "document_id": f"d{n}"},
            }
            for n, (name, text) in enumerate(TEXTS.items())
        ]
        return [
            [{**row, "entity": {**row["entity"], "chunk_id": 1, "vector": [0, 1]}} for row in rows]
        ]


@pytest.fixture
def client():
    """A client of Milvus."""
    return MilvusClient()


class Reranker:
    """As the document's own: `rerank` is a coroutine."""

    async def rerank(self, query, documents, top_k=5):
        """The longest first."""
        ranked = sorted(range(len(documents)), key=lambda at: -len(documents[at]))
        return [(at, float(len(documents[at]))) for at in ranked[:top_k]]


def test_init(client):
    """「embedding_manager: EmbeddingManager, milvus_client: MilvusClient, reranker:
    Optional[Reranker] = None」
    """
    names = list(inspect.signature(lazyrag.RAGPipeline).parameters)
    assert names[:3] == ["embedding_manager", "milvus_client", "reranker"]
    manager = EmbeddingManager()
    for pipeline in (
        lazyrag.RAGPipeline(manager, client),
        lazyrag.RAGPipeline(manager, client, Reranker()),
        lazyrag.RAGPipeline(embedding_manager=manager, milvus_client=client, reranker=None),
    ):
        assert asyncio.run(pipeline.retrieve("绿茶"))[0].text == TEXTS["绿茶.txt"]


def test_retrieve_of_a_collection(client):
    """「async def retrieve(query, top_k=5, filters: Optional[Dict] = None) ->
    List[RetrievalResult]」
    """
    pipeline = lazyrag.RAGPipeline(EmbeddingManager(), client)
    found = asyncio.run(
        pipeline.retrieve(
            "绿茶", top_k=2, filters={"source": ["绿茶.txt", "红茶.txt"], "chunk_id": 1}
        )
    )
    assert [type(one) for one in found] == [lazyrag.Hit] * 2
    assert [one.score for one in found] == [1.0, 0.5]
    assert (found[0].source, found[0].document_id, found[0].chunk_id) == ("绿茶.txt", "d0", 1)
    [asked] = client.asked
    assert asked["filter"] == 'source in ["绿茶.txt", "红茶.txt"] and chunk_id in [1]'
    assert (asked["limit"], asked["data"], asked["anns_field"]) == (2, [[2.0, 1.0]], "vector")


@pytest.mark.parametrize("value", ['a" or id > "', "a\\", "a\nb", object()])
def test_a_filter_cannot_leave_its_quotes(client, value):
    """「filters: Optional[Dict]」: what would need escaping is refused, and so is a field that is not
    there.
    """
    pipeline = lazyrag.RAGPipeline(EmbeddingManager(), client)
    with pytest.raises(lazyrag.LazyRAGError, match="The filter on 'source' must be"):
        asyncio.run(pipeline.retrieve("绿茶", filters={"source": value}))
    with pytest.raises(lazyrag.LazyRAGError, match="no field"):
        asyncio.run(pipeline.retrieve("绿茶", filters={"source in [] or id": "a"}))
    assert client.asked == []


def test_retrieve_of_a_document(docs):
    """「检索相关文档」: the same method over a Document, with its filters."""
    pipeline = lazyrag.RAGPipeline.over(docs, "FineChunk")
    found = asyncio.run(pipeline.retrieve("绿茶", top_k=5))
    assert found[0].source == "绿茶.txt"
    [only] = asyncio.run(pipeline.retrieve("绿茶", filters={"file_name": "红茶.txt"}))
    assert only.source == "红茶.txt"


def test_retrieve_takes_five(docs):
    """「top_k: int = 5」"""
    docs.add_texts({f"茶{number}.txt": "茶" for number in range(9)})
    assert len(asyncio.run(lazyrag.RAGPipeline.over(docs, "FineChunk").retrieve("茶"))) == 5


def test_retrieve_and_rerank(client):
    """「async def retrieve_and_rerank(query, top_k=5, rerank_top_k=3) -> List[RetrievalResult]」"""
    pipeline = lazyrag.RAGPipeline(EmbeddingManager(), client, Reranker())
    found = asyncio.run(pipeline.retrieve_and_rerank("绿茶"))
    lengths = sorted((float(len(text)) for text in TEXTS.values()), reverse=True)
    assert [one.score for one in found] == lengths[:3]
    assert client.asked[0]["limit"] == 5
    assert len(asyncio.run(pipeline.retrieve_and_rerank("绿茶", top_k=4, rerank_top_k=2))) == 2
    assert client.asked[1]["limit"] == 4


def test_retrieve_and_rerank_on_the_defaults(docs, client):
    """「reranker: Optional[Reranker] = None」: without one it reranks by BM25, 「基于关键词的重排序」, and says
    so.
    """
    for pipeline in (
        lazyrag.RAGPipeline.over(docs, "FineChunk"),
        lazyrag.RAGPipeline(EmbeddingManager(), client),
    ):
        found = asyncio.run(pipeline.retrieve_and_rerank("白茶"))
        assert found[0].text == TEXTS["白茶.txt"]
        assert len(found) == 3
        assert found.metadata["reranker"] == "BM25Reranker"


def test_over_is_hybrid_where_there_are_vectors(docs):
    """「混合检索（向量 + BM25）」 without settings where a Document has embeddings, else 「BM25检索」."""
    plain = lazyrag.Document()
    plain.add_texts(TEXTS)
    for one, retriever in (
        (docs, lazyrag.HybridRetriever.over(docs, "FineChunk")),
        (plain, lazyrag.BM25Retriever(plain, "FineChunk")),
    ):
        found = asyncio.run(lazyrag.RAGPipeline.over(one, "FineChunk").retrieve("绿茶用多热的水？"))
        expected = retriever("绿茶用多热的水？", topk=5)
        assert [(hit.id, hit.score) for hit in found] == [
            (node.uid, node.score) for node in expected
        ]


def test_build_context(client):
    """「async def build_context(results, max_tokens: int = 2000) -> str」"""
    pipeline = lazyrag.RAGPipeline(EmbeddingManager(), client)

    async def main():
        results = await pipeline.retrieve("绿茶用多热的水？")
        return await pipeline.build_context(results), await pipeline.build_context(
            results, max_tokens=100
        )

    whole, short = asyncio.run(main())
    assert whole.startswith("基于以下参考资料回答问题：\n\n[资料1] 来源：绿茶.txt\n")
    assert all(text in whole for text in TEXTS.values())
    assert "问题：绿茶用多热的水？" in whole
    assert lazyrag.ContextBuilder().count_tokens(short) <= 100
    assert len(short) < len(whole)


def test_build_context_of_results_made_by_hand(client):
    """「results: List[RetrievalResult]」: spec 003's own class, constructed by its code."""
    results = [
        lazyrag.Hit(
            id="1",
            text="用八十度的水。",
            score=0.9,
            source="绿茶.txt",
            document_id="d",
            chunk_id=1,
            metadata={},
        )
    ]
    context = asyncio.run(lazyrag.RAGPipeline(EmbeddingManager(), client).build_context(results))
    assert "[资料1] 来源：绿茶.txt\n用八十度的水。" in context


def test_retrieve_with_context(client):
    """「async def retrieve_with_context(query, top_k=5, max_tokens=2000) -> RAGContext」"""
    pipeline = lazyrag.RAGPipeline(EmbeddingManager(), client)
    context = asyncio.run(pipeline.retrieve_with_context("绿茶用多热的水？"))
    assert isinstance(context, lazyrag.RAGContext)
    assert context.query == "绿茶用多热的水？"
    assert [source.source for source in context.sources] == list(TEXTS)
    assert context.total_tokens == lazyrag.ContextBuilder().count_tokens(context.context) <= 2000


def test_every_method_is_a_coroutine():
    """「async def」, four times."""
    methods = ("retrieve", "retrieve_and_rerank", "build_context", "retrieve_with_context")
    assert all(asyncio.iscoroutinefunction(getattr(lazyrag.RAGPipeline, name)) for name in methods)


def test_a_retrieval_result_has_seven_fields():
    """「id, text, score, source, document_id, chunk_id, metadata」, by position too."""
    names = [field.name for field in dataclasses.fields(lazyrag.Hit)]
    assert names == ["id", "text", "score", "source", "document_id", "chunk_id", "metadata"]
    made = lazyrag.Hit("1", "text", 0.5, "tea.txt", "d", 2, {"page": 3})
    assert dataclasses.asdict(made) == made.to_dict()


def test_a_context_has_five_fields():
    """「query, context, sources, total_tokens, metadata」, by position too."""
    names = [field.name for field in dataclasses.fields(lazyrag.RAGContext)]
    assert names == ["query", "context", "sources", "total_tokens", "metadata"]
    made = lazyrag.RAGContext("q", "c", [lazyrag.Hit("1", "text", 0.5)], 7, {})
    assert made.sources[0].text == "text"


def test_the_flow(docs):
    """「1. 向量化查询 2. 向量检索 3. [可选] BM25检索 + 融合 4. [可选] Reranker重排序 5. 构建上下文 6. 返回RAGContext」

    All six in one call: a hybrid asked for ten, five of them left by the reranker, and the context
    with their numbers.
    """
    asked = []

    def embed(text):
        asked.append(text)
        return [0.1 + text.count(word) for word in "绿红白咖茶水"]

    many = lazyrag.Document(embed=embed)
    many.add_texts(
        {**TEXTS, **{f"茶{number}.txt": f"第{number}种茶用水冲泡。" for number in range(9)}}
    )
    hybrid = lazyrag.HybridRetriever(
        lazyrag.Retriever(many, "FineChunk", "cosine"),
        lazyrag.Retriever(many, "FineChunk", "bm25_chinese"),
    )
    seen = []

    class Counting(Reranker):
        async def rerank(self, query, documents, top_k=5):
            seen.append((len(documents), top_k))
            return await super().rerank(query, documents, top_k)

    settings = lazyrag.pipeline.PipelineSettings(rag_top_k=10, rag_rerank_top_k=5)
    pipeline = lazyrag.RAGPipeline(retriever=hybrid, reranker=Counting(), settings=settings)
    context = asyncio.run(pipeline.retrieve_with_context("绿茶用多热的水冲泡？"))
    assert "绿茶用多热的水冲泡？" in asked
    assert seen == [(10, 5)]
    assert len(context.sources) == 5
    assert all(f"[资料{number}] 来源：" in context.context for number in range(1, 6))
    assert set(context.metadata["seconds"]) == {"retrieve", "rerank", "hits", "context"}
