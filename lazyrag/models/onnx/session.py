"""Model folders, ONNX graphs with their tokenizers, pooling, and batches of token rows."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from lazyrag.errors import ConfigError, DatasetPathError, known_names, missing_package, sentence
from lazyrag.models.concurrency import map_in_threads
from lazyrag.models.protocols import InputType, Usage, report_usage
from lazyrag.types import Matrix, Vector
from lazyrag.validation import require, validate_boolean, validate_choice, validate_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
_ALPHABETIC_WORD = re.compile("[^\\W\\d_\u1100-\U0010ffff]{4,}")  # not of syllables or ideographs
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
            msg = (
                f"{self.path} has no {name}. It lies beside the model's other files where the model"
                " comes from."
            )
            raise ConfigError(msg)
        return path

    def graph(self, file: str | None = None) -> Path:
        """The ONNX file: the one that is wanted, else the usual one, else the only one; see
        `choose_graph`.
        """
        graphs = [
            path.relative_to(self.path)
            for pattern in ("*.onnx", "*/*.onnx")
            for path in self.path.glob(pattern)
        ]
        return self.path / choose_graph([path.as_posix() for path in graphs], file, str(self.path))

    def read_json_object(self, name: str) -> dict[str, Any]:
        """Read a file with a JSON object; {} if it is missing.

        Raises:
            ConfigError: If it cannot be read, or holds something else.
        """
        value = self._json(name, {})
        if not isinstance(value, dict):
            raise self._unusable(name, f"it holds {value!r:.60}, not an object")
        return value

    def modules(self) -> list[dict[str, Any]] | None:
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

    def _sentence_settings(self) -> dict[str, Any]:
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

    def digest(self, settings: Mapping[str, Any]) -> str:
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
        >>> choose_graph(["config.json", "onnx/model_O4.onnx", "onnx/model.onnx"], None, "the model")
        'onnx/model.onnx'
    """
    graphs = sorted(file for file in files if file.endswith(".onnx"))
    if requested is not None:
        if requested not in graphs:
            raise ConfigError(
                f"file is {requested!r}; {where} has no such ONNX file. {known_names(requested, graphs)}"
            )
        return requested
    if not graphs:
        msg = (
            f"{where} has no ONNX file. Export the model ('optimum-cli export onnx --model NAME"
            " FOLDER'), or use sentence-transformers for it."
        )
        raise ConfigError(msg)
    usual = next((graph for graph in _USUAL_GRAPHS if graph in graphs), None)
    if usual is None and len(graphs) > 1:
        raise ConfigError(
            f"{where} has several ONNX files: {', '.join(graphs)}. Say which one:"
            f" file={graphs[0]!r}."
        )
    return usual or graphs[0]


# weights that optimum stores in files of their own, as for bge-m3
_TENSORS = "Constant_*_attr__value"


def graph_files(graph: Path) -> list[Path]:
    """Files of a graph: its own, and those that hold its weights if it is larger than 2 GB."""
    return [
        graph,
        *sorted(
            path
            for pattern in (data_pattern(graph.name), _TENSORS)
            for path in graph.parent.glob(pattern)
        ),
    ]


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


_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_DESCRIPTIONS = (
    "config.json",
    "modules.json",
    "sentence_*_config.json",
    "config_sentence_transformers.json",
    "*/config.json",
    TOKENIZER,
    "tokenizer_config.json",
)
"""All that is fetched beside a graph: patterns of paths."""


class AmbiguousModelError(ConfigError):
    """Several models on this machine have the name."""


