"""Find models on this machine and in hubs, and download them."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from lazyrag.errors import ConfigError, DatasetPathError, optional_package, sentence
from lazyrag.models.onnx.folder import TENSORS, TOKENIZER, ModelFolder, choose_graph, data_pattern
from lazyrag.types import PathLike

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
    model: PathLike,
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
            raise ConfigError(
                f"revision is {revision!r} and {str(model)!r} a folder; only models on the hub have"
                " revisions."
            )
        return ModelFolder(path, _name(path.resolve()))
    if path.is_file():
        raise ConfigError(
            f"{str(model)!r} is a file; give the model's folder, and file={path.name!r} if it has"
            " several."
        )
    identifier = str(model)
    if not _HUB_ID.fullmatch(identifier):
        raise DatasetPathError(
            f"There is no folder {identifier!r}. Give a folder with a model, or an id on the hub:"
            " 'organisation/name'."
        )
    identifier = identifier if "/" in identifier else _full_id(identifier)
    folder = _find_snapshot(identifier, revision, marker_files)
    if download and not _complete(folder, file):
        folder = _fetch(identifier, revision, file, on_fetch)
    if folder is None:
        at = "" if revision is None else f" at revision {revision!r}"
        raise ConfigError(
            f"{identifier!r} is not on this machine: no folder, and no model of that id{at} in the"
            f" cache of the hub or of ModelScope. Run: {ways_to_download(identifier)}. Or pass the"
            " model's folder; in Python, download=True fetches it."
        )
    return folder


def _find_snapshot(
    identifier: str, revision: str | None, marker_files: Sequence[str]
) -> ModelFolder | None:
    """The snapshot of the hub or of ModelScope on this machine that has any of some files."""
    for name in marker_files:
        folder = _cached(identifier, revision, name)
        if folder is not None:
            return folder
    if revision is None:
        for path in _in_modelscope(identifier):
            if any((path / name).is_file() for name in marker_files):
                return ModelFolder(path, _last(identifier))
    return None


def _hub() -> ModuleType:
    # An extra's package, and a slow one: half a second.
    with optional_package("Loading a model by hub id", "onnx"):
        import huggingface_hub.constants  # which the package does not load by itself
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
        info = hub.HfApi().model_info(identifier, revision=revision, files_metadata=True)
        siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
        graph, names = _choose_files(identifier, siblings, file)
        if on_fetch is not None:
            sizes = {name: sibling.size or 0 for name, sibling in siblings.items()}
            on_fetch(_announcement(identifier, graph, names, sizes))
        for name in names:
            path = Path(hub.hf_hub_download(identifier, name, revision=revision))
            _verify(path, siblings[name].lfs)
    except ConfigError:
        raise
    except Exception as exc:  # the client's errors differ from release to release
        raise ConfigError(
            f"{identifier!r} cannot be fetched from {hub.constants.ENDPOINT}:"
            f" {_reason(exc, identifier, revision)}"
        ) from exc
    return ModelFolder(path.parent, _last(identifier))


def _choose_files(identifier: str, files: Iterable[str], file: str | None) -> tuple[str, list[str]]:
    """The graph, and the files to download for it, the tokenizer last."""
    names = sorted(files, key=lambda name: (name == TOKENIZER, name))
    graph = choose_graph(names, file, f"{identifier!r} on the hub")
    if TOKENIZER not in names:
        raise ConfigError(
            f"{identifier!r} on the hub has no {TOKENIZER}. Choose a model that has one."
        )
    beside = f"{glob.escape(graph.rpartition('/')[0])}/{TENSORS}".lstrip("/")
    patterns = (*_DESCRIPTIONS, glob.escape(graph), data_pattern(graph), beside)

    def is_part(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return graph, list(filter(is_part, names))


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
