"""Disks, rights, locks and damaged files: each trouble is a clear error, loses nothing, and can be
mended.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError, LazyRAGError, StoreError
from lazyrag.ingest import term_index
from lazyrag.stores import config as store_conf
from lazyrag.stores import sqlite_vectors as map_vectors
from lazyrag.stores.sqlite import StoreFile
from tests.interpreter import python
from tests.privileges import without_privileges
from tests.shelf import Shelf

LINES = 100


class Embed:
    """An embed callable."""

    identity = "numbers"

    def __init__(self, dimension):
        """Give vectors so long."""
        self.dimension = dimension

    def __call__(self, text):
        """A vector for a text."""
        chance = random.Random(text)
        return [chance.random() for _ in range(self.dimension)]


def numbered(version, count=LINES):
    """A file of many lines."""
    return "\n".join(f"tea v{version} line{number} w{number % 9}" for number in range(count))


class TroubledShelf(Shelf):
    """One of a small and a large file."""

    def __init__(self, root, dimension=16):
        """Write the files."""
        super().__init__(
            root,
            {"large.txt": numbered(1), "small.txt": "green tea\nblack tea"},
            embed=Embed(dimension),
        )

    @property
    def arrays(self):
        """The folder of array files."""
        return Path(f"{self.store}.d")

    def build(self):
        """Make the store; its dump."""
        with self.open() as docs:
            return self.built(docs)

    def built(self, docs):
        """Have everything there; the dump."""
        docs.sync()
        for similarity in ("bm25", "cosine"):
            Retriever(docs, "line", similarity=similarity)("green")
        return list(docs.maintenance.dump())

    def edit(self):
        """A second version of the large file, and another small file."""
        self.write({"large.txt": numbered(2), "new.txt": "white tea"})

    def delete_store(self):
        """What the message about damaged files says."""
        for path in self.root.glob("store.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(autouse=True)
def _array_files(monkeypatch):
    """What is large lies in array files, and here everything is."""
    monkeypatch.setattr(term_index, "_SMALL_BYTES", 0)
    monkeypatch.setattr(map_vectors, "_SMALL_BYTES", 0)


@pytest.fixture
def shelf(tmp_path):
    """Two files, and no store yet."""
    return TroubledShelf(tmp_path)


@pytest.fixture
def common_shelf():
    """The same where everybody may look: pytest's own folders lie where only their owner can."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield TroubledShelf(Path(folder))


