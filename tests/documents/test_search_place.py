"""``store_conf["search"]``: which search ranks, on every face, and what is refused."""

from __future__ import annotations

import asyncio

import pytest

from lazyrag import Document, HybridRetriever, RAGPipeline, Retriever
from lazyrag.data.filters import matches
from lazyrag.data.segment import content_text
from lazyrag.errors import ConfigError, UnsupportedError
from lazyrag.retrieval import retriever_for
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import StoreLocation, segment_stores, vector_stores
from lazyrag.text.analyzers import analysers

TEXTS = {
    "a": "Green tea is steamed. Tea and tea again.",
    "b": "Black tea is oxidised.",
    "c": "Coffee is roasted.",
}


class SearchServer(MapSegmentStore):
    """Ranks by how many terms of the query a row has, ten a term, and counts its requests."""

    features = frozenset(["native text", "server"])
    location = StoreLocation("http://search.example.com", is_server=True)

    def __init__(self):
        super().__init__()
        self.searches = 0
        self.requests = []

    def get(self, collection, keys):
        """See `SegmentStore.get`."""
        self.requests.append("get")
        return super().get(collection, keys)

    def refresh(self, collection):
        """See `Refreshable.refresh`."""
        self.requests.append("refresh")

    def find_rows(self, collection, analyser, terms, topk, filter=None):  # noqa: A002
        """See `FindsRows.find_rows`."""
        ranking = self.search_text(collection, analyser, terms, topk, filter)
        rows = MapSegmentStore.get(self, collection, [key for key, _ in ranking])
        return [(row, score) for row, (_, score) in zip(rows, ranking, strict=True)]

    def search_text(self, collection, analyser, terms, topk, filter=None):  # noqa: A002
        """See `NativeText.search_text`."""
        self.searches += 1
        self.requests.append("search")
        hits = []
        for row in MapSegmentStore.scan(self, collection, limit=10_000):
            shared = {*terms} & {*analysers[analyser].terms(content_text(row.content))}
            if shared and (filter is None or matches(filter, row.fields)):
                hits.append((row.key, 10.0 * len(shared)))
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:topk]


class RefreshedVectors(MapVectorStore):
    """Records its requests. It finds what others wrote after a refresh."""

    def __init__(self):
        super().__init__()
        self.requests = []

    def refresh(self, collection):
        """See `Refreshable.refresh`."""
        self.requests.append("refresh")

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """See `VectorStore.search`."""
        self.requests.append("search")
        return super().search(collection, vectors, topk, filter)


def embed(text):
    """A vector of three numbers."""
    return [float(len(text)), float(text.count("e")), 1.0]


@pytest.fixture
def opened(tmp_path):
    """Makes Documents on the server."""
    with segment_stores.isolated():
        segment_stores.register("search server", SearchServer)
        closing = []

        def make(embedder=None, **conf):
            stores = {
                "segment_store": {"type": "search server"},
                "vector_store": {"type": "map"},
                "ledger": str(tmp_path / f"ledger{len(closing)}.db"),
            }
            docs = Document(name="tea", embed=embedder, store_conf={**stores, **conf})
            docs.add_texts(TEXTS)
            closing.append(docs)
            return docs

        yield make
        for docs in closing:
            docs.close()


def scores(nodes):
    """Paths and scores."""
    return [(node.path, node.score) for node in nodes]


SERVED = [("a", 20.0), ("b", 10.0)]


def test_a_server_ranks_by_default_on_every_face(opened):
    """All of them ask the store, and none builds a keyword index here."""
    docs = opened()
    store = docs.reader.indexer.nodes.segments
    query = "green tea"
    found = [
        docs.search(query),
        Retriever(docs, "MediumChunk", "bm25")(query),
        retriever_for("full_text_search", docs, "MediumChunk")(query),
    ]
    assert list(map(scores, found)) == [SERVED] * 3
    items = asyncio.run(RAGPipeline.over(docs, "MediumChunk").retrieve(query))
    assert [hit.score for hit in items.hits] == [20.0, 10.0]
    assert store.searches == 4
    indexes = docs.reader.indexer.now().groups["MediumChunk"].indexes
    assert not [kind for kind, *_ in indexes if kind == "terms"]


