"""What a labelled principal gets over HTTP equals what a service gives it that holds only its
documents.

All routes that exist are asked, with ids of visible, hidden, deleted and unknown documents and
nodes: bodies, statuses and headers are equal to the last byte. More cases, for minutes:

    LAZYRAG_CASES=1000 python -m pytest -q tests/server/test_noninterference.py
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import secrets
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lazyrag import DataType, DocField, Document
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.service import Service

CASES = int(os.environ.get("LAZYRAG_CASES", "60"))
PER_WORLD = 60
WORLDS = -(-CASES // PER_WORLD)

WORDS = "green black tea spring leaf water 绿茶 春天 the oolong pan pans steam and 茶".split()
LABELS = ("guest", "staff", "board")
FIELDS = {"labels": DocField(DataType.ARRAY, DataType.VARCHAR), "year": DocField(DataType.INT32)}
GROUPS = ("lazyllm_root", "MediumChunk", "FineChunk")
IGNORED = ("date", "x-request-id")
SEARCHES = ("search", "search", "search", "why-not", "grep", "answers")
WRITES = (
    "feedback",
    "golden",
    "evaluations",
    "delete",
    "metadata",
    "rollback",
    "texts",
    "uploads",
    "sync",
    "verify",
)

_ODD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # spreads numbers over all bits


def dense(text: str) -> list[float]:
    """A vector for a text."""
    return [text.count(one) + 0.1 for one in "aegt茶"]


def some_text(draw: random.Random) -> str:
    """Some sentences under headings."""
    parts = [
        " ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(draw.randint(1, 5))
    ]
    return "\n\n".join(
        f"# {part.split()[0]}\n\n{part}." if draw.random() < 0.3 else f"{part}." for part in parts
    )


@dataclass
class World:
    """A set with a history, the principal's labels, and the ids that were ever in it."""

    labels: list[str]
    ids: list[str]
    every: Document
    alone: Document

    @classmethod
    def drawn(cls, draw: random.Random) -> World:
        """Draw a world: the second Document has only the steps of what is visible at the end."""
        ids = [f"{number:02}.{draw.choice(['md', 'txt'])}" for number in range(1, 9)]
        steps: list[tuple[str, str, Any]] = []
        present: set[str] = set()
        for _ in range(draw.randint(8, 20)):
            name, labels = draw.choice(ids), draw.sample(LABELS, draw.randint(0, 2))
            kind = (
                draw.choice(["add", "add", "add", "label", "delete"]) if name in present else "add"
            )
            metadata = {"labels": labels} | (
                {"year": draw.randint(2000, 2003)} if kind == "add" else {}
            )
            steps.append((kind, name, (some_text(draw), metadata)))
            present = present - {name} if kind == "delete" else present | {name}
        labels = sorted(draw.sample(LABELS, draw.randint(1, 2)))
        every = _played(steps)
        visible = {
            one.path
            for one in every.get_nodes(GROUPS[0])
            if set(one.metadata["labels"]) & set(labels)
        }
        # of its present life
        begun = {name: at for at, (kind, name, _) in enumerate(steps) if kind == "delete"}
        alone = [
            one for at, one in enumerate(steps) if one[1] in visible and at > begun.get(one[1], -1)
        ]
        return cls(labels, ids, every, _played(alone))


def _played(steps: list[tuple[str, str, Any]]) -> Document:
    docs = Document(embed=dense, doc_fields=FIELDS, name="notes")
    for kind, name, given in steps:
        if kind == "add":
            docs.add_texts({name: given[0]}, metadata={name: given[1]})
        elif kind == "label":
            docs.update_metadata({name: given[1]})
        else:
            docs.delete_files([name])
    for group in GROUPS:
        docs.activate_group(group, analysers=["zh", "en"], embed_keys=docs.reader.embed_keys)
    return docs


