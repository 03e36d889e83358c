"""Read transactions: call a function with a snapshot, again if that state was removed meanwhile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from lazyrag.errors import EmbeddingError, RetrievalError, StaleNodeError, StoreError
from lazyrag.progress.blocks import contextmanager
from lazyrag.read.snapshot import ActiveRead, R, SnapshotSource
from lazyrag.read.source import LiveState, Needs

_TRIES = 3
_LOCK_S = 0.1
_PATIENCE_S = 10.0
_MAX_PAUSE_S = 0.05


_ACTIVE: ContextVar[ActiveRead | None] = ContextVar("lazyrag_active_read", default=None)


def read(sources: Mapping[SnapshotSource, Needs], body: Callable[[Any], R]) -> R:
    """Call a function with a snapshot of some sources.

    The body sees the state that is live when the read begins. If something of it was removed
    meanwhile, or had to be built in the middle, the body is called again. A read inside another one
    joins it, if that covers its sources.

    Args:
        sources: The sources, with what has to be built before.
        body: Called with the `Snapshot`, perhaps several times, so it has no other effects.

    Raises:
        RetrievalError: If the body itself redefines groups, whenever it is called.
        StoreError: If other programs remove things all the time.
    """
    outer = _ACTIVE.get()
    if outer is not None:
        if outer.covers(sources):
            return body(outer.open(sources))
        if not outer.is_open:
            outer = None
    done, _ = _attempt(sources, outer, body)
    return _again(sources, outer, body) if done is None else done[0]


def is_reading(sources: Mapping[SnapshotSource, Needs]) -> bool:
    """Whether this thread is in a read of all these sources; in any read if there are none."""
    active = _ACTIVE.get()
    return active is not None and active.covers(sources)


def _attempt(
    sources: Mapping[SnapshotSource, Needs], outer: ActiveRead | None, body: Callable[[Any], R]
) -> tuple[tuple[R] | None, bool]:
    """The body's result for one state, or None if the state became invalid; and whether the body
    itself moved it.
    """
    active = ActiveRead(outer)
    snapshot = active.open(sources)
    try:
        _ACTIVE.set(active)
        result = body(snapshot)
    except (
        StoreError,
        StaleNodeError,
        RetrievalError,
        EmbeddingError,
    ):  # the last when a model is switched
        if active.is_current():
            raise
        return None, active.has_moved()
    finally:
        active.is_open = False
        _ACTIVE.set(outer)
    if active.is_valid():
        return (result,), False
    return None, active.has_moved()


def _again(
    sources: Mapping[SnapshotSource, Needs], outer: ActiveRead | None, body: Callable[[Any], R]
) -> R:
    """Repeat until one state stays valid; after some tries with writers paused."""
    deadline = time.monotonic() + _PATIENCE_S
    for tries in itertools.count(2):
        indexers = sorted({source.indexer for source in sources}, key=id) if tries > _TRIES else []
        with _paused(indexers) as are_paused:
            paused = bool(indexers) and are_paused
            for _ in range(_TRIES if paused else 1):
                done, moved = _attempt(sources, outer, body)
                if done is not None:
                    return done[0]
        if paused and moved:  # nobody else could
            raise RetrievalError(
                "A similarity function or embed callable redefined a node group during the query."
            )
        if tries > 2 * _TRIES and time.monotonic() > deadline:
            where = " and ".join(dict.fromkeys(str(source) for source in sources))
            raise StoreError(
                f"{where} is being changed faster than it can be read. Try again when it is changed"
                " less."
            )
        if tries > _TRIES:
            time.sleep(min(_MAX_PAUSE_S, 0.001 * 2**tries))
    raise AssertionError  # the count has no end


@contextmanager
def _paused(indexers: Sequence[LiveState]) -> Iterator[bool]:
    """Pause the writers of Documents, in this order; yields False if one of them cannot be paused
    soon.
    """
    if not indexers:
        yield True
        return
    with indexers[0].paused(_LOCK_S) as is_paused, _paused(indexers[1:]) as are_paused:
        yield is_paused and are_paused
