"""One way to copy rows of builds, for exports, imports and migrations.

`read_builds` reads rows from a store and proves them by the ledger, `CollectionCopy` writes rows to
a store and proves them by reading them again. An export is the first, an import the second, a
migration both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from lazyrag.data.segment import Segment, digest, key_build
from lazyrag.errors import StoreError
from lazyrag.ingest.pending import output_digest
from lazyrag.ingest.report import pages
from lazyrag.ledger.copies import CopiedBuild
from lazyrag.maintain.vector_files import vector_digest
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.protocol import SegmentStore, VectorRow, VectorStore, batches

RowStore: TypeAlias = SegmentStore | VectorStore
"""A store whose rows are segments or vectors; the rows of one call are of one kind."""

BATCH_ROWS = 200  # may be whole documents' texts, and are in memory twice


def read_builds(
    store: RowStore, collection: str, builds: Iterable[CopiedBuild]
) -> Iterator[list[Any]]:
    """Yield the rows of builds in order, in batches.

    Raises:
        StoreError: If the store has other rows than the ledger lists.
    """
    for batch in batches_reaching(builds, lambda copied: copied.build.size, BATCH_ROWS):
        keys = list(chain.from_iterable(copied.build.keys for copied in batch))
        by_key = {row.key: row for row in store.get(collection, keys)}
        rows = []
        for copied in batch:
            of_build = [by_key[key] for key in copied.build.keys if key in by_key]
            if not _is_complete(copied, of_build):
                raise _incomplete(store, collection, copied, len(of_build))
            rows += of_build
        yield rows


def _is_complete(copied: CopiedBuild, rows: Sequence[Any]) -> bool:
    if not rows or isinstance(rows[0], VectorRow):
        return len(rows) == copied.build.size
    return _rows_digest(rows) == copied.output


def _incomplete(store: RowStore, collection: str, copied: CopiedBuild, count: int) -> StoreError:
    build = copied.build
    name = type(store).__name__
    msg = (
        f"{name} of the source has {count} rows of group {build.group!r} of document"
        f" {build.document}, and the ledger lists {build.size}, or others. Check that the"
        " store_conf of the Document is complete; if it is, open it, and run"
        " docs.maintenance.verify() and repair(). The copy is not complete."
    )
    return StoreError(msg, store=name, collection=collection)


class CollectionCopy:
    """A collection to which rows are copied; a copy that was interrupted is continued.

    Args:
        store: The store that has it.
        collection: Its name.
    """

    def __init__(self, store: RowStore, collection: str) -> None:
        self._store = store
        self._collection = collection
        self._is_empty = not store.count(collection)

    def write(self, rows: Sequence[Any]) -> int:
        """Write the rows that the collection lacks, or has otherwise; return the number of others.

        Raises:
            StoreError: If the store returns other rows than were written.
        """
        missing = rows if self._is_empty else self._differing(rows)
        if missing:
            self._store.upsert(self._collection, missing)
            self._refuse_differing(len(self._differing(missing)))
        return len(rows) - len(missing)

    def remove_others(self, builds: Iterable[CopiedBuild], count: int) -> None:
        """Delete the rows of builds other than these; then the collection must have ``count`` rows.

        Raises:
            StoreError: If it has not.
        """
        if self._store.count(self._collection) != count:
            numbers = {copied.build.number for copied in builds}
            scan: Callable[..., list[Any]] = self._store.scan
            for page in pages(functools.partial(scan, self._collection)):
                keys = [row.key for row in page if key_build(row.key) not in numbers]
                self._store.delete(self._collection, keys=keys)
        self._refuse_differing(abs(self._store.count(self._collection) - count))

    def _differing(self, rows: Sequence[Any]) -> list[Any]:
        differing = []
        for batch in batches(rows, BATCH_ROWS):
            stored = self._store.get(self._collection, [row.key for row in batch])
            if _rows_digest(stored) != _rows_digest(batch):
                digests = {row.key: _rows_digest([row]) for row in stored}
                differing += [row for row in batch if digests.get(row.key) != _rows_digest([row])]
        return differing

    def _refuse_differing(self, count: int) -> None:
        if count:
            name = type(self._store).__name__
            raise StoreError(
                f"{name} does not return what was written to it: {count} rows of"
                f" {self._collection!r} differ. The source did not change. Repair the target, and"
                " copy again.",
                store=name,
                collection=self._collection,
            )


def _rows_digest(rows: Sequence[Any]) -> str:
    """Return the same digest for equal rows of one kind, in order.

    1, 1.0 and True differ, as they do for a filter.
    """
    if not rows or isinstance(rows[0], Segment):
        return output_digest(rows)
    parts = []
    for row in rows:
        parts += [row.key, vector_digest(row.vector), repr(sorted(row.fields.items()))]
    return digest(parts)
