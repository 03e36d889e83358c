"""Specification 004, section 7: the table of cached embeddings. Each docstring quotes the sentence
that it tests.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import uuid

import numpy as np
import pytest

from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache, VectorSpace

SPACE = VectorSpace("openai:text-embedding-3-small")


@pytest.fixture
def cache(tmp_path):
    """An empty cache."""
    with EmbeddingCache(tmp_path / "embeddings.db") as opened:
        yield opened


def test_the_columns(cache):
    """「id / model_name / hash / provider_name / embedding_vector / created_at / updated_at」, none
    of them null.
    """
    cache.put_many(SPACE, {"绿茶": np.array([1, 2], np.float32)})
    with cache.reading() as connection:
        found = connection.execute("SELECT * FROM embeddings")
        names = [column[0] for column in found.description]
        rows = found.fetchall()
    columns = [
        "id",
        "model_name",
        "hash",
        "provider_name",
        "embedding_vector",
        "created_at",
        "updated_at",
    ]
    assert names[:7] == columns
    assert len(rows) == 1
    assert None not in rows[0]
    [row] = cache.embeddings()
    assert list(dataclasses.asdict(row)) == columns
    assert (row.provider_name, row.model_name) == ("openai", "text-embedding-3-small")


def test_the_primary_key_is_a_uuid(cache):
    """「`id` | UUID | PRIMARY KEY」"""
    cache.put_many(SPACE, {text: np.array([1], np.float32) for text in ("茶", "水", "火")})
    ids = [row.id for row in cache.embeddings()]
    assert len(set(ids)) == 3
    assert [str(uuid.UUID(one)) for one in ids] == ids


def test_the_vector_is_base64_of_float32(cache):
    """「向量数据使用 Base64 编码存储」: its own get_embedding reads what this one reads."""
    vector = np.array([0.1, -2.5, 3e-8], np.float32)
    cache.put_many(SPACE, {"茶": vector})
    [row] = cache.embeddings()
    as_the_specification_reads = np.frombuffer(
        base64.b64decode(row.embedding_vector.encode("utf-8")), dtype=np.float32
    )
    assert as_the_specification_reads.tobytes() == vector.tobytes()
    assert row.get_embedding() == vector.tolist()


def test_model_hash_and_provider_are_unique(tmp_path):
    """「复合唯一索引：`(model_name, hash, provider_name)`」, whatever else tells cached vectors apart."""
    models = ["openai:small", "local:small", "small", "openai:small (2)"]
    with EmbeddingCache(tmp_path / "embeddings.db") as cache:
        count = 0
        for identity in models:
            for dimension in (0, 2):
                for normalised in (False, True):
                    for input_type in ("document", "query"):
                        space = VectorSpace(identity, input_type, dimension, normalised)
                        cache.put_many(
                            space, {"茶": np.ones(2, np.float32), "水": np.zeros(2, np.float32)}
                        )
                        count += 2
        keys = [(row.model_name, row.hash, row.provider_name) for row in cache.embeddings()]
    assert len(keys) == count / 2  # embedded questions are not in the table
    assert len(set(keys)) == len(keys)


def test_one_text_and_model_are_cached_once(tmp_path):
    """「同一文本和模型只缓存一次」: embedded again, or twice in a list, a text is one row and one call."""
    calls = []

    def embed(text):
        calls.append(text)
        return [float(len(text))]

    with CachedEmbedder(embed, tmp_path / "embeddings.db", identity="toy:length") as embedder:
        embedder.embed(["茶", "绿茶", "茶"])
        embedder.embed(["绿茶"])
        assert len(list(embedder.cache.embeddings())) == 2
    assert sorted(calls) == ["绿茶", "茶"]


def test_equal_text_and_model_have_equal_vectors(tmp_path):
    """「相同文本和模型的向量必须相同」, in the next program too, and bit for bit."""
    rng = np.random.default_rng(0)
    first = CachedEmbedder(
        lambda text: rng.normal(size=8), tmp_path / "embeddings.db", identity="toy:noise"
    )
    with first:
        made = first.embed(["茶"])
    with CachedEmbedder(
        lambda text: rng.normal(size=8), tmp_path / "embeddings.db", identity="toy:noise"
    ) as second:
        assert second.embed(["茶"]).tobytes() == made.tobytes()


def test_times_are_those_of_creation_and_change(cache):
    """「`created_at` … `updated_at`」: UTC, and a vector stored again keeps the first one's
    creation.
    """
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    cache.put_many(SPACE, {"茶": np.array([1], np.float32)})
    cache.put_many(SPACE, {"茶": np.array([2], np.float32)})
    [row] = cache.embeddings()
    created, updated = (dt.datetime.fromisoformat(one) for one in (row.created_at, row.updated_at))
    assert before <= created <= updated <= dt.datetime.now(dt.UTC)
    assert row.get_embedding() == [2.0]
