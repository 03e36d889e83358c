"""Segments as documents of OpenSearch."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from lazyrag.data.fields import DataType, Schema, read_schema, schema_text
from lazyrag.data.filters import Condition
from lazyrag.data.segment import (
    EMPTY,
    Location,
    ReadOnly,
    Segment,
    content_text,
    digest,
    key_build,
    key_uid,
)
from lazyrag.errors import ConfigError
from lazyrag.stores.opensearch_client import STORE, dump_json
from lazyrag.stores.protocol import LAYOUT, VectorRow, batches, check_layout, join_parts
from lazyrag.stores.sqlite import JSON_ENCODER, mapping_as_dict
from lazyrag.text.analyzers import term_function
from lazyrag.types import Fields, FieldValue, JsonObject, Metric, Scalar, Vector

Query: TypeAlias = dict[str, Any]
"""A query of OpenSearch, as JSON."""

# Fields of a document, and the key of the index's own settings.
KEY: Final = "key"
SEGMENT: Final = "segment"
TERMS: Final = "terms"
VECTOR: Final = "vector"  # of an index of vectors
PRESENT: Final = "present"  # the names of the fields that a row has
# Fields for people and other tools: what they show is part of SEGMENT, too, or of _FIELD.
TEXT: Final = "text"  # the content, which SEGMENT leaves out where it is a text
_PATH: Final = "path"
_SPAN: Final = "span"
_READABLE_FIELDS: Final = "meta"  # other names of those in _FIELD
_FIELD: Final = "field"  # an object with the values of the fields by name; arrays as several values
_ARRAYS: Final = "whole"  # an object with the arrays by name, each as one value
_META = "lazyrag"
_OWN_NAMES = (
    _META,
    KEY,
    SEGMENT,
    TERMS,
    PRESENT,
    _FIELD,
    _ARRAYS,
    _PATH,
    _SPAN,
    _READABLE_FIELDS,
    VECTOR,
)
_LAYOUTS = (LAYOUT, 3)  # that can be read and written; 2 has no fields for people

_SIMILARITY = "lazyrag"
_MAX_PATH_LENGTH = 8_000  # characters; longer ones are not searchable
_MAX_TERM_LENGTH = 200  # characters; OpenSearch's tokenizer splits terms of more than 255
_MAX_TEXT_LENGTH = 256  # characters of a text that are indexed unchanged
_CUT_MARK = "\ud7ff"  # unassigned, and the last character before the surrogates
_CUT_AT = re.compile("[\ud7ff-\udfff]")
_INDEX_TYPES = {
    DataType.BOOLEAN: "boolean",
    DataType.INT32: "integer",
    DataType.INT64: "long",
    DataType.FLOAT: "double",
    DataType.DOUBLE: "double",
    DataType.VARCHAR: "keyword",
    DataType.DATE: "keyword",  # ISO days sort as texts do
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a collection's documents.

    Args:
        schema: The fields that filters read.
        analysers: Names of the registered analysers whose terms are indexed, sorted.
        dimension: Of vectors; 0 for segments.
        metric: Of vectors.
    """

    schema: Schema
    analysers: tuple[str, ...] = ()
    dimension: int = 0
    metric: Metric = "cosine"

    def body(self, settings: Mapping[str, Any], mappings: Mapping[str, Any]) -> JsonObject:
        """The request that creates the index: of settings the user's take precedence, of mappings
        ours.
        """
        terms = {
            "type": "text",
            "analyzer": "whitespace",
            "index_options": "freqs",
            "similarity": _SIMILARITY,
        }
        arrays = [name for name, field in self.schema.items() if field.element_type]
        meta: dict[str, Any] = {
            "layout": _LAYOUTS[-1],
            "schema": schema_text(self.schema),
            "analysers": [*self.analysers],
        }
        mapping: dict[str, Any] = {
            "dynamic": False,
            **mappings,
            "_meta": {**mappings.get("_meta", {}), _META: meta},
            "properties": {
                TEXT: {"type": "text"},
                **mappings.get("properties", {}),
                _PATH: {"type": "keyword", "ignore_above": _MAX_PATH_LENGTH},
                _SPAN: {"type": "integer"},
                _READABLE_FIELDS: _object(
                    {name: {"type": "alias", "path": f"{_FIELD}.{name}"} for name in self.schema}
                ),
                KEY: {"type": "keyword"},
                SEGMENT: {"type": "keyword", "index": False, "doc_values": False},
                PRESENT: {"type": "keyword"},
                _FIELD: _object(
                    {
                        name: {"type": _INDEX_TYPES[field.element_type or field.data_type]}
                        for name, field in self.schema.items()
                    }
                ),
                _ARRAYS: _object({name: {"type": "keyword"} for name in arrays}),
                TERMS: _object(dict.fromkeys(self.analysers, terms)),
            },
        }
        similarity = {"type": "BM25", "k1": 1.5, "b": 0.75}  # as our own BM25
        ours: dict[str, Any] = {
            f"index.similarity.{_SIMILARITY}.{name}": value for name, value in similarity.items()
        }
        if self.dimension:
            meta |= {"dimension": self.dimension, "metric": self.metric}
            method = {"name": "hnsw", "engine": "lucene", "space_type": space_of(self.metric)}
            vector = {"type": "knn_vector", "dimension": self.dimension, "method": method}
            mapping["properties"][VECTOR] = vector
            mapping["_source"] = {"excludes": [VECTOR]}  # SEGMENT has it, and is shorter
            ours["index.knn"] = True
        # The store refreshes where a search needs it: no segments are made while rows are loaded.
        ours["index.refresh_interval"] = "-1"
        return {"settings": {**ours, **settings}, "mappings": mapping}


