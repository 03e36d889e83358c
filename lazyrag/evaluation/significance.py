"""Whether a difference between two systems, asked the same queries, is more than chance."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lazyrag.errors import ConfigError
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

Q = TypeVar("Q", bound=Hashable)

EXACT = 20
"""Up to so many queries with a difference, all assignments of signs are enumerated: 2 ** 19 of them."""

_AT_ONCE = 2_000_000
"""Random numbers drawn at once, so that memory does not grow with the rounds."""


@dataclass(frozen=True, slots=True)
class Significance:
    """What a randomisation test says.

    Args:
        difference: The mean of the new system's values less the old one's.
        p: How probable a mean difference of at least this size is, in either direction, if both are equally good.
        exact: Whether all assignments were counted; else some were drawn.
    """

    difference: float
    p: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems on the same queries.

    Args:
        difference: The mean of the new system's values less the old one's.
        p: That of `randomisation_test`.
        low: The interval of the difference begins here.
        high: And ends here.
        wins: Queries on which the new system is better.
        losses: Queries on which it is worse.
        ties: Queries on which they are equal.
    """

    difference: float
    p: float
    low: float
    high: float
    wins: int
    losses: int
    ties: int


def compare(
    old: Mapping[Q, float], new: Mapping[Q, float], *, rounds: int = 100_000, level: float = 0.95, seed: int = 0
) -> Comparison:
    """Compare two systems: the difference with its interval, a p-value, and on how many queries which one is better.

    Args:
        old: By query, the first system's value: ``evaluation.values["nDCG@10"]``.
        new: By query, the second system's value of the same queries.
        rounds: See `randomisation_test`; of the interval at most 10,000 are drawn.
        level: See `bootstrap_interval`.
        seed: Of both; the same seed gives the same numbers.

    Returns:
        The comparison; a positive difference says that the new system is better.

    Raises:
        ConfigError: If the queries differ, there are none, a value is not finite, or an option is out of its range.

    Example:
        >>> found = compare({"q1": 0.0, "q2": 0.5, "q3": 1.0}, {"q1": 1.0, "q2": 1.0, "q3": 1.0})
        >>> found.difference, found.p, found.wins, found.ties
        (0.5, 0.5, 2, 1)
    """
    tested = randomisation_test(old, new, rounds=rounds, seed=seed)
    low, high = bootstrap_interval(old, new, rounds=min(rounds, 10_000), level=level, seed=seed)
    differences = _differences(old, new)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return Comparison(tested.difference, tested.p, low, high, wins, losses, len(differences) - wins - losses)


def randomisation_test(
    old: Mapping[Q, float], new: Mapping[Q, float], *, rounds: int = 100_000, seed: int = 0
) -> Significance:
    """The paired randomisation test (Fisher's): could the systems' names have been dealt out to their values by chance?

    If both are equally good, each query's two values could be swapped. p is the share of all ways of swapping that give
    a mean difference of at least the size seen, in either direction. Up to 20 queries with a difference all ways are
    counted; where all differences have one size, as those of recall@1 may, they are counted by binomials; else ways
    are drawn, and p is (1 + as large ones) / (1 + rounds), which is never 0.

    Args:
        old: By query, the first system's value.
        new: By query, the second system's value of the same queries.
        rounds: How many ways are drawn where they are too many to count.
        seed: The same seed gives the same p.

    Returns:
        The difference and p. Sizes that differ by less than 1e-12 of all differences together are taken for equal.

    Raises:
        ConfigError: If the queries differ, there are none, or a value is not finite.

    Source:
        Smucker, Allan, Carterette: A Comparison of Statistical Significance Tests for Information Retrieval Evaluation,
        CIKM 2007, doi:10.1145/1321440.1321528; Phipson, Smyth: Permutation P-values Should Never Be Zero, 2010 (the 1).

    Example:
        >>> randomisation_test({"q1": 0, "q2": 0, "q3": 0}, {"q1": 1, "q2": 1, "q3": 1})
        Significance(difference=1.0, p=0.25, exact=True)
    """
    rounds = whole_number("rounds", rounds, 1)
    differences = _differences(old, new)
    mean = math.fsum(differences) / len(differences)
    sizes = np.abs(differences[differences != 0])
    least = abs(math.fsum(differences)) - 1e-12 * math.fsum(sizes)
    if len(sizes) == 0:
        return Significance(mean, 1.0, exact=True)
    if (sizes == sizes[0]).all():
        return Significance(mean, _binomial(len(sizes), math.ceil(least / sizes[0])), exact=True)
    if len(sizes) <= EXACT:
        return Significance(mean, float((np.abs(_all_sums(sizes)) >= least).mean()), exact=True)
    reached = sum(int((np.abs(some) >= least).sum()) for some in _drawn_sums(sizes, rounds, seed))
    return Significance(mean, (1 + reached) / (1 + rounds), exact=False)


