"""A store in PostgreSQL: the contract of stores, the suites of lease, ledger and crashes, and what
a server has.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lazyrag import Document, Retriever, migrate
from lazyrag.errors import ConfigError, StoreBusyError, StoreConnectionError, StoreError
from lazyrag.ingest import term_index
from lazyrag.ledger.lease import LEASE_S
from lazyrag.storage import postgres
from lazyrag.storage.database import DatabaseUrl
from lazyrag.storage.postgres import literal, local_copy
from lazyrag.stores.sqlite import StoreFile
from tests.contract.test_map_file import TestMapFileSegments  # noqa: F401  runs here on PostgreSQL
from tests.contract.test_map_vectors import TestMapFileVectors  # noqa: F401
from tests.crash.interrupts import Tally, in_postgres, walk
from tests.crash.kills import kill
from tests.live.conftest import address_of
from tests.postgres_stores import copies_of_postgres, open_file, url_of  # noqa: F401
from tests.unit.ledger.test_lease import *  # noqa: F403
from tests.unit.ledger.test_ledger import *  # noqa: F403

del test_writers_in_two_containers  # noqa: F821  its programs open a file

HOSTILE = (
    "it's",
    "a\0b",
    "half \ud800",
    "\x1a0000",
    "back\\slash ' \\",
    "%s %(a)s ? :name",
    "茶",
    "$1 $$",
    "",
)


class Lengths:
    """An embedder without a network."""

    identity = "lengths"
    batch_size = 8

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text."""
        return [[1.0, float(len(text) % 7), float(text.count("e"))] for text in texts]


def keyword_search(docs: Document, query: str) -> list:
    """The hits of an exact keyword search, which reads the index and not the server's ranking."""
    return Retriever(docs, "line", similarity="bm25", index="exact")(query)


def opened(url: str, files: Path | None = None, **options) -> Document:
    """A Document of the store at a URL."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": url, **options.pop("kwargs", {})}}}
    dataset = None if files is None else str(files)
    docs = Document(dataset, name="teas", embed={"dense": Lengths()}, store_conf=conf, **options)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


@pytest.fixture
def url(tmp_path) -> str:
    """The URL of an empty store."""
    address_of("LAZYRAG_POSTGRES")
    return url_of(tmp_path / "own")


@pytest.fixture
def files(tmp_path) -> Path:
    """Twelve small files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.txt").write_text(
            f"Green tea {number}\nBlack tea {number} is oxidised\n茶 {number}"
        )
    return folder


def answers(docs: Document) -> list[tuple[str, float]]:
    """Hits of exact searches by keywords and by vectors."""
    pairs = []
    for similarity, options in (("bm25", {}), ("cosine", {"embed_keys": ["dense"]})):
        retriever = Retriever(docs, "line", similarity, index="exact", topk=5, **options)
        pairs += [(hit.uid, hit.score) for hit in retriever("green tea 7")]
    return pairs


@pytest.fixture
def plain_files(monkeypatch) -> None:
    """Store files are files, as elsewhere."""
    monkeypatch.setattr(StoreFile, "__init__", open_file)


@pytest.mark.usefixtures("plain_files")
def test_a_store_in_postgresql_answers_as_a_file_does(url, files, tmp_path):
    """Same uids and scores; another machine, which has no local copies, reads all of it."""
    with opened(str(tmp_path / "store.db"), files) as docs:
        docs.sync()
        expected = answers(docs)
    with opened(url, files) as docs:
        assert len(docs.sync().added) == 12
        assert answers(docs) == expected
    shutil.rmtree(local_copy(url).parent)
    with opened(url, files, read_only=True) as docs:
        assert answers(docs) == expected
        assert docs.maintenance.verify() == ()


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_comes_back(url, text):
    """Quotes, placeholders, NUL and half surrogate pairs, which PostgreSQL's texts do not have."""
    with StoreFile(url) as file, file.writing() as connection:
        connection.execute("INSERT INTO selection VALUES ('a', ?)", (text,))
        assert connection.execute(
            "SELECT chosen FROM selection WHERE chosen = ?", (text,)
        ).fetchone() == (text,)
    assert literal(text).startswith("'")


@pytest.mark.usefixtures("plain_files")
def test_documents_are_in_the_order_of_a_file(url, tmp_path):
    """The dumps are equal, whatever letters ids have."""
    ids = [*filter(None, HOSTILE), "A", "a", "b", "é", "xz", "x\ud801", "\ud7ff", "\ue000", "😀"]
    dumps = []
    for store in (str(tmp_path / "store.db"), url):
        with opened(store) as docs:
            docs.add_texts(dict.fromkeys(ids, "tea"))
            dumps.append(list(docs.maintenance.dump()))
    assert dumps[0] == dumps[1]


