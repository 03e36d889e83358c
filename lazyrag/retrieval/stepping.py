"""The steps of a `lazyrag.RetrievalChain`: checked when it is made, and named in errors."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError
from lazyrag.retrieval.ranked import LoadedStage, Query
from lazyrag.retrieval.reranker import Reranker
from lazyrag.retrieval.stages import Stage, StageKind, Step, callable_name, checked_stage

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
