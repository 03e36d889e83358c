"""Documents whose vectors lie on a Milvus server answer as those in memory do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lazyrag import Document, Retriever
from tests.live.documents import StoreDocuments


class TestOnAServer(StoreDocuments):
    """The full server; the ledger is named, and keeps the segments, too."""

    @pytest.fixture(autouse=True)
    def _server(self, milvus_address: str) -> None:
        self._address = milvus_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server and a ledger."""
        return {
            "vector_store": {"type": "milvus", "kwargs": {"uri": self._address}},
            "ledger": str(folder / "ledger.db"),
        }

    def test_what_the_ledger_names_a_search_of_another_program_finds(self, tmp_path: Path) -> None:
        """At once, and at the weakest consistency: the writer has waited for its rows."""

        def opened(*, read_only: bool = False) -> Document:
            kwargs = {"uri": self._address, "consistency": "Eventually"}
            conf = {**self.conf(tmp_path), "vector_store": {"type": "milvus", "kwargs": kwargs}}
            return Document(
                name="seen",
                store_conf=conf,
                embed={"length": lambda text: [1.0, float(len(text)), 3.0]},
                read_only=read_only,
            )

        with opened() as docs:
            docs.add_texts({"d0": "tea"})
            docs.activate_group("MediumChunk", embed_keys=["length"])
            with opened(read_only=True) as reader:
                search = Retriever(reader, "MediumChunk", "cosine", embed_keys=["length"], topk=99)
                for number in range(5):
                    docs.add_texts({f"d{number}": "tea" * (number + 1)})
                    assert len(search("tea")) == number + 1
