"""The pages that read: questions and answers with their sources, search with its explanation, one
document.
"""

from __future__ import annotations

import bisect
import dataclasses
import difflib
import functools
import json
import re
import struct
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from fastapi import Form as FormFields
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel, Field
from starlette.responses import Response

from lazyrag.data.filters import OPERATORS, And, Condition, Filter
from lazyrag.data.node import DocNode, describe_span
from lazyrag.data.result import Hit
from lazyrag.data.segment import LAZY_ROOT_NAME, Location, Span, root_uid
from lazyrag.document import Document
from lazyrag.errors import ConfigError, LazyRAGError
from lazyrag.generation.citations import (
    CLAIM_CHARACTERS,
    cited_span,
    cited_with,
    citing_markers,
    claim_before,
    is_copied,
    is_statement,
    quote_checks,
)
from lazyrag.generation.markers import read_marker, replace_markers, scan
from lazyrag.read import grep
from lazyrag.read import marks as find_marks
from lazyrag.read import outline as find_outline
from lazyrag.read import page_image as render_page_image
from lazyrag.retrieval.explain import Tracks, build_explanation, filter_text
from lazyrag.retrieval.postprocessors import MMR, RetrievalChain
from lazyrag.server.api import answers, documents
from lazyrag.server.api.search import MAX_QUERY, Name, Scope, SearchOptions
from lazyrag.server.api.uploads import Call, Reading, Writing
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.page import page
from lazyrag.server.page.marked_text import _cells, _inline, _lines, _marked, text_blocks
from lazyrag.server.page.operate import first_run, suggestions
from lazyrag.server.page.page import Form
from lazyrag.text.analyzers import query_terms, term_spans
from lazyrag.text.sentences import resolve_language, sentence_spans

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

WAIT_S = 60.0
"""How long a browser without scripts waits for an answer."""
# characters of a text that is shown at once, and around a mark of a longer one
_SHOWN = 40_000
_AROUND = 8_000
_PAGES = 60
_NODES = 50
_RECENT = 20
_KEPT = 100
_CHOICES = 8
_SNIPPET = 240
_WIDTH = 1000
_TOC = 300
_TABS = ("nodes", "versions", "details")

# Marked text


# Answers


@dataclass(slots=True)
class Source:
    """A citation of a thread: words of a passage.

    Args:
        number: Of its chip, from 1.
        hit: The passage as it was read.
        span: The cited words in its text; empty if no sentence of it shares a content word with the
            statement.
        asked: When the question was asked.
        there: The words in the present text of the document; None if they are not there any more.
        place: The same for people.
        is_gone: Whether the principal does not see the document any more.
    """

    number: int
    hit: Hit
    span: Span
    asked: float
    there: Span | None = None
    place: str = ""
    is_gone: bool = False

    @property
    def quote(self) -> str:
        """The cited words; "" if there are none."""
        return re.sub(r"^[-*#>|\s]+|\*\*", "", " ".join(self.hit.text[slice(*self.span)].split()))


@dataclass
class Turn:
    """A question of a thread with its answer, as far as it is written; see the template
    ``turn``.
    """

    id: str
    question: str
    options: dict[str, Any]
    asked: float
    found: dict[str, Any]
    first: int
    last: int = 0
    parts: list[str | int] = field(default_factory=list)
    blocks: list[tuple[str, list[Any]]] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    statements: int = 0
    bare: int = 0
    quotes: int = 0
    misquoted: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)

    def cite(self, hit: Hit, span: Span) -> int:
        """The number of a citation: equal ones have one."""
        new = Source(self.first + len(self.sources), hit, span, self.asked)
        for one in self.sources:  # passages overlap
            is_near = one.hit.source == hit.source and abs(one.hit.chunk_id - hit.chunk_id) <= 1
            is_equal = (
                one.span == span if one.hit.id == hit.id else new.quote and one.quote == new.quote
            )
            if is_near and is_equal:
                return one.number
        self.sources.append(new)
        return new.number


_OPEN_MARKER = re.compile(r"(?<!\s)\s*([\[【［〔])([^\[\]【】［］〔〕\n]{0,80})([\]】］〕]|$)")


