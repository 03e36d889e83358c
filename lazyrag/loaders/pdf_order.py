"""Arabic and Hebrew in the order in which they are read; engines give them as they are drawn, or half way between."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

Piece: TypeAlias = tuple[str, float, float]
"""A character, and where it begins and ends along its line."""

_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def has_right_to_left(text: str) -> bool:
    """Whether a text holds Arabic or Hebrew letters.

    Example:
        >>> has_right_to_left("tea"), has_right_to_left("شاي")
        (False, True)
    """
    return not text.isascii() and _RIGHT_TO_LEFT.search(text) is not None


def reads_right_to_left(text: str) -> bool:
    """Whether most letters of a text are Arabic or Hebrew.

    Example:
        >>> reads_right_to_left("شاي 12"), reads_right_to_left("tea (شاي)")
        (True, False)
    """
    return 2 * len(_RIGHT_TO_LEFT.findall(text)) > sum(one.isalpha() for one in text)


def logical_text(pieces: Sequence[Piece], word_gap: float) -> str:
    """Characters of a line as a text in the order of reading.

    Args:
        pieces: In any order; marks follow their letters.
        word_gap: From which width on a gap is a blank.

    Example:
        >>> drawn = [("ي", 0, 3), ("ا", 3, 6), ("ش", 6, 9), ("1", 14, 16), ("2", 16, 18)]
        >>> logical_text(drawn, 2) == "12 شاي"
        True
    """
    # A glyph that reads as a word has one place for all of its letters.
    seen = sorted(_with_marks(pieces), key=lambda piece: (piece[1], not has_right_to_left(piece[0])))
    whole = reads_right_to_left("".join(text for text, _, _ in seen))
    units: list[tuple[bool, str]] = []
    end = seen[0][1]
    for text, left, right in seen:
        if left - end >= word_gap:
            units.append((whole, " "))
        units.append((_direction(text, otherwise=whole), text))
        end = max(end, right)
    runs = [
        (turned, "".join(text for _, text in (reversed(list(run)) if turned else run)))
        for turned, run in groupby(units, key=lambda unit: unit[0])
    ]
    return "".join(text for _, text in (reversed(runs) if whole else runs))


def _with_marks(pieces: Sequence[Piece]) -> list[Piece]:
    """Letters, and with each the marks that were drawn over it."""
    letters: list[Piece] = []
    for text, left, right in pieces:
        if letters and unicodedata.combining(text[0]):
            letters[-1] = (letters[-1][0] + text, *letters[-1][1:])
        else:
            letters.append((text, left, right))
    return letters


def _direction(text: str, *, otherwise: bool) -> bool:
    """Whether a character is read from right to left; marks and blanks are read as the line is."""
    if any(one.isalpha() and not _RIGHT_TO_LEFT.match(one) for one in text):
        return False
    return has_right_to_left(text) or (otherwise and not text[0].isalnum())
