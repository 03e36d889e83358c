"""Texts prepared for comparison: words with their places, sentences, and what they cover; a
statement beside a source.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lazyrag.data.segment import Span
from lazyrag.generation.claim_words import (
    ENGLISH_FUNCTION_WORDS,
    HAN_FUNCTION_WORDS,
    IRREGULAR_VERBS,
    NAME_FORMS,
)
from lazyrag.generation.quantities import Quantity, blanks, narrow, quantities
from lazyrag.text.analyzers import chinese_segmenter, tagged_words, word_terms, words
from lazyrag.text.sentences import CJK_LETTERS, sentence_spans


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text.

    Args:
        start: Its start in the text.
        end: Its end.
        word: Its letters, case folded, without accents.
        term: What is compared: the stem of an English word; "" for a function word.
    """

    start: int
    end: int
    word: str
    term: str

    @property
    def span(self) -> Span:
        """Its start and end."""
        return self.start, self.end


@functools.cache
def _runs() -> re.Pattern[str]:
    letter = rf"[^\W_{CJK_LETTERS}]"
    return re.compile(rf"(?P<cjk>[{CJK_LETTERS}]+)|{letter}+(?:[.,](?=\d)\d+|['’_.-]{letter}+)*")


def fold(text: str) -> str:
    """Letters as they are compared: case folded, without accents.

    Example:
        >>> fold("Beyoncé")
        'beyonce'
    """
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


_NO_LESS = re.compile(r"\bno (?:more|less|fewer|later|earlier) than\b", re.IGNORECASE)


def tokens_of(text: str, offset: int = 0) -> list[Word]:
    """The words of a text, in order, their places after an offset."""
    tokens = []
    for run in _runs().finditer(_NO_LESS.sub(blanks, narrow(text))):
        start = offset + run.start()
        if not run["cjk"]:
            word = fold(run.group().replace("’", "'"))
            tokens.append(Word(start, offset + run.end(), word, _english_term(word)))
            continue
        for word in words(run.group()):
            term = "" if word in HAN_FUNCTION_WORDS else word
            tokens.append(Word(start, start + len(word), word, term))
            start += len(word)
    return tokens


def _english_term(word: str) -> str:
    if word in ENGLISH_FUNCTION_WORDS:
        return ""
    word = word.removesuffix("'s")
    return next(iter(word_terms(IRREGULAR_VERBS.get(word, word))), "")


_NAME_STEM = 4
_PREFIX = 5  # letters of a stem that mean as much as the word: demolish, demolition


def _beginning(term: str) -> str:
    return term[:_PREFIX] if term.isascii() else term


_US = re.compile(r"\bUS\b")


@functools.cache
def _spaces_in_han() -> re.Pattern[str]:
    return re.compile(rf"(?<=[{CJK_LETTERS}])\s+|\s+(?=[{CJK_LETTERS}])")


@functools.cache
def _name_forms() -> list[tuple[re.Pattern[str], str]]:
    """A pattern of the names of the same thing, and all of them."""
    forms = []
    for line in NAME_FORMS.strip().splitlines():
        names = [name for name in line.split(", ") if name != "us"]  # a pronoun
        pattern = "|".join(map(re.escape, names))
        forms.append((re.compile(rf"\b(?:{pattern})\b"), line.replace(",", "")))
    return forms


@functools.cache
def _any_name() -> re.Pattern[str]:
    return re.compile("|".join(pattern.pattern for pattern, _ in _name_forms()))


