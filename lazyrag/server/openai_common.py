"""What the routes of OpenAI's API share: models, ids, pages of lists, attributes, filters, and their records."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema
from lazyrag.data.filters import And, Condition, Filter, Or
from lazyrag.server.problems import ProblemError
from lazyrag.server.routes_search import MAX_FILTER_DEPTH, MAX_FILTER_PARTS
from lazyrag.server.service import Principal, Service
from lazyrag.storage.database import Database, FileFormat

# Models, as OpenAI publishes them


class Model(BaseModel):
    """A request's body: unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


Order = Annotated[Literal["asc", "desc"], Query()]
Cursor = Annotated[str | None, Query(max_length=200)]
Limit = Annotated[int, Query(ge=1, le=100)]
Id = Annotated[str, Path(max_length=200)]
Time: TypeAlias = int
"""Seconds since 1970."""
Number = Annotated[float, Field(allow_inf_nan=False)]
Metadata: TypeAlias = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None
Attributes: TypeAlias = (
    Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)] | Number | bool],
        Field(max_length=16),
    ]
    | None
)
State: TypeAlias = Literal["in_progress", "completed", "cancelled", "failed"]


class ComparisonFilter(Model):
    """A comparison of an attribute; ``ne`` and ``nin`` also match files without it."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"] = "eq"
    key: str
    value: str | Number | bool | list[str | Number]


class CompoundFilter(Model):
    """Filters of which all must hold, or one."""

    type: Literal["and", "or"]
    filters: list[ComparisonFilter | CompoundFilter]


def checked_filter(given: Any) -> Any:
    """A filter that is not nested too deeply, and not too large.

    Raises:
        ValueError: If it is.
    """
    level, count = [given], 0
    for _ in range(MAX_FILTER_DEPTH):
        level = [part for one in level if isinstance(one, dict) for part in _parts(one)]
        count += len(level)
        if count > MAX_FILTER_PARTS:
            raise ValueError(f"must have at most {MAX_FILTER_PARTS:,} parts")
    if level:
        raise ValueError(f"must not be nested more than {MAX_FILTER_DEPTH} times")
    return given


def _parts(one: Mapping[str, Any]) -> list[Any]:
    parts = one.get("filters")
    return parts if isinstance(parts, list) else []


Filters = Annotated[ComparisonFilter | CompoundFilter, BeforeValidator(checked_filter)]


class AutoChunking(Model):
    """The chunks of the set."""

    type: Literal["auto"]


class ChunkSizes(Model):
    """Sizes in tokens; neighbours share at most half of a chunk."""

    max_chunk_size_tokens: int = Field(ge=100, le=4096)
    chunk_overlap_tokens: int = Field(ge=0)


class StaticChunking(Model):
    """Chunks of given sizes."""

    type: Literal["static"]
    static: ChunkSizes


class OtherChunking(Model):
    """Chunks that the set's configuration defines."""

    type: Literal["other"]


Chunking: TypeAlias = Annotated[AutoChunking | StaticChunking, Field(discriminator="type")]
ChunkingFound: TypeAlias = Annotated[StaticChunking | OtherChunking, Field(discriminator="type")]


def list_model(name: str, item: Any) -> Any:
    """The model of a page of a list."""
    ids: Any = (str, Field(description="Empty for an empty page."))
    more: Any = {"object": (str, ...), "first_id": ids, "last_id": ids, "has_more": (bool, ...)}
    return create_model(name, data=(list[item], ...), **more)


def deleted_model(name: str, kind: str) -> Any:
    """The model of a deletion."""
    fields: Any = {"id": (str, ...), "object": (Literal[kind], ...), "deleted": (bool, ...)}
    return create_model(name, **fields)


