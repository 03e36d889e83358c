"""Rerank models by HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from lazyrag.errors import ConfigError, EmbeddingError, GenerationError, RetrievalError, known_names
from lazyrag.models import concurrency as background
from lazyrag.models.embedding import (
    CheckedEmbedder,
    as_vector,
    blank_error,
    checked_input_type,
    is_blank,
    listed_texts,
    shown,
    stacked,
)
from lazyrag.models.openai.client import Endpoint, EndpointError, checked_text, make_endpoint
from lazyrag.models.protocols import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatOptions,
    Embedded,
    EmbeddedBatch,
    InputType,
    Message,
    Prompt,
    TokenLogprob,
    Usage,
    as_messages,
)
from lazyrag.models.rerank import checked_documents, checked_ranking
from lazyrag.types import Matrix
from lazyrag.validation import whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Self, Unpack

    from lazyrag.models.openai.client import EndpointOptions


def choices_of(answer: Any, most: int) -> list[ChatChoice]:
    """The candidates of an answer, in their order, at least one.

    Args:
        answer: Parsed JSON.
        most: How many are wanted.

    Raises:
        EndpointError: If there is none, or one has no text.

    Example:
        >>> choices_of({"choices": [{"message": {"content": "Tea."}, "finish_reason": "stop"}]}, 1)
        [ChatChoice(text='Tea.', finish_reason='stop', logprobs=None)]
    """
    choices = _list_of_dicts(answer, "choices")
    if not choices:
        msg = f"the answer is {shown(answer)}, without a candidate."
        raise EndpointError(msg)
    found = []
    for choice in sorted(choices, key=_index)[:most]:
        message = choice.get("message")
        if not isinstance(message, dict):
            msg = f"a candidate is {shown(choice)}, without a message."
            raise EndpointError(msg)
        text = _text(message.get("content"))
        if text is None:
            raise _no_text(message, choice.get("finish_reason"))
        found.append(ChatChoice(text, _reason(choice), _logprobs(choice)))
    return found


def usage_of(answer: Any) -> Usage | None:
    """The tokens that an answer says it was charged for; None where it does not."""
    usage = answer.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [None]
    return Usage(*counts) if all(type(count) is int for count in counts) else None


async def deltas_of(events: AsyncGenerator[Any, None], wanted: int) -> AsyncGenerator[ChatDelta, None]:
    """The pieces of a streamed answer, without those that say nothing.

    Args:
        events: Parsed events; None for ``[DONE]``.
        wanted: How many candidates are expected.

    Raises:
        EndpointError: If the answer is cut, or one of the candidates is missing or has no text; after its pieces.
    """
    candidates = [_Candidate() for _ in range(wanted)]
    done, count = False, 0
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                done = event is None
                for choice in [] if done else _list_of_dicts(event, "choices"):
                    delta = _delta(choice, candidates)
                    if delta.text or delta.finish_reason:
                        count += 1
                        yield delta
    except EndpointError as exc:
        if count:
            exc.what = f"{exc.what} The answer is incomplete: it broke off after {count} pieces."
        raise
    if not done and not all(one.finished for one in candidates):
        msg = f"the stream ended without saying that it was complete; {count} pieces came. The answer is incomplete."
        raise EndpointError(msg)
    missing = sum(not one.came for one in candidates)
    if missing:
        msg = f"the stream held {wanted - missing} of {wanted} candidates. Ask for one, or do not stream."
        raise EndpointError(msg)
    for one in candidates:
        if one.without_text is not None:
            raise _no_text(one.without_text, None)


@dataclass(slots=True)
class _Candidate:
    """What has come of one answer."""

    came: bool = False
    finished: bool = False
    has_text: bool = False
    instead: dict[str, Any] | None = None  # a message that held a refusal or a call of a tool

    @property
    def without_text(self) -> dict[str, Any] | None:
        """What came in place of a text."""
        return None if self.has_text else self.instead


def _delta(choice: dict[str, Any], candidates: list[_Candidate]) -> ChatDelta:
    index = _index(choice)
    if not 0 <= index < len(candidates):
        msg = f"a piece belongs to candidate {index}, and {len(candidates)} were asked for."
        raise EndpointError(msg)
    told = choice.get("delta", choice.get("message"))  # a whole message, from a server that does not stream
    told = told if isinstance(told, dict) else {}
    one = candidates[index]
    delta = ChatDelta(_text(told.get("content")) or "", index, _reason(choice), _logprobs(choice))
    one.came = True
    one.finished = one.finished or delta.finish_reason is not None
    one.has_text = one.has_text or bool(delta.text)
    if told.get("refusal") or told.get("tool_calls"):
        one.instead = told
    return delta


def _no_text(message: dict[str, Any], reason: object) -> EndpointError:
    why = "the answer holds no text"
    if refusal := message.get("refusal"):
        why += f": the model refused, saying {refusal!r:.200}"
    elif message.get("tool_calls"):
        why += ", but a call of a tool"
    elif message.get("reasoning_content") or message.get("reasoning"):
        why += ", but reasoning only; raise max_tokens"
    return EndpointError(why + (f" (finish_reason {reason!r:.40})." if reason else "."))


def _text(content: Any) -> str | None:
    """A message's content: a text, or the joined texts of its parts."""
    if content is None or isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts: list[Any] = [one.get("text") for one in parts if isinstance(one, dict) and one.get("type", "text") == "text"]
    if not all(isinstance(part, dict) for part in parts) or not all(isinstance(text, str) for text in texts):
        msg = f"a message's content is {shown(content)}, not a text or a list of parts."
        raise EndpointError(msg)
    return "".join(texts) if texts else None


