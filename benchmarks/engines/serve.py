"""An engine in a process of its own, asked over a pipe: ``python serve.py lexical Bm25s``.

A line on standard input is a JSON object: ``call``, a method of the engine, with ``args``, its
keywords, or with ``jobs``, a list of arguments for one call each. The answer is a line as well:
``result``; for jobs the seconds of each call, measured here, so that neither pipe nor waking up is
in them; or ``error``. The engine is made before the first line is read, and says which versions it
runs. What engines print goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from typing import IO, Any


def answer(engine: Any, request: dict[str, Any]) -> Any:
    """One call; or one for each job, with the seconds that each took."""
    method = getattr(engine, request["call"])
    if "jobs" not in request:
        return method(**request.get("args", {}))
    jobs = request["jobs"]
    method(jobs[0])  # what ran before in another process has taken the caches
    seconds = []
    for job in jobs:
        started = time.perf_counter()
        method(job)
        seconds.append(time.perf_counter() - started)
    return seconds


def serve(kind: str, name: str, requests: IO[str], answers: IO[str]) -> None:
    """Answer until the input ends."""

    def tell(**told: Any) -> None:
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    try:
        engine = getattr(importlib.import_module(kind), name)()
        tell(result=engine.versions())
    except ImportError as exc:
        tell(error=f"{type(exc).__name__}: {exc}")
        return
    for line in requests:
        try:
            tell(result=answer(engine, json.loads(line)))
        except Exception:  # noqa: BLE001  told to the one who asked
            tell(error=traceback.format_exc())


if __name__ == "__main__":
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.argv[2], sys.stdin, pipe)
