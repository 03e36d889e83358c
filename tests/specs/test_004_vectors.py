"""Specification 004, sections 6 and 10: BaseVector and its factory. Each docstring quotes its
sentence.
"""

from __future__ import annotations

import cProfile
import inspect
import sys
from types import SimpleNamespace

import pytest

import lazyrag
from lazyrag import DataType, DocField
from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    EmbeddingError,
    IngestionWarning,
    MissingDependencyError,
    NotRegisteredError,
    UnknownKeywordError,
    UnsupportedError,
)
from lazyrag.interop.dify import (
    BaseVector,
    Condition,
    Document,
    DocumentVector,
    Embeddings,
    Field,
    GroupVector,
    MetadataCondition,
    Vector,
    VectorType,
    register_vector_factory,
)
from lazyrag.interop.dify.vectors import vector_factories

WORDS = ("tea", "green", "coffee")


class Counts(Embeddings):
    """How often each of three words is there, and a little for everything."""

    def embed_documents(self, texts):
        """Of texts."""
        return [[float(text.split().count(word)) for word in WORDS] + [0.1] for text in texts]

    def embed_query(self, text):
        """Of a question."""
        return self.embed_documents([text])[0]


def documents():
    """Three documents of two authors."""
    texts = {"1": "green tea", "2": "tea and tea", "3": "coffee"}
    return [
        Document(
            text,
            {
                "doc_id": doc_id,
                "author": "Luo" if doc_id < "3" else "Wu",
                "position": int(doc_id) - 1,
            },
        )
        for doc_id, text in texts.items()
    ]


@pytest.fixture
def vector():
    """A data set with these."""
    with Vector("teas", ["author"], Counts()) as made:
        made.create(documents())
        yield made


def ids(found):
    """The doc_ids of a result."""
    return [document.metadata["doc_id"] for document in found]


def test_the_interface():
    """「+Dataset dataset +list attributes +Embeddings embeddings」, and the five methods of the
    class.
    """
    assert [*inspect.signature(BaseVector).parameters] == ["dataset", "attributes", "embeddings"]
    assert BaseVector.__abstractmethods__ == {
        "create",
        "search_by_vector",
        "delete",
        "delete_by_ids",
    }
    assert list(inspect.signature(BaseVector.search_by_vector).parameters) == [
        *("self", "query", "top_k", "score_threshold", "kwargs"),
    ]
    dataset = SimpleNamespace(id="teas")
    made = DocumentVector(dataset, ["author"], Counts())
    assert (made.dataset, made.attributes, type(made.embeddings)) == (dataset, ["author"], Counts)


def test_create_inserts_many(vector):
    """「`create()` | `documents: list[Document]` | 批量插入向量」: all are found, with the metadata they
    came with.
    """
    found = vector.search_by_vector("tea", 10)
    assert sorted(ids(found)) == ["1", "2", "3"]
    by_id = {document.metadata["doc_id"]: document for document in found}
    for document in documents():
        again = by_id[document.metadata["doc_id"]]
        assert again.page_content == document.page_content
        assert {**again.metadata, "score": None} == {**document.metadata, "score": None}


def test_search_by_vector(vector):
    """「向量相似度检索」: best first, by the cosine; the query is a text."""
    found = vector.search_by_vector("tea", 2)
    assert ids(found) == ["2", "1"]
    scores = [document.metadata["score"] for document in found]
    assert scores == sorted(scores, reverse=True)
    query, text = [1, 0, 0, 0.1], [2, 0, 0, 0.1]
    product = sum(a * b for a, b in zip(query, text, strict=True))
    lengths = (sum(a * a for a in query) * sum(b * b for b in text)) ** 0.5
    assert scores[0] == pytest.approx(product / lengths)


def test_score_threshold(vector):
    """「score_threshold: 分数阈值」: what is worse is not given, what equals it is."""
    scores = [document.metadata["score"] for document in vector.search_by_vector("tea", 3)]
    assert ids(vector.search_by_vector("tea", 3, score_threshold=scores[1])) == ["2", "1"]
    assert ids(vector.search_by_vector("tea", 3, score_threshold=0.0)) == ["2", "1", "3"]
    for wrong in (1.5, -0.5, "0.5", True):
        with pytest.raises(ConfigError, match="score_threshold"):
            vector.search_by_vector("tea", 3, score_threshold=wrong)


