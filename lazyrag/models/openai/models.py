"""Chat, embedding and rerank models behind an HTTP endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Unpack

from lazyrag.errors import AnswerWarning, EmbeddingError, GenerationError, RetrievalError, warn_user
from lazyrag.models import concurrency
from lazyrag.models.chat import SurrogateJoiner
from lazyrag.models.embedding import (
    CheckedEmbedder,
    as_vector,
    shown,
    split_blank,
    stack_dense,
    validate_embed_texts,
    validate_input_type,
)
from lazyrag.models.openai.client import (
    Endpoint,
    EndpointError,
    EndpointOptions,
    make_endpoint,
    usage_of,
)
from lazyrag.models.openai.halving import Halving
from lazyrag.models.protocols import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatOptions,
    Embedded,
    EmbeddedBatch,
    InputType,
    Messages,
    Prompt,
    TokenLogprob,
    Usage,
    as_messages,
    usage_of_calls,
)
from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.types import Closable, JsonObject, Matrix, PlaceRanking
from lazyrag.validation import (
    entry_of,
    require,
    sendable,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_string,
    validate_text,
    without_none,
)


class _HttpModel(Closable):
    """A model behind an endpoint, which is closed with the model unless it was passed in."""

    def __init__(
        self,
        kind: str,
        base_url: str | Endpoint,
        model: str,
        api_key: str | None,
        options: EndpointOptions,
    ) -> None:
        self.endpoint = make_endpoint(type(self), base_url, api_key, options)
        self.model = validate_text("model", model)
        self._owns_endpoint = not isinstance(base_url, Endpoint)
        self._name = f"The {kind} model {model!r} at {self.endpoint.base_url}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint.base_url!r}, {self.model!r})"

    @property
    def identity(self) -> str:
        """URL and model."""
        return f"http:{self.endpoint.base_url}:{self.model}"

    def close(self) -> None:
        """Close the endpoint, unless it was passed in."""
        if self._owns_endpoint:
            self.endpoint.close()

    def _message(self, fault: EndpointError) -> str:
        return f"{self._name} failed: {self.endpoint.hide_secrets(fault)}"


_CHAT_PATH = "/chat/completions"
_OWN_PARAMETERS = frozenset({"messages", "model", "n", "stream"})
_SCHEMA_REJECTED = {400, 415, 422, 501}


@sendable
class HttpChatModel(_HttpModel):
    """A chat model behind an endpoint that speaks OpenAI's protocol.

    ``json_schema`` in the options is sent as ``response_format``. If the endpoint rejects a request
    with it, the request is sent once more without it, and if that succeeds, no schema is sent for
    this model again.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, or an `Endpoint` to share.
        model: Name of the model on the server.
        api_key: See `Endpoint`, as for further keywords. Only with a URL.
        options: Generation options of calls without options of their own.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``openai`` is not installed.

    Example, with a server that runs on this machine::

        with HttpChatModel("http://localhost:8000/v1", "qwen3", options=ChatOptions(temperature=0))
        as model:
            print(model.chat("When is tea picked?").text)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str,
        *,
        api_key: str | None = None,
        options: ChatOptions | None = None,
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        super().__init__("chat", base_url, model, api_key, endpoint)
        self.options = _validate_options(options or ChatOptions())

    def chat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Generate an answer and wait for it.

        If the server returns fewer candidates than n, the missing ones are requested concurrently,
        each with a seed of its own if there is a seed; ``usage`` is the sum.

        Raises:
            GenerationError: If the model fails, or its response cannot be used.
        """
        return concurrency.run(self._complete(as_messages(prompt), self._options(options)))

    async def achat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Generate an answer, in any event loop. Cancelling the task ends the call."""
        return await concurrency.arun(self._complete(as_messages(prompt), self._options(options)))

    def stream(self, prompt: Prompt, options: ChatOptions | None = None) -> Iterator[ChatDelta]:
        """Stream an answer. Closing or dropping the iterator ends the call. A rejected JSON schema
        is an error here.

        Raises:
            GenerationError: If the model fails, or the answer is cut off; after the pieces that
                arrived.
        """
        return concurrency.stream(self._deltas(as_messages(prompt), self._options(options)))

    def astream(
        self, prompt: Prompt, options: ChatOptions | None = None
    ) -> AsyncIterator[ChatDelta]:
        """Stream an answer, in any event loop."""
        return concurrency.astream(self._deltas(as_messages(prompt), self._options(options)))

    def _options(self, options: ChatOptions | None) -> ChatOptions:
        options = self.options if options is None else _validate_options(options)
        if options.json_schema is not None and self.model in self.endpoint.without_schema:
            return dataclasses.replace(options, json_schema=None)
        return options

    async def _complete(self, messages: Messages, options: ChatOptions) -> ChatCompletion:
        try:
            answer, options = await self._post(messages, options)
            choices = choices_of(answer, options.n)
            usages = [usage_of(answer)]
            missing = range(len(choices), options.n)
            more = await concurrency.together(
                *(self._one_more(messages, options, number) for number in missing)
            )
        except EndpointError as exc:
            raise GenerationError(self._message(exc)) from exc
        for choice, reported in more:
            choices.append(choice)
            usages.append(reported)
        name = answer.get("model")
        return ChatCompletion(
            tuple(choices), name if isinstance(name, str) else "", _total_usage(usages)
        )

    async def _post(self, messages: Messages, options: ChatOptions) -> tuple[Any, ChatOptions]:
        """Send a request; returns the answer, and the options without the schema if the endpoint
        rejects that.
        """
        body = _body(self.model, messages, options)
        try:
            return await self.endpoint.post(_CHAT_PATH, body, options.n), options
        except EndpointError as exc:
            if options.json_schema is None or exc.status not in _SCHEMA_REJECTED:
                raise
        answer, options = await self._post(messages, dataclasses.replace(options, json_schema=None))
        self.endpoint.without_schema.add(self.model)
        return answer, options

    async def _one_more(
        self, messages: Messages, options: ChatOptions, number: int
    ) -> tuple[ChatChoice, Usage | None]:
        # the same seed would give the same answer
        seed = None if options.seed is None else options.seed + number
        answer, _ = await self._post(messages, dataclasses.replace(options, n=1, seed=seed))
        return choices_of(answer, 1)[0], usage_of(answer)

    async def _deltas(
        self, messages: Messages, options: ChatOptions
    ) -> AsyncGenerator[ChatDelta, None]:
        body = {**_body(self.model, messages, options), "stream": True}
        if usage_of_calls.get() is not None:
            body = {"stream_options": {"include_usage": True}, **body}
        try:
            events = self.endpoint.events(_CHAT_PATH, body)
            async with contextlib.aclosing(deltas_of(events, options.n)) as deltas:
                async for delta in deltas:
                    yield delta
        except EndpointError as exc:
            raise GenerationError(self._message(exc)) from exc