class LiveText:
    """An answer that is being written: events of its log become texts, and numbers of citations.

    The same events give the same pieces, so that a stream goes on where it was cut.
    """

    def __init__(self, scope: Scope, turn: Turn) -> None:
        self._scope = scope
        self._turn = turn
        self._text = ""
        self._done = 0
        self._waits = 0
        self._hits = dict[int, Hit]()

    def feed(self, name: str, data: Mapping[str, Any]) -> list[str | int]:
        """What an event adds."""
        if name == "citation":
            with suppress(ProblemError, LazyRAGError):
                self._hits[data["index"]] = Hit.from_node(self._scope.node(data["uid"]))
        elif name != "delta":
            return []
        # A marker waits for its citation, which follows its delta or the next one, or never.
        pieces = list(self._pieces(self._waits if name == "delta" else 0))
        if name == "delta":
            self._waits = len(self._text)
            self._text += data["text"]
        return [one for one in (*pieces, *self._pieces(0)) if one != ""]

    def _pieces(self, final: int) -> Iterator[str | int]:
        while match := _OPEN_MARKER.search(self._text, self._done):
            opener, body, closer = match.groups()
            marker = read_marker(0, opener, body) if closer else None
            known = (
                [self._hits[one] for one in marker.numbers if one in self._hits] if marker else []
            )
            yield self._up_to(match.start())
            if not closer or (marker and len(known) < len(marker.numbers) and match.end() > final):
                return
            if marker is None or marker.fault:
                yield self._up_to(match.end())
                continue
            before = self._text[max(0, match.start() - CLAIM_CHARACTERS) : match.start()]
            if is_copied(marker, before, "", [hit.text for hit in self._hits.values()]):
                yield self._up_to(match.end())
                continue
            self._done = match.end()
            claim = claim_before(before)
            for hit in known:
                yield self._turn.cite(hit, cited_span(hit.text, claim))
        yield self._up_to(len(self._text.rstrip()))

    def _up_to(self, end: int) -> str:
        piece = self._text[self._done : end]
        self._done = max(self._done, end)
        return piece


def _hits(scope: Scope, answer: Mapping[str, Any]) -> list[Hit]:
    """What the model read; of an answer that is not complete, what it cites."""
    cited = dict[int, Hit]()
    for one in answer["citations"] if not answer["hits"] else ():
        with suppress(ProblemError, LazyRAGError):
            cited[one["index"]] = Hit.from_node(scope.node(one["uid"]))
    read = [Hit(**{**one, "score": 0.0}) for one in answer["hits"]]
    return read or [cited.get(one, Hit("", "", 0.0)) for one in range(1, max(cited, default=0) + 1)]


def read_answer(turn: Turn, hits: Sequence[Hit]) -> None:
    """Make blocks, sources and counts of a complete answer."""
    text = turn.found["text"] or ""
    if turn.found["text"] is None:  # no chat model: the passages
        for hit in hits:
            turn.cite(hit, cited_span(hit.text, turn.question))
        return
    scanned = scan(text)
    lines = list(_lines(text))
    markers = citing_markers(text, scanned.markers, hits)
    checks = quote_checks(text, scanned, hits)
    turn.quotes = len(checks)
    turn.misquoted = [one.quote for one in checks if not one.ok]
    chips: list[tuple[int, int, list[int]]] = []
    for marker in markers:
        claim = claim_before(text[max(0, marker.start - CLAIM_CHARACTERS) : marker.start])
        quoted = [one for one in checks if one.quote in claim]
        is_wrong = marker.fault or any(not one.ok for one in quoted)
        numbers = [one for one in marker.numbers if 1 <= one <= len(hits)]
        turn.unresolved += [] if numbers and not marker.fault else [marker.text]
        spans = {one.found: one.span for one in quoted}
        cited = [
            (hits[one - 1], spans.get(one) or cited_span(hits[one - 1].text, claim))
            for one in numbers
        ]
        chips.append(
            (marker.start, marker.end, [] if is_wrong else [turn.cite(*one) for one in cited])
        )
    prose = [(start, end) for kind, start, end in lines if kind not in ("h", "head", "pre")]
    claims = [
        (start, end)
        for start, end in sentence_spans(text)
        if hits
        and any(one < end and start < two for one, two in prose)
        and is_statement(text[start:end])
    ]
    sourced = cited_with(text, markers, claims, sources=len(hits))
    bare = [span for span, numbers in zip(claims, sourced, strict=True) if not numbers]
    turn.statements = len(claims)
    turn.bare = len(bare)
    is_zh = resolve_language("auto", text) == "zh"
    inline = functools.partial(_inline, text, chips=chips, bare=bare, is_zh=is_zh)
    for kind, start, end in lines:
        if kind in ("head", "row"):
            turn.blocks.append((kind, [inline(one) for one in _cells(text, start, end)]))
        else:
            turn.blocks.append(
                (kind, [(text[start:end], "")] if kind == "pre" else inline((start, end)))
            )


# The book of questions: threads by the id of their first answer


def _note_question(scope: Scope, book: answers.Notebook, body: Mapping[str, Any]) -> None:
    book.add(scope, "question", body)
    for old in _questions(scope, book)[:-_KEPT]:
        book.take(old["id"])


def _questions(scope: Scope, book: answers.Notebook) -> list[dict[str, Any]]:
    """Questions of this principal, oldest first."""
    return book.records(scope, "question", is_own=True)


def _recent(scope: Scope, book: answers.Notebook) -> list[dict[str, Any]]:
    asked = [one for one in _questions(scope, book) if one["thread"] == one["answer"]]
    return list({one["question"]: one for one in asked}.values())[::-1][:_RECENT]


