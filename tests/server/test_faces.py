"""One answer is the same on every face: its text, citations, statements with verdicts, and whether
it is weak; by a chat model, and by quotations without one.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from lazyrag import CitationManager
from lazyrag.cli.commands import run as command_line
from lazyrag.cli.output import answer_lines
from lazyrag.data.encoding import to_dict
from lazyrag.generation.extractive import NO_ANSWER
from lazyrag.pipeline import RAGPipeline
from tests.model_server import piece, streamed
from tests.server.test_mcp import ask as call_tool
from tests.server.test_page_read import ask as ask_page
from tests.server.test_page_read import read, words

pytestmark = pytest.mark.filterwarnings("ignore::lazyrag.errors.AnswerWarning")
QUESTION = "How hot is green tea brewed?"
NOT_HERE = "Who repaired the roof of the coffee house in winter?"
ANSWER = (
    "Green tea is brewed at ninety degrees [1]. Green tea is brewed at eighty degrees [1]. Merchants"
    " crossed a distant mountain pass [1]. <script>alert(1)</script> 😀 [99]. I hope this helps!"
)
VERDICTS = ["contradicted", "supported", "not_found", "not_found", "not_checkable"]
WEAK = "The files do not seem to answer this question."


def writing(text):
    """A chat model that writes a text in pieces."""

    async def write(prompt):
        for word in pieces_of(text):
            yield word

    return write


def pieces_of(text):
    return re.findall(r"\s*\S+", text)


chat = writing(ANSWER)
BAD = {
    "nothing": "Green tea is brewed at eighty degrees. Keep it dry and dark.",
    "everything": "Green tea is brewed at eighty degrees [1][2][3]. Keep it dry [1-3]. It is hot [1, 2].",
    "no source": "Green tea is brewed at eighty degrees [99]. Keep it dry [0]. It is dark [1][99].",
    "Russian": "Зелёный чай заваривают при 80 градусах [1]. Храните его в сухом месте [1].",
    "Japanese": "緑茶は八十度のお湯で淹れます[1]。乾いた暗い場所に保管してください[1]。",
    "emoji": "🍵🫖 Green tea is brewed at eighty degrees 👍🏽👨‍👩‍👧 [1]. 🎉🎉🎉 [1] \u202eevil\u202c [1].",
    "markup": (
        "<script>alert(1)</script> Green tea <img src=x onerror=alert(1)> is brewed at eighty"
        " degrees [1]. </main></pre><style>*{display:none}</style> {{ 7*7 }} [1](javascript:alert(1))."
    ),
}
"""What a model may write."""
CASES = {
    "written": (QUESTION, chat),
    "quoted": (QUESTION, None),
    "written, weak": (NOT_HERE, chat),
    "quoted, weak": (NOT_HERE, None),
}


@dataclass
class Seen:
    """What a face shows of an answer; None where it does not have that.

    Args:
        text: The answer.
        quotes: The words of its citations.
        statements: Its statements.
        weak: Whether it says that the library does not answer.
    """

    text: Any
    quotes: Any
    statements: Any
    weak: Any


@dataclass
class Asking:
    """A question to a library and its service."""

    question: str
    chat: Any
    text: str
    docs: Any
    client: Any
    monkeypatch: Any
    model: Any
    folder: Any
    capsys: Any

    @property
    def pipeline(self):
        """The pipeline in Python."""
        return RAGPipeline.over(self.docs, "MediumChunk", generator=self.chat)

    def post(self, path, **body):
        """The response to a request."""
        response = self.client.post(path, json=body)
        assert response.status_code == 200, response.text
        return response


@pytest.fixture(params=CASES)
def asking(request, client, docs, service, monkeypatch, model, tmp_path, capsys):
    """Each case."""
    question, chat_model = CASES[request.param]
    service.chat = chat_model
    return Asking(
        question, chat_model, ANSWER, docs, client, monkeypatch, model, tmp_path / "files", capsys
    )


def seen_of(answer):
    """What Python shows of an answer."""
    quotes = [citation.text_snippet for citation in answer.citations]
    return Seen(answer.text, quotes, to_dict(answer.statements), answer.weak)


def by_python(asking):
    return seen_of(asking.pipeline.sync.answer(asking.question))


def by_async(asking):
    return seen_of(asyncio.run(asking.pipeline.answer(asking.question)))


def by_resolving(asking):
    """The answer's text, resolved again."""
    answer = asking.pipeline.sync.answer(asking.question)
    resolved = CitationManager().resolve(answer.text, answer.context.sources)
    assert {citation.index for citation in resolved.citations} == {
        citation.index for citation in answer.citations
    }
    return Seen(answer.text, None, to_dict(resolved.statements), answer.weak)


