"""Jobs: calls of a Document that a worker runs, in this program or another one, and that survive
the end of either.

They are rows of a table in the ledger's file. Every kind of job is an idempotent method of
Document: what was finished is stored, and the same call does the rest. So a worker can take over a
job of a worker that died, at any point.
"""

from __future__ import annotations

import builtins
import dataclasses
import datetime as dt
import functools
import inspect
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, get_args

from lazyrag.data.encoding import ErrorInfo, to_dict
from lazyrag.data.segment import root_uid
from lazyrag.document.document import Document, indexer_of
from lazyrag.errors import (
    CanceledError,
    ConfigError,
    IngestionError,
    LazyRAGError,
    NotRegisteredError,
    StoreBusyError,
    StoreError,
)
from lazyrag.evaluation.models import change_model
from lazyrag.ingest.dataset import find_named_files
from lazyrag.ingest.documents import hide, live_among
from lazyrag.ledger.jobs import (
    DELETING_KINDS,
    UNFINISHED,
    documents_in_work,
    purge_digest,
    read_rows,
)
from lazyrag.ledger.lease import Program
from lazyrag.ledger.tables import HIDDEN
from lazyrag.progress.calls import Progress, during_call
from lazyrag.types import JsonMapping, JsonObject, Keywords, State
from lazyrag.validation import (
    normal_name,
    require,
    validate_choice,
    validate_integer,
    validate_mapping,
    validate_text,
)

DOCUMENTS_OF = {
    "sync": "",
    "add_files": "files",
    "add_texts": "texts",
    "delete_files": "documents",
    "update_metadata": "changes",
    "retry_failed": "",
    "rollback": "document",
    "verify": "",
    "repair": "",
    "compact": "",
    "activate_group": "",
    "purge": "document",
    "change_model": "",
}
"""The kinds of jobs, which `_method` finds, and the argument that names documents;
"" for none."""

Guard: TypeAlias = Callable[[str, Keywords, str | None], AbstractContextManager[None]]
"""Gets kind, arguments and idempotency key of a job, and runs it in its block."""

KEY_S = 24 * 3600.0
"""How long an idempotency key leads to its job, in seconds."""

MAX_ATTEMPTS = 3
"""Attempts at a job whose workers die; then it has failed."""

HEARTBEAT_S = 2.0
DEAD_S = 10.0
"""A worker without a heartbeat for so long is taken for dead, if its process cannot be looked
at."""

