"""The queue of an ingestion: a driver plans, workers claim entries and write the stores.

Entries are rows of a table beside the ledger in PostgreSQL. A claim takes the place of the lease:
each transaction of a worker checks that its entry is still its own, and that the driver which
planned it still holds the lease. So an entry can be given to another worker at any time: the first
one writes nothing more.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, replace
from typing import Any, NamedTuple

from lazyrag.errors import (
    ConfigError,
    IngestionError,
    LazyRAGError,
    LoaderEndedError,
    StoreBusyError,
    StoreConnectionError,
    StoreError,
    describe_error,
)
from lazyrag.groups.node_group import LOADING
from lazyrag.ingest.changes import load_root, remote_root
from lazyrag.ingest.engine import IngestionEngine
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.pending import Outcome, PendingVersion, file_root
from lazyrag.ingest.plan import BuildPlan, BuildPlanner
from lazyrag.ledger.lease import HOLDER, Lease, Program
from lazyrag.ledger.ledger import Ledger
from lazyrag.ledger.tables import DocumentRow
from lazyrag.loaders.directory import FoundFile, RemotePath, Signature
from lazyrag.progress.blocks import contextmanager
from lazyrag.types import JsonObject, Metadata

_TABLE = """CREATE TABLE IF NOT EXISTS work (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ledger INTEGER NOT NULL, driver TEXT NOT NULL,
    plan TEXT NOT NULL, documents TEXT NOT NULL, tries INTEGER NOT NULL, worker TEXT NOT NULL,
    program TEXT NOT NULL, seen_at REAL NOT NULL, result TEXT
)"""
_NOW = "extract(epoch FROM clock_timestamp())::float8"
# one that this worker has already: it could not end it while the server was away
_CLAIM = f"""UPDATE work SET worker = ?, program = ?, seen_at = {_NOW} WHERE id = (
    SELECT work.id FROM work JOIN ledger ON ledger.id = work.ledger AND holder = driver
    WHERE work.ledger = ? AND worker IN ('', ?) AND result IS NULL
    ORDER BY work.id LIMIT 1 FOR UPDATE OF work SKIP LOCKED
) RETURNING id, plan, documents"""  # noqa: S608
_CLAIMED = """SELECT 1 FROM work JOIN ledger ON ledger.id = work.ledger AND holder = driver
    WHERE work.id = ? AND worker = ? FOR UPDATE OF work"""
_IN_WORK = f"""SELECT id, worker, program, {_NOW} - seen_at, plan, documents, tries FROM work
    WHERE ledger = ? AND worker <> '' AND result IS NULL FOR UPDATE SKIP LOCKED"""  # noqa: S608
_COUNT = """SELECT count(*), count(*) FILTER (WHERE worker = '' AND result IS NULL) FROM work
    WHERE ledger = ?"""
_RENEW = f"UPDATE work SET seen_at = {_NOW} WHERE id = ? AND worker = ?"  # noqa: S608
_FINISH = "UPDATE work SET result = ? WHERE id = ? AND worker = ?"

_RENEWED_S = 5.0
_LOST_S = 30.0  # an entry that was not renewed for so long has lost its worker
_TRIES = 3  # of a single document whose workers end
_ENDED = (
    f"The workers that had the document ended, {_TRIES} times: it makes them crash, or needs more"
    " memory than they have."
)
_NO_SERVER = (
    "Workers share a queue in PostgreSQL, and this Document has its ledger in {}. Name a PostgreSQL"
    " database in store_conf, or pass launcher=4 for processes of this machine."
)


class ClaimLostError(StoreBusyError):
    """A worker was silent for too long, or another driver has planned anew."""


class Claim(NamedTuple):
    """A claimed entry: documents, and the plan that they are brought to, both as JSON."""

    id: int
    plan: str
    documents: str


class WorkQueue:
    """The entries of a ledger, over a connection of its own.

    Args:
        ledger: The ledger of the driver or the worker that uses it.

    Raises:
        ConfigError: If the ledger is not in PostgreSQL.
    """

    def __init__(self, ledger: Ledger) -> None:
        file = ledger.file
        if not file.is_server:
            raise ConfigError(_NO_SERVER.format(file.address if file.path else "memory"))
        self._database: Any = file.second_writer()
        self._ledger = ledger.id
        self._program = ledger.program
        with self._writing() as connection:
            # two programs that create one table at the same time disturb each other
            connection.run("SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
            connection.execute(_TABLE)

    def _writing(self) -> Any:
        """A transaction that waits for no other writer."""
        return self._database.transaction("BEGIN")

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    # The driver, which holds the lease: all entries are its own

    def clear(self) -> None:
        """Remove all entries."""
        with self._writing() as connection:
            connection.execute("DELETE FROM work WHERE ledger = ?", (self._ledger,))

    def put(self, plan: str, documents: Sequence[Any]) -> None:
        """Add an entry."""
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO work (ledger, driver, plan, documents, tries, worker, program,"
                " seen_at) VALUES (?, ?, ?, ?, 0, '', '', 0)",
                (self._ledger, self._program.id, plan, json.dumps(documents)),
            )

    def collect(self) -> list[JsonObject]:
        """Remove the entries that are done, and return their results."""
        query = "DELETE FROM work WHERE ledger = ? AND result IS NOT NULL RETURNING result"
        with self._writing() as connection:
            rows = connection.execute(query, (self._ledger,)).fetchall()
        return [json.loads(result) for (result,) in rows]

    def count(self) -> tuple[int, int]:
        """The number of entries, and of those that wait for a worker."""
        with self._writing() as connection:
            [(entries, waiting)] = connection.execute(_COUNT, (self._ledger,))
        return entries, waiting

    def release_lost(self) -> None:
        """Let others claim the entries whose workers have ended.

        One that was lost twice is halved, so that a document that ends its workers fails alone.
        """
        with self._writing() as connection:
            for entry, worker, program, silent_s, plan, text, tries in connection.execute(
                _IN_WORK, (self._ledger,)
            ).fetchall():
                if silent_s < _LOST_S and not Program.from_json(program, worker).has_ended():
                    continue
                documents = json.loads(text)
                middle = len(documents) // 2
                if middle and tries:
                    connection.execute("DELETE FROM work WHERE id = ?", (entry,))
                    self.put(plan, documents[:middle])
                    self.put(plan, documents[middle:])
                elif not middle and tries + 1 == _TRIES:
                    connection.execute(_FINISH, (_result_of_ended(documents[0]), entry, worker))
                else:
                    connection.execute(
                        "UPDATE work SET worker = '', tries = tries + 1 WHERE id = ?", (entry,)
                    )

    # A worker

    def claim(self) -> Claim | None:
        """Claim the first free entry of a driver that holds the lease; None for none."""
        program = self._program
        values = program.id, program.to_json(), self._ledger, program.id
        with self._writing() as connection:
            row = connection.execute(_CLAIM, values).fetchone()
        return None if row is None else Claim(*row)

    def finish(self, entry: Claim, result: Mapping[str, Any]) -> None:
        """Store the result of an entry, unless it belongs to another worker now."""
        with self._writing() as connection:
            connection.execute(_FINISH, (json.dumps(result), entry.id, self._program.id))

    @contextmanager
    def renewing(self, entry: Claim) -> Iterator[None]:
        """Renew a claim in the block, in a thread."""
        ended = threading.Lock()  # an Event may hang after an interrupt
        ended.acquire()

        def renew() -> None:
            while not ended.acquire(timeout=_RENEWED_S):
                with suppress(StoreError), self._writing() as connection:
                    connection.execute(_RENEW, (entry.id, self._program.id))

        thread = threading.Thread(target=renew, name="lazyrag claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.release()


class ClaimLease(Lease):
    """The right of a worker to write: its entry, under the lease of the driver."""

    entry_id = 0

    def ensure_held(self, connection: sqlite3.Connection) -> None:
        """Raise, in a writing transaction, unless the entry is still this worker's.

        Raises:
            ClaimLostError: If it is not.
        """
        *_, copied = connection.execute(HOLDER, (self._ledger,)).fetchone()
        if copied:
            self._refuse_during_copy(copied)
        if connection.execute(_CLAIMED, (self.entry_id, self.program.id)).fetchone() is None:
            msg = "The entry belongs to another worker or driver now. Nothing more is written."
            raise ClaimLostError(msg, store=self._file.address)


# Documents and plans as JSON


def encode_version(version: PendingVersion) -> list[Any] | None:
    """A document for another process; None if only this one can ingest it."""
    make_root: Any = version.make_root
    if version.beside or version.moved_from is not None or version.version_hash:
        return None
    if version.base is not None and version.base.id:
        return None  # single documents, which others may have changed
    file: FoundFile | None = None
    metadata: Metadata | LazyRAGError = {}
    if make_root is not None:
        if getattr(make_root, "func", None) not in (file_root, remote_root):
            return None
        _, file, _, metadata, _ = make_root.args
        if not isinstance(file.raw_path, RemotePath):
            file = file._replace(raw_path=str(file.path.absolute()))
    if isinstance(metadata, LazyRAGError):
        return None
    with suppress(TypeError, ValueError):  # metadata may be of any type
        encoded_metadata = json.loads(json.dumps(dict(metadata)))
        if encoded_metadata == metadata:
            columns = {**asdict(version.row), "signature": version.row.signature}
            return [columns, file, encoded_metadata]
    return None


def decode_version(document: Sequence[Any], indexer: Indexer) -> PendingVersion:
    """What `encode_version` encoded, to be ingested by another Document."""
    columns, file_columns, metadata = document
    row = DocumentRow(**{**columns, "signature": _signature(columns["signature"])})
    if file_columns is None:
        return PendingVersion(row)
    identity, path, signature = file_columns
    path = RemotePath(path) if "://" in path else path
    file = FoundFile(identity, path, _signature(signature))
    indexer.engine.added[identity] = file
    return PendingVersion(row, load_root(indexer, file, row, {identity: metadata}))


def _signature(columns: Sequence[int] | None) -> Signature | None:
    return None if columns is None else Signature(*columns)


def encode_plan(plan: BuildPlan, planner: BuildPlanner, engine: IngestionEngine) -> str:
    """A plan, and the readers that it was made with."""
    return json.dumps([planner.describe(plan), _reader_identities(engine)])


def _reader_identities(engine: IngestionEngine) -> list[list[str]]:
    return [[reader.pattern, reader.identity] for reader in engine.loading.readers.all()]


def _result_of_ended(document: Sequence[Any]) -> str:
    identity = document[0]["identity"]
    error = describe_error(LoaderEndedError(_ENDED))
    outcomes = [Outcome(identity, flipped=False, is_new_version=False)]
    return json.dumps({"outcomes": outcomes, "failures": [[astuple(LOADING), identity, error]]})


# A worker


def alone(engine: IngestionEngine) -> IngestionEngine:
    """An engine that ingests by this process itself."""
    return replace(engine, options=replace(engine.options, writers=None))


class QueueWorker:
    """Ingests entries of the queue of a Document.

    Args:
        indexer: The Document's indexer; it is used for nothing else.
    """

    def __init__(self, indexer: Indexer) -> None:
        ledger = indexer.ledger
        self._indexer = indexer
        self._queue = WorkQueue(ledger)
        self._lease = ClaimLease(ledger.file, ledger.id, ledger.program)
        ledger.lease = self._lease
        indexer.terms.merges = False
        self._engine = alone(indexer.engine)

    def step(self) -> bool:
        """Ingest an entry; False if there is none.

        Raises:
            StoreConnectionError: If a server does not answer; the next step tries the entry again.
        """
        entry = self._queue.claim()
        if entry is None:
            return False
        self._lease.entry_id = entry.id
        self._engine.failures.forget(lambda *_: True)
        with self._queue.renewing(entry), suppress(ClaimLostError):
            self._queue.finish(entry, self._result(entry))
        return True

    def _result(self, entry: Claim) -> JsonObject:
        try:
            outcomes = self._ingested(entry)
        except (ClaimLostError, StoreConnectionError):
            raise
        except LazyRAGError as exc:
            return {"error": describe_error(exc)}
        except Exception as exc:  # noqa: BLE001  raised by the driver
            msg = f"A worker failed: {type(exc).__name__}: {exc}."
            return {"error": describe_error(IngestionError(msg))}
        failures = [
            (astuple(step), identity, describe_error(error))
            for step, identity, error in self._engine.failures.items()
        ]
        return {"outcomes": outcomes, "failures": failures}

    def _ingested(self, entry: Claim) -> list[Outcome]:
        description, readers = json.loads(entry.plan)
        if readers != _reader_identities(self._engine):
            msg = "This worker has other readers than the program that planned the work."
            raise ConfigError(f"{msg} Run the same code and release in both.")
        plan = self._indexer.planner.described(description)
        self._engine.added.clear()
        documents = json.loads(entry.documents)
        versions = [decode_version(document, self._indexer) for document in documents]
        return self._engine.ingest(versions, plan, "", len(versions))
