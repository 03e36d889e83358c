"""`RetrievalChain` and its steps: auto-merge, windows, diversity, score thresholds."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.errors import ConfigError, RetrievalError, StaleNodeError, errors_of, known_names
from lazyrag.groups.node_group import group_name
from lazyrag.ranking.mmr import mmr
from lazyrag.read.scope import Documents, Reader
from lazyrag.read.snapshot import NOTHING, LocalSnapshot, Snapshot, is_reading, read
from lazyrag.read.windows import build_windows, is_window
from lazyrag.retrieval.base import (
    BaseRetriever,
    LazyStage,
    LoadedStage,
    OutputFormat,
    Query,
    check_retrievers,
)
from lazyrag.retrieval.hybrid import FeedbackRetriever, HybridRetriever
from lazyrag.retrieval.reranker import Reranker, token_embedders
from lazyrag.retrieval.retriever import validate_documents
from lazyrag.retrieval.stages import (
    NodeRetriever,
    Origins,
    Postprocessor,
    StageKind,
    callable_name,
    node_score,
    validate_nodes,
    validate_stage,
)
from lazyrag.text.near_duplicates import THRESHOLD, distinct, validate_threshold
from lazyrag.types import Embedding, FloatArray, Keywords
from lazyrag.validation import (
    check_call,
    is_list_of,
    known_keywords,
    require,
    validate_boolean,
    validate_integer,
    validate_number,
    without_none,
)

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

_FETCHED_AT_LEAST = 20
_FETCHED_TIMES = 4
_RERANKED = 15  # by `RetrievalChain.over`
_RERANK_TRIES = 3  # outside of a read, of nodes that change meanwhile


class RetrievalChain(BaseRetriever[T_co]):
    """A retriever and the steps behind it, as one retriever: rerankers, `AutoMerge`, `Windows`,
    `MMR`, own functions.

    All steps that read the Documents see one state of them. Rerankers read only the nodes and run
    outside of that read: they do not delay changes of a Document, and do not run twice for nodes
    that have not changed. Use a chain wherever a retriever is accepted: in a hybrid, in another
    chain.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a chain, any callable (query, filters=None,
            topk=None) -> nodes.
        steps: Callables (nodes, query) -> nodes, applied one after the other.
        topk: At most so many nodes in the end; None for all that the steps leave.
        fetch: How many nodes the retriever returns. None: four times ``topk``, and at least 20, if
            there are steps, which may drop some; else ``topk``; without a ``topk``, the retriever's
            own number.
        output_format: None or ``"node"``: nodes. ``"content"``: texts. ``"dict"``: the fields of a
            `lazyrag.data.result.Hit`.
        join: With ``"content"``, one text: True joins by line ends, a text by itself.

    Raises:
        ConfigError: If the retriever or a step cannot be called as one, an argument is out of its
            range, or a step expects that a higher score is better and a lower one is.

    Example:
        >>> from lazyrag import Document, Reranker, RetrievalChain, Retriever
        >>> from lazyrag.retrieval import MMR
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

    _answers_blank = True  # as your own function may

    @overload
    def __init__(
        self: RetrievalChain[list[DocNode]],
        retriever: NodeRetriever,
        *steps: Postprocessor,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: Literal["node"] | None = ...,
        join: Literal[False] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: RetrievalChain[Any],
        retriever: NodeRetriever,
        *steps: Postprocessor,
        topk: int | None = ...,
        fetch: int | None = ...,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
    ) -> None: ...
    def __init__(
        self,
        retriever: NodeRetriever,
        *steps: Postprocessor,
        topk: int | None = None,
        fetch: int | None = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
    ) -> None:
        self._set_retrievers(check_retrievers("RetrievalChain", [retriever]))
        for step in steps:
            is_step = callable(step) and not isinstance(step, type)
            expected = "a callable (nodes, query) -> nodes, such as AutoMerge()"
            require(is_step, "Each step", step, expected)
            if getattr(step, "output_format", None) is not None:
                raise ConfigError(
                    f"{step!r} returns no nodes. Set output_format= on the RetrievalChain instead."
                )
            message = f"The step {_step_name(step)!r} cannot be called with (nodes, query)"
            check_call(message, step, [], "")
        _check_directions(self.retrievers[0].higher_is_better, steps)
        self._steps = steps
        self._set_topk(topk, is_optional=True)
        self.own_topk = self._topk or self.retrievers[0].own_topk
        self._fetch = None if fetch is None else validate_integer("fetch", fetch, 1)
        self._set_output(output_format, join)

    @staticmethod
    def over(
        doc: Documents,
        group_name: str,
        topk: int = 6,
        *,
        embed_keys: Sequence[str] | None = None,
    ) -> RetrievalChain[list[DocNode]]:
        """The chain that measured best on all judged sets together, for a Document with embeddings:
        docs/quality.md.

        Hybrid search (`HybridRetriever.over`). Where the embedder gives token embeddings, as an
        `OnnxEmbedder` does, then with feedback (`FeedbackRetriever`), and the best fifteen reranked
        by these token embeddings (MaxSim); that embeds passages, some 20 ms each, which are cached
        in memory, or stored: ``OnnxEmbedder(token_cache=...)``.

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
        readers = [document.reader for document in validate_documents(doc)]
        able = [set(token_embedders(reader.embedders(embed_keys))) for reader in readers]
        common = set.intersection(*able)
        if not common:
            return RetrievalChain(hybrid, topk=topk)
        retriever = FeedbackRetriever(hybrid, nodes=2)
        reranker = Reranker("MaxSimReranker", embed_key=min(common))
        return RetrievalChain(retriever, reranker, topk=topk, fetch=max(_RERANKED, topk))

    @property
    def higher_is_better(self) -> bool | None:
        """True behind a step that sets new scores, else as the retriever.

        None where it was False and a step has no ``rescores``: it is unknown whether its scores are
        new. Such a chain can be fused by ranks alone.
        """
        direction = self.retrievers[0].higher_is_better
        for step in self._steps:
            direction = _direction_behind(direction, step)
        return direction

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retriever and all steps in one read."""
        stage = self._retrieved(query, snapshot)
        for at in range(len(self._steps)):
            stage = self._stepped(at, stage, query)
        return self._cut(stage, query)

    def answer(self, query: Query, finish: Callable[[LazyStage], R], *, reads: bool = False) -> R:
        """See `BaseRetriever.answer`.

        A reranker may take seconds. So the read ends where one begins, and begins again behind it
        if a later step reads Documents: nothing runs twice if they have not changed, and a reranker
        never runs twice for the same nodes. Within the read of an outer retriever, and for nodes
        that change each time, all steps run in one read.
        """
        has_reranker = any(isinstance(step, Reranker) for step in self._steps)
        if not has_reranker or query.is_blank or not self.sources or is_reading(self.sources):
            return super().answer(query, finish, reads=reads)
        if not self._is_built:
            self.build()
        self.prepare(query)
        for _ in range(_RERANK_TRIES):
            stage, at, version = read(self.sources, partial(self._prefix, query))
            try:
                stage, at = self._run_outside(stage, at, query)
            except StaleNodeError:  # a reranker that reads Documents
                break
            if at < len(self._steps):
                continue
            last = self._cut(stage, query)
            if not reads:
                return finish(last)
            finished = read(self.sources, partial(_finish_in, finish, last, version))
            if finished is not None:
                return finished[0]
        return read(self.sources, lambda snapshot: finish(self.run(query, snapshot)))

    def _prefix(self, query: Query, snapshot: Snapshot) -> tuple[LoadedStage, int, Any]:
        """The stage in front of a reranker that has to run, its number, and the version of the
        Documents.
        """
        version = snapshot.version
        key = (id(self), query.text)
        cached = query.memo.get(key)
        if cached is None or cached[0] != version:
            cached = query.memo[key] = version, self._retrieved(query, snapshot)
        stage: LoadedStage = cached[1]
        for at, step in enumerate(self._steps):
            if isinstance(step, Reranker) and self._earlier_stage(at, stage, query) is None:
                return stage, at, version
            stage = self._stepped(at, stage, query)
        return stage, len(self._steps), version

    def _run_outside(self, stage: LoadedStage, at: int, query: Query) -> tuple[LoadedStage, int]:
        """Run the steps that read no Document."""
        for step in self._steps[at:]:
            if getattr(step, "reads", not isinstance(step, Reranker)):
                break
            stage = self._stepped(at, stage, query)
            at += 1
        return stage, at

    def _retrieved(self, query: Query, snapshot: Snapshot) -> LoadedStage:
        """The retriever's stage with its nodes loaded; with its record, where one is wanted."""
        limit = self._limit(query)
        retrieved = self.retrievers[0].run_part(query, snapshot, self._fetched(limit))
        record = retrieved.record() if query.is_explained else None
        return LoadedStage(
            retrieved.kind, retrieved.name, retrieved.nodes(), snapshot, stage=record
        )

    def _stepped(self, at: int, stage: LoadedStage, query: Query) -> LoadedStage:
        """The stage of a step; a reranker does not run twice for the same nodes."""
        step = self._steps[at]
        if not isinstance(step, Reranker):
            return _run_step(step, stage, query)
        earlier = self._earlier_stage(at, stage, query)
        if earlier is not None:  # a copy: a stage that occurs twice has two places
            record = copy.copy(earlier.record()) if query.is_explained else None
            return LoadedStage(
                earlier.kind, earlier.name, earlier.nodes(), stage.snapshot, stage=record
            )
        earlier = _run_step(step, stage, query)
        query.memo.setdefault((id(self), at, query.text), []).append((_identity(stage), earlier))
        return earlier

    def _earlier_stage(self, at: int, stage: LoadedStage, query: Query) -> LoadedStage | None:
        """The stage of a reranker for the very same nodes, if it ran for them."""
        before = query.memo.get((id(self), at, query.text), ())
        identity = _identity(stage) if before else None
        return next((earlier for nodes, earlier in before if nodes == identity), None)

    def _cut(self, stage: LoadedStage, query: Query) -> LazyStage:
        limit = self._limit(query)
        return stage if limit is None else stage.cut(limit)

    def _fetched(self, limit: int | None) -> int | None:
        if self._fetch is not None or limit is None:
            return self._fetch
        return max(_FETCHED_AT_LEAST, _FETCHED_TIMES * limit) if self._steps else limit


