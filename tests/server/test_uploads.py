"""Uploads: several files in a request, large ones in parts, repeated requests, names and limits
that are refused.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import unicodedata
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from lazyrag import Document
from lazyrag.loaders import LoadLimits
from lazyrag.server.app import create_app
from lazyrag.server.core import upload_files
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Service
from lazyrag.server.core.upload_files import checked_name
from lazyrag.server.jobs import Jobs, Worker
from tests.server import running

SET = "/api/v1/sets/notes"
PART = 1 << 16


@pytest.fixture
def run_jobs(docs):
    """Run the waiting jobs, and return them."""
    return functools.partial(running.run_jobs, docs)


def post(client, *files, **more):
    """Upload pairs of name and content."""
    parts = [("file", (name, content)) for name, content in files]
    return client.post(f"{SET}/documents", files=parts, **more)


def stored(service):
    """Everything below the state folder, but for the marks of sweeps."""
    return sorted(
        path.name for path in service.state.rglob("*") if path.is_file() and path.name != "swept"
    )


def begin(client, content, part_size=PART, **more):
    """Begin an upload in parts."""
    body = {"name": "large.txt", "size": len(content), "part_size": part_size, **more}
    answer = client.post(f"{SET}/uploads", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def put(client, upload, number, content, digest=None):
    """Send a part of a content."""
    size = upload["part_size"]
    part = content[(number - 1) * size : number * size]
    headers = {"X-Content-SHA256": digest or hashlib.sha256(part).hexdigest()}
    return client.put(f"{SET}/uploads/{upload['id']}/parts/{number}", content=part, headers=headers)


# Multipart


def test_files_become_documents(client, docs, run_jobs):
    """Several files are one job, and searchable after it."""
    files = [
        ("matcha.md", b"Matcha is ground."),
        ("black/assam.txt", b"Assam is malty."),
        ("乌龙.md", "乌龙茶".encode()),
    ]
    answer = post(client, *files)
    assert answer.status_code == 202
    assert [(one["id"], one["bytes"], one["problem"]) for one in answer.json()["files"]] == [
        ("matcha.md", 17, None),
        ("black/assam.txt", 15, None),
        ("乌龙.md", 9, None),
    ]
    assert client.get(answer.headers["location"]).json()["state"] == "WAITING"
    [job] = run_jobs()
    assert (job.state, job.result["added"]) == (
        "SUCCESS",
        ["black/assam.txt", "matcha.md", "乌龙.md"],
    )
    [node] = docs.search("malty", topk=1)
    assert (node.path, node.global_metadata["file_name"]) == ("black/assam.txt", "assam.txt")


def test_a_bad_file_does_not_reject_the_batch(client, service, run_jobs):
    """Each file has its own result: one that is too large, one whose name leads elsewhere, one that
    is good.
    """
    service.upload_bytes = 100
    answer = post(
        client,
        ("../evil.md", b"x"),
        ("large.md", b"x" * 101),
        ("good.md", b"Good tea."),
        ("good.md", b"2"),
    )
    problems = [one["problem"] and one["problem"]["status"] for one in answer.json()["files"]]
    assert (answer.status_code, problems) == (202, [422, 413, None, 409])
    assert run_jobs()[0].result["added"] == ["good.md"]


def test_only_bad_files_are_a_problem(client, service):
    """If no file is accepted, the first one's problem is the response, and nothing stays on the
    disk.
    """
    service.upload_bytes = 100
    answer = post(client, ("large.md", b"x" * 101))
    assert (answer.status_code, answer.json()["files"][0]["problem"]["status"]) == (413, 413)
    assert stored(service) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../a",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a/./b",
        "..\\b",
        "a\nb",
        "a\x00b",
        "a\u202egpj.exe",
        "茶" * 86,
        "\ud800",
    ],
)
def test_names_that_are_refused(name):
    """Names that lead elsewhere, are too long or have characters that no name needs are refused."""
    with pytest.raises(ProblemError, match="name"):
        checked_name(name)


@pytest.mark.parametrize("name", ["tea.md", "a/b c.txt", "茶" * 85, "..tea", "~x", "a:b", "🍵.md"])
def test_names_that_are_accepted(name):
    """Everything else is a name, also where a file system gives it a meaning."""
    assert checked_name(name) == name


def test_a_mac_and_another_system_upload_one_document(client, docs, run_jobs):
    """The spellings of one name are one document, in uploads, metadata, texts and deletions."""
    composed, decomposed = "caf\u00e9.txt", "cafe\u0301.txt"
    post(client, (composed, b"green tea"))
    run_jobs()
    metadata = {"metadata": json.dumps({composed: {"author": "Mei"}})}
    assert (
        post(client, (decomposed, b"black tea"), data=metadata).json()["files"][0]["id"] == composed
    )
    run_jobs()
    assert [one.path for one in docs.documents() if one.path.startswith("caf")] == [composed]
    assert docs.read(composed) == "black tea"
    assert [node.metadata.get("author") for node in docs.get_nodes() if node.path == composed] == [
        "Mei"
    ]
    assert client.get(f"{SET}/documents/{decomposed}").json()["id"] == composed


@pytest.mark.parametrize(
    "sent", ['filename="Plan %22B%22 50%.txt"', r'filename="Plan \"B\" 50%.txt"']
)
def test_a_quotation_mark_in_a_name_survives(client, docs, run_jobs, sent):
    """Browsers send it as %22, older clients with a backslash; a % is a %. It is downloaded under
    that name.
    """
    body = f'--x\r\nContent-Disposition: form-data; name="file"; {sent}\r\n\r\nPlan B.\r\n--x--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post(f"{SET}/documents", content=body, headers=headers)
    name = 'Plan "B" 50%.txt'
    assert [(one["name"], one["id"]) for one in answer.json()["files"]] == [(name, name)]
    run_jobs()
    found = client.get(f"{SET}/files/{quote(name)}")
    assert (found.text, quote(name) in found.headers["content-disposition"]) == ("Plan B.", True)
    page = client.get(f"/s/notes/files/{quote(name)}", headers={"Accept": "text/html"})
    assert "Plan &#34;B&#34; 50%.txt" in page.text


def test_a_name_in_decomposed_characters_is_the_composed_one(client, docs, run_jobs):
    """Uploads, uploads in parts and texts of a Mac replace those of other machines; metadata
    follows its file.
    """
    name = "été.txt"
    for given in (unicodedata.normalize("NFD", name), name):
        metadata = json.dumps({given: {"labels": ["hr"]}})
        assert (
            post(client, (given, b"x"), data={"metadata": metadata}).json()["files"][0]["id"]
            == name
        )
        upload = begin(client, b"y", name=given)
        put(client, upload, 1, b"y")
        assert (
            client.post(f"{SET}/uploads/{upload['id']}/complete").json()["files"][0]["id"] == name
        )
        assert client.post(f"{SET}/texts", json={"texts": {given: "z"}}).json()["ids"] == {
            given: name
        }
    run_jobs()
    assert [one.path for one in docs.documents() if one.path.endswith("t\u00e9.txt")] == [name]
    both = {"texts": {unicodedata.normalize("NFD", name): "1", name: "2"}}
    assert client.post(f"{SET}/texts", json=both).status_code == 409


def test_names_are_never_paths(client, service, run_jobs):
    """Files are stored under digests; only a plain suffix of the name is used, in lower case."""
    post(
        client,
        ("CON.PDF.Md", b"one"),
        ("tea.p?p", b"two"),
        (".bashrc", b"three"),
        ("a.tar.GZ", b"four"),
    )
    names = [path.name for path in (service.state / "uploads" / ".set-notes" / "files").iterdir()]
    assert sorted(name[32:] for name in names) == ["", ".bashrc", ".pdf.md", ".tar.gz"]
    assert {hashlib.blake2b(b"two", digest_size=16).hexdigest()} < set(names)


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"--x--", 415),
        ("multipart/form-data; boundary=x", b"nonsense", 422),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 422),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; filename="a.md"\r\n\r\ncut',
            422,
        ),
        ("multipart/form-data; boundary=" + "x" * 300, b"--x--\r\n", 422),
    ],
)
def test_malformed_forms(client, service, kind, body, status):
    """A body that is no complete form is a problem, and leaves nothing."""
    answer = client.post(f"{SET}/documents", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert stored(service) == []


def test_a_full_disk(client, service, monkeypatch):
    """It is said as such, and leaves no part of a file."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(upload_files, "write_block", fail)
    answer = post(client, ("a.md", b"Tea."))
    assert (answer.status_code, "disk" in answer.json()["detail"]) == (507, True)
    assert stored(service) == []


