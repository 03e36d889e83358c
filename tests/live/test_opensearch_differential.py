"""The OpenSearch store answers as the reference does, whatever is written and asked."""

from __future__ import annotations

import pytest

from lazyrag.stores.opensearch import OpenSearchSegmentStore
from tests.differential import SegmentStoreDifferential
from tests.live.test_opensearch import ONE_COPY, emptied


class TestOpenSearch(SegmentStoreDifferential):
    """Segments on a server."""

    @pytest.fixture(autouse=True)
    def _address(self, opensearch_address):
        """Where the stores of this test are; without collections before and after it."""
        self.address = opensearch_address
        with emptied(opensearch_address):
            yield

    def make_store(self):
        """A new store; the server has no collections yet."""
        return OpenSearchSegmentStore(self.address, {}, ONE_COPY)
