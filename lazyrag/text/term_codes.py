"""The terms of many texts as numbers: what an index is made of, without a text for each occurrence
of a term.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from lazyrag.text.analyzers import (
    analysers,
    ascii_words,
    chinese_segmenter,
    chinese_terms,
    composed_form,
    english_terms,
    is_plainly_english,
    longer_terms,
    normal_words,
    pair_terms,
    part_words,
    term_function,
    text_language,
    with_joined_numbers,
    word_terms,
)
from lazyrag.text.scripts import Language
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.text.stop_words import QUESTION_WORDS, STOP_MARK
from lazyrag.types import BoolArray, Int32Array, Int64Array

_SHIFT = 21  # bits of a character
_STRINGS = 1 << 2 * _SHIFT  # the code of the first term that is no character and no pair
_AT_ONCE = 1 << 17  # characters; bounds the memory of their words
_MOST_NUMBERS = 1 << 18
_PAIR = "pair"  # instead of a language: the word is a term
# Small letters for capitals, spaces for what belongs to no word: a third of the time of a pattern.
_LETTERS = (
    bytes(code if chr(code).isalnum() or chr(code) == "'" else ord(" ") for code in range(128))
    .lower()
    .ljust(256)
)
# jieba's Chinese letters
_FIRST_HAN = 0x4E00
_LAST_HAN = 0x9FD5


class _Numbers(dict["str | bytes | tuple[str, Language]", int]):
    """Number of a word's term, -1 without one; a term that is new gets the next number.

    A word in bytes may have apostrophes around it, and several words may come as one. A word of a
    text in another language than English comes with the language. A word of several terms has a
    number below -1, see `numbers_of`.

    Args:
        terms_of: The terms of a word.
        terms: The terms by number.
    """

    def __init__(self, terms_of: Callable[..., list[str]], terms: dict[str, int]) -> None:
        super().__init__()
        self._terms_of = terms_of
        self._terms = terms
        self._several: list[tuple[int, ...]] = []

    def __missing__(self, word: str | bytes | tuple[str, Language]) -> int:
        if isinstance(word, tuple):
            terms = self._terms_of(*word)
        elif isinstance(word, str):
            terms = self._terms_of(word)
        elif word.isalnum():
            terms = self._terms_of(word.decode())
        else:
            terms = []
            for part in ascii_words(word.decode()):
                terms += self._terms_of(part)
        number = -1
        if len(terms) == 1:
            number = self._terms.setdefault(terms[0], len(self._terms))
        elif terms:
            self._several.append(
                tuple(self._terms.setdefault(term, len(self._terms)) for term in terms)
            )
            number = -1 - len(self._several)
        self[word] = number
        return number

    def numbers_of(self, several: int) -> tuple[int, ...]:
        """The numbers of a word of several terms."""
        return self._several[-2 - several]

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._several.clear()


class _Longer(dict[str, tuple[int, ...]]):
    """Numbers of the terms of a Chinese word of three characters and more."""

    def __init__(self, terms: dict[str, int]) -> None:
        super().__init__()
        self._terms = terms

    def __missing__(self, word: str) -> tuple[int, ...]:
        terms = longer_terms([word], chinese_segmenter())
        numbers = self[word] = tuple(
            self._terms.setdefault(term, len(self._terms)) for term in terms
        )
        return numbers


class TermCodes:
    """Gives terms numbers. Those of one object go together; it is made for documents that are
    indexed together.

    The terms are those of the analyser. A Chinese, Japanese or Korean character, and a pair of
    them, has a number that follows from it, so that a text of them is taken apart in whole arrays.

    Args:
        analyser: Name of the analyser.

    Raises:
        NotRegisteredError: If no analyser has the name.

    Example:
        >>> codes = TermCodes("zh")
        >>> numbers, rows = codes.encode(["绿茶 teas", "tea"])
        >>> list(zip(rows.tolist(), codes.terms(numbers)))
        [(0, 'tea'), (1, 'tea'), (0, '绿'), (0, '茶'), (0, '绿茶')]
    """

    def __init__(self, analyser: str) -> None:
        self.analyser = analyser
        self._terms_of = term_function(analyser, stop_words=True)
        terms = analysers[analyser].terms
        self._is_built_in = terms in (english_terms, chinese_terms)
        self._strings: dict[str, int] = {}
        self._numbers = _Numbers(
            _terms_or_stop_word if self._is_built_in else lambda term: [term], self._strings
        )
        self._longer = _Longer(self._strings)
        self._is_chinese = terms is chinese_terms

    def shrink(self) -> None:
        """Forget numbers that were given before, if they are many: those that are in use become
        invalid.
        """
        if len(self._numbers) + len(self._strings) > _MOST_NUMBERS:
            for table in (self._numbers, self._longer, self._strings):
                table.clear()

    def encode(self, texts: Sequence[str]) -> tuple[Int64Array, Int32Array]:
        """The numbers of the terms of some texts, in no particular order, and to which of the texts
        each belongs.

        Args:
            texts: Any number.

        Raises:
            TransformError: If the analyser raises, or returns anything but a list of texts.
        """
        every: list[str | bytes | tuple[str, Language]] = []
        sizes = []
        wide = []
        for at, text in enumerate(texts):
            words: list[Any]
            if not self._is_built_in:
                words = self._terms_of(text)
            elif text.isascii():
                words = _ascii_words(text)
            else:
                composed = composed_form(text)
                normal = composed.casefold()
                words = _in_language(normal_words(normal), text, composed)
                wide.append((at, normal))
            every += words
            sizes.append(len(words))
        flat = np.fromiter(map(self._numbers.__getitem__, every), np.int64, len(every))
        rows = np.arange(len(texts), dtype=np.int32).repeat(np.array(sizes, np.intp))
        at_several = (flat < -1).nonzero()[0]
        if at_several.size:
            several = [self._numbers.numbers_of(code) for code in flat[at_several].tolist()]
            flat = np.append(flat, np.fromiter(chain.from_iterable(several), np.int64))
            rows = np.append(rows, rows[at_several].repeat([*map(len, several)]))
        is_single = flat >= 0
        encoded = [(flat[is_single] + _STRINGS, rows[is_single])]
        if not wide:
            return encoded[0]
        for some in _slices(wide):
            encoded += self._encode_wide(*some)
        codes, code_rows = zip(*encoded, strict=True)
        return np.concatenate(codes), np.concatenate(code_rows)

    def _encode_wide(self, text: str, rows: Int32Array) -> Iterator[tuple[Int64Array, Int32Array]]:
        """The numbers and rows of what is written in Chinese, Japanese and Korean letters."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
        is_letter = _is_cjk().take(codes)
        if not is_letter.any():
            return
        if self._is_chinese:
            is_han = (codes >= _FIRST_HAN) & (codes <= _LAST_HAN)
            lines = np.where(is_han, codes, ord("\n")).astype("<u4").tobytes().decode("utf-32-le")
            words = chinese_segmenter().cut(lines)
            lengths = np.fromiter(map(len, words), np.int64, len(words))
            ends = np.cumsum(lengths)
            asking = np.fromiter(
                map(QUESTION_WORDS.__contains__, words), np.bool_, len(words)
            ).nonzero()[0]
            for end, length in zip(ends[asking].tolist(), lengths[asking].tolist(), strict=True):
                is_letter[end - length : end] = False
            marked = [
                self._strings.setdefault(STOP_MARK + words[at], len(self._strings))
                for at in asking.tolist()
            ]
            yield np.array(marked, np.int64) + _STRINGS, rows[ends[asking] - 1]
            is_long = lengths > 2
            is_long[asking] = False
            at_long = is_long.nonzero()[0]
            terms = [self._longer[words[at]] for at in at_long.tolist()]
            of_words = np.fromiter(chain.from_iterable(terms), np.int64)
            counts = np.fromiter(map(len, terms), np.int64, len(terms))
            yield of_words + _STRINGS, rows[ends[at_long] - 1].repeat(counts)
        yield codes[is_letter], rows[is_letter]
        first = (is_letter[:-1] & is_letter[1:]).nonzero()[0]
        yield codes[first] << _SHIFT | codes[first + 1], rows[first]

    def terms(self, codes: Int64Array) -> list[str]:
        """The terms with some numbers."""
        is_string = codes >= _STRINGS
        is_one = codes < 1 << _SHIFT
        strings = list(self._strings)
        pairs = codes[~is_string & ~is_one]
        ones = codes[is_one].astype("<u4").tobytes().decode("utf-32-le")
        characters = np.stack([pairs >> _SHIFT, pairs & (1 << _SHIFT) - 1], 1)
        both = characters.astype("<u4").tobytes().decode("utf-32-le")
        sources = {
            0: iter(ones),
            1: map(operator.add, both[::2], both[1::2]),
            2: map(strings.__getitem__, (codes[is_string] - _STRINGS).tolist()),
        }
        kinds = np.where(is_string, 2, np.where(is_one, 0, 1)).tolist()
        return [next(sources[kind]) for kind in kinds]


