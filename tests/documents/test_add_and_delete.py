"""Taking in single files and texts, letting go of them, and changing what their metadata say."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from lazyrag import DataType, DocField, Document, IngestionWarning, IngestReport, Retriever
from lazyrag.document import open as opening
from lazyrag.errors import ConfigError, DatasetPathError, LoadError, StoreError, TransformError
from tests.shelf import Shelf, asked

FILES = {
    "a.txt": "green tea\nblack tea",
    "sub/b.txt": "hot coffee\ncold milk",
    "c.txt": "still water\nred wine",
}
FIELDS = {"year": DocField(DataType.INT32), "kind": DocField(DataType.VARCHAR, max_size=20)}


class TwoShelves(Shelf):
    """One with fields, and another place for files beside its dataset."""

    def __init__(self, root, *, in_memory):
        """Write the files of the dataset."""
        super().__init__(root, FILES, in_memory=in_memory, doc_fields=FIELDS)
        self.elsewhere = root / "elsewhere"
        self.elsewhere.mkdir()

    def write_elsewhere(self, name, text):
        """Write a file that does not belong to the dataset."""
        path = self.elsewhere / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


@pytest.fixture(params=["in a file", "in memory"])
def shelf(request, tmp_path):
    """One that lies in a file, and one in memory."""
    return TwoShelves(tmp_path, in_memory=request.param == "in memory")


@pytest.fixture
def in_memory(tmp_path):
    """One in memory, for what does not depend on where it lies."""
    return TwoShelves(tmp_path, in_memory=True)


@pytest.fixture
def stored(tmp_path):
    """One that lies in a file."""
    return TwoShelves(tmp_path, in_memory=False)


def paths(docs, **arguments):
    """The documents that are live, or those that a filter lets through."""
    return [node.path for node in docs.get_nodes(**arguments)]


def found(docs, word):
    """The documents in which the lexical index has a word, in order of path."""
    return sorted(hit.path for hit in Retriever(docs, "line", similarity="bm25", topk=9)(word))


def nearest(docs, text):
    """The node whose vector is nearest."""
    [hit] = Retriever(docs, "line", topk=1)(text)
    return hit.text


def root_of(docs, path):
    """A document's root node."""
    [root] = [node for node in docs.get_nodes() if node.path == path]
    return root


def test_files_from_elsewhere(shelf):
    """They are searchable at once, under their file names, and no sync deletes them though they are
    not its files.
    """
    one, two = (
        shelf.write_elsewhere("one.txt", "rose hip"),
        shelf.write_elsewhere("two.txt", "lemon balm"),
    )
    with shelf.open() as docs:
        asked(docs)
        assert docs.add_files([one, str(two)]) == IngestReport(added=("one.txt", "two.txt"))
        assert found(docs, "rose") == ["one.txt"]
        assert nearest(docs, "lemon balm") == "lemon balm"
        for _ in range(2):
            assert docs.sync().unchanged == ("a.txt", "c.txt", "sub/b.txt")
            assert paths(docs) == ["a.txt", "c.txt", "one.txt", "sub/b.txt", "two.txt"]
        assert docs.maintenance.verify() == ()


def test_files_under_ids_of_ones_own(shelf):
    """A mapping gives ids, which stand where file names would; two files of one name need them."""
    (shelf.elsewhere / "deep").mkdir()
    one, two = (
        shelf.write_elsewhere("x.txt", "rose hip"),
        shelf.write_elsewhere("deep/x.txt", "lemon balm"),
    )
    with shelf.open() as docs:
        asked(docs)
        with pytest.raises(ConfigError, match=r"several files named 'x\.txt'"):
            docs.add_files([one, two])
        assert docs.add_files({"first": one, "second": two}).added == ("first", "second")
        assert found(docs, "rose") == ["first"]
        assert root_of(docs, "second").metadata["file_name"] == "x.txt"


