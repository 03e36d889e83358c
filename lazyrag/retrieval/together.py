"""Several retrievers over one state of their Documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from lazyrag.document.builder import Builder
from lazyrag.document.consistency import consistent_read
from lazyrag.document.ledger.tree import View

R = TypeVar("R")

_KEPT: ContextVar[dict[Any, list[tuple[Any, Any]]] | None] = ContextVar("lazyrag_kept_of_one_question", default=None)


def trees_of(retrievers: Iterable[Any]) -> list[Builder]:
    """The trees that retrievers read, each once, as far as they tell them by ``trees``."""
    trees: list[Builder] = [tree for one in retrievers for tree in getattr(one, "trees", ())]
    return list({id(tree): tree for tree in trees}.values())


def prepare_all(retrievers: Iterable[object]) -> None:
    """Let retrievers build what a question will need, as far as they can."""
    for one in retrievers:
        prepare = getattr(one, "prepare", None)
        if callable(prepare):
            prepare()


def state_of(trees: Iterable[Builder]) -> list[tuple[int, View]]:
    """What a read sees of Documents: equal as long as none of them has changed."""
    return [(tree.removals, tree.views.kept()) for tree in trees]


@contextmanager
def one_question() -> Iterator[dict[Any, list[tuple[Any, Any]]]]:
    """What is kept for one question, however often it is read; a question within another one keeps it for that."""
    kept = _KEPT.get()
    if kept is not None:
        yield kept
        return
    kept = {}
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def read_together(retrievers: Sequence[object], read: Callable[[], R]) -> R:
    """What a read gives of one state of all Documents that retrievers tell of; see `consistent_read`."""
    prepare_all(retrievers)
    with one_question():
        return consistent_read(trees_of(retrievers), read)
