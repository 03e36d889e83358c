"""`BaseRetriever`: what all retrievers share, and the stages that they produce. `explain` and
`why_not`.
"""

from __future__ import annotations

import functools
import math
import numbers
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from lazyrag.data.filters import Filter, FilterLike, both, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.data.suggestions import suggest_name
from lazyrag.errors import ConfigError, RetrievalError, StaleNodeError, errors_of
from lazyrag.models.concurrency import in_thread, settle
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import (
    NOTHING,
    OUTSIDE,
    Hits,
    NodeKey,
    Snapshot,
    SnapshotSource,
    is_reading,
    read,
)
from lazyrag.read.source import Needs
from lazyrag.retrieval.stages import (
    ExplainMissing,
    NodeRetriever,
    Origins,
    Reason,
    Stage,
    StageKind,
    Traceable,
    callable_name,
    check_query,
    retrieve_nodes,
    validate_stage,
)
from lazyrag.types import AnyCallable, JsonObject, Keywords
from lazyrag.validation import (
    check_call,
    keyword_names,
    known_keywords,
    require,
    validate_choice,
    validate_integer,
    without_none,
)

if TYPE_CHECKING:
    from lazyrag.data.result import Hit
    from lazyrag.retrieval.explain import Explanation
    from lazyrag.text.field_values import Inference

OutputFormat: TypeAlias = Literal["node", "content", "dict"]
_WIDTH = 77  # of a line of text, as printed
_PARSED = "parsed filters"
_HIT_FIELDS = ("id", "text", "score", "source", "document_id", "chunk_id", "metadata")

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Query:
    """One call of a retriever.

    Args:
        text: The query.
        filters: As the caller passed them.
        topk: At most so many nodes; None for the retriever's own number.
        is_explained: Whether to record all stages, those of functions and steps included.
        memo: Results of models, kept for the call: it may read the Documents more than once.
        feedback: Nodes to move the query's vector towards, and how far; None leaves that to the
            retriever.
        reasons: Functions that explain why nodes are missing; cleared when the call ends.
        preference: The documents that the question means, which come before others.
        language_analyser: Analyser whose index detects the languages of nodes, for a query that is
            compared across languages; else "".
    """

    text: str
    filters: FilterLike | None = None
    topk: int | None = None
    is_explained: bool = False
    memo: dict[Any, Any] = field(default_factory=dict)
    feedback: tuple[Sequence[DocNode], float] | None = None
    reasons: list[ExplainMissing] = field(default_factory=list)
    preference: Inference | None = None
    language_analyser: str = ""

    def during_call(self, why: ExplainMissing) -> ExplainMissing:
        """Wrap a function so that it can be called, and references the snapshot, during the call
        only.
        """
        reasons = self.reasons
        number = len(self.reasons)
        reasons.append(why)

        def reason(uid: str) -> Reason:
            if number >= len(reasons):
                raise StaleNodeError(
                    "A trace explains missing nodes during the call only. Call why_not() instead."
                )
            return reasons[number](uid)

        return reason

    def parsed_filters(self) -> Filter | None:
        """Parse the filters, once a call: a generator among their values can be read only once."""
        if self.filters is None:
            return None
        if _PARSED not in self.memo:
            self.memo[_PARSED] = parse_filter(self.filters)
        return cast("Filter", self.memo[_PARSED])

    @property
    def is_blank(self) -> bool:
        """Whether the text is empty or white space."""
        return not self.text or self.text.isspace()

    def within(self, condition: Filter) -> Query:
        """Return the query with a filter beside its own."""
        memo = {key: value for key, value in self.memo.items() if key != _PARSED}
        return replace(self, filters=both(self.parsed_filters(), condition), memo=memo)

    def with_topk(self, topk: int | None) -> Query:
        """Return the query with another number of nodes."""
        return replace(self, topk=topk)