@dataclass
class Side:
    """A service with a client that is restricted to labels, and one that is not."""

    client: TestClient
    headers: dict[str, str]
    others: dict[str, str]
    service: Service
    numbers: Any = field(default_factory=lambda: itertools.count(1 << 64))

    def ask(self, method: str, url: str, **more: Any) -> Any:
        """The response, without what is random."""
        answer = self.client.request(
            method, url, headers={**self.headers, **more.pop("headers", {})}, **more
        )
        headers = {name: value for name, value in answer.headers.items() if name not in IGNORED}
        body = answer.text.replace(answer.headers["x-request-id"], "REQUEST")
        body = re.sub(r'"seconds": ?[0-9.e-]+', '"seconds":0', body)
        body = re.sub(r'"state": ?"[0-9a-f]{32}"', '"state":""', body)  # another one each time
        headers["content-length"] = str(len(body))
        return answer.status_code, body, headers


@pytest.fixture
def sides(request, tmp_path, monkeypatch):
    """A world, its service and the service of what is visible, in the same second and with the same
    random numbers.
    """
    current: list[Side] = []
    began, ticks = time.time(), itertools.count()

    def second() -> float:  # three requests each
        return began + (len(current) - 1) // 3

    def now_ns() -> int:  # within a second different times, for the ids of records
        return int(second() * 1e9) + next(current[-1].numbers if current else ticks) % 1000

    monkeypatch.setattr(time, "time", second)
    monkeypatch.setattr(time, "time_ns", now_ns)
    draw = random.Random(request.param)
    world = World.drawn(draw)

    def make(name: str, docs: Document) -> Side:
        numbers = random.Random(1)  # equal ids of tokens
        monkeypatch.setattr(
            secrets, "token_hex", lambda size: f"{numbers.getrandbits(8 * size):0{2 * size}x}"
        )
        access = Access(tmp_path / name)
        service = Service({"notes": docs, "others": docs}, tmp_path / name, access=access)
        text = access.create("admin", labels=world.labels)[1]
        client = TestClient(
            create_app(service), raise_server_exceptions=False, base_url="http://127.0.0.1"
        )
        headers = [{"Authorization": f"Bearer {one}"} for one in (text, access.create("admin")[1])]
        return Side(client.__enter__(), *headers, service)

    both = [make("every", world.every), make("alone", world.alone)]
    monkeypatch.setattr(
        secrets, "token_hex", lambda size: f"{next(current[-1].numbers):0{2 * size}x}"
    )
    monkeypatch.setattr(
        uuid, "uuid4", lambda: uuid.UUID(int=next(current[-1].numbers) * _ODD % 2**128)
    )
    yield draw, world, both, current
    for side in both:
        side.client.__exit__(None, None, None)
        side.service.access.close()