def _thread(scope: Scope, book: answers.Notebook, thread: str) -> list[Turn]:
    """The turns of a thread; those whose answer is not stored any more have the state GONE."""
    turns: list[Turn] = []
    for one in (one for one in _questions(scope, book) if one["thread"] == thread):
        first = 1 + sum(len(before.sources) for before in turns)
        turn = Turn(
            one["answer"], one["question"], one["options"], one["created"], dict(_GONE), first
        )
        with suppress(ProblemError):
            book.question(scope, turn.id)
            events = book.events(turn.id)
            turn.found = answers.answer_of(turn.id, turn.question, events)
            turn.last = len(events)
            if turn.found["state"] == "WORKING":
                live = LiveText(scope, turn)
                turn.parts = [
                    piece for _, name, data in events for piece in live.feed(name, json.loads(data))
                ]
            else:
                read_answer(turn, _hits(scope, turn.found))
        turns.append(turn)
    if not turns:
        raise ProblemError(
            404,
            f"There is no question {thread!a:.80}.",
            "It was asked with another token, or is old.",
        )
    return turns


_GONE: Mapping[str, Any] = {
    "state": "GONE",
    "text": None,
    "problems": [],
    "hits": [],
    "measures": {},
}

# Ask


class Knobs(BaseModel):
    """The query bar and the settings of the retrieval, which Ask and Search share."""

    q: str = Field("", max_length=MAX_QUERY)
    group: Name = ""
    retriever: Name = ""
    topk: int | None = Field(None, ge=1, le=100)
    rerank: Literal["", "mmr"] = ""
    filter: list[str] = Field([], max_length=50)
    field: Name = ""
    op: Name = "eq"
    value: str = Field("", max_length=2_000)
    explain: bool = False
    why_not: str = Field("", max_length=MAX_QUERY)

    def query(self, **changes: Any) -> dict[str, Any]:
        """The query of a URL with these settings; defaults are left out."""
        own = self.model_dump(
            include={"q", "group", "retriever", "topk", "rerank", "filter", "explain", "why_not"}
        )
        return {name: 1 if one is True else one for name, one in {**own, **changes}.items() if one}

    def conditions(self, docs: Document) -> list[Condition]:
        """The conditions, with the new one; its text becomes a value of the field's type."""
        found = [Condition(**json.loads(one)) for one in self.filter]
        if self.field and (self.value.strip() or self.op == "exists"):
            values = [
                _value(docs, self.field, one)
                for one in re.split(r"[\s,，]+", self.value.strip())
                if one
            ]
            whole = _value(docs, self.field, self.value.strip()) if self.op != "exists" else True
            found.append(
                Condition(self.field, self.op, values if self.op in ("in", "not in") else whole)
            )
        return found


def _value(docs: Document, name: str, text: str) -> Any:
    kind = docs.reader.fields[name].data_type.value if name in docs.reader.fields else ""
    try:
        return int(text) if "int" in kind else float(text) if kind in ("float", "double") else text
    except ValueError as exc:
        raise ConfigError(f"{name} must be a number; got {text!r:.80}.") from exc


Given = Annotated[Knobs, Query()]
Index: TypeAlias = Annotated[int, Query(ge=0)]
Number: TypeAlias = Annotated[int, Query(ge=1, le=4_096)]


def _wanted_of(given: Knobs) -> dict[str, Any]:
    wanted = {"and": [json.loads(one) for one in given.filter]} if given.filter else None
    return {
        "topk": given.topk,
        "group": given.group,
        "retriever": given.retriever,
        "filters": wanted,
    }


def _scope(call: Call) -> Scope:
    return Scope(call.service, call.principal, call.name, call.docs)


def _groups(call: Call) -> list[tuple[str, int]]:
    """The groups that can be searched, with their number of nodes as the principal sees them."""
    nodes = {
        one.name: one.nodes
        for one in call.whole.status().groups
        if one.nodes and one.name != LAZY_ROOT_NAME
    }
    return [(one, nodes[one] if call.principal.labels is None else 0) for one in nodes] or [
        ("MediumChunk", 0)
    ]


def _bar(call: Call, given: Knobs) -> dict[str, Any]:
    """What the query bar and the knobs show."""
    groups = _groups(call)
    default = page.defaults_of(call.service, call.name)
    names = [name for name, _ in groups]
    given.group = next((one for one in (given.group, default["group"]) if one in names), names[0])
    given.retriever = given.retriever or default["retriever"]
    given.topk = given.topk or default["topk"]
    found: list[Any] = []
    problem = None
    try:
        found = given.conditions(call.docs)
    except (LazyRAGError, ValueError, TypeError, RecursionError) as exc:
        problem = (
            problem_of(exc)
            if isinstance(exc, LazyRAGError)
            else ProblemError(422, "The filter is malformed.")
        )
    given.filter = [
        json.dumps({"field": one.field, "op": one.op, "value": one.value}) for one in found
    ]
    options = [(name, f"{name} ({count:,})" if count else name) for name, count in groups]
    bar = {"page": "ask", "set": call.name, "given": given, "group_options": options}
    bar["retrievers"] = page.retrievers_of(call.docs)
    bar |= {
        "conditions": [*zip(map(filter_text, found), given.filter, strict=True)],
        "problem": problem,
    }
    bar |= {
        "fields": sorted(call.docs.reader.fields),
        "operators": OPERATORS,
        "filters": And(*found) if found else None,
    }
    return {**bar, "has_chat": call.service.chat is not None}


