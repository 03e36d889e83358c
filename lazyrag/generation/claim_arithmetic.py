"""What statements compute from the numbers of their sources: sums, differences, how many times one
is another, rounded numbers, bounds.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from lazyrag.generation.claim_text import ClaimPair
from lazyrag.generation.quantities import CLOCK, ORDINAL, Quantity, unit_of


def is_computed(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement has a sum, a difference or a ratio of numbers of the source, rounds one,
    or says that one is above or below it.
    """
    rules = (_is_rounded, _is_bound, _is_sum_or_difference, _is_ratio)
    return any(rule(pair, number) for rule in rules)


_ABOUT = re.compile(
    r"(?:about|around|roughly|approximately|nearly|almost|over|some|than|least|~"
    r"|(?:约|近|超过?)[为有是]?)\W*$",
    re.IGNORECASE,
)
_MORE = re.compile("[多余]")
_ABOUT_BEHIND = re.compile(r"\s?(?:左右|上下|以上|多)")


_ABOVE = re.compile(
    r"(?:(?:more|longer|higher|older) than|over|above|超过|多于|高于)\W*$", re.IGNORECASE
)
_BELOW = re.compile(
    r"(?:(?:less|fewer|shorter|lower|younger) than|under|below|不到|不足|低于|少于)\W*$",
    re.IGNORECASE,
)
_BOUND_FACTOR = 1.6
_RATIO_TOLERANCE = 0.02
_ABOUT_TOLERANCE = 0.15
_EPSILON = 1e-9
_SHARE_TOLERANCE = 3.0  # percent: a quarter may be 27 %


def _is_bound(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement says that a number is above or below one of the source, not far from
    it.
    """
    before = pair.claim.between(number.start - 20, number.start)
    is_above = _ABOVE.search(before) is not None
    if not is_above and not _BELOW.search(before):
        return False
    for other in pair.numbers:
        smaller, larger = (number, other) if is_above else (other, number)
        is_within_bound = smaller.size <= larger.size <= _BOUND_FACTOR * smaller.size
        if other.dimension == number.dimension and is_within_bound:
            return True
    return False


_SUM = re.compile(r"\b(?:total|in all|altogether|together|combined|both)\b|共|合计|加起来|加在一起")
_LIST = re.compile(r"\band\b|[和与及]")
_LEAST_SUM_OF_LIST = 100  # smaller numbers are sums by chance
_DIFFERENCE = re.compile(
    r"\b(?:more|less|fewer|longer|later|earlier|after|before|by|for|lasted|took|from|ahead|behind"
    r"|lead|faster|\w+er than)\b"
    r"|[比贵省多少快慢后晚早增减升降]"
)


def _is_sum_or_difference(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement has the sum of neighbouring numbers of the source, or the difference of
    two.
    """
    is_large = number.number >= _LEAST_SUM_OF_LIST and _LIST.search(pair.claim.text)
    is_sum = bool(is_large or _SUM.search(pair.claim.text))
    if not is_sum and not _DIFFERENCE.search(pair.claim.text):
        return False
    pools = _pools(pair, number)
    before = pair.claim.between(number.start - 20, number.start)
    tolerance = _ABOUT_TOLERANCE if _ABOUT.search(before) else _EPSILON
    for left, right in (two for pool in pools for two in itertools.combinations(pool, 2)):
        if number.size > 0 and math.isclose(abs(left - right), number.size, rel_tol=tolerance):
            return True
    return is_sum and any(_has_sum(pool, number.size) for pool in pools)


def _pools(pair: ClaimPair, number: Quantity) -> list[list[float]]:
    """Sizes of the numbers that a statement may have computed one from, by what they measure."""
    pools: dict[str, list[float]] = {}
    for other, part in pair.passage.numbers:
        is_near = part in pair.around or other.is_year or other.dimension not in _OFTEN_ALIKE
        comparable = _as_time(other)
        if is_near and comparable.dimension == number.dimension:
            kind = "year" if other.is_year else other.dimension
            pools.setdefault(kind, []).append(comparable.size)
    return [*pools.values(), list(_sizes_as(number, pair.best.quantities))]


_OFTEN_ALIKE = ("", "time", "times", "month", "percent", ORDINAL)
"""Dimensions of numbers whose differences are often equal by chance: only near ones count."""


def _has_sum(pool: list[float], result: float) -> bool:
    """Whether neighbouring numbers have a sum."""
    stretches = itertools.combinations(range(len(pool) + 1), 2)
    return any(
        end - start > 1 and math.isclose(sum(pool[start:end]), result) for start, end in stretches
    )


def _sizes_as(number: Quantity, others: Iterable[Quantity]) -> Iterator[float]:
    """The sizes of the numbers of a sentence that may have the unit of a statement's number."""
    for other in others:
        if not other.dimension and not other.is_year:
            yield other.number * number.factor
        elif not number.dimension:
            yield other.number
        elif other.dimension == number.dimension:
            yield other.size


def _is_ratio(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement has how many times a number of the source is another one."""
    sizes = [other.size for other in pair.numbers if other.number]
    return number.dimension == "times" and any(
        math.isclose(max(two), number.number * min(two), rel_tol=_RATIO_TOLERANCE)
        for two in itertools.combinations(sizes, 2)
    )


def _as_time(number: Quantity) -> Quantity:
    """A number whose differences are to be compared: of years and times of day, a time."""
    if number.is_year:
        return replace(number, dimension="time", factor=unit_of("year")[1])
    if number.dimension == CLOCK:
        return replace(number, dimension="time", factor=unit_of("minute")[1])
    return number


def _is_rounded(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement says that a number is about one of the source."""
    text = pair.claim.text
    is_share = number.dimension == "percent" and text[number.start : number.start + 1].isalpha()
    if is_share and not _ABOUT_BEHIND.match(text, number.end):
        return any(
            other.dimension == "percent" and abs(other.number - number.number) <= _SHARE_TOLERANCE
            for other, _ in pair.passage.numbers
        )
    is_about = _ABOUT.search(text, max(0, number.start - 20), number.start)
    is_more = _MORE.search(text, number.start, number.end)
    if not (is_about or is_more or _ABOUT_BEHIND.match(text, number.end)):
        return False
    return any(map(number.rounds, pair.numbers))