_STORED_S = 30 * 24 * 3600.0  # finished jobs
# jobs that run beside a long one
_BESIDE = (("delete_files", "update_metadata"), ("add_texts", "add_files"))
_BESIDE_BYTES = 1 << 20  # of their arguments and files
_BESIDE_LOOK_S = 0.03
_BESIDE_THREAD = "lazyrag beside a job"
_LOOK_S = 0.2  # between two looks at a job's row, and between two looks for a job
_PAUSE_S = 1.0  # after another program had the right to write
_TURN_S = 2.0  # that a change of a model works before it lets other jobs go first
_LISTED = 200  # items of a list in a result
_GIVE_UP_S = 60.0  # a file that cannot be used
_running: set[str] = set()  # ids of the workers of this process that run a job


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when it was read.

    Args:
        id: Its id.
        kind: Name of a method of Document.
        arguments: Its arguments. The texts of a finished ``add_texts`` are replaced by "".
        state: See `State`.
        attempts: How often a worker has begun it.
        progress: Its last progress; None before the first.
        error: Why it has failed, or why it waits on; None for neither.
        result: What the method returned, as JSON: the fields of a report, or ``{"value": ...}``.
            Lists end after 200 items, and ``"counts"`` has their lengths.
        key: Idempotency key.
        created: When it was submitted, in UTC.
        updated: When it last changed, in UTC.
        heartbeat: When its worker last showed that it runs, in UTC; None before the first attempt.
    """

    id: str
    kind: str
    arguments: Keywords
    state: State
    attempts: int
    progress: Progress | None
    error: ErrorInfo | None
    result: JsonMapping | None
    key: str | None
    created: dt.datetime
    updated: dt.datetime
    heartbeat: dt.datetime | None

    @property
    def is_finished(self) -> bool:
        """Whether no worker will run it any more, unless it is retried."""
        return self.state not in UNFINISHED


_DEAD = ErrorInfo(
    "WorkerDied",
    f"The workers of the job died in {MAX_ATTEMPTS} attempts.",
    "Look for what ended their processes, such as too little memory, and retry the job.",
)
_COLUMNS = (
    "id, kind, arguments, state, attempts, progress, error, result, key, created, updated,"
    " heartbeat"
)


def _job(row: tuple[Any, ...]) -> Job:
    number, kind, arguments, state, attempts, progress, error, result, key, *times = row
    created, updated, heartbeat = (
        dt.datetime.fromtimestamp(seconds, dt.timezone.utc) for seconds in times
    )
    return Job(
        str(number),
        kind,
        json.loads(arguments),
        state,
        attempts,
        progress and Progress(**json.loads(progress)),
        error and ErrorInfo(**json.loads(error)),
        result and json.loads(result),
        key,
        created,
        updated,
        heartbeat if times[2] else None,
    )


class Jobs:
    """Calls of methods of a Document that a `Worker` runs.

    Args:
        docs: The Document, not restricted; of a read-only one, only the table of jobs is written.

    Raises:
        ConfigError: If the Document is restricted.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> jobs = Jobs(docs)
        >>> tea = {"texts": {"tea": "Green tea is not roasted."}}
        >>> job = jobs.submit("add_texts", tea, key="upload-1")
        >>> jobs.submit("add_texts", tea, key="upload-1") == job
        True
        >>> Worker(docs).run_one().result["added"]
        ['tea']
    """

    def __init__(self, docs: Document) -> None:
        if docs.reader.scope is not None:
            raise ConfigError(
                "jobs are not available on a restricted Document. Pass the original one."
            )
        self._docs = docs
        self.ledger = indexer_of(docs).ledger
        self.file = self.ledger.file
        self.name = self.ledger.name

    def submit(
        self, kind: str, arguments: Keywords | None = None, *, key: str | None = None
    ) -> Job:
        """Store a job for a worker. Jobs of a Document are run one after the other, in the order of
        their submission.

        Args:
            kind: Name of a method of Document, see `DOCUMENTS_OF`.
            arguments: Its arguments by name, JSON values. Relative paths of files are those of this
                program.
            key: Idempotency key: within 24 hours, another submission with it returns the same job.

        Raises:
            ConfigError: If the method has no such arguments, or they are no JSON values.
            DatasetPathError: If a file does not exist.
            StoreError: If the file cannot be written.
        """
        validate_choice("kind", kind, DOCUMENTS_OF)
        key = None if key is None else validate_text("key", key)
        text, documents = self._validate_arguments(
            kind, dict(validate_mapping("arguments", arguments or {}))
        )
        now = time.time()
        with self.writing(durable=True) as (connection, ledger):
            for job in self._select(connection, "key = ? AND created > ?", key, now - KEY_S):
                return job
            connection.execute(
                "DELETE FROM job WHERE ledger = ? AND updated < ? AND state NOT IN (?, ?, ?)",
                (ledger, now - _STORED_S, *UNFINISHED),
            )
            cursor = connection.execute(
                "INSERT INTO job (ledger, kind, arguments, documents, state, key, created, updated)"
                " VALUES (?, ?, ?, ?, 'WAITING', ?, ?, ?)",
                (ledger, kind, text, json.dumps(documents), key, now, now),
            )
            return self._read(connection, str(cursor.lastrowid))

    def _validate_arguments(self, kind: str, arguments: JsonObject) -> tuple[str, list[str]]:
        """The arguments as JSON, and the documents that they name."""
        method = inspect.signature(_method(self._docs, kind))
        files = (
            find_named_files(arguments["files"], "files")
            if kind == "add_files" and "files" in arguments
            else None
        )
        if files is not None:
            arguments["files"] = {file.identity: str(file.path) for file in files}
        try:
            text = json.dumps(arguments)
            named = documents_of(kind, arguments)
            args, keywords = _split(kind, arguments)
            method.bind(*args, **keywords)
        except (TypeError, ValueError) as exc:
            parameters = ", ".join(
                name for name in method.parameters if name not in ("on_progress", "cancel", "docs")
            )
            raise ConfigError(
                f"arguments must be JSON values for {kind}({parameters}); got {sorted(arguments)}:"
                f" {exc}."
            ) from exc
        if files is not None:
            inside = indexer_of(self._docs).dataset.relative_path
            named = [inside(file.path) or file.identity for file in files]
        return text, named

    def get(self, id: str) -> Job:  # noqa: A002  the name of the field
        """Return a job as it is now.

        Raises:
            NotRegisteredError: If there is none with the id: finished ones are stored for 30 days.
        """
        with self.file.reading() as connection:
            return self._read(connection, id)

    def find(self, key: str) -> Job | None:
        """Return the newest job with an idempotency key; None if there is none."""
        with self.file.reading() as connection:
            return next(
                iter(self._select(connection, "key = ? ORDER BY id DESC LIMIT 1", key)), None
            )

    def list(
        self, after: str | None = None, limit: int = 100, state: State | None = None
    ) -> list[Job]:
        """List jobs, the newest first.

        Args:
            after: Id of the last job of the page before; None for the first page.
            limit: The maximum number of jobs.
            state: Only jobs in this state.
        """
        number = None if after is None else _number(after)
        validate_integer("limit", limit, 1)
        require(
            state is None or state in get_args(State),
            "state",
            state,
            f"one of {', '.join(get_args(State))}",
        )
        condition = (
            "id < coalesce(?, id + 1) AND state = coalesce(?, state) ORDER BY id DESC LIMIT ?"
        )
        with self.file.reading() as connection:
            return self._select(connection, condition, number, state, limit)

    def cancel(self, id: str) -> Job:  # noqa: A002
        """Cancel a job: at once if it waits, at the next safe point if it runs. A finished one
        stays as it is.
        """
        with self.writing(durable=True) as (connection, _):
            connection.execute(
                "UPDATE job SET is_canceled = 1, updated = ?, "
                "state = CASE state WHEN 'WAITING' THEN 'CANCELED' ELSE state END "
                "WHERE id = ? AND state IN (?, ?, ?)",
                (time.time(), self._read(connection, id).id, *UNFINISHED),
            )
            return self._read(connection, id)

    def retry(self, id: str) -> Job:  # noqa: A002
        """Let a failed or cancelled job be run again; one that waits or runs stays as it is.

        Raises:
            ConfigError: If it has succeeded.
        """
        with self.writing(durable=True) as (connection, _):
            job = self._read(connection, id)
            if job.state in ("SUCCESS", "DELETED"):
                raise ConfigError(f"Job {id!r} has succeeded. Submit another one to repeat it.")
            connection.execute(
                "UPDATE job SET state = 'WAITING', is_canceled = 0, attempts = 0, progress = NULL,"
                " error = NULL, "
                # whose arguments have no more than a digest
                "begun = CASE kind WHEN 'purge' THEN begun END, "
                "updated = ? WHERE id = ? AND state IN ('FAILED', 'CANCELED')",
                (time.time(), id),
            )
            return self._read(connection, id)

    def wait(self, id: str, timeout_s: float | None = None) -> Job:  # noqa: A002
        """Wait until a job is finished, and return it; after the timeout, return it as it is.

        Args:
            id: Its id.
            timeout_s: How long to wait, in seconds; None for as long as it takes.
        """
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        pause = 0.01
        while not (job := self.get(id)).is_finished and (ends is None or time.monotonic() < ends):
            time.sleep(pause)
            pause = min(_LOOK_S, pause * 1.5)
        return job

    def working(self) -> dict[str, State]:
        """The documents that unfinished jobs name, by path or id, each with the state of the newest
        such job.
        """
        return documents_in_work(self.ledger)

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A transaction that writes jobs, without the lease; with the ledger's row."""
        if self.file.read_only:  # of this file, nothing but jobs is written
            with (
                self.file.second_writer() as database,
                database.writing(durable=durable) as connection,
            ):
                yield connection, _ledger_row(connection, self.name)
            return
        with self.file.writing(durable=durable) as connection:
            yield connection, _ledger_row(connection, self.name)

    def _select(
        self, connection: sqlite3.Connection, condition: str, *values: Any
    ) -> builtins.list[Job]:
        query = (
            f"SELECT {_COLUMNS} FROM job"  # noqa: S608
            f" WHERE ledger = (SELECT id FROM ledger WHERE name = ?) AND {condition}"
        )
        return [_job(row) for row in read_rows(connection, query, self.name, *values)]

    def _read(self, connection: sqlite3.Connection, id: str) -> Job:  # noqa: A002
        for job in self._select(connection, "id = ?", _number(id)):
            return job
        raise NotRegisteredError(
            f"There is no job {id!r}. list() returns those of the last 30 days."
        )