def _ascii_words(text: str) -> list[Any]:
    """The words of an ASCII text as keys of `_Numbers`."""
    if not is_plainly_english(text):
        return _in_language(ascii_words(text), text, text)
    words = with_joined_numbers(text).encode().translate(_LETTERS).split()
    return [*words, *part_words(text)]


def _in_language(words: list[str], text: str, composed: str) -> list[Any]:
    """The words of a text, and the parts of its names, as keys of `_Numbers`."""
    language = text_language(text, words)
    every = [*words, *part_words(composed)]
    if language == "en":
        return every
    pairs = pair_terms(words, language)
    return [*((word, language) for word in every), *((pair, _PAIR) for pair in pairs)]


def _terms_or_stop_word(word: str, language: Language = "en") -> list[str]:
    if language == _PAIR:
        return [word]
    return word_terms(word, language) or [STOP_MARK + word]


def _slices(texts: Sequence[tuple[int, str]]) -> Iterator[tuple[str, Int32Array]]:
    """Numbered texts, joined with an end of line behind each up to a size; with the number at each
    character.
    """
    some = []
    size = 0
    for at, text in enumerate(texts, start=1):
        some.append(text)
        size += len(text[1])
        if size >= _AT_ONCE or at == len(texts):
            rows = np.array([row for row, _ in some], np.int32)
            lines = [f"{line}\n" for _, line in some]
            yield "".join(lines), rows.repeat([*map(len, lines)])
            some = []
            size = 0


@functools.cache
def _is_cjk() -> BoolArray:
    """(0x110000,) whether a character is one of `CJK_LETTERS`."""
    table = np.zeros(0x110000, np.bool_)
    for first, last in re.findall("(.)(?:-(.))?", CJK_LETTERS):
        table[ord(first) : ord(last or first) + 1] = True
    return table
