"""What a store on this machine has lost, the next sync rebuilds by itself, and says so; an outage
is no loss.
"""

from __future__ import annotations

import fcntl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import IngestionWarning, StoreConnectionError, StoreDamagedError
from lazyrag.ledger.ledger import Ledger
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import StoreLocation, set_aside, vector_stores

TEXTS = {"a.txt": "green tea\nblack tea", "b.txt": "hot coffee\ncold milk"}


class LocalStore(MapVectorStore):
    """Vectors in memory by path, for all that open the same path; a test may damage them."""

    contents: dict[str, dict] = {}
    failure: dict[str, Exception] = {}

    def __init__(self, path: str, *, shared: bool = False) -> None:
        super().__init__()
        self.path, self.shared = path, shared
        self._collections = self.contents.setdefault(path, {})

    @property
    def features(self):
        """Persistent, and shared like a server if a test wants that."""
        return super().features | ({"persistent", "shared"} if self.shared else {"persistent"})

    @property
    def location(self):
        """The path."""
        return StoreLocation(self.path, is_server=self.shared)

    def open(self):
        """Fail as the test says."""
        self._fail("open")

    def close(self):
        """Keep the contents."""

    def count(self, collection):
        """Fail as the test says."""
        self._fail("count")
        if collection not in self._collections:
            raise StoreDamagedError(f"There is no {collection}.")
        return super().count(collection)

    def search(self, *args, **kwargs):
        """Fail as the test says."""
        self._fail("search")
        return super().search(*args, **kwargs)

    def drop(self, collection):
        """Fail as the test says; a collection without damage is sound again."""
        self._fail("drop")
        self.failure.clear()
        super().drop(collection)

    def _fail(self, method):
        folder = Path(self.path)
        if "open" in self.failure and not folder.exists():
            self.failure.clear()
        folder.mkdir(exist_ok=True)
        if method in self.failure:
            raise self.failure[method]
        if self.contents[self.path] is not self._collections:
            self._collections = self.contents[self.path]


@pytest.fixture
def local():
    """The registered store type, without contents and damage."""
    LocalStore.contents.clear()
    LocalStore.failure.clear()
    with vector_stores.isolated():
        vector_stores.register("local test")(LocalStore)
        yield LocalStore


def embed(text: str) -> list[float]:
    """A vector that follows from the letters."""
    return [1.0 + text.count(letter) for letter in "aeiou"]


class Place:
    """A dataset and a store folder.

    Args:
        root: An empty folder.
        vectors: The vector store.
    """

    def __init__(self, root: Path, vectors: dict) -> None:
        self.root, self.vectors = root, vectors
        (root / "files").mkdir()
        for name, text in TEXTS.items():
            (root / "files" / name).write_text(text, encoding="utf-8")

    def open(self, *, read_only: bool = False) -> Document:
        """The Document; ledger, nodes and vectors are in three files."""
        segments = {"type": "map", "kwargs": {"uri": str(self.root / "nodes.db")}}
        conf = {
            "ledger": str(self.root / "ledger.db"),
            "segment_store": segments,
            "vector_store": self.vectors,
        }
        docs = Document(
            str(self.root / "files"), embed=embed, store_conf=conf, name="tea", read_only=read_only
        )
        docs.create_node_group("line", transform=str.splitlines)
        return docs

    def hits(self, docs: Document) -> list[str]:
        """What a search finds."""
        return [
            hit.text for hit in Retriever(docs, "line", similarity="cosine", topk=9)("green tea")
        ]


@pytest.fixture
def split(tmp_path):
    """Map stores in three files."""
    return Place(tmp_path, {"type": "map", "kwargs": {"uri": str(tmp_path / "vectors.db")}})


def remove(path: Path) -> None:
    """Remove a store file with its log."""
    for one in path.parent.glob(f"{path.name}*"):
        if one.is_file():
            one.unlink()


@pytest.mark.slow
def test_lost_vectors_are_rebuilt(split):
    """At the first search of the next program: all hits are back, and the report names the
    index.
    """
    with split.open() as docs:
        before = split.hits(docs)
    remove(split.root / "vectors.db")
    with split.open() as docs:
        with pytest.warns(IngestionWarning, match="rebuilt line by default"):
            assert split.hits(docs) == before
        assert docs.last_report.repaired == ("line by default",)
        assert "1 repaired" in str(docs.last_report)
        assert docs.maintenance.verify() == ()
        assert docs.sync().repaired == ()


