"""The vector store on a real OpenSearch with its k-NN plug-in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from opensearchpy import OpenSearch

from lazyrag import Document, HybridRetriever, Retriever
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError
from lazyrag.stores.opensearch_vectors import OpenSearchVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.testing import VectorStoreContract
from lazyrag.testing.samples import SCHEMA
from tests.live.counting import counted_requests

ONE_COPY = {"settings": {"number_of_replicas": 0}}


@pytest.fixture(autouse=True)
def _emptied(opensearch_address: str) -> Iterator[None]:
    """Without collections before and after each test."""
    with closing(OpenSearch(opensearch_address)) as client:
        client.indices.delete(index="lr_*")
        yield
        client.indices.delete(index="lr_*")


class TestVectorsOnAServer(VectorStoreContract):
    """The contract."""

    @pytest.fixture(autouse=True)
    def _address(self, opensearch_address: str) -> None:
        self.address = opensearch_address

    def make_store(self) -> OpenSearchVectorStore:
        """A new store; the server has no collections yet."""
        return OpenSearchVectorStore(self.address, {}, ONE_COPY)

    def reopen_store(self, store: object) -> OpenSearchVectorStore:
        """Another client of the same server."""
        return self.make_store()

    share_store = reopen_store


def test_other_vectors_and_wrong_settings_are_refused(opensearch_address: str) -> None:
    """A collection keeps its dimension and metric; there are no analysers."""
    with pytest.raises(ConfigError, match="analysers"):
        OpenSearchVectorStore(opensearch_address, {}, {"analysers": ["en"]})
    with closing(OpenSearchVectorStore(opensearch_address, {}, ONE_COPY)) as store:
        store.open()
        store.create("lr_v", VectorSchema(4, "cosine", SCHEMA))
        with pytest.raises(SchemaMismatchError, match="metric 'cosine'; got 4 and 'l2'"):
            store.create("lr_v", VectorSchema(4, "l2", SCHEMA))
        store.upsert("lr_v", [VectorRow("a", np.ones(4, np.float32))])
        assert store.count("lr_v") == 1


def embed(text: str) -> list[float]:
    """How often a text has each of some letters."""
    return [text.count(letter) + 0.1 for letter in "aeiout"]


def test_a_document_whose_nodes_and_vectors_are_on_one_cluster(
    opensearch_address: str, tmp_path: Path
) -> None:
    """The server ranks both; restricted views are exact; what is updated is found."""
    kwargs = {"uris": opensearch_address, "client_kwargs": {}, "index_kwargs": ONE_COPY}
    store = {"type": "opensearch", "kwargs": kwargs}
    conf = {
        "segment_store": store,
        "vector_store": store,
        "ledger": str(tmp_path / "ledger.db"),
    }
    texts = {"a": "banana", "b": "tee tee tee", "c": "iii"}
    with Document(store_conf=conf, name="knn", embed=embed) as docs:
        docs.add_texts(texts)
        assert [node.text for node in docs.search("eee", topk=1)] == ["tee tee tee"]
        nearest = Retriever(docs, "MediumChunk", "cosine", topk=2)
        assert nearest("iiii")[0].text == "iii"
        exact = Retriever(docs, "MediumChunk", "cosine", topk=2, index="exact")
        assert [node.uid for node in exact("iiii")] == [node.uid for node in nearest("iiii")]
        view = docs.restricted({"file_name": "a"})
        assert [node.text for node in Retriever(view, "MediumChunk", "cosine")("iiii")] == [
            "banana"
        ]
        docs.add_texts({"a": "ooo"})
        assert nearest("oooo")[0].path == "a"


def test_how_many_requests_a_search_makes(opensearch_address: str, tmp_path: Path) -> None:
    """A vector search asks for a ranking and for its nodes, a hybrid search for both rankings and
    for its nodes; nothing is refreshed until something is written, and the fused order is that of
    the two rankings.
    """
    kwargs = {"uris": opensearch_address, "client_kwargs": {}, "index_kwargs": ONE_COPY}
    store = {"type": "opensearch", "kwargs": kwargs}
    conf = {"segment_store": store, "vector_store": store, "ledger": str(tmp_path / "ledger.db")}
    texts = {f"{number:03}": f"tea {'io' * number} {number}" for number in range(120)}
    with Document(store_conf=conf, name="counted", embed=embed) as docs:
        docs.add_texts(texts)
        by_vector = Retriever(docs, "MediumChunk", "cosine", topk=50)
        by_words = Retriever(docs, "MediumChunk", "bm25", topk=50)
        hybrid = HybridRetriever(by_words, by_vector, topk=10, depth=50)
        searches = {by_vector: Counter(_search=1, _mget=1), hybrid: Counter(_msearch=1, _mget=1)}
        for retriever, expected in searches.items():
            retriever("tea ioio 7")
            requests: Counter[str] = Counter()
            with counted_requests(requests):
                retriever("tea ioio 7")
            assert requests == expected
        fused: Counter[str] = Counter()
        for ranking in (by_words("tea ioio 7"), by_vector("tea ioio 7")):
            fused.update({node.uid: 1 / (60 + rank) for rank, node in enumerate(ranking, start=1)})
        best = sorted(fused, key=lambda uid: (-fused[uid], uid))[:10]
        assert [node.uid for node in hybrid("tea ioio 7")] == best
        view = docs.restricted({"file_name": ["003", "007"]}, statistics="shared")
        narrow = HybridRetriever.over(view, "MediumChunk", topk=10)
        assert {node.path for node in narrow("tea ioio 7")} == {"003", "007"}


def test_a_search_that_a_batch_does_not_answer_is_sent_alone(opensearch_address: str) -> None:
    """Its collection is missing, or the batch has none such."""
    with closing(OpenSearchVectorStore(opensearch_address, {}, ONE_COPY)) as store:
        store.open()
        store.create("lr_v", VectorSchema(2, "ip", SCHEMA))
        store.upsert("lr_v", [VectorRow(key, np.ones(2, np.float32)) for key in "ab"])
        nearest = partial(store.search_natively, "lr_v", np.ones((1, 2), np.float32))
        alone = nearest(2)
        store.create("lr_w", VectorSchema(2, "ip", SCHEMA))
        missing = partial(store.search_natively, "lr_w", np.ones((1, 2), np.float32), 1)
        missing()  # it knows the collection from now on
        with closing(OpenSearch(opensearch_address)) as client:
            client.indices.delete(index="lr_w")
        requests: Counter[str] = Counter()
        with counted_requests(requests), store.batch_searches([partial(nearest, 2), missing]):
            assert nearest(2) == alone
            assert requests == Counter(_msearch=1)
            assert nearest(1) == [alone[0][:1]]
            with pytest.raises(StoreError, match="no collection 'lr_w'"):
                missing()
        assert requests == Counter(_msearch=1, _search=2)
        with counted_requests(requests), store.batch_searches([lambda: None]):
            assert nearest(2) == alone
        assert requests == Counter(_msearch=1, _search=3)
