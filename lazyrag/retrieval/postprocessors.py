"""Steps of a `RetrievalChain`: auto-merge, windows, diversity, thresholds of scores."""

from __future__ import annotations

import copy
import inspect
import math
import numbers
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.document.document import Document
from lazyrag.document.groups import group_name
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import NOTHING, LocalSnapshot, Snapshot, is_reading, is_window, ranked_windows, read
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError, StaleNodeError, known_names
from lazyrag.ranking.mmr import mmr, mmr_of_similarities
from lazyrag.retrieval.base import BaseRetriever, OutputFormat, as_retriever, check_output
from lazyrag.retrieval.hybrid import FeedbackRetriever, HybridRetriever
from lazyrag.retrieval.reranker import Reranker, token_embedders
from lazyrag.retrieval.stages import (
    LazyStage,
    LoadedStage,
    NodeRetriever,
    Query,
    Stage,
    StageKind,
    Step,
    callable_name,
    checked_stage,
    descends,
)
from lazyrag.types import Embedding, SparseVector
from lazyrag.validation import known_keywords, whole_number, yes_or_no


@known_keywords
def auto_merge(
    nodes: Iterable[DocNode],
    *,
    ratio: float = 0.5,
    least: int = 2,
    up_to: str | None = None,
    descend: bool = True,
) -> list[DocNode]:
    r"""Lift hits to their parents where enough of a parent's children were found, upwards as far as that goes.

    It begins at the deepest group. Children of one parent and one group are replaced by the parent if there are at
    least ``least`` of them among the nodes, and they are at least that ``ratio`` of all its children of that group that
    can be seen. Parents count for their own parents in turn. What stands beneath a node that is in the result is no
    result of its own: a node and its ancestor never come together, and all that was found is in the result or stands
    beneath something in it. Done once more, it changes nothing.

    Args:
        nodes: What a retriever or reranker returned, of any groups and Documents.
        ratio: Share of a parent's children in (0, 1].
        least: Number of children, at least 1. With 1, an only child is lifted to its parent.
        up_to: The highest group to lift to; None for whole documents.
        descend: Whether a larger score is a better one, as ``descend`` of the similarity that was used.

    Returns:
        Nodes, best first, ties by uid; those without a score last. A parent has the best score of what it stands for,
        and their uids as its `DocNode.merged_from`. Other nodes are the ones that were given.

    Raises:
        ConfigError: If an argument is out of its range, a node belongs to no Document, or nodes of one Document come
            through views with different filters.
        NotRegisteredError: If a Document of the nodes has no group ``up_to``.
        StaleNodeError: If a node does not stand in the live tree any more.

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
    if isinstance(ratio, bool) or not isinstance(ratio, numbers.Real) or not 0 < ratio <= 1:
        msg = f"ratio is {ratio!r}; give a number above 0 and up to 1, the share of a parent's children."
        raise ConfigError(msg)
    rule = _Rule(
        float(ratio),
        whole_number("least", least, 1),
        None if up_to is None else group_name(up_to),
        descends=yes_or_no("descend", descend),
    )
    listed, readers = _checked(nodes)

    def merge(snapshot: Snapshot) -> list[DocNode]:
        merged = []
        for position, part in enumerate(snapshot.parts):
            one = _Merging(part, rule)
            for node in listed:
                if node.reader is not None and node.reader.tree is part.builder:
                    one.add(node)
            merged += [(rule.order(node), node.uid, position, node) for node in one.merged()]
        return [node for *_, node in sorted(merged, key=lambda item: item[:3])]

    return read(dict.fromkeys(readers, NOTHING), merge) if readers else []


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is merged, and which score is better; see `auto_merge`."""

    ratio: float
    least: int
    up_to: str | None
    descends: bool

    def best(self, scores: Sequence[float | None]) -> float | None:
        known = [score for score in scores if score is not None]
        return None if not known else max(known) if self.descends else min(known)

    def order(self, node: DocNode) -> float:
        if node.score is None or math.isnan(node.score):
            return math.inf
        return -node.score if self.descends else node.score