def test_metadata_are_bounded(client):
    """Metadata are in memory, so that they are limited."""
    answer = client.post(
        f"{SET}/documents", files={"file": ("a.md", b"x")}, data={"metadata": "x" * (2 << 20)}
    )
    assert (answer.status_code, "metadata" in answer.json()["detail"]) == (413, True)


def test_metadata(client, docs, run_jobs):
    """Metadata come as a field of the form, by name of file."""
    post(client, ("a.md", b"Tea."), data={"metadata": json.dumps({"a.md": {"year": 2024}})})
    run_jobs()
    [node] = docs.get_nodes(uids=[node.uid for node in docs.get_nodes() if node.path == "a.md"])
    assert node.metadata["year"] == 2024
    assert post(client, ("a.md", b"Tea."), data={"metadata": "[1]"}).status_code == 422


@pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")
def test_a_zip_bomb_fails_alone(tmp_path):
    """What a container unpacks to is limited by the loaders: such a file fails, and the others do
    not.
    """
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.txt", b"0" * (4 << 20))
    assert bomb.tell() < 1 << 16
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "limited.db")}}}
    with Document(store_conf=conf, limits=LoadLimits(unpacked_bytes=1 << 20)) as docs:
        client = TestClient(
            create_app(Service({"notes": docs}, tmp_path / "state")), base_url="http://127.0.0.1"
        )
        post(client, ("bomb.zip", bomb.getvalue()), ("good.md", b"Good tea."))
        job = Worker(docs).run_one()
    assert job.state == "SUCCESS"
    assert job.result["added"] == ["good.md"]
    assert "unpacked_bytes" in json.dumps(job.result["failed"])


