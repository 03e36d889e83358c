"""Specification 004, sections 8 and 9: both flows, whole. Each docstring quotes the sentence that
it tests.
"""

from __future__ import annotations

import pytest

import lazyrag
from lazyrag import Retriever
from lazyrag.errors import ConfigError
from lazyrag.interop import dify
from lazyrag.interop.dify import (
    CacheEmbedding,
    Condition,
    Document,
    ExtractSetting,
    MetadataCondition,
    ProcessRule,
    RetrievalMethod,
    RetrievalSegments,
    Vector,
    WeightRerankRunner,
    extract,
    retrieve,
    transform,
)
from lazyrag.ranking import KeywordSetting, VectorSetting, Weights
from lazyrag.transforms import ParentMode, Rule, Segmentation

TEXT = "\n\n".join(
    f"第{number}段。" + f"{tea}用八十度的水冲泡。" * 6
    for number, tea in enumerate("绿红白黑", start=1)
)
WEIGHTS = Weights(VectorSetting(0.7, "toy", "characters"), KeywordSetting(0.3))


def embed(text):
    """How often each of five characters is there."""
    return [float(text.count(character)) for character in "绿红白黑水"] + [0.1]


@pytest.fixture
def chunks():
    """A text in four paragraphs, cut."""
    return transform(
        [Document(TEXT, {"source": "teas.md", "title": "茶"})], Rule(Segmentation(100, 0)), "teas"
    )


def test_from_files_to_answers(tmp_path):
    """「原始文件 → Document 完整文档 → Document 分块列表 → Vectors → 向量数据库」, then 「查询文本 → … → 最终结果」."""
    path = tmp_path / "teas.md"
    path.write_text(TEXT, encoding="utf-8")
    [whole] = extract(ExtractSetting("upload_file", upload_file=path))
    assert (whole.page_content, whole.metadata["source"]) == (TEXT, "teas.md")
    pieces = transform(
        [whole],
        ProcessRule("custom", {"segmentation": {"max_tokens": 100, "chunk_overlap": 0}}),
        "teas",
    )
    assert len(pieces) > 2
    with (
        CacheEmbedding(embed, tmp_path / "cache.db", identity="toy:characters") as embeddings,
        Vector("teas", ["source"], embeddings) as vector,
    ):
        vector.create(pieces)
        reranker = WeightRerankRunner(WEIGHTS, embeddings)
        found = retrieve(vector, "红茶的水温？", "hybrid_search", top_k=2, reranker=reranker)
    assert "红" in found[0].page_content
    assert found[0].metadata["source"] == "teas.md"
    assert all(0 <= one.metadata["score"] <= 1 for one in found)
    assert len(found) == 2


def test_long_files_are_cut_as_they_are_read(tmp_path):
    """「最长 100,000 字符」 holds for documents, and files may be longer: with a rule they come in as its
    chunks.
    """
    rule = ProcessRule("custom", {"segmentation": {"max_tokens": 100}})
    short, long = tmp_path / "short.md", tmp_path / "long.md"
    short.write_text(TEXT, encoding="utf-8")
    long.write_text("\n\n".join([TEXT] * 500), encoding="utf-8")
    setting = ExtractSetting("upload_file", upload_file=short)
    assert extract(setting, rule=rule, dataset_id="teas") == transform(
        extract(setting), rule, "teas"
    )
    assert extract(setting, dataset_id="teas")[0].metadata["dataset_id"] == "teas"
    setting = ExtractSetting("upload_file", upload_file=long)
    pieces = extract(setting, rule=rule, dataset_id="teas")
    assert (
        len(long.read_text(encoding="utf-8"))
        > 100_000
        >= max(len(one.page_content) for one in pieces)
    )
    assert (
        "".join("".join(one.page_content for one in pieces).split()) == "".join(TEXT.split()) * 500
    )
    assert [one.metadata["position"] for one in pieces] == [*range(len(pieces))]
    assert {(one.metadata["source"], one.metadata["dataset_id"]) for one in pieces} == {
        ("long.md", "teas")
    }
    with pytest.raises(ConfigError, match=r"'long\.md' has .* characters.*extract\(setting, rule="):
        extract(setting)
    with pytest.raises(ConfigError, match="a Rule or a ProcessRule"):
        extract(setting, rule="automatic")