def by_stream(asking):
    deltas = list(asking.pipeline.sync.stream(asking.question))
    text = "".join(delta.text for delta in deltas)
    quotes = [citation.text_snippet for delta in deltas for citation in delta.citations]
    statements = [statement for delta in deltas for statement in delta.statements]
    assert any(delta.statements for delta in deltas[:-1])
    return Seen(text, quotes, to_dict(statements), deltas[-1].answer.weak)


def by_command(asking):
    folder = asking.folder
    asking.monkeypatch.chdir(folder)
    asking.monkeypatch.setenv("OPENAI_BASE_URL", asking.model.url)
    asking.model.faults = [streamed(*map(piece, pieces_of(asking.text)), "[DONE]")]
    assert command_line(["index", str(folder)]) == 0
    asking.capsys.readouterr()
    with_model = ["--model", "m"] if asking.chat else []
    assert command_line(["ask", asking.question, "--json", *with_model]) == 0
    shown = json.loads(asking.capsys.readouterr().out)["result"]
    quotes = [citation["text_snippet"] for citation in shown["citations"]]
    return Seen(shown["answer"], quotes, shown["statements"], shown["weak"])


def by_http(asking):
    shown = asking.post("/api/v1/sets/notes/answers", question=asking.question).json()
    quotes = [citation["text_snippet"] for citation in shown["citations"]]
    return Seen(shown["text"], quotes, shown["statements"], shown["weak"])


def by_events(asking):
    response = asking.post("/api/v1/sets/notes/answers", question=asking.question, stream=True)
    events = {"delta": [], "citation": [], "statement": [], "problem": [], "done": []}
    for name, data in re.findall(r"event: (\w+)\ndata: (.*)", response.text):
        events[name].append(json.loads(data))
    text = "".join(delta["text"] for delta in events["delta"])
    quotes = [citation["text_snippet"] for citation in events["citation"]]
    return Seen(text, quotes, events["statement"], events["done"][0]["weak"])


def by_completion(asking):
    messages = [{"role": "user", "content": asking.question}]
    response = asking.post("/v1/chat/completions", model="notes", messages=messages)
    message = response.json()["choices"][0]["message"]
    return seen_of_openai(message["content"], message["annotations"], message["lazyrag"])


def by_chunks(asking):
    messages = [{"role": "user", "content": asking.question}]
    response = asking.post("/v1/chat/completions", model="notes", messages=messages, stream=True)
    text, annotations, statements, weak = "", [], [], None
    for data in re.findall(r"data: (\{.*)", response.text):
        delta = json.loads(data)["choices"][0]["delta"]
        text += delta["content"]
        annotations += delta.get("annotations", [])
        statements += delta.get("lazyrag", {}).get("statements", [])
        weak = delta.get("lazyrag", {}).get("weak", weak)
    return seen_of_openai(text, annotations, {"statements": statements, "weak": weak})


def by_response(asking):
    response = asking.post("/v1/responses", model="notes", input=asking.question)
    part = response.json()["output"][1]["content"][0]
    return seen_of_openai(part["text"], part["annotations"], part["lazyrag"])


def by_response_events(asking):
    response = asking.post("/v1/responses", model="notes", input=asking.question, stream=True)
    events = [json.loads(data) for data in re.findall(r"data: (\{.*)", response.text)]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    part = events[-1]["response"]["output"][1]["content"][0]
    return seen_of_openai("".join(deltas), part["annotations"], part["lazyrag"])


def seen_of_openai(text, annotations, more):
    """What OpenAI's API shows."""
    quotes = [annotation["quote"] for annotation in annotations]
    return Seen(text, quotes, more["statements"], more["weak"])


def by_mcp(asking):
    """The agent writes the answer: here it is given what the others say."""
    shown = call_tool(asking.client.app, "search", query=asking.question, limit=6)
    answer = asking.pipeline.sync.answer(asking.question)
    uids = [f"notes:{hit.id}" for hit in answer.context.sources]
    assert {passage["id"] for passage in shown["results"]} <= set(uids)
    statements = call_tool(asking.client.app, "check", text=answer.text, ids=uids)["statements"]
    return Seen(None, None, statements, shown["weak"])


