"""The ledger's builds: what was made of which document, what is live of it, and what spaces hold of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterable

from lazyrag.document.ledger.place import LedgerPlace
from lazyrag.document.ledger.rows import BuildRow, build_objects, chunks
from lazyrag.document.ledger.tree import Build


class BuildTable:
    """The builds of a ledger.

    Args:
        place: Of the ledger.
    """

    def __init__(self, place: LedgerPlace) -> None:
        self._at = place

    def reserve(self, count: int) -> range:
        """Numbers that nobody else will get."""
        with self._at.writing() as connection:
            return next_builds(connection, count)

    def begin(self, rows: Iterable[BuildRow]) -> None:
        """Enter builds before their nodes are written, so that what a crash leaves in a store can be found."""
        with self._at.writing() as connection:
            connection.executemany(
                "INSERT INTO build (number, document, node_group, parent, root, input, counts, output, status) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'writing')",
                rows,
            )

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """The store has acknowledged the nodes of these builds."""
        with self._at.writing() as connection:
            connection.executemany("UPDATE build SET status = 'written' WHERE number = ?", [(one,) for one in numbers])

    def live(self, documents: Collection[int]) -> dict[int, dict[int, BuildRow]]:
        """The live builds of some documents in all groups, whole or being built: by document, then by group."""
        found: dict[int, dict[int, BuildRow]] = {}
        with self._at.reading() as connection:
            for some in chunks(sorted(documents)):
                marks = ", ".join("?" * len(some))
                for row in map(
                    BuildRow._make,
                    connection.execute(
                        "SELECT build.number, build.document, build.node_group, build.parent, build.root, build.input, "  # noqa: S608
                        "build.counts, build.output FROM live JOIN build ON build.number = live.build "
                        f"WHERE live.document IN ({marks})",
                        some,
                    ),
                ):
                    found.setdefault(row.document, {})[row.node_group] = row
        return found

    def input_of(self, number: int) -> str:
        """The digest of what a build was made of; "" for an unknown one."""
        with self._at.reading() as connection:
            found = connection.execute("SELECT input FROM build WHERE number = ?", (number,)).fetchone()
        return found[0] if found else ""

    def known(self, group: int) -> list[int]:
        """Numbers of all builds of a group, also of those that wait to be purged."""
        with self._at.reading() as connection:
            rows = connection.execute("SELECT number FROM build WHERE node_group = ?", (group,))
            return [number for (number,) in rows]

    def live_in(self, group: int) -> list[BuildRow]:
        """The live builds of a group."""
        query = (
            "SELECT number, build.document, build.node_group, parent, root, input, counts, output "
            "FROM live JOIN build ON build.number = live.build WHERE live.node_group = ?"
        )
        with self._at.reading() as connection:
            return list(map(BuildRow._make, connection.execute(query, (group,))))

    def abandon(self) -> None:
        """Let go of builds that a program left that was killed, and that nobody will use.

        Those that a group is being built of stay, and those of documents that failed in another step: they are used
        when it is tried again.
        """
        with self._at.writing() as connection:
            connection.execute(
                "UPDATE build SET status = 'dead', dead_at = ? WHERE document IN "
                "(SELECT id FROM document WHERE ledger = ?) AND (status = 'writing' OR (status = 'written' "
                "AND NOT EXISTS (SELECT 1 FROM live WHERE live.document = build.document "
                "AND live.node_group = build.node_group AND live.build = build.number) "
                "AND NOT EXISTS (SELECT 1 FROM version WHERE version.document = build.document "
                "AND version.root = build.root) "
                "AND document NOT IN (SELECT document.id FROM failure JOIN document "
                "ON document.ledger = failure.ledger AND document.identity = failure.identity) "
                "AND node_group IN (SELECT id FROM node_group WHERE status = 'live')))",
                (time.time(), self._at.id),
            )

    def discard(self, numbers: Iterable[int]) -> None:
        """Let go of builds that are not what they should be, and of all that was made of them."""
        now = time.time()
        with self._at.writing(durable=True) as connection:
            changes = self._at.next_change(connection)
            waiting = set(numbers)
            gone: set[int] = set()
            while waiting:
                gone |= waiting
                below: set[int] = set()
                for some in chunks(sorted(waiting)):
                    marks = ", ".join("?" * len(some))
                    below.update(
                        number
                        for (number,) in connection.execute(
                            f"SELECT number FROM build WHERE parent IN ({marks})",  # noqa: S608
                            some,
                        )
                    )
                waiting = below - gone
            rows = [(number,) for number in sorted(gone)]
            connection.executemany(
                "UPDATE document SET changed = ? WHERE id IN (SELECT document FROM build WHERE number = ?)",
                [(changes, number) for (number,) in rows],
            )
            connection.executemany("DELETE FROM live WHERE build = ?", rows)
            connection.executemany("DELETE FROM covered WHERE build = ?", rows)
            connection.executemany("DELETE FROM version WHERE root = ?", rows)
            connection.executemany(
                "UPDATE build SET status = 'dead', dead_at = ? WHERE number = ?", [(now, number) for (number,) in rows]
            )

    def uncover(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Forget that spaces hold builds: pairs (space, build)."""
        with self._at.writing() as connection:
            connection.executemany("DELETE FROM covered WHERE space = ? AND build = ?", list(pairs))

    def written(self, group: int, documents: Collection[int]) -> list[BuildRow]:
        """Builds of some documents in a group that a store has acknowledged, whether they are live or not."""
        found: list[BuildRow] = []
        with self._at.reading() as connection:
            for some in chunks(sorted(documents)):
                marks = ", ".join("?" * len(some))
                found += map(
                    BuildRow._make,
                    connection.execute(
                        "SELECT number, document, node_group, parent, root, input, counts, output FROM build "  # noqa: S608
                        f"WHERE node_group = ? AND status = 'written' AND document IN ({marks}) ORDER BY number",
                        (group, *some),
                    ),
                )
        return found

    def kept(self, numbers: Collection[int]) -> list[int]:
        """Those of some builds that are not dead."""
        found: list[int] = []
        with self._at.reading() as connection:
            for some in chunks(sorted(numbers)):
                marks = ", ".join("?" * len(some))
                query = f"SELECT number FROM build WHERE status <> 'dead' AND number IN ({marks})"  # noqa: S608
                found += [number for (number,) in connection.execute(query, some)]
        return found

    def dead(self, before: float) -> list[tuple[int, int, str]]:
        """Builds of groups in use that have been dead since before a time: number, row of the group, its collection."""
        with self._at.reading() as connection:
            return connection.execute(
                "SELECT build.number, build.node_group, node_group.collection FROM build "
                "JOIN node_group ON node_group.id = build.node_group "
                "WHERE build.status = 'dead' AND build.dead_at <= ? AND node_group.ledger = ? "
                "AND node_group.status <> 'dropped' ORDER BY build.node_group, build.number",
                (before, self._at.id),
            ).fetchall()

    def with_parents(self, numbers: Collection[int]) -> dict[int, Build]:
        """Builds by number, with those above them."""
        with self._at.reading() as connection:
            return build_objects(connection, numbers)

    def missing(self, group: int) -> set[int]:
        """Rows of the live documents that have no live build in a group."""
        with self._at.reading() as connection:
            rows = connection.execute(
                "SELECT id FROM document WHERE ledger = ? AND status = 'live' EXCEPT "
                "SELECT document FROM live WHERE node_group = ?",
                (self._at.id, group),
            )
            return {row for (row,) in rows}

    def missing_cover(self, group: int, space: int) -> set[int]:
        """Rows of the documents whose live build in a group is not held by a space."""
        with self._at.reading() as connection:
            rows = connection.execute(
                "SELECT document FROM live WHERE node_group = ? AND NOT EXISTS "
                "(SELECT 1 FROM covered WHERE space = ? AND build = live.build)",
                (group, space),
            )
            return {row for (row,) in rows}

    def covered(self, space: int, builds: Collection[int]) -> set[int]:
        """Those of some builds that a space holds."""
        found: set[int] = set()
        with self._at.reading() as connection:
            for some in chunks(sorted(builds)):
                marks = ", ".join("?" * len(some))
                query = f"SELECT build FROM covered WHERE space = ? AND build IN ({marks})"  # noqa: S608
                found.update(row for (row,) in connection.execute(query, (space, *some)))
        return found

    def count_live(self, group: int) -> int:
        """How many documents have a live build in a group."""
        with self._at.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM live WHERE node_group = ?", (group,)).fetchone()[0])

    def count_covered(self, space: int) -> int:
        """How many live builds a space holds."""
        query = "SELECT count(*) FROM live JOIN covered ON covered.build = live.build WHERE covered.space = ?"
        with self._at.reading() as connection:
            return int(connection.execute(query, (space,)).fetchone()[0])

    def forget(self, numbers: Iterable[int]) -> None:
        """Builds whose nodes no store holds any longer."""
        rows = [(number,) for number in numbers]
        with self._at.writing() as connection:
            connection.executemany("DELETE FROM covered WHERE build = ?", rows)
            connection.executemany("DELETE FROM build WHERE number = ?", rows)


def next_builds(connection: sqlite3.Connection, count: int) -> range:
    """Build numbers that nobody else will get; in a writing transaction."""
    [first] = connection.execute("SELECT next FROM build_sequence").fetchone()
    connection.execute("UPDATE build_sequence SET next = ?", (first + count,))
    return range(first, first + count)
