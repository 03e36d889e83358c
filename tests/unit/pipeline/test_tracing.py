"""Spans of OpenTelemetry, taken by the real SDK: names, kinds, attributes, parents, errors, and
what is left out.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import textwrap

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from lazyrag import GenerationResult, Hit
from lazyrag.models import ChatOptions, Message
from lazyrag.models import concurrency as background
from lazyrag.pipeline.tracing import (
    chat_span,
    context_span,
    pipeline_span,
    rerank_span,
    retrieval_span,
    span,
)

PRIVATE = "my diagnosis"


@pytest.fixture
def finished(spans):
    """A function that gives what has ended so far, by name."""
    return lambda: {one.name: one for one in spans.get_finished_spans()}


def run_all(capture_content: bool) -> None:
    """Every kind of span once, with texts that only content may show."""
    hits = [Hit("7", PRIVATE, 0.5), Hit("8", PRIVATE, math.nan)]
    told = {
        "model": "qwen3-8b",
        "usage": {"prompt_tokens": 90, "completion_tokens": 12},
        "finish_reasons": ["stop", None],
        "finish_reason": "stop",
    }
    with pipeline_span("tea", PRIVATE, capture_content=capture_content) as asked:
        with retrieval_span("handbook", PRIVATE, 6, capture_content=capture_content) as found:
            found.hits(hits)
        with rerank_span("bge", PRIVATE, 20, 6, capture_content=capture_content) as reranked:
            reranked.hits(hits, "lazyrag.rerank.documents")
        with context_span(2000, capture_content=capture_content) as building:
            building.set({"lazyrag.context.tokens": 800, "lazyrag.context.sources": 2})
        options = ChatOptions(n=2, temperature=0.2, max_tokens=99, seed=7)
        messages = [Message("system", PRIVATE), Message("user", PRIVATE)]
        with chat_span(
            "qwen3",
            provider="openai",
            options=options,
            messages=messages,
            capture_content=capture_content,
        ) as said:
            said.generated(GenerationResult(PRIVATE, confidence=0.75, metadata=told))
        asked.answered(PRIVATE)


def test_spans_have_the_conventions_names_and_kinds(finished):
    """Each step is named after its operation and what it asks; what leaves the process is a client
    span.
    """
    run_all(False)
    kinds = {name: one.kind for name, one in finished().items()}
    assert kinds == {
        "retrieval handbook": SpanKind.CLIENT,
        "rerank bge": SpanKind.INTERNAL,
        "build_context": SpanKind.INTERNAL,
        "chat qwen3": SpanKind.CLIENT,
        "invoke_workflow tea": SpanKind.INTERNAL,
    }


def test_steps_are_children_of_the_question(finished):
    """All steps of one question are one trace, beneath its span."""
    run_all(False)
    spans = finished()
    asked = spans.pop("invoke_workflow tea")
    assert asked.parent is None
    assert len(spans) == 4
    assert all(one.parent.span_id == asked.context.span_id for one in spans.values())


def test_retrieval_says_which_source_and_what_was_found(finished):
    """A retrieval span has operation, data source, how many were asked for, and ids with scores; no
    score for nan.
    """
    run_all(False)
    told = dict(finished()["retrieval handbook"].attributes)
    assert json.loads(told.pop("gen_ai.retrieval.documents")) == [
        {"id": "7", "score": 0.5},
        {"id": "8"},
    ]
    assert told == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "handbook",
        "gen_ai.retrieval.top_k": 6,
    }


def test_chat_says_model_options_and_tokens(finished):
    """A chat span has the request's and the response's model, the options that were set, tokens and
    reasons.
    """
    run_all(False)
    assert dict(finished()["chat qwen3"].attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "qwen3",
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.seed": 7,
        "gen_ai.response.model": "qwen3-8b",
        "gen_ai.usage.input_tokens": 90,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.response.finish_reasons": ("stop", "unknown"),
        "lazyrag.confidence": 0.75,
    }


def test_no_content_unless_it_is_asked_for(finished):
    """No span holds a text of user, document or model, by default."""
    run_all(False)
    assert len(finished()) == 5
    assert not any(PRIVATE in one.to_json() for one in finished().values())


def test_content_where_it_is_asked_for(finished):
    """With capture_content the question, the documents, the prompt and the answer stand in the
    conventions' places.
    """
    run_all(True)
    spans = finished()
    asked, found, said = (
        spans[name].attributes
        for name in ("invoke_workflow tea", "retrieval handbook", "chat qwen3")
    )
    assert found["gen_ai.retrieval.query.text"] == PRIVATE
    assert json.loads(found["gen_ai.retrieval.documents"])[0] == {
        "id": "7",
        "score": 0.5,
        "content": PRIVATE,
    }
    text = {"type": "text", "content": PRIVATE}
    assert json.loads(asked["gen_ai.input.messages"]) == [{"role": "user", "parts": [text]}]
    assert json.loads(asked["gen_ai.output.messages"]) == [{"role": "assistant", "parts": [text]}]
    assert [one["role"] for one in json.loads(said["gen_ai.input.messages"])] == ["system", "user"]
    assert json.loads(said["gen_ai.output.messages"])[0]["finish_reason"] == "stop"


@pytest.mark.parametrize("capture_content", [False, True])
def test_errors_are_recorded_and_go_on(finished, capture_content):
    """A step that raises has status and error type, and its place in the code; the message only
    with content.
    """
    with pytest.raises(ValueError, match=PRIVATE), span("step", capture_content=capture_content):
        raise ValueError(PRIVATE)
    failed = finished()["step"]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "ValueError"
    (event,) = failed.events
    assert event.name == "exception"
    assert "test_errors_are_recorded_and_go_on" in event.attributes["exception.stacktrace"]
    assert (PRIVATE in failed.to_json()) is capture_content


def test_the_source_line_of_an_error_is_no_place_for_texts(finished):
    """A trace without content names file, line and function, and quotes no line of code, which may
    hold a text.
    """
    with pytest.raises(ValueError, match="x"), span("step"):
        raise ValueError("x my diagnosis")
    assert PRIVATE not in finished()["step"].to_json()


def test_a_cancelled_step_is_recorded(finished):
    """Cancelling ends the span and says so."""

    async def cancelled() -> None:
        with span("step"):
            asyncio.current_task().cancel()
            await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert finished()["step"].attributes["error.type"].endswith("CancelledError")


def test_tasks_threads_and_the_private_loop_are_children(finished):
    """What begins in a task, in to_thread, or on the loop of lazyrag.models.concurrency is a child
    of the caller's.
    """

    async def step(name: str) -> None:
        with span(name):
            await asyncio.sleep(0)

    def in_thread() -> None:
        with span("thread"):
            background.run(step("loop from a thread"))

    async def main() -> None:
        with span("all"):
            await asyncio.gather(step("task"), asyncio.to_thread(in_thread))
            await background.arun(step("loop"))

    asyncio.run(main())
    with span("sync"):
        background.run(step("loop from sync"))
    spans = finished()
    parents = {name: one.parent and one.parent.span_id for name, one in spans.items()}
    ids = {name: one.context.span_id for name, one in spans.items()}
    assert parents == {
        "all": None,
        "sync": None,
        "task": ids["all"],
        "thread": ids["all"],
        "loop": ids["all"],
        "loop from a thread": ids["thread"],
        "loop from sync": ids["sync"],
    }


def test_questions_at_the_same_time_are_traces_of_their_own(finished):
    """Two questions in one loop do not take each other's steps for theirs."""

    async def ask(name: str) -> None:
        with pipeline_span(name, "?"):
            await asyncio.sleep(0)
            with retrieval_span(name, "?"):
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(ask("a"), ask("b"))

    asyncio.run(main())
    spans = finished()
    for name in ("a", "b"):
        parent = spans[f"retrieval {name}"].parent
        assert parent.span_id == spans[f"invoke_workflow {name}"].context.span_id


