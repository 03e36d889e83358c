"""Pages of Notion."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
import urllib.parse
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, LoadError
from lazyrag.sources.base import (
    CutShort,
    Event,
    FailedItem,
    FetchError,
    FetchReport,
    LoadedItem,
    SourceItem,
    fetch,
    loaded_items,
)
from lazyrag.sources.http import WebUrl, checked_seconds, make_client, web_url
from lazyrag.validation import text_list, whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Unpack

    from lazyrag.sources.http import WebOptions


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


_VERSION = "2022-06-28"
_VERSION_OF_DATA_SOURCES = "2025-09-03"
_ID = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})(?=[?#]|$)", re.IGNORECASE)
_GONE = 404
_PLAIN = frozenset("number checkbox url email phone_number created_time last_edited_time".split())
_INNER = {"select": "name", "status": "name", "date": "start"}
_MOST_BLOCKS = 50_000  # of a page


class NotionSource:
    """Pages of Notion as Markdown, by its official API; each page is an item, known by its id.

    Give pages, databases or data sources that the integration of the token was connected with. Child pages come along.
    Properties of a page and its title, URL and time of last change become metadata.

    Args:
        token: The integration's secret; shown in no message.
        pages: Ids or URLs of pages.
        databases: Ids or URLs of databases, of which all pages are taken.
        data_sources: Ids of data sources, as databases are made of since the API's version 2025-09-03.
        base_url: Where the API is.
        child_pages: Whether pages beneath a page come along.
        max_pages: Pages at most; a run that comes to a limit is cut short, and removes nothing.
        max_seconds: Seconds at most.
        web: The keywords of `lazyrag.sources.http.WebClient`, such as ``retries`` and ``allow_private``.

    Raises:
        ConfigError: If nothing is named, or a value is of the wrong kind.

    Example, with an integration's token::

        notion = NotionSource(os.environ["NOTION_TOKEN"], databases=["https://www.notion.so/team/1f2e..."])
        notion.fetch("wiki")
        docs = Document("wiki", file_metadata=metadata_of("wiki"))
    """

    def __init__(
        self,
        token: str,
        *,
        pages: Sequence[str] = (),
        databases: Sequence[str] = (),
        data_sources: Sequence[str] = (),
        base_url: str = "https://api.notion.com",
        child_pages: bool = True,
        max_pages: int = 10_000,
        max_seconds: float = 3600.0,
        **web: Unpack[WebOptions],
    ) -> None:
        if not isinstance(token, str) or not token.strip():
            given = "blank" if isinstance(token, str) else f"of type {type(token).__name__}"
            msg = f"token is {given}; give the integration's secret."
            raise ConfigError(msg)
        self._pages = [_id(one) for one in text_list("pages", pages)]
        self._databases = [_id(one) for one in text_list("databases", databases)]
        self._data_sources = [_id(one) for one in text_list("data_sources", data_sources)]
        if not (self._pages or self._databases or self._data_sources):
            msg = "NotionSource got no pages, databases or data_sources; give ids or URLs of at least one kind."
            raise ConfigError(msg)
        self._child_pages = yes_or_no("child_pages", child_pages)
        self._max_pages = whole_number("max_pages", max_pages, 1)
        self._max_seconds = checked_seconds("max_seconds", max_seconds)
        self._base = web_url(base_url)
        secret = {"Authorization": f"Bearer {token.strip()}"}
        self._client = make_client(NotionSource, self._base, web, further=secret)

    def __repr__(self) -> str:
        return (
            f"NotionSource(pages={len(self._pages)}, databases={len(self._databases)}, base_url={self._base.shown!r})"
        )

    @property
    def name(self) -> str:
        """What a folder remembers it by."""
        roots = sorted([*self._pages, *self._databases, *self._data_sources])
        return f"notion {', '.join(roots)}"

    def items(self) -> Iterator[Event]:
        """The pages: those named, then those of databases, then what lies beneath them.

        Raises:
            LoadError: If a page or database that was named cannot be had.
        """
        ends_at = time.monotonic() + self._max_seconds
        pending: deque[tuple[str, Mapping[str, Any] | None]] = deque((one, None) for one in self._pages)
        named = {one for one, _ in pending}
        queries = [f"/v1/databases/{one}/query" for one in self._databases]
        queries += [f"/v1/data_sources/{one}/query" for one in self._data_sources]
        for query in queries:
            rows = ((_own_id(page), page) for page in self._all(query, post=True) if _is_page(page))
            pending.extend(itertools.islice(rows, self._max_pages + 1))
        seen: set[str] = set()
        while pending:
            page_id, page = pending.popleft()
            if page_id in seen:
                continue
            if len(seen) >= self._max_pages or time.monotonic() > ends_at:
                limit = f"max_pages={self._max_pages}" if len(seen) >= self._max_pages else "max_seconds"
                yield CutShort(f"there is more than {limit} allows")
                return
            seen.add(page_id)
            try:
                page = page or self._asked(f"/v1/pages/{page_id}")
                event, beneath = self._page(page_id, page)
            except FetchError as exc:
                if page_id in named:
                    raise
                yield FailedItem(page_id, str(exc), exc.transient, gone=exc.status == _GONE)
                continue
            except LoadError as exc:
                yield FailedItem(page_id, str(exc))
                continue
            if event is not None:
                yield event
            pending.extend((one, None) for one in beneath)

    def load(self) -> Iterator[LoadedItem]:
        """The pages as text, with their metadata."""
        return loaded_items(self)

    def fetch(self, folder: str | os.PathLike[str]) -> FetchReport:
        """Write each page into a file of a folder; see `lazyrag.sources.fetch`."""
        return fetch(self, folder)

    def _page(self, page_id: str, page: Mapping[str, Any]) -> tuple[SourceItem | None, list[str]]:
        """A page, None if it has neither title nor text, and the ids of the pages beneath it."""
        if page.get("archived") is True or page.get("in_trash") is True:
            return None, []
        beneath: list[str] = []
        asked: set[str] = set()
        count = 0

        def children(block_id: str) -> Iterator[Mapping[str, Any]]:
            nonlocal count
            if block_id in asked:  # a block beneath itself
                return
            asked.add(block_id)
            for block in self._all(f"/v1/blocks/{block_id}/children"):
                count += 1
                if count > _MOST_BLOCKS:
                    msg = f"The page {page_id} has more than {_MOST_BLOCKS:,} blocks. Split it."
                    raise LoadError(msg)
                if block.get("type") == "child_page":
                    beneath.append(_own_id(block))
                elif block.get("type") == "child_database" and self._child_pages:
                    beneath.extend(self._rows_beneath(_own_id(block)))
                yield block

        title, metadata = _said(page)
        text = markdown_of(children(page_id), children)
        content = "\n\n".join(piece for piece in (f"# {title}" if title else "", text) if piece)
        item = SourceItem(page_id, content.encode("utf-8", "replace"), ".md", metadata) if content.strip() else None
        return item, beneath if self._child_pages else []

    def _rows_beneath(self, database_id: str) -> list[str]:
        """The pages of a database within a page; of one that is only linked, and not shared, there are none."""
        try:
            rows = (row for row in self._all(f"/v1/databases/{database_id}/query", post=True) if _is_page(row))
            return [_own_id(row) for row in itertools.islice(rows, self._max_pages + 1)]
        except FetchError as exc:
            if exc.status == _GONE:
                return []
            raise

    def _all(self, path: str, *, post: bool = False) -> Iterator[Mapping[str, Any]]:
        """The results of all pages of an answer."""
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            answer = self._asked(path, cursor, post=post)
            results = answer.get("results")
            if not isinstance(results, list):
                msg = f"Notion's answer to {path} has no 'results'. Check base_url."
                raise LoadError(msg)
            yield from (one for one in results if isinstance(one, Mapping))
            following = answer.get("next_cursor")
            if answer.get("has_more") is not True or not isinstance(following, str):
                return
            if following in seen:
                msg = f"Notion's answers to {path} lead in a circle. Run it again later."
                raise LoadError(msg)
            seen.add(following)
            cursor = following

    def _asked(self, path: str, cursor: str | None = None, *, post: bool = False) -> Mapping[str, Any]:
        version = _VERSION_OF_DATA_SOURCES if path.startswith("/v1/data_sources/") else _VERSION
        further = {"Notion-Version": version}
        base = self._base.target.partition("?")[0].rstrip("/")
        query = "" if post else "?page_size=100" + (f"&start_cursor={_quoted(cursor)}" if cursor else "")
        if path.startswith("/v1/pages/"):
            query = ""
        url = web_url(f"{self._base.scheme}://{self._base.netloc}{base}{path}{query}")
        if post:
            body = {"page_size": 100, **({"start_cursor": cursor} if cursor else {})}
            answer = self._client.post(url, body, further=further)
        else:
            answer = self._client.get(url, accept="application/json", further=further, on_redirect=_refuse)
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError) as exc:
            msg = f"Notion's answer to {path} is no JSON ({type(exc).__name__}). Check base_url."
            raise LoadError(msg) from exc
        if not isinstance(value, dict):
            msg = f"Notion's answer to {path} is {type(value).__name__}, not an object. Check base_url."
            raise LoadError(msg)
        return value


def _refuse(url: WebUrl) -> None:
    msg = f"Notion's API leads to {url.shown}. Check base_url."
    raise FetchError(msg, url=url.shown)


def _quoted(cursor: str) -> str:
    return urllib.parse.quote(cursor, safe="")


def _id(given: str) -> str:
    """The id in a text or at the end of a URL, as the API writes it."""
    found = _ID.search(given.strip().partition("?")[0].partition("#")[0])
    if not found:
        msg = f"{given!r:.100} is no id of Notion, which has 32 hexadecimal digits. Copy the link of the page."
        raise ConfigError(msg)
    return str(uuid.UUID("".join(found.groups())))


def _own_id(thing: Mapping[str, Any]) -> str:
    try:
        return str(uuid.UUID(thing.get("id")))
    except (ValueError, TypeError, AttributeError) as exc:
        msg = f"Notion gave a page without an id that is one ({thing.get('id')!r:.60})."
        raise LoadError(msg) from exc


def _is_page(thing: Mapping[str, Any]) -> bool:
    return thing.get("object") == "page"


def _said(page: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A page's title, and its metadata."""
    title = ""
    metadata: dict[str, Any] = {}
    properties = page.get("properties")
    for name, said in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(said, Mapping):
            continue
        if said.get("type") == "title":
            title = plain_text(said.get("title"))
            continue
        value = _property(said)
        if value not in (None, "", []):
            metadata[str(name)] = value
    for name in ("url", "created_time", "last_edited_time"):
        if isinstance(page.get(name), str):
            metadata[name] = page[name]
    return title, {**metadata, **({"title": title} if title else {})}


def _property(said: Mapping[str, Any]) -> Any:
    """A property's value as metadata has it; None for kinds that hold none."""
    named = str(said.get("type"))
    kind: str | None = named
    value = said.get(named)
    if kind in {"formula", "rollup"} and isinstance(value, Mapping):
        kind = {"string": "url", "number": "number", "boolean": "checkbox"}.get(str(value.get("type")))
        value = value.get(str(value.get("type")))
    if kind == "rich_text":
        return rich_text(value)
    if kind in {"multi_select", "people"} and isinstance(value, list):
        return [one["name"] for one in value if isinstance(one, Mapping) and one.get("name")]
    if kind in _INNER and isinstance(value, Mapping):
        return value.get(_INNER[kind])
    return value if kind in _PLAIN and isinstance(value, (str, int, float, bool)) else None
