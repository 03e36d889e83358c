"""Traces of what a pipeline does, by OpenTelemetry: a span for the question, and one for each step to its answer.

Only the API package is used (extra ``otel``): where spans go is the program's own choice, by the SDK that it sets up.
Without the package, or without a provider, everything here does nothing. Names and attributes are those of the
OpenTelemetry semantic conventions for generative AI, release 0.1.0, all of them in development there; what these do not
know is under ``lazyrag.``.

No content is recorded unless ``capture_content`` is set: no question, no text of a document, no prompt, no answer, and
of an error its type and its place in the code, but not its message, which may quote any of them.

A span's children are those begun while it is current, in the same task, in tasks begun there, in `asyncio.to_thread`,
and in coroutines handed to another loop: `asyncio.run_coroutine_threadsafe` takes the context of its caller along, and
with it `lazyrag.models.concurrency`. A pool of threads does not: what is handed to one is run by
`contextvars.copy_context().run`.
"""

from __future__ import annotations

import functools
import json
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lazyrag._version import __version__

if TYPE_CHECKING:
    from types import ModuleType

    from opentelemetry.trace import Span as OtelSpan

    from lazyrag.data.result import GenerationResult, Hit
    from lazyrag.models.protocols import ChatOptions, Message

SpanKind: TypeAlias = Literal["internal", "client"]

_FINISH_REASONS = "gen_ai.response.finish_reasons"
_INPUT = "gen_ai.input.messages"
_OPERATION = "gen_ai.operation.name"
_OUTPUT = "gen_ai.output.messages"


