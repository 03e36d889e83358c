"""Fusion: combine several rankings into one."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, overload

from lazyrag.errors import LazyRAGError, RetrievalError
from lazyrag.ranking.scores import Normalisation, normalised
from lazyrag.registry import Registry
from lazyrag.validation import check_keywords, function_name, known_keywords, require, validate_integer, validate_number

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=Hashable)


NormaliseLike: TypeAlias = bool | Normalisation | Sequence[Normalisation]
"""How scores are normalised: all rankings alike, or each by its own; True is ``"min_max"``, False ``"none"``."""


def rrf_contributions(
    rankings: Sequence[Sequence[tuple[K, float]]], *, k: float = 60, weights: Sequence[float] | None = None
) -> dict[K, list[float]]:
    """Reciprocal rank fusion: a ranking adds weight / (k + rank), ranks from 1; its scores are ignored. See `rrf`.

    Example:
        >>> rrf_contributions([[("a", 0.9)], [("b", 7.0), ("a", 3.0)]], k=1)
        {'a': [0.5, 0.3333333333333333], 'b': [0.0, 0.5]}
    """
    validate_number("k", k, "a finite number > 0, usually 60", lambda value: 0 < value < math.inf)
    parts = [
        [(uid, weight / (k + rank)) for rank, (uid, _) in enumerate(ranking, start=1)]
        for ranking, weight in zip(rankings, validate_weights(weights, len(rankings)), strict=True)
    ]
    return _by_uid(parts)


def weighted_contributions(
    rankings: Sequence[Sequence[tuple[K, float]]],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: float | Sequence[float | None] | None = None,
    depth: int | None = None,
) -> dict[K, list[float]]:
    """Weighted sum of scores brought to a common range: a ranking adds weight x score. See `weighted`.

    Example:
        >>> weighted_contributions([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], weights=[3, 1], normalise="max")
        {'a': [0.75, 0.0], 'b': [0.375, 0.25]}
        >>> weighted_contributions([[("a", 8.0), ("b", 4.0)], [("c", 0.5)]], weights=[3, 1], normalise="max", depth=2)
        {'a': [0.75, 0.0], 'b': [0.375, 0.0], 'c': [0.375, 0.25]}
    """
    counts = validate_weights(weights, len(rankings))
    total = sum(counts)
    parts = _weighted_parts(rankings, [weight / total for weight in counts], normalise, lowest)
    return _by_uid(parts if depth is None else _completed(parts, validate_integer("depth", depth, 1)))


def comb_mnz_contributions(
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
        >>> comb_mnz_contributions([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], normalise="max")
        {'a': [1.0, 0.0], 'b': [1.0, 2.0]}
    """
    parts = _weighted_parts(rankings, validate_weights(weights, len(rankings)), normalise, lowest)
    found = Counter(uid for ranking in parts for uid, _ in ranking)
    return _by_uid([[(uid, part * found[uid]) for uid, part in ranking] for ranking in parts])


