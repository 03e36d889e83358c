"""The Milvus store over a full server keeps the contract, and says what is wrong where the server
does not answer.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from pymilvus import MilvusClient

from lazyrag.errors import StoreConnectionError, StoreError, UnsupportedError
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema, VectorStore
from lazyrag.testing import VectorStoreContract
from lazyrag.types import SPARSE
from tests.differential import VectorStoreDifferential
from tests.live.milvus_behaviour import C, MilvusBehaviour
from tests.live.serving import free_port

_numbers = itertools.count()


@pytest.fixture
def database(milvus_address: str) -> Iterator[dict[str, Any]]:
    """The arguments of a store over a database of the test's own, which is gone afterwards."""
    kwargs = {
        "uri": milvus_address,
        "db_name": f"lazyrag_{os.environ.get('PYTEST_XDIST_WORKER', '')}_{next(_numbers)}",
    }
    yield kwargs
    with closing(MilvusClient(milvus_address)) as server:
        if kwargs["db_name"] in server.list_databases():
            with closing(MilvusClient(**kwargs)) as client:
                for name in client.list_collections():
                    client.drop_collection(name)
            server.drop_database(kwargs["db_name"])


class TestMilvusServer(VectorStoreContract):
    """A server, in a database for each test."""

    @pytest.fixture(autouse=True)
    def _database(self, database: dict[str, Any]) -> None:
        self._kwargs = database

    def make_store(self) -> VectorStore:
        """Over a database of the test's own."""
        return MilvusVectorStore(**self._kwargs)

    def reopen_store(self, store: VectorStore) -> VectorStore:
        """Over the same database."""
        return MilvusVectorStore(**self._kwargs)

    def share_store(self, store: VectorStore) -> VectorStore:
        """Over the same database."""
        return MilvusVectorStore(**self._kwargs)


class TestMilvusServerDifferential(VectorStoreDifferential):
    """A server, in a database for each test."""

    @pytest.fixture(autouse=True)
    def _database(self, database: dict[str, Any]) -> None:
        self._kwargs = database

    def make_store(self) -> VectorStore:
        """Over a database of the test's own."""
        return MilvusVectorStore(**self._kwargs)


class TestMilvusServerBehaviour(MilvusBehaviour):
    """A server, in a database for each test."""

    has_sparse = False

    @pytest.fixture(autouse=True)
    def _database(self, database: dict[str, Any]) -> None:
        self._kwargs = database

    def kwargs(self) -> dict[str, Any]:
        """A database of the test's own."""
        return self._kwargs

    def test_sparse_vectors_are_refused_before_they_kill_the_server(self) -> None:
        """Version 2.3 dies of such a column: the error names the version, and the server goes
        on.
        """
        with self.store() as store:
            with pytest.raises(UnsupportedError, match=r"v2\.3\.5.*no sparse vectors.*2\.4"):
                store.create(C, VectorSchema(SPARSE, "ip", {}))
            store.create(C, VectorSchema(2, "ip", {}))
            assert store.count(C) == 0

    def test_what_one_program_acknowledged_another_finds_at_once(self) -> None:
        """At the weakest consistency too: the writer has waited, and the reader does not."""
        with self.store() as store, self.store(consistency="Eventually") as reader:
            store.create(C, VectorSchema(2, "ip", {}))
            reader.create(C, VectorSchema(2, "ip", {}))
            for number in range(10):
                vector = np.array([1, number], np.float32)
                store.upsert(C, [VectorRow(f"k{number}", vector, {})])
                [[(key, _)]] = reader.search(C, np.ones((1, 2), np.float32), 1)
                assert key == f"k{number}"
                store.delete(C, keys=[key])
                assert reader.search(C, np.ones((1, 2), np.float32), 1) == [[]]

    def test_a_key_that_a_replica_has_not_seen_is_looked_up_again(self) -> None:
        """A row that a client writes without waiting is behind a Bounded read, not missing."""
        with self.store() as store, self.bare() as client:
            store.create(C, VectorSchema(2, "ip", {}))
            for number in range(5):
                row = {"key": f"k{number}", "vector": [1.0, 2.0], "row": ""}
                client.upsert(C, [row])
                assert [found.key for found in store.get(C, [f"k{number}"])] == [f"k{number}"]

    def test_databases_are_isolated(self) -> None:
        """The same collection in another database is another one; several stores may make a
        database at once.
        """
        with self.store() as store:
            store.create(C, VectorSchema(2, "ip", {}))
            with (
                self.store(db_name="default") as other,
                pytest.raises(StoreError, match="no collection"),
            ):
                other.count(C)
            threads = [threading.Thread(target=store.open) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert store.count(C) == 0


def test_an_address_where_nobody_listens_is_named() -> None:
    """A StoreConnectionError names the address, the cause and what to do, within the timeout."""
    address = f"127.0.0.1:{free_port(20_000, 20_100)}"
    store = MilvusVectorStore(address, client_kwargs={"timeout": 0.5})
    with pytest.raises(
        StoreConnectionError, match=rf"{address}.*timeout 0\.5 s.*Start Milvus there"
    ) as caught:
        store.open()
    assert isinstance(caught.value.__cause__, Exception)
    with pytest.raises(StoreError, match="not open"):
        store.count(C)
