"""OpenTelemetry traces of a pipeline: a span for the question, and one for each step to its answer.

Only the API package is used (extra ``otel``): the program chooses where spans go, by the SDK that
it sets up. Without the package, or without a provider, everything here does nothing. Names and
attributes follow the OpenTelemetry semantic conventions for generative AI, release 0.1.0, which are
in development; attributes of our own begin with ``lazyrag.``.

Content is recorded only with ``capture_content``. By default there is no question, no text of a
document, no prompt and no answer, and of an error its type and its place in the code, but not its
message, which may quote any of them.

Children of a span are the spans that begin while it is current: in the same task, in tasks begun
there, in `asyncio.to_thread`, and in coroutines that `asyncio.run_coroutine_threadsafe` or
`lazyrag.models.concurrency` hand to another loop. For a pool of threads use
`contextvars.copy_context().run`.
"""

from __future__ import annotations

import functools
import json
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lazyrag._version import __version__
from lazyrag.data.result import GenerationResult, Hit
from lazyrag.models.protocols import ChatOptions, Message
from lazyrag.types import JsonMapping, JsonObject
from lazyrag.validation import without_none

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan

SpanKind: TypeAlias = Literal["internal", "client"]

_INPUT = "gen_ai.input.messages"
_OPERATION = "gen_ai.operation.name"
_OUTPUT = "gen_ai.output.messages"
_QUERY = "gen_ai.retrieval.query.text"


class Span:
    """A step of a run, while it lasts.

    Args:
        otel: OpenTelemetry's span; None if the package is not installed.
        capture_content: Whether texts are recorded.
    """

    __slots__ = ("_capture_content", "_otel")

    def __init__(self, otel: OtelSpan | None, *, capture_content: bool = False) -> None:
        self._otel = otel
        self._capture_content = capture_content

    @property
    def is_recording(self) -> bool:
        """Whether attributes are recorded; if not, there is no need to compute them."""
        return self._otel is not None and self._otel.is_recording()

    def set(self, attributes: JsonMapping) -> None:
        """Set attributes; None values are left out. Never put texts of users here."""
        if self._otel is not None and self._otel.is_recording():
            self._otel.set_attributes(without_none(attributes))

    def hits(self, hits: Sequence[Hit], name: str = "gen_ai.retrieval.documents") -> None:
        """Record what was found: ids and scores, best first; with ``capture_content`` also the
        texts.
        """
        if self.is_recording:
            self.set(
                {name: _json([_as_document(hit, with_text=self._capture_content) for hit in hits])}
            )

    def generated(self, result: GenerationResult[Any]) -> None:
        """Record a chat model's answer: model, tokens, finish reasons; with ``capture_content``
        also the text.

        Args:
            result: Its metadata may have ``"model"``, ``"usage"`` (prompt_tokens,
                completion_tokens) and ``"finish_reasons"``.
        """
        if not self.is_recording:
            return
        metadata = result.metadata if isinstance(result.metadata, Mapping) else {}
        usage = metadata.get("usage")
        usage = usage if isinstance(usage, Mapping) else {}
        reasons = [str(reason or "unknown") for reason in metadata.get("finish_reasons") or ()]
        self.set(
            {
                "gen_ai.response.model": metadata.get("model"),
                "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
                "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
                "gen_ai.response.finish_reasons": reasons or None,
                "lazyrag.confidence": result.confidence,
            }
        )
        self.answered(result.response, metadata.get("finish_reason"))

    def answered(self, text: str, finish_reason: str | None = None) -> None:
        """Record an answer's text, with ``capture_content``."""
        if self._capture_content and self.is_recording:
            reason = {} if finish_reason is None else {"finish_reason": finish_reason}
            self.set({_OUTPUT: _json([_as_message("assistant", text) | reason])})

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Make spans that begin within children of this one.

        For a span begun with ``current=False``. Leave it in the task that entered it, and never
        ``yield`` within.
        """
        api = _api()
        if api is None or self._otel is None:
            yield
            return
        with api.use_span(
            self._otel, end_on_exit=False, record_exception=False, set_status_on_exception=False
        ):
            yield

    def failed(self, error: BaseException) -> None:
        """Record an error: its type and its place in the code; with ``capture_content`` also its
        message.
        """
        api = _api()
        if api is None or self._otel is None or not self._otel.is_recording():
            return
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        if self._capture_content:
            message = {"exception.message": str(error)}
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        else:
            message = {}
            trace = "".join([*_positions(error), kind])
        self._otel.set_attribute("error.type", kind)
        self._otel.set_status(
            api.Status(api.StatusCode.ERROR, message.get("exception.message", kind))
        )
        self._otel.add_event(
            "exception", {"exception.type": kind, "exception.stacktrace": trace, **message}
        )


@contextmanager
def span(
    name: str,
    attributes: JsonMapping | None = None,
    *,
    kind: SpanKind = "internal",
    capture_content: bool = False,
    content: JsonMapping | None = None,
    current: bool = True,
    parent: Span | None = None,
) -> Iterator[Span]:
    """Put a span around some code, which may await. Errors are recorded and raised.

    Args:
        name: The step; the same for many runs.
        attributes: Attributes known at the beginning; None values are left out. No texts of users.
        kind: ``"client"`` for a call that leaves the process.
        capture_content: Whether to record texts, and the messages of errors.
        content: Attributes with texts, recorded with ``capture_content``.
        current: Whether spans that begin within are its children. False in a generator that yields
            within: code between its steps is the caller's. Use `Span.as_current` around the other
            parts.
        parent: The parent span; None for the current one.

    Example:
        >>> with span("read", {"lazyrag.files": 3}) as reading:
        ...     reading.set({"lazyrag.bytes": 1024})
    """
    api = _api()
    if api is None:
        yield _NOTHING
        return
    tracer = api.get_tracer("lazyrag", __version__)
    context = (
        None if parent is None or parent._otel is None else api.set_span_in_context(parent._otel)
    )
    present = without_none(
        {**(attributes or {}), **(content if content and capture_content else {})}
    )
    otel = tracer.start_span(name, context, api.SpanKind[kind.upper()], present)
    begun = Span(otel, capture_content=capture_content)
    try:
        with begun.as_current() if current else nullcontext():
            yield begun
    except GeneratorExit:  # the reader of a stream stopped early: no failure
        raise
    except BaseException as exc:
        begun.failed(exc)
        raise
    finally:
        otel.end()


def pipeline_span(
    pipeline: str, query: str, *, capture_content: bool = False, current: bool = True
) -> AbstractContextManager[Span]:
    """Span of a question to a pipeline, the parent of the others: ``invoke_workflow <pipeline>``.

    Args:
        pipeline: Its name; the same for many questions.
        query: Recorded with ``capture_content``.
        capture_content: See `span`.
        current: See `span`; False for a streamed answer.

    Example:
        >>> with pipeline_span("tea", "How hot?") as tracing:
        ...     tracing.answered("80 degrees.")
    """
    return span(
        f"invoke_workflow {pipeline}",
        {_OPERATION: "invoke_workflow", "gen_ai.agent.name": pipeline},
        capture_content=capture_content,
        content={_INPUT: _json([_as_message("user", query)])} if capture_content else None,
        current=current,
    )


def retrieval_span(
    data_source: str, query: str, topk: int | None = None, *, capture_content: bool = False
) -> AbstractContextManager[Span]:
    """Span of a retrieval: ``retrieval <data source>``. Record its result by `Span.hits`.

    Args:
        data_source: Name of the Document or collection.
        query: Recorded with ``capture_content``.
        topk: Number of hits to retrieve.
        capture_content: See `span`.

    Example:
        >>> with retrieval_span("tea", "How hot?", 6) as tracing:
        ...     tracing.hits([])
    """
    attributes = {
        _OPERATION: "retrieval",
        "gen_ai.data_source.id": data_source,
        "gen_ai.retrieval.top_k": topk,
    }
    name = f"retrieval {data_source}"
    return span(
        name, attributes, kind="client", capture_content=capture_content, content={_QUERY: query}
    )


def rerank_span(
    reranker: str,
    query: str,
    candidates: int,
    topk: int | None = None,
    *,
    capture_content: bool = False,
) -> AbstractContextManager[Span]:
    """Span of a reranking: ``rerank <reranker>``. The conventions have no such operation yet.

    Args:
        reranker: Its name, or its model's.
        query: Recorded with ``capture_content``.
        candidates: Number of hits to rerank.
        topk: Number of hits to keep.
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
    return span(
        f"rerank {reranker}", attributes, capture_content=capture_content, content={_QUERY: query}
    )


