"""How many requests OpenSearch gets."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.live.counting import Counting, counted_requests


class TestRequestsOfOpenSearch(Counting):
    """Of the segment store; the ledger is in a file."""

    @pytest.fixture(autouse=True)
    def _server(self, opensearch_address: str) -> None:
        self._address = opensearch_address

    def conf(self, folder: Path) -> dict[str, Any]:
        """Segments are on the server."""
        kwargs = {"uris": self._address, "client_kwargs": {}}
        return {
            "segment_store": {"type": "opensearch", "kwargs": kwargs},
            "ledger": str(folder / "ledger.db"),
        }

    def counted(self, requests: Counter[str]) -> AbstractContextManager[None]:
        """By the last part of their addresses."""
        return counted_requests(requests)
