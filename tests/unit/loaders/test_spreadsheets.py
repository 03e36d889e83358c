"""Workbooks: every cell that is seen, row by row, with the name of its column."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor

import openpyxl
import pytest
import xlrd
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField, DocNode, Document, Retriever
from lazyrag.data.tables import FoundTable
from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError
from lazyrag.loaders import load_file, loaders, register_loader
from lazyrag.loaders.cells import cell_text
from lazyrag.loaders.opendocument import OdsLoader
from lazyrag.loaders.spreadsheets import (
    Sheet,
    XlsLoader,
    XlsxLoader,
    _xls_value,
    read_sheets,
)
from tests.binary_workbooks import binary_workbook
from tests.shared import shared

WORD = st.text("abcxyz绿茶 ", max_size=6)
VALUE = st.one_of(st.none(), WORD, st.integers(-999, 999), st.booleans(), st.dates())


@pytest.fixture
def load(tmp_path):
    """A function that writes sheets of rows with openpyxl and loads the workbook."""

    def saved_and_loaded(change=None, **sheets):
        book = openpyxl.Workbook()
        book.remove(book.active)
        book.properties.creator = None
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        if change:
            change(book)
        book.save(tmp_path / "file.xlsx")
        return load_file(tmp_path / "file.xlsx")

    return saved_and_loaded


def by_sheet(loaded) -> dict[str, list[str]]:
    """The lines of each sheet beneath its name."""
    found = {}
    for location in loaded.locations:
        if location.kind == "row":
            continue
        assert location.kind == "sheet"
        name, *found[location.label] = loaded.text[location.start : location.end].split("\n")
        assert name == location.label
    return found


def row_places(loaded) -> dict[str, str]:
    """The text of each row that is a place, by its label."""
    return {
        location.label: loaded.text[location.start : location.end]
        for location in loaded.locations
        if location.kind == "row"
    }


def lines_of(rows) -> list[str]:
    """The lines of a sheet's rows."""
    return read_sheets([Sheet("s", enumerate(rows, start=1))]).text.splitlines()[1:]


def test_rows_with_the_names_of_their_columns(load):
    """Below a row of names each value says its column; empty cells say nothing."""
    loaded = load(价格=[["品名", "价格", "备注"], ["青山毛尖", 180, None], [None, 160.5, "明前"]])
    assert by_sheet(loaded) == {
        "价格": ["品名 | 价格 | 备注", "品名: 青山毛尖; 价格: 180", "价格: 160.5; 备注: 明前"]
    }


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (
            [["Tea 2024"], [], ["tea", "kg"], ["green", 4]],
            ["Tea 2024", "tea | kg", "tea: green; kg: 4"],
        ),
        ([[1, 2], [3, 4]], ["1 | 2", "3 | 4"]),
        ([["tea", "tea"], ["green", "black"]], ["tea | tea", "green | black"]),
        ([["a", "b"]], ["a | b"]),
        ([["one"], ["two"]], ["one", "two"]),
        ([["x" * 101, "b"], ["c", "d"]], [f"{'x' * 101} | b", "c | d"]),
        ([["tea", "kg"], ["green", 4, "!"]], ["tea | kg", "tea: green; kg: 4; !"]),
        ([["", "kg", ""], ["green", 4, None], ["black", 5]], ["kg", "green | 4", "black | 5"]),
        ([[None, "", " "], []], []),
    ],
    ids=[
        "title above",
        "numbers",
        "same names",
        "names only",
        "one column",
        "long",
        "wider row",
        "one name",
        "empty",
    ],
)
def test_where_names_are_found(rows, lines):
    """Names are different short texts that fill the first wide row and have rows below; else rows
    are just rows.
    """
    assert lines_of(rows) == lines


@given(st.lists(st.lists(VALUE, max_size=5), max_size=15))
def test_no_cell_is_lost(rows):
    """Whatever a sheet holds: each row with something is one line, and each of its cells is in that
    line, in order.
    """
    lines = lines_of(rows)
    filled = [cells for row in rows if any(cells := [cell_text(value) for value in row])]
    assert len(lines) == len(filled)
    for line, cells in zip(lines, filled, strict=True):
        assert "\n" not in line
        assert re.search(".*".join(re.escape(cell) for cell in cells if cell), line)


