"""Copying ledgers to another file, for `lazyrag.maintain.migration`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lazyrag.errors import StoreError
from lazyrag.ledger.field_keys import add_field_tables, column_names, has_field_tables, named_rows
from lazyrag.ledger.lease import LedgerConnection
from lazyrag.ledger.tree import Build, LiveIndex, build_objects
from lazyrag.stores.liveness import FOREVER
from lazyrag.stores.protocol import collection_name

_BATCH_SIZE = 500  # builds
# Dropped groups and indexes are not copied.
_COPIED = (
    "WITH\n"
    "kept_group AS (SELECT id FROM node_group WHERE ledger = :ledger AND status <> 'dropped'),\n"
    "kept_space AS (SELECT id FROM space WHERE node_group IN (SELECT id FROM kept_group)"
    " AND status <> 'dropped')\n"
)
# In an order in which no row names one of a table that comes after it.
_ROWS = {
    "document": "SELECT * FROM document WHERE ledger = :ledger",
    "node_group": "SELECT * FROM node_group WHERE id IN (SELECT id FROM kept_group)",
    "build": "SELECT * FROM build WHERE node_group IN (SELECT id FROM kept_group)",
    "version": (
        "SELECT * FROM version WHERE root IN "
        "(SELECT number FROM build WHERE node_group IN (SELECT id FROM kept_group))"
    ),
    "space": "SELECT * FROM space WHERE id IN (SELECT id FROM kept_space)",
    "covered": "SELECT * FROM covered WHERE space IN (SELECT id FROM kept_space)",
    "term_part": "SELECT * FROM term_part WHERE space IN (SELECT id FROM kept_space)",
    "term_state": (
        "SELECT * FROM term_state WHERE part IN "
        "(SELECT id FROM term_part WHERE space IN (SELECT id FROM kept_space))"
    ),
    "failure": "SELECT * FROM failure WHERE ledger = :ledger",
}
# Of files that have them.
_KEY_ROWS = {
    "field_key": "SELECT * FROM field_key WHERE ledger = :ledger",
    "field_spelling": "SELECT * FROM field_spelling WHERE ledger = :ledger",
}
_GROUPS = (
    "SELECT id, name, collection, fields FROM node_group WHERE id IN (SELECT id FROM kept_group)"
    " ORDER BY id"
)
_INDEXES = (
    "SELECT node_group, id, kind, name, identity, collection, dimension, whole FROM space "
    "WHERE id IN (SELECT id FROM kept_space) ORDER BY id"
)
_BUILDS = (
    "SELECT number, output FROM build WHERE node_group = ? AND status = 'written' AND number > ?"
    " ORDER BY number"
)
_COVERED = (
    "SELECT number, output FROM covered JOIN build ON number = build WHERE space = ? AND status ="
    " 'written' AND number > ? ORDER BY number"
)


_LIVE_ROWS = (
    "SELECT id, status, content_hash FROM document WHERE ledger = :ledger ORDER BY id",
    (
        f"SELECT number, output FROM build WHERE until = {FOREVER}"  # noqa: S608
        " AND node_group IN (SELECT id FROM kept_group) ORDER BY number"
    ),
)


_ARRAY_FILES = (
    "SELECT DISTINCT file FROM term_part WHERE arrays IS NULL AND space IN (SELECT id FROM"
    " kept_space)"
)


@dataclass(frozen=True, slots=True)
class CopiedGroup:
    """A group to copy.

    Args:
        id: Its row.
        name: Its name.
        collection: Of its segments.
        fields: The filterable fields, as text; "" from an earlier release that did not store them.
        indexes: The indexes over it.
    """

    id: int
    name: str
    collection: str
    fields: str
    indexes: tuple[LiveIndex, ...]

    @property
    def embedded(self) -> list[LiveIndex]:
        """The indexes with vectors."""
        return [index for index in self.indexes if index.dimension]


def copied_groups(ledger: LedgerConnection) -> list[CopiedGroup]:
    """The groups of a ledger to copy, parents first."""
    with ledger.reading() as connection:
        indexes: dict[int, list[LiveIndex]] = {}
        for group, *values in _select_copied(connection, _INDEXES, ledger.id):
            indexes.setdefault(group, []).append(LiveIndex(*values))
        return [
            CopiedGroup(group, name, collection, fields, tuple(indexes.get(group, ())))
            for group, name, collection, fields in _select_copied(connection, _GROUPS, ledger.id)
        ]


class CopiedBuild(NamedTuple):
    """A build to copy.

    Args:
        build: The build, with those above it.
        output: Digest of its nodes.
    """

    build: Build
    output: str


def copied_builds(
    ledger: LedgerConnection, group: CopiedGroup, index: LiveIndex | None = None
) -> Iterator[CopiedBuild]:
    """The written builds of a group, or those of them in an index, by number.

    Builds of an interrupted sync and dead ones are left out: nobody reads them.
    """
    query, row = (_BUILDS, group.id) if index is None else (_COVERED, index.id)
    last = 0
    while True:
        with ledger.reading() as connection:
            some = connection.execute(query, (row, last)).fetchmany(_BATCH_SIZE)
            builds = build_objects(connection, [number for number, _ in some])
        for number, output in some:
            yield CopiedBuild(builds[number], output)
        if not some:
            return
        last = some[-1][0]


def copied_names(here: LedgerConnection, there: LedgerConnection) -> dict[str, str]:
    """From names of collections to those of their copies, which contain the token of the copy's
    ledger.
    """
    names = {}
    for group in copied_groups(here):
        names[group.collection] = collection_name(
            here.name, group.name, there.token + group.collection
        )
        for index in group.indexes:
            if index.kind == "vectors":
                names[index.collection] = collection_name(
                    here.name, group.name, there.token + index.collection, index.name
                )
    return names


def begin_copies(ledgers: Sequence[tuple[LedgerConnection, LedgerConnection]]) -> bool:
    """Mark ledgers as unfinished copies; a copy that was begun is continued.

    From here on nobody else writes their file.

    Args:
        ledgers: Ledgers in one file, each with its copy in another file. The leases are held.

    Returns:
        Whether they are complete copies already, of what is live in the ledgers now.

    Raises:
        StoreError: If that file has other documents, or copies of other ledgers.
    """
    file = ledgers[0][1].file
    tokens = {there.name: here.token for here, there in ledgers}
    if all(_is_copy(here, there) for here, there in ledgers):
        return True
    with file.writing(durable=True) as connection:
        for name, incoming, copied_from, holds in connection.execute(
            "SELECT name, incoming, copied_from, "
            "id IN (SELECT ledger FROM document UNION SELECT ledger FROM node_group) FROM ledger"
        ):
            if holds and copied_from and copied_from == tokens.get(name):
                problem = (
                    f"{file.address} holds a complete copy of Document {name!r} already, and one of"
                    " them has changed since. Name another file for the target's ledger."
                )
            elif holds:
                problem = (
                    f"{file.address} holds the Document {name!r} already, and migrate() needs a"
                    " target without it. Name another file for the target's ledger."
                )
            elif incoming and incoming != tokens.get(name):
                problem = (
                    f"{file.address} holds the beginning of another copy, of Document {name!r}."
                    " Call that migrate() again first; or delete the file, to give it up; or name"
                    " another one for the target's ledger."
                )
            else:
                continue
            raise StoreError(problem, store=file.address)
        for name, token in tokens.items():
            connection.execute("UPDATE ledger SET incoming = ? WHERE name = ?", (token, name))
    return False


def _is_copy(here: LedgerConnection, there: LedgerConnection) -> bool:
    [(origin,)] = there.select("SELECT copied_from FROM ledger WHERE id = ?", (there.id,))
    return bool(origin == here.token and _live_rows(here) == _live_rows(there))


def _live_rows(ledger: LedgerConnection) -> list[Any]:
    """What is live in a ledger, with the numbers that a copy has, too."""
    with ledger.reading() as connection:
        return [_select_copied(connection, query, ledger.id).fetchall() for query in _LIVE_ROWS]


def copy_array_files(here: LedgerConnection, there: LedgerConnection) -> None:
    """Copy the array files of a ledger's keyword indexes."""
    with here.reading() as connection:
        names = _select_copied(connection, _ARRAY_FILES, here.id).fetchall()
    for (name,) in names:
        there.file.arrays.write(here.file.arrays.open(name))