def test_an_earlier_format_is_not_read(url):
    """Of a schema that no program has migrated; a program that writes migrates it."""
    with StoreFile(url) as file, file.writing() as connection:
        connection.execute("UPDATE store SET format = 3")
    with pytest.raises(StoreError, match=r"has format 3.* Open it once without read_only=True"):
        opened(url, read_only=True)


def test_the_password_is_in_no_message(url, files):
    """Neither in errors nor where a Document or its stores are shown."""
    wrong = re.sub(":[^:@/]*@", ":hunter2@", url)
    with pytest.raises(StoreConnectionError, match="user") as caught:
        opened(wrong)
    shown = "".join(map(str, [caught.value, caught.value.__cause__]))
    with opened(url, files) as docs:
        shown += repr(docs) + repr(docs._indexer.ledger.file)
    assert "hunter2" not in shown
    assert "crets" not in shown


def test_a_server_that_is_not_there(url):
    """StoreConnectionError, with what to check."""
    with pytest.raises(StoreConnectionError, match="server runs"):
        opened("postgresql://lazyrag:x@127.0.0.1:1/postgres")
    with pytest.raises(ConfigError, match="schema"):
        opened(url.replace("schema=", "schema=A-"))


def test_a_lost_connection_is_opened_again(url, files):
    """The server ends all connections; the next query and the next sync go on."""
    with opened(url, files) as docs, StoreFile(url) as other:
        docs.sync()
        expected = answers(docs)
        file = docs._indexer.ledger.file
        pids = []
        for begin in (file.reading, file.writing):
            with begin() as connection:
                pids += connection.run("SELECT pg_backend_pid()").fetchone()
        with pytest.raises(StoreConnectionError), other.writing() as connection:  # noqa: PT012  its end fails, too
            for pid in pids:
                connection.run(f"SELECT pg_terminate_backend({pid})")
            connection.run("SELECT pg_terminate_backend(pg_backend_pid())")
        (files / "new.txt").write_text("Oolong")
        docs.sync()
        assert len(docs.documents(limit=100)) == 13
        (files / "new.txt").unlink()
        docs.sync(max_deleted=1.0)
        assert answers(docs) == expected


def test_the_next_query_after_an_interrupted_one_gets_its_own_answer(url):
    """Ctrl-C while the server works: its late answer is not taken for that of the next
    statement.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with StoreFile(url) as file:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt), file.writing() as connection:
                connection.execute("SELECT pg_sleep(2), 'stale'")
            with file.reading() as connection:
                assert connection.execute("SELECT 7").fetchall() == [(7,)]
            with file.writing() as connection:
                assert connection.execute("SELECT 8").fetchall() == [(8,)]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_failed_first_query_leaves_the_connection_usable(url):
    """As when the server cancels it by statement_timeout."""
    with StoreFile(url) as file:
        with pytest.raises(StoreError, match="failed"), file.reading() as connection:
            connection.execute("SELECT 1 / 0")
        with file.reading() as connection:
            assert connection.execute("SELECT 7").fetchall() == [(7,)]
        assert file.commit_counter() == file.commit_counter()


def test_a_database_without_an_encoding(url):
    """SQL_ASCII, as servers have that were made without a locale."""
    name = "plain" + url[-8:]
    with StoreFile(url) as file, file.reading():
        cursor = file.writer._connection.raw.cursor()
        cursor.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    with StoreFile(re.sub("/[a-z]+[?]", f"/{name}?", url)) as file, file.writing() as connection:
        connection.execute("INSERT INTO selection VALUES ('茶', 'b')")
        assert connection.execute("SELECT name FROM selection").fetchall() == [("茶",)]


def test_parameters_and_schemas_of_urls(url):
    """libpq's sslmode, a name of a schema that is a word of SQL, and a parameter that nobody
    knows.
    """
    with (
        StoreFile(re.sub("schema=.*", "schema=user&sslmode=prefer", url)) as file,
        file.reading() as connection,
    ):
        assert connection.execute("SELECT current_schema()").fetchone() == ("user",)
    with pytest.raises(StoreConnectionError, match="SSL"):
        StoreFile(f"{url}&sslmode=require")
    with pytest.raises(ConfigError, match="connect_timeut"):
        StoreFile(f"{url}&connect_timeut=5")


@pytest.mark.parametrize(
    "password", ["12/hunter2", "12#hunter2", "12?hunter2", "p/hunter2", "p@hunter2", "p@12/hunter2"]
)
def test_a_password_with_any_character_is_shown_nowhere(password):
    """Also one that should have been quoted."""
    url = f"postgresql://lazyrag:{password}@127.0.0.1:1/postgres"
    with pytest.raises((ConfigError, StoreConnectionError)) as caught:
        StoreFile(url)
    shown = "".join(traceback.format_exception(caught.value)) + str(
        getattr(caught.value, "store", "")
    )
    assert "hunter2" not in shown + repr(DatabaseUrl(url))


def test_two_programs_save_the_same_arrays(url):
    """At the same time: both have them, neither gets an error."""
    arrays = {"rows": np.arange(1_000_000)}
    with StoreFile(url) as file, StoreFile(url) as other, ThreadPoolExecutor(2) as threads:
        [name] = set(threads.map(lambda one: one.arrays.write(arrays), (file, other)))
        assert (file.arrays.names(), file.arrays.check(name)) == ([name], "")


def test_a_reader_removes_old_copies_of_what_is_gone(url, monkeypatch, tmp_path):
    """However long it runs: about as many are left as there are bundles."""
    with StoreFile(url) as writer:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # of another machine
        with StoreFile(url, read_only=True) as reader:
            for number in range(100):
                name = writer.arrays.write({"rows": np.full(10, number)})
                assert reader.arrays.open(name)["rows"][0] == number
                writer.arrays.delete([name])
                [folder] = tmp_path.rglob("*.d")
                for copy in folder.iterdir():
                    os.utime(copy, (0, 0))
            assert len(list(folder.iterdir())) <= 16


def test_a_deletion_downloads_nothing_while_others_wait(url, monkeypatch, tmp_path):
    """Parts of keyword indexes are there before its transaction begins."""
    waiting = []
    load = postgres._ArrayRows._pieces

    def note(self, name):
        waiting.append(docs._indexer.ledger.file.is_writing())
        return load(self, name)

    monkeypatch.setattr(term_index, "_SMALL_BYTES", 0)
    with opened(url) as docs:
        docs.add_texts({name: f"tea {name}" for name in "abc"})
        keyword_search(docs, "tea")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # of another machine
    monkeypatch.setattr(postgres._ArrayRows, "_pieces", note)
    with opened(url) as docs:
        docs.delete_files(["a"])
        assert waiting == [False]
        assert {node.path for node in keyword_search(docs, "tea")} == {"b", "c"}


def test_a_machine_without_a_folder_for_copies(url, tmp_path, monkeypatch):
    """As containers are: the error says which variable to set."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="XDG_CACHE_HOME"):
        StoreFile(url)