def _finish_in(
    finish: Callable[[LazyStage], R], last: LazyStage, version: Any, snapshot: Snapshot
) -> tuple[R] | None:
    """The result of a function for the last stage, if the Documents have not changed."""
    return (finish(last),) if snapshot.version == version else None


def _identity(stage: LoadedStage) -> list[Any]:
    return [(node, node.score, node.segment) for node in stage.nodes()]


def _run_step(step: Postprocessor, stage: LoadedStage, query: Query) -> LoadedStage:
    """Run a step, or its own trace where a record is wanted.

    Raises:
        RetrievalError: If it raises, or returns something else than nodes.
    """
    name = _step_name(step)
    trace = getattr(step, "trace", None)
    if query.is_explained and callable(trace):
        with errors_of(f"The step {name!r}", RetrievalError):
            traced = trace(stage.record(), query.text)
        record = validate_stage(traced, f"The trace of the step {name!r}")
        return LoadedStage.of(record, stage.snapshot)
    begun = time.perf_counter()
    with errors_of(f"The step {name!r}", RetrievalError):
        nodes: Any = step(list(stage.nodes()), query.text)
    seconds = time.perf_counter() - begun
    if not is_list_of(nodes, DocNode):
        raise RetrievalError(
            f"The step {name!r} must return a list of nodes; it returned {nodes!r:.80}."
        )
    find_origins = getattr(step, "origins", None)
    origins = {}
    if query.is_explained and callable(find_origins):
        origins = find_origins(stage.nodes(), nodes)
    return LoadedStage(
        _step_kind(step),
        name,
        nodes,
        stage.snapshot,
        inputs=(stage,),
        settings=_step_settings(step),
        seconds=seconds,
        origins=origins,
    )


