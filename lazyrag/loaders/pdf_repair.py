"""Lines of a PDF as the text they were broken from: blanks between Chinese characters, wrapped lines, hyphens."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence

# Letters that stand side by side without blanks, and their punctuation. Korean is written with blanks.
_JOINED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
_MARKS = (
    "\u3001-\u3003\u3008-\u3011\u3014-\u301b\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f\u2018\u2019\u201c\u201d"
)
_LETTER = re.compile(f"[{_JOINED}]")
_MARK = re.compile(f"[{_MARKS}]")
_BLANKS = re.compile(f"(?<=[{_JOINED}]) +(?=[{_JOINED}{_MARKS}])|(?<=[{_MARKS}]) +(?=[{_JOINED}])")
_BROKEN = re.compile(r"(?P<word>[^\W\d_]+(?:-[^\W\d_]+)*)(?P<hyphen>[-\u2010\u00ad])$")
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"^[ivxlc]+$")
_LOOKED_AT = 3
_LEAST_PAGES = 3


@functools.lru_cache(maxsize=1 << 16)
def is_joined(character: str) -> bool:
    """Whether a character is written without blanks beside it: Chinese and Japanese ones are.

    Example:
        >>> is_joined("茶"), is_joined("ア"), is_joined("차"), is_joined("t")
        (True, True, False, False)
    """
    return _LETTER.match(character) is not None


@functools.lru_cache(maxsize=1 << 16)
def is_chinese(character: str) -> bool:
    """`is_joined`, or one of the marks that stand between such characters.

    Example:
        >>> is_chinese("。"), is_chinese("."), is_chinese("茶")
        (True, False, True)
    """
    return _LETTER.match(character) is not None or _MARK.match(character) is not None


def close_blanks(text: str) -> str:
    """A text without the blanks between Chinese or Japanese characters; all other blanks stay.

    Example:
        >>> close_blanks("持股比 例 of 5 % 은 는")
        '持股比例 of 5 % 은 는'
    """
    return _BLANKS.sub("", text)


def mostly_chinese(line: str) -> bool:
    """Whether a third of a line's characters or more are Chinese or Japanese.

    Example:
        >>> mostly_chinese("采用 Transformer 模型进行训练"), mostly_chinese("called 茶 in Chinese")
        (True, False)
    """
    told = [one for one in line if not one.isspace()]
    return 3 * sum(map(is_chinese, told)) >= len(told) > 0


def joint(first: str, second: str) -> tuple[int, str]:
    r"""What to do between two lines of one paragraph, of which the first is full.

    Args:
        first: A line that reaches to the right edge of its paragraph.
        second: The one beneath it.

    Returns:
        How many characters to take off the end of the first, and what to put between: ``"\n"`` where they stay apart.

    Example:
        >>> joint("绿茶是未经", "发酵的茶"), joint("the infor-", "mation of"), joint("green", "tea")
        ((0, ''), (1, ''), (0, '\n'))
    """
    if not first or not second:
        return 0, "\n"
    broken = _BROKEN.search(first)
    if broken and second[0].islower() and (broken["hyphen"] == "\u00ad" or broken["word"][-1].islower()):
        # Of a word with another hyphen in it, this one is most likely its own.
        return (0 if "-" in broken["word"] else 1), ""
    last, following = first[-1], second[0]
    if is_chinese(last) and is_chinese(following):
        return 0, ""
    if mostly_chinese(first) and mostly_chinese(second):
        return 0, "" if is_chinese(last) or is_chinese(following) else " "
    return 0, "\n"


def join_lines(lines: Sequence[str]) -> str:
    r"""Lines of which nothing but their text is known, wrapped ones joined where that can be told.

    Example:
        >>> join_lines(["绿茶是未经发酵的", "茶叶。", "红 茶"])
        '绿茶是未经发酵的茶叶。\n红茶'
    """
    widest = max((_units(line) for line in lines), default=0)
    text = ""
    previous = ""
    for line in map(close_blanks, lines):
        cut, between = joint(previous, line) if _units(previous) >= 0.85 * widest else (0, "\n")
        text = (text[: len(text) - cut] + between if text else "") + line
        previous = line
    return text


def _units(line: str) -> int:
    return sum(2 if is_chinese(one) else 1 for one in line)


def without_repeated_lines(pages: Sequence[str]) -> list[str]:
    r"""Texts of pages without the lines that stand at the head or foot of most of them; numbers in them may differ.

    Args:
        pages: At least three, else nothing is taken for repeated.

    Example:
        >>> without_repeated_lines([f"Tea report\nPart {word}\n- {at} -" for at, word in enumerate("abcd")])
        ['Part a', 'Part b', 'Part c', 'Part d']
    """
    split = [page.splitlines() for page in pages]
    counts: Counter[tuple[str, str]] = Counter()
    for lines in split:
        counts.update({key for _, key in _edges(lines)})
    least = max(_LEAST_PAGES, (sum(map(bool, split)) + 1) // 2)
    repeated = {key for key, count in counts.items() if count >= least}
    cleaned = []
    for lines in split:
        gone = {at for at, key in _edges(lines) if key in repeated}
        cleaned.append("\n".join(line for at, line in enumerate(lines) if at not in gone).strip())
    return cleaned


def _edges(lines: Sequence[str]) -> list[tuple[int, tuple[str, str]]]:
    """The first and last lines that are not blank: where they stand, and what they are but for their numbers."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    head, foot = filled[:_LOOKED_AT], filled[-_LOOKED_AT:]
    return [(at, ("head", _pattern(lines[at]))) for at in head] + [(at, ("foot", _pattern(lines[at]))) for at in foot]


def _pattern(line: str) -> str:
    told = " ".join(line.split()).casefold()
    return "#" if _ROMAN.match(told) else _DIGITS.sub("#", told)
