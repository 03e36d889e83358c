"""Numbers of texts: digits, words, scales, units, dates, in English and Chinese."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.generation.quantities import quantities


def numbers(text):
    return [quantity.number for quantity in quantities(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,598,000 people", [1_598_000]),
        ("1.5 million of 2 thousand", [1_500_000, 2_000]),
        ("one hundred and fifty-two", [152]),
        ("two hundred thousand and ten", [200_010]),
        ("the nineteenth century", [19]),
        ("in the 1850s", [1850]),
        ("about half a million", [500_000]),
        ("the first one hundred and second", [1, 102]),
        ("4亿5000万加元", [450_000_000]),
        ("4XX of 20 km", [20]),
        ("GPT-4 and v2.1 and 3.11.2", []),
        ("三千五百万人", [35_000_000]),
        ("一亿两千万元", [120_000_000]),
        ("十五个", [15]),
        ("二〇〇八年3月５日", [2008, 3, 5]),
        ("150万", [1_500_000]),
        ("百分之十二", [12]),
        ("万一有一些十分好", []),
        ("they march in March", [3]),
        ("", []),
    ],
)
def test_numbers(text, expected):
    """Values with their scales."""
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("text", "other", "is_equal"),
    [
        ("2 km", "2000 metres", True),
        ("2 km", "2 kg", False),
        ("2 km", "2 公里", True),
        ("2 km", "2", True),
        ("90 minutes", "1.5 hours", True),
        ("5 years", "5 months", False),
        ("$5 million", "5,000,000 dollars", True),
        ("40%", "百分之四十", True),
        ("March", "3月", True),
        ("March", "3", True),
        ("the early 1700s", "the 18th century", True),
        ("the 1700s", "the 17th century", False),
    ],
)
def test_equal_numbers_by_unit(text, other, is_equal):
    """Units of one dimension are converted; without a unit the values decide."""
    [first] = quantities(text)
    [second] = quantities(other)
    assert first.equals(second) == is_equal
    assert second.equals(first) == is_equal


@given(st.integers(0, 10**12))
def test_digits_are_read_with_and_without_separators(number):
    """Both are the same number."""
    assert numbers(f"about {number} of them") == [number]
    assert numbers(f"about {number:,} of them") == [number]


@given(st.integers(1, 99_999_999))
def test_chinese_numerals_are_read(number):
    """Up to eight digits."""
    assert numbers(f"有{han_numeral(number)}个") == [number]


def han_numeral(number):
    """A number below 10**8 as a Chinese numeral."""
    high, low = divmod(number, 10_000)
    text = f"{below_ten_thousand(high)}万" if high else ""
    if low:
        text += ("零" if high and low < 1000 else "") + below_ten_thousand(low)
    return text


def below_ten_thousand(number):
    text = ""
    for scale, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, scale)
        if digit:
            text += "零一二三四五六七八九"[digit] + name
        elif text and number and not text.endswith("零"):
            text += "零"
    return text


@given(st.text(max_size=200))
def test_any_text_has_numbers_at_their_places(text):
    """Within the text, after the offset."""
    for quantity in quantities(text, 7):
        assert 7 <= quantity.start < quantity.end <= 7 + len(text)
        assert quantity.equals(quantity)
