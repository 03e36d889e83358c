"""Sources into folders: names, changes, runs that break off, and Documents of such folders."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document, IngestionWarning, Retriever
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.directory import find_files
from lazyrag.sources import CutShort, FailedItem, SourceItem, fetch, metadata_of
from lazyrag.sources.base import MANIFEST, Manifest, file_name, load_items
from tests.interpreter import ROOT


class Listed:
    """A source of what a list says; an exception in it is raised."""

    def __init__(self, *events, name="listed"):
        self.name = name
        self.events = events

    def items(self):
        """All of it."""
        for event in self.events:
            if isinstance(event, BaseException):
                raise event
            yield event


def teas(*texts, **kwargs):
    """A source of records known by their first word."""
    return Listed(*(SourceItem(text.split()[0], text.encode()) for text in texts), **kwargs)


def texts_in(folder):
    """What the dataset's files hold, sorted."""
    return sorted(file.path.read_text() for file in find_files(folder).files)


@given(st.text(), st.text())
def test_file_names_are_safe_and_tell_identities_apart(one, other):
    """Plain ASCII in lower case without separators, never hidden, not too long; equal only for
    equal identities.
    """
    names = [file_name(text, ".txt") for text in (one, other)]
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.") for name in names)
    assert all(not name.startswith((".", "-")) and len(name) <= 85 for name in names)
    assert (names[0] == names[1]) == (one == other)


@pytest.mark.parametrize(
    "identity",
    ["../../etc/passwd", "CON", "nul.txt", ".hidden", "~$lock", "a/b\\c", "\0", "\ud800"],
)
def test_hostile_identities_stay_in_the_folder(identity, tmp_path):
    """Whatever an identity looks like, its file lies in the folder, and is part of the dataset."""
    fetch(Listed(SourceItem(identity, b"tea")), tmp_path / "in")
    assert texts_in(tmp_path / "in") == ["tea"]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_folder_follows_its_source(tmp_path):
    """Added, updated, unchanged and removed items are told apart, and the folder holds what the
    source has.
    """
    assert (
        str(fetch(teas("a 1", "b 1", "c 1"), tmp_path))
        == "3 added, 0 updated, 0 unchanged, 0 removed, 0 failed"
    )
    report = fetch(teas("d 1", "b 2", "a 1"), tmp_path)
    assert (report.added, report.updated, report.unchanged, report.removed) == (
        ("d",),
        ("b",),
        ("a",),
        ("c",),
    )
    assert report.is_complete
    assert texts_in(tmp_path) == ["a 1", "b 2", "d 1"]


def test_unchanged_files_are_not_touched(tmp_path):
    """A file whose item is the same is the same file, with the same time."""
    fetch(teas("a 1", "b 1"), tmp_path)
    before = {file.identity: file.signature for file in find_files(tmp_path).files}
    fetch(teas("a 1", "b 2"), tmp_path)
    after = {file.identity: file.signature for file in find_files(tmp_path).files}
    assert [before[name] == after[name] for name in sorted(before)] == [True, False]


def test_files_that_were_edited_or_deleted_are_made_good(tmp_path):
    """A folder that somebody changed holds after a run what the source has."""
    fetch(teas("a 1", "b 1"), tmp_path)
    one, other = sorted(tmp_path.glob("*.txt"))
    one.write_text("a 7")
    other.unlink()
    report = fetch(teas("a 1", "b 1"), tmp_path)
    assert report.updated == ("a", "b")
    assert texts_in(tmp_path) == ["a 1", "b 1"]