class Scope:
    """The words of a part of a source, to find those of a statement in.

    Args:
        text: The text. Other names of what it names are added: United States for U.S.
        tokens: Its tokens.
    """

    def __init__(self, text: str, tokens: Sequence[Word]) -> None:
        folded = fold(narrow(_US.sub("U.S", text)))
        others = []
        if _any_name().search(folded):
            others = [names for pattern, names in _name_forms() if pattern.search(folded)]
        self.text = "\n".join([_spaces_in_han().sub("", folded), *others])
        self.terms = {token.term for token in tokens if token.term}
        self.terms |= {_english_term(word) for names in others for word in names.split()}
        self.initials = "".join(token.word[0] for token in tokens)
        self._beginnings = {_beginning(term) for term in self.terms}

    def match(self, token: Word) -> float:
        """How much of a word is in the text, from 0 to 1."""
        term = token.term
        if term in self.terms:
            return 1.0
        if term.isascii() or not is_han(term):
            return 0.9 if len(term) >= _PREFIX and _beginning(term) in self._beginnings else 0.0
        if token.word in self.text:
            return 1.0
        if len(term) == 1:
            return 0.0
        pairs = [first + second for first, second in pairwise(term)]
        share = sum(pair in self.text for pair in pairs) / len(pairs)
        return share or 0.6 * sum(character in self.text for character in term) / len(term)

    def match_name(self, word: str) -> float:
        """`match` of a name, also of one that is made of another: English, England."""
        stem = re.sub("(?:ish|ese|ian|an|s)$", "", word)
        is_made = len(stem) >= _NAME_STEM and re.search(rf"\b{re.escape(stem)}", self.text)
        if is_made:
            return 1.0
        return self.match(Word(0, 0, word, _english_term(word)))

    def coverage(self, tokens: Iterable[Word]) -> float:
        """The share of a statement's content words in the text, from 0 to 1."""
        total = 0.0
        covered = 0.0
        for token in tokens:
            if token.term:
                weight = len(token.term) if is_han(token.term) else 2.0
                total += weight
                covered += weight * self.match(token)
        return covered / total if total else 1.0


@functools.lru_cache(maxsize=4096)
def is_han(term: str) -> bool:
    """Whether a word is written in Chinese characters."""
    return not term.isascii() and re.search(r"[\u3400-\u9fff\uf900-\ufaff]", term) is not None


_CLAUSE_GAP = 3
_DATE_GAP = 3  # characters between the parts of a date
_CLAUSE_END = re.compile(r"[;；,，、()（）](?!\d)|\b(?:and|while|but)\b|[和与而但]")


_MIN_SHARE = 0.5
_MIN_SHARE_OF_NAME = 0.6
_MAX_SHORT_NAME = 4


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun or name of a Chinese text.

    Args:
        start: Its start in the text.
        word: Its characters.
        tag: jieba's tag.
        behind: The tag of the next word.
    """

    start: int
    word: str
    tag: str
    behind: str

    @property
    def end(self) -> int:
        """Its end in the text."""
        return self.start + len(self.word)

    @property
    def is_name(self) -> bool:
        """Whether it names a person, a place or an organisation."""
        return self.tag in _NAME_TAGS

    @property
    def is_word(self) -> bool:
        """Whether the dictionary has it."""
        return chinese_segmenter().is_word(self.word)

    def is_in(self, text: str) -> bool:
        """Whether a text has it, half of its pairs of characters, or its long form: 二战 is
        第二次世界大战.
        """
        word = fold(narrow(self.word))
        if len(word) == 1:
            return word in text
        endings = _LOCATIVES
        if self.is_name and len(word) > 2:
            endings = endings | _NAME_ENDINGS
        if word[-1] in endings and word[:-1] in text:
            return True
        pairs = [first + second for first, second in pairwise(word)]
        least = _MIN_SHARE_OF_NAME if self.is_name else _MIN_SHARE
        if sum(pair in text for pair in pairs) >= least * len(pairs):
            return True
        if not self.is_word:  # two words, maybe
            return all(character in text for character in word)
        short = ".{0,4}".join(map(re.escape, word[:_MAX_SHORT_NAME]))
        return len(word) <= _MAX_SHORT_NAME and re.search(short, text) is not None

    def is_cut_wrongly(self, claim: str, text: str) -> bool:
        """Whether it begins with a conjunction before a name of the text: 和田 in 东渠和田心水道."""
        return self.word[0] in _CONJUNCTIONS and claim[self.start + 1 : self.end + 1] in text

    def is_strange(self, claim: str, text: str) -> bool:
        """Whether it is a name, a rare noun or an answer that a text lacks. Many short words have a
        name's tag, such as 许可 and 钱财.
        """
        shared = sum(letter in text for letter in self.word)
        if claim[: self.start].endswith("是") and 2 * shared < len(self.word):
            return True
        is_absent = 3 * shared < len(self.word)
        if is_absent and chinese_segmenter().frequency(self.word) < _LEAST_FREQUENCY:
            return True
        is_doubtful = self.tag in _DOUBTFUL_TAGS and self.is_word and len(self.word) == 2
        return self.is_name and not (is_doubtful and shared)

    def is_replaced(self, claim: str, text: str) -> bool:
        """Whether a text has the characters before it and behind it, and not it."""
        behind = claim[self.end : self.end + 2]
        is_last = not behind[:1].isalnum()
        length = 3 if is_last else 2
        before = claim[max(0, self.start - length) : self.start]
        is_followed = self.behind[:1] in "nucf" if self.behind else is_last
        is_noun = self.is_name or (is_followed and before[-1:] not in _ADVERBS)
        return is_noun and len(before) == length and before in text and (is_last or behind in text)


def han_nouns(text: str) -> list[Noun]:
    """Nouns of a Chinese text of two characters or more, names and titles among them."""
    titles = re.finditer("《(.+?)》", text)
    nouns = [Noun(match.start(1), match[1], "nt", "") for match in titles]
    for run in re.finditer(r"[\u4e00-\u9fa5·•]+", text):
        start = run.start()
        words_and_tags = [*_joined_names(tagged_words(run.group())), ("", "")]
        for (word, tag), (_, behind) in pairwise(words_and_tags):
            if len(word) > 1 and tag.startswith(_NOUN_TAGS):
                nouns.append(Noun(start, word, tag, behind))
            start += len(word)
    return nouns


def _joined_names(words_and_tags: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Words with their tags; the parts of a person's name are one: 周, 怀安."""
    joined: list[tuple[str, str]] = []
    for word, tag in words_and_tags:
        before, tag_before = joined[-1] if joined else ("", "")
        is_name = tag in _PERSON_TAGS and tag_before in _PERSON_TAGS
        if is_name and len(before + word) <= _MAX_SHORT_NAME:
            joined[-1] = (before + word, "nr")
        else:
            joined.append((word, tag))
    return joined


