"""What the routes of one web process share: the sets, the principal of a request, the pool of
blocking work.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import anyio
from fastapi import Depends, Request

from lazyrag.errors import ConfigError, known_names
from lazyrag.retrieval.hybrid import HybridRetriever, default_retriever
from lazyrag.retrieval.retriever import Retriever
from lazyrag.server.core.notebook import Notebook
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, try_again
from lazyrag.server.core.telemetry import Metrics

if TYPE_CHECKING:
    from lazyrag.data.node import DocNode
    from lazyrag.document import Document
    from lazyrag.retrieval.base import BaseRetriever
    from lazyrag.server.core.access import Access
    from lazyrag.server.core.runtime_sets import RuntimeSets

R = TypeVar("R")


class Service:
    """The served Documents.

    Args:
        sets: Documents by name. Web processes have read-only ones, of stores that the writer
            process fills.
        state: A folder for what belongs to the service: tokens, uploads, the audit log, feedback.
        workers: Number of threads for blocking work, such as searches.
        chat: A chat model for answers; None to quote the passages.
        access: Tokens and the audit log; None to serve everything to everyone, as within a program.
    """

    upload_bytes = 8 << 30
    """The largest file that is accepted."""

    def __init__(
        self,
        sets: Mapping[str, Document],
        state: Path,
        *,
        workers: int = 8,
        chat: Any = None,
        access: Access | None = None,
    ) -> None:
        self.sets = dict(sets)
        self.state = state
        self.chat = chat
        self.workers = workers
        self.metrics = Metrics()
        self.retriever = functools.lru_cache(maxsize=256)(make_retriever)
        self.access = access
        self.pending: dict[str, str] = {}  # sets that cannot answer yet, and why
        self.began = time.time()
        self.runtime_sets: RuntimeSets | None = None  # the table of sets that are made at run time
        self.groups: dict[str, str] = {}  # by set, where it is not MediumChunk
        self.shared_statistics: frozenset[str] = frozenset()  # the sets that have them
        self.records: Any = None  # of OpenAI's objects
        self.rerank: Any = None  # a rerank model, beside BM25
        self._views: dict[tuple[str, tuple[str, ...]], Document] = {}

    @functools.cached_property
    def _limiter(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self.workers)

    @functools.cached_property
    def book(self) -> Notebook:
        """Answers and records."""
        return Notebook(self.state)

    @functools.cached_property
    def slow(self) -> anyio.CapacityLimiter:
        """For calls of `run` that take seconds on a large set, so that searches find a free
        thread.
        """
        return anyio.CapacityLimiter(max(1, self.workers // 4))

    @property
    def running(self) -> tuple[int, int]:
        """How many calls of `run` are being run, and how many wait for a thread."""
        statistics = self._limiter.statistics()
        return statistics.borrowed_tokens, statistics.tasks_waiting

    async def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Run blocking work in the pool."""
        return await anyio.to_thread.run_sync(
            functools.partial(function, *args, **kwargs), limiter=self._limiter
        )

    def names(self, principal: Principal) -> list[str]:
        """The sets that a principal may read: some cannot be restricted to its labels."""
        return [
            name for name in sorted(self.sets) if self._view(name, principal.labels) is not None
        ]

    def view(self, name: str, principal: Principal) -> Document:
        """The Document of a set, as a principal sees it.

        Raises:
            ProblemError: 404 if there is no such set, 403 if it cannot be restricted to labels, 503
                until it is open.
        """
        if name in self.pending and name not in self.sets:
            raise try_again(503, self.pending[name])
        if name not in self.sets:
            # by another process, just now
            if self.runtime_sets is not None and self.runtime_sets.find(name) is not None:
                raise try_again(503, "The set is being opened.")
            raise ProblemError(
                404, f"There is no set {name!r}.", known_names(name, self.names(principal))
            )
        if (view := self._view(name, principal.labels)) is None:
            msg = f"The set {name!r} has no field 'labels', which restricts this token."
            remedy = (
                "Declare it: doc_fields={'labels': DocField(DataType.ARRAY, DataType.VARCHAR)}."
            )
            raise ProblemError(403, msg, remedy)
        return view

    def _view(self, name: str, labels: tuple[str, ...] | None) -> Document | None:
        if labels is None:
            return self.sets[name]
        if (name, labels) not in self._views:
            with suppress(ConfigError):
                self._views[name, labels] = self.sets[name].restricted(
                    {"labels": list(labels)},
                    statistics="shared" if name in self.shared_statistics else "visible",
                )
        return self._views.get((name, labels))

    def default_retriever(self, docs: Any, group: str) -> Any:
        """The retriever of searches without options, of a Document or a tuple of them."""
        return self.retriever(docs, group, "default", None, None)

    def group_of(self, name: str) -> str:
        """The node group of a set whose nodes are its chunks: the first one of its
        configuration.
        """
        return self.groups.get(name, "MediumChunk")

    def forget(self, name: str) -> None:
        """Show a set no longer."""
        self.sets.pop(name, None)
        for key in [key for key in self._views if key[0] == name]:
            del self._views[key]
        self.retriever.cache_clear()


def make_retriever(
    docs: Document,
    group: str,
    name: str,
    embed_keys: tuple[str, ...] | None,
    target: str | None,
    **options: Any,
) -> BaseRetriever[list[DocNode]]:
    """Make the retriever of a search."""
    if name in ("default", "hybrid"):
        if target is not None:
            raise ConfigError(
                f"target has no effect on the retriever {name!r}. Name a similarity, or leave it"
                " out."
            )
        if name == "default" and embed_keys is None:
            return default_retriever(docs, group, **options)
        return HybridRetriever.over(docs, group, embed_keys=embed_keys)
    similarity = None if name == "vector" else name
    return Retriever(docs, group, similarity, embed_keys=embed_keys, target=target)


def location_of(request: Request, route: str, **parameters: str) -> dict[str, str]:
    """The header that names a result: the path of a route."""
    return {"Location": quote(request.url_for(route, **parameters).path)}


def passage_url(
    request: Request, name: str, path: str, uid: str = "", words: tuple[int, int] = (0, 0)
) -> str:
    """The URL of a document on the page, with a passage of it marked.

    Args:
        request: The request.
        name: The set.
        path: The document.
        uid: The passage; "" for none.
        words: Start and end of the words of the passage to mark; an empty span for all of it.
    """
    document = f"{request.base_url}s/{quote(name)}/files/{quote(path, errors='replace')}"
    span = f"&words={words[0]}-{words[1]}" if words[1] else ""
    return f"{document}?uid={quote(uid)}{span}#mark-1" if uid else document


def service_of(request: Request) -> Service:
    """The service of a request, for routes."""
    service: Service = request.app.state.service
    return service


def needs(scope: str) -> Any:
    """A dependency: the principal of a request, which must have a scope.

    Raises:
        ProblemError: 403 if it has not.
    """

    # a plain function would take a thread for each request
    async def check(request: Request) -> Principal:
        principal: Principal = request.state.principal
        if not principal.may(scope):
            raise ProblemError(
                403,
                f"This needs the scope {scope!r}; the token has {principal.scope!r}.",
                "Use another token.",
            )
        return principal

    return Depends(check)


Reader = Annotated[Principal, needs("read")]
Administrator = Annotated[Principal, needs("admin")]


def require_unrestricted(principal: Principal, detail: str) -> None:
    """Refuse what concerns all documents to a principal with labels.

    Raises:
        ProblemError: 403.
    """
    if not principal.is_unrestricted:
        raise ProblemError(403, detail, "Use a token without labels.")
