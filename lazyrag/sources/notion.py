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
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, LoadError
from lazyrag.sources.addresses import WebUrl, web_url
from lazyrag.sources.client import checked_seconds, make_client
from lazyrag.sources.faults import FetchError
from lazyrag.sources.folder import FetchReport, fetch
from lazyrag.sources.items import CutShort, Event, FailedItem, LoadedItem, SourceItem, loaded_items
from lazyrag.sources.notion_blocks import markdown_of, plain_text, rich_text
from lazyrag.validation import text_list, whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Unpack

    from lazyrag.sources.client import WebOptions

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
        web: The keywords of `lazyrag.sources.client.WebClient`, such as ``retries`` and ``allow_private``.

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
