"""The harness itself: a page of each look is accessible, and nothing foreign is loaded."""

from __future__ import annotations

import pytest

from tests.page.browsing import LOOKS, check_accessible, picture


@pytest.mark.parametrize(("language", "theme", "device"), LOOKS)
def test_sets_in_each_look(browse, shop, language, theme, device):
    """The list of sets has no violation of accessibility rules in any look."""
    page = browse(shop).open("/sets", language, theme, device)
    assert page.locator("h1").inner_text() == {"en": "Libraries", "zh": "资料库"}[language]
    check_accessible(page)
    picture(page, f"sets-{language}-{theme}-{device}")
