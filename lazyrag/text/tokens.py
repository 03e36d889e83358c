"""Count tokens, by bytes or with tiktoken, and find how much text fits into a number of them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lazyrag.errors import ConfigError, known_names, missing_package
from lazyrag.registry import Registry

if TYPE_CHECKING:
    from tiktoken import Encoding


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class TokenCounter(Protocol):
    """Counts the tokens of a text.

    Adding text never lowers the count. ``name`` takes part in the fingerprint of every group that splits by it.
    """

    @property
    def name(self) -> str:
        """Names the way of counting; another way has another name."""

    def count(self, text: str) -> int:
        """Number of tokens, >= 0; 0 for empty text."""


@runtime_checkable
class FittingTokenCounter(TokenCounter, Protocol):
    """A counter that can say directly how much text fits; others are searched by bisection."""

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        """The largest end with ``count(text[start:end]) <= limit``."""

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        """The smallest start with ``count(text[start:end]) <= limit``."""


class Utf8TokenCounter:
    """The default: a third of the UTF-8 bytes, rounded up.

    One token for a Chinese, Japanese or Korean character, one for three Latin letters. It needs no vocabulary, gives
    the same number on every machine whatever else is installed, and leans to the high side: for English prose 1.6 times
    what WordPiece and byte-pair vocabularies count, for Chinese as much as WordPiece does.

    Example:
        >>> Utf8TokenCounter().count("tea"), Utf8TokenCounter().count("绿茶"), Utf8TokenCounter().count("")
        (1, 2, 0)
    """

    name = "utf8"

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return -(-_utf8_length(text) // 3)

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        window = text[start : start + 3 * limit]
        if window.isascii():
            return start + len(window)
        data = window.encode("utf-8", "surrogatepass")
        kept = data[: 3 * limit]
        # A character cut in two has lost some of its continuation bytes to the right of the cut.
        torn = len(data) > len(kept) and data[len(kept)] & 0xC0 == 0x80
        return start + len(kept.translate(None, _CONTINUATION_BYTES)) - torn

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        window = text[max(0, end - 3 * limit) : end]
        if window.isascii():
            return end - len(window)
        kept = window.encode("utf-8", "surrogatepass")[-3 * limit :] if limit else b""
        return end - len(kept.translate(None, _CONTINUATION_BYTES))


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


token_counters: Registry[TokenCounter] = Registry("token counter", entry_point_group="lazyrag.token_counters")
token_counters.register("utf8", Utf8TokenCounter())


class _Searching:
    """Finds by bisection what a counter that only counts cannot say directly."""

    def __init__(self, counter: TokenCounter) -> None:
        self.name = counter.name
        self.count = counter.count

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        most = len(text) - start
        return start + _gallop(lambda length: self.count(text[start : start + length]) <= limit, most, limit)

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        return end - _gallop(lambda length: self.count(text[end - length : end]) <= limit, end, limit)


def fitting(counter: TokenCounter) -> FittingTokenCounter:
    """The counter itself if it can say how much text fits, else one that finds it by counting.

    Example:
        >>> class Words:
        ...     name = "words"
        ...     def count(self, text):
        ...         return len(text.split())
        >>> fitting(Words()).fit_forward("one two three", 0, 2)
        8
    """
    return counter if isinstance(counter, FittingTokenCounter) else _Searching(counter)


def _gallop(fits: Callable[[int], bool], most: int, guess: int) -> int:
    """The largest length in [0, most] that fits, for a monotone test; the cost depends on the answer, not on most."""
    low, high = 0, min(most, max(1, 4 * guess))
    while high < most and fits(high):
        low, high = high, min(most, 2 * high)
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


# Tokens as OpenAI's models count them, by tiktoken; the only module that imports it.
#
# tiktoken fetches a vocabulary that it does not find on the machine. Nothing here lets it: a vocabulary is looked for
# first, where tiktoken keeps it, and must be there.


_URL = "https://openaipublic.blob.core.windows.net/encodings/{file}"
# By encoding, the file of its vocabulary and that file's SHA-256, as tiktoken has them.
_VOCABULARIES = {
    "cl100k_base": ("cl100k_base.tiktoken", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
    "o200k_base": ("o200k_base.tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
    "p50k_base": ("p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"),
    "r50k_base": ("r50k_base.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"),
}


class TiktokenCounter:
    """Counts the tokens of one of tiktoken's encodings. Special tokens count as the text they are written with.

    Args:
        encoding: The name of an encoding (``"cl100k_base"``) or of a model of OpenAI (``"gpt-4o"``), whose vocabulary
            lies on this machine; or a ``tiktoken.Encoding``, which needs none.

    Raises:
        MissingDependencyError: If tiktoken is not installed.
        ConfigError: If there is no such encoding or model, or its vocabulary is not on this machine; the message says
            which file belongs where.

    Example::

        counter = TiktokenCounter("gpt-4o")
        counter.count("Water of 80 degrees")
    """

    def __init__(self, encoding: str | Encoding) -> None:
        tiktoken = _package()
        found: Any = encoding
        if isinstance(encoding, str):
            name = _encoding_name(encoding)
            if not _on_this_machine(name):
                file, _ = _VOCABULARIES[name]
                msg = (
                    f"The vocabulary of {name!r} is not on this machine, and nothing is downloaded. Save "
                    f"{_URL.format(file=file)} as {_place(name)}, or set TIKTOKEN_CACHE_DIR to the folder that has it."
                )
                raise ConfigError(msg)
            found = tiktoken.get_encoding(name)
        elif not isinstance(encoding, tiktoken.Encoding):
            msg = f"TiktokenCounter got {encoding!r:.60}; give the name of an encoding or a model, or an Encoding."
            raise ConfigError(msg)
        self._encoding = found
        self.name = f"tiktoken-{found.name}"

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._encoding.name!r})"

    def count(self, text: str) -> int:
        """Tokens of the text."""
        return len(self._encoding.encode_ordinary(text))


def counter_for_model(model: str) -> TiktokenCounter | None:
    """The counter of a model's own tokens, if tiktoken knows the model and its vocabulary lies on this machine.

    Example:
        >>> counter_for_model("no model of OpenAI's") is None
        True
    """
    try:
        from tiktoken.model import encoding_name_for_model
    except ModuleNotFoundError:
        return None
    try:
        name = encoding_name_for_model(model)
    except KeyError:
        return None
    return TiktokenCounter(name) if name in _VOCABULARIES and _on_this_machine(name) else None


def _package() -> Any:
    try:
        import tiktoken
    except ModuleNotFoundError as exc:
        msg = "TiktokenCounter"
        raise missing_package(msg, exc, "tiktoken") from exc
    return tiktoken


def _encoding_name(given: str) -> str:
    from tiktoken.model import encoding_name_for_model

    if given in _VOCABULARIES:
        return given
    try:
        name = encoding_name_for_model(given)
    except KeyError:
        name = ""
    if name not in _VOCABULARIES:
        msg = f"No encoding or model is called {given!r:.60}. {known_names(given, _VOCABULARIES)} Or give an Encoding."
        raise ConfigError(msg)
    return name


def _place(name: str) -> Path:
    """Where tiktoken keeps a vocabulary: a file called by a digest of the address it comes from."""
    # The same rules as tiktoken's, read when asked and not at import.
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    file, _ = _VOCABULARIES[name]
    digest = hashlib.sha1(_URL.format(file=file).encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), digest)


def _on_this_machine(name: str) -> bool:
    """Whether the vocabulary is there and whole: tiktoken removes and fetches again one that is not."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    path = _place(name)
    if folder == "" or not path.is_file():  # an empty name tells tiktoken to keep nothing, and to fetch each time
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == _VOCABULARIES[name][1]