class Requests:
    """Draws requests to all operations of an OpenAPI document."""

    def __init__(self, draw: random.Random, openapi: Any, ids: list[str], uids: list[str]) -> None:
        self.draw, self.ids, self.uids = draw, [*ids, "unknown.md", "../x"], [*uids, "unknown"]
        self.answers = ["unknown"]
        operations = [
            (method, path, one)
            for path, all_ in openapi["paths"].items()
            for method, one in all_.items()
        ]
        self.reads = [one for one in operations if one[0] == "get"]
        self.bodies = {
            path.rpartition("/")[2]: path for method, path, one in operations if method == "post"
        }

    def next(self) -> tuple[str, str, dict[str, Any]]:
        """A request."""
        if self.draw.random() < 0.5:
            return self.post(self.draw.choice(SEARCHES if self.draw.random() < 0.7 else WRITES))
        method, path, operation = self.draw.choice(self.reads)
        query: dict[str, Any] = {}
        for one in operation.get("parameters", []):
            if one["in"] == "path":
                path = re.sub(rf"{{{one['name']}(:path)?}}", str(self.value(one)), path)
            elif one["in"] == "query" and (one.get("required") or self.draw.random() < 0.5):
                query[one["name"]] = self.value(one)
        return method.upper(), path, {"params": query}

    def post(self, name: str) -> tuple[str, str, dict[str, Any]]:
        """A request with a body."""
        path = self.bodies.get(name, "/missing")
        return "POST", re.sub("{(set|name)}", "notes", path), {"json": self.body(name)}

    def value(self, parameter: dict[str, Any]) -> Any:
        """A value for a parameter."""
        name, draw = parameter["name"], self.draw
        pools: dict[str, Any] = {
            "set": ["notes"] * 9 + ["others", "unknown"],
            "name": ["notes"] * 9 + ["others", "unknown"],
            "uid": self.uids,
            "document_id": self.ids,
            "path": self.ids,
            "answer": self.answers,
            "group": [*GROUPS, "CoarseChunk", "unknown"],
            "status": ["SUCCESS", "FAILED", "WAITING"],
            "filters": ['{"year": 2001}', '{"labels": ["board"]}', "{"],
            "where": ['{"year": 2001}', '{"labels": ["board"]}', "{"],
            "after": ["0", "1", *self.ids[:3]],
        }
        return draw.choice(pools.get(name) or [0, 1, 2, 3, 7])

    def body(self, name: str) -> dict[str, Any]:
        """A body for an operation."""
        draw = self.draw
        query = " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))
        search: dict[str, Any] = {
            "query": query,
            "topk": draw.randint(1, 6),
            "group": draw.choice(GROUPS),
        }
        search["retriever"] = draw.choice(
            ["default", "hybrid", "vector", "bm25", "bm25_chinese", "cosine", "unknown"]
        )
        search["filters"] = draw.choice(
            [None, None, {"year": [2001, 2002]}, {"labels": ["board"]}, {"unknown": 1}]
        )
        judged = {"query": query, "good": True, "hit": draw.choice(self.uids)}
        bodies: dict[str, dict[str, Any]] = {
            "search": {**search, "explain": draw.random() < 0.5},
            "why-not": {**search, "uid": draw.choice(self.uids)},
            "grep": {"text": draw.choice(WORDS), "filters": search["filters"]},
            "answers": {
                "question": query,
                "topk": 3,
                "group": search["group"],
                "retriever": search["retriever"],
            },
            "feedback": judged,
            "golden": {"question": query, "ids": [draw.choice(self.uids)]},
            "delete": {"documents": draw.sample(self.ids, 1)},
            "metadata": {"changes": {draw.choice(self.ids): {"year": 2001}}},
            "rollback": {"document": draw.choice(self.ids), "version": draw.randint(1, 2)},
            "texts": {"texts": {draw.choice(self.ids): query}},
            "uploads": {"name": draw.choice(self.ids), "size": 10},
            "sync": {},
            "verify": {},
            "evaluations": {"a": {"retriever": "bm25"}, "b": {"retriever": search["retriever"]}},
        }
        return bodies[name]


@pytest.mark.slow
@pytest.mark.parametrize("sides", range(WORLDS), indirect=True)
def test_it_equals_a_service_of_what_may_be_seen(sides):
    """Statuses, bodies, errors, ETags and Locations do not depend on hidden documents."""
    draw, world, both, current = sides
    uids = [
        node.uid
        for docs in (world.every, world.alone)
        for group in GROUPS
        for node in docs.get_nodes(group)
    ]
    openapi, visible = (
        both[0].client.app.openapi(),
        {node.path for node in world.alone.get_nodes(GROUPS[0])},
    )
    requests = Requests(draw, openapi, world.ids, sorted(set(uids)))
    of_others = Requests(draw, openapi, sorted({*world.ids} - visible), sorted(set(uids)))
    tags: list[str] = []
    for _ in range(PER_WORLD):
        # Others are active in one of the services, with what this principal does not see.
        current.append(replace(both[0], numbers=itertools.count(draw.getrandbits(80))))
        if draw.random() < 0.2:
            method, url, more = of_others.post(draw.choice(("answers", *WRITES)))
            both[0].client.request(method, url, headers=both[0].others, **more)
        method, url, more = requests.next()
        if tags and draw.random() < 0.2:
            more["headers"] = {"If-None-Match": draw.choice(tags)}
        found = []
        for side in both:
            current.append(side)
            found.append(side.ask(method, url, **dict(more)))
        assert found[0] == found[1], (method, url, more)
        status, body, headers = found[0]
        assert status < 500 or status == 501, (method, url, more, body)
        tags += [headers["etag"]] if "etag" in headers else []
        if method == "POST" and url.endswith("/answers") and status == 200:
            requests.answers.append(json.loads(body)["id"])
