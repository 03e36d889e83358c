"""`RetrievalChain`: a retriever and what is done with its nodes, as one retriever."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Generic, Literal, TypeVar, cast, overload

from lazyrag.arguments import known_keywords, whole_number
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError
from lazyrag.retrieval.explain import Explanation, explain, why_not
from lazyrag.retrieval.feedback import FeedbackRetriever
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.retrieval.output import OutputFormat, check_output, render
from lazyrag.retrieval.ranked import descends
from lazyrag.retrieval.reranker import Reranker
from lazyrag.retrieval.reranking.maxsim import token_embedders
from lazyrag.retrieval.stages import (
    NodeRetriever,
    Reason,
    Stage,
    StageKind,
    Step,
    asked_nodes,
    callable_name,
    stage_of,
)
from lazyrag.retrieval.together import prepare_all, read_together, trees_of

T_co = TypeVar("T_co", covariant=True)

_FETCHED_AT_LEAST = 20
_FETCHED_TIMES = 4
_RERANKED = 50  # by `RetrievalChain.over`
_KEEPS_SCORES: tuple[StageKind, ...] = ("cut", "merge", "window", "mapping")


class RetrievalChain(Generic[T_co]):
    """A retriever and the steps behind it, as one retriever: rerankers, `AutoMerge`, `Windows`, `MMR`, own functions.

    All of it sees one state of the Documents. A chain stands wherever a retriever does: in a hybrid, in another chain.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a chain, any callable (query, filters=None, topk=None) -> nodes.
        steps: Done one after the other: callables (nodes, query) -> nodes.
        topk: At most so many nodes in the end; None for all that the steps leave.
        fetch: How many nodes the retriever is asked for. None: four times ``topk``, and at least 20, if there are
            steps, which may drop some; else ``topk``; without a ``topk``, as many as the retriever gives by itself.
        output_format: None: nodes. ``"content"``: texts. ``"dict"``: the fields of `lazyrag.data.result.Hit`.
        join: With ``"content"``, one text: True joins by line ends, a text by itself.

    Raises:
        ConfigError: If the retriever or a step cannot be called as one, or an argument is out of its range.

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
            _check_step(step)
        self._retriever = retriever
        self._steps = steps
        self._topk = None if topk is None else whole_number("topk", topk, 1)
        self._fetch = None if fetch is None else whole_number("fetch", fetch, 1)
        check_output(output_format, join)
        self._output_format: OutputFormat | None = output_format
        self._join = join

    @classmethod
    def over(
        cls,
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
        made: Any = cls
        if not common:
            return cast("RetrievalChain[list[DocNode]]", made(hybrid, topk=topk))
        reranker = Reranker("MaxSimReranker", embed_key=common[0])
        return cast(
            "RetrievalChain[list[DocNode]]",
            made(FeedbackRetriever(hybrid), reranker, topk=topk, fetch=max(_RERANKED, topk)),
        )

    @known_keywords
    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> T_co:
        """The nodes that the last step leaves.

        Args:
            query: A question or keywords, for the retriever and for the steps.
            filters: For the retriever.
            topk: Another bound for this call.

        Returns:
            Nodes, best first; or the form that ``output_format`` asks for.

        Raises:
            ConfigError: If the query is no text, or a filter does not fit the fields.
            RetrievalError: If the retriever or a step fails, or returns something else than nodes.
        """
        limit = self._limit(query, topk)

        def read() -> list[DocNode]:
            nodes = asked_nodes(self._retriever, query, filters, self._fetched(limit))
            for step in self._steps:
                nodes = _done(step, nodes, query)
            return nodes[:limit]

        return cast("T_co", render(read_together(self._asked(query), read), self._output_format, self._join))

    @known_keywords
    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """What a call does, stage by stage; see `__call__` for arguments and errors.

        Returns:
            The last stage. Its nodes are those that a call gives, whatever ``output_format`` says.

        Example:
            >>> from lazyrag import DocNode
            >>> found = lambda query, filters=None, topk=None: [DocNode(text="tea", score=0.5), DocNode(text="salt")]
            >>> stage = RetrievalChain(found, lambda nodes, query: nodes[:1]).trace("tea")
            >>> stage.kind, len(stage.nodes), len(stage.inputs[0].nodes)
            ('step', 1, 2)
        """
        limit = self._limit(query, topk)

        def read() -> Stage:
            stage = stage_of(self._retriever, query, filters, self._fetched(limit))
            for step in self._steps:
                stage = _step_stage(step, stage, query)
            return stage if limit is None else Stage("cut", "topk", stage.nodes[:limit], (stage,), said={"topk": limit})

        return read_together(self._asked(query), read)

    def explain(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Explanation:
        """Why the nodes of a result stand where they stand; see `lazyrag.explain`.

        Example:
            >>> from lazyrag import DocNode
            >>> found = lambda query, filters=None, topk=None: [DocNode(text="tea", score=0.5), DocNode(text="salt")]
            >>> len(RetrievalChain(found, topk=1).explain("tea").dropped)
            1
        """
        return explain(self, query, filters, topk)

    def why_not(self, uid: str, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Reason:
        """Why a node is not in a result, or at which rank it is; see `lazyrag.why_not`.

        Example:
            >>> from lazyrag import DocNode
            >>> tea, salt = DocNode(text="tea"), DocNode(text="salt")
            >>> chain = RetrievalChain(lambda query, filters=None, topk=None: [tea, salt], topk=1)
            >>> chain.why_not(salt.uid, "tea").stage
            'topk'
        """
        return why_not(self, uid, query, filters, topk)

    @property
    def trees(self) -> list[Builder]:
        """The trees of the retriever's Documents, for reads of several retrievers that are to see one state."""
        return trees_of([self._retriever])

    @property
    def output_format(self) -> OutputFormat | None:
        """The form of its results; None for nodes."""
        return self._output_format

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one: yes behind what gives scores of its own.

        Behind other steps it is as with the retriever. None where it was no and a step does not say, by ``rescores``,
        whether its nodes' scores are its own; such a chain can be fused by ranks alone.
        """
        found = descends(self._retriever)
        for step in self._steps:
            rescores = _rescores(step)
            found = True if rescores else found if found or rescores is False else None
        return found

    def prepare(self) -> None:
        """Build what a question will need, before it begins to read."""
        prepare_all([self._retriever])

    def _asked(self, query: str) -> list[NodeRetriever]:
        """What has to be built and read: nothing for a blank query."""
        return [self._retriever] if query.strip() else []

    def _limit(self, query: Any, topk: int | None) -> int | None:
        if not isinstance(query, str):
            msg = f"The query is {query!r} ({type(query).__name__}); give a text."
            raise ConfigError(msg)
        return self._topk if topk is None else whole_number("topk", topk, 1)

    def _fetched(self, limit: int | None) -> int | None:
        if self._fetch is not None or limit is None:
            return self._fetch
        return max(_FETCHED_AT_LEAST, _FETCHED_TIMES * limit) if self._steps else limit


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
    _check_call(what, retriever, "", filters=None, topk=None)


def _check_step(step: Any) -> None:
    if not callable(step) or isinstance(step, type):
        msg = f"RetrievalChain got the step {step!r:.80}; give a callable (nodes, query) -> nodes, such as AutoMerge()."
        raise ConfigError(msg)
    _check_call(f"The step {_name(step)!r} cannot be called with (nodes, query)", step, [], "")


def _check_call(what: str, called: Any, *args: Any, **kwargs: Any) -> None:
    """Refuse a callable that does not take these arguments."""
    try:
        inspect.signature(called).bind(*args, **kwargs)
    except TypeError as exc:
        msg = f"{what}: {exc}. Give a callable that can."
        raise ConfigError(msg) from exc
    except ValueError:  # some functions written in C do not tell
        pass


def _done(step: Step, nodes: list[DocNode], query: str) -> list[DocNode]:
    """What a step makes of nodes.

    Raises:
        RetrievalError: If it raises, or returns something else than nodes.
    """
    try:
        gave: Any = step(list(nodes), query)
    except LazyRAGError:
        raise
    except Exception as exc:
        msg = f"The step {_name(step)!r} raised {type(exc).__name__}: {exc}"
        raise RetrievalError(msg) from exc
    if not isinstance(gave, (list, tuple)) or not all(isinstance(node, DocNode) for node in gave):
        msg = f"The step {_name(step)!r} returned {gave!r:.80}; it must return a list of nodes."
        raise RetrievalError(msg)
    return list(gave)


def _step_stage(step: Step, stage: Stage, query: str) -> Stage:
    trace = getattr(step, "trace", None)
    if callable(trace):
        traced = trace(stage, query)
        if not isinstance(traced, Stage):
            msg = (
                f"The trace of the step {_name(step)!r} is {traced!r:.80}; it must be a lazyrag.retrieval.stages.Stage."
            )
            raise RetrievalError(msg)
        return traced
    started = time.perf_counter()
    nodes = _done(step, list(stage.nodes), query)
    seconds = time.perf_counter() - started
    origins = getattr(step, "origins", None)
    found = origins(stage.nodes, nodes) if callable(origins) else {}
    return Stage(_kind(step), _name(step), tuple(nodes), (stage,), said=_said(step), seconds=seconds, origins=found)


def _kind(step: Any) -> StageKind:
    kind: StageKind = getattr(step, "kind", "reranker" if isinstance(step, Reranker) else "step")
    return kind


def _rescores(step: Any) -> bool | None:
    """Whether a step gives scores of its own, a higher one being better; None where it does not say."""
    said = getattr(step, "rescores", None)
    if said is None:
        return False if _kind(step) in _KEEPS_SCORES else None
    return bool(said)


def _name(step: Any) -> str:
    named = getattr(step, "name", None)
    return named if isinstance(named, str) else callable_name(step)


def _said(step: Any) -> Mapping[str, Any]:
    """What a step says that it was set to; of a dataclass its fields."""
    said = getattr(step, "said", None)
    if isinstance(said, Mapping):
        return said
    values = {one.name: getattr(step, one.name) for one in fields(step)} if is_dataclass(step) else {}
    return {name: value for name, value in values.items() if value is not None}