def _total_usage(usages: Sequence[Usage | None]) -> Usage | None:
    """The sum of the usages that were reported; None if none was."""
    reported = [usage for usage in usages if usage is not None]
    if not reported:
        return None
    return Usage(
        sum(usage.prompt_tokens for usage in reported),
        sum(usage.completion_tokens for usage in reported),
    )


def _body(model: str, messages: Messages, options: ChatOptions) -> JsonObject:
    parameters: JsonObject = {
        "n": options.n if options.n > 1 else None,
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "stop": None if options.stop is None else list(options.stop),
        "seed": options.seed,
        "logprobs": options.logprobs or None,
    }
    if options.json_schema is not None:
        schema = {"name": "answer", "strict": True, "schema": options.json_schema}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        **without_none(parameters),
        **(options.extra or {}),
    }


def _validate_options(options: ChatOptions) -> ChatOptions:
    require(
        isinstance(options, ChatOptions),
        "options",
        options,
        "ChatOptions, such as ChatOptions(temperature=0)",
    )
    taken = sorted(_OWN_PARAMETERS.intersection(options.extra or {}))
    expected = "a mapping without the parameters that the model sets itself"
    require(not taken, "extra", taken, expected)
    return options


def choices_of(answer: Any, most: int) -> list[ChatChoice]:
    """Read the candidates of an answer, in order.

    Args:
        answer: Parsed JSON.
        most: Maximum number of candidates.

    Raises:
        EndpointError: If there is none, or one has no text.

    Example:
        >>> choices_of({"choices": [{"message": {"content": "Tea."}, "finish_reason": "stop"}]}, 1)
        [ChatChoice(text='Tea.', finish_reason='stop', logprobs=None)]
    """
    choices = _choices(answer)
    if not choices:
        raise EndpointError(f"the answer has no candidate: {shown(answer)}.")
    candidates = []
    for choice in sorted(choices, key=_index)[:most]:
        message = choice.get("message")
        if not isinstance(message, dict):
            raise EndpointError(f"a candidate has no message: {shown(choice)}.")
        text = _text(message.get("content"))
        if text is None:
            raise _no_text(message, choice.get("finish_reason"))
        candidates.append(
            ChatChoice(
                SurrogateJoiner().feed(text, is_last=True), _reason(choice), _logprobs(choice)
            )
        )
    return candidates


