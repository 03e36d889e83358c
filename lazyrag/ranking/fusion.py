"""Fusion: combine several rankings into one. With the normalisation of scores, and spec 004's
weights.

A fusion that adds scores adds 0 for a uid that a ranking does not have. So under ``min_max``,
``theoretical``, ``max`` and ``z_score`` 0 is the worst score: the last hit never scores lower than
a missing one. ``distribution`` guarantees that within 3 sigma of the mean, ``none`` where no score
is below 0.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args, overload

from lazyrag.errors import ConfigError, LazyRAGError, RetrievalError
from lazyrag.registry import Registry
from lazyrag.types import AnyCallable, FunctionT, Keywords
from lazyrag.validation import (
    check_keywords,
    function_name,
    known_arguments,
    require,
    validate_choice,
    validate_integer,
    validate_number,
    validate_range,
    validate_text,
)

K = TypeVar("K", bound=Hashable)

ScoredKeys: TypeAlias = Sequence[tuple[K, float]]
"""A ranking ``[(uid, score), ...]``, best first."""

RankedKeys: TypeAlias = list[tuple[K, float]]
"""A new ranking."""

Rankings: TypeAlias = Sequence[ScoredKeys[K]]
"""The rankings to fuse."""

Contributions: TypeAlias = dict[K, list[float]]
"""For each uid what each ranking adds to its score."""

Lowest: TypeAlias = float | Sequence[float | None] | None
"""The lowest score that a measure can give: of all rankings, or of each."""

# Normalisation of scores

Normalisation: TypeAlias = Literal[
    "min_max", "theoretical", "max", "z_score", "distribution", "none"
]
"""How a ranking's scores are brought to a common range; see `normalised` for their formulas."""

NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)


def normalised(
    ranking: ScoredKeys[K], how: Normalisation, lowest: float | None = None
) -> RankedKeys[K]:
    """Bring the scores of a ranking to a common range.

    ================  ==========================================
    ================================================== how               score becomes
    equal scores, or one alone, become ================  ==========================================
    ================================================== ``min_max``       (s - worst) / (best -
    worst)                1 ``theoretical``   (s - lowest) / (best - lowest)              1, or 0
    where they are ``lowest`` ``max``           s / best: theoretical, with 0 as lowest     1, or 0
    where they are 0 ``z_score``       (s - worst) / sigma                         0
    ``distribution``  (s - (mean - 3 sigma)) / (6 sigma)          1/2
    ``none``          s                                           s
    ================  ==========================================
    ==================================================

    worst, best, mean and sigma (of the population) are those of this ranking. ``z_score`` is the
    z-score moved so that the worst becomes 0; it has no upper bound. ``distribution`` lies in [0,
    1] but for what is further than 3 sigma from the mean, which is kept as it is. ``theoretical``
    takes a bound of the measure, not of what was found: -1 for a cosine, 0 for BM25; what is below
    it counts as it. A ranking with nothing above that bound and something below it, such as cosines
    that are all negative under ``max``, would lose its order: it is brought to [0, 1] by
    ``min_max``.

    Args:
        ranking: ``[(uid, score), ...]``; a higher score is better.
        how: One of `NORMALISATIONS`.
        lowest: The lowest score that the measure can give; for ``theoretical`` alone.

    Returns:
        The same uids in the same order.

    Raises:
        ConfigError: If ``how`` is unknown, ``lowest`` does not go with it, or a score is infinite
            or nan.

    Source:
        Bruch, Gai, Ingber: An Analysis of Fusion Functions for Hybrid Retrieval, TOIS 2023,
            doi:10.1145/3596512
        (``min_max``, ``theoretical``, ``z_score``); ``distribution`` is Qdrant's distribution-based
        score fusion.

    Example:
        >>> normalised([("a", 0.5), ("b", -0.25)], "theoretical", lowest=-1.0)
        [('a', 1.0), ('b', 0.5)]
    """
    check_normalisation(how, lowest)
    if how == "none":
        _check_finite(ranking)
        return list(ranking)
    if how == "theoretical" and lowest is not None:
        return from_lowest(ranking, lowest)
    return _BY_NAME[how](ranking)


