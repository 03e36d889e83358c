"""The ledger's groups, and the spaces over them: collections of vectors, parts of lexical indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from lazyrag.document.ledger.builds import next_builds
from lazyrag.document.ledger.place import LedgerPlace
from lazyrag.document.ledger.tree import SpaceKind, TermPartRow, part_rows
from lazyrag.errors import StoreError


class GroupTable:
    """The groups of a ledger, and their spaces.

    Args:
        place: Of the ledger.
    """

    def __init__(self, place: LedgerPlace) -> None:
        self._at = place

    def open(
        self,
        name: str,
        parent: int | None,
        fingerprint: str,
        fields: str,
        collection: Callable[[str], str],
        *,
        fresh: bool = False,
    ) -> tuple[int, str]:
        """The row of a group under some definitions, and its collection; where there is none, a new one.

        Args:
            name: Its name.
            parent: Row of the group above it; None for the root group.
            fingerprint: Of the definitions.
            fields: The fields that filters may read, as text.
            collection: From a suffix, which tells collections of the same definitions apart, to a collection's name.
            fresh: Do not go on with one that is there: what cannot be seen of the definitions is another thing now.
        """
        with self._at.writing() as connection:
            # One that was dropped is not taken up again: it waits to be removed, and what it was made of may be gone.
            present = connection.execute(
                "SELECT id, collection FROM node_group WHERE ledger = ? AND name = ? AND parent IS ? "
                "AND fingerprint = ? AND status <> 'dropped' ORDER BY id DESC",
                (self._at.id, name, parent, fingerprint),
            ).fetchone()
            if present is not None and not fresh:
                # A ledger of an earlier format may not know them.
                connection.execute(
                    "UPDATE node_group SET fields = ? WHERE id = ? AND fields = ''", (fields, present[0])
                )
                return int(present[0]), str(present[1])
            place = collection("")
            if connection.execute("SELECT 1 FROM node_group WHERE collection = ?", (place,)).fetchone():
                place = collection(f".{next_builds(connection, 1)[0]}")
            made = connection.execute(
                "INSERT INTO node_group (ledger, name, parent, fingerprint, fields, collection, status) "
                "VALUES (?, ?, ?, ?, ?, ?, 'building')",
                (self._at.id, name, parent, fingerprint, fields, place),
            )
            return int(made.lastrowid or 0), place

    def open_space(self, group: int, kind: SpaceKind, name: str, identity: str, collection: str) -> tuple[int, int]:
        """The row of a space, and the dimension of its vectors as far as it is known."""
        with self._at.writing() as connection:
            key = (group, kind, name, identity)
            where = "node_group = ? AND kind = ? AND name = ? AND identity = ?"
            connection.execute(
                "INSERT INTO space (node_group, kind, name, identity, collection, status) "
                "VALUES (?, ?, ?, ?, ?, 'building') ON CONFLICT (node_group, kind, name, identity) DO NOTHING",
                (*key, collection),
            )
            connection.execute(
                f"UPDATE space SET status = 'building', whole = 0, dropped_at = 0 WHERE status = 'dropped' AND {where}",  # noqa: S608
                key,
            )
            number, dimension = connection.execute(f"SELECT id, dimension FROM space WHERE {where}", key).fetchone()  # noqa: S608
            return int(number), int(dimension)

    def set_dimension(self, space: int, dimension: int) -> None:
        """Note how long the vectors of a space are, or that they are sparse."""
        with self._at.writing() as connection:
            connection.execute("UPDATE space SET dimension = ? WHERE id = ?", (dimension, space))

    def vector_collections(self, group: int) -> list[str]:
        """Where the vectors of a group are, of all its spaces that have any."""
        with self._at.reading() as connection:
            rows = connection.execute(
                "SELECT collection FROM space WHERE node_group = ? AND kind = 'vectors' AND dimension <> 0", (group,)
            )
            return [collection for (collection,) in rows]

    def dropped_groups(self, before: float) -> list[tuple[int, str]]:
        """Groups that have been dropped since before a time, and their collections; those beneath others first."""
        with self._at.reading() as connection:
            return connection.execute(
                "SELECT id, collection FROM node_group WHERE ledger = ? AND status = 'dropped' AND dropped_at <= ? "
                "ORDER BY id DESC",
                (self._at.id, before),
            ).fetchall()

    def dropped_spaces(self, before: float) -> list[tuple[int, str]]:
        """Spaces that have been dropped since before a time, and the collections of their vectors."""
        with self._at.reading() as connection:
            return connection.execute(
                "SELECT space.id, space.collection FROM space JOIN node_group ON node_group.id = space.node_group "
                "WHERE node_group.ledger = ? AND space.status = 'dropped' AND space.dropped_at <= ?",
                (self._at.id, before),
            ).fetchall()

    def abandon(self, fingerprints: Mapping[str, str]) -> None:
        """Let go of groups that were being built by definitions that do not hold any longer.

        Args:
            fingerprints: Of the present definitions, by group name.
        """
        with self._at.writing() as connection:
            rows = connection.execute(
                "SELECT id, name, fingerprint FROM node_group WHERE ledger = ? AND status = 'building' ORDER BY id",
                (self._at.id,),
            ).fetchall()
            newest = {name: number for number, name, _ in rows}  # earlier ones were begun by definitions before it
            gone = [
                (time.time(), number)
                for number, name, mark in rows
                if fingerprints.get(name) != mark or number != newest[name]
            ]
            connection.executemany("UPDATE node_group SET status = 'dropped', dropped_at = ? WHERE id = ?", gone)
            connection.executemany("DELETE FROM live WHERE node_group = ?", [(number,) for _, number in gone])

    def discard_parts(self, parts: Iterable[int]) -> None:
        """Let go of parts of lexical indexes that cannot be used."""
        with self._at.writing() as connection:
            self._at.next_change(connection)
            connection.executemany("DELETE FROM term_part WHERE id = ?", [(one,) for one in parts])

    def empty_space(self, space: int) -> None:
        """A space holds nothing any longer."""
        with self._at.writing() as connection:
            self._at.next_change(connection)
            connection.execute("DELETE FROM covered WHERE space = ?", (space,))
            connection.execute("UPDATE space SET dimension = 0 WHERE id = ?", (space,))

    def forget_group(self, group: int) -> None:
        """A group that no store holds any longer, with its builds and spaces."""
        with self._at.writing() as connection:
            spaces = "(SELECT id FROM space WHERE node_group = ?)"
            for table in ("covered", "term_part"):
                connection.execute(f"DELETE FROM {table} WHERE space IN {spaces}", (group,))  # noqa: S608  one of two
            connection.execute("DELETE FROM space WHERE node_group = ?", (group,))
            connection.execute("DELETE FROM live WHERE node_group = ?", (group,))
            connection.execute("DELETE FROM build WHERE node_group = ?", (group,))
            connection.execute("UPDATE node_group SET parent = NULL WHERE parent = ?", (group,))
            connection.execute("DELETE FROM node_group WHERE id = ?", (group,))

    def forget_space(self, space: int) -> None:
        """A space that no store holds any longer."""
        with self._at.writing() as connection:
            for table in ("covered", "term_part"):
                connection.execute(f"DELETE FROM {table} WHERE space = ?", (space,))  # noqa: S608  one of two
            connection.execute("DELETE FROM space WHERE id = ?", (space,))

    def term_parts(self, space: int) -> tuple[TermPartRow, ...]:
        """The parts of a lexical index, also of one that is being built."""
        with self._at.reading() as connection:
            return part_rows(connection, space)

    def part_arrays(self, part: int) -> bytes | None:
        """The arrays of a part that lies in its row; None where it has a file.

        Raises:
            StoreError: If there is no such part any more.
        """
        with self._at.reading() as connection:
            found = connection.execute("SELECT arrays FROM term_part WHERE id = ?", (part,)).fetchone()
        if found is None:
            msg = "A part of an index was merged into another one meanwhile. Ask again."
            raise StoreError(msg, store=str(self._at.file.path))
        arrays: bytes | None = found[0]
        return arrays
