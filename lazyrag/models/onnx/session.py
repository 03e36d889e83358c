"""A graph and its tokenizer: the one place that knows onnxruntime and tokenizers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.errors import ConfigError, missing_package, sentence
from lazyrag.models.onnx.files import TOKENIZER, Contents, ModelFolder, with_data
from lazyrag.models.onnx.token_rows import Frame, Ids, Output, Row
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INPUTS = ("attention_mask", "input_ids", "position_ids", "token_type_ids")
_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(bool)": np.bool_,
}
_ROWS = 32
_SWAYED = 1e-3  # relative. A float32 graph gave the same to the last bit, an int8 one differed by 1e-1.
_PROBE = "The quick brown fox jumps over the lazy dog, 1234567890 times!"


class TextModel:
    """An ONNX graph that reads tokens, with its tokenizer; safe for concurrent use.

    Args:
        what: Who needs it, for messages.
        folder: Where it lies.
        file: The graph's file in the folder; None means the usual one.
        max_tokens: At most so many tokens in a row, special ones included; None means the model's own limit.
        threads: Threads that share the work of one call, at least 1; None leaves it to the runtime: one for each core.

    Raises:
        ConfigError: If a file is missing or cannot be used, or a value is out of its range.
        MissingDependencyError: If a package is not installed.
    """

    def __init__(
        self,
        what: str,
        folder: ModelFolder,
        *,
        file: str | None = None,
        max_tokens: int | None = None,
        threads: int | None = None,
    ) -> None:
        runtime, tokenizers = _packages(what)
        threads = 0 if threads is None else whole_number("threads", threads, 1)
        self.path = folder.graph(file)
        vocabulary = folder.file(TOKENIZER)
        self.max_tokens = _max_tokens(folder, max_tokens)
        self.contents = Contents.of([*with_data(self.path), vocabulary])
        self._lower_case = folder.lower_case
        self._tokenizer = _load_tokenizer(tokenizers, vocabulary)
        self._padding = _padding(folder, self._tokenizer)
        # What the file says of lengths is of no use: all-MiniLM-L6-v2's cuts off at 128 of its 256 tokens, and pads to
        # as many.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.one = _frame(self._tokenizer, vocabulary, "a")
        self.two = _frame(self._tokenizer, vocabulary, "a", "a")
        self._session = _load_graph(runtime, self.path, threads)
        self._inputs = _checked_inputs(self.path, self._session.get_inputs())
        # Some tokenizers do not tell a model which text a token belongs to, though its graph could be told.
        named = folder.described("tokenizer_config.json").get("model_input_names")
        self._tells_types = not isinstance(named, list) or "token_type_ids" in named
        self.ranks = self._try()

    @property
    def settings(self) -> dict[str, Any]:
        """What its outputs depend on beside its files' contents."""
        return {"lower_case": self._lower_case, "max_tokens": self.max_tokens, "types": self._tells_types}

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """The tokens of each text, without special ones, however many."""
        if self._lower_case:
            texts = [text.lower() for text in texts]
        encodings = self._tokenizer.encode_batch_fast([_encodable(text) for text in texts], add_special_tokens=False)
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def run(self, rows: Sequence[Row], output: str) -> list[Output]:
        """One output for each of some rows, which are computed together.

        Raises:
            Exception: Whatever the runtime raises.
        """
        values = self._session.run([output], self._feeds(rows))[0].astype(np.float32, copy=False)
        if values.ndim < 3:
            return list(values.reshape(len(rows), -1))
        return [value[: len(row)] for value, row in zip(values, rows, strict=True)]

    def sways(self, output: str, frame: Frame) -> bool:
        """Whether a row's output depends on the rows beside it, seen on two of them.

        A graph with dynamically quantised activations takes their scale from a whole batch. With all-MiniLM-L6-v2 in
        int8, the cosine between a text's vectors alone and in a batch is .993 in the middle and .979 at worst: as much
        again as quantising has cost.
        """
        texts = len(frame.types)
        room = max(1, (self.max_tokens - frame.size) // texts)
        rows = [frame.row(*[ids[:room]] * texts) for ids in self.ids(["a", _PROBE])]
        try:
            alone = [self.run([row], output)[0] for row in rows]
            together = self.run(rows, output)
        except Exception as exc:
            raise self._unfit(exc) from exc
        return any(
            np.linalg.norm(beside - own) > _SWAYED * np.linalg.norm(own)
            for own, beside in zip(alone, together, strict=True)
        )

    def _feeds(self, rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
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
        msg = f"{self.path} fails on its first texts: {sentence(exc)} Is it a model of text, and its tokenizer's?"
        return ConfigError(msg)


def rows_at_once(batch_size: int | None, *, sways: bool) -> int:
    """How many rows to compute together: what the user says, else many, or one where rows sway each other."""
    if batch_size is None:
        return 1 if sways else _ROWS
    return whole_number("batch_size", batch_size, 1)


def _packages(what: str) -> tuple[ModuleType, ModuleType]:
    """Import the runtime and the tokenizers: packages of an extra."""
    if "onnxruntime" not in sys.modules:
        # From 1.29 on it reports to its maker unless this is set before it is imported; it also leaves an id in the
        # user's folder. Nothing here opens a connection that was not asked for; who wants it sets the variable to 0.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
        import tokenizers
    except ModuleNotFoundError as exc:
        raise missing_package(what, exc, "onnx") from exc
    return onnxruntime, tokenizers


def _max_tokens(folder: ModelFolder, wanted: int | None) -> int:
    if wanted is not None:
        return whole_number("max_tokens", wanted, 1, folder.positions)
    if folder.max_tokens is None:
        msg = f"{folder.path} does not say how many tokens the model reads at once. Pass max_tokens=..., 512 for most."
        raise ConfigError(msg)
    return folder.max_tokens


def _load_tokenizer(tokenizers: ModuleType, path: Path) -> Any:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as exc:  # it raises nothing more special
        msg = f"{path} cannot be used as a tokenizer: {sentence(exc)} Fetch the model again."
        raise ConfigError(msg) from exc


def _padding(folder: ModelFolder, tokenizer: Any) -> int:
    """The token that fills up short rows; masked, but some graphs count positions by it."""
    told = folder.described("config.json").get("pad_token_id")
    return told if isinstance(told, int) else int((tokenizer.padding or {}).get("pad_id", 0))


def _frame(tokenizer: Any, path: Path, *texts: str) -> Frame:
    encoding = tokenizer.encode(*texts)
    frame = Frame.seen_in(encoding.ids, encoding.type_ids, encoding.sequence_ids)
    if len(frame.types) != len(texts):
        msg = f"{path} has no token for the letter 'a'. Is it the tokenizer of a model of text?"
        raise ConfigError(msg)
    return frame


def _load_graph(runtime: ModuleType, path: Path, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors: what it warns of nobody here can change
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # its errors have no base of their own
        msg = f"{path} cannot be loaded: {sentence(exc)} Fetch or export the model again."
        raise ConfigError(msg) from exc


def _checked_inputs(path: Path, inputs: Sequence[Any]) -> dict[str, type]:
    """What a graph wants to be fed, by name."""
    for one in inputs:
        if one.name not in _INPUTS or one.type not in _TYPES:
            msg = f"{path} wants {one.name!r} as {one.type}; a model of text takes {', '.join(_INPUTS)} as numbers."
            raise ConfigError(msg)
        if any(isinstance(size, int) for size in one.shape):
            msg = f"{path} wants {one.name!r} of shape {one.shape}. Export it again with free batch and sequence axes."
            raise ConfigError(msg)
    return {one.name: _TYPES[one.type] for one in inputs}


def _encodable(text: str) -> str:
    """A text whose broken characters, halves of surrogate pairs, are replaced by U+FFFD: no encoding has them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