def check_normalisation(how: str, lowest: float | None) -> None:
    """Validate a normalisation and its lowest score; see `normalised`."""
    validate_choice("normalise", how, NORMALISATIONS)
    if how == "theoretical":
        expected = "a finite number with normalise='theoretical', such as -1 for a cosine"
        validate_number("lowest", lowest, expected, math.isfinite)
    elif lowest is not None:
        raise ConfigError(
            f"lowest goes with normalise='theoretical' only; got {lowest!r} with {how!r}. Omit it."
        )


def min_max(ranking: ScoredKeys[K]) -> RankedKeys[K]:
    """Scale the scores of a ranking linearly to [0, 1]; all 1 where they are equal.

    Args:
        ranking: ``[(uid, score), ...]`` with finite scores.

    Returns:
        The same uids in the same order; the best score becomes 1, the worst 0.

    Raises:
        ConfigError: If a score is infinite or nan.

    Example:
        >>> min_max([("a", 4.0), ("b", 3.0), ("c", 2.0)])
        [('a', 1.0), ('b', 0.5), ('c', 0.0)]
    """
    if not ranking:
        return []
    _check_finite(ranking)
    low = min(score for _, score in ranking)
    width = max(score for _, score in ranking) - low
    # Scaling the halves first keeps the width finite for scores near the largest floats.
    if width == float("inf"):
        return min_max([(uid, score / 2) for uid, score in ranking])
    return [(uid, (score - low) / width if width > 0 else 1.0) for uid, score in ranking]


def from_lowest(ranking: ScoredKeys[K], lowest: float) -> RankedKeys[K]:
    """Scale scores linearly so that a measure's lowest becomes 0 and the best one found 1.

    Args:
        ranking: ``[(uid, score), ...]`` with finite scores.
        lowest: What becomes 0; a score below it does, too. If none is above it and one below,
            `min_max` is taken.

    Raises:
        ConfigError: If a score is infinite or nan.

    Example:
        >>> from_lowest([("a", 8.0), ("b", 6.0)], 0.0)
        [('a', 1.0), ('b', 0.75)]
    """
    if not ranking:
        return []
    _check_finite(ranking)
    width = max(score for _, score in ranking) - lowest
    if width <= 0 and min(score for _, score in ranking) < lowest:
        return min_max(ranking)
    if width == float("inf"):
        return from_lowest([(uid, score / 2) for uid, score in ranking], lowest / 2)
    return [(uid, max(score - lowest, 0.0) / width if width > 0 else 0.0) for uid, score in ranking]


def _z_score(ranking: ScoredKeys[K]) -> RankedKeys[K]:
    values, _, sigma = _spread(ranking)
    worst = min((value for _, value in values), default=0.0)
    return [(uid, (value - worst) / sigma if sigma > 0 else 0.0) for uid, value in values]


def _distribution(ranking: ScoredKeys[K]) -> RankedKeys[K]:
    values, mean, sigma = _spread(ranking)
    return [
        (uid, (value - mean) / (6 * sigma) + 0.5 if sigma > 0 else 0.5) for uid, value in values
    ]


def _spread(ranking: ScoredKeys[K]) -> tuple[RankedKeys[K], float, float]:
    """Scores divided by the largest absolute one, which keeps squares in a float's range; their
    mean and sigma.
    """
    if not ranking:
        return [], 0.0, 0.0
    _check_finite(ranking)
    largest = max(abs(score) for _, score in ranking) or 1.0
    scaled = [(uid, score / largest) for uid, score in ranking]
    values = [value for _, value in scaled]
    if min(values) == max(values):  # the mean of equal numbers may be rounded
        return scaled, values[0], 0.0
    mean = math.fsum(values) / len(values)
    return scaled, mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _check_finite(ranking: ScoredKeys[K]) -> None:
    for uid, score in ranking:
        if not isinstance(score, numbers.Real) or not math.isfinite(score):
            raise ConfigError(
                f"Scores must be finite numbers; got {score!r:.40} for {uid!r:.60}. Or fuse by rrf."
            )


_BY_NAME: Mapping[str, Callable[[ScoredKeys[K]], RankedKeys[K]]] = {
    "min_max": min_max,
    "max": lambda ranking: from_lowest(ranking, 0.0),
    "z_score": _z_score,
    "distribution": _distribution,
}


