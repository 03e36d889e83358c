"""Every file of the shared documents: the text that its manifest expects, in order, or the error
that it expects.
"""

from __future__ import annotations

import importlib.util
import json
import re
import unicodedata
from pathlib import Path

import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders import LoadedFile, load_file
from tests.shared import SHARED, shared

pytestmark = pytest.mark.shared

# They are encrypted with AES and an empty password; they open only where the package cryptography
# is installed.
AES = frozenset(["r6-empty-password.pdf", "copy-protected.pdf"])
WITHOUT_AES = importlib.util.find_spec("cryptography") is None

ERRORS = {
    "no-text": r"no text|is not a mail",
    "no-text-or-parse-error": r"no text|is empty|empty file",
    "parse-error": r"breaks at|nested deeper|cut off|damaged",
    "parse-error-or-text": r"damaged|another format|could not be read",
    "password": r"needs a password|is encrypted",
    "unsupported": r"No loader reads",
}
"""What the message says, by the manifest's class of error."""

LINES = {
    "docx-tables.docx": [
        "Header Col 1 | Header Col 2",
        "Lorem ipsum | A link example",
        "Nested Table",
        "a | >b< | c",
        "d | e, f; g&t, h | i",  # the table within the table stands in its cell
        "j | k | l",
        "Table with merged cells",
        "a | b | b",
        "a | c | d",
        "e | e | d",
    ],
    "equations.docx": ["For m=1,", "From Eq. 36.1.3,"],
    "fake-doc.rtf": ["My First Heading", "Column 1 | Column 2", "Row 2, Cell 1 | Row 2, Cell 2"],
    "fake-email.msg": ["Subject: Test Email", "- Roses are red", "- Violets are blue"],
    "fake-power-point-table.pptx": ["Column 1 | Column 2 | Column 3", "Tangerine | Pink | Aqua"],
    "fake.odt": [
        "Lorem ipsum dolor sit amet.",
        "Header row | Mon | Wed | Fri",
        "Leader | Sarah | Mark | Ryan",
    ],
    "made_zh.docx": ["文档样本", "战国无双3", "锣鼓经", "标题 | 字数", "赵鹏 | 376"],
    "semicolon-delimited.csv": ["Lorem, ipsum: consectetur; dolor sit: adipiscing; amet: elit"],
    "stanley-cups-utf-16.csv": ["Team: Blues; Location: STL; Stanley Cups: 1"],
    "stanley-cups.xlsx": ["Team: Blues; Location: STL; Stanley Cups: 1", "Stanley Cups Since 67"],
    "test.epub": ["Chapter 1: Test Content", "Another point", "Chapter 2: More Content"],
    "test_mskanji.csv": [
        "名前: 佐藤太郎; 年齢: 30; 住所: 東京",
        "名前: 髙橋淳; 年齢: 35; 住所: 名古屋",
    ],
    "test_notebook.ipynb": ["# Test Notebook", 'print("markitdown")', "# comment in code", "End"],
}
"""Whole lines, which come in this order: rows of tables, and what stands around them."""

NUMBERED = {"pages": "page", "slides": "slide", "sheets": "sheet", "cells": "cell"}
"""What the manifest counts, and the kind of place that each of them is."""

ENCODINGS = {"latin-1": "cp1252", "gbk": "gb18030"}
"""Encodings that are read as the larger ones which browsers read in their place."""


def manifest() -> list[dict]:
    """The entries of the shared documents; none where the data are not there."""
    path = SHARED / "data" / "manifest.json"
    if not path.exists():
        return [{"file": "docs"}]  # which says, in the test, that the data are missing
    listed = json.loads(path.read_text(encoding="utf-8"))["files"]
    return [one for one in listed if one["file"].startswith("docs/")]


def folded(text: str) -> str:
    """Text under NFKC, with white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _read(path: Path) -> LoadedFile | LoadError:
    """What is read of a file, or why it is not."""
    try:
        return load_file(path)
    except LoadError as error:
        return error


@pytest.mark.sample(3)
@pytest.mark.parametrize("entry", manifest(), ids=lambda entry: entry["file"].removeprefix("docs/"))
@pytest.mark.filterwarnings("ignore")  # what parsers think of some of these files
def test_a_file_reads_as_its_manifest_says(entry):
    """Each text is there, whole lines in order, pages, slides, sheets and cells are places; or the
    error is right.
    """
    path = shared("data", *entry["file"].split("/"))
    expected = entry["error"]
    if path.name in AES and WITHOUT_AES:
        expected = "password"
    loaded = _read(path)
    if isinstance(loaded, LoadError):
        assert expected is not None, loaded
        assert loaded.path == str(path)
        assert re.search(ERRORS[expected], str(loaded), re.IGNORECASE)
        return
    assert expected in {None, "parse-error-or-text"}
    text = folded(loaded.text)
    assert [one for one in entry["contains"] if folded(one) not in text] == []
    lines = iter(line.strip() for line in loaded.text.splitlines())
    # each is looked for behind the last
    assert [line for line in LINES.get(path.name, []) if line not in lines] == []
    for counted, kind in NUMBERED.items():
        locations = [location for location in loaded.locations if location.kind == kind]
        if counted in entry and locations:
            wanted = entry[counted] if isinstance(entry[counted], int) else len(entry[counted])
            assert len(locations) == wanted, kind
    assert loaded.metadata.get("subject", entry.get("subject")) == entry.get(
        "subject", loaded.metadata.get("subject")
    )
    assert loaded.metadata.get("attachments", []) == entry.get(
        "attachments", loaded.metadata.get("attachments", [])
    )
    told = loaded.metadata.get("encoding")
    # of which the manifest says utf-8
    if told is not None and path.name != "fake-text-utf-16-be.txt":
        assert told == ENCODINGS.get(entry.get("encoding", told), entry.get("encoding", told))


def test_every_expectation_is_met_by_a_file():
    """The lines and classes of errors above belong to files of the manifest: none is there for
    nothing.
    """
    shared("data", "manifest.json")
    entries = manifest()
    assert len(entries) > 70
    assert set(LINES) <= {entry["file"].removeprefix("docs/") for entry in entries}
    assert {entry["error"] for entry in entries} - {None} <= set(ERRORS)
