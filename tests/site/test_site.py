"""What a visitor of the documentation site sees: the search, the languages, accessibility, nothing
from elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.page.browsing import LOOKS, check_accessible, picture
from tests.site.conftest import SITE

PAGES = (
    "index",
    "hybrid",
    "tutorials/first-search",
    "command-line",
    "which-retriever",
    "how-to/filter-by-metadata",
)
QUESTIONS = json.loads((Path(__file__).parent / "questions.json").read_text(encoding="utf-8"))
FIND = """async (questions) => {
  document.querySelector("[data-site-search]").click();
  while (!globalThis.siteIndex) await new Promise((resolve) => setTimeout(resolve, 50));
  const index = siteSearch.build(siteIndex);
  return questions.map((question) => siteSearch.find(index, question, 3).map((page) => page.address));
}"""


def test_pages_of_both_languages_exist_and_the_files_for_models():
    """The root has llms.txt, whose every link leads to a page, and all pages in one text."""
    listed = [
        line.split("](")[1].split(")")[0]
        for line in (SITE / "llms.txt").read_text("utf-8").splitlines()
        if "](" in line
    ]
    assert len(listed) > 100
    assert [one for one in listed if not (SITE / one).is_file()] == []
    full = (SITE / "llms-full.txt").read_text("utf-8")
    assert [
        one for one in ("# Hybrid search", "### Document.search", "# Changelog") if one not in full
    ] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_questions_of_newcomers_find_their_page(browsing, language: str):
    """Of 32 questions in each language thirty find the page that answers first, and all within
    three.
    """
    page = browsing.open("/index.html" if language == "en" else "/zh/index.html", language)
    asked = QUESTIONS[language]
    assert len(asked) == 32
    found = page.evaluate(FIND, [question for question, _ in asked])
    places = [
        (one, wanted, got)
        for (one, wanted), got in zip(asked, found, strict=True)
        if got[:1] != [wanted]
    ]
    assert len(places) <= 2, places
    assert [place for place in places if place[1] not in place[2]] == []


def test_search_by_keyboard(browsing):
    """A slash opens the search, arrows lead through the results, Enter opens one, whose words are
    marked before.
    """
    page = browsing.open("/zh/hybrid.html", "zh")
    page.keyboard.press("/")
    page.keyboard.insert_text("按标题切分")
    page.locator(".site-search-results li").first.wait_for()
    assert page.locator(".site-search-results mark").count() > 0
    assert "页" in page.locator(".site-search-status").inner_text()
    check_accessible(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/zh/splitters.html*")


def test_search_without_results_and_escape(browsing):
    """A word that no page has is answered in words; Escape closes the search."""
    page = browsing.open("/index.html")
    page.locator("[data-site-search]").click()
    page.keyboard.insert_text("qqxzzy")
    page.get_by_text("No results.").wait_for()
    page.keyboard.press("Escape")
    assert not page.locator("dialog.site-search").is_visible()


@pytest.mark.parametrize("name", ["index", "retrievers", "how-to/filter-by-metadata"])
def test_the_language_switch_keeps_the_page(browsing, name: str):
    """From a page to its twin and back."""
    page = browsing.open(f"/{name}.html")
    page.locator(".site-language").click()
    page.wait_for_url(f"**/zh/{name}.html")
    assert page.locator("html").get_attribute("lang") == "zh"
    page.locator(".site-language").click()
    page.wait_for_url(f"**/site/{name}.html")


def test_the_language_switch_of_a_page_in_english_alone_leads_home(browsing):
    """There is no twin to lead to."""
    page = browsing.open("/api/lazyrag.html")
    page.locator(".site-language").click()
    page.wait_for_url("**/zh/index.html")


@pytest.mark.parametrize(("language", "theme", "device"), LOOKS)
def test_pages_in_each_look(browsing, language: str, theme: str, device: str):
    """At 390 and 1,440 px, light and dark, six pages, and two in Chinese: axe finds nothing."""
    root = "" if language == "en" else "/zh"
    page = browsing.open(f"{root}/index.html", language, theme, device)
    for name in PAGES if language == "en" else PAGES[:2]:
        page.goto(f"{browsing.url}{root}/{name}.html")
        check_accessible(page)
        picture(page, f"site-{name.replace('/', '-')}-{language}-{theme}-{device}")


def test_the_site_opens_from_a_folder(chromium):
    """Without any server: pages, styles, and the search."""
    page = chromium.new_page()
    page.goto((SITE / "zh" / "index.html").as_uri())
    page.locator("[data-site-search]").click()
    page.keyboard.insert_text("混合检索")
    assert (
        page.locator(".site-search-results a").first.get_attribute("href").endswith("hybrid.html")
    )
    page.close()