# Contributions of rankings to fused scores

NormaliseLike: TypeAlias = bool | Normalisation | Sequence[Normalisation]
"""How scores are normalised: all rankings alike, or each by its own; True is ``"min_max"``, False
``"none"``."""


def rrf_contributions(
    rankings: Rankings[K],
    *,
    k: float = 60,
    weights: Sequence[float] | None = None,
) -> Contributions[K]:
    """Reciprocal rank fusion: a ranking adds weight / (k + rank), ranks from 1; its scores are
    ignored. See `rrf`.

    Example:
        >>> rrf_contributions([[("a", 0.9)], [("b", 7.0), ("a", 3.0)]], k=1)
        {'a': [0.5, 0.3333333333333333], 'b': [0.0, 0.5]}
    """
    validate_number("k", k, "a finite number > 0, usually 60", lambda value: 0 < value < math.inf)
    parts = []
    for ranking, weight in zip(rankings, validate_weights(weights, len(rankings)), strict=True):
        parts.append([(uid, weight / (k + rank)) for rank, (uid, _) in enumerate(ranking, start=1)])
    return _by_uid(parts)


def weighted_contributions(
    rankings: Rankings[K],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: Lowest = None,
    depth: int | None = None,
) -> Contributions[K]:
    """Weighted sum of scores brought to a common range: a ranking adds weight x score. See
    `weighted`.

    Example:
        >>> dense = [("a", 8.0), ("b", 4.0)]
        >>> weighted_contributions([dense, [("b", 0.5)]], weights=[3, 1], normalise="max")
        {'a': [0.75, 0.0], 'b': [0.375, 0.25]}
        >>> weighted_contributions([dense, [("c", 0.5)]], weights=[3, 1], normalise="max", depth=2)
        {'a': [0.75, 0.0], 'b': [0.375, 0.0], 'c': [0.375, 0.25]}
    """
    counts = validate_weights(weights, len(rankings))
    total = sum(counts)
    parts = _weighted_parts(rankings, [weight / total for weight in counts], normalise, lowest)
    return _by_uid(
        parts if depth is None else _completed(parts, validate_integer("depth", depth, 1))
    )


def comb_mnz_contributions(
    rankings: Rankings[K],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: Lowest = None,
) -> Contributions[K]:
    """CombMNZ: the sum of scores brought to a common range, times the number of rankings that have
    the uid.

    The parameters are those of `weighted`, but weights are taken as they are; None: 1 for each
    ranking.

    Source:
        Fox, Shaw: Combination of Multiple Searches, TREC-2 1994.

    Example:
        >>> comb_mnz_contributions([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], normalise="max")
        {'a': [1.0, 0.0], 'b': [1.0, 2.0]}
    """
    parts = _weighted_parts(rankings, validate_weights(weights, len(rankings)), normalise, lowest)
    occurrences: Counter[K] = Counter()
    for ranking in parts:
        occurrences.update(uid for uid, _ in ranking)
    for ranking in parts:
        ranking[:] = [(uid, part * occurrences[uid]) for uid, part in ranking]
    return _by_uid(parts)


def comb_max_contributions(
    rankings: Rankings[K],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: Lowest = None,
) -> Contributions[K]:
    """CombMAX: the best of a uid's scores, brought to a common range; the other rankings add
    nothing.

    The parameters are those of `weighted`, but weights are taken as they are; None: 1 for each
    ranking. Of equal scores the first ranking's counts.

    Source:
        Fox, Shaw: Combination of Multiple Searches, TREC-2 1994.

    Example:
        >>> comb_max_contributions([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], normalise="max")
        {'a': [1.0, 0.0], 'b': [0.0, 1.0]}
    """
    best: dict[K, tuple[int, float]] = {}
    parts = _weighted_parts(rankings, validate_weights(weights, len(rankings)), normalise, lowest)
    for number, ranking in enumerate(parts):
        for uid, part in ranking:
            if uid not in best or part > best[uid][1]:
                best[uid] = number, part
    contributions = {}
    for uid, (number, part) in best.items():
        contributions[uid] = [0.0] * len(rankings)
        contributions[uid][number] = part
    return contributions


