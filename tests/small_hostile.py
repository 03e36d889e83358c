"""Small files that ask for much work, by format, and a program that measures each in a process of
its own.

Run ``python -m tests.small_hostile`` for the table of the highest CPU time and memory of each
format, and ``python -m tests.small_hostile xlsx epub`` for each file of some formats.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.interpreter import python

MOST_BYTES = 1 << 20
MOST_CPU_S = 8.0
MOST_MEBIBYTES = 330  # Python 3.13 reaches 303 with notes.docx

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELS = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
_ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "table", "text", "style")
)


def _with_noise(content: str | bytes) -> bytes:
    """Markup with a comment that does not compress, so that it is not packed like a zip bomb."""
    data = content.encode() if isinstance(content, str) else content
    missing = len(data) // 190 - len(zlib.compress(data, 9))
    if len(data) < 1 << 20 or missing <= 0 or not data.startswith(b"<"):
        return data
    return data + b"<!--" + base64.b64encode(random.Random(1).randbytes(missing)) + b"-->"


def packed(parts: dict[str, str | bytes]) -> bytes:
    """A zip file."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in parts.items():
            archive.writestr(name, _with_noise(content))
    return data.getvalue()


def _package(
    main: str, parts: dict[str, str | bytes], relations: dict[str, str] | None = None
) -> bytes:
    """An office file: its main part, all parts, and the kinds of the main part's relations, by
    target.
    """
    folder, _, name = main.rpartition("/")
    listed = "".join(
        f'<Relationship Id="r{at}" Type="{_R}/{kind}" Target="{target}"/>'
        for at, (target, kind) in enumerate((relations or {}).items())
    )
    kinds = {".docx": "wordprocessingml.document", ".xlsx": "spreadsheetml.sheet"}
    kind = (
        kinds[".docx" if folder == "word" else ".xlsx"]
        if folder != "ppt"
        else "presentationml.presentation"
    )
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    office = f"application/vnd.openxmlformats-officedocument.{kind}.main+xml"
    return packed(
        {
            "[Content_Types].xml": (
                f'<Types xmlns="{types}"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package'
                f'.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>'
                f'<Override PartName="/{main}" ContentType="{office}"/><Override PartName="/xl/sharedStrings.xml" '
                'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>'
            ),
            "_rels/.rels": (
                f'<Relationships {_RELS}><Relationship Id="r" Type="{_R}/officeDocument" Target="{main}"/>'
                "</Relationships>"
            ),
            f"{folder}/_rels/{name}.rels": f"<Relationships {_RELS}>{listed}</Relationships>",
            **parts,
        }
    )


def docx(
    body: str, parts: dict[str, str | bytes] | None = None, relations: dict[str, str] | None = None
) -> bytes:
    """A Word document with a body."""
    main = f"<w:document {_W}><w:body>{body}</w:body></w:document>"
    return _package("word/document.xml", {"word/document.xml": main, **(parts or {})}, relations)


def xlsx(*sheets: str, shared: str = "", repeats: int = 1, comments: str = "") -> bytes:
    """A workbook of sheets, each listed several times; the texts that cells share."""
    listed = "".join(
        f'<sheet name="S{at}" sheetId="{at + 1}" r:id="r{at % len(sheets)}"/>'
        for at in range(len(sheets) * repeats)
    )
    parts: dict[str, str | bytes] = {
        "xl/workbook.xml": f'<workbook {_S} xmlns:r="{_R}"><sheets>{listed}</sheets></workbook>',
        "xl/sharedStrings.xml": f"<sst {_S}>{shared}</sst>",
    }
    relations = {f"worksheets/sheet{at}.xml": "worksheet" for at in range(len(sheets))}
    for at, sheet in enumerate(sheets):
        parts[f"xl/worksheets/sheet{at}.xml"] = f"<worksheet {_S}>{sheet}</worksheet>"
        if comments:
            parts["xl/comments.xml"] = (
                f"<comments {_S}><commentList>{comments}</commentList></comments>"
            )
            parts[f"xl/worksheets/_rels/sheet{at}.xml.rels"] = (
                f'<Relationships {_RELS}><Relationship Id="c" Type="{_R}/comments" Target="../comments.xml"/>'
                "</Relationships>"
            )
    return _package("xl/workbook.xml", parts, {**relations, "sharedStrings.xml": "sharedStrings"})


def pptx(
    slide: str, count: int = 1, times: int = 1, slide_relations: str = "", **parts: str
) -> bytes:
    """A presentation of so many equal slides, each listed several times."""
    ids = "".join(f'<p:sldId r:id="r{at % count}"/>' for at in range(count * times))
    main = f'<p:presentation {_P} xmlns:r="{_R}"><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>'
    page = f'<p:sld {_P} {_A} xmlns:r="{_R}"><p:cSld><p:spTree>{slide}</p:spTree></p:cSld></p:sld>'
    slides: dict[str, str | bytes] = {f"ppt/slides/slide{at}.xml": page for at in range(count)}
    for at in range(count if slide_relations else 0):
        slides[f"ppt/slides/_rels/slide{at}.xml.rels"] = (
            f"<Relationships {_RELS}>{slide_relations}</Relationships>"
        )
    relations = {f"slides/slide{at}.xml": "slide" for at in range(count)}
    return _package(
        "ppt/presentation.xml", {"ppt/presentation.xml": main, **slides, **parts}, relations
    )


