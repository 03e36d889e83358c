"""However a Document came to its files and definitions, it holds what a fresh one would hold."""

from __future__ import annotations

import os
import random
import threading
from contextlib import suppress

import pytest

from lazyrag import DataType, DocField, Document, IngestionWarning, Retriever, register_loader
from lazyrag.errors import ConfigError, StoreError
from lazyrag.maintain import export as transfer


def stored(tmp_path, name="store.db"):
    """A store_conf in a file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / name)}}}


def embed(text):
    """A vector for a text."""
    return [float(len(text)), float(text.count("e")), 1.0]


def content(docs):
    """Documents and nodes as the canonical dump has them, without what was indexed when."""
    return [
        line
        for line in docs.maintenance.dump()
        if '"is": "node"' in line or '"is": "document"' in line
    ]


def found(docs, group):
    """How many nodes of a group a search by vectors and one by terms find."""
    return [
        sorted(hit.text for hit in Retriever(docs, group, similarity, topk=100)("tea"))
        for similarity in ("cosine", "bm25")
    ]


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_transform_that_reads_what_stands_above_its_parents(folder, tmp_path, where):
    """A change further up that only the root's text shows, is seen by a transform on nodes of a
    lower group.
    """
    root = folder({"a.txt": "head\nbody one", "b.txt": "zzz\nyyy"})
    with Document(root, store_conf=stored(tmp_path) if where == "file" else None) as docs:
        docs.create_node_group("head", transform=lambda text: text.splitlines()[0])
        docs.create_node_group(
            "whole", transform=lambda node: node.parent.text, parent="head", trans_node=True
        )
        assert [node.text for node in docs.get_nodes("whole")] == ["head\nbody one", "zzz\nyyy"]
        (root / "a.txt").write_text("head\nbody two", encoding="utf-8")
        docs.sync()
        assert [node.text for node in docs.get_nodes("whole")] == ["head\nbody two", "zzz\nyyy"]
        assert docs.maintenance.verify() == ()


def test_spans_of_nodes_whose_parents_have_moved(folder):
    """A node that is taken over where only the text before its parent has changed, stands where its
    text does.
    """
    root = folder({"a.txt": "P one. P two.\n\nQ one. Q two."})
    with Document(root) as docs:
        docs.create_node_group(
            "paragraph",
            transform=lambda text: [part for part in text.split("\n\n") if part.strip()],
        )
        docs.create_node_group(
            "sentence",
            transform="SentenceSplitter",
            parent="paragraph",
            chunk_size=3,
            chunk_overlap=0,
        )
        docs.get_nodes("sentence")
        (root / "a.txt").write_text("P one. P two.\n\n\n\n\nQ one. Q two.", encoding="utf-8")
        docs.sync()
        nodes = docs.get_nodes("sentence")
        assert len(nodes) > 1
        for node in nodes:
            start, end = node.span
            assert node.source.text[start:end] == node.text


def test_a_definition_that_comes_back(folder, tmp_path):
    """A group redefined, and again as it was, has everything that came in meanwhile, in nodes and
    in both indexes.
    """
    root = folder({"a.txt": "green tea leaves"})
    with Document(root, embed=embed, store_conf=stored(tmp_path)) as docs:
        for transform in (str.split, str.upper, str.split):
            docs.create_node_group("word", transform=transform, replace=True)
            docs.add_texts({f"text of {transform.__name__}": "black tea"})
            assert found(docs, "word")[0] == sorted(node.text for node in docs.get_nodes("word"))
            assert docs.maintenance.verify() == ()
        assert len(docs.get_nodes("word")) == 7


def test_other_fields_and_the_first_ones_again(folder, tmp_path):
    """Programs with other doc_fields, one after the other: each finds all documents."""
    root = folder({"a.txt": "green tea"})
    for number, fields in enumerate((None, {"year": DocField(DataType.INT32)}, None)):
        with Document(root, embed=embed, store_conf=stored(tmp_path), doc_fields=fields) as docs:
            docs.add_texts({f"text {number}": "black tea"})
            assert len(found(docs, "FineChunk")[0]) == number + 2


class Life:
    """A Document in a file, to which things happen."""

    definitions = {"A": str.splitlines, "B": str.split}

    def __init__(self, tmp_path, seed):
        """Begin with nothing."""
        self.location = tmp_path
        self.root = tmp_path / "files"
        self.root.mkdir()
        self.chance = random.Random(seed)
        self.choice, self.fields = "A", None
        self.docs = self.opened("store.db")

    def opened(self, name):
        """A Document on a store, by the present definitions."""
        docs = Document(
            self.root, embed=embed, store_conf=stored(self.location, name), doc_fields=self.fields
        )
        docs.create_node_group("part", transform=self.definitions[self.choice])
        docs.create_node_group(
            "letter", transform=lambda text: sorted(set(text))[:2], parent="part"
        )
        return docs

    def edit(self, turn):
        """A file is written."""
        (self.root / f"{self.chance.randrange(4)}.txt").write_text(
            f"tea {turn}\nmilk", encoding="utf-8"
        )

    def delete(self, _turn):
        """A file goes."""
        for path in self.chance.sample(
            sorted(self.root.iterdir()), min(1, len(list(self.root.iterdir())))
        ):
            path.unlink()

    def move(self, _turn):
        """A file goes elsewhere."""
        for path in self.chance.sample(
            sorted(self.root.iterdir()), min(1, len(list(self.root.iterdir())))
        ):
            path.replace(self.root / f"{self.chance.randrange(4, 8)}.txt")

    def redefine(self, _turn):
        """The upper group gets the other definition."""
        self.choice = "B" if self.choice == "A" else "A"
        self.docs.create_node_group("part", transform=self.definitions[self.choice], replace=True)

    def restart(self, _turn):
        """The program ends, and another one begins."""
        self.docs.close()
        self.docs = self.opened("store.db")

    def change_fields(self, turn):
        """The next program declares other fields."""
        self.fields = None if self.fields else {"year": DocField(DataType.INT32)}
        self.restart(turn)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(4))
def test_random_work_gives_what_a_fresh_document_has(tmp_path, seed):
    """Edits, additions, deletions, moves, redefinitions, other fields and restarts in any order."""
    life = Life(tmp_path, seed)
    for turn in range(14):
        happens = [
            life.edit,
            life.edit,
            life.delete,
            life.move,
            life.redefine,
            life.restart,
            life.change_fields,
        ]
        life.chance.choice(happens)(turn)
        life.docs.sync(max_deleted=1)
        if any(life.root.iterdir()):
            found(life.docs, "letter")
    with life.docs as docs, life.opened("fresh.db") as fresh:
        for one in (docs, fresh):
            one.get_nodes("letter")
        assert content(docs) == content(fresh)
        assert not any(life.root.iterdir()) or found(docs, "letter") == found(fresh, "letter")
        assert docs.maintenance.verify() == ()


def test_a_file_that_is_another_while_it_is_loaded(folder):
    """What was read in between is not kept, though the file is as it was again, with the same
    times.
    """
    root = folder({"a.flux": "version A"})
    path = root / "a.flux"
    before = path.stat()
    turns = []

    @register_loader(".flux")
    class Flux:
        """The first time, the file is another one while it is read."""

        def load(self, path):
            """The text at that moment."""
            turns.append(path)
            if len(turns) == 1:
                return "version B"
            return path.read_text(encoding="utf-8")

    def restore():
        path.write_text("version A", encoding="utf-8")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))

    with Document(root) as docs:
        register_loader(".flux", replace=True)(
            type(
                "Renewing",
                (Flux,),
                {"load": lambda self, path: (restore(), Flux.load(self, path))[1]},
            )
        )
        docs.get_nodes()
        docs.sync()
        assert [node.text for node in docs.get_nodes()] == ["version A"]


def test_a_moved_file_whose_transform_fails(folder):
    """What was live of it stays, under its old path, until it can be made under the new one."""
    root = folder({"x/a.txt": "alpha", "b.txt": "beta"})
    bad = ["y/"]

    def named(node):
        if any(node.path.startswith(one) for one in bad):
            msg = "cannot"
            raise ValueError(msg)
        return node.text.upper()

    with Document(root, file_metadata=lambda path: {"folder": path.parent.name}) as docs:
        docs.create_node_group("upper", transform=named, trans_node=True)
        docs.get_nodes("upper")
        (root / "y").mkdir()
        (root / "x/a.txt").rename(root / "y/a.txt")
        with pytest.warns(IngestionWarning, match=r"y/a\.txt"):
            docs.sync()
        assert [node.text for node in docs.get_nodes("upper")] == ["BETA", "ALPHA"]
        bad.clear()
        docs.sync()
        assert sorted(node.path for node in docs.get_nodes("upper")) == ["b.txt", "y/a.txt"]


def test_a_text_under_the_name_of_a_deleted_file(folder, tmp_path):
    """It has none of the file's metadata; and a file under the name of a deleted text is read."""
    root = folder({"b.txt": "b"})
    (tmp_path / "note.md").write_text("# Secret title\n\ntext", encoding="utf-8")
    with Document(root, store_conf=stored(tmp_path)) as docs:
        docs.add_files({"x": tmp_path / "note.md"}, {"x": {"who": "me"}})
        docs.delete_files(["x"])
        docs.add_texts({"x": "a text", "c.txt": "a text"})
        [node] = docs.get_nodes(uids=[node.uid for node in docs.get_nodes() if node.path == "x"])
        assert set(node.metadata) == set(docs.reader.fields)
        docs.delete_files(["c.txt"])
        (root / "c.txt").write_text("a file", encoding="utf-8")
        assert docs.sync().added == ("c.txt",)


