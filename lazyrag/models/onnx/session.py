"""Model folders, ONNX graphs with their tokenizers, pooling, and batches of token rows."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, starmap
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np

from lazyrag.errors import ConfigError, optional_package, sentence
from lazyrag.models.concurrency import map_in_threads
from lazyrag.models.onnx.folder import TOKENIZER, FileFingerprint, ModelFolder, graph_files
from lazyrag.models.protocols import Usage, report_usage
from lazyrag.types import AnyArray, Float32Array, Int64Array, Keywords
from lazyrag.validation import is_list_of, require, validate_integer

_ALPHABETIC_WORD = re.compile("[^\\W\\d_\u1100-\U0010ffff]{4,}")  # not of syllables or ideographs


T = TypeVar("T")

Ids: TypeAlias = "Int64Array"
"""Tokens by their numbers in the vocabulary: shape (n,), int64."""

Output: TypeAlias = Float32Array
"""What a graph says of one line: (tokens, dim) without padding, or (dim,)."""

PADDED_TOKENS = 512
"""In a batch. On two cores this was the fastest bound, for int8 and for float32 graphs: 1.2 to 1.4
times as fast as 32 rows whatever their length, which fall out of the processor's caches
(benchmarks/embed.py)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of tokens.

    Args:
        ids: (n,) all its tokens, the special ones included.
        types: (n,) which of two texts each belongs to, as models with ``token_type_ids`` are told.
        start: Where the own tokens of its last text begin: behind the special ones, and behind its
            prefix.
        stop: Where they end.
        prefixed: Whether there is a prefix.
    """

    ids: Ids
    types: Ids
    start: int
    stop: int
    prefixed: bool = False

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens around one text, or around and between two.

    Args:
        specials: One run more than texts, each with the ids of its tokens and their types; may be
            empty.
        types: For each text the type of its tokens.
    """

    specials: tuple[tuple[Ids, Ids], ...]
    types: tuple[int, ...]

    @classmethod
    def from_encoding(
        cls, ids: Sequence[int], types: Sequence[int], owners: Sequence[int | None]
    ) -> Frame:
        """The frame of a tokenizer's encoding.

        Args:
            ids: All tokens of the line.
            types: The type of each.
            owners: The number of the text that each comes from; None for a special token.

        Example:
            >>> owners = [None, 0, None, 1, None]
            >>> frame = Frame.from_encoding([101, 7, 102, 8, 102], [0, 0, 0, 1, 1], owners)
            >>> frame.row(np.array([5]), np.array([6, 6])).ids.tolist()
            [101, 5, 102, 6, 6, 102]
        """
        texts = sorted({owner for owner in owners if owner is not None})
        runs: list[list[tuple[int, int]]] = [[] for _ in range(len(texts) + 1)]
        kinds = dict.fromkeys(texts, 0)
        at = 0
        for token, kind, owner in zip(ids, types, owners, strict=True):
            if owner is None:
                runs[at].append((token, kind))
            else:
                at = owner + 1
                kinds[owner] = kind
        split = [np.array(run, np.int64).reshape(-1, 2) for run in runs]
        return cls(
            tuple((run[:, 0], run[:, 1]) for run in split), tuple(kinds[text] for text in texts)
        )

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return sum(len(ids) for ids, _ in self.specials)

    def row(self, *texts: Ids, prefix: int = 0) -> Row:
        """A line with these texts; so many first tokens of the last one are a prefix of it."""
        ids = [self.specials[0][0]]
        types = [self.specials[0][1]]
        between = zip(texts, self.types, self.specials[1:], strict=True)
        for text, kind, (special, special_types) in between:
            ids += [text, special]
            types += [np.full(len(text), kind, np.int64), special_types]
        stop = sum(map(len, ids[:-1]))
        start = stop - len(texts[-1]) + prefix
        return Row(np.concatenate(ids), np.concatenate(types), start, stop, prefixed=prefix > 0)


def windows(ids: Ids, room: int, *, full_last: bool = False) -> Iterator[Ids]:
    """A text's tokens in order, at most so many at a time; one window, an empty one, of no tokens.

    Args:
        ids: (n,) tokens.
        room: The length of a window, at least 1.
        full_last: Whether the last window begins earlier, in the one before it, so that it is as
            long as the others.

    Example:
        >>> [window.tolist() for window in windows(np.arange(5), 2)]
        [[0, 1], [2, 3], [4]]
        >>> [window.tolist() for window in windows(np.arange(5), 2, full_last=True)]
        [[0, 1], [2, 3], [3, 4]]
    """
    for start in range(0, max(len(ids), 1), room):
        first = max(0, min(start, len(ids) - room)) if full_last else start
        yield ids[first : first + room]