@given(
    st.dictionaries(
        st.text("abc茶", min_size=1, max_size=4), st.lists(st.lists(VALUE, max_size=3), max_size=4)
    )
)
def test_places_are_the_sheets(sheets):
    """Each sheet that holds something is a place that begins with its name, each row below names
    one within it.
    """
    loaded = read_sheets(Sheet(name, enumerate(rows, start=1)) for name, rows in sheets.items())
    expected = {name: lines for name, rows in sheets.items() if (lines := lines_of(rows))}
    assert by_sheet(loaded) == expected
    assert row_places(loaded) == {
        label: line
        for name, rows in sheets.items()
        for label, line in row_places(read_sheets([Sheet(name, enumerate(rows, start=1))])).items()
    }
    assert loaded.metadata.get("sheets", []) == list(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        (0.1 + 0.2, "0.3"),
        (1e20, "1e+20"),
        (-0.5, "-0.5"),
        (True, "TRUE"),
        (dt.datetime.fromisoformat("2024-04-05"), "2024-04-05"),
        (dt.datetime.fromisoformat("2024-04-05T06:07:08"), "2024-04-05 06:07:08"),
        (dt.time(6, 7), "06:07:00"),
        (" two\n lines ", "two lines"),
    ],
    ids=repr,
)
def test_values_as_they_are_read(load, value, text):
    """Numbers have no more digits than a spreadsheet keeps, dates are ISO 8601, a cell stays on its
    line.
    """
    assert by_sheet(load(s=[["a", "b"], ["x", value]]))["s"] == ["a | b", f"a: x; b: {text}"]


def test_percentages(load):
    """A number that is shown as a percentage is read as one."""

    def as_percentage(book):
        book["s"]["B2"].number_format = "0.0%"

    assert (
        by_sheet(load(as_percentage, s=[["tea", "share"], ["green", 0.125]]))["s"][1]
        == "tea: green; share: 12.5%"
    )


def test_formulas_give_their_last_value(tmp_path):
    """A formula is read as the value that was computed when the file was saved."""
    book = openpyxl.Workbook()
    book.active.append(["a", "sum"])
    book.active.append([1, "=A2+1"])
    data = io.BytesIO()
    book.save(data)
    with zipfile.ZipFile(data) as made, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as computed:
        for name in made.namelist():
            content = made.read(name)
            if name == "xl/worksheets/sheet1.xml":
                assert b"<f>A2+1</f><v></v>" in content or b"<f>A2+1</f><v />" in content
                content = re.sub(
                    rb"<f>A2\+1</f><v></v>|<f>A2\+1</f><v />", b"<f>A2+1</f><v>2</v>", content
                )
            computed.writestr(name, content)
    assert load_file(tmp_path / "a.xlsx").text.splitlines()[-1] == "a: 1; sum: 2"


def test_a_merged_range_from_below(load, tmp_path):
    """A range that begins at its last cell, which other programs read, merges the same cells."""
    load(
        lambda book: book["s"].merge_cells("A2:A3"), s=[["tea", "kg"], ["green", 4], [None, "=B2"]]
    )
    with (
        zipfile.ZipFile(tmp_path / "file.xlsx") as made,
        zipfile.ZipFile(tmp_path / "turned.xlsx", "w") as turned,
    ):
        for name in made.namelist():
            turned.writestr(name, made.read(name).replace(b'ref="A2:A3"', b'ref="A3:A2"'))
    assert load_file(tmp_path / "turned.xlsx").text.splitlines()[-2:] == [
        "tea: green; kg: 4",
        "tea: green; kg: =B2",
    ]


def test_hidden_sheets_are_read_and_said(load):
    """A hidden sheet is in the text, and in the metadata; an empty one is nowhere."""

    def hide(book):
        book["secret"].sheet_state = "hidden"
        book["deep"].sheet_state = "veryHidden"

    loaded = load(hide, seen=[["tea"]], secret=[["key"]], deep=[["deeper"]], empty=[])
    assert by_sheet(loaded) == {"seen": ["tea"], "secret": ["key"], "deep": ["deeper"]}
    assert dict(loaded.metadata) == {
        "sheets": ["seen", "secret", "deep"],
        "hidden_sheets": ["secret", "deep"],
    }


