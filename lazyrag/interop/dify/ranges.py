"""What specification 004 bounds: scores, and how many documents a search gives."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from lazyrag.errors import ConfigError
from lazyrag.ranking.scores import Normalisation, normalised
from lazyrag.validation import whole_number

MAX_TOP_K = 100
"""The most documents that one search gives (spec 004, section 9)."""

_ROUNDING = 1e-6  # a cosine of float32 vectors may pass 1 by less


def checked_top_k(top_k: Any, name: str = "top_k") -> int:
    """How many documents a search gives, from 1 to 100.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> checked_top_k(4)
        4
    """
    return whole_number(name, top_k, 1, MAX_TOP_K)


def checked_threshold(score_threshold: Any) -> float:
    """The lowest score that is kept, in [0, 1]; None keeps all.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> checked_threshold(None)
        0.0
    """
    return 0.0 if score_threshold is None else unit_score(score_threshold, "score_threshold")


def checked_query(query: Any) -> str:
    """A question, which may be blank.

    Raises:
        ConfigError: If it is no text.

    Example:
        >>> checked_query("tea?")
        'tea?'
    """
    if not isinstance(query, str):
        msg = f"query is {query!r:.80}; give a text."
        raise ConfigError(msg)
    return query


def unit_score(score: Any, what: str = "score") -> float:
    """A score in [0, 1]; one that passes a bound by a rounding error becomes the bound.

    Args:
        score: The number.
        what: What it is, for the message.

    Raises:
        ConfigError: If it is no number in that range.

    Example:
        >>> unit_score(1.0000001)
        1.0
    """
    number = isinstance(score, numbers.Real) and not isinstance(score, bool)
    if not number or not -_ROUNDING <= float(score) <= 1 + _ROUNDING:
        msg = (
            f"{what} is {score!r}; specification 004 has numbers from 0 to 1. Scores of a whole result are brought "
            "there together: Document.from_nodes(nodes, normalise='max')."
        )
        raise ConfigError(msg)
    return min(max(float(score), 0.0), 1.0)


def unit_scores(scores: Sequence[float], normalise: Normalisation) -> list[float]:
    """The scores of one result in [0, 1], in their order.

    Args:
        scores: Finite numbers, a higher one being better.
        normalise: How they are brought there, see `lazyrag.ranking.scores.normalised`. ``"max"`` divides by the best;
            ``"none"`` leaves them, and they must lie there already.

    Raises:
        ConfigError: If a score lies outside of [0, 1] after that.

    Example:
        >>> unit_scores([8.0, 2.0], "max")
        [1.0, 0.25]
    """
    return [unit_score(score) for _, score in normalised(list(enumerate(scores)), normalise)]


def clipped_cosine(cosine: float) -> float:
    """A cosine as a score in [0, 1]: what points away from the query is no less relevant than any other matter.

    Example:
        >>> clipped_cosine(-0.3), clipped_cosine(0.8)
        (0.0, 0.8)
    """
    return 0.0 if math.isnan(cosine) else min(max(cosine, 0.0), 1.0)


def exact_number(value: Any) -> float | None:
    """A number, or a text of one; a whole one without rounding. None for what is none, or not finite.

    Example:
        >>> exact_number("9007199254740993"), exact_number(2.0), exact_number("nan")
        (9007199254740993, 2, None)
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not number.is_integer():
        return number if math.isfinite(number) else None
    digits = not isinstance(value, str) or value.strip().lstrip("+-").replace("_", "").isdecimal()
    return int(value if digits else number)
