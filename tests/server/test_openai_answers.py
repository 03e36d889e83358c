"""Models, chat completions, responses, embeddings, rerank and Dify: by their clients, with labels,
hostile values.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import threading

import httpx2 as httpx
import pytest
import uvicorn
from openai import APIError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

from lazyrag import DataType, DocField, Document, HttpChatModel, HttpEmbedder, HttpRerankModel
from lazyrag.project import label_fields
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.service import Service
from lazyrag.server.openai import answers as openai_answers
from lazyrag.server.openai.answers import (
    ChatBody,
    FileSearch,
    HybridSearch,
    Ranking,
    ResponseBody,
)
from lazyrag.server.openai.models import EmbeddingBody
from tests.model_server import Model, RawServer, event, head, piece
from tests.server.running import wait_for
from tests.shared import shared

TEXTS = {
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.\n\n## Storage\n\nKeep tea dry and dark.\n",
    "coffee.txt": "Coffee is ground fine for espresso and coarse for the press.",
    "secret.txt": "The secret tea of the board is brewed at ninety degrees.",
}
QUESTION = "How hot is the water for green tea?"
ASK = [{"role": "user", "content": QUESTION}]
CASES = int(os.environ.get("LAZYRAG_CASES", "300"))
"""Hostile and access cases; by hand with more."""


class Served:
    """A service on a socket, with its clients."""

    def __init__(self, service):
        config = uvicorn.Config(create_app(service), port=0, log_level="error")
        self.service, self.server = service, uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait_for(lambda: self.server.started, "the server")
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def client(self, kind=OpenAI, key="any"):
        """The official client."""
        return kind(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def post(self, path, body, **headers):
        """The response to JSON."""
        return httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=30)

    def close(self):
        """End it."""
        self.server.should_exit = True
        self.thread.join(60)


@pytest.fixture(scope="module")
def served(tmp_path_factory, server):
    """Three sets: with labels and embeddings, with keywords alone, and one that labels cannot
    restrict.
    """
    folder, url = tmp_path_factory.mktemp("service"), Model(server).url
    with contextlib.ExitStack() as stack:

        def made(name, **more):
            conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / f"{name}.db")}}}
            docs = stack.enter_context(Document(store_conf=conf, **more))
            labels = {text: ["board"] if text.startswith("secret") else ["staff"] for text in TEXTS}
            metadata = {
                one: {"labels": labels[one], "year": 2020 + at} for at, one in enumerate(TEXTS)
            }
            fields = docs.reader.fields
            shown = {
                one: {key: value for key, value in of.items() if key in fields}
                for one, of in metadata.items()
            }
            docs.add_texts(TEXTS, metadata=shown)
            docs.activate_group(
                "MediumChunk", analysers=["en"], embed_keys=list(docs.reader.embed_keys)
            )
            return docs

        embedder = HttpEmbedder(url, "bge-m3")
        fields = {**label_fields(), "year": DocField(DataType.INT64)}
        sets = {
            "notes": made("notes", embed=embedder, doc_fields=fields),
            "words": made("words", doc_fields=fields),
        }
        sets["open"] = made("open")
        sets["open"].add_texts({"cocoa/how #1?.txt": "Cocoa is stirred into hot milk."})
        service = Service(sets, folder / "state", chat=HttpChatModel(url, "echo"))
        service.rerank = HttpRerankModel(url, "reranker-1")
        served = Served(service)
        stack.callback(served.close)
        yield served


@pytest.fixture
def client(served, model):
    """The official client, with models that answer."""
    with served.client() as client:
        yield client


def store_of(client, name):
    """The id of the vector store of a set."""
    return next(one.id for one in client.vector_stores.list() if one.name == name)


def file_search(client, *names, **more):
    """The tool over some sets."""
    return {
        "type": "file_search",
        "vector_store_ids": [store_of(client, one) for one in names],
        **more,
    }


# Models


def test_models_are_sets_and_models_that_embed_and_rerank(client):
    """Each can be read by its id; an unknown one is a 404."""
    assert {one.id for one in client.models.list()} == {
        "notes",
        "words",
        "open",
        "bge-m3",
        "bm25",
        "reranker-1",
    }
    assert client.models.retrieve("bge-m3").kind == "embedding"
    with pytest.raises(NotFoundError, match="does not exist or you do not have access"):
        client.models.retrieve("gpt-4o")


# Chat completions


def test_a_chat_cites_its_set(client, model):
    """The mark in the text has an annotation with the file and its quotation; the options reach the
    model.
    """
    found = client.chat.completions.create(
        model="words", messages=ASK, temperature=0.5, max_tokens=50, seed=7, top_p=0.5
    )
    message = found.choices[0].message
    first = message.annotations[0]
    start, end = first.url_citation.start_index, first.url_citation.end_index
    assert (message.content[start:end], found.choices[0].finish_reason) == ("[Source1]", "stop")
    assert first.url_citation.title.startswith("tea.md")
    assert first.quote in TEXTS["tea.md"]
    assert first.file_id.startswith("file-")
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (
        3,
        2,
        5,
    )
    sent = model.bodies[-1]
    assert (sent["temperature"], sent["max_tokens"], sent["seed"], sent["top_p"]) == (
        0.5,
        50,
        7,
        0.5,
    )


def test_the_url_of_a_citation_is_quoted(client):
    """Names of documents may have any characters."""
    found = client.chat.completions.create(
        model="open", messages=[{"role": "user", "content": "Cocoa milk?"}]
    )
    url = found.choices[0].message.annotations[0].url_citation.url
    assert "/s/open/files/cocoa/how%20%231%3F.txt?uid=" in url


def test_a_streamed_chat_has_the_same_text_citations_and_usage(client):
    """Citations come in the chunk that completes their mark."""
    with_usage = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model="words", messages=ASK, **with_usage))
    deltas = [one.choices[0].delta for one in chunks if one.choices]
    whole = client.chat.completions.create(model="words", messages=ASK).choices[0].message
    assert "".join(one.content or "" for one in deltas).split() == whole.content.split()
    cited = [one for delta in deltas for one in getattr(delta, "annotations", None) or []]
    assert [one["file_id"] for one in cited] == [one.file_id for one in whole.annotations]
    assert [one.usage and one.usage.total_tokens for one in chunks][-2:] == [None, 5]
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_the_conversation_is_read(client, model):
    """With turns before the question the model condenses it, and its tokens count; system messages
    reach it.
    """
    turns = [
        {"role": "system", "content": "Speak like a pirate."},
        *ASK,
        {"role": "assistant", "content": "Hot."},
    ]
    messages = [*turns, {"role": "user", "content": [{"type": "text", "text": "And for storage?"}]}]
    found = client.chat.completions.create(model="words", messages=messages)
    assert "pirate" in model.bodies[-1]["messages"][0]["content"]
    assert [one["role"] for one in model.bodies[-1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert found.usage.total_tokens == 10


def test_without_a_chat_model_the_answer_is_quoted(client, served, monkeypatch):
    """Each quotation is in the text of a result; neighbours may be quoted, and are no results."""
    monkeypatch.setattr(served.service, "chat", None)
    message = client.chat.completions.create(model="words", messages=ASK).choices[0].message
    assert all(annotation.quote in message.content for annotation in message.annotations)
    tool = file_search(client, "words", max_num_results=1)
    include = ["file_search_call.results"]
    found = client.responses.create(model="words", input=QUESTION, tools=[tool], include=include)
    assert len(found.output[0].results) == 1
    assert found.output_text.startswith("“")
    assert found.usage is None


@pytest.mark.slow
def test_a_function_as_model_reports_no_tokens(client, served, monkeypatch):
    """Then there is no usage, rather than an invented one."""
    monkeypatch.setattr(served.service, "chat", lambda text: "Eighty degrees [1].")
    assert client.chat.completions.create(model="words", messages=ASK).usage is None
    assert client.responses.create(model="words", input=QUESTION).usage is None


def test_what_is_not_supported_is_refused_by_name(client):
    """Nothing is ignored that would change the answer."""
    refused = {
        "n": 2,
        "logprobs": True,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "store": True,
    }
    refused |= {
        "response_format": {"type": "json_object"},
        "audio": {"voice": "alloy", "format": "mp3"},
    }
    for name, value in refused.items():
        with pytest.raises(BadRequestError) as error:
            client.chat.completions.create(model="words", messages=ASK, **{name: value})
        assert error.value.param.startswith(name)
    for body in (
        {"nonsense": 1},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "a"}]},
    ):
        assert (
            served_status(client, "/chat/completions", {"model": "words", "messages": ASK, **body})
            == 400
        )


def served_status(client, path, body):
    """The status of a request that the official client would not send."""
    return httpx.post(str(client.base_url).rstrip("/") + path, json=body, timeout=30).status_code


@pytest.mark.slow
def test_a_failing_model_is_an_error(client, model, quick_endpoints):
    """Of the request, or of the stream, whose status has been sent."""
    model.faults = [lambda _: (_ for _ in ()).throw(OSError())] * 20
    with pytest.raises(APIError):
        client.chat.completions.create(model="words", messages=ASK)
    with pytest.raises(APIError):
        list(client.chat.completions.create(model="words", messages=ASK, stream=True))
    kinds = [
        one.type for one in client.responses.create(model="words", input=QUESTION, stream=True)
    ]
    assert kinds[-1] == "response.failed"
    model.faults = []


# Responses


def test_file_search_answers_with_file_citations(client):
    """The search is an item with its results; the annotation names the file that the vector store
    has.
    """
    tool = file_search(client, "words", max_num_results=2)
    found = client.responses.create(
        model="words",
        input=QUESTION,
        tools=[tool],
        include=["file_search_call.results"],
        instructions="Be brief.",
    )
    search, message = found.output
    assert (search.type, search.status, search.queries) == (
        "file_search_call",
        "completed",
        [QUESTION],
    )
    assert all(0 <= one.score <= 1 for one in search.results)
    assert search.results[0].attributes["year"] == 2020
    first = message.content[0].annotations[0]
    assert found.output_text[first.index :].startswith("[Source1]")
    assert (first.type, first.file_id) == ("file_citation", search.results[0].file_id)
    assert first.file_id in {
        one.id for one in client.vector_stores.files.list(tool["vector_store_ids"][0])
    }
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.total_tokens) == (
        3,
        2,
        5,
    )
    assert (
        client.responses.create(model="echo", input=QUESTION, tools=[tool]).output[0].results
        is None
    )


@pytest.mark.slow
def test_filters_weights_and_thresholds(client):
    """Each changes what is found."""

    def found(*names, **more):
        given = {"model": "notes", "input": "tea", "include": ["file_search_call.results"]}
        answer = client.responses.create(
            **given, tools=[file_search(client, *(names or ["notes"]), **more)]
        )
        return [(one.filename, one.score) for one in answer.output[0].results]

    assert {name for name, _ in found()} == set(TEXTS)
    assert [name for name, _ in found(filters={"type": "eq", "key": "year", "value": 2020})] == [
        "tea.md"
    ]
    both = {"type": "or", "filters": [{"type": "gte", "key": "year", "value": 2022}]}
    assert [name for name, _ in found(filters=both)] == ["secret.txt"]
    by_words = {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
    assert found(ranking_options=by_words) != found()
    best = found()[0][1]
    assert {score for _, score in found(ranking_options={"score_threshold": best})} == {best}
    assert found(ranking_options={"score_threshold": 1}) in ([], found()[:1])
    assert sorted(name for name, _ in found("notes", "words")) == [
        "secret.txt",
        "secret.txt",
        "tea.md",
        "tea.md",
    ]


EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.annotation.added",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def test_a_streamed_response_has_the_protocol_s_events(client):
    """In their order and numbered; the last one has what the response without a stream has."""
    tool = file_search(client, "words")
    with client.responses.stream(model="words", input=QUESTION, tools=[tool]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert list(dict.fromkeys(one.type for one in events)) == list(dict.fromkeys(EVENTS))
    assert [one.sequence_number for one in events] == list(range(len(events)))
    text = "".join(one.delta for one in events if one.type == "response.output_text.delta")
    annotations = [
        one.annotation for one in events if one.type == "response.output_text.annotation.added"
    ]
    assert (text, len(annotations)) == (
        final.output_text,
        len(final.output[1].content[0].annotations),
    )
    assert final.usage.total_tokens == 5


@pytest.mark.slow
def test_responses_are_stored_for_a_while(client, served, model):
    """A stored one is continued by its id, read and deleted by who asked."""
    first = client.responses.create(model="words", input=QUESTION)
    then = client.responses.create(
        model="words", input="And its storage?", previous_response_id=first.id
    )
    assert [one["content"] for one in model.bodies[-1]["messages"][1:2]] == [QUESTION]
    assert client.responses.retrieve(then.id).output_text == then.output_text
    client.responses.delete(first.id)
    for wanted in (
        first.id,
        "resp_none",
        client.responses.create(model="words", input="tea", store=False).id,
    ):
        with pytest.raises(NotFoundError):
            client.responses.retrieve(wanted)
    with pytest.raises(NotFoundError):
        client.responses.create(model="words", input="Tea?", previous_response_id=first.id)


@pytest.mark.slow
def test_another_process_reads_a_stored_response(client, served):
    """Nothing is in the memory of one process."""
    first = client.responses.create(model="words", input=QUESTION)
    own = served.service
    other = Served(Service(own.sets, own.state, chat=own.chat))
    try:
        with other.client() as asking:
            assert asking.responses.retrieve(first.id) == client.responses.retrieve(first.id)
            assert [one.id for one in asking.vector_stores.list()] == [
                one.id for one in client.vector_stores.list()
            ]
    finally:
        other.close()


def test_stored_responses_end(client, monkeypatch):
    """They quote documents, so they are not stored for longer than answers."""
    found = client.responses.create(model="words", input=QUESTION)
    monkeypatch.setattr(openai_answers, "KEPT_S", 0.0)
    with pytest.raises(NotFoundError, match="minutes"):
        client.responses.retrieve(found.id)


def test_a_cut_answer_is_incomplete(client, model):
    """The reason is the limit of tokens."""
    message = {
        "choices": [{"index": 0, "message": {"content": "Eighty"}, "finish_reason": "length"}]
    }
    model.faults = [httpx_json(message)]
    found = client.responses.create(model="words", input=QUESTION, max_output_tokens=16)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def httpx_json(value):
    """A fault of the model server that answers something."""
    from tests.model_server import answered

    return lambda _: answered(value)


@pytest.mark.slow
def test_the_asynchronous_client(served, model):
    """Everything at once, as a program with an event loop sends it."""

    async def run():
        async with served.client(AsyncOpenAI) as client:
            return await everything(client)

    async def everything(client):
        stores = {one.name: one.id async for one in client.vector_stores.list()}
        tool = {"type": "file_search", "vector_store_ids": [stores["words"]]}
        chat, answer, vectors = await asyncio.gather(
            client.chat.completions.create(model="words", messages=ASK),
            client.responses.create(model="words", input=QUESTION, tools=[tool]),
            client.embeddings.create(model="bge-m3", input=["tea", "coffee"]),
        )
        stream = await client.responses.create(model="words", input=QUESTION, stream=True)
        return chat, answer, vectors, [one.type async for one in stream]

    chat, answer, vectors, kinds = asyncio.run(run())
    assert chat.choices[0].message.content == answer.output_text
    assert (len(vectors.data), kinds[-1]) == (2, "response.completed")


# Clients that leave


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_client_that_leaves_stops_the_model(served, model, monkeypatch, path, is_streamed):
    """The call of the chat model ends, whether or not its answer is streamed."""
    begun = head("text/event-stream") + event(piece("Eighty"))
    with RawServer(begun, hold=True) as slow:
        monkeypatch.setattr(served.service, "chat", HttpChatModel(slow.url, "slow"))
        body = {"model": "words", "stream": is_streamed, "messages": ASK, "input": QUESTION}
        del body["messages" if "responses" in path else "input"]
        for patience_s in (0.5, 5, 50):  # a busy machine may not have called the model by then
            with contextlib.suppress(httpx.TimeoutException):
                httpx.post(f"{served.url}{path}", json=body, timeout=patience_s)
            if slow.asked.is_set():
                break
        assert slow.gone.wait(60)


# Embeddings and rerank


def test_embeddings_as_floats_and_base64(client, served):
    """The client decodes base64 by itself; usage is the endpoint's, and other dimensions are
    refused.
    """
    floats = client.embeddings.create(
        model="bge-m3", input=["tea", "coffee"], encoding_format="float", dimensions=2
    )
    assert [one.embedding for one in floats.data] == [[3.0, 1.0], [6.0, 1.0]]
    assert client.embeddings.create(model="bge-m3", input=["tea", "coffee"]).data == floats.data
    assert (floats.usage.prompt_tokens, floats.usage.total_tokens) == (10, 10)
    with pytest.raises(BadRequestError, match="2 dimensions"):
        client.embeddings.create(model="bge-m3", input="tea", dimensions=3)
    with pytest.raises(BadRequestError, match="does not embed"):
        client.embeddings.create(model=client.models.list().data[-1].id, input="tea")
    for wrong in ("", " ", [], [[1, 2]], ["tea", ""]):
        with pytest.raises(BadRequestError):
            client.embeddings.create(model="bge-m3", input=wrong)


def test_rerank_as_jina_and_cohere(served, model):
    """Jina's response has the documents, Cohere's the indices; BM25 needs no model."""
    body = {
        "model": "reranker-1",
        "query": "tea",
        "documents": ["green tea", {"text": "tea of old"}],
        "top_n": 1,
    }
    jina = served.post("/v1/rerank", body).json()
    assert jina["results"] == [
        {"index": 1, "relevance_score": 10.0, "raw_score": 10.0, "document": {"text": "tea of old"}}
    ]
    assert jina["usage"] == {"prompt_tokens": 14, "total_tokens": 14}
    cohere = served.post("/v2/rerank", body).json()
    assert cohere["results"] == [{"index": 1, "relevance_score": 10.0, "raw_score": 10.0}]
    ranked = served.post(
        "/v1/rerank", {**body, "model": "bm25", "documents": ["ink", "green tea"]}
    ).json()
    assert [one["index"] for one in ranked["results"]] == [1]
    assert 0 < ranked["results"][0]["relevance_score"] < 1
    every = {"model": "bm25", "query": "tea", "documents": ["ink", "green tea", "paper"]}
    scores = {
        one["index"]: one["relevance_score"]
        for one in served.post("/v1/rerank", every).json()["results"]
    }
    assert scores[0] == scores[2] == 0 < scores[1]
    assert (
        served.post("/v2/rerank", {**body, "model": "no"})
        .json()["message"]
        .startswith("The model 'no'")
    )
    assert served.post("/v1/rerank", {**body, "query": " "}).json()["error"]["param"] == "query"


# Dify


def test_dify_retrieves_records(client, served):
    """By the set's name or its vector store's id; metadata is never null, and conditions filter."""
    body = {
        "knowledge_id": "words",
        "query": "tea",
        "retrieval_setting": {"top_k": 2, "score_threshold": 0.0},
    }
    found = served.post("/dify/retrieval", body).json()["records"]
    assert found[0].keys() == {"content", "score", "title", "metadata"}
    assert all(
        isinstance(one["metadata"], dict) and None not in one["metadata"].values() for one in found
    )
    assert (
        found
        == served.post(
            "/dify/retrieval", {**body, "knowledge_id": store_of(client, "words")}
        ).json()["records"]
    )
    for operator, value, names in (
        ("≥", 2022, ["secret.txt"]),
        ("is not", 2020, ["secret.txt"]),
        ("not empty", None, ["secret.txt", "tea.md"]),
    ):
        one = {"name": ["year"], "comparison_operator": operator, "value": value}
        given = {**body, "metadata_condition": {"logical_operator": "and", "conditions": [one]}}
        records = served.post("/dify/retrieval", given).json()["records"]
        assert sorted(one["title"] for one in records) == names
    strict = {**body, "retrieval_setting": {"top_k": 2, "score_threshold": 0.99}}
    assert served.post("/dify/retrieval", strict).json()["records"] == []
    assert (
        served.post("/dify/retrieval", {**body, "knowledge_id": "no"}).json()["error_code"] == 2001
    )


# Access


@pytest.fixture
def tokens(served, model):
    """A token for the documents of the staff, one without labels, and none of theirs."""
    access = served.service.access = Access(served.service.state)
    yield {
        "staff": access.create("read", labels=["staff"])[1],
        "all": access.create("read")[1],
        "wrong": "lrg_no",
    }
    for one in access.tokens():
        access.revoke(one.id)
    served.service.access = None
    access.close()


@pytest.mark.slow
def test_labels_hold_on_every_face(served, tokens):
    """A scoped token finds its documents alone; a set that it cannot see is as unknown as one that
    does not exist.
    """
    with served.client(key=tokens["staff"]) as staff, served.client(key=tokens["all"]) as everyone:
        assert {one.id for one in staff.models.list()} == {
            "notes",
            "words",
            "bge-m3",
            "bm25",
            "reranker-1",
        }
        hidden, known = store_of(everyone, "open"), store_of(staff, "words")
    by = {"Authorization": f"Bearer {tokens['staff']}"}
    chosen = random.Random(24)
    for _ in range(CASES // 10):
        query = " ".join(
            chosen.sample("secret board ninety tea degrees brewed water coffee".split(), 3)
        )
        faces = [
            served.post("/dify/retrieval", {"knowledge_id": "words", "query": query}, **by),
            served.post(
                "/v1/chat/completions",
                {"model": "notes", "messages": [{"role": "user", "content": query}]},
                **by,
            ),
            served.post(
                "/v1/responses",
                {
                    "model": "words",
                    "input": query,
                    "include": ["file_search_call.results"],
                    "tools": [{"type": "file_search", "vector_store_ids": [known]}],
                },
                **by,
            ),
        ]
        assert [one.status_code for one in faces] == [200, 200, 200]
        assert not any("secret.txt" in one.text or "board is" in one.text for one in faces)
    for path, body in (
        ("/v1/chat/completions", {"model": "open", "messages": ASK}),
        ("/v1/responses", {"model": "open", "input": "tea"}),
        (
            "/v1/responses",
            {
                "model": "words",
                "input": "a",
                "tools": [{"type": "file_search", "vector_store_ids": [hidden]}],
            },
        ),
        ("/dify/retrieval", {"knowledge_id": "open", "query": "tea"}),
        ("/dify/retrieval", {"knowledge_id": hidden, "query": "tea"}),
    ):
        text = json.dumps(body)
        name, other = ("open", "nope") if "open" in text else (hidden, "vs_0badf00d")
        answers = [
            served.post(path, one, **by) for one in (body, json.loads(text.replace(name, other)))
        ]
        shown = [one.text.replace(name, "X").replace(other, "X") for one in answers]
        shown = [text.replace(json.loads(text).get("request_id", "-"), "R") for text in shown]
        assert (answers[0].status_code, shown[0]) == (404, shown[1])


def test_stored_responses_belong_to_who_asked(served, tokens):
    """Another token cannot read, continue or delete them."""
    with served.client(key=tokens["staff"]) as staff, served.client(key=tokens["all"]) as other:
        first = staff.responses.create(model="words", input="tea")
        for attempt in (
            lambda: other.responses.retrieve(first.id),
            lambda: other.responses.delete(first.id),
            lambda: other.responses.create(
                model="words", input="tea", previous_response_id=first.id
            ),
        ):
            with pytest.raises(NotFoundError):
                attempt()
        assert staff.responses.retrieve(first.id).id == first.id


def test_errors_of_tokens(served, tokens):
    """In OpenAI's shape, in Dify's, and with Cohere's message."""
    refused = served.post("/v1/embeddings", {}, Authorization="Bearer lrg_no")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    for headers, code in (
        ({}, 1001),
        ({"Authorization": "lrg_no"}, 1001),
        ({"Authorization": "Bearer lrg_no"}, 1002),
    ):
        answer = served.post("/dify/retrieval", {}, **headers)
        assert (answer.status_code, answer.json()["error_code"]) == (403, code)
    assert served.post("/v2/rerank", {}).json()["message"]


