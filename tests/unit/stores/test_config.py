"""store_conf: spec 001's configurations, and what is refused before anything is opened."""

from __future__ import annotations

from contextlib import closing

import pytest

from lazyrag import Document
from lazyrag.errors import ConfigError, LazyRAGError, StoreConnectionError, StoreError
from lazyrag.stores.config import StoreChoice, StoreConf
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import segment_stores, vector_stores
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.stores.sqlite_vectors import MapFileVectorStore


@pytest.fixture(autouse=True)
def _own_stores():
    """Store types that a test registers are gone after it."""
    with segment_stores.isolated(), vector_stores.isolated():
        yield


@pytest.mark.parametrize(
    "store_conf",
    [
        None,
        {},
        {"segment_store": {"type": "map"}},
        {"vector_store": {"type": "map"}},
        {"segment_store": {}, "vector_store": {}},
        {
            "segment_store": {"type": "map", "kwargs": {}},
            "vector_store": {"type": "map", "kwargs": None},
        },
    ],
)
def test_both_parts_are_map_in_memory_where_nothing_else_is_said(store_conf):
    """Each part may be left out, and so may its type and its kwargs."""
    conf = StoreConf.parse(store_conf)
    assert (conf.segment.type, dict(conf.segment.kwargs)) == ("map", {})
    assert (conf.vector.type, dict(conf.vector.kwargs)) == ("map", {})
    stores = conf.open()
    assert isinstance(stores.segments, MapSegmentStore)
    assert isinstance(stores.vectors, MapVectorStore)
    assert stores.ledger.path is None


@pytest.mark.parametrize("part", ["segment_store", "vector_store"])
def test_how_long_a_store_without_a_file_waits_does_not_make_it_another_one(part, tmp_path):
    """It lies in memory, or with the store that has a file, as it does without timeout_s."""
    waits = {"type": "map", "kwargs": {"timeout_s": 5}}
    with closing(StoreConf.parse({part: waits}).open()) as stores:
        assert stores.ledger.path is None
    other = {"segment_store": "vector_store", "vector_store": "segment_store"}[part]
    uri = tmp_path / "one.db"
    with closing(
        StoreConf.parse({part: waits, other: {"type": "map", "kwargs": {"uri": uri}}}).open()
    ) as stores:
        assert [file.path for file in stores.files] == [uri]
    with pytest.raises(ConfigError, match="a store in memory"):
        StoreConf.parse({part: waits, "ledger": uri})


def test_a_file_beside_a_folder_is_waited_for_as_long_as_said():
    """timeout_s of a segment store that lies beside Chroma's folder."""
    waits = {"type": "map", "kwargs": {"timeout_s": 5}}
    conf = StoreConf.parse(
        {"segment_store": waits, "vector_store": {"type": "chromadb", "kwargs": {"dir": "vectors"}}}
    )
    assert conf.segment.kwargs["timeout_s"] == 5


@pytest.mark.parametrize("part", ["segment_store", "vector_store"])
def test_memory_and_sqlite_are_names_of_map(part, tmp_path):
    """Both give the store of type map: one in memory, the other in a file, which it needs."""
    uri = str(tmp_path / "one.db")
    assert StoreConf.parse({part: {"type": "memory"}}) == StoreConf.parse({part: {"type": "map"}})
    in_file = {"kwargs": {"uri": uri, "timeout_s": 3}}
    assert StoreConf.parse({part: {"type": "sqlite", **in_file}}) == StoreConf.parse(
        {part: {"type": "map", **in_file}}
    )
    with pytest.raises(ConfigError, match="lacks 'uri', which a store of type 'sqlite' needs"):
        StoreConf.parse({part: {"type": "sqlite"}})
    with pytest.raises(ConfigError, match=r"unknown key 'uri'\. Known: timeout_s"):
        StoreConf.parse({part: {"type": "memory", "kwargs": {"uri": uri}}})


def test_a_registered_type_takes_precedence_over_an_alias():
    """A third party may register a store of its own as 'sqlite'."""
    vector_stores.register("sqlite", MapVectorStore)
    assert StoreConf.parse({"vector_store": {"type": "sqlite"}}).vector.type == "sqlite"


