"""The chromadb vector store keeps the contract: in memory, in a folder, on a server."""

from __future__ import annotations

import json
import urllib.request
import uuid

import pytest

from lazyrag.stores.chroma import ChromaVectorStore
from lazyrag.testing import VectorStoreContract

_FEW = 200  # rows that a search is exact for; as many as the contract tries are tried in memory


class TestInMemory(VectorStoreContract):
    """Chroma within this process, without a folder."""

    def make_store(self):
        """A new store beside the others in memory."""
        return ChromaVectorStore()


class TestInFolder(VectorStoreContract):
    """Chroma within this process, over a folder."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        """Each test has its own."""
        self.folder = tmp_path / "chroma"

    def make_store(self):
        """A new store over a new folder."""
        return ChromaVectorStore(dir=self.folder, exact_rows=_FEW)

    def reopen_store(self, store):
        """Another one over the same folder."""
        return ChromaVectorStore(dir=self.folder)


class TestOnServer(VectorStoreContract):
    """Chroma's server."""

    @pytest.fixture(autouse=True)
    def _database(self, chroma_address):
        """Each test has its own."""
        self.address, self.database = chroma_address, new_database(chroma_address)

    def make_store(self):
        """A new store in a new database."""
        return ChromaVectorStore(
            self.address, client_kwargs={"database": self.database}, exact_rows=_FEW
        )

    def reopen_store(self, store):
        """Another one over the same database."""
        return self.make_store()

    def share_store(self, store):
        """The same, as another program opens it: every client of a server has its own
        connections.
        """
        return self.make_store()


def new_database(address: str) -> str:
    """The name of a new database on a server."""
    name = f"d{uuid.uuid4().hex}"
    request = urllib.request.Request(
        f"{address}/api/v2/tenants/default_tenant/databases",
        json.dumps({"name": name}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        return name
