"""Routes that ask and judge: answers with their events, feedback, golden questions, evaluations."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from lazyrag.data.encoding import to_dict
from lazyrag.data.result import Citation, Hit, Statement
from lazyrag.errors import GenerationError
from lazyrag.evaluation.golden import (
    Golden,
    GoldenQuestion,
    GoldenReport,
    LocationLabel,
    golden_measure,
    judge,
)
from lazyrag.evaluation.metrics import Comparison, compare, source_span
from lazyrag.pipeline import RAGPipeline
from lazyrag.retrieval.base import BaseRetriever
from lazyrag.server.api import search
from lazyrag.server.api.search import Filters, Limit, Question
from lazyrag.server.core.body import Body, Name, SearchOptions, make_model
from lazyrag.server.core.guard import ADD_EVENT
from lazyrag.server.core.notebook import Event, owner_of
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.service import location_of, needs
from lazyrag.server.core.set_request import Searching, SetRequest, as_json
from lazyrag.types import JsonObject

router = APIRouter(prefix="/api/v1/sets/{set}")
log = logging.getLogger("lazyrag.server")

GRACE_S = 10.0
"""How long an answer goes on that nobody reads: a page that is loaded again comes back to it."""
STOP_S = 0.2
"""How long an answer goes on after it was stopped."""
COMMENT_S = 15.0
POLL_S = 0.05
SILENCE_S = 300.0
MAX_GOLDEN = 500
"""Questions of one evaluation."""
MEASURES = ("span_recall@10", "span_MRR@10", "nDCG@10", "recall@10", "answer@10")
NO_MODEL = "Quoted without a chat model. Set models.chat to have answers written."
_ENDED = "SELECT 1 FROM event WHERE answer = ? AND number <= ? AND name = 'done'"

# Models


class Turn(Body):
    """A message of the conversation before the question."""

    role: Literal["user", "assistant"]
    content: Annotated[str, Field(max_length=20_000)]


class AnswerBody(SearchOptions):
    """A question. With `stream` the answer comes as server-sent events."""

    question: Question
    history: list[Turn] = Field(default_factory=list, max_length=100)
    filters: Filters = None
    topk: Annotated[int, Field(ge=1, le=100)] = 6
    stream: bool = False


class ProblemNote(BaseModel):
    """What is wrong with an answer, or why there is none."""

    detail: str
    remedy: str = ""
    status: int | None = None


_State: Any = Literal["WORKING", "SUCCESS", "FAILED", "CANCELED"]
_Answer = make_model(
    "Answer",
    __doc__=(
        "An answer with its citations, and the passages that the model read. Without a model the"
        " answer quotes them."
    ),
    id=str,
    state=_State,
    question=str,
    text=str | None,
    citations=search.list_of(search.model_of(Citation)),
    statements=search.list_of(search.model_of(Statement)),
    problems=list[ProblemNote],
    weak=(
        bool,
        Field(default=False, description="The documents do not seem to answer the question."),
    ),
    hits=search.list_of(search.model_of(Hit, score=float | None, metadata=JsonObject)),
    measures=(
        JsonObject,
        Field(description="`query` (what was searched), `seconds`, `usage` (tokens)."),
    ),
)


class Stored(BaseModel):
    """What all records have: an id, the time in seconds since 1970, and who made it."""

    id: str
    created: float
    principal: str


class FeedbackBody(Body):
    """A judgement of an answer that can still be read, or of a hit, or of both: a source of the
    answer.
    """

    good: bool
    answer: Name | None = None
    hit: Name | None = None
    query: Annotated[
        Question, Field(description="What was searched, for a hit without an answer.")
    ] = ""
    note: Annotated[str, Field(max_length=10_000)] = ""


class SpanLabel(Body):
    """Characters of a document's text; without numbers the whole document."""

    path: Annotated[str, Field(min_length=1, max_length=4_096)]
    start: Annotated[int | None, Field(ge=0)] = None
    end: Annotated[int | None, Field(ge=1)] = None


Labels = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=4_096)]],
    Field(default_factory=list, max_length=100),
]


class GoldenBody(Body):
    """A question with what must be found, as in a file of golden questions; or a good judgement
    that it is made of.
    """

    question: Question = ""
    ids: Labels
    spans: list[SpanLabel] = Field(default_factory=list, max_length=100)
    texts: Labels
    references: Labels
    feedback: Name | None = None


