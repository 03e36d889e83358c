"""Vectors in Milvus: a server, or a file of Milvus Lite."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import re
import string
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.filters import Condition, Filter, matches
from lazyrag.data.segment import EMPTY, ReadOnly
from lazyrag.errors import (
    ConfigError,
    SchemaMismatchError,
    StoreConnectionError,
    StoreError,
    UnsupportedError,
    known_names,
    missing_package,
    sentence,
)
from lazyrag.stores.protocol import (
    Candidate,
    Feature,
    Location,
    Pushed,
    VectorRow,
    VectorSchema,
    check_deletion,
    check_queries,
    check_schema,
    check_vectors,
    exact_ranking,
    part_of_rows,
    pushed_down,
    ranking_of,
)
from lazyrag.stores.sqlite import schema_text
from lazyrag.types import (
    SPARSE,
    Embedding,
    Embeddings,
    Fields,
    FieldValue,
    Metric,
    Ranking,
    Scalar,
    SparseVector,
    Vector,
)
from lazyrag.validation import known_arguments

IndexKwargs: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"
"""One dict for all embed keys, or one for each, with its ``embed_key``."""

_KEYS = ("embed_key", "index_type", "metric_type", "params", "search_params")
_DENSE = (
    *("AUTOINDEX", "DISKANN", "FLAT", "GPU_BRUTE_FORCE", "GPU_CAGRA", "GPU_IVF_FLAT", "GPU_IVF_PQ", "HNSW", "HNSW_PQ"),
    *("HNSW_PRQ", "HNSW_SQ", "IVF_FLAT", "IVF_PQ", "IVF_RABITQ", "IVF_SQ8", "SCANN"),
)
_SPARSE = ("SPARSE_INVERTED_INDEX", "SPARSE_WAND")
_EXACT = ("FLAT", *_SPARSE)
_DROPPING = ("drop_ratio_build", "drop_ratio_search")  # of sparse indexes: the weights that they leave out
_DEPTHS = {  # what a search must set to at least the number of rows that it asks for
    **dict.fromkeys(("HNSW", "HNSW_PQ", "HNSW_PRQ", "HNSW_SQ"), "ef"),
    "DISKANN": "search_list",
    "SCANN": "reorder_k",
}
_LEAST_DEPTH = 64


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index of a collection.

    Args:
        type: Milvus's name of it.
        params: What it is built with.
        search_params: What searches give it.
    """

    type: str
    params: Mapping[str, Any]
    search_params: Mapping[str, Any]

    @property
    def is_exact(self) -> bool:
        """Whether it finds the true nearest rows."""
        return self.type in _EXACT and not any(
            params.get(name) for params in (self.params, self.search_params) for name in _DROPPING
        )

    def params_for(self, depth: int) -> dict[str, Any]:
        """What a search for that many rows gives it.

        Example:
            >>> IndexChoice("HNSW", {}, {}).params_for(100), IndexChoice("FLAT", {}, {}).params_for(100)
            ({'ef': 100}, {})
        """
        name = _DEPTHS.get(self.type)
        wanted = {} if name is None else {name: max(depth, int(self.search_params.get(name, _LEAST_DEPTH)))}
        return {**self.search_params, **wanted}


class IndexSettings:
    """``index_kwargs``, checked.

    Args:
        index_kwargs: A dict with any of the keys ``index_type``, ``metric_type``, ``params`` (what the index is built
            with), ``search_params`` and ``embed_key``; or a list of them, each with another ``embed_key``. What is
            left out is exact: ``FLAT``, and ``SPARSE_INVERTED_INDEX`` for sparse vectors.

    Raises:
        ConfigError: If a key or an index is unknown, or a value is of the wrong kind.

    Example:
        >>> settings = IndexSettings([{"embed_key": "vec1", "index_type": "HNSW", "params": {"M": 16}}])
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec1")).type
        'HNSW'
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec2")).type
        'FLAT'
    """

    def __init__(self, index_kwargs: IndexKwargs) -> None:
        several = isinstance(index_kwargs, (list, tuple))
        entries: Sequence[Any] = index_kwargs if isinstance(index_kwargs, (list, tuple)) else [index_kwargs or {}]
        self._by_embed_key: dict[str | None, Mapping[str, Any]] = {}
        for entry in entries:
            _check_entry(entry)
            embed_key = entry.get("embed_key")
            if several and embed_key is None:
                msg = f"index_kwargs has the entry {entry!r} without an 'embed_key'; in a list each one needs its own."
                raise ConfigError(msg)
            if embed_key in self._by_embed_key:
                msg = f"index_kwargs has two entries for the embed key {embed_key!r}; give one for each."
                raise ConfigError(msg)
            self._by_embed_key[embed_key] = entry

    @property
    def are_exact(self) -> bool:
        """Whether every index that is asked for finds the true nearest rows."""
        return all(_choice(entry, "FLAT").is_exact for entry in self._by_embed_key.values())

    def choice(self, schema: VectorSchema) -> IndexChoice:
        """The index of a collection.

        Raises:
            ConfigError: If what is asked for is none for such vectors, or for another metric.
        """
        entry = self._by_embed_key.get(schema.embed_key, self._by_embed_key.get(None, {}))
        default, allowed = ("SPARSE_INVERTED_INDEX", (*_SPARSE, "AUTOINDEX")) if schema.is_sparse else ("FLAT", _DENSE)
        found = _choice(entry, default)
        if found.type not in allowed:
            kind = "sparse" if schema.is_sparse else "dense"
            msg = (
                f"index_kwargs asks for the index {found.type!r} over {kind} vectors, which takes one of "
                f"{', '.join(allowed)}. For vectors of both kinds give a list of dicts, each with its 'embed_key'."
            )
            raise ConfigError(msg)
        metric = entry.get("metric_type")
        if metric is not None and str(metric).lower() != schema.metric:
            msg = (
                f"index_kwargs asks for the metric {metric!r}; the vectors of this collection are ranked by "
                f"{schema.metric.upper()!r}. Leave 'metric_type' out, or give that."
            )
            raise ConfigError(msg)
        return found


def _choice(entry: Mapping[str, Any], default: str) -> IndexChoice:
    kind = str(entry.get("index_type", default)).upper()
    return IndexChoice(kind, dict(entry.get("params", {})), dict(entry.get("search_params", {})))


def _check_entry(entry: Any) -> None:
    if not isinstance(entry, Mapping):
        msg = f"index_kwargs has {entry!r}; give a mapping, or a list of mappings."
        raise ConfigError(msg)
    for name in entry:
        if name not in _KEYS:
            known = known_names(str(name), _KEYS)
            msg = f"index_kwargs has the key {name!r}. {known} Options of an index go to 'params'."
            raise ConfigError(msg)
    for name in ("params", "search_params"):
        if not isinstance(entry.get(name, {}), Mapping):
            msg = f"index_kwargs[{name!r}] is {entry[name]!r}; give a mapping."
            raise ConfigError(msg)
    for name in ("embed_key", "index_type", "metric_type"):
        if not isinstance(entry.get(name, ""), str):
            msg = f"index_kwargs[{name!r}] is {entry[name]!r}; give a text."
            raise ConfigError(msg)
    kind = entry.get("index_type", "FLAT")
    if kind.upper() not in (*_DENSE, *_SPARSE):
        msg = f"index_kwargs['index_type'] is {kind!r}. {known_names(kind, (*_DENSE, *_SPARSE))}"
        raise ConfigError(msg)
    metric = entry.get("metric_type", "COSINE")
    if metric.upper() not in ("COSINE", "IP", "L2"):
        msg = f"index_kwargs['metric_type'] is {metric!r}. {known_names(metric, ('COSINE', 'IP', 'L2'))}"
        raise ConfigError(msg)


