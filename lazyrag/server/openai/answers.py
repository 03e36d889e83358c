"""OpenAI's chat completions, and responses with file search."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import logging
import math
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.sse import format_sse_event
from pydantic import BaseModel, Field
from starlette.responses import Response

import lazyrag.server.openai.protocol as openai
from lazyrag.data.encoding import to_dict
from lazyrag.data.filters import FilterLike
from lazyrag.data.result import Answer, AnswerDelta, Citation, Hit, Statement
from lazyrag.document import Document
from lazyrag.generation.citations import cited_span, citing_markers, claim_before
from lazyrag.generation.generator import Generator
from lazyrag.generation.markers import scan
from lazyrag.generation.prompts import SYSTEM_EN, SYSTEM_ZH, Prompts
from lazyrag.models.protocols import ChatOptions, Usage, usage_of_calls
from lazyrag.pipeline import RAGPipeline
from lazyrag.pipeline.run import Run
from lazyrag.pipeline.search import RetrievedItems
from lazyrag.read.rows import document_table
from lazyrag.retrieval.hybrid import HybridRetriever
from lazyrag.server.api.answers import event_stream
from lazyrag.server.api.search import MAX_QUERY
from lazyrag.server.core.body import Name
from lazyrag.server.core.guard import ADD_EVENT, KEPT_S
from lazyrag.server.core.notebook import owner_of
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.service import passage_url
from lazyrag.server.core.set_request import SetRequest, reply
from lazyrag.server.openai.models import model_name, set_named
from lazyrag.server.openai.protocol import LongText, unless_gone
from lazyrag.server.openai.stores import RankingOptions, open_store
from lazyrag.types import JsonObject
from lazyrag.validation import without_none

router = APIRouter(prefix="/v1", tags=["openai"])
log = logging.getLogger("lazyrag.server")

TOPK = 6
"""Passages that the model reads, unless the request says another number."""
# What chat completions and responses share


class MessagePart(BaseModel):
    """A piece of a message's content: a text."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: LongText = ""


