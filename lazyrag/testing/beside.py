"""A store's collection and a dict of the same rows, asked the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pytest

from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import EMPTY, Segment
from lazyrag.stores.protocol import Store, VectorRow, VectorStore
from lazyrag.testing.drawn import VectorWorld
from lazyrag.testing.ranked import true_ranking
from lazyrag.types import Embedding, Ranking

R = TypeVar("R", Segment, VectorRow)

COLLECTION = "lr_differential_0"
EVERY = 1000
"""More rows than there are."""


@dataclass(frozen=True)
class Get:
    """Asks for some keys, of which some are there."""

    keys: list[str]


@dataclass(frozen=True)
class Scan:
    """Asks for the page behind a key."""

    after: str
    limit: int


@dataclass(frozen=True)
class Delete:
    """Deletes what meets a filter."""

    filter: Filter


@dataclass(frozen=True)
class Remove:
    """Deletes by keys, of which some are there, and some are named twice."""

    keys: list[str]


@dataclass(frozen=True)
class Write(Generic[R]):
    """Writes rows, of which some replace others, or one another."""

    rows: list[R]


@dataclass(frozen=True)
class Search:
    """Asks for what is nearest to some vectors."""

    vectors: list[Embedding]
    topk: int
    filter: Filter | None


Case: TypeAlias = "Get | Scan | Delete | Remove | Write[Any] | Search"


class _Rows(Store, Protocol[R]):
    """What a store of either kind has."""

    def upsert(self, collection: str, rows: Sequence[R]) -> None: ...

    def get(self, collection: str, keys: Sequence[str]) -> list[R]: ...

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[R]: ...

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> int: ...


class Beside(Generic[R]):
    """A store's collection beside a dict of the same rows. Every case leaves both as they were."""

    def __init__(self, store: _Rows[R], rows: Sequence[R]) -> None:
        self.store: _Rows[R] = store
        self.rows: dict[str, R] = {row.key: row for row in rows}
        self.order: list[str] = []
        store.upsert(COLLECTION, rows)
        self.same_state()

    def check(self, case: Case) -> None:
        """Ask the store and the dict the same; on a difference the store gets its rows again before the error."""
        rows: dict[str, R] = dict(self.rows)
        order = self.order
        try:
            self.answers(case)
            if isinstance(case, (Delete, Remove, Write)):
                self.same_state()
                self.store.delete(COLLECTION, keys=[key for key in self.rows if key not in rows])
                self.store.upsert(COLLECTION, [row for key, row in rows.items() if self.rows.get(key) is not row])
        except BaseException:
            self.store.delete(COLLECTION, keys=[row.key for row in self.store.scan(COLLECTION, limit=EVERY)])
            self.store.upsert(COLLECTION, list(rows.values()))
            raise
        finally:
            self.rows, self.order = rows, order

    def answers(self, case: Case) -> None:
        """Compare what the store says, and do to the dict what it has done."""
        if isinstance(case, Get):
            _same_rows(self.store.get(COLLECTION, case.keys), [self.rows[key] for key in case.keys if key in self.rows])
        elif isinstance(case, Scan):
            page = self._behind(case.after)[: case.limit]
            _same_rows(
                self.store.scan(COLLECTION, after=case.after, limit=case.limit), [self.rows[key] for key in page]
            )
        elif isinstance(case, Delete):
            gone = [key for key, row in self.rows.items() if matches(case.filter, row.fields)]
            assert self.store.delete(COLLECTION, filter=case.filter) == len(gone)
            self._forget(gone)
        elif isinstance(case, Remove):
            gone = [key for key in dict.fromkeys(case.keys) if key in self.rows]
            assert self.store.delete(COLLECTION, keys=case.keys) == len(gone)
            self._forget(gone)
        elif isinstance(case, Write):
            self.store.upsert(COLLECTION, case.rows)
            self.rows.update((row.key, row) for row in case.rows)
            self.order = []  # the store's own

    def same_state(self) -> None:
        """The store has the dict's rows, and counts as many."""
        found = self.store.scan(COLLECTION, limit=EVERY)
        keys = [row.key for row in found]
        self.order = self.order or keys
        assert keys == self.order
        assert sorted(keys) == sorted(self.rows)
        _same_rows(found, [self.rows[key] for key in keys])
        assert self.store.count(COLLECTION) == len(self.rows)

    def _behind(self, after: str) -> list[str]:
        """The keys behind one. Segments have an order of the store's own, so that theirs are asked for present ones."""
        if after in self.rows:
            return self.order[self.order.index(after) + 1 :]
        return [key for key in self.order if key > after]

    def _forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.rows[key]
        self.order = [key for key in self.order if key in self.rows]


class VectorsBeside(Beside[VectorRow]):
    """The same for vectors, which are searched, too, and come in the order of their keys."""

    def __init__(self, store: VectorStore, world: VectorWorld) -> None:
        self.searched, self.schema = store, world.schema
        super().__init__(store, world.rows)

    def answers(self, case: Case) -> None:
        """Rankings are compared as well."""
        if not isinstance(case, Search):
            super().answers(case)
            return
        vectors: Any = case.vectors
        if not self.schema.is_sparse:
            vectors = np.stack(vectors)
        found = self.searched.search(COLLECTION, vectors, case.topk, case.filter)
        assert len(found) == len(case.vectors)
        for query, ranking in zip(case.vectors, found, strict=True):
            expected = true_ranking(query, self.schema.metric, [*self.rows.values()], case.filter)
            _same_ranking(ranking, expected[: case.topk])

    def same_state(self) -> None:
        """In the order of keys; and what is searched for is all that is there."""
        self.order = sorted(self.rows)
        super().same_state()
        for row in [*self.rows.values()][:1]:
            self.answers(Search([row.vector], EVERY, None))


def _same_rows(found: Sequence[R], expected: Sequence[R]) -> None:
    assert [_plain(row) for row in found] == [_plain(row) for row in expected]


def _plain(row: Segment | VectorRow) -> tuple[Any, ...]:
    """What two rows are compared by: whole, with the types of values; a field that is None is as good as absent."""
    fields = {name: (type(value).__name__, value) for name, value in row.fields.items() if value is not None}
    if isinstance(row, Segment):
        return row._replace(fields=EMPTY), fields, type(row.content).__name__
    return row.key, row.vector if isinstance(row.vector, dict) else row.vector.tobytes(), fields


def _same_ranking(found: Ranking, expected: Ranking) -> None:
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-6, abs=1e-6)
