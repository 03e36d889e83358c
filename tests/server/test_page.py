"""The web page without a browser: templates, catalogues, guards, log-in, tokens, Activity,
sub-paths, sizes.
"""

from __future__ import annotations

import gzip
import json
import re
import string
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from lazyrag import Document, HttpChatModel, HttpEmbedder
from lazyrag.models import RateLimit
from lazyrag.server.app import create_app
from lazyrag.server.core.config import ModelsConfig, open_chat, open_rerank
from lazyrag.server.core.service import Service
from lazyrag.server.jobs import Jobs
from lazyrag.server.page import operate as page_operate
from lazyrag.server.page import page

TEMPLATES = sorted((page.FOLDER / "templates").rglob("*.html"))
SCRIPTS = sorted((page.FOLDER / "static" / "js").glob("*.js"))
PAGES = (
    "/sets",
    "/s/notes/start",
    "/s/notes/activity",
    "/s/notes/activity/audit",
    "/s/notes/activity/audit?check=1",
    "/s/notes/activity/certificates",
    "/s/notes/activity/health",
    "/settings/tokens",
    "/settings/models",
    "/settings/retrieval",
    "/settings/network",
    "/more",
    "/login?other=1",
)
HTML = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def browser(client, service, access, model):
    """A client that wants pages, of a service with access control and the models of a
    configuration.
    """
    models = ModelsConfig(chat="openai:gpt-5-mini", rerank="openai:bge-reranker", url=model.url)
    service.chat, service.rerank = open_chat(models), open_rerank(models)
    client.headers.update(HTML)
    return client


def csrf(browser, path="/login?other=1"):
    """The token of the forms of a page."""
    return re.search(r'<meta name="csrf" content="(\w+)"', browser.get(path).text)[1]


def send(browser, path, **fields):
    """Send a form, and follow it."""
    return browser.post(path, data={"csrf": csrf(browser), **fields})


# Catalogues and templates


