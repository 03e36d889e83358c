"""Chat with a real local server: candidates, streams, refusals, cancellation."""

from __future__ import annotations

import asyncio
import json

import pytest

from lazyrag import HttpChatModel
from lazyrag.errors import ConfigError, GenerationError, UnknownKeywordError
from lazyrag.models import ChatDelta, ChatModel, ChatOptions
from lazyrag.models.protocols import TokenLogprob, Usage, usage_of_calls
from tests.model_server import (
    KEY,
    PATIENCE_S,
    RawServer,
    answered,
    event,
    everything_shown,
    failed,
    head,
    piece,
    streamed,
)

pytestmark = pytest.mark.usefixtures("quick_endpoints")


@pytest.fixture
def chat(model):
    """A chat model at that server."""
    with HttpChatModel(model.url, "m", api_key=KEY) as one:
        yield one


def message(content, index=0, **others):
    """An answer with one candidate."""
    return answered(
        {
            "choices": [
                {"index": index, "message": {"content": content, **others}, "finish_reason": "stop"}
            ]
        }
    )


def broken(call):
    """The error that a call ends with, which shows no key."""
    with pytest.raises(GenerationError) as caught:
        call()
    assert KEY not in everything_shown(caught.value)
    return str(caught.value)


def streamed_until_error(deltas):
    """The texts that came, and the error after them."""
    texts = []

    def drain():
        for delta in deltas:
            texts.append(delta.text)  # noqa: PERF401  what came before an error counts

    return texts, broken(drain)


def test_it_is_a_chat_model(chat):
    """With URL and model as identity, and no secret in how it shows itself."""
    assert isinstance(chat, ChatModel)
    assert chat.identity == f"http:{chat.endpoint.base_url}:m"
    assert KEY not in f"{chat!r} {vars(chat)}"


def test_an_answer(chat, model):
    """Text, reason, model and usage; only what was asked for is sent."""
    answer = chat.chat("When is tea picked?")
    assert answer.text == "When is tea picked?"
    assert (answer.choices[0].finish_reason, answer.model, answer.usage) == (
        "stop",
        "echo-1",
        Usage(3, 2),
    )
    assert model.bodies == [
        {"model": "m", "messages": [{"role": "user", "content": "When is tea picked?"}]}
    ]


@pytest.mark.slow
def test_all_options_are_sent(chat, model):
    """By the names of the protocol; extra as it is."""
    extra = {"top_p": 0.5, "max_completion_tokens": 9}
    options = ChatOptions(
        n=2, temperature=0, max_tokens=5, stop=("END",), seed=7, logprobs=True, extra=extra
    )
    chat.chat(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tea?"}], options
    )
    assert model.bodies == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Tea?"},
            ],
            "n": 2,
            "temperature": 0,
            "max_tokens": 5,
            "stop": ["END"],
            "seed": 7,
            "logprobs": True,
            **extra,
        }
    ]


def test_a_calls_options_take_the_place_of_the_models(model):
    """As a whole; without them the model's own count."""
    with HttpChatModel(model.url, "m", options=ChatOptions(temperature=0.5, seed=1)) as one:
        one.chat("a")
        one.chat("a", ChatOptions(max_tokens=3))
    assert [sorted(body) for body in model.bodies] == [
        ["messages", "model", "seed", "temperature"],
        ["max_tokens", "messages", "model"],
    ]


@pytest.mark.parametrize("name", ["model", "messages", "stream", "n"])
def test_extra_cannot_change_what_the_model_sets(chat, name):
    """Neither for a call nor for all of them."""
    options = ChatOptions(extra={name: 1})
    with pytest.raises(ConfigError, match=f"extra .*{name}"):
        chat.stream("a", options)
    with pytest.raises(ConfigError, match=f"extra .*{name}"):
        HttpChatModel("http://localhost", "m", options=options)


def test_arguments_that_make_no_sense_are_refused(chat):
    """A blank prompt, and keywords that are misspelt."""
    for call in (chat.chat, chat.stream, chat.astream):
        with pytest.raises(ConfigError, match="prompt"):
            call(" ")
    with pytest.raises(UnknownKeywordError, match="Did you mean 'api_key'"):
        HttpChatModel("http://localhost", "m", apikey="x")


def test_several_candidates(chat, model):
    """n of them in one call, in the order of their indices."""
    choices = [{"index": index, "message": {"content": str(index)}} for index in (2, 0, 1)]
    model.faults = [answered({"choices": choices})]
    assert [choice.text for choice in chat.chat("a", ChatOptions(n=3)).choices] == ["0", "1", "2"]


