"""`to_markdown`, read again by another program's parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docx
import openpyxl
import pytest
from markdown_it import MarkdownIt

from lazyrag import Document
from lazyrag.data.filters import Condition
from lazyrag.errors import DatasetPathError
from lazyrag.read import to_markdown

Block = tuple[str, Any]


def blocks(markdown: str) -> list[Block]:
    """Headings with their levels, paragraphs, items with a dash for each list around them, and the
    rows of tables, in order.
    """
    parsed: list[Block] = []
    rows: list[list[str]] = []
    inside = mark = ""
    depth = 0
    for token in MarkdownIt().enable("table").parse(markdown):
        if token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            inside = token.tag
        elif token.type.startswith(("bullet_list", "ordered_list")):
            depth += token.nesting
        elif token.type == "list_item_open":
            mark = f"{'-' * depth}{token.info} "
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "table_close":
            parsed.append(("table", rows))
            rows = []
        elif token.type == "inline" and inside in ("th", "td"):
            rows[-1].append(token.content)
        elif token.type == "inline":
            parsed.append((inside, mark + token.content))
            mark = ""
        elif token.type == "fence":
            parsed.append((token.info, token.content))
    return parsed


def read_blocks(folder: Path, name: str) -> list[Block]:
    """The blocks of a file of a folder."""
    with Document(folder) as docs:
        return blocks(to_markdown(docs, name))


def test_a_word_document(tmp_path: Path) -> None:
    """Headings have their levels, each line is a paragraph, cells keep their ``|``."""
    document = docx.Document()
    document.add_heading("Handbook", 1)
    document.add_paragraph("First.")
    document.add_paragraph("Second.")
    document.add_heading("Tools", 2)
    table = document.add_table(2, 2)
    for cell, text in zip(
        [cell for row in table.rows for cell in row.cells],
        ["tool", "price", "saw | axe", "12"],
        strict=True,
    ):
        cell.text = text
    document.add_paragraph("Last.")
    document.save(str(tmp_path / "a.docx"))
    assert read_blocks(tmp_path, "a.docx") == [
        ("h1", "Handbook"),
        ("p", "First."),
        ("p", "Second."),
        ("h2", "Tools"),
        ("table", [["tool", "price"], ["saw | axe", "12"]]),
        ("p", "Last."),
    ]


def test_a_workbook(tmp_path: Path) -> None:
    """Each sheet is a heading with its table."""
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    book.active.append(["tea", "EUR"])
    book.active.append(["green", 4.5])
    book.save(tmp_path / "a.xlsx")
    assert read_blocks(tmp_path, "a.xlsx") == [
        ("h1", "Prices"),
        ("table", [["tea", "EUR"], ["green", "4.5"]]),
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.rst",
            "=====\nGuide\n=====\n\nHot\nwater.\n\nTea\n---\n\n- green\n- black\n",
            [("h1", "Guide"), ("p", "Hot\nwater."), ("h2", "Tea"), ("p", "- green"), ("p", "- black")],
        ),
        (
            "a.html",
            "<h1>Guide</h1><p>Hot water.</p><h2>Tea</h2><ul><li>green<li>black</ul>",
            [("h1", "Guide"), ("p", "Hot water."), ("h2", "Tea"), ("p", "- green"), ("p", "- black")],
        ),
        ("a.py", "def boil():\n    return 100\n", [("py", "def boil():\n    return 100\n")]),
        ("b.py", 'DOC = """\n~~~~\nx\n~~~~\n"""\n', [("py", 'DOC = """\n~~~~\nx\n~~~~\n"""\n')]),
        ("a.md", "# Tea #\n\n* hot\n", [("h1", "Tea"), ("p", "- hot")]),
        ("a.csv", "tea,EUR\ngreen,4\nblack,5\n", [("table", [["tea", "EUR"], ["green", "4"], ["black", "5"]])]),
    ],
)  # fmt: skip
def test_other_formats(tmp_path: Path, name: str, text: str, expected: list[Block]) -> None:
    """Titles lose what adorns them; code is in a fence; Markdown stays as it is."""
    (tmp_path / name).write_text(text)
    assert read_blocks(tmp_path, name) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.html",
            """<ol start=2><li>Boil<ul><li>water<li><p>milk</p><p>slowly</p></ul><li>Pour</ol>
            <pre>\n  boil\n\n~~~\n</pre><ul><li><h3>Cold</h3>brew</ul>""",
            [
                ("p", "-2 Boil"),
                ("p", "-- water"),
                ("p", "-- milk"),
                ("p", "slowly"),
                ("p", "-3 Pour"),
                ("", "  boil\n\n~~~\n"),
                ("h1", "Cold"),
                ("p", "brew"),
            ],
        ),
        (
            "a.tex",
            "\\section{Tea}Hot\\footnote{Or cold.}.\n\\begin{verbatim}\n  x[1]\n\\end{verbatim}",
            [("h1", "Tea"), ("p", "Hot[^1]."), ("", "  x[1]\n"), ("p", "[^1]: Or cold.")],
        ),
        (
            "a.adoc",
            "= Tea\n\n* green\n** Sencha\n\n----\nboil\n\npour\n----\n\nEnd",
            [("h1", "Tea"), ("p", "- green"), ("p", "-- Sencha"), ("", "boil\n\npour\n"), ("p", "End")],
        ),
        (
            "a.org",
            "* Tea\n#+begin_src sh\nboil\n#+end_src\nEnd",
            [("h1", "Tea"), ("", "boil\n"), ("p", "End")],
        ),
        (
            "a.rtf",
            r"{\rtf1{\pard\outlinelevel0 Tea [1]\par}Hot{\footnote Or cold.} [1]\par}",
            [("h1", "Tea [1]"), ("p", "Hot[^1] [1]"), ("p", "[^1]: Or cold.")],
        ),
        (
            "a.ipynb",
            """{"cells": [{"cell_type": "code", "source": "x\\ny", "outputs": [{"text": "1"}]}],
            "metadata": {"kernelspec": {"language": "julia"}}, "nbformat": 4}""",
            [("julia", "x\ny\n"), ("p", "1")],
        ),
    ],
)  # fmt: skip
def test_lists_code_and_notes(tmp_path: Path, name: str, text: str, expected: list[Block]) -> None:
    """Items keep their levels and numbers; code is as it is; calls refer to their notes, other
    numbers in brackets do not.
    """
    (tmp_path / name).write_text(text)
    assert read_blocks(tmp_path, name) == expected


def test_lists_and_code_of_a_word_document(tmp_path: Path) -> None:
    """Items have the levels of Word, and code with empty lines is one piece."""
    document = docx.Document()
    document.add_heading("Two\tteas > a", 1)
    for style, text in (
        ("List Number", "Boil"),
        ("List Bullet", "water"),
        ("List Bullet 2", "soft"),
    ):
        document.add_paragraph(text, style)
    document.styles.add_style("Source Code", 1)
    document.add_paragraph("boil(\n    80)", "Source Code")
    document.save(str(tmp_path / "a.docx"))
    assert read_blocks(tmp_path, "a.docx") == [
        ("h1", "Two teas > a"),
        ("p", "-1 Boil"),
        ("p", "- water"),
        ("p", "- soft"),
        ("", "boil(\n    80)\n"),
    ]
    with Document(tmp_path) as docs:
        assert [location.kind for location in docs.get_nodes()[0].locations] == ["heading"]


def test_hidden_and_unknown_documents(tmp_path: Path) -> None:
    """Neither can be read."""
    (tmp_path / "a.txt").write_text("Tea")
    with Document(tmp_path) as docs:
        assert to_markdown(docs, "a.txt") == "Tea\n"
        view = docs.restricted(Condition("file_name", "==", "b.txt"))
        for reader, path in ((docs, "b.txt"), (view, "a.txt")):
            with pytest.raises(DatasetPathError, match="no document"):
                to_markdown(reader, path)
