"""The page of a document: its source, nodes, versions and details."""

from __future__ import annotations

import bisect
import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.read import outline as find_outline
from lazyrag.server.api import documents
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.set_request import Reading, SetRequest, Writing
from lazyrag.server.page import page
from lazyrag.server.page.page import Facts, Form, text_of
from lazyrag.server.page.sources import (
    PAGES_AT_ONCE,
    content_hash_of,
    marked_document,
    root_span,
)

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

_NODES = 50
_MOST_HEADINGS = 300
_MOST_HIDDEN = 20
_TABS = ("nodes", "versions", "details")


class DocumentView(BaseModel):
    """The part of a document that is shown."""

    uid: str = ""
    words: str = Field("", pattern=r"^(\d{1,9}-\d{1,9})?$")
    group: str = ""
    offset: int = Field(0, ge=0, le=2**53)
    before: int = Field(0, alias="from")
    after: int = Field(0, alias="to")
    restore: int = 0


@router.get("/files/{document_id:path}")
async def document_page(
    call: Reading, document_id: str, view: Annotated[DocumentView, Query()]
) -> Response:
    """A document: its source, nodes, versions or details."""
    return await page.render_set(
        call,
        "document.html",
        fragments=("document_source",),
        **await call.run(_document_facts, call, document_id, view),
    )


def _document_facts(call: SetRequest, document_id: str, view: DocumentView) -> Facts:
    info, tab = _find_document(call, document_id)
    versions = call.docs.versions.list(info.id) if info.version else []
    facts: Facts = {
        "page": "files",
        "info": info,
        "tab": tab,
        "groups": _group_sizes(info),
        "versions": versions,
        "offset": view.offset,
    }
    if not info.version:
        return facts | {"tab": "details", "metadata": {}, "hash": ""}
    if tab == "nodes":
        return facts | _node_rows(call, info, view.group, view.offset)
    if tab == "versions":
        return facts | _diff(call, info, versions, view) | {"restore": view.restore}
    if tab == "details":
        roots = call.docs.get_nodes(document_ids=[root_uid(info.id)], limit=1)
        metadata = roots[0].metadata if roots else {}
        return facts | {"metadata": metadata, "hash": content_hash_of(call, info.id)}
    return facts | _source(call, info, view)


def _find_document(call: SetRequest, document_id: str) -> tuple[Any, str]:
    """The document of a path, and the tab: a document's name may end as a tab's address."""
    info = call.find(document_id)
    if info is not None:
        return info, "source"
    identity, _, tab = document_id.rpartition("/")
    info = call.find(identity) if tab in _TABS else None
    if info is None:
        raise ProblemError(
            404, f"There is no document {document_id!a:.200}.", "It may have been deleted."
        )
    return info, tab


def _group_sizes(info: Any) -> list[tuple[str, int]]:
    return [
        (name, group["nodes"])
        for name, group in info.groups.items()
        if group["nodes"] and name != LAZY_ROOT_NAME
    ]


def _source(call: SetRequest, info: Any, view: DocumentView) -> Facts:
    """The text or pages of a document, with a node of it, or some words of that, marked."""
    node = None
    place = None
    with suppress(ProblemError):
        node = call.node(view.uid)
        size = len(node.text)
        start, end = map(int, view.words.split("-")) if view.words else (0, size)
        if node.path == info.path and start <= end <= size:
            place = root_span(node, (start, end))
    marked = marked_document(call, info, {1: place} if place else {}, 1, view.offset)
    outline = find_outline(call.docs, info.path)
    pages = [location.start for location in outline if location.kind == "page"]
    contents = [
        (location.start, location.label, bisect.bisect(pages, location.start))
        for location in outline
        if location.kind == "heading"
    ]
    [root] = call.docs.get_nodes(document_ids=[root_uid(info.id)], limit=1)
    hidden = [(root.text[place.start : place.end], place.label) for place in root.hidden_text]
    return {
        "node": node,
        "hidden": hidden[:_MOST_HIDDEN],
        **marked,
        "is_part": place is not None,
        "next": view.offset + PAGES_AT_ONCE,
        "toc": contents[:_MOST_HEADINGS],
    }


def _node_rows(call: SetRequest, info: Any, group: str, offset: int) -> Facts:
    names = [name for name, _ in _group_sizes(info)]
    chosen = group if group in names else next(iter(names), LAZY_ROOT_NAME)
    ids = [root_uid(info.id)]
    return {"group": chosen, **page.page_of_nodes(call.docs, chosen, offset, _NODES, ids)}


# Versions

_NEAR = 8  # lines that may be the new form of one
_MOST_PAIRS = 10_000_000  # of characters that are compared
_MOST_EQUAL = 240
_WORD = re.compile(r"[^\W\u2e80-\u9fff]+|\s+|.", re.DOTALL)


def _diff(call: SetRequest, info: Any, versions: Sequence[Any], view: DocumentView) -> Facts:
    """The changed lines of two versions, with their words, and how many nodes changed."""
    numbers = [version.number for version in versions]
    last = view.after if view.after in numbers else info.version
    first = view.before
    if first not in numbers:
        first = max((number for number in numbers if number < last), default=0)
    if not first or first == last:
        return {"first": first, "last": last, "changes": [], "rebuilt": 0, "nodes": 0}
    rebuilt = 0
    changes = []
    for name, nodes in call.docs.versions.diff(info.id, first, last).groups.items():
        if name == LAZY_ROOT_NAME:
            changes = _changed_lines(nodes)
        else:
            rebuilt += sum(node.before is None for node in nodes)
    return {
        "first": first,
        "last": last,
        "changes": changes,
        "rebuilt": rebuilt,
        "nodes": sum(count for _, count in _group_sizes(info)),
    }


def _changed_lines(lines: Sequence[Any]) -> list[list[tuple[str, str]]]:
    """The removed lines, each with the added one that is like it, and the other added ones."""
    removed = [line.text for line in lines if line.after is None]
    added = [line.text for line in lines if line.before is None and line.after is not None]
    changes = []
    pairs_left = _MOST_PAIRS
    for old in removed:
        candidates = added[:_NEAR]
        pairs_left -= len(old) * sum(map(len, candidates))  # the time that both comparisons take
        similar = difflib.get_close_matches(old, candidates, 1, 0.5) if pairs_left > 0 else []
        new = similar[0] if similar else ""
        if similar:
            added.remove(new)
        changes.append(_changed_words(old, new))
    return changes + [[("ins", line)] for line in added]


def _changed_words(old: str, new: str) -> list[tuple[str, str]]:
    """The difference of two lines: pairs of ``same``, ``del`` or ``ins``, and a text. Long equal
    parts are cut.
    """
    before = _WORD.findall(old)
    after = _WORD.findall(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    parts = []
    for operation, start, end, new_start, new_end in matcher.get_opcodes():
        removed = "".join(before[start:end])
        added = "".join(after[new_start:new_end])
        if operation == "equal":
            is_long = len(removed) >= _MOST_EQUAL
            parts.append(("same", f"{removed[:110]} … {removed[-110:]}" if is_long else removed))
            continue
        if removed:
            parts.append(("del", removed))
        if added:
            parts.append(("ins", added))
    return parts


@router.post("/files/{document_id:path}/restore")
async def restore(call: Writing, document_id: str, form: Form) -> Response:
    """Make an earlier version live again, as a job."""
    number = text_of(form, "version")
    version = int(number) if number.isdecimal() else None
    await documents.roll_back(call, documents.Rollback(document=document_id, version=version))
    notice = ("info", page.translator(call.request)("doc.restored", version=number))
    return page.to_set(call, "files", document_id, "versions", notice=notice)
