"""Repeats a read while what it saw becomes invalid."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from lazyrag.errors import RetrievalError, StoreError
from lazyrag.read.source import LiveState

R = TypeVar("R")

_TRIES = 3
_LOCK_S = 0.1
_PATIENCE_S = 10.0
_MAX_PAUSE_S = 0.05


def repeat(
    attempt: Callable[[], tuple[tuple[R] | None, bool]], indexers: Sequence[LiveState], where: str
) -> R:
    """Repeat an attempt until one state stays valid; after some tries with writers paused.

    Args:
        attempt: Returns a result, or None if the state became invalid; and whether it moved the
            state itself.
        indexers: Of the Documents that are read, in a fixed order.
        where: Names the Documents.

    Raises:
        RetrievalError: If the attempt itself moves the state each time.
        StoreError: If other programs change it all the time.
    """
    deadline = time.monotonic() + _PATIENCE_S
    for tries in itertools.count(2):
        to_pause = indexers if tries > _TRIES else ()
        with _paused(to_pause) as are_paused:
            is_alone = bool(to_pause) and are_paused
            for _ in range(_TRIES if is_alone else 1):
                done, has_moved = attempt()
                if done is not None:
                    return done[0]
        if is_alone and has_moved:  # nobody else could
            raise RetrievalError(
                "A similarity function or embed callable redefined a node group during the query."
            )
        if tries > 2 * _TRIES and time.monotonic() > deadline:
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