def test_the_document_describes_the_errors(served):
    """Below /v1 they are OpenAI's."""
    document = httpx.get(f"{served.url}/openapi.json", timeout=60).json()
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank"):
        [schema] = document["paths"][path]["post"]["responses"]["default"]["content"].values()
        assert schema["schema"]["$ref"].endswith("/OpenAI.ErrorResponse")


# Hostile values


def hostile(chosen, depth=0):
    """Any JSON."""
    plain = [
        None,
        True,
        0,
        -1,
        10**30,
        1.5e308,
        "",
        "a\0b",
        "\ud800",
        "x" * 300,
        "auto",
        "file_search",
        "words",
        "eq",
    ]
    if depth > 3 or chosen.random() < 0.6:
        return chosen.choice(plain)
    if chosen.random() < 0.5:
        return [hostile(chosen, depth + 1) for _ in range(chosen.randrange(4))]
    keys = [
        "type",
        "key",
        "value",
        "filters",
        "role",
        "content",
        "text",
        "vector_store_ids",
        "effort",
        "include_usage",
    ]
    return {chosen.choice(keys): hostile(chosen, depth + 1) for _ in range(chosen.randrange(4))}


@pytest.mark.slow
def test_hostile_values_are_never_a_failure(served, client):
    """Wrong types and nested values at every field are refused, or answered."""
    chosen, store = random.Random(7), store_of(client, "words")
    tool = {"type": "file_search", "vector_store_ids": [store]}
    whole = {
        "/v1/chat/completions": ({"model": "words", "messages": ASK}, ChatBody.model_fields),
        "/v1/responses": (
            {"model": "words", "input": "tea", "tools": [tool]},
            ResponseBody.model_fields,
        ),
        "/v1/embeddings": ({"model": "bge-m3", "input": "tea"}, EmbeddingBody.model_fields),
        "/v1/rerank": (
            {"model": "bm25", "query": "tea", "documents": ["tea"]},
            ["query", "documents", "top_n"],
        ),
        "/dify/retrieval": (
            {"knowledge_id": "words", "query": "tea"},
            ["knowledge_id", "query", "retrieval_setting", "metadata_condition"],
        ),
    }
    with httpx.Client(base_url=served.url, timeout=30) as http:
        for _ in range(CASES):
            path = chosen.choice(list(whole))
            body, names = whole[path]
            body = {**body, chosen.choice(list(names)): hostile(chosen)}
            if path == "/v1/responses" and chosen.random() < 0.5:
                name = chosen.choice(list(FileSearch.model_fields))
                body = {**whole[path][0], "tools": [{**tool, name: hostile(chosen)}]}
            sent = json.dumps(body)
            answer = http.post(path, content=sent, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, f"{path} {sent}: {answer.text}"


# The published schema

EXTENSIONS = {
    "Model": {"kind"},
    "ChatCompletionResponseMessage.annotations": {"file_id", "quote", "location", "superseded_by"},
    "ChatCompletionResponseMessage": {"lazyrag"},
    "ChatCompletionStreamResponseDelta": {"annotations", "lazyrag"},
    "OutputTextContent": {"lazyrag"},
    "FileCitationBody": {"quote", "location", "superseded_by", "url"},
    "FileSearchToolCall.results": {"raw_score", "location", "superseded_by"},
    "Response": {"store"},
}
"""What is beside the published fields: quotations, locations, raw scores, verdicts."""


class Published:
    """Holds values to the published schema, and notes the properties that were there."""

    def __init__(self):
        self.document = json.loads(
            shared("openai", "chat-responses-embeddings-models.json").read_text(encoding="utf-8")
        )
        self.schemas, self.seen = self.document["components"]["schemas"], set()

    def properties(self, name):
        """The properties of a schema."""
        return self.merged(self.schemas[name])["properties"]

    def merged(self, schema):
        """A schema without `$ref` and `allOf` at its top."""
        if "$ref" in schema:
            return self.merged(self.schemas[schema["$ref"].rpartition("/")[2]])
        if "allOf" not in schema:
            return schema
        parts = [self.merged(one) for one in schema["allOf"]]
        found = {"type": "object", "properties": {}, "required": []}
        for one in parts:
            found["properties"] |= one.get("properties", {})
            found["required"] += one.get("required", [])
        return found

    def check(self, value, schema, name="", where="body"):
        """Hold a value to a schema."""
        if value is None and schema.get("nullable"):
            return
        name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else name
        schema = self.merged(schema)
        kinds = schema.get("anyOf") or schema.get("oneOf")
        if kinds:
            problems = []
            for one in kinds:
                try:
                    self.check(value, one, name, where)
                except AssertionError as error:
                    problems.append(str(error))
                else:
                    return
            raise AssertionError(f"{where} is {value!r:.200}: {problems}"[:2_000])
        self.check_typed(value, schema, name, where)

    def check_typed(self, value, schema, name, where):
        """Hold a value to a schema with a type."""
        types = {
            "string": str,
            "integer": int,
            "number": (int, float),
            "array": list,
            "null": type(None),
        }
        wanted = {**types, "boolean": bool, "object": dict}[schema.get("type", "object")]
        assert isinstance(value, wanted), f"{where} is {value!r:.200}, not {schema.get('type')}"
        assert wanted is bool or not isinstance(value, bool), f"{where} is {value!r:.200}"
        assert value in schema.get("enum", [value]), (
            f"{where} is {value!r:.200}, not one of {schema['enum']}"
        )
        if wanted is list:
            for at, one in enumerate(value):
                self.check(one, schema["items"], name, f"{where}[{at}]")
        if wanted is dict:
            known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
            assert set(schema.get("required", ())) <= value.keys(), (
                f"{where} lacks some of {schema['required']}"
            )
            for key, one in value.items():
                assert key in known or not known or key in EXTENSIONS.get(name, ()), (
                    f"{where}.{key} of {name}"
                )
                self.seen.add((name, key))
                if key in known or (isinstance(others, dict) and others):
                    self.check(one, known.get(key, others), f"{name}.{key}", f"{where}.{key}")


@pytest.fixture
def published():
    """The published schema of chat completions, responses, embeddings and models."""
    return Published()


@pytest.mark.shared
def test_requests_have_every_published_field(published):
    """No published field of a request is unknown here; what is beside them is named."""
    for name, model, more in (
        ("CreateChatCompletionRequest", ChatBody, set()),
        ("CreateResponse", ResponseBody, set()),
        ("CreateEmbeddingRequest", EmbeddingBody, {"input_type"}),
        ("FileSearchTool", FileSearch, set()),
        ("RankingOptions", Ranking, set()),
        ("HybridSearchOptions", HybridSearch, set()),
    ):
        assert set(model.model_fields) == published.properties(name).keys() | more


@pytest.mark.shared
def test_responses_are_what_is_published(served, client, published):
    """Every object and event has the published form, and nothing else but what `EXTENSIONS`
    names.
    """

    def hold(name, value):
        published.check(value, {"$ref": f"#/components/schemas/{name}"})

    hold("ListModelsResponse", httpx.get(f"{served.url}/v1/models", timeout=60).json())
    hold("Model", httpx.get(f"{served.url}/v1/models/words", timeout=60).json())
    asked = {"model": "words", "messages": ASK, "metadata": {"a": "b"}}
    hold("CreateChatCompletionResponse", served.post("/v1/chat/completions", asked).json())
    options = {"stream": True, "stream_options": {"include_usage": True}}
    for data in events_of(served.post("/v1/chat/completions", {**asked, **options})):
        hold("CreateChatCompletionStreamResponse", data)
    tool = file_search(client, "words", filters={"type": "ne", "key": "year", "value": 1})
    asked = {
        "model": "words",
        "input": QUESTION,
        "tools": [tool],
        "include": ["file_search_call.results"],
    }
    asked |= {
        "temperature": 0.5,
        "top_p": 1,
        "metadata": {"a": "b"},
        "instructions": "Be brief.",
        "user": "u",
    }
    asked |= {
        "reasoning": {"effort": "low"},
        "max_output_tokens": 100,
        "max_tool_calls": 1,
        "truncation": "auto",
    }
    whole = served.post("/v1/responses", asked).json()
    hold("Response", whole)
    hold("Response", httpx.get(f"{served.url}/v1/responses/{whole['id']}", timeout=60).json())
    kinds = {}
    for ref in published.schemas["ResponseStreamEvent"]["anyOf"]:
        name = ref["$ref"].rpartition("/")[2]
        kinds[published.merged(ref)["properties"]["type"]["enum"][0]] = name
    sent = events_of(served.post("/v1/responses", {**asked, "stream": True}))
    assert {one["type"] for one in sent} == set(EVENTS)
    for one in sent:
        hold(kinds[one["type"]], one)
    vectors = {"model": "bge-m3", "input": ["tea"], "user": "u"}
    hold("CreateEmbeddingResponse", served.post("/v1/embeddings", vectors).json())
    hold("ErrorResponse", served.post("/v1/embeddings", {}).json())
    for name in (
        "FileSearchToolCall",
        "FileCitationBody",
        "ResponseUsage",
        "Embedding",
        "Model",
        "CompletionUsage",
    ):
        missing = published.properties(name).keys() - {
            key for of, key in published.seen if of == name
        }
        assert missing <= {"shutdown_date", "completion_tokens_details", "prompt_tokens_details"}


def events_of(answer):
    """The data of a stream's events."""
    lines = [
        line.removeprefix("data: ")
        for line in answer.text.splitlines()
        if line.startswith("data: ")
    ]
    return [json.loads(line) for line in lines if line != "[DONE]"]
