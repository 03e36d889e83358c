"""An asker never sees the text, the address or a secret of another system; the operator's log has
them.
"""

from __future__ import annotations

import json
import logging
import re

import pytest
from fastapi.testclient import TestClient

from lazyrag import Document
from lazyrag.data.encoding import ErrorInfo
from lazyrag.errors import EmbeddingError, IngestionWarning, LoadError
from lazyrag.models import CallableRerankModel
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.problems import public_error
from lazyrag.server.core.service import Service
from tests.server.test_mcp import ask

ADDRESS, SECRET, TEXT = "10.9.8.7", "sk-secret", "quota of tenant 42"
TOLD = f"http://{ADDRESS}:8000/v1 refuses {SECRET}: {TEXT}"
SET = "/api/v1/sets/notes"


class Models:
    """An embedding, a chat and a rerank model that fail on request."""

    probe = False
    is_down = False

    def __call__(self, text):
        """Embed a text."""
        if self.is_down or "poison" in text:
            raise OSError(TOLD)
        return [text.count("e") + 1.0, text.count("a") + 1.0]

    def fail(self, *_, **__):
        """Answer or rerank."""
        raise OSError(TOLD)


@pytest.fixture
def models():
    """Models that are up."""
    return Models()


@pytest.fixture
def docs(tmp_path, models):
    """A Document with vectors, of which one file could not be embedded."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(embed=models, store_conf=conf) as docs:
        docs.add_texts(
            {"tea.md": "Green tea is brewed at eighty degrees.", "coffee.md": "Coffee is ground."}
        )
        docs.activate_group("MediumChunk", analysers=["en", "zh"], embed_keys=["default"])
        with pytest.warns(IngestionWarning):
            docs.add_texts({"bad.md": "A poison text."})
        yield docs


@pytest.fixture
def service(docs, tmp_path, models):
    """A service over it, whose models are down."""
    service = Service({"notes": docs}, tmp_path / "state", chat=models.fail)
    service.rerank = CallableRerankModel(models.fail)
    service.access = Access(service.state)
    models.is_down = True
    return service


def shown(answer):
    """All that a client sees of a response."""
    return f"{answer.text} {dict(answer.headers)}"


REQUESTS = {
    "search": ("post", f"{SET}/search", {"query": "tea", "retriever": "vector"}),
    "explained": ("post", f"{SET}/search", {"query": "tea", "explain": True}),
    "answer": ("post", f"{SET}/answers", {"question": "How hot?", "retriever": "bm25"}),
    "answer by vectors": ("post", f"{SET}/answers", {"question": "How hot?"}),
    "answer with history": (
        "post",
        f"{SET}/answers",
        {
            "question": "And tea?",
            "retriever": "bm25",
            "history": [{"role": "user", "content": "Coffee?"}],
        },
    ),
    "page": ("get", "/s/notes/search?q=tea&retriever=vector", None),
    "chat": (
        "post",
        "/v1/chat/completions",
        {"model": "notes", "messages": [{"role": "user", "content": "tea?"}]},
    ),
    "chat stream": (
        "post",
        "/v1/chat/completions",
        {"model": "notes", "stream": True, "messages": [{"role": "user", "content": "tea?"}]},
    ),
    "responses": ("post", "/v1/responses", {"model": "notes", "input": "tea?"}),
    "rerank": (
        "post",
        "/v1/rerank",
        {"model": "reranker", "query": "tea", "documents": ["a", "b"]},
    ),
    "dify": (
        "post",
        "/dify/retrieval",
        {
            "knowledge_id": "notes",
            "query": "tea",
            "retrieval_setting": {"top_k": 3, "score_threshold": 0.0},
        },
    ),
    "documents": ("get", f"{SET}/documents", None),
    "document": ("get", f"{SET}/documents/bad.md", None),
    "page of files": ("get", "/s/notes/files?status=failed", None),
    "page of a document": ("get", "/s/notes/files/bad.md", None),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_no_face_shows_another_system(service, caplog, name):
    """Whatever the status, with a token that may only read; the log has the error under the id that
    is shown.
    """
    method, path, body = REQUESTS[name]
    headers = {"Authorization": f"Bearer {service.access.create('read')[1]}"}
    local = {
        "base_url": "http://127.0.0.1",
        "client": ("127.0.0.1", 50_000),
        "raise_server_exceptions": False,
    }
    with caplog.at_level(logging.ERROR), TestClient(create_app(service), **local) as client:
        answer = client.request(method, path, json=body, headers=headers)
    seen = shown(answer)
    assert answer.status_code != 404, seen
    for hidden in (ADDRESS, SECRET, TEXT):
        assert hidden not in seen
    if number := re.search(r"has the details under ([0-9a-f]{8})", seen):
        [line] = [
            one.getMessage() for one in caplog.records if f"error {number[1]}" in one.getMessage()
        ]
        assert TOLD in line


def test_a_tool_shows_no_other_system(service):
    """Over MCP."""
    service.access = None
    told = ask(create_app(service), "search", query="tea")
    assert "The embedding model of the service failed" in told
    assert ADDRESS not in told


def test_an_operator_sees_stored_errors(service, docs):
    """A token that administers reads why a document failed; an error of the document itself is for
    everybody.
    """
    headers = {"Authorization": f"Bearer {service.access.create('admin')[1]}"}
    with TestClient(
        create_app(service), base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)
    ) as client:
        assert TEXT in json.dumps(client.get(f"{SET}/documents/bad.md", headers=headers).json())
    own = ErrorInfo.of(LoadError("The file is encrypted."))
    assert public_error(own, is_operator=False) == own
    assert public_error(ErrorInfo.of(EmbeddingError(TOLD)), is_operator=False).detail == (
        "The embedding model of the service failed."
    )
    assert TOLD not in str(public_error(ErrorInfo("OSError", TOLD), is_operator=False))


@pytest.mark.parametrize("name", ["filters", "where"])
def test_both_names_of_a_filter(service, name):
    """In bodies and in query parameters; both at once are refused."""
    service.access = None
    wanted = {"file_name": "tea.md"}
    with TestClient(
        create_app(service), base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)
    ) as client:
        body = {"query": "degrees", "retriever": "bm25", name: wanted}
        found = client.post(f"{SET}/search", json=body)
        assert [hit["path"] for hit in found.json()["hits"]] == ["tea.md"]
        listed = client.get(f"{SET}/documents", params={name: json.dumps(wanted)}).json()[
            "documents"
        ]
        assert [one["id"] for one in listed] == ["tea.md"]
        both = client.post(f"{SET}/search", json={**body, "filters": wanted, "where": wanted})
        assert (both.status_code, "must not both be passed" in both.text) == (422, True)
        params = {"filters": "{}", "where": "{}"}
        assert "must not both be passed" in client.get(f"{SET}/documents", params=params).text
    assert "degrees" in json.dumps(
        ask(create_app(service), "grep", text="degrees", **{name: wanted})
    )
