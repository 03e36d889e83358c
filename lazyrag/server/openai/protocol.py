"""What the routes of OpenAI's API share: requests, models, pages of lists, attributes, filters, and
records.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
import struct
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

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
from lazyrag.server.core.set_request import MAX_TEXT, SetRequest, reply
from lazyrag.server.core.sets import runtime_sets
from lazyrag.server.jobs import Job
from lazyrag.types import JsonObject

_CHANGE_S = 30.0  # how long a request waits for a change of a document
_LOOK_S = 0.05
_GONE = 499  # the status of a request whose client has closed the connection

T = TypeVar("T")

# Requests


@dataclass(frozen=True, slots=True)
class Changing:
    """The response to a change, which is sent when its job is finished."""

    job: Job
    value: JsonObject


def _face(scope: str) -> Any:
    allowed = needs(scope)

    async def make(request: Request, principal: Principal = allowed) -> SetRequest:
        no_set: Any = None
        return SetRequest(service_of(request), principal, "", no_set, request)

    return Depends(make)


Reading: TypeAlias = Annotated[SetRequest, _face("read")]
Writing: TypeAlias = Annotated[SetRequest, _face("write")]
Administration: TypeAlias = Annotated[SetRequest, _face("admin")]
Id = Annotated[str, Path(max_length=200)]


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await a result; if the client closes the connection meanwhile, the work is cancelled.

    Raises:
        ProblemError: 499 if it does.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(leave())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProblemError(_GONE, "The client closed the connection.")
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


def in_pool(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Run a handler, which has an argument ``call`` or a ``store`` with one, in the pool of slow
    work; its result is JSON.
    """

    @functools.wraps(handler)
    async def run(**arguments: Any) -> Response:
        store = arguments.get("store")
        call: SetRequest = store.call if store else arguments["call"]
        result = await call.run_slow(handler, **arguments)
        if isinstance(result, Changing):
            job = result.job
            jobs = call.jobs
            until = time.monotonic() + _CHANGE_S
            while not job.is_finished and time.monotonic() < until:
                await anyio.sleep(_LOOK_S)
                job = await call.run(jobs.get, job.id)
            result = result.value
        return result if isinstance(result, Response) else reply(result)

    return run


def unknown(kind: str, identity: str) -> ProblemError:
    """The error for an id that the principal does not see: hidden ones are unknown ones."""
    return ProblemError(404, f"No such {kind}: {identity!a:.100}.", "List them to see the ids.")


Cursor: TypeAlias = Annotated[str | None, Query(max_length=200)]
Order: TypeAlias = Literal["asc", "desc"]


class CursorPaging:
    """Which part of a list a request wants."""

    def __init__(
        self,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Order = "desc",
        after: Cursor = None,
        before: Cursor = None,
    ) -> None:
        self.limit = limit
        self.order = order
        self.after = after
        self.before = before

    def page(self, rows: Sequence[JsonObject]) -> JsonObject:
        """A page of objects, which come oldest first.

        Raises:
            ProblemError: 400 if a cursor is none of their ids.
        """
        ordered = list(rows if self.order == "asc" else reversed(rows))
        places = {row["id"]: at for at, row in enumerate(ordered)}
        for name, cursor in (("after", self.after), ("before", self.before)):
            if cursor is not None and cursor not in places:
                msg = f"{name} must be the id of an object of the list; got {cursor!a:.100}."
                raise ProblemError(400, msg, "Use the first_id or last_id of a page.", param=name)
        start = 0 if self.after is None else places[self.after] + 1
        end = len(ordered) if self.before is None else places[self.before]
        if self.before is not None and self.after is None:  # backwards
            stop = end
            start = max(0, end - self.limit)
            has_more = start > 0
        else:
            stop = min(end, start + self.limit)
            has_more = stop < end
        data = ordered[start:stop]
        return {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else "",
            "last_id": data[-1]["id"] if data else "",
            "has_more": has_more,
        }


# Models of requests, as OpenAI publishes them


LongText = Annotated[str, Field(max_length=MAX_TEXT)]
"""Pydantic refuses halves of surrogate pairs in texts of limited length alone."""


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


def _checked_filter(value: Any) -> Any:
    """A filter that is not nested too deeply, and not too large."""
    level = [value]
    count = 0
    for _ in range(MAX_FILTER_DEPTH):
        below = []
        for part in level:
            if isinstance(part, dict) and isinstance(part.get("filters"), list):
                below += part["filters"]
        level = below
        count += len(level)
    if level or count > MAX_FILTER_PARTS:
        raise ValueError(
            f"must have at most {MAX_FILTER_PARTS:,} parts, nested up to {MAX_FILTER_DEPTH} times"
        )
    return value


Filters = Annotated[ComparisonFilter | CompoundFilter, BeforeValidator(_checked_filter)]


@functools.cache
def _published() -> JsonObject:
    text = files("lazyrag.server.openai").joinpath("openai.json").read_text(encoding="utf-8")
    text = text.replace("#/components/schemas/", "#/components/schemas/OpenAI.")
    published: JsonObject = json.loads(text)
    return published


