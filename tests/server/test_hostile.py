"""Hostile pages, clients and names are refused, on every route that exists."""

from __future__ import annotations

import itertools
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import quote

import pytest
import uvicorn
from starlette.responses import HTMLResponse, PlainTextResponse

from lazyrag import Document
from lazyrag.server.core import middleware
from lazyrag.server.core.middleware import TimedProtocol
from tests.shared import is_required

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
JSON = {"Content-Type": "application/json"}
CROSS = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
HEAD = "Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
pytestmark = pytest.mark.usefixtures("access")


@pytest.fixture
def docs():
    """A Document without documents: what is tested does not look at them."""
    with Document() as docs:
        yield docs


@pytest.fixture
def touched(app):
    """The requests that reached a route that changes something; GET /own is a page of the service
    itself.
    """
    found = []

    @app.api_route("/touch/{how}", methods=["POST", "PUT", "PATCH", "DELETE", "GET"])
    async def touch(how: str):
        found.append(how)
        return PlainTextResponse(how)

    @app.get("/own")
    async def own():
        script = f"<title>x</title><script>{_script('')}</script>"
        return HTMLResponse(
            script, headers={"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"}
        )

    return found


@pytest.fixture
def bare(app, client):
    """A client without the headers of browsers."""
    del client.headers["Sec-Fetch-Site"]
    return client


@contextmanager
def running(app):
    """The application in a server, on a free port."""
    config = uvicorn.Config(app, port=0, http=TimedProtocol, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8400",
        "127.0.0.1@evil.example",
        "",
        "[::2]",
        "10.0.0.1",
    ],
)
def test_other_hosts(client, host, touched):
    """A name that resolves to this machine does not open the service (DNS rebinding)."""
    answer = client.post("/touch/x", json={}, headers={"Host": host})
    assert (answer.status_code, touched) == (421, [])
    assert "allowed_hosts" in answer.json()["remedy"]


@pytest.mark.slow
def test_own_hosts(client, service, touched):
    """Names of this machine, and those of the configuration, with any port."""
    service.access.hosts |= {"rag.example"}
    for host in ("127.0.0.1", "localhost:8400", "LOCALHOST", "[::1]:1", "rag.example"):
        assert client.post("/touch/x", json={}, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {**CROSS, **FORM},
        {**CROSS, **JSON},
        {**CROSS, "Authorization": "Bearer x"},
        {**CROSS, "Idempotency-Key": "x"},
        {**JSON, "Origin": "https://evil.example"},
        {**JSON, "Origin": "null"},
        {**JSON, "Origin": "http://127.0.0.1:9999"},
        {**JSON, "Origin": "http://127.0.0.1@evil.example"},
        {**JSON, "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none", "Content-Type": "text/plain"},
        {"Content-Type": "text/plain; application/json"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        FORM,
        {},
    ],
)
def test_pages_of_other_sites_change_nothing(bare, touched, headers):
    """Requests that such a page can send are refused, from new and old browsers."""
    answer = bare.post("/touch/x", content="{}", headers=headers)
    assert (answer.status_code, touched) == (403, [])
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_other_methods_of_other_sites(bare, touched, method):
    """They need a preflight, which no route answers; a request that comes without one is refused
    too.
    """
    assert bare.request(method, "/touch/x", headers=CROSS).status_code == 403
    preflight = {**CROSS, "Access-Control-Request-Method": method}
    answer = bare.options("/touch/x", headers=preflight)
    assert answer.status_code == 403
    assert not [one for one in answer.headers if one.startswith("access-control")]
    assert touched == []


@pytest.mark.slow
def test_other_sites_embed_nothing(bare, touched):
    """Neither images nor scripts; a link from another site works."""
    assert (
        bare.get(
            "/touch/x", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        ).status_code
        == 403
    )
    assert touched == []
    assert (
        bare.get(
            "/touch/x", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        ).status_code
        == 200
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {**FORM, "Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1"},
        {**FORM, "Origin": "http://127.0.0.1"},
        {**JSON, "Sec-Fetch-Site": "none"},
        {"Content-Type": "application/json; charset=utf-8"},
        {"Idempotency-Key": "1"},
    ],
)
def test_the_own_page_and_programs(bare, touched, headers):
    """They are admitted."""
    assert bare.post("/touch/x", content="{}", headers=headers).status_code == 200
    assert touched == ["x"]


