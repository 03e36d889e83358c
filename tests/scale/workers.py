"""Kill workers that write the stores, their driver and the PostgreSQL server at random points; what
is stored has to be the same.

    python tests/scale/workers.py [--kills 10] [--per-run 5] [--seed S]

Each run ingests a folder into a schema of a server that is started for it, by a driver with two
workers of its own. Of four kills two hit the worker that did something last, one the driver, and
one all processes of the server; the driver and the server are then started again. At the end the
export has to be byte-equal to that of one process over a file, and no text may be embedded twice
but those that were in the workers' hands when these were killed: a killed server costs none. The
exit status is 1 if any of this does not hold.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from run import (
    WORKERS,
    count_notes,
    drive,
    exported,
    ingest_and_kill,
    last_workers,
    noted,
    write_corpus,
)

from tests.live.serving import free_port, postgres_server

VICTIMS = ("worker", "driver", "worker", "engine")
IN_HAND = 32
"""Texts that a worker has embedded, and not yet put into the cache: as lazyrag/models/embedding.py
has it for models that take one text at a time."""


class Engine:
    """A PostgreSQL server that can be killed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._port = free_port()
        self._start()

    def _start(self) -> None:
        self._server = self._stack.enter_context(postgres_server(self._folder, self._port))
        self.address = self._server.address

    def restart(self) -> None:
        """Kill all its processes, which are groups of their own, and start it again."""
        pid = self._server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._server.process.wait()
        self._start()


def kill_last_worker(log: Path, driver: int) -> bool:
    """Kill the worker that did something last; False if it has ended."""
    for pid in last_workers(log):
        if pid != driver:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def main() -> int:
    """Kill so many times; print figures and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--per-run", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    chance = random.Random(given.seed)
    scratch = Path(tempfile.mkdtemp(prefix="lazyrag-workers-"))
    scratch.chmod(0o755)  # the server runs as another user
    os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
    folder = scratch / "files"
    log = scratch / "log"
    write_corpus(folder)
    log.mkdir()
    if drive(folder, scratch / "none.db", "none", log, scratch / "expected").wait():
        return 1
    expected = exported(scratch / "expected")
    reference = noted(log)
    failed = False
    with ExitStack() as stack:
        engine = Engine(scratch / "postgres", stack)

        def kill(victim: str, driver: subprocess.Popen[bytes]) -> bool:
            if victim == "worker":
                return kill_last_worker(log, driver.pid)
            engine.restart()
            return True

        killed = 0
        attempt = 0
        while killed < given.kills:
            shutil.rmtree(log)
            log.mkdir()
            attempt += 1  # a kill may come too late
            started = time.monotonic()
            numbers = range(killed, min(killed + given.per_run, given.kills))
            victims = [VICTIMS[number % len(VICTIMS)] for number in numbers]
            export = scratch / f"export-{attempt}"
            url = f"{engine.address}?schema=kills_{attempt}"

            def start(url: str = url, export: Path = export) -> subprocess.Popen[bytes]:
                return drive(folder, url, "workers", log, export)

            status, counts = ingest_and_kill(
                start, kill, victims, log, count_notes(reference), chance
            )
            killed += counts.total()
            again = len(noted(log)["embed"]) - len(reference["embed"])
            is_same = status == 0 and exported(export) == expected
            # a killed driver ends its workers
            is_within = again <= IN_HAND * (counts["worker"] + WORKERS * counts["driver"])
            failed |= not (is_same and is_within)
            print(
                f"{dict(counts)} killed, {time.monotonic() - started:.1f} s, export"
                f" {'equal' if is_same else f'DIFFERENT, status {status}'}, {again} texts embedded"
                f" again{'' if is_within else ', TOO MANY'}",
                flush=True,
            )
    if not failed:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
