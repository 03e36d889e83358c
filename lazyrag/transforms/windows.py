"""Sentences that carry their surroundings."""

from __future__ import annotations

from collections.abc import Iterator

from lazyrag.data.node import DocNode
from lazyrag.text.sentences import sentence_spans
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.validation import known_arguments, whole_number


@known_arguments
class SentenceWindow(NodeTransform):
    """A node for each sentence, with the sentences around it in its metadata: ``{"window": "..."}``.

    A sentence is found by its own words, and answered from with what stands around it. Sentences without a word count
    with the one before them.

    Args:
        before: How many sentences before it the window has, at least 0.
        after: How many behind it, at least 0.

    Raises:
        ConfigError: If a number is out of its range.

    Example:
        >>> nodes = SentenceWindow(1, 0)(DocNode(text="Pick it. Wither it. Dry it."))
        >>> [(node.text, node.metadata["window"]) for node in nodes][1:]
        [('Wither it. ', 'Pick it. Wither it. '), ('Dry it.', 'Wither it. Dry it.')]
    """

    reads_text_only = True

    def __init__(self, before: int = 3, after: int = 3) -> None:
        self.before = whole_number("before", before, 0)
        self.after = whole_number("after", after, 0)
        if type(self) is SentenceWindow:  # a subclass may do anything, so its code has to count
            self.identity = f"SentenceWindow/1 before={self.before} after={self.after}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The sentences of the node's text, with their spans in it."""
        text = node.get_text()
        spans: list[tuple[int, int]] = []
        for start, end in sentence_spans(text):
            if spans and not any(map(str.isalnum, text[start:end])):
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        for number, (start, end) in enumerate(spans):
            if not text[start:end].isspace():
                first, last = spans[max(0, number - self.before)], spans[min(len(spans) - 1, number + self.after)]
                yield DocNode(text=text[start:end], span=(start, end), metadata={"window": text[first[0] : last[1]]})


transforms.register("SentenceWindow", SentenceWindow)
