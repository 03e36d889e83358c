"""The map stores keep both contracts."""

from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.testing import SegmentStoreContract, VectorStoreContract


class TestMapSegments(SegmentStoreContract):
    """Segments in memory."""

    def make_store(self):
        """A new store."""
        return MapSegmentStore()


class TestMapVectors(VectorStoreContract):
    """Vectors in memory."""

    def make_store(self):
        """A new store."""
        return MapVectorStore()
