"""Shards on several machines, and replicas: `Document(url=[...])`, `Replica`, gateways."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest

from lazyrag import Document, HybridRetriever, Retriever
from lazyrag.document import Replica, shard_of
from lazyrag.document import remote as remote_module
from lazyrag.document.remote import Connection
from lazyrag.errors import AccessError, ConfigError, StoreConnectionError, StoreError
from lazyrag.server.access import Access
from lazyrag.server.app import create_app
from lazyrag.server.config import SetConfig, read_config
from lazyrag.server.service import Service
from tests.server.test_remote import served, unused_url  # noqa: F401  a fixture

SHARDS = 4
QUERIES = ("green tea", "leaf 3 leaf", "brewed at eighty degrees", "绿茶", "no such words", "press 11 leaf")


def embed(text):
    """A vector without a model."""
    return [float(len(text)), float(text.count("e")), float(text.count("a"))]


embed.identity = "letters e and a"


def texts(count=40):
    """Documents that share some words."""
    return {
        f"t{n}.txt": f"Green tea {n} is brewed at eighty degrees.\n\nLeaf {n % 7} of press {n}. 绿茶"
        for n in range(count)
    }


def serve(stack, docs, state, access=None, *, port=0, token=None):
    """The address of a service that has answered once.

    FastAPI makes its routes at the first request and ignores warnings meanwhile: two threads cannot do so at a time.
    """
    url = stack.enter_context(served({"default": docs}, state, access, port))
    Document(url=url, token=token).close()
    return url


def built(docs):
    """A Document with the texts, and its indexes."""
    docs.add_texts(texts())
    docs.activate_group("FineChunk", analysers=["en", "zh"], embed_keys=docs.embed_keys)
    return docs


def ranked(retriever, query, **more):
    """Uids, scores and texts."""
    return [(node.uid, node.score, node.text) for node in retriever(query, **more)]


@pytest.fixture(scope="module")
def one():
    """One index."""
    with Document(embed=embed) as docs:
        yield built(docs)


@pytest.fixture(scope="module")
def sharded():
    """Four shards in this program."""
    with Document(embed=embed, shards=SHARDS) as docs:
        yield built(docs)


@pytest.fixture(scope="module")
def urls(sharded, tmp_path_factory):
    """Their services."""
    with ExitStack() as stack:
        state = tmp_path_factory.mktemp("state")
        yield [serve(stack, shard, state / str(number)) for number, shard in enumerate(sharded.shards)]


@pytest.fixture
def remote(urls):
    """The shards as one Document."""
    with Document(url=urls) as docs:
        yield docs


def test_shards_answer_as_one_index(one, remote):
    """Keyword, vector and hybrid search, filters, targets, restricted views and feedback: the same floats and order."""
    where = {"file_name": [f"t{n}.txt" for n in range(0, 40, 3)]}
    for query in QUERIES:
        for make in (
            lambda docs: Retriever(docs, "FineChunk", similarity="bm25"),
            lambda docs: Retriever(docs, "FineChunk", topk=90),
            lambda docs: HybridRetriever.over(docs, "FineChunk"),
            lambda docs: Retriever(docs, "FineChunk", similarity="bm25_chinese", target="lazyllm_root"),
            lambda docs: Retriever(docs.restricted(where), "FineChunk", similarity="bm25"),
            lambda docs: Retriever(docs, "FineChunk").with_feedback(docs.get_nodes("FineChunk", limit=2)),
        ):
            assert ranked(make(remote), query) == ranked(make(one), query)
        plain = Retriever(one, "FineChunk", similarity="bm25")
        assert ranked(Retriever(remote, "FineChunk", similarity="bm25"), query, filters=where) == ranked(
            plain, query, filters=where
        )


def test_nodes_of_shards(one, remote):
    """Nodes, their neighbours, documents and texts; the order of the addresses does not matter."""
    found, expected = (docs.get_nodes("FineChunk") for docs in (remote, one))
    assert [node.uid for node in found] == [node.uid for node in expected]
    assert [node.parent.uid for node in found] == [node.parent.uid for node in expected]
    assert remote.read("t7.txt") == one.read("t7.txt")
    assert [info.id for info in remote.documents(limit=15)] == [info.id for info in one.documents(limit=15)]
    assert remote.status().documents == 40
    assert [match.path for match in remote.grep("press 3")] == [match.path for match in one.grep("press 3")]
    with pytest.raises(ConfigError, match="only reads"):
        remote.add_texts({"new": "text"})


def test_the_order_of_the_addresses(urls, remote):
    """It does not matter; what is not one address for each shard is an error."""
    with Document(url=urls[::-1]) as other:
        assert other.url == remote.url
    for wrong in (urls[:3], [*urls[:3], urls[0]], [], [[]]):
        with pytest.raises(ConfigError, match="url must"):
            Document(url=wrong)


def test_a_dead_shard_is_named(sharded, urls, unused_url):  # noqa: F811
    """An error by default; with partial=True the others answer as one index of their documents, and it is named."""
    addresses = [*urls[:2], unused_url, urls[3]]
    with pytest.raises(StoreConnectionError, match=unused_url):
        Document(url=addresses)
    rest = {name: text for name, text in texts().items() if sharded.shard_of(name) is not sharded.shards[2]}
    with Document(url=addresses, partial=True) as docs, Document() as others:
        others.add_texts(rest)
        retrievers = [Retriever(one, "FineChunk", similarity="bm25", topk=50) for one in (docs, others)]
        for query in QUERIES:
            with (
                pytest.warns(UserWarning, match=unused_url)
                if query != "no such words"
                else warnings.catch_warnings(action="ignore")
            ):
                found = ranked(retrievers[0], query)
            assert found == ranked(retrievers[1], query)
        with pytest.warns(UserWarning, match=unused_url):
            assert unused_url in str(retrievers[0].explain("tea"))
        assert docs.missing == (unused_url,)
        with pytest.warns(UserWarning, match=unused_url):
            assert len(docs.documents(limit=100)) == len(rest)


@pytest.fixture
def hanging_url():
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_shard_that_hangs(sharded, urls, hanging_url, tmp_path, monkeypatch):
    """It is down: an error, a part of the answer, or its replica's matter; a slow one that runs is waited for."""
    monkeypatch.setattr(remote_module, "_CHECK_S", 0.05)
    with served({"default": sharded.shards[2]}, tmp_path) as url:
        Document(url=url).close()
        run, waits = Service.run, [0.5]

        async def slow(self, *given, **more):
            await asyncio.sleep(waits.pop() if waits else 0)
            return await run(self, *given, **more)

        monkeypatch.setattr(Service, "run", slow)
        with Document(url=[*urls[:2], url, urls[3]]) as docs:
            assert ranked(Retriever(docs, "FineChunk", similarity="bm25"), "tea")
        monkeypatch.setattr(Service, "run", run)
    monkeypatch.setattr(remote_module, "_ALIVE_S", 0.5)
    addresses = [*urls[:2], hanging_url, urls[3]]
    with pytest.raises(StoreConnectionError, match=hanging_url):
        Document(url=addresses)
    with Document(url=addresses, partial=True) as docs:
        with pytest.warns(UserWarning, match=hanging_url):
            assert ranked(Retriever(docs, "FineChunk", similarity="bm25"), "tea tea leaf")
        assert docs.missing == (hanging_url,)
    with Document(url=[*urls[:2], [hanging_url, urls[2]], urls[3]]) as docs:
        pair = [ranked(Retriever(one, "FineChunk", similarity="bm25"), "tea") for one in (docs, sharded)]
        assert pair[0] == pair[1]