def slots(text):
    """The named slots of a text."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_the_catalogues_have_equal_keys_and_slots():
    """Every text exists in both languages, with the same slots; Chinese needs no singular. The
    files are sorted.
    """
    en, zh = (page.catalogue(language) for language in ("en", "zh"))
    assert list(en) == sorted(en)
    assert list(zh) == sorted(zh)
    keys = {key for key in en if not key.endswith(".one")}
    assert keys == {key for key in zh if not key.endswith(".one")}
    assert {key for key in keys if slots(en[key]) != slots(zh[key])} == set()
    assert [
        key for key, text in {**en, **zh}.items() if not text.strip() or re.search(r"<[a-z/]", text)
    ] == []


def test_every_key_in_a_template_is_in_the_catalogue():
    """`t("key")` never shows a key."""
    known = page.catalogue("en")
    used = {
        key for path in TEMPLATES for key in re.findall(r'\bt\("([\w.]+)"[,)]', path.read_text())
    }
    assert {key for key in used if key not in known and f"{key}.other" not in known} == set()
    assert len(used) > 150


def test_templates_escape_and_have_nothing_inline():
    """No `|safe`, no script, style or handler within a template, and no absolute address."""
    for path in TEMPLATES:
        text = path.read_text()
        assert not re.search(r"\|\s*safe\b|Markup|autoescape", text), path
        text = re.sub(r"{%.*?%}|{#.*?#}", "", text, flags=re.DOTALL)
        assert not re.search(
            r"\sstyle\s*=|<style|\son[a-z]+\s*=\s*[\"']|javascript:|data:", text
        ), path
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path
        assert not re.search(r"(href|src|action)=\"(/|https?:)", text), path


def test_own_scripts_are_small():
    """40 KB in all, and none of them reaches another host or evaluates text."""
    assert sum(path.stat().st_size for path in SCRIPTS) <= 40 * 1024
    for path in SCRIPTS:
        assert not re.search(
            r"https?://|\beval\(|innerHTML|document\.write|setAttribute\(.style", path.read_text()
        ), path


# Every page


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pages_are_whole(browser, language):
    """Each has one h1, a title, the language, and a policy that allows nothing inline or
    foreign.
    """
    browser.headers["Accept-Language"] = language
    for path in PAGES:
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert len(re.findall(r"<h1", answer.text)) == 1, path
        assert f'<html lang="{"zh-CN" if language == "zh" else "en"}"' in answer.text
        assert "script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"], (
            path
        )
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
        assert len(re.findall(r'id="([^"]+)"', answer.text)) == len(
            set(re.findall(r'id="([^"]+)"', answer.text))
        ), path
        assert answer.headers["cache-control"] == "private, no-cache"


def test_first_load_is_small(browser):
    """A page with its style sheet and own scripts: under 60 KB of the 150 that it may have."""
    html = browser.get("/s/notes/activity")
    names = re.findall(r'(?:href|src)="(/static/[^"]+)"', html.text)
    assert any(name.endswith("app.css") for name in names)
    sizes = [len(gzip.compress(browser.get(name).content)) for name in names]
    scripts = sum(len(gzip.compress(path.read_bytes())) for path in SCRIPTS)
    assert len(gzip.compress(html.content)) + sum(sizes) + scripts <= 60_000


def test_static_files_are_kept_for_ever_by_their_stamp(browser):
    """The address changes with the content; an old one is asked for again. Names stay within the
    folder.
    """
    found = re.search(r'href="(/static/(\w+)/app.css)"', browser.get("/sets").text)
    assert "immutable" in browser.get(found[1]).headers["cache-control"]
    assert browser.get("/static/old/app.css").headers["cache-control"] == "no-cache"
    assert browser.get("/static/old/../page.py").status_code == 404
    assert browser.get("/static/old/%2e%2e/page.py").status_code == 404


def test_a_fragment_is_the_part_of_its_page(browser, docs):
    """Both ways give equal HTML; a fragment that a page has not is the page."""
    Jobs(docs).submit("verify")
    whole = browser.get("/s/notes/activity").text
    part = browser.get("/s/notes/activity", headers={"Accept": "text/html; fragment=jobs"})
    assert part.text.strip() in whole
    assert part.headers["x-robots-tag"] == "noindex"
    assert "Accept" in part.headers["vary"]
    assert "<!doctype" not in part.text
    assert (
        "<!doctype"
        in browser.get("/s/notes/activity", headers={"Accept": "text/html; fragment=rows"}).text
    )


def test_a_page_that_did_not_change_is_not_sent_again(browser):
    """By its ETag."""
    csrf(browser)
    tag = browser.get("/more").headers["etag"]
    assert browser.get("/more", headers={"If-None-Match": tag}).status_code == 304


def test_the_language_and_the_theme_are_cookies(browser):
    """A link with `lang` or `theme` leads back to the same page without it."""
    answer = browser.get("/more?lang=zh&theme=dark&x=1")
    assert str(answer.url).endswith("/more?x=1")
    assert '<html lang="zh-CN"' in answer.text
    assert 'data-theme="dark"' in answer.text
    assert 'data-theme="dark"' in browser.get("/sets").text
    assert 'lang="en"' in browser.get("/sets?lang=en").text


def test_a_sub_path_is_before_every_address(service, access):
    """Behind a proxy under /x/ no link, form or file is without it."""
    from fastapi.testclient import TestClient

    app = create_app(service)
    local = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000), "root_path": "/x"}
    with TestClient(app, headers=HTML, **local) as browser:
        for path in PAGES:
            found = re.findall(r'(?:href|src|action|data-login)="([^"#]*)"', browser.get(path).text)
            assert [one for one in found if not one.startswith("/x/")] == [], path
        assert browser.get("/", follow_redirects=False).headers["location"] == "/x/s/notes/ask"


def test_hostile_names_stay_text(browser, access):
    """A name of script, markup and bidi marks is shown as it is."""
    name = '"><script>alert(1)</script>{{ 7*7 }}'
    send(browser, "/settings/tokens", name=name, scope="admin")
    shown = browser.get("/settings/tokens").text
    assert "<script>alert" not in shown
    assert name in unescape(shown)


# Guards


def test_a_form_needs_its_token(browser):
    """Without the CSRF token of this browser nothing changes."""
    assert browser.post("/settings/tokens", data={"scope": "admin"}).status_code == 403
    csrf(browser)
    assert (
        browser.post("/settings/tokens", data={"scope": "admin", "csrf": "0" * 32}).status_code
        == 403
    )
    foreign = browser.post(
        "/settings/tokens",
        data={"csrf": csrf(browser), "scope": "admin"},
        headers={"Sec-Fetch-Site": "cross-site"},
    )
    assert foreign.status_code == 403
    assert "lrg_" not in browser.get("/settings/tokens").text


def test_errors_are_pages_for_browsers_and_json_for_programs(browser):
    """With the request id; the API's errors stay JSON."""
    found = browser.get("/nothing")
    assert found.status_code == 404
    assert "This page does not exist" in found.text
    assert found.headers["x-request-id"] in found.text
    assert (
        browser.get("/nothing", headers={"Accept": "*/*"}).headers["content-type"]
        == "application/problem+json"
    )
    assert browser.get("/api/v1/nothing").headers["content-type"] == "application/problem+json"


