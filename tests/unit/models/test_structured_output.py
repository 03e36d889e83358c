"""Readers of chat models' answers: whatever shape they have, what is read stands there, and nothing
else is raised.
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.models.chat import MAX_ANSWER_LENGTH, UnreadableAnswerError, visible
from lazyrag.models.structured_output import find_json
from lazyrag.transforms.llm import (
    read_json,
    read_keywords,
    read_lines,
    read_pairs,
    read_summary,
    read_text,
)

READERS = [read_text, read_summary, read_keywords, read_pairs, read_lines, read_json]
WORDS = st.text("茶水abcXYZ009é", min_size=1, max_size=12)
LINES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=30
)
# What models' answers are made of, in every order.
MARKS = [
    *"[]{}\"',:“”‘’（）［］｛｝，：、；\n\t \\*_`#。.",
    "<think>",
    "</think>",
    "```json\n",
    "```",
    "- ",
    "1. ",
]
PARTS = [
    "Q: ",
    "A: ",
    "问：",
    "答：",
    "question",
    "answer",
    "tea",
    "茶",
    "12",
    "true",
    "null",
    "\\u8336",
    "\\ud800",
]
PIECES = st.sampled_from(MARKS + PARTS)
ANSWERS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60)


@given(ANSWERS, st.booleans())
def test_a_reader_reads_or_says_that_it_cannot(answer, is_cut):
    """Any answer gives what was asked for, not blank and fit to be kept, or an
    UnreadableAnswerError.
    """
    for read in READERS:
        try:
            found = read(answer, is_cut)
        except UnreadableAnswerError:
            continue
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        if read is not read_json:
            assert found
            assert all(
                part.strip() for one in found for part in ([one] if isinstance(one, str) else one)
            )


@given(ANSWERS, st.booleans())
def test_no_reader_makes_up_a_text(answer, is_cut):
    """Every letter and digit of what is read stands in the answer, in this order."""
    inks = [
        "".join(filter(str.isalnum, told)) for told in (answer, answer.replace("\\u8336", "茶"))
    ]
    for read in (read_text, read_summary, read_keywords, read_pairs, read_lines):
        try:
            found = read(answer, is_cut)
        except UnreadableAnswerError:
            continue
        for one in found:
            for part in [one] if isinstance(one, str) else one:
                assert any("".join(filter(str.isalnum, part)) in ink for ink in inks)


@given(st.lists(WORDS, min_size=1, max_size=8, unique_by=str.casefold), st.booleans())
def test_keywords_come_back_from_json(words, indented):
    """A list of keywords, written as JSON, is read as it was."""
    told = json.dumps(words, ensure_ascii=False, indent=2 if indented else None)
    assert read_keywords(told, False) == words
    assert (
        read_keywords(f"Sure! Here they are:\n```json\n{told}\n```\nAnything else?", False) == words
    )


@pytest.mark.slow
@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=5, unique=True))
def test_pairs_come_back_from_json(pairs):
    """Pairs in JSON are read as they were, by whatever names."""
    for asks, answers in (("question", "answer"), ("问题", "答案"), ("Q", "A")):
        told = json.dumps(
            [{asks: question, answers: answer} for question, answer in pairs], ensure_ascii=False
        )
        assert read_pairs(told, False) == pairs
        assert read_pairs(f'{{"pairs": {told}}}', False) == pairs


@given(st.lists(st.tuples(LINES, LINES), min_size=2, max_size=4, unique=True), st.data())
def test_half_an_answer_gives_its_whole_pairs(pairs, data):
    """JSON that is cut anywhere gives the pairs before the cut, each whole."""
    told = json.dumps([{"question": question, "answer": answer} for question, answer in pairs])
    cut = data.draw(st.integers(0, len(told) - 1))
    whole = told[:cut].count("}") if "}" not in "".join(map("".join, pairs)) else None
    # A single pair of which only the brace is missing is whole as well.
    try:
        found = read_pairs(told[:cut], True)
    except UnreadableAnswerError:
        found = []
    assert found == pairs[: len(found)]
    assert whole is None or len(found) == whole or (whole, len(found)) == (0, 1)


@pytest.mark.parametrize(
    ("answer", "keywords"),
    [
        ("['green tea', \"it's\", 'don't', ]", ["green tea", "it's", "don't"]),
        ('[“绿茶”，‘水’，"火"]', ["绿茶", "水", "火"]),
        ('［"绿茶"、"水"］', ["绿茶", "水"]),
        ('{"keywords": ["tea", "water"], "language": "en"}', ["tea", "water"]),
        ('["tea", "water", "fi', ["tea", "water"]),
        ('<think>["no"] Hm.</think>["tea"]', ["tea"]),
        ('so ["no"]...</think>\n\n["tea"]', ["tea"]),
        ('As asked [1]:\n["tea", "Tea ", "TEA"]', ["tea"]),
        ('["tea", // a drink\n "water"]', ["tea", "water"]),
        ('["tea", 2024, ""]', ["tea"]),
    ],
)
def test_keywords_in_what_models_write_for_json(answer, keywords):
    """Quotes, commas, fences, prose and thoughts of all kinds are left out."""
    assert read_keywords(answer, False) == keywords


@pytest.mark.parametrize(
    ("answer", "pairs"),
    [
        ('{"questions": [{"question": "Hot?", "answer": "Yes."}]}', [("Hot?", "Yes.")]),
        ('Here:\n```json\n[{"q": "Hot?", "a": "Yes."}, {"q": "Lost?"}]\n```', [("Hot?", "Yes.")]),
        ('[{question: "Hot?", answer: "Yes."}, {"question": "Ha', [("Hot?", "Yes.")]),
        ('{"question": "How many?", "answer": 3}', [("How many?", "3")]),
    ],
)
def test_pairs_in_what_models_write_for_json(answer, pairs):
    """Other keys and lists, prose around them, questions without an answer, a cut."""
    assert read_pairs(answer, False) == pairs


def test_what_was_cut_is_left_out():
    """Of a list the last item, of a summary the last sentence; what has no complete item cannot be
    read.
    """
    assert read_pairs(
        '{"questions": [{"question": "Hot?", "answer": "Yes."}, {"question": "C', True
    ) == [("Hot?", "Yes.")]
    assert read_keywords('{"keywords": ["tea", "wat', True) == ["tea"]
    assert read_summary("Tea keeps. It is sto", True) == ["Tea keeps."]
    assert read_summary("茶要避光保存。开封后", True) == ["茶要避光保存。"]
    for read, answer in (
        (read_pairs, '[{"question": "Hot?", "an'),
        (read_keywords, '["tea'),
        (read_summary, "Tea is"),
    ):
        with pytest.raises(UnreadableAnswerError):
            read(answer, True)


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ("摘要：茶要避光。", "茶要避光。"),
        ("## Summary\n\nTea keeps.", "Tea keeps."),
        ("Okra soup, in short:\n- x", "Okra soup, in short:\n- x"),
        ("Here is a summary of the text:\n\nTea keeps.", "Tea keeps."),
        ('"Tea keeps."', "Tea keeps."),
        ("```\nTea keeps.\n```", "Tea keeps."),
        ("In short: tea keeps, [mostly] {so}.", "In short: tea keeps, [mostly] {so}."),
        ("<think>\nHm. </thinking> or so?\n</think>\nTea keeps.", "Tea keeps."),
    ],
)
def test_summaries_in_the_shapes_that_models_write(answer, summary):
    """Labels, preambles, fences, quotes and thoughts are left out; brackets of the text's own
    stay.
    """
    assert read_summary(answer, False) == [summary]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("<think>I wonder", "reasoning"),
        ("<!DOCTYPE html><html><body>502</body></html>", "HTML"),
        ("x" * (MAX_ANSWER_LENGTH + 1), "characters"),
        ("half \ud800", "half a character"),
        ("I am sorry, but I cannot find any keywords.", "no JSON list"),
        ("tea, water", "no JSON list"),
        ('[{"a": 1}, {"b": 2}]', "no JSON list"),
        ('{"keywords": ["...", ""]}', "no JSON list"),
    ],
)
def test_what_cannot_be_read_says_why(answer, why):
    """The message tells the model what was wrong."""
    with pytest.raises(UnreadableAnswerError, match=why):
        read_keywords(answer, False)


def test_lines_and_json_of_custom_prompts():
    """Lines lose their marks, JSON keeps its values; half of it is an error."""
    assert read_lines("```\n- one\n\n2) two\nthree\n```", False) == ["one", "two", "three"]
    assert read_json('It is: [1, {"a": [true]}, "x",]', False) == [1, {"a": [True]}, "x"]
    assert read_json('{"a": 1}', False) == [{"a": 1}]
    assert read_json("[]", False) == []
    for broken in ('[1, {"a": ', "none", "[1e999]", "[NaN]", '["\\ud800"]'):
        with pytest.raises(UnreadableAnswerError):
            read_json(broken, False)


HOSTILE = {
    "brackets": "[" * 30_000,
    "quotes": '["' * 15_000,
    "opening quotes": "[“" * 30_000,
    "depth": '{"a":' * 15_000,
    "no commas": "['a' " * 10_000,
    "white space": '"' + " " * 90_000 + '"[',
    "lines": '["a"' + "\n" * 50_000 + "b",
    "bullets": "- " * 40_000,
    "thoughts": "<think>" * 10_000,
    "questions": "Q: " * 30_000,
    "pairs": "Q:\nA:\n" * 10_000,
    "fences": "```\n" * 20_000,
    "digits": "[" + "9" * 90_000 + "]",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_no_answer_takes_long(answer):
    """Answers that are all brackets, quotes or marks are read or refused within a second or two."""
    since = time.process_time()
    for read in READERS:
        with contextlib.suppress(UnreadableAnswerError):
            read(answer, False)
    assert time.process_time() - since < 3


def test_json_within_prose_is_the_wanted_one():
    """Brackets of prose, and JSON of another kind, are passed over."""
    found = find_json(
        'See [1] and {so}: {"a": [1, 2]} or [3]', lambda value: isinstance(value, dict)
    )
    assert found is not None
    assert found.value == {"a": [1, 2]}
    assert find_json("none here", bool) is None
    assert visible("<b>tea</b>") == "<b>tea</b>"