class InputMessage(BaseModel):
    """A message, or a search before it. Clients send back what they got, so it may have more than
    is read here.
    """

    type: Literal["message", "file_search_call"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: LongText | list[MessagePart] | None = None

    @property
    def text(self) -> str:
        """Its text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or ())


class TextFormat(BaseModel):
    """Answers are plain text."""

    type: Literal["text"] = "text"


_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Tokens = Annotated[int, Field(ge=1)]
_Empty = Annotated[list[Any], Field(max_length=0)]


# Nothing depends on the texts, and other values than these would change the answer in ways that it
# does not have.
class _AnswerBody(openai.Model):
    model: Name
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stream: bool | None = None
    parallel_tool_calls: bool | None = None
    metadata: openai.Metadata = None
    stream_options: JsonObject | None = None
    prompt_cache_options: dict[LongText, LongText] | None = None
    user: LongText | None = None
    safety_identifier: LongText | None = None
    service_tier: LongText | None = None
    prompt_cache_key: LongText | None = None
    prompt_cache_retention: LongText | None = None
    top_logprobs: Literal[0] | None = None
    moderation: None = None


@dataclass(frozen=True, slots=True)
class ScoredHit:
    """A hit, with its set, its score from 0 to 1, and its file."""

    set: str
    hit: Hit
    score: float
    file_id: str
    filename: str
    attributes: JsonObject

    def result(self) -> JsonObject:
        """As a result of file search; the raw score and the location are beside OpenAI's fields."""
        return {
            "file_id": self.file_id,
            "filename": self.filename,
            "score": self.score,
            "attributes": self.attributes,
            "text": self.hit.text,
            "raw_score": None if math.isnan(self.hit.score) else self.hit.score,
            "location": self.hit.location,
            "superseded_by": self.hit.metadata.get("superseded_by", ""),
        }


@dataclass
class AnswerRequest:
    """A question, and where and how it is answered."""

    call: SetRequest
    sets: dict[str, Document]
    turns: Sequence[InputMessage]
    instructions: str | None
    options: JsonObject
    topk: int = TOPK
    filters: FilterLike | None = None
    threshold: float = 0.0
    weights: Sequence[float] | None = None
    sources: list[ScoredHit] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)

    def __post_init__(self) -> None:
        instructions = [self.instructions or ""]
        self.history = list[dict[str, str]]()
        for turn in self.turns:
            if turn.role in ("system", "developer"):
                instructions.append(turn.text)
            elif turn.role is not None and turn.text.strip():
                self.history.append({"role": turn.role, "content": turn.text})
        self.instructions = "".join(f"\n\n{text}" for text in instructions if text.strip())
        self.question = ""
        if self.history and self.history[-1]["role"] == "user":
            self.question = self.history.pop()["content"]
        if not 0 < len(self.question) <= MAX_QUERY:
            msg = (
                f"The last message must be of the role 'user' and have 1 to {MAX_QUERY:,}"
                " characters."
            )
            raise ProblemError(400, msg, param="messages")

    def usage(self, *names: str) -> JsonObject:
        """The tokens of all calls of the chat model, under some names; {} if it reports none."""
        if not self.usages:
            return {}
        sums = [sum(counts) for counts in zip(*map(dataclasses.astuple, self.usages), strict=True)]
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
        return service.default_retriever(docs[0] if len(docs) == 1 else docs, group)

    def generator(self) -> Generator | None:
        """What answers with the chat model; None without one."""
        chat = self.call.service.chat
        if chat is None:
            return None
        defaults = getattr(chat, "options", None)
        if not isinstance(defaults, ChatOptions):
            defaults = ChatOptions()
        extra = {**(defaults.extra or {}), **self.options["extra"]}
        options = dataclasses.replace(defaults, n=1, **{**self.options, "extra": extra or None})
        prompts = Prompts(
            en=f"{SYSTEM_EN}{self.instructions}", zh=f"{SYSTEM_ZH}{self.instructions}"
        )
        return Generator(chat, options=options, prompts=prompts)

    async def steps(self) -> AsyncGenerator[AnswerDelta | str, None]:
        """The query, when it has been searched, and the pieces of the answer."""
        generator = self.generator()
        retriever = await self.call.run(self.retriever)
        pipeline = RAGPipeline(retriever=retriever, generator=generator)
        run = pipeline._run(self.question, self.history)  # in steps, as the search is an event
        usage_of_calls.set(self.usages)
        await run.condense()
        usage_of_calls.set(None)
        nodes: Any = (await run.retrieve(self.topk, self.filters)).items
        self.sources = await self.find_sources(run, nodes, self.threshold)
        yield run.search_query
        room = max(2_000, 350 * self.topk) + len(self.question)  # tokens
        if generator is None:
            room = run.tokens_to_quote()
            uids = {source.hit.id for source in self.sources}
            best = RetrievedItems([node for node in nodes if node.uid in uids])
            neighbours = (await best.with_neighbours()).items[len(best.items) :]
            self.sources += await self.find_sources(run, neighbours, 0.0)
        usage_of_calls.set(self.usages)
        hits = [source.hit for source in self.sources]
        async with aclosing(run.deltas(None, room, None, hits)) as deltas:
            async for delta in deltas:
                yield delta

    async def find_sources(
        self, run: Run, nodes: Sequence[Any], threshold: float
    ) -> list[ScoredHit]:
        """The nodes whose scores are high enough, with their files."""
        hits = await run.result(RetrievedItems(nodes))
        return await self.call.run(self._scored, nodes, hits, threshold)

    def _scored(
        self, nodes: Sequence[Any], hits: Sequence[Hit], threshold: float
    ) -> list[ScoredHit]:
        names = {id(docs.reader): name for name, docs in self.sets.items()}
        by_keywords = not all(docs.reader.embed_keys for docs in self.sets.values())
        sources = []
        for node, hit in zip(nodes, hits, strict=True):
            score = openai.unit_score(hit.score, by_keywords=by_keywords)
            if score < threshold:
                continue
            name = names[id(node.reader)]
            row = document_table(self.call.service.sets[name].reader).find(hit.source)
            file = openai.file_id_of(hit.source, row.content_hash or "" if row else "")
            attributes = openai.attributes_of(node.segment.fields, self.sets[name].reader.fields)
            sources.append(ScoredHit(name, hit, score, *file, attributes))
        return sources

    def cited(self, text: str, citation: Citation) -> tuple[ScoredHit, int, int, dict[str, str]]:
        """The source of a citation, start and end of its first mark, and what OpenAI's annotations
        do not have.
        """
        source = next(source for source in self.sources if source.hit.id == citation.uid)
        markers = citing_markers(text, scan(text).markers, [source.hit for source in self.sources])
        start = end = len(text)
        for marker in markers:
            if citation.index in marker.numbers:
                start = marker.start
                end = marker.end
                break
        words = cited_span(source.hit.text, claim_before(text[:start]))
        url = passage_url(self.call.request, source.set, citation.source, citation.uid, words)
        details = {
            "file_id": source.file_id,
            "quote": citation.text_snippet,
            "location": citation.location,
            "superseded_by": source.hit.metadata.get("superseded_by", ""),
            "url": url,
        }
        return source, start, end, details


