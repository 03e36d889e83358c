"""A rate limit that many programs keep together, in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lazyrag.models import concurrency
from lazyrag.models.openai.client import WINDOW_S, RateLimit
from lazyrag.storage.database import FileFormat
from lazyrag.storage.postgres import PostgresDatabase
from lazyrag.validation import validate_text

_TABLE = """CREATE TABLE IF NOT EXISTS rate_limit (
    name TEXT NOT NULL, started REAL NOT NULL, tokens INTEGER NOT NULL
)"""
_FORMAT = FileFormat("rate limit in", 0, (), "")


class SharedRateLimit(RateLimit):
    """`RateLimit` of all programs that name the same store: workers of one account.

    Each try asks the database once, by whose clock it counts.

    Args:
        store: URL of a PostgreSQL store, in which a Document has been opened before.
        requests_per_minute: See `RateLimit`.
        tokens_per_minute: See `RateLimit`.
        name: Distinguishes the accounts of one store.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``postgres`` is not installed.
        StoreConnectionError: By a call, if the database cannot be reached.
    """

    def __init__(
        self,
        store: str,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        *,
        name: str = "default",
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__(requests_per_minute, tokens_per_minute, sleep=sleep)
        self._name = validate_text("name", name)
        self._database: Any = PostgresDatabase(
            validate_text("store", store), _FORMAT, is_prepared=True
        )

    async def wait(self, tokens: int = 0) -> None:
        """See `RateLimit.wait`."""
        while (pause := await concurrency.in_thread(self._take, tokens)) > 0:
            await self._sleep(pause)

    def _take(self, tokens: int) -> float:
        """Count a call, or return after how many seconds to try again."""
        with self._database.transaction("BEGIN") as connection:
            # one program at a time; the first ones of all create the table
            connection.run("SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' rate'))")
            connection.execute(_TABLE)
            now = self._database.now(connection)
            connection.execute(
                "DELETE FROM rate_limit WHERE name = ? AND started <= ?",
                (self._name, now - WINDOW_S),
            )
            started = connection.execute(
                "SELECT started, tokens FROM rate_limit WHERE name = ? ORDER BY started",
                (self._name,),
            ).fetchall()
            pause = self.pause_after(started, tokens, now)
            if pause <= 0:
                connection.execute(
                    "INSERT INTO rate_limit VALUES (?, ?, ?)", (self._name, now, tokens)
                )
            return pause
