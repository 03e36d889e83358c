"""The navigation of the documentation site has every page, and no user page lacks its twin."""

from __future__ import annotations

import sys

import pytest

from tests.interpreter import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import make_site
import site_api

ENGLISH = ("api/", "cookbook/")


@pytest.fixture(scope="module")
def texts() -> dict[str, dict[str, str]]:
    """What the site is built from."""
    return make_site.sources()


def test_the_navigation_names_every_page_once(texts):
    """A new page of docs/ must be taken in by a pattern of tools/site/navigation.toml."""
    pages = sorted({*texts["en"], *texts["zh"]} - {"index.md"})
    named = [entry.path for entry in make_site.entries(pages)]
    assert sorted(named) == pages
    assert {
        "tutorials/first-search.md",
        "how-to/filter-by-metadata.md",
        "api/lazyrag.md",
        "changelog.md",
    } < {*named}


def test_the_guide_has_at_most_forty_pages(texts):
    """Examples, the API by module and the project stand apart; each page of the guide is in both
    languages.
    """
    sections = make_site.settings()["section"]
    pages = [
        entry
        for entry in make_site.entries(sorted({*texts["en"], *texts["zh"]} - {"index.md"}))
        if not sections[entry.section].get("apart")
    ]
    assert 30 < len(pages) <= 40
    assert [one.path for one in pages if one.languages != make_site.LANGUAGES] == []


def test_every_line_of_the_navigation_names_a_page(texts):
    """A page that has been renamed or deleted is not left behind."""
    pages = {*texts["en"], *texts["zh"]}
    exact = [
        pattern
        for section in make_site.settings()["section"]
        for part in (section, *section.get("group", ()))
        for pattern in (*part["pages"], *part.get("chinese", ()))
        if "*" not in pattern
    ]
    keyed = [path for words in make_site.settings()["keywords"].values() for path in words]
    assert [one for one in (*exact, *keyed) if one not in pages] == []


def test_no_user_page_lacks_its_twin(texts):
    """A page has the languages that the navigation says: both, but for those of names, figures and
    internals.
    """
    pages = sorted({*texts["en"], *texts["zh"]} - {"index.md"})
    wrong = {
        entry.path: entry.languages
        for entry in make_site.entries(pages)
        if {*entry.languages}
        != {language for language in make_site.LANGUAGES if entry.path in texts[language]}
    }
    assert wrong == {}


def test_links_lead_to_pages_of_the_site(texts):
    """Links to files of the repository that are no pages become plain text; those to the other
    language are kept.
    """
    assert "../CHANGELOG.md" not in texts["en"]["upgrading.md"]
    assert "](changelog.md)" in texts["en"]["upgrading.md"]
    assert "](../quality.html)" in texts["zh"]["how-good.md"]
    assert "[Apache License 2.0](" not in texts["en"]["licences.md"]
    assert "Apache License 2.0" in texts["en"]["licences.md"]
    assert "](../performance.md)" in texts["en"]["internals/indexes.md"]


def test_the_api_has_every_public_name_with_its_docstring():
    """Each name of lazyrag's __all__ has a heading, and methods stand below their class."""
    import lazyrag

    pages = site_api.pages()
    page = pages["api/lazyrag.md"]
    assert [
        name for name in lazyrag.__all__ if name != "__version__" and f"\n## {name}\n" not in page
    ] == []
    assert "\n### Document.search\n" in page
    assert "- `topk`: At most so many nodes, at least 1." in page
    assert "\n## ConfigError\n" in pages["api/lazyrag.errors.md"]
    assert " at 0x" not in "".join(pages.values())
