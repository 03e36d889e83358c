"""What models write before and around an answer: thoughts, the prompt, characters that cannot be
kept.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.generation.generator import AnswerReader, read_answer
from lazyrag.models.chat import split_reasoning, split_unopened, visible

PROMPT = "Answer from this material: [1] Water of 80 degrees suits green tea.\r\n\r\nHow hot should it be?"
BITS = st.sampled_from(
    [
        *(
            "<think>",
            "</think>",
            "<THINKING>",
            "</thinking>",
            "<th",
            "ink>",
            "<",
            "tea",
            "茶",
            "[1]",
            PROMPT[:30],
        ),
        *(PROMPT[30:], " ", "\n", "\r", "\x00", "\ud83c", "\udf75", "\ufeff"),
    ]
)


def streamed(pieces, reason=None):
    """What was handed out piece by piece, and the answer at the end."""
    reader = AnswerReader(PROMPT)
    shown = [reader.feed(one) for one in pieces]
    shown.append(reader.end())
    return "".join(shown), reader.answer(reason, streamed=True)


@given(st.lists(BITS, max_size=12), st.data())
def test_pieces_and_the_whole_give_the_same(bits, data):
    """However a text is cut; the pieces joined are the answer, unless thoughts ended that never
    began.
    """
    text = "".join(bits)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = read_answer(text, PROMPT)
    shown, answer = streamed(pieces)
    assert (answer.text, answer.reasoning, answer.skipped) == (
        whole.text,
        whole.reasoning,
        whole.skipped,
    )
    unopened = [one for one in answer.problems if "without having begun" in one]
    assert tuple(one for one in answer.problems if one not in unopened) == whole.problems
    assert shown.endswith(answer.text) if unopened else shown == answer.text
    answer.text.encode()  # no half of a character is left


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>Tea, so ...</think>80 degrees [1].", "Tea, so ...", "80 degrees [1]."),
        ("\n <Thinking>a</THINKING>\n\n80", "a", "80"),
        ("<think>a</think>\n<think>b</think>80", "a\nb", "80"),
        ("<reasoning>a <b> c</reasoning>80", "a <b> c", "80"),
        ("<think>\n\n</think>\n\n80", "", "80"),
        ("Tea, so ...</think>80", "Tea, so ...", "80"),
        ("80", "", "80"),
        ("a < b", "", "a < b"),
        ("<thin ice>", "", "<thin ice>"),
        ("The tag <think> begins thoughts, </think> ends them.", "", None),
        ("<think>a</think>It is written <think>b</think>.", "a", "It is written <think>b</think>."),
    ],
)
def test_thoughts_are_taken_off_the_front(text, reasoning, answer):
    """Blocks before the answer, in any case; tags inside the answer stay where they are."""
    read = read_answer(text, PROMPT)
    assert (read.reasoning, read.text) == (reasoning, text if answer is None else answer)
    assert read.problems == ()
    assert streamed(text)[1].text == read.text  # character by character


def test_thinking_that_does_not_end_leaves_no_answer():
    """One sentence says so, with what to do; nothing of it is handed out."""
    shown, answer = streamed(["<think>Tea, ", "so ..."], "length")
    assert (shown, answer.text, answer.reasoning) == ("", "", "Tea, so ...")
    [problem] = answer.problems
    assert "still thinking" in problem
    assert "raise max_tokens" in problem


def test_thoughts_that_never_began_are_told_when_they_were_streamed():
    """They had been handed out before their end came; the answer is without them."""
    shown, answer = streamed(["Tea, so ...", "</think>", "80 degrees"])
    assert shown == "Tea, so ...</think>80 degrees"
    assert (answer.text, answer.reasoning) == ("80 degrees", "Tea, so ...")
    assert ["without having begun" in one for one in answer.problems] == [True]


@pytest.mark.slow
def test_long_thoughts_in_small_pieces_are_read_once():
    """A character at a time, of a hundred thousand: what was read is not looked at again."""
    reader = AnswerReader(PROMPT)
    for character in "<think>" + "tea " * 25_000 + "</think>80":
        reader.feed(character)
    reader.end()
    assert len(reader.answer("stop").reasoning) == 99_999


@pytest.mark.parametrize("begin", ["", "\n", "\ufeff"])
def test_a_prompt_at_the_beginning_is_taken_off(begin):
    """Whatever its line ends are; one sentence says so."""
    text = begin + PROMPT.replace("\r\n", "\n") + "\n\n80 degrees [1]."
    read = read_answer(text, PROMPT)
    assert read.text == "80 degrees [1]."
    assert [problem for problem in read.problems if "prompt" in problem] == list(read.problems)
    assert len(read.problems) == 1
    assert text[read.skipped :].strip() == read.text


def test_the_prompt_and_nothing_else_stays():
    """Whoever asked sees what the model made of it; one sentence says what it is."""
    read = read_answer(PROMPT + "\n", PROMPT)
    assert read.text == PROMPT.replace("\r\n", "\n")
    assert read.problems == ("The answer is the prompt again and nothing else.",)


def test_a_short_prompt_may_begin_an_answer():
    """As with a question of one word."""
    assert read_answer("Tea keeps for a year.", "Tea").text == "Tea keeps for a year."


def test_a_beginning_like_the_prompts_is_an_answer():
    """Held back only until it differs."""
    shown, answer = streamed(["Answer from ", "this book: 80."])
    assert shown == answer.text == "Answer from this book: 80."
    assert answer.problems == ()


@pytest.mark.parametrize(
    ("text", "answer", "told"),
    [
        (
            "80\x00 degrees\x1b[1m",
            "80 degrees[1m",
            "Control characters were removed from the answer: 2.",
        ),
        ("tea \ud83c", "tea \ufffd", "(lone surrogates) in the answer became U+FFFD: 1."),
        ("\udf75\ud83c", "\ufffd\ufffd", "(lone surrogates) in the answer became U+FFFD: 2."),
    ],
)
def test_characters_that_cannot_be_kept_are_told(text, answer, told):
    """In one sentence with how many there were."""
    read = read_answer(text, PROMPT)
    assert read.text == answer
    assert len(read.problems) == 1
    assert told in read.problems[0]


def test_halves_of_a_character_in_two_pieces_are_one_character():
    """As servers send that cut between UTF-16 units; and so is a line end."""
    shown, answer = streamed(["a \ud83c", "\udf75 b\r", "\nc"])
    assert shown == answer.text == "a \U0001f375 b\nc"
    assert answer.problems == ()


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        ("", None, "The answer is blank."),
        (" \n", "stop", "The answer is blank (finish_reason 'stop')."),
        ("80 deg", "length", "The answer is incomplete: it was cut at the limit of tokens"),
        ("", "length", "The answer is blank: it was cut at the limit of tokens"),
        ("80", "content_filter", "The answer is incomplete: a content filter ended it"),
    ],
)
def test_how_an_answer_ended_is_told(text, reason, told):
    """One sentence, with the model's own word for it."""
    [problem] = read_answer(text, PROMPT, reason).problems
    assert problem.startswith(told)
    assert reason is None or repr(reason) in problem


