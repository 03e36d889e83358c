"""What a model wrote, read as an answer: without thoughts, control characters and the prompt, and what was wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lazyrag.generation.reasoning import ReasoningSplitter, split_unopened

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_HELD_BACK = re.compile(r"[\ud800-\udbff\r]\Z")
"""What may be half of something at the end of a piece: of a character beyond U+FFFF, or of a line end."""
_SHORTEST_ECHO = 40
"""Characters that a prompt must have for an answer to repeat it: a shorter one may well begin an answer."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A candidate as it is handed out.

    Args:
        text: The answer, "" where it is blank.
        reasoning: The thoughts before it; "" where there are none.
        skipped: Characters of what the model wrote that stand before the answer.
        problems: What was wrong, one sentence each.
    """

    text: str
    reasoning: str = ""
    skipped: int = 0
    problems: tuple[str, ...] = ()


class AnswerReader:
    """Reads one candidate, whole or in pieces.

    What `feed` and `end` give is, joined, the text of the answer; only where thoughts end that never began does the
    answer turn out to be shorter, which stands among its problems.

    Args:
        prompt: The message that the model answers.

    Example:
        >>> reader = AnswerReader("How hot?")
        >>> reader.feed("<think>Tea.</think> 80 "), reader.feed("degrees [1]. "), reader.end()
        ('80', ' degrees [1].', '')
        >>> reader.answer("stop").text
        '80 degrees [1].'
    """

    def __init__(self, prompt: str) -> None:
        self._characters = _Characters()
        self._echo = _Echo(prompt)
        self._splitter = ReasoningSplitter()
        self._came = 0  # characters, of whatever kind
        self._pieces: list[str] = []  # of the answer, untrimmed
        self._shown = False  # whether something that is not blank was handed out
        self._spaces = ""  # behind it: handed out when more comes

    def feed(self, text: str) -> str:
        """What of the answer this piece brings, perhaps "": some is held back until it can be told what it is."""
        self._came += len(text)
        return self._trimmed(self._splitter.feed(self._echo.feed(self._characters.feed(text))))

    def end(self) -> str:
        """What was held back of the answer; call it once, when all has come."""
        last = self._echo.feed(self._characters.end()) + self._echo.end()
        return self._trimmed(self._splitter.feed(last) + self._splitter.end())

    def answer(self, reason: str | None, *, streamed: bool = False) -> ReadAnswer:
        """The whole, after `end`.

        Args:
            reason: Why it ended, in the model's words; None where not told.
            streamed: Whether the pieces were handed out, so that thoughts among them are a problem.
        """
        given = "".join(self._pieces)
        unopened, rest = (None, given) if self._splitter.found else split_unopened(given)
        text = rest.strip()
        problems = [*self._characters.problems(), *self._echo.problems()]
        if unopened is not None and streamed:
            problems.append("The model's thinking ended without having begun, so that it was streamed as an answer.")
        if ended := self._ending(reason, blank=not text):
            problems.append(ended)
        before = self._splitter.found or unopened is not None or self._echo.removed
        skipped = self._came - len(rest) if before else 0
        return ReadAnswer(text, unopened or self._splitter.reasoning, skipped, tuple(problems))

    def _trimmed(self, text: str) -> str:
        self._pieces.append(text)
        text = self._spaces + text
        if not self._shown:
            text = text.lstrip()
        shown = text.rstrip()
        self._spaces = text[len(shown) :]
        self._shown = self._shown or bool(shown)
        return shown

    def _ending(self, reason: str | None, *, blank: bool) -> str | None:
        """What was wrong with how it ended."""
        what = "The answer is blank" if blank else "The answer is incomplete"
        told = "" if reason is None else f" (finish_reason {reason!r:.40})"
        if self._splitter.unclosed:
            return f"{what}: the model was still thinking when it ended{told}; raise max_tokens."
        if reason == "length":
            return f"{what}: it was cut at the limit of tokens{told}; raise max_tokens."
        if reason == "content_filter":
            return f"{what}: a content filter ended it{told}."
        return f"{what}{told}." if blank else None


def read_answer(text: str, prompt: str, reason: str | None = None) -> ReadAnswer:
    """A candidate that came whole.

    Args:
        text: What the model wrote.
        prompt: The message that it answers.
        reason: Why it ended, in the model's words; None where not told.

    Example:
        >>> read_answer("80 degrees", "How hot?", "length").problems
        ("The answer is incomplete: it was cut at the limit of tokens (finish_reason 'length'); raise max_tokens.",)
    """
    reader = AnswerReader(prompt)
    reader.feed(text)
    reader.end()
    return reader.answer(reason)


class _Characters:
    """Takes control characters out, makes line ends one, and halves of characters whole or U+FFFD."""

    def __init__(self) -> None:
        self._held = ""
        self._controls = 0
        self._halves = 0

    def feed(self, text: str) -> str:
        text = self._held + text
        held = _HELD_BACK.search(text)
        self._held = held[0] if held else ""
        return self._cleaned(text[: held.start()] if held else text)

    def end(self) -> str:
        held, self._held = self._held, ""
        return self._cleaned(held)

    def problems(self) -> list[str]:
        found = []
        if self._controls:
            found.append(f"Control characters were taken out of the answer: {self._controls}.")
        if self._halves:
            found.append(f"Halves of characters (lone surrogates) in the answer became U+FFFD: {self._halves}.")
        return found

    def _cleaned(self, text: str) -> str:
        if _SURROGATE.search(text):
            before = text.count("\ufffd")
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            self._halves += text.count("\ufffd") - before
        text, controls = _CONTROLS.subn("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", ""))
        self._controls += controls
        return text


class _Echo:
    """Takes the prompt off an answer that begins with it, as of a model that completes texts."""

    def __init__(self, prompt: str) -> None:
        cleaner = _Characters()
        self._prompt = (cleaner.feed(prompt) + cleaner.end()).strip()
        self._waiting = ""
        self._decided = len(self._prompt) < _SHORTEST_ECHO
        self._alone = False
        self.removed = False

    def feed(self, text: str) -> str:
        if self._decided:
            return text
        self._waiting += text
        begun = self._waiting.lstrip()
        repeats = begun.startswith(self._prompt)
        if self._prompt.startswith(begun) or (repeats and not begun[len(self._prompt) :].strip()):
            return ""
        self._decided, self.removed = True, repeats
        return begun[len(self._prompt) :] if self.removed else self._waiting

    def end(self) -> str:
        if self._decided:
            return ""
        self._decided, self._alone = True, self._waiting.strip() == self._prompt
        return self._waiting

    def problems(self) -> list[str]:
        if self._alone:
            return ["The answer is the prompt again and nothing else."]
        if self.removed:
            return ["The answer began with the whole prompt, which was taken off."]
        return []