def _ledger_row(connection: sqlite3.Connection, name: str) -> int:
    connection.execute(
        "INSERT INTO ledger (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (name,)
    )
    return int(connection.execute("SELECT id FROM ledger WHERE name = ?", (name,)).fetchone()[0])


def _number(id: str) -> int:  # noqa: A002
    is_number = isinstance(id, str) and id.isascii() and id.isdigit() and len(id) < 19
    return int(id) if is_number else -1


def documents_of(kind: str, arguments: Keywords) -> list[str]:
    """The documents that a job names."""
    named = arguments.get(DOCUMENTS_OF[kind], ())
    return [normal_name(str(name)) for name in ([named] if isinstance(named, str) else named)]


def _method(docs: Document, kind: str) -> Any:
    """Return what a job calls."""
    if kind in ("change_model", "retry_failed"):
        function = change_model if kind == "change_model" else _retry_failed
        return functools.partial(function, docs)
    if kind == "rollback":
        return docs.versions.rollback
    is_maintenance = kind in ("verify", "repair", "compact", "purge")
    return getattr(docs.maintenance if is_maintenance else docs, kind)


def _retry_failed(docs: Document) -> Any:
    """Sync once more; failures are reported, not raised."""
    with suppress(IngestionError):  # the report contains the failures
        docs.sync(retry=True)
    return docs.last_report


