"""Files, uploads and vector stores against the schema that OpenAI publishes: every operation,
parameter and property.

Each response is held to the published schema, which may have no property that is not in it but for
`EXTENSIONS`; the test sees that every operation was called and every property was there.
"""

from __future__ import annotations

import itertools
import json
import re

import pytest

from tests.server.running import wait_for
from tests.shared import shared

pytestmark = pytest.mark.shared

EXTENSIONS = {"VectorStoreObject": {"description"}}
"""What is said beyond the schema, of what a request of the schema gave."""
NOT_SENT = {("OpenAIFile", "status_details")}
"""A deprecated property, which tells why a file of fine-tuning is not valid."""


@pytest.fixture(scope="module")
def published():
    """The published schema."""
    return json.loads(
        shared("openai", "vector-stores-files-uploads.json").read_text(encoding="utf-8")
    )


class Checked:
    """A client that holds responses to the published schema, and notes what it has seen."""

    def __init__(self, client, published):
        self.client, self.schemas = client, published["components"]["schemas"]
        self.operations = {
            (method, path): one
            for path, of in published["paths"].items()
            for method, one in of.items()
        }
        self.called, self.seen = set(), set()

    def __call__(self, method, path, status=200, **more):
        """The JSON of a response."""
        answer = self.client.request(method, f"/v1{path}", **more)
        assert answer.status_code == status, f"{method} {path}: {answer.text}"
        if status != 200:
            self.check(answer.json(), {"$ref": "#/components/schemas/ErrorResponse"})
            return answer.json()["error"]
        [found] = [one for one in self.operations if one[0] == method and matches(one[1], path)]
        self.called.add(found)
        if found[1].endswith("{file_id}/content") and found[1].startswith("/files"):
            return answer.content
        [content] = self.operations[found]["responses"]["200"]["content"].values()
        self.check(answer.json(), content["schema"])
        return answer.json()

    def check(self, value, schema, name="", where="body"):
        """Hold a value to a schema."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            self.check(value, self.schemas[name], name, where)
        elif "allOf" in schema:
            self.check(value, schema["allOf"][0], name, where)
        elif "oneOf" in schema or "anyOf" in schema:
            fitting = [
                one
                for one in schema.get("oneOf", schema.get("anyOf"))
                if self.fits(value, one, name)
            ]
            assert fitting, f"{where} is {value!r:.300}"
            self.check(value, fitting[0], name, where)
        else:
            self.check_typed(value, schema, name, where)

    def fits(self, value, schema, name):
        """Whether a value is what a schema says."""
        try:
            self.check(value, schema, name)
        except AssertionError:
            return False
        return True

    def check_typed(self, value, schema, name, where):
        """Hold a value to a schema with a type."""
        kinds = {
            "string": str,
            "integer": int,
            "number": (int, float),
            "array": list,
            "null": type(None),
        }
        kind = schema.get("type", "object")
        wanted = {**kinds, "boolean": bool, "object": dict}[kind]
        is_right = isinstance(value, wanted) and (kind == "boolean" or not isinstance(value, bool))
        assert is_right, f"{where} is {value!r:.300}, not {kind}"
        assert value in schema.get("enum", [value]), (
            f"{where} is {value!r}, not one of {schema['enum']}"
        )
        if kind in ("integer", "number"):
            assert schema.get("minimum", value) <= value <= schema.get("maximum", value)
        for at, one in enumerate(value if kind == "array" else ()):
            self.check(one, schema["items"], name, f"{where}[{at}]")
        if kind == "object":
            known = schema.get("properties", {})
            others = schema.get("additionalProperties", False if known else {})
            assert set(schema.get("required", ())) <= value.keys(), (
                f"{where} lacks {schema['required']}: {value}"
            )
            if others is False:
                assert value.keys() <= known.keys() | EXTENSIONS.get(name, set()), (
                    f"{where} has {sorted(value)}"
                )
            for key, one in value.items():
                self.seen.add((name, key))
                if key in known or isinstance(others, dict):
                    self.check(
                        one,
                        known.get(key, others or {}),
                        name if key not in known else f"{name}.{key}",
                        where,
                    )


def matches(path, given):
    """Whether a path is one of a template."""
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), given) is not None


@pytest.fixture
def api(client, following, published):
    """A checked client of a service with run-time sets."""
    return Checked(client, published)


def upload(api, name, content, **fields):
    """Upload a file."""
    return api(
        "post", "/files", files={"file": (name, content)}, data={"purpose": "assistants", **fields}
    )


def wait(api, path, status):
    """Wait for the status of an object."""
    wait_for(lambda: api("get", path)["status"] == status, f"{path} {status}", 20)


@pytest.mark.filterwarnings("ignore::lazyrag.errors.IngestionWarning")
def test_every_operation_and_every_property(api):  # noqa: PLR0915  one walk
    """A walk through all operations: what they send is what is published, and every property is
    sent.
    """
    ends = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    tea, coffee = (
        upload(api, "tea.md", b"# Tea\n\nGreen tea.", **ends),
        upload(api, "coffee.txt", b"Coffee, ground."),
    )
    broken, image = (
        upload(api, "broken.docx", b"no archive"),
        upload(api, "a.xyz", bytes(range(256))),
    )
    assert tea["expires_at"] == tea["created_at"] + 3600
    listed = api(
        "get",
        "/files",
        params={"purpose": "assistants", "limit": 2, "order": "asc", "after": tea["id"]},
    )
    assert len(listed["data"]) == 2
    assert api("get", f"/files/{tea['id']}")["filename"] == "tea.md"
    assert api("get", f"/files/{tea['id']}/content") == b"# Tea\n\nGreen tea."

    ends = {"anchor": "created_at", "seconds": 3600}
    about = {
        "purpose": "assistants",
        "bytes": 6,
        "filename": "cocoa.txt",
        "mime_type": "text/plain",
    }
    big = api("post", "/uploads", json={**about, "expires_after": ends})
    parts = [
        api("post", f"/uploads/{big['id']}/parts", files={"data": ("d", one)})["id"]
        for one in (b"oa!", b"Coc")
    ]
    done = {"part_ids": parts[::-1], "md5": "00f5163b7ef5cb1b8f4d7c52e5bbbb2e"}
    assert "digest" in api("post", f"/uploads/{big['id']}/complete", 400, json=done)["message"]
    cocoa = api("post", f"/uploads/{big['id']}/complete", json={"part_ids": parts[::-1]})["file"]
    assert api("get", f"/files/{cocoa['id']}/content") == b"Cocoa!"
    other = api("post", "/uploads", json=about)
    assert api("post", f"/uploads/{other['id']}/cancel")["status"] == "cancelled"

    expires = {"anchor": "last_active_at", "days": 7}
    static = {
        "type": "static",
        "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 10},
    }
    wanted = {
        "name": "Drinks",
        "description": "Hot ones.",
        "metadata": {"a": "b"},
        "expires_after": expires,
    }
    wanted |= {"file_ids": [tea["id"]], "chunking_strategy": static}
    store = api("post", "/vector_stores", json=wanted)
    path = f"/vector_stores/{store['id']}"
    assert (store["name"], store["description"], store["metadata"]) == (
        "Drinks",
        "Hot ones.",
        {"a": "b"},
    )
    assert store["expires_at"] == store["last_active_at"] + 7 * 86_400
    wait(api, path, "completed")
    assert api("get", f"{path}/files/{tea['id']}")["chunking_strategy"] == static
    assert (
        api("post", path, json={"name": "Teas", "metadata": None, "expires_after": None})[
            "metadata"
        ]
        == {}
    )
    own = {
        "file_id": coffee["id"],
        "attributes": {"a": 1, "b": "x", "c": True},
        "chunking_strategy": {"type": "auto"},
    }
    assert api("post", f"{path}/files", json=own)["attributes"] == own["attributes"]
    wait(api, f"{path}/files/{coffee['id']}", "completed")
    changed = api("post", f"{path}/files/{coffee['id']}", json={"attributes": {"d": 2.5}})
    assert (
        changed["attributes"]
        == api("get", f"{path}/files/{coffee['id']}")["attributes"]
        == {"d": 2.5}
    )
    assert api("get", f"{path}/files/{coffee['id']}/content")["data"] == [
        {"type": "text", "text": "Coffee, ground."}
    ]

    common = {"attributes": {"year": 2024}, "chunking_strategy": {"type": "auto"}}
    batch = api(
        "post",
        f"{path}/file_batches",
        json={"file_ids": [cocoa["id"], broken["id"], image["id"]], **common},
    )
    wait(api, f"{path}/file_batches/{batch['id']}", "completed")
    counts = api("get", f"{path}/file_batches/{batch['id']}")["file_counts"]
    assert (counts["completed"], counts["failed"], counts["total"]) == (1, 2, 3)
    failed = api("get", f"{path}/file_batches/{batch['id']}/files", params={"filter": "failed"})[
        "data"
    ]
    assert {one["last_error"]["code"] for one in failed} == {"invalid_file", "unsupported_file"}
    assert all(one["last_error"]["message"].count(".") > 1 for one in failed)
    batch = api("post", f"{path}/file_batches", json={"files": [own]})
    api("post", f"{path}/file_batches/{batch['id']}/cancel")

    question = {"query": ["green tea", "coffee"], "max_num_results": 3, "rewrite_query": False}
    question["ranking_options"] = {"ranker": "auto", "score_threshold": 0.01}
    question["filters"] = {"type": "or", "filters": [{"type": "ne", "key": "year", "value": 2024}]}
    found = api("post", f"{path}/search", json=question)
    assert found["search_query"] == ["green tea", "coffee"]
    assert {one["filename"] for one in found["data"]} == {"tea.md", "coffee.txt"}
    assert len(api("get", f"{path}/files", params={"filter": "completed"})["data"]) == 3
    assert api("get", "/vector_stores", params={"limit": 1, "order": "desc"})["has_more"]

    assert api("delete", f"{path}/files/{coffee['id']}")["deleted"]
    api("get", f"{path}/files/{coffee['id']}", 404)
    assert api("get", f"/files/{coffee['id']}")["id"] == coffee["id"]
    assert api("delete", f"/files/{tea['id']}")["deleted"]
    wait_for(
        lambda: tea["id"] not in [one["id"] for one in api("get", f"{path}/files")["data"]],
        "the deletion",
        20,
    )
    assert api("delete", path)["deleted"]
    assert api("get", path, 404)["code"] == "not_found"

    assert api.called == set(api.operations)
    for name in {name for name, _ in api.seen} & api.schemas.keys():
        unseen = (
            {(name, one) for one in api.schemas[name].get("properties", {})} - api.seen - NOT_SENT
        )
        assert not unseen, f"never sent: {unseen}"


def test_pages_of_lists(api):
    """Cursors, order and limit lead through a list in both directions, and each object comes
    once.
    """
    files = [upload(api, f"{at}.txt", str(at).encode())["id"] for at in range(5)]
    store = api("post", "/vector_stores", json={"file_ids": files})
    path = f"/vector_stores/{store['id']}"
    wait(api, path, "completed")
    ordered = [one["id"] for one in api("get", f"{path}/files", params={"order": "asc"})["data"]]
    assert sorted(ordered) == sorted(files)
    for order, expected in (("asc", ordered), ("desc", ordered[::-1])):
        pages, page = [], api("get", f"{path}/files", params={"limit": 2, "order": order})
        pages += [page]
        while page["has_more"]:
            page = api(
                "get",
                f"{path}/files",
                params={"limit": 2, "order": order, "after": page["last_id"]},
            )
            pages.append(page)
        assert [one["id"] for page in pages for one in page["data"]] == expected
        assert [len(page["data"]) for page in pages] == [2, 2, 1]
        before = api(
            "get", f"{path}/files", params={"limit": 2, "order": order, "before": expected[3]}
        )
        assert ([one["id"] for one in before["data"]], before["has_more"]) == (expected[1:3], True)
        before = api(
            "get",
            f"{path}/files",
            params={"order": order, "before": expected[3], "after": expected[0]},
        )
        assert [one["id"] for one in before["data"]] == expected[1:3]
    empty = api("get", f"{path}/files", params={"filter": "failed"})
    assert (empty["data"], empty["has_more"]) == ([], False)
    for cursor in ("after", "before"):
        assert api("get", f"{path}/files", 400, params={cursor: "file-unknown"})["param"] == cursor


def values_of(schema, schemas):
    """Values that a schema does not allow."""
    if "$ref" in schema:
        yield from values_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    elif "allOf" in schema:
        yield from values_of(schema["allOf"][0], schemas)
    else:
        yield from () if "anyOf" in schema or "oneOf" in schema else [["a", {}]]
        if "enum" in schema:
            yield "nothing"
        for bound, step in (("minimum", -1), ("maximum", 1)):
            if bound in schema:
                yield schema[bound] + step
        if "maxItems" in schema:
            yield ["file-1"] * (schema["maxItems"] + 1)
        if schema.get("type") in ("integer", "number", "array", "object") or "oneOf" in schema:
            yield {"no": "such"} if schema.get("type") != "object" else 3


def bodies_of(schema, schemas, path=()):
    """Paths of properties in a request, and values that they cannot have."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    for name, one in schema.get("properties", {}).items():
        yield from (((*path, name), value) for value in values_of(one, schemas))
    if schema.get("additionalProperties") is False:
        yield (*path, "no_such_name"), 1


