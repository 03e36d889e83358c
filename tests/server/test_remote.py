"""`Document(url=...)`: retrievers over HTTP give the recorded hits, scores and order."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn

from lazyrag import DataType, DocField, Document, HybridRetriever, Retriever, why_not
from lazyrag.errors import (
    AccessError,
    ConfigError,
    NotRegisteredError,
    StaleNodeError,
    StoreConnectionError,
    StoreError,
)
from lazyrag.retrieval import auto_merge
from lazyrag.server.access import Access
from lazyrag.server.app import create_app
from lazyrag.server.service import Service
from tests.behaviour import answers, goldens
from tests.behaviour.library import Letters, Library, Pairs, open_library, register
from tests.behaviour.retrievers import CASES, RESTRICTED
from tests.behaviour.store_kinds import STORES
from tests.picture_files import GARDEN, in_word


@contextmanager
def served(sets, state, access=None, port=0):
    """The address of a running service."""
    app = create_app(Service(sets, state, access=access))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The sample Documents of the goldens."""
    with ExitStack() as stack:
        yield open_library(stack, tmp_path_factory.mktemp("library"), STORES["memory"].conf_of)


@pytest.fixture(scope="module")
def remote(library, tmp_path_factory):
    """The same behind a service."""
    with ExitStack() as stack:
        sets = {"docs": library.docs, "notes": library.notes, "sparse": library.sparse}
        url = stack.enter_context(served(sets, tmp_path_factory.mktemp("remote")))
        opened = {name: stack.enter_context(Document(url=url, name=name)) for name in sets}
        yield Library(opened["docs"], opened["notes"], opened["sparse"])


@pytest.fixture
def unused_url():
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def _registered(_isolated):
    """The samples' similarities are there in every test."""
    register()


