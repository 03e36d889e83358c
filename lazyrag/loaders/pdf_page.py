"""What any PDF engine gives of a page: characters with their places on the paper."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

# PDF writers map glyphs back to radicals (U+2F46 for U+65E0, U+2ED3 for U+957F) and ligatures; a reader means the
# letters. Those without a compatibility mapping are Unicode's equivalent unified ideographs.
_RADICALS: dict[int, int] = str.maketrans(
    "\u2e81\u2e84\u2e88\u2e8a\u2e8c\u2e8d\u2e92\u2e93\u2e96\u2e98\u2e99\u2e9b\u2e9c\u2e9d\u2e9e\u2e9f\u2ea0"
    "\u2ea1\u2ea3\u2ea4\u2ea5\u2ea6\u2ea7\u2ea8\u2ea9\u2eab\u2eac\u2ead\u2eaf\u2eb0\u2eb1\u2eb2\u2eb6\u2eb9"
    "\u2eba\u2ebb\u2ebc\u2ebe\u2ebf\u2ec0\u2ec1\u2ec2\u2ec3\u2ec4\u2ec5\u2ec6\u2ec8\u2ec9\u2ecb\u2ecc\u2ecd"
    "\u2ece\u2ed0\u2ed1\u2ed3\u2ed4\u2ed6\u2ed7\u2ed8\u2ed9\u2eda\u2edb\u2edc\u2edd\u2edf\u2ee0\u2ee2\u2ee3"
    "\u2ee4\u2ee5\u2ee6\u2ee7\u2ee8\u2ee9\u2eea\u2eeb\u2eec\u2eed\u2eee\u2eef\u2ef0\u2ef1\u2ef2\u2ef3",
    "厂乙刀卜小小巳幺忄扌攵旡日月歺母民氵灬爫爫丬牛犭王目示礻糹纟罓罒羊耂肀聿肉艹艹艹虎衤覀西见角讠贝车辶"
    "辶辶钅長长门阝雨青韦页风飞食飠饣马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟",
)
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF])
# A hyphen where a line ends has codes of its own in pdfium; a tab between words is a blank.
_LETTERS: dict[int, str | int | None] = {
    **_CONTROLS,
    0x02: "-",
    0xFFFE: "-",
    0x09: " ",
    0x0A: " ",
    0x0D: " ",
    0xA0: " ",
    0xF0B7: "•",
    **{
        code: letter
        for first, last in ((0x2E80, 0x2FDF), (0xF900, 0xFAFF), (0xFB00, 0xFB06))
        for code in range(first, last + 1)
        if (letter := unicodedata.normalize("NFKC", chr(code))) != chr(code)
    },
    **_RADICALS,
}


class Glyph(NamedTuple):
    """A character, or several that stand close, as they stand on the paper, in points, seen upright.

    Args:
        text: What it reads as; a blank's place says nothing.
        left: Where it begins along its line.
        right: Where it ends.
        base: The height of its line's base, upwards.
        size: Of its font.
        turn: Quarter turns to the left by which its line is turned; the numbers above are of the turned page.
    """

    text: str
    left: float
    right: float
    base: float
    size: float
    turn: int = 0


@dataclass(frozen=True, slots=True)
class PageContent:
    """What an engine found on a page.

    Args:
        glyphs: In the order in which they were drawn, blanks among them.
        drawn: Whether a picture or a line is on it, too.
        plain: Its text, where the engine knows nothing of places; None else.
    """

    glyphs: list[Glyph]
    drawn: bool
    plain: str | None = None


class PdfFile(Protocol):
    """An open PDF, as the engines give it."""

    name: str
    count: int

    def page(self, index: int) -> PageContent:
        """A page, numbered from 0."""

    def information(self) -> Mapping[str, str]:
        """What the file says of itself, by the names of the format: Title, Author, CreationDate."""

    def close(self) -> None:
        """Let go of the file."""


class OpensPdf(Protocol):
    """What opens a PDF.

    Raises:
        NeedsPasswordError: If no password opens it.
    """

    def __call__(self, path: Path, passwords: tuple[str, ...]) -> PdfFile:
        """Open a file; the empty password is among those to try."""


class NeedsPasswordError(Exception):
    """None of the passwords opens the file."""


def letters(text: str) -> str:
    r"""A text as its reader means it: letters for radicals and ligatures, no control characters, no half of a pair.

    Example:
        >>> letters("\u2f46 \ufb01\x00")
        '无 fi'
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.translate(_LETTERS)
    if any("\ud800" <= one <= "\udfff" for one in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return text


def turned(
    turn: int, box: tuple[float, float, float, float], origin: tuple[float, float]
) -> tuple[float, float, float]:
    """Left, right and base of a character, as its page is turned until it stands upright.

    Args:
        turn: Quarter turns to the left, 0 to 3.
        box: Left, bottom, right, top.
        origin: Where it begins on its base line.
    """
    left, bottom, right, top = box
    if turn == 0:
        return left, right, origin[1]
    if turn == 1:
        return bottom, top, -origin[0]
    if turn == 2:
        return -right, -left, -origin[1]
    return -top, -bottom, origin[0]


def quarter_turns(across: Any, up: Any) -> int:
    """How a direction is turned, in quarters to the left.

    Example:
        >>> quarter_turns(1, 0), quarter_turns(0, 1), quarter_turns(-1, 0.1), quarter_turns(0, -1)
        (0, 1, 2, 3)
    """
    if abs(across) >= abs(up):
        return 0 if across >= 0 else 2
    return 1 if up > 0 else 3
