"""Count tokens, by bytes or with tiktoken, and find how much text fits into a number of them."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import re
import string
import threading
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from lazyrag.errors import ConfigError, MissingDependencyError, known_names, optional_package
from lazyrag.registry import Registry
from lazyrag.types import BoolArray, ByteArray, Int64Array
from lazyrag.validation import require

if TYPE_CHECKING:
    from tiktoken import Encoding


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class TokenCounter(Protocol):
    """Counts the tokens of a text.

    Adding text never lowers the count. ``name`` is part of the fingerprint of every group that
    splits by it.
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
    """A third of the UTF-8 bytes, rounded up: the default of most splitters.

    One token for a Chinese, Japanese or Korean character, one for three Latin letters. It needs no
    vocabulary, gives the same number on every machine whatever else is installed, and leans to the
    high side: for English prose 1.6 times what WordPiece and byte-pair vocabularies count, for
    Chinese as much as WordPiece does.

    Example:
        >>> [Utf8TokenCounter().count(text) for text in ("tea", "绿茶", "")]
        [1, 2, 0]
    """

    name = "utf8"

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        length = len(text if text.isascii() else text.encode("utf-8", "surrogatepass"))
        return -(-length // 3)

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        window = text[start : start + 3 * limit]
        if window.isascii():
            return start + len(window)
        data = window.encode("utf-8", "surrogatepass")
        fitting = data[: 3 * limit]
        # A character cut in two has lost some of its continuation bytes to the right of the cut.
        torn = len(data) > len(fitting) and data[len(fitting)] & 0xC0 == 0x80
        return start + len(fitting.translate(None, _CONTINUATION_BYTES)) - torn

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        window = text[max(0, end - 3 * limit) : end]
        if window.isascii():
            return end - len(window)
        fitting = window.encode("utf-8", "surrogatepass")[-3 * limit :] if limit else b""
        return end - len(fitting.translate(None, _CONTINUATION_BYTES))


class EstimatedTokenCounter:
    """Estimates the tokens of OpenAI's vocabularies without having one: on the safe side, for
    budgets.

    A character beyond ASCII costs as many tokens as cl100k_base has for it alone. The costs of
    words, digits and punctuation were fitted to English prose, Markdown, reStructuredText and
    Python, so that contexts of 500 tokens and more are not underestimated: for budgets, where too
    many is worse. ``benchmarks/tokens.py`` compares both: the estimate is 1.00 to 1.34 times the
    number of cl100k_base, 1.05 for Chinese prose, 1.15 for English.

    Example:
        >>> texts = "Green tea is steeped at 80 degrees.", "绿茶"
        >>> [EstimatedTokenCounter().count(text) for text in texts]
        [10, 5]
    """

    name = "estimate"
    _unit = 100  # hundredths of a token

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        return -(-_hundredths(text) // self._unit)

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        window: _Window = getattr(_last, "window", _NO_WINDOW)
        length = _WINDOW_LENGTH
        while True:
            at = start - window.start
            if window.text is text and 0 <= at < len(window.begins) and window.begins[at]:
                most = window.costs[at] + limit * self._unit
                end = window.start + int(window.costs.searchsorted(most, "right")) - 1
                if end < window.end or end == len(text):
                    return end
                length = 2 * length if at == 0 else length
            elif start >= len(text):
                return start
            window = _last.window = _window(text, start, start + length)

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        most = limit * self._unit
        length = 16 + limit * (4 if text[max(0, end - 64) : end].isascii() else 1)
        window: _Window = getattr(_last, "window", _NO_WINDOW)
        while window.text is text and window.start <= end - length and end <= window.end:
            # As a splitter asks, right after `fit_forward`. This finds what the loop below finds.
            low = end - length - window.start
            at = end - window.start
            ahead = window.costs
            complete_runs = bisect_left(
                window.runs, max(low, int(ahead.searchsorted(ahead[at] - most)))
            )
            start = min(window.runs[complete_runs], at)
            run = text[
                window.start
                + max(low, window.runs[complete_runs - 1] if complete_runs else 0) : window.start
                + start
            ]
            room = most - int(ahead[at] - ahead[start])
            if run and _cost(run) > room:
                part = bisect_right(range(1, len(run)), room, key=lambda size: _cost(run[-size:]))
                return window.start + start - part
            length *= 2
        while True:
            runs = _RUNS_OR_CHARACTERS.findall(text, max(0, end - length), end)
            costs = [0, *itertools.accumulate(map(_cost, reversed(runs)))]
            complete_runs = bisect_right(costs, most) - 1
            if complete_runs < len(runs):
                break
            if length >= end:
                return 0
            length *= 2
        run = runs[-1 - complete_runs]
        room = most - costs[complete_runs]
        part = bisect_right(range(1, len(run)), room, key=lambda size: _cost(run[-size:]))
        return end - sum(map(len, runs[len(runs) - complete_runs :])) - part


class AverageTokenCounter(EstimatedTokenCounter):
    """Estimates the tokens of OpenAI's vocabularies without having one: right on average, for chunk
    sizes.
    """

    name = "average"
    _unit = 110


# A single space belongs to the word behind it; a line of marks is a rule or the line beneath a
# title.
_RUNS = re.compile(
    r"[a-z]+|[A-Z]+[a-z]*|[0-9]+|\n+|[^\S\n]{2,}|-+|=+|\*+|#+|_+|~+|\.+|\++|/+|[!-/:-@\[-`{-~]",
    re.ASCII,
)
_RUNS_OR_CHARACTERS = re.compile(f"{_RUNS.pattern}|.", re.ASCII | re.DOTALL)


def _hundredths(text: str) -> int:
    """The tokens of a text, in hundredths."""
    hundredths = sum(times * _cost(run) for run, times in Counter(_RUNS.findall(text)).items())
    if not text.isascii():
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        hundredths += 102 * int(
            _tokens_by_code_point()[np.minimum(codes, 0x10000)].sum(dtype=np.int64)
        )
    return hundredths


@lru_cache(maxsize=1 << 14)
def _cost(run: str) -> int:
    """The tokens of characters of one kind in a row, or of a character beyond ASCII; in
    hundredths.
    """
    first = run[0]
    length = len(run)
    if first >= "\x80":
        return 102 * int(_tokens_by_code_point()[min(ord(first), 0x10000)])
    if first.islower():
        return 104 + 26 * max(0, length - 6)
    if first.isupper():  # small letters belong to the last capital
        capitals = sum(map(str.isupper, run))
        alone = capitals - (capitals < length)
        return (110 + 15 * alone if alone else 0) + 150 * (capitals < length)
    if first.isdigit():
        return 200 * -(-length // 3)
    if first.isspace():
        spaces = 150 if length > 1 else 0
        return 30 if first == "\n" else spaces
    return 65 * min(length, 3) if first.isprintable() else 0


class _Window(NamedTuple):
    """A part of a text.

    Args:
        text: The whole text.
        start: Where it starts.
        end: Where it ends.
        costs: (length + 1,) the cost of the text from ``start`` on, in hundredths.
        begins: (length,) whether the text from here on has the difference of the costs.
        runs: Where it begins, and its length.
    """

    text: str
    start: int
    end: int
    costs: Int64Array
    begins: BoolArray
    runs: array[int]


_WINDOW_LENGTH = 1 << 15
_NO_WINDOW = _Window("", 0, 0, np.zeros(1, np.int64), np.zeros(0, bool), array("q"))
_last = threading.local()  # a splitter asks for one part of a text after the other

_LOWER, _UPPER, _DIGIT, _LINE, _SPACE_KIND, _MARK, _RULES = range(1, 8)
_SEVENTH = 4


def _window(text: str, start: int, end: int) -> _Window:
    """The costs of `_cost` by character."""
    part = text[start:end]
    if part.isascii():
        kinds = np.frombuffer(part.encode().translate(_kinds()[:256].tobytes()), np.uint8)
    else:
        codes = np.minimum(
            np.frombuffer(part.encode("utf-32-le", "surrogatepass"), np.uint32), 0x10000
        )
        kinds = _kinds().take(codes)
    # In bytes, which takes a third of the time of whole numbers: a character's place in its run,
    # see `_increments`.
    nth = np.zeros(len(kinds), np.uint8)
    same = kinds[1:] == kinds[:-1]
    third = same[1:] & same[:-1]
    fourth = third[1:] & third[:-1]
    for is_there in (same, third, fourth, fourth[3:] & fourth[:-3]):
        nth[len(nth) - len(is_there) :] += is_there
    begins = nth == 0
    cells = (kinds * np.uint8(5) + nth).tobytes()
    increments: np.ndarray[Any, Any] = np.frombuffer(
        bytearray(cells.translate(_increments())), np.uint8
    )
    digits = (kinds == _DIGIT).nonzero()[0]
    counted = np.arange(len(digits))
    places = counted - np.maximum.accumulate(counted * begins[digits])
    increments[digits[places % 3 == 0]] = 200
    follows = ((kinds[1:] == _LOWER) & (kinds[:-1] == _UPPER)).nonzero()[0] + 1
    increments[follows] = np.where(nth[follows - 1] > 0, 135, 25)
    for first in follows[nth.take(follows + 6, mode="clip") == _SEVENTH].tolist():
        rest = begins[first + 1 :].argmax() or len(kinds)
        increments[first + 6 : first + 1 + rest] = 0
    begins[follows] = False
    begins |= (kinds == 0) | (kinds == _MARK)
    if not part.isascii():
        increments = increments + _tokens_by_code_point().take(codes) * np.uint16(102)
    costs = np.zeros(len(part) + 1, np.int64)
    np.cumsum(increments, dtype=np.int64, out=costs[1:])
    runs = array("q", begins.nonzero()[0].tobytes())
    runs.append(len(part))
    return _Window(text, start, start + len(part), costs, begins, runs)


@lru_cache(maxsize=1)
def _kinds() -> ByteArray:
    """(65,537,) the kind of each character; 0 for those whose costs do not depend on their
    neighbours.
    """
    kinds = np.zeros(0x10001, np.uint8)
    sets = (
        string.ascii_lowercase,
        string.ascii_uppercase,
        string.digits,
        "\n",
        " \t\r\v\f",
        string.punctuation,
    )
    for kind, characters in enumerate((*sets, *"-=*#_~.+/"), start=_LOWER):
        kinds[[*map(ord, characters)]] = kind
    return kinds


@lru_cache(maxsize=1)
def _increments() -> bytes:
    """What characters in a row of each kind cost: the first, second, third, fourth to sixth, and
    each of the others.
    """
    table = np.zeros((16, 5), np.uint8)
    table[_LOWER, [0, _SEVENTH]] = 104, 26
    table[_UPPER] = 125, *[15] * 4
    table[_LINE, 0] = 30
    table[_SPACE_KIND, 1] = 150
    table[_MARK] = 65
    table[_RULES:, :3] = 65
    return table.tobytes().ljust(256)


@lru_cache(maxsize=1)
def _tokens_by_code_point() -> ByteArray:
    """(65,537,) the tokens that cl100k_base has for a character alone; 0 for ASCII, the last for
    all beyond 2**16.
    """
    packed = np.frombuffer(zlib.decompress(base64.b85decode(_TOKENS_BY_CODE_POINT)), np.uint8)
    counts = (packed[:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3) + 1
    return np.concatenate([np.zeros(0x80), counts.ravel(), [3]]).astype(np.uint8)


token_counters: Registry[TokenCounter] = Registry(
    "token counter", entry_point_group="lazyrag.token_counters"
)
token_counters.register("average", AverageTokenCounter())
token_counters.register("estimate", EstimatedTokenCounter())
token_counters.register("utf8", Utf8TokenCounter())


class BisectingCounter:
    """Finds by bisection how much text fits, with a counter that only counts."""

    def __init__(self, counter: TokenCounter) -> None:
        self.name = counter.name
        self.count = counter.count
        self._length = 4.0  # of a token, in characters: about

    def last_end(self, text: str, start: int, limit: int, ends: array[int]) -> int:
        """The last of some ascending positions with ``count(text[start:end]) <= limit``; 0 if none
        is.

        It counts two or three times, as the length of tokens hardly varies.
        """
        first = bisect_right(ends, start)
        at = self._search(
            lambda position: text[start : ends[position]],
            limit,
            range(first, len(ends)),
            ends,
            start,
        )
        return ends[at] if at >= first else 0

    def first_start(self, text: str, end: int, limit: int, starts: array[int], least: int) -> int:
        """The first of ascending positions, from a least one on, with
        ``count(text[start:end]) <= limit``; or end.
        """
        places = range(bisect_left(starts, end) - 1, bisect_left(starts, least) - 1, -1)
        at = self._search(lambda position: text[starts[position] : end], limit, places, starts, end)
        return starts[at] if at in places else end

    def fit_forward(self, text: str, start: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        places = range(start + 1, len(text) + 1)
        return self._search(lambda end: text[start:end], limit, places, range(len(text) + 1), start)

    def fit_backward(self, text: str, end: int, limit: int) -> int:
        """See `FittingTokenCounter`."""
        return self._search(
            lambda start: text[start:end], limit, range(end - 1, -1, -1), range(end), end
        )

    def _search(
        self,
        part: Callable[[int], str],
        limit: int,
        places: range,
        positions: Sequence[int],
        origin: int,
    ) -> int:
        """The last place whose part fits; the one before the first if none does. Parts grow with
        their places.

        The cost depends on the answer, not on the number of places.
        """
        low = -1
        high = len(places)
        attempts = 0
        length = limit * self._length
        while high - low > 1:
            at = (
                bisect_right(places, length, key=lambda position: abs(positions[position] - origin))
                - 1
            )
            if attempts >= _GUESSES and high < len(places):
                at = (low + high) // 2
            at = min(max(at, low + 1), high - 1)
            some = part(places[at])
            tokens = self.count(some)
            of_token = len(some) / max(tokens, 1)
            self._length = min(of_token, _LONGEST_TOKEN)
            if tokens <= limit:
                low = at
                length = min(len(some) + (limit - tokens + 1) * of_token, 2 * len(some))
            else:
                high = at
                length = len(some) + (limit - tokens) * of_token
            attempts += 1
        return places.start + low * places.step


_GUESSES = 4  # before halving
_LONGEST_TOKEN = 8.0  # that is guessed, in characters


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
    # a Protocol takes 20 microseconds
    if hasattr(counter, "fit_forward") and hasattr(counter, "fit_backward"):
        return cast("FittingTokenCounter", counter)
    return BisectingCounter(counter)


# tiktoken downloads a vocabulary that is not on the machine. To prevent that, the file must exist
# in tiktoken's cache.
_URL = "https://openaipublic.blob.core.windows.net/encodings/{file}"
# By encoding, the file of its vocabulary and that file's SHA-256, as tiktoken has them.
_VOCABULARIES = {
    "cl100k_base": (
        "cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "p50k_base": (
        "p50k_base.tiktoken",
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    ),
    "r50k_base": (
        "r50k_base.tiktoken",
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    ),
}


class TiktokenCounter:
    """Counts the tokens of one of tiktoken's encodings. Special tokens count as the text they are
    written with.

    Args:
        encoding: The name of an encoding (``"cl100k_base"``) or of a model of OpenAI
            (``"gpt-4o"``), whose vocabulary is on this machine; or a ``tiktoken.Encoding``, which
            needs none.

    Raises:
        MissingDependencyError: If tiktoken is not installed.
        ConfigError: If there is no such encoding or model, or its vocabulary is not on this
            machine; the message names the file and its place.

    Example::

        counter = TiktokenCounter("gpt-4o")
        counter.count("Water of 80 degrees")
    """

    def __init__(self, encoding: str | Encoding) -> None:
        with optional_package("TiktokenCounter", "tiktoken"):
            import tiktoken
        vocabulary: Any = encoding
        if isinstance(encoding, str):
            name = _encoding_name(encoding)
            if not _on_this_machine(name):
                raise ConfigError(
                    f"The vocabulary of {name!r} is not on this machine, and nothing is downloaded."
                    f" Save {_address(name)} as {_path(name)}, or set TIKTOKEN_CACHE_DIR to the"
                    " folder that has it."
                )
            vocabulary = tiktoken.get_encoding(name)
        expected = "the name of an encoding or a model, or a tiktoken.Encoding"
        require(isinstance(vocabulary, tiktoken.Encoding), "encoding", encoding, expected)
        self._encoding: Encoding = vocabulary
        self.name = f"tiktoken-{vocabulary.name}"

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._encoding.name!r})"

    @property
    def encoding(self) -> Encoding:
        """The ``tiktoken.Encoding``."""
        return self._encoding

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
    is_counter = callable(getattr(counter, "count", None)) and isinstance(
        getattr(counter, "name", None), str
    )
    if not is_counter:
        # reads the entry points
        expected = f"an object with name and count(text), or one of {[*token_counters]}"
        raise ConfigError(f"counter must be {expected}; got {counter!r:.80}.")
    return cast("TokenCounter", counter)


def counter_for_model(model: str) -> TiktokenCounter | None:
    """Return the counter of a model's tokens, if tiktoken has the model and its vocabulary is on
    this machine.

    Example:
        >>> counter_for_model("no model of OpenAI's") is None
        True
    """
    try:
        return TiktokenCounter(model)
    except (MissingDependencyError, ConfigError):
        return None


def _encoding_name(name: str) -> str:
    from tiktoken.model import encoding_name_for_model

    if name in _VOCABULARIES:
        return name
    try:
        encoding = encoding_name_for_model(name)
    except KeyError:
        encoding = ""
    if encoding not in _VOCABULARIES:
        raise ConfigError(
            f"Unknown encoding or model {name!r:.60}. {known_names(name, _VOCABULARIES)}"
        )
    return encoding


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


# Tokens of each code point from 0x80 to 0xffff, minus 1, in two bits; benchmarks/tokens.py --table
# makes it.
_TOKENS_BY_CODE_POINT = (
    "c-rk-TW;ez40V9`-vYu-WEBoz{hI)_h?}L{CG>9wGeMkHUdd01*2`)7xTu8|ts6Z_9`cZKNhu}uchR>)QJnBnmGaa-)<r9"
    "X!b%BH3RG+Ql0u=M1p=UwjT#&3Z&INq*fTmmVy#u#tvFOgRTSuKqd!}9EQ+HN#n@1)4{cS2O{41RvEL8$tJmsK)Mf2%Z;}"
    "bv{a@AoKEkc*9;w#JS-Fi?c3ZYa?cPRa<E1teeC7Uco(<dEX5G!^@ME>RZT`!tQBWM3gDA16T2-CesD7FJuc`S{3e4``b="
    "p*JIsFHdx_Umj1t))GwYS*FE<Nk@k+p%&eeTw$=pOmY-tu?h9I^Aymno{Lx8lz3#rRKretpaAd)u@|=O5?6|HrngUaJf3x"
    "m$jH3v~G>dD=Nb3LREKhY1jU(*ags2(KFipj~29wRPQS+c;|X%v)_c@WtOwV!uU9YYDs&e~}vd+4%RYAH{#|<0MXuBa8d="
    "Cj~bEI3aQg?js3F;s1F?Fl_P9j{k3s|Ag^g-;4iRl|^e=kZg{XC@P^TacTJ4g^J2}h4Oe5Cs9CE7OE=br4k2i=0KbH#2)`"
    "YJ^lxmyA7Z0@&9MzKi`rD{?Ft8&i{A(@A!Wn{{)8%n5r2`&G<~Dtp<)bkzxsrB25`jK;}V5VrjYq>X=;u4lJ&*0=Po`R~n"
    "yTpqs0riy0?9^$OxOCQtqkvHTyVp?V9V?D=gQE{T-GF8X5#ErL+}1faD^E;1ThT8B5Yi23l-DPfvN%NWtfPs_3wsiGPOIi"
    "HqHh9(i9KGNMjAEwB*Wc+^3hcfYh_uBt>4oPnI07HFEu6Fl$oH;*}p@M*08HGgUV3g2Fi(JaSvW9GNJp=yBK+DsgSL46mR"
    "}Ymrb2bmM7nDSH5;P)%Y2S06W|f~YTJPG9|5=`wVJqcYqKo{R0ld9sO24r+Be;nbIpwr>101lDPjpo~9~D+Q2N(bM0sm`s"
    "f<16+{O`9YZ7T+Q7m`+ra5sQ~a<jA~CYf>5TA#uEpC`;b{yTDzSlYAqP8jB)I8*|LzYxwkm0-zG1^^f+sq3$H)M!JN^O*t"
    "zj5P%cR;le(fL2|(z9>=u<;&#8|KCsIpB-lwU)g#DXvxI2p+%n3l?w8q%Y!ctus91D#Tg9aUp;Z*^IihP&CiYhzaOFcACA"
    "(02LG-IN!i}_z5L%Y0`O`~uI0Cd|J$Amg{|<Zez%SPuUsnyO-33AgTt{PY!BBU;LIn#!t2Y7`=pL}U7504bN_akd-QJaqJ"
    "ln8dNF2ZA*=6bd*lJs5I?{l%TxXfJYscwpXdHfQ2wu}|Bpn$_%6_1<`feX^Mx{YUg0CO`3?uS=KtA5dEB^s=S3?=UQYiH&"
    "i~IF?_)nT|6jCESwc^&e@3QdY{rz&ek&mCD}4Mb$^X4`k?{pm_B2qZDmoz$I;RfW;MSJ};Gl+A3uxu4f<wIW3+nfrRsXZV"
    "bDCBc40Nrk<fP%Y?=mO9G2$sbPQr)(Uvd1)3Rm{?eElzm_gB>aERpzJ(U^y0Bv?UUFkLKL0lQv7%fy}+Mw0Zv3B)n{pC1W"
    "-h=V=jkgYuPe#w<vPOARrng71-egCobf9{)7*1Yw7puPUT*Z+S~{hw%dxgi=%)-$@%PZ7sIA0DXxIqWA!yTAJWk4qwy|7X"
    "RAC-6Tnk3OxSy0bZw{GWX6jwqM^&jSLA`)2sRN4Pvi2yYw7k13r$(;`<2-!1v-|Er#?0vE^sJt?A8qPyx(6n*(T7618g9{"
    "*SC-@n)WKL-hpwQQd)p<l(6<{$U;`i?EA`6cP^7XO(^Q6!*voqrgqIGZ9xRu~XR%Tqgo8K-#U#{V%No@aKn(&hS>{P)v|Z"
    "T_p{|CV~7k<wQFAG}Ww@PDq<&&L0nzpU>6!)8j`>;GBt-&*0b^Z(8GXE02~e?Q}-aQ^#Z{=c`q?fL(n|Nqqd|NmD1`$GP&"
    "eE<Km<A2Bhj{oQJzj~i`8~)FzTJw+NrQ&z~sSC{EbNmnf@QRu"
)