FEW = ("bm25 target section", "bm25 two Documents", "hybrid weighted", "chain AutoMerge")
"""Retrievers whose explanations the default run compares: `why_not` reads all nodes."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_hits_are_those_of_the_goldens(remote, name):
    """The same ids, scores and order under every filter."""
    for label in answers.filters_of(CASES[name]):
        answers.check_hits(remote, name, label, ())


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted(remote, name):
    """The scope of the client applies, too."""
    answers.check_restricted(remote, name, "authors", ())


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FEW)
def test_explanations(remote, name):
    """Stages, contributions, and why nodes are missing."""
    goldens.check("explanations", answers.explanation_rows(remote, [name]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.explains and name not in FEW])
def test_all_explanations(remote, name):
    """The same, for all of them."""
    goldens.check("explanations", answers.explanation_rows(remote, [name]))


def test_scores_are_equal_to_the_last_bit(library, remote):
    """Vectors and scores lose nothing on the way."""
    for local, other in ((library.docs, remote.docs), (library.sparse, remote.sparse)):
        for node, there in zip(*(Retriever(one, "line", topk=9)("fog on tea") for one in (local, other)), strict=True):
            assert (node.uid, node.score, node.text) == (there.uid, there.score, there.text)
            for key, vector in node.embeddings.items():
                assert repr(vector) == repr(there.embeddings[key])


def test_tables_and_sql_are_those_of_the_service(library, remote):
    """Tables come over HTTP, SQL runs in the client."""
    assert remote.docs.tables() == library.docs.tables() != []
    query = "SELECT tea, price FROM prices WHERE price > 100"
    ours, theirs = library.docs.sql(query), remote.docs.sql(query)
    assert [(row, row.locations) for row in theirs] == [(row, row.locations) for row in ours]
    assert [row["tea"] for row in theirs] == ["绿茶", "white tea"]


def test_pictures_are_with_the_service(folder, tmp_path):
    """They are found there; their bytes come by the route that the error names."""
    docs = Document(folder({"garden.docx": in_word((GARDEN, "Figure 1: A garden", ""))}))
    with served({"docs": docs}, tmp_path / "state") as url, Document(url=url, name="docs") as remote:
        [node] = Retriever(remote, "image", similarity="bm25")("garden")
        assert node.text == "Figure 1: A garden"
        with pytest.raises(ConfigError, match=f"GET /api/v1/sets/docs/images/{node.uid}"):
            node.image()


def test_a_program_mixes_local_and_remote_documents(library, remote):
    """Terms are counted in all of them."""
    plain = Retriever([library.docs, library.notes], "line", similarity="bm25", topk=8)("green tea")
    mixed = Retriever([library.docs, remote.notes], "line", similarity="bm25", topk=8)("green tea")
    assert [(node.uid, node.score) for node in mixed] == [(node.uid, node.score) for node in plain]


def facts(docs, uid):
    """What a node shows of the tree around it."""
    [node] = docs.get_nodes("sentence", uids=[uid])
    above = node.parent
    return {
        "node": (node.uid, node.text, node.number, node.span, node.metadata, node.location, node.score),
        "file": node.global_metadata,
        "parent": (above.uid, above.text, above.group),
        "children": {name: [one.uid for one in nodes] for name, nodes in above.children.items()},
        "root": (above.parent.group, above.parent.text, above.parent.parent),
        "window": [one.text for one in docs.window(node, 1, 2)],
        "merged": (docs.window(node, 2, 1, merge=True).text, docs.window(node, 2, 1, merge=True).location),
        "words": [one.uid for one in docs.find("word")([node])],
        "roots": [one.path for one in docs.find_parent("lazyllm_root")([node])],
        "below": [one.uid for one in docs.find_children("sentence")([above])],
        "text": docs.read(node.path, (3, 60)),
        "outline": docs.outline(node.path),
        "up": [(one.uid, one.merged_from) for one in auto_merge([node.with_score(1.0)], least=1, ratio=0.01)],
    }


def test_nodes_lead_to_the_same_neighbours(library, remote):
    """Parents, children, metadata, locations, windows and related nodes."""
    for node in library.docs.get_nodes("sentence")[::25]:
        assert facts(remote.docs, node.uid) == facts(library.docs, node.uid)
    assert [node.uid for node in remote.docs.get_nodes("word", offset=120, limit=70)] == [
        node.uid for node in library.docs.get_nodes("word", offset=120, limit=70)
    ]
    assert (remote.docs.groups, remote.docs.embed_keys) == (library.docs.groups, library.docs.embed_keys)
    assert remote.docs.fields == library.docs.fields


def test_parents_of_many_nodes(library, remote):
    """Also where nodes that were read together have more parents than come with one answer."""
    for group in ("word", "sentence"):
        plain, found = (
            one.reader.read(lambda part: [node.parent.uid for node in [*part.walk(group, None)][::-3]])  # noqa: B023
            for one in (library.docs, remote.docs)
        )
        assert found == plain


def test_few_requests(remote, monkeypatch):
    """Keyword search needs one request, hybrid search four."""
    requests = []
    connection = remote.docs._indexer._connection
    post = connection.post
    monkeypatch.setattr(connection, "post", lambda path, body: (requests.append(path), post(path, body))[1])
    for retriever, most in (
        (Retriever(remote.docs, "line", similarity="bm25"), 1),
        (Retriever(remote.docs, "line", embed_keys=["letters"]), 2),
        (HybridRetriever.over(remote.docs, "line", embed_keys=["letters"]), 4),
    ):
        retriever("warm up")
        requests.clear()
        assert retriever("green tea")
        assert len(requests) <= most, requests


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """A store with labelled documents that a service reads, and the program that writes it."""
    folder = tmp_path_factory.mktemp("labels")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}}
    fields = {"labels": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}
    with Document(store_conf=conf, doc_fields=fields, embed=letters) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        texts = {
            f"{label}-{number}": "\n".join(f"{label} tea {number} line {line}" for line in range(9))
            for label in ("hr", "it")
            for number in range(4)
        }
        docs.add_texts(texts, {name: {"labels": [name[:2]]} for name in texts})
        docs.activate_group("line", embed_keys=["default"], analysers=["en", "zh"])
        with Document(store_conf=conf, doc_fields=fields, embed=letters, read_only=True) as reading:
            reading.create_node_group("line", transform=str.splitlines)
            yield docs, reading, folder


def letters(text):
    """A vector of a text."""
    return [1.0 + text.count(letter) for letter in "ehilrt0123"]


@pytest.mark.slow
def test_a_token_with_labels_reads_what_it_sees(notes):
    """Hits, scores and errors are those of the restricted Document; nodes of others lead nowhere."""
    docs, reading, folder = notes
    access = Access(folder)
    token = access.create("read", labels=["hr"])[1]
    with served({"notes": reading}, folder, access) as url:
        with pytest.raises(AccessError, match="token"):
            Document(url=url, name="notes")
        with Document(url=url, name="notes", token=token) as remote:
            own = docs.restricted({"labels": ["hr"]})
            for make in (
                lambda one: Retriever(one, "line", similarity="bm25", topk=50),
                lambda one: HybridRetriever.over(one, "line"),
            ):
                for query in ("tea 3", "it", "hr line 2"):
                    found, wanted = (make(one)(query) for one in (remote, own))
                    assert [(node.uid, node.score) for node in found] == [(node.uid, node.score) for node in wanted]
            [hidden, *_] = docs.get_nodes("line", filters={"labels": ["it"]})
            assert remote.get_nodes("line", uids=[hidden.uid]) == []
            reason = why_not(Retriever(remote, "line", similarity="bm25"), hidden.uid, "tea")
            assert reason.message == f"There is no node '{hidden.uid}' in the Document."
            [seen, *_] = remote.get_nodes("line")
            stolen = type(seen).from_segment(hidden.segment, seen.reader)
            with pytest.raises(StaleNodeError):
                _ = stolen.parent
            with pytest.raises(ConfigError, match="hides"):
                Retriever(remote, "line", index="smart_embedding_index")("tea")
            states = {remote.reader.read(lambda snapshot: snapshot.version) for _ in range(3)}
            assert len(states) == 3  # they would count the changes of hidden documents
        access.close()


def test_reads_see_one_state_while_documents_change(notes):
    """All nodes of a document are of one version, also during writes."""
    docs, reading, folder = notes
    stop, versions = threading.Event(), []

    def change():
        while not stop.is_set():
            versions.append(len(versions))
            lines = [f"tea version {versions[-1]} of line {line}" for line in range(40)]
            docs.add_texts({"changing": "\n".join(lines)}, {"changing": {"labels": ["hr"]}})

    writer = threading.Thread(target=change)
    with served({"notes": reading}, folder / "open") as url, Document(url=url, name="notes") as remote:
        writer.start()
        hybrid = HybridRetriever.over(remote, "line", topk=60)
        try:
            seen = set()
            for _ in range(12):
                for nodes in (hybrid("tea version line"), remote.get_nodes("line")):
                    found = {node.text.split()[2] for node in nodes if node.path == "changing"}
                    assert len(found) <= 1
                    seen |= found
        finally:
            stop.set()
            writer.join()
        assert len(seen) > 1


def test_errors_are_those_of_the_library(remote):
    """Their classes and sentences come with the answer."""
    with pytest.raises(NotRegisteredError, match="Did you mean 'line'"):
        Retriever(remote.docs, "lines", similarity="bm25")
    with pytest.raises(ConfigError, match="no embed key 'lettres'"):
        Retriever(remote.docs, "line", embed_keys=["lettres"])
    with pytest.raises(ConfigError, match="colour"):
        Retriever(remote.docs, "line", similarity="bm25")("tea", filters={"colour": ["green"]})
    with pytest.raises(NotRegisteredError, match="analyser"):
        Retriever(remote.docs, "line", similarity="bm25", analyser="klingon")("tea")


@pytest.mark.parametrize(
    "call",
    [
        lambda docs: docs.sync(),
        lambda docs: docs.add_texts({"a": "tea"}),
        lambda docs: docs.create_node_group("new", transform=str.split),
        lambda docs: docs.add_reader("*.x", str),
        lambda docs: docs.activate_group("line"),
        lambda docs: docs.retry_failed(),
        lambda docs: docs.documents(),
        lambda docs: docs.grep("tea"),
        lambda docs: docs.related(docs.get_nodes("line", limit=1)[0].uid),
        lambda docs: docs.status(),
        lambda docs: docs.jobs,
    ],
)
def test_what_a_client_cannot_do_is_refused(remote, call):
    """With the place where it can be done."""
    with pytest.raises(ConfigError, match="HTTP API"):
        call(remote.docs)


def test_the_service_must_be_there(remote, unused_url):
    """Nothing at the address, no such set, no address, and a Document that was closed."""
    with pytest.raises(StoreConnectionError, match="does not answer"):
        Document(url=unused_url)
    url = remote.docs._indexer._connection.url
    with pytest.raises(ConfigError, match="Did you mean 'docs'"):
        Document(url=url, name="dosc")
    with pytest.raises(ConfigError, match="address"):
        Document(url="localhost")
    with pytest.raises(ConfigError, match="takes no argument"):
        Document(url=url, name="docs", read_only=True)
    with Document(url=url, name="docs") as docs:
        [node] = docs.get_nodes("line", limit=1)
    with pytest.raises(StoreError, match="closed"):
        _ = node.parent


def test_the_client_may_embed(remote):
    """Its own callable replaces that of the service."""
    url, texts = remote.docs._indexer._connection.url, []

    def embed(text):
        texts.append(text)
        return Letters()(text)

    with Document(url=url, name="docs", embed={"letters": embed}) as docs:
        found = Retriever(docs, "line", embed_keys=["letters"])("tea")
    wanted = Retriever(remote.docs, "line", embed_keys=["letters"])("tea")
    assert [(node.uid, node.score) for node in found] == [(node.uid, node.score) for node in wanted]
    assert texts == ["tea"]
    with pytest.raises(ConfigError, match="embed keys of the service"):
        Document(url=url, name="docs", embed=embed)
    with pytest.raises(ConfigError, match="behaviour letters 1"):
        Document(url=url, name="docs", embed={"letters": Pairs()})


def test_a_language_that_the_model_does_not_know(tmp_path):
    """The service's model says so: scores are those of the library, and the query is not embedded."""

    class English(Pairs):
        def unknown_share(self, text):
            return 1.0 - sum(letter.isascii() for letter in text) / len(text)

    docs = Document(embed=English())
    docs.add_texts({"a": "绿茶", "b": "green tea"})
    with served({"docs": docs}, tmp_path) as url, Document(url=url, name="docs") as far:
        near, there = (HybridRetriever.over(one, "FineChunk") for one in (docs, far))
        for query in ("绿茶怎么泡", "green 茶", "tea"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = [[(node.uid, node.score) for node in one(query)] for one in (near, there)]
            assert found[0] == found[1]
            assert len(caught) == (2 if query[0] == "绿" else 0)