def test_a_configuration_opens_new_stores_each_time():
    """Two Documents in memory do not see each other's rows."""
    conf = StoreConf.parse(None)
    one, other = conf.open().segments, conf.open().segments
    one.create("c", {})
    assert one is not other
    with pytest.raises(LazyRAGError, match="no collection 'c'"):
        other.count("c")


SPEC_001 = {
    "map with chromadb": {
        "segment_store": {"type": "map", "kwargs": {"uri": "/path/to/segment/dir/sqlite3.db"}},
        "vector_store": {
            "type": "chromadb",
            "kwargs": {
                "dir": "/path/to/vector/dir",
                "index_kwargs": {"hnsw": {"space": "cosine", "ef_construction": 200}},
            },
        },
    },
    "milvus with several indexes": {
        "vector_store": {
            "type": "milvus",
            "kwargs": {
                "uri": "milvus.db",
                "db_name": "lazyllm",
                "client_kwargs": {},
                "index_kwargs": [
                    {"embed_key": "vec1", "index_type": "HNSW", "metric_type": "COSINE"},
                    {
                        "embed_key": "vec2",
                        "index_type": "SPARSE_INVERTED_INDEX",
                        "metric_type": "IP",
                    },
                ],
            },
        }
    },
    "milvus with one index": {
        "vector_store": {
            "type": "milvus",
            "kwargs": {"uri": "h:19530", "index_kwargs": {"index_type": "HNSW"}},
        }
    },
    "opensearch": {
        "segment_store": {
            "type": "opensearch",
            "kwargs": {
                "uris": ["h:9200"],
                "client_kwargs": {"user": "u", "password": "p"},
                "index_kwargs": {},
            },
        }
    },
    "a chroma server": {
        "vector_store": {
            "type": "chromadb",
            "kwargs": {"uri": "h:8000", "client_kwargs": {"ssl": True}},
        }
    },
    "chroma by its short name": {"vector_store": {"type": "chroma", "kwargs": {"dir": "vectors"}}},
}


@pytest.mark.parametrize("store_conf", SPEC_001.values(), ids=SPEC_001.keys())
def test_spec_001s_configurations_are_understood(store_conf):
    """Every key that spec 001 writes is known, and reaches the store of that type as it was
    given.
    """
    conf = StoreConf.parse({**store_conf, "ledger": "ledger.db"})
    for part, found in (("segment_store", conf.segment), ("vector_store", conf.vector)):
        if part in store_conf:
            kind = store_conf[part]["type"]
            assert found == StoreChoice(
                "chromadb" if kind == "chroma" else kind, store_conf[part]["kwargs"]
            )
    assert conf.ledger == "ledger.db"


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [("map", {"uri": "a.db"}), ("map", {}), ("memory", {}), ("sqlite", {"uri": "a.db"})],
)
def test_no_client_has_no_arguments(kind, kwargs):
    """Of a store without a client `client_kwargs` may be given empty, as of every other one, and
    not otherwise.
    """
    expected = StoreConf.parse({"segment_store": {"type": kind, "kwargs": kwargs}})
    for empty in ({}, None):
        given = {"type": kind, "kwargs": {**kwargs, "client_kwargs": empty}}
        assert (
            StoreConf.parse({"segment_store": given, "vector_store": given}).segment
            == expected.segment
        )
    given["kwargs"]["client_kwargs"] = {"user": "u"}
    with pytest.raises(ConfigError, match="client_kwargs"):
        StoreConf.parse({"segment_store": given})


FOLDER = {"type": "chromadb", "kwargs": {"dir": "vectors"}}
FILE = {"type": "milvus", "kwargs": {"uri": "vectors.db"}}
CHROMA = {"type": "chromadb", "kwargs": {"uri": "h:8000"}}
MILVUS = {"type": "milvus", "kwargs": {"uri": "h:19530"}}
CLUSTER = {"type": "opensearch", "kwargs": {"uris": ["h:9200", "i:9200"], "client_kwargs": {}}}
IN_A_FILE = {"type": "map", "kwargs": {"uri": "one.db"}}


