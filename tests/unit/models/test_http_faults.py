"""One table of faults for every kind of call to an endpoint: chat, streams, embeddings and both
rerank protocols.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import struct
import time

import pytest

from lazyrag import Document, HttpChatModel, HttpEmbedder, HttpRerankModel, RAGPipeline
from lazyrag.errors import ConfigError, EmbeddingError, GenerationError, RetrievalError
from lazyrag.models import Endpoint
from lazyrag.models import concurrency as background
from lazyrag.models.openai import client
from tests.model_server import (
    KEY,
    PATIENCE_S,
    RawServer,
    event,
    everything_shown,
    head,
    item,
    piece,
)

pytestmark = pytest.mark.usefixtures("quick_endpoints")


def response(body, status="200 OK", content_type="application/json", **headers):
    """A complete response, as bytes."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    start = head(content_type, Content_Length=len(body), **headers)
    return start.replace(b"200 OK", status.encode()) + body


def deltas(model):
    """The streamed text."""
    return "".join(delta.text for delta in model.stream("tea?"))


CALLS = {
    "chat": (
        lambda url, **options: HttpChatModel(url, "m", api_key=KEY, **options),
        lambda model: model.chat("tea?").text,
        response({"choices": [{"message": {"content": "Green."}, "finish_reason": "stop"}]}),
        "Green.",
        GenerationError,
    ),
    "stream": (
        lambda url, **options: HttpChatModel(url, "m", api_key=KEY, **options),
        deltas,
        response(event(piece("Green.")) + event("[DONE]"), content_type="text/event-stream"),
        "Green.",
        GenerationError,
    ),
    "embed": (
        lambda url, **options: HttpEmbedder(url, "m", api_key=KEY, **options),
        lambda model: model.embed(["tea"]).tolist(),
        response({"data": [item(0, "tea")]}),
        [[3.0, 1.0]],
        EmbeddingError,
    ),
    "rerank": (
        lambda url, **options: HttpRerankModel(url, "m", api_key=KEY, **options),
        lambda model: model("tea?", ["tea"]),
        response({"results": [{"index": 0, "relevance_score": 1.0}]}),
        [(0, 1.0)],
        RetrievalError,
    ),
    "rerank-tei": (
        lambda url, **options: HttpRerankModel(url, "m", api_key=KEY, api="tei", **options),
        lambda model: model("tea?", ["tea"]),
        response([{"index": 0, "score": 1.0}]),
        [(0, 1.0)],
        RetrievalError,
    ),
}
"""By kind of call: make the model, call it, a good response, its result, the error of a bad one."""


