"""What a change costs: which loaders, transforms and embed callables are called for it, and which
are not.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.util
import itertools
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from types import ModuleType
from typing import NamedTuple

import pytest

from lazyrag import DataType, DocField, Document, Retriever, register_loader
from lazyrag.document import open as opening
from tests.interpreter import python

FILES = {
    "a.txt": "green tea\nblack tea",
    "b.txt": "hot coffee\ncold milk",
    "deep/c.txt": "still water\nred wine\ngreen tea",
}
QUESTION = "?tea"  # what begins so is a question, and embedding it is not counted


class Calls(NamedTuple):
    """What was called, in order."""

    loads: list[str]
    transforms: list[tuple[str, str]]
    embeds: list[str]


NOTHING = Calls([], [], [])


def letters(text: str) -> list[float]:
    """A vector for a text."""
    return [float(text.count(one)) for one in "aeinorst"] + [float(len(text))]


class World:
    """A dataset, the stores made of it, and what was called since somebody last looked."""

    def __init__(self, root, monkeypatch):
        """Write the files; count through a module that transforms import when they are called."""
        self.root, self.dataset = root, root / "dataset"
        self.calls = Calls([], [], [])
        self._numbers = itertools.count()
        noon = dt.datetime.now().replace(hour=12, minute=0, second=0)  # noqa: DTZ005  days as the user's clock has them
        self._times = itertools.count(int((noon - dt.timedelta(days=2)).timestamp()))
        counting = ModuleType("counting")
        counting.note = lambda group, text: self.calls.transforms.append((group, text))
        monkeypatch.setitem(sys.modules, "counting", counting)
        for name, text in FILES.items():
            self.write(name, text)

        calls = self.calls

        @register_loader(".txt", replace=True)
        class Loader:
            """Reads text, and notes the file's name."""

            def load(self, path):
                """The text of a file."""
                calls.loads.append(path.name)
                return path.read_text(encoding="utf-8-sig")

        class Embed:
            """An embed callable that says which model it is."""

            identity = "letters"
            probe = False

            def __call__(self, text):
                """The vector of one text."""
                if not text.startswith("?"):
                    calls.embeds.append(text)
                return letters(text)

        self.embed = Embed()

    def write(self, name, content):
        """A file, a while old: what was modified this moment would be hashed for caution."""
        path = self.dataset / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.age(name)

    def age(self, name):
        """Give a file a time of modification of its own, on one day of the past."""
        then = next(self._times)
        os.utime(self.dataset / name, (then, then))

    def transform(self, body, *, name="transform", lead=""):
        """A function that is defined in a file of its own."""
        path = self.root / f"module_{next(self._numbers)}.py"
        path.write_text(f"{lead}def {name}(text):\n{body}", encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)

    def noting(self, group, returned):
        """A transform that notes its calls, and returns an expression of its text."""
        return self.transform(
            f"    import counting\n    counting.note({group!r}, text)\n    return {returned}\n"
        )

    def open(self, store="store.db", transforms=None, **arguments):
        """A Document of three groups: lines, words beneath them, and a whole beside them."""
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(self.root / store)}}}
        docs = Document(
            self.dataset, store_conf=conf, workers=1, **{"embed": self.embed, **arguments}
        )
        made = {
            "line": self.noting("line", "text.splitlines()"),
            "word": self.noting("word", "text.split()"),
            "whole": self.noting("whole", "text.upper()"),
            **(transforms or {}),
        }
        for group, above in (("line", None), ("word", "line"), ("whole", None)):
            keywords = {} if above is None else {"parent": above}
            docs.create_node_group(group, transform=made[group], **keywords)
        return docs

    def brought(self, docs):
        """Bring a Document up to date with all its groups and indexes; what was called for it."""
        self.taken()
        docs.sync()
        Retriever(docs, "word", similarity="bm25")(QUESTION)
        Retriever(docs, "line")(QUESTION)
        Retriever(docs, "whole", similarity="bm25")(QUESTION)
        return self.taken()

    def taken(self):
        """What was called since the last look."""
        taken = Calls(*(list(one) for one in self.calls))
        for one in self.calls:
            one.clear()
        return taken

    def fresh_dump(self, transforms=None, **arguments):
        """The dump of a store that is made of what is there now, in one go."""
        with self.open(f"fresh{next(self._numbers)}.db", transforms, **arguments) as docs:
            self.brought(docs)
            return list(docs.maintenance.dump())


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Files, stores and counters."""
    return World(tmp_path, monkeypatch)


def texts(docs, group):
    """The texts of a group, in order."""
    return [node.text for node in docs.get_nodes(group)]


def test_the_first_time_everything_is_called_once(world):
    """Each file is loaded once, each node transformed once, each distinct text embedded once."""
    with world.open() as docs:
        calls = world.brought(docs)
    assert calls.loads == ["a.txt", "b.txt", "c.txt"]
    assert len(calls.transforms) == 3 + 7 + 3
    lines = {line for text in FILES.values() for line in text.splitlines()}
    assert sorted(calls.embeds) == sorted(lines)


@pytest.mark.slow
def test_restarts_call_nothing(world):
    """Over ten restarts nothing is loaded, transformed or embedded, and counts and dump stay what
    they were.
    """
    with world.open() as docs:
        world.brought(docs)
        dump = list(docs.maintenance.dump())
    rows = row_counts(world.root / "store.db")
    for _ in range(10):
        with world.open() as docs:
            assert world.brought(docs) == NOTHING
            assert list(docs.maintenance.dump()) == dump
        assert row_counts(world.root / "store.db") == rows
    assert dump == world.fresh_dump()


def row_counts(path):
    """How many rows each table of a store file has."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        counted = {name: connection.execute(f'SELECT count(*) FROM "{name}"') for name in tables}  # noqa: S608  our own tables
        return {name: rows.fetchone()[0] for name, rows in counted.items()}