def find_model(
    model: str | os.PathLike[str],
    *,
    revision: str | None = None,
    download: bool = False,
    file: str | None = None,
    marker_files: Sequence[str] = (TOKENIZER,),
    on_fetch: Callable[[str], None] | None = None,
) -> ModelFolder:
    """A model's folder: the one that is given, else the hub's or ModelScope's snapshot on this
    machine.

    Args:
        model: A folder, or an id on the hub: ``"organisation/name"``, or the name alone if only one
            model on this machine has it.
        revision: A branch, tag or commit on the hub; None means its main branch.
        download: Whether to fetch from the hub (or the mirror ``HF_ENDPOINT``) what is not on this
            machine yet. Nothing else opens a connection.
        file: The ONNX file that will be needed, as a path in the folder; None means the usual one.
        marker_files: File names; a snapshot on this machine that has any of them is the model.
        on_fetch: Called before a download with a line that says what is fetched, and its size.

    Raises:
        ConfigError: If it is not there (`DatasetPathError` where it cannot be an id either), or
            cannot be fetched.
        MissingDependencyError: If an id is given and huggingface_hub is not installed.
    """
    if not isinstance(model, (str, os.PathLike)) or not str(model).strip():
        raise ConfigError(
            f"The model is {model!r:.80}; give a folder, or an id on the hub: 'organisation/name'."
        )
    path = Path(model).expanduser()
    if path.is_dir():
        if revision is not None:
            msg = (
                f"revision is {revision!r} and {str(model)!r} a folder; only models on the hub have"
                " revisions."
            )
            raise ConfigError(msg)
        return ModelFolder(path, _name(path.resolve()))
    if path.is_file():
        raise ConfigError(
            f"{str(model)!r} is a file; give the model's folder, and file={path.name!r} if it has"
            " several."
        )
    identifier = str(model)
    if not _HUB_ID.fullmatch(identifier):
        msg = (
            f"There is no folder {identifier!r}. Give a folder with a model, or an id on the hub:"
            " 'organisation/name'."
        )
        raise DatasetPathError(msg)
    identifier = identifier if "/" in identifier else _full_id(identifier)
    folder = next(
        (snapshot for name in marker_files if (snapshot := _cached(identifier, revision, name))),
        None,
    )
    if folder is None and revision is None:
        paths = (
            path
            for path in _in_modelscope(identifier)
            if any((path / name).is_file() for name in marker_files)
        )
        folder = next((ModelFolder(path, _last(identifier)) for path in paths), None)
    if download and not _complete(folder, file):
        folder = _fetch(identifier, revision, file, on_fetch)
    if folder is None:
        at = "" if revision is None else f" at revision {revision!r}"
        msg = (
            f"{identifier!r} is not on this machine: no folder, and no model of that id{at} in the"
            f" cache of the hub or of ModelScope. Run: {ways_to_download(identifier)}. Or pass the"
            " model's folder; in Python, download=True fetches it."
        )
        raise ConfigError(msg)
    return folder


def _hub() -> ModuleType:
    # An extra's package, and a slow one: half a second.
    try:
        import huggingface_hub.constants  # which the package does not load by itself
    except ModuleNotFoundError as exc:
        raise missing_package("Loading a model by hub id", exc, "onnx") from exc
    return huggingface_hub


def ways_to_download(identifier: str) -> str:
    """The commands that bring a model to this machine, also behind a mirror.

    Example:
        >>> ways_to_download("org/name").rpartition(", or ")[2]
        'modelscope download --model org/name'
    """
    full = identifier if "/" in identifier else f"ORGANISATION/{identifier}"
    mirror = os.environ.get("HF_ENDPOINT") or "https://MIRROR"
    return (
        f"lazyrag model fetch {full}, or behind a mirror HF_ENDPOINT={mirror} lazyrag model fetch"
        f" {full}, or modelscope download --model {full}"
    )


def _full_id(name: str) -> str:
    """The id of the only model of a name on this machine; the name if there is none.

    Raises:
        ConfigError: If there are several.
    """
    folders = Path(_hub().constants.HF_HUB_CACHE).glob(f"models--*--{name}")
    ids = {folder.name.removeprefix("models--").replace("--", "/") for folder in folders}
    ids |= {f"{folder.parent.name}/{name}" for folder in _in_modelscope(f"*/{name}")}
    if len(ids) > 1:
        raise AmbiguousModelError(
            f"Several models on this machine are called {name!r}. Give one id:"
            f" {', '.join(sorted(ids))}."
        )
    return ids.pop() if ids else name


