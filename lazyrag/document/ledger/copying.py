"""A ledger's rows, copied to another store file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lazyrag.document.ledger.place import LedgerPlace
from lazyrag.document.ledger.rows import build_objects
from lazyrag.document.ledger.tree import Build, SpaceKind
from lazyrag.errors import StoreError

_AT_ONCE = 500  # builds

# What was dropped waits for its removal, and stays behind.
_KEPT = """WITH
kept_group AS (SELECT id FROM node_group WHERE ledger = :ledger AND status <> 'dropped'),
kept_space AS (SELECT id FROM space WHERE node_group IN kept_group AND status <> 'dropped')
"""
# In an order in which no row names one of a table that comes after it.
_ROWS = {
    "document": "SELECT * FROM document WHERE ledger = :ledger",
    "node_group": "SELECT * FROM node_group WHERE id IN kept_group",
    "build": "SELECT * FROM build WHERE node_group IN kept_group",
    "live": "SELECT * FROM live WHERE node_group IN kept_group",
    "version": "SELECT * FROM version WHERE root IN (SELECT number FROM build WHERE node_group IN kept_group)",
    "space": "SELECT * FROM space WHERE id IN kept_space",
    "covered": "SELECT * FROM covered WHERE space IN kept_space",
    "term_part": "SELECT * FROM term_part WHERE space IN kept_space",
    "failure": "SELECT * FROM failure WHERE ledger = :ledger",
}
_GROUPS = "SELECT id, name, collection, fields FROM node_group WHERE id IN kept_group ORDER BY id"
_SPACES = "SELECT node_group, id, kind, name, collection, dimension FROM space WHERE id IN kept_space ORDER BY id"
_BUILDS = "SELECT number, output FROM build WHERE node_group = ? AND status = 'written' AND number > ? ORDER BY number"
_COVERED = (
    "SELECT number, output FROM covered JOIN build ON number = build WHERE space = ? AND status = 'written' "
    "AND number > ? ORDER BY number"
)
_ARRAY_FILES = "SELECT DISTINCT file FROM term_part WHERE arrays IS NULL AND space IN kept_space"


@dataclass(frozen=True, slots=True)
class CopiedSpace:
    """An index over a group that is to be copied.

    Args:
        id: Its row.
        kind: Terms or vectors.
        name: The analyser, or the embed key.
        collection: Of its vectors; "" for terms.
        dimension: Of its vectors; 0 where there are none yet.
    """

    id: int
    kind: SpaceKind
    name: str
    collection: str
    dimension: int


@dataclass(frozen=True, slots=True)
class CopiedGroup:
    """A group that is to be copied.

    Args:
        id: Its row.
        name: Its name.
        collection: Of its segments.
        fields: The fields that filters may read, as text; "" where an earlier release did not note them.
        spaces: The indexes over it.
    """

    id: int
    name: str
    collection: str
    fields: str
    spaces: tuple[CopiedSpace, ...]


def copied_groups(place: LedgerPlace) -> list[CopiedGroup]:
    """The groups of a ledger that a copy of it holds, those above first."""
    with place.reading() as connection:
        spaces: dict[int, list[CopiedSpace]] = {}
        for group, *told in _kept(connection, _SPACES, place.id):
            spaces.setdefault(group, []).append(CopiedSpace(*told))
        return [
            CopiedGroup(group, name, collection, fields, tuple(spaces.get(group, ())))
            for group, name, collection, fields in _kept(connection, _GROUPS, place.id)
        ]


class CopiedBuild(NamedTuple):
    """A build whose rows are to be copied.

    Args:
        build: It, with those above it.
        output: Digest of its nodes.
    """

    build: Build
    output: str


def copied_builds(place: LedgerPlace, group: CopiedGroup, space: CopiedSpace | None = None) -> Iterator[CopiedBuild]:
    """The builds of a group that its store has acknowledged, or those of them that a space holds, by number.

    What an interrupted sync had not finished, and what waits for its removal, are no rows that anybody will ask for.
    """
    query, row = (_BUILDS, group.id) if space is None else (_COVERED, space.id)
    last = 0
    while True:
        with place.reading() as connection:
            some = connection.execute(query, (row, last)).fetchmany(_AT_ONCE)
            builds = build_objects(connection, [number for number, _ in some])
        for number, output in some:
            yield CopiedBuild(builds[number], output)
        if not some:
            return
        last = some[-1][0]


def begin_copies(places: Sequence[tuple[LedgerPlace, LedgerPlace]]) -> None:
    """Mark ledgers as copies in the making, each of another one; what was begun of the same ones is gone on with.

    From here on nobody else writes their file.

    Args:
        places: Ledgers in one file, each with the one that it is to be copied to, in another file. The leases are held.

    Raises:
        StoreError: If that file has documents, or copies of other ledgers.
    """
    file = places[0][1].file
    wanted = {there.name: here.token for here, there in places}
    with file.writing(durable=True) as connection:
        for name, incoming, copied_from, holds in connection.execute(
            "SELECT name, incoming, copied_from, "
            "id IN (SELECT ledger FROM document UNION SELECT ledger FROM node_group) FROM ledger"
        ):
            if holds and copied_from and copied_from == wanted.get(name):
                what = f"{file.path} holds a complete copy of Document {name!r} already: there is nothing left to do."
            elif holds:
                what = (
                    f"{file.path} holds the Document {name!r} already, and migrate() goes to where there is none. "
                    "Name another file for the target's ledger."
                )
            elif incoming and incoming != wanted.get(name):
                what = (
                    f"{file.path} holds the beginning of another copy, of Document {name!r}. Call that migrate() again "
                    "first; or delete the file, to give it up; or name another one for the target's ledger."
                )
            else:
                continue
            raise StoreError(what, store=str(file.path))
        for name, token in wanted.items():
            connection.execute("UPDATE ledger SET incoming = ? WHERE name = ?", (token, name))


def copy_array_files(here: LedgerPlace, there: LedgerPlace) -> None:
    """Copy the array files of a ledger's lexical indexes."""
    with here.reading() as connection:
        names = _kept(connection, _ARRAY_FILES, here.id).fetchall()
    for (name,) in names:
        there.file.arrays.write(here.file.arrays.open(name))


