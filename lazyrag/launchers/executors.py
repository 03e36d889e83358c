"""Send work in batches to an executor, and keep its results by their keys until they are live."""

from __future__ import annotations

import io
import json
import traceback
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyrag.data.segment import digest
from lazyrag.errors import IngestionError, LazyRAGError, describe_error, remade_error
from lazyrag.ingest.load_files import portable
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.storage.database import batches_reaching

Function: TypeAlias = Callable[[Any, list[Any]], Iterable[bytes]]

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
        key: Digest of everything that its result depends on.
        size: Its bytes.
        payload: What is sent.
    """

    item: Any
    key: str
    size: int
    payload: Any


class RemoteWork(NamedTuple):
    """What is done with tasks.

    Args:
        function: An importable function from what is called, and payloads, to results; see
            `lazyrag.launchers.work`.
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


def perform(
    function: Function,
    token: str,
    call: Any,
    shared: Path | None,
    keys: list[str],
    payloads: list[Any],
) -> bytes:
    """Do a batch of `RemoteWork`, and return the results with their keys as the bytes of an .npz
    file.

    A file of a shared folder has them, too, before this worker begins another batch: if it ends
    before they were fetched, the worker that does the batch again finds them there.
    """
    path = shared and shared.is_dir() and result_path(shared, keys)
    if path and path.exists():
        return path.read_bytes()
    packed, is_complete = _packed(function, token, call, keys, payloads)
    if path and is_complete:
        with suppress(OSError):  # it may be read-only here
            write_result(path, packed)
    return packed


def _packed(
    function: Function, token: str, call: Any, keys: list[str], payloads: list[Any]
) -> tuple[bytes, bool]:
    try:
        results = list(function(_first(token, call), payloads))
    except LazyRAGError as exc:
        results = [encode_error(exc)] * len(keys)
    except Exception as exc:  # noqa: BLE001  raised by the program that sent the work
        last = traceback.extract_tb(exc.__traceback__)[-1]
        msg = (
            f"A worker failed: {type(exc).__name__}: {exc} (line {last.lineno} of {last.filename})"
        )
        results = [encode_error(IngestionError(msg))] * len(keys)
    return pack(keys, results), not any(map(is_error, results))


def result_path(folder: Path, keys: Sequence[str]) -> Path:
    """The file of the results of some keys."""
    return folder / f"{digest(keys)}.npz"


def write_result(path: Path, packed: bytes) -> None:
    """Write a file of results in one step."""
    draft = path.with_suffix(f".{uuid.uuid4().hex}.new")
    draft.write_bytes(packed)
    draft.replace(path)


def pack(keys: Sequence[str], results: Sequence[bytes]) -> bytes:
    """Results with their keys as the bytes of an .npz file."""
    file = io.BytesIO()
    ends = np.cumsum([len(result) for result in results])
    np.savez(
        file, keys=np.array(keys, "S"), ends=ends, data=np.frombuffer(b"".join(results), np.uint8)
    )
    return file.getvalue()


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


def encode_error(error: Exception, **more: str) -> bytes:
    """An error as a result; it is not kept."""
    return b"e" + json.dumps(describe_error(error, **more)).encode()


def decode_error(result: bytes) -> Any:
    """The error in a result of `encode_error`."""
    return remade_error(json.loads(result[1:]))


# In the program that sends