def batches(
    lengths: Sequence[int], most_rows: int, most_tokens: int = PADDED_TOKENS
) -> Iterator[list[int]]:
    """Numbers of lines in batches of about the same length, the longest first, so that little is
    padded.

    Args:
        lengths: Of each line its number of tokens, at least 1.
        most_rows: At most so many lines in a batch, at least 1.
        most_tokens: At most so many tokens in a batch once its lines are padded to the longest; one
            line may have more.

    Example:
        >>> list(batches([3, 9, 2, 8, 2], most_rows=2, most_tokens=100))
        [[1, 3], [0, 2], [4]]
        >>> list(batches([3, 9, 2, 8, 2], most_rows=9, most_tokens=8))
        [[1], [3], [0, 2], [4]]
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    at = 0
    while at < len(order):
        size = max(1, min(most_rows, most_tokens // lengths[order[at]]))
        yield order[at : at + size]
        at += size


def run_batches(
    rows: Sequence[tuple[int, Row]],
    run: Callable[[Sequence[Row]], Sequence[T]],
    most_rows: int,
    workers: int,
) -> Iterator[list[tuple[int, list[T]]]]:
    """Compute rows batch by batch, several batches at once.

    Args:
        rows: Each with the number of the text that it comes from.
        run: Computes some rows together: one result for each.
        most_rows: At most so many together.
        workers: Threads that compute batches.

    Returns:
        After each batch the texts whose last row was in it, each with the results of all its rows
        in their order.
    """
    missing = Counter(text for text, _ in rows)
    parts: dict[int, dict[int, T]] = defaultdict(dict)
    row_batches = list(batches([len(row) for _, row in rows], most_rows))
    computed = map_in_threads(
        lambda batch: run([rows[number][1] for number in batch]), row_batches, workers
    )
    for batch, results in zip(row_batches, computed, strict=True):
        for number, result in zip(batch, results, strict=True):
            parts[rows[number][0]][number] = result
        finished = []
        for text in dict.fromkeys(rows[number][0] for number in batch):
            if len(parts[text]) == missing[text]:
                by_number = parts.pop(text)
                finished.append((text, [by_number[number] for number in sorted(by_number)]))
        yield finished


TooLong = Literal["split", "raise", "cut"]


_INPUTS = ("attention_mask", "input_ids", "position_ids", "token_type_ids")
_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(bool)": np.bool_,
}
_ROWS = 32
# relative. A float32 graph gave the same to the last bit, an int8 one differed by 1e-1.
_BATCH_TOLERANCE = 1e-3
_PROBE = "The quick brown fox jumps over the lazy dog, 1234567890 times!"


class TextModel:
    """An ONNX graph that reads tokens, with its tokenizer; safe for concurrent use.

    Args:
        what: Who needs it, for messages.
        folder: Where it lies.
        file: The graph's file in the folder; None means the usual one.
        max_tokens: At most so many tokens in a row, special ones included; None means the model's
            own limit.
        threads: Threads that share the work of one call, at least 1; None leaves it to the runtime:
            one for each core.
        providers: Execution providers of onnxruntime, the preferred one first; None for the CPU.

    Raises:
        ConfigError: If a file is missing or cannot be used, or a value is out of its range.
        MissingDependencyError: If a package is not installed.
    """

    def __init__(
        self,
        name: str,
        folder: ModelFolder,
        *,
        file: str | None = None,
        max_tokens: int | None = None,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        runtime, tokenizers = _packages(name)
        threads = 0 if threads is None else validate_integer("threads", threads, 1)
        self.threads = threads or os.cpu_count() or 1
        self.path = folder.graph(file)
        vocabulary = folder.file(TOKENIZER)
        self.max_tokens = _max_tokens(folder, max_tokens)
        self.contents = FileFingerprint.of([*graph_files(self.path), vocabulary])
        self._lower_case = folder.lower_case
        self._tokenizer = _load_tokenizer(tokenizers, vocabulary)
        self._padding = _padding(folder, self._tokenizer)
        # What the file says of lengths is of no use: all-MiniLM-L6-v2's cuts off at 128 of its 256
        # tokens, and pads to as many.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.one = _frame(self._tokenizer, vocabulary, "a")
        self.two = _frame(self._tokenizer, vocabulary, "a", "a")
        self._session = _load_graph(runtime, self.path, threads, _providers(runtime, providers))
        self._inputs = _checked_inputs(self.path, self._session.get_inputs())
        # Some tokenizers do not tell a model which text a token belongs to, though its graph could
        # be told.
        named = folder.read_json_object("tokenizer_config.json").get("model_input_names")
        self._tells_types = not isinstance(named, list) or "token_type_ids" in named
        self._identity = ""
        self.ranks = self._try()

    def identity(self, name: str, settings: Keywords) -> str:
        """Name of the model with a hash of its files and of all settings; computed once, as large
        files take seconds.

        Args:
            name: Of the model.
            settings: What the use of its outputs depends on; always the same.

        Raises:
            ConfigError: If a file has changed since the model was loaded.
        """
        if not self._identity:
            settings_of_model = {
                "lower_case": self._lower_case,
                "max_tokens": self.max_tokens,
                "types": self._tells_types,
            }
            digest = self.contents.digest({**settings, **settings_of_model})
            self._identity = f"onnx:{name}:{digest}"
        return self._identity

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """The tokens of each text, without special ones, however many."""
        if self._lower_case:
            texts = [text.lower() for text in texts]
        encodings = self._tokenizer.encode_batch_fast(
            [_encodable(text) for text in texts], add_special_tokens=False
        )
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def unknown_share(self, text: str) -> float:
        """See `unknown_share`."""
        return unknown_share(self._tokenizer, text.lower() if self._lower_case else text)

    def run(self, rows: Sequence[Row], output: str) -> list[Output]:
        """One output for each of some rows, which are computed together.

        Raises:
            Exception: Whatever the runtime raises.
        """
        values = self._session.run([output], self._feeds(rows))[0].astype(np.float32, copy=False)
        report_usage(Usage(sum(map(len, rows)), 0))
        if values.ndim < 3:
            return list(values.reshape(len(rows), -1))
        return [value[: len(row)] for value, row in zip(values, rows, strict=True)]

    def rows_at_once(self, output: str, frame: Frame, batch_size: int | None) -> tuple[int, bool]:
        """How many rows to compute together, and whether they sway each other's outputs.

        A graph with dynamically quantised activations takes their scale from a whole batch. With
        all-MiniLM-L6-v2 in int8, the cosine between a text's vectors alone and in a batch is .993
        in the middle and .979 at worst: as much again as quantising has cost.

        Args:
            output: The output that is used.
            frame: The special tokens of a row.
            batch_size: What the user says; None for many, or one where rows sway each other.
        """
        texts = len(frame.types)
        room = max(1, (self.max_tokens - frame.size) // texts)
        rows = [frame.row(*[ids[:room]] * texts) for ids in self.ids(["a", _PROBE])]
        try:
            alone = [self.run([row], output)[0] for row in rows]
            together = self.run(rows, output)
        except Exception as exc:
            raise self._unfit(exc) from exc
        sway = any(
            np.linalg.norm(beside - single) > _BATCH_TOLERANCE * np.linalg.norm(single)
            for single, beside in zip(alone, together, strict=True)
        )
        if batch_size is None:
            return (1 if sway else _ROWS), False
        return validate_integer("batch_size", batch_size, 1), sway and batch_size > 1

    def _feeds(self, rows: Sequence[Row]) -> dict[str, AnyArray]:
        shape = len(rows), max(map(len, rows))
        values = {name: np.zeros(shape, np.int64) for name in _INPUTS}
        values["input_ids"] += self._padding
        values["position_ids"] += np.arange(shape[1])
        for number, row in enumerate(rows):
            values["input_ids"][number, : len(row)] = row.ids
            values["token_type_ids"][number, : len(row)] = row.types if self._tells_types else 0
            values["attention_mask"][number, : len(row)] = 1
        return {name: values[name].astype(kind, copy=False) for name, kind in self._inputs.items()}

    def _try(self) -> dict[str, int]:
        """Run the graph once, and say how many dimensions each of its outputs has."""
        names = [output.name for output in self._session.get_outputs()]
        try:
            values = self._session.run(names, self._feeds([self.one.row(*self.ids(["a"]))]))
        except Exception as exc:
            raise self._unfit(exc) from exc
        return {name: np.ndim(value) for name, value in zip(names, values, strict=True)}

    def _unfit(self, exc: Exception) -> ConfigError:
        return ConfigError(
            f"{self.path} fails on its first texts: {sentence(exc)} Is it a model of text, and its"
            " tokenizer's?"
        )


def unknown_share(tokenizer: Any, text: str) -> float:
    """Share of the letters of a text that a tokenizer does not know, as those of a language that it
    never saw.

    A letter outside ASCII is unknown if it is in an unknown token, if it is split into several
    tokens (its bytes), or if it belongs to a word of an alphabet that is spelled letter by letter,
    of four letters or more.

    Args:
        tokenizer: A tokenizer of the package tokenizers.
        text: The text.

    Returns:
        From 0 to 1; 0 for a text in ASCII or without letters.
    """
    if text.isascii():
        return 0.0
    text = _encodable(text)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    nothing = _unknown_token(tokenizer)
    covering = Counter(chain.from_iterable(starmap(range, encoding.offsets)))
    unknown = {at for at, count in covering.items() if count > 1}
    single = set()
    for token, (first, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if token == nothing:
            unknown.update(range(first, end))
        elif end == first + 1:
            single.add(first)
    for word in re.finditer(_ALPHABETIC_WORD, text):
        if single.issuperset(range(*word.span())):
            unknown.update(range(*word.span()))
    letters = [at for at, letter in enumerate(text) if letter.isalpha()]
    return sum(at in unknown and not text[at].isascii() for at in letters) / max(1, len(letters))


def _unknown_token(tokenizer: Any) -> int | None:
    """The token of what is not in the vocabulary; None if all can be written in bytes."""
    name = getattr(tokenizer.model, "unk_token", None)
    if name is not None:
        return cast("int | None", tokenizer.token_to_id(name))
    if type(tokenizer.model).__name__ != "Unigram":
        return None
    # Unigram models do not name theirs; all of them write a private character as it.
    ids = tokenizer.encode("\U0010fffd\U0010fffd", add_special_tokens=False).ids
    return int(ids[-1]) if ids else None


def _packages(name: str) -> tuple[ModuleType, ModuleType]:
    """Import the runtime and the tokenizers: packages of an extra."""
    if "onnxruntime" not in sys.modules:
        # From 1.29 on it reports to its maker unless this is set before it is imported; it also
        # leaves an id in the user's folder. Nothing here opens a connection that was not asked for;
        # who wants it sets the variable to 0.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    with optional_package(name, "onnx"):
        import onnxruntime
        import tokenizers
    return onnxruntime, tokenizers


def _max_tokens(folder: ModelFolder, limit: int | None) -> int:
    if limit is not None:
        return validate_integer("max_tokens", limit, 1, folder.positions)
    if folder.max_tokens is None:
        raise ConfigError(
            f"{folder.path} does not say how many tokens the model reads at once. Pass"
            " max_tokens=..., 512 for most."
        )
    return folder.max_tokens


def _load_tokenizer(tokenizers: ModuleType, path: Path) -> Any:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as exc:  # it raises nothing more special
        raise ConfigError(
            f"{path} cannot be used as a tokenizer: {sentence(exc)} Fetch the model again."
        ) from exc


def _padding(folder: ModelFolder, tokenizer: Any) -> int:
    """The token that fills up short rows; masked, but some graphs count positions by it."""
    pad_id = folder.read_json_object("config.json").get("pad_token_id")
    return pad_id if isinstance(pad_id, int) else int((tokenizer.padding or {}).get("pad_id", 0))


def _frame(tokenizer: Any, path: Path, *texts: str) -> Frame:
    encoding = tokenizer.encode(*texts)
    frame = Frame.from_encoding(encoding.ids, encoding.type_ids, encoding.sequence_ids)
    if len(frame.types) != len(texts):
        raise ConfigError(
            f"{path} has no token for the letter 'a'. Is it the tokenizer of a model of text?"
        )
    return frame


def _providers(runtime: ModuleType, providers: Sequence[str] | None) -> list[str]:
    """Execution providers that the installed runtime has."""
    if providers is None:
        return ["CPUExecutionProvider"]
    available = runtime.get_available_providers()
    expected = f"names of execution providers; the installed onnxruntime has {available}"
    is_valid = bool(is_list_of(providers, str) and providers) and {*providers} <= {*available}
    require(is_valid, "providers", providers, expected)
    return list(providers)


def _load_graph(runtime: ModuleType, path: Path, threads: int, providers: list[str]) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for work would spin: twice the processor time, taken from other batches and
    # programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors: what it warns of nobody here can change
    try:
        session = runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as exc:  # its errors have no base of their own
        raise ConfigError(
            f"{path} cannot be loaded: {sentence(exc)} Fetch or export the model again."
        ) from exc
    # A provider that cannot start, for example without CUDA's libraries, is left out silently.
    if not {*providers} <= {*session.get_providers()}:
        raise ConfigError(
            f"onnxruntime started {session.get_providers()} of providers={providers}. Install the"
            " libraries and the driver that the missing one needs, or leave it out."
        )
    return session


def _checked_inputs(path: Path, inputs: Sequence[Any]) -> dict[str, type]:
    """What a graph wants to be fed, by name."""
    for node in inputs:
        if node.name not in _INPUTS or node.type not in _TYPES:
            raise ConfigError(
                f"{path} wants {node.name!r} as {node.type}; a model of text takes"
                f" {', '.join(_INPUTS)} as numbers."
            )
        if any(isinstance(size, int) for size in node.shape):
            raise ConfigError(
                f"{path} wants {node.name!r} of shape {node.shape}. Export it again with free batch"
                " and sequence axes."
            )
    return {node.name: _TYPES[node.type] for node in inputs}


def _encodable(text: str) -> str:
    """A text whose broken characters, halves of surrogate pairs, are replaced by U+FFFD: no
    encoding has them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