def _in_modelscope(pattern: str) -> Iterator[Path]:
    """The folders in ModelScope's cache of an id, in which it writes "." as "___"."""
    root = Path(os.environ.get("MODELSCOPE_CACHE") or "~/.cache/modelscope/hub").expanduser()
    for base in (root / "models", root, root / "hub" / "models", root / "hub"):
        for spelling in dict.fromkeys((pattern, pattern.replace(".", "___"))):
            yield from sorted(base.glob(spelling))


def _cached(identifier: str, revision: str | None, name: str) -> ModelFolder | None:
    """The snapshot on this machine that has a file of this name. Looks at the disk only."""
    try:
        path = _hub().try_to_load_from_cache(identifier, name, revision=revision)
    except ValueError as exc:
        raise ConfigError(
            f"{identifier!r} is neither a folder nor an id on the hub: {exc}"
        ) from exc
    return ModelFolder(Path(path).parent, _last(identifier)) if isinstance(path, str) else None


def _complete(folder: ModelFolder | None, file: str | None) -> bool:
    if folder is None:
        return False
    try:
        folder.graph(file)
    except ConfigError:
        return False
    return True


def _fetch(
    identifier: str, revision: str | None, file: str | None, on_fetch: Callable[[str], None] | None
) -> ModelFolder:
    """Download a graph, and what describes it, into the hub's cache.

    A complete file is kept, a partial one starts again. The tokenizer comes last: before it
    `find_model` finds nothing.
    """
    hub = _hub()
    try:
        entries = (
            hub.HfApi().model_info(identifier, revision=revision, files_metadata=True).siblings
            or []
        )
        siblings = {sibling.rfilename: sibling for sibling in entries}
        graph, names = _wanted(identifier, siblings, file)
        if on_fetch is not None:
            on_fetch(
                _announcement(
                    identifier, graph, names, {name: siblings[name].size or 0 for name in siblings}
                )
            )
        for name in names:
            path = Path(hub.hf_hub_download(identifier, name, revision=revision))
            _verify(path, siblings[name].lfs)
    except ConfigError:
        raise
    except (
        Exception
    ) as exc:  # whatever the client raises: its errors differ from release to release
        msg = (
            f"{identifier!r} cannot be fetched from {hub.constants.ENDPOINT}:"
            f" {_reason(exc, identifier, revision)}"
        )
        raise ConfigError(msg) from exc
    return ModelFolder(path.parent, _last(identifier))


