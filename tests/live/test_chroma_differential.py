"""The chromadb vector store answers as the reference does, whatever is written and asked."""

from __future__ import annotations

import pytest

from lazyrag.stores.chroma import ChromaVectorStore
from tests.differential import VectorStoreDifferential
from tests.live.test_chroma import new_database


class TestInMemory(VectorStoreDifferential):
    """Chroma within this process."""

    def make_store(self):
        """A new store beside the others in memory."""
        return ChromaVectorStore()


class TestOnServer(VectorStoreDifferential):
    """Chroma's server."""

    @pytest.fixture(autouse=True)
    def _database(self, chroma_address):
        """Each test has its own."""
        self.address, self.database = chroma_address, new_database(chroma_address)

    def make_store(self):
        """A new store in a new database."""
        return ChromaVectorStore(self.address, client_kwargs={"database": self.database})


@pytest.mark.deep
class TestManyInMemory(TestInMemory):
    """200 collections with 50 cases each."""

    schemas = 200
