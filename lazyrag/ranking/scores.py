"""Normalisation of scores, and spec 004's weights of a hybrid search.

A fusion that adds scores adds 0 for a uid that a ranking does not have. So under ``min_max``, ``theoretical``, ``max``
and ``z_score`` 0 is the worst score: the last hit never scores lower than a missing one. ``distribution`` guarantees
that within 3 sigma of the mean, ``none`` where no score is below 0.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from lazyrag.errors import ConfigError
from lazyrag.validation import known_arguments, require, validate_choice, validate_number, validate_text

K = TypeVar("K", bound=Hashable)

Normalisation: TypeAlias = Literal["min_max", "theoretical", "max", "z_score", "distribution", "none"]
"""How a ranking's scores are brought to a common range; `normalised` says what each one does."""

NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)


def normalised(
    ranking: Sequence[tuple[K, float]], how: Normalisation, lowest: float | None = None
) -> list[tuple[K, float]]:
    """Bring the scores of a ranking to a common range.

    ================  ==========================================  ==================================================
    how               score becomes                               equal scores, or one alone, become
    ================  ==========================================  ==================================================
    ``min_max``       (s - worst) / (best - worst)                1
    ``theoretical``   (s - lowest) / (best - lowest)              1, or 0 where they are ``lowest``
    ``max``           s / best: theoretical, with 0 as lowest     1, or 0 where they are 0
    ``z_score``       (s - worst) / sigma                         0
    ``distribution``  (s - (mean - 3 sigma)) / (6 sigma)          1/2
    ``none``          s                                           s
    ================  ==========================================  ==================================================

    worst, best, mean and sigma (of the population) are those of this ranking. ``z_score`` is the z-score moved so that
    the worst becomes 0; it has no upper bound. ``distribution`` lies in [0, 1] but for what is further than 3 sigma
    from the mean, which is kept as it is. ``theoretical`` takes a bound of the measure, not of what was found: -1 for a
    cosine, 0 for BM25; what is below it counts as it. A ranking with nothing above that bound and something below it,
    such as cosines that are all negative under ``max``, would lose its order: it is brought to [0, 1] by ``min_max``.

    Args:
        ranking: ``[(uid, score), ...]``; a higher score is better.
        how: One of `NORMALISATIONS`.
        lowest: The lowest score that the measure can give; for ``theoretical`` alone.

    Returns:
        The same uids in the same order.

    Raises:
        ConfigError: If ``how`` is unknown, ``lowest`` does not go with it, or a score is infinite or nan.

    Source:
        Bruch, Gai, Ingber: An Analysis of Fusion Functions for Hybrid Retrieval, TOIS 2023, doi:10.1145/3596512
        (``min_max``, ``theoretical``, ``z_score``); ``distribution`` is Qdrant's distribution-based score fusion.

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
        validate_number(
            "lowest", lowest, "a finite number with normalise='theoretical', such as -1 for a cosine", math.isfinite
        )
    elif lowest is not None:
        raise ConfigError(f"lowest goes with normalise='theoretical' only; got {lowest!r} with {how!r}. Omit it.")


def min_max(ranking: Sequence[tuple[K, float]]) -> list[tuple[K, float]]:
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


def from_lowest(ranking: Sequence[tuple[K, float]], lowest: float) -> list[tuple[K, float]]:
    """Scale scores linearly so that a measure's lowest becomes 0 and the best one found 1.

    Args:
        ranking: ``[(uid, score), ...]`` with finite scores.
        lowest: What becomes 0; a score below it does, too. If none is above it and one below, `min_max` is taken.

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


def _z_score(ranking: Sequence[tuple[K, float]]) -> list[tuple[K, float]]:
    values, _, sigma = _spread(ranking)
    worst = min(values, default=0.0)
    return [
        (uid, (value - worst) / sigma if sigma > 0 else 0.0) for (uid, _), value in zip(ranking, values, strict=True)
    ]


def _distribution(ranking: Sequence[tuple[K, float]]) -> list[tuple[K, float]]:
    values, mean, sigma = _spread(ranking)
    return [
        (uid, (value - mean) / (6 * sigma) + 0.5 if sigma > 0 else 0.5)
        for (uid, _), value in zip(ranking, values, strict=True)
    ]


def _spread(ranking: Sequence[tuple[K, float]]) -> tuple[list[float], float, float]:
    """Scores divided by the largest absolute one, which keeps squares in a float's range; their mean and sigma."""
    if not ranking:
        return [], 0.0, 0.0
    _check_finite(ranking)
    largest = max(abs(score) for _, score in ranking) or 1.0
    values = [score / largest for _, score in ranking]
    if min(values) == max(values):  # the mean of equal numbers may be rounded
        return values, values[0], 0.0
    mean = math.fsum(values) / len(values)
    return values, mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _check_finite(ranking: Sequence[tuple[K, float]]) -> None:
    for uid, score in ranking:
        if not isinstance(score, numbers.Real):
            raise ConfigError(
                f"Scores must be finite numbers to be added; got {score!r:.40} for {uid!r:.60}. Or fuse by rrf."
            )
        if not math.isfinite(score):
            raise ConfigError("Scores must be finite numbers to be added; a ranking has an infinite one or nan.")


_BY_NAME: Mapping[str, Callable[[Sequence[tuple[K, float]]], list[tuple[K, float]]]] = {
    "min_max": min_max,
    "max": lambda ranking: from_lowest(ranking, 0.0),
    "z_score": _z_score,
    "distribution": _distribution,
}


@known_arguments
@dataclass(frozen=True, slots=True)
class VectorSetting:
    """How much vectors count in a hybrid search, and by which model they are made (spec 004).

    Args:
        vector_weight: From 0 to 1; together with the keyword weight it is 1.
        embedding_provider_name: Who provides the embed model; not blank.
        embedding_model_name: The model's name; not blank.

    Raises:
        ConfigError: If a value is out of its range. It is a `ValueError`, as spec 004 says.

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
        ConfigError: If the weight is out of its range. It is a `ValueError`, as spec 004 says.

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
        ConfigError: If they do not, or something else was given. It is a `ValueError`, as spec 004 says.

    Example:
        >>> weights = Weights(VectorSetting(0.7, "openai", "text-embedding-3-small"), KeywordSetting(0.3))
        >>> weights.shares
        (0.7, 0.3)
    """

    vector_setting: VectorSetting
    keyword_setting: KeywordSetting

    def __post_init__(self) -> None:
        for name, kind in (("vector_setting", VectorSetting), ("keyword_setting", KeywordSetting)):
            require(isinstance(getattr(self, name), kind), name, getattr(self, name), f"a {kind.__name__}")
        require(abs(sum(self.shares) - 1.0) < 1e-6, "The sum of the two weights", sum(self.shares), "1")

    @property
    def shares(self) -> tuple[float, float]:
        """The vector weight and the keyword weight, as `lazyrag.ranking.fusion.weighted` takes them."""
        return self.vector_setting.vector_weight, self.keyword_setting.keyword_weight


def _check_weight(name: str, value: Any) -> None:
    validate_number(name, value, "a number from 0 to 1", lambda weight: 0 <= weight <= 1)
