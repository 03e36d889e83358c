"""Threads for what blocks."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from lazyrag import Hit, RAGPipeline
from lazyrag.models import CallableChatModel
from lazyrag.models import concurrency as threads
from lazyrag.models.concurrency import in_thread
from tests.model_server import PATIENCE_S


def test_what_waits_for_a_thread_within_one_never_waits_for_ever():
    """More questions at once than there are threads, whose retriever asks a callable chat model:
    all are answered.
    """
    rewriter = CallableChatModel(str.upper)

    def finds(query, filters=None, topk=None):
        return [Hit("1", rewriter.chat(query).text, 1.0)]

    pipeline = RAGPipeline(retriever=finds)
    questions = [f"tea {number}" for number in range(2 * threads._POOL_SIZE)]
    found = pipeline.sync.batch_retrieve(questions, concurrency=len(questions))
    assert [result[0].text for result in found] == [question.upper() for question in questions]


def test_a_call_that_waits_for_a_thread_is_taken_back():
    """Cancelled before its turn, it is never made."""
    let_go, called = threading.Event(), []

    async def main():
        busy = [
            asyncio.ensure_future(in_thread(let_go.wait, PATIENCE_S))
            for _ in range(threads._POOL_SIZE)
        ]
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(in_thread(called.append, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        let_go.set()
        await asyncio.gather(*busy)

    asyncio.run(main())
    assert called == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own():
    """Those of the parent are not there."""
    assert asyncio.run(in_thread(len, "tea")) == 3
    child = os.fork()
    if child == 0:
        os._exit(asyncio.run(in_thread(len, "tea")))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