FULL_DISK = """
import importlib.util, json, resource, sys, warnings
from pathlib import Path
from lazyrag.errors import StoreError
from lazyrag.ingest import term_index as term_spaces
from lazyrag.stores import sqlite_vectors as map_vectors
spec = importlib.util.spec_from_file_location("trouble", sys.argv[1])
trouble = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trouble)
term_spaces._SMALL_BYTES = map_vectors._SMALL_BYTES = 0
warnings.simplefilter("ignore")  # vectors that the cache cannot keep are told of as warnings
shelf = trouble.TroubledShelf(Path(sys.argv[2]), int(sys.argv[3]))
before = shelf.build()
shelf.write({"large.txt": trouble.numbered(2)})
told = []
with shelf.open() as docs:
    for limit in json.loads(sys.argv[4]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            docs.sync()
            outcome = ""
        except StoreError as exc:
            outcome = str(exc)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        told.append([outcome, list(docs.maintenance.dump()) == before])
        if not outcome:
            break
    docs.sync()
    told.append(list(docs.maintenance.dump()) == shelf.fresh_dump())
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("dimension", "full"), [(16, "store.db'"), (8000, ".arr")], ids=["database", "array file"]
)
def test_a_disk_that_is_full(tmp_path, dimension, full):
    """Wherever it is full, in a database or an array file, the old state stays live; with room the
    sync succeeds.
    """
    limits = [
        size << 12 for size in (1, 4, 16, 64, 96, 128, 160, 192, 256, 384, 512, 1024, 4096, 16384)
    ]
    run = python("-c", FULL_DISK, __file__, str(tmp_path), str(dimension), json.dumps(limits))
    assert run.stderr == ""
    *failed, (done, _), mended = json.loads(run.stdout)
    assert len(failed) > 3
    assert all("full" in outcome for outcome, _ in failed)
    assert any(full in outcome for outcome, _ in failed)
    assert all(as_before for _, as_before in failed)
    assert done == ""
    assert mended is True


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_may_not_be_written(common_shelf):
    """A new store is refused with what rights it needs, and nothing is made."""
    before = sorted(path.name for path in common_shelf.root.iterdir())
    common_shelf.root.chmod(0o555)
    try:
        with (
            without_privileges(),
            pytest.raises(StoreError, match=r"store\.db.*Check the permissions"),
        ):
            common_shelf.open()
    finally:
        common_shelf.root.chmod(0o755)
    assert sorted(path.name for path in common_shelf.root.iterdir()) == before


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_store_that_may_not_be_written(common_shelf):
    """Opened for writing it is refused with what rights it needs, and stays as it is."""
    dump = common_shelf.build()
    for path in common_shelf.root.glob("store.db*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    common_shelf.root.chmod(0o555)
    try:
        with (
            without_privileges(),
            pytest.raises(StoreError, match=r"store\.db.*(permissions|writable)"),
            common_shelf.open(),
        ):
            pass
    finally:
        for path in (common_shelf.root, *common_shelf.root.glob("store.db*")):
            path.chmod(0o755)
    assert common_shelf.build() == dump


@contextmanager
def unwritable(shelf):
    """As somebody who may read the store, and neither write it nor its folder."""
    for path in (*shelf.root.glob("store.db*"), shelf.root):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with without_privileges():
            yield
    finally:
        for path in (shelf.root, *shelf.root.glob("store.db*")):
            path.chmod(0o755)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_reading_without_the_right_to_write(common_shelf):
    """A reader follows writers who come and go, and makes no file; without them, too."""
    dump = common_shelf.build()
    beside = sorted(path.name for path in common_shelf.root.iterdir())
    with unwritable(common_shelf):
        reader = common_shelf.open(read_only=True)
        assert list(reader.maintenance.dump()) == dump
        assert [hit.text for hit in Retriever(reader, "line", similarity="bm25")("green")] == [
            "green tea"
        ]
        assert Retriever(reader, "line", similarity="cosine")("green")
        assert reader.maintenance.verify() == ()
    assert sorted(path.name for path in common_shelf.root.iterdir()) == beside
    with common_shelf.open() as writer:
        common_shelf.edit()
        writer.sync()
        edited = list(writer.maintenance.dump())
        assert edited != dump
        with unwritable(common_shelf), common_shelf.open(read_only=True) as other:
            assert list(other.maintenance.dump()) == list(reader.maintenance.dump()) == edited
    with unwritable(common_shelf):
        assert list(reader.maintenance.dump()) == edited
        reader.close()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_writer_that_comes_during_a_read(common_shelf):
    """What was read may be of two states, so the read fails, and the next one goes on with the new
    state.
    """
    common_shelf.build()
    with unwritable(common_shelf):
        reader = StoreFile(common_shelf.store, read_only=True)
        before = reader.commit_counter()
    common_shelf.edit()
    with pytest.raises(StoreError, match="changed while it was read"), reader.reading():
        common_shelf.build()
    assert reader.commit_counter() != before
    with reader.reading() as connection:
        assert connection.execute("SELECT count(*) FROM document").fetchone() == (3,)
    reader.close()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_log_that_cannot_be_read(common_shelf):
    """What a killed writer left has to be read by one who may write: the error says so."""
    common_shelf.build()
    with common_shelf.open():
        log = Path(f"{common_shelf.store}-wal").read_bytes()
    Path(f"{common_shelf.store}-wal").write_bytes(log)
    with (
        unwritable(common_shelf),
        pytest.raises(StoreError, match="close it first in a program that may write"),
    ):
        common_shelf.open(read_only=True)
    with common_shelf.open():
        pass
    with unwritable(common_shelf), common_shelf.open(read_only=True):
        pass


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_of_arrays_that_may_not_be_written(common_shelf):
    """A sync that cannot write its array files leaves the old state live, and goes through when it
    can.
    """
    with common_shelf.open() as docs:
        dump = common_shelf.built(docs)
        common_shelf.edit()
        common_shelf.arrays.chmod(0o555)
        try:
            with without_privileges(), pytest.raises(StoreError, match=r"store\.db\.d"):
                docs.sync()
            assert [
                line
                for line in docs.maintenance.dump()
                if "white tea" not in line and "new.txt" not in line
            ][:3] == dump[:3]
            assert "v2" not in "".join(docs.maintenance.dump())
            assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("green")] == [
                "green tea"
            ]
        finally:
            common_shelf.arrays.chmod(0o755)
        docs.sync()
        assert list(docs.maintenance.dump()) == common_shelf.fresh_dump()


@pytest.mark.slow
def test_a_file_in_place_of_the_folder_of_arrays(shelf):
    """It is named as what is in the way."""
    shelf.arrays.write_text("mine", encoding="utf-8")
    with shelf.open() as docs, pytest.raises(StoreError, match=r"store\.db\.d"):
        shelf.built(docs)
    assert shelf.arrays.read_text(encoding="utf-8") == "mine"
    shelf.arrays.unlink()
    assert shelf.build() == shelf.fresh_dump()


@pytest.mark.slow
def test_a_locked_store(shelf, monkeypatch):
    """While another connection writes for too long, a sync says so, questions are answered; the
    next one succeeds.
    """
    monkeypatch.setattr(store_conf, "_TIMEOUT_S", 0.2)
    with shelf.open() as docs:
        dump = shelf.built(docs)
        shelf.edit()
        with closing(sqlite3.connect(shelf.store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreError,
                match=r"store\.db' is locked: another connection .* more than 0\.2 s\. Wait",
            ):
                docs.sync()
            assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("green")] == [
                "green tea"
            ]
            assert list(docs.maintenance.dump()) == dump
            other.execute("ROLLBACK")
        docs.sync()
        assert list(docs.maintenance.dump()) == shelf.fresh_dump()


@pytest.mark.slow
def test_a_store_that_is_locked_when_it_is_opened(shelf, monkeypatch):
    """That is said at once, and nothing is left open."""
    shelf.build()
    monkeypatch.setattr(store_conf, "_TIMEOUT_S", 0.2)
    with closing(sqlite3.connect(shelf.store, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="is locked"), shelf.open() as docs:
            docs.sync()
    with shelf.open() as docs:
        assert len(docs.sync().unchanged) == 2


def cut(path):
    """The second half is gone."""
    os.truncate(path, path.stat().st_size // 2)


def lose_the_beginning(path):
    """The first page is overwritten."""
    with path.open("r+b") as file:
        file.write(b"no database at all" * 300)


def scramble(path):
    """Every other page is random, but for the first."""
    chance = random.Random(0)
    with path.open("r+b") as file:
        for page in range(1, path.stat().st_size // 4096, 2):
            file.seek(4096 * page)
            file.write(chance.randbytes(4096))


def replace_by_text(path):
    """Another file lies there."""
    path.write_text("my diary, which is long enough to be looked at. " * 40, encoding="utf-8")


@pytest.mark.sample(4)
@pytest.mark.parametrize("damage", [cut, lose_the_beginning, scramble, replace_by_text])
def test_a_damaged_store(shelf, damage):
    """It is an error that names the file and the way out; who follows that has everything again."""
    dump = shelf.build()
    damage(shelf.store)
    damaged = shelf.store.read_bytes()
    with pytest.raises(
        StoreError, match=r"store\.db' is (damaged|not a SQLite).*delete it and the files beside it"
    ) as caught:
        shelf.build()
    assert caught.value.store == str(shelf.store)
    if damage is not scramble:
        assert shelf.store.read_bytes() == damaged
    shelf.delete_store()
    assert shelf.build() == dump


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_any_page_of_a_store_may_be_damaged(shelf, seed):
    """Whichever page is overwritten: the answer is what it was, or an error of ours and of no other
    kind.
    """
    dump = shelf.build()
    chance = random.Random(seed)
    with sqlite3.connect(shelf.store) as connection:
        [size] = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    page = chance.randrange(1, shelf.store.stat().st_size // size)
    with shelf.store.open("r+b") as file:
        file.seek(size * page)
        file.write(chance.randbytes(size))
    try:
        assert shelf.build() == dump
    except LazyRAGError as exc:
        assert "store" in str(exc)  # noqa: PT017  either of both may be
    shelf.delete_store()
    assert shelf.build() == dump


def array_files(shelf):
    """The array files of a store."""
    found = sorted(shelf.arrays.glob("*.arr"))
    assert len(found) >= 2
    return found


def remove(path):
    """The file is gone."""
    path.unlink()


def flip_the_header(path):
    """Its first bytes are others."""
    with path.open("r+b") as file:
        file.write(b"\0" * 16)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [remove, cut, flip_the_header])
def test_a_damaged_array_file(shelf, damage):
    """Who needs it hears its name; what does not need it goes on; when it is put back, everything
    is as it was.
    """
    dump = shelf.build()
    for path in array_files(shelf):
        copy = path.read_bytes()
        damage(path)
        with shelf.open() as docs, pytest.raises(StoreError, match=path.name[:12]) as caught:
            shelf.built(docs)
        assert any(word in str(caught.value) for word in ("repair()", "delete", "backup"))
        with shelf.open() as docs:
            assert [node.text for node in docs.get_nodes("line", limit=1)] == ["tea v1 line0 w0"]
        path.write_bytes(copy)
        assert shelf.build() == dump


def test_a_store_of_a_newer_release(shelf):
    """It is refused with both formats named, and left as it is."""
    shelf.build()
    with closing(sqlite3.connect(shelf.store)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = shelf.store.read_bytes()
    for read_only in (False, True):
        with pytest.raises(
            StoreError,
            match=r"has format 99, written by a newer release.*up to format \d+\. Install",
        ):
            shelf.open(read_only=read_only)
    assert shelf.store.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_kind(shelf, read_only):
    """Somebody else's file is refused, and no byte of it is changed."""
    with closing(sqlite3.connect(shelf.store)) as connection, connection:
        connection.execute("CREATE TABLE diary (day TEXT)")
    before = shelf.store.read_bytes()
    with pytest.raises(
        StoreError,
        match=r"is a SQLite database of another kind\. It was left as it is; pass another path",
    ):
        shelf.open(read_only=read_only)
    assert shelf.store.read_bytes() == before
    assert not shelf.arrays.exists()


