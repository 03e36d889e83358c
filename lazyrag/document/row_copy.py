"""Rows of a collection, copied to another store and compared with what the ledger knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lazyrag.data.segment import Segment, key_build
from lazyrag.document.findings import pages
from lazyrag.document.ledger.copying import CopiedBuild
from lazyrag.errors import StoreError
from lazyrag.stores.protocol import VectorRow

R = TypeVar("R", Segment, VectorRow)

_ROWS_AT_ONCE = 200  # of whole documents' texts, too: they are in memory twice


class _Rows(Protocol[R]):
    """What segment and vector stores share, as far as rows are copied."""

    def count(self, collection: str) -> int: ...
    def get(self, collection: str, keys: Sequence[str]) -> list[R]: ...
    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[R]: ...
    def upsert(self, collection: str, rows: Sequence[R]) -> None: ...
    def delete(self, collection: str, *, keys: Sequence[str]) -> int: ...


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """What tells rows of a build that are whole and equal from others.

    Args:
        is_whole: Whether the source's rows are what the ledger says.
        is_equal: Whether the target's rows are those of the source.
    """

    is_whole: Callable[[CopiedBuild, list[R]], bool]
    is_equal: Callable[[CopiedBuild, list[R], list[R]], bool]


class CollectionCopy(Generic[R]):
    """A collection and its copy in another store.

    Args:
        source: The store it lies in.
        target: The one it is copied to.
        collection: Its name there.
        copy: Its copy's name, a collection that exists.
        kind: Of its rows.
    """

    def __init__(self, source: _Rows[R], target: _Rows[R], collection: str, copy: str, kind: Kind[R]) -> None:
        self._source: _Rows[R] = source
        self._target: _Rows[R] = target
        self._collection, self._copy = collection, copy
        self._kind: Kind[R] = kind
        self.rows = 0  # that the copy has
        self.present = 0  # of them from an earlier run

    def run(self, builds: Iterable[CopiedBuild]) -> Iterator[int]:
        """Make the copy equal to the builds' rows; yields how many are done.

        Raises:
            StoreError: If the source lacks some of them, or the target gives back other rows than it was given.
        """
        fresh = not self._target.count(self._copy)
        numbers: set[int] = set()
        for some in _batches(builds):
            numbers.update(one.build.number for one in some)
            keys = [key for one in some for key in one.build.keys]
            rows = self._by_build(some, self._source.get(self._collection, keys))
            for one in some:
                if not self._kind.is_whole(one, rows[one.build.number]):
                    raise self._lacking(one, len(rows[one.build.number]))
            missing = some if fresh else self._differing(some, rows)
            self.present += sum(one.build.size for one in some) - sum(one.build.size for one in missing)
            if missing:
                self._target.upsert(self._copy, [row for one in missing for row in rows[one.build.number]])
                self._check(sum(one.build.size for one in self._differing(missing, rows)))
            self.rows += len(keys)
            yield self.rows
        if not fresh:
            self._remove_others(numbers)
        self._check(abs(self._target.count(self._copy) - self.rows))

    def _differing(self, builds: Sequence[CopiedBuild], rows: dict[int, list[R]]) -> list[CopiedBuild]:
        """The builds that the copy has not, or not like that."""
        found = self._target.get(self._copy, [key for one in builds for key in one.build.keys])
        theirs = self._by_build(builds, found)
        return [one for one in builds if not self._kind.is_equal(one, rows[one.build.number], theirs[one.build.number])]

    @staticmethod
    def _by_build(builds: Sequence[CopiedBuild], rows: Sequence[R]) -> dict[int, list[R]]:
        own: dict[int, list[R]] = {one.build.number: [] for one in builds}
        for row in rows:
            own[key_build(row.key)].append(row)
        return own

    def _remove_others(self, numbers: set[int]) -> None:
        """Rows that were copied by an earlier run, and that the ledger has let go of since."""
        for page in pages(lambda **asked: self._target.scan(self._copy, **asked)):
            self._target.delete(self._copy, keys=[row.key for row in page if key_build(row.key) not in numbers])

    def _lacking(self, one: CopiedBuild, found: int) -> StoreError:
        build, store = one.build, type(self._source).__name__
        msg = (
            f"{store} in source_conf has {found} rows of group {build.group!r} of document {build.document}, and the "
            f"ledger lists {build.size}, or others. Look whether source_conf is the whole store_conf of the Document; "
            "if it is, open that, and run verify() and repair(). The target is not complete."
        )
        return StoreError(msg, store=store, collection=self._collection)

    def _check(self, wrong: int) -> None:
        if wrong:
            store = type(self._target).__name__
            msg = (
                f"{store} does not give back what was written to it: {wrong} rows of {self._copy!r} differ. The source "
                "is as it was. Look after the target, and call migrate() again."
            )
            raise StoreError(msg, store=store, collection=self._copy)


def _batches(builds: Iterable[CopiedBuild]) -> Iterator[list[CopiedBuild]]:
    some: list[CopiedBuild] = []
    rows = 0
    for one in builds:
        some.append(one)
        rows += one.build.size
        if rows >= _ROWS_AT_ONCE:
            yield some
            some, rows = [], 0
    if some:
        yield some
