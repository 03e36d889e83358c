"""Names of collections: legal on every backend, different for different collections."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.stores.protocol import collection_name

LEGAL = re.compile(r"[a-z][a-z0-9_]{2,59}")

_text = st.text(max_size=40) | st.text("ab-_. A绿\x00'\";/%", max_size=80)
_arguments = st.tuples(_text, _text, _text, st.none() | _text)

TRICKY = [
    ("default", "doc-summary", "f", None),
    ("default", "doc_summary", "f", None),
    ("default", "doc summary", "f", None),
    ("default", "docsummary", "f", None),
    ("default", "Doc-Summary", "f", None),
    ("default", "doc-summary", "f", ""),
    ("default", "doc-summary", "f", "s"),
    ("default", "doc-summary", "fs", None),
    ("default_doc", "summary", "f", None),
    ("default", "doc", "summary", "f"),
    ("default", "doc-summaryf", "", None),
    ("default", "doc-summary", "", "f"),
    ("defaultdoc-summary", "", "f", None),
    ("", "default", "doc-summary", None),
    ("", "", "", None),
    ("", "", "", ""),
    ("绿茶", "doc", "f", None),
    ("红茶", "doc", "f", None),
    ("doc", "绿茶", "f", None),
    ("a" * 100, "doc", "f", None),
    ("a" * 101, "doc", "f", None),
    ("a" * 12 + "b", "doc", "f", None),
    ("a\x00b", "doc", "f", None),
    ("a", "\x00bdoc", "f", None),
    ("é", "doc", "f", None),
    ("e\u0301", "doc", "f", None),
    ("default", "lr", "f", None),
    ("\udcff", "doc", "f", None),
]


def test_tricky_arguments_have_different_names():
    """Hyphen or underscore, upper or lower case, cut at another place, or unreadable: each has a
    name of its own.
    """
    names = [collection_name(*arguments) for arguments in TRICKY]
    same = [
        pair
        for pair in itertools.combinations(TRICKY, 2)
        if collection_name(*pair[0]) == collection_name(*pair[1])
    ]
    assert same == []
    assert len({name.lower() for name in names}) == len(TRICKY)


@given(_arguments, _arguments)
def test_names_are_equal_only_for_equal_arguments(one, other):
    """The encoder is injective, whatever the arguments hold."""
    assert (collection_name(*one) == collection_name(*other)) == (one == other)


@given(_arguments)
def test_every_backend_takes_the_name(arguments):
    """At most 60 characters of a-z, 0-9 and underscore, a letter first and no underscore last."""
    name = collection_name(*arguments)
    assert LEGAL.fullmatch(name), name
    assert not name.endswith("_")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "arguments", [*TRICKY, ("a" * 12, "b" * 12, "f", None), ("abcdefghijklmnop",) * 3 + ("x" * 99,)]
)
def test_every_backend_takes_the_names_of_tricky_arguments(arguments):
    """The same bound at full length of the readable parts, which random texts seldom reach."""
    assert LEGAL.fullmatch(collection_name(*arguments)), collection_name(*arguments)


def test_a_person_can_read_which_group_it_is():
    """Document and group stand in the name, shortened."""
    assert collection_name("default", "doc-summary", "f").startswith("lr_default_doc_summary_")
    assert collection_name("绿茶", "块", "f").startswith("lr_")
