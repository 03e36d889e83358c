"""Engines in processes of their own: ours beside peers, whose packages must not mix with ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from typing import Self

SERVE = Path(__file__).resolve().parent / "engines" / "serve.py"
ENVIRONMENTS = machine.ROOT / "build"
ADVICE = "`make bench-peers` installs the peers"


class EngineError(RuntimeError):
    """An engine failed, or cannot be had; the message is its own."""


class Engine:
    """A class of ``benchmarks/engines`` in a process of its own.

    Args:
        kind: Its module, such as ``"lexical"``.
        name: Its class.
        environment: A folder of ``build/`` whose interpreter runs it; None for the one that runs
            this. Where it is not installed, the one that runs this may have the packages as well.
        root: The checkout whose lazyrag it imports; None for this one.

    Raises:
        EngineError: If its packages are not there.
    """

    def __init__(
        self, kind: str, name: str, environment: str | None = None, *, root: Path | None = None
    ) -> None:
        python = Path(sys.executable)
        if environment is not None and (ENVIRONMENTS / environment / "bin" / "python").exists():
            python = ENVIRONMENTS / environment / "bin" / "python"
        paths = [str(root or machine.ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [str(python), str(SERVE), kind, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "PYTHONUTF8": "1",
            },
        )
        self.name = name
        try:
            self.versions: dict[str, str] = self._read()
        except EngineError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, method: str, **args: Any) -> Any:
        """What a method returns, as JSON carries it."""
        return self._ask({"call": method, "args": args})

    def times(self, method: str, jobs: Sequence[Any]) -> list[float]:
        """The seconds of a call for each job, as the engine's process measures them."""
        return list(self._ask({"call": method, "jobs": list(jobs)}))

    def close(self) -> None:
        """End the process; what it held is free."""
        if self._process.stdin is not None and self._process.stdout is not None:
            with suppress(BrokenPipeError):  # it may have ended with a question unread
                self._process.stdin.close()
            self._process.stdout.close()
        self._process.wait()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: reading tells how
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            msg = f"The process of {self.name} ended with status {self._process.wait()}; see what it printed above."
            raise EngineError(msg)
        told = json.loads(line)
        if "error" in told:
            raise EngineError(told["error"])
        return told["result"]


def open_engines(
    stack: ExitStack, kind: str, wanted: dict[str, tuple[str, str | None]]
) -> tuple[dict[str, Engine], dict[str, str]]:
    """Those engines that can be had; of the others it is printed why not.

    Args:
        stack: Closes them.
        kind: Their module.
        wanted: By the name that tables show, class and environment.

    Returns:
        The engines and, by name, why the others are left out.
    """
    there: dict[str, Engine] = {}
    left_out: dict[str, str] = {}
    for name, (of, environment) in wanted.items():
        try:
            there[name] = stack.enter_context(Engine(kind, of, environment))
        except EngineError as exc:
            left_out[name] = str(exc)
            print(f"{name} is left out: {exc} ({ADVICE})")
    return there, left_out
