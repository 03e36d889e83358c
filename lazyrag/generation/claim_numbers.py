"""Numbers and dates of statements, compared with those of their sources."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from lazyrag.data.segment import Span
from lazyrag.generation.claim_arithmetic import is_computed
from lazyrag.generation.claim_text import ClaimPair, Mismatch, Text, is_han
from lazyrag.generation.claim_words import MEASURE_WORDS
from lazyrag.generation.quantities import CLOCK, ORDINAL, Quantity, unit_of

Places: TypeAlias = "Sequence[tuple[Quantity, Text]]"
"""Numbers of a source, each with its sentence."""

_RIVAL_FACTOR = 1.2
_RIVAL_MARGIN = 0.04
_MAX_COUNT = 3  # in words, it may be counted by the answer
_MOST_RIVALS = 20  # a number in its place is not much larger


def compare_numbers(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find numbers and dates of a statement that the source lacks, or has of something else."""
    numbers = pair.passage.numbers
    shares = _shares(pair)
    for number in pair.claim.quantities:
        equal = [place for place in numbers if _is_equal(number, *place)]
        if number.start in shares or _is_skipped(pair, number, is_equal=bool(equal)):
            continue
        rivals = [place for place in numbers if _is_rival(pair.claim, number, *place)]
        if equal:
            rival = _of_another_thing(pair, number, equal, rivals)
            rival = rival or _nearer_rival(pair, number, equal, rivals)
            is_wrong = rival is not None
        else:
            facing = _of_the_same(pair, number) or _in_sentence(pair.best, rivals)
            _, rival = _closest(pair.claim, number, facing)
            is_wrong = not _is_counted(pair, number, facing)
        if is_wrong:
            kind = "date" if number.dimension == "month" else "number"
            yield Mismatch(kind, number.span, rival)


def _in_sentence(sentence: Text, places: Places) -> Places:
    """The numbers that are in a sentence."""
    return [place for place in places if place[1] is sentence]


def _nearer_rival(pair: ClaimPair, number: Quantity, equal: Places, rivals: Places) -> Span | None:
    """The number of a source that is in the place of one of a statement, where those that equal it
    are not.
    """
    for sentence in (pair.best, _best_for(pair, number)):
        if _in_sentence(sentence, equal):
            rivals = _in_sentence(sentence, rivals)
            break
    dimensions = {other.dimension for other, _ in equal}
    rivals = [place for place in rivals if place[0].dimension in dimensions]
    score, _ = _closest(pair.claim, number, equal)
    rival_score, rival = _closest(pair.claim, number, rivals)
    return rival if rival_score > _RIVAL_FACTOR * score + _RIVAL_MARGIN else None


def _is_counted(pair: ClaimPair, number: Quantity, rivals: Places) -> bool:
    """Whether a number is a small one in words, which the answer may have counted."""
    word = pair.claim.between(number.start, number.end)
    is_small = number.number <= _MAX_COUNT and number.dimension != "month"
    has_rival = any(other.number <= _MOST_RIVALS for other, _ in rivals)
    return is_small and word.isalpha() and not has_rival and not _of_the_same(pair, number)


def _best_for(pair: ClaimPair, number: Quantity) -> Text:
    """The sentence of a source that has most words of the clause with a number."""
    clauses = [clause for clause in pair.claim.clauses if clause.start <= number.start]
    return pair.passage.sentences[pair.passage.best_sentence(clauses[-1])]


_SHARE = re.compile(r"(?:\s[a-z]+){0,4}\s?(?:in|out of)\s?", re.IGNORECASE)


def _shares(pair: ClaimPair) -> set[int]:
    """The starts of the numbers of shares that a source has in percent: one in five, 20 %."""
    percents = [number for number, _ in pair.passage.numbers if number.dimension == "percent"]
    starts: set[int] = set()
    for first, second in itertools.pairwise(pair.claim.quantities):
        if second.number and _SHARE.fullmatch(pair.claim.between(first.end, second.start)):
            share = replace(first, number=100 * first.number / second.number, dimension="percent")
            if any(share.rounds(percent) for percent in percents):
                starts |= {first.start, second.start}
    return starts


