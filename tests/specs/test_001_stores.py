"""Spec 001, storing and indexing: every test quotes the sentence it checks and says what is
expected.

What becomes of a configuration of Chroma, Milvus or OpenSearch is tested here, without servers and
without their packages: which store it is, and which arguments reach it. What the stores then do,
``tests/live`` tests on real ones.
"""

from __future__ import annotations

import pytest

from lazyrag import DataType, DocField, DocNode, Document, IngestionWarning, Retriever
from lazyrag.errors import ConfigError, IngestionError
from lazyrag.stores.config import StoreChoice, StoreConf
from lazyrag.stores.memory import MapSegmentStore
from lazyrag.stores.milvus_index import IndexSettings
from lazyrag.stores.opensearch_encoding import Shape, read_shape
from lazyrag.stores.protocol import StoreLocation, VectorSchema, segment_stores
from lazyrag.types import SPARSE

TEXTS = {"a.txt": "绿茶低温存放", "b.txt": "红茶要发酵", "c.txt": "cold brew takes a night"}


def letters(text):
    """A model small enough for tests: how often characters of 16 kinds occur in a text."""
    vector = [0.0] * 16
    for character in text:
        vector[ord(character) % 16] += 1.0
    return vector


def answers(docs):
    """What a Document answers by terms and by embedding, scores included."""
    return [
        [
            (node.path, node.score)
            for node in Retriever(docs, "lazyllm_root", similarity=similarity)("红茶")
        ]
        for similarity in ("bm25_chinese", "cosine")
    ]


def vector_store(kind, **kwargs):
    """A configuration of which only the vector store is not the default."""
    return {"vector_store": {"type": kind, "kwargs": kwargs}}


def segment_store(kind, **kwargs):
    """A configuration of which only the segment store is not the default."""
    return {"segment_store": {"type": kind, "kwargs": kwargs}}


def chosen(store_conf, part):
    """The store that a configuration chooses; where it lies on a server, the ledger has a file."""
    return getattr(StoreConf.parse({**store_conf, "ledger": "ledger.db"}), part)


def test_store_conf_chooses_the_stores(folder):
    """「`store_conf`：配置使用哪种存储引擎保存文档解析结果」

    The store that needs nothing else, map, chosen by name gives the answers that are given without
    a choice.
    """
    path = folder(TEXTS)
    by_name = Document(
        path, embed=letters, store_conf={"segment_store": {"type": "map"}, "vector_store": {}}
    )
    expected = answers(Document(path, embed=letters))
    assert [len(ranking) for ranking in expected] == [2, 3]
    assert answers(by_name) == expected


def test_users_choose_stores_by_store_conf(folder):
    """「用户可以通过配置`store_conf`参数，选择不同配置的存储引擎」

    Another engine is chosen by its name; a name that is none is a mistake, answered with the
    nearest known name.
    """
    with pytest.raises(ConfigError, match=r"'chromdb'\. Known: .*Did you mean 'chromadb'\?"):
        Document(folder(TEXTS), store_conf=vector_store("chromdb", dir="vectors"))


def test_store_conf_is_a_dict(folder):
    """「配置项参数 `store_conf` 是一个字典」

    The name of a type is a configuration mistake that names the two keys. Beyond the specification,
    a path or a URL is a short form.
    """
    with pytest.raises(ConfigError, match="must be a mapping with the keys segment_store"):
        Document(folder(TEXTS), store_conf="map")


def test_the_empty_sample_means_the_defaults(folder):
    """「支持同时配置切片存储（segment）与向量存储（vector）两个配置，即：」

    The sample, both parts empty, gives the answers that are given without a configuration.
    """
    store_conf = {"segment_store": {}, "vector_store": {}}
    path = folder(TEXTS)
    assert answers(Document(path, embed=letters, store_conf=store_conf)) == answers(
        Document(path, embed=letters)
    )


def test_there_are_two_parts_to_configure(folder):
    """「支持同时配置切片存储（segment）与向量存储（vector）两个配置，即：」

    Another key than these two is a configuration mistake, answered with the nearest known key.
    """
    with pytest.raises(ConfigError, match=r"'segments_store'\. .*Did you mean 'segment_store'\?"):
        Document(folder(TEXTS), store_conf={"segments_store": {"type": "map"}})