_LEAST_FREQUENCY = 100
_PERSON_TAGS = frozenset("nr nrt nrfg".split())
_NAME_TAGS = frozenset("nr ns nt nz nrt nrfg".split())
_DOUBTFUL_TAGS = frozenset("nr nz nrt".split())
_NOUN_TAGS = "n", "j"
_LOCATIVES = frozenset("里上中下内外")
_NAME_ENDINGS = frozenset("队人市省县区国语族军")
_CONJUNCTIONS = frozenset("和与及同")
_ADVERBS = frozenset("经也都就不来会将应被可并再又曾正而能要地得已")


MIN_CLAUSE_WORDS = 3
CLAUSE = re.compile(
    r",? (?:which|who|where|whose|and (?:was|is|were|are|has|have|had|can|later|then))\b"
    r"|, (?:and|but|so|because|although|though|while|whereas|since|it|they)\b"
    r"|; |，|；|、(?=还|并)|$"
)


class Text:
    """A text with its words and numbers.

    Args:
        text: The text.
        start: Added to all places: where it begins in a longer text.
    """

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.start = start
        self.tokens = tokens_of(text, start)
        self.content = [token for token in self.tokens if token.term]
        self.words = {token.word for token in self.tokens}

    def between(self, start: int, end: int) -> str:
        """The letters between two places."""
        return self.text[max(0, start - self.start) : max(0, end - self.start)]

    def is_number(self, place: int) -> bool:
        """Whether a place is in one of its numbers."""
        return any(number.start <= place < number.end for number in self.quantities)

    def span_of(self, match: re.Match[str]) -> Span:
        """Where a match in its letters is."""
        return self.start + match.start(), self.start + match.end()

    @functools.cached_property
    def quantities(self) -> list[Quantity]:
        """Its numbers."""
        return quantities(self.text, self.start)

    @functools.cached_property
    def dates(self) -> list[tuple[Quantity, Quantity]]:
        """Its months, each with the day or the year beside it, also with the year behind the
        day.
        """
        numbers = self.quantities
        dates = []
        for first, second in pairwise(numbers):
            month, other = (first, second) if first.dimension == "month" else (second, first)
            is_date = month.dimension == "month" and (other.is_year or other.number <= 31)
            if is_date and self._are_near(first, second):
                dates.append((month, other))
        for month, day, year in zip(numbers, numbers[1:], numbers[2:], strict=False):
            is_date = month.dimension == "month" and day.number <= 31 and year.is_year
            if is_date and self._are_near(month, day) and self._are_near(day, year):
                dates.append((month, year))
        return dates

    @functools.cached_property
    def clauses(self) -> list[Text]:
        """Its clauses; itself if it has one, or short ones."""
        ends = [match.span() for match in CLAUSE.finditer(self.text)]
        clauses = [
            Text(self.text[start:end], start) for (_, start), (end, _) in pairwise([(0, 0), *ends])
        ]
        is_long = all(len(clause.content) >= MIN_CLAUSE_WORDS for clause in clauses)
        return clauses if is_long else [self]

    def _are_near(self, first: Quantity, second: Quantity) -> bool:
        between = self.between(first.end, second.start)
        return len(between) <= _DATE_GAP and "，" not in between

    @functools.cached_property
    def days(self) -> set[int]:
        """The starts of its numbers that are days of a month."""
        return {day.start for _, day in self.dates if not day.is_year}

    @functools.cached_property
    def scope(self) -> Scope:
        """Its words, to find others in."""
        return Scope(self.text, self.tokens)

    @functools.cached_property
    def positions(self) -> dict[str, list[int]]:
        """Numbers of its content words by their terms, and by the beginnings of these."""
        positions: dict[str, list[int]] = {}
        for number, token in enumerate(self.content):
            for term in {token.term, _beginning(token.term)}:
                positions.setdefault(term, []).append(number)
        return positions

    def positions_of(self, term: str) -> list[int]:
        """Numbers of the content words that are a term, or begin as it does."""
        return self.positions.get(term) or self.positions.get(_beginning(term)) or []

    @functools.cached_property
    def columns(self) -> list[int]:
        """A place for each content word: words of other clauses are farther away."""
        columns = []
        column = 0
        end = self.start
        for token in self.content:
            column += 1 + _CLAUSE_GAP * bool(_CLAUSE_END.search(self.between(end, token.start)))
            columns.append(column)
            end = token.end
        return columns

    def number_at(self, place: int) -> int:
        """Number of the content word at a place."""
        return bisect_right(self.content, place, key=lambda token: token.end)

    def following(self, place: int) -> str:
        """The term of the first content word behind a place; "" without one."""
        return next((token.term for token in self.content[self.number_at(place) :]), "")