def _verdicts(statements: Sequence[Statement], answer: Answer | None) -> JsonObject:
    """The field beside OpenAI's: statements with their verdicts, and of a complete answer whether
    it is weak.
    """
    fields = {"statements": to_dict(statements)} if statements else {}
    if answer is not None:
        fields["weak"] = answer.weak
    return {"lazyrag": fields} if fields else {}


def _reason(delta: AnswerDelta) -> str:
    """Why the answer ended, in OpenAI's words."""
    generation: Any = delta.answer and delta.answer.generation
    reason = generation and (generation.metadata or {}).get("finish_reason")
    return reason if reason in ("length", "content_filter") else "stop"


def _streamed(
    events: AsyncGenerator[tuple[str, Any], None],
    failed: Callable[[JsonObject], tuple[str, Any]],
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

    return event_stream(body())


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


class ChatBody(_AnswerBody):
    """A conversation with a set."""

    max_completion_tokens: _Tokens | None = None
    max_tokens: _Tokens | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    logit_bias: dict[LongText, int] | None = None
    reasoning_effort: LongText | None = None
    verbosity: LongText | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    store: Literal[False] | None = None
    response_format: TextFormat | None = None
    modalities: list[Literal["text"]] | None = None
    tools: _Empty | None = None
    functions: _Empty | None = None
    tool_choice: Literal["none", "auto"] | None = None
    function_call: Literal["none", "auto"] | None = None
    audio: None = None
    prediction: None = None
    web_search_options: None = None
    messages: list[InputMessage] = Field(min_length=1)

    def options(self) -> JsonObject:
        """The options of the chat model."""
        options = {
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "seed": self.seed,
            "temperature": self.temperature,
            "stop": [self.stop] if isinstance(self.stop, str) else self.stop,
        }
        extra = self.model_dump(include=_PASSED, exclude_none=True)
        return {**without_none(options), "extra": extra}


@router.post("/chat/completions")
async def complete_chat(body: ChatBody, call: openai.Reading) -> Response:
    """Answer from the set that `model` names, with citations as annotations of the message.

    `[1]` in the text cites a source. Its annotation has the URL of the file, and beside OpenAI's
    fields the file's id and the quotation. System messages are added to the service's own
    instructions.
    """
    sets = {body.model: await call.run(set_named, call, body.model)}
    chat = _ChatWriter(body, AnswerRequest(call, sets, body.messages, None, body.options()))
    call.book.require_room(call.principal)
    call.book.join(asyncio.current_task(), call.principal)
    if body.stream:
        return _streamed(chat.chunks(), lambda error: ("", error))
    return reply(await unless_gone(call.request, chat.complete()))


class _ChatWriter:
    """A chat completion, while it is written."""

    def __init__(self, body: ChatBody, request: AnswerRequest) -> None:
        self.request = request
        self.with_usage = bool((body.stream_options or {}).get("include_usage"))
        self.head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": openai.now(),
            "model": body.model,
        }

    def annotations(self, text: str, citations: Sequence[Citation]) -> JsonObject:
        """The citations of a text."""
        annotations = []
        for citation in citations:
            _, start, end, details = self.request.cited(text, citation)
            cited = {
                "start_index": start,
                "end_index": end,
                "title": citation.label,
                "url": details.pop("url"),
            }
            annotations.append({"type": "url_citation", "url_citation": cited, **details})
        return {"annotations": annotations}

    def completion(self, name: str, content: JsonObject, reason: str | None) -> JsonObject:
        """The completion, or a chunk of it."""
        choice = {"index": 0, name: content, "logprobs": None, "finish_reason": reason}
        return {**self.head, "object": "chat.completion", "choices": [choice]}

    async def complete(self) -> JsonObject:
        """The whole completion."""
        last: Any = [step async for step in self.request.steps()][-1]
        text = last.answer.text
        cited = self.annotations(last.answer.text, last.answer.citations)
        cited |= _verdicts(last.answer.statements, last.answer)
        message = {"role": "assistant", "content": text, "refusal": None, **cited}
        return self.completion("message", message, _reason(last)) | self.request.usage(
            "prompt_tokens", "completion_tokens"
        )

    async def chunks(self) -> AsyncGenerator[tuple[str, Any], None]:
        """The pieces of the stream."""
        more = {"object": "chat.completion.chunk", **({"usage": None} if self.with_usage else {})}
        text = ""
        yield "", self.completion("delta", {"role": "assistant", "content": ""}, None) | more
        async for step in self.request.steps():
            if isinstance(step, AnswerDelta):
                text += step.text
                cited = self.annotations(text, step.citations) if step.citations else {}
                cited |= _verdicts(step.statements, step.answer)
                reason = None if step.answer is None else _reason(step)
                yield "", self.completion("delta", {"content": step.text, **cited}, reason) | more
        if self.with_usage:
            usage = self.request.usage("prompt_tokens", "completion_tokens")
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


