"""Real documents of many kinds: each is read right or reported, and none of them hinders the
others.
"""

from __future__ import annotations

import importlib.util
import json
import unicodedata
import warnings
from pathlib import Path

import pytest

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.errors import LoadError
from tests.shared import shared

pytestmark = [pytest.mark.shared, pytest.mark.slow]

READ = (
    *(".txt", ".md", ".html", ".docx", ".pdf", ".csv", ".ndjson", ".ipynb"),
    *(".pptx", ".xlsx", ".eml", ".epub", ".odt", ".xls", ".rtf", ".msg"),
)
"""The formats of this release; the files in JSON are there to fail."""

# Two files are encrypted with AES and an empty password; they open only where the package
# cryptography is installed.
AES = frozenset(["r6-empty-password.pdf", "copy-protected.pdf"])
WITHOUT_AES = importlib.util.find_spec("cryptography") is None


@pytest.fixture(scope="module")
def manifest():
    """What is known of each file, by its name."""
    listed = json.loads(shared("data", "manifest.json").read_text(encoding="utf-8"))["files"]
    return {
        one["file"].removeprefix("docs/"): one for one in listed if one["file"].startswith("docs/")
    }


@pytest.fixture(scope="module")
def folder_and_warnings():
    """The whole folder as one Document whose files are loaded, and the warnings that came."""
    docs = Document(shared("data", "docs"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        docs.get_nodes()
    return docs, caught


@pytest.fixture(scope="module")
def docs(folder_and_warnings):
    """The whole folder as one Document."""
    return folder_and_warnings[0]


def _folded(text: str) -> str:
    """Text under NFKC, with white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _allowed_to_fail(entry: dict, name: str) -> bool:
    """Whether a file need not be read."""
    return entry["error"] is not None or (WITHOUT_AES and name in AES)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", READ)
def test_files_of_a_read_format_hold_their_text(docs, manifest, suffix):
    """Every file that must be read is, with each text that is known to stand in it."""
    texts = {node.path: _folded(node.text) for node in docs.get_nodes()}
    must_read = {
        name: entry
        for name, entry in manifest.items()
        if Path(name).suffix == suffix and not _allowed_to_fail(entry, name)
    }
    assert must_read
    assert sorted(set(must_read) - set(texts)) == []
    lacking = [
        (name, wanted)
        for name, entry in must_read.items()
        for wanted in entry["contains"]
        if _folded(wanted) not in texts[name]
    ]
    assert lacking == []


def test_what_fails_is_allowed_to_and_fails_with_load_error(docs, manifest):
    """Of the read formats only files fail that are broken, empty or locked, each with a LoadError
    that names it.
    """
    failed = [one for one in docs.last_report.failed if Path(one.path).suffix in (*READ, ".json")]
    assert failed
    assert [one.path for one in failed if not _allowed_to_fail(manifest[one.path], one.path)] == []
    assert {type(one.error) for one in failed} == {LoadError}
    assert "media reader" in dict(docs.last_report.skipped)["test_llm.jpg"]
    assert all(Path(one.error.path) == shared("data", "docs", one.path) for one in failed)
    assert {one.stage for one in docs.last_report.failed} == {"load"}


def test_files_that_must_not_yield_text_yield_none(docs, manifest):
    """Empty files, pictures of text and locked files are reported, not indexed with made-up or no
    text.
    """
    unreadable = {
        name
        for name, entry in manifest.items()
        if entry["error"]
        in {"no-text", "parse-error", "password", "unsupported", "no-text-or-parse-error"}
    }
    failed = {one.path for one in docs.last_report.failed}
    skipped = {path for path, _ in docs.last_report.skipped}
    assert len(unreadable) > 10
    assert unreadable <= failed | skipped
    assert {"test_llm.jpg", "empty.txt"} <= skipped


def test_other_formats_are_reported_never_read_as_text(docs, manifest):
    """A file of a format without loader is skipped or fails, with a reason that names its
    suffix.
    """
    others = {name for name in manifest if Path(name).suffix not in (*READ, ".json", ".jpg")}
    reasons = dict(docs.last_report.skipped) | {
        one.path: str(one.error) for one in docs.last_report.failed
    }
    assert others
    assert sorted(others - set(reasons)) == []
    silent = [name for name in others if f"o loader reads {Path(name).suffix}" not in reasons[name]]
    assert silent == []


def test_every_file_is_accounted_for_once(docs, manifest):
    """Each file of the folder stands exactly once in the report: added, failed or skipped."""
    report = docs.last_report
    listed = [
        *report.added,
        *(one.path for one in report.failed),
        *(path for path, _ in report.skipped),
    ]
    on_disk = {
        path.relative_to(shared("data", "docs")).as_posix()
        for path in shared("data", "docs").rglob("*")
    }
    assert sorted(listed) == sorted(on_disk)
    assert set(manifest) <= on_disk


def test_one_warning_for_all_files_that_fail(folder_and_warnings):
    """Loading 76 files of which half fail gives one IngestionWarning, which says how many
    failed.
    """
    docs, caught = folder_and_warnings
    assert [one.category for one in caught] == [IngestionWarning]
    assert str(caught[0].message).startswith(f"{len(docs.last_report.failed)} of ")


def test_each_further_step_warns_once(docs):
    """A group whose transform fails for some of the files gives one IngestionWarning more, and the
    others are in.
    """

    def first_line(text: str) -> str:
        if "Lorem ipsum" in text:
            msg = "no Latin, please"
            raise ValueError(msg)
        return text.strip().splitlines()[0]

    docs.create_node_group("first line", transform=first_line)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nodes = docs.get_nodes("first line")
        docs.get_nodes("first line")
    failed = {one.path for one in docs.last_report.failed if one.stage == "transform first line"}
    assert [one.category for one in caught] == [IngestionWarning]
    assert "minimal-document.pdf" in failed
    assert {node.path for node in nodes} == set(docs.last_report.added) - failed


def test_pages_are_kept(docs, manifest):
    """A PDF has as many places of kind page as it has pages, numbered from 1, empty ones
    included.
    """
    roots = {node.path: node for node in docs.get_nodes()}
    paged = {
        name: entry["pages"]
        for name, entry in manifest.items()
        if name in roots and name.endswith(".pdf") and "pages" in entry
    }
    assert len(paged) > 10
    for name, pages in paged.items():
        shown = [location.label for location in roots[name].locations if location.kind == "page"]
        assert shown == [str(number) for number in range(1, pages + 1)], name


def test_no_radicals_are_left_in_place_of_characters(docs):
    """A Chinese PDF that a browser printed holds characters (长, 门, 无), not the radicals that look
    like them.
    """
    [text] = [node.text for node in docs.get_nodes() if node.path == "made_zh.pdf"]
    assert "战国无双3" in text
    assert {letter for letter in text if "\u2e80" <= letter <= "\u2fdf"} == set()
    assert "织田信长" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("similarity", "query", "path"),
    [
        (
            "bm25",
            "Emerging growth company, pursuant to section 13 of the exchange act",
            "example-10k-1p.html",
        ),
        ("bm25", "sales of IBM floppy disk and hard disk drive inventions", "wiki.md"),
        (
            "bm25",
            "Gutenberg copyright quantum boundary layer plate heat transfer",
            "made_one_line.txt",
        ),
        ("bm25_chinese", "战国无双系列由谁开发", "中文 文件名 (1).txt"),
        ("bm25_chinese", "战国无双系列由谁开发", "made_zh_gbk.txt"),
    ],
)
def test_the_rest_is_searchable(docs, similarity, query, path):
    """A question about one of the files that are in finds it among the broken ones, in English and
    Chinese.
    """
    hits = Retriever(docs, "CoarseChunk", similarity=similarity, topk=10)(query)
    assert path in {hit.path for hit in hits}
