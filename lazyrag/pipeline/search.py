"""What a pipeline asks for hits: any retriever, in threads or awaited."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError, sentence
from lazyrag.models.concurrency import in_thread
from lazyrag.retrieval.base import hits_of
from lazyrag.retrieval.postprocessors import check_call
from lazyrag.retrieval.stages import callable_name


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a question: nodes or hits, best first.

    A hit of a node has its file's metadata and its place, which are read for it; so hits are made of those nodes only
    that are handed out.
    """

    items: Sequence[DocNode] | Sequence[Hit]

    def texts(self) -> list[str]:
        """Their texts."""
        return [_text(one) for one in self.items]

    def brief(self) -> list[Hit]:
        """Hits with id, text and score alone, for traces."""
        return [one if isinstance(one, Hit) else Hit(one.uid, _text(one), _score(one)) for one in self.items]

    def picked(self, ranking: Sequence[tuple[int, float]]) -> Found:
        """Some of them, by their places, with other scores."""
        chosen: Any = [_scored(self.items[at], score) for at, score in ranking]
        return Found(chosen)

    async def hits(self) -> list[Hit]:
        """Whole hits, of one state of their Documents."""
        nodes = [one for one in self.items if isinstance(one, DocNode)]
        if nodes:
            return await in_thread(hits_of, nodes)
        return [one for one in self.items if isinstance(one, Hit)]


def _text(item: DocNode | Hit) -> str:
    return item.text if isinstance(item, Hit) else item.get_content()


def _score(node: DocNode) -> float:
    return math.nan if node.score is None else node.score


def _scored(item: DocNode | Hit, score: float) -> DocNode | Hit:
    return dataclasses.replace(item, score=score) if isinstance(item, Hit) else item.with_score(score)


@contextmanager
def told_by(who: str) -> Iterator[None]:
    """Within, what others raise becomes an error of this package that says who raised it; ours stay as they are.

    Raises:
        RetrievalError: In the place of any other Exception.
    """
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        msg = f"{who} raised {type(exc).__name__}: {sentence(str(exc))}"
        raise RetrievalError(msg) from exc


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
        what = f"The retriever {callable_name(retriever)!r} cannot be called with (query, filters=..., topk=...)"
        check_call(what, retriever, "", filters=None, topk=None)
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
            RetrievalError: If it fails, or returns something else than nodes or hits.
        """
        if not query.strip():
            return Found([])
        with told_by(f"The retriever {self.name!r}"):
            if self._awaits:
                given = await self.retriever(query, filters=filters, topk=topk)
            else:
                given = await in_thread(self.retriever, query, filters=filters, topk=topk)
                if inspect.isawaitable(given):
                    given = await given
        found: Any = list(given)[:topk] if isinstance(given, Sequence) and not isinstance(given, str) else [None]
        if not any(all(isinstance(one, kind) for one in found) for kind in (DocNode, Hit)):
            msg = f"The retriever {self.name!r} returned {given!r:.80}; a list of nodes, or of hits, is needed."
            raise RetrievalError(msg)
        return Found(found)