def test_files_of_others_are_left_alone(tmp_path):
    """What no source wrote stays, whatever it is called."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "sub").mkdir()
    fetch(teas("a 1"), tmp_path)
    fetch(Listed(), tmp_path)
    assert texts_in(tmp_path) == ["mine"]
    assert (tmp_path / "sub").is_dir()


@pytest.mark.parametrize(
    ("event", "removed"),
    [
        (CutShort("max_pages"), ()),
        (FailedItem("c", "timeout"), ()),
        (FailedItem("b", "forbidden", transient=False), ()),  # it was there before
        (FailedItem("z", "forbidden", transient=False), ("b",)),
        (FailedItem("b", "404", transient=False, gone=True), ("b",)),
    ],
)
def test_only_what_is_known_to_be_gone_is_removed(event, removed, tmp_path):
    """Limits and failures that may pass keep what was not seen; what was never there, or is gone,
    does not.
    """
    fetch(teas("a 1", "b 1"), tmp_path)
    report = fetch(Listed(*teas("a 2").events, event), tmp_path)
    assert report.updated == ("a",)
    assert report.removed == removed
    assert report.retained == (() if removed else ("b",))
    assert report.is_complete == bool(removed)
    assert texts_in(tmp_path) == (["a 2"] if removed else ["a 2", "b 1"])


def test_a_run_that_breaks_off_removes_nothing(tmp_path):
    """An error of the source goes up; what came before it is there, and the next run goes on from
    it.
    """
    fetch(teas("a 1", "b 1"), tmp_path)
    with pytest.raises(OSError, match="cable"):
        fetch(Listed(*teas("a 2", "c 1").events, OSError("cable")), tmp_path)
    assert texts_in(tmp_path) == ["a 2", "b 1", "c 1"]
    report = fetch(teas("a 2"), tmp_path)
    assert (report.unchanged, report.removed) == (("a",), ("b", "c"))


@pytest.mark.slow
def test_a_killed_run_leaves_whole_files(tmp_path):
    """A program that is killed in the middle of a run leaves no half file and no stranger; the next
    run heals all.
    """
    script = textwrap.dedent("""
        import os, signal, sys
        from lazyrag.sources import SourceItem, fetch
        class Teas:
            name = "listed"
            def items(self):
                for number in range(10):
                    yield SourceItem(str(number), b"%d " % number * 1000)
                os.kill(os.getpid(), signal.SIGKILL)
        fetch(Teas(), sys.argv[1])
    """)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert len(texts_in(tmp_path)) == 10
    report = fetch(
        Listed(*(SourceItem(str(one), b"%d " % one * 1000) for one in range(1, 10))), tmp_path
    )
    assert (len(report.unchanged), report.removed) == (9, ("0",))


class Killed(BaseException):
    """Nothing after this runs, as far as the files are concerned."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("when", ["before", "within", "after"])
@pytest.mark.parametrize("healed", [True, False], ids=["run again", "source changed"])
def test_a_run_may_end_at_every_step(when, healed, tmp_path, monkeypatch):
    """Whatever change of the file system is the last one, each file is whole, and the next run
    heals the rest.
    """
    before, after = teas("a 1", "b 1", "c 1"), teas("a 1", "b 2", "d 1", "e 1")
    steps = [(Path, "replace"), (Path, "write_bytes"), (Path, "unlink"), (Manifest, "_append")]

    def run(folder, last):
        """Run up to a step; returns whether there were fewer."""
        count = 0

        def counted(real):
            def step(self, *args, **kwargs):
                nonlocal count
                count += 1
                if count == last and when == "before":
                    raise Killed
                half = count == last and when == "within" and args and isinstance(args[0], bytes)
                result = real(self, *([args[0][:1]] if half else args), **kwargs)
                if count == last:
                    raise Killed
                return result

            return step

        with monkeypatch.context() as patched:
            for owner, name in steps:
                patched.setattr(owner, name, counted(getattr(owner, name)))
            with contextlib.suppress(Killed):
                fetch(after, folder)
        return count < last

    for last in itertools.count(1):
        folder = tmp_path / str(last)
        fetch(before, folder)
        was_short = run(folder, last)
        assert set(texts_in(folder)) <= {"a 1", "b 1", "c 1", "b 2", "d 1", "e 1"}
        if healed:
            fetch(after, folder)
            assert texts_in(folder) == ["a 1", "b 2", "d 1", "e 1"]
        fetch(teas("a 1"), folder)
        assert texts_in(folder) == ["a 1"]
        if was_short:
            break
    assert last > 10


def test_half_a_line_of_a_killed_run_is_passed_over(tmp_path):
    """The manifest's last line may be half a line."""
    fetch(teas("a 1", "b 1"), tmp_path)
    manifest = tmp_path / MANIFEST
    manifest.write_text(manifest.read_text() + '{"name": "c-')
    report = fetch(teas("a 1"), tmp_path)
    assert (report.unchanged, report.removed) == (("a",), ("b",))


_HEAD = '{"source": "listed", "format": 1}\n'


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "tea\n",
        "[]\n",
        '{"source": "listed"}\n',
        '{"source": "listed", "format": 9}\n',
        _HEAD + "7\n",
        _HEAD + '{"name": "../other.txt", "identity": "x", "metadata": {}}\n',
        _HEAD + '{"name": ".hidden", "identity": "x", "metadata": {}}\n',
    ],
)
def test_a_damaged_manifest_is_an_error(damage, tmp_path):
    """Nothing is guessed: what the folder knew of its files is gone."""
    (tmp_path / MANIFEST).write_text(damage)
    with pytest.raises(LoadError, match=r"damaged|format"):
        fetch(teas("a 1"), tmp_path)


