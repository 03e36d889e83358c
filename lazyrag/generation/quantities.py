"""Numbers of a text with their scales and units, in digits and words, English and Chinese."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lazyrag.data.segment import Span
from lazyrag.generation.claim_words import (
    ENGLISH_NUMBERS,
    HAN_DIGITS,
    HAN_SCALES,
    MEASURE_WORDS,
    MONTHS,
    MULTIPLES,
    ORDINALS,
    SCALES,
    SHARES,
    UNITS,
)

_BELOW_THIRTEEN = "one two three four five six seven eight nine ten eleven twelve".split()
_NARROW = str.maketrans(
    "".join(map(chr, range(0xFF01, 0xFF5F))) + "萬億兩〇",
    "".join(map(chr, range(0x21, 0x7F))) + "万亿两零",
)


ORDINAL = "ordinal"
"""The dimension of numbers such as 3rd, which count nothing."""


CLOCK = "clock"
"""The dimension of times of a day, in minutes; their factor is 0 if they may be of either half."""
_HALF_A_DAY = 720


def narrow(text: str) -> str:
    """A text of the same length with ASCII forms of full-width characters, and simple numerals."""
    return text.translate(_NARROW)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a text.

    Args:
        number: Its value, with its scale: 1.5 million is 1,500,000.
        dimension: What its unit measures, such as ``"length"``; "" without a unit.
        factor: Its unit in the dimension's base unit: 1000 for km.
        start: Its start in the text.
        end: Its end, behind its unit.
        is_year: Whether it is written as a year is.
    """

    number: float
    dimension: str
    factor: float
    start: int
    end: int
    is_year: bool = False

    @property
    def span(self) -> Span:
        """Its start and end."""
        return self.start, self.end

    @property
    def size(self) -> float:
        """Its value in the dimension's base unit."""
        return self.number * self.factor

    def equals(self, other: Quantity) -> bool:
        """Whether both are the same; a number without a unit equals one with any, and 2:30 equals
        2:30 p.m.

        Example:
            >>> [length] = quantities("2 km")
            >>> [length.equals(other) for other in quantities("2000 metres, 2 kg, 2")]
            [True, False, True]
        """
        if self.dimension == other.dimension == CLOCK and 0.0 in (self.factor, other.factor):
            return self.number % _HALF_A_DAY == other.number % _HALF_A_DAY
        if {self.dimension, other.dimension} == {"sterling", "mass"}:  # 50 pounds
            return self.number == other.number and 453.59237 in (self.factor, other.factor)
        if self.is_century and other.is_year:
            return math.ceil(other.number / 100) == self.number
        if self.dimension and other.dimension:
            return self.dimension == other.dimension and math.isclose(self.size, other.size)
        return math.isclose(self.number, other.number)

    @property
    def is_century(self) -> bool:
        """Whether it is written as a century is."""
        return self.dimension == "time" and self.factor == unit_of("century")[1]

    def rounds(self, other: Quantity) -> bool:
        """Whether this is another number with fewer digits, rounded or cut off: 1.6 million for
        1,598,000, or 1.5 million.
        """
        digits = len(f"{self.number:.15g}".replace(".", "").strip("0"))
        is_convertible = self.dimension and self.factor and self.dimension == other.dimension
        factor = other.factor / self.factor if is_convertible else 1.0
        number = other.number * factor
        if not _SMALLEST < number < _LARGEST:
            return self.equals(other)
        rounded = float(f"{number:.{min(max(digits, 1), 15)}g}")
        step = 10.0 ** (math.floor(math.log10(number)) + 1 - digits)
        cut = math.floor(number / step + _EPSILON) * step
        return any(
            self.equals(replace(other, number=candidate, factor=other.factor / factor))
            for candidate in (rounded, cut)
        )


_EPSILON = 1e-9
_SMALLEST = 1e-200
_LARGEST = 1e200


def unit_of(word: str) -> tuple[str, float]:
    """The dimension of a unit and its factor to the base unit; ("", 1) for another word.

    Example:
        >>> unit_of("minutes"), unit_of("tea")
        (('time', 60.0), ('', 1.0))
    """
    return _units().get(word, ("", 1.0))


