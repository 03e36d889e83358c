"""The store file: one SQLite file for three rooms, its array files, who sees what when."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from lazyrag.errors import ConfigError, StoreError
from lazyrag.storage.database import Database
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.tables import STORE_FORMAT
from tests.interpreter import python, waiting
from tests.privileges import without_privileges

ARRAYS = {"rows": np.arange(6).reshape(2, 3)}


@pytest.fixture
def path(tmp_path) -> Path:
    """Where there is no file yet."""
    return tmp_path / "store.db"


@pytest.fixture(params=["file", "memory"])
def file(request, path):
    """An open store file, or one in memory."""
    with StoreFile(path if request.param == "file" else None) as opened:
        yield opened


def add(file: StoreFile, *names: str, durable: bool = False) -> None:
    """Write rows in one transaction."""
    with file.writing(durable=durable) as connection:
        connection.executemany(
            "INSERT INTO segment_collection (name, schema) VALUES (?, '{}')",
            [(name,) for name in names],
        )


def names(file: StoreFile) -> list[str]:
    """All rows, sorted."""
    with file.reading() as connection:
        return sorted(name for (name,) in connection.execute("SELECT name FROM segment_collection"))


def test_a_new_file_is_a_store(path):
    """It is of the store's kind and format, and the folder of array files comes with the first of
    them.
    """
    with StoreFile(path) as file:
        assert (file.path, file.read_only, file.arrays.folder) == (path, False, Path(f"{path}.d"))
        assert repr(file) == f"StoreFile({str(path)!r})"
        assert file.arrays.names() == []
        assert not file.arrays.folder.exists()
        file.arrays.write(ARRAYS)
    assert sorted(one.name for one in path.parent.iterdir()) == ["store.db", "store.db.d"]
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA application_id").fetchone() == (STORE_FORMAT.application_id,)
        assert plain.execute("PRAGMA user_version").fetchone() == (STORE_FORMAT.version,)


def test_what_was_written_is_there_when_it_is_opened_again(path):
    """Rows and arrays; a text will do as its path."""
    with StoreFile(path) as file:
        add(file, "a")
        add(file, "b", durable=True)
        name = file.arrays.write(ARRAYS)
    with StoreFile(os.fspath(path)) as file:
        assert names(file) == ["a", "b"]
        assert file.arrays.open(name)["rows"].tolist() == ARRAYS["rows"].tolist()


def test_in_memory_nothing_lies_anywhere(tmp_path, monkeypatch):
    """Two of them know nothing of each other, and no file is made."""
    monkeypatch.chdir(tmp_path)
    with StoreFile(None) as one, StoreFile(None) as other:
        add(one, "a")
        name = one.arrays.write(ARRAYS)
        assert (names(one), names(other)) == (["a"], [])
        assert (one.arrays.names(), other.arrays.names()) == ([name], [])
        assert (one.path, repr(one)) == (None, "StoreFile(None)")
    assert list(tmp_path.iterdir()) == []


def test_what_was_committed_moves_the_number(file):
    """By any thread; not what was undone, not reading, and never back to a number that was."""
    seen = [file.commit_counter()]
    add(file, "a")
    seen.append(file.commit_counter())
    assert names(file) == ["a"]
    with pytest.raises(StoreError, match="UNIQUE"):
        add(file, "b", "a")
    assert file.commit_counter() == seen[-1]
    thread = threading.Thread(target=add, args=(file, "c"))
    thread.start()
    thread.join()
    seen.append(file.commit_counter())
    add(file, "d", durable=True)
    seen.append(file.commit_counter())
    assert len(set(seen)) == len(seen)


def test_what_another_program_commits_moves_the_number(path):
    """For one that may write and for one that only reads; and its rows are seen by the next
    transaction.
    """
    with (
        StoreFile(path) as file,
        StoreFile(path) as other,
        StoreFile(path, read_only=True) as reader,
    ):
        before = [one.commit_counter() for one in (file, other, reader)]
        assert [one.commit_counter() for one in (file, other, reader)] == before
        add(other, "a")
        after = [one.commit_counter() for one in (file, other, reader)]
        assert all(number != earlier for number, earlier in zip(after, before, strict=True))
        assert names(file) == names(reader) == ["a"]


CHANGE = """
import sys
from lazyrag.stores.sqlite import StoreFile
with StoreFile(sys.argv[1]) as file, file.writing() as connection:
    connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('elsewhere', '{}')")