def test_search_by_full_text(vector):
    """「`search_by_full_text()` | `query: str, top_k: int` | 全文检索」: those that share a word, and
    only they.
    """
    found = vector.search_by_full_text("green tea", 3)
    assert ids(found) == ["1", "2"]
    assert found[0].metadata["score"] == 1.0
    assert 0 < found[1].metadata["score"] < 1
    assert vector.search_by_full_text("cocoa", 3) == []


def test_full_text_alone_needs_no_embeddings():
    """「search_by_full_text」 on a data set without embeddings; vectors of it are an error."""
    with Vector("teas") as made:
        made.create(documents())
        assert ids(made.search_by_full_text("coffee", 3)) == ["3"]
        with pytest.raises(ConfigError, match="embed"):
            made.search_by_vector("coffee", 3)


def test_delete(vector):
    """「`delete()` | 无 | 删除所有向量」; the data set can be filled again."""
    vector.delete()
    assert vector.search_by_vector("tea", 3) == vector.search_by_full_text("tea", 3) == []
    vector.delete()
    vector.create(documents()[:1])
    assert ids(vector.search_by_vector("tea", 3)) == ["1"]


def test_delete_by_ids(vector):
    """「`delete_by_ids()` | `ids: list[str]` | 按 ID 删除向量」; no ids delete nothing, unknown ones are
    no error.
    """
    vector.delete_by_ids([])
    assert len(vector.search_by_vector("tea", 3)) == 3
    vector.delete_by_ids(["2", "2", "nobody"])
    assert ids(vector.search_by_vector("tea", 3)) == ["1", "3"]
    for wrong in ("1", None, 1, [1], [["1"]]):
        with pytest.raises(ConfigError, match="list of doc_ids"):
            vector.delete_by_ids(wrong)
    assert ids(vector.search_by_vector("tea", 3)) == ["1", "3"]


def test_one_document_costs_the_same_in_a_large_data_set():
    """「`create()` 批量插入向量」「`delete_by_ids()` 按 ID 删除向量」: work depends on the change, not on the
    rest.
    """
    calls = {}
    for size in (20, 400):
        with Vector("teas", ["author"], Counts()) as made:
            made.create([Document(f"green tea {one}", {"doc_id": str(one)}) for one in range(size)])
            made.search_by_vector("tea")
            for _ in range(2):  # the second time, with every cache warm
                profile = cProfile.Profile()
                profile.runcall(made.create, [Document("coffee", {"doc_id": "new"})])
                profile.runcall(made.delete_by_ids, ["new"])
            calls[size] = sum(entry.callcount for entry in profile.getstats())
    assert calls[400] < 1.3 * calls[20]


def test_children_are_checked(vector):
    """「每个 `Document` 的 `metadata.doc_id` 全局唯一」: children need a text and an id, too, and have
    none.
    """
    parent, child = Document("tea", {"doc_id": "7"}), Document("green", {"doc_id": "8"})
    child.children = [Document("matcha", {"doc_id": "9"})]
    for wrong, message in (
        (Document("tea"), "doc_id of child 0 of '7' must be a unique text"),
        (Document(" ", {"doc_id": "8"}), "child 0 of '7' must not be blank"),
        ("tea", "children of '7' must be a list"),
        (child, "child 0 of '7' must have no children"),
    ):
        parent.children = [wrong]
        with pytest.raises(ConfigError, match=message):
            vector.create([parent])
    with pytest.raises(ConfigError, match="reserved name 'children'"):
        Vector("teas", ["children"])


def test_a_known_id_is_replaced(vector):
    """「每个 `Document` 的 `metadata.doc_id` 全局唯一」: a document of a known id takes the old one's
    place.
    """
    vector.create([Document("coffee", {"doc_id": "1", "author": "Wu"})])
    assert sorted(ids(vector.search_by_full_text("coffee", 5))) == ["1", "3"]
    vector.create([Document("coffee", {"doc_id": "1", "author": "Li"})])
    [found] = vector.search_by_full_text("coffee", 5, filters={"author": "Li"})
    assert found.metadata["doc_id"] == "1"
    assert len(vector.search_by_vector("tea", 10)) == 3