def test_chunks_know_their_document(chunks):
    """「IndexProcessor.transform → Document 分块列表」: each has its own id and its document's
    metadata.
    """
    assert "\n\n".join(chunk.page_content.strip() for chunk in chunks) == TEXT
    assert [chunk.metadata["position"] for chunk in chunks] == [*range(len(chunks))]
    assert {(chunk.metadata["title"], chunk.metadata["dataset_id"]) for chunk in chunks} == {
        ("茶", "teas")
    }
    assert len({chunk.metadata["doc_id"] for chunk in chunks}) == len(chunks) > 2
    assert len({chunk.metadata["document_id"] for chunk in chunks}) == 1


def test_ids_are_unique_over_data_sets(chunks):
    """「每个 `Document` 的 `metadata.doc_id` 全局唯一」: the same again is the same; another data set has
    others.
    """
    documents = [Document(TEXT, {"source": "teas.md", "title": "茶"})]
    assert transform(documents, Rule(Segmentation(100, 0)), "teas") == chunks
    others = transform(documents, Rule(Segmentation(100, 0)), "more teas")
    ids, other_ids = ({one.metadata["doc_id"] for one in some} for some in (chunks, others))
    assert ids.isdisjoint(other_ids)
    assert {one.metadata["doc_hash"] for one in chunks} == {
        one.metadata["doc_hash"] for one in others
    }


def test_documents_keep_their_order():
    """Chunks come document by document, in the order that was given; two documents with one id are
    an error.
    """
    documents = [Document("红茶", {"source": "z"}), Document("绿茶", {"source": "a"})]
    rule = Rule(Segmentation(100, 0))
    assert [one.page_content for one in transform(documents, rule)] == ["红茶", "绿茶"]
    assert transform([], rule) == []
    with pytest.raises(ConfigError, match="doc_id of its own"):
        transform([documents[0], Document("白茶", {"source": "z"})], rule)
    with pytest.raises(ConfigError, match="a Rule or a ProcessRule"):
        transform(documents, "automatic")
    with pytest.raises(ConfigError, match="'z' is blank"):
        transform([documents[1], Document(" \n", {"source": "z"})], rule)
    for wrong in (documents[0], "tea", ["tea"], None):
        with pytest.raises(ConfigError, match=r"a list of lazyrag\.interop\.dify\.Document"):
            transform(wrong, rule)


PARENTS = Rule(Segmentation(100, 0), subchunk_segmentation=Segmentation(50, 0, "。"))


def test_children_are_what_is_searched():
    """「父子模式（仅父子索引器使用）」: children are searched; their parents are returned, with the children
    found.
    """
    parents = transform([Document(TEXT, {"source": "a", "title": "茶"})], PARENTS, "teas")
    assert all(
        "".join(child.page_content for child in one.children) == one.page_content for one in parents
    )
    ids = [one.metadata["doc_id"] for parent in parents for one in (parent, *parent.children)]
    assert len(set(ids)) == len(ids) > 2 * len(parents)
    with Vector("teas", ["title"], embed) as vector:
        vector.create(parents)
        reranker = WeightRerankRunner(WEIGHTS, embed)
        for method in ("semantic_search", "full_text_search", "hybrid_search"):
            found = retrieve(
                vector, "白茶", method, 3, reranker=reranker if method == "hybrid_search" else None
            )
            assert found[0].page_content == next(
                one.page_content for one in parents if "白" in one.page_content
            )
            assert "白" in found[0].children[0].page_content
            assert (
                found[0].children[0].metadata.items()
                > {"title": "茶", "document_id": ids_of(parents)[0]}.items()
            )
            assert (
                len(found) == len({one.metadata["doc_id"] for one in found}) == min(3, len(found))
            )
        assert len(vector.search_by_vector("茶", len(parents))) == len(parents)
        vector.delete_by_ids([found[0].metadata["doc_id"]])
        assert all("白" not in one.page_content for one in vector.search_by_vector("白茶", 10))


def ids_of(documents):
    """Ids of the documents that chunks are of."""
    return [one.metadata["document_id"] for one in documents]


