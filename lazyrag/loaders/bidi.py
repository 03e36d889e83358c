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
_NUMBERS = frozenset(["EN", "AN"])
_BRACKETS = {"(": ")", "[": "]", "{": "}", "«": "»", "‹": "›"}
_KINDS = {one: pair for pair in _BRACKETS.items() for one in pair}
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
    letters = sum(one.isalpha() for one in text)
    return sum(one.isalpha() for one in _RIGHT_TO_LEFT.findall(text)) / letters if letters else 0.0


def logical_order(texts: Sequence[str], *, right_to_left: bool) -> list[int]:
    """The order in which the characters of a line are read.

    Args:
        texts: Characters from left to right; letters of one glyph and marks are with their
            character.
        right_to_left: The direction of the paragraph.

    Returns:
        Their indices.

    Example:
        >>> "".join("abc 12 אבג"[at] for at in logical_order("abc 12 אבג", right_to_left=True)) == "גבא abc 12"
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
    classes = [unicodedata.bidirectional(one) for one in text]
    strong = next((_STRONG[one] for one in classes if one in _STRONG), None)
    return strong or (
        classes[0] if classes and classes[0] in ("EN", "AN", "ES", "ET", "CS") else "N"
    )


def _resolve_numbers(kinds: list[str], *, right_to_left: bool) -> None:
    """Rules W2 to W7: numbers are part of a Latin run (L), or stand in Arabic (AN) or other text
    (EN).
    """
    before = _nearest(kinds)
    after = _nearest(kinds[::-1])[::-1]
    numbers: set[int] = set()
    for at, kind in enumerate(kinds):
        if kind in _NUMBERS:
            numbers.add(at)
            around = {before[at], after[at]}
            inside = "L" not in around and (right_to_left or "" not in around)
            kinds[at] = ("AN" if after[at] == "A" or kind == "AN" else "EN") if inside else "L"
    for at in range(1, len(kinds) - 1):
        one = kinds[at - 1]
        between = at - 1 in numbers and at + 1 in numbers and one == kinds[at + 1]
        if between and (kinds[at] == "CS" or (kinds[at] == "ES" and one != "AN")):
            kinds[at] = one
            numbers.add(at)
    for steps in (range(1, len(kinds)), range(len(kinds) - 2, -1, -1)):
        for at in steps:
            other = at - steps.step
            if kinds[at] == "ET" and other in numbers and kinds[other] != "AN":
                kinds[at] = kinds[other]
                numbers.add(at)


def _nearest(kinds: Iterable[str]) -> list[str]:
    """For each character the nearest strong one before it; "" without one."""
    found = []
    last = ""
    for kind in kinds:
        found.append(last)
        last = kind if kind in "LRA" else last
    return found


def _levels(kinds: Sequence[str], *, right_to_left: bool) -> list[int]:
    """Embedding levels; neutral characters take the direction on both sides, or that of the
    paragraph (N1, N2).
    """
    base = int(right_to_left)
    own = {"L": 2 * base, "R": 1, "A": 1, "EN": 2, "AN": 2}
    levels = [own.get(kind, -1) for kind in kinds]
    start = 0
    for is_neutral, run in groupby(levels, key=lambda level: level < 0):
        end = start + sum(1 for _ in run)
        if is_neutral:
            sides = [
                kinds[at] != "L" if 0 <= at < len(kinds) else right_to_left
                for at in (start - 1, end)
            ]
            levels[start:end] = [base if sides[0] != sides[1] else 1 if sides[0] else own["L"]] * (
                end - start
            )
        start = end
    return levels


def _align_brackets(
    levels: list[int], kinds: Sequence[str], texts: Sequence[str], *, right_to_left: bool
) -> None:
    """Rule N0: both brackets of a pair have one direction."""
    before = _nearest(kinds) if right_to_left else _nearest(kinds[::-1])[::-1]
    opened: dict[tuple[str, str], int] = {}
    for at, text in enumerate(texts):
        pair = _KINDS.get(text)
        if pair is None:
            continue
        first = opened.pop(pair, None)
        if first is None:
            opened[pair] = at
        elif levels[first] != levels[at]:
            context = before[first if right_to_left else at]
            foreign = context == "L" if right_to_left else context in ("R", "A")
            levels[first] = levels[at] = (
                (2 if right_to_left else 1) if foreign else int(right_to_left)
            )


def mirrored(texts: Sequence[str]) -> list[str]:
    """The brackets of a line in reading order; engines disagree on whether those in Arabic text are
    mirrored.

    A bracket after a blank opens, one before a blank closes; else they alternate.

    Example:
        >>> "".join(mirrored("אב )ג( ד"))
        'אב (ג) ד'
    """
    found = list(texts)
    depth = dict.fromkeys(_BRACKETS.items(), 0)
    for at, text in enumerate(texts):
        pair = _KINDS.get(text)
        if pair is None:
            continue
        free_before = at == 0 or found[at - 1].isspace() or found[at - 1] in _BRACKETS
        free_after = at + 1 == len(texts) or texts[at + 1].isspace() or texts[at + 1] in _CLOSING
        closes = depth[pair] > 0 if free_before == free_after else free_after
        depth[pair] = max(0, depth[pair] + (-1 if closes else 1))
        found[at] = pair[closes]
    return found
