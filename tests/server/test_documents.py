"""Sets, documents and jobs over HTTP, and what of them a principal with labels sees and changes."""

from __future__ import annotations

import json
import threading

import pytest
from fastapi.testclient import TestClient

from lazyrag import DataType, DocField, Document
from lazyrag.server.app import create_app
from lazyrag.server.core.config import SetConfig, open_set
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.service import Service
from lazyrag.server.jobs import Jobs
from tests.picture_files import GARDEN, in_word
from tests.server.running import run_jobs
from tests.shared import shared

SET = "/api/v1/sets/notes"


def add(client, **texts):
    """Add texts, and return the ids that they got."""
    answer = client.post(f"{SET}/texts", json={"texts": texts})
    assert answer.status_code == 202, answer.text
    return answer.json()["ids"]


def paths(client, **params):
    """The ids of a page of documents."""
    return [one["id"] for one in client.get(f"{SET}/documents", params=params).json()["documents"]]


# Reading


@pytest.mark.slow
def test_sets(client):
    """A set names its groups and fields, and counts its documents."""
    [listed] = client.get("/api/v1/sets").json()["sets"]
    one = client.get(SET).json()
    assert (listed["name"], one["documents"]) == ("notes", 3)
    assert "MediumChunk" in one["groups"]
    assert one["fields"]["file_type"] == "VARCHAR"
    assert client.get("/api/v1/sets/other").status_code == 404
    assert client.get(f"{SET}/status").json()["failed"] == []


@pytest.mark.slow
def test_pages_of_documents(client):
    """Documents come in pages, by id, and may be filtered."""
    first = client.get(f"{SET}/documents", params={"limit": 2}).json()
    assert [one["id"] for one in first["documents"]] == ["coffee.txt", "tea.md"]
    assert paths(client, after=first["next"]) == ["茶.txt"]
    assert paths(client, where=json.dumps({"file_type": [".md"]})) == ["tea.md"]
    assert paths(client, status="FAILED") == []
    assert first["documents"][1]["groups"]["MediumChunk"]["status"] == "SUCCESS"
    for wrong in ({"limit": 0}, {"where": "[]"}, {"where": "{"}, {"status": "DONE"}):
        assert client.get(f"{SET}/documents", params=wrong).status_code == 422
    assert client.get(f"{SET}/documents", params={"where": '{"nofield": 1}'}).status_code == 400


@pytest.mark.slow
def test_etags(client, docs):
    """An unchanged answer is 304; a change gives another tag."""
    first = client.get(f"{SET}/documents")
    headers = {"If-None-Match": first.headers["etag"]}
    assert client.get(f"{SET}/documents", headers=headers).status_code == 304
    add(client, note="Tea is dry.")
    run_jobs(docs)
    assert client.get(f"{SET}/documents", headers=headers).status_code == 200


def test_one_document(client):
    """A document and its versions; ids may have slashes and any letters."""
    assert client.get(f"{SET}/documents/茶.txt").json()["status"] == "SUCCESS"
    assert [one["number"] for one in client.get(f"{SET}/versions/tea.md").json()["versions"]] == [1]
    for kind in ("documents", "versions", "files", "marks"):
        answer = client.get(
            f"{SET}/{kind}/no.txt", params={"start": 0, "end": 1} if kind == "marks" else {}
        )
        assert (answer.status_code, answer.headers["content-type"]) == (
            404,
            "application/problem+json",
        )


def test_files(client, docs, tmp_path):
    """The bytes of a file, or a range of them, to be saved and never shown as a page."""
    (tmp_path / "files" / 'a"b\r茶.html').write_bytes(b"<p>Tea<script>alert(1)</script>")
    docs.sync()
    answer = client.get(f"{SET}/files/a%22b%0D茶.html")
    assert answer.content == b"<p>Tea<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    disposition = answer.headers["content-disposition"]
    assert disposition == "attachment; filename*=utf-8''a%22b%0D%E8%8C%B6.html"
    assert (
        answer.headers["x-content-type-options"],
        "sandbox" in answer.headers["content-security-policy"],
    ) == (
        "nosniff",
        True,
    )
    part = client.get(f"{SET}/files/coffee.txt", headers={"Range": "bytes=0-5"})
    assert (part.status_code, part.content) == (206, b"Coffee")