@pytest.mark.parametrize(
    "metadata", [[{}], [{"doc_id": ""}], [{"doc_id": 7}], [{"doc_id": "1"}, {"doc_id": "1"}]]
)
def test_ids_are_needed_and_unique(metadata):
    """「`metadata.doc_id` 全局唯一」: none, or the same twice, is an error, and nothing is inserted."""
    with Vector("teas") as made:
        for one in (made, made.store):
            with pytest.raises(ConfigError, match="unique text"):
                one.create([Document("tea", dict(told)) for told in metadata])
        assert made.search_by_full_text("tea") == []
        made.create([])


def test_vectors_of_a_data_set_have_one_dimension():
    """「同一数据集的所有向量维度必须相同」: another length is an error; the others stay, and are found."""

    def embed(text):
        return [1.0] * (3 if "long" in text else 2)

    with Vector("teas", embeddings=embed) as made:
        made.create([Document("tea", {"doc_id": "1"})])
        with pytest.warns(IngestionWarning), pytest.raises(EmbeddingError):
            made.create(
                [Document("long tea", {"doc_id": "2"}), Document("more tea", {"doc_id": "3"})]
            )
        with pytest.warns(IngestionWarning), pytest.raises(EmbeddingError):
            made.create([Document("long tea", {"doc_id": "1"})])
        assert sorted(ids(made.search_by_vector("tea", 9))) == ["1", "3"]
        assert sorted(ids(made.search_by_full_text("tea", 9))) == ["1", "3"]


def test_what_cannot_be_kept_does_no_harm():
    """Metadata that cannot be kept are an error that names document and key; the data set goes on
    as if never asked.
    """
    for name, value in (("year", 2020), ("author", object())):
        told = {name: value}
        with Vector("teas", ["year"], Counts()) as made:
            for one in (made, made.store):
                with pytest.raises(ConfigError, match=f"'bad'.*'{name}'"):
                    one.create(
                        [
                            Document("coffee", {"doc_id": "good"}),
                            Document("tea", {"doc_id": "bad", **told}),
                        ]
                    )
                assert made.search_by_vector("tea") == made.search_by_full_text("tea coffee") == []
                made.create(
                    [
                        Document("green tea", {"doc_id": "2"}),
                        Document("tea", {"doc_id": "bad", "year": "2020"}),
                    ]
                )
                assert ids(made.search_by_vector("tea", filters={"year": "2020"})) == ["bad"]
                made.delete()
    with pytest.raises(ConfigError, match="Choose another name"):
        Vector("teas", ["metadata"])


def test_a_first_text_without_a_vector_does_no_harm():
    """A model that is down at first leaves nothing behind: search, delete and a second try work."""
    down = []

    def embed(text):
        if down:
            raise OSError
        return [1.0, 0.0]

    with Vector("teas", embeddings=embed) as made:
        down.append(True)
        with pytest.warns(IngestionWarning), pytest.raises(EmbeddingError):
            made.create([Document("tea", {"doc_id": "1"})])
        down.clear()
        assert made.search_by_vector("tea") == made.search_by_full_text("tea") == []
        made.delete()
        made.create([Document("tea", {"doc_id": "1"})])
        assert ids(made.search_by_vector("tea")) == ["1"]


@pytest.mark.parametrize("top_k", [0, 101, 2.5, "4", True])
def test_top_k_is_bounded(vector, top_k):
    """「1 <= top_k <= 100」, for every search and on every way to it."""
    for one in (vector, vector.store):
        for search in (one.search_by_vector, one.search_by_full_text):
            with pytest.raises(ConfigError, match="from 1 to 100"):
                search("tea", top_k)


@pytest.mark.parametrize("top_k", [1, 100])
def test_the_bounds_of_top_k_belong_to_it(vector, top_k):
    """「1 <= top_k <= 100」"""
    assert len(vector.search_by_vector("tea", top_k)) == min(top_k, 3)


def test_attributes_are_what_filters_read(vector):
    """「+list attributes」: a filter on one of them holds in both searches; on another it is an
    error.
    """
    filters = MetadataCondition("and", [Condition("author", "is", "Wu")])
    assert ids(vector.search_by_vector("tea", 3, filters=filters)) == ["3"]
    assert ids(vector.search_by_full_text("tea coffee", 3, filters={"author": ["Wu"]})) == ["3"]
    with pytest.raises(ConfigError, match="position"):
        vector.search_by_vector("tea", 3, filters={"position": [1]})
    with pytest.raises(UnknownKeywordError, match="filters"):
        vector.search_by_vector("tea", 3, filter={"author": ["Wu"]})