def test_a_folder_has_one_source(tmp_path):
    """Another source would remove the first one's files; both may lie in one dataset, in folders of
    their own.
    """
    fetch(teas("a 1", name="one"), tmp_path / "one")
    with pytest.raises(ConfigError, match="filled from 'one', not from 'other'"):
        fetch(teas("b 1", name="other"), tmp_path / "one")
    fetch(teas("b 1", name="other"), tmp_path / "other")
    assert [metadata_of(tmp_path)(file.path) for file in find_files(tmp_path).files] == [
        {"source": "a"},
        {"source": "b"},
    ]


def test_an_empty_folder_can_be_taken_over(tmp_path):
    """Where a source has no files, such as after a first run that failed, another one may have its
    own.
    """
    with pytest.raises(OSError, match="cable"):
        fetch(Listed(OSError("cable"), name="one"), tmp_path)
    assert fetch(teas("b 1", name="other"), tmp_path).added == ("b",)


def test_two_programs_do_not_fill_a_folder_at_once(tmp_path):
    """The second one is refused; it can go on when the first is done."""

    class Nested:
        name = "listed"

        def items(self):
            with pytest.raises(LoadError, match="Another program fills"):
                fetch(teas("b 1"), tmp_path)
            yield SourceItem("a", b"a 1")

    fetch(Nested(), tmp_path)
    fetch(teas("b 1"), tmp_path)
    assert texts_in(tmp_path) == ["b 1"]


def test_an_identity_that_comes_twice(tmp_path):
    """The same record twice is one; another record of the same identity is a failure that says what
    to do.
    """
    report = fetch(teas("a 1", "a 1"), tmp_path)
    assert (report.added, report.failed) == (("a",), ())
    report = fetch(teas("a 1", "a 2"), tmp_path)
    assert [one.identity for one in report.failed] == ["a"]
    assert "same identity" in report.failed[0].error
    assert texts_in(tmp_path) == ["a 1"]


def test_an_item_of_another_kind_replaces_its_file(tmp_path):
    """A page that was text and is Markdown now is one file, even if the run was cut short."""
    fetch(Listed(SourceItem("a", b"tea", ".txt")), tmp_path)
    report = fetch(Listed(SourceItem("a", b"tea", ".md"), CutShort("limit")), tmp_path)
    assert [file.path.suffix for file in find_files(tmp_path).files] == [".md"]
    assert (report.updated, report.removed, report.retained) == (("a",), (), ())


@pytest.mark.parametrize(
    "wrong",
    [
        SourceItem("", b"x"),
        SourceItem("a", b"x", "txt"),
        SourceItem("a", b"x", "./x"),
        SourceItem(7, b"x"),
        "tea",
    ],
)
def test_items_are_checked(wrong, tmp_path):
    """A source that breaks its contract is told so."""
    with pytest.raises(LoadError, match="A source gave"):
        fetch(Listed(wrong), tmp_path / "in")


@pytest.mark.parametrize("folder", ["", None, 7])
def test_the_folder_is_checked(folder):
    """A folder is a path."""
    with pytest.raises(ConfigError, match="folder"):
        fetch(teas("a 1"), folder)


def test_a_file_is_no_folder(tmp_path):
    """A path to a file is refused."""
    (tmp_path / "file").write_text("tea")
    with pytest.raises(ConfigError, match="is a file"):
        fetch(teas("a 1"), tmp_path / "file")


def test_a_disk_without_room_is_an_error_of_ours(tmp_path, monkeypatch):
    """The error names the folder; the file of before is whole."""
    fetch(teas("a 1"), tmp_path)

    def full(self, _):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(LoadError, match="No space left"):
        fetch(teas("a 2"), tmp_path)
    assert texts_in(tmp_path) == ["a 1"]


def test_metadata(tmp_path):
    """A changed value is an update that leaves the file as it is; a Document's own names get
    another one.
    """
    said = {
        "price": 12,
        "tags": ("green", "new"),
        "file_name": "x",
        "none": None,
        "bad": float("nan"),
    }
    fetch(Listed(SourceItem("a", b"tea", metadata=said)), tmp_path)
    [file] = find_files(tmp_path).files
    metadata = metadata_of(tmp_path)
    assert metadata(file.path) == {
        "source": "a", "price": 12, "tags": ["green", "new"], "item_file_name": "x", "none": None, "bad": None,
    }  # fmt: skip
    assert fetch(Listed(SourceItem("a", b"tea", metadata=said)), tmp_path).unchanged == ("a",)
    assert fetch(Listed(SourceItem("a", b"tea", metadata={"price": 13})), tmp_path).updated == (
        "a",
    )
    assert metadata(file.path) == {"source": "a", "price": 13}
    assert [*find_files(tmp_path).files] == [file]
    assert metadata(tmp_path / "other.txt") is None
    assert metadata(tmp_path.parent / "other.txt") is None