def _weighted_parts(
    rankings: Rankings[K],
    weights: Sequence[float],
    normalise: NormaliseLike,
    lowest: Lowest,
) -> list[RankedKeys[K]]:
    """Rankings with weight x normalised score."""
    count = len(rankings)
    if isinstance(normalise, bool):
        normalise = "min_max" if normalise else "none"
    hows: list[Any] = _for_each("normalise", normalise, str, count)
    lows: list[Any] = _for_each("lowest", lowest, (numbers.Real, type(None)), count)
    if not isinstance(lowest, Sequence) and "theoretical" in hows:
        lows = [lowest if how == "theoretical" else None for how in hows]
    parts = []
    for ranking, weight, how, low in zip(rankings, weights, hows, lows, strict=True):
        parts.append([(uid, weight * score) for uid, score in normalised(ranking, how, low)])
    return parts


def _completed(parts: Sequence[RankedKeys[K]], depth: int) -> list[RankedKeys[K]]:
    """Add missing uids to rankings that were cut at a depth, with their lowest score: they cannot
    have a better one.
    """
    uids: dict[K, float] = {}
    for ranking in parts:
        uids.update(ranking)
    completed = []
    for ranking in parts:
        scores = dict(ranking)
        if len(ranking) >= depth:
            worst = min(scores.values(), default=0.0)
            scores = {**dict.fromkeys(uids, worst), **scores}
        completed.append(list(scores.items()))
    return completed


def _for_each(name: str, value: Any, alone: Any, count: int) -> list[Any]:
    """One value for all rankings, or a list of one for each, as a list."""
    if isinstance(value, alone):
        return [value] * count
    fits = isinstance(value, (list, tuple)) and len(value) == count
    require(fits, name, value, f"one value for all rankings, or a list of one for each of {count}")
    return list(value)


def validate_weights(weights: Any, count: int, unit: str = "rankings") -> list[float]:
    """Return a weight for each ranking; None: 1 for each.

    Args:
        weights: Numbers >= 0 with a finite sum above 0, in a sequence or numpy array.
        count: Of the rankings.
        unit: Name of the rankings, for the message.

    Raises:
        ConfigError: If they are something else.
    """
    if weights is None:
        return [1.0] * count
    # a numpy array is no Sequence
    values = weights.tolist() if hasattr(weights, "tolist") else weights
    listed = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else []
    are_numbers = all(
        isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value) >= 0
        for value in listed
    )
    fits = len(listed) == count and are_numbers and 0 < sum(map(float, listed)) < math.inf
    require(fits, "weights", values, f"one number >= 0 for each of {count} {unit}, not all 0")
    return list(map(float, listed))


def _by_uid(parts: Rankings[K]) -> Contributions[K]:
    """The contribution of each ranking, by uid; 0 where it does not have the uid."""
    contributions = {}
    for number, ranking in enumerate(parts):
        for uid, part in ranking:
            if uid not in contributions:
                contributions[uid] = [0.0] * len(parts)
            contributions[uid][number] = part
    return contributions