def test_a_server_ranks_each_part_of_a_question(opened):
    """The question and its two parts are three queries."""
    docs = opened()
    store = docs.reader.indexer.nodes.segments
    found = docs.search("green tea versus coffee", 2)
    assert [node.path for node in found] == ["a", "c"]
    assert store.searches == 3
    assert len(docs.search("green tea versus coffee", 2, parts="off")) == 2
    assert store.searches == 4


def test_hybrid_search_has_the_servers_ranking_among_its_parts(opened):
    """The explanation names the engine."""
    docs = opened(embed)
    hybrid = HybridRetriever.over(docs, "MediumChunk")
    last = hybrid.trace("green tea")
    [fusion] = last.inputs
    vector, keyword = fusion.inputs
    assert (keyword.settings["ranked by"], scores(keyword.nodes)) == ("SearchServer", SERVED)
    assert "ranked by" not in vector.settings
    assert "SearchServer" in str(hybrid.explain("green tea"))


def test_an_exact_search_of_vectors_finds_what_others_wrote():
    """The first vector search of a state refreshes its collection, restricted or not."""
    with vector_stores.isolated():
        vector_stores.register("refreshed", RefreshedVectors)
        with Document(embed=embed, store_conf={"vector_store": {"type": "refreshed"}}) as docs:
            docs.add_texts(TEXTS)
            requests = docs.reader.indexer.nodes.vectors.requests
            view = docs.restricted({"file_name": ["a", "b"]})
            assert len(Retriever(view, "MediumChunk", "cosine")("tea")) == 2
            assert requests[:2] == ["refresh", "search"]
            assert requests.count("refresh") == 1


def test_exact_is_equal_on_every_store(opened):
    """By ``store_conf``, by ``index=``, and where a method has parameters of its own."""
    with Document() as plain:
        plain.add_texts(TEXTS)
        expected = scores(plain.search("green tea"))
        rare = scores(retriever_for("keyword_search", plain, "MediumChunk")("green tea"))
    exact = opened(search="exact")
    assert scores(exact.search("green tea")) == expected
    assert exact.reader.indexer.nodes.segments.searches == 0
    served = opened()
    found = Retriever(served, "MediumChunk", "bm25_chinese", index="exact")("green tea")
    assert scores(found) == expected
    found = retriever_for("keyword_search", served, "MediumChunk")("green tea")
    assert scores(found) == rare
    on_server = Retriever(exact, "MediumChunk", "bm25", index="server")("green tea")
    assert scores(on_server) == SERVED


def test_an_exact_search_of_too_many_rows_is_refused_before_it_reads_them(opened):
    """The error has the number, the bound and both ways out; the server's own search goes on."""
    docs = opened(exact_rows=2)
    exact = Retriever(docs, "MediumChunk", "bm25", index="exact")
    with pytest.raises(ConfigError, match=r"3 nodes.*exact_rows'\]=2.*index='server'.*raise"):
        exact("tea")
    with pytest.raises(ConfigError, match="3 nodes"):
        Retriever(docs, "MediumChunk", lambda query, node: 1.0)("tea")
    assert docs.search("tea")
    docs.delete_files(["c"])
    assert exact("tea")


def test_servers_and_parameters_or_several_documents(opened):
    """A server has parameters and statistics of its own: both are refused, never ignored."""
    docs = opened()
    other = opened()
    with pytest.raises(ConfigError, match="takes no k1"):
        Retriever(docs, "MediumChunk", "bm25", k1=1.2)
    with pytest.raises(ConfigError, match=r"2 Documents together.*index='exact'"):
        Retriever([docs, other], "MediumChunk", "bm25")
    assert Retriever([docs, other], "MediumChunk", "bm25", index="exact")("coffee")


def test_a_store_without_a_ranking_cannot_be_asked_for_one(tmp_path):
    """``"server"`` is refused where neither store ranks."""
    with pytest.raises(ConfigError, match=r"store_conf\['search'\] must be 'exact'"):
        Document(store_conf={"search": "server"})


