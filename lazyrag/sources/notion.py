"""Notion: `NotionSource` reads pages by the official API and writes them as Markdown."""

from __future__ import annotations

import itertools
import json
import re
import time
import urllib.parse
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

from lazyrag.errors import ConfigError, LoadError
from lazyrag.sources.base import BaseSource, CutShort, Event, FailedItem, FetchError, SourceItem
from lazyrag.sources.http import WebOptions, WebUrl, make_client, web_url
from lazyrag.types import JsonMapping, JsonObject
from lazyrag.validation import (
    require,
    validate_boolean,
    validate_integer,
    validate_seconds,
    validate_texts,
)

Block: TypeAlias = JsonMapping
Children: TypeAlias = Callable[[str], Iterable[Block]]
"""From the id of a block to the blocks beneath it."""

_MARKS = (("code", "`"), ("bold", "**"), ("italic", "*"), ("strikethrough", "~~"))
_LISTS = {"bulleted_list_item": "  ", "numbered_list_item": "   ", "to_do": "  ", "toggle": "  "}
"""Kinds of list items, and the indentation beneath them."""
_TABLE_CELL = str.maketrans({"|": r"\|", "\n": " "})
_MAX_DEPTH = 50


def markdown_of(blocks: Iterable[Block], children: Children) -> str:
    r"""Convert blocks to Markdown. An unknown kind leaves its rich text, kinds without text leave
    none.

    Args:
        blocks: Of the API.
        children: Called for the blocks beneath those that have some, except for child pages.

    Example:
        >>> heading = {"rich_text": [{"plain_text": "Tea"}]}
        >>> task = {"rich_text": [{"plain_text": "Pick"}], "checked": True}
        >>> blocks = [{"type": "heading_1", "heading_1": heading}, {"type": "to_do", "to_do": task}]
        >>> markdown_of(blocks, lambda block_id: ())
        '# Tea\n\n- [x] Pick'
    """
    return _joined(_pieces(blocks, children, 0))


def rich_text(parts: Any) -> str:
    """Convert rich text to Markdown, with links and equations.

    Args:
        parts: Of the API.

    Example:
        >>> link = {"plain_text": "Uji", "href": "https://uji.example"}
        >>> rich_text([link, {"plain_text": ": tea"}])
        '[Uji](https://uji.example): tea'
    """
    return "".join(_marked(part) for part in _objects(parts))


def plain_text(parts: Any) -> str:
    """Rich text without marks, on one line."""
    return " ".join("".join(_text(part.get("plain_text")) for part in _objects(parts)).split())


def _marked(part: Block) -> str:
    text = _text(part.get("plain_text"))
    if part.get("type") == "equation":
        return f"${_text(_object(part.get('equation')).get('expression')) or text}$"
    annotations = _object(part.get("annotations"))
    words = text.strip()
    if not words:
        return text
    lead = text[: len(text) - len(text.lstrip())]
    tail = text[len(text.rstrip()) :]
    for name, mark in _MARKS:
        if annotations.get(name) is True:
            words = f"{mark}{words}{mark}"
    link = _text(part.get("href"))
    return f"{lead}[{words}]({link}){tail}" if link else lead + words + tail


def _pieces(blocks: Iterable[Block], children: Children, depth: int) -> Iterator[tuple[str, str]]:
    """Pairs (kind of block, its Markdown)."""
    number = 0
    for block in blocks:
        kind = _text(block.get("type"))
        content = _object(block.get(kind))
        number = number + 1 if kind == "numbered_list_item" else 0
        beneath: Sequence[Block] = ()
        if block.get("has_children") is True and kind not in {"child_page", "child_database"}:
            if depth >= _MAX_DEPTH:
                raise LoadError(
                    f"Its blocks are nested deeper than {_MAX_DEPTH} levels. Flatten it."
                )
            beneath = list(children(_text(block.get("id"))))
        if kind == "table":
            yield kind, _table(content, beneath)
            continue
        inner = list(_pieces(beneath, children, depth + 1))
        text = rich_text(content.get("rich_text"))
        if kind in _LISTS:
            yield kind, _list_item(kind, content, text, number, inner)
            continue
        text = _WRITERS[kind](content, text) if kind in _WRITERS else _linked(kind, content) or text
        # of columns, synced blocks, foldable headings
        text = "\n\n".join(filter(None, (text, _joined(inner))))
        yield kind, _indented(text, "> ", blank=">") if kind in {"quote", "callout"} else text


