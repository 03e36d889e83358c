"""A folder with files and the Documents over it, with a transform and an embed callable that
remember their calls.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from lazyrag import Document, Retriever


class Lines:
    """A transform into lines that fails for texts which hold given words, and remembers its
    calls.
    """

    identity = "lines"

    def __init__(self, *bad):
        """Fail for texts with these words."""
        self.bad = list(bad)
        self.calls = []

    def __call__(self, text):
        """The lines of a text."""
        self.calls.append(text)
        if any(word in text for word in self.bad):
            msg = "cannot be split"
            raise ValueError(msg)
        return text.splitlines()


class Letters:
    """An embed callable that fails for texts which hold given words, and remembers its calls."""

    identity = "letters"
    probe = False

    def __init__(self, *bad, dimension=8):
        """Fail for texts with these words."""
        self.bad = list(bad)
        self.dimension = dimension
        self.calls = []

    def __call__(self, text):
        """How often a text has some letters."""
        self.calls.append(text)
        if any(word in text for word in self.bad):
            msg = f"no vector for {text}"
            raise RuntimeError(msg)
        return self.vector(text)

    def vector(self, text):
        """Without counting."""
        return [text.count(one) + 0.5 for one in "aeinorst"[: self.dimension]]


def conf_of(store):
    """The store_conf of a store file; None stands for memory."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}} if store else None


def asked(docs):
    """Sync; have the lines, their lexical index, and their vectors where there is an embed; the
    sync's report.
    """
    report = docs.sync()
    Retriever(docs, "line", similarity="bm25")("tea")
    if docs.reader.embed_keys:
        Retriever(docs, "line")("tea")
    return report


class Shelf:
    """A folder with files, and Documents with a group of lines over it, on a store file or in
    memory.
    """

    def __init__(self, root, files, *, in_memory=False, **arguments):
        """Write the files; the arguments are those of each Document that is opened without
        others.
        """
        self.root, self.dataset = root, root / "dataset"
        self.store = None if in_memory else root / "store.db"
        self.transform = Lines()
        self.arguments = {"embed": Letters(), "workers": 1, **arguments}
        self.write(files)

    @property
    def embed(self):
        """The embed callable of each Document that is opened without another."""
        return self.arguments["embed"]

    def write(self, files):
        """Write files of the dataset, text or bytes; their paths."""
        paths = [self.dataset / name for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return paths

    def remove(self, *names):
        """Delete files of the dataset."""
        for name in names:
            (self.dataset / name).unlink()

    def open(self, transform=None, store=None, **arguments):
        """A Document, on the shelf's own store unless another is given."""
        docs = Document(
            self.dataset, store_conf=conf_of(store or self.store), **self.arguments | arguments
        )
        docs.create_node_group("line", transform=transform or self.transform)
        return docs

    def rows(self, query):
        """What a query of the store file gives."""
        with closing(sqlite3.connect(self.store)) as connection:
            return connection.execute(query).fetchall()

    def fresh_dump(self, transform=None, **arguments):
        """The dump of a store that is made of what is there now, in one go."""
        with (
            tempfile.TemporaryDirectory() as folder,
            self.open(transform, store=Path(folder, "fresh.db"), **arguments) as docs,
        ):
            asked(docs)
            return list(docs.maintenance.dump())


class ShelfOfWords(Shelf):
    """One whose Documents have a group of words beneath that of lines."""

    def open(self, transform=None, **arguments):
        """A Document with both groups."""
        docs = super().open(transform, **arguments)
        docs.create_node_group("word", transform=lambda text: text.split(), parent="line")
        return docs
