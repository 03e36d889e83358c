"""What statements deny, forbid or turn into its opposite, compared with their sources."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from lazyrag.data.segment import Span
from lazyrag.generation.claim_text import MIN_COVERAGE, ClaimPair, Mismatch, Text, Word, is_han
from lazyrag.generation.claim_words import (
    ADJECTIVE_ENDINGS,
    DENIALS,
    HAN_NEGATION,
    HAN_OPPOSITES,
    MODES,
    NEGATIONS,
    OPPOSITES,
)
from lazyrag.text.analyzers import chinese_segmenter

_MAX_GAP = 30  # characters between a negation and what it denies
_HAN_NEGATION = re.compile(HAN_NEGATION)
_MIN_COVERAGE_OF_DENIALS = 0.55
_DENIAL = re.compile(
    rf"\b(?:(?:{'|'.join(sorted(NEGATIONS))})\b|{'|'.join(filter(str.isascii, DENIALS))})|n't"
    rf"|{HAN_NEGATION}|{'|'.join(word for word in DENIALS if not word.isascii())}",
    re.ASCII,  # a word may end at a Chinese letter
)
_UNTIL = re.compile(
    r"\b(?:until|unless|otherwise|lest)\b|\b(?:nobody|no one|none|no other)\b.*\bthan\b"
    r"|才|除非|以免|避免|否则",
    re.IGNORECASE,
)

_ENDINGS_OF_MODIFIERS = ("ly", "al", "ive", "ic")  # not explicitly allowed, no financial aid


def compare_negation(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find words that only the statement denies, or only the source."""
    if pair.coverage < _MIN_COVERAGE_OF_DENIALS or _UNTIL.search(pair.claim.text + pair.best.text):
        return
    claimed = _denied(pair.claim)
    denied = _denied(pair.best)
    for token in pair.claim.content:
        numbers = pair.best.positions_of(token.term)
        sources = [pair.best.content[number] for number in numbers]
        terms = {token.term}
        if token.word.endswith(_ENDINGS_OF_MODIFIERS):
            terms |= {pair.claim.following(token.end)} - {""}
        if token.term in claimed and sources and not _is_denied_around(pair, terms):
            yield Mismatch("negation", claimed[token.term], sources[0].span)
        is_denied_once = len(sources) == 1 and sources[0].term in denied and not claimed
        if is_denied_once and not _is_denied_near(pair.claim, token):
            yield Mismatch("negation", token.span, denied[sources[0].term])


def _denied(text: Text) -> dict[str, Span]:
    """The content words that a text denies, by term, each with its negation."""
    negations = []
    for token, following in pairwise([*text.tokens, Word(0, 0, "", "")]):
        is_negation = token.word in NEGATIONS or token.word.endswith("n't")
        if is_negation and following.word not in ("only", "just", "merely", "longer"):
            negations.append(token.span)
    for match in _HAN_NEGATION.finditer(text.text):
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
    return _HAN_NEGATION.search(text[max(0, place - 3) : place]) is not None


def _is_denied_around(pair: ClaimPair, terms: set[str]) -> bool:
    """Whether a sentence around the best one denies one of some words: not aided, unaided."""
    words = "|".join(map(re.escape, terms))
    for part in pair.around:
        tokens = [token for token in part.content if token.term in terms]
        if any(_is_denied_near(part, token) for token in tokens):
            return True
        if re.search(rf"\b(?:un|in|im|dis|non-?)(?:{words})", part.text):
            return True
    return False


def _is_denied_near(text: Text, token: Word) -> bool:
    """Whether a text denies a word from afar, or without a negation: it refuses, lacks, fails."""
    words = text.between(token.end - _MAX_GAP, token.end + _MAX_GAP // 2)
    return _DENIAL.search(words.lower()) is not None


_HAS_NOT = re.compile(r"(?:没有|毫无|并无)(?P<what>[\u4e00-\u9fff]{1,2})")
_HAS = re.compile(r"(?<![没未所只具拥持设含共])(?:具|拥|设)?有(?P<what>[\u4e00-\u9fff]{1,2})")


def compare_having(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find what a Chinese statement says there is and its source says there is not, or the other
    way round.
    """
    source = pair.passage.text
    for words, opposites in ((_HAS_NOT, _HAS), (_HAS, _HAS_NOT)):
        facing = {match["what"]: match.span() for match in opposites.finditer(source)}
        same = {match["what"] for match in words.finditer(source)}
        for match in words.finditer(pair.claim.text):
            if match["what"] in facing and match["what"] not in same:
                yield Mismatch("negation", pair.claim.span_of(match), facing[match["what"]])


def compare_modes(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find what a statement allows and its source forbids, or the other way round, and the like."""
    if pair.coverage < MIN_COVERAGE:
        return
    for mode in MODES:
        for words, opposites in (mode, mode[::-1]):
            claimed = re.search(words, pair.claim.text)
            facing = re.search(opposites, pair.best.text)
            is_on_both_sides = re.search(opposites, pair.claim.text) or re.search(
                words, pair.best.text
            )
            if claimed and facing and not is_on_both_sides:
                span = pair.claim.span_of(claimed)
                yield Mismatch("negation", span, pair.best.span_of(facing))


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
                yield Mismatch("opposite", token.span, source.span)
    if is_han(pair.claim.text):
        yield from _han_opposites(pair)


def _before_the_same(
    pair: ClaimPair, token: Word, side: frozenset[str], other: frozenset[str]
) -> list[str]:
    """The opposite of a word that is in the source before the word that follows it in a statement,
    if the word itself is not: "more likely", "less likely".
    """
    following = pair.claim.following(token.end)
    before = {
        part.word
        for part in pair.best.tokens
        if following and pair.best.following(part.end) == following
    }
    return [] if side & before else [*(other & before)]


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
        for part, opposite in itertools.product(pair.passage.sentences, other):
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
        for side, other in ((left, right), (right, left)):
            for word in side:
                sides.setdefault(word, []).append((side, other, are_views))
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