def _list_of_dicts(answer: Any, name: str) -> list[dict[str, Any]]:
    found = answer.get(name, []) if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        msg = f"the answer is {shown(answer)}, not {{{name!r}: [...]}}."
        raise EndpointError(msg)
    return found


def _index(choice: dict[str, Any]) -> int:
    index = choice.get("index", 0)
    return index if type(index) is int else 0


def _reason(choice: dict[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) and reason else None


def _logprobs(choice: dict[str, Any]) -> tuple[TokenLogprob, ...] | None:
    told = choice.get("logprobs")
    tokens = told.get("content") if isinstance(told, dict) else None
    if tokens is None:
        return None
    try:
        return tuple(TokenLogprob(str(one["token"]), float(one["logprob"])) for one in tokens)
    except (TypeError, KeyError, ValueError, OverflowError) as exc:
        msg = f"the logprobs are {shown(tokens)}, not [{{'token', 'logprob'}}, ...]."
        raise EndpointError(msg) from exc


_PATH = "/chat/completions"
_OURS = frozenset({"messages", "model", "n", "stream"})


class HttpChatModel:
    """A chat model behind an endpoint that speaks OpenAI's protocol.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, or an `Endpoint` to be shared.
        model: The model's name there.
        api_key: See `Endpoint`, as for the further keywords, which are for a URL only.
        options: How to answer where a call does not say so. A call's options take their place as a whole.

    Raises:
        ConfigError: If a value is out of its range.
        MissingDependencyError: If no HTTP library is installed.

    Example, with a server that runs on this machine::

        with HttpChatModel("http://localhost:8000/v1", "qwen3", options=ChatOptions(temperature=0)) as model:
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
        self.endpoint = make_endpoint(HttpChatModel, base_url, api_key, endpoint)
        self._owned = not isinstance(base_url, Endpoint)
        self.model = checked_text("model", model)
        self.options = _checked_options(options or ChatOptions())
        self._name = f"The chat model {self.model!r} at {self.endpoint.base_url}"

    def __repr__(self) -> str:
        return f"HttpChatModel({self.endpoint.base_url!r}, {self.model!r})"

    @property
    def identity(self) -> str:
        """URL and model."""
        return f"http:{self.endpoint.base_url}:{self.model}"

    def chat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Answer, and wait for it.

        Servers that give fewer candidates than n are asked again for each that is missing, at the same time, with a
        seed of its own where there is one; ``usage`` is the sum.

        Raises:
            GenerationError: If the model fails, or answers with something unusable.
        """
        return background.run(self._complete(as_messages(prompt), self._chosen(options)))

    async def achat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Answer, in any event loop; cancelling the task ends the call."""
        return await background.arun(self._complete(as_messages(prompt), self._chosen(options)))

    def stream(self, prompt: Prompt, options: ChatOptions | None = None) -> Iterator[ChatDelta]:
        """Answer piece by piece; closing or dropping the iterator ends the call.

        Raises:
            GenerationError: If the model fails, or the answer is cut; after the pieces that came.
        """
        return background.stream(self._deltas(as_messages(prompt), self._chosen(options)))

    def astream(self, prompt: Prompt, options: ChatOptions | None = None) -> AsyncIterator[ChatDelta]:
        """Answer piece by piece, in any event loop."""
        return background.astream(self._deltas(as_messages(prompt), self._chosen(options)))

    def close(self) -> None:
        """Close the endpoint, unless it was given as one and others may use it."""
        if self._owned:
            self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _chosen(self, options: ChatOptions | None) -> ChatOptions:
        return self.options if options is None else _checked_options(options)

    async def _complete(self, messages: tuple[Message, ...], options: ChatOptions) -> ChatCompletion:
        try:
            answer = await self._ask(messages, options)
            choices, usage = choices_of(answer, options.n), usage_of(answer)
            missing = range(len(choices), options.n)
            more = await background.together(*(self._one_more(messages, options, number) for number in missing))
        except EndpointError as exc:
            raise self._error(exc) from exc
        usages = [usage, *(one for _, one in more)]
        model = answer.get("model")
        return ChatCompletion(
            (*choices, *(choice for choice, _ in more)),
            model if isinstance(model, str) else "",
            _summed([one for one in usages if one is not None]),
        )

    async def _one_more(
        self, messages: tuple[Message, ...], options: ChatOptions, number: int
    ) -> tuple[ChatChoice, Usage | None]:
        seed = None if options.seed is None else options.seed + number  # the same one would give the same answer
        answer = await self._ask(messages, dataclasses.replace(options, n=1, seed=seed))
        return choices_of(answer, 1)[0], usage_of(answer)

    async def _ask(self, messages: tuple[Message, ...], options: ChatOptions) -> Any:
        return await self.endpoint.post(_PATH, _body(self.model, messages, options))

    async def _deltas(self, messages: tuple[Message, ...], options: ChatOptions) -> AsyncGenerator[ChatDelta, None]:
        body = {**_body(self.model, messages, options), "stream": True}
        try:
            async with contextlib.aclosing(deltas_of(self.endpoint.events(_PATH, body), options.n)) as deltas:
                async for delta in deltas:
                    yield delta
        except EndpointError as exc:
            raise self._error(exc) from exc

    def _error(self, fault: EndpointError) -> GenerationError:
        return GenerationError(f"{self._name} failed: {self.endpoint.hide_secrets(fault)}")


def _body(model: str, messages: tuple[Message, ...], options: ChatOptions) -> dict[str, Any]:
    asked = {
        "n": options.n if options.n > 1 else None,
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "stop": None if options.stop is None else list(options.stop),
        "seed": options.seed,
        "logprobs": options.logprobs or None,
    }
    return {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        **{name: value for name, value in asked.items() if value is not None},
        **(options.extra or {}),
    }


def _checked_options(options: ChatOptions) -> ChatOptions:
    if not isinstance(options, ChatOptions):
        msg = f"options is {options!r:.80}; give ChatOptions(temperature=0, max_tokens=100), for example."
        raise ConfigError(msg)
    taken = sorted(_OURS.intersection(options.extra or {}))
    if taken:
        msg = f"The options' extra holds {', '.join(taken)}, which the model sets itself. Leave it out."
        raise ConfigError(msg)
    return options


def _summed(usages: list[Usage]) -> Usage | None:
    if not usages:
        return None
    return Usage(sum(one.prompt_tokens for one in usages), sum(one.completion_tokens for one in usages))


_WITNESSES = 3
_AHEAD = 2  # batches that are done and wait for their consumer, beside those under way


class HttpEmbedder:
    """An embedding model behind an endpoint that speaks OpenAI's protocol.

    Batches run concurrently, as far as the endpoint's limits allow. A batch that is refused is narrowed down to the
    texts at fault, often one that is too long; a batch that fails for good fails its texts and no others.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, or an `Endpoint` to be shared.
        model: The model's name there.
        api_key: See `Endpoint`, as for the further keywords, which are for a URL only.
        dimension: The length of the vectors; the server is asked for it, so the model must be able to shorten them, or
            have it anyway. Vectors of another length fail. None takes the model's own.
        max_tokens: How many tokens of a text the model reads; None where it is not known.
        normalised: Whether the model gives vectors of length 1. They are taken as they come.
        batch_size: At most so many texts in a request, at least 1.
        query_prefix: What the model wants to stand before a question: ``"query: "``.
        document_prefix: What it wants before a text that is searched: ``"passage: "``.

    Raises:
        ConfigError: If a value is out of its range.
        MissingDependencyError: If no HTTP library is installed.

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
        self.endpoint = make_endpoint(HttpEmbedder, base_url, api_key, endpoint)
        self._owned = not isinstance(base_url, Endpoint)
        self.model = checked_text("model", model)
        self.dimension = dimension if dimension is None else whole_number("dimension", dimension, 1)
        self.max_tokens = max_tokens if max_tokens is None else whole_number("max_tokens", max_tokens, 1)
        self.normalised = yes_or_no("normalised", normalised)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self._prefixes: dict[InputType, str] = {
            "query": checked_text("query_prefix", query_prefix, blank=True),
            "document": checked_text("document_prefix", document_prefix, blank=True),
        }
        self._name = f"The embedding model {self.model!r} at {self.endpoint.base_url}"

    def __repr__(self) -> str:
        return f"HttpEmbedder({self.endpoint.base_url!r}, {self.model!r})"

    @property
    def identity(self) -> str:
        """URL, model, and those of the settings that change vectors."""
        told = [] if self.dimension is None else [f"dimension={self.dimension}"]
        told += [f"{name}_prefix={prefix!r}" for name, prefix in self._prefixes.items() if prefix]
        return ":".join(["http", self.endpoint.base_url, self.model, *told])

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Matrix:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are questions, or what is searched.

        Returns:
            (n, dim) float32, finite, in the order of the texts.

        Raises:
            EmbeddingError: If a text has no vector; the error of the first one.
        """
        asked = CheckedEmbedder(self, self._name)
        dimension = self.dimension or 0
        return stacked(asked.embed_each(texts, dimension, input_type), self._name, dimension)

    def embed_batches(self, texts: Sequence[str], input_type: InputType = "document") -> Iterator[EmbeddedBatch]:
        """Embed texts; every position comes exactly once, batches as they get done.

        Closing or dropping the iterator ends the calls that are under way. Where the consumer is slow, only a few
        batches are asked for ahead of it.
        """
        given = listed_texts(texts)
        return background.stream(self._batches(given, checked_input_type(input_type)), _AHEAD)

    def close(self) -> None:
        """Close the endpoint, unless it was given as one and others may use it."""
        if self._owned:
            self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _batches(self, given: list[Any], input_type: InputType) -> AsyncGenerator[EmbeddedBatch, None]:
        blank = [place for place, text in enumerate(given) if is_blank(text)]
        if blank:
            yield EmbeddedBatch(blank, [blank_error(given[place]) for place in blank])
        places = [place for place, text in enumerate(given) if not is_blank(text)]
        texts = [self._prefixes[input_type] + given[place] for place in places]
        judge = _Judge(texts)
        starts = iter(range(0, len(texts), self.batch_size))
        running: set[asyncio.Task[EmbeddedBatch]] = set()
        try:
            while True:
                for start in itertools.islice(starts, self.endpoint.concurrency - len(running)):
                    some = slice(start, start + self.batch_size)
                    running.add(asyncio.ensure_future(self._batch(places[some], texts[some], judge)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _batch(self, places: list[int], texts: list[str], judge: _Judge) -> EmbeddedBatch:
        return EmbeddedBatch(places, await self._results(texts, judge))

    async def _results(self, texts: list[str], judge: _Judge) -> list[Embedded]:
        """For each text its vector or its error; where several are refused together, by asking for halves and so on."""
        if judge.verdict is None:
            try:
                return await self._asked(texts, judge)
            except EndpointError as exc:
                error = self._error(exc)
                if exc.hopeless:
                    judge.verdict = error
                elif exc.refused:
                    await self._ask_witnesses(judge)
                if judge.verdict is None and exc.refused and len(texts) > 1:
                    half = len(texts) // 2
                    parts = (self._results(part, judge) for part in (texts[:half], texts[half:]))
                    return [result for part in await background.together(*parts) for result in part]
        return [judge.verdict or error] * len(texts)

    async def _ask_witnesses(self, judge: _Judge) -> None:
        """Find out, once in a call, whether it is the request that is refused."""
        async with judge.turn:
            refused = []
            asked = len(judge.witnesses)
            while judge.witnesses and not judge.accepted and judge.verdict is None:
                try:
                    await self._asked([judge.witnesses.pop()], judge)
                except EndpointError as exc:
                    refused.append(exc)
            if 1 < asked == len(refused) and all(exc.refused and exc.status == refused[0].status for exc in refused):
                judge.verdict = self._error(refused[0])

    async def _asked(self, texts: list[str], judge: _Judge) -> list[Embedded]:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.dimension is not None:
            body["dimensions"] = self.dimension
        answer = await self.endpoint.post("/embeddings", body)
        judge.accepted = True
        return [self._vector(value) for value in _in_order(answer, len(texts))]

    def _vector(self, value: Any) -> Embedded:
        try:
            vector = as_vector(value if isinstance(value, list) else [value])
        except ValueError as exc:
            return self._error(EndpointError(f"the answer for a text is unusable: it {exc}."))
        if self.dimension not in (None, len(vector)):
            return EmbeddingError(
                f"{self._name} returned {len(vector)} numbers instead of dimension={self.dimension}. "
                "Leave dimension out, or give the one that the model has."
            )
        return vector

    def _error(self, fault: EndpointError) -> EmbeddingError:
        error = EmbeddingError(f"{self._name} failed: {self.endpoint.hide_secrets(fault)}")
        error.__cause__ = fault
        return error


class _Judge:
    """What the calls for one list of texts have shown.

    Where everything is refused, narrowing down would take two calls for each text. So three texts are asked for alone,
    the shortest and two of middling length, as a text may be too short or too long: if they are refused alike, and
    nothing was accepted, the fault is not in the texts.
    """

    def __init__(self, texts: list[str]) -> None:
        self.accepted = False
        self.verdict: EmbeddingError | None = None  # the error of every text that is still to be asked for
        by_length = sorted(texts, key=len)
        places = {len(texts) * number // _WITNESSES for number in range(_WITNESSES)} if len(texts) > 1 else set()
        self.witnesses = [by_length[place] for place in sorted(places, reverse=True)]
        self.turn = asyncio.Lock()


def _in_order(answer: Any, count: int) -> list[Any]:
    """The embeddings of an answer in the order of the texts.

    Raises:
        EndpointError: If there is not exactly one for each.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) and "embedding" in one for one in data):
        msg = f"the answer to {count} texts is {shown(answer)}, not {{'data': [{{'index', 'embedding'}}, ...]}}."
        raise EndpointError(msg)
    found = {one.get("index"): one["embedding"] for one in data if type(one.get("index")) is int}
    if len(data) != count or found.keys() != set(range(count)):
        told = f"{[one.get('index') for one in data]!r:.80}"
        msg = f"{count} texts were answered with {len(data)} vectors, of the indices {told}; each must come once."
        raise EndpointError(msg)
    return [found[index] for index in range(count)]


