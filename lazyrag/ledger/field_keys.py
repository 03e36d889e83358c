"""Index of the field values and names of live documents, by which a question is matched to
documents. It is derived from the documents' rows, and changed in the same transactions.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lazyrag.data.fields import Schema, schema_text
from lazyrag.data.segment import digest
from lazyrag.ledger.lease import LedgerConnection, select_in
from lazyrag.ledger.tree import Tree
from lazyrag.storage.database import statements
from lazyrag.stores.liveness import FIELD_TABLES
from lazyrag.stores.sqlite import StoredText, read_text, stored_text
from lazyrag.text.field_values import (
    LAST_CHARACTER,
    DatedFile,
    DictionaryEntry,
    is_correctable,
    key_range,
    make_entry,
    without_a_letter,
)
from lazyrag.types import JsonObject
from lazyrag.validation import normal_name

_MADE_BY = "2"  # to be changed with the keys that a row gives
_OTHER_FORM = "==not in NFC"  # no value has it: fields have names
_PAGE = 1_000
_MOST_FILES = 4_096
_ROWS = "SELECT id, identity, uid, size, origin, loaded, said, updates FROM document WHERE"


class ValuesRow(NamedTuple):
    """The columns of a document that its keys are derived from."""

    id: int
    identity: str
    uid: str
    size: int | None
    origin: str
    loaded: str
    user_metadata: str
    updates: str

    def entry(self, schema: Schema) -> DictionaryEntry:
        """Its entry in the dictionary of field values."""
        return make_entry(
            self.identity, merged_metadata(self), schema, is_text=self.origin == "text"
        )

    def keys(self, schema: Schema) -> set[str]:
        """The keys of that entry; one more for a name that an earlier release stored."""
        keys = self.entry(schema).index_keys()
        if self.origin != "dataset" and normal_name(self.identity) != self.identity:
            keys.add(_OTHER_FORM)
        return keys


def merged_metadata(row: Any) -> JsonObject:
    """A document's metadata without the built-in fields; later parts take precedence."""
    metadata: JsonObject = {}
    for text in (row.loaded, row.user_metadata, row.updates):
        if text != "{}":
            metadata.update(json.loads(text))
    return metadata


def values_rows(connection: sqlite3.Connection, where: str, *values: object) -> list[ValuesRow]:
    """The rows of documents under a condition."""
    return _read_rows(connection.execute(f"{_ROWS} {where}", values))


def _read_rows(rows: Iterable[Sequence[Any]]) -> list[ValuesRow]:
    return [ValuesRow(number, read_text(identity), *rest) for number, identity, *rest in rows]


def column_names(rows: sqlite3.Cursor) -> list[str]:
    """The names of the columns of a query."""
    return [name for name, *_ in rows.description]


def named_rows(rows: sqlite3.Cursor) -> Iterator[dict[str, Any]]:
    """The rows of a query by the names of its columns: files of earlier releases have fewer."""
    names = column_names(rows)
    for row in rows:
        yield dict(zip(names, row, strict=True))


def has_field_tables(connection: sqlite3.Connection) -> bool:
    """Whether a file has the tables of field keys."""
    return "field_values" in column_names(connection.execute("SELECT * FROM ledger LIMIT 0"))