@functools.cache
def _units() -> dict[str, tuple[str, float]]:
    """Dimension and factor by the name of a unit."""
    units = {}
    for line in UNITS.strip().splitlines():
        dimension, factor, *names = line.split()
        for name in names:
            units[name.replace("_", " ")] = dimension, float(factor)
    return units


@functools.cache
def _number_pattern() -> re.Pattern[str]:
    longest_first = sorted(map(re.escape, _units()), key=len, reverse=True)
    unit = rf"(?P<unit>(?:{'|'.join(longest_first)})(?:(?<![a-z])|(?![a-z0-9²³])))"
    han_unit = "|".join(name for name in longest_first if not name.isascii())
    months = "|".join(MONTHS)
    cardinals = ENGLISH_NUMBERS.keys() - set(ORDINALS)
    cardinal = "|".join(sorted(cardinals, key=len, reverse=True))
    ordinal = "|".join(sorted(ORDINALS, key=len, reverse=True))
    scale = "|".join(SCALES)
    shares = "|".join(SHARES)
    and_ = "|".join(rf"(?<={word})\sand\s" for word in SCALES)
    part = "凌晨|清晨|早上|早晨|上午|中午|下午|傍晚|晚上|夜里"
    behind = r"\s(?:in\sthe|at)\s"
    parts = "morning|afternoon|evening|night"
    hours = "|".join([*_BELOW_THIRTEEN, "1[0-2]", "[1-9]"])
    time = "|".join(name for name in longest_first if name.isascii() and unit_of(name)[0] == "time")
    han_time = "小时|钟头|天|年|个月|月|个小时|个钟头"
    multiples = "|".join(MULTIPLES)
    word_units = "|".join(name for name in longest_first if name[:1].isalpha())
    han = "零一二三四五六七八九十百千万亿两"
    return re.compile(
        rf"(?P<month>(?<![a-z])(?:{months})(?![a-z]))"
        r"|(?:星期|礼拜|(?<![每一两几个])周)(?P<weekday>[一二三四五六日天])(?![次个天])"
        rf"|(?P<part>{part})?(?<![\d:.-])(?P<clock>(?:[01]?\d|2[0-3]):[0-5]\d)"
        r"(?!:?\d)(?:\s?(?P<half>[ap])\.?m\b\.?)?"
        r"|(?<![\d:.])(?P<hour>1[0-2]|0?[1-9])\s?(?P<half_of_hour>[ap])\.?m\b\.?"
        rf"|(?P<part_of_minute>{part})?(?<!\d)(?P<hour_of_minute>\d{{1,2}}|[{han}]{{1,3}})[点时]"
        rf"(?:(?P<half_past>半)|(?P<minute>\d{{1,2}}|[{han}]{{1,3}})分(?!钟)"
        rf"|(?(part_of_minute)(?P<spoken_minute>[{han}]{{2,3}})(?![{han}])|(?!)))"
        rf"|(?P<part_of_hour>{part}|(?<=[到至]))(?P<han_hour>\d{{1,2}}|[{han}]{{1,3}})[点时]"
        rf"|(?<![a-z\d.:-])(?=half\spast|(?:{hours})(?:\so'clock|{behind}(?:{parts})))"
        rf"(?P<past>half\spast\s)?(?P<spoken_hour>{hours})(?:\so'clock)?"
        rf"(?:{behind}(?P<part_behind>{parts}))?"
        r"|(?<![a-z-])(?P<noon>noon|midday|midnight)(?![a-z-])"
        r"|(?<![\d:.])(?P<full_hour>[01]?\d|2[0-3])时(?![间代期候])"
        rf"|(?<![a-z'-])(?P<half_a>half\san?\s(?:{time})|an?\s(?:{time})\sand\sa\shalf)(?![a-z])"
        rf"|(?<![上下前后大])(?P<half_han>半(?:{han_time}))"
        rf"|(?P<and_half_han>[{han}]+个半(?:小时|钟头|月))"
        rf"|(?<![a-z-])(?P<multiple>{multiples})(?![a-z-])"
        rf"|(?<![a-z'-])(?P<share>(?:an?|one|two|three|four)[\s-](?:{shares})s?|half(?=\sof\b))"
        r"(?=\s(?:of(?!\san?\s)|less|more|lower|higher|cheaper|off|came|from)\b|[.,;:]|$)"
        rf"|(?<![a-z0-9_.])(?<![a-z]-)(?:(?P<money>[$€£¥])\s?|(?P<heat>摄氏|华氏))?"
        rf"(?P<digits>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?!,?\d)|\d+(?:\.\d+)?)(?!\.?\d)"
        rf"(?:(?P<decade>['’]?s)(?![a-z])|(?P<th>st|nd|rd|th)(?![a-z]))?"
        rf"(?P<scale>(?:[\s-]?(?:{scale})(?![a-z])|[百千万亿])+)?(?:多|余)?(?:[\s-]?{unit})?"
        r"(?-i:(?![A-Z]))"  # 4XX
        rf"|(?<![a-z'-])(?P<words>(?:(?:{cardinal}|(?:half\s)?an?\s(?:{scale}))"
        rf"(?:(?:{and_}|[\s-])(?:{cardinal}|{scale}))*(?:(?:{and_}|[\s-])(?:{ordinal}))?"
        rf"(?P<and_a_half>\sand\sa\shalf)?|{ordinal}))(?![a-z])"
        rf"(?:[\s-](?P<unit_of_words>(?:{word_units})(?![a-z0-9])))?"
        rf"|(?P<tenths>[{han}])成(?![功为立员长本交就分熟])"
        rf"|(?P<percent>百分之)?(?P<ordinal>第)?(?P<han>[{han}]+)(?:多|余)?"
        rf"(?P<unit_of_han>{han_unit})?"
        rf"(?P<measure>[{MEASURE_WORDS}])?",
        re.IGNORECASE,
    )