def test_a_shard_that_dies_and_comes_back(sharded, tmp_path):
    """A read that begins again without it, and later reads with it."""
    with ExitStack() as stack:
        live = [serve(stack, one, tmp_path / str(n)) for n, one in enumerate(sharded.shards[:3])]
        last = ExitStack()
        url = serve(last, sharded.shards[3], tmp_path / "3")
        docs = stack.enter_context(Document(url=[*live, url], partial=True))
        retriever = Retriever(docs, "FineChunk", similarity="bm25", topk=90)
        complete = ranked(retriever, "tea")
        last.close()
        with pytest.warns(UserWarning, match=url):
            fewer = ranked(retriever, "tea")
        assert 0 < len(fewer) < len(complete)
        port = int(url.rpartition(":")[2])
        serve(stack, sharded.shards[3], tmp_path / "3", port=port)
        for shard in docs.shards:
            shard._indexer._connection._retry_at = [0.0]  # the pause is over
        assert ranked(retriever, "tea") == complete
        assert docs.missing == ()


def test_shards_that_are_down_in_turn(urls, unused_url):  # noqa: F811
    """Those that were down before the last pause are asked, and do not count when another one is down."""
    with Document(url=[*urls[:3], unused_url], partial=True) as docs:
        for shard in docs.shards[:3]:
            shard._indexer.down = "as of the read before"
        with pytest.warns(UserWarning, match=unused_url):
            assert ranked(Retriever(docs, "FineChunk", similarity="bm25"), "tea")
        assert docs.missing == (unused_url,)


