"""Every face of a Document, to see what ranks behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lazyrag import DataType, DocField, Document, HybridRetriever, RAGPipeline
from lazyrag.retrieval import retriever_for
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.service import Service
from tests.server.test_mcp import body_of

TEXTS = {"open": "Green tea is steamed. 绿茶", "secret": "Tea and tea again.", "no": "Coffee."}
LABELS = {"open": ["all"], "secret": ["board"], "no": ["all"]}
QUERY = "green tea"

Face = Callable[[Document, TestClient], object]


def _posted(path: str, **body: Any) -> Face:
    return lambda _, client: client.post(path, json=body).json()


def _mcp(_: Document, client: TestClient) -> object:
    headers, body = body_of("search", {"query": QUERY, "set": "notes"}, "2026-07-28")
    return client.post("/mcp", json=body, headers=headers).json()


def _page(_: Document, client: TestClient) -> object:
    return client.get("/s/notes/search", params={"q": QUERY}, headers={"Accept": "text/html"}).text


MESSAGES = [{"role": "user", "content": QUERY}]
SERVED: dict[str, Face] = {
    "service": _posted("/api/v1/sets/notes/search", query=QUERY),
    "answers": _posted("/api/v1/sets/notes/answers", question=QUERY),
    "page": _page,
    "chat": _posted("/v1/chat/completions", model="notes", messages=MESSAGES),
    "responses": _posted("/v1/responses", model="notes", input=QUERY),
    "dify": _posted(
        "/dify/retrieval",
        knowledge_id="notes",
        query=QUERY,
        retrieval_setting={"top_k": 3, "score_threshold": 0},
    ),
    "mcp": _mcp,
}
FACES: dict[str, Face] = {
    "search": lambda docs, _: [node.text for node in docs.search(QUERY)],
    "hybrid": lambda docs, _: str(HybridRetriever.over(docs, "MediumChunk")(QUERY)),
    "text": lambda docs, _: str(retriever_for("full_text_search", docs, "MediumChunk")(QUERY)),
    "pipeline": lambda docs, _: [
        hit.text for hit in asyncio.run(RAGPipeline.over(docs, "MediumChunk").retrieve(QUERY)).hits
    ],
    **SERVED,
}


async def answer(_prompt: object) -> str:
    """A chat model."""
    return "Steamed [1]."


def client_of(docs: Document, folder: Path) -> TestClient:
    """A client of a service of the Document, as the set ``notes``."""
    service = Service({"notes": docs}, folder, chat=answer, access=Access(folder))
    local = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000)}
    return TestClient(create_app(service), raise_server_exceptions=False, **local)


class Faces:
    """Tests of what ranks behind every face. A subclass has a store, and names the methods by which
    it ranks.
    """

    store: type
    methods: tuple[str, ...]

    def conf(self, folder: Path) -> dict[str, Any]:
        """The `store_conf`."""
        raise NotImplementedError

    @pytest.fixture
    def rankings(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The calls of its ranking."""
        calls: list[str] = []

        def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            def noted(*args: Any, **kwargs: Any) -> Any:
                calls.append(name)
                return method(*args, **kwargs)

            return noted

        for name in self.methods:
            monkeypatch.setattr(self.store, name, noting(name, getattr(self.store, name)))
        return calls

    def opened(self, folder: Path, **conf: Any) -> Document:
        """A Document with labels."""
        fields = {"labels": DocField(DataType.ARRAY, DataType.VARCHAR)}
        docs = Document(
            store_conf={**self.conf(folder), **conf},
            doc_fields=fields,
            embed=lambda text: [text.count("t") + 0.1, text.count("e") + 0.1],
            name=f"tea{folder.name[-4:]}{len(conf)}",
        )
        docs.add_texts(TEXTS, {name: {"labels": labels} for name, labels in LABELS.items()})
        docs.activate_group("MediumChunk")
        return docs

    @pytest.mark.parametrize("search", ["default", "server", "exact"])
    def test_all_faces_let_the_same_rank(
        self, search: str, rankings: list[str], tmp_path: Path
    ) -> None:
        """The server by default and where it is named, ours where that is."""
        conf = {} if search == "default" else {"search": search}
        with self.opened(tmp_path, **conf) as docs, client_of(docs, tmp_path) as client:
            for name, face in FACES.items():
                rankings.clear()
                assert "steamed" in str(face(docs, client)), name
                assert bool(rankings) == (search != "exact"), name

    def asked(self, docs: Document, folder: Path, **kinds: Any) -> dict[str, str]:
        """What a token for all gets from every face of a service."""
        with client_of(docs, folder) as client:
            service = client.app.state.service  # type: ignore[attr-defined]
            service.shared_statistics = frozenset(kinds.get("shared", ()))
            token = service.access.create("read", labels=["all"])[1]
            client.headers["Authorization"] = f"Bearer {token}"
            return {name: str(face(docs, client)) for name, face in SERVED.items()}
