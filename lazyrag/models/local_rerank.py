"""Rerank models by folder or name: found on this machine, loaded once in a process."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TypeAlias

from lazyrag.errors import ConfigError, MissingDependencyError
from lazyrag.models.onnx.cross_encoder import OnnxCrossEncoder
from lazyrag.models.onnx.files import TOKENIZER, Contents
from lazyrag.models.onnx.folder import find_model
from lazyrag.models.protocol import RerankModel
from lazyrag.models.sentence_transformers import SentenceTransformerCrossEncoder

LocalModel: TypeAlias = "str | os.PathLike[str]"
"""A folder with a cross-encoder, or its id on the hub."""

_MADE_OF = {".onnx", ".onnx_data", ".safetensors", ".bin", ".json", ".txt", ".model"}

_lock = threading.Lock()
_loaded: dict[tuple[Path, int | None], tuple[Contents, RerankModel]] = {}


def local_rerank_model(model: LocalModel, batch_size: int | None = None) -> RerankModel:
    """The cross-encoder of a folder, or of that name in the hub's cache on this machine. Nothing is fetched.

    A folder with an ONNX file gives an `OnnxCrossEncoder`, one with weights for torch alone a
    `SentenceTransformerCrossEncoder`. Either is loaded once in a process and then shared, by all threads, until a file
    in the folder changes: then it is loaded anew.

    Args:
        model: A folder, or an id on the hub: ``"organisation/name"``.
        batch_size: How many pairs are read at once, at least 1; None leaves it to the class.

    Raises:
        ConfigError: If it is not there, or is no cross-encoder with one label. Those of several labels, and other
            settings, go through the two classes' own keywords.
        MissingDependencyError: If a package is needed that is not installed; the message says which extra brings it.
    """
    folder = _folder(model)
    with _lock:
        files = (path for depth in ("*", "*/*") for path in folder.glob(depth))
        contents = Contents.of(sorted(path for path in files if path.suffix in _MADE_OF))
        held = _loaded.get((folder, batch_size))
        if held is None or held[0] != contents:
            held = _loaded[folder, batch_size] = contents, _load(folder, batch_size)
        return held[1]


def _folder(model: LocalModel) -> Path:
    try:
        # Older models for torch have a tokenizer in other files.
        return find_model(model, known_by=(TOKENIZER, "config.json")).path.resolve()
    except MissingDependencyError as exc:  # of the package that knows the hub's cache
        msg = f"There is no folder {str(model)!r}, and to look for a model of that name: {exc}"
        raise MissingDependencyError(msg) from exc
    except ConfigError as exc:
        if not isinstance(model, (str, os.PathLike)) or not str(model).strip() or Path(model).is_file():
            raise
        msg = (
            f"There is no rerank model {str(model)!r} on this machine: no folder, and nothing of that name in the "
            "hub's cache. Give a folder, an id that was fetched ('organisation/name'), or a model: "
            f"OnnxCrossEncoder({str(model)!r}, download=True) fetches one, HttpRerankModel asks an endpoint."
        )
        raise ConfigError(msg) from exc


def _load(folder: Path, batch_size: int | None) -> RerankModel:
    if any(folder.glob("*.onnx")) or any(folder.glob("*/*.onnx")):
        return OnnxCrossEncoder(folder, batch_size=batch_size)
    if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        return SentenceTransformerCrossEncoder(folder, batch_size=batch_size or 32)
    msg = (
        f"{folder} has neither an ONNX file nor weights for torch. Export the model there ('optimum-cli export onnx "
        "--model NAME FOLDER'), or fetch all of it."
    )
    raise ConfigError(msg)
