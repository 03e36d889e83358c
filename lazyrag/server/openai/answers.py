"""OpenAI's models, chat completions, responses with file search, and embeddings."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import itertools
import json
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, TypeVar

from fastapi import APIRouter, Request
from fastapi.sse import format_sse_event
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response, StreamingResponse

import lazyrag.server.openai.protocol as openai
from lazyrag.data.filters import FilterLike
from lazyrag.data.result import AnswerDelta, Citation, Hit
from lazyrag.document import Document
from lazyrag.generation.citations import cited_span, citing_markers, claim_before
from lazyrag.generation.generator import Generator
from lazyrag.generation.markers import scan
from lazyrag.generation.prompts import SYSTEM_EN, SYSTEM_ZH, Prompts
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import ChatOptions, Usage, usage_of_calls
from lazyrag.models.rerank import Bm25RerankModel
from lazyrag.pipeline import RAGPipeline
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.server.api.answers import Book, Notebook
from lazyrag.server.api.search import MAX_QUERY, MAX_TEXT
from lazyrag.server.api.uploads import Call, reply
from lazyrag.server.core.guard import ADD_EVENT, KEPT_S
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.service import passage_url
from lazyrag.server.openai.stores import open_store
from lazyrag.text.tokens import EstimatedTokenCounter

T = TypeVar("T")

router = APIRouter(prefix="/v1", tags=["openai"])
log = logging.getLogger("lazyrag.server")

TOPK = 6
"""Passages that the model reads, unless the request says another number."""
_GONE = 499  # the status of a request whose client has closed the connection

# Models


def model_name(model: Any, default: str) -> str:
    """The name of a model, by which requests call it."""
    names = [getattr(model, one, None) for one in ("model", "name")]
    return next((one for one in names if isinstance(one, str) and one), default)


def rerankers_of(call: Call) -> dict[str, Any]:
    """The models that rerank, by name: the configured one, and BM25, which needs none."""
    own = call.service.rerank
    return {"bm25": Bm25RerankModel()} | ({} if own is None else {model_name(own, "reranker"): own})


def _embedders(sets: Mapping[str, Document]) -> dict[str, CheckedEmbedder]:
    keys = {
        name: docs.reader.embedders(None) if docs.reader.embed_keys else []
        for name, docs in sets.items()
    }
    return {
        model_name(one.embedder, f"{name}.{one.key}"): one
        for name in reversed(keys)
        for one in keys[name]
    }


def _sets(call: Call) -> dict[str, Document]:
    return {
        name: call.service.view(name, call.principal) for name in call.service.names(call.principal)
    }


def set_named(call: Call, name: str, given: str | None = None) -> Document:
    """The set that the principal sees under a name, which was given as another text perhaps.

    Raises:
        ProblemError: 404 if there is none, 503 until it is open.
    """
    try:
        return call.service.view(name, call.principal)
    except ProblemError as problem:
        raise problem if problem.status == 503 else no_model(given or name) from None


def no_model(name: str) -> ProblemError:
    """The error for a model that does not exist, or that the principal does not see."""
    msg = f"The model {name!a:.100} does not exist or you do not have access to it."
    return ProblemError(
        404, msg, "GET /v1/models lists them.", param="model", code="model_not_found"
    )


def _models(call: Call) -> dict[str, dict[str, Any]]:
    sets = _sets(call)
    kinds = {"rerank": rerankers_of(call), "embedding": _embedders(sets), "set": sets}
    own = {"object": "model", "created": 0, "owned_by": "lazyrag"}
    return {
        name: {"id": name, **own, "kind": kind} for kind, names in kinds.items() for name in names
    }


@router.get("/models")
async def list_models(call: openai.Reading) -> Response:
    """List the models: the sets that the principal sees, which answer, and models that embed and
    rerank.
    """
    found = await call.run(_models, call)
    return reply({"object": "list", "data": [found[name] for name in sorted(found)]})


@router.get("/models/{model:path}")
async def get_model(model: str, call: openai.Reading) -> Response:
    """Get a model."""
    found = await call.run(_models, call)
    if model not in found:
        raise no_model(model)
    return reply(found[model])


# What chat completions and responses share

_Text = Annotated[str, Field(max_length=MAX_TEXT)]
"""Pydantic refuses halves of surrogate pairs in texts of limited length alone."""


class Part(BaseModel):
    """A piece of a message's content: a text."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: _Text = ""