def test_files_before_anything_was_asked(shelf):
    """A Document that was never used takes single files in as well, and still syncs at its first
    question.
    """
    with shelf.open() as docs:
        assert docs.add_files([shelf.write_elsewhere("one.txt", "rose hip")]).added == ("one.txt",)
        assert found(docs, "rose") == ["one.txt"]
        assert found(docs, "tea") == ["a.txt", "a.txt"]


def test_files_into_a_document_without_dataset(tmp_path):
    """An empty Document is filled by hand."""
    (tmp_path / "one.txt").write_text("rose hip\nlemon")
    docs = Document()
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    assert docs.add_files([tmp_path / "one.txt"]).added == ("one.txt",)
    assert [node.text for node in docs.get_nodes("line")] == ["rose hip", "lemon"]
    docs.sync()
    assert [node.text for node in docs.get_nodes("line")] == ["rose hip", "lemon"]


def test_a_file_of_the_dataset(shelf):
    """One that lies in the dataset's folder gets its place there, without the others being looked
    at.
    """
    with shelf.open() as docs:
        asked(docs)
        new, changed = shelf.write({"sub/new.txt": "rose hip", "a.txt": "white tea"})
        shelf.write({"c.txt": "not yet"})
        report = docs.add_files([new, changed])
        assert (report.added, report.updated) == (("sub/new.txt",), ("a.txt",))
        assert found(docs, "white") == ["a.txt"]
        assert found(docs, "yet") == []
        report = docs.sync()
        assert (report.added, report.updated) == ((), ("c.txt",))
        new.unlink()
        assert docs.sync().deleted == ("sub/new.txt",)


def test_a_hidden_file_of_the_folder(shelf):
    """It is not a file of the dataset: it keeps its id, and the next sync leaves it alone."""
    with shelf.open() as docs:
        [hidden] = shelf.write({".state/1f2e.txt": "rose hip"})
        report = docs.add_files({"rose.txt": hidden})
        assert report.added == ("rose.txt",)
        assert docs.sync().deleted == ()
        assert docs.documents(ids=["rose.txt"])[0].status == "SUCCESS"


def test_a_file_that_is_added_again(shelf):
    """Unchanged it costs no transform and no embedding; changed it takes its own place; a sync does
    not look at it.
    """
    path = shelf.write_elsewhere("one.txt", "rose hip")
    with shelf.open() as docs:
        asked(docs)
        docs.add_files([path])
        shelf.embed.calls.clear()
        shelf.transform.calls.clear()
        assert docs.add_files([path]) == IngestReport(unchanged=("one.txt",))
        assert (shelf.embed.calls, shelf.transform.calls) == ([], [])
        shelf.write_elsewhere("one.txt", "lemon balm")
        docs.sync()
        assert found(docs, "rose") == ["one.txt"]
        assert docs.add_files([path]) == IngestReport(updated=("one.txt",))
        assert (found(docs, "rose"), found(docs, "lemon")) == ([], ["one.txt"])


def test_a_broken_file_among_good_ones(shelf):
    """It is reported with the reason and one warning; the others are in; mended, it is taken in."""
    good, broken = (
        shelf.write_elsewhere("good.txt", "rose hip"),
        shelf.write_elsewhere("broken.txt", ""),
    )
    with shelf.open() as docs:
        asked(docs)
        with pytest.warns(IngestionWarning, match=r"broken\.txt \(load\)"):
            report = docs.add_files([good, broken])
        assert report.added == ("good.txt",)
        assert [(one.path, one.stage, type(one.error)) for one in report.failed] == [
            ("broken.txt", "load", LoadError)
        ]
        assert found(docs, "rose") == ["good.txt"]
        shelf.write_elsewhere("broken.txt", "mended")
        assert docs.add_files([broken]) == IngestReport(added=("broken.txt",))


