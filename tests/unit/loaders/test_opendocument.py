"""OpenDocument: texts in the order of their body, spreadsheets row by row."""

from __future__ import annotations

import zipfile

import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders import LoadedFile, load_file, loaders, register_loader
from tests.shared import shared

NAMES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in [
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("draw", "drawing"),
        ("style", "style"),
        ("meta", "meta"),
        ("presentation", "presentation"),
    ]
)


SUFFIXES = {"text": "odt", "spreadsheet": "ods", "presentation": "odp"}


@pytest.fixture
def load(tmp_path):
    """A function that writes an OpenDocument file with a body and loads it."""

    def written_and_loaded(kind: str, body: str, styles: str = "", **parts: str) -> LoadedFile:
        path = tmp_path / f"a.{SUFFIXES[kind]}"
        content = (
            f"<office:document-content {NAMES}><office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
        )
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("content.xml", content)
            for name, part in parts.items():
                archive.writestr(name.replace("__", "/").replace("_", ".") + ".xml", part)
        return load_file(path)

    return written_and_loaded


def cell(text: str, more: str = "") -> str:
    """A cell that shows a text."""
    return f"<table:table-cell {more}><text:p>{text}</text:p></table:table-cell>"


def row(*cells: str, more: str = "") -> str:
    """A row of cells."""
    return f"<table:table-row {more}>{''.join(cells)}</table:table-row>"


def table(*rows: str, name: str = "s", style: str = "") -> str:
    """A table of rows."""
    return (
        f'<table:table table:name="{name}" table:style-name="{style}">{"".join(rows)}</table:table>'
    )


def test_the_body_in_its_order(load):
    """Paragraphs, headings, lists, tables and sections come in the order of the body; headings are
    places.
    """
    body = (
        "<text:sequence-decls/><text:p>before</text:p>"
        '<text:h text:outline-level="1">绿茶</text:h>'
        "<text:list><text:list-item><text:p>one</text:p></text:list-item>"
        "<text:list-item><text:p>two</text:p></text:list-item></text:list>"
        + table(
            f"<table:table-header-rows>{row(cell('tea'), cell('price'))}</table:table-header-rows>",
            row(cell("green"), cell("10")),
        )
        + '<text:section><text:h text:outline-level="2">Inner</text:h><text:p>end</text:p></text:section>'
    )
    loaded = load("text", body)
    assert loaded.text.split("\n") == [
        "before",
        "绿茶",
        "one",
        "two",
        "tea | price",
        "green | 10",
        "Inner",
        "end",
    ]
    assert [
        (location.kind, location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ] == [
        ("heading", "绿茶", "绿茶\none\ntwo\ntea | price\ngreen | 10\n"),
        ("heading", "绿茶 > Inner", "Inner\nend"),
    ]


def test_what_is_within_a_paragraph(load):
    """Spans, links, spaces, tabs and line breaks are read; comments, notes and deleted text are
    not; boxes follow.
    """
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:p>a<text:span>b</text:span><text:s text:c="3"/>c<text:tab/>d<text:line-break/>e'
        "<office:annotation><text:p>comment</text:p></office:annotation>"
        "<text:note><text:note-body><text:p>note</text:p></text:note-body></text:note>"
        "<draw:frame><draw:text-box><text:p>box</text:p></draw:text-box></draw:frame><text:a>f</text:a>!</text:p>"
    )
    assert load("text", body).text == "ab   c\td\ne[1]f!\nbox\n[1] note"


def test_title_and_author(load):
    """What the document says of itself becomes metadata."""
    meta = (
        f'<office:document-meta {NAMES} xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta><dc:title>Tea</dc:title>'
        "<meta:initial-creator>Li</meta:initial-creator></office:meta></office:document-meta>"
    )
    assert dict(load("text", "<text:p>x</text:p>", meta=meta).metadata) == {
        "title": "Tea",
        "author": "Li",
    }


