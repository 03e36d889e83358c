"""What each of several rankings adds to a score: the functions behind the built-in fusions.

They take rankings that name each uid once, best first, and return for each uid one number for each ranking.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias, TypeVar

from lazyrag.errors import ConfigError
from lazyrag.ranking.scores import Normalisation, normalised

K = TypeVar("K", bound=Hashable)

NormaliseLike: TypeAlias = bool | Normalisation | Sequence[Normalisation]
"""How scores are normalised: all rankings alike, or each by its own; True is ``"min_max"``, False ``"none"``."""


def rrf_shares(
    rankings: Sequence[Sequence[tuple[K, float]]], *, k: float = 60, weights: Sequence[float] | None = None
) -> dict[K, list[float]]:
    """Reciprocal rank fusion: a ranking adds weight / (k + rank), ranks from 1; its scores are ignored. See `rrf`.

    Example:
        >>> rrf_shares([[("a", 0.9)], [("b", 7.0), ("a", 3.0)]], k=1)
        {'a': [0.5, 0.3333333333333333], 'b': [0.0, 0.5]}
    """
    if not isinstance(k, numbers.Real) or isinstance(k, bool) or not 0 < k < math.inf:
        msg = f"rrf's k is {k!r:.80}; give a number above 0, usually 60."
        raise ConfigError(msg)
    parts = [
        [(uid, weight / (k + rank)) for rank, (uid, _) in enumerate(ranking, start=1)]
        for ranking, weight in zip(rankings, _checked_weights(weights, len(rankings)), strict=True)
    ]
    return _by_uid(parts)


def weighted_shares(
    rankings: Sequence[Sequence[tuple[K, float]]],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: float | Sequence[float | None] | None = None,
) -> dict[K, list[float]]:
    """Weighted sum of scores brought to a common range: a ranking adds weight x score. See `weighted`.

    Example:
        >>> weighted_shares([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], weights=[3, 1], normalise="max")
        {'a': [0.75, 0.0], 'b': [0.375, 0.25]}
    """
    counts = _checked_weights(weights, len(rankings))
    total = sum(counts)
    return _by_uid(_weighted_parts(rankings, [weight / total for weight in counts], normalise, lowest))


def comb_mnz_shares(
    rankings: Sequence[Sequence[tuple[K, float]]],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: float | Sequence[float | None] | None = None,
) -> dict[K, list[float]]:
    """CombMNZ: the sum of scores brought to a common range, times the number of rankings that have the uid.

    The parameters are those of `weighted`, but weights are taken as they are; None: 1 for each ranking.

    Source:
        Fox, Shaw: Combination of Multiple Searches, TREC-2 1994.

    Example:
        >>> comb_mnz_shares([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], normalise="max")
        {'a': [1.0, 0.0], 'b': [1.0, 2.0]}
    """
    parts = _weighted_parts(rankings, _checked_weights(weights, len(rankings)), normalise, lowest)
    found = Counter(uid for ranking in parts for uid, _ in ranking)
    return _by_uid([[(uid, part * found[uid]) for uid, part in ranking] for ranking in parts])


def comb_max_shares(
    rankings: Sequence[Sequence[tuple[K, float]]],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: float | Sequence[float | None] | None = None,
) -> dict[K, list[float]]:
    """CombMAX: the best of a uid's scores, brought to a common range; the other rankings add nothing.

    The parameters are those of `weighted`, but weights are taken as they are; None: 1 for each ranking. Of equal scores
    the first ranking's counts.

    Source:
        Fox, Shaw: Combination of Multiple Searches, TREC-2 1994.

    Example:
        >>> comb_max_shares([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], normalise="max")
        {'a': [1.0, 0.0], 'b': [0.0, 1.0]}
    """
    best: dict[K, tuple[int, float]] = {}
    parts = _weighted_parts(rankings, _checked_weights(weights, len(rankings)), normalise, lowest)
    for number, ranking in enumerate(parts):
        for uid, part in ranking:
            if uid not in best or part > best[uid][1]:
                best[uid] = number, part
    return {uid: [part if at == number else 0.0 for at in range(len(rankings))] for uid, (number, part) in best.items()}


def _weighted_parts(
    rankings: Sequence[Sequence[tuple[K, float]]],
    weights: Sequence[float],
    normalise: NormaliseLike,
    lowest: float | Sequence[float | None] | None,
) -> list[list[tuple[K, float]]]:
    """Each ranking with weight x score, its scores brought to a common range."""
    count = len(rankings)
    if isinstance(normalise, bool):
        normalise = "min_max" if normalise else "none"
    hows: list[Any] = _for_each("normalise", normalise, str, count)
    lows: list[Any] = _for_each("lowest", lowest, (numbers.Real, type(None)), count)
    if not isinstance(lowest, Sequence) and "theoretical" in hows:
        lows = [lowest if how == "theoretical" else None for how in hows]
    return [
        [(uid, weight * score) for uid, score in normalised(ranking, how, low)]
        for ranking, weight, how, low in zip(rankings, weights, hows, lows, strict=True)
    ]


def _for_each(what: str, value: Any, alone: Any, count: int) -> list[Any]:
    """A value for each ranking: the one for all, or as many as there are rankings."""
    if isinstance(value, alone):
        return [value] * count
    if not isinstance(value, (list, tuple)) or len(value) != count:
        msg = f"{what} is {value!r:.80} for {count} rankings; give one value for all, or a list of one for each."
        raise ConfigError(msg)
    return list(value)


def _checked_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """A weight for each ranking; 1 where none are given."""
    if weights is None:
        return [1.0] * count
    given: Any = weights.tolist() if hasattr(weights, "tolist") else weights  # numpy's arrays are no sequences
    listed: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    are_numbers = all(isinstance(weight, numbers.Real) and float(weight) >= 0 for weight in listed)
    if len(listed) != count or not are_numbers or not 0 < sum(listed) < math.inf:
        msg = f"weights is {given!r:.80} for {count} rankings; give one number >= 0 for each, not all 0."
        raise ConfigError(msg)
    return listed


def _by_uid(parts: Sequence[Sequence[tuple[K, float]]]) -> dict[K, list[float]]:
    """What each ranking adds, by uid; 0 where it does not have the uid."""
    shares: dict[K, list[float]] = {}
    for number, ranking in enumerate(parts):
        for uid, part in ranking:
            if uid not in shares:
                shares[uid] = [0.0] * len(parts)
            shares[uid][number] = part
    return shares