def test_adding_rebuilds_first(split):
    """The first write of a program does not fail over what an earlier one has lost."""
    with split.open() as docs:
        before = split.hits(docs)
    remove(split.root / "vectors.db")
    with split.open() as docs:
        with pytest.warns(IngestionWarning, match="rebuilt line by default"):
            report = docs.add_texts({"note": "green tea"})
        assert (report.added, report.repaired) == (("note",), ("line by default",))
        assert sorted(split.hits(docs)) == sorted([*before, "green tea"])


def test_lost_nodes_are_loaded_again(split):
    """Files are read again; what was added as text has no source, and that is said."""
    with split.open() as docs:
        before = split.hits(docs)
        docs.add_texts({"note": "tea for two"})
    remove(split.root / "nodes.db")
    with split.open() as docs:
        with pytest.warns(IngestionWarning, match="problems remain.*note"):
            assert docs.sync().repaired
        assert split.hits(docs) == before
        [left] = [
            problem for problem in docs.maintenance.repair() if problem.where == "lazyllm_root"
        ]
        assert (left.kind, left.document) == ("missing", "note")
        assert docs.maintenance.repair() == docs.maintenance.verify() != ()


@pytest.mark.parametrize("method", ["count", "search"])
def test_an_unreadable_collection_is_rebuilt(local, tmp_path, method):
    """Whatever of it shows the damage first."""
    place = Place(tmp_path, {"type": "local test", "kwargs": {"path": str(tmp_path / "vectors")}})
    with place.open() as docs:
        before = place.hits(docs)
    local.failure[method] = StoreDamagedError("The graph is torn.")
    with place.open() as docs:
        with pytest.warns(IngestionWarning, match="torn"):
            assert docs.sync().repaired == ("line by default",)
        assert place.hits(docs) == before
        assert docs.maintenance.repair() == ()


def test_an_unreadable_store_is_set_aside(local, tmp_path):
    """It is renamed, not deleted, and an empty one takes its place; a reader leaves it alone."""
    place = Place(tmp_path, {"type": "local test", "kwargs": {"path": str(tmp_path / "vectors")}})
    with place.open() as docs:
        before = place.hits(docs)
    local.failure["open"] = StoreDamagedError("The database is torn.")
    with pytest.raises(StoreDamagedError, match="torn"):
        place.open(read_only=True)
    local.contents[str(tmp_path / "vectors")] = {}
    with pytest.warns(IngestionWarning, match=r"vectors\.damaged-"):
        docs = place.open()
    with docs, pytest.warns(IngestionWarning, match="rebuilt line by default"):
        assert place.hits(docs) == before
    assert len(list(tmp_path.glob("vectors.damaged-*"))) == 1


@pytest.fixture
def torn(local, tmp_path, monkeypatch):
    """A place whose writer was ended, and the marks that it left; its boot is "first"."""
    monkeypatch.setattr("lazyrag.storage.arrays.boot_id", lambda: "first")
    place, marks = (
        Place(tmp_path, {"type": "local test", "kwargs": {"path": str(tmp_path / "vectors")}}),
        set(),
    )

    def upsert(store: LocalStore, *given: object) -> None:
        marks.update(tmp_path.glob("vectors.unflushed-*"))
        MapVectorStore.upsert(store, *given)

    monkeypatch.setattr(local, "upsert", upsert)
    with place.open() as docs:
        place.hits(docs)
    assert len(marks) == 1
    assert not any(path.exists() for path in marks)  # the end of a write flushes
    for path in marks:
        path.touch()
    return place


def test_a_store_is_rebuilt_after_a_power_cut(torn, local, tmp_path, monkeypatch):
    """What it had not flushed may be torn in ways that no check finds: readers refuse it, a writer
    rebuilds it.
    """
    monkeypatch.setattr("lazyrag.storage.arrays.boot_id", lambda: "second")
    with pytest.raises(StoreDamagedError, match=r"power cut.*read_only"):
        torn.open(read_only=True)
    local.contents[str(tmp_path / "vectors")] = {}
    with pytest.warns(IngestionWarning, match="power cut"):
        docs = torn.open()
    with docs, pytest.warns(IngestionWarning, match="rebuilt line by default"):
        assert len(torn.hits(docs)) == 4
    with torn.open(read_only=True) as docs:
        assert len(torn.hits(docs)) == 4


