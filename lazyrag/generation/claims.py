"""Statements of answers, compared with their sources by rule: numbers, names, negation, opposites,
order, words.

English and Chinese. Of other languages, and where a statement and its source differ in language,
only numbers, dates and names are compared.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from lazyrag.data.result import Finding, Statement, Verdict
from lazyrag.data.segment import Span
from lazyrag.errors import GenerationError, sentence
from lazyrag.generation.claim_text import Passage, Text, Word, fold, han_nouns, is_han
from lazyrag.generation.claim_words import (
    ADJECTIVE_ENDINGS,
    DENIALS,
    ENGLISH_FUNCTION_WORDS,
    FIRST_WORDS,
    GENERAL_NOUNS,
    GERMAN_WORDS,
    HAN_NEGATION,
    HAN_OPPOSITES,
    MEASURE_WORDS,
    MODES,
    MONTHS,
    NEGATIONS,
    OPINIONS,
    OPPOSITES,
)
from lazyrag.generation.quantities import ORDINAL, Quantity, narrow, unit_of
from lazyrag.text.analyzers import chinese_segmenter


@dataclass(frozen=True, slots=True)
class ClaimPair:
    """A statement beside a source.

    Args:
        claim: The statement.
        passage: The source.
        best: The sentence with most of the statement's words.
        around: It and its neighbours.
        coverage: The share of the statement's words in the best sentence.
    """

    claim: Text
    passage: Passage
    best: Text
    around: Sequence[Text]
    coverage: float


class Mismatch(NamedTuple):
    """A part of a statement that its source does not confirm.

    Args:
        kind: See `lazyrag.data.result.Finding`.
        span: Start and end in the statement.
        source_span: Start and end in the source of what contradicts it; None if nothing does.
    """

    kind: str
    span: Span
    source_span: Span | None = None


# Numbers

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
    clauses = [clause for clause in _clauses(pair.claim) if clause.start <= number.start]
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
        return is_article or number.dimension == ORDINAL or number.start in pair.claim.days
    if number.is_year and f"{number.number:.0f}" in pair.passage.title:
        return True
    word = re.escape(pair.claim.between(number.start, number.end))
    is_in_name = re.search(rf"(?<=[^\W\d]-){word}(?!\d)", pair.passage.text)
    return bool(is_in_name) or _is_rounded(pair, number)


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


def _is_rounded(pair: ClaimPair, number: Quantity) -> bool:
    """Whether a statement says that a number is about one of the source."""
    text = pair.claim.text
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


# Names

_CODE = re.compile(
    r"[A-Za-z]+[-_.]?\d[\w.-]*|(?<![\w-])--?[a-z][\w-]+|[A-Za-z_]\w*(?:[_./]\w+)+|\b[IVX]{2,}\b"
    r"|\b[A-Za-z]+[a-z][A-Z]\w+",
    re.ASCII,
)
_SENTENCE_BEGINS = re.compile(
    r"""(?:^|[!?:*“"(|]|(?<!\b[A-Z])(?<!\b[A-Z][a-z])(?<!\b[A-Z][a-z]{2})\.)\W*$"""  # Rev. Paul T.
)


_MIN_NAME_IN_TITLE = 4  # as a part of a word: generalmills_2022.pdf


def compare_names(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names, codes and options of a statement that the source lacks."""
    source = pair.passage.scope
    for start, end in _names(pair.claim):
        word = fold(narrow(pair.claim.text[start:end])).strip(".-")
        is_in_title = len(word) >= _MIN_NAME_IN_TITLE and word in pair.passage.title
        bounded = rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])"
        if is_in_title or re.search(bounded, f"{source.text}\n{pair.passage.title}"):
            continue
        is_code = _CODE.fullmatch(pair.claim.text[start:end]) is not None
        parts = [part for part in re.split(r"[-'’.]", word) if len(part) > 2]
        is_known = parts and all(part in source.text for part in parts)
        if not is_code and (is_known or word in source.initials or source.match_name(word)):
            continue
        yield Mismatch("name", (start, end))
    yield from _mixed_names(pair)


_TWO_NAMES = re.compile(r"(?=\b(?!The )([A-Z][\w’'-]+) ([A-Z][\w’'-]+))")


def _mixed_names(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names whose two words are those of two other names in the source: "Ella Mead" of Ella
    Toone and Beth Mead.
    """
    pairs = {match.groups() for match in _TWO_NAMES.finditer(pair.passage.text)}
    for match in _TWO_NAMES.finditer(pair.claim.text):
        first, second = match.groups()
        firsts = {start for start, end in pairs if end == second}
        seconds = {end for start, end in pairs if start == first}
        if firsts and seconds and first not in firsts:
            yield Mismatch("name", (match.start(1), match.end(2)))


def _names(claim: Text) -> Iterator[Span]:
    """Names of a statement: identifiers, and words with a capital inside a sentence, or with
    another one behind them.
    """
    text = narrow(claim.text)
    codes = [match.span() for match in _CODE.finditer(text)]
    yield from codes
    for token in claim.content:
        if not text[token.start].isupper():
            continue
        numbers = [(number.start, number.end) for number in claim.quantities]
        if any(start <= token.start < end for start, end in [*codes, *numbers]):
            continue
        begins = _SENTENCE_BEGINS.search(text, max(0, token.start - 8), token.start)
        follows = re.match(r"(?:['’]s)?\s+[A-Z]", text[token.end : token.end + 5])
        if not begins or (follows and token.word not in FIRST_WORDS):
            yield token.start, token.end


# Negation and opposites

_MAX_GAP = 30  # characters between a negation and what it denies
_MIN_COVERAGE_OF_DENIALS = 0.55
_DENIAL = re.compile(
    rf"\b(?:(?:not|never|no|without)\b|{'|'.join(filter(str.isascii, DENIALS))})|n't"
    rf"|{HAN_NEGATION}|{'|'.join(word for word in DENIALS if not word.isascii())}"
)
_UNTIL = re.compile(r"\b(?:until|unless)\b|才|除非|以免|避免")


def compare_negation(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find words that only the statement denies, or only the source."""
    if pair.coverage < _MIN_COVERAGE_OF_DENIALS or _UNTIL.search(pair.claim.text + pair.best.text):
        return
    claimed = _denied(pair.claim)
    denied = _denied(pair.best)
    for token in pair.claim.content:
        numbers = pair.best.positions_of(token.term)
        sources = [pair.best.content[number] for number in numbers]
        if token.term in claimed and sources and not _is_denied_around(pair, token.term):
            span = (sources[0].start, sources[0].end)
            yield Mismatch("negation", claimed[token.term], span)
        is_denied_once = len(sources) == 1 and sources[0].term in denied and not claimed
        if is_denied_once and not _is_denied_near(pair.claim, token):
            yield Mismatch("negation", (token.start, token.end), denied[sources[0].term])


def _denied(text: Text) -> dict[str, Span]:
    """The content words that a text denies, by term, each with its negation."""
    negations = []
    for token, following in pairwise([*text.tokens, Word(0, 0, "", "")]):
        is_negation = token.word in NEGATIONS or token.word.endswith("n't")
        if is_negation and following.word not in ("only", "just", "merely", "longer"):
            negations.append((token.start, token.end))
    for match in _han_negation().finditer(text.text):
        start = text.start + match.start()
        inside = text.content[text.number_at(start) :][:1]
        if not inside or not inside[0].start < start:
            negations.append((start, text.start + match.end()))
    terms: dict[str, Span] = {}
    for start, end in negations:
        for token in text.content[text.number_at(end) :][:1]:
            between = text.between(end, token.start)
            is_near = len(between) < _MAX_GAP and token.word != "把"
            if is_near and not re.search("[,;，；。]", between):
                terms.setdefault(token.term, (start, token.end))
    return terms


def _ends_with_negation(text: str, place: int) -> bool:
    return _han_negation().search(text[max(0, place - 3) : place]) is not None


@functools.cache
def _han_negation() -> re.Pattern[str]:
    return re.compile(HAN_NEGATION)


def _is_denied_around(pair: ClaimPair, term: str) -> bool:
    """Whether a sentence around the best one denies a word."""
    for part in pair.around:
        tokens = [part.content[number] for number in part.positions_of(term)]
        if any(_is_denied_near(part, token) for token in tokens):
            return True
    return False


def _is_denied_near(text: Text, token: Word) -> bool:
    """Whether a text denies a word from afar, or without a negation: it refuses, lacks, fails."""
    words = text.between(token.end - _MAX_GAP, token.end + _MAX_GAP // 2)
    return _DENIAL.search(words.lower()) is not None


def compare_modes(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find what a statement allows and its source forbids, or the other way round, and the like."""
    if pair.coverage < _MIN_COVERAGE:
        return
    for mode in _modes():
        for words, opposites in (mode, mode[::-1]):
            claimed = words.search(pair.claim.text)
            facing = opposites.search(pair.best.text)
            is_on_both_sides = opposites.search(pair.claim.text) or words.search(pair.best.text)
            if claimed and facing and not is_on_both_sides:
                start = pair.claim.start
                source_start = pair.best.start
                yield Mismatch(
                    "negation",
                    (start + claimed.start(), start + claimed.end()),
                    (source_start + facing.start(), source_start + facing.end()),
                )


@functools.cache
def _modes() -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    return [
        (re.compile(words, re.IGNORECASE), re.compile(opposites, re.IGNORECASE))
        for words, opposites in MODES
    ]


def compare_opposites(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find words of a statement whose opposite is in the source."""
    claimed = _denied(pair.claim)
    denied = _denied(pair.best)
    around = {word for part in pair.around for word in part.words}
    sources = {token.word: token for token in pair.best.tokens}
    for token in pair.claim.tokens:
        is_new = token.word.isascii() and token.word not in around
        facing = _prefixed(token.word, sources) if is_new else []
        for side, other, are_views in _opposites().get(token.word, ()):
            if are_views or side & around or other & pair.claim.words:
                facing += _before_the_same(pair, token, side, other)
            elif token.word.isascii():  # the others may be within words
                facing += other & sources.keys()
        if facing and pair.claim.words.isdisjoint(facing[:1]):
            source = sources[facing[0]]
            if (token.term in claimed) == (source.term in denied):  # not "not closed", "open"
                yield Mismatch("opposite", (token.start, token.end), (source.start, source.end))
    if is_han(pair.claim.text):
        yield from _han_opposites(pair)


def _before_the_same(
    pair: ClaimPair, token: Word, side: frozenset[str], other: frozenset[str]
) -> list[str]:
    """The opposite of a word that is in the source before the word that follows it in a statement,
    if the word itself is not: "more likely", "less likely".
    """
    following = _following(pair.claim, token)
    before = {
        part.word
        for part in pair.best.tokens
        if following and _following(pair.best, part) == following
    }
    return [] if side & before else [*(other & before)]


def _following(text: Text, token: Word) -> str:
    number = text.number_at(token.end)
    return text.content[number].term if number < len(text.content) else ""


def _han_opposites(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find Chinese words of a statement, also within others, whose opposite is in the source."""
    claim = pair.claim
    covered: set[int] = set()
    for word, side, other in _han_words_with_opposites(claim.text):
        at = claim.start + claim.text.index(word)
        is_in_source = any(same in pair.passage.scope.text for same in side)
        is_in_claim = any(opposite in claim.text for opposite in other)
        if is_in_source or is_in_claim or not covered.isdisjoint(range(at, at + len(word))):
            continue
        is_denied = _ends_with_negation(claim.text, at - claim.start)
        for part, opposite in itertools.product(pair.around, other):
            position = part.text.find(opposite)
            if position < 0 or is_denied != _ends_with_negation(part.text, position):
                continue
            # 之前 and 以上 belong to the word before them
            is_behind = word[0] in "之以"
            start = part.start + position
            if is_behind and claim.between(at - 1, at) != part.between(start - 1, start):
                continue
            covered.update(range(at, at + len(word)))
            yield Mismatch("opposite", (at, at + len(word)), (start, start + len(opposite)))


def _han_words_with_opposites(text: str) -> Iterator[tuple[str, Iterable[str], Iterable[str]]]:
    """Words of a text, the words of their side, and those of the other: of the table, and pairs of
    characters such as 早期 and 晚期.
    """
    for word, sides in _opposites().items():
        if not word.isascii() and len(word) > 1 and word in text:
            yield from ((word, side, other) for side, other, are_views in sides if not are_views)
    opposites = _opposite_characters()
    pairs = []
    for first, second in pairwise(text):
        if first in _PARTICLES or second in _PARTICLES:
            continue
        facing = [other + second for other in opposites.get(first, "") if is_han(second)]
        facing += [first + other for other in opposites.get(second, "") if is_han(first)]
        if facing:
            pairs.append((first + second, [first + second], facing))
    pairs.sort(key=lambda pair: not chinese_segmenter().is_word(pair[0]))
    yield from pairs


_PARTICLES = frozenset("了的着过是")


@functools.cache
def _opposites() -> dict[str, list[tuple[frozenset[str], frozenset[str], bool]]]:
    """By word: the words of its side, those of the other, and whether both may be true."""
    sides: dict[str, list[tuple[frozenset[str], frozenset[str], bool]]] = {}
    for line in OPPOSITES.strip().splitlines():
        are_views = "||" in line
        left, right = (frozenset(side.split()) for side in re.split(r"\|+", line))
        for word in left:
            sides.setdefault(word, []).append((left, right, are_views))
        for word in right:
            sides.setdefault(word, []).append((right, left, are_views))
    return sides


@functools.cache
def _opposite_characters() -> dict[str, str]:
    """By character: its opposites."""
    opposites: dict[str, str] = {}
    for pair in HAN_OPPOSITES:
        for character, opposite in zip(pair, reversed(pair), strict=True):
            opposites[character] = opposites.get(character, "") + opposite
    return opposites


_PREFIXES = re.compile(
    r"^(?:under|un|in|im|ir|il|non|dis|over|hypo|hyper|pre|post)(?=\w{4})", re.ASCII
)
_PREFIX_PAIRS = {
    frozenset(pair.split()) for pair in ("under over", "under hyper", "hypo hyper", "pre post")
}


def _split_prefix(word: str) -> tuple[str, str]:
    bare = _PREFIXES.sub("", word)
    return word.removesuffix(bare), bare


def _prefixed(word: str, others: Iterable[str]) -> list[str]:
    """The words that differ from a word in a prefix that makes an opposite: impossible."""
    prefix, bare = _split_prefix(word)
    opposites = []
    for other in others:
        if other == word or not other.endswith(bare[-4:]):
            continue
        other_prefix, other_bare = _split_prefix(other)
        is_opposite = not (prefix and other_prefix) or {prefix, other_prefix} in _PREFIX_PAIRS
        # not formation, information
        is_adjective = word.endswith(ADJECTIVE_ENDINGS) or "un" in (prefix, other_prefix)
        if other_bare == bare and is_opposite and is_adjective:
            opposites.append(other)
    return opposites


# Order and words

_PASSIVE = re.compile(r"\bby\b|被|由|受")
_COMPLETE_NAME = re.compile(
    r"[A-Z][\w’'-]*(?:\.?\s+(?:(?:of|de|von|van|the|la)\s+)?[A-Z][\w’'-]*)*"
)
_MAX_TERMS_BETWEEN = 4


def compare_order(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find two names that the source has the other way round about the same words."""
    claim = pair.claim
    best = pair.best
    names = [
        (match.start(), match.end())
        for match in _COMPLETE_NAME.finditer(claim.text)
        if match[0].lower() not in MONTHS
    ]
    names += [(noun.start, noun.end) for noun in han_nouns(claim.text) if noun.is_name]
    for left, right in pairwise(sorted(names)):
        first_name = claim.text[slice(*right)]
        second_name = claim.text[slice(*left)]
        first = best.text.find(first_name)
        second = best.text.find(second_name)
        is_unique = best.text.count(first_name) == best.text.count(second_name) == 1
        if not 0 <= first < second or not is_unique:
            continue
        span = (left[1], right[0])
        source_span = (best.start + first + len(first_name), best.start + second)
        terms = _terms_between(claim, span)
        is_same = terms <= _terms_between(best, source_span)
        is_passive = _PASSIVE.search(claim.between(*span)) is not None
        source_is_passive = _PASSIVE.search(best.between(*source_span)) is not None
        if 0 < len(terms) <= _MAX_TERMS_BETWEEN and is_same and is_passive == source_is_passive:
            swapped = (best.start + first, best.start + second + len(second_name))
            yield Mismatch("order", (left[0], right[1]), swapped)


def _terms_between(text: Text, span: Span) -> set[str]:
    tokens = text.content[text.number_at(span[0]) : text.number_at(span[1])]
    return {token.term for token in tokens if token.start >= span[0]}


_CLAUSE = re.compile(
    r",? (?:which|who|where|whose|and (?:was|is|were|are|has|have|had|can|later|then))\b"
    r"|, (?:and|but|so|because|although|though|while|whereas|since)\b"
    r"|; |，|；|、(?=还|并)|$"
)
_MIN_CLAUSE_COVERAGE = 0.2
_MIN_COVERAGE = 0.4
_FEW_WORDS = 5
_MIN_COVERAGE_OF_FEW = 0.55
_MIN_CLAUSE_WORDS = 3


def compare_words(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find clauses, or a complete statement, that have few words of the source."""
    scope = pair.passage.scope
    content = pair.claim.content
    numbers = pair.claim.quantities
    others = [
        token
        for token in content
        if not any(number.start <= token.start < number.end for number in numbers)
    ]
    absent = []
    start = 0
    for match in _CLAUSE.finditer(pair.claim.text):
        tokens = [token for token in content if start <= token.start < match.start()]
        is_clause = len(tokens) >= _MIN_CLAUSE_WORDS
        if is_clause and scope.coverage(tokens) < _MIN_CLAUSE_COVERAGE:
            absent.append(tokens)
        start = match.end()
    # compare_numbers looks at the numbers
    missing = len(others) * (1.0 - scope.coverage(others))
    least = _MIN_COVERAGE if len(others) > _FEW_WORDS else _MIN_COVERAGE_OF_FEW
    if not absent and missing > len(content) * (1.0 - least):
        absent.append(content)
    for tokens in absent:
        yield Mismatch("words", (tokens[0].start, tokens[-1].end))


_PHRASE = re.compile(
    r"\b(?!for (?:short|good|example|instance|free|now)|on average|of the box"
    r"|in (?:general|total|full|fact|particular|addition|practice|turn|contrast|detail|advance)"
    r"|by default|at (?:all|least|most|first|last|once|times|present)|of (?:course|date))"
    r"(?:(?:is|are|was|were|be|as|to) (?=an? |the )|(?:by|of|in|for|from|at|with|on|into|and|or) )"
    r"(?:an? |the |its |their |his |her )?"
    r"(?=([\w“\"`'’-]+(?: [\w”\"`'’-]+){0,3})\W*(?:[.,;](?!\d)|$))"
)


def compare_phrases(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find nouns of a statement that the source lacks where it has the words around them."""
    if is_han(pair.claim.text):
        yield from _absent_nouns(pair)
        return
    scope = pair.passage.scope
    for match in _PHRASE.finditer(pair.claim.text):
        start, end = match.span(1)
        tokens = [token for token in pair.claim.tokens if start <= token.start < end]
        if not tokens or tokens[-1].word in GENERAL_NOUNS:
            continue
        is_acronym = pair.claim.text[end - 1].isupper()  # which compare_names looks at
        is_absent = all(token.term and not scope.match_name(token.word) for token in tokens)
        if is_absent and not is_acronym:
            yield Mismatch("words", (start, end))


def _absent_nouns(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names and nouns of a Chinese statement that the source lacks."""
    numbers = pair.claim.quantities
    around = "".join(part.scope.text for part in pair.around)
    text = pair.passage.scope.text
    for noun in han_nouns(pair.claim.text):
        is_unit = any(number.start <= noun.start < number.end for number in numbers)
        if is_unit or noun.is_in(text) or noun.is_cut_wrongly(pair.claim.text, text):
            continue
        if noun.is_strange(pair.claim.text, text) or noun.is_replaced(pair.claim.text, around):
            yield Mismatch("name" if noun.is_name else "words", (noun.start, noun.end))


RULES = (
    compare_numbers,
    compare_dates,
    compare_names,
    compare_order,
    compare_phrases,
    compare_words,
)
RULES_OF_CLAUSES = (compare_negation, compare_modes, compare_opposites)
"""Each clause is compared with the sentence that has most of its words."""


# Verdicts

Judge: TypeAlias = Callable[[str, str], Verdict]
"""A second opinion: the verdict on a statement (first) by the text of a source."""

_OPINION = re.compile(rf"\W*(?:{OPINIONS})")
_RANKS: Sequence[Verdict] = ("not_checkable", "not_found", "contradicted", "supported")
_MIN_WORDS = 2
_MIN_WORDS_OF_LANGUAGE = 6
MAX_STATEMENT = 2_000
"""Characters of a statement that is compared."""


def tidy(text: str) -> str:
    """A statement for people: without marks of Markdown, and spaces in place of its markers.

    Example:
        >>> tidy("80 degrees    .")
        '80 degrees.'
    """
    return re.sub(r"\*\*|`|\s+(?=[.,;:!?。，；：！？]|$)", "", " ".join(text.split()))


def is_opinion(text: str) -> bool:
    """Whether a sentence is a question, a greeting, or says what somebody thinks.

    Example:
        >>> [is_opinion(text) for text in ("I hope this helps!", "希望对您有帮助。", "Tea is old.")]
        [True, True, False]
    """
    return text.endswith(("?", "？")) or _OPINION.match(text) is not None


_LEAD_IN = re.compile(
    r"(?i:\b(?:according to|based on|as stated in|per) the (?:passage|text|documents?|documentation"
    r"|sources?|article|report|context|guide|manual|page|file)\b,?)"
    r"|(?:根据|据|按照)(?:文档|文中|资料|原文|文章|文件|材料|上文|报告|手册)"
    r"(?:所述|记载|介绍|说明|描述)?[，,]?"
)


def _without_lead_in(text: str) -> str:
    """A statement with blanks in place of words that name the source as such."""
    return _LEAD_IN.sub(lambda match: " " * len(match[0]), text)


class Judgement(NamedTuple):
    """The verdict on a statement by one source."""

    verdict: Verdict
    pair: ClaimPair
    mismatches: Sequence[Mismatch]

    @property
    def rank(self) -> tuple[int, float]:
        """The better, the more it decides."""
        return _RANKS.index(self.verdict), self.pair.coverage


def compare(claim: Text, passage: Passage) -> Judgement:
    """Compare a statement with a source by all rules."""
    pair = _beside(claim, passage)
    if _is_verbatim(claim, passage):
        return Judgement("supported", pair, ())
    mismatches = [mismatch for rule in RULES for mismatch in rule(pair)]
    for clause in _clauses(claim):
        clause_pair = _beside(clause, passage)
        mismatches += [mismatch for rule in RULES_OF_CLAUSES for mismatch in rule(clause_pair)]
    if _is_foreign(claim, passage):
        has_names = claim.words.isdisjoint(GERMAN_WORDS)  # its nouns have capitals
        kinds = ("number", "date", "name") if has_names else ("number", "date")
        mismatches = [mismatch for mismatch in mismatches if mismatch.kind in kinds]
        is_covered = pair.coverage >= _MIN_COVERAGE
        return Judgement(_verdict(mismatches, is_covered=is_covered), pair, mismatches)
    if pair.coverage < _MIN_COVERAGE:  # the source is about something else
        mismatches = [mismatch._replace(source_span=None) for mismatch in mismatches]
    return Judgement(_verdict(mismatches, is_covered=True), pair, mismatches)


_QUOTATION_MARKS = '“”「」«»" '


def _is_verbatim(claim: Text, passage: Passage) -> bool:
    """Whether a statement is a sentence of a source, or a quotation from it."""
    words = claim.text.strip()
    if words[:1] in _QUOTATION_MARKS and words[-1:] in _QUOTATION_MARKS:
        quoted = " ".join(words.strip(_QUOTATION_MARKS).split())
        return quoted in " ".join(passage.text.split())
    return any(words == part.text.strip() for part in passage.sentences)


def _beside(claim: Text, passage: Passage) -> ClaimPair:
    number = passage.best_sentence(claim)
    best = passage.sentences[number]
    coverage = best.scope.coverage(claim.content)
    return ClaimPair(claim, passage, best, passage.around(number), coverage)


def _clauses(claim: Text) -> list[Text]:
    """The clauses of a statement; itself if it has one, or short ones."""
    ends = [match.span() for match in _CLAUSE.finditer(claim.text)]
    clauses = [
        Text(claim.text[start:end], start) for (_, start), (end, _) in pairwise([(0, 0), *ends])
    ]
    is_long = all(len(clause.content) >= _MIN_CLAUSE_WORDS for clause in clauses)
    return clauses if is_long else [claim]


def _verdict(mismatches: Sequence[Mismatch], *, is_covered: bool) -> Verdict:
    if any(mismatch.source_span for mismatch in mismatches):
        return "contradicted"
    if mismatches:
        return "not_found"
    return "supported" if is_covered else "not_checkable"


def _is_foreign(claim: Text, passage: Passage) -> bool:
    """Whether a statement is in another language than its source, or in one without rules."""
    tokens = claim.tokens
    wide = sum(is_han(token.word) for token in tokens)
    if wide:
        return wide * 2 > len(tokens) and not is_han(passage.text)
    letters = [token.word for token in tokens if token.word.isalpha()]
    if any(ord(word[0]) > 0x24F for word in letters):  # beyond Latin
        return True
    is_english = any(not token.term or token.word in ENGLISH_FUNCTION_WORDS for token in tokens)
    return len(letters) >= _MIN_WORDS_OF_LANGUAGE and not is_english


class StatementChecker:
    """Compares statements with sources, each of which is prepared once.

    Args:
        texts: The texts of the sources, in the order of their numbers.
        judge: A second opinion on statements whose words are not found; None for the rules alone.
        titles: What names each source, such as its path: names and years in it are known.

    Example:
        >>> checker = StatementChecker(["Pour green tea at 80 degrees."])
        >>> print(checker.check("Pour it at 90 degrees.", (1,)))
        Contradicted: Pour it at 90 degrees. (“90” against “80”)
    """

    def __init__(
        self, texts: Sequence[str], judge: Judge | None = None, titles: Sequence[str] = ()
    ) -> None:
        self._texts = texts
        self._titles = titles or [""] * len(texts)
        self._judge = judge
        self._passages: dict[int, Passage] = {}
        self.problems: list[str] = []

    def check(self, text: str, indices: Sequence[int], start: int = 0) -> Statement:
        """Compare a statement with the sources that it cites, or with all if it cites none.

        Args:
            text: The statement, with spaces in place of its markers.
            indices: Numbers of the cited sources.
            start: Its start in the answer.
        """
        plain = tidy(text)
        statement = Statement(plain, (start, start + len(text)), "not_checkable", tuple(indices))
        if len(text) > MAX_STATEMENT or is_opinion(plain):
            return statement
        claim = Text(_without_lead_in(text))
        if len(claim.content) < _MIN_WORDS:
            return statement
        judgements = {number: self._compare(claim, number) for number in indices}
        index = _best(judgements)
        proposed = 0
        if not index or judgements[index].verdict != "supported":
            supporting = self._supporting(claim, indices)
            proposed = _best(supporting)
            if not indices and proposed:
                index = proposed
                judgements = supporting
        if not index:
            is_fact = bool(claim.quantities) or any(True for _ in _names(claim))
            return replace(statement, verdict="not_found" if is_fact else "not_checkable")
        return self._complete(statement, judgements[index], index, proposed)

    def _compare(self, claim: Text, number: int) -> Judgement:
        if number not in self._passages:
            self._passages[number] = Passage(self._texts[number - 1], self._titles[number - 1])
        return compare(claim, self._passages[number])

    def _supporting(self, claim: Text, indices: Sequence[int]) -> dict[int, Judgement]:
        """The sources that support a statement, and are not among those it cites."""
        judgements = {}
        for number in range(1, len(self._texts) + 1):
            if number not in indices:
                judgement = self._compare(claim, number)
                if judgement.verdict == "supported":
                    judgements[number] = judgement
        return judgements

    def _ask(self, text: str, source: str) -> Verdict:
        """The second opinion. Its failure is a problem, and leaves the statement not found."""
        try:
            return self._judge(text, source) if self._judge else "not_found"
        except GenerationError as exc:
            self.problems.append(sentence(f"A statement has no second opinion: {exc}"))
            return "not_found"

    def _complete(
        self, statement: Statement, judgement: Judgement, index: int, proposed: int
    ) -> Statement:
        verdict = judgement.verdict
        passage = judgement.pair.passage.text
        best = judgement.pair.best
        findings = [
            _finding(mismatch, judgement.pair, statement.span[0])
            for mismatch in judgement.mismatches
        ]
        if (
            self._judge
            and verdict == "not_found"
            and {finding.kind for finding in findings} == {"words"}
        ):
            verdict = self._ask(statement.text, passage)
            findings = [] if verdict == "supported" else findings
        quote = "" if verdict == "not_found" else best.text.strip()
        start = best.start + best.text.index(quote)
        return replace(
            statement,
            verdict=verdict,
            index=index,
            quote=quote,
            quote_span=(start, start + len(quote)),
            findings=tuple(findings),
            proposed=proposed,
        )


def _best(judgements: dict[int, Judgement]) -> int:
    """Number of the source that decides most; 0 without any."""
    return max(judgements, key=lambda number: judgements[number].rank, default=0)


def _finding(mismatch: Mismatch, pair: ClaimPair, offset: int) -> Finding:
    start, end = mismatch.span
    source_span = mismatch.source_span or (0, 0)
    return Finding(
        mismatch.kind,
        pair.claim.text[start:end],
        (offset + start, offset + end),
        pair.passage.text[slice(*source_span)],
        source_span,
    )
