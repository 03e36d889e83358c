"""The splitter of Markdown."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.text.sentences import is_boundary, sentence_ends
from lazyrag.text.structure import Block, heading_places, markdown_blocks, markdown_headings
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.packing import Packer, chunks, closed
from lazyrag.validation import known_arguments


class Section(NamedTuple):
    """What stands under one heading.

    Args:
        start: Where its heading begins.
        end: Where the next one begins.
        path: Its heading and those above it: ``"Tea > Picking"``; "" before the first one.
    """

    start: int
    end: int
    path: str


@known_arguments
class MarkdownSplitter(NodeTransform):
    r"""Splits Markdown at its headings, and longer sections into chunks of as many blocks as fit.

    A block is what stands between empty lines, a table or a fenced piece of code. One that does not fit is taken apart:
    code and tables at the ends of lines, prose at those of sentences. A heading stays with what follows it. Each chunk
    says in its metadata under which headings it stands: ``{"heading": "Tea > Picking"}``.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours of one section share, at least 0 and at most half of chunk_size.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = MarkdownSplitter(chunk_size=20)
        >>> for node in splitter(DocNode(text="# Tea\n\nIt keeps.\n\n## Water\n\n80 degrees.\n")):
        ...     print(node.metadata["heading"], repr(node.text))
        Tea '# Tea\n\nIt keeps.\n\n'
        Tea > Water '## Water\n\n80 degrees.\n'
    """

    reads_text_only = True

    def __init__(self, chunk_size: int = 1024, chunk_overlap: int = 0, *, counter: TokenCounter | str = "utf8") -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is MarkdownSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"MarkdownSplitter/1 {self._packer.told}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it and their headings."""
        text = node.get_text()
        for section, spans in self.split(text):
            yield from chunks(text, spans, {"heading": section.path} if section.path else {})

    def split(self, text: str) -> Iterator[tuple[Section, list[Span]]]:
        """The sections of a text, each with the spans of its chunks; together they cover the text without a gap."""
        for section in sections(text):
            own = text[section.start : section.end]
            spans = self._packer.spans(own, _levels(own, has_heading=bool(section.path)))
            yield section, [(section.start + start, section.start + end) for start, end in spans]


def sections(text: str) -> Iterator[Section]:
    r"""What stands before the first heading, if anything, and under each of them.

    Example:
        >>> [section.path for section in sections("Before\n\n# Tea\n## Water\n")]
        ['', 'Tea', 'Tea > Water']
    """
    places = heading_places(list(markdown_headings(text)), len(text))
    first = places[0].start if places else len(text)
    if first:
        yield Section(0, first, "")
    for place in places:
        yield Section(place.start, place.end, place.label)


def _levels(text: str, *, has_heading: bool) -> list[array[int]]:
    """Where a section's blocks end, and where sentences and lines of code and tables do."""
    blocks = list(markdown_blocks(text))
    # What comes before that would be the heading alone.
    least = _heading_end(text) if has_heading else 0
    ends = array("q", (block.end for block in blocks if block.end > least))
    fine = array("q")
    for block in blocks:
        fine.extend(end for end in _ends_within(text, block) if end > least)
    return [closed(ends, len(text)), closed(fine, len(text))]


def _ends_within(text: str, block: Block) -> Iterator[int]:
    own = text[block.start : block.end]
    if not block.is_verbatim:
        yield from (block.start + end for end in sentence_ends(own) if is_boundary(text, block.start + end))
        return
    position = block.start
    for line in own.splitlines(keepends=True):
        position += len(line)
        if is_boundary(text, position):
            yield position


def _heading_end(text: str) -> int:
    """Where a section's heading ends, which it begins with: ``# Tea``, or a line with another one drawn beneath it."""
    first, *others = text.splitlines(keepends=True)
    end = len(first)
    if not first.lstrip().startswith("#") and others:
        end += len(others[0])
    return end + len(text[end:]) - len(text[end:].lstrip())


transforms.register("MarkdownSplitter", MarkdownSplitter)
