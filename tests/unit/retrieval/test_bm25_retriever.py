"""BM25Retriever: spec 003's face of BM25, in memory and over a Document."""

from __future__ import annotations

import threading

import pytest
from rank_bm25 import BM25Okapi

from lazyrag import BM25Retriever, Document, HybridRetriever, Retriever
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.text.analyzers import chinese_terms, english_terms

TEXTS = {
    "a": "green tea from Wuyi",
    "b": "black tea, tea and tea",
    "c": "coffee",
    "d": "绿茶和红茶",
    "e": "green cups",
}
ROWS = [{"id": name, "text": text} for name, text in TEXTS.items()]


@pytest.fixture
def memory():
    """Five texts in memory."""
    retriever = BM25Retriever()
    retriever.index_documents(ROWS)
    return retriever


class TestInMemory:
    """Plain mappings, no Document."""

    def test_the_scores_are_those_of_a_document(self, memory):
        """The same texts in a Document have the same scores, so both are one BM25."""
        docs = Document()
        docs.add_texts(TEXTS)
        for query in ("green tea", "红茶", "cup"):
            expected = {
                node.path: node.score
                for node in Retriever(docs, "FineChunk", "bm25_chinese")(query)
            }
            assert dict(memory.search(query)) == pytest.approx(expected)
            assert expected

    @pytest.mark.parametrize(("analyser", "terms"), [("en", english_terms), ("zh", chinese_terms)])
    def test_okapi_is_rank_bm25(self, analyser, terms):
        """With variant="okapi" scores are those of the package that spec 003 names."""
        retriever = BM25Retriever(analyser=analyser, variant="okapi")
        retriever.index_documents(ROWS)
        oracle = dict(
            zip(
                TEXTS,
                BM25Okapi([terms(text) for text in TEXTS.values()]).get_scores(terms("绿茶 green")),
                strict=True,
            )
        )
        found = retriever.search("绿茶 green")
        assert len(found) == 3
        assert dict(found) == pytest.approx({uid: oracle[uid] for uid, _ in found})

    def test_only_what_shares_a_term_best_first(self, memory):
        """No padding with texts that have nothing of the query; top_k bounds."""
        found = memory.search("green tea")
        assert {uid for uid, _ in found} == {"a", "b", "e"}
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        assert memory.search("green tea", top_k=1) == found[:1]
        assert memory.search("whisky") == memory.search("") == memory.search("the of") == []
        assert [uid for uid, _ in memory.search("and of")] == ["b"]

    def test_more_can_be_added_and_replaced(self, memory):
        """index_documents adds; a known id is replaced."""
        memory.index_documents([{"id": "f", "text": "whisky"}, {"id": "a", "text": "rum"}])
        assert [uid for uid, _ in memory.search("whisky rum")] in (["a", "f"], ["f", "a"])
        assert "a" not in dict(memory.search("green tea"))
        assert BM25Retriever().search("tea") == []

    def test_names_and_metadata(self):
        """Ids may be numbers; doc_id and content are known names; the rest is metadata of the
        nodes.
        """
        retriever = BM25Retriever()
        retriever.index_documents(
            [{"doc_id": 7, "content": "green tea", "metadata": {"page": 3}, "lang": "en"}]
        )
        [node] = retriever("tea")
        assert (node.uid, node.text, dict(node.metadata)) == (
            "7",
            "green tea",
            {"page": 3, "lang": "en"},
        )
        assert retriever.search("tea") == [("7", node.score)]

    @pytest.mark.parametrize(
        "row",
        [{"text": "tea"}, {"id": "a"}, {"id": "", "text": "tea"}, {"id": True, "text": "t"}, "tea"],
    )
    def test_rows_need_an_id_and_a_text(self, row):
        """The message says so, and nothing is indexed."""
        retriever = BM25Retriever()
        with pytest.raises(ConfigError, match="'id'"):
            retriever.index_documents([{"id": "x", "text": "tea"}, row])
        assert retriever.search("tea") == []

    def test_one_id_twice_is_refused(self, memory):
        """In one call; the index stays as it was."""
        with pytest.raises(ConfigError):
            memory.index_documents([{"id": "x", "text": "rum"}, {"id": "x", "text": "whisky"}])
        assert memory.search("rum whisky") == []

    def test_it_goes_into_a_hybrid(self, memory):
        """Its nodes are nodes like any others."""
        docs = Document()
        docs.add_texts(TEXTS)
        found = HybridRetriever(Retriever(docs, "FineChunk", "bm25_chinese"), memory, topk=20)(
            "green tea"
        )
        assert len(found) == 2 * len(memory.search("green tea"))

    def test_filters_are_refused(self, memory):
        """There are no fields in memory; nothing is passed over."""
        with pytest.raises(ConfigError, match="no fields"):
            memory("tea", {"page": [3]})

    def test_it_explains_itself(self, memory):
        """A leaf with its nodes; why_not knows terms, depth and what was never indexed."""
        assert [hit.uid for hit in memory.explain("green tea")] == [
            uid for uid, _ in memory.search("green tea")
        ]
        causes = [memory.why_not(uid, "green tea", topk=1).cause for uid in ("a", "b", "c", "zzz")]
        assert causes == ["found", "depth", "terms", "unknown"]

    def test_an_id_twice_changes_nothing(self, memory):
        """Neither texts nor ranking, and the message is about ids; 1 and "1" are the same."""
        before = [(node.text, node.score) for node in memory("green tea")]
        for first, second in (("a", "a"), (1, "1")):
            rows = [{"id": first, "text": "green green"}, {"id": second, "text": "green tea"}]
            with pytest.raises(ConfigError, match=rf"The id '{first}' occurs twice"):
                memory.index_documents(rows)
            assert [(node.text, node.score) for node in memory("green tea")] == before
        with pytest.raises(ConfigError, match="a mapping with an"):
            memory.index_documents([{"id": "z", "text": "green"}, {"id": "y"}])
        assert memory.why_not("z", "green").cause == "unknown"

    @pytest.mark.slow
    def test_a_question_sees_one_state(self, memory):
        """While texts are replaced by others, a text always comes with its own score."""
        versions = [{"id": str(n), "text": "green tea " * n + "cup"} for n in range(1, 6)]
        rows = [[{**row, "id": "x"}] for row in versions]
        expected = {}
        for row in rows:
            memory.index_documents(row)
            [node] = [node for node in memory("cup") if node.uid == "x"]
            expected[node.text] = node.score
        assert len(set(expected.values())) == 5
        stop = threading.Event()

        def write():
            while not stop.is_set():
                for row in rows:
                    memory.index_documents(row)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(300):
                [node] = [node for node in memory("cup") if node.uid == "x"]
                assert node.score == expected[node.text]
        finally:
            stop.set()
            writer.join()

    def test_a_trace_tells_of_its_own_texts(self, memory):
        """What was indexed afterwards is not among the reasons."""
        stage = memory.trace("green tea")
        memory.index_documents([{"id": "late", "text": "green tea"}])
        assert stage.why("late").cause == "unknown"

    @pytest.mark.parametrize("more", ["author", ["a"], 3, [("author", "Luo")]])
    def test_metadata_is_a_mapping(self, memory, more):
        """Nothing is dropped in silence."""
        with pytest.raises(ConfigError, match=r"metadata .*must be a mapping"):
            memory.index_documents([{"id": "z", "text": "tea", "metadata": more}])

    def test_metadata_twice(self, memory):
        """A name in metadata and beside it is refused; without metadata, or with None, there is
        nothing to refuse.
        """
        with pytest.raises(ConfigError, match=r"has 'author' twice"):
            memory.index_documents(
                [{"id": "z", "text": "tea", "author": "Luo", "metadata": {"author": "Li"}}]
            )
        memory.index_documents([{"id": "z", "text": "oolong", "page": 2, "metadata": None}])
        memory.index_documents(
            [{"id": "y", "text": "oolong tea", "page": 3, "metadata": {"author": "Li"}}]
        )
        assert [dict(node.metadata) for node in memory("oolong")] == [
            {"page": 2},
            {"author": "Li", "page": 3},
        ]


