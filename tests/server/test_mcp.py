"""The tools over MCP: by the SDK's client over HTTP and stdio, in both eras of the protocol;
access; hostile values.

More access cases and hostile values, for minutes:

    LAZYRAG_CASES=1000 python -m pytest -q tests/server/test_mcp.py
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import subprocess
import sys
import threading
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import lazyrag.server
from lazyrag import DataType, DocField, Document
from lazyrag.cli.commands import app as command_line
from lazyrag.cli.commands import run
from lazyrag.errors import StoreError
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.service import Service
from lazyrag.server.jobs import Worker
from lazyrag.server.mcp import serve_stdio
from tests.interpreter import ROOT
from tests.server.running import serving
from tests.server.test_noninterference import CASES, GROUPS, PER_WORLD, WORDS, WORLDS, sides  # noqa: F401  a fixture

ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
"""The modes of the SDK's client, with the version of the protocol that it agrees on."""
NAMES = [
    "search",
    "fetch",
    "outline",
    "glob",
    "collect",
    "sql",
    "read",
    "grep",
    "related",
    "check",
    "list_sets",
]
HEADERS = {"Accept": "application/json, text/event-stream"}
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@asynccontextmanager
async def client_of(app, mode="2026-07-28", root_path="", **headers):
    """The SDK's client of an application, without a socket."""
    transport = httpx2.ASGITransport(app, root_path=root_path, client=("127.0.0.1", 50_000))
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers) as http,
        Client(
            streamable_http_client(f"http://127.0.0.1{root_path}/mcp", http_client=http), mode=mode
        ) as client,
    ):
        yield client


def ask(app, name, mode="2026-07-28", **arguments):
    """The result of a tool; an error's text if it fails."""

    async def call():
        async with client_of(app, mode) as client:
            result = await client.call_tool(name, arguments)
            return result.content[0].text if result.is_error else result.structured_content

    return asyncio.run(call())


def body_of(name, arguments, era):
    """Headers and body of a request that calls a tool."""
    params = {"name": name, "arguments": arguments}
    headers = {**HEADERS, "MCP-Protocol-Version": ERAS[era]}
    if era != "legacy":
        params["_meta"] = _META
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
    return headers, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def use_every_tool(client, version):
    """Call every tool, and hold its result to what it describes and to what the files have."""
    assert client.protocol_version == version
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == NAMES
    assert all(
        tool.annotations.read_only_hint and tool.output_schema and tool.description
        for tool in tools
    )

    async def call(name, **arguments):
        result = await client.call_tool(name, arguments)  # the client holds it to the output schema
        [text] = result.content
        assert not result.is_error, text.text
        assert json.loads(text.text) == result.structured_content
        return result.structured_content

    found = (await call("search", query="How hot is green tea brewed?"))["results"]
    assert {"id", "title", "url", "text"} <= found[0].keys()
    assert "tea.md" in found[0]["title"]
    assert "/tea.md" in found[0]["url"]
    assert "eighty degrees" in found[0]["text"]
    fetched = await call("fetch", id=found[0]["id"])
    assert fetched.keys() == {"id", "title", "text", "url", "metadata"}
    assert (fetched["id"], fetched["url"]) == (found[0]["id"], found[0]["url"])
    assert "Keep tea dry" in fetched["text"]
    sections = (await call("outline", path="tea.md"))["sections"]
    assert [one["label"] for one in sections] == ["Tea", "Tea > Storage"]
    part = await call("read", path="tea.md", start=sections[1]["start"], end=sections[1]["end"])
    assert part["text"].startswith("## Storage")
    assert part["end"] == part["length"]
    [match] = (await call("grep", text="ESPRESSO"))["matches"]
    text = (await call("read", path=match["path"], start=match["span"][0], end=match["span"][1]))[
        "text"
    ]
    assert (match["path"], text) == ("coffee.txt", "espresso")
    [match] = (await call("grep", text=r"eight\w+", regex=True))["matches"]
    assert match["line"] == "Green tea is brewed at eighty degrees."
    assert (await call("glob", pattern="*.md"))["paths"] == ["tea.md"]
    collected = await call("collect", query="brewed degrees OR espresso", limit=1)
    assert (collected["total"], [one["path"] for one in collected["items"]]) == (2, ["coffee.txt"])
    collected = await call("collect", query="brewed degrees OR espresso", after=collected["next"])
    assert ([one["path"] for one in collected["items"]], collected["next"]) == (["tea.md"], None)
    assert (await call("sql"))["tables"] == []
    [row] = (await call("sql", query="SELECT 1 AS n"))["rows"]
    assert row["values"] == {"n": 1}
    related = await call("related", id=found[0]["id"])
    assert found[0]["id"] not in {one["id"] for one in related["results"]}
    answer = "It is brewed at eighty degrees [1]. It is brewed at ninety degrees [1]."
    statements = (await call("check", text=answer, ids=[found[0]["id"]]))["statements"]
    assert [one["verdict"] for one in statements] == ["supported", "contradicted"]
    checked = await call("check", text="It is brewed at eighty degrees [99].", ids=[found[0]["id"]])
    assert "[99]" in checked["problems"][0]
    [one] = (await call("list_sets"))["sets"]
    assert "MediumChunk" in one["groups"]
    assert "file_type" in one["fields"]
    with pytest.raises(MCPError, match="Unknown tool"):
        await client.call_tool("delete", {})


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ERAS)
def test_every_tool_over_http(app, mode):
    """In both eras."""

    async def use():
        async with client_of(app, mode) as client:
            await use_every_tool(client, ERAS[mode])

    asyncio.run(use())