def _split(kind: str, arguments: Keywords) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a job's method: the names of groups are positional."""
    keywords = dict(arguments)
    names = keywords.pop("names", []) if kind == "activate_group" else []
    return [names] if isinstance(names, str) else list(names), keywords


class _Claim(NamedTuple):
    """A job that a worker has claimed; with the attempts before. ``begun`` is None at the first
    one.
    """

    id: int
    kind: str
    arguments: Keywords
    key: str | None
    attempts: int
    begun: int | None


# Whether a job is cancelled, and another kind of job waits; no row once another worker has taken it
# over.
_LOOK = (
    "SELECT is_canceled, EXISTS (SELECT 1 FROM job AS other WHERE other.ledger = job.ledger AND"
    " state = 'WAITING' AND kind <> 'change_model') FROM job WHERE id = ? AND worker = ?"
)


class Worker:
    """Runs the jobs of a Document, one after the other, in the thread that calls `run`.

    Any number of workers, in any programs on any machines, may serve one Document: only one of them
    runs a job at a time. Beside one that steps aside, it runs deletions, changes of metadata and
    small additions in threads of its own, if no earlier job names their documents; a deletion hides
    its documents in any case. It shows that it runs every two seconds. The job of a worker that
    died is taken over, at once where its process can be looked at, else after ten seconds without a
    sign of life: every method is idempotent, so that it does what the first attempt did not. A job
    whose workers died three times has failed. A job that finds another program writing waits on.

    Args:
        docs: The Document, not read-only.
        guard: Runs each job; what it raises is the job's error.

    Raises:
        ConfigError: If the Document is read-only or restricted.

    Example:
        >>> import threading
        >>> from lazyrag import Document
        >>> docs, stop = Document(), threading.Event()
        >>> thread = threading.Thread(target=Worker(docs).run, args=[stop])
        >>> thread.start()
        >>> job = Jobs(docs).submit("add_texts", {"texts": {"tea": "Green tea is not roasted."}})
        >>> Jobs(docs).wait(job.id, timeout_s=60).state
        'SUCCESS'
        >>> stop.set()
        >>> thread.join()
    """

    def __init__(self, docs: Document, guard: Guard | None = None) -> None:
        # the kinds of jobs that this one runs beside another worker's
        self._beside: Sequence[str] = ()
        self._docs = docs
        self._jobs = Jobs(docs)
        self._guard = guard or (lambda *_: nullcontext())
        require(not self._jobs.file.read_only, "docs", docs, "a Document that is not read-only")
        self._program = Program()
        self._turn = threading.Lock()
        # heartbeats of others, and since when this one knows them
        self._seen: dict[int, tuple[float, float]] = {}

    def run(self, stop: threading.Event) -> None:
        """Run jobs until an event is set. A job that is interrupted by it is left to the next
        worker.

        Raises:
            StoreError: If the file could not be used for a minute, or the Document was closed.
        """
        failing_since: float | None = None
        while not stop.is_set():
            try:
                job = self.run_one(stop)
            except StoreError:
                failing_since = failing_since or time.monotonic()
                if self._docs.reader.is_closed or time.monotonic() - failing_since > _GIVE_UP_S:
                    raise
                stop.wait(_PAUSE_S)
                continue
            failing_since = None
            if job is None or job.state == "WAITING":
                stop.wait(_LOOK_S if job is None else _PAUSE_S)

    def run_one(self, stop: threading.Event | None = None) -> Job | None:
        """Run the next job, and return it; None if none waits, or another worker runs one.

        Args:
            stop: An event that hands the job back at the next safe point once it is set.
        """
        with self._turn:
            _running.add(self._program.id)  # before others see it in the file
            try:
                claim = self._claim()
                return None if claim is None else self._run(claim, stop or threading.Event())
            finally:
                _running.discard(self._program.id)

    def _run(self, claim: _Claim, stop: threading.Event) -> Job | None:
        call = _Attempt(self._jobs, claim, self._program.id, stop)
        handed_back = {"state": "WAITING", "attempts": claim.attempts}  # as if it had not begun
        columns: dict[str, Any] = handed_back
        try:
            with (
                call.watched(),
                self._with_others_beside(stop),
                during_call(call.note, call.cancel),
            ):
                result = _as_result(self._call(claim))
            columns = {
                "state": "DELETED" if claim.kind in DELETING_KINDS else "SUCCESS",
                "result": json.dumps(result),
            }
        except CanceledError:
            if call.is_canceled:
                columns = {"state": "CANCELED"}
        except StoreBusyError as exc:
            columns = {**handed_back, "error": _json(ErrorInfo.of(exc))}
        except Exception as exc:  # noqa: BLE001  it is the job's result
            columns = {"state": "FAILED", "error": _json(ErrorInfo.of(exc))}
        finally:
            call.finish(columns)
        with suppress(NotRegisteredError):  # another worker has finished it, and its row is gone
            return self._jobs.get(str(claim.id))
        return None

    @contextmanager
    def _with_others_beside(self, stop: threading.Event) -> Iterator[None]:
        """Run other jobs beside that of the block."""
        is_running = threading.Lock()  # an Event may hang after an interrupt
        is_running.acquire()
        threads = []
        try:
            for kinds in () if self._beside else _BESIDE:
                other = Worker(self._docs, self._guard)
                other._beside = kinds
                thread = threading.Thread(
                    target=other._run_beside,
                    args=(is_running, stop),
                    name=_BESIDE_THREAD,
                    daemon=True,
                )
                thread.start()
                threads.append(thread)
            yield
        finally:
            is_running.release()
            for thread in threads:
                thread.join()

    def _run_beside(self, is_running: threading.Lock, stop: threading.Event) -> None:
        pause = _BESIDE_LOOK_S
        while not stop.is_set():
            if is_running.acquire(timeout=pause):
                is_running.release()  # for the threads beside
                return
            began = time.monotonic()
            with suppress(StoreError):  # the next time may be soon enough
                while (
                    is_running.locked()
                    and (job := self.run_one(stop)) is not None
                    and job.is_finished
                ):
                    pass
                if "delete_files" in self._beside:
                    self._hide()
            # to look at many takes long
            pause = min(max(_BESIDE_LOOK_S, time.monotonic() - began), _LOOK_S)

    def _hide(self) -> None:
        """Hide what waiting jobs are to delete that cannot be run yet."""
        query = "state = 'WAITING' AND kind IN (?, ?) AND NOT is_canceled"
        with self._jobs.file.reading() as connection:
            waiting = self._jobs._select(connection, query, *DELETING_KINDS)
        indexer = indexer_of(self._docs)
        for job in waiting:
            rows = live_among(indexer, documents_of(job.kind, job.arguments))
            if rows:
                # else the job reports it
                with suppress(LazyRAGError), self._guard(job.kind, job.arguments, job.key):
                    hide(indexer, rows, keeps_builds=job.kind == "purge")

    def _call(self, claim: _Claim) -> Any:
        """Call the method, without what an earlier attempt may have done."""
        args, keywords = _split(claim.kind, claim.arguments)
        if claim.kind == "purge" and claim.begun is not None:
            names = {
                purge_digest(name): name for name, _ in self._jobs.ledger.documents.identities()
            }
            if keywords["document"] not in names:
                return None  # an earlier attempt has purged it
            keywords["document"] = names[keywords["document"]]
        with self._guard(claim.kind, keywords, claim.key):
            return self._result(claim, args, keywords)

    def _result(self, claim: _Claim, args: list[Any], keywords: JsonObject) -> Any:
        if claim.begun is not None and claim.kind in ("add_texts", "add_files"):
            keywords |= self._without_deleted(claim, keywords)
        if claim.kind == "delete_files":
            # purged ones have no row any more
            rows = self._jobs.ledger.documents.named(keywords["documents"])
            hidden = {name for name, row in rows.items() if row.status in HIDDEN}
            hidden |= set() if claim.begun is None else {*keywords["documents"]} - rows.keys()
            keywords["documents"] = [name for name in keywords["documents"] if name not in hidden]
        if claim.begun and claim.kind == "rollback":
            versions = self._docs.versions.list(keywords["document"])
            live = next(version for version in versions if version.is_live)
            if live.number != claim.begun:
                return live
        if claim.kind == "purge":
            return dataclasses.replace(self._docs.maintenance.purge(**keywords), document="")
        return _method(self._docs, claim.kind)(*args, **keywords)

    def _without_deleted(self, claim: _Claim, keywords: JsonObject) -> JsonObject:
        """What an addition has left to add: later jobs may have deleted documents beside an earlier
        attempt.
        """
        with self._jobs.file.reading() as connection:
            later = self._jobs._select(connection, "id > ? AND state = 'DELETED'", claim.id)
        deleted = set()
        for job in later:
            deleted.update(documents_of(job.kind, job.arguments))
        left: JsonObject = {}
        for name in {DOCUMENTS_OF[claim.kind], "metadata"} & keywords.keys():
            values = keywords[name] or {}
            documents = [
                document for document in values if normal_name(str(document)) not in deleted
            ]
            left[name] = documents
            if isinstance(values, Mapping):
                left[name] = {document: values[document] for document in documents}
        return left

    def _claim(self) -> _Claim | None:
        """Claim the next job, unless another worker runs one."""
        with self._jobs.file.reading() as connection:
            if not self._next(connection):
                return None
        with self._jobs.writing(durable=True) as (connection, ledger):
            for number in self._next(connection):
                query = (
                    "SELECT kind, arguments, key, attempts, is_canceled, begun FROM job WHERE"
                    " id = ?"
                )
                kind, text, key, attempts, is_canceled, begun = connection.execute(
                    query, (number,)
                ).fetchone()
                now = time.time()
                values: dict[str, Any] = {"updated": now}
                if is_canceled:
                    values["state"] = "CANCELED"
                elif attempts >= MAX_ATTEMPTS:
                    values |= {"state": "FAILED", "error": _json(_DEAD)}
                else:
                    values |= {
                        "state": "DELETING" if kind in DELETING_KINDS else "WORKING",
                        "attempts": attempts + 1,
                        "worker": self._program.id,
                        "program": self._program.to_json(),
                        "heartbeat": now,
                        "error": None,
                    }
                arguments = json.loads(text)
                if begun is None:
                    document = str(arguments.get("document", ""))
                    query = "SELECT version FROM document WHERE ledger = ? AND uid = ?"
                    row = connection.execute(query, (ledger, root_uid(document))).fetchone()
                    values["begun"] = row[0] if row else 0
                    if kind == "purge":  # from now on the job has no more than a digest of the id
                        digested = {**arguments, "document": purge_digest(document)}
                        values |= {"arguments": json.dumps(digested), "documents": "[]"}
                _set(connection, values, "id = ?", number)
                if "worker" in values:
                    return _Claim(number, kind, arguments, key, attempts, begun)
        return None

    def _next(self, connection: sqlite3.Connection) -> list[int]:
        """The jobs of dead workers, or else the first one that waits; [] while another worker runs
        one.
        """
        where = "FROM job WHERE ledger = (SELECT id FROM ledger WHERE name = ?) AND state"
        query = (
            f"SELECT id, worker, program, heartbeat {where} IN ('WORKING', 'DELETING') ORDER BY id"
        )
        taken = connection.execute(query, (self._jobs.name,)).fetchall()
        if self._beside:
            return self._next_beside(connection)
        if not all(self._is_dead(*row) for row in taken):
            return []
        numbers = [number for number, *_ in taken]
        for compared in ("<>", "="):  # change_model comes last
            query = (
                f"SELECT id {where} = 'WAITING' AND kind {compared} 'change_model'"
                " ORDER BY id LIMIT 1"
            )
            numbers += [number for (number,) in connection.execute(query, (self._jobs.name,))]
        return numbers

    def _next_beside(self, connection: sqlite3.Connection) -> list[int]:
        """The first job that may be run before those that were submitted earlier."""
        query = (
            "SELECT id, kind, state, documents, CASE WHEN length(arguments) < ? THEN arguments END"
            " FROM job WHERE ledger = (SELECT id FROM ledger WHERE name = ?) AND state IN (?, ?, ?)"
            " ORDER BY id"
        )
        rows = connection.execute(query, (_BESIDE_BYTES, self._jobs.name, *UNFINISHED)).fetchall()
        waiting: set[str] = set()  # documents of earlier jobs
        running: set[str] = set()
        for number, kind, state, documents, arguments in rows:
            named = set(json.loads(documents))
            if state != "WAITING":
                running |= named
                continue
            is_free = named.isdisjoint(waiting if kind == "delete_files" else waiting | running)
            if kind in self._beside and is_free and _is_small(arguments):
                return [number]
            waiting |= named
        return []

    def _is_dead(self, job: int, worker: str, description: str, heartbeat: float) -> bool:
        """Whether a worker will not go on with a job."""
        program = Program.from_json(description, worker)
        if program.is_here:  # this one runs nothing while it looks
            return worker not in _running or worker == self._program.id
        now = time.monotonic()
        if self._seen.get(job, (None, 0))[0] != heartbeat:
            self._seen[job] = heartbeat, now
        # The clocks of two machines may differ: what counts is how long this one has seen nothing
        # new.
        return now - self._seen[job][1] > DEAD_S or program.has_ended()


