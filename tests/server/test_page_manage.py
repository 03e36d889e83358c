"""The pages that manage, as a browser without scripts gets them."""

from __future__ import annotations

import html
import io
import json
import re
import time
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from reportlab.pdfgen.canvas import Canvas

from lazyrag import DataType, DocField, Document, IngestionWarning
from lazyrag.retrieval import HybridRetriever
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.service import Service
from lazyrag.server.jobs import Jobs, Worker
from lazyrag.server.page import manage as page_manage
from lazyrag.server.page.evaluate import describe_comparison

HTML = {"Accept": "text/html"}
SET = "/s/notes"


@pytest.fixture
def work(docs):
    """A function that runs the jobs that wait, and returns their last one."""

    def run():
        last = None
        while (job := Worker(docs).run_one()) is not None:
            last = job
        return last

    return run


def page(client, path):
    """The HTML of a page."""
    answer = client.get(f"{SET}/{path}", headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


def token(client):
    """The CSRF token of the pages."""
    return re.search(r'name="csrf" content="(\w+)"', page(client, "files"))[1]


def post(client, path, **fields):
    """Send a form of a page, and follow it to the next page."""
    return client.post(f"{SET}/{path}", data={"csrf": token(client), **fields}, headers=HTML)


def upload(client, files, **more):
    """Send the upload form."""
    parts = [("file", (name, io.BytesIO(content), "text/plain")) for name, content in files.items()]
    return client.post(f"{SET}/files?csrf={token(client)}", files=parts, headers=HTML, **more)


def names(text):
    """The files of a page's table, in order."""
    return re.findall(r'name="id" value="([^"]+)" form="sel"', text)


def test_upload_shows_each_file_at_once_and_ready_after_its_job(client, work):
    """A file is a row before its job has run."""
    text = upload(client, {"oolong.txt": b"Oolong is half oxidised.", "a/b.txt": b"Nested."}).text
    assert sorted(names(text)[:2]) == ["a/b.txt", "oolong.txt"]
    assert "2 files were added." in text
    assert work().state == "SUCCESS"
    assert "oolong.txt" in names(page(client, "files?status=success"))


@pytest.mark.slow
def test_upload_names_refused_files(client):
    """A file with a name that leads elsewhere is named with the reason; the others are added."""
    text = upload(client, {"good.txt": b"Good.", "../bad.txt": b"Bad."}).text
    assert "1 file was added." in text
    assert "../bad.txt" in text


@pytest.mark.slow
def test_failed_files_come_first_with_stage_error_and_remedy(client, work):
    """A file that fails is open in the first row, and can be retried alone."""
    upload(client, {"zz.pdf": b"%PDF-1.4 broken"})
    work()
    text = page(client, "files")
    assert names(text)[0] == "zz.pdf"
    assert "(1 of 4)" in text
    assert "PdfLoader could not read the file" in text
    assert "Check that the file opens in its own program" in text
    post(client, "files/retry", id="zz.pdf")
    assert (work().kind, names(page(client, "files?status=failed"))) == ("add_files", ["zz.pdf"])


@pytest.mark.slow
def test_failures_are_told_in_the_readers_language(client, work):
    """In Chinese the kind of the error and its remedy are Chinese, with the exact message in the
    details.
    """
    upload(client, {"zz.pdf": b"%PDF-1.4 broken"})
    work()
    client.headers["Accept-Language"] = "zh"
    for path in ("files", "files/zz.pdf", "activity"):
        text = page(client, path)
        assert "文件已损坏" in text, path
        assert re.search(
            "<details class=.orig.*?PdfLoader could not read the file", text, re.DOTALL
        ), path
    assert "另存后重试" in page(client, "files")


def test_a_remedy_of_the_page_is_none_of_python(client, work):
    """A scan is told what people can do at the page, not what a program calls; an empty upload
    fails, with why.
    """
    target = io.BytesIO()
    canvas = Canvas(target)
    canvas.rect(100, 100, 200, 200, fill=1)
    canvas.showPage()
    canvas.save()
    upload(client, {"scan.pdf": target.getvalue(), "empty.txt": b""})
    work()
    text = page(client, "files")
    assert {"scan.pdf", "empty.txt"} <= {*names(page(client, "files?status=failed"))}
    assert "no text layer on any page" in text
    assert "The file holds no text: it is empty." in text
    assert "Recognise the text (OCR) first, then add the file again." in text
    assert "add_ocr" not in text


def test_skipped_files_are_told_in_the_readers_language(client, docs, work):
    """Empty and unknown files of the folder stand below the table, and not among those that wait or
    failed.
    """
    folder = docs._indexer.dataset.folder
    (folder / "nothing.txt").write_bytes(b"")
    (folder / "data.bin").write_bytes(b"\0\1\2")
    Jobs(docs).submit("sync")
    with pytest.warns(IngestionWarning, match="Skipped 2 of 5 files"):
        work()
    text = page(client, "files")
    assert "2 files of the folder were skipped" in text
    assert "The file is empty." in text
    assert not {"nothing.txt", "data.bin"} & {*names(text)}
    client.headers["Accept-Language"] = "zh"
    assert "没有能读取这类文件的组件。" in page(client, "files")


@pytest.mark.slow
def test_an_upload_is_priced_first(client, docs, work):
    """With the box ticked, files wait until what they would cost is confirmed; and only once."""
    parts = [("file", ("oolong.txt", io.BytesIO(b"Oolong is half oxidised."), "text/plain"))]
    path = f"{SET}/files?csrf={token(client)}"
    found = client.post(path, files=parts, data={"dry": "1", "labels": "staff"}, headers=HTML)
    assert "Add 1 file?" in found.text
    assert Jobs(docs).list() == []
    assert "oolong.txt" not in names(found.text)
    number = re.search(r'name="number" value="(\w+)"', found.text)[1]
    assert "1 file was added." in post(client, "files/upload", number=number).text
    assert work().state == "SUCCESS"
    assert "oolong.txt" in names(page(client, "files?status=success"))
    assert post(client, "files/upload", number=number).status_code == 404


@pytest.mark.slow
def test_filters_by_name_and_status(client):
    """The table is filtered by a part of the path in any case, and by status."""
    assert names(page(client, "files?q=TEA")) == ["tea.md"]
    assert names(page(client, "files?q=茶")) == ["茶.txt"]
    assert names(page(client, "files?status=failed")) == []


@pytest.mark.slow
def test_pages_of_files_follow_each_other(client, docs, monkeypatch):
    """Pages have every file once, in order of state and path."""
    monkeypatch.setattr(page_manage, "_ROWS", 2)
    first = page(client, "files")
    following = re.search(r'href="/s/notes/(files\?after=[^"]+)" rel="next"', first)[1]
    assert names(first) + names(page(client, following.replace("&amp;", "&"))) == sorted(
        one.id for one in docs.documents()
    )


def test_delete_can_be_undone(client, work):
    """A deleted upload is hidden by its job, and comes back with its labels."""
    upload(client, {"oolong.txt": b"Oolong is half oxidised."})
    work()
    assert "Remove every trace" in page(client, "files/delete?id=oolong.txt")
    text = post(client, "files/delete", id="oolong.txt", purge="1").text
    assert "“oolong.txt” is deleted." in text
    work()
    assert "oolong.txt" not in names(page(client, "files"))
    number = re.search(r'name="deletion" value="(\w+)"', text)[1]
    post(client, "files/undo", deletion=number)
    work()
    assert "oolong.txt" in names(page(client, "files"))
    assert "too late" in post(client, "files/undo", deletion=number).text


@pytest.mark.slow
def test_delete_ends_with_a_certificate(client, docs, work, monkeypatch):
    """When nobody has undone it, the file is removed, and the page links the certificate."""
    monkeypatch.setattr(page_manage, "UNDO_S", 0.05)
    upload(client, {"oolong.txt": b"Oolong is half oxidised, as wenshan baozhong is not."})
    work()
    post(client, "files/delete", id="oolong.txt", purge="1")
    until = time.monotonic() + 20
    while Jobs(docs).list(limit=1)[0].kind != "purge" and time.monotonic() < until:
        time.sleep(0.05)
    job = work()
    assert (job.kind, job.state) == ("purge", "DELETED")
    assert f"Certificate {job.id}" in page(client, "files")


@pytest.mark.slow
def test_files_of_the_folder_are_deleted_without_a_certificate(client, work, docs):
    """The path of a file in the folder has to stay, so no certificate is offered; undo brings it
    back.
    """
    text = page(client, "files/delete?id=tea.md")
    assert "stays in the folder" in text
    assert "Remove every trace" not in text
    text = post(client, "files/delete", id="tea.md", purge="1").text
    work()
    assert "tea.md" not in names(page(client, "files"))
    post(client, "files/undo", deletion=re.search(r'name="deletion" value="(\w+)"', text)[1])
    work()
    assert docs.documents(ids=["tea.md"])[0].status == "SUCCESS"


def test_forms_need_the_token_of_the_page(client):
    """A form without the CSRF token changes nothing."""
    page(client, "files")
    assert (
        client.post(f"{SET}/files/delete", data={"id": "tea.md"}, headers=HTML).status_code == 403
    )
    assert client.post(f"{SET}/files", files={"file": b"x"}, headers=HTML).status_code == 403
    assert (
        client.post(f"{SET}/evaluate/import", files={"file": b"[]"}, headers=HTML).status_code
        == 403
    )


@pytest.mark.slow
def test_what_no_form_sends_is_no_failure(client):
    """A deletion of nothing, and a place behind all."""
    sent = {"csrf": token(client)}
    assert client.post(f"{SET}/files/delete", data=sent, headers=HTML).status_code == 404
    for path in ("groups?group=MediumChunk&", "files/tea.md/nodes?"):
        assert client.get(f"{SET}/{path}offset={10**20}", headers=HTML).status_code == 422


@pytest.mark.slow
def test_sync_is_priced_first(client, docs, work):
    """The dry run names new files and starts nothing; the form starts the job."""
    (docs._indexer.dataset.folder / "new.txt").write_text("White tea.")
    text = page(client, "files/sync")
    assert "Sync 1 file?" in text
    assert "new.txt" in text
    assert Jobs(docs).list() == []
    post(client, "files/sync")
    assert work().result["added"] == ["new.txt"]


def test_groups_show_counts_and_nodes(client, docs):
    """The tree has the number of nodes of each built group; a node page leads up, down and to its
    neighbours.
    """
    text = page(client, "groups?group=MediumChunk")
    assert f"<b>{len(docs.get_nodes('MediumChunk'))}</b>" in text
    assert "Not built" in text
    own = docs.get_nodes("MediumChunk")[0]
    assert own.text[:20] in page(client, f"nodes/{own.uid}")
    assert client.get(f"{SET}/nodes/nothing", headers=HTML).status_code == 404


@pytest.mark.slow
def test_group_is_built_by_a_job(client, work):
    """A group that is not built shows its price, and is built by its form."""
    assert "Build “FineChunk”?" in page(client, "groups?build=FineChunk")
    post(client, "groups/build", group="FineChunk")
    assert (work().kind, work()) == ("activate_group", None)


GOLDEN = [
    {
        "question": "How hot is the water for green tea?",
        "answer": "eighty degrees",
        "file": "tea.md",
    },
    {"question": "How is coffee ground for espresso?", "answer": "ground fine"},
]


@pytest.mark.slow
def test_import_compare_use_undo(client, docs):
    """Golden questions are imported, two configurations compared, one taken into use, and that
    undone.
    """
    docs.activate_group("FineChunk", analysers=["en", "zh"])
    send = {
        "files": {"file": ("g.json", json.dumps(GOLDEN))},
        "data": {"csrf": token(client)},
        "headers": HTML,
    }
    assert "2 questions were imported." in client.post(f"{SET}/evaluate/import", **send).text
    assert "0 questions were imported." in client.post(f"{SET}/evaluate/import", **send).text
    text = post(client, "evaluate", group="FineChunk", retriever="bm25").text
    assert "A and B rank every answer alike." in text or "Not settled." in text
    assert "How hot is the water" in page(client, "evaluate?show=all")
    post(client, "evaluate/use", group="FineChunk", retriever="bm25")
    assert "FineChunk · top 6" in page(client, "evaluate")
    post(client, "evaluate/use", undo="1")
    assert "MediumChunk · top 6" in page(client, "evaluate")


@pytest.mark.slow
def test_golden_questions_are_edited_and_deleted(client):
    """A question is added, replaced by its edited form, and deleted."""
    add = {"question": "How dry?", "answer": "dry and dark", "file": "tea.md"}
    number = re.search(r'name="number" value="(\w+)"', post(client, "evaluate/golden", **add).text)[
        1
    ]
    text = post(
        client, "evaluate/golden", action="edit", number=number, **{**add, "question": "How dark?"}
    ).text
    assert "How dark?" in text
    assert "How dry?" not in text
    number = re.search(r'name="number" value="(\w+)"', text)[1]
    assert "How dark?" not in post(client, "evaluate/golden", action="delete", number=number).text


def test_verdict_in_words_of_numbers():
    """The verdict follows the measure that was chosen before; below 20 questions it is not
    settled.
    """
    row = {"question": "q", "expected": [], "file": ""}
    better = [{**row, "ranks": [5, 1]} for _ in range(12)] + [
        {**row, "ranks": [1, 1]} for _ in range(12)
    ]
    found = describe_comparison(better, "changed")
    assert (found["verdict"]["state"], found["verdict"]["wins"], len(found["rows"])) == (
        "better",
        12,
        12,
    )
    assert describe_comparison(better[:12], "changed")["verdict"]["state"] == "few"
    worse = [{**one, "ranks": one["ranks"][::-1]} for one in better]
    assert describe_comparison(worse, "all")["verdict"]["state"] == "worse"


@pytest.fixture
def shared_out(tmp_path):
    """An application with labelled documents, and clients of three tokens by name."""
    fields = {"labels": DocField(DataType.ARRAY, DataType.VARCHAR)}
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(None, store_conf=conf, doc_fields=fields) as docs:
        texts = {"open.txt": "Tea for all.", "secret.txt": "The secret price is 7."}
        docs.add_texts(
            texts, metadata={"open.txt": {"labels": ["staff"]}, "secret.txt": {"labels": ["boss"]}}
        )
        docs.activate_group("MediumChunk", analysers=["en"])
        service = Service({"notes": docs}, tmp_path / "state")
        service.access = Access(service.state)
        app = create_app(service)
        local = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000)}

        def login(scope, labels=None):
            _, text = service.access.create(scope, labels=labels)
            headers = {"Authorization": f"Bearer {text}", "Sec-Fetch-Site": "same-origin"}
            return TestClient(app, raise_server_exceptions=False, headers=headers, **local)

        yield login("admin"), login("write", ["staff"]), login("read", ["staff"])


