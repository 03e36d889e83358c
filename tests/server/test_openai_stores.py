"""OpenAI's files, uploads and vector stores."""

from __future__ import annotations

import pytest


def test_errors_have_openai_s_shape(client, access):
    """Every error below /v1 is what OpenAI's clients read: unknown routes, missing tokens, invalid values."""
    error = client.get("/v1/nothing").json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "not_found")
    assert "/v1/nothing" in error["message"]
    access.create("read")
    refused = client.get("/v1/files", headers={"Authorization": "Bearer lrg_no"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert client.get("/api/v1/nothing").json().keys() >= {"detail", "remedy", "request_id"}


@pytest.fixture
def openai(client):
    """The official client."""
    from openai import OpenAI

    return OpenAI(base_url="http://127.0.0.1/v1", api_key="any", http_client=client, max_retries=0)


TEXTS = {
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.",
    "coffee.txt": "Coffee is ground fine for espresso.",
    "cocoa.txt": "Cocoa is stirred into hot milk.",
}


def test_from_files_to_search(openai, following):
    """Files are uploaded, put into a vector store as a batch, and searched with filters on their attributes."""
    files = {
        name: openai.files.create(file=(name, text.encode()), purpose="assistants") for name, text in TEXTS.items()
    }
    assert openai.files.content(files["tea.md"].id).read() == TEXTS["tea.md"].encode()
    store = openai.vector_stores.create(name="Hot drinks", metadata={"team": "kitchen"})
    years = {"tea.md": 2020, "coffee.txt": 2024, "cocoa.txt": 2024.5}
    wanted = [
        {"file_id": file.id, "attributes": {"year": years[name], "kind": name, "Ω ": True}}
        for name, file in files.items()
    ]
    batch = openai.vector_stores.file_batches.create_and_poll(store.id, files=wanted, poll_interval_ms=50)
    assert (batch.status, batch.file_counts.completed) == ("completed", 3)
    store = openai.vector_stores.retrieve(store.id)
    assert (store.status, store.file_counts.total, store.name, store.metadata) == (
        "completed",
        3,
        "Hot drinks",
        {"team": "kitchen"},
    )
    found = openai.vector_stores.search(store.id, query="How hot is green tea?").data
    assert (found[0].file_id, found[0].filename) == (files["tea.md"].id, "tea.md")
    assert found[0].attributes == {"year": 2020, "kind": "tea.md", "Ω ": True}
    assert 0 < found[0].score <= 1