def test_reads_take_another_replica(sharded, urls, unused_url, tmp_path):  # noqa: F811
    """A replica that is down, or goes down between two reads, is no error."""
    expected = ranked(Retriever(sharded, "FineChunk", similarity="bm25"), "green tea")
    with Document(url=[[unused_url, urls[0]], *urls[1:]]) as docs:
        assert ranked(Retriever(docs, "FineChunk", similarity="bm25"), "green tea") == expected
    with served({"default": sharded.shards[0]}, tmp_path / "state") as url:
        docs = Document(url=[[url, urls[0]], *urls[1:]])
        retriever = Retriever(docs, "FineChunk", similarity="bm25")
        assert ranked(retriever, "green tea") == expected
    with docs:
        assert ranked(retriever, "green tea") == expected


def test_tokens(sharded, tmp_path):
    """One for each shard; a wrong one is an error, never a missing shard."""
    with ExitStack() as stack:
        addresses, secrets = [], []
        for number, shard in enumerate(sharded.shards):
            access = Access(tmp_path / str(number))
            secrets.append(access.create("read", name="gateway")[1])
            addresses.append(serve(stack, shard, tmp_path / str(number), access, token=secrets[-1]))
        for wrong in (None, secrets[0], secrets[::-1]):
            with pytest.raises(AccessError):
                Document(url=addresses, token=wrong)
        with Document(url=addresses, token=secrets) as docs:
            assert Retriever(docs, "FineChunk", similarity="bm25")("tea")
        with pytest.raises(ConfigError, match="one for each shard"):
            Document(url=addresses, token=secrets[:2])


# Replicas


