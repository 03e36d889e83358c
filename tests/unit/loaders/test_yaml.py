"""YAML: read as JSON is, as it is written, and nothing that harms."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import load_file, loaders
from lazyrag.loaders.records import JsonLoader

YamlLoader = loaders[".yaml"]


@pytest.fixture
def load(tmp_path):
    """A function that loads YAML with the loader's arguments."""

    def loaded(text: str, suffix: str = ".yaml", **arguments):
        path = tmp_path / f"file{suffix}"
        path.write_text(text, encoding="utf-8")
        return YamlLoader(**arguments).load(path) if arguments else load_file(path)

    return loaded


def placed(loaded) -> list[tuple[str, str, str]]:
    """Kind, label and text of each place."""
    return [
        (location.kind, location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_values_stay_as_they_are_written(load):
    """Numbers, dates and words are not converted; comments and what is empty are left out."""
    text = (
        "# teas\nversion: 1.10\nday: 2024-01-05\nopen: yes\nnone: ~\nquoted: '~'\n"
        "list: [a, 茶]\nx: |\n  one\n  two\n"
    )
    loaded = load(text, ".yml")
    assert (
        loaded.text
        == "version: 1.10\nday: 2024-01-05\nopen: yes\nquoted: ~\nlist: a, 茶\nx: one\ntwo\n"
    )
    assert [(kind, label) for kind, label, _ in placed(loaded)][:2] == [
        ("key", "version"),
        ("key", "day"),
    ]


def test_lists_and_documents_are_records(load):
    """Elements of a list are items; of several documents each is a place."""
    assert placed(load("- a: 1\n- b\n")) == [("item", "1", "a: 1"), ("item", "2", "b")]
    assert placed(load("a: 1\n---\n- b\n- c\n")) == [
        ("document", "1", "a: 1"),
        ("document", "2", "b, c"),
    ]


def test_aliases_are_written_out(load):
    """An alias stands for its value, and what is merged in for its names; keys may be anything."""
    text = "base: &b {cup: 80}\ntea:\n  <<: *b\n  name: Sencha\nsame: *b\n? [x, y]\n: z\n"
    assert load(text).text == "base.cup: 80\ntea.cup: 80\ntea.name: Sencha\nsame.cup: 80\nx, y: z"


def test_selected_records_and_fields(load):
    """Records, fields and templates are chosen as with JSON."""
    text = "data:\n- {tea: Sencha, price: 12.50}\n- {tea: Assam, price: 8}\n"
    assert (
        load(text, records="data", template="{tea} costs {price}").text
        == "Sencha costs 12.50\n\nAssam costs 8"
    )
    assert load(text, fields=["data.tea"]).text == "data[0].tea: Sencha\ndata[1].tea: Assam"
    with pytest.raises(ConfigError, match="records must be"):
        YamlLoader(5)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n"
    for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "aliases expand to more than 10,000,000 characters"),
        (BOMB.replace("x", "[]"), "aliases expand to more than 10,000,000 characters"),
        (
            "a: &a '" + "x" * 100_000 + "'\nb: [" + "*a, " * 10_000 + "]",
            "aliases expand to more than",
        ),
        ("a: &a [*a]", "is inside it"),
        ("a: *b", "no anchor before it"),
        ("[" * 100_000, "nested deeper than 200 levels"),
        ("? " * 1000 + "a", "nested deeper than 200 levels"),
        ("a: [1, 2", "breaks at line"),
        ("a: 1\n b: 2", "breaks at line 2"),
        ("a: \ud7ff\ufffe", "breaks"),
        ("", "holds no text"),
        ("# only this\n", "holds no text"),
    ],
    ids=[
        "bomb",
        "empty bomb",
        "long",
        "self",
        "nothing",
        "deep",
        "keys",
        "cut off",
        "indent",
        "character",
        "empty",
        "#",
    ],
)
def test_hostile_files_end_as_load_errors(load, text, message):
    """Alias bombs, nesting and broken files end as one LoadError."""
    with pytest.raises(LoadError, match=message):
        load(text)


def test_tags_make_no_objects(load):
    """A tag that makes other readers run code is passed over."""
    assert (
        load("a: !!python/object/apply:os.system ['exit 1']\nb: !!binary aGk=").text
        == "a: exit 1\nb: aGk="
    )


_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]), min_size=1, max_size=6
).filter(str.strip)
_VALUES = st.recursive(
    st.none() | st.integers() | _TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_TEXT.filter("<<".__ne__), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(_VALUES)
def test_yaml_is_read_as_json_is(tmp_path_factory, value):
    """What PyYAML writes reads as the same value written as JSON does."""
    folder = tmp_path_factory.mktemp("yaml")
    (folder / "a.yaml").write_text(
        yaml.safe_dump(value, allow_unicode=True, sort_keys=False), encoding="utf-8"
    )
    (folder / "a.json").write_text(json.dumps(value), encoding="utf-8")
    assert YamlLoader().load(folder / "a.yaml") == JsonLoader().load(folder / "a.json")