@pytest.mark.slow
def test_a_set_is_searched_in_its_group(service, app, docs):
    """The first of its configuration."""
    docs.activate_group("FineChunk", analysers=["en", "zh"])
    service.groups["notes"] = "FineChunk"

    def found(**more):
        return {
            one["id"].rpartition(":")[2]
            for one in ask(app, "search", query="green tea brewed", **more)["results"]
        }

    uids = {
        group: {node.uid for node in docs.get_nodes(group)}
        for group in ("FineChunk", "MediumChunk")
    }
    assert found() <= uids["FineChunk"]
    assert found(group="MediumChunk") <= uids["MediumChunk"]
    assert found().isdisjoint(uids["MediumChunk"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
def test_every_tool_over_stdio(docs, mode, tmp_path, monkeypatch):
    """``lazyrag mcp PATH`` reads the index that ``lazyrag index`` made."""
    folder = tmp_path / "files"
    assert run(["index", str(folder)]) == 0
    # builds the tables; no file has one
    assert run(["collect", "--per", "row", "--store", str(folder / ".lazyrag")]) == 1
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "lazyrag", "mcp", str(folder)]
    )

    async def use():
        async with Client(command, mode=mode) as client:
            await use_every_tool(client, ERAS[mode])

    asyncio.run(use())


def test_stdio_names_the_command_for_an_index_without_passages(tmp_path):
    """As after a sync in Python: the server reads only, and says so before a client is there."""
    with lazyrag.open(tmp_path) as docs:
        docs.add_texts({"tea": "Green tea."})
    with pytest.raises(StoreError, match=f"Run: lazyrag index {tmp_path}"):
        serve_stdio(tmp_path, None, None, writes=False)


# What tools return


@pytest.mark.slow
def test_search_filters_and_limits(app):
    """By metadata; an unknown field is named."""
    found = ask(
        app, "search", query="tea coffee 茶", filters={"file_name": ["coffee.txt"]}, limit=1
    )["results"]
    assert [one["path"] for one in found] == ["coffee.txt"]
    assert "file_sort" in ask(app, "search", query="tea", filters={"file_sort": 1})


def test_search_returns_the_sentences_that_answer(app, docs):
    """Of a long passage, at their borders and with simple line ends; fetch has all of it."""
    filler = "\r\n".join(f"The shop sells cups of size {number}." for number in range(20))
    text = f"# Cups\r\n\r\n{filler}\r\n\r\nOolong wants 90 degrees.\r\nServe it.\r\n\r\n{filler}"
    docs.add_texts({"cups.md": text})
    found = ask(app, "search", query="How many degrees does oolong want?", group="CoarseChunk")
    [passage] = [one for one in found["results"] if one["path"] == "cups.md"]
    assert "Oolong wants 90 degrees.\nServe it." in passage["text"]
    assert passage["text"].startswith("… The shop sells")
    assert passage["text"].endswith(". …")
    assert "\r" not in passage["text"]
    assert len(passage["text"]) <= 850
    assert ask(app, "fetch", id=passage["id"])["text"] == text


def test_search_says_what_it_inferred(app, docs):
    """By field; nothing where that is switched off."""
    docs.add_texts({"Acme 2018": "Sales of green tea grew.", "Bond 2018": "Green tea sold well."})
    query = "green tea of Acme in FY18"
    found = ask(app, "search", query=query)
    assert found["inferred"] == {"name": ["Acme"], "year": ["2018"]}
    assert found["results"][0]["path"] == "Acme 2018"
    assert ask(app, "search", query=query, infer_filters=False)["inferred"] == {}
    without = ask(app, "search", query=query, infer_filters=["-name: Acme"])
    assert without["inferred"] == {"year": ["2018"]}


def test_results_name_what_supersedes_them(app, docs):
    """The newer document; "" for none."""
    docs.add_texts({"rules-v1": "Quiet hours: 22:00.", "rules-v2": "Quiet hours: 21:00."})
    results = ask(app, "search", query="quiet hours")["results"]
    marks = {passage["path"]: passage["superseded_by"] for passage in results}
    assert (marks["rules-v1"], marks["rules-v2"]) == ("rules-v2", "")


def test_search_as_of_a_day(app, docs):
    """Later documents are left out; what is no day is an error that names it."""
    docs.add_texts({"Lease 2021": "The rent is 900 euros.", "Lease 2024": "The rent is 950 euros."})
    for day, paths in (
        ("2023-12-31", ["Lease 2021"]),
        ("2024-05-01", ["Lease 2024", "Lease 2021"]),
    ):
        found = ask(app, "search", query="rent in euros", as_of=day)["results"]
        assert [passage["path"] for passage in found] == paths
    assert "as_of" in ask(app, "search", query="rent", as_of="2024-5-1")


@pytest.mark.slow
def test_search_of_several_sets_in_turn(service, app, docs):
    """Their scores cannot be compared. Other tools then need the name of a set."""
    with Document() as other:
        other.add_texts(
            {"oolong": "Oolong tea is half fermented.", "pan": "Tea is dried in a pan."}
        )
        other.activate_group("MediumChunk", analysers=["en", "zh"])
        service.sets["others"] = other
        found = ask(app, "search", query="tea")["results"]
        assert [one["set"] for one in found[:3]] == ["notes", "others", "others"]
        assert {one["set"] for one in ask(app, "search", query="tea", set="others")["results"]} == {
            "others"
        }
        assert ask(app, "fetch", id=found[1]["id"])["text"] == found[1]["text"]
        assert ask(app, "read", path="oolong", set="others")["text"].startswith("Oolong")
        assert "Available: notes, others" in ask(app, "read", path="tea.md")
        assert "unknown" in ask(app, "read", path="tea.md", set="unknown")


@pytest.mark.slow
def test_a_long_document_comes_in_parts(tmp_path):
    """`fetch` is centred on its passage, `read` and `outline` go on where they ended."""
    text = "\n\n".join(
        f"# Part {number}\n\nThis is about number{number}, and so on.\n" for number in range(1_200)
    )
    with Document() as docs:
        docs.add_texts({"long.md": text})
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        app = create_app(Service({"notes": docs}, tmp_path))
        [hit, *_] = ask(app, "search", query="number600")["results"]
        fetched = ask(app, "fetch", id=hit["id"])
        where = fetched["metadata"]
        assert (len(fetched["text"]), where["length"]) == (20_000, len(text))
        assert fetched["text"] == text[where["start"] : where["end"]]
        assert abs(fetched["text"].index("number600,") - 10_000) < 2_000
        parts, start = [], 0
        while start < len(text):
            part = ask(app, "read", path="long.md", start=start)
            parts, start = [*parts, part["text"]], part["end"]
        assert "".join(parts) == text
        assert len(parts) > 2
        [match] = ask(app, "grep", text="number1199")["matches"]
        assert text[slice(*match["span"])] == "number1199"


@pytest.mark.slow
def test_a_page_of_the_web_has_its_own_address(service, app, docs):
    """It is what citations show."""
    docs.add_texts(
        {"page": "Matcha is ground."},
        metadata={"page": {"url": "https://tea.example/matcha", "title": "M"}},
    )
    docs.activate_group("MediumChunk", analysers=["en", "zh"])
    [hit, *_] = ask(app, "search", query="matcha")["results"]
    assert (hit["url"], hit["title"]) == ("https://tea.example/matcha", "M (line 1)")
    assert ask(app, "read", path="page")["url"] == "https://tea.example/matcha"


