"""Retrieval measures by ids and by source spans, `evaluate`, and tests of significance.

Measures are functions of a ranking, best first, and of relevance grades. They agree with trec_eval
once ties are broken: the given order counts. A grade of 1 and more is relevant; uids without a
grade are not. If nothing is relevant the value is 0.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import filterfalse
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, known_names
from lazyrag.ranking.fusion import first_of_each
from lazyrag.types import FloatArray
from lazyrag.validation import (
    require,
    validate_choice,
    validate_integer,
    validate_number,
    validate_text,
)

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound=Hashable)

# Measures of ids

Gain: TypeAlias = Literal["linear", "exponential"]
"""Gain of a grade: the grade itself, or 2 ** grade - 1."""


def recall(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """Share of the relevant uids that are among the first k.

    Args:
        found: Uids, best first, each once.
        grades: Relevance grades by uid; 1 and more is relevant.
        k: Number of uids that count; None: all of them.

    Returns:
        From 0 to 1; 0 if nothing is relevant.

    Example:
        >>> recall(["a", "b", "c"], {"a": 1, "c": 2, "d": 1, "b": 0}, k=2)
        0.3333333333333333
    """
    relevant = _relevant(grades)
    return len(relevant.intersection(_first(found, k))) / len(relevant) if relevant else 0.0


def precision(found: Sequence[K], grades: Mapping[K, float], k: int) -> float:
    """Share of the first k that is relevant. If fewer than k are found, the rest counts as not
    relevant.

    Args:
        found: Uids, best first, each once.
        grades: Relevance grades by uid; 1 and more is relevant.
        k: Number of uids that count.

    Returns:
        From 0 to 1.

    Example:
        >>> precision(["a", "b", "c"], {"a": 1, "c": 2}, k=10)
        0.2
    """
    return len(_relevant(grades).intersection(_first(found, k))) / k


def success(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """Whether a relevant uid is among the first k (hit): 1 or 0.

    Args:
        found: Uids, best first, each once.
        grades: Relevance grades by uid; 1 and more is relevant.
        k: Number of uids that count; None: all of them.

    Example:
        >>> success(["a", "b"], {"b": 1}, k=1), success(["a", "b"], {"b": 1}, k=2)
        (0.0, 1.0)
    """
    return 0.0 if _relevant(grades).isdisjoint(_first(found, k)) else 1.0


def reciprocal_rank(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """1 / rank of the first relevant uid among the first k, ranks from 1; 0 without one. Its mean
    is MRR.

    Args:
        found: Uids, best first, each once.
        grades: Relevance grades by uid; 1 and more is relevant.
        k: Number of uids that count; None: all of them.

    Example:
        >>> reciprocal_rank(["a", "b", "c"], {"b": 1, "c": 1})
        0.5
    """
    relevant = _relevant(grades)
    return next(
        (1.0 / rank for rank, uid in enumerate(_first(found, k), start=1) if uid in relevant), 0.0
    )


def average_precision(found: Sequence[K], grades: Mapping[K, float], k: int | None = None) -> float:
    """Mean of the precision at the rank of each relevant uid; 0 for those not among the first k.

    Args:
        found: Uids, best first, each once.
        grades: Relevance grades by uid; 1 and more is relevant.
        k: Number of uids that count; None: all of them.

    Returns:
        From 0 to 1. Its mean over queries is MAP.

    Example:
        >>> average_precision(["a", "b", "c"], {"a": 1, "c": 1})
        0.8333333333333333
    """
    relevant = _relevant(grades)
    ranks = [rank for rank, uid in enumerate(_first(found, k), start=1) if uid in relevant]
    if not ranks:
        return 0.0
    return math.fsum(number / rank for number, rank in enumerate(ranks, start=1)) / len(relevant)


def ndcg(
    found: Sequence[K], grades: Mapping[K, float], k: int | None = None, gain: Gain = "linear"
) -> float:
    """Normalised discounted cumulative gain: gains divided by log2(1 + rank), as a share of the
    ideal order's.

    The ideal order is that of all judged uids, cut after k.

    Args:
        found: Uids, best first, each once.
        grades: Relevance grades by uid; 1 and more is relevant.
        k: Number of uids that count; None: all of them.
        gain: ``"linear"``: the grade, as in trec_eval. ``"exponential"``: 2 ** grade - 1, as in web
            search. They are the same where grades are 0 and 1.

    Returns:
        From 0 to 1.

    Source:
        Jaervelin, Kekaelaeinen: Cumulated gain-based evaluation of IR techniques, TOIS 2002,
        doi:10.1145/582415.582418; Burges et al.: Learning to rank using gradient descent, ICML 2005
        (exponential).

    Example:
        >>> round(ndcg(["b", "a"], {"a": 3, "b": 1}), 4)
        0.7967
        >>> round(ndcg(["b", "a"], {"a": 3, "b": 1}, gain="exponential"), 4)
        0.7098
    """
    gain_of = _GAINS[validate_choice("gain", gain, _GAINS)]
    gains = {uid: gain_of(grade) for uid, grade in grades.items() if grade >= 1}
    best = _discounted(_first(sorted(gains.values(), reverse=True), k))
    actual = _discounted([gains.get(uid, 0.0) for uid in _first(found, k)])
    return actual / best if best > 0 else 0.0


_GAINS: Mapping[str, Callable[[float], float]] = {
    "linear": float,
    "exponential": lambda grade: math.pow(2.0, grade) - 1.0,
}


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _relevant(grades: Mapping[K, float]) -> set[K]:
    return {uid for uid, grade in grades.items() if grade >= 1}


def _first(ranking: Sequence[K], k: int | None) -> Sequence[K]:
    return ranking if k is None else ranking[: validate_integer("k", k, 1)]


# Significance

EXACT = 20
"""Up to this number of queries with a difference, all assignments of signs are enumerated: 2 ** 19
of them."""

_LEVEL = "a number between 0 and 1, such as 0.95"
_BATCH_SIZE = 2_000_000
"""Random numbers drawn at once, so that memory does not grow with the rounds."""


@dataclass(frozen=True, slots=True)
class Significance:
    """Result of a randomisation test.

    Args:
        difference: The mean of the new system's values less the old one's.
        p: Probability of a mean difference of at least this size, in either direction, if both are
            equally good.
        exact: Whether all assignments were counted; otherwise some were drawn.
    """

    difference: float
    p: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two systems on the same queries.

    Args:
        difference: The mean of the new system's values less the old one's.
        p: That of `randomisation_test`.
        low: Lower end of the difference's interval: the smallest difference that the same test does
            not reject.
        high: Upper end. 0 is outside of the interval exactly if p is at most 1 - ``level``.
        wins: Number of queries on which the new system is better.
        losses: Number on which it is worse.
        ties: Number on which they are equal.
    """

    difference: float
    p: float
    low: float
    high: float
    wins: int
    losses: int
    ties: int

    def sentence(self, p: float | None = None) -> str:
        """Say which system is better, and whether that is certain.

        Args:
            p: A corrected p, where several comparisons are made (`holm`); None: its own. Up to .05
                it is certain.

        Example:
            >>> comparison = compare({"q1": 0.0, "q2": 0.5}, {"q1": 1.0, "q2": 1.0})
            >>> comparison.sentence().partition(" (")[0]
            'The new one is better by 0.7500, which is not certain'
        """
        p = self.p if p is None else p
        counts = f"p = {p:.2g}; {self.wins} better, {self.losses} worse, {self.ties} equal"
        if self.difference == 0:
            return f"Neither is better ({counts})."
        certain = "certain" if p <= _CERTAIN else "not certain"
        word = "better" if self.difference > 0 else "worse"
        return (
            f"The new one is {word} by {abs(self.difference):.4f}, which is {certain} ({counts})."
        )