def context_span(max_tokens: int, *, capture_content: bool = False) -> AbstractContextManager[Span]:
    """Span of a context: ``build_context``. Set ``lazyrag.context.tokens`` and ``.sources``.

    Example:
        >>> with context_span(2000) as building:
        ...     building.set({"lazyrag.context.tokens": 812, "lazyrag.context.sources": 4})
    """
    return span(
        "build_context", {"lazyrag.context.max_tokens": max_tokens}, capture_content=capture_content
    )


def chat_span(
    model: str,
    *,
    provider: str | None = None,
    options: ChatOptions | None = None,
    messages: Sequence[Message] = (),
    stream: bool = False,
    capture_content: bool = False,
    parent: Span | None = None,
) -> AbstractContextManager[Span]:
    """Span of a chat model's call: ``chat <model>``. Record its result by `Span.generated`.

    Args:
        model: The name of the model; "" if it has none.
        provider: The provider by the conventions' names: ``"openai"`` for any endpoint that is
            compatible with OpenAI's. None if unknown.
        options: Options of the call.
        messages: Recorded with ``capture_content``.
        stream: Whether the answer is streamed. Then the span is not the current one: it is in a
            generator.
        capture_content: See `span`.
        parent: See `span`.

    Example:
        >>> from lazyrag import GenerationResult
        >>> with chat_span("qwen3", provider="openai") as tracing:
        ...     tracing.generated(GenerationResult("80 degrees."))
    """
    attributes: JsonObject = {
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
    sent = (
        [_as_message(message.role, message.text) for message in messages] if capture_content else []
    )
    return span(
        f"chat {model}" if model else "chat",
        attributes,
        kind="client",
        capture_content=capture_content,
        content={_INPUT: _json(sent)} if sent else None,
        current=not stream,
        parent=parent,
    )


_NOTHING = Span(None)


@functools.cache
def _api() -> ModuleType | None:
    """OpenTelemetry's tracing API; None if it is not installed."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace


def _as_message(role: str, text: str) -> JsonObject:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _as_document(hit: Hit, *, with_text: bool) -> JsonObject:
    score = {"score": float(hit.score)} if math.isfinite(hit.score) else {}
    return {"id": hit.id, **score, **({"content": hit.text} if with_text else {})}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _positions(error: BaseException) -> list[str]:
    """The places in the code that an error passed, innermost last, without source lines, which may
    contain texts.
    """
    return [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n'
        for frame in traceback.extract_tb(error.__traceback__)
    ]