def test_filters_may_be_json(vector):
    """A `MetadataCondition` as JSON filters as it does itself; a field of such a name is read as a
    field.
    """
    told = {
        "logical_operator": "and",
        "conditions": [{"name": "author", "comparison_operator": "is", "value": "Wu"}],
    }
    assert ids(vector.search_by_vector("tea", 3, filters=told)) == ["3"]
    assert ids(
        vector.search_by_full_text("coffee tea", 3, filters={"conditions": told["conditions"]})
    ) == ["3"]
    assert len(vector.search_by_vector("tea", 3, filters={"logical_operator": "or"})) == 3
    with pytest.raises(UnknownKeywordError, match="author"):
        vector.search_by_vector("tea", 3, filters={**told, "author": "Wu"})
    docs = lazyrag.Document(name="teas")
    docs.add_texts({"a": "green tea", "b": "black tea"})
    told["conditions"] = [{"name": "file_name", "comparison_operator": "is", "value": "b"}]
    [found] = GroupVector(docs, "FineChunk").search_by_full_text("tea", 3, filters=told)
    assert found.metadata["source"] == "b"
    with Vector("teas", ["conditions"]) as made:
        made.create([Document("tea", {"doc_id": one, "conditions": one}) for one in ("dry", "wet")])
        assert ids(made.search_by_full_text("tea", 3, filters={"conditions": ["wet"]})) == ["wet"]


def test_attributes_may_have_types():
    """Numbers and dates are declared as a Document's fields are, and ordered conditions hold."""
    with Vector("teas", {"position": DocField(DataType.INT64)}, Counts()) as made:
        made.create(documents())
        later = MetadataCondition("and", [Condition("position", "≥", 1)])
        assert sorted(ids(made.search_by_vector("tea", 3, filters=later))) == ["2", "3"]
    with pytest.raises(ConfigError, match="attributes"):
        Vector("teas", "author")


@pytest.mark.parametrize("dataset", [None, "", 7, SimpleNamespace(id=7)])
def test_a_data_set_has_an_id(dataset):
    """「+Dataset dataset」: its id, or an object that has one."""
    with pytest.raises(ConfigError, match="data set's id"):
        Vector(dataset)


def test_cosines_below_0_count_as_nothing():
    """「0 表示完全不相关，1 表示完全相关」: what points away from the query has the score 0."""
    with Vector("teas", embeddings=lambda text: [1.0 if "tea" in text else -1.0]) as made:
        made.create(documents())
        scores = {
            one.metadata["doc_id"]: one.metadata["score"] for one in made.search_by_vector("tea", 3)
        }
    assert scores == {"1": 1.0, "2": 1.0, "3": 0.0}


def test_a_data_set_in_a_file(tmp_path):
    """「向量存储类」: kept in a file, it is there for the next program, and nothing is embedded again."""
    calls = []

    def embed(text):
        calls.append(text)
        return [float(text.split().count(word)) for word in WORDS] + [0.1]

    embed.identity = "toy:counts"
    embed.probe = False
    uri = str(tmp_path / "teas.db")
    with Vector("teas", ["author"], embed, vector_type="map", uri=uri) as made:
        made.create(documents())
    calls.clear()
    with Vector("teas", ["author"], embed, uri=uri) as again:
        assert ids(again.search_by_vector("tea", 2)) == ["2", "1"]
    assert calls == ["tea"]


def test_types_of_vector_stores():
    """「向量存储类：`BaseVector`、`VectorType`、`Field`」: every type has a factory; fields name payloads."""
    assert {one.value for one in VectorType} == set(vector_factories)
    for kind in VectorType:
        assert Vector.get_vector_factory(kind) is Vector.get_vector_factory(kind.value)
    document = documents()[0]
    payload = {
        Field.CONTENT_KEY.value: document.page_content,
        Field.METADATA_KEY.value: document.metadata,
    }
    assert Document(**payload) == document


@pytest.mark.parametrize(("kind", "package"), [("chroma", "chromadb"), ("milvus", "pymilvus")])
def test_stores_of_others(monkeypatch, tmp_path, kind, package):
    """「MilvusVector」: the arguments are those of the store; a package that is missing is named with
    its extra.
    """
    monkeypatch.setitem(sys.modules, package, None)
    where = {"dir" if kind == "chroma" else "uri": str(tmp_path / "vectors.db")}
    with pytest.raises(MissingDependencyError, match=rf"\.\[{kind}\]"):
        Vector("teas", [], Counts(), vector_type=kind, **where)