PROCESS = """
import hashlib, json, sys
from lazyrag import Document, Retriever, register_loader
calls = {"loads": 0, "transforms": 0, "embeds": 0}
@register_loader(".txt", replace=True)
class Loader:
    def load(self, path):
        calls["loads"] += 1
        return path.read_text(encoding="utf-8")
def split(text):
    calls["transforms"] += 1
    return text.splitlines()
def embed(text):
    calls["embeds"] += text != "?tea"
    return [float(len(text)), 1.0]
embed.probe = False
conf = {"segment_store": {"type": "map", "kwargs": {"uri": sys.argv[2]}}}
with Document(sys.argv[1], embed=embed, store_conf=conf) as docs:
    docs.create_node_group("line", transform=split)
    found = [Retriever(docs, "line", similarity=one)("?tea") for one in ("bm25", "cosine")]
    dump = hashlib.sha256("".join(docs.maintenance.dump()).encode()).hexdigest()
print(json.dumps([calls, [[(hit.text, hit.score) for hit in one] for one in found], dump]))
"""


@pytest.mark.slow
def test_another_process_calls_nothing(world):
    """A program that is run again answers the same from what the first run stored."""
    arguments = ("-c", PROCESS, str(world.dataset), str(world.root / "store.db"))
    runs = [python(*arguments) for _ in range(2)]
    assert [run.stderr for run in runs] == ["", ""]
    first, second = (json.loads(run.stdout) for run in runs)
    assert first[0] == {"loads": 3, "transforms": 3, "embeds": 6}
    assert second[0] == {"loads": 0, "transforms": 0, "embeds": 0}
    assert first[1:] == second[1:]


def test_editing_a_leaf_transform(world):
    """No loader and no other transform is called, and nothing is embedded; the group holds what the
    edit gives.
    """
    with world.open() as docs:
        world.brought(docs)
    edited = {"word": world.noting("word", "text.upper().split()")}
    with world.open(transforms=edited) as docs:
        calls = world.brought(docs)
        assert {group for group, _ in calls.transforms} == {"word"}
        assert len(calls.transforms) == 7
        assert (calls.loads, calls.embeds) == ([], [])
        assert texts(docs, "word")[:4] == ["GREEN", "TEA", "BLACK", "TEA"]
        assert list(docs.maintenance.dump()) == world.fresh_dump(edited)


def test_editing_an_embedded_leaf_embeds_changed_texts_only(world):
    """Of what an edited transform returns, only texts that were not there before are embedded."""

    def ask(docs):
        world.taken()
        Retriever(docs, "word")(QUESTION)
        return world.taken()

    with world.open() as docs:
        ask(docs)
    edited = {"word": world.noting("word", "[one.replace('tea', 'chai') for one in text.split()]")}
    with world.open(transforms=edited) as docs:
        calls = ask(docs)
        assert (calls.loads, calls.embeds) == ([], ["chai"])
        assert {group for group, _ in calls.transforms} == {"word"}


def test_editing_a_transform_without_a_cache_of_embeddings(world):
    """Unchanged texts of a changed file keep their vectors even where the file of embeddings was
    deleted.
    """
    with world.open() as docs:
        world.brought(docs)
    for path in world.root.glob("store.db.embeddings*"):
        path.unlink()
    world.write("a.txt", "green tea\nwhite tea")
    with world.open() as docs:
        assert world.brought(docs).embeds == ["white tea"]
        assert list(docs.maintenance.dump()) == world.fresh_dump()


