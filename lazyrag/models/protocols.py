"""Protocols for embedding, chat and rerank models, and the values they exchange."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import (
    Any,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    runtime_checkable,
)

from lazyrag.errors import ConfigError, EmbeddingError
from lazyrag.types import Embedding, JsonMapping, Matrix, PlaceRanking
from lazyrag.validation import (
    is_list_of,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
)

ROLES = ("system", "user", "assistant")

InputType: TypeAlias = Literal["query", "document"]
"""Role of a text. Asymmetric models embed queries and documents differently."""

Embedded: TypeAlias = "Embedding | EmbeddingError"
"""Result of embedding one text: a vector, or the error that says why there is none."""


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """A finished batch of embeddings.

    Args:
        positions: Positions of the texts in the input list.
        results: For each of them its vector, or an error.
    """

    positions: Sequence[int]
    results: Sequence[Embedded]


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors, many at once.

    An optional attribute ``probe = False`` says that a Document need not compare the vector of a
    probe text with the stored one when it is opened, as the identity covers everything, or calls
    are too expensive.
    """

    @property
    def identity(self) -> str:
        """Name of everything the vectors depend on: model, revision, pooling, dimension. Equal
        names: equal vectors.

        Part of stored names and cache keys, so it must hold no secret. "" if unknown.
        """
        ...

    @property
    def dimension(self) -> int | None:
        """Length of a dense vector; None if unknown yet, or if vectors are sparse."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of input tokens; None if unknown."""
        ...

    @property
    def normalised(self) -> bool:
        """Whether vectors have unit length."""
        ...

    def embed(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Sequence[Any] | Matrix:
        """Embed texts.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are queries or documents.

        Returns:
            n vectors in input order: an array of shape (n, dim), a list of lists, or a list of
            dicts from dimension to weight. An exception in place of a vector marks that text as
            failed.

        Raises:
            EmbeddingError: If a text cannot be embedded.
        """
        ...


@runtime_checkable
class BatchEmbedder(Embedder, Protocol):
    """An `Embedder` that yields each batch as soon as it is finished, so that a cache can store it
    at once.
    """

    def embed_batches(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Embed texts. Every position is yielded exactly once, batches in any order; a bad text
        fails alone.
        """
        ...


_MEMBERS = ("identity", "dimension", "max_tokens", "normalised")


def missing_members(value: object, members: Sequence[str]) -> list[str]:
    """Members that an object lacks. Properties are not computed, as `isinstance` does on Python
    3.11.

    Example:
        >>> missing_members("tea", ["upper", "brew"])
        ['brew']
    """
    absent = object()
    return [
        name
        for name in members
        if inspect.getattr_static(value, name, absent) is absent
        and getattr(value, name, absent) is absent
    ]


def is_embedder(value: object) -> TypeGuard[Embedder]:
    """Whether an object implements `Embedder`; a class of such objects does not."""
    return not isinstance(value, type) and not missing_members(value, [*_MEMBERS, "embed"])


def is_batch_embedder(value: object) -> TypeGuard[BatchEmbedder]:
    """Whether an object implements `BatchEmbedder`."""
    return is_embedder(value) and not missing_members(value, ["embed_batches"])


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Args:
        role: ``"system"``, ``"user"`` or ``"assistant"``.
        content: A text; or for models that see images a list of parts in the format of OpenAI's
            chat API: ``{"type": "text", "text": ...}`` and ``{"type":
            "image_url", "image_url": {"url": ...}}``.
    """

    role: Literal["system", "user", "assistant"]
    content: str | Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        validate_choice("role", self.role, ROLES)
        is_parts = is_list_of(self.content, Mapping) and all(
            "type" in part for part in self.content
        )
        require(
            isinstance(self.content, str) or is_parts,
            "content",
            self.content,
            "a string, or a list of parts",
        )

    @property
    def text(self) -> str:
        """Its text, without images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part["text"]) for part in self.content if part["type"] == "text")


Messages: TypeAlias = "tuple[Message, ...]"
"""A conversation, the oldest message first."""

Prompt: TypeAlias = "str | Sequence[Message | Mapping[str, Any]]"
"""Input of a chat model: one user message as a string, or messages, oldest first."""
History: TypeAlias = Sequence[Message | Mapping[str, str]]
"""Messages of a conversation as chat endpoints take them, oldest first."""


def as_messages(prompt: Prompt, name: str = "The prompt") -> Messages:
    """Convert a prompt to messages.

    Args:
        prompt: A text or messages.
        name: What it is, for messages.

    Raises:
        ConfigError: If it is empty, or an item is no message.

    Example:
        >>> as_messages("Why?")
        (Message(role='user', content='Why?'),)
    """
    if isinstance(prompt, str):
        prompt = [Message("user", prompt)]
    messages = []
    for message in prompt if isinstance(prompt, Sequence) else [prompt]:
        if isinstance(message, Mapping) and message.keys() == {"role", "content"}:
            message = Message(message["role"], message["content"])  # noqa: PLW2901
        if not isinstance(message, Message):
            raise ConfigError(
                "A message must be a Message or {'role': ..., 'content': ...};"
                f" got {message!r:.80}."
            )
        messages.append(message)
    if not any(message.text.strip() for message in messages):
        raise ConfigError(f"{name} must not be blank; got {prompt!r:.80}.")
    return tuple(messages)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token and its log probability (natural logarithm, at most 0)."""

    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """One candidate answer.

    Args:
        text: The answer.
        finish_reason: Why generation ended: ``"stop"``, ``"length"`` ...; None if not reported.
        logprobs: Log probability of each token, in order; None if not requested or not reported.
    """

    text: str
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token usage of a call."""

    prompt_tokens: int
    completion_tokens: int


single_try: ContextVar[bool] = ContextVar("lazyrag_single_try", default=False)
"""Set, calls of endpoints are not retried."""

usage_of_calls: ContextVar[list[Usage] | None] = ContextVar("lazyrag_usage", default=None)
"""A list that takes the usage of each model call in this context, as models report it; None for no
list."""


def report_usage(usage: Usage | None) -> None:
    """Add the usage of a call to the list in `usage_of_calls`, if there is one; None if the model
    reports none.

    Example:
        >>> calls = []
        >>> token = usage_of_calls.set(calls)
        >>> report_usage(Usage(3, 2))
        >>> calls
        [Usage(prompt_tokens=3, completion_tokens=2)]
        >>> usage_of_calls.reset(token)
    """
    calls = usage_of_calls.get()
    if calls is not None and usage is not None:
        calls.append(usage)


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """Response of a chat model.

    Args:
        choices: n candidate answers, at least one.
        model: Model name that the server reports; "" if none.
        usage: Token usage; None if not reported.
    """

    choices: tuple[ChatChoice, ...]
    model: str = ""
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """Text of the first candidate."""
        return self.choices[0].text


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """Piece of a streamed answer.

    Args:
        text: New text; may be "".
        index: Number of the candidate, from 0.
        finish_reason: Set in a candidate's last piece.
        logprobs: Log probabilities of the new tokens; None if not requested or not reported.
    """

    text: str
    index: int = 0
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Generation options; None leaves a setting to the model.

    Args:
        n: Number of candidate answers, at least 1.
        temperature: Sampling temperature, at least 0; 0 takes the most likely token each time.
        max_tokens: Maximum number of tokens in each answer, at least 1.
        stop: Strings that end an answer.
        seed: Random seed, for models that support one.
        logprobs: Whether to request the log probabilities of tokens.
        extra: Further parameters of the endpoint, sent as they are.
        json_schema: JSON schema of the answer (structured output). `lazyrag.HttpChatModel` sends it
            as ``response_format``, and leaves it out for models whose endpoint rejects it: say in
            the prompt as well that the answer is JSON.
    """

    n: int = 1
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    seed: int | None = None
    logprobs: bool = False
    extra: Mapping[str, Any] | None = None
    # no setting of the model
    json_schema: JsonMapping | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        temperature = self.temperature
        stop = self.stop
        validate_integer("n", self.n, 1)
        if self.max_tokens is not None:
            validate_integer("max_tokens", self.max_tokens, 1)
        if self.seed is not None:
            validate_integer("seed", self.seed, -(2**63))
        is_number = temperature is None or (
            isinstance(temperature, (int, float)) and 0 <= temperature < math.inf
        )
        require(is_number, "temperature", temperature, "a number >= 0 or None")
        validate_boolean("logprobs", self.logprobs)
        for name, value in (("extra", self.extra), ("json_schema", self.json_schema)):
            require(value is None or isinstance(value, Mapping), name, value, "a mapping or None")
        require(
            stop is None or (is_list_of(stop, str) and all(stop)),
            "stop",
            stop,
            "a list of non-empty strings",
        )


@runtime_checkable
class ChatModel(Protocol):
    """Generates answers to prompts, complete or streamed, for threads and event loops."""

    @property
    def identity(self) -> str:
        """Name of the model for traces and cache keys, without secrets; "" if unknown."""
        ...

    def chat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Generate an answer and wait for it.

        Raises:
            GenerationError: If the model fails, or its response cannot be used.
        """
        ...

    async def achat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Generate an answer, in any event loop. Cancelling the task ends the call."""
        ...

    def stream(self, prompt: Prompt, options: ChatOptions | None = None) -> Iterator[ChatDelta]:
        """Stream an answer. Closing the iterator ends the call."""
        ...

    def astream(
        self, prompt: Prompt, options: ChatOptions | None = None
    ) -> AsyncIterator[ChatDelta]:
        """Stream an answer, in any event loop."""
        ...


@runtime_checkable
class RerankModel(Protocol):
    """Scores how well documents answer a query."""

    @property
    def identity(self) -> str:
        """Name of the model for traces and cache keys, without secrets; "" if unknown."""
        ...

    def __call__(
        self, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> PlaceRanking:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: Maximum number of results, at least 1; None returns all.

        Returns:
            Pairs (index into documents, score), best first, ties by index. Higher scores are
            better. Scores of different queries are comparable only where the model says so.

        Raises:
            RetrievalError: If the model fails, or its response cannot be used.
        """
        ...