def quantities(text: str, offset: int = 0) -> list[Quantity]:
    """The numbers of a text, in order: digits, words, dates, decades, percentages.

    Months are numbers of the dimension ``"month"``. Numbers within names, such as GPT-4, of list
    items and sections, and versions of three parts are left out; so is Chinese 一 without a unit or
    measure word.

    Args:
        text: The text.
        offset: Added to all places.

    Example:
        >>> [quantity.number for quantity in quantities("twenty-five of 1.5 million in March 1856")]
        [25.0, 1500000.0, 3.0, 1856.0]
        >>> [quantity.number for quantity in quantities("3万米，百分之二十")]
        [30000.0, 20.0]
    """
    results: list[Quantity] = []
    text = narrow(text)
    for match in _number_pattern().finditer(_LIST_NUMBER.sub(blanks, text)):
        quantity = _read(match, offset)
        if quantity is None:
            continue
        before = text[match.start() - 1 : match.start()]
        if results and _continues(results[-1], quantity, before):
            first = results.pop()
            number = first.number + quantity.number
            quantity = replace(quantity, number=number, start=first.start)
        elif results and _is_rest(results[-1], quantity, text, offset):
            first = results.pop()
            number = quantity.number + first.size / quantity.factor
            quantity = replace(quantity, number=number, start=first.start)
        results.append(quantity)
    return results


_LIST_NUMBER = re.compile(
    r"^[ \t>#|*-]*(?:\d{1,2}(?:\.\d{1,2})*[.)、]|[一二三四五六七八九十]{1,3}、|[(（][^\W_]{1,2}[)）])(?!\d)"
    r"|《[^《》]*》",
    re.MULTILINE,
)


def blanks(match: re.Match[str]) -> str:
    """As many blanks as a match has characters."""
    return " " * len(match[0])


def _continues(first: Quantity, second: Quantity, before: str) -> bool:
    """Whether two numbers are one, given the character before the second: 4亿5000万."""
    return (
        first.end == second.start
        and not first.dimension
        and before in HAN_SCALES
        and second.number < first.number
    )


