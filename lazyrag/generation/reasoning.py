"""The thoughts that reasoning models write before their answers, taken off while the text is still coming."""

from __future__ import annotations

import re

from lazyrag.generation.marker_scanner import scan
from lazyrag.models.answers import THOUGHTS

_ANY_TAG = "|".join(THOUGHTS)
_BEGINNING = re.compile(rf"\s*<({_ANY_TAG})>", re.IGNORECASE)
_OPENED = re.compile(rf"<(?:{_ANY_TAG})>", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_ANY_TAG})>", re.IGNORECASE)
_LONGEST_CLOSING = max(map(len, THOUGHTS)) + len("</>")


class ReasoningSplitter:
    """Splits a text that comes in pieces into the thoughts before the answer, and the answer.

    Thoughts are what stands between ``<think>`` and ``</think>`` (or ``thinking``, ``thought``, ``reasoning``) before
    anything else; several such blocks may follow each other. Tags further on are part of the answer.

    Example:
        >>> splitter = ReasoningSplitter()
        >>> [splitter.feed(piece) for piece in ("<th", "ink>Tea, so ...</thi", "nk>80 ", "degrees")], splitter.reasoning
        (['', '', '80 ', 'degrees'], 'Tea, so ...')
    """

    def __init__(self) -> None:
        self._waiting = ""  # what cannot be told to be thought or answer yet
        self._thoughts: list[str] = []
        self._closing: re.Pattern[str] | None = None  # what ends the block that has begun
        self._answering = False

    @property
    def reasoning(self) -> str:
        """The thoughts so far; "" where there are none."""
        return "".join(self._thoughts).strip()

    @property
    def found(self) -> bool:
        """Whether there is a block of thoughts, be it an empty one."""
        return bool(self._thoughts) or self.unclosed

    @property
    def unclosed(self) -> bool:
        """Whether a block of thoughts has begun and not ended."""
        return self._closing is not None

    def feed(self, text: str) -> str:
        """What of the answer this piece brings."""
        if self._answering:
            return text
        self._waiting += text
        while not self._answering and self._step():
            pass
        if not self._answering:
            return ""
        text, self._waiting = self._waiting, ""
        return text

    def end(self) -> str:
        """What was held back and turned out to be of the answer; call it once, at the end."""
        rest, self._waiting = self._waiting, ""
        if self._closing is None:
            return rest
        self._thoughts.append(rest)
        return ""

    def _step(self) -> bool:
        """Read one tag; False where more has to come first."""
        if self._closing is not None:
            end = self._closing.search(self._waiting)
            if end is None:
                # Only what may be the beginning of the end tag is looked at again.
                self._keep_thought(max(0, len(self._waiting) - _LONGEST_CLOSING))
                return False
            self._keep_thought(end.start())
            self._thoughts.append("\n")
            self._waiting = self._waiting[end.end() - end.start() :]
            self._closing = None
            return True
        if begun := _BEGINNING.match(self._waiting):
            self._closing = re.compile(f"</{begun[1]}>", re.IGNORECASE)
            self._waiting = self._waiting[begun.end() :]
            return True
        begun_so_far = self._waiting.lstrip().lower()
        self._answering = not any(f"<{tag}>".startswith(begun_so_far) for tag in THOUGHTS)
        return False

    def _keep_thought(self, end: int) -> None:
        self._thoughts.append(self._waiting[:end])
        self._waiting = self._waiting[end:]


def split_unopened(text: str) -> tuple[str | None, str]:
    """Thoughts and answer of a text whose thoughts end but do not begin: some templates leave that to the prompt.

    Returns:
        The thoughts, None where nothing ends or something begins; and the rest. A tag in code, or in the middle of a
        line behind a space or a quotation mark, is one that the answer speaks of.

    Example:
        >>> split_unopened("Tea, so ...</think>80 degrees")
        ('Tea, so ...', '80 degrees')
    """
    if _OPENED.search(text) or not _CLOSED.search(text):
        return None, text
    code = scan(text).code
    ends = [tag for tag in _CLOSED.finditer(text) if _ends(tag) and not any(a <= tag.start() < b for a, b in code)]
    return (text[: ends[-1].start()].strip(), text[ends[-1].end() :]) if ends else (None, text)


def _ends(tag: re.Match[str]) -> bool:
    """Whether a tag ends something, and is not spoken of: it ends its line, or stands right behind what came before."""
    rest = tag.string[tag.end() :].lstrip(" \t")
    before = tag.string[tag.start() - 1 : tag.start()]
    return not rest or rest[0] in "\r\n" or before not in (" ", "\t", '"', "'", "“", "「", "‘", "(", "（")