def _step_kind(step: Any) -> StageKind:
    kind: StageKind = getattr(step, "kind", "reranker" if isinstance(step, Reranker) else "step")
    return kind


def _step_name(step: Any) -> str:
    name = getattr(step, "name", None)
    return name if isinstance(name, str) else callable_name(step)


def _step_settings(step: Any) -> Keywords:
    """The attribute ``settings`` of a step, or the fields of a dataclass."""
    settings = getattr(step, "settings", None)
    if isinstance(settings, Mapping):
        return settings
    if not is_dataclass(step):
        return {}
    values = {field.name: getattr(step, field.name) for field in fields(step)}
    return without_none(values)


def _direction_behind(direction: bool | None, step: Postprocessor) -> bool | None:
    """Whether a higher score is better behind a step, from the same before it."""
    rescores = getattr(step, "rescores", None)
    if rescores is None and _step_kind(step) in ("cut", "merge", "window", "mapping"):
        rescores = False  # they keep the scores
    if rescores:
        return True
    return None if rescores is None and not direction else direction


def _check_directions(direction: bool | None, steps: Sequence[Postprocessor]) -> None:
    """Refuse a step that expects that a higher score is better, where a lower one is.

    Args:
        direction: Whether a higher score of the retriever's nodes is better; None where that is
            unknown.
        steps: The steps. The attribute ``descend`` of a step is how it reads the scores; None: not
            at all.

    Raises:
        ConfigError: Naming the step.
    """
    for step in steps:
        if direction is False and getattr(step, "descend", None) is True:
            setting = "weight=1, or fusion='rrf'" if isinstance(step, Reranker) else "descend=False"
            raise ConfigError(
                f"The step {_step_name(step)!r} expects a higher score to be better; of the"
                f" retriever a lower one is. Set {setting} on the step, or put a Reranker before"
                " it, which sets new scores."
            )
        direction = _direction_behind(direction, step)


