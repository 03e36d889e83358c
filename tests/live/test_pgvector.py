"""Vectors in a PostgreSQL with pgvector: the contract, and what is ranked in the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lazyrag.data.filters import Condition
from lazyrag.errors import UnsupportedError
from lazyrag.stores import postgres
from lazyrag.stores.postgres import PostgresVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.testing.samples import SCHEMA
from tests.live.conftest import address_of
from tests.live.test_postgres_ranking import TestPostgresVectors  # noqa: F401  runs here again
from tests.postgres_stores import copies_of_postgres, open_file, url_of  # noqa: F401

C = "lr_near"
FEW = Condition("year", "eq", 3)


@pytest.fixture(autouse=True, scope="session")
def pgvector() -> None:
    """The extension, as an administrator adds it."""
    with StoreFile(address_of("LAZYRAG_POSTGRES")) as file, file.writing() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StoreFile]:
    """An empty store."""
    with StoreFile(url_of(tmp_path / "near")) as opened:
        yield opened


def vectors(count: int, dimension: int = 16) -> list[VectorRow]:
    """Seeded rows."""
    matrix = np.random.default_rng(5).normal(size=(count, dimension)).astype(np.float32)
    return [
        VectorRow(f"{number:05d}-1", vector, {"year": number % 50})
        for number, vector in enumerate(matrix)
    ]


def test_the_extension_is_declared(file: StoreFile) -> None:
    """So that the contract tests it."""
    assert "native vectors" in PostgresVectorStore(file).features


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_a_graph_finds_nearly_what_the_arrays_say(
    file: StoreFile, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a filter that few rows meet, too: then by a scan, and as many as there are."""
    monkeypatch.setattr(postgres, "_FIRST_INDEXED", 500)
    store = PostgresVectorStore(file)
    store.create(C, VectorSchema(16, metric, SCHEMA))
    rows = vectors(2_000)
    for start in range(0, 2_000, 500):
        store.upsert(C, rows[start : start + 500])
    queries = np.stack([row.vector for row in rows[:10]]) + np.float32(0.1)
    with file.reading() as connection:
        query = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()"
        assert "hnsw" in str(connection.execute(query).fetchall())
    for condition in (None, FEW):
        exact = store.search(C, queries, 10, condition)
        near = store.search_natively(C, queries, 10, condition)
        assert list(map(len, near)) == list(map(len, exact))
        same = sum(
            len({*dict(one)} & {*dict(other)}) for one, other in zip(near, exact, strict=True)
        )
        assert same >= 90


def test_rows_that_are_deleted_hide_none_behind_them(
    file: StoreFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph has them until a vacuum, and they are all of the nearest."""
    monkeypatch.setattr(postgres, "_FIRST_INDEXED", 100)
    store = PostgresVectorStore(file)
    store.create(C, VectorSchema(16, "cosine", SCHEMA))
    rows = vectors(600)
    store.upsert(C, rows)
    query = rows[0].vector[None]
    [ranking] = store.search(C, query, 600)
    store.delete(C, keys=[key for key, _ in ranking[:300]])
    [near] = store.search_natively(C, query, 10)
    assert [key for key, _ in near] == [key for key, _ in ranking[300:310]]


def test_a_reader_downloads_no_arrays(file: StoreFile, tmp_path: Path) -> None:
    """Its folder of copies stays empty."""
    store = PostgresVectorStore(file)
    store.create(C, VectorSchema(256, "cosine", SCHEMA))
    rows = vectors(3_000, 256)
    store.upsert(C, rows)
    copies = Path(f"{file.path}.d")
    for copy in copies.iterdir():
        copy.unlink()
    again = PostgresVectorStore(file)
    assert again.search_natively(C, rows[7].vector[None], 1)[0][0][0] == rows[7].key
    assert not any(copies.iterdir())


def test_vectors_of_an_earlier_release_are_not_ranked(file: StoreFile) -> None:
    """They have no rows of pgvector, and a writer gives them none, which would be some."""
    older = MapFileVectorStore(file)
    older.create(C, VectorSchema(16, "cosine", SCHEMA))
    rows = vectors(50)
    older.upsert(C, rows[:40])
    store = PostgresVectorStore(file)
    store.create(C, VectorSchema(16, "cosine", SCHEMA))
    store.upsert(C, rows[40:])
    query = rows[3].vector[None]
    assert len(store.search(C, query, 50)[0]) == 50
    with pytest.raises(UnsupportedError, match="no vectors of pgvector"):
        store.search_natively(C, query, 50)
