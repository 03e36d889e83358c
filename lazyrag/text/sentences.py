"""Boundaries in text: sentences, clauses, words, grapheme clusters. Scripts and languages."""

from __future__ import annotations

import functools
import re
import unicodedata
from array import array
from typing import Literal, TypeAlias

Language: TypeAlias = Literal["auto", "en", "zh"]
ResolvedLanguage: TypeAlias = Literal["en", "zh"]

CJK_LETTERS = (
    "\u1100-\u11ff"  # Hangul jamo
    "\u2e80-\u2fdf"  # radicals
    "\u3005\u3007\u3021-\u3029\u3038-\u303b"  # iteration mark, zero, numerals
    "\u3041-\u3096\u309d-\u309f"  # hiragana
    "\u30a1-\u30fa\u30fc-\u30ff"  # katakana
    "\u3105-\u312f\u31a0-\u31bf"  # bopomofo
    "\u3131-\u318e"  # Hangul compatibility jamo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\U00020000-\U0003ffff"  # Han, supplementary planes
)
"""Chinese, Japanese and Korean letters, as the inside of a regular expression's character class."""


# Python compiles a class of thousands of characters in 2 to 10 ms, so that these patterns are
# compiled on first use.
@functools.cache
def han() -> re.Pattern[str]:
    """Pattern of a Chinese character, which Japanese and Korean texts may hold, too."""
    return re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


@functools.cache
def kana_or_hangul() -> re.Pattern[str]:
    """Pattern of a Japanese or Korean letter."""
    return re.compile(r"[\u3041-\u30fa\uac00-\ud7ff]")


def resolve_language(language: Language, text: str) -> ResolvedLanguage:
    """Return the given language, or with ``"auto"`` Chinese if a text has Chinese in it, else
    English.

    Example:
        >>> [resolve_language("auto", text) for text in ("绿茶怎么泡？", "お茶の入れ方")]
        ['zh', 'en']
        >>> resolve_language("zh", "tea?")
        'zh'
    """
    if language != "auto":
        return language
    return "zh" if han().search(text) and not kana_or_hangul().search(text) else "en"


_CLOSERS = "”’」』）】》〉〕\"')\\]}"


# Danda and double danda (Devanagari), Arabic question mark and full stop, Burmese, Khmer.
_OTHER_STOPS = "\u0964\u0965\u061f\u06d4\u104b\u17d4"


# A candidate for a sentence's end, with its closing quotes and white space. A full stop, and ASCII
# ! and ?, need white space, the text's end or a Chinese character behind them: 3.14 and a.txt are
# no ends. A run of them is tried from its beginning only: otherwise a long run that is no end takes
# quadratic time. All alternatives share the first character, since Python's search skips quickly to
# one of a set: four times as fast as alternatives with their own.
@functools.cache
def _candidate() -> re.Pattern[str]:
    return re.compile(
        rf"""
        [。！？；｡{_OTHER_STOPS}….!?\n]
        (?:
            (?:
                (?<= [。！？；｡{_OTHER_STOPS}] ) [。！？；｡{_OTHER_STOPS}]*
              | (?<= … ) …*
              | (?<= [.!?] ) (?<! [.!?]. ) [.!?]*
                (?= [{_CLOSERS}]* (?: \s | \Z | [{CJK_LETTERS}] ) )
            )
            [。！？；…!?]*
            [{_CLOSERS}]*
            \s*
          | (?<= \n ) [^\S\n]* \n \s*
        )
        """,
        re.VERBOSE,
    )


_ABBREVIATIONS = frozenset(
    "adm al approx apr aug ave bros ca capt cf ch co col corp dec dept dr ed eds eg esp est etc eq"
    " ex feb fig figs gen gov hon ie inc jan jr jul jun ltd lt maj mar messrs mr mrs ms mt no nos"
    " nov oct op pp prof pt rep rev sec sen sep sept sgt sr st univ vol vols vs".split()
)
# These close a sentence when a capital follows; the others (Dr. Li, Fig. A) do not.
_MAY_CLOSE = frozenset("al bros co corp dept etc inc jr ltd sr univ".split())
_WORD_BEFORE = re.compile(r"(?:[^\W\d_]\.)*[^\W_]+$")
_MAX_ABBREVIATION_LENGTH = max(map(len, _ABBREVIATIONS))
_LOOK_BACK = 24


