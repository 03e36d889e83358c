"""The OpenSearch store where servers fail: busy, slow, cut off, refusing, absent, or something else
altogether.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from contextlib import closing, contextmanager

import pytest
from opensearchpy import OpenSearch
from werkzeug import Response

from lazyrag.errors import ConfigError, StoreConnectionError, StoreError
from lazyrag.stores import opensearch, opensearch_client
from lazyrag.stores.opensearch import OpenSearchSegmentStore
from lazyrag.testing.samples import SCHEMA, make_segments
from tests.model_server import PATIENCE_S, answered, everything_shown

C = "lr_rows"
ROWS = make_segments()
SECRET = "nobody-may-see-it"  # noqa: S105


class Front:
    """Stands before a real server and hands requests on; ``faults`` are answered first, one for
    each request.

    A fault is a status, a response, or a function from the real answer (status, body) to a
    response.
    """

    def __init__(self, server, behind):
        server.clear()
        server.expect_request(re.compile(".*")).respond_with_handler(self.handle)
        self.address = server.url_for("/").rstrip("/")
        self.faults = []
        self.asked = []
        self._behind = behind

    def handle(self, request):
        """Answer with a fault, or as the server behind does."""
        self.asked.append(f"{request.method} {request.path}")
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, int):
            return answered(
                {"error": {"type": "busy", "reason": "try again"}, "status": fault}, fault
            )
        if isinstance(fault, Response):
            return fault
        status, body = self._handed_on(request)
        return answered(body, status) if fault is None else fault(status, json.loads(body))

    def _handed_on(self, request):
        passed = urllib.request.Request(
            f"{self._behind}{request.full_path}",
            request.get_data() or None,
            {"Content-Type": "application/json"},
            method=request.method,
        )
        try:
            with urllib.request.urlopen(passed, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()


@pytest.fixture
def front(server, opensearch_address):
    """A server before the real one, whose collections are dropped afterwards."""
    yield Front(server, opensearch_address)
    with closing(OpenSearch(opensearch_address)) as client:
        client.indices.delete(index="lr_*")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    """Nobody waits in tests."""
    for module in (opensearch, opensearch_client):
        monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)


@contextmanager
def opened(address, **client_kwargs):
    """An open store."""
    with closing(
        OpenSearchSegmentStore(address, client_kwargs, {"settings": {"number_of_replicas": 0}})
    ) as store:
        store.open()
        yield store


@pytest.fixture
def store(front):
    """An open store behind the front, with an empty collection."""
    with opened(front.address) as made:
        made.create(C, SCHEMA)
        front.asked.clear()
        yield made


@contextmanager
def cutting():
    """The address of a server that cuts every connection as soon as a request comes, and how often
    it has.
    """
    cuts = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            """Until the socket is shut down."""
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    cuts.append(connection)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", cuts
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


LOST_NODE = {
    "error": {
        "type": "search_phase_execution_exception",
        "root_cause": [{"type": "node_disconnected_exception", "reason": "[Node 1] disconnected"}],
    },
    "status": 500,
}
"""What a cluster answers to a search on a node that is killed meanwhile."""


@pytest.mark.parametrize("fault", [429, 502, 503, 504, answered(LOST_NODE, 500)], ids=str)
def test_what_may_pass_is_tried_again(front, store, fault):
    """After an answer that says so, every call is repeated, and then gives what it gives
    without.
    """
    uses = (
        (lambda: store.create(C, SCHEMA), None),
        (lambda: store.upsert(C, ROWS), None),
        (lambda: store.count(C), len(ROWS)),
        (lambda: store.get(C, [ROWS[0].key]), ROWS[:1]),
        (lambda: len(store.scan(C)), len(ROWS)),
        (lambda: len(store.search_text(C, "zh", ["绿茶"], 1)), 1),
        (lambda: store.delete(C, keys=[ROWS[0].key]), 1),
        (lambda: store.drop(C), None),
    )
    for use, expected in uses:
        front.faults = [fault, fault]
        assert use() == expected
        assert front.faults == []


def test_a_server_that_stays_busy(front, store):
    """After the tries that max_retries allows the error says what the server said, and how often it
    was asked.
    """
    with opened(front.address, max_retries=2) as impatient:
        front.asked.clear()
        front.faults = [503] * 9
        with pytest.raises(
            StoreConnectionError, match=r"at 3 tries \(503: busy: try again\.\) Try again later"
        ):
            impatient.count(C)
        assert front.asked == [f"POST /{C}/_refresh"] * 3


@pytest.mark.parametrize("status", [400, 404, 405, 409, 413, 500])
def test_what_does_not_pass_is_not_tried_again(front, store, status):
    """Another error of the server is ours at once, with its reason."""
    front.faults = [status]
    with pytest.raises(StoreError, match=rf"answered {status}: busy: try again\.") as caught:
        store.count(C)
    assert not isinstance(caught.value, StoreConnectionError)
    assert (caught.value.store, caught.value.collection, len(front.asked)) == ("opensearch", C, 1)


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_without_rights(front, status):
    """The error says which keywords name a user, and not what they held."""
    front.faults = [status]
    with pytest.raises(
        StoreConnectionError, match=r"refuses this user.*Give 'user' and 'password'"
    ) as caught:
        OpenSearchSegmentStore(front.address, {"user": "reader", "password": SECRET}).open()
    assert SECRET not in everything_shown(caught.value)


def test_user_and_password_are_sent(server, front):
    """Spec 001's two keywords become the credentials of every request."""
    server.clear()
    server.expect_request(
        "/", headers={"Authorization": "Basic cmVhZGVyOnNlY3JldA=="}
    ).respond_with_json({})
    OpenSearchSegmentStore(front.address, {"user": "reader", "password": "secret"}).open()


