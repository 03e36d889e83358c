"""OpenAI's models, chat completions, responses with file search, and embeddings."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import itertools
import json
import math
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Request
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response, StreamingResponse

from lazyrag.data.filters import FilterLike
from lazyrag.data.result import AnswerDelta, Citation, Hit
from lazyrag.document import Document
from lazyrag.errors import known_names
from lazyrag.generation.generator import Generator
from lazyrag.generation.markers import scan
from lazyrag.generation.prompts import SYSTEM_EN, SYSTEM_ZH, Prompts
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import ChatOptions, Usage, usage_of_calls
from lazyrag.models.rerank import Bm25RerankModel
from lazyrag.pipeline import RAGPipeline
from lazyrag.retrieval.base import BaseRetriever
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.server import openai_common as common
from lazyrag.server.guard import ADD_EVENT, KEPT_S
from lazyrag.server.openai_stores import open_store
from lazyrag.server.problems import ProblemError, problem_of
from lazyrag.server.routes_answers import MAX_WRITING, Book, Notebook
from lazyrag.server.routes_search import MAX_QUERY, as_json
from lazyrag.server.service import Principal, Service, needs, service_of
from lazyrag.server.uploads import Call
from lazyrag.text.tokens import EstimatedTokenCounter

T = TypeVar("T")

router = APIRouter(prefix="/v1", tags=["openai"])
Reader = Annotated[Principal, needs("read")]

TOPK = 6
"""Passages that the model reads, unless the request says another number."""
GONE = 499
"""The status of a request whose client has closed the connection."""

# Models


def sets_of(service: Service, principal: Principal) -> dict[str, Document]:
    """The sets that a principal sees, by name."""
    found = {}
    for name in sorted(service.sets):
        with suppress(ProblemError):  # its labels do not restrict every set
            found[name] = service.view(name, principal)
    return found


def _embedders(sets: Mapping[str, Document]) -> dict[str, CheckedEmbedder]:
    found: dict[str, CheckedEmbedder] = {}
    for name, docs in sets.items():
        for one in docs.reader.embedders(None) if docs.embed_keys else ():
            found.setdefault(model_name(one.embedder, f"{name}.{one.key}"), one)
    return found


def rerankers_of(service: Service) -> dict[str, Any]:
    """The models that rerank, by name: the configured one, and BM25, which needs none."""
    own = {} if service.rerank is None else {model_name(service.rerank, "reranker"): service.rerank}
    return own | {"bm25": Bm25RerankModel()}


def model_name(model: Any, default: str) -> str:
    """The name of a model, by which requests call it."""
    names = [getattr(model, one, None) for one in ("model", "name")]
    return next((one for one in names if isinstance(one, str) and one), default)


def no_model(name: str, known: Iterable[str]) -> ProblemError:
    """The error for a model that does not exist, or that the principal does not see."""
    msg = f"The model {name!a:.100} does not exist or you do not have access to it."
    return ProblemError(404, msg, known_names(name, known), param="model", code="model_not_found")


def _models(service: Service, principal: Principal) -> dict[str, dict[str, Any]]:
    sets = sets_of(service, principal)
    kinds = {"rerank": rerankers_of(service), "embedding": _embedders(sets), "set": sets}
    return {
        name: {"id": name, "object": "model", "created": 0, "owned_by": "lazyrag", "kind": kind}
        for kind, names in kinds.items()
        for name in names
    }


@router.get("/models")
async def list_models(request: Request, principal: Reader) -> Response:
    """List the models: the sets that the principal sees, which answer, and models that embed and rerank."""
    found = await service_of(request).run(_models, service_of(request), principal)
    return as_json({"object": "list", "data": sorted(found.values(), key=lambda one: (one["kind"], one["id"]))})


@router.get("/models/{model:path}")
async def get_model(model: str, request: Request, principal: Reader) -> Response:
    """Get a model."""
    found = await service_of(request).run(_models, service_of(request), principal)
    if model not in found:
        raise no_model(model, found)
    return as_json(found[model])


# What chat completions and responses share


class _Given(BaseModel):
    """A part of a request. Clients send back what they got, so it may have more than is read here."""

    model_config = ConfigDict(extra="ignore")


class Part(_Given):
    """A piece of a message's content."""

    type: str
    text: str = ""


