"""What is said of formats: each built-in suffix stands in one row, with the package that its loader
really needs.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter

import pytest

from lazyrag.loaders import loaders
from tests.interpreter import ROOT
from tools.format_table import FORMATS


def built_in() -> set[str]:
    """The suffixes that this package declares loaders for."""
    return {suffix for suffix in loaders if (loaders.target(suffix) or "").startswith("lazyrag.")}


def test_every_built_in_suffix_has_one_row():
    """No suffix is missing, none stands twice, and none is made up."""
    listed = Counter(suffix for one in FORMATS for suffix in one.suffixes)
    assert set(listed) == built_in()
    assert [suffix for suffix, times in listed.items() if times > 1] == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMATS, ids=lambda one: one.name)
def test_a_row_is_filled(form):
    """Each row says what reads the format, what is kept and what is lost, and its suffixes are
    sorted.
    """
    assert all((form.name, form.suffixes, form.library, form.kept, form.lost))
    assert list(form.suffixes) == sorted(form.suffixes)


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMATS, ids=lambda one: one.name)
def test_the_named_library_is_the_one_that_is_imported(form):
    """The module of a format's loader, or one of ours that it uses, imports the library that the
    row names.
    """
    packages = {"PyYAML": "yaml", "python-docx": "docx"}
    named = re.match(r"([\w-]+) \((?:BSD|MIT)\b[^)]*\)", form.library)
    if named is None:
        assert form.library.startswith(("own code", "none is", "a function"))
        return
    module = (loaders.target(form.suffixes[0]) or "").partition(":")[0]
    ours = [
        module,
        *re.findall(r"(?:from |\")(lazyrag\.loaders\.\w+)(?: import|:)", _source(module)),
    ]
    wanted = packages.get(named[1], named[1])
    assert any(
        re.search(rf"^\s*(?:import|from) {wanted}\b", _source(one), re.MULTILINE) for one in ours
    )


def _source(module: str) -> str:
    """The text of a module."""
    importlib.import_module(module)
    return (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


def test_the_table_shows_every_row():
    """The page has a line for each format; tools/make_docs.py --check holds it to the code."""
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    for one in FORMATS:
        assert f"\n| {one.name} | `{one.suffixes[0]}`" in page