@pytest.mark.slow
def test_files_that_became_links(client, tmp_path):
    """A file that was replaced by a link out of the folder is not followed."""
    (tmp_path / "secret").write_text("secret")
    tea = tmp_path / "files" / "tea.md"
    tea.unlink()
    tea.symlink_to(tmp_path / "secret")
    assert client.get(f"{SET}/files/tea.md").status_code == 404


@pytest.mark.slow
@pytest.mark.shared
def test_pages_and_marks(client, docs):
    """An uploaded PDF has page images, and boxes for a span of its text."""
    pdf = shared("data", "docs", "layout-parser-paper-fast.pdf")
    client.post(f"{SET}/documents", files={"file": ("paper.pdf", pdf.read_bytes())})
    run_jobs(docs)
    image = client.get(f"{SET}/pages/paper.pdf", params={"page": 1, "width": 64})
    assert (image.headers["content-type"], image.content[:4]) == ("image/png", b"\x89PNG")
    marks = client.get(f"{SET}/marks/paper.pdf", params={"start": 0, "end": 20}).json()
    assert marks["boxes"]
    assert all(0 <= box["x0"] < box["x1"] <= 1 for box in marks["boxes"])
    assert client.get(f"{SET}/pages/tea.md").status_code == 400


@pytest.mark.slow
def test_versions_and_rollback(client, docs, tmp_path):
    """Versions differ line by line; without stored ones, a rollback fails as a job."""
    (tmp_path / "files" / "tea.md").write_text("# Tea\n\nBlack tea.\n")
    client.post(f"{SET}/sync")
    run_jobs(docs)
    assert client.get(f"{SET}/documents/tea.md").json()["version"] == 2
    assert client.get(f"{SET}/diffs/tea.md", params={"before": 1}).status_code == 400
    client.post(f"{SET}/rollback", json={"document": "tea.md"})
    [job] = run_jobs(docs)
    assert (job.state, "keep_versions" in str(job.error)) == ("FAILED", True)


# Writing


def test_changes_are_jobs(client, docs, tmp_path):
    """Texts, metadata, deletions and syncs are jobs, each with its place."""
    assert add(client, note="Tea is dry.") == {"note": "note"}
    client.post(f"{SET}/metadata", json={"changes": {"tea.md": {"author": "Lu"}}})
    client.delete(f"{SET}/documents/coffee.txt")
    answer = client.post(f"{SET}/sync", json={"max_calls": 5})
    assert answer.headers["location"] == f"{SET}/jobs/{answer.json()['id']}"
    states = [(job.kind, job.state) for job in run_jobs(docs)]
    assert states == [
        ("add_texts", "SUCCESS"),
        ("update_metadata", "SUCCESS"),
        ("delete_files", "DELETED"),
        ("sync", "SUCCESS"),
    ]
    assert paths(client) == ["note", "tea.md", "茶.txt"]


@pytest.mark.slow
def test_changes_that_are_refused(client, docs):
    """What is unknown or malformed is a problem at once, and no job."""
    assert client.post(f"{SET}/delete", json={"documents": ["tea.md", "no.txt"]}).status_code == 404
    assert client.post(f"{SET}/metadata", json={"changes": {"no.txt": {}}}).status_code == 404
    assert client.post(f"{SET}/texts", json={"texts": {"../a": "x"}}).status_code == 422
    assert (
        client.post(f"{SET}/texts", json={"texts": {"a": "x"}, "metadata": {"b": {}}}).status_code
        == 422
    )
    assert client.post(f"{SET}/texts", json={"texts": {}}).status_code == 422
    assert client.post(f"{SET}/sync", json={"maxcalls": 3}).status_code == 422
    assert client.post(f"{SET}/verify", json={"nothing": 1}).status_code == 400
    assert Jobs(docs).list() == []


@pytest.mark.slow
def test_maintenance(client, docs):
    """Verification and repair are jobs with their result."""
    for kind in ("verify", "repair", "retry", "compact"):
        assert client.post(f"{SET}/{kind}").status_code == 202
    assert [job.state for job in run_jobs(docs)] == ["SUCCESS"] * 4