def _wanted(identifier: str, files: Iterable[str], file: str | None) -> tuple[str, list[str]]:
    """The graph, and the files to download for it, the tokenizer last."""
    names = sorted(files, key=lambda name: (name == TOKENIZER, name))
    graph = choose_graph(names, file, f"{identifier!r} on the hub")
    if TOKENIZER not in names:
        raise ConfigError(
            f"{identifier!r} on the hub has no {TOKENIZER}. Choose a model that has one."
        )
    beside = f"{glob.escape(graph.rpartition('/')[0])}/{_TENSORS}".lstrip("/")
    patterns = (*_DESCRIPTIONS, glob.escape(graph), data_pattern(graph), beside)
    return graph, [
        name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _announcement(
    identifier: str, graph: str, names: Sequence[str], sizes: Mapping[str, int]
) -> str:
    graphs = [name for name in sizes if name.endswith(".onnx") and 0 < sizes[name] < sizes[graph]]
    least = min(graphs, key=sizes.__getitem__, default="")
    smaller = f" Smaller: --file {least} ({sizes[least] / 1e6:,.0f} MB)." if least else ""
    total = sum(sizes[name] for name in names) / 1e6
    return (
        f"Fetching {identifier}: {graph} and {len(names) - 1} more files, {total:,.1f} MB.{smaller}"
    )


def _verify(path: Path, stored: Any) -> None:
    """Compare a file with the SHA-256 that the hub has of large ones."""
    expected = getattr(stored, "sha256", None)
    if not expected:
        return
    with path.open("rb") as file:
        damaged = hashlib.file_digest(file, "sha256").hexdigest() != expected
    if damaged:
        path.resolve().unlink()  # the blob, of which the snapshot has a link
        path.unlink(missing_ok=True)
        raise ConfigError(
            f"{path.name} is damaged: its SHA-256 is not the hub's. It is deleted; fetch the model"
            " again."
        )


def _reason(exc: Exception, identifier: str, revision: str | None) -> str:
    """Why a download failed, and the way out."""
    hub = _hub()
    kinds = {kind.__name__ for kind in type(exc).__mro__}
    status = getattr(getattr(exc, "response", None), "status_code", None)
    if "OfflineModeIsEnabled" in kinds:
        return (
            "HF_HUB_OFFLINE is set. Unset it, or copy the model's folder from another machine and"
            " pass that folder."
        )
    if "GatedRepoError" in kinds or status == 403:
        page = f"{hub.constants.ENDPOINT}/{identifier}"
        return (
            f"access is restricted. Accept the terms at {page}, then set HF_TOKEN or run: hf auth"
            " login"
        )
    if status in (401, 404):
        at = "" if revision is None else f" and the revision {revision!r}"
        example = "organisation/name, such as sentence-transformers/all-MiniLM-L6-v2"
        return (
            f"there is no such public model. Check the id{at}: {example}. A private one needs"
            " HF_TOKEN."
        )
    if isinstance(exc, OSError) and exc.errno == errno.ENOSPC:
        return (
            f"no space is left in {hub.constants.HF_HUB_CACHE}. Free some, or set HF_HOME to a"
            " folder on another disk."
        )
    why = sentence(" ".join(str(exc).split()))
    way = (
        "set a mirror: HF_ENDPOINT=https://MIRROR, or copy the model's folder to this machine and"
        " pass that folder."
    )
    return f"{why} Check the network, {way}"


def _name(path: Path) -> str:
    # A snapshot in the hub's cache lies at models--organisation--name/snapshots/commit.
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2]
    return path.name


def _last(identifier: str) -> str:
    return identifier.rpartition("/")[2]


# By the name in older configurations, in the order in which several of them are concatenated.
_OLDER_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLINGS = tuple(_OLDER_NAMES.values())

_SUPPORTED_MODULES = {
    "Transformer",
    "Pooling",
    "Normalize",
    "Dropout",
}  # modules that need no step here; dropout is for training
_SMALLEST = 1e-12  # a shorter vector is left as it is: torch.nn.functional.normalize does so too


@dataclass(frozen=True, slots=True)
class PoolingSettings:
    """How a model folder turns token vectors into one vector.

    Args:
        poolings: Names from `POOLINGS`, concatenated in this order; () if the folder does not say.
        normalise: Whether the result is brought to length 1; None if the folder does not say.
        with_prefix: Whether the tokens of a prefix, and the special ones before it, are pooled.
        others: Classes of modules that only the graph itself can compute.
    """

    poolings: tuple[str, ...] = ()
    normalise: bool | None = None
    with_prefix: bool = True
    others: tuple[str, ...] = ()


def read_pooling_settings(folder: ModelFolder) -> PoolingSettings:
    """The steps that modules.json and the pooling's config.json name.

    Raises:
        ConfigError: If a file is broken, or a pooling unknown.
    """
    modules = folder.modules()
    if modules is None:  # some exports keep the pooling's folder only
        return _pooled(folder, "1_Pooling")
    # A module is known by its class alone: the packages around it have moved from release to
    # release.
    by_class = {
        str(module.get("type")).rpartition(".")[2]: str(module.get("path") or "")
        for module in modules
    }
    steps = _pooled(folder, by_class["Pooling"]) if "Pooling" in by_class else PoolingSettings()
    others = tuple(name for name in by_class if name not in _SUPPORTED_MODULES)
    return replace(steps, normalise="Normalize" in by_class, others=others)