class Turn(_Given):
    """A message, or another item of a conversation."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None

    def text(self, where: str) -> str:
        """Its text.

        Raises:
            ProblemError: 400 if it is something else.
        """
        if isinstance(self.content, str):
            return self.content
        for part in self.content or ():
            if part.type not in ("text", "input_text", "output_text", "refusal"):
                raise _unsupported(where, f"a part of the type {part.type!a:.40}", "Send text alone.")
        return "\n".join(part.text for part in self.content or ())


def _unsupported(param: str, what: str, remedy: str = "Leave it out.") -> ProblemError:
    return ProblemError(400, f"{param} has {what}, which this service does not support.", remedy, param=param)


_Penalty = Annotated[float, Field(ge=-2, le=2)] | None


class _Sampling(common.Model):
    """What both kinds of requests have. The service stores nothing for the fields that are read by nobody."""

    model: Annotated[str, Field(max_length=200)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stream: bool | None = False
    metadata: common.Metadata = None
    parallel_tool_calls: bool | None = True
    user: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Any = None
    top_logprobs: Literal[0] | None = None
    moderation: None = None

    def refuse(self, **allowed: Sequence[Any]) -> None:
        """Refuse values that the answer could not follow.

        Raises:
            ProblemError: 400 for the first one.
        """
        for name, values in allowed.items():
            value = getattr(self, name)
            if value is not None and value not in values:
                raise _unsupported(name, f"the value {json.dumps(value)!a:.60}")


@dataclass
class Asked:
    """A question, and where and how it is answered."""

    service: Service
    sets: dict[str, Document]
    turns: Sequence[Turn]
    where: str
    instructions: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    topk: int = TOPK
    filters: FilterLike | None = None
    threshold: float = 0.0
    weights: Sequence[float] | None = None
    usages: list[Usage] = field(default_factory=list)
    question: str = field(init=False)
    history: list[dict[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        texts = [(turn.role or "", turn.text(self.where)) for turn in self.turns if turn.type == "message"]
        given = [self.instructions, *(text for role, text in texts if role in ("system", "developer"))]
        self.instructions = "\n\n".join(text for text in given if text.strip())
        talk = [{"role": role, "content": text} for role, text in texts if role in ("user", "assistant")]
        if not talk or talk[-1]["role"] != "user" or len(talk[-1]["content"]) > MAX_QUERY:
            msg = f"{self.where} must end with a message of the role 'user' of at most {MAX_QUERY:,} characters."
            raise ProblemError(400, msg, param=self.where)
        if self.service.chat is None:
            msg = "The service has no chat model, so its sets can be searched and do not answer."
            remedy = "Set chat in [models] of the configuration."
            raise ProblemError(400, msg, remedy, param="model", code="no_chat_model")
        self.question, self.history = talk[-1]["content"], [one for one in talk[:-1] if one["content"].strip()]

    @property
    def usage(self) -> Usage | None:
        """The tokens of the chat model, in all its calls; None if it reports none."""
        sums = [sum(one) for one in zip(*map(dataclasses.astuple, self.usages), strict=True)]
        return Usage(*sums) if sums else None

    def retriever(self) -> BaseRetriever[Any]:
        """The retriever of the sets.

        Raises:
            ProblemError: 400 if their chunks are of different groups.
        """
        docs, (group, *others) = tuple(self.sets.values()), {self.service.group_of(name) for name in self.sets}
        if others:
            msg = "The vector stores have chunks of different groups."
            raise ProblemError(400, msg, "Search them one by one.", param="tools")
        if self.weights is not None:
            return HybridRetriever.over(docs, group, weights=list(self.weights))
        one: Any = docs[0] if len(docs) == 1 else docs
        return self.service.retriever(one, group, "default", None, None)

    async def steps(self) -> AsyncIterator[Found | AnswerDelta]:
        """Search, which is the first step, and write the answer."""
        chat, extended = self.service.chat, f"\n\n{self.instructions}" if self.instructions else ""
        own = getattr(chat, "options", None)
        own = own if isinstance(own, ChatOptions) else ChatOptions()
        extra = {**(own.extra or {}), **self.options.get("extra", {})}
        options = dataclasses.replace(own, **{**self.options, "extra": extra or None})
        prompts = Prompts(en=SYSTEM_EN + extended, zh=SYSTEM_ZH + extended)
        retriever = await self.service.run(self.retriever)
        pipeline = RAGPipeline(retriever=retriever, generator=Generator(chat, options=options, prompts=prompts))
        run = pipeline._run(self.question, self.history)  # in steps, as the search is an event of its own
        usage_of_calls.set(self.usages)
        await run.condense()
        usage_of_calls.set(None)
        found = await run.retrieve(self.topk, self.filters)
        sources = await self.service.run(self.sources, found.items, await run.result(found))
        yield Found(run.search_query, sources)
        usage_of_calls.set(self.usages)
        room = max(2_000, 350 * self.topk) + len(self.question)  # tokens
        async with aclosing(run.deltas(None, room, None, [one.hit for one in sources])) as deltas:
            async for delta in deltas:
                yield delta

    def sources(self, nodes: Sequence[Any], hits: Sequence[Hit]) -> list[Source]:
        """The hits whose scores are high enough, with their files."""
        names = {id(docs.reader): name for name, docs in self.sets.items()}
        by_keywords = not all(docs.embed_keys for docs in self.sets.values())
        found = []
        for node, hit in zip(nodes, hits, strict=True):
            name, score = names[id(node.reader)], common.unit_score(hit.score, by_keywords=by_keywords)
            rows = self.service.sets[name]._indexer.ledger.documents.named([hit.source])
            file = common.file_id_of(hit.source, rows[hit.source].content_hash if hit.source in rows else "")
            attributes = common.attributes_of(node.segment.fields, self.sets[name].fields)
            if score >= self.threshold:
                found.append(Source(name, hit, score, *file, attributes))
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """A hit, with the set and the file that it is of."""

    set: str
    hit: Hit
    score: float
    file_id: str
    filename: str
    attributes: dict[str, Any]

    def result(self) -> dict[str, Any]:
        """As a result of file search; the raw score and the location are beside OpenAI's fields."""
        own = {name: getattr(self, name) for name in ("file_id", "filename", "score", "attributes")}
        raw = None if math.isnan(self.hit.score) else self.hit.score
        return {**own, "text": self.hit.text, "raw_score": raw, "location": self.hit.location}


