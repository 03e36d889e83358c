"""SQLite files: whose they are, how they come to their format, what a transaction promises."""

from __future__ import annotations

import gc
import os
import sqlite3
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, StoreError
from lazyrag.storage.database import Database, FileFormat
from tests.interpreter import let_go, python, waiting
from tests.privileges import without_privileges

ADVICE = "Throw it away."


def notebook(*migrations) -> FileFormat:
    """A kind of file, in its first format if nothing else is said."""
    return FileFormat(
        "notebook", 0x6E6F7465, migrations or ("CREATE TABLE note (text TEXT UNIQUE);",), ADVICE
    )


NOTES = notebook()


@pytest.fixture
def path(tmp_path):
    """Where there is no file yet."""
    return tmp_path / "notes.db"


def write(database: Database, *texts: str) -> None:
    """Add rows in one transaction."""
    with database.writing() as connection:
        connection.executemany("INSERT INTO note VALUES (?)", [(text,) for text in texts])


def read(database: Database) -> list[str]:
    """All rows, sorted."""
    with database.reading() as connection:
        return sorted(text for (text,) in connection.execute("SELECT text FROM note"))


def raw(path: Path, *statements: str) -> None:
    """Do something to a file behind the package's back."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def value(database: Database, statement: str):
    """What a statement answers with one value."""
    with database.reading() as connection:
        return connection.execute(statement).fetchone()[0]


def test_a_new_file_is_of_its_kind_and_format(path):
    """Tables made, kind and format noted where SQLite has places for them, WAL, foreign keys."""
    with Database(
        path, notebook("CREATE TABLE note (text);", "CREATE TABLE tag (text);")
    ) as database:
        assert value(database, "PRAGMA application_id") == 0x6E6F7465
        assert value(database, "PRAGMA user_version") == 2
        assert value(database, "PRAGMA journal_mode") == "wal"
        assert value(database, "PRAGMA synchronous") == 1
        assert value(database, "PRAGMA foreign_keys") == 1
        assert value(database, "SELECT count(*) FROM sqlite_master") == 2
        assert database.path == path
        assert repr(database) == f"Database({str(path)!r}, 'notebook')"


def test_rows_are_there_when_the_file_is_opened_again(path):
    """After closing, nothing but the one file is left beside it."""
    with Database(path, NOTES) as database:
        write(database, "tea", "茶")
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with Database(path, NOTES) as database:
        assert read(database) == ["tea", "茶"]


def test_an_empty_file_becomes_a_new_one(path):
    """As tempfile leaves one behind."""
    path.touch()
    with Database(path, NOTES) as database:
        write(database, "tea")
        assert read(database) == ["tea"]


@pytest.mark.parametrize("name", ["a b.db", "a#b?mode=ro.db", "100%25.db", "笔记.db"])
def test_any_file_name_will_do(tmp_path, name):
    """Also one with what means something in a URI."""
    with Database(tmp_path / name, NOTES) as database:
        write(database, "tea")
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_relative_path_is_meant_from_where_it_was_opened(tmp_path, monkeypatch):
    """The working directory may change afterwards."""
    monkeypatch.chdir(tmp_path)
    with Database("notes.db", NOTES) as database:
        monkeypatch.chdir("/")
        assert database.path == tmp_path / "notes.db"
        write(database, "tea")


@pytest.mark.parametrize("given_path", ["", ":memory:", 5, b"notes.db", "a\0b"])
def test_what_is_no_path_is_refused(given_path):
    """The error says what is needed."""
    with pytest.raises(ConfigError, match=r"path of the notebook is .*; give that of a file"):
        Database(given_path, NOTES)


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), float("inf"), 1e9])
def test_a_timeout_is_bounded(path, timeout_s):
    """From 0 to a day."""
    with pytest.raises(ConfigError, match="from 0 to 86,400"):
        Database(path, NOTES, timeout_s=timeout_s)
    assert not path.exists()


def test_a_place_where_no_file_can_be(tmp_path):
    """A folder, or beneath a file: said in those words, with the path."""
    with pytest.raises(StoreError, match="is a folder") as caught:
        Database(tmp_path, NOTES)
    assert caught.value.store == str(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"'.*notes\.db' cannot be made"):
        Database(tmp_path / "file" / "notes.db", NOTES)


def test_folders_that_are_not_there_are_made(tmp_path):
    """Those above the file; not where it is only read."""
    with pytest.raises(StoreError, match="read_only"):
        Database(tmp_path / "none" / "notes.db", NOTES, read_only=True)
    assert list(tmp_path.iterdir()) == []
    with Database(tmp_path / "a" / "b" / "notes.db", NOTES) as database:
        write(database, "tea")


def test_an_older_file_is_migrated(path):
    """Only the steps it lacks, in their order, scripts and functions; its rows stay."""
    steps = ("CREATE TABLE note (text TEXT UNIQUE);", "ALTER TABLE note ADD COLUMN length INTEGER;")
    with Database(path, notebook(*steps[:1])) as database:
        write(database, "tea", "coffee")
    seen = []

    def measure(connection):
        seen.append(connection.in_transaction)
        connection.execute("UPDATE note SET length = length(text)")

    for _ in range(2):
        with (
            Database(path, notebook(*steps, measure)) as database,
            database.reading() as connection,
        ):
            assert sorted(connection.execute("SELECT * FROM note")) == [("coffee", 6), ("tea", 3)]
    assert seen == [True]


def test_a_migration_that_fails_changes_nothing(path):
    """What it did is undone, the steps before it stay; a better release can go on from there."""
    with Database(path, NOTES) as database:
        write(database, "tea")
    more = "INSERT INTO note VALUES ('coffee');"

    def broken(connection):
        connection.execute("DELETE FROM note")
        raise LookupError("a mistake")

    for steps, error in [
        ((broken,), LookupError),
        (("DELETE FROM note; CREATE TABLE note (x);",), StoreError),
    ]:
        with pytest.raises(error, match=r"a mistake|already exists"):
            Database(path, notebook(*NOTES.migrations, more, *steps))
    with Database(path, notebook(*NOTES.migrations, more, "CREATE TABLE tag (text);")) as database:
        assert read(database) == ["coffee", "tea"]
        assert value(database, "PRAGMA user_version") == 3


def test_a_script_may_hold_anything(path):
    """Semicolons in texts, comments and triggers, several statements in a line, no last
    semicolon.
    """
    script = """
        CREATE TABLE note (text TEXT); CREATE TABLE log (text TEXT); -- two; in a line
        CREATE TRIGGER noted AFTER INSERT ON note BEGIN
            INSERT INTO log VALUES (NEW.text || ';'); /* and; */ INSERT INTO log VALUES ('--');
        END;
        INSERT INTO note VALUES ('a;b''; c;')"""
    with closing(sqlite3.connect(":memory:")) as plain:
        plain.executescript(script)
        expected = plain.execute("SELECT text FROM log").fetchall()
    assert expected == [("a;b'; c;;",), ("--",)]
    with Database(path, notebook(script)) as database, database.reading() as connection:
        assert connection.execute("SELECT text FROM log").fetchall() == expected


def test_a_script_is_carried_out_to_its_end(path):
    """A comment may come last; what is not finished is an error, not left out."""
    with pytest.raises(StoreError, match="failed: "):
        Database(path, notebook("CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('tea);"))
    with Database(
        path, notebook("CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('tea'); -- done;")
    ) as database:
        assert read(database) == ["tea"]


@given(
    st.lists(
        st.sampled_from(["a;", "';", "''", "-- x", "/*;*/", "\n", "END;", " ", "茶"]), max_size=6
    ).map("".join)
)
def test_a_text_in_a_script_comes_through(tmp_path_factory, text):
    """Whatever it looks like, with statements before and behind it."""
    quoted = text.replace("'", "''")
    script = "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('?'); INSERT INTO note VALUES ('last');"
    with Database(
        tmp_path_factory.mktemp("script") / "notes.db", notebook(script.replace("?", quoted))
    ) as database:
        assert read(database) == sorted([text, "last"])


def test_a_newer_file_is_refused(path):
    """With both formats and what to do; the file is left as it is."""
    with Database(path, notebook(*NOTES.migrations, "CREATE TABLE tag (text);")) as database:
        write(database, "tea")
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=r"format 2, .* reads up to format 1\. Install the newer release"
    ):
        Database(path, NOTES)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE other (x)"],
        ["PRAGMA user_version = 1"],
        ["PRAGMA application_id = 7"],
        ["PRAGMA application_id = 7", "CREATE TABLE note (text)", "PRAGMA user_version = 1"],
    ],
)
def test_another_applications_file_is_refused(path, statements):
    """Not a byte of it changes, its journal mode included."""
    raw(path, *statements)
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"of another kind\. It was left as it is"):
            Database(path, NOTES, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"\x50\x4b\x03\x04" * 300, "只是文字。\n".encode() * 100, b"x", b"tea" * 150]
)
def test_a_file_that_is_no_database_is_refused(path, content):
    """With what to do about it; the file is left as it is."""
    path.write_bytes(content)
    with pytest.raises(
        StoreError, match=f"notes.db' is not a SQLite database, or is damaged. {ADVICE}"
    ):
        Database(path, NOTES)
    assert path.read_bytes() == content


def test_a_damaged_file_is_an_error_when_it_is_read(path):
    """With what to do about it; nothing is made anew."""
    with Database(path, NOTES) as database:
        write(database, *(f"{number:0300}" for number in range(100)))
    content = bytearray(path.read_bytes())
    # all pages but the first, which has the tables' names
    content[16384:] = b"\xaa" * (len(content) - 16384)
    path.write_bytes(content)
    with Database(path, NOTES) as database:
        with pytest.raises(StoreError, match=f"notes.db' is damaged. {ADVICE}"):
            read(database)
        with pytest.raises(StoreError, match=ADVICE):
            write(database, "tea")
    path.write_bytes(content[:5000])
    with pytest.raises(StoreError, match=ADVICE), Database(path, NOTES) as database:
        read(database)


def test_an_error_undoes_the_whole_transaction(path):
    """Whatever it is; one of SQLite's becomes a StoreError with the cause, and the database can be
    used on.
    """

    def interrupted(database):
        with database.writing() as connection:
            connection.execute("DELETE FROM note")
            raise KeyboardInterrupt

    with Database(path, NOTES) as database:
        write(database, "tea")
        with pytest.raises(KeyboardInterrupt):
            interrupted(database)
        with pytest.raises(
            StoreError, match=r"notes\.db' failed: UNIQUE constraint failed"
        ) as caught:
            write(database, "coffee", "tea")
        assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)
        assert read(database) == ["tea"]


def test_an_interrupted_query_keeps_no_state_of_the_file(path):
    """A cursor in a kept traceback does not freeze what later transactions of the object see."""

    def interrupted(database):
        with database.reading() as connection:
            rows = connection.execute("SELECT text FROM note")
            next(rows)
            raise KeyboardInterrupt

    with Database(path, NOTES) as writer, Database(path, NOTES) as reader:
        write(writer, "apple", "pear")
        with pytest.raises(KeyboardInterrupt) as kept:
            interrupted(reader)
        write(writer, "plum")
        assert read(reader) == ["apple", "pear", "plum"]
        assert kept.tb is not None


def test_a_transaction_in_a_transaction_is_a_part_of_it(path):
    """It sees what the outer one did, and is undone with it; nobody else sees either before the
    end.
    """

    def nested(database):
        with database.writing() as connection:
            connection.execute("INSERT INTO note VALUES ('tea')")
            assert read(database) == ["tea"]
            write(database, "coffee")
            assert read(other) == []
            raise KeyboardInterrupt

    with Database(path, NOTES) as database, Database(path, NOTES) as other:
        with pytest.raises(KeyboardInterrupt):
            nested(database)
        assert read(database) == []
        with database.writing():
            write(database, "tea")
            write(database, "coffee")
        assert read(other) == ["coffee", "tea"]


def test_a_reader_sees_one_state(path):
    """Another connection may write meanwhile: it does not wait, and the reader does not notice
    until it is done.
    """
    with Database(path, NOTES) as database, Database(path, NOTES) as other:
        write(other, "tea")
        with database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM note").fetchone() == (1,)
            write(other, "coffee")
            assert connection.execute("SELECT count(*) FROM note").fetchone() == (1,)
        assert read(database) == ["coffee", "tea"]


def test_a_writer_keeps_others_waiting(path):
    """For as long as they were told, then they hear which file is locked; readers see the state
    before.
    """
    with Database(path, NOTES) as database, Database(path, NOTES, timeout_s=0.2) as other:
        with database.writing() as connection:
            connection.execute("INSERT INTO note VALUES ('tea')")
            assert read(other) == []
            started = time.monotonic()
            with pytest.raises(
                StoreError, match=r"notes.db' is locked: .* more than 0.2 s"
            ) as caught:
                write(other, "coffee")
            assert time.monotonic() - started > 0.15
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        write(other, "coffee")
        assert read(database) == ["coffee", "tea"]


def test_a_writer_that_waits_comes_next(path):
    """The lock is handed on before the timeout is over."""
    with Database(path, NOTES) as database, Database(path, NOTES, timeout_s=60) as other:
        waiting = threading.Thread(target=write, args=(other, "coffee"))
        with database.writing() as connection:
            connection.execute("INSERT INTO note VALUES ('tea')")
            waiting.start()
        waiting.join(60)
        assert read(database) == ["coffee", "tea"]


def test_opening_waits_for_one_that_reads_an_empty_file(path):
    """The change to WAL needs the file for a moment, and waits for it; in the end it is an error
    like others.
    """
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with pytest.raises(StoreError, match=r"is locked: .* more than 0.1 s"):
            Database(path, NOTES, timeout_s=0.1)
        release = threading.Timer(0.1, lambda: holder.execute("COMMIT"))
        release.start()
        with Database(path, NOTES, timeout_s=60) as database:
            write(database, "tea")
        release.join()


def test_read_only_reads_what_others_write(path):
    """As soon as it is written; but writes nothing, in no way."""
    with Database(path, NOTES) as database, Database(path, NOTES, read_only=True) as reader:
        assert read(reader) == []
        write(database, "tea")
        assert read(reader) == ["tea"]
        with pytest.raises(StoreError, match=r"opened with read_only=True\. Open it without"):
            write(reader, "coffee")
        with pytest.raises(StoreError, match="cannot be written"), reader.reading() as connection:
            connection.execute("DELETE FROM note")
        with pytest.raises(StoreError, match="cannot be written"):
            reader.shrink()
        assert read(database) == ["tea"]


def test_read_only_makes_nothing(path):
    """Neither a file, nor one of an empty one, nor of an older one; the error says what would."""
    with pytest.raises(StoreError, match="does not exist, and read_only=True makes none"):
        Database(path, NOTES, read_only=True)
    assert not path.exists()
    path.touch()
    with pytest.raises(
        StoreError, match=r"has format 0 and this release reads format 1\. Open it once without"
    ):
        Database(path, NOTES, read_only=True)
    assert path.read_bytes() == b""
    Database(path, NOTES).close()
    with pytest.raises(StoreError, match="format 1 and this release reads format 2"):
        Database(path, notebook(*NOTES.migrations, "CREATE TABLE tag (text);"), read_only=True)


def test_a_full_disk_loses_nothing(path):
    """The error says so; what was written before is there, and of this transaction nothing."""
    with Database(path, NOTES) as database:
        write(database, "tea")
        pages = value(database, "PRAGMA page_count")
        assert value(database, f"PRAGMA max_page_count = {pages + 2}") == pages + 2
        with pytest.raises(StoreError, match=r"notes\.db' cannot be written: the disk is full"):
            write(database, "coffee", *(f"{number:0500}" for number in range(100)))
        assert read(database) == ["tea"]
        value(database, "PRAGMA max_page_count = 1000000")
        write(database, "coffee")
        assert read(database) == ["coffee", "tea"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_may_not_be_written():
    """No file can be made there, nor one that is there opened: the error speaks of rights, and
    names the file.
    """
    # pytest's own folders lie where only their owner can look
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Database(folder / "notes.db", NOTES).close()
        folder.chmod(0o555)
        try:
            for file in ("notes.db", "new.db"):
                with (
                    without_privileges(),
                    pytest.raises(
                        StoreError,
                        match=rf"{file}' cannot be (opened|written). Check the permissions",
                    ),
                ):
                    Database(folder / file, NOTES)
        finally:
            folder.chmod(0o700)


def test_a_durable_transaction_waits_for_the_disk(path):
    """SQLite's FULL for that transaction alone, whether it is finished or not; NORMAL for others."""

    def interrupted(database):
        with database.writing(durable=True) as connection:
            connection.execute("INSERT INTO note VALUES ('lost')")
            raise KeyboardInterrupt

    def nested(database):
        with database.writing(durable=True), database.writing(durable=True):
            pass

    with Database(path, NOTES) as database:
        for durable, level in [(True, 2), (False, 1), (True, 2)]:
            with database.writing(durable=durable) as connection:
                assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
                connection.execute(
                    "INSERT INTO note VALUES (?)", (f"{level} {read_count(connection)}",)
                )
        with pytest.raises(KeyboardInterrupt):
            interrupted(database)
        with pytest.raises(StoreError, match="within a transaction"):
            nested(database)
        with database.writing() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
        assert read(database) == ["1 1", "2 0", "2 2"]