def _object(properties: Mapping[str, Any]) -> JsonObject:
    return {"type": "object", "dynamic": False, "properties": dict(properties)}


def read_shape(mapping: Mapping[str, Any], collection: str = "") -> Shape | None:
    """The shape of an index with that mapping; None if lazyrag did not create it.

    Raises:
        SchemaMismatchError: If another version of lazyrag has written its documents.
    """
    meta = mapping.get("_meta", {}).get(_META)
    if meta is None:
        return None
    layout = meta.get("layout", 1)
    if layout not in _LAYOUTS:
        check_layout(layout, "OpenSearch", STORE, collection)
    return Shape(
        read_schema(meta["schema"]),
        tuple(meta["analysers"]),
        meta.get("dimension", 0),
        meta.get("metric", "cosine"),
    )


def space_of(metric: Metric) -> str:
    """The space of k-NN in which vectors of a metric are compared; unit ones for the cosine."""
    return "l2" if metric == "l2" else "innerproduct"


def segment_encoder(shape: Shape) -> Callable[[Segment], str]:
    """A function from a segment to its document, as a line of JSON.

    Raises:
        NotRegisteredError: If an analyser of the collection is not registered in this program.
    """
    term_functions = {name: term_function(name, stop_words=True) for name in shape.analysers}

    def encode(segment: Segment) -> str:
        indexed = index_fields({name: segment.fields.get(name) for name in shape.schema})
        text = content_text(segment.content)
        is_text = isinstance(segment.content, str) and _is_utf8(text)
        document = {
            KEY: segment.key,
            TEXT: text if is_text else _as_utf8(text),
            _PATH: _as_utf8(segment.path),
            SEGMENT: _segment_text(segment, indexed[_FIELD], has_content=not is_text),
            **indexed,
        }
        if segment.span is not None:
            document[_SPAN] = segment.span
        if term_functions:
            document[TERMS] = {
                name: join_terms(terms_of(text)) for name, terms_of in term_functions.items()
            }
        return _DOCUMENT_ENCODER.encode(document)

    return encode


_PARTS = 10


def decode_segment(source: Mapping[str, Any]) -> Segment:
    """The segment in a document of `segment_encoder`.

    Example:
        >>> fields = {"tags": ("a",)}
        >>> segment = Segment("u", 1, "block", "d", "a.txt", None, 1, 0, fields=fields, span=(0, 1))
        >>> decode_segment(json.loads(segment_encoder(Shape({}, ()))(segment))) == segment
        True
    """
    parts = json.loads(source[SEGMENT])
    parts += [None] * (_PARTS - len(parts))  # empty ones at the end are left out
    group, document_id, path, parent, number, content, metadata, others, span, locations = parts
    if content is None:
        content = source[TEXT]
    return Segment(
        key_uid(source[KEY]),
        key_build(source[KEY]),
        group,
        document_id,
        path,
        parent,
        number,
        content,
        ReadOnly(metadata) if metadata else EMPTY,
        _read_fields(source, others),
        span and tuple(span),
        tuple(map(Location._make, locations or ())),
    )


def _read_fields(source: Mapping[str, Any], others: Mapping[str, Any] | None) -> Fields:
    """The fields in a document, and those beside its index."""
    return ReadOnly(
        {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in {**source[_FIELD], **(others or {})}.items()
        }
    )


