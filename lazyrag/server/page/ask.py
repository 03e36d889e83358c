"""The page Ask: questions, and threads of answers with their sources."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Form as FormFields
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import Response

from lazyrag.generation.markers import replace_markers
from lazyrag.server.api import answers
from lazyrag.server.core.set_request import Reading
from lazyrag.server.page import page
from lazyrag.server.page.operate import first_run, suggestions
from lazyrag.server.page.page import Facts, Form, text_of
from lazyrag.server.page.query_bar import Knobs, KnobsInQuery, query_bar
from lazyrag.server.page.sources import locate_sources, source_pane
from lazyrag.server.page.turns import (
    LiveText,
    ThreadTurn,
    note_question,
    read_thread,
    recent_questions,
)

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

WAIT_S = 60.0
"""How long a browser without scripts waits for an answer."""
_TURNS_IN_HISTORY = 10
_MOST_CHARACTERS = 20_000  # of a message of the history


@router.get("/ask")
async def ask_page(call: Reading, knobs: KnobsInQuery) -> Response:
    """The query bar, suggestions, recent questions; on an empty set the way to the first files."""

    def find() -> Facts:
        return {
            **query_bar(call, knobs),
            "recent": recent_questions(call),
            "suggested": suggestions(call.docs, page.language_of(call.request)),
        }

    return await first_run(call) or await page.render_set(call, "ask.html", **await call.run(find))


@router.post("/ask")
async def ask(call: Reading, form: Form, knobs: Annotated[Knobs, FormFields()]) -> Response:
    """Ask a question, or a follow-up of a thread. Without scripts the answer's page waits until it
    is written.
    """
    thread = text_of(form, "thread")
    if not knobs.q.strip():
        return page.to_set(call, "ask")
    bar = await call.run(query_bar, call, knobs)
    turns = await call.run(read_thread, call, thread) if thread else []
    history = []
    for turn in turns[-_TURNS_IN_HISTORY:]:
        if text := turn.answer["text"]:
            for role, content in (
                ("user", turn.question),
                ("assistant", replace_markers(text, "")),
            ):
                history.append({"role": role, "content": content[:_MOST_CHARACTERS]})
    body = answers.AnswerBody.model_validate(
        {**knobs.options(), "question": knobs.q, "history": history, "stream": True}
    )
    if bar["problem"]:
        raise bar["problem"]
    response = await answers.ask(body, call)
    answer = response.headers["location"].rpartition("/")[2]
    options = knobs.query(q="", explain=False, why_not="")
    note = {"answer": answer, "thread": thread or answer, "question": knobs.q, "options": options}
    await call.run(note_question, call, note)
    redirect = page.to_set(call, "ask", thread or answer, wait=form.get("wait"))
    if thread:
        redirect.headers["location"] += "#turn"
    return redirect


@router.get("/ask/{thread}")
async def answer_page(
    call: Reading,
    thread: str,
    cite: Annotated[int, Query(ge=0)] = 0,
    wait: bool = False,
) -> Response:
    """A thread of answers with the sources; with ``cite`` the cited words in the pane."""
    until = time.monotonic() + WAIT_S

    def find() -> Facts:
        turns = read_thread(call, thread)
        knobs = Knobs.model_validate(turns[-1].options)
        sources = []
        for turn in turns:
            sources += turn.sources
        locate_sources(call, sources)
        return {
            **query_bar(call, knobs),
            "thread": turns,
            "turn": turns[-1],
            "sources": sources,
            "pane": source_pane(call, sources, cite) if cite else None,
        }

    facts = await call.run(find)
    turn: ThreadTurn = facts["turn"]
    while wait and turn.answer["state"] == "WORKING" and time.monotonic() < until:
        async for _ in answers.follow(call, turn.id, turn.last, call.request):
            pass
        facts = await call.run(find)
        turn = facts["turn"]
    response = await page.render_set(call, "answer.html", fragments=("turn", "source"), **facts)
    if wait and turn.answer["state"] == "WORKING":
        response.headers["Refresh"] = "5"
    return response


@router.get("/ask/{thread}/events")
async def answer_events(call: Reading, thread: str, after: int = 0) -> Response:
    """The last answer of a thread while it is written: texts and numbers of citations, and the line
    that counts verdicts, under the numbers of its log.
    """
    turn = (await call.run(read_thread, call, thread))[-1]
    last_id = call.request.headers.get("last-event-id", "")[:18]
    seen = answers.event_number(last_id, after)
    live = LiveText(call, ThreadTurn(turn.id, turn.question, {}, turn.asked_at, {}, turn.first))

    language = page.language_of(call.request)

    async def stream() -> AsyncIterator[bytes]:
        async for number, name, data in answers.follow(call, turn.id, 0):
            if not number:
                yield KEEPALIVE_COMMENT
                continue
            pieces = await call.run(live.feed, name, json.loads(data))
            if number <= seen:
                continue
            event = "done" if name == "done" else "text"
            value: Any = pieces
            if name == "statement":
                event = "checked"
                value = page.translate(language, "ask.checked", **live.turn.counts)
            text = json.dumps(value, ensure_ascii=False)
            yield format_sse_event(data_str=text, event=event, id=str(number))

    return answers.event_stream(stream())


@router.post("/ask/{thread}/stop")
async def stop(call: Reading, thread: str, _: Form) -> Response:
    """Stop the last answer of a thread."""
    turn = (await call.run(read_thread, call, thread))[-1]
    await call.run(call.book.stop, turn.id)
    async for _event in answers.follow(call, turn.id, turn.last):
        pass  # until it has ended
    return page.to_set(call, "ask", thread)


@router.post("/ask/{thread}/feedback")
async def judge(call: Reading, thread: str, form: Form) -> Response:
    """Judge an answer: it becomes a candidate for a golden question."""
    body = answers.FeedbackBody(good=form.get("good") == "1", answer=text_of(form, "answer"))
    await answers.give_feedback(body, call)
    return page.to_set(call, "ask", thread, judged="1" if body.good else "0")