@known_keywords
def auto_merge(
    nodes: Iterable[DocNode],
    *,
    ratio: float = 0.5,
    least: int = 2,
    up_to: str | None = None,
    descend: bool = True,
) -> list[DocNode]:
    r"""Replace hits by their parent where enough of its children were found, level by level.

    It begins at the deepest group. Children of one parent and one group are replaced by the parent
    if there are at least ``least`` of them among the nodes, and they are at least that ``ratio`` of
    all its visible children of that group. Parents count for their own parents in turn. A node and
    its ancestor are never both in the result: every hit is in the result or below a node of it. A
    second call changes nothing.

    Args:
        nodes: The result of a retriever or reranker, of any groups and Documents.
        ratio: Share of a parent's children in (0, 1].
        least: Number of children, at least 1. With 1, an only child is lifted to its parent.
        up_to: The highest group to lift to; None for whole documents.
        descend: Whether a higher score is better, as ``descend`` of the similarity.

    Returns:
        Nodes, best first, ties by uid; those without a score last. A parent has the best score of
        the nodes that it represents, and their uids as its `DocNode.merged_from`. Other nodes stay
        the same.

    Raises:
        ConfigError: If an argument is out of its range, a node belongs to no Document, or nodes of
            one Document come through views with different filters.
        NotRegisteredError: If a Document of the nodes has no group ``up_to``.
        StaleNodeError: If a node is not in the live tree any more.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Green tea. White tea. Coffee.\nMilk. Tea. Salt. Sugar."})
        >>> docs.create_node_group("line", transform=str.splitlines)
        >>> docs.create_node_group("sentence", transform="SentenceWindow", parent="line")
        >>> hits = Retriever(docs, "sentence", similarity="bm25")("tea")
        >>> [(node.group, node.text) for node in auto_merge(hits)]
        [('sentence', 'Tea. '), ('line', 'Green tea. White tea. Coffee.')]
    """
    expected = "a share of a parent's children above 0 and up to 1"
    rule = _Rule(
        validate_number("ratio", ratio, expected, _is_share),
        validate_integer("least", least, 1),
        None if up_to is None else group_name(up_to),
        higher_is_better=validate_boolean("descend", descend),
    )
    listed = validate_nodes(nodes, "Retrieve with output_format=None.")
    readers: dict[int, Reader] = {}
    for node in listed:
        reader = _reader(node)
        first = readers.setdefault(id(reader.document_token), reader)
        if first.scope != reader.scope:
            raise ConfigError(
                f"Nodes come through different filters of a Document: {first.scope!r},"
                f" {reader.scope!r}."
            )

    def merge(snapshot: Snapshot) -> list[DocNode]:
        merged = []
        for position, part in enumerate(snapshot.parts):
            merging = _Merging(part, rule)
            for node in listed:
                if node.reader is not None and node.reader.document_token is part.indexer:
                    merging.add(node)
            merged += [(rule.order(node), node.uid, position, node) for node in merging.merged()]
        return [node for *_, node in sorted(merged, key=lambda item: item[:3])]

    return read(dict.fromkeys(readers.values(), NOTHING), merge) if readers else []


def _is_share(value: float) -> bool:
    return 0 < value <= 1


def _reader(node: DocNode) -> Reader:
    """The Document of a node."""
    if not isinstance(node.reader, Reader):
        raise ConfigError(f"All nodes must be nodes of a Document; got {node!r:.80}.")
    return node.reader