def test_sheets(load):
    """Values are read by their type, sheets and rows are places, hidden ones are said."""
    values = row(
        cell("4,50", 'office:value-type="float" office:value="4.5"'),
        cell("5. April", 'office:value-type="date" office:date-value="2024-04-05"'),
        cell("12,5 %", 'office:value-type="percentage" office:value="0.125"'),
        cell("wahr", 'office:value-type="boolean" office:boolean-value="true"'),
        cell("1:30", 'office:value-type="time" office:time-value="PT01H30M00S"'),
        cell("odd", 'office:value-type="date" office:date-value="odd"'),
    )
    names = row(*map(cell, ["number", "day", "share", "true", "time", "date"]))
    styles = (
        '<style:style style:name="h"><style:table-properties table:display="false"/></style:style>'
    )
    body = (
        table(names, values, name="one")
        + table(row(cell("secret")), name="two", style="h")
        + table(name="none")
    )
    loaded = load("spreadsheet", body, styles)
    assert loaded.text.split("\n") == [
        "one",
        "number | day | share | true | time | date",
        "number: 4,50; day: 2024-04-05; share: 12,5 %; true: TRUE; time: 1:30:00; date: odd",
        "",
        "two",
        "secret",
    ]
    assert [(location.kind, location.label) for location in loaded.locations] == [
        ("sheet", "one"),
        ("row", "one > 2"),
        ("sheet", "two"),
    ]
    assert dict(loaded.metadata) == {"sheets": ["one", "two"], "hidden_sheets": ["two"]}


def test_repeated_cells_and_rows(load):
    """Equal neighbours are stored once and read as often as they stand there; empty ones cost
    nothing.
    """
    many = 'table:number-{}-repeated="{}"'
    body = table(
        row(
            cell("a", many.format("columns", 2)),
            "<table:table-cell/>",
            cell("b"),
            more=many.format("rows", 2),
        ),
        row(
            f"<table:table-cell {many.format('columns', 16384)}/>",
            more=many.format("rows", 1048576),
        ),
    )
    assert load("spreadsheet", body).text == "s\na | a |  | b\na | a |  | b"


def test_rows_are_counted_where_they_stand(load):
    """Rows that are stored once, empty or not, or grouped as a head, count as often as they stand
    there.
    """
    many = 'table:number-rows-repeated="{}"'
    body = table(
        row("<table:table-cell/>", more=many.format(5000)),
        f"<table:table-header-rows>{row(cell('tea'), cell('kg'))}</table:table-header-rows>",
        row(cell("green"), cell("4"), more=many.format(2)),
        row("<table:table-cell/>"),
        row(cell("black"), cell("5")),
    )
    loaded = load("spreadsheet", body)
    assert [location.label for location in loaded.locations] == [
        "s",
        "s > 5002",
        "s > 5003",
        "s > 5005",
    ]


@pytest.mark.slow
def test_repetition_has_an_end(load):
    """A row that is said to stand there a million times, full of a cell that is as well, is refused
    soon.
    """
    body = table(
        row(
            cell("x", 'table:number-columns-repeated="999999"'),
            more='table:number-rows-repeated="999999"',
        )
    )
    with pytest.raises(LoadError, match="limit work"):
        load("spreadsheet", body)


@pytest.mark.shared
def test_a_real_text():
    """A real text gives its words and its table."""
    assert (
        load_file(shared("data", "docs", "fake.odt")).text.split()
        == (
            "Lorem ipsum dolor sit amet. Header row | Mon | Wed | Fri Color | Blue | Red | Green "
            "Time | 1pm | 2pm | 3pm Leader | Sarah | Mark | Ryan"
        ).split()
    )


def test_locked_files(load):
    """An encrypted document asks for its password to be taken off."""
    manifest = "<manifest><file-entry><encryption-data/></file-entry></manifest>"
    with pytest.raises(LoadError, match="text document is encrypted and needs a password"):
        load("text", "", **{"META-INF__manifest": manifest})