def rejecting(refused):
    """A change of an answer to a bulk request: rows that were put off by a full queue, though they
    were written.

    They are named by their places in the request, as the store asks for no more of an answer than
    it reads.
    """

    def changed(status, body):
        for position in refused:
            [result] = body["items"][position].values()
            result |= {
                "status": 429,
                "error": {"type": "rejected_execution_exception", "reason": "queue is full"},
            }
        return answered(body, status)

    return changed


def test_rows_that_a_busy_server_puts_off(front, store):
    """They alone are sent again, until they are taken."""
    front.faults = [rejecting([1, 2]), rejecting([1])]
    store.upsert(C, ROWS)
    assert [path for path in front.asked if "_bulk" in path] == [
        f"POST /{next(iter(bulk_paths(front)))}"
    ] * 3
    assert store.count(C) == len(ROWS)


def bulk_paths(front):
    """The different paths of bulk requests."""
    return {path.partition(" /")[2] for path in front.asked if "_bulk" in path}


def test_rows_that_a_busy_server_never_takes(front, store):
    """The call is an error that names the row and the reason."""
    with opened(front.address, max_retries=1, wait_s=0) as impatient:
        impatient.create(C, SCHEMA)
        front.faults = [rejecting([1]), rejecting([0])]
        with pytest.raises(StoreError, match=rf"refuses row '{ROWS[1].key}'.*queue is full"):
            impatient.upsert(C, ROWS)


def test_everything_waits_while_a_load_goes_on(front):
    """Without any retries: an index is created, and what a load reads is read, once the node is
    there and has its shards; after the load a read does not wait.
    """
    with opened(front.address, max_retries=0, wait_s=30) as loading:
        front.faults = [503, None, 503]
        loading.create(C, SCHEMA)
        front.faults = [503, 429]
        loading.upsert(C, ROWS)
        front.faults = [503, recovering]
        assert loading.get(C, [ROWS[0].key]) == ROWS[:1]
        front.faults = [503, None, 503]
        loading.publish([C])
        front.faults = [503]
        with pytest.raises(StoreConnectionError, match="503"):
            loading.get(C, [ROWS[0].key])


def recovering(status, body):
    """An answer for documents whose shard is not there yet."""
    error = {"type": "illegal_index_shard_state_exception", "reason": "RECOVERING"}
    body["docs"] = [{"_id": document["_id"], "error": error} for document in body["docs"]]
    return answered(body, status)


def test_a_publication_is_two_requests(front, store):
    """Whatever the number of collections; and none for those that nobody has written to since."""
    names = ["lr_tea_line_1", "lr_tea_block_1"]
    for name in names:
        store.create(name, SCHEMA)
        store.upsert(name, ROWS)
    front.asked.clear()
    store.publish(names)
    assert front.asked == ["POST /lr_tea_block_1,lr_tea_line_1/_refresh", "POST /_aliases"]
    store.publish(names)
    assert len(front.asked) == 2


