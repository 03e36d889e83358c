"""The recorded behaviour with vectors in Chroma."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.behaviour import CASES, StoreBehaviour


class TestInAFolder(StoreBehaviour):
    """Segments and ledger lie beside the folder."""

    has_sparse = False
    cases = tuple(name for name in CASES if "bm25" not in name)  # Chroma takes no part in those

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """Nothing but the vector store."""
        return {"vector_store": {"type": "chroma", "kwargs": {"dir": str(folder / "vectors")}}}


class TestOnAServer(StoreBehaviour):
    """The ledger is named, and keeps the segments, too."""

    has_sparse = False
    cases = ("cosine", "hybrid rrf", "chain of all")  # the others are asked in a folder
    scopes = ("authors",)
    explained = ("chain of all",)

    @pytest.fixture(autouse=True)
    def _server(self, chroma_address: str) -> None:
        self._address = chroma_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "chromadb", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }
