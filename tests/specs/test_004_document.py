"""Specification 004, section 1: Document and DocumentSegment. Each docstring quotes the sentence
that it tests.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyrag
from lazyrag import DocNode, Retriever
from lazyrag.errors import ConfigError
from lazyrag.interop.dify import Document, DocumentSegment, doc_hash

TEXT = "Dify 是一个开源的 LLM 应用开发平台。"


def found(docs, query="绿茶"):
    """What BM25 finds in a Document."""
    return Retriever(docs, "FineChunk", similarity="bm25_chinese")(query)


@pytest.fixture
def docs():
    """Three texts on tea."""
    collection = lazyrag.Document(doc_fields={"title": lazyrag.DocField(lazyrag.DataType.VARCHAR)})
    texts = {"a.md": "绿茶用八十度的水。绿茶。", "b.md": "绿茶与红茶不同。", "c.md": "咖啡。"}
    collection.add_texts(texts, {"a.md": {"title": "绿茶"}})
    return collection


def test_the_example_of_the_section(capsys):
    """「创建文档对象 … 访问字段 … 比较相等性 … False（metadata 不同）」, as it is written there."""
    doc = Document(
        page_content=TEXT,
        metadata={
            "source": "README.md",
            "title": "Dify 简介",
            "doc_id": "uuid-1234",
            "dataset_id": "dataset-5678",
        },
    )
    print(doc.page_content)
    print(doc.metadata["source"])
    doc2 = Document(page_content=TEXT, metadata={"source": "README.md"})
    print(doc == doc2)
    assert capsys.readouterr().out.splitlines() == [TEXT, "README.md", "False"]


def test_the_constructor():
    """「__init__(page_content, metadata)」, 「metadata: dict[str, Any] | None = None」."""
    parameters = inspect.signature(Document).parameters
    assert [*parameters] == ["page_content", "metadata"]
    assert parameters["metadata"].default is None


@pytest.mark.parametrize("text", ["", "x" * 100_001, None, 7])
def test_page_content_is_bounded(text):
    """「`page_content` | str | 是 | 非空，最长 100,000 字符」"""
    with pytest.raises(ConfigError, match="1 to 100,000 characters"):
        Document(text)


@pytest.mark.parametrize("text", ["x", "茶" * 100_000])
def test_the_bounds_of_page_content_belong_to_it(text):
    """「最长 100,000 字符」: one character is enough, and 100,000 are not too many."""
    assert Document(text).page_content == text


def test_metadata_is_empty_by_default():
    """「`metadata` | dict | 否 | 默认 {}」, one of its own for each document."""
    one, other = Document("茶"), Document("茶")
    one.metadata["position"] = 1
    assert (one.metadata, other.metadata) == ({"position": 1}, {})


def test_the_provider():
    """「`provider` | 默认 "dify" | 数据提供方（"dify" 或 "external"）」, read from the metadata."""
    assert Document("茶").provider == "dify"
    assert Document("茶", {"provider": "external"}).provider == "external"
    with pytest.raises(ConfigError, match="Known: dify, external"):
        Document("茶", {"provider": "extern"})


def test_any_further_information_is_metadata():
    """「通过 `metadata` 携带任意扩展信息」, and what is no mapping of names is refused."""
    assert Document("茶", {"tags": ["绿"], "自己的": {"x": 1}}).metadata["自己的"] == {"x": 1}
    for wrong in ([("a", 1)], "a", {1: "a"}):
        with pytest.raises(ConfigError, match=r"[Mm]etadata"):
            Document("茶", wrong)


def test_the_text_of_a_document():
    """「f"Document(content={self.page_content[:50]}..., metadata={self.metadata})"」, for people and
    for debugging.
    """
    doc = Document("茶" * 60, {"page": 1})
    assert str(doc) == repr(doc) == f"Document(content={'茶' * 50}..., metadata={{'page': 1}})"


def test_equality():
    """「self.page_content == other.page_content and self.metadata == other.metadata」; nothing else
    is equal to one.
    """
    assert Document("茶", {"a": 1}) == Document("茶", {"a": 1})
    assert Document("茶", {"a": 1}) != Document("茶", {"a": 2})
    assert Document("茶") != Document("水")
    assert Document("茶") != "茶"


def test_doubles_are_found_by_equality():
    """「实现 `__eq__` 支持去重操作」; as it can be changed, it has no hash, as in the specification's
    class.
    """
    kept = []
    for doc in (Document("茶"), Document("水"), Document("茶")):
        if doc not in kept:
            kept.append(doc)
    assert [doc.page_content for doc in kept] == ["茶", "水"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Document("茶"))


def test_the_metadata_of_a_found_node(docs):
    """「metadata 常见字段」: doc_id, doc_hash, dataset_id, document_id, position, score, source and
    title.
    """
    best = Document.from_nodes(found(docs), "teas")[0]
    [node] = [node for node in docs.get_nodes("FineChunk") if node.path == "a.md"]
    expected = {
        "doc_id": node.uid,
        "doc_hash": hashlib.md5(node.text.encode(), usedforsecurity=False).hexdigest(),
        "dataset_id": "teas",
        "document_id": node.document_id,
        "position": 0,
        "score": 1.0,
        "source": "a.md",
        "title": "绿茶",
    }
    assert expected.items() <= best.metadata.items()


def test_positions_begin_at_0():
    """「`position` | int | 在文档中的位置（0-based）」"""
    docs = lazyrag.Document()
    docs.create_node_group("line", transform=str.splitlines)
    docs.add_texts({"a": "绿茶\n红茶\n白茶"})
    made = Document.from_nodes(docs.get_nodes("line"))
    assert [one.metadata["position"] for one in made] == [0, 1, 2]
    assert all("score" not in one.metadata for one in made)


def test_the_page_of_a_pdf():
    """「`page` | int | PDF 页码」: the page that a node begins on."""
    from tests.interpreter import ROOT

    [path] = (ROOT / "cookbook" / "corpus" / "workshop").glob("machine-maintenance-manual.pdf")
    docs = lazyrag.Document(path)
    nodes = docs.get_nodes("FineChunk")
    pages = [Document.from_node(node).metadata["page"] for node in nodes]
    assert pages == [
        int(node.locations[0].label) for node in nodes if node.locations[0].kind == "page"
    ]
    assert len(set(pages)) > 1


def test_scores_lie_between_0_and_1(docs):
    """「`score` | float | 相关性分数（0-1）」: BM25's are brought there; by itself one outside is an
    error.
    """
    nodes = found(docs)
    assert max(node.score for node in nodes) != 1.0
    scores = [one.metadata["score"] for one in Document.from_nodes(nodes)]
    assert scores[0] == 1.0
    assert 0 < scores[1] < 1
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Document.from_node(DocNode(text="茶", score=7.5))
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Document.from_nodes([DocNode(text="茶", score=7.5)], normalise="none")


@given(
    st.text(min_size=1, max_size=40).filter(lambda text: text.strip()),
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.integers() | st.text(max_size=5) | st.booleans(),
        max_size=4,
    ),
    st.none() | st.floats(0, 1),
)
def test_a_document_and_a_node_are_views_of_each_other(text, metadata, score):
    """`to_node` undoes `from_node`, whatever else stands in the metadata."""
    for name in ("doc_id", "doc_hash", "provider", "score"):
        metadata.pop(name, None)
    made = Document.from_node(DocNode(text=text, metadata=metadata, score=score), "teas")
    again = Document.from_node(made.to_node(), "teas")
    assert again == made
    assert (again.to_node().uid, again.to_node().score) == (made.metadata["doc_id"], score)


def test_equal_texts_have_equal_hashes(docs):
    """「`doc_hash` | str | 内容哈希（MD5）」, 「相同内容的分块具有相同的 `doc_hash`」"""
    assert doc_hash("Green tea") == hashlib.md5(b"Green tea", usedforsecurity=False).hexdigest()
    one, other = (Document.from_node(DocNode(text="茶", metadata={"n": n})) for n in (1, 2))
    assert one.metadata["doc_hash"] == other.metadata["doc_hash"] != doc_hash("茶 ")


def test_what_is_no_id():
    """A doc_id that is none cannot be a node's uid."""
    with pytest.raises(ConfigError, match="doc_id"):
        Document("茶", {"doc_id": 7}).to_node()


