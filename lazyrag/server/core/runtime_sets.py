"""The table of the sets that are made at run time."""

from __future__ import annotations

import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from lazyrag.server.core.config import make_state
from lazyrag.server.core.guard import forget_answers
from lazyrag.server.core.names import file_name
from lazyrag.server.core.problems import ProblemError, try_again
from lazyrag.storage.database import Database, FileFormat

MOST_SETS = 1_000
"""Sets that are made at run time: each one has a thread of the writer process."""
_SCHEMA = """
CREATE TABLE made (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, embed TEXT NOT NULL, created INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0
);
"""
_FORMAT = FileFormat(
    "file of sets",
    application_id=int.from_bytes(b"lzSE", "big"),
    migrations=(_SCHEMA,),
    when_damaged=(
        "Restore it from a backup, or delete it: the stores lie beside it, in the folder sets."
    ),
)


@dataclass(frozen=True, slots=True)
class RuntimeSet:
    """A set that was made at run time.

    Args:
        id: Random, and never used again.
        name: Its name in paths.
        embed: Its embedding model, as in the configuration; "" for none.
        created: When, in seconds since 1970.
        deleted: When it was deleted; 0 for not. Then its files are about to be removed.
    """

    id: str
    name: str
    embed: str
    created: int
    deleted: int


class RuntimeSets:
    """The table of sets that were made at run time.

    Args:
        state: The service's state folder.
        embed: The embedding model of new ones, as in the configuration; "" for none.
    """

    def __init__(self, state: Path, embed: str = "") -> None:
        make_state(state)
        self.state = state
        self._embed = embed
        self._file = Database(state / "sets.db", _FORMAT)

    def add(self, name: str) -> RuntimeSet:
        """Add a set.

        Raises:
            ProblemError: 409 if the name is taken, 507 if there are too many sets.
        """
        runtime_set = RuntimeSet(secrets.token_hex(12), name, self._embed, int(time.time()), 0)
        with self._file.writing(durable=True) as connection:
            rows = connection.execute("SELECT name, deleted FROM made").fetchall()
            if (name, 0) in rows:
                raise name_is_taken(name)
            if name in dict(rows):
                raise try_again(409, f"The deleted set {name!r} is being removed.")
            if len(rows) >= MOST_SETS:
                raise ProblemError(507, f"There are {MOST_SETS:,} sets.", "Delete some.")
            row = (runtime_set.id, name, runtime_set.embed, runtime_set.created)
            connection.execute(
                "INSERT INTO made (id, name, embed, created) VALUES (?, ?, ?, ?)", row
            )
        return runtime_set

    def list(self) -> list[RuntimeSet]:
        """All sets, oldest first; also those that were deleted, as long as their files are
        there.
        """
        with self._file.reading() as connection:
            return [
                RuntimeSet(*row) for row in connection.execute("SELECT * FROM made ORDER BY rowid")
            ]

    def find(self, name: str) -> RuntimeSet | None:
        """A set by name; None if there is none."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT * FROM made WHERE name = ? AND NOT deleted", (name,)
            ).fetchone()
        return row and RuntimeSet(*row)

    def delete(self, name: str) -> bool:
        """Delete a set; returns whether there was one. The writer process removes its files."""
        with self._file.writing(durable=True) as connection:
            query = "UPDATE made SET deleted = ? WHERE name = ? AND NOT deleted"
            return bool(connection.execute(query, (int(time.time()), name)).rowcount)

    def remove(self, runtime_set: RuntimeSet) -> None:
        """Remove the files of a deleted set, and then its row."""
        for folder in (
            self.folder(runtime_set),
            self.state / "uploads" / f".set-{file_name(runtime_set.name)}",
        ):
            shutil.rmtree(folder, ignore_errors=True)
        (self.state / "defaults" / f"{file_name(runtime_set.name)}.json").unlink(missing_ok=True)
        forget_answers(runtime_set.name, self.state)
        with self._file.writing() as connection:
            connection.execute("DELETE FROM made WHERE id = ?", (runtime_set.id,))

    def folder(self, runtime_set: RuntimeSet) -> Path:
        """The folder of its store; not named after it, as another one may have the name later."""
        return self.state / "sets" / runtime_set.id


def name_is_taken(name: str) -> ProblemError:
    """The problem of a name that another set has."""
    return ProblemError(409, f"There is a set {name!r}.", "Choose another name.")