def test_a_server_that_gives_one_candidate_is_asked_again(chat, model):
    """For each that is missing, at the same time, with a seed of its own; the usage is that of all
    calls.
    """

    def one_only(request):
        body = request.get_json()
        return answered(
            {
                "choices": [{"message": {"content": f"seed {body['seed']}"}}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2},
            }
        )

    model.faults = [one_only] * 9
    answer = chat.chat("a", ChatOptions(n=3, seed=7))
    assert [choice.text for choice in answer.choices] == ["seed 7", "seed 8", "seed 9"]
    assert answer.usage == Usage(3, 6)
    assert [body.get("n") for body in model.bodies] == [3, None, None]


def test_more_candidates_than_asked_for_are_cut(chat, model):
    """n are returned."""
    model.faults = [answered({"choices": [{"message": {"content": text}} for text in "abc"]})]
    assert [choice.text for choice in chat.chat("x").choices] == ["a"]


def test_logprobs(chat, model):
    """Of each token, where they are given."""
    told = {
        "content": [{"token": "Te", "logprob": -0.25, "bytes": None}, {"token": "a", "logprob": 0}]
    }
    model.faults = [answered({"choices": [{"message": {"content": "Tea"}, "logprobs": told}]})]
    [choice] = chat.chat("a", ChatOptions(logprobs=True)).choices
    assert choice.logprobs == (TokenLogprob("Te", -0.25), TokenLogprob("a", 0.0))
    model.faults = [
        answered({"choices": [{"message": {"content": "Tea"}, "logprobs": {"content": [7]}}]})
    ]
    assert "got [7]" in broken(lambda: chat.chat("a"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ""),
        (
            [
                {"type": "text", "text": "green "},
                {"type": "thinking", "thinking": "hm"},
                {"text": "tea"},
            ],
            "green tea",
        ),
    ],
)
def test_texts_and_parts_of_text(chat, model, content, text):
    """A list of parts is joined, what is not text is left out; an empty text is an answer."""
    model.faults = [message(content)]
    assert chat.chat("a").text == text


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            message(None, refusal="I would rather not."),
            "the model refused, saying 'I would rather not.'",
        ),
        (
            message(None, tool_calls=[{"id": "1"}]),
            "holds no text, but a tool call (finish_reason 'stop')",
        ),
        (message(None, reasoning_content="Let me think"), "reasoning only; raise max_tokens"),
        (message(None), "holds no text (finish_reason 'stop')"),
        (message([]), "holds no text"),
        (message(7), "got 7 (int)"),
        (message([7]), "must be a text or a list of parts"),
        (answered({"choices": []}), "no candidate"),
        (answered({"choices": [{}]}), "no message"),
        (answered({"choices": 7}), "must be {'choices'"),
        (answered([]), "must be {'choices'"),
        (failed(401, "who are you"), "401 Unauthorized: who are you. Check the key"),
        (failed(400, "too long"), "400 Bad Request: too long."),
    ],
    ids=repr,
)
def test_an_answer_without_text_is_an_error(chat, model, answer, told):
    """The error says what came instead, and from which model."""
    model.faults = [answer]
    error = broken(lambda: chat.chat("a"))
    assert told in error
    assert error.startswith(f"The chat model 'm' at {model.url} failed: ")


@pytest.mark.parametrize(
    "usage", [None, 7, {}, {"prompt_tokens": 3}, {"prompt_tokens": 3, "completion_tokens": "2"}]
)
def test_usage_that_is_not_told_is_none(chat, model, usage):
    """It is no reason to lose an answer."""
    model.faults = [
        answered({"choices": [{"message": {"content": "Tea"}}], "usage": usage, "model": 7})
    ]
    answer = chat.chat("a")
    assert (answer.text, answer.usage, answer.model) == ("Tea", None, "")


def test_an_answer_in_any_event_loop(chat):
    """Several at once, in two loops after each other."""

    async def several():
        answers = await asyncio.gather(*(chat.achat(f"question {number}") for number in range(5)))
        return [answer.text for answer in answers]

    assert (
        asyncio.run(several())
        == asyncio.run(several())
        == [f"question {number}" for number in range(5)]
    )


