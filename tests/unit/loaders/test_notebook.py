"""Notebooks: cells in order, with what they printed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.text import NotebookLoader
from tests.shared import shared

CELLS = [
    {"cell_type": "markdown", "source": ["# 茶\n", "\n", "Tea & <b>water</b>"]},
    {"cell_type": "code", "source": "", "outputs": []},
    {
        "cell_type": "code",
        "source": ["print('80')\n", "160"],
        "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["80\n", "\x1b[31mred\x1b[0m\n"]},
            {
                "output_type": "execute_result",
                "data": {"text/plain": ["160"], "text/html": "<b>160</b>"},
            },
            {"output_type": "display_data", "data": {"image/png": "aGk="}},
            {
                "output_type": "error",
                "ename": "KeyError",
                "evalue": "'tea'",
                "traceback": ["\x1b[0;31m..."],
            },
        ],
    },
    {"cell_type": "raw", "source": "as it is"},
]
KERNEL = {"language_info": {"name": "python"}, "kernelspec": {"language": "other"}}


@pytest.fixture
def load(tmp_path):
    """A function that loads a notebook, given as a value or a text, with the loader's arguments."""

    def loaded(notebook, **arguments):
        path = tmp_path / "notebook.ipynb"
        path.write_text(
            notebook if isinstance(notebook, str) else json.dumps(notebook), encoding="utf-8"
        )
        return NotebookLoader(**arguments).load(path) if arguments else load_file(path)

    return loaded


def placed(loaded) -> list[tuple[str, str]]:
    """Label and text of each place."""
    assert {location.kind for location in loaded.locations} <= {"cell"}
    return [
        (location.label, loaded.text[location.start : location.end])
        for location in loaded.locations
    ]


def test_cells_are_places(load):
    """Sources stay as they are, text outputs stand beneath their code, empty cells keep their
    number.
    """
    loaded = load({"nbformat": 4, "metadata": KERNEL, "cells": CELLS})
    assert placed(loaded) == [
        ("1", "# 茶\n\nTea & <b>water</b>"),
        ("3", "print('80')\n160\n\n80\nred\n\n160\n\nKeyError: 'tea'"),
        ("4", "as it is"),
    ]
    assert loaded.text == "\n\n".join(text for _, text in placed(loaded))
    assert loaded.metadata == {"language": "python", "cells": 4}


def test_outputs_can_be_left_out(load):
    """Without outputs there are sources only."""
    assert placed(load({"cells": CELLS}, outputs=False))[1] == ("3", "print('80')\n160")
    with pytest.raises(ConfigError, match="outputs"):
        NotebookLoader(outputs="no")


def test_older_formats(load):
    """Cells of format 3 lie in worksheets, and their code under another name."""
    old = {
        "nbformat": 3,
        "worksheets": [{"cells": [{"cell_type": "code", "input": ["1 + 1"], "outputs": []}]}],
    }
    assert placed(load(old)) == [("1", "1 + 1")]


@pytest.mark.shared
def test_a_notebook_of_another_project():
    """Markdown, code and printed text are all there."""
    loaded = load_file(shared("data", "docs", "test_notebook.ipynb"))
    assert [location.label for location in loaded.locations] == ["1", "2", "3", "4", "5"]
    assert loaded.metadata["cells"] == 5
    assert all(
        words in loaded.text
        for words in ("# Test Notebook", 'print("markitdown")', "# comment in code")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"cells": [', "cut off"),
        ("[]", "another format"),
        ("[" * 100_000, "another format"),
        ('{"cells": ' + "7" * 5000 + "}", "not a notebook"),
        ("{}", "no list of cells"),
        ('{"worksheets": []}', "no list of cells"),
        (
            '{"cells": [null, 5, {"source": {"a": 1}, "outputs": [7, {"data": 1}]}]}',
            "holds no text",
        ),
    ],
    ids=["cut off", "list", "deep", "digits", "no cells", "no sheets", "junk"],
)
def test_what_is_no_notebook_is_reported(load, text, message):
    """Broken files and cells of junk end as one LoadError."""
    with pytest.raises(LoadError, match=message):
        load(text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20), max_size=5))
def test_no_character_is_lost(tmp_path_factory, sources):
    """Each cell's place holds its source, character by character."""
    path = tmp_path_factory.mktemp("notebook") / "file.ipynb"
    path.write_text(
        json.dumps({"cells": [{"source": source} for source in sources]}), encoding="utf-8"
    )
    expected = [(str(number), source) for number, source in enumerate(sources, 1) if source.strip()]
    assert placed(NotebookLoader().load(path)) == expected
