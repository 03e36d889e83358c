"""Chat models from callables, and the readable part of an answer."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, GenerationError
from lazyrag.models import concurrency
from lazyrag.models.embedding import callable_identity, shown
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
from lazyrag.validation import keyword_names, require, without_none

MAX_ANSWER_LENGTH = 100_000
"""Maximum characters of an answer that is read; a longer one comes from a model that does not
stop."""
THOUGHTS = ("think", "thinking", "thought", "reasoning")
"""Tags around the reasoning of a model."""
_TAGS = "|".join(THOUGHTS)
_BEGINNING = re.compile(rf"\s*<({_TAGS})>", re.IGNORECASE)
_OPENED = re.compile(rf"<(?:{_TAGS})>", re.IGNORECASE)
_CODE_OR_CLOSED = re.compile(
    rf"""
      \\[\\`]                                                            # escaped
    | ^[ ]{{0,3}}(?P<fence>`{{3,}}(?=[^`\n]*$)|~{{3,}}) [\s\S]*?
      (?:\n[ ]{{0,3}}(?P=fence)[`~]*[ \t]*$|\Z)
    | (?<!`)(?P<ticks>`{{1,3}})(?!`) [^\n]*? (?<!`)(?P=ticks)(?!`)
    | (?P<closed></(?:{_TAGS})>)
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_LINE_END = re.compile(r"[ \t]*(?:[\r\n]|\Z)")
_LONGEST_CLOSING = max(map(len, THOUGHTS)) + len("</>")


class UnreadableAnswerError(ValueError):
    """Raised for an answer that cannot be read; the message tells the model why."""


_SURROGATE = re.compile("[\ud800-\udfff]")


class SurrogateJoiner:
    r"""Joins the halves of surrogate pairs in streamed text; a half alone becomes U+FFFD.

    Example:
        >>> joiner = SurrogateJoiner()
        >>> [joiner.feed("tea \ud83c"), joiner.feed("\udf75"), joiner.feed("\ud83c!")]
        ['tea ', '🍵', '�!']
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str, *, is_last: bool = False) -> str:
        """Add a piece, and return the text that it completes."""
        text = self._half + text
        self._half = ""
        if not _SURROGATE.search(text):
            return text
        if not is_last and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class ReasoningSplitter:
    """Splits streamed text into the thoughts before the answer, and the answer.

    Thoughts are between ``<think>`` and ``</think>`` (or ``thinking``, ``thought``, ``reasoning``)
    before anything else, perhaps in several blocks, or nested. Later tags are part of the answer.
    If an opening tag has no closing one, the answer begins after the last closing tag.

    Example:
        >>> splitter = ReasoningSplitter()
        >>> pieces = ("<th", "ink>Tea, so ...</thi", "nk>80 ", "degrees")
        >>> [splitter.feed(piece) for piece in pieces], splitter.reasoning
        (['', '', '80 ', 'degrees'], 'Tea, so ...')
    """

    def __init__(self) -> None:
        self._waiting = ""  # undecided text
        self._thoughts: list[str] = []
        self._tag: re.Pattern[str] | None = None  # opening and closing tags of the open block
        self._depth = 0
        # number of thoughts before the last closing tag in the open block
        self._after_closing: int | None = None
        self._answering = False

    @property
    def reasoning(self) -> str:
        """The thoughts so far; "" if there are none."""
        return "".join(self._thoughts).strip()

    @property
    def found(self) -> bool:
        """Whether there is a block of thoughts, perhaps an empty one."""
        return bool(self._thoughts) or self.unclosed

    @property
    def unclosed(self) -> bool:
        """Whether a block of thoughts has begun and not ended."""
        return self._tag is not None

    def feed(self, text: str) -> str:
        """Add a piece, and return the answer text that it completes."""
        if self._answering:
            return text
        self._waiting += text
        while not self._answering and self._step():
            pass
        if not self._answering:
            return ""
        text = self._waiting
        self._waiting = ""
        return text

    def end(self) -> str:
        """Return the rest of the answer text; call it once, at the end."""
        rest = self._waiting
        self._waiting = ""
        if self._tag is None:
            return rest
        self._thoughts.append(rest)
        if self._after_closing is None:
            return ""
        self._tag = None
        answer = "".join(self._thoughts[self._after_closing :])
        del self._thoughts[self._after_closing :]
        return answer

    def _step(self) -> bool:
        """Read one tag; False if more text is needed."""
        if self._tag is not None:
            tag = self._tag.search(self._waiting)
            if tag is None:
                # Keep only what may begin a tag.
                self._keep_thought(max(0, len(self._waiting) - _LONGEST_CLOSING))
                return False
            self._keep_thought(tag.start())
            self._waiting = self._waiting[len(tag[0]) :]
            self._depth += -1 if tag[1] else 1
            if tag[1]:
                self._thoughts.append("\n")
                self._after_closing = len(self._thoughts)
            if not self._depth:
                self._tag = None
            return True
        if begun := _BEGINNING.match(self._waiting):
            self._tag = re.compile(f"<(/?){begun[1]}>", re.IGNORECASE)
            self._depth = 1
            self._after_closing = None
            self._waiting = self._waiting[begun.end() :]
            return True
        begun_so_far = self._waiting.lstrip().lower()
        self._answering = not any(f"<{tag}>".startswith(begun_so_far) for tag in THOUGHTS)
        return False

    def _keep_thought(self, end: int) -> None:
        self._thoughts.append(self._waiting[:end])
        self._waiting = self._waiting[end:]


def split_reasoning(text: str) -> tuple[str | None, str]:
    """Split the reasoning of a model from its answer.

    Returns:
        The reasoning, None if there is none, and the rest. Tags in code, or mentioned within a
        line, belong to the answer; see `ReasoningSplitter` and `split_unopened`.

    Example:
        >>> split_reasoning("<think>Tea, so ...</think>80 degrees")
        ('Tea, so ...', '80 degrees')
        >>> split_reasoning("`</think>` ends it.")
        (None, '`</think>` ends it.')
    """
    splitter = ReasoningSplitter()
    answer = splitter.feed(text) + splitter.end()
    return (splitter.reasoning, answer) if splitter.found else split_unopened(text)


def split_unopened(text: str) -> tuple[str | None, str]:
    """Split thoughts without an opening tag, which some templates put into the prompt, from the
    answer.

    Returns:
        The thoughts, None without a closing tag or with an opening one; and the rest. Tags in code,
        or within a line after a space or a quotation mark, belong to the answer.

    Example:
        >>> split_unopened("Tea, so ...</think>80 degrees")
        ('Tea, so ...', '80 degrees')
    """
    if _OPENED.search(text):
        return None, text
    ends = [tag for tag in _CODE_OR_CLOSED.finditer(text) if tag["closed"] and _closes(tag)]
    return (text[: ends[-1].start()].strip(), text[ends[-1].end() :]) if ends else (None, text)


def _closes(tag: re.Match[str]) -> bool:
    """Whether a tag closes thoughts, and is not mentioned: it ends its line, or directly follows
    other text.
    """
    before = tag.string[tag.start() - 1 : tag.start()]
    return bool(_LINE_END.match(tag.string, tag.end())) or before not in tuple(" \t\"'“「‘(（")


def visible(answer: str) -> str:
    """Return an answer without the reasoning that precedes it.

    Raises:
        UnreadableAnswerError: If nothing is left, or the text cannot be stored.

    Example:
        >>> visible("<think>Tea, so...</think> Tea keeps.")
        'Tea keeps.'
    """
    if len(answer) > MAX_ANSWER_LENGTH:
        raise UnreadableAnswerError(
            f"the answer has {len(answer)} characters; the maximum is {MAX_ANSWER_LENGTH}"
        )
    try:
        answer.encode()
    except UnicodeEncodeError:
        raise UnreadableAnswerError(
            "the answer holds half a character (a lone surrogate)"
        ) from None
    text = answer.removeprefix("\ufeff").replace("\r\n", "\n")
    reasoning, text = split_reasoning(text)
    if reasoning is not None and not text.strip():
        raise UnreadableAnswerError("the answer has no text after the model's reasoning")
    text = text.replace("\x00", "").strip()
    if not text:
        raise UnreadableAnswerError("the answer is empty")
    return text


ChatCallable: TypeAlias = Callable[..., Any]
"""Takes a text; returns a text, or a (possibly asynchronous) iterator of its pieces. May be
asynchronous."""

_END: Any = object()


class CallableChatModel:
    r"""Adapts a callable to the `ChatModel` protocol.

    It is called once for each candidate, one after the other. Options that it takes by keyword
    (``temperature``, ``max_tokens``, ``stop``, ``seed``, those in ``extra``, and ``json_schema`` if
    it names that) are passed on.

    Args:
        function: Takes ONE text: the only message, if that is the user's; else all of them, each
            after its role, with an empty line between. Returns a text, or yields its pieces. Its
            attribute ``identity`` (or ``model_name``), a string, names the model.

    Raises:
        ConfigError: If it is not callable.

    Example:
        >>> model = CallableChatModel(lambda text: text.upper())
        >>> model.chat("tea?").text
        'TEA?'
        >>> system = {"role": "system", "content": "Be brief."}
        >>> model.chat([system, {"role": "user", "content": "tea?"}]).text
        'SYSTEM: BE BRIEF.\n\nUSER: TEA?'
    """

    def __init__(self, function: ChatCallable) -> None:
        require(
            callable(function),
            "The chat model",
            function,
            "a ChatModel, or a callable that turns a text into a text",
        )
        self.function = function
        self._keywords, self._takes_any = keyword_names(function, skip=1)

    @property
    def identity(self) -> str:
        """Identity of the callable; "" if it has none."""
        return callable_identity(self.function)

    def chat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Generate an answer and wait for it; a coroutine runs on the package's own event loop.

        Raises:
            GenerationError: If the callable raises, or returns something else than text.
        """
        options = options or ChatOptions()
        return _completion(self.stream(prompt, options), options.n)

    async def achat(self, prompt: Prompt, options: ChatOptions | None = None) -> ChatCompletion:
        """Generate an answer; a plain function runs in a thread, a coroutine on the caller's
        loop.
        """
        options = options or ChatOptions()
        return _completion([delta async for delta in self.astream(prompt, options)], options.n)

    def stream(self, prompt: Prompt, options: ChatOptions | None = None) -> Iterator[ChatDelta]:
        """Stream an answer, in one piece if the callable returns a text; candidates come one after
        the other.
        """
        return self._stream(_as_text(as_messages(prompt)), options or ChatOptions())

    def astream(
        self, prompt: Prompt, options: ChatOptions | None = None
    ) -> AsyncIterator[ChatDelta]:
        """Stream an answer, as `achat` does."""
        return self._astream(_as_text(as_messages(prompt)), options or ChatOptions())

    def _stream(self, text: str, options: ChatOptions) -> Iterator[ChatDelta]:
        keywords = self._supported(options)
        for index in range(options.n):
            with _generation_errors():
                returned = self.function(text, **keywords)
                if inspect.isawaitable(returned):
                    returned = concurrency.run(_await(returned))
                if isinstance(returned, AsyncIterator):
                    returned = concurrency.stream(_closing(returned))
                try:
                    for piece in returned if isinstance(returned, Iterator) else [returned]:
                        yield ChatDelta(_check_piece(piece), index)
                finally:
                    if isinstance(returned, Generator):
                        returned.close()

    async def _astream(self, text: str, options: ChatOptions) -> AsyncGenerator[ChatDelta, None]:
        keywords = self._supported(options)
        for index in range(options.n):
            with _generation_errors():
                returned = await concurrency.in_thread(self.function, text, **keywords)
                if inspect.isawaitable(returned):
                    returned = await returned
                if not isinstance(returned, AsyncIterator):
                    returned = _in_threads(
                        returned if isinstance(returned, Iterator) else iter([returned])
                    )
                async with contextlib.aclosing(_closing(returned)) as pieces:
                    async for piece in pieces:
                        yield ChatDelta(_check_piece(piece), index)

    def _supported(self, options: ChatOptions) -> dict[str, Any]:
        """Return the options that the callable takes."""
        named = {
            name: getattr(options, name) for name in ("temperature", "max_tokens", "stop", "seed")
        }
        named = without_none(named) | dict(options.extra or {})
        chosen = {
            name: value
            for name, value in named.items()
            if self._takes_any or name in self._keywords
        }
        if options.json_schema is not None and "json_schema" in self._keywords:
            chosen["json_schema"] = options.json_schema
        return chosen


def as_chat_model(model: ChatModel | ChatCallable) -> ChatModel:
    """Return a `ChatModel` as it is, and wrap any other callable in a `CallableChatModel`.

    Raises:
        ConfigError: If it is neither.
    """
    return model if isinstance(model, ChatModel) else CallableChatModel(model)


def _as_text(messages: tuple[Message, ...]) -> str:
    if not all(isinstance(message.content, str) for message in messages):
        raise ConfigError(
            "A function as chat model takes texts only. For images pass a ChatModel, e.g."
            " HttpChatModel."
        )
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].text
    return conversation_text(messages)


def conversation_text(messages: Iterable[Message]) -> str:
    r"""Return messages as one text, each after its role, with an empty line between.

    Example:
        >>> conversation_text([Message("user", "Tea?"), Message("assistant", "Yes.")])
        'user: Tea?\n\nassistant: Yes.'
    """
    return "\n\n".join(f"{message.role}: {message.text}" for message in messages)


def _completion(deltas: Iterable[ChatDelta], n: int) -> ChatCompletion:
    texts: list[list[str]] = [[] for _ in range(n)]
    for delta in deltas:
        texts[delta.index].append(delta.text)
    return ChatCompletion(tuple(ChatChoice("".join(pieces)) for pieces in texts))


def _check_piece(piece: Any) -> str:
    if not isinstance(piece, str):
        raise GenerationError(
            f"The chat model must return a string, or an iterator of strings; got {shown(piece)}."
        )
    return piece


@contextlib.contextmanager
def _generation_errors() -> Iterator[None]:
    try:
        yield
    except GenerationError:
        raise
    except Exception as exc:
        raise GenerationError(f"The chat model raised {type(exc).__name__}: {exc}.") from exc


async def _await(returned: Awaitable[Any]) -> Any:
    return await returned


async def _closing(items: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """Yield the same items from a generator that closes its source when it is closed."""
    try:
        async for item in items:
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


async def _in_threads(items: Iterator[Any]) -> AsyncGenerator[Any, None]:
    while (item := await concurrency.in_thread(next, items, _END)) is not _END:
        yield item