@pytest.mark.slow
def test_labels_hold_on_every_page(shared_out):
    """A hidden document is an unknown one: in lists, counts, groups, forms and deletions."""
    admin, writer, reader = shared_out
    assert names(page(admin, "files")) == ["open.txt", "secret.txt"]
    for client in (writer, reader):
        for path in ("files", "files?q=secret", "groups?group=MediumChunk", "files?label=boss"):
            assert "secret.txt" not in page(client, path).replace('value="secret"', "")
            assert "secret price" not in page(client, path)
    assert ">All <span>1</span>" in page(writer, "files")
    assert writer.get(f"{SET}/files/delete?id=secret.txt", headers=HTML).status_code == 404
    assert post(writer, "files/delete", id="secret.txt").status_code == 404
    assert post(writer, "files/retry").status_code == 403
    assert writer.get(f"{SET}/files/sync", headers=HTML).status_code == 403
    secret = admin.get("/api/v1/sets/notes/nodes?group=MediumChunk").json()["nodes"][1]["uid"]
    assert writer.get(f"{SET}/nodes/{secret}", headers=HTML).status_code == 404


@pytest.mark.slow
def test_readers_change_nothing(shared_out):
    """A token without write scope has no buttons, and its forms are refused."""
    reader = shared_out[2]
    assert '<form method="post"' not in page(reader, "files")
    assert post(reader, "files/delete", id="open.txt").status_code == 403
    assert reader.get(f"{SET}/evaluate", headers=HTML).status_code == 403


