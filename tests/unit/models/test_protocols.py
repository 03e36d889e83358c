"""The values that chat models exchange."""

from __future__ import annotations

import math

import pytest

from lazyrag.errors import ConfigError
from lazyrag.models import ChatChoice, ChatCompletion, ChatOptions, Message
from lazyrag.models.protocols import as_messages


def test_a_text_is_one_user_message():
    """What most people ask."""
    assert as_messages("为什么？") == (Message("user", "为什么？"),)


def test_messages_may_be_values_or_mappings():
    """Both forms, mixed, in order."""
    found = as_messages([{"role": "system", "content": "Be brief."}, Message("user", "Why?")])
    assert found == (Message("system", "Be brief."), Message("user", "Why?"))


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "must not be blank"),
        ("  \n", "must not be blank"),
        ([], "must not be blank"),
        ([Message("user", " ")], "must not be blank"),
        (5, "got 5"),
        (None, "got None"),
        (["Why?"], "got 'Why\\?'"),
        ([{"role": "user"}], "must be a Message"),
        ([{"role": "user", "content": "Why?", "name": "Li"}], "must be a Message"),
        ([{"role": "usr", "content": "Why?"}], "role 'usr'.*Did you mean 'user'"),
        ([{"role": "user", "content": None}], "content"),
    ],
)
def test_what_is_no_prompt_is_refused(prompt, words):
    """The error shows what was given and the forms that are allowed."""
    with pytest.raises(ConfigError, match=words):
        as_messages(prompt)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n": 0}, "n .*0"),
        ({"n": 1.5}, "n .*1.5"),
        ({"max_tokens": 0}, "max_tokens .*0"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"stop": "\n"}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"json_schema": "{}"}, "json_schema"),
    ],
)
def test_options_out_of_range_are_refused(given, words):
    """When they are made, not when a model is asked."""
    with pytest.raises(ConfigError, match=words):
        ChatOptions(**given)


def test_a_line_break_may_end_an_answer():
    """White space is no blank stop: it is the commonest one."""
    assert ChatOptions(stop=["\n", "\n\n"]).stop == ["\n", "\n\n"]


def test_the_first_candidate_is_the_answer():
    """A completion's text is its first choice's."""
    assert ChatCompletion((ChatChoice("yes"), ChatChoice("no"))).text == "yes"
