"""Threads of questions: their turns, whose answers have sources, and the book of questions."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lazyrag.data.result import Hit
from lazyrag.data.segment import Span
from lazyrag.errors import LazyRAGError
from lazyrag.generation.citations import (
    CLAIM_CHARACTERS,
    QuoteCheck,
    cited_span,
    citing_markers,
    claim_before,
    is_copied,
    is_statement,
    quote_checks,
)
from lazyrag.generation.claims import is_opinion
from lazyrag.generation.markers import Marker, read_marker, scan
from lazyrag.server.api import answers
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.set_request import SetRequest
from lazyrag.server.page.marked_text import Chip, Mark, answer_blocks, answer_lines, mark_span
from lazyrag.text.question_parts import find_list_words
from lazyrag.types import JsonObject

_UNCHECKED = "not_checkable"
_VERDICTS = ("supported", "contradicted", "not_found")
_MOST_RECENT = 20
_MOST_STORED = 100
_MOST_BEFORE = 4_000  # characters of an answer that are kept behind what is shown
_NO_ANSWER: JsonObject = {
    "state": "GONE",
    "text": None,
    "statements": [],
    "problems": [],
    "hits": [],
    "measures": {},
}


_MARKS = re.compile(r"^(?:```+|~~~+)[\w-]* |^[-*#>|\s]+|\*\*| (?:```+|~~~+)$")
"""Signs of Markdown around a quotation: the fence of code, bullets, bold."""


@dataclass(slots=True)
class ThreadSource:
    """A citation of a thread: words of a passage.

    Args:
        number: Of its chip, from 1.
        hit: The passage as it was read.
        span: The cited words in its text; empty if no sentence of it shares a content word with the
            statement.
        asked_at: When the question was asked.
        present_span: The words in the present text of the document; None if they are not there any
            more.
        place: The same for people.
        is_gone: Whether the principal does not see the document any more.
    """

    number: int
    hit: Hit
    span: Span
    asked_at: float
    present_span: Span | None = None
    place: str = ""
    is_gone: bool = False

    @property
    def quote(self) -> str:
        """The cited words; "" if there are none."""
        words = " ".join(self.hit.text[slice(*self.span)].split())
        return _MARKS.sub("", words)

    def cites_same_words(self, other: ThreadSource) -> bool:
        """Whether another citation is of the same words, as neighbouring passages overlap."""
        if self.hit.source != other.hit.source or abs(self.hit.chunk_id - other.hit.chunk_id) > 1:
            return False
        if self.hit.id == other.hit.id:
            return self.span == other.span
        return bool(other.quote) and self.quote == other.quote


class Doubt(NamedTuple):
    """A statement that is contradicted or not found.

    Args:
        verdict: Its verdict.
        text: It, as pairs of a text and 1 if it is doubtful.
        quote: What its source says, as such pairs; [] if it does not say anything.
        number: Of the citation of the quote.
        proposed: Number of the citation that supports the statement; 0 for none.
    """

    verdict: str
    text: list[tuple[str, int]]
    quote: list[tuple[str, int]]
    number: int
    proposed: int


@dataclass
class ThreadTurn:
    """A question of a thread with its answer, as far as it is written; see the template
    ``turn``.
    """

    id: str
    question: str
    options: JsonObject
    asked_at: float
    answer: JsonObject
    first: int
    last: int = 0
    parts: list[str | int] = field(default_factory=list)
    blocks: list[tuple[str, list[Any]]] = field(default_factory=list)
    sources: list[ThreadSource] = field(default_factory=list)
    statements: list[JsonObject] = field(default_factory=list)
    bare: int = 0
    doubts: list[Doubt] = field(default_factory=list)
    quotes: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    misquoted: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)

    @property
    def is_quoted(self) -> bool:
        """Whether the answer is quoted, without a model: then there is nothing to check."""
        return any(problem["detail"] == answers.NO_MODEL for problem in self.answer["problems"])

    @property
    def list_words(self) -> str:
        """The words whose complete matches the question asks for; "" if it asks for no list."""
        return find_list_words(self.question)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of the cited statements by their verdicts."""
        return {verdict: self.verdicts[verdict] for verdict in _VERDICTS}

    def add_statement(self, statement: JsonObject) -> None:
        """Add a cited statement with a verdict."""
        self.statements.append(statement)
        self.verdicts[statement["verdict"]] += 1

    def cite(self, hit: Hit, span: Span) -> int:
        """The number of a citation: equal ones have one."""
        new = ThreadSource(self.first + len(self.sources), hit, span, self.asked_at)
        for source in self.sources:
            if source.cites_same_words(new):
                return source.number
        self.sources.append(new)
        return new.number


_OPEN_MARKER = re.compile(r"(?<!\s)\s*([\[【［〔])([^\[\]【】［］〔〕\n]{0,80})([\]】］〕]|$)")