class EvaluationBody(Body):
    """Two ways to search."""

    a: SearchOptions
    b: SearchOptions


class Feedback(FeedbackBody, Stored):
    """A stored judgement, with the nodes that it is about, and their documents."""

    uids: list[str]
    documents: list[str]


class GoldenModel(GoldenBody, Stored):
    """A stored golden question."""


_Measure = make_model(
    "Measure",
    __base__=search.model_of(Comparison),
    measure=str,
    questions=int,
    a=float,
    b=float,
)
_Evaluation = make_model(
    "Evaluation",
    __doc__=(
        "A stored evaluation. Differences are b less a; p is that of the paired randomisation test."
    ),
    __base__=(EvaluationBody, Stored),
    questions=int,
    seconds=float,
    measures=search.list_of(_Measure),
)

# Answers

_EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
_EVENTS: dict[int | str, JsonObject] = {200: {"content": {"text/event-stream": {"schema": _EVENT}}}}


@router.post("/answers", tags=["answers"], response_model=_Answer, responses=_EVENTS)
async def ask(body: AnswerBody, call: Searching) -> Response:
    """Answer a question from the documents, with citations.

    With `stream` the events are `delta` (text), `citation`, `statement` (a sentence with its
    verdict), `problem` and `done` (the complete answer). The header `Location` names the answer,
    and `GET .../events` goes on with a stream that was cut. Without `stream`, the problem of a
    model that failed has what came before as `answer`.
    """
    call.book.require_room(call.principal)
    answer = uuid.uuid4().hex
    now = time.time()
    pieces = _pieces(body, call, await call.run(call.retriever, body))
    row = answer, owner_of(call.principal, call.name), body.question, now, now
    await call.run(call.book.write, "INSERT INTO answer VALUES (?, ?, ?, ?, ?)", row)
    task = asyncio.create_task(
        _supervise(call, answer, _write(call, answer, body.question, pieces))
    )
    call.book.join(task, call.principal)
    headers = location_of(call.request, "one_answer", set=call.name, answer=answer)
    if body.stream:
        return _stream_events(follow(call, answer, 0), headers)
    events = [event async for event in follow(call, answer, 0, call.request) if event[0]]
    result = answer_of(answer, body.question, events)
    if result["state"] == "FAILED":
        raise ProblemError(**result["problems"][-1], headers=headers, answer=result)
    return as_json(result, 200, headers)


@router.get("/answers/{answer}", tags=["answers"], response_model=_Answer)
async def one_answer(answer: str, call: Searching) -> Response:
    """Get an answer, as far as it is written. Only who asked can read it, and only for some
    minutes.
    """
    return await call.respond(
        lambda: answer_of(answer, call.question_of(answer), call.book.events(answer))
    )


@router.get(
    "/answers/{answer}/events",
    tags=["answers"],
    response_class=StreamingResponse,
    responses={**_EVENTS, 204: {"description": "There is no event after it."}},
)
async def answer_events(
    answer: str,
    call: Searching,
    last_event_id: Annotated[str, Header(max_length=20)] = "0",
) -> Response:
    """Get the events of an answer after the one that `Last-Event-ID` names, and go on while it is
    written.
    """
    await call.run(call.question_of, answer)
    after = min(event_number(last_event_id, 0), 2**62)
    if await call.run(call.book.rows, _ENDED, answer, after):
        return Response(status_code=204)  # a browser that was cut off at the end connects no more
    return _stream_events(follow(call, answer, after), {})


def event_number(text: str, default: int) -> int:
    """The number in a header ``Last-Event-ID``."""
    return int(text) if text.isascii() and text.isdecimal() else default


