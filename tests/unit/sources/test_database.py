"""Rows of a query as items: any DB-API connection, and URLs of SQLAlchemy."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
import tracemalloc

import pytest
import sqlalchemy

from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError
from lazyrag.sources import DatabaseSource, FailedItem
from lazyrag.sources.base import RecordForm, plain

ROWS = [
    (1, "Sencha", 12.5, "绿茶\n来自宇治"),
    (2, "Assam", 9, None),
    (3, "O'Neill; DROP TABLE teas", 7, "x"),
]


@pytest.fixture
def path(tmp_path):
    """A database with three teas."""
    path = tmp_path / "teas.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "CREATE TABLE teas (id INTEGER, name TEXT, price REAL, notes TEXT, picture BLOB)"
        )
        connection.executemany("INSERT INTO teas VALUES (?, ?, ?, ?, x'00ff')", ROWS)
    connection.close()
    return path


@pytest.fixture(params=["connection", "url"])
def connect(request, path):
    """Both ways to reach it."""
    return f"sqlite:///{path}" if request.param == "url" else lambda: sqlite3.connect(path)


def test_rows_become_items(connect):
    """A line for each column that holds something; bytes are no text."""
    items = list(DatabaseSource(connect, "SELECT * FROM teas", identity="id").load())
    assert [item.identity for item in items] == ["1", "2", "3"]
    assert items[0].text == "id: 1\nname: Sencha\nprice: 12.5\nnotes: 绿茶\n来自宇治"
    assert items[1].text == "id: 2\nname: Assam\nprice: 9.0"


def test_templates_fields_and_metadata(connect):
    """A template or a list of columns makes the text; metadata keeps the values' types."""
    query = "SELECT id, name, price FROM teas ORDER BY id"
    source = DatabaseSource(
        connect, query, identity=["id", "name"], template="{name} costs {price}", metadata=["price"]
    )
    first = next(source.load())
    assert (first.identity, first.text, first.metadata) == (
        '["1", "Sencha"]',
        "Sencha costs 12.5",
        {"price": 12.5},
    )
    assert (
        next(DatabaseSource(connect, query, identity="id", fields=["name"]).load()).text
        == "name: Sencha"
    )


@pytest.mark.parametrize("wanted", ["Sencha", "O'Neill; DROP TABLE teas", "' OR 1=1 --"])
def test_parameters_are_bound(connect, wanted):
    """A value is compared as it is, whatever it looks like."""
    source = DatabaseSource(
        connect,
        "SELECT * FROM teas WHERE name = :name",
        identity="id",
        parameters={"name": wanted},
        fields=["name"],
    )
    assert [item.text for item in source.load()] == [
        f"name: {row[1]}" for row in ROWS if row[1] == wanted
    ]


def test_parameters_by_position(path):
    """A DB-API module takes a list; a URL is told to take a mapping."""
    query = "SELECT * FROM teas WHERE price > ?"
    source = DatabaseSource(lambda: sqlite3.connect(path), query, identity="id", parameters=[8])
    assert [item.identity for item in source.load()] == ["1", "2"]
    with pytest.raises(ConfigError, match="must be a mapping"):
        DatabaseSource(f"sqlite:///{path}", query, identity="id", parameters=[8])


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM teas RETURNING id",
        "DELETE FROM teas",
        "DROP TABLE teas",
        "PRAGMA user_version=7",
    ],
)
def test_nothing_is_written(connect, path, query):
    """A statement that writes is an error, and changes nothing."""
    with pytest.raises(LoadError, match=r"readonly|gives no rows"):
        list(DatabaseSource(connect, query, identity="id").items())
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM teas").fetchone() == (3,)
    connection.close()


def test_a_transaction_is_rolled_back_where_nothing_is_read_only():
    """A connection of another module, which cannot be made read-only, is rolled back and closed."""
    told = []

    class Cursor:
        description = (("id",),)

        def execute(self, query, *parameters):
            told.append((query, *parameters))

        def fetchmany(self, size):
            told.append(size)
            return [(1,)] if told.count(size) == 1 else []

    class Connection:
        def cursor(self):
            return Cursor()

        def rollback(self):
            told.append("rollback")

        def close(self):
            told.append("close")

    assert (
        len(list(DatabaseSource(Connection, "SELECT 5 % 3 AS id", identity="id", batch=7).items()))
        == 1
    )
    assert told == [("SELECT 5 % 3 AS id",), 7, 7, "rollback", "close"]


@pytest.mark.slow
def test_rows_are_streamed(tmp_path):
    """A table of 20 MB is read in batches, in far less memory."""
    path = tmp_path / "large.db"
    connection = sqlite3.connect(path)
    with connection:
        many = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT 200)"
        connection.execute(
            f"CREATE TABLE t AS {many} SELECT id, printf('%.*c', 100000, 'x') AS text FROM n"  # noqa: S608
        )
    connection.close()
    for connect in (f"sqlite:///{path}", lambda: sqlite3.connect(path)):
        source = DatabaseSource(
            connect, "SELECT * FROM t", identity="id", fields=["text"], batch=10
        )
        tracemalloc.start()
        assert sum(len(item.content) for item in source.items()) == 200 * (100_000 + len("text: "))
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
        tracemalloc.stop()