@dataclass(frozen=True, slots=True)
class Found:
    """What was searched, and found."""

    query: str
    sources: list[Source]

    def cited(self, citation: Citation) -> Source:
        """The source of a citation."""
        return next(one for one in self.sources if one.hit.id == citation.uid)


def _place(text: str, citation: Citation) -> tuple[int, int]:
    """Where a text cites a source first."""
    places = [(one.start, one.end) for one in scan(text).markers if citation.index in one.numbers]
    return places[0] if places else (len(text), len(text))


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await a result; if the client closes the connection meanwhile, the work is cancelled.

    Raises:
        ProblemError: 499 if it does.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProblemError(GONE, "The client closed the connection.")
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


def _take_turn(book: Notebook) -> None:
    """Count this request among the answers that are being written.

    Raises:
        ProblemError: 429 if there are too many.
    """
    if len(book.tasks) >= MAX_WRITING:
        raise ProblemError(429, "Too many answers are being written.", "Try again.", headers={"Retry-After": "5"})
    task: Any = asyncio.current_task()
    book.tasks.add(task)
    task.add_done_callback(book.tasks.discard)


def _streamed(events: AsyncIterator[tuple[str | None, Any]]) -> Response:
    async def body() -> AsyncIterator[bytes]:
        async with aclosing(events):  # type: ignore[type-var]  # they are generators
            async for name, data in events:
                text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
                yield format_sse_event(data_str=text, event=name)

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(body(), media_type="text/event-stream", headers=headers)