def checked_poolings(option: str, names: Any) -> tuple[str, ...]:
    """Poolings by name: one, or several in a list.

    Raises:
        ConfigError: If one is unknown.

    Example:
        >>> checked_poolings("pooling", "mean"), checked_poolings("pooling", ["cls", "max"])
        (('mean',), ('cls', 'max'))
    """
    listed = [names] if isinstance(names, str) else names
    require(
        isinstance(listed, (list, tuple)) and len(listed) > 0,
        option,
        names,
        f"one or several of {POOLINGS}",
    )
    return tuple(validate_choice(option, name, POOLINGS) for name in listed)


def pooled(hidden: Matrix, poolings: Sequence[str], start: int = 0) -> Vector:
    """One vector for a text from those of its tokens.

    Args:
        hidden: (tokens, dim) float32, without padding.
        poolings: Names from `POOLINGS`; several are concatenated.
        start: The first token that takes part, below their number.

    Returns:
        (dim x number of poolings,) float32.

    Source:
        sentence-transformers, Pooling; weightedmean: Muennighoff, SGPT, arXiv:2202.08904, section
        3.1.

    Example:
        >>> pooled(np.array([[1, 2], [3, 6]], np.float32), ["mean", "max"])
        array([2., 4., 3., 6.], dtype=float32)
    """
    return np.concatenate([_pool(hidden, start, name) for name in poolings])


def normalised(vectors: Matrix) -> Matrix:
    """Vectors brought to length 1; one without length stays as it is.

    Args:
        vectors: (..., dim) float32.

    Example:
        >>> normalised(np.array([[3, 4], [0, 0]], np.float32))
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Matrix = vectors / np.maximum(lengths, np.float32(_SMALLEST))
    return scaled


def _pooled(folder: ModelFolder, path: str) -> PoolingSettings:
    name = f"{path}/config.json"
    config = folder.read_json_object(name)
    if not config:
        return PoolingSettings()
    named = config.get("pooling_mode") or [
        mode for key, mode in _OLDER_NAMES.items() if config.get(key) is True
    ]
    poolings = checked_poolings(f"pooling in {folder.path / name}", named or "mean")
    return PoolingSettings(poolings, with_prefix=config.get("include_prompt", True) is not False)


def _pool(hidden: Matrix, start: int, pooling: str) -> Vector:
    tokens = hidden[start:]
    result: Vector
    if pooling == "cls":
        result = tokens[0]
    elif pooling == "lasttoken":
        result = tokens[-1]
    elif pooling == "max":
        result = tokens.max(axis=0)
    elif pooling == "weightedmean":  # later tokens of a decoder have seen more of the text
        positions = np.arange(start + 1, len(hidden) + 1, dtype=np.float32)
        result = positions @ tokens / positions.sum()
    else:
        result = tokens.sum(axis=0) / np.float32(
            len(tokens) if pooling == "mean" else len(tokens) ** 0.5
        )
    return result


T = TypeVar("T")

Ids: TypeAlias = "NDArray[np.int64]"
"""Tokens by their numbers in the vocabulary: shape (n,), int64."""

Output: TypeAlias = "NDArray[np.float32]"
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
            >>> frame = Frame.from_encoding([101, 7, 102, 8, 102], [0, 0, 0, 1, 1], [None, 0, None, 1, None])
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
        for text, kind, (special, special_types) in zip(
            texts, self.types, self.specials[1:], strict=True
        ):
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
        done = [
            text
            for text in dict.fromkeys(rows[number][0] for number in batch)
            if len(parts[text]) == missing[text]
        ]
        yield [
            (text, [result for _, result in sorted(parts.pop(text).items(), key=itemgetter(0))])
            for text in done
        ]


TooLong = Literal["split", "raise", "cut"]

_READY = "sentence_embedding"
_HIDDEN = ("last_hidden_state", "token_embeddings")


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a vector depends on beside the files of its model.

    Args:
        output: Which of the graph's outputs.
        hidden: Whether that has a vector for each token, or one for each text.
        poolings: How token vectors become one, by name; () where the graph has done it.
        normalise: Whether vectors are brought to length 1.
        with_prefix: Whether the tokens of a prefix are pooled.
        dimension: How many first numbers are kept; None keeps all.
        query_prefix: Put before queries.
        document_prefix: Put before documents.
        too_long: What becomes of a text that is longer than the model reads.
    """

    output: str
    hidden: bool
    poolings: tuple[str, ...]
    normalise: bool
    with_prefix: bool
    dimension: int | None
    query_prefix: str
    document_prefix: str
    too_long: TooLong

    def prefix(self, input_type: InputType) -> str:
        """What is put before a text of this type."""
        return self.query_prefix if input_type == "query" else self.document_prefix

    def of_row(self, row: Row, output: Output) -> tuple[int, Vector]:
        """How many tokens of its text a row has, and its vector, from what the graph says: (tokens,
        dim), or (dim,).
        """
        first = row.start if row.prefixed and not self.with_prefix else 0
        vector = pooled(output, self.poolings, first) if self.hidden else output
        return row.stop - row.start, normalised(vector) if self.normalise else vector

    def of_text(self, rows: Sequence[tuple[int, Vector]]) -> Vector:
        """The vector of a text from those of its windows: their average, weighted by their numbers
        of tokens.

        Source:
            OpenAI Cookbook, "Embedding texts that are longer than the model's maximum context
            length".
        """
        weights, vectors = zip(*rows, strict=True)
        average = (
            vectors[0]
            if len(rows) == 1
            else np.average(vectors, axis=0, weights=weights).astype(np.float32)
        )
        truncated: Vector = average[: self.dimension]
        return normalised(truncated) if self.normalise else truncated


