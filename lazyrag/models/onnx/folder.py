"""Finding a model's folder: on this machine, in the hub's cache, or, if asked to, on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from lazyrag.errors import ConfigError, DatasetPathError, missing_package, sentence
from lazyrag.models.onnx.files import TOKENIZER, ModelFolder, choose_graph, data_pattern

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


def find_model(
    model: str | os.PathLike[str],
    *,
    revision: str | None = None,
    download: bool = False,
    file: str | None = None,
    known_by: Sequence[str] = (TOKENIZER,),
) -> ModelFolder:
    """A model's folder: the one that is given, else the hub's snapshot on this machine.

    Args:
        model: A folder, or an id on the hub: ``"organisation/name"``.
        revision: A branch, tag or commit on the hub; None means its main branch.
        download: Whether to fetch from the hub what is not on this machine yet. Nothing else opens a connection.
        file: The ONNX file that will be needed, as a path in the folder; None means the usual one.
        known_by: Files of which any tells that a snapshot on this machine is the model.

    Raises:
        ConfigError: If it is not there (`DatasetPathError` where it cannot be an id either), or cannot be fetched.
        MissingDependencyError: If an id is given and huggingface_hub is not installed.
    """
    if not isinstance(model, (str, os.PathLike)) or not str(model).strip():
        raise ConfigError(f"The model is {model!r:.80}; give a folder, or an id on the hub: 'organisation/name'.")
    path = Path(model).expanduser()
    if path.is_dir():
        if revision is not None:
            msg = f"revision is {revision!r} and {str(model)!r} a folder; only models on the hub have revisions."
            raise ConfigError(msg)
        return ModelFolder(path, _name(path.resolve()))
    if path.is_file():
        raise ConfigError(
            f"{str(model)!r} is a file; give the model's folder, and file={path.name!r} if it has several."
        )
    identifier = str(model)
    if not _HUB_ID.fullmatch(identifier):
        msg = (
            f"There is no folder {identifier!r}. Give a folder with a model, or an id on the hub: 'organisation/name'."
        )
        raise DatasetPathError(msg)
    folder = next((one for name in known_by if (one := _cached(identifier, revision, name))), None)
    if download and not _complete(folder, file):
        folder = _fetched(identifier, revision, file)
    if folder is None:
        at = "" if revision is None else f" at revision {revision!r}"
        msg = (
            f"{identifier!r} is no folder, and no model of that id{at} is in the hub's cache on this machine. Give a "
            "folder, or pass download=True to fetch it from the Hugging Face hub."
        )
        raise ConfigError(msg)
    return folder


def _hub() -> ModuleType:
    # An extra's package, and a slow one: half a second.
    try:
        import huggingface_hub
    except ModuleNotFoundError as exc:
        raise missing_package("A model that is no folder", exc, "onnx") from exc
    return huggingface_hub


def _cached(identifier: str, revision: str | None, name: str) -> ModelFolder | None:
    """The snapshot on this machine that has a file of this name. Looks at the disk only."""
    try:
        found = _hub().try_to_load_from_cache(identifier, name, revision=revision)
    except ValueError as exc:
        raise ConfigError(f"{identifier!r} is neither a folder nor an id on the hub: {exc}") from exc
    return ModelFolder(Path(found).parent, _last(identifier)) if isinstance(found, str) else None


def _complete(folder: ModelFolder | None, file: str | None) -> bool:
    if folder is None:
        return False
    try:
        folder.graph(file)
    except ConfigError:
        return False
    return True


def _fetched(identifier: str, revision: str | None, file: str | None) -> ModelFolder:
    hub = _hub()
    try:
        graph = choose_graph(hub.list_repo_files(identifier, revision=revision), file, f"{identifier!r} on the hub")
        path = hub.snapshot_download(
            identifier, revision=revision, allow_patterns=[*_DESCRIPTIONS, graph, data_pattern(graph)]
        )
    except ConfigError:
        raise
    except Exception as exc:  # whatever the client raises: its errors differ from release to release
        why = sentence(" ".join(str(exc).split()))
        msg = f"{identifier!r} cannot be fetched from the hub: {why} Check id, revision and network."
        raise ConfigError(msg) from exc
    return ModelFolder(Path(path), _last(identifier))


def _name(path: Path) -> str:
    # A snapshot in the hub's cache lies at models--organisation--name/snapshots/commit.
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2]
    return path.name


def _last(identifier: str) -> str:
    return identifier.rpartition("/")[2]