class Ranking(RankingOptions):
    """How results are ranked: there is one ranker."""

    hybrid_search: HybridSearch | None = None


class FileSearch(openai.Model):
    """File search in vector stores: sets."""

    type: Literal["file_search"]
    vector_store_ids: Annotated[list[LongText], Field(min_length=1, max_length=16)]
    max_num_results: Annotated[int, Field(ge=1, le=50)] = TOPK
    filters: openai.Filters | None = None
    ranking_options: Ranking = Ranking()


class FileSearchChoice(openai.Model):
    """The tool by its name."""

    type: Literal["file_search"]


class Reasoning(BaseModel):
    """How much the chat model thinks."""

    effort: LongText | None = None


class TextOptions(BaseModel):
    """The form of the answer."""

    format: TextFormat = TextFormat()
    verbosity: LongText | None = None


class ResponseBody(_AnswerBody):
    """A question to vector stores by `file_search`, or to the set that `model` names."""

    instructions: LongText | None = None
    previous_response_id: LongText | None = None
    max_output_tokens: _Tokens | None = None
    max_tool_calls: _Tokens | None = None
    include: list[LongText] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    background: Literal[False] | None = None
    conversation: None = None
    context_management: None = None
    prompt: None = None
    input: LongText | list[InputMessage]
    store: bool | None = True
    tools: list[FileSearch] = Field(default=[], max_length=1)
    tool_choice: Literal["auto", "required"] | FileSearchChoice = "auto"
    reasoning: Reasoning = Reasoning()
    text: TextOptions = TextOptions()

    async def answer_request(
        self, call: SetRequest, before: Sequence[InputMessage]
    ) -> AnswerRequest:
        """The question with all that belongs to it; ``before`` is the conversation before it.

        Raises:
            ProblemError: 404 if there is no such model or vector store that the principal sees.
        """
        extra = {
            "top_p": self.top_p,
            "reasoning_effort": self.reasoning.effort,
            "verbosity": self.text.verbosity,
        }
        options = {"temperature": self.temperature, "max_tokens": self.max_output_tokens}
        chat_options = {**without_none(options), "extra": without_none(extra)}
        turns = self.input
        if isinstance(turns, str):
            turns = [InputMessage(role="user", content=turns)]
        is_chat = self.tools and self.model == model_name(call.service.chat, "chat")
        sets = {} if is_chat else {self.model: await call.run(set_named, call, self.model)}
        request = AnswerRequest(call, sets, [*before, *turns], self.instructions, chat_options)
        for tool in self.tools:
            ranking = tool.ranking_options
            request.sets = {}
            filters = []
            request.topk = tool.max_num_results
            request.threshold = ranking.score_threshold
            request.weights = ranking.hybrid_search.weights() if ranking.hybrid_search else None
            for store_id in tool.vector_store_ids:
                store = await open_store(call, store_id)
                await call.run(store.use)
                request.sets[store.call.name] = store.call.docs
                filters.append(openai.filter_of(tool.filters, store.call.docs.reader.fields))
            request.filters = filters[0]
            if filters.count(filters[0]) < len(filters):
                msg = "The vector stores have other fields, so one filter cannot serve all of them."
                raise ProblemError(400, msg, "Search each alone.", param="tools")
        return request