def settle(
    folder: ModelFolder,
    ranks: Mapping[str, int],
    *,
    pooling: str | Sequence[str] | None = None,
    normalise: bool | None = None,
    dimension: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    too_long: TooLong = "split",
) -> Recipe:
    """One recipe from what the folder, the graph and the user say.

    Args:
        folder: Where the model lies.
        ranks: How many axes each of the graph's outputs has.
        pooling: This and the rest: see `lazyrag.models.onnx.OnnxEmbedder`. None leaves it to the
            folder.
        normalise: See there.
        dimension: See there.
        query_prefix: See there.
        document_prefix: See there.
        too_long: See there.

    Raises:
        ConfigError: If nobody says how to pool, or what they say cannot be done.
    """
    validate_choice("too_long", too_long, get_args(TooLong))
    for name, prefix in (("query_prefix", query_prefix), ("document_prefix", document_prefix)):
        require(isinstance(prefix, (str, type(None))), name, prefix, "a string or None")
    steps = read_pooling_settings(folder)
    poolings = steps.poolings if pooling is None else checked_poolings("pooling", pooling)
    output = _output(folder, ranks, needs_tokens=pooling is not None)
    hidden = ranks[output] == 3
    if hidden:
        _check_pooled(folder, steps, poolings)
    return Recipe(
        output=output,
        hidden=hidden,
        poolings=poolings if hidden else (),
        normalise=(
            steps.normalise is not False
            if normalise is None
            else validate_boolean("normalise", normalise)
        ),
        with_prefix=steps.with_prefix,
        dimension=(
            folder.dimension if dimension is None else validate_integer("dimension", dimension, 1)
        ),
        query_prefix=folder.prefix("query") if query_prefix is None else query_prefix,
        document_prefix=folder.prefix("document") if document_prefix is None else document_prefix,
        too_long=too_long,
    )


