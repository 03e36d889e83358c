"""Search, explanations and nodes over HTTP, as the OpenAPI document describes them."""

from __future__ import annotations

import json
import os

import pytest
from fastapi.testclient import TestClient

import lazyrag.server.core.set_request
from lazyrag import Document
from lazyrag.data.filters import And, Condition, Or
from lazyrag.retrieval.base import BaseRetriever
from lazyrag.server.api.search import filter_of
from lazyrag.server.core.principal import Principal
from lazyrag.server.jobs import Jobs
from tests.server.openapi import conforms
from tests.server.running import run_jobs

SET = "/api/v1/sets/notes"


def searched(client, query="green tea", **more):
    """The uids of a search."""
    return [
        hit["uid"]
        for hit in client.post(f"{SET}/search", json={"query": query, **more}).json()["hits"]
    ]


def test_a_search_over_http_finds_what_the_document_finds(client, docs):
    """Hits, order and scores are those of `Document.search`, also by filters and similarity."""
    found = client.post(
        f"{SET}/search", json={"query": "绿茶怎么泡", "topk": 2, "filters": {"file_type": ".txt"}}
    )
    body = conforms(client, "post", "/api/v1/sets/{set}/search", found)
    expected = docs.search("绿茶怎么泡", topk=2, where={"file_type": ".txt"})
    assert [(hit["uid"], hit["score"]) for hit in body["hits"]] == [
        (node.uid, node.score) for node in expected
    ]
    assert body["hits"][0]["path"] == "茶.txt"
    no_texts = {"not": {"field": "file_type", "op": "==", "value": ".txt"}}
    hits = docs.get_nodes("MediumChunk", filters={"file_type": ".md"})
    assert set(searched(client, "tea", retriever="bm25", filters=no_texts)) == {
        node.uid for node in hits
    }


def test_a_search_beside_a_deletion_leaves_the_document_out(client, docs, monkeypatch):
    """A document that is deleted between the ranking and the reading of its nodes is no error of
    the search.
    """
    rank, ranked = BaseRetriever.answer, []

    def rank_then_delete(retriever, *args, **options):
        found = rank(retriever, *args, **options)
        if not ranked:
            docs.delete_files(["tea.md"])
        ranked.append({node.path for node in found})
        return found

    monkeypatch.setattr(BaseRetriever, "answer", rank_then_delete)
    answer = client.post(f"{SET}/search", json={"query": "tea coffee", "retriever": "bm25"})
    assert ranked == [{"tea.md", "coffee.txt"}, {"coffee.txt"}]
    assert [hit["path"] for hit in answer.json()["hits"]] == ["coffee.txt"]


def test_a_search_says_what_it_inferred(client, docs):
    """The values that the query names, by field; nothing where that is switched off."""
    docs.add_texts({"Acme 2018": "Sales of green tea grew.", "Bond 2018": "Green tea sold well."})
    query = {"query": "green tea of Acme in FY18"}
    found = client.post(f"{SET}/search", json=query)
    body = conforms(client, "post", "/api/v1/sets/{set}/search", found)
    assert body["inferred"] == {"name": ["Acme"], "year": ["2018"]}
    assert body["hits"][0]["path"] == "Acme 2018"
    plain = client.post(f"{SET}/search", json={**query, "infer_filters": False}).json()
    assert plain["inferred"] == {}
    without = {**query, "infer_filters": ["-year: 2018"]}
    assert client.post(f"{SET}/search", json=without).json()["inferred"] == {"name": ["Acme"]}


def test_a_search_as_of_a_day(client, docs):
    """Later documents are left out, and an explanation names what supersedes an older one."""
    docs.add_texts(
        {"Lease 2021": "The rent of the house is 900.", "Lease 2024": "The rent is 950."}
    )
    query = {"query": "rent of the house", "as_of": "2024-05-01", "explain": True}
    found = client.post(f"{SET}/search", json=query)
    body = conforms(client, "post", "/api/v1/sets/{set}/search", found)
    assert [hit["path"] for hit in body["hits"]] == ["Lease 2024", "Lease 2021"]
    assert body["explanation"]["hits"][1]["superseded_by"] == "Lease 2024"
    for retriever in ("default", "bm25"):
        plain = {"query": "rent of the house", "retriever": retriever}
        marks = {
            hit["path"]: hit["metadata"].get("superseded_by", "")
            for hit in client.post(f"{SET}/search", json=plain).json()["hits"]
        }
        assert (marks["Lease 2021"], marks["Lease 2024"]) == ("Lease 2024", "")
    early = client.post(f"{SET}/search", json={**query, "as_of": "2023-12-31"}).json()
    assert [hit["path"] for hit in early["hits"]] == ["Lease 2021"]
    wrong = client.post(f"{SET}/search", json={**query, "as_of": "2024-13-1"})
    assert wrong.status_code == 400
    assert "as_of" in wrong.text