def test_each_part_has_type_and_kwargs(folder):
    """「内部每个字典包含字段如下：」

    A part that is no mapping, or has another field than type and kwargs, is a configuration
    mistake.
    """
    path = folder(TEXTS)
    with pytest.raises(ConfigError, match="must be a mapping with any of the keys type, kwargs"):
        Document(path, store_conf={"segment_store": "map"})
    with pytest.raises(
        ConfigError, match=r"'kwarg'\. Known: kwargs, type\. Did you mean 'kwargs'\?"
    ):
        Document(path, store_conf={"segment_store": {"type": "map", "kwarg": {}}})


@pytest.mark.parametrize(
    "store_conf",
    [
        segment_store("chromadb", dir="d"),
        segment_store("milvus", uri="d"),
    ],
    ids=["chromadb", "milvus"],
)
def test_each_part_has_its_own_types(folder, store_conf):
    """「`type`：存储后端类型。切片与向量存储目前支持的类型如下」

    A vector store's type for the segment store is a configuration mistake. OpenSearch stores
    vectors, too, beyond the specification.
    """
    with pytest.raises(ConfigError, match=r"\['type'\] is unknown: '\w+'\. Known: "):
        Document(folder(TEXTS), store_conf=store_conf)


@pytest.mark.parametrize(
    ("store_conf", "nearest"),
    [
        pytest.param(segment_store("map", url="d"), "uri", id="map"),
        pytest.param(segment_store("opensearch", uri="d"), "uris", id="opensearch"),
        pytest.param(vector_store("chromadb", index_kwarg={}), "index_kwargs", id="chromadb"),
        pytest.param(vector_store("milvus", dbname="d"), "db_name", id="milvus"),
    ],
)
def test_each_type_has_its_own_kwargs(folder, store_conf, nearest):
    """「`kwargs`：存储引擎所需客户端配置针对不同的存储引擎，`kwargs` 包含不同的参数，具体如下」

    A keyword argument that a type does not have is a configuration mistake, answered with the
    nearest it has.
    """
    with pytest.raises(ConfigError, match=f"Did you mean '{nearest}'"):
        Document(folder(TEXTS), store_conf=store_conf)


def test_map_keeps_segments_in_memory(folder):
    """「`map`：内存 key/value 存储」

    What is kept is in memory: it is answered from when the files are gone, and is of this Document
    alone.
    """
    path = folder(TEXTS)
    docs = Document(path, store_conf=segment_store("map"))
    other = Document(path, store_conf=segment_store("map"))
    docs.activate_group("lazyllm_root")
    for name in TEXTS:
        (path / name).unlink()
    assert {node.path: node.text for node in docs.get_nodes()} == TEXTS
    assert other.get_nodes() == []


def test_map_on_disk(folder, tmp_path):
    """「可配置本地路径，以使用基于`sqlite3`的本地切片存储」

    A path makes a SQLite file there; another Document on it answers alike, though the files are
    gone.
    """
    uri = tmp_path / "segments.db"
    path = folder(TEXTS)
    with Document(path, embed=letters, store_conf=segment_store("map", uri=str(uri))) as docs:
        first = answers(docs)
    assert uri.read_bytes().startswith(b"SQLite format 3")
    with Document(
        embed=letters, store_conf=segment_store("map", uri=str(uri)), read_only=True
    ) as docs:
        assert answers(docs) == first


def test_the_uri_of_map_is_optional(folder):
    """「`uri`（可选）：本地切片存储路径，基于`sqlite3`的本地切片存储」

    Without it, kwargs left out or empty, map is there and answers.
    """
    path = folder(TEXTS)
    left_out = Document(path, embed=letters, store_conf={"segment_store": {"type": "map"}})
    empty = Document(
        path, embed=letters, store_conf={"segment_store": {"type": "map", "kwargs": {}}}
    )
    assert answers(left_out) == answers(empty)
    assert [ranking[0][0] for ranking in answers(empty)] == ["b.txt", "b.txt"]


