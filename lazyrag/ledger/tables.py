"""The tables of a ledger: documents, groups with their indexes, and builds."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from lazyrag.data.segment import root_uid
from lazyrag.ledger.field_keys import FieldKeys, column_names, named_rows
from lazyrag.ledger.lease import LedgerConnection, chunks, select_in
from lazyrag.ledger.liveness import (
    CoveredBuild,
    TermParts,
    among_live,
    end_groups,
    replace_builds,
    uncover,
)
from lazyrag.ledger.tree import (
    Build,
    IndexKind,
    TermPartRow,
    build_objects,
    node_count,
    part_rows,
    rows_by_identity,
)
from lazyrag.loaders.directory import Signature
from lazyrag.stores.liveness import FOREVER
from lazyrag.stores.sqlite import read_text, stored_text

Origin: TypeAlias = Literal["dataset", "file", "text"]
Status: TypeAlias = Literal["new", "live", "skipped", "deleted", "excluded"]
HIDDEN: tuple[Status, ...] = ("deleted", "excluded")
DOCUMENT_COLUMNS = (
    "id, uid, identity, origin, status, size, mtime_ns, inode, seen_ns, content_hash, mark, "
    "loaded, said, updates, version"
)


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document in the ledger.

    Args:
        id: Its row; 0 before it has one.
        uid: Uid of its root node.
        identity: Path relative to the dataset, or the user's id.
        origin: ``"dataset"``, ``"file"`` or ``"text"``: its origin. A sync handles the first kind
            only.
        status: ``"new"``: nothing is live yet; ``"live"``; ``"skipped"``: a file without text, or
            that nothing reads; ``"deleted"``; ``"excluded"``: deleted by the user, though its file
            may still be there.
        signature: Of its file, when it was read; None for a text.
        seen_ns: When the signature was taken, in nanoseconds since 1970.
        content_hash: Digest of the file's bytes.
        config_hash: Digest of its loader and of the user's metadata.
        loaded: Metadata from the loader, as JSON.
        user_metadata: Metadata from ``file_metadata``, as JSON.
        updates: Metadata from ``update_metadata``, as JSON.
        version: Number of its live version, from 1; 0 for none.
    """

    id: int
    uid: str
    identity: str
    origin: Origin = "dataset"
    status: Status = "new"
    signature: Signature | None = None
    seen_ns: int = 0
    content_hash: str = ""
    config_hash: str = ""
    loaded: str = "{}"
    user_metadata: str = "{}"
    updates: str = "{}"
    version: int = 0


DocumentRows: TypeAlias = Mapping[str, DocumentRow]
"""Rows of documents by identity."""


class BuildRow(NamedTuple):
    """A build in the ledger; see `lazyrag.stores.sqlite` for the columns."""

    number: int
    document: int
    node_group: int
    parent: int | None
    root: int
    input: str
    counts: str
    output: str = ""


_BUILD = ", ".join(f"build.{name}" for name in BuildRow._fields)


class Version(NamedTuple):
    """A stored version of a document."""

    number: int
    root: int
    created_at: float
    content_hash: str
    loaded: str
    user_metadata: str
    updates: str


def new_row(identity: str) -> DocumentRow:
    """Return the row of a document that the ledger does not have yet."""
    return DocumentRow(0, root_uid(identity), identity)


def document_row(row: tuple[Any, ...]) -> DocumentRow:
    """A row of `DOCUMENT_COLUMNS` as a value."""
    number, uid, identity, origin, status, size, mtime_ns, inode, *rest = row
    signature = None if size is None else Signature(size, mtime_ns, inode)
    return DocumentRow(number, uid, read_text(identity), origin, status, signature, *rest)


def signature_columns(row: DocumentRow) -> tuple[int | None, int | None, int | None]:
    """Size, time of modification and inode, as columns."""
    signature = row.signature
    if signature is None:
        return None, None, None
    return signature.size, signature.mtime_ns, signature.inode


def tombstone_documents(
    connection: sqlite3.Connection,
    parts: TermParts,
    ledger: int,
    documents: Sequence[int],
    status: Status,
    changes: int,
    *,
    keeps_builds: bool = False,
) -> None:
    """Hide documents from readers; their rows in stores are purged later."""
    rows = [(document,) for document in documents]
    connection.executemany(
        "UPDATE document SET status = ?, until = min(until, ?) WHERE id = ?",
        [(status, changes, document) for document in documents],
    )
    ended = live_builds(connection, documents)
    replace_builds(connection, parts, ledger, changes, ended=ended)
    if keeps_builds:
        return
    connection.executemany("DELETE FROM version WHERE document = ?", rows)
    connection.executemany(
        "DELETE FROM failure WHERE (ledger, identity) = (SELECT ledger, identity FROM document"
        " WHERE id = ?)",
        rows,
    )
    now = time.time()
    connection.executemany(
        "UPDATE build SET status = 'dead', dead_at = ? WHERE document = ? AND status <> 'dead'",
        [(now, document) for document in documents],
    )


