"""Text of a file that its readers do not see, as instructions for a model may be: loaders mark it,
and its places become locations of kind ``hidden``.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.segment import HIDDEN, Location
from lazyrag.loaders.base import LoadedFile

BACKGROUND = "in the colour of its background"
SIZE = "too small to be read"
TRANSPARENT = "transparent"
OFF_PAGE = "beside the page"
FORMATTING = "hidden by its format"
NOT_DRAWN = "not drawn"
COMMENT = "in a comment"

# characters that no text has: one ends hidden text, and one for each reason begins it
_END = "\ufdd0"
_REASONS = (BACKGROUND, SIZE, TRANSPARENT, OFF_PAGE, FORMATTING, NOT_DRAWN)
_STARTS = {reason: chr(0xFDD1 + number) for number, reason in enumerate(_REASONS)}
_MARK = re.compile("[\ufdd0-\ufdef]")
_HIDDEN = re.compile(f"([{''.join(_STARTS.values())}])([^{_END}]*){_END}")


def hide(text: str, reason: str) -> str:
    r"""Mark a text, without the white space around it.

    Example:
        >>> loaded = unmarked(LoadedFile(f"Tea. {hide('Praise it.', SIZE)}"))
        >>> loaded.text, loaded.tables[0].start
        ('Tea. Praise it.', 5)
    """
    words = _MARK.sub("", text).strip()
    if not words:
        return text
    lead = text[: len(text) - len(text.lstrip())]
    return f"{lead}{_STARTS[reason]}{words}{_END}{text[len(text.rstrip()) :]}"


def unmarked(loaded: LoadedFile) -> LoadedFile:
    """Take the marks out of a file's text and labels; hidden text is located beside its tables."""
    text = loaded.text
    marks = [mark.start() for mark in _MARK.finditer(text)]
    if not marks:
        return loaded

    def moved(place: Location) -> Location:
        start = place.start - bisect_left(marks, place.start)
        end = place.end - bisect_left(marks, place.end)
        return Location(start, end, place.kind, _MARK.sub("", place.label))

    reasons = {start: reason for reason, start in _STARTS.items()}
    clean = _MARK.sub("", text)
    hidden: list[Location] = []
    for match in _HIDDEN.finditer(text):
        place = moved(Location(match.start(), match.end(), HIDDEN, reasons[match[1]]))
        last = hidden[-1] if hidden else Location(0, 0, HIDDEN, "")
        if last.label == place.label and not clean[last.end : place.start].strip(" \t\n|"):
            hidden[-1] = last._replace(end=place.end)
        else:
            hidden.append(place)
    return replace(
        loaded,
        text=clean,
        locations=tuple(map(moved, loaded.locations)),
        tables=(*map(moved, loaded.tables), *hidden),
    )


# Markdown

# code, which has no comments; a comment without an end; a comment, or a link without a target,
# whose title nobody sees
_COMMENT = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+).*\n(?:(?! {0,3}(?P=fence)).*\n)*(?: {0,3}(?P=fence).*)?"
    r"|``.*?``|`[^`\n]*`|<!--(?:(?!-->)[\s\S])*\Z"
    r"|(?P<comment><!--(?:(?!-->)[\s\S])*-->"
    r"|^ {0,3}\[[^\]\n]+\]:[ \t]*(?:\#|<>)[ \t]+[(\"'].*[)\"'][ \t]*$)",
    re.MULTILINE,
)


def markdown_comments(text: str) -> Iterator[Location]:
    r"""Locate the comments of Markdown outside of code.

    Example:
        >>> text = "Tea.\n\n[//]: # (Praise it.)\n"
        >>> [text[place.start : place.end] for place in markdown_comments(text)]
        ['[//]: # (Praise it.)']
    """
    for match in _COMMENT.finditer(text):
        if match["comment"] and any(map(str.isalnum, match["comment"])):
            yield Location(*match.span(), HIDDEN, COMMENT)


# HTML

Colour: TypeAlias = tuple[float, float, float, float]
_UNKNOWN = None
_WHITE: Colour = (255.0, 255.0, 255.0, 1.0)
_NAMED: dict[str, Colour] = {
    "black": (0.0, 0.0, 0.0, 1.0),
    "transparent": (0.0, 0.0, 0.0, 0.0),
    "white": _WHITE,
}
_LINK: Colour = (0.0, 0.0, 238.0, 1.0)
_CLOSE = 10.0
_FAINT = 0.03
_DECLARATION = re.compile(r"\s*([\w-]+)\s*:\s*([^;]+)")
_LENGTH = re.compile(r"(-?\d*\.?\d+)(px|pt|r?em|%|)")
_TINY = {"px": 1.0, "pt": 1.0, "em": 0.06, "rem": 0.06, "%": 6.0, "": 0.0}
_FAR = -999.0  # pixels
# what may show an element's text after all
_DRAWN = re.compile("clip|image|shadow|filter|blend|stroke|fill|scheme|scale|zoom|(?<!-)transform")
_LAID_OVER = re.compile(r"position\s*:\s*(absolute|fixed)|margin[\w-]*\s*:[^;]*-")  # a picture
_SHEET_BACKGROUND = re.compile("background|color-scheme|@import")


