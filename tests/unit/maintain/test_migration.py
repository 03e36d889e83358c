"""migrate(): Documents copied to other stores, as they are."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from lazyrag import DataType, DocField, Document, Retriever, migrate
from lazyrag.errors import ConfigError, StoreBusyError, StoreError, UnsupportedError
from lazyrag.ledger.lease import LedgerConnection
from lazyrag.storage.database import FileFormat
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import segment_stores, vector_stores
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.tables import STORE_FORMAT
from tests.interpreter import python

# The source has a file that fails, which every program that opens it is told.
pytestmark = pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")

FIELDS = {
    "author": DocField(DataType.VARCHAR, max_size=64, default_value=" "),
    "year": DocField(DataType.INT32),
    "tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
}
TEXTS = {
    f"{number}.md": f"绿茶 {number}\ngreen tea {number % 5}\nblack {number % 3} tea"
    for number in range(40)
}
METADATA = {
    "1.md": {"author": "陆羽", "year": 780},
    "2.md": {"tags": ["a", "b'"], "odd": {"x": [1, None]}},
}


def conf(folder, name, **parts):
    """A store file of that name."""
    return {
        "segment_store": {"type": "map", "kwargs": {"uri": str(folder / f"{name}.db")}},
        **parts,
    }


class Letters:
    """A small model that counts what it embeds."""

    identity = "letters/1"
    probe = False
    texts = 0

    def __call__(self, text):
        """How often characters of 16 kinds occur."""
        type(self).texts += 1
        vector = [0.1] * 16
        for character in text:
            vector[ord(character) % 16] += 1.0
        return vector


class Weights:
    """A sparse one."""

    identity = "weights/1"

    def __call__(self, text):
        """A weight for each kind of character."""
        return {ord(character) % 50: 1.0 + ord(character) % 3 for character in text}


@pytest.fixture(autouse=True)
def _count_anew():
    Letters.texts = 0


def opened(store_conf, files, **kwargs):
    """The Document over the files."""
    docs = Document(
        files,
        embed={"dense": Letters(), "sparse": Weights()},
        doc_fields=FIELDS,
        file_metadata=METADATA,
        store_conf=store_conf,
        **kwargs,
    )
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def answers(docs):
    """By terms, by vectors of both kinds, under filters."""
    found = []
    for similarity, kwargs in (
        ("bm25_chinese", {}),
        ("cosine", {"embed_keys": ["dense"]}),
        (None, {"embed_keys": ["sparse"]}),
    ):
        asked = {"similarity": similarity} if similarity else {}
        retriever = Retriever(docs, "line", topk=7, **asked, **kwargs)
        for wanted in (None, {"author": ["陆羽"]}, {"tags": ["b'"]}):
            hits = retriever("green tea 绿", filters=wanted)
            found += [(node.uid, node.score) for node in hits]
    return found


@pytest.fixture
def files(tmp_path):
    """A folder of files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def source(tmp_path, files):
    """A Document's store_conf: built, asked, edited, with a failure and a version."""
    store_conf = conf(tmp_path, "source")
    with opened(store_conf, files, keep_versions=1) as docs:
        answers(docs)
        (files / "3.md").write_text("白茶\nwhite tea", encoding="utf-8")
        (files / "4.md").unlink()
        (files / "broken.pdf").write_bytes(b"%PDF- no")
        docs.sync()
        answers(docs)
    return store_conf


