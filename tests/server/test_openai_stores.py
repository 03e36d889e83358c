"""OpenAI's files, uploads and vector stores: by its client, with filters, labels, and hostile
values.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
from functools import partial
from urllib.parse import quote

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI, NotFoundError, OpenAI

from lazyrag import DataType, DocField, Document
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, bind_filter, matches
from lazyrag.project import label_fields
from lazyrag.server.app import create_app
from lazyrag.server.core.service import Service
from lazyrag.server.jobs import Worker
from lazyrag.server.openai.protocol import attributes_of, filter_of, metadata_of
from lazyrag.server.openai.stores import StoreSearch
from tests.server.running import serving, wait_for

TEXTS = {
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.",
    "coffee.txt": "Coffee is ground fine for espresso.",
    "cocoa.txt": "Cocoa is stirred into hot milk.",
}
CASES = int(os.environ.get("LAZYRAG_CASES", "300"))
"""Cases of each property test; by hand with more."""


@pytest.fixture
def openai(client):
    """The official client."""
    return OpenAI(base_url="http://127.0.0.1/v1", api_key="any", http_client=client, max_retries=0)


def fill(openai, attributes=None, **more):
    """Make a vector store of `TEXTS`; returns it, and the ids of the files by name."""
    files = {
        name: openai.files.create(file=(name, text.encode()), purpose="assistants").id
        for name, text in TEXTS.items()
    }
    store = openai.vector_stores.create(**more)
    wanted = [
        {"file_id": own, "attributes": (attributes or {}).get(name, {})}
        for name, own in files.items()
    ]
    batch = openai.vector_stores.file_batches.create_and_poll(
        store.id, files=wanted, poll_interval_ms=50
    )
    assert (batch.status, batch.file_counts.completed) == ("completed", 3)
    return openai.vector_stores.retrieve(store.id), files


@pytest.mark.parametrize(
    "fields", [{}, {"purpose": "none"}, {"purpose": "assistants", "expires_after": "1"}]
)
def test_refused_files_are_not_stored(client, service, fields):
    """Nobody could delete them."""
    file = ("file", ("tea.txt", b"Sencha."))
    assert client.post("/v1/files", files=[file], data=fields).status_code == 400
    assert (
        client.post("/v1/files", files=[file, file], data={"purpose": "assistants"}).status_code
        == 400
    )
    assert not [path for path in (service.state / "uploads").rglob("*") if path.is_file()]


def names(openai, store, query="tea coffee cocoa", **more):
    """Names of the files that a search finds."""
    return {one.filename for one in openai.vector_stores.search(store.id, query=query, **more).data}


def test_errors_have_openai_s_shape(client, access):
    """Every error below /v1 is what OpenAI's clients read: unknown routes, missing tokens, invalid
    values.
    """
    error = client.get("/v1/nothing").json()["error"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        None,
        "not_found",
    )
    assert "/v1/nothing" in error["message"]
    access.create("read")
    refused = client.get("/v1/files", headers={"Authorization": "Bearer lrg_no"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert client.get("/api/v1/nothing").json().keys() >= {"detail", "remedy", "request_id"}


# The client


def test_from_files_to_search(openai, following):
    """Files are uploaded, put into a vector store as a batch, and searched with filters on their
    attributes.
    """
    years = {
        "tea.md": {"year": 2020, "Ω ": True},
        "coffee.txt": {"year": 2024},
        "cocoa.txt": {"year": 2024.5},
    }
    store, files = fill(openai, years, name="Hot drinks", metadata={"team": "kitchen"})
    assert openai.files.content(files["tea.md"]).read() == TEXTS["tea.md"].encode()
    assert (store.status, store.file_counts.total, store.name) == ("completed", 3, "Hot drinks")
    assert store.metadata == {"team": "kitchen"}
    found = openai.vector_stores.search(store.id, query="How hot is green tea?").data
    assert (found[0].file_id, found[0].filename) == (files["tea.md"], "tea.md")
    assert found[0].attributes == {"year": 2020, "Ω ": True}
    assert found[0].content[0].text == TEXTS["tea.md"]
    assert 0 < found[0].score <= 1
    late = {
        "type": "and",
        "filters": [
            {"type": "gt", "key": "year", "value": 2020},
            {"type": "lt", "key": "year", "value": 2024.5},
        ],
    }
    assert names(openai, store, filters=late) == {"coffee.txt"}
    strict = openai.vector_stores.search(
        store.id, query="tea", ranking_options={"score_threshold": 1.0}
    ).data
    assert strict == []
    [item] = openai.vector_stores.search(
        store.id, query="espresso", extra_query={"include": "details"}
    ).data
    assert item.details["location"] == "line 1"
    assert item.details["score"] > item.score


def test_uploads_in_parts(openai, tmp_path, following):
    """A file that the client uploads in parts can be put into a vector store like any other."""
    file = tmp_path / "long.txt"
    file.write_text("Rooibos is red. " * 1_000)
    upload = openai.uploads.upload_file_chunked(
        file=file, mime_type="text/plain", purpose="assistants", part_size=4_096
    )
    store = openai.vector_stores.create(file_ids=[upload.file.id])
    wait_for(lambda: openai.vector_stores.retrieve(store.id).status == "completed", "the file")
    assert (
        openai.vector_stores.files.retrieve(upload.file.id, vector_store_id=store.id).usage_bytes
        == 16_000
    )
    assert names(openai, store, "rooibos") == {"long.txt"}


def test_the_asynchronous_client(app, following):
    """The asynchronous client goes the same way, and pages of a list lead to the next ones."""

    async def run():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport) as http:
            openai = AsyncOpenAI(
                base_url="http://127.0.0.1/v1", api_key="any", http_client=http, max_retries=0
            )
            store = await openai.vector_stores.create(name="Teas")
            batch = await openai.vector_stores.file_batches.upload_and_poll(
                store.id,
                files=[(name, text.encode()) for name, text in TEXTS.items()],
                poll_interval_ms=50,
            )
            assert batch.file_counts.completed == 3
            listed = [one.id async for one in openai.vector_stores.files.list(store.id, limit=1)]
            assert len(set(listed)) == 3
            found = await openai.vector_stores.search(store.id, query="espresso")
            assert [one.filename for one in found.data] == ["coffee.txt"]
            await openai.vector_stores.delete(store.id)
            with pytest.raises(NotFoundError, match="No such vector store"):
                await openai.vector_stores.retrieve(store.id)

    asyncio.run(run())


def test_sets_of_the_configuration(openai, docs, client):
    """They are vector stores whose documents are files: listed, read and searched, but not
    deleted.
    """
    [store] = openai.vector_stores.list().data
    assert (store.name, store.file_counts.completed, store.status) == ("notes", 3, "completed")
    listed = openai.vector_stores.files.list(store.id).data
    assert {one.chunking_strategy.type for one in listed} == {"other"}
    [hit, *_] = openai.vector_stores.search(store.id, query="green tea").data
    assert hit.filename == "tea.md"
    assert hit.file_id in {one.id for one in listed}
    assert openai.files.retrieve(hit.file_id).filename == "tea.md"
    assert openai.files.content(hit.file_id).read().startswith(b"# Tea")
    content = openai.vector_stores.files.content(hit.file_id, vector_store_id=store.id)
    assert "eighty degrees" in content.data[0].text
    assert client.delete(f"/v1/vector_stores/{store.id}").status_code == 409
    answer = client.delete(f"/v1/files/{hit.file_id}")
    assert (answer.status_code, "vector store" in answer.json()["error"]["message"]) == (400, True)
    refused = client.post(
        f"/v1/vector_stores/{store.id}/files", json={"file_id": hit.file_id, "attributes": {"a": 1}}
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "attributes")
    stop = threading.Event()
    thread = threading.Thread(target=Worker(docs).run, args=[stop])
    thread.start()
    openai.vector_stores.files.delete(hit.file_id, vector_store_id=store.id)
    stop.set()
    thread.join()
    assert hit.file_id not in {one.id for one in openai.vector_stores.files.list(store.id)}


@pytest.mark.slow
def test_sizes_of_chunks(openai, following):
    """Each file is split in the sizes that it came with."""
    text = " ".join(f"Sentence number {at} is about tea." for at in range(200)).encode()
    store = openai.vector_stores.create()
    counts = {}
    for size in (100, 1_000):
        static = {
            "type": "static",
            "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": 0},
        }
        file = openai.files.create(file=(f"{size}.txt", text), purpose="assistants")
        added = openai.vector_stores.files.create_and_poll(
            file.id, vector_store_id=store.id, chunking_strategy=static
        )
        assert (added.status, added.chunking_strategy.static.max_chunk_size_tokens) == (
            "completed",
            size,
        )
        found = openai.vector_stores.search(store.id, query="sentence tea", max_num_results=50).data
        counts[size] = len([one for one in found if one.filename == f"{size}.txt"])
    assert counts[100] > 4 * counts[1_000] > 0


def test_what_expires(openai, service, following):
    """An expired vector store is not searched until it is changed; an expired file is gone, and so
    is its document.
    """
    store, files = fill(openai, expires_after={"anchor": "last_active_at", "days": 1})
    records = service.records
    records.write("UPDATE store SET active = 1 WHERE id = ?", store.id)
    assert openai.vector_stores.retrieve(store.id).status == "expired"
    with pytest.raises(Exception, match="expired"):
        openai.vector_stores.search(store.id, query="tea")
    openai.vector_stores.update(store.id, expires_after=None)
    assert names(openai, store) == set(TEXTS)
    records.write("UPDATE file SET expires = 1 WHERE id = ?", files["tea.md"])
    (records.folder / "swept").unlink(missing_ok=True)
    with pytest.raises(NotFoundError):
        openai.files.retrieve(files["tea.md"])
    assert files["tea.md"] not in {one.id for one in openai.files.list()}
    wait_for(lambda: names(openai, store) == {"coffee.txt", "cocoa.txt"}, "the removal")


@pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")
def test_failed_files(openai, following):
    """A failed file says why until it is removed from the vector store, or deleted."""
    ids = [
        openai.files.create(file=(f"{at}.docx", b"no archive %d" % at), purpose="assistants").id
        for at in range(2)
    ]
    store = openai.vector_stores.create(name="Broken")
    failed = openai.vector_stores.files.create_and_poll(
        ids[0], vector_store_id=store.id, poll_interval_ms=50
    )
    assert (failed.status, failed.last_error.code) == ("failed", "invalid_file")
    openai.vector_stores.files.create_and_poll(
        ids[1], vector_store_id=store.id, poll_interval_ms=50
    )
    openai.vector_stores.files.delete(ids[0], vector_store_id=store.id)
    openai.files.delete(ids[1])
    wait_for(lambda: not list(openai.vector_stores.files.list(store.id)), "the removal")


def test_a_cancelled_batch(openai, docs):
    """What no worker has begun is not added when its batch is cancelled."""
    [store] = openai.vector_stores.list().data
    file = openai.files.create(file=("new.txt", b"Mate."), purpose="assistants")
    batch = openai.vector_stores.file_batches.create(store.id, file_ids=[file.id])
    assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 1)
    batch = openai.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
    assert (batch.status, batch.file_counts.cancelled) == ("cancelled", 1)
    assert (
        openai.vector_stores.files.retrieve(file.id, vector_store_id=store.id).status == "cancelled"
    )
    assert Worker(docs).run_one() is None
    assert openai.vector_stores.retrieve(store.id).file_counts.to_dict() == {
        "in_progress": 0,
        "completed": 3,
        "failed": 0,
        "cancelled": 1,
        "total": 4,
    }


def test_equal_files_and_names(openai, following):
    """The same content under the same name is the same file; under another name it is another
    one.
    """
    first, again = (
        openai.files.create(file=("a.txt", b"Tea."), purpose="assistants") for _ in range(2)
    )
    other = openai.files.create(file=("b.txt", b"Tea."), purpose="assistants")
    assert first.id == again.id != other.id
    openai.files.delete(first.id)
    assert openai.files.content(other.id).read() == b"Tea."


# Filters


VALUES = [
    "",
    "a",
    "b",
    "é",
    "\U0010ffff",
    "10",
    "2",
    -1.5,
    -1,
    0,
    0.5,
    1,
    2**53,
    1e300,
    -1e300,
    True,
    False,
]
KEYS = ["a", "b", "labels", "file_name", 'q"uote', "键", "a\\"]
OPERATORS = ["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]


def expected(filters, attributes):
    """What a filter says of attributes."""
    if "filters" in filters:
        found = [expected(one, attributes) for one in filters["filters"]]
        return all(found) if filters["type"] == "and" else any(found)
    op, value, own = filters["type"], filters["value"], attributes.get(filters["key"])
    same = [
        one for one in (value if isinstance(value, list) else [value]) if kind(one) == kind(own)
    ]
    if op in ("eq", "in", "ne", "nin"):
        return (own in same) == (op in ("eq", "in"))
    return (
        bool(same)
        and {"gt": own > value, "gte": own >= value, "lt": own < value, "lte": own <= value}[op]
    )


def kind(value):
    """Values are compared with those of their type."""
    return (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)
    )


def draw_filter(draw, depth):
    """A random filter."""
    if depth and draw(st.booleans()):
        parts = [draw_filter(draw, depth - 1) for _ in range(draw(st.integers(0, 3)))]
        return {"type": draw(st.sampled_from(["and", "or"])), "filters": parts}
    op, plain = (
        draw(st.sampled_from(OPERATORS)),
        [one for one in VALUES if not isinstance(one, bool)],
    )
    several = st.lists(st.sampled_from(plain), max_size=3)
    value = draw(several if op in ("in", "nin") else st.sampled_from(VALUES))
    return {"type": op, "key": draw(st.sampled_from(KEYS)), "value": value}


@pytest.mark.slow
@given(
    st.composite(draw_filter)(depth=3),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
)
@settings(max_examples=CASES)
def test_filters_on_undeclared_attributes(filters, attributes):
    """Any attributes come back as they were given, and a filter compares them by their type."""
    schema = make_schema(label_fields())
    fields = {"attributes": tuple(metadata_of(attributes, schema)["attributes"])}
    assert attributes_of(fields, schema) == attributes
    wanted = filter_of(
        StoreSearch.model_validate({"query": "", "filters": filters}).filters, schema
    )
    assert matches(bind_filter(And() if wanted is None else wanted, schema), fields) is expected(
        filters, attributes
    )


def test_filters_of_a_search(openai, following):
    """Filters reach the store: each one finds the files whose attributes it describes."""
    generator = random.Random(7)
    attributes = {name: {key: generator.choice(VALUES) for key in KEYS[:3]} for name in TEXTS}
    store, _ = fill(openai, attributes)
    for op in OPERATORS:
        for key in KEYS[:3]:
            for value in VALUES:
                own = [value] if op in ("in", "nin") and not isinstance(value, bool) else value
                if (op in ("in", "nin")) != isinstance(own, list):
                    continue
                filters = {"type": op, "key": key, "value": own}
                wanted = {name for name, given in attributes.items() if expected(filters, given)}
                if generator.random() < 0.3:
                    assert names(openai, store, filters=filters) == wanted, filters


def test_declared_fields_are_attributes(tmp_path):
    """The doc_fields of a set are attributes by their own names: filters compare them, and they can
    be changed.
    """
    fields = {"year": DocField(DataType.INT32), "tags": DocField(DataType.ARRAY, DataType.VARCHAR)}
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(doc_fields=fields, store_conf=conf) as docs:
        docs.add_texts(
            {"tea": "Green tea.", "old": "Old tea."},
            {"tea": {"year": 2024, "tags": ["x"]}, "old": {"year": 1999}},
        )
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        with TestClient(
            create_app(Service({"teas": docs}, tmp_path / "state")), base_url="http://127.0.0.1"
        ) as client:
            openai = OpenAI(
                base_url="http://127.0.0.1/v1", api_key="any", http_client=client, max_retries=0
            )
            [store] = openai.vector_stores.list().data
            late = {"type": "gte", "key": "year", "value": 2000}
            [hit] = openai.vector_stores.search(store.id, query="tea", filters=late).data
            assert (hit.filename, hit.attributes) == ("tea", {"year": 2024})
            for wrong in ({**late, "value": "new"}, {**late, "value": [1]}):
                answer = client.post(
                    f"/v1/vector_stores/{store.id}/search", json={"query": "tea", "filters": wrong}
                )
                assert answer.status_code == 400, answer.text


# Hostile values


def hostile_filter(generator, depth):
    """A filter, or something that only resembles one."""
    values = [
        "x",
        1,
        True,
        None,
        [],
        ["x"],
        [1, None],
        {},
        float("inf"),
        -(2**70),
        "\ud800",
        "\0",
        "x" * 10_000,
    ]
    if depth and generator.random() < 0.7:
        parts = [hostile_filter(generator, depth - 1) for _ in range(generator.randrange(3))]
        return {
            "type": generator.choice(["and", "or", "not", None]),
            "filters": generator.choice([parts, parts, None, {}]),
        }
    found = {
        "type": generator.choice([*OPERATORS, "like"]),
        "key": generator.choice([*KEYS, None, 3]),
        "value": generator.choice(values),
    }
    return {key: value for key, value in found.items() if generator.random() < 0.95}


@pytest.mark.slow
def test_hostile_filters(client, openai, following):
    """Filters of any depth and with any values are answered, or refused with the parameter, and
    never fail.
    """
    store, _ = fill(openai)
    generator, statuses = random.Random(24), set()
    for _ in range(CASES):
        body = json.dumps(
            {"query": "tea", "filters": hostile_filter(generator, generator.randrange(25))}
        )
        answer = client.post(
            f"/v1/vector_stores/{store.id}/search",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        statuses.add(answer.status_code)
        assert answer.status_code in (200, 400), answer.text
    assert statuses == {200, 400}
    for depth in (100, 10_000, 100_000):
        body = (
            '{"query": "tea", "filters": '
            + '{"type": "and", "filters": [' * depth
            + "]}" * depth
            + "}"
        )
        answer = client.post(
            f"/v1/vector_stores/{store.id}/search",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        assert (answer.status_code, "error" in answer.json()) == (400, True)


HOSTILE = [
    "",
    "x",
    "\ud800",
    "\0",
    "../..",
    "%2e%2e",
    "a" * 300,
    "file-" + "0" * 40,
    "vs_" + "0" * 24,
    "é",
    "'--",
]


def test_hostile_ids(client, openai, following):
    """Ids that were not given out are unknown, with any content."""
    store, files = fill(openai)
    paths = [
        "/files/{}",
        "/files/{}/content",
        "/vector_stores/{}",
        f"/vector_stores/{store.id}/files/{{}}",
        f"/vector_stores/{store.id}/files/{{}}/content",
        f"/vector_stores/{store.id}/file_batches/{{}}",
        "/vector_stores/{}/files/" + files["tea.md"],
    ]
    for path in paths:
        for one in HOSTILE:
            if one in ("", "\ud800"):
                continue
            answer = client.get("/v1" + path.format(quote(one, safe="")))
            assert answer.status_code in (400, 404), (path, one, answer.text)
            assert answer.json()["error"]["type"] == "invalid_request_error"
    for one in HOSTILE:
        body = json.dumps({"file_id": one})
        answer = client.post(
            f"/v1/vector_stores/{store.id}/files",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code in (400, 404), answer.text


# Access


def as_token(client, text):
    """The official client with a token."""
    return OpenAI(base_url="http://127.0.0.1/v1", api_key=text, http_client=client, max_retries=0)


def outcome(call):
    """The result of a call without what differs by the id that was asked for."""
    try:
        return call()
    except Exception as exc:  # noqa: BLE001
        return type(exc).__name__, getattr(exc, "status_code", None), getattr(exc, "body", None)


def test_labels_and_scopes(client, access, service, following):
    """Tokens with labels have files and documents of their own; those of others answer as if there
    were none.
    """
    tokens = {
        name: access.create(scope, labels=labels)[1]
        for name, scope, labels in (
            ("admin", "admin", None),
            ("hr", "write", ["hr"]),
            ("it", "write", ["it"]),
            ("reader", "read", ["hr"]),
        )
    }
    admin, hr, it, reader = (
        as_token(client, tokens[one]) for one in ("admin", "hr", "it", "reader")
    )
    store = admin.vector_stores.create(name="Shared").id
    own = hr.files.create(file=("pay.txt", b"Salaries are secret."), purpose="assistants").id
    added = hr.vector_stores.files.create_and_poll(
        own, vector_store_id=store, attributes={"year": 2024}, poll_interval_ms=50
    )
    assert (added.status, added.attributes) == ("completed", {"year": 2024})
    batch = hr.vector_stores.file_batches.create_and_poll(
        store, file_ids=[own], poll_interval_ms=50
    )
    assert [one.filename for one in reader.vector_stores.search(store, query="salaries").data] == [
        "pay.txt"
    ]
    upload = hr.uploads.create(
        bytes=1, filename="a", mime_type="text/plain", purpose="assistants"
    ).id
    assert (
        hr.vector_stores.retrieve(store).file_counts.total,
        admin.vector_stores.retrieve(store).file_counts.total,
    ) == (1, 1)

    # What one token sees, another does not: equal to what was never there.
    seen = it.vector_stores.retrieve(store)
    assert (
        seen.file_counts.total,
        seen.usage_bytes,
        it.vector_stores.search(store, query="salaries").data,
    ) == (
        0,
        0,
        [],
    )
    assert list(it.vector_stores.files.list(store)) == list(it.files.list()) == []
    none = "0" * 40
    calls = [
        (it.files.retrieve, own, f"file-{none}"),
        (it.files.content, own, f"file-{none}"),
        (it.files.delete, own, f"file-{none}"),
        (
            lambda one: it.vector_stores.files.retrieve(one, vector_store_id=store),
            own,
            f"file-{none}",
        ),
        (
            lambda one: it.vector_stores.files.content(one, vector_store_id=store),
            own,
            f"file-{none}",
        ),
        (
            lambda one: it.vector_stores.files.delete(one, vector_store_id=store),
            own,
            f"file-{none}",
        ),
        (
            lambda one: it.vector_stores.files.update(one, vector_store_id=store, attributes={}),
            own,
            f"file-{none}",
        ),
        (lambda one: it.vector_stores.files.create(store, file_id=one), own, f"file-{none}"),
        (lambda one: it.vector_stores.files.list(store, after=one), own, f"file-{none}"),
        (
            lambda one: it.vector_stores.file_batches.retrieve(one, vector_store_id=store),
            batch.id,
            f"vsfb_{none[:32]}",
        ),
        (
            lambda one: it.vector_stores.file_batches.cancel(one, vector_store_id=store),
            batch.id,
            f"vsfb_{none[:32]}",
        ),
        (
            lambda one: it.vector_stores.file_batches.list_files(one, vector_store_id=store),
            batch.id,
            f"vsfb_{none[:32]}",
        ),
        (it.uploads.cancel, upload, f"upload_{none[:32]}"),
        (lambda one: it.uploads.complete(one, part_ids=["a"]), upload, f"upload_{none[:32]}"),
    ]
    for call, hidden, missing in calls:
        there = json.dumps(outcome(partial(call, hidden)), default=str)
        not_there = json.dumps(outcome(partial(call, missing)), default=str)
        assert there.replace(hidden, "ID") == not_there.replace(missing, "ID")
        assert "40" in there, there
    assert hr.files.retrieve(own).filename == "pay.txt"

    # Equal content of another token is another file, and replaces nothing.
    twin = it.files.create(file=("pay.txt", b"Salaries are secret."), purpose="assistants").id
    assert twin != own
    it.vector_stores.files.create_and_poll(twin, vector_store_id=store, poll_interval_ms=50)
    assert [
        len(one.vector_stores.search(store, query="salaries").data) for one in (hr, it, admin)
    ] == [1, 1, 2]
    it.files.delete(twin)
    wait_for(
        lambda: len(admin.vector_stores.search(store, query="salaries").data) == 1, "the deletion"
    )
    assert len(hr.vector_stores.search(store, query="salaries").data) == 1

    # Scopes.
    for call in (
        lambda: reader.files.create(file=("a.txt", b"x"), purpose="assistants"),
        lambda: reader.vector_stores.files.delete(own, vector_store_id=store),
        lambda: hr.vector_stores.create(name="Mine"),
        lambda: hr.vector_stores.delete(store),
        lambda: hr.vector_stores.update(store, name="Ours"),
        as_token(client, "lrg_no").vector_stores.list,
    ):
        assert outcome(call)[1] in (401, 403)
    rows = [
        row.dataset
        for row in access.audit(access.of_token(tokens["admin"]))
        if row.action.startswith("POST /v1/vector_stores/vs_")
    ]
    assert rows
    assert set(rows) == {"", "Shared"}  # before the set is looked up, and after


# Processes


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_four_processes_and_one_answer_alike(tmp_path):
    """What one web process is told, the others know at once; a later start with one process answers
    the same.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    answers = []
    for processes in (4, 1):
        with serving(folder, "--port", "0", "--processes", str(processes)) as running:
            running.wait_until_ready()

            def openai():  # a connection stays with its process
                return OpenAI(base_url=f"{running.url}/v1", api_key="any")

            if processes == 4:
                wait_for(lambda: len(running.children("web")) == 4, "all processes")
                store, _ = fill(openai(), name="Hot drinks", attributes={"tea.md": {"year": 2024}})
            for _ in range(8):
                client = openai()
                found = client.vector_stores.search(store.id, query="tea or coffee").to_dict()
                files = [one.to_dict() for one in client.vector_stores.files.list(store.id)]
                answers.append([found, files, client.vector_stores.retrieve(store.id).to_dict()])
                client.close()
    assert all(one == answers[0] for one in answers)
    assert len(answers[0][0]["data"]) == 2


def test_an_equal_file_sent_again_lasts_as_long_as_it_did(openai):
    """Its id is the same: who sends it later must not let it expire for who sent it first."""
    ends = [
        None,
        {"anchor": "created_at", "seconds": 7200},
        {"anchor": "created_at", "seconds": 3600},
    ]
    sent = [{"file": ("tea.md", b"Tea.")} | ({"expires_after": one} if one else {}) for one in ends]
    short, long = (openai.files.create(purpose="assistants", **sent[one]) for one in (2, 1))
    assert short.id == long.id
    assert openai.files.create(purpose="assistants", **sent[2]).expires_at == long.expires_at
    assert [
        openai.files.create(purpose="assistants", **sent[one]).expires_at for one in (0, 1)
    ] == [None, None]
