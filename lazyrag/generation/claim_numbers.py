"""Numbers and dates of statements, compared with those of their sources."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from lazyrag.data.segment import Span
from lazyrag.generation.claim_text import ClaimPair, Mismatch, Text, is_han
from lazyrag.generation.claim_words import MEASURE_WORDS
from lazyrag.generation.quantities import CLOCK, ORDINAL, Quantity, unit_of

_RIVAL_FACTOR = 1.2
_RIVAL_MARGIN = 0.04
_MAX_COUNT = 3  # in words, it may be counted by the answer
_MOST_RIVALS = 20  # a number in its place is not much larger


def compare_numbers(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find numbers and dates of a statement that the source lacks, or has of something else."""
    candidates = [(number, part) for part in pair.passage.sentences for number in part.quantities]
    shares = _shares(pair)
    for number in pair.claim.quantities:
        equal = [(other, part) for other, part in candidates if _is_equal(number, other, part)]
        if number.start in shares or _is_skipped(pair, number, is_equal=bool(equal)):
            continue
        rivals = [
            (other, part)
            for other, part in candidates
            if _is_rival(pair.claim, number, other, part)
        ]
        best = _best_for(pair, number)
        for facing in (pair.best, best):
            if not equal or any(part is facing for _, part in equal):
                rivals = [(other, part) for other, part in rivals if part is facing]
                break
        score, _ = _closest(pair.claim, number, equal)
        rival_score, rival = _closest(pair.claim, number, rivals)
        word = pair.claim.between(number.start, number.end)
        is_count = not equal and number.number <= _MAX_COUNT and word.isalpha()
        if is_count and not any(other.number <= _MOST_RIVALS for other, _ in rivals):
            continue
        if not equal or rival_score > _RIVAL_FACTOR * score + _RIVAL_MARGIN:
            kind = "date" if number.dimension == "month" else "number"
            yield Mismatch(kind, (number.start, number.end), rival)


def _best_for(pair: ClaimPair, number: Quantity) -> Text:
    """The sentence of a source that has most words of the clause with a number."""
    clauses = [clause for clause in pair.claim.clauses if clause.start <= number.start]
    return pair.passage.sentences[pair.passage.best_sentence(clauses[-1])] if clauses else pair.best


_SHARE = re.compile(r"\s?(?:in|out of)\s?")


def _shares(pair: ClaimPair) -> set[int]:
    """The starts of the numbers of shares that a source has in percent: one in five, 20 %."""
    percents = [
        number
        for part in pair.passage.sentences
        for number in part.quantities
        if number.dimension == "percent"
    ]
    starts: set[int] = set()
    for first, second in pairwise(pair.claim.quantities):
        if second.number and _SHARE.fullmatch(pair.claim.between(first.end, second.start)):
            share = replace(first, number=100 * first.number / second.number, dimension="percent")
            if any(share.equals(percent) or share.rounds(percent) for percent in percents):
                starts |= {first.start, second.start}
    return starts


def _is_skipped(pair: ClaimPair, number: Quantity, *, is_equal: bool) -> bool:
    """Whether a number is an article, mostly; a day, at which `compare_dates` looks; or one that
    the source has in a name (oxygen-18), or not rounded.
    """
    is_article = number.number == 1 and not number.dimension
    if is_equal or is_article:
        is_day = number.start in pair.claim.days
        return is_article or is_day or number.dimension in (ORDINAL, CLOCK)
    if number.is_year and f"{number.number:.0f}" in pair.passage.title:
        return True
    word = re.escape(pair.claim.between(number.start, number.end))
    is_in_name = re.search(rf"(?<=[^\W\d]-){word}(?!\d)", pair.passage.text)
    is_near = _is_rounded(pair, number) or _is_bound(pair, number)
    return bool(is_in_name) or is_near or _is_computed(pair, number)


def _is_rival(claim: Text, number: Quantity, other: Quantity, part: Text) -> bool:
    """Whether another number of a sentence may be in the place of one of a statement."""
    if (number.start in claim.days) != (other.start in part.days):
        return False
    is_month = other.dimension == "month"  # 12 is not December
    return _is_alike(number, other, claim) and not any(
        other.equals(claimed) and (claimed.dimension == "month") == is_month
        for claimed in claim.quantities
    )


def _is_equal(number: Quantity, other: Quantity, part: Text) -> bool:
    """Whether a number of a sentence equals one of a statement; its unit may be another word of the
    sentence.
    """
    if number.dimension and not other.dimension and not other.is_year:
        following = part.between(other.end, other.end + 1)
        if number.dimension in _MEASURED and is_han(following):  # a unit that is not in the table
            return False
        units = [unit_of(word) for word in part.words]
        factors = [factor for dimension, factor in units if dimension == number.dimension]
        if factors:
            return any(
                number.equals(replace(other, dimension=number.dimension, factor=factor))
                for factor in factors
            )
    return number.equals(other)


