"""Specification 004, sections 7, 9, 10: embeddings and the rows of their table. Each docstring
quotes its sentence.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import sqlite3

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyrag
from lazyrag import EmbeddingCache
from lazyrag.errors import ConfigError, EmbeddingError
from lazyrag.interop.dify import (
    CacheEmbedding,
    Embedding,
    EmbeddingInputType,
    Embeddings,
    doc_hash,
    keep_rows,
    rows_of,
)
from lazyrag.models.embedding_cache import VectorSpace

SPACE = VectorSpace("openai:text-embedding-3-small")
TABLE = """
CREATE TABLE embeddings (
    id VARCHAR(255) PRIMARY KEY,
    model_name VARCHAR(255) NOT NULL,
    hash VARCHAR(255) NOT NULL,
    provider_name VARCHAR(255) NOT NULL,
    embedding_vector TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL,
    CONSTRAINT embedding_hash_idx UNIQUE (model_name, hash, provider_name)
)
"""


class Lengths(Embeddings):
    """How long a text is; it counts what it was asked for."""

    identity = "toy:lengths"

    def __init__(self):
        self.asked = []

    def embed_documents(self, texts):
        """Of texts."""
        self.asked += texts
        return [[float(len(text)), 1.0] for text in texts]

    def embed_query(self, text):
        """Of a question."""
        self.asked.append("? " + text)
        return [float(len(text)), -1.0]


def test_a_model_of_ones_own(tmp_path):
    """「自定义 Embedding 模型：实现 `Embeddings` 接口」: wherever this package takes an embedder through this
    door.
    """
    with CacheEmbedding(Lengths(), tmp_path / "cache.db") as embeddings:
        assert embeddings.embed_documents(["tea", "green"]) == [[3.0, 1.0], [5.0, 1.0]]
        assert embeddings.embed_query("tea") == [3.0, -1.0]
        assert embeddings.embed_documents([]) == []
    with pytest.raises(TypeError, match="abstract"):
        Embeddings()


def test_the_interface_in_event_loops():
    """「`Embeddings`」 has both methods for event loops as well."""
    model = Lengths()

    async def both():
        return await model.aembed_documents(["tea"]), await model.aembed_query("tea")

    assert asyncio.run(both()) == ([[3.0, 1.0]], [3.0, -1.0])


def test_a_text_is_embedded_once(tmp_path):
    """「复合唯一索引确保同一文本和模型只缓存一次」: also over restarts, and a question is not taken for a text."""
    model = Lengths()
    with CacheEmbedding(model, tmp_path / "cache.db") as embeddings:
        embeddings.embed_documents(["tea", "tea"])
    with CacheEmbedding(model, tmp_path / "cache.db") as embeddings:
        assert embeddings.embed_documents(["tea"]) == [[3.0, 1.0]]
        assert embeddings.embed_query("tea") == embeddings.embed_query("tea") == [3.0, -1.0]
    assert model.asked == ["tea", "? tea"]


def test_equal_texts_have_equal_vectors(tmp_path):
    """「相同文本和模型的向量必须相同」, though the model gives another vector each time."""
    rng = np.random.default_rng(0)
    with CacheEmbedding(
        lambda text: rng.normal(size=4), tmp_path / "cache.db", identity="toy:noise"
    ) as embeddings:
        assert embeddings.embed_documents(["tea"]) == embeddings.embed_documents(["tea"])


def test_a_vector_that_is_made_again(tmp_path):
    """「缓存失效后重新生成的向量与原向量一致」: after the cache is cleared the model's own answer is back."""
    with CacheEmbedding(Lengths(), tmp_path / "cache.db") as embeddings:
        before = embeddings.embed_documents(["tea"])
        embeddings.embedder.cache.clear()
        assert embeddings.embed_documents(["tea"]) == before


def test_the_input_types():
    """「Embedding 类：`CacheEmbedding`、`Embeddings`、`EmbeddingInputType`」: what is searched, and what
    is asked.
    """
    assert [one.value for one in EmbeddingInputType] == ["document", "query"]
    assert VectorSpace("toy:lengths", EmbeddingInputType.QUERY.value).input_type == "query"


def test_what_cannot_be_cached(tmp_path):
    """Without a name of the model, with sparse vectors, or not a number, it is an error."""
    with pytest.raises(ConfigError, match="identity"):
        CacheEmbedding(lambda text: [1.0], tmp_path / "cache.db")
    with (
        CacheEmbedding(
            lambda text: {1: 1.0}, tmp_path / "cache.db", identity="toy:sparse"
        ) as embeddings,
        pytest.raises(ConfigError, match="sparse"),
    ):
        embeddings.embed_documents(["tea"])
    with (
        CacheEmbedding(
            lambda text: [float("nan")], tmp_path / "cache.db", identity="toy:nan"
        ) as embeddings,
        pytest.raises(EmbeddingError),
    ):
        embeddings.embed_documents(["tea"])


def test_a_document_takes_the_embeddings(tmp_path):
    """「C -->|CacheEmbedding| D[Vectors]」: a lazyrag.Document embeds through the same cache."""
    model = Lengths()
    with CacheEmbedding(model, tmp_path / "cache.db") as embeddings:
        embeddings.embed_documents(["green tea"])
        docs = lazyrag.Document(embed=embeddings.embedder)
        docs.add_texts({"a": "green tea"})
        assert len(lazyrag.Retriever(docs, lazyrag.LAZY_ROOT_NAME)("tea")) == 1
    assert model.asked == ["green tea", "? tea"]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