class LiveText:
    """An answer that is being written: events of its log become texts, numbers of citations, and
    statements of its turn.

    The same events give the same pieces, so that a stream goes on where it was cut.
    """

    def __init__(self, call: SetRequest, turn: ThreadTurn) -> None:
        self._call = call
        self.turn = turn
        self._text = ""
        self._done = 0
        self._waits = 0
        self._hits = dict[int, Hit]()

    def feed(self, name: str, data: JsonObject) -> list[str | int]:
        """What an event adds."""
        if name == "citation":
            with suppress(ProblemError, LazyRAGError):
                self._hits[data["index"]] = Hit.from_node(self._call.node(data["uid"]))
        elif name == "statement" and data["indices"] and data["verdict"] != _UNCHECKED:
            self.turn.add_statement(data)
            return []
        elif name != "delta":
            return []
        # A marker waits for its citation, which follows its delta or the next one, or never.
        pieces = list(self._pieces(self._waits if name == "delta" else 0))
        if name == "delta":
            cut = max(0, self._done - CLAIM_CHARACTERS)
            if cut > _MOST_BEFORE:  # the whole text would be copied for each of many words
                self._text = self._text[cut:]
                self._done -= cut
            self._waits = len(self._text)
            self._text += data["text"]
        return [piece for piece in (*pieces, *self._pieces(0)) if piece != ""]

    def _pieces(self, final: int) -> Iterator[str | int]:
        while match := _OPEN_MARKER.search(self._text, self._done):
            opener, body, closer = match.groups()
            marker = read_marker(0, opener, body) if closer else None
            numbers = marker.numbers if marker else ()
            hits = [self._hits[number] for number in numbers if number in self._hits]
            yield self._up_to(match.start())
            if not closer or (len(hits) < len(numbers) and match.end() > final):
                return
            before = self._text[max(0, match.start() - CLAIM_CHARACTERS) : match.start()]
            if marker is None or marker.fault or self._is_copied(marker, before):
                yield self._up_to(match.end())
                continue
            self._done = match.end()
            claim = claim_before(before)
            for hit in hits:
                yield self.turn.cite(hit, cited_span(hit.text, claim))
        yield self._up_to(len(self._text.rstrip()))

    def _is_copied(self, marker: Marker, before: str) -> bool:
        return is_copied(marker, before, "", [hit.text for hit in self._hits.values()])

    def _up_to(self, end: int) -> str:
        piece = self._text[self._done : end]
        self._done = max(self._done, end)
        return piece


def _hits(call: SetRequest, answer: JsonObject) -> list[Hit]:
    """What the model read; of an answer that is not complete, what it cites."""
    if answer["hits"]:
        return [Hit(**{**hit, "score": 0.0}) for hit in answer["hits"]]
    cited = {}
    for citation in answer["citations"]:
        with suppress(ProblemError, LazyRAGError):
            cited[citation["index"]] = Hit.from_node(call.node(citation["uid"]))
    numbers = range(1, max(cited, default=0) + 1)
    return [cited.get(number, Hit("", "", 0.0)) for number in numbers]


def read_answer(turn: ThreadTurn, hits: Sequence[Hit]) -> None:
    """Make blocks, sources and counts of a complete answer."""
    text = turn.answer["text"]
    if text is None:  # release 0.2 stored passages alone if there was no chat model
        for hit in hits:
            turn.cite(hit, cited_span(hit.text, turn.question))
        return
    scanned = scan(text)
    markers = citing_markers(text, scanned.markers, hits)
    checks = quote_checks(text, scanned, hits, markers)
    distinct = [*dict.fromkeys(checks)]
    quoting = [statement for statement in turn.answer["statements"] if statement["quote"]]
    quoting.sort(key=_start_of)
    chips = []
    for marker in markers:
        last = bisect_right(quoting, marker.start, key=_start_of)
        near = quoting[max(0, last - 2) : last]  # its statement may end before the marker
        chips.append(_cite_marker(turn, text, marker, distinct, near, hits))
    marks = [] if turn.is_quoted else _checked(turn, checks, hits)
    turn.blocks = answer_blocks(text, answer_lines(text), chips, marks)


def _checked(turn: ThreadTurn, checks: Sequence[QuoteCheck], hits: Sequence[Hit]) -> list[Mark]:
    """Count and list what was checked; the styles of the statements."""
    turn.quotes = len(checks)
    turn.misquoted = [check.quote for check in checks if not check.ok]
    marks = []
    for statement in turn.answer["statements"]:
        sentence = statement["text"]
        is_bare = not statement["indices"] and is_statement(sentence)
        if is_bare and hits and not is_opinion(sentence):
            turn.bare += 1
            marks.append(("bare", *statement["span"]))
        elif statement["verdict"] != _UNCHECKED:
            turn.add_statement(statement)
            marks += _marks(statement)
    doubtful = [statement for statement in turn.statements if statement["findings"]]
    turn.doubts = [_doubt(turn, statement, hits) for statement in doubtful]
    return marks