@router.get("/ask")
async def ask_page(call: Reading, book: answers.Book, given: Given) -> Response:
    """The query bar, suggestions, recent questions; on an empty set the way to the first files."""

    def find() -> dict[str, Any]:
        return {
            **_bar(call, given),
            "recent": _recent(_scope(call), book),
            "suggested": suggestions(call.docs, page.language_of(call.request)),
        }

    return await first_run(call) or await page.render(
        call.request, "ask.html", **await call.run(find)
    )


@router.post("/ask")
async def ask(
    call: Reading, book: answers.Book, form: Form, given: Annotated[Knobs, FormFields()]
) -> Response:
    """Ask a question, or a follow-up of a thread. Without scripts the answer's page waits until it
    is written.
    """
    scope = _scope(call)
    thread = str(form.get("thread", ""))
    if not given.q.strip():
        return page.redirect(call.request, "s", call.name, "ask")
    bar = await call.run(_bar, call, given)
    turns = await call.run(_thread, scope, book, thread) if thread else []
    said = [
        (turn.question, replace_markers(turn.found["text"], ""))
        for turn in turns[-10:]
        if turn.found["text"]
    ]
    pairs = [
        (role, text[:20_000])
        for one in said
        for role, text in zip(("user", "assistant"), one, strict=True)
    ]
    history = [{"role": role, "content": text} for role, text in pairs]
    body = answers.AnswerBody.model_validate(
        {**_wanted_of(given), "question": given.q, "history": history, "stream": True}
    )
    if bar["problem"]:
        raise bar["problem"]
    answer = (
        (await answers.ask(body, scope, book, call.request)).headers["location"].rpartition("/")[2]
    )
    options = given.query(q="", explain=False, why_not="")
    note = {"answer": answer, "thread": thread or answer, "question": given.q, "options": options}
    await call.run(_note_question, scope, book, note)
    response = page.redirect(
        call.request, "s", call.name, "ask", thread or answer, wait=form.get("wait")
    )
    response.headers["location"] += "#turn" if thread else ""
    return response


@router.get("/ask/{thread}")
async def answer_page(
    call: Reading, book: answers.Book, thread: str, cite: Index = 0, wait: bool = False
) -> Response:
    """A thread of answers with the sources; with ``cite`` the cited words in the pane."""
    scope = _scope(call)
    until = time.monotonic() + WAIT_S

    def find() -> dict[str, Any]:
        turns = _thread(scope, book, thread)
        given = Knobs.model_validate(turns[-1].options)
        sources = [one for turn in turns for one in turn.sources]
        _locate(call, sources)
        pane = _pane(call, sources, cite) if cite else None
        return {
            **_bar(call, given),
            "thread": turns,
            "turn": turns[-1],
            "sources": sources,
            "pane": pane,
        }

    found = await call.run(find)
    while wait and found["turn"].found["state"] == "WORKING" and time.monotonic() < until:
        async for _ in answers.follow(
            scope, book, found["turn"].id, found["turn"].last, call.request
        ):
            pass
        found = await call.run(find)
    response = await page.render(call.request, "answer.html", fragments=("turn", "source"), **found)
    if wait and found["turn"].found["state"] == "WORKING":
        response.headers["Refresh"] = "5"
    return response


@router.get("/ask/{thread}/events")
async def answer_events(call: Reading, book: answers.Book, thread: str, after: int = 0) -> Response:
    """The last answer of a thread while it is written: texts and numbers of citations, under the
    numbers of its log.
    """
    scope = _scope(call)
    turns = await call.run(_thread, scope, book, thread)
    turn = turns[-1]
    given = call.request.headers.get("last-event-id", "")[:18]
    seen = int(given) if given.isascii() and given.isdecimal() else after
    live = LiveText(scope, Turn(turn.id, turn.question, {}, turn.asked, {}, turn.first))

    async def stream() -> AsyncIterator[bytes]:
        async for number, name, data in answers.follow(scope, book, turn.id, 0):
            pieces = await call.run(live.feed, name, json.loads(data)) if number else []
            if not number:
                yield KEEPALIVE_COMMENT
            elif number > seen:
                body = json.dumps(pieces, ensure_ascii=False)
                yield format_sse_event(
                    data_str=body, event="done" if name == "done" else "text", id=str(number)
                )

    return answers.event_stream(stream())


@router.post("/ask/{thread}/stop")
async def stop(call: Reading, book: answers.Book, thread: str, form: Form) -> Response:  # noqa: ARG001
    """Stop the last answer of a thread."""
    turn = (await call.run(_thread, _scope(call), book, thread))[-1]
    await call.run(book.stop, turn.id)
    async for _ in answers.follow(_scope(call), book, turn.id, turn.last):
        pass  # until it has ended
    return page.redirect(call.request, "s", call.name, "ask", thread)


