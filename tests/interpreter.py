"""Fresh interpreters: what a reader sees who runs a script or a page."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter: this one's registries hold what other tests have entered."""
    # The checkout is on the path whether or not the package is installed; UTF-8 whatever the
    # terminal speaks.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,  # for a program that hangs; machines that do much else are slow
        check=False,
    )


@contextmanager
def waiting(script, *arguments):
    """A process at the point where it is ready and waits for a line; it does not outlive the
    block.
    """
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def let_go(*processes):
    """Give each its line, all at the same time; returns how they ended."""
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    return [process.wait(120) for process in processes]