def encode_vector(row: VectorRow, shape: Shape) -> str:
    """The document of a row, as a line of JSON."""
    vector = np.asarray(row.vector, "<f4")
    indexed = index_fields({name: row.fields.get(name) for name in shape.schema})
    others = fields_beside_index(row.fields, indexed[_FIELD])
    document = {
        KEY: row.key,
        SEGMENT: _ASCII_ENCODER.encode([base64.b64encode(vector.tobytes()).decode(), others]),
        VECTOR: ranked_vector(vector, shape.metric),
        **indexed,
    }
    return dump_json(document)


def decode_vector(source: Mapping[str, Any]) -> VectorRow:
    """The row in a document of `encode_vector`."""
    numbers, others = json.loads(source[SEGMENT])
    vector = np.frombuffer(base64.b64decode(numbers), "<f4")
    return VectorRow(source[KEY], vector, _read_fields(source, others))


def ranked_vector(vector: Vector, metric: Metric) -> Vector:
    """A vector as it is ranked: for the cosine of length 1, or 0."""
    if metric == "cosine":
        length = float(np.linalg.norm(vector.astype(np.float64)))
        vector = vector / (length or 1.0)
    return vector.astype(np.float32)


def _segment_text(segment: Segment, indexed: Mapping[str, Any], *, has_content: bool) -> str:
    """The rest of a segment, beside its key and its indexed fields, as JSON: a list without empty
    parts at its end.

    Its parts are group, document_id, path, parent, number, content unless it is in `TEXT`,
    metadata, other fields, span and places.

    Raises:
        ConfigError: If the segment holds a value that JSON does not have.
    """
    _, _, group, document_id, path, parent, number, content, metadata, fields, span, locations = (
        segment
    )
    parts: list[Any] = [group, document_id, path, parent, number, content if has_content else None]
    others = fields_beside_index(fields, indexed)
    more: list[Any] = [metadata, others, span, locations]
    while more and not more[-1]:
        more.pop()
    parts += [part or None for part in more]
    try:
        text = JSON_ENCODER.encode(parts)
        return text if _is_utf8(text) else _ASCII_ENCODER.encode(parts)
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"Node {segment.uid!r} in group {segment.group!r} must hold JSON values only: {exc}."
        raise ConfigError(msg) from exc


def join_terms(terms: Sequence[str]) -> str:
    """Join terms into a text that OpenSearch's whitespace tokenizer splits again; unusual ones as
    digests.

    Example:
        >>> join_terms(["绿茶", "tea"])
        '绿茶 tea'
    """
    joined = " ".join(terms)
    longest = max(map(len, terms), default=0)
    if longest <= _MAX_TERM_LENGTH and joined.split() == [*terms] and _is_utf8(joined):
        return joined
    return " ".join(term if _is_plain(term) else digest([term]) for term in terms)


def _is_plain(term: str) -> bool:
    return len(term) <= _MAX_TERM_LENGTH and [term] == term.split() and _is_utf8(term)


def _is_utf8(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _as_utf8(text: str) -> str:
    """A text without halves of surrogate pairs."""
    return text if _is_utf8(text) else text.encode("utf-8", "replace").decode()


_DOCUMENT_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# escapes half surrogate pairs
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=mapping_as_dict)


def index_fields(fields: Mapping[str, FieldValue]) -> JsonObject:
    """The part of a document that filters read."""
    present = {name: value for name, value in fields.items() if value is not None}
    indexed: JsonObject = {
        PRESENT: sorted(present),
        _FIELD: {
            name: [*map(_index_scalar, value)] if isinstance(value, tuple) else _index_scalar(value)
            for name, value in present.items()
        },
    }
    arrays = {
        name: _index_array(value) for name, value in present.items() if isinstance(value, tuple)
    }
    return {**indexed, _ARRAYS: arrays} if arrays else indexed


def fields_beside_index(fields: Fields, indexed: Mapping[str, Any]) -> dict[str, FieldValue]:
    """The fields that are not indexed, or not unchanged.

    Args:
        fields: Of a row.
        indexed: The same, by name, as `index_fields` indexes them.

    Example:
        >>> fields = {"day": "2024-05-01", "size": -0.0, "tags": ("a", "b"), "pages": None}
        >>> fields_beside_index(fields, index_fields(fields)["field"])
        {'size': -0.0, 'pages': None}
    """
    return {
        name: value for name, value in fields.items() if not _is_unchanged(value, indexed.get(name))
    }