@router.post("/ask/{thread}/feedback")
async def judge(call: Reading, book: answers.Book, thread: str, form: Form) -> Response:
    """Judge an answer: it becomes a candidate for a golden question."""
    body = answers.FeedbackBody(good=form.get("good") == "1", answer=str(form.get("answer", "")))
    await answers.give_feedback(body, _scope(call), book)
    return page.redirect(
        call.request, "s", call.name, "ask", thread, judged="1" if body.good else "0"
    )


# Sources


@functools.lru_cache(maxsize=96)
def _image(docs: Document, identity: str, _content: str, page: int, width: int, file: Any) -> bytes:
    # in memory only: a deletion leaves nothing
    return render_page_image(docs, identity, page, width=width, file=file)


@functools.lru_cache(maxsize=2_048)
def _boxes(docs: Document, identity: str, _content: str, span: Span, file: Any) -> tuple[Any, ...]:
    return find_marks(docs, identity, span, file=file).boxes


def _content_hash(call: Call, identity: str) -> str:
    row = call.whole._indexer.ledger.documents.find(identity)
    return "" if row is None or row.content_hash is None else row.content_hash


@router.get("/pages/{document_id:path}")
async def page_image(
    call: Reading, document_id: str, page: Number = 1, width: Number = _WIDTH
) -> Response:
    """The picture of a page; the address has the content's hash, so that the browser may keep
    it.
    """
    await call.visible(document_id)

    def make() -> bytes:
        content = _content_hash(call, document_id)
        file = documents.file_of(call, document_id)
        # they are kept in memory
        return _image(call.docs, document_id, content, page, min(width, 2 * _WIDTH), file)

    headers = {**documents.FILE_HEADERS, "Cache-Control": "private, max-age=3600"}
    return Response(await call.run(make), 200, headers, "image/png")


def _page_sheets(
    call: Call, identity: str, numbers: Iterable[int], marks: Iterable[tuple[int, Span]]
) -> tuple[list[dict[str, Any]], set[int]]:
    """Pages of a PDF with the boxes of marks, and the numbers of the marks that have none."""
    content = _content_hash(call, identity)
    file = documents.file_of(call, identity)
    boxes: dict[int, list[tuple[int, Any]]] = {}
    missing = set()
    for number, (start, end) in marks:
        own: tuple[Any, ...] = ()
        with suppress(LazyRAGError):
            own = _boxes(call.docs, identity, content, (start, max(end, start + 1)), file)
        missing |= set() if own else {number}
        if start == end:
            own = tuple(dataclasses.replace(box, x1=box.x0, y1=box.y0) for box in own)
        for box in own:
            boxes.setdefault(box.page, []).append((number, box))
    last = call.docs.documents(ids=[identity])[0].pages or 0
    size = (0, 0)
    wanted = {*numbers, *(near for at in boxes for near in (at - 1, at, at + 1))} & {
        *range(1, last + 1)
    }
    sheets: list[dict[str, Any]] = []
    for at in sorted(wanted):
        if at in boxes or not size[0]:
            size = struct.unpack(
                ">2I", _image(call.docs, identity, content, at, _WIDTH, file)[16:24]
            )
        where = {"id": identity, "version": content[:12], "page": at, "of": last}
        sheets.append({**where, "width": size[0], "height": size[1], "boxes": boxes.get(at, ())})
    return sheets, missing


def _root_span(node: DocNode, span: Span) -> Span | None:
    """A stretch of a node's text as one of the document's; None where the text was rewritten."""
    if node.span is None or node.source is None or node.source.group != LAZY_ROOT_NAME:
        return None
    if node.text != node.source.text[slice(*node.span)]:
        return None
    return node.span[0] + span[0], node.span[0] + span[1]


def _locate(call: Call, sources: Sequence[Source]) -> None:
    """Find citations in the present text of their document."""
    known = {path: call.find(path) for path in {one.hit.source for one in sources}}
    for one in sources:
        one.place = one.hit.location
        one.is_gone = known[one.hit.source] is None
        with suppress(ProblemError, LazyRAGError):
            node = _scope(call).node(one.hit.id)
            if node.get_content() == one.hit.text:
                one.there = _root_span(node, one.span)
                one.place = (
                    describe_span(node.source.segment, one.there) if one.there else node.location
                )