def test_the_parts_of_a_query_are_searched(client):
    """The explanation says which part nothing covers; ``off`` searches the query as it is."""
    query = {"query": "green tea versus hovercraft", "explain": True}
    found = client.post(f"{SET}/search", json=query)
    body = conforms(client, "post", "/api/v1/sets/{set}/search", found)
    assert body["explanation"]["parts"] == {"green tea": [1], "hovercraft": []}
    plain = client.post(f"{SET}/search", json={**query, "parts": "off"}).json()
    assert "parts" not in plain["explanation"]
    assert client.post(f"{SET}/search", json={**query, "parts": "no"}).status_code == 422


def test_an_explanation_comes_with_the_hits(client):
    """Each hit has its rank and its standings, and the whole fits the OpenAPI document."""
    found = client.post(f"{SET}/search", json={"query": "green tea", "explain": True})
    body = conforms(client, "post", "/api/v1/sets/{set}/search", found)
    assert [hit["uid"] for hit in body["explanation"]["hits"]] == [
        hit["uid"] for hit in body["hits"]
    ]
    assert body["explanation"]["hits"][0]["standings"][0]["rank"] == 1


def test_why_not_names_the_cause(client, docs):
    """A node without a word of the query is not found for that reason."""
    coffee = next(node for node in docs.get_nodes("MediumChunk") if node.path == "coffee.txt")
    found = client.post(f"{SET}/why-not", json={"query": "green", "uid": coffee.uid})
    assert conforms(client, "post", "/api/v1/sets/{set}/why-not", found)["cause"] == "terms"


def test_nodes_come_in_pages(client, docs):
    """Pages together are all nodes of the group, each once."""
    uids, offset = [], 0
    while offset is not None:
        answer = client.get(
            f"{SET}/nodes", params={"limit": 2, "offset": offset, "group": "MediumChunk"}
        )
        page = conforms(client, "get", "/api/v1/sets/{set}/nodes", answer)
        uids += [node["uid"] for node in page["nodes"]]
        offset = page["next"]
    assert uids == [node.uid for node in docs.get_nodes("MediumChunk")]


@pytest.mark.parametrize("around", ["neighbours", "parents", "children"])
def test_what_is_around_a_node_is_what_the_document_says(client, docs, around):
    """Neighbours, parents and children are those of the nodes in Python."""
    docs.create_node_group(
        "half", transform=lambda text: [text[:9], text[9:]], parent="MediumChunk"
    )
    node = docs.get_nodes("half")[0]
    expected = {
        "neighbours": docs.window(node),
        "parents": [node.parent],
        "children": docs.get_nodes("half", document_ids=[node.document_id])[:2],
    }
    start = node.parent if around == "children" else node
    answer = client.get(f"{SET}/nodes/{start.uid}/{around}", params={"group": start.group})
    body = conforms(client, "get", f"/api/v1/sets/{{set}}/nodes/{{uid}}/{around}", answer)
    assert [one["uid"] for one in body["nodes"]] == [one.uid for one in expected[around]]


def test_an_unknown_node_is_a_problem(client):
    """404, with the way out."""
    answer = client.get(f"{SET}/nodes/{'0' * 32}")
    problem = conforms(client, "get", "/api/v1/sets/{set}/nodes/{uid}", answer)
    assert (answer.status_code, problem["remedy"]) == (
        404,
        "Uids change with the text: search again.",
    )


@pytest.mark.sample(11)
@pytest.mark.parametrize(
    "body",
    [
        {"query": "tea", "topk": 1001},
        {"query": "tea", "topk": 0},
        {"query": "x" * 8193},
        {"query": "tea", "retriver": "bm25"},
        {"query": "tea", "retriever": "bm26"},
        {"query": "tea", "group": "nowhere"},
        {"query": "tea", "filters": {"field": "size", "op": "~", "value": 1}},
        {"query": "tea", "filters": {"nowhere": 1}},
        {"query": "tea", "filters": {"or": [{"file_type": ".md"}] * 1_001}},
        {"query": "tea", "filters": {"and": [{"not": {"or": [{"file_type": ".md"}] * 40}}] * 40}},
        {"query": "\ud800"},
    ],
)
def test_what_is_not_valid_is_a_problem_of_the_client(client, body):
    """Sizes, names and filters are checked, and none of them is a failure of the service."""
    text = json.dumps(body)
    answer = client.post(
        f"{SET}/search", content=text, headers={"content-type": "application/json"}
    )
    assert answer.status_code in {400, 404, 422}
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.fixture
def web_process(service, docs):
    """The set as a web process has it: read-only, while ``docs`` is the writer's."""
    store = {"type": "map", "kwargs": {"uri": str(service.state.parent / "store.db")}}
    folder = docs.reader.indexer.dataset.folder
    with Document(folder, store_conf={"segment_store": store}, read_only=True) as reading:
        service.sets["notes"] = reading
        yield reading


def test_a_group_that_a_web_process_cannot_build_is_a_conflict(service, client, web_process):
    """Web processes only read: the problem says what to do, and names no folder of the server."""
    problem = client.post(f"{SET}/search", json={"query": "tea", "group": "FineChunk"}).json()
    unknown = client.post(f"{SET}/search", json={"query": "tea", "group": "Fine"}).json()
    assert '{"names": ["FineChunk"]}' in problem["remedy"]
    assert (problem["status"], problem["error"], unknown["status"]) == (409, "ReadOnlyError", 404)
    assert "Build it" in problem["remedy"]
    assert str(service.state.parent) not in f"{problem}{unknown}"