def _script(base):
    return f"""
    const go = (name, more) => fetch("{base}/touch/" + name, {{method: "POST", credentials: "include", ...more}})
        .catch(() => 0);
    const multipart = new FormData(); multipart.append("file", new Blob(["x"]), "x.txt");
    const frame = document.createElement("iframe"); frame.name = "f"; document.documentElement.append(frame);
    for (const kind of ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]) {{
        const form = document.createElement("form");
        Object.assign(form, {{action: "{base}/touch/form", method: "post", target: "f", enctype: kind}});
        document.documentElement.append(form); form.submit();
    }}
    Promise.all([
        go("empty", {{mode: "no-cors"}}),
        go("text", {{mode: "no-cors", body: "{{}}"}}),
        go("multipart", {{mode: "no-cors", body: multipart}}),
        go("json", {{headers: {{"Content-Type": "application/json"}}, body: "{{}}"}}),
        go("put", {{method: "PUT"}}),
        fetch("{base}/touch/beacon", {{method: "POST", keepalive: true, mode: "no-cors"}}).catch(() => 0),
        new Promise(done => setTimeout(done, 500)),
    ]).then(() => document.title = "done");
    """


def _visit(url, profile):
    command = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={profile}",
    ]
    command += [
        "--no-first-run",
        "--disable-background-networking",
        "--timeout=20000",
        "--virtual-time-budget=3000",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", url], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None and not is_required(), reason="needs Chromium, which CI installs"
)
def test_a_hostile_page_in_a_browser(app, service, touched, tmp_path):
    """What Chromium sends for a page of another site is refused, and what the own page sends is
    admitted.
    """
    from fastapi import FastAPI

    evil = FastAPI()
    with running(app) as port, running(evil) as other:

        @evil.get("/")
        async def page():
            return HTMLResponse(f"<script>{_script(f'http://127.0.0.1:{port}')}</script>")

        assert "done" in _visit(f"http://localhost:{other}/", tmp_path / "profile")
        assert touched == []
        denied = [one for one in service.access.audit(middleware.Principal()) if one.status == 403]
        assert {"POST /touch/form", "POST /touch/multipart", "POST /touch/text"} <= {
            one.action for one in denied
        }
        assert "done" in _visit(f"http://127.0.0.1:{port}/own", tmp_path / "profile")
        assert {"form", "multipart", "text", "json", "put", "empty"} <= set(touched)


def test_headers_of_every_response(client, service):
    """Nothing is sniffed, framed, cached for others, or sent to other sites."""
    service.access.create()
    for path in ("/healthz", "/api/v1/session", "/nowhere", "/openapi.json"):
        headers = client.get(path, headers={"Origin": "http://127.0.0.1"}).headers
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == (
            "nosniff",
            "no-referrer",
        )
        assert headers["cache-control"] == "private, no-cache"
        assert not [one for one in headers if one.startswith("access-control")]


@pytest.mark.slow
def test_names_in_headers(app, client):
    """A line break in a name begins no header."""

    @app.get("/named")
    async def named(name: str):
        return PlainTextResponse("", headers={"X-Name": name})

    headers = client.get("/named", params={"name": "a\r\nSet-Cookie: x=1\0"}).headers
    assert headers["x-name"] == "aSet-Cookie: x=1"
    assert "set-cookie" not in headers


@pytest.mark.slow
def test_oversized_requests(client, touched):
    """With and without a stated length; uploads have their own limits."""
    large = b"x" * (middleware.MAX_BODY + 1)
    assert client.post("/api/v1/tokens", content=large, headers=JSON).status_code == 413
    assert client.post("/api/v1/tokens", content=iter([large]), headers=JSON).status_code == 413
    assert client.get("/touch/x", headers={"X-Large": "x" * 20_000}).status_code == 431
    assert client.get("/touch/x" + "?" + "x" * 20_000).status_code in (414, 422)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /heal", b"HTTP/1.1 200"),
        (
            f"POST /api/v1/session HTTP/1.1\r\n{HEAD}Content-Length: 100\r\n\r\n{{".encode(),
            b"HTTP/1.1 408",
        ),
    ],
)
def test_slow_clients(app, monkeypatch, sent, status):
    """Who does not finish a request (slow-loris) is disconnected, though bytes trickle in."""
    monkeypatch.setattr(middleware, "READ_S", 0.5)
    with running(app) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(60)
        began = time.monotonic()
        client.sendall(sent)
        for _ in range(3):
            time.sleep(0.1)
            client.sendall(b"x" if sent else b"")
        found = b"".join(iter(lambda: client.recv(65_536), b""))
        assert found.startswith(status)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "sent",
    ["GET / HTTP/1.1\r\nX: ", f"POST / HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n1;"],
)
def test_endless_requests(app, sent):
    """Neither a header nor the extension of a chunk goes on for ever."""
    with running(app) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(20)
        with suppress(ConnectionError):
            client.sendall(sent.encode() + 400_000 * b"x")
            while client.recv(65_536):
                pass


def test_no_websockets(app, service):
    """There are none, and none goes past the guards."""
    from fastapi.testclient import TestClient
    from starlette.websockets import WebSocketDisconnect

    @app.websocket("/ws")
    async def socket_route(ws):
        await ws.accept()

    with pytest.raises(WebSocketDisconnect), TestClient(app).websocket_connect("/ws"):
        pass