def test_editing_a_transform_in_the_middle(world):
    """It is called, and what stands beneath it; what stands beside it is not, and nothing is
    loaded.
    """
    with world.open() as docs:
        world.brought(docs)
    edited = {"line": world.noting("line", "text.replace('milk', 'cream').splitlines()")}
    with world.open(transforms=edited) as docs:
        calls = world.brought(docs)
        assert {group for group, _ in calls.transforms} == {"line", "word"}
        assert (calls.loads, calls.embeds) == ([], ["cold cream"])
        assert list(docs.maintenance.dump()) == world.fresh_dump(edited)


BODY = "    import counting\n    counting.note('line', text)\n    return text.splitlines()\n"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("lead", "body"),
    [
        ("", BODY),
        ("# A comment above it.\n\n\n", BODY.replace("return", "# Why: because.\n    return")),
        ("", '    """What it does."""\n' + BODY),
        (
            "import os\n\n\n",
            BODY.replace("return text.splitlines()", "return (\n        text.splitlines()\n    )"),
        ),
        ("", BODY.replace("'", '"')),
        ("", BODY.replace("\n    ", "\n\n    ")),
    ],
    ids=["as it was", "comments", "docstring", "layout", "quotes", "empty lines"],
)
def test_layout_rebuilds_nothing(world, lead, body):
    """Comments, docstrings and layout of a transform are no edit of it, in a new program and in a
    notebook's cell.
    """
    before = {"line": world.transform(BODY)}
    with world.open(transforms=before) as docs:
        world.brought(docs)
        dump = list(docs.maintenance.dump())
    laid_out = world.transform(body, lead=lead)
    with world.open(transforms={"line": laid_out}) as docs:
        assert world.brought(docs) == NOTHING
        docs.create_node_group("line", transform=world.transform(BODY), replace=True)
        assert world.brought(docs) == NOTHING
        assert list(docs.maintenance.dump()) == dump


def test_an_edited_constant_is_an_edit(world):
    """What layout does not do, one changed letter of the code does."""
    with world.open(transforms={"line": world.transform(BODY)}) as docs:
        world.brought(docs)
    edited = {"line": world.transform(BODY.replace("splitlines()", "splitlines(True)"))}
    with world.open(transforms=edited) as docs:
        assert {group for group, _ in world.brought(docs).transforms} == {"line", "word"}


def test_editing_metadata(world):
    """What is said of a file costs no transform of texts and no embedding, and filters see it at
    once.
    """
    with world.open(file_metadata={"a.txt": {"shelf": "low"}}) as docs:
        world.brought(docs)
    fields = {"shelf": DocField(DataType.VARCHAR, max_size=20)}
    with world.open(file_metadata={"a.txt": {"shelf": "low"}}, doc_fields=fields) as docs:
        world.brought(docs)
    said = {"a.txt": {"shelf": "high"}, "b.txt": {"shelf": "low"}}
    with world.open(file_metadata=said, doc_fields=fields) as docs:
        calls = world.brought(docs)
        assert (calls.transforms, calls.embeds) == ([], [])
        assert set(calls.loads) <= {"a.txt", "b.txt"}
        assert docs.last_report.updated == ("a.txt", "b.txt")
        assert [node.path for node in docs.get_nodes("word", filters={"shelf": "high"})] == [
            "a.txt"
        ] * 4
        hits = Retriever(docs, "line", topk=9)(QUESTION, filters={"shelf": "low"})
        assert {hit.path for hit in hits} == {"b.txt"}
        assert hits[0].global_metadata["shelf"] == "low"
        assert list(docs.maintenance.dump()) == world.fresh_dump(
            file_metadata=said, doc_fields=fields
        )