def test_properties(load):
    """Title and author of a workbook become metadata."""

    def name(book):
        book.properties.title, book.properties.creator = "Prices", "Li"

    assert dict(load(name, s=[["tea"]]).metadata) == {
        "title": "Prices",
        "author": "Li",
        "sheets": ["s"],
    }


@pytest.mark.slow
def test_a_cell_far_away_costs_nothing(load):
    """A cell in the last row of the last column makes neither a long line nor a long wait."""

    def far(book):
        book["s"]["XFD1048576"] = "far"

    assert by_sheet(load(far, s=[["near"]])) == {"s": ["near", "far"]}


@pytest.mark.slow
def test_one_long_text_in_a_million_cells():
    """What a small file can blow up to is refused, be it in one row or over many."""
    text = "x" * 10_000
    with pytest.raises(LoadError, match="the limit work=2,000,000 is exceeded"):
        read_sheets([Sheet("s", ((number, [text, number]) for number in range(1_000_000)))])
    with pytest.raises(LoadError, match="the limit work=2,000,000 is exceeded"):
        lines_of([[text * 10] * 16_384])


@pytest.mark.slow
def test_many_threads(load, tmp_path):
    """Workbooks read by several threads at once are each read right, and no warning of openpyxl
    comes out.
    """

    def validate(book):
        book["s"].add_data_validation(
            openpyxl.worksheet.datavalidation.DataValidation("list", formula1='"a,b"')
        )

    expected = load(validate, s=[["a", "b"], [1, 2]])
    with ThreadPoolExecutor(4) as pool:
        assert set(map(repr, pool.map(load_file, [tmp_path / "file.xlsx"] * 20))) == {
            repr(expected)
        }


@pytest.mark.shared
@pytest.mark.parametrize("name", ["stanley-cups.xlsx", "test.xlsx"])
def test_real_workbooks(name):
    """Each cell that openpyxl shows of a real workbook is in the line of its row, in its sheet."""
    path = shared("data", "docs", name)
    lines = by_sheet(load_file(path))
    book = openpyxl.load_workbook(path, data_only=True)
    assert list(lines) == book.sheetnames
    for sheet in book.worksheets:
        rows = [
            [str(value).removesuffix(".0") for value in row if value is not None]
            for row in sheet.iter_rows(values_only=True)
        ]
        assert len(lines[sheet.title]) == len(rows)
        for line, row in zip(lines[sheet.title], rows, strict=True):
            assert re.search(".*".join(map(re.escape, row)), line)