# Chat completions


class StreamOptions(_Given):
    """What a stream has."""

    include_usage: bool | None = False
    include_obfuscation: bool | None = False


class ChatBody(_Sampling):
    """A conversation with a set."""

    messages: list[Turn] = Field(min_length=1)
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)]
        | None
    ) = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    frequency_penalty: _Penalty = None
    presence_penalty: _Penalty = None
    logit_bias: dict[str, int] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    store: bool | None = None
    response_format: Any = None
    modalities: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None

    def options(self) -> dict[str, Any]:
        """The options of the chat model."""
        self.refuse(
            n=[1], logprobs=[False], store=[False], response_format=[{"type": "text"}], modalities=[["text"]],
            tools=[[]], tool_choice=["none", "auto"], functions=[[]], function_call=["none", "auto"], audio=[],
            prediction=[], web_search_options=[],
        )  # fmt: skip
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        limit = self.max_completion_tokens or self.max_tokens
        given = {"temperature": self.temperature, "max_tokens": limit, "stop": stop or None, "seed": self.seed}
        names = "top_p frequency_penalty presence_penalty logit_bias reasoning_effort verbosity".split()
        extra = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**{name: value for name, value in given.items() if value is not None}, "extra": extra}


def _reason(delta: AnswerDelta) -> str:
    """Why the answer ended, in OpenAI's words."""
    answer = delta.answer
    details = answer.generation.metadata if answer is not None and answer.generation is not None else {}
    found = details.get("finish_reason") if isinstance(details, Mapping) else None
    return found if found in ("length", "content_filter") else "stop"


@router.post("/chat/completions")
async def complete_chat(body: ChatBody, call: common.Reading, book: Book) -> Response:
    """Answer from the set that `model` names, with citations as annotations of the message.

    `[1]` in the text cites a source. Its annotation has the URL of the file, and beside OpenAI's fields the file's id
    and the quotation. System messages are added to the service's own instructions.
    """
    sets = await call.run(sets_of, call.service, call.principal)
    if body.model not in sets:
        raise no_model(body.model, sets)
    named = {body.model: sets[body.model]}
    asked = Asked(call.service, named, body.messages, "messages", options=body.options())
    _take_turn(book)
    chat = _Chat(body, asked, call.request)
    return _streamed(chat.chunks()) if body.stream else as_json(await unless_gone(call.request, chat.complete()))


