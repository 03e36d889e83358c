"""A Milvus server that freezes, or is killed, while the store writes to it: the only one in its
network.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lazyrag.errors import StoreConnectionError, StoreError
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from tests.live.milvus_behaviour import C
from tests.live.serving import milvus_server

TIMEOUT_S = 10.0
THAW_S = 120.0  # within which a server that was frozen takes its own nodes for alive again


def _wait_until_it_answers(store: MilvusVectorStore, rows: list[VectorRow]) -> None:
    """Write and read until both work; until then they are connections that fail, and nothing
    else.
    """
    until = time.monotonic() + THAW_S
    while True:
        try:
            store.upsert(C, rows)
            assert store.count(C) == len(rows)
        except StoreConnectionError:
            if time.monotonic() > until:
                raise
        else:
            return


@pytest.mark.slow
def test_a_server_that_freezes_or_is_killed_while_it_is_written_to(tmp_path: Path) -> None:
    """Either is a StoreConnectionError after the timeout; what was acknowledged is there, and the
    rest can follow.

    The server is killed while upserts run, and started again over the same folder.
    """
    vectors = np.random.default_rng(3).normal(size=(3000, 64)).astype(np.float32)
    rows = [VectorRow(f"k{number:04d}", vector, {}) for number, vector in enumerate(vectors)]
    schema = VectorSchema(64, "l2", {})
    errors: list[StoreError] = []

    def write() -> None:
        try:
            while True:
                store.upsert(C, rows)
        except StoreError as error:
            errors.append(error)

    with milvus_server(tmp_path) as server:
        store = MilvusVectorStore(server.address, client_kwargs={"timeout": TIMEOUT_S})
        store.open()
        store.create(C, schema)
        store.upsert(C, rows[:1])
        with server.frozen(), pytest.raises(StoreConnectionError, match=server.address):
            store.count(C)
        _wait_until_it_answers(store, rows[:1])
        writer = threading.Thread(target=write)
        writer.start()
        while store.count(C) < len(rows):
            assert not errors
        server.kill()
        writer.join()
        address = server.address
    store.close()
    [error] = errors
    assert isinstance(error, StoreConnectionError)
    assert address in str(error)
    # At another port: its launcher takes one for taken as long as the kernel remembers connections
    # to it. It answers after a minute, when the session of the killed one has ended.
    with milvus_server(tmp_path) as server:
        store = MilvusVectorStore(server.address)
        store.open()
        store.create(C, schema)
        assert [row.key for row in store.scan(C, limit=len(rows))] == [row.key for row in rows]
        store.upsert(C, rows)
        assert store.count(C) == len(rows)
        store.close()