def live_builds(connection: sqlite3.Connection, documents: Collection[int]) -> set[int]:
    """Numbers of the live builds of some documents."""
    query = "SELECT number FROM build WHERE until = ? AND document IN (?*)"
    return {number for (number,) in select_in(connection, query, documents, FOREVER)}


class _LedgerTable:
    """Some tables of a ledger.

    Args:
        db: Connection to the ledger.
        parts: The parts of keyword indexes in its file.
    """

    def __init__(self, db: LedgerConnection, parts: TermParts) -> None:
        self._db = db
        self._parts = parts

    def _column(self, query: str, *parameters: Any) -> list[Any]:
        """The values of a query for one column."""
        return [value for (value,) in self._db.select(query, parameters)]


class BuildTable(_LedgerTable):
    """The builds of a ledger."""

    def live(self, documents: Collection[int]) -> dict[int, dict[int, BuildRow]]:
        """The live builds of some documents in all groups, complete or not: by document, then by
        group.
        """
        builds_of: dict[int, dict[int, BuildRow]] = {}
        query = (
            f"SELECT {_BUILD} FROM build"  # noqa: S608
            f" WHERE until = {FOREVER} AND document IN (?*)"
        )
        for build in map(BuildRow._make, self._db.select_in(query, documents)):
            builds_of.setdefault(build.document, {})[build.node_group] = build
        return builds_of

    def rows(self, numbers: Collection[int]) -> dict[int, BuildRow]:
        """Some builds, live or not, by number."""
        query = f"SELECT {_BUILD} FROM build WHERE number IN (?*)"  # noqa: S608
        rows = map(BuildRow._make, self._db.select_in(query, numbers))
        return {row.number: row for row in rows}

    def numbers_in(self, group: int) -> list[int]:
        """Numbers of all builds of a group, including those that wait to be purged."""
        return self._column("SELECT number FROM build WHERE node_group = ?", group)

    def live_in(self, group: int) -> list[BuildRow]:
        """The live builds of a group."""
        query = f"SELECT {_BUILD} FROM build WHERE node_group = ? AND until = ?"  # noqa: S608
        return list(map(BuildRow._make, self._db.select(query, (group, FOREVER))))

    def mark_orphans_dead(self, connection: sqlite3.Connection) -> None:
        """Mark the unused builds of killed programs as dead.

        Builds of groups under construction stay, and those of documents that failed in another
        step: they are used when it is tried again.
        """
        connection.execute(
            "UPDATE build SET status = 'dead', dead_at = ? WHERE until = 0 AND status <> 'dead'"
            " AND (SELECT ledger FROM document WHERE id = build.document) = ? AND (status ="
            " 'writing' OR (NOT EXISTS (SELECT 1 FROM version WHERE version.document ="
            " build.document AND version.root = build.root) AND document NOT IN (SELECT"
            " document.id FROM failure JOIN document ON document.ledger = failure.ledger AND"
            " document.identity = failure.identity) AND node_group IN (SELECT id FROM"
            " node_group WHERE status = 'live')))",
            (time.time(), self._db.id),
        )

    def discard(self, numbers: Iterable[int]) -> None:
        """Discard damaged builds, and all builds that were made of them."""
        now = time.time()
        self._parts.open_all(self._db.id)
        with self._db.writing(durable=True) as connection:
            changes = self._db.next_change(connection)
            waiting = set(numbers)
            discarded = set()
            while waiting:
                discarded |= waiting
                below = select_in(
                    connection, "SELECT number FROM build WHERE parent IN (?*)", waiting
                )
                waiting = {number for (number,) in below} - discarded
            rows = [(number,) for number in sorted(discarded)]
            ended = among_live(connection, discarded)
            replace_builds(connection, self._parts, self._db.id, changes, ended=ended)
            connection.executemany("DELETE FROM covered WHERE build = ?", rows)
            connection.executemany("DELETE FROM version WHERE root = ?", rows)
            connection.executemany(
                "UPDATE build SET status = 'dead', dead_at = ? WHERE number = ?",
                [(now, number) for (number,) in rows],
            )

    def uncover(self, pairs: Iterable[CoveredBuild]) -> None:
        """Remove pairs (index, build) from the builds that indexes cover."""
        with self._db.writing() as connection:
            uncover(connection, list(pairs))

    def written(self, documents: Collection[int]) -> list[BuildRow]:
        """Builds of some documents that a store has acknowledged, live or not; each document's by
        number.
        """
        query = (
            f"SELECT {_BUILD} FROM build"  # noqa: S608
            " WHERE status = 'written' AND document IN (?*) ORDER BY number"
        )
        return list(map(BuildRow._make, self._db.select_in(query, documents)))

    def not_dead(self, numbers: Collection[int]) -> list[int]:
        """Those of some builds that are not dead."""
        query = "SELECT number FROM build WHERE status <> 'dead' AND number IN (?*)"
        return [number for (number,) in self._db.select_in(query, numbers)]

    def dead(self, connection: sqlite3.Connection, before: float) -> list[tuple[int, int, str]]:
        """Builds of groups in use that have been dead since before a time: number, row of the
        group, its collection.
        """
        return connection.execute(
            "SELECT build.number, build.node_group, node_group.collection FROM build "
            "JOIN node_group ON node_group.id = build.node_group "
            "WHERE build.status = 'dead' AND build.dead_at <= ? AND node_group.ledger = ? "
            "AND node_group.status <> 'dropped' ORDER BY build.node_group, build.number",
            (before, self._db.id),
        ).fetchall()

    def with_parents(self, numbers: Collection[int]) -> dict[int, Build]:
        """Builds by number, with those above them."""
        with self._db.reading() as connection:
            return build_objects(connection, numbers)

    def superseded(self, group: int) -> list[int]:
        """Numbers of builds of a group that are marked as live, and are dead or not the newest
        live one of their document.
        """
        return self._column(
            "SELECT number FROM build WHERE node_group = ? AND until = ? AND (status = 'dead' OR"
            " EXISTS (SELECT 1 FROM build AS newer WHERE newer.document = build.document AND"
            " newer.node_group = build.node_group AND newer.until = build.until AND newer.number >"
            " build.number))",
            group,
            FOREVER,
        )

    def incomplete(self, groups: Collection[int]) -> list[int]:
        """Those of some groups of which other builds are counted than there are root nodes."""
        query = (
            "SELECT id FROM node_group WHERE documents <> coalesce((SELECT documents FROM"
            " node_group AS root WHERE root.ledger = ? AND root.parent IS NULL AND root.status ="
            " 'live'), -1) AND id IN (?*)"
        )
        return [group for (group,) in self._db.select_in(query, groups, self._db.id)]

    def covers_all(self, index: int) -> bool:
        """Whether an index counts as many live nodes as its group."""
        query = (
            "SELECT space.nodes = node_group.nodes FROM space JOIN node_group ON node_group.id ="
            " space.node_group WHERE space.id = ?"
        )
        return bool(self._column(query, index)[0])

    def missing(self, group: int) -> set[int]:
        """Rows of the live documents that have no live build in a group."""
        query = (
            "SELECT id FROM document WHERE ledger = ? AND status = 'live' AND NOT EXISTS "
            "(SELECT 1 FROM build WHERE document = document.id AND node_group = ? AND build.until"
            " = ?)"
        )
        return set(self._column(query, self._db.id, group, FOREVER))

    def missing_cover(self, group: int, index: int) -> set[int]:
        """Rows of the documents whose live build in a group is not in an index."""
        query = (
            f"SELECT document FROM build WHERE node_group = ? AND until = {FOREVER}"  # noqa: S608
            " AND NOT EXISTS (SELECT 1 FROM covered WHERE space = ? AND build = number)"
        )
        return set(self._column(query, group, index))

    def covered(self, index: int, builds: Collection[int]) -> set[int]:
        """Those of some builds that are in an index."""
        query = "SELECT build FROM covered WHERE space = ? AND build IN (?*)"
        return {build for (build,) in self._db.select_in(query, builds, index)}

    def count_rows(self, group: int, index: int | None = None, *, dead: bool = False) -> int:
        """How many rows of a group, or vectors of an index over it, a store acknowledged; dead
        builds if requested.
        """
        cover = (
            ""
            if index is None
            else "JOIN covered ON covered.build = build.number AND covered.space = ? "
        )
        where = "node_group = ? AND status IN ('written', ?)"
        status = "dead" if dead else "written"
        query = (
            f"SELECT counts, count(*) FROM build {cover}WHERE {where}"  # noqa: S608
            " GROUP BY counts"
        )
        rows = self._db.select(query, (group, status) if index is None else (index, group, status))
        return sum(sum(json.loads(counts)) * builds for counts, builds in rows)

    def count_nodes(self, group: int, documents: Collection[int]) -> int:
        """How many live nodes some documents have in a group."""
        query = (
            f"SELECT size FROM build WHERE node_group = ? AND until = {FOREVER}"  # noqa: S608
            " AND document IN (?*)"
        )
        return sum(size for (size,) in self._db.select_in(query, documents, group))

    def count_live(self, group: int) -> int:
        """How many documents have a live build in a group."""
        [count] = self._column("SELECT documents FROM node_group WHERE id = ?", group)
        return int(count)

    def count_covered(self, index: int) -> int:
        """How many live builds are in an index."""
        query = (
            "SELECT count(*) FROM covered JOIN build ON number = build WHERE space = ? AND until"
            " = ?"
        )
        [count] = self._column(query, index, FOREVER)
        return int(count)

    def delete_build_rows(self, numbers: Iterable[int]) -> None:
        """Remove builds whose nodes are purged, and the rows of deleted documents that have no
        more.
        """
        rows = [(number,) for number in numbers]
        with self._db.writing() as connection:
            query = "SELECT DISTINCT document FROM build WHERE number IN (?*)"
            documents = list(select_in(connection, query, [number for (number,) in rows]))
            connection.executemany("DELETE FROM covered WHERE build = ?", rows)
            connection.executemany("DELETE FROM build WHERE number = ?", rows)
            connection.executemany(
                f"DELETE FROM {_GONE} AND id = ?",  # noqa: S608
                [(self._db.id, document) for (document,) in documents],
            )


