"""Periods in questions and names, against what they were written from."""

from __future__ import annotations

import calendar
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.text.dates import Period, find_periods

YEARS = st.integers(1970, 2069)
QUARTERS = st.integers(1, 4)
WORDS = ("", "first", "second", "third", "fourth")
HAN = ("", "一", "二", "三", "四")


def periods(text: str) -> list[Period]:
    """The periods in a text."""
    return find_periods(text)[0]


@given(YEARS)
def test_a_year_is_read_in_every_form(year):
    """Calendar and fiscal years, in words, digits and Chinese, are that year."""
    short = f"{year % 100:02}"
    for form in (f"FY{year}", f"FY{short}", f"fy'{short}", f"fiscal {year}", f"fiscal year {year}"):
        assert periods(f"What was {form} revenue?") == [Period(year)], form
    for form in (f"{year}", f"{year}年", f"{short}财年", f"in_{year}_10K.pdf", f"营收{year}年报"):
        assert periods(form) == [Period(year)], form


@given(YEARS, QUARTERS)
def test_a_quarter_is_read_with_its_year(year, quarter):
    """A quarter before, behind or within its year is one period."""
    short = f"{year % 100:02}"
    forms = (
        f"Q{quarter} {year}",
        f"{year}Q{quarter}_10Q.pdf",
        f"Q{quarter} of FY{short}",
        f"{quarter}Q{short}",
        f"FY{year}Q{quarter}",
        f"the {WORDS[quarter]} fiscal quarter of {year}",
        f"{year}年第{HAN[quarter]}季度",
        f"{year}年{quarter}季度",
    )
    for form in forms:
        assert periods(form) == [Period(year, quarter)], form


@given(st.dates(dt.date(1970, 1, 1), dt.date(2069, 12, 31)))
def test_a_day_is_read_in_every_form(day):
    """ISO, compact, English and Chinese days are that day."""
    month = calendar.month_name[day.month]
    forms = (
        day.isoformat(),
        f"{day:%Y%m%d}",
        f"report_dated-{day:%Y.%m.%d}.pdf",
        f"{month} {day.day}, {day.year}",
        f"{day.day} {month[:3]} {day.year}",
        f"{day.year}年{day.month}月{day.day}日",
    )
    for form in forms:
        assert periods(form) == [Period(day.year, 0, day.isoformat())], form


@pytest.mark.parametrize("text", ["$2018", "2,018", "2018.5", "20183", "12018", "v2018", "2018%"])
def test_other_numbers_are_no_years(text):
    """Amounts, long numbers and versions are no periods."""
    assert periods(text) == []


@pytest.mark.parametrize("text", ["2018 kg", "2018元", "2018 €", "#2018", "第2018号", "the 1990s"])
def test_amounts_and_numbers_of_things_are_no_years(text):
    """A unit behind a number, or a sign of numbers before it, says what it is."""
    assert periods(text) == []


@pytest.mark.parametrize("text", ["20年经验", "过去18年", "工作18年", "质保期15年以上", "18年前"])
def test_durations_are_no_years(text):
    """Two digits count years where the words beside them say so."""
    assert periods(text) == []
    assert periods("18年的收入，2018元旦") == [Period(2018)]


@pytest.mark.parametrize("text", ["四季酒店", "after 2h", "an h2 heading", "P2Q"])
def test_other_words_are_no_quarters(text):
    """Seasons, hours and headings are no periods."""
    assert periods(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("二季度", [Period(0, 2)]),
        ("2018年三季报", [Period(2018, 3)]),
        ("2023上半年", [Period(2023, 2)]),
        ("H2 FY2023", [Period(2023, 4)]),
        ("31 June 2020", [Period(2020)]),
        ("2023年8月", [Period(2023, 3)]),
        ("FY2015-FY2017", [Period(2015), Period(2017)]),
    ],
)
def test_halves_months_and_impossible_days(text, expected):
    """A half is its last quarter, a month its quarter, an impossible day its year."""
    assert periods(text) == expected


@given(st.text())
def test_any_text_is_read_and_no_period_stays_in_it(text):
    """No text fails, a period is listed once, and the rest names none."""
    named, rest = find_periods(text)
    assert len(set(named)) == len(named)
    assert periods(rest) == []