async def _pieces(
    body: AnswerBody, call: SetRequest, retriever: BaseRetriever[Any]
) -> AsyncIterator[tuple[str, JsonObject]]:
    """The events of an answer; the last one, ``hits``, has what the model read."""
    filters = search.filter_of(body.filters)
    pipeline = RAGPipeline(retriever=retriever, generator=call.service.chat)
    history = [turn.model_dump() for turn in body.history]
    # `astream` warns of problems, which are events here
    run = pipeline._run(body.question, history)
    async with aclosing(run.deltas(body.topk, None, filters)) as deltas:
        async for delta in deltas:
            if delta.text:
                yield "delta", {"text": delta.text}
            for citation in delta.citations:
                yield "citation", to_dict(citation)
            for statement in delta.statements:
                yield "statement", to_dict(statement)
            if delta.answer is not None:
                for problem in delta.answer.problems:
                    is_upstream = run.failure is not None and problem in run.problems
                    yield (
                        "problem",
                        {"detail": _not_condensed(run.failure) if is_upstream else problem},
                    )
                if call.service.chat is None:
                    yield "problem", {"detail": NO_MODEL}
                usage = (delta.answer.generation.metadata or {}).get("usage")
                measures = {
                    "query": run.search_query,
                    "seconds": sum(run.seconds.values()),
                    "usage": usage,
                }
                yield (
                    "hits",
                    {
                        "hits": to_dict(list(delta.answer.context.sources)),
                        "statements": to_dict(delta.answer.statements),
                        "weak": delta.answer.weak,
                        "measures": measures,
                    },
                )


def _not_condensed(failure: GenerationError | None) -> str:
    """The problem that a question was searched as it is, without the text of the model's
    endpoint.
    """
    problem = problem_of(failure or GenerationError(""))
    return f"The question was searched as it is. {problem.detail} {problem.remedy}"


async def _write(
    call: SetRequest,
    answer: str,
    question: str,
    pieces: AsyncIterator[tuple[str, JsonObject]],
) -> None:
    """Store the events of an answer. The last one is ``done``, also after an error or a
    cancellation.
    """
    events: list[Event] = []
    outcome: JsonObject = {"hits": [], "measures": {}}
    state = "SUCCESS"
    stored = 0
    lock = asyncio.Lock()

    def add(name: str, **data: Any) -> None:
        events.append((len(events) + 1, name, json.dumps(data, ensure_ascii=False)))

    async def flush() -> None:
        nonlocal stored
        async with lock:  # readers go on behind the last event: none may come before another
            rows = [(answer, *event) for event in events[stored:]]
            if rows:
                await call.run(call.book.write, ADD_EVENT, *rows)
            stored += len(rows)

    flushing = asyncio.create_task(_repeat(flush))  # also while the model pauses
    try:
        async for name, data in pieces:
            if name == "hits":
                outcome = data
                continue
            add(name, **data)
    except asyncio.CancelledError:
        state = "CANCELED"
        add(
            "problem",
            detail="The answer was stopped, as nobody read it any more.",
            remedy="Ask again.",
        )
    except Exception as exc:
        state = "FAILED"
        problem = problem_of(exc)
        if problem.status >= 500:
            log.exception("answer %s failed", answer)
        add("problem", detail=problem.detail, remedy=problem.remedy, status=problem.status)
    flushing.cancel()
    add("done", **{**answer_of(answer, question, events), "state": state, **outcome})
    await flush()


async def _repeat(call: Callable[[], Awaitable[None]]) -> None:
    while True:
        await call()
        await asyncio.sleep(POLL_S)


async def _supervise(call: SetRequest, answer: str, writing: Any) -> None:
    """Write an answer, and cancel that when nobody reads it any more."""
    task = asyncio.ensure_future(writing)
    query = "SELECT 1 FROM answer WHERE id = ? AND followed > ?"
    while not (await asyncio.wait([task], timeout=STOP_S))[0]:
        if not await call.run(call.book.rows, query, answer, time.time() - GRACE_S):
            task.cancel()
    await task


def answer_of(answer: str, question: str, events: Sequence[Event]) -> JsonObject:
    """An answer as far as its events tell."""
    read = [(name, json.loads(data)) for _, name, data in events]
    if read and read[-1][0] == "done":
        return {"weak": False, **read[-1][1]}  # release 0.2 stored no such field
    data_of: dict[str, list[Any]] = {"delta": [], "citation": [], "statement": [], "problem": []}
    for name, data in read:
        data_of.setdefault(name, []).append(data)
    deltas = data_of["delta"]
    return {
        "id": answer,
        "state": "WORKING",
        "question": question,
        "text": "".join(data["text"] for data in deltas) if deltas else None,
        "citations": data_of["citation"],
        "statements": data_of["statement"],
        "problems": data_of["problem"],
        "weak": False,
        "hits": [],
        "measures": {},
    }