_GONE = (
    "document WHERE ledger = ? AND status <> 'live' AND status IN ('deleted', 'new') "
    "AND NOT EXISTS (SELECT 1 FROM build WHERE build.document = document.id) "
    # the failure of an added file needs its row: no sync tries it again
    "AND (origin = 'dataset' OR NOT EXISTS (SELECT 1 FROM failure WHERE failure.ledger ="
    " document.ledger AND failure.identity = document.identity))"
)


def begin_builds(connection: sqlite3.Connection, rows: Iterable[BuildRow]) -> None:
    """Enter builds before their nodes are written, so that leftovers of a crash can be found."""
    connection.executemany(
        "INSERT INTO build (number, document, node_group, parent, root, input, counts, output,"
        " size, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'writing') ON CONFLICT (number) DO"
        " UPDATE SET input = excluded.input, counts = excluded.counts, output = excluded.output,"
        " size = excluded.size, status = 'writing', dead_at = 0, document = excluded.document,"
        " node_group = excluded.node_group, parent = excluded.parent, root = excluded.root",
        [(*row, node_count(row.counts)) for row in rows],
    )


def acknowledge_builds(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Mark builds as written: the store has acknowledged their nodes."""
    connection.executemany(
        "UPDATE build SET status = 'written' WHERE number = ?", [(number,) for number in numbers]
    )


def _empty_index(connection: sqlite3.Connection, index: int) -> None:
    connection.execute("DELETE FROM covered WHERE space = ?", (index,))
    parts = connection.execute("SELECT id FROM term_part WHERE space = ?", (index,)).fetchall()
    delete_parts(connection, [part for (part,) in parts])


def delete_parts(connection: sqlite3.Connection, parts: Sequence[int]) -> None:
    """Delete parts of keyword indexes, with their live rows."""
    rows = [(part,) for part in parts]
    connection.executemany("DELETE FROM term_state WHERE part = ?", rows)
    connection.executemany("DELETE FROM term_part WHERE id = ?", rows)


def next_builds(connection: sqlite3.Connection, count: int) -> range:
    """Reserve build numbers, in a writing transaction."""
    [first] = connection.execute("SELECT next FROM build_sequence").fetchone()
    connection.execute("UPDATE build_sequence SET next = ?", (first + count,))
    return range(first, first + count)


class DocumentTable(_LedgerTable):
    """The documents of a ledger.

    Args:
        db: Connection to the ledger.
        parts: The parts of keyword indexes in its file.
        field_keys: By what questions name the documents.
    """

    _may_have_failures = True  # as of the last `register` or `set_failures`

    def __init__(self, db: LedgerConnection, parts: TermParts, field_keys: FieldKeys) -> None:
        super().__init__(db, parts)
        self._field_keys = field_keys

    def named(self, identities: Iterable[str]) -> dict[str, DocumentRow]:
        """Those of some documents that are known, by identity, including deleted ones."""
        query = (
            f"SELECT {DOCUMENT_COLUMNS} FROM document"  # noqa: S608
            " WHERE ledger = ? AND uid IN (?*)"
        )
        rows = self._db.select_in(
            query, {root_uid(identity) for identity in identities}, self._db.id
        )
        return {row.identity: row for row in map(document_row, rows)}

    def find(self, identity: str) -> DocumentRow | None:
        """One of them; None if it is unknown."""
        return next(iter(self.named([identity]).values()), None)

    def in_order(self) -> Iterator[DocumentRow]:
        """Yield all documents in the order of identities, including deleted ones; read in pages."""
        rows = rows_by_identity(self._db.reading, DOCUMENT_COLUMNS, "ledger = ?", self._db.id)
        return map(document_row, rows)

    def all(self) -> dict[str, DocumentRow]:
        """All documents by identity, including deleted ones."""
        return {row.identity: row for row in self.in_order()}

    def identities(self) -> list[tuple[str, int]]:
        """Identity and row of all documents, in the order of identities."""
        rows = self._db.select("SELECT identity, id FROM document WHERE ledger = ?", (self._db.id,))
        return sorted((read_text(identity), row) for identity, row in rows)

    def with_content(self, content_hash: str) -> list[str]:
        """Identities of the live documents with some content."""
        query = (
            "SELECT identity FROM document WHERE ledger = ? AND status = 'live' AND"
            " content_hash = ?"
        )
        return list(map(read_text, self._column(query, self._db.id, content_hash)))

    def count_live(self) -> int:
        """How many documents are live, with or without a root node."""
        query = "SELECT count(*) FROM document WHERE ledger = ? AND status = 'live'"
        [count] = self._column(query, self._db.id)
        return int(count)

    def live_bytes(self) -> int:
        """The size of the files of live documents."""
        query = "SELECT coalesce(sum(size), 0) FROM document WHERE ledger = ? AND status = 'live'"
        [size] = self._column(query, self._db.id)
        return int(size)

    def content_hashes(self) -> set[str]:
        """Content hashes of live documents and of stored versions."""
        live = "SELECT content_hash FROM document WHERE ledger = ? AND status = 'live'"
        return {*self._column(live, self._db.id), *self._column("SELECT content_hash FROM version")}

    def rows(self, numbers: Iterable[int]) -> Iterator[DocumentRow]:
        """The rows of some documents, in their order; read lazily."""
        for some in chunks(list(numbers)):
            rows = self._db.select_in(
                f"SELECT {DOCUMENT_COLUMNS} FROM document WHERE id IN (?*)",  # noqa: S608
                some,
            )
            by_number = {row.id: row for row in map(document_row, rows)}
            yield from (by_number[number] for number in some)

    def register(
        self, connection: sqlite3.Connection, rows: Sequence[DocumentRow]
    ) -> list[DocumentRow]:
        """Enter documents; a known one gets the number of its old row and of its version."""
        failed = connection.execute(
            "SELECT 1 FROM failure WHERE ledger = ? LIMIT 1", (self._db.id,)
        ).fetchone()
        self._may_have_failures = failed is not None
        connection.executemany(
            "INSERT INTO document (ledger, uid, identity, origin, status) VALUES (?, ?, ?, ?,"
            " 'new') ON CONFLICT (ledger, uid) DO NOTHING",
            [(self._db.id, row.uid, stored_text(row.identity), row.origin) for row in rows],
        )
        query = "SELECT id, version FROM document WHERE ledger = ? AND uid = ?"
        known_rows = self._db.file.fetch_each(
            connection, query, [(self._db.id, row.uid) for row in rows]
        )
        return [
            replace(row, id=number, version=version)
            for row, (number, version) in zip(rows, known_rows, strict=True)
        ]

    def note_files(self, rows: Iterable[DocumentRow]) -> None:
        """Update the rows of files whose content has not changed."""
        rows = list(rows)
        with self._db.writing() as connection:
            # The live version was made of a file of the same text, unless an earlier one was made
            # live again.
            connection.executemany(
                "UPDATE version SET content_hash = ? WHERE document = ? "
                "AND content_hash = (SELECT content_hash FROM document WHERE id = ?)",
                [(row.content_hash, row.id, row.id) for row in rows],
            )
            connection.executemany(
                "UPDATE document SET size = ?, mtime_ns = ?, inode = ?, seen_ns = ?, content_hash ="
                " ?, mark = ? WHERE id = ?",
                [
                    (
                        *signature_columns(row),
                        row.seen_ns,
                        row.content_hash,
                        row.config_hash,
                        row.id,
                    )
                    for row in rows
                ],
            )

    def note_skipped(self, pairs: Sequence[tuple[DocumentRow, str]]) -> None:
        """Remember files without text, or that nothing reads, and why; they have no live
        document.
        """
        with self._db.writing() as connection:
            connection.executemany(
                "UPDATE document SET status = 'skipped', loaded = ? WHERE id = ?",
                [(json.dumps({"skipped": why}), row.id) for row, why in pairs],
            )
        self.note_files(row for row, _ in pairs)

    def force_reload(self, uids: Iterable[str]) -> None:
        """Force the files of some documents to be read again."""
        with self._db.writing() as connection:
            self._db.next_change(connection)
            connection.executemany(
                "UPDATE document SET content_hash = '', seen_ns = 0 WHERE ledger = ? AND uid = ?",
                [(self._db.id, uid) for uid in uids],
            )

    def tombstone(
        self, documents: Iterable[int], status: Status, *, keeps_builds: bool = False
    ) -> None:
        """Hide documents from readers at once; their rows are purged later, unless a purge is yet
        to look for them.
        """
        self._parts.open_all(self._db.id)
        numbers = list(documents)
        with self._db.writing(durable=True) as connection:
            self._field_keys.replace(connection, self._field_keys.live_rows(connection, numbers))
            changes = self._db.next_change(connection)
            tombstone_documents(
                connection,
                self._parts,
                self._db.id,
                numbers,
                status,
                changes,
                keeps_builds=keeps_builds,
            )

    def delete_document_rows(self, connection: sqlite3.Connection) -> None:
        """Remove the rows of deleted documents without builds; looks at all documents."""
        connection.execute(f"DELETE FROM {_GONE}", (self._db.id,))  # noqa: S608

    def rolled_back(self) -> set[int]:
        """Rows of the documents whose live version was made of another file than the present
        one.
        """
        query = (
            "SELECT document.id FROM document JOIN version ON version.document = document.id "
            "AND version.number = document.version "
            "WHERE ledger = ? AND version.content_hash <> document.content_hash"
        )
        return set(self._column(query, self._db.id))

    def versions(self, document: int) -> list[Version]:
        """The stored versions of a document, oldest first."""
        rows = self._db.select(
            "SELECT number, root, created_at, content_hash, loaded, said, updates FROM version "
            "WHERE document = ? ORDER BY number",
            (document,),
        )
        return list(map(Version._make, rows))

    def created(self, numbers: Collection[int]) -> dict[int, float]:
        """When the live versions of some documents became live, by row, in seconds since 1970."""
        query = (
            "SELECT document, created_at FROM version JOIN document ON document.id = document "
            "AND document.version = number WHERE document IN (?*)"
        )
        return dict(self._db.select_in(query, numbers))

    def set_failures(
        self, identities: Iterable[str], failed: Iterable[tuple[str, str, Exception]]
    ) -> None:
        """Replace the failures of some documents.

        Args:
            identities: Of the documents that were tried.
            failed: Identity, stage and error of each that failed.
        """
        now = time.time()
        failures = [
            (
                identity,
                stage,
                f"{type(error).__name__} {getattr(error, 'quarantine', '')}".rstrip(),
                str(error),
            )
            for identity, stage, error in failed
        ]
        tried = [(self._db.id, stored_text(identity)) for identity in identities]
        if not (failures or (tried and self._may_have_failures)):
            return  # without a transaction, and most batches have none
        self._may_have_failures = True
        with self._db.writing() as connection:
            connection.executemany("DELETE FROM failure WHERE ledger = ? AND identity = ?", tried)
            connection.executemany(
                "INSERT INTO failure VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (ledger, identity,"
                " stage) DO UPDATE SET kind = excluded.kind, message = excluded.message, failed_at"
                " = excluded.failed_at",
                [(self._db.id, *map(stored_text, failure), now) for failure in failures],
            )

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Identity, stage, class of the error and message of all failures at the last try."""
        return [
            (identity, stage, kind.partition(" ")[0], text)
            for identity, stage, kind, text in self._failures()
        ]

    def quarantined(self) -> dict[str, tuple[str, str]]:
        """For each file that ended its loader: `LoaderEndedError.quarantine`, and the message."""
        quarantines = (
            (identity, kind.partition(" ")[2], text) for identity, _, kind, text in self._failures()
        )
        return {identity: (key, text) for identity, key, text in quarantines if key}

    def _failures(self) -> Iterator[tuple[str, str, str, str]]:
        rows = self._db.select(
            "SELECT identity, stage, kind, message FROM failure WHERE ledger = ? ORDER BY identity,"
            " stage",
            (self._db.id,),
        )
        return (
            (read_text(identity), stage, kind, read_text(message))
            for identity, stage, kind, message in rows
        )


class GroupTable(_LedgerTable):
    """The groups of a ledger, and their indexes."""

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
        """The row and the collection of a group under some definitions; created if missing.

        Args:
            name: Its name.
            parent: Row of the group above it; None for the root group.
            fingerprint: Of the definitions.
            fields: The filterable fields, as text.
            collection: From a suffix, which distinguishes collections of the same definitions, to a
                collection's name.
            fresh: Create a new row: the definition has changed in a way that its fingerprint cannot
                show.
        """
        with self._db.writing() as connection:
            # A dropped group is not reused: it waits to be purged, and its parents' nodes may be
            # gone.
            present = connection.execute(
                "SELECT id, collection FROM node_group WHERE ledger = ? AND name = ? AND parent IS"
                " ? AND fingerprint = ? AND status <> 'dropped' ORDER BY id DESC",
                (self._db.id, name, parent, fingerprint),
            ).fetchone()
            if present is not None and not fresh:
                # A ledger of an earlier format may lack them.
                connection.execute(
                    "UPDATE node_group SET fields = ? WHERE id = ? AND fields = ''",
                    (fields, present[0]),
                )
                return int(present[0]), str(present[1])
            collection_name = collection("")
            if connection.execute(
                "SELECT 1 FROM node_group WHERE collection = ?", (collection_name,)
            ).fetchone():
                collection_name = collection(f".{next_builds(connection, 1)[0]}")
            inserted = connection.execute(
                "INSERT INTO node_group (ledger, name, parent, fingerprint, fields, collection,"
                " status) VALUES (?, ?, ?, ?, ?, ?, 'building')",
                (self._db.id, name, parent, fingerprint, fields, collection_name),
            )
            return int(inserted.lastrowid or 0), collection_name

    def describe(
        self, connection: sqlite3.Connection, definitions: Mapping[str, tuple[str, str]]
    ) -> None:
        """Store what the definitions of groups consist of, for messages; by name with their
        fingerprints.

        Earlier releases made files of the same format without the column, and ignore it.
        """
        if not definitions:
            return
        if "definition" not in column_names(connection.execute("SELECT * FROM node_group LIMIT 0")):
            connection.execute(
                "ALTER TABLE node_group ADD COLUMN definition TEXT NOT NULL DEFAULT ''"
            )
        connection.executemany(
            "UPDATE node_group SET definition = ? WHERE ledger = ? AND name = ? AND fingerprint"
            " = ? AND definition = ''",
            [
                (parts, self._db.id, name, fingerprint)
                for name, (fingerprint, parts) in definitions.items()
            ],
        )

    def descriptions(self) -> dict[int, tuple[str, str]]:
        """Definition and filterable fields of the groups, by row; "" where an earlier release did
        not store them.
        """
        with self._db.reading() as connection:
            rows = connection.execute("SELECT * FROM node_group WHERE ledger = ?", (self._db.id,))
            return {
                row["id"]: (row.get("definition", ""), row["fields"]) for row in named_rows(rows)
            }

    def open_index(
        self, group: int, kind: IndexKind, name: str, identity: str, collection: str
    ) -> tuple[int, int]:
        """The row of an index, created if missing, and the dimension of its vectors."""
        with self._db.writing() as connection:
            key = (group, kind, name, identity)
            where = "node_group = ? AND kind = ? AND name = ? AND identity = ?"
            connection.execute(
                "INSERT INTO space (node_group, kind, name, identity, collection, status) VALUES"
                " (?, ?, ?, ?, ?, 'building') ON CONFLICT (node_group, kind, name, identity) DO"
                " NOTHING",
                (*key, collection),
            )
            connection.execute(
                "UPDATE space SET status = 'building', whole = 0, dropped_at = 0"  # noqa: S608
                f" WHERE status = 'dropped' AND {where}",
                key,
            )
            number, dimension = connection.execute(
                f"SELECT id, dimension FROM space WHERE {where}",  # noqa: S608
                key,
            ).fetchone()
            return int(number), int(dimension)

    def model_records(self, key: str) -> list[tuple[str, str]]:
        """Identity and record of the model of each vector index of an embed key that is not
        dropped, oldest first.

        A record is "" where an earlier release did not store it.
        """
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT space.* FROM space JOIN node_group ON node_group.id = node_group WHERE"
                " ledger = ? AND kind = 'vectors' AND space.name = ? AND space.status <> 'dropped'"
                " ORDER BY space.id",
                (self._db.id, key),
            )
            return [(row["identity"], row.get("model", "")) for row in named_rows(rows)]

    def note_model(self, key: str, identities: Sequence[str], record: str) -> None:
        """Store the record of a model with its vector indexes; earlier releases made and ignore
        files without them.
        """
        with self._db.writing() as connection:
            if "model" not in column_names(connection.execute("SELECT * FROM space LIMIT 0")):
                connection.execute("ALTER TABLE space ADD COLUMN model TEXT NOT NULL DEFAULT ''")
            connection.executemany(
                "UPDATE space SET model = ? WHERE kind = 'vectors' AND name = ? AND identity = ? "
                "AND node_group IN (SELECT id FROM node_group WHERE ledger = ?)",
                [(record, key, identity, self._db.id) for identity in identities],
            )

    def set_dimension(self, index: int, dimension: int) -> None:
        """Store the dimension of an index's vectors."""
        with self._db.writing() as connection:
            connection.execute("UPDATE space SET dimension = ? WHERE id = ?", (dimension, index))

    def vector_collections(self, group: int) -> list[str]:
        """The collections of a group's vectors."""
        query = (
            "SELECT collection FROM space WHERE node_group = ? AND kind = 'vectors' AND dimension"
            " <> 0"
        )
        return self._column(query, group)

    def unfinished_vectors(self) -> list[tuple[int, int, str, int]]:
        """Vector indexes that are not live yet: row, row of the group, collection and dimension."""
        return self._db.select(
            "SELECT space.id, node_group, space.collection, dimension FROM space JOIN node_group ON"
            " node_group.id = node_group WHERE ledger = ? AND dimension <> 0 AND node_group.status"
            " <> 'dropped' AND (space.status = 'building' OR (space.status = 'live' AND"
            " node_group.status = 'building'))",
            (self._db.id,),
        )

    def models(self) -> list[tuple[int, str, str]]:
        """The models with vectors in the file: row of the ledger, collection of the texts, identity
        of the model.
        """
        return self._db.select(
            "SELECT ledger, node_group.collection, identity FROM space "
            "JOIN node_group ON node_group.id = space.node_group WHERE kind = 'vectors' "
            "AND space.status <> 'dropped' AND node_group.status <> 'dropped'"
        )

    def dropped_groups(
        self, connection: sqlite3.Connection, before: float
    ) -> list[tuple[int, str]]:
        """Groups that have been dropped since before a time, and their collections; children
        first.
        """
        return connection.execute(
            "SELECT id, collection FROM node_group WHERE ledger = ? AND status = 'dropped' AND"
            " dropped_at <= ? ORDER BY id DESC",
            (self._db.id, before),
        ).fetchall()

    def dropped_indexes(
        self, connection: sqlite3.Connection, before: float
    ) -> list[tuple[int, str]]:
        """Indexes that have been dropped since before a time, and the collections of their
        vectors.
        """
        return connection.execute(
            "SELECT space.id, space.collection FROM space JOIN node_group ON node_group.id ="
            " space.node_group WHERE node_group.ledger = ? AND space.status = 'dropped' AND"
            " space.dropped_at <= ?",
            (self._db.id, before),
        ).fetchall()

    def drop_unfinished(
        self, connection: sqlite3.Connection, fingerprints: Mapping[str, str]
    ) -> None:
        """Drop unfinished groups of definitions that are not current any more.

        Args:
            connection: In a writing transaction.
            fingerprints: Of the present definitions, by group name.
        """
        rows = connection.execute(
            "SELECT id, name, fingerprint FROM node_group WHERE ledger = ? AND status ="
            " 'building' ORDER BY id",
            (self._db.id,),
        ).fetchall()
        # earlier ones were begun by definitions before it
        newest = {name: number for number, name, _ in rows}
        dropped = [
            (time.time(), number)
            for number, name, fingerprint in rows
            if fingerprints.get(name) != fingerprint or number != newest[name]
        ]
        connection.executemany(
            "UPDATE node_group SET status = 'dropped', dropped_at = ? WHERE id = ?", dropped
        )
        groups = [number for _, number in dropped]
        end_groups(connection, groups)

    def discard_parts(self, parts: Iterable[int]) -> None:
        """Remove damaged parts of keyword indexes."""
        with self._db.writing() as connection:
            self._db.next_change(connection)
            delete_parts(connection, list(parts))

    def empty_index(self, index: int) -> None:
        """Mark an index as empty."""
        with self._db.writing() as connection:
            self._db.next_change(connection)
            connection.execute("DELETE FROM covered WHERE space = ?", (index,))
            connection.execute("UPDATE space SET dimension = 0, nodes = 0 WHERE id = ?", (index,))

    def delete_group_row(self, group: int) -> None:
        """Remove a purged group, with its builds and indexes."""
        with self._db.writing() as connection:
            indexes = connection.execute("SELECT id FROM space WHERE node_group = ?", (group,))
            for (index,) in indexes.fetchall():
                _empty_index(connection, index)
            connection.execute("DELETE FROM space WHERE node_group = ?", (group,))
            connection.execute("DELETE FROM build WHERE node_group = ?", (group,))
            connection.execute("UPDATE node_group SET parent = NULL WHERE parent = ?", (group,))
            connection.execute("DELETE FROM node_group WHERE id = ?", (group,))

    def delete_index_row(self, index: int) -> None:
        """Remove a purged index."""
        with self._db.writing() as connection:
            _empty_index(connection, index)
            connection.execute("DELETE FROM space WHERE id = ?", (index,))

    def term_parts(
        self, index: int, known_parts: tuple[TermPartRow, ...] = ()
    ) -> tuple[TermPartRow, ...]:
        """The parts of a keyword index, complete or not; known ones are not read again."""
        with self._db.reading() as connection:
            return part_rows(connection, index, known_parts)
