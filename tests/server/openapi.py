"""Holds responses to the application's OpenAPI document."""

from __future__ import annotations

_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "null": type(None),
}


def conforms(client, method, path, answer):
    """Return a response's JSON, which must be what the OpenAPI document says of its route, and have
    nothing more.
    """
    document = client.get("/openapi.json").json()
    described = document["paths"][path][method]["responses"]
    response = described.get(str(answer.status_code), described.get("default"))
    schema = response["content"][answer.headers["content-type"]]["schema"]
    body = answer.json()
    check(body, schema, document["components"]["schemas"])
    return body


def check(value, schema, schemas, where="body"):
    """Hold a value to a schema, and to the names that it describes."""
    if "$ref" in schema:
        check(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, where)
    elif "anyOf" in schema:
        assert any(_fits(value, one, schemas, where) for one in schema["anyOf"]), (
            f"{where} is {value!r:.200}"
        )
    elif "type" in schema:
        is_right = (
            isinstance(value, bool)
            if schema["type"] == "boolean"
            else isinstance(value, _TYPES[schema["type"]])
        )
        assert is_right, f"{where} is {value!r:.200}, not {schema}"
        assert value in schema.get("enum", [value]), f"{where} is {value!r}, not {schema}"
        for one, of, name in _parts(value, schema):
            check(one, of, schemas, f"{where}.{name}")


def _fits(*args):
    try:
        check(*args)
    except AssertionError:
        return False
    return True


def _parts(value, schema):
    if isinstance(value, list):
        items = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        return [(one, of, at) for at, (one, of) in enumerate(zip(value, items, strict=True))]
    if not isinstance(value, dict):
        return []
    known, others = (
        schema.get("properties", {}),
        schema.get("additionalProperties", "properties" not in schema),
    )
    assert set(schema.get("required", ())) <= value.keys(), (
        f"{value!r:.200} lacks a name of {schema['required']}"
    )
    assert others or value.keys() <= known.keys(), f"{value.keys() - known.keys()} is not described"
    rest = others if isinstance(others, dict) else {}
    return [(one, known.get(name, rest), name) for name, one in value.items()]