@dataclass(frozen=True, slots=True)
class _Rule:
    """The arguments of `auto_merge`."""

    ratio: float
    least: int
    up_to: str | None
    higher_is_better: bool

    def best(self, scores: Sequence[float | None]) -> float | None:
        best = max if self.higher_is_better else min
        return best((score for score in scores if score is not None), default=None)

    def order(self, node: DocNode) -> float:
        if node.score is None or math.isnan(node.score):
            return math.inf
        return -node.score if self.higher_is_better else node.score


@dataclass(slots=True)
class _MergedNode:
    """A node of the result.

    Args:
        segment: The node's.
        score: The best one of the hits that it represents.
        hit: The hit, as long as it represents itself alone.
        merged_from: Uids of the hits below it.
        is_hit: Whether it is a hit itself.
    """

    segment: Segment
    score: float | None
    hit: DocNode | None
    merged_from: tuple[str, ...] = ()
    is_hit: bool = False

    @property
    def stands_for(self) -> tuple[str, ...]:
        """Uids of hits."""
        return (self.segment.uid, *self.merged_from) if self.is_hit else self.merged_from


class _Merging:
    """Merges the nodes of one Document.

    Args:
        snapshot: In which they are read.
        rule: What is merged.
    """

    def __init__(self, snapshot: LocalSnapshot, rule: _Rule) -> None:
        self._snapshot = snapshot
        self._rule = rule
        self._line: Callable[[str], list[str]] = snapshot.source.line
        self._merged_nodes: dict[str, _MergedNode] = {}
        if rule.up_to is not None:
            self._line(rule.up_to)

    def add(self, node: DocNode) -> None:
        """Add a hit; of duplicates the best."""
        old = self._merged_nodes.get(node.uid)
        if old is None or (
            old.score != node.score and self._rule.best([old.score, node.score]) == node.score
        ):
            self._merged_nodes[node.uid] = _MergedNode(
                node.segment, node.score, node, node.merged_from, is_hit=True
            )

    def merged(self) -> list[DocNode]:
        """The nodes, replaced by parents level by level."""
        self._snapshot.prefetch_parents([item.segment for item in self._merged_nodes.values()])
        deepest = max((self._depth(item) for item in self._merged_nodes.values()), default=0)
        for depth in range(deepest, 1, -1):
            for children in self._families(depth):
                self._lift(children)
        groups = {item.segment.group for item in self._merged_nodes.values()}
        for merged in sorted(self._merged_nodes.values(), key=self._depth, reverse=True):
            # which may have absorbed others meanwhile
            self._absorb(self._merged_nodes[merged.segment.uid], groups)
        return [
            item.hit or self._snapshot.hit(item.segment, item.score, item.merged_from)
            for item in self._merged_nodes.values()
        ]

    def _depth(self, merged: _MergedNode) -> int:
        return len(self._line(merged.segment.group))

    def _families(self, depth: int) -> list[list[_MergedNode]]:
        """The nodes at a depth of the tree, by parent and group."""
        families: dict[tuple[str | None, str], list[_MergedNode]] = {}
        for item in self._merged_nodes.values():
            if self._depth(item) == depth:
                families.setdefault((item.segment.parent, item.segment.group), []).append(item)
        return list(families.values())

    def _lift(self, children: list[_MergedNode]) -> None:
        """Replace children by their parent if there are enough of them."""
        group = children[0].segment.group
        above = self._line(group)[1:]
        is_top = self._rule.up_to is not None and self._rule.up_to not in above
        if is_top or len(children) < self._rule.least:
            return
        parent = self._snapshot.parent(children[0].segment)
        if parent is None or not self._snapshot.sees(parent):
            return
        most = int(len(children) / self._rule.ratio) + 1
        siblings = self._snapshot.children_up_to(parent, group, most)
        if siblings is None:
            return
        all_uids = {sibling.uid for sibling in siblings}
        # a merged window is no child
        children = [child for child in children if child.segment.uid in all_uids]
        if len(children) >= self._rule.least and len(children) / len(all_uids) >= self._rule.ratio:
            self._replace(children, parent)

    def _absorb(self, merged: _MergedNode, groups: set[str]) -> None:
        """Drop a node that is below another one of the result, which has nodes of these groups."""
        above = self._snapshot.parent(merged.segment)
        while above is not None:
            if above.uid in self._merged_nodes:
                self._replace([merged], above)
                return
            # Further up are complete documents, which take long to read.
            if groups.isdisjoint(self._line(above.group)[1:]):
                return
            above = self._snapshot.parent(above)

    def _replace(self, lower: list[_MergedNode], segment: Segment) -> None:
        present = self._merged_nodes.get(segment.uid)
        if present is None:
            present = _MergedNode(segment, None, None)
        score = self._rule.best([merged.score for merged in (present, *lower)])
        uids = [*present.merged_from]
        for child in lower:
            uids += child.stands_for
            del self._merged_nodes[child.segment.uid]
        self._merged_nodes[segment.uid] = _MergedNode(
            segment, score, None, tuple(dict.fromkeys(uids)), is_hit=present.is_hit
        )