"""


@pytest.mark.slow
def test_what_another_process_commits_is_seen(path):
    """The number has moved when it is done, and the row is there."""
    with StoreFile(path) as file:
        before = file.commit_counter()
        run = python("-c", CHANGE, str(path))
        assert run.stderr == ""
        assert file.commit_counter() != before
        assert names(file) == ["elsewhere"]


def test_reading_does_not_wait_for_writing(path):
    """A thread reads the state before, as long as another's transaction goes on; the number has not
    moved either.
    """
    with StoreFile(path) as file:
        add(file, "a")
        read, done = threading.Event(), []

        def look():
            done.append((names(file), file.commit_counter()))
            read.set()

        with file.writing() as connection:
            connection.execute("DELETE FROM segment_collection")
            before = file.commit_counter()
            threading.Thread(target=look).start()
            assert read.wait(60)
        assert done == [(["a"], before)]
        assert names(file) == []


def test_nobody_reads_half_a_transaction(file):
    """One thread writes pairs, another one reads: it finds both or neither, in a file and in
    memory.
    """
    counts = []

    def write():
        for number in range(60):
            add(file, f"a{number}", f"b{number}")

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        counts.append(len(names(file)))
    thread.join()
    assert [count for count in counts if count % 2] == []
    assert len(names(file)) == 120


def test_read_only_makes_and_writes_nothing(path):
    """A missing file is an error that says so; of a present one neither rows nor arrays can be
    changed.
    """
    with pytest.raises(
        StoreError, match=r"store '.*store.db' does not exist, and read_only=True makes none"
    ):
        StoreFile(path, read_only=True)
    with pytest.raises(ConfigError, match="in memory begins empty"):
        StoreFile(None, read_only=True)
    assert list(path.parent.iterdir()) == []
    with StoreFile(path) as file:
        name = file.arrays.write(ARRAYS)
        with StoreFile(path, read_only=True) as reader:
            assert repr(reader) == f"StoreFile({str(path)!r}, read_only=True)"
            assert reader.read_only
            assert list(reader.arrays.open(name)) == ["rows"]
            for use in (lambda: add(reader, "a"), lambda: reader.arrays.write(ARRAYS)):
                with pytest.raises(StoreError, match="read_only=True"):
                    use()


def test_a_newer_file_is_refused(path):
    """With both formats; the file is left as it is."""
    StoreFile(path).close()
    newer = STORE_FORMAT.version + 1
    with closing(sqlite3.connect(path)) as plain:
        plain.execute(f"PRAGMA user_version = {newer}")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(
            StoreError,
            match=rf"format {newer}, .* reads up to format {newer - 1}\. Install the newer",
        ):
            StoreFile(path, read_only=read_only)
    assert path.read_bytes() == before


def test_another_applications_file_is_refused(path):
    """It is left as it is."""
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="is not a SQLite database, or is damaged"):
        StoreFile(path)
    assert path.read_bytes() == b"no database at all" * 100


def test_a_locked_file_says_so(path):
    """After the time that was given, not before; who reads is not concerned."""
    with StoreFile(path) as file, StoreFile(path, timeout_s=0.2) as other, file.writing():
        assert names(other) == []
        started = time.monotonic()
        with pytest.raises(StoreError, match=r"is locked: .* more than 0.2 s"):
            add(other, "a")
        assert time.monotonic() - started > 0.15


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_may_not_be_written():
    """The error speaks of rights, and nothing is made."""
    # pytest's own folders lie where only their owner can look
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        try:
            with (
                without_privileges(),
                pytest.raises(
                    StoreError, match=r"cannot be (opened|written)\. Check the permissions"
                ),
            ):
                StoreFile(folder / "store.db")
            assert list(folder.iterdir()) == []
        finally:
            folder.chmod(0o700)


FILL = """
import resource, sys
from lazyrag.errors import StoreError
from lazyrag.stores.sqlite import StoreFile
with StoreFile(sys.argv[1]) as file:
    with file.writing() as connection:
        connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('before', '{}')")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
    try:
        with file.writing() as connection:
            for number in range(5000):
                connection.execute("INSERT INTO segment_collection (name, schema) VALUES (?, ?)", (number, "x" * 1000))
    except StoreError as exc:
        print(exc)
    with file.reading() as connection:
        print(connection.execute("SELECT name FROM segment_collection").fetchall())
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_disk_that_is_full_loses_nothing(path):
    """The transaction that does not fit is an error, and what was committed before is there, now
    and later.
    """
    run = python("-c", FILL, str(path))
    assert run.stderr == ""
    told, rows = run.stdout.splitlines()
    assert "disk" in told
    assert "full" in told
    assert rows == "[('before',)]"
    with StoreFile(path) as file:
        assert names(file) == ["before"]