class _Chat:
    """A chat completion, while it is written."""

    def __init__(self, body: ChatBody, asked: Asked, request: Request) -> None:
        self.asked, self.request = asked, request
        self.head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": common.now(), "model": body.model}
        self.with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)

    def annotation(self, found: Found, text: str, citation: Citation) -> dict[str, Any]:
        """The annotation of a citation."""
        source, (start, end) = found.cited(citation), _place(text, citation)
        url = str(self.request.url_for("get_file", set=source.set, document_id=citation.source))
        cited = {"start_index": start, "end_index": end, "title": citation.label, "url": url}
        own = {"file_id": source.file_id, "quote": citation.text_snippet, "location": citation.location}
        return {"type": "url_citation", "url_citation": cited, **own}

    def usage(self) -> dict[str, Any]:
        """The tokens, if the model reports them."""
        usage = self.asked.usage
        if usage is None:
            return {}
        return {"usage": {**dataclasses.asdict(usage), "total_tokens": usage.prompt_tokens + usage.completion_tokens}}

    async def complete(self) -> dict[str, Any]:
        """The whole completion."""
        found, last = await _completed(self.asked)
        assert last.answer is not None  # noqa: S101  it is the last one
        text = last.answer.text
        cited = [self.annotation(found, text, one) for one in last.answer.citations]
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": cited}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(last)}
        return {**self.head, "object": "chat.completion", "choices": [choice], **self.usage()}

    def chunk(self, delta: dict[str, Any], reason: str | None = None) -> tuple[None, Any]:
        """A piece of the stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        more = {"usage": None} if self.with_usage else {}
        return None, {**self.head, "object": "chat.completion.chunk", "choices": [choice], **more}

    async def chunks(self) -> AsyncIterator[tuple[None, Any]]:
        """The pieces of the stream."""
        text, found = "", Found("", [])
        yield self.chunk({"role": "assistant", "content": ""})
        try:
            async for step in self.asked.steps():
                if isinstance(step, Found):
                    found = step
                    continue
                text += step.text
                cited = [self.annotation(found, text, one) for one in step.citations]
                if step.text or cited:
                    yield self.chunk({"content": step.text, **({"annotations": cited} if cited else {})})
                if step.answer is not None:
                    yield self.chunk({}, _reason(step))
        except Exception as exc:  # noqa: BLE001  the status has been sent
            yield None, problem_of(exc).as_openai()
            return
        if self.with_usage:
            yield None, {**self.head, "object": "chat.completion.chunk", "choices": [], "usage": None, **self.usage()}
        yield None, "[DONE]"


async def _completed(asked: Asked) -> tuple[Found, AnswerDelta]:
    """What was found, and the last piece of the answer."""
    steps = [step async for step in asked.steps() if isinstance(step, Found) or step.answer is not None]
    return steps[0], steps[-1]  # type: ignore[return-value]  # in this order


# Responses


class HybridSearch(common.Model):
    """Weights of vector search and keyword search."""

    embedding_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    text_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Ranking(common.Model):
    """How results are ranked."""

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    hybrid_search: HybridSearch | None = None


class FileSearch(common.Model):
    """File search in vector stores: sets."""

    type: Literal["file_search"]
    vector_store_ids: Annotated[
        list[Annotated[str, StringConstraints(max_length=200)]], Field(min_length=1, max_length=16)
    ]
    max_num_results: Annotated[int, Field(ge=1, le=50)] | None = None
    filters: common.Filters | None = None
    ranking_options: Ranking | None = None


class ResponseBody(_Sampling):
    """A question to vector stores by `file_search`, or to the set that `model` names."""

    input: str | list[Turn]
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=100)] | None = None
    store: bool | None = True
    tools: Annotated[list[FileSearch], Field(max_length=1)] = Field(default_factory=list)
    tool_choice: Any = None
    include: list[str] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    stream_options: StreamOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    background: bool | None = None
    conversation: Any = None
    context_management: Any = None
    prompt: Any = None

    def options(self) -> dict[str, Any]:
        """The options of the chat model."""
        kinds = ["auto", "required", {"type": "file_search"}] if self.tools else ["auto", "none"]
        self.refuse(background=[False], conversation=[], context_management=[[]], prompt=[], tool_choice=kinds)
        if (self.text or {}).get("format", {"type": "text"}) != {"type": "text"}:
            raise _unsupported("text.format", "another type than text")
        effort = (self.reasoning or {}).get("effort")
        extra = {"top_p": self.top_p, "reasoning_effort": effort, "verbosity": (self.text or {}).get("verbosity")}
        given = {"temperature": self.temperature, "max_tokens": self.max_output_tokens}
        found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return {**found, "extra": {name: value for name, value in extra.items() if value is not None}}

    async def asked(self, call: Call, before: Sequence[Turn]) -> Asked:
        """The question with all that belongs to it; ``before`` is the conversation before it.

        Raises:
            ProblemError: 404 if there is no such model or vector store that the principal sees.
        """
        turns = [Turn(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        for turn in turns:
            if turn.type not in ("message", "file_search_call", "reasoning"):
                raise _unsupported("input", f"an item of the type {turn.type!a:.40}", "Send messages alone.")
        options, service = self.options(), call.service
        known = await service.run(sets_of, service, call.principal)
        chat = () if service.chat is None or not self.tools else (model_name(service.chat, "chat"),)
        if self.model not in {*known, *chat}:
            raise no_model(self.model, {*known, *chat})
        asked = Asked(service, {}, [*before, *turns], "input", self.instructions or "", options)
        if not self.tools:
            asked.sets = {self.model: known[self.model]}
            return asked
        tool, ranking = self.tools[0], self.tools[0].ranking_options or Ranking()
        asked.topk, asked.threshold = tool.max_num_results or TOPK, ranking.score_threshold or 0.0
        if hybrid := ranking.hybrid_search:
            asked.weights = (hybrid.embedding_weight, hybrid.text_weight)
        filters = []
        for one in tool.vector_store_ids:
            store = await open_store(call, one)
            await service.run(store.use)
            asked.sets[store.call.name] = store.call.docs
            filters.append(common.filter_of(tool.filters, store.call.docs.fields))
        asked.filters = filters[0]
        if any(one != filters[0] for one in filters):
            msg = "The vector stores have other fields, so one filter cannot serve all of them."
            raise ProblemError(400, msg, "Search them one by one.", param="tools")
        return asked


def _owner(principal: Principal) -> str:
    return json.dumps(["response", principal.id, principal.labels])


def _stored(book: Notebook, principal: Principal, response: str) -> tuple[dict[str, Any], list[Turn]]:
    """A stored response, and the conversation with it.

    Raises:
        ProblemError: 404 if the principal has no such response.
    """
    query = (
        "SELECT data FROM event JOIN answer ON answer.id = answer "
        "WHERE answer = ? AND owner = ? AND created > ? ORDER BY number"
    )
    rows = book.rows(query, response, _owner(principal), time.time() - KEPT_S)
    if not rows:
        remedy = f"Responses are stored for {KEPT_S / 60:.0f} minutes, for those who asked."
        raise ProblemError(404, f"Response with id {response!a:.100} not found.", remedy, param="response_id")
    return json.loads(rows[0][0]), [Turn(**one) for one in json.loads(rows[1][0])]


def _store(book: Notebook, principal: Principal, asked: Asked, response: Mapping[str, Any], text: str) -> None:
    """Store a response, as answers are stored: it quotes documents, so not for long."""
    now, own = time.time(), [{"role": "user", "content": asked.question}, {"role": "assistant", "content": text}]
    row = response["id"], _owner(principal), now, response["created_at"]
    # Not what may quote a document that was purged meanwhile, see `forget_answers`.
    purged = """SELECT 1 FROM answer WHERE owner = '["purge"]' AND created >= ?4"""
    book.write(f"INSERT INTO answer SELECT ?1, ?2, '', ?3, ?3 WHERE NOT EXISTS ({purged})", row)
    rows = [(1, "response", response), (2, "turns", asked.history + own)]
    texts = [(response["id"], number, name, json.dumps(value, ensure_ascii=False)) for number, name, value in rows]
    book.write(ADD_EVENT, *texts)


@router.post("/responses")
async def respond(body: ResponseBody, call: common.Reading, book: Book) -> Response:
    """Answer from vector stores by the tool `file_search`, or from the set that `model` names.

    Every answer is searched for, whatever the model would choose. `[1]` in the text cites a source; its annotation has
    the id of the file and the place of the mark. With `store`, which is the default, a response can be read and
    continued for 15 minutes by who asked.
    """
    before: list[Turn] = []
    if body.previous_response_id is not None:
        before = (await call.run(_stored, book, call.principal, body.previous_response_id))[1]
    asked = await body.asked(call, before)
    _take_turn(book)
    writing = _Writing(body, asked, book, call.principal)
    if body.stream:
        return _streamed(writing.events())
    return as_json(await unless_gone(call.request, writing.complete()))


class _Writing:
    """A response, while it is written."""

    def __init__(self, body: ResponseBody, asked: Asked, book: Notebook, principal: Principal) -> None:
        self.body, self.asked, self.book, self.principal = body, asked, book, principal
        self.found = Found("", [])
        ids = uuid.uuid4().hex
        self.search: dict[str, Any] = {
            "id": f"fs_{ids}",
            "type": "file_search_call",
            "status": "in_progress",
            "queries": [],
        }
        self.message: dict[str, Any] = {
            "id": f"msg_{ids}",
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
        }
        names = "instructions max_output_tokens max_tool_calls metadata previous_response_id temperature top_p user"
        given = {name: getattr(body, name) for name in names.split()}
        self.response = {
            **{name: value for name, value in given.items() if value is not None or name != "user"},
            "id": f"resp_{ids}",
            "object": "response",
            "created_at": common.now(),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": body.model,
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "reasoning": {"effort": (body.reasoning or {}).get("effort"), "summary": None},
            "store": body.store is not False,
            "text": {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": [one.model_dump(exclude_none=True) for one in body.tools],
            "truncation": body.truncation or "disabled",
            "metadata": body.metadata or {},
        }

    def annotation(self, text: str, citation: Citation) -> dict[str, Any]:
        """The annotation of a citation; the quotation and its location are beside OpenAI's fields."""
        source = self.found.cited(citation)
        own = {"file_id": source.file_id, "filename": source.filename, "index": _place(text, citation)[0]}
        return {"type": "file_citation", **own, "quote": citation.text_snippet, "location": citation.location}

    def searched(self, found: Found) -> dict[str, Any]:
        """The item of the search."""
        self.found = found
        included = "file_search_call.results" in (self.body.include or ())
        results = [one.result() for one in found.sources] if included else None
        self.search |= {"status": "completed", "queries": [found.query], "results": results}
        return self.search

    async def finish(self, text: str, annotations: list[dict[str, Any]], last: AnswerDelta) -> dict[str, Any]:
        """Complete the response, and store it."""
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(_reason(last))
        status = "incomplete" if why else "completed"
        part = {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}
        self.message |= {"status": status, "content": [part]}
        self.response |= {"status": status, "output": [self.search] * bool(self.body.tools) + [self.message]}
        self.response |= {"incomplete_details": {"reason": why}} if why else {"completed_at": common.now()}
        if usage := self.asked.usage:
            self.response["usage"] = {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            }
        if self.response["store"]:
            run = self.asked.service.run
            await run(_store, self.book, self.principal, self.asked, self.response, text)
        return self.response

    async def complete(self) -> dict[str, Any]:
        """The whole response."""
        found, last = await _completed(self.asked)
        self.searched(found)
        assert last.answer is not None  # noqa: S101  it is the last one
        text = last.answer.text
        return await self.finish(text, [self.annotation(text, one) for one in last.answer.citations], last)

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        """The events of the response."""
        numbers, at, response = itertools.count(), len(self.body.tools), self.response
        text, last = "", AnswerDelta("")
        annotations: list[dict[str, Any]] = []

        def event(kind: str, **data: Any) -> tuple[str, Any]:
            return f"response.{kind}", {"type": f"response.{kind}", "sequence_number": next(numbers), **data}

        of_search = {"output_index": 0, "item_id": self.search["id"]}
        of_part = {"output_index": at, "item_id": self.message["id"], "content_index": 0}
        yield event("created", response=response)
        yield event("in_progress", response=response)
        if self.body.tools:
            yield event("output_item.added", output_index=0, item=self.search)
            yield event("file_search_call.in_progress", **of_search)
            yield event("file_search_call.searching", **of_search)
        try:
            async for step in self.asked.steps():
                if isinstance(step, Found):
                    item = self.searched(step)
                    if self.body.tools:
                        yield event("file_search_call.completed", **of_search)
                        yield event("output_item.done", output_index=0, item=item)
                    yield event("output_item.added", output_index=at, item={**self.message, "content": []})
                    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                    yield event("content_part.added", **of_part, part=part)
                    continue
                text, last = text + step.text, step
                if step.text:
                    yield event("output_text.delta", **of_part, delta=step.text, logprobs=[])
                for citation in step.citations:
                    annotations.append(self.annotation(text, citation))
                    more = {"annotation_index": len(annotations) - 1, "annotation": annotations[-1]}
                    yield event("output_text.annotation.added", **of_part, **more)
            await self.finish(text, annotations, last)
        except Exception as exc:  # noqa: BLE001  the status has been sent
            problem = problem_of(exc)
            code = "rate_limit_exceeded" if problem.status == 429 else "server_error"
            error = {"code": code, "message": f"{problem.detail} {problem.remedy}".strip()}
            yield event("failed", response={**response, "status": "failed", "error": error})
            return
        [part] = self.message["content"]
        yield event("output_text.done", **of_part, text=text, logprobs=[])
        yield event("content_part.done", **of_part, part=part)
        yield event("output_item.done", output_index=at, item=self.message)
        yield event(response["status"], response=response)


