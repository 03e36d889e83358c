"""Units of a text: sentences, items, rows, code, headings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.generation.units import units_of

TABLE = "| tea | water |\n|---|---|\n| green | 80 degrees |\n| black | 95 degrees |\n"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("One. Two.\n\nThree.", ["sentence"] * 3),
        ("- One. Two.\n- Three\n", ["item"] * 2),
        (TABLE, ["header", "row", "row"]),
        ("+----+----+\n| a  | b  |\n+====+====+\n| c  | 1  |\n+----+----+\n", ["header", "row"]),
        ("Name | Water | Time | More\nGreen | 80 | 2 | x\n", ["header", "row"]),
        ("| green | 80 |\n| black | 95 |\n", ["row", "row"]),
        ("Data sheet\nBore | 20 mm\nSpeed | 18,000 rpm\n", ["sentence", "row", "row"]),
        ("One line with | a bar\n\nand text.", ["sentence", "sentence"]),
        ("tea: Oolong; price: 7\ntea: Assam; price: 5\n", ["record"] * 2),
        (
            "Oolong; price: 7\ntea: Assam; price: 5\ntea: Keemun; price: 6",
            ["sentence"] + ["record"] * 2,
        ),
        ("Tea | Price\nTea: Oolong; Price: 7\nTea: Assam; Price: 5", ["header"] + ["record"] * 2),
        ("There are two: one; and the other: it goes\non here. It ends.", ["sentence"] * 2),
        ("shop.port: 80\nshop.host: here\n时间：九点\n", ["item"] * 3),
        ("Note: one line of a text\nthat goes on. It ends.", ["sentence"] * 2),
        (f"问：哪里？\n答：{'很长的回答。' * 60}", ["item"] + ["sentence"] * 60),
        (
            f"tea: Oolong; notes: {'green ' * 120}; price: 7\ntea: Assam; notes: x",
            ["sentence"] * 3 + ["record"],
        ),
        ("green " * 120, ["sentence"] * 3),
        ("x" * 700, ["sentence"]),
        ("```sh\nmake tea\n\nmake it hot\n```\nDone.", ["code", "sentence"]),
        ("Title\n~~~~~\n\nText.", ["heading", "sentence"]),
        ("Title of a plain text\n\nText.\n\nLast line", ["heading", "sentence", "sentence"]),
        (
            "Returns\nGoods are returned within a month. The buyer pays.\n退货\n商品须在三十天内退回，运费自付。",
            ["heading", "sentence", "sentence", "heading", "sentence"],
        ),
        (
            "7. Hand tools\n\nShears are sharp.\n\n8. Lending\n\nIt is free.",
            ["heading", "sentence"] * 2,
        ),
        (
            "1. Fill the can\n\n2. Close it\n\n3. Wait an hour.\n\nDone.",
            ["item"] * 3 + ["sentence"],
        ),
        ("周日休息\n平时早上九点到晚上六点营业，午休一小时", ["sentence"]),
        ("The first line of some\nprose goes on.\nDear Sir\nand Madam of it all", ["sentence"] * 2),
        ("Like this::\n\n    make tea\n\n    drink it\n\nDone.", ["sentence", "code", "sentence"]),
        ("Like this:\n\n    make tea\n\nDone.", ["sentence", "code", "sentence"]),
        (
            ".. code-block:: sh\n   :linenos:\n\n   make tea\n\n.. note::\n\n   Hot. Done.",
            ["code", "sentence", "sentence"],
        ),
        ("code that began earlier\n```\n\nText after it.", ["code", "sentence"]),
        ("cut = 1\n```\nText:\n\n```sh\nmake tea\n```", ["code", "sentence", "code"]),
        ("    def make(tea):\n        return hot\n\nText.", ["code", "sentence"]),
        ("Text.\n\n```\ncode that goes on", ["sentence", "code"]),
        ("```{note}\nTea. Hot.\n```\nText.", ["sentence"] * 3),
        (":ref:`Tea <tea>` is hot.", ["sentence"]),
        ("code\n```\n\nText.\n\n```sh\nmake tea\n", ["code", "sentence", "code"]),
        ("Text.\n\n```sh\nmake tea\n\nmake it hot\n", ["sentence", "code"]),
        (f"- {'A long item. ' * 40}", ["sentence"] * 40),
    ],
)
def test_units_follow_the_structure_of_a_text(text, kinds):
    """Markdown, reStructuredText, plain tables, and passages that begin or end inside of code."""
    assert [unit.kind for unit in units_of(text)] == kinds


@given(st.text(alphabet="ab1 .。\n|`~#-:天", max_size=80))
def test_units_are_in_order_and_do_not_overlap(text):
    """Whatever the text: each has a letter or digit, and no white space at its ends."""
    units = units_of(text)
    assert all(first.end <= second.start for first, second in pairwise(units))
    for unit in units:
        words = text[unit.start : unit.end]
        assert words == words.strip()
        assert any(map(str.isalnum, words))