def bootstrap_interval(
    old: Mapping[Q, float], new: Mapping[Q, float], *, rounds: int = 10_000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Where the mean difference lies, by the bootstrap: queries are drawn anew with replacement.

    Args:
        old: By query, the first system's value.
        new: By query, the second system's value of the same queries.
        rounds: How often as many queries are drawn as there are.
        level: The interval's share of the drawn means, between 0 and 1.
        seed: The same seed gives the same interval.

    Returns:
        Its ends: quantiles of the drawn means (the percentile bootstrap).

    Raises:
        ConfigError: If the queries differ, there are none, a value is not finite, or an option is out of its range.

    Source:
        Efron: Bootstrap Methods, Annals of Statistics 1979, doi:10.1214/aos/1176344552.

    Example:
        >>> bootstrap_interval({"q1": 0.25, "q2": 0.5}, {"q1": 0.5, "q2": 0.75})
        (0.25, 0.25)
    """
    rounds = whole_number("rounds", rounds, 1)
    if not 0 < level < 1:
        msg = f"level is {level!r}; give a number between 0 and 1, usually 0.95."
        raise ConfigError(msg)
    differences = _differences(old, new)
    rng = np.random.default_rng(seed)
    means = [
        differences[rng.integers(0, len(differences), (some, len(differences)), np.int32)].mean(axis=1)
        for some in _parts(rounds, len(differences))
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def holm(p_values: Mapping[Q, float]) -> dict[Q, float]:
    """Several p-values, made larger as there are several: who compares many systems finds a difference by chance.

    Args:
        p_values: By comparison, its p.

    Returns:
        By comparison, in the same order, p adjusted by Holm's method: below 0.05 for any of them is wrong with a
        probability of at most 0.05.

    Source:
        Holm: A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 1979.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    adjusted: dict[Q, float] = {}
    reached = 0.0
    for number, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        reached = max(reached, min(1.0, p * (len(p_values) - number)))
        adjusted[name] = reached
    return {name: adjusted[name] for name in p_values}


def _differences(old: Mapping[Q, float], new: Mapping[Q, float]) -> NDArray[np.float64]:
    """New less old, query by query."""
    if not old or old.keys() != new.keys():
        msg = (
            f"The systems were measured on {len(old)} and {len(new)} queries, {len(old.keys() & new.keys())} of them "
            "in common; a paired test needs both values of the same queries, and at least one."
        )
        raise ConfigError(msg)
    differences = np.array([new[query] - old[query] for query in old], np.float64)
    if not np.isfinite(differences).all():
        msg = "A value is infinite or nan; a measure gives finite numbers."
        raise ConfigError(msg)
    return differences


def _binomial(count: int, least: int) -> float:
    """The share of the 2 ** count ways to sign as many ones whose sum is at least so large, in either direction."""
    reached: int = sum(math.comb(count, plus) for plus in range(count + 1) if abs(2 * plus - count) >= least)
    return float(Fraction(reached, 2**count))


def _all_sums(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums of all ways of signs; the first one's is +, as the others are the same with all signs turned."""
    sums = sizes[:1]
    for size in sizes[1:]:
        sums = np.concatenate([sums + size, sums - size])
    return sums


def _drawn_sums(sizes: NDArray[np.float64], rounds: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """The sums of so many drawn ways of signs, some at a time: what gets + counts twice, less all of them."""
    rng = np.random.default_rng(seed)
    width = (len(sizes) + 7) // 8
    for some in _parts(rounds, len(sizes)):
        bits = np.frombuffer(rng.bytes(some * width), np.uint8).reshape(some, width)
        plus = np.unpackbits(bits, axis=1, count=len(sizes))
        yield 2 * (plus @ sizes) - sizes.sum()


def _parts(rounds: int, width: int) -> Iterator[int]:
    """Numbers of rounds that add up to all of them, each for so many random numbers as are drawn at once."""
    most = max(_AT_ONCE // width, 1)
    for start in range(0, rounds, most):
        yield min(most, rounds - start)
