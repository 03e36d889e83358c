"""What the contract says of stores that declare ``"sparse"``, and of those that do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lazyrag.data.filters import matches
from lazyrag.errors import ConfigError, SchemaMismatchError, UnsupportedError
from lazyrag.stores.protocol import VectorRow, VectorSchema, VectorStore
from lazyrag.testing.rows import FIELDS, FILTERS, SCHEMA, met
from lazyrag.types import SPARSE, Ranking, SparseVector

SPARSE_SCHEMA = VectorSchema(SPARSE, "ip", SCHEMA)


def check_sparse(store: VectorStore, collection: str) -> None:
    """Sparse vectors are written, read back, ranked, filtered and deleted like dense ones.

    A vector of the other kind is refused in collections of either, and nothing of such a call is written.

    Args:
        store: An open store.
        collection: A name that it may create and drop.
    """
    rows = make_sparse_rows()
    store.drop(collection)
    store.create(collection, SPARSE_SCHEMA)
    assert store.search(collection, sparse_queries(1), 3) == [[]]
    store.upsert(collection, rows[::2])
    store.upsert(collection, rows[1::2])
    store.create(collection, SPARSE_SCHEMA)
    _check_read(store, collection, rows)
    _check_ranked(store, collection, rows)
    _check_kinds(store, collection, rows)
    gone = {rows[number].key for number in met(FILTERS[0])} | {rows[0].key}
    store.delete(collection, keys=[rows[0].key])
    store.delete(collection, filter=FILTERS[0])
    changed = VectorRow(rows[0].key, {1: 9.0}, FIELDS[1])
    store.upsert(collection, [changed])
    left = sorted([*(row for row in rows if row.key not in gone), changed], key=lambda row: row.key)
    _check_read(store, collection, left)
    _check_ranked(store, collection, left)
    store.drop(collection)


def check_no_sparse(store: VectorStore, collection: str) -> None:
    """A store that does not declare ``"sparse"`` refuses the schema with an UnsupportedError."""
    with pytest.raises(UnsupportedError):
        store.create(collection, SPARSE_SCHEMA)


def make_sparse_rows() -> list[VectorRow]:
    """A seeded vector for each of the contract's fields: two of them equal, one empty, weights of either sign."""
    chance = np.random.default_rng(17)
    vectors: list[SparseVector] = []
    for _ in FIELDS:
        dimensions = chance.choice(12, chance.integers(1, 7), replace=False).tolist()
        weights = chance.normal(size=len(dimensions)).astype(np.float32).tolist()
        vectors.append(dict(zip(dimensions, weights, strict=True)))
    vectors[4][2**63 + 5] = 0.5
    vectors[9] = dict(vectors[3])
    vectors[20] = {}
    return [
        VectorRow(f"{number:032x}-{number % 3}", vector, fields)
        for number, (vector, fields) in enumerate(zip(vectors, FIELDS, strict=True))
    ]


def sparse_queries(n: int) -> list[SparseVector]:
    """N seeded queries."""
    chance = np.random.default_rng(19)
    return [dict.fromkeys(chance.choice(12, 3, replace=False).tolist(), 1.0) | {2**63 + 5: -2.0} for _ in range(n)]


def sparse_reference(query: SparseVector, rows: Sequence[VectorRow]) -> Ranking:
    """The rows that share a dimension with a query, ranked by a plain computation."""
    scored = []
    for row in rows:
        assert isinstance(row.vector, dict), f"row {row.key!r} has {row.vector!r:.60} instead of a dict"
        shared = sorted(row.vector.keys() & query.keys())
        if shared:
            scored.append((row.key, float(sum(query[at] * row.vector[at] for at in shared))))
    return sorted(scored, key=lambda pair: (-round(pair[1], 9), pair[0]))


def _check_read(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """Counted, got and paged as they were written."""
    assert store.count(collection) == len(rows)
    seen: list[VectorRow] = []
    while page := store.scan(collection, after=seen[-1].key if seen else "", limit=5):
        assert page[0].key not in {row.key for row in seen}  # or there would be no end
        seen += page
    for found in (seen, store.get(collection, [row.key for row in rows])):
        assert [(row.key, row.vector, dict(row.fields)) for row in found] == [
            (row.key, row.vector, dict(row.fields)) for row in rows
        ]


def _check_ranked(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """By inner product, only rows that share a dimension, ties by key; a filter comes before the best."""
    queries = sparse_queries(5)
    for topk in (3, 1000):
        for query, found in zip(queries, store.search(collection, queries, topk), strict=True):
            _same(found, sparse_reference(query, rows)[:topk])
    for filter_ in FILTERS:
        left = [row for row in rows if matches(filter_, row.fields)]
        assert len(left) < len(rows)
        [found] = store.search(collection, queries[:1], 2, filter_)
        _same(found, sparse_reference(queries[0], left)[:2])


def _check_kinds(store: VectorStore, collection: str, rows: Sequence[VectorRow]) -> None:
    """What is dense has no place among what is sparse, and the other way round; nothing of such a call is written."""
    dense = VectorRow("dense", np.ones(4, np.float32))
    with pytest.raises(SchemaMismatchError):
        store.upsert(collection, [VectorRow("good", {1: 1.0}), dense])
    with pytest.raises(ConfigError):
        store.search(collection, np.ones((1, 4), np.float32), 1)
    for metric in ("cosine", "l2"):
        with pytest.raises(ConfigError):
            store.create("lr_never_made", VectorSchema(SPARSE, metric, SCHEMA))
    with pytest.raises(SchemaMismatchError):
        store.create(collection, VectorSchema(4, "ip", SCHEMA))
    assert store.count(collection) == len(rows)
    store.drop(collection)
    store.create(collection, VectorSchema(4, "ip", SCHEMA))
    with pytest.raises(SchemaMismatchError):
        store.upsert(collection, [dense, rows[0]])
    with pytest.raises(ConfigError):
        store.search(collection, [{1: 1.0}], 1)
    with pytest.raises(SchemaMismatchError):
        store.create(collection, SPARSE_SCHEMA)
    assert store.count(collection) == 0
    store.drop(collection)
    store.create(collection, SPARSE_SCHEMA)
    store.upsert(collection, rows)


def _same(found: Ranking, expected: Ranking) -> None:
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-6, abs=1e-6)