def test_a_file_whose_transform_fails(shelf):
    """One that was there before stays as it was; a new one is reported with the step."""
    path = shelf.write_elsewhere("one.txt", "rose hip")
    with shelf.open() as docs:
        asked(docs)
        docs.add_files([path])
        shelf.transform.bad.append("spoilt")
        shelf.write_elsewhere("one.txt", "spoilt")
        with pytest.warns(IngestionWarning, match=r"one\.txt \(transform line\)"):
            report = docs.add_files([path])
        assert [(one.path, one.stage, type(one.error)) for one in report.failed] == [
            ("one.txt", "transform line", TransformError)
        ]
        assert report.updated == ()
        assert found(docs, "rose") == ["one.txt"]


def test_metadata_of_added_files(shelf):
    """They can be filtered by at once, and stay when the file is added again."""
    path = shelf.write_elsewhere("one.txt", "rose hip")
    with shelf.open() as docs:
        asked(docs)
        docs.add_files([path], metadata={"one.txt": {"year": 2024, "author": "Li"}})
        assert paths(docs, filters={"year": 2024}) == ["one.txt"]
        assert root_of(docs, "one.txt").metadata["author"] == "Li"
        shelf.write_elsewhere("one.txt", "lemon balm")
        docs.add_files([path])
        assert paths(docs, filters={"year": 2024}) == ["one.txt"]
        docs.add_files({"mine": path}, metadata={"mine": {"year": 1999}})
        assert paths(docs, filters={"year": 1999}) == ["mine"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"two.txt": {"year": 1}},
            r"metadata names 'two\.txt', which is not among the documents.*one\.txt",
        ),
        ({"one.txt": 7}, r"The metadata of 'one\.txt' must be a mapping.* 7"),
        ([("one.txt", {})], "metadata must be a mapping"),
        ({"one.txt": {"file_name": "x"}}, "'file_name', which is built in"),
        ({"one.txt": {"what": object()}}, "what"),
    ],
)
def test_metadata_that_are_none(in_memory, metadata, message):
    """They are refused before anything is taken in."""
    path = in_memory.write_elsewhere("one.txt", "rose hip")
    with in_memory.open() as docs:
        asked(docs)
        with pytest.raises(ConfigError, match=message):
            docs.add_files([path], metadata=metadata)
        assert "one.txt" not in paths(docs)


def test_a_value_that_does_not_fit_its_field(in_memory):
    """It fails its file, as it does in a sync."""
    with in_memory.open() as docs:
        asked(docs)
        with pytest.warns(IngestionWarning, match="year"):
            report = docs.add_texts({"note": "rose hip"}, metadata={"note": {"year": "last"}})
        assert [one.path for one in report.failed] == ["note"]
        assert "note" not in paths(docs)


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        (["nowhere.txt"], DatasetPathError, "does not exist"),
        ("one.txt", ConfigError, "files must be a list of paths"),
        (7, ConfigError, "files must be a list of paths"),
        ({" ": "x"}, ConfigError, "An id of files must be"),
        ([7], ConfigError, "files must be a path"),
    ],
)
def test_files_that_are_none(in_memory, files, error, message):
    """The message says what is needed, and nothing is taken in."""
    with in_memory.open() as docs:
        asked(docs)
        with pytest.raises(error, match=message):
            docs.add_files(files)
        assert len(paths(docs)) == 3


def test_a_folder_is_no_file(in_memory):
    """A folder is refused, with the place where one goes."""
    with in_memory.open() as docs, pytest.raises(ConfigError, match="contains a folder"):
        docs.add_files([in_memory.elsewhere])


def test_nothing_to_add(in_memory):
    """Empty lists and mappings do nothing."""
    with in_memory.open() as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
        assert docs.add_files([]) == docs.add_files({}) == docs.add_texts({}) == IngestReport()
        assert docs.delete_files([]) == docs.update_metadata({}) == IngestReport()
        assert list(docs.maintenance.dump()) == before


