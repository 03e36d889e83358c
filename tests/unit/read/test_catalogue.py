"""Documents one by one: lists in pages, states and errors, differences of versions, and what agents
read.
"""

from __future__ import annotations

import datetime as dt
import inspect
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import (
    LAZY_ROOT_NAME,
    Condition,
    DataType,
    DocField,
    Document,
    FileSelection,
    IngestionWarning,
)
from lazyrag.document import ChangedText, ErrorInfo
from lazyrag.errors import ConfigError, DatasetPathError, StaleNodeError
from lazyrag.read import grep, marks, near_duplicates, outline, page_image, related
from tests.shelf import Letters, conf_of

LABELS = {
    "labels": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
    "year": DocField(DataType.INT32),
}
TEXTS = {"tea": "green tea\nblack tea", "coffee": "hot coffee\ncold milk", "water": "still water"}


def ids(documents):
    """The ids of some documents."""
    return [one.id for one in documents]


def paged(docs, limit, **arguments):
    """All documents, a page at a time."""
    found, after = [], None
    while page := docs.documents(after, limit, **arguments):
        assert len(page) <= limit
        found += page
        after = page[-1].id
    return found


@pytest.fixture
def docs():
    """Three texts in lines; two of them have labels."""
    docs = Document(doc_fields=LABELS, keep_versions=3)
    docs.create_node_group("line", transform=str.splitlines)
    docs.add_texts(
        TEXTS, metadata={"tea": {"labels": ["a", "b"], "year": 2001}, "water": {"labels": ["b"]}}
    )
    docs.activate_group("line")
    return docs


# Lists


def test_a_document_is_described(docs):
    """Its state, its nodes in each built group, its labels, its version and when that became
    live.
    """
    before = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    tea = docs.documents(ids=["tea"])[0]
    assert (tea.id, tea.path, tea.status, tea.stage, tea.error) == (
        "tea",
        "tea",
        "SUCCESS",
        "",
        None,
    )
    assert tea.groups == {
        "line": {"status": "SUCCESS", "nodes": 2},
        LAZY_ROOT_NAME: {"status": "SUCCESS", "nodes": 1},
    }
    assert (tea.labels, tea.version, tea.bytes, tea.pages) == (("a", "b"), 1, None, None)
    assert before < dt.datetime.fromisoformat(tea.updated) <= dt.datetime.now(dt.UTC)
    assert docs.documents(ids=["coffee"])[0].labels == ()


def test_a_list_loads_and_builds_nothing(tmp_path):
    """A Document that was not used yet lists no document, and neither a store file without any."""
    (tmp_path / "tea.txt").write_text("tea")
    docs = Document(tmp_path, store_conf=conf_of(tmp_path / "store.db"))
    assert docs.documents() == []
    assert (
        Document(
            store_conf=conf_of(tmp_path / "store.db"), name="other", read_only=True
        ).documents()
        == []
    )
    docs.sync()
    [tea] = docs.documents()
    assert (tea.id, tea.bytes) == ("tea.txt", 3)