def test_parents_in_a_file_of_a_data_set(tmp_path):
    """「父子模式」: a data set with children is one for the next program; documents without children stay
    their own.
    """
    uri = str(tmp_path / "teas.db")
    with Vector("teas", uri=uri) as vector:
        vector.create([Document("白茶单独一篇。", {"doc_id": "alone"})])
        vector.create(transform([Document(TEXT, {"doc_id": "long"})], PARENTS))
    with Vector("teas", uri=uri) as vector:
        found = vector.search_by_full_text("白茶", 10)
    assert {(one.metadata["doc_id"] == "alone", bool(one.children)) for one in found} == {
        (True, False),
        (False, True),
    }
    mode = ParentMode.FULL_DOC
    rule = Rule(parent_mode=mode, subchunk_segmentation=Segmentation(50, 0, "。"))
    [whole] = transform([Document(TEXT, {"source": "a"})], rule)
    assert (whole.page_content, len(whole.children) > 4) == (TEXT, True)


def test_chunks_name_their_document():
    """「`document_id` | str | 所属文档 ID」: the id that the document came with, of every chunk and
    child.
    """
    [*chunks] = transform(
        [Document(TEXT, {"doc_id": "tea-7"}), Document("黑茶", {"document_id": "8"})], PARENTS
    )
    every = [one for chunk in chunks for one in (chunk, *chunk.children)]
    assert {one.metadata["document_id"] for one in every} == {"tea-7", "8"}
    assert "tea-7" not in {one.metadata["doc_id"] for one in every}


def test_process_rules():
    """「处理规则类：`Rule`、`Segmentation`、`ProcessRule`」: three modes, with rules that fit them."""
    assert ProcessRule().rule == Rule.automatic()
    rule = Rule(Segmentation(100, 0))
    assert ProcessRule("custom", rule).rule is rule
    both = {"segmentation": {"max_tokens": 200}, "subchunk_segmentation": {"max_tokens": 50}}
    assert ProcessRule("hierarchical", both).rule.subchunk_segmentation.max_tokens == 50
    for wrong in (("hierarchical", rule), ("custom", None), ("manual", rule), ("manual", None)):
        with pytest.raises(ConfigError):
            ProcessRule(*wrong)


@pytest.mark.parametrize("method", [*RetrievalMethod, "keyword_search"])
def test_every_method_retrieves(chunks, method):
    """「SEMANTIC_SEARCH / FULL_TEXT_SEARCH / HYBRID_SEARCH / KEYWORD_SEARCH」, each on one data
    set.
    """
    reranker = WeightRerankRunner(WEIGHTS, embed) if method == "hybrid_search" else None
    with Vector("teas", [], embed) as vector:
        vector.create(chunks)
        found = retrieve(vector, "白茶", method, 1, reranker=reranker)
    assert ["白" in one.page_content for one in found] == [True]


def test_a_query_is_embedded_only_where_it_must_be(chunks):
    """「if RetrievalMethod.is_support_semantic_search(method): query_vector = embed_query(query)」"""
    calls = []

    def counted(text):
        calls.append(text)
        return embed(text)

    with Vector("teas", [], counted) as vector:
        vector.create(chunks)
        calls.clear()
        retrieve(vector, "白茶", "full_text_search")
        assert calls == []
        retrieve(vector, "白茶", "semantic_search")
        assert calls == ["白茶"]


def test_both_searches_are_merged_without_doubles(chunks):
    """「C --> E[合并去重] D --> E」: what both find is there once, and what one of them finds is
    there.
    """
    with Vector("teas", ["title"], embed) as vector:
        vector.create(chunks)
        by_words = vector.search_by_full_text("第1段", 10)
        found = retrieve(
            vector, "第1段", "hybrid_search", 10, reranker=WeightRerankRunner(WEIGHTS, embed)
        )
        ids = [one.metadata["doc_id"] for one in found]
        assert len(set(ids)) == len(ids) == len(chunks)
        assert {one.metadata["doc_id"] for one in by_words} <= set(ids)
        none = MetadataCondition("and", [Condition("title", "is", "咖啡")])
        assert retrieve(vector, "第1段", "full_text_search", filters=none) == []