async def deltas_of(
    events: AsyncGenerator[Any, None], candidate_count: int
) -> AsyncGenerator[ChatDelta, None]:
    """Yield the pieces of a streamed answer, without empty ones.

    Args:
        events: Parsed events; None for ``[DONE]``.
        candidate_count: Number of candidates.

    Raises:
        EndpointError: After the last piece, if the answer is cut off, or a candidate is missing or
            has no text.
    """
    candidates = [_Candidate() for _ in range(candidate_count)]
    done = False
    count = 0
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                done = event is None
                for choice in [] if done else _choices(event):
                    delta = _delta(choice, candidates)
                    if delta.text or delta.finish_reason:
                        count += 1
                        yield delta
    except EndpointError as exc:
        if count:
            exc.problem = (
                f"{exc.problem} The answer is incomplete: it broke off after {count} pieces."
            )
        raise
    if not done and not all(candidate.finished for candidate in candidates):
        raise EndpointError(
            f"the stream ended early, after {count} pieces. The answer is incomplete."
        )
    _check_candidates(candidates)


def _check_candidates(candidates: Sequence[_Candidate]) -> None:
    """Raise an EndpointError if a candidate is missing or has no text."""
    came = sum(candidate.came for candidate in candidates)
    if came < len(candidates):
        raise EndpointError(
            f"the stream held {came} of {len(candidates)} candidates. Use n=1, or do not stream."
        )
    for candidate in candidates:
        if candidate.instead is not None and not candidate.has_text:
            raise _no_text(candidate.instead, None)


@dataclass(slots=True)
class _Candidate:
    """State of one streamed answer."""

    came: bool = False
    finished: bool = False
    has_text: bool = False
    instead: JsonObject | None = None  # a message with a refusal or a tool call
    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)


def _delta(choice: JsonObject, candidates: list[_Candidate]) -> ChatDelta:
    index = _index(choice)
    if not 0 <= index < len(candidates):
        raise EndpointError(f"a piece belongs to candidate {index} of {len(candidates)}.")
    # a whole message, from a server that does not stream
    message = choice.get("delta", choice.get("message"))
    message = message if isinstance(message, dict) else {}
    candidate = candidates[index]
    reason = _reason(choice)
    text = candidate.joiner.feed(_text(message.get("content")) or "", is_last=reason is not None)
    delta = ChatDelta(text, index, reason, _logprobs(choice))
    candidate.came = True
    candidate.finished = candidate.finished or delta.finish_reason is not None
    candidate.has_text = candidate.has_text or bool(delta.text)
    if message.get("refusal") or message.get("tool_calls"):
        candidate.instead = message
    return delta


def _no_text(message: JsonObject, reason: object) -> EndpointError:
    why = "the answer holds no text"
    if refusal := message.get("refusal"):
        why += f": the model refused, saying {refusal!r:.200}"
    elif message.get("tool_calls"):
        why += ", but a tool call"
    elif message.get("reasoning_content") or message.get("reasoning"):
        why += ", but reasoning only; raise max_tokens"
    return EndpointError(why + (f" (finish_reason {reason!r:.40})." if reason else "."))