RerankApi: TypeAlias = Literal["common", "tei"]


class HttpRerankModel:
    """A rerank model behind an endpoint with the common ``/rerank``: Jina, Cohere, vLLM, Infinity and others.

    With ``api="tei"`` it is that of Hugging Face's text-embeddings-inference, which serves one model.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, for text-embeddings-inference ``"http://host:port"``; or an
            `Endpoint` to be shared.
        model: The model's name there. Text-embeddings-inference is not told it; it is what `identity` says.
        api_key: See `Endpoint`, as for the further keywords, which are for a URL only.
        api: What the endpoint speaks. ``"common"``: ``documents`` in the question, ``results`` in the answer.
            ``"tei"``: ``texts`` in the question, a list of index and score as the answer. A text that is too long for
            the model is an error there, and not cut.
        batch_size: At most so many documents in a request, at least 1; None: 512, of text-embeddings-inference 32, as
            its servers allow by default. More are asked for at the same time, and their scores compared with each
            other: they are one model's, for one query.

    Raises:
        ConfigError: If a value is out of its range.
        MissingDependencyError: If no HTTP library is installed.

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
        self.endpoint = make_endpoint(HttpRerankModel, base_url, api_key, endpoint)
        self._owned = not isinstance(base_url, Endpoint)
        self.model = checked_text("model", model)
        if api not in get_args(RerankApi):
            raise ConfigError(f"api is {api!r}. {known_names(str(api), get_args(RerankApi))}")
        self.api: RerankApi = api
        usual = 512 if api == "common" else 32
        self.batch_size = usual if batch_size is None else whole_number("batch_size", batch_size, 1)
        self._name = f"The rerank model {self.model!r} at {self.endpoint.base_url}"

    def __repr__(self) -> str:
        return f"HttpRerankModel({self.endpoint.base_url!r}, {self.model!r})"

    @property
    def identity(self) -> str:
        """URL and model."""
        return f"http:{self.endpoint.base_url}:{self.model}"

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            min(top_n, n) pairs (index into documents, score), best first, ties by index.

        Raises:
            RetrievalError: If the model fails, or answers with something unusable.
        """
        return background.run(self._rank(checked_text("query", query), *checked_documents(documents, top_n)))

    async def arerank(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents, in any event loop; cancelling the task ends the call."""
        return await background.arun(self._rank(checked_text("query", query), *checked_documents(documents, top_n)))

    def close(self) -> None:
        """Close the endpoint, unless it was given as one and others may use it."""
        if self._owned:
            self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _rank(self, query: str, documents: list[str], most: int) -> list[tuple[int, float]]:
        starts = range(0, len(documents), self.batch_size)
        batches = (documents[start : start + self.batch_size] for start in starts)
        try:
            rankings = await background.together(*(self._ask(query, batch, most) for batch in batches))
        except EndpointError as exc:
            msg = f"{self._name} failed: {self.endpoint.hide_secrets(exc)}"
            raise RetrievalError(msg) from exc
        merged = [
            (start + index, score) for start, ranking in zip(starts, rankings, strict=True) for index, score in ranking
        ]
        return sorted(merged, key=lambda pair: (-pair[1], pair[0]))[:most]

    async def _ask(self, query: str, documents: list[str], most: int) -> list[tuple[int, float]]:
        most = min(most, len(documents))
        score = "relevance_score" if self.api == "common" else "score"
        if self.api == "common":
            answer = await self.endpoint.post(
                "/rerank", {"model": self.model, "query": query, "documents": documents, "top_n": most}
            )
            results = answer.get("results") if isinstance(answer, dict) else None
            form = "{'results': [{'index', 'relevance_score'}, ...]}"
        else:
            results = answer = await self.endpoint.post("/rerank", {"query": query, "texts": documents})
            form = "[{'index', 'score'}, ...]"
        if not isinstance(results, list) or not all(_is_result(one, score) for one in results):
            msg = f"the answer is {shown(answer)}, not {form}."
            raise EndpointError(msg)
        ranking = checked_ranking([(one["index"], one[score]) for one in results], len(documents), self._name)
        if len(ranking) < most:
            msg = f"the answer holds {len(ranking)} results; {most} of {len(documents)} documents were asked for."
            raise EndpointError(msg)
        return ranking[:most]


def _is_result(one: Any, score: str) -> bool:
    return isinstance(one, dict) and type(one.get("index")) is int and type(one.get(score)) in (int, float)
