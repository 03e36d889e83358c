"""What the ledger's rows say, as values, and how they are read and written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from lazyrag.document.ledger.tree import Build
from lazyrag.loaders.directory import Signature
from lazyrag.stores.segment_rows import read_text

Origin: TypeAlias = Literal["dataset", "file", "text"]
Status: TypeAlias = Literal["new", "live", "deleted", "excluded"]

DOCUMENT_COLUMNS = (
    "id, uid, identity, origin, status, size, mtime_ns, inode, seen_ns, content_hash, mark, "
    "loaded, said, updates, version"
)


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """What the ledger knows of a document.

    Args:
        id: Its row; 0 before it has one.
        uid: Uid of its root node.
        identity: Path relative to the dataset, or the user's id.
        origin: ``"dataset"``, ``"file"`` or ``"text"``: where it came from. A sync looks after the first kind only.
        status: ``"new"``: nothing is live yet; ``"live"``; ``"deleted"``; ``"excluded"``: deleted by the user, though
            its file may still be there.
        signature: Of its file, when it was read; None for a text.
        seen_ns: When the signature was taken, in nanoseconds since 1970.
        content_hash: Digest of the file's bytes.
        mark: Digest of its loader and of what the user says of it.
        loaded: Metadata that the loader found, as JSON.
        said: Metadata that ``file_metadata`` gave, as JSON.
        updates: Metadata that ``update_metadata`` gave, as JSON.
        version: Number of its live version, from 1; 0 where it has none.
    """

    id: int
    uid: str
    identity: str
    origin: Origin = "dataset"
    status: Status = "new"
    signature: Signature | None = None
    seen_ns: int = 0
    content_hash: str = ""
    mark: str = ""
    loaded: str = "{}"
    said: str = "{}"
    updates: str = "{}"
    version: int = 0


class BuildRow(NamedTuple):
    """A build as the ledger keeps it; see `lazyrag.stores.ledger_tables`."""

    number: int
    document: int
    node_group: int
    parent: int | None
    root: int
    input: str
    counts: str
    output: str = ""


class NewPart(NamedTuple):
    """A part to enter into a lexical index.

    ``replaces`` are the rows of parts that were merged into it, ``retired`` the names of their array files.
    """

    space: int
    file: str
    arrays: bytes | None
    rows: int
    builds: bytes
    replaces: tuple[int, ...] = ()
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flip:
    """What becomes live for a document.

    Args:
        row: Its row, with the values from now on.
        builds: Its live build in each group, by the group's row; all of them.
        covered: Pairs (space, build) that spaces hold from now on.
        root: Number of its root build, where this is a new version; None where groups are added to the present one.
        gone: Rows of documents that are deleted in the same moment: the one that it was moved from.
        version_hash: Digest of the file that the version was made of; "" for the file as it is now.
    """

    row: DocumentRow
    builds: Mapping[int, int]
    covered: Sequence[tuple[int, int]] = ()
    root: int | None = None
    gone: tuple[int, ...] = ()
    version_hash: str = ""


class Version(NamedTuple):
    """A kept version of a document."""

    number: int
    root: int
    created_at: float
    content_hash: str
    loaded: str
    said: str
    updates: str


def build_objects(connection: sqlite3.Connection, numbers: Collection[int]) -> dict[int, Build]:
    """Builds with those above them, by number, so that the keys of their nodes can be told."""
    rows: dict[int, tuple[str, str, int | None, str]] = {}
    wanted = set(numbers)
    while wanted:
        found: set[int] = set()
        for some in chunks(sorted(wanted)):
            marks = ", ".join("?" * len(some))
            for number, uid, name, parent, counts in connection.execute(
                "SELECT build.number, document.uid, node_group.name, build.parent, build.counts FROM build "  # noqa: S608
                "JOIN document ON document.id = build.document JOIN node_group ON node_group.id = build.node_group "
                f"WHERE build.number IN ({marks})",
                some,
            ):
                rows[number] = uid, name, parent, counts
                if parent is not None:
                    found.add(parent)
        wanted = found - rows.keys()
    made: dict[int, Build] = {}

    def make(number: int) -> Build:
        if number not in made:
            uid, name, parent, counts = rows[number]
            made[number] = Build(number, uid, name, None if parent is None else make(parent), counts)
        return made[number]

    return {number: make(number) for number in numbers if number in rows}


def document_row(row: tuple[Any, ...]) -> DocumentRow:
    """A row of `DOCUMENT_COLUMNS` as a value."""
    number, uid, identity, origin, status, size, mtime_ns, inode, *rest = row
    signature = None if size is None else Signature(size, mtime_ns, inode)
    return DocumentRow(number, uid, read_text(identity), origin, status, signature, *rest)


def signature_columns(row: DocumentRow) -> tuple[int | None, int | None, int | None]:
    """Size, time of modification and inode, as columns."""
    signature = row.signature
    return (None, None, None) if signature is None else (signature.size, signature.mtime_ns, signature.inode)


def write_row(connection: sqlite3.Connection, flip: Flip, changes: int | None) -> None:
    """Write what is known of a document from now on, where readers see a change."""
    row = flip.row
    if changes is None:  # nothing that a reader sees, and nothing of the file
        return
    connection.execute(
        "UPDATE document SET origin = ?, status = 'live', size = ?, mtime_ns = ?, inode = ?, seen_ns = ?, "
        "content_hash = ?, mark = ?, loaded = ?, said = ?, updates = ?, version = version + ?, changed = ? "
        "WHERE id = ?",
        (
            *(row.origin, *signature_columns(row), row.seen_ns, row.content_hash, row.mark),
            *(row.loaded, row.said, row.updates, flip.root is not None, changes, row.id),
        ),
    )


def enter_version(connection: sqlite3.Connection, flip: Flip, keep_versions: int) -> None:
    """Enter the version that has become live; let go of those, and of builds, that are not kept."""
    row = flip.row
    connection.execute(
        "INSERT INTO version SELECT id, version, ?, ?, coalesce(nullif(?, ''), content_hash), loaded, said, updates "
        "FROM document WHERE id = ?",
        (flip.root, time.time(), flip.version_hash, row.id),
    )
    connection.execute(
        "DELETE FROM version WHERE document = ? AND number < (SELECT version FROM document WHERE id = ?) - ?",
        (row.id, row.id, keep_versions),
    )
    connection.execute(
        "UPDATE build SET status = 'dead', dead_at = ? WHERE document = ? AND status <> 'dead' "
        "AND number NOT IN (SELECT build FROM live WHERE document = ?) "
        "AND root NOT IN (SELECT root FROM version WHERE document = ?)",
        (time.time(), row.id, row.id, row.id),
    )


def bury(connection: sqlite3.Connection, document: int, status: Status, changes: int) -> None:
    """Hide a document from every reader; its rows in stores are purged later."""
    connection.execute("UPDATE document SET status = ?, changed = ? WHERE id = ?", (status, changes, document))
    connection.execute("DELETE FROM live WHERE document = ?", (document,))
    connection.execute("DELETE FROM version WHERE document = ?", (document,))
    connection.execute(
        "UPDATE build SET status = 'dead', dead_at = ? WHERE document = ? AND status <> 'dead'",
        (time.time(), document),
    )


def write_part(connection: sqlite3.Connection, part: NewPart) -> None:
    """Enter a part of a lexical index in the place of those that were merged into it."""
    connection.executemany("DELETE FROM term_part WHERE id = ?", [(one,) for one in part.replaces])
    if part.rows:
        connection.execute(
            "INSERT INTO term_part (space, file, arrays, rows, builds) VALUES (?, ?, ?, ?, ?)",
            (part.space, part.file, part.arrays, part.rows, part.builds),
        )


def chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Numbers in portions that a statement can take as variables."""
    size = 500  # SQLite before 3.32 takes at most 999 variables
    return (numbers[start : start + size] for start in range(0, len(numbers), size))
