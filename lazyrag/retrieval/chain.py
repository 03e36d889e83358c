"""`RetrievalChain`: a retriever and what is done with its nodes, as one retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar, cast, overload

from lazyrag.arguments import known_keywords, whole_number
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.document.document import Document
from lazyrag.errors import ConfigError
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
    Step,
    asked_nodes,
    callable_name,
    check_query,
    stage_of,
)
from lazyrag.retrieval.stepping import (
    Steps,
    check_call,
    check_directions,
    check_step,
    direction_behind,
    done,
    step_stage,
)
from lazyrag.retrieval.together import prepare_all, trees_of

T_co = TypeVar("T_co", covariant=True)

_FETCHED_AT_LEAST = 20
_FETCHED_TIMES = 4
_RERANKED = 50  # by `RetrievalChain.over`


class RetrievalChain(Generic[T_co]):
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
        self._retriever = retriever
        self._steps = steps
        self._topk = None if topk is None else whole_number("topk", topk, 1)
        self._fetch = None if fetch is None else whole_number("fetch", fetch, 1)
        check_output(output_format, join)
        self._output_format: OutputFormat | None = output_format
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

        steps = self._running(query)
        nodes = steps.answer(
            lambda: asked_nodes(self._retriever, query, filters, self._fetched(limit)),
            lambda step, nodes: done(step, nodes, query),
            tuple,
        )
        return cast("T_co", render(nodes[:limit], self._output_format, self._join))

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

        stage = self._running(query).answer(
            lambda: stage_of(self._retriever, query, filters, self._fetched(limit)),
            lambda step, stage: step_stage(step, stage, query),
            lambda stage: stage.nodes,
        )
        return stage if limit is None else Stage("cut", "topk", stage.nodes[:limit], (stage,), said={"topk": limit})

    @known_keywords
    def explain(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Explanation:
        """Why the nodes of a result stand where they stand; see `lazyrag.explain`.

        Example:
            >>> from lazyrag import DocNode
            >>> found = lambda query, filters=None, topk=None: [DocNode(text="tea", score=0.5), DocNode(text="salt")]
            >>> len(RetrievalChain(found, topk=1).explain("tea").dropped)
            1
        """
        return explain(self, query, filters, topk)

    @known_keywords
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
            found = direction_behind(found, step)
        return found

    def prepare(self) -> None:
        """Build what a question will need, before it begins to read."""
        prepare_all([self._retriever])

    def _running(self, query: str) -> Steps:
        """The steps of one question; nothing has to be built and read for a blank one."""
        return Steps(self, query, [self._retriever] if query.strip() else [], self._steps)

    def _limit(self, query: Any, topk: int | None) -> int | None:
        check_query(query)
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
    check_call(what, retriever, "", filters=None, topk=None)
