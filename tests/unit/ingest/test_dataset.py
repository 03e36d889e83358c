"""A Document's files and what its user says of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lazyrag import DataType, DocField, Document, IngestionWarning, Retriever, register_loader
from lazyrag.errors import ConfigError, DatasetPathError, IngestionError
from lazyrag.loaders import LoadedFile

AUTHOR = {"author": DocField(DataType.VARCHAR, max_size=8), "year": DocField(DataType.INT32)}


def paths(docs: Document) -> list[str]:
    """The identities of the loaded files."""
    return [node.path for node in docs.get_nodes()]


def texts(docs: Document) -> list[str]:
    """The texts of the loaded files."""
    return [node.text for node in docs.get_nodes()]


def test_a_folder(folder):
    """A folder gives all files beneath it, identified by their path in it."""
    root = folder({"a.txt": "a", "sub/b.txt": "b"})
    for given in (root, str(root), str(root) + "/", f"{root}/sub/..", os.fspath(root)):
        assert paths(Document(given)) == ["a.txt", "sub/b.txt"]


def test_a_single_file(folder):
    """A file as dataset_path gives that file only, identified by its name."""
    root = folder({"a.txt": "a", "sub/b.txt": "b"})
    assert paths(Document(root / "sub" / "b.txt")) == ["b.txt"]


def test_no_dataset():
    """A Document without files is empty: every group is, and every question finds nothing."""
    docs = Document()
    assert docs.get_nodes() == docs.get_nodes("FineChunk") == []
    assert Retriever(docs, "FineChunk", similarity="bm25")("tea") == []
    assert docs.last_report.added == ()


def test_an_empty_folder(tmp_path):
    """A folder without files is no error: there may be some later."""
    assert paths(Document(tmp_path)) == []


def test_a_relative_path_and_a_later_change_of_folder(folder, tmp_path, monkeypatch):
    """A relative path means the folder it meant when the Document was made, wherever the program
    goes afterwards.
    """
    root = folder({"a.txt": "a"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(root.parent)
    whole, single, listed = (
        Document("dataset"),
        Document("dataset/a.txt"),
        Document(doc_files=["dataset/a.txt"]),
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert texts(whole) == texts(single) == texts(listed) == ["a"]


def test_the_home_folder_is_expanded(folder, monkeypatch):
    """A path that begins with ~ is looked for in the home folder."""
    root = folder({"a.txt": "a"})
    monkeypatch.setenv("HOME", str(root.parent))
    assert paths(Document("~/dataset")) == ["a.txt"]


@pytest.mark.parametrize("given", ["missing", "a.txt/b", "sub\0"])
def test_a_missing_path(folder, given):
    """A path that is not there is refused at once, with what was given, where it was looked for and
    what to give.
    """
    root = folder({"a.txt": "a"})
    with pytest.raises(ConfigError) as caught:
        Document(root / given)
    assert str(root) in str(caught.value) or "null" in str(caught.value)


def test_a_missing_path_is_a_file_not_found_error(tmp_path):
    """The error for a missing path can be caught as FileNotFoundError, as ValueError and as
    ours.
    """
    with pytest.raises(
        DatasetPathError, match=r"dataset_path '.*nope' does not exist.*Pass an existing"
    ) as caught:
        Document(tmp_path / "nope")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("given", [5, b"folder", ["a", "b"], ("a",), {"a": "b"}, object, 1.5, True])
def test_a_dataset_path_of_the_wrong_type(given):
    """What is no path is refused with its type; a list is pointed to doc_files."""
    with pytest.raises(ConfigError, match=r"dataset_path must be a path") as caught:
        Document(given)
    assert ("doc_files" in str(caught.value)) == isinstance(given, (list, tuple))


def test_an_empty_path_is_refused(folder, monkeypatch):
    """An empty text, as an unset variable gives it, does not mean the current folder."""
    monkeypatch.chdir(folder({"a.txt": "a"}))
    with pytest.raises(ConfigError):
        Document("")


def test_doc_files_as_a_list(folder):
    """Single files are identified by their names, wherever they lie, and come in order of those."""
    root = folder({"z/a.txt": "1", "y/b.md": "2", "c.txt": "3"})
    docs = Document(doc_files=[root / "c.txt", str(root / "y" / "b.md"), root / "z" / "a.txt"])
    assert {node.path: node.text for node in docs.get_nodes()} == {
        "a.txt": "1",
        "b.md": "2",
        "c.txt": "3",
    }
    assert paths(docs) == ["a.txt", "b.md", "c.txt"]


def test_doc_files_as_a_mapping(folder):
    """A mapping identifies files by ids of one's own; several files of one name are fine then."""
    root = folder({"z/a.txt": "1", "y/a.txt": "2"})
    docs = Document(doc_files={"second": root / "y" / "a.txt", "first": root / "z" / "a.txt"})
    assert [(node.path, node.text) for node in docs.get_nodes()] == [
        ("first", "1"),
        ("second", "2"),
    ]
    assert {node.global_metadata["file_name"] for node in docs.get_nodes("FineChunk")} == {"a.txt"}


def test_an_id_is_the_identity(folder):
    """A file keeps its nodes' uids when it moves or is renamed, as long as its id stays."""
    root = folder({"old/a.txt": "text", "new/b.txt": "text"})
    before = Document(doc_files={"id": root / "old" / "a.txt"}).get_nodes("FineChunk")
    after = Document(doc_files={"id": root / "new" / "b.txt"}).get_nodes("FineChunk")
    assert [node.uid for node in before] == [node.uid for node in after]
    assert (
        before[0].uid != Document(doc_files=[root / "new" / "b.txt"]).get_nodes("FineChunk")[0].uid
    )


def test_no_doc_files():
    """An empty list of files makes an empty Document."""
    assert paths(Document(doc_files=[])) == paths(Document(doc_files={})) == []


def test_files_of_one_name_are_refused(folder):
    """Two files of one name in a list are refused; the message says to give ids."""
    root = folder({"z/a.txt": "1", "y/a.txt": "2"})
    with pytest.raises(ConfigError, match=r"several files named 'a\.txt'.*mapping of ids"):
        Document(doc_files=[root / "z" / "a.txt", root / "y" / "a.txt"])


@pytest.mark.parametrize("given", ["a.txt", Path("a.txt")])
def test_one_path_as_doc_files_is_refused(given):
    """A single path as doc_files is refused; the message says what to give instead."""
    with pytest.raises(ConfigError, match="doc_files must be a list of paths"):
        Document(doc_files=given)


@pytest.mark.parametrize(
    "given", [5, [5], {"a": 5}, [None], {"a": None}, 1.5, [["a.txt"]], b"a.txt"]
)
def test_doc_files_of_the_wrong_type(given):
    """What is no list or mapping of paths is refused with what was given."""
    with pytest.raises(ConfigError, match="doc_files"):
        Document(doc_files=given)


def test_missing_doc_files(folder):
    """A file that is not there is refused at once; the message names it."""
    root = folder({"a.txt": "1"})
    with pytest.raises(DatasetPathError, match=r"doc_files '.*b\.txt' does not exist"):
        Document(doc_files=[root / "a.txt", root / "b.txt"])
    with pytest.raises(DatasetPathError, match=r"doc_files\['second'\] '.*b\.txt' does not exist"):
        Document(doc_files={"first": root / "a.txt", "second": root / "b.txt"})


def test_a_folder_in_doc_files(folder):
    """A folder among single files is refused; the message says to give it as dataset_path."""
    with pytest.raises(ConfigError, match=r"doc_files contains a folder.*dataset_path"):
        Document(doc_files=[folder({"a.txt": "1"})])


def test_both_kinds_of_files(folder):
    """A folder and single files together are refused."""
    root = folder({"a.txt": "1"})
    with pytest.raises(ConfigError, match="both dataset_path and doc_files"):
        Document(root, doc_files=[root / "a.txt"])


def test_metadata_as_a_mapping(folder):
    """A mapping from relative path to metadata gives each file its own; files without any have
    none.
    """
    docs = Document(
        folder({"a.txt": "a", "sub/b.txt": "b", "c.txt": "c"}),
        doc_fields=AUTHOR,
        file_metadata={
            "a.txt": {"author": "Li", "year": 2001},
            "sub/b.txt": {"author": "Wang", "note": "free"},
        },
    )
    assert {node.path: node.metadata.get("author") for node in docs.get_nodes()} == {
        "a.txt": "Li",
        "c.txt": None,
        "sub/b.txt": "Wang",
    }
    assert docs.get_nodes()[2].metadata["note"] == "free"
    assert [node.path for node in docs.get_nodes("FineChunk", filters={"author": ["Wang"]})] == [
        "sub/b.txt"
    ]


def test_metadata_by_id(folder):
    """For files with ids of one's own the mapping goes by id."""
    root = folder({"a.txt": "a"})
    docs = Document(
        doc_files={"one": root / "a.txt"},
        doc_fields=AUTHOR,
        file_metadata={"one": {"author": "Li"}},
    )
    assert docs.get_nodes()[0].metadata["author"] == "Li"


def test_metadata_as_a_function(folder):
    """A function gets each file's path and returns its metadata, or None."""
    seen = []

    def describe(path):
        seen.append(path)
        return {"year": int(path.stem)} if path.stem.isdigit() else None

    root = folder({"2001.txt": "a", "2002.txt": "b", "x.txt": "c"})
    docs = Document(root, doc_fields=AUTHOR, file_metadata=describe)
    assert [node.metadata.get("year") for node in docs.get_nodes()] == [2001, 2002, None]
    assert seen == [root / "2001.txt", root / "2002.txt", root / "x.txt"]


def _only_bad_fails(docs: Document, words: str) -> None:
    """Check that one file of two is in and the other is reported, in these words."""
    with pytest.warns(IngestionWarning, match=words):
        assert paths(docs) == ["good.txt"]
    [failure] = docs.last_report.failed
    assert (failure.path, failure.stage) == ("bad.txt", "load")
    assert isinstance(failure.error, ConfigError)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("junk", "got 'junk'"),
        (["author"], "must be a mapping"),
        (5, "got 5"),
        ({"file_name": "x"}, "'file_name', which is built in"),
        ({"last_accessed_date": "2020-01-01"}, "'last_accessed_date', which is built in"),
        ({"year": "2001"}, "Field 'year' is INT32"),
        ({"year": 2**31}, "Field 'year' is INT32"),
        ({"author": "too long a name"}, "at most 8 characters"),
        ({"author": 5}, "Field 'author' is VARCHAR"),
        ({"free": object()}, "JSON value"),
        ({"free": {1, 2}}, "JSON value"),
        ({"free": float("nan")}, "JSON value"),
        ({5: "x"}, "names must be strings"),
    ],
)
@pytest.mark.parametrize("kind", ["mapping", "function"])
def test_bad_metadata_fails_that_file_only(folder, said, words, kind):
    """Metadata that is none, names built-in fields, breaks a field's declaration or is no JSON
    fails that file only.
    """
    root = folder({"good.txt": "a", "bad.txt": "b"})
    told = {"good.txt": {"author": "Li"}, "bad.txt": said}
    metadata = told if kind == "mapping" else lambda path: told[path.name]
    _only_bad_fails(Document(root, doc_fields=AUTHOR, file_metadata=metadata), words)


def test_a_metadata_function_that_raises_fails_that_file_only(folder):
    """A function that raises for one file fails that file, with type and words of what it
    raised.
    """

    def describe(path):
        return {"good.txt": None}[path.name]

    docs = Document(folder({"good.txt": "a", "bad.txt": "b"}), file_metadata=describe)
    _only_bad_fails(docs, r"file_metadata raised KeyError: 'bad\.txt'")
    assert isinstance(docs.last_report.failed[0].error.__cause__, KeyError)


def test_a_metadata_function_that_always_raises(folder):
    """A function that raises for every file leaves nothing to answer from, which is an error."""

    def describe(path):
        msg = "no catalogue"
        raise RuntimeError(msg)

    with pytest.raises(IngestionError, match="no catalogue"):
        Document(folder({"a.txt": "a", "b.txt": "b"}), file_metadata=describe).get_nodes()


def test_metadata_for_a_file_that_is_not_there(folder):
    """A name in the mapping that no file has is reported with the nearest one; all files are in."""
    docs = Document(
        folder({"guide.txt": "a"}), doc_fields=AUTHOR, file_metadata={"giude.txt": {"author": "Li"}}
    )
    with pytest.warns(IngestionWarning, match=r"giude\.txt.*Did you mean 'guide\.txt'\?"):
        assert paths(docs) == ["guide.txt"]
    [failure] = docs.last_report.failed
    assert (failure.path, failure.stage) == ("giude.txt", "metadata")


@pytest.mark.parametrize("given", [5, "author", ["a.txt"], [("a.txt", {})], {"a.txt"}])
def test_metadata_argument_of_the_wrong_type(folder, given):
    """What is no mapping and no function is refused at once."""
    with pytest.raises(ConfigError, match="file_metadata must be a mapping by path"):
        Document(folder({"a.txt": "a"}), file_metadata=given)


def test_what_a_loader_finds_feeds_fields_and_is_overruled(folder):
    """A declared field comes from file_metadata, else from the loader, else from its default."""

    @register_loader(".own")
    class Own:
        """A loader that gives metadata."""

        def load(self, path):
            """The file's text and author."""
            return LoadedFile("text", metadata={"author": "loader"} if path.stem != "c" else {})

    fields = {"author": DocField(DataType.VARCHAR, default_value="nobody")}
    docs = Document(
        folder({"a.own": "", "b.own": "", "c.own": ""}),
        doc_fields=fields,
        file_metadata={"a.own": {"author": "user"}},
    )
    assert [node.metadata["author"] for node in docs.get_nodes()] == ["user", "loader", "nobody"]
    assert [
        [node.path for node in docs.get_nodes(filters={"author": one})]
        for one in ("user", "loader", "nobody")
    ] == [
        ["a.own"],
        ["b.own"],
        ["c.own"],
    ]


def test_a_loader_s_value_that_breaks_its_field_is_left_out(folder):
    """A loader's value that is longer than the field allows is left out with a warning; the file is
    in.
    """

    @register_loader(".own")
    class Own:
        """A loader that gives metadata."""

        def load(self, path):
            """The file's text and author."""
            return LoadedFile("text", metadata={"author": path.read_text(encoding="utf-8")})

    docs = Document(folder({"a.own": "short", "b.own": "much too long"}), doc_fields=AUTHOR)
    with pytest.warns(IngestionWarning, match="at most 8 characters"):
        assert paths(docs) == ["a.own", "b.own"]


def test_defaults_fill_missing_values(folder):
    """A field with a default has it where a file says nothing or None; one without is missing
    there.
    """
    fields = {
        "author": DocField(DataType.VARCHAR, default_value=" "),
        "year": DocField(DataType.INT32),
    }
    docs = Document(
        folder({"a.txt": "a", "b.txt": "b"}),
        doc_fields=fields,
        file_metadata={"a.txt": {"author": None}},
    )
    assert [node.metadata["author"] for node in docs.get_nodes()] == [" ", " "]
    assert all("year" not in node.metadata for node in docs.get_nodes())
    assert len(docs.get_nodes(filters={"author": " "})) == 2


def test_list_fields(folder):
    """A list that a field of type ARRAY holds can be filtered by each of its elements."""
    fields = {"tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}
    told = {"a.txt": {"tags": ["tea", "green"]}, "b.txt": {"tags": ["coffee"]}}
    docs = Document(
        folder({"a.txt": "a", "b.txt": "b", "c.txt": "c"}), doc_fields=fields, file_metadata=told
    )
    assert [node.path for node in docs.get_nodes(filters={"tags": ["green", "red"]})] == ["a.txt"]
    assert list(docs.get_nodes()[0].metadata["tags"]) == ["tea", "green"]


def test_metadata_cannot_be_changed_from_outside(folder):
    """Changing the mapping that was given, or a node's metadata, changes nothing in the tree."""
    said = {"tags": ["tea"]}
    docs = Document(folder({"a.txt": "a"}), file_metadata={"a.txt": said})
    [node] = docs.get_nodes()
    said["author"] = "late"
    said["tags"].append("late")
    with pytest.raises(TypeError):
        node.metadata["author"] = "Li"
    assert "author" not in docs.get_nodes()[0].metadata
    assert list(docs.get_nodes()[0].metadata["tags"]) == ["tea"]


@pytest.mark.parametrize(
    "identity", ["https://x.cn/a", "a//b", "./a", "a/", "C:\\a", "茶 1", "a/../b"]
)
def test_metadata_by_an_id_that_is_no_path(folder, identity):
    """An id of the user's own is taken as it is: what is said of it reaches its file, whatever a
    path would become.
    """
    path = folder({"a.txt": "a"}) / "a.txt"
    docs = Document(
        doc_files={identity: path}, doc_fields=AUTHOR, file_metadata={identity: {"author": "Li"}}
    )
    assert paths(docs) == [identity]
    assert [node.path for node in docs.get_nodes(filters={"author": "Li"})] == [identity]


@pytest.mark.parametrize("name", ["sub/b.txt", "./sub/b.txt", "sub//b.txt", Path("sub") / "b.txt"])
def test_metadata_by_any_spelling_of_a_path(folder, name):
    """A path relative to the dataset may be spelled in its usual ways."""
    docs = Document(
        folder({"sub/b.txt": "b"}), doc_fields=AUTHOR, file_metadata={name: {"author": "Li"}}
    )
    assert [node.path for node in docs.get_nodes(filters={"author": "Li"})] == ["sub/b.txt"]


@pytest.mark.parametrize("key", [5, None, ("a.txt",), b"a.txt"])
def test_metadata_keys_that_are_no_text(folder, key):
    """A key that could name no file is refused at once, in a folder as with ids of one's own."""
    root = folder({"a.txt": "a"})
    for files in ({"dataset_path": root}, {"doc_files": {"a": root / "a.txt"}}):
        with pytest.raises(ConfigError, match="A key of file_metadata must be"):
            Document(**files, file_metadata={key: {"author": "Li"}})


@pytest.mark.parametrize("identity", [5, None, "", "  ", ("a",), Path("a")])
def test_ids_that_are_no_text(folder, identity):
    """An id is a text that is not blank."""
    with pytest.raises(ConfigError, match="An id of doc_files must be a string that is not blank"):
        Document(doc_files={identity: folder({"a.txt": "a"}) / "a.txt"})