def _is_rest(first: Quantity, second: Quantity, text: str, offset: int) -> bool:
    """Whether two lengths of time are one: five hours and 24 minutes, 一小时二十分钟."""
    between = text[first.end - offset : second.start - offset]
    is_time = first.dimension == second.dimension == "time" and not first.is_century
    return is_time and first.factor > second.factor and between.strip() in ("", "and", "零", "又")


def _read(match: re.Match[str], offset: int) -> Quantity | None:
    read = next(reader for name, reader in _READERS.items() if match[name])
    return read(match, offset + match.start(), offset + match.end())


def _read_month(match: re.Match[str], start: int, end: int) -> Quantity | None:
    if not match["month"][0].isupper():  # to march; it may
        return None
    number = 1.0 + MONTHS.index(match["month"].lower()) % 12
    return Quantity(number, "month", 1.0, start, end)


def _read_weekday(match: re.Match[str], start: int, end: int) -> Quantity:
    day = "一二三四五六日天".index(match["weekday"])
    return Quantity(min(day, 6), "weekday", 1.0, start, end)


def _read_clock(match: re.Match[str], start: int, end: int) -> Quantity:
    hour_text = next(filter(None, map(match.group, _HOURS)))
    hours, _, minutes = (match["clock"] or hour_text).partition(":")
    hour = _count(hours)
    minute = (
        30.0
        if match["half_past"] or match["past"]
        else _count(match["minute"] or match["spoken_minute"] or minutes)
    )
    part = next(filter(None, map(match.group, _PARTS)), "").lower()
    if part in _AFTERNOON and hour < 12:
        hour += 12
    elif part in _MORNING and hour == 12:
        hour = 0.0
    is_certain = bool(part) or hour > 12 or hours.startswith("0")
    return Quantity(60 * hour + minute, CLOCK, float(is_certain), start, end)


def _count(text: str) -> float:
    """The value of a number in digits or in words of either language; 0 of nothing."""
    if not text or text.isdigit():
        return float(text or 0)
    return _english_number(text) if text.isascii() else _han_number(text)


_HOURS = "clock hour spoken_hour hour_of_minute han_hour full_hour".split()
_PARTS = "half half_of_hour part_behind part part_of_minute part_of_hour".split()
_MORNING = ("a", "凌晨", "清晨", "早上", "早晨", "上午", "morning")
_AFTERNOON = ("p", "下午", "傍晚", "晚上", "夜里", "afternoon", "evening", "night")


def _read_noon(match: re.Match[str], start: int, end: int) -> Quantity:
    hour = 0 if match["noon"].lower() == "midnight" else 12
    return Quantity(60.0 * hour, CLOCK, 1.0, start, end)


def _read_half(match: re.Match[str], start: int, end: int) -> Quantity:
    """Half an hour, an hour and a half; 半小时, 两个半小时."""
    words = (match["half_a"] or "").lower().split()
    if words[:1] == ["half"]:
        return _with_unit(0.5, words[2], start, end)
    if words:
        return _with_unit(1.5, words[1], start, end)
    count, _, unit = (match["half_han"] or match["and_half_han"]).rpartition("半")
    number = 0.5 + _count(count.removesuffix("个"))
    unit = unit.removeprefix("个").replace("钟头", "小时").replace("月", "个月")
    return _with_unit(number, unit, start, end)


def _read_multiple(match: re.Match[str], start: int, end: int) -> Quantity:
    return _with_unit(MULTIPLES[match["multiple"].lower()], "times", start, end)


def _read_share(match: re.Match[str], start: int, end: int) -> Quantity:
    count, _, part = match["share"].lower().replace("-", " ").rpartition(" ")
    percent = ENGLISH_NUMBERS.get(count, 1) * SHARES[part.removesuffix("s")]
    return _with_unit(percent, "%", start, end)


def _read_tenths(match: re.Match[str], start: int, end: int) -> Quantity:
    return _with_unit(10 * _han_number(match["tenths"]), "%", start, end)


def _value_of_digits(match: re.Match[str]) -> float:
    number = float(match["digits"].replace(",", ""))
    for word in re.findall(r"[a-z]+|[百千万亿]", (match["scale"] or "").lower()):
        number *= SCALES.get(word) or HAN_SCALES[word]
    return number + 1900 if match["decade"] and number < 100 else number  # the 70s