@dataclass(frozen=True, slots=True)
class Fusion:
    """A registered fusion.

    Args:
        name: Its name.
        func: From the rankings, and keywords, to the contribution of each ranking to each uid's
            score: see `register_fusion`.

    Example:
        >>> fusions["rrf"]([[("a", 0.9), ("b", 0.1)], [("b", 7.0)]], k=1)
        [('b', 0.8333333333333333), ('a', 0.5)]
    """

    name: str
    func: AnyCallable

    def __call__(self, rankings: Rankings[K], **kwargs: Any) -> RankedKeys[K]:
        """Fuse rankings into one over the union of uids, best first, ties by uid.

        Args:
            rankings: ``[(uid, score), ...]`` each, best first; lengths may differ, and may be 0.
            kwargs: Passed to the function.

        Raises:
            ConfigError: If a keyword or a score does not suit the fusion.
            RetrievalError: If the function raises, or returns something else than contributions.
        """
        return rank_by_sum(self.contributions(rankings, **kwargs))

    def contributions(self, rankings: Rankings[K], **kwargs: Any) -> dict[K, tuple[float, ...]]:
        """Return for each uid the contribution of each ranking, in their order. See `__call__`."""
        try:
            contributions = self.func([first_of_each(ranking) for ranking in rankings], **kwargs)
        except LazyRAGError:
            raise
        except Exception as exc:
            raise RetrievalError(
                f"The fusion {self.name!r} raised {type(exc).__name__}: {exc}"
            ) from exc
        return self._checked(contributions, len(rankings))

    def check_kwargs(self, kwargs: Keywords, also_known: Sequence[str] = ()) -> None:
        """Raise an UnknownKeywordError for a keyword that the function does not take.

        To check the values, fuse empty rankings: ``fusion([[], []], **kwargs)`` raises for invalid
        ones.

        Args:
            kwargs: Keywords for the function.
            also_known: Keywords of the caller that a misspelt one may have meant.
        """
        check_keywords(
            f"The fusion {self.name!r}", self.func, kwargs, skip=1, also_known=also_known
        )

    def _checked(self, returned: Any, count: int) -> dict[Any, tuple[float, ...]]:
        if not isinstance(returned, Mapping):
            raise self._wrong_return(returned, count)
        contributions = {}
        for uid, parts in returned.items():
            try:
                shares = tuple(map(float, parts))
            except (TypeError, ValueError):
                shares = ()
            if len(shares) != count or not all(map(math.isfinite, shares)):
                raise self._wrong_return({uid: parts}, count)
            contributions[uid] = shares
        return contributions

    def _wrong_return(self, returned: Any, count: int) -> RetrievalError:
        return RetrievalError(
            f"The fusion {self.name!r} returned {returned!r:.80} for {count} rankings; it must"
            " return a dict from each uid to a finite number for each ranking."
        )


fusions: Registry[Fusion] = Registry("fusion", entry_point_group="lazyrag.fusions")


@overload
def register_fusion(
    func: FunctionT, *, name: str | None = ..., replace: bool = ...
) -> FunctionT: ...
@overload
def register_fusion(
    func: None = ..., *, name: str | None = ..., replace: bool = ...
) -> Callable[[FunctionT], FunctionT]: ...
def register_fusion(
    func: FunctionT | None = None, *, name: str | None = None, replace: bool = False
) -> Any:
    """Register a fusion function, as a call or as a decorator with or without arguments.

    The function gets the rankings by position, each a list of (uid, score), best first, which names
    no uid twice. It returns the contribution of each of them to a uid's score, so that a hit can be
    explained::

        func(rankings: list[list[tuple[uid, float]]], **kw) -> dict[uid, Sequence[float]]

    A uid is any hashable value that can be sorted. A uid that the function leaves out is not in the
    result. Rankings may be empty: one without hits, or with weight 0 in a hybrid; and keywords are
    tried out on empty rankings when a retriever is made. A hybrid passes ``weights`` and ``depth``,
    the number of nodes of each retriever, to functions that take them.

    Args:
        func: The function; without one, a decorator is returned.
        name: Its name; by default ``func.__name__``.
        replace: Whether to replace another fusion of this name.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If func is not callable.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> @register_fusion(replace=True)
        ... def votes(rankings):
        ...     uids = {uid for ranking in rankings for uid, _ in ranking}
        ...     return {uid: [float(uid in dict(ranking)) for ranking in rankings] for uid in uids}
        >>> fusions["votes"]([[("a", 0.9), ("b", 0.1)], [("b", 7.0)]])
        [('b', 2.0), ('a', 1.0)]
    """

    def register(function: FunctionT) -> FunctionT:
        label = function_name("register_fusion", function, name)
        fusions.register(label, Fusion(label, function), replace=replace)
        return function

    return register if func is None else register(func)


