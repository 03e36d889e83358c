"""Years, quarters and days, as questions and the names of files write them. Editions of a document,
such as the years of a contract or the versions of a policy: what the names of files say of them,
the days in texts, and the documents that texts amend.
"""

from __future__ import annotations

import datetime as dt
import functools
import posixpath
import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from lazyrag.validation import normal_name

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


_HAN_NUMBERS = "一二三四五六七八九十"
_VERSION = re.compile(
    r"(?<![a-z0-9])(?:v|(?:ver|version|rev|revision)[ ._-]*)(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})*)"
    rf"(?![a-z0-9])|第 ?(?P<edition>[0-9]{{1,9}}|[{_HAN_NUMBERS}]) ?版",
    re.IGNORECASE,
)
_YEAR_MONTH = re.compile(
    "(?<![0-9])(?P<year>(?:19|20)[0-9]{2})[-_.]?(?P<month>0[1-9]|1[0-2])(?![-_.]?[0-9]|[a-z])"
)
_MAY_TELL = re.compile("[0-9第]")
_SUFFIX = re.compile(r"\.[a-z][a-z0-9]{0,4}$")
# documents of these kinds stand beside the earlier ones, and do not replace them
_SERIAL = re.compile(
    r"(?<![a-z])(?:annual|bulletin|call|chat|daily|diary|email|filing|image|img|invoice|journal|log"
    r"|logs|mail|meeting|minutes|monthly|news|newsletter|notes|photo|quarterly|receipt|reports?"
    r"|results|scan|screenshot|statements?|weekly)(?![a-z])|(?<![0-9])(?:10-?[kq]|8-?k)(?![a-z0-9])"
    "|报告|纪要|[日周月季年简]报|日志|日记|发票|记录|会议|流水|账单|通讯"
)
_OF_VERSIONS = re.compile(
    "(?<![a-z])(?:upgrad(?:e|ing)|migrat(?:e|ing|ion)|releases?|change(?:log|s)|what.?s.new)"
    "(?![a-z])|升级|迁移|发布|更新"
)
# beside a date they do not tell another document
_REVISED = re.compile("(?<![a-z])(?:amended|revised|updated)(?![a-z])|修[订正改][版本稿]?(?!案)")
_LOOKED_AT = 2_000  # characters of a text
_VALUE = r"[^\w\n]*(?P<day>\w[^\n]{3,40})"
_FROM = (
    "(?:effective(?: date| from| as of| on)?|with effect from|(?:valid|in force) (?:from|since))"
)
_EDITION = r"(?:version|revision|edition|v|rev)[. ]{0,2}[\w.]{1,9}"
_COMES = r"takes? effect|took effect|(?:comes?|came|enters?|entered) into (?:force|effect)"
_MADE = "(?:dated|signed|executed|made|entered into)(?: and (?:entered into|signed))?"
_LABELS = (
    rf"^[^\w\n]*{_FROM}{_VALUE}",
    rf"^[^\w\n]*(?:生效|施行|实施|执行)(?:日期|时间)?{_VALUE}",
    rf"\b(?:{_COMES}|(?:is|are|becomes?) effective)(?: as of| from| on){_VALUE}",
    rf"^[^\w\n]*{_EDITION}[^\w\n]{{1,3}}{_FROM}{_VALUE}",
    r"(?:[自从于]|(?<!\d)(?=\d{4} ?年))(?P<day>[^\n。，；自从于]{6,20})起(?:正式)?(?:施行|生效|实施|执行)",
    rf"^[^\w\n]*(?:dated|signed|executed)(?: as of| on)?{_VALUE}",
    rf"\bthis [^\n.]{{3,60}} (?:is|was) {_MADE}(?: as of| on)?{_VALUE}",
    rf"\b(?:version|revision|edition) [\w.]{{1,9}},? dated{_VALUE}",
    rf"^[^\w\n]*(?:date|(?:last )?(?:updated|revised|amended)(?: on)?){_VALUE}",
    rf"^[^\w\n]*(?:发布|发文|签订|签署|修订|更新)?日期{_VALUE}",
)
_AMENDING = re.compile(
    r"(?i)\b(?:amend(?:s|ed|ing|ments?)?|addendum|supplements?|modif(?:y|ies|ication)|variation)\b"
    "|补充|变更|修订|修改|修正"
)
_SENTENCE_END = re.compile(r"[。;；]|(?<![Nn]o)\.\s")
_FULL_DAY = "(?P<day>[0-9]{4} ?年 ?[0-9]{1,2} ?月 ?[0-9]{1,2} ?日)"
# a title with the day of the document that has it
_REFERENCES = (
    re.compile(
        r"\b(?:the|our|their) (?P<title>[\w&'-]+(?: (?!the\b)[\w&'-]+){0,5}?),? "
        r"(?:of|(?:dated|signed|made|executed|entered into)(?: as of| on)?) "
        r"(?=[0-9]|(?-i:[A-Z]))(?P<day>[^.;]{6,24})",
        re.IGNORECASE,
    ),
    re.compile(f"{_FULL_DAY}[^《》]{{0,30}}《(?P<title>[^》]{{2,40}})》"),
    re.compile(f"《(?P<title>[^》]{{2,40}})》[^《》]{{0,20}}?{_FULL_DAY}"),
)
_DAYS = [re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in _LABELS]


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


class Edition(NamedTuple):
    """What the name of a file says.

    Args:
        series: What the names of all editions of the document have in common; "" where names tell
            no order.
        order: Numbers by which later editions are larger: of the version, else of the day.
        label: The version or the period: ``"2.1"``, ``"2023"``; "" for none.
        day: The first ISO day of the period; "" for none.
        is_version: Whether the label is a version.
    """

    series: str
    order: tuple[int, ...]
    label: str
    day: str
    is_version: bool = False


