"""How good the rankings of many queries are: measures by name, for each query and in the mean."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from lazyrag.errors import ConfigError, known_names
from lazyrag.evaluation.metrics import average_precision, ndcg, precision, recall, reciprocal_rank, success
from lazyrag.evaluation.spans import (
    char_f1,
    char_iou,
    char_precision,
    char_recall,
    span_precision,
    span_recall,
    span_reciprocal_rank,
    span_success,
)
from lazyrag.ranking.fusion import first_of_each

DEFAULT = ("recall@1", "recall@5", "recall@10", "MRR@10", "nDCG@10")
"""What `evaluate` measures unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A named function from what was found and the grades to a number; a higher one is better.

    Args:
        name: As tables show it: ``"nDCG@10"``.
        func: From uids, best first, each once, and their grades to the number.
    """

    name: str
    func: Callable[[Sequence[Any], Mapping[Any, float]], float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a run is.

    Args:
        values: By measure: by query, in the order of the judgements.
        missing: Queries that were judged and not asked: each counts 0 in every measure.
        unjudged: Queries that were asked and not judged: left out.
    """

    values: Mapping[str, Mapping[Any, float]]
    missing: tuple[Any, ...] = ()
    unjudged: tuple[Any, ...] = ()

    @property
    def means(self) -> dict[str, float]:
        """By measure: the mean over all judged queries."""
        return {name: math.fsum(by_query.values()) / len(by_query) for name, by_query in self.values.items()}


def measure(name: str) -> Measure:
    """A measure by its name: ``metric``, or ``metric@k`` for the first k.

    The metrics are ``recall``, ``precision`` (with k only), ``success`` (also ``hit``), ``MRR``, ``MAP``, ``nDCG``
    (linear gains) and ``nDCG_exp`` (exponential ones), in upper or lower case; `lazyrag.evaluation.metrics` says what
    they are. Where runs and judgements are of `SourceSpan`: ``char_recall``, ``char_precision``, ``char_f1``,
    ``char_iou``, ``span_recall``, ``span_precision`` (with k only), ``span_success``, ``span_MRR``; see
    `lazyrag.evaluation.spans`.

    Raises:
        ConfigError: If there is no such metric, or k is no whole number of at least 1.

    Example:
        >>> measure("mrr@10").func(["a", "b"], {"b": 1})
        0.5
    """
    metric, at, depth = str(name).partition("@")
    known = {one.lower(): one for one in _METRICS}
    if metric.lower() not in known:
        msg = f"No metric is named {metric!r}. {known_names(metric, _METRICS)}"
        raise ConfigError(msg)
    needs_k = known[metric.lower()] in ("precision", "span_precision")
    if (at and not (depth.isdecimal() and int(depth) >= 1)) or (needs_k and not at):
        msg = f"The measure {name!r} needs a whole number of at least 1 after the @, such as {metric}@10."
        raise ConfigError(msg)
    function = _METRICS[known[metric.lower()]]
    named = known[metric.lower()] + (f"@{int(depth)}" if at else "")
    return Measure(named, partial(function, k=int(depth)) if at else function)


def evaluate(
    run: Mapping[Any, Sequence[tuple[Hashable, float]]],
    judgements: Mapping[Any, Mapping[Any, float]],
    measures: Sequence[str | Measure] = DEFAULT,
) -> Evaluation:
    """Measure rankings against judgements, for each query and in the mean.

    Args:
        run: By query its ranking ``[(uid, score), ...]``, best first. The order counts, the scores do not. A uid that
            is named twice counts where it stands first and takes no second place: files may be judged by their
            chunks.
        judgements: By query the grade of each uid that somebody judged; 1 and more is relevant.
        measures: Names that `measure` knows, or measures of one's own.

    Returns:
        The values by measure and query. A judged query that the run lacks counts 0, as in trec_eval -c; one that found
        nothing, or for which nothing is relevant, too. A query without judgements is left out.

    Raises:
        ConfigError: If a measure is unknown or named twice, nothing was judged, or a ranking or grades have another
            form.

    Example:
        >>> run = {"q1": [("a", 2.0), ("b", 1.0)], "q2": []}
        >>> evaluate(run, {"q1": {"b": 1}, "q2": {"c": 1}}, ["recall@10", "MRR"]).means
        {'recall@10': 0.5, 'MRR': 0.25}
    """
    chosen = [one if isinstance(one, Measure) else measure(one) for one in measures]
    names = [one.name for one in chosen]
    _check_mappings(run, judgements)
    if not judgements or not names or len(set(names)) < len(names):
        msg = (
            f"evaluate got {len(judgements)} judged queries and the measures {names}; give at least one of each, each "
            "measure once."
        )
        raise ConfigError(msg)
    found = {query: [uid for uid, _ in first_of_each(_ranking(query, run.get(query, ())))] for query in judgements}
    values = {
        one.name: MappingProxyType({query: one.func(found[query], grades) for query, grades in judgements.items()})
        for one in chosen
    }
    missing = tuple(query for query in judgements if query not in run)
    unjudged = tuple(query for query in run if query not in judgements)
    return Evaluation(MappingProxyType(values), missing, unjudged)


def _check_mappings(run: Any, judgements: Any) -> None:
    if not isinstance(run, Mapping):
        msg = f"evaluate got the run {run!r:.80}; give a mapping {{query: [(uid, score), ...]}}, best first."
        raise ConfigError(msg)
    if not isinstance(judgements, Mapping) or not all(isinstance(one, Mapping) for one in judgements.values()):
        msg = f"evaluate got the judgements {judgements!r:.80}; give a mapping {{query: {{uid: grade}}}}."
        raise ConfigError(msg)


def _ranking(query: Any, given: Any) -> list[tuple[Any, float]]:
    """A ranking, if it is one: uids alone, or a mapping, would be taken apart into something else."""
    is_listed = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    listed = list(given) if is_listed else []
    if not is_listed or not all(map(_is_pair, listed)):
        msg = f"The run's ranking for {query!r:.60} is {given!r:.80}; give [(uid, score), ...], best first."
        raise ConfigError(msg)
    return listed


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[1], (numbers.Real, type(None)))


_METRICS: Mapping[str, Callable[..., float]] = {
    "char_f1": char_f1,
    "char_iou": char_iou,
    "char_precision": char_precision,
    "char_recall": char_recall,
    "span_MRR": span_reciprocal_rank,
    "span_precision": span_precision,
    "span_recall": span_recall,
    "span_success": span_success,
    "MAP": average_precision,
    "MRR": reciprocal_rank,
    "hit": success,
    "nDCG": ndcg,
    "nDCG_exp": partial(ndcg, gain="exponential"),
    "precision": precision,
    "recall": recall,
    "success": success,
}
