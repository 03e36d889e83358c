"""Documents with marks: pictures of pages with boxes, or texts, in the source pane and alone."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query
from starlette.responses import Response

from lazyrag.data.node import DocNode, describe_span
from lazyrag.data.segment import LAZY_ROOT_NAME, Location, Span
from lazyrag.document import Document
from lazyrag.errors import LazyRAGError
from lazyrag.read import marks as find_marks
from lazyrag.read import outline as find_outline
from lazyrag.read import page_image as render_page_image
from lazyrag.server.api import documents
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.set_request import Reading, SetRequest
from lazyrag.server.page.marked_text import text_blocks
from lazyrag.server.page.page import Facts
from lazyrag.server.page.turns import ThreadSource
from lazyrag.types import JsonObject

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

PAGES_AT_ONCE = 60
# characters of a text that is shown at once, and around a mark of a longer one
_MOST_CHARACTERS = 40_000
_AROUND = 8_000
_WIDTH = 1000
_Number: TypeAlias = Annotated[int, Query(ge=1, le=4_096)]


@functools.lru_cache(maxsize=96)
def _image(docs: Document, identity: str, _content: str, page: int, width: int, file: Any) -> bytes:
    # in memory only: a deletion leaves nothing
    return render_page_image(docs, identity, page, width=width, file=file)


@functools.lru_cache(maxsize=2_048)
def _boxes(docs: Document, identity: str, _content: str, span: Span, file: Any) -> tuple[Any, ...]:
    return find_marks(docs, identity, span, file=file).boxes


def content_hash_of(call: SetRequest, identity: str) -> str:
    """The content hash of a document; "" if there is none."""
    row = call.table.find(identity)
    return "" if row is None or row.content_hash is None else row.content_hash


@router.get("/pages/{document_id:path}")
async def page_image(
    call: Reading, document_id: str, page: _Number = 1, width: _Number = _WIDTH
) -> Response:
    """The picture of a page; the address has the content's hash, so that the browser may keep
    it.
    """
    await call.require_visible(document_id)

    def make() -> bytes:
        content = content_hash_of(call, document_id)
        file = documents.file_of(call, document_id)
        # they are kept in memory
        return _image(call.docs, document_id, content, page, min(width, 2 * _WIDTH), file)

    headers = {**documents.FILE_HEADERS, "Cache-Control": "private, max-age=3600"}
    return Response(await call.run(make), 200, headers, "image/png")


def _page_sheets(
    call: SetRequest, identity: str, numbers: Iterable[int], marks: Mapping[int, Span]
) -> tuple[list[JsonObject], set[int]]:
    """Pages of a PDF with the boxes of marks, and the numbers of the marks that have none."""
    content = content_hash_of(call, identity)
    file = documents.file_of(call, identity)
    boxes: dict[int, list[tuple[int, Any]]] = {}
    missing = set()
    for mark, (start, end) in marks.items():
        areas: tuple[Any, ...] = ()
        with suppress(LazyRAGError):
            span = (start, max(end, start + 1))
            areas = _boxes(call.docs, identity, content, span, file)
        if not areas:
            missing.add(mark)
        for box in areas:
            area = dataclasses.replace(box, x1=box.x0, y1=box.y0) if start == end else box
            boxes.setdefault(box.page, []).append((mark, area))
    pages = set(numbers)
    for number in boxes:
        pages |= {number - 1, number, number + 1}
    last = call.docs.documents(ids=[identity])[0].pages or 0
    size = (0, 0)
    sheets = []
    for number in sorted(pages & {*range(1, last + 1)}):
        if number in boxes or not size[0]:
            image = _image(call.docs, identity, content, number, _WIDTH, file)
            size = struct.unpack(">2I", image[16:24])
        sheets.append(
            {
                "id": identity,
                "version": content[:12],
                "page": number,
                "of": last,
                "width": size[0],
                "height": size[1],
                "boxes": boxes.get(number, ()),
            }
        )
    return sheets, missing


def root_span(node: DocNode, span: Span) -> Span | None:
    """A stretch of a node's text as one of the document's; None where the text was rewritten."""
    if node.span is None or node.source is None or node.source.group != LAZY_ROOT_NAME:
        return None
    if node.text != node.source.text[slice(*node.span)]:
        return None
    return node.span[0] + span[0], node.span[0] + span[1]


def locate_sources(call: SetRequest, sources: Sequence[ThreadSource]) -> None:
    """Find citations in the present text of their document."""
    paths = {source.hit.source for source in sources}
    infos = {path: call.find(path) for path in paths}
    for source in sources:
        source.place = source.hit.location
        source.is_gone = infos[source.hit.source] is None
        with suppress(ProblemError, LazyRAGError):
            node = call.node(source.hit.id)
            if node.get_content() == source.hit.text:
                source.place = node.location
                source.present_span = root_span(node, source.span)
                if source.present_span:
                    source.place = describe_span(node.source.segment, source.present_span)


def source_pane(call: SetRequest, sources: Sequence[ThreadSource], number: int) -> Facts:
    """The source pane of a citation: its document with the marks of all citations of it.

    Raises:
        ProblemError: 404 if there is no citation of the number.
    """
    source = next((source for source in sources if source.number == number), None)
    if source is None:
        raise ProblemError(404, f"The thread has no citation {number}.", f"It has {len(sources)}.")
    path = source.hit.source
    info = call.find(path)
    pane = {
        "n": number,
        "count": len(sources),
        "path": path,
        "place": source.place,
        "info": info,
        "older": None,
    }
    if info is None or not info.version:
        return {**pane, "info": None, "as_text": False}
    pane["hash"] = content_hash_of(call, path)
    places = {
        other.number: other.present_span
        for other in sources
        if other.hit.source == path and other.present_span
    }
    if number in places:
        return {**pane, **marked_document(call, info, places, number)}
    # another version, or a text that a group rewrote
    for version in call.docs.versions.list(path):
        if version.created_at.timestamp() > source.asked_at:
            pane["older"] = version.number - 1, version.created_at
            break
    text = source.hit.text
    complete = (0, len(text))
    blocks = text_blocks(text, complete, [(number, *source.span)], (), [complete])
    return {
        **pane,
        "sheets": [],
        "as_text": True,
        "blocks": blocks,
        "shown": complete,
        "size": len(text),
    }


def marked_document(
    call: SetRequest, info: Any, places: Mapping[int, Span], number: int, offset: int = 0
) -> Facts:
    """A document with marks: its pages with boxes, else its text, around the marks and the rest as
    context.

    Without marks from an offset on, which is a number of pages or characters. An empty place is one
    to scroll to.
    """
    if info.pages:
        pages = range(offset + 1, min(offset + PAGES_AT_ONCE, info.pages) + 1)
        with suppress(LazyRAGError):  # the file may have changed, or be gone
            sheets, missing = _page_sheets(call, info.id, () if places else pages, places)
            if sheets and number not in missing:
                return {"sheets": sheets, "as_text": False}
    text = call.docs.read(info.path)
    outline = find_outline(call.docs, info.path)
    complete = (0, len(text))
    focus = [_section(outline, span) or complete for span in places.values()]
    shown_span = _visible_span(text, places.get(number), offset)
    marks = [(mark, *span) for mark, span in places.items()]
    return {
        "sheets": [],
        "as_text": bool(info.pages),
        "blocks": text_blocks(text, shown_span, marks, outline, focus or [complete]),
        "shown": shown_span,
        "size": len(text),
    }


def _visible_span(text: str, place: Span | None, offset: int) -> Span:
    """What is shown at once of a text: around a place, else complete lines from an offset on."""
    size = len(text)
    if size <= _MOST_CHARACTERS:
        return 0, size
    if place is not None:
        return max(0, place[0] - _AROUND), min(size, place[0] + _AROUND)
    end = offset + _MOST_CHARACTERS
    if end >= size:
        return min(offset, size), size
    return offset, text.rfind("\n", offset, end) + 1 or end


def _section(outline: Sequence[Location], span: Span) -> Span | None:
    """The smallest heading's section or page around a span."""
    sections = [
        (location.start, location.end)
        for location in outline
        if location.kind in ("heading", "page")
        and location.start <= span[0]
        and span[1] <= location.end
    ]
    return min(sections, key=lambda section: section[1] - section[0], default=None)