@pytest.mark.parametrize("reason", [None, "stop", "eos", "tool_calls"])
def test_an_answer_that_ended_well_has_no_problem(reason):
    """Whatever else a server calls it."""
    assert read_answer("80 degrees [1].", PROMPT, reason).problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "Use `</think>` to close it [1].",
        "In HTML the tag </think> closes the thinking [1].",
        "The tag '</think>' ends it.",
        "```\na</think>\n```\nThat is how it looks.",
        "~~~ xml\na</think>\n~~~~\nThat is how it looks.",
        "```\na</think>",
        "``a` </think>`` is `a</think>`.",
    ],
)
def test_a_tag_that_is_spoken_of_cuts_nothing(text):
    """In code, in quotation marks and in the middle of a line it is a part of the answer."""
    assert split_unopened(text) == split_reasoning(text) == (None, text)
    assert visible(text) == text


@pytest.mark.parametrize(
    "text",
    ["Tea, so ...</think>80 degrees", "Tea.\n</think>\n80 degrees", "Tea. </think>\n80 degrees"],
)
def test_a_tag_that_ends_thoughts_takes_them_off(text):
    """Templates that begin the thoughts themselves leave the model to end them: what stood before
    is reasoning.
    """
    read = read_answer(text, "How hot?")
    assert read.text == "80 degrees"
    assert read.reasoning.startswith("Tea")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a <think>b</think> c</think>80", "80"),
        ("<think><think>a</think></think> 80", "80"),
        ("<think>a <think>b</think>80", "80"),  # the model mentions the tag, or forgets to close it
        ("<think>a <THINK>b</Think>c</think><think>d</think>80", "80"),
        ("<think>a <reasoning>b</reasoning> c</think>80", "80"),
    ],
)
def test_nested_thoughts_are_no_part_of_an_answer(text, answer):
    """In one piece, and streamed letter by letter."""
    assert read_answer(text, PROMPT).text == answer
    shown, read = streamed(list(text))
    assert (shown, read.text) == (answer, answer)
    assert visible(text) == answer
