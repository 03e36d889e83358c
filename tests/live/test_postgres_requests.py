"""How many statements PostgreSQL gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