def by_page(asking):
    """The page counts what is cited and was checked: quotations were not."""
    page = read(asking.client, ask_page(asking.client, asking.question))
    expected = by_python(asking)
    cited = [statement for statement in expected.statements if statement["indices"]]
    verdicts = [statement["verdict"] for statement in cited]
    counts = [f"{verdicts.count(name.replace(' ', '_'))} {name}" for name in COUNTED]
    is_checked = asking.chat is not None and not {"not_checkable"}.issuperset(verdicts)
    assert (", ".join(counts) in page) == is_checked
    assert asking.chat is not None or 'class="v ' not in page
    assert "<script>alert" not in page
    if asking.chat is None:
        assert all(words(quote) in words(page) for quote in expected.quotes)
    return Seen(None, None, None, (WEAK if asking.chat else NO_ANSWER["en"]) in page)


COUNTED = ("supported", "contradicted", "not found")
FACES = [
    by_async,
    by_resolving,
    by_stream,
    by_command,
    by_http,
    by_events,
    by_completion,
    by_chunks,
    by_response,
    by_response_events,
    by_mcp,
    by_page,
]


@pytest.mark.parametrize("face", FACES)
def test_every_face_shows_the_same_answer(asking, face):
    """Python's is compared with that of each other face."""
    expected = by_python(asking)
    assert expected.weak == (asking.question == NOT_HERE)
    shown = face(asking)
    for name, value in vars(shown).items():
        assert value is None or value == getattr(expected, name), name


@pytest.mark.sample(2)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", BAD)
def test_every_face_shows_what_any_model_writes(
    client, docs, service, monkeypatch, model, tmp_path, capsys, name, face
):
    """It cites nothing, everything or what is not there; another language, emoji, markup."""
    text = BAD[name]
    service.chat = writing(text)
    folder = tmp_path / "files"
    asking = Asking(QUESTION, service.chat, text, docs, client, monkeypatch, model, folder, capsys)
    expected = by_python(asking)
    for field, value in vars(face(asking)).items():
        assert value is None or value == getattr(expected, field), field


RENT = "Who pays the rent of the teahouse?"
LEASES = {
    "lease-2021.md": "The tenant pays the rent of the teahouse.",
    "lease-2024.md": "The owner pays the rent of the teahouse.",
}


def marks_of(hits):
    """The newer documents by the file names of some hits of leases, as JSON."""
    marks = {}
    for hit in hits:
        name = hit.get("path") or hit.get("filename") or hit["source"]
        if name in LEASES:
            marks[name] = (hit.get("metadata") or hit.get("details") or hit).get(
                "superseded_by", ""
            )
    return marks


def marks_by_python(asking):
    return marks_of(asking.docs.search(RENT).to_dicts())


def marks_by_dicts(asking):
    return marks_of(asking.docs.search(RENT, output_format="dict"))


def marks_by_answer(asking):
    return marks_of(to_dict(list(asking.docs.ask(RENT).context.sources)))


def marks_by_search(asking):
    return marks_of(asking.post("/api/v1/sets/notes/search", query=RENT).json()["hits"])


def marks_by_explained_search(asking):
    shown = asking.post("/api/v1/sets/notes/search", query=RENT, explain=True).json()
    assert marks_of(shown["explanation"]["hits"]) == marks_of(shown["hits"])
    return marks_of(shown["hits"])


def marks_by_http(asking):
    return marks_of(asking.post("/api/v1/sets/notes/answers", question=RENT).json()["hits"])


def marks_by_mcp(asking):
    return marks_of(call_tool(asking.client.app, "search", query=RENT)["results"])


def marks_by_response(asking):
    include = ["file_search_call.results"]
    shown = asking.post("/v1/responses", model="notes", input=RENT, include=include).json()
    searched, written = shown["output"]
    results = marks_of(searched["results"])
    assert marks_of(written["content"][0]["annotations"]) == results
    return results


def marks_by_completion(asking):
    messages = [{"role": "user", "content": RENT}]
    shown = asking.post("/v1/chat/completions", model="notes", messages=messages).json()
    annotations = shown["choices"][0]["message"]["annotations"]
    names = [one["url_citation"]["title"].partition(",")[0] for one in annotations]
    return marks_of({**one, "path": name} for one, name in zip(annotations, names, strict=True))


def marks_by_store(asking):
    [store] = asking.client.get("/v1/vector_stores").json()["data"]
    search = f"/v1/vector_stores/{store['id']}/search?include=details"
    return marks_of(asking.post(search, query=RENT).json()["data"])