@dataclass(frozen=True, slots=True)
class AutoMerge:
    """Chain step that replaces nodes by their parent where enough of its children were found: see
    `auto_merge`.

    Args:
        ratio: Share of a parent's children in (0, 1].
        least: Number of children, at least 1.
        up_to: The highest group to lift to; None for whole documents.
        descend: Whether a higher score is better.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> AutoMerge(ratio=0.6)
        AutoMerge(ratio=0.6, least=2, up_to=None, descend=True)
    """

    ratio: float = 0.5
    least: int = 2
    up_to: str | None = None
    descend: bool = True
    kind: ClassVar[StageKind] = "merge"

    def __post_init__(self) -> None:
        self([])

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002
        """Merge nodes; see `auto_merge`."""
        return auto_merge(
            nodes, ratio=self.ratio, least=self.least, up_to=self.up_to, descend=self.descend
        )


@dataclass(frozen=True, slots=True)
class Windows:
    """Chain step that adds to each node its neighbours in its group and document: see
    `Document.window`.

    Windows that overlap or touch are joined; a window has the place and score of the best of its
    nodes.

    Args:
        before: How many neighbours before each node, at least 0.
        after: How many behind each, at least 0.
        merge: Whether to return each window as one node, instead of its nodes one by one.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> Windows(before=0, after=2)
        Windows(before=0, after=2, merge=True)
    """

    before: int = 1
    after: int = 1
    merge: bool = True
    kind: ClassVar[StageKind] = "window"

    def __post_init__(self) -> None:
        validate_integer("before", self.before, 0)
        validate_integer("after", self.after, 0)
        validate_boolean("merge", self.merge)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002
        """Return the windows, best first.

        Raises:
            ConfigError: If a node belongs to no Document, or is a merged window itself.
            StaleNodeError: If a node is not in the live tree any more.
        """
        by_tree: dict[int, list[int]] = {}
        for at, node in enumerate(nodes):
            if is_window(node):
                merged = f"a merged window of {len(node.merged_from)} nodes has no neighbours"
                raise ConfigError(
                    f"{node!r}: {merged}. Use one Windows with larger numbers, or merge=False"
                    " first."
                )
            by_tree.setdefault(id(_reader(node).document_token), []).append(at)
        windows = []
        for positions in by_tree.values():
            part = [nodes[at] for at in positions]
            windows_of_tree = _reader(part[0]).read(partial(self._windows, part))
            windows += [(positions[rank], window) for rank, window in windows_of_tree]
        windows.sort(key=lambda placed: placed[0])
        return list(chain.from_iterable(window for _, window in windows))

    def _windows(
        self, nodes: Sequence[DocNode], snapshot: LocalSnapshot
    ) -> list[tuple[int, list[DocNode]]]:
        return build_windows(snapshot, nodes, self.before, self.after, merge=self.merge)

    def origins(self, nodes: Sequence[DocNode], results: Sequence[DocNode]) -> Origins:
        """For each neighbour the nodes in whose windows it is."""
        beside: dict[tuple[Any, ...], list[DocNode]] = {}
        for node in nodes:
            beside.setdefault(_location(node), []).append(node)
        before = set(nodes)
        origins = {}
        for node in results:
            if node not in before and not node.merged_from:
                origins[node] = tuple(
                    hit
                    for hit in beside.get(_location(node), ())
                    if hit.number - self.before <= node.number <= hit.number + self.after
                )
        return origins


def _location(node: DocNode) -> tuple[Any, ...]:
    return (
        None if node.reader is None else id(node.reader.document_token),
        node.document_id,
        node.group,
    )


