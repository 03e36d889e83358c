"""Random changes of a Document, some of which fail, against a model of what is live."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
from contextlib import ExitStack, closing, contextmanager

import pytest

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.document import open as opening
from lazyrag.errors import LazyRAGError, StoreError
from lazyrag.ingest import term_index
from tests.earlier_formats import to_format_3

WORDS = ("tea", "milk", "water", "leaf", "cup")
NAMES = tuple("abcdefgh")
COLORS = ("red", "blue")
STATEMENTS = (
    ("INSERT ON term_state", "1"),
    ("UPDATE ON term_state", "1"),
    ("UPDATE ON build", "1"),
    ("UPDATE ON document", "NEW.status <> 'new'"),
    ("UPDATE ON node_group", "1"),
    ("UPDATE ON ledger", "NEW.changes > OLD.changes"),
    ("DELETE ON term_part", "1"),
    ("DELETE ON build", "1"),
)


@contextmanager
def limited(kind, limit):
    """A limit of this process, while something is done."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def no_more_files(_shelf):
    """No file can be opened."""
    free = os.dup(0)
    os.close(free)
    return limited(resource.RLIMIT_NOFILE, free)


def full_disk(shelf):
    """Files do not grow much."""
    log = os.path.getsize(f"{shelf.path}-wal")  # noqa: PTH202
    return limited(resource.RLIMIT_FSIZE, log + shelf.random.choice((0, 20_000, 60_000)))


@contextmanager
def failing_statement(shelf):
    """A statement fails."""
    what, when = shelf.random.choice(STATEMENTS)
    trigger = f"CREATE TRIGGER fault BEFORE {what} WHEN {when} BEGIN"
    shelf.execute(f"{trigger} SELECT RAISE(ABORT, 'disk is full'); END")
    try:
        yield
    finally:
        shelf.execute("DROP TRIGGER fault")


FAULTS = (failing_statement, no_more_files, full_disk)


def lines_of(nodes):
    """Path, number and text of nodes, of which none comes twice."""
    lines = {(node.path, node.number, node.text) for node in nodes}
    assert len(lines) == len(nodes)
    return lines