def test_texts(shelf):
    """A text is a document under its id: searchable, filterable, with the built-in fields; syncs
    leave it alone.
    """
    with shelf.open() as docs:
        asked(docs)
        report = docs.add_texts(
            {"note": "rose hip\nlemon", "茶": "绿茶"}, metadata={"note": {"year": 2024, "by": "Li"}}
        )
        assert report == IngestReport(added=("note", "茶"))
        assert found(docs, "rose") == ["note"]
        assert nearest(docs, "rose hip") == "rose hip"
        assert paths(docs, filters={"year": 2024}) == ["note"]
        root = root_of(docs, "note")
        assert (root.metadata["file_type"], root.metadata["file_name"], root.metadata["by"]) == (
            "text/plain",
            "note",
            "Li",
        )
        assert root_of(docs, "茶").metadata["file_size"] == 6
        docs.sync()
        assert docs.sync(max_deleted=1).deleted == ()
        assert paths(docs) == ["a.txt", "c.txt", "note", "sub/b.txt", "茶"]
        assert docs.maintenance.verify() == ()


def test_a_text_again(shelf):
    """The same text changes nothing and costs nothing; another one takes its place."""
    with shelf.open() as docs:
        asked(docs)
        docs.add_texts({"note": "rose hip"})
        shelf.embed.calls.clear()
        shelf.transform.calls.clear()
        assert docs.add_texts({"note": "rose hip"}) == IngestReport(unchanged=("note",))
        assert (shelf.embed.calls, shelf.transform.calls) == ([], [])
        assert docs.add_texts({"note": "lemon"}) == IngestReport(updated=("note",))
        assert (found(docs, "rose"), found(docs, "lemon")) == ([], ["note"])


@pytest.mark.parametrize("texts", [{"note": " \n"}, {"note": ""}, {" ": "text"}, {"": "text"}])
def test_blank_texts(in_memory, texts):
    """A blank text or id is refused, and with it the whole call."""
    with in_memory.open() as docs:
        asked(docs)
        with pytest.raises(ConfigError, match="blank text or id"):
            docs.add_texts({"good": "rose hip", **texts})
        assert len(paths(docs)) == 3


@pytest.mark.parametrize("texts", ["text", ["text"], {"note": 7}, {7: "text"}, {"note": None}])
def test_texts_that_are_none(in_memory, texts):
    """What is no mapping of ids to texts is refused."""
    with in_memory.open() as docs, pytest.raises(ConfigError, match="texts must be a mapping"):
        docs.add_texts(texts)


@pytest.mark.parametrize("name", ["a.txt", "sub/b.txt", "one.txt"])
def test_the_id_of_a_file(in_memory, name):
    """A text does not take a file's place, be it of the dataset or from elsewhere; the others of
    the call wait.
    """
    with in_memory.open() as docs:
        asked(docs)
        docs.add_files([in_memory.write_elsewhere("one.txt", "rose hip")])
        with pytest.raises(ConfigError, match=rf"the id '{name}', which is that of a file"):
            docs.add_texts({"good": "lemon", name: "text"})
        assert "good" not in paths(docs)


def test_a_file_of_the_id_of_a_text(shelf):
    """A file that comes to lie where a text's id points does not silently replace the text at a
    sync.
    """
    with shelf.open() as docs:
        asked(docs)
        docs.add_texts({"d.txt": "rose hip"})
        shelf.write({"d.txt": "lemon"})
        docs.sync()
        assert found(docs, "rose") == ["d.txt"]