def _output(folder: ModelFolder, ranks: Mapping[str, int], *, needs_tokens: bool) -> str:
    """The output to use: what is pooled already, unless a pooling was asked for, else the
    tokens'.
    """
    hidden = [name for name in (*_HIDDEN, *ranks) if ranks.get(name) == 3]
    if ranks.get(_READY) == 2 and not (needs_tokens and hidden):
        return _READY
    if hidden:
        return hidden[0]
    if len(ranks) == 1 and [*ranks.values()] == [2]:
        return next(iter(ranks))
    shapes = ", ".join(f"{name} with {rank} axes" for name, rank in ranks.items())
    msg = (
        f"The graph of {folder.path} gives {shapes}; an embedding model gives {_HIDDEN[0]} with 3"
        f" axes (batch, tokens, dimension), or {_READY} with 2. Is it a cross-encoder, or a model"
        " that writes?"
    )
    raise ConfigError(msg)


def _check_pooled(folder: ModelFolder, steps: PoolingSettings, poolings: tuple[str, ...]) -> None:
    if steps.others:
        msg = (
            f"{folder.path / 'modules.json'} has the steps {', '.join(steps.others)}, which the"
            f" graph does not take. Export the model with them, so that it gives {_READY!r}, or use"
            " SentenceTransformerEmbedder."
        )
        raise ConfigError(msg)
    if not poolings:
        # A wrong guess works, only worse: nobody would notice.
        msg = (
            f"{folder.path} does not say how token vectors become one: it has no modules.json."
            " Fetch that and 1_Pooling/config.json from where the model comes from, or pass"
            f" pooling=..., one of {', '.join(POOLINGS)}."
        )
        raise ConfigError(msg)


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
        self._session = _load_graph(runtime, self.path, threads)
        self._inputs = _checked_inputs(self.path, self._session.get_inputs())
        # Some tokenizers do not tell a model which text a token belongs to, though its graph could
        # be told.
        named = folder.read_json_object("tokenizer_config.json").get("model_input_names")
        self._tells_types = not isinstance(named, list) or "token_type_ids" in named
        self._identity = ""
        self.ranks = self._try()

    def identity(self, name: str, settings: Mapping[str, Any]) -> str:
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
            self._identity = (
                f"onnx:{name}:{self.contents.digest({**settings, **settings_of_model})}"
            )
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
        msg = (
            f"{self.path} fails on its first texts: {sentence(exc)} Is it a model of text, and its"
            " tokenizer's?"
        )
        return ConfigError(msg)


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
    covering = Counter(at for span in encoding.offsets for at in range(*span))
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
    try:
        import onnxruntime
        import tokenizers
    except ModuleNotFoundError as exc:
        raise missing_package(name, exc, "onnx") from exc
    return onnxruntime, tokenizers


def _max_tokens(folder: ModelFolder, limit: int | None) -> int:
    if limit is not None:
        return validate_integer("max_tokens", limit, 1, folder.positions)
    if folder.max_tokens is None:
        msg = (
            f"{folder.path} does not say how many tokens the model reads at once. Pass"
            " max_tokens=..., 512 for most."
        )
        raise ConfigError(msg)
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


def _load_graph(runtime: ModuleType, path: Path, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for work would spin: twice the processor time, taken from other batches and
    # programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors: what it warns of nobody here can change
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # its errors have no base of their own
        raise ConfigError(
            f"{path} cannot be loaded: {sentence(exc)} Fetch or export the model again."
        ) from exc


def _checked_inputs(path: Path, inputs: Sequence[Any]) -> dict[str, type]:
    """What a graph wants to be fed, by name."""
    for node in inputs:
        if node.name not in _INPUTS or node.type not in _TYPES:
            msg = (
                f"{path} wants {node.name!r} as {node.type}; a model of text takes"
                f" {', '.join(_INPUTS)} as numbers."
            )
            raise ConfigError(msg)
        if any(isinstance(size, int) for size in node.shape):
            msg = (
                f"{path} wants {node.name!r} of shape {node.shape}. Export it again with free batch"
                " and sequence axes."
            )
            raise ConfigError(msg)
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