def test_a_failure_is_a_page_without_its_text(app, browser, monkeypatch):
    """What went wrong inside is in the log alone."""
    monkeypatch.setattr("lazyrag.server.page.operate._models", lambda _: 1 / 0)
    found = browser.get("/settings/models")
    assert found.status_code == 500
    assert "The service failed" in found.text
    assert "division" not in found.text


def test_the_first_token_closes_the_service_and_signs_this_browser_in(browser, access):
    """Its secret is shown once; another browser comes to the log-in, and from there to the page
    that it wanted.
    """
    assert (
        "must have the scope" in send(browser, "/settings/tokens", name="kiosk", scope="read").text
    )
    shown = send(browser, "/settings/tokens", name="admin", scope="admin")
    secret = re.search(r"lrg_[0-9a-f]{12}_[0-9a-f]{48}", shown.text)[0]
    assert secret not in browser.get("/settings/tokens").text
    browser.cookies.clear()
    wanted = browser.get("/settings/tokens?a=1")
    assert wanted.url.path == "/login"
    assert 'value="/settings/tokens?a=1"' in wanted.text
    wrong = send(browser, "/login", token=secret[:-1], next="/settings/tokens")
    assert wrong.status_code == 401
    assert "not valid" in wrong.text
    signed_in = send(browser, "/login", token=secret, next="/settings/tokens")
    assert signed_in.url.path == "/settings/tokens"
    assert browser.get("/api/v1/session").json()["scope"] == "admin"
    assert send(browser, "/logout").url.path == "/login"
    assert browser.get("/settings/tokens").url.path == "/login"


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example", ""]
)
def test_the_log_in_leads_to_no_other_site(browser, access, target):
    """`next` is a path of this service."""
    _, text = access.create("admin")
    form = {"csrf": csrf(browser), "token": text, "next": target}
    # where the script goes
    assert 'data-login="/"' in browser.get("/login", params={"next": target}).text
    assert browser.post("/login", data=form, follow_redirects=False).headers["location"] == "/"


def test_the_log_in_leads_to_the_wanted_page(browser, access):
    """With its query, and with names that are quoted."""
    _, text = access.create("admin")
    for page_ in ("/s/notes/search?q=tea&topk=3", "/s/notes/files/%E8%8C%B6.txt"):
        browser.cookies.clear()
        wanted = browser.get(page_).url.params["next"]
        form = {"csrf": csrf(browser), "token": text, "next": wanted}
        assert (
            browser.post("/login", data=form, follow_redirects=False).headers["location"] == page_
        )
        assert browser.get("/login", params={"next": wanted}).status_code == 200