def page(
    rows: Sequence[dict[str, Any]], after: str | None, before: str | None, order: str, limit: int
) -> dict[str, Any]:
    """A page of a list.

    Args:
        rows: All objects, oldest first.
        after: The id of an object; the page begins behind it.
        before: The id of an object; the page ends before it.
        order: ``"asc"`` for oldest first, or ``"desc"``.
        limit: The maximum number of objects.

    Raises:
        ProblemError: 400 if an id is none of theirs.
    """
    found = list(rows if order == "asc" else reversed(rows))
    places = {one["id"]: at for at, one in enumerate(found)}
    for name, cursor in (("after", after), ("before", before)):
        if cursor is not None and cursor not in places:
            msg = f"{name} must be the id of an object of the list; got {cursor!a:.100}."
            raise ProblemError(400, msg, "Use the first_id or last_id of a page.", param=name)
    start = 0 if after is None else places[after] + 1
    end = len(found) if before is None else places[before]
    if before is not None and after is None:
        start = max(0, end - limit)
    data = found[start : min(end, start + limit)]
    more = start > 0 if before is not None and after is None else start + limit < end
    first, last = (data[0]["id"], data[-1]["id"]) if data else ("", "")
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more}


# Attributes: values of declared fields, and any others in the field "attributes", one text each. The texts of a name
# and a type are ordered as their values, so that comparisons are ranges of texts.

_OWN = ("labels", "attributes")
_OPERATORS = {"eq": "eq", "ne": "ne", "gt": "gt", "gte": "ge", "lt": "lt", "lte": "le", "in": "in", "nin": "not in"}
_decoder = json.JSONDecoder()


def _encoded(key: str, value: Any) -> str:
    name = json.dumps(key, ensure_ascii=False)
    if isinstance(value, bool):
        return f"{name}b{value:d}"
    if isinstance(value, str):
        return f"{name}s{value}"
    [bits] = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # 0.0 for -0.0
    return f"{name}n{bits ^ ((1 << 64) - 1 if bits >> 63 else 1 << 63):016x}"


def _decoded(text: str) -> tuple[str, Any]:
    key, end = _decoder.raw_decode(text)
    kind, rest = text[end], text[end + 1 :]
    if kind != "n":
        return key, rest if kind == "s" else rest == "1"
    bits = int(rest, 16)
    [value] = struct.unpack(">d", struct.pack(">Q", bits ^ (1 << 63 if bits >> 63 else (1 << 64) - 1)))
    return key, _plain(value)


def _plain(value: Any) -> Any:
    """Integers as integers."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def declared_fields(schema: Schema) -> list[str]:
    """The fields of a set that are attributes by their own names."""
    return [one for one in schema if one not in BUILT_IN_FIELDS and one not in _OWN]


def metadata_of(attributes: Attributes, schema: Schema) -> dict[str, Any]:
    """The metadata of a document with some attributes; the values of other declared fields are removed.

    Raises:
        ProblemError: 400 if the set has neither a field of the name nor one for all of them.
    """
    given = attributes or {}
    found: dict[str, Any] = {one: _plain(given.get(one)) for one in declared_fields(schema)}
    others = sorted(_encoded(key, value) for key, value in given.items() if key not in found)
    if "attributes" in schema:
        return {**found, "attributes": others}
    if others:
        unknown = min(given.keys() - found.keys())
        remedy = "Declare it with doc_fields, or use a vector store that was created at run time."
        raise ProblemError(400, f"The set has no field {unknown!a}.", remedy, param="attributes")
    return found


def attributes_of(fields: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The attributes in the fields, or the metadata, of a document."""
    own = {one: fields.get(one) for one in declared_fields(schema)}
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
    is_list, op = isinstance(given.value, list), given.type
    if is_list != (op in ("in", "nin")):
        needed = "one value" if is_list else "a list of values"
        raise ProblemError(400, f"The filter {op!r} on {given.key!a} needs {needed}.", param="filters")
    if given.key in declared_fields(schema):
        value: Any = list(map(_plain, given.value)) if isinstance(given.value, list) else _plain(given.value)
        return Condition(given.key, _OPERATORS[op], value)
    if "attributes" not in schema:  # no file has it
        return And() if op in ("ne", "nin") else Or()
    return _attribute_filter(given.key, op, given.value)


def _attribute_filter(key: str, op: str, value: Any) -> Filter:
    if op in ("in", "nin"):
        return Condition("attributes", _OPERATORS[op], [_encoded(key, one) for one in value])
    text = _encoded(key, value)
    if op in ("eq", "ne"):
        return Condition("attributes", "in" if op == "eq" else "not in", [text])
    end = len(json.dumps(key, ensure_ascii=False)) + 1
    first, behind_all = text[:end], text[: end - 1] + chr(ord(text[end - 1]) + 1)
    low = {"gt": f"{text}\0", "gte": text}.get(op, first)
    high = {"lt": text, "lte": f"{text}\0"}.get(op, behind_all)
    return Condition("attributes", "in range", [low, high])


