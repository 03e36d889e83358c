"""One index of a folder for the command line and for Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lazyrag
from lazyrag import Document
from lazyrag.cli.commands import run as run_command
from lazyrag.errors import ConfigError, DatasetPathError, StoreError, UnknownKeywordError


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one file, which is the current one."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tea.txt").write_text("The tea arrives on Monday.", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that returns the output of a command that succeeds."""

    def command(*arguments: str) -> str:
        capsys.readouterr()
        assert run_command(list(arguments)) == 0
        return capsys.readouterr().out

    return command


def test_the_command_line_finds_what_python_made(notes, run):
    """And Python what the command line made; nothing is loaded twice."""
    with lazyrag.open(notes) as docs:
        assert [node.path for node in docs.search("tea")] == ["tea.txt"]
    assert "tea.txt" in run("search", "tea")
    (notes / "coffee.txt").write_text("Coffee is roasted.", encoding="utf-8")
    assert "1 added" in run("sync")
    with lazyrag.open(notes, read_only=True) as docs:
        assert {document.path for document in docs.documents()} == {"tea.txt", "coffee.txt"}
        assert docs.search("coffee")[0].path == "coffee.txt"


def test_settings_are_kept(notes, run):
    """The command line's choice of files is that of the next program."""
    (notes / "draft.md").write_text("# Draft", encoding="utf-8")
    run("index", "--include", "*.txt")
    with lazyrag.open() as docs:
        docs.sync()
        assert [document.path for document in docs.documents()] == ["tea.txt"]


def test_a_document_in_memory_names_the_stored_index(notes):
    """In its report, in one line; one with a store of its own says nothing."""
    docs = Document(notes)
    docs.sync()
    assert "lazyrag.open" not in str(docs.last_report)
    with lazyrag.open(notes):
        pass
    docs = Document(notes)
    docs.sync()
    [line] = [line for line in str(docs.last_report).splitlines() if "lazyrag.open" in line]
    assert ".lazyrag" in line
    with lazyrag.open(notes) as docs:
        docs.sync()
        assert "lazyrag.open" not in str(docs.last_report)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"folder": "missing"}, DatasetPathError, "missing"),
        ({"folder": "tea.txt"}, DatasetPathError, "folder"),
        ({"folder": 5}, ConfigError, "path"),
        ({"embed": len}, ConfigError, "Document"),
        ({"embed": "no-such-model"}, ConfigError, "model fetch"),
        ({"read_only": True}, StoreError, "lazyrag.open"),
        ({"folder": ""}, ConfigError, "For the current folder pass '.'"),
        ({"embedd": "m"}, UnknownKeywordError, "Did you mean 'embed'?"),
        ({"store_conf": "a.db"}, UnknownKeywordError, r"to Document\(folder, embed, store_conf"),
        ({"ocr": 1}, ConfigError, "ocr"),
    ],
)
def test_mistakes_show_the_way_out(notes, arguments, error, words):
    """And leave no half-made index."""
    with pytest.raises(error, match=words):
        lazyrag.open(**arguments)
    assert not (notes / ".lazyrag" / "config.json").exists()