@pytest.mark.parametrize(
    ("vector_store", "beside"),
    [(FOLDER, "vectors.lazyrag.db"), (FILE, "vectors.db.lazyrag.db")],
    ids=["folder", "file"],
)
@pytest.mark.parametrize(
    "segment_store", [{}, {"segment_store": {"type": "map"}}], ids=["left out", "no uri"]
)
def test_what_a_vector_store_on_the_disk_does_not_keep_lies_beside_it(
    segment_store, vector_store, beside, tmp_path
):
    """Nodes and ledger of a Document whose vectors lie in a folder of Chroma or a file of Milvus
    are in one file.
    """
    vector_store = {
        **vector_store,
        "kwargs": {name: str(tmp_path / at) for name, at in vector_store["kwargs"].items()},
    }
    conf = StoreConf.parse({**segment_store, "vector_store": vector_store})
    assert conf.segment == StoreChoice("map", {"uri": str(tmp_path / beside)})
    assert conf.ledger is None  # with the segments
    assert list(tmp_path.iterdir()) == []


def test_the_same_folder_has_the_same_file_beside_it_however_it_is_written(tmp_path, monkeypatch):
    """A path with a slash at its end, and one from the working directory, is no other place."""
    monkeypatch.chdir(tmp_path)
    ways = ["vectors", "vectors/", "./vectors", str(tmp_path / "vectors")]
    found = {
        StoreConf.parse(
            {"vector_store": {"type": "chromadb", "kwargs": {"dir": way}}}
        ).segment.kwargs["uri"]
        for way in ways
    }
    assert found == {str(tmp_path / "vectors.lazyrag.db")}


def test_nodes_on_a_server_and_vectors_on_the_disk_leave_the_ledger_beside_these(
    tmp_path, monkeypatch
):
    """The ledger is a file of this machine: beside the folder, in the vectors' file, or where
    store_conf says.
    """
    monkeypatch.chdir(tmp_path)
    assert StoreConf.parse({"segment_store": CLUSTER, "vector_store": FOLDER}).ledger == str(
        tmp_path / "vectors.lazyrag.db"
    )
    assert StoreConf.parse({"segment_store": CLUSTER, "vector_store": IN_A_FILE}).ledger == "one.db"
    named = {"segment_store": CLUSTER, "vector_store": FOLDER, "ledger": tmp_path / "ledger.db"}
    assert StoreConf.parse(named).ledger == str(tmp_path / "ledger.db")


@pytest.mark.parametrize(
    "store_conf",
    [
        {"vector_store": CHROMA},
        {"vector_store": MILVUS},
        {"segment_store": CLUSTER},
        {"segment_store": CLUSTER, "vector_store": MILVUS},
        {"segment_store": {"type": "map"}, "vector_store": CHROMA},
    ],
    ids=["chroma", "milvus", "opensearch", "both", "nodes in memory"],
)
def test_a_server_needs_a_file_for_the_ledger(store_conf):
    """Without one the error names the server and the two ways to give it; with one the
    configuration is right.
    """
    with pytest.raises(
        ConfigError,
        match=r"at http://h:\d+.* Give store_conf\['ledger'\].* type 'map' with a 'uri'",
    ):
        StoreConf.parse(store_conf)
    assert StoreConf.parse({**store_conf, "ledger": "ledger.db"}).ledger == "ledger.db"


def test_a_map_file_of_nodes_holds_the_ledger_of_vectors_on_a_server():
    """The second of the two ways."""
    conf = StoreConf.parse({"segment_store": IN_A_FILE, "vector_store": CHROMA})
    assert (conf.segment.kwargs["uri"], conf.vector.type, conf.ledger) == (
        "one.db",
        "chromadb",
        None,
    )