@dataclass(frozen=True, slots=True)
class MMR:
    """Chain step for diversity: maximal marginal relevance, see `lazyrag.ranking.mmr.mmr`.

    The vector of a node is the stored one; the text of a node without one, such as a merged window
    or a node of a group without embeddings, is embedded by its Document. Blank texts are unlike all
    others.

    Args:
        lam: From 0 to 1: the weight of the incoming score, brought to [0, 1]; the rest is the
            weight of diversity.
        embed_key: The embed key whose vectors are compared; None where there is only one.
        topk: At most so many nodes; None for all, in another order.
        descend: Whether a higher incoming score is better. Of the new scores it always is.

    Raises:
        ConfigError: If an argument is out of its range.

    Source:
        Carbonell, Goldstein: The Use of MMR, Diversity-Based Reranking, SIGIR 1998,
            doi:10.1145/290941.291025.

    Example:
        >>> one = DocNode(text="one", embeddings={"e": [1, 0]}, score=3)
        >>> uno = DocNode(text="uno", embeddings={"e": [1, 0]}, score=2.9)
        >>> two = DocNode(text="two", embeddings={"e": [0, 1]}, score=2)
        >>> [node.text for node in MMR(topk=2)([one, uno, two])]
        ['one', 'two']
    """

    lam: float = 0.5
    embed_key: str | None = None
    topk: int | None = None
    descend: bool = True
    kind: ClassVar[StageKind] = "diversity"
    rescores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate_boolean("descend", self.descend)
        mmr([("any", 1.0)], [[1.0]], lam=self.lam, topk=self.topk)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002
        """Return the chosen nodes with their marginal relevance as score, best first.

        Raises:
            ConfigError: If there are several embed keys and none is named, or a node has none; if
                vectors differ in length or kind.
            RetrievalError: If a node has no score.
            EmbeddingError: If a text cannot be embedded.
        """
        distinct = list(dict.fromkeys(nodes))
        sign = 1.0 if self.descend else -1.0
        ranking = [
            ((node.uid, at), sign * node_score("MMR", node)) for at, node in enumerate(distinct)
        ]
        vectors = self._vectors(distinct)
        _check_alike(distinct, vectors)
        chosen = mmr(ranking, _rows(vectors), lam=self.lam, topk=self.topk)
        return [distinct[at].with_score(score) for (_, at), score in chosen]

    def _vectors(self, nodes: Sequence[DocNode]) -> list[Embedding | None]:
        """A vector for each node; None for a blank text. The stored ones of a Document are read
        together.
        """
        by_source: dict[tuple[int, str], list[DocNode]] = {}
        for node in nodes:
            by_source.setdefault((id(node.reader), self._key(node)), []).append(node)
        vectors: dict[DocNode, Embedding | None] = {}
        for (_, key), group in by_source.items():
            reader = group[0].reader
            if isinstance(reader, Reader):
                stored = reader.vectors_of([node.segment for node in group], key)
                vectors.update(zip(group, stored, strict=True))
            else:
                vectors.update((node, node.embeddings.get(key)) for node in group)
            missing = [node for node in group if vectors[node] is None and node.get_text().strip()]
            if not missing:
                continue
            if not isinstance(reader, Reader):
                raise ConfigError(
                    f"MMR needs vectors; {missing[0]!r} belongs to no Document and has none as"
                    f" {key!r}."
                )
            [embedder] = reader.embedders([key])
            embedded = embedder.embed([node.get_text() for node in missing])
            vectors.update(zip(missing, embedded, strict=True))
        return [vectors[node] for node in nodes]

    def _key(self, node: DocNode) -> str:
        if self.embed_key is not None:
            return self.embed_key
        reader = node.reader
        keys = (
            [embedder.key for embedder in reader.embedders(None)]
            if isinstance(reader, Reader)
            else list(node.embeddings)
        )
        if len(keys) != 1:
            names = known_names("", keys) if keys else "It has none at all."
            raise ConfigError(
                f"MMR(embed_key=None) needs nodes with one embed key; {node!r} has {len(keys)}."
                f" {names}"
            )
        return keys[0]


def _check_alike(nodes: Sequence[DocNode], vectors: Sequence[Embedding | None]) -> None:
    """Refuse vectors that cannot be compared."""
    kinds = {
        "a sparse one" if isinstance(vector, dict) else f"one of {len(vector)} numbers": node
        for node, vector in zip(nodes, vectors, strict=True)
        if vector is not None
    }
    if len(kinds) > 1:
        listed = ", and ".join(f"{node!r} has {kind}" for kind, node in kinds.items())
        raise ConfigError(
            f"MMR compares vectors of one model: {listed}. Pass embed_key=, or nodes of one"
            " Document."
        )


