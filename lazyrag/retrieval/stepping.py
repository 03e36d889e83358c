"""The steps of a `lazyrag.RetrievalChain` at work: each named in errors, slow ones outside of the read."""

from __future__ import annotations

import copy
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar, cast

from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError, StaleNodeError
from lazyrag.retrieval.reranker import Reranker
from lazyrag.retrieval.stages import Stage, StageKind, Step, callable_name
from lazyrag.retrieval.together import one_question, read_together, state_of, trees_of

V = TypeVar("V")

_KEEPS_SCORES: tuple[StageKind, ...] = ("cut", "merge", "window", "mapping")
_OUTSIDE = 3  # so often nodes that change all the time are reranked outside of a read


@dataclass(frozen=True, slots=True)
class Steps:
    """What a chain does for one question.

    Args:
        chain: The chain.
        query: The question.
        read: What has to be built and read before the steps.
        steps: The chain's.
    """

    chain: object
    query: str
    read: Sequence[object]
    steps: Sequence[Step]

    def answer(
        self, first: Callable[[], V], do: Callable[[Step, V], V], nodes_of: Callable[[V], Sequence[DocNode]]
    ) -> V:
        """What the last step leaves, of one state of the Documents.

        A reranker may take seconds. So the read ends where one begins, and begins again behind it if a step that reads
        Documents is left: nothing is asked twice if they are as they were, and of a reranker nothing that it was asked
        before. Within the read of a larger question that cannot be, nor where the nodes are others each time.

        Args:
            first: Asks the retriever.
            do: Does a step.
            nodes_of: The nodes of what these give.
        """
        trees = trees_of(self.read)
        with one_question() as kept:
            asked = _Asked(self, kept, trees, first, do, nodes_of)
            if trees and all(tree.views.is_pinned for tree in trees):
                return asked.within(stops=False)[0]
            for tries in range(_OUTSIDE + 1):
                value, at = read_together(self.read, functools.partial(asked.within, stops=tries < _OUTSIDE))
                try:
                    value, at = asked.outside(value, at)
                except StaleNodeError:  # a reranker that reads more than the nodes hold
                    return read_together(self.read, functools.partial(asked.within, stops=False))[0]
                if at == len(self.steps):
                    return value
        raise AssertionError  # the last time it does not stop


@dataclass(slots=True)
class _Asked(Generic[V]):
    """A question in progress.

    Args:
        steps: What is done.
        kept: What rerankers gave, by chain, place and query: for which nodes what.
        trees: Of the Documents.
        first: See `Steps.answer`.
        do: See there.
        nodes_of: See there.
        last: What the retriever gave, and of which state.
    """

    steps: Steps
    kept: dict[Any, list[tuple[Any, Any]]]
    trees: Sequence[Builder]
    first: Callable[[], V]
    do: Callable[[Step, V], V]
    nodes_of: Callable[[V], Sequence[DocNode]]
    last: list[tuple[Any, V]] = field(default_factory=list)

    def within(self, *, stops: bool) -> tuple[V, int]:
        """What comes out in front of a step, and its number: the end, or a reranker that has to be asked.

        Args:
            stops: Whether to stop at such a one.
        """
        value = self._retrieved()
        for at, step in enumerate(self.steps.steps):
            known = self._known(at, value)
            if isinstance(step, Reranker) and known is None and stops:
                return value, at
            value = self._done(at, value) if known is None else known
        return value, len(self.steps.steps)

    def outside(self, value: V, at: int) -> tuple[V, int]:
        """Go on as far as no Document is read; see `within`."""
        while at < len(self.steps.steps) and not _reads(self.steps.steps[at]):
            value = self._done(at, value)
            at += 1
        return value, at

    def _retrieved(self) -> V:
        """What the retriever gives, without asking it again of the state that it was asked of last."""
        if not self.last or self.last[0][0] != state_of(self.trees):
            value = self.first()
            self.last = [(state_of(self.trees), value)]
        return self.last[0][1]

    def _done(self, at: int, value: V) -> V:
        step = self.steps.steps[at]
        gave = self.do(step, value)
        if isinstance(step, Reranker):
            self.kept.setdefault(self._key(at, value), []).append((self._given(value), gave))
        return gave

    def _known(self, at: int, value: V) -> V | None:
        """What a reranker gave for the very same nodes."""
        before = self.kept.get(self._key(at, value), ())
        given = self._given(value) if before else None
        # A copy: of a Stage that is met twice both have a place of their own.
        return next((cast("V", copy.copy(gave)) for nodes, gave in before if nodes == given), None)

    def _key(self, at: int, value: V) -> Any:
        return id(self.steps.chain), at, self.steps.query, type(value)

    def _given(self, value: V) -> list[Any]:
        return [(node, node.score, node.segment) for node in self.nodes_of(value)]


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


def done(step: Step, nodes: list[DocNode], query: str) -> list[DocNode]:
    """What a step makes of nodes.

    Raises:
        RetrievalError: If it raises, or returns something else than nodes.
    """
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
        if not isinstance(traced, Stage):
            told = f"The trace of the step {name_of(step)!r} is {traced!r:.80}"
            msg = f"{told}; it must be a lazyrag.retrieval.stages.Stage."
            raise RetrievalError(msg)
        return traced
    started = time.perf_counter()
    nodes = done(step, list(stage.nodes), query)
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


def _reads(step: Any) -> bool:
    """Whether a step may read a Document."""
    return bool(getattr(step, "reads", not isinstance(step, Reranker)))
