"""What a pipeline asks for hits: any retriever, in threads or awaited."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.pipeline.threads import in_thread
from lazyrag.retrieval.stages import callable_name

Found: TypeAlias = "Sequence[DocNode] | Sequence[Hit]"


class Finder(Protocol):
    """Finds hits for a question, in any event loop."""

    @property
    def name(self) -> str:
        """What is asked, for traces."""
        ...

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> Found:
        """At most ``topk`` nodes or hits, best first."""
        ...


class RetrieverFinder:
    """A retriever as a pipeline asks it: a callable (query, filters=None, topk=None) -> nodes or hits.

    One that waits for a coroutine is awaited; another one runs in a thread.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, a function.

    Raises:
        ConfigError: If it is no callable, or gives something else than nodes.
    """

    def __init__(self, retriever: Any) -> None:
        if not callable(retriever) or isinstance(retriever, type):
            msg = (
                f"retriever is {retriever!r:.60}; give a retriever: a callable (query, filters=None, topk=None) -> "
                "nodes. For a Document: RAGPipeline.over(docs, group_name)."
            )
            raise ConfigError(msg)
        if getattr(retriever, "output_format", None) is not None:
            msg = (
                f"retriever has output_format={retriever.output_format!r}; a pipeline needs nodes: output_format=None."
            )
            raise ConfigError(msg)
        self.retriever = retriever
        called = retriever if inspect.isroutine(retriever) else retriever.__call__
        self._awaits = inspect.iscoroutinefunction(called)

    @property
    def name(self) -> str:
        """Its class, or the function's name."""
        return callable_name(self.retriever)

    async def find(self, query: str, topk: int, filters: FilterLike | None) -> Found:
        """See `Finder.find`.

        Raises:
            RetrievalError: If it returns something else than nodes or hits; what it raises goes on.
        """
        if self._awaits:
            found = await self.retriever(query, filters=filters, topk=topk)
        else:
            found = await in_thread(self.retriever, query, filters=filters, topk=topk)
            if inspect.isawaitable(found):
                found = await found
        nodes: Any = list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [None]
        if not (all(isinstance(one, DocNode) for one in nodes) or all(isinstance(one, Hit) for one in nodes)):
            msg = f"The retriever {self.name!r} returned {found!r:.80}; a list of nodes, or of hits, is needed."
            raise RetrievalError(msg)
        kept: Found = nodes[:topk]
        return kept


def as_hits(found: Found) -> list[Hit]:
    """Nodes as hits; hits as they are."""
    return [Hit.from_node(one) if isinstance(one, DocNode) else one for one in found]
