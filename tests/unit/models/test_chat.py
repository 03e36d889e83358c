"""Bare callables as chat models."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lazyrag.errors import ConfigError, GenerationError
from lazyrag.models import (
    CallableChatModel,
    ChatCompletion,
    ChatDelta,
    ChatModel,
    ChatOptions,
    Message,
)
from lazyrag.models.chat import as_chat_model


def plain(text):
    """A function."""
    return text.upper()


def pieces(text):
    """A generator function."""
    yield from text.upper().split()


async def coroutine(text):
    """A coroutine function."""
    await asyncio.sleep(0)
    return text.upper()


async def apieces(text):
    """An asynchronous generator function."""
    for word in text.upper().split():
        await asyncio.sleep(0)
        yield word


def indirect(text):
    """A function that returns a coroutine."""
    return coroutine(text)


EVERY_KIND = pytest.mark.parametrize("function", [plain, pieces, coroutine, apieces, indirect])


def streamed(function, text, options=None):
    """The pieces of an asynchronous stream."""

    async def collect():
        return [delta async for delta in CallableChatModel(function).astream(text, options)]

    return asyncio.run(collect())


@EVERY_KIND
def test_every_kind_of_callable_answers_in_every_way(function):
    """Sync and async, whole and in pieces; a text is one piece."""
    model = CallableChatModel(function)
    whole = "GREENTEA" if function in {pieces, apieces} else "GREEN TEA"
    parts = ["GREEN", "TEA"] if function in {pieces, apieces} else ["GREEN TEA"]
    assert model.chat("green tea").text == asyncio.run(model.achat("green tea")).text == whole
    assert (
        list(model.stream("green tea"))
        == streamed(function, "green tea")
        == [ChatDelta(part) for part in parts]
    )


@EVERY_KIND
def test_n_candidates_are_n_calls(function):
    """Each with its index."""
    model = CallableChatModel(function)
    options = ChatOptions(n=3)
    assert [choice.text for choice in model.chat("tea", options).choices] == ["TEA"] * 3
    assert [choice.text for choice in asyncio.run(model.achat("tea", options)).choices] == [
        "TEA"
    ] * 3
    assert [delta.index for delta in model.stream("tea", options)] == [0, 1, 2]
    assert [delta.index for delta in streamed(function, "tea", options)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Tea?", "Tea?"),
        ([Message("user", "Tea?")], "Tea?"),
        ([Message("system", "Be brief.")], "system: Be brief."),
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tea?"}],
            "system: Be brief.\n\nuser: Tea?",
        ),
    ],
)
def test_messages_become_one_text(prompt, text):
    """A single question as it is; several messages after their roles."""
    assert CallableChatModel(lambda asked: asked).chat(prompt).text == text


def test_options_reach_what_takes_them():
    """By keyword; what the callable does not take is left out, and so is what was not given."""
    options = ChatOptions(temperature=0, seed=7, extra={"top_p": 0.5, "top_k": 3})

    def some(text, temperature=None, max_tokens="none", top_p=None):
        return f"{temperature} {max_tokens} {top_p}"

    def every(text, **keywords):
        return " ".join(f"{name}={value}" for name, value in sorted(keywords.items()))

    assert CallableChatModel(some).chat("a", options).text == "0 none 0.5"
    assert (
        CallableChatModel(every).chat("a", options).text == "seed=7 temperature=0 top_k=3 top_p=0.5"
    )
    assert CallableChatModel(plain).chat("a", options).text == "A"


@pytest.mark.parametrize(
    "wrong",
    [None, 7, b"tea", ["tea"], iter([7]), {"text": "tea"}],
    ids=lambda one: type(one).__name__,
)
def test_what_is_no_text_is_an_error(wrong):
    """It is named, with its type."""
    model = CallableChatModel(lambda text: wrong)
    with pytest.raises(GenerationError, match="must return a string"):
        model.chat("tea")
    with pytest.raises(GenerationError, match="must return a string"):
        asyncio.run(CallableChatModel(lambda text: [wrong]).achat("tea"))


def test_what_a_callable_raises_is_the_cause():
    """At the beginning, and after pieces that came."""

    def fails(text):
        yield "green"
        raise LookupError("no tea")

    stream = CallableChatModel(fails).stream("tea")
    assert next(stream).text == "green"
    with pytest.raises(GenerationError, match="raised LookupError: no tea") as caught:
        next(stream)
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(GenerationError, match="ZeroDivisionError"):
        asyncio.run(CallableChatModel(lambda text: 1 / 0).achat("tea"))


def test_a_generation_error_stays_what_it_is():
    """It is not wrapped in another."""

    def refuses(text):
        raise GenerationError("no")

    with pytest.raises(GenerationError, match=r"^no$"):
        CallableChatModel(refuses).chat("tea")


def test_a_plain_function_does_not_block_the_callers_loop():
    """It runs in another thread, its pieces too; a coroutine runs on the caller's own loop."""
    threads = []

    def where(text):
        for _ in range(2):
            threads.append(threading.current_thread())
            yield "x"

    async def here(text):
        threads.append(threading.current_thread())
        return "x"

    streamed(where, "tea")
    assert threading.current_thread() not in threads
    threads.clear()
    asyncio.run(CallableChatModel(here).achat("tea"))
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_leaving_a_stream_closes_the_callables(asynchronous):
    """An asynchronous generator is closed, wherever it runs."""
    closed = threading.Event()

    async def endless(text):
        try:
            while True:
                yield "x"
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    async def leave():
        stream = CallableChatModel(endless).astream("tea")
        await anext(stream)
        await stream.aclose()

    if asynchronous:
        asyncio.run(leave())
    else:
        stream = CallableChatModel(endless).stream("tea")
        next(stream)
        stream.close()
    assert closed.wait(30)


def test_who_says_which_model_it_is():
    """identity, or model_name; "" for neither."""

    class Named:
        """A callable with a name."""

        model_name = "echo"

        def __call__(self, text):
            """Repeat."""
            return text

    assert CallableChatModel(Named()).identity == "echo"
    assert CallableChatModel(plain).identity == ""


def test_a_chat_model_stays_as_it_is():
    """A callable becomes one, anything else is refused."""
    model = as_chat_model(plain)
    assert isinstance(model, ChatModel)
    assert as_chat_model(model) is model
    assert isinstance(model.chat("tea"), ChatCompletion)
    with pytest.raises(ConfigError, match="got 'gpt'"):
        as_chat_model("gpt")
    with pytest.raises(ConfigError, match="prompt"):
        model.stream("")