def test_the_writer_builds_tables_for_the_first_query(client, docs, web_process, monkeypatch):
    """Until they are there, queries have to come again; all of them share the same build."""
    monkeypatch.setattr(lazyrag.server.core.set_request, "_BUILD_WAIT_S", 0.0)
    (docs.reader.indexer.dataset.folder / "prices.csv").write_text("tea,EUR\ngreen,4.5\n")
    docs.sync()

    def post(path, **body):
        return client.post(f"{SET}/{path}", json=body)

    waiting = [post("sql"), post("collect", per="row"), client.get("/s/notes/all?q=4.5&per=row")]
    assert [
        (response.status_code, response.headers["Retry-After"]) for response in waiting[:2]
    ] == [(503, "1")] * 2
    assert "are being built" in waiting[2].text
    [job] = run_jobs(docs)
    assert (job.kind, job.state) == ("activate_group", "SUCCESS")
    assert [table["name"] for table in post("sql").json()["tables"]] == ["prices"]
    assert post("collect", query="green", per="row").json()["total"] == 1
    assert "tea: green" in client.get("/s/notes/all?q=green&per=row").text


def test_tables_that_an_administrator_has_canceled_are_not_built(
    client, docs, web_process, monkeypatch
):
    """Queries submit no further job; the problem has the request that builds them."""
    monkeypatch.setattr(lazyrag.server.core.set_request, "_BUILD_WAIT_S", 0.0)
    assert client.post(f"{SET}/sql", json={}).status_code == 503
    [job] = Jobs(docs).list()
    Jobs(docs).cancel(job.id)
    problem = client.post(f"{SET}/sql", json={}).json()
    assert (problem["status"], '{"names": ["table"]}' in problem["remedy"]) == (409, True)
    assert len(Jobs(docs).list()) == 1


def test_filters_of_json_have_all_operators():
    """Conditions can be joined, and nesting has an end."""
    author = {"or": [{"author": "A"}, {"not": {"author": ["B"]}}]}
    found = filter_of({"and": [{"field": "year", "op": ">", "value": 2000}, author]})
    either = Or(Condition("author", "in", ["A"]), ~Condition("author", "in", ["B"]))
    assert found == And(Condition("year", ">", 2000), either)
    deep: dict = {"author": "A"}
    for _ in range(40):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="nested"):
        filter_of(deep)


def test_hidden_documents_exist_on_no_route(app, docs):
    """A principal that sees one document finds no node of another one, nor its uid."""
    hidden = next(node for node in docs.get_nodes("MediumChunk") if node.path == "茶.txt")
    app.state.service._views["notes", ("tea",)] = docs.restricted({"file_name": ["tea.md"]})

    async def as_token(scope, receive, send):
        scope.setdefault("state", {})["principal"] = Principal("t1", "read", ("tea",))
        await app(scope, receive, send)

    with TestClient(as_token, base_url="http://127.0.0.1") as client:
        hits = client.post(f"{SET}/search", json={"query": "绿茶 tea"}).json()["hits"]
        assert {hit["path"] for hit in hits} == {"tea.md"}
        assert {node["path"] for node in client.get(f"{SET}/nodes").json()["nodes"]} == {"tea.md"}
        hidden_one, no_one = (client.get(f"{SET}/nodes/{uid}") for uid in (hidden.uid, "0" * 32))
        assert hidden_one.json()["detail"].replace(hidden.uid, "0" * 32) == no_one.json()["detail"]


def test_metrics_count_requests_by_route_and_status(client):
    """Paths are counted by their route, so that callers cannot add series."""
    searched(client)
    client.get(f"{SET}/nodes/nowhere")
    client.request("SOME", "/some/path")
    text = client.get("/metrics").text
    lines = text.replace(f',process="{os.getpid()}"', "").splitlines()
    assert (
        'lazyrag_http_requests_total{method="POST",route="/api/v1/sets/{set}/search",status="200"} 1'
        in lines
    )
    assert (
        'lazyrag_http_requests_total{method="GET",route="/api/v1/sets/{set}/nodes/{uid}",status="404"} 1'
        in lines
    )
    assert 'lazyrag_http_requests_total{method="",route="",status="404"} 1' in lines
    assert 'lazyrag_documents{set="notes"} 3' in lines
    assert "some" not in text.lower()


def test_a_request_is_a_span_of_its_caller(client, spans):
    """The request's span continues the caller's trace, and holds that of the search; none of them
    has content.
    """
    headers = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    client.post(f"{SET}/search", json={"query": "green tea"}, headers=headers)
    found = {span.name: span for span in spans.get_finished_spans()}
    request, search = found["POST /api/v1/sets/{set}/search"], found["retrieval notes"]
    assert (request.parent.span_id, request.context.trace_id) == (
        int("2" * 16, 16),
        int("1" * 32, 16),
    )
    assert search.context.trace_id == request.context.trace_id
    assert not any("green" in span.to_json() for span in found.values())