def rrf(
    rankings: Rankings[K],
    *,
    k: float = 60,
    weights: Sequence[float] | None = None,
) -> RankedKeys[K]:
    """Fuse rankings by reciprocal rank.

    score(d) = sum over rankings of weight / (k + rank(d)), ranks from 1; a ranking without d adds
    nothing.

    Args:
        rankings: n rankings ``[(uid, score), ...]``, each best first; lengths may differ. Scores
            are ignored. A uid that a ranking names twice counts at its better rank only.
        k: Rank constant > 0, no unit. A larger one flattens the head.
        weights: n weights >= 0, not all 0, taken as they are; None: 1 for each ranking.

    Returns:
        One ranking over the union of uids, best first, ties by uid; scores in [0, sum of the
        weights / (k + 1)].

    Raises:
        ConfigError: If ``k`` is not positive, or the weights do not fit the rankings.

    Source:
        Cormack, Clarke, Buettcher: Reciprocal Rank Fusion, SIGIR 2009, doi:10.1145/1571941.1572114.

    Example:
        >>> rrf([[("a", 0.9), ("b", 0.1)], [("b", 7.0), ("a", 3.0), ("c", 1.0)]])[-1][0]
        'c'
    """
    return _RRF(rankings, k=k, weights=weights)


def weighted(
    rankings: Rankings[K],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: Lowest = None,
    depth: int | None = None,
) -> RankedKeys[K]:
    """Fuse rankings by a weighted sum of scores.

    score(d) = sum over rankings of weight x score(d), where a ranking without d adds 0; but see
    ``depth``. The scores of each ranking are first brought to a common range, by default to [0, 1]
    by min-max over that ranking.

    Args:
        rankings: n rankings ``[(uid, score), ...]``, each best first by descending score. Of a uid
            that a ranking names twice only the first counts.
        weights: n weights >= 0, not all 0; they are divided by their sum. None: the rankings count
            the same.
        normalise: How scores are brought to a common range, by name, as
            `lazyrag.ranking.fusion.normalised` describes it; or n names, one for each ranking. True
            is ``"min_max"``; False is ``"none"`` and adds the scores as they are.
        lowest: With ``"theoretical"`` the lowest score that the measure can give, or n of them:
            ``[-1, 0]`` for a cosine and BM25.
        depth: Cut-off of the input rankings, at least 1. A uid missing from a ranking with at least
            this many entries gets that ranking's lowest score instead of 0. None: rankings are
            complete.

    Returns:
        One ranking over the union of uids, best first, ties by uid; scores lie in [0, 1] under
        ``"min_max"``, ``"theoretical"`` and ``"max"``.

    Raises:
        ConfigError: If the weights do not fit the rankings, are negative or all 0, a normalisation
            is unknown, or a score to be normalised is not finite.

    Source:
        Fox, Shaw: Combination of Multiple Searches, TREC-2 1994 (CombSUM), with weights. With
            ``"theoretical"`` it is
        TM2C2 of Bruch, Gai, Ingber, TOIS 2023, doi:10.1145/3596512.

    Example:
        >>> weighted([[("a", 2.0), ("b", 1.0)], [("b", 9.0), ("a", 3.0)]], weights=[0.7, 0.3])[0]
        ('a', 0.7)
    """
    return _WEIGHTED(rankings, weights=weights, normalise=normalise, lowest=lowest, depth=depth)


class ReciprocalRankFusion:
    """Fuses rankings by reciprocal rank, as spec 003 calls it; a function with the same result is
    `rrf`.

    Example:
        >>> ReciprocalRankFusion().fuse([[("doc1", 0.9), ("doc2", 0.7)], [("doc2", 12.0)]])[0][0]
        'doc2'
    """

    def fuse(self, rankings: Rankings[K], k: float = 60) -> RankedKeys[K]:
        """One ranking of several: score(d) = sum over rankings of 1 / (k + rank(d)), ranks from 1.

        Args:
            rankings: ``[(uid, score), ...]`` each, best first; scores are ignored.
            k: Rank constant > 0.

        Returns:
            One ranking over the union of uids, best first, ties by uid.

        Raises:
            ConfigError: If ``k`` is not positive.
        """
        return rrf(rankings, k=k)