def test_cancelling_an_answer_ends_the_call():
    """The server sees the connection go."""
    with RawServer(b"", hold=True) as server:
        chat = HttpChatModel(server.url, "m")

        async def cancel():
            task = asyncio.ensure_future(chat.achat("a"))
            await asyncio.to_thread(server.asked.wait, PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        assert server.gone.wait(PATIENCE_S)


class TestStreams:
    """stream and astream."""

    def test_pieces_come_one_by_one(self, chat, model):
        """With the reason in the last one; pieces that say nothing are left out."""
        logprobs = {"content": [{"token": "green", "logprob": -1}]}
        role = {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            ]
        }
        usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        model.faults = [
            streamed(role, piece("green", logprobs=logprobs), piece(" 茶"), last, usage, "[DONE]")
        ]
        assert list(chat.stream("a")) == [
            ChatDelta("green", logprobs=(TokenLogprob("green", -1.0),)),
            ChatDelta(" 茶"),
            ChatDelta("", finish_reason="length"),
        ]
        assert model.bodies[0]["stream"] is True

    def test_in_any_event_loop(self, chat):
        """The same pieces."""

        async def collect():
            return [delta.text async for delta in chat.astream("green tea leaves")]

        assert asyncio.run(collect()) == ["green", "tea", "leaves", ""]

    def test_several_candidates_are_told_apart(self, chat, model):
        """By their index."""
        model.faults = [streamed(piece("a", 1), piece("b", 0), piece("c", 1), "[DONE]")]
        found = [(delta.index, delta.text) for delta in chat.stream("x", ChatOptions(n=2))]
        assert found == [(1, "a"), (0, "b"), (1, "c")]

    def test_candidates_that_do_not_come_are_an_error(self, chat, model):
        """After those that came; and so is one that nobody asked for."""
        model.faults = [streamed(piece("a"), "[DONE]")]
        texts, error = streamed_until_error(chat.stream("x", ChatOptions(n=2)))
        assert texts == ["a"]
        assert "held 1 of 2 candidates" in error
        model.faults = [streamed(piece("a", 1), "[DONE]")]
        assert "belongs to candidate 1" in streamed_until_error(chat.stream("x"))[1]

    @pytest.mark.parametrize(
        "end",
        [
            [piece("", finish_reason="stop")],
            ["[DONE]"],
            [piece("", finish_reason="stop"), "[DONE]"],
        ],
    )
    def test_a_reason_or_a_done_ends_a_stream(self, chat, model, end):
        """Servers send one of them at least."""
        model.faults = [streamed(piece("tea"), *end)]
        assert "".join(delta.text for delta in chat.stream("a")) == "tea"

    def test_a_stream_without_an_end_is_incomplete(self, chat, model):
        """The pieces are handed over, and then the error."""
        model.faults = [streamed(piece("green"), piece(" tea"))]
        texts, error = streamed_until_error(chat.stream("a"))
        assert texts == ["green", " tea"]
        assert "after 2 pieces. The answer is incomplete." in error

    def test_a_cut_connection_is_told_after_the_pieces(self):
        """In an event loop too."""
        start = head("text/event-stream", Content_Length="1000") + event(piece("green"))
        with RawServer(start) as server, HttpChatModel(server.url, "m", api_key=KEY) as chat:
            texts, error = streamed_until_error(chat.stream("a"))
            assert texts == ["green"]
            assert "the connection broke" in error
            assert "incomplete: it broke off after 1 pieces" in error
            found = []

            async def collect():
                async for delta in chat.astream("a"):
                    found.append(delta.text)  # noqa: PERF401  what came before an error counts

            with pytest.raises(GenerationError, match="incomplete"):
                asyncio.run(collect())
            assert found == ["green"]
            assert len(server.requests) == 2

    def test_an_error_in_the_stream_is_told_after_the_pieces(self, chat, model):
        """With the server's words."""
        model.faults = [streamed(piece("green"), {"error": {"message": "out of tea"}})]
        texts, error = streamed_until_error(chat.stream("a"))
        assert texts == ["green"]
        assert "out of tea" in error

    def test_a_refusal_is_an_error(self, chat, model):
        """A stream that held no text says what it held."""
        refusal = {
            "choices": [{"delta": {"refusal": "I would rather not."}, "finish_reason": "stop"}]
        }
        model.faults = [streamed(refusal, "[DONE]")]
        assert "the model refused" in streamed_until_error(chat.stream("a"))[1]

    def test_a_server_that_does_not_stream_gives_one_piece(self, chat, model):
        """Its whole answer."""
        model.faults = [message("green tea")]
        assert list(chat.stream("a")) == [ChatDelta("green tea", finish_reason="stop")]

    def test_trouble_before_the_first_piece_is_tried_again(self, chat, model):
        """As in any other call."""
        model.faults = [failed(503), failed(429)]
        assert [delta.text for delta in chat.stream("tea")] == ["tea", ""]
        assert len(model.requests) == 3

    @pytest.mark.parametrize("how", ["close", "break"])
    def test_leaving_a_stream_closes_its_connection(self, how):
        """While the server is still writing."""
        start = head("text/event-stream") + event(piece("green"))
        with RawServer(start, hold=True) as server:
            chat = HttpChatModel(server.url, "m")
            if how == "close":
                stream = chat.stream("a")
                next(stream)
                stream.close()
            else:
                for _ in chat.stream("a"):
                    break
            assert server.gone.wait(PATIENCE_S)

    @pytest.mark.parametrize("how", ["aclose", "cancel"])
    def test_leaving_an_async_stream_closes_its_connection(self, how):
        """The same in an event loop."""
        start = head("text/event-stream") + event(piece("green"))
        with RawServer(start, hold=True) as server:
            chat = HttpChatModel(server.url, "m")

            async def leave():
                stream = chat.astream("a")
                await anext(stream)
                if how == "aclose":
                    await stream.aclose()
                else:
                    waiting = asyncio.ensure_future(anext(stream))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting

            asyncio.run(leave())
            assert server.gone.wait(PATIENCE_S)