@pytest.mark.parametrize(
    "uris", ["localhost:9200", ["one:9200", "two:9200"]], ids=["one", "several"]
)
def test_opensearch_is_a_segment_store(uris):
    """「`opensearch`：使用 OpenSearch 引擎存储数据」

    A complete configuration, of one address or several, chooses it, with all of its arguments.
    """
    kwargs = {
        "uris": uris,
        "client_kwargs": {"http_auth": ("user", "password")},
        "index_kwargs": {"mappings": {}},
    }
    assert chosen(segment_store("opensearch", **kwargs), "segment") == StoreChoice(
        "opensearch", kwargs
    )


def test_opensearch_needs_uris(folder):
    """「`uris`（必填）：OpenSearch 存储地址（分布式支持传入多个地址），如 `ip:port` 格式的 url」

    Without an address the configuration is wrong, and the error names what is missing.
    """
    with pytest.raises(ConfigError, match="lacks 'uris'"):
        Document(folder(TEXTS), store_conf=segment_store("opensearch", client_kwargs={}))


def test_opensearch_needs_client_kwargs(folder):
    """「`client_kwargs`（必填）：OpenSearch 客户端配置，用于配置 OpenSearch 的连接参数」

    Without the client's configuration the configuration is wrong, and the error names what is
    missing.
    """
    with pytest.raises(ConfigError, match="lacks 'client_kwargs'"):
        Document(folder(TEXTS), store_conf=segment_store("opensearch", uris="localhost:9200"))


def test_the_index_kwargs_of_opensearch_are_optional():
    """「`index_kwargs`（可选）：OpenSearch 索引配置，用于配置 OpenSearch 的索引参数，规定了索引类型、切片保存字段等」

    Without them the configuration is right; with settings and mappings it is, too. The mappings are
    merged with the store's: a property of the store's own is a configuration mistake that says how
    to declare fields.
    """
    needed = {"uris": "localhost:9200", "client_kwargs": {}}
    mappings = {
        "properties": {"year": {"type": "integer"}},
        "_meta": {"owner": "tea"},
        "date_detection": False,
    }
    for more in ({}, {"settings": {"number_of_replicas": 0}}, {"mappings": mappings}):
        kwargs = {**needed, "index_kwargs": more}
        assert chosen(segment_store("opensearch", **kwargs), "segment") == StoreChoice(
            "opensearch", kwargs
        )
    merged = Shape({}, ()).body({}, mappings)["mappings"]
    assert merged["properties"].items() > mappings["properties"].items()
    assert merged["_meta"].items() > mappings["_meta"].items()
    assert merged["date_detection"] is False
    assert read_shape(merged) == Shape({}, ())
    mappings = {"properties": {"segment": {"type": "text"}}}
    with pytest.raises(
        ConfigError, match=r"Declare fields for filters with Document\(doc_fields=\.\.\.\)"
    ):
        chosen(
            segment_store("opensearch", **needed, index_kwargs={"mappings": mappings}), "segment"
        )


@pytest.mark.parametrize(
    "store_conf",
    [
        segment_store("opensearch", uris="localhost:9200", client_kwargs={}),
        vector_store("chromadb", uri="localhost:8000"),
        vector_store("milvus", uri="localhost:19530"),
    ],
    ids=["opensearch", "chromadb", "milvus"],
)
def test_a_server_is_configured_as_on_the_page(folder, store_conf):
    """「`store_conf`：配置使用哪种存储引擎保存文档解析结果」

    A server needs no more than the page says where the dataset is a folder: the ledger is in it,
    and the name is made of its path. Without a folder the error says what to give.
    """
    path = folder(TEXTS)
    conf = StoreConf.parse(store_conf, path)
    assert conf.ledger_file == path / ".lazyrag" / "ledger.db"
    name = conf.check_use(None, path, embeds=False)
    assert name.startswith(path.name[:4])
    assert (
        name
        == conf.check_use(None, path, embeds=False)
        != conf.check_use(None, path.parent, embeds=False)
    )
    with pytest.raises(
        ConfigError, match=r"Give store_conf\['ledger'\], the path of a file on this machine"
    ):
        Document(name="tea", store_conf=store_conf)
    with pytest.raises(ConfigError, match=r"Give Document\(name=\.\.\.\)"):
        Document(store_conf={**store_conf, "ledger": "ledger.db"})


