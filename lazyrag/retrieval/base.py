"""What all retrievers have in common: one call, one trace, one explanation, over one read of their Documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import NOTHING, Needs, Snapshot, SnapshotSource, is_reading, read
from lazyrag.errors import ConfigError, known_names
from lazyrag.retrieval.explain import Explanation, Tracks, explained
from lazyrag.retrieval.stages import (
    LazyStage,
    LoadedStage,
    NodeRetriever,
    Query,
    Reason,
    Stage,
    Traceable,
    asked_nodes,
    callable_name,
    check_query,
    checked_stage,
    descends,
)
from lazyrag.validation import known_keywords, whole_number

OutputFormat: TypeAlias = Literal["content", "dict"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("content", "dict")


def check_output(output_format: OutputFormat | None, join: bool | str) -> None:
    """Refuse an unknown form, or a join of something that is no text.

    Raises:
        ConfigError: If either value is unknown, or texts are to be joined that are not asked for.
    """
    if output_format is not None and output_format not in OUTPUT_FORMATS:
        msg = f"output_format is {output_format!r}. {known_names(str(output_format), OUTPUT_FORMATS)} None gives nodes."
        raise ConfigError(msg)
    if not isinstance(join, (bool, str)) or (join is not False and output_format != "content"):
        msg = (
            f"join is {join!r} with output_format {output_format!r}; True or a separator joins output_format='content'."
        )
        raise ConfigError(msg)


def hits_of(nodes: Sequence[DocNode]) -> list[Hit]:
    """Nodes as hits, with their files' metadata and their places: all of one state of their Documents.

    Raises:
        StaleNodeError: If a node's document was deleted meanwhile.
    """
    readers = [node.reader for node in nodes]
    sources: dict[SnapshotSource, Needs] = {reader: NOTHING for reader in readers if isinstance(reader, Reader)}
    return read(sources, lambda _: [Hit.from_node(node) for node in nodes])


def render(nodes: Sequence[DocNode], output_format: OutputFormat | None, join: bool | str) -> Any:
    """Nodes as they are, as texts, as one text, or as dicts of their seven `Hit` fields."""
    if output_format is None:
        return list(nodes)
    if output_format == "dict":
        return [hit.to_dict() for hit in hits_of(nodes)]
    texts = [node.get_content() for node in nodes]
    if join is False:
        return texts
    return ("\n" if join is True else join).join(texts)


R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class BaseRetriever(Generic[T_co]):
    """A retriever: `prepare` calls models, `run` reads Documents, all else is written here once.

    A subclass sets `sources`, or calls `_combine` with the retrievers it is made of, and writes `run`.
    """

    retrievers: tuple[BaseRetriever[Any], ...] = ()
    """The retrievers that it is made of."""
    sources: Mapping[SnapshotSource, Needs] = {}
    """What it reads, and what has to be built for that."""
    output_format: OutputFormat | None = None
    """The form of its results; None for nodes."""
    _join: bool | str = False
    _topk: int | None = None
    _answers_blank = False
    _is_built = False

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Rank nodes in one state of the Documents. It may be called again for another state."""
        raise NotImplementedError

    def prepare(self, query: Query) -> None:
        """Call the models that a query needs: once a call, before anything is read."""
        for one in self.retrievers:
            one.prepare(query)

    def check(self, query: Query) -> None:
        """Refuse filters that do not fit.

        Raises:
            ConfigError: If they do not.
        """
        for one in self.retrievers:
            one.check(query)

    def build(self) -> None:
        """Build what a query needs now, instead of with the first query."""
        read(self.sources, lambda _: None)
        self._is_built = True

    def described(self, ranked: LazyStage) -> tuple[str, Mapping[str, Any]]:
        """Name and settings of one of its stages, for an explanation."""
        return ranked.name, ranked.said

    def missing(self, ranked: LazyStage, uid: str) -> Reason:
        """Why a node is not among the hits of one of its stages; called inside the read."""
        return Reason(uid, ranked.name, f"{ranked.name} did not give it.", cause="untold")

    @property
    def given(self) -> Any:
        """The object that a user holds."""
        return self

    @property
    def descends(self) -> bool | None:
        """Whether a higher score of its nodes is a better one; None where nobody can tell."""
        return True

    @property
    def moves(self) -> bool:
        """Whether `towards` makes a difference."""
        return False

    def towards(self, nodes: Sequence[DocNode], weight: float = 0.7) -> BaseRetriever[T_co]:  # noqa: ARG002
        """The same retriever, which moves the vectors of queries towards nodes; see `Retriever.towards`."""
        return self

    @known_keywords
    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> T_co:
        """The best nodes for a query.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: ``{field: [values]}``, where every field must have one of its values, or a `Condition`.
            topk: Another bound for this call.

        Returns:
            Nodes with scores, best first, ties by uid; or the form that ``output_format`` asks for.

        Raises:
            ConfigError: If the query is no text, or a filter does not fit the fields.
            EmbeddingError: If the query cannot be embedded.
            GenerationError: If a chat model fails.
            RetrievalError: If a function fails or returns something else than it must. What a retriever of one's own
                raises comes through as it is.
            IngestionError: If every file failed in a step that the query needs.
        """
        asked = self._query(query, filters, topk)
        if asked.is_blank and not self._answers_blank:
            return cast("T_co", render([], self.output_format, self._join))
        return cast("T_co", self.answer(asked, self._render))

    @known_keywords
    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """What a call does, stage by stage; see `__call__` for arguments and errors.

        Returns:
            The last stage. Its nodes are those that a call gives, whatever ``output_format`` says.
        """
        return self._explained(self._query(query, filters, topk, is_explained=True), LazyStage.stage)

    @known_keywords
    def explain(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Explanation:
        """Why the nodes of a result stand where they stand; see `lazyrag.explain`."""
        return explained(self.trace(query, filters, topk), query, filters)

    @known_keywords
    def why_not(self, uid: str, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Reason:
        """Why a node is not in a result, or at which rank it is; see `lazyrag.why_not`."""
        if not isinstance(uid, str):
            msg = f"why_not takes the uid of a node, a text, not {uid!r:.80}. Give node.uid."
            raise ConfigError(msg)
        asked = self._query(query, filters, topk, is_explained=True)
        return self._explained(asked, lambda ranked: Tracks(ranked.stage()).reason(uid), reads=True)

    def _explained(self, query: Query, finish: Callable[[LazyStage], R], *, reads: bool = False) -> R:
        try:
            return self.answer(query, finish, reads=reads)
        finally:
            if not is_reading({}):  # what a user's function traces may still be asked by a larger why_not
                query.reasons.clear()

    def answer(self, query: Query, finish: Callable[[LazyStage], R], *, reads: bool = False) -> R:  # noqa: ARG002
        """What a function makes of the last stage, within the read.

        Args:
            query: The query.
            finish: Gets the last stage.
            reads: Whether it reads Documents.
        """
        sources = self.sources
        if query.is_blank:  # nothing has to be built for it
            sources = dict.fromkeys(sources, NOTHING)
        else:
            if not self._is_built:  # what cannot be built needs no model
                self.build()
            self.prepare(query)
        return read(sources, lambda snapshot: finish(self.run(query, snapshot)))

    def ask(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run as a part of another retriever, in its read."""
        return self.run(query, snapshot.of(tuple(self.sources)))

    def _query(self, text: Any, filters: FilterLike | None, topk: int | None, *, is_explained: bool = False) -> Query:
        """A call's arguments, checked."""
        if not isinstance(text, str):
            check_query(text)  # which says what is wrong
        limit = self._topk if topk is None else whole_number("topk", topk, 1)
        query = Query(text, filters, limit, is_explained)
        if filters is not None:
            self.check(query)
        return query

    def _limit(self, query: Query) -> Any:
        """How many nodes are wanted: an int, or None for all in a retriever that takes None as its ``topk``."""
        return self._topk if query.topk is None else query.topk

    def _render(self, ranked: LazyStage) -> Any:
        nodes = ranked.nodes()
        return list(nodes) if self.output_format is None else render(nodes, self.output_format, self._join)

    def _combine(self, retrievers: Iterable[BaseRetriever[Any]]) -> None:
        """Be made of other retrievers, and read what they read."""
        self.retrievers = tuple(retrievers)
        self._read(self.retrievers)

    def _read(self, retrievers: Iterable[BaseRetriever[Any]]) -> None:
        """Read what some of the retrievers read."""
        found: dict[SnapshotSource, Needs] = {}
        for one in retrievers:
            for source, needs in one.sources.items():
                found[source] = found.get(source, NOTHING) | needs
        self._is_built = self._is_built and found == self.sources
        self.sources = found


class FunctionRetriever(BaseRetriever[list[DocNode]]):
    """A user's callable (query, filters=None, topk=None) -> nodes as a retriever.

    It may say by ``descends`` whether a higher score is a better one, and may have a ``trace`` of its own.

    Args:
        function: The callable; or a retriever of a class that overrides ``__call__``.
    """

    def __init__(self, function: NodeRetriever | Traceable) -> None:
        self._function = function
        self._name = callable_name(function)
        self._inner = function if isinstance(function, BaseRetriever) else None
        if self._inner is not None:
            self.sources = self._inner.sources
        trace = getattr(function, "trace", None)
        inherited = self._inner is not None and type(self._inner).trace.__module__.startswith("lazyrag.")
        self._trace: Callable[..., Any] | None = trace if callable(trace) and not inherited else None

    @property
    def given(self) -> Any:
        """See `BaseRetriever.given`."""
        return self._function

    @property
    def descends(self) -> bool | None:
        """See `BaseRetriever.descends`."""
        return descends(self._function)

    @property
    def moves(self) -> bool:
        """See `BaseRetriever.moves`."""
        return self._inner is not None and self._inner.moves

    def towards(self, nodes: Sequence[DocNode], weight: float = 0.7) -> FunctionRetriever:
        """See `BaseRetriever.towards`."""
        return self if self._inner is None else FunctionRetriever(self._inner.towards(nodes, weight))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`."""
        if query.towards is not None and self.moves:
            return self.towards(*query.towards).run(replace(query, towards=None), snapshot)
        if query.is_explained and self._trace is not None:
            stage = checked_stage(
                self._trace(query.text, filters=query.filters, topk=query.topk),
                f"The trace of {self._function!r:.80}",
            )
            return LoadedStage(stage.kind, stage.name, stage.nodes, snapshot, stage=stage)
        begun = time.perf_counter()
        nodes = asked_nodes(self._function, query.text, query.filters, query.topk)
        seconds = time.perf_counter() - begun
        return LoadedStage("retriever", self._name, nodes, snapshot, seconds=seconds, retriever=self, query=query)

    def described(self, ranked: LazyStage) -> tuple[str, Mapping[str, Any]]:
        """See `BaseRetriever.described`."""
        query = ranked.query
        told = () if query is None else (("filters", query.filters), ("topk", query.topk))
        return self._name, {name: value for name, value in told if value is not None}

    def missing(self, ranked: LazyStage, uid: str) -> Reason:
        """See `BaseRetriever.missing`."""
        told = f"{ranked.name} did not give it, and keeps no record that would tell why."
        return Reason(uid, ranked.name, told, cause="untold")

    def _query(self, text: Any, filters: FilterLike | None, topk: int | None, *, is_explained: bool = False) -> Query:
        check_query(text)  # the function checks the rest
        return Query(text, filters, topk, is_explained)


def as_retriever(given: Any) -> BaseRetriever[Any]:
    """What stands wherever a retriever does: one of this package as it is, a user's callable as a retriever.

    A subclass that answers calls in its own way is asked by a call.
    """
    own = isinstance(given, BaseRetriever) and type(given).__call__.__module__.startswith("lazyrag.")
    return given if own else FunctionRetriever(given)


@known_keywords
def explain(
    retriever: NodeRetriever | Traceable, query: str, filters: FilterLike | None = None, topk: int | None = None
) -> Explanation:
    """Ask a retriever and tell of each node of the result why it stands where it stands.

    Args:
        retriever: Any retriever or chain. Of a function only what it gave is known.
        query: As for a call.
        filters: As for a call.
        topk: As for a call.

    Returns:
        The hits with their rank and score in every stage, what each stage dropped, and how long it took.

    Raises:
        ConfigError: If the query is no text, or another argument is not what the retriever takes.
        RetrievalError: As a call does.

    Example:
        >>> from lazyrag import DocNode
        >>> explanation = explain(lambda query, filters=None, topk=None: [DocNode(text="tea", score=0.5)], "tea")
        >>> [(hit.rank, hit.score) for hit in explanation]
        [(1, 0.5)]
    """
    return as_retriever(retriever).explain(query, filters, topk)


@known_keywords
def why_not(
    retriever: NodeRetriever | Traceable,
    uid: str,
    query: str,
    filters: FilterLike | None = None,
    topk: int | None = None,
) -> Reason:
    """Ask a retriever and tell why a node is not in the result, or at which rank it is.

    Args:
        retriever: Any retriever or chain.
        uid: Of the node that was expected.
        query: As for a call.
        filters: As for a call.
        topk: As for a call.

    Returns:
        The one stage that dropped the node and why; where none of several retrievers gave it, each one's reason. For a
        node that a retriever did not give, its true rank and score, found by ranking all nodes of the group.

    Raises:
        ConfigError: If the uid or the query is no text, or another argument is not what the retriever takes.
        RetrievalError: As a call does.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
        >>> why_not(Retriever(docs, "FineChunk", similarity="bm25"), "1234", "tea").told
        "There is no node '1234' in the Document."
    """
    return as_retriever(retriever).why_not(uid, query, filters, topk)


def unasked(retriever: BaseRetriever[Any], snapshot: Snapshot, why: str, cause: Any = "unasked") -> LazyStage:
    """The stage of a retriever that was not asked.

    Args:
        retriever: The retriever.
        snapshot: Of the read.
        why: Why it was not, in half a sentence.
        cause: The same for programs.
    """
    name = callable_name(retriever.given)

    def reason(uid: str) -> Reason:
        return Reason(uid, name, f"{name} was not asked: {why}.", cause=cause)

    return LazyStage("retriever", name, [], snapshot, said={"not asked": why}, retriever=retriever, why=reason)


def check_retrievers(what: str, retrievers: Sequence[Any]) -> list[BaseRetriever[Any]]:
    """Retrievers of nodes; functions are wrapped.

    Raises:
        ConfigError: If there is none, or one is no callable, or gives texts or dicts.
    """
    if not retrievers:
        msg = f"{what} got no retriever; give at least one, such as Retriever(docs, 'FineChunk', similarity='bm25')."
        raise ConfigError(msg)
    for one in retrievers:
        if not callable(one) or isinstance(one, type):
            msg = f"{what} got {one!r:.80}; give retrievers: callables (query, filters=None, topk=None) -> nodes."
            raise ConfigError(msg)
        if getattr(one, "output_format", None) is not None:
            msg = f"{what} got a retriever with output_format={one.output_format!r}; give one with output_format=None."
            raise ConfigError(msg)
    return [as_retriever(one) for one in retrievers]