SCHEMA = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"]}


class TestJsonSchema:
    """Structured output, with a schema that the endpoint takes or rejects."""

    def test_it_is_sent_as_response_format(self, chat, model):
        """And a format in `extra` takes precedence."""
        chat.chat("tea?", ChatOptions(json_schema=SCHEMA))
        chat.chat(
            "tea?",
            ChatOptions(json_schema=SCHEMA, extra={"response_format": {"type": "json_object"}}),
        )
        chat.chat("tea?")
        wanted = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        }
        formats = [body.get("response_format") for body in model.bodies]
        assert formats == [wanted, {"type": "json_object"}, None]

    @pytest.mark.parametrize("status", [400, 422])
    def test_an_endpoint_that_rejects_it_is_asked_without(self, chat, model, status):
        """Once: the endpoint remembers it for the model."""
        model.faults = [failed(status, "response_format is unavailable")]
        for _ in range(3):
            assert chat.chat("tea?", ChatOptions(json_schema=SCHEMA)).text == "tea?"
        assert chat.endpoint.without_schema == {"m"}
        assert ["response_format" in body for body in model.bodies] == [True, False, False, False]

    def test_another_fault_is_not_held_against_the_schema(self, chat, model):
        """If the request fails without it too, the error is the second one, and the next call sends
        the schema.
        """
        model.faults = [failed(400, "first"), failed(400, "context too long"), failed(401)]
        for why in ("context too long", "401"):
            with pytest.raises(GenerationError, match=why):
                chat.chat("tea?", ChatOptions(json_schema=SCHEMA))
        assert chat.endpoint.without_schema == set()
        assert ["response_format" in body for body in model.bodies] == [True, False, True]


def test_usage_is_collected_of_all_calls_while_there_is_a_list(chat, model):
    """Of streams, too, which request it then; without a list, requests are as before."""
    calls = []
    token = usage_of_calls.set(calls)
    try:
        chat.chat("tea?")
        list(chat.stream("tea?"))
        asyncio.run(chat.achat("tea?"))
    finally:
        usage_of_calls.reset(token)
    assert calls == [Usage(3, 2)] * 3
    list(chat.stream("tea?"))
    assert [one.get("stream_options") for one in model.bodies] == [
        None,
        {"include_usage": True},
        None,
        None,
    ]


def test_halves_of_a_character_in_two_pieces_are_one(model):
    """A half alone becomes U+FFFD, streamed or not."""
    pieces = [piece(text) for text in ("tea \ud83c", "\udf75", " and \ud83c!", "\ud83c")]
    with HttpChatModel(model.url, "m") as one:
        model.faults = [
            streamed(*map(json.dumps, pieces), piece("", finish_reason="stop"), "[DONE]")
        ]
        assert (
            "".join(delta.text for delta in one.stream("q")) == "tea \U0001f375 and \ufffd!\ufffd"
        )
        model.faults = [answered({"choices": [{"message": {"content": "tea \ud83c"}}]})]
        assert one.chat("q").text == "tea \ufffd"
