"""`RAGPipeline` over collections of Milvus that another program filled, by pymilvus itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from pymilvus import DataType, MilvusClient

from lazyrag import RAGPipeline
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.operators import MilvusRetriever
from lazyrag.pipeline import MilvusCollection

ROWS = [
    {
        "id": 1,
        "text": "绿茶用八十度的水。",
        "source": "绿茶.txt",
        "document_id": "d1",
        "chunk_id": 1,
        "vector": [1.0, 0.0],
    },
    {
        "id": 2,
        "text": "红茶用沸水。",
        "source": "红茶.txt",
        "document_id": "d2",
        "chunk_id": 1,
        "vector": [0.8, 0.6],
    },
    {
        "id": 3,
        "text": "咖啡用九十二度的水。",
        "source": "咖啡.txt",
        "document_id": "d3",
        "chunk_id": 2,
        "vector": [0.0, 1.0],
    },
]


@pytest.fixture
def client(tmp_path: Path):
    """Milvus Lite in a file."""
    one = MilvusClient(str(tmp_path / "theirs.db"))
    yield one
    one.close()


def fill(
    client: MilvusClient, name: str, metric: str = "COSINE", text: str = "text", **schema
) -> None:
    """A collection as tutorials make one: a schema, an index, rows."""
    made = client.create_schema(auto_id=False, enable_dynamic_field=schema.pop("dynamic", False))
    made.add_field("id", DataType.INT64, is_primary=True)
    made.add_field(text, DataType.VARCHAR, max_length=500)
    made.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
    if not made.enable_dynamic_field:
        made.add_field("source", DataType.VARCHAR, max_length=100)
        made.add_field("document_id", DataType.VARCHAR, max_length=100)
        made.add_field("chunk_id", DataType.INT64)
    index = client.prepare_index_params()
    index.add_index(
        "vector", index_type="FLAT", metric_type=metric, index_name=schema.pop("index", "")
    )
    client.create_collection(name, schema=made, index_params=index, consistency_level="Strong")
    client.insert(
        name,
        [{**{key: row[key] for key in row if key != "text"}, text: row["text"]} for row in ROWS],
    )


def embed(text: str) -> list[float]:
    """Every question is about green tea."""
    return [1.0, 0.0]


def test_hits_are_the_rows_best_first(client):
    """With their fields, and the cosine as score."""
    fill(client, "docs")
    found = RAGPipeline(embed, client).sync.retrieve("绿茶用多热的水？", top_k=2)
    assert [(hit.id, hit.source, hit.document_id, hit.chunk_id) for hit in found] == [
        ("1", "绿茶.txt", "d1", 1),
        ("2", "红茶.txt", "d2", 1),
    ]
    assert [hit.score for hit in found] == pytest.approx([1.0, 0.8], abs=1e-4)
    assert "vector" not in found[0].metadata


@pytest.mark.parametrize("dynamic", [False, True])
def test_filters_are_asked_of_milvus(client, dynamic):
    """On declared and on dynamic fields, of texts and of numbers; one and all but one come."""
    fill(client, "docs", dynamic=dynamic)
    pipeline = RAGPipeline(embed, client)
    assert [hit.id for hit in pipeline.sync.retrieve("茶", filters={"source": ["红茶.txt"]})] == [
        "2"
    ]
    assert [hit.id for hit in pipeline.sync.retrieve("茶", filters={"chunk_id": 1})] == ["1", "2"]
    both = {"chunk_id": [1, 2], "document_id": ["d1", "d3"]}
    assert [hit.id for hit in pipeline.sync.retrieve("茶", filters=both)] == ["1", "3"]


@pytest.mark.parametrize(
    ("metric", "scores"), [("IP", [1.0, 0.8, 0.0]), ("L2", [1.0, 1 / 1.4, 1 / 3])]
)
def test_scores_of_other_metrics(client, metric, scores):
    """The inner product as it is; a distance as 1 / (1 + distance), so that higher is better."""
    fill(client, "docs", metric)
    found = RAGPipeline(embed, client).sync.retrieve("茶")
    assert [hit.id for hit in found] == ["1", "2", "3"]
    assert [hit.score for hit in found] == pytest.approx(scores, abs=1e-4)


def test_a_collection_that_is_not_plain_is_named(client):
    """Which of two, and which field has the texts; without it the error says what there is."""
    fill(client, "docs")
    fill(client, "others", text="body")
    with pytest.raises(ConfigError, match="Known: docs, others"):
        RAGPipeline(embed, client).sync.retrieve("茶")
    with pytest.raises(ConfigError, match="Give text_field="):
        RAGPipeline(embed, MilvusCollection(client, "others")).sync.retrieve("茶")
    pipeline = RAGPipeline(embed, MilvusCollection(client, "others", text_field="body"))
    assert pipeline.sync.retrieve("茶", top_k=1)[0].text == ROWS[0]["text"]


def test_the_whole_way(client):
    """Retrieved, reranked, written, answered, cited."""
    fill(client, "docs")

    async def rerank_last_first(query, documents, top_k=5):
        return [(at, float(at)) for at in range(len(documents))]

    class Reranker:
        rerank = staticmethod(rerank_last_first)

    pipeline = RAGPipeline(embed, client, Reranker(), generator=lambda prompt: "九十二度[1]。")
    answer = pipeline.sync.answer("咖啡用多热的水？")
    assert answer.context.context.startswith(
        "基于以下参考资料回答问题：\n\n[资料1] 来源：咖啡.txt\n"
    )
    assert [citation.source for citation in answer.citations] == ["咖啡.txt"]


def test_an_index_with_a_name_of_its_own_is_read(client):
    """By L2 the nearest row is first, whatever the index is called: its distance is no score."""
    fill(client, "named", "L2", index="vectors_by_distance")
    found = RAGPipeline(embed, client).sync.retrieve("绿茶", top_k=3)
    assert [hit.source for hit in found] == ["绿茶.txt", "红茶.txt", "咖啡.txt"]
    assert found[0].score == 1.0


def test_the_operator_finds_what_the_pipeline_finds(client):
    """Specification 000's MilvusRetriever over the client: same rows, same scores; Milvus's failure
    is told.
    """
    fill(client, "docs")
    by_pipeline = RAGPipeline(embed, client).sync.retrieve("绿茶", top_k=2)
    rows = MilvusRetriever(client, embed, topk=2)({"query": "绿茶"})["retrieval_results"]
    assert [(row["id"], row["score"]) for row in rows] == [
        (hit.id, hit.score) for hit in by_pipeline
    ]
    with pytest.raises(RetrievalError, match="Milvus"):
        MilvusRetriever(MilvusCollection(client, "missing"), embed)({"query": "绿茶"})