def _pane(call: Call, sources: Sequence[Source], number: int) -> dict[str, Any]:
    """The source pane of a citation: its document with the marks of all citations of it."""
    one = next((one for one in sources if one.number == number), None)
    if one is None:
        raise ProblemError(404, f"The thread has no citation {number}.", f"It has {len(sources)}.")
    path = one.hit.source
    info = call.find(one.hit.source)
    pane = {
        "n": number,
        "count": len(sources),
        "path": path,
        "place": one.place,
        "info": info,
        "older": None,
    }
    if info is None or not info.version:
        return {**pane, "info": None, "as_text": False}
    pane["hash"] = _content_hash(call, path)
    places = {s.number: s.there for s in sources if s.hit.source == path and s.there}
    if number in places:
        return {**pane, **_marked_document(call, info, places, number)}
    # another version, or a text that a group rewrote
    later = [v for v in call.docs.versions.list(path) if v.created_at.timestamp() > one.asked]
    pane["older"] = (later[0].number - 1, later[0].created_at) if later else None
    whole = (0, len(one.hit.text))
    blocks = text_blocks(one.hit.text, whole, [(number, *one.span)], (), [whole])
    return {
        **pane,
        "sheets": [],
        "as_text": True,
        "blocks": blocks,
        "shown": whole,
        "size": whole[1],
    }


def _marked_document(
    call: Call, info: Any, places: Mapping[int, Span], number: int, offset: int = 0
) -> dict[str, Any]:
    """A document with marks: its pages with boxes, else its text, around the marks and the rest as
    context.

    Without marks from an offset on, which is a number of pages or characters. An empty place is one
    to scroll to.
    """
    pages = () if places else range(offset + 1, min(offset + _PAGES, info.pages or 0) + 1)
    with suppress(LazyRAGError):  # the file may have changed, or be gone
        sheets, missing = (
            _page_sheets(call, info.id, pages, places.items()) if info.pages else ([], set())
        )
        if sheets and number not in missing:
            return {"sheets": sheets, "as_text": False}
    text = call.docs.read(info.path)
    outline = find_outline(call.docs, info.path)
    focus = [_section(outline, span) or (0, len(text)) for span in places.values()] or [
        (0, len(text))
    ]
    shown = (0, len(text))
    if len(text) > _SHOWN and number in places:
        shown = max(0, places[number][0] - _AROUND), min(len(text), places[number][0] + _AROUND)
    elif len(text) > _SHOWN:
        end = (
            text.rfind("\n", offset, offset + _SHOWN) + 1
            if offset + _SHOWN < len(text)
            else len(text)
        )
        shown = min(offset, len(text)), end or offset + _SHOWN
    blocks = text_blocks(
        text, shown, [(one, *span) for one, span in places.items()], outline, focus
    )
    return {
        "sheets": [],
        "as_text": bool(info.pages),
        "blocks": blocks,
        "shown": shown,
        "size": len(text),
    }


def _section(outline: Sequence[Location], span: Span) -> Span | None:
    """The smallest heading's section or page around a span."""
    around = [
        one
        for one in outline
        if one.kind in ("heading", "page") and one.start <= span[0] and span[1] <= one.end
    ]
    best = min(around, key=lambda one: one.end - one.start, default=None)
    return None if best is None else (best.start, best.end)


# Search


@router.get("/search")
async def search_page(call: Reading, given: Given) -> Response:
    """Search with all knobs, the explanation, and why a passage is not there."""

    def find() -> dict[str, Any]:
        found = {
            **_bar(call, given),
            "page": "search",
            "hits": [],
            "stages": [],
            "why": None,
            "total": 0,
        }
        if not given.q.strip() or found["problem"]:
            return found
        try:
            found |= _search(_scope(call), given, found["filters"])
            if not found["hits"] and found["filters"] is not None:
                found["total"] = len(_retriever(_scope(call), given)(given.q, None, 100))
        except (LazyRAGError, ProblemError) as exc:
            found["problem"] = problem_of(exc)
        return found

    found = await call.run(find)
    return await page.render(
        call.request, "search.html", fragments=("results",), **found, api=_wanted_of(given)
    )


def _retriever(scope: Scope, given: Knobs) -> Any:
    found: Any = scope.retriever(SearchOptions(group=given.group, retriever=given.retriever))
    return RetrievalChain(found, MMR(), topk=given.topk) if given.rerank else found


def _search(scope: Scope, given: Knobs, filters: Filter | None) -> dict[str, Any]:
    trace = _retriever(scope, given).trace(given.q, filters, given.topk)
    explained = build_explanation(trace, given.q, filters)
    terms = query_terms(given.q)
    hits = [(hit, _snippet(hit.node.text if hit.node else "", terms)) for hit in explained]
    stages = explained.stages
    last = explained.stages[-1]
    found = {
        "hits": hits,
        "stages": stages,
        "total": last.given + last.dropped,
        "seconds": explained.seconds,
    }
    return {**found, "why": _why_not(scope, given, filters) if given.why_not.strip() else None}