CUT: Final = 2048
"""Characters after which a field's column is cut off."""

_SIGN = 1 << 63
_ORDERED = string.digits + string.ascii_uppercase + string.ascii_lowercase
_END = "Z"  # of an array's element; no code of a byte begins with it, and no other text has it
_EMPTY_ARRAY = "a"
_INTEGERS = (DataType.INT32, DataType.INT64)
_FLOATS = (DataType.FLOAT, DataType.DOUBLE)


def _code(byte: int) -> str:
    """What stands for a byte: itself, or two characters. The codes are ordered, and none begins another."""
    if chr(byte) in "0123456789abcdefghijklmnopqrstuvw":
        return chr(byte)
    if byte < ord("0"):
        return "." + _ORDERED[byte]
    if byte < ord("a"):
        return "A" + _ORDERED[byte - ord("9") - 1]
    lead, rest = divmod(byte - ord("x"), len(_ORDERED))
    return "xyz"[lead] + _ORDERED[rest]


_CODES = tuple(map(_code, range(256)))
_BYTES = {code: chr(byte) for byte, code in enumerate(_CODES)}
_TWO = re.compile("[.Axyz].")


def plain_text(text: str) -> str:
    """A text in digits, letters and full stops, in the order of texts.

    Example:
        >>> plain_text("author 7"), plain_text("茶")
        ('author.W7', 'yoxKy0')
    """
    return "".join([_CODES[byte] for byte in text.encode("utf-8", "surrogatepass")])


def read_text(plain: str) -> str:
    """The text that `plain_text` got.

    Example:
        >>> read_text("author.W7")
        'author 7'
    """
    held = _TWO.sub(lambda code: _BYTES[code[0]], plain)
    return held.encode("latin-1").decode("utf-8", "surrogatepass")


