"""Chat models by HTTP."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, GenerationError
from lazyrag.models import background
from lazyrag.models.http.answers import choices_of, deltas_of, usage_of
from lazyrag.models.http.endpoint import Endpoint, make_endpoint
from lazyrag.models.http.faults import EndpointError
from lazyrag.models.http.settings import checked_text
from lazyrag.models.protocol import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatOptions,
    Message,
    Prompt,
    Usage,
    as_messages,
)

if TYPE_CHECKING:
    from typing import Self, Unpack

    from lazyrag.models.http.settings import EndpointOptions

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
