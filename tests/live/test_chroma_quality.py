"""Vectors in Chroma answer real questions as well as those in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.quality import StoreQuality


class TestInAFolder(StoreQuality):
    """In this process."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """Nothing but the vector store."""
        return {"vector_store": {"type": "chroma", "kwargs": {"dir": str(folder / "vectors")}}}


class TestOnAServer(StoreQuality):
    """The same over HTTP."""

    @pytest.fixture(autouse=True)
    def _server(self, chroma_address: str) -> None:
        self._address = chroma_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "chroma", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }
