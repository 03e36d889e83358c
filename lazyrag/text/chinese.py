"""Chinese words as jieba finds them; the only import of jieba, and of rjieba, which finds the same ones faster."""

from __future__ import annotations

import functools
import logging
import re
import threading
import warnings
from typing import Any, Protocol

_lock = threading.Lock()
_HAN = re.compile("([\u4e00-\u9fd5]+)")  # what jieba takes for Chinese; of anything else it makes single characters


def words(text: str) -> list[str]:
    """The words of a run of Chinese text, one after the other; joined they are the text again.

    Args:
        text: Letters of `lazyrag.text.scripts.CJK_LETTERS` and nothing else.

    Example:
        >>> words("茶叶合作社")
        ['茶叶', '合作社']
    """
    return _segmenter().words(text)


def inner_words(word: str, length: int) -> list[str]:
    """The dictionary's words of a given length inside a longer word, as jieba's search mode finds them.

    Example:
        >>> inner_words("中国科学院", 3)
        ['科学院']
    """
    if len(word) <= length:
        return []
    pieces = [word[start : start + length] for start in range(len(word) - length + 1)]
    return list(filter(_segmenter().is_word, pieces))


class Segmenter(Protocol):
    """Finds words by jieba's dictionary and algorithm."""

    def words(self, text: str) -> list[str]:
        """See `words`."""

    def is_word(self, text: str) -> bool:
        """Whether the dictionary has it."""


class RustSegmenter:
    """Jieba's algorithm and dictionary in Rust.

    Example:
        >>> RustSegmenter().words("䲟可当鱼") == PythonSegmenter().words("䲟可当鱼")
        True
    """

    def __init__(self) -> None:
        import rjieba

        jieba = rjieba.Jieba()
        self._cut = jieba.cut
        self.is_word = jieba.has_word

    def words(self, text: str) -> list[str]:
        """See `words`."""
        if _HAN.fullmatch(text):
            return self._cut(text)
        # It takes more characters for Chinese than jieba does, and would join a rare one to its neighbours.
        pieces = enumerate(_HAN.split(text))
        return [word for at, piece in pieces for word in (self._cut(piece) if at % 2 else piece)]


class PythonSegmenter:
    """Jieba itself, which says what is right; it works where there is no rjieba.

    Example:
        >>> PythonSegmenter().is_word("科学院")
        True
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # jieba's source has escapes that newer Pythons warn of, and it tries the deprecated pkg_resources.
            warnings.simplefilter("ignore")
            import jieba

        jieba.setLogLevel(logging.WARNING)
        # A tokenizer of our own: words that an application adds to jieba's shared one would change our index's terms.
        self._tokenizer: Any = jieba.Tokenizer()
        # jieba itself would keep its dictionary as a marshalled file in the shared temporary folder and trust the file
        # it finds there; reading the dictionary takes half a second and trusts nobody.
        self._tokenizer.FREQ, self._tokenizer.total = self._tokenizer.gen_pfdict(self._tokenizer.get_dict_file())
        self._tokenizer.initialized = True

    def words(self, text: str) -> list[str]:
        """See `words`."""
        found: list[str] = self._tokenizer.lcut(text)
        return found

    def is_word(self, text: str) -> bool:
        """Whether the dictionary has it; it lists beginnings of words as well, with a frequency of 0."""
        return bool(self._tokenizer.FREQ.get(text))


@functools.cache
def _segmenter() -> Segmenter:
    with _lock:  # several threads may come at once; one of them reads the dictionary
        return _loaded()


@functools.cache
def _loaded() -> Segmenter:
    try:
        return RustSegmenter()
    except ImportError:
        return PythonSegmenter()