def copy_ledgers(ledgers: Sequence[tuple[LedgerConnection, LedgerConnection]]) -> None:
    """Copy ledgers to empty ones, in one transaction; then Documents can be opened there.

    Rows keep their numbers, since store keys contain build numbers.

    Args:
        ledgers: Ledgers in one file, each with its copy in another file. The leases are held.

    Raises:
        StoreBusyError: If another program has taken a lease over.
    """
    names: dict[str, str] = {}
    for here, there in ledgers:
        names |= copied_names(here, there)
    # `begin_copies` has checked the target, and nobody else writes its file since.
    [(first, target), *_] = ledgers
    with first.reading() as source, target.file.writing(durable=True) as connection:
        has_keys = has_field_tables(source)
        add_field_tables(connection)
        tables = _ROWS | _KEY_ROWS if has_keys else _ROWS
        # a group may come before the one above it
        connection.execute("PRAGMA defer_foreign_keys = ON")
        for here, there in ledgers:
            here.lease.ensure_held(source)
            there.lease.ensure_held(connection)
            for (name,) in _select_copied(source, _ARRAY_FILES, here.id):
                there.file.check_there(name)
            for table, rows in tables.items():
                no_rows = f"SELECT * FROM {table} LIMIT 0"  # noqa: S608
                columns = column_names(connection.execute(no_rows))
                connection.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES"  # noqa: S608
                    f" ({', '.join(f':{name}' for name in columns)})",
                    _copied_rows(_select_copied(source, rows, here.id), there.id, names),
                )
            connection.execute(
                "UPDATE node_group SET parent = NULL WHERE parent NOT IN (SELECT id FROM"
                " node_group)"
            )
            counts = source.execute(
                "SELECT changes, removals, switched FROM ledger WHERE id = ?", (here.id,)
            ).fetchone()
            connection.execute(
                "UPDATE ledger SET copied_from = incoming, incoming = '', changes = ?, removals ="
                " ?, switched = ? WHERE id = ?",
                (*counts, there.id),
            )
            if has_keys:
                query = "SELECT field_values FROM ledger WHERE id = ?"
                [made_by] = source.execute(query, (here.id,)).fetchone()
                query = "UPDATE ledger SET field_values = ? WHERE id = ?"
                connection.execute(query, (made_by, there.id))
        connection.execute(
            "UPDATE build_sequence SET next = max(next, ?)",
            source.execute("SELECT next FROM build_sequence").fetchone(),
        )


def _select_copied(connection: sqlite3.Connection, query: str, ledger: int) -> sqlite3.Cursor:
    return connection.execute(_COPIED + query, {"ledger": ledger})


def _copied_rows(
    rows: sqlite3.Cursor, ledger: int, collections: dict[str, str]
) -> Iterator[dict[str, object]]:
    for row in named_rows(rows):
        # which files of earlier releases lack
        values = {"model": "", **row}
        if "ledger" in values:
            values["ledger"] = ledger
        if values.get("collection"):
            values["collection"] = collections[values["collection"]]
        yield values
