"""OpenSearch while documents are ingested: killed and started again, or too busy for the load."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from opensearchpy import OpenSearch, Transport, TransportError

from lazyrag import Document
from lazyrag.data.segment import Segment
from lazyrag.stores.opensearch import OpenSearchSegmentStore
from lazyrag.stores.opensearch_client import MAX_IN_FLIGHT, OpenSearchConnection
from tests.live.serving import opensearch_server

if TYPE_CHECKING:
    from collections.abc import Callable

C = "lr_rows"
TEXTS = {f"{number:04}": f"tea {number}\nline {number}" for number in range(2_000)}


class Tripwire:
    """Ends something as soon as a request of a kind has been sent ``after`` times.

    Args:
        last_part: The last part of the request's address.
        after: Requests.
        action: What to do, once.
    """

    def __init__(self, last_part: str, after: int, action: Callable[[], None]) -> None:
        self._last_part = last_part
        self._left = after
        self._action = action
        self.is_sprung = threading.Event()

    def notice(self, url: str) -> None:
        """Count a request."""
        if url.partition("?")[0].endswith(self._last_part):
            self._left -= 1
            if self._left == 0:
                self._action()
                self.is_sprung.set()


@pytest.mark.slow
@pytest.mark.parametrize("last_part", ["_bulk", "_mget"])
def test_a_kill_costs_an_ingestion_time_and_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_part: str
) -> None:
    """The only node is killed while texts are written, or while a group is built and its parents
    are read; it comes back after a while, and the calls go on.
    """
    perform = Transport.perform_request
    with opensearch_server(tmp_path / "server") as server:
        tripwire = Tripwire(last_part, 3, server.kill)

        def watched(transport: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
            tripwire.notice(url)
            return perform(transport, method, url, *args, **kwargs)

        monkeypatch.setattr(Transport, "perform_request", watched)
        kwargs = {"uris": server.address, "client_kwargs": {"wait_s": 300}}
        conf = {
            "segment_store": {"type": "opensearch", "kwargs": kwargs},
            "ledger": str(tmp_path / "ledger.db"),
        }
        failures: list[Exception] = []
        with Document(store_conf=conf, name="killed") as docs:
            docs.create_node_group("line", transform=str.splitlines)

            def ingest() -> None:
                """Write, build a group, and change a document."""
                try:
                    docs.add_texts(TEXTS)
                    docs.activate_group("line")
                    docs.add_texts({"0000": "oolong"})
                except Exception as exc:  # noqa: BLE001  whatever it is
                    failures.append(exc)

            ingesting = threading.Thread(target=ingest)
            ingesting.start()
            assert tripwire.is_sprung.wait(120)
            with opensearch_server(tmp_path / "server", server.port):
                ingesting.join()
                assert failures == []
                assert docs.status().failed == ()
                texts = [node.text for node in docs.get_nodes("line")]
                expected = "\n".join([*TEXTS.values()][1:]).splitlines()
                assert sorted(texts) == sorted([*expected, "oolong"])


def test_a_server_that_is_too_busy_for_four_requests_gets_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rejects whole requests (429) as long as its memory for writing is taken, here by others
    until the first rejection; all rows are written all the same.
    """
    busy = ["indexing_pressure.memory.limit: 5mb"]
    is_rejected = threading.Event()
    rejections: list[int] = []
    perform = Transport.perform_request

    def watched(transport: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return perform(transport, method, url, *args, **kwargs)
        except TransportError as exc:
            rejections.append(exc.status_code)
            is_rejected.set()
            raise

    limits: list[int] = []
    reduce = OpenSearchConnection.reduce_in_flight

    def noted(connection: OpenSearchConnection) -> None:
        reduce(connection)
        limits.append(connection.in_flight)

    monkeypatch.setattr(Transport, "perform_request", watched)
    monkeypatch.setattr(OpenSearchConnection, "reduce_in_flight", noted)
    rows = [
        Segment(f"{number:032x}", 1, "block", "d", "a.txt", None, number, "绿茶 " * 100)
        for number in range(10_000)
    ]
    with opensearch_server(tmp_path, settings=busy) as server:
        store = OpenSearchSegmentStore(server.address)
        store.open()
        store.create(C, {})
        others = [Thread(target=_write_until, args=(server.address, is_rejected)) for _ in range(2)]
        for other in others:
            other.start()
        store.upsert(C, rows)
        is_rejected.set()
        for other in others:
            other.join()
        assert {*rejections} == {429}
        assert min(limits) < MAX_IN_FLIGHT
        assert store.count(C) == len(rows)
        store.close()
        assert OpenSearch(server.address).count(index=C)["count"] == len(rows)


def _write_until(address: str, is_over: threading.Event) -> None:
    """Keep two megabytes of a server's memory for writing taken, most of the time."""
    row = json.dumps({"index": {}}) + "\n" + json.dumps({"text": "coffee " * 300}) + "\n"
    body = (row * 1_000).encode()
    headers = {"Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"{address}/others/_bulk", body, headers)
    while not is_over.is_set():
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(request):
            pass
