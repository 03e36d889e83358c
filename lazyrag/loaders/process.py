"""Child processes for untrusted files: they answer one call at a time over pipes, within limits.

A child needs no ``if __name__ == "__main__":`` in the program, and sends JSON or bytes, never
pickles.
"""

from __future__ import annotations

import atexit
import importlib
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from lazyrag.errors import IngestionError, LoaderEndedError, LoadError, describe_error, remade_error
from lazyrag.loaders import base
from lazyrag.loaders.base import LoadLimits, over_limit

IDLE_S = 60.0
"""Seconds for which an unused process is kept."""
_POLL_S = 0.05
_CLOSE_POLL_S = 0.002  # of a process that has half of its memory
_PARENT_POLL_S = 1.0
_HEAD = struct.Struct("<QQ")  # bytes of JSON, and of other data
_LARGE = 160 << 20  # bytes that a process may hold when it is kept for other files
_START = (
    "import json,sys;sys.path[:]=json.loads(sys.argv[1]);from lazyrag.loaders.process import"
    " serve;serve(*sys.argv[2:])"
)
_DATA = b'["data", null]'
_ENDED = "The process that loaded the file ended: its loader crashed, or the memory was not enough."
_idle: dict[str, deque[ChildProcess]] = {}  # by target, warm
_running: set[ChildProcess] = set()


class ChildProcess:
    """A process that calls methods of an object; one thread at a time may use it.

    Args:
        target: What makes the object there, as ``module:attribute``.

    Raises:
        IngestionError: If it does not start.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.count = 0
        self._program = os.getpid()
        self._lock = threading.Lock()
        self._kept_until = math.inf  # an Event may hang after an interrupt
        self._until = self._cpu_s = self._cpu_until = math.inf
        self._limits = LoadLimits()
        self._exceeded: LoadError | None = None
        import tempfile  # slow to import

        # for its temporary files, also when it is killed
        self._folder = tempfile.mkdtemp(prefix="lazyrag-")
        command = [
            sys.executable,
            "-P",
            "-c",
            _START,
            json.dumps([*map(str, sys.path)]),
            target,
            self._folder,
        ]
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as exc:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise IngestionError(f"No loading process could be started ({exc.strerror}).") from exc
        _running.add(self)
        try:
            self._answer()
        except (OSError, EOFError) as exc:
            self.end()
            raise IngestionError(
                "No loading process could be started; see the error output."
            ) from exc
        except BaseException:
            self.end()
            raise
        threading.Thread(target=self._watch, name="lazyrag loading", daemon=True).start()

    def call(
        self,
        method: str,
        *args: Any,
        data: bytes = b"",
        limits: LoadLimits | None = None,
        cpu_s: float = math.inf,
    ) -> Any:
        """Call a method of the object, and return its value.

        Args:
            method: Its name.
            args: Its arguments, JSON values.
            data: Its last argument, if it is not empty.
            limits: Limits of time and memory; None for none.
            cpu_s: Most seconds of the processor, where the system reports them.

        Raises:
            LoadError: If it takes more time of the processor.
            LoaderEndedError: If the process ends, or exceeds another limit.
            Exception: What the method raised; one of another package has its name and message.
        """
        self.count += 1
        self._limits = limits or LoadLimits(time_s=0, memory_bytes=0)
        self._cpu_s = cpu_s
        self._cpu_until = cpu_s + (cpu_seconds(self._process.pid) if cpu_s < math.inf else 0.0)
        try:
            self._extend()
            _send(cast("BinaryIO", self._process.stdin), json.dumps([method, *args]).encode(), data)
            return self._answer()
        except (OSError, EOFError) as exc:
            self.end()
            raise self._exceeded or LoaderEndedError(_ENDED) from exc
        except MemoryError as exc:
            self.end()
            raise _too_much_memory(self._limits) from exc
        except Exception:
            raise
        except BaseException:  # the answer may still arrive
            self.end()
            raise
        finally:
            self._until = self._cpu_until = math.inf

    def _extend(self) -> None:
        seconds = self._limits.time_s
        self._until = math.inf if seconds is None else time.monotonic() + seconds

    def _answer(self) -> Any:
        while True:
            (kind, value), data = _receive(cast("BinaryIO", self._process.stdout))
            if kind == "page":  # each page of a scan has the time of a file
                self._extend()
            elif kind == "error":
                raise remade_error(value)
            elif kind == "memory":
                raise MemoryError
            else:
                return data if kind == "data" else value

    def _watch(self) -> None:
        """Kill the process when it exceeds a limit, and end it when nothing uses it."""
        while True:
            with self._lock:
                if time.monotonic() > self._kept_until:
                    self.end()
                    return
            if self._process.poll() is not None:
                kill_group(self._process)  # a process that it left behind would hold its pipe open
                return
            seconds = self._limits.time_s
            most = self._limits.memory_bytes or math.inf
            resident = 0 if most == math.inf else resident_bytes(self._process.pid)
            if time.monotonic() > self._until:
                error = over_limit(
                    f"Loading the file took longer than {seconds:g} s", "time_s", seconds or 0
                )
                self._exceeded = LoaderEndedError(str(error))
            elif resident > most:
                self._exceeded = _too_much_memory(self._limits)
            elif self._cpu_until < math.inf and cpu_seconds(self._process.pid) > self._cpu_until:
                problem = (
                    f"Reading the file took more than {self._cpu_s:.3g} s of the processor, too"
                    " much for its size."
                )
                self._exceeded = LoadError(
                    f"{problem} Split it, or allow more: PdfLoader(max_seconds=...)."
                )
            if self._exceeded is not None:
                kill_group(self._process)
                return
            # a hundred megabytes may be taken between two looks
            time.sleep(_POLL_S if resident < most / 2 else _CLOSE_POLL_S)

    @property
    def is_alive(self) -> bool:
        """Whether it accepts calls."""
        return self._program == os.getpid() and self._process.poll() is None

    def reserve(self) -> bool:
        """Use the process again; return whether it still runs."""
        with self._lock:
            self._kept_until = math.inf
        return self.is_alive

    def keep(self) -> bool:
        """Keep the process for a while, unless it has ended or holds much memory; return whether it
        is kept.
        """
        if not self.is_alive or resident_bytes(self._process.pid) > _LARGE:
            self.end()
            return False
        self._limits = LoadLimits(time_s=0, memory_bytes=0)
        self._kept_until = time.monotonic() + IDLE_S
        return True

    def end(self) -> None:
        """Kill it, with its subprocesses. Idempotent."""
        if self._program != os.getpid():  # of the program that forked this one
            return
        kill_group(self._process)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what it has not read
                cast("BinaryIO", pipe).close()
        _running.discard(self)
        shutil.rmtree(self._folder, ignore_errors=True)


def borrow(target: str) -> ChildProcess:
    """A process for a target, a warm one if there is one; see `give_back`.

    Raises:
        IngestionError: If none can be started.
    """
    warm = _idle.setdefault(target, deque())
    while True:
        try:
            process = warm.pop()
        except IndexError:
            return ChildProcess(target)
        if process.reserve():
            return process


def give_back(process: ChildProcess) -> None:
    """Keep a process warm for others, unless it has ended or holds much memory."""
    if process.keep():
        _idle[process.target].append(process)


@atexit.register
def end_all() -> None:
    """End all processes."""
    while _running:
        _running.pop().end()


def _forget_all() -> None:
    """After a fork: the processes are those of the program that forked this one."""
    _idle.clear()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def resident_bytes(pid: int | None) -> int:
    """Return the resident memory of a process; 0 on systems that do not report it.

    Example:
        >>> resident_bytes(None)
        0
    """
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


def cpu_seconds(pid: int) -> float:
    """Return the time of the processor that a process took; 0 on systems that do not report it."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def _too_much_memory(limits: LoadLimits) -> LoaderEndedError:
    most = limits.memory_bytes or 0
    problem = f"Loading the file took more than {most / (1 << 20):,.4g} MiB"
    return LoaderEndedError(str(over_limit(problem, "memory_bytes", most)))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its process group."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _send(pipe: BinaryIO, text: bytes, data: bytes = b"") -> None:
    pipe.write(_HEAD.pack(len(text), len(data)))
    pipe.write(text)
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO) -> tuple[Any, bytes]:
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    length, more = _HEAD.unpack(head)
    text = pipe.read(length)
    data = pipe.read(more)
    if len(text) + len(data) < length + more:
        raise EOFError
    return json.loads(text), data


# In the child


def serve(target: str, folder: str) -> None:
    """Answer calls until the pipe is closed: the entry point of a child.

    Args:
        target: See `ChildProcess`.
        folder: For temporary files.
    """
    source = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # nothing else is printed among the answers
    # Ctrl-C reaches all processes of a terminal; the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        with suppress(OSError):
            os.setsid()  # so that killing this process kills its subprocesses
    with suppress(OSError):  # where memory runs out, this process ends first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    import tempfile  # slow to import

    tempfile.tempdir = folder
    threading.Thread(target=_end_with, args=(os.getppid(), folder), daemon=True).start()
    base.page_recognized = lambda: _send(answers, b'["page", null]')
    module, _, name = target.partition(":")
    served = getattr(importlib.import_module(module), name)()
    _send(answers, b'["value", null]')
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            (method, *args), data = _receive(source)
            _answer_call(answers, served, method, [*args, data] if data else args)
    shutil.rmtree(folder, ignore_errors=True)


def _answer_call(answers: BinaryIO, served: Any, method: str, args: list[Any]) -> None:
    try:
        value = getattr(served, method)(*args)
        text, data = (
            (_DATA, value)
            if isinstance(value, bytes)
            else (json.dumps(["value", value]).encode(), b"")
        )
    except Exception as exc:  # noqa: BLE001  raised again in the parent
        lacks_memory = isinstance(exc, MemoryError) or isinstance(exc.__cause__, MemoryError)
        text = json.dumps(
            ["memory", None] if lacks_memory else ["error", describe_error(exc)]
        ).encode()
        data = b""
    _send(answers, text, data)


def _end_with(parent: int, folder: str) -> None:
    """End this process when its parent is gone, even while it loads a file."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