def test_a_dry_run_estimates(client, service, run_jobs):
    """It says what the files would cost, and submits nothing."""
    answer = post(client, ("a.md", b"Tea is dry. " * 100), params={"dry_run": 1, "price": 2})
    body = answer.json()
    assert answer.status_code == 200
    assert body["steps"][0]["step"] == "load"
    assert body["calls"] == 0
    assert run_jobs() == []


# Repeated requests


def test_idempotency_keys(client, docs, run_jobs):
    """A request that is repeated with its key is the same job; another request with that key is
    refused.
    """
    headers = {"Idempotency-Key": "k1"}
    first = post(client, ("a.md", b"Tea."), headers=headers).json()
    assert post(client, ("a.md", b"Tea."), headers=headers).json() == first
    assert len(run_jobs()) == 1
    again = post(client, ("a.md", b"Tea."), headers=headers).json()
    assert (again["job"]["id"], again["job"]["state"]) == (first["job"]["id"], "SUCCESS")
    answer = post(client, ("a.md", b"Other tea."), headers=headers)
    assert (answer.status_code, "Idempotency-Key" in answer.json()["detail"]) == (422, True)
    assert post(client, ("a.md", b"Tea.")).json()["job"]["id"] != first["job"]["id"]


def test_idempotency_keys_expire(client, service):
    """After 24 hours a key is a new one."""
    headers = {"Idempotency-Key": "k1"}
    first = post(client, ("a.md", b"Tea."), headers=headers).json()["job"]["id"]
    [path] = (service.state / "keys").iterdir()
    before = time.time() - upload_files.KEPT_S - 1
    os.utime(path, (before, before))
    assert post(client, ("a.md", b"Other."), headers=headers).json()["job"]["id"] != first


