"""Cancelling calls of models at every step and at random instants: the server sees each connection
go.

All 1,000 instants: ``python -m pytest tests/unit/models/test_cancellation.py -m ""``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest

from lazyrag import Document, HttpChatModel, RAGPipeline
from lazyrag.models import Endpoint
from lazyrag.models import concurrency as background
from tests.model_server import PATIENCE_S, RawServer, event, head, piece

pytestmark = pytest.mark.usefixtures("quick_endpoints")

INSTANTS = 25  # of each seed
LONGEST_S = 0.06  # twice what comes before the server's answer


def slowly(connection):
    """Send an answer byte by byte, and never the last one."""
    with contextlib.suppress(OSError):
        for byte in head() + b'{"choi':
            connection.sendall(bytes([byte]))
            time.sleep(0.0002)


SILENT, HALF_A_HEAD, BEGUN = b"", b"HTTP/1.1 200", head() + b'{"choi'
STREAM = head("text/event-stream") + event(piece("a")) + b"data: "
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 40))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_cancelled_at_any_instant_leaves_no_connection(seed):
    """In whatever state retrieval, connection and answer are: it is gone within a second."""
    rng = random.Random(seed)
    docs = Document()
    docs.add_texts({"tea.txt": "Green tea wants water of 80 degrees."})
    docs.activate_group("FineChunk")
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(RawServer(one, hold=True))
            for one in (SILENT, HALF_A_HEAD, BEGUN, slowly, STREAM)
        ]
        chats = [
            stack.enter_context(HttpChatModel(server.url, "m", retries=0)) for server in servers
        ]
        pipelines = [RAGPipeline.over(docs, "FineChunk", generator=chat) for chat in chats]

        async def ask(pipeline, *, streamed):
            if not streamed:
                await pipeline.answer("How hot is the water?")
            async for _ in pipeline.astream("How hot is the water?"):
                pass

        async def cancel_after(seconds, pipeline, *, streamed):
            task = asyncio.ensure_future(ask(pipeline, streamed=streamed))
            await asyncio.sleep(seconds)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        for _ in range(INSTANTS):
            at = rng.randrange(len(servers))
            streamed = servers[at] is servers[-1]
            asyncio.run(cancel_after(rng.uniform(0, LONGEST_S), pipelines[at], streamed=streamed))
            cancelled = time.monotonic()
            time.sleep(0.002)  # for a connection that the server has not accepted yet
            while servers[at].open and time.monotonic() - cancelled < PATIENCE_S:
                time.sleep(0.001)
            assert servers[at].open == 0
            if seed:  # run by hand, on a machine that does nothing else
                assert time.monotonic() - cancelled < 1
        assert sum(server.connections for server in servers) > INSTANTS / 2


@pytest.mark.sample(6)
@pytest.mark.parametrize("sent", [SILENT, BEGUN, STREAM], ids=["silent", "begun", "stream"])
@pytest.mark.parametrize("call", ["post", "events"])
def test_a_call_cancelled_at_any_step_leaves_no_connection(call, sent):
    """After so many turns of its event loop, from before it connects to within its answer."""

    async def work(one):
        if call == "post":
            return await one.post("/x", {})
        async with contextlib.aclosing(one.events("/x", {})) as found:
            return [each async for each in found]

    async def cancel_at_each_step():
        with RawServer(sent, hold=True) as server:
            one = Endpoint(server.url, retries=0)
            for steps in range(70):
                task = asyncio.ensure_future(work(one))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                ends_at = time.monotonic() + PATIENCE_S
                while server.open and time.monotonic() < ends_at:  # noqa: ASYNC110  threads count connections
                    await asyncio.sleep(0.0005)
                assert (steps, server.open) == (steps, 0)
            assert server.connections > 40
        return one

    background.run(cancel_at_each_step()).close()
