"""Suffixes and their MIME types."""

from __future__ import annotations

import re

import pytest

from lazyrag.data.fields import MIME_TYPES, UNKNOWN_MIME_TYPE, mime_type
from lazyrag.loaders import loaders

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        (".txt", "text/plain"),
        (".md", "text/markdown"),
        (".markdown", "text/markdown"),
        (".html", "text/html"),
        (".htm", "text/html"),
        (".pdf", "application/pdf"),
        (".docx", DOCX),
        (".csv", "text/csv"),
        (".json", "application/json"),
        ("PDF", "application/pdf"),
        (".Pdf", "application/pdf"),
        ("pdf", "application/pdf"),
        ("", UNKNOWN_MIME_TYPE),
        (".", UNKNOWN_MIME_TYPE),
        (".pfd", UNKNOWN_MIME_TYPE),
        (".茶", UNKNOWN_MIME_TYPE),
        ("application/pdf", UNKNOWN_MIME_TYPE),
    ],
)
def test_a_suffix_has_its_mime_type(suffix, expected):
    """With or without dot, in any case; what is not known is said to be unknown."""
    assert mime_type(suffix) == expected


def test_the_table_is_well_formed():
    """Suffixes are lower case with one dot, types look like type/subtype, and none is the unknown
    one.
    """
    assert [one for one in MIME_TYPES if not re.fullmatch(r"\.[a-z0-9]+", one)] == []
    assert [
        one for one in MIME_TYPES.values() if not re.fullmatch(r"[a-z]+/[a-z0-9.+-]+", one)
    ] == []
    assert UNKNOWN_MIME_TYPE not in MIME_TYPES.values()


@pytest.mark.sample(4)
@pytest.mark.parametrize("suffix", sorted(loaders))
def test_what_can_be_loaded_has_a_mime_type(suffix):
    """A file that a built-in loader reads can be filtered by its type."""
    assert mime_type(suffix) != UNKNOWN_MIME_TYPE
