"""Segments in OpenSearch answer real questions as well as those in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.quality import StoreQuality


class TestOnAServer(StoreQuality):
    """Vectors lie in the ledger's file."""

    @pytest.fixture(autouse=True)
    def _server(self, opensearch_address: str) -> None:
        self._address = opensearch_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server for segments, a file for the rest."""
        return {
            "segment_store": {
                "type": "opensearch",
                "kwargs": {"uris": self._address, "client_kwargs": {}},
            },
            "vector_store": {"type": "map"},
            "ledger": str(folder / "ledger.db"),
            "search": "exact",
        }
