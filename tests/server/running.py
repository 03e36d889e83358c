"""`lazyrag serve` as a process, for tests and benchmarks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

from lazyrag import Document
from lazyrag.server.core.config import make_state
from lazyrag.server.core.guard import worker_of
from lazyrag.server.jobs import Job, Jobs

READY_S = 120.0


@dataclass
class Running:
    """A running service.

    Args:
        process: The supervisor.
        url: Where it is.
        log: Its standard error output.
    """

    process: subprocess.Popen[str]
    url: str
    log: Path

    def get(self, path: str, **more: Any) -> httpx.Response:
        """GET a path."""
        return httpx.get(f"{self.url}{path}", timeout=60, **more)

    def wait_until_ready(self) -> None:
        """Wait until every set can be searched."""
        try:
            wait_for(lambda: self.get("/readyz").status_code == 200, "readiness")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log.read_text()[-2000:]}") from error

    def children(self, role: str = "") -> list[int]:
        """Process ids of its children, or of those with a role."""
        return [pid for pid in children_of(self.process.pid) if role in name_of(pid)]


@contextmanager
def serving(
    folder: Path,
    *options: str,
    config: Path | None = None,
    program: Sequence[str] = (sys.executable, "-m", "lazyrag"),
) -> Iterator[Running]:
    """Serve a folder, or a configuration file, until the block ends; its log is beside it."""
    log = folder.parent / f"{folder.name}.log"
    target = config or folder
    command = [*program, "serve", str(target), *options]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "COLUMNS": "80"},
        )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if "http://" not in line:
            raise AssertionError(f"no URL in {line!r}; {log.read_text()}")
        yield Running(process, line[line.index("http://") :].split()[0].rstrip("."), log)
    finally:
        children = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            for pid in children:
                if is_running(pid):
                    os.kill(pid, signal.SIGKILL)
            if process.stdout:
                process.stdout.close()


def run_jobs(docs: Document) -> list[Job]:
    """Run the waiting jobs of the set ``notes``, as the writer process does; its state is beside
    the store. Returns them in the order in which they were submitted: some run beside others.
    """
    jobs = Jobs(docs)
    state = Path(jobs.file.path).parent / "state"
    make_state(state)
    worker = worker_of("notes", docs, state)
    earlier = {job.id for job in jobs.list(limit=10_000) if job.is_finished}
    while worker.run_one() is not None:
        pass
    finished = [job for job in jobs.list(limit=10_000) if job.is_finished]
    return [job for job in reversed(finished) if job.id not in earlier]


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
    """Wait until a condition holds; errors of the connection count as that it does not."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            raise AssertionError(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process (Linux)."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def name_of(pid: int) -> str:
    """The name of a process, such as "lazyrag web"; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