def with_openai(document: JsonObject) -> JsonObject:
    """Describe the routes of an OpenAPI document that OpenAI has as OpenAI publishes them."""
    published = _published()
    for name, schema in published["schemas"].items():
        document["components"]["schemas"][f"OpenAI.{name}"] = schema
    for path, operations in published["paths"].items():
        for method, operation in operations.items():
            described = document["paths"][f"/v1{path}"][method]
            described |= {key: value for key, value in operation.items() if key != "operationId"}
            response = operation["responses"]["200"] | {"description": "The object."}
            described["responses"] = {"200": response}
    error = {"schema": {"$ref": "#/components/schemas/OpenAI.ErrorResponse"}}
    default = {"description": "An error.", "content": {"application/json": error}}
    for path, operations in document["paths"].items():
        if path.startswith("/v1/"):
            for operation in operations.values():
                operation["responses"]["default"] = default
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


_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1


def _encoded(key: str, value: Any) -> str:
    name = json.dumps(key, ensure_ascii=False)
    if isinstance(value, str):
        return f"{name}s{value}"
    if isinstance(value, bool):
        return f"{name}b{value:d}"
    [bits] = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # 0.0 for -0.0
    bits ^= _ALL_BITS if bits & _SIGN else _SIGN
    return f"{name}n{bits:016x}"


def _decoded(text: str) -> tuple[str, Any]:
    key, end = json.JSONDecoder().raw_decode(text)
    kind = text[end]
    rest = text[end + 1 :]
    if kind == "s":
        return key, rest
    if kind == "b":
        return key, rest == "1"
    bits = int(rest, 16)
    bits ^= _SIGN if bits & _SIGN else _ALL_BITS
    [number] = struct.unpack(">d", struct.pack(">Q", bits))
    return key, _plain(number)


def _plain(value: Any) -> Any:
    """Integers as integers."""
    is_integer = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_integer else value


def _declared(schema: Schema) -> list[str]:
    """The fields of a set that are attributes by their own names."""
    return [name for name in schema if name not in BUILT_IN_FIELDS and name not in _OWN]


def metadata_of(attributes: Attributes, schema: Schema) -> JsonObject:
    """The metadata of a document with some attributes; None for other declared fields.

    Raises:
        ProblemError: 400 if the set has neither a field of the name nor one for all of them.
    """
    values = attributes or {}
    metadata: JsonObject = {name: _plain(values.get(name)) for name in _declared(schema)}
    others = sorted(_encoded(key, value) for key, value in values.items() if key not in metadata)
    if "attributes" in schema:
        return {**metadata, "attributes": others}
    if others:
        remedy = "Declare it with doc_fields, or use a vector store that was created at run time."
        unknown_ones = values.keys() - metadata.keys()
        raise ProblemError(
            400, f"The set has no field {min(unknown_ones)!a}.", remedy, param="attributes"
        )
    return metadata


def attributes_of(fields: Mapping[str, Any], schema: Schema) -> JsonObject:
    """The attributes in the fields, or the metadata, of a document."""
    fields_declared = {name: fields.get(name) for name in _declared(schema)}
    attributes = {
        key: value for key, value in fields_declared.items() if isinstance(value, (str, int, float))
    }
    return attributes | dict(map(_decoded, fields.get("attributes") or ()))


def filter_of(requested: ComparisonFilter | CompoundFilter | None, schema: Schema) -> Filter | None:
    """The filter of a set that means the same.

    Raises:
        ProblemError: 400 if a value does not suit its operator.
    """
    if requested is None:
        return None
    if isinstance(requested, CompoundFilter):
        parts = [filter_of(part, schema) for part in requested.filters]
        return (And if requested.type == "and" else Or)(
            *(part for part in parts if part is not None)
        )
    key = requested.key
    op = requested.type
    value = requested.value
    is_list = isinstance(value, list)
    if is_list != (op in ("in", "nin")):
        needed = "one value" if is_list else "a list of values"
        raise ProblemError(
            400, f"The filter {op!r} on {key!a:.100} needs {needed}.", param="filters"
        )
    if key in _declared(schema):
        operand = [_plain(item) for item in value] if isinstance(value, list) else _plain(value)
        return Condition(key, _OPERATORS[op], operand)
    if "attributes" not in schema:  # no file has it
        return And() if op in ("ne", "nin") else Or()
    return _attribute_condition(key, op, value if isinstance(value, list) else [value])


def _attribute_condition(key: str, op: str, values: Sequence[Any]) -> Condition:
    """The condition on an attribute without a field of its own."""
    texts = [_encoded(key, value) for value in values]
    if op in ("eq", "in"):
        return Condition("attributes", "in", texts)
    if op in ("ne", "nin"):
        return Condition("attributes", "not in", texts)
    [text] = texts
    following = f"{text}\0"
    end = len(json.dumps(key, ensure_ascii=False))  # the type follows
    low = text[: end + 1]
    high = text[:end] + chr(ord(text[end]) + 1)
    if op in ("gt", "gte"):
        low = following if op == "gt" else text
    else:
        high = following if op == "lte" else text
    return Condition("attributes", "in range", [low, high])


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
    if match:
        return match[1], match[2]
    return file_id(content_hash, identity), identity.rpartition("/")[2]


def file_id(content_hash: str, *parts: str) -> str:
    """The id of a file: its content hash, and a digest of what else tells it from others."""
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()
    return f"file-{content_hash}{digest}"


def store_ids(service: Service) -> dict[str, str]:
    """The names of all sets by the id of the vector store that each of them is."""
    created = {f"vs_{row.id}": row.name for row in runtime_sets(service).list() if not row.deleted}
    others = (service.sets.keys() | service.pending.keys()) - set(created.values())
    return {file_id("", name).replace("file-", "vs_"): name for name in sorted(others)} | created


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