def _text(content: Any) -> str | None:
    """Read a message's content: a text, or the joined texts of its parts."""
    if content is None or isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts: list[Any] = [
        part.get("text")
        for part in parts
        if isinstance(part, dict) and part.get("type", "text") == "text"
    ]
    if not all(isinstance(part, dict) for part in parts) or not all(
        isinstance(text, str) for text in texts
    ):
        raise EndpointError(
            f"a message's content must be a text or a list of parts; got {shown(content)}."
        )
    return "".join(texts) if texts else None


def _choices(answer: Any) -> list[JsonObject]:
    choices = answer.get("choices", []) if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise EndpointError(f"the answer must be {{'choices': [...]}}; got {shown(answer)}.")
    return choices


def _index(choice: JsonObject) -> int:
    index = choice.get("index", 0)
    return index if type(index) is int else 0


def _reason(choice: JsonObject) -> str | None:
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) and reason else None


def _logprobs(choice: JsonObject) -> tuple[TokenLogprob, ...] | None:
    logprobs = choice.get("logprobs")
    tokens = entry_of(logprobs, "content")
    if tokens is None:
        return None
    try:
        return tuple(TokenLogprob(str(token["token"]), float(token["logprob"])) for token in tokens)
    except (TypeError, KeyError, ValueError, OverflowError) as exc:
        raise EndpointError(
            f"logprobs must be [{{'token', 'logprob'}}, ...]; got {shown(tokens)}."
        ) from exc


_MAX_WAITING = 2  # finished batches that wait for the consumer


