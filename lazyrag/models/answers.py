"""Chat models' answers without the thoughts that stand before them."""

from __future__ import annotations

import re

LONGEST_ANSWER = 100_000
"""Characters of an answer that are read; a longer one is a model that does not stop."""
THOUGHTS = ("think", "thinking", "thought", "reasoning")
"""The tags between which models write what they think."""
_THINKING = re.compile(rf"\s*<({'|'.join(THOUGHTS)})>", re.IGNORECASE)
_THOUGHT = re.compile(rf"</(?:{'|'.join(THOUGHTS)})>", re.IGNORECASE)


class UnreadableAnswerError(ValueError):
    """An answer that holds nothing of what was asked for; the message tells the model why."""


def visible(answer: str) -> str:
    """An answer without the thoughts that reasoning models write before it.

    Raises:
        UnreadableAnswerError: If nothing is left, or it is no text that could be kept.

    Example:
        >>> visible("<think>Tea, so...</think> Tea keeps.")
        'Tea keeps.'
    """
    if len(answer) > LONGEST_ANSWER:
        msg = f"the answer has {len(answer)} characters, and {LONGEST_ANSWER} are the most"
        raise UnreadableAnswerError(msg)
    try:
        answer.encode()
    except UnicodeEncodeError:
        msg = "the answer holds half a character (a lone surrogate)"
        raise UnreadableAnswerError(msg) from None
    text = answer.removeprefix("\ufeff").replace("\r\n", "\n")
    begun, thoughts = _THINKING.match(text), list(_THOUGHT.finditer(text))
    first_thought = re.search(rf"<(?:{'|'.join(THOUGHTS)})>", text, re.IGNORECASE)
    if begun and not thoughts:
        msg = "the answer ends before the model's thinking does"
        raise UnreadableAnswerError(msg)
    if thoughts and (begun or first_thought is None):  # some templates leave the opening tag in the prompt
        text = text[thoughts[-1].end() :]
    text = text.replace("\x00", "").strip()
    if not text:
        msg = "the answer is empty"
        raise UnreadableAnswerError(msg)
    return text
