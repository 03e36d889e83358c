"""The ledger: the documents, the builds that were made of them, and which of those are live.

It decides what a reader sees, and changes in one transaction: a document's new builds become live
together, or not at all. Stores only hold rows.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lazyrag.ledger.lease import LedgerConnection, Program
from lazyrag.ledger.tables import (
    BuildTable,
    DocumentRow,
    DocumentTable,
    GroupTable,
    signature_columns,
    tombstone_document,
)
from lazyrag.ledger.tree import Tree, load_tree
from lazyrag.progress.blocks import contextmanager
from lazyrag.stores.sqlite import StoreFile


class NewPart(NamedTuple):
    """A part to enter into a keyword index.

    ``replaces`` are the rows of parts that were merged into it, ``retired`` the names of their
    array files.
    """

    index_id: int
    file: str
    arrays: bytes | None
    rows: int
    builds: bytes
    replaces: tuple[int, ...] = ()
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flip:
    """The builds that become live for a document.

    Args:
        row: Its row with new values.
        builds: Its live build in each group, by the group's row; all of them.
        covered: Pairs (index, build) that are added to indexes.
        root: Number of its root build, if this is a new version; None if groups are added to the
            present one.
        deleted: Rows of documents that are deleted in the same transaction: the one that it was
            moved from.
        version_hash: Digest of the file that the version was made of; "" for the present file.
    """

    row: DocumentRow
    builds: Mapping[int, int]
    covered: Sequence[tuple[int, int]] = ()
    root: int | None = None
    deleted: tuple[int, ...] = ()
    version_hash: str = ""


def write_rows(connection: sqlite3.Connection, flips: Sequence[Flip], changes: int | None) -> None:
    """Write the rows of documents, unless readers see no change."""
    if changes is None:
        return
    connection.executemany(
        "UPDATE document SET origin = ?, status = 'live', size = ?, mtime_ns = ?, inode = ?,"
        " seen_ns = ?, content_hash = ?, mark = ?, loaded = ?, said = ?, updates = ?, version ="
        " version + ?, changed = ? WHERE id = ?",
        [(*_live_columns(flip), changes, flip.row.id) for flip in flips],
    )


def _live_columns(flip: Flip) -> tuple[Any, ...]:
    row = flip.row
    return (
        row.origin,
        *signature_columns(row),
        row.seen_ns,
        row.content_hash,
        row.config_hash,
        row.loaded,
        row.user_metadata,
        row.updates,
        flip.root is not None,
    )


def write_builds(connection: sqlite3.Connection, flips: Sequence[Flip]) -> None:
    """Replace the live builds of documents, and enter those that indexes cover."""
    connection.executemany(
        "DELETE FROM live WHERE document = ?", [(flip.row.id,) for flip in flips]
    )
    live: list[tuple[int, int, int]] = []
    covered: list[tuple[int, int]] = []
    for flip in flips:
        live += [(flip.row.id, group, build) for group, build in flip.builds.items()]
        covered += flip.covered
    connection.executemany("INSERT INTO live VALUES (?, ?, ?)", live)
    connection.executemany(
        "INSERT INTO covered VALUES (?, ?) ON CONFLICT (space, build) DO NOTHING", covered
    )


def enter_versions(
    connection: sqlite3.Connection, flips: Sequence[Flip], keep_versions: int
) -> None:
    """Enter the versions that have become live; drop versions and builds beyond
    ``keep_versions``.
    """
    now = time.time()
    connection.executemany(
        "INSERT INTO version SELECT id, version, ?, ?, coalesce(nullif(?, ''), content_hash),"
        " loaded, said, updates FROM document WHERE id = ?",
        [(flip.root, now, flip.version_hash, flip.row.id) for flip in flips],
    )
    connection.executemany(
        "DELETE FROM version WHERE document = ? AND number < (SELECT version FROM document WHERE id"
        " = ?) - ?",
        [(flip.row.id, flip.row.id, keep_versions) for flip in flips],
    )
    connection.executemany(
        "UPDATE build SET status = 'dead', dead_at = ? WHERE document = ? AND status <> 'dead' "
        "AND number NOT IN (SELECT build FROM live WHERE document = ?) "
        "AND root NOT IN (SELECT root FROM version WHERE document = ?)",
        [(now, flip.row.id, flip.row.id, flip.row.id) for flip in flips],
    )


def write_part(connection: sqlite3.Connection, part: NewPart) -> None:
    """Enter a part of a keyword index; it replaces those that were merged into it."""
    connection.executemany("DELETE FROM term_part WHERE id = ?", [(row,) for row in part.replaces])
    if part.rows:
        connection.execute(
            "INSERT INTO term_part (space, file, arrays, rows, builds) VALUES (?, ?, ?, ?, ?)",
            (part.index_id, part.file, part.arrays, part.rows, part.builds),
        )


class Ledger(LedgerConnection):
    """One Document's ledger in a store file. A writer holds its `lease`.

    Args:
        file: The open store file.
        name: Name of the Document.
    """

    def __init__(self, file: StoreFile, name: str) -> None:
        super().__init__(file, name)
        self.documents = DocumentTable(self)
        self.groups = GroupTable(self)
        self.builds = BuildTable(self)
        self._state = Tree(), 0  # what is live, and the counter of removals
        self._own = 0  # how often this object has changed them, or may have missed a change
        self._changing = False
        self._holding = 0
        self._seen = -1, -1  # values of file.commit_counter() and _own at which they were read

    @property
    def tree(self) -> Tree:
        """The present live state."""
        return self.state()[0]

    @property
    def removals(self) -> int:
        """Grows before anything is removed from a store."""
        return self.state()[1]

    def state(self) -> tuple[Tree, int]:
        """The present live state and the counter of removals, read in one transaction."""
        seen = self.file.commit_counter(), self._own
        if seen != self._seen:
            self._refresh(seen)
        return self._state

    @contextmanager
    def held(self, wait_s: float, definitions: Callable[[], Mapping[str, str]]) -> Iterator[None]:
        """Hold the lease, with definitions that no other program contradicts; see `Lease.held` and
        `claim`.
        """

        def begin(connection: sqlite3.Connection) -> None:
            self.claim(connection, definitions())
            self._own += 1
            self._read(connection, (-1, self._own))

        with self.lease.held(wait_s, begin):
            self._holding += 1
            try:
                yield
            finally:
                self._holding -= 1

    @contextmanager
    def writing(
        self, *, durable: bool = False, checked: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """See `LedgerConnection.writing`."""
        connection: sqlite3.Connection | None = None
        try:
            with self.file.writing(durable=durable, checked=checked) as connection:
                self.lease.ensure_held(connection)
                yield connection
        finally:  # it may be committed, and interrupted then
            if self._changing and connection is not None and not connection.in_transaction:
                # now that others see it; before another thread that has changed something goes on
                self._own += 1
                self._changing = False

    def next_change(self, connection: sqlite3.Connection) -> int:
        """See `LedgerConnection.next_change`."""
        self._changing = True
        return super().next_change(connection)

    def _refresh(self, seen: tuple[int, int]) -> None:
        if seen[1] == self._seen[1] and self._holding:  # nobody else changes what is live
            self._seen = seen
            return
        with self.reading() as connection:  # one thread at a time
            self.id = self.id or self.find_row()
            if self.id:
                self._read(connection, seen)

    def _read(self, connection: sqlite3.Connection, seen: tuple[int, int]) -> None:
        changes, removals = connection.execute(
            "SELECT changes, removals FROM ledger WHERE id = ?", (self.id,)
        ).fetchone()
        tree = self._state[0]
        if changes != tree.changes:
            tree = load_tree(connection, self.id, tree)
        self._state = tree, removals
        self._seen = seen

    def flip(
        self,
        flips: Sequence[Flip],
        parts: Sequence[NewPart] = (),
        *,
        keep_versions: int = 0,
        partial_groups: Iterable[int] = (),
        partial_indexes: Iterable[int] = (),
        visible: bool = True,
    ) -> None:
        """Make builds live, in one transaction.

        Args:
            flips: The builds of each document, which replace its live ones.
            parts: Parts of keyword indexes with these builds.
            keep_versions: How many versions before the present one are stored.
            partial_groups: Groups of other programs, which lack these documents from now on.
            partial_indexes: The same for indexes.
            visible: False if readers see no change.
        """
        with self.writing(durable=True) as connection:
            changes = self.next_change(connection) if visible else None
            write_rows(connection, flips, changes)
            write_builds(connection, flips)
            new_versions = [flip for flip in flips if flip.root is not None]
            enter_versions(connection, new_versions, keep_versions)
            for flip in flips:
                for document in flip.deleted:
                    tombstone_document(connection, document, "deleted", changes or 0)
            for part in parts:
                if part.arrays is None:
                    self.file.check_there(part.file)
                write_part(connection, part)
            connection.executemany(
                "UPDATE node_group SET whole = 0 WHERE id = ?",
                [(group,) for group in partial_groups],
            )
            connection.executemany(
                "UPDATE space SET whole = 0 WHERE id = ?", [(index,) for index in partial_indexes]
            )

    def switch(self, groups: Iterable[int], indexes: Iterable[int], dropped: Iterable[int]) -> None:
        """Make complete groups and indexes live and drop others, in one transaction."""
        now = time.time()
        with self.writing(durable=True) as connection:
            changes = self.next_change(connection)
            for group in dropped:
                connection.execute(
                    "UPDATE node_group SET status = 'dropped', whole = 0, dropped_at = ? WHERE"
                    " id = ?",
                    (now, group),
                )
                connection.execute("DELETE FROM live WHERE node_group = ?", (group,))
                connection.execute(
                    "DELETE FROM version WHERE root IN (SELECT number FROM build WHERE node_group"
                    " = ?)",
                    (group,),
                )
            for group in groups:
                [status, parent] = connection.execute(
                    "SELECT status, parent FROM node_group WHERE id = ?", (group,)
                ).fetchone()
                if status == "live":  # readers have a part of it, and have to reload every document
                    connection.execute(
                        "UPDATE document SET changed = ? WHERE ledger = ? AND status = 'live'",
                        (changes, self.id),
                    )
                elif parent is None:  # another root group: its documents start with new versions
                    connection.execute(
                        "INSERT INTO version SELECT document.id, version, live.build, ?,"
                        " content_hash, loaded, said, updates FROM live JOIN document ON"
                        " document.id = live.document WHERE live.node_group = ? ON CONFLICT"
                        " (document, number) DO UPDATE SET root = excluded.root, created_at ="
                        " excluded.created_at, content_hash = excluded.content_hash, loaded ="
                        " excluded.loaded, said = excluded.said, updates = excluded.updates",
                        (now, group),
                    )
                connection.execute(
                    "UPDATE node_group SET status = 'live', whole = 1 WHERE id = ?", (group,)
                )
            for index in indexes:
                # Another identity of the same name has other vectors, or other terms.
                connection.execute(
                    "UPDATE space SET status = 'dropped', whole = 0, dropped_at = ? WHERE status ="
                    " 'live' AND id <> ? AND (node_group, kind, name) = (SELECT node_group, kind,"
                    " name FROM space WHERE id = ?)",
                    (now, index, index),
                )
                connection.execute(
                    "UPDATE space SET status = 'live', whole = 1 WHERE id = ?", (index,)
                )

    def writer(self) -> str:
        """The program that holds the lease; "" for none."""
        holders = self.select(
            "SELECT holder, holder_told FROM ledger WHERE id = ? AND expires_at > ?",
            (self.id, time.time()),
        )
        for holder, description in holders:
            if holder:
                return str(Program.from_json(description, holder))
        return ""

    def announce_removal(self) -> None:
        """Notify readers that rows are about to be removed from stores."""
        with self.writing() as connection:
            self._changing = True
            connection.execute("UPDATE ledger SET removals = removals + 1 WHERE id = ?", (self.id,))
