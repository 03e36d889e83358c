"""Spec 003, task 3.2 `HybridRetriever`: every test quotes the sentence it checks and says what is
expected.
"""

from __future__ import annotations

import asyncio
import inspect

import pytest

import lazyrag
from lazyrag.ranking.fusion import rrf, weighted

TEXTS = {
    "doc1": "green tea steamed in spring",
    "doc2": "black tea oxidised",
    "doc3": "coffee roasted",
    "doc4": "water for green cups",
}
WORDS = "green tea black coffee water spring".split()


@pytest.fixture
def docs():
    """Four documents with embeddings."""
    docs = lazyrag.Document(embed=lambda text: [0.5 + text.split().count(word) for word in WORDS])
    docs.add_texts(TEXTS)
    return docs


@pytest.fixture
def vector_retriever(docs):
    """By meaning."""
    return lazyrag.Retriever(docs, "FineChunk")


@pytest.fixture
def bm25_retriever(docs):
    """By words."""
    return lazyrag.BM25Retriever(docs, "FineChunk")


def told(nodes):
    """A result as a ranking."""
    return [(node.uid, node.score) for node in nodes]


def hits(result):
    """A result of hits as a ranking."""
    return [(hit.id, hit.score) for hit in result]


def test_init_by_name_and_by_position(vector_retriever, bm25_retriever):
    """「vector_retriever, bm25_retriever, fusion_method: str = "rrf"」: in this order, or by these
    names.
    """
    made = (
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever),
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever, "rrf"),
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever, fusion_method="rrf"),
        lazyrag.HybridRetriever(
            vector_retriever=vector_retriever, bm25_retriever=bm25_retriever, fusion_method="rrf"
        ),
    )
    results = [hits(asyncio.run(one.search("green tea"))) for one in made]
    assert results[0] == rrf(
        [told(vector_retriever("green tea", topk=50)), told(bm25_retriever("green tea", topk=50))]
    )
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("method", ["rrf", "weighted"])
def test_fusion_method(vector_retriever, bm25_retriever, method):
    """「fusion_method: str = "rrf"  # rrf, weighted」: both are there; another name is an error that
    says so.
    """
    assert asyncio.run(
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever, fusion_method=method).search(
            "tea"
        )
    )
    with pytest.raises(KeyError, match=method):
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever, fusion_method="sum")


def test_search_is_asynchronous(vector_retriever, bm25_retriever):
    """「async def search(...)」: a coroutine; two searches at once do not disturb each other."""
    hybrid = lazyrag.HybridRetriever(vector_retriever, bm25_retriever)

    async def both():
        return await asyncio.gather(hybrid.search("green tea"), hybrid.search("coffee"))

    assert inspect.iscoroutinefunction(hybrid.search)
    assert [hits(one) for one in asyncio.run(both())] == [
        told(hybrid(q, topk=5)) for q in ("green tea", "coffee")
    ]


def test_search_gives_results(docs, vector_retriever, bm25_retriever):
    """「-> List[RetrievalResult]」, 「source: str」: hits, each with its text, score and source."""
    [first, *_] = asyncio.run(
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever).search("green tea", top_k=2)
    )
    [node] = [node for node in docs.get_nodes("FineChunk") if node.uid == first.id]
    assert (first.text, first.source, first.document_id, first.chunk_id) == (
        TEXTS["doc1"],
        "doc1",
        node.root.uid,
        1,
    )
    assert 0 < first.score <= 2 / 61


def test_top_k(vector_retriever, bm25_retriever):
    """「top_k: int = 5」: at most so many."""
    hybrid = lazyrag.HybridRetriever(vector_retriever, bm25_retriever)
    assert len(asyncio.run(hybrid.search("green tea", top_k=1))) == 1
    assert inspect.signature(hybrid.search).parameters["top_k"].default == 5


def test_weights_of_a_search(vector_retriever, bm25_retriever):
    """「vector_weight: float = 0.7, bm25_weight: float = 0.3」: they count, in weighted fusion and in
    RRF.
    """
    rankings = [told(one("green tea", topk=50)) for one in (vector_retriever, bm25_retriever)]
    for weights in ([0.7, 0.3], [0.2, 0.8]):
        given = {"vector_weight": weights[0], "bm25_weight": weights[1]}
        by_score = lazyrag.HybridRetriever(
            vector_retriever, bm25_retriever, fusion_method="weighted"
        )
        assert hits(asyncio.run(by_score.search("green tea", **given))) == weighted(
            rankings, weights=weights
        )
        by_rank = lazyrag.HybridRetriever(vector_retriever, bm25_retriever)
        assert hits(asyncio.run(by_rank.search("green tea", **given))) == rrf(
            rankings, weights=weights
        )


def test_default_weights(vector_retriever, bm25_retriever):
    """「hybrid_vector_weight: float = 0.7」, 「hybrid_bm25_weight: float = 0.3」: of weighted fusion by
    default.
    """
    rankings = [told(one("green tea", topk=50)) for one in (vector_retriever, bm25_retriever)]
    hybrid = lazyrag.HybridRetriever(vector_retriever, bm25_retriever, fusion_method="weighted")
    assert hits(asyncio.run(hybrid.search("green tea"))) == weighted(rankings, weights=[0.7, 0.3])