async def follow(
    call: SetRequest, answer: str, after: int, request: Request | None = None
) -> AsyncIterator[Event]:
    """The events of an answer after a number, until the last one. A number of 0 means that none
    came for a while.

    They end where none came for long: the process that wrote them was killed.
    """
    noted = 0.0
    last = time.monotonic()
    quiet = last
    while (now := time.monotonic()) - last < SILENCE_S and not (
        request and await request.is_disconnected()
    ):
        if now - noted > GRACE_S / 4:
            # it may have been stopped
            query = "UPDATE answer SET followed = ? WHERE id = ? AND followed >= 0"
            await call.run(call.book.write, query, (time.time(), answer))
            noted = now
        for event in await call.run(call.book.events, answer, after):
            yield event
            after = event[0]
            quiet = now
            last = now
            if event[1] == "done":
                return
        if now - quiet > COMMENT_S:
            yield 0, "", ""
            quiet = now
        await asyncio.sleep(POLL_S)


def _stream_events(events: AsyncIterator[Event], headers: Mapping[str, str]) -> Response:
    async def body() -> AsyncIterator[bytes]:
        async for number, name, data in events:
            yield (
                format_sse_event(data_str=data, event=name, id=str(number))
                if number
                else KEEPALIVE_COMMENT
            )

    return event_stream(body(), headers)


def event_stream(body: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> Response:
    """A stream of server-sent events, which no proxy holds back."""
    more = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})}
    return StreamingResponse(body, media_type="text/event-stream", headers=more)


# Feedback, golden questions, evaluations

_LABELS = ("ids", "spans", "texts", "references")
_as_writer: JsonObject = {"tags": ["evaluation"], "dependencies": [needs("write")]}


_WORDS = {
    "feedback": ("judgements", "a judgement"),
    "golden": ("golden questions", "a golden question"),
    "evaluations": ("evaluations", "an evaluation"),
}


def _list(kind: str, model: Any) -> None:
    """Add the routes that read the records of a kind."""

    async def list_records(
        call: Searching,
        after: Annotated[str, Query(max_length=64)] = "",
        limit: Limit = 100,
    ) -> Response:
        """List records, oldest first; `after` is the last id of the page before."""
        return await call.respond(call.records, kind, after, limit)

    async def one_record(number: str, call: Searching) -> Response:
        """Get a record."""
        return await call.respond(call.record, kind, number)

    plural, singular = _WORDS[kind]
    listed = f"List {plural}, oldest first; `after` is the last id of the page before."
    router.get(
        f"/{kind}", tags=["evaluation"], response_model=search.list_of(model), description=listed
    )(list_records)
    get = router.get(
        f"/{kind}/{{number}}",
        tags=["evaluation"],
        response_model=model,
        description=f"Get {singular}.",
    )
    get(one_record)


for _kind, _model in {
    "feedback": Feedback,
    "golden": GoldenModel,
    "evaluations": _Evaluation,
}.items():
    _list(_kind, _model)


@router.post("/feedback", tags=["evaluation"], status_code=201, response_model=Feedback)
async def give_feedback(body: FeedbackBody, call: Searching) -> Response:
    """Judge an answer, or a hit."""

    def store() -> JsonObject:
        query = body.query
        about = {} if body.hit is None else {body.hit: call.node(body.hit).path}
        if body.answer is not None:
            query = call.question_of(body.answer)
            cited = answer_of(body.answer, query, call.book.events(body.answer))["citations"]
            about = about or {citation["uid"]: citation["source"] for citation in cited}
        elif body.hit is None:
            raise ProblemError(
                422,
                "The judgement names neither an answer nor a hit.",
                "Give one of them, or both.",
            )
        more = {
            "query": query,
            "uids": list(about),
            "documents": list(dict.fromkeys(about.values())),
        }
        return call.add_record("feedback", {**body.model_dump(), **more})

    return await call.respond(store, status=201)


@router.post("/golden", status_code=201, response_model=GoldenModel, **_as_writer)
async def add_golden(body: GoldenBody, call: Searching) -> Response:
    """Add a golden question, or make one of a good judgement, whose sources must be found."""
    return await call.respond(store_golden, call, body, status=201, slow=True)


