"""Splitters: text into pieces of a bounded number of tokens, each with its place."""

from __future__ import annotations

from collections.abc import Iterator

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.text.sentences import sentence_ends
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.packing import Packer, chunks
from lazyrag.validation import known_arguments


@known_arguments
class SentenceSplitter(NodeTransform):
    """Splits text into chunks of whole sentences, as many as fit.

    The chunks' spans cover the text without a gap; white space stays with the sentence before it. A sentence that
    does not fit is cut at the end of a line, a clause or a word, in this order, and never inside a character as people
    see it unless that alone does not fit. A chunk begins with the end of the one before it: with its last sentences
    if they fit into the overlap, else with its last words; it gives the overlap up where that lets a sentence, or a
    character, stay whole.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = SentenceSplitter(chunk_size=6, chunk_overlap=0)
        >>> text = "他走了。她也走了。"
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['他走了。', '她也走了。']
    """

    reads_text_only = True

    def __init__(
        self, chunk_size: int = 1024, chunk_overlap: int | None = None, *, counter: TokenCounter | str = "utf8"
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is SentenceSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"SentenceSplitter/1 {self._packer.told}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.packing.Packer.spans`."""
        return self._packer.spans(text, [sentence_ends(text)])


transforms.register("SentenceSplitter", SentenceSplitter)
