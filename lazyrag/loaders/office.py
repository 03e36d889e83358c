"""What loaders of office files share: strict OOXML as the usual one, texts of pictures, the order of shapes."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyrag.loaders.archives import Element

_STRICT = b"http://purl.oclc.org/ooxml/"
_NAMESPACE = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_USUAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_PACKAGE_RELATIONS = "_rels/.rels"


def transitional(names: Sequence[str], read: Callable[[str], bytes]) -> io.BytesIO | None:
    """A package of strict OOXML (ISO 29500) with the namespaces of the usual form; None if it has that already.

    Args:
        names: Of its parts.
        read: Reads a part.
    """
    if _PACKAGE_RELATIONS not in names or _STRICT not in read(_PACKAGE_RELATIONS):
        return None
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            data = read(name)
            file.writestr(name, _NAMESPACE.sub(_USUAL, data) if name.endswith((".xml", ".rels")) else data)
    return target


_NO_WORDS = re.compile(
    r"\S+\.(?:png|jpe?g|gif|bmp|tiff?|webp|svg|emf|wmf)|cover|icon|image|img|logo|photo|picture|图片|图像|封面",
    re.IGNORECASE,
)


def picture_text(alternative: str | None) -> str:
    """The alternative text of a picture as a line; "" for none, for its kind and for the name of its file.

    Example:
        >>> picture_text("A tea garden"), picture_text("IMG_2041.jpg")
        ('[Image: A tea garden]', '')
    """
    words = " ".join((alternative or "").split())
    return f"[Image: {words}]" if words and not _NO_WORDS.fullmatch(words) else ""


def by_place(group: Element) -> list[Element]:
    """The shapes of a group in rows from top to bottom, each from left to right; grouping stores them in any order."""
    placed: list[tuple[float, float, float, Element]] = []
    for shape in group:
        offset, size = shape.find(".//{*}xfrm/{*}off"), shape.find(".//{*}xfrm/{*}ext")
        top, left, height = _number(offset, "y"), _number(offset, "x"), _number(size, "cy")
        placed.append((top, left, height, shape))
    placed.sort(key=lambda one: one[:2])
    rows: list[list[tuple[float, float, float, Element]]] = []
    for one in placed:
        if rows and one[0] < rows[-1][0][0] + rows[-1][0][2] / 2:
            rows[-1].append(one)
        else:
            rows.append([one])
    return [one[3] for row in rows for one in sorted(row, key=lambda one: one[1])]


def _number(element: Element | None, name: str) -> float:
    text = "" if element is None else element.get(name, "")
    return float(text) if re.fullmatch(r"-?\d{1,12}", text, re.ASCII) else 0.0