def test_plain_rrf_has_no_weights(vector_retriever, bm25_retriever):
    """「RRF Score = sum(1 / (k + rank_i))」: as long as a search gives no weights, RRF is the formula
    itself.
    """
    rankings = [told(one("green tea", topk=50)) for one in (vector_retriever, bm25_retriever)]
    expected = {}
    for ranking in rankings:
        for rank, (uid, _) in enumerate(ranking, start=1):
            expected[uid] = expected.get(uid, 0) + 1 / (60 + rank)
    hybrid = lazyrag.HybridRetriever(vector_retriever, bm25_retriever)
    assert dict(hits(asyncio.run(hybrid.search("green tea")))) == pytest.approx(expected)


class VectorClient:
    """As the specification's own client: ``search`` gives what ``found`` holds."""

    def __init__(self, found):
        self.found = found
        self.asked = []

    def search(self, query, top_k=10):
        """The first ones."""
        self.asked.append((query, top_k))
        return self.found and self.found[:top_k]


class AsyncClient(VectorClient):
    """The same as a coroutine, with filters."""

    async def search(self, query, top_k=10, filters=None):
        """The first ones."""
        await asyncio.sleep(0)
        self.asked.append(filters)
        return self.found[:top_k]


INDEXED = [{"id": doc_id, "text": text} for doc_id, text in TEXTS.items()]


def test_a_vector_client_of_pairs():
    """「vector_retriever: MilvusClient」, 「List[Tuple[str, float]]」: an object with `search`.

    「向量检索: [doc1, doc3, doc2]」: pairs of id and score, whose texts the BM25 retriever has.
    """
    bm25_retriever = lazyrag.BM25Retriever()
    bm25_retriever.index_documents(INDEXED)
    client = VectorClient([("doc1", 0.9), ("doc3", 0.8), ("doc2", 0.7)])
    hybrid = lazyrag.HybridRetriever(
        vector_retriever=client, bm25_retriever=bm25_retriever, fusion_method="rrf"
    )
    result = asyncio.run(hybrid.search("black tea", top_k=3))
    assert hits(result) == rrf([client.found, bm25_retriever.search("black tea")])[:3]
    assert [hit.text for hit in result] == [TEXTS[hit.id] for hit in result]
    assert client.asked == [("black tea", 50)]
    assert hits(asyncio.run(hybrid.search("black tea", 1, vector_weight=0.9)))[0][0] == "doc1"


@pytest.mark.parametrize("kind", [VectorClient, AsyncClient])
@pytest.mark.parametrize("form", [dict, lazyrag.Hit])
def test_a_vector_client_of_hits(bm25_retriever, kind, form):
    """「-> List[RetrievalResult]」: hits or mappings with its fields, also from a coroutine, beside a
    Document.
    """
    found = form(
        id="m7",
        text="matcha",
        score=0.9,
        source="m.txt",
        document_id="m",
        chunk_id=7,
        metadata={"page": 1},
    )
    hybrid = lazyrag.HybridRetriever(kind([found]), bm25_retriever)
    result = asyncio.run(hybrid.search("green tea"))
    [own] = [hit for hit in result if hit.id == "m7"]
    assert own == lazyrag.Hit("m7", "matcha", 1 / 61, "m.txt", "m", 7, {"page": 1})
    assert {hit.source for hit in result} == {"m.txt", "doc1", "doc2", "doc4"}
    assert hybrid("green tea")[0].score == 1 / 61


def test_a_client_gets_filters_if_it_takes_them(docs, bm25_retriever):
    """「filters: Optional[Dict] = None」: passed on, and refused where the client's search takes
    none.
    """
    client = AsyncClient([])
    lazyrag.HybridRetriever(client, bm25_retriever)("tea", filters={"file_name": ["doc1"]})
    assert client.asked == [{"file_name": ["doc1"]}]
    with pytest.raises(lazyrag.LazyRAGError, match="search takes no filters"):
        lazyrag.HybridRetriever(VectorClient([]), bm25_retriever)(
            "tea", filters={"file_name": ["doc1"]}
        )


def test_what_is_no_client_is_refused(bm25_retriever):
    """「vector_retriever: MilvusClient」: pymilvus's own needs a collection and vectors, which the
    error says.
    """

    class Pymilvus:
        def search(self, collection_name, data=None, limit=10):
            """Never called."""

    class Other:
        def search(self):
            """Never called."""

    for wrong, message in (
        (Pymilvus(), "embeds the query"),
        (Other(), "cannot be called"),
        (7, "search"),
    ):
        with pytest.raises(lazyrag.LazyRAGError, match=message):
            lazyrag.HybridRetriever(wrong, bm25_retriever)
    for found in ([("unknown", 0.5)], [{"id": "x", "text": "tea"}], ["doc1"], None):
        with pytest.raises(lazyrag.LazyRAGError, match="VectorClient"):
            lazyrag.HybridRetriever(VectorClient(found), bm25_retriever)("tea")


def test_a_retriever_with_an_index_of_its_own(docs, vector_retriever):
    """「def index_documents(self, documents)」: a BM25 index over the same ids finds the same
    documents.
    """
    bm25_retriever = lazyrag.BM25Retriever()
    bm25_retriever.index_documents(
        [{"id": node.uid, "text": node.text} for node in docs.get_nodes("FineChunk")]
    )
    rankings = [
        told(vector_retriever("green tea", topk=50)),
        bm25_retriever.search("green tea", top_k=50),
    ]
    result = asyncio.run(
        lazyrag.HybridRetriever(vector_retriever, bm25_retriever).search("green tea")
    )
    assert hits(result) == rrf(rankings)
    assert [hit.source for hit in result] == [hit.metadata["file_name"] for hit in result]
