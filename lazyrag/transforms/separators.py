"""Splitters that need no language: by given separators, by a number of tokens."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.errors import ConfigError
from lazyrag.text.sentences import CJK_LETTERS, is_boundary, sentence_ends
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.packing import Packer, chunks
from lazyrag.validation import known_arguments

_WORD = re.compile(rf"(?:[{CJK_LETTERS}]|[^\s{CJK_LETTERS}]+)\s*|\s+")


@known_arguments
class CharacterSplitter(NodeTransform):
    r"""Splits text at one separator into chunks of whole pieces, as many as fit.

    The separator stays at the end of its piece, so that the chunks' spans cover the text without a gap. A piece that
    does not fit is cut at the end of a line, a clause or a word, in this order.

    Args:
        separator: What stands between pieces, not empty; a run of white space counts as one.
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If the separator is no text, a size is out of its range or the counter is none.

    Example:
        >>> splitter = CharacterSplitter("\n", chunk_size=5, chunk_overlap=0)
        >>> text = "green tea\nblack tea\noolong"
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['green tea\n', 'black tea\n', 'oolong']
    """

    reads_text_only = True

    def __init__(
        self,
        separator: str = "\n\n",
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        [self.separator] = _checked_separators("separator", [separator])
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is CharacterSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"CharacterSplitter/1 {self._packer.told} separator={separator!r}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.packing.Packer.spans`."""
        return self._packer.spans(text, [_ends_behind(text, self.separator)])


@known_arguments
class RecursiveSplitter(NodeTransform):
    r"""Splits text at the coarsest of several separators whose pieces fit, into chunks of as many pieces as fit.

    What does not fit whole is taken apart by the next separator, at last by sentences, clauses and words. Separators
    stay at the ends of pieces, so that the chunks' spans cover the text without a gap.

    Args:
        separators: From coarse to fine, none empty; several in a row, if they are white space, count as one.
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If separators are no texts, a size is out of its range or the counter is none.

    Example:
        >>> splitter = RecursiveSplitter(chunk_size=9, chunk_overlap=0)
        >>> text = "Green tea.\n\nBlack tea is oxidised. It keeps."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['Green tea.\n\n', 'Black tea is oxidised. ', 'It keeps.']
    """

    reads_text_only = True

    def __init__(
        self,
        separators: Sequence[str] = ("\n\n", "\n"),
        chunk_size: int = 1024,
        chunk_overlap: int | None = None,
        *,
        counter: TokenCounter | str = "utf8",
    ) -> None:
        self.separators = _checked_separators("separators", separators)
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is RecursiveSplitter:
            self.identity = f"RecursiveSplitter/1 {self._packer.told} separators={self.separators!r}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.packing.Packer.spans`."""
        levels = [_ends_behind(text, separator) for separator in self.separators]
        return self._packer.spans(text, [*levels, sentence_ends(text)])


@known_arguments
class TokenSplitter(NodeTransform):
    """Splits text into chunks of as many words as fit, wherever sentences end.

    A Chinese, Japanese or Korean character counts as a word. The chunks' spans cover the text without a gap; white
    space stays with the word before it.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        chunk_overlap: Most tokens that two neighbours share, at least 0 and at most half of chunk_size. None: a fifth
            of chunk_size, at most 200.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range or the counter is none.

    Example:
        >>> splitter = TokenSplitter(chunk_size=4, chunk_overlap=0)
        >>> text = "He left. She left as well."
        >>> [text[start:end] for start, end in splitter.split(text)]
        ['He left. ', 'She left as ', 'well.']
    """

    reads_text_only = True

    def __init__(
        self, chunk_size: int = 1024, chunk_overlap: int | None = None, *, counter: TokenCounter | str = "utf8"
    ) -> None:
        self._packer = Packer(chunk_size, chunk_overlap, counter)
        self.chunk_size, self.chunk_overlap = self._packer.size, self._packer.overlap
        self.counter = self._packer.counter
        if type(self) is TokenSplitter:
            self.identity = f"TokenSplitter/1 {self._packer.told}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's text, with their spans in it."""
        text = node.get_text()
        return chunks(text, self.split(text))

    def split(self, text: str) -> list[Span]:
        """The spans of the chunks of a text, in order; see `lazyrag.transforms.packing.Packer.spans`."""
        return self._packer.spans(text, [word_ends(text)])


def word_ends(text: str) -> array[int]:
    """Where words end, the white space behind them included; a Chinese, Japanese or Korean character is a word."""
    return _whole(text, (match.end() for match in _WORD.finditer(text)))


def _checked_separators(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        msg = f"{name} is {given!r}; give a list of texts, such as ['\\n\\n', '\\n']."
        raise ConfigError(msg)
    for one in given:
        if not isinstance(one, str) or not one:
            msg = f"{name} has {one!r}; a separator is a text that is not empty, such as '\\n\\n'."
            raise ConfigError(msg)
    return tuple(given)


def _ends_behind(text: str, separator: str) -> array[int]:
    """Where pieces end: behind each separator, or behind a run of them that are white space; and the text's end."""
    pattern = re.compile(f"(?:{re.escape(separator)})+" if separator.isspace() else re.escape(separator))
    return _whole(text, (match.end() for match in pattern.finditer(text)))


def _whole(text: str, ends: Iterable[int]) -> array[int]:
    """Those of some ascending positions that tear no character, and the text's end."""
    kept = array("q", (end for end in ends if is_boundary(text, end)))
    if text and (not kept or kept[-1] != len(text)):
        kept.append(len(text))
    return kept


transforms.register("CharacterSplitter", CharacterSplitter)
transforms.register("RecursiveSplitter", RecursiveSplitter)
transforms.register("TokenSplitter", TokenSplitter)