def test_a_link_with_a_token_replaces_no_session(browser, access):
    """Who follows a link of someone else stays who they are; the token of the command still
    replaces a lesser one.
    """
    reader, admin, other = (access.create(scope, labels=labels)[1] for scope, labels in (("read", None),
                            ("admin", None), ("admin", ["hr"])))  # fmt: skip
    send(browser, "/login", token=reader)
    send(browser, "/login", token=other, once="1")
    assert browser.get("/api/v1/session").json()["labels"] is None
    send(browser, "/login", token=admin, once="1")
    assert browser.get("/api/v1/session").json()["scope"] == "admin"


def test_a_one_time_token_works_once(browser, access):
    """The address of manager="ui" is worth nothing afterwards; its session goes on."""
    _, text = access.create("admin", expires="12h")
    assert (
        send(browser, "/login", token=text, once="1", next="/settings/tokens").url.path
        == "/settings/tokens"
    )
    assert browser.get("/settings/network").status_code == 200
    assert access.of_token(text) is None
    browser.cookies.clear()
    assert send(browser, "/login", token=text, once="1").status_code == 401


def test_entries_that_a_token_may_not_use_are_absent(browser, access):
    """With `read` there are no Activity, Evaluate and Settings, and their pages say why."""
    _, text = access.create("read")
    access.create("admin")
    send(browser, "/login", token=text, next="/sets")
    shown = browser.get("/s/notes/start").text
    assert "/s/notes/search" in shown
    assert "/s/notes/activity" not in shown
    assert "/s/notes/evaluate" not in shown
    assert "/settings" not in shown
    assert browser.get("/s/notes/activity").status_code == 403
    assert "This token may not do that" in browser.get("/settings/tokens").text


def test_a_token_with_labels_sees_only_its_jobs(browser, access, docs):
    """No tabs of the whole service, and no jobs of others."""
    _, text = access.create("write", labels=["hr"])
    access.create("admin")
    Jobs(docs).submit("verify")
    send(browser, "/login", token=text, next="/sets")
    shown = browser.get("/s/notes/activity")
    if shown.status_code == 200:  # the set has the field
        assert "No jobs yet" in shown.text
        assert "activity/audit" not in shown.text
    assert browser.get("/settings/tokens").status_code == 403


# Operating


def test_a_job_is_cancelled_and_retried_in_activity(browser, docs):
    """By its buttons; the row says what happened."""
    job = Jobs(docs).submit("verify")
    assert "Waiting" in browser.get("/s/notes/activity").text
    shown = send(browser, f"/s/notes/activity/{job.id}/cancel")
    assert shown.url.path == "/s/notes/activity"
    assert "Cancelled" in shown.text
    assert "Waiting" in send(browser, f"/s/notes/activity/{job.id}/retry").text
    assert "started by the service" in browser.get("/s/notes/activity").text
    send(browser, "/s/notes/activity/health", action="repair")
    assert "by this computer" in browser.get("/s/notes/activity").text
    assert send(browser, f"/s/notes/activity/{job.id}/explode").status_code == 404


@pytest.mark.slow
def test_a_deletion_certificate_can_be_read_and_kept(browser, docs, tmp_path):
    """The job of a purge leads to it; the JSON is the certificate. What remains is named."""
    from lazyrag.server.jobs import Worker

    Jobs(docs).submit("purge", {"document": "tea.md"})
    remains = Worker(docs).run_one()
    assert "Remains found" in browser.get("/s/notes/activity/certificates").text
    shown = browser.get(f"/s/notes/activity/certificates/{remains.id}").text
    assert "Something of the document is still there" in shown
    assert "The file is still in the dataset" in unescape(shown)
    (tmp_path / "files" / "coffee.txt").unlink()
    Jobs(docs).submit("purge", {"document": "coffee.txt"})
    done = Worker(docs).run_one()
    assert done.state == "DELETED"
    assert f"Certificate {done.id}" in browser.get("/s/notes/activity").text
    assert "Nothing found" in browser.get("/s/notes/activity/certificates").text
    shown = browser.get(f"/s/notes/activity/certificates/{done.id}").text
    assert "Nothing of it was found" in shown
    kept = browser.get(f"/s/notes/activity/certificates/{done.id}.json")
    assert "attachment" in kept.headers["content-disposition"]
    assert {one["found"] for one in json.loads(kept.text)["checked"]} == {0}