def reset(connection):
    """Reset the connection instead of an answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def drip(connection):
    """Send a blank at a time, for ever: never silent, never done."""
    connection.sendall(head(dripped["content_type"]))
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b" ")
            time.sleep(0.01)


dripped = {"content_type": "application/json"}  # of the call under test

FOREVER, ONCE_MORE, NEVER = 3, 2, 1  # tries with two retries
FAULTS = {
    "reset": (reset, "the connection broke", FOREVER),
    "cut in the head": (b"HTTP/1.1 200 OK\r\nContent-", "the connection broke", FOREVER),
    "cut in the body": (head(Content_Length=100) + b'{"data": [', "the connection broke", FOREVER),
    "no HTTP": (
        b"220 mail.example ESMTP " + KEY.encode() + b"\r\n\r\n",
        "the connection broke",
        FOREVER,
    ),
    "broken header": (
        b"HTTP/1.1 200 OK\r\n" + KEY.encode() + b"\r\n\r\n{}",
        "the connection broke",
        FOREVER,
    ),
    "broken gzip": (response(b"no gzip", Content_Encoding="gzip"), "the connection broke", FOREVER),
    "slow drip": (drip, r"longer than deadline_s=1\.5", NEVER),
    "web page": (
        response(b"<html>Sign in</html>", content_type="text/html"),
        "Check base_url",
        ONCE_MORE,
    ),
    "half JSON": (response(b'{"data": ['), "the answer is not JSON", ONCE_MORE),
    "no JSON": (response(f"Hello {KEY}".encode()), "the answer is not JSON", ONCE_MORE),
    "deep JSON": (response(b"[" * 100_000), "the answer is not JSON", ONCE_MORE),
    "other shape": (response({"surprise": [1]}), "failed: the (answer|stream)", NEVER),
    "other values": (
        response({"choices": 7, "data": 7, "results": 7}),
        "failed: the answer",
        NEVER,
    ),
    "huge": (
        response(b"[" + b"1," * 100_000 + b"1]"),
        "larger than max_answer_bytes=50,000. Raise",
        NEVER,
    ),
    "huge unzipped": (
        response(gzip.compress(bytes(10_000_000)), Content_Encoding="gzip"),
        "larger than max_answer_bytes=50,000. Raise",
        NEVER,
    ),
    "huge error": (
        response(b"x" * 2_000_000, "400 Bad Request"),
        "400 Bad Request: no explanation",
        NEVER,
    ),
    "bad key": (
        response({"error": {"message": f"bad key {KEY}"}}, "401 Unauthorized"),
        r"bad key \*\*\*",
        NEVER,
    ),
    "busy": (response({"error": "busy"}, "429 Too Many", Retry_After_Ms=30), "429 .*busy", FOREVER),
    "down": (
        response({"error": "down"}, "503 Unavailable", Retry_After="0.02"),
        "503 .*down",
        FOREVER,
    ),
    "error as success": (
        response({"error": {"message": f"broken {KEY}"}}),
        r"broken \*\*\*",
        NEVER,
    ),
}
"""What a server sends (or does), words of the error, and how often it is tried with two retries."""


@pytest.mark.sample(14)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", CALLS)
def test_a_fault_is_one_clear_error(kind, fault, monkeypatch):
    """Of the model's own type, with its name and no key; it is tried as often as that helps; the
    next call succeeds.
    """
    make, call, good, expected, error = CALLS[kind]
    script, words, tries = FAULTS[fault]
    monkeypatch.setattr(client, "_DEADLINE_FACTOR", 0.05)  # of timeout_s=30
    monkeypatch.setitem(
        dripped, "content_type", "text/event-stream" if kind == "stream" else "application/json"
    )
    if fault == "web page" and kind == "stream":
        tries = NEVER  # the content type is enough
    options = {"max_answer_bytes": 50_000} if fault.startswith("huge") else {}
    deadline = {} if fault == "slow drip" else {"deadline_s": 60}
    with (
        RawServer(*[script] * tries, good) as server,
        make(server.url, retries=2, timeout_s=30, **options, **deadline) as model,
    ):
        with pytest.raises(error, match=words) as caught:
            call(model)
        assert len(server.requests) == tries
        assert ("tried" in str(caught.value)) == (tries > 1)
        assert f"model 'm' at {server.url} failed: " in str(caught.value)
        assert KEY not in everything_shown(caught.value)
        assert call(model) == expected
    if tries == FOREVER:  # within the retries it is no error
        with RawServer(script, script, good) as server, make(server.url, retries=2) as model:
            assert call(model) == expected


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200", head(), head() + b'{"choi', head("text/event-stream") + b"data"]
)
@pytest.mark.parametrize("kind", ["chat", "stream", "rerank"])
def test_cancelling_ends_the_call(kind, sent):
    """Whatever has come of the answer by then: the server sees the connection go."""
    with RawServer(sent, hold=True) as server, CALLS[kind][0](server.url) as model:

        async def drain():
            async for _ in model.astream("tea?"):
                pass

        async def cancel():
            work = {
                "chat": lambda: model.achat("tea?"),
                "stream": drain,
                "rerank": lambda: model.arerank("q", ["tea"]),
            }
            task = asyncio.ensure_future(work[kind]())
            await asyncio.to_thread(server.asked.wait, PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        assert server.gone.wait(PATIENCE_S)


def test_cancelling_during_a_tls_handshake_closes_the_connection():
    """The server accepts and then says nothing: no request was sent, and the connection is gone all
    the same.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = Endpoint(f"https://127.0.0.1:{listening.getsockname()[1]}/v1")

        async def cancel():
            task = asyncio.ensure_future(background.arun(one.post("/x", {})))
            connection, _ = await asyncio.to_thread(listening.accept)
            with connection:
                connection.settimeout(PATIENCE_S)
                assert await asyncio.to_thread(connection.recv, 4096)  # the client's hello
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.to_thread(connection.recv, 4096) == b""

        asyncio.run(cancel())
        one.close()


