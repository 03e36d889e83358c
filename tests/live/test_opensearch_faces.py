"""OpenSearch behind every face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lazyrag.stores.opensearch import OpenSearchSegmentStore
from tests.live.faces import Faces


class TestFacesOfOpenSearch(Faces):
    """One request a query."""

    store = OpenSearchSegmentStore
    methods = ("search_text", "find_rows")

    @pytest.fixture(autouse=True)
    def _server(self, opensearch_address: str) -> None:
        self._address = opensearch_address

    def conf(self, folder: Path) -> dict[str, Any]:
        """The ledger is in a file."""
        kwargs = {"uris": self._address, "client_kwargs": {}}
        return {
            "segment_store": {"type": "opensearch", "kwargs": kwargs},
            "vector_store": {"type": "map"},
            "ledger": str(folder / "ledger.db"),
        }

    def test_tokens_with_labels_need_a_choice(self, tmp_path: Path) -> None:
        """The refusal tells the operator both ways out; shared statistics open every face, and none
        shows what is hidden.
        """
        with self.opened(tmp_path) as docs:
            refused = self.asked(docs, tmp_path)
            served = self.asked(docs, tmp_path, shared=["notes"])
        for name, text in refused.items():
            assert "steamed" not in text, name
            assert "statistics" in text, (name, text)
            assert "store_conf" in text, (name, text)
        for name, text in served.items():
            assert "steamed" in text, name
            assert "Tea and tea" not in text, name
