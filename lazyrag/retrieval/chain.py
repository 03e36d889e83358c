"""`RetrievalChain`: a retriever and what is done with its nodes, as one retriever."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, overload

from lazyrag.data.node import DocNode
from lazyrag.document.document import Document
from lazyrag.document.snapshot import Snapshot, is_reading, read
from lazyrag.errors import ConfigError, StaleNodeError
from lazyrag.retrieval.base import BaseRetriever, as_retriever
from lazyrag.retrieval.feedback import FeedbackRetriever
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.retrieval.output import OutputFormat, check_output
from lazyrag.retrieval.ranked import LazyStage, LoadedStage, Query, descends
from lazyrag.retrieval.reranker import Reranker
from lazyrag.retrieval.reranking.maxsim import token_embedders
from lazyrag.retrieval.stages import NodeRetriever, Step, callable_name
from lazyrag.retrieval.stepping import (
    check_call,
    check_directions,
    check_step,
    direction_behind,
    done,
    reads_documents,
)
from lazyrag.validation import whole_number

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

_FETCHED_AT_LEAST = 20
_FETCHED_TIMES = 4
_RERANKED = 50  # by `RetrievalChain.over`
_OUTSIDE = 3  # so often nodes that change all the time are reranked outside of a read


class RetrievalChain(BaseRetriever[T_co]):
    """A retriever and the steps behind it, as one retriever: rerankers, `AutoMerge`, `Windows`, `MMR`, own functions.

    Whatever reads the Documents sees one state of them. Rerankers read what the nodes hold, and so work outside of that
    read: nobody waits for them who changes a Document, and they do not work twice for nodes that have not changed. A
    chain stands wherever a retriever does: in a hybrid, in another chain.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a chain, any callable (query, filters=None, topk=None) -> nodes.
        steps: Done one after the other: callables (nodes, query) -> nodes.
        topk: At most so many nodes in the end; None for all that the steps leave.
        fetch: How many nodes the retriever is asked for. None: four times ``topk``, and at least 20, if there are
            steps, which may drop some; else ``topk``; without a ``topk``, as many as the retriever gives by itself.
        output_format: None: nodes. ``"content"``: texts. ``"dict"``: the fields of `lazyrag.data.result.Hit`.
        join: With ``"content"``, one text: True joins by line ends, a text by itself.

    Raises:
        ConfigError: If the retriever or a step cannot be called as one, an argument is out of its range, or a step
            takes a higher score for a better one where a lower one is.

    Example:
        >>> from lazyrag import Document, MMR, Reranker, RetrievalChain, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "green tea", "iced": "iced tea", "coffee": "no leaves"})
        >>> chain = RetrievalChain(
        ...     Retriever(docs, "FineChunk", similarity="bm25"),
        ...     Reranker("KeywordFilter", exclude_keys=["iced"]),
        ...     topk=3,
        ... )
        >>> [node.text for node in chain("tea")]
        ['green tea']
    """

    _answers_blank = True  # as a function of one's own may

    @overload
    def __init__(
        self: RetrievalChain[list[DocNode]],
        retriever: NodeRetriever,
        *steps: Step,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: None = ...,
        join: Literal[False] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: RetrievalChain[list[dict[str, Any]]],
        retriever: NodeRetriever,
        *steps: Step,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: Literal["dict"],
        join: Literal[False] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: RetrievalChain[list[str]],
        retriever: NodeRetriever,
        *steps: Step,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: Literal["content"],
        join: Literal[False] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: RetrievalChain[str],
        retriever: NodeRetriever,
        *steps: Step,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: Literal["content"],
        join: Literal[True] | str,
    ) -> None: ...
    @overload
    def __init__(
        self: RetrievalChain[Any],
        retriever: NodeRetriever,
        *steps: Step,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
    ) -> None: ...
    def __init__(
        self,
        retriever: NodeRetriever,
        *steps: Step,
        topk: int | None = None,
        fetch: int | None = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
    ) -> None:
        _check_retriever(retriever)
        for step in steps:
            check_step(step)
        check_directions(descends(retriever), steps)
        self._combine([as_retriever(retriever)])
        self._steps = steps
        self._topk = None if topk is None else whole_number("topk", topk, 1)
        self._fetch = None if fetch is None else whole_number("fetch", fetch, 1)
        check_output(output_format, join)
        self.output_format: OutputFormat | None = output_format
        self._join = join

    @staticmethod
    def over(
        doc: Document | Sequence[Document],
        group_name: str,
        topk: int = 6,
        *,
        embed_keys: Sequence[str] | None = None,
    ) -> RetrievalChain[list[DocNode]]:
        """The chain that measured best on all judged sets together, for a Document with embeddings: docs/quality.md.

        By meaning and by words, fused (`HybridRetriever.over`). Where the embedder gives token embeddings, as an
        `OnnxEmbedder` does: asked a second time, towards the first nodes (`FeedbackRetriever`), and the best fifty
        reranked by these token embeddings (MaxSim); that embeds passages, some 20 ms each, which are kept in memory.

        Args:
            doc: A Document, or several.
            group_name: The node group to search.
            topk: At most so many nodes.
            embed_keys: The embed keys to search by; None means all.

        Raises:
            ConfigError: If a Document has no embeddings.
            NotRegisteredError: If there is no such group.

        Example:
            >>> from lazyrag import Document, RetrievalChain
            >>> docs = Document(embed=lambda text: [float(len(text)), 1.0])
            >>> _ = docs.add_texts({"a": "green tea", "b": "black coffee"})
            >>> [node.text for node in RetrievalChain.over(docs, "FineChunk")("tea")]
            ['green tea', 'black coffee']
        """
        hybrid = HybridRetriever.over(doc, group_name, topk, embed_keys=embed_keys)
        documents = [doc] if isinstance(doc, Document) else list(doc)
        able = [token_embedders(one.reader.embedders(embed_keys)) for one in documents]
        common = sorted(set(able[0]).intersection(*able[1:]))
        if not common:
            return RetrievalChain(hybrid, topk=topk)
        reranker = Reranker("MaxSimReranker", embed_key=common[0])
        return RetrievalChain(FeedbackRetriever(hybrid), reranker, topk=topk, fetch=max(_RERANKED, topk))

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one: yes behind what gives scores of its own.

        Behind other steps it is as with the retriever. None where it was no and a step does not say, by ``rescores``,
        whether its nodes' scores are its own; such a chain can be fused by ranks alone.
        """
        found = self.retrievers[0].descends
        for step in self._steps:
            found = direction_behind(found, step)
        return found

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`: the retriever and all steps in one read."""
        found = self._retrieved(query, snapshot)
        for at in range(len(self._steps)):
            found = self._stepped(at, found, query)
        return self._cut(found, query)

    def answer(self, query: Query, finish: Callable[[LazyStage], R], *, reads: bool = False) -> R:
        """See `BaseRetriever.answer`.

        A reranker may take seconds. So the read ends where one begins, and begins again behind it if a step that reads
        Documents is left: nothing is asked twice if they are as they were, and of a reranker nothing that it was asked
        before. Within the read of a larger query that cannot be, nor where the nodes are others each time.
        """
        slow = any(isinstance(step, Reranker) for step in self._steps)
        if not slow or query.is_blank or not self.sources or is_reading(self.sources):
            return super().answer(query, finish, reads=reads)
        if not self._is_built:
            self.build()
        self.prepare(query)
        progress = _Progress(self, query)
        for _ in range(_OUTSIDE):
            found, at, version = read(self.sources, progress.read_prefix)
            try:
                found, at = progress.run_outside(found, at)
            except StaleNodeError:  # a reranker that reads more than the nodes hold
                break
            if at < len(self._steps):
                continue
            last = self._cut(found, query)
            if not reads:
                return finish(last)
            told = read(self.sources, partial(_finished, finish, last, version))
            if told is not None:
                return told[0]
        return read(self.sources, lambda snapshot: finish(self.run(query, snapshot)))

    def _retrieved(self, query: Query, snapshot: Snapshot) -> LoadedStage:
        """What the retriever gives, read."""
        limit = self._limit(query)
        found = self.retrievers[0].ask(query.with_topk(self._fetched(limit)), snapshot)
        return _loaded(found, query)

    def _stepped(self, at: int, found: LoadedStage, query: Query) -> LoadedStage:
        """What a step makes of nodes; a reranker is not asked twice for the same."""
        step = self._steps[at]
        if not isinstance(step, Reranker):
            return done(step, found, query)
        known = self._known(at, found, query)
        if known is not None:  # a copy: a stage that is met twice has two places
            stage = copy.copy(known.stage()) if query.is_explained else None
            return LoadedStage(known.kind, known.name, known.nodes(), found.snapshot, stage=stage)
        known = done(step, found, query)
        query.memo.setdefault((id(self), at, query.text), []).append((_identity(found), known))
        return known

    def _known(self, at: int, found: LoadedStage, query: Query) -> LoadedStage | None:
        """What a reranker gave for the very same nodes."""
        before = query.memo.get((id(self), at, query.text), ())
        given = _identity(found) if before else None
        return next((known for nodes, known in before if nodes == given), None)

    def _cut(self, found: LoadedStage, query: Query) -> LazyStage:
        limit = self._limit(query)
        return found if limit is None else found.cut(limit)

    def _fetched(self, limit: int | None) -> int | None:
        if self._fetch is not None or limit is None:
            return self._fetch
        return max(_FETCHED_AT_LEAST, _FETCHED_TIMES * limit) if self._steps else limit


@dataclass(slots=True)
class _Progress:
    """How far a chain got with a query, in reads that end where a reranker begins.

    Args:
        chain: The chain.
        query: The query.
        last: What the retriever gave, and in which state.
    """

    chain: RetrievalChain[Any]
    query: Query
    last: tuple[Any, LoadedStage] | None = None

    def read_prefix(self, snapshot: Snapshot) -> tuple[LoadedStage, int, Any]:
        """What comes out in front of a reranker that has to be asked, its number, and the state of the Documents."""
        version, chain = snapshot.version, self.chain
        if self.last is None or self.last[0] != version:
            self.last = version, chain._retrieved(self.query, snapshot)
        found = self.last[1]
        for at, step in enumerate(chain._steps):
            if isinstance(step, Reranker) and chain._known(at, found, self.query) is None:
                return found, at, version
            found = chain._stepped(at, found, self.query)
        return found, len(chain._steps), version

    def run_outside(self, found: LoadedStage, at: int) -> tuple[LoadedStage, int]:
        """Go on as far as no Document is read."""
        steps = self.chain._steps
        while at < len(steps) and not reads_documents(steps[at]):
            found = self.chain._stepped(at, found, self.query)
            at += 1
        return found, at


def _finished(finish: Callable[[LazyStage], R], last: LazyStage, version: Any, snapshot: Snapshot) -> tuple[R] | None:
    """What a function makes of the last stage, if the Documents are in the state that it is of."""
    return (finish(last),) if snapshot.version == version else None


def _loaded(found: LazyStage, query: Query) -> LoadedStage:
    """A stage with its nodes read; and with its record, where that is wanted."""
    stage = found.stage() if query.is_explained else None
    nodes = found.nodes() if stage is None else stage.nodes
    return LoadedStage(found.kind, found.name, nodes, found.snapshot, stage=stage)


def _identity(found: LoadedStage) -> list[Any]:
    return [(node, node.score, node.segment) for node in found.nodes()]


def _check_retriever(retriever: Any) -> None:
    if not callable(retriever) or isinstance(retriever, type):
        msg = f"RetrievalChain got {retriever!r:.80}; give a retriever: (query, filters=None, topk=None) -> nodes."
        raise ConfigError(msg)
    if getattr(retriever, "output_format", None) is not None:
        msg = (
            f"RetrievalChain got a retriever with output_format={retriever.output_format!r}; give it to the chain, and "
            "a retriever with output_format=None."
        )
        raise ConfigError(msg)
    what = f"The retriever {callable_name(retriever)!r} cannot be called with (query, filters=..., topk=...)"
    check_call(what, retriever, "", filters=None, topk=None)