@dataclass(slots=True)
class _Found:
    """A node of the result to be.

    Args:
        segment: The node's.
        score: The best one of what it stands for.
        given: The node that was given, as long as it stands for itself alone.
        merged_from: Uids of what was given and stands beneath it.
        is_hit: Whether it was given itself.
    """

    segment: Segment
    score: float | None
    given: DocNode | None
    merged_from: tuple[str, ...] = ()
    is_hit: bool = False

    @property
    def stands_for(self) -> tuple[str, ...]:
        """Uids of what was given."""
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
        self._found: dict[str, _Found] = {}
        if rule.up_to is not None:
            self._line(rule.up_to)

    def add(self, node: DocNode) -> None:
        """Take a node in; of equal ones the best."""
        known = self._found.get(node.uid)
        if known is None or (known.score != node.score and self._rule.best([known.score, node.score]) == node.score):
            self._found[node.uid] = _Found(node.segment, node.score, node, node.merged_from, is_hit=True)

    def merged(self) -> list[DocNode]:
        """The nodes, lifted level by level."""
        self._snapshot.look_above([one.segment for one in self._found.values()])
        deepest = max((self._depth(one) for one in self._found.values()), default=0)
        for depth in range(deepest, 1, -1):
            for children in self._families(depth):
                self._lift(children)
        groups = {one.segment.group for one in self._found.values()}
        for found in sorted(self._found.values(), key=self._depth, reverse=True):
            self._absorb(self._found[found.segment.uid], groups)  # which may have taken in others meanwhile
        return [
            one.given
            if one.given is not None
            else DocNode.from_segment(one.segment, self._snapshot.source, score=one.score, merged_from=one.merged_from)
            for one in self._found.values()
        ]

    def _depth(self, found: _Found) -> int:
        return len(self._line(found.segment.group))

    def _families(self, depth: int) -> list[list[_Found]]:
        """What was found at a depth of the tree, by parent and group."""
        families: dict[tuple[str | None, str], list[_Found]] = {}
        for one in self._found.values():
            if self._depth(one) == depth:
                families.setdefault((one.segment.parent, one.segment.group), []).append(one)
        return list(families.values())

    def _lift(self, children: list[_Found]) -> None:
        """Put the parent in the place of children, if they are enough."""
        group = children[0].segment.group
        line = self._line(group)
        if len(children) < self._rule.least or (self._rule.up_to is not None and self._rule.up_to not in line[1:]):
            return
        parent = self._snapshot.above(children[0].segment)
        if parent is None or not self._snapshot.sees(parent):
            return
        siblings = self._snapshot.few_children(parent, group, int(len(children) / self._rule.ratio) + 1)
        if siblings is None:
            return
        whole = {one.uid for one in siblings}
        children = [one for one in children if one.segment.uid in whole]  # a merged window is nobody's child
        if len(children) >= self._rule.least and len(children) / len(whole) >= self._rule.ratio:
            self._replace(children, parent)

    def _absorb(self, found: _Found, groups: set[str]) -> None:
        """Leave a node out that stands beneath another one of the result, which has nodes of these groups."""
        above = self._snapshot.above(found.segment)
        while above is not None:
            if above.uid in self._found:
                self._replace([found], above)
                return
            # Further up are whole documents, which nobody reads for nothing.
            above = None if groups.isdisjoint(self._line(above.group)[1:]) else self._snapshot.above(above)

    def _replace(self, lower: list[_Found], segment: Segment) -> None:
        known = self._found.get(segment.uid)
        if known is None:
            known = _Found(segment, None, None)
        score = self._rule.best([one.score for one in (known, *lower)])
        uids = [*known.merged_from, *(uid for one in lower for uid in one.stands_for)]
        for one in lower:
            del self._found[one.segment.uid]
        self._found[segment.uid] = _Found(segment, score, None, tuple(dict.fromkeys(uids)), is_hit=known.is_hit)


def _checked(nodes: Iterable[DocNode]) -> tuple[list[DocNode], list[Reader]]:
    """Nodes of Documents, and a reader for each of these."""
    if isinstance(nodes, DocNode) or not isinstance(nodes, Iterable):
        msg = f"auto_merge takes a list of nodes, not {nodes!r:.80}."
        raise ConfigError(msg)
    listed: list[Any] = list(nodes)
    readers: dict[int, Reader] = {}
    for node in listed:
        reader = node.reader if isinstance(node, DocNode) else None
        if not isinstance(reader, Reader):
            msg = f"auto_merge takes nodes of a Document, not {node!r:.80}. Retrieve with output_format=None."
            raise ConfigError(msg)
        known = readers.setdefault(id(reader.tree), reader)
        if known.scope != reader.scope:
            msg = f"Nodes of one Document come through views with different filters: {known.scope!r}, {reader.scope!r}."
            raise ConfigError(msg)
    return listed, list(readers.values())


