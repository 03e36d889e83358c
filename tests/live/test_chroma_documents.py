"""Documents whose vectors lie in Chroma answer as those in memory do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.documents import StoreDocuments


class TestInAFolder(StoreDocuments):
    """Spec 001's sample: a folder of Chroma's beside a file of segments."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """The sample, its paths replaced."""
        graph = {"hnsw": {"space": "cosine", "ef_construction": 200}}
        return {
            "segment_store": {"type": "map", "kwargs": {"uri": str(folder / "sqlite3.db")}},
            "vector_store": {
                "type": "chromadb",
                "kwargs": {"dir": str(folder / "vectors"), "index_kwargs": graph},
            },
        }


class TestAFolderAlone(StoreDocuments):
    """Segments and ledger lie beside the folder."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """Nothing but the vector store."""
        return {"vector_store": {"type": "chroma", "kwargs": {"dir": str(folder / "vectors")}}}


class TestOnAServer(StoreDocuments):
    """The ledger is named, and keeps the segments, too."""

    @pytest.fixture(autouse=True)
    def _server(self, chroma_address: str) -> None:
        self._address = chroma_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "chromadb", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }
