"""A program that is started hundreds of times: one process imports everything and forks another for
each start.

A request is a line of JSON and stands for a fresh start of the program: nothing but files goes from
one to the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.interpreter import ROOT


class Starter:
    """The process that forks.

    Args:
        module: The program; it calls `serve`.
        variables: Added to its environment.
    """

    def __init__(self, module: str, **variables: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **variables}
        # a process that forks has one thread
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", module]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment
        )

    def start(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Start the program; return the signal that ended it, or 0, and its result, which is empty
        after a signal.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        result: dict[str, Any] = {}
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # a signal ended the program while it wrote its result
                continue
            if "status" in message:
                return os.WTERMSIG(message["status"]) if os.WIFSIGNALED(
                    message["status"]
                ) else 0, result
            result = message["result"]
        msg = f"The process that starts the others has ended ({self._process.wait()})."
        raise RuntimeError(msg)

    def close(self) -> None:
        """End it."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer requests from standard input on standard output, each in a fork."""
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if not process:
            print(json.dumps({"result": answer(request)}), flush=True)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        print("\n" + json.dumps({"status": status}), flush=True)