_CERTAIN = 0.05


def compare(
    old: Mapping[Q, float],
    new: Mapping[Q, float],
    *,
    rounds: int = 100_000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare two systems: mean difference with its interval, p-value, wins and losses.

    Args:
        old: By query, the first system's value: ``evaluation.values["nDCG@10"]``.
        new: The second system's values of the same queries.
        rounds: See `randomisation_test`; at most 10,000 for the interval.
        level: Confidence of the interval, between 0 and 1. Of less than six queries nothing can be
            rejected at 0.95: its ends are then the largest difference that two of the values have.
        seed: The same seed gives the same numbers.

    Returns:
        The comparison. If the difference is positive, the new system is better.

    Raises:
        ConfigError: If the queries differ, there are none, a value is not finite, or an option is
            out of range.

    Example:
        >>> found = compare({"q1": 0.0, "q2": 0.5, "q3": 1.0}, {"q1": 1.0, "q2": 1.0, "q3": 1.0})
        >>> found.difference, found.p, found.wins, found.ties
        (0.5, 0.5, 2, 1)
    """
    tested = randomisation_test(old, new, rounds=rounds, seed=seed)
    validate_number("level", level, _LEVEL, lambda share: 0 < share < 1)
    differences = _differences(old, new)
    values = [*old.values(), *new.values()]
    low, high = _flip_interval(
        differences, tested.p, max(values) - min(values), level, min(rounds, 10_000), seed
    )
    wins = int((differences > 0).sum())
    losses = int((differences < 0).sum())
    return Comparison(
        tested.difference, tested.p, low, high, wins, losses, len(differences) - wins - losses
    )


def randomisation_test(
    old: Mapping[Q, float], new: Mapping[Q, float], *, rounds: int = 100_000, seed: int = 0
) -> Significance:
    """Run the paired randomisation test (Fisher's).

    If both systems are equally good, each query's two values can be swapped. p is the share of all
    swaps that give a mean difference of at least the observed size, in either direction. Up to 20
    queries with a difference all swaps are counted; if all differences have one size, as with
    recall@1, they are counted by binomials; otherwise swaps are drawn, and p is (1 + number of as
    large differences) / (1 + rounds), which is never 0.

    Args:
        old: By query, the first system's value.
        new: The second system's values of the same queries.
        rounds: Number of swaps to draw if there are too many to count.
        seed: The same seed gives the same p.

    Returns:
        The difference and p. Sizes that differ by less than 1e-12 of the sum of all differences
        count as equal.

    Raises:
        ConfigError: If the queries differ, there are none, or a value is not finite.

    Source:
        Smucker, Allan, Carterette: A Comparison of Statistical Significance Tests for Information
            Retrieval Evaluation,
        CIKM 2007, doi:10.1145/1321440.1321528; Phipson, Smyth: Permutation P-values Should Never Be
        Zero, 2010 (the 1).

    Example:
        >>> randomisation_test({"q1": 0, "q2": 0, "q3": 0}, {"q1": 1, "q2": 1, "q3": 1})
        Significance(difference=1.0, p=0.25, exact=True)
    """
    rounds = validate_integer("rounds", rounds, 1)
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
    old: Mapping[Q, float],
    new: Mapping[Q, float],
    *,
    rounds: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Interval of the mean difference by the bootstrap: queries are resampled with replacement.

    Args:
        old: By query, the first system's value.
        new: The second system's values of the same queries.
        rounds: Number of resamples.
        level: Share of the resampled means within the interval, between 0 and 1.
        seed: The same seed gives the same interval.

    Returns:
        Its ends: quantiles of the resampled means (the percentile bootstrap).

    Raises:
        ConfigError: If the queries differ, there are none, a value is not finite, or an option is
            out of range.

    Source:
        Efron: Bootstrap Methods, Annals of Statistics 1979, doi:10.1214/aos/1176344552.

    Example:
        >>> bootstrap_interval({"q1": 0.25, "q2": 0.5}, {"q1": 0.5, "q2": 0.75})
        (0.25, 0.25)
    """
    rounds = validate_integer("rounds", rounds, 1)
    validate_number("level", level, _LEVEL, lambda share: 0 < share < 1)
    differences = _differences(old, new)
    rng = np.random.default_rng(seed)
    count = len(differences)
    means = []
    for some in _parts(rounds, count):
        resampled = differences[rng.integers(0, count, (some, count), np.int32)]
        means.append(resampled.mean(axis=1))
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def holm(p_values: Mapping[Q, float]) -> dict[Q, float]:
    """Adjust p-values of several comparisons by Holm's method.

    Args:
        p_values: By comparison, its p.

    Returns:
        The adjusted p-values, in the same order. The probability that any of them below 0.05 is a
        chance find is at most 0.05.

    Source:
        Holm: A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of
        Statistics 1979.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    adjusted = {}
    reached = 0.0
    for number, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        reached = max(reached, min(1.0, p * (len(p_values) - number)))
        adjusted[name] = reached
    return {name: adjusted[name] for name in p_values}


def _differences(old: Mapping[Q, float], new: Mapping[Q, float]) -> FloatArray:
    """New minus old, by query."""
    if not old or old.keys() != new.keys():
        common = len(old.keys() & new.keys())
        counts = f"{len(old)} and {len(new)} queries, {common} of them in common"
        raise ConfigError(
            f"The systems were measured on {counts}; a paired test needs the same queries, at least"
            " one."
        )
    differences = [_value(query, new[query]) - _value(query, old[query]) for query in old]
    return np.array(differences, np.float64)


def _value(query: Any, value: Any) -> float:
    return validate_number(
        f"The value of the query {query!r:.80}", value, "a finite number", math.isfinite
    )


def _binomial(count: int, least: int) -> float:
    """Share of the 2 ** count sign assignments of ones whose sum reaches a size, in either
    direction.
    """
    reached: int = sum(
        math.comb(count, plus) for plus in range(count + 1) if abs(2 * plus - count) >= least
    )
    return float(Fraction(reached, 2**count))


def _all_sums(sizes: FloatArray) -> FloatArray:
    """Sums of all sign assignments with + first; the others are the same with all signs turned."""
    sums = sizes[:1]
    for size in sizes[1:]:
        sums = np.concatenate([sums + size, sums - size])
    return sums


def _drawn_sums(sizes: FloatArray, rounds: int, seed: int) -> Iterator[FloatArray]:
    """Sums of random sign assignments, in batches: twice the sum of those with +, minus the
    total.
    """
    rng = np.random.default_rng(seed)
    width = (len(sizes) + 7) // 8
    for some in _parts(rounds, len(sizes)):
        bits = np.frombuffer(rng.bytes(some * width), np.uint8).reshape(some, width)
        plus = np.unpackbits(bits, axis=1, count=len(sizes))
        yield 2 * (plus @ sizes) - sizes.sum()


def _flip_interval(
    differences: FloatArray, p: float, widest: float, level: float, rounds: int, seed: int
) -> tuple[float, float]:
    """Ends of the interval of differences that the paired randomisation test does not reject; p
    decides about 0.
    """
    count = len(differences)
    mean = float(differences.mean())
    is_exact = len(differences) <= EXACT

    def signed_sums(terms: FloatArray) -> FloatArray:
        if is_exact:
            return _all_sums(terms)
        return np.concatenate([*_drawn_sums(terms, rounds, seed)])

    sums = signed_sums(differences)
    shifts = signed_sums(np.ones(count))

    def is_possible(difference: float) -> bool:
        rounding = 1e-12 * float(np.abs(differences - difference).sum())
        least = count * abs(mean - difference) - rounding
        reached = int((np.abs(sums - difference * shifts) >= least).sum())
        return (reached + 1 - is_exact) / (len(sums) + 1 - is_exact) > 1 - level

    def end(outside: float) -> float:
        inside = mean
        if min(inside, outside) <= 0 <= max(inside, outside):
            if p > 1 - level:
                inside = 0.0
            else:
                outside = 0.0
        if outside and is_possible(outside):
            return outside
        for _ in range(40):
            middle = (inside + outside) / 2
            if is_possible(middle):
                inside = middle
            else:
                outside = middle
        return inside

    return end(-widest), end(widest)


def _parts(rounds: int, width: int) -> Iterator[int]:
    """Split rounds into batches of at most `_BATCH_SIZE` random numbers."""
    most = max(_BATCH_SIZE // width, 1)
    for start in range(0, rounds, most):
        yield min(most, rounds - start)


# Source spans

SHARE = 0.5
"""Minimum overlap of two matching spans, as a share of the shorter one."""


@dataclass(frozen=True, slots=True, order=True)
class SourceSpan:
    """A range of characters of a document's text.

    Args:
        path: The document: `DocNode.path`.
        start: First character, from 0.
        end: One past the last character, above the start.

    Raises:
        ConfigError: If it is empty, or the path is no text.

    Example:
        >>> SourceSpan("tea.txt", 10, 25).length
        15
    """

    path: str
    start: int
    end: int

    def __post_init__(self) -> None:
        validate_text("path", self.path)
        validate_integer("start", self.start, 0)
        validate_integer("end", self.end, self.start + 1)

    @property
    def length(self) -> int:
        """Number of characters."""
        return self.end - self.start


SpanGrades: TypeAlias = Mapping[SourceSpan, float]
"""Relevance grades by span; 1 and more is relevant."""


def source_span(node: DocNode) -> SourceSpan:
    """Locate a node's text in its document.

    If a text was rewritten, such as a summary, the span is that of its nearest ancestor that was
    not, or the whole document.

    Args:
        node: A node of a Document.

    Raises:
        ConfigError: If the node belongs to no Document.
        StaleNodeError: If its document has changed since.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Pick it. Dry it."})
        >>> docs.create_node_group("step", transform="SentenceWindow")
        >>> source_span(docs.get_nodes("step")[1])
        SourceSpan(path='tea.txt', start=9, end=16)
    """
    if node.reader is None:
        raise ConfigError(
            f"{node!r} belongs to no Document, so its text has no source. Pass a node of a"
            " Document."
        )
    here: DocNode | None = node
    while here is not None and here.group != LAZY_ROOT_NAME:
        source = here.source
        if source is not None and source.group == LAZY_ROOT_NAME and here.span is not None:
            return SourceSpan(node.path, *here.span)
        here = here.parent if source is None else source.parent
    return SourceSpan(node.path, 0, len(node.root.text))


def char_recall(found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None) -> float:
    """Share of the relevant characters that is found: |F and R| / |R|.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Returns:
        From 0 to 1; 0 if nothing is relevant.

    Source:
        Smith, Troynikov: Evaluating Chunking Strategies for Retrieval, Chroma Technical Report
        2024; there by tokens.

    Example:
        >>> char_recall([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 25): 1})
        0.25
    """
    _, relevant_size, shared = _sizes(found, grades, k)
    return shared / relevant_size if relevant_size else 0.0


def char_precision(found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None) -> float:
    """Share of the found characters that is relevant: |F and R| / |F|.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Returns:
        From 0 to 1; 0 if nothing is found.

    Source:
        See `char_recall`.

    Example:
        >>> char_precision([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 25): 1})
        0.5
    """
    found_size, _, shared = _sizes(found, grades, k)
    return shared / found_size if found_size else 0.0


def char_f1(found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None) -> float:
    """Harmonic mean of `char_recall` and `char_precision`: 2 |F and R| / (|F| + |R|).

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Example:
        >>> char_f1([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 15): 1})
        0.5
    """
    found_size, relevant_size, shared = _sizes(found, grades, k)
    return 2 * shared / (found_size + relevant_size) if found_size + relevant_size else 0.0


def char_iou(found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None) -> float:
    """Intersection over union of found and relevant characters: |F and R| / |F or R|.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Source:
        See `char_recall`.

    Example:
        >>> char_iou([SourceSpan("a", 0, 10)], {SourceSpan("a", 5, 20): 1})
        0.25
    """
    found_size, relevant_size, shared = _sizes(found, grades, k)
    either = found_size + relevant_size - shared
    return shared / either if either else 0.0


def span_recall(found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None) -> float:
    """Share of the relevant spans that one of the first k matches.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Returns:
        From 0 to 1; 0 if nothing is relevant.

    Example:
        >>> grades = {SourceSpan("a", 2, 4): 1, SourceSpan("b", 0, 9): 1}
        >>> span_recall([SourceSpan("a", 0, 10)], grades)
        0.5
    """
    first, relevant = _validated(found, grades, k)
    matched = [label for label in relevant if _matches_any(label, first)]
    return len(matched) / len(relevant) if relevant else 0.0


def span_precision(found: Sequence[SourceSpan], grades: SpanGrades, k: int) -> float:
    """Share of the first k found spans that match a relevant one. If fewer are found, the rest does
    not match.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count.

    Example:
        >>> ranking = [SourceSpan("a", 0, 10), SourceSpan("a", 20, 30)]
        >>> span_precision(ranking, {SourceSpan("a", 2, 4): 1}, k=2)
        0.5
    """
    return sum(_matches(found, grades, k)) / k


def span_success(found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None) -> float:
    """Whether one of the first k found spans matches a relevant one: 1 or 0.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Example:
        >>> span_success([SourceSpan("a", 0, 10)], {SourceSpan("a", 9, 29): 1})
        0.0
    """
    return float(any(_matches(found, grades, k)))


def span_reciprocal_rank(
    found: Sequence[SourceSpan], grades: SpanGrades, k: int | None = None
) -> float:
    """1 / rank of the first found span that matches a relevant one, ranks from 1; 0 without one.
    Its mean is span_MRR.

    Args:
        found: Spans, best first.
        grades: Relevance grades by span; 1 and more is relevant.
        k: Number of found spans that count; None: all of them.

    Example:
        >>> ranking = [SourceSpan("b", 0, 9), SourceSpan("a", 0, 10)]
        >>> span_reciprocal_rank(ranking, {SourceSpan("a", 2, 4): 1})
        0.5
    """
    relevant = _matches(found, grades, k)
    return 1.0 / (relevant.index(True) + 1) if True in relevant else 0.0


def _matches(spans: Sequence[Any], grades: Mapping[Any, float], k: int | None) -> list[bool]:
    """For each of the first k spans, whether it matches a relevant one."""
    first, relevant = _validated(spans, grades, k)
    return [_matches_any(span, relevant) for span in first]


def _matches_any(span: Any, others: Iterable[Any]) -> bool:
    return any(_match(span, other) for other in others)


def _match(span: SourceSpan, other: SourceSpan) -> bool:
    shared = min(span.end, other.end) - max(span.start, other.start)
    return span.path == other.path and shared >= SHARE * min(span.length, other.length)


def _sizes(
    spans: Sequence[Any], grades: Mapping[Any, float], k: int | None
) -> tuple[int, int, int]:
    """Numbers of characters in F, in R, and in both."""
    first, relevant = _validated(spans, grades, k)
    found_size = _size(first)
    relevant_size = _size(relevant)
    return found_size, relevant_size, found_size + relevant_size - _size([*first, *relevant])


def _size(spans: Iterable[SourceSpan]) -> int:
    """Number of characters in at least one of the spans."""
    size = 0
    path = ""
    reached = 0
    for span in sorted(spans):
        if span.path != path:
            path = span.path
            reached = 0
        size += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return size


def _validated(
    spans: Sequence[Any], grades: Mapping[Any, float], k: int | None
) -> tuple[Sequence[Any], set[Any]]:
    """The first k spans, and the relevant ones."""
    first = _first(spans, k)
    relevant = _relevant(grades)
    for span in (*first, *relevant):
        is_span = isinstance(span, SourceSpan)
        require(is_span, "Items of a span measure", span, "SourceSpan(path, start, end)")
    return first, relevant


# Evaluation

DEFAULT = ("recall@1", "recall@5", "recall@10", "MRR@10", "nDCG@10")
"""Default measures of `evaluate`."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A named measure; higher is better.

    Args:
        name: The name in tables: ``"nDCG@10"``.
        func: Function of uids, best first, each once, and their grades.
    """

    name: str
    func: Callable[[Sequence[Any], Mapping[Any, float]], float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Values of measures for a run.

    Args:
        values: By measure: by query, in the order of the judgements.
        missing: Judged queries that the run lacks: each counts 0 in every measure.
        unjudged: Queries of the run without judgements: left out.
    """

    values: Mapping[str, Mapping[Any, float]]
    missing: tuple[Any, ...] = ()
    unjudged: tuple[Any, ...] = ()

    @property
    def means(self) -> dict[str, float]:
        """By measure, the mean over all judged queries."""
        return {
            name: math.fsum(by_query.values()) / len(by_query)
            for name, by_query in self.values.items()
        }