def test_what_failed_is_listed_with_its_error(tmp_path):
    """Stage, error and way out of a file that cannot be read, and of one whose transform failed,
    also later on.
    """
    for name, content in {"a.txt": b"tea", "b.txt": b"bad tea", "c.pdf": b"%PDF-1.4 no"}.items():
        (tmp_path / name).write_bytes(content)

    def transform(text):
        if "bad" in text:
            msg = "It is bad. Use good tea."
            raise ValueError(msg)
        return [text]

    conf = conf_of(tmp_path / "store" / "store.db")
    with Document(tmp_path, store_conf=conf, files=FileSelection(exclude=["store"])) as docs:
        docs.create_node_group("line", transform=transform)
        with pytest.warns(IngestionWarning):
            docs.activate_group("line")
    for _ in range(2):
        with Document(tmp_path, store_conf=conf, read_only=True) as docs:
            a, b, c = docs.documents()
            assert (a.status, b.status, b.stage, b.version) == (
                "SUCCESS",
                "FAILED",
                "transform line",
                1,
            )
            assert (b.error.type, b.error.remedy) == ("TransformError", "Use good tea.")
            assert "bad" in b.error.detail
            assert b.groups["line"] == {"status": "FAILED", "nodes": 0}
            assert b.groups[LAZY_ROOT_NAME] == {"status": "SUCCESS", "nodes": 1}
            assert (c.status, c.stage, c.version, c.error.type) == (
                "FAILED",
                "load",
                0,
                "LoadError",
            )
            assert c.groups[LAZY_ROOT_NAME] == {"status": "FAILED", "nodes": 0}
            assert c.groups["line"] == {"status": "WAITING", "nodes": 0}
            assert c.updated
            assert (
                ids(docs.documents(status="FAILED"))
                == ["b.txt", "c.pdf"]
                == ids(paged(docs, 1, status="FAILED"))
            )
            assert ids(docs.documents(status="SUCCESS")) == ["a.txt"]
            assert ids(docs.restricted({"file_type": ".txt"}).documents(status="FAILED")) == [
                "b.txt"
            ]
            assert docs.documents(ids=["c.pdf"])[0] == c
        # which forgets documents without nodes
        with Document(tmp_path, store_conf=conf, files=FileSelection(exclude=["store"])) as docs:
            docs.create_node_group("line", transform=transform)
            with pytest.warns(IngestionWarning):
                docs.sync()


def test_deleted_documents_are_listed_on_request(tmp_path):
    """A file that the user deleted is DELETED; one that is gone is DELETING until its storage is
    reclaimed.
    """
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(name)
    docs = Document(
        tmp_path,
        store_conf=conf_of(tmp_path / "store" / "store.db"),
        files=FileSelection(exclude=["store"]),
    )
    docs.sync()
    docs.delete_files(["b.txt"])
    (tmp_path / "c.txt").unlink()
    docs.sync()
    assert ids(docs.documents()) == ["a.txt"]
    assert ids(docs.documents(status="DELETED")) == ["b.txt"]
    [gone] = docs.documents(status="DELETING")
    assert (gone.id, gone.version, gone.groups) == ("c.txt", 0, {})
    assert docs.documents(status="WAITING") == docs.documents(status="WORKING") == []


@pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")
def test_failures_of_files_that_a_sync_does_not_try_stay(tmp_path):
    """Those of added files, and those of a dataset that a program opens the store without, as
    ``lazyrag collect --per row`` does; a file that is gone from the dataset has none.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    for path in (folder / "a.pdf", folder / "b.pdf", tmp_path / "added.pdf"):
        path.write_bytes(b"%PDF-1.4 no")
    (folder / "tea.txt").write_text("tea", encoding="utf-8")
    conf = conf_of(tmp_path / "store.db")
    with Document(folder, store_conf=conf) as docs:
        docs.sync()
        docs.add_files([tmp_path / "added.pdf"])
    with Document(store_conf=conf) as docs:
        docs.collect("tea", per="row")
        assert ids(docs.documents(status="FAILED")) == ["a.pdf", "added.pdf", "b.pdf"]
    (folder / "b.pdf").unlink()
    with Document(folder, store_conf=conf) as docs:
        docs.sync()
        assert ids(docs.documents(status="FAILED")) == ["a.pdf", "added.pdf"]
    (folder / "a.pdf").write_bytes(b"")
    with Document(folder, store_conf=conf) as docs:
        docs.sync()
        assert ids(docs.documents(status="FAILED")) == ["added.pdf"]


def test_failures_of_deleted_documents_go_with_them():
    """A document that failed in a step and is deleted is not listed any more, also not as a
    failure.
    """
    docs = Document()
    docs.create_node_group("line", transform=lambda text: [text] if "tea" in text else 1 / 0)
    docs.add_texts({"tea": "tea", "milk": "milk"})
    with pytest.warns(IngestionWarning):
        docs.activate_group("line")
    assert ids(docs.documents(status="FAILED")) == ["milk"]
    docs.delete_files(["milk"])
    assert ids(docs.documents()) == ["tea"]
    assert docs.documents(status="FAILED") == []


def test_what_never_loaded_can_be_deleted(tmp_path):
    """A file that failed is listed until it is deleted; it is not in the report then, nor tried
    again by a sync.
    """
    (tmp_path / "c.pdf").write_bytes(b"%PDF-1.4 no")
    conf = conf_of(tmp_path / "store.db")
    for is_reopened in (False, True):
        docs = Document(store_conf=conf)
        docs.add_texts({"tea": "tea"})
        with pytest.warns(IngestionWarning):
            docs.add_files({"c": tmp_path / "c.pdf"})
        if is_reopened:
            docs.close()
            docs = Document(store_conf=conf)
            docs.maintenance.verify()
        assert ids(docs.documents()) == ["c", "tea"]
        with pytest.raises(ConfigError, match="no document 'b'"):
            docs.delete_files(["b", "c"])
        assert docs.delete_files(["c", "tea"]).deleted == ("c", "tea")
        assert docs.documents() == []
        docs.sync()
        assert docs.documents() == docs.documents(status="FAILED") == []
        assert docs.last_report.failed == ()
        docs.close()


NAMES = st.dictionaries(
    st.text("ab茶Z\U0001f375/~\ud800", min_size=1, max_size=4).filter(str.strip),
    st.sampled_from("xyz"),
    max_size=9,
)


@given(texts=NAMES, limit=st.integers(1, 4))
def test_pages_together_are_the_full_list(texts, limit):
    """Whatever the ids are: each document once, sorted by id (texts that are no UTF-8 last)."""
    docs = Document(doc_fields=LABELS)
    if texts:
        docs.add_texts(
            dict.fromkeys(texts, "tea"),
            metadata={name: {"labels": [one]} for name, one in texts.items()},
        )
    documents = docs.documents(limit=100)
    assert sorted(ids(documents)) == sorted(texts)
    assert paged(docs, limit) == documents
    plain = [one for one in ids(documents) if "\ud800" not in one]
    assert ids(documents)[: len(plain)] == sorted(plain)
    wanted = {"labels": ["x"]}
    assert paged(docs, limit, where=wanted) == [one for one in documents if one.labels == ("x",)]
    assert paged(docs.restricted(wanted), limit) == docs.documents(where=wanted)


@pytest.mark.slow
@given(
    texts=NAMES,
    where=st.sampled_from(
        [{"labels": ["x", "y"]}, {"file_size": 3}, ~Condition("labels", "in", ["z"])]
    ),
)
def test_a_restricted_document_lists_what_one_with_the_visible_texts_does(texts, where):
    """Hidden documents change nothing: neither the list nor what grep, read, outline and related
    find.
    """
    sizes = {"x": "tea", "y": "tea tea", "z": "tea"}

    def made(names):
        docs = Document(doc_fields=LABELS)
        if names:
            metadata = {name: {"labels": [texts[name]]} for name in names}
            docs.add_texts({name: sizes[texts[name]] for name in names}, metadata=metadata)
        docs.activate_group("FineChunk")
        return docs

    view = made(texts).restricted(where)
    alone = made([one.id for one in view.documents()])
    assert {(one.id, one.labels) for one in view.documents()} == {
        (one.id, one.labels) for one in alone.documents()
    }
    assert ids(view.documents()) == [node.path for node in view.get_nodes()] or "\ud800" in "".join(
        texts
    )
    assert grep(view, "tea") == grep(alone, "tea")
    for name in texts:
        if name in ids(alone.documents()):
            assert (view.read(name), outline(view, name)) == (
                alone.read(name),
                outline(alone, name),
            )
        else:
            for read in (
                lambda: view.documents(ids=[name]),  # noqa: B023
                lambda: view.read(name),  # noqa: B023
                lambda: outline(view, name),  # noqa: B023
            ):
                with pytest.raises(DatasetPathError, match="no document"):
                    read()
    for node in alone.get_nodes("FineChunk"):
        found = [(one.uid, one.score) for one in related(view, node.uid)]
        assert found == [(one.uid, one.score) for one in related(alone, node.uid)]


def test_a_filter_reads_declared_and_built_in_fields(docs):
    """Declared fields as the nodes have them, defaults and later metadata included, and built-in
    ones.
    """
    assert ids(docs.documents(where={"year": 2001})) == ["tea"]
    assert ids(docs.documents(where=Condition("year", "!=", 2001))) == ["coffee", "water"]
    assert ids(docs.documents(where={"file_size": len(TEXTS["water"])})) == ["water"]
    both = Condition("file_type", "==", ".txt") & ~Condition("labels", "in", ["a"])
    assert ids(docs.documents(where=both)) == ["coffee", "water"]
    docs.update_metadata({"tea": {"labels": ["c"]}, "coffee": {"labels": ["a"]}})
    assert ids(docs.documents(where={"labels": "a"})) == ["coffee"]
    assert docs.documents(ids=["tea"])[0].labels == ("c",)
    fields = {"kind": DocField(DataType.VARCHAR, default_value="plain")}
    other = Document(doc_fields=fields)
    other.add_texts({"tea": "tea"})
    assert ids(other.documents(where={"kind": "plain"})) == ["tea"]


@pytest.mark.parametrize(
    ("arguments", "keyword"),
    [
        ({"limit": 0}, "limit"),
        ({"after": 3}, "after"),
        ({"status": "DONE"}, "SUCCESS"),
        ({"where": {"kind": 1}}, "kind"),
        ({"offset": 3}, "offset"),
    ],
)
def test_arguments_of_a_list_are_checked(docs, arguments, keyword):
    """The error names the argument, or what is known."""
    with pytest.raises(ConfigError, match=keyword):
        docs.documents(**arguments)


# Versions


def test_a_diff_says_what_was_added_removed_and_moved(docs):
    """By group, and by line for the text; what stays in its order is left out, wherever it is."""
    docs.add_texts({"tea": "white tea\nblack tea\ngreen tea"})
    docs.add_texts({"tea": "white tea\n\ngreen tea"})
    diff = docs.versions.diff("tea", 1, 2)
    changed = (ChangedText("white tea", None, 1), ChangedText("green tea", 1, 3))
    assert diff.groups == {"line": changed, LAZY_ROOT_NAME: changed}
    assert docs.versions.diff("tea", 2).groups["line"] == (ChangedText("black tea", 2, None),)
    assert (
        docs.versions.diff("tea", 2, 2).groups["line"]
        == docs.versions.diff("tea", 3).groups["line"]
        == ()
    )
    assert "line: 1 added, 0 removed, 1 moved" in str(diff)
    docs.versions.rollback("tea", 1)
    assert docs.versions.diff("tea", 1).groups["line"] == ()


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_a_diff_leads_from_one_version_to_the_other(before, after):
    """Without what was removed and moved, the lines of both versions that remain are the same, in
    the same order.
    """
    docs = Document(keep_versions=1)
    for lines in (before, after):
        docs.add_texts({"a": "\n".join(["first", *lines, "last"])})
    changes = docs.versions.diff("a", 1).groups[LAZY_ROOT_NAME] if before != after else ()
    gone = {one.before for one in changes}
    come = {one.after for one in changes}
    rest = [text for number, text in enumerate(before, 2) if number not in gone]
    assert rest == [text for number, text in enumerate(after, 2) if number not in come]
    assert all(after[one.after - 2] == one.text for one in changes if one.after is not None)
    assert all(before[one.before - 2] == one.text for one in changes if one.before is not None)


def test_only_stored_and_visible_versions_are_compared(docs):
    """Neither a version that was never there nor one that a restricted Document hides."""
    docs.add_texts({"tea": "blue tea"}, metadata={"tea": {"labels": ["b"]}})
    with pytest.raises(ConfigError, match=r"Version 7 .* not stored"):
        docs.versions.diff("tea", 7)
    assert docs.restricted({"labels": "b"}).versions.diff("tea", 1).groups["line"]
    docs.add_texts({"tea": "red tea"}, metadata={"tea": {"labels": ["c"]}})
    view = docs.restricted({"labels": "c"})
    assert [one.number for one in view.versions.list("tea")] == [3]
    assert [one.number for one in docs.restricted({"labels": ["b", "c"]}).versions.list("tea")] == [
        1,
        2,
        3,
    ]
    with pytest.raises(ConfigError, match=r"Version 1 .* not stored"):
        view.versions.diff("tea", 1)
    with pytest.raises(DatasetPathError, match="no document"):
        view.versions.list("coffee")
    with pytest.raises(DatasetPathError, match="no document"):
        docs.restricted({"labels": "a"}).versions.diff("tea", 1)


# What agents read


def test_outline_and_read(tmp_path):
    """Headings with spans; the text of a span, which may reach beyond the end."""
    (tmp_path / "tea.md").write_text("# Tea\n\nGreen.\n\n## Water\n\n80 degrees.\n")
    docs = Document(tmp_path)
    tea, water = outline(docs, "tea.md")
    assert (tea.kind, tea.label, water.label) == ("heading", "Tea", "Tea > Water")
    assert docs.read("tea.md", (water.start, water.end)).split() == [
        "##",
        "Water",
        "80",
        "degrees.",
    ]
    assert docs.read("tea.md")[water.start :] == docs.read("tea.md", (water.start, 10_000))
    assert docs.read("tea.md", (9_000, 10_000)) == ""
    for span in ((5, 2), (-1, 3), 7, (1, 2, 3)):
        with pytest.raises(ConfigError, match="span"):
            docs.read("tea.md", span)
    for read in (
        lambda: docs.read("coffee.md"),
        lambda: outline(docs, "coffee.md"),
        lambda: docs.documents(ids=["coffee.md"]),
    ):
        with pytest.raises(DatasetPathError, match="no document"):
            read()


def test_grep_finds_literal_texts(docs):
    """With span, line and location, by document; special characters are no pattern."""
    docs.add_texts({"a": "x" * 5_000 + "\nWhat (is) 绿茶 .*?\n"})
    [found] = grep(docs, "(is) 绿茶 .*?")
    assert docs.read("a", found.span) == "(is) 绿茶 .*?"
    assert (found.path, found.line, found.location) == ("a", "What (is) 绿茶 .*?", "line 2")
    assert [(one.path, one.span) for one in grep(docs, "TEA", ignore_case=True)] == [
        ("tea", (6, 9)),
        ("tea", (16, 19)),
    ]
    assert grep(docs, "TEA") == grep(docs, "tea", {"labels": "c"}) == []
    assert len(grep(docs, "tea", {"labels": "a"}, limit=1)) == 1
    many = Document()
    many.add_texts({f"{number:03}": f"text {number % 2}" for number in range(100)})
    assert [one.path for one in grep(many, "text 1")] == [
        f"{number:03}" for number in range(1, 100, 2)
    ]
    assert [one.path for one in grep(many, "text", limit=40)] == [
        f"{number:03}" for number in range(40)
    ]
    assert len(grep(docs, "xxxx", limit=1)[0].line) < 500
    for text, keyword in (("", "text"), (" ", "text"), ("x" * 1_001, "1000")):
        with pytest.raises(ConfigError, match=keyword):
            grep(docs, text)


def test_grep_ignores_what_nobody_sees():
    """Soft hyphens and decomposed accents, in text and query; a query of nothing else is
    literal.
    """
    docs = Document()
    text = "Der Ku\u0308hl\u00adschrank, Straße: kühl"
    docs.add_texts({"a": text, "b": "teapot"})
    for query in ("Kühlschrank", "Ku\u0308hlschrank", "Kühl\u200bschrank"):
        [match] = grep(docs, query)
        assert text[slice(*match.span)] == "Ku\u0308hl\u00adschrank"
    assert [text[slice(*one.span)] for one in grep(docs, "KÜHL", ignore_case=True)] == [
        "Ku\u0308hl\u00ad",
        "kühl",
    ]
    assert [one.path for one in grep(docs, "tea\u00adpot")] == ["b"]
    assert [one.span for one in grep(docs, "\u00ad")] == [(9, 10)]


def test_grep_takes_linear_time_and_keeps_places():
    """A text that begins everywhere and ends nowhere takes no time; a letter that grows in lower
    case moves no span.
    """
    docs = Document()
    docs.add_texts({"a": "a" * 2_000_000, "b": "İstanbul ISTANBUL istanbul"})
    began = time.process_time()
    assert grep(docs, "a" * 999 + "b", ignore_case=True) == grep(docs, "a" * 999 + "b") == []
    assert time.process_time() - began < 5.0
    found = grep(docs, "Istanbul", ignore_case=True)
    assert [docs.read("b", one.span) for one in found] == ["ISTANBUL", "istanbul"]
    with pytest.raises(ConfigError, match="limit"):
        grep(docs, "a", limit=1_001)


def test_related_nodes_share_vectors_or_terms(docs):
    """Nearest first and without the node itself: by stored vectors, else by terms."""
    green = docs.get_nodes("line")[2]
    assert [node.text for node in related(docs, green.uid)] == ["black tea"]
    letters = Letters()
    embedded = Document(embed=letters)
    embedded.create_node_group("line", transform=str.splitlines)
    embedded.add_texts({"a": "rose\narose\nnnnnn\nnosy roe"})
    embedded.activate_group("line")
    assert letters.calls == []
    assert related(embedded, embedded.get_nodes("line")[0].uid) == []
    embedded.activate_group("line", embed_keys=embedded.reader.embed_keys)
    calls = len(letters.calls)
    found = related(embedded, embedded.get_nodes("line")[0].uid, topk=2)
    assert [node.text for node in found] == ["arose", "nosy roe"]
    assert found[0].score > found[1].score > 0.5
    assert len(letters.calls) == calls


def test_related_needs_a_visible_node(docs):
    """An unknown uid and one that a restricted Document hides raise the same error."""
    hidden = docs.get_nodes("line")[0].uid
    for view, uid in ((docs, "0" * 32), (docs.restricted({"labels": "a"}), hidden)):
        with pytest.raises(StaleNodeError, match=r"There is no node '\w+'\. Retrieve"):
            related(view, uid)
    with pytest.raises(ConfigError, match="topk"):
        related(docs, hidden, 0)


@pytest.mark.parametrize(
    ("message", "detail", "remedy"),
    [
        ("topk must be an integer >= 1; got 0.", "topk must be an integer >= 1; got 0.", ""),
        ("It is closed. Open it first.", "It is closed.", "Open it first."),
        (
            "No 'bm26'. Known: bm25. Did you mean 'bm25'?",
            "No 'bm26'.",
            "Known: bm25. Did you mean 'bm25'?",
        ),
        (
            "It has 3.5 parts, e.g. Use. It may be damaged.",
            "It has 3.5 parts, e.g. Use. It may be damaged.",
            "",
        ),
        (
            "It failed. The host answered 500. Try again later.",
            "It failed. The host answered 500.",
            "Try again later.",
        ),
        ("", "", ""),
    ],
)
def test_the_way_out_is_a_field_of_its_own(message, detail, remedy):
    """It begins with the first sentence that is an instruction."""
    assert ErrorInfo.from_message("X", message) == ErrorInfo("X", detail, remedy)


@pytest.mark.parametrize("function", [grep, outline, related, near_duplicates, marks, page_image])
@pytest.mark.parametrize("docs", ["corpus", None, Document])
def test_functions_of_a_document_refuse_anything_else(function, docs):
    """A folder, the class and None have no nodes."""
    arguments = {"span": (0, 1), "page": 1, "text": "tea", "path": "tea", "uid": "tea"}
    expected = inspect.signature(function).parameters
    with pytest.raises(ConfigError, match=r"^docs must be a Document; got"):
        function(docs, **{name: arguments[name] for name in arguments if name in expected})
