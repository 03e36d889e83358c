"""The map stores keep both contracts."""

import pytest

from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.testing import SegmentStoreContract, VectorStoreContract


@pytest.mark.sample(4)
class TestMapSegments(SegmentStoreContract):
    """Segments in memory."""

    def make_store(self):
        """A new store."""
        return MapSegmentStore()


@pytest.mark.sample(4)
class TestMapVectors(VectorStoreContract):
    """Vectors in memory."""

    def make_store(self):
        """A new store."""
        return MapVectorStore()
