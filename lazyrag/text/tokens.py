"""Count tokens, by bytes or with tiktoken, and find how much text fits into a number of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lazyrag.errors import ConfigError, MissingDependencyError, known_names, missing_package
from lazyrag.registry import Registry
from lazyrag.validation import require

if TYPE_CHECKING:
    from tiktoken import Encoding


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class TokenCounter(Protocol):
    """Counts the tokens of a text.

    Adding text never lowers the count. ``name`` is part of the fingerprint of every group that splits by it.
    """

    @property
    def name(self) -> str:
        """Name of this way of counting."""

    def count(self, text: str) -> int:
        """Number of tokens, >= 0; 0 for empty text."""


@runtime_checkable
class FittingTokenCounter(TokenCounter, Protocol):
    """A counter that finds directly how much text fits; for others, bisection does."""

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
        """Return the number of tokens."""
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


class _BisectingCounter:
    """Finds by bisection how much text fits, with a counter that only counts."""

    def __init__(self, counter: TokenCounter) -> None:
        self.name = counter.name
        self.count = counter.count

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        most = len(text) - start
        return start + _gallop(lambda length: self.count(text[start : start + length]) <= limit, most, limit)

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        return end - _gallop(lambda length: self.count(text[end - length : end]) <= limit, end, limit)


def with_fit_methods(counter: TokenCounter) -> FittingTokenCounter:
    """Return the counter itself if it finds how much text fits, else one that bisects.

    Example:
        >>> class Words:
        ...     name = "words"
        ...     def count(self, text):
        ...         return len(text.split())
        >>> with_fit_methods(Words()).fit_forward("one two three", 0, 2)
        8
    """
    return counter if isinstance(counter, FittingTokenCounter) else _BisectingCounter(counter)


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


# tiktoken downloads a vocabulary that is not on the machine. To prevent that, the file must exist in tiktoken's cache.
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
            is on this machine; or a ``tiktoken.Encoding``, which needs none.

    Raises:
        MissingDependencyError: If tiktoken is not installed.
        ConfigError: If there is no such encoding or model, or its vocabulary is not on this machine; the message names
            the file and its place.

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
                raise ConfigError(
                    f"The vocabulary of {name!r} is not on this machine, and nothing is downloaded. Save "
                    f"{_address(name)} as {_path(name)}, or set TIKTOKEN_CACHE_DIR to the folder that has it."
                )
            found = tiktoken.get_encoding(name)
        expected = "the name of an encoding or a model, or a tiktoken.Encoding"
        require(isinstance(found, tiktoken.Encoding), "encoding", encoding, expected)
        self._encoding = found
        self.name = f"tiktoken-{found.name}"

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._encoding.name!r})"

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        return len(self._encoding.encode_ordinary(text))


def resolve_counter(counter: Any) -> TokenCounter:
    """Return a token counter, which may be passed by name.

    Raises:
        NotRegisteredError: If no counter has the name.
        ConfigError: If it is not a counter.
    """
    if isinstance(counter, str):
        return token_counters[counter]
    is_counter = callable(getattr(counter, "count", None)) and isinstance(getattr(counter, "name", None), str)
    if not is_counter:
        expected = f"an object with name and count(text), or one of {[*token_counters]}"  # reads the entry points
        raise ConfigError(f"counter must be {expected}; got {counter!r:.80}.")
    found: TokenCounter = counter
    return found


def counter_for_model(model: str) -> TiktokenCounter | None:
    """Return the counter of a model's tokens, if tiktoken has the model and its vocabulary is on this machine.

    Example:
        >>> counter_for_model("no model of OpenAI's") is None
        True
    """
    try:
        return TiktokenCounter(model)
    except (MissingDependencyError, ConfigError):
        return None


def _package() -> Any:
    try:
        import tiktoken
    except ModuleNotFoundError as exc:
        raise missing_package("TiktokenCounter", exc, "tiktoken") from exc
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
        raise ConfigError(f"Unknown encoding or model {given!r:.60}. {known_names(given, _VOCABULARIES)}")
    return name


def _address(name: str) -> str:
    return _URL.format(file=_VOCABULARIES[name][0])


def _folder() -> str | None:
    """Tiktoken's cache folder, by its own rules: None for the default, "" for no cache."""
    return os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))


def _path(name: str) -> Path:
    """The file of a vocabulary in tiktoken's cache, named by a digest of its address."""
    import tempfile

    digest = hashlib.sha1(_address(name).encode(), usedforsecurity=False).hexdigest()
    return Path(_folder() or Path(tempfile.gettempdir(), "data-gym-cache"), digest)


def _on_this_machine(name: str) -> bool:
    """Whether the vocabulary is there and complete: otherwise tiktoken would download it."""
    path = _path(name)
    if _folder() == "" or not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == _VOCABULARIES[name][1]
