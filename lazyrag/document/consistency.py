"""Reading one state of several Documents, whatever becomes of them meanwhile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from lazyrag.document.builder import Builder
from lazyrag.errors import RetrievalError, StaleNodeError, StoreError

R = TypeVar("R")

_TRIES = 3
_LOCK_S = 0.1
_PATIENCE_S = 10.0
_LONGEST_PAUSE_S = 0.05


def consistent_read(builders: Sequence[Builder], read: Callable[[], R]) -> R:
    """What a read gives of one state of each Document.

    What is live when it begins stays what it sees, whatever becomes live meanwhile. Only where something was removed
    under it, or had to be built in the middle of it, it is done again. A read within another one is a part of that:
    only the whole can be done again.

    Args:
        builders: Of the Documents that are read.
        read: Reads them. Where others change them all the time, they are kept from it for the last tries, as far as
            they are in this process.

    Raises:
        RetrievalError: If the read itself redefines groups, whenever it is done.
        StoreError: If other programs remove things all the time.
    """
    builders = list({id(builder): builder for builder in builders}.values())
    if builders and all(builder.views.is_pinned for builder in builders):
        return read()
    deadline = time.monotonic() + _PATIENCE_S
    for tries in itertools.count(1):
        with ExitStack() as stack:
            paused = tries > _TRIES and _take(stack, builders)
            for _ in range(_TRIES if paused else 1):
                done, kept = _try(builders, read)
                if done is not None:
                    return done[0]
        if paused and not kept:  # so it was done by what the question itself calls
            msg = "A similarity function or embed callable redefined a node group while the question was answered."
            raise RetrievalError(msg)
        if tries > 2 * _TRIES and time.monotonic() > deadline:
            msg = f"{builders[0].where} is being changed faster than it can be read. Ask again when it is changed less."
            raise StoreError(msg)
        if tries > _TRIES:
            time.sleep(min(_LONGEST_PAUSE_S, 0.001 * 2**tries))
    raise AssertionError  # the count has no end


def _try(builders: Sequence[Builder], read: Callable[[], R]) -> tuple[tuple[R] | None, bool]:
    """What a read gives, if it was of one state; and whether that state was kept to.

    Raises:
        StoreError: As the read does, if nothing has changed meanwhile.
        StaleNodeError: The same.
        RetrievalError: The same.
    """
    before = [one.removals for one in builders]
    with ExitStack() as pins:
        pinned = [pins.enter_context(builder.views.pinned()) for builder in builders]
        states = [pin.view.tree.changes for pin in pinned]
        try:
            result = read()
        except (StoreError, StaleNodeError, RetrievalError):
            kept = not any(pin.moved for pin in pinned)
            changed = before != [one.removals for one in builders] or states != [
                one.ledger.tree.changes for one in builders
            ]
            if kept and not changed:
                raise
            return None, kept
        kept = not any(pin.moved for pin in pinned)
        is_whole = kept and before == [one.removals for one in builders]
        return ((result,) if is_whole else None), kept


def _take(stack: ExitStack, builders: Sequence[Builder]) -> bool:
    """Take the locks of builders, and then those of their definitions; none, if one cannot be had soon.

    Who holds a lock may be waiting for another one: a transform may ask another Document, or define a group.
    """
    locks = {id(lock): lock for builder in sorted(builders, key=id) for lock in builder.locks[:1]}
    locks |= {id(lock): lock for builder in builders for lock in builder.locks[1:]}
    with ExitStack() as taken:
        for lock in locks.values():
            if not lock.acquire(timeout=_LOCK_S):
                return False
            taken.callback(lock.release)
        stack.push(taken.pop_all())
    return True