def test_a_deleted_file_stays_away(shelf):
    """It is hidden at once from every reader, stands in skipped, and comes back by add_files
    only.
    """
    with shelf.open() as docs:
        asked(docs)
        assert docs.delete_files(["sub/b.txt"]) == IngestReport(deleted=("sub/b.txt",))
        for _ in range(2):
            assert found(docs, "coffee") == []
            assert nearest(docs, "hot coffee") != "hot coffee"
            assert paths(docs) == ["a.txt", "c.txt"]
            report = docs.sync()
            assert report.skipped == (("sub/b.txt", "deleted by delete_files"),)
            assert (report.added, report.unchanged) == ((), ("a.txt", "c.txt"))
        shelf.write({"sub/b.txt": "iced coffee"})
        assert docs.sync().added == ()
        assert (shelf.dataset / "sub/b.txt").exists()
        assert docs.maintenance.verify() == ()
        assert docs.add_files([shelf.dataset / "sub/b.txt"]) == IngestReport(added=("sub/b.txt",))
        assert found(docs, "coffee") == ["sub/b.txt"]
        assert docs.sync().skipped == ()


def test_a_deleted_file_stays_away_over_restarts(stored):
    """The next programs know, also when the file has changed meanwhile; gone and back again it is
    still away.
    """
    with stored.open() as docs:
        asked(docs)
        docs.delete_files(["a.txt"])
    stored.write({"a.txt": "other tea"})
    with stored.open() as docs:
        assert docs.sync().skipped == (("a.txt", "deleted by delete_files"),)
        assert found(docs, "tea") == []
    (stored.dataset / "a.txt").unlink()
    with stored.open() as docs:
        assert docs.sync() == IngestReport(unchanged=("c.txt", "sub/b.txt"))
    stored.write({"a.txt": "green tea"})
    with stored.open() as docs:
        docs.sync()
        assert found(docs, "tea") == []


def test_texts_and_other_files_are_deleted(shelf):
    """They are gone, and may be added again under the same id, without what was said of them
    before.
    """
    path = shelf.write_elsewhere("one.txt", "rose hip")
    with shelf.open() as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
        docs.add_texts({"note": "lemon"}, metadata={"note": {"year": 2024}})
        docs.add_files([path], metadata={"one.txt": {"kind": "x"}})
        docs.update_metadata({"note": {"kind": "y"}})
        assert docs.delete_files(["one.txt", "note", "note"]).deleted == ("note", "one.txt")
        assert list(docs.maintenance.dump()) == before
        assert docs.sync().skipped == ()
        docs.add_texts({"note": "lemon"})
        docs.add_files([path])
        assert (
            paths(docs, filters={"year": 2024}) == paths(docs, filters={"kind": ["x", "y"]}) == []
        )
        assert docs.maintenance.verify() == ()


def test_an_unknown_name_deletes_nothing(shelf):
    """One unknown name among others refuses the call as a whole, and names the documents there
    are.
    """
    with shelf.open() as docs:
        asked(docs)
        with pytest.raises(ConfigError, match=r"There is no document 'b\.txt'.*sub/b\.txt"):
            docs.delete_files(["a.txt", "b.txt"])
        assert len(paths(docs)) == 3
        docs.delete_files(["a.txt"])
        with pytest.raises(ConfigError, match=r"There is no document 'a\.txt'"):
            docs.delete_files(["a.txt"])


@pytest.mark.parametrize("names", ["a.txt", 7, None])
def test_names_that_are_none(in_memory, names):
    """One text instead of a list would be taken for its letters: it is refused."""
    with in_memory.open() as docs:
        asked(docs)
        with pytest.raises(ConfigError, match="documents must be a list"):
            docs.delete_files(names)
        assert len(paths(docs)) == 3


def test_what_is_deleted_leaves_the_stores(stored, monkeypatch):
    """Once nobody can be reading it any more, no row and no vector of it is left."""
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    with stored.open() as docs:
        asked(docs)
        docs.delete_files(["a.txt", "c.txt"])
        docs.sync()
        with closing(sqlite3.connect(stored.store)) as connection:
            rows = connection.execute("SELECT path FROM segment_origin").fetchall()
            assert set(rows) == {("sub/b.txt",)}
            assert connection.execute("SELECT count(*) FROM segment").fetchone() == (3,)
            assert connection.execute("SELECT count(*) FROM build").fetchone() == (2,)
        assert docs.maintenance.verify() == ()


