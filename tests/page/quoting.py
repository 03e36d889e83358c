"""A chat model for services in tests: their configuration names `tests.page.quoting:chat`."""

from __future__ import annotations

import asyncio
import re

from lazyrag.text.sentences import sentence_spans

SOURCE = re.compile(
    r"^\[(?:Source |资料)(\d+)\][^\n]*\n(.*?)(?=^\[(?:Source |资料)\d+\]|^Question: |^问题：|\Z)",
    re.MULTILINE | re.DOTALL,
)
SLOW, SLOW_S = "zzz", 0.1


class Quoting:
    """A chat model that quotes a sentence of every source, in small pieces with a pause behind
    each, or has a text.
    """

    pause_s = 0.0
    text = ""

    async def __call__(self, prompt):
        """Write the answer; a question with the word `SLOW` takes its time."""
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        pause_s = SLOW_S if SLOW in text else self.pause_s
        if self.text:
            yield self.text
            return
        for number, source in SOURCE.findall(text):
            sentences = [source[start:end].strip() for start, end in sentence_spans(source)]
            sentence = re.sub(r"^[\d.\s#|*-]+", "", max(sentences, key=len))
            for piece in re.findall(r"\s*\S{1,12}", f"{sentence} [{number}]\n\n"):
                await asyncio.sleep(pause_s)
                yield piece
            yield "\n\n"


chat = Quoting()