def _read_digits(match: re.Match[str], start: int, end: int) -> Quantity:
    number = _value_of_digits(match)
    unit = match["unit"] or match["money"] or ""
    if match["heat"]:
        unit = match["heat"] + "度"
    is_year = match["digits"].isdigit() and 1000 <= number <= 2100 and unit in ("", "年")
    if match["decade"] and number % 100 == 0:  # the 1700s
        return _with_unit(number // 100 + 1, "century", start, end)
    if match["decade"] or is_year:
        unit = ""
    if match["th"]:
        unit = unit or ORDINAL
    return replace(_with_unit(number, unit, start, end), is_year=is_year)


def _read_words(match: re.Match[str], start: int, end: int) -> Quantity:
    number = _english_number(match["words"].removesuffix(match["and_a_half"] or ""))
    if match["words"].lower().startswith("half"):
        number /= 2
    if match["and_a_half"]:
        number += 0.5
    is_ordinal = match["words"].lower().endswith(tuple(ORDINALS))
    return _with_unit(number, ORDINAL if is_ordinal else match["unit_of_words"], start, end)


def _read_han(match: re.Match[str], start: int, end: int) -> Quantity | None:
    han = match["han"]
    is_counted = match["percent"] or match["ordinal"] or match["unit_of_han"] or match["measure"]
    is_number = is_counted or (len(han) > 2 and not set(han).isdisjoint("百千十"))
    if not is_number or (han[0] in "百千万亿" and not match["percent"]):  # 千米, 万一
        return None
    unit = match["unit_of_han"] or ""
    if match["percent"]:
        unit = "%"
    elif match["ordinal"]:
        unit = unit or ORDINAL
    return _with_unit(_han_number(han), unit, start, end)


_READERS: Mapping[str, Callable[[re.Match[str], int, int], Quantity | None]] = {
    "month": _read_month,
    "weekday": _read_weekday,
    "noon": _read_noon,
    **dict.fromkeys(_HOURS, _read_clock),
    **dict.fromkeys(("half_a", "half_han", "and_half_han"), _read_half),
    "multiple": _read_multiple,
    "share": _read_share,
    "digits": _read_digits,
    "words": _read_words,
    "tenths": _read_tenths,
    "han": _read_han,
}
"""By the group of the pattern that a number matched."""


def _with_unit(number: float, unit: str | None, start: int, end: int) -> Quantity:
    dimension, factor = unit_of((unit or "").lower())
    return Quantity(number, dimension, factor, start, end)


def _english_number(words: str) -> float:
    numeral = _Numeral()
    for word in re.findall("[a-z]+", words.lower()):
        if word in SCALES:
            numeral.scale(SCALES[word], is_large=word != "hundred")
        elif word in ("a", "an"):
            numeral.digit = 1.0
        elif word not in ("and", "half"):
            numeral.digit += ENGLISH_NUMBERS[word]
    return numeral.value()


def _han_number(characters: str) -> float:
    """The value of a numeral: with scales, or digit by digit as in 一九八四."""
    if len(characters) > 1 and set(characters) <= set(HAN_DIGITS):
        return float("".join(str(HAN_DIGITS[digit]) for digit in characters))
    numeral = _Numeral()
    for character in characters:
        if character in HAN_DIGITS:
            numeral.digit += HAN_DIGITS[character]
            continue
        scale = HAN_SCALES[character]
        if scale < 10_000 and not numeral.digit:  # 十五, 百万
            numeral.digit = 1.0
        numeral.scale(scale, is_large=scale >= 10_000)
    return numeral.value()


class _Numeral:
    """A numeral while its words are read."""

    def __init__(self) -> None:
        self.digit = 0.0
        self._section = 0.0  # of the digits below the last large scale
        self._total = 0.0

    def scale(self, scale: float, *, is_large: bool) -> None:
        if is_large:
            self._total += (self._section + self.digit) * scale
            self._section = 0.0
        else:
            self._section += self.digit * scale
        self.digit = 0.0

    def value(self) -> float:
        return self._total + self._section + self.digit