def test_a_deletion_of_everything(shelf):
    """All documents may go at once where each is named."""
    with shelf.open() as docs:
        asked(docs)
        docs.delete_files(["a.txt", "c.txt", "sub/b.txt"])
        assert (paths(docs), found(docs, "tea")) == ([], [])
        assert Retriever(docs, "line")("tea") == []


def test_filters_see_updated_metadata(shelf):
    """Values go before file_metadata, reach filters of every kind of search, and None takes them
    back.
    """
    with shelf.open(file_metadata={"a.txt": {"year": 1999, "by": "Li"}}) as docs:
        asked(docs)
        assert docs.update_metadata(
            {"a.txt": {"year": 2024}, "c.txt": {"year": 2024, "kind": "drink"}}
        ) == IngestReport(updated=("a.txt", "c.txt"))
        assert paths(docs, filters={"year": 2024}) == ["a.txt", "c.txt"]
        assert paths(docs, filters={"year": 1999}) == []
        hits = Retriever(docs, "line", similarity="bm25", topk=9)("tea", filters={"year": 2024})
        assert {hit.path for hit in hits} == {"a.txt"}
        assert {
            hit.path for hit in Retriever(docs, "line", topk=9)("tea", filters={"year": 2024})
        } == {
            "a.txt",
            "c.txt",
        }
        assert root_of(docs, "a.txt").metadata["by"] == "Li"
        assert docs.update_metadata({"a.txt": {"year": None}}).updated == ("a.txt",)
        assert paths(docs, filters={"year": 1999}) == ["a.txt"]
        assert docs.maintenance.verify() == ()


def test_updates_add_up(shelf):
    """A later call changes the names that it gives and no others; the same again changes
    nothing.
    """
    with shelf.open() as docs:
        asked(docs)
        docs.update_metadata({"a.txt": {"year": 2024, "kind": "tea"}})
        docs.update_metadata({"a.txt": {"kind": "drink"}})
        assert paths(docs, filters={"year": 2024, "kind": "drink"}) == ["a.txt"]
        before = list(docs.maintenance.dump())
        assert docs.update_metadata({"a.txt": {"kind": "drink"}}) == IngestReport(
            unchanged=("a.txt",)
        )
        assert list(docs.maintenance.dump()) == before


