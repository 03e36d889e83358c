"""How a thread that works for another one learns that it was interrupted.

Ctrl-C reaches the main thread alone. Who hands work to threads gives them an event, and sets it then; what waits long
in such a thread looks at it.
"""

from __future__ import annotations

import threading

_of_this_thread = threading.local()


def watch(stopping: threading.Event) -> None:
    """Tell this thread by which event it learns that its work is no longer wanted."""
    _of_this_thread.stopping = stopping


def stopping() -> threading.Event | None:
    """The event of this thread; None where it works for nobody.

    Example:
        >>> stopping() is None
        True
    """
    found: threading.Event | None = getattr(_of_this_thread, "stopping", None)
    return found


def check() -> None:
    """Stop here if this thread's work is no longer wanted.

    Raises:
        KeyboardInterrupt: If it is not.
    """
    event = stopping()
    if event is not None and event.is_set():
        raise KeyboardInterrupt