def test_a_workbook_is_searched(tmp_path):
    """A question finds the row by its column's name and value; the hit says on which sheet and row
    it stands.
    """
    book = openpyxl.Workbook()
    book.active.title = "Harvest"
    for row in (["garden", "kg"], ["north slope", 120], ["south slope", 95]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    docs = Document(
        tmp_path, doc_fields={"sheets": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}
    )
    docs.create_node_group("row", transform=lambda text: text.splitlines())
    [hit] = Retriever(docs, "row", similarity="bm25", topk=1)("How many kg on the south slope?")
    assert (hit.text, hit.location) == ("garden: south slope; kg: 95", "row Harvest > 3")


def test_where_a_chunk_of_a_workbook_stands(tmp_path):
    """Whatever a chunk spans, its place names the sheet: of a row, of several, of the names, of two
    sheets.
    """
    book = openpyxl.Workbook()
    for sheet, name in ((book.active, "Prices"), (book.create_sheet(), "Stock")):
        sheet.title = name
        for row in (["tea", "of"], ["green", name], ["black", name]):
            sheet.append(row)
    book.create_sheet("Notes").append(["Ask Li."])
    book.save(tmp_path / "a.xlsx")
    docs = Document(
        tmp_path, doc_fields={"sheets": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}
    )
    cuts = {
        "row Prices > 2": slice(2, 3),
        "rows Prices > 2 to Prices > 3": slice(0, 4),
        "sheet Prices": slice(0, 2),
        "row Prices > 3 to sheet Stock": slice(3, 7),
        "rows Prices > 3 to Stock > 2": slice(3, 8),
        "row Stock > 3 to sheet Notes": slice(8, 12),
        "sheet Notes": slice(10, 12),
    }

    def cut_out(node):
        lines = node.text.splitlines(keepends=True)
        for cut in cuts.values():
            start = sum(map(len, lines[: cut.start]))
            text = "".join(lines[cut])
            yield DocNode(text=text, span=(start, start + len(text)))

    docs.create_node_group("cut", lambda node: list(cut_out(node)), trans_node=True)
    assert [node.location for node in docs.get_nodes("cut")] == list(cuts)


TWO = {
    "Prices": [
        ["Teas of 2024"],
        [],
        ["tea", "origin", "price"],
        ["Sencha", "Uji", 12],
        [],
        ["Assam", None, 8],
    ],
    "Stock": [["tea", "kg"], ["Sencha", 3], [None, 4]],
    "Notes": [["Ask Li."], ["Or Wang."]],
}


@pytest.fixture(params=["xlsx", "ods"])
def two(request, tmp_path, load):
    """The path of a workbook of two tables and a sheet of notes, and the loader for it."""
    if request.param == "xlsx":
        load(**TWO)
        return tmp_path / "file.xlsx", XlsxLoader
    with zipfile.ZipFile(tmp_path / "file.ods", "w") as archive:
        archive.writestr("content.xml", _ods(TWO))
    return tmp_path / "file.ods", OdsLoader


def _ods(sheets) -> str:
    """The sheets as OpenDocument."""
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    body = ""
    for name, rows in sheets.items():
        body += f'<table:table table:name="{name}">'
        for row in rows:
            shown = ["" if value is None else value for value in row]
            cells = "".join(
                f"<table:table-cell><text:p>{one}</text:p></table:table-cell>" for one in shown
            )
            body += f"<table:table-row>{cells or '<table:table-cell/>'}</table:table-row>"
        body += "</table:table>"
    return (
        f"<office:document-content {names}><office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>"
        "</office:document-content>"
    )


def test_rows_are_places(two):
    """Rows below the names are places, with the number that the spreadsheet program shows; others
    are none.
    """
    path, loader = two
    assert row_places(loader().load(path)) == {
        "Prices > 4": "tea: Sencha; origin: Uji; price: 12",
        "Prices > 6": "tea: Assam; price: 8",
        "Stock > 2": "tea: Sencha; kg: 3",
        "Stock > 3": "kg: 4",
    }


def test_selected_columns(two):
    """Columns are selected in an order of one's own; what stands above the names, and rows and
    sheets without, go.
    """
    path, loader = two
    loaded = loader(fields=["price", "tea"]).load(path)
    assert by_sheet(loaded) == {
        "Prices": ["price: 12; tea: Sencha", "price: 8; tea: Assam"],
        "Stock": ["tea: Sencha"],
    }
    assert row_places(loaded)["Prices > 6"] == "price: 8; tea: Assam"
    assert loaded.metadata["sheets"] == ["Prices", "Stock"]


def test_a_template(two):
    """A template has values in the place of braces; a row that fills none of it is left out, and so
    is its sheet.
    """
    path, loader = two
    loaded = loader(template="{{{tea}}} costs {price} ({origin})").load(path)
    assert row_places(loaded) == {
        "Prices > 4": "{Sencha} costs 12 (Uji)",
        "Prices > 6": "{Assam} costs 8 ()",
        "Stock > 2": "{Sencha} costs  ()",
    }
    assert by_sheet(loader(template="{kg} kg").load(path)) == {"Stock": ["3 kg", "4 kg"]}


def test_a_misspelt_column(two):
    """A column that no sheet has is an error that names the others."""
    path, loader = two
    with pytest.raises(
        LoadError, match=r"field 'prize'\. Known: kg, origin, price, tea\. Did you mean 'price'\?"
    ):
        loader(template="{tea}: {prize}").load(path)


def test_a_column_without_values(load, tmp_path):
    """A column that has a name and nothing below it is known: rows have nothing of it."""
    load(s=[["tea", "note"], ["green", None]])
    assert XlsxLoader(fields=["tea", "note"]).load(tmp_path / "file.xlsx").text == "s\ntea: green"


@pytest.mark.shared
def test_selected_columns_of_the_old_format():
    """A workbook that was saved in both formats gives the same selection from each."""
    old, new = (
        loader(template="{Alpha}: {Delta}").load(shared("data", "docs", f"test.{suffix}"))
        for suffix, loader in (("xls", XlsLoader), ("xlsx", XlsxLoader))
    )
    assert (old.text, old.locations) == (new.text, new.locations)
    assert row_places(new)


@pytest.mark.parametrize("loader", [XlsxLoader, XlsLoader, OdsLoader])
def test_arguments_are_checked(loader):
    """A wrong or unknown argument is told when the loader is made."""
    with pytest.raises(ConfigError, match="in braces"):
        loader(template="tea")
    with pytest.raises(ConfigError, match="exclude each other"):
        loader(fields=["tea"], template="{tea}")
    with pytest.raises(UnknownKeywordError, match="Did you mean 'fields'"):
        loader(field=["tea"])


def test_labels_of_rows_are_no_bomb():
    """A long name of a sheet stands in the label of each row, and counts."""
    rows = (
        (number, ["a", "b"] if number == 1 else [number, number]) for number in itertools.count(1)
    )
    with pytest.raises(LoadError, match="the limit work=2,000,000 is exceeded"):
        read_sheets([Sheet("s" * 1_000_000, rows)])


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("password_protected.xlsx", "needs a password"),
        ("empty.xlsx", "holds no text"),
        ("test.xls", r"that of old office programs\. Save it as \.xlsx"),
        ("docx-tables.docx", "not a workbook, but of another format"),
        ("wiki.md", "cut off, encrypted, or of another format"),
    ],
)
def test_what_is_no_workbook(tmp_path, name, words):
    """Locked and disguised files fail with what to do, where the suffix decides."""
    register_loader(".xlsx", replace=True)(loaders[".xlsx"])
    path = tmp_path / "a.xlsx"
    path.write_bytes(shared("data", "docs", name).read_bytes())
    with pytest.raises(LoadError, match=words):
        load_file(path)