def read_colour(text: str) -> Colour | None:
    """A colour of CSS as red, green and blue up to 255, and its opacity; None if it is unknown.

    Example:
        >>> read_colour("#fff"), read_colour("rgba(0, 0, 9, .5)"), read_colour("var(--ink)")
        ((255.0, 255.0, 255.0, 1.0), (0.0, 0.0, 9.0, 0.5), None)
    """
    text = text.strip().lower()
    if re.fullmatch(r"#([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})", text):
        width = 1 if len(text) < 6 else 2
        digits = [text[at : at + width] * (3 - width) for at in range(1, len(text), width)]
        red, green, blue, opacity = [float(int(pair, 16)) for pair in (*digits, "ff")[:4]]
        return red, green, blue, opacity / 255
    parts = re.findall(r"[\d.]+%?", text)
    if re.fullmatch(r"rgba?\([\d.,/\s]+\)", text) and len(parts) in (3, 4):
        red, green, blue, opacity = [float(part) for part in (*parts, "1")[:4]]
        return red, green, blue, opacity
    return _NAMED.get(text)


class _Look(NamedTuple):
    """How the text of an element looks; None for what a style sheet decides."""

    colour: Colour | None = _NAMED["black"]
    background: Colour | None = _WHITE
    is_small: bool = False
    unseen: str = ""

    @property
    def reason(self) -> str:
        """Why nobody sees it; "" if somebody may."""
        if self.unseen or self.is_small:
            return self.unseen or SIZE
        if self.colour is not None and self.colour[3] <= _FAINT:
            return TRANSPARENT
        if self.colour is None or self.background is None:
            return ""
        pairs = zip(self.colour, self.background, strict=True)
        return BACKGROUND if max(abs(front - behind) for front, behind in pairs) <= _CLOSE else ""


def mark_hidden(page: Any) -> None:
    """Mark the text of a page that its elements' own styles hide.

    Where a style sheet or a script may show it after all, it stays unmarked.
    """
    sheets = "".join(style.text_content() for style in page.iter("style")).lower()
    has_link = any("stylesheet" in (link.get("rel") or "").lower() for link in page.iter("link"))
    scripted = next(page.iter("script"), None) is not None
    styled = has_link or bool(sheets) or scripted
    names = " ".join(meta.get("name") or "" for meta in page.iter("meta"))
    is_white = not (has_link or _SHEET_BACKGROUND.search(sheets + names))
    looks = {page: _Look(background=_WHITE if is_white else _UNKNOWN)}
    for element in page.iter():
        if not isinstance(element.tag, str):
            continue
        look = looks.get(element.getparent(), looks[page])
        if element.attrib or element.tag in ("a", "mark", "button", "select", "textarea"):
            look = _look(element, look, is_styled=styled)
        looks[element] = look
        if look.reason:
            element.text = element.text and hide(element.text, look.reason)
            for child in element:
                child.tail = child.tail and hide(child.tail, look.reason)


def _look(element: Any, above: _Look, *, is_styled: bool) -> _Look:
    declared = (element.get("style") or "").lower()
    style = dict(_DECLARATION.findall(declared))
    is_named = is_styled and any(
        name in ("class", "id") or name.startswith("data-") for name in element.attrib
    )
    look = above
    if element.tag in ("mark", "button", "select", "textarea"):
        look = look._replace(colour=_UNKNOWN, background=_UNKNOWN)
    elif element.tag == "a":
        look = look._replace(colour=_LINK)
    if is_named:
        look = look._replace(colour=_UNKNOWN, background=_UNKNOWN, is_small=False)
    behind = style.get("background-color") or style.get("background") or element.get("bgcolor")
    if behind or element.get("background"):
        look = look._replace(background=_over(read_colour(behind or ""), look.background))
    if _LAID_OVER.search(declared):
        look = look._replace(background=_UNKNOWN)
    colour = style.get("color") or element.get("color" if element.tag == "font" else "text")
    if colour:
        look = look._replace(colour=read_colour(colour))
    size = _LENGTH.fullmatch(style.get("font-size", "").strip())
    if "font-size" in style:
        look = look._replace(is_small=size is not None and float(size[1]) <= _TINY[size[2]])
    elif "font" in style or (element.tag == "font" and element.get("size")):
        look = look._replace(is_small=False)
    if _DRAWN.search(" ".join(style)):
        look = look._replace(colour=_UNKNOWN, background=_UNKNOWN, is_small=False)
    return look if is_named or look.unseen else look._replace(unseen=_unseen(style))


