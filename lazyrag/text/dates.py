"""Years, quarters and days, as questions and the names of files write them."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    "(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = "(?P<day>3[01]|[12][0-9]|0?[1-9])"
_YEAR = "(?P<year>(?:19|20)[0-9]{2})"
_OF_DURATIONS = "前|后|以|内|来|间|期|老|经验|工龄|质保|保修"
_OF_AMOUNTS = "[€£¥°块件页吨]|元(?!旦)|公[里斤]|千[米克]|k[gm](?![a-z])"
_ANY_YEAR = (
    r"(?P<year>(?:fy|fiscal(?:[ _-]year)?)[ _'’-]*(?:19|20)?[0-9]{2}|(?:19|20)[0-9]{2}"
    f"|(?<![作去近共满了约达])[0-9]{{2}}(?=财?年(?!{_OF_DURATIONS})))"
    f"(?![0-9%s]|[.,][0-9]|年代| ?(?:{_OF_AMOUNTS}))"
)
_QUARTER_WORDS = (
    "q[1-4]|(?:first|second|third|fourth)[ _-](?:fiscal[ _-])?(?:quarter|half)"
    "|第[一二三四1-4]季度?|[一二三四1-4]季(?:度|(?=报))|[上下]半年"
)
_QUARTER = f"(?P<quarter>{_QUARTER_WORDS}|[1-4]q|h[12]|[12]h)"
_BETWEEN = "(?:[ _,'年第-]|of|in|for|the|fiscal)*"
_FORMS = (
    rf"{_YEAR}(?P<mark>[-/._]?)(?P<number>1[0-2]|0[1-9])(?P=mark)(?P<day>3[01]|[12][0-9]|0[1-9])",
    rf"{_YEAR} ?年 ?(?P<number>1[0-2]|0?[1-9]) ?月(?: ?{_DAY} ?[日号])?",
    rf"{_MONTH}[ _-]+{_DAY}(?:st|nd|rd|th)?[ _,-]+{_YEAR}",
    rf"{_DAY}(?:st|nd|rd|th)?[ _-]+(?:of )?{_MONTH}[ _,-]+{_YEAR}",
    "(?P<quarter>[1-4]q|[12]h)(?P<year>[0-9]{2})",
    rf"{_QUARTER}{_BETWEEN}{_ANY_YEAR}",
    rf"{_ANY_YEAR}{_BETWEEN}{_QUARTER}",
    _ANY_YEAR,
    f"(?P<quarter>{_QUARTER_WORDS})",  # 2h alone are hours
)
_PATTERNS = [
    re.compile(rf"(?<![a-z0-9.,$€£¥#第]){form}(?![0-9])", re.IGNORECASE) for form in _FORMS
]
# else no form matches
_MAY_HOLD = re.compile(
    "(?:19|20)[0-9]{2}|fy|fiscal|quarter|half|[年季半q]|h[12]|[12]h", re.IGNORECASE
)
_NUMBERS = (*zip("一二三四上下", (1, 2, 3, 4, 1, 2), strict=True), ("first", 1), ("second", 2))
_NUMBERS += (("third", 3), ("fourth", 4), *((str(number), number) for number in range(1, 5)))
_HALF = re.compile("half|半|h[12]|[12]h")


class Period(NamedTuple):
    """A year, or a part of one.

    Args:
        year: From 1900 to 2099; 0 where only a quarter was named.
        quarter: From 1 to 4; 0 for none. Halves are the quarters 2 and 4, in which they end.
        day: ISO day; "" for none.
    """

    year: int
    quarter: int = 0
    day: str = ""


def find_periods(text: str) -> tuple[list[Period], str]:
    """The periods that a text names, and the text (NFKC) with spaces for them.

    Example:
        >>> find_periods("FY18, Q2 of fiscal 2019")
        ([Period(year=2019, quarter=2, day=''), Period(year=2018, quarter=0, day='')], ' ,  ')
        >>> find_periods("report_2023-08-30")[0], find_periods("2018年第二季度")[0]
        ([Period(year=2023, quarter=0, day='2023-08-30')], [Period(year=2018, quarter=2, day='')])
    """
    periods = []

    def note(match: re.Match[str]) -> str:
        period = _period_of(match.groupdict(default=""))
        if period not in periods:
            periods.append(period)
        return " "

    text = unicodedata.normalize("NFKC", text)
    for pattern in _PATTERNS if _MAY_HOLD.search(text) else ():
        text = pattern.sub(note, text)
    return periods, text


def _period_of(parts: Mapping[str, str]) -> Period:
    digits = re.sub("[^0-9]", "", parts.get("year", "0"))
    year = int(digits)
    if len(digits) == 2:
        year += 1900 if year >= 70 else 2000
    month = parts.get("month", "")[:3].lower()
    number = _MONTHS.index(month) + 1 if month else int(parts.get("number", 0))
    if not number:
        return Period(year, _quarter_of(parts.get("quarter", "").lower()))
    if not parts["day"]:
        return Period(year, (number + 2) // 3)
    try:
        return Period(year, 0, dt.date(year, number, int(parts["day"])).isoformat())
    except ValueError:  # the 31st of June
        return Period(year)


def _quarter_of(words: str) -> int:
    number = next((number for word, number in _NUMBERS if word in words), 0)
    return min(4, 2 * number) if _HALF.search(words) else number
