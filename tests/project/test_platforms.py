"""What differs between systems, as far as one of them can show it: missing modules, encodings,
names, flushes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

from lazyrag import Document
from lazyrag.stores.config import StoreConf
from lazyrag.stores.milvus import MilvusVectorStore
from tests.interpreter import ROOT, python

WITHOUT_POSIX = """
import importlib, pkgutil, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # as on Windows
import lazyrag
for module in pkgutil.walk_packages(lazyrag.__path__, "lazyrag."):
    # The plug-in belongs to pytest, and the SDK of MCP decides by the system.
    if not module.name.startswith(("lazyrag.testing", "lazyrag.server.mcp", "lazyrag.__main__")):
        importlib.import_module(module.name)
from pathlib import Path
folder, store = sys.argv[1:]
conf = {"segment_store": {"type": "map", "kwargs": {"uri": store}}}
for _ in range(2):
    with lazyrag.Document(folder, store_conf=conf) as docs:
        assert len(docs.sync().failed) == 0
        assert [hit.path for hit in docs.search("oolong")] == ["tea.txt"]
        assert docs.maintenance.verify() == ()
"""

FULL_FLUSH = """
import fcntl, sys
calls = []
fcntl.F_FULLFSYNC = 51  # of macOS
flush = fcntl.fcntl
def recorded(descriptor, command, *rest):
    if command != 51:
        return flush(descriptor, command, *rest)
    calls.append(descriptor)
    if sys.argv[2] == "refused":
        raise OSError(45, "Operation not supported")
fcntl.fcntl = recorded
import numpy as np
from lazyrag.stores.sqlite import StoreFile
with StoreFile(sys.argv[1]) as file:
    file.arrays.write({"rows": np.arange(6)})
    with file.writing() as connection:
        connection.execute("INSERT INTO segment_collection (name, schema) VALUES ('a', '{}')")
        assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
        assert connection.execute("PRAGMA checkpoint_fullfsync").fetchone() == (1,)
    file.flush()
assert len(calls) >= 2, calls
"""

# Terminals: UTF-8, the C locale of a container, and the code pages of Windows in Europe and China.
TERMINALS = (
    {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"},
    {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp936"},
    {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
)
NAMES = (
    "a b.txt",
    "CON.txt",
    "aux",
    "trailing dot.",
    "back\\slash.txt",
    "C:colon.txt",
    "quote'\"<>|?*.txt",
    "percent%20.txt",
    "new\nline.txt",
    "\u00e9.txt",  # in composed form: names compare in NFC
    "茶" * 80 + ".txt",  # 244 bytes; 255 are the most
    "🍵.txt",
)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A file in a folder."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "tea.txt").write_text(
        "Oolong tea wants 90 degrees. 乌龙茶要九十度。", encoding="utf-8"
    )
    return tmp_path / "files"


@pytest.mark.slow
def test_it_works_without_the_modules_of_posix(folder):
    """All modules are imported, and a Document is stored, searched and opened again."""
    done = python("-c", WITHOUT_POSIX, str(folder), str(folder.parent / "store.db"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("answer", ["done", "refused"])
def test_macos_empties_the_cache_of_the_drive(tmp_path, answer):
    """Array files and the log are flushed by F_FULLFSYNC, by SQLite too; where it is refused by
    what there is.
    """
    done = python("-c", FULL_FLUSH, str(tmp_path / "store.db"), answer)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("terminal", TERMINALS, ids=lambda one: " ".join(one.values()))
def test_the_command_line_in_any_terminal(folder, terminal):
    """What a terminal cannot show is a question mark, and nothing fails; files are UTF-8 whatever
    it is.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "PYTHON", "LANG"))
    }
    for command in (["index", "."], ["search", "oolong 乌龙茶"]):
        done = subprocess.run(
            [sys.executable, "-m", "lazyrag", *command],
            check=False,
            capture_output=True,
            cwd=folder,
            env=environment | terminal | {"PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
    assert b"tea.txt" in done.stdout


def test_names_that_other_systems_refuse(tmp_path):
    """Every name that this system has can be indexed, found, exported and imported elsewhere."""
    files = tmp_path / "files"
    files.mkdir()
    for number, name in enumerate(NAMES):
        (files / name).write_text(f"word{number} tea", encoding="utf-8")
    with Document(files) as docs:
        report = docs.sync()
        assert sorted((*report.added,)) == sorted(NAMES), report
        for number, name in enumerate(NAMES):
            assert [hit.path for hit in docs.search(f"word{number}")][:1] == [name]
        docs.maintenance.export(tmp_path / "export")
    exported = [path.name for path in (tmp_path / "export").rglob("*")]
    assert [name for name in exported if not name.isascii() or {*name} & {*'\\:*?"<>|'}] == []


def test_windows_paths_name_files(tmp_path):
    """Paths that a program on Windows joins name the same documents as with forward slashes."""
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "sub" / name).write_text("tea", encoding="utf-8")
    first = PureWindowsPath("sub") / "a.txt"
    with Document(tmp_path, file_metadata={first: {"author": "Li"}}) as docs:
        docs.sync()
        authors = {node.path: node.metadata.get("author") for node in docs.get_nodes()}
        assert authors == {"sub/a.txt": "Li", "sub/b.txt": None}
        assert docs.delete_files([first]).deleted == ("sub/a.txt",)
        assert [node.path for node in docs.search("tea")] == ["sub/b.txt"]


@pytest.mark.parametrize("path", [r"C:\data\tea.db", "C:/data/tea.db", r"\\server\data\tea.db"])
def test_windows_paths_are_no_urls(path):
    """A drive is no scheme, and no host of a server."""
    choice = StoreConf.parse(path).segment
    assert (choice.type, choice.kwargs["uri"]) == ("map", path)
    milvus = {"vector_store": {"type": "milvus", "kwargs": {"uri": path}}}
    assert StoreConf.parse(milvus).vector.kwargs["uri"] == path
    assert not MilvusVectorStore(path).location.is_server


def test_the_store_in_another_case(folder):
    """Where names have no case, the store that is given as Store.DB is listed as store.db, and is
    no document.
    """
    store = folder / "Store.DB"
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
    with Document(folder, store_conf=conf) as docs:
        docs.sync()
    # the same file by another name, as such a system shows it
    (folder / "store.db").hardlink_to(store)
    (folder / "STORE.DB.txt").write_text("not the store's: no such name there", encoding="utf-8")
    with Document(folder, store_conf=conf) as docs:
        report = docs.sync()
        skipped = dict(report.skipped)
        assert [skipped.get(name) for name in ("Store.DB", "store.db")] == [
            "the store's own file"
        ] * 2
        assert docs.maintenance.verify() == ()
        assert sorted({node.path for node in docs.get_nodes("CoarseChunk")}) == [
            "STORE.DB.txt",
            "tea.txt",
        ]