def test_a_name_that_another_ledger_uses_is_reported(folder, monkeypatch):
    """「`opensearch`：使用 OpenSearch 引擎存储数据」

    A name made of the path of the dataset, which another machine may have as well, is reported at
    the first use.
    """

    class Cluster(MapSegmentStore):
        location = StoreLocation("http://localhost:9200", is_server=True)
        held = ("lr_data_x_1",)

        def __init__(self, uris, client_kwargs):
            super().__init__()

        def collections(self, prefix):
            return [name for name in self.held if name.startswith(prefix[:7])]

    path = folder(TEXTS)
    with segment_stores.isolated():
        segment_stores.register("opensearch", Cluster, replace=True)
        conf = segment_store("opensearch", uris="localhost:9200", client_kwargs={})
        with pytest.warns(
            IngestionWarning, match=r"Another ledger has collections .*Document\(name="
        ):
            docs = Document(path, store_conf=conf)
        assert len(docs.get_nodes()) == len(TEXTS)
        assert (path / ".lazyrag" / "ledger.db").is_file()
        docs.close()
        Document(path, store_conf=conf).close()  # its own collections by now
        monkeypatch.setattr(Cluster, "held", ())
        Document(
            path, name="tea", store_conf={**conf, "ledger": str(path.parent / "other.db")}
        ).close()


@pytest.mark.parametrize("kind", ["chromadb", "chroma"])
def test_chromadb_is_a_vector_store(kind, tmp_path):
    """「`chromadb`：使用 ChromaDB 存储数据」

    Its name or its short name chooses it; to read a configuration makes no folder.
    """
    kwargs = {"dir": str(tmp_path / "vectors"), "client_kwargs": {}}
    assert chosen(vector_store(kind, **kwargs), "vector") == StoreChoice("chromadb", kwargs)
    assert list(tmp_path.iterdir()) == []


def test_chromadb_takes_an_address():
    """「`uri`（可选）：ChromaDB 远端存储地址，如 `ip:port` 格式的 url」

    An address chooses the server there.
    """
    found = chosen(vector_store("chromadb", uri="localhost:8000"), "vector")
    assert found == StoreChoice("chromadb", {"uri": "localhost:8000"})


def test_chromadb_takes_one_of_address_and_folder(folder):
    """「`dir`（可选）：本地存储数据的目录，与 `uri` 二选一」

    Both of the two are a configuration mistake. With neither, as both are optional, Chroma runs in
    memory.
    """
    with pytest.raises(ConfigError, match="or none of them for memory"):
        Document(
            folder(TEXTS), store_conf=vector_store("chromadb", uri="localhost:8000", dir="vectors")
        )
    conf = StoreConf.parse(vector_store("chromadb"))
    assert (conf.vector, conf.segment, conf.ledger_file) == (
        StoreChoice("chromadb", {}),
        StoreChoice(),
        None,
    )


@pytest.mark.parametrize(
    "kwargs", [{}, {"index_kwargs": {"hnsw": {"space": "cosine"}}}], ids=["without", "with"]
)
def test_the_index_kwargs_of_chromadb_are_optional(kwargs):
    """「`index_kwargs`（可选）：ChromaDB 索引配置，用于配置 ChromaDB 的索引参数，规定了向量索引类型，相似度计算方式等」

    With and without them the configuration is right; a setting that there is not is a mistake that
    names the nearest.
    """
    kwargs = {"dir": "vectors", **kwargs}
    assert chosen(vector_store("chromadb", **kwargs), "vector") == StoreChoice("chromadb", kwargs)
    with pytest.raises(ConfigError, match="Did you mean 'space'"):
        chosen(
            vector_store("chromadb", dir="vectors", index_kwargs={"hnsw": {"spaces": "cosine"}}),
            "vector",
        )


@pytest.mark.parametrize("kwargs", [{}, {"client_kwargs": {"ssl": False}}], ids=["without", "with"])
def test_the_client_kwargs_of_chromadb_are_optional(kwargs):
    """「`client_kwargs`（可选）：ChromaDB 客户端配置，用于配置 ChromaDB 的连接参数」

    With and without them the configuration is right; one that the client does not take is a
    configuration mistake.
    """
    kwargs = {"uri": "localhost:8000", **kwargs}
    assert chosen(vector_store("chromadb", **kwargs), "vector") == StoreChoice("chromadb", kwargs)
    with pytest.raises(ConfigError, match="Did you mean 'tenant'"):
        chosen(
            vector_store("chromadb", uri="localhost:8000", client_kwargs={"tennant": "tea"}),
            "vector",
        )