def test_binary_workbooks(tmp_path):
    """A binary workbook gives the text, places, tables and hidden sheets of the same .xlsx."""
    sheets = {
        "Prices": [
            ["tea", "EUR", "since", "organic"],
            ["green", 4.5, dt.date(2024, 4, 5), True],
            ["红茶" * 100, 12, dt.date(1999, 12, 31), False],
            ["merged"],
        ],
        "_Costs": [["year", "EUR"], [2024, -1e6], [-7, 0.1]],
    }
    (tmp_path / "a.xlsb").write_bytes(binary_workbook(sheets, [(4, 4, 1, 2)]))
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
        sheet.merge_cells("A4:B4")
        sheet.sheet_state = "hidden" if name.startswith("_") else "visible"
    book.save(tmp_path / "a.xlsx")
    binary = load_file(tmp_path / "a.xlsb")
    usual = load_file(tmp_path / "a.xlsx")
    assert (binary.text, binary.locations) == (usual.text, usual.locations)
    assert binary.tables == usual.tables
    assert binary.metadata["hidden_sheets"] == usual.metadata["hidden_sheets"] == ["_Costs"]


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_cut_binary_workbook(tmp_path, cut):
    """It fails with what to do."""
    data = binary_workbook({"Prices": [["tea"], ["green"]]})
    (tmp_path / "a.xlsb").write_bytes(data[: int(cut * len(data))])
    with pytest.raises(LoadError, match=r"Save it again as \.xlsb"):
        load_file(tmp_path / "a.xlsb")


def test_a_damaged_sheet_of_a_binary_workbook(tmp_path):
    """It costs itself, and is noted."""
    (tmp_path / "a.xlsb").write_bytes(binary_workbook({"A": [["tea"]], "B": [["green"]]}))
    path = tmp_path / "b.xlsb"
    with zipfile.ZipFile(tmp_path / "a.xlsb") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            is_first = name == "xl/worksheets/sheet1.bin"
            new.writestr(name, b"\xff" * 40 if is_first else old.read(name))
    loaded = load_file(path)
    assert loaded.text == "B\ngreen"
    assert "sheet 'A'" in str(loaded.metadata["notes"])