def test_only_one_program_sets_a_store_aside_after_a_power_cut(torn, local, tmp_path, monkeypatch):
    """One that starts meanwhile waits, and opens the empty store that takes its place."""
    monkeypatch.setattr("lazyrag.storage.arrays.boot_id", lambda: "second")
    local.contents[str(tmp_path / "vectors")] = {}
    began = threading.Event()

    def set_aside_slowly(*given: object) -> None:
        began.set()
        time.sleep(0.5)
        set_aside(*given)

    monkeypatch.setattr("lazyrag.stores.config.set_aside", set_aside_slowly)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(torn.open)
        assert began.wait(60)
        second = pool.submit(torn.open)
        with pytest.warns(IngestionWarning, match="power cut"):
            first.result().close()
        second.result().close()
    assert len(list(tmp_path.glob("vectors.damaged-*"))) == 1


def test_a_kill_is_no_power_cut(torn):
    """What was written reaches the disk without its program; nothing is rebuilt."""
    with torn.open() as docs:
        assert docs.sync().repaired == ()
        assert len(torn.hits(docs)) == 4


def test_an_unchanged_sync_flushes_nothing(torn, monkeypatch):
    """Only a write that changes vectors does."""
    flushes = []
    monkeypatch.setattr("lazyrag.storage.arrays.sync_folder", flushes.append)
    with torn.open() as docs:
        docs.activate_group("line")
        for _ in range(2):
            docs.sync()
        assert flushes == []
        docs.add_texts({"note": "green tea"})
        assert flushes != []
        torn.hits(docs)


def test_a_later_write_removes_the_marks_of_killed_programs(torn, tmp_path, monkeypatch):
    """It flushes all that they wrote, so a reboot after it discards nothing; marks of running
    writers stay.
    """
    running = tmp_path / "vectors.unflushed-first-running"
    with running.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with torn.open() as docs:
            docs.add_texts({"note": "green tea"})
            torn.hits(docs)
        assert list(tmp_path.glob("vectors.unflushed-*")) == [running]
    running.unlink()
    monkeypatch.setattr("lazyrag.storage.arrays.boot_id", lambda: "second")
    with torn.open(read_only=True) as docs:
        assert len(torn.hits(docs)) == 5


def test_an_unfinished_index_that_was_lost(local, tmp_path):
    """The first build was ended, and its collection is gone: the next query builds it anew."""
    place = Place(tmp_path, {"type": "local test", "kwargs": {"path": str(tmp_path / "vectors")}})

    class EndedError(BaseException):
        pass

    def end(ledger: Ledger, groups: list[int], indexes: list[int], *rest: Any) -> None:
        if indexes:
            raise EndedError
        switch(ledger, groups, indexes, *rest)

    switch = Ledger.switch
    with pytest.MonkeyPatch.context() as patch, place.open() as docs:
        patch.setattr("lazyrag.ledger.ledger.Ledger.switch", end)
        with pytest.raises(EndedError):
            place.hits(docs)
    local.contents[str(tmp_path / "vectors")] = {}
    with place.open() as docs:
        assert len(place.hits(docs)) == 4
        assert docs.maintenance.verify() == ()


@pytest.mark.parametrize("shared", [False, True])
def test_an_outage_is_not_damage(local, tmp_path, shared):
    """A store that cannot be reached keeps what it has."""
    place = Place(
        tmp_path,
        {"type": "local test", "kwargs": {"path": str(tmp_path / "vectors"), "shared": shared}},
    )
    with place.open() as docs:
        before = place.hits(docs)
        local.failure["count"] = StoreConnectionError("refused")
        local.failure["drop"] = AssertionError("nothing may be dropped")
        assert docs.sync().repaired == ()
        local.failure.clear()
        assert place.hits(docs) == before


@pytest.mark.slow
def test_a_store_that_ends_programs_is_set_aside(local, tmp_path):
    """Native code may abort the process: after two that ended while they read the store, the third
    rebuilds it.
    """
    place = Place(tmp_path, {"type": "local test", "kwargs": {"path": str(tmp_path / "vectors")}})
    with place.open() as docs:
        before = place.hits(docs)
    (tmp_path / "ledger.db.checking").write_bytes(b"..")
    local.contents[str(tmp_path / "vectors")] = {}
    with place.open() as docs:
        with (
            pytest.warns(IngestionWarning, match="rebuilt"),
            pytest.warns(IngestionWarning, match="2 programs ended"),
        ):
            assert docs.sync().repaired == ("line by default",)
        assert place.hits(docs) == before
    assert not (tmp_path / "ledger.db.checking").exists()