def test_a_transform_that_sees_metadata_is_called_when_that_changes(world):
    """A function that is given nodes may have looked at what is said of their file: it is called
    for that file.
    """

    def define(docs):
        def shelved(node):
            import counting

            counting.note("shelved", node.path)
            return f"{node.global_metadata.get('shelf')}: {node.text}"

        docs.create_node_group("shelved", transform=shelved, trans_node=True)
        return docs

    with define(world.open(file_metadata={"a.txt": {"shelf": "low"}})) as docs:
        docs.activate_group("shelved")
    world.taken()
    with define(world.open(file_metadata={"a.txt": {"shelf": "high"}})) as docs:
        docs.sync()
        docs.activate_group("shelved")
        assert world.taken().transforms == [("shelved", "a.txt")]
        assert texts(docs, "shelved")[0].startswith("high: green")


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["z.txt", "deep/a.txt", "deeper/still/other.txt"])
def test_a_move_costs_nothing(world, target):
    """A file that lies elsewhere is neither loaded nor transformed nor embedded, and its nodes lie
    there too.
    """
    with world.open() as docs:
        world.brought(docs)
    path = world.dataset / target
    path.parent.mkdir(parents=True, exist_ok=True)
    (world.dataset / "a.txt").rename(path)
    with world.open() as docs:
        assert world.brought(docs) == NOTHING
        report = docs.last_report
        assert (report.moved, report.added, report.deleted) == ((("a.txt", target),), (), ())
        assert target in {hit.path for hit in Retriever(docs, "word", similarity="bm25")("black")}
        assert "a.txt" not in {node.path for node in docs.get_nodes("line")}
        assert list(docs.maintenance.dump()) == world.fresh_dump()


def test_a_moved_folder_costs_nothing(world):
    """Another root of the same files is no change at all: a document is known by its path in the
    dataset.
    """
    with world.open() as docs:
        world.brought(docs)
        dump = list(docs.maintenance.dump())
    shutil.move(world.dataset, world.root / "elsewhere")
    world.dataset = world.root / "elsewhere"
    with world.open() as docs:
        assert world.brought(docs) == NOTHING
        assert len(docs.last_report.unchanged) == 3
        assert list(docs.maintenance.dump()) == dump


def test_a_copied_dataset_costs_nothing(world):
    """Files that were copied, with other inodes and times, are hashed, and that is all."""
    with world.open() as docs:
        world.brought(docs)
    shutil.copytree(world.dataset, world.root / "copy", copy_function=shutil.copyfile)
    world.dataset = world.root / "copy"
    with world.open() as docs:
        assert world.brought(docs) == NOTHING
        assert len(docs.last_report.touched) == 3  # their dates are others


def test_a_touched_file_costs_nothing(world):
    """Another time of modification and the same content is no change."""
    with world.open() as docs:
        world.brought(docs)
    world.age("a.txt")
    world.write("b.txt", FILES["b.txt"])
    with world.open() as docs:
        assert world.brought(docs) == NOTHING
        assert docs.last_report.unchanged == ("a.txt", "b.txt", "deep/c.txt")
        assert list(docs.maintenance.dump()) == world.fresh_dump()


def test_a_file_touched_on_another_day(world):
    """Its date of modification is another, as filters see it; that costs nothing but a look."""
    with world.open() as docs:
        world.brought(docs)
    os.utime(world.dataset / "a.txt", (1_000_000_000, 1_000_000_000))
    with world.open() as docs:
        assert world.brought(docs)[1:] == NOTHING[1:]
        assert list(docs.maintenance.dump()) == world.fresh_dump()


def test_an_edited_file_costs_its_own_calls(world):
    """It alone is loaded and transformed, and of its texts only the new ones are embedded."""
    with world.open() as docs:
        world.brought(docs)
    world.write("b.txt", "hot coffee\nlukewarm milk\nstill water")
    with world.open() as docs:
        calls = world.brought(docs)
        assert calls.loads == ["b.txt"]
        assert [text for group, text in calls.transforms if group == "line"] == [
            "hot coffee\nlukewarm milk\nstill water"
        ]
        assert len(calls.transforms) == 1 + 3 + 1
        assert calls.embeds == ["lukewarm milk"]
        assert docs.last_report.updated == ("b.txt",)
        assert list(docs.maintenance.dump()) == world.fresh_dump()


def test_other_bytes_and_the_same_text(world):
    """A file that is saved again in another encoding is read; its text is as it was, so nothing
    follows.
    """
    with world.open() as docs:
        world.brought(docs)
    world.write("a.txt", b"\xef\xbb\xbf" + FILES["a.txt"].encode())
    with world.open() as docs:
        calls = world.brought(docs)
        assert calls == Calls(["a.txt"], [], [])
        assert list(docs.maintenance.dump()) == world.fresh_dump()
    with world.open() as docs:
        assert world.brought(docs) == NOTHING


def test_an_added_and_a_deleted_file(world):
    """One costs its own calls, the other none."""
    with world.open() as docs:
        world.brought(docs)
    world.write("new.txt", "rose tea")
    with world.open() as docs:
        calls = world.brought(docs)
        assert calls.loads == ["new.txt"]
        assert calls.embeds == ["rose tea"]
        assert len(calls.transforms) == 3
    (world.dataset / "new.txt").unlink()
    with world.open() as docs:
        assert world.brought(docs) == NOTHING
        assert docs.last_report.deleted == ("new.txt",)
        assert list(docs.maintenance.dump()) == world.fresh_dump()


