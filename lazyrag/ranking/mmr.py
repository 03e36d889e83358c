"""Maximal marginal relevance: rankings without near-duplicates."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lazyrag.errors import ConfigError
from lazyrag.ranking.fusion import Normalisation, RankedKeys, ScoredKeys, normalised
from lazyrag.types import FloatArray
from lazyrag.validation import require, validate_integer, validate_range

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


K = TypeVar("K", bound=Hashable)


def mmr(
    ranking: ScoredKeys[K],
    vectors: ArrayLike,
    *,
    lam: float = 0.5,
    topk: int | None = None,
    normalise: Normalisation = "min_max",
    lowest: float | None = None,
) -> RankedKeys[K]:
    """Choose one by one candidates that are relevant and unlike those chosen before: maximal
    marginal relevance.

    score(d) = lam x relevance(d) - (1 - lam) x the largest cosine of d and a candidate chosen
    before it. A cosine below 0 counts as 0, as does the first one's: the opposite of a text is no
    better than another topic. So later candidates never score higher, and the result is a ranking.

    Args:
        ranking: n candidates ``[(uid, score), ...]``, each uid once; a higher score is better.
        vectors: (n, dim), numbers; a row for each candidate, in their order. A row of zeros is
            unlike all others.
        lam: From 0 to 1: how much relevance counts. 1 gives the ranking's own order, 0 looks at the
            cosines alone.
        topk: At most so many; None: all of them.
        normalise: How scores become relevance, by name, as `lazyrag.ranking.fusion.normalised`
            describes it. By default the best candidate's is 1 and the worst one's 0, as cosines of
            texts lie between. ``"none"`` for scores that are cosines themselves.
        lowest: With ``"theoretical"`` the lowest score that the measure can give.

    Returns:
        The chosen candidates with their scores at the time, best first, ties by uid.

    Raises:
        ConfigError: If an argument is out of its range, the rows do not fit the candidates, or a
            number is not finite.

    Source:
        Carbonell, Goldstein: The Use of MMR, Diversity-Based Reranking, SIGIR 1998,
            doi:10.1145/290941.291025.

    Example:
        >>> vectors = [[1, 0], [1, 0], [0, 1]]  # the first two are equal
        >>> [uid for uid, _ in mmr([("a", 3.0), ("b", 2.9), ("c", 2.0)], vectors, topk=2)]
        ['a', 'c']
    """
    rows = _numbers("vectors", vectors)
    if rows.ndim != 2 or len(rows) != len(ranking):
        if len(ranking) > 0 or rows.size > 0:
            raise ConfigError(
                f"vectors must have one row for each of {len(ranking)} candidates; got"
                f" {rows.shape}."
            )
        return []
    # Each row is divided by its largest number first, so that its squares stay in a float's range.
    largest = np.abs(rows).max(axis=1, initial=0.0)
    rows = rows / _not_zero(largest)[:, None]
    lengths = np.sqrt((rows * rows).sum(axis=1))
    unit = rows / _not_zero(lengths)[:, None]
    # Sums row by row: rows that are equal get equal cosines, which a matrix product does not
    # promise.
    return _chosen(ranking, lambda at: (unit * unit[at]).sum(axis=1), lam, topk, normalise, lowest)


def mmr_of_similarities(
    ranking: ScoredKeys[K],
    similarities: ArrayLike,
    *,
    lam: float = 0.5,
    topk: int | None = None,
    normalise: Normalisation = "min_max",
    lowest: float | None = None,
) -> RankedKeys[K]:
    """Maximal marginal relevance by given similarities: see `mmr`.

    Args:
        ranking: See `mmr`.
        similarities: (n, n): how alike candidates are, from 0 to 1, rows and columns in their
            order. Row i is read once i was chosen.
        lam: See `mmr`.
        topk: See `mmr`.
        normalise: See `mmr`.
        lowest: See `mmr`.

    Returns:
        The chosen candidates with their scores at the time, best first, ties by uid.

    Raises:
        ConfigError: See `mmr`.

    Example:
        >>> ranking = [("a", 0.8), ("b", 0.7)]
        >>> mmr_of_similarities(ranking, [[1, 0.5], [0.5, 1]], lam=0.75, normalise="none")
        [('a', 0.6000000000000001), ('b', 0.3999999999999999)]
    """
    table = _numbers("similarities", similarities)
    if table.shape != (len(ranking), len(ranking)) and (len(ranking) > 0 or table.size > 0):
        raise ConfigError(
            f"similarities must have the shape (n, n) for {len(ranking)} candidates; got"
            f" {table.shape}."
        )
    return _chosen(ranking, lambda at: table[at], lam, topk, normalise, lowest)


def _chosen(
    ranking: ScoredKeys[K],
    likeness: Callable[[int], FloatArray],
    lam: float,
    topk: int | None,
    normalise: Normalisation,
    lowest: float | None,
) -> RankedKeys[K]:
    """The candidates in the order of choice; likeness(i) is how alike each one is to the i-th."""
    expected = "a number from 0 (only diversity) to 1 (only relevance)"
    validate_range("lam", lam, 0, 1, expected)
    count = len(ranking)
    if topk is not None:
        count = min(validate_integer("topk", topk, 1), count)
    uids: list[Any] = [uid for uid, _ in ranking]
    if len(set(uids)) < len(uids):
        raise ConfigError("ranking has a uid twice; mmr chooses each candidate once.")
    # of equal scores argmax takes the first
    by_uid = np.array(sorted(range(len(uids)), key=uids.__getitem__), np.intp)
    scores = [score for _, score in normalised(ranking, normalise, lowest)]
    relevance = np.array(scores, np.float64)[by_uid]
    redundancy = np.zeros(len(ranking))
    left = np.ones(len(ranking), bool)
    chosen: RankedKeys[K] = []
    for _ in range(count):
        gains = np.where(left, lam * relevance - (1 - lam) * redundancy, -np.inf)
        best = int(gains.argmax())
        candidate = int(by_uid[best])
        chosen.append((uids[candidate], float(gains[best])))
        left[best] = False
        np.maximum(redundancy, likeness(candidate)[by_uid], out=redundancy)
    return chosen


def _numbers(name: str, value: Any) -> FloatArray:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{name} must be numbers in rows of the same length: {exc}.") from exc
    require(bool(np.isfinite(array).all()), name, array, "finite numbers")
    return array


def _not_zero(divisors: FloatArray) -> FloatArray:
    return np.where(divisors > 0, divisors, 1.0)
