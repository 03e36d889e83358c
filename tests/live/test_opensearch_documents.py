"""Documents whose segments lie in OpenSearch answer as those in memory do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.documents import StoreDocuments


class TestSegmentsOnAServer(StoreDocuments):
    """Vectors lie in the ledger's file."""

    has_native_text = True

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
        }


class TestSegmentsOnAServerAndVectorsInChroma(StoreDocuments):
    """Two stores that are not ours."""

    has_native_text = True

    @pytest.fixture(autouse=True)
    def _server(self, opensearch_address: str) -> None:
        self._address = opensearch_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """The ledger lies beside the folder of vectors."""
        return {
            "segment_store": {
                "type": "opensearch",
                "kwargs": {"uris": [self._address], "client_kwargs": {}},
            },
            "vector_store": {"type": "chromadb", "kwargs": {"dir": str(folder / "vectors")}},
        }