def read_count(connection: sqlite3.Connection) -> int:
    """How many rows there are."""
    return connection.execute("SELECT count(*) FROM note").fetchone()[0]


def test_the_version_moves_when_others_commit(path):
    """Another object, one that only reads included, sees a new number after each commit, and after
    nothing else.
    """
    with (
        Database(path, NOTES) as database,
        Database(path, NOTES) as other,
        Database(path, NOTES, read_only=True) as reader,
    ):
        seen = [(database.data_version(), reader.data_version())]
        for number in range(3):
            write(other, str(number))
            assert read(database) == read(reader)
            seen.append((database.data_version(), reader.data_version()))
        with other.writing() as connection:
            connection.execute("INSERT INTO note VALUES ('tea')")
            assert (database.data_version(), reader.data_version()) == seen[-1]
            with database.reading():
                assert database.data_version() == seen[-1][0]
        for numbers in zip(*seen, strict=True):
            assert len(set(numbers)) == 4


def test_ones_own_commits_do_not_move_the_version(path):
    """Who writes knows; the number tells of the others."""
    with Database(path, NOTES) as database:
        before = database.data_version()
        write(database, "tea")
        assert database.data_version() == before


def test_a_database_in_memory_is_seen_by_its_object_alone(tmp_path, monkeypatch):
    """It has its kind and format, transactions that hold or leave nothing, and no file anywhere."""
    monkeypatch.chdir(tmp_path)
    steps = notebook(*NOTES.migrations, "INSERT INTO note VALUES ('first');")
    with Database(None, steps) as database, Database(None, steps) as other:
        assert database.in_memory
        assert repr(database) == "Database(':memory:', 'notebook')"
        write(database, "tea")
        with pytest.raises(StoreError, match=r"notebook ':memory:' failed: UNIQUE"):
            write(database, "coffee", "tea")
        with database.writing(durable=True) as connection:
            connection.execute("INSERT INTO note VALUES ('milk')")
        database.shrink()
        assert read(database) == ["first", "milk", "tea"]
        assert read(other) == ["first"]
        assert value(database, "PRAGMA user_version") == 2
    with pytest.raises(StoreError, match="is closed"):
        read(database)
    assert list(tmp_path.iterdir()) == []


