"""The Milvus store over files keeps the contract, on whichever Milvus Lite is installed: 3.2.2 or
2.5.1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyrag import DataType, DocField
from lazyrag.data.filters import Condition
from lazyrag.errors import StoreConnectionError, StoreError
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.milvus_client import MilvusConnection
from lazyrag.stores.protocol import VectorRow, VectorSchema, VectorStore
from lazyrag.testing import VectorStoreContract
from tests.live.milvus_behaviour import C, MilvusBehaviour

KILLED = """
import os, signal, sys
import numpy as np
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema

store = MilvusVectorStore(sys.argv[1])
store.open()
store.create(sys.argv[2], VectorSchema(2, "ip", {}))
store.upsert(sys.argv[2], [VectorRow(f"k{number}", np.ones(2, np.float32), {}) for number in range(9)])
store.delete(sys.argv[2], keys=["k3"])
os.kill(os.getpid(), signal.SIGKILL)
"""
REFUSED = """
import sys
from lazyrag.errors import StoreConnectionError
from lazyrag.stores.milvus import MilvusVectorStore

try:
    MilvusVectorStore(sys.argv[1]).open()
except StoreConnectionError as error:
    print(error)
"""

STARTED = """
import sys
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorSchema

store = MilvusVectorStore(sys.argv[1])
store.open()
store.create(sys.argv[2], VectorSchema(2, "ip", {}))
print(store.count(sys.argv[2]))
store.close()
"""


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A program of its own, until it ends."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


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
        """Each sees what the other writes, and the file stays open until the last one lets go of
        it.
        """
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

    def test_the_folder_of_a_file_is_created(self, tmp_path: Path) -> None:
        """As for the other stores; one that cannot be is a StoreConnectionError with the path."""
        path = tmp_path / "new" / "folder" / "vectors.db"
        store = MilvusVectorStore(path)
        store.open()
        store.create(C, VectorSchema(2, "ip", {}))
        store.close()
        assert path.exists()
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "vectors.db"
        with pytest.raises(StoreConnectionError, match=f"{path}"):
            MilvusVectorStore(path).open()

    def test_what_a_killed_program_had_acknowledged_is_there(self) -> None:
        """Rows and deletions both, for the next program at once."""
        assert run(KILLED, self._path, C).returncode == -signal.SIGKILL
        with self.store() as store:
            assert [row.key for row in store.scan(C)] == [
                f"k{number}" for number in range(9) if number != 3
            ]

    def test_another_program_is_told_that_the_file_is_open(self) -> None:
        """A StoreConnectionError with the path; the one that has it open goes on."""
        with self.store() as store:
            store.create(C, VectorSchema(2, "ip", {}))
            said = run(REFUSED, self._path).stdout
            assert str(self._path) in said
            assert "Only one program can have such a file open" in said
            assert store.count(C) == 0

    def test_a_folder_of_its_own_that_cannot_be_made_yet_is_waited_for(
        self, tmp_path: Path
    ) -> None:
        """Version 2.5 makes one below ~/.cache; of programs that start at once, one makes it and
        the others fail.
        """
        home = tmp_path / "home"
        home.mkdir()
        (home / ".cache").write_text("in the way")
        command = [sys.executable, "-c", STARTED, str(self._path), C]
        with subprocess.Popen(
            command, env={**os.environ, "HOME": str(home)}, stdout=subprocess.PIPE
        ) as program:
            time.sleep(4)  # it has asked by then
            (home / ".cache").unlink()
            assert program.communicate(timeout=60)[0].split()[-1:] == [b"0"]


def test_an_exact_search_asks_for_no_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request, for the vectors of the nearest rows."""
    asked = []
    call = MilvusConnection.call

    def noted(connection: Any, operation: str, method: str, *args: Any, **options: Any) -> Any:
        asked.append((method, options.get("output_fields")))
        return call(connection, operation, method, *args, **options)

    fields = {"year": DocField(DataType.INT32), "title": DocField(DataType.VARCHAR)}
    store = MilvusVectorStore(tmp_path / "m.db")
    store.open()
    store.create(C, VectorSchema(2, "cosine", fields))
    rows = [
        VectorRow(f"k{number}-1", np.array([1, number], np.float32), {"year": number % 2})
        for number in range(40)
    ]
    store.upsert(C, rows)
    monkeypatch.setattr(MilvusConnection, "call", noted)
    query = np.array([[1, 0]], np.float32)
    [ranking] = store.search(C, query, 3, Condition("year", "eq", 1))
    store.close()
    assert asked == [("search", ["vector"])]
    assert [key for key, _ in ranking] == ["k1-1", "k3-1", "k5-1"]