@dataclass(slots=True, eq=False)
class LazyStage:
    """A stage during the call. Its nodes are loaded on demand, inside the read.

    Args:
        kind: What the stage does.
        name: Its name; the retriever may know a better one for an explanation.
        hits: Keys with the stage's scores, best first.
        snapshot: The state in which they were ranked.
        group: The group of the hits; "" where the nodes come from the inputs.
        embed_key: The embed key of the search.
        inputs: The stages whose nodes it took.
        contributions: Of a fusion: the contribution of each input to each score.
        settings: Its settings.
        seconds: Its duration, without its inputs.
        retriever: Of a leaf: the retriever, which explains missing nodes.
        query: Of a leaf: the query.
        why: Explains why a node is missing, instead of the retriever.
    """

    kind: StageKind
    name: str
    hits: Hits
    snapshot: Snapshot
    group: str = ""
    embed_key: str | None = None
    inputs: tuple[LazyStage, ...] = ()
    contributions: Mapping[NodeKey, tuple[float, ...]] = field(default_factory=dict)
    settings: Keywords = field(default_factory=dict)
    seconds: float = 0.0
    retriever: BaseRetriever[Any] | None = None
    query: Query | None = None
    why: ExplainMissing | None = None
    _nodes: tuple[DocNode, ...] | None = field(default=None, repr=False)
    _stage: Stage | None = field(default=None, repr=False)

    def load(self, hits: Hits) -> list[DocNode]:
        """Load the nodes of some of the hits, in their order, with the given scores."""
        if self.group:
            return self.snapshot.nodes(self.group, hits, self.embed_key)
        return self.inputs[0].load(hits)

    def nodes(self) -> tuple[DocNode, ...]:
        """All its nodes, best first."""
        if self._nodes is None:
            self._nodes = tuple(self.load(self.hits)) if self.hits else ()
        return self._nodes

    def then(self, kind: StageKind, name: str, topk: int | None = None, **more: Any) -> LazyStage:
        """Return a stage behind this one with its first nodes."""
        return LazyStage(kind, name, self.hits[:topk], self.snapshot, inputs=(self,), **more)

    def cut(self, topk: int | None) -> LazyStage:
        """Return a stage with the best of its nodes."""
        return self.then("cut", "topk", topk, settings={"topk": topk})

    def record(self) -> Stage:
        """Return this stage and those before it as plain data, with all their nodes.

        The record explains missing nodes until the call ends; after that it references no snapshot.
        """
        if self._stage is not None:
            return self._stage
        name = self.name
        settings = self.settings
        why = self.why
        if self.retriever is not None and self.query is not None:
            name, settings = self.retriever.describe(self)
            why = functools.partial(self.retriever.explain_missing, self)
        if why is not None and self.query is not None:
            why = self.query.during_call(why)
        inputs = tuple(stage.record() for stage in self.inputs)
        self._stage = Stage(
            self.kind,
            name,
            self.nodes(),
            inputs,
            self._contributions(),
            settings,
            self.seconds,
            retriever=self.retriever.wrapped if self.retriever is not None and not inputs else None,
            origins=self._origins(),
            why=why,
        )
        return self._stage

    def _contributions(self) -> Any:
        """The contributions by uid, or by node where several Documents may have nodes of one
        uid.
        """
        if not self.contributions:
            return EMPTY
        by_key = [self.contributions[key] for key, _ in self.hits]
        by_node = dict(zip(self.nodes(), by_key, strict=True))
        parts = {part for _, part, _ in self.contributions}
        if self.group or len(self.snapshot.parts) > 1 or len(parts) > 1:
            return by_node
        return {node.uid: contributions for node, contributions in by_node.items()}

    def _origins(self) -> Origins:
        """By node, those of the inputs that it represents, where it is another one."""
        return {}