def marks_by_terminal(asking):
    text = " ".join(" ".join(answer_lines(asking.docs.ask(RENT))).split())
    assert text.count("superseded by") == 1
    older, newer = re.search(r"(\S+) line 1 superseded by (\S+)", text).groups()
    return {older: newer, newer: ""}


def marks_by_page(asking):
    page = words(read(asking.client, f"/s/notes/search?q={RENT}"))
    assert page.count("superseded by") == 1
    older, newer = re.search(r"(lease\S+) line 1 · superseded by (\S+)", page).groups()
    return {older: newer, newer: ""}


MARK_FACES = [
    marks_by_python,
    marks_by_dicts,
    marks_by_answer,
    marks_by_search,
    marks_by_explained_search,
    marks_by_http,
    marks_by_mcp,
    marks_by_response,
    marks_by_completion,
    marks_by_store,
    marks_by_terminal,
    marks_by_page,
]


@pytest.mark.parametrize("face", MARK_FACES)
def test_every_face_names_what_supersedes_a_document(
    client, docs, service, monkeypatch, model, tmp_path, capsys, face
):
    """The newer document of each older one, under the same name."""
    service.chat = None
    docs.add_texts(LEASES)
    asking = Asking(RENT, None, "", docs, client, monkeypatch, model, tmp_path, capsys)
    assert face(asking) == {"lease-2021.md": "lease-2024.md", "lease-2024.md": ""}


def test_a_written_answer_has_all_verdicts(docs):
    """Each of the four, with the words on both sides."""
    answer = RAGPipeline.over(docs, "MediumChunk", generator=chat).sync.answer(QUESTION)
    assert [statement.verdict for statement in answer.statements] == VERDICTS
    [finding] = answer.statements[0].findings
    assert (finding.words, finding.source_words) == ("ninety", "eighty")
    assert "against “eighty”" in str(answer)


def test_a_quoted_answer_is_supported(docs):
    """By the sources that it is quoted from; what introduces it is no statement."""
    for question in (QUESTION, NOT_HERE):
        answer = RAGPipeline.over(docs, "MediumChunk").sync.answer(question)
        verdicts = {statement.verdict for statement in answer.statements}
        assert verdicts == {"supported"} | ({"not_checkable"} if answer.weak else set())


def test_the_terminal_counts_and_names_what_is_not_supported(docs):
    """One line of counts, and one for each doubtful statement."""
    answer = RAGPipeline.over(docs, "MediumChunk", generator=chat).sync.answer(QUESTION)
    text = " ".join(answer_lines(answer))
    assert "1 supported, 1 contradicted, 2 not found" in text
    assert "“ninety” against “eighty”" in text


def test_the_page_marks_words_on_both_sides(client, service):
    """Nothing of the answer is markup, and what was not checked has no style."""
    service.chat = chat
    page = read(client, ask_page(client, QUESTION))
    assert re.search(r'<span class="v contradicted words"[^>]*>ninety</span>', page)
    assert re.search(r"<q[^>]*>Green tea is brewed at <mark>eighty</mark>", page)
    assert re.search(r"</span>\s*I hope this helps!", page)


@pytest.mark.parametrize(("query", "is_weak"), [(QUESTION, False), (NOT_HERE, True)])
def test_a_search_says_so_too(client, query, is_weak):
    """The page of hits, and the API."""
    assert (WEAK in read(client, f"/s/notes/search?q={query}")) == is_weak
    found = client.post("/api/v1/sets/notes/search", json={"query": query}).json()
    assert found["weak"] == is_weak


@pytest.mark.parametrize(
    ("query", "is_weak"),
    [
        ("What is due of the Meyer invoice of 2021?", False),
        ("What is due to the Holm estate?", True),
    ],
)
def test_words_of_a_file_name_are_no_weak_hits(client, docs, query, is_weak):
    """The page, the API, MCP and answers: an invoice need not repeat its file's name."""
    docs.add_texts({"invoice_2021_Meyer.txt": "Total due: 420 euros."})
    assert (WEAK in read(client, f"/s/notes/search?q={query}")) == is_weak
    found = client.post("/api/v1/sets/notes/search", json={"query": query}).json()
    assert found["weak"] == is_weak
    assert call_tool(client.app, "search", query=query)["weak"] == is_weak
    assert docs.ask(query).weak == is_weak