HALF = """
import sys
from lazyrag.stores.sqlite import StoreFile
file = StoreFile(sys.argv[1])
with file.writing() as connection:
    for number in range(3000):
        connection.execute("INSERT INTO segment_collection (name, schema) VALUES (?, ?)", (number, "x" * 4000))
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_and_locks_nobody_out(path):
    """In the middle of a transaction that is larger than what SQLite keeps in memory."""
    with StoreFile(path, timeout_s=60) as file:
        add(file, "before")
        with waiting(HALF, path) as process:
            assert names(file) == ["before"]
            before = file.commit_counter()
            process.kill()
            process.wait(60)
        assert names(file) == ["before"]
        assert file.commit_counter() == before
        add(file, "after")
        assert names(file) == ["after", "before"]


FORK = """
import os, sys
from lazyrag.errors import StoreError
from lazyrag.stores.sqlite import StoreFile
with StoreFile(sys.argv[1]) as file:
    child = os.fork()
    if not child:
        for use in (file.reading, file.writing, file.commit_counter):
            try:
                with use():
                    pass
            except StoreError as exc:
                print(exc, flush=True)
        file.close()
        os._exit(0)
    os.waitpid(child, 0)
    with file.writing() as connection:
        connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('parent', '{}')")
    with file.reading() as connection:
        print(connection.execute("SELECT name FROM segment_collection").fetchall())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_opens_the_file_for_itself(path):
    """Its copy of the parent's is refused in every use; closing it does the parent no harm."""
    run = python("-c", FORK, str(path))
    assert run.stderr == ""
    *refused, rows = run.stdout.splitlines()
    assert len(refused) == 3
    assert all("of which this one is a fork. Open it again" in one for one in refused)
    assert rows == "[('parent',)]"


def test_a_closed_file_says_so(file):
    """Closing twice is no mistake, using it afterwards is."""
    file.close()
    file.close()
    for use in (names, add, lambda closed: closed.commit_counter()):
        with pytest.raises(StoreError, match=r"is closed\. Open it again"):
            use(file)


def test_opening_that_fails_leaves_nothing_open(path):
    """A second connection that cannot be made closes the first: the file can be moved away and made
    anew.
    """
    with pytest.raises(ConfigError, match="from 0 to 86,400"):
        StoreFile(path, timeout_s=-1)
    with pytest.raises(ConfigError, match="give that of a file"):
        StoreFile("")
    assert list(path.parent.iterdir()) == []


def test_files_of_one_document_are_flushed_in_the_order_of_their_transactions(path, monkeypatch):
    """Before a transaction in one file, what was committed to the others is on the disk; a durable
    one asks again.
    """
    flushed = []
    flush = Database.flush
    monkeypatch.setattr(
        Database, "flush", lambda self: (flushed.append(self.path.name), flush(self))
    )
    with StoreFile(path) as one, StoreFile(path.with_name("other.db")) as other:
        StoreFile.keep_in_order([one, other])
        add(one, "a")  # another program may have written the other file
        add(one, "b")
        assert flushed == ["other.db"]
        add(other, "a")
        add(other, "b")
        assert flushed == ["other.db", "store.db"]
        add(one, "c")
        add(one, "d", durable=True)
        assert flushed == ["other.db", "store.db", "other.db", "other.db"]


def test_a_flush_that_failed_is_tried_again(path, monkeypatch):
    """The next transaction does not go on without it."""
    flush, fails, flushed = Database.flush, [True], []

    def once(self):
        if fails:
            raise StoreError(fails.pop() and "The disk failed.")
        flush(self)
        flushed.append(self.path)

    monkeypatch.setattr(Database, "flush", once)
    with StoreFile(path) as one, StoreFile(path.with_name("other.db")) as other:
        StoreFile.keep_in_order([one, other])
        with pytest.raises(StoreError, match="failed"):
            add(one, "a")
        assert names(one) == []
        add(one, "a")
        assert flushed == [other.path]


def test_rows_are_flushed_before_array_files_go(path, monkeypatch):
    """Otherwise a power cut brings the rows back that refer to them."""
    with StoreFile(path) as file:
        name = file.arrays.write(ARRAYS)
        seen = []
        monkeypatch.setattr(Database, "flush", lambda _: seen.append(file.arrays.names()))
        file.collect_array_files(older_than_s=0)
        assert (seen, file.arrays.names()) == ([[name]], [])


def test_the_other_files_of_a_document_are_looked_after_as_well(path):
    """Array files that nothing names go from both; damage is found in both."""
    with StoreFile(path) as one, StoreFile(path.with_name("other.db")) as other:
        StoreFile.keep_in_order([one, other])
        stray = {one.arrays.write(ARRAYS), other.arrays.write({"rows": np.arange(3)})}
        assert {*one.stray_array_files(older_than_s=0)} == stray
        one.collect_array_files(older_than_s=0)
        assert one.arrays.names() == other.arrays.names() == []
        assert one.damage() == ""
        other.close()
        assert "other.db" in one.damage()


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps open files")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_deleted_or_replaced_is_not_written(path, replaced):
    """SQLite would report success, and nobody would find the rows."""
    with StoreFile(path) as file:
        add(file, "a")
        moved = path.rename(path.with_name("moved.db"))
        if replaced:
            path.write_bytes(b"")
        with pytest.raises(StoreError, match=rf"{path.name}' was deleted or replaced"):
            add(file, "b")
        path.unlink(missing_ok=True)
        moved.rename(path)
        add(file, "c")
        assert names(file) == ["a", "c"]
