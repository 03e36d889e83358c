"""Tokens, browser sessions, the audit log."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from fastapi.testclient import TestClient

from lazyrag import Document
from lazyrag.errors import ConfigError, NotRegisteredError, StoreError
from lazyrag.server.app import create_app
from lazyrag.server.core import middleware
from lazyrag.server.core.access import ACCESS_FORMAT, SESSION_S, Access, Buckets, check_bind
from lazyrag.server.core.middleware import AccessMiddleware
from lazyrag.server.core.principal import Principal
from lazyrag.storage.database import Database, FileFormat

SETS = "/api/v1/session"  # a route that every scope may ask


def bearer(text):
    """The header of a token."""
    return {"Authorization": f"Bearer {text}"}


pytestmark = pytest.mark.usefixtures("access")


@pytest.fixture
def docs():
    """A Document without documents: what is tested does not look at them."""
    with Document() as docs:
        yield docs


@pytest.fixture
def admin(access):
    """Headers of an administrator."""
    return bearer(access.create("admin")[1])


def test_the_service_is_open_until_the_first_token(client, access):
    """Then every route but health and login needs one, after a revocation too."""
    assert client.get(SETS).json() == {"id": "local", "scope": "admin", "labels": None}
    token, text = access.create("read")
    answer = client.get(SETS)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (
        401,
        'Bearer realm="lazyrag"',
    )
    assert "lazyrag token create" in answer.json()["remedy"]
    assert client.get(SETS, headers=bearer(text)).json()["id"] == token.id
    access.revoke(token.id)
    assert client.get(SETS, headers=bearer(text)).status_code == client.get(SETS).status_code == 401
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Forwarded-For", "203.0.113.9")],
        [("X-Forwarded-For", "127.0.0.1, 203.0.113.9")],
        # as HAProxy adds it
        [("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "203.0.113.9")],
        [("X-Real-IP", "203.0.113.9")],
        [("Forwarded", 'by=127.0.0.1; For="[2001:db8::1]:4711"')],
        [("Forwarded", "for=127.0.0.1"), ("Forwarded", "for=203.0.113.9")],
    ],
)
def test_a_proxy_does_not_open_the_service(client, headers):
    """Without a token only this machine is served."""
    assert client.get(SETS, headers=headers).status_code == 401
    assert client.get(SETS, headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 200


def test_secrets_are_not_stored(access):
    """The file holds hashes; the text of a token has 192 random bits."""
    text = access.create("write", name="ci", labels=["hr", "a"], expires="90d")[1]
    session = access.open_session(access.of_token(text))
    access.close()
    kind, token_id, secret = text.split("_")
    stored = b"".join(file.read_bytes() for file in access.path.parent.iterdir() if file.is_file())
    assert (kind, len(secret)) == ("lrg", 48)
    assert token_id.encode() in stored
    assert not {secret.encode(), session.encode()} & {
        stored[at : at + 48] for at in range(len(stored))
    }
    assert secret.encode() not in stored
    assert session.encode() not in stored


def test_tokens_end(access, monkeypatch):
    """A token is valid up to its last second, and its sessions no longer than it."""
    token, text = access.create("write", labels=["hr", "hr", "a"], expires="1h")
    assert access.of_token(text).labels == ("a", "hr")
    session = access.open_session(access.of_token(text))
    assert access.of_session(session) == access.of_token(text)
    monkeypatch.setattr(time, "time", lambda: token.expires + 0.5)
    assert access.of_token(text) is access.of_session(session) is None
    assert access.tokens()[0].used == time.strftime("%Y-%m-%d", time.gmtime(token.created))


def test_forged_tokens(access):
    """Another secret, another id, or anything else is no token."""
    (one, text), (_, other) = access.create(), access.create()
    swapped = f"lrg_{one.id}_{other.rpartition('_')[2]}"
    for forged in (
        swapped,
        text[:-1],
        text + "0",
        text.upper(),
        "",
        "lrg__",
        f"lrg_{one.id}_",
        "\udc80",
        "lrg_' OR 1=1",
    ):
        assert access.of_token(forged) is None, forged
        assert access.of_session(forged) is None, forged


def test_processes_share_the_tokens(access):
    """What one process creates or revokes, counts in the others from the next request on."""
    other = Access(access.path.parent)
    token, text = access.create()
    assert other.is_closed()
    assert other.of_token(text).id == token.id
    access.revoke(token.id)
    assert other.of_token(text) is None
    with pytest.raises(NotRegisteredError, match="no token"):
        other.revoke("unknown")


@pytest.mark.parametrize(
    "bad",
    [
        {"scope": "root"},
        {"labels": []},
        {"labels": [" "]},
        {"expires": "soon"},
        {"expires": "0d"},
        {"name": "a\nb"},
    ],
)
def test_invalid_tokens(access, bad):
    """The error names the argument, and nothing is created."""
    with pytest.raises(ConfigError, match=next(iter(bad))):
        access.create(**bad)
    assert not access.is_closed()


def test_scopes(client, access, admin):
    """Only administrators of all documents manage tokens."""
    for scope, labels in (("read", None), ("write", None), ("admin", ["hr"])):
        headers = bearer(access.create(scope, labels=labels)[1])
        assert client.get("/api/v1/tokens", headers=headers).status_code == 403
        assert (
            client.post("/api/v1/tokens", json={"scope": "admin"}, headers=headers).status_code
            == 403
        )
        assert client.get("/api/v1/audit/check", headers=headers).status_code == 403
    made = client.post("/api/v1/tokens", json={"scope": "write", "name": "ci"}, headers=admin)
    assert made.status_code == 201
    token_id, headers = made.json()["token"]["id"], bearer(made.json()["text"])
    assert client.get(SETS, headers=headers).json() == {
        "id": token_id,
        "scope": "write",
        "labels": None,
    }
    assert "digest" not in str(client.get("/api/v1/tokens", headers=admin).json())
    assert client.delete(f"/api/v1/tokens/{token_id}", headers=admin).status_code == 204
    assert client.get(SETS, headers=headers).status_code == 401
    assert client.delete("/api/v1/tokens/none", headers=admin).status_code == 404
    assert client.post("/api/v1/tokens", json={"expires": "soon"}, headers=admin).status_code == 400


def test_browsers_log_in(client, access):
    """The cookie is out of reach of scripts and other sites; it ends with a log-out, and with its
    token.
    """
    token, text = access.create("write")
    assert client.post(SETS, json={"token": text[:-1] + "x"}).status_code == 401
    answer = client.post(SETS, json={"token": text})
    assert answer.json()["id"] == token.id
    cookie = answer.headers["set-cookie"]
    assert all(
        one in cookie for one in ("HttpOnly", "SameSite=strict", f"Max-Age={SESSION_S}", "Path=/")
    )
    assert "Secure" not in cookie
    assert text not in cookie
    assert client.get(SETS).json()["id"] == token.id
    assert client.delete(SETS).status_code == 204
    assert client.get(SETS).status_code == 401
    client.post(SETS, json={"token": text})
    assert client.get(SETS).status_code == 200
    access.revoke(token.id)
    assert client.get(SETS).status_code == 401
    assert client.post(SETS, json={"token": text}).status_code == 401


def test_cookies_over_https_are_secure(client, access):
    """They never travel in the clear."""
    client.base_url = "https://localhost"
    assert "Secure" in client.post(SETS, json={"token": access.create()[1]}).headers["set-cookie"]


def test_sessions_end(access, monkeypatch):
    """After twelve hours."""
    session = access.open_session(access.of_token(access.create()[1]))
    assert access.of_session(session)
    end = time.time() + SESSION_S + 1
    monkeypatch.setattr(time, "time", lambda: end)
    assert access.of_session(session) is None


def test_the_audit_log_has_changes_logins_and_denials(client, access):
    """Who, what and when, before and after; never texts or queries."""
    token, text = access.create("write")
    admin = bearer(access.create("admin")[1])
    client.post(SETS, json={"token": text})
    client.cookies.clear()
    client.post(SETS, json={"token": "lrg_secret-query"})
    client.get("/api/v1/tokens?text=secret-query")
    client.get("/api/v1/tokens", headers=bearer(text))
    client.post("/api/v1/tokens", json={"name": "secret-query"}, headers=admin)
    client.get(SETS, headers=admin)  # reads are not recorded
    rows = client.get("/api/v1/audit", headers=admin).json()["rows"]
    short = [(one["principal"], one["action"], one["status"]) for one in rows[2:]]
    root = access.tokens()[1].id
    made = access.tokens()[2].id
    assert short == [
        (token.id, "POST /api/v1/session", 200),
        ("anonymous", "POST /api/v1/session", 401),
        ("anonymous", "GET /api/v1/tokens", 401),
        (token.id, "GET /api/v1/tokens", 403),
        (root, "POST /api/v1/tokens", None),
        (root, f"create token {made}", 200),
        (root, "POST /api/v1/tokens", 201),
    ]
    assert "secret" not in str(rows)
    assert {one["address"] for one in rows[2:5]} == {"127.0.0.1"}
    assert client.get("/api/v1/audit?after=2&limit=1", headers=admin).json() == {
        "rows": rows[2:3],
        "next": 3,
    }
    assert client.get("/api/v1/audit/check", headers=admin).json() == {
        "rows": len(rows),
        "head": rows[-1]["hash"],
        "damaged": None,
    }


@pytest.mark.slow
def test_queries_are_no_changes(client, access, admin):
    """They are not recorded; what is named like one is."""
    for method, path in (
        ("POST", "search"),
        ("POST", "grep"),
        ("DELETE", "documents/x/search"),
        ("POST", "_schema"),
    ):
        client.request(method, f"/api/v1/sets/notes/{path}", json={}, headers=admin)
    actions = [one.action for one in access.audit(Principal())][1:]
    assert actions == ["DELETE /api/v1/sets/notes/documents/x/search"] * 2


@pytest.mark.slow
def test_queries_are_recorded_where_that_is_wanted(client, access, admin):
    """With `audit_texts` the log has who asked what; still no texts of documents, and no tokens."""
    access.texts = True
    long = {"query": "Who is Oberholzer?", "topk": 1, "group": "x" * 3_000}
    client.post("/api/v1/sets/notes/search", json=long, headers=admin)
    client.post("/api/v1/sets/notes/texts", json={"texts": {"tea": "secret-text"}}, headers=admin)
    client.post("/api/v1/session", json={"token": "lrg_secret"})
    rows = client.get("/api/v1/audit", headers=admin).json()["rows"]
    assert [one["status"] for one in rows[1:]] == [422, None, 202, 401]
    assert rows[1]["text"] == json.dumps(long, separators=(",", ":"))[:2_000]
    assert "secret" not in str(rows)
    assert access.verify_audit().damaged is None


def test_audit_logs_of_the_first_format_stay_valid(tmp_path):
    """Rows from before the column of texts keep their hashes."""
    first = FileFormat(
        "access file", ACCESS_FORMAT.application_id, ACCESS_FORMAT.migrations[:1], ""
    )
    content = [1, 1, 5, "local", "", "act", "", "[]", 200, "r"]
    digest = hashlib.sha256(f"\n{json.dumps(content)}".encode()).hexdigest()
    with Database(tmp_path / "access.db", first) as database, database.writing() as connection:
        connection.execute(
            "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*content, digest)
        )
    access = Access(tmp_path)
    access.record("local", "act")
    assert (access.verify_audit().rows, access.verify_audit().damaged) == (2, None)


def test_the_audit_log_cannot_be_changed(access):
    """SQLite refuses it; where somebody forces it, the chain of hashes shows the first changed
    row.
    """
    for at in range(5):
        access.record("local", f"row {at}")
    access.close()
    with sqlite3.connect(access.path) as raw:
        for statement in ("DELETE FROM audit WHERE id = 5", "UPDATE audit SET action = 'x'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(statement)
        raw.execute("DROP TRIGGER audit_update")
        raw.execute("UPDATE audit SET action = 'x' WHERE id = 3")
    raw.close()
    assert Access(access.path.parent).verify_audit().damaged == 3


def test_processes_write_one_chain(access):
    """Rows of two writers at the same time follow each other."""
    other = Access(access.path.parent)
    with ThreadPoolExecutor(4) as pool:
        for at in range(40):
            pool.submit((access, other)[at % 2].record, f"p{at % 3}", "act")
    found = access.verify_audit()
    assert (found.rows, found.damaged) == (40, None)


def test_what_cannot_be_recorded_is_refused(client, access, admin, monkeypatch):
    """A change without a row in the audit log does not happen."""

    def fail(*_, **__):
        raise StoreError("The disk is full.")

    monkeypatch.setattr(access, "record", fail)
    answer = client.post("/api/v1/tokens", json={}, headers=admin)
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert "audit" in answer.json()["detail"]
    assert len(access.tokens()) == 1
    assert client.get(SETS, headers=admin).status_code == 200
    assert client.get(SETS).status_code == 503


@pytest.mark.slow
def test_a_labelled_administrator_sees_its_own_rows(client, access, admin):
    """With numbers that do not tell what others did."""
    headers = bearer(access.create("admin", labels=["hr"])[1])

    def own():
        rows = client.get("/api/v1/audit", headers=headers).json()["rows"]
        return [(one["id"], one["action"], one["hash"]) for one in rows]

    assert own() == []
    client.post("/api/v1/tokens", json={}, headers=admin)
    client.get("/api/v1/tokens", headers=headers)
    client.post("/api/v1/tokens", json={}, headers=admin)
    client.get("/api/v1/tokens", headers=headers)
    assert own() == [(1, "GET /api/v1/tokens", ""), (2, "GET /api/v1/tokens", "")]


@pytest.mark.slow
def test_labels_need_a_field(client, access):
    """A set that cannot be restricted says how to make it so, and is in no list."""
    headers = bearer(access.create("read", labels=["hr"])[1])
    problem = client.get("/api/v1/sets/notes", headers=headers).json()
    assert (problem["status"], "DocField" in problem["remedy"]) == (403, True)
    assert client.get("/api/v1/sets", headers=headers).json() == {"sets": []}
    unknown = client.get("/api/v1/sets/note", headers=headers).json()
    assert (unknown["status"], "notes" in unknown["remedy"]) == (404, False)


@pytest.mark.slow
def test_a_path_of_a_proxy(service, access):
    """The guards see the same paths as the routes, and the cookie belongs to the service's own."""
    text = access.create("read")[1]
    with TestClient(create_app(service), root_path="/rag", base_url="http://localhost") as client:
        for prefix in ("", "/rag"):
            assert client.get(f"{prefix}/healthz").status_code == 200
            assert client.get(f"{prefix}{SETS}").status_code == 401
            answer = client.post(f"{prefix}{SETS}", json={"token": text})
            assert "Path=/rag;" in answer.headers["set-cookie"]
            client.cookies.clear()
        assert (
            client.get("/rag/rag/healthz").status_code
            == client.get("/raghealthz").status_code
            == 401
        )


