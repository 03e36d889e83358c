"""What goes wrong between the chromadb store and Chroma becomes our errors, or passes unseen where
it passes.
"""

from __future__ import annotations

import gc
import http.client
import re
import threading
from urllib.parse import urlsplit

import numpy as np
import pytest
from werkzeug import Response

from lazyrag.errors import StoreConnectionError, StoreError
from lazyrag.stores.chroma import ChromaVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from tests.live.serving import chroma_server, free_port
from tests.live.test_chroma import new_database

C = "lr_vectors"
SCHEMA = VectorSchema(64, "cosine", {})


def _rows(count: int) -> list[VectorRow]:
    vectors = np.random.default_rng(3).normal(size=(count, 64)).astype(np.float32)
    return [VectorRow(f"k{at:06d}", vector, {"year": at}) for at, vector in enumerate(vectors)]


class Proxy:
    """Stands before a Chroma server, and answers in its stead as long as it has answers of its own.

    Args:
        address: Of the server behind it.
        server: The HTTPServer that it answers by.
    """

    def __init__(self, address: str, server) -> None:
        self.answers: list[Response] = []
        self._behind = urlsplit(address)
        self.address = server.url_for("").rstrip("/")
        server.expect_request(re.compile(".*")).respond_with_handler(self._answer)

    def _answer(self, request) -> Response:
        if self.answers:
            return self.answers.pop(0)
        connection = http.client.HTTPConnection(
            self._behind.hostname, self._behind.port, timeout=30
        )
        try:
            connection.request(
                request.method,
                request.full_path,
                request.get_data(),
                {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            return Response(answer.read(), answer.status, {"Content-Type": "application/json"})
        finally:
            connection.close()


@pytest.fixture
def proxy(chroma_address, httpserver):
    """A proxy before the server."""
    return Proxy(chroma_address, httpserver)


@pytest.fixture
def behind(proxy, chroma_address):
    """An open store that works through the proxy, with three rows."""
    store = ChromaVectorStore(
        proxy.address, client_kwargs={"database": new_database(chroma_address)}
    )
    store.open()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(3))
    yield store
    store.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_passes_is_tried_again(behind, proxy, status):
    """A server or a proxy that is busy twice, and says so, is asked a third time, and nothing is
    written twice.
    """
    uses = (
        lambda: behind.count(C),
        lambda: behind.upsert(C, _rows(5)),
        lambda: behind.search(C, np.ones((1, 64), np.float32), 2),
        lambda: behind.delete(C, keys=["k000004", "unknown"]),
    )
    for use, expected in zip(uses, (3, None, None, 1), strict=True):
        proxy.answers = [Response("busy", status)] * 2
        found = use()
        assert proxy.answers == []
        assert expected is None or found == expected
    assert behind.scan(C)[-1].key == "k000003"


def test_a_server_that_stays_busy_is_an_error(behind, proxy):
    """After four tries, or at once if it asks for a minute; the error says where it is and what it
    answered.
    """
    proxy.answers = [Response("busy", 503)] * 9
    with pytest.raises(StoreConnectionError, match=f"{proxy.address}.*HTTP 503"):
        behind.count(C)
    assert len(proxy.answers) == 5
    proxy.answers = [Response("busy", 429, {"Retry-After": "60"})] * 9
    with pytest.raises(StoreConnectionError, match="HTTP 429"):
        behind.count(C)
    assert len(proxy.answers) == 8


def test_what_does_not_pass_is_not_tried_again(behind, proxy):
    """A server's own failure is a StoreError with its words, and no access is a
    StoreConnectionError.
    """
    proxy.answers = [Response('{"error": "InternalError", "message": "the disk is full"}', 500)] * 2
    with pytest.raises(StoreError, match="the disk is full") as caught:
        behind.count(C)
    assert not isinstance(caught.value, StoreConnectionError)
    proxy.answers = [Response('{"error": "AuthError", "message": "who are you"}', 403)] * 2
    with pytest.raises(StoreConnectionError, match="client_kwargs"):
        behind.count(C)
    proxy.answers = [Response("an HTML page", 500)] * 2
    with pytest.raises(StoreError, match="an HTML page"):
        behind.count(C)
    assert len(proxy.answers) == 1


def test_nobody_listens(tmp_path):
    """The error names the address and the cause, and how a server is started."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreConnectionError, match=rf"{address}.*refused.*chroma run --path"):
        ChromaVectorStore(address).open()


# Chroma's client leaves its connections open where it could not be made.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_answers_is_not_chroma_or_lacks_the_database(chroma_address, httpserver):
    """The error names the address; the one behind it what is missing."""
    other = httpserver.url_for("").rstrip("/")
    for store, told in (
        (ChromaVectorStore(other), other),
        (ChromaVectorStore(chroma_address, client_kwargs={"database": "never-made"}), "never-made"),
        (ChromaVectorStore(chroma_address, client_kwargs={"tenant": "never-made"}), "never-made"),
    ):
        assert told in _refusal(store)
        gc.collect()


def _refusal(store) -> str:
    """What opening says; of the error itself nothing is kept, nor of what that knows."""
    try:
        store.open()
    except StoreConnectionError as exc:
        return str(exc)
    return ""


def test_a_folder_that_cannot_be_one(tmp_path):
    """A file in its place is an error that names it."""
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    with pytest.raises(StoreConnectionError, match=r"file.*Check that it is a folder"):
        ChromaVectorStore(dir=tmp_path / "file").open()


def test_a_server_killed_in_the_middle_of_an_upsert(tmp_path):
    """It is our error; once the server is back the same upsert completes, and the rows are
    whole.
    """
    rows = _rows(25_000)
    with chroma_server(tmp_path) as server:
        port = server.port
        store, observer = ChromaVectorStore(server.address), ChromaVectorStore(server.address)
        store.open()
        observer.open()
        store.create(C, SCHEMA)
        failures = []

        def upsert():
            try:
                store.upsert(C, rows)
            except StoreError as exc:
                failures.append(exc)

        writing = threading.Thread(target=upsert)
        writing.start()
        while observer.count(C) == 0:
            pass
        server.kill()
        writing.join()
        observer.close()
        [failure] = failures
        assert isinstance(failure, StoreConnectionError)
        assert server.address in str(failure)
    with chroma_server(tmp_path, port) as server:
        assert 0 < store.count(C) < len(rows)
        store.upsert(C, rows)
        assert store.count(C) == len(rows)
        last = rows[-3:]
        for row, read in zip(last, store.get(C, [row.key for row in last]), strict=True):
            assert (row.vector.tobytes(), dict(row.fields)) == (
                read.vector.tobytes(),
                dict(read.fields),
            )
        [found] = store.search(C, last[0].vector[None], 1)
        assert found[0][0] == last[0].key
        store.close()


def test_a_server_that_was_started_anew_meanwhile(tmp_path):
    """Connections to the old one are broken; the next call makes new ones."""
    with chroma_server(tmp_path) as server:
        port = server.port
        store = ChromaVectorStore(server.address)
        store.open()
        store.create(C, SCHEMA)
        store.upsert(C, _rows(10))
    with chroma_server(tmp_path, port):
        assert store.count(C) == 10
        store.close()


def test_a_server_that_is_silent(tmp_path):
    """After timeout_s that is an error, for calls and for opening; when it wakes up, all goes
    on.
    """
    with chroma_server(tmp_path) as server:
        store = ChromaVectorStore(server.address, timeout_s=0.5)
        store.open()
        store.create(C, SCHEMA)
        with server.frozen():
            with pytest.raises(StoreConnectionError, match=r"silent for timeout_s=0\.5"):
                store.count(C)
            with pytest.raises(StoreConnectionError, match=r"silent for timeout_s=0\.3"):
                ChromaVectorStore(server.address, timeout_s=0.3).open()
        assert store.count(C) == 0
        store.close()