def test_restricted_views_refuse_what_counts_hidden_nodes_unless_they_share(opened):
    """``statistics="shared"`` says that hidden texts influence scores; hits stay visible ones."""
    docs = opened()
    view = docs.restricted({"file_name": "a"})
    with pytest.raises(ConfigError, match=r"hides\. Pass index='exact'.*statistics='shared'"):
        view.search("tea")
    assert [node.path for node in Retriever(view, "MediumChunk", "bm25", index="exact")("tea")]
    shared = docs.restricted({"file_name": "a"}, statistics="shared")
    assert scores(shared.search("green tea")) == SERVED[:1]
    with pytest.raises(ConfigError, match="must be 'visible' on a view"):
        view.restricted({"file_name": "a"}, statistics="shared")
    with pytest.raises(ConfigError, match=r"statistics.*'all'"):
        docs.restricted({"file_name": "a"}, statistics="all")


def test_shared_statistics_are_those_of_the_whole_document():
    """On a store here, too: the scores of a shared view are those that its hits have among all."""
    with Document() as docs:
        docs.add_texts(TEXTS)
        shared = docs.restricted({"file_name": ["a", "c"]}, statistics="shared")
        everything = dict(scores(docs.search("tea")))
        assert scores(shared.search("tea")) == [("a", everything["a"])]
        assert (
            scores(docs.restricted({"file_name": ["a", "c"]}).search("tea"))[0][1]
            != (everything["a"])
        )


def test_a_query_is_one_request_and_two_after_a_change(opened):
    """Nodes come with their ranking; a refresh goes before the first search of a new state."""
    docs = opened()
    store = docs.reader.indexer.nodes.segments
    docs.search("green tea")
    store.requests.clear()
    assert [node.text for node in docs.search("coffee")] == [TEXTS["c"]]
    assert store.requests == ["search"]
    docs.add_texts({"d": "Coffee again."})
    store.requests.clear()
    assert len(docs.search("coffee")) == 2
    assert store.requests == ["refresh", "search"]
    docs.delete_files(["c"])  # its rows are still there
    store.requests.clear()
    assert [node.path for node in docs.search("coffee", topk=1)] == ["d"]
    assert store.requests == ["refresh", "search", "search"]


def test_hits_that_did_not_come_with_the_ranking_are_read(opened):
    """Those of a vector search, and of a ranking deeper than what is read with it."""
    docs = opened(embed)
    store = docs.reader.indexer.nodes.segments
    hybrid = HybridRetriever.over(docs, "MediumChunk")
    hybrid("coffee")
    store.requests.clear()
    assert len(hybrid("coffee")) == 3
    assert store.requests == ["search", "get"]
    assert len(Retriever(docs, "MediumChunk", "bm25", topk=1_000)("tea")) == 2


def test_why_a_node_is_missing_from_a_servers_ranking(opened):
    """The reason is that of the server's ranking, not of ours."""
    docs = opened()
    retriever = Retriever(docs, "MediumChunk", "bm25", topk=1)
    coffee, black = (
        next(node.uid for node in docs.get_nodes("MediumChunk") if node.path == path)
        for path in "cb"
    )
    assert retriever.why_not(black, "tea").rank == 2
    assert retriever.why_not(coffee, "tea").cause == "terms"


def test_what_a_store_cannot_rank_is_ranked_here(opened, monkeypatch):
    """By default, within the bound; who names the server gets its error."""

    def refuse(*_):
        raise UnsupportedError("There are no terms.", store="search server")

    monkeypatch.setattr(SearchServer, "find_rows", refuse)
    docs = opened()
    assert scores(docs.search("green tea")) == scores(
        Retriever(docs, "MediumChunk", "bm25_chinese", index="exact")("green tea")
    )
    trace = Retriever(docs, "MediumChunk", "bm25").trace("tea")
    assert "ranked by" not in trace.settings
    with pytest.raises(UnsupportedError, match="no terms"):
        Retriever(docs, "MediumChunk", "bm25", index="server")("tea")
    with pytest.raises(UnsupportedError, match="no terms"):
        opened(search="server").search("tea")
    with pytest.raises(ConfigError, match="exact_rows"):
        opened(exact_rows=2).search("tea")