def _marks(statement: JsonObject) -> Iterator[Mark]:
    """A statement in the style of its verdict, and its doubtful words."""
    style = statement["verdict"]
    at, stop = statement["span"]
    for finding in sorted(statement["findings"], key=lambda finding: finding["span"]):
        start, end = finding["span"]
        if finding["kind"] != "words" and start >= at:
            yield style, at, start
            yield f"{style} words", start, end
            at = end
    yield style, at, stop


def _doubt(turn: ThreadTurn, statement: JsonObject, hits: Sequence[Hit]) -> Doubt:
    """What the sources say instead of a statement, and a source that supports it."""
    quote = []
    number = 0
    if statement["quote"]:
        hit = hits[statement["index"] - 1]
        number = turn.cite(hit, tuple(statement["quote_span"]))
        facing = [finding for finding in statement["findings"] if finding["source_words"]]
        marks = [(1, *finding["source_span"]) for finding in facing]
        quote = mark_span(hit.text, tuple(statement["quote_span"]), marks)
    proposed = 0
    if statement["proposed"] and statement["indices"]:
        hit = hits[statement["proposed"] - 1]
        proposed = turn.cite(hit, cited_span(hit.text, statement["text"]))
    text = statement["text"]
    words = [finding["words"] for finding in statement["findings"] if finding["kind"] != "words"]
    places = [(text.find(word), word) for word in words if word in text]
    marks = [(1, start, start + len(word)) for start, word in places]
    pieces = mark_span(text, (0, len(text)), marks)
    return Doubt(statement["verdict"], pieces, quote, number, proposed)


def _start_of(statement: JsonObject) -> int:
    start: int = statement["span"][0]
    return start


def _cite_marker(
    turn: ThreadTurn,
    text: str,
    marker: Marker,
    checks: Sequence[QuoteCheck],
    near: Sequence[JsonObject],
    hits: Sequence[Hit],
) -> Chip:
    """Cite what a marker names: its start and end, and the numbers of its citations; none if it is
    wrong.
    """
    claim = claim_before(text[max(0, marker.start - CLAIM_CHARACTERS) : marker.start])
    quotes = [check for check in checks if check.quote in claim]
    numbers = [number for number in marker.numbers if 1 <= number <= len(hits)]
    statements = [statement for statement in near if marker.start <= statement["span"][1] + 1]
    citations = []
    if marker.fault or not numbers:
        turn.unresolved.append(marker.text)
    if not marker.fault and all(check.ok for check in quotes):
        spans = {statement["index"]: tuple(statement["quote_span"]) for statement in statements}
        spans |= {check.found: check.span for check in quotes}
        for number in numbers:
            hit = hits[number - 1]
            citations.append(turn.cite(hit, spans.get(number) or cited_span(hit.text, claim)))
    return marker.start, marker.end, citations


# The book of questions: threads by the id of their first answer


def note_question(call: SetRequest, body: JsonObject) -> None:
    """Record a question; the oldest ones are forgotten."""
    call.add_record("question", body)
    for old in _questions(call)[:-_MOST_STORED]:
        call.book.take(old["id"])


def _questions(call: SetRequest) -> list[JsonObject]:
    """Questions of this principal, oldest first."""
    return call.records("question", is_own=True)


def recent_questions(call: SetRequest) -> list[JsonObject]:
    """Questions that began a thread, the newest first."""
    by_text = {
        record["question"]: record
        for record in _questions(call)
        if record["thread"] == record["answer"]
    }
    return list(by_text.values())[::-1][:_MOST_RECENT]


def read_thread(call: SetRequest, thread: str) -> list[ThreadTurn]:
    """The turns of a thread; those whose answer is not stored any more have the state GONE.

    Raises:
        ProblemError: 404 if the principal has no such thread.
    """
    turns = []
    first = 1
    for record in _questions(call):
        if record["thread"] == thread:
            turn = _read_turn(call, record, first)
            first += len(turn.sources)
            turns.append(turn)
    if not turns:
        raise ProblemError(
            404,
            f"There is no question {thread!a:.80}.",
            "It was asked with another token, or is old.",
        )
    return turns


def _read_turn(call: SetRequest, record: JsonObject, first: int) -> ThreadTurn:
    turn = ThreadTurn(
        record["answer"],
        record["question"],
        record["options"],
        record["created"],
        dict(_NO_ANSWER),
        first,
    )
    with suppress(ProblemError):
        call.question_of(turn.id)
        events = call.book.events(turn.id)
        turn.answer = answers.answer_of(turn.id, turn.question, events)
        turn.last = len(events)
        if turn.answer["state"] == "WORKING":
            live = LiveText(call, turn)
            for _, name, data in events:
                turn.parts += live.feed(name, json.loads(data))
        else:
            read_answer(turn, _hits(call, turn.answer))
    return turn