def _snippet(text: str, terms: frozenset[str]) -> list[tuple[str, int]]:
    """Some lines of a text from before its first match, with the matches; cut between words."""
    text = re.sub(r"(^| )#{1,6} |\*\*|(\| ?-{3,} ?)+\|?", " ", " ".join(text.split())).strip()
    size = _SNIPPET // (2 if resolve_language("auto", text) == "zh" else 1)
    spans = term_spans(text, terms)
    near = [
        len({term for at, _, term in spans if start <= at < start + size * 0.7})
        for start, *_ in spans
    ]
    first = max(0, (spans[near.index(max(near))][0] if spans else 0) - size // 5)
    first = (
        max(0, text.find(" ", first) + 1) if first and " " in text[first : first + 30] else first
    )
    last = min(len(text), first + size)
    last = (
        text.rfind(" ", last - 20, last)
        if last < len(text) and " " in text[last - 20 : last]
        else last
    )
    parts = _marked(text, (first, last), [(1, start, end) for start, end, _ in spans])
    return [*([("… ", 0)] if first else []), *parts, *([(" …", 0)] if last < len(text) else [])]


def _why_not(scope: Scope, given: Knobs, filters: Filter | None) -> dict[str, Any]:
    """Why a passage is not among the results, and the one change that would bring it in."""
    nodes = _wanted(scope, given)
    if len(nodes) != 1:
        return {"nodes": nodes, "reason": None}
    uid = nodes[0].uid
    retriever = _retriever(scope, given)
    reason = retriever.why_not(uid, given.q, filters, given.topk)
    trace = retriever.trace(given.q, filters, given.topk)
    stages = build_explanation(trace, given.q, filters).stages
    tracks = Tracks(trace).stages
    ranks = {
        at: rank
        for at, one in enumerate(tracks, 1)
        for rank, node in enumerate(one.nodes, 1)
        if node.uid == uid
    }
    reasons = {one.stage: one for one in (reason, *reason.inputs)}
    changes: list[dict[str, Any]] = []
    if reason.cause != "found":
        deeper = [
            {"topk": one}
            for one in (reason.rank, 20, 50, 100)
            if one and (given.topk or 0) < one <= 100
        ]
        others = [
            {"retriever": one}
            for one in (["hybrid", "vector"] if scope.docs.reader.embed_keys else []) + ["bm25"]
        ]
        changes = [{"filter": []}] if given.filter else []
        changes += [{"group": nodes[0].group}] if nodes[0].group != given.group else []
        changes += [*deeper, *(one for one in others if one["retriever"] != given.retriever)]
    change = next((one for one in changes if _admits(scope, given, filters, uid, one)), None)
    return {"nodes": nodes, "node": nodes[0], "reason": reason, "reasons": reasons, "stages": stages,
            "ranks": ranks, "change": change}  # fmt: skip


def _admits(
    scope: Scope, given: Knobs, filters: Filter | None, uid: str, change: Mapping[str, Any]
) -> bool:
    other = given.model_copy(update=dict(change))
    with suppress(LazyRAGError):
        wanted = None if "filter" in change else filters
        return bool(
            _retriever(scope, other).why_not(uid, given.q, wanted, other.topk).cause == "found"
        )
    return False


def _wanted(scope: Scope, given: Knobs) -> list[DocNode]:
    """The nodes that a uid, a path, or a piece of text means; what is hidden is not there."""
    text = given.why_not.strip()
    for segment in scope.docs.reader.held(text)[:1]:
        return [scope.docs.reader.show(segment)]
    path, _, place = text.partition(", ")
    with suppress(LazyRAGError):
        for one, location in ((text, ""), (path, place)):
            nodes = scope.docs.get_nodes(given.group, document_ids=[root_uid(one)], limit=200)
            same = [node for node in nodes if node.location == location]
            if nodes:
                return (same or nodes)[:_CHOICES]
    found: dict[str, DocNode] = {}
    for line in (text, *sorted(text.splitlines(), key=len)[-1:]):
        with suppress(LazyRAGError):
            for match in grep(scope.docs, line.strip()[:500], limit=20, ignore_case=True):
                for node in scope.docs.get_nodes(given.group, document_ids=[root_uid(match.path)]):
                    if node.span and node.span[0] < match.span[1] and match.span[0] < node.span[1]:
                        found.setdefault(node.uid, node)
        if found:
            break
    return list(found.values())[:_CHOICES]


# Documents


class Part(BaseModel):
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
    call: Reading, document_id: str, given: Annotated[Part, Query()]
) -> Response:
    """A document: its source, nodes, versions or details."""

    def find() -> dict[str, Any]:
        info = call.find(document_id)
        tab = "source"
        if info is None:
            head, _, tab = document_id.rpartition("/")
            info = call.find(head) if tab in _TABS else None
        if info is None:
            raise ProblemError(
                404, f"There is no document {document_id!a:.200}.", "It may have been deleted."
            )
        versions = call.docs.versions.list(info.id) if info.version else []
        context = {
            "page": "files",
            "set": call.name,
            "info": info,
            "tab": tab,
            "groups": _own_groups(info),
        }
        context |= {"versions": versions, "offset": given.offset}
        if not info.version:
            return {**context, "tab": "details", "metadata": {}, "hash": ""}
        if tab == "nodes":
            return {**context, **_node_rows(call, info, given.group, given.offset)}
        if tab == "versions":
            return {
                **context,
                **_diff(call, info, context["versions"], given),
                "restore": given.restore,
            }
        if tab == "details":
            root = call.docs.get_nodes(document_ids=[root_uid(info.id)], limit=1)
            return {
                **context,
                "metadata": root[0].metadata if root else {},
                "hash": _content_hash(call, info.id),
            }
        return {**context, **_source(call, info, given)}

    return await page.render(
        call.request, "document.html", fragments=("document_source",), **await call.run(find)
    )