def comb_max_contributions(
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
        >>> comb_max_contributions([[("a", 8.0), ("b", 4.0)], [("b", 0.5)]], normalise="max")
        {'a': [1.0, 0.0], 'b': [0.0, 1.0]}
    """
    best: dict[K, tuple[int, float]] = {}
    parts = _weighted_parts(rankings, validate_weights(weights, len(rankings)), normalise, lowest)
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
    """Rankings with weight x normalised score."""
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


def _completed(parts: Sequence[list[tuple[K, float]]], depth: int) -> list[list[tuple[K, float]]]:
    """Add missing uids to rankings that were cut at a depth, with their lowest score: they cannot have a better one."""
    uids = dict.fromkeys(uid for ranking in parts for uid, _ in ranking)
    found = []
    for ranking in parts:
        has = {uid for uid, _ in ranking}
        worst = min((part for _, part in ranking), default=0.0)
        found.append([*ranking, *((uid, worst) for uid in uids if uid not in has and len(ranking) >= depth)])
    return found


def _for_each(what: str, value: Any, alone: Any, count: int) -> list[Any]:
    """One value for all rankings, or a list of one for each, as a list."""
    if isinstance(value, alone):
        return [value] * count
    fits = isinstance(value, (list, tuple)) and len(value) == count
    require(fits, what, value, f"one value for all rankings, or a list of one for each of {count}")
    return list(value)


def validate_weights(weights: Any, count: int, what: str = "rankings") -> list[float]:
    """Return a weight for each ranking; None: 1 for each.

    Args:
        weights: Numbers >= 0 with a finite sum above 0, in a sequence or numpy array.
        count: Of the rankings.
        what: Name of the rankings, for the message.

    Raises:
        ConfigError: If they are something else.
    """
    if weights is None:
        return [1.0] * count
    given = weights.tolist() if hasattr(weights, "tolist") else weights  # a numpy array is no Sequence
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    are_numbers = all(isinstance(one, numbers.Real) and not isinstance(one, bool) and float(one) >= 0 for one in listed)
    fits = len(listed) == count and are_numbers and 0 < sum(map(float, listed)) < math.inf
    require(fits, "weights", given, f"one number >= 0 for each of {count} {what}, not all 0")
    return list(map(float, listed))


def _by_uid(parts: Sequence[Sequence[tuple[K, float]]]) -> dict[K, list[float]]:
    """The contribution of each ranking, by uid; 0 where it does not have the uid."""
    contributions: dict[K, list[float]] = {}
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
        func: From the rankings, and keywords, to the contribution of each ranking to each uid's score: see
            `register_fusion`.

    Example:
        >>> fusions["rrf"]([[("a", 0.9), ("b", 0.1)], [("b", 7.0)]], k=1)
        [('b', 0.8333333333333333), ('a', 0.5)]
    """

    name: str
    func: Callable[..., Any]

    def __call__(self, rankings: Sequence[Sequence[tuple[K, float]]], **kwargs: Any) -> list[tuple[K, float]]:
        """Fuse rankings into one over the union of uids, best first, ties by uid.

        Args:
            rankings: ``[(uid, score), ...]`` each, best first; lengths may differ, and may be 0.
            kwargs: Passed to the function.

        Raises:
            ConfigError: If a keyword or a score does not suit the fusion.
            RetrievalError: If the function raises, or returns something else than contributions.
        """
        return summed(self.contributions(rankings, **kwargs))

    def contributions(self, rankings: Sequence[Sequence[tuple[K, float]]], **kwargs: Any) -> dict[K, tuple[float, ...]]:
        """Return for each uid the contribution of each ranking, in their order. See `__call__`."""
        try:
            found = self.func([first_of_each(ranking) for ranking in rankings], **kwargs)
        except LazyRAGError:
            raise
        except Exception as exc:
            raise RetrievalError(f"The fusion {self.name!r} raised {type(exc).__name__}: {exc}") from exc
        return self._checked(found, len(rankings))

    def check_kwargs(self, kwargs: Mapping[str, Any], also_known: Sequence[str] = ()) -> None:
        """Raise an UnknownKeywordError for a keyword that the function does not take.

        To check the values, fuse empty rankings: ``fusion([[], []], **kwargs)`` raises for invalid ones.

        Args:
            kwargs: Keywords for the function.
            also_known: Keywords of the caller that a misspelt one may have meant.
        """
        check_keywords(f"The fusion {self.name!r}", self.func, kwargs, skip=1, also_known=also_known)

    def _checked(self, found: Any, count: int) -> dict[Any, tuple[float, ...]]:
        contributions: dict[Any, tuple[float, ...]] = {}
        items: list[tuple[Any, Any]] = list(found.items()) if isinstance(found, Mapping) else [(None, None)]
        for uid, parts in items:
            try:
                contributions[uid] = tuple(map(float, parts))
            except (TypeError, ValueError):
                contributions[uid] = ()
            if len(contributions[uid]) != count or not all(map(math.isfinite, contributions[uid])):
                raise RetrievalError(
                    f"The fusion {self.name!r} returned {found if uid is None else {uid: parts}!r:.80} for {count} "
                    "rankings; it must return a dict from each uid to a finite number for each ranking."
                )
        return contributions


fusions: Registry[Fusion] = Registry("fusion", entry_point_group="lazyrag.fusions")


@overload
def register_fusion(func: F, *, name: str | None = ..., replace: bool = ...) -> F: ...
@overload
def register_fusion(func: None = ..., *, name: str | None = ..., replace: bool = ...) -> Callable[[F], F]: ...
@known_keywords
def register_fusion(func: F | None = None, *, name: str | None = None, replace: bool = False) -> Any:
    """Register a fusion function, as a call or as a decorator with or without arguments.

    The function gets the rankings by position, each a list of (uid, score), best first, which names no uid twice. It
    returns the contribution of each of them to a uid's score, so that a hit can be explained::

        func(rankings: list[list[tuple[uid, float]]], **kw) -> dict[uid, Sequence[float]]

    A uid is any hashable value that can be sorted. A uid that the function leaves out is not in the result. Rankings
    may be empty: one without hits, or with weight 0 in a hybrid; and keywords are tried out on empty rankings when a
    retriever is made. A hybrid passes ``weights`` and ``depth``, the number of nodes of each retriever, to functions
    that take them.

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

    def register(function: F) -> F:
        label = function_name("register_fusion", function, name)
        fusions.register(label, Fusion(label, function), replace=replace)
        return function

    return register if func is None else register(func)


def rrf(
    rankings: Sequence[Sequence[tuple[K, float]]], *, k: float = 60, weights: Sequence[float] | None = None
) -> list[tuple[K, float]]:
    """Fuse rankings by reciprocal rank.

    score(d) = sum over rankings of weight / (k + rank(d)), ranks from 1; a ranking without d adds nothing.

    Args:
        rankings: n rankings ``[(uid, score), ...]``, each best first; lengths may differ. Scores are ignored. A uid
            that a ranking names twice counts at its better rank only.
        k: Rank constant > 0, no unit. A larger one flattens the head.
        weights: n weights >= 0, not all 0, taken as they are; None: 1 for each ranking.

    Returns:
        One ranking over the union of uids, best first, ties by uid; scores in [0, sum of the weights / (k + 1)].

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
    rankings: Sequence[Sequence[tuple[K, float]]],
    *,
    weights: Sequence[float] | None = None,
    normalise: NormaliseLike = "min_max",
    lowest: float | Sequence[float | None] | None = None,
    depth: int | None = None,
) -> list[tuple[K, float]]:
    """Fuse rankings by a weighted sum of scores.

    score(d) = sum over rankings of weight x score(d), where a ranking without d adds 0; but see ``depth``. The scores
    of each ranking are first brought to a common range, by default to [0, 1] by min-max over that ranking.

    Args:
        rankings: n rankings ``[(uid, score), ...]``, each best first by descending score. Of a uid that a ranking
            names twice only the first counts.
        weights: n weights >= 0, not all 0; they are divided by their sum. None: the rankings count the same.
        normalise: How scores are brought to a common range, by name, as `lazyrag.ranking.scores.normalised` describes
            it; or n names, one for each ranking. True is ``"min_max"``; False is ``"none"`` and adds the scores as
            they are.
        lowest: With ``"theoretical"`` the lowest score that the measure can give, or n of them: ``[-1, 0]`` for a
            cosine and BM25.
        depth: Where rankings were cut, at least 1. One with so many uids may have had others, at most as good as its
            last: what it lacks counts as that one. Under ``"min_max"`` and ``"z_score"`` that is 0 as well. None: no
            ranking was cut.

    Returns:
        One ranking over the union of uids, best first, ties by uid; scores lie in [0, 1] under ``"min_max"``,
        ``"theoretical"`` and ``"max"``.

    Raises:
        ConfigError: If the weights do not fit the rankings, are negative or all 0, a normalisation is unknown, or a
            score to be normalised is not finite.

    Source:
        Fox, Shaw: Combination of Multiple Searches, TREC-2 1994 (CombSUM), with weights. With ``"theoretical"`` it is
        TM2C2 of Bruch, Gai, Ingber, TOIS 2023, doi:10.1145/3596512.

    Example:
        >>> weighted([[("a", 2.0), ("b", 1.0)], [("b", 9.0), ("a", 3.0)]], weights=[0.7, 0.3])[0]
        ('a', 0.7)
    """
    return _WEIGHTED(rankings, weights=weights, normalise=normalise, lowest=lowest, depth=depth)


