"""Choosing files of a folder: include, exclude, ignore files, what is always left out; and how
reports count it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lazyrag
from lazyrag import Document, FileSelection, IngestReport, migrate
from lazyrag.cli.commands import run as lazyrag_command
from lazyrag.document import Failure
from lazyrag.errors import ConfigError, DatasetPathError, IngestionWarning, LoadError, StoreError

FILES = {
    "a.md": "green tea",
    "b.txt": "black tea",
    "docs/c.md": "white tea",
    "docs/old/d.md": "oolong tea",
    "node_modules/x/e.md": "library",
    "__pycache__/f.txt": "cache",
    "app.min.js": "var a;",
    "env/pyvenv.cfg": "home = /usr",
    "env/g.txt": "environment",
}
TEXTS = ["a.md", "b.txt", "docs/c.md", "docs/old/d.md"]


def paths(docs: Document) -> list[str]:
    """The live documents' paths."""
    return sorted(node.path for node in docs.get_nodes())


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, TEXTS),
        ({"include": ["*.md"]}, ["a.md", "docs/c.md", "docs/old/d.md"]),
        ({"include": ["docs/"]}, ["docs/c.md", "docs/old/d.md"]),
        ({"include": ["/*.md"]}, ["a.md"]),
        ({"exclude": ["old/"]}, ["a.md", "b.txt", "docs/c.md"]),
        ({"exclude": ["docs/*", "!docs/c.md"]}, ["a.md", "b.txt", "docs/c.md"]),
        ({"include": ["*.md"], "exclude": ["docs"]}, ["a.md"]),
        ({"exclude": ["!node_modules/"]}, [*TEXTS, "node_modules/x/e.md"]),
    ],
)
def test_patterns_of_gitignore_choose_files(
    folder, chosen: dict[str, list[str]], expected: list[str]
):
    """As git reads them; a built-in list goes unless a pattern takes a folder back."""
    docs = Document(folder(FILES), files=FileSelection(**chosen))
    assert paths(docs) == expected
    skipped = dict(docs.last_report.skipped)
    assert skipped["env"] == "virtual environment"
    assert skipped["app.min.js"] == "built-in skip list"


def test_ignore_files_nest_and_git_is_asked_only_on_request(folder):
    """A deeper file is stronger; .lazyragignore always counts, .gitignore with use_gitignore."""
    root = folder(
        {
            **FILES,
            ".lazyragignore": "*.txt\n# why\n",
            "docs/.lazyragignore": "old/\n",
            ".gitignore": "a.md\n",
        }
    )
    docs = Document(root)
    assert paths(docs) == ["a.md", "docs/c.md"]
    assert dict(docs.last_report.skipped)["docs/old"] == "excluded by .lazyragignore"
    docs = Document(root, files=FileSelection(use_gitignore=True))
    assert paths(docs) == ["docs/c.md"]
    assert dict(docs.last_report.skipped)["a.md"] == "excluded by .gitignore"
    (root / "docs" / ".lazyragignore").write_text("!*.txt\n\\\n[z-a]\n", encoding="utf-8")
    (root / "docs" / "e.txt").write_text("puer tea", encoding="utf-8")
    docs = Document(root)
    assert paths(docs) == ["a.md", "docs/c.md", "docs/e.txt", "docs/old/d.md"]
    for number, pattern in ((2, r"'\\'"), (3, "'[z-a]'")):
        reason = f"line {number} of docs/.lazyragignore is no pattern of gitignore: {pattern}. Correct or remove it"
        assert ("docs/.lazyragignore", reason) in docs.last_report.skipped
    (root / "docs" / ".lazyragignore").unlink()
    (root / "docs" / ".lazyragignore").mkdir()
    with pytest.raises(ConfigError, match=r"docs.\.lazyragignore cannot be read .*or remove it"):
        docs.sync()


def test_a_folder_named_gitignore_excludes_nothing(folder):
    """It is left out as hidden, and the rest is read."""
    files = {"a.md": "green tea", ".gitignore/b.md": "black tea"}
    docs = Document(folder(files), files=FileSelection(use_gitignore=True))
    assert paths(docs) == ["a.md"]


def test_the_choice_is_stored_and_another_choice_deletes(folder, tmp_path: Path):
    """The next program sees the same files; what is no longer chosen is deleted, however much it
    is.
    """
    root = folder({f"{number}.{suffix}": "tea" for number in range(12) for suffix in ("md", "txt")})
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "store" / "tea.db"}}}
    (tmp_path / "store").mkdir()
    with Document(root, store_conf=conf) as docs:
        assert len(paths(docs)) == 24
    with Document(
        root, store_conf=conf, files=FileSelection(include=["*.md"], exclude=["1*"])
    ) as docs:
        report = docs.sync()
        assert (len(report.deleted), report.withheld) == (15, ())
    with Document(root, store_conf=conf) as docs:
        assert paths(docs) == ["0.md", *(f"{number}.md" for number in range(2, 10))]
        assert docs.last_report.deleted == ()
    with Document(root, store_conf=conf, files=FileSelection(include=[], exclude=[])) as docs:
        assert len(docs.sync().added) == 15
    (tmp_path / "store" / "tea.db.selection").write_text("[", encoding="utf-8")
    with pytest.raises(StoreError, match="pass include="):
        Document(root, store_conf=conf)


