"""Kill processes of the service at random points, and check that no job is lost, run twice or
stuck.

    python tests/server/kills.py [N] [--seed S]

For each kill, jobs are submitted, and a web process, the writer or the supervisor is killed with
SIGKILL at a random moment; a killed supervisor is started again, as systemd would. The jobs have to
end within 30 seconds. A kill may interrupt the one job that runs, so the number of second attempts
is at most that of the kills. At the end, the Document has exactly the submitted texts, and `verify`
finds no problem. The exit status is 1 if any of this does not hold.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2 as httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lazyrag import Document
from lazyrag.server.core.config import open_set, read_config
from lazyrag.server.jobs import Jobs
from tests.server.running import Running, serving, wait_for

STUCK_S = 30.0
JOBS = 3  # per kill
WORDS = 4000  # about a quarter of a second for each job


def run(kills: int, seed: int) -> int:
    """Kill so many times; print figures and return the exit status."""
    chance = random.Random(seed)
    counts: collections.Counter[str] = collections.Counter()
    gaps: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch) / "files"
        folder.mkdir()
        (folder / "tea.txt").write_text("Green tea is brewed at eighty degrees.")
        running = stack.enter_context(serving(folder, "--port", "0", "--processes", "2"))
        options = ("--port", running.url.rpartition(":")[2], "--processes", "2")
        running.wait_until_ready()
        [(name, chosen)] = read_config(folder).sets.items()
        docs: Document = stack.enter_context(open_set(name, chosen, folder, write=False))
        jobs = []
        for number in range(kills):
            began = time.monotonic()
            batch = [f"{number}-{one}" for one in range(JOBS)]
            submitted = [
                Jobs(docs).submit(
                    "add_texts", {"texts": {one: f"Text {one} of tea. " * WORDS}}, key=one
                )
                for one in batch
            ]
            time.sleep(chance.random() ** 2)
            role = chance.choice(["web", "writer", "writer", "supervisor"])
            counts[role] += kill(running, role, chance)
            if role == "supervisor":
                stack.enter_context(restarted(running, folder, options))
            gaps.append(first_answer(running))
            for job in submitted:
                done = Jobs(docs).wait(job.id, timeout_s=max(began + STUCK_S - time.monotonic(), 0))
                if not done.is_finished:
                    print(f"kill {number} of {role}: {done} is stuck")
                    return 1
            jobs += [Jobs(docs).get(job.id) for job in submitted]
        wait_for(
            lambda: not Jobs(docs).list(state="WAITING") and not Jobs(docs).list(state="WORKING"),
            "idle",
            STUCK_S,
        )
        running.process.send_signal(signal.SIGTERM)
        status = running.process.wait(60)
        problems = [str(one) for one in docs.maintenance.verify()]
        texts = {node.path for node in docs.get_nodes("lazyllm_root")}
        expected = {
            "tea.txt",
            *(f"{number}-{one}" for number in range(kills) for one in range(JOBS)),
        }
    problems += [] if texts == expected else [f"documents differ: {sorted(texts ^ expected)[:5]}"]
    problems += [str(job) for job in jobs if job.state != "SUCCESS"]
    again = sum(job.attempts - 1 for job in jobs)
    problems += (
        [f"{again} second attempts"] if again > counts["writer"] + counts["supervisor"] else []
    )
    problems += [f"the supervisor ended with {status}"] if status else []
    print(
        f"{dict(counts)}; {len(jobs)} jobs, {again} of them interrupted and continued; seed {seed}"
    )
    longest = max((job.updated - job.created).total_seconds() for job in jobs)
    print(f"submission to end: at most {longest:.1f} s; kill to answer: at most {max(gaps):.2f} s")
    print("\n".join(problems[:20]) or "no job lost, none run twice, none stuck")
    return 1 if problems else 0


def kill(running: Running, role: str, chance: random.Random) -> int:
    """Kill a process of a role; returns how many there were to kill."""
    pids = [running.process.pid] if role == "supervisor" else running.children(role)
    with suppress(ProcessLookupError, IndexError):
        os.kill(chance.choice(pids), signal.SIGKILL)
        return 1
    return 0


def restarted(running: Running, folder: Path, options: tuple[str, ...]) -> ExitStack:
    """Start the service again at the same port."""
    stack = ExitStack()
    running.process.wait()
    running.process = stack.enter_context(serving(folder, *options)).process
    return stack


def first_answer(running: Running) -> float:
    """Seconds until a web process answers."""
    began = time.monotonic()
    while time.monotonic() < began + STUCK_S:
        with suppress(httpx.TransportError):
            if running.get("/healthz").status_code == 200:
                break
        time.sleep(0.01)
    return time.monotonic() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kills", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(run(given.kills, given.seed))