def test_a_file_under_the_name_of_a_text(folder):
    """It is passed over, and the report says why."""
    root = folder({"b.txt": "b"})
    with Document(root) as docs:
        docs.add_texts({"c.txt": "a text"})
        (root / "c.txt").write_text("a file", encoding="utf-8")
        report = docs.sync()
        assert report.skipped == (
            ("c.txt", "its name is that of a document that was added singly"),
        )
        assert [node.text for node in docs.get_nodes() if node.path == "c.txt"] == ["a text"]


def test_a_store_inside_of_the_dataset(folder):
    """Its files are none of the dataset's."""
    root = folder({"a.txt": "tea"})
    with Document(root, embed=embed, store_conf=stored(root)) as docs:
        found(docs, "FineChunk")
        report = docs.sync()
        assert report.failed == ()
        assert {reason for _, reason in report.skipped} == {"the store's own file"}


def test_an_import_is_all_or_nothing(folder, tmp_path, monkeypatch):
    """One that stops in the middle shows nothing, and can be done again; array fields can be
    filtered by after it.
    """
    fields = {"tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}
    with Document(embed=embed, doc_fields=fields) as docs:
        docs.add_texts(
            {f"{number}": f"tea {number}" for number in range(5)}, {"3": {"tags": ["x"]}}
        )
        found(docs, "FineChunk")
        docs.maintenance.export(tmp_path / "out")
        told = content(docs)
    monkeypatch.setattr(transfer, "BATCH_ROWS", 2)
    upserts = []
    with Document(embed=embed, doc_fields=fields, store_conf=stored(tmp_path)) as other:
        segments = type(other.reader.indexer.nodes.segments)

        def upsert(self, collection, rows, real=segments.upsert):
            upserts.append(collection)
            if len(upserts) == 3:
                msg = "no space left"
                raise StoreError(msg)
            real(self, collection, rows)

        monkeypatch.setattr(segments, "upsert", upsert)
        with pytest.raises(StoreError, match="no space left"):
            other.maintenance.import_from(tmp_path / "out")
        assert content(other) == []
        monkeypatch.undo()
        assert other.maintenance.import_from(tmp_path / "out") == 5
        assert content(other) == told
        assert other.maintenance.verify() == ()
    with Document(embed=embed, doc_fields=fields) as other:
        other.maintenance.import_from(tmp_path / "out")
        hits = Retriever(other, "FineChunk", similarity="cosine")("tea", filters={"tags": ["x"]})
        assert [hit.text for hit in hits] == ["tea 3"]


def test_a_transform_that_asks_for_what_nobody_has_built(folder):
    """Where several threads build, it gets an error that says what to do, instead of waiting for
    ever.
    """
    root = folder({f"{number}.txt": f"text {number}" for number in range(8)})
    started = threading.Barrier(1)

    def asking(text):
        started.wait()
        threading.Event().wait(0.02)
        if text == "text 5":
            docs.get_nodes("FineChunk")
        return text

    docs = Document(root, workers=2)
    docs.create_node_group("asking", transform=asking)
    with pytest.warns(IngestionWarning, match=r"activate_group\('FineChunk'\)"):
        assert len(docs.get_nodes("asking")) == 7
    docs.activate_group("FineChunk")
    assert docs.sync().failed == ()
    assert len(docs.get_nodes("asking")) == 8


def test_closing_twice_and_while_another_thread_builds(folder, tmp_path):
    """The second close changes nothing; the first one waits, and leaves no lease behind."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(text):
        begun.set()
        go_on.wait(60)
        return text

    docs = Document(folder({"a.txt": "tea"}), store_conf=stored(tmp_path))
    docs.create_node_group("slow", transform=slow)

    def ask():
        with suppress(StoreError):  # the nodes are built; to read them it may be too late
            docs.get_nodes("slow")

    building = threading.Thread(target=ask)
    building.start()
    begun.wait(60)
    closing = threading.Thread(target=docs.close)
    closing.start()
    go_on.set()
    closing.join(60)
    building.join(60)
    docs.close()
    with Document(store_conf=stored(tmp_path)) as other:
        assert other.status().writer == ""
        other.add_texts({"x": "milk"})


def test_rows_of_deleted_documents_go(tmp_path):
    """A hundred documents that came and went leave no row, and a reader that saw them sees them
    go.
    """
    with Document(store_conf=stored(tmp_path)) as docs:
        docs.add_texts({"stays": "tea"})
        docs.get_nodes()
        with Document(store_conf=stored(tmp_path), read_only=True) as reader:
            for number in range(20):
                docs.add_texts({f"{number}": "milk"})
                assert len(reader.get_nodes()) == 2
                docs.delete_files([f"{number}"])
            docs.reader.indexer.options = type(docs.reader.indexer.options)(grace_s=0.0)
            docs.sync()
            assert [
                row.identity for row in docs.reader.indexer.ledger.documents.all().values()
            ] == ["stays"]
            assert [node.path for node in reader.get_nodes()] == ["stays"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda docs: docs.update_metadata({3: {}}), "A key of metadata must be"),
        (lambda docs: docs.delete_files([3]), "paths relative to the dataset, or ids"),
        (lambda docs: docs.maintenance.export(None), "folder must be the path"),
        (lambda docs: docs.maintenance.import_from(3), "folder must be the path"),
        (lambda docs: docs.sync(max_deleted="half"), "max_deleted must be"),
        (lambda docs: docs.plan(max_deleted=True), "max_deleted must be"),
        (lambda docs: docs.sync(wait_s=-1), "wait_s must be"),
        (lambda docs: docs.plan(max_delete=1), "max_delete"),
    ],
)
def test_wrong_arguments(call, said):
    """The error says what was given and what is allowed."""
    with Document() as docs, pytest.raises(ConfigError, match=said):
        call(docs)