def test_a_lease_of_a_lost_machine_expires_by_the_servers_clock(url, monkeypatch):
    """A clock of this machine that is wrong by a day neither takes nor gives a lease."""
    with StoreFile(url) as file, opened(url) as docs:
        ledger = docs._indexer.ledger
        with file.writing() as connection:
            connection.execute(
                "UPDATE ledger SET holder = 'gone', holder_told = ?, expires_at = ?",
                (
                    '{"name": "a", "host": "another machine", "pid": 1, "started": 1}',
                    file.now(connection) + 2,
                ),
            )
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 86_400)
        with pytest.raises(StoreBusyError, match="process 1 on"), ledger.lease.held():
            pass
        with ledger.lease.held(wait_s=LEASE_S):
            [(expires,)] = ledger.select("SELECT expires_at FROM ledger WHERE holder <> ''")
        assert real() < expires < real() + 2 * LEASE_S


def test_a_writer_waits_for_another_one(url):
    """As long as timeout_s says; then it is told that the store is locked."""
    with StoreFile(url) as file, StoreFile(url, timeout_s=0.2) as other, file.writing():
        with pytest.raises(StoreError, match="locked"), other.writing():
            pass
        with other.reading() as connection:
            assert connection.execute("SELECT count(*) FROM document").fetchone() == (0,)


@pytest.mark.usefixtures("plain_files")
def test_migrate_copies_a_file_to_postgresql(url, files, tmp_path):
    """Nothing is embedded again, and what comes after gets new numbers."""
    path = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    server = {"segment_store": {"type": "postgresql", "kwargs": {"uri": url}}}
    with opened(str(tmp_path / "store.db"), files) as docs:
        docs.sync()
        expected = answers(docs)
    migrate(path, server)
    with opened(url, files) as docs:
        assert answers(docs) == expected
        (files / "new.txt").write_text("Oolong")
        assert docs.sync().added == ("new.txt",)
        assert docs.maintenance.verify() == ()


def test_kills(tmp_path):
    """Killed at two instants; nodes and vectors are those of a program that was never killed."""
    address_of("LAZYRAG_POSTGRES")
    tally = kill("postgres", 2, tmp_path, seed=os.getpid())
    assert tally.survived == 2, tally.problems


def test_a_document_goes_on_after_interrupts(tmp_path):
    """A share of the points of searching and writing; all of them:
    ``python -m tests.crash.interrupts --postgres``.
    """
    url, tally = address_of("LAZYRAG_POSTGRES"), Tally()
    walk(
        lambda folder: in_postgres(url, folder),
        tmp_path,
        tally,
        step=60,
        only="bm25,add_texts,update_metadata",
    )
    assert tally.tried >= 20
    assert tally.broken == 0, "\n".join(["", *tally.problems])
