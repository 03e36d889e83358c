"""The real PDFs of the shared data: each gives what its manifest expects."""

from __future__ import annotations

import json
import unicodedata

import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders.pdf import PdfLoader
from tests.shared import SHARED, shared

pytestmark = pytest.mark.shared

_MANIFEST = SHARED / "data" / "manifest.json"
ENTRIES = (
    {
        one["file"].removeprefix("docs/"): one
        for one in json.loads(_MANIFEST.read_text(encoding="utf-8"))["files"]
        if one["file"].startswith("docs/")
        and one["tests"].startswith(("PDF", "HTML bytes under a .pdf"))
    }
    if _MANIFEST.exists()
    else {}
)
SLOW = {"failure-after-repair.pdf"}
EACH = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ENTRIES]


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", EACH)
def test_each_file_is_read_or_reported_as_its_manifest_says(name):
    """What must be read holds the strings of its manifest and has its pages; what may fail fails as
    a LoadError.
    """
    entry, path = ENTRIES[name], shared("data", "docs", name)
    if entry["error"] is None:
        loaded = PdfLoader().load(path)
        assert [one for one in entry["contains"] if _folded(one) not in _folded(loaded.text)] == []
        pages = [location for location in loaded.locations if location.kind == "page"]
        assert len(pages) == entry.get("pages", len(pages))
        assert not [one for one in loaded.text if "\u2f00" <= one <= "\u2fdf"]
        return
    try:
        loaded = PdfLoader().load(path)
    except LoadError as exc:
        says = {
            "password": "needs a password",
            "no-text": "no text layer on any page: only pictures on page 1",
        }
        assert says.get(entry["error"], "") in str(exc)  # noqa: PT017  some may be read as well
    else:
        assert "text" in entry["error"].split("-")
        assert entry["error"] != "no-text"
        assert all(_folded(one) in _folded(loaded.text) for one in entry["contains"])


def test_the_password_of_the_manifest_opens():
    """The encrypted file is read with the password that its manifest names."""
    for name, entry in ENTRIES.items():
        if "password" in entry:
            loaded = PdfLoader(entry["password"]).load(shared("data", "docs", name))
            assert all(_folded(one) in _folded(loaded.text) for one in entry["contains"])


def test_an_arabic_word_of_one_glyph_is_in_reading_order():
    """The letters that one glyph stands for are not reversed."""
    assert "ح\u064eبيبي" in PdfLoader().load(shared("data", "docs", "habibi.pdf")).text.split()


def test_columns_of_a_paper_are_read_in_order():
    """The left column of the first page is read before the right one, and no line mixes both."""
    text = _folded(PdfLoader().load(shared("data", "docs", "multicolumn.pdf")).text)
    parts = [
        "filled with Lorem Ipsum text.",
        "consectetuer id, vulputate",
        "Donec nonummy pellentesque ante",
        "Sed feugiat",
    ]
    found = [text.find(part) for part in parts[:3]]
    assert -1 not in found
    assert found == sorted(found)
    assert "Austria | 8.9 | 83,879 | Vienna | German" in text


def test_rows_of_a_borderless_table_stay_rows():
    """Each value stands in the row of its product, and where cells are empty, in its column."""
    text = (
        PdfLoader().load(shared("data", "docs", "SPARSE-2024-INV-1234_borderless_table.pdf")).text
    )
    lines = text.splitlines()
    assert "Product Code | Location | Expected | Actual | Variance | Status" in lines
    assert "SKU-9201 |  | 780 | 778 |  | OK" in lines
    assert "SKU-6678 | Software | $200.00 | $42,000.00 | 2024-10-25 | High Value" in lines


@pytest.mark.slow
def test_lines_of_the_chinese_file_are_paragraphs():
    """Words that Chromium broke between lines are whole, and every heading is a line of its own."""
    text = PdfLoader().load(shared("data", "docs", "made_zh.pdf")).text
    assert "分别是以武田信玄等人为主的《关东三国志》" in text
    assert "关原的年轻武者》，丰富游戏内的剧情" in text
    assert {"战国无双3", "锣鼓经", "广茂铁路", "赵鹏"} <= set(text.splitlines())
