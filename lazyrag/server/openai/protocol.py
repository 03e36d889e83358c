"""What the routes of OpenAI's API share: requests, models, pages of lists, attributes, filters, and
records.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema
from lazyrag.data.filters import And, Condition, Filter, Or
from lazyrag.server.api.search import MAX_FILTER_DEPTH, MAX_FILTER_PARTS
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Service, needs, service_of
from lazyrag.server.core.set_request import SetRequest, reply
from lazyrag.server.core.sets import runtime_sets
from lazyrag.server.jobs import Job, Jobs

_CHANGE_S = 30.0  # how long a request waits for a change of a document
_LOOK_S = 0.05

# Requests


@dataclass(frozen=True, slots=True)
class Changing:
    """The response to a change, which is sent when its job is finished."""

    job: Job
    value: dict[str, Any]


def _face(scope: str) -> Any:
    allowed = needs(scope)

    async def make(request: Request, principal: Principal = allowed) -> SetRequest:
        return SetRequest(service_of(request), principal, "", None, request)  # type: ignore[arg-type]  # of no set

    return Depends(make)


Reading: TypeAlias = Annotated[SetRequest, _face("read")]
Writing: TypeAlias = Annotated[SetRequest, _face("write")]
Administration: TypeAlias = Annotated[SetRequest, _face("admin")]
Id = Annotated[str, Path(max_length=200)]


def in_pool(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Run a handler, whose argument ``call`` is a `SetRequest` or has one, in the pool of slow work; its
    result is JSON.
    """

    @functools.wraps(handler)
    async def run(**given: Any) -> Response:
        call: SetRequest = getattr(given["call"], "call", given["call"])
        found = await call.run_slow(handler, **given)
        if isinstance(found, Changing):
            job = found.job
            jobs = Jobs(given["call"].call.unrestricted)
            until = time.monotonic() + _CHANGE_S
            while not job.is_finished and time.monotonic() < until:
                await anyio.sleep(_LOOK_S)
                job = await call.run(jobs.get, job.id)
            found = found.value
        return found if isinstance(found, Response) else reply(found)

    return run


def unknown(kind: str, given: str) -> ProblemError:
    """The error for an id that the principal does not see: hidden ones are unknown ones."""
    return ProblemError(404, f"No such {kind}: {given!a:.100}.", "List them to see the ids.")