class ReciprocalRankFusion:
    """Fuses rankings by reciprocal rank, as spec 003 calls it; a function with the same result is `rrf`.

    Example:
        >>> ReciprocalRankFusion().fuse([[("doc1", 0.9), ("doc2", 0.7)], [("doc2", 12.0)]])[0][0]
        'doc2'
    """

    def fuse(self, rankings: Sequence[Sequence[tuple[K, float]]], k: float = 60) -> list[tuple[K, float]]:
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


def best_first(scores: Mapping[K, float]) -> list[tuple[K, float]]:
    """Rank by scores, descending, ties by uid.

    Example:
        >>> best_first({"b": 1.0, "a": 1.0, "c": 2.0})
        [('c', 2.0), ('a', 1.0), ('b', 1.0)]
    """
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def summed(contributions: Mapping[K, Sequence[float]]) -> list[tuple[K, float]]:
    """Rank by the sums, each rounded once: uids with the same contributions tie, in whatever order.

    Example:
        >>> summed({"b": (0.1, 0.2, 0.3), "a": (0.3, 0.2, 0.1)})
        [('a', 0.6), ('b', 0.6)]
    """
    return best_first({uid: math.fsum(parts) for uid, parts in contributions.items()})


def first_of_each(ranking: Sequence[tuple[K, float]]) -> list[tuple[K, float]]:
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