@pytest.mark.parametrize(
    "store_conf",
    [
        {"segment_store": IN_A_FILE, "vector_store": CHROMA},
        {"segment_store": IN_A_FILE, "vector_store": MILVUS},
        {"segment_store": CLUSTER, "ledger": "ledger.db"},
    ],
    ids=["chroma", "milvus", "opensearch"],
)
def test_a_document_on_a_server_needs_a_name(store_conf, tmp_path, monkeypatch):
    """The error says why, and names the server; nothing is opened or made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no name.*at http://h:\d+.*Give Document"):
        Document(store_conf=store_conf)
    StoreConf.parse(store_conf).check_use("tea", embeds=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "store_conf", [None, {"segment_store": IN_A_FILE}, {"vector_store": FOLDER}]
)
def test_a_document_that_lies_on_this_machine_needs_no_name(store_conf):
    """A file, a folder and the memory are not shared with strangers."""
    StoreConf.parse(store_conf).check_use(None, embeds=True)


def test_embeddings_need_a_vector_store_beside_opensearch(tmp_path, monkeypatch):
    """Vectors are not put where nobody said: the error names the choices. Each of them, and no
    embed, is fine.
    """
    monkeypatch.chdir(tmp_path)
    conf = {"segment_store": CLUSTER, "ledger": "ledger.db"}
    with pytest.raises(
        ConfigError,
        match=r"'opensearch' and no vector store\. Name one: 'chromadb', 'milvus', or 'map'",
    ):
        Document(embed=len, name="tea", store_conf=conf)
    assert list(tmp_path.iterdir()) == []
    StoreConf.parse(conf).check_use("tea", embeds=False)
    for vector_store in (FOLDER, FILE, CHROMA, MILVUS, IN_A_FILE):
        StoreConf.parse({**conf, "vector_store": vector_store}).check_use("tea", embeds=True)


WRONG_ARGUMENTS = [
    (
        "vector_store",
        "chromadb",
        {"dir": "d", "index_kwargs": {"hnsw": {"spce": "l2"}}},
        "Did you mean 'space'",
    ),
    (
        "vector_store",
        "chromadb",
        {"dir": "d", "index_kwargs": {"space": "round"}},
        "cosine, ip, l2",
    ),
    (
        "vector_store",
        "chromadb",
        {"dir": "d", "client_kwargs": {"ssl": True}},
        "'ssl'. Known: database, settings",
    ),
    ("vector_store", "chromadb", {"dir": "d", "exact_rows": -1}, "exact_rows"),
    ("vector_store", "chromadb", {"dir": "d", "timeout_s": 0}, "timeout_s"),
    ("vector_store", "milvus", {"uri": "vectors"}, "vectors"),
    ("vector_store", "milvus", {"uri": "v.db", "db_name": "my-base"}, "letters, digits and '_'"),
    ("vector_store", "milvus", {"uri": "v.db", "client_kwargs": {"timeout": 0}}, "> 0"),
    (
        "vector_store",
        "milvus",
        {"uri": "v.db", "index_kwargs": {"index_typ": "HNSW"}},
        "Did you mean 'index_type'",
    ),
    (
        "vector_store",
        "milvus",
        {"uri": "v.db", "index_kwargs": [{"index_type": "HNSW"}]},
        "needs an 'embed_key'",
    ),
    ("segment_store", "opensearch", {"uris": [], "client_kwargs": {}}, "must be an address"),
    (
        "segment_store",
        "opensearch",
        {"uris": "h:1", "client_kwargs": {}, "index_kwargs": {"setings": {}}},
        "Did you mean 'settings'",
    ),
    (
        "segment_store",
        "opensearch",
        {"uris": "h:1", "client_kwargs": {}, "index_kwargs": {"analysers": ["zz"]}},
        "Known: en, zh",
    ),
]


@pytest.mark.parametrize(("part", "kind", "kwargs", "said"), WRONG_ARGUMENTS, ids=repr)
def test_a_stores_own_arguments_are_checked_before_anything_is_opened(
    part, kind, kwargs, said, tmp_path, monkeypatch
):
    """What a store does not take is refused by the Document's constructor, also without its
    package.
    """
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        Document(
            name="tea", store_conf={part: {"type": kind, "kwargs": kwargs}, "ledger": "ledger.db"}
        )
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


IN_ONE_FILE = [
    {"segment_store": {"type": "map", "kwargs": {"uri": "one.db"}}},
    {
        "segment_store": {"type": "map", "kwargs": {"uri": "one.db"}},
        "vector_store": {"type": "map"},
    },
    {"vector_store": {"type": "map", "kwargs": {"uri": "one.db"}}},
    {
        part: {"type": "map", "kwargs": {"uri": "one.db"}}
        for part in ("segment_store", "vector_store")
    },
]


@pytest.mark.parametrize("store_conf", IN_ONE_FILE)
def test_map_lies_in_one_file(store_conf, tmp_path, monkeypatch):
    """Where one part names a file, or both the same, both stores and the ledger lie in it."""
    monkeypatch.chdir(tmp_path)
    stores = StoreConf.parse(store_conf).open()
    assert isinstance(stores.segments, MapFileSegmentStore)
    assert isinstance(stores.vectors, MapFileVectorStore)
    assert [file.path for file in stores.files] == [tmp_path / "one.db"]
    stores.close()
    assert (tmp_path / "one.db").exists()


def test_each_part_may_have_a_file_of_its_own(tmp_path):
    """Then the ledger lies with the segments, unless it has a file of its own as well."""
    both = ("segment_store", "vector_store")
    kwargs = {part: {"type": "map", "kwargs": {"uri": str(tmp_path / part)}} for part in both}
    with closing(StoreConf.parse(kwargs).open()) as stores:
        assert [file.path.name for file in stores.files] == ["segment_store", "vector_store"]
        assert stores.ledger.path.name == "segment_store"
    with closing(StoreConf.parse({**kwargs, "ledger": tmp_path / "ledger"}).open()) as stores:
        assert stores.ledger.path.name == "ledger"


def test_a_ledger_of_its_own_wants_stores_that_stay():
    """It would list what is gone after the end of the process."""
    with pytest.raises(ConfigError, match="a store in memory"):
        StoreConf.parse({"ledger": "ledger.db"})
    with pytest.raises(ConfigError, match="must be the path of a file"):
        StoreConf.parse({"ledger": 3, **IN_ONE_FILE[0]})


@pytest.mark.parametrize("uri", ["", 3, None, b"x"])
def test_a_uri_of_map_is_a_path(uri):
    """Anything else is refused, and the message says what a uri is."""
    with pytest.raises(ConfigError, match="must be the path of a file, created if missing"):
        StoreConf.parse({"segment_store": {"type": "map", "kwargs": {"uri": uri}}})


@pytest.mark.parametrize(
    ("conf", "way_out"),
    [
        (":memory:", "For a store in memory leave it out."),
        ({"type": "sqlite", "path": "tea.db"}, "Did you mean 'uri'?"),
        ({"type": "chromadb", "path": "teas"}, "Did you mean 'dir'?"),
        ({"type": "opensearch", "url": "http://host"}, "Did you mean 'uris'?"),
    ],
)
def test_names_of_other_libraries_for_a_place(conf, way_out):
    """Each with the name here; nothing is a file named ``:memory:``."""
    with pytest.raises(ConfigError) as caught:
        StoreConf.parse(conf)
    assert str(caught.value).endswith(way_out)


@pytest.mark.parametrize("uri", ["sqlite:///tea.db", "mysql+pymysql://tea:oolong@host/tea"])
def test_the_url_of_another_database_is_no_path(uri):
    """It would be the path of a new folder; a password in it is not shown."""
    with pytest.raises(ConfigError, match="or the URL of a PostgreSQL database; got") as caught:
        StoreConf.parse(uri)
    assert "oolong" not in str(caught.value)


def test_a_url_without_a_user_says_so():
    """The driver refuses it before it connects."""
    with pytest.raises(ConfigError, match=r"lacks the user.*Add the user"):
        Document(store_conf="postgresql://127.0.0.1:9/tea")


def test_a_document_refuses_its_configuration_at_once():
    """The error comes from the constructor, not from the first question."""
    with pytest.raises(ConfigError, match="Did you mean 'vector_store'"):
        Document(store_conf={"vectorstore": {"type": "map"}})


REFUSED = [
    ({"vectorstore": {}}, ["'vectorstore'", "Did you mean 'vector_store'?", "segment_store"]),
    (
        {"segment": {}},
        ["'segment'", "Known: exact_rows, ledger, search, segment_store, vector_store"],
    ),
    ({5: {}}, ["5", "ledger"]),
    (
        {"segment_store": {"typ": "map"}},
        ["store_conf['segment_store']", "'typ'", "Did you mean 'type'?"],
    ),
    ({"segment_store": {"type": "map", "uri": "x"}}, ["'uri'", "Known: kwargs, type"]),
    (
        {"segment_store": {"type": "mpa"}},
        ["'mpa'", "Known: map, memory, opensearch, postgresql, sqlite", "Did you mean 'map'?"],
    ),
    (
        {"segment_store": {"type": "milvus"}},
        ["'milvus'", "Known: map, memory, opensearch, postgresql, sqlite"],
    ),
    (
        {"segment_store": {"type": "chroma"}},
        ["'chroma'", "Known: map, memory, opensearch, postgresql, sqlite"],
    ),
    ({"vector_store": {"type": "opensearch"}}, ["lacks 'uris'", "'opensearch'"]),
    ({"vector_store": {"type": "chromdb"}}, ["'chromdb'", "Did you mean 'chromadb'?"]),
    ({"vector_store": {"type": None}}, ["None", "map"]),
    ({"vector_store": {"type": ["map"]}}, ["['map']"]),
    ({"vector_store": {"type": 5}}, ["5"]),
    ({"segment_store": {"type": "map", "kwargs": {"url": "x"}}}, ["'url'", "Did you mean 'uri'?"]),
    ({"vector_store": {"type": "milvus", "kwargs": {}}}, ["lacks 'uri'", "milvus"]),
    ({"vector_store": {"type": "milvus"}}, ["lacks 'uri'"]),
    (
        {"vector_store": {"type": "milvus", "kwargs": {"uri": "x", "dbname": "y"}}},
        ["'dbname'", "Did you mean 'db_name'?"],
    ),
    ({"segment_store": {"type": "opensearch", "kwargs": {"client_kwargs": {}}}}, ["lacks 'uris'"]),
    (
        {"segment_store": {"type": "opensearch", "kwargs": {"uris": "h:9200"}}},
        ["lacks 'client_kwargs'"],
    ),
    (
        {"segment_store": {"type": "opensearch", "kwargs": {"uri": "h:9200"}}},
        ["'uri'", "Did you mean 'uris'?"],
    ),
    (
        {"vector_store": {"type": "chromadb"}, "ledger": "ledger.db"},
        ["store in memory", "chromadb a 'dir'"],
    ),
    (
        {
            "vector_store": {"type": "chromadb"},
            "segment_store": {"type": "map", "kwargs": {"uri": "x"}},
        },
        ["store in memory", "chromadb a 'dir'"],
    ),
    (
        {"vector_store": {"type": "chromadb", "kwargs": {"uri": "h", "dir": "d"}}},
        ["'uri'", "'dir'", "for memory"],
    ),
    (
        {"segment_store": "map"},
        ["store_conf['segment_store'] must be a mapping", "type, kwargs", "'map'"],
    ),
    ({"segment_store": None}, ["store_conf['segment_store'] must be", "None"]),
    ({"segment_store": {"type": "map", "kwargs": ["uri"]}}, ["kwargs", "mapping"]),
    ({"segment_store": {"type": "map", "kwargs": "uri"}}, ["kwargs", "mapping"]),
    ({"segment_store": {"type": "map", "kwargs": []}}, ["kwargs", "mapping"]),
    ({"segment_store": {"type": "map", "kwargs": ""}}, ["kwargs", "mapping"]),
    ({"segment_store": {"type": "map", "kwargs": 0}}, ["kwargs", "mapping"]),
    ([("segment_store", {})], ["must be a mapping"]),
    ("map", ["'map'", "must be a mapping"]),
    ({"search": "native"}, ["store_conf['search']", "'native'", "exact, server"]),
    ({"exact_rows": -1}, ["store_conf['exact_rows'] must be", "-1"]),
    (5, ["must be a mapping"]),
]


@pytest.mark.parametrize(("store_conf", "said"), REFUSED, ids=[repr(one) for one, _ in REFUSED])
def test_a_wrong_configuration_is_refused(store_conf, said):
    """Unknown keys, types and arguments, missing and wrong ones: the error says where, what and
    what is allowed.
    """
    with pytest.raises(ConfigError) as caught:
        StoreConf.parse(store_conf)
    assert [part for part in said if part not in str(caught.value)] == []


SHORT = [
    ("tea.db", {"type": "map", "uri": "tea.db"}),
    ("postgresql://db/tea", {"type": "postgresql", "uri": "postgresql://db/tea"}),
    ("milvus://db:19530", {"type": "milvus", "uri": "db:19530", "client_kwargs": {}}),
    (
        "milvus://tea:a%40b@db:19530",
        {
            "type": "milvus",
            "uri": "https://db:19530",
            "client_kwargs": {"user": "tea", "password": "a@b"},
        },
    ),
    (
        "opensearch://tea:secret@db:9200",
        {
            "type": "opensearch",
            "uris": "https://db:9200",
            "client_kwargs": {"user": "tea", "password": "secret"},
        },
    ),
]


@pytest.mark.parametrize(("short", "flat"), SHORT, ids=[short for short, _ in SHORT])
def test_a_url_and_a_flat_mapping_are_short_for_the_parts(short, flat, tmp_path):
    """All three give the same configuration; what is beside the stores may be in a flat one."""
    kwargs = {name: value for name, value in flat.items() if name != "type"}
    part = "vector_store" if flat["type"] == "milvus" else "segment_store"
    long = {part: {"type": flat["type"], "kwargs": kwargs}}
    expected = StoreConf.parse(long, tmp_path)
    assert StoreConf.parse(short, tmp_path) == StoreConf.parse(flat, tmp_path) == expected
    ledger = {"ledger": str(tmp_path / "l.db"), "exact_rows": 5}
    assert StoreConf.parse({**flat, **ledger}) == StoreConf.parse({**long, **ledger})


@pytest.mark.parametrize(
    ("store_conf", "said"),
    [
        ("milvus", "Or pass {'type': "),
        ("milvus://", "must be milvus://HOST:PORT"),
        ("milvus://db/leaves", "must be milvus://HOST:PORT"),
        ("opensearch://db:9200/index", "opensearch://HOST:PORT"),
        ("opensearch://me:secret@db:9200/index", "got 'opensearch://db:9200/index'"),
        ("milvs://db:19530", "For a server pass store_conf='milvus://HOST:PORT'"),
        ({"type": "mlvus"}, "Did you mean 'milvus'"),
        ({"type": "map", "ur": "x.db"}, "Did you mean 'uri'"),
        ({"type": "map", "kwargs": {"uri": "x"}, "uri": "y"}, "'uri' twice"),
        ({"type": "map", "kwargs": 5}, "store_conf['kwargs'] must be"),
    ],
)
def test_a_wrong_short_form_says_the_way_out(store_conf, said, tmp_path):
    """No message shows a password."""
    with pytest.raises(ConfigError) as caught:
        StoreConf.parse(store_conf, tmp_path)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_wrong_second_part_is_found_behind_a_right_first_one():
    """Both parts are checked before anything is opened."""
    with pytest.raises(ConfigError, match="Did you mean 'chromadb'"):
        StoreConf.parse(
            {
                "segment_store": {"type": "map", "kwargs": {"uri": "x"}},
                "vector_store": {"type": "chromdb"},
            }
        )


def test_a_third_partys_store_gets_its_own_arguments():
    """Its kwargs are handed over as they are; a constructor that takes any keyword gets any."""

    @vector_stores.register("mine")
    class Mine(MapVectorStore):
        def __init__(self, where, **more):
            super().__init__()
            self.where, self.more = where, more

    conf = StoreConf.parse(
        {"vector_store": {"type": "mine", "kwargs": {"where": "here", "speed": 2}}}
    )
    stores = conf.open()
    assert isinstance(stores.segments, MapSegmentStore)
    assert isinstance(stores.vectors, Mine)
    assert (stores.vectors.where, stores.vectors.more) == ("here", {"speed": 2})


def test_a_third_partys_store_is_among_the_known_ones():
    """A misspelt type names it, too."""
    vector_stores.register("mine", MapVectorStore)
    with pytest.raises(ConfigError, match=r"Known: .*mine"):
        StoreConf.parse({"vector_store": {"type": "minne"}})


def test_a_configuration_does_not_change_with_the_mapping_it_was_read_from():
    """The caller's dict may change afterwards."""

    @vector_stores.register("mine")
    class Mine(MapVectorStore):
        def __init__(self, a=0, b=0):
            super().__init__()

    kwargs = {"a": 1}
    conf = StoreConf.parse({"vector_store": {"type": "mine", "kwargs": kwargs}})
    kwargs["b"] = 2
    assert dict(conf.vector.kwargs) == {"a": 1}


