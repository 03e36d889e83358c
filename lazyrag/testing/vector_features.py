"""What the contract says of how vector stores search that declare more than it asks for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.errors import ConfigError
from lazyrag.stores.protocol import Approximate, ExactWhenSmall, NativeVectors, VectorRow, VectorSchema, VectorStore
from lazyrag.testing.rows import FILTERS, SCHEMA, met
from lazyrag.testing.vector_rows import DIMENSION, METRICS, assert_same_ranking, make_rows, queries, reference
from lazyrag.types import Matrix, Metric

_MANY = 2000
_LEAST_EXACT = 100  # the contract's own collections are smaller


def check_exact(store: VectorStore, collection: str, count: int = _MANY) -> None:
    """Search returns the true nearest rows under every metric, whatever vectors a collection holds.

    Among many that lie close together; and among many that are equal, of which some have gone and others have come.

    Args:
        store: An open store.
        collection: A name that it may create and drop.
        count: How many rows.
    """
    rng = np.random.default_rng(13)
    vectors = (rng.normal(size=DIMENSION) + 0.01 * rng.normal(size=(count, DIMENSION))).astype(np.float32)
    close = [VectorRow(f"k{number:04d}", vector) for number, vector in enumerate(vectors)]
    for metric in METRICS:
        schema = VectorSchema(DIMENSION, metric, SCHEMA)
        store.drop(collection)
        store.create(collection, schema)
        store.upsert(collection, close)
        _check_rankings(store, collection, metric, close, queries(5))
        store.drop(collection)
        store.create(collection, schema)
        _check_equal_rows(store, collection, metric, count)
    store.drop(collection)


def check_exact_when_small(store: VectorStore, collection: str) -> None:
    """The same in a collection of as many rows as the store says, or as many as can be tested in a short time."""
    assert isinstance(store, ExactWhenSmall)
    assert store.exact_rows >= _LEAST_EXACT
    check_exact(store, collection, min(_MANY, store.exact_rows))


def check_approximate(store: VectorStore, collection: str) -> None:
    """The approximate search finds as many rows as the exact one, most of them the same, with the same scores.

    Args:
        store: An open store.
        collection: Of the contract's vectors, ranked by cosine. The same for `check_native`.
    """
    assert isinstance(store, Approximate)
    for condition in (None, *FILTERS):
        for topk in (1, 7, 1000):
            exact = store.search(collection, queries(5), topk, condition)
            found = store.search_approximately(collection, queries(5), topk, condition)
            assert list(map(len, found)) == list(map(len, exact))
            for ranking in found:
                assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
            same = [len(dict(some).items() & dict(others).items()) for some, others in zip(found, exact, strict=True)]
            assert sum(same) >= 0.5 * sum(map(len, exact))
    with pytest.raises(ConfigError):
        store.search_approximately(collection, queries(1), 0)


def check_native(store: VectorStore, collection: str) -> None:
    """The backend's own search gives rows that meet the filter, most of the nearest, with nearly the right scores."""
    assert isinstance(store, NativeVectors)
    for condition in (None, *FILTERS):
        numbers = range(len(make_rows())) if condition is None else met(condition)
        allowed = {make_rows()[number].key for number in numbers}
        for topk in (3, 1000):
            exact = store.search(collection, queries(5), topk, condition)
            found = store.search_natively(collection, queries(5), topk, condition)
            for query, ranking in zip(queries(5), found, strict=True):
                assert len(ranking) <= topk
                assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
                assert len({key for key, _ in ranking}) == len(ranking)
                assert {key for key, _ in ranking} <= allowed
                scores = dict(reference(query, "cosine"))
                assert [score for _, score in ranking] == pytest.approx([scores[key] for key, _ in ranking], abs=1e-3)
            same = [len(dict(some).keys() & dict(others).keys()) for some, others in zip(found, exact, strict=True)]
            assert sum(same) >= 0.5 * sum(map(len, exact))
    with pytest.raises(ConfigError):
        store.search_natively(collection, queries(1), 0)


def _check_equal_rows(store: VectorStore, collection: str, metric: Metric, count: int) -> None:
    """Half of the rows are equal, few of them meet a filter, some are deleted and written again with other vectors."""
    rng = np.random.default_rng(23)
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors[::2] = vectors[0]
    rows = [
        VectorRow(f"k{number:04d}", vector, {"year": number % 25, "author": "plain" if number % 3 else None})
        for number, vector in enumerate(vectors)
    ]
    store.upsert(collection, rows)
    near = np.concatenate([vectors[:1], queries(1)])
    _check_rankings(store, collection, metric, rows, near)
    few = Condition("year", "eq", 4)
    assert 0 < sum(matches(few, row.fields) for row in rows) < count / 10
    _check_rankings(store, collection, metric, rows, near, few)
    store.delete(collection, keys=[row.key for row in rows[: count // 2]])
    changed = [VectorRow(row.key, -vectors[1], row.fields) for row in rows[: count // 4]]
    store.upsert(collection, changed)
    left = [*changed, *rows[count // 2 :]]
    _check_rankings(store, collection, metric, left, near)
    _check_rankings(store, collection, metric, left, near, few)
    _check_rankings(store, collection, metric, left, near, Condition("author", "exists", False))


def _check_rankings(
    store: VectorStore,
    collection: str,
    metric: Metric,
    rows: Sequence[VectorRow],
    near: Matrix,
    condition: Filter | None = None,
) -> None:
    """What is found near to some queries is what a plain computation finds: the best rows in order, and all of them."""
    kept = [row for row in rows if condition is None or matches(condition, row.fields)]
    expected = [reference(query, metric, kept) for query in near]
    every = len(rows) + 1
    for found, ranking in zip(store.search(collection, near, 20, condition), expected, strict=True):
        assert_same_ranking(found, ranking[:20])
    for found in store.search(collection, near, every, condition):
        assert sorted(key for key, _ in found) == sorted(row.key for row in kept)