@sendable
class HttpEmbedder(_HttpModel):
    """An embedding model behind an endpoint that speaks OpenAI's protocol.

    Batches run concurrently, within the endpoint's limits. A batch that fails for good is narrowed
    down to the texts at fault, often one that is too long: only they fail.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, or an `Endpoint` to share.
        model: Name of the model on the server.
        api_key: See `Endpoint`, as for further keywords. Only with a URL.
        dimension: Length of the vectors; sent to the server, so the model must be able to shorten
            them, or have it anyway. Vectors of another length fail. None takes the model's own.
        max_tokens: Maximum number of input tokens; None if unknown.
        normalised: Whether the model returns vectors of unit length. They are not changed.
        batch_size: Maximum number of texts in a request.
        query_prefix: Text that the model expects before a query: ``"query: "``.
        document_prefix: Text that it expects before a document: ``"passage: "``.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``openai`` is not installed.

    Example, with a server that runs on this machine::

        with HttpEmbedder("http://localhost:8000/v1", "bge-m3", query_prefix="query: ") as embedder:
            document = Document("docs", embed=embedder)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str,
        *,
        api_key: str | None = None,
        dimension: int | None = None,
        max_tokens: int | None = None,
        normalised: bool = False,
        batch_size: int = 64,
        query_prefix: str = "",
        document_prefix: str = "",
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        super().__init__("embedding", base_url, model, api_key, endpoint)
        self.dimension = (
            dimension if dimension is None else validate_integer("dimension", dimension, 1)
        )
        self.max_tokens = (
            max_tokens if max_tokens is None else validate_integer("max_tokens", max_tokens, 1)
        )
        self.normalised = validate_boolean("normalised", normalised)
        self.batch_size = validate_integer("batch_size", batch_size, 1)
        self._prefixes: dict[InputType, str] = {"query": query_prefix, "document": document_prefix}
        for name, prefix in self._prefixes.items():
            validate_string(f"{name}_prefix", prefix)

    @property
    def identity(self) -> str:
        """URL, model, and the settings that affect vectors."""
        settings = [] if self.dimension is None else [f"dimension={self.dimension}"]
        settings += [
            f"{name}_prefix={prefix!r}" for name, prefix in self._prefixes.items() if prefix
        ]
        return ":".join([super().identity, *settings])

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Matrix:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are queries or documents.

        Returns:
            (n, dim) float32, finite, in input order.

        Raises:
            EmbeddingError: If a text cannot be embedded; the error of the first one.
        """
        dimension = self.dimension or 0
        results = CheckedEmbedder(self, self._name).embed_each(texts, dimension, input_type)
        return stack_dense(results, self._name, dimension)

    def embed_batches(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Embed texts; every position is yielded exactly once, batches as they finish.

        Closing or dropping the iterator ends the running calls. Only a few batches are requested
        ahead of the consumer.
        """
        batches = self._batches(validate_embed_texts(texts), validate_input_type(input_type))
        return concurrency.stream(batches, _MAX_WAITING)

    async def _batches(
        self, texts: list[Any], input_type: InputType
    ) -> AsyncGenerator[EmbeddedBatch, None]:
        positions, blank = split_blank(texts)
        if blank is not None:
            yield blank
        prefixed = [self._prefixes[input_type] + texts[index] for index in positions]
        halving: Halving[Embedded] = Halving(self._request, prefixed)
        starts = iter(range(0, len(prefixed), self.batch_size))
        running: set[asyncio.Task[EmbeddedBatch]] = set()
        try:
            while True:
                for start in itertools.islice(starts, self.endpoint.concurrency - len(running)):
                    part = slice(start, start + self.batch_size)
                    batch = self._batch(positions[part], prefixed[part], halving)
                    running.add(asyncio.ensure_future(batch))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _batch(
        self, positions: list[int], texts: list[str], halving: Halving[Embedded]
    ) -> EmbeddedBatch:
        results = await halving.results(texts)
        # One error may be that of many texts.
        errors = {
            id(error): self._error(error) for error in results if isinstance(error, EndpointError)
        }
        return EmbeddedBatch(
            positions,
            [
                errors[id(result)] if isinstance(result, EndpointError) else result
                for result in results
            ],
        )

    async def _request(self, texts: list[str]) -> list[Embedded]:
        body: JsonObject = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.dimension is not None:
            body["dimensions"] = self.dimension
        answer = await self.endpoint.post("/embeddings", body, len(texts))
        return [self._vector(value) for value in _in_order(answer, len(texts))]

    def _vector(self, value: Any) -> Embedded:
        try:
            vector = as_vector(value if isinstance(value, list) else [value])
        except ValueError as exc:
            return self._error(EndpointError(f"the answer for a text is unusable: it {exc}."))
        if self.dimension not in (None, len(vector)):
            sizes = f"{len(vector)} numbers; dimension is {self.dimension}"
            return EmbeddingError(
                f"{self._name} returned {sizes}. Leave it out, or set it to the model's own."
            )
        return vector

    def _error(self, fault: EndpointError) -> EmbeddingError:
        error = EmbeddingError(self._message(fault))
        error.__cause__ = fault
        return error


def _in_order(answer: Any, count: int) -> list[Any]:
    """Return the embeddings of an answer in the order of the texts.

    Raises:
        EndpointError: If there is not exactly one for each.
    """
    data = entry_of(answer, "data")
    if not isinstance(data, list) or not all(
        isinstance(entry, dict) and "embedding" in entry for entry in data
    ):
        raise EndpointError(
            f"the answer must be {{'data': [{{'index', 'embedding'}}, ...]}}; got {shown(answer)}."
        )
    vector_of = {
        entry.get("index"): entry["embedding"] for entry in data if type(entry.get("index")) is int
    }
    if len(data) != count or vector_of.keys() != set(range(count)):
        indices = f"{[entry.get('index') for entry in data]!r:.80}"
        raise EndpointError(
            f"the answer to {count} texts has {len(data)} vectors with the indices {indices}."
        )
    return [vector_of[index] for index in range(count)]


RerankApi: TypeAlias = Literal["common", "tei"]


class HttpRerankModel(_HttpModel):
    """A rerank model behind an endpoint with the common ``/rerank``: Jina, Cohere, vLLM, Infinity
    and others.

    ``api="tei"`` speaks that of Hugging Face's text-embeddings-inference, which serves one model.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, for text-embeddings-inference
            ``"http://host:port"``; or an `Endpoint` to share.
        model: Name of the model on the server. It is not sent to text-embeddings-inference.
        api_key: See `Endpoint`, as for further keywords. Only with a URL.
        api: ``"common"``: ``documents`` in the request, ``results`` in the response. ``"tei"``:
            ``texts`` in the request, a list of index and score as the response; a text that is too
            long is an error there, and not cut.
        batch_size: Maximum number of documents in a request; None: 512, for
            text-embeddings-inference 32, the defaults of the servers. Larger inputs are sent in
            concurrent requests, whose scores are comparable.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``openai`` is not installed.

    Example, with a server that runs on this machine::

        with HttpRerankModel("http://localhost:8000/v1", "bge-reranker-v2-m3") as model:
            nodes = Reranker("ModuleReranker", model=model, topk=3)(nodes, query=query)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str,
        *,
        api_key: str | None = None,
        api: RerankApi = "common",
        batch_size: int | None = None,
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        super().__init__("rerank", base_url, model, api_key, endpoint)
        self.api: RerankApi = validate_choice("api", api, RerankApi)
        if batch_size is None:
            batch_size = 512 if api == "common" else 32
        self.batch_size = validate_integer("batch_size", batch_size, 1)

    def __call__(
        self, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> PlaceRanking:
        """Rank documents; see `RerankModel`."""
        return concurrency.run(
            self._rank(checked_query(query), *checked_documents(documents, top_n))
        )

    async def arerank(
        self, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> PlaceRanking:
        """Rank documents, in any event loop. Cancelling the task ends the call."""
        return await concurrency.arun(
            self._rank(checked_query(query), *checked_documents(documents, top_n))
        )

    async def _rank(self, query: str, documents: list[str], top_n: int) -> PlaceRanking:
        async def send(batch: list[str]) -> list[float | None]:
            return await self._scores(query, batch, top_n)

        halving: Halving[float | None] = Halving(send, documents)

        async def rank(start: int) -> list[float | EndpointError | None]:
            results = await halving.results(documents[start : start + self.batch_size])
            if halving.verdict is not None:
                raise halving.verdict
            return results

        try:
            parts = await concurrency.together(
                *map(rank, range(0, len(documents), self.batch_size))
            )
            results = list(itertools.chain.from_iterable(parts))
            faults = [result for result in results if isinstance(result, EndpointError)]
            if faults and len(faults) == len(results):
                raise faults[0]
        except EndpointError as exc:
            raise RetrievalError(self._message(exc)) from exc
        if faults:
            failed = (
                f"{self._name} cannot rank {len(faults)} of {len(documents)} passages, which have"
                " no score"
            )
            warn_user(f"{failed}: {self.endpoint.hide_secrets(faults[0])}", AnswerWarning)
        scores = [(index, score) for index, score in enumerate(results) if isinstance(score, float)]
        return sorted(scores, key=lambda pair: (-pair[1], pair[0]))[:top_n]

    async def _scores(self, query: str, documents: list[str], top_n: int) -> list[float | None]:
        """Return the scores of documents in one request; None for those that are not among the
        first ``top_n``.
        """
        top_n = min(top_n, len(documents))
        count = len(documents)
        if self.api == "common":
            body = {"model": self.model, "query": query, "documents": documents, "top_n": top_n}
            answer = await self.endpoint.post("/rerank", body, count)
            results = entry_of(answer, "results")
            score = "relevance_score"
            form = "{'results': [{'index', 'relevance_score'}, ...]}"
        else:
            body = {"query": query, "texts": documents}
            results = answer = await self.endpoint.post("/rerank", body, count)
            score = "score"
            form = "[{'index', 'score'}, ...]"
        if not isinstance(results, list) or not all(
            _is_result(result, score) for result in results
        ):
            raise EndpointError(f"the answer must be {form}; got {shown(answer)}.")
        try:
            ranking = checked_ranking(
                [(result["index"], result[score]) for result in results], count, "It"
            )
        except RetrievalError as exc:
            raise EndpointError(str(exc)) from exc
        if len(ranking) < top_n:
            raise EndpointError(f"the answer holds {len(ranking)} results; {top_n} were requested.")
        scores = dict(ranking[:top_n])
        return [scores.get(index) for index in range(count)]


def _is_result(result: Any, score: str) -> bool:
    return (
        isinstance(result, dict)
        and type(result.get("index")) is int
        and type(result.get(score)) in (int, float)
    )
