"""Editions of a document, such as the years of a contract or the versions of a policy: what the
names of files say of them, and the days in texts.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
import unicodedata
from typing import NamedTuple

from lazyrag.text.dates import Period, find_periods

_HAN_NUMBERS = "一二三四五六七八九十"
_VERSION = re.compile(
    r"(?<![a-z0-9])(?:v|(?:ver|version|rev|revision)[ ._-]*)(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})*)"
    rf"(?![a-z0-9])|第 ?(?P<edition>[0-9]{{1,9}}|[{_HAN_NUMBERS}]) ?版",
    re.IGNORECASE,
)
_MONTH = re.compile(
    "(?<![0-9])(?P<year>(?:19|20)[0-9]{2})[-_.]?(?P<month>0[1-9]|1[0-2])(?![-_.]?[0-9]|[a-z])"
)
_MAY_TELL = re.compile("[0-9第]")
_SUFFIX = re.compile(r"\.[a-z][a-z0-9]{0,4}$")
# documents of these kinds stand beside the earlier ones, and do not replace them
_SERIAL = re.compile(
    r"(?<![a-z])(?:annual|bulletin|call|chat|daily|diary|email|filing|image|img|invoice|journal|log"
    r"|logs|mail|meeting|minutes|monthly|news|newsletter|notes|photo|quarterly|receipt|reports?"
    r"|results|scan|screenshot|statements?|weekly)(?![a-z])|(?<![0-9])(?:10[kq]|10-[kq]|8-?k)(?!\w)"
    "|报告|纪要|[日周月季年简]报|日志|日记|发票|记录|会议|流水|账单|通讯"
)
_LOOKED_AT = 2_000  # characters of a text
_VALUE = r"[^\w\n]*(?P<day>\w[^\n]{3,40})"
_FROM = (
    "(?:effective(?: date| from| as of| on)?|with effect from|(?:valid|in force) (?:from|since))"
)
_COMES = r"takes? effect|took effect|(?:comes?|came|enters?|entered) into (?:force|effect)"
_MADE = "(?:dated|signed|executed|made|entered into)(?: and (?:entered into|signed))?"
_LABELS = (
    rf"^[^\w\n]*{_FROM}{_VALUE}",
    rf"^[^\w\n]*(?:生效|施行|实施|执行)(?:日期|时间)?{_VALUE}",
    rf"\b(?:{_COMES}|(?:is|are|becomes?) effective)(?: as of| from| on){_VALUE}",
    rf"^[^\w\n]*(?:version|edition|v|rev(?:ision)?)[. ]*[\w.]{{1,9}}[^\w\n]+{_FROM}{_VALUE}",
    r"(?:[自从于]|(?<!\d)(?=\d{4} ?年))(?P<day>[^\n。，；自从于]{6,20})起(?:正式)?[施生实执][行效施]",
    rf"^[^\w\n]*(?:dated|signed|executed)(?: as of| on)?{_VALUE}",
    rf"\bthis [^\n.]{{3,60}} (?:is|was) {_MADE}(?: as of| on)?{_VALUE}",
    rf"\b(?:version|revision|edition) [\w.]{{1,9}},? dated{_VALUE}",
    rf"^[^\w\n]*(?:date|(?:last )?(?:updated|revised|amended)(?: on)?){_VALUE}",
    rf"^[^\w\n]*(?:发布|发文|签订|签署|修订|更新)?日期{_VALUE}",
)
_DAYS = [re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in _LABELS]


class Edition(NamedTuple):
    """What the name of a file says.

    Args:
        series: What the names of all editions of the document have in common; "" where names tell
            no order.
        order: Numbers by which later editions are larger: of the version, else of the day.
        label: The version or the period for people: ``"version 2.1"``, ``"2023"``; "" for none.
        day: The first ISO day of the period; "" for none.
    """

    series: str
    order: tuple[int, ...]
    label: str
    day: str


@functools.lru_cache(maxsize=65_536)
def read_edition(path: str) -> Edition:
    """Read versions and dates in a path's last part.

    Versions need a word, as in ``v2``, ``version 2.1``, ``rev3`` and ``第二版``, and take precedence
    over dates. Dates of quarters, and of documents that appear regularly, such as reports and
    minutes, tell no order.

    Example:
        >>> read_edition("terms/Policy_v2.10.md").order > read_edition("terms/policy v2.9.md").order
        True
        >>> read_edition("terms/contract_2021.pdf")
        Edition(series='terms/contract', order=(2021, 1, 1), label='2021', day='2021-01-01')
        >>> read_edition("report-2023.md")
        Edition(series='', order=(), label='2023', day='2023-01-01')
    """
    folder, slash, name = path.rpartition("/")
    if not _MAY_TELL.search(name):
        return Edition("", (), "", "")
    periods, rest = _find_periods(unicodedata.normalize("NFKC", name).lower())
    day, label = _first_day(periods)
    version = _VERSION.search(rest)
    rest = _SUFFIX.sub("", _VERSION.sub(" ", rest, count=1)).strip()
    stem = " ".join(re.findall(r"[^\W_]+", rest))
    order: tuple[int, ...] = ()
    if version is not None:
        number = version["number"] or version["edition"]
        order = _version_order(number)
        label = f"version {number}"
    elif day and not _SERIAL.search(rest) and not any(period.quarter for period in periods):
        order = tuple(map(int, day.split("-")))
    if not stem or not order:
        return Edition("", (), label, day)
    kind = "" if version is None else "version of "  # no order among both
    return Edition(f"{kind}{folder}{slash}{stem}", order, label, day)


def is_named(path: str, question: str) -> bool:
    """Whether a question names the version or the year that a path has.

    Example:
        >>> is_named("Acme_2018.txt", "Acme's revenue in 2018?"), is_named("a-v2.md", "What is a?")
        (True, False)
    """
    label = read_edition(path).label
    return label != "" and label in question.lower()


def read_day(value: object) -> str:
    """The first ISO day of the period that a value of metadata names; "" for none.

    Example:
        >>> read_day("1 March 2024"), read_day(2021), read_day("soon")
        ('2024-03-01', '2021-01-01', '')
    """
    periods, _ = _find_periods(str(value))
    return _first_day(periods)[0]


def find_day(text: str) -> str:
    """The ISO day that the beginning of a text gives as its own, by words such as "Effective
    date", "comes into force on", "Date:" and "生效日期"; "" for none.

    Example:
        >>> find_day("It amends the lease of 1 May 2021. Effective date: 1 March 2024")
        ''
        >>> find_day("Lease. It takes effect on 1 March 2024."), find_day("自2024年3月1日起施行")
        ('2024-03-01', '2024-03-01')
    """
    beginning = text[:_LOOKED_AT]
    for pattern in _DAYS:
        for match in pattern.finditer(beginning):
            periods, rest = _find_periods(match["day"])
            if periods and rest.startswith(" "):  # else other words come before the date
                return _first_day(periods)[0]
    return ""


def _find_periods(text: str) -> tuple[list[Period], str]:
    """As `find_periods`, and months such as ``2024-05``, which begin on their first day."""
    months: list[Period] = []

    def note(match: re.Match[str]) -> str:
        months.append(Period(int(match["year"]), 0, f"{match['year']}-{match['month']}-01"))
        return " "

    text = _MONTH.sub(note, text)
    periods, rest = find_periods(text)
    return months + periods, rest


def _first_day(periods: list[Period]) -> tuple[str, str]:
    """The first day of the most precise period, and the period for people; "" for none."""
    with_year = [period for period in periods if period.year]
    if not with_year:
        return "", ""
    period = min(with_year, key=lambda period: (not period.day, not period.quarter))
    month = max(1, 3 * period.quarter - 2)
    day = period.day or dt.date(period.year, month, 1).isoformat()
    return day, day if period.day or period.quarter else str(period.year)


def _version_order(number: str) -> tuple[int, ...]:
    """The numbers of a version; 2.0 is 2."""
    if number in _HAN_NUMBERS:
        return (_HAN_NUMBERS.index(number) + 1,)
    numbers = [int(part) for part in number.split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