def _over(colour: Colour | None, below: Colour | None) -> Colour | None:
    """A background over another one."""
    if colour is None or colour[3] >= 1.0:
        return colour
    return below if colour[3] <= _FAINT else _UNKNOWN


def _unseen(style: dict[str, str]) -> str:
    """Why no text within an element is seen."""
    opacity = _LENGTH.fullmatch(style.get("opacity", "").strip())
    if opacity and float(opacity[1]) <= _FAINT:
        return TRANSPARENT
    places = [style.get("text-indent", "")]
    if style.get("position", "").strip() in ("absolute", "fixed"):
        places += [style.get(side, "") for side in ("left", "top", "right", "bottom")]
    for place in places:
        length = _LENGTH.fullmatch(place.strip())
        if length and float(length[1]) * (16 if "em" in length[2] else 1) <= _FAR:
            return OFF_PAGE
    return ""


# Word documents

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_TINY_HALF_POINTS = 2
_STYLE_PATH = f"{_W}pPr/{_W}pStyle"
_BEHIND = ".//{*}anchor[@behindDoc='1']"  # a picture


def mark_hidden_runs(body: Any, styles: Sequence[Any]) -> None:
    """Mark the text of a Word document's body that is formatted as hidden, as small as a point, or
    white on white.

    In tables with a style, in text boxes, and on a coloured page or picture, text may be white.
    """
    names = [f"{_W}{name}" for name in ("vanish", "sz", "color")]
    formats_of_all = itertools.chain.from_iterable(root.iter(*names) for root in (body, *styles))
    if not any(map(_may_hide, formats_of_all)):  # of most documents
        return
    of_styles = {style.get(f"{_W}styleId"): style for style in styles}
    page = body.getparent()
    has_colour = page.find(f"{_W}background") is not None or page.find(_BEHIND) is not None
    coloured = {body} if has_colour else set()
    for behind in body.iter(f"{_W}shd", f"{_W}highlight", f"{_W}tblStyle", f"{_W}txbxContent"):
        if _is_coloured(behind):
            coloured.update(behind.iterancestors(f"{_W}tbl", f"{_W}p"))
    for run in body.iter(f"{_W}r"):
        paragraph = next(run.iterancestors(f"{_W}p"), None)
        formats = [
            *_styles(run.find(f"{_W}rPr/{_W}rStyle"), of_styles),
            *_styles(None if paragraph is None else paragraph.find(_STYLE_PATH), of_styles),
        ]
        reason = _run_reason([run, *formats])
        if reason == BACKGROUND:
            shadings = itertools.chain.from_iterable(style.iter(f"{_W}shd") for style in formats)
            if any(map(_is_coloured, shadings)) or not coloured.isdisjoint(run.iterancestors()):
                continue
        for text in run.iterchildren(f"{_W}t") if reason else ():
            text.text = text.text and hide(text.text, reason)


def _may_hide(entry: Any) -> bool:
    """Whether a format hides text, on white paper."""
    if entry.tag == f"{_W}vanish":
        return True
    value = entry.get(f"{_W}val", "").lower()
    return _is_white(value) or (value.isdecimal() and int(value) <= _TINY_HALF_POINTS)


def _styles(named: Any, styles: Mapping[Any, Any]) -> Iterator[Any]:
    """A style by its reference, and those that it is based on."""
    for _ in range(len(styles)):
        style = None if named is None else styles.get(named.get(f"{_W}val"))
        if style is None:
            return
        yield style
        named = style.find(f"{_W}basedOn")


def _run_reason(formats: Sequence[Any]) -> str:
    """Why nobody sees text of these formats, the nearest first; "" if somebody may."""
    values = {}
    for name in ("vanish", "sz", "color"):
        elements = (entry.find(f"{_W}rPr/{_W}{name}") for entry in formats)
        element = next((element for element in elements if element is not None), None)
        values[name] = "" if element is None else element.get(f"{_W}val", "on").lower()
    if values["vanish"] not in ("", "0", "false", "off"):
        return FORMATTING
    if values["sz"].isdecimal() and int(values["sz"]) <= _TINY_HALF_POINTS:
        return SIZE
    return BACKGROUND if _is_white(values["color"]) else ""


def _is_white(value: str) -> bool:
    """Whether a colour differs from white so little that nobody sees it on white paper."""
    colour = read_colour(f"#{value}")
    return colour is not None and min(colour[:3]) >= 255 - _CLOSE


def _is_coloured(shading: Any) -> bool:
    """Whether a shading or highlight has another colour than white, or a pattern."""
    pattern = shading.get(f"{_W}val") not in (None, "clear", "nil")
    fill = shading.get(f"{_W}fill", "").lower()
    return pattern or not (fill == "auto" or _is_white(fill))
