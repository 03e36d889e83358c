"""What a step does, counted: calls, and files that it opens. Counts do not depend on the machine,
as times do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import lazyrag

PACKAGE = str(Path(lazyrag.__file__).parent)


@dataclass(frozen=True)
class Counts:
    """What a step did.

    Args:
        calls: Calls of functions of the package, in all threads; comprehensions and generator
            expressions aside, which are frames in some versions of Python only.
        opened: Files that were opened, each as often as it was.
    """

    calls: int
    opened: tuple[str, ...]


_opened: list[str] | None = None


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_hear)


def count(step: Callable[[], object]) -> Counts:
    """Run a step and count what it does."""
    global _opened  # noqa: PLW0603  an audit hook stays for as long as the process
    calls = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        code = frame.f_code
        if (
            event == "call"
            and not code.co_name.startswith("<")
            and code.co_filename.startswith(PACKAGE)
        ):
            calls += 1

    opened = _opened = []
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        _opened = None
    return Counts(calls, tuple(opened))


def over(counted: Mapping[str, int], bounds: Mapping[str, int]) -> list[str]:
    """Print counts beside their bounds; returns the names of those that are over."""
    for name, bound in bounds.items():
        print(f"{name:52} {counted[name]:9,}  bound {bound:,}")
    return [name for name, bound in bounds.items() if counted[name] > bound]
