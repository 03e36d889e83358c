"""Tables of all formats: merged cells keep their columns, headers and captions are found, SQL reads
them alone.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import random
import subprocess
import sys
import threading
import zipfile
import zlib
from decimal import Decimal
from uuid import UUID

import docx
import openpyxl
import pptx
import pytest
from openpyxl.comments import Comment
from pptx.util import Inches
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.data.segment import TABLE
from lazyrag.data.tables import FoundTable
from lazyrag.document import sql_process
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.html import read_html
from lazyrag.read import marks, to_markdown
from tests.table_files import WRITERS, drawn_blocks


def tables_of(loaded) -> list[FoundTable]:
    """The tables that a loader found."""
    return [FoundTable.read(one.label) for one in loaded.tables]


@pytest.mark.sample(6)
@pytest.mark.parametrize("suffix", WRITERS)
def test_random_spans(tmp_path, suffix):
    """Each cell of the grid has the value of the merged cell that covers it, below the name of its
    column.
    """
    draw = random.Random(suffix)
    merged = 0
    for _ in range(6):
        blocks = drawn_blocks(draw, draw.randint(3, 6), draw.randint(2, 5))
        merged += any(block[2:] != (1, 1) for block in blocks)
        path = tmp_path / f"grid.{suffix}"
        expected = WRITERS[suffix](path, blocks)
        [table] = tables_of(load_file(path))
        assert [list(table.names), *map(list, table.rows)] == expected
    assert merged > 3


# One fixture for each repair


def test_word_spans_and_caption(tmp_path):
    """vMerge, gridSpan and gridBefore keep columns; declared header rows are joined; the caption is
    found.
    """
    document = docx.Document()
    document.add_paragraph("Table 1: Harvest", "Caption")
    table = document.add_table(4, 4)
    texts = [
        ["town", "kg", "", "note"],
        ["", "spring", "autumn", ""],
        ["Uji", "1", "2", "x"],
        ["", "3", "4", ""],
    ]
    for row, line in zip(table.rows, texts, strict=True):
        for cell, text in zip(row.cells, line, strict=True):
            cell.text = text
    table.cell(0, 1).merge(table.cell(0, 2)).text = "kg"
    table.cell(0, 0).merge(table.cell(1, 0)).text = "town"
    table.cell(0, 3).merge(table.cell(1, 3)).text = "note"
    table.cell(2, 0).merge(table.cell(3, 0)).text = "Uji"
    for row in (table.rows[0], table.rows[1]):
        row._tr.get_or_add_trPr().append(docx.oxml.OxmlElement("w:tblHeader"))
    late = table.add_row()
    late._tr.remove(late._tr.tc_lst[0])
    before = docx.oxml.OxmlElement("w:gridBefore")
    before.set(docx.oxml.ns.qn("w:val"), "1")
    late._tr.get_or_add_trPr().append(before)
    late._tr.tc_lst[0].p_lst[0].add_r().text = "5"
    document.save(tmp_path / "a.docx")
    loaded = load_file(tmp_path / "a.docx")
    assert loaded.text.splitlines() == [
        "Table 1: Harvest",
        "town | kg | kg | note",
        "town | spring | autumn | note",
        "Uji | 1 | 2 | x",
        "Uji | 3 | 4",
        " | 5",
    ]
    [found] = tables_of(loaded)
    assert (found.caption, found.names) == (
        "Table 1: Harvest",
        ("town", "kg > spring", "kg > autumn", "note"),
    )
    assert found.rows == (("Uji", "1", "2", "x"), ("Uji", "3", "4", ""), ("", "5", "", ""))
    [place] = loaded.tables
    assert loaded.text[place.start : place.end].splitlines()[0] == "town | kg | kg | note"
    assert all(one.kind != TABLE for one in loaded.locations)


def test_html_spans_caption_and_nested_tables():
    """rowspan and colspan keep columns, up to the end of their row group; a table around tables is
    no grid.
    """
    markup = (
        "<table><tr><td><h2>Report</h2><table><caption>Sales</caption>"
        "<thead><tr><th rowspan=2>tea<th colspan=2>2024</tr><tr><th>kg<th>EUR</tr></thead>"
        "<tbody><tr><td rowspan=9>Sencha<td>1<td>2</tr><tr><td>3<td>4</tr></tbody>"
        "<tbody><tr><td>Assam<td><td>5</tr><tr><td colspan=3>all prices with tax</tr></tbody></table></td></tr></table>"
    )
    loaded = read_html(markup)
    assert loaded.text.splitlines() == [
        "Report",
        "",
        "Sales",
        "tea | 2024 | 2024",
        "tea | kg | EUR",
        "Sencha | 1 | 2",
        "Sencha | 3 | 4",
        "Assam |  | 5",
        "all prices with tax",
    ]
    [found] = tables_of(loaded)
    assert (found.caption, found.names) == ("Sales", ("tea", "2024 > kg", "2024 > EUR"))
    assert found.rows[2:] == (("Assam", "", "5"), ("all prices with tax", "", ""))


def test_slide_tables(tmp_path):
    """Merged cells of a slide keep their columns; the table's place is in the text of its slide."""
    deck = pptx.Presentation()
    for title in ("One", "Two"):
        shapes = deck.slides.add_slide(deck.slide_layouts[5]).shapes
        shapes.title.text = title
        table = shapes.add_table(3, 2, Inches(1), Inches(1), Inches(6), Inches(3)).table
        for at, text in enumerate(["tea", "kg", title, "1", "", "2"]):
            table.cell(at // 2, at % 2).text = text
        table.cell(1, 0).merge(table.cell(2, 0))
    deck.save(tmp_path / "a.pptx")
    loaded = load_file(tmp_path / "a.pptx")
    assert [
        loaded.text[one.start : one.end].splitlines()
        for one in loaded.tables
        if one.kind == "table"
    ] == [
        ["tea | kg", "One | 1", "One | 2"],
        ["tea | kg", "Two | 1", "Two | 2"],
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "markup", ["<td colspan=1000>" * 900, f"<td rowspan=65000>{'x' * 9_000}</td>" * 90]
)
def test_spans_are_no_bomb(markup):
    """A small page with cells over millions of places becomes a text that is not much longer than
    it.
    """
    loaded = read_html(f"<table>{f'<tr>{markup}</tr>' + '<tr><td>a</tr>' * 900}</table>")
    assert len(loaded.text) < 2 * len(markup) + (1 << 21)


# Workbooks


@pytest.fixture
def load(tmp_path):
    """A function that fills a workbook's first sheet and loads it."""

    def saved_and_loaded(fill):
        book = openpyxl.Workbook()
        book.active.title = "S"
        book.properties.creator = None
        fill(book.active)
        book.save(tmp_path / "a.xlsx")
        return load_file(tmp_path / "a.xlsx")

    return saved_and_loaded


def at(sheet, cell: str, rows) -> None:
    """Write rows from a cell on."""
    first = sheet[cell]
    for down, row in enumerate(rows):
        for right, value in enumerate(row):
            sheet.cell(first.row + down, first.column + right, value)


def test_islands_of_a_sheet(load):
    """Tables below each other and side by side have column names and titles of their own."""

    def fill(sheet):
        at(sheet, "A1", [["Prices"], ["tea", "EUR"], ["Sencha", 12], [], ["Assam", 8]])
        at(sheet, "A8", [["town", "km"], ["Uji", 3], ["Kyoto", 9]])
        at(sheet, "D8", [["garden", "kg"], ["north", 120]])
        sheet.merge_cells("A1:B1")

    loaded = load(fill)
    assert loaded.text.splitlines() == [
        "S",
        "Prices",
        "tea | EUR",
        "tea: Sencha; EUR: 12",
        "tea: Assam; EUR: 8",
        "town | km",
        "town: Uji; km: 3",
        "town: Kyoto; km: 9",
        "garden | kg",
        "garden: north; kg: 120",
    ]
    prices, towns, gardens = tables_of(loaded)
    assert [(one.caption, one.cells) for one in (prices, towns, gardens)] == [
        ("Prices", "A2:B5"),
        ("", "A8:B10"),
        ("", "D8:E9"),
    ]
    assert prices.numbers == ((2, 3), (5, 5))


def test_groups_of_columns(load):
    """A row of merged names above the names of columns is part of them; a merged line within is a
    line.
    """

    def fill(sheet):
        at(
            sheet,
            "A1",
            [["tea", "2024", None], [None, "kg", "EUR"], ["from Japan"], ["Sencha", 1, 2]],
        )
        for cells in ("A1:A2", "B1:C1", "A3:C3"):
            sheet.merge_cells(cells)

    loaded = load(fill)
    assert loaded.text.splitlines()[1:] == [
        "tea | 2024 | 2024",
        "tea | kg | EUR",
        "from Japan",
        "tea: Sencha; 2024 > kg: 1; 2024 > EUR: 2",
    ]


def test_a_space_between_columns_is_no_border(load):
    """An empty column within one table does not cut its rows apart."""
    loaded = load(
        lambda sheet: at(
            sheet, "A1", [["tea", "EUR", None, "town", "km"], ["Sencha", 12, None, "Uji", 3]]
        )
    )
    assert loaded.text.splitlines()[2:] == ["tea: Sencha; EUR: 12; town: Uji; km: 3"]


def test_values_as_a_person_sees_them(load):
    """Durations, percentages, dates and booleans, by the number format of their cell."""

    def fill(sheet):
        values = [
            dt.timedelta(hours=26, minutes=5),
            dt.timedelta(minutes=90, seconds=7),
            0.125,
            dt.date(2024, 4, 5),
        ]
        at(sheet, "A1", [["h", "m", "share", "day", "ok"], [*values, True]])
        sheet["A2"].number_format, sheet["B2"].number_format, sheet["C2"].number_format = (
            "[h]:mm",
            "[mm]:ss",
            "0.0%",
        )

    assert (
        load(fill).text.splitlines()[2]
        == "h: 26:05; m: 90:07; share: 12.5%; day: 2024-04-05; ok: TRUE"
    )


def test_formulas_without_value_comments_and_hidden_sheets(load):
    """A formula that was never computed is read as such and listed; comments and hidden sheets are
    marked.
    """

    def fill(sheet):
        at(sheet, "A1", [["tea", "kg"], ["Sencha", 12], ["total", "=SUM(B2:B2)"]])
        sheet["B2"].comment = Comment("Weighed twice.", "Li")
        sheet.sheet_state = "hidden"
        sheet.parent.create_sheet("T").append(["Notes"])

    loaded = load(fill)
    assert loaded.text.split("\n\n")[0].splitlines()[-2:] == [
        "tea: total; kg: =SUM(B2:B2)",
        "Comment on B2: Weighed twice.",
    ]
    assert ("comment", "S > B2") in {(one.kind, one.label) for one in loaded.locations}
    assert loaded.metadata["formulas_without_values"] == ["S!B3"]
    assert loaded.metadata["hidden_sheets"] == ["S"]


# A workbook that xlwt wrote: a merged title, a merged cell, durations, percentages and dates.
OLD_WORKBOOK = (
    "c-rk)T}TvB6#nj=S>0X#R#QuZMIx<C&GJP8oeIjQ#F8lbp;mW6(_Lc~!XC;pACsV`q8Gu6UaVgFp^|zKf&!x+f*{bOr=Em@9@OdFGc%<&"
    "f(vC7^9}dRz2Cj(+_U$dIdgYjkLOMd-7B8NBGf~}oEbpcJWfyvIE@gf-!xU#x%;V@9{wo={Irp2K0MBPm9F+s?e`=k?&{A;0w1Xy#VIs)"
    "C1NEjh+XVML?|EXND5phCL2ZURUXS$maACa;gL^R?qKE;%Q_l6Ar52QXe_U_qxg_q$9>sQb|0|LduFzx054P&pSvuqu|DifwnsX>j^%fR"
    "^-K(dqNyR4h$U4!12<G)9ceqZJsuD10o;TRR997(hV>lWLJ;UBRL0|#(dY#7Y49+<nkB#&C*3?N@%WYH1&IH)kWXKN_tOTu@oJ~t_#kb%"
    "8=tX+olLUi#%H<MxgsgH`e2^mtT8~E>wQ*yHqT%SCpcAzYmRirx@mAv*Xaa>a2rwGZINV51EP^$k_S$<2h}@|b7W{ij?CiRkx4R&9Ioeb"
    "1_{wx%-o)Sv$v(mIL=HTzZb2yXQ}cHCeAAjQqJZc{f8`Pjm<1Cu+_C(FJ_rfPSd@tslcx6>E|&QxwnkwsbRb|Hq5JUr24?;eGkI}Q^qE$"
    "k2Fl4$sc)V3}GFuO_cQ2)sG5MA+B9jcw{(tVQ1P8EQ@~0x_%k5eK+kRLJnrt<4nk9IZA5;ULAF5tRY-91Zya1wVd^|T9S30mPRezo?W`w"
    "l59(Dx+bk0pNE>ksoKHTX~SY9`ESRIaaJk~jaIj6OtMXFk<C$BHO>A-PqBvTf^y$WY87%Utj4x6W#JRAmgKPxG}OyH+*dBqd+8^F@ZiCN"
    "2M-=Rc=$U|Coak76zc@)v(LBb_II6GDs$dvlK&R_(M4Ae{fF9(1l^P9O(}i~;S-K6u}mH3d!fQXnmvgQw6Gr?DaS9JxW)Y6vuwrC?|Xz&"
    "oqsMBKmYLj-vJZ@5Ni"
)


def test_old_workbooks(tmp_path):
    """Merged cells, durations and percentages of the old format are read as of the new one."""
    (tmp_path / "a.xls").write_bytes(zlib.decompress(base64.b85decode(OLD_WORKBOOK)))
    loaded = load_file(tmp_path / "a.xls")
    assert loaded.text.splitlines() == [
        "S",
        "Sales",
        "town | h | share | day",
        "town: Uji; h: 26:05; share: 12.5%; day: 2024-04-05",
        "town: Uji; h: 12:00; share: 100%; day: 2024-04-06",
    ]
    [table] = tables_of(loaded)
    assert (table.caption, table.cells) == ("Sales", "A2:D4")


@pytest.mark.parametrize(
    ("record", "damaged", "problem"),
    [
        (b"\x09\x08\x10\x00", b"\xff\xff\x10\x00", "Expected BOF record"),
        (b"\xfd\x00\x0a\x00", b"\xfd\x00\x02\x00", "unpack requires a buffer"),
    ],
)
def test_a_damaged_sheet_of_an_old_workbook_costs_itself(tmp_path, record, damaged, problem):
    """The error names the sheet, as the others would be read."""
    before, _, behind = zlib.decompress(base64.b85decode(OLD_WORKBOOK)).rpartition(record)
    path = tmp_path / "a.xls"
    path.write_bytes(before + damaged + behind)
    with pytest.raises(
        LoadError, match=rf"Nothing of the file can be read: sheet 'S' left out: .*{problem}"
    ):
        load_file(path)


# Tables of a Document, and SQL


SALES = r"""| tea | kg | since |
|---|---:|---|
| Sencha | 12 | 2024-04-05 |
| Assam | 30 | |
| Uji \| Matcha | 2 | 2023-01-02 |"""


@pytest.fixture
def docs(tmp_path):
    """A Document with tables of several formats."""
    (tmp_path / "sales.md").write_text(f"# Shop\n\n{SALES}\n\nEnd.", encoding="utf-8")
    (tmp_path / "towns.csv").write_text("tea,town\nSencha,Uji\nAssam,Jorhat\n", encoding="utf-8")
    book = openpyxl.Workbook()
    book.active.title = "Stock"
    at(book.active, "B3", [["tea", "boxes"], ["Sencha", 7], ["Assam", 5]])
    at(book.active, "B8", [["shelf", "boxes"], ["top", 12]])
    book.save(tmp_path / "stock.xlsx")
    page = canvas.Canvas(str(tmp_path / "report.pdf"), pagesize=A4)
    for row, cells in enumerate(
        [("garden", "slope", "tons"), ("Himeji", "north", "41"), ("Nara", "south", "17")]
    ):
        for column, text in enumerate(cells):
            page.drawString(80 + 150 * column, 700 - 20 * row, text)
    page.save()
    return Document(tmp_path)


def test_a_retriever_finds_a_table_by_any_cell(docs):
    """The hit is the whole table as CSV, and says where it is."""
    for query, path, location in (
        ("Jorhat", "towns.csv", "rows 2-3"),
        ("Matcha", "sales.md", "Shop, lines 3-7"),
        ("shelf top", "stock.xlsx", "sheet Stock, cells B8:C9"),
        ("Himeji", "report.pdf", "page 1"),
    ):
        [hit] = Retriever(docs, "table", similarity="bm25", topk=1)(query)
        assert (hit.path, hit.location) == (path, location)
    assert Retriever(docs, "table", similarity="bm25", topk=1)("Assam Matcha")[
        0
    ].text.splitlines() == [
        "tea,kg,since",
        "Sencha,12,2024-04-05",
        "Assam,30,",
        "Uji | Matcha,2,2023-01-02",
    ]


def test_tables_are_listed(docs):
    """With the names and the places that SQL uses."""
    assert [(one.name, one.columns, str(one.location)) for one in docs.tables.list()] == [
        ("report", ("garden", "slope", "tons"), "report.pdf, page 1"),
        ("sales", ("tea", "kg", "since"), "sales.md, Shop, lines 3-7"),
        ("stock_stock", ("tea", "boxes"), "stock.xlsx, sheet Stock, cells B3:C5"),
        ("stock_stock_2", ("shelf", "boxes"), "stock.xlsx, sheet Stock, cells B8:C9"),
        ("towns", ("tea", "town"), "towns.csv, rows 2-3"),
    ]
    [row] = docs.tables.sql("SELECT * FROM towns WHERE town = 'Uji'")
    assert docs.read("towns.csv", row.locations[0].span) == "tea: Sencha; town: Uji"


def test_a_join_cell_by_cell(docs):
    """Values have the types of their columns; each row names the rows of both tables that it is
    made of.
    """
    rows = docs.tables.sql(
        "SELECT s.tea, kg, since, boxes, kg / boxes AS each "
        "FROM sales s JOIN stock_stock k ON s.tea = k.tea ORDER BY kg"
    )
    assert rows == [
        {"tea": "Sencha", "kg": 12, "since": dt.date(2024, 4, 5), "boxes": 7, "each": 12 / 7},
        {"tea": "Assam", "kg": 30, "since": None, "boxes": 5, "each": 6.0},
    ]
    sales, stock = rows[1].locations
    assert docs.read(sales.path, sales.span) == "| Assam | 30 | |"
    assert (stock.path, stock.sheet, stock.cells, str(stock)) == (
        "stock.xlsx",
        "Stock",
        "B5:C5",
        "stock.xlsx, row Stock > 5",
    )
    assert docs.read(stock.path, stock.span) == "tea: Assam; boxes: 5"


def test_an_aggregate_cell_by_cell(docs):
    """A group names all of its rows, on the page of a PDF with boxes; what has no rows of its own
    names the tables.
    """
    [row] = docs.tables.sql(
        "SELECT sum(tons) AS tons, max(garden) AS last FROM report WHERE tons > 1"
    )
    assert row == {"tons": 58, "last": "Nara"}
    boxes = [marks(docs, one.path, one.span).boxes for one in row.locations]
    assert [{box.page for box in some} for some in boxes] == [{1}, {1}]
    assert boxes[0][0].y0 < boxes[1][0].y0
    [row] = docs.tables.sql("WITH big AS (SELECT * FROM report) SELECT count(*) AS n FROM big")
    assert (row, [str(one) for one in row.locations]) == ({"n": 2}, ["report.pdf, page 1"])


def test_values_of_sql_are_those_of_the_cells(tmp_path):
    """Long numbers are not rounded, days that no calendar has are no NULL, and a column may be
    called rowid.
    """
    (tmp_path / "ids.csv").write_text(
        "RowID,account,day,kg\n7,12345678901234567890123,2023-02-29,1\n7,22345678901234567890123,2023-03-01,2.5\n"
    )
    docs = Document(tmp_path)
    rows = docs.tables.sql('SELECT * FROM ids AS "an ""alias"""')
    assert [[*row.values()] for row in rows] == [
        [7, "12345678901234567890123", "2023-02-29", 1.0],
        [7, "22345678901234567890123", "2023-03-01", 2.5],
    ]
    assert [str(*row.locations) for row in rows] == [
        "ids.csv, rows 2-3, row 1",
        "ids.csv, rows 2-3, row 2",
    ]


def test_values_of_every_type_come_back():
    """Those that JSON has not, too, and within lists and structures."""
    values = {
        "NULL": None,
        "9223372036854775808::HUGEINT": 2**63,
        "1.50::DECIMAL(4, 2)": Decimal("1.50"),
        "DATE '2024-02-29'": dt.date(2024, 2, 29),
        "TIMESTAMP '2024-02-29 12:30:00'": dt.datetime(2024, 2, 29, 12, 30),  # noqa: DTZ001  as DuckDB gives it
        "TIME '12:30:00'": dt.time(12, 30),
        "INTERVAL 36 HOURS": dt.timedelta(hours=36),
        "'ab'::BLOB": b"ab",
        "'00000000-0000-0000-0000-000000000001'::UUID": UUID(int=1),
        "[DATE '2024-02-29', NULL]": [dt.date(2024, 2, 29), None],
        "{'a': [1, 2], 'b': 'x'}": {"a": [1, 2], "b": "x"},
    }
    with Document() as docs:
        [row] = docs.tables.sql(f"SELECT {', '.join(values)}")
    assert list(row.values()) == list(values.values())


@pytest.mark.slow
def test_locations_of_groups_and_subqueries(docs):
    """GROUP BY ALL groups by the columns alone; the table of a subquery is named as a whole."""
    [row] = docs.tables.sql(
        "SELECT count(*) AS n, kg > 0 AS some FROM sales WHERE kg > 2 GROUP BY ALL"
    )
    assert (row, len(row.locations)) == ({"n": 2, "some": True}, 2)
    [row] = docs.tables.sql(
        "SELECT kg FROM sales WHERE tea IN (SELECT tea FROM towns WHERE town = 'Uji')"
    )
    assert row == {"kg": 12}
    assert [str(one) for one in row.locations[1:]] == ["towns.csv, rows 2-3"]


def test_an_empty_first_cell_on_a_page_keeps_its_column(tmp_path):
    """Values of a PDF stay under their columns where the first cell is empty."""
    page = canvas.Canvas(str(tmp_path / "a.pdf"), pagesize=A4)
    for row, cells in enumerate(
        [("garden", "slope", "tons"), ("Himeji", "north", "41"), ("", "south", "17")]
    ):
        for column, text in enumerate(cells):
            page.drawString(80 + 150 * column, 700 - 20 * row, text)
    page.save()
    [table] = Document(tmp_path).tables.list()
    assert table.rows == [["Himeji", "north", "41"], ["", "south", "17"]]


@pytest.mark.slow
def test_one_wide_row_does_not_widen_thousands():
    """Text stays; millions of empty cells are no data."""
    rows = ["<tr>" + "<td>x</td>" * 2_000 + "</tr>", *["<tr><td>y</td></tr>"] * 2_000]
    loaded = read_html(f"<table>{''.join(rows)}</table>")
    assert (loaded.text.count("x"), loaded.text.count("\ny"), loaded.tables) == (2_000, 2_000, ())


def test_a_page_in_a_cell_is_no_table():
    """A cell longer than programs read from CSV is text only."""
    docs = Document()
    docs.add_texts({"a.md": f"| a | b |\n|---|---|\n| x | {'w ' * 70_000} |\n", "b.md": SALES})
    assert [(one.name, len(one.rows)) for one in docs.tables.list()] == [("b", 3)]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_csv('http://127.0.0.1:9/a.csv')",
        "COPY sales TO '{file}.out'",
        "COPY (SELECT 1) TO '{file}.out'",
        "EXPORT DATABASE '{file}.out'",
        "ATTACH '{file}.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA database_list",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "CREATE TABLE t AS SELECT 1",
        "INSERT INTO sales VALUES ('x', 1, NULL)",
        "SELECT 1; SELECT 2",
        "CALL pragma_version()",
        "EXPLAIN SELECT 1",
        "SELECT * FROM secret_variable",
        "SELECT * FROM query('COPY sales TO ''{file}.out''')",
        "SELECT * FROM towns_of_others",
        "SELEC 1",
    ],
)
def test_sql_reaches_tables_only(docs, tmp_path, query):
    """Files, the network, extensions, settings, variables and writing are refused."""
    secret_variable = [{"key": "hidden"}]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"one SELECT statement|The query fails") as caught:
        docs.tables.sql(query.format(file=tmp_path / "towns.csv"))
    assert "Jorhat" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before
    assert secret_variable