def _is_unchanged(value: FieldValue, indexed: Any) -> bool:
    if isinstance(value, tuple):
        return isinstance(indexed, list) and all(map(_is_unchanged, value, indexed))
    if type(value) is not type(indexed) or value is None:
        return False
    return value == indexed and not (value == 0 and str(value) == "-0.0")


def index_text(text: str) -> str:
    """A text as it is indexed: different texts differently.

    A long text, or one with half a surrogate pair, which UTF-8 does not have, is cut and followed
    by a digest of all of it (128 bits). Compared with every text that is indexed unchanged, the
    order stays that of code points: the cut mark sorts as the surrogates do, and a text is greater
    than its beginning.

    Example:
        >>> index_text("绿茶"), len(index_text("茶" * 10_000))
        ('绿茶', 289)
    """
    broken = _CUT_AT.search(text)
    end = min(broken.start() if broken else len(text), _MAX_TEXT_LENGTH)
    return text if end == len(text) else f"{text[:end]}{_CUT_MARK}{digest([text])}"


def _index_scalar(value: Scalar) -> Scalar:
    """A value as it is indexed and as it is in queries: the only way for a value into either."""
    if isinstance(value, str):
        return index_text(value)
    return value + 0.0 if isinstance(value, float) else value  # Lucene distinguishes -0.0 from 0.0


def _index_array(value: Sequence[Scalar]) -> str:
    """An array as one value."""
    elements = [element + 0.0 if isinstance(element, float) else element for element in value]
    return digest([json.dumps(elements)])


_MAX_TERMS = 50_000  # in one `terms` query: OpenSearch takes 65,536
_RANGES = {"gt": "gt", "ge": "gte", "lt": "lt", "le": "lte"}


class FilterDialect:
    """OpenSearch's query language as a `lazyrag.stores.protocol.Dialect`.

    Args:
        schema: Of the collection whose rows are filtered.

    Example:
        >>> from lazyrag.data.fields import make_schema
        >>> FilterDialect(make_schema(None)).condition(Condition("file_size", ">", 5))
        {'range': {'field.file_size': {'gt': 5}}}
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def condition(self, condition: Condition) -> Query | None:
        """See `Dialect.condition`; None for ``contains`` on text, and for orderings by a text that
        is cut.
        """
        name = condition.field
        op = condition.op
        value = condition.value
        if op == "exists":
            return _exists(name) if value else self.negated(_exists(name))
        if op == "in":
            return self._in(name, value)
        if op == "eq":
            return self._equals(name, value)
        if op == "contains":
            is_array = self._schema[name].element_type is not None
            return _term(f"{_FIELD}.{name}", _index_scalar(value)) if is_array else None
        if op not in _RANGES or (isinstance(value, str) and index_text(value) != value):
            return None
        return {"range": {f"{_FIELD}.{name}": {_RANGES[op]: _index_scalar(value)}}}

    def all_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.all_of`."""
        return {"bool": {"filter": list(parts)}}

    def any_of(self, parts: Sequence[Query]) -> Query:
        """See `Dialect.any_of`."""
        return {"bool": {"should": list(parts), "minimum_should_match": 1}}

    def negated(self, part: Query) -> Query:
        """See `Dialect.negated`."""
        return {"bool": {"must_not": [part]}}

    def never(self) -> Query:
        """See `Dialect.never`."""
        return {"match_none": {}}

    def _equals(self, name: str, value: FieldValue) -> Query:
        if value is None:
            return self.negated(_exists(name))
        if isinstance(value, tuple):
            return _term(f"{_ARRAYS}.{name}", _index_array(value))
        return _term(f"{_FIELD}.{name}", _index_scalar(value))

    def _in(self, name: str, values: Sequence[Scalar | None]) -> Query:
        """One of the values, or, with None among them, a missing field; of an array, any
        element.
        """
        scalars = dict.fromkeys(_index_scalar(value) for value in values if value is not None)
        parts: list[Query] = [
            {"terms": {f"{_FIELD}.{name}": some}} for some in batches(scalars, _MAX_TERMS)
        ]
        if None in values:
            parts.append(self.negated(_exists(name)))
        return join_parts(parts, self.any_of) or self.never()


def _exists(name: str) -> Query:
    return _term(PRESENT, name)


def _term(field: str, value: Scalar) -> Query:
    return {"term": {field: {"value": value}}}
