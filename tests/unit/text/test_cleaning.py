"""What pre-processing removes from text, and what it knows of the rest."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.text.structure import Cleaned, extra_spaces, web_addresses
from lazyrag.transforms import PreProcessingRules


def without_addresses(text: str) -> str:
    """The text without addresses."""
    return Cleaned(text).without(web_addresses(text)).text


def without_spaces(text: str) -> str:
    """The text without extra spaces."""
    return Cleaned(text).without(extra_spaces(text)).text


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://a.com/x for it", "see  for it"),
        ("详见https://a.com/x?y=1&z=%E8。下一句", "详见。下一句"),
        ("网址http://a.com/x，邮箱a.b+c@d-e.com.cn、电话", "网址，邮箱、电话"),
        ("（https://a.com/x）", "（）"),
        ("《茶经》见www.tea.cn/书", "《茶经》见书"),
        ("End of https://a.com/x. Next", "End of . Next"),
        ("Really https://a.com/x?! Yes", "Really ?! Yes"),
        ("(see https://a.com/x)", "(see )"),
        ("https://en.wikipedia.org/wiki/Tea_(drink), too", ", too"),
        ("(https://en.wikipedia.org/wiki/Tea_(drink))", "()"),
        ("FTP://a.com HTTPS://A.COM", " "),
        ("http://[::1]:8080/x", ""),
        ("write to me@tea.org.", "write to ."),
        ("mailto:me@tea.org", ""),
        ("[茶](https://zh.wikipedia.org/wiki/%E8%8C%B6)很好", "茶很好"),
        ('[Tea](http://tea.org "Green (tea)") is', "Tea is"),
        ("[Tea]( <http://tea.org/a_(b)> ) is", "Tea is"),
        ("[mail us](mailto:me@tea.org)", "mail us"),
        ("[https://a.com](https://a.com) x", " x"),
        ("[see https://b.com now](https://a.com)", "see  now"),
        ("<https://a.com> and <me@tea.org>", " and "),
        ("![图](https://a.com/p.png)", "![图](https://a.com/p.png)"),
        ("[![badge](https://a/b.svg)](https://x.y)", "![badge](https://a/b.svg)"),
        ('<a href="https://x.com">text</a>', '<a href="">text</a>'),
        ("[rel](other.md) and [1]", "[rel](other.md) and [1]"),
        (
            "https:// and http://用户 and www. and awww.x",
            "https:// and http://用户 and www. and awww.x",
        ),
        ("user@example @decorator a@ 3 @ 4", "user@example @decorator a@ 3 @ 4"),
        ("", ""),
    ],
)
def test_addresses(text, expected):
    """Addresses go, whatever stands beside them stays; a link keeps its text, an image all of
    it.
    """
    assert without_addresses(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a  b\t\tc \u3000d", "a b\tc d"),
        ("\u3000\u3000绿茶", "\u3000绿茶"),
        ("a\n\nb", "a\n\nb"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("a\n \n\t\n  b", "a\n\n b"),
        ("a\r\n\r\n\r\nb", "a\r\n\r\nb"),
        ("a \n b", "a \n b"),
        ("a  \n\n\n", "a \n\n"),
        ("", ""),
    ],
)
def test_extra_spaces(text, expected):
    """One empty line in a row stays, and the first of several spaces; Chinese ones count as
    spaces.
    """
    assert without_spaces(text) == expected


@given(st.text(alphabet=" \t\n\r\u3000ab茶", max_size=60))
def test_spaces_are_gone_after_one_pass(text):
    """No two spaces follow one another, no two empty lines; doing it again changes nothing; letters
    all stay.
    """
    done = without_spaces(text)
    assert not re.search("[ \t\u3000]{2}", done)
    assert not re.search("\n[ \t\u3000]*\r?\n[ \t\u3000]*\r?\n", done)
    assert without_spaces(done) == done
    assert re.sub(r"\s", "", done) == re.sub(r"\s", "", text)


PIECES = [
    "https://a.com/x",
    "me@tea.org",
    "[茶](https://a.com)",
    "![i](https://a.com/p.png)",
    "www.b.org",
    "绿茶",
    "tea",
    "(",
    ")",
    "。",
    ". ",
    " ",
    "\n\n\n",
    "  ",
    "👩🏽‍🔬",
]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join) | st.text(max_size=60))
def test_what_is_left_is_known_by_its_place(text):
    """The rest stands in the source in order; every stretch with a span is what the source holds
    there.
    """
    for rules in (
        ["remove_extra_spaces"],
        ["remove_urls_emails"],
        ["remove_urls_emails", "remove_extra_spaces"],
    ):
        cleaned = PreProcessingRules(rules).cleaned(text)
        rest = iter(text)
        assert all(character in rest for character in cleaned.text)
        for start in range(len(cleaned.text)):
            assert cleaned.span(start, start + 1) is not None
            for end in (start + 1, start + 3, len(cleaned.text)):
                span = cleaned.span(start, end) if end <= len(cleaned.text) else None
                assert span is None or text[span[0] : span[1]] == cleaned.text[start:end]
        if len(cleaned.text) == len(text):
            assert cleaned.span(0, len(text)) == (0, len(text))


@given(st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join))
def test_no_address_stays(text):
    """Apart from those of images, no address is left between words."""
    left = re.sub(r"!\[i\]\([^)]*\)", "", without_addresses(text))
    assert not re.search("https?:|www|@", left)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[a](http://x " * 20_000,
        '[a](http://x "' * 20_000,
        "a" * 300_000,
        "a." * 200_000,
        "a@b." + "c." * 100_000 + "_",
        "![a](http://x" * 20_000,
        "[![x](y)" * 30_000,
        "http://" * 50_000,
        "http://a" + ")" * 200_000,
        "[a](http://x" + "()" * 100_000 + "[",
        "<http://" * 50_000,
        " " * 300_000,
        "\n " * 100_000,
        "\n" + " " * 200_000,
        "\r" * 200_000,
    ],
    ids=lambda text: repr(text[:14]),
)
def test_hostile_text_takes_no_longer(text):
    """Patterns take time in proportion to the text, whatever it is made of."""
    began = time.process_time()
    PreProcessingRules(["remove_urls_emails", "remove_extra_spaces"]).apply(text)
    assert time.process_time() - began < 2
