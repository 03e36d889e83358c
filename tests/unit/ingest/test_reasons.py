"""Why files and groups are done again: as a plan expects it, as the report says it, and as the
status shows it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lazyrag import DataType, DocField, Document, IngestionWarning, SentenceSplitter
from lazyrag.transforms import TransformArgs
from tests.shelf import conf_of

CORPUS = Path("cookbook/corpus")


def lines(text):
    """The first release of a transform."""
    return text.splitlines()


def other_lines(text):
    """The next one, under the same name."""
    return [line for line in text.splitlines() if line]


other_lines.__name__ = other_lines.__qualname__ = "lines"


class Embed:
    """An embed callable that remembers the texts that it got."""

    batch_size = 8
    probe = False

    def __init__(self, identity="letters-1"):
        """Be a model of that name."""
        self.identity = identity
        self.texts = []

    def __call__(self, texts):
        """Count letters."""
        self.texts += texts
        return [[one.count(letter) + 0.5 for letter in "aeino"] for one in texts]


class Shop:
    """A folder of files, and Documents over it on one store file."""

    def __init__(self, root):
        """Write the files."""
        self.folder, self.store = root / "files", root / "store.db"
        self.folder.mkdir()
        for name in ("a.txt", "b.txt"):
            (self.folder / name).write_text(f"Tea {name}.\nMore of {name}.\n", encoding="utf-8")
        self.transform, self.kwargs, self.embed = lines, {}, Embed()
        self.arguments, self.reader = {}, None

    def open(self):
        """A Document as the next program would open it."""
        docs = Document(self.folder, self.embed, store_conf=conf_of(self.store), **self.arguments)
        docs.create_node_group("part", transform=self.transform, **self.kwargs)
        if self.reader is not None:
            docs.add_reader("*.txt", self.reader)
        return docs


@pytest.fixture
def shop(tmp_path):
    """Two files."""
    return Shop(tmp_path)


def build(docs):
    """Sync, and build the group with its indexes."""
    docs.sync()
    docs.activate_group("part", embed_keys=docs.reader.embed_keys, analysers=["en"])
    return docs.last_report


def set_day(path, day):
    """Give a file another date; its bytes stay."""
    os.utime(path, (day * 86_400, day * 86_400))


def change_bytes(shop):
    """Write another text."""
    (shop.folder / "a.txt").write_text("White tea.", encoding="utf-8")


def change_date(shop):
    """Touch a file."""
    set_day(shop.folder / "a.txt", 10_000)


def change_reader(shop):
    """Read text files in another way."""
    shop.reader = lambda path: path.read_text(encoding="utf-8").upper()


def change_metadata(shop):
    """Say something else of a file."""
    shop.arguments = {"file_metadata": {"a.txt": {"author": "Lin"}}}


FILES = {
    "bytes": (change_bytes, {"a.txt": "bytes"}),
    "date": (change_date, {"a.txt": "date"}),
    "reader": (change_reader, {"a.txt": "reader", "b.txt": "reader"}),
    "metadata": (change_metadata, {"a.txt": "metadata"}),
}


@pytest.mark.parametrize("cause", FILES)
def test_why_a_file_is_done_again(shop, cause):
    """Plan, dry run and report name the same cause of the same files, and no other ones."""
    change, expected = FILES[cause]
    with shop.open() as docs:
        assert build(docs).reasons == {}  # new files need no reason
    change(shop)
    with shop.open() as docs:
        assert docs.sync(dry_run=True).reasons == expected
        assert docs.plan().files.reasons == expected
        assert docs.sync().reasons == expected
        assert docs.sync().reasons == docs.plan().files.reasons == {}


def test_a_file_that_is_missing(shop):
    """A file whose step failed is done again, as something of it is missing."""

    def picky(text):
        if "b.txt" in text and shop.kwargs["version"] == "1":
            msg = "not this one"
            raise ValueError(msg)
        return text.splitlines()

    shop.transform, shop.kwargs = picky, {"version": "1"}
    with shop.open() as docs:
        with pytest.warns(IngestionWarning, match="failed"):
            build(docs)
        assert docs.plan().files.reasons == {"b.txt": "incomplete"}
        [step] = [one for one in docs.plan().steps if one.step == "transform part"]
        assert (step.documents, step.reason) == (1, "missing")
        with pytest.warns(IngestionWarning, match="failed"):
            assert docs.sync().reasons == {"b.txt": "incomplete"}
        assert "again: 1 incomplete" in str(docs.last_report)


def test_a_file_that_is_asked_for(shop):
    """A file that add_files names is read whether it has changed or not."""
    with shop.open() as docs:
        build(docs)
        assert docs.add_files([shop.folder / "a.txt"]).reasons == {"a.txt": "asked for"}
        change_bytes(shop)
        assert docs.add_files([shop.folder / "a.txt"]).reasons == {"a.txt": "bytes"}


def test_texts_and_metadata(shop):
    """A text that add_texts replaces has other bytes; update_metadata changes metadata."""
    with shop.open() as docs:
        build(docs)
        assert docs.add_texts({"note": "One."}).reasons == {}
        assert docs.add_texts({"note": "One."}).reasons == {"note": "asked for"}
        assert docs.add_texts({"note": "Two."}).reasons == {"note": "bytes"}
        assert docs.update_metadata({"note": {"title": "Notes"}}).reasons == {"note": "metadata"}


def change_code(shop):
    """Edit the transform."""
    shop.transform = other_lines


def change_parameter(shop):
    """Make larger chunks."""
    shop.kwargs = {"chunk_size": 512}


def change_fields(shop):
    """Declare a field to filter by."""
    shop.arguments = {"doc_fields": {"year": DocField(DataType.INT32)}}


def change_model(shop):
    """Embed with another model."""
    shop.embed = Embed("letters-2")


GROUPS = {
    "code of function lines": (change_code, lines, {}),
    "parameter chunk_size: 256 -> 512": (
        change_parameter,
        SentenceSplitter,
        {"chunk_size": 256, "chunk_overlap": 0},
    ),
    "parameter fields": (change_fields, lines, {}),
    "model letters-1 -> letters-2": (change_model, lines, {}),
}


@pytest.mark.parametrize("cause", GROUPS)
def test_why_a_group_is_done_again(shop, cause):
    """Plan, status and report name what of a definition has changed, after the program was started
    anew.
    """
    change, shop.transform, shop.kwargs = GROUPS[cause]
    own = {"chunk_overlap": 0} if shop.kwargs else {}
    with shop.open() as docs:
        report = build(docs)
        assert {*report.rebuilt.values()} == {"missing"}  # was not built yet
        assert "again" not in str(report)
    change(shop)
    shop.kwargs |= own
    step = "embed part with default" if cause.startswith("model") else "transform part"
    with shop.open() as docs:
        assert {one.step: one.reason for one in docs.plan().steps}[step] == cause
        assert f"  why: {cause}" in str(docs.plan()).splitlines()
        [status] = [one for one in docs.status().groups if one.name == "part"]
        assert status.reason == cause
        assert build(docs).rebuilt[step] == cause
        assert f"({cause})" in str(docs.last_report)
        assert len(str(docs.last_report).splitlines()) == 2
        assert all(not one.reason for one in docs.status().groups)
        assert docs.plan().steps == ()


def test_a_group_that_is_asked_for(shop):
    """A definition that replaces one with the same visible code is built again because somebody
    asked for it.
    """
    clients = [object(), object()]

    def transform(number):
        client = clients[number]
        return lambda text: [text, str(client)[:0]]

    shop.transform = transform(0)
    with shop.open() as docs:
        build(docs)
        docs.create_node_group("part", transform=transform(1), replace=True)
        [status] = [one for one in docs.status().groups if one.name == "part"]
        assert status.reason == "asked for"
        assert build(docs).rebuilt["transform part"] == "asked for"


def test_a_parameter_in_a_list_of_transforms(shop):
    """The entry of the list is named, once."""
    for size in (64, 32):
        shop.transform = [
            TransformArgs(SentenceSplitter, kwargs={"chunk_size": size, "chunk_overlap": 0})
        ] * 2
        with shop.open() as docs:
            [reason] = {one.reason for one in docs.status().groups if one.name == "part"} or {""}
            build(docs)
    assert reason == (
        "parameter chunk_size of transform[0]: 64 -> 32, parameter chunk_size of transform[1]: 64 -> 32"
    )


def test_the_group_above(shop):
    """A group below a changed one is built again for the reason of that one, which is named."""
    with shop.open() as docs:
        docs.create_node_group("word", transform=str.split, parent="part")
        build(docs)
        docs.activate_group("word")
    change_code(shop)
    with shop.open() as docs:
        docs.create_node_group("word", transform=str.split, parent="part")
        reasons = {one.name: one.reason for one in docs.status().groups}
    assert reasons["word"] == "code of function lines of part"


def test_secrets_stay_out_of_the_store(shop):
    """A value that may be a secret, or is long, is only a digest in the store; that it has changed
    is still seen.
    """

    def transform(api_key, prompt):
        def parts(
            text, name="x", dsn="pg://u:hush-3@host", bearer="hush-4", other="hush-5", key="hunter"
        ):
            return [
                text,
                api_key[:0],
                prompt[:0],
                name[:0],
                dsn[:0],
                bearer[:0],
                other[:0],
                key[:0],
            ]

        return parts

    shop.transform = transform("hush-1", "p" * 60)
    with shop.open() as docs:
        build(docs)
    for path in shop.store.parent.glob("store.db*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in (b"hush-", b"hunter", b"pppppp") if secret in content]
    shop.transform = transform("hush-2", "p" * 60)
    with shop.open() as docs:
        [reason] = {one.reason for one in docs.plan().steps}
    assert reason == "parameter api_key"


def test_a_store_of_an_earlier_release(shop):
    """A ledger without the parts of definitions says that the definition has changed; the next sync
    stores them.
    """
    import sqlite3

    def forget():
        with sqlite3.connect(shop.store) as connection:
            connection.execute("ALTER TABLE node_group DROP COLUMN definition")
        connection.close()

    with shop.open() as docs:
        build(docs)
    forget()
    shop.transform = other_lines
    with shop.open() as docs:
        assert {one.reason for one in docs.plan().steps} == {"built by an earlier release"}
    shop.transform = lines
    with shop.open() as docs:
        docs.sync()
    shop.transform = other_lines
    with shop.open() as docs:
        assert {one.reason for one in docs.plan().steps} == {"code of function lines"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [120, 400])
def test_a_diff_predicts_the_embeddings(tmp_path, size):
    """For a changed splitter a plan counts chunks as a sync makes them, and embeddings within 5 %,
    without a model.
    """
    folder = tmp_path / "corpus"
    shutil.copytree(CORPUS, folder)
    conf, embed = conf_of(tmp_path / "store.db"), Embed()

    def opened(size):
        docs = Document(folder, embed, store_conf=conf)
        docs.create_node_group("part", transform=SentenceSplitter, chunk_size=size, chunk_overlap=0)
        return docs

    with opened(200) as docs:
        build(docs)
        before = sorted((node.path, node.text) for node in docs.get_nodes("part"))
    (folder / "new.txt").write_text("Oolong is steeped at 95 degrees. " * 30, encoding="utf-8")
    edited = next(iter(sorted(folder.rglob("*.md"))))
    edited.write_text(
        edited.read_text(encoding="utf-8") + "\nOne more sentence stands here.\n", encoding="utf-8"
    )
    next(iter(sorted(folder.rglob("*.txt")))).unlink()
    embed.texts.clear()
    with opened(size) as docs:
        state = (tmp_path / "store.db").read_bytes()
        [diff] = docs.plan(diff=True).diffs
        assert embed.texts == []
        assert (tmp_path / "store.db").read_bytes() == state
        assert docs.plan().diffs == ()
        build(docs)
        after = sorted((node.path, node.text) for node in docs.get_nodes("part"))
    stay = len(before) - len([1 for pair in before if pair not in after])
    assert (diff.group, diff.stay, diff.come, diff.go) == (
        "part",
        stay,
        len(after) - stay,
        len(before) - stay,
    )
    assert diff.come > 20
    assert diff.embed["default"] == pytest.approx(len(embed.texts), rel=0.05)


def test_a_diff_of_nothing_and_of_a_model(shop):
    """Where nothing changes there is no diff; a transform that may call a model is not run for
    one.
    """
    calls = []

    class Model:
        identity = "model-1"

        def chat(self, text):
            calls.append(text)
            return text

    model = Model()
    shop.transform = lambda text: [model.chat(text)]
    with shop.open() as docs:
        build(docs)
        assert docs.plan(diff=True).diffs == ()
        before = len(calls)
        change_bytes(shop)
        assert docs.plan(diff=True).diffs == ()
        assert len(calls) == before > 0
