"""Documents whose segments lie in OpenSearch answer as those in memory do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opensearchpy import OpenSearch, Transport

from lazyrag import Document
from tests.live.documents import StoreDocuments


class TestSegmentsOnAServer(StoreDocuments):
    """Vectors lie in the ledger's file."""

    has_native_text = True

    @pytest.fixture(autouse=True)
    def _server(self, opensearch_address: str) -> None:
        self._address = opensearch_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A server for segments, a file for the rest."""
        return {
            "segment_store": {
                "type": "opensearch",
                "kwargs": {"uris": self._address, "client_kwargs": {}},
            },
            "vector_store": {"type": "map"},
            "ledger": str(folder / "ledger.db"),
        }


class TestSegmentsOnAServerAndVectorsInChroma(StoreDocuments):
    """Two stores that are not ours."""

    has_native_text = True

    @pytest.fixture(autouse=True)
    def _server(self, opensearch_address: str) -> None:
        self._address = opensearch_address

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """The ledger lies beside the folder of vectors."""
        return {
            "segment_store": {
                "type": "opensearch",
                "kwargs": {"uris": [self._address], "client_kwargs": {}},
            },
            "vector_store": {"type": "chromadb", "kwargs": {"dir": str(folder / "vectors")}},
        }


@pytest.fixture
def served(opensearch_address: str, tmp_path: Path) -> Iterator[tuple[Document, Requests]]:
    """A Document of three texts on a server, and the requests that it makes."""
    requests = Requests()
    conf = {
        "segment_store": {
            "type": "opensearch",
            "kwargs": {"uris": opensearch_address, "client_kwargs": {}},
        },
        "ledger": str(tmp_path / "ledger.db"),
    }
    with Document(store_conf=conf, name=f"tea{tmp_path.name[-4:]}") as docs, requests.counted():
        docs.add_texts({"a": "Green tea is steamed.", "b": "红茶要发酵。", "c": "Coffee."})
        docs.activate_group("MediumChunk")
        yield docs, requests


class Requests(list[str]):
    """The last parts of the addresses of requests to OpenSearch."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Within, requests are noted."""
        perform = Transport.perform_request

        def noted(transport: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
            self.append(url.partition("?")[0].rpartition("/")[2])
            return perform(transport, method, url, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transport, "perform_request", noted)
            yield

    def taken(self) -> list[str]:
        """Those since the last call."""
        taken = list(self)
        self.clear()
        return taken


def test_a_query_is_one_request_and_two_after_a_change(served: tuple[Document, Requests]) -> None:
    """The nodes come with their ranking; after a write a refresh goes before, and no more."""
    docs, requests = served
    docs.search("tea")
    requests.taken()
    assert [node.path for node in docs.search("绿茶 steamed tea")][:1] == ["a"]
    assert requests.taken() == ["_search"]
    docs.add_texts({"d": "White tea is dried."})
    requests.taken()
    assert {node.path for node in docs.search("tea")} == {"a", "d"}
    assert requests.taken() == ["_refresh", "_search"]
    docs.search("dried")
    assert requests.taken() == ["_search"]
    docs.restricted({"file_name": "a"}, statistics="shared").search("tea")
    assert requests.taken() == ["_search"]
    docs.delete_files(["a"])
    assert [node.path for node in docs.search("tea")] == ["d"]


def test_a_load_refreshes_each_index_once(served: tuple[Document, Requests]) -> None:
    """However many documents it has; other tools find them when it is over, under the alias."""
    docs, requests = served
    requests.taken()
    docs.add_texts({f"many{number}": f"Oolong number {number}." for number in range(600)})
    taken = requests.taken()
    assert taken.count("_refresh") <= 2, taken
    store = docs.reader.indexer.nodes.segments
    [collection] = [name for name in store.collections("lr_tea") if "mediumchunk" in name][-1:]
    alias = collection.rpartition("_")[0]
    client = OpenSearch(docs.reader.indexer.nodes.segments.location.address)
    with closing(client):
        body = {"query": {"match": {"text": "oolong"}}}
        assert client.count(index=alias, body=body)["count"] == 600
        docs.create_node_group(
            "MediumChunk", transform=str.splitlines, replace=True, index_fields=["path"]
        )
        docs.add_texts({"last": "Pu-erh.\nOolong."})
        docs.search("oolong")
        [now] = client.indices.get_alias(name=alias)
        assert now != collection