VALID = {
    "/vector_stores": {},
    "/vector_stores/{vector_store_id}": {},
    "/vector_stores/{vector_store_id}/search": {"query": "tea"},
    "/vector_stores/{vector_store_id}/files": {"file_id": "file-1"},
    "/vector_stores/{vector_store_id}/files/{file_id}": {"attributes": {}},
    "/vector_stores/{vector_store_id}/file_batches": {"file_ids": ["file-1"]},
    "/uploads": {
        "purpose": "assistants",
        "bytes": 6,
        "filename": "cocoa.txt",
        "mime_type": "text/plain",
    },
    "/uploads/{upload_id}/complete": {"part_ids": ["part_1"]},
}


def test_every_constraint_of_requests(api, published):
    """What the schema does not allow is refused with the name of the parameter: enums, bounds,
    types, unknown names.
    """
    store = api("post", "/vector_stores", json={})["id"]
    upload_id = api("post", "/uploads", json=VALID["/uploads"])["id"]
    file_id = upload(api, "tea.md", b"Tea.")["id"]
    refused = 0
    for (method, template), operation in api.operations.items():
        path = template.format(
            vector_store_id=store, upload_id=upload_id, file_id=file_id, batch_id="vsfb_1"
        )
        for one in operation.get("parameters", ()):
            if one["in"] == "query" and "enum" in one["schema"]:
                assert (
                    api(method, path, 400, params={one["name"]: "nothing"})["param"] == one["name"]
                )
                refused += 1
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        valid, schema = VALID[template], api.schemas[content["schema"]["$ref"].rpartition("/")[2]]
        for names, value in bodies_of(schema, api.schemas):
            body = {**valid, names[0]: value}
            error = api(method, path, 400, json=body)
            assert str(error["param"]).partition(".")[0] == names[0], (body, error)
            refused += 1
        for name in schema.get("required", ()):
            body = {key: one for key, one in valid.items() if key != name}
            assert api(method, path, 400, json=body)["param"] == name
            refused += 1
    assert refused > 60
    for fields in ({}, {"purpose": "nothing"}, {"purpose": "assistants", "other": "x"}):
        answer = api.client.post("/v1/files", files={"file": ("a.txt", b"x")}, data=fields)
        assert answer.status_code == 400, fields


