"""The splitter of HTML."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.text.sentences import is_boundary, sentence_ends
from lazyrag.text.structure import BLOCKS, Tag, heading_places, html_headings, html_tags, html_text
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.markdown import Section
from lazyrag.transforms.packing import Packer, chunks, closed
from lazyrag.transforms.separators import word_ends
from lazyrag.validation import known_arguments, yes_or_no


@known_arguments
class HTMLSplitter(NodeTransform):
    r"""Splits HTML source at its headings, and longer sections into chunks of as many blocks as fit.

    A block is a paragraph, an item, a row, a table. One that does not fit is cut at the ends of sentences, then of
    words; a tag only where it alone does not fit. Each chunk says in its metadata under which headings it stands:
    ``{"heading": "Tea > Picking"}``.

    The loader of ``.html`` files gives text without tags; this is for source that came as text, such as that of
    `Document.add_texts`, or read by a loader of your own.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours of one section share, at least 0 and at most half of chunk_size.
        text_only: Give the text that a reader sees instead of the source. It is rewritten, so it has no spans.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = HTMLSplitter(chunk_size=20, text_only=True)
        >>> for node in splitter(DocNode(text="<h1>Tea</h1><p>It keeps.</p><h2>Water</h2><p>80 degrees.")):
        ...     print(node.metadata["heading"], repr(node.text))
        Tea 'Tea\nIt keeps.'
        Tea > Water 'Water\n80 degrees.'
    """

    reads_text_only = True

    def __init__(
        self,
        chunk_size: int = 1024,
        chunk_overlap: int = 0,
        *,
        text_only: bool = False,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        self.text_only = yes_or_no("text_only", text_only)
        if type(self) is HTMLSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"HTMLSplitter/1 {self._packer.told} text_only={self.text_only}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their headings, and with their spans in it unless they are rewritten."""
        text = node.get_text()
        if not self.text_only:
            for section, spans in self.split(text):
                yield from chunks(text, spans, {"heading": section.path} if section.path else {})
            return
        for section in _sections(text):
            seen = html_text(text[section.start : section.end])
            for start, end in self._packer.spans(seen, [_line_ends(seen), sentence_ends(seen)]):
                if piece := seen[start:end].strip():
                    yield DocNode(text=piece, metadata={"heading": section.path} if section.path else {})

    def split(self, text: str) -> Iterator[tuple[Section, list[Span]]]:
        """The sections of a source, each with the spans of its chunks; together they cover it without a gap."""
        for section in _sections(text):
            own = text[section.start : section.end]
            spans = self._packer.spans(own, _levels(own, has_heading=bool(section.path)))
            yield section, [(section.start + start, section.start + end) for start, end in spans]


def _sections(text: str) -> Iterator[Section]:
    places = heading_places(list(html_headings(text)), len(text))
    first = places[0].start if places else len(text)
    if first:
        yield Section(0, first, "")
    for place in places:
        yield Section(place.start, place.end, place.label)


def _levels(text: str, *, has_heading: bool) -> list[array[int]]:
    """Where blocks end, sentences, words and tags; none of them inside a tag."""
    tags = list(html_tags(text))
    least = 0
    if has_heading:  # what ends before that would be the heading alone
        least = next((_spaced(text, tag.end) for tag in tags if tag.closes and tag.name == tags[0].name), 0)
    opening = {tag.start for tag in tags if tag.name in BLOCKS and not tag.closes}
    closing = {_spaced(text, tag.end) for tag in tags if tag.name in BLOCKS and tag.closes}
    blocks = sorted(one for one in opening | closing if one > least)
    outside = _Outside(tags)
    sentences = [end for end in sentence_ends(text) if end > least and outside(end)]
    beside = {place for tag in tags for place in (tag.start, tag.end) if place > 0 and is_boundary(text, place)}
    words = sorted(beside.union(end for end in word_ends(text) if outside(end)))
    return [closed(array("q", ends), len(text)) for ends in (_whole(text, blocks), sentences, words)]


def _whole(text: str, ends: Sequence[int]) -> list[int]:
    return [end for end in ends if is_boundary(text, end)]


def _spaced(text: str, end: int) -> int:
    """Behind the white space at a place."""
    while end < len(text) and text[end].isspace():
        end += 1
    return end


def _line_ends(text: str) -> array[int]:
    ends = [at + 1 for at, character in enumerate(text) if character == "\n"]
    return closed(array("q", ends), len(text))


class _Outside:
    """Whether a place stands in no tag."""

    def __init__(self, tags: Sequence[Tag]) -> None:
        self._starts = [tag.start for tag in tags]
        self._ends = [tag.end for tag in tags]

    def __call__(self, place: int) -> bool:
        at = bisect_right(self._starts, place - 1) - 1
        return at < 0 or place >= self._ends[at]


transforms.register("HTMLSplitter", HTMLSplitter)
