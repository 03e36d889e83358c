"""Numbers as a spreadsheet shows them: ``00042``, ``12 kg``, ``$1,234.50``."""

from __future__ import annotations

import decimal
import functools
import re
from dataclasses import dataclass, field

_SECTION = re.compile(r'((?:"[^"]*"|\\.|\[[^\]]*\]|[^;])*)(?:;|$)')
_PART = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]|[_*].'
    r"|\[[A-Za-z]{3,7}\d*\]|(?P<digit>[0#?])|(?P<mark>[.,])|(?P<percent>%)"
    r"|(?P<unknown>[/@\[\]A-Za-z])|(?P<literal>.)",
    re.DOTALL,
)
_THOUSANDS = re.compile(r"(?<=\d)(?=(?:\d{3})+$)")
_CONDITION = re.compile(r"\[[<>=]")
_LITERALS = re.compile(r'"[^"]*"|\\.', re.DOTALL)
_MAX_DIGITS = 20
_MAX_CODE = 255
"""Characters of a format; no program writes more."""


@dataclass(slots=True)
class _Form:
    """A part of a format: literals, with places for digits between them.

    ``pieces`` are literals and, as None, the places of digits: those before the decimal point
    first.
    """

    pieces: list[str | None] = field(default_factory=list)
    whole: str = ""
    decimals: str = ""
    percents: int = 0
    thousands: int = 0
    is_grouped: bool = False


def shown_number(value: str, code: str) -> str:
    """A number as a format shows it; "" for formats of dates, fractions and exponents, for
    conditions, for invalid formats, and for numbers that are not finite.

    Args:
        value: The number, in decimal digits.
        code: The number format, in the form of Excel's files.

    Example:
        >>> shown_number("42", "00000"), shown_number("-1234.5", '"$"#,##0.00;("$"#,##0.00)')
        ('00042', '($1,234.50)')
    """
    number = decimal.Decimal(value)
    if not 0 < len(code) <= _MAX_CODE or not number.is_finite() or _CONDITION.search(code):
        return ""
    sections = _sections(code)
    at = 0
    if number < 0 and len(sections) > 1:
        at = 1
    elif number == 0 and len(sections) > 2:
        at = 2
    section = sections[at]
    if section is None:
        return ""
    if number.adjusted() + 2 * section.percents + len(section.decimals) > _MAX_DIGITS:
        return ""
    text = _written(abs(number), section)
    is_negative = number < 0 and at == 0 and re.search("[1-9]", text)
    return f"-{text}" if is_negative else text


def is_percentage(code: str) -> bool:
    """Whether a format shows hundredths. A quoted percent sign is only a sign.

    Example:
        >>> is_percentage("0.0%"), is_percentage('0.0"%"')
        (True, False)
    """
    return "%" in code and "%" in _LITERALS.sub("", code)


@functools.lru_cache(maxsize=1024)
def _sections(code: str) -> tuple[_Form | None, ...]:
    return tuple(map(_section, _SECTION.findall(code)[:-1]))


def _section(text: str) -> _Form | None:
    section = _Form()
    in_decimals = False
    commas = 0
    for part in _PART.finditer(text):
        kind = part.lastgroup
        if kind == "unknown":
            return None
        if kind == "digit":
            section.is_grouped |= commas > 0 and not in_decimals
            commas = 0
            if in_decimals:
                section.decimals += part[0]
            else:
                section.whole += part[0]
                section.pieces.append(None)
        elif part[0] == ".":
            in_decimals = True
            section.thousands += commas
            commas = 0
            if not section.whole:
                section.whole = "#"
                section.pieces.append(None)
            section.pieces.append(None)
        elif kind == "mark":
            commas += 1
        else:  # colours and room for characters of other lines are no kind
            section.percents += kind == "percent"
            section.pieces.append(part[kind] if kind else "")
    section.thousands += commas
    return section


def _written(number: decimal.Decimal, section: _Form) -> str:
    scaled = number.scaleb(2 * section.percents - 3 * section.thousands)
    places = len(section.decimals)
    rounded = scaled.quantize(decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP)
    whole, _, decimals = f"{rounded:f}".partition(".")
    least = len(section.whole.lstrip("#?"))
    whole = whole.lstrip("0").rjust(least, "0")
    decimals = decimals.rstrip("0").ljust(len(section.decimals.rstrip("#?")), "0")
    digits = [""] * len(section.whole)
    if section.is_grouped:
        digits[:1] = [_THOUSANDS.sub(",", whole)]
    else:
        split = max(0, len(whole) - len(digits) + 1)
        padded = whole[split:].rjust(len(digits) - 1, "\0")
        digits[:] = [whole[:split], *padded]
    digits.append(f".{decimals}" if decimals else "")
    filled = iter(digits)
    text = "".join(next(filled, "") if piece is None else piece for piece in section.pieces)
    return text.replace("\0", "").strip()
