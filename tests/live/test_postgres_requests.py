"""How many statements PostgreSQL gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lazyrag import Document, Retriever
from lazyrag.storage.postgres import Connection
from tests.live.conftest import address_of
from tests.live.counting import WORK, Counting, keyword
from tests.postgres_stores import url_of


class TestStatementsOfPostgres(Counting):
    """Of stores, ledger and keyword indexes."""

    work = {**WORK, "own statistics": lambda docs: keyword(docs.restricted({"year": 1}))}

    def conf(self, folder: Path) -> dict[str, Any]:
        """All of it is in the database."""
        address_of("LAZYRAG_POSTGRES")
        return {"segment_store": {"type": "map", "kwargs": {"uri": url_of(folder / "store")}}}

    @contextmanager
    def counted(self, requests: Counter[str]) -> Iterator[None]:
        """By their first words."""
        send = Connection._send

        def noted(connection: Connection, text: str) -> Any:
            requests[" ".join(text.split()[:3])] += 1
            return send(connection, text)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "_send", noted)
            yield

    def test_a_reader_looks_for_commits_when_a_query_begins_and_ends(self, tmp_path: Path) -> None:
        """Keyword search, where the server ranks: the ranking, its nodes, and two short looks."""
        address_of("LAZYRAG_POSTGRES")
        kwargs = {"uri": url_of(tmp_path / "store"), "analysers": ["en"]}
        conf = {"segment_store": {"type": "postgresql", "kwargs": kwargs}}
        with Document(store_conf=conf, name="counted") as docs:
            docs.add_texts({"a": "green tea", "b": "black tea"})
            docs.activate_group("MediumChunk", analysers=["en"])
        requests: Counter[str] = Counter()
        with Document(store_conf=conf, name="counted", read_only=True) as docs:
            retriever = Retriever(docs, "MediumChunk", "bm25")
            retriever("tea")
            with self.counted(requests):
                assert len(retriever("tea")) == 2
        assert requests["SELECT commits FROM"] == 2
        assert requests.total() == 7