def test_the_embedding_cache_in_place_of_the_store(shelf):
    """Our own other kind of file is one of another kind as well."""
    shelf.build()
    with pytest.raises(StoreError, match="of another kind"):
        shelf.open(store=Path(f"{shelf.store}.embeddings"))


def test_a_folder_that_is_not_there(shelf):
    """It is made, as specification 001's own sample of store_conf needs it."""
    with shelf.open(store=shelf.root / "new" / "stores" / "store.db") as docs:
        docs.sync()
    assert (shelf.root / "new" / "stores" / "store.db").is_file()


def test_a_folder_in_place_of_the_store(shelf):
    """The path has to be a file's."""
    with pytest.raises(StoreError, match=r"is a folder\. Give the path of a file"):
        shelf.open(store=shelf.dataset)


@pytest.mark.slow
def test_a_damaged_embedding_cache(shelf):
    """It is named, with what to do; without it everything is there again."""
    dump = shelf.build()
    cache = Path(f"{shelf.store}.embeddings")
    lose_the_beginning(cache)
    with pytest.raises(StoreError, match=r"store\.db\.embeddings'.*[Dd]elete"):
        shelf.build()
    cache.unlink()
    assert shelf.build() == dump


@pytest.mark.slow
def test_a_store_that_was_copied(shelf):
    """The file and its folder, copied while nothing is open, are the same store elsewhere: a
    backup.
    """
    dump = shelf.build()
    shutil.copyfile(shelf.store, shelf.root / "copy.db")
    shutil.copytree(shelf.arrays, shelf.root / "copy.db.d")
    shelf.edit()
    shelf.build()
    with shelf.open(store=shelf.root / "copy.db", read_only=True) as docs:
        assert list(docs.maintenance.dump()) == dump
        assert [hit.text for hit in Retriever(docs, "line", similarity="bm25")("green")] == [
            "green tea"
        ]
    with shelf.open(store=shelf.root / "copy.db") as docs:
        assert docs.sync().updated == ("large.txt",)
        assert list(docs.maintenance.dump()) == shelf.fresh_dump()


def test_a_store_that_was_emptied(shelf):
    """A file of no bytes is a new store: it is filled again from the dataset."""
    dump = shelf.build()
    shelf.store.write_bytes(b"")
    assert shelf.build() == dump


def test_a_store_of_several_shards_names_the_release_that_joins_it(tmp_path):
    """Nothing is written beside it."""
    (tmp_path / "store.db.shards").write_text('{"shards": 2}')
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with pytest.raises(ConfigError, match=r"lazyrag reshard --shards 1.* that release"):
        Document(store_conf=conf)
    assert [path.name for path in tmp_path.iterdir()] == ["store.db.shards"]