def _rows(vectors: Sequence[Embedding | None]) -> list[FloatArray]:
    """Vectors as rows of one length, zeros where there is none; sparse ones over the dimensions
    that they have.
    """
    sparse = [vector for vector in vectors if isinstance(vector, dict)]
    columns = {dimension: at for at, dimension in enumerate(sorted({*chain.from_iterable(sparse)}))}
    length = (
        len(columns)
        if sparse
        else next((len(vector) for vector in vectors if vector is not None), 0)
    )
    rows = [np.zeros(length) for _ in vectors]
    for row, vector in zip(rows, vectors, strict=True):
        if isinstance(vector, dict):
            row[[columns[dimension] for dimension in vector]] = list(vector.values())
        elif vector is not None:
            row[:] = vector
    return rows


@dataclass(frozen=True, slots=True)
class Distinct:
    """Chain step that collapses near-duplicates: of nodes with nearly the same text only the first,
    the best, stays.

    Texts are compared without regard to case and white space. Scores and order stay the same. To
    find near-duplicates of a whole group, use `lazyrag.read.near_duplicates`.

    Args:
        threshold: From 0.5 to 1: the least Jaccard similarity of the texts' runs of eight bytes.
            0.8 allows about one replaced word in 20, or one Chinese letter in 40; 1 only other case
            and white space.

    Raises:
        ConfigError: If the threshold is out of its range.

    Example:
        >>> texts = ["Green tea needs 80 degrees.", "Coffee needs 92."]
        >>> texts.insert(1, texts[0].replace(" 80", "  80"))
        >>> [node.text for node in Distinct()([DocNode(text=text) for text in texts])]
        ['Green tea needs 80 degrees.', 'Coffee needs 92.']
    """

    threshold: float = THRESHOLD
    kind: ClassVar[StageKind] = "cut"
    reads: ClassVar[bool] = False  # a Document

    def __post_init__(self) -> None:
        validate_threshold(self.threshold)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002
        """Return the nodes that are no near-duplicate of an earlier one."""
        texts = [node.get_text() for node in nodes]
        return [nodes[at] for at in distinct(texts, self.threshold)]


@dataclass(frozen=True, slots=True)
class ScoreThreshold:
    """Chain step that drops nodes whose score is worse than a bound; an equal score stays.

    The scale is that of the stage before: a cosine, a BM25 score, a fused score, a reranker's
    score.

    Args:
        score: The bound; None for none.
        of_best: The bound as a share in (0, 1] of the best score among the nodes, which must be
            above 0.
        descend: Whether a higher score is better; ``of_best`` needs that.

    Raises:
        ConfigError: If neither bound is given, or one is out of its range.

    Example:
        >>> scores = {"a": 0.9, "b": 0.5, "c": 0.2}
        >>> nodes = [DocNode(text=text, score=score) for text, score in scores.items()]
        >>> [node.text for node in ScoreThreshold(0.5)(nodes)]
        ['a', 'b']
        >>> [node.text for node in ScoreThreshold(of_best=0.9)(nodes)]
        ['a']
    """

    score: float | None = None
    of_best: float | None = None
    descend: bool = True
    kind: ClassVar[StageKind] = "cut"
    reads: ClassVar[bool] = False  # a Document

    def __post_init__(self) -> None:
        validate_boolean("descend", self.descend)
        if self.score is None and self.of_best is None:
            raise ConfigError(
                "ScoreThreshold needs a bound: score=0.3, or of_best=0.5 for half of the best"
                " score."
            )
        if self.score is not None:
            validate_number("score", self.score, "a number", lambda value: not math.isnan(value))
        if self.of_best is not None:
            validate_number("of_best", self.of_best, "a share above 0 and up to 1", _is_share)
            require(self.descend, "descend", self.descend, "True with of_best")

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002
        """Return the nodes that are good enough, in their order.

        Raises:
            RetrievalError: If a node has no score, or with ``of_best`` the best score is not above
                0.
        """
        scores = [node_score("ScoreThreshold", node) for node in nodes]
        bounds = [] if self.score is None else [self.score]
        if self.of_best is not None and scores:
            best = max((score for score in scores if not math.isnan(score)), default=math.nan)
            if not best > 0:
                raise RetrievalError(
                    f"of_best={self.of_best} needs a best score above 0; it is {best!r}."
                )
            bounds.append(self.of_best * best)
        if not bounds:
            return list(nodes)
        bound = max(bounds) if self.descend else min(bounds)
        return [
            node
            for node, score in zip(nodes, scores, strict=True)
            if (score >= bound if self.descend else score <= bound)
        ]
