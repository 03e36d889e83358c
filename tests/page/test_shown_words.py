"""Each word that a browser shows of a web page is in the text that its loader reads."""

from __future__ import annotations

import re

import pytest

from lazyrag.loaders import load_file
from tests.page.conftest import CORPUS
from tests.shared import shared

_WORD = re.compile(r"[^\W_]+")
# Navigation is left out on purpose; scripts are not run, nor are texts for browsers without them.
_SHOWN = (
    "document.querySelectorAll('nav, noscript').forEach(e => e.remove()), document.body.innerText"
)
PAGES = [path.name for path in sorted(CORPUS.rglob("*.html"))]


def _lost_words(chromium, path):
    """The words that the browser shows and the loader does not read."""
    page = chromium.new_page(java_script_enabled=False, offline=True)
    page.goto(path.as_uri())
    shown = page.evaluate(_SHOWN)
    page.close()
    read = re.sub(r"[\W_]+", "", load_file(path).text).casefold()
    return sorted({word for word in _WORD.findall(shown.casefold()) if word not in read})


@pytest.mark.parametrize("name", PAGES)
def test_words_of_the_corpus(chromium, name):
    """Pages of shops and houses, in English and Chinese."""
    [path] = CORPUS.rglob(name)
    assert _lost_words(chromium, path) == []


@pytest.mark.shared
def test_words_of_real_pages(chromium):
    """A filing, a blog and pages with hidden text."""
    paths = [*shared("data", "docs").glob("*.html"), *shared("cases", "files").glob("*.html")]
    lost = {path.name: _lost_words(chromium, path) for path in paths}
    assert {name: words for name, words in lost.items() if words} == {}