def embed_with(client, calls):
    """An embed callable without a name of its own; its closure holds a client."""

    def embed(text):
        if not text.startswith("?"):
            calls.append(text)
        assert client is not None
        return letters(text)

    embed.probe = False
    return embed


def test_the_closure_of_an_embed_callable_does_not_matter(world):
    """A new client for the same code, in each run, embeds nothing again."""
    with world.open(embed=embed_with(object(), world.calls.embeds)) as docs:
        assert len(world.brought(docs).embeds) == 6
    with world.open(embed=embed_with(object(), world.calls.embeds)) as docs:
        assert world.brought(docs) == NOTHING


def test_the_code_of_an_embed_callable_does(world, monkeypatch):
    """Another function is another model: every text is embedded by it, and the old vectors go."""
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    calls = world.calls.embeds

    def other(text):
        if not text.startswith("?"):
            calls.append(text)
        return [1.0, 2.0, float(len(text))]

    other.probe = False
    with world.open(embed=embed_with(object(), calls)) as docs:
        world.brought(docs)
        assert vector_rows(world) == 7
    with world.open(embed=other) as docs:
        calls_of_other = world.brought(docs)
        assert len(calls_of_other.embeds) == 6
        assert (calls_of_other.loads, calls_of_other.transforms) == ([], [])
        docs.sync()
        assert vector_rows(world) == 7
        assert list(docs.maintenance.dump()) == world.fresh_dump(embed=other)


def test_the_identity_of_an_embed_callable_does(world, monkeypatch):
    """The same code that says it is another model embeds everything anew; one that says so again,
    nothing.
    """
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    with world.open() as docs:
        world.brought(docs)
    type(world.embed).identity = "letters, second edition"
    with world.open() as docs:
        assert len(world.brought(docs).embeds) == 6
        docs.sync()
        assert vector_rows(world) == 7
    with world.open() as docs:
        assert world.brought(docs) == NOTHING


def vector_rows(world):
    """How many vectors a store file holds, live or not."""
    with closing(sqlite3.connect(world.root / "store.db")) as connection:
        return connection.execute("SELECT sum(size) FROM vector_part").fetchone()[0]


def test_other_fields_cost_no_call(world):
    """What filters may read is another matter than what was loaded, transformed and embedded."""
    said = {"a.txt": {"year": 1999}, "b.txt": {"year": 2020}}
    with world.open(file_metadata=said) as docs:
        world.brought(docs)
    fields = {"year": DocField(DataType.INT64)}
    with world.open(file_metadata=said, doc_fields=fields) as docs:
        assert world.brought(docs)._replace(transforms=[]) == NOTHING
        assert {node.path for node in docs.get_nodes("word", filters={"year": 1999})} == {"a.txt"}
        assert list(docs.maintenance.dump()) == world.fresh_dump(
            file_metadata=said, doc_fields=fields
        )
    with world.open(file_metadata=said, doc_fields=fields) as docs:
        assert world.brought(docs) == NOTHING


def test_a_second_embed_key_embeds_for_itself(world):
    """The vectors of the first stay, and nothing is loaded or transformed for the second."""
    one, two = [], []
    with world.open(embed={"one": embed_with(1, one)}) as docs:
        Retriever(docs, "line", embed_keys=["one"])(QUESTION)
    assert len(one) == 6
    world.taken()

    def other(text):
        if not text.startswith("?"):
            two.append(text)
        return [1.0, float(len(text))]

    other.probe = False
    with world.open(embed={"one": embed_with(1, one), "two": other}) as docs:
        Retriever(docs, "line", embed_keys=["one", "two"])(QUESTION)
    assert (len(one), len(two)) == (6, 6)
    assert world.taken() == NOTHING


def test_a_digest_of_the_dump_says_whether_anything_changed(world):
    """Dumps of equal stores are equal letter by letter, and another text is another dump."""
    digests = []
    for name in ("one.db", "two.db"):
        with world.open(name) as docs:
            world.brought(docs)
            digests.append(hashlib.sha256("\n".join(docs.maintenance.dump()).encode()).hexdigest())
    world.write("a.txt", "green tea\nblack tee")
    with world.open("one.db") as docs:
        world.brought(docs)
        digests.append(hashlib.sha256("\n".join(docs.maintenance.dump()).encode()).hexdigest())
    assert digests[0] == digests[1] != digests[2]