@pytest.mark.slow
def test_documents_in_one_store_file_keep_their_own_choice(folder, tmp_path: Path):
    """Each of two open Documents stores its own, after the other was opened."""
    root = folder({"a.md": "tea", "b.txt": "tea", "c.rst": "tea"})
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "tea.db"}}}
    with (
        Document(root, name="a", store_conf=conf, files=FileSelection(include=["*.md"])) as first,
        Document(root, name="b", store_conf=conf, files=FileSelection(include=["*.txt"])) as second,
    ):
        assert (paths(first), paths(second)) == (["a.md"], ["b.txt"])
    for name, expected in (("a", ["a.md"]), ("b", ["b.txt"])):
        with Document(root, name=name, store_conf=conf) as docs:
            assert paths(docs) == expected
            docs.maintenance.export(tmp_path / name)
    moved = {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "moved.db"}}}
    migrate(conf, moved)
    with Document(root, name="b", store_conf=moved) as docs:
        assert paths(docs) == ["b.txt"]
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "copy.db"}}}
    with Document(root, name="a", store_conf=conf) as docs:
        docs.maintenance.import_from(tmp_path / "a")
        assert docs.sync().added == ()
    with Document(root, name="a", store_conf=conf) as docs:
        assert docs.sync().added == ()
        assert paths(docs) == ["a.md"]


def test_an_ignore_file_that_changes_is_seen_by_the_next_sync(folder):
    """In the same program, where unchanged files are not compared again."""
    root = folder(FILES)
    with Document(root) as docs:
        assert paths(docs) == TEXTS
        docs.sync()
        (root / ".lazyragignore").write_text("docs\n", encoding="utf-8")
        assert docs.sync().deleted == ("docs/c.md", "docs/old/d.md")
        (root / ".lazyragignore").unlink()
        assert docs.sync().added == ("docs/c.md", "docs/old/d.md")


def test_a_folder_never_comes_out_empty_without_a_reason(folder):
    """A warning counts why; the report has each path."""
    with Document(
        folder({"a.md": "tea", ".b.md": "tea"}), files=FileSelection(include=["*.rst"])
    ) as docs:
        with pytest.warns(
            IngestionWarning,
            match="has no files to ingest: .*; 1 skipped: hidden; 1 skipped: not included",
        ):
            assert docs.get_nodes() == []
        assert (
            str(docs.last_report)
            == "0 added, 0 failed, 2 skipped\n  1 skipped: hidden\n  1 skipped: not included"
        )


def test_mistakes_say_what_to_do(folder, tmp_path: Path):
    """A glob, a pattern that is none, a choice without a folder."""
    root = folder(FILES)
    with pytest.raises(
        DatasetPathError, match=r"A glob is not expanded: pass its folder, and files=FileSelection"
    ):
        Document(root / "*.md")
    with pytest.raises(ConfigError, match=r"include must be a list of strings"):
        Document(root, files=FileSelection(include="*.md"))
    with pytest.raises(ConfigError, match=r"exclude must be patterns of gitignore"):
        Document(root, files=FileSelection(exclude=["\\"]))
    with pytest.raises(ConfigError, match="pass dataset_path="):
        Document(root / "a.md", files=FileSelection(include=["*.md"]))


def test_a_report_is_at_most_twelve_lines():
    """Equal failures are one line; long messages are cut; the lists have all."""
    failed = [
        Failure(f"{number}.pdf", "load", LoadError(f"Error {number % 9}. " + "long " * 99))
        for number in range(90)
    ]
    skipped = [(f"{number}.x", f"reason {number % 8}") for number in range(80)]
    lines = str(IngestReport(failed=tuple(failed), skipped=tuple(skipped))).splitlines()
    assert len(lines) <= 12
    assert lines[0] == "0 added, 90 failed, 80 skipped"
    assert lines[1] == "  10 skipped: reason 0"
    assert lines[6].startswith("  failed: 0.pdf and 9 more (load): Error 0. long")
    assert max(map(len, lines)) < 320


def test_a_new_index_in_a_git_work_tree_applies_gitignore(folder, capsys) -> None:
    """Of the command line and of `lazyrag.open`, unless that is chosen; an index that exists and a
    Document in memory keep theirs.
    """
    files = {"a.md": "tea", "build/b.md": "tea", ".gitignore": "build/\n"}
    root = folder(files)
    assert lazyrag_command(["index", str(root), "--store", str(root.parent / "before")]) == 0
    assert "2 added" in capsys.readouterr().out
    (root / ".git").mkdir()
    assert lazyrag_command(["index", str(root), "--store", str(root.parent / "before")]) == 0
    assert "2 unchanged" in capsys.readouterr().out
    assert lazyrag_command(["index", str(root), "--plan"]) == 0
    assert "excluded by .gitignore; read with --no-gitignore" in capsys.readouterr().out
    with lazyrag.open(root) as docs:
        assert len(docs.search("tea")) == 1
        assert dict(docs.last_report.skipped)["build"] == "excluded by .gitignore"
    assert lazyrag_command(["index", str(root), "--no-gitignore"]) == 0
    with lazyrag.open(root) as docs:
        assert len(docs.search("tea")) == 2
    assert len(Document(root).search("tea")) == 2