def test_milvus_is_a_vector_store(tmp_path):
    """「`milvus`：使用 Milvus 存储数据」

    Its name chooses it; to read a configuration makes no file.
    """
    kwargs = {"uri": str(tmp_path / "vectors.db")}
    assert chosen(vector_store("milvus", **kwargs), "vector") == StoreChoice("milvus", kwargs)
    assert list(tmp_path.iterdir()) == []


def test_milvus_needs_a_uri(folder):
    """「`uri`（必填）：Milvus 存储地址」

    Without it the configuration is wrong, and the error names what is missing.
    """
    with pytest.raises(ConfigError, match="lacks 'uri'"):
        Document(folder(TEXTS), store_conf=vector_store("milvus", db_name="tea"))


@pytest.mark.parametrize("uri", ["vectors.db", "localhost:19530"], ids=["file", "address"])
def test_the_uri_of_milvus_is_a_file_or_an_address(uri):
    """「可以是一个db文件路径或者如 `ip:port` 格式的 url」

    A file, whose name ends in .db, and an address are right; what is neither is a configuration
    mistake.
    """
    assert chosen(vector_store("milvus", uri=uri), "vector") == StoreChoice("milvus", {"uri": uri})
    with pytest.raises(
        ConfigError, match=r"'localhost:19530', or the path of a file that ends in '\.db'"
    ):
        chosen(vector_store("milvus", uri="vectors"), "vector")


def test_the_db_name_of_milvus_is_optional():
    """「`db_name`（可选）：Milvus 数据库层级隔离的名称，默认为 `lazyllm`」

    Given, it reaches the store; one that no database of Milvus can have is a configuration mistake.
    """
    kwargs = {"uri": "localhost:19530", "db_name": "lazyllm"}
    assert chosen(vector_store("milvus", **kwargs), "vector") == StoreChoice("milvus", kwargs)
    with pytest.raises(ConfigError, match=r"db_name must be .*'lazy llm'"):
        chosen(vector_store("milvus", uri="localhost:19530", db_name="lazy llm"), "vector")


def test_the_client_kwargs_of_milvus_are_optional():
    """「`client_kwargs`（可选）：Milvus 客户端配置，用于配置 Milvus 的连接参数」

    Given, they reach the store.
    """
    kwargs = {"uri": "vectors.db", "client_kwargs": {"timeout": 3}}
    assert chosen(vector_store("milvus", **kwargs), "vector") == StoreChoice("milvus", kwargs)


def test_the_index_kwargs_of_milvus_are_a_dict():
    """「如果是一个 dict 表示所有的 embedding index 使用同样的配置」

    One dict is the choice for every embed key.
    """
    index_kwargs = {"index_type": "HNSW", "metric_type": "COSINE"}
    kwargs = {"uri": "vectors.db", "index_kwargs": index_kwargs}
    assert chosen(vector_store("milvus", **kwargs), "vector") == StoreChoice("milvus", kwargs)
    settings = IndexSettings(index_kwargs)
    assert [
        settings.choice(VectorSchema(16, "cosine", {}, embed_key=key)).type
        for key in ("vec1", "vec2")
    ] == [
        "HNSW",
        "HNSW",
    ]


def test_embeddings_are_dense_or_sparse(folder):
    """「当前只支持 `floaing point embedding` 和 `sparse embedding` 两种 embedding 类型」

    Lists of numbers and dicts from dimension to weight, also side by side; anything else is an
    error.
    """
    embed = {"dense": letters, "sparse": lambda text: {ord(character): 1.0 for character in text}}
    docs = Document(folder(TEXTS), embed=embed)
    hits = Retriever(docs, "lazyllm_root")("茶")
    assert hits
    assert {key: type(vector).__name__ for key, vector in hits[0].embeddings.items()} == {
        "dense": "ndarray",
        "sparse": "dict",
    }
    with pytest.raises(IngestionError, match="not a list of numbers"):
        Retriever(Document(folder(TEXTS), embed=lambda text: text), "lazyllm_root")("茶")