def test_one_of_many_at_the_same_time(client, docs):
    """Requests with one key at the same time become one job."""
    ids = []

    def send():
        answer = client.post(
            f"{SET}/texts", json={"texts": {"a": "Tea."}}, headers={"Idempotency-Key": "k"}
        )
        ids.append(answer.json()["job"]["id"])

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == len(Jobs(docs).list()) == 1


# In parts


def test_parts_in_any_order(client, docs, service, run_jobs):
    """Parts arrive in any order, some twice; the whole is checked, stored and added, and completing
    may be repeated.
    """
    content = b"Oolong is half fermented. " * 8_000
    upload = begin(
        client, content, sha256=hashlib.sha256(content).hexdigest(), metadata={"year": 1}
    )
    assert (upload["parts"], upload["received"]) == (4, [])
    for number in (3, 1, 4, 1):
        assert put(client, upload, number, content).status_code == 204
    url = f"{SET}/uploads/{upload['id']}"
    assert client.get(url).json()["received"] == [1, 3, 4]
    missing = client.post(f"{url}/complete")
    assert (missing.status_code, missing.json()["missing"]) == (409, [2])
    put(client, upload, 2, content)
    first = client.post(f"{url}/complete")
    assert (first.status_code, client.post(f"{url}/complete").json()) == (202, first.json())
    assert run_jobs()[0].result["added"] == ["large.txt"]
    assert client.get(f"{SET}/files/large.txt").content == content
    assert put(client, upload, 1, content).status_code == 422
    assert [*service.state.rglob("*.part")] == []


def test_bad_parts(client):
    """A part with another digest or size than declared is refused; the one that arrived before
    stays.
    """
    content = b"x" * (PART + 10)
    upload = begin(client, content)
    assert put(client, upload, 1, content).status_code == 204
    assert put(client, upload, 2, content, digest="0" * 64).status_code == 422
    url = f"{SET}/uploads/{upload['id']}"
    assert client.get(url).json()["received"] == [1]
    headers = {"X-Content-SHA256": hashlib.sha256(content).hexdigest()}
    assert client.put(f"{url}/parts/2", content=content, headers=headers).status_code == 422
    assert client.put(f"{url}/parts/3", content=b"x", headers=headers).status_code == 422
    assert client.put(f"{url}/parts/1", content=b"x").status_code == 422


def test_another_whole(client):
    """A file with another digest than declared is refused."""
    upload = begin(client, b"tea", sha256="0" * 64)
    put(client, upload, 1, b"tea")
    answer = client.post(f"{SET}/uploads/{upload['id']}/complete")
    assert (answer.status_code, "sha256" in answer.json()["detail"]) == (422, True)


def test_declared_limits(client, service):
    """What is too large is refused before anything is sent, and so are names and sizes that cannot
    be.
    """
    service.upload_bytes = 1 << 20
    too_large = {"name": "a.bin", "size": (1 << 20) + 1}
    assert client.post(f"{SET}/uploads", json=too_large).status_code == 413
    for wrong in (
        {"name": "../a", "size": 1},
        {"name": "a", "size": 0},
        {"name": "a", "size": 1, "part_size": 1},
    ):
        assert client.post(f"{SET}/uploads", json=wrong).status_code == 422


def test_aborted_and_unknown_uploads(client, service):
    """An aborted upload is gone from the disk; others are unknown, whatever their id looks like."""
    upload = begin(client, b"tea")
    url = f"{SET}/uploads/{upload['id']}"
    assert client.delete(url).status_code == 204
    assert stored(service) == []
    for other in (url, f"{SET}/uploads/{'0' * 32}", f"{SET}/uploads/..%2f..%2fkeys"):
        assert client.get(other).status_code == 404