class Results:
    """Results by key, in .npz files of a folder.

    Args:
        folder: The folder; None keeps nothing.
        shared: Where workers leave results until they are fetched, if it is another folder.
    """

    def __init__(self, folder: Path | None = None, *, shared: Path | None = None) -> None:
        self.folder = folder
        self._shared = shared
        self._where: dict[str, tuple[Path, int]] | None = None
        self._read = lru_cache(maxsize=64)(lambda path: unpack(path.read_bytes()))

    def get(self, key: str) -> bytes | None:
        """The result of a key; None if there is none."""
        if self.folder is None:
            return None
        if self._where is None:
            self._where = {}
            for path in sorted(self.folder.glob("*.npz")):
                with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
                    self._add(path, unpack_all(path.read_bytes())[0])
        if (place := self._where.get(key)) is None:
            return None
        path, at = place
        try:
            result = self._read(path)[at]
        except (
            OSError,
            ValueError,
            KeyError,
            zipfile.BadZipFile,
        ):  # torn by a crash of the machine
            return None
        return None if is_error(result) else result

    def find(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Those results of some keys that there are."""
        return {key: result for key in keys if (result := self.get(key)) is not None}

    def put(self, packed: bytes) -> None:
        """Keep what `perform` returned."""
        if self.folder is None:
            if self._shared is not None:
                result_path(self._shared, unpack_all(packed)[0]).unlink(missing_ok=True)
            return
        keys, _ = unpack_all(packed)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = result_path(self.folder, keys)
        write_result(path, packed)
        if self._where is not None:
            self._add(path, keys)

    def share(self) -> Path | None:
        """The folder in which workers leave results until they are fetched."""
        folder = self.folder or self._shared
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        return folder and folder.absolute()

    def _add(self, path: Path, keys: Sequence[str]) -> None:
        if self._where is not None:
            self._where.update((key, (path, at)) for at, key in enumerate(keys))

    def clear(self) -> None:
        """Remove results: what was made of them is live."""
        if self.folder is None:
            return
        for path in self.folder.glob("*.n??"):
            path.unlink(missing_ok=True)
        self._where = {}


def is_error(result: bytes) -> bool:
    """Whether a result is an error."""
    return result.startswith(b"e")


def unpack(packed: bytes) -> list[bytes]:
    """The results in what `pack` returned."""
    return unpack_all(packed)[1]


def unpack_all(packed: bytes) -> tuple[list[str], list[bytes]]:
    """The keys and the results in what `pack` returned."""
    with np.load(io.BytesIO(packed)) as file:
        keys = file["keys"].tolist()
        data = file["data"].tobytes()
        ends = file["ends"].tolist()
    return [key.decode() for key in keys], [
        data[start:end] for start, end in zip([0, *ends], ends, strict=False)
    ]


class Processes:
    """The processes of a Document as an executor.

    Args:
        threads: One thread for each process.
        call: Calls a function in a process, and raises OSError if that ends.
    """

    def __init__(self, threads: Executor, call: Callable[..., Any]) -> None:
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
        holds: Whether a worker holds results until they are fetched.
    """

    executor: Any
    width: Callable[[], int]
    dumps: Callable[[Any], object]
    lost: tuple[type[Exception], ...] = ()
    close: Callable[[], object] = field(default=lambda: None)
    processes: int = 0
    holds: bool = False

    def run(
        self, work: RemoteWork, tasks: Iterable[Task], results: Results
    ) -> Iterator[list[tuple[Task, bytes]]]:
        """Yield tasks with their results as they finish, in groups; a bounded number of batches is
        in flight.

        A batch whose worker ends is sent again in halves, so that what kills workers fails alone.

        Args:
            work: What is done with them.
            tasks: Any number; read as they are sent.
            results: Where results are found, and kept.
        """
        shared = results.share() if self.holds else None
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
                    finished, missing = _split_finished(results, batch)
                    yield finished
                    if missing:
                        waiting[self._submit(work, missing, shared)] = missing, tries
                if not waiting:
                    return
                done, _ = wait(waiting, _POLL_S, FIRST_COMPLETED)
                raise_if_canceled()
                for future in done:
                    batch, tries = waiting.pop(future)
                    packed = self._received(future)
                    if packed is not None:
                        results.put(packed)
                        yield list(zip(batch, unpack(packed), strict=True))
                    elif len(batch) == 1 and tries == _TRIES:
                        yield [(batch[0], encode_error(work.error(_ENDED)))]
                    else:
                        again += _to_send_again(batch, tries)
        finally:
            for future in waiting:
                future.cancel()

    def _received(self, future: Future[bytes]) -> bytes | None:
        """What came back; None if the worker ended."""
        try:
            return future.result()
        except self.lost:
            return None
        except (Exception, CancelledError) as exc:
            raise _broken(exc) from exc

    def _submit(
        self, work: RemoteWork, tasks: Sequence[Task], shared: Path | None
    ) -> Future[bytes]:
        keys = [task.key for task in tasks]
        payloads = [task.payload for task in tasks]
        try:
            future: Future[bytes] = self.executor.submit(perform, *work[:3], shared, keys, payloads)
        except (RuntimeError, BrokenExecutor) as exc:  # shut down
            raise _broken(exc) from exc
        return future


def _split_finished(
    results: Results, batch: Sequence[Task]
) -> tuple[list[tuple[Task, bytes]], list[Task]]:
    """The tasks of a batch that have results already, with these, and the other ones."""
    stored = results.find([task.key for task in batch])
    finished = [(task, stored[task.key]) for task in batch if task.key in stored]
    return finished, [task for task in batch if task.key not in stored]


def _to_send_again(batch: list[Task], tries: int) -> list[tuple[list[Task], int]]:
    middle = len(batch) // 2
    return [(batch[:middle], 1), (batch[middle:], 1)] if middle else [(batch, tries + 1)]


def _broken(exc: BaseException) -> IngestionError:
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