@pytest.mark.slow
def test_a_dry_run_of_a_sync(client, docs, tmp_path):
    """It says what a sync would do, and is no job."""
    (tmp_path / "files" / "new.md").write_text("Oolong.")
    body = client.post(f"{SET}/sync", params={"dry_run": 1, "price": 1}).json()
    assert body["files"]["added"] == ["new.md"]
    assert body["steps"][0]["step"] == "load"
    assert Jobs(docs).list() == []


@pytest.mark.slow
def test_a_reading_process(tmp_path):
    """A process that only reads sends files, estimates a sync, and submits jobs to the one that
    writes.
    """
    (tmp_path / "tea.md").write_text("Green tea.")
    # in the folder, where uploads keep their ids nevertheless
    state = tmp_path / ".lazyrag" / "serve"
    chosen = SetConfig(path=tmp_path, labels=["a"])
    with open_set("notes", chosen, state, write=True) as docs:
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        with open_set("notes", chosen, state, write=False) as reader:
            service = Service({"notes": reader}, state)
            client = TestClient(create_app(service), base_url="http://127.0.0.1")
            assert client.get(f"{SET}/files/tea.md").text == "Green tea."
            (tmp_path / "oolong.md").write_text("Oolong.")
            found = client.post(f"{SET}/sync", params={"dry_run": 1}).json()["files"]
            assert (found["added"], found["unchanged"]) == (["oolong.md"], ["tea.md"])
            client.post(f"{SET}/documents", files={"file": ("up.md", b"Black tea.")})
            assert [job.state for job in run_jobs(docs)] == ["SUCCESS"]
            docs.sync()
            assert client.get(f"{SET}/files/up.md").text == "Black tea."
            assert client.get(f"{SET}/documents/tea.md").json()["labels"] == ["a"]


# Jobs


@pytest.mark.slow
def test_jobs(client, docs):
    """Jobs are listed, cancelled and retried."""
    add(client, a="Tea.")
    add(client, b="Tea.")
    listed = client.get(f"{SET}/jobs", params={"limit": 1}).json()
    assert [job["arguments"]["texts"] for job in listed["jobs"]] == [{"b": "Tea."}]
    last = client.get(f"{SET}/jobs", params={"after": listed["next"]}).json()["jobs"][0]
    url = f"{SET}/jobs/{last['id']}"
    assert client.post(f"{url}/cancel").json()["state"] == "CANCELED"
    assert client.post(f"{url}/retry").json()["state"] == "WAITING"
    assert len(run_jobs(docs)) == 2
    assert client.post(f"{url}/retry").status_code == 400
    for unknown in ("99", "x", "-1"):
        assert client.get(f"{SET}/jobs/{unknown}").status_code == 404


def events(client, url, **headers):
    """The events of a stream: kind, id and job."""
    with client.stream("GET", url, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        blocks = "".join(answer.iter_text()).strip().split("\n\n")
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [(one["event"], one["id"], json.loads(one["data"])) for one in fields]


@pytest.mark.slow
def test_events(client, docs):
    """Events show a job until it is done; after a cut, those that were seen are not repeated, but
    the end is.
    """
    add(client, a="Tea.")
    url = f"{SET}/jobs/{Jobs(docs).list()[0].id}/events"
    worker = threading.Timer(0.5, run_jobs, [docs])
    worker.start()
    seen = events(client, url)
    worker.join()
    assert [kind for kind, _, _ in seen][:1] == ["progress"]
    assert (seen[-1][0], seen[-1][2]["state"]) == ("done", "SUCCESS")
    assert [one[0] for one in events(client, url, **{"Last-Event-ID": seen[-1][1]})] == ["done"]
    assert client.get(f"{SET}/jobs/99/events").status_code == 404


@pytest.mark.slow
def test_streams_are_kept_open(client, docs, monkeypatch):
    """Comments keep proxies from closing a stream in which nothing happens."""
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.05)
    add(client, a="Tea.")
    worker = threading.Timer(0.5, run_jobs, [docs])
    worker.start()
    with client.stream("GET", f"{SET}/jobs/{Jobs(docs).list()[0].id}/events") as answer:
        assert ": ping" in "".join(answer.iter_text())
    worker.join()