def odf(kind: str, body: str, **parts: str) -> bytes:
    """An OpenDocument file."""
    mime = f"application/vnd.oasis.opendocument.{kind}"
    inside = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    content = f"<office:document-content {_ODF}>{inside}</office:document-content>"
    return packed({"mimetype": mime, "content.xml": content, **parts})


def epub(page: str, count: int = 1, times: int = 1, extra: str = "") -> bytes:
    """An e-book of so many equal chapters, each listed several times in the spine."""
    items = "".join(
        f'<item id="c{at}" href="c{at}.xhtml" media-type="application/xhtml+xml"/>'
        for at in range(count)
    )
    spine = "".join(f'<itemref idref="c{at % count}"/>' for at in range(count * times))
    name = "urn:oasis:names:tc:opendocument:xmlns:container"
    book = f'<package xmlns="http://www.idpf.org/2007/opf"><metadata>{extra}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>'
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": (
                f'<container xmlns="{name}"><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>'
            ),
            "c.opf": book,
            **{f"c{at}.xhtml": f"<html><body>{page}</body></html>" for at in range(count)},
        }
    )


def grid(rows: int, columns: int, cell: str = "1", separator: str = ",") -> str:
    """Lines of equal cells."""
    return "\n".join([separator.join([cell] * columns)] * rows)


def wide_then_narrow(columns: int, rows: int) -> str:
    """A CSV with a wide header above narrow rows."""
    return ",".join(f"c{at}" for at in range(columns)) + "\n" + "1,2\n" * rows


def _cells(rows: int, columns: int, cell: str) -> str:
    return f"<sheetData>{('<row>' + cell * columns + '</row>') * rows}</sheetData>"


_TEXT_CELL = '<c t="inlineStr"><is><t>w</t></is></c>'
_NUMBER_CELL = "<c><v>1</v></c>"
_FAR = '<row r="{row}"><c r="{column}{row}"><v>1</v></c></row>'
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORDS = "<w:p><w:r><w:t>w</w:t></w:r></w:p>"
_ODS_CELL = '<table:table-cell office:value-type="string"><text:p>w</text:p></table:table-cell>'

_ODS_REPEATED = _ODS_CELL.replace("cell ", 'cell table:number-columns-repeated="1000" ', 1)


def _nested(before: str, after: str, depth: int, inside: str = "w") -> str:
    return before * depth + inside + after * depth


def _aliases(levels: int, width: int) -> str:
    lines = ["a0: &a0 [w, w, w]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * width)}]" for at in range(1, levels)]
    return "\n".join(lines)


def _mail(depth: int, headers: str = "", body: str = "w") -> str:
    """A mail of parts within parts."""
    head = f"Subject: s\nFrom: a@b\n{headers}MIME-Version: 1.0\n"
    for at in range(depth):
        head += f"Content-Type: multipart/mixed; boundary=b{at}\n\n--b{at}\n"
    return head + "Content-Type: text/plain\n\n" + body


def _attached(count: int, kind: str = "text/plain", name: str = "a.txt", body: str = "w") -> str:
    part = (
        f'--b\nContent-Type: {kind}\nContent-Disposition: attachment; filename="{name}"\n\n{body}\n'
    )
    return (
        "Subject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
        + part * count
        + "--b--\n"
    )


def _rtf(body: str) -> str:
    return r"{\rtf1\ansi " + body + "}"


def _notebook(cells: int, output: str) -> str:
    cell = {"cell_type": "code", "source": ["x"], "outputs": [{"text": [output]}]}
    return json.dumps({"nbformat": 4, "cells": [cell] * cells})