class ListVector(BaseVector):
    """A store of one's own: a list, everything equally close."""

    def __init__(self, dataset, attributes, embeddings, score=0.5):
        super().__init__(dataset, attributes, embeddings)
        self.held = []
        self.score = score

    def create(self, documents):
        """Keep them."""
        self.held += documents

    def search_by_vector(self, query, top_k, score_threshold=None, **kwargs):
        """All of them."""
        return [
            Document(one.page_content, {**one.metadata, "score": self.score}) for one in self.held
        ]

    def delete(self):
        """Forget them."""
        self.held.clear()

    def delete_by_ids(self, ids):
        """Forget some."""
        self.held = [one for one in self.held if one.metadata["doc_id"] not in ids]


def test_a_store_of_ones_own():
    """「自定义向量数据库：实现 `BaseVector` 接口，注册到 `Vector.get_vector_factory()`」; what it gives is bounded."""
    with vector_factories.isolated():
        assert register_vector_factory("list", ListVector) is ListVector
        assert Vector.get_vector_factory("list") is ListVector
        made = Vector("teas", [], None, vector_type="list")
        made.create(documents())
        assert ids(made.search_by_vector("tea", 2)) == ["1", "2"]
        assert made.search_by_vector("tea", 2, score_threshold=0.6) == []
        made.delete_by_ids(["1"])
        assert ids(made.search_by_vector("tea", 2)) == ["2", "3"]
        made.delete()
        made.close()
        assert made.search_by_vector("tea", 2) == []
        with pytest.raises(AlreadyRegisteredError):
            register_vector_factory("list", Counts)
    with pytest.raises(NotRegisteredError, match="register_vector_factory"):
        Vector.get_vector_factory("list")
    with pytest.raises(NotRegisteredError, match="Known: chroma, map, milvus"):
        Vector("teas", vector_type="weaviate")


def test_what_a_custom_store_must_keep_to():
    """「分数范围 … [0, 1]」: a store's score outside of it is an error that names the store; so is what
    is no store.
    """
    with vector_factories.isolated():
        register_vector_factory("list", ListVector)
        made = Vector("teas", vector_type="list", score=7.0)
        made.create(documents())
        with pytest.raises(ConfigError, match="ListVector"):
            made.search_by_vector("tea", 2)
        register_vector_factory("none", lambda *_: "no store")
        with pytest.raises(ConfigError, match="a BaseVector"):
            Vector("teas", vector_type="none")
    with pytest.raises(ConfigError, match="subclass of BaseVector"):
        register_vector_factory("seven", 7)
    with pytest.raises(TypeError, match="abstract"):
        BaseVector("teas", [], None)


def test_the_versions_of_vector_data():
    """「V1：不支持全文检索 V2：支持全文检索（当前版本）」: a store without full text says so."""
    with pytest.raises(UnsupportedError, match="ListVector does not search full text"):
        ListVector("teas", [], None).search_by_full_text("tea", 3)


def test_a_group_of_a_document_that_is_there():
    """「BaseVector」 over a node group: its nodes are found as documents; the Document's own methods
    fill it.
    """
    docs = lazyrag.Document(embed=Counts().embed_query, name="teas")
    docs.add_texts({"a": "green tea", "b": "coffee"})
    made = GroupVector(docs, "FineChunk")
    for found in (made.search_by_vector("green tea", 1), made.search_by_full_text("green tea", 1)):
        [best] = found
        assert best.metadata["source"] == "a"
        assert best.metadata["dataset_id"] == "teas"
        assert best.metadata["score"] == pytest.approx(1.0)
    for change in (lambda: made.create([]), made.delete, lambda: made.delete_by_ids(["a"])):
        with pytest.raises(UnsupportedError, match=r"Call docs\."):
            change()


def test_what_is_no_document(vector):
    """A text, or a lazyrag.Document, in a document's place is an error that names the class."""
    for wrong in ("tea", ["tea"], [lazyrag.Document()]):
        with pytest.raises(ConfigError, match=r"lazyrag\.interop\.dify\.Document"):
            vector.create(wrong)