def store(path):
    """A store file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}


def follow(path, url):
    """A replica in a file."""
    docs = Document(embed=embed, store_conf=store(path))
    replica = Replica(docs, url)
    docs.activate_group("FineChunk", analysers=["en", "zh"], embed_keys=docs.embed_keys)
    return docs, replica


@pytest.fixture
def source(tmp_path):
    """A Document in a file, and its service."""
    with Document(embed=embed, store_conf=store(tmp_path / "source.db")) as docs:
        built(docs)
        with served({"default": docs}, tmp_path / "state") as url:
            yield docs, url


def test_a_replica_follows(source, tmp_path):
    """Added, changed and deleted documents, vectors and metadata: the dumps are equal after each step."""
    docs, url = source
    copy, replica = follow(tmp_path / "copy.db", url)
    with copy:
        assert replica.lag_s is None
        assert (replica.pull(), replica.pull()) == (40, 0)
        assert list(copy.dump()) == list(docs.dump())
        assert replica.lag_s < 60
        docs.delete_files(["t1.txt", "t2.txt"])
        docs.add_texts({"t3.txt": "changed", "new.txt": "added"})
        docs.update_metadata({"t4.txt": {"author": "Lu Yu"}})
        assert replica.pull() == 5
        assert list(copy.dump()) == list(docs.dump())
        for query in QUERIES:
            pair = [ranked(HybridRetriever.over(one, "FineChunk"), query) for one in (copy, docs)]
            assert pair[0] == pair[1]
        assert copy.verify() == ()
    again, replica = follow(tmp_path / "copy.db", url)
    with again:
        assert replica.pull() == 0


@pytest.mark.slow
def test_a_replica_runs(source, tmp_path):
    """In a thread, also while the service lacks a group or does not answer."""
    docs, url = source
    copy, replica = follow(tmp_path / "copy.db", url)
    stop = threading.Event()
    thread = threading.Thread(target=replica.run, args=[stop], kwargs={"poll_s": 0.02})
    with copy:
        copy.activate_group("CoarseChunk")
        with pytest.raises(StoreError, match="CoarseChunk"):
            replica.pull()
        thread.start()
        docs.activate_group("CoarseChunk")
        docs.add_texts({"new.txt": "added"})
        until = time.monotonic() + 60
        while list(copy.dump()) != list(docs.dump()) and time.monotonic() < until:
            time.sleep(0.05)
        stop.set()
        thread.join()
        assert list(copy.dump()) == list(docs.dump())


@pytest.mark.slow
def test_a_replica_that_missed_a_deletion(source, tmp_path):
    """What was removed from the service's record of changes meanwhile is deleted, too."""
    docs, url = source
    copy, replica = follow(tmp_path / "copy.db", url)
    with copy:
        replica.pull()
        docs.delete_files(["t1.txt"])
        docs.reader.indexer.ledger.documents.delete_document_rows()
        with docs.reader.indexer.writing(), docs.reader.indexer.ledger.writing() as connection:
            connection.execute("UPDATE document SET changed = 0 WHERE status = 'deleted'")
        docs.add_texts({"new.txt": "added"})
        replica.pull()
        assert list(copy.dump()) == list(docs.dump())


def test_a_replica_of_a_busy_service(source, tmp_path, monkeypatch):
    """All documents are compared now and then, not at each pull, where some change during each comparison."""
    docs, url = source
    copy, replica = follow(tmp_path / "copy.db", url)
    ask, compared = replica._ask, []

    def slow(*, has_rows=False):
        if has_rows:
            compared.append(len(compared))
            docs.add_texts({f"n{len(compared)}": "meanwhile"})
            time.sleep(1)
        return ask(has_rows=has_rows)

    with copy:
        monkeypatch.setattr(replica, "_ask", slow)
        assert [replica.pull() for _ in range(3)] == [40, 1, 0]
        assert compared == [0]
        monkeypatch.setattr(replica, "_ask", ask)
        replica._compare_at = 0.0  # the pause is over
        replica.pull()
        assert replica._compared
        assert list(copy.dump()) == list(docs.dump())


def test_a_replica_of_a_restored_store(tmp_path):
    """Also if the restored store has gone on since, to as many documents and changes: the replica has the new ones."""
    conf, backup = store(tmp_path / "source.db"), tmp_path / "backup"
    with Document(store_conf=conf) as docs:
        docs.add_texts({"a": "one", "b": "two"})
    shutil.copytree(tmp_path, backup, ignore=shutil.ignore_patterns("backup"))
    with ExitStack() as stack:
        copy, replicas = stack.enter_context(Document()), []
        for number in range(2):
            with Document(store_conf=conf) as docs, served({"default": docs}, tmp_path / "state") as url:
                replica = replicas[0] if replicas else Replica(copy, url)
                replicas, replica._connection = [replica], Connection(url, None)
                for at, name in enumerate(("cc", "dbbb")[number]):
                    docs.add_texts({name: f"text {at}"})
                replica.pull()
                assert replica.pull() == 0
                assert list(copy.dump()) == list(docs.dump())
            shutil.copytree(backup, tmp_path, dirs_exist_ok=True)