_KEEPS_SCORES: tuple[StageKind, ...] = ("cut", "merge", "window", "mapping")


def check_step(step: Any) -> None:
    """Refuse what is no step.

    Raises:
        ConfigError: If it cannot be called with nodes and a query.
    """
    if not callable(step) or isinstance(step, type):
        msg = f"RetrievalChain got the step {step!r:.80}; give a callable (nodes, query) -> nodes, such as AutoMerge()."
        raise ConfigError(msg)
    check_call(f"The step {name_of(step)!r} cannot be called with (nodes, query)", step, [], "")


def check_call(what: str, called: Any, *args: Any, **kwargs: Any) -> None:
    """Refuse a callable that does not take these arguments.

    Raises:
        ConfigError: If it does not.
    """
    try:
        inspect.signature(called).bind(*args, **kwargs)
    except TypeError as exc:
        msg = f"{what}: {exc}. Give a callable that can."
        raise ConfigError(msg) from exc
    except ValueError:  # some functions written in C do not tell
        pass


def done(step: Step, found: LoadedStage, query: Query) -> LoadedStage:
    """What a step makes of nodes, with its record where that is wanted.

    Raises:
        RetrievalError: If it raises, or returns something else than nodes.
    """
    if query.is_explained:
        stage = step_stage(step, found.stage(), query.text)
        return LoadedStage(stage.kind, stage.name, stage.nodes, found.snapshot, stage=stage)
    return LoadedStage(kind_of(step), name_of(step), _gave(step, found.nodes(), query.text), found.snapshot)


def _gave(step: Step, nodes: Sequence[DocNode], query: str) -> list[DocNode]:
    with _named(step):
        gave: Any = step(list(nodes), query)
    if not isinstance(gave, (list, tuple)) or not all(isinstance(node, DocNode) for node in gave):
        msg = f"The step {name_of(step)!r} returned {gave!r:.80}; it must return a list of nodes."
        raise RetrievalError(msg)
    return list(gave)


@contextmanager
def _named(step: Step) -> Iterator[None]:
    """Turns whatever is raised inside into an error that names the step; errors of this package stay."""
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        msg = f"The step {name_of(step)!r} raised {type(exc).__name__}: {exc}"
        raise RetrievalError(msg) from exc


def step_stage(step: Step, stage: Stage, query: str) -> Stage:
    """What a step makes of a stage: its own trace, or one stage with what came and what went.

    Raises:
        RetrievalError: As `done`; and if the step's trace is no stage.
    """
    trace = getattr(step, "trace", None)
    if callable(trace):
        with _named(step):
            traced = trace(stage, query)
        return checked_stage(traced, f"The trace of the step {name_of(step)!r}")
    started = time.perf_counter()
    nodes = _gave(step, stage.nodes, query)
    seconds = time.perf_counter() - started
    origins = getattr(step, "origins", None)
    found = origins(stage.nodes, nodes) if callable(origins) else {}
    return Stage(kind_of(step), name_of(step), tuple(nodes), (stage,), said=_said(step), seconds=seconds, origins=found)


def kind_of(step: Any) -> StageKind:
    """What a step does, as a stage says it."""
    kind: StageKind = getattr(step, "kind", "reranker" if isinstance(step, Reranker) else "step")
    return kind


def rescores_of(step: Any) -> bool | None:
    """Whether a step gives scores of its own, a higher one being better; None where it does not say."""
    said = getattr(step, "rescores", None)
    if said is None:
        return False if kind_of(step) in _KEEPS_SCORES else None
    return bool(said)


def check_directions(direction: bool | None, steps: Sequence[Step]) -> None:
    """Refuse a step that takes a higher score for a better one, where a lower one is.

    Args:
        direction: Whether a higher score of the retriever's nodes is a better one; None where nobody can tell.
        steps: What follows. A step says by ``descend`` how it reads the scores that come; None: not at all.

    Raises:
        ConfigError: Naming the step.
    """
    for step in steps:
        if direction is False and getattr(step, "descend", None) is True:
            what = "weight=1, or fusion='rrf'," if isinstance(step, Reranker) else "descend=False"
            msg = (
                f"The step {name_of(step)!r} takes a higher score for a better one, and of the retriever's nodes those "
                f"with a lower score are better. Give the step {what} or put a step before it that gives nodes scores "
                "of its own, such as a Reranker."
            )
            raise ConfigError(msg)
        direction = direction_behind(direction, step)


