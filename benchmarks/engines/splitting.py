"""Splitters that measure chunks by a function of the user."""

from __future__ import annotations

import importlib.metadata
import re
import time
from typing import Any

WORDS = re.compile(r"\w+|[^\w\s]")
CHUNK, OVERLAP = 256, 25


def pieces(text: str) -> list[str]:
    """The user's tokens: words and signs."""
    return WORDS.findall(text)


class Splitting:
    """One splitter."""

    package = ""
    split: Any

    def versions(self) -> dict[str, str]:
        """Of its package."""
        return {self.package: importlib.metadata.version(self.package)}

    def measure(self, texts: list[str]) -> dict[str, Any]:
        """Split all; processor seconds, the number of chunks and the tokens of the largest."""
        started = time.process_time()
        chunks = [chunk for text in texts for chunk in self.split(text)]
        took = time.process_time() - started
        return {
            "cpu_s": took,
            "chunks": len(chunks),
            "largest": max(len(pieces(chunk)) for chunk in chunks),
        }


class Words:
    """The same as a `lazyrag.text.tokens.TokenCounter`."""

    name = "words and signs"

    def count(self, text: str) -> int:
        """How many."""
        return len(pieces(text))


class Lazyrag(Splitting):
    """Our `SentenceSplitter`, with a counter of the user."""

    package = "lazyrag"

    def __init__(self) -> None:
        from lazyrag import SentenceSplitter

        splitter = SentenceSplitter(CHUNK, OVERLAP, counter=Words())
        self.split = lambda text: [text[start:end] for start, end in splitter.split(text)]


class LlamaIndex(Splitting):
    """Theirs, with a function that gives the tokens."""

    package = "llama-index-core"

    def __init__(self) -> None:
        from llama_index.core.node_parser import SentenceSplitter

        self.split = SentenceSplitter(
            chunk_size=CHUNK, chunk_overlap=OVERLAP, tokenizer=pieces
        ).split_text
