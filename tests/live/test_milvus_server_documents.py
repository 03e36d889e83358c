"""Documents whose vectors lie on a Milvus server answer as those in memory do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.documents import StoreDocuments


class TestOnAServer(StoreDocuments):
    """The full server; the ledger is named, and keeps the segments, too."""

    @pytest.fixture(autouse=True)
    def _server(self, milvus_address: str) -> None:
        self._address = milvus_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "milvus", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }
