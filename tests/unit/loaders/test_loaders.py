"""Loaders of one's own, and what all loaders share."""

from __future__ import annotations

import os

import pytest

from lazyrag import DataType, DocField, DocNode, Document, IngestionWarning, register_loader
from lazyrag.data.segment import Location
from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    IngestionError,
    LoadError,
    UnknownKeywordError,
)
from lazyrag.loaders import LoadedFile, load_file, loaders


def returning(result):
    """A loader class whose load returns the result, or calls it with the path where it is a
    function.
    """

    class Loader:
        """Returns what it was made for."""

        def load(self, path):
            """The result, whatever the file holds."""
            return result(path) if callable(result) else result

    return Loader


@pytest.fixture
def load(tmp_path):
    """A function that loads a file of suffix .own with a loader that returns something."""
    path = tmp_path / "file.own"
    path.write_text("line one\nline two\n", encoding="utf-8")

    def loaded(result):
        register_loader(".own", replace=True)(returning(result))
        return load_file(path)

    return loaded


def placed(loaded: LoadedFile) -> list[tuple[str, str, str]]:
    """Kind, label and text of each place."""
    return [
        (location.kind, location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_text(load):
    """A loader that returns a str gives a file of that text, without places and metadata."""
    loaded = load(lambda path: path.read_text(encoding="utf-8").upper())
    assert (loaded.text, loaded.locations, dict(loaded.metadata)) == (
        "LINE ONE\nLINE TWO\n",
        (),
        {},
    )


def test_loaded_file(load):
    """A LoadedFile is taken as it is."""
    given = LoadedFile("绿茶 tea", (Location(0, 2, "heading", "茶"),), {"author": "Li"})
    assert load(given) == given


def test_one_node(load):
    """A single DocNode gives its text, and its metadata become the file's."""
    loaded = load(DocNode(text="tea", metadata={"author": "Li", "year": 2024}))
    assert loaded.text == "tea"
    assert dict(loaded.metadata) == {"author": "Li", "year": 2024}


@pytest.mark.parametrize("kind", ["page", "slide", "sheet"])
def test_nodes_with_pages_become_places(load, kind):
    """DocNodes that say in their metadata which page, slide or sheet they are become places of that
    kind.
    """
    loaded = load(
        [DocNode(text="one", metadata={kind: 1}), DocNode(text="three", metadata={kind: "III"})]
    )
    assert loaded.text == "one\n\nthree"
    assert placed(loaded) == [(kind, "1", "one"), (kind, "III", "three")]


def test_what_all_parts_say_alike_holds_for_the_file(load):
    """Metadata that all parts have alike become the file's; what differs or is missing in one does
    not.
    """
    parts = [
        DocNode(
            text=f"{n}", metadata={"page": n, "author": "Li", **({"year": 1} if n == 1 else {})}
        )
        for n in (1, 2)
    ]
    loaded = load(parts)
    assert dict(loaded.metadata) == {"author": "Li"}
    assert [label for _, label, _ in placed(loaded)] == ["1", "2"]


def test_a_list_of_one_page(load):
    """A file of a single page keeps that page's place, as a file of several does."""
    assert placed(load([DocNode(text="one", metadata={"page": 1})])) == [("page", "1", "one")]


def test_texts_become_parts(load):
    """An iterable of texts, a generator too, gives one text whose parts are places numbered from
    1.
    """
    loaded = load(lambda path: (line for line in path.read_text(encoding="utf-8").splitlines()))
    assert placed(loaded) == [("part", "1", "line one"), ("part", "2", "line two")]


def test_empty_parts_keep_their_numbers(load):
    """Parts without text keep their number and make no other part's place wrong."""
    loaded = load(["", "two", DocNode(text=" ", metadata={"page": 3}), "four"])
    assert placed(loaded) == [
        ("part", "1", ""),
        ("part", "2", "two"),
        ("page", "3", " "),
        ("part", "4", "four"),
    ]


def test_nodes_find_their_place(folder):
    """Nodes of a file whose loader returned pages say which page they stand on."""
    register_loader(".deck")(
        returning([DocNode(text="green tea", metadata={"page": n}) for n in (1, 2)])
    )
    docs = Document(folder({"talk.deck": "x"}))
    docs.create_node_group("part", transform=lambda text: text.split("\n\n"))
    assert [node.location for node in docs.get_nodes("part")] == ["page 1", "page 2"]


@pytest.mark.parametrize(
    "result",
    [
        None,
        5,
        b"bytes",
        [1, 2],
        ["text", None],
        {"text": "tea"},
        [b"page"],
        object(),
        [["nested"]],
        LoadedFile,
    ],
    ids=lambda result: type(result).__name__,
)
def test_wrong_types_are_reported(load, result):
    """Whatever else a loader returns fails the file with a LoadError that names the loader."""
    with pytest.raises(LoadError) as caught:
        load(lambda path: result)
    assert caught.value.loader == "Loader"


@pytest.mark.parametrize(
    "result",
    [
        LoadedFile(None),
        LoadedFile(b"bytes"),
        LoadedFile(5),
        LoadedFile("text", metadata=None),
        LoadedFile("text", metadata=["author"]),
        LoadedFile("text", locations=[(0, 1)]),
        LoadedFile("text", locations=None),
        LoadedFile("text", metadata={"handle": object()}),
        LoadedFile("text", metadata={5: "x"}),
        LoadedFile("text", metadata={"score": float("nan")}),
    ],
    ids=range(10),
)
def test_a_loaded_file_of_junk_fails_that_file_only(folder, result):
    """A LoadedFile whose parts are of the wrong type fails that file; the others are in."""
    register_loader(".own")(returning(result))
    docs = Document(folder({"a.own": "x", "b.txt": "tea"}))
    with pytest.warns(IngestionWarning, match=r"a\.own"):
        assert [node.text for node in docs.get_nodes()] == ["tea"]
    assert [(one.path, one.stage) for one in docs.last_report.failed] == [("a.own", "load")]


@pytest.mark.parametrize("result", ["", " \n\t", [], ["", " "], LoadedFile("\u3000")], ids=repr)
def test_no_text_is_reported(load, result):
    """A loader that finds nothing but white space fails the file, which says that it holds no
    text.
    """
    with pytest.raises(LoadError, match="holds no text"):
        load(result)


def test_what_a_loader_raises_is_reported_with_its_cause(load):
    """An exception in one's own loader becomes the cause of a LoadError that says which loader
    raised what, and does not blame the file.
    """

    def fail(path):
        msg = "no such sheet"
        raise KeyError(msg)

    with pytest.raises(
        LoadError, match=r"loader Loader of \.own files raised KeyError: 'no such sheet'\. "
    ) as caught:
        load(fail)
    assert "damaged" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.path.endswith("file.own")
    assert caught.value.loader == "Loader"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError("It is no table."), "raised ValueError: It is no table. Fix"),
        (ValueError("no table"), "raised ValueError: no table. Fix"),
        (ValueError(), "raised ValueError. Fix"),
    ],
    ids=["full stop", "none", "no words"],
)
def test_an_exceptions_words_end_in_one_full_stop(load, raised, told):
    """Whatever an exception's text ends in, the next sentence begins behind one full stop."""

    def fail(path):
        raise raised

    with pytest.raises(LoadError) as caught:
        load(fail)
    assert told in str(caught.value)


def test_a_file_that_a_built_in_loader_cannot_read_may_be_damaged(tmp_path):
    """Where a loader of ours raises, the file is what is wrong; a user's subclass of it is the
    user's.
    """
    path = tmp_path / "a.pdf"
    path.write_bytes(b"no PDF")
    with pytest.raises(
        LoadError, match=r"PdfLoader could not read the file \(.*\)\. It may be damaged"
    ):
        load_file(path)

    @register_loader(".pdf", replace=True)
    class OwnPdfLoader(loaders[".pdf"]):
        """The built-in one, changed."""

        def load(self, path):
            raise ValueError(path.name)

    with pytest.raises(
        LoadError, match=r"loader OwnPdfLoader of \.pdf files raised \w+: .*\. Fix it"
    ):
        load_file(path)


def test_a_loader_whose_package_is_missing_says_how_to_install_it(tmp_path, monkeypatch):
    """The install command is told as it is; the file is not said to be damaged."""
    (tmp_path / "needs_more_for_own.py").write_text(
        "import package_that_is_not_there", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    loaders.declare(".own", "needs_more_for_own:Loader", extra="pdf")
    (tmp_path / "a.own").write_text("x", encoding="utf-8")
    with pytest.raises(
        LoadError,
        match=r'Install it with: pip install -e "\.\[pdf\]"$',
    ) as caught:
        load_file(tmp_path / "a.own")
    assert isinstance(caught.value.__cause__, ImportError)


@pytest.mark.parametrize("name", ["a.txt", "绿 茶.TXT"])
def test_a_path_may_be_text(tmp_path, name):
    """load_file takes a path as a str as well as a Path, found or not."""
    path = tmp_path / name
    path.write_text("tea", encoding="utf-8")
    assert load_file(str(path)) == load_file(path) == LoadedFile("tea")
    with pytest.raises(LoadError) as caught:
        load_file(str(tmp_path / "gone.txt"))
    assert caught.value.path == str(tmp_path / "gone.txt")


def test_a_loader_class_may_be_defined_again(tmp_path):
    """A notebook's cell with a loader can be run again: the new class reads from then on."""
    (tmp_path / "a.own").write_text("x", encoding="utf-8")
    cell = (
        "@register_loader('.own')\nclass Own:\n    def load(self, path):\n        return {result!r}"
    )
    for result in ("first", "second"):
        exec(  # noqa: S102
            cell.format(result=result), {"__name__": "__main__", "register_loader": register_loader}
        )
        assert load_file(tmp_path / "a.own").text == result


def test_what_a_generator_raises_is_reported(load):
    """A loader that yields pages and fails at a later one fails the file, not the ingestion."""

    def fail_late(path):
        yield "page one"
        msg = "page two is broken"
        raise ValueError(msg)

    with pytest.raises(LoadError, match="page two is broken"):
        load(fail_late)


def test_a_load_error_keeps_its_words(load):
    """A LoadError that a loader raises comes out with its own message, completed by path and
    loader.
    """

    def fail(path):
        msg = "The workbook is locked. Close it."
        raise LoadError(msg)

    with pytest.raises(LoadError, match=r"^The workbook is locked\. Close it\.$") as caught:
        load(fail)
    assert caught.value.path.endswith("file.own")
    assert caught.value.loader == "Loader"


def test_loaders_that_cannot_be_made_are_reported(tmp_path):
    """A loader class that needs constructor arguments fails the file with a LoadError."""

    @register_loader(".own")
    class NeedsMore:
        """Cannot be made without an argument."""

        def __init__(self, more):
            """Keep the argument."""
            self.more = more

        def load(self, path):
            """Some text."""
            return "text"

    path = tmp_path / "a.own"
    path.write_text("x", encoding="utf-8")
    with pytest.raises(LoadError, match=r"loader NeedsMore of \.own files raised TypeError"):
        load_file(path)


def test_each_file_gets_a_loader_of_its_own(folder):
    """A loader that keeps state in itself starts anew for each file."""

    @register_loader(".own")
    class Counting:
        """Counts the files it has seen."""

        def __init__(self):
            """Begin at none."""
            self.seen = 0

        def load(self, path):
            """How many files were seen."""
            self.seen += 1
            return f"file {self.seen}"

    assert [node.text for node in Document(folder({"a.own": "", "b.own": ""})).get_nodes()] == [
        "file 1",
        "file 1",
    ]


@pytest.mark.parametrize(
    ("registered", "name"),
    [(".own", "a.OWN"), (".OWN", "a.own"), (".Own", "a.oWN"), (".日志", "a.日志")],
)
def test_case_of_suffixes_does_not_matter(tmp_path, registered, name):
    """A loader reads files whose suffix differs from the registered one in case only."""
    register_loader(registered)(returning("read"))
    (tmp_path / name).write_text("x", encoding="utf-8")
    assert load_file(tmp_path / name).text == "read"


def test_several_suffixes(tmp_path):
    """One loader may be registered for several suffixes in one call."""
    register_loader(".one", ".two")(returning("read"))
    for name in ("a.one", "b.two"):
        (tmp_path / name).write_text("x", encoding="utf-8")
        assert load_file(tmp_path / name).text == "read"


def test_compound_suffixes_are_used_or_refused(tmp_path):
    """A suffix of two parts is refused at registration, or its files are read by that loader; it is
    never ignored.
    """
    try:
        register_loader(".part.txt")(returning("by the own loader"))
    except ConfigError:
        return
    (tmp_path / "a.part.txt").write_text("plain", encoding="utf-8")
    assert load_file(tmp_path / "a.part.txt").text == "by the own loader"


def test_a_taken_suffix_needs_replace(tmp_path):
    """A built-in or registered suffix is taken over only with replace=True."""
    path = tmp_path / "a.txt"
    path.write_text("plain", encoding="utf-8")
    with pytest.raises(AlreadyRegisteredError, match="replace=True"):
        register_loader(".TXT")(returning("own"))
    assert load_file(path).text == "plain"
    register_loader(".txt", replace=True)(returning("own"))
    assert load_file(path).text == "own"
    with pytest.raises(AlreadyRegisteredError, match="replace=True"):
        register_loader(".txt")(returning("other"))


def test_the_same_loader_again_is_no_error():
    """Registering the same class twice, as a module that is run again does, changes nothing."""
    loader = register_loader(".own")(returning("x"))
    assert register_loader(".own")(loader) is loader
    assert loaders[".own"] is loader


def test_a_function_is_a_loader(tmp_path):
    """It gets the path, and returns what the method of a class may return; it is registered under
    its own name.
    """

    @register_loader(".own")
    def read_own(path):
        return path.read_text(encoding="utf-8").upper()

    path = tmp_path / "a.own"
    path.write_text("green tea", encoding="utf-8")
    assert load_file(path).text == "GREEN TEA"
    path.write_bytes(b"\xff")
    with pytest.raises(LoadError, match="read_own"):
        load_file(path)


def test_nodes_of_a_loader_give_their_file_metadata(tmp_path):
    """What their global_metadata has is the file's; two values of one name are refused."""

    @register_loader(".own")
    def read_own(path):
        for number, line in enumerate(path.read_text(encoding="utf-8").split()):
            yield DocNode(
                text=line,
                metadata={"page": number},
                global_metadata={"author": line[0], "lines": 2},
            )

    path = tmp_path / "a.own"
    path.write_text("tea tisane", encoding="utf-8")
    assert load_file(path).metadata == {"author": "t", "lines": 2}
    path.write_text("tea coffee", encoding="utf-8")
    with pytest.raises(LoadError, match="author"):
        load_file(path)


@pytest.mark.parametrize("suffixes", [(), ("log",), ("",), (".log", "txt"), (5,), (None,)])
def test_wrong_suffixes_are_refused(suffixes):
    """Suffixes without a dot, no suffix at all and what is no text are refused, with an example."""
    with pytest.raises(ConfigError, match=r"such as '\.log'"):
        register_loader(*suffixes)


@pytest.mark.parametrize(
    "loader",
    [object(), "Loader", type("NoLoad", (), {})],
    ids=["object", "name", "no load"],
)
def test_what_is_no_loader_class_is_refused(loader):
    """An instance, a name or a class without load is refused at registration."""
    with pytest.raises(ConfigError, match=r"a class with load\(self, path\)"):
        register_loader(".own")(loader)


@pytest.mark.parametrize(
    ("name", "shown"), [("a.xyz", ".xyz"), ("README", "files without suffix"), ("a.", "suffix")]
)
def test_unknown_suffixes_name_the_known_ones(tmp_path, name, shown):
    """A file that no loader reads fails with its suffix, where the known ones stand and the way to
    add one.
    """
    (tmp_path / name).write_bytes(b"\0\1text")
    with pytest.raises(
        LoadError, match=rf"{len(loaders)} suffixes are read, see .*@register_loader"
    ) as caught:
        load_file(tmp_path / name)
    assert shown in str(caught.value)


def test_an_own_loader_in_an_own_document(folder):
    """What an own loader finds in a file is searchable by its declared fields, and file_metadata
    goes before it.
    """
    fields = {"author": DocField(DataType.VARCHAR), "year": DocField(DataType.INT32)}

    @register_loader(".note")
    class NoteLoader:
        """Reads author and text, parted by a colon."""

        def load(self, path):
            """The text, with metadata."""
            author, _, text = path.read_text(encoding="utf-8").partition(":")
            return LoadedFile(text, metadata={"author": author, "year": 2001, "kept": [1, 2]})

    docs = Document(
        folder({"a.note": "Li:green tea", "b.note": "Wang:black tea"}),
        doc_fields=fields,
        file_metadata={"b.note": {"author": "Zhao"}},
    )
    assert [node.path for node in docs.get_nodes(filters={"author": ["Li", "Wang"]})] == ["a.note"]
    assert [node.path for node in docs.get_nodes(filters={"author": "Zhao", "year": 2001})] == [
        "b.note"
    ]
    assert docs.get_nodes()[1].metadata["kept"] == [1, 2]


def test_a_loader_may_not_overrule_the_file_system(folder):
    """The six built-in fields come from the file system, whatever a loader says of them."""
    register_loader(".own")(
        returning(LoadedFile("text", metadata={"file_name": "x", "file_size": -1}))
    )
    [node] = Document(folder({"a.own": "12345"})).get_nodes()
    assert (node.metadata["file_name"], node.metadata["file_size"]) == ("a.own", 5)


def test_a_loader_registered_after_a_failure(folder):
    """Files that no loader read are read by sync() once one is registered."""
    docs = Document(folder({"a.own": b"\0x", "b.txt": "tea"}))
    with pytest.warns(IngestionWarning):
        docs.get_nodes()
    register_loader(".own")(returning("own"))
    assert docs.sync().failed == ()
    assert [node.text for node in docs.get_nodes()] == ["own", "tea"]


def test_all_files_failing_in_a_loader(folder):
    """If a loader fails for every file, nothing is left to answer from, and the first cause is
    told.
    """

    def fail(path):
        msg = "licence expired"
        raise RuntimeError(msg)

    register_loader(".own")(returning(fail))
    with pytest.raises(IngestionError, match="licence expired"):
        Document(folder({"a.own": "x", "b.own": "y"})).get_nodes()


def test_what_is_no_file_is_told(tmp_path):
    """A path to nothing, to a folder, or no path at all: each is told as what it is, whatever its
    suffix.
    """
    for missing in ("没有 file.txt", "none", "none.pdf", "none.png"):
        with pytest.raises(LoadError, match=r"There is no file .*Pass the path of an existing one"):
            load_file(tmp_path / missing)
    with pytest.raises(LoadError, match=r"is a folder"):
        load_file(tmp_path)
    for no_path in (b"tea.txt", ["tea.txt"], 5, None):
        with pytest.raises(ConfigError, match=r"path must be the path of a file"):
            load_file(no_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize(
    "name", ["pipe.txt", "pipe", "zero.txt", "zero.pdf", "zero.zip", "link.txt"]
)
def test_only_regular_files_are_read(tmp_path, name):
    """A pipe would block, and a link to a device fill the memory: both are refused before they are
    opened.
    """
    path = tmp_path / name
    if name.startswith("zero"):
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "queue" if name == "link.txt" else path)
        if name == "link.txt":
            path.symlink_to(tmp_path / "queue")
    with pytest.raises(LoadError, match="not a regular file") as caught:
        load_file(path)
    assert caught.value.path == str(path)


def test_a_result_of_a_wrong_type_names_its_loader(tmp_path):
    """Whoever has several loaders reads which of them returned what."""
    (tmp_path / "tea.wrong").write_text("Sencha", encoding="utf-8")
    for returned, told in (
        (None, "NoneType"),
        ({"a": 1}, "dict"),
        (["a", 5], "int among its parts"),
    ):

        @register_loader(".wrong", replace=True)
        class WrongLoader:
            def load(self, path, returned=returned):
                return returned

        with pytest.raises(
            LoadError, match=f"The loader WrongLoader returned {told}; it must return a LoadedFile"
        ):
            load_file(tmp_path / "tea.wrong")


@pytest.mark.parametrize("suffix", [".docx", ".html", ".png", ".mp3", ".mp4"])
def test_options_of_loaders_are_checked(suffix):
    """A misspelt option is named together with the known ones."""
    with pytest.raises(UnknownKeywordError, match="Known: "):
        loaders[suffix](maintext=True)