def test_the_audit_log_is_filtered_and_checked(browser):
    """The newest first, by who and by action; the chain is said to be intact."""
    send(browser, "/settings/tokens", name="first", scope="admin")
    send(
        browser, "/settings/retrieval", set="notes", group="MediumChunk", retriever="bm25", topk="8"
    )
    shown = browser.get("/s/notes/activity/audit").text
    assert shown.index("/settings/retrieval") < shown.index("create token")
    assert "/settings/retrieval" not in browser.get("/s/notes/activity/audit?action=token").text
    assert "No entries match" in browser.get("/s/notes/activity/audit?by=nobody").text
    assert "The chain is intact up to row" in browser.get("/s/notes/activity/audit?check=1").text


@pytest.mark.slow
def test_defaults_are_changed_and_taken_back(browser, service):
    """One setting, one undo; values that no search could have are refused."""
    shown = send(
        browser, "/settings/retrieval", set="notes", group="MediumChunk", retriever="bm25", topk="8"
    )
    assert "Saved" in shown.text
    assert "Saved" not in browser.get("/settings/retrieval").text
    assert page.defaults_of(service, "notes")["topk"] == 8
    send(browser, "/settings/retrieval", set="notes", undo="1")
    assert page.defaults_of(service, "notes")["topk"] == 6
    for topk, retriever in (("0", "bm25"), ("x", "bm25"), ("6", "no such")):
        form = {"set": "notes", "group": "MediumChunk", "retriever": retriever, "topk": topk}
        assert send(browser, "/settings/retrieval", **form).status_code in (400, 404, 422)
    assert page.defaults_of(service, "notes")["topk"] == 6


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, "8 calls at a time"),
        ({"requests_per_minute": 90}, "90 calls a minute"),
        ({"rate_limit": RateLimit()}, "8 calls at a time"),
    ],
)
def test_the_models_page_shows_models_behind_an_endpoint(
    browser, service, model, tmp_path, options, limit
):
    """The name, address and limit of the chat model and of the embedding model of a set; one call
    tests each.
    """
    (tmp_path / "more").mkdir()
    service.chat = HttpChatModel(model.url, "gpt-5-mini", **options)
    with Document(tmp_path / "more", embed=HttpEmbedder(model.url, "bge-m3", **options)) as more:
        service.sets["more"] = more
        rows = browser.get("/settings/models").text.partition("</table>")[0].split("<tr>")[2:]
        assert [[name in row for name in ("gpt-5-mini", "bge-m3")] for row in rows] == [
            [True, False],
            [False, True],
        ]
        assert all(f"<code>{model.url}</code>" in row and limit in row for row in rows)
        assert "The model answered in" in send(browser, "/settings/models", model="").text
        assert "2 dimensions" in send(browser, "/settings/models", model="more/default").text


def test_the_models_page_shows_any_model_of_a_user(browser, service):
    """Attributes with the names of an endpoint's may be anything."""
    service.chat = lambda prompt: "OK"
    service.chat.endpoint, service.chat.model = "eu-west", object()
    assert "function" in browser.get("/settings/models").text


@pytest.mark.slow
def test_a_model_is_tested_by_one_call(browser, service):
    """The page says how long it took, or exactly what failed."""
    service.chat = lambda prompt: "OK"
    assert "The model answered in" in send(browser, "/settings/models", model="").text
    assert "Answered" in browser.get("/settings/models").text
    service.chat = lambda prompt: 1 / 0
    for _ in range(2):  # above the page, and later as the last call
        assert "ZeroDivisionError: division by zero" in unescape(
            send(browser, "/settings/models", model="").text
        )
    assert "Failed" in browser.get("/settings/models").text


