"""Tables as text files: rows as lines, whatever their dialect and encoding."""

from __future__ import annotations

import csv
import io
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, Retriever, register_loader
from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError
from lazyrag.loaders import load_file
from lazyrag.loaders.records import CsvLoader
from tests.shared import shared

TEA = [
    ["tea", "origin", "price"],
    ["Sencha", "Uji", "12"],
    ["老丛红茶", "武夷山", "160"],
    ["Assam", "", "8"],
]


@pytest.fixture
def load(tmp_path):
    """A function that loads a table, given as text or bytes, with a loader's arguments."""

    def loaded(table: str | bytes, suffix: str = ".csv", **arguments):
        path = tmp_path / f"table{suffix}"
        path.write_bytes(table if isinstance(table, bytes) else table.encode())
        return CsvLoader(**arguments).load(path) if arguments else load_file(path)

    return loaded


def written(rows: list[list[str]], **dialect) -> str:
    """A table as the standard library writes it."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, **dialect).writerows(rows)
    return buffer.getvalue()


def rows_of(loaded) -> list[tuple[str, str]]:
    """The label and text of each row's place."""
    assert {location.kind for location in loaded.locations} <= {"row"}
    return [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_rows_become_lines_with_headers(load):
    """Each row is a line of headers and values, filled cells only, with the row's number in a
    spreadsheet.
    """
    loaded = load(written(TEA))
    assert loaded.text == (
        "tea: Sencha; origin: Uji; price: 12\ntea: 老丛红茶; origin: 武夷山; price: 160\ntea: Assam; price: 8"
    )
    assert rows_of(loaded) == list(zip("234", loaded.text.split("\n"), strict=True))
    assert loaded.metadata == {"columns": TEA[0], "rows": 3}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".CSV"])
@pytest.mark.parametrize("lineterminator", ["\n", "\r\n", "\r"])
def test_the_dialect_is_found_out(load, delimiter, suffix, lineterminator):
    """Tab, semicolon, bar and comma, and all line ends, are recognised, whatever the suffix."""
    rows = [*TEA, ["Mixed, with", "other; marks", "1|2"], ['said "best"', "two\nlines", "3"]]
    table = written(rows, delimiter=delimiter, lineterminator=lineterminator, quoting=csv.QUOTE_ALL)
    loaded = load(table, suffix)
    assert [text for _, text in rows_of(loaded)] == [
        *load(written(TEA)).text.split("\n"),
        "tea: Mixed, with; origin: other; marks; price: 1|2",
        'tea: said "best"; origin: two lines; price: 3',
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030"])
def test_encodings(load, encoding):
    """A table of Excel's, with a mark or in GB 18030, reads as one in UTF-8."""
    rows = [["品名", "价格", "备注"], ["青山毛尖", "180元", "明前"], ["老丛红茶", "160元", ""]]
    loaded = load(written(rows).encode(encoding))
    assert loaded.text == "品名: 青山毛尖; 价格: 180元; 备注: 明前\n品名: 老丛红茶; 价格: 160元"


def test_decimal_commas_do_not_cut_cells(load):
    """Between semicolons a comma is a decimal mark, also where it stands in each row."""
    assert load("1,5;2,5;3,5\n4,5;5,5;6,5\n").text == "1,5; 2,5; 3,5\n4,5; 5,5; 6,5"


def test_excels_first_line_names_the_delimiter(load):
    """``sep=`` in the first line is no row, and what it says goes before statistics."""
    loaded = load("sep=^\r\ntea^price\r\nSencha^12\r\n")
    assert rows_of(loaded) == [("3", "tea: Sencha; price: 12")]


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        ("Alice,30,London\nBob,25,Paris\n", ["Alice; 30; London", "Bob; 25; Paris"]),
        ("Region,2023,2024\nNorth,3.5,4.1\n", ["Region: North; 2023: 3.5; 2024: 4.1"]),
        ("2019,12\n2020,14\n", ["2019; 12", "2020; 14"]),
        (",value\nTea,12\n", ["Tea; value: 12"]),
        ("a,a\nx,y\n", ["a; a", "x; y"]),
        ("one line\nanother\n", ["one line", "another"]),
        ("tea,price\n", ["tea; price"]),
        ("a,b\n1,2,3\n4\n", ["a: 1; b: 2; 3", "a: 4"]),
        ("Our teas,\n,\ntea,price\nSencha,12\n", ["Our teas", "tea: Sencha; price: 12"]),
    ],
    ids=[
        "numbers",
        "years as names",
        "years as values",
        "no name",
        "equal",
        "one column",
        "alone",
        "ragged",
        "title",
    ],
)
def test_the_header_is_recognised(load, table, lines):
    """A first row of names is taken for the header; where it is data, it is a row like others.
    Nothing is lost.
    """
    assert load(table).text.split("\n") == lines


