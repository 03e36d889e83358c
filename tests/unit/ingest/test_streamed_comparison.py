"""A sync compares two streams in order of names; a plain comparison of dictionaries says the same."""

from __future__ import annotations

import os
import shutil
import tempfile
import tracemalloc
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lazyrag import Document, IngestionWarning
from lazyrag.ledger import tree

LONG_AGO = 1_600_000_000
COMPOSED = "caf\u00e9"
DECOMPOSED = "cafe\u0301"
NAMES = (
    "a.txt",
    "A.txt",
    "a/b.txt",
    "a/b/c.txt",
    "a-b.txt",
    "a b/b.txt",
    f"{COMPOSED}.txt",
    f"{DECOMPOSED}.txt",
    f"{COMPOSED}/b.txt",
    f"{DECOMPOSED}/a.txt",
    f"{DECOMPOSED}/b.txt",
    f"{DECOMPOSED}/c.txt",
    "茶/b.txt",
    "\uff21.txt",
    "\U0001f375.txt",
    "no utf-8 \udcff.txt",
)


class World:
    """A folder with a Document, and what is to be known of them."""

    def __init__(self, folder: Path, docs: Document) -> None:
        self.folder = folder
        self.docs = docs
        self.known: dict[str, str] = {}  # contents of the live documents of files
        self.excluded: set[str] = set()
        self.texts: set[str] = set()
        self.clock = LONG_AGO

    def write(self, name: str, content: str) -> None:
        """Write a file, unless a folder or file is in the way."""
        path = self.folder / name
        if path.is_dir() or any(above.is_file() for above in path.parents):
            return
        if path.exists() and path.read_text() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        self.clock += 1
        os.utime(path, (self.clock, self.clock))

    def rename(self, name: str, other: str) -> None:
        """Rename a file."""
        path = self.folder / name
        target = self.folder / other
        if path.is_file() and not target.exists() and not target.parent.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)

    def remove(self, name: str) -> None:
        """Remove a file or folder."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def exclude(self, name: str) -> None:
        """Delete the document of a file."""
        name = unicodedata.normalize("NFC", name)
        if self.known.pop(name, None) is not None:
            self.docs.delete_files([name])
            self.excluded.add(name)

    def add_text(self, name: str) -> None:
        """Add a text of the name of a file."""
        name = unicodedata.normalize("NFC", name)
        if name not in self.known and name.isprintable():
            self.docs.add_texts({name: "a text"})
            self.texts.add(name)
            self.excluded.discard(name)

    def sync(self) -> None:
        """Sync, and compare the reports with a plain comparison."""
        expected = self.compare()
        for dry_run in (True, False):
            report = self.docs.sync(dry_run=dry_run)
            reported = {name: [*getattr(report, name)] for name in expected}
            reported["failed"] = [failure.path for failure in report.failed]
            # a file of the same content in another place on the disk
            reported["unchanged"] = sorted([*report.unchanged, *report.touched])
            assert reported == expected
        for old, new in expected["moved"]:
            self.known[new] = self.known.pop(old)
        for name in expected["deleted"]:
            del self.known[name]
        present, _ = self.present()
        for name in (*expected["added"], *expected["updated"]):
            self.known[name] = present[name]

    def present(self) -> tuple[dict[str, str], list[str]]:
        """The contents by name, and the names that differ from those only by their normal form."""
        contents: dict[str, str] = {}
        others = []
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        raw_names = [path.relative_to(self.folder).as_posix() for path in paths]
        for raw_name in sorted(raw_names):
            name = unicodedata.normalize("NFC", raw_name)
            if name in contents:
                others.append(raw_name)
            else:
                contents[name] = (self.folder / raw_name).read_text()
        return contents, others

    def compare(self) -> dict[str, list]:
        """The report, from dictionaries."""
        present, clashes = self.present()
        skipped = dict.fromkeys(self.excluded & present.keys(), "deleted by delete_files")
        reason = "its name is that of a document that was added singly"
        skipped |= dict.fromkeys(self.texts & present.keys(), reason)
        files = {name: text for name, text in present.items() if name not in skipped}
        both = self.known.keys() & files.keys()
        missing = sorted(self.known.keys() - files.keys())
        new = sorted(files.keys() - self.known.keys())
        moved: dict[str, str] = {}
        for has_same_name in (True, False):
            for name in new:
                for old in missing:
                    is_alike = files[name] == self.known[old]
                    if has_same_name:
                        is_alike = is_alike and Path(name).name == Path(old).name
                    if is_alike and name not in moved and old not in moved.values():
                        moved[name] = old
        lost = [name for name in missing if name not in moved.values()]
        is_withheld = bool(lost) and len(lost) == len(self.known)
        return {
            "added": [name for name in new if name not in moved],
            "updated": sorted(name for name in both if files[name] != self.known[name]),
            "unchanged": sorted(name for name in both if files[name] == self.known[name]),
            "moved": [(moved[name], name) for name in sorted(moved)],
            "deleted": [] if is_withheld else lost,
            "withheld": lost if is_withheld else [],
            "skipped": sorted(skipped.items()),
            "failed": sorted(clashes),
        }


_names = st.sampled_from(NAMES)
_steps = st.one_of(
    st.tuples(st.just("write"), _names, st.sampled_from(["tea", "ink", "milk"])),
    st.tuples(st.just("write"), _names, st.sampled_from(["tea", "ink", "milk"])),
    st.tuples(st.just("rename"), _names, _names),
    st.tuples(st.sampled_from(["remove", "exclude", "add_text"]), _names),
    st.tuples(st.just("sync")),
)


@pytest.mark.filterwarnings("ignore::lazyrag.IngestionWarning")
@settings(deadline=None)
@given(st.lists(_steps, max_size=25))
@example([("write", name, f"tea {number}") for number, name in enumerate(NAMES)] + [("sync",)])
def test_streams_and_dictionaries_agree(steps):
    """Whatever was written, renamed, removed, excluded or added, in pages of two documents."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        Document(folder) as docs,
    ):
        warnings.simplefilter("ignore", IngestionWarning)
        patch.setattr(tree, "_PAGE", 2)
        world = World(Path(folder), docs)
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        world.sync()
        world.sync()


def peak_of_an_unchanged_sync(folder: Path, count: int) -> int:
    """Bytes that a sync of so many files takes at its peak, when nothing has changed."""
    for number in range(count):
        path = folder / f"{number // 50:03}" / f"{number:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"tea {number}")
        os.utime(path, (LONG_AGO, LONG_AGO))
    store = f"{folder}.db"
    with Document(folder, store_conf=store) as docs:
        docs.sync()
    with Document(folder, store_conf=store) as docs:
        docs.status()
        tracemalloc.start()
        try:
            assert len(docs.sync().unchanged) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_an_unchanged_sync_keeps_nothing_but_names(tmp_path):
    """Beyond the pages of documents that are read, a file takes the memory of its name."""
    few = peak_of_an_unchanged_sync(tmp_path / "few", 2_500)
    many = peak_of_an_unchanged_sync(tmp_path / "many", 4_000)
    assert many - few < 1_500 * 200