@functools.lru_cache(maxsize=65_536)
def read_edition(path: str) -> Edition:
    """Read versions and dates in a path's last part.

    Versions need a word, as in ``v2``, ``version 2.1``, ``rev3`` and ``第二版``, and take precedence
    over dates. Versions of upgrade guides and release notes, dates of quarters, and of documents
    that appear regularly, such as reports and minutes, tell no order.

    Example:
        >>> read_edition("terms/Policy_v2.10.md").order > read_edition("terms/policy v2.9.md").order
        True
        >>> read_edition("terms/contract_2021.pdf")[:3]
        ('terms/contract', (2021, 1, 1), '2021')
        >>> read_edition("terms/contract_2023 (revised).pdf").series
        'terms/contract'
        >>> read_edition("report-2023.md")[:3]
        ('', (), '2023')
    """
    folder, slash, name = path.rpartition("/")
    if not _MAY_TELL.search(name):
        return Edition("", (), "", "")
    periods, rest = _find_with_months(unicodedata.normalize("NFKC", name).lower())
    day, label = _first_day(periods)
    version = _VERSION.search(rest)
    rest = _SUFFIX.sub("", _VERSION.sub(" ", rest, count=1)).strip()
    stem = " ".join(re.findall(r"[^\W_]+", _REVISED.sub(" ", rest)))
    order: tuple[int, ...] = ()
    if version is not None:
        label = version["number"] or version["edition"]
        if not _OF_VERSIONS.search(rest):
            order = _version_order(label)
    elif day and not _SERIAL.search(rest) and not any(period.quarter for period in periods):
        order = tuple(map(int, day.split("-")))
    is_version = version is not None
    if not stem or not order:
        return Edition("", (), label, day, is_version)
    kind = "version of " if is_version else ""  # no order among both
    return Edition(f"{kind}{folder}{slash}{stem}", order, label, day, is_version)


def is_named(path: str, question: str) -> bool:
    """Whether a question names the version or the year that a path has.

    Example:
        >>> is_named("Acme_2018.txt", "Acme's revenue in 2018?"), is_named("a-v2.md", "What is a?")
        (True, False)
    """
    edition = read_edition(path)
    words = f"version {edition.label}" if edition.is_version else edition.label
    return words != "" and words in question.lower()


def read_day(value: object) -> str:
    """The first ISO day of the period that a value of metadata names; "" for none.

    Example:
        >>> read_day("1 March 2024"), read_day(2021), read_day("soon")
        ('2024-03-01', '2021-01-01', '')
    """
    periods, _ = _find_with_months(str(value))
    return _first_day(periods)[0]


def find_day(text: str) -> str:
    """Find the ISO day that the beginning of a text states for itself, as after "Effective
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
            periods, rest = _find_with_months(match["day"])
            if periods and rest.startswith(" "):  # else other words come before the date
                return _first_day(periods)[0]
    return ""


def find_amended(text: str) -> dict[str, str]:
    """Title and ISO day of the document that the beginning of a text says it amends, as metadata
    ``amends``; {} for none.

    Example:
        >>> find_amended("# Amendment to the lease of 3 March 2024")
        {'amends': 'lease, 2024-03-03'}
        >>> find_amended("双方于2024年3月3日签订《租赁合同》，现达成如下补充协议。")
        {'amends': '租赁合同, 2024-03-03'}
    """
    for sentence in _SENTENCE_END.split(" ".join(text[:_LOOKED_AT].split())):
        for pattern in _REFERENCES if _AMENDING.search(sentence) else ():
            for match in pattern.finditer(sentence):
                periods, rest = find_periods(match["day"])
                if periods and periods[0].day and rest.startswith(" "):
                    return {"amends": f"{match['title']}, {periods[0].day}"}
    return {}


def title_key(title: str) -> str:
    """A title, or the name of a file, without versions, dates, and words such as "agreement"; equal
    for equal titles.

    Example:
        >>> title_key("Lease_v2 (2024).pdf"), title_key("Lease Agreement")
        ('lease', 'lease')
    """
    name = _SUFFIX.sub("", unicodedata.normalize("NFKC", title).lower())
    _, rest = _find_with_months(name)
    words = re.findall(r"[^\W_]+", _VERSION.sub(" ", rest))
    # references may have these words beside those of the document's name
    return " ".join([word for word in words if word not in ("agreement", "contract")] or words)


def replaced_paths(names: object, path: str) -> list[tuple[str, str]]:
    """The paths that a document's ``supersedes`` may mean: of each name the one in the folder of
    the document, which takes precedence, and the one from the dataset.

    Example:
        >>> replaced_paths("old.md", "hr/new.md")
        [('hr/old.md', 'old.md')]
    """
    folder = posixpath.dirname(path)
    listed = names if isinstance(names, list) else [names] if names else []
    texts = [normal_name(str(name)) for name in listed]
    return [(posixpath.normpath(posixpath.join(folder, text)), text) for text in texts]


def _find_with_months(text: str) -> tuple[list[Period], str]:
    """As `find_periods`, and months such as ``2024-05``, which begin on their first day."""
    months: list[Period] = []

    def note(match: re.Match[str]) -> str:
        months.append(Period(int(match["year"]), 0, f"{match['year']}-{match['month']}-01"))
        return " "

    text = _YEAR_MONTH.sub(note, text)
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