@pytest.mark.slow
def test_errors_are_results_that_a_model_can_read(app):
    """They say what is wrong and what to do."""
    missing = ask(app, "read", path="nope.md")
    assert missing == "There is no document 'nope.md'. List the paths with glob."
    assert "search again" in ask(app, "fetch", id="notes:0123")
    assert "limit must be less than or equal to 50; got 99" in ask(
        app, "search", query="tea", limit=99
    )
    assert "query is missing; topk is no field" in ask(app, "search", topk=3)
    assert (
        "No such group" in (said := ask(app, "search", query="tea", group="Nope"))
        or "'Nope'" in said
    )


@pytest.mark.slow
def test_null_arguments_are_left_out(app):
    """As models send them."""
    assert ask(app, "search", query="tea", set=None, limit=None, filters=None)["results"]


@pytest.mark.slow
def test_a_sub_path_is_in_addresses(app):
    """The addresses of files begin with the path of the proxy."""

    async def use():
        async with client_of(app, root_path="/rag") as client:
            return (await client.call_tool("search", {"query": "tea"})).structured_content[
                "results"
            ]

    assert asyncio.run(use())[0]["url"].startswith("http://127.0.0.1/rag/s/notes/files/tea.md?uid=")


# Access


@pytest.fixture
def labelled(tmp_path):
    """A service of a public and a secret document, and the texts of two tokens: with a label, and
    with none.
    """
    fields = {"labels": DocField(DataType.ARRAY, DataType.VARCHAR)}
    metadata = {"open.txt": {"labels": ["all"]}, "secret.txt": {"labels": ["board"]}}
    with Document(doc_fields=fields) as docs:
        docs.add_texts(
            {"open.txt": "Tea is served at noon.", "secret.txt": "Tea costs a million."},
            metadata=metadata,
        )
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        access = Access(tmp_path)
        service = Service({"notes": docs, "plain": Document()}, tmp_path, access=access)
        yield (
            create_app(service),
            access,
            access.create("read", labels=["all"])[1],
            access.create("read")[1],
        )
        access.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ERAS)
def test_labels_hold(labelled, mode):
    """A hidden document is an unknown one, its passages too; a set without labels is none."""
    app, _, labelled_token, whole = labelled

    async def use():
        async with client_of(app, mode, Authorization=f"Bearer {whole}") as client:
            found = (
                await client.call_tool("search", {"query": "tea", "set": "notes"})
            ).structured_content["results"]
            assert {one["path"] for one in found} == {"open.txt", "secret.txt"}
        hidden = next(one for one in found if one["path"] == "secret.txt")["id"]
        async with client_of(app, mode, Authorization=f"Bearer {labelled_token}") as client:
            found = (await client.call_tool("search", {"query": "tea"})).structured_content[
                "results"
            ]
            assert [one["path"] for one in found] == ["open.txt"]
            assert (await client.call_tool("grep", {"text": "million"})).structured_content == {
                "matches": [],
                "next": None,
                "rest": 0,
            }
            sets = (await client.call_tool("list_sets", {})).structured_content["sets"]
            assert [one["name"] for one in sets] == ["notes"]
            for name, given in {
                "fetch": "id",
                "related": "id",
                "read": "path",
                "outline": "path",
            }.items():
                secret, unknown = (
                    (hidden, "notes:00") if given == "id" else ("secret.txt", "nope.txt")
                )
                said = [
                    (await client.call_tool(name, {given: one})).content[0].text
                    for one in (secret, unknown)
                ]
                assert said[0].replace(secret.removeprefix("notes:"), "X") == said[1].replace(
                    unknown.removeprefix("notes:"), "X"
                )

    asyncio.run(use())


