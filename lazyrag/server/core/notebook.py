"""The notebook of a service: answers, feedback, golden questions and evaluations."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from lazyrag.server.core.guard import KEPT_S, open_book
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError

MAX_WRITING = 128
"""Answers of this process at the same time."""

Event = tuple[int, str, str]
"""Number, name and JSON of an event."""


class Notebook:
    """Answers, feedback, golden questions and evaluations, in a file that all web processes share.

    Args:
        state: The service's state folder.
    """

    def __init__(self, state: Path) -> None:
        self.tasks: dict[Any, str] = {}  # those that write answers, and for whom
        self._database = open_book(state)

    def require_room(self, principal: Principal) -> None:
        """Check that this process can write one more answer for a principal.

        What a principal may use is as much as is free: alone it gets a half, and the next one finds
        room.

        Raises:
            ProblemError: 429 if it writes too many.
        """
        if [*self.tasks.values()].count(principal.id) >= MAX_WRITING - len(self.tasks):
            raise ProblemError(
                429,
                "Too many answers are being written.",
                "Try again.",
                headers={"Retry-After": "5"},
            )

    def join(self, task: Any, principal: Principal) -> None:
        """Count a task among those that write answers for a principal, until it ends."""
        self.tasks[task] = principal.id
        task.add_done_callback(lambda finished: self.tasks.pop(finished, None))

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Run a query that reads."""
        with self._database.reading() as connection:
            return connection.execute(query, values).fetchall()

    def write(self, query: str, *rows: tuple[Any, ...], durable: bool = False) -> None:
        """Run a statement for some rows."""
        with self._database.writing(durable=durable) as connection:
            connection.executemany(query, rows)

    def question(self, owner: str, answer: str) -> str:
        """Return the question of an answer.

        Raises:
            ProblemError: 404 if the owner has no such answer.
        """
        query = "SELECT question FROM answer WHERE id = ? AND owner = ? AND created > ?"
        for [question] in self.rows(query, answer, owner, time.time() - KEPT_S):
            return str(question)
        remedy = f"Answers can be read for {KEPT_S / 60:.0f} minutes, by those who asked."
        raise ProblemError(404, f"There is no answer {answer!r:.80}.", remedy)

    def events(self, answer: str, after: int = 0) -> list[Event]:
        """Return the events of an answer after a number."""
        query = (
            "SELECT number, name, data FROM event WHERE answer = ? AND number > ? ORDER BY number"
        )
        return self.rows(query, answer, after)

    def stop(self, answer: str) -> None:
        """Let the process that writes an answer stop soon."""
        self.write("UPDATE answer SET followed = -1 WHERE id = ?", (answer,))

    def take(self, number: str) -> bool:
        """Delete a record, and return whether it was there: of several who try, one succeeds."""
        with self._database.writing() as connection:
            return bool(connection.execute("DELETE FROM record WHERE id = ?", (number,)).rowcount)


def owner_of(principal: Principal, place: str) -> str:
    """Who may read an answer: a principal with its labels, in a set or another place."""
    return json.dumps([place, principal.id, principal.labels])
