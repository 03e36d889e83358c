"""What a model is to everything above: three Protocols, and the values they exchange."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeGuard, cast, runtime_checkable

from lazyrag.errors import ConfigError, known_names
from lazyrag.types import Embedding, Matrix
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from lazyrag.errors import EmbeddingError


ROLES = ("system", "user", "assistant")

InputType: TypeAlias = Literal["query", "document"]
"""What a text is to an embedder; asymmetric models embed questions otherwise than what is searched."""

Embedded: TypeAlias = "Embedding | EmbeddingError"
"""What became of one text."""


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """A batch that is done.

    Args:
        positions: Which of the texts, by their place in the list that was given.
        results: For each of them its vector, or the error that says why it has none.
    """

    positions: Sequence[int]
    results: Sequence[Embedded]


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors, many at once."""

    @property
    def identity(self) -> str:
        """What the vectors depend on: model, revision, pooling, dimension ... Equal identities mean equal vectors.

        It is part of stored names and cache keys, and holds no secret. "" where it is not known.
        """
        ...

    @property
    def dimension(self) -> int | None:
        """The length of a dense vector; None where it is not known yet, or vectors are sparse."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """How many tokens of a text the model reads at once; None where it is not known."""
        ...

    @property
    def normalised(self) -> bool:
        """Whether vectors have length 1."""
        ...

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any] | Matrix:
        """Embed texts.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are questions, or what is searched.

        Returns:
            n vectors in the order of the texts: an array of shape (n, dim), a list of lists, or a list of dicts from
            dimension to weight. An exception in a text's place says that this text failed.

        Raises:
            EmbeddingError: If a text has no vector.
        """
        ...


@runtime_checkable
class BatchEmbedder(Embedder, Protocol):
    """An `Embedder` that hands over each batch when it is done, so that a cache keeps it whatever comes after."""

    def embed_batches(self, texts: Sequence[str], input_type: InputType = "document") -> Iterator[EmbeddedBatch]:
        """Embed texts; every position comes exactly once, batches in any order. One bad text fails itself only."""
        ...


_MEMBERS = ("identity", "dimension", "max_tokens", "normalised")


def lacking(value: object, members: Sequence[str]) -> list[str]:
    """Those members that an object does not have; none is computed, as `isinstance` does on Python 3.10 and 3.11.

    Example:
        >>> lacking("tea", ["upper", "brew"])
        ['brew']
    """
    absent = object()
    return [
        name
        for name in members
        if inspect.getattr_static(value, name, absent) is absent and getattr(value, name, absent) is absent
    ]


def is_embedder(value: object) -> TypeGuard[Embedder]:
    """Whether an object has the members of `Embedder`; a class of such objects has not."""
    return not isinstance(value, type) and not lacking(value, [*_MEMBERS, "embed"])


def is_batch_embedder(value: object) -> TypeGuard[BatchEmbedder]:
    """Whether it has those of `BatchEmbedder`."""
    return is_embedder(value) and not lacking(value, ["embed_batches"])


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            msg = f"A message's role is {self.role!r}. {known_names(str(self.role), ROLES)}"
            raise ConfigError(msg)
        if not isinstance(self.content, str):
            msg = f"A message's content is {self.content!r:.60} ({type(self.content).__name__}); give a text."
            raise ConfigError(msg)


Prompt: TypeAlias = "str | Sequence[Message | Mapping[str, str]]"
"""What a chat model is asked: one user message as a text, or messages, oldest first."""


def as_messages(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt as messages.

    Raises:
        ConfigError: If there is none, or one is no message.

    Example:
        >>> as_messages("Why?")
        (Message(role='user', content='Why?'),)
    """
    if isinstance(prompt, str):
        prompt = [Message("user", prompt)]
    found = []
    for one in prompt if isinstance(prompt, Sequence) else [prompt]:
        if isinstance(one, Mapping) and one.keys() == {"role", "content"}:
            one = Message(cast("Any", one["role"]), one["content"])  # noqa: PLW2901  the role is checked there
        if not isinstance(one, Message):
            msg = f"A prompt holds {one!r:.80}; give a text, or a list of messages {{'role': ..., 'content': ...}}."
            raise ConfigError(msg)
        found.append(one)
    if not found or not any(one.content.strip() for one in found):
        msg = f"The prompt is {prompt!r:.80}; give a text, or messages that are not all blank."
        raise ConfigError(msg)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token and the natural logarithm of its probability, at most 0."""

    token: str
    logprob: float


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """One candidate answer.

    Args:
        text: The answer.
        finish_reason: Why it ended, in the model's words: ``"stop"``, ``"length"`` ...; None where not told.
        logprobs: Of each token, in order; None where not asked for or not given.
    """

    text: str
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a call was charged for."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """All that a chat model answered to one prompt.

    Args:
        choices: n candidates, at least one.
        model: The model's own name for itself; "" where not told.
        usage: None where not told.
    """

    choices: tuple[ChatChoice, ...]
    model: str = ""
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The first candidate's text."""
        return self.choices[0].text


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """A piece of a candidate while it is being written.

    Args:
        text: What is new; may be "".
        index: Which candidate, from 0.
        finish_reason: Set in a candidate's last piece.
        logprobs: Of the new tokens; None where not asked for or not given.
    """

    text: str
    index: int = 0
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How an answer is to be generated; None leaves it to the model.

    Args:
        n: How many candidates, at least 1.
        temperature: At least 0; 0 takes the likeliest token each time.
        max_tokens: At most so many tokens in each answer, at least 1.
        stop: Texts that end an answer.
        seed: For models that can repeat their choices.
        logprobs: Whether to ask for the tokens' logarithmic probabilities.
        extra: Whatever else the endpoint takes, by its own names; passed on as it is.
    """

    n: int = 1
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    seed: int | None = None
    logprobs: bool = False
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        whole_number("n", self.n, 1)
        if self.max_tokens is not None:
            whole_number("max_tokens", self.max_tokens, 1)
        if self.seed is not None:
            whole_number("seed", self.seed, -(2**63))
        if self.temperature is not None and not (
            isinstance(self.temperature, (int, float)) and 0 <= self.temperature < math.inf
        ):
            msg = f"temperature is {self.temperature!r}; give a number of at least 0, or None for the model's own."
            raise ConfigError(msg)
        if not isinstance(self.logprobs, bool):
            msg = f"logprobs is {self.logprobs!r}; give True or False."
            raise ConfigError(msg)
        if self.extra is not None and not isinstance(self.extra, Mapping):
            msg = f"extra is {self.extra!r:.80}; give a mapping of the endpoint's own names to values."
            raise ConfigError(msg)
        if self.stop is not None and (
            not isinstance(self.stop, (list, tuple)) or not all(isinstance(one, str) and one for one in self.stop)
        ):
            msg = f"stop is {self.stop!r}; give a list of texts, none of them empty."
            raise ConfigError(msg)


@runtime_checkable
class ChatModel(Protocol):
    """Answers prompts, whole or piece by piece, in threads and in event loops."""

    @property
    def identity(self) -> str:
        """Which model, for traces and cache keys; no secrets; "" where not known."""
        ...

    def chat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Answer, and wait for it.

        Raises:
            GenerationError: If the model fails, or answers with something unusable.
        """
        ...

    async def achat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Answer, in any event loop; cancelling the task ends the call."""
        ...

    def stream(self, prompt: Prompt, options: ChatOptions | None = None) -> Iterator[ChatDelta]:
        """Answer piece by piece; closing the iterator ends the call."""
        ...

    def astream(self, prompt: Prompt, options: ChatOptions | None = None) -> AsyncIterator[ChatDelta]:
        """Answer piece by piece, in any event loop."""
        ...


@runtime_checkable
class RerankModel(Protocol):
    """Says how well documents answer a query."""

    @property
    def identity(self) -> str:
        """Which model, for traces and cache keys; no secrets; "" where not known."""
        ...

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            Pairs (index into documents, score), best first, ties by index; a higher score is a better document, and
            scores of different queries compare only where the model says so.

        Raises:
            RetrievalError: If the model fails, or answers with something else.
        """
        ...