class Recording(MapSegmentStore):
    """A third party's store that tells what became of it."""

    told: list[str]

    def __init__(self, where, *, dbname="tea", timeout_s=1.0):
        super().__init__()
        self.told.append("made")

    def open(self):
        """Tell it."""
        self.told.append("opened")

    def close(self):
        """Tell it."""
        self.told.append("closed")


@pytest.fixture
def recording():
    """The store, registered as 'recording', with nothing told."""
    Recording.told = []
    return segment_stores.register("recording", Recording)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        (
            {"where": "x", "db_name": "y"},
            ["'db_name'", "Known: dbname, timeout_s, where", "Did you mean 'dbname'?"],
        ),
        ({"where": "x", "self": 1}, ["'self'"]),
        ({"were": "x"}, ["'were'", "Did you mean 'where'?"]),
        ({"where": "x", 5: 1}, ["5", "mapping of keyword arguments"]),
        ({"dbname": "y"}, ["lacks 'where'", "'recording'"]),
        (None, ["lacks 'where'"]),
    ],
    ids=repr,
)
def test_a_keyword_that_a_third_partys_store_does_not_take_is_refused(recording, kwargs, said):
    """Its constructor's keywords are the known ones: an unknown or missing one is an error before a
    store is made.
    """
    with pytest.raises(ConfigError) as caught:
        Document(store_conf={"segment_store": {"type": "recording", "kwargs": kwargs}})
    assert [
        part
        for part in ("store_conf['segment_store']['kwargs']", *said)
        if part not in str(caught.value)
    ] == []
    assert recording.told == []