def test_the_manifest_can_be_read_by_people(tmp_path):
    """A line for each file."""
    fetch(teas("b 1", "a 1"), tmp_path)
    head, *lines = (tmp_path / MANIFEST).read_text().splitlines()
    assert json.loads(head) == {"source": "listed", "format": 1}
    assert [json.loads(line)["identity"] for line in lines] == ["a", "b"]


def test_a_document_follows_the_source(tmp_path):
    """Only what changed is read and embedded again, filters use the source's metadata, and hits
    name their item.
    """
    embedded = []

    def embed(text):
        embedded.append(text)
        return [1.0 + text.count(letter) for letter in "aeiou"]

    embed.probe = False

    folder, store = tmp_path / "teas", tmp_path / "store.db"
    fields = {"price": DocField(data_type=DataType.INT32, default_value=0)}

    def item(name, text, price):
        return SourceItem(name, text.encode(), metadata={"price": price})

    def ask(query):
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
        with Document(
            folder,
            embed=embed,
            store_conf=conf,
            doc_fields=fields,
            file_metadata=metadata_of(folder),
        ) as docs:
            docs.create_node_group("whole", transform=lambda text: [text])
            Retriever(docs, "whole", similarity="cosine", topk=1)("tea")
            found = Retriever(docs, "whole", similarity="bm25", topk=3)(
                query, filters={"price": [12, 13]}
            )
            return docs.last_report, [
                (node.global_metadata["source"], node.global_metadata["price"]) for node in found
            ]

    fetch(Listed(item("sencha", "Sencha is green", 12), item("assam", "Assam is black", 9)), folder)
    report, found = ask("green")
    assert (len(report.added), found) == (2, [("sencha", 12)])
    embedded.clear()
    fetch(
        Listed(item("sencha", "Sencha is green", 13), item("assam", "Assam is strong", 9)), folder
    )
    report, found = ask("green")
    assert found == [("sencha", 13)]
    assert embedded == ["Assam is strong", "tea"]
    fetch(Listed(item("assam", "Assam is strong", 12)), folder)
    report, found = ask("strong")
    assert (len(report.deleted), found) == (1, [("assam", 12)])


def test_a_page_with_the_same_text_is_not_embedded_again(tmp_path):
    """Markup that differs at each visit is an update of the file, and none of its nodes."""
    embedded = []

    def embed(text):
        embedded.append(text)
        return [1.0, len(text)]

    embed.probe = False

    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    for token in ("1", "2"):
        page = f"<meta name=token content={token}><p>Sencha</p>".encode()
        report = fetch(Listed(SourceItem("page", page, ".html")), tmp_path / "in")
        with Document(tmp_path / "in", embed=embed, store_conf=conf) as docs:
            docs.create_node_group("whole", transform=lambda text: [text])
            Retriever(docs, "whole", similarity="cosine", topk=1)("tea")
    assert report.updated == ("page",)
    assert embedded == ["Sencha", "tea", "tea"]


def test_loading_without_a_folder():
    """Items as text with both kinds of metadata; what fails is warned of, and the rest is there."""
    page = SourceItem("u", b"<html><title>Tea</title><h1>Green</h1>Sencha", ".html", {"url": "u"})
    source = Listed(
        page, FailedItem("f", "It timed out."), SourceItem("e", b" "), CutShort("the end")
    )
    with pytest.warns(IngestionWarning) as warned:
        [item] = load_items(source)
    assert (item.identity, item.text, item.locations[0].label) == ("u", "Green\n\nSencha", "Green")
    assert item.metadata == {"title": "Tea", "url": "u"}
    told = [str(one.message) for one in warned]
    assert told[0] == "f: It timed out."
    assert told[1].startswith("e: The file holds no text")
    assert told[2] == "listed was cut short: the end"


def test_what_is_no_source_is_told(tmp_path):
    """A text, a class that was not called, an item of text: each is named before anything is
    written.
    """
    for no_source in ("teas", SourceItem, None):
        with pytest.raises(ConfigError, match="source"):
            fetch(no_source, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="folder"):
        metadata_of(5)

    class Texts:
        name = "texts"

        def items(self):
            yield SourceItem("茶", "Sencha")

    with pytest.raises(LoadError, match="the item '茶' with str as content; give bytes"):
        fetch(Texts(), tmp_path / "texts")