def test_what_was_found_out_can_be_said(load):
    """The delimiter and whether there is a header can be given, and go before what the table looks
    like.
    """
    table = "name;of\nall;teas\n"
    assert load(table, header=False).text == "name; of\nall; teas"
    assert load(table, delimiter=",").text == "name;of\nall;teas"
    assert load("1;2\n3;4\n", header=True).text == "1: 3; 2: 4"


def test_selected_columns(load):
    """Columns can be selected, in an order of one's own; one that is not there is an error that
    names the others.
    """
    assert (
        load(written(TEA), fields=["price", "tea"]).text.split("\n")[0] == "price: 12; tea: Sencha"
    )
    assert load("1,2\n3,4\n", fields=["2"]).text == "2: 4"
    with pytest.raises(
        LoadError, match=r"No.* field 'prize'\. Known: origin, price, tea\. Did you mean 'price'\?"
    ):
        load(written(TEA), fields=["prize"])


def test_a_template(load):
    """A template has values in the place of braces; doubled braces stay; a row that fills none of
    it is left out.
    """
    table = written([*TEA, ["", "nowhere", ""]])
    loaded = load(table, template="{{{tea}}} costs {price} ({origin})", fields=[])
    assert loaded.text.split("\n")[2:] == ["{Assam} costs 8 ()", "{} costs  (nowhere)"]
    assert len(load(table, template="{tea} costs {price}").locations) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delimiter": ";;"}, "one character"),
        ({"delimiter": '"'}, "one character"),
        ({"header": "yes"}, "header must be"),
        ({"fields": "tea"}, "list"),
        ({"template": "tea"}, "in braces"),
        ({"template": 5}, "in braces"),
    ],
    ids=repr,
)
def test_arguments_are_checked(arguments, message):
    """A wrong argument is a ConfigError when the loader is made."""
    with pytest.raises(ConfigError, match=message):
        CsvLoader(**arguments)