_RESPONSES = "/v1/responses"
_RESPONSE_OF = (
    "SELECT data FROM event JOIN answer ON answer.id = answer WHERE id = ? AND owner = ? AND"
    " created > ?"
)


def _stored(call: SetRequest, response: str) -> list[Any]:
    """A stored response, and the conversation with it.

    Raises:
        ProblemError: 404 if the principal has no such response.
    """
    rows = call.book.rows(
        f"{_RESPONSE_OF} ORDER BY number",
        response,
        owner_of(call.principal, _RESPONSES),
        time.time() - KEPT_S,
    )
    if not rows:
        remedy = f"Responses are stored for {KEPT_S / 60:.0f} minutes, for those who asked."
        raise ProblemError(
            404, f"Response with id {response!a:.100} not found.", remedy, param="response_id"
        )
    return [json.loads(data) for [data] in rows]


def _store(call: SetRequest, response: JsonObject, *values: Any) -> None:
    """Store a response and more, as answers are stored: it quotes documents, so not for long."""
    row = response["id"], owner_of(call.principal, _RESPONSES), time.time(), response["created_at"]
    # Not what may quote a document that was purged meanwhile, see `forget_answers`.
    purged = """SELECT 1 FROM answer WHERE owner = '["purge"]' AND created >= ?4"""
    call.book.write(
        f"INSERT INTO answer SELECT ?1, ?2, '', ?3, ?3 WHERE NOT EXISTS ({purged})", row
    )
    rows = [
        (response["id"], number, "", json.dumps(value, ensure_ascii=False))
        for number, value in enumerate((response, *values))
    ]
    call.book.write(ADD_EVENT, *rows)


@router.post("/responses")
async def respond(body: ResponseBody, call: openai.Reading) -> Response:
    """Answer from vector stores by the tool `file_search`, or from the set that `model` names.

    Every question is searched: the model has no choice. `[1]` in the text cites a source; its
    annotation has the id of the file and the place of the mark. With `store`, which is the default,
    a response can be read and continued for 15 minutes by who asked.
    """
    previous = body.previous_response_id
    before = [] if previous is None else (await call.run(_stored, call, previous))[1]
    writer = _ResponseWriter(
        body, await body.answer_request(call, [InputMessage(**turn) for turn in before])
    )
    call.book.require_room(call.principal)
    call.book.join(asyncio.current_task(), call.principal)
    if body.stream:
        return _streamed(writer.events(), writer.failed)
    return reply(await unless_gone(call.request, writer.complete()))


_NULLS = ("error", "incomplete_details", "instructions", "temperature", "top_p")


