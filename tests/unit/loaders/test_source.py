"""Source code: the file as it is, Python's definitions as places."""

from __future__ import annotations

import ast
import csv
import json
import textwrap
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document
from lazyrag.loaders import load_file, loaders
from lazyrag.loaders.base import PythonLoader, SourceLoader


@pytest.fixture
def definitions(tmp_path):
    """A function from Python code to its definitions as (name, text)."""

    def read(code: str) -> list[tuple[str, str]]:
        path = tmp_path / "code.py"
        path.write_bytes(code.encode())
        loaded = load_file(path)
        assert loaded.text == code
        assert {location.kind for location in loaded.locations} <= {"definition"}
        return [
            (location.label, loaded.text[location.start : location.end])
            for location in loaded.locations
        ]

    return read


def test_definitions_are_places(definitions):
    """Functions and classes at the margin are places, with decorators, without what stands between
    them.
    """
    code = '''"""def not_this(): ..."""
import os

@cache
@wraps(
os)
def brew(leaves):
    """Text with
def nor_this(): ...
    """

    # inside
    return {"a": "'", 'b': "\\""}
# outside
X = 5

class Tea(
Leaf,
):
    def pour(self): ...

async \tdef 茶(): pass
'''
    brew = code[code.index("@cache") : code.index("\n# outside")]
    tea = code[code.index("class") : code.index("\n\nasync")]
    assert definitions(code) == [("brew", brew), ("Tea", tea), ("茶", "async \tdef 茶(): pass")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(definitions, end):
    """All line ends of Python are told; texts go on behind a backslash."""
    code = f"def a():{end}    return 'x\\{end}def b'{end}{end}def c(): ...{end}"
    assert [name for name, _ in definitions(code)] == ["a", "c"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("print 'old'\ndef a():\n    exec 'x'\n", ["a"]),
        ("x = (1,\ndef a():\n    pass\n", ["a"]),
        ("def a():\n    '''never closed\ndef b(): pass\n", ["a"]),
        ("def a():\n    x = 'never closed\ndef b(): pass\n", ["a", "b"]),
        ("(" * 100_000 + "\ndef a(): pass", ["a"]),
        ("x = 1 + \\\n1\ndefine = 5\n", []),
        ("def a(): '\\", ["a"]),
    ],
    ids=["python 2", "bracket", "text", "line", "deep", "none", "cut off"],
)
def test_code_that_does_not_compile(definitions, code, names):
    """Code of other versions, and broken code, is read as it is, with the definitions that can be
    told.
    """
    assert [name for name, _ in definitions(code)] == names


@pytest.mark.parametrize("module", [ast, csv, json.decoder, textwrap, typing])
def test_places_are_those_of_the_parser(module):
    """On real code the places are the definitions that Python's own parser finds, line by line."""
    path = Path(module.__file__)
    loaded = load_file(path)
    line_of = [0, *(at + 1 for at, character in enumerate(loaded.text) if character == "\n")]
    expected = [
        (one.name, min([one.lineno, *(mark.lineno for mark in one.decorator_list)]), one.end_lineno)
        for one in ast.parse(loaded.text).body
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    found = [
        (
            location.label,
            line_of.index(location.start) + 1,
            loaded.text.count("\n", 0, location.end) + 1,
        )
        for location in loaded.locations
    ]
    assert found == expected


def test_the_declared_encoding_is_read(tmp_path):
    """A coding cookie in one of the first two lines names the encoding."""
    path = tmp_path / "old.py"
    path.write_bytes("#!/usr/bin/python\n# -*- coding: koi8-r -*-\ntea = 'чай'\n".encode("koi8-r"))
    assert "tea = 'чай'" in load_file(path).text


def test_nodes_say_in_which_definition_they_stand(folder):
    """A node's place names the definition."""
    docs = Document(folder({"tea.py": "import os\n\n\ndef brew():\n    return 80\n"}))
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    assert [node.location for node in docs.get_nodes("line")] == [
        "line 1",
        "definition brew",
        "definition brew",
    ]


SUFFIXES = [suffix for suffix in loaders if loaders[suffix] is SourceLoader]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_languages_are_read_as_they_are(tmp_path, suffix):
    """Code of other languages is text without places."""
    path = tmp_path / f"code{suffix}"
    path.write_bytes("// 茶\r\nint main() {\n\treturn 0;\n}\n".encode())
    loaded = load_file(path)
    assert (loaded.text, loaded.locations) == ("// 茶\r\nint main() {\n\treturn 0;\n}\n", ())


def test_common_languages_are_among_them():
    """The languages that people have most are read."""
    assert {
        ".js",
        ".ts",
        ".java",
        ".c",
        ".h",
        ".cpp",
        ".cs",
        ".go",
        ".rs",
        ".rb",
        ".php",
        ".sh",
        ".sql",
    } <= set(SUFFIXES)


@given(
    st.lists(
        st.sampled_from(
            ["def a():", "class b:", "  x = 1", '"""', "'", "#", "(", ")", "@c", "\\", "", "茶"]
        ),
        max_size=12,
    )
)
def test_no_character_is_lost_and_places_are_definitions(tmp_path_factory, lines):
    """Whatever the code, the text is the file, and places are apart from each other, in order, each
    a definition.
    """
    path = tmp_path_factory.mktemp("source") / "code.py"
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    loaded = PythonLoader().load(path)
    assert loaded.text == "\n".join(lines)
    ends = [0, *(location.end for location in loaded.locations)]
    assert all(
        end <= location.start < location.end
        for end, location in zip(ends, loaded.locations, strict=False)
    )
    assert all(loaded.text[location.start] in "dc@" for location in loaded.locations)
