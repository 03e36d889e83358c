"""A folder with a model: its files, their hashes and its settings."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError, known_names, sentence
from lazyrag.models.protocols import InputType
from lazyrag.types import JsonObject, Keywords

TOKENIZER = "tokenizer.json"
_USUAL_GRAPHS = (
    "model.onnx",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    "model_quantized.onnx",
)


_PROMPTS: dict[InputType, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}


# what is above says "no limit": a tokenizer's model_max_length is often 1e30
_MAX_LENGTH = 1_000_000
# Their first position is the one after the padding token's, so the table of positions has so many
# rows more than a text may have tokens (transformers, create_position_ids_from_input_ids).
_OFFSET_POSITIONS = frozenset(
    "camembert data2vec-text esm ibert longformer luke mluke mpnet roberta roberta-prelayernorm"
    " xlm-roberta xlm-roberta-xl xmod".split()
)


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with a model.

    Args:
        path: Where it lies.
        name: What people call the model: the folder's name, or the last part of its id on the hub.
    """

    path: Path
    name: str

    def file(self, name: str) -> Path:
        """A file that must be there.

        Raises:
            ConfigError: If it is not.
        """
        path = self.path / name
        if not path.is_file():
            raise ConfigError(
                f"{self.path} has no {name}. It lies beside the model's other files where the model"
                " comes from."
            )
        return path

    def graph(self, file: str | None = None) -> Path:
        """The ONNX file: the one that is wanted, else the usual one, else the only one; see
        `choose_graph`.
        """
        paths = [*self.path.glob("*.onnx"), *self.path.glob("*/*.onnx")]
        graphs = [path.relative_to(self.path) for path in paths]
        return self.path / choose_graph([path.as_posix() for path in graphs], file, str(self.path))

    def read_json_object(self, name: str) -> JsonObject:
        """Read a file with a JSON object; {} if it is missing.

        Raises:
            ConfigError: If it cannot be read, or holds something else.
        """
        value = self._json(name, {})
        if not isinstance(value, dict):
            raise self._unusable(name, f"it holds {value!r:.60}, not an object")
        return value

    def modules(self) -> list[JsonObject] | None:
        """The steps from a text to a vector that sentence-transformers' modules.json lists; None
        where it is missing.

        Raises:
            ConfigError: If it cannot be read, or is no list of objects.
        """
        value = self._json("modules.json", None)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(module, dict) for module in value)
        ):
            raise self._unusable("modules.json", f"it holds {value!r:.60}, not a list of objects")
        return value

    def _json(self, name: str, missing: Any) -> Any:
        """The value in a JSON file."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return missing
        except (OSError, ValueError, RecursionError) as exc:
            raise self._unusable(name, str(exc)) from exc

    def _unusable(self, name: str, why: str) -> ConfigError:
        return ConfigError(
            f"{self.path / name} cannot be used: {sentence(why)} Fetch the model again."
        )

    @property
    def max_tokens(self) -> int | None:
        """How many tokens the model says that it reads at once, the special ones included; None if
        it does not say.

        That is ``max_seq_length`` of sentence_bert_config.json, or else the tokenizer's
        ``model_max_length``; in any case no more than there are positions.
        """
        declared = _length(self._sentence_settings().get("max_seq_length"))
        declared = declared or _length(
            self.read_json_object("tokenizer_config.json").get("model_max_length")
        )
        limits = [length for length in (declared, self.positions) if length]
        return min(limits) if limits else None

    @property
    def positions(self) -> int | None:
        """The largest number of tokens that the model has positions for; None where config.json
        does not say.
        """
        config = self.read_json_object("config.json")
        positions = _length(config.get("max_position_embeddings"))
        if positions and config.get("model_type") in _OFFSET_POSITIONS:
            padding = config.get("pad_token_id", 1)
            positions -= (padding if isinstance(padding, int) else 1) + 1
        return positions

    def prefix(self, input_type: InputType) -> str:
        """What config_sentence_transformers.json says to put before a query or a document; "" where
        it says nothing.
        """
        settings = self.read_json_object("config_sentence_transformers.json")
        prompts = settings.get("prompts")
        names = (*_PROMPTS[input_type], str(settings.get("default_prompt_name")))
        defined = (
            [prompts[name] for name in names if name in prompts]
            if isinstance(prompts, dict)
            else []
        )
        return next((prompt for prompt in defined if isinstance(prompt, str)), "")

    @property
    def dimension(self) -> int | None:
        """How many first numbers of each vector config_sentence_transformers.json keeps; None for
        all.
        """
        return _length(
            self.read_json_object("config_sentence_transformers.json").get("truncate_dim")
        )

    @property
    def lower_case(self) -> bool:
        """Whether sentence_bert_config.json wants texts in lower case, whatever the tokenizer
        does.
        """
        return self._sentence_settings().get("do_lower_case") is True

    def _sentence_settings(self) -> JsonObject:
        """sentence_bert_config.json, or the one of another name that older models have in its
        place.
        """
        names = sorted(path.name for path in self.path.glob("sentence_*_config.json"))
        return self.read_json_object(names[0]) if names else {}


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """Record size and modification time of files.

    Args:
        stamps: Of each file its size in bytes and the time of its last change, in nanoseconds.
    """

    stamps: Mapping[Path, tuple[int, int]]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> FileFingerprint:
        """Record these files."""
        return cls({path: _stamp(path) for path in paths})

    def digest(self, settings: Keywords) -> str:
        """Hash the files' bytes, not their paths, and settings that JSON can hold: 16 hexadecimal
        digits.

        Raises:
            ConfigError: If a file has changed since it was recorded.
        """
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for path, stamp in self.stamps.items():
            try:
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
                unchanged = _stamp(path) == stamp
            except FileNotFoundError:
                unchanged = False
            if not unchanged:
                raise ConfigError(
                    f"{path} has changed since the model was loaded. Load the model again."
                )
        return digest.hexdigest()[:16]


def choose_graph(files: Iterable[str], requested: str | None, where: str) -> str:
    """Which of a model's files is its ONNX graph.

    Args:
        files: Paths in the folder, with slashes.
        requested: The one that was asked for; None means the usual one, else the only one.
        where: Whose files they are, for messages.

    Raises:
        ConfigError: If there is none, not that one, or several and none of them the usual one.

    Example:
        >>> files = ["config.json", "onnx/model_O4.onnx", "onnx/model.onnx"]
        >>> choose_graph(files, None, "the model")
        'onnx/model.onnx'
    """
    graphs = sorted(file for file in files if file.endswith(".onnx"))
    if requested is not None:
        if requested not in graphs:
            raise ConfigError(
                f"file is {requested!r}; {where} has no such ONNX file."
                f" {known_names(requested, graphs)}"
            )
        return requested
    if not graphs:
        raise ConfigError(
            f"{where} has no ONNX file. Export the model ('optimum-cli export onnx --model NAME"
            " FOLDER'), or use sentence-transformers for it."
        )
    usual = next((graph for graph in _USUAL_GRAPHS if graph in graphs), None)
    if usual is None and len(graphs) > 1:
        raise ConfigError(
            f"{where} has several ONNX files: {', '.join(graphs)}. Say which one:"
            f" file={graphs[0]!r}."
        )
    return usual or graphs[0]


# weights that optimum stores in files of their own, as for bge-m3
TENSORS = "Constant_*_attr__value"


def graph_files(graph: Path) -> list[Path]:
    """Files of a graph: its own, and those that hold its weights if it is larger than 2 GB."""
    folder = graph.parent
    weights = [*folder.glob(data_pattern(graph.name)), *folder.glob(TENSORS)]
    return [graph, *sorted(weights)]


def data_pattern(graph: str) -> str:
    """The pattern of such files' names: model.onnx_data, model.onnx.data, model.onnx_data_1."""
    return f"{glob.escape(graph)}?data*"


def _length(value: Any) -> int | None:
    """A length in tokens if it is one: some files say -1, null or 1e30."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if number and 1 <= value <= _MAX_LENGTH else None


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