@pytest.mark.slow
def test_what_a_replica_refuses(source, tmp_path):
    """Other definitions, own documents, labels."""
    _, url = source
    with Document() as own:
        own.add_texts({"own": "text"})
        with pytest.raises(ConfigError, match="documents or files of its own"):
            Replica(own, url)
    with Document(doc_fields=None) as other:
        replica = Replica(other, url)
        other.create_node_group("FineChunk", transform=lambda text: text.split(), replace=True)
        other.activate_group("FineChunk")
        with pytest.raises(ConfigError, match="differently"):
            replica.pull()


KILLED = """
import os, sys, threading
from tests.server.test_shards import follow
docs, replica = follow(sys.argv[1], sys.argv[2])
number = [int(sys.argv[3])]
def trace(frame, event, _):
    if event == "call" and frame.f_code.co_filename.endswith(("ledger.py", "replica.py", "ingest.py")):
        number[0] -= 1
        if not number[0]:
            os.kill(os.getpid(), 9)
sys.setprofile(trace)
replica.pull()
"""


def kill_after(calls, path, url):
    """Copy in a process that is killed in one of its calls; returns whether it was."""
    command = [sys.executable, "-c", KILLED, str(path), url, str(calls)]
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    return subprocess.run(command, env=env, check=False, capture_output=True).returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    "calls",
    [
        30,
        400,
        pytest.param(90, marks=pytest.mark.exhaustive),
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in range(10, 1500, 80)),
    ],
)
def test_a_killed_replica_goes_on(source, tmp_path, calls):
    """Wherever it is killed, the next process ends with an equal copy."""
    docs, url = source
    path = tmp_path / "copy.db"
    is_killed = kill_after(calls, path, url)
    assert is_killed or calls > 400
    copy, replica = follow(path, url)
    with copy:
        replica.pull()
        assert list(copy.dump()) == list(docs.dump())
        assert copy.verify() == ()


# Gateways


def test_a_gateway_shows_one_set(one, remote, tmp_path):
    """Search, nodes, documents, groups and pages of a set whose shards are elsewhere."""
    from fastapi.testclient import TestClient

    local = {
        "base_url": "http://127.0.0.1",
        "client": ("127.0.0.1", 50_000),
        "headers": {"Sec-Fetch-Site": "same-origin"},
    }
    answers = []
    for docs in (remote, one):
        app = create_app(Service({"notes": docs}, tmp_path / "gateway"))
        with TestClient(app, raise_server_exceptions=False, **local) as client:
            found = client.post("/api/v1/sets/notes/search", json={"query": "green tea", "group": "FineChunk"}).json()
            assert found.pop("partial") == []
            listed = client.get("/api/v1/sets/notes/documents").json()
            grep = client.post("/api/v1/sets/notes/grep", json={"text": "press 3"}).json()
            tree = client.get("/api/v1/sets/notes/tree").json()
            surplus = {"method": "document", "arguments": ["t1.txt", "t2.txt"]}
            assert client.post("/api/v1/sets/notes/_catalogue", json=surplus).status_code == 422
            answers.append((found, [one["id"] for one in listed["documents"]], grep, tree["groups"]))
            for path in ("/", "/s/notes/files", "/s/notes/files/t1.txt", "/s/notes/search?q=tea", "/s/notes/groups"):
                assert client.get(path).status_code == 200, path
            if docs is remote:
                refused = client.post("/api/v1/sets/notes/texts", json={"texts": {"a": "b"}})
                assert (refused.status_code, "only reads" in refused.text) == (400, True)
    assert answers[0] == answers[1]


