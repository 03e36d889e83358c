"""JSON: values with their paths, records as places, nothing converted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.records import JsonLinesLoader, JsonLoader
from tests.shared import shared

SHOP = {
    "shop": "Uji",
    "open": True,
    "orders": [{"tea": "Sencha", "price": 12}, {"tea": "老丛红茶", "tags": ["red", "wuyi"]}],
}


@pytest.fixture
def load(tmp_path):
    """A function that loads a text of JSON, or a value written as JSON, with a loader's
    arguments.
    """

    def loaded(value, suffix: str = ".json", **arguments):
        path = tmp_path / f"file{suffix}"
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        if not arguments:
            return load_file(path)
        return (JsonLoader if suffix == ".json" else JsonLinesLoader)(**arguments).load(path)

    return loaded


def placed(loaded) -> list[tuple[str, str, str]]:
    """Kind, label and text of each place."""
    return [
        (location.kind, location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_an_object_becomes_lines_with_paths(load):
    """Each value stands on a line behind its path, a list of plain values on one; each name is a
    place.
    """
    loaded = load(SHOP)
    assert placed(loaded) == [
        ("key", "shop", "shop: Uji"),
        ("key", "open", "open: true"),
        (
            "key",
            "orders",
            "orders[0].tea: Sencha\norders[0].price: 12\norders[1].tea: 老丛红茶\norders[1].tags: red, wuyi",
        ),
    ]
    assert loaded.text == "\n".join(text for *_, text in placed(loaded))


def test_the_elements_of_a_list_are_records(load):
    """Records are numbered, an empty line between them, and their number is metadata."""
    loaded = load(SHOP["orders"])
    assert placed(loaded) == [
        ("item", "1", "tea: Sencha\nprice: 12"),
        ("item", "2", "tea: 老丛红茶\ntags: red, wuyi"),
    ]
    assert loaded.text == "\n\n".join(text for *_, text in placed(loaded))
    assert loaded.metadata == {"records": 2}


def test_lines_are_records(load):
    """A value in each line is a record; blank lines count as lines and hold none; also under the
    suffix .json.
    """
    text = '{"tea": "Sencha"}\r\n\n["a", null, "b"]\n"\u2028"\n17\n'
    loaded = load(text, ".jsonl")
    assert placed(loaded) == [
        ("line", "1", "tea: Sencha"),
        ("line", "3", "a, b"),
        ("line", "5", "17"),
    ]
    assert loaded.metadata == {"records": 4}
    assert load(text, ".ndjson") == load(text) == loaded


def test_a_broken_line_is_left_out_and_named(load):
    """A line that is no JSON is left out with the reason; the other lines keep their numbers."""
    loaded = load('{"a": 1}\n\n{"a": 1, \n{"a": 2}\n', ".jsonl")
    assert placed(loaded) == [("line", "1", "a: 1"), ("line", "4", "a: 2")]
    assert list(loaded.metadata["unread_lines"]) == ["3"]
    assert "breaks at column 10" in loaded.metadata["unread_lines"]["3"]
    with pytest.raises(LoadError, match=r"No line can be read\. Line 1: It is not JSON"):
        load("{\n{\n", ".jsonl")


def test_json_of_several_broken_lines_is_no_json_lines(load):
    """A damaged object over several lines is named by the place where it breaks, not read line by
    line.
    """
    with pytest.raises(LoadError, match="JSON breaks at line 2, column 1"):
        load('{"a": 1}\n{\n"b": 2\n}}\n')
    with pytest.raises(LoadError, match="JSON breaks at line 4, column 1"):
        load("[\n1\n]\n" * 200)  # two of three lines are no record, more than the metadata name


def test_numbers_and_doubled_names_stay(load):
    """What the file spells is what is read: digits, exponents, names that stand twice."""
    text = (
        '{"v": 1.10, "big": 1e400, "v": 1.20, "digits": '
        + "7" * 5000
        + ', "odd": NaN, "empty": {}, "no": null}'
    )
    assert load(text).text == "v: 1.10\nbig: 1e400\nv: 1.20\ndigits: " + "7" * 5000 + "\nodd: NaN"


def test_long_texts_keep_their_line_ends(load):
    """A value of several lines stays as it is; what no store can write is replaced."""
    assert (
        load('{"t": "one\\n\\n  two\\tthree", "u": "\\u0000\\ud83c."}').text
        == "t: one\n\n  two\tthree\nu:  \ufffd."
    )


def test_selected_records_and_fields(load):
    """The list of records is named by its path, fields by theirs: whole branches, and all elements
    of lists.
    """
    value = {"data": {"items": [{"a": {"b": 1, "c": 2}, "list": [{"x": 3}, {"x": 4}], "ab": 5}]}}
    assert (
        load(value, records="data.items", fields=["list.x", "a"]).text
        == "list[0].x: 3\nlist[1].x: 4\na.b: 1\na.c: 2"
    )
    assert load(value, records="data.items", fields=["list[1].x"]).text == "list[1].x: 4"
    assert load(value, records="data.items", template="{a.b}: {list.x}").text == "1: 3, 4"
    assert placed(load(value, fields=["data.items.ab"])) == [("item", "1", "data.items[0].ab: 5")]


def test_what_is_not_there_is_said(load):
    """A field that no record has, and a path to no records, are errors that name what is there."""
    with pytest.raises(LoadError, match=r"No record has the field 'te'\. Known: .*tea"):
        load(SHOP["orders"], template="{te}")
    with pytest.raises(LoadError, match=r"no 'items' of the path 'orders\.items'"):
        load(SHOP, records="orders.items")
    assert load('{"a": 1}\n{"b": 2}\n', ".jsonl", fields=["b"]).text == "b: 2"


def test_arguments_are_checked():
    """A wrong argument is a ConfigError when the loader is made."""
    with pytest.raises(ConfigError, match="records must be"):
        JsonLoader(5)
    with pytest.raises(ConfigError, match="list"):
        JsonLinesLoader(fields="tea")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested deeper than 200 levels"),
        ('{"a":' * 100_000, "nested deeper than 200 levels"),
        ("[" * 300 + "[]" + "]" * 300, "nested deeper than 200 levels"),
        ('{"a": [1, 2', "breaks at line 1, column 12"),
        ("{'a': 1}", "breaks at line 1"),
        ('{"' + "x" * 20_000 + '": 1}', "more than 10,000 characters"),
    ],
    ids=["deep", "deep objects", "deep and whole", "cut off", "quotes", "long name"],
)
def test_hostile_files_end_as_load_errors(load, text, message):
    """Nesting, cut off files and absurd names end as one LoadError that says what it is."""
    with pytest.raises(LoadError, match=message):
        load(text)


@pytest.mark.slow
def test_long_names_do_not_make_a_bomb(load):
    """A long name above many values is an error, not a text of gigabytes."""
    with pytest.raises(LoadError, match="more than 10,"):
        load('{"' + "x" * 9_000 + '": [' + '{"a": 1},' * 20_000 + '{"a": 1}]}')


@pytest.mark.slow
def test_a_line_of_megabytes(load):
    """One line of ten megabytes is read like any other."""
    assert len(load({"text": "茶" * 3_000_000}).text) == 3_000_006


@pytest.mark.shared
def test_files_of_other_projects(folder):
    """Records of another library are lines with places; a file that is cut off and one of 5,000
    levels are errors.
    """
    loaded = load_file(shared("data", "docs", "simple.ndjson"))
    assert [location.label for location in loaded.locations] == [
        str(number) for number in range(1, len(loaded.locations) + 1)
    ]
    assert "text: This is my first thought" in loaded.text
    with pytest.raises(LoadError, match="breaks at line"):
        load_file(shared("data", "docs", "incomplete.json"))
    with pytest.raises(LoadError, match="nested deeper"):
        load_file(shared("data", "docs", "made_deep.json"))


def test_nodes_say_which_records_they_touch(folder):
    """A node's place names the records it stands in."""
    docs = Document(
        folder({"teas.json": json.dumps(SHOP["orders"]), "shop.json": json.dumps(SHOP)})
    )
    docs.create_node_group("all", transform=lambda text: [text])
    assert [node.location for node in docs.get_nodes("all")] == ["keys shop to orders", "items 1-2"]


