"""Formulas of office files (OMML) as a line of text."""

from __future__ import annotations

import re
from collections.abc import Callable

from lazyrag.loaders.archives import Element, local_name

_SIMPLE = re.compile(r"[\w.,]*|.", re.DOTALL)


def formula_text(formula: Element) -> str:
    """A formula as it is typed on one line: ``a/(b+c)``, ``x^2``, ``x_i``, ``√(x)``.

    Args:
        formula: An ``oMath``, or any element in one.
    """
    write = _WRITERS.get(local_name(formula))
    if write is not None:
        return write(formula)
    if local_name(formula) == "t":
        return formula.text or ""
    return "".join(formula_text(child) for child in formula if not local_name(child).endswith("Pr"))


def _part(formula: Element, name: str) -> str:
    """The text of a part; "" where there is none."""
    return "".join(formula_text(child) for child in formula if local_name(child) == name)


def _bracketed(text: str) -> str:
    text = text.strip()
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def _mark(formula: Element, properties: str, name: str, default: str) -> str:
    """A character that a formula's properties choose."""
    found = formula.find(f"{{*}}{properties}/{{*}}{name}")
    if found is None:
        return default
    return next((str(value) for key, value in found.attrib.items() if str(key).endswith("}val")), "")


def _raised(formula: Element) -> str:
    """Something with parts above and below it."""
    below, above = _part(formula, "sub"), _part(formula, "sup")
    lowered = f"_{_bracketed(below)}" if below else ""
    return _part(formula, "e") + lowered + (f"^{_bracketed(above)}" if above else "")


def _fraction(formula: Element) -> str:
    return f"{_bracketed(_part(formula, 'num'))}/{_bracketed(_part(formula, 'den'))}"


def _root(formula: Element) -> str:
    degree = _part(formula, "deg")
    return f"{'' if degree.strip() in ('', '2') else degree}√{_bracketed(_part(formula, 'e'))}"


def _sum(formula: Element) -> str:
    below, above = _part(formula, "sub"), _part(formula, "sup")
    limits = (f"_{_bracketed(below)}" if below else "") + (f"^{_bracketed(above)}" if above else "")
    return f"{_mark(formula, 'naryPr', 'chr', '∫')}{limits} {_part(formula, 'e')}"


def _delimited(formula: Element) -> str:
    between = _mark(formula, "dPr", "sepChr", "|").join(
        formula_text(child) for child in formula if local_name(child) == "e"
    )
    return f"{_mark(formula, 'dPr', 'begChr', '(')}{between}{_mark(formula, 'dPr', 'endChr', ')')}"


def _limit(formula: Element) -> str:
    return f"{_part(formula, 'e')}_{_bracketed(_part(formula, 'lim'))}"


def _matrix(formula: Element) -> str:
    rows = (row for row in formula if local_name(row) == "mr")
    return "; ".join(", ".join(formula_text(one) for one in row if local_name(one) == "e") for row in rows)


def _array(formula: Element) -> str:
    return "; ".join(formula_text(child) for child in formula if local_name(child) == "e")


_WRITERS: dict[str, Callable[[Element], str]] = {
    "d": _delimited,
    "eqArr": _array,
    "f": _fraction,
    "limLow": _limit,
    "limUpp": _limit,
    "m": _matrix,
    "nary": _sum,
    "rad": _root,
    "sPre": _raised,
    "sSub": _raised,
    "sSubSup": _raised,
    "sSup": _raised,
}