class TestOverADocument:
    """The same names over a node group."""

    def test_it_is_the_retriever(self):
        """The same nodes and scores as `Retriever` with the similarity of the language."""
        docs = Document()
        docs.add_texts(TEXTS)
        for analyser, similarity in (("en", "bm25"), ("zh", "bm25_chinese")):
            expected = [
                (node.uid, node.score)
                for node in Retriever(docs, "FineChunk", similarity)("绿茶 tea")
            ]
            retriever = BM25Retriever(docs, "FineChunk", analyser=analyser)
            assert [(node.uid, node.score) for node in retriever("绿茶 tea")] == expected
            assert retriever.search("绿茶 tea") == expected
            assert [
                (node.uid, node.score) for node in retriever.trace("绿茶 tea").nodes
            ] == expected
            assert retriever("tea", {"file_name": ["b"]})[0].path == "b"
        assert retriever.why_not("1234", "tea").cause == "unknown"

    def test_it_indexes_nothing_itself(self):
        """The Document does."""
        with pytest.raises(ConfigError, match="add_texts"):
            BM25Retriever(Document(), "FineChunk").index_documents(ROWS)


def test_what_is_refused():
    """Half of a Document and its group, unknown analysers, impossible numbers."""
    with pytest.raises(ConfigError, match="go together"):
        BM25Retriever(Document())
    with pytest.raises(ConfigError, match="go together"):
        BM25Retriever(group_name="FineChunk")
    with pytest.raises(NotRegisteredError, match="analyser"):
        BM25Retriever(analyser="de")
    for kwargs in ({"k1": -1}, {"b": 2}, {"topk": 0}, {"variant": "plus"}, {"top_k": 3}):
        with pytest.raises(ConfigError):
            BM25Retriever(**kwargs)
    with pytest.raises(ConfigError, match="top_k"):
        BM25Retriever().search("tea", top_k=0)
    with pytest.raises(ConfigError, match="query must be a string"):
        BM25Retriever().search(3)