_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(
    str.strip
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)


def _expected(value, path: str = "") -> list[tuple[str, str]]:
    """Paths and texts of the leaves of what the standard library reads, by recursion."""
    if isinstance(value, dict):
        return [
            one
            for name, inner in value.items()
            for one in _expected(inner, f"{path}.{name}" if path else name)
        ]
    if isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        return [one for at, inner in enumerate(value) for one in _expected(inner, f"{path}[{at}]")]
    if isinstance(value, list):
        texts = [text for inner in value for _, text in _expected(inner)]
        return [(path, ", ".join(texts))] if texts else []
    if value is None:
        return []
    return [(path, value if isinstance(value, str) else json.dumps(value))]


@pytest.mark.slow
@given(_VALUES)
def test_no_value_is_lost(tmp_path_factory, value):
    """Each line's text is the leaves, in order with their paths, of what the standard library
    reads.
    """
    path = tmp_path_factory.mktemp("json") / "values.jsonl"
    path.write_text(json.dumps(value), encoding="utf-8")
    expected = "\n".join(f"{name}: {text}" if name else text for name, text in _expected(value))
    assert JsonLinesLoader().load(path).text == expected


@given(st.text(st.sampled_from('{}[]",:\\ntrue019.-eu'), max_size=40))
def test_any_text_loads_or_fails_with_load_error(tmp_path_factory, text):
    """What looks like JSON gives a text or a LoadError, and a text whenever the standard library
    reads it.
    """
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_text(text, encoding="utf-8")
    try:
        json.loads(text)
        well = True
    except ValueError:
        well = False
    try:
        JsonLoader().load(path)
    except LoadError:
        assert not well


@pytest.mark.parametrize("deep", ["[" * 100_000, "[" * 300 + "1" + "]" * 300])
def test_a_line_that_is_nested_too_deep_fails_alone(tmp_path, deep):
    """The other lines are read, and the file says which is not; a file of such lines alone
    fails.
    """
    path = tmp_path / "teas.jsonl"
    path.write_text(f'{{"tea": "Sencha"}}\n{deep}\n{{"tea": "Assam"}}\n', encoding="utf-8")
    loaded = load_file(path)
    assert loaded.text == "tea: Sencha\n\ntea: Assam"
    assert [location.label for location in loaded.locations] == ["1", "3"]
    assert loaded.metadata["records"] == 2
    assert list(loaded.metadata["unread_lines"]) == ["2"]
    assert "nested deeper than 200 levels" in loaded.metadata["unread_lines"]["2"]
    path.write_text(f"{deep}\n{deep}\n", encoding="utf-8")
    with pytest.raises(LoadError, match="nested deeper"):
        load_file(path)