def field_text(field: DocField, value: FieldValue) -> str:
    """A field's value as a text: equal for equal values, "" for a missing one, ordered as the values are.

    Example:
        >>> field_text(DocField(DataType.INT32), -1) < field_text(DocField(DataType.INT32), 1)
        True
        >>> field_text(DocField(DataType.VARCHAR), '" or 1 == 1')
        's.Y.Wor.W1.WA3A3.W1'
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        kind = field.element_type or field.data_type
        return _EMPTY_ARRAY + "".join(_scalar_text(kind, one) + _END for one in value)
    return _scalar_text(field.data_type, value)


def is_told(field: DocField, value: FieldValue, text: str) -> bool:
    """Whether `field_value` makes the same value of the text that `field_text` made of it.

    Args:
        field: The field.
        value: Not None.
        text: All of it.
    """
    if field.data_type is DataType.ARRAY:
        return value == ()
    if field.data_type in _INTEGERS:
        return type(value) is int
    if field.data_type in _FLOATS:
        return type(value) is float and str(value) != "-0.0"
    if field.data_type is DataType.BOOLEAN:
        return type(value) is bool
    return type(value) is str and len(text) < CUT


def field_value(field: DocField, text: str) -> FieldValue:
    """The value that `field_text` got, or anything else where that is not told.

    Example:
        >>> field_value(DocField(DataType.VARCHAR), "sauthor.W7")
        'author 7'
    """
    if not text:
        return None
    if field.data_type is DataType.ARRAY:
        return ()
    if field.data_type in _INTEGERS:
        return _whole_number(text)
    if field.data_type in _FLOATS:
        return _float(int(text, 16))
    if field.data_type is DataType.BOOLEAN:
        return text == "1"
    return read_text(text[1:]) if len(text) < CUT else None


def _scalar_text(data_type: DataType, value: Scalar) -> str:
    if data_type is DataType.BOOLEAN:
        return "1" if value else "0"
    if data_type in _INTEGERS:
        return _whole_text(int(value))
    if data_type in _FLOATS:
        # The bits of positive numbers ascend with them, those of negative ones descend; adding 0.0 turns -0.0 into 0.0.
        [bits] = struct.unpack(">Q", struct.pack(">d", float(value) + 0.0))
        return f"{bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN:016x}"
    return "s" + plain_text(str(value))


def _whole_text(number: int) -> str:
    """A letter for the sign and the number of digits, and hexadecimal digits, which count down below 0."""
    digits = f"{abs(number):x}"
    size = len(digits)
    if number >= 0:
        return chr(ord("a") + size) + digits
    return f"{chr(ord('Q') - size)}{16**size - 1 + number:0{size}x}"


def _whole_number(text: str) -> int:
    held, size = int(text[1:], 16), len(text) - 1
    return held if text >= "a" else held - 16**size + 1


def _float(ordered: int) -> float:
    bits = ordered ^ _SIGN if ordered & _SIGN else ordered ^ (2 * _SIGN - 1)
    [number] = struct.unpack(">d", struct.pack(">Q", bits))
    return float(number)


KEY, VECTOR, ROW = "key", "vector", "row"

LAYOUT = 2
"""Of what rows consist; other versions of lazyrag have others."""

MOST_BYTES = 65_535
"""Of a text in Milvus."""

LEAST_DIMENSION, MOST_DIMENSION = 2, 32_768
"""Of dense vectors, as Milvus documents it. Some versions take one number; Milvus Lite 2.5 fails at the index."""

MOST_COLUMNS = 48
"""Fields with a column of their own, of the 64 columns that Milvus allows; the others are left to us."""

_RANKED, _ASIDE = "0", "1"  # what a row's own column begins with
_SMALLEST, _LARGEST = 2.0**-60, 2.0**60  # squares and products of such numbers are normal float32 numbers
_MOST_DIMENSION = 2**32 - 2  # of a sparse vector in Milvus
_STAND_IN: SparseVector = {0: 1.0}  # Milvus Lite refuses empty vectors and weights below 0
_WINDOW = 16_384  # rows of one answer: Milvus's own limit
_ANSWER_BYTES = 32 * 2**20
_TYPICAL_SPARSE = 4096
_TYPICAL_ROW = 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """What a collection was made with, and keeps as a text of its own.

    Args:
        schema: What was asked for, but for the embed key.
        index_type: Milvus's name of the index over the vectors.
        index_params: What it was built with.

    Example:
        >>> layout = Layout(VectorSchema(2, "cosine", {"year": DocField(DataType.INT32)}), "FLAT", {})
        >>> Layout.parse(layout.text) == layout
        True
    """

    schema: VectorSchema
    index_type: str
    index_params: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the fields, by the fields' names."""
        return columns_of(self.schema.fields)

    @property
    def text(self) -> str:
        """All of it as JSON: the same for equal layouts."""
        told = {
            "layout": LAYOUT,
            "dimension": self.schema.dimension,
            "metric": self.schema.metric,
            "fields": json.loads(schema_text(self.schema.fields)),
            "index_type": self.index_type,
            "index_params": dict(self.index_params),
        }
        return json.dumps({"lazyrag": told}, sort_keys=True)

    @classmethod
    def parse(cls, text: str, collection: str = "") -> Layout | None:
        """What a collection's own text says; None where it is not ours.

        Args:
            text: The collection's.
            collection: Its name, for messages.

        Raises:
            SchemaMismatchError: If its rows are laid out as another version of lazyrag does.
        """
        try:
            told = json.loads(text)["lazyrag"]
            number = told.get("layout", 1)
            fields = {
                name: DocField(DataType(kind), element and DataType(element), default, size)
                for name, (kind, element, default, size) in told["fields"].items()
            }
            schema = VectorSchema(told["dimension"], told["metric"], fields)
            found = cls(schema, told["index_type"], told["index_params"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        if number != LAYOUT:
            msg = (
                f"Collection {collection!r} in Milvus has rows of layout {number}, written by another version of "
                f"lazyrag; this one reads {LAYOUT}. Drop it and read the files again, or use the version that wrote it."
            )
            raise SchemaMismatchError(msg, store="milvus", collection=collection)
        return found


def columns_of(fields: Schema) -> dict[str, str]:
    """The columns of fields that have one, by the fields' names.

    Example:
        >>> columns_of({"year": DocField(DataType.INT32), "author": DocField(DataType.VARCHAR)})
        {'author': 'f0', 'year': 'f1'}
    """
    return {name: f"f{number}" for number, name in enumerate(sorted(fields)[:MOST_COLUMNS])}


def field_columns(fields: Schema) -> tuple[str, ...]:
    """The columns that the fields of a row are made of again."""
    return (ROW, *columns_of(fields).values())


def row_columns(fields: Schema) -> tuple[str, ...]:
    """The columns that a row is made of again."""
    return (KEY, VECTOR, *field_columns(fields))


def written(rows: Sequence[VectorRow], schema: VectorSchema) -> list[dict[str, Any]]:
    """Rows, whose vectors go with the collection, as Milvus keeps them.

    Raises:
        StoreError: If a key or fields are longer than Milvus's texts.
        UnsupportedError: If a vector is so long or short that float32 numbers cannot rank it.
    """
    columns = [(name, column, schema.fields[name]) for name, column in columns_of(schema.fields).items()]
    by_object: dict[int, tuple[dict[str, str], Fields]] = {}  # the rows of one file share their fields
    found = []
    for row, is_aside in zip(rows, _are_aside(rows, schema), strict=True):
        shared = by_object.get(id(row.fields))
        if shared is None:
            shared = by_object[id(row.fields)] = _told_and_others(row.fields, columns)
        told, others = shared
        vector, pairs = row.vector, list[tuple[int, float]]()
        if isinstance(vector, dict) and is_aside:
            vector, pairs = _STAND_IN, [*vector.items()]
        values = {KEY: plain_text(row.key), VECTOR: vector, ROW: "", **told}
        if others or is_aside:
            values[ROW] = (_ASIDE if is_aside else _RANKED) + _json([others, pairs])
        _check_sizes(row.key, values)
        found.append(values)
    return found


def _told_and_others(fields: Fields, columns: Sequence[tuple[str, str, DocField]]) -> tuple[dict[str, str], Fields]:
    """The fields' columns, and those fields that they do not tell."""
    told, others, seen = dict[str, str](), dict[str, FieldValue](), 0
    for name, column, field in columns:
        value = fields.get(name)
        text = field_text(field, value)
        if value is not None and is_told(field, value, text):
            told[column] = text
            seen += 1
        else:
            told[column] = text[:CUT]
            if name in fields:
                others[name] = value
                seen += 1
    if seen < len(fields):
        known = {name for name, _, _ in columns}
        others |= {name: value for name, value in fields.items() if name not in known}
    return told, others


def _check_sizes(key: str, values: Mapping[str, Any]) -> None:
    for what, text in (("a key", values[KEY]), ("fields", values[ROW])):
        if 4 * len(text) > MOST_BYTES and (size := len(text.encode())) > MOST_BYTES:
            msg = (
                f"Row {key[:80]!r} has {what} of {size} bytes as Milvus keeps them; it takes at most {MOST_BYTES}. "
                "Shorten what the fields hold, or keep the vectors in another store."
            )
            raise StoreError(msg, store="milvus")


def row_of(values: Mapping[str, Any], schema: VectorSchema) -> VectorRow:
    """The row that `written` wrote, equal to the first."""
    vector: Embedding
    if schema.is_sparse:
        is_aside = values[ROW].startswith(_ASIDE)
        pairs = _rest(values)[1] if is_aside else values[VECTOR].items()
        vector = {int(at): float(weight) for at, weight in pairs}
    else:
        vector = np.asarray(values[VECTOR], np.float32)
    return VectorRow(read_text(values[KEY]), vector, row_fields(values, schema.fields))


def row_fields(values: Mapping[str, Any], fields: Schema) -> Fields:
    """The fields of the row that `written` wrote in a collection with those fields."""
    found: dict[str, FieldValue] = {}
    for name, column in columns_of(fields).items():
        value = field_value(fields[name], values[column])
        if value is not None:
            found[name] = value
    for name, other in _rest(values)[0].items():
        found[name] = tuple(other) if isinstance(other, list) else other
    return ReadOnly(found)


def _rest(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """What stands in a row's own column: other fields, and the pairs of a sparse vector."""
    text = values[ROW]
    if not text:
        return {}, []
    others, pairs = json.loads(text[1:])
    return others, pairs


def row_bytes(values: Mapping[str, Any]) -> int:
    """About how long a row of `written` is in a message."""
    vector = values[VECTOR]
    size = 8 * len(vector) if isinstance(vector, dict) else 4 * len(vector)
    return size + sum(len(value) for value in values.values() if isinstance(value, str))


def plain_query(query: Embedding, schema: VectorSchema) -> Embedding | None:
    """What to ask Milvus for: it ranks all rows that are not aside as we do. None where there is no such thing."""
    if isinstance(query, dict):
        # Rows that have other dimensions are aside.
        known = {at: weight for at, weight in query.items() if at <= _MOST_DIMENSION}
        return known if all(map(_is_plain, known.values())) else None
    return query if _is_plain(_length(query)) or (schema.metric != "cosine" and not query.any()) else None


def _are_aside(rows: Sequence[VectorRow], schema: VectorSchema) -> list[bool]:
    """Of each row, whether Milvus does not rank it as we do."""
    if schema.is_sparse:
        return [_is_odd(cast("SparseVector", row.vector)) for row in rows]
    vectors = np.stack([cast("Vector", row.vector) for row in rows])
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)).tolist()
    for row, length in zip(rows, lengths, strict=True):
        if length and not _is_plain(length):
            msg = (
                f"Row {row.key[:80]!r} has a vector of length {length:g}; Milvus computes with float32 numbers, and "
                "can rank those from 2**-60 to 2**60 (and 0). Scale the vectors, or keep them in the map store."
            )
            raise UnsupportedError(msg, store="milvus")
    # Milvus 2.3 never finds one without length by the cosine, which is no number there.
    return [schema.metric == "cosine" and not length for length in lengths]


def _is_odd(vector: SparseVector) -> bool:
    return not vector or max(vector) > _MOST_DIMENSION or not all(map(_is_plain, vector.values()))


def _is_plain(number: float) -> bool:
    return _SMALLEST <= number <= _LARGEST


def _length(vector: Any) -> float:
    return math.sqrt(float(np.square(vector, dtype=np.float64).sum()))


def _json(told: Any) -> str:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no message can hold
        return json.dumps(told, separators=(",", ":"))
    return text


def window_of(schema: VectorSchema) -> int:
    """How many rows one answer may hold, at least 1: what Milvus allows, and what messages carry."""
    vector = _TYPICAL_SPARSE if schema.dimension == SPARSE else 4 * schema.dimension
    return max(1, min(_WINDOW, _ANSWER_BYTES // (vector + _TYPICAL_ROW)))


T = TypeVar("T")

TIMEOUT_S = 30.0
NO_DATABASE = "default"
"""The database that every server has; it is neither looked for nor made."""

# A server loads collections after it answers, and after a pause takes its own nodes for gone until they have told that
# they are there; of programs that start Milvus Lite 2.5 at once, one makes their folder.
_NOT_YET = ("collection not loaded", "channel not available", "node offline", "Mmap manager has not been init")
_PROPERTY = "lazyrag"  # beside the description, which Milvus Lite 3 forgets; 2.5 forgets properties
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^/\\:\s]+):\d+/?")
_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_GONE = 100  # Milvus's code for a collection that is not there
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0  # before something is said again
_UNREACHED = 2  # pymilvus's for a connection that failed, Milvus's for a service that is not there


@dataclass(eq=False)
class _File:
    """A file of Milvus Lite that is open in this process.

    Args:
        users: How many connections have it open.
        writing: Held by a writer: Milvus Lite 3 takes one at a time.
    """

    users: int = 0
    writing: threading.Lock = dataclasses.field(default_factory=threading.Lock)


_files: dict[str, _File] = {}
_opening = threading.Lock()


@dataclass(frozen=True, slots=True)
class Nearest:
    """How a search looks.

    Args:
        limit: Most rows for each vector.
        metric: Of the collection.
        params: For its index.
    """

    limit: int
    metric: Metric
    params: Mapping[str, Any]


class MilvusConnection:
    """What the store says to Milvus, in few words.

    Args:
        uri: ``host:port`` or a URL; or the path of a file, which ends in ``.db``.
        db_name: Of the database in a server. A file is one database.
        client_kwargs: For ``pymilvus.MilvusClient``; ``timeout`` is for every call.

    Raises:
        ConfigError: If one of them cannot be right.

    Example:
        >>> MilvusConnection("localhost:19530", "lazyrag", {}).address
        'http://localhost:19530'
    """

    def __init__(self, uri: str | os.PathLike[str], db_name: str, client_kwargs: Mapping[str, Any]) -> None:
        self.path, self.address = _place(uri)
        if not isinstance(db_name, str) or not _DATABASE.fullmatch(db_name):
            msg = f"db_name is {db_name!r}; give at most 255 letters, digits and '_', of which the first is no digit."
            raise ConfigError(msg)
        for name in ("uri", "db_name"):
            if name in client_kwargs:
                msg = f"client_kwargs has {name!r}, which is an argument of the store itself: give it there."
                raise ConfigError(msg)
        timeout_s = client_kwargs.get("timeout", TIMEOUT_S)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
            msg = f"client_kwargs['timeout'] is {timeout_s!r}; give the seconds that a call may take, above 0."
            raise ConfigError(msg)
        self._db_name = db_name
        self._kwargs = {**client_kwargs, "timeout": float(timeout_s)}
        self._timeout_s = float(timeout_s)
        self._client: Any = None
        self._file: _File | None = None
        self.version = ""

    @property
    def is_open(self) -> bool:
        """Whether it has been opened, and not closed since."""
        return self._client is not None

    def open(self) -> None:
        """Connect, and make the database where it is not there. Opening an open connection changes nothing.

        Raises:
            StoreConnectionError: If nothing answers there, or not as Milvus does.
            MissingDependencyError: If pymilvus is not installed.
        """
        with _opening:
            if self.is_open:
                return
            if self.path is None:
                with self._told("the connection", opening=True):
                    self._client = self._server_client()
                    self.version = str(self._client.get_server_version(timeout=self._timeout_s))
            else:
                with self._told("the connection", opening=True):
                    self._client = _pymilvus().MilvusClient(str(self.path), dedicated=True, **self._kwargs)
                self._file = _files.setdefault(str(self.path), _File())
                self._file.users += 1

    def close(self) -> None:
        """Let go of it; the last one lets go of the file, too. Closing a closed connection changes nothing."""
        with _opening:
            if not self.is_open:
                return
            with self._told("the closing"):
                self._client.close()
            self._client = None
            file, self._file = self._file, None
            if file is not None:
                file.users -= 1
                if not file.users:
                    del _files[str(self.path)]
                    from milvus_lite.server_manager import server_manager_instance  # of the extra, as pymilvus

                    server_manager_instance.release_server(str(self.path))

    def layout(self, collection: str) -> Layout | None:
        """What a collection was made with; None where there is no such collection.

        Raises:
            StoreError: If the collection is none of ours.
        """

        def described(client: Any) -> Mapping[str, Any] | None:
            if not client.has_collection(collection, timeout=self._timeout_s):
                return None
            told: Mapping[str, Any] = client.describe_collection(collection, timeout=self._timeout_s)
            return told

        told = self._asked("a description", collection, described)
        if told is None:
            return None
        text = told.get("description") or dict(told.get("properties") or {}).get(_PROPERTY, "")
        found = Layout.parse(text, collection)
        if found is None:
            msg = (
                f"Milvus at {self.address} has a collection {collection!r} that was not made by this package. Name "
                "another database with db_name=, or drop the collection."
            )
            raise StoreError(msg, store="milvus", collection=collection)
        return found

    def create(self, collection: str, layout: Layout) -> None:
        """Make a collection; that there is one already, of the same layout or another, is fine."""

        def made(client: Any) -> None:
            try:
                client.create_collection(
                    collection,
                    schema=_columns(layout),
                    consistency_level="Strong",
                    properties={_PROPERTY: layout.text},
                    timeout=self._timeout_s,
                )
            except _pymilvus().MilvusException:
                if not client.has_collection(collection, timeout=self._timeout_s):
                    raise

        self._asked("a new collection", collection, made, writes=True)

    def make_ready(self, collection: str, metric: Metric, index: IndexChoice) -> None:
        """Give a collection its index, if a crash has left it without, and load it."""

        def ready(client: Any) -> None:
            if not client.list_indexes(collection, field_name=VECTOR):
                params = client.prepare_index_params()
                params.add_index(VECTOR, index_type=index.type, metric_type=metric.upper(), params=dict(index.params))
                client.create_index(collection, params, timeout=self._timeout_s)
            client.load_collection(collection, timeout=self._timeout_s)

        self._asked("an index", collection, ready, writes=True)

    def drop(self, collection: str) -> None:
        """Remove a collection; one that is not there is fine."""
        self._asked(
            "a removal",
            collection,
            lambda client: client.drop_collection(collection, timeout=self._timeout_s),
            writes=True,
        )

    def count(self, collection: str) -> int:
        """How many rows there are."""
        [found] = self._asked(
            "a count",
            collection,
            lambda client: client.query(collection, "", output_fields=["count(*)"], **self._strong),
        )
        return int(found["count(*)"])

    def upsert(self, collection: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows, which have distinct keys."""
        data = [dict(row) for row in rows]
        self._asked(
            "rows", collection, lambda client: client.upsert(collection, data, timeout=self._timeout_s), writes=True
        )

    def delete(self, collection: str, expression: str) -> None:
        """Delete rows by an expression over their keys."""
        self._asked(
            "a deletion",
            collection,
            lambda client: client.delete(collection, filter=expression, timeout=self._timeout_s),
            writes=True,
        )

    def rows(
        self, collection: str, expression: str, columns: Sequence[str], limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The first rows, by key, for which an expression holds; ``key`` is always among the columns.

        Without a limit all of them, in no order: for expressions that name keys, which Milvus then looks up.
        """
        asked = {"output_fields": list(columns), **self._strong}
        if limit is not None:
            # As an iterator asks: without it, Milvus Lite 3 cuts rows off in the order in which they were written.
            # With it, it sorts all rows.
            asked |= {"limit": limit, "iterator": "True"}
        found = self._asked("a query", collection, lambda client: client.query(collection, expression, **asked))
        return [dict(row) for row in found]

    def nearest(
        self, collection: str, vectors: Sequence[Any], expression: str, columns: Sequence[str], how: Nearest
    ) -> list[list[tuple[dict[str, Any], float]]]:
        """For each vector the nearest rows for which an expression holds, each with the distance that Milvus tells."""
        asked = {
            "data": list(vectors),
            "filter": expression,
            "limit": how.limit,
            "output_fields": list(columns),
            "search_params": {"metric_type": how.metric.upper(), "params": dict(how.params)},
            "anns_field": VECTOR,
            **self._strong,
        }
        found = self._asked("a search", collection, lambda client: client.search(collection, **asked))
        return [[({**hit["entity"], KEY: hit.id}, float(hit["distance"])) for hit in hits] for hits in found]

    @property
    def _strong(self) -> dict[str, Any]:
        """What every read says: all that was acknowledged is to be seen."""
        return {"consistency_level": "Strong", "timeout": self._timeout_s}

    def _server_client(self) -> Any:
        client = _pymilvus().MilvusClient
        if self._db_name != NO_DATABASE:
            with _closed_after(client(self.address, dedicated=True, **self._kwargs)) as first:
                if self._db_name not in first.list_databases(timeout=self._timeout_s):
                    try:
                        first.create_database(self._db_name, timeout=self._timeout_s)
                    except _pymilvus().MilvusException:
                        if self._db_name not in first.list_databases(timeout=self._timeout_s):  # nobody else made it
                            raise
        return client(self.address, db_name=self._db_name, dedicated=True, **self._kwargs)

    def _asked(self, what: str, collection: str, say: Callable[[Any], T], *, writes: bool = False) -> T:
        """What Milvus answers. What fails because it cannot be reached is said again, until the timeout.

        Everything that is said here may be said twice. pymilvus repeats some of it itself, but not while a server is
        starting.
        """
        until, pause_s = time.monotonic() + self._timeout_s, _FIRST_PAUSE_S
        while True:
            client, file = self._client, self._file
            if client is None:
                msg = f"The Milvus store at {self.address} is not open. Call open() first."
                raise StoreError(msg, store="milvus", collection=collection)
            try:
                with self._told(what, collection), file.writing if writes and file is not None else nullcontext():
                    return say(client)
            except StoreConnectionError:
                if time.monotonic() + pause_s > until:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @contextmanager
    def _told(self, what: str, collection: str = "", *, opening: bool = False) -> Iterator[None]:
        """Within, what pymilvus and what it stands on raise becomes ours."""
        errors = (_pymilvus().MilvusException, _grpc().RpcError, ValueError, RuntimeError, OSError)
        try:
            yield
        except errors as exc:
            raise self._error(what, collection, exc, opening=opening) from exc

    def _error(self, what: str, collection: str, exc: Exception, *, opening: bool) -> StoreError:
        code = getattr(exc, "code", None)
        code = code() if callable(code) else code
        cause = sentence(getattr(exc, "message", "") or _details(exc))
        if code == _GONE:
            return no_collection(self.address, collection)
        kinds = _grpc().StatusCode
        lost = (_UNREACHED, kinds.UNAVAILABLE, kinds.DEADLINE_EXCEEDED, kinds.CANCELLED)
        if not opening and code not in lost and not any(told in cause for told in _NOT_YET):
            msg = f"Milvus at {self.address} refused {what}: {cause}"
            return StoreError(msg, store="milvus", collection=collection)
        advice = (
            "Start Milvus there, or give the path of a file that ends in '.db' as the uri: Milvus Lite keeps it."
            if self.path is None
            else "Only one program can have such a file open; its folder must be there."
        )
        tried = "Cannot connect to" if opening else f"Cannot reach, for {what},"
        msg = f"{tried} Milvus at {self.address} (timeout {self._timeout_s:g} s): {cause} {advice}"
        return StoreConnectionError(msg, store="milvus", collection=collection)


def no_collection(address: str, collection: str) -> StoreError:
    """The error for a collection that is not there."""
    msg = f"Milvus at {address} has no collection {collection!r}. Create it first."
    return StoreError(msg, store="milvus", collection=collection)


def _columns(layout: Layout) -> Any:
    """A collection's schema for pymilvus; its own text stands in its description and in a property."""
    kinds = _pymilvus().DataType
    columns = _pymilvus().MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=layout.text)
    columns.add_field(KEY, kinds.VARCHAR, is_primary=True, max_length=MOST_BYTES)
    if layout.schema.is_sparse:
        columns.add_field(VECTOR, kinds.SPARSE_FLOAT_VECTOR)
    else:
        columns.add_field(VECTOR, kinds.FLOAT_VECTOR, dim=layout.schema.dimension)
    columns.add_field(ROW, kinds.VARCHAR, max_length=MOST_BYTES)
    for column in layout.columns.values():
        columns.add_field(column, kinds.VARCHAR, max_length=MOST_BYTES)
    return columns


def _place(uri: str | os.PathLike[str]) -> tuple[Path | None, str]:
    """The path of a file, None for a server; and how it is called, which for a server is its URL."""
    text = os.fspath(uri) if isinstance(uri, (str, os.PathLike)) else ""
    if isinstance(text, str) and text:
        if "://" in text:
            return None, text
        if _SERVER.fullmatch(text):
            return None, f"http://{text.rstrip('/')}"
        if text.endswith(".db"):
            path = Path(os.path.realpath(Path(text).expanduser()))
            return path, str(path)
    msg = (
        f"uri is {uri!r}; give the address of a Milvus server, such as 'localhost:19530', or the path of a file that "
        "ends in '.db'."
    )
    raise ConfigError(msg)


@contextmanager
def _closed_after(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        with suppress(Exception):  # what went wrong before is to be heard
            client.close()


def _details(exc: Exception) -> str:
    details = getattr(exc, "details", None)
    return str(details() if callable(details) else exc) or type(exc).__name__


def _pymilvus() -> Any:
    try:
        import pymilvus  # an extra, and half a second
    except ModuleNotFoundError as exc:
        raise missing_package("The Milvus store", exc, "milvus") from exc
    return pymilvus


def _grpc() -> Any:
    import grpc  # what pymilvus speaks; not all of its errors become pymilvus's

    return grpc


_ORDERINGS = {"gt": (">", "<="), "ge": (">=", "<"), "lt": ("<", ">="), "le": ("<=", ">")}
_MOST_VALUES = 10_000  # in one list: beyond, messages grow too long, and we look ourselves


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition in Milvus's language, and its negation.

    Milvus Lite 2.5 cannot negate all that it can say; both are written side by side, and no expression has a ``not``
    in front of it.

    Args:
        text: What holds.
        negation: What holds where that does not.
    """

    text: str
    negation: str


NEVER = f'{KEY} < ""'
ALWAYS = f'{KEY} >= ""'
IS_ASIDE = f'{ROW} >= "1"'
NOT_ASIDE = f'{ROW} < "1"'


def literal(text: str) -> str:
    """A text in quotes: the one way by which values get into expressions.

    Only what `plain_text` and `field_text` write is let through, which is letters, digits and full stops: servers of
    different versions unescape texts by different rules, and nothing that is written here depends on them.

    Raises:
        StoreError: If the text holds anything else.

    Example:
        >>> literal("s27")
        '"s27"'
    """
    if not text or (text.isascii() and text.replace(".", "").isalnum()):
        return f'"{text}"'
    msg = f"{text!r:.80} cannot stand in an expression of Milvus: a value is to be encoded before. This is a bug."
    raise StoreError(msg, store="milvus")


def key_among(keys: Sequence[str]) -> str:
    """What holds for the rows of some keys, at least one.

    Example:
        >>> key_among(["a", "b"])
        'key in ["a","b"]'
    """
    return f"{KEY} in [{','.join(literal(plain_text(key)) for key in keys)}]"


def key_after(key: str) -> str:
    """What holds for the rows behind a key.

    Example:
        >>> key_after("a")
        'key > "a"'
    """
    return f"{KEY} > {literal(plain_text(key))}"


def all_of(*texts: str) -> str:
    """What holds where each of some expressions does.

    Example:
        >>> all_of('f0 > ""', "")
        'f0 > ""'
    """
    given = [text for text in texts if text]
    return given[0] if len(given) == 1 else " and ".join(f"({text})" for text in given)


class MilvusDialect:
    """See `Dialect`. Every field's column holds `field_text`, of which the first `CUT` characters.

    A literal that is shorter than that compares with the cut text as with the whole: they differ, if at all, within
    its length or right behind it. Longer ones, and what looks into texts and arrays, are left to us.

    Args:
        fields: Of the collection.

    Example:
        >>> from lazyrag.data.fields import DataType
        >>> dialect = MilvusDialect({"author": DocField(DataType.VARCHAR)})
        >>> dialect.condition(Condition("author", "in", ["a", None]))
        Expression(text='f0 in ["sa",""]', negation='f0 not in ["sa",""]')
    """

    def __init__(self, fields: Schema) -> None:
        self._fields = fields
        self._columns = columns_of(fields)

    def condition(self, condition: Condition) -> Expression | None:
        """See `Dialect.condition`."""
        column, op, value = self._columns.get(condition.field), condition.op, condition.value
        if column is None or op == "contains":
            return None
        field = self._fields[condition.field]
        if op == "exists":
            return _either(f'{column} != ""', f'{column} == ""', is_first=value)
        if op in ("in", "not in"):
            return self._among(column, field, value, is_in=op == "in")
        text = _short(field, value)
        return None if text is None else _compared(column, op, text)

    def all_of(self, parts: Sequence[Expression]) -> Expression:
        """See `Dialect.all_of`."""
        return Expression(
            _joined(" and ", [one.text for one in parts]), _joined(" or ", [one.negation for one in parts])
        )

    def any_of(self, parts: Sequence[Expression]) -> Expression:
        """See `Dialect.any_of`."""
        return Expression(
            _joined(" or ", [one.text for one in parts]), _joined(" and ", [one.negation for one in parts])
        )

    def negated(self, part: Expression) -> Expression:
        """See `Dialect.negated`."""
        return Expression(part.negation, part.text)

    def never(self) -> Expression:
        """See `Dialect.never`."""
        return Expression(NEVER, ALWAYS)

    def _among(self, column: str, field: DocField, values: Sequence[FieldValue], *, is_in: bool) -> Expression | None:
        if field.element_type is not None or len(values) > _MOST_VALUES:
            return None  # of an array any element may be meant
        texts = [_short(field, one) for one in dict.fromkeys(values)]
        if None in texts:
            return None
        if not texts:  # Milvus Lite 2.5 fails on an empty list
            return _either(NEVER, ALWAYS, is_first=is_in)
        listed = f"[{','.join(map(str, texts))}]"
        return _either(f"{column} in {listed}", f"{column} not in {listed}", is_first=is_in)


def divided(filter: Filter | None, fields: Schema) -> tuple[str, Filter | None]:  # noqa: A002  the word of the domain
    """A bound filter as an expression, "" where it asks nothing of Milvus, and what is left to us.

    Example:
        >>> from lazyrag.data.fields import DataType
        >>> divided(Condition("year", "exists"), {"year": DocField(DataType.INT32)})
        ('f0 != ""', None)
    """
    pushed: Pushed[Expression] = pushed_down(filter, MilvusDialect(fields))
    return ("" if pushed.native is None else pushed.native.text), pushed.rest


def _compared(column: str, op: str, text: str) -> Expression:
    if op in ("eq", "ne"):
        return _either(f"{column} == {text}", f"{column} != {text}", is_first=op == "eq")
    sign, inverse = _ORDERINGS[op]
    if op in ("gt", "ge"):  # the "" of a missing value comes before all others
        return Expression(f"{column} {sign} {text}", f"{column} {inverse} {text}")
    return Expression(f'{column} {sign} {text} and {column} != ""', f'{column} {inverse} {text} or {column} == ""')


def _either(first: str, second: str, *, is_first: bool) -> Expression:
    return Expression(first, second) if is_first else Expression(second, first)


def _joined(word: str, texts: Sequence[str]) -> str:
    return word.join(f"({text})" for text in texts)


def _short(field: DocField, value: FieldValue) -> str | None:
    """A value's literal; None where it is so long that its column may hold only its beginning."""
    text = field_text(field, value)
    return literal(text) if len(text) < CUT else None


KEYS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """What the rows of an answer must meet.

    Args:
        expression: What Milvus looks at; "" for nothing.
        rest: What we look at; None for nothing.
    """

    expression: str
    rest: Filter | None

    def keeps(self, fields: Fields) -> bool:
        """Whether a row that Milvus let through meets the rest."""
        return self.rest is None or matches(self.rest, fields)


@dataclass(frozen=True, slots=True)
class MilvusCollection:
    """A collection that is there, has its index and is loaded.

    Args:
        connection: To the Milvus that has it.
        name: There.
        schema: It was made with.
        index: Over its vectors.
    """

    connection: MilvusConnection
    name: str
    schema: VectorSchema
    index: IndexChoice

    @property
    def window(self) -> int:
        """How many rows one answer may hold."""
        return window_of(self.schema)

    def asked(self, filter: Filter | None) -> Asked:  # noqa: A002  the word of the domain
        """A bound filter, divided between Milvus and us."""
        return Asked(*divided(filter, self.schema.fields))

    def get(self, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        found: dict[str, VectorRow] = {}
        for some in pieces([*dict.fromkeys(keys)], min(self.window, KEYS_AT_ONCE)):
            rows = self._rows(key_among(some), row_columns(self.schema.fields))
            found |= {row.key: row for row in (row_of(values, self.schema) for values in rows)}
        return [found[key] for key in keys if key in found]

    def present(self, keys: Sequence[str]) -> list[str]:
        """Those of some keys that are there, each once."""
        found: list[str] = []
        for some in pieces([*dict.fromkeys(keys)], KEYS_AT_ONCE):
            rows = self._rows(key_among(some), (KEY,))
            found += [read_text(values[KEY]) for values in rows]
        return found

    def matching(self, filter: Filter) -> list[str]:  # noqa: A002  the word of the domain
        """The keys of the rows that meet a bound filter."""
        asked = self.asked(filter)
        columns = (KEY,) if asked.rest is None else (KEY, *field_columns(self.schema.fields))
        return [
            read_text(values[KEY])
            for page in self._pages(asked.expression, columns)
            for values in page
            if asked.rest is None or matches(asked.rest, row_fields(values, self.schema.fields))
        ]

    def scan(self, after: str, limit: int) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        pages = self._pages("", row_columns(self.schema.fields), after=after, limit=limit)
        return [row_of(values, self.schema) for page in pages for values in page]

    def read(self, asked: Asked, *, expression: str = "") -> Iterator[list[VectorRow]]:
        """All rows that meet what is asked, and an expression besides, page by page."""
        for page in self._pages(all_of(asked.expression, expression), row_columns(self.schema.fields)):
            yield [row for row in (row_of(values, self.schema) for values in page) if asked.keeps(row.fields)]

    def nearest(self, queries: Sequence[Embedding], depth: int, asked: Asked) -> list[list[Candidate]]:
        """The nearest rows to some queries as Milvus ranks them, of those that meet what it looks at."""
        found = self._hits(queries, depth, asked, row_columns(self.schema.fields))
        return [[Candidate(row_of(values, self.schema), worth) for values, worth in one] for one in found]

    def nearest_keys(
        self, queries: Sequence[Embedding], depth: int, asked: Asked
    ) -> list[list[tuple[str, float, Fields]]]:
        """The same rows as keys, each with its worth, see `Candidate`, and with its fields if we are to look at them.

        Their vectors are not sent.
        """
        fields = None if asked.rest is None else self.schema.fields
        found = self._hits(queries, depth, asked, () if fields is None else field_columns(fields))
        return [
            [
                (read_text(values[KEY]), far, EMPTY if fields is None else row_fields(values, fields))
                for values, far in one
            ]
            for one in found
        ]

    def _hits(
        self, queries: Sequence[Embedding], depth: int, asked: Asked, columns: Sequence[str]
    ) -> list[list[tuple[dict[str, Any], float]]]:
        found: list[list[tuple[dict[str, Any], float]]] = []
        how = Nearest(depth, self.schema.metric, self.index.params_for(depth))
        sign = -1.0 if self.schema.metric == "l2" else 1.0
        for some in pieces(queries, max(1, self.window // depth)):
            hits = self.connection.nearest(self.name, some, all_of(asked.expression, NOT_ASIDE), columns, how)
            found += [[(values, sign * far) for values, far in one] for one in hits]
        return found

    def _pages(
        self, expression: str, columns: Sequence[str], *, after: str = "", limit: int | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Rows in the order of their keys, in answers that are not too long; at most ``limit`` in all."""
        while limit is None or limit > 0:
            size = self.window if limit is None else min(limit, self.window)
            behind = key_after(after) if after else ALWAYS
            page = self._rows(all_of(behind, expression), columns, size)
            if not page:  # a page may be short though there is more behind it
                return
            yield page
            after = read_text(page[-1][KEY])
            limit = None if limit is None else limit - len(page)

    def _rows(self, expression: str, columns: Sequence[str], limit: int | None = None) -> list[dict[str, Any]]:
        # Milvus Lite 2.5 fails to read sparse vectors where there never was a row.
        is_wary = self.schema.is_sparse and VECTOR in columns and self.connection.path is not None
        if is_wary and not self.connection.rows(self.name, expression, (KEY,), 1):
            return []
        return self.connection.rows(self.name, expression, columns, limit)


def pieces(some: Sequence[T], size: int) -> Iterator[list[T]]:
    """A sequence, cut up.

    Example:
        >>> [*pieces("abc", 2)]
        [['a', 'b'], ['c']]
    """
    for first in range(0, len(some), size):
        yield list(some[first : first + size])


_DEEPER = 4  # times as many rows, where a part of the filter is left to us


Fetch: TypeAlias = Callable[[int], list[T]]
"""The n rows nearest to a query as Milvus ranks them, best first."""


class _TooDeepError(Exception):
    """More rows would have to be fetched at once than an answer may hold."""


class _Candidates(Generic[T]):
    """The rows nearest to some queries, at any depth.

    What one query asks for first is fetched for all of them in few messages, as all begin at the same depth.

    Args:
        queries: That Milvus can rank rows for.
        nearest: So many rows for each of some queries.
        window: How many rows one answer may hold.
    """

    def __init__(
        self, queries: Sequence[Embedding], nearest: Callable[[Sequence[Embedding], int], list[list[T]]], window: int
    ) -> None:
        self._queries = queries
        self._nearest = nearest
        self._window = window
        self._first: tuple[int, list[list[T]]] | None = None

    def fetch(self, number: int, depth: int) -> list[T]:
        """The rows nearest to one of the queries; _TooDeepError where no answer may hold so many."""
        if depth > self._window:
            raise _TooDeepError
        if self._first is None:
            self._first = depth, self._nearest(self._queries, depth)
        first, found = self._first
        if depth == first:
            return found[number]
        return self._nearest([self._queries[number]], depth)[0]


class _Aside:
    """The rows that Milvus cannot rank, and that meet what is asked; few, and the same for all queries of a search.

    Args:
        collection: That has them.
        asked: What they must meet.
    """

    def __init__(self, collection: MilvusCollection, asked: Asked) -> None:
        self._collection = collection
        self._asked = asked

    @functools.cached_property
    def rows(self) -> list[VectorRow]:
        """Read when they are first needed."""
        return [row for page in self._collection.read(self._asked, expression=IS_ASIDE) for row in page]


def exact_rankings(
    collection: MilvusCollection,
    vectors: Embeddings,
    topk: int,
    filter: Filter | None,  # noqa: A002  the word of the domain
) -> list[Ranking]:
    """See `VectorStore.search`."""
    asked = collection.asked(filter)
    fetches = _fetches(collection, vectors, topk, functools.partial(collection.nearest, asked=asked))
    aside = _Aside(collection, asked)
    return [
        _by_reading(collection, query, topk, asked)
        if fetch is None
        else _ranking(collection, query, topk, asked, fetch, aside)
        for query, fetch in zip(vectors, fetches, strict=True)
    ]


def native_rankings(
    collection: MilvusCollection,
    vectors: Embeddings,
    topk: int,
    filter: Filter | None,  # noqa: A002  the word of the domain
) -> list[Ranking]:
    """See `NativeVectors.search_natively`."""
    asked = collection.asked(filter)
    fetches = _fetches(collection, vectors, topk, functools.partial(collection.nearest_keys, asked=asked))
    return [[] if fetch is None else _native(collection, topk, asked, fetch) for fetch in fetches]


def _fetches(
    collection: MilvusCollection,
    vectors: Embeddings,
    topk: int,
    nearest: Callable[[Sequence[Embedding], int], list[list[T]]],
) -> list[Fetch[T] | None]:
    """For each query the rows nearest to it at any depth; None where Milvus cannot rank rows for it.

    Raises:
        ConfigError: As every store does, see `VectorStore.search`.
    """
    schema = collection.schema
    check_queries(schema, vectors, topk)
    plain = [plain_query(one, schema) for one in vectors]
    candidates = _Candidates([query for query in plain if query is not None], nearest, collection.window)
    numbers = itertools.count()
    return [None if query is None else functools.partial(candidates.fetch, next(numbers)) for query in plain]


def _ranking(
    collection: MilvusCollection, query: Embedding, topk: int, asked: Asked, fetch: Fetch[Candidate], aside: _Aside
) -> Ranking:
    """The exact ranking: of candidates, and of the rows that Milvus cannot rank; else of all rows."""
    try:
        ranking = exact_ranking(query, topk, collection.schema, fetch, rest=asked.rest)
    except _TooDeepError:
        return _by_reading(collection, query, topk, asked)
    schema = collection.schema
    # Of dense rows those without length are aside, under the cosine, by which they score 0.
    if not schema.is_sparse and (schema.metric != "cosine" or (len(ranking) == topk and ranking[-1][1] > 0)):
        return ranking
    return _with(ranking, collection, query, topk, aside.rows)


def _by_reading(collection: MilvusCollection, query: Embedding, topk: int, asked: Asked) -> Ranking:
    """The best of all rows that meet what is asked."""
    best: Ranking = []
    for rows in collection.read(asked):
        best = _with(best, collection, query, topk, rows)
    return best


def _with(
    ranking: Ranking, collection: MilvusCollection, query: Embedding, topk: int, rows: Sequence[VectorRow]
) -> Ranking:
    """The best of a ranking and of other rows."""
    both = ranking + ranking_of(query, topk, collection.schema, rows)
    return sorted(both, key=lambda pair: (-pair[1], pair[0]))[:topk]


def _native(collection: MilvusCollection, topk: int, asked: Asked, fetch: Fetch[tuple[str, float, Fields]]) -> Ranking:
    depth = min(topk, collection.window)
    while True:
        found = fetch(depth)
        kept = [(key, worth) for key, worth, fields in found if asked.keeps(fields)]
        if len(kept) >= topk or len(found) < depth or depth == collection.window:
            scored = [(key, _score(collection.schema.metric, worth)) for key, worth in kept]
            return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:topk]
        depth = min(_DEEPER * depth, collection.window)


def _score(metric: Metric, worth: float) -> float:
    """What `VectorStore.search` says of a row, from what Milvus says of it."""
    return 1.0 / (1.0 + max(0.0, -worth) ** 0.5) if metric == "l2" else worth


_UPSERT_BYTES = 8 * 2**20  # of one message; servers take 64 MiB
_FIRST_SPARSE = (2, 4)  # the version of a server that keeps sparse vectors: an older one dies of such a column


@known_arguments
class MilvusVectorStore:
    """Vectors in Milvus (spec 001's ``milvus``), read with strong consistency and ranked exactly unless told otherwise.

    Milvus's own search gives candidates, which are scored again from the stored vectors. Where its answer cannot hold
    enough of them (more than 16,384 rows, or a tie as wide as that), all rows that meet the filter are read. With an
    index that is not exact, near rows may be missing among the candidates, and the store does not declare ``exact``.

    Args:
        uri: The address of a server, such as ``localhost:19530`` or a URL; or the path of a file that ends in ``.db``,
            which Milvus Lite makes where there is none, and which one program at a time can have open.
        db_name: The database in a server, made where there is none; a file is a database of its own.
        client_kwargs: For ``pymilvus.MilvusClient``: ``user``, ``password``, ``token`` ... Its ``timeout``, 30 seconds
            if left out, is for every call with all its repetitions.
        index_kwargs: See `IndexSettings`. A collection keeps the index that it was made with.

    Raises:
        ConfigError: If an argument cannot be right.

    Example:
        >>> store = MilvusVectorStore("localhost:19530", index_kwargs={"index_type": "HNSW", "params": {"M": 16}})
        >>> sorted(store.features)
        ['native vectors', 'persistent', 'shared']
    """

    def __init__(
        self,
        uri: str | PathLike[str],
        *,
        db_name: str = "lazyrag",
        client_kwargs: Mapping[str, Any] | None = None,
        index_kwargs: IndexKwargs = None,
    ) -> None:
        if not isinstance(client_kwargs or {}, Mapping):
            msg = f"client_kwargs is {client_kwargs!r}; give a mapping of keyword arguments."
            raise ConfigError(msg)
        self._settings = IndexSettings(index_kwargs)
        self._connection = MilvusConnection(uri, db_name, client_kwargs or {})
        self._collections: dict[str, MilvusCollection] = {}

    @property
    def features(self) -> frozenset[Feature]:
        """Persistent; a server also shared; exact with exact indexes; sparse where Milvus is (servers from 2.4 on)."""
        found: set[Feature] = {"persistent", "native vectors"}
        if self._connection.path is None:
            found.add("shared")
        if self._settings.are_exact:
            found.add("exact")
        if self._keeps_sparse:
            found.add("sparse")
        return frozenset(found)

    @property
    def location(self) -> Location:
        """See `Located.location`."""
        return Location(self._connection.address, is_server=self._connection.path is None)

    def open(self) -> None:
        """See `Store.open`. StoreConnectionError if Milvus does not answer within the timeout."""
        self._connection.open()

    def close(self) -> None:
        """See `Store.close`."""
        self._collections.clear()
        self._connection.close()

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`. ConfigError for an index that does not go with the schema."""
        check_schema(schema)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", collection):
            msg = f"Milvus cannot name a collection {collection!r}: letters, digits and '_' only, no digit first."
            raise ConfigError(msg)
        if schema.is_sparse and not self._keeps_sparse:
            msg = (
                f"Milvus at {self._connection.address} (version {self._connection.version or 'unknown'}) keeps no "
                "sparse vectors; servers do from 2.4 on, and Milvus Lite does. Use such a one, or the map store."
            )
            raise UnsupportedError(msg, store="milvus", collection=collection)
        if not schema.is_sparse and not LEAST_DIMENSION <= schema.dimension <= MOST_DIMENSION:
            msg = (
                f"Milvus keeps vectors of {LEAST_DIMENSION} to {MOST_DIMENSION} numbers; these have "
                f"{schema.dimension}. Use the map store for them."
            )
            raise UnsupportedError(msg, store="milvus", collection=collection)
        index = self._settings.choice(schema)
        wanted = Layout(schema, index.type, index.params)
        present = self._connection.layout(collection)
        if present is None:
            self._connection.create(collection, wanted)
            present = self._connection.layout(collection)
        if present is None or present.text != wanted.text:
            raise _other_layout(collection, wanted, present)
        self._ready(collection, schema, index)

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        self._collections.pop(collection, None)
        self._connection.drop(collection)

    def count(self, collection: str) -> int:
        """See `Store.count`."""
        return self._connection.count(self._known(collection).name)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`. Batches are written one after the other, each as a whole."""
        schema = self._known(collection).schema
        last = {row.key: row for row in rows}  # of a key that stands twice, the later row counts
        check_vectors(collection, schema.dimension, last.values(), store="milvus")
        if not last:
            return
        part_of_rows([*last.values()], schema.dimension)  # refuses what no ranking could be made of
        for batch in _batches(written([*last.values()], schema)):
            self._connection.upsert(collection, batch)

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        return self._known(collection).get(keys)

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        return self._known(collection).scan(after, limit)

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> int:
        """See `VectorStore.delete`."""
        known = self._known(collection)
        # Milvus counts keys that it was given, not rows that it had: those that are there are looked up first.
        check_deletion(keys, filter)
        gone = known.present(keys or ()) if filter is None else known.matching(filter)
        for some in pieces(gone, KEYS_AT_ONCE):
            self._connection.delete(collection, key_among(some))
        return len(gone)

    def search(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `VectorStore.search`."""
        return exact_rankings(self._known(collection), vectors, topk, filter)

    def search_natively(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002  the word of the protocol
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`. At most as many rows as one answer of Milvus may hold.

        What Milvus cannot rank is found by nobody: vectors without length under the cosine, and sparse vectors with
        weights below 0, or dimensions beyond 32 bits.
        """
        return native_rankings(self._known(collection), vectors, topk, filter)

    @property
    def _keeps_sparse(self) -> bool:
        if self._connection.path is not None:
            return True
        version = self._connection.version
        numbers = re.match(r"v?(\d+)\.(\d+)", version)
        if numbers is None:
            return version.startswith("milvus_lite")  # Milvus Lite as a server
        return (int(numbers[1]), int(numbers[2])) >= _FIRST_SPARSE

    def _known(self, collection: str) -> MilvusCollection:
        """A collection, described and loaded once.

        Raises:
            StoreError: If there is none of that name.
        """
        found = self._collections.get(collection)
        if found is None:
            layout = self._connection.layout(collection)
            if layout is None:
                raise no_collection(self._connection.address, collection)
            found = self._ready(collection, layout.schema, IndexChoice(layout.index_type, layout.index_params, {}))
        return found

    def _ready(self, collection: str, schema: VectorSchema, index: IndexChoice) -> MilvusCollection:
        self._connection.make_ready(collection, schema.metric, index)
        found = self._collections[collection] = MilvusCollection(self._connection, collection, schema, index)
        return found


def _other_layout(collection: str, wanted: Layout, present: Layout | None) -> SchemaMismatchError:
    asked, held = (
        f"dimension {one.schema.dimension}, metric {one.schema.metric!r}, index {one.index_type} "
        f"{dict(one.index_params)}, fields {sorted(one.schema.fields)}"
        for one in (wanted, present or wanted)
    )
    msg = (
        f"Collection {collection!r} was made with {held}; asked for was {asked}. Open it with what it was made "
        "with, or drop it."
    )
    return SchemaMismatchError(msg, store="milvus", collection=collection)


def _batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Rows in messages of a length that servers take."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        own = row_bytes(row)
        if batch and size + own > _UPSERT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += own
    if batch:
        yield batch
