"""Blocks of Notion as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lazyrag.errors import LoadError

_MARKS = (("code", "`"), ("bold", "**"), ("italic", "*"), ("strikethrough", "~~"))
_LISTS = frozenset(["bulleted_list_item", "numbered_list_item", "to_do", "toggle"])
_TABLE_CELL = str.maketrans({"|": r"\|", "\n": " "})
_DEEPEST = 50

Children = Callable[[str], Iterable[Mapping[str, Any]]]
"""The blocks beneath the one with an id."""


def markdown_of(blocks: Iterable[Mapping[str, Any]], children: Children) -> str:
    r"""Blocks as Markdown. Kinds that have no text leave none; a kind that is not known leaves its rich text.

    Args:
        blocks: As the API gives them.
        children: Asked for the blocks beneath those that have some; child pages are pages of their own.

    Example:
        >>> blocks = [{"type": "heading_1", "heading_1": {"rich_text": [{"plain_text": "Tea"}]}},
        ...           {"type": "to_do", "to_do": {"rich_text": [{"plain_text": "Pick"}], "checked": True}}]
        >>> markdown_of(blocks, lambda block_id: ())
        '# Tea\n\n- [x] Pick'
    """
    return _joined(_pieces(blocks, children, 0))


def rich_text(parts: Any) -> str:
    """Rich text as Markdown, with links and equations.

    Args:
        parts: As the API gives it.

    Example:
        >>> rich_text([{"plain_text": "Uji", "href": "https://uji.example"}, {"plain_text": ": tea"}])
        '[Uji](https://uji.example): tea'
    """
    return "".join(_marked(part) for part in _objects(parts))


def plain_text(parts: Any) -> str:
    """Rich text without its marks, on one line."""
    return " ".join("".join(_text(part.get("plain_text")) for part in _objects(parts)).split())


def _marked(part: Mapping[str, Any]) -> str:
    text = _text(part.get("plain_text"))
    if part.get("type") == "equation":
        return f"${_text(_object(part.get('equation')).get('expression')) or text}$"
    said = _object(part.get("annotations"))
    words = text.strip()
    if not words:
        return text
    lead, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    for name, mark in _MARKS:
        if said.get(name) is True:
            words = f"{mark}{words}{mark}"
    link = _text(part.get("href"))
    return f"{lead}[{words}]({link}){tail}" if link else lead + words + tail


def _pieces(blocks: Iterable[Mapping[str, Any]], children: Children, depth: int) -> Iterator[tuple[str, str]]:
    """Pairs (kind of block, its Markdown)."""
    number = 0
    for block in blocks:
        kind = _text(block.get("type"))
        number = number + 1 if kind == "numbered_list_item" else 0
        inner: list[tuple[str, str]] = []
        beneath: Sequence[Mapping[str, Any]] = ()
        if block.get("has_children") is True and kind not in {"child_page", "child_database"}:
            if depth >= _DEEPEST:
                msg = f"Its blocks are nested deeper than {_DEEPEST} levels. Take the innermost ones out."
                raise LoadError(msg)
            beneath = list(children(_text(block.get("id"))))
        if kind == "table":
            yield kind, _table(_object(block.get("table")), beneath)
            continue
        inner = list(_pieces(beneath, children, depth + 1))
        text = _block(kind, _object(block.get(kind)), number)
        joined = _joined(inner)
        if kind in _LISTS:
            joined = joined and _indented(joined, "   " if kind == "numbered_list_item" else "  ")
            gap = "\n" if inner and inner[0][0] in _LISTS else "\n\n"
            yield kind, text + gap + joined if joined else text
        elif kind in {"quote", "callout"}:
            yield kind, _indented("\n\n".join(piece for piece in (text, joined) if piece), "> ", blank=">")
        else:  # columns, synced blocks and headings that fold
            yield kind, "\n\n".join(piece for piece in (text, joined) if piece)


def _block(kind: str, said: Mapping[str, Any], number: int) -> str:
    """A block's own Markdown, without what lies beneath it."""
    text = rich_text(said.get("rich_text"))
    if kind in _LISTS:
        box = "[x] " if said.get("checked") is True else "[ ] "
        mark = {"numbered_list_item": f"{number}. ", "to_do": f"- {box}"}.get(kind, "- ")
        return mark + text.replace("\n", "\n" + " " * (3 if kind == "numbered_list_item" else 2))
    write = _WRITERS.get(kind)
    return write(said, text) if write else _linked(kind, said) or text


def _heading(level: int) -> _Writer:
    return lambda _, text: f"{'#' * level} {' '.join(text.split())}" if text.strip() else ""


def _callout(said: Mapping[str, Any], text: str) -> str:
    icon = _text(_object(said.get("icon")).get("emoji"))
    return f"{icon} {text}" if icon else text


def _equation(said: Mapping[str, Any], _: str) -> str:
    expression = _text(said.get("expression"))
    return f"$$\n{expression}\n$$" if expression else ""


def _code(said: Mapping[str, Any], _: str) -> str:
    code = "".join(_text(part.get("plain_text")) for part in _objects(said.get("rich_text")))
    language = _text(said.get("language")).replace("plain text", "").replace(" ", "-")
    fence = "```"
    while fence in code:
        fence += "`"
    fenced = f"{fence}{language}\n{code}\n{fence}"
    caption = rich_text(said.get("caption"))
    return f"{fenced}\n\n{caption}" if caption else fenced


def _title(said: Mapping[str, Any], _: str) -> str:
    return _text(said.get("title"))


_Writer = Callable[[Mapping[str, Any], str], str]

_WRITERS: dict[str, _Writer] = {
    **{f"heading_{level}": _heading(level) for level in range(1, 7)},
    "callout": _callout,
    "child_database": _title,
    "child_page": _title,
    "code": _code,
    "divider": lambda _, __: "---",
    "equation": _equation,
}


def _linked(kind: str, said: Mapping[str, Any]) -> str:
    """Pictures, files and the like, as links; "" for what has none."""
    place = _text(said.get("type"))  # Notion's word for it; what else may stand there is no text
    held = _object(said.get(place)) if place in {"external", "file"} else said
    url = _text(held.get("url"))
    if place == "file":
        url = url.partition("?")[0]  # a signature for an hour, another one in each answer
    if not url:
        return ""
    caption = plain_text(said.get("caption")) or _text(said.get("name"))
    if kind == "image":
        return f"![{caption}]({url})"
    return f"[{caption or url}]({url})"


def _table(said: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        [rich_text(cell).translate(_TABLE_CELL).strip() for cell in _lists(_object(row.get("table_row")).get("cells"))]
        for row in rows
    ]
    if not cells:
        return ""
    width = max(map(len, cells))
    if said.get("has_column_header") is not True:
        cells.insert(0, [])  # Markdown knows no table without a head
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in cells]
    return "\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])


def _joined(pieces: Iterable[tuple[str, str]]) -> str:
    """Pieces with empty lines between them, but for the items of a list."""
    joined = before = ""
    for kind, text in pieces:
        if not text.strip():
            continue
        if joined:
            joined += "\n" if kind in _LISTS and before == kind else "\n\n"
        joined += text
        before = kind
    return joined


def _indented(text: str, by: str, *, blank: str = "") -> str:
    return "\n".join(by + line if line else blank for line in text.split("\n"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _lists(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