def direction_behind(direction: bool | None, step: Step) -> bool | None:
    """Whether behind a step a higher score is a better one, if it was so before."""
    rescores = rescores_of(step)
    return True if rescores else direction if direction or rescores is False else None


def name_of(step: Any) -> str:
    """What a reader would call a step."""
    named = getattr(step, "name", None)
    return named if isinstance(named, str) else callable_name(step)


def _said(step: Any) -> Mapping[str, Any]:
    """What a step says that it was set to; of a dataclass its fields."""
    said = getattr(step, "said", None)
    if isinstance(said, Mapping):
        return said
    values = {one.name: getattr(step, one.name) for one in fields(step)} if is_dataclass(step) else {}
    return {name: value for name, value in values.items() if value is not None}


def reads_documents(step: Any) -> bool:
    """Whether a step may read a Document."""
    return bool(getattr(step, "reads", not isinstance(step, Reranker)))


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


@dataclass(frozen=True, slots=True)
class AutoMerge:
    """A step that lifts nodes to their parents where enough of a parent's children were found: see `auto_merge`.

    Args:
        ratio: Share of a parent's children in (0, 1].
        least: Number of children, at least 1.
        up_to: The highest group to lift to; None for whole documents.
        descend: Whether a higher score is a better one.

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

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The nodes, those of one parent put together; see `auto_merge` for errors."""
        return auto_merge(nodes, ratio=self.ratio, least=self.least, up_to=self.up_to, descend=self.descend)