CASES: dict[str, Callable[[], bytes | str]] = {
    # Tables of text
    "wide.csv": lambda: wide_then_narrow(60_000, 60_000),
    "wider.csv": lambda: wide_then_narrow(16_000, 220_000),
    "square.csv": lambda: grid(700, 700),
    "commas.csv": lambda: "a,b\n" + "," * 900_000,
    "many.csv": lambda: "a,b\n" + "1,2\n" * 240_000,
    "growing.csv": lambda: "\n".join("1," * at for at in range(1, 960)),
    "long_names.csv": lambda: "x" * 3000 + ",b\n" + "1,2\n" * 200_000,
    "narrow.csv": lambda: "1\n" * 500_000,
    "numbered.csv": lambda: "n\n" + "".join(f"{at % 10}\n" for at in range(500_000)),
    "named_cells.csv": lambda: (
        ",".join("long name of a column" for _ in range(700)) + "\n" + grid(700, 700)
    ),
    "quotes.csv": lambda: '"' + 'a""' * 300_000,
    "one_wide_row.csv": lambda: "1,2\n" * 100_000 + "1," * 250_000,
    "blank.csv": lambda: "\n" * 900_000 + "a,b\n1,2",
    "tabs.tsv": lambda: "a\tb\n" + "\t" * 900_000,
    # Workbooks
    "far.xlsx": lambda: xlsx(
        "<sheetData>"
        + "".join(_FAR.format(row=at, column="XFD") for at in range(1, 6000))
        + "</sheetData>"
    ),
    "far_rows.xlsx": lambda: xlsx(
        "<sheetData>"
        + _FAR.format(row=1, column="A")
        + _FAR.format(row=1_048_576, column="XFD")
        + "</sheetData>"
    ),
    "numbers.xlsx": lambda: xlsx(_cells(4000, 400, _NUMBER_CELL)),
    "texts.xlsx": lambda: xlsx(_cells(2000, 400, _TEXT_CELL)),
    "empty_cells.xlsx": lambda: xlsx(_cells(20_000, 400, "<c/>")),
    "empty_rows.xlsx": lambda: xlsx("<sheetData>" + "<row/>" * 5_000_000 + "</sheetData>"),
    "shared.xlsx": lambda: xlsx(
        _cells(500, 400, '<c t="s"><v>0</v></c>'), shared=f"<si><t>{'long ' * 6000}</t></si>"
    ),
    "sheets.xlsx": lambda: xlsx(_cells(100, 100, _NUMBER_CELL), repeats=2000),
    "merged.xlsx": lambda: xlsx(
        _cells(1000, 2, _TEXT_CELL)
        + "<mergeCells>"
        + '<mergeCell ref="A1:XFD1000"/>' * 20_000
        + "</mergeCells>"
    ),
    "merges.xlsx": lambda: xlsx(
        _cells(1000, 2, _TEXT_CELL)
        + "<mergeCells>"
        + "".join(f'<mergeCell ref="A{at}:XFD{at + 900}"/>' for at in range(1, 20_000))
        + "</mergeCells>"
    ),
    "formulas.xlsx": lambda: xlsx(_cells(1500, 200, "<c><f>A1</f></c>")),
    "formula_tags.xlsx": lambda: xlsx("<sheetData>" + "<f" * 3_000_000 + "</sheetData>"),
    "comments.xlsx": lambda: xlsx(
        _cells(2, 2, _TEXT_CELL),
        comments='<comment ref="A1"><text><t>w</t></text></comment>' * 300_000,
    ),
    "shared_comments.xlsx": lambda: xlsx(
        *[_cells(2, 2, _TEXT_CELL)] * 500,
        comments='<comment ref="A1"><text><t>w</t></text></comment>' * 20_000,
    ),
    "islands.xlsx": lambda: xlsx(
        "<sheetData>"
        + ("<row>" + (_TEXT_CELL + "<c/>") * 200 + "</row><row/>") * 1500
        + "</sheetData>"
    ),
    "diagonal.xlsx": lambda: xlsx(
        "<sheetData>"
        + "".join(f"<row>{'<c/>' * at}{_TEXT_CELL}</row>" for at in range(1500))
        + "</sheetData>"
    ),
    "long_name.xlsx": lambda: xlsx(
        "<sheetData>"
        f'<row><c t="inlineStr"><is><t>{"n" * 30_000}</t></is></c>{_TEXT_CELL}</row>'
        + ("<row>" + _NUMBER_CELL * 2 + "</row>") * 100_000
        + "</sheetData>"
    ),
    "rich.xlsx": lambda: xlsx(
        _cells(2, 2, _TEXT_CELL), shared="<si>" + "<r><t>w</t></r>" * 2_000_000 + "</si>"
    ),
    "repeated.ods": lambda: odf(
        "spreadsheet",
        '<table:table table:name="S">'
        '<table:table-row table:number-rows-repeated="1000">'
        + _ODS_REPEATED
        + "</table:table-row>"
        + "</table:table>",
    ),
    "repeated_more.ods": lambda: odf(
        "spreadsheet",
        '<table:table table:name="S">'
        + (
            '<table:table-row table:number-rows-repeated="1000">'
            + _ODS_REPEATED
            + "</table:table-row>"
        )
        * 500
        + "</table:table>",
    ),
    "repeated_blank.ods": lambda: odf(
        "spreadsheet",
        '<table:table table:name="S">'
        + (
            "<table:table-row>"
            + '<table:table-cell table:number-columns-repeated="1000"/>' * 1000
            + _ODS_CELL
            + "</table:table-row>"
        )
        * 300
        + "</table:table>",
    ),
    "groups.ods": lambda: odf(
        "spreadsheet",
        '<table:table table:name="S">'
        + _nested(
            "<table:table-row-group>",
            "</table:table-row-group>",
            200,
            f"<table:table-row>{_ODS_CELL}</table:table-row>" * 100_000,
        )
        + "</table:table>",
    ),
    "sheets.ods": lambda: odf(
        "spreadsheet",
        f'<table:table table:name="S"><table:table-row>{_ODS_CELL}</table:table-row></table:table>'
        * 100_000,
    ),
    "spanned.ods": lambda: odf(
        "spreadsheet",
        '<table:table table:name="S">'
        + (
            "<table:table-row>"
            + _ODS_CELL.replace(
                "table-cell ",
                'table-cell table:number-columns-spanned="1000" table:number-rows-spanned="1000" ',
                1,
            )
            + _ODS_CELL
            + "</table:table-row>"
        )
        * 20_000
        + "</table:table>",
    ),
    # Word, OpenDocument and Rich Text
    "paragraphs.docx": lambda: docx(_WORDS * 1_000_000),
    "runs.docx": lambda: docx("<w:p>" + "<w:r><w:t>w</w:t></w:r>" * 1_500_000 + "</w:p>"),
    "empty.docx": lambda: docx("<w:p/>" * 4_000_000 + _WORDS),
    "table.docx": lambda: docx(
        "<w:tbl>" + ("<w:tr>" + f"<w:tc>{_WORDS}</w:tc>" * 500 + "</w:tr>") * 500 + "</w:tbl>"
    ),
    "spans.docx": lambda: docx(
        "<w:tbl>"
        + ('<w:tr><w:tc><w:tcPr><w:gridSpan w:val="16000"/></w:tcPr>' + _WORDS + "</w:tc></w:tr>")
        * 3000
        + "</w:tbl>"
    ),
    "skipped.docx": lambda: docx(
        "<w:tbl>"
        + (
            '<w:tr><w:trPr><w:gridBefore w:val="999999"/></w:trPr><w:tc>'
            + _WORDS
            + "</w:tc></w:tr>"
        )
        * 3000
        + "</w:tbl>"
    ),
    "nested_tables.docx": lambda: docx(
        _nested("<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>", 60, _WORDS * 3000)
    ),
    "wide_nested_tables.docx": lambda: docx(
        _nested(
            f"<w:tbl><w:tr><w:tc>{_WORDS * 2000}",
            f"</w:tc><w:tc>{_WORDS}</w:tc></w:tr></w:tbl>",
            60,
            _WORDS,
        )
    ),
    "boxes.docx": lambda: docx(
        _nested("<w:p><w:r><w:txbxContent>", "</w:txbxContent></w:r></w:p>", 70, _WORDS * 5000)
    ),
    "many_boxes.docx": lambda: docx(
        "<w:p><w:r>"
        "<w:txbxContent>" + _WORDS * 3 + "</w:txbxContent>" + "<w:t>w</w:t></w:r></w:p>" * 1
    ),
    "boxes_in_one.docx": lambda: docx(
        "<w:p>" + f"<w:r><w:txbxContent>{_WORDS}</w:txbxContent></w:r>" * 200_000 + "</w:p>"
    ),
    "notes.docx": lambda: docx(
        "<w:p>"
        + '<w:r><w:footnoteReference w:id="1"/></w:r>' * 300_000
        + "<w:r><w:t>w</w:t></w:r></w:p>",
        {
            "word/footnotes.xml": f'<w:footnotes {_W}><w:footnote w:id="1">{_WORDS * 20_000}</w:footnote></w:footnotes>'
        },
        {"footnotes.xml": "footnotes"},
    ),
    "headings.docx": lambda: docx(
        f'<w:p><w:pPr><w:pStyle w:val="H"/></w:pPr><w:r><w:t>{"long " * 20_000}</w:t></w:r></w:p>'
        + "".join(
            f'<w:p><w:pPr><w:pStyle w:val="H{at % 8 + 2}"/></w:pPr><w:r><w:t>w</w:t></w:r></w:p>'
            for at in range(40_000)
        ),
        {
            "word/styles.xml": f'<w:styles {_W}><w:style w:styleId="H"><w:name w:val="heading 1"/></w:style>'
            + "".join(
                f'<w:style w:styleId="H{at}"><w:name w:val="heading {at}"/></w:style>'
                for at in range(2, 10)
            )
            + "</w:styles>"
        },
        {"styles.xml": "styles"},
    ),
    "styles.docx": lambda: docx(
        _WORDS,
        {
            "word/styles.xml": f"<w:styles {_W}>"
            + "".join(
                f'<w:style w:styleId="s{at}"><w:basedOn w:val="s{at + 1}"/></w:style>'
                for at in range(20_000)
            )
            + "</w:styles>",
            "word/numbering.xml": (
                f'<w:numbering {_W}><w:num w:numId="1"><w:abstractNumId w:val="1"/></w:num></w:numbering>'
            ),
        },
        {"styles.xml": "styles", "numbering.xml": "numbering"},
    ),
    "captions.docx": lambda: docx(
        f"<w:p><w:r><w:t>{'w ' * 300_000}</w:t></w:r></w:p><w:tbl><w:tr><w:tc>{_WORDS}</w:tc></w:tr></w:tbl>"
        * 10
    ),
    "pictures.docx": lambda: docx(
        '<w:p><w:r><w:drawing><a:blip xmlns:a="urn:a" xmlns:r="urn:r" r:embed="r0"/></w:drawing></w:r></w:p>'
        * 100_000,
        {"word/a.png": b"no picture"},
        {"a.png": "image"},
    ),
    "formula.docx": lambda: docx(
        "<w:p>"
        '<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">'
        + _nested(
            "<m:f><m:num>",
            "</m:num><m:den><m:r><m:t>a</m:t></m:r></m:den></m:f>",
            80,
            "<m:r><m:t>b</m:t></m:r>",
        )
        + "</m:oMath></w:p>"
    ),
    "formulas.docx": lambda: docx(
        "<w:p>"
        '<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">'
        + _nested("<m:sSup><m:e>", "</m:e></m:sSup>", 80, "<m:r><m:t>b</m:t></m:r>" * 20_000)
        + "</m:oMath></w:p>"
    ),
    "spaces.odt": lambda: odf(
        "text", "<text:p>" + '<text:s text:c="999"/>' * 400_000 + "w</text:p>"
    ),
    "repeated.odt": lambda: odf(
        "text",
        "<table:table>"
        + (
            "<table:table-row>"
            + '<table:table-cell table:number-columns-repeated="1000"><text:p>w</text:p></table:table-cell>'
            * 100
            + "</table:table-row>"
        )
        * 1000
        + "</table:table>",
    ),
    "boxes.odt": lambda: odf(
        "text",
        _nested(
            '<text:p><text:text-box xmlns:x="x">',
            "</text:text-box></text:p>",
            60,
            "<text:p>w</text:p>" * 5000,
        ),
    ),
    "paragraphs.odt": lambda: odf("text", "<text:p>w</text:p>" * 2_000_000),
    "spans.odt": lambda: odf(
        "text", "<text:p>" + "<text:span>w</text:span>" * 2_000_000 + "</text:p>"
    ),
    "words.rtf": lambda: _rtf(r"\b a" * 200_000),
    "groups.rtf": lambda: _rtf("{" * 9_000 + "a" + "}" * 9_000),
    "opened.rtf": lambda: _rtf("{a}" * 300_000),
    "notes.rtf": lambda: _rtf(r"{\footnote a}" * 70_000),
    "cells.rtf": lambda: _rtf(r"a\cell" * 130_000),
    "skipped.rtf": lambda: _rtf(r"\u20\'41" * 100_000),
    "long_line.rtf": lambda: _rtf(r"\'e9" * 220_000),
    # Slides and e-books
    "shapes.pptx": lambda: pptx(
        "<p:sp><p:txBody><a:p><a:r><a:t>w</a:t></a:r></a:p></p:txBody></p:sp>" * 500_000
    ),
    "again.pptx": lambda: pptx(
        "<p:sp><p:txBody><a:p><a:r><a:t>w</a:t></a:r></a:p></p:txBody></p:sp>" * 5000, times=4000
    ),
    "groups.pptx": lambda: pptx(
        _nested(
            "<p:grpSp>",
            "</p:grpSp>",
            70,
            "<p:sp><p:txBody><a:p><a:r><a:t>w</a:t></a:r></a:p></p:txBody></p:sp>" * 5000,
        )
    ),
    "wide_groups.pptx": lambda: pptx(
        _nested("<p:grpSp>" + "<p:sp/>" * 3000, "</p:grpSp>", 70, "<p:sp/>")
    ),
    "chart.pptx": lambda: pptx(
        '<p:graphicFrame><c:chart xmlns:c="urn:c" r:id="c"/></p:graphicFrame>',
        slide_relations=f'<Relationship Id="c" Type="{_R}/chart" Target="/ppt/chart.xml"/>',
        **{
            "ppt/chart.xml": '<c:chart xmlns:c="urn:c">'
            + "".join(
                f'<c:ser><c:val><c:pt idx="{at}"><c:v>1</c:v></c:pt></c:val></c:ser>'
                for at in range(8000)
            )
            + "</c:chart>"
        },
    ),
    "charts.pptx": lambda: pptx(
        '<p:graphicFrame><c:chart xmlns:c="urn:c" r:id="c"/></p:graphicFrame>' * 3000,
        slide_relations=f'<Relationship Id="c" Type="{_R}/chart" Target="/ppt/chart.xml"/>',
        **{
            "ppt/chart.xml": '<c:chart xmlns:c="urn:c"><c:ser><c:val>'
            + '<c:pt idx="1"><c:v>1</c:v></c:pt>' * 20_000
            + "</c:val></c:ser></c:chart>"
        },
    ),
    "table.pptx": lambda: pptx(
        "<a:tbl>"
        + (
            "<a:tr>"
            + "<a:tc><a:txBody><a:p><a:r><a:t>w</a:t></a:r></a:p></a:txBody></a:tc>" * 400
            + "</a:tr>"
        )
        * 400
        + "</a:tbl>"
    ),
    "breaks.pptx": lambda: pptx(
        "<p:sp><p:txBody>"
        + _nested("<a:p><a:r>", "</a:r></a:p>", 100, "<a:p><a:r><a:t>w</a:t></a:r></a:p>" * 3000)
        + "</p:txBody></p:sp>"
    ),
    "again.epub": lambda: epub("<p>" + "w " * 20_000 + "</p>", times=20_000),
    "tags.epub": lambda: epub("<p>w</p>" * 30_000, times=2_000),
    "chapters.epub": lambda: epub("<p>w</p>", count=3_000),
    "big.epub": lambda: epub("<p>w</p>" * 1_500_000),
    "open_tags.epub": lambda: epub("<a" * 200_000),
    "empty_tags.epub": lambda: epub("<i/>" * 2_000_000),
    "listed.epub": lambda: epub(
        "<p>w</p>", extra='<dc:creator xmlns:dc="urn:dc">w</dc:creator>' * 300_000
    ),
    # Pages
    "open.html": lambda: "<div>" * 200_000 + "w",
    "tags.html": lambda: "<p>w" * 250_000,
    "inline.html": lambda: "<b>w</b>" * 120_000,
    "breaks.html": lambda: "w<br>" * 190_000,
    "tables.html": lambda: "<table><tr><th>a<td>" * 45_000,
    "deep_tables.html": lambda: "<table><tr><th>a<td>" * 80 + "<p>w" * 100_000,
    "table.html": lambda: "<table>" + ("<tr>" + "<td>1" * 400) * 400 + "</table>",
    "spans.html": lambda: "<table>" + "<tr><td colspan=1000>a<td>b" * 20_000 + "</table>",
    "row_spans.html": lambda: (
        "<table><tr>" + "<td rowspan=20000>a" * 1000 + "<tr><td>b" * 20_000 + "</table>"
    ),
    "wide_table.html": lambda: (
        "<table><tr>" + "<th>1" * 60_000 + "<tr><td>1<td>2" * 40_000 + "</table>"
    ),
    "many_tables.html": lambda: ("<h2>h</h2><table><tr><th>a<th>b<tr><td>1<td>2</table>") * 17_000,
    "tables_alone.html": lambda: ("w<table><tr><th>a<th>b<tr><td>1<td>2</table>") * 20_000,
    "items.html": lambda: "<ol>" + "<li>w" * 150_000 + "</ol>",
    "deep_items.html": lambda: "<ol><li>" * 100 + "<p>w" * 100_000,
    "headings.html": lambda: "<h1>" + "long " * 50_000 + "</h1>" + "<h2>w</h2>" * 50_000,
    "open_headings.html": lambda: "<h1><div>" * 100 + "w <b>w</b>" * 60_000,
    "attributes.html": lambda: "<p " + "a=b " * 200_000 + ">w",
    "attribute.html": lambda: f"<p class='{'a-' * 400_000}'>w",
    "styles.html": lambda: f"<p style='{';' * 800_000}'>w",
    "many_styles.html": lambda: f"<p style='{'; ' * 900}'>w" * 450,
    "metas.html": lambda: "<meta name=a content=b>" * 40_000 + "w",
    "charset.html": lambda: "<meta " * 150_000 + "w",
    "spaces.html": lambda: "<p>中" + "\n " * 400_000 + "中",
    "line_ends.html": lambda: "中\n" * 250_000,
    "entities.html": lambda: "&amp;" * 190_000,
    "comments.html": lambda: "<!--" * 240_000 + "w",
    "pictures.html": lambda: "<img src='data:image/png;base64,AAAA' alt=w>" * 20_000,
    "linked.html": lambda: "<img src='a.png' alt=w>" * 40_000,
    "figures.html": lambda: (
        "<figure>" + "<img src='a.png'>" * 50_000 + "<figcaption>w</figcaption></figure>"
    ),
    "siblings.html": lambda: "<figure><p><img src='a.png'></p>" * 30_000,
    # Records
    "list.json": lambda: "[" + "1," * 400_000 + "1]",
    "objects.json": lambda: "[" + '{"a":1},' * 110_000 + "{}]",
    "nested.json": lambda: "[" + ("[" * 190 + "]" * 190 + ",") * 2_000 + "1]",
    "deep_names.json": lambda: '{"' + "n" * 9_000 + '":[' + "1," * 10_000 + "[1]," * 40_000 + "1]}",
    "names.json": lambda: "{" + ",".join(f'"n{at}":1' for at in range(80_000)) + "}",
    "lists_of_lists.json": lambda: "[" + "[[1]]," * 150_000 + "1]",
    "deep_list.json": lambda: (
        '{"' + "n" * 400 + '":' + "[" * 100 + "[1,[1]]," * 100_000 + "1" + "]" * 101 + "}"
    ),
    "numbers.json": lambda: "[" + "1" * 900_000 + "]",
    "escapes.json": lambda: '["' + "\\u0041" * 150_000 + '"]',
    "lines.jsonl": lambda: '{"a":1}\n' * 120_000,
    "bad_lines.jsonl": lambda: '{"a":1}\n' + "{\n" * 450_000,
    "deep_lines.jsonl": lambda: ("[" * 900 + "\n") * 1_000,
    "aliases.yaml": lambda: _aliases(12, 10),
    "few_aliases.yaml": lambda: _aliases(9, 6),
    "anchors.yaml": lambda: (
        "a: &a [" + "w, " * 20_000 + "w]\n" + "".join(f"b{at}: *a\n" for at in range(60_000))
    ),
    "list.yaml": lambda: "- w\n" * 230_000,
    "maps.yaml": lambda: "a: {b: {c: d}}\n" * 60_000,
    "flow.yaml": lambda: "[" * 190 + "w" + "]" * 190,
    "keys.yaml": lambda: "? [" + "w, " * 200_000 + "w]\n: w",
    "documents.yaml": lambda: "---\nw\n" * 150_000,
    "elements.xml": lambda: "<r>" + "<a>w</a>" * 110_000 + "</r>",
    "empty.xml": lambda: "<r>" + "<a/>" * 240_000 + "w</r>",
    "deep.xml": lambda: "<a>" * 190 + "<b>w</b>" * 100_000 + "</a>" * 190,
    "deep_long.xml": lambda: (
        "".join(f"<{'n' * 400}{at}>" for at in range(190))
        + "<b>w</b>" * 90_000
        + "".join(f"</{'n' * 400}{at}>" for at in reversed(range(190)))
    ),
    "attributes.xml": lambda: "<r " + " ".join(f'a{at}="1"' for at in range(80_000)) + "/>",
    "siblings.xml": lambda: "<r>" + "".join(f"<a{at}>w</a{at}>" for at in range(45_000)) + "</r>",
    # Marked and plain text
    "headings.md": lambda: "# " + "long " * 50_000 + "\n" + "## w\n" * 100_000,
    "fences.md": lambda: "```\n" * 250_000,
    "open_links.md": lambda: "[" * 500_000 + "](" * 200_000,
    "stars.md": lambda: "*" * 900_000,
    "front.md": lambda: "---\n" + "a: b\n" * 180_000 + "---\nw",
    "front_list.md": lambda: "---\na: [" + "b," * 400_000 + "]\n---\nw",
    "rules.md": lambda: "=" * 400_000 + "\n" + "w\n=\n" * 100_000,
    "table.md": lambda: "|a|b|\n|-|-|\n" + "|1|2|\n" * 150_000,
    "wide_table.md": lambda: (
        "|" + "a|" * 100_000 + "\n|" + "-|" * 100_000 + "\n" + "|1|2|\n" * 60_000
    ),
    "many_tables.md": lambda: "|a|b|\n|-|-|\n|1|2|\n\n" * 45_000,
    "quotes.md": lambda: ">" * 900_000,
    "lines.rst": lambda: "w\n=\n\n" * 160_000,
    "targets.rst": lambda: ".. _a:\n" * 130_000 + "w\n=\n",
    "groups.tex": lambda: r"\textbf{" * 100_000 + "w" + "}" * 100_000,
    "arguments.tex": lambda: r"\frac{w}{" * 90_000,
    "macros.tex": lambda: (
        "".join(rf"\def\{a}{{\{b}\{b}}}" for a, b in itertools.pairwise(_LETTERS)) + r"\a w"
    ),
    "more.tex": lambda: r"\def\a#1{\a{#1#1}}\a{w}",
    "dollars.tex": lambda: "$" * 900_000 + "w",
    "verbatim.tex": lambda: r"\begin{verbatim}w" * 50_000,
    "verb.tex": lambda: "".join(rf"\verb{chr(0x4E00 + at)}w" for at in range(20_000)) * 4,
    "options.tex": lambda: r"\item[{w}" * 90_000,
    "breaks.tex": lambda: "w" + " " * 400_000 + r"\item" * 60_000,
    "footnotes.tex": lambda: r"\footnote{w}" * 70_000,
    "cells.tex": lambda: r"\begin{tabular}{l}" + "w&" * 400_000,
    "tables.tex": lambda: r"\begin{tabular}{l}w" * 45_000,
    "scripts.tex": lambda: "$" + "w^{" * 250_000,
    "sections.tex": lambda: r"\section{w}" * 70_000,
    "stars.org": lambda: "* w\n" * 200_000,
    "marks.org": lambda: " *w" * 300_000,
    "nested.org": lambda: " */_+w" * 150_000,
    "links.org": lambda: "[[" * 400_000,
    "notes.org": lambda: "[fn:" * 200_000,
    "comments.org": lambda: "#+begin_comment\n" * 60_000 + "w",
    "rows.org": lambda: "|w|w|\n" * 100_000,
    "dots.adoc": lambda: "..... w\n" * 100_000,
    "marks.adoc": lambda: " *w" * 300_000,
    "macros.adoc": lambda: "link:w[" * 100_000,
    "urls.adoc": lambda: "http://w" * 100_000,
    "fences.adoc": lambda: "////\n" * 180_001 + "w",
    "titles.tex": lambda: r"\title{" + "w" * 500_000 + "}" + r"\maketitle" * 40_000,
    "blocks.tex": lambda: r"\begin{comment}w\end{comment}" * 30_000,
    "attributes.adoc": lambda: (
        "= T\n:a0: wwwwwwwwww\n"
        + "".join(f":a{n}: {{a{n - 1}}}{{a{n - 1}}}\n" for n in range(1, 40))
    ),
    "cells.adoc": lambda: "|===\n" + "|w" * 400_000 + "\n|===\n",
    "spans.adoc": lambda: "|===\n" + "99.99+|w " * 90_000,
    "copies.adoc": lambda: "|===\n" + "99*|w " * 90_000,
    "rows.adoc": lambda: "|===\n|w |w\n" + ".99+|w |w\n" * 80_000,
    "ticks.py": lambda: "'''" * 300_000,
    "definitions.py": lambda: "def a():\n" * 100_000,
    "brackets.py": lambda: "(" * 900_000,
    "backslashes.py": lambda: "'" + "\\\\" * 450_000,
    "line.txt": lambda: "w" * 1_000_000,
    "spaces.txt": lambda: "w" + " " * 1_000_000 + "w",
    "dots.txt": lambda: "." * 1_000_000,
    "sentences.txt": lambda: "A. " * 340_000,
    "lines.txt": lambda: "w\n" * 500_000,
    "empty_lines.txt": lambda: "w" + "\r\n" * 500_000 + "w",
    "quotes.txt": lambda: '"' * 1_000_000,
    "abbreviations.txt": lambda: "e.g. " * 200_000,
    "chinese.txt": lambda: "茶。" * 160_000,
    "hebrew.txt": lambda: "\u05d0 1 (" * 150_000,
    "addresses.txt": lambda: "http://a(" * 100_000,
    "at_signs.txt": lambda: "a@" * 500_000,
    "odd_bytes.txt": lambda: bytes(range(128, 256)) * 8_000,
    "cyrillic.txt": lambda: "слово ".encode("cp1251") * 160_000,
    "cells.ipynb": lambda: _notebook(8_000, "w"),
    "colours.ipynb": lambda: _notebook(1, "\x1b[" + "0;" * 400_000),
    # Mails and archives
    "nested.eml": lambda: _mail(15_000),
    "headers.eml": lambda: _mail(0, "X: y\n" * 180_000),
    "to.eml": lambda: _mail(0, "To: " + "a@b, " * 180_000 + "c@d\n"),
    "folded.eml": lambda: _mail(0, "To: " + "\n a@b," * 130_000 + "c@d\n"),
    "brackets.eml": lambda: _mail(
        0, "To: " + "<" * 9_900 + "\nCc: " + "(" * 9_900 + "\nFrom: " + '"' * 9_900 + "\n"
    ),
    "encoded_words.eml": lambda: _mail(
        0,
        "Subject: " + "=?utf-8?q?a?= " * 700 + "\n" + "To: " + "=?utf-8?q?a?= <a@b>, " * 450 + "\n",
    ),
    "attached.eml": lambda: _attached(8_000),
    "attached_tables.eml": lambda: _attached(
        2, name="a.csv", body=wide_then_narrow(20_000, 60_000)
    ),
    "parts.eml": lambda: (
        "Subject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
        + "--b\n\nw\n" * 120_000
        + "--b--\n"
    ),
    "alternatives.eml": lambda: (
        "Subject: s\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=b\n\n"
        + "--b\nContent-Type: text/html\n\n<p>w\n" * 25_000
        + "--b--\n"
    ),
    "sealed.eml": lambda: _mail(0, body="-----BEGIN PGP MESSAGE-----\n" * 30_000),
    "sealed_lines.eml": lambda: _mail(0, body="> -----BEGIN PGP MESSAGE-----\nw\n" * 25_000),
    "page.eml": lambda: "Subject: s\nContent-Type: text/html\n\n" + "<table><tr><th>a<td>" * 40_000,
    "mails.mbox": lambda: "From a@b Thu Jan  1 00:00:00 1970\nSubject: s\n\nw\n\n" * 18_000,
    "members.zip": lambda: packed({f"{at}.txt": b"w" for at in range(8_000)}),
    "tables.zip": lambda: packed(
        {f"{at}.csv": wide_then_narrow(3_000, 3_000) for at in range(100)}
    ),
    "books.zip": lambda: packed(
        {f"{at}.xlsx": xlsx(_cells(100, 400, _NUMBER_CELL)) for at in range(100)}
    ),
    "pages.zip": lambda: packed({f"{at}.html": "<p>w" * 100_000 for at in range(100)}),
    "texts.zip": lambda: packed({f"{at}.txt": "w " * 400_000 for at in range(150)}),
    "zips.zip": lambda: packed(
        {f"{at}.zip": packed({f"{one}.txt": b"w" for one in range(100)}) for at in range(50)}
    ),
    "drawing.svg": lambda: (
        "<svg xmlns='http://www.w3.org/2000/svg'>" + "<text>w</text>" * 70_000 + "</svg>"
    ),
}
"""What writes each file, by name."""

