"""`lazyrag.connect`: a set of a service, read and written by another program over HTTP."""

from __future__ import annotations

import asyncio
import time

import pytest

from lazyrag import DataType, DocField, Document, connect
from lazyrag.client import AsyncClient
from lazyrag.errors import AccessError, ConfigError, StoreConnectionError
from lazyrag.read import related as find_related

TEXTS = {
    "tea/green.md": "# Green tea\n\nGreen tea is brewed at eighty degrees.",
    "tea/black.md": "# Black tea\n\nBlack tea is brewed at a hundred degrees.",
    "coffee.md": "# Coffee\n\nCoffee is ground fine.",
}


@pytest.fixture(scope="module")
def docs():
    """A served Document."""
    fields = {"kind": DocField(DataType.VARCHAR)}
    with Document(manager=True, keep_versions=1, doc_fields=fields) as docs:
        docs.add_texts(TEXTS, {name: {"kind": name.partition("/")[0]} for name in TEXTS})
        docs.activate_group("MediumChunk", analysers=["zh", "en"])
        yield docs


@pytest.fixture
def client(docs):
    """A client of its service."""
    with connect(docs.status().url) as client:
        yield client


def finish(client, job):
    """The state of a job at its end."""
    for _ in range(600):
        state = client.job(job.id)
        if state.state not in ("WAITING", "WORKING"):
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_hits_equal_those_of_the_document(client, docs):
    """The same nodes, scores and order; entries are attributes and keys."""
    hits = client.search("brewed degrees", topk=2)
    expected = docs.search("brewed degrees", topk=2)
    assert [(hit.uid, hit.path) for hit in hits] == [(node.uid, node.path) for node in expected]
    assert hits[0]["text"] == hits[0].text == expected[0].text
    filtered = client.search("brewed degrees", filters={"kind": "tea"})
    assert {hit.path for hit in filtered} == {"tea/black.md", "tea/green.md"}
    with pytest.raises(AttributeError, match="page_content"):
        _ = hits[0].page_content


def test_reading_documents(client, docs):
    """Lists, texts, matches, related nodes, versions and differences."""
    assert [document.id for document in client.documents()] == sorted(TEXTS)
    assert client.read("tea/green.md") == docs.read("tea/green.md")
    [match] = client.grep("ground fine")
    assert (match.path, match.line) == ("coffee.md", "Coffee is ground fine.")
    [hit] = client.search("green", topk=1)
    related = client.related(hit.uid)
    assert (
        [node.uid for node in related] == [node.uid for node in find_related(docs, hit.uid)] != []
    )
    [version] = client.versions("coffee.md")
    assert version.is_live
    assert client.status().documents == len(TEXTS)
    with pytest.raises(ConfigError, match="no document 'missing"):
        client.versions("missing.md")


def test_an_answer_without_a_chat_model_has_its_passages(client):
    """The service says what it lacks."""
    answer = client.answer("How is green tea brewed?", topk=1)
    assert answer.hits[0].text.startswith("# Green tea")
    assert "chat model" in answer.problems[0].detail


def test_uploads_become_documents_and_versions(tmp_path):
    """Paths and bytes; a file that is sent again is compared with its previous version."""
    path = tmp_path / "oolong.md"
    with Document(manager=True, keep_versions=1) as docs, connect(docs.status().url) as client:
        for text in ("Oolong is rolled.", "Oolong is rolled twice."):
            path.write_text(text)
            sent = client.upload([path])
            assert finish(client, sent.job).state == "SUCCESS"
        assert [version.number for version in client.versions("oolong.md")] == [1, 2]
        assert "twice" in str(client.diff("oolong.md", 1, 2))
        finish(client, client.upload({"white.txt": b"White tea."}).job)
        assert client.read("white.txt") == "White tea."
        assert {job.state for job in client.jobs()} == {"SUCCESS"}


def test_the_same_methods_wait_in_asynchronous_programs(docs, client):
    """Each result equals that of the other client."""

    async def read():
        async with AsyncClient(docs.status().url) as other:
            [hit] = await other.search("ground", topk=1)
            return (
                hit,
                [document.id async for document in other.documents()],
                await other.read(hit.path),
                await other.grep("ground"),
                await other.related(hit.uid),
                await other.versions(hit.path),
                await other.status(),
                await other.jobs(),
                (await other.answer("ground?", topk=1)).hits,
            )

    [hit] = client.search("ground", topk=1)
    assert asyncio.run(read()) == (
        hit,
        [document.id for document in client.documents()],
        client.read(hit.path),
        client.grep("ground"),
        client.related(hit.uid),
        client.versions(hit.path),
        client.status(),
        client.jobs(),
        client.answer("ground?", topk=1).hits,
    )


def test_mistakes_are_named(docs):
    """A wrong address, a service that is not there, an unknown set, an invalid filter."""
    with pytest.raises(ConfigError, match="url must be the address"):
        connect("localhost")
    with (
        connect("http://127.0.0.1:9") as nobody,
        pytest.raises(StoreConnectionError, match="does not answer"),
    ):
        nobody.status()
    with (
        connect(docs.status().url, name="other") as client,
        pytest.raises(ConfigError, match="default"),
    ):
        client.status()
    with connect(docs.status().url) as client, pytest.raises(ConfigError, match="unknown"):
        client.search("tea", filters={"unknown": 1})
    with (
        connect(docs.status().url) as client,
        pytest.raises(ConfigError, match="files must be a list of paths"),
    ):
        client.upload("tea.md")


@pytest.mark.parametrize(("names", "known"), [((), "none"), (("a", "b"), "a, b")])
def test_the_name_of_a_set_is_needed_where_there_is_not_one(httpserver, names, known):
    """The message lists the sets."""
    sets = {"sets": [{"name": name} for name in names]}
    httpserver.expect_request("/api/v1/sets").respond_with_json(sets)
    message = rf"name must be a set of .*; got None\. Known: {known}\."
    with connect(httpserver.url_for("/")) as client, pytest.raises(ConfigError, match=message):
        client.status()


def test_a_refused_token_is_an_access_error(httpserver):
    """The message names the service and the argument, and the request has the token."""
    problem = {"detail": "The token is unknown.", "remedy": "Send another one."}
    header = {"Authorization": "Bearer lrg_wrong"}
    httpserver.expect_request("/api/v1/sets/notes/status", headers=header).respond_with_json(
        problem, 401
    )
    message = r"The token is unknown\. Pass a token .*token="
    client = connect(httpserver.url_for("/"), "lrg_wrong", "notes")
    with client, pytest.raises(AccessError, match=message):
        client.status()