def test_what_lies_in_memory_is_not_for_reading_only(path):
    """It would be empty for ever."""
    with pytest.raises(
        ConfigError, match=r"notebook in memory begins empty.*Leave read_only=True out"
    ):
        Database(None, NOTES, read_only=True)


@pytest.mark.parametrize("in_memory", [False, True], ids=["file", "memory"])
def test_threads_take_turns(path, in_memory):
    """No increment is lost among eight threads on one object, and no transaction sees half of
    another's.
    """
    path = None if in_memory else path
    with Database(
        path, notebook("CREATE TABLE counter (a, b); INSERT INTO counter VALUES (0, 0);")
    ) as database:
        torn = []

        def count():
            for _ in range(40):
                with database.writing() as connection:
                    [a] = connection.execute("SELECT a FROM counter").fetchone()
                    connection.execute("UPDATE counter SET a = ?", (a + 1,))
                    connection.execute("UPDATE counter SET b = ?", (a + 1,))
                with database.reading() as connection:
                    a, b = connection.execute("SELECT a, b FROM counter").fetchone()
                    torn.extend([a] * (a != b))

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert value(database, "SELECT a FROM counter") == 320
        assert torn == []


OPEN_AND_WRITE = """
import sys
from lazyrag.storage.database import Database, FileFormat
steps = ("CREATE TABLE note (text TEXT UNIQUE); INSERT INTO note VALUES ('first');",
         "INSERT INTO note VALUES ('second');", "INSERT INTO note VALUES ('third');")
print("ready", flush=True)
sys.stdin.readline()
with Database(sys.argv[1], FileFormat("notebook", 0x6E6F7465, steps, ""), timeout_s=120) as database:
    for number in range(10):
        with database.writing() as connection:
            connection.execute("INSERT INTO note VALUES (?)", (f"{sys.argv[2]} {number}",))
"""