def test_a_row_holds_a_vector(vector):
    """「set_embedding … get_embedding」: bit for bit, in the specification's own encoding."""
    row = Embedding("text-embedding-3-small", doc_hash("茶"), "openai")
    row.set_embedding(vector)
    assert row.embedding_vector == base64.b64encode(
        np.array(vector, dtype=np.float32).tobytes()
    ).decode("utf-8")
    assert (
        np.array(row.get_embedding(), np.float32).tobytes()
        == np.array(vector, np.float32).tobytes()
    )


def test_the_columns_of_a_row():
    """「id / model_name / hash / provider_name / embedding_vector / created_at / updated_at」, with
    the defaults.
    """
    row = Embedding(model_name="small", hash=doc_hash("茶"), provider_name="openai")
    names = {
        "id",
        "model_name",
        "hash",
        "provider_name",
        "embedding_vector",
        "created_at",
        "updated_at",
    }
    assert set(vars(row)) == names
    assert row.id != Embedding("small", doc_hash("茶"), "openai").id
    made = row.updated_at
    row.set_embedding([1.0])
    assert row.created_at <= made <= row.updated_at <= dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    "vector", [[], [[1.0]], ["a"], [float("nan")], [float("inf")], [1e39], None]
)
def test_what_is_no_vector(vector):
    """What is none does not come into a row."""
    with pytest.raises(ConfigError, match="finite numbers"):
        Embedding("small", doc_hash("茶"), "openai").set_embedding(vector)


@pytest.mark.parametrize("text", ["", "茶", "AAA", "AAAA", 7])
def test_what_is_no_row(text):
    """A row without a whole number of floats holds no vector, and says which row."""
    with pytest.raises(ConfigError, match="the-row"):
        Embedding("small", doc_hash("茶"), "openai", text, id="the-row").get_embedding()


def test_rows_go_to_a_table_and_back(tmp_path):
    """「向量数据使用 Base64 编码存储，便于跨数据库迁移」: out of one cache, through the table, into another."""
    vectors = {"绿茶": np.array([0.1, -2.5], np.float32), "红茶": np.array([3e-8, 4], np.float32)}
    with EmbeddingCache(tmp_path / "one.db") as cache:
        cache.put_many(SPACE, vectors)
        rows = rows_of(cache, SPACE, ["红茶", "白茶", "绿茶", "红茶"])
    assert [row.hash for row in rows] == [doc_hash("红茶"), doc_hash("绿茶")]
    assert {(row.provider_name, row.model_name) for row in rows} == {
        ("openai", "text-embedding-3-small")
    }
    table = sqlite3.connect(tmp_path / "table.db")
    table.execute(TABLE)
    names = "id model_name hash provider_name embedding_vector".split()
    for row in rows:
        held = [
            *(getattr(row, name) for name in names),
            row.created_at.isoformat(),
            row.updated_at.isoformat(),
        ]
        table.execute("INSERT INTO embeddings VALUES (?, ?, ?, ?, ?, ?, ?)", held)
    read = [
        Embedding(**dict(zip(names, row, strict=True)))
        for row in table.execute(f"SELECT {', '.join(names)} FROM embeddings")  # noqa: S608
    ]
    table.close()
    with EmbeddingCache(tmp_path / "other.db") as other:
        assert keep_rows(other, SPACE, read, ["绿茶", "红茶", "白茶"]) == 2
        found = other.get_many(SPACE, ["绿茶", "红茶", "白茶"])
    assert {text: vector.tobytes() for text, vector in found.items()} == {
        text: vector.tobytes() for text, vector in vectors.items()
    }


def test_rows_of_several_models_are_not_mixed(tmp_path):
    """「Embedding 模型名称 … 模型提供商名称」: rows of two models, or two vectors of a text, are an error."""
    rows = [Embedding(name, doc_hash("茶"), "openai") for name in ("small", "large")]
    for row in rows:
        row.set_embedding([1.0])
    with EmbeddingCache(tmp_path / "cache.db") as cache:
        with pytest.raises(ConfigError, match="several models"):
            keep_rows(cache, SPACE, rows, ["茶"])
        rows[1].set_embedding([2.0])
        with pytest.raises(ConfigError, match="two vectors"):
            keep_rows(cache, SPACE, rows, ["茶"])
        assert len(cache) == 0


@pytest.mark.parametrize("row", [("small", "cohere"), ("large", "openai"), ("small", "")])
def test_rows_of_another_model_are_not_taken(tmp_path, row):
    """「Embedding 模型名称 … 模型提供商名称」 are those of the space; others are an error, unless it is told
    so.
    """
    other, same = (
        Embedding(row[0], doc_hash("茶"), row[1]),
        Embedding("small", doc_hash("茶"), "openai"),
    )
    space = VectorSpace("openai:small", dimension=2)
    for one in (other, same):
        one.set_embedding([1.0, 2.0])
    with EmbeddingCache(tmp_path / "cache.db") as cache:
        with pytest.raises(
            ConfigError, match=f"'{row[0]}' of provider '{row[1]}'.*'openai:small'.*rename=True"
        ):
            keep_rows(cache, space, [other], ["茶"])
        for texts in ("茶", ""):
            with pytest.raises(ConfigError, match="list of texts"):
                keep_rows(cache, space, [same], texts)
            with pytest.raises(ConfigError, match="list of texts"):
                rows_of(cache, space, texts)
        assert len(cache) == 0
        assert keep_rows(cache, space, [same], ["茶"]) == 1
        assert keep_rows(cache, space, rows_of(cache, space, ["茶"]), ["茶"]) == 1
        assert keep_rows(cache, VectorSpace("other"), [other], ["茶"], rename=True) == 1