def test_bounds_of_attributes_and_metadata(api):
    """Attributes and metadata have at most 16 names of 64 characters, with texts of 512
    characters.
    """
    store = api("post", "/vector_stores", json={})["id"]
    for name, wrong in itertools.product(
        ("attributes", "metadata"),
        ({str(at): "x" for at in range(17)}, {"x" * 65: "x"}, {"x": "x" * 513}, {"x": [1]}),
    ):
        path = f"/vector_stores/{store}" + ("/files" if name == "attributes" else "")
        more = {"file_id": "file-1"} if name == "attributes" else {}
        assert api("post", path, 400, json={name: wrong, **more})["param"].startswith(name)


def test_the_openapi_document(client, published):
    """The OpenAPI document describes the operations as OpenAI publishes them, but for the type of
    bytes.
    """
    document = client.get("/openapi.json").json()
    renamed = json.dumps(published).replace("#/components/schemas/", "#/components/schemas/OpenAI.")
    assert all(f"/v1{path}" in document["paths"] for path in published["paths"])
    for path, operations in json.loads(renamed)["paths"].items():
        for method, operation in operations.items():
            own = document["paths"][f"/v1{path}"][method]
            assert own.get("parameters", []) == operation.get("parameters", [])
            assert own.get("requestBody") == operation.get("requestBody")
            if path != "/files/{file_id}/content":  # published as JSON
                assert (
                    own["responses"]["200"]["content"] == operation["responses"]["200"]["content"]
                )
    for name, schema in json.loads(renamed)["components"]["schemas"].items():
        own = document["components"]["schemas"][f"OpenAI.{name}"]
        assert (
            own["properties"].keys() == schema["properties"].keys()
            if "properties" in schema
            else own == schema
        )
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references <= document["components"]["schemas"].keys()