@pytest.mark.slow
def test_the_guards_of_the_service_hold(labelled, client_for):
    """Tokens, hosts, origins, methods and sizes."""
    app, access, _, whole = labelled
    client = client_for(app)
    headers, body = body_of("list_sets", {}, "legacy")
    allowed = {**headers, "Authorization": f"Bearer {whole}"}

    def status(**more):
        return client.post("/mcp", json=body, headers={**allowed, **more}).status_code

    assert client.post("/mcp", json=body, headers=headers).status_code == 401
    assert (status(), status(Authorization="Bearer lrg_x"), status(Host="evil.example")) == (
        200,
        401,
        421,
    )
    assert status(Origin="https://evil.example") == 403
    assert client.get("/mcp", headers=allowed).status_code == 405
    assert client.post("/mcp", content=b"x" * 1_000_001, headers=allowed).status_code == 413
    assert (
        client.post(
            "/mcp", content=iter([b"x"] * 2 + [b"x" * 1_000_000]), headers=allowed
        ).status_code
        == 413
    )
    rows = len(access.audit(access.of_token(whole)))
    assert status() == 200
    assert len(access.audit(access.of_token(whole))) == rows
    access.revoke(access.of_token(whole).id)
    assert status() == 401


@pytest.mark.slow
def test_writing_needs_its_address_and_a_scope(docs, service, access):
    """``/mcp/write`` has one more tool; what it adds is in the audit log, and has the labels of the
    token.
    """
    app, tokens = (
        create_app(service),
        {scope: access.create(scope)[1] for scope in ("read", "write")},
    )

    async def add(url, scope):
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50_000))
        headers = {"Authorization": f"Bearer {tokens[scope]}"}
        async with (
            httpx2.AsyncClient(transport=transport, headers=headers) as http,
            Client(streamable_http_client(f"http://127.0.0.1{url}", http_client=http)) as client,
        ):
            with suppress(MCPError):
                return await client.call_tool(
                    "add_text", {"path": "oolong.md", "text": "Oolong is half fermented."}
                )

    assert asyncio.run(add("/mcp", "write")) is None
    assert "scope" in asyncio.run(add("/mcp/write", "read")).content[0].text
    stop = threading.Event()
    worker = threading.Thread(target=Worker(docs).run, args=[stop])
    worker.start()
    try:
        added = asyncio.run(add("/mcp/write", "write")).structured_content
    finally:
        stop.set()
        worker.join()
    assert added == {"set": "notes", "path": "oolong.md", "state": "SUCCESS"}
    assert docs.read("oolong.md") == "Oolong is half fermented."
    rows = [
        (one.action, one.status, one.dataset, one.documents) for one in access.audit(Principal())
    ]
    assert ("POST /mcp/write", None, "", ()) in rows
    assert ("POST /mcp/write", 200, "notes", ("oolong.md",)) in rows


@pytest.fixture
def client_for():
    """Makes a client that sends its arguments unchecked."""
    from fastapi.testclient import TestClient

    return lambda app: TestClient(app, raise_server_exceptions=False, base_url="http://127.0.0.1")


def draw_call(draw, ids, uids):
    """A tool and arguments for it, mostly valid ones."""
    words = " ".join(draw.choices(WORDS, k=draw.randint(1, 3)))
    name = draw.choice([*NAMES, "search", "grep"])
    uid, path = f"{draw.choice(['notes', 'others'])}:{draw.choice(uids)}", draw.choice(ids)
    where = draw.choice([None, {"year": [2001, 2002]}, {"labels": ["board"]}, {"unknown": 1}])
    group = draw.choice(["MediumChunk", *GROUPS])
    of_set = draw.choice(["", "notes", "notes", "others", "unknown"])
    place = {"path": path, "set": draw.choice(["notes", of_set]), "start": draw.choice([0, 0, 5])}
    given = {
        "search": {
            "query": words,
            "set": of_set,
            "limit": draw.randint(1, 9),
            "filters": where,
            "group": group,
        },
        "grep": {
            "text": words.split()[0],
            "set": of_set,
            "filters": where,
            "limit": draw.randint(1, 9),
        },
        "glob": {"pattern": draw.choice(["*", "*.md", path]), "set": of_set},
        "collect": {
            "query": words,
            "set": of_set,
            "filters": where,
            "limit": draw.randint(1, 3),
            "group": group,
            "per": draw.choice(["document", "node", "row"]),
        },
        "sql": {"set": of_set},
        **{key: {"id": uid} for key in ("fetch", "related")},
        **dict.fromkeys(("read", "outline"), place),
        "check": {"text": f"{words} [1].", "ids": [uid]},
        "list_sets": {},
    }
    return name, given[name]