_MEASURED = ("length", "mass", "area", "volume", "power")


def compare_dates(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find months and years of a statement that the source has with another year or month."""
    dates = [date for part in pair.passage.sentences for date in part.dates]
    for claimed in pair.claim.dates:
        alike = [date for date in dates if date[1].is_year == claimed[1].is_year]
        for index, other in enumerate(claimed):
            facing = [date[index] for date in alike if date[1 - index].equals(claimed[1 - index])]
            if facing and not any(other.equals(candidate) for candidate in facing):
                yield Mismatch("date", (other.start, other.end), (facing[0].start, facing[0].end))


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
_SHARE_TOLERANCE = 3.0  # percent: a quarter may be 27 %


def _is_bound(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement says that a number is above or below one of the source, not far from
    it.
    """
    before = pair.claim.between(number.start - 20, number.start)
    is_above = _ABOVE.search(before) is not None
    if not is_above and not _BELOW.search(before):
        return False
    size = number.number * number.factor
    for other in _numbers_around(pair):
        other_size = other.number * other.factor
        smaller, larger = (size, other_size) if is_above else (other_size, size)
        is_near = smaller <= larger <= _BOUND_FACTOR * smaller
        if other.dimension == number.dimension and is_near:
            return True
    return False


_SUM = re.compile(r"\b(?:total|in all|altogether|together|combined)\b|共|合计")
_DIFFERENCE = re.compile(
    r"\b(?:more|less|fewer|longer|later|earlier|after|before|by|for|lasted|took)\b"
    r"|[比贵省多少快慢后晚早增减升降]"
)


def _is_computed(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement has the sum or the difference of two numbers of a sentence, or of
    neighbouring ones, of the source.
    """
    is_sum = _SUM.search(pair.claim.text) is not None
    if not is_sum and not _DIFFERENCE.search(pair.claim.text):
        return False
    result = number.number * number.factor
    sizes: dict[str, list[float]] = {}
    for other in _numbers_around(pair):
        size = _size(other)
        if size.dimension == number.dimension:
            kind = "year" if other.is_year else other.dimension
            sizes.setdefault(kind, []).append(size.number * size.factor)
    pairs = [two for alike in sizes.values() for two in itertools.combinations(alike, 2)]
    return result > 0 and any(
        math.isclose(abs(left - right), result) or (is_sum and math.isclose(left + right, result))
        for left, right in pairs
    )


def _numbers_around(pair: ClaimPair) -> list[Quantity]:
    return [number for part in pair.around for number in part.quantities]


def _size(number: Quantity) -> Quantity:
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
    if is_share:
        return any(
            other.dimension == "percent" and abs(other.number - number.number) <= _SHARE_TOLERANCE
            for part in pair.passage.sentences
            for other in part.quantities
        )
    is_about = _ABOUT.search(text, max(0, number.start - 20), number.start)
    is_more = _MORE.search(text, number.start, number.end)
    if not (is_about or is_more or _ABOUT_BEHIND.match(text, number.end)):
        return False
    return any(number.rounds(other) for part in pair.around for other in part.quantities)


def _is_alike(number: Quantity, other: Quantity, claim: Text) -> bool:
    """Whether one number may be in the place of another: years differ from counts."""
    dimensions = {number.dimension, other.dimension}
    end = claim.between(number.end - 1, number.end + 1)
    if dimensions != {""} and not set(end).isdisjoint(MEASURE_WORDS):  # it counts something
        return False
    if not dimensions.isdisjoint(("month", ORDINAL)) or "" not in dimensions:
        return len(dimensions) == 1
    return number.is_year == other.is_year and other.number != 1


def _closest(
    claim: Text, number: Quantity, candidates: Iterable[tuple[Quantity, Text]]
) -> tuple[float, Span | None]:
    """The number of a source whose neighbours are most like those of a statement's number: its
    score, and its span.
    """
    best: tuple[float, Span | None] = (0.0, None)
    for other, part in candidates:
        score = _closeness(claim, number.start, part, other.start)
        if best[1] is None or score > best[0]:
            best = (score, (other.start, other.end))
    return best


def _closeness(claim: Text, place: int, part: Text, source_place: int) -> float:
    """How near the words around a place of a statement are to a place of a sentence, from 0 to
    1.
    """
    total = 0.0
    score = 0.0
    position = claim.number_at(place)
    column = (
        part.columns[part.number_at(source_place)]
        if part.number_at(source_place) < len(part.columns)
        else 0
    )
    for number, token in enumerate(claim.content):
        if number == position or token.word[0].isdigit():
            continue
        weight = 1 / (1 + abs(number - position))
        total += weight
        matching = part.positions_of(token.term)
        if matching:
            distance = min(abs(part.columns[match] - column) for match in matching)
            score += weight / (1 + distance / 3)
    return score / total if total else 0.0