def test_the_fields_of_a_segment():
    """「+str id +str dataset_id +str document_id +str content +int position +float score +dict
    metadata」
    """
    names = [field.name for field in dataclasses.fields(DocumentSegment)]
    assert names == ["id", "dataset_id", "document_id", "content", "position", "score", "metadata"]


def test_a_segment_converts_to_a_document(docs):
    """「DocumentSegment "1" --> "1" Document : converts_to」: the same as the node's own view."""
    [node] = [node for node in docs.get_nodes("FineChunk") if node.path == "a.md"]
    hit = lazyrag.Hit.from_node(node.with_score(0.5))
    made = DocumentSegment.from_hit(hit, "teas").to_document()
    known = Document.from_node(node.with_score(0.5), "teas")
    assert made.page_content == known.page_content
    names = (
        "doc_id",
        "doc_hash",
        "dataset_id",
        "document_id",
        "position",
        "score",
        "source",
        "title",
    )
    assert {name: made.metadata[name] for name in names} == {
        name: known.metadata[name] for name in names
    }


def test_a_segment_of_a_store(docs):
    """A stored segment has no score; one outside of [0, 1], and a position below 0, are errors."""
    node = docs.get_nodes("FineChunk")[0]
    segment = DocumentSegment.from_segment(node.segment, "teas")
    assert (segment.id, segment.content, segment.position, segment.score) == (
        node.uid,
        node.text,
        0,
        None,
    )
    assert "score" not in segment.to_document().metadata
    for wrong in ({"score": 1.5}, {"position": -1}):
        with pytest.raises(ConfigError):
            DocumentSegment("1", "teas", "2", "茶", **wrong)