@pytest.mark.slow
@pytest.mark.parametrize("sides", range(WORLDS), indirect=True)
def test_it_equals_a_service_of_what_may_be_seen(sides):  # noqa: F811
    """Bodies, statuses and headers do not depend on hidden documents; see
    test_noninterference.py.
    """
    draw, world, both, current = sides
    uids = sorted(
        {
            node.uid
            for docs in (world.every, world.alone)
            for group in GROUPS
            for node in docs.get_nodes(group)
        }
    )
    for _ in range(PER_WORLD):
        current.append(replace(both[0], numbers=itertools.count(draw.getrandbits(80))))
        name, arguments = draw_call(draw, [*world.ids, "unknown.md", "../x"], [*uids, "unknown"])
        headers, body = body_of(name, arguments, draw.choice(list(ERAS)))
        found = []
        for side in both:
            current.append(side)
            found.append(side.ask("POST", "/mcp", json=body, headers=headers))
        assert found[0] == found[1], (name, arguments)
        assert found[0][0] == 200, found[0]


# Hostile values


PRICES = "| tea | EUR |\n|---|---|\n" + "\n".join(f"| tea{at} | {at} |" for at in range(300))


def test_pages_and_budgets_of_agents_tools(app, docs):
    """Every result is on one page, the rest is counted, and no page is over its budget."""
    docs.add_texts({"prices.md": PRICES})
    query = "SELECT tea FROM prices WHERE eur > 99 ORDER BY eur"
    for name, key, arguments in (
        ("grep", "matches", {"text": r"^\| tea\d+ ", "regex": True, "limit": 50}),
        ("sql", "rows", {"query": query, "max_tokens": 500}),
        ("sql", "tables", {}),
        ("outline", "sections", {"path": "tea.md", "max_tokens": 100}),
        ("glob", "paths", {"pattern": "*"}),
    ):
        shown, start = [], 0
        while start is not None:
            page = ask(app, name, start=start, **arguments)
            assert len(json.dumps(page[key])) < 4 * arguments.get("max_tokens", 8_000)
            shown += page[key]
            start = page["next"]
            total = len(shown) + page["rest"]
        assert len({json.dumps(one) for one in shown}) == len(shown) == total
        assert (
            len(shown) == {"matches": 300, "rows": 200, "tables": 1, "sections": 2, "paths": 4}[key]
        )
    rows = ask(app, "collect", query="tea7 OR tea8", per="row")
    assert [one["snippet"] for one in rows["items"]] == ["tea: tea7; eur: 7", "tea: tea8; eur: 8"]
    page = ask(app, "collect", query="", per="row", limit=50, max_tokens=500)
    following = ask(app, "collect", query="", per="row", limit=1, after=page["next"])
    assert (page["total"], len(page["items"])) == (300, int(page["items"][-1]["snippet"][-2:]) + 1)
    assert (
        following["items"][0]["snippet"]
        == f"tea: tea{len(page['items'])}; eur: {len(page['items'])}"
    )
    assert "Raise max_tokens" in ask(app, "sql", query="SELECT repeat('x', 9999)", max_tokens=100)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("grep", {"text": "(?=x)", "regex": True}, "RE2"),
        ("grep", {"text": "((a{1000}){1000}){1000}", "regex": True}, "RE2"),
        ("grep", {"text": "(" * 900, "regex": True}, "RE2"),
        ("grep", {"text": "x", "max_tokens": 10**9}, "max_tokens"),
        ("glob", {"pattern": ""}, "pattern"),
        ("collect", {"query": "the"}, "query"),
        ("collect", {"query": "tea", "limit": 10**9}, "limit"),
        ("collect", {"query": "tea", "after": "[[[["}, "after"),
        ("collect", {"query": "tea", "per": "page"}, "per"),
        ("sql", {"query": "CREATE TABLE x (a INT)"}, "one SELECT statement"),
        ("sql", {"query": "SELECT 1; SELECT 2"}, "one SELECT statement"),
        ("sql", {"query": "COPY (SELECT 1) TO '/tmp/x'"}, "one SELECT statement"),
        ("sql", {"query": "SELECT * FROM '/etc/passwd'"}, "fails"),
        ("sql", {"query": "SELECT * FROM read_text('/etc/passwd')"}, "fails"),
    ],
)
def test_hostile_calls_of_agents_tools(app, name, arguments, reason):
    """Errors that a model can read."""
    assert reason in ask(app, name, **arguments)


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "[", "a*" * 400, "\0", "**/../**"])
def test_patterns_leave_no_folder(app, pattern):
    """They are compared with the paths of documents, in linear time."""
    assert ask(app, "glob", pattern=pattern)["paths"] == []