def _own_groups(info: Any) -> list[tuple[str, int]]:
    return [
        (one, own["nodes"])
        for one, own in info.groups.items()
        if own["nodes"] and one != LAZY_ROOT_NAME
    ]


def _source(call: Call, info: Any, part: Part) -> dict[str, Any]:
    """The text or pages of a document, with a node of it, or some words of that, marked."""
    node = None
    place = None
    offset = part.offset
    with suppress(ProblemError):
        node = found = _scope(call).node(part.uid)
        start, end = map(int, part.words.split("-")) if part.words else (0, len(found.text))
        is_inside = found.path == info.path and start <= end <= len(found.text)
        place = _root_span(found, (start, end)) if is_inside else None
    shown = _marked_document(call, info, {1: place} if place else {}, 1, offset)
    outline = find_outline(call.docs, info.path)
    pages = [one.start for one in outline if one.kind == "page"]
    toc = [
        (one.start, one.label, bisect.bisect(pages, one.start))
        for one in outline
        if one.kind == "heading"
    ]
    return {
        "node": node,
        **shown,
        "is_part": place is not None,
        "next": offset + _PAGES,
        "toc": toc[:_TOC],
    }


def _node_rows(call: Call, info: Any, group: str, offset: int) -> dict[str, Any]:
    names = [one for one, _ in _own_groups(info)]
    chosen = group if group in names else next(iter(names), LAZY_ROOT_NAME)
    return {
        "group": chosen,
        **page.page_of_nodes(call.docs, chosen, offset, _NODES, [root_uid(info.id)]),
    }


def _diff(call: Call, info: Any, versions: Sequence[Any], given: Part) -> dict[str, Any]:
    """The changed lines of two versions, with their words, and how many nodes changed."""
    numbers = [one.number for one in versions]
    last = given.after if given.after in numbers else info.version
    first = (
        given.before
        if given.before in numbers
        else max((one for one in numbers if one < last), default=0)
    )
    if not first or first == last:
        return {"first": first, "last": last, "changes": [], "rebuilt": 0, "nodes": 0}
    found = call.docs.versions.diff(info.id, first, last)
    own = {name: some for name, some in found.groups.items() if name != LAZY_ROOT_NAME}
    rebuilt = sum(one.before is None for some in own.values() for one in some)
    lines = [one for one in found.groups[LAZY_ROOT_NAME] if one.before is None or one.after is None]
    gone = [one.text for one in lines if one.after is None]
    come = [one.text for one in lines if one.before is None]
    changes = []
    left = _MOST_CELLS
    for old in gone:
        left -= len(old) * sum(map(len, come[:_NEAR]))  # the time that both comparisons take
        near = difflib.get_close_matches(old, come[:_NEAR], 1, 0.5) if left > 0 else []
        if near:
            come.remove(near[0])
        changes.append(_words(old, near[0] if near else ""))
    changes += [[("ins", one)] for one in come]
    return {"first": first, "last": last, "changes": changes, "rebuilt": rebuilt,
            "nodes": sum(count for _, count in _own_groups(info))}  # fmt: skip


_NEAR, _MOST_CELLS = 8, 10_000_000  # lines that may be the new form of one; pairs of characters
_WORD = re.compile(r"[^\W\u2e80-\u9fff]+|\s+|.", re.DOTALL)


def _words(old: str, new: str) -> list[tuple[str, str]]:
    """The difference of two lines: pairs of ``same``, ``del`` or ``ins``, and a text. Long equal
    parts are cut.
    """
    one = _WORD.findall(old)
    two = _WORD.findall(new)
    found: list[tuple[str, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind == "equal":
            same = "".join(one[a:b])
            found.append(("same", same if len(same) < 240 else f"{same[:110]} … {same[-110:]}"))
        else:
            found += [
                (tag, text)
                for tag, text in (("del", "".join(one[a:b])), ("ins", "".join(two[c:d])))
                if text
            ]
    return found


@router.post("/files/{document_id:path}/restore")
async def restore(call: Writing, document_id: str, form: Form) -> Response:
    """Make an earlier version live again, as a job."""
    number = str(form.get("version", ""))
    wanted = documents.Rollback(
        document=document_id, version=int(number) if number.isdecimal() else None
    )
    await documents.roll_back(call, wanted)
    notice = "info", page.translate(page.language_of(call.request), "doc.restored", version=number)
    return page.redirect(
        call.request, "s", call.name, "files", document_id, "versions", notice=notice
    )