def test_updates_are_free(shelf):
    """Neither loaders nor transforms of text nor embeds are called; a transform that is given nodes
    is.
    """
    seen = []
    with shelf.open() as docs:
        docs.create_node_group(
            "told",
            transform=lambda node: (
                seen.append(node.text) or [f"{node.text} {node.metadata.get('kind')}"]
            ),
            parent="line",
            trans_node=True,
        )
        asked(docs)
        docs.activate_group("told")
        for calls in (shelf.embed.calls, shelf.transform.calls, seen):
            calls.clear()
        (shelf.dataset / "a.txt").rename(shelf.elsewhere / "away.txt")  # so it cannot be read
        docs.update_metadata({"a.txt": {"kind": "x"}})
        assert (shelf.embed.calls, shelf.transform.calls) == ([], [])
        assert seen == ["green tea", "black tea"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", ["sync", "edit", "move", "touch"])
def test_updates_stay(shelf, what):
    """They survive a sync, a changed file, a moved and a touched one."""
    with shelf.open() as docs:
        asked(docs)
        docs.update_metadata({"a.txt": {"year": 2024}})
        name = "a.txt"
        if what == "edit":
            shelf.write({"a.txt": "white tea"})
        elif what == "touch":
            os.utime(shelf.dataset / "a.txt", (1.5e9, 1.5e9))
        elif what == "move":
            name = "z.txt"
            (shelf.dataset / "a.txt").rename(shelf.dataset / name)
        docs.sync()
        assert paths(docs, filters={"year": 2024}) == [name]
        assert docs.maintenance.verify() == ()


def test_updates_stay_over_a_restart(stored):
    """The next program has them, and so does one that only reads; a deleted and new file of the
    name has none.
    """
    with stored.open() as docs:
        asked(docs)
        docs.update_metadata({"a.txt": {"year": 2024}})
    with stored.open(read_only=True) as docs:
        assert paths(docs, filters={"year": 2024}) == ["a.txt"]
    with stored.open() as docs:
        docs.sync()
        assert paths(docs, filters={"year": 2024}) == ["a.txt"]
        (stored.dataset / "a.txt").unlink()
        docs.sync()
        stored.write({"a.txt": "other tea"})
        docs.sync()
        assert paths(docs, filters={"year": 2024}) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nobody.txt": {"year": 1}}, r"There is no document 'nobody\.txt'"),
        ({"a.txt": {"year": 1}, "nobody.txt": {}}, r"There is no document 'nobody\.txt'"),
        ({"a.txt": {"file_size": 1}}, "'file_size', which is built in"),
        ({"a.txt": [("year", 1)]}, "must be a mapping of names to values"),
        ([("a.txt", {})], "changes must be a mapping"),
        ({"a.txt": {"what": {1, 2}}}, "what"),
    ],
)
def test_updates_that_are_none(in_memory, changes, message):
    """They are refused as a whole."""
    with in_memory.open() as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
        with pytest.raises(ConfigError, match=message):
            docs.update_metadata(changes)
        assert list(docs.maintenance.dump()) == before


def test_an_update_that_does_not_fit(shelf):
    """A value of another type than its field's fails its document, which stays as it was."""
    with shelf.open() as docs:
        asked(docs)
        docs.update_metadata({"a.txt": {"year": 2024}})
        with pytest.warns(IngestionWarning, match="year"):
            report = docs.update_metadata({"a.txt": {"year": "soon"}, "c.txt": {"year": 2025}})
        assert [one.path for one in report.failed] == ["a.txt"]
        assert report.updated == ("c.txt",)
        assert paths(docs, filters={"year": [2024, 2025]}) == ["a.txt", "c.txt"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        ("add_files", [[]]),
        ("add_texts", [{"note": "text"}]),
        ("delete_files", [["a.txt"]]),
        ("update_metadata", [{"a.txt": {"year": 1}}]),
        ("sync", []),
        ("plan", []),
        ("status", []),
    ],
)
def test_a_restricted_view_changes_nothing(in_memory, work, arguments):
    """Whoever sees a part of a Document only cannot change it, nor look after it."""
    with in_memory.open() as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
        view = docs.restricted({"file_name": "a.txt"})
        with pytest.raises(ConfigError, match=rf"{work}\(\) is not available on a restricted"):
            getattr(view, work)(*arguments)
        assert list(docs.maintenance.dump()) == before


@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        ("add_texts", [{"note": "text"}]),
        ("delete_files", [["a.txt"]]),
        ("update_metadata", [{"a.txt": {"year": 1}}]),
    ],
)
def test_a_reader_changes_nothing(stored, work, arguments):
    """With read_only=True each of them is refused, and nothing is changed."""
    with stored.open() as docs:
        asked(docs)
        before = list(docs.maintenance.dump())
    with stored.open(read_only=True) as docs:
        with pytest.raises(StoreError, match="read_only"):
            getattr(docs, work)(*arguments)
        assert list(docs.maintenance.dump()) == before


def test_every_added_file_fails(shelf):
    """The call reports them and warns; nothing of them is there."""
    docs = Document()
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    with pytest.warns(IngestionWarning, match="The file holds no text"):
        report = docs.add_files([shelf.write_elsewhere("broken.txt", "")])
    assert [one.path for one in report.failed] == ["broken.txt"]
    assert docs.get_nodes("line") == []