def test_a_gateway_names_missing_shards(urls, unused_url, tmp_path):  # noqa: F811
    """In the JSON of a search, and among the problems of an answer."""
    from fastapi.testclient import TestClient

    with Document(url=[*urls[:3], unused_url], partial=True) as docs, warnings.catch_warnings(action="ignore"):
        app = create_app(Service({"notes": docs}, tmp_path / "gateway"))
        with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)) as client:
            body = {"query": "green tea", "group": "FineChunk"}
            found = client.post("/api/v1/sets/notes/search", json=body).json()
            assert (found["partial"], len(found["hits"])) == ([unused_url], 6)
            answer = client.post("/api/v1/sets/notes/answers", json={"question": "tea", "group": "FineChunk"}).json()
            assert any(unused_url in one["detail"] for one in answer["problems"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('url = ["http://a"]\npath = "files"', "must have one of path, url"),
        ('url = ["http://a"]\nshard = "0/4"', "must have no store, embed or setup with url"),
        ('shard = "4/4"', "must have a shard from 0/4 to 3/4"),
        ("partial = 3", "partial"),
        ('url = ["http://a"]\ntoken = "$NO_SUCH_VARIABLE"', "token.*NO_SUCH_VARIABLE"),
    ],
)
def test_configurations(tmp_path, table, message):
    """What contradicts itself is an error that names the key."""
    file = tmp_path / "service.toml"
    file.write_text(f"[server]\n[sets.notes]\n{table}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_config(file)


def test_a_served_shard_takes_its_own_files(tmp_path):
    """A file of the folder is known by its path in it, as its shard is; those of others are refused by name."""
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    names = [f"sub/t{number}.txt" for number in range(12)]
    for name in names:
        (folder / name).write_text("green tea", encoding="utf-8")
    own = [name for name in names if shard_of(name, 2) == 0]
    with SetConfig(path=folder, shard="0/2").open(folder, None, {}) as docs:
        assert docs.add_files([folder / name for name in own]).added == tuple(sorted(own))
        assert docs.add_files([str(folder / own[0])]).unchanged == (own[0],)
        other = next(name for name in names if name not in own)
        with pytest.raises(ConfigError, match=f"{other}.*shard 1 of 2"):
            docs.add_files([folder / other])


def test_statistics_of_an_earlier_read(tmp_path):
    """Terms that were met are counted again after a change; nothing of an older state is served."""
    with ExitStack() as stack:
        docs = stack.enter_context(Document(shards=2))
        docs.add_texts(texts(12))
        docs.activate_group("FineChunk", analysers=["en"])
        addresses = [serve(stack, one, tmp_path / str(number)) for number, one in enumerate(docs.shards)]
        remote = stack.enter_context(Document(url=addresses))
        pair = [Retriever(one, "FineChunk", similarity="bm25", topk=30) for one in (docs, remote)]
        posts = []
        for shard in remote.shards:
            [connection] = shard._indexer._connection._replicas
            connection._send = lambda *given, send=connection._send: posts.append(given[0]) or send(*given)
        for number in range(4):
            posts.clear()
            for query in ("green tea", "tea tea leaf", "leaf green"):
                assert ranked(pair[1], query) == ranked(pair[0], query)
            assert len(posts) == (10 if number == 0 else 6)
            assert ranked(pair[1], "leaf green") == ranked(pair[0], "leaf green")
        docs.add_texts({f"n{number}.txt": "green leaf, green tea" for number in range(5)})
        for query in ("green tea", "leaf green"):
            assert ranked(pair[1], query) == ranked(pair[0], query)
            restricted = [one.restricted({"file_name": ["n1.txt", "t1.txt"]}) for one in (docs, remote)]
            found = [ranked(Retriever(one, "FineChunk", similarity="bm25"), query) for one in restricted]
            assert found[0] == found[1]


def test_a_hybrid_search_is_one_request(tmp_path):
    """Each shard gets both rankings together, or before them the vectors' one with the statistics of terms."""
    with ExitStack() as stack:
        one = built(stack.enter_context(Document(embed=embed)))
        docs = built(stack.enter_context(Document(embed=embed, shards=2)))
        addresses = [serve(stack, shard, tmp_path / str(number)) for number, shard in enumerate(docs.shards)]
        remote = stack.enter_context(Document(url=addresses, embed=embed))
        posts = []
        for shard in remote.shards:
            [connection] = shard._indexer._connection._replicas
            connection._send = lambda *given, send=connection._send: posts.append(given[0]) or send(*given)
        pair = [HybridRetriever.over(each, "FineChunk") for each in (one, remote)]
        counts = []
        for query in (QUERIES[0], QUERIES[0], QUERIES[1], QUERIES[1]):
            posts.clear()
            assert ranked(pair[1], query) == ranked(pair[0], query)
            counts.append(sum(b"/_together " in each or b"/_rank " in each for each in posts))
        assert counts == [4, 2, 4, 2]


def test_queries_between_changes(tmp_path):
    """Keyword, vector and hybrid search answer as one index after every change, also with rankings of many nodes."""
    with ExitStack() as stack:
        one = built(stack.enter_context(Document(embed=embed)))
        docs = built(stack.enter_context(Document(embed=embed, shards=2)))
        addresses = [serve(stack, shard, tmp_path / str(number)) for number, shard in enumerate(docs.shards)]
        remote = stack.enter_context(Document(url=addresses))
        retrievers = [
            [
                make(each)
                for make in (
                    lambda each: Retriever(each, "FineChunk", "bm25", topk=60),
                    lambda each: Retriever(each, "FineChunk", topk=60),
                    lambda each: HybridRetriever.over(each, "FineChunk", topk=60),
                )
            ]
            for each in (one, remote)
        ]
        for number in range(6):
            for each in (one, docs):  # the first shards change at one time, the second ones at another
                each.add_texts({f"n{number}.txt": f"Green leaf {number} and leaf {number}"})
                if number % 2:
                    each.delete_files([f"t{number}.txt"])
            for expected, got in zip(*retrievers, strict=True):
                for query in QUERIES[:3]:
                    assert ranked(got, query) == ranked(expected, query)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("HTTP/1.1 200 OK\r\nContent-Length: 8", b'{"a": 1}'),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", b'3\r\n{"a\r\n5;x=y\r\n": 1}\r\n0\r\n\r\n'),
        ("HTTP/1.1 200 OK\r\nconnection: close", b'{"a": 1}'),
        ("HTTP/1.0 200 OK\r\nCONTENT-LENGTH:8", b'{"a": 1}'),
    ],
    ids=["length", "chunks", "close", "1.0"],
)
def test_answers_of_proxies(head, body):
    """A proxy in between may send an answer in each way that HTTP has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            for _ in range(2):
                if not links or "1.0" in head or "close" in head:
                    links.append(listener.accept()[0])
                data = b""
                while not data.endswith(b"\r\n\r\n{}"):
                    data += links[-1].recv(1 << 16)
                links[-1].sendall(head.encode() + b"\r\nX-Other: a: b\r\n\r\n" + body)
                if "1.0" in head or "close" in head:
                    links[-1].close()

        links = []
        thread = threading.Thread(target=answer)
        thread.start()
        connection = Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", None)
        assert [connection.post("x", {}) for _ in range(2)] == [{"a": 1}] * 2
        thread.join()
        connection.close()
        for link in links:
            link.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", "not as a service of lazyrag"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200, "headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "status 200, and not as a service of lazyrag"),
    ],
    ids=["end early", "too many", "sign-in page of a proxy"],
)
def test_what_is_no_answer(answer, message):
    """Headers that end early, or are too many, and a body that is no JSON."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_once():
            link = listener.accept()[0]
            link.recv(1 << 16)
            link.sendall(answer)
            link.close()

        thread = threading.Thread(target=serve_once)
        thread.start()
        connection = Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", None)
        with pytest.raises(StoreConnectionError, match=message):
            connection.post("x", {})
        thread.join()
