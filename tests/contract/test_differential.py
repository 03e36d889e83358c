"""The map stores answer as the reference does, whatever is written and asked."""

from __future__ import annotations

import pytest

from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from tests.contract.over_store_files import InFiles
from tests.differential import SegmentStoreDifferential, VectorStoreDifferential


@pytest.mark.slow
class TestSegments(SegmentStoreDifferential):
    """In memory."""

    schemas = 1

    def make_store(self):
        """A new store."""
        return MapSegmentStore()


@pytest.mark.slow
class TestVectors(VectorStoreDifferential):
    """In memory."""

    schemas = 1

    def make_store(self):
        """A new store."""
        return MapVectorStore()


class TestSegmentsInFiles(InFiles, SegmentStoreDifferential):
    """In a store file."""

    schemas = 1

    store_class = MapFileSegmentStore


class TestVectorsInFiles(InFiles, VectorStoreDifferential):
    """In a store file."""

    schemas = 1

    store_class = MapFileVectorStore


@pytest.mark.slow
class TestMoreSegments(TestSegments):
    """20 collections."""

    schemas = 20


@pytest.mark.slow
class TestMoreVectors(TestVectors):
    """20 collections."""

    schemas = 20


@pytest.mark.slow
class TestMoreSegmentsInFiles(TestSegmentsInFiles):
    """20 collections."""

    schemas = 20


@pytest.mark.slow
class TestMoreVectorsInFiles(TestVectorsInFiles):
    """20 collections."""

    schemas = 20


@pytest.mark.deep
class TestManySegments(TestSegments):
    """200 collections with 50 cases each."""

    schemas = 200


@pytest.mark.deep
class TestManyVectors(TestVectors):
    """200 collections with 50 cases each."""

    schemas = 200


@pytest.mark.deep
class TestManySegmentsInFiles(TestSegmentsInFiles):
    """200 collections with 50 cases each."""

    schemas = 200


@pytest.mark.deep
class TestManyVectorsInFiles(TestVectorsInFiles):
    """200 collections with 50 cases each."""

    schemas = 200