class TestSizes:
    """`max_answer_bytes`."""

    def test_the_default_grows_with_the_batch(self, monkeypatch):
        """An answer that is too large for one text is none for two."""
        monkeypatch.setattr(client, "_ANSWER_BYTES", 100)
        monkeypatch.setattr(client, "_TEXT_BYTES", 40_000)
        vector = [0.123456789012345] * 1500
        two = response({"data": [{"index": at, "embedding": vector} for at in range(2)]})
        with RawServer(two) as server, HttpEmbedder(server.url, "m") as one:
            assert one.embed(["tea", "milk"]).shape == (2, 1500)
            with pytest.raises(EmbeddingError, match="larger than max_answer_bytes=40,100"):
                one.embed(["tea"])

    @pytest.mark.slow
    def test_the_largest_batches_pass(self):
        """2,048 vectors of 3,072 numbers, 75 MB as JSON of float32 and twice as much of float64."""
        numbers = ", ".join(["-0.012345678901234567"] * 3072)
        rows = ", ".join(f'{{"index": {at}, "embedding": [{numbers}]}}' for at in range(2048))
        body = f'{{"data": [{rows}]}}'.encode()
        with (
            RawServer(response(body)) as server,
            HttpEmbedder(server.url, "m", batch_size=2048) as one,
        ):
            vectors = one.embed([f"text {at}" for at in range(2048)])
        assert vectors.shape == (2048, 3072)

    def test_streams_are_limited_too(self):
        """All events together, and one event without an end."""
        many = head("text/event-stream") + event(piece("tea " * 100)) * 200
        endless = head("text/event-stream") + b"data: " + b"x" * 100_000
        for sent in (many, endless):
            with (
                RawServer(sent) as server,
                HttpChatModel(server.url, "m", max_answer_bytes=50_000) as one,
                pytest.raises(GenerationError, match="larger than max_answer_bytes=50,000"),
            ):
                deltas(one)

    @pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1 MB"])
    def test_wrong_sizes_are_refused(self, wrong):
        """The message names the argument."""
        with pytest.raises(ConfigError, match="max_answer_bytes"):
            Endpoint("http://localhost", max_answer_bytes=wrong)


class TestDeadlines:
    """`deadline_s`, where it is not given."""

    def test_it_follows_from_the_timeout(self):
        """Ten times as long."""
        assert Endpoint("http://localhost", timeout_s=2).deadline_s == 20
        assert Endpoint("http://localhost", timeout_s=2, deadline_s=7).deadline_s == 7

    @pytest.mark.slow
    def test_a_stream_has_none_as_a_whole(self, monkeypatch):
        """While pieces come it goes on, however long it takes; a deadline that was given is one for
        all of it.
        """
        monkeypatch.setattr(client, "_DEADLINE_FACTOR", 0.1)

        def slow(connection):
            connection.sendall(head("text/event-stream"))
            for _ in range(12):
                connection.sendall(event(piece("a")))
                time.sleep(0.3)
            connection.sendall(event("[DONE]"))

        with RawServer(slow) as server:
            with HttpChatModel(server.url, "m", timeout_s=30) as one:
                assert one.endpoint.deadline_s == 3
                assert deltas(one) == "a" * 12
            with (
                HttpChatModel(server.url, "m", timeout_s=30, deadline_s=1) as one,
                pytest.raises(GenerationError, match=r"longer than deadline_s=1\."),
            ):
                deltas(one)


@pytest.mark.parametrize("capture_content", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_no_key_is_seen_anywhere(spans, caplog, streamed, capture_content):
    """A server that repeats the key in an error: neither spans nor logs, reprs or errors show
    it.
    """
    caplog.set_level(logging.DEBUG)
    docs = Document()
    docs.add_texts({"tea.txt": "Green tea wants water of 80 degrees."})
    refused = response({"error": {"message": f"wrong key {KEY}"}}, "401 Unauthorized")
    with (
        RawServer(refused) as server,
        HttpChatModel(server.url, "m", api_key=KEY, headers={"X-Key": KEY}) as chat,
    ):
        pipeline = RAGPipeline.over(
            docs, "FineChunk", generator=chat, capture_content=capture_content
        )

        async def ask():
            if not streamed:
                return await pipeline.answer("tea?")
            return [delta async for delta in pipeline.astream("tea?")]

        with pytest.raises(GenerationError, match=r"wrong key \*\*\*") as caught:
            asyncio.run(ask())
        assert f"Bearer {KEY}".encode() in server.requests[0][0]
    shown = [one.to_json() for one in spans.get_finished_spans()]
    assert any("GenerationError" in one for one in shown)
    for one in (pipeline, chat, chat.endpoint, vars(chat), vars(chat.endpoint), pipeline.__dict__):
        shown += [repr(one), str(one)]
    shown += [caplog.text, everything_shown(caught.value)]
    assert KEY not in "\n".join(shown)