@pytest.mark.parametrize(
    ("part", "record", "text"),
    [
        ("xl/sharedStrings.bin", b"\x13\x01\0", "A\n4.5"),
        ("xl/styles.bin", b"\x2c\x01\0", "A\ntea | 4.5"),
        ("xl/worksheets/sheet1.bin", b"\0\x01\0", ""),
    ],
)
def test_a_record_of_a_binary_workbook_that_is_too_short(tmp_path, part, record, text):
    """It costs the rest of its part, and is noted."""
    sheets = {"A": [["tea", 4.5]], "B": [["green", 5.5]]}
    (tmp_path / "a.xlsb").write_bytes(binary_workbook(sheets))
    path = tmp_path / "b.xlsb"
    with zipfile.ZipFile(tmp_path / "a.xlsb") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, (record if name == part else b"") + old.read(name))
    loaded = load_file(path)
    assert loaded.text.startswith(text)
    assert "B\n" in loaded.text
    assert "it is damaged" in str(loaded.metadata["notes"])


@pytest.mark.shared
def test_the_old_format():
    """A workbook that was saved in both formats gives the same text, places and names of sheets
    from each.
    """
    old, new = (load_file(shared("data", "docs", f"test.{suffix}")) for suffix in ("xls", "xlsx"))
    assert (old.text, old.locations) == (new.text, new.locations)
    assert old.metadata["sheets"] == new.metadata["sheets"]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "test.xlsx",
            "not a workbook of the old format, perhaps of the new one. Save it as .xlsx.",
        ),
        ("wiki.md", "not a workbook of the old format: Unsupported format, or corrupt file"),
        ("fake-email.msg", "not a workbook of the old format"),
    ],
)
def test_what_is_no_workbook_of_the_old_format(tmp_path, capfd, name, words):
    """Files of other formats fail with what to do, where the suffix decides; nothing is printed."""
    register_loader(".xls", replace=True)(loaders[".xls"])
    path = tmp_path / "a.xls"
    path.write_bytes(shared("data", "docs", name).read_bytes())
    with pytest.raises(LoadError, match=re.escape(words)):
        load_file(path)
    assert capfd.readouterr() == ("", "")


def test_values_of_the_old_format():
    """Dates, times, truth and errors are read by the type of their cell; a day out of the calendar
    stays a number.
    """
    cells = [
        (xlrd.XL_CELL_DATE, 45387.0),
        (xlrd.XL_CELL_DATE, 0.25),
        (xlrd.XL_CELL_DATE, 1e9),
        (xlrd.XL_CELL_BOOLEAN, 1),
        (xlrd.XL_CELL_ERROR, 7),
        (xlrd.XL_CELL_NUMBER, 2.0),
        (xlrd.XL_CELL_TEXT, "tea"),
        (xlrd.XL_CELL_BLANK, ""),
    ]
    texts = [cell_text(_xls_value(xlrd, kind, value, 0)) for kind, value in cells]
    assert texts == ["2024-04-05", "06:00:00", "1000000000", "TRUE", "#DIV/0!", "2", "tea", ""]


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (0.075, "0.0%", "7.5%"),
        (42, "00000", "00042"),
        (12, '0" kg"', "12 kg"),
        (1234.5, '"$"#,##0.00', "$1,234.50"),
        (-1234.5, "#,##0.00;[Red](#,##0.00)", "(1,234.50)"),
        (88, '"¥"0', "¥88"),
        (5551234, "000-0000", "555-1234"),
        (1234567, '0.0,,"M"', "1.2M"),
        (1234567, "#,##0,.0", "1,234.6"),
        (5, '0"\n"" kg"', "5 kg"),
        (1234, "[$€-407] #,##0", "€ 1,234"),
        (0, '_(* #,##0_);_(* (#,##0);_(* "-"??_)', "-"),
        (-0.001, "0.00", "0.00"),
        (3.14159, "General", "3.14159"),
        (5, ";;;", "5"),
        (2.5, "0/0", "2.5"),
        (1e300, "0.00", "1e+300"),
        (-5, '[>=1000]0,"K";0', "-5"),
        (-5, "[<100]0.0;0", "-5"),
        (1e20, "0%%%%%", "1e+22%"),
        (1.5, ".00", "1.50"),
        (0.5, ".0%", "50.0%"),
        (5, '0.00"%"', "5.00%"),
        (5, "[" * 30_000, "5"),
        (1234567890123456, "0", "1234567890123456"),
    ],
)
def test_numbers_as_they_are_shown(load, value, code, shown):
    """A number is text in the format of its cell; a format that is not read leaves the number."""

    def format_number(book):
        book["s"]["B2"].number_format = code

    loaded = load(format_number, s=[["tea", "shown"], ["green", value], ["black", 1]])
    assert by_sheet(loaded)["s"][1] == f"tea: green; shown: {shown}"


