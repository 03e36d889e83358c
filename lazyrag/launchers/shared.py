"""Many writers on one corpus: they share the work before one of them at a time writes the store in PostgreSQL.

A writer claims batches of files, works on them without the lease, and keeps the results by content where all writers
find them. When every batch is done, it takes the lease and makes live what is there.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lazyrag.data.segment import digest
from lazyrag.document import Document
from lazyrag.document.indexer import Indexer
from lazyrag.document.lease import LEASE_S, Program, select_in
from lazyrag.document.report import raise_if_canceled
from lazyrag.document.tree import LiveGroup
from lazyrag.errors import DatasetPathError, IngestionError, IngestionWarning, StoreError
from lazyrag.launchers.executors import Results, is_error, unpack_all
from lazyrag.loaders.directory import FoundFile
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.sqlite import StoreFile

_BATCH_FILES, _BATCH_BYTES = 16, 1 << 18  # small: writers that end together wait for the last one
_RENEWED = 4  # times while a claim lasts
_POLL_S = 0.1
_KEPT_S = 3600.0  # other writers may still need results that are live


class SharedResults(Results):
    """Results by key in a store in PostgreSQL, and claims of batches.

    Args:
        file: The store.
    """

    def __init__(self, file: StoreFile) -> None:
        super().__init__()
        self._database: Any = file.second_writer()  # its transactions wait for no writer of the store
        self._program = Program()

    def find(self, keys: Sequence[str]) -> dict[str, bytes]:
        """See `Results.find`."""
        query = "SELECT key, content FROM result WHERE content IS NOT NULL AND key IN (?*)"
        with self._database.transaction("BEGIN") as connection:
            return dict(select_in(connection, query, keys))

    def put(self, packed: bytes) -> None:
        """See `Results.put`."""
        found = [(key, one) for key, one in zip(*unpack_all(packed), strict=True) if not is_error(one)]
        query = "INSERT INTO result VALUES (?, ?, '', ?) ON CONFLICT (key) DO NOTHING"
        with self._database.transaction("BEGIN") as connection:
            now = self._database.now(connection)
            connection.executemany(query, [(key, one, now) for key, one in sorted(found)])  # no deadlocks

    def clear(self) -> None:
        """Remove old results, and claims of batches that nobody works on."""
        with self._database.transaction("BEGIN") as connection:
            old = self._database.now(connection) - _KEPT_S
            outdated = "SELECT key FROM result WHERE changed < ? AND changed > 0 FOR UPDATE SKIP LOCKED"
            connection.execute(f"DELETE FROM result WHERE key IN ({outdated})", (old,))  # noqa: S608

    def close(self) -> None:
        """See `Results.close`."""
        self._database.close()

    def offer(self, batches: Collection[str]) -> None:
        """Enter batches to claim, unless they are known."""
        with self._database.transaction("BEGIN") as connection:
            query = "INSERT INTO result VALUES (?, NULL, '', 0) ON CONFLICT (key) DO NOTHING"
            connection.executemany(query, [(one,) for one in sorted(batches)])

    def claim(self, batches: Collection[str]) -> str | None:
        """Claim a batch, once there is one; None when all are done. Claims of lost programs expire as leases do."""
        open_batch = "SELECT key FROM result WHERE content IS NULL AND changed < ? AND key IN (?*) ORDER BY key LIMIT 1"
        taken = "SELECT DISTINCT worker FROM result WHERE content IS NULL AND key IN (?*)"
        while True:
            with self._database.transaction("BEGIN") as connection:
                now = self._database.now(connection)
                left = f"{open_batch} FOR UPDATE SKIP LOCKED"
                for (key,) in select_in(connection, left, batches, now - LEASE_S)[:1]:
                    query = "UPDATE result SET worker = ?, changed = ? WHERE key = ?"
                    connection.execute(query, (self._program.to_json(), now, key))
                    return str(key)
                workers = [worker for (worker,) in select_in(connection, taken, batches)]
                gone = [(worker,) for worker in workers if worker and Program.from_json(worker, "").has_ended()]
                connection.executemany("UPDATE result SET changed = 0 WHERE content IS NULL AND worker = ?", gone)
            if not workers:
                return None
            if not gone:
                raise_if_canceled()
                time.sleep(_POLL_S)

    @contextmanager
    def renewed(self, batch: str) -> Iterator[None]:
        """Keep a claim while the block runs; at its end the batch is done, or free again."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(LEASE_S / _RENEWED):
                with suppress(StoreError):  # the next time may be soon enough
                    self._set(batch, None)

        threading.Thread(target=renew, name="lazyrag claim", daemon=True).start()
        try:
            yield
        except BaseException:
            ended.set()
            self._set(batch, None, free=True)
            raise
        ended.set()
        self._set(batch, b"")

    def _set(self, batch: str, content: bytes | None, *, free: bool = False) -> None:
        with self._database.transaction("BEGIN") as connection:
            values = content, 0 if free else self._database.now(connection), batch, self._program.to_json()
            query = "UPDATE result SET content = ?, changed = ? WHERE key = ? AND content IS NULL AND worker = ?"
            connection.execute(query, values)