# All routes


def routes(app):
    """Method and path of every operation, with values for the parameters."""
    for path, operations in app.openapi()["paths"].items():
        for method in operations:
            yield method.upper(), path


@pytest.mark.share(3)
@pytest.mark.slow
def test_no_route_answers_without_a_token(app, client, service):
    """But health and login; a forged token, a session cookie and a revoked one do not help."""
    token, text = service.access.create("admin")
    service.access.revoke(token.id)
    service.access.denials.burst = service.access.denials.rate = 10_000.0
    client.cookies.set("lazyrag_session", "0" * 64)
    for method, path in [*routes(app), ("GET", "/openapi.json"), ("GET", "/nowhere")]:
        if path in ("/healthz", "/readyz") or (method, path) == ("POST", "/api/v1/session"):
            continue
        filled = re.sub(r"{\w+(:path)?}", "notes", path)
        for headers in ({}, {"Authorization": f"Bearer {text}"}, {"Authorization": "Basic eDp4"}):
            for tried in (filled, filled + "/", "/" + filled, filled.upper()):
                answer = client.request(method, tried, headers=headers)
                assert answer.status_code == 401 or (answer.status_code, path) == (
                    403,
                    "/dify/retrieval",
                ), (
                    method,
                    tried,
                )
                assert answer.headers["content-type"] in (
                    "application/problem+json",
                    "application/json",
                )


@pytest.mark.slow
def test_every_route_restricts_labelled_principals(app, client, access):
    """Routes of a set ask for the view of the principal: where the set cannot be restricted, none
    answers.
    """
    headers = {"Authorization": f"Bearer {access.create('admin', labels=['hr'])[1]}"}
    openapi = app.openapi()
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items() if "/sets/{" in path else ():
            more = {}
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query" and parameter.get("required"):
                    more.setdefault("params", {})[parameter["name"]] = example(
                        parameter["schema"], openapi
                    )
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                more["json"] = example(content["application/json"]["schema"], openapi)
            elif "multipart/form-data" in content:
                more["files"] = {"file": ("a.txt", b"tea")}
            url = re.sub(r"{(set|name)}", "notes", path, count=1)
            url = re.sub(r"{number}", "1", url)
            answer = client.request(
                method, re.sub(r"{\w+(:path)?}", "x", url), headers=headers, **more
            )
            assert (answer.status_code, "labels" in answer.text) == (403, True), (
                method,
                path,
                answer.text,
            )


def example(schema, openapi):
    """The smallest value of a JSON schema."""
    if "$ref" in schema:
        return example(openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]], openapi)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], openapi)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        own = schema.get("properties", {})
        found = {name: example(own[name], openapi) for name in schema.get("required", [])}
        more = schema.get("additionalProperties")
        return (
            {**found, "a.txt": example(more, openapi)}
            if isinstance(more, dict) and not found
            else found
        )
    if kind == "array":
        return [example(schema["items"], openapi)] * max(1, schema.get("minItems", 1))
    return {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": True}.get(
        kind, "a" * schema.get("minLength", 1)
    )


NAMES = ["../../etc/passwd", "..\\..\\x", "a\0b", "\r\nSet-Cookie: x=1", "x" * 3000]


def with_text(value, text):
    """A value with another text in the place of every text."""
    if isinstance(value, dict):
        return {
            with_text(key, text) if "." in key else key: with_text(one, text)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [with_text(one, text) for one in value]
    return text if isinstance(value, str) else value


@pytest.mark.slow
def test_hostile_names(app, client, tmp_path):
    """As ids, names and paths of every route they find nothing, write nothing outside, and break
    nothing.
    """
    openapi = app.openapi()
    before = {one for one in tmp_path.rglob("*") if tmp_path / "state" not in one.parents}
    for path, operations in openapi["paths"].items():
        for (method, operation), name in itertools.product(operations.items(), NAMES):
            more = {"params": {}}
            for one in operation.get("parameters", []):
                if one["in"] == "query" and one["schema"].get("type", "string") == "string":
                    more["params"][one["name"]] = name
            schema = (
                operation.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("schema")
            )
            if schema is not None:
                more["json"] = with_text(example(schema, openapi), name)
            url = re.sub(r"{(set|name)}", "notes", path, count=1)
            answer = client.request(
                method, re.sub(r"{\w+(:path)?}", quote(name, safe=""), url), **more
            )
            assert answer.status_code < 500, (method, path, name, answer.text)
            assert "root:" not in answer.text
            assert "x=1" not in answer.headers.get("set-cookie", "")
    assert {one for one in tmp_path.rglob("*") if tmp_path / "state" not in one.parents} == before
