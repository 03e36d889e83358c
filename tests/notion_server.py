"""Notion's API, as far as pages, databases and blocks are read, on a local server."""

from __future__ import annotations

import uuid

from tests.web_server import Web

TOKEN = "ntn-a-token-that-nobody-may-see"  # noqa: S105
PAGE_SIZE = 2


def notion_id(number):
    """An id as the API writes it."""
    return str(uuid.UUID(int=number))


def text(content, *, href=None, **annotations):
    """A piece of rich text."""
    return {
        "type": "text", "plain_text": content, "href": href,
        "text": {"content": content, "link": href and {"url": href}},
        "annotations": {"bold": False, "italic": False, "strikethrough": False, "code": False, **annotations},
    }  # fmt: skip


class Notion(Web):
    """The server; `pages`, `children` and `databases` are what it holds, by id."""

    def __init__(self):
        super().__init__()
        self.pages = {}
        self.children = {}
        self.databases = {}
        self.data_sources = {}
        self.faults = []
        self._next_id = 1000

    def page(self, number, title, *blocks, **properties):
        """Add a page; returns its id."""
        page_id = notion_id(number)
        self.pages[page_id] = {
            "object": "page", "id": page_id, "url": f"https://www.notion.so/{title}-{page_id.replace('-', '')}",
            "created_time": "2026-04-01T00:00:00.000Z", "last_edited_time": "2026-04-02T00:00:00.000Z",
            "archived": False, "in_trash": False,
            "properties": {"Name": {"id": "title", "type": "title", "title": [text(title)]}, **properties},
        }  # fmt: skip
        self.children[page_id] = list(blocks)
        return page_id

    def block(self, kind, content=None, *children, **said):
        """A block, with what lies beneath it."""
        self._next_id += 1
        block_id = said.pop("id", notion_id(self._next_id))
        if content is not None:
            said["rich_text"] = [text(content)] if isinstance(content, str) else content
        if children:
            self.children[block_id] = list(children)
        return {
            "object": "block",
            "id": block_id,
            "type": kind,
            "has_children": bool(children),
            kind: said,
        }

    def _handle(self, reader, connection):
        self.routes = _Routes(self)
        super()._handle(reader, connection)

    def answer(self, request):  # noqa: PLR0911  one for each endpoint
        """What the API would say."""
        if self.faults:
            return self.faults.pop(0)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _error(
                401, "unauthorized", f"API token {request.headers.get('authorization')} is invalid."
            )
        match request.method, *request.path.strip("/").split("/"):
            case "GET", "v1", "pages", page_id if page_id in self.pages:
                return self.pages[page_id]
            case "GET", "v1", "blocks", block_id, "children" if block_id in self.children:
                return _page_of(self.children[block_id], request.params)
            case "POST", "v1", "databases", database_id, "query" if database_id in self.databases:
                assert request.headers["notion-version"] == "2022-06-28"
                return _page_of(
                    [self.pages[one] for one in self.databases[database_id]], request.json
                )
            case "POST", "v1", "data_sources", source_id, "query" if source_id in self.data_sources:
                assert request.headers["notion-version"] == "2025-09-03"
                return _page_of(
                    [self.pages[one] for one in self.data_sources[source_id]], request.json
                )
        return _error(404, "object_not_found", f"Could not find {request.path}.")


class _Routes:
    def __init__(self, notion):
        self._notion = notion

    def get(self, _path, _default):
        """One function for all paths."""
        return self._notion.answer


def _error(status, code, message):
    body = f'{{"object": "error", "status": {status}, "code": "{code}", "message": "{message}"}}'
    return status, {"Content-Type": "application/json"}, body.encode()


def _page_of(results, asked):
    assert int(asked["page_size"]) == 100
    start = int(asked.get("start_cursor", "0"))
    more = start + PAGE_SIZE < len(results)
    return {
        "object": "list", "results": results[start : start + PAGE_SIZE],
        "has_more": more, "next_cursor": str(start + PAGE_SIZE) if more else None,
    }  # fmt: skip