TARGETS = {
    "a store file": lambda folder: conf(folder, "target"),
    "vectors in a file of their own": lambda folder: conf(
        folder,
        "target",
        vector_store={"type": "map", "kwargs": {"uri": str(folder / "vectors.db")}},
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_a_document_is_there_as_it_was_here(source, files, tmp_path, target):
    """Answers, filters, versions and failures are those of the source; nothing is loaded or
    embedded; both go on.
    """
    target = target(tmp_path)
    with opened(source, files) as docs:
        expected, dump, failed, versions = (
            answers(docs),
            list(docs.maintenance.dump()),
            docs.status().failed,
            docs.versions.list("3.md"),
        )
    told = migrate(source, target)
    assert (told.names, told.present) == (("default",), 0)
    assert told.segments > len(TEXTS)
    Letters.texts = 0
    with opened(target, files, keep_versions=1) as docs:
        assert (
            list(docs.maintenance.dump()),
            docs.status().failed,
            docs.versions.list("3.md"),
        ) == (
            dump,
            failed,
            versions,
        )
        assert docs.sync().unchanged
        assert answers(docs) == expected
        assert docs.maintenance.verify() == ()
        assert Letters.texts == 3  # the questions'
        docs.versions.rollback("3.md", version=versions[0].number)
        assert answers(docs) != expected
        (files / "5.md").write_text("红茶\nred tea", encoding="utf-8")
        assert docs.sync().updated
        assert docs.maintenance.verify() == ()
    with opened(source, files, read_only=True) as docs:
        assert answers(docs) == expected


@pytest.mark.slow
def test_every_interruption_is_taken_up_again(source, files, tmp_path):
    """Wherever it ends, the target refuses to open as a Document, and the next call writes only
    what is missing.
    """
    steps = []
    complete = migrate(source, conf(tmp_path, "complete"), on_progress=steps.append)
    assert len(steps) > 3

    class EndedError(Exception):
        """The program was ended here."""

    for last in range(len(steps)):
        target = conf(tmp_path, f"target {last}")
        left = iter(range(last))

        def count(_, left=left):
            if next(left, None) is None:
                raise EndedError

        with pytest.raises(EndedError):
            migrate(source, target, on_progress=count)
        with pytest.raises(
            StoreBusyError,
            match=r"'default' is being copied to .* by migrate\(\).* delete that file",
        ):
            Document(store_conf=target)
        told = migrate(source, target)
        assert (told.segments, told.vectors) == (complete.segments, complete.vectors)
        assert bool(told.present)  # at least the page after which it ended
    with opened(target, files) as docs, opened(source, files) as before:
        assert answers(docs) == answers(before)
        assert docs.maintenance.verify() == ()


def test_array_files_are_copied(tmp_path, monkeypatch):
    """Parts of a keyword index that lie in files: all of them are in the target's folder, and give
    the same hits.
    """
    monkeypatch.setattr("lazyrag.ingest.term_index._SMALL_BYTES", 0)
    old, new = conf(tmp_path, "old"), conf(tmp_path, "new")

    def hits(store_conf):
        with Document(store_conf=store_conf) as docs:
            return [node.uid for node in Retriever(docs, "FineChunk", "bm25", topk=9)("tea")]

    with Document(store_conf=old) as docs:
        docs.add_texts({f"{number}.md": f"tea {number}" for number in range(5)})
        Retriever(docs, "FineChunk", "bm25")("tea")
        docs.add_texts({"more.md": "more tea"})
    expected = hits(old)
    migrate(old, new)
    copied, files = (
        {path.name for path in (tmp_path / f"{name}.db.d").glob("*.arr")} for name in ("new", "old")
    )
    assert copied == files
    assert len(files) == 2
    shutil.rmtree(tmp_path / "old.db.d")
    assert hits(new) == expected
    assert len(expected) == 6


def test_a_copy_survives_a_power_cut_once_it_is_visible(tmp_path, monkeypatch):
    """The transaction that makes the Documents appear waits for the disk: migrate() reports success
    after it.
    """
    old, new = conf(tmp_path, "old"), conf(tmp_path, "new")
    with Document(store_conf=old) as docs:
        docs.add_texts({"a": "tea"})
    writing, is_durable = StoreFile.writing, []

    @contextmanager
    def observed(self, *, durable=False):
        with writing(self, durable=durable) as connection:
            yield connection
            if (
                self.path == tmp_path / "new.db"
                and connection.execute("SELECT count(*) FROM document").fetchone()[0]
            ):
                is_durable.append(durable)

    monkeypatch.setattr(StoreFile, "writing", observed)
    migrate(old, new)
    assert is_durable[:1] == [True]


@pytest.mark.slow
def test_the_source_may_change_between_two_calls(source, files, tmp_path):
    """What has gone from the source meanwhile goes from the target, what came comes."""
    target = conf(tmp_path, "target")

    def end(progress):
        raise InterruptedError(progress.what)

    with pytest.raises(InterruptedError):
        migrate(source, target, on_progress=end)
    with opened(source, files) as docs:
        (files / "7.md").unlink()
        (files / "8.md").write_text("黄茶", encoding="utf-8")
        docs.sync()
        expected = answers(docs)
    migrate(source, target)
    with opened(target, files) as docs:
        assert answers(docs) == expected
        assert docs.maintenance.verify() == ()


@pytest.mark.slow
def test_several_documents_come_together(tmp_path):
    """All names that the ledger has, or those that are asked for; each with its own nodes."""
    source = conf(tmp_path, "source")
    for name in ("one", "two", "三"):
        with Document(name=name, store_conf=source) as docs:
            docs.add_texts({"a": f"text of {name}"})
    told = migrate(source, conf(tmp_path, "all"))
    assert (told.names, told.segments, str(told)) == (
        ("one", "two", "三"),
        3,
        "one, two, 三: 3 segments, 0 vectors",
    )
    assert migrate(source, conf(tmp_path, "some"), names=["三", "one"]).names == ("one", "三")
    with Document(name="三", store_conf=conf(tmp_path, "some")) as docs:
        assert [node.text for node in docs.get_nodes()] == ["text of 三"]
    with Document(name="two", store_conf=conf(tmp_path, "some")) as docs:
        assert docs.get_nodes() == []


def test_on_one_server_both_have_collections_of_their_own(tmp_path):
    """Source and target may share a server: deleting in one takes nothing from the other."""
    server = MapSegmentStore()
    with segment_stores.isolated():
        segment_stores.register("server", lambda: server)
        confs = [
            {
                "segment_store": {"type": "server"},
                "vector_store": {
                    "type": "map",
                    "kwargs": {"uri": str(tmp_path / f"vectors-{number}.db")},
                },
                "ledger": str(tmp_path / f"ledger-{number}.db"),
            }
            for number in range(2)
        ]
        with Document(store_conf=confs[0], name="tea") as docs:
            docs.add_texts({"a": "green", "b": "black"})
        server.open()
        migrate(*confs)
        server.open()
        with Document(store_conf=confs[0], name="tea") as docs:
            docs.delete_files(["a", "b"])
            assert docs.get_nodes() == []
            server.open()
        with Document(store_conf=confs[1], name="tea") as docs:
            assert sorted(node.text for node in docs.get_nodes()) == ["black", "green"]
            assert docs.maintenance.verify() == ()


def test_a_store_that_keeps_something_else_is_found_out(tmp_path):
    """What comes back is compared: a server that cuts long texts fails the call, and names the
    collection.
    """

    class Cutting(MapSegmentStore):
        """It cuts."""

        def upsert(self, collection, rows):
            """The first three characters."""
            super().upsert(collection, [row._replace(content=row.content[:3]) for row in rows])

    source = conf(tmp_path, "source")
    with Document(store_conf=source) as docs:
        docs.add_texts({"a": "green", "b": "tea"})
    with segment_stores.isolated():
        segment_stores.register("cutting", Cutting)
        target = {
            "segment_store": {"type": "cutting"},
            "vector_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "vectors.db")}},
            "ledger": str(tmp_path / "ledger.db"),
        }
        with pytest.raises(
            StoreError,
            match=r"Cutting does not return what was written to it: 1 rows of 'lr_default",
        ):
            migrate(source, target)


@pytest.mark.slow
def test_nobody_writes_meanwhile(source, files, tmp_path):
    """The source cannot be written, and can be read; a second copy to the same place is refused."""
    target = conf(tmp_path, "target")
    seen = []

    def meanwhile(progress):
        if seen:
            return
        seen.append(progress)
        with opened(source, files, read_only=True) as docs:
            assert len(docs.get_nodes()) == len(TEXTS) - 1
        with pytest.raises(StoreBusyError, match="is being written by"):
            opened(source, files).sync(wait_s=0)
        with closing(StoreFile(tmp_path / "target.db")) as file, pytest.raises(StoreBusyError):
            LedgerConnection(file, "default", copies=True).lease.held().__enter__()

    migrate(source, target, on_progress=meanwhile)
    assert seen[0].what == "copy lazyllm_root of default"


WRONG = {
    "nowhere": (
        lambda _: {},
        lambda at: conf(at, "new"),
        ConfigError,
        "source_conf describes a Document in memory",
    ),
    "to nowhere": (
        lambda at: conf(at, "old"),
        lambda _: {},
        ConfigError,
        "target_conf describes a Document in memory",
    ),
    "the same": (
        lambda at: conf(at, "old"),
        lambda at: conf(at, "old"),
        ConfigError,
        "have the same ledger",
    ),
    "a number": (
        lambda _: 3,
        lambda at: conf(at, "new"),
        ConfigError,
        "source_conf must be the store_conf of a Document: a path, a URL or a mapping; got 3",
    ),
    "half of it": (
        lambda at: conf(
            at, "old", vector_store={"type": "map", "kwargs": {"uri": str(at / "vectrs.db")}}
        ),
        lambda at: conf(at, "new"),
        ConfigError,
        "vectrs.db, which does not exist",
    ),
    "another way": (
        lambda at: conf(at, "old"),
        lambda at: conf(at / ".." / at.name, "old"),
        ConfigError,
        "same ledger",
    ),
    "not there": (
        lambda at: conf(at, "none"),
        lambda at: conf(at, "new"),
        ConfigError,
        "source_conf refers to .*none.db, which does not exist",
    ),
    "taken": (
        lambda at: conf(at, "old"),
        lambda at: conf(at, "taken"),
        StoreError,
        "holds the Document 'other'",
    ),
}


def test_a_path_is_a_configuration(tmp_path):
    """As for `Document`, a path is short for a map store there."""
    old = tmp_path / "old.db"
    new = tmp_path / "new.db"
    with Document(store_conf=old) as docs:
        docs.add_texts({"tea": "Green tea."})
    migrate(str(old), new)
    with Document(store_conf=new) as docs:
        assert docs.read("tea") == "Green tea."


@pytest.mark.sample(3)
@pytest.mark.parametrize(("old", "new", "kind", "told"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_copied_is_refused(tmp_path, old, new, kind, told):
    """The error says why, and no file is made."""
    for name, docs_name in (("old", "tea"), ("taken", "other")):
        with Document(store_conf=conf(tmp_path, name), name=docs_name) as docs:
            docs.add_texts({"a": "tea"})
    before = sorted(tmp_path.iterdir())
    with pytest.raises(kind, match=told):
        migrate(old(tmp_path), new(tmp_path))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["te"], r"contains no Document 'te'.*tea"),
        ("tea", "names must be a list"),
        ([], "names must be a list"),
        (5, "names must be a list"),
    ],
)
def test_names_that_are_not_there(tmp_path, names, told):
    """The error names those that are."""
    with Document(store_conf=conf(tmp_path, "old"), name="tea") as docs:
        docs.add_texts({"a": "tea"})
    with pytest.raises(ConfigError, match=told):
        migrate(conf(tmp_path, "old"), conf(tmp_path, "new"), names=names)


def test_a_call_that_comes_second_changes_nothing(tmp_path):
    """It waits for the first one, and finds a complete copy; what was added since stays."""
    old, new = conf(tmp_path, "old"), conf(tmp_path, "new")
    with Document(store_conf=old) as docs:
        docs.add_texts({"a": "tea"})
    begun, second = threading.Event(), []

    def wait():
        begun.set()
        second.append(migrate(old, new))

    thread = threading.Thread(target=wait)

    def meanwhile(_):
        if not thread.is_alive():
            thread.start()
            begun.wait()

    first = migrate(old, new, on_progress=meanwhile)
    thread.join()
    assert second == [replace(first, present=1)]
    with Document(store_conf=new) as docs:
        docs.add_texts({"b": "coffee"})
        with pytest.raises(
            StoreError, match="holds a complete copy of Document 'default' already, and one of them"
        ):
            migrate(old, new)
        assert sorted(node.text for node in docs.get_nodes()) == ["coffee", "tea"]
        assert docs.maintenance.verify() == ()


CUTS = [
    ("lazyrag.maintain.migration", "_copy_cache", "before"),
    ("lazyrag.maintain.migration", "begin_copies", "after"),
    ("lazyrag.maintain.migration", "copy_array_files", "after"),
    ("lazyrag.maintain.migration", "copy_ledgers", "before"),
    ("lazyrag.maintain.migration", "copy_ledgers", "after"),
    ("lazyrag.stores.sqlite", "MapFileSegmentStore.upsert", "after"),
    ("lazyrag.stores.sqlite_vectors", "MapFileVectorStore.create", "after"),
    ("lazyrag.stores.sqlite_vectors", "MapFileVectorStore.upsert", "before"),
    ("lazyrag.stores.sqlite_vectors", "MapFileVectorStore.upsert", "after"),
    ("sqlite3", "connect", "after"),
]
KILLED = """
import importlib, json, os, sys
from lazyrag import migrate
source, target, module, name, when = json.loads(sys.argv[1])
*path, name = name.split(".")
owner = importlib.import_module(module)
for part in path:
    owner = getattr(owner, part)
function = getattr(owner, name)
def ended(*args, **kwargs):
    if name == "connect" and "unfinished" not in str(args[0]):
        return function(*args, **kwargs)
    when == "before" and os._exit(9)
    function(*args, **kwargs)
    os._exit(9)
setattr(owner, name, ended)
migrate(source, target)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name", "when"), CUTS)
def test_a_killed_copy_to_three_files(tmp_path, module, name, when):
    """The same call again completes it, wherever the program was killed, also after the copy had
    become visible.
    """
    old, new = (
        conf(
            tmp_path,
            f"{side}-nodes",
            vector_store={"type": "map", "kwargs": {"uri": str(tmp_path / f"{side}-vectors.db")}},
            ledger=str(tmp_path / f"{side}.db"),
        )
        for side in ("old", "new")
    )

    def opened(store_conf):
        docs = Document(embed=Letters(), store_conf=store_conf)
        docs.create_node_group("line", transform=str.splitlines)
        return docs

    def found(docs):
        answers = [
            Retriever(docs, "line", similarity=one)("green tea") for one in ("bm25", "cosine")
        ]
        return list(docs.maintenance.dump()), [
            [(node.uid, node.score) for node in nodes] for nodes in answers
        ]

    with opened(old) as docs:
        docs.add_texts(TEXTS)
        expected = found(docs)
    run = python("-c", KILLED, json.dumps([old, new, module, name, when]))
    assert (run.returncode, run.stderr) == (9, "")
    report = migrate(old, new)
    assert (report, migrate(old, new).present) == (replace(report, segments=160, vectors=120), 280)
    Letters.texts = 0
    with opened(new) as docs:
        assert found(docs) == expected
        assert docs.maintenance.verify() == ()
        assert Letters.texts == 1  # the question, which the cache does not keep


@pytest.mark.slow
def test_rows_that_the_ledger_lists_are_all_there_or_the_call_fails(tmp_path):
    """A source_conf without its vector store, or a store that lost a row, is no success; the source
    stays as it is.
    """
    old = conf(
        tmp_path,
        "old",
        vector_store={"type": "map", "kwargs": {"uri": str(tmp_path / "vectors.db")}},
    )
    with Document(embed=Letters(), store_conf=old) as docs:
        docs.add_texts({"a": "tea", "b": "water"})
        docs.create_node_group("line", transform=str.splitlines)
        Retriever(docs, "line", similarity="cosine")("tea")
    with pytest.raises(StoreError, match=r"no collection 'lr_default_line"):
        migrate(conf(tmp_path, "old"), conf(tmp_path, "new"))
    with closing(sqlite3.connect(tmp_path / "old.db")) as plain, plain:
        assert plain.execute("SELECT count(*) FROM vector_collection").fetchone() == (0,)
        plain.execute("DELETE FROM segment WHERE content LIKE '%water%' AND parent IS NOT NULL")
    with pytest.raises(
        StoreError, match=r"has 0 rows of group 'line'.*lists 1.*verify\(\) and repair"
    ):
        migrate(old, conf(tmp_path, "newer"))
    with Document(embed=Letters(), store_conf=old) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.maintenance.repair()
    assert migrate(old, conf(tmp_path, "newer")).vectors == 2


def end(progress):
    """A program that ends while it copies."""
    raise InterruptedError(progress.what)


def test_nobody_writes_the_target_before_the_copy_is_complete(tmp_path):
    """A Document that was open before, one of another name, a copy of other ledgers: each is told
    why, and waits.
    """
    old, new, third = (conf(tmp_path, name) for name in ("old", "new", "third"))
    for store_conf, name in ((old, "default"), (old, "two"), (third, "default")):
        with Document(store_conf=store_conf, name=name) as docs:
            docs.add_texts({"a": "tea"})
    early = Document(store_conf=new)
    with pytest.raises(InterruptedError):
        migrate(old, new, names=["default"], on_progress=end)
    with pytest.raises(StoreBusyError, match="'default' is being copied"):
        early.add_texts({"mine": "coffee"})
    with (
        Document(store_conf=new, name="other") as docs,
        pytest.raises(StoreBusyError, match="'default' is being copied"),
    ):
        docs.add_texts({"mine": "coffee"})
    for source, names in ((old, ["two"]), (third, None)):
        with pytest.raises(
            StoreError, match="the beginning of another copy, of Document 'default'"
        ):
            migrate(source, new, names=names)
    migrate(old, new, names=["default"])
    early.add_texts({"mine": "coffee"})
    assert sorted(node.text for node in early.get_nodes()) == ["coffee", "tea"]
    early.close()
    with pytest.raises(StoreError, match="holds a complete copy of Document 'default' already"):
        migrate(old, new, names=["default"])


def test_what_the_target_cannot_keep_is_said_before_anything_is_copied(tmp_path):
    """Sparse vectors and a store that keeps none; and a Document can be opened there afterwards."""

    class Dense(MapVectorStore):
        """It keeps no sparse vectors."""

        features = frozenset({"exact"})

    old = conf(tmp_path, "old")
    with Document(embed={"sparse": Weights()}, store_conf=old) as docs:
        docs.add_texts({"a": "tea"})
        docs.create_node_group("line", transform=str.splitlines)
        Retriever(docs, "line", embed_keys=["sparse"])("tea")
    with vector_stores.isolated():
        vector_stores.register("dense", Dense)
        new = conf(tmp_path, "new", vector_store={"type": "dense"})
        with pytest.raises(
            UnsupportedError, match="'default' has sparse vectors, which Dense does not support"
        ):
            migrate(old, new)
        with Document(store_conf=new) as docs:
            assert docs.get_nodes() == []


def test_progress_must_be_a_function(tmp_path):
    """Said before the target is touched."""
    with Document(store_conf=conf(tmp_path, "old")) as docs:
        docs.add_texts({"a": "tea"})
    with pytest.raises(ConfigError, match=r"on_progress must be .* 'x'"):
        migrate(conf(tmp_path, "old"), conf(tmp_path, "new"), on_progress="x")


@pytest.mark.slow
def test_a_ledger_of_the_format_before(source, tmp_path, monkeypatch):
    """Its fields come from the store file when it is opened; where segments lie elsewhere, an error
    says what to do.
    """
    path = tmp_path / "old.db"
    monkeypatch.setattr(
        "lazyrag.stores.sqlite.STORE_FORMAT",
        FileFormat("store", STORE_FORMAT.application_id, STORE_FORMAT.migrations[:1], "."),
    )
    with closing(StoreFile(path)) as file, file.writing() as connection:
        connection.execute("INSERT INTO ledger (id, name) VALUES (1, 'tea')")
        connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('c', '{}')")
        for number, collection in enumerate("cd"):
            connection.execute(
                "INSERT INTO node_group (ledger, name, fingerprint, collection, status) VALUES (1, ?, 'f', ?, 'live')",
                (f"group {number}", collection),
            )
    monkeypatch.undo()
    with closing(StoreFile(path)) as file, file.reading() as connection:
        assert connection.execute("SELECT fields FROM node_group ORDER BY id").fetchall() == [
            ("{}",),
            ("",),
        ]
    with pytest.raises(ConfigError, match=r"did not store the fields of group 'group 1'.*sync\(\)"):
        migrate(conf(tmp_path, "old"), conf(tmp_path, "new"))