def test_a_misspelt_keyword_is_found_where_any_is_taken():
    """A constructor that takes any keyword does not get one that looks like a slip of its own
    names.
    """

    @vector_stores.register("mine")
    class Mine(MapVectorStore):
        def __init__(self, timeout_s=1.0, **more):
            super().__init__()

    with pytest.raises(ConfigError, match=r"'timeout'.*Did you mean 'timeout_s'"):
        StoreConf.parse({"vector_store": {"type": "mine", "kwargs": {"timeout": 2}}})


def test_the_keywords_that_a_third_partys_store_takes_are_accepted(recording):
    """Required and optional ones, by keyword."""
    kwargs = {"where": "x", "dbname": "y", "timeout_s": 2}
    StoreConf.parse({"segment_store": {"type": "recording", "kwargs": kwargs}}).open()
    assert recording.told == ["made", "opened"]


@pytest.mark.parametrize("closing_fails", [False, True])
def test_no_store_stays_open_if_the_other_one_fails(recording, monkeypatch, closing_fails):
    """A vector store that cannot be opened closes the segment store again, and its own error is the
    one to see.
    """

    @vector_stores.register("unreachable")
    class Unreachable(MapVectorStore):
        def open(self):
            msg = "nobody listens"
            raise StoreConnectionError(msg)

    if closing_fails:

        def close(self):
            self.told.append("closed")
            msg = "cannot close"
            raise StoreError(msg)

        monkeypatch.setattr(Recording, "close", close)
    conf = StoreConf.parse(
        {
            "segment_store": {"type": "recording", "kwargs": {"where": "x"}},
            "vector_store": {"type": "unreachable"},
        }
    )
    with pytest.raises(StoreConnectionError, match="nobody listens"):
        conf.open()
    assert recording.told == ["made", "opened", "closed"]


def test_a_store_that_does_not_open_leaves_no_ledger(tmp_path):
    """Where a server does not answer, or a package is missing, no file is made that would look like
    a Document's.
    """

    @vector_stores.register("unreachable")
    class Unreachable(MapVectorStore):
        def open(self):
            msg = "nobody listens"
            raise StoreConnectionError(msg)

    store_conf = {
        "segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}},
        "vector_store": {"type": "unreachable"},
    }
    with pytest.raises(StoreConnectionError, match="nobody listens"):
        Document(store_conf=store_conf)
    assert list(tmp_path.iterdir()) == []