def test_only_this_machine_without_a_token(access):
    """An open port to everybody is no default."""
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        check_bind(host, access, Path("notes"))
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.com", ""):  # noqa: S104
        with pytest.raises(ConfigError, match="lazyrag token create --scope admin --at notes"):
            check_bind(host, access, Path("notes"))
    token, _ = access.create("read")
    check_bind("0.0.0.0", access, Path("notes"))  # noqa: S104
    access.revoke(token.id)
    with pytest.raises(ConfigError, match="127"):
        check_bind("0.0.0.0", access, Path("notes"))  # noqa: S104


def test_buckets(monkeypatch):
    """A burst, then so many per second; keys do not share."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    buckets = Buckets(2.0, 3.0)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    now[0] += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]


@pytest.mark.slow
def test_rate_limits(client, access):
    """A principal that asks too much waits; one without a token cannot fill the audit log."""
    access.requests.rate, access.requests.burst = 0.1, 2
    access.denials.rate = 0.01
    headers = bearer(access.create()[1])
    answers = [client.get(SETS, headers=headers) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "10"
    assert [client.get(SETS).status_code for _ in range(60)] == [401] * 50 + [429] * 10
    assert access.verify_audit().rows == 51


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/v1/session", "/login"])
def test_failed_logins_do_not_fill_the_audit_log(client, access, path):
    """They need no token; clients that send many of them wait."""
    access.create()
    access.denials.rate = 0.01
    found = [client.post(path, json={"token": "lrg_guessed"}).status_code for _ in range(60)]
    assert found[50:] == [429] * 10
    assert access.verify_audit().rows == 51


def test_a_one_time_token_opens_one_session(access, monkeypatch):
    """Of two processes that get it at the same time, one wins."""
    _, text = access.create()
    with_other, find = Access(access.path.parent), access.of_token

    def slow(given):
        found = find(given)
        assert with_other.take_once(given) == found is not None
        return found

    monkeypatch.setattr(access, "of_token", slow)
    assert access.take_once(text) is None
    with_other.close()


def test_streams_end_with_their_token(service, access, monkeypatch):
    """A revocation ends the streams that are open, and so does the first token those without
    one.
    """
    monkeypatch.setattr(middleware, "CHECK_S", 0.0)
    token, text = access.create()
    sent = []

    async def events(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": STREAM})
        for number in range(1_000):
            if number == 3:
                access.revoke(token.id)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await anyio.lowlevel.checkpoint()

    async def send(message):
        sent.append(message)

    anyio.run(AccessMiddleware(events, service), scope_of(text), None, send)
    assert [one.get("body", b"") for one in sent[1:]] == [b"x"] * 3 + [b""]
    assert not sent[-1].get("more_body", False)
    assert access.streams[token.id] == 0


def test_streams_are_bounded(service, access, monkeypatch):
    """A principal has so many streams at a time; others have theirs."""
    monkeypatch.setattr(middleware, "MAX_STREAMS", 2)
    texts = [access.create()[1] for _ in range(2)]
    statuses = []

    async def run():
        ending = anyio.Event()

        async def events(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            await ending.wait()

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async with anyio.create_task_group() as group:
            for text in [texts[0]] * 3 + [texts[1]]:
                group.start_soon(AccessMiddleware(events, service), scope_of(text), None, send)
                await anyio.sleep(0.05)
            ending.set()

    anyio.run(run)
    assert statuses == [200, 200, 429, 200]


STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]


def scope_of(text):
    """A request with a token, as ASGI has it."""
    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {text}".encode())]
    more = {
        "path": "/api/v1/sets",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "state": {"request_id": "r"},
    }
    return {"type": "http", "method": "GET", **more}


def test_tokens_on_the_command_line(tmp_path, lazyrag):
    """Create, list, revoke; the secret is printed once. A folder without a service is an error, and
    stays as it is.
    """
    with pytest.raises(AssertionError):
        lazyrag("token", "list")
    assert not (tmp_path / ".lazyrag").exists()
    [text] = lazyrag(
        "token", "create", "--scope", "write", "--label", "hr", "--expires", "90d", "--name", "ci"
    )
    assert Access(tmp_path / ".lazyrag" / "serve").of_token(text).labels == ("hr",)
    header, row = lazyrag("token", "list")
    token_id = row.split()[0]
    assert "SCOPE" in header
    assert all(one in row for one in ("write", "hr", "ci"))
    assert text.rpartition("_")[2] not in row
    lazyrag("token", "revoke", token_id)
    assert "revoked" in lazyrag("token", "list")[1]
    assert Access(tmp_path / ".lazyrag" / "serve").of_token(text) is None


@pytest.fixture
def lazyrag(tmp_path, capsys):
    """Runs the command for a folder, and returns its lines."""
    from lazyrag.cli.commands import run

    def call(*arguments):
        assert run([*arguments, "--at", str(tmp_path)]) == 0
        return capsys.readouterr().out.splitlines()

    return call