def test_the_sample_configures_milvus_for_each_embed_key():
    """「如果是一个 list，list 中的元素是 dict，表示由 `embed_key` 所指定的 embedding 所使用的配置」
    「如需对Milvus向量数据库进行多组参数配置，可参考如下格式，
    此处`embed_key`需要与Document多embedding的key一一对应」

    The sample, a list of one entry for each embed key, is a right configuration, and each key gets
    its own index.
    """
    index_kwargs = [
        {"embed_key": "vec1", "index_type": "HNSW", "metric_type": "COSINE"},
        {"embed_key": "vec2", "index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"},
    ]
    kwargs = {"uri": "vectors.db", "index_kwargs": index_kwargs}
    assert chosen(vector_store("milvus", **kwargs), "vector") == StoreChoice("milvus", kwargs)
    settings = IndexSettings(index_kwargs)
    assert settings.choice(VectorSchema(16, "cosine", {}, embed_key="vec1")).type == "HNSW"
    assert (
        settings.choice(VectorSchema(SPARSE, "ip", {}, embed_key="vec2")).type
        == "SPARSE_INVERTED_INDEX"
    )


def test_the_sample_of_map_and_chromadb(tmp_path):
    """「下面是一个使用 内存 key/value 存储作为切片存储，ChromaDB 作为向量存储的配置样例」

    The sample, its paths apart as it stands, keeps segments and ledger in the file and vectors in
    the folder; its half with ChromaDB alone keeps segments and ledger in a file beside the folder.
    """
    store_conf = {
        "segment_store": {
            "type": "map",
            "kwargs": {
                "uri": str(tmp_path / "sqlite3.db"),
            },
        },
        "vector_store": {
            "type": "chromadb",
            "kwargs": {
                "dir": str(tmp_path / "vectors"),
                "index_kwargs": {
                    "hnsw": {
                        "space": "cosine",
                        "ef_construction": 200,
                    }
                },
            },
        },
    }
    vectors = StoreChoice("chromadb", store_conf["vector_store"]["kwargs"])
    segments = StoreChoice("map", {"uri": str(tmp_path / "sqlite3.db")})
    assert StoreConf.parse(store_conf) == StoreConf(segments, vectors)
    del store_conf["segment_store"]
    segments = StoreChoice("map", {"uri": str(tmp_path / "vectors.lazyrag.db")})
    assert StoreConf.parse(store_conf) == StoreConf(segments, vectors)
    assert list(tmp_path.iterdir()) == []


def found(docs, **filters):
    """Paths of the files that a filter lets through, sorted."""
    return sorted(node.path for node in Retriever(docs, "lazyllm_root")("茶", filters=filters))


def test_declared_fields_are_kept_and_searched(folder):
    """「`doc_fields`：配置需要存储和检索的字段及对应的类型
    （当前在使用内存存储、Chromadb以及Milvus向量数据库时支持该功能）」

    In the memory store a declared field is kept with each file and its nodes, with its type, and
    filters read it.
    """
    years = {"a.txt": {"year": 2001}, "b.txt": {"year": 2002}, "c.txt": {"year": 2002}}
    fields = {"year": DocField(data_type=DataType.INT32)}
    docs = Document(folder(TEXTS), embed=letters, doc_fields=fields, file_metadata=years)
    kept = {node.path: node.global_metadata["year"] for node in docs.get_nodes("FineChunk")}
    assert kept == {"a.txt": 2001, "b.txt": 2002, "c.txt": 2002}
    assert found(docs, year=[2002]) == ["b.txt", "c.txt"]


def test_a_reader_sets_the_fields_of_its_file(folder):
    """「`doc_fields`：配置需要存储和检索的字段及对应的类型
    （当前在使用内存存储、Chromadb以及Milvus向量数据库时支持该功能）」

    What a reader puts into the global_metadata of a node that it makes is a field of the file, and
    filters its nodes.
    """
    docs = Document(
        folder(TEXTS), embed=letters, doc_fields={"year": DocField(data_type=DataType.INT32)}
    )

    @docs.add_reader("*.txt")
    def read(path):
        node = DocNode(text=path.read_text(encoding="utf-8"))
        node.global_metadata["year"] = 2001 if path.name == "a.txt" else 2002
        return [node]

    assert {node.path: node.global_metadata["year"] for node in docs.get_nodes("FineChunk")}[
        "a.txt"
    ] == 2001
    assert found(docs, year=[2002]) == ["b.txt", "c.txt"]


