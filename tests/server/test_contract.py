"""Values of all classes, as `to_dict` writes them, are what the OpenAPI document describes."""

from __future__ import annotations

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


@pytest.mark.slow
def test_matches_related_nodes_and_estimates_are_what_is_described(client, docs):
    """So are occurrences of a text, nodes that resemble one, and the plan of a sync."""
    found = client.post("/api/v1/sets/notes/grep", json={"text": "tea", "ignore_case": True})
    assert [one["path"] for one in conforms(client, "post", SET + "/grep", found)] == ["tea.md"] * 3
    uid = docs.get_nodes("MediumChunk")[0].uid
    found = client.get(f"/api/v1/sets/notes/nodes/{uid}/related")
    conforms(client, "get", SET + "/nodes/{uid}/related", found)
    found = client.post("/api/v1/sets/notes/sync", params={"dry_run": True}, json={})
    assert conforms(client, "post", SET + "/sync", found)["calls"] == 0
