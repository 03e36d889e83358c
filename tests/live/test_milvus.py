"""The Milvus store over a full server keeps the contract."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest
from pymilvus import MilvusClient

from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorStore
from lazyrag.testing import VectorStoreContract

_numbers = itertools.count()


class TestMilvusServer(VectorStoreContract):
    """A server, in a database for each test."""

    @pytest.fixture(autouse=True)
    def _database(self, milvus_address: str) -> Iterator[None]:
        self._kwargs = {"uri": milvus_address, "db_name": f"contract_{next(_numbers)}"}
        yield
        with_nothing_left(**self._kwargs)

    def make_store(self) -> VectorStore:
        """Over a database of the test's own."""
        return MilvusVectorStore(**self._kwargs)

    def reopen_store(self, store: VectorStore) -> VectorStore:
        """Over the same database."""
        return MilvusVectorStore(**self._kwargs)

    def share_store(self, store: VectorStore) -> VectorStore:
        """Over the same database."""
        return MilvusVectorStore(**self._kwargs)


def with_nothing_left(uri: str, db_name: str) -> None:
    """Remove a database with all its collections."""
    with closing(MilvusClient(uri)) as server:
        if db_name in server.list_databases():
            with closing(MilvusClient(uri, db_name=db_name)) as client:
                for name in client.list_collections():
                    client.drop_collection(name)
            server.drop_database(db_name)