@pytest.mark.slow
def test_a_price_of_a_model_is_that_of_dry_runs(tmp_path):
    """What Settings have for the model of a set stands in the form of its dry runs, and in their
    cost.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "tea.txt").write_text("Green tea. " * 500)
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(folder, embed=lambda text: [float(len(text)), 1.0], store_conf=conf) as docs:
        docs.activate_group("MediumChunk", embed_keys=["default"])
        (folder / "new.txt").write_text("White tea. " * 500)
        app = create_app(Service({"notes": docs}, tmp_path / "state"))
        local = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000), "headers": HTML}
        with TestClient(app, **local) as browser:
            assert (
                "The price is saved."
                in send(browser, "/settings/models", model="notes/default", price="250").text
            )
            assert 'value="250"' in browser.get("/settings/models").text
            found = browser.get("/s/notes/files/sync").text
            assert 'value="250"' in found
            assert re.search(r"<dt>Cost</dt><dd>\d\.\d{4}", found)


@pytest.mark.slow
def test_the_first_steps_suggest_questions_about_headings(browser):
    """No model is needed for them."""
    shown = unescape(browser.get("/s/notes/start").text)
    assert "What do the documents say about “Storage”?" in shown
    assert "3 files are read" in shown


def test_suggestions_are_in_the_reader_s_language_first(tmp_path):
    """Headings lose their numbers; names of files come last."""
    texts = {
        "a-name.txt": "Only text.",
        "b.md": "# Tea\n\n## 2.1 Spring harvest\n\nx",
        "c.md": "# 茶\n\n## 三、机械与用电\n\n文",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with Document(tmp_path) as docs:
        docs.sync()
        zh, en = (page_operate.suggestions(docs, language) for language in ("zh", "en"))
    assert [re.search(r"“(.*)”", one)[1] for one in zh] == [
        "机械与用电",
        "Spring harvest",
        "a-name",
    ]
    assert [re.search(r"“(.*)”", one)[1] for one in en] == [
        "Spring harvest",
        "a-name",
        "机械与用电",
    ]


def test_the_settings_show_a_configuration_of_this_service(browser, service):
    """With its state folder, so that the tokens stay."""
    shown = unescape(browser.get("/settings/models").text)
    assert f'state = "{service.state}"' in shown
    assert "lazyrag serve serve.toml" in shown


@pytest.mark.slow
def test_the_gallery_is_for_tests(browser, monkeypatch):
    """It exists only where the environment says so."""
    assert browser.get("/_gallery").status_code == 404
    monkeypatch.setenv("LAZYRAG_GALLERY", "1")
    assert browser.get("/_gallery").status_code == 200


def test_the_vendored_library_has_its_licence():
    """uPlot is MIT, and loaded on one page alone."""
    folder = Path(page.FOLDER, "static", "vendor")
    assert "MIT License" in (folder / "LICENSE.uPlot.txt").read_text()
    assert (folder / "uPlot.iife.min.js").stat().st_size <= 52_000
    assert [path.name for path in TEMPLATES if "uPlot" in path.read_text()] == [
        "activity_health.html"
    ]


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    "cookie", ["1", "{}", "[1, 2]", '["ok"]', '{"a": [1]}', "[" * 2_000, '["ok", "a", "b", "c"]']
)
def test_a_forged_notice_is_no_notice(browser, cookie):
    """Any browser can send any cookie."""
    browser.cookies.set("lazyrag_notice", quote(cookie))
    answer = browser.get("/sets")
    assert answer.status_code == 200
    assert "data-dismiss" not in answer.text


@pytest.mark.slow
def test_sets_that_are_not_open_show_to_those_who_see_all(browser, service, access):
    """Their names are none of the business of a token with labels."""
    service.pending = {"salaries": "The store does not answer."}
    tokens = [access.create("read", labels=labels)[1] for labels in (None, ["hr"])]
    shown = [
        "salaries" in browser.get("/sets", headers={"Authorization": f"Bearer {one}"}).text
        for one in tokens
    ]
    assert shown == [True, False]