class Turn(BaseModel):
    """A message, or a search before it. Clients send back what they got, so it may have more than
    is read here.
    """

    type: Literal["message", "file_search_call"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: _Text | list[Part] | None = None

    @property
    def text(self) -> str:
        """Its text."""
        return (
            self.content
            if isinstance(self.content, str)
            else "\n".join(part.text for part in self.content or ())
        )


def _optional(kind: Any, names: str) -> Any:
    """Fields that may be left out, or null."""
    return dict.fromkeys(names.split(), (Optional[kind], None))  # noqa: UP045  kind may be None


class TextFormat(BaseModel):
    """Answers are plain text."""

    type: Literal["text"] = "text"


_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Tokens = Annotated[int, Field(ge=1)]
_Empty = Annotated[list[Any], Field(max_length=0)]
# Nothing depends on the texts, and other values than these would change the answer in ways that it
# does not have.
_BOTH: Any = create_model(
    "_BOTH",
    __base__=openai.Model,
    model=(Annotated[str, Field(max_length=200)], ...),
    **_optional(Annotated[float, Field(ge=0, le=2)], "temperature"),
    **_optional(Annotated[float, Field(ge=0, le=1)], "top_p"),
    **_optional(bool, "stream parallel_tool_calls"),
    **_optional(openai.Metadata, "metadata"),
    **_optional(dict[str, Any], "stream_options"),
    **_optional(dict[_Text, _Text], "prompt_cache_options"),
    **_optional(
        _Text, "user safety_identifier service_tier prompt_cache_key prompt_cache_retention"
    ),
    **_optional(Literal[0], "top_logprobs"),
    **_optional(None, "moderation"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """A hit, with its set, its score from 0 to 1, and its file."""

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


@dataclass
class Asked:
    """A question, and where and how it is answered."""

    call: Call
    sets: dict[str, Document]
    turns: Sequence[Turn]
    instructions: str | None
    options: Mapping[str, Any]
    topk: int = TOPK
    filters: FilterLike | None = None
    threshold: float = 0.0
    weights: Sequence[float] | None = None
    found: list[Source] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = [turn.text for turn in self.turns if turn.role in ("system", "developer")]
        self.instructions = "".join(
            f"\n\n{text}" for text in [self.instructions or "", *own] if text.strip()
        )
        talk = [(turn.role, turn.text) for turn in self.turns if turn.role in ("user", "assistant")]
        self.question = ""
        self.history = [{"role": role, "content": text} for role, text in talk if text.strip()]
        if self.history and self.history[-1]["role"] == "user":
            self.question = str(self.history.pop()["content"])
        if not 0 < len(self.question) <= MAX_QUERY:
            msg = (
                f"The last message must be of the role 'user' and have 1 to {MAX_QUERY:,}"
                " characters."
            )
            raise ProblemError(400, msg, param="messages")
        if self.call.service.chat is None:
            msg = "The service has no chat model, so its sets can be searched and do not answer."
            remedy = "Set chat in [models] of the configuration."
            raise ProblemError(400, msg, remedy, param="model", code="no_chat_model")

    def usage(self, *names: str) -> dict[str, Any]:
        """The tokens of all calls of the chat model, under some names; {} if it reports none."""
        if not self.usages:
            return {}
        sums = [sum(one) for one in zip(*map(dataclasses.astuple, self.usages), strict=True)]
        return {"usage": dict(zip((*names, "total_tokens"), (*sums, sum(sums)), strict=True))}

    def retriever(self) -> Any:
        """The retriever of the sets.

        Raises:
            ProblemError: 400 if their chunks are of different groups.
        """
        service = self.call.service
        docs = tuple(self.sets.values())
        group, *others = {service.group_of(name) for name in self.sets}
        if others:
            raise ProblemError(
                400, "The vector stores have different chunks.", "Search each alone.", param="tools"
            )
        if self.weights is not None:
            return HybridRetriever.over(docs, group, weights=list(self.weights))
        return service.retriever(docs[0] if len(docs) == 1 else docs, group, "default", None, None)

    async def steps(self) -> AsyncGenerator[AnswerDelta | str, None]:
        """The query, when it has been searched, and the pieces of the answer."""
        chat = self.call.service.chat
        own = getattr(self.call.service.chat, "options", None)
        own = own if isinstance(own, ChatOptions) else ChatOptions()
        extra = {**(own.extra or {}), **self.options["extra"]}
        options = dataclasses.replace(own, n=1, **{**self.options, "extra": extra or None})
        prompts = Prompts(
            en=f"{SYSTEM_EN}{self.instructions}", zh=f"{SYSTEM_ZH}{self.instructions}"
        )
        retriever = await self.call.run(self.retriever)
        pipeline = RAGPipeline(
            retriever=retriever, generator=Generator(chat, options=options, prompts=prompts)
        )
        run = pipeline._run(self.question, self.history)  # in steps, as the search is an event
        usage_of_calls.set(self.usages)
        await run.condense()
        usage_of_calls.set(None)
        nodes = await run.retrieve(self.topk, self.filters)
        self.found = await self.call.run(self.sources, nodes.items, await run.result(nodes))
        yield run.search_query
        usage_of_calls.set(self.usages)
        room = max(2_000, 350 * self.topk) + len(self.question)  # tokens
        async with aclosing(
            run.deltas(None, room, None, [one.hit for one in self.found])
        ) as deltas:
            async for delta in deltas:
                yield delta

    def sources(self, nodes: Sequence[Any], hits: Sequence[Hit]) -> list[Source]:
        """The hits whose scores are high enough, with their files."""
        names = {id(docs.reader): name for name, docs in self.sets.items()}
        found = []
        by_keywords = not all(docs.reader.embed_keys for docs in self.sets.values())
        for node, hit in zip(nodes, hits, strict=True):
            name = names[id(node.reader)]
            score = openai.unit_score(hit.score, by_keywords=by_keywords)
            row = self.call.service.sets[name]._indexer.ledger.documents.find(hit.source)
            file = openai.file_id_of(hit.source, row.content_hash or "" if row else "")
            attributes = openai.attributes_of(node.segment.fields, self.sets[name].reader.fields)
            found += (
                [Source(name, hit, score, *file, attributes)] if score >= self.threshold else []
            )
        return found

    def cited(self, text: str, citation: Citation) -> tuple[Source, int, int, dict[str, str]]:
        """The source of a citation, start and end of its first mark, and what OpenAI's annotations
        do not have.
        """
        source = next(one for one in self.found if one.hit.id == citation.uid)
        markers = citing_markers(text, scan(text).markers, [one.hit for one in self.found])
        places = [(one.start, one.end) for one in markers if citation.index in one.numbers]
        start, end = places[0] if places else (len(text), len(text))
        words = cited_span(source.hit.text, claim_before(text[:start]))
        url = passage_url(self.call.request, source.set, citation.source, citation.uid, words)
        own = {
            "file_id": source.file_id,
            "quote": citation.text_snippet,
            "location": citation.location,
            "url": url,
        }
        return source, start, end, own


def _reason(delta: AnswerDelta) -> str:
    """Why the answer ended, in OpenAI's words."""
    generation: Any = delta.answer and delta.answer.generation
    found = generation and (generation.metadata or {}).get("finish_reason")
    return found if found in ("length", "content_filter") else "stop"


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await a result; if the client closes the connection meanwhile, the work is cancelled.

    Raises:
        ProblemError: 499 if it does.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = task, _ = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProblemError(_GONE, "The client closed the connection.")
        return task.result()
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _streamed(
    events: AsyncGenerator[tuple[str, Any], None],
    failed: Callable[[dict[str, Any]], tuple[str, Any]],
) -> Response:
    """A response of events, each with its name; an error is the last one."""

    def sent(name: str, data: Any) -> bytes:
        text = data if isinstance(data, str) else json.dumps(data)  # ASCII, see `reply`
        return format_sse_event(data_str=text, event=name or None)

    async def body() -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(events):
                async for event in events:
                    yield sent(*event)
        except Exception as exc:
            log.exception("a streamed answer failed")
            yield sent(*failed(problem_of(exc).as_openai()))

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(body(), media_type="text/event-stream", headers=headers)


# Chat completions

_PASSED = {
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "reasoning_effort",
    "verbosity",
}
_Stop = Annotated[str, Field(min_length=1)]
_CHAT: Any = create_model(
    "_CHAT",
    __base__=_BOTH,
    **_optional(_Tokens, "max_completion_tokens max_tokens"),
    **_optional(_Stop | Annotated[list[_Stop], Field(max_length=4)], "stop"),
    **_optional(Annotated[int, Field(ge=-(2**63), lt=2**63)], "seed"),
    **_optional(_Penalty, "frequency_penalty presence_penalty"),
    **_optional(dict[_Text, int], "logit_bias"),
    **_optional(_Text, "reasoning_effort verbosity"),
    **_optional(Literal[1], "n"),
    **_optional(Literal[False], "logprobs store"),
    **_optional(TextFormat, "response_format"),
    **_optional(list[Literal["text"]], "modalities"),
    **_optional(_Empty, "tools functions"),
    **_optional(Literal["none", "auto"], "tool_choice function_call"),
    **_optional(None, "audio prediction web_search_options"),
)


class ChatBody(_CHAT):  # type: ignore[misc]  # it is made at run time
    """A conversation with a set."""

    messages: list[Turn] = Field(min_length=1)

    def options(self) -> dict[str, Any]:
        """The options of the chat model."""
        found = {"max_tokens": self.max_completion_tokens or self.max_tokens, "seed": self.seed}
        found |= {
            "temperature": self.temperature,
            "stop": [self.stop] if isinstance(self.stop, str) else self.stop,
        }
        extra = self.model_dump(include=_PASSED, exclude_none=True)
        return {
            **{name: value for name, value in found.items() if value is not None},
            "extra": extra,
        }


@router.post("/chat/completions")
async def complete_chat(body: ChatBody, call: openai.Reading, book: Book) -> Response:
    """Answer from the set that `model` names, with citations as annotations of the message.

    `[1]` in the text cites a source. Its annotation has the URL of the file, and beside OpenAI's
    fields the file's id and the quotation. System messages are added to the service's own
    instructions.
    """
    sets = {body.model: await call.run(set_named, call, body.model)}
    chat = _Chat(body, Asked(call, sets, body.messages, None, body.options()))
    book.require_room(call.principal)
    book.join(asyncio.current_task(), call.principal)
    if body.stream:
        return _streamed(chat.chunks(), lambda error: ("", error))
    return reply(await unless_gone(call.request, chat.complete()))


class _Chat:
    """A chat completion, while it is written."""

    def __init__(self, body: ChatBody, asked: Asked) -> None:
        self.asked = asked
        self.with_usage = bool((body.stream_options or {}).get("include_usage"))
        self.head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": openai.now(),
            "model": body.model,
        }

    def annotations(self, text: str, citations: Sequence[Citation]) -> dict[str, Any]:
        """The citations of a text."""
        found = []
        for one in citations:
            _, start, end, own = self.asked.cited(text, one)
            cited = {
                "start_index": start,
                "end_index": end,
                "title": one.label,
                "url": own.pop("url"),
            }
            found.append({"type": "url_citation", "url_citation": cited, **own})
        return {"annotations": found}

    def shown(self, name: str, content: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        """The completion, or a chunk of it."""
        choice = {"index": 0, name: content, "logprobs": None, "finish_reason": reason}
        return {**self.head, "object": "chat.completion", "choices": [choice]}

    async def complete(self) -> dict[str, Any]:
        """The whole completion."""
        last: Any = [step async for step in self.asked.steps()][-1]
        text = last.answer.text
        cited = self.annotations(last.answer.text, last.answer.citations)
        message = {"role": "assistant", "content": text, "refusal": None, **cited}
        return self.shown("message", message, _reason(last)) | self.asked.usage(
            "prompt_tokens", "completion_tokens"
        )

    async def chunks(self) -> AsyncGenerator[tuple[str, Any], None]:
        """The pieces of the stream."""
        more = {"object": "chat.completion.chunk", **({"usage": None} if self.with_usage else {})}
        text = ""
        yield "", self.shown("delta", {"role": "assistant", "content": ""}, None) | more
        async for step in self.asked.steps():
            if isinstance(step, AnswerDelta):
                text += step.text
                cited = self.annotations(text, step.citations) if step.citations else {}
                reason = None if step.answer is None else _reason(step)
                yield "", self.shown("delta", {"content": step.text, **cited}, reason) | more
        if self.with_usage:
            usage = self.asked.usage("prompt_tokens", "completion_tokens")
            yield "", {**self.head, **more, "choices": [], **usage}
        yield "", "[DONE]"


# Responses


class HybridSearch(openai.Model):
    """Weights of vector search and keyword search."""

    embedding_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    text_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def weights(self) -> list[float]:
        """The weights in the order of the retrievers."""
        return [self.embedding_weight, self.text_weight]


class Ranking(openai.Model):
    """How results are ranked: there is one ranker."""

    ranker: Literal["none", "auto", "default-2024-11-15"] = "auto"
    score_threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    hybrid_search: HybridSearch | None = None


class FileSearch(openai.Model):
    """File search in vector stores: sets."""

    type: Literal["file_search"]
    vector_store_ids: Annotated[list[_Text], Field(min_length=1, max_length=16)]
    max_num_results: Annotated[int, Field(ge=1, le=50)] = TOPK
    filters: openai.Filters | None = None
    ranking_options: Ranking = Ranking()


class FileSearchChoice(openai.Model):
    """The tool by its name."""

    type: Literal["file_search"]


class Reasoning(BaseModel):
    """How much the chat model thinks."""

    effort: _Text | None = None


class TextOptions(BaseModel):
    """The form of the answer."""

    format: TextFormat = TextFormat()
    verbosity: _Text | None = None


_RESPONSE: Any = create_model(
    "_RESPONSE",
    __base__=_BOTH,
    **_optional(_Text, "instructions previous_response_id"),
    **_optional(_Tokens, "max_output_tokens max_tool_calls"),
    **_optional(list[_Text], "include"),
    **_optional(Literal["auto", "disabled"], "truncation"),
    **_optional(Literal[False], "background"),
    **_optional(None, "conversation context_management prompt"),
)


class ResponseBody(_RESPONSE):  # type: ignore[misc]  # it is made at run time
    """A question to vector stores by `file_search`, or to the set that `model` names."""

    input: _Text | list[Turn]
    store: bool | None = True
    tools: list[FileSearch] = Field(default=[], max_length=1)
    tool_choice: Literal["auto", "required"] | FileSearchChoice = "auto"
    reasoning: Reasoning = Reasoning()
    text: TextOptions = TextOptions()

    async def asked(self, call: Call, before: Sequence[Turn]) -> Asked:
        """The question with all that belongs to it; ``before`` is the conversation before it.

        Raises:
            ProblemError: 404 if there is no such model or vector store that the principal sees.
        """
        extra = {
            "top_p": self.top_p,
            "reasoning_effort": self.reasoning.effort,
            "verbosity": self.text.verbosity,
        }
        given = {"temperature": self.temperature, "max_tokens": self.max_output_tokens}
        options: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        options["extra"] = {name: value for name, value in extra.items() if value is not None}
        turns = (
            [Turn(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        )
        is_chat = self.tools and self.model == model_name(call.service.chat, "chat")
        sets = {} if is_chat else {self.model: await call.run(set_named, call, self.model)}
        asked = Asked(call, sets, [*before, *turns], self.instructions, options)
        for tool in self.tools:
            ranking = tool.ranking_options
            asked.sets = {}
            filters = []
            asked.topk = tool.max_num_results
            asked.threshold = ranking.score_threshold
            asked.weights = ranking.hybrid_search.weights() if ranking.hybrid_search else None
            for one in tool.vector_store_ids:
                store = await open_store(call, one)
                await call.run(store.use)
                asked.sets[store.call.name] = store.call.docs
                filters.append(openai.filter_of(tool.filters, store.call.docs.reader.fields))
            asked.filters = filters[0]
            if any(one != filters[0] for one in filters):
                msg = "The vector stores have other fields, so one filter cannot serve all of them."
                raise ProblemError(400, msg, "Search each alone.", param="tools")
        return asked


_RESPONSE_OF = (
    "SELECT data FROM event JOIN answer ON answer.id = answer WHERE id = ? AND owner = ? AND"
    " created > ?"
)


def _stored(book: Notebook, call: Call, response: str) -> list[Any]:
    """A stored response, and the conversation with it.

    Raises:
        ProblemError: 404 if the principal has no such response.
    """
    rows = book.rows(
        f"{_RESPONSE_OF} ORDER BY number", response, _owner(call), time.time() - KEPT_S
    )
    if not rows:
        remedy = f"Responses are stored for {KEPT_S / 60:.0f} minutes, for those who asked."
        raise ProblemError(
            404, f"Response with id {response!a:.100} not found.", remedy, param="response_id"
        )
    return [json.loads(data) for [data] in rows]


def _store(book: Notebook, call: Call, response: Mapping[str, Any], *values: Any) -> None:
    """Store a response and more, as answers are stored: it quotes documents, so not for long."""
    row = response["id"], _owner(call), time.time(), response["created_at"]
    # Not what may quote a document that was purged meanwhile, see `forget_answers`.
    purged = """SELECT 1 FROM answer WHERE owner = '["purge"]' AND created >= ?4"""
    book.write(f"INSERT INTO answer SELECT ?1, ?2, '', ?3, ?3 WHERE NOT EXISTS ({purged})", row)
    rows = [
        (response["id"], at, "", json.dumps(one, ensure_ascii=False))
        for at, one in enumerate((response, *values))
    ]
    book.write(ADD_EVENT, *rows)


def _owner(call: Call) -> str:
    return json.dumps(["/v1/responses", call.principal.id, call.principal.labels])


@router.post("/responses")
async def respond(body: ResponseBody, call: openai.Reading, book: Book) -> Response:
    """Answer from vector stores by the tool `file_search`, or from the set that `model` names.

    Every question is searched: the model has no choice. `[1]` in the text cites a source; its
    annotation has the id of the file and the place of the mark. With `store`, which is the default,
    a response can be read and continued for 15 minutes by who asked.
    """
    previous = body.previous_response_id
    before = [] if previous is None else (await call.run(_stored, book, call, previous))[1]
    writing = _Writing(body, await body.asked(call, [Turn(**one) for one in before]), book)
    book.require_room(call.principal)
    book.join(asyncio.current_task(), call.principal)
    if body.stream:
        return _streamed(writing.events(), writing.failed)
    return reply(await unless_gone(call.request, writing.complete()))


class _Writing:
    """A response, while it is written."""

    def __init__(self, body: ResponseBody, asked: Asked, book: Notebook) -> None:
        self.body = body
        self.asked = asked
        self.book = book
        self.numbers = itertools.count()
        own = uuid.uuid4().hex
        self.search: dict[str, Any] = {"type": "file_search_call", "id": f"fs_{own}", "queries": []}
        self.message: dict[str, Any] = {
            "type": "message",
            "id": f"msg_{own}",
            "role": "assistant",
            "content": [],
        }
        nulls = dict.fromkeys(
            ["error", "incomplete_details", "instructions", "temperature", "top_p"]
        )
        defaults = {"metadata": {}, "parallel_tool_calls": True, "store": False, "output": []}
        given = body.model_dump(
            exclude={"input", "include", "stream", "stream_options"}, exclude_none=True
        )
        head = {
            "id": f"resp_{own}",
            "object": "response",
            "created_at": openai.now(),
            "status": "in_progress",
        }
        self.response: dict[str, Any] = {**nulls, **defaults, **given, **head}

    def event(self, kind: str, at: int | None = None, **data: Any) -> tuple[str, Any]:
        """An event, of the output item at a place."""
        where = {} if at is None else {"output_index": at}
        if at is not None and "item" not in data:
            where |= {
                "item_id": (self.search, self.message)[at]["id"],
                **({"content_index": 0} if at else {}),
            }
        name = f"response.{kind}"
        return name, {"type": name, "sequence_number": next(self.numbers), **where, **data}

    def failed(self, error: dict[str, Any]) -> tuple[str, Any]:
        """The event of an error."""
        about = {"code": "server_error", "message": error["error"]["message"]}
        return self.event("failed", response={**self.response, "status": "failed", "error": about})

    def annotation(self, text: str, citation: Citation) -> dict[str, Any]:
        """The annotation of a citation; the quotation and its location are beside OpenAI's
        fields.
        """
        source, start, _, own = self.asked.cited(text, citation)
        return {"type": "file_citation", "index": start, "filename": source.filename, **own}

    async def complete(self) -> dict[str, Any]:
        """The whole response."""
        async with aclosing(self.events()) as events:
            last = [data async for _, data in events][-1]
        found: dict[str, Any] = last["response"]
        return found

    async def events(self) -> AsyncGenerator[tuple[str, Any], None]:
        """The events of the response; without a stream the text is the one that the whole answer
        gives.
        """
        event = self.event
        text = ""
        cited = list[dict[str, Any]]()
        part: dict[str, Any] = {
            "type": "output_text",
            "text": "",
            "annotations": [],
            "logprobs": [],
        }
        for kind in ("created", "in_progress"):
            yield event(kind, response=self.response)
        yield event("output_item.added", 0, item={**self.search, "status": "in_progress"})
        for kind in ("in_progress", "searching"):
            yield event(f"file_search_call.{kind}", 0)
        async for step in self.asked.steps():
            if isinstance(step, str):
                yield event("file_search_call.completed", 0)
                yield event("output_item.done", 0, item=self.searched(step))
                yield event("output_item.added", 1, item={**self.message, "status": "in_progress"})
                yield event("content_part.added", 1, part=part)
                continue
            text = text + step.text
            last = step
            if step.text:
                yield event("output_text.delta", 1, delta=step.text, logprobs=[])
            for at, one in enumerate(step.citations, len(cited)):
                cited.append(self.annotation(text, one))
                yield event(
                    "output_text.annotation.added", 1, annotation_index=at, annotation=cited[at]
                )
        if not self.body.stream:
            text = last.answer.text
            cited = [self.annotation(last.answer.text, one) for one in last.answer.citations]
        part = part | {"text": text, "annotations": cited}
        await self.finish(part, _reason(last))
        yield event("output_text.done", 1, text=text, logprobs=[])
        yield event("content_part.done", 1, part=part)
        yield event("output_item.done", 1, item=self.message)
        yield event(self.response["status"], response=self.response)

    def searched(self, query: str) -> dict[str, Any]:
        """The item of the search."""
        included = "file_search_call.results" in (self.body.include or ())
        results = [one.result() for one in self.asked.found] if included else None
        self.search |= {"status": "completed", "queries": [query], "results": results}
        return self.search

    async def finish(self, part: dict[str, Any], reason: str) -> None:
        """Complete the response, and store it."""
        why = {"length": "max_output_tokens"}.get(reason, reason)
        status = {"status": "completed" if why == "stop" else "incomplete"}
        self.message |= {"content": [part], **status}
        self.response |= {
            "output": [self.search, self.message],
            **status,
            **self.asked.usage("input_tokens", "output_tokens"),
        }
        if why != "stop":
            self.response["incomplete_details"] = {"reason": why}
        if "usage" in self.response:  # what models report has no details
            self.response["usage"]["input_tokens_details"] = {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
            }
            self.response["usage"]["output_tokens_details"] = {"reasoning_tokens": 0}
        if self.body.store:
            own = [
                {"role": "user", "content": self.asked.question},
                {"role": "assistant", "content": part["text"]},
            ]
            await self.asked.call.run(
                _store, self.book, self.asked.call, self.response, self.asked.history + own
            )


@router.get("/responses/{response_id}")
async def get_response(response_id: openai.Id, call: openai.Reading, book: Book) -> Response:
    """Get a stored response."""
    return reply((await call.run(_stored, book, call, response_id))[0])


@router.delete("/responses/{response_id}")
async def delete_response(response_id: openai.Id, call: openai.Reading, book: Book) -> Response:
    """Delete a stored response."""
    await call.run(_stored, book, call, response_id)
    await call.run(book.write, "DELETE FROM answer WHERE id = ?", (response_id,))
    return reply({"id": response_id, "object": "response", "deleted": True})


# Embeddings


class EmbeddingBody(openai.Model):
    """Texts to embed."""

    model: Annotated[str, Field(max_length=200)]
    input: (
        Annotated[_Text, Field(min_length=1)]
        | Annotated[list[_Text], Field(min_length=1, max_length=2048)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    input_type: Annotated[
        Literal["query", "document"], Field(description="Beside OpenAI's fields.")
    ] = "document"
    user: str | None = None


@router.post("/embeddings")
async def embed(body: EmbeddingBody, call: openai.Reading) -> Response:
    """Embed texts by the model of a set. Only the model's own number of `dimensions` is
    possible.
    """
    texts = [body.input] if isinstance(body.input, str) else body.input
    calls = list[Usage]()
    if not all(text.strip() for text in texts):
        raise ProblemError(
            400, "input must have no blank text.", "Leave blank texts out.", param="input"
        )

    def work() -> dict[str, Any]:
        embedder = _embedders(_sets(call)).get(body.model)
        if embedder is None:
            if body.model in _sets(call):
                msg = f"{body.model} is a set, which answers and does not embed."
                raise ProblemError(
                    400,
                    msg,
                    "GET /v1/models lists the models of the kind 'embedding'.",
                    param="model",
                )
            raise no_model(body.model)
        usage_of_calls.set(calls)
        vectors: Any = embedder.embed(texts, input_type=body.input_type)
        length = None if isinstance(vectors, list) else vectors.shape[1]
        if length is None or body.dimensions not in (None, length):
            has = "are sparse" if length is None else f"have {length} dimensions"
            raise ProblemError(
                400, f"The vectors of the model {has}.", "Leave dimensions out.", param="dimensions"
            )
        rows = vectors.astype("<f4")
        shown = (
            rows.tolist()
            if body.encoding_format == "float"
            else [base64.b64encode(one).decode() for one in rows]
        )
        # A function as a model reports no tokens: those are estimated.
        tokens = sum(one.prompt_tokens for one in calls) or sum(
            map(EstimatedTokenCounter().count, texts)
        )
        data = [
            {"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(shown)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": body.model, "usage": usage}

    return reply(await unless_gone(call.request, call.run(work)))
