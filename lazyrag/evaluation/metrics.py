"""How good one ranking is: functions of what was found, best first, and of how relevant each uid is.

They agree with trec_eval once ties are broken: the order that is given counts. A grade of 1 and more is relevant; what
nobody judged is not. Where nothing is relevant the answer is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from lazyrag.errors import ConfigError, known_names
from lazyrag.validation import whole_number

K = TypeVar("K", bound=Hashable)

Gain: TypeAlias = Literal["linear", "exponential"]
"""What a grade is worth: itself, or 2 to its power, less 1."""


def recall(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """The share of what is relevant that was found among the first k.

    Args:
        found: Uids, best first, each once.
        grades: How relevant a uid is, from 1; below that, and without a grade, it is not.
        k: How many count; None: all of them.

    Returns:
        From 0 to 1; 0 where nothing is relevant.

    Example:
        >>> recall(["a", "b", "c"], {"a": 1, "c": 2, "d": 1, "b": 0}, k=2)
        0.3333333333333333
    """
    relevant = _relevant(grades)
    return len(relevant.intersection(_first(found, k))) / len(relevant) if relevant else 0.0


def precision(found: Sequence[K], grades: Mapping[K, float], k: int) -> float:
    """The share of the first k that is relevant; places that nothing was found for count as not relevant.

    Args:
        found: Uids, best first, each once.
        grades: How relevant a uid is, from 1; below that, and without a grade, it is not.
        k: How many count.

    Returns:
        From 0 to 1.

    Example:
        >>> precision(["a", "b", "c"], {"a": 1, "c": 2}, k=10)
        0.2
    """
    return len(_relevant(grades).intersection(_first(found, k))) / k


def success(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """Whether anything relevant is among the first k, also called hit: 1 or 0.

    Args:
        found: Uids, best first, each once.
        grades: How relevant a uid is, from 1; below that, and without a grade, it is not.
        k: How many count; None: all of them.

    Example:
        >>> success(["a", "b"], {"b": 1}, k=1), success(["a", "b"], {"b": 1}, k=2)
        (0.0, 1.0)
    """
    return 0.0 if _relevant(grades).isdisjoint(_first(found, k)) else 1.0


def reciprocal_rank(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """1 / rank of the first relevant one among the first k, ranks from 1; 0 without one. Its mean is MRR.

    Args:
        found: Uids, best first, each once.
        grades: How relevant a uid is, from 1; below that, and without a grade, it is not.
        k: How many count; None: all of them.

    Example:
        >>> reciprocal_rank(["a", "b", "c"], {"b": 1, "c": 1})
        0.5
    """
    relevant = _relevant(grades)
    return next((1.0 / rank for rank, uid in enumerate(_first(found, k), start=1) if uid in relevant), 0.0)


def average_precision(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """The mean, over all that is relevant, of the precision at its rank; 0 for what is not among the first k.

    Args:
        found: Uids, best first, each once.
        grades: How relevant a uid is, from 1; below that, and without a grade, it is not.
        k: How many count; None: all of them.

    Returns:
        From 0 to 1. Its mean over queries is MAP.

    Example:
        >>> average_precision(["a", "b", "c"], {"a": 1, "c": 1})
        0.8333333333333333
    """
    relevant = _relevant(grades)
    ranks = [rank for rank, uid in enumerate(_first(found, k), start=1) if uid in relevant]
    return math.fsum(number / rank for number, rank in enumerate(ranks, start=1)) / len(relevant) if ranks else 0.0


def ndcg(found: Sequence[K], grades: Mapping[K, float], k: int | None = None, gain: Gain = "linear") -> float:
    """Normalised discounted cumulative gain: gains divided by log2(1 + rank), as a share of the best order's.

    The best order is that of all that was judged, cut after k.

    Args:
        found: Uids, best first, each once.
        grades: How relevant a uid is, from 1; below that, and without a grade, it is not.
        k: How many count; None: all of them.
        gain: ``"linear"``: the grade, as in trec_eval. ``"exponential"``: 2 ** grade - 1, as in web search. They are
            the same where grades are 0 and 1.

    Returns:
        From 0 to 1.

    Source:
        Jaervelin, Kekaelaeinen: Cumulated gain-based evaluation of IR techniques, TOIS 2002,
        doi:10.1145/582415.582418; Burges et al.: Learning to rank using gradient descent, ICML 2005 (exponential).

    Example:
        >>> round(ndcg(["b", "a"], {"a": 3, "b": 1}), 4)
        0.7967
        >>> round(ndcg(["b", "a"], {"a": 3, "b": 1}, gain="exponential"), 4)
        0.7098
    """
    if gain not in _GAINS:
        msg = f"gain is {gain!r}. {known_names(str(gain), _GAINS)}"
        raise ConfigError(msg)
    worth = _GAINS[gain]
    gains = {uid: worth(grade) for uid, grade in grades.items() if grade >= 1}
    best = _discounted(_first(sorted(gains.values(), reverse=True), k))
    return _discounted([gains.get(uid, 0.0) for uid in _first(found, k)]) / best if best > 0 else 0.0


_GAINS: Mapping[str, Callable[[float], float]] = {
    "linear": float,
    "exponential": lambda grade: math.pow(2.0, grade) - 1.0,
}


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _relevant(grades: Mapping[K, float]) -> set[K]:
    return {uid for uid, grade in grades.items() if grade >= 1}


def _first(found: Sequence[K], k: int | None) -> Sequence[K]:
    return found if k is None else found[: whole_number("k", k, 1)]