class _ResponseWriter:
    """A response, while it is written."""

    def __init__(self, body: ResponseBody, request: AnswerRequest) -> None:
        self.body = body
        self.request = request
        self.numbers = itertools.count()
        key = uuid.uuid4().hex
        self.search: JsonObject = {"type": "file_search_call", "id": f"fs_{key}", "queries": []}
        self.message: JsonObject = {
            "type": "message",
            "id": f"msg_{key}",
            "role": "assistant",
            "content": [],
        }
        nulls = dict.fromkeys(_NULLS)
        defaults = {"metadata": {}, "parallel_tool_calls": True, "store": False, "output": []}
        settings = body.model_dump(
            exclude={"input", "include", "stream", "stream_options"}, exclude_none=True
        )
        head = {
            "id": f"resp_{key}",
            "object": "response",
            "created_at": openai.now(),
            "status": "in_progress",
        }
        self.response: JsonObject = {**nulls, **defaults, **settings, **head}

    def event(self, kind: str, at: int | None = None, **data: Any) -> tuple[str, Any]:
        """An event, of the output item at a place."""
        where: JsonObject = {}
        if at is not None:
            where["output_index"] = at
            if "item" not in data:
                where["item_id"] = (self.message if at else self.search)["id"]
                if at:
                    where["content_index"] = 0
        name = f"response.{kind}"
        return name, {"type": name, "sequence_number": next(self.numbers), **where, **data}

    def failed(self, error: JsonObject) -> tuple[str, Any]:
        """The event of an error."""
        about = {"code": "server_error", "message": error["error"]["message"]}
        return self.event("failed", response={**self.response, "status": "failed", "error": about})

    def annotation(self, text: str, citation: Citation) -> JsonObject:
        """The annotation of a citation; the quotation and its location are beside OpenAI's
        fields.
        """
        source, start, _, details = self.request.cited(text, citation)
        return {"type": "file_citation", "index": start, "filename": source.filename, **details}

    async def complete(self) -> JsonObject:
        """The whole response."""
        async with aclosing(self.events()) as events:
            last = [data async for _, data in events][-1]
        response: JsonObject = last["response"]
        return response

    async def events(self) -> AsyncGenerator[tuple[str, Any], None]:
        """The events of the response; without a stream the text is the one that the whole answer
        gives.
        """
        event = self.event
        text = ""
        cited = list[JsonObject]()
        part: JsonObject = {
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
        async for step in self.request.steps():
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
            for index, citation in enumerate(step.citations, len(cited)):
                cited.append(self.annotation(text, citation))
                yield event(
                    "output_text.annotation.added",
                    1,
                    annotation_index=index,
                    annotation=cited[index],
                )
        if not self.body.stream:
            text = last.answer.text
            cited = [
                self.annotation(last.answer.text, citation) for citation in last.answer.citations
            ]
        verdicts = _verdicts(last.answer.statements, last.answer)
        part = part | {"text": text, "annotations": cited, **verdicts}
        await self.finish(part, _reason(last))
        yield event("output_text.done", 1, text=text, logprobs=[])
        yield event("content_part.done", 1, part=part)
        yield event("output_item.done", 1, item=self.message)
        yield event(self.response["status"], response=self.response)

    def searched(self, query: str) -> JsonObject:
        """The item of the search."""
        included = "file_search_call.results" in (self.body.include or ())
        results = [source.result() for source in self.request.sources] if included else None
        self.search |= {"status": "completed", "queries": [query], "results": results}
        return self.search

    async def finish(self, part: JsonObject, reason: str) -> None:
        """Complete the response, and store it."""
        why = {"length": "max_output_tokens"}.get(reason, reason)
        status = {"status": "completed" if why == "stop" else "incomplete"}
        self.message |= {"content": [part], **status}
        self.response |= {
            "output": [self.search, self.message],
            **status,
            **self.request.usage("input_tokens", "output_tokens"),
        }
        if why != "stop":
            self.response["incomplete_details"] = {"reason": why}
        if usage := self.response.get("usage"):  # what models report has no details
            usage["input_tokens_details"] = {"cached_tokens": 0, "cache_write_tokens": 0}
            usage["output_tokens_details"] = {"reasoning_tokens": 0}
        if self.body.store:
            turns = [
                {"role": "user", "content": self.request.question},
                {"role": "assistant", "content": part["text"]},
            ]
            await self.request.call.run(
                _store, self.request.call, self.response, self.request.history + turns
            )


@router.get("/responses/{response_id}")
async def get_response(response_id: openai.Id, call: openai.Reading) -> Response:
    """Get a stored response."""
    return reply((await call.run(_stored, call, response_id))[0])


@router.delete("/responses/{response_id}")
async def delete_response(response_id: openai.Id, call: openai.Reading) -> Response:
    """Delete a stored response."""
    await call.run(_stored, call, response_id)
    await call.run(call.book.write, "DELETE FROM answer WHERE id = ?", (response_id,))
    return reply({"id": response_id, "object": "response", "deleted": True})
