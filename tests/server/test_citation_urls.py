"""The URLs with which the faces for other programs cite: they open the page at the marked words."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from lazyrag import DataType, DocField, Document
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.service import Service
from tests.server.test_mcp import body_of

HIDDEN = 'board/cost #1? 50% "A".md'
TEXTS = {
    HIDDEN: "# Cost\n\nTea is old.\n\nTea costs a million yuan.\n",
    "open.md": "Nothing is here.",
}
QUESTION = "What does tea cost?"
HTML = {"Accept": "text/html,application/xhtml+xml"}


async def chat(_prompt):
    """Answer with a citation."""
    return "Tea costs a million [1]."


@pytest.fixture
def app(tmp_path):
    """A service of the set ``notes``, with a document of the board and another one, that needs
    tokens.
    """
    fields = {"labels": DocField(DataType.ARRAY, DataType.VARCHAR)}
    metadata = {name: {"labels": ["board"] if name == HIDDEN else ["all"]} for name in TEXTS}
    with Document(doc_fields=fields) as docs:
        docs.add_texts(TEXTS, metadata=metadata)
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        service = Service(
            {"notes": docs, "plain": Document()}, tmp_path, chat=chat, access=Access(tmp_path)
        )
        yield create_app(service)
        service.access.close()


def token_of(app, *labels):
    """The text of a new token."""
    return app.state.service.access.create("read", labels=labels or None)[1]


def client_of(app, root_path="", **headers):
    """A client without a session."""
    local = {
        "base_url": "http://127.0.0.1",
        "client": ("127.0.0.1", 50_000),
        "root_path": root_path,
    }
    return TestClient(app, raise_server_exceptions=False, headers=headers, **local)


def completions(program):
    """The URL of a chat completion."""
    body = {"model": "notes", "messages": [{"role": "user", "content": QUESTION}]}
    [annotation] = program.post("/v1/chat/completions", json=body).json()["choices"][0]["message"][
        "annotations"
    ]
    return annotation["url_citation"]["url"]


def responses(program):
    """The URL of a response."""
    content = program.post("/v1/responses", json={"model": "notes", "input": QUESTION}).json()[
        "output"
    ][1]["content"]
    return content[0]["annotations"][0]["url"]


def mcp(program):
    """The URL of the MCP tool ``search``."""
    headers, body = body_of("search", {"query": QUESTION, "set": "notes"}, "2026-07-28")
    result = program.post("/mcp", json=body, headers=headers).json()["result"]["structuredContent"][
        "results"
    ][0]
    headers, body = body_of("fetch", {"id": result["id"]}, "2026-07-28")
    fetched = program.post("/mcp", json=body, headers=headers).json()["result"]["structuredContent"]
    assert fetched["url"] == result["url"]
    return result["url"]


def dify(program):
    """The URL in the metadata of a record."""
    body = {
        "knowledge_id": "notes",
        "query": QUESTION,
        "retrieval_setting": {"top_k": 1, "score_threshold": 0},
    }
    return program.post("/dify/retrieval", json=body).json()["records"][0]["metadata"]["url"]


FACES = (completions, responses, mcp, dify)


def marked(answer):
    """The marked words of a page."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return " ".join(re.findall(r"<mark[^>]*>([^<]+)</mark>", answer.text))


def log_in(browser, page, token):
    """Send the form of the log-in page; the response leads on."""
    assert page.url.path.endswith("/login")
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
    form = {name: unescape(value) for name, value in fields.items()} | {"token": token}
    headers = {"Sec-Fetch-Site": "same-origin"}
    return browser.post(page.url.path, data=form, headers=headers, follow_redirects=False)


@pytest.mark.parametrize("root_path", ["", pytest.param("/rag", marks=pytest.mark.slow)])
@pytest.mark.parametrize("face", FACES)
def test_a_citation_opens_the_page_at_its_words_through_the_log_in(app, face, root_path):
    """Without a session the browser gets the log-in page, and lands at the marked words; then it
    opens at once.
    """
    url = face(client_of(app, root_path, Authorization=f"Bearer {token_of(app)}"))
    assert url.startswith(f"http://127.0.0.1{root_path}/s/notes/files/board/cost%20%231%3F")
    assert url.endswith("#mark-1")
    browser = client_of(app, root_path, **HTML)
    answer = log_in(browser, browser.get(url), token_of(app, "board"))
    assert answer.headers["location"].endswith("#mark-1")
    words = marked(browser.get(answer.headers["location"]))
    assert "Tea costs a million yuan." in words
    # a statement has its words, a hit is whole
    assert ("Tea is old." in words) == (face in (mcp, dify))
    assert marked(browser.get(url)) == words


@pytest.mark.parametrize("face", FACES)
def test_a_citation_of_a_hidden_document_is_a_plain_404(app, face):
    """A person without the label learns nothing of it."""
    url = face(client_of(app, Authorization=f"Bearer {token_of(app)}"))
    browser = client_of(app, **HTML)
    answer = log_in(browser, browser.get(url), token_of(app, "all"))
    shown = browser.get(answer.headers["location"])
    assert shown.status_code == 404
    assert shown.headers["content-type"].startswith("text/html")
    assert "million" not in shown.text
    assert browser.get(url.replace("/s/notes/", "/s/plain/")).status_code == 403


def test_a_citation_of_a_document_that_changed_opens_it_without_a_mark(app):
    """Its passage is not there any more, and words may be behind its end."""
    token = token_of(app)
    url = completions(client_of(app, Authorization=f"Bearer {token}"))
    app.state.service.sets["notes"].add_texts(
        {HIDDEN: "Tea is free."}, metadata={HIDDEN: {"labels": ["board"]}}
    )
    browser = client_of(app, **HTML)
    log_in(browser, browser.get("/more"), token)
    for one in (url, re.sub("words=[0-9-]+", "words=0-999999", url)):
        assert marked(browser.get(one)) == ""
    assert browser.get(re.sub("words=[0-9-]+", "words=x", url)).status_code == 422