def add_field_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of field keys in a file that lacks them."""
    if not has_field_tables(connection):
        for statement in statements(FIELD_TABLES):
            connection.execute(statement)


class FieldKeys:
    """The keys of the live documents of a ledger.

    Args:
        ledger: The ledger.
        schema: The filterable fields.
    """

    def __init__(self, ledger: LedgerConnection, schema: Schema) -> None:
        self._ledger = ledger
        self.schema = schema
        self._file_of = functools.lru_cache(_MOST_FILES)(lambda row: row.entry(schema).file)
        self._made_by = digest([_MADE_BY, schema_text(schema)])

    def are_current(self, tree: Tree) -> bool:
        """Whether the ledger has the keys of all live documents, by the present fields."""
        return tree.field_values == self._made_by

    def live_rows(
        self, connection: sqlite3.Connection, documents: Collection[int]
    ) -> list[ValuesRow]:
        """The rows of those of some documents that are live."""
        query = f"{_ROWS} status = 'live' AND id IN (?*)"
        return _read_rows(select_in(connection, query, documents))

    def replace(
        self,
        connection: sqlite3.Connection,
        before: Sequence[ValuesRow],
        after: Sequence[ValuesRow] = (),
    ) -> None:
        """Replace the keys of documents by those of their new rows, in a writing transaction."""
        if before == after:
            return
        old = {(key, row.id) for row in before for key in row.keys(self.schema)}
        new = {(key, row.id) for row in after for key in row.keys(self.schema)}
        ledger = self._ledger.id
        names = {key for key, _ in old ^ new if is_correctable(key)}
        spelled = self._documents(connection, names, 1).keys()
        for query, pairs in (
            ("DELETE FROM field_key WHERE ledger = ? AND key = ? AND document = ?", old - new),
            ("INSERT INTO field_key VALUES (?, ?, ?) ON CONFLICT DO NOTHING", new - old),
        ):
            rows = [(ledger, stored_text(key), number) for key, number in pairs]
            connection.executemany(query, rows)
        present = self._documents(connection, names, 1).keys()
        for query, changed in (
            (
                "DELETE FROM field_spelling WHERE ledger = ? AND spelling = ? AND key = ?",
                spelled - present,
            ),
            (
                "INSERT INTO field_spelling VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                present - spelled,
            ),
        ):
            spellings = [
                (ledger, stored_text(spelling), stored_text(name))
                for name in changed
                for spelling in without_a_letter(name)
            ]
            connection.executemany(query, spellings)

    def reset(self, connection: sqlite3.Connection) -> None:
        """Delete all keys. None are missing if there is no live document."""
        add_field_tables(connection)
        for table in ("field_key", "field_spelling"):
            query = f"DELETE FROM {table} WHERE ledger = ?"  # noqa: S608
            connection.execute(query, (self._ledger.id,))
        self._mark(connection, "" if self._page(connection, 0) else self._made_by)

    def rebuild(self) -> None:
        """Delete all keys and derive them again."""
        with self._ledger.writing() as connection:
            self.reset(connection)
        self.fill()

    def fill(self) -> None:
        """Derive the keys of all documents. Queries infer nothing until this has finished."""
        last = 0
        while True:
            with self._ledger.writing() as connection:
                rows = self._page(connection, last)
                if not rows:
                    self._mark(connection, self._made_by)
                    break
                self.replace(connection, [], rows)
            last = rows[-1].id

    def _mark(self, connection: sqlite3.Connection, made_by: str) -> None:
        self._ledger.next_change(connection)
        query = "UPDATE ledger SET field_values = ? WHERE id = ?"
        connection.execute(query, (made_by, self._ledger.id))

    def _page(self, connection: sqlite3.Connection, last: int) -> list[ValuesRow]:
        where = f"ledger = ? AND status = 'live' AND id > ? ORDER BY id LIMIT {_PAGE}"
        return values_rows(connection, where, self._ledger.id, last)

    def entries(self) -> Iterator[tuple[int, DictionaryEntry]]:
        """The entries of the live documents, by number."""
        for row in self._all_rows():
            yield row.id, row.entry(self.schema)

    def _all_rows(self) -> Iterator[ValuesRow]:
        last = 0
        while True:
            with self._ledger.reading() as connection:
                rows = self._page(connection, last)
            if not rows:
                break
            yield from rows
            last = rows[-1].id

    def are_right(self) -> bool:
        """Whether the keys are those that follow from the documents' rows."""
        pair = "SELECT 1 FROM field_key WHERE ledger = ? AND key = ? AND document = ?"
        count = 0
        with self._ledger.reading() as connection:
            for row in self._all_rows():
                keys = map(stored_text, row.keys(self.schema))
                values = [(self._ledger.id, key, row.id) for key in keys]
                count += len(values)
                if len(self._ledger.file.fetch_each(connection, pair, values)) < len(values):
                    return False
            query = "SELECT count(*) FROM field_key WHERE ledger = ?"
            [stored] = connection.execute(query, (self._ledger.id,)).fetchone()
        return bool(count == stored)

    # Look up

    def with_other_names(self) -> set[int]:
        """The live documents outside of the dataset whose names are not in NFC."""
        query = "SELECT document FROM field_key WHERE ledger = ? AND key = ?"
        return {number for (number,) in self._ledger.select(query, (self._ledger.id, _OTHER_FORM))}

    def rows(self, documents: Collection[int]) -> list[ValuesRow]:
        """The rows of documents."""
        return _read_rows(self._ledger.select_in(f"{_ROWS} id IN (?*)", documents))

    def files(self, documents: Collection[int]) -> dict[int, DatedFile]:
        """The files and periods of documents."""
        return {row.id: self._file_of(row) for row in self.rows(documents)}

    def documents(self, keys: Collection[str], limit: int) -> dict[str, set[int]]:
        """The documents of each key that has some, up to ``limit`` of a key; see `key_range`."""
        with self._ledger.reading() as connection:
            return self._documents(connection, keys, limit)

    def _documents(
        self, connection: sqlite3.Connection, keys: Iterable[str], limit: int
    ) -> dict[str, set[int]]:
        query = (
            "SELECT DISTINCT ?, document FROM field_key WHERE ledger = ? AND key BETWEEN ? AND ?"
        )
        documents_of: dict[str, set[int]] = {}
        ranges = map(self._range, keys)
        for key, number in self._ledger.file.fetch_each(connection, query, ranges, limit):
            documents_of.setdefault(read_text(key), set()).add(number)
        return documents_of

    def _range(self, key: str) -> tuple[StoredText, int, StoredText, StoredText]:
        first, last = key_range(key)
        return stored_text(key), self._ledger.id, stored_text(first), stored_text(last)

    def similar_names(self, words: Collection[str]) -> dict[str, set[str]]:
        """For each word the names from which one letter was left out."""
        query = "SELECT spelling, key FROM field_spelling WHERE ledger = ? AND spelling IN (?*)"
        names_like: dict[str, set[str]] = {}
        for spelling, name in self._ledger.select_in(query, words, self._ledger.id):
            names_like.setdefault(spelling, set()).add(name)
        return names_like

    def values(self, field: str) -> list[tuple[str, int]]:
        """The keys of a field's values, with documents."""
        query = "SELECT key, document FROM field_key WHERE ledger = ? AND key BETWEEN ? AND ?"
        first, last = f"={field}=", f"={field}={LAST_CHARACTER}"
        rows = self._ledger.select(query, (self._ledger.id, first, last))
        return [(read_text(key), number) for key, number in rows]