def sentence_ends(text: str) -> array[int]:
    """Positions at which a sentence ends, the white space behind it included; ascending, the last
    one ``len(text)``.

    Chinese and English rules work side by side: 。！？； and … end a sentence at once, ``. ! ?`` before
    white space where they do not belong to an abbreviation, an initial or a numbered item; a blank
    line always does.

    Example:
        >>> list(sentence_ends("Dr. Li came. 他走了。Bye"))
        [13, 17, 20]
    """
    ends = array("q")
    for match in _candidate().finditer(text):
        start, end = match.span()
        if text[start] == "." and not _closes(text, start, end):
            continue
        # Between a space and an ASCII character, or nothing, text can always be cut.
        if (text[end - 1] == " " and text[end : end + 1].isascii()) or is_boundary(text, end):
            ends.append(end)
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    return ends


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence; together they cover the text without a gap.

    Example:
        >>> sentence_spans("好。Yes!")
        [(0, 2), (2, 6)]
    """
    ends = sentence_ends(text)
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []


def _closes(text: str, dot: int, after: int) -> bool:
    """Whether a full stop ends its sentence; the next one would begin at ``after``."""
    following = text[after : after + 1]
    if following.islower():
        return False
    if after > dot + 2 and (text.count("\n", dot, after) > 1 or text.startswith("..", dot)):
        return True
    first = dot - _LOOK_BACK if dot > _LOOK_BACK else 0
    space = text.rfind(" ", first, dot)
    word = text[space + 1 if space >= 0 else first : dot]
    if word.isascii() and word.isalpha():  # the usual case; a pattern takes five times as long
        return len(word) > _MAX_ABBREVIATION_LENGTH or _word_closes(word, following)
    match = _WORD_BEFORE.search(text, first, dot)
    if match is None:
        return True
    word = match.group().replace(".", "")
    if word.isdigit():
        # "1. First, ..." at the start of a line numbers an item; "in 1998. Then" ends a sentence.
        start = match.start()
        while start > 0 and text[start - 1] in " \t#*->":
            start -= 1
        return start > 0 and text[start - 1] != "\n"
    return _word_closes(word, following)


def _word_closes(word: str, following: str) -> bool:
    """Whether a full stop behind a word ends its sentence; initials form one word without their
    stops.
    """
    lowered = word.lower()
    if lowered in ("no", "nos"):
        return not following.isdigit()
    initial = len(lowered) == 1 and lowered != "i" and word.isupper()
    return lowered in _MAY_CLOSE or (lowered not in _ABBREVIATIONS and not initial)


@functools.cache
def _clause() -> re.Pattern[str]:
    return re.compile(
        r"[，、：,;:—\s](?:(?<=[，、"
        r"：])[”’」』）】》]*\s*|(?<=[,;:])[\"')\]]*\s+|(?<=\s)[-–—]+\s|(?<=—)—*)"
    )


@functools.cache
def _cjk() -> re.Pattern[str]:
    return re.compile(f"[{CJK_LETTERS}，、：。！？；]")


def last_break(text: str, low: int, high: int) -> int:
    """Return the best position in (low, high] to break text without a sentence end.

    The last end of a line in the second half, else the last clause there, else the last word, else
    the last character as people see it (no combining mark, joined emoji or CRLF is cut), else
    ``high``.

    Example:
        >>> text = "one two three, four five six"
        >>> text[:last_break(text, 0, 20)]
        'one two three, '
    """
    middle = low + (high - low) // 2
    line = text.rfind("\n", middle, high) + 1
    if line > low and is_boundary(text, line):
        return line
    # With a character of context, white space that goes on past the limit does not count as a
    # clause's end.
    clauses = [match.end() for match in _clause().finditer(text, middle, min(len(text), high + 1))]
    for position in reversed(clauses):
        if low < position <= high and is_boundary(text, position):
            return position
    for position in range(high, low, -1):
        if _begins_word(text, position) and is_boundary(text, position):
            return position
    return next(
        (position for position in range(high, low, -1) if is_boundary(text, position)), high
    )


def first_clause(text: str, low: int, high: int) -> int:
    """Return the first position in (low, high) at which a clause begins, or ``high``.

    Example:
        >>> text = "One, two, three."
        >>> text[first_clause(text, 1, 12):]
        'two, three.'
    """
    ends = (match.end() for match in _clause().finditer(text, low, high))
    return next((at for at in ends if at < high and is_boundary(text, at)), high)


def first_word(text: str, low: int, high: int) -> int:
    """Return the first position in [low, high) at which a word begins, or ``high``.

    Example:
        >>> first_word("watering cans", 2, 13)
        9
    """
    words = (at for at in range(low, high) if _begins_word(text, at) and is_boundary(text, at))
    return next(words, high)


def _begins_word(text: str, position: int) -> bool:
    """Whether a word begins here: behind white space, or beside a Chinese character."""
    if position in {0, len(text)}:
        return True
    before = text[position - 1]
    after = text[position]
    if before.isspace() or after.isspace():
        return not after.isspace()
    return not (before.isascii() and after.isascii()) and bool(
        _cjk().match(before) or _cjk().match(after)
    )


# Characters that extend the one before them and are no combining marks: joiners, the half-width
# voiced sound marks, the vowels sara am (Thai) and am (Lao), skin tones, tags.
_TRAILING = frozenset("\u200c\u200d\uff9e\uff9f\u0e33\u0eb3").union(
    map(chr, range(0x1F3FB, 0x1F400)), map(chr, range(0xE0020, 0xE0080))
)
_MAX_FLAG_RUN = 256


def is_boundary(text: str, position: int) -> bool:
    """Whether text may be cut here without splitting a character as people see it.

    False inside CRLF, before combining marks, variation selectors, skin tones and tags, around
    zero-width joiners, inside a flag's pair of letters and inside a decomposed Hangul syllable.
    (The rules of Unicode's extended grapheme clusters, UAX 29, but for scripts of India, whose
    conjuncts may be cut.)

    Example:
        >>> is_boundary("e\u0301", 1), is_boundary("ab", 1)
        (False, True)
    """
    if position <= 0 or position >= len(text):
        return True
    before = text[position - 1]
    after = text[position]
    if after.isascii():
        return not (before == "\r" and after == "\n") and before != "\u200d"
    if after in _TRAILING or before == "\u200d" or unicodedata.category(after)[0] == "M":
        return False
    if "\u1160" <= after <= "\u11ff":
        return not ("\u1100" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3")
    if _is_flag_letter(after) and _is_flag_letter(before):
        run = 0
        while run < min(position, _MAX_FLAG_RUN) and _is_flag_letter(text[position - 1 - run]):
            run += 1
        return run % 2 == 0
    return True


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