def handed_on(status, body):
    """An answer as it is."""
    return answered(body, status)


def lacking_a_shard(status, body):
    """An answer that one of the shards has no part in."""
    failure = {"reason": {"type": "node_gone", "reason": "it left"}}
    body["_shards"] |= {"failed": 1, "failures": [failure]}
    return answered(body, status)


def test_part_of_an_answer_is_none(front, store):
    """Where a shard failed, counts, pages, rankings and refreshes are errors."""
    uses = (
        (lambda: store.count(C), 1),
        (lambda: store.scan(C), 1),
        (lambda: store.search_text(C, "zh", ["茶"], 1), 0),
        (lambda: store.refresh(C), 0),
    )
    for use, requests_before in uses:
        front.faults = [handed_on] * requests_before + [lacking_a_shard]
        with pytest.raises(
            StoreError,
            match=r"1 of \d shards of collection 'lr_rows' failed\. node_gone: it left\.",
        ):
            use()


def test_a_slow_server(server):
    """One that does not answer in time is not asked again; the error names the keyword."""
    held = threading.Event()
    server.clear()
    server.expect_request("/").respond_with_handler(
        lambda _: (held.wait(PATIENCE_S), Response("{}"))[1]
    )
    with pytest.raises(
        StoreConnectionError,
        match=r"did not answer within timeout=0\.05 s.*'timeout' in client_kwargs",
    ):
        OpenSearchSegmentStore(server.url_for("/"), {"timeout": 0.05}).open()
    held.set()


def test_a_connection_that_breaks_is_made_again():
    """It is tried as often as max_retries says."""
    with cutting() as (address, cuts):
        with pytest.raises(StoreConnectionError, match="Cannot reach OpenSearch at http://127"):
            OpenSearchSegmentStore(address, {"max_retries": 3}).open()
        assert len(cuts) == 4


def test_a_node_that_cuts_is_passed_over(opensearch_address):
    """Where one of two nodes cuts connections, the other one answers."""
    with cutting() as (address, cuts):
        for _ in range(4):  # which of them is asked first is chance
            with (
                opened([address, opensearch_address]) as store,
                pytest.raises(StoreError, match="no collection"),
            ):
                store.count("lr_unknown")
        assert len(cuts) < 9


@pytest.mark.parametrize(
    ("uri", "cause"),
    [("127.0.0.1:9", "refused"), ("https://127.0.0.1:9", "refused"), ("nobody.invalid", "[Nn]ame")],
)
def test_a_wrong_address(uri, cause):
    """Nobody there: the error names the address, the cause and where to correct it, and keeps
    passwords to itself.
    """
    given = uri.replace("://", f"://user:{SECRET}@") if "://" in uri else uri
    with pytest.raises(
        StoreConnectionError, match=rf"{re.escape(uri)}.*{cause}.*correct the uris"
    ) as caught:
        OpenSearchSegmentStore(given, {}).open()
    assert SECRET not in everything_shown(caught.value)


def test_an_address_of_something_else(server):
    """What does not speak JSON is no OpenSearch."""
    server.clear()
    server.expect_request("/").respond_with_data("{ not JSON", content_type="application/json")
    with pytest.raises(StoreConnectionError, match="not OpenSearch"):
        OpenSearchSegmentStore(server.url_for("/"), {}).open()


@pytest.mark.parametrize(
    ("client_kwargs", "told"),
    [
        ({"verify_cert": True}, "Did you mean 'verify_certs'"),
        ({"hosts": ["elsewhere"]}, "unknown key 'hosts'"),
        ({"user": "reader"}, "'user' and 'password'"),
        ({"user": "reader", "password": None}, "both of them texts"),
        ({"user": "a", "password": "b", "http_auth": ("a", "b")}, "'http_auth' instead"),
        ({"max_retries": -1}, "max_retries"),
        ({"timeout": "long"}, "does not accept"),
    ],
)
def test_wrong_client_kwargs(client_kwargs, told):
    """A keyword that opensearch-py would pass over, and values that it cannot use, are refused."""
    with pytest.raises(ConfigError, match=told):
        OpenSearchSegmentStore("127.0.0.1:9", client_kwargs).open()