@pytest.mark.shared
@pytest.mark.parametrize(
    ("suffix", "name", "words"),
    [
        (
            ".ods",
            "fake.odt",
            r"not a spreadsheet: it is of another format than its suffix says\. Save it as \.ods",
        ),
        (".odt", "docx-tables.docx", r"no text document: .* lacks the part content\.xml"),
        (".odt", "wiki.md", "no text document: it is cut off, encrypted, or of another format"),
    ],
)
def test_what_is_no_such_document(tmp_path, suffix, name, words):
    """Files of other formats fail with what to do, where the suffix decides."""
    register_loader(suffix, replace=True)(loaders[suffix])
    path = tmp_path / f"a{suffix}"
    path.write_bytes(shared("data", "docs", name).read_bytes())
    with pytest.raises(LoadError, match=words):
        load_file(path)


def test_notes_follow_the_text(load):
    """Foot- and endnotes are numbered as they are called, and follow as places of their own."""
    note = "<text:note><text:note-body><text:p>{}</text:p></text:note-body></text:note>"
    body = (
        '<text:h text:outline-level="1">Tea</text:h>'
        f"<text:p>green{note.format('from Uji')} and</text:p>"
        + table(row(cell(f"black{note.format('from Assam')}")))
    )
    loaded = load("text", body)
    assert loaded.text.split("\n") == [
        "Tea",
        "green[1] and",
        "black[2]",
        "[1] from Uji",
        "[2] from Assam",
    ]
    places = [(one.kind, loaded.text[one.start : one.end]) for one in loaded.locations]
    assert places[1:] == [("footnote", "[1] from Uji"), ("footnote", "[2] from Assam")]
    assert places[0] == ("heading", "Tea\ngreen[1] and\nblack[2]\n")


def item(text: str, more: str = "") -> str:
    """An item of a list."""
    return f"<text:list-item {more}><text:p>{text}</text:p></text:list-item>"


def test_a_list_number_out_of_range(load):
    """A number of thousands of digits costs no file: the item is counted."""
    level = (
        '<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>'
    )
    style = f'<text:list-style style:name="L">{level}</text:list-style>'
    items = item("a") + item("b", f'text:start-value="{"9" * 5000}"')
    loaded = load("text", f'<text:list text:style-name="L">{items}</text:list>', style)
    assert loaded.text.split("\n") == ["1. a", "2. b"]


def test_numbers_of_lists(load):
    """Items have the numbers that are shown; those of bullets have none."""
    level = '<text:list-level-style-number text:level="{}" style:num-format="{}" {}/>'
    styles = (
        '<text:list-style style:name="L">'
        + level.format(1, "1", 'style:num-suffix="."')
        + level.format(2, "a", 'style:num-prefix="(" style:num-suffix=")" text:display-levels="2"')
        + '</text:list-style><text:list-style style:name="B">'
        '<text:list-level-style-bullet text:level="1"/></text:list-style>'
    )
    numbered = '<text:list text:style-name="L" {}>{}</text:list>'
    inner = f"<text:list>{item('b')}{item('c')}</text:list>"
    body = (
        numbered.format("", item("a") + f"<text:list-item>{inner}</text:list-item>" + item("d"))
        + f'<text:list text:style-name="B">{item("bullet")}</text:list>'
        + numbered.format("", item("again") + item("jump", 'text:start-value="7"'))
        + numbered.format('text:continue-numbering="true"', item("on"))
    )
    assert load("text", body, styles).text.split("\n") == [
        "1. a",
        "(2.a) b",
        "(2.b) c",
        "3. d",
        "bullet",
        "1. again",
        "7. jump",
        "8. on",
    ]


def test_slides(load):
    """Each slide is a place: its shapes, its tables as data, and its notes."""
    box = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    grid = table(row(cell("tea"), cell("kg")), row(cell("green"), cell("4")))
    first = (
        box.format("Prices")
        + "<draw:custom-shape><text:p>a shape</text:p></draw:custom-shape>"
        + f"<draw:frame>{grid}</draw:frame>"
        + f"<presentation:notes>{box.format('say it')}</presentation:notes>"
    )
    loaded = load("presentation", f"<draw:page>{first}</draw:page><draw:page/>")
    assert loaded.text.strip() == "Prices\na shape\ntea | kg\ngreen | 4\nsay it"
    assert [(one.kind, one.label) for one in loaded.locations] == [("slide", "1"), ("slide", "2")]
    [found] = loaded.tables
    assert loaded.text[found.start : found.end] == "tea | kg\ngreen | 4"