class LoadedStage(LazyStage):
    """A stage whose nodes are in memory: the result of a function or a step. A node without score
    has nan.
    """

    __slots__ = ("_sources", "by_key")

    def __init__(
        self,
        kind: StageKind,
        name: str,
        nodes: Sequence[DocNode],
        snapshot: Snapshot,
        *,
        stage: Stage | None = None,
        origins: Origins | None = None,
        **more: Any,
    ) -> None:
        super().__init__(kind, name, [], snapshot, **more)
        self._sources = origins or {}
        self._nodes = tuple(nodes)
        self._stage = stage
        self.by_key: dict[NodeKey, DocNode] = {}

    @classmethod
    def of(cls, stage: Stage, snapshot: Snapshot) -> LoadedStage:
        """A stage with its record."""
        return cls(stage.kind, stage.name, stage.nodes, snapshot, stage=stage)

    def load(self, hits: Hits) -> list[DocNode]:
        """See `LazyStage.load`."""
        return [self.by_key[key].with_score(score) for key, score in hits]

    def set_hits(self) -> None:
        """Set ``hits`` and ``by_key`` for a fusion."""
        if not self.by_key:
            for node in self.nodes():
                key = node_key(node, self.snapshot)
                self.by_key.setdefault(key, node)  # of duplicates the first
                self.hits.append((key, math.nan if node.score is None else node.score))

    def then(self, kind: StageKind, name: str, topk: int | None = None, **more: Any) -> LazyStage:
        """See `LazyStage.then`."""
        return LoadedStage(kind, name, self.nodes()[:topk], self.snapshot, inputs=(self,), **more)

    def _origins(self) -> Origins:
        return dict(self._sources)


def node_key(node: DocNode, snapshot: Snapshot) -> NodeKey:
    """The key of a node in a read."""
    part = snapshot.index_of(node)
    return node.uid, part, "" if part == OUTSIDE else node.segment.key


class DefaultInt(int):
    """A number that the user did not choose: another retriever's own number takes precedence over
    it.
    """


DEFAULT_TOPK: int = DefaultInt(6)