def copy_ledgers(places: Sequence[tuple[LedgerPlace, LedgerPlace]], collections: Mapping[str, str]) -> None:
    """Copy ledgers, each to an empty one, in one transaction, after which Documents can be opened there.

    Rows keep their numbers, since keys of rows in stores contain those of builds.

    Args:
        places: Ledgers in one file, each with the one that it is copied to, in another file. The leases are held.
        collections: From the names of collections to those of their copies.

    Raises:
        StoreBusyError: If another program has taken a lease over.
    """
    # What `begin_copies` found is so still: nobody else writes the file.
    [(first, target), *_] = places
    with first.reading() as source, target.file.writing(durable=True) as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")  # a group may stand before the one above it
        for here, there in places:
            here.lease.check(source)
            there.lease.check(connection)
            for (name,) in _kept(source, _ARRAY_FILES, here.id):
                there.file.check_there(name)
            for table, rows in _ROWS.items():
                _insert(connection, table, _changed(_kept(source, rows, here.id), there.id, collections))
            connection.execute("UPDATE node_group SET parent = NULL WHERE parent NOT IN (SELECT id FROM node_group)")
            counts = source.execute(
                "SELECT changes, removals, forgotten FROM ledger WHERE id = ?", (here.id,)
            ).fetchone()
            connection.execute(
                "UPDATE ledger SET copied_from = incoming, incoming = '', changes = ?, removals = ?, forgotten = ? "
                "WHERE id = ?",
                (*counts, there.id),
            )
        connection.execute(
            "UPDATE build_sequence SET next = max(next, ?)",
            source.execute("SELECT next FROM build_sequence").fetchone(),
        )


def _kept(connection: sqlite3.Connection, query: str, ledger: int) -> sqlite3.Cursor:
    return connection.execute(_KEPT + query, {"ledger": ledger})


def _changed(rows: sqlite3.Cursor, ledger: int, collections: Mapping[str, str]) -> Iterator[dict[str, object]]:
    names = [name for name, *_ in rows.description]
    for row in rows:
        told = dict(zip(names, row, strict=True))
        if "ledger" in told:
            told["ledger"] = ledger
        if told.get("collection"):
            told["collection"] = collections[told["collection"]]
        yield told


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[dict[str, object]]) -> None:
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(f":{name}" for name in columns)
    connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)  # noqa: S608
