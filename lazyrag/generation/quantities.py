"""Numbers of a text with their scales and units, in digits and words, English and Chinese."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace

from lazyrag.generation.claim_words import (
    ENGLISH_NUMBERS,
    HAN_DIGITS,
    HAN_SCALES,
    MEASURE_WORDS,
    MONTHS,
    ORDINALS,
    SCALES,
    UNITS,
)

_NARROW = str.maketrans(
    "".join(map(chr, range(0xFF01, 0xFF5F))) + "萬億兩〇",
    "".join(map(chr, range(0x21, 0x7F))) + "万亿两零",
)


ORDINAL = "ordinal"
"""The dimension of numbers such as 3rd, which count nothing."""


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

    def equals(self, other: Quantity) -> bool:
        """Whether both are the same; a number without a unit equals one with any.

        Example:
            >>> [length] = quantities("2 km")
            >>> [length.equals(other) for other in quantities("2000 metres, 2 kg, 2")]
            [True, False, True]
        """
        if self.is_century and other.is_year:
            return math.ceil(other.number / 100) == self.number
        if self.dimension and other.dimension:
            return self.dimension == other.dimension and _is_close(
                self.number * self.factor, other.number * other.factor
            )
        return _is_close(self.number, other.number)

    @property
    def is_century(self) -> bool:
        """Whether it is written as a century is."""
        return self.dimension == "time" and self.factor == unit_of("century")[1]

    def rounds(self, other: Quantity) -> bool:
        """Whether this is another number with fewer digits, rounded or cut off: 1.6 million for
        1,598,000, or 1.5 million.
        """
        digits = len(f"{self.number:.15g}".replace(".", "").strip("0"))
        is_convertible = self.dimension and self.dimension == other.dimension
        factor = other.factor / self.factor if is_convertible else 1.0
        number = other.number * factor
        rounded = float(f"{number:.{min(max(digits, 1), 15)}g}")
        step = 10.0 ** (math.floor(math.log10(number)) + 1 - digits) if number > 0 else 1.0
        cut = math.floor(number / step + _EPSILON) * step
        return any(
            self.equals(replace(other, number=candidate, factor=other.factor / factor))
            for candidate in (rounded, cut)
        )


_EPSILON = 1e-9


def _is_close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9)


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
    han = "零一二三四五六七八九十百千万亿两"
    return re.compile(
        rf"(?P<month>(?<![a-z])(?:{months})(?![a-z]))"
        rf"|(?<![a-z0-9_.])(?<![a-z]-)(?:(?P<money>[$€£¥])\s?|(?P<heat>摄氏|华氏))?"
        rf"(?P<digits>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?!,?\d)|\d+(?:\.\d+)?)(?!\.?\d)"
        rf"(?:(?P<decade>s)(?![a-z])|(?P<th>st|nd|rd|th)(?![a-z]))?"
        rf"(?P<scale>(?:[\s-]?(?:{scale})(?![a-z])|[百千万亿])+)?(?:多|余)?(?:[\s-]?{unit})?"
        r"(?-i:(?![A-Z]))"  # 4XX
        rf"|(?<![a-z'-])(?P<words>(?:(?:{cardinal}|(?:half\s)?an?\s(?:{scale}))"
        rf"(?:[\s-](?:and\s)?(?:{cardinal}|{scale}))*(?:[\s-](?:and\s)?(?:{ordinal}))?"
        rf"|{ordinal}))(?![a-z])"
        rf"(?:[\s-]{unit.replace('<unit>', '<unit_of_words>')})?"
        rf"|(?P<tenths>[{han}])成(?![功为立员长本交就分熟])"
        rf"|(?P<percent>百分之)?(?P<ordinal>第)?(?P<han>[{han}]+)(?:多|余)?"
        rf"(?P<unit_of_han>{han_unit})?"
        rf"(?P<measure>[{MEASURE_WORDS}])?",
        re.IGNORECASE,
    )


def quantities(text: str, offset: int = 0) -> list[Quantity]:
    """The numbers of a text, in order: digits, words, dates, decades, percentages.

    Months are numbers of the dimension ``"month"``. Numbers within names, such as GPT-4, and
    versions of three parts are left out; so is Chinese 一 without a unit or measure word.

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
    for match in _number_pattern().finditer(narrow(text)):
        quantity = _read(match, offset)
        if quantity is None:
            continue
        before = text[match.start() - 1 : match.start()]
        if results and _continues(results[-1], quantity, before):
            first = results.pop()
            number = first.number + quantity.number
            quantity = replace(quantity, number=number, start=first.start)
        results.append(quantity)
    return results


def _continues(first: Quantity, second: Quantity, before: str) -> bool:
    """Whether two numbers are one, given the character before the second: 4亿5000万."""
    return (
        first.end == second.start
        and not first.dimension
        and before in HAN_SCALES
        and second.number < first.number
    )


def _read(match: re.Match[str], offset: int) -> Quantity | None:
    start = offset + match.start()
    end = offset + match.end()
    if match["month"]:
        if not match["month"][0].isupper():  # to march; it may
            return None
        number = 1.0 + MONTHS.index(match["month"].lower()) % 12
        return Quantity(number, "month", 1.0, start, end)
    if match["digits"]:
        return _read_digits(match, start, end)
    if match["words"]:
        return _read_words(match, start, end)
    if match["tenths"]:
        return _with_unit(10 * _han_number(match["tenths"]), "%", start, end)
    return _read_han(match, start, end)


def _read_digits(match: re.Match[str], start: int, end: int) -> Quantity:
    number = float(match["digits"].replace(",", ""))
    for word in re.findall(r"[a-z]+|[百千万亿]", (match["scale"] or "").lower()):
        number *= SCALES.get(word) or HAN_SCALES[word]
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
    number = _english_number(match["words"])
    if match["words"].lower().startswith("half"):
        number /= 2
    default = ORDINAL if match["words"].lower() in ORDINALS else ""
    return _with_unit(number, match["unit_of_words"] or default, start, end)


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