class _Attempt:
    """One attempt at a job: shows that it runs, writes its progress, and cancels it.

    Args:
        jobs: The jobs.
        claim: The job.
        worker: Id of the worker.
        stop: The event that hands it back.
    """

    def __init__(self, jobs: Jobs, claim: _Claim, worker: str, stop: threading.Event) -> None:
        self._jobs = jobs
        self._claim = claim
        self._worker = worker
        self._stop = stop
        self._progress: Progress | None = None
        self.is_canceled = False
        self.cancel = threading.Event()

    def note(self, progress: Progress) -> None:
        """Remember the progress; it is written at the next look."""
        self._progress = progress

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the job's row in a thread until the block ends."""
        ended = threading.Lock()  # an Event may hang after an interrupt
        ended.acquire()
        thread = threading.Thread(target=self._watch, args=[ended], name="lazyrag job", daemon=True)
        try:
            thread.start()
            yield
        finally:
            ended.release()
        thread.join()

    def _watch(self, ended: threading.Lock) -> None:
        begun = beaten = time.monotonic()
        written = None
        while not ended.acquire(timeout=_LOOK_S):
            if self._stop.is_set():
                self.cancel.set()
            with suppress(StoreError):  # the next time may be soon enough
                with self._jobs.file.reading() as connection:
                    row = connection.execute(_LOOK, (self._claim.id, self._worker)).fetchone()
                if row is None:  # taken over: this program was suspended for too long
                    self.cancel.set()
                    return
                now = time.monotonic()
                (self.is_canceled, others) = map(bool, row)
                # it goes on later
                gives_way = self._claim.kind == "change_model" and now - begun > _TURN_S and others
                if self.is_canceled or gives_way:
                    self.cancel.set()
                if self._progress is not written or now - beaten > HEARTBEAT_S:
                    written = self._progress
                    beaten = now
                    self._update({} if written is None else {"progress": _json(written)})

    def finish(self, columns: dict[str, Any]) -> None:
        """Write how the attempt ended, unless another worker has taken the job over."""
        # the documents have them now
        if columns["state"] == "SUCCESS" and "texts" in self._claim.arguments:
            texts = dict.fromkeys(self._claim.arguments["texts"], "")
            columns["arguments"] = json.dumps({**self._claim.arguments, "texts": texts})
        if self._progress is not None:
            columns["progress"] = _json(self._progress)
        self._update(columns, durable=True)

    def _update(self, columns: Mapping[str, Any], *, durable: bool = False) -> None:
        now = time.time()
        values = {"heartbeat": now, "updated": now, **columns}
        with self._jobs.writing(durable=durable) as (connection, _):
            where = "id = ? AND worker = ? AND state IN ('WORKING', 'DELETING')"
            _set(connection, values, where, self._claim.id, self._worker)