def _is_skipped(pair: ClaimPair, number: Quantity, *, is_equal: bool) -> bool:
    """Whether a number is an article, mostly; a day, at which `compare_dates` looks; or one that
    the source has in a name, or not rounded.
    """
    if number.number == 1 and not number.dimension:
        return is_equal or not _of_the_same(pair, number)
    if is_equal:
        return number.start in pair.claim.days or number.dimension in (ORDINAL, CLOCK)
    if number.is_year and f"{number.number:.0f}" in pair.passage.title:
        return True
    return _is_in_name(pair, number) or is_computed(pair, number)


def _is_in_name(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a number is a word of the source, or a part of one: the eastern half, oxygen-18."""
    word = pair.claim.between(number.start, number.end)
    is_word = word.isalpha() and number.dimension != "month"
    if is_word and any(word.lower() in part.words for part in pair.passage.sentences):
        return True
    part_of_name = rf"(?<=[^\W\d]-){re.escape(word)}(?!\d)"
    return re.search(part_of_name, pair.passage.text) is not None


def _of_the_same(pair: ClaimPair, number: Quantity) -> list[tuple[Quantity, Text]]:
    """Other numbers of what a statement counts: two members, one member."""
    counted = pair.claim.following(number.end)
    return [
        (other, pair.best)
        for other in pair.best.quantities
        if counted
        and {number.dimension, other.dimension} == {""}
        and other.number != number.number
        and pair.best.following(other.end) == counted
    ]


def _of_another_thing(
    pair: ClaimPair, number: Quantity, equal: Places, rivals: Places
) -> Span | None:
    """The number of a source that a statement is about, where it has the number of something else:
    none of its words are only in the clause of its number, and two are only in that of another.
    """
    rivals = [place for place in rivals if place[0].dimension == number.dimension]
    if not rivals:
        return None
    alike = [
        (other, pair.claim)
        for other in pair.claim.quantities
        if other.dimension == number.dimension
    ]
    terms = _clause_of(number, pair.claim, alike)
    places = sorted([*equal, *rivals], key=lambda place: place[0].start)
    clauses = [_clause_of(other, part, places) for other, part in places]
    holders = Counter(itertools.chain.from_iterable(clauses))
    counts = [sum(holders[term] == 1 for term in terms & clause) for clause in clauses]
    if any(count for count, place in zip(counts, places, strict=True) if place in equal):
        return None
    most = max(counts)
    rival = places[counts.index(most)][0]
    return rival.span if most >= _MIN_WORDS_OF_ANOTHER else None


_MIN_WORDS_OF_ANOTHER = 2


def _clause_of(number: Quantity, part: Text, places: Places) -> set[str]:
    """The terms of a sentence around a number, up to other numbers."""
    others = [other for other, sentence in places if sentence is part]
    position = others.index(number)
    start = part.start
    end = part.start + len(part.text)
    if position:
        start = _boundary(part, others[position - 1], number)
    if position + 1 < len(others):
        end = _boundary(part, number, others[position + 1])
    return {
        token.term
        for token in part.content
        if start <= token.start < end and not number.start <= token.start < number.end
    }


def _boundary(part: Text, first: Quantity, second: Quantity) -> int:
    """Where the clause of a number ends and that of the next one begins: at the last separator of
    the strongest kind between them.
    """
    between = part.between(first.end, second.start)
    for separator in _SEPARATORS:
        ends = [match.end() for match in separator.finditer(between)]
        if ends:
            return first.end + ends[-1]
    return first.end


_SEPARATORS = (
    re.compile(r"[;；|\n]"),
    re.compile("[,，]"),
    re.compile(r"\b(?:and|while|but)\b|[和而、]"),
)


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
        if number.dimension == "month" and following not in _DATE_MARKS:
            return False
        is_unit = is_han(following) and following not in "和与及至到"
        if number.dimension in _MEASURED and is_unit:  # one that is not in the table
            return False
        units = [unit_of(word) for word in part.words]
        units += [(unit.dimension, unit.factor) for unit in part.quantities]
        factors = [factor for dimension, factor in units if dimension == number.dimension]
        if factors:
            return any(
                number.equals(replace(other, dimension=number.dimension, factor=factor))
                for factor in factors
            )
    return number.equals(other)


_DATE_MARKS = ("-", "/", ".")
_MEASURED = ("length", "mass", "area", "volume", "power")


def compare_dates(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find months and years of a statement that the source has with another year or month."""
    dates = [date for part in pair.passage.sentences for date in part.dates]
    claims = pair.claim.dates
    same_dates = [
        claimed
        for claimed in claims
        if any(all(map(Quantity.equals, claimed, date)) for date in dates)
    ]
    for claimed in claims:
        alike = [date for date in dates if date[1].is_year == claimed[1].is_year]
        for index, other in enumerate(claimed):
            facing = [date[index] for date in alike if date[1 - index].equals(claimed[1 - index])]
            is_known = any(other in date for date in same_dates)
            if facing and not is_known:
                yield Mismatch("date", other.span, facing[0].span)


def compare_periods(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find how often, or for how long, a statement has something where the source has another
    period: a week, a month; 每天, 每月.
    """
    periods = [period for part in pair.around for period in _periods(part)]
    lengths = [length for length, _ in periods]
    lengths += [number.size for number in pair.numbers if number.dimension == "time"]
    for length, span in _periods(pair.claim):
        is_known = any(math.isclose(length, other, rel_tol=0.05) for other in lengths)
        if periods and not is_known:  # every 12 months: a year
            yield Mismatch("number", span, periods[0][1])


def _periods(text: Text) -> Iterator[tuple[float, Span]]:
    """The periods of a text, each with its length in seconds and its span."""
    for match in _PERIOD.finditer(text.text):
        before = match["before"] or ""
        is_article = (match["each"] or "").lower() in ("a", "an")
        is_rate = before.lower() in ("once", "twice", "times") or re.search(r"\d|[%$€£¥]", before)
        if is_article and not is_rate and not unit_of(before.lower())[0]:
            continue
        name = (match["period"] or match["adverb"] or match["han"]).lower()
        start = match.start("each") if match["each"] else match.start()
        length = unit_of(_PERIODS.get(name, name.removesuffix("ly")))[1]
        yield length, (text.start + start, text.start + match.end())


_PERIOD = re.compile(
    r"(?:(?P<before>\S+)\s)?\b(?P<each>an?|per|each|every)\s"
    r"(?P<period>second|minute|hour|day|week|month|quarter|year)\b"
    r"|\b(?P<adverb>hourly|daily|weekly|monthly|quarterly|yearly|annually|annual)\b"
    r"|每个?(?P<han>秒|分钟|小时|天|日|周|星期|月|季度|季|年)",
    re.IGNORECASE,
)
_PERIODS = {
    "daily": "day",
    "annual": "year",
    "annually": "year",
    "quarter": "季度",
    "quarterly": "季度",
    "季": "季度",
    "日": "天",
    "月": "个月",
}
"""Units of periods whose names are no units."""


def _is_alike(number: Quantity, other: Quantity, claim: Text) -> bool:
    """Whether one number may be in the place of another: years differ from counts."""
    dimensions = {number.dimension, other.dimension}
    end = claim.between(number.end - 1, number.end + 1)
    if dimensions != {""} and not set(end).isdisjoint(MEASURE_WORDS):  # it counts something
        return False
    if not dimensions.isdisjoint(("month", ORDINAL)) or "" not in dimensions:
        return len(dimensions) == 1
    return number.is_year == other.is_year and other.number != 1


def _closest(claim: Text, number: Quantity, candidates: Places) -> tuple[float, Span | None]:
    """The number of a source whose neighbours are most like those of a statement's number: its
    score, and its span.
    """
    scores = [
        (_closeness(claim, number.start, part, other.start), other.span)
        for other, part in candidates
    ]
    return max(scores, key=lambda score: score[0], default=(0.0, None))


def _closeness(claim: Text, place: int, part: Text, source_place: int) -> float:
    """How near the words around a place of a statement are to a place of a sentence, from 0 to
    1.
    """
    total = 0.0
    score = 0.0
    position = claim.number_at(place)
    column = next(iter(part.columns[part.number_at(source_place) :]), 0)
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