@dataclass(frozen=True, slots=True)
class Windows:
    """A step that widens each node by its neighbours in its group and document: see `Document.window`.

    Windows that overlap or touch are one; it stands where the best of its nodes stood, and has that one's score.

    Args:
        before: How many neighbours before each node, at least 0.
        after: How many behind each, at least 0.
        merge: Give each window as one node; else its nodes one by one.

    Raises:
        ConfigError: If a number is none.

    Example:
        >>> Windows(before=0, after=2)
        Windows(before=0, after=2, merge=True)
    """

    before: int = 1
    after: int = 1
    merge: bool = True
    kind: ClassVar[StageKind] = "window"

    def __post_init__(self) -> None:
        whole_number("before", self.before, 0)
        whole_number("after", self.after, 0)
        yes_or_no("merge", self.merge)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The windows, best first.

        Raises:
            ConfigError: If a node belongs to no Document, or is a merged window itself.
            StaleNodeError: If a node does not stand in the live tree any more.
        """
        readers: dict[int, Reader] = {}
        for node in nodes:
            if not isinstance(node.reader, Reader):
                msg = f"Windows widens nodes of a Document, not {node!r}."
                raise ConfigError(msg)
            if is_window(node):
                msg = (
                    f"Windows got {node!r}, which is a merged window of {len(node.merged_from)} nodes and has no "
                    "neighbours. Widen once, with larger numbers, or give the first Windows merge=False."
                )
                raise ConfigError(msg)
            readers.setdefault(id(node.reader.tree), node.reader)
        found: list[tuple[int, list[DocNode]]] = []
        for reader in readers.values():
            own = [(at, node) for at, node in enumerate(nodes) if node.reader and node.reader.tree is reader.tree]
            some = reader.read(partial(self._windows, [node for _, node in own]))
            found += [(own[rank][0], window) for rank, window in some]
        return [node for _, window in sorted(found, key=lambda one: one[0]) for node in window]

    def _windows(self, nodes: Sequence[DocNode], snapshot: LocalSnapshot) -> list[tuple[int, list[DocNode]]]:
        return ranked_windows(snapshot, nodes, self.before, self.after, merge=self.merge)

    def origins(self, given: Sequence[DocNode], gave: Sequence[DocNode]) -> dict[DocNode, tuple[DocNode, ...]]:
        """For each neighbour the nodes in whose windows it stands."""
        beside: dict[tuple[Any, ...], list[DocNode]] = {}
        for node in given:
            beside.setdefault(_place(node), []).append(node)
        known = set(given)
        return {
            node: tuple(
                one
                for one in beside.get(_place(node), ())
                if one.number - self.before <= node.number <= one.number + self.after
            )
            for node in gave
            if node not in known and not node.merged_from
        }


def _place(node: DocNode) -> tuple[Any, ...]:
    return None if node.reader is None else id(node.reader.tree), node.document_id, node.group


@dataclass(frozen=True, slots=True)
class MMR:
    """A step that prefers nodes unlike the better ones: maximal marginal relevance.

    See `lazyrag.ranking.mmr.mmr`.

    A node's vector is the stored one; the text of a node without one, such as a merged window or a node of a group that
    nobody has searched by embedding, is embedded by its Document. Blank texts are like nothing.

    Args:
        lam: From 0 to 1: how much the score counts that nodes come with, brought to [0, 1]; the rest counts against
            likeness.
        embed_key: The embed key whose vectors are compared; None where there is only one.
        topk: At most so many nodes; None for all, in another order.
        descend: Whether a higher score of the nodes is a better one. Of its own scores it always is.

    Raises:
        ConfigError: If an argument is out of its range.

    Source:
        Carbonell, Goldstein: The Use of MMR, Diversity-Based Reranking, SIGIR 1998, doi:10.1145/290941.291025.

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
        yes_or_no("descend", self.descend)
        mmr([("any", 1.0)], [[1.0]], lam=self.lam, topk=self.topk)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The chosen nodes with their marginal relevance as score, best first.

        Raises:
            ConfigError: If there are several embed keys and none is named, or a node has none; if vectors are of
                different lengths or kinds.
            RetrievalError: If a node has no score.
            EmbeddingError: If a text cannot be embedded.
        """
        distinct = list(dict.fromkeys(nodes))
        sign = 1.0 if self.descend else -1.0
        ranking = [((node.uid, at), sign * _score("MMR", node)) for at, node in enumerate(distinct)]
        vectors = self._vectors(distinct)
        _check_alike(distinct, vectors)
        if any(isinstance(vector, dict) for vector in vectors):
            chosen = mmr_of_similarities(ranking, _cosines(vectors), lam=self.lam, topk=self.topk)
        else:
            rows = _rows(vectors)
            chosen = mmr(ranking, rows, lam=self.lam, topk=self.topk)
        return [distinct[at].with_score(score) for (_, at), score in chosen]

    def _vectors(self, nodes: Sequence[DocNode]) -> list[Embedding | None]:
        """A vector for each node; None for a blank text."""
        vectors = self._stored(nodes)
        missing: dict[int, list[int]] = {}
        for at, node in enumerate(nodes):
            if vectors[at] is None and node.get_text().strip():
                missing.setdefault(id(node.reader), []).append(at)
        for some in missing.values():
            first = nodes[some[0]]
            if not isinstance(first.reader, Reader):
                msg = f"MMR compares vectors, and {first!r} has none under {self._key(first)!r} and is of no Document."
                raise ConfigError(msg)
            [embedder] = first.reader.embedders([self._key(first)])
            for at, made in zip(some, embedder.embed([nodes[at].get_text() for at in some]), strict=True):
                vectors[at] = made
        return vectors

    def _stored(self, nodes: Sequence[DocNode]) -> list[Embedding | None]:
        """The vectors that nodes have; of those of one Document by one look at its store."""
        keys = [self._key(node) for node in nodes]
        vectors: list[Embedding | None] = [None] * len(nodes)
        together: dict[tuple[int, str], list[int]] = {}
        for at, (node, key) in enumerate(zip(nodes, keys, strict=True)):
            if isinstance(node.reader, Reader):
                together.setdefault((id(node.reader), key), []).append(at)
            else:
                vectors[at] = node.embeddings.get(key)
        for (_, key), places in together.items():
            reader = nodes[places[0]].reader
            if isinstance(reader, Reader):
                found = reader.vectors_of([nodes[at].segment for at in places], key)
                for at, vector in zip(places, found, strict=True):
                    vectors[at] = vector
        return vectors

    def _key(self, node: DocNode) -> str:
        if self.embed_key is not None:
            return self.embed_key
        reader = node.reader
        known = [one.key for one in reader.embedders(None)] if isinstance(reader, Reader) else list(node.embeddings)
        if len(known) != 1:
            told = known_names("", known) if known else "It has none at all."
            msg = f"MMR(embed_key=None) needs nodes with one embed key, and {node!r} has {len(known)}. {told}"
            raise ConfigError(msg)
        return known[0]


def _check_alike(nodes: Sequence[DocNode], vectors: Sequence[Embedding | None]) -> None:
    """Refuse vectors that cannot be compared."""
    known = [(node, vector) for node, vector in zip(nodes, vectors, strict=True) if vector is not None]
    for node, vector in known[1:]:
        first = known[0][1]
        told = [_kind(first), _kind(vector)]
        if told[0] != told[1]:
            msg = (
                f"MMR compares vectors of one model: {known[0][0]!r} has {told[0]}, and {node!r} has {told[1]}. Name "
                "another embed_key=, or give it the nodes of one Document."
            )
            raise ConfigError(msg)


def _kind(vector: Embedding) -> str:
    return "a sparse one" if isinstance(vector, dict) else f"one of {len(vector)} numbers"


def _rows(vectors: Sequence[Embedding | None]) -> Any:
    """Dense vectors as a table, with zeros where there is none."""
    dimension = next((len(vector) for vector in vectors if vector is not None), 0)
    return [np.zeros(dimension) if vector is None else np.asarray(vector, np.float64) for vector in vectors]


def _cosines(vectors: Sequence[Embedding | None]) -> list[list[float]]:
    """How alike sparse vectors are: (n, n) cosines, 0 for those below."""
    sparse = [vector if isinstance(vector, dict) else {} for vector in vectors]
    lengths = [math.sqrt(_product(one, one)) for one in sparse]
    return [
        [max(0.0, _product(one, two) / (a * b)) if a * b else 0.0 for two, b in zip(sparse, lengths, strict=True)]
        for one, a in zip(sparse, lengths, strict=True)
    ]


def _product(one: SparseVector, two: SparseVector) -> float:
    return math.fsum(float(one[dimension]) * float(two[dimension]) for dimension in one.keys() & two.keys())


@dataclass(frozen=True, slots=True)
class ScoreThreshold:
    """A step that drops nodes whose score is worse than a bound; what equals it stays.

    Scores mean what the stage before made of them: a cosine, a BM25 score, a fused share, a reranker's number.

    Args:
        score: The bound; None for none.
        of_best: The bound as a share in (0, 1] of the best score among the nodes, which must be above 0.
        descend: Whether a higher score is a better one; ``of_best`` needs that.

    Raises:
        ConfigError: If neither bound is given, or one is out of its range.

    Example:
        >>> nodes = [DocNode(text="a", score=0.9), DocNode(text="b", score=0.5), DocNode(text="c", score=0.2)]
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
        yes_or_no("descend", self.descend)
        if self.score is None and self.of_best is None:
            msg = "ScoreThreshold got no bound; give score=0.3, or of_best=0.5 for half of the best score."
            raise ConfigError(msg)
        if self.score is not None and not _is_number(self.score):
            msg = f"ScoreThreshold got score={self.score!r}; give a number."
            raise ConfigError(msg)
        if self.of_best is not None and not (_is_number(self.of_best) and 0 < self.of_best <= 1 and self.descend):
            msg = (
                f"ScoreThreshold got of_best={self.of_best!r} with descend={self.descend}; give a share above 0 and up "
                "to 1, of scores of which a higher one is better."
            )
            raise ConfigError(msg)

    def __call__(self, nodes: Sequence[DocNode], query: str = "") -> list[DocNode]:  # noqa: ARG002  a step's query
        """The nodes that are good enough, in their order.

        Raises:
            RetrievalError: If a node has no score, or the best score is not above 0 and a share of it is asked for.
        """
        scores = [_score("ScoreThreshold", node) for node in nodes]
        bounds = [] if self.score is None else [self.score]
        if self.of_best is not None and scores:
            best = max((score for score in scores if not math.isnan(score)), default=math.nan)
            if not best > 0:
                msg = f"ScoreThreshold(of_best={self.of_best}) got {best!r} as the best score, which has to be above 0."
                raise RetrievalError(msg)
            bounds.append(self.of_best * best)
        return [
            node
            for node, score in zip(nodes, scores, strict=True)
            if all(score >= bound if self.descend else score <= bound for bound in bounds)
        ]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)


def _score(step: str, node: DocNode) -> float:
    if node.score is None:
        msg = f"{step} compares scores, and {node!r} has none. Put it behind what gives scores."
        raise RetrievalError(msg)
    return node.score