def test_a_folder_follows_a_table(path, tmp_path):
    """An edited row is updated, a deleted one removed, the others are left as they are."""
    source = DatabaseSource(
        f"sqlite:///{path}", "SELECT * FROM teas", identity="id", metadata=["price"]
    )
    source.fetch(tmp_path / "in")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE teas SET name = 'Gyokuro' WHERE id = 1")
        connection.execute("DELETE FROM teas WHERE id = 2")
    connection.close()
    report = source.fetch(tmp_path / "in")
    assert (report.updated, report.removed, report.unchanged) == (("1",), ("2",), ("3",))


def test_rows_without_identity_or_text(connect):
    """Each is one failure, and the others are there."""
    query = "SELECT nullif(id, 1) AS id, nullif(name, 'Assam') AS name FROM teas"
    source = DatabaseSource(connect, query, identity="id", fields=["name"])
    no_identity, no_text, item = source.items()
    assert isinstance(no_identity, FailedItem)
    assert no_identity.identity == "row 1"
    assert (no_text.identity, no_text.transient) == ("2", False)
    assert item.content == b"name: O'Neill; DROP TABLE teas"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id, nme FROM teas", "no such column"),
        ("SELEKT", "syntax error"),
        ("SELECT id FROM teas; SELECT 1", "one statement"),
        ("SELECT id AS name, name FROM teas", "several columns named 'name'"),
        ("SELECT name FROM teas", "no column 'id'"),
    ],
)
def test_queries_that_fail(connect, query, message):
    """The database's own words, or what is wrong with the columns."""
    with pytest.raises(LoadError, match=message):
        list(DatabaseSource(connect, query, identity="id").items())


def test_a_connection_that_fails():
    """What the function raises is told; nothing is left open."""

    def refused():
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(LoadError, match=r"ConnectionRefusedError.*Connection refused"):
        list(DatabaseSource(refused, "SELECT 1 AS id", identity="id").items())


def test_a_misspelt_column_is_told_the_nearest(connect):
    """Of templates and metadata, too."""
    for names in ({"template": "{nme}"}, {"metadata": ["nme"]}, {"fields": ["nme"]}):
        source = DatabaseSource(connect, "SELECT * FROM teas", identity="id", **names)
        with pytest.raises(LoadError, match="Did you mean 'name'"):
            list(source.items())


def test_passwords_are_not_shown(tmp_path):
    """Neither in the repr nor in what the database says."""
    url = "sqlite:///" + str(tmp_path / "no" / "such.db")
    source = DatabaseSource(url, "SELECT 1 AS id", identity="id")
    with pytest.raises(LoadError, match="unable to open"):
        list(source.items())
    assert url not in repr(source)
    with pytest.raises(ConfigError) as caught:
        DatabaseSource("no url: secret", "SELECT 1", identity="id")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"connect": 7},
        {"connect": sqlalchemy},
        {"query": " "},
        {"identity": []},
        {"identity": ""},
        {"template": "no field"},
        {"parameters": "abc"},
        {"batch": 0},
        {"name": ""},
        {"metadata": "price"},
    ],
)
def test_values_are_checked(values):
    """Before anything is asked."""
    with pytest.raises(ConfigError):
        DatabaseSource(
            **{"connect": "sqlite://", "query": "SELECT 1 AS id", "identity": "id", **values}
        )


def test_an_open_connection_is_refused():
    """It could not be opened anew for the next run."""
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigError, match="must be a function"):
        DatabaseSource(connection, "SELECT 1", identity="id")
    connection.close()


def test_another_query_is_another_source(path, tmp_path):
    """Two queries do not share a folder by mistake; a name keeps one that was edited."""
    first, second = "SELECT id, name FROM teas", "SELECT id, notes AS name FROM teas"
    source = DatabaseSource(f"sqlite:///{path}", first, identity="id")
    source.fetch(tmp_path / "in")
    with pytest.raises(ConfigError, match="filled from 'database"):
        DatabaseSource(f"sqlite:///{path}", second, identity="id").fetch(tmp_path / "in")
    edited = DatabaseSource(f"sqlite:///{path}", second, identity="id", name=source.name)
    assert len(edited.fetch(tmp_path / "in").updated) == 3


def test_unknown_keywords():
    """A misspelt keyword names the nearest."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'identity'"):
        DatabaseSource("sqlite://", "SELECT 1", identiy="id")


def test_values_as_databases_give_them():
    """Dates, decimals and nested values have a text, and metadata of plain types."""
    record = {
        "id": decimal.Decimal("1.50"), "day": dt.date(2026, 4, 1),
        "at": dt.datetime(2026, 4, 1, 7, 30, tzinfo=dt.UTC),
        "tags": ["a", "b"], "deep": {"x": [1, {"y": True}]}, "bytes": b"\x00", "none": None,
    }  # fmt: skip
    item = RecordForm("id", metadata=["id", "day", "at", "tags"]).item(record, "row 1")
    assert item.content.decode() == (
        "id: 1.50\nday: 2026-04-01\nat: 2026-04-01T07:30:00+00:00\ntags: a, b\ndeep.x[0]: 1\ndeep.x[1].y: true"
    )
    assert item.metadata == {
        "id": 1.5,
        "day": "2026-04-01",
        "at": "2026-04-01T07:30:00+00:00",
        "tags": ["a", "b"],
    }
    assert plain(decimal.Decimal("Infinity")) is None


def test_a_driver_that_is_not_installed_is_named():
    """The message says which package is missing; the password is not in it."""

    def connect():
        msg = "No module named 'psycopg'"
        raise ModuleNotFoundError(msg, name="psycopg")

    with pytest.raises(LoadError, match=r"psycopg.*Install this driver"):
        list(DatabaseSource(connect, "SELECT 1", identity="id", name="teas").items())