def best_first(scores: Mapping[K, float]) -> RankedKeys[K]:
    """Rank by scores, descending, ties by uid.

    Example:
        >>> best_first({"b": 1.0, "a": 1.0, "c": 2.0})
        [('c', 2.0), ('a', 1.0), ('b', 1.0)]
    """
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def rank_by_sum(contributions: Mapping[K, Sequence[float]]) -> RankedKeys[K]:
    """Rank by the sums, each rounded once: uids with the same contributions tie, in any order of
    the contributions.

    Example:
        >>> rank_by_sum({"b": (0.1, 0.2, 0.3), "a": (0.3, 0.2, 0.1)})
        [('a', 0.6), ('b', 0.6)]
    """
    return best_first({uid: math.fsum(parts) for uid, parts in contributions.items()})


def first_of_each(ranking: ScoredKeys[K]) -> RankedKeys[K]:
    """Keep the first entry of each uid.

    Example:
        >>> first_of_each([("a", 3.0), ("a", 2.0), ("b", 1.0)])
        [('a', 3.0), ('b', 1.0)]
    """
    best: dict[K, float] = {}
    for uid, score in ranking:
        best.setdefault(uid, score)
    return list(best.items())


_RRF = Fusion("rrf", rrf_contributions)
_WEIGHTED = Fusion("weighted", weighted_contributions)
for _fusion in (
    _RRF,
    _WEIGHTED,
    Fusion("comb_mnz", comb_mnz_contributions),
    Fusion("comb_max", comb_max_contributions),
):
    fusions.register(_fusion.name, _fusion)


# Weights of a hybrid search (spec 004)


@known_arguments
@dataclass(frozen=True, slots=True)
class VectorSetting:
    """How much vectors count in a hybrid search, and by which model they are made (spec 004).

    Args:
        vector_weight: From 0 to 1; together with the keyword weight it is 1.
        embedding_provider_name: Who provides the embed model; not blank.
        embedding_model_name: The model's name; not blank.

    Raises:
        ConfigError: If a value is out of its range. It is a `ValueError`, as spec 004 requires.

    Example:
        >>> VectorSetting(0.7, "openai", "text-embedding-3-small").vector_weight
        0.7
    """

    vector_weight: float
    embedding_provider_name: str
    embedding_model_name: str

    def __post_init__(self) -> None:
        _check_weight("vector_weight", self.vector_weight)
        validate_text("embedding_provider_name", self.embedding_provider_name)
        validate_text("embedding_model_name", self.embedding_model_name)


@known_arguments
@dataclass(frozen=True, slots=True)
class KeywordSetting:
    """How much keywords count in a hybrid search (spec 004).

    Args:
        keyword_weight: From 0 to 1; together with the vector weight it is 1.

    Raises:
        ConfigError: If the weight is out of its range. It is a `ValueError`, as spec 004 requires.

    Example:
        >>> KeywordSetting(0.3).keyword_weight
        0.3
    """

    keyword_weight: float

    def __post_init__(self) -> None:
        _check_weight("keyword_weight", self.keyword_weight)


@known_arguments
@dataclass(frozen=True, slots=True)
class Weights:
    """How much vectors and keywords count in a hybrid search (spec 004).

    Args:
        vector_setting: That of the vectors.
        keyword_setting: That of the keywords. The two weights add up to 1, to within 1e-6.

    Raises:
        ConfigError: If they do not, or something else was given. It is a `ValueError`, as spec 004
            requires.

    Example:
        >>> vectors = VectorSetting(0.7, "openai", "text-embedding-3-small")
        >>> weights = Weights(vectors, KeywordSetting(0.3))
        >>> weights.shares
        (0.7, 0.3)
    """

    vector_setting: VectorSetting
    keyword_setting: KeywordSetting

    def __post_init__(self) -> None:
        for name, kind in (("vector_setting", VectorSetting), ("keyword_setting", KeywordSetting)):
            require(
                isinstance(getattr(self, name), kind),
                name,
                getattr(self, name),
                f"a {kind.__name__}",
            )
        total = sum(self.shares)
        require(abs(total - 1.0) < 1e-6, "Sum of vector_weight and keyword_weight", total, "1.0")

    @property
    def shares(self) -> tuple[float, float]:
        """The vector weight and the keyword weight, as `lazyrag.ranking.fusion.weighted` takes
        them.
        """
        return self.vector_setting.vector_weight, self.keyword_setting.keyword_weight


def _check_weight(name: str, value: Any) -> None:
    validate_range(name, value, 0, 1, "between 0.0 and 1.0")