@pytest.mark.slow
def test_fragment_is_a_part_of_the_page(client):
    """The fragment is equal to what the page includes."""
    part = client.get(f"{SET}/files", headers={"Accept": "text/html; fragment=files"})
    assert part.headers["vary"].startswith("Accept")
    assert part.text.strip() in page(client, "files")


@pytest.mark.slow
def test_hostile_names_and_labels_stay_text(client, work):
    """Names with tags and quotes are escaped in the table, dialogs and notices."""
    name = "<img src=x onerror=alert(1)>\"'.txt"
    upload(client, {name: b"Tea."})
    work()
    text = page(client, "files?q=img")
    [stored] = map(html.unescape, names(text))
    text += page(client, f"files/delete?id={quote(stored)}")
    assert "<img" not in text
    assert "&lt;img src=x" in text


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "Hybrid search leaves out the vectors of group FineChunk."),
        ("zh", "混合检索没有使用节点组 FineChunk 的向量。"),
    ],
)
def test_health_and_groups_name_vectors_that_are_left_out(tmp_path, language, words):
    """After a search that has compared them with the words; not before."""
    docs = Document(embed=lambda text: np.random.default_rng(list(text.encode())).random(32) - 0.5)
    texts = [" ".join(f"word{number * step % 17}" for step in (1, 2, 3, 5)) for number in range(60)]
    docs.add_texts({str(number): f"{text} own{number}" for number, text in enumerate(texts)})
    client = TestClient(create_app(Service({"notes": docs}, tmp_path)), base_url="http://127.0.0.1")
    headers = {"Accept": "text/html", "Accept-Language": language}
    pages = ["/s/notes/activity/health", "/s/notes/groups"]
    HybridRetriever.over(docs, "FineChunk").build()
    assert [words in client.get(page, headers=headers).text for page in pages] == [False, False]
    with pytest.warns(UserWarning, match="leaves the vectors of 'default' out"):
        HybridRetriever.over(docs, "FineChunk")("word3")
    assert [words in client.get(page, headers=headers).text for page in pages] == [True, True]
    search = "/s/notes/search?q=word3&group=FineChunk&explain=1"
    with pytest.warns(UserWarning, match="leaves the vectors of 'default' out"):
        found = client.get(search).text
    assert len(re.findall(r"Vector</b><span>not used", found)) == 1
    status = client.get("/api/v1/sets/notes/status").json()
    assert {group["name"]: group["agreement"] for group in status["groups"]}["FineChunk"] == 0