class BaseRetriever(Generic[T_co]):
    """Base of all retrievers: `prepare` calls models, `run` reads Documents, the rest is written
    here once.

    A subclass writes `run`, and sets `sources` or calls `_set_retrievers` with the retrievers that
    it combines.
    """

    retrievers: tuple[BaseRetriever[Any], ...] = ()
    """The retrievers that it combines."""
    running: tuple[BaseRetriever[Any], ...] = ()
    """Those of them that run: not those of weight 0."""
    sources: Mapping[SnapshotSource, Needs] = {}
    """The Documents that it reads, and what must be built for that."""
    output_format: OutputFormat | None = None
    """The form of its results; None for nodes."""
    is_ranked_by_store = False
    """Whether a store's own search ranks its nodes."""
    _join: bool | str = False
    own_topk: int | None = None
    """The ``topk`` that its user set: so much it contributes to a combination without one; None for
    the default."""
    _topk: int | None = None
    _depth: int | None = None
    _least_depth = 50
    _answers_blank = False
    _is_built = False

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Rank nodes in one state of the Documents. It may be called again for another state."""
        raise NotImplementedError

    def prepare(self, query: Query) -> None:
        """Call the models that a query needs: once a call, before the Documents are read."""
        for retriever in self.running:
            retriever.prepare(query)

    def unread(self, query: Query) -> str:
        """Say why a combination leaves it out for a query, as half a sentence; "" if it runs."""
        reasons = [part.unread(query) for part in self.running]
        return reasons[0] if all(reasons) and reasons else ""

    def bind_filters(self, query: Query) -> None:
        """Bind the filters to the schemas of the Documents; a ConfigError if they do not fit."""
        for retriever in self.retrievers:
            retriever.bind_filters(query)

    def indexed_node(self, uid: str) -> DocNode | None:
        """Return the node of an id in the searched group of a Document, or in an index in
        memory.
        """
        nodes = (retriever.indexed_node(uid) for retriever in self.retrievers)
        return next((node for node in nodes if node is not None), None)

    def build(self) -> None:
        """Build now what the first query would build."""
        read(self.sources, lambda _: None)
        self._is_built = True

    def describe(self, ranked: LazyStage) -> tuple[str, Keywords]:
        """Return name and settings of one of its stages for an explanation."""
        return ranked.name, ranked.settings

    def explain_missing(self, ranked: LazyStage, uid: str) -> Reason:
        """Explain why a node is not among the hits of one of its stages; called inside the read."""
        message = f"{ranked.name} did not return it and records no reasons."
        return Reason(uid, ranked.name, message, cause="no-reason")

    @property
    def wrapped(self) -> Any:
        """The user's own object."""
        return self

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a higher score of its nodes is better; None where that is unknown."""
        return True

    @property
    def supports_feedback(self) -> bool:
        """Whether `Query.feedback` changes its results."""
        return False

    @known_keywords
    def __call__(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> T_co:
        """Return the best nodes for a query.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: ``{field: [values]}``, where every field must have one of its values, or a
                `Condition`.
            topk: Another limit for this call.

        Returns:
            Nodes with scores, best first, ties by uid; or the form that ``output_format`` names.

        Raises:
            ConfigError: If the query is not a string, or a filter does not fit the fields.
            EmbeddingError: If the query cannot be embedded.
            GenerationError: If a chat model fails.
            RetrievalError: If a function fails or returns a wrong type. Errors of your own
                retrievers pass through.
            IngestionError: If every file failed in a step that the query needs.
        """
        call = self._query(query, filters, topk)
        if call.is_blank and not self._answers_blank:
            return cast("T_co", render([], self.output_format, self._join))
        return cast("T_co", self.answer(call, self._render))

    @known_keywords
    async def aretrieve(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> T_co:
        """Call it in a thread, so that an event loop goes on; see `__call__`."""
        return await in_thread(self, query, filters, topk)

    @known_keywords
    def trace(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> Stage:
        """Return the stages of a call; see `__call__` for arguments and errors.

        Returns:
            The last stage. Its nodes are those of a call with ``output_format=None``.
        """
        return self._answer_explained(
            self._query(query, filters, topk, is_explained=True), LazyStage.record
        )

    @known_keywords
    def explain(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> Explanation:
        """Explain the rank of each node of a result; see `lazyrag.explain`."""
        from lazyrag.retrieval.explain import build_explanation

        return build_explanation(self.trace(query, filters, topk), query, filters)

    @known_keywords
    def why_not(
        self, uid: str, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> Reason:
        """Explain why a node is not in a result, or give its rank; see `lazyrag.why_not`."""
        from lazyrag.retrieval.explain import Tracks

        require(isinstance(uid, str), "uid", uid, "a string", "Pass node.uid.")
        call = self._query(query, filters, topk, is_explained=True)
        return self._answer_explained(
            call, lambda ranked: Tracks(ranked.record()).reason(uid), reads=True
        )

    def _answer_explained(
        self, query: Query, finish: Callable[[LazyStage], R], *, reads: bool = False
    ) -> R:
        try:
            return self.answer(query, finish, reads=reads)
        finally:
            if not is_reading({}):  # a why_not of an outer retriever still needs the reasons
                query.reasons.clear()

    def answer(
        self,
        query: Query,
        finish: Callable[[LazyStage], R],
        *,
        reads: bool = False,  # noqa: ARG002
    ) -> R:
        """Run a query and return what a function makes of its last stage, inside the read.

        Args:
            query: The query.
            finish: Gets the last stage.
            reads: Whether ``finish`` reads Documents.
        """
        sources = self.sources
        if query.is_blank:  # nothing has to be built for it
            sources = dict.fromkeys(sources, NOTHING)
        else:
            if not self._is_built:  # if building fails, no model is called
                self.build()
            self.prepare(query)
        return read(sources, lambda snapshot: finish(self.run(query, snapshot)))

    def run_part(self, query: Query, snapshot: Snapshot, most: int | None) -> LazyStage:
        """Run as a part of another retriever, in its read.

        Args:
            query: The query.
            snapshot: Of the read.
            most: At most so many nodes; a `DefaultInt` gives way to `own_topk`. None: as many as it
                returns by itself.
        """
        topk = self.own_topk or most if isinstance(most, DefaultInt) else most
        return self.run(query.with_topk(topk), snapshot.of(tuple(self.sources)))

    def _query(
        self, text: Any, filters: FilterLike | None, topk: int | None, *, is_explained: bool = False
    ) -> Query:
        """Validate the arguments of a call."""
        if not isinstance(text, str):
            check_query(text)
        limit = self._topk if topk is None else validate_integer("topk", topk, 1)
        query = Query(text, filters, limit, is_explained)
        if filters is not None:
            self.bind_filters(query)
        return query

    def _set_topk(self, topk: int | None, *, is_optional: bool = False) -> None:
        """Validate and set the number of nodes; None for no limit, if it is optional."""
        if topk is not DEFAULT_TOPK:
            if topk is not None or not is_optional:
                topk = validate_integer("topk", topk, 1)
            self.own_topk = topk
        self._topk = topk

    def _limit(self, query: Query) -> Any:
        """The number of nodes: an int, or None for no limit in a retriever with ``topk=None``."""
        return self._topk if query.topk is None else query.topk

    def _fused_depth(self, limit: int) -> int:
        """The number of nodes of each ranking that are fused; a default one where ``limit`` is."""
        if self._depth is not None:
            return self._depth
        depth = max(self._least_depth, 4 * limit)
        return DefaultInt(depth) if isinstance(limit, DefaultInt) else depth

    def _render(self, ranked: LazyStage) -> Any:
        nodes = ranked.nodes()
        if self.output_format is None:
            return NodeList(nodes)
        return render(nodes, self.output_format, self._join)

    def _set_output(self, output_format: OutputFormat | None, join: bool | str) -> None:
        """Validate and set the form of the results."""
        self.output_format, self._join = checked_output(output_format, join)

    def _set_retrievers(self, retrievers: Iterable[BaseRetriever[Any]]) -> None:
        """Combine other retrievers and read what they read. They have the texts of clients that
        return ids alone.
        """
        self.retrievers = tuple(retrievers)
        for part in self.retrievers:
            if isinstance(part.wrapped, SearchClient):
                part.wrapped.node_of = self.indexed_node
        self._set_running(self.retrievers)

    def _set_running(self, running: Iterable[BaseRetriever[Any]]) -> None:
        """Run some of the retrievers, and build and read nothing for the others."""
        self.running = tuple(running)
        sources: dict[SnapshotSource, Needs] = {}
        for retriever in self.running:
            for source, needs in retriever.sources.items():
                sources[source] = sources.get(source, NOTHING) | needs
        self._is_built = self._is_built and sources == self.sources
        self.sources = sources


class FunctionRetriever(BaseRetriever[list[DocNode]]):
    """Your own callable (query, filters=None, topk=None) -> nodes as a retriever.

    The callable may have an attribute ``descends``, False where a smaller score is better, and its
    own ``trace``.

    Args:
        function: The callable; or a retriever of a class that overrides ``__call__``.
    """

    def __init__(self, function: NodeRetriever | Traceable) -> None:
        self._function = function
        self._name = callable_name(function)
        self._inner = function if isinstance(function, BaseRetriever) else None
        if self._inner is not None:
            self.sources = self._inner.sources
            self.own_topk = self._inner.own_topk
        trace = getattr(function, "trace", None)
        is_ours = self._inner is not None and _is_of_package(type(self._inner).trace)
        self._trace: AnyCallable | None = None
        if callable(trace) and not is_ours:
            self._trace = trace

    @property
    def wrapped(self) -> Any:
        """The function."""
        return self._function

    @property
    def higher_is_better(self) -> bool | None:
        """The function's attribute ``descends``; True without one."""
        if self._inner is not None:
            return self._inner.higher_is_better
        descends = getattr(self._function, "descends", True)
        return None if descends is None else bool(descends)

    @property
    def supports_feedback(self) -> bool:
        """As the wrapped retriever."""
        return self._inner is not None and self._inner.supports_feedback

    def with_feedback(self, nodes: Sequence[DocNode], weight: float = 0.7) -> FunctionRetriever:
        """See `Retriever.with_feedback`; only for a retriever that supports feedback."""
        return FunctionRetriever(cast("Any", self._inner).with_feedback(nodes, weight))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Call the function."""
        if query.feedback is not None and self.supports_feedback:
            return self.with_feedback(*query.feedback).run(replace(query, feedback=None), snapshot)
        if query.is_explained and self._trace is not None:
            traced = self._trace(query.text, filters=query.filters, topk=query.topk)
            stage = validate_stage(traced, f"The trace of {self._function!r:.80}")
            return LoadedStage.of(stage, snapshot)
        begun = time.perf_counter()
        nodes = retrieve_nodes(self._function, query.text, query.filters, query.topk)
        seconds = time.perf_counter() - begun
        return LoadedStage(
            "retriever", self._name, nodes, snapshot, seconds=seconds, retriever=self, query=query
        )

    def describe(self, ranked: LazyStage) -> tuple[str, Keywords]:
        """The function's name with the arguments of the call."""
        query = ranked.query
        params = {} if query is None else {"filters": query.filters, "topk": query.topk}
        return self._name, without_none(params)

    def _query(
        self, text: Any, filters: FilterLike | None, topk: int | None, *, is_explained: bool = False
    ) -> Query:
        check_query(text)  # the function checks the rest
        return Query(text, filters, topk, is_explained)