@router.get("/responses/{response_id}")
async def get_response(response_id: common.Id, request: Request, principal: Reader, book: Book) -> Response:
    """Get a stored response."""
    return as_json((await service_of(request).run(_stored, book, principal, response_id))[0])


@router.delete("/responses/{response_id}")
async def delete_response(response_id: common.Id, request: Request, principal: Reader, book: Book) -> Response:
    """Delete a stored response."""
    run = service_of(request).run
    await run(_stored, book, principal, response_id)
    await run(book.write, "DELETE FROM answer WHERE id = ?", (response_id,))
    return as_json({"id": response_id, "object": "response", "deleted": True})


# Embeddings


class EmbeddingBody(common.Model):
    """Texts to embed."""

    model: Annotated[str, Field(max_length=200)]
    input: Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    input_type: Annotated[Literal["query", "document"], Field(description="Beside OpenAI's fields.")] = "document"
    user: str | None = None


@router.post("/embeddings")
async def embed(body: EmbeddingBody, request: Request, principal: Reader) -> Response:
    """Embed texts by the model of a set. Only the model's own number of `dimensions` is possible."""
    service, texts = service_of(request), [body.input] if isinstance(body.input, str) else body.input
    if not all(text.strip() for text in texts):
        raise ProblemError(400, "input must have no blank text.", "Leave blank texts out.", param="input")

    def work() -> dict[str, Any]:
        known = _embedders(sets_of(service, principal))
        if body.model not in known:
            raise no_model(body.model, known)
        embedder, calls = known[body.model], list[Usage]()
        _check_dimensions(body, embedder.embedder.dimension)
        usage_of_calls.set(calls)
        vectors = embedder.embed(texts, input_type=body.input_type)
        if not isinstance(vectors, np.ndarray):
            raise ProblemError(400, "The model's vectors are sparse.", "Search with them instead.", param="model")
        _check_dimensions(body, vectors.shape[1])
        # A function as a model reports no tokens: those are estimated.
        tokens = sum(one.prompt_tokens for one in calls) or sum(map(EstimatedTokenCounter().count, texts))
        rows = vectors.astype("<f4")
        shown = rows.tolist() if body.encoding_format == "float" else [base64.b64encode(one).decode() for one in rows]
        data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(shown)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body.model, "usage": usage}

    return as_json(await unless_gone(request, service.run(work)))


def _check_dimensions(body: EmbeddingBody, own: int | None) -> None:
    if body.dimensions is not None and own is not None and own != body.dimensions:
        msg = f"The model's vectors have {own} dimensions; got {body.dimensions}."
        raise ProblemError(400, msg, "Leave dimensions out.", param="dimensions")