@pytest.mark.parametrize(("text", "spans"), [(r"(a+)+$", []), (r"(a|aa)*c", []), (r"(.*)*!", 1)])
def test_regular_expressions_take_linear_time(app, docs, text, spans):
    """Where backtracking would not end."""
    docs.add_texts({"a.txt": f"{'a' * 50_000}!"})
    only = {"file_name": "a.txt"}
    matches = ask(app, "grep", text=text, regex=True, filters=only)["matches"]
    assert [match["span"] for match in matches] == ([[0, 50_001]] if spans else [])


def hostile(draw, depth=0):
    """Some JSON."""
    kinds = [
        "",
        "\ud800",
        "x" * 5_000,
        "notes:",
        "../../etc/passwd",
        "\0",
        0,
        -1,
        2**70,
        1e400,
        None,
        True,
        float("nan"),
    ]
    if depth > 3 or draw.random() < 0.5:
        return draw.choice(kinds)
    if draw.random() < 0.5:
        return [hostile(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    keys = [
        "query",
        "id",
        "path",
        "set",
        "and",
        "or",
        "not",
        "field",
        "op",
        "value",
        "filters",
        "text",
        "\ud800",
    ]
    return {draw.choice(keys): hostile(draw, depth + 1) for _ in range(draw.randint(0, 4))}


def hostile_request(draw):
    """Headers and a body that are wrong somewhere."""
    name = draw.choice([*NAMES, "\ud800", ""])
    arguments = {
        key: hostile(draw)
        for key in draw.choices(["query", "id", "path", "set", "text", "filters"], k=3)
    }
    if draw.random() < 0.3:
        arguments["filters"] = json.loads('{"not":' * 900 + "{}" + "}" * 900)
    headers, body = body_of(name, draw.choice([arguments, hostile(draw)]), draw.choice(list(ERAS)))
    headers["Mcp-Name"] = name.encode("utf-8", "replace").decode()
    if draw.random() < 0.3:
        body[draw.choice(list(body))] = hostile(draw)
    if draw.random() < 0.2:
        headers[draw.choice(list(headers))] = draw.choice(["", "x", "2024-11-05", "1999-01-01"])
    content = json.dumps(body).encode()
    return headers, content[: draw.randint(1, len(content))] if draw.random() < 0.1 else content


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(WORLDS))
def test_hostile_values_never_fail_the_service(client, seed):
    """Every answer is one of the protocol, or a problem; none is a failure of the service."""
    draw = random.Random(seed)
    for _ in range(PER_WORLD):
        headers, content = hostile_request(draw)
        answer = client.post(
            "/mcp", content=content, headers={"Content-Type": "application/json", **headers}
        )
        assert answer.status_code < 500, (headers, content[:500], answer.text)
        assert "unexpected error" not in answer.text


@pytest.mark.slow
def test_stdio_survives_hostile_lines_and_writes_only_messages(tmp_path):
    """What modules print goes to the standard error output."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tea.txt").write_text("Tea.")
    assert run(["index", str(tmp_path / "notes")]) == 0
    (tmp_path / "noisy.py").write_text(
        "print('imported')\ndef define(docs):\n    print('defined')\n"
    )
    config = tmp_path / "serve.toml"
    config.write_text('[sets.notes]\npath = "notes"\nsetup = "noisy:define"\n')
    draw = random.Random(1)
    lines = [
        content.replace(b"\n", b" ") for _, content in (hostile_request(draw) for _ in range(40))
    ]
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    first = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": hello}
    last = {
        "jsonrpc": "2.0",
        "id": "last",
        "method": "tools/call",
        "params": {"name": "grep", "arguments": {"text": "Tea"}},
    }
    started = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    given = [
        json.dumps(first).encode(),
        started,
        b"\xff\xfe",
        b"{",
        *lines,
        json.dumps(last).encode(),
    ]
    command = [sys.executable, "-m", "lazyrag", "mcp", str(config)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(b"\n".join(given) + b"\n")
        process.stdin.flush()
        answers = {}
        while "last" not in answers and (line := process.stdout.readline()):
            answer = json.loads(line)
            assert answer["jsonrpc"] == "2.0"
            answers[str(answer.get("id"))] = answer
        rest, errors = process.communicate(timeout=30)
    assert answers["last"]["result"]["structuredContent"]["matches"][0]["path"] == "tea.txt"
    assert (process.returncode, rest) == (0, b"")
    assert b"imported" in errors
    assert b"defined" in errors


# Processes


@pytest.mark.share(3)
@pytest.mark.slow
def test_the_command_passes_calls_on_to_a_service(tmp_path):
    """``--url`` with a token; every web process gives the same answers. It survives a revocation
    and the service.
    """
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea\n\nGreen tea.", encoding="utf-8")
    access = Access(folder / ".lazyrag" / "serve")
    token, text = access.create("write")

    async def use(running, stack):
        arguments = ["-m", "lazyrag", "mcp", "--url", running.url, "--token", text, "--write"]
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:

            async def call():
                return (await client.call_tool("search", {"query": "tea"})).content[0].text

            found = {await call() for _ in range(8)}
            added = await client.call_tool("add_text", {"path": "oolong", "text": "Oolong."})
            assert added.structured_content["state"] == "SUCCESS"
            access.revoke(token.id)
            refused = await call()
            stack.close()
            return found, refused, await call()

    with ExitStack() as stack:
        running = stack.enter_context(serving(folder, "--port", "0", "--processes", "3"))
        [found], refused, gone = asyncio.run(use(running, stack))
    assert json.loads(found)["results"][0]["path"] == "tea.md"
    assert "token" in refused
    assert "lazyrag serve" in gone
    access.close()


@pytest.mark.slow
def test_a_missing_extra_is_named(client, monkeypatch, capsys):
    """By the route and by the command."""
    monkeypatch.setattr(
        lazyrag.server, "find_spec", lambda name: None if name == "mcp" else find_spec(name)
    )
    answer = client.post("/mcp", json={})
    assert (answer.status_code, ".[mcp]" in answer.text) == (501, True)
    assert run(["mcp"]) == 1
    assert ".[mcp]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_is_read_in_the_group_of_its_index(tmp_path):
    """Of ``lazyrag index --group``; only a service writes."""
    (tmp_path / "tea.txt").write_text("Tea.")
    assert run(["index", str(tmp_path), "--group", "FineChunk"]) == 0
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "lazyrag", "mcp", str(tmp_path)]
    )

    async def use():
        async with Client(command) as client:
            return (await client.call_tool("search", {"query": "tea"})).structured_content[
                "results"
            ]

    assert [one["path"] for one in asyncio.run(use())] == ["tea.txt"]
    assert run(["mcp", str(tmp_path), "--write"]) == 1


def test_no_index_is_named(tmp_path, capsys):
    """With what to do; nothing is written to the standard output."""
    assert run(["mcp", str(tmp_path)]) == 1
    output, error = capsys.readouterr()
    assert (output, "lazyrag index" in error) == ("", True)


# The page


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/mcp.md", "docs/zh/mcp.md"])
def test_the_page_lists_the_tools_and_shows_commands_that_work(page, app):
    """The arguments of each tool, and the configurations of clients."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = {
        name: re.findall(r"`(\w+)`", arguments)
        for name, arguments in re.findall(r"\| `(\w+)` \| (.*?) ?\|", text)
    }
    assert rows.keys() == {*NAMES, "add_text"}

    async def described():
        async with client_of(app) as client:
            return (await client.list_tools()).tools

    for tool in asyncio.run(described()):
        assert sorted(tool.input_schema.get("properties", {})) == sorted(rows[tool.name])
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    servers = [
        one
        for block in blocks
        for one in (block.get("servers") or block.get("mcpServers") or {}).values()
    ]
    started = [one["args"] for one in servers if "command" in one]
    commands = [
        command.split() for command in re.findall(r" -- lazyrag (mcp .*)$", text, re.MULTILINE)
    ]
    assert (len(started), len(commands)) == (3, 2)
    for name, *arguments in [*started, *commands]:
        assert name == "mcp"
        # raises for what it does not know
        command_line.commands["mcp"].make_context("mcp", arguments)
