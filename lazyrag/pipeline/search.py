"""Retrievers of a pipeline as coroutines, and what they find."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit, supersession_of
from lazyrag.errors import RetrievalError, errors_of
from lazyrag.models.concurrency import in_thread
from lazyrag.read.windows import is_window
from lazyrag.retrieval.base import check_retrievers, hits_of
from lazyrag.retrieval.postprocessors import Windows
from lazyrag.retrieval.stages import callable_name
from lazyrag.validation import is_list_of

_WITH_NEIGHBOURS = 3
"""The best nodes, whose neighbours are read as well."""


@dataclass(frozen=True, slots=True)
class RetrievedItems:
    """Nodes or hits found for a query, best first.

    A hit of a node has its file's metadata and location, which must be read. So hits are made only
    of the nodes that are returned in the end.
    """

    items: Sequence[DocNode] | Sequence[Hit]

    def texts(self) -> list[str]:
        """Return their texts."""
        return [_text(item) for item in self.items]

    def trace_hits(self) -> list[Hit]:
        """Return hits with only id, text and score, for traces."""
        return [
            item if isinstance(item, Hit) else Hit(item.uid, _text(item), _score(item))
            for item in self.items
        ]

    def select(self, ranking: Sequence[tuple[int, float]]) -> RetrievedItems:
        """Select some by index, with new scores."""
        chosen: Any = [_scored(self.items[at], score) for at, score in ranking]
        return RetrievedItems(chosen)

    async def with_neighbours(self) -> RetrievedItems:
        """Add the nodes before and behind the best ones, after all others.

        Hits, and nodes that are not in the tree of a Document, have none.
        """
        nodes = [item for item in self.items if isinstance(item, DocNode)]
        if len(nodes) < len(self.items):
            return self
        in_tree = [node for node in nodes if node.reader is not None and not is_window(node)]
        windows = await in_thread(Windows(merge=False), in_tree[:_WITH_NEIGHBOURS])
        hits = set(nodes)
        marks = {(node.reader, node.path): supersession_of(node.metadata) for node in nodes}
        neighbours = [
            node.with_metadata(**marks[node.reader, node.path])
            for node in windows
            if node not in hits
        ]
        return RetrievedItems([*nodes, *neighbours])

    async def hits(self) -> list[Hit]:
        """Return complete hits, of one state of their Documents."""
        nodes = [item for item in self.items if isinstance(item, DocNode)]
        if nodes:
            return await in_thread(hits_of, nodes)
        return [item for item in self.items if isinstance(item, Hit)]


def _text(item: DocNode | Hit) -> str:
    return item.text if isinstance(item, Hit) else item.get_content()


def _score(node: DocNode) -> float:
    return math.nan if node.score is None else node.score


def _scored(item: DocNode | Hit, score: float) -> DocNode | Hit:
    return (
        dataclasses.replace(item, score=score) if isinstance(item, Hit) else item.with_score(score)
    )


class Finder(Protocol):
    """Finds hits for a query, in any event loop."""

    @property
    def name(self) -> str:
        """Name of the retriever or collection, for traces."""
        ...

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> RetrievedItems:
        """Return at most ``topk`` nodes or hits, best first, for a query that is not blank."""
        ...


class RetrieverFinder:
    """A callable (query, filters=None, topk=None) -> nodes or hits as a `Finder`.

    A coroutine function is awaited; other callables run in a thread.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, a function, or a client
            with ``search``.

    Raises:
        ConfigError: If it can be called neither as a retriever nor as a client, or returns
            something else than nodes.
    """

    def __init__(self, retriever: Any) -> None:
        hint = "For a Document: RAGPipeline.over(docs, group_name)."
        [checked] = check_retrievers("The pipeline", [retriever], hint)
        self.retriever = checked.wrapped
        called = self.retriever if inspect.isroutine(self.retriever) else self.retriever.__call__
        self._awaits = inspect.iscoroutinefunction(called)

    @property
    def name(self) -> str:
        """Its class, or the function's name."""
        return callable_name(self.retriever)

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> RetrievedItems:
        """Call the retriever.

        Raises:
            RetrievalError: If it fails, or returns something else than nodes or hits.
        """
        with errors_of(f"The retriever {self.name!r}", RetrievalError):
            if self._awaits:
                returned = await self.retriever(query, filters=filters, topk=topk)
            else:
                returned = await in_thread(self.retriever, query, filters=filters, topk=topk)
                if inspect.isawaitable(returned):
                    returned = await returned
        is_listed = isinstance(returned, Sequence) and not isinstance(returned, str)
        items: Any = list(returned)[:topk] if is_listed else [None]
        if not (is_list_of(items, DocNode) or is_list_of(items, Hit)):
            raise RetrievalError(
                f"The retriever {self.name!r} returned {returned!r:.80}; return a list of nodes or"
                " hits."
            )
        return RetrievedItems(items)
