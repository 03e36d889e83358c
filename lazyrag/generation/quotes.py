"""Quotations in an answer, and whether they stand in a text: compared without case, white space and punctuation."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from lazyrag.text.sentences import CJK_LETTERS

_LONGEST = 1000
# Each body leaves out its own opening mark, so that marks which nothing closes cost no more than the text's length.
# Straight marks stand at the edge of a word, or are inches; a single mark within a word is an apostrophe.
_QUOTATION = re.compile(
    rf"“([^“”\n]{{1,{_LONGEST}}})”|「([^「」\n]{{1,{_LONGEST}}})」|『([^『』\n]{{1,{_LONGEST}}})』"
    rf"|«([^«»\n]{{1,{_LONGEST}}})»|(?<![A-Za-z0-9])\"([^\"\n]{{1,{_LONGEST}}})\"(?![A-Za-z0-9])"
    rf"|(?<!\w)‘([^‘\n]{{1,{_LONGEST}}}?)’(?!\w)"
)
_ELISION = re.compile(r"\[\s*(?:\.{3,}|…+)\s*\]|\(\s*(?:\.{3,}|…+)\s*\)|（\s*…+\s*）|\.{3,}|…+|。{3,}")
_CJK = re.compile(f"[{CJK_LETTERS}]")
_WORD = re.compile(r"\w+")
_FEWEST_WORDS = 3
_FEWEST_CJK = 4
_DASHES = frozenset("‐‑‒–—−")


@dataclass(frozen=True, slots=True)
class QuoteCheck:
    """What became of one quotation in an answer.

    Args:
        quote: Its words, without the marks.
        indices: The numbers of the sources that its sentence cites.
        found: The number of the source it stands in: one of ``indices`` if it can be; None if it stands in none.
        span: Its start and end in that source's text; None if it stands in none.

    Example:
        >>> QuoteCheck("water of 80 degrees", (1,), 2, (10, 29)).ok
        False
    """

    quote: str
    indices: tuple[int, ...]
    found: int | None
    span: tuple[int, int] | None

    @property
    def ok(self) -> bool:
        """Whether it stands in a source that its sentence cites."""
        return self.found in self.indices

    @property
    def problem(self) -> str:
        """What is wrong, as a sentence; "" if it stands where its sentence says."""
        if self.ok:
            return ""
        shown = self.quote if len(self.quote) <= 60 else self.quote[:60] + "..."
        cited = " and ".join(f"[{index}]" for index in self.indices)
        where = f"it stands in [{self.found}]" if self.found is not None else "it stands in none of the sources"
        return f"The words {shown!r} are quoted from {cited}, but {where}."


def quotations(text: str) -> list[tuple[int, int]]:
    """Start and end, without the marks, of each quotation that is long enough to be one.

    Marks are “ ”, ‘ ’, straight double ones, 「 」, 『 』 and « »; 《 》 marks a title. A quotation stands in one line
    and has at least three words or four Chinese characters: shorter ones name a thing, or keep a distance from it.

    Example:
        >>> text = '"Pour it at 80 degrees", says the "expert".'
        >>> [text[start:end] for start, end in quotations(text)]
        ['Pour it at 80 degrees']
    """
    found = []
    for match in _QUOTATION.finditer(text):
        start, end = match.span(match.lastindex or 0)
        cjk = len(_CJK.findall(text, start, end))
        words = len(_WORD.findall(text, start, end))
        if cjk >= _FEWEST_CJK or words >= _FEWEST_WORDS:
            found.append((start, end))
    return found


class QuotedText:
    """A text in which quotations are looked up; it is read once, however many they are.

    Letters are compared after NFKC and case folding. White space and punctuation only part words, and between Chinese
    characters not even that; they count within numbers: 1.5 is not 15, and -5 is not 5.

    Args:
        text: The text of a source.

    Example:
        >>> QuotedText("Use water of about 80 degrees.").span("WATER of ... 80 degrees")
        (4, 29)
    """

    def __init__(self, text: str) -> None:
        self._plain, self._places = _plain(text)

    def span(self, quote: str) -> tuple[int, int] | None:
        """Start and end of a quotation in the text; None if it does not stand there.

        Args:
            quote: Its words; behind dots, ``...`` or ``……``, words may have been left out: its parts stand in order.
        """
        start, at = -1, 0
        for part in _ELISION.split(quote):
            words, _ = _plain(part)
            if not words:
                continue
            at = self._find(words, at)
            if at < 0:
                return None
            start = at if start < 0 else start
            at += len(words)
        if start < 0:
            return None
        return self._places[start], self._places[at - 1] + 1

    def _find(self, words: str, at: int) -> int:
        """The first place at or behind another one at which words stand, whole ones; -1 if there is none."""
        at = self._plain.find(words, at)
        while at >= 0:
            end = at + len(words)
            if not _one_word(self._plain[at - 1 : at], words[0]) and not _one_word(
                words[-1], self._plain[end : end + 1]
            ):
                return at
            at = self._plain.find(words, at + 1)
        return -1


def plain(text: str) -> str:
    """What of a text is compared.

    Example:
        >>> plain("The Tea-Grower's Handbook.pdf") == plain("the tea-grower's handbook pdf")
        True
    """
    return _plain(text)[0]


def _plain(text: str) -> tuple[str, list[int]]:
    """What of a text is compared, and the place of each of its characters in the text."""
    plain: list[str] = []
    places: list[int] = []
    parted = False
    for place, character in enumerate(text):
        for one in unicodedata.normalize("NFKC", character).casefold():
            if not one.isalnum() and unicodedata.category(one)[0] in "PZCM" and one != "%":
                kept = _of_number(text, place, one)
                if not kept:
                    parted = parted or unicodedata.category(one)[0] in "PZC"
                    continue
                one = kept  # noqa: PLW2901  all dashes are one
            if parted and plain and _one_word(plain[-1], one):
                plain.append(" ")
                places.append(place)
            parted = False
            plain.append(one)
            places.append(place)
    return "".join(plain), places


def _of_number(text: str, place: int, character: str) -> str:
    """A dot, comma, colon, slash or dash within a number, or the minus before one; "" for other punctuation."""
    before, behind = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    if not behind.isdigit():
        return ""
    if character in _DASHES or character == "-":
        return "-" if before.isdigit() or not before.isalnum() else ""
    return character if before.isdigit() and character in ".,:/" else ""


def _one_word(character: str, following: str) -> bool:
    """Whether two neighbours would be read as one word: letters or digits that are not Chinese."""
    return character.isalnum() and following.isalnum() and not _CJK.match(character) and not _CJK.match(following)