def measure(name: str) -> Measure:
    """Return a measure by name: ``metric``, or ``metric@k`` for the first k.

    The metrics are ``recall``, ``precision`` (with k only), ``success`` (also ``hit``), ``MRR``,
    ``MAP``, ``nDCG`` (linear gains) and ``nDCG_exp`` (exponential ones), in upper or lower case.
    For runs and judgements of `SourceSpan`: ``char_recall``, ``char_precision``, ``char_f1``,
    ``char_iou``, ``span_recall``, ``span_precision`` (with k only), ``span_success``, ``span_MRR``.
    `lazyrag.evaluation.metrics` defines them.

    Raises:
        ConfigError: If there is no such metric, or k is not an integer >= 1.

    Example:
        >>> measure("mrr@10").func(["a", "b"], {"b": 1})
        0.5
    """
    metric, at, depth = str(name).partition("@")
    by_lower = {metric.lower(): metric for metric in _METRICS}
    if metric.lower() not in by_lower:
        raise ConfigError(f"Unknown metric {metric!r}. {known_names(metric, _METRICS)}")
    metric = by_lower[metric.lower()]
    function = _METRICS[metric]
    needs_k = metric in ("precision", "span_precision")
    if (at and not (depth.isdecimal() and int(depth) >= 1)) or (needs_k and not at):
        raise ConfigError(
            f"The measure {name!r} needs an integer >= 1 after the @, such as {metric}@10."
        )
    if not at:
        return Measure(metric, function)
    return Measure(f"{metric}@{int(depth)}", partial(function, k=int(depth)))