@pytest.mark.slow
def test_processes_may_open_a_new_file_at_the_same_time(path):
    """It is made once, and every one of them writes into it."""
    with ExitStack() as running:
        processes = [
            running.enter_context(waiting(OPEN_AND_WRITE, path, number)) for number in range(5)
        ]
        assert let_go(*processes) == [0] * 5
    with Database(path, notebook(*["SELECT 1"] * 3)) as database:
        written = [f"{process} {number}" for process in range(5) for number in range(10)]
        assert read(database) == sorted(["first", "second", "third", *written])


FORK = """
import os, sys
from lazyrag.errors import StoreError
from lazyrag.storage.database import Database, FileFormat
notes = FileFormat("notebook", 1, ("CREATE TABLE note (text TEXT);",), "")
with Database(sys.argv[1], notes) as database:
    child = os.fork()
    if not child:
        try:
            with database.writing():
                pass
        except StoreError as exc:
            print(exc, flush=True)
        database.close()
        with Database(sys.argv[1], notes) as own, own.writing() as connection:
            connection.execute("INSERT INTO note VALUES ('child')")
        os._exit(0)
    os.waitpid(child, 0)
    with database.writing() as connection:
        connection.execute("INSERT INTO note VALUES ('parent')")
        print(sorted(connection.execute("SELECT text FROM note")))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_opens_the_file_for_itself(path):
    """Its copy of the parent's connection would damage the file, and is refused; closing it does
    the parent no harm.
    """
    run = python("-c", FORK, str(path))
    assert run.stderr == ""
    refused, rows = run.stdout.splitlines()
    assert refused.endswith(
        "was opened by another process, of which this one is a fork. Open it again in this one."
    )
    assert rows == "[('child',), ('parent',)]"


def test_a_closed_database_says_so(path):
    """Closing twice is no mistake, using it afterwards is."""
    database = Database(path, NOTES)
    database.close()
    database.close()
    for use in (read, write, Database.shrink, Database.data_version):
        with pytest.raises(StoreError, match=r"notes\.db' is closed\. Open it again"):
            use(database)


@pytest.mark.slow
def test_a_forgotten_database_is_closed(path):
    """Nobody has it any more: SQLite's files beside it go, and no ResourceWarning comes, which
    would fail this test.
    """
    database = Database(path, NOTES)
    write(database)
    beside = path.with_name(path.name + "-wal")
    assert beside.exists()
    del database
    gc.collect()
    assert not beside.exists()


def test_closing_waits_for_a_transaction_of_another_thread(path):
    """Its work is done, not cut off."""
    database = Database(path, NOTES)
    inside = threading.Event()

    def work():
        with database.writing() as connection:
            inside.set()
            connection.executemany(
                "INSERT INTO note VALUES (?)", [(str(number),) for number in range(20_000)]
            )

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    database.close()
    thread.join(60)
    with Database(path, NOTES) as again:
        assert len(read(again)) == 20_000


def test_shrink_gives_room_back(path):
    """After much was deleted the file is small again."""
    with Database(path, NOTES) as database:
        write(database, *(f"{number:0500}" for number in range(1000)))
        with database.writing() as connection:
            connection.execute("DELETE FROM note")
        database.shrink()
        assert path.stat().st_size < 50_000
        write(database, "tea")
        assert read(database) == ["tea"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks /proc which file is open")
def test_a_flush_waits_for_the_log_and_opens_nothing_else(path, monkeypatch):
    """Its transactions are there; closing another descriptor of the file would end SQLite's locks
    on it.
    """
    flushed = []
    monkeypatch.setattr(
        "lazyrag.storage.database._flush_data",
        lambda log: flushed.append(Path(f"/proc/self/fd/{log}").readlink()),
    )
    link = path.with_name("link.db")
    link.symlink_to(path)
    with Database(link, NOTES) as database:
        write(database, "tea")
        database.flush()
        assert flushed == [path.with_name("notes.db-wal")]
    with Database(path, NOTES) as database, Database(None, NOTES) as in_memory:
        path.with_name("notes.db-wal").unlink(missing_ok=True)  # as where nothing was written yet
        database.flush()
        in_memory.flush()
        assert len(flushed) == 1
    with pytest.raises(StoreError, match="is closed"):
        database.flush()


def test_a_flush_that_fails_is_an_error(path, monkeypatch):
    """The disk said that it has lost something."""

    def fails(_log):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("lazyrag.storage.database._flush_data", fails)
    with Database(path, NOTES) as database:
        write(database, "tea")
        with pytest.raises(StoreError, match="disk I/O error"):
            database.flush()