class Paging:
    """Which part of a list a request wants."""

    def __init__(
        self,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: Annotated[str | None, Query(max_length=200)] = None,
        before: Annotated[str | None, Query(max_length=200)] = None,
    ) -> None:
        self.limit = limit
        self.order = order
        self.after = after
        self.before = before

    def page(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A page of objects, which come oldest first.

        Raises:
            ProblemError: 400 if a cursor is none of their ids.
        """
        found = list(rows if self.order == "asc" else reversed(rows))
        places = {one["id"]: at for at, one in enumerate(found)}
        for name, cursor in (("after", self.after), ("before", self.before)):
            if cursor is not None and cursor not in places:
                msg = f"{name} must be the id of an object of the list; got {cursor!a:.100}."
                raise ProblemError(400, msg, "Use the first_id or last_id of a page.", param=name)
        start = 0 if self.after is None else places[self.after] + 1
        end = len(found) if self.before is None else places[self.before]
        is_backward = self.before is not None and self.after is None
        start, stop = (
            (max(0, end - self.limit), end)
            if is_backward
            else (start, min(end, start + self.limit))
        )
        data = found[start:stop]
        more = start > 0 if is_backward else stop < end
        ids = (
            {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
            if data
            else {"first_id": "", "last_id": ""}
        )
        return {"object": "list", "data": data, **ids, "has_more": more}


# Models of requests, as OpenAI publishes them


class Model(BaseModel):
    """A request's body: unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


Number = Annotated[float, Field(allow_inf_nan=False)]
Key: TypeAlias = Annotated[str, Field(max_length=64)]
Text: TypeAlias = Annotated[str, Field(max_length=512)]
Metadata: TypeAlias = Annotated[dict[Key, Text], Field(max_length=16)] | None
Attributes: TypeAlias = Annotated[dict[Key, Text | Number | bool], Field(max_length=16)] | None


class ComparisonFilter(Model):
    """A comparison of an attribute; ``ne`` and ``nin`` also match files without it."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"] = "eq"
    key: str
    value: str | Number | bool | list[str | Number]


class CompoundFilter(Model):
    """Filters of which all must hold, or one."""

    type: Literal["and", "or"]
    filters: list[ComparisonFilter | CompoundFilter]


def _checked_filter(given: Any) -> Any:
    """A filter that is not nested too deeply, and not too large."""
    level = [given]
    count = 0
    for _ in range(MAX_FILTER_DEPTH):
        parts = [
            one["filters"]
            for one in level
            if isinstance(one, dict) and isinstance(one.get("filters"), list)
        ]
        level = [part for some in parts for part in some]
        count += len(level)
    if level or count > MAX_FILTER_PARTS:
        raise ValueError(
            f"must have at most {MAX_FILTER_PARTS:,} parts, nested up to {MAX_FILTER_DEPTH} times"
        )
    return given


Filters = Annotated[ComparisonFilter | CompoundFilter, BeforeValidator(_checked_filter)]


@functools.cache
def _published() -> dict[str, Any]:
    text = files("lazyrag.server.openai").joinpath("openai.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(
        text.replace("#/components/schemas/", "#/components/schemas/OpenAI.")
    )
    return found


def with_openai(document: dict[str, Any]) -> dict[str, Any]:
    """Describe the routes of an OpenAPI document that OpenAI has as OpenAI publishes them."""
    document["components"]["schemas"] |= {
        f"OpenAI.{name}": one for name, one in _published()["schemas"].items()
    }
    for path, operations in _published()["paths"].items():
        for method, operation in operations.items():
            own = document["paths"][f"/v1{path}"][method]
            own.update({key: value for key, value in operation.items() if key != "operationId"})
            own["responses"] = {
                "200": operation["responses"]["200"] | {"description": "The object."}
            }
    content = {
        "application/json": {"schema": {"$ref": "#/components/schemas/OpenAI.ErrorResponse"}}
    }
    for path in (one for one in document["paths"] if one.startswith("/v1/")):
        for operation in document["paths"][path].values():
            operation["responses"]["default"] = {"description": "An error.", "content": content}
    return document


# Attributes: values of declared fields, and any others in the field "attributes", one text each.
# The texts of a name and a type are ordered as their values, so that comparisons are ranges of
# texts.

_OWN = ("labels", "attributes")
_OPERATORS = {
    "eq": "eq",
    "ne": "ne",
    "gt": "gt",
    "gte": "ge",
    "lt": "lt",
    "lte": "le",
    "in": "in",
    "nin": "not in",
}


def _encoded(key: str, value: Any) -> str:
    name = json.dumps(key, ensure_ascii=False)
    if isinstance(value, (bool, str)):
        return f"{name}s{value}" if isinstance(value, str) else f"{name}b{value:d}"
    [bits] = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # 0.0 for -0.0
    return f"{name}n{bits ^ ((1 << 64) - 1 if bits >> 63 else 1 << 63):016x}"


def _decoded(text: str) -> tuple[str, Any]:
    key, end = json.JSONDecoder().raw_decode(text)
    kind = text[end]
    rest = text[end + 1 :]
    if kind != "n":
        return key, rest if kind == "s" else rest == "1"
    bits = int(rest, 16)
    return key, _plain(
        struct.unpack(">d", struct.pack(">Q", bits ^ (1 << 63 if bits >> 63 else (1 << 64) - 1)))[0]
    )


def _plain(value: Any) -> Any:
    """Integers as integers."""
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        else value
    )


def _declared(schema: Schema) -> list[str]:
    """The fields of a set that are attributes by their own names."""
    return [one for one in schema if one not in BUILT_IN_FIELDS and one not in _OWN]


def metadata_of(attributes: Attributes, schema: Schema) -> dict[str, Any]:
    """The metadata of a document with some attributes; None for other declared fields.

    Raises:
        ProblemError: 400 if the set has neither a field of the name nor one for all of them.
    """
    given = attributes or {}
    found: dict[str, Any] = {one: _plain(given.get(one)) for one in _declared(schema)}
    others = sorted(_encoded(key, value) for key, value in given.items() if key not in found)
    if "attributes" in schema:
        return {**found, "attributes": others}
    if others:
        remedy = "Declare it with doc_fields, or use a vector store that was created at run time."
        unknown_ones = given.keys() - found.keys()
        raise ProblemError(
            400, f"The set has no field {min(unknown_ones)!a}.", remedy, param="attributes"
        )
    return found


def attributes_of(fields: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The attributes in the fields, or the metadata, of a document."""
    own = {one: fields.get(one) for one in _declared(schema)}
    found = {key: value for key, value in own.items() if isinstance(value, (str, int, float))}
    return found | dict(map(_decoded, fields.get("attributes") or ()))


def filter_of(given: ComparisonFilter | CompoundFilter | None, schema: Schema) -> Filter | None:
    """The filter of a set that means the same.

    Raises:
        ProblemError: 400 if a value does not suit its operator.
    """
    if given is None:
        return None
    if isinstance(given, CompoundFilter):
        parts = [filter_of(one, schema) for one in given.filters]
        return (And if given.type == "and" else Or)(*(one for one in parts if one is not None))
    key = given.key
    op = given.type
    value = given.value
    is_list = isinstance(given.value, list)
    if is_list != (op in ("in", "nin")):
        needed = "one value" if is_list else "a list of values"
        raise ProblemError(
            400, f"The filter {op!r} on {key!a:.100} needs {needed}.", param="filters"
        )
    if key in _declared(schema):
        return Condition(
            key,
            _OPERATORS[op],
            list(map(_plain, value)) if isinstance(value, list) else _plain(value),
        )
    if "attributes" not in schema:  # no file has it
        return And() if op in ("ne", "nin") else Or()
    texts = [_encoded(key, one) for one in (value if isinstance(value, list) else [value])]
    if op in ("eq", "ne", "in", "nin"):
        return Condition("attributes", "not in" if op in ("ne", "nin") else "in", texts)
    end = len(json.dumps(key, ensure_ascii=False))
    first = texts[0][: end + 1]
    behind_all = texts[0][:end] + chr(ord(texts[0][end]) + 1)
    low = {"gt": f"{texts[0]}\0", "gte": texts[0]}.get(op, first)
    return Condition(
        "attributes",
        "in range",
        [low, {"lt": texts[0], "lte": f"{texts[0]}\0"}.get(op, behind_all)],
    )


# Scores, ids and records

_KEYWORD_SCORE = 5.0  # a keyword score of so much becomes 0.5


def unit_score(score: float | None, *, by_keywords: bool) -> float:
    """A score from 0 to 1, in the order of the retriever's: those of hybrid search are so
    already.
    """
    raw = score if score is not None and score > 0 else 0.0
    return raw / (raw + _KEYWORD_SCORE) if by_keywords else min(raw, 1.0)


_ATTACHED = re.compile(r"(?:~[0-9a-f]{8}/)?(file-[0-9a-f]{40})/(.+)", re.DOTALL)


def file_id_of(identity: str, content_hash: str) -> tuple[str, str]:
    """The id and the name of a document's file: of an attached one those that it had, else from
    content and path.
    """
    match = _ATTACHED.fullmatch(identity)
    return (
        (match[1], match[2])
        if match
        else (file_id(content_hash, identity), identity.rpartition("/")[2])
    )


def file_id(content_hash: str, *parts: str) -> str:
    """The id of a file: its content hash, and a digest of what else tells it from others."""
    return f"file-{content_hash}{hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()}"


def store_ids(service: Service) -> dict[str, str]:
    """The names of all sets by the id of the vector store that each of them is."""
    made = {f"vs_{one.id}": one.name for one in runtime_sets(service).list() if not one.deleted}
    others = (service.sets.keys() | service.pending.keys()) - set(made.values())
    return {file_id("", name).replace("file-", "vs_"): name for name in sorted(others)} | made


def labels_of(principal: Principal) -> str:
    """The labels of what a principal adds, as records have them; "" for none."""
    return "" if principal.labels is None else json.dumps(principal.labels)


def sees(principal: Principal, labels: str) -> bool:
    """Whether a principal sees a record that has some labels."""
    return principal.labels is None or bool(
        labels and set(json.loads(labels)) & set(principal.labels)
    )


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())