def test_tables_keep_the_values(load):
    """Tables hold the numbers themselves."""

    def format_number(book):
        book["s"]["B2"].number_format = '0" kg"'

    loaded = load(format_number, s=[["tea", "weight"], ["green", 12.25], ["black", 1]])
    assert "weight: 12 kg" in loaded.text
    assert FoundTable.read(loaded.tables[0].label).rows[0] == ("green", "12.25")


@pytest.mark.parametrize(
    ("part", "old", "new", "value"),
    [
        ("styles", 'formatCode="0.00"', 'formatCode=""', "4"),
        ("sheet1", "<v>4<", "<v>1E999<", "inf"),
    ],
)
def test_flawed_numbers_cost_no_row(load, tmp_path, part, old, new, value):
    """An empty format, and a number out of range, leave the stored form."""

    def format_number(book):
        book["s"]["B2"].number_format = "0.00" if part == "sheet1" else "0.00;"

    load(format_number, s=[["tea", "kg"], ["green", 4], ["black", 1]])
    [path] = tmp_path.glob("*.xlsx")
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name).decode() for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts.items():
            is_changed = name.endswith(f"{part}.xml")
            file.writestr(
                name, data.replace("0.00;", "0.00").replace(old, new) if is_changed else data
            )
    assert load_file(path).text.split("\n")[2:] == [f"tea: green; kg: {value}", "tea: black; kg: 1"]


def test_a_quoted_percent_sign_is_no_percentage(load):
    """Tables hold the number before a percent sign in quotes as it is."""

    def format_number(book):
        book["s"]["B2"].number_format = '0.00"%"'
        book["s"]["B3"].number_format = "0%"

    loaded = load(format_number, s=[["tea", "part"], ["green", 12.25], ["black", 0.5]])
    rows = FoundTable.read(loaded.tables[0].label).rows
    assert rows == (("green", "12.25"), ("black", "50%"))


def test_escaped_characters(load):
    """Escapes of control characters are no text."""
    loaded = load(
        s=[["a", "b"], ["x", "two_x000D_\nlines"], ["y", "_x005F_x000D_"], ["_xD800_", "_x0000_z"]]
    )
    assert by_sheet(loaded)["s"][1:] == [
        "a: x; b: two lines",
        "a: y; b: _x000D_",
        "a: \ufffd; b: z",
    ]


def test_text_boxes(load, tmp_path):
    """The words of a text box follow the rows of their sheet, once; an empty one is no line."""
    load(s=[["tea", "kg"], ["green", 4]])
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relation = f'<Relationship Id="d" Type="{office}/drawing" Target="../drawings/d.xml"/>'
    words = "<a:p><a:r><a:t>prices</a:t></a:r></a:p><a:p><a:r><a:t>of May</a:t></a:r></a:p>"
    box = f"<x:sp><x:txBody>{words}</x:txBody></x:sp>"
    empty = "<x:sp><x:txBody><a:p/></x:txBody></x:sp>"
    choice = f"<m:AlternateContent><m:Choice>{box}</m:Choice><m:Fallback>{box}</m:Fallback></m:AlternateContent>"
    [path] = tmp_path.glob("*.xlsx")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(
            "xl/worksheets/_rels/sheet1.xml.rels",
            f'<R xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{relation}</R>',
        )
        file.writestr(
            "xl/drawings/d.xml",
            f'<x:wsDr xmlns:x="urn:x" xmlns:a="urn:a" xmlns:m="urn:m">{empty}{choice}{empty}</x:wsDr>',
        )
    assert load_file(path).text.split("\n")[2:] == ["tea: green; kg: 4", "prices of May"]


