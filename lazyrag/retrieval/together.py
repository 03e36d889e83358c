"""Several retrievers over one state of their Documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from lazyrag.document.builder import Builder
from lazyrag.document.consistency import consistent_read

R = TypeVar("R")


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


def read_together(retrievers: Sequence[object], read: Callable[[], R]) -> R:
    """What a read gives of one state of all Documents that retrievers tell of; see `consistent_read`."""
    prepare_all(retrievers)
    return consistent_read(trees_of(retrievers), read)