class SearchClient:
    """A client with ``search(query, top_k)`` as a callable retriever, such as spec 003's vector
    client.

    Its search, which may be asynchronous, returns nodes, hits, or objects or mappings with ``id``,
    ``text``, ``score`` and perhaps the other fields of a `Hit`; or pairs (id, score), whose texts
    another retriever must have.

    Args:
        client: The client. Filters are passed on if its search takes ``filters``.

    Raises:
        ConfigError: If its search takes something else than a query and a number.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.node_of: Callable[[str], DocNode | None] = lambda _: None
        """Finds the node of an id that comes without a text."""
        self.__name__ = type(client).__name__
        named, takes_any = keyword_names(client.search, skip=0)
        self._filters = takes_any or "filters" in named
        if "collection_name" in named:
            raise ConfigError(
                f"{self.__name__}.search needs a collection and vectors. Pass an object whose"
                " search(query, top_k) embeds the query, or use RAGPipeline(embedding_manager,"
                " milvus_client)."
            )
        check_call(
            f"{self.__name__}.search cannot be called with (query, top_k)", client.search, "", 1
        )

    def __call__(
        self, query: str, filters: FilterLike | None = None, topk: int | None = None
    ) -> list[DocNode]:
        """Search, and return nodes."""
        if filters is not None and not self._filters:
            raise ConfigError(f"{self.__name__}.search takes no filters; got {filters!r:.60}.")
        limits = () if topk is None else (topk,)
        keywords = {} if filters is None else {"filters": filters}
        with errors_of(f"{self.__name__}.search", RetrievalError):
            items = list(settle(self.client.search(query, *limits, **keywords)))
        return [self._node(item) for item in items]

    def _node(self, item: Any) -> DocNode:
        if isinstance(item, DocNode):
            return item
        fields: Any = item
        if isinstance(item, (tuple, list)) and len(item) == 2:
            fields = dict(zip(("id", "score"), item, strict=True))
        elif not isinstance(item, Mapping):
            fields = {name: getattr(item, name, None) for name in _HIT_FIELDS}
        uid = fields.get("id")
        score = fields.get("score")
        text = fields.get("text")
        node = self.node_of(str(uid)) if text is None else None
        has_text = node is not None or isinstance(text, str)
        is_valid = uid is not None and isinstance(score, numbers.Real) and has_text
        expected = (
            "nodes, or objects with id, text and score, or pairs (id, score) of texts that another"
            " retriever has"
        )
        name = f"A result of {self.__name__}.search"
        require(is_valid, name, item, expected, error=RetrievalError)
        if node is not None:
            return node.with_score(float(score))
        node = DocNode(text=text, uid=str(uid), metadata=fields.get("metadata"))
        segment = node.segment._replace(
            path=str(fields.get("source") or ""),
            document_id=str(fields.get("document_id") or ""),
            number=int(fields.get("chunk_id") or 0),
        )
        return DocNode.from_segment(segment, None, score=float(score))


def _is_of_package(method: AnyCallable) -> bool:
    """Whether a method is this package's own, not an override by a user's class."""
    return method.__module__.startswith("lazyrag.")


def as_retriever(retriever: Any) -> BaseRetriever[Any]:
    """Return a retriever of this package as it is, and a callable or a client as a
    `FunctionRetriever`.

    A subclass that overrides ``__call__`` is a function, too.

    Raises:
        ConfigError: If it cannot be called as a retriever, and has no ``search`` that can be
            called.
    """
    if isinstance(retriever, BaseRetriever) and _is_of_package(type(retriever).__call__):
        return retriever
    if callable(retriever) or not hasattr(retriever, "trace"):
        try:
            message = (
                f"The retriever {callable_name(retriever)!r} cannot be called with (query,"
                " filters=..., topk=...)"
            )
            check_call(message, retriever, "", filters=None, topk=None)
        except ConfigError:
            if not callable(getattr(retriever, "search", None)):
                raise
            retriever = SearchClient(retriever)
    return FunctionRetriever(retriever)


def check_retrievers(
    owner: str, retrievers: Sequence[Any], hint: str = ""
) -> list[BaseRetriever[Any]]:
    """Validate retrievers of nodes and wrap functions and clients; ``hint`` is what to do where
    there is none.

    Raises:
        ConfigError: If there is none, one is neither a callable (query, filters, topk) nor a client
            with ``search``, or one returns texts or dicts.
    """
    if not retrievers:
        msg = (
            f"{owner} needs a retriever, such as Retriever(docs, 'FineChunk', similarity='bm25')."
            f" {hint}"
        )
        raise ConfigError(msg.rstrip())
    for retriever in retrievers:
        is_valid = callable(retriever) or callable(getattr(retriever, "search", None))
        require(
            is_valid and not isinstance(retriever, type),
            f"{owner}'s retriever",
            retriever,
            "a callable (query, filters=None, topk=None) -> nodes, or an object with search(query,"
            " top_k)",
            hint,
        )
        output_format = getattr(retriever, "output_format", None)
        if output_format is not None:
            raise ConfigError(
                f"{owner}'s retriever has output_format={output_format!r}; it must return nodes."
                " Use None."
            )
    return [as_retriever(retriever) for retriever in retrievers]


class WrappingRetriever(BaseRetriever[list[DocNode]]):
    """Base of what searches with one other retriever, and has its direction and name.

    Args:
        retriever: The other retriever.
    """

    def __init__(self, retriever: NodeRetriever) -> None:
        self._set_retrievers(check_retrievers(type(self).__name__, [retriever]))
        [inner] = self.retrievers
        self.own_topk = inner.own_topk
        self.__name__ = callable_name(inner)  # in traces

    @property
    def higher_is_better(self) -> bool | None:
        """As the retriever."""
        return self.retrievers[0].higher_is_better


def skipped_stage(
    retriever: BaseRetriever[Any], snapshot: Snapshot, why: str, cause: Any = "not-run"
) -> LazyStage:
    """The stage of a retriever that did not run.

    Args:
        retriever: The retriever.
        snapshot: Of the read.
        why: The reason in half a sentence.
        cause: The reason for programs.
    """
    name = callable_name(retriever.wrapped)

    def reason(uid: str) -> Reason:
        return Reason(uid, name, f"{name} did not run: {why}.", cause=cause)

    return LazyStage(
        "retriever", name, [], snapshot, settings={"skipped": why}, retriever=retriever, why=reason
    )


def checked_output(
    output_format: OutputFormat | None, join: bool | str
) -> tuple[OutputFormat | None, bool | str]:
    """The arguments ``output_format`` and ``join``, validated; ``"node"`` becomes None.

    Raises:
        ConfigError: If one of them is none of its values, or texts are to be joined where there are
            none.
    """
    if output_format is not None:
        validate_choice("output_format", output_format, ("node", "content", "dict"))
    joins = isinstance(join, (bool, str)) and (join is False or output_format == "content")
    require(joins, "join", join, "False, or True or a separator with output_format='content'")
    return (None if output_format == "node" else output_format), join


class NodeList(list[DocNode]):
    """The nodes of a result, best first: a list that `print` and notebooks show and programs send.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Green tea is not fermented."})
        >>> [hit["path"] for hit in docs.search("green tea").to_dicts()]
        ['tea']
    """

    __slots__ = ()

    def to_dicts(self) -> list[JsonObject]:
        """The nodes as JSON: ``uid``, ``group``, ``document_id``, ``path``, ``number``, ``text``,
        ``score``, ``span``, ``location``, ``metadata`` and ``global_metadata``, as the service
        sends them.

        Raises:
            StaleNodeError: If a node's document was deleted meanwhile.
        """
        from lazyrag.data.encoding import to_dict

        return _in_one_read(self, lambda: to_dict(list(self)))

    @overload
    def __getitem__(self, place: SupportsIndex) -> DocNode: ...
    @overload
    def __getitem__(self, place: slice) -> NodeList: ...
    def __getitem__(self, place: SupportsIndex | slice) -> DocNode | NodeList:
        item = super().__getitem__(place)
        return NodeList(item) if isinstance(item, list) else item

    def __str__(self) -> str:
        """Number, place and first line of each hit."""
        lines = []
        for rank, hit in enumerate(hits_of(self), start=1):
            first_line = hit.text.strip().partition("\n")[0]
            words = "".join(filter(str.isprintable, first_line))[:_WIDTH]
            lines += [f"{rank}. {hit.label}", f"   {words}"]
        return "\n".join(lines)

    if not TYPE_CHECKING:  # a checker would accept any name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                return object.__getattribute__(self, name)  # raises its own error
            suggestion = suggest_name(DocNode, name)
            hint = f"A hit has it: hits[0].{suggestion}." if suggestion else "It is a list of hits."
            raise AttributeError(f"NodeList has no attribute {name!r}. {hint}", name=name, obj=self)

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import hits_html

        return hits_html(hits_of(self))


def render(nodes: Sequence[DocNode], output_format: OutputFormat | None, join: bool | str) -> Any:
    """Return nodes as they are, as texts, as one text, or as dicts of their seven `Hit` fields."""
    if output_format is None:
        return NodeList(nodes)
    if output_format == "dict":
        return [hit.to_dict() for hit in hits_of(nodes)]
    texts = [node.get_content() for node in nodes]
    if join is False:
        return texts
    return ("\n" if join is True else join).join(texts)


def hits_of(nodes: Sequence[DocNode]) -> list[Hit]:
    """Return nodes as hits, with file metadata and locations from one state of their Documents.

    Raises:
        StaleNodeError: If a node's document was deleted meanwhile.
    """
    from lazyrag.data.result import Hit

    return _in_one_read(nodes, lambda: [Hit.from_node(node) for node in nodes])


def _in_one_read(nodes: Sequence[DocNode], function: Callable[[], R]) -> R:
    """Call a function that reads nodes, in one state of their Documents."""
    readers = [
        node.reader
        for node in nodes
        if isinstance(node.reader, Reader) and not node.reader.is_closed
    ]
    sources: dict[SnapshotSource, Needs] = dict.fromkeys(readers, NOTHING)
    return read(sources, lambda _: function())


@known_keywords
def explain(
    retriever: NodeRetriever | Traceable,
    query: str,
    filters: FilterLike | None = None,
    topk: int | None = None,
) -> Explanation:
    """Run a query and explain the rank of each node of the result.

    Args:
        retriever: Any retriever or chain. Of a function only its result is known.
        query: As for a call.
        filters: As for a call.
        topk: As for a call.

    Returns:
        The hits with their rank and score in every stage, the nodes that each stage dropped, and
        durations.

    Raises:
        ConfigError: If an argument is not what the retriever takes.
        RetrievalError: As a call does.

    Example:
        >>> from lazyrag import DocNode
        >>> def find_tea(query, filters=None, topk=None):
        ...     return [DocNode(text="tea", score=0.5)]
        >>> [(hit.rank, hit.score) for hit in explain(find_tea, "tea")]
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
    """Run a query and explain why a node is not in the result, or give its rank.

    Args:
        retriever: Any retriever or chain.
        uid: Of the expected node.
        query: As for a call.
        filters: As for a call.
        topk: As for a call.

    Returns:
        The stage that dropped the node and why; where none of several retrievers returned it, the
        reason of each. For a node that a retriever did not return, its true rank and score among
        all nodes of the group.

    Raises:
        ConfigError: If an argument is not what the retriever takes.
        RetrievalError: As a call does.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
        >>> why_not(Retriever(docs, "FineChunk", similarity="bm25"), "1234", "tea").message
        "There is no node '1234' in the Document."
    """
    return as_retriever(retriever).why_not(uid, query, filters, topk)
