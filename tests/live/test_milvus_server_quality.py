"""Vectors on a Milvus server answer real questions as well as those in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.quality import StoreQuality


class TestOnAServer(StoreQuality):
    """The full server; the ledger is named, and keeps the segments, too."""

    threads = 16  # strong consistency is a fifth of a second for each

    @pytest.fixture(autouse=True)
    def _server(self, milvus_address: str) -> None:
        self._address = milvus_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "milvus", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }
