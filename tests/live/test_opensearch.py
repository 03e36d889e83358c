"""The OpenSearch store keeps the contract on a real server."""

from __future__ import annotations

from contextlib import closing

import pytest
from opensearchpy import OpenSearch

from lazyrag.stores.opensearch import OpenSearchSegmentStore
from lazyrag.testing import SegmentStoreContract


@pytest.fixture(autouse=True)
def _no_index_stays(opensearch_address):
    """Every test begins and ends without indexes."""
    with closing(OpenSearch(opensearch_address)) as client:
        yield
        client.indices.delete(index="lr_*")


class TestOpenSearchSegments(SegmentStoreContract):
    """Segments on a server."""

    @pytest.fixture(autouse=True)
    def _address(self, opensearch_address):
        """Where the stores of this test are."""
        self.address = opensearch_address

    def make_store(self):
        """A new store; the server has no collections yet."""
        return OpenSearchSegmentStore(self.address, {}, {"settings": {"number_of_replicas": 0}})

    def reopen_store(self, store):
        """Another client of the same server."""
        return OpenSearchSegmentStore(self.address, {})

    def share_store(self, store):
        """Another client of the same server at the same time."""
        return OpenSearchSegmentStore(self.address, {})