def _is_small(arguments: str | None) -> bool:
    """Whether a job is done soon, by its arguments as JSON and the files in them; None is too
    much.
    """
    if arguments is None:
        return False
    paths = json.loads(arguments).get("files", {}).values()
    existing = [path for path in paths if os.path.exists(path)]  # noqa: PTH110
    sizes = [os.stat(path).st_size for path in existing]  # noqa: PTH116
    return sum(sizes) < _BESIDE_BYTES


def _set(
    connection: sqlite3.Connection, values: Mapping[str, Any], where: str, *parameters: Any
) -> None:
    changes = ", ".join(f"{name} = ?" for name in values)
    query = f"UPDATE job SET {changes} WHERE {where}"  # noqa: S608
    connection.execute(query, (*values.values(), *parameters))


def _json(value: ErrorInfo | Progress) -> str:
    return json.dumps(dataclasses.asdict(value))


def _as_result(value: Any) -> JsonObject | None:
    """What a method returned, as the result of a job."""
    if value is None:
        return None
    plain = to_dict(value)
    result = plain if isinstance(plain, dict) else {"value": plain}
    lists = {name: entries for name, entries in result.items() if isinstance(entries, (list, dict))}
    for name, entries in lists.items():
        if isinstance(entries, list):
            result[name] = entries[:_LISTED]
        else:
            result[name] = dict([*entries.items()][:_LISTED])
    return {**result, "counts": {name: len(entries) for name, entries in lists.items()}}