class Span:
    """One step of a run, while it lasts.

    Args:
        otel: OpenTelemetry's span; None where the package is not installed.
        capture_content: Whether texts are recorded.
    """

    __slots__ = ("_capture_content", "_otel")

    def __init__(self, otel: OtelSpan | None, *, capture_content: bool = False) -> None:
        self._otel = otel
        self._capture_content = capture_content

    @property
    def is_recording(self) -> bool:
        """Whether anyone will see what is set: else nothing need be computed for it."""
        return self._otel is not None and self._otel.is_recording()

    def set(self, attributes: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set attributes; those that are None are left out. Never for texts of users: see `set_content`."""
        if self._otel is not None and self._otel.is_recording():
            self._otel.set_attributes(_known(attributes, more))

    def set_content(self, attributes: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set attributes that hold what users and documents say; nothing, unless content is captured."""
        if self._capture_content:
            self.set(attributes, **more)

    def hits(self, hits: Sequence[Hit], name: str = "gen_ai.retrieval.documents") -> None:
        """Say what was found: ids and scores, best first; the texts too, where content is captured."""
        if self.is_recording:
            self.set({name: _json([_as_document(hit, with_text=self._capture_content) for hit in hits])})

    def generated(self, result: GenerationResult[Any]) -> None:
        """Say what a chat model answered: model, tokens, why it ended; the text too, where content is captured.

        Args:
            result: Its metadata may hold ``"model"``, ``"usage"`` (prompt_tokens, completion_tokens) and
                ``"finish_reasons"``.
        """
        if not self.is_recording:
            return
        told = result.metadata if isinstance(result.metadata, Mapping) else {}
        usage = told.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        reasons = [str(one or "unknown") for one in told.get("finish_reasons") or ()]
        self.set(
            {
                "gen_ai.response.model": told.get("model"),
                "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
                "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
                _FINISH_REASONS: reasons or None,
                "lazyrag.confidence": result.confidence,
            }
        )
        self.answered(result.response, told.get("finish_reason"))

    def answered(self, text: str, finish_reason: str | None = None) -> None:
        """Record an answer's text, where content is captured."""
        if self._capture_content and self.is_recording:
            reason = {} if finish_reason is None else {"finish_reason": finish_reason}
            self.set({_OUTPUT: _json([_as_message("assistant", text) | reason])})

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """While it lasts, spans that begin are children of this one.

        For a span that was begun with ``current=False``; to be left in the task that entered it, and never around a
        ``yield``.
        """
        api = _api()
        if api is None or self._otel is None:
            yield
            return
        with api.use_span(self._otel, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield

    def failed(self, error: BaseException) -> None:
        """Say that the step failed: the error's type and where in the code; its message where content is captured."""
        api = _api()
        if api is None or self._otel is None or not self._otel.is_recording():
            return
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        if self._capture_content:
            told = {"exception.message": str(error)}
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        else:
            told = {}
            trace = "".join([*_places(error), kind])
        self._otel.set_attribute("error.type", kind)
        self._otel.set_status(api.Status(api.StatusCode.ERROR, told.get("exception.message", kind)))
        self._otel.add_event("exception", {"exception.type": kind, "exception.stacktrace": trace, **told})


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    kind: SpanKind = "internal",
    capture_content: bool = False,
    current: bool = True,
    parent: Span | None = None,
) -> Iterator[Span]:
    """A span around some code, which may await; what that raises is recorded and goes on.

    Args:
        name: What is done; the same for many runs.
        attributes: Known from the beginning; those that are None are left out. No texts of users.
        kind: ``"client"`` for a call that leaves the process.
        capture_content: Whether texts are recorded, and the messages of errors.
        current: Whether spans that begin within are its children. False in a generator that yields within: what runs
            between its steps is the caller's; `Span.as_current` goes around the parts that are not.
        parent: The span that it is a child of; None for the current one.

    Example:
        >>> with span("read", {"lazyrag.files": 3}) as reading:
        ...     reading.set({"lazyrag.bytes": 1024})
    """
    api = _api()
    if api is None:
        yield _NOTHING
        return
    tracer = api.get_tracer("lazyrag", __version__)
    context = None if parent is None or parent._otel is None else api.set_span_in_context(parent._otel)
    otel = tracer.start_span(name, context, api.SpanKind[kind.upper()], _known(attributes, {}))
    begun = Span(otel, capture_content=capture_content)
    try:
        with begun.as_current() if current else nullcontext():
            yield begun
    except GeneratorExit:  # who reads a stream had enough of it: no failure
        raise
    except BaseException as exc:
        begun.failed(exc)
        raise
    finally:
        otel.end()


@contextmanager
def pipeline_span(pipeline: str, query: str, *, capture_content: bool = False, current: bool = True) -> Iterator[Span]:
    """Around one question to a pipeline, the parent of all below: ``invoke_workflow <pipeline>``.

    Args:
        pipeline: Its name; the same for many questions.
        query: Recorded where content is captured.
        capture_content: See `span`.
        current: See `span`; False where an answer is streamed.

    Example:
        >>> with pipeline_span("tea", "How hot?") as asked:
        ...     asked.answered("80 degrees.")
    """
    attributes = {_OPERATION: "invoke_workflow", "gen_ai.agent.name": pipeline}
    with span(f"invoke_workflow {pipeline}", attributes, capture_content=capture_content, current=current) as asked:
        if capture_content:
            asked.set_content({_INPUT: _json([_as_message("user", query)])})
        yield asked


@contextmanager
def retrieval_span(
    data_source: str, query: str, topk: int | None = None, *, capture_content: bool = False
) -> Iterator[Span]:
    """Around a retrieval: ``retrieval <data source>``. `Span.hits` says what was found.

    Args:
        data_source: Which Document or collection is asked: its name.
        query: Recorded where content is captured.
        topk: How many hits are asked for.
        capture_content: See `span`.

    Example:
        >>> with retrieval_span("tea", "How hot?", 6) as asked:
        ...     asked.hits([])
    """
    attributes = {
        _OPERATION: "retrieval",
        "gen_ai.data_source.id": data_source,
        "gen_ai.retrieval.top_k": topk,
    }
    with span(f"retrieval {data_source}", attributes, kind="client", capture_content=capture_content) as asked:
        asked.set_content({"gen_ai.retrieval.query.text": query})
        yield asked


@contextmanager
def rerank_span(
    reranker: str, query: str, candidates: int, topk: int | None = None, *, capture_content: bool = False
) -> Iterator[Span]:
    """Around reranking: ``rerank <reranker>``. The conventions know no such operation yet; the name is ours.

    Args:
        reranker: Its name, or its model's.
        query: Recorded where content is captured.
        candidates: How many hits are to be reranked.
        topk: How many are to be left.
        capture_content: See `span`.

    Example:
        >>> with rerank_span("bge-reranker", "How hot?", 20, 6) as reranking:
        ...     reranking.hits([], "lazyrag.rerank.documents")
    """
    attributes = {
        _OPERATION: "rerank",
        "gen_ai.request.model": reranker,
        "lazyrag.rerank.candidates": candidates,
        "lazyrag.rerank.top_k": topk,
    }
    with span(f"rerank {reranker}", attributes, capture_content=capture_content) as reranking:
        reranking.set_content({"gen_ai.retrieval.query.text": query})
        yield reranking


@contextmanager
def context_span(max_tokens: int, *, capture_content: bool = False) -> Iterator[Span]:
    """Around building a context: ``build_context``; ``lazyrag.context.tokens`` and ``.sources`` are to be set.

    Example:
        >>> with context_span(2000) as building:
        ...     building.set({"lazyrag.context.tokens": 812, "lazyrag.context.sources": 4})
    """
    attributes = {"lazyrag.context.max_tokens": max_tokens}
    with span("build_context", attributes, capture_content=capture_content) as building:
        yield building


@contextmanager
def chat_span(
    model: str,
    *,
    provider: str | None = None,
    options: ChatOptions | None = None,
    messages: Sequence[Message] = (),
    stream: bool = False,
    capture_content: bool = False,
    parent: Span | None = None,
) -> Iterator[Span]:
    """Around a call of a chat model: ``chat <model>``. `Span.generated` says what came of it.

    Args:
        model: The name of the model that is asked; "" where it has none.
        provider: Whose way of asking it is, by the conventions' names: ``"openai"`` for an endpoint that is compatible
            with OpenAI's, whoever runs it. None where it is not known.
        options: How it is asked.
        messages: Recorded where content is captured.
        stream: Whether the answer comes in pieces. Then the span is not the current one: it lies in a generator.
        capture_content: See `span`.
        parent: See `span`.

    Example:
        >>> from lazyrag import GenerationResult
        >>> with chat_span("qwen3", provider="openai") as asked:
        ...     asked.generated(GenerationResult("80 degrees."))
    """
    attributes: dict[str, Any] = {
        _OPERATION: "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model or None,
        "gen_ai.request.stream": stream or None,
    }
    if options is not None:
        attributes |= {
            "gen_ai.request.choice.count": options.n if options.n > 1 else None,
            "gen_ai.request.temperature": options.temperature,
            "gen_ai.request.max_tokens": options.max_tokens,
            "gen_ai.request.seed": options.seed,
        }
    name = f"chat {model}" if model else "chat"
    how: dict[str, Any] = {"capture_content": capture_content, "current": not stream, "parent": parent}
    with span(name, attributes, kind="client", **how) as asked:
        if capture_content and messages:
            asked.set_content({_INPUT: _json([_as_message(one.role, one.content) for one in messages])})
        yield asked


_NOTHING = Span(None)


@functools.cache
def _api() -> ModuleType | None:
    """OpenTelemetry's tracing API; None where it is not installed. Looked for once."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace


def _known(attributes: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**(attributes or {}), **more}.items() if value is not None}


def _as_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _as_document(hit: Hit, *, with_text: bool) -> dict[str, Any]:
    score = {"score": float(hit.score)} if math.isfinite(hit.score) else {}
    return {"id": hit.id, **score, **({"content": hit.text} if with_text else {})}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _places(error: BaseException) -> list[str]:
    """Where in the code an error passed, innermost last, without the source lines, which may hold texts."""
    return [
        f'  File "{one.filename}", line {one.lineno}, in {one.name}\n'
        for one in traceback.extract_tb(error.__traceback__)
    ]
