"""The stores that a Document can lie on without a server."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.behaviour.library import ConfOf


def _memory(_: Path) -> None:
    return None


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _file(folder: Path) -> Mapping[str, Any]:
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(_made(folder) / "store.db")}}}


def _split(folder: Path) -> Mapping[str, Any]:
    return {
        "segment_store": {"type": "map", "kwargs": {"uri": str(_made(folder) / "nodes.db")}},
        "vector_store": {"type": "map", "kwargs": {"uri": str(folder / "vectors.db")}},
    }


def _chroma(folder: Path) -> Mapping[str, Any]:
    return {"vector_store": {"type": "chromadb", "kwargs": {"dir": str(_made(folder) / "vectors")}}}


def _milvus(folder: Path) -> Mapping[str, Any]:
    return {
        "vector_store": {"type": "milvus", "kwargs": {"uri": str(_made(folder) / "vectors.db")}}
    }


@dataclass(frozen=True)
class Store:
    """A kind of store.

    Args:
        conf_of: The ``store_conf`` of a store in a folder of its own.
        has_sparse: Whether it keeps sparse vectors.
        is_map: Whether vectors lie in the store `map`.
        packages: What must be importable.
    """

    conf_of: ConfOf
    has_sparse: bool = True
    is_map: bool = True
    packages: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether its packages can be imported."""
        return all(importlib.util.find_spec(name) for name in self.packages)


_KINDS = {
    "memory": Store(_memory),
    "sqlite": Store(_file),
    "split": Store(_split),
    "chroma": Store(_chroma, has_sparse=False, is_map=False, packages=("chromadb",)),
    "milvus-lite": Store(_milvus, is_map=False, packages=("pymilvus", "milvus_lite")),
}
STORES = {name: store for name, store in _KINDS.items() if store.is_installed}
"""The stores that can be used here; `tests/live` compares the others."""
