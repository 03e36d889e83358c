"""Bare callables as chat models."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, GenerationError
from lazyrag.models import concurrency as background
from lazyrag.models.concurrency import in_thread
from lazyrag.models.embedding import shown
from lazyrag.models.protocols import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatModel,
    ChatOptions,
    Message,
    Prompt,
    as_messages,
)
from lazyrag.validation import keyword_names

LONGEST_ANSWER = 100_000
"""Characters of an answer that are read; a longer one is a model that does not stop."""
THOUGHTS = ("think", "thinking", "thought", "reasoning")
"""The tags between which models write what they think."""
_THINKING = re.compile(rf"\s*<({'|'.join(THOUGHTS)})>", re.IGNORECASE)
_THOUGHT = re.compile(rf"</(?:{'|'.join(THOUGHTS)})>", re.IGNORECASE)


class UnreadableAnswerError(ValueError):
    """An answer that holds nothing of what was asked for; the message tells the model why."""


def visible(answer: str) -> str:
    """An answer without the thoughts that reasoning models write before it.

    Raises:
        UnreadableAnswerError: If nothing is left, or it is no text that could be kept.

    Example:
        >>> visible("<think>Tea, so...</think> Tea keeps.")
        'Tea keeps.'
    """
    if len(answer) > LONGEST_ANSWER:
        msg = f"the answer has {len(answer)} characters, and {LONGEST_ANSWER} are the most"
        raise UnreadableAnswerError(msg)
    try:
        answer.encode()
    except UnicodeEncodeError:
        msg = "the answer holds half a character (a lone surrogate)"
        raise UnreadableAnswerError(msg) from None
    text = answer.removeprefix("\ufeff").replace("\r\n", "\n")
    begun, thoughts = _THINKING.match(text), list(_THOUGHT.finditer(text))
    first_thought = re.search(rf"<(?:{'|'.join(THOUGHTS)})>", text, re.IGNORECASE)
    if begun and not thoughts:
        msg = "the answer ends before the model's thinking does"
        raise UnreadableAnswerError(msg)
    if thoughts and (begun or first_thought is None):  # some templates leave the opening tag in the prompt
        text = text[thoughts[-1].end() :]
    text = text.replace("\x00", "").strip()
    if not text:
        msg = "the answer is empty"
        raise UnreadableAnswerError(msg)
    return text


ChatCallable: TypeAlias = Callable[..., Any]
"""Called with one text, returns one, or an iterator or asynchronous iterator of its pieces; may be asynchronous."""

_END: Any = object()


class CallableChatModel:
    r"""A bare callable as a `ChatModel`.

    It is called once for each candidate, one after the other. Those of the options that it takes by keyword
    (``temperature``, ``max_tokens``, ``stop``, ``seed``, and what stands in ``extra``) reach it; the others are its own
    to decide.

    Args:
        function: Called with ONE text: the only message, if it is the user's; else all of them, each after its role,
            with an empty line between. It returns a text, or yields the pieces of one. Its attribute ``identity`` (or
            ``model_name``), a text, says which model it is.

    Raises:
        ConfigError: If it is no callable.

    Example:
        >>> model = CallableChatModel(lambda text: text.upper())
        >>> model.chat("tea?").text
        'TEA?'
        >>> model.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "tea?"}]).text
        'SYSTEM: BE BRIEF.\n\nUSER: TEA?'
    """

    def __init__(self, function: ChatCallable) -> None:
        if not callable(function):
            msg = f"The chat model is {function!r:.80}; give a callable that turns a text into a text, or a ChatModel."
            raise ConfigError(msg)
        self.function = function
        self._keywords, self._takes_any = keyword_names(function, skip=1)

    @property
    def identity(self) -> str:
        """What the callable says of itself; "" where it says nothing."""
        told = (getattr(self.function, name, None) for name in ("identity", "model_name"))
        return next((name for name in told if isinstance(name, str) and name), "")

    def chat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Answer, and wait for it; a coroutine runs on an event loop of this package's own.

        Raises:
            GenerationError: If the callable raises, or returns something else.
        """
        options = options or ChatOptions()
        return _completion(self.stream(prompt, options), options.n)

    async def achat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Answer; a plain function runs in a thread, a coroutine on the caller's loop."""
        options = options or ChatOptions()
        return _completion([delta async for delta in self.astream(prompt, options)], options.n)

    def stream(self, prompt: Prompt, options: ChatOptions | None = None) -> Iterator[ChatDelta]:
        """Answer piece by piece, in one piece where the callable returns a text; candidates come after each other."""
        return self._stream(_as_text(as_messages(prompt)), options or ChatOptions())

    def astream(self, prompt: Prompt, options: ChatOptions | None = None) -> AsyncIterator[ChatDelta]:
        """Answer piece by piece, as `achat` does."""
        return self._astream(_as_text(as_messages(prompt)), options or ChatOptions())

    def _stream(self, text: str, options: ChatOptions) -> Iterator[ChatDelta]:
        keywords = self._taken(options)
        for index in range(options.n):
            with _told():
                returned = self.function(text, **keywords)
                if inspect.isawaitable(returned):
                    returned = background.run(_awaited(returned))
                if isinstance(returned, AsyncIterator):
                    returned = background.stream(_relayed(returned))
                try:
                    for piece in returned if isinstance(returned, Iterator) else [returned]:
                        yield ChatDelta(_checked(piece), index)
                finally:
                    if isinstance(returned, Generator):
                        returned.close()

    async def _astream(self, text: str, options: ChatOptions) -> AsyncGenerator[ChatDelta, None]:
        keywords = self._taken(options)
        for index in range(options.n):
            with _told():
                returned = await in_thread(self.function, text, **keywords)
                if inspect.isawaitable(returned):
                    returned = await returned
                if not isinstance(returned, AsyncIterator):
                    returned = _in_threads(returned if isinstance(returned, Iterator) else iter([returned]))
                async with contextlib.aclosing(_relayed(returned)) as pieces:
                    async for piece in pieces:
                        yield ChatDelta(_checked(piece), index)

    def _taken(self, options: ChatOptions) -> dict[str, Any]:
        """The options that the callable takes."""
        told = {name: getattr(options, name) for name in ("temperature", "max_tokens", "stop", "seed")}
        told = {name: value for name, value in told.items() if value is not None} | dict(options.extra or {})
        return {name: value for name, value in told.items() if self._takes_any or name in self._keywords}