_PROGRAM = """
import pathlib, re, resource, sys, time, warnings, json
warnings.simplefilter("ignore")
from lazyrag import Document
from lazyrag.errors import LazyRAGError
folder = sys.argv[1]
resource.setrlimit(resource.RLIMIT_CPU, (25, 25))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
docs = Document(folder)
try:
    docs.sync()
    found = f"{sum(len(one.text) for one in docs.get_nodes()):,} characters"
    for group in ("MediumChunk", "table", "image"):
        docs.get_nodes(group)
    failed = [str(one.error) for one in docs.last_report.failed]
    found = failed[0] if failed else found
except LazyRAGError as exc:
    found = f"{type(exc).__name__}: {exc}"
used = resource.getrusage(resource.RUSAGE_SELF)
children = resource.getrusage(resource.RUSAGE_CHILDREN)
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
cpu = used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime
print(json.dumps([cpu, peak, found]))
"""


def write(name: str, folder: Path) -> Path:
    """Write a file of `CASES`."""
    data = CASES[name]()
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def measure(name: str) -> tuple[float, float, int, str]:
    """CPU seconds, peak memory in MiB and size of a file that is loaded, split and searched for
    tables and pictures.
    """
    with tempfile.TemporaryDirectory() as folder:
        size = write(name, Path(folder)).stat().st_size
        try:
            done = python("-c", _PROGRAM, folder)
        except subprocess.TimeoutExpired:
            return math.inf, math.inf, size, "did not end"
    if done.returncode:
        return math.inf, math.inf, size, f"ended with {done.returncode}: {done.stderr[-200:]}"
    cpu, peak, found = json.loads(done.stdout)
    return cpu, peak, size, found


def main(selected: list[str]) -> None:
    """Print the table, of all files or of the selected suffixes and names."""
    print("| format | files | CPU s | of | MiB | of |\n|---|---|---|---|---|---|")
    suffixes = dict.fromkeys(name.rpartition(".")[2] for name in CASES)
    for suffix in suffixes:
        names = [name for name in CASES if name.endswith(f".{suffix}")]
        if selected:
            names = [name for name in names if {suffix, name} & {*selected}]
        if not names:
            continue
        measured = {}
        for name in names:
            measured[name] = measure(name)
            if selected or os.environ.get("VERBOSE"):
                cpu, peak, size, found = measured[name]
                print(
                    f"{name:24} {size:9,} bytes {cpu:6.1f} s {peak:6.0f} MiB  {found[:110]}",
                    flush=True,
                )
        slow = max(names, key=lambda name: measured[name][0])
        large = max(names, key=lambda name: measured[name][1])
        print(
            f"| {suffix} | {len(names)} | {measured[slow][0]:.1f} | {slow} | {measured[large][1]:.0f} | {large} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