def test_a_field_to_filter_by_must_be_declared(folder):
    """「如果期望进行某一字段的标量过滤作为检索条件，还需要提供可能作为搜索条件的特殊字段说明，
    通过 `doc_fields` 这个参数传入」

    Metadata alone cannot be filtered by: the error says to declare the field, and declared it
    filters.
    """
    path, metadata = folder(TEXTS), {"a.txt": {"season": "春"}, "b.txt": {"season": "秋"}}
    undeclared = Document(path, embed=letters, file_metadata=metadata)
    with pytest.raises(
        ConfigError, match=r"'season'.*Declare others with Document\(doc_fields=\.\.\.\)"
    ):
        found(undeclared, season=["春"])
    fields = {"season": DocField(data_type=DataType.VARCHAR)}
    assert found(
        Document(path, embed=letters, doc_fields=fields, file_metadata=metadata), season=["春"]
    ) == ["a.txt"]


def test_doc_fields_maps_names_to_doc_fields(folder):
    """「`doc_fields` 是一个 dict，其中 key 为需要存储或检索的字段名称，
    value 是一个 `DocField` 类型的结构体，包含字段类型等信息」

    A value that is no DocField is a configuration mistake.
    """
    with pytest.raises(ConfigError, match=r"doc_fields"):
        Document(folder(TEXTS), doc_fields={"year": DataType.INT32})


def test_a_field_holds_its_type(folder):
    """「`doc_fields` 是一个 dict，其中 key 为需要存储或检索的字段名称，
    value 是一个 `DocField` 类型的结构体，包含字段类型等信息」

    A file whose value is of another type is reported and left out, and a filter's value of another
    type is refused.
    """
    fields = {"year": DocField(data_type=DataType.INT32)}
    metadata = {"a.txt": {"year": 2001}, "b.txt": {"year": "2002"}}
    docs = Document(folder(TEXTS), embed=letters, doc_fields=fields, file_metadata=metadata)
    with pytest.warns(IngestionWarning, match=r"b\.txt .*'year' is INT32; '2002' \(str\) is not"):
        docs.activate_group("lazyllm_root")
    assert docs.last_report.added == ("a.txt", "c.txt")
    with pytest.raises(ConfigError, match=r"'year' is INT32; '2001' \(str\) is not"):
        found(docs, year=["2001"])


def test_the_sample_declares_author_and_year(folder):
    """「例如，如果需要存储文档的作者信息和发表年份可以这样配置」

    With the sample's fields files are found by author and by year; one without an author has the
    default, a blank.
    """
    doc_fields = {
        "author": DocField(data_type=DataType.VARCHAR, max_size=128, default_value=" "),
        "public_year": DocField(data_type=DataType.INT32),
    }
    metadata = {"a.txt": {"author": "魏国强", "public_year": 2002}, "b.txt": {"public_year": 2003}}
    docs = Document(folder(TEXTS), embed=letters, doc_fields=doc_fields, file_metadata=metadata)
    assert found(docs, author=["魏国强"]) == ["a.txt"]
    assert found(docs, author=[" "]) == ["b.txt", "c.txt"]
    assert found(docs, public_year=[2003, 2004]) == ["b.txt"]


def test_the_sample_bounds_the_author(folder):
    """「'author': DocField(data_type=DataType.VARCHAR, max_size=128, default_value=' ')」

    An author of 128 characters is kept; a file with one of 129 is reported, with what to do, and
    left out.
    """
    doc_fields = {"author": DocField(data_type=DataType.VARCHAR, max_size=128, default_value=" ")}
    metadata = {"a.txt": {"author": "魏" * 128}, "b.txt": {"author": "魏" * 129}}
    docs = Document(folder(TEXTS), embed=letters, doc_fields=doc_fields, file_metadata=metadata)
    with pytest.warns(IngestionWarning, match=r"b\.txt .*at most 128 characters .*max_size"):
        assert found(docs, author=["魏" * 128]) == ["a.txt"]
    assert docs.last_report.added == ("a.txt", "c.txt")