def evaluate(
    run: Mapping[Any, Sequence[tuple[Hashable, float]]],
    judgements: Mapping[Any, Mapping[Any, float]],
    measures: Sequence[str | Measure] = DEFAULT,
) -> Evaluation:
    """Measure rankings against judgements, by query and on average.

    Args:
        run: By query, its ranking ``[(uid, score), ...]``, best first. The order counts, the scores
            do not. Only the first occurrence of a uid counts, so files can be judged by their
            chunks.
        judgements: By query, the grades of the judged uids; 1 and more is relevant.
        measures: Names that `measure` accepts, or `Measure` objects.

    Returns:
        The values by measure and query. A judged query counts 0 if the run lacks it (as in
        trec_eval -c), finds nothing, or nothing is relevant for it. Queries without judgements are
        left out.

    Raises:
        ConfigError: If a measure is unknown or named twice, there are no judgements, or a ranking
            or grades are malformed.

    Example:
        >>> run = {"q1": [("a", 2.0), ("b", 1.0)], "q2": []}
        >>> evaluate(run, {"q1": {"b": 1}, "q2": {"c": 1}}, ["recall@10", "MRR"]).means
        {'recall@10': 0.5, 'MRR': 0.25}
    """
    chosen = [item if isinstance(item, Measure) else measure(item) for item in measures]
    names = [item.name for item in chosen]
    require(
        isinstance(run, Mapping), "run", run, "a mapping {query: [(uid, score), ...]}, best first"
    )
    graded = isinstance(judgements, Mapping) and all(
        isinstance(grades, Mapping) for grades in judgements.values()
    )
    require(graded, "judgements", judgements, "a mapping {query: {uid: grade}}")
    if not judgements or not names or len(set(names)) < len(names):
        passed = f"{len(judgements)} judged queries and the measures {names}"
        raise ConfigError(f"evaluate got {passed}; pass at least one of each, each measure once.")
    ranked = {}
    for query in judgements:
        ranking = first_of_each(_ranking(query, run.get(query, ())))
        ranked[query] = [uid for uid, _ in ranking]
    values = {item.name: _measured(item, ranked, judgements) for item in chosen}
    missing = tuple(filterfalse(run.__contains__, judgements))
    unjudged = tuple(filterfalse(judgements.__contains__, run))
    return Evaluation(MappingProxyType(values), missing, unjudged)


def _measured(
    item: Measure,
    ranked: Mapping[Any, Sequence[Any]],
    judgements: Mapping[Any, Mapping[Any, float]],
) -> Mapping[Any, float]:
    return MappingProxyType(
        {query: item.func(ranked[query], grades) for query, grades in judgements.items()}
    )


def _ranking(query: Any, ranking: Any) -> list[tuple[Any, float]]:
    """Validate a ranking: plain uids or a mapping would be unpacked into something else."""
    is_listed = isinstance(ranking, Iterable) and not isinstance(ranking, (str, bytes, Mapping))
    pairs = list(ranking) if is_listed else []
    is_ranking = is_listed and all(map(_is_pair, pairs))
    name = f"The ranking of query {query!r:.60}"
    require(is_ranking, name, ranking, "a list [(uid, score), ...], best first")
    return pairs


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and isinstance(value[1], (numbers.Real, type(None)))
    )


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