def as_chat_model(model: ChatModel | ChatCallable) -> ChatModel:
    """A `ChatModel` as it is, a bare callable behind a `CallableChatModel`.

    Raises:
        ConfigError: If it is neither.
    """
    return model if isinstance(model, ChatModel) else CallableChatModel(model)


def _as_text(messages: tuple[Message, ...]) -> str:
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


def _completion(deltas: Iterable[ChatDelta], n: int) -> ChatCompletion:
    texts: list[list[str]] = [[] for _ in range(n)]
    for delta in deltas:
        texts[delta.index].append(delta.text)
    return ChatCompletion(tuple(ChatChoice("".join(pieces)) for pieces in texts))


def _checked(piece: Any) -> str:
    if not isinstance(piece, str):
        msg = f"The chat model returned {shown(piece)}; a text, or an iterator of texts, is needed."
        raise GenerationError(msg)
    return piece


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except GenerationError:
        raise
    except Exception as exc:
        msg = f"The chat model raised {type(exc).__name__}: {exc}."
        raise GenerationError(msg) from exc


async def _awaited(returned: Awaitable[Any]) -> Any:
    return await returned


async def _relayed(items: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """The same items, from something that can be closed and then closes what it has them from."""
    try:
        async for item in items:
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


async def _in_threads(items: Iterator[Any]) -> AsyncGenerator[Any, None]:
    while (item := await in_thread(next, items, _END)) is not _END:
        yield item