def test_a_format_of_many_digits_costs_no_row(load):
    """A number format with more places than a number has leaves the number."""

    def format_number(book):
        book["s"]["B2"].number_format = "0." + "0" * 40

    loaded = load(format_number, s=[["tea", "kg"], ["green", 0.5], ["black", 1]])
    assert by_sheet(loaded)["s"][1:] == ["tea: green; kg: 0.5", "tea: black; kg: 1"]


@pytest.mark.parametrize("kind", [None, "n"])
@pytest.mark.parametrize(
    "value", ["NaN", "INF", "-Infinity", "1.#QNAN", "#DIV/0!", "1,5", "1E999", "9" * 5_000]
)
def test_a_cell_that_is_no_number_costs_itself(tmp_path, value, kind):
    """The other cells of its sheet are read, and it is read as it is."""
    book = openpyxl.Workbook()
    [sheet] = book.worksheets
    for row in (["tea", "kg"], ["green", 1.5], ["black", 777.25], ["white", 3]):
        sheet.append(row)
    written = io.BytesIO()
    book.save(written)
    path = tmp_path / "teas.xlsx"
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name).replace(b"777.25", value.encode())
            if kind is None:
                data = re.sub(rb'(<c r="B3"[^>]*) t="n"', rb"\1", data)
            target.writestr(name, data)
    loaded = load_file(path)
    lines = loaded.text.split("\n")
    assert lines[2] == "tea: green; kg: 1.5"
    assert lines[3] == f"tea: black; kg: {value.replace('1E999', 'inf')}"
    assert lines[4] == "tea: white; kg: 3"
    assert "notes" not in loaded.metadata


def rewritten(folder, change):
    """A workbook of two columns whose parts a function has changed."""
    book = openpyxl.Workbook()
    [sheet] = book.worksheets
    for row in (["tea", "kg"], ["green", 777.25], ["white", 3]):
        sheet.append(row)
    written = io.BytesIO()
    book.save(written)
    path = folder / "teas.xlsx"
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, change(source.read(name)))
    return load_file(path)


@pytest.mark.parametrize(
    ("cell", "line", "notes"),
    [
        ('t="d"><v>2024-03-01', "kg: 2024-03-01", 0),
        ('t="d"><v>yesterday', "kg: yesterday", 0),
        ('t="b"><v>true', "kg: TRUE", 0),
        ('t="s"><v>99', "", 1),
        ('t="s"><v>-1', "", 1),
        ('s="999"><v>7', "kg: 7", 0),
        ('s="x"><v>7', "kg: 7", 0),
    ],
)
def test_a_damaged_cell_costs_itself(tmp_path, cell, line, notes):
    """The cells around it are read, and a text that is not in the file is noted."""
    loaded = rewritten(tmp_path, lambda data: data.replace(b't="n"><v>777.25', cell.encode()))
    green = "; ".join(filter(None, ["tea: green", line]))
    assert loaded.text.split("\n")[2:] == [green, "tea: white; kg: 3"]
    assert sum("B2" in note for note in loaded.metadata.get("notes", ())) == notes


def test_rows_and_cells_without_references(tmp_path):
    """Programs may leave out where a row and a cell are: they follow the one before."""
    loaded = rewritten(tmp_path, lambda data: re.sub(rb'(<(?:row|c)) r="\w+"', rb"\1", data))
    assert loaded.text.split("\n")[2:] == ["tea: green; kg: 777.25", "tea: white; kg: 3"]


def test_a_shared_formula_without_values(tmp_path):
    """The formula of the first cell, moved to the others."""
    first = b'<f t="shared" si="0" ref="B2:B3">A2*2</f><v>8</v>'

    def share(data):
        data = data.replace(b"<v>777.25</v>", first)
        return data.replace(b"<v>3</v>", b'<f t="shared" si="0"/>')

    loaded = rewritten(tmp_path, share)
    assert loaded.text.split("\n")[2:] == ["tea: green; kg: 8", "tea: white; kg: =A3*2"]
    assert loaded.metadata["formulas_without_values"] == ["Sheet!B3"]