def test_thresholds_and_bounds(chunks):
    """「过滤截取」, 「1 <= top_k <= 100」: worse than the threshold is dropped, and arguments are
    checked.
    """
    with Vector("teas", [], embed) as vector:
        vector.create(chunks)
        scores = [one.metadata["score"] for one in retrieve(vector, "白茶", "semantic_search", 10)]
        assert scores[0] > scores[1]
        for method in ("semantic_search", "full_text_search"):
            kept = retrieve(vector, "白茶", method, 10, score_threshold=scores[0])
            assert kept
            assert all(one.metadata["score"] >= scores[0] for one in kept)
        assert retrieve(vector, "  ") == []
        for query in (None, ["白茶"], 7):
            with pytest.raises(ConfigError, match="query must be a string"):
                retrieve(vector, query)
        for other in (lazyrag.Document(), "teas", Vector):
            with pytest.raises(ConfigError, match=r"vector must be a Vector.*GroupVector"):
                retrieve(other, "白茶")
        with pytest.raises(ConfigError, match="Pass reranker="):
            retrieve(vector, "白茶", "hybrid_search")
        with pytest.raises(ConfigError, match="Did you mean 'hybrid_search'"):
            retrieve(vector, "白茶", "hybrid")
        for wrong in ({"top_k": 0}, {"top_k": 101}, {"score_threshold": 7}):
            with pytest.raises(ConfigError):
                retrieve(vector, "白茶", **wrong)


def test_retrieval_segments():
    """「检索类：… `RetrievalSegments`」: what is read, with the children that were found, in the order of
    the best.
    """
    docs = lazyrag.Document()
    rule = Rule(Segmentation(100, 0), subchunk_segmentation=Segmentation(50, 0, "。"))
    part = rule.create_groups(docs, "part")
    docs.add_texts({"teas.md": TEXT})
    nodes = Retriever(docs, part.child, similarity="bm25_chinese", topk=5)("白茶第3段")
    found = RetrievalSegments.from_nodes(nodes, "teas")
    assert found[0].segment.content == nodes[0].parent.text
    assert found[0].score == found[0].child_chunks[0].score == found[0].segment.score == 1.0
    assert sum(len(one.child_chunks) for one in found) == len(nodes)
    assert [one.id for one in found[0].child_chunks] == [
        node.uid for node in nodes if node.parent == nodes[0].parent
    ]
    assert (found[0].segment.dataset_id, found[0].segment.metadata["source"]) == ("teas", "teas.md")
    whole = RetrievalSegments.from_nodes(docs.get_nodes())
    assert [(one.segment.content, one.child_chunks, one.score) for one in whole] == [
        (TEXT, (), None)
    ]


@pytest.mark.slow
def test_segments_of_long_documents():
    """「检索类：… `RetrievalSegments`」: a segment that is read may be a whole file, however long it
    is.
    """
    docs = lazyrag.Document()
    docs.create_node_group("line", transform=str.splitlines)
    docs.add_texts({"teas.md": "\n".join([TEXT] * 600)})
    [found] = RetrievalSegments.from_nodes(
        Retriever(docs, "line", "bm25_chinese", topk=2)("白茶第3段"), "teas"
    )
    assert len(found.segment.content) > 100_000
    assert (found.segment.metadata["source"], len(found.child_chunks), found.score) == (
        "teas.md",
        2,
        1.0,
    )
    [whole] = RetrievalSegments.from_nodes(docs.get_nodes())
    assert (whole.segment.content, whole.score) == (found.segment.content, None)


def test_all_classes_of_the_overview_are_there():
    """「RAG 模块的核心数据结构分为以下几类」: every class that the overview lists can be imported from one place."""
    listed = """Document ExtractSetting DocumentSegment RetrievalMethod MetadataCondition RetrievalSegments
    CacheEmbedding Embeddings EmbeddingInputType BaseVector VectorType Field Weights VectorSetting KeywordSetting
    RerankMode Rule Segmentation ProcessRule""".split()
    assert set(listed) <= set(dify.__all__)
    assert dify.__all__ == sorted(dify.__all__)
    assert dify.Weights is lazyrag.ranking.Weights
    assert dify.Rule is lazyrag.transforms.Rule
    assert dify.RetrievalMethod is lazyrag.retrieval.RetrievalMethod