# Ids and records

_ATTACHED = re.compile(r"(?:~[0-9a-f]{8}/)?(file-[0-9a-f]{40})/(.+)", re.DOTALL)


def file_id_of(identity: str, content_hash: str) -> tuple[str, str]:
    """The id and the name of a document's file: of an attached one those that it had, else from content and path."""
    match = _ATTACHED.fullmatch(identity)
    if match:
        return match[1], match[2]
    return f"file-{content_hash}{digest(identity)}", identity.rpartition("/")[2]


def digest(*parts: str | None) -> str:
    """A short digest of texts."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()


def store_id(service: Service, name: str) -> str:
    """The id of the vector store that a set is."""
    made = service.made.find(name) if service.made is not None else None
    return f"vs_{made.id if made else hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}"


def labels_of(principal: Principal) -> str:
    """The labels of what a principal adds, as records have them; "" for none."""
    return "" if principal.labels is None else json.dumps(principal.labels)


def sees(principal: Principal, labels: str) -> bool:
    """Whether a principal sees a record that has some labels."""
    return principal.labels is None or bool(labels and set(json.loads(labels)) & set(principal.labels))


_SCHEMA = """
CREATE TABLE file (
    id TEXT PRIMARY KEY, labels TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL,
    created INTEGER NOT NULL, expires INTEGER, content_hash TEXT NOT NULL
);
CREATE TABLE upload (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL, created INTEGER NOT NULL, lasts INTEGER, status TEXT NOT NULL, file TEXT NOT NULL
);
CREATE TABLE store (
    id TEXT PRIMARY KEY, created INTEGER NOT NULL, active INTEGER NOT NULL, details TEXT NOT NULL
);
CREATE TABLE attached (
    number INTEGER PRIMARY KEY, store TEXT NOT NULL, file TEXT NOT NULL, identity TEXT NOT NULL, labels TEXT NOT NULL,
    bytes INTEGER NOT NULL, metadata TEXT NOT NULL, batch TEXT NOT NULL, job TEXT NOT NULL, created INTEGER NOT NULL
);
CREATE INDEX attached_file ON attached (store, file);
CREATE INDEX attached_batch ON attached (batch);
"""
_FORMAT = FileFormat(
    "file of OpenAI objects",
    application_id=int.from_bytes(b"lzOA", "big"),
    migrations=(_SCHEMA,),
    when_damaged="Restore it from a backup, or delete it: files must be uploaded again, sets keep their documents.",
)


class Records:
    """Files, uploads, and what vector stores have beside their sets, in a file that all processes share."""

    def __init__(self, service: Service) -> None:
        service.state.mkdir(parents=True, exist_ok=True)
        self.folder = service.state / "uploads" / ".openai"
        self._file = Database(service.state / "openai.db", _FORMAT)

    def select(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows as mappings."""
        with self._file.reading() as connection:
            cursor = connection.execute(query, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def write(self, *statements: tuple[str, Mapping[str, Any] | Sequence[Any]]) -> None:
        """Run statements in one transaction."""
        with self._file.writing() as connection:
            for statement, values in statements:
                connection.execute(statement, values)

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows, or replace those with their keys."""
        with self._file.writing(durable=True) as connection:
            for row in rows:
                columns, values = ", ".join(row), ", ".join(f":{one}" for one in row)
                connection.execute(f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({values})", row)  # noqa: S608


def records(service: Service) -> Records:
    """The records of a service."""
    found: Records = service.records or Records(service)
    service.records = found
    return found


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def unknown(kind: str, given: str) -> ProblemError:
    """The error for an id that the principal does not see; hidden ones are unknown ones."""
    return ProblemError(404, f"No such {kind}: {given!a:.100}.", "List them to see the ids.")


def or_404(found: Any, kind: str, given: str) -> Any:
    """What was found.

    Raises:
        ProblemError: 404 if nothing was.
    """
    if found is None:
        raise unknown(kind, given)
    return found