def _list_item(
    kind: str, content: Block, text: str, number: int, inner: list[tuple[str, str]]
) -> str:
    box = "[x] " if content.get("checked") is True else "[ ] "
    mark = {"numbered_list_item": f"{number}. ", "to_do": f"- {box}"}.get(kind, "- ")
    text = mark + text.replace("\n", "\n" + _LISTS[kind])
    if not (beneath := _joined(inner)):
        return text
    return text + ("\n" if inner[0][0] in _LISTS else "\n\n") + _indented(beneath, _LISTS[kind])


def _heading(level: int) -> Callable[[Block, str], str]:
    return lambda _, text: f"{'#' * level} {' '.join(text.split())}" if text.strip() else ""


def _code(content: Block, _: str) -> str:
    code = "".join(_text(part.get("plain_text")) for part in _objects(content.get("rich_text")))
    language = _text(content.get("language")).replace("plain text", "").replace(" ", "-")
    fence = "```"
    while fence in code:
        fence += "`"
    caption = rich_text(content.get("caption"))
    return f"{fence}{language}\n{code}\n{fence}" + (f"\n\n{caption}" if caption else "")


def _equation(content: Block, _: str) -> str:
    expression = _text(content.get("expression"))
    return f"$$\n{expression}\n$$" if expression else ""


_WRITERS: dict[str, Callable[[Block, str], str]] = {
    **{f"heading_{level}": _heading(level) for level in range(1, 7)},
    "callout": lambda content, text: (
        f"{_text(_object(content.get('icon')).get('emoji'))} {text}".removeprefix(" ")
    ),
    "child_database": lambda content, _: _text(content.get("title")),
    "child_page": lambda content, _: _text(content.get("title")),
    "code": _code,
    "divider": lambda _, __: "---",
    "equation": _equation,
}
"""From kinds of blocks to functions of their content and rich text."""


def _linked(kind: str, content: Block) -> str:
    """Images, files and embeds as links; "" without a URL."""
    # Notion's name for it; something else may be under this key
    position = _text(content.get("type"))
    url = _text(
        (_object(content.get(position)) if position in {"external", "file"} else content).get("url")
    )
    if position == "file":
        url = url.partition("?")[0]  # a signature that changes with each response
    if not url:
        return ""
    caption = plain_text(content.get("caption")) or _text(content.get("name"))
    return f"![{caption}]({url})" if kind == "image" else f"[{caption or url}]({url})"


def _table(content: Block, rows: Sequence[Block]) -> str:
    cells = []
    for row in rows:
        texts = map(rich_text, _list(_object(row.get("table_row")).get("cells")))
        cells.append([text.translate(_TABLE_CELL).strip() for text in texts])
    if not cells:
        return ""
    width = max(map(len, cells))
    if content.get("has_column_header") is not True:
        cells.insert(0, [])  # Markdown has no table without a header
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in cells]
    return "\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])


def _joined(pieces: Iterable[tuple[str, str]]) -> str:
    """Join pieces by empty lines, the items of a list by line ends."""
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