class Shelf:
    """A store with several readers, and what should be live in it."""

    def __init__(self, path, seed, stack):
        """One that an earlier release may have written, and that a reader has open."""
        self.path = path
        self.stack = stack
        self.random = random.Random(seed)
        self.texts = {}
        self.colors = {}
        self.before = {}  # text and color of the version before the present one
        self.texts = {name: self.text() for name in ("keep", *NAMES[:3])}
        with self.open() as docs:
            docs.add_texts(self.texts)
            self.found(docs, "tea")
        if seed % 2:
            to_format_3(path)
        reader = self.open(read_only=True)
        assert self.found(reader, "tea") == self.expected("tea")
        self.docs = self.open()
        self.readers = [reader, self.open()]

    def open(self, **arguments):
        """Open the store, as another program does."""
        docs = Document(
            store_conf=str(self.path),
            name="shelf",
            doc_fields={"color": DocField(DataType.VARCHAR)},
            keep_versions=1,
            **arguments,
        )
        self.stack.callback(docs.close)
        docs.create_node_group("line", transform=str.splitlines)
        return docs

    # Changes

    def text(self):
        """A text of some lines."""
        lines = self.random.randint(1, 4)
        return "\n".join(" ".join(self.random.choices(WORDS, k=3)) for _ in range(lines))

    def add(self, docs):
        """Add documents, or replace them."""
        names = self.random.sample(NAMES, self.random.choice((1, 1, 3)))
        texts = {name: self.text() for name in names}
        for name, text in texts.items():
            self.note(name, text, self.colors.get(name))
        docs.add_texts(texts)

    def delete(self, docs):
        """Delete documents."""
        names = self.random.sample(NAMES, self.random.choice((1, 1, 2)))
        names = [name for name in names if name in self.texts]
        for name in names:
            del self.texts[name]
            self.colors.pop(name, None)
            self.before.pop(name, None)
        docs.delete_files(names)

    def paint(self, docs):
        """Change the metadata of a document."""
        name = self.random.choice([*self.texts])
        color = self.random.choice(COLORS)
        self.note(name, self.texts[name], color)
        docs.update_metadata({name: {"color": color}})

    def roll_back(self, docs):
        """Make the version before the present one of a document live again."""
        name = self.random.choice([*self.before, "keep"])
        if name in self.before:
            self.texts[name], self.colors[name] = self.before.pop(name)
            docs.versions.rollback(name)

    def note(self, name, text, color):
        """Note the present version of a document."""
        version = self.texts.get(name), self.colors.get(name)
        if name in self.texts and version != (text, color):
            self.before[name] = version
        self.texts[name] = text
        self.colors[name] = color

    def drop(self, docs):
        """Define another group anew, whose nodes are dropped."""
        transform = self.random.choice((str.split, str.splitlines))
        docs.create_node_group("word", transform=transform, replace=True)
        Retriever(docs, "word", similarity="bm25")("tea")

    def compact(self, docs):
        """Purge what is not live."""
        docs.maintenance.compact()

    def reopen(self, docs):
        """Start the program again."""
        if docs is self.docs:
            docs.close()
            self.docs = self.open()

    def step(self):
        """A change by one of two programs, which may fail: then all of it is live, or nothing."""
        docs = self.random.choice((self.docs, self.docs, self.readers[1]))
        change = self.random.choice(
            [self.add] * 4
            + [self.delete, self.paint, self.roll_back] * 2
            + [self.drop, self.compact, self.reopen]
        )
        before = dict(self.texts), dict(self.colors), dict(self.before)
        if change == self.reopen or self.random.random() < 0.6:
            change(docs)
        else:
            fault = self.random.choice(FAULTS)
            try:
                with fault(self):
                    change(docs)
            except (StoreError, OSError):
                try:
                    self.check()
                except AssertionError:
                    self.texts, self.colors, self.before = before
        self.check()

    def execute(self, statement):
        """Run a statement as another program does."""
        with closing(sqlite3.connect(self.path, timeout=30)) as shell:
            shell.execute(statement)

    # Readings

    def found(self, docs, word):
        """Path and text of each hit, once."""
        hits = Retriever(docs, "line", similarity="bm25", topk=1_000)(word)
        return lines_of(hits)

    def expected(self, word=None, color=None):
        """Path, number and text of the lines with a word."""
        lines = set()
        for name, text in self.texts.items():
            if color is not None and self.colors.get(name) != color:
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                if word is None or word in line.split():
                    lines.add((name, number, line))
        return lines

    def check(self):
        """Compare what all readers see with the model."""
        for docs in (self.docs, *self.readers):
            for word in WORDS:
                assert self.found(docs, word) == self.expected(word)
                restricted = docs.restricted({"color": "red"})
                assert self.found(restricted, word) == self.expected(word, "red")
            assert lines_of(docs.get_nodes("line")) == self.expected()
            for color in COLORS:
                nodes = docs.get_nodes("line", filters={"color": color})
                assert lines_of(nodes) == self.expected(color=color)
            listed = {document.path for document in docs.documents() if document.version}
            assert listed == self.texts.keys()
            status = docs.status()
            assert status.documents == len(self.texts)
            [line] = [group for group in status.groups if group.name == "line"]
            assert line.nodes == len(self.expected())


def run(path, seed, steps):
    """Some steps, each followed by a comparison."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(opening, "_GRACE_S", 0.0)
        patch.setattr(term_index, "_SMALL_BYTES", 2_000 * (seed % 3))
        shelf = Shelf(path, seed, stack)
        for number in range(steps):
            try:
                shelf.step()
            except (AssertionError, LazyRAGError) as exc:
                raise AssertionError(f"in step {number} of seed {seed}") from exc
        assert shelf.docs.maintenance.verify() == ()


@pytest.mark.parametrize("seed", range(2))
def test_random_changes(tmp_path, seed):
    """Every reader sees what is live after each of them."""
    run(tmp_path / "store.db", seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_random_changes(tmp_path, seed):
    """The same for longer."""
    run(tmp_path / "store.db", seed, 60)
