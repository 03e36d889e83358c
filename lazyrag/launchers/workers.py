"""Workers that write the stores of a Document themselves; see docs/scale.md."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

from lazyrag.errors import (
    ConfigError,
    IngestionWarning,
    StoreConnectionError,
    StoreError,
    remade_error,
    warn_user,
)
from lazyrag.groups.node_group import Step
from lazyrag.ingest.engine import BATCH_BYTES, IngestionEngine, file_size
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.load_files import Loading
from lazyrag.ingest.pending import Outcome, PendingVersion
from lazyrag.ingest.plan import BuildPlan
from lazyrag.ingest.queue import QueueWorker, WorkQueue, alone, encode_plan, encode_version
from lazyrag.launchers.engines import make_engine
from lazyrag.launchers.executors import Engine, Processes, broken_launcher
from lazyrag.progress.calls import ProgressMeter, raise_if_canceled
from lazyrag.storage.database import batches_reaching
from lazyrag.types import JsonMapping
from lazyrag.validation import require, validate_integer, validate_range

_MOST_DOCUMENTS = 256  # the engine makes so many live together
_POLL_S = 0.05
_MERGED_AFTER = 16  # entries: a merge of keyword parts reads them all
_IDLE_S = 60.0
_SERVER_S = 60.0  # how long to wait for a server that is restarted
_IDLE = "No worker claims what is queued. Start some: lazyrag worker MODULE:FUNCTION"


class Workers:
    """Workers that load, transform, embed and write documents, fed by a queue in PostgreSQL.

    Pass it as ``launcher=`` of a Document whose store is in PostgreSQL. The program that syncs
    plans the work, and each worker makes its documents live. If a worker ends, another one takes
    its documents. A server that does not answer is waited for, up to a minute.

    Args:
        open_document: A function of an importable module that returns the Document, with the same
            definitions as here. It may be the one that makes this Document.
        launcher: Where workers run: a number of processes of this machine, an Executor,
            ``"dask://HOST:PORT"``, ``"ray"`` or ``"ray://HOST:PORT"``. None: wherever ``lazyrag
            worker`` was started.
        documents: Maximum number of documents that a worker claims at a time, in [1, 256].
        num_gpus: GPUs of each worker of Ray, at least 0.
        runtime_env: The environment of Ray's workers, as ``ray.init`` takes it.

    Raises:
        ConfigError: If an argument is invalid. When documents are ingested: if the store is not in
            PostgreSQL, or workers cannot import the function.
    """

    def __init__(
        self,
        open_document: Callable[[], Any],
        launcher: Any = None,
        *,
        documents: int = 64,
        num_gpus: float = 0,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        require(callable(open_document), "open_document", open_document, "a function")
        self._open_document = open_document
        self._launcher = launcher
        self._documents = validate_integer("documents", documents, 1, _MOST_DOCUMENTS)
        self._num_gpus = validate_range("num_gpus", num_gpus, 0)
        self._runtime_env = runtime_env
        self._indexer: Any = None
        self._queue: Any = None
        self._engine: Engine | None = None
        self._futures: list[Future[Any]] = []
        self._stack = ExitStack()

    def bind(self, indexer: Indexer) -> None:
        """Work for a Document."""
        self._indexer = indexer

    def close(self) -> None:
        """Release the workers and the connections. Idempotent."""
        atexit.unregister(self.close)
        self._stack.close()
        self._engine = None
        self._queue = None

    def ingest(
        self,
        engine: IngestionEngine,
        versions: Iterable[PendingVersion],
        plan: BuildPlan,
        label: str,
        count: int,
        *,
        stop: bool,
    ) -> list[Outcome]:
        """See `IngestionEngine.ingest`: by workers, as far as documents can be sent to them."""
        if self._queue is None:
            self._queue = WorkQueue(engine.ledger)
            self._stack.callback(self._queue.close)
        if self._engine is None and self._launcher is not None:
            self._engine = self._open_engine()
        self._queue.clear()
        try:
            sent = self._send(engine, versions, plan)
            outcomes = alone(engine).ingest(sent, plan, label, count, stop=stop)
            with ProgressMeter(label, count, 1) as meter:
                remote_outcomes = self._await(engine, plan, meter, stop=stop)
        finally:
            with suppress(StoreError):
                self._queue.clear()
        engine.warn_of_misfits(remote_outcomes)
        return outcomes + remote_outcomes

    def _open_engine(self) -> Engine:
        engine = make_engine(self._launcher, self._num_gpus, self._runtime_env)
        self._stack.callback(engine.close)
        try:
            engine.dumps(self._open_document)
        except Exception as exc:
            name = getattr(self._open_document, "__qualname__", self._open_document)
            msg = f"open_document is {name}, which other processes cannot import."
            raise ConfigError(f"{msg} Define it in a module of its own.") from exc
        if engine.processes:
            loading = Loading(engine.processes)
            self._stack.callback(loading.close)
            self._stack.enter_context(loading.running(1))
            engine.executor = Processes(engine.executor, loading.call)
            atexit.register(self.close)
        return engine

    def _send(
        self, engine: IngestionEngine, versions: Iterable[PendingVersion], plan: BuildPlan
    ) -> Iterator[PendingVersion]:
        """Queue documents; yields those that only this process can ingest."""
        encoded_plan = encode_plan(plan, self._indexer.planner, engine)
        for some in batches_reaching(versions, file_size, BATCH_BYTES, most_items=self._documents):
            documents = []
            for version in some:
                document = encode_version(version)
                if document is None:
                    yield version
                else:
                    documents.append(document)
            if documents:
                self._queue.put(encoded_plan, documents)
                self._start(1)

    def _await(
        self, engine: IngestionEngine, plan: BuildPlan, meter: ProgressMeter, *, stop: bool
    ) -> list[Outcome]:
        """Wait for the workers, note failures, and merge what they leave of keyword indexes.

        Raises:
            IngestionError: If a worker failed as a whole, or a document and ``stop`` is set.
            StoreConnectionError: If a server does not answer for long.
        """
        outcomes = []
        unmerged = 0
        answered_at = time.monotonic()
        claimed_at = answered_at
        while True:
            raise_if_canceled()
            try:
                results = self._queue.collect()
                for result in results:
                    outcomes += _read_result(engine, result, stop=stop)
                unmerged += len(results)
                meter.reach(len(outcomes))
                entries, waiting = self._queue.count()
                if unmerged >= _MERGED_AFTER or not entries:
                    engine.ledger.reread()
                    engine.merge_terms(plan)
                    unmerged = 0
                if not entries:
                    return outcomes
                self._start(waiting)
                self._queue.release_lost()
                answered_at = time.monotonic()
                if waiting < entries:
                    claimed_at = answered_at
            except StoreConnectionError:
                if time.monotonic() - answered_at > _SERVER_S:
                    raise
            if answered_at - claimed_at > _IDLE_S:
                claimed_at = answered_at
                warn_user(_IDLE, IngestionWarning)
            time.sleep(_POLL_S)

    def _start(self, waiting: int) -> None:
        """Start workers where some have ended and entries wait."""
        engine = self._engine
        if engine is None:
            return
        ended = {future for future in self._futures if future.done()}
        self._futures = [future for future in self._futures if future not in ended]
        for error in filter(None, (future.exception() for future in ended)):
            if isinstance(error, StoreConnectionError):
                raise error
            if not isinstance(error, engine.lost):
                raise broken_launcher(error) from error
        for _ in range(min(engine.width(), waiting) - len(self._futures)):
            self._futures.append(engine.executor.submit(work, self._open_document))


def _read_result(engine: IngestionEngine, result: JsonMapping, *, stop: bool) -> list[Outcome]:
    """The outcomes of an entry; its failures are added to those of the engine."""
    if "error" in result:
        raise remade_error(result["error"])
    for columns, identity, described in result["failures"]:
        step = Step(*columns)
        error = remade_error(described)
        engine.failures.add(step, identity, error)
        if stop:
            engine.raise_failure(step, error)
    return [Outcome._make([*columns, tuple(notes)]) for *columns, notes in result["outcomes"]]


_opened = threading.local()


def work(open_document: Callable[[], Any]) -> int:
    """Ingest what is queued, in a worker, which keeps the Document open; returns the number of
    entries.
    """
    if getattr(_opened, "by", None) is not open_document:
        _opened.worker = open_worker(open_document())
        _opened.by = open_document
    count = 0
    while _opened.worker.step():
        count += 1
    return count


def open_worker(docs: Any) -> QueueWorker:
    """The worker of a Document that ``open_document`` returned."""
    indexer: Any = getattr(getattr(docs, "reader", None), "indexer", None)
    require(isinstance(indexer, Indexer), "The result of open_document", docs, "a Document")
    return QueueWorker(indexer)
