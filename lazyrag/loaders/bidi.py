"""Arabic and Hebrew lines: from the order on paper to the order in which they are written and read.

The inverse of the Unicode bidirectional algorithm (UAX #9), by the classes of `unicodedata`. A line
on paper may belong to several texts: "GB 100" between Arabic words is written "GB 100" or "100 GB".
The first is chosen.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby

_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_STRONG = {"L": "L", "R": "R", "AL": "A"}
_WEAK = frozenset(["EN", "AN", "ES", "ET", "CS"])
_NUMBERS = frozenset(["EN", "AN"])
_BRACKETS = {"(": ")", "[": "]", "{": "}", "«": "»", "‹": "›"}
_PAIRS = {
    **{pair[0]: pair for pair in _BRACKETS.items()},
    **{pair[1]: pair for pair in _BRACKETS.items()},
}
"""The pair of each bracket."""
_CLOSING = frozenset(".,;:!?،؛؟…" + "".join(_BRACKETS.values()))


def has_right_to_left(text: str) -> bool:
    """Whether a text has Arabic or Hebrew letters.

    Example:
        >>> has_right_to_left("tea"), has_right_to_left("شاي")
        (False, True)
    """
    return not text.isascii() and _RIGHT_TO_LEFT.search(text) is not None


def right_to_left_share(text: str) -> float:
    """The share of Arabic and Hebrew letters among all letters; 0.0 without letters.

    Example:
        >>> right_to_left_share("شاي 12"), right_to_left_share("tea")
        (1.0, 0.0)
    """
    letters = sum(letter.isalpha() for letter in text)
    return (
        sum(letter.isalpha() for letter in _RIGHT_TO_LEFT.findall(text)) / letters
        if letters
        else 0.0
    )


def logical_order(texts: Sequence[str], *, right_to_left: bool) -> list[int]:
    """The order in which the characters of a line are read.

    Args:
        texts: Characters from left to right; letters of one glyph and marks are with their
            character.
        right_to_left: The direction of the paragraph.

    Returns:
        Their indices.

    Example:
        >>> line = "abc 12 אבג"
        >>> "".join(line[at] for at in logical_order(line, right_to_left=True)) == "גבא abc 12"
        True
    """
    kinds = [_kind(text) for text in texts]
    _resolve_numbers(kinds, right_to_left=right_to_left)
    levels = _levels(kinds, right_to_left=right_to_left)
    _align_brackets(levels, kinds, texts, right_to_left=right_to_left)
    order = list(range(len(texts)))
    for least in (1, 2):
        position = 0
        for is_turned, run in groupby([levels[at] >= least for at in order]):
            end = position + sum(1 for _ in run)
            if is_turned:
                order[position:end] = order[position:end][::-1]
            position = end
    return order


def _kind(text: str) -> str:
    """The class of a character: L, R, A (Arabic letter), EN, AN, ES, ET, CS, or N for neutral."""
    classes = [unicodedata.bidirectional(character) for character in text]
    for name in classes:
        if name in _STRONG:
            return _STRONG[name]
    return classes[0] if classes and classes[0] in _WEAK else "N"


def _resolve_numbers(kinds: list[str], *, right_to_left: bool) -> None:
    """Rules W2 to W7: numbers are part of a Latin run (L), or stand in Arabic (AN) or other text
    (EN).
    """
    before = _nearest(kinds)
    after = _nearest(kinds[::-1])[::-1]
    numbers = set()
    for at, kind in enumerate(kinds):
        if kind not in _NUMBERS:
            continue
        numbers.add(at)
        around = {before[at], after[at]}
        if "L" in around or ("" in around and not right_to_left):
            kinds[at] = "L"
        elif after[at] == "A":
            kinds[at] = "AN"
    _join_separators(kinds, numbers)
    _join_terminators(kinds, numbers, range(1, len(kinds)))
    _join_terminators(kinds, numbers, range(len(kinds) - 2, -1, -1))


def _join_separators(kinds: list[str], numbers: set[int]) -> None:
    """Rule W4: a separator between two numbers of one kind is part of them."""
    for at in range(1, len(kinds) - 1):
        kind = kinds[at - 1]
        if kind != kinds[at + 1] or not {at - 1, at + 1} <= numbers:
            continue
        if kinds[at] == "CS" or (kinds[at] == "ES" and kind != "AN"):
            kinds[at] = kind
            numbers.add(at)


def _join_terminators(kinds: list[str], numbers: set[int], positions: range) -> None:
    """Rule W5: a sign such as % beside a number is part of it."""
    for at in positions:
        neighbour = at - positions.step
        if kinds[at] == "ET" and neighbour in numbers and kinds[neighbour] != "AN":
            kinds[at] = kinds[neighbour]
            numbers.add(at)


def _nearest(kinds: Iterable[str]) -> list[str]:
    """For each character the nearest strong one before it; "" without one."""
    nearest = []
    last = ""
    for kind in kinds:
        nearest.append(last)
        last = kind if kind in "LRA" else last
    return nearest


def _levels(kinds: Sequence[str], *, right_to_left: bool) -> list[int]:
    """Embedding levels; neutral characters take the direction on both sides, or that of the
    paragraph (N1, N2).
    """
    base = int(right_to_left)
    by_kind = {"L": 2 * base, "R": 1, "A": 1, "EN": 2, "AN": 2}
    levels = [by_kind.get(kind, -1) for kind in kinds]
    start = 0
    for is_neutral, run in groupby(levels, key=lambda level: level < 0):
        end = start + sum(1 for _ in run)
        if is_neutral:
            left = kinds[start - 1] != "L" if start else right_to_left
            right = kinds[end] != "L" if end < len(kinds) else right_to_left
            level = base
            if left == right:
                level = 1 if left else by_kind["L"]
            levels[start:end] = [level] * (end - start)
        start = end
    return levels


def _align_brackets(
    levels: list[int], kinds: Sequence[str], texts: Sequence[str], *, right_to_left: bool
) -> None:
    """Rule N0: both brackets of a pair have one direction."""
    before = _nearest(kinds) if right_to_left else _nearest(kinds[::-1])[::-1]
    foreign = ("L",) if right_to_left else ("R", "A")
    opened: dict[tuple[str, str], int] = {}
    for at, text in enumerate(texts):
        pair = _PAIRS.get(text)
        if pair is None:
            continue
        first = opened.pop(pair, None)
        if first is None:
            opened[pair] = at
        elif levels[first] != levels[at]:
            level = int(right_to_left)
            context = before[first if right_to_left else at]
            if context in foreign:
                level += 1
            levels[first] = level
            levels[at] = level


def mirrored(texts: Sequence[str]) -> list[str]:
    """The brackets of a line in reading order; engines disagree on whether those in Arabic text are
    mirrored.

    A bracket after a blank opens, one before a blank closes; else they alternate.

    Example:
        >>> "".join(mirrored("אב )ג( ד"))
        'אב (ג) ד'
    """
    ordered = list(texts)
    depth = dict.fromkeys(_BRACKETS.items(), 0)
    for at, text in enumerate(texts):
        pair = _PAIRS.get(text)
        if pair is None:
            continue
        free_before = at == 0 or ordered[at - 1].isspace() or ordered[at - 1] in _BRACKETS
        free_after = at + 1 == len(texts) or texts[at + 1].isspace() or texts[at + 1] in _CLOSING
        closes = depth[pair] > 0 if free_before == free_after else free_after
        depth[pair] = max(0, depth[pair] + (-1 if closes else 1))
        ordered[at] = pair[closes]
    return ordered
