"""Values of all classes, as `to_dict` writes them, are what the OpenAPI document describes."""

from __future__ import annotations

import json

import pytest

from lazyrag.server.jobs import Jobs
from tests.server.openapi import conforms

SET = "/api/v1/sets/{set}"
READ = {
    "/documents": ("/documents", {"limit": 2}),
    "/documents/{document_id}": ("/documents/tea.md", {}),
    "/versions/{document_id}": ("/versions/tea.md", {}),
    "/diffs/{document_id}": ("/diffs/tea.md", {"before": 1}),
    "/marks/{document_id}": ("/marks/tea.md", {"start": 7, "end": 16}),
    "/jobs": ("/jobs", {}),
    "/status": ("/status", {}),
    "/tree": ("/tree", {}),
    "/outline": ("/outline", {"path": "tea.md"}),
    "/nodes": ("/nodes", {"group": "lazyllm_root"}),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("path", READ)
def test_what_is_read_is_what_is_described(client, docs, path):
    """Documents, versions, marks, jobs, nodes: nothing is missing, and nothing has no
    description.
    """
    Jobs(docs).submit("sync", {"max_deleted": 0.5})
    url, parameters = READ[path]
    answer = client.get(SET.format(set="notes") + url, params=parameters)
    assert answer.status_code == 200, answer.text
    assert conforms(client, "get", SET + path, answer)


def test_complete_lists_paths_and_tables_are_what_is_described(client, docs):
    """All matches with their count, paths by a pattern, tables and rows of SQL."""
    docs.add_texts({"prices.md": "| tea | EUR |\n|---|---|\n| green | 4 |\n| black | 3 |\n"})

    def post(name, **body):
        answer = client.post(f"/api/v1/sets/notes/{name}", json=body)
        assert answer.status_code == 200, answer.text
        return conforms(client, "post", f"{SET}/{name}", answer)

    page = post("collect", query="tea OR green", limit=1)
    assert (page["total"], [item["path"] for item in page["items"]]) == (2, ["prices.md"])
    page = post("collect", query="tea OR green", after=page["next"])
    assert [item["path"] for item in page["items"]] == ["tea.md"]
    [item] = post("collect", query="green", per="row", filters={"file_name": "prices.md"})["items"]
    assert (item["location"], item["snippet"]) == ("lines 1-4, row 1", "tea: green; eur: 4")
    [match] = post("grep", text="e.presso", regex=True)["matches"]
    assert match["path"] == "coffee.txt"
    [table] = post("sql")["tables"]
    assert (table["name"], table["columns"]) == ("prices", ["tea", "eur"])
    [row] = post("sql", query="SELECT tea FROM prices WHERE eur > 3")["rows"]
    [place] = row["locations"]
    assert (row["values"], place["location"]) == ({"tea": "green"}, "lines 1-4, row 1")
    paths = client.get("/api/v1/sets/notes/glob", params={"pattern": "*.md"})
    page = {"paths": ["prices.md", "tea.md"], "next": None, "rest": 0}
    assert conforms(client, "get", SET + "/glob", paths) == page


PAGED = [
    ("get", "glob", "paths", {"pattern": "*"}),
    ("get", "outline", "sections", {"path": "long.md"}),
    ("post", "grep", "matches", {"text": "Green tea"}),
    ("post", "sql", "rows", {"query": "SELECT * FROM long"}),
    ("post", "collect", "items", {"query": "green", "per": "row"}),
]


@pytest.mark.parametrize(("method", "name", "field", "given"), PAGED)
def test_pages_within_a_token_budget_are_complete_together(
    client, docs, tmp_path, method, name, field, given
):
    """Each says where the next one begins."""
    numbers = range(40)
    sections = "".join(f"# Tea {number}\n\nIt is hot.\n\n" for number in numbers)
    rows = "".join(f"| Green tea {number} | {number} |\n" for number in numbers)
    docs.add_texts({f"{number} {'x' * 20}.md": "Tea." for number in numbers})
    long = f"{sections}| tea | EUR |\n|---|---|\n{rows}"
    (tmp_path / "files" / "long.md").write_text(long, encoding="utf-8")
    docs.sync()
    found = []
    request = {**given, "max_tokens": 300}
    first = "after" if name == "collect" else "start"
    while request.get(first, "") is not None:
        sent = {"params" if method == "get" else "json": request}
        answer = client.request(method, f"/api/v1/sets/notes/{name}", **sent)
        page = conforms(client, method, f"{SET}/{name}", answer)
        assert 0 < len(page[field]) < len(numbers)
        found += map(json.dumps, page[field])
        request[first] = page["next"]
    assert len(found) == len({*found}) >= len(numbers)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("collect", {"query": "the"}),
        ("collect", {"query": "tea", "after": "[["}),
        ("collect", {"query": "tea", "judge": "x"}),
        ("collect", {"query": "tea", "limit": 10**9}),
        ("grep", {"text": "(", "regex": True}),
        ("sql", {"query": "DROP TABLE prices"}),
        ("sql", {"query": "SELECT * FROM read_csv('/etc/passwd')"}),
        ("sql", {"query": "SELECT 1", "limit": 10**9}),
    ],
)
def test_wrong_queries_of_agents_are_refused(client, name, body):
    """By a problem that says what must hold."""
    answer = client.post(f"/api/v1/sets/notes/{name}", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"]


@pytest.mark.slow
def test_matches_related_nodes_and_estimates_are_what_is_described(client, docs):
    """So are occurrences of a text, nodes that resemble one, and the plan of a sync."""
    found = client.post("/api/v1/sets/notes/grep", json={"text": "tea", "ignore_case": True})
    matches = conforms(client, "post", SET + "/grep", found)["matches"]
    assert [one["path"] for one in matches] == ["tea.md"] * 3
    uid = docs.get_nodes("MediumChunk")[0].uid
    found = client.get(f"/api/v1/sets/notes/nodes/{uid}/related")
    conforms(client, "get", SET + "/nodes/{uid}/related", found)
    found = client.post("/api/v1/sets/notes/sync", params={"dry_run": True}, json={})
    assert conforms(client, "post", SET + "/sync", found)["calls"] == 0