_PIECE = re.compile(r"[^•▪●]*[^\s•▪●][^•▪●]*")
"""Between the bullets of a list in one line."""


class Passage:
    """A source, prepared once for any number of statements.

    Args:
        text: Its text.
        title: What names it: its path, its title and its heading.
    """

    def __init__(self, text: str, title: str = "") -> None:
        self.text = text
        self.title = fold(narrow(title))
        spans = [
            (start + piece.start(), start + piece.end())
            for start, end in sentence_spans(text)
            for piece in _PIECE.finditer(text[start:end])
        ]
        spans = spans or [(0, 0)]
        self.sentences = [Text(text[start:end], start) for start, end in spans]
        self.scope = Scope(text, [token for part in self.sentences for token in part.tokens])

    @functools.cached_property
    def statements(self) -> set[str]:
        """Its sentences, and its lines, such as table rows."""
        texts = self.text.splitlines() + [part.text for part in self.sentences]
        return {text.strip("| \r\n") for text in texts}

    @functools.cached_property
    def numbers(self) -> list[tuple[Quantity, Text]]:
        """Its numbers, each with its sentence."""
        return [(number, part) for part in self.sentences for number in part.quantities]

    def best_sentence(self, claim: Text) -> int:
        """Number of the sentence that has most of a statement's words; the first of equals."""
        scores = [part.scope.coverage(claim.content) for part in self.sentences]
        return scores.index(max(scores))

    def around(self, number: int) -> list[Text]:
        """A sentence and its neighbours."""
        return self.sentences[max(0, number - 1) : number + 2]


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

    @property
    def numbers(self) -> list[Quantity]:
        """The numbers of the best sentence and its neighbours."""
        return [number for part in self.around for number in part.quantities]


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


MIN_COVERAGE = 0.4
"""Share of a statement's words below which a source is about something else."""