def test_old_uploads_are_removed(client, service):
    """After 24 hours without a new part, an unfinished upload is removed."""
    upload = begin(client, b"tea")
    folder = service.state / "uploads" / ".set-notes"
    before = time.time() - upload_files.KEPT_S - 1
    os.utime(folder / "unfinished" / upload["id"], (before, before))
    begin(client, b"coffee")
    assert client.get(f"{SET}/uploads/{upload['id']}").status_code == 404


def test_files_of_deleted_documents_are_removed(client, service, run_jobs):
    """Uploaded files stay as long as a document or a job needs them, and no longer."""
    post(client, ("a.md", b"Tea."))
    [path] = (service.state / "uploads" / ".set-notes" / "files").iterdir()

    def sweep():
        before = time.time() - 3600
        for one in (path, path.parent.parent / "swept"):
            if one.exists():
                os.utime(one, (before, before))
        assert client.post(f"{SET}/texts", json={"texts": {"b": "Other tea."}}).status_code == 202
        return path.exists()

    assert sweep()  # the job waits
    run_jobs()
    assert sweep()  # the document is live
    assert client.delete(f"{SET}/documents/a.md").status_code == 202
    run_jobs()
    assert not sweep()


@pytest.mark.share(3)
@pytest.mark.slow
def test_memory_of_large_uploads():
    """200 MB in parts, and again as a form, take less than 100 MB of memory more than the idle
    service.
    """
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "upload.py"
    run = subprocess.run(
        [sys.executable, script, "--megabytes", "200", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(run.stdout)
    assert figures["parts"]["memory_mb"] < 100
    assert figures["form"]["memory_mb"] < 100


def test_a_purge_removes_the_uploaded_file(client, service, docs, run_jobs):
    """Nothing of the document remains: its file among the uploads, that of its earlier version, its
    name.
    """
    post(client, ("secret.txt", SECRET))
    run_jobs()
    upload = begin(client, SECRET * 2000, name="secret.txt")
    for number in range(1, upload["parts"] + 1):
        put(client, upload, number, SECRET * 2000)
    client.post(f"{SET}/uploads/{upload['id']}/complete")
    run_jobs()
    post(client, ("other.txt", b"Oolong is half oxidised, between green and black tea."))
    run_jobs()
    for path in service.state.rglob("files/*"):
        os.utime(path, (1, 1))  # they arrived long ago
    answer = client.post(f"{SET}/purge", json={"document": "secret.txt"})
    assert answer.status_code == 202
    assert "folders" not in answer.json()["arguments"]
    [job] = run_jobs()
    assert (job.state, [one for one in job.result["checked"] if one["found"]]) == ("DELETED", [])
    left = b"".join(path.read_bytes() for path in service.state.rglob("*") if path.is_file())
    assert SECRET not in left
    assert docs.search("Oolong")[0].path == "other.txt"


SECRET = (
    "病人欧阳夏丹的病历：罕见的木质部侵染。 Patient Oberholzer, file number 77-4193-ZX.\n".encode()
)


def test_a_purge_leaves_no_answer_that_quotes(client, service, docs, run_jobs):
    """Answers that have read the document go, with what was said about it; the certificate covers
    their file.
    """
    for name, text in (("secret.txt", SECRET), ("other.txt", b"Oolong is half oxidised.")):
        post(client, (name, text))
    run_jobs()
    places = {
        question: client.post(f"{SET}/answers", json={"question": question, "topk": 1}).headers[
            "location"
        ]
        for question in ("Oberholzer", "oxidised")
    }
    for place in places.values():
        about = {"good": True, "answer": place.rpartition("/")[2], "hit": uid_of(client, place)}
        assert client.post(f"{SET}/feedback", json=about).status_code == 201
    assert (
        client.post(
            f"{SET}/golden", json={"question": "?", "spans": [{"path": "secret.txt"}]}
        ).status_code
        == 201
    )
    answer = client.post(f"{SET}/purge", json={"document": "secret.txt"})
    [job] = run_jobs()
    assert (job.state, [one for one in job.result["checked"] if one["found"]]) == ("DELETED", [])
    assert any(one["place"].endswith("answers.db") for one in job.result["checked"])
    emptied, other = (client.get(place).json() for place in places.values())
    assert (emptied["state"], emptied["hits"], emptied["question"]) == ("CANCELED", [], "")
    assert (other["state"], other["hits"][0]["source"]) == ("SUCCESS", "other.txt")
    assert [one["documents"] for one in client.get(f"{SET}/feedback").json()] == [["other.txt"]]
    assert client.get(f"{SET}/golden").json() == []
    left = b"".join(path.read_bytes() for path in service.state.rglob("answers.db*"))
    assert (SECRET[:40] in left, b"secret.txt" in left, b"Oolong" in left) == (False, False, True)
    assert answer.status_code == 202


def test_a_deletion_empties_the_answers_that_quote(client, service, run_jobs):
    """What a deleted document said is in no answer that can be read again; golden questions
    stay.
    """
    post(client, ("secret.txt", SECRET))
    run_jobs()
    place = client.post(f"{SET}/answers", json={"question": "Oberholzer"}).headers["location"]
    client.post(f"{SET}/golden", json={"question": "?", "spans": [{"path": "secret.txt"}]})
    client.delete(f"{SET}/documents/secret.txt")
    run_jobs()
    assert client.get(place).json()["state"] == "CANCELED"
    assert len(client.get(f"{SET}/golden").json()) == 1


def test_a_purge_ends_answers_that_are_being_written(client, service, docs, run_jobs):
    """Readers of such an answer get its end, and what its process still writes is not stored."""
    post(client, ("secret.txt", SECRET))
    run_jobs()

    states, written = [], threading.Event()

    async def chat(messages):
        yield SECRET.decode()
        await asyncio.to_thread(client.post, f"{SET}/purge", json={"document": "secret.txt"})
        states.extend(job.state for job in await asyncio.to_thread(run_jobs))
        yield SECRET.decode()
        written.set()

    service.chat = chat
    answer = client.post(f"{SET}/answers", json={"question": "Oberholzer"}).json()
    assert (answer["state"], answer["text"]) == ("CANCELED", None)
    assert written.wait(60)
    assert states == ["DELETED"]
    left = b"".join(path.read_bytes() for path in service.state.rglob("answers.db*"))
    assert SECRET[:40] not in left


def test_a_purge_deletes_responses(client, service, run_jobs):
    """Responses of OpenAI's face are answers, too; one that was begun before the purge is not
    stored after it.
    """
    post(client, ("secret.txt", SECRET))
    run_jobs()
    purges = []

    async def chat(messages):
        yield SECRET.decode()
        for _ in purges:
            await asyncio.to_thread(client.post, f"{SET}/purge", json={"document": "secret.txt"})
            await asyncio.to_thread(run_jobs)

    service.chat = chat
    ask = {"model": "notes", "input": "Oberholzer"}
    first = client.post("/v1/responses", json=ask).json()["id"]
    assert client.get(f"/v1/responses/{first}").status_code == 200
    purges.append(1)
    second = client.post("/v1/responses", json=ask).json()["id"]
    assert [client.get(f"/v1/responses/{one}").status_code for one in (first, second)] == [404, 404]
    left = b"".join(path.read_bytes() for path in service.state.rglob("answers.db*"))
    assert SECRET[:40] not in left


def uid_of(client, place):
    """The first node that an answer has read."""
    return client.get(place).json()["hits"][0]["id"]


def test_forms_have_few_fields(client):
    """A million small ones would occupy the service for minutes."""
    part = b'--B\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n'
    body = b"".join(part % one for one in range(500)) + b"--B--\r\n"
    for path in (f"{SET}/documents", "/v1/files"):
        answer = client.post(
            path, content=body, headers={"Content-Type": "multipart/form-data; boundary=B"}
        )
        assert answer.status_code == 413
        assert "100 fields" in answer.text