def _object(value: Any) -> JsonMapping:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Block]:
    return [item for item in _list(value) if isinstance(item, Mapping)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_VERSION = "2022-06-28"
_VERSION_OF_DATA_SOURCES = "2025-09-03"
_ID = re.compile(
    r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})(?=[?#]|$)",
    re.IGNORECASE,
)
_GONE = 404
_PLAIN = frozenset("number checkbox url email phone_number created_time last_edited_time".split())
_INNER = {"select": "name", "status": "name", "date": "start"}
_MAX_BLOCKS = 50_000  # of a page


class NotionSource(BaseSource):
    """Reads pages of Notion as Markdown; each page is an item, identified by its id.

    Name pages, databases or data sources that are connected with the token's integration. Child
    pages are included. Properties of a page, its title, URL and times become metadata.

    Args:
        token: The integration's secret; never shown.
        pages: Ids or URLs of pages.
        databases: Ids or URLs of databases; all of their pages are read.
        data_sources: Ids of data sources, the parts of databases since API version 2025-09-03.
        base_url: URL of the API.
        child_pages: Include pages beneath a page.
        max_pages: Maximum of pages; a run that reaches a limit is cut short, and removes nothing.
        max_seconds: Maximum duration.
        web: The keywords of `lazyrag.sources.http.WebClient`, such as ``retries`` and
            ``allow_private``.

    Raises:
        ConfigError: If nothing is named, or an argument is out of its range.

    Example, with an integration's token::

        notion = NotionSource(os.environ["NOTION_TOKEN"],
        databases=["https://www.notion.so/team/1f2e..."]) notion.fetch("wiki")
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
        is_token = isinstance(token, str) and token.strip() != ""
        require(is_token, "token", type(token), "the integration's secret")  # not shown
        self._pages = _ids("pages", pages)
        self._databases = _ids("databases", databases)
        self._data_sources = _ids("data_sources", data_sources)
        if not (self._pages or self._databases or self._data_sources):
            raise ConfigError(
                "NotionSource needs pages, databases or data_sources: ids or URLs of at least one"
                " kind."
            )
        self._child_pages = validate_boolean("child_pages", child_pages)
        self._max_pages = validate_integer("max_pages", max_pages, 1)
        self._max_seconds = validate_seconds("max_seconds", max_seconds)
        self._base = web_url(base_url)
        secret = {"Authorization": f"Bearer {token.strip()}"}
        self._client = make_client(NotionSource, self._base, web, further=secret)

    def __repr__(self) -> str:
        counts = f"pages={len(self._pages)}, databases={len(self._databases)}"
        return f"NotionSource({counts}, base_url={self._base.shown!r})"

    @property
    def name(self) -> str:
        """The ids of pages, databases and data sources."""
        roots = sorted([*self._pages, *self._databases, *self._data_sources])
        return f"notion {', '.join(roots)}"

    def items(self) -> Iterator[Event]:
        """Fetch the named pages, then those of databases, then child pages.

        Raises:
            LoadError: If a named page or database cannot be fetched.
        """
        ends_at = time.monotonic() + self._max_seconds
        pending: deque[tuple[str, Block | None]] = deque((page_id, None) for page_id in self._pages)
        named = {page_id for page_id, _ in pending}
        for query in self._queries():
            rows = ((_own_id(page), page) for page in self._all(query, post=True) if _is_page(page))
            pending.extend(itertools.islice(rows, self._max_pages + 1))
        seen: set[str] = set()
        while pending:
            page_id, page = pending.popleft()
            if page_id in seen:
                continue
            limit = self._reached_limit(len(seen), ends_at)
            if limit:
                yield CutShort(f"there is more than {limit} allows")
                return
            seen.add(page_id)
            try:
                page = page or self._request(f"/v1/pages/{page_id}")
                event, beneath = self._page(page_id, page)
            except LoadError as exc:
                if page_id in named and isinstance(exc, FetchError):
                    raise
                yield _failed(page_id, exc)
                continue
            if event is not None:
                yield event
            pending.extend((page_id, None) for page_id in beneath)

    def _reached_limit(self, count: int, ends_at: float) -> str:
        if count >= self._max_pages:
            return f"max_pages={self._max_pages}"
        return "max_seconds" if time.monotonic() > ends_at else ""

    def _queries(self) -> list[str]:
        databases = [f"/v1/databases/{source_id}/query" for source_id in self._databases]
        return databases + [
            f"/v1/data_sources/{source_id}/query" for source_id in self._data_sources
        ]

    def _page(self, page_id: str, page: Block) -> tuple[SourceItem | None, list[str]]:
        """The page, None if it is empty or deleted, and the ids of its child pages."""
        if page.get("archived") is True or page.get("in_trash") is True:
            return None, []
        beneath = []
        seen = set()
        count = 0

        def children(block_id: str) -> Iterator[Block]:
            nonlocal count
            if block_id in seen:  # a block beneath itself
                return
            seen.add(block_id)
            for block in self._all(f"/v1/blocks/{block_id}/children"):
                count += 1
                if count > _MAX_BLOCKS:
                    raise LoadError(
                        f"The page {page_id} has more than {_MAX_BLOCKS:,} blocks. Split it."
                    )
                if block.get("type") == "child_page":
                    beneath.append(_own_id(block))
                elif block.get("type") == "child_database" and self._child_pages:
                    beneath.extend(self._rows_beneath(_own_id(block)))
                yield block

        title, metadata = _metadata(page)
        text = markdown_of(children(page_id), children)
        content = "\n\n".join(piece for piece in (f"# {title}" if title else "", text) if piece)
        item = (
            SourceItem(page_id, content.encode("utf-8", "replace"), ".md", metadata)
            if content.strip()
            else None
        )
        return item, beneath if self._child_pages else []

    def _rows_beneath(self, database_id: str) -> list[str]:
        """The pages of a database within a page; none if it is only linked, and not shared."""
        try:
            rows = (
                row
                for row in self._all(f"/v1/databases/{database_id}/query", post=True)
                if _is_page(row)
            )
            return [_own_id(row) for row in itertools.islice(rows, self._max_pages + 1)]
        except FetchError as exc:
            if exc.status == _GONE:
                return []
            raise

    def _all(self, path: str, *, post: bool = False) -> Iterator[Block]:
        """The results of all pages of a response."""
        cursor: str | None = None
        seen = set()
        while True:
            answer = self._request(path, cursor, post=post)
            results = answer.get("results")
            if not isinstance(results, list):
                raise LoadError(f"Notion's response to {path} has no 'results'. Check base_url.")
            yield from (result for result in results if isinstance(result, Mapping))
            following = answer.get("next_cursor")
            if answer.get("has_more") is not True or not isinstance(following, str):
                return
            if following in seen:
                raise LoadError(
                    f"Notion's responses to {path} lead in a circle. Run it again later."
                )
            seen.add(following)
            cursor = following

    def _request(self, path: str, cursor: str | None = None, *, post: bool = False) -> Block:
        version = _VERSION_OF_DATA_SOURCES if path.startswith("/v1/data_sources/") else _VERSION
        further = {"Notion-Version": version}
        paging = {"page_size": 100, **({"start_cursor": cursor} if cursor else {})}
        query = (
            "" if post or path.startswith("/v1/pages/") else f"?{urllib.parse.urlencode(paging)}"
        )
        url = web_url(f"{self._base.target.partition('?')[0].rstrip('/')}{path}{query}", self._base)
        if post:
            answer = self._client.post(url, paging, further=further)
        else:
            answer = self._client.get(
                url, accept="application/json", further=further, on_redirect=_refuse
            )
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise LoadError(f"Notion's response to {path} is not a JSON object. Check base_url.")
        return value


def _refuse(url: WebUrl) -> None:
    raise url.error("is where Notion's API redirects to. Check base_url.")


def _ids(name: str, links: Sequence[str]) -> list[str]:
    """The ids in texts or at the end of URLs, in the API's form."""
    ids = []
    for link in validate_texts(name, links):
        match = _ID.search(link.strip().partition("?")[0].partition("#")[0])
        if not match:
            raise ConfigError(
                f"Ids of Notion must have 32 hexadecimal digits; got {link!r:.100}. Copy the link"
                " of the page."
            )
        ids.append(str(uuid.UUID("".join(match.groups()))))
    return ids


def _own_id(thing: Block) -> str:
    try:
        return str(uuid.UUID(thing.get("id")))
    except (ValueError, TypeError, AttributeError) as exc:
        raise LoadError(
            f"Notion returned a page with an invalid id ({thing.get('id')!r:.60})."
        ) from exc


def _is_page(thing: Block) -> bool:
    return thing.get("object") == "page"


def _metadata(page: Block) -> tuple[str, JsonObject]:
    """A page's title, and its metadata."""
    title = ""
    metadata: JsonObject = {}
    for name, value in _object(page.get("properties")).items():
        if not isinstance(value, Mapping):
            continue
        if value.get("type") == "title":
            title = plain_text(value.get("title"))
        elif (field := _property(value)) not in (None, "", []):
            metadata[str(name)] = field
    for name in ("url", "created_time", "last_edited_time"):
        if isinstance(page.get(name), str):
            metadata[name] = page[name]
    return title, {**metadata, **({"title": title} if title else {})}


def _property(content: Block) -> Any:
    """A property's value for metadata; None for kinds without one."""
    named = str(content.get("type"))
    kind: str | None = named
    value = content.get(named)
    if kind in {"formula", "rollup"} and isinstance(value, Mapping):
        kind = {"string": "url", "number": "number", "boolean": "checkbox"}.get(
            str(value.get("type"))
        )
        value = value.get(str(value.get("type")))
    if kind == "rich_text":
        return rich_text(value)
    if kind in {"multi_select", "people"} and isinstance(value, list):
        return [item["name"] for item in value if isinstance(item, Mapping) and item.get("name")]
    if kind in _INNER and isinstance(value, Mapping):
        return value.get(_INNER[kind])
    return value if kind in _PLAIN and isinstance(value, (str, int, float, bool)) else None


def _failed(page_id: str, exc: LoadError) -> FailedItem:
    if isinstance(exc, FetchError):
        return FailedItem(page_id, str(exc), exc.transient, gone=exc.status == _GONE)
    return FailedItem(page_id, str(exc))