class _Scratch(Document):
    """A Document in memory, with the group definitions and readers of another one, that does work for its writers."""

    def __init__(self, owner: Document, **arguments: Any) -> None:
        self._graph, self._file_readers = owner._graph, owner._file_readers
        super().__init__(**arguments)


_Scratch.__name__ = "Document"  # as errors name it


def work_ahead(
    docs: Document, results: SharedResults, arguments: Callable[[], dict[str, Any]], wanted: Mapping[str, Any]
) -> None:
    """Load, transform and embed what a write will need, sharing the work with other writers; needs no lease.

    Args:
        docs: The Document.
        results: Where results are kept.
        arguments: Makes those of the Document that works: ``embed``, ``doc_fields`` and ``launcher``.
        wanted: Embed keys by group, of what is to be built; empty for what is live.
    """
    indexer = docs.reader.indexer
    live = indexer.now().groups
    groups = wanted or {name: _embed_keys(group) for name, group in live.items()}
    lacks = any(name not in live or not {*keys} <= {*_embed_keys(live[name])} for name, keys in groups.items())
    marks = [*indexer.definitions.all_fingerprints().items(), *((name, *keys) for name, keys in groups.items())]
    batches = {
        digest(["batch", repr(sorted(map(str, marks))), *(repr((one.identity, one.signature)) for one in some)]): some
        for some in batches_reaching(_files(indexer, all_files=lacks), _size, _BATCH_BYTES, most_items=_BATCH_FILES)
    }
    if not batches:
        return
    results.offer(batches)
    with warnings.catch_warnings(), _Scratch(docs, **arguments()) as scratch:
        warnings.simplefilter("ignore", IngestionWarning)  # the write reports failures
        while (batch := results.claim(batches)) is not None:
            with results.renewed(batch), suppress(IngestionError, DatasetPathError):
                scratch.add_files({one.identity: one.path for one in batches[batch] if one.path.exists()})
                for name, keys in groups.items():
                    scratch.activate_group(name, embed_keys=keys)
                scratch.delete_files([one.id for one in scratch.documents(status="SUCCESS")])


def _files(indexer: Indexer, *, all_files: bool) -> list[FoundFile]:
    """The files that a write will load, as far as their signatures tell."""
    found = indexer.dataset.list_files().found
    known = {} if all_files else indexer.ledger.documents.all()
    return [one for one in found if (row := known.get(one.identity)) is None or row.signature != one.signature]


def _embed_keys(group: LiveGroup) -> list[str]:
    return sorted({index.name for index in group.indexes.values() if index.kind == "vectors"})


def _size(file: FoundFile) -> int:
    return file.signature.size if file.signature is not None else 0