@pytest.mark.slow
@pytest.mark.parametrize("depth", [900, 20_000])
def test_deeply_nested_values(client, depth):
    """Values that are nested too deeply for a parser are no failures of the service."""
    nested = '{"a":' * depth + "1" + "}" * depth
    answers = [
        client.get(f"{SET}/documents", params={"where": "[" * depth}),
        client.post(
            f"{SET}/documents", files={"file": ("a.md", b"Tea.")}, data={"metadata": nested}
        ),
        client.post(
            f"{SET}/metadata",
            content=f'{{"changes": {{"tea.md": {nested}}}}}',
            headers={"Content-Type": "application/json"},
        ),
    ]
    assert all(answer.status_code < 500 for answer in answers), [answer.text for answer in answers]


# Principals with labels


@pytest.fixture
def labelled(tmp_path):
    """A set with labels, whose clients are by name: of everything, of the label a, of b."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "labelled.db")}}}
    fields = {"labels": DocField(DataType.ARRAY, DataType.VARCHAR)}
    with Document(store_conf=conf, doc_fields=fields) as docs:
        app = create_app(Service({"notes": docs}, tmp_path / "state"))

        def client_of(principal):
            async def asked(scope, receive, send):
                if scope["type"] == "http":
                    scope.setdefault("state", {})["principal"] = principal
                await app(scope, receive, send)

            client = TestClient(asked, raise_server_exceptions=False, base_url="http://127.0.0.1")
            client.of = client_of
            return client

        yield (
            docs,
            client_of(Principal("all")),
            client_of(Principal("a", "write", ("a",))),
            client_of(Principal("b", "write", ("b",))),
        )


@pytest.mark.slow
def test_pictures(labelled):
    """The picture of a node comes with its type, for those who see its document; others learn
    nothing of it.
    """
    docs, everyone, a, b = labelled
    docs.activate_group("image")
    a.post(
        f"{SET}/documents",
        files={"file": ("garden.docx", in_word((GARDEN, "Figure 1: A garden", "")))},
    )
    run_jobs(docs)
    [node] = docs.get_nodes("image")
    for client in (everyone, a):
        answer = client.get(f"{SET}/images/{node.uid}")
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (
            200,
            "image/png",
            GARDEN,
        )
        assert answer.headers["content-security-policy"].startswith("sandbox")
    unknown, hidden = (b.get(f"{SET}/images/{uid}") for uid in ("0" * 32, node.uid))
    assert (hidden.status_code, hidden.json()["detail"]) == (404, unknown.json()["detail"])
    assert a.get(f"{SET}/images/{docs.get_nodes()[0].uid}").status_code == 404


@pytest.mark.slow
def test_labels_of_new_documents(labelled):
    """A document gets the labels of who adds it, under an id that says nothing of hidden
    documents.
    """
    docs, everyone, a, b = labelled
    [first], [second] = add(a, tea="Tea of a.").values(), add(b, tea="Tea of b.").values()
    upload = a.post(f"{SET}/documents", files={"file": ("b.md", b"File of a.")}).json()["files"][0][
        "id"
    ]
    run_jobs(docs)
    assert first.startswith("~")
    assert first.endswith("/tea")
    assert first != second
    assert (paths(a), paths(b)) == (sorted([first, upload]), [second])
    assert len(paths(everyone)) == 3
    assert a.get(f"{SET}/documents/{first}").json()["labels"] == ["a"]
    assert a.get(SET).json()["documents"] == 2
    assert b.get(f"{SET}/status").json()["documents"] == 1


@pytest.mark.slow
def test_only_visible_documents_are_replaced(labelled):
    """Adding under a visible id replaces that document and keeps its labels; a hidden one stays as
    it is.
    """
    docs, everyone, a, b = labelled
    everyone.post(
        f"{SET}/texts", json={"texts": {"tea": "Old."}, "metadata": {"tea": {"labels": ["a", "c"]}}}
    )
    run_jobs(docs)
    assert add(a, tea="New.") == {"tea": "tea"}
    assert add(b, tea="Hostile.") != {"tea": "tea"}
    run_jobs(docs)
    assert docs.read("tea") == "New."
    assert a.get(f"{SET}/documents/tea").json()["labels"] == ["a", "c"]


@pytest.mark.slow
def test_a_hidden_document_is_an_unknown_one(labelled):
    """Every route answers alike for a hidden document and for one that does not exist."""
    docs, _, a, b = labelled
    [hidden] = add(b, hidden="Tea of b.").values()
    run_jobs(docs)
    queries = {"diffs": "?before=1", "pages": "?page=1", "marks": "?start=0&end=1"}
    calls = [
        *(
            ("GET", f"{kind}/%s{queries.get(kind, '')}", None)
            for kind in ("documents", "versions", "diffs", "files", "pages", "marks")
        ),
        ("DELETE", "documents/%s", None),
        ("POST", "delete", {"documents": ["%s"]}),
        ("POST", "metadata", {"changes": {"%s": {"x": 1}}}),
    ]
    for method, path, body in calls:
        answers = []
        for identity in (hidden, "~00000000/hidden"):
            given = json.loads(json.dumps(body).replace("%s", identity))
            answer = a.request(method, f"{SET}/{path.replace('%s', identity)}", json=given)
            found = {
                name: value
                for name, value in answer.json().items()
                if name not in ("request_id", "instance")
            }
            answers.append((answer.status_code, str(found).replace(identity, "")))
        assert answers[0] == answers[1], path
        assert answers[0][0] == 404
    assert [job.kind for job in Jobs(docs).list()] == ["add_texts"]


@pytest.mark.slow
def test_jobs_of_others_are_unknown(labelled):
    """A principal sees the jobs that it submitted; who administers everything sees all."""
    _, everyone, a, b = labelled
    add(a, one="Tea.")
    add(b, two="Tea.")
    [own] = a.get(f"{SET}/jobs").json()["jobs"]
    assert [*own["arguments"]["texts"].values()] == ["Tea."]
    assert "key" not in own
    assert len(own["id"]) == 32  # no number, which would count the jobs of others
    assert a.get(f"{SET}/jobs/{own['id']}").json() == own
    assert a.get(f"{SET}/jobs", params={"after": own["id"]}).json()["jobs"] == []
    assert a.get(f"{SET}/jobs/1").status_code == 404
    assert len(everyone.get(f"{SET}/jobs").json()["jobs"]) == 2
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry")):
        assert b.request(method, f"{SET}/jobs/{own['id']}{path}").status_code == 404
    upload = a.post(f"{SET}/uploads", json={"name": "x", "size": 1}).json()["id"]
    assert b.get(f"{SET}/uploads/{upload}").status_code == 404


@pytest.mark.slow
def test_an_estimate_says_nothing_of_hidden_documents(labelled):
    """What is extrapolated from all documents is left out for a principal with labels."""
    docs, everyone, a, _ = labelled
    add(everyone, tea="Green tea is brewed. " * 50)
    run_jobs(docs)
    docs.activate_group("MediumChunk")
    steps = []
    for client in (everyone, a):
        answer = client.post(
            f"{SET}/documents", files={"file": ("b.md", b"Tea. ")}, params={"dry_run": 1}
        )
        steps.append([one["step"] for one in answer.json()["steps"]])
    assert (steps[0][:2], steps[1]) == (["load", "transform MediumChunk"], ["load"])


@pytest.mark.slow
def test_retries_of_what_was_hidden_since(labelled):
    """A job that was cancelled is not run again on documents that the principal no longer sees."""
    docs, everyone, a, _ = labelled
    everyone.post(
        f"{SET}/texts", json={"texts": {"tea": "Tea."}, "metadata": {"tea": {"labels": ["a"]}}}
    )
    run_jobs(docs)
    url = f"{SET}/jobs/{a.delete(f'{SET}/documents/tea').json()['id']}"
    assert a.post(f"{url}/cancel").json()["state"] == "CANCELED"
    everyone.post(f"{SET}/metadata", json={"changes": {"tea": {"labels": ["b"]}}})
    run_jobs(docs)
    a.post(f"{url}/retry")
    run_jobs(docs)
    assert (a.get(url).json()["state"], "tea" in a.get(url).json()["error"]["detail"]) == (
        "FAILED",
        True,
    )
    assert everyone.get(f"{SET}/documents/tea").json()["status"] == "SUCCESS"


@pytest.mark.slow
def test_retries_of_own_documents_that_were_hidden_since(labelled):
    """Nor on a document that it has added itself; what is not there can be added again."""
    docs, everyone, a, _ = labelled
    waiting = a.post(f"{SET}/texts", json={"texts": {"new": "Tea."}}).json()["job"]["id"]
    assert a.post(f"{SET}/jobs/{waiting}/cancel").json()["state"] == "CANCELED"
    [own] = add(a, tea="Tea.").values()
    run_jobs(docs)
    url = f"{SET}/jobs/{a.delete(f'{SET}/documents/{own}').json()['id']}"
    assert a.post(f"{url}/cancel").json()["state"] == "CANCELED"
    everyone.post(f"{SET}/metadata", json={"changes": {own: {"labels": ["b"]}}})
    run_jobs(docs)
    assert [a.post(f"{one}/retry").status_code for one in (url, f"{SET}/jobs/{waiting}")] == [
        200,
        200,
    ]
    run_jobs(docs)
    assert [a.get(one).json()["state"] for one in (url, f"{SET}/jobs/{waiting}")] == [
        "FAILED",
        "SUCCESS",
    ]
    assert everyone.get(f"{SET}/documents/{own}").json()["status"] == "SUCCESS"
    assert len(paths(a)) == 1


@pytest.mark.slow
def test_jobs_see_what_their_principal_sees(labelled):
    """A job of a principal with labels fails where a job before it has hidden the document, or
    changed its labels.
    """
    docs, everyone, a, _ = labelled
    labels = {"tea": ["a"], "oolong": ["a"]}
    metadata = {name: {"labels": own} for name, own in labels.items()}
    everyone.post(
        f"{SET}/texts", json={"texts": dict.fromkeys(labels, "Tea."), "metadata": metadata}
    )
    run_jobs(docs)
    assert a.post(f"{SET}/metadata", json={"changes": {"tea": {"year": 1}}}).status_code == 202
    changes = {"tea": {"labels": ["b"]}, "oolong": {"labels": ["a", "b"]}}
    everyone.post(f"{SET}/metadata", json={"changes": changes})
    late = [
        a.delete(f"{SET}/documents/tea").json(),
        a.post(f"{SET}/delete", json={"documents": ["tea"]}).json(),
        a.post(f"{SET}/metadata", json={"changes": {"tea": {"year": 3}}}).json(),
        a.post(f"{SET}/texts", json={"texts": {"tea": "Hostile."}}).json()["job"],
        a.post(f"{SET}/documents", files={"file": ("tea", b"Hostile.")}).json()["job"],
        a.post(f"{SET}/texts", json={"texts": {"oolong": "Late."}}).json()["job"],
    ]
    assert run_jobs(docs)[0].state == "SUCCESS"
    assert [a.get(f"{SET}/jobs/{job['id']}").json()["state"] for job in late] == ["FAILED"] * 6
    assert docs.read("tea") == docs.read("oolong") == "Tea."
    found = {one: everyone.get(f"{SET}/documents/{one}").json()["labels"] for one in labels}
    assert found == {name: change["labels"] for name, change in changes.items()}


@pytest.mark.slow
def test_what_labels_do_not_allow(labelled):
    """A principal with labels gives no other labels, and does nothing that concerns all
    documents.
    """
    docs, _, a, _ = labelled
    texts = {"texts": {"t": "Tea."}, "metadata": {"t": {"labels": ["b"]}}}
    assert a.post(f"{SET}/texts", json=texts).status_code == 403
    [own] = add(a, t="Tea.").values()
    run_jobs(docs)
    assert a.post(f"{SET}/metadata", json={"changes": {own: {"labels": ["b"]}}}).status_code == 403
    assert a.post(f"{SET}/metadata", json={"changes": {own: {"year": 1}}}).status_code == 202
    for kind in ("sync", "verify", "repair", "retry"):
        assert a.post(f"{SET}/{kind}").status_code == 403
    assert a.post(f"{SET}/rollback", json={"document": own}).status_code == 403


@pytest.mark.slow
def test_scopes(labelled):
    """Who may only read changes nothing; who may write does not administrate."""
    docs, everyone, _, _ = labelled
    reader = everyone.of(Principal("r", "read"))
    assert reader.get(f"{SET}/documents").status_code == 200
    for path in ("sync", "texts", "delete", "documents", "uploads", "jobs/1/cancel"):
        assert reader.post(f"{SET}/{path}", json={}).status_code == 403
    assert everyone.of(Principal("w", "write")).post(f"{SET}/compact").status_code == 403
    assert Jobs(docs).list() == []