def test_sql_is_limited(docs, monkeypatch):
    """A query without end is interrupted; a result has at most `limit` rows."""
    monkeypatch.setattr("lazyrag.document.tables._TIME_LIMIT_S", 0.2)
    with pytest.raises(ConfigError, match=r"(?i)interrupt"):
        docs.tables.sql(
            "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range = 7"
        )
    assert len(docs.tables.sql("SELECT * FROM range(100)", limit=3)) == 3
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    with pytest.raises(ConfigError, match="limit must be an integer >= 1"):
        docs.tables.sql("SELECT 1", limit=0)


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not limit the memory of a process"
)
def test_memory_of_sql_is_limited(docs):
    """A text that DuckDB does not count, and a result larger than is sent, end as an error; the
    next query works.
    """
    for query in (
        "SELECT repeat('x', 2000000000) AS t",
        "SELECT repeat('x', 1000000) AS t FROM range(90)",
    ):
        with pytest.raises(ConfigError, match="needs more than 1024 MiB of memory"):
            docs.tables.sql(query)
    assert docs.tables.sql("SELECT length(repeat('x', 1000000)) AS n") == [{"n": 1_000_000}]


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is of Linux")
def test_a_query_ends_without_its_program():
    """The process that runs it may use the processor for a while only, should nobody be left to end
    it.
    """
    import resource

    command = [sys.executable, "-P", sql_process.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(json.dumps([sys.path, "SELECT 1 AS a", 1]).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == ["tables"]
        assert resource.prlimit(process.pid, resource.RLIMIT_CPU)[0] == 120
        process.kill()


@pytest.mark.slow
def test_a_restricted_document_has_its_tables_only():
    """Lists, names, results and errors are those of a Document without the hidden documents."""
    texts = {"a.md": SALES.replace("Assam", "Secret"), "b/a.md": SALES, "c.md": SALES}
    label = {"label": DocField(DataType.VARCHAR)}
    docs, alone = Document(doc_fields=label), Document(doc_fields=label)
    docs.add_texts(
        texts, metadata={name: {"label": "staff" if name == "a.md" else "guest"} for name in texts}
    )
    del texts["a.md"]
    alone.add_texts(texts, metadata={name: {"label": "guest"} for name in texts})
    assert [one.name for one in docs.tables.list()] == ["a", "a_2", "c"]
    view = docs.restricted({"label": "guest"})
    assert view.tables.list() == alone.tables.list()
    for query in (
        "SELECT * FROM a",
        "SELECT x.kg FROM a x JOIN c USING (tea)",
        "SELECT * FROM a UNION FROM c",
    ):
        ours, theirs = view.tables.sql(query), alone.tables.sql(query)
        assert (
            [(row, row.locations) for row in ours] == [(row, row.locations) for row in theirs] != []
        )
    for query in ("SELECT * FROM a_2", "SELECT nothing FROM a"):
        errors = []
        for one in (view, alone):
            with pytest.raises(ConfigError) as caught:
                one.tables.sql(query)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_tables_of_files_in_files(tmp_path):
    """A table in an archive's member is at its place in the archive's text."""
    inner = io.BytesIO()
    book = openpyxl.Workbook()
    at(book.active, "A1", [["tea", "kg"], ["Sencha", 1]])
    book.save(inner)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("note.txt", "A note.")
        archive.writestr("a.xlsx", inner.getvalue())
    docs = Document(tmp_path)
    [table] = docs.tables.list()
    assert docs.read("all.zip", table.location.span) == "tea | kg\ntea: Sencha; kg: 1"
    [row] = docs.tables.sql("SELECT kg FROM all_")
    assert (row, str(*row.locations)) == ({"kg": 1}, "all.zip, row Sheet > 2")


def pages_of_tables(path, *pages, left=(60, 200, 300)):
    """A PDF of pages, each of lines from the top, cells in lists, between a running head and a page
    number.
    """
    paper = canvas.Canvas(str(path))
    for number, lines in enumerate(pages, start=1):
        paper.drawString(60, 800, "Stock of teas")
        for at, line in enumerate(lines):
            for across, cell in zip(left, [line] if isinstance(line, str) else line, strict=False):
                paper.drawString(across, 770 - 16 * at, cell)
        paper.drawString(250, 30, f"Tea report, page {number} of {len(pages)}")
        paper.showPage()
    paper.save()


TEAS = ["tea", "kg", "EUR"]
GREEN = [["Sencha", "12", "480"], ["Bancha", "7", "90"], ["Gyokuro", "1", "150"]]
BLACK = [["Assam", "30", "600"], ["Ceylon", "9", "110"], ["Nilgiri", "4", "60"]]


def test_a_table_that_goes_on_over_pages(tmp_path):
    """A table whose head each page repeats is one table, and its rows know their lines."""
    pages_of_tables(
        tmp_path / "teas.pdf", ["All our teas:", TEAS, *GREEN], [TEAS, *BLACK], [TEAS, *GREEN[:1]]
    )
    docs = Document(tmp_path)
    [table] = docs.tables.list()
    assert (list(table.columns), table.rows) == (["tea", "kg", "eur"], [*GREEN, *BLACK, *GREEN[:1]])
    assert table.location.location == "pages 1-3"
    [row] = docs.tables.sql("SELECT tea FROM teas WHERE kg = 9")
    [location] = row.locations
    assert docs.read("teas.pdf", location.span) == "Ceylon | 9 | 110"
    markdown = to_markdown(docs, "teas.pdf")
    assert markdown.count("| tea | kg | EUR |") == 1
    assert markdown.count("Stock of teas") == 3


def test_a_table_goes_on_without_a_head(tmp_path):
    """Columns of the same kinds go on where a page begins with values."""
    pages_of_tables(tmp_path / "teas.pdf", [TEAS, *GREEN], BLACK)
    [table] = Document(tmp_path).tables.list()
    assert table.rows == [*GREEN, *BLACK]


@pytest.mark.parametrize(
    "second",
    [
        ["Table 2. Black teas", TEAS, *BLACK],
        ["Prices of last year", TEAS, *BLACK],
        [["tea", "kg", "USD"], *BLACK],
        [["12", "Sencha", "480"], ["7", "Bancha", "90"]],
    ],
)
def test_tables_of_two_pages_stay_apart(tmp_path, second):
    """A caption, other names or other kinds of columns are those of another table."""
    pages_of_tables(tmp_path / "teas.pdf", ["Table 1. Green teas", TEAS, *GREEN], second)
    assert len(Document(tmp_path).tables.list()) == 2


def test_a_table_does_not_go_on_behind_text(tmp_path):
    """Text below a table ends it."""
    pages_of_tables(tmp_path / "teas.pdf", [TEAS, *GREEN, "They are all green."], [TEAS, *BLACK])
    assert len(Document(tmp_path).tables.list()) == 2