def test_unknown_arguments_are_refused():
    """A misspelt argument names the one that was meant."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'template'"):
        CsvLoader(templete="{tea}")


def test_a_subclass_serves_a_document(folder):
    """A subclass with arguments of its own can be registered, and hits say which row they are
    of.
    """

    @register_loader(".prices")
    class Prices(CsvLoader):
        """Tea and price."""

        def __init__(self):
            """The sentence."""
            super().__init__(template="{tea} costs {price}")

    docs = Document(folder({"a.prices": written(TEA)}))
    docs.create_node_group("row", transform=lambda text: text.splitlines())
    [hit] = Retriever(docs, "row", similarity="bm25_chinese", topk=1)("红茶")
    assert (hit.text, hit.location) == ("老丛红茶 costs 160", "row 3")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "first"),
    [
        (
            "semicolon-delimited.csv",
            ("2", "Lorem, ipsum: consectetur; dolor sit: adipiscing; amet: elit"),
        ),
        ("stanley-cups-utf-16.csv", ("1", "Stanley Cups")),
        ("test_mskanji.csv", ("2", "名前: 佐藤太郎; 年齢: 30; 住所: 東京")),
    ],
)
def test_tables_of_other_projects(name, first):
    """Semicolons, UTF-16 with a title line, and Shift-JIS are read."""
    assert rows_of(load_file(shared("data", "docs", name)))[0] == first


def test_a_cell_without_end(load):
    """A quotation mark that is never closed is an error with its line, not a cell of megabytes."""
    with pytest.raises(LoadError, match=r"line \d+ .*quotation mark"):
        load('a,b\n1,"2\n' + "3,4\n" * 50_000)


def test_long_headers_do_not_make_a_bomb(load):
    """A header of a megabyte above many short rows is an error, not a text of gigabytes."""
    with pytest.raises(LoadError, match="more than 40,0"):
        load("x" * 100_000 + ",y\n" + "1,2\n" * 475_000)


def test_long_white_space_takes_no_long(load):
    """A cell of white space and line ends is folded in linear time."""
    loaded = load('tea,note\nSencha,"a' + " " * 60_000 + "\n" + " " * 60_000 + 'b"\n')
    assert loaded.text == "tea: Sencha; note: a b"


_CELL = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from("\n,;|\t\"'茶é🍵"),
    max_size=8,
)


@given(
    rows=st.lists(st.lists(_CELL, min_size=3, max_size=3), min_size=1, max_size=6),
    delimiter=st.sampled_from(",;|\t"),
)
def test_no_filled_cell_is_lost(tmp_path_factory, rows, delimiter):
    """Whatever a table holds, each row's text is its filled cells in order, as the standard library
    reads them.
    """
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    path.write_bytes(("\ufeff" + written(rows, delimiter=delimiter)).encode())
    expected = [
        "; ".join(
            " ".join(part.strip() for part in cell.split("\n") if part.strip())
            for cell in row
            if cell.strip()
        )
        for row in csv.reader(
            io.StringIO(written(rows, delimiter=delimiter), newline=""), delimiter=delimiter
        )
    ]
    loaded = CsvLoader(delimiter, header=False).load(path)
    assert [text for _, text in rows_of(loaded)] == [line for line in expected if line]


@given(st.binary(max_size=300))
def test_any_bytes_load_or_fail_with_load_error(tmp_path_factory, data):
    """Mutated and random bytes give a text or a LoadError."""
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    path.write_bytes(data)
    try:
        loaded = CsvLoader().load(path)
    except LoadError:
        return
    assert (
        "\n".join(loaded.text[location.start : location.end] for location in loaded.locations)
        == loaded.text
    )


def test_fields_beside_a_template_are_refused():
    """A template says itself which fields become text: of both one would be passed over."""
    with pytest.raises(ConfigError, match=r"fields=.* and template=.* exclude each other"):
        CsvLoader(fields=["茶名"], template="{价格}")


def test_a_long_cell(load):
    """A cell of a crawled page costs no other row."""
    words = "harvest words. " * 10_000
    rows = rows_of(load(f'url,text\nx,"{words}\n{words}"\ny,second row\n'))
    assert [len(text) > 300_000 for _, text in rows] == [True, False]
    assert rows[1][1] == "url: y; text: second row"


def test_a_large_table_takes_few_times_its_size(tmp_path):
    """The rows are joined in blocks: no text, cell or row of its own for each."""
    path = tmp_path / "sales.csv"
    rows = (
        f"{number},2024-05-01,Sencha {number % 97},Uji,{number % 13}.50" for number in range(20_000)
    )
    path.write_text("\n".join(["id,day,tea,town,price", *rows]), encoding="utf-8")
    load_file(path)  # imports
    tracemalloc.start()
    loaded = load_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    locations = 250 * len(loaded.locations)  # bytes of a location with its numbers
    assert peak - locations < 6.5 * path.stat().st_size
