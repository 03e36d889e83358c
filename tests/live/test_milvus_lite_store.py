"""The Milvus store over files keeps the contract, on whichever Milvus Lite is installed: 3.2.2 or 2.5.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyrag.errors import StoreConnectionError, StoreError
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema, VectorStore
from lazyrag.testing import VectorStoreContract
from tests.live.milvus_behaviour import C, MilvusBehaviour


class TestMilvusLite(VectorStoreContract):
    """A file."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._path = tmp_path / "vectors.db"

    def make_store(self) -> VectorStore:
        """Over a file of the test's own."""
        return MilvusVectorStore(self._path)

    def reopen_store(self, store: VectorStore) -> VectorStore:
        """Over the same file."""
        return MilvusVectorStore(self._path)


class TestMilvusLiteBehaviour(MilvusBehaviour):
    """A file."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._path = tmp_path / "vectors.db"

    def kwargs(self) -> dict[str, Any]:
        """Over a file of the test's own."""
        return {"uri": self._path}

    def test_two_stores_share_a_file_in_one_program(self) -> None:
        """Each sees what the other writes, and the file stays open until the last one lets go of it."""
        rows = [VectorRow(f"k{number}", np.ones(2, np.float32), {}) for number in range(2)]
        with self.store() as first:
            with self.store() as second:
                first.create(C, VectorSchema(2, "ip", {}))
                first.upsert(C, rows[:1])
                second.upsert(C, rows[1:])
                assert first.count(C) == second.count(C) == 2
            assert first.count(C) == 2
            with pytest.raises(StoreError, match="not open"):
                second.count(C)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        """A StoreConnectionError with the path, and what is needed."""
        path = tmp_path / "nowhere" / "vectors.db"
        with pytest.raises(StoreConnectionError, match=f"{path}.*its folder must be there"):
            MilvusVectorStore(path).open()
