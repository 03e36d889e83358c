"""The ledger: the documents, the builds that were made of them, and which of those are live.

It decides what a reader sees, and changes in one transaction: a document's new builds become live
together, or not at all. Stores only hold rows.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema
from lazyrag.data.segment import EMPTY
from lazyrag.ledger.field_keys import FieldKeys
from lazyrag.ledger.intervals import correct_intervals, liveness_faults, stateless_parts
from lazyrag.ledger.lease import LedgerConnection, Program, select_in
from lazyrag.ledger.liveness import (
    CoveredBuild,
    PartBuilds,
    TermParts,
    corrections,
    cover,
    end_groups,
    enter_state,
    live_builds_of,
    replace_builds,
    restore_state,
)
from lazyrag.ledger.tables import (
    BuildTable,
    DocumentRow,
    DocumentTable,
    GroupTable,
    delete_parts,
    live_builds,
    signature_columns,
    tombstone_documents,
)
from lazyrag.ledger.tree import Tree, load_tree
from lazyrag.stores.liveness import FOREVER
from lazyrag.stores.sqlite import StoreFile
from lazyrag.types import Int32Array


class NewPart(NamedTuple):
    """A part to enter into a keyword index.

    Args:
        index_id: Row of the index.
        file: Name of its array file, or the name that it would have.
        arrays: Content of the file, if it is stored in the row instead.
        builds: Its builds.
        lengths: (n,) int32, the number of terms of each row.
        replaces: Rows of the parts that were merged into it.
        retired: Names of their array files.
    """

    index_id: int
    file: str
    arrays: bytes | None
    builds: PartBuilds
    lengths: Int32Array
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
    covered: Sequence[CoveredBuild] = ()
    root: int | None = None
    deleted: tuple[int, ...] = ()
    version_hash: str = ""


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


def enter_versions(
    connection: sqlite3.Connection, flips: Sequence[Flip], keep_versions: int
) -> None:
    """Enter the versions that have become live; drop versions and builds beyond
    ``keep_versions``.
    """
    now = time.time()
    flips = [flip for flip in flips if flip.root is not None]
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
        "AND until <> ? AND root NOT IN (SELECT root FROM version WHERE document = ?)",
        [(now, flip.row.id, FOREVER, flip.row.id) for flip in flips],
    )


def write_part(connection: sqlite3.Connection, parts: TermParts, part: NewPart) -> None:
    """Enter a part of a keyword index; it replaces those that were merged into it."""
    if part.arrays is None:
        parts.file.check_there(part.file)
    joined = live_builds_of(connection, parts, part.replaces)
    delete_parts(connection, part.replaces)
    if len(part.lengths):
        inserted = connection.execute(
            "INSERT INTO term_part (space, file, arrays, rows, builds) VALUES (?, ?, ?, ?, ?)",
            (part.index_id, part.file, part.arrays, len(part.lengths), b""),
        )
        number = int(inserted.lastrowid or 0)
        enter_state(connection, number, part.builds, part.lengths, joined)
    if part.replaces:
        parts.close(part.replaces)


class Checked(NamedTuple):
    """Which of some builds are live in one state, and the ledger's present counters.

    The answer counts while ``removals`` is that of the state.
    """

    changes: int
    removals: int
    live: frozenset[int]


_MAX_VERDICTS = 65_536
_CHECKED_AT_ONCE = (8, 16, 32, 64, 128, 256, 512)  # builds, few lengths: SQLite caches statements


@functools.cache
def _check_query(size: int) -> str:
    numbers = ", ".join("?" * size)
    return (
        "SELECT changes, removals, number FROM ledger LEFT JOIN build"  # noqa: S608
        f" ON number IN ({numbers}) AND since <= ? AND until > ? WHERE ledger.id = ?"
    )


class Ledger(LedgerConnection):
    """One Document's ledger in a store file. A writer holds its `lease`.

    Args:
        file: The open store file.
        name: Name of the Document.
        schema: The filterable fields.
    """

    def __init__(self, file: StoreFile, name: str, schema: Schema = BUILT_IN_FIELDS) -> None:
        super().__init__(file, name)
        self.parts = TermParts(file)
        self.field_keys = FieldKeys(self, schema)
        self.documents = DocumentTable(self, self.parts, self.field_keys)
        self.groups = GroupTable(self, self.parts)
        self.builds = BuildTable(self, self.parts)
        # what is live, and the counter of removals; `_begun` and the writer's commits before that
        self._latest = (Tree(), 0), (0, -1)
        self._begun = 0  # grows when others may have changed what is live
        self._verdicts: tuple[int, dict[int, bool]] = (-1, {})
        self._seen = -1  # value of file.commit_counter() at which they were read
        self._changed_at = 0  # the writer's commits once their last change is committed

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
        seen = self.file.commit_counter()
        if seen != self._seen:
            self._refresh(seen)
        return self._latest[0]

    def held(
        self, wait_s: float, definitions: Callable[[], Mapping[str, str]]
    ) -> AbstractContextManager[None]:
        """Hold the lease, with definitions that no other program contradicts; see `Lease.held` and
        `claim`.
        """

        def begin(connection: sqlite3.Connection) -> None:
            self.claim(connection, definitions())
            self._begun += 1
            if not self.field_keys.are_current(self._read(connection, -1)):
                self.field_keys.reset(connection)
                self._read(connection, -1)

        return self.lease.held(wait_s, begin)

    def complete_field_keys(self) -> None:
        """Derive the keys of field values that are missing. The caller holds the lease."""
        if not self.field_keys.are_current(self.tree):
            self.field_keys.fill()

    def next_change(self, connection: sqlite3.Connection) -> int:
        """See `LedgerConnection.next_change`."""
        self._changed_at = self.file.writer.commits + 1
        return super().next_change(connection)

    def reread(self) -> tuple[Tree, int]:
        """See `state`; read in the present transaction, if there is one, and what workers have
        changed under the lease of this object.
        """
        self._seen = -1
        self._begun += 1
        return self.state()

    def _refresh(self, seen: int) -> None:
        if self.lease.is_held and self._latest[1] >= (self._begun, self._changed_at):
            self._seen = seen  # nobody else changes what is live
            return
        with self.reading() as connection:  # one thread at a time
            self.id = self.id or self.find_row()
            if self.id:
                # what this thread has not committed may be rolled back
                self._read(connection, -1 if self.file.is_writing() else seen)

    def _read(self, connection: sqlite3.Connection, seen: int) -> Tree:
        read_at = self._begun, self.file.writer.commits
        changes, removals = connection.execute(
            "SELECT changes, removals FROM ledger WHERE id = ?", (self.id,)
        ).fetchone()
        tree = self._latest[0][0]
        if changes != tree.changes:
            tree = load_tree(connection, self.id, tree, self.reading)
        self._latest = (tree, removals), read_at  # at once: another thread may be reading it
        self._seen = seen
        return tree

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
        if any(flip.row.version or flip.deleted for flip in flips):
            self.parts.open_all(self.id)
        deleted = [document for flip in flips for document in flip.deleted]
        documents = [*deleted, *(flip.row.id for flip in flips)]
        with self.writing(durable=True) as connection:
            before = self.field_keys.live_rows(connection, documents)
            now_live = {build for flip in flips for build in flip.builds.values()}
            live = live_builds(connection, [flip.row.id for flip in flips])
            changes = self._changes_after(connection, visible=visible or bool(live - now_live))
            if visible:
                self._write_rows(connection, flips, changes)
            cover(connection, [pair for flip in flips for pair in flip.covered])
            begun = now_live - live
            replace_builds(connection, self.parts, self.id, changes, begun, live - now_live)
            enter_versions(connection, flips, keep_versions)
            if deleted:
                tombstone_documents(connection, self.parts, self.id, deleted, "deleted", changes)
            for part in parts:
                write_part(connection, self.parts, part)
            connection.executemany(
                "UPDATE node_group SET whole = 0 WHERE id = ?",
                [(group,) for group in partial_groups],
            )
            connection.executemany(
                "UPDATE space SET whole = 0 WHERE id = ?", [(index,) for index in partial_indexes]
            )
            after = self.field_keys.live_rows(connection, documents)
            self.field_keys.replace(connection, before, after)

    def _changes_after(self, connection: sqlite3.Connection, *, visible: bool) -> int:
        """The counter of changes from which on the state of this transaction is live."""
        if visible:
            return self.next_change(connection)
        query = "SELECT changes FROM ledger WHERE id = ?"
        return int(connection.execute(query, (self.id,)).fetchone()[0])

    def _write_rows(
        self, connection: sqlite3.Connection, flips: Sequence[Flip], changes: int
    ) -> None:
        """Write the rows of documents that become live."""
        documents = [flip.row.id for flip in flips]
        again = "SELECT 1 FROM document WHERE until NOT IN (0, ?) AND id IN (?*)"
        # an interval has no gap: a reader of the state before asks again
        if select_in(connection, again, documents, FOREVER):
            connection.execute("UPDATE ledger SET removals = removals + 1 WHERE id = ?", (self.id,))
        connection.executemany(
            "UPDATE document SET origin = ?, status = 'live', size = ?, mtime_ns = ?, inode = ?,"
            " seen_ns = ?, content_hash = ?, mark = ?, loaded = ?, said = ?, updates = ?, version ="
            " version + ?, since = CASE until WHEN ? THEN since ELSE ? END,"
            " until = ? WHERE id = ?",
            [(*_live_columns(flip), FOREVER, changes, FOREVER, flip.row.id) for flip in flips],
        )

    def switch(
        self,
        groups: Iterable[int],
        indexes: Iterable[int],
        dropped: Iterable[int],
        definitions: Mapping[str, tuple[str, str]] = EMPTY,
    ) -> None:
        """Make complete groups and indexes live and drop others, in one transaction; store what the
        definitions of groups consist of, see `GroupTable.describe`.
        """
        now = time.time()
        with self.writing(durable=True) as connection:
            self.next_change(connection)
            self.groups.describe(connection, definitions)
            for group in dropped:
                connection.execute(
                    "UPDATE node_group SET status = 'dropped', whole = 0, dropped_at = ? WHERE"
                    " id = ?",
                    (now, group),
                )
                end_groups(connection, [group])
                connection.execute(
                    "DELETE FROM version WHERE root IN (SELECT number FROM build WHERE node_group"
                    " = ?)",
                    (group,),
                )
            for group in groups:
                [status, parent] = connection.execute(
                    "SELECT status, parent FROM node_group WHERE id = ?", (group,)
                ).fetchone()
                # another root group: its documents start with new versions
                if status != "live" and parent is None:
                    connection.execute(
                        "INSERT INTO version SELECT document.id, version, build.number, ?,"
                        " content_hash, loaded, said, updates FROM build JOIN document ON"
                        " document.id = build.document WHERE build.node_group = ? AND build.until"
                        " = ? ON CONFLICT (document, number) DO UPDATE SET root = excluded.root,"
                        " created_at = excluded.created_at, content_hash = excluded.content_hash,"
                        " loaded = excluded.loaded, said = excluded.said, updates ="
                        " excluded.updates",
                        (now, group, FOREVER),
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

    def drop_leftovers(
        self, fingerprints: Mapping[str, str], definitions: Mapping[str, tuple[str, str]]
    ) -> None:
        """Mark what killed programs have left as dead or dropped, and store what an earlier release
        did not.

        Args:
            fingerprints: Of the present definitions, by group name.
            definitions: What those of live groups consist of, see `GroupTable.describe`.
        """
        with self.writing() as connection:
            self.builds.mark_orphans_dead(connection)
            self.groups.drop_unfinished(connection, fingerprints)
            self.documents.delete_document_rows(connection)
            self.groups.describe(connection, definitions)

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

    def miscounts(self, group: int) -> list[str]:
        """What is counted of a group and its indexes otherwise than what is live."""
        with self.reading() as connection:
            return [wrong.problem for wrong in corrections(connection, self.parts, group)]

    def faults(self) -> list[tuple[str, str, str]]:
        """See `lazyrag.ledger.intervals.liveness_faults`; also wrong keys of field values."""
        with self.reading() as connection:
            faults = liveness_faults(connection, self.id)
        if self.field_keys.are_current(self.tree) and not self.field_keys.are_right():
            faults.append(("the ledger", "", "the keys of field values differ from the documents"))
        return faults

    def correct_counts(self) -> None:
        """Correct `faults`, and count again what is live of all groups and indexes."""
        query = "SELECT id FROM node_group WHERE ledger = ? AND status <> 'dropped'"
        self.parts.open_all(self.id)
        with self.writing() as connection:
            changes = self.next_change(connection)
            correct_intervals(connection, self.id, changes)
            for part in stateless_parts(connection, self.id):
                restore_state(connection, self.parts, part, changes)
            for (group,) in connection.execute(query, (self.id,)).fetchall():
                for correction in list(corrections(connection, self.parts, group)):
                    connection.execute(correction.query, correction.parameters)
        self.field_keys.rebuild()

    def live(self, builds: Sequence[int], at: int) -> Checked:
        """Which of some builds are live in one state, and the present counters.

        Args:
            builds: Their numbers; one statement for up to 512.
            at: The counter of changes in that state.
        """
        live: set[int] = set()
        most = _CHECKED_AT_ONCE[-1]
        with self.reading() as connection:
            for start in range(0, max(1, len(builds)), most):
                some = builds[start : start + most]
                size = next(size for size in _CHECKED_AT_ONCE if size >= len(some))
                padding = [0] * (size - len(some))
                values = (*some, *padding, at, at, self.id)
                rows = connection.execute(_check_query(size), values).fetchall()
                live.update(number for _, _, number in rows if number is not None)
                changes, removals, _ = rows[0]
        return Checked(changes, removals, frozenset(live))

    def verdicts(self, builds: Sequence[int], at: int) -> Mapping[int, bool]:
        """Whether builds are live in one state, at least for some; see `live`. They are cached."""
        cached_at, verdicts = self._verdicts
        if cached_at != at or len(verdicts) > _MAX_VERDICTS:
            verdicts = {}  # other threads may go on with the one before
            self._verdicts = at, verdicts
        missing = [number for number in builds if number not in verdicts]
        if missing:
            live = self.live(missing, at).live
            for number in missing:
                verdicts[number] = number in live
        return verdicts

    def announce_removal(self) -> None:
        """Notify readers that rows are about to be removed from stores."""
        with self.writing() as connection:
            self._changed_at = self.file.writer.commits + 1
            connection.execute("UPDATE ledger SET removals = removals + 1 WHERE id = ?", (self.id,))
