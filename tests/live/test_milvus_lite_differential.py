"""The Milvus store over files answers as the reference does, on whichever Milvus Lite is installed:
3.2.2 or 2.5.1.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorStore
from tests.differential import VectorStoreDifferential


class TestMilvusLite(VectorStoreDifferential):
    """A file."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._path = tmp_path / "vectors.db"

    def make_store(self) -> VectorStore:
        """Over a file of the test's own."""
        return MilvusVectorStore(self._path)


@pytest.mark.deep
class TestManyInMilvusLite(TestMilvusLite):
    """200 collections with 50 cases each."""

    schemas = 200
