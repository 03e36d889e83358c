"""Formulas of Office files (OMML) and of pages and OpenDocument (MathML), as one types them on a
line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lazyrag.loaders.archives import Element, local_name

_SIMPLE = re.compile(r"[\w.,]*|.", re.DOTALL)
_INVISIBLE = dict.fromkeys(range(0x2061, 0x2065))
"""Operators without a shape, such as "times"."""


def formula_text(formula: Element) -> str:
    """A formula on one line: ``a/(b+c)``, ``x^2``, ``x_i``, ``sqrt(x)``; of one that is nested too
    deep the letters.

    Args:
        formula: An ``oMath`` or ``math``, or any element in one.
    """
    try:
        return _line(formula)
    except RecursionError:
        return " ".join(map(str, formula.itertext()))


def _line(formula: Element) -> str:
    return _WRITERS.get(local_name(formula), _joined)(formula)


def _token(formula: Element) -> str:
    return "".join(map(str, formula.itertext())).translate(_INVISIBLE)


def _joined(formula: Element) -> str:
    return "".join(_children(formula))


def _children(formula: Element) -> list[str]:
    """The texts of the children, each with the text after it, which only invalid formulas have."""
    lead = _words(formula.text)
    texts = [
        _line(child) + _words(child.tail)
        for child in formula
        if not local_name(child).endswith("Pr")
    ]
    if lead:
        texts[:1] = [lead + "".join(texts[:1])]
    return texts


def _words(text: str | None) -> str:
    """A text; "" for the white space between elements."""
    return text if text and text.strip() else ""


def _part(formula: Element, name: str) -> str:
    """The text of a part; "" without one."""
    return "".join(_line(child) for child in formula if local_name(child) == name)


def bracketed(text: str) -> str:
    """A part of a formula, in brackets unless it is a name or a number."""
    text = text.strip()
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def _mark(formula: Element, properties: str, name: str, default: str) -> str:
    """A character chosen by a formula's properties."""
    choice = formula.find(f"{{*}}{properties}/{{*}}{name}")
    if choice is None:
        return default
    return next(
        (str(value) for key, value in choice.attrib.items() if str(key).endswith("}val")), ""
    )


def fraction(above: str, below: str) -> str:
    """A fraction on a line."""
    return f"{bracketed(above)}/{bracketed(below)}"


def _scripts(below: str, above: str) -> str:
    return (f"_{bracketed(below)}" if below else "") + (f"^{bracketed(above)}" if above else "")


def _part_scripts(formula: Element) -> str:
    return _scripts(_part(formula, "sub"), _part(formula, "sup"))


def _raised(formula: Element) -> str:
    return _part(formula, "e") + _part_scripts(formula)


def root(inner: str, degree: str) -> str:
    """A root on a line; a square root without a degree."""
    if degree.strip() in ("", "2"):
        return f"sqrt({inner.strip()})"
    return f"{bracketed(inner)}^(1/{bracketed(degree)})"


def _delimited(formula: Element) -> str:
    between = _mark(formula, "dPr", "sepChr", "|").join(_children(formula))
    return f"{_mark(formula, 'dPr', 'begChr', '(')}{between}{_mark(formula, 'dPr', 'endChr', ')')}"


def _fenced(formula: Element) -> str:
    between = ",".join(_children(formula))
    return f"{formula.get('open', '(')}{between}{formula.get('close', ')')}"


def _places(formula: Element) -> tuple[str, str, str]:
    """The first two children of MathML, which mean something by their place, "" for missing ones;
    and the others.
    """
    first, second, *others = [*_children(formula), "", ""]
    return first, second, "".join(others)


def _pair(formula: Element) -> tuple[str, str]:
    first, second, others = _places(formula)
    return first, second + others


def _around(formula: Element) -> str:
    """A base of MathML with what is below and above it."""
    base, below, above = _places(formula)
    if local_name(formula) in {"msup", "mover"}:
        return base + _scripts("", below + above)
    return base + _scripts(below, above)


_UNSEEN = "annotation annotation-xml mphantom del delText moveFrom instrText script style".split()
"""Source texts, and deleted parts and codes of Word."""
_WRITERS: dict[str, Callable[[Element], str]] = {
    "d": _delimited,
    "f": lambda formula: fraction(_part(formula, "num"), _part(formula, "den")),
    "limLow": lambda formula: _part(formula, "e") + _scripts(_part(formula, "lim"), ""),
    "limUpp": lambda formula: _part(formula, "e") + _scripts("", _part(formula, "lim")),
    "mfenced": _fenced,
    "mfrac": lambda formula: fraction(*_pair(formula)),
    "mroot": lambda formula: root(*_pair(formula)),
    "msqrt": lambda formula: root(_joined(formula), ""),
    "nary": lambda formula: (
        f"{_mark(formula, 'naryPr', 'chr', '∫')}{_part_scripts(formula)} {_part(formula, 'e')}"
    ),
    "rad": lambda formula: root(_part(formula, "e"), _part(formula, "deg")),
    "sPre": _raised,
    "sSub": _raised,
    "sSubSup": _raised,
    "sSup": _raised,
    **dict.fromkeys(("mi", "mn", "mo"), lambda formula: _token(formula).strip()),
    **dict.fromkeys(("ms", "mtext", "t"), _token),
    **dict.fromkeys(_UNSEEN, lambda _: ""),
    **dict.fromkeys(("eqArr", "m", "mtable"), lambda formula: "; ".join(_children(formula))),
    **dict.fromkeys(("mr", "mtr", "mlabeledtr"), lambda formula: ", ".join(_children(formula))),
    **dict.fromkeys(("mover", "msub", "msubsup", "msup", "munder", "munderover"), _around),
}
