"""How many requests OpenSearch gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opensearchpy import Transport

from tests.live.counting import Counting


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

    @contextmanager
    def counted(self, requests: Counter[str]) -> Iterator[None]:
        """By the last part of their addresses."""
        perform = Transport.perform_request

        def noted(transport: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
            requests[url.partition("?")[0].rpartition("/")[2]] += 1
            return perform(transport, method, url, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transport, "perform_request", noted)
            yield