def store_golden(call: SetRequest, body: GoldenBody, replaces: str = "") -> JsonObject:
    """Store a golden question whose labels are in the documents, perhaps in place of the one with
    an id.

    Raises:
        ProblemError: 409, 422 if it cannot be stored; then nothing is replaced.
    """
    fields = body.model_dump()
    if body.feedback is not None:
        judged = call.record("feedback", body.feedback)
        if not judged["good"]:
            raise ProblemError(
                409, "The judgement is bad, so it names nothing to find.", "Give labels yourself."
            )
        fields["question"] = body.question or judged["query"]
        fields["spans"] += [asdict(source_span(call.node(uid))) for uid in judged["uids"]]
    if not fields["question"].strip() or not any(fields[name] for name in _LABELS):
        raise ProblemError(
            422, "A golden question needs a question and a label.", "Add what must be found."
        )
    questions = {
        record["question"] for record in call.records("golden") if record["id"] != replaces
    }
    if fields["question"] in questions:
        raise ProblemError(
            409, "The set has this golden question already.", "Delete it to replace it."
        )
    # its labels are in the documents
    judge(golden_of([fields]), call.docs, call.retriever(SearchOptions()))
    call.book.take(replaces)
    return call.add_record("golden", fields)


@router.delete("/golden/{number}", status_code=204, **_as_writer)
async def delete_golden(number: str, call: Searching) -> Response:
    """Delete a golden question."""
    await call.run(call.record, "golden", number)
    await call.run(call.book.take, number)
    return Response(status_code=204)


@router.post("/evaluations", status_code=201, response_model=_Evaluation, **_as_writer)
async def evaluate(body: EvaluationBody, call: Searching) -> Response:
    """Compare two ways to search by the golden questions: means, differences, p-values."""

    def run() -> JsonObject:
        began = time.perf_counter()
        stored, _, (report_a, report_b) = judged_golden(call, (body.a, body.b))
        measures = []
        for a, b in zip(report_a.verdicts, report_b.verdicts, strict=True):
            comparison = compare(
                _values_by_question(report_a, a.measure), _values_by_question(report_b, a.measure)
            )
            means = {"measure": a.measure, "questions": a.questions, "a": a.value, "b": b.value}
            measures.append({**means, **asdict(comparison)})
        seconds = round(time.perf_counter() - began, 3)
        result = {"questions": len(stored), "seconds": seconds, "measures": measures}
        return call.add_record("evaluations", {**body.model_dump(), **result})

    return await call.respond(run, status=201, slow=True)


def _values_by_question(report: GoldenReport, measure: str) -> dict[str, float]:
    """The values of a measure, of the questions that have one."""
    return {
        question.question: question.values[measure]
        for question in report.questions
        if question.values.get(measure) is not None
    }


def judged_golden(
    call: SetRequest, options: Sequence[SearchOptions]
) -> tuple[list[JsonObject], Golden, list[GoldenReport]]:
    """The golden questions of a set, and what some ways to search find for them.

    Raises:
        ProblemError: 409 if there are none, or too many.
    """
    stored = call.records("golden")
    if not 1 <= len(stored) <= MAX_GOLDEN:
        detail = f"There are {len(stored)} golden questions; an evaluation takes 1 to {MAX_GOLDEN}."
        raise ProblemError(409, detail, "Add or delete some.")
    golden = golden_of(stored)
    return (
        stored,
        golden,
        [judge(golden, call.docs, call.retriever(search_options)) for search_options in options],
    )


def golden_of(stored: Sequence[JsonObject]) -> Golden:
    """Stored golden questions as a file of them; the line of a question is its place in the
    list.
    """
    questions = []
    for line, record in enumerate(stored, start=1):
        labels = [
            LocationLabel(span["path"], "", span["start"], span["end"], line)
            for span in record["spans"]
        ]
        labels += [LocationLabel("", text, None, None, line) for text in record["texts"]]
        more = tuple(record["ids"]), tuple(labels), tuple(record["references"])
        questions.append(GoldenQuestion(record["question"], line, *more))
    measures = [
        measure
        for measure in map(golden_measure, MEASURES)
        if any(map(measure.applies_to, questions))
    ]
    return Golden(Path("golden questions"), tuple(questions), dict.fromkeys(measures, 1.0))
