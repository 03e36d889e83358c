"""The recorded behaviour with vectors on a Milvus server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.behaviour import StoreBehaviour


class TestOnAServer(StoreBehaviour):
    """The full server, of a version that keeps no sparse vectors; the ledger keeps the segments,
    too.
    """

    has_sparse = False
    cases = ("cosine", "hybrid rrf")  # every search waits for strong consistency
    scopes = ("authors",)

    @pytest.fixture(autouse=True)
    def _server(self, milvus_address: str) -> None:
        self._address = milvus_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "milvus", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }
