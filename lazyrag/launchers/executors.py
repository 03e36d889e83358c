"""Send work in batches to an executor, and yield its results as they finish."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from lazyrag.errors import IngestionError, LazyRAGError, describe_error, remade_error
from lazyrag.ingest.load_files import portable
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.storage.database import batches_reaching
from lazyrag.types import AnyCallable, JsonObject

Function: TypeAlias = Callable[[Any, list[Any]], Iterable[Any]]

_AHEAD = 2  # batches in flight for each worker: one that it works on, and one that waits for it
_POLL_S = 0.1
_TRIES = 3  # of a single item whose workers end
_ENDED = (
    f"The workers that had it ended, {_TRIES} times: it makes them crash, or needs more memory than"
    " they have."
)
_HELD = 16  # models and transforms that a worker holds


class Task(NamedTuple):
    """One item of work.

    Args:
        item: How the caller recognises it.
        size: Its bytes.
        payload: What is sent.
    """

    item: Any
    size: int
    payload: Any


class RemoteWork(NamedTuple):
    """What is done with tasks.

    Args:
        function: An importable function from what is called, and payloads, to a result for each:
            JSON, or an exception; see `lazyrag.launchers.work`.
        token: Identifies what is called: a worker uses the first object that it gets.
        call: What is called: a model, a transform, readers.
        size: Bytes of a batch.
        error: The error of a task that ends its workers.
    """

    function: Function
    token: str
    call: Any
    size: int
    error: Callable[[str], Exception]


# In the worker


def perform(function: Function, token: str, call: Any, payloads: list[Any]) -> bytes:
    """Do a batch of `RemoteWork`, and return the results as JSON."""
    try:
        results = list(function(_first(token, call), payloads))
    except LazyRAGError as exc:
        results = [exc] * len(payloads)
    except Exception as exc:  # noqa: BLE001  raised by the program that sent the work
        last = traceback.extract_tb(exc.__traceback__)[-1]
        msg = (
            f"A worker failed: {type(exc).__name__}: {exc} (line {last.lineno} of {last.filename})"
        )
        results = [IngestionError(msg)] * len(payloads)
    return json.dumps([_encode_result(result) for result in results]).encode()


def _encode_result(result: Any) -> JsonObject:
    if isinstance(result, Exception):
        return {"error": describe_error(result)}
    return {"value": result}


_calls: dict[str, Any] = {}


def _first(token: str, call: Any) -> Any:
    """The first object that this process got for a token: a model stays open."""
    if token not in _calls:
        while len(_calls) >= _HELD:
            _calls.pop(next(iter(_calls)), None)
        _calls.setdefault(token, call.open() if isinstance(call, ModelRecipe) else call)
    return _calls[token]


@dataclass(frozen=True, slots=True, repr=False)  # a key may be among the arguments
class ModelRecipe:
    """A model that each worker opens itself.

    Args:
        cls: Its class.
        args: The arguments that it was made with.
        kwargs: Those by name.
    """

    cls: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def open(self) -> Any:
        """Make the model."""
        return self.cls(*self.args, **self.kwargs)


# In the program that sends


class Processes:
    """The processes of a Document as an executor.

    Args:
        threads: One thread for each process.
        call: Calls a function in a process, and raises OSError if that ends.
    """

    def __init__(self, threads: Executor, call: AnyCallable) -> None:
        self._threads = threads
        self._call = call

    def submit(self, *arguments: Any) -> Future[Any]:
        """Call a function with its arguments."""
        return self._threads.submit(self._call, *arguments)


@dataclass(slots=True)
class Engine:
    """What runs the work.

    Args:
        executor: Calls `perform`; None if it is set later.
        width: Returns the number of its workers.
        dumps: The serializer that carries callables; it raises for those that it cannot carry.
        lost: Errors that mean that a worker ended, and that the work may be sent again.
        close: Releases what was opened for it.
        processes: The number of processes of this machine, if it is those.
    """

    executor: Any
    width: Callable[[], int]
    dumps: Callable[[Any], object]
    lost: tuple[type[Exception], ...] = ()
    close: Callable[[], object] = field(default=lambda: None)
    processes: int = 0

    def run(self, work: RemoteWork, tasks: Iterable[Task]) -> Iterator[list[tuple[Task, Any]]]:
        """Yield tasks with their results as they finish, in groups; a bounded number of batches is
        in flight.

        A batch whose worker ends is sent again in halves, so that what kills workers fails alone.

        Args:
            work: What is done with them.
            tasks: Any number; read as they are sent.
        """
        batches = batches_reaching(tasks, lambda task: task.size, work.size)
        again: list[tuple[list[Task], int]] = []
        waiting: dict[Future[bytes], tuple[list[Task], int]] = {}
        most = _AHEAD * max(1, self.width())
        try:
            while True:
                while len(waiting) < most:
                    batch, tries = again.pop() if again else (next(batches, []), 1)
                    if not batch:
                        break
                    waiting[self._submit(work, batch)] = batch, tries
                if not waiting:
                    return
                done, _ = wait(waiting, _POLL_S, FIRST_COMPLETED)
                raise_if_canceled()
                for future in done:
                    batch, tries = waiting.pop(future)
                    results = self._received(future)
                    if results is not None:
                        yield list(zip(batch, results, strict=True))
                    elif len(batch) == 1 and tries == _TRIES:
                        yield [(batch[0], work.error(_ENDED))]
                    else:
                        again += _to_send_again(batch, tries)
        finally:
            for future in waiting:
                future.cancel()

    def _received(self, future: Future[bytes]) -> list[Any] | None:
        """What came back; None if the worker ended."""
        try:
            results = json.loads(future.result())
        except self.lost:
            return None
        except (Exception, CancelledError) as exc:
            raise broken_launcher(exc) from exc
        return [_decode_result(result) for result in results]

    def _submit(self, work: RemoteWork, tasks: Sequence[Task]) -> Future[bytes]:
        payloads = [task.payload for task in tasks]
        try:
            future: Future[bytes] = self.executor.submit(perform, *work[:3], payloads)
        except (RuntimeError, BrokenExecutor) as exc:  # shut down
            raise broken_launcher(exc) from exc
        return future


def _decode_result(result: JsonObject) -> Any:
    return remade_error(result["error"]) if "error" in result else result["value"]


def _to_send_again(batch: list[Task], tries: int) -> list[tuple[list[Task], int]]:
    middle = len(batch) // 2
    return [(batch[:middle], 1), (batch[middle:], 1)] if middle else [(batch, tries + 1)]


def broken_launcher(exc: BaseException) -> IngestionError:
    """The error of a launcher that failed."""
    error = f"{type(exc).__name__}: {exc}"
    return IngestionError(
        f"The launcher failed: {error}. What was finished is stored. Check its workers, then sync"
        " again."
    )


def not_sent(value: object) -> None:
    """The serializer of threads of this program, which share everything."""


def dump_by_name(value: Any) -> bytes:
    """The serializer of importable callables.

    Raises:
        ValueError: If another process cannot import it.
    """
    sent = portable(value)
    if sent is None or b"__main__" in sent:
        raise ValueError(value)
    return sent