def test_a_stream_leaves_its_readers_context_alone(finished):
    """What a reader does between two pieces is no child of the stream; what the stream does, is."""

    async def answer():
        with pipeline_span("tea", "?", current=False) as asked:
            with asked.as_current(), retrieval_span("handbook", "?"):
                await asyncio.sleep(0)
            with chat_span("qwen3", stream=True, parent=asked) as said:
                yield "80 "
                yield "degrees"
                said.generated(GenerationResult("80 degrees"))

    async def main() -> None:
        async for _piece in answer():
            assert not trace.get_current_span().get_span_context().is_valid
            with span("reader"):
                pass

    asyncio.run(main())
    spans = finished()
    asked = spans["invoke_workflow tea"].context.span_id
    assert spans["reader"].parent is None
    assert spans["retrieval handbook"].parent.span_id == asked
    assert spans["chat qwen3"].parent.span_id == asked
    assert spans["chat qwen3"].attributes["gen_ai.request.stream"] is True


def test_a_stream_that_is_left_has_not_failed(finished):
    """A reader that stops early ends the spans, and none of them is an error."""

    def pieces():
        with span("stream", current=False):
            yield "80 "
            yield "degrees"

    stream = pieces()
    next(stream)
    stream.close()
    assert finished()["stream"].status.status_code is StatusCode.UNSET


def _in_fresh_interpreter(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_without_a_provider_nothing_happens():
    """With the API package alone, spans record nothing and values come back as ever."""
    code = """
        from lazyrag.pipeline.tracing import retrieval_span
        with retrieval_span("tea", "?") as asked:
            asked.hits([object()])
            print(asked.is_recording)
        """
    assert _in_fresh_interpreter(code).split() == ["False"]


def test_without_the_package_nothing_happens():
    """Where OpenTelemetry is not installed, every span does nothing, errors go on, and nothing
    imports it.
    """
    code = """
        import sys
        sys.modules["opentelemetry"] = None
        from lazyrag.pipeline import tracing
        with tracing.pipeline_span("tea", "?", capture_content=True) as asked:
            with asked.as_current(), tracing.retrieval_span("tea", "?") as found:
                found.hits([object()])
                found.set({"x": 1})
            asked.answered("80 degrees")
        try:
            with tracing.span("step"):
                raise ValueError("goes on")
        except ValueError as exc:
            print(exc)
        """
    assert _in_fresh_interpreter(code).strip() == "goes on"


def test_importing_the_package_imports_no_opentelemetry():
    """`import lazyrag`, and the module of spans itself, leave OpenTelemetry alone until a span
    begins.
    """
    code = "import sys, lazyrag, lazyrag.pipeline.tracing; print('opentelemetry' in sys.modules)"
    assert _in_fresh_interpreter(code).strip() == "False"
