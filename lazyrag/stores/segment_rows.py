"""Segments as the rows of a store file: what is JSON, what is text, what several of them share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.segment import EMPTY, Content, Place, ReadOnly, Segment, digest
from lazyrag.errors import ConfigError
from lazyrag.types import Fields

StoredText: TypeAlias = "str | bytes"
"""A text; as UTF-8 where it has half a surrogate pair, which SQLite's texts cannot."""


class OriginRow(NamedTuple):
    """What the segments of one build share, as a row holds it."""

    digest: bytes
    node_group: StoredText
    document_id: StoredText
    path: StoredText
    fields: StoredText


SEGMENT_COLUMNS = (
    "collection",
    "key",
    "origin",
    "build",
    "parent",
    "number",
    "is_json",
    "content",
    "metadata",
    "span_start",
    "span_end",
    "places",
)

SegmentRow: TypeAlias = tuple[
    int,
    StoredText,
    int,
    int,
    "StoredText | None",
    int,
    bool,
    StoredText,
    StoredText,
    "int | None",
    "int | None",
    StoredText,
]
"""One segment as a row holds it, by `SEGMENT_COLUMNS`; a plain tuple, as there are many."""

OriginKey: TypeAlias = tuple[str, str, str, int]
"""Group, document and path of a segment, and the id of its fields: the segments keep these alive."""


class Origin(NamedTuple):
    """What the segments of one build share, as it is read."""

    group: str
    document_id: str
    path: str
    fields: Fields


def origin_key(one: Segment) -> OriginKey:
    """What tells the origins of segments apart."""
    return one.group, one.document_id, one.path, id(one.fields)


def origin_rows(segments: Iterable[Segment]) -> dict[OriginKey, OriginRow]:
    """What segments share, once each.

    Raises:
        ConfigError: If fields are no JSON values.

    Example:
        >>> node = Segment("u", 1, "block", "d", "a.txt", None, 1, 0)
        >>> origin_rows([node, node])[origin_key(node)].path
        'a.txt'
    """
    found: dict[OriginKey, OriginRow] = {}
    for one in segments:
        shared = origin_key(one)
        if shared not in found:
            found[shared] = _origin_row(one)
    return found


def segment_rows(
    segments: Iterable[tuple[str, Segment]], collection: int, origins: Mapping[OriginKey, int]
) -> list[SegmentRow]:
    """Rows for segments. Metadata that several of them hold as one object is written as JSON once.

    Args:
        segments: With their keys.
        collection: Number of their collection.
        origins: Numbers of what they share.

    Raises:
        ConfigError: If content or metadata are no JSON values.

    Example:
        >>> node = Segment("u", 1, "block", "d", "a.txt", None, 1, 0)
        >>> segment_rows([("u-1", node)], 7, {origin_key(node): 3})
        [(7, 'u-1', 3, 1, None, 1, True, '0', '{}', None, None, '[]')]
    """
    texts: dict[int, StoredText] = {}  # by the id of an object: the segments keep them alive
    rows: list[SegmentRow] = []
    for key, one in segments:
        content, span, parent = one.content, one.span, one.parent
        metadata = texts.get(id(one.metadata))
        if metadata is None:
            metadata = texts[id(one.metadata)] = _json(one, "metadata", one.metadata)
        rows.append(
            (
                collection,
                stored_text(key),
                origins[origin_key(one)],
                one.build,
                None if parent is None else stored_text(parent),
                one.number,
                not isinstance(content, str),
                stored_text(content) if isinstance(content, str) else _json(one, "content", content),
                metadata,
                None if span is None else span[0],
                None if span is None else span[1],
                _places(one) if one.places else "[]",
            )
        )
    return rows


def decoded(row: Iterable[Any], origins: Mapping[int, Origin]) -> Segment:
    """The segment in a row, equal to the one that was written.

    Args:
        row: The columns of a `SegmentRow` but the collection.
        origins: By their numbers; with this row's.
    """
    key, number, build, parent, ordinal, is_json, content, metadata, start, end, places = row
    origin = origins[number]
    # Most texts are no bytes: `read_text` is called for those that are.
    text = content if isinstance(content, str) else read_text(content)
    held: Content = json.loads(text) if is_json else text
    name = key if isinstance(key, str) else read_text(key)
    return Segment(
        name[: -len(str(build)) - 1],  # what comes before "-" and the build
        build,
        origin.group,
        origin.document_id,
        origin.path,
        parent if parent is None or isinstance(parent, str) else read_text(parent),
        ordinal,
        held,
        EMPTY if metadata == "{}" else ReadOnly(json.loads(read_text(metadata))),
        origin.fields,
        None if start is None else (start, end),
        () if places == "[]" else tuple(Place(*place) for place in json.loads(read_text(places))),
    )


def read_fields(text: StoredText) -> Fields:
    """The fields in a row; lists in them are arrays, and were tuples.

    Example:
        >>> read_fields('{"year": 2024, "tags": ["a"]}')
        {'year': 2024, 'tags': ('a',)}
    """
    # Names are the same for every document, and json makes new ones each time: half of what fields take.
    return ReadOnly(
        (sys.intern(name), tuple(value) if isinstance(value, list) else value)
        for name, value in json.loads(read_text(text)).items()
    )


def schema_text(schema: Schema) -> str:
    """The fields of a collection as JSON: the same for equal schemas.

    Example:
        >>> from lazyrag.data.fields import DataType, DocField
        >>> schema_text({"year": DocField(DataType.INT32)})
        '{"year":["int32",null,null,null]}'
    """
    return _ENCODER.encode(
        {
            name: (
                field.data_type.value,
                field.element_type and field.element_type.value,
                field.default_value,
                field.max_size,
            )
            for name, field in sorted(schema.items())
        }
    )


def read_schema(text: str) -> Schema:
    """The schema that `schema_text` got.

    Example:
        >>> read_schema('{"year":["int32",null,null,null]}')["year"].data_type.name
        'INT32'
    """
    return {
        name: DocField(DataType(data_type), element_type and DataType(element_type), default_value, max_size)
        for name, (data_type, element_type, default_value, max_size) in json.loads(text).items()
    }


def schema_fields(text: str) -> list[str]:
    """The names of a schema's fields, sorted.

    Example:
        >>> schema_fields('{"year":["int32",null,null,null]}')
        ['year']
    """
    return sorted(json.loads(text))


def stored_text(text: str) -> StoredText:
    r"""A text as SQLite can keep it.

    Example:
        >>> stored_text("茶"), stored_text(chr(0xD83C))
        ('茶', b'\xed\xa0\xbc')
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogatepass")
    return text


def read_text(stored: StoredText) -> str:
    """The text that `stored_text` got."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def _origin_row(one: Segment) -> OriginRow:
    fields = _json(one, "fields", one.fields)
    told = bytes.fromhex(digest([one.group, one.document_id, one.path, read_text(fields)]))
    return OriginRow(told, stored_text(one.group), stored_text(one.document_id), stored_text(one.path), fields)


def _places(one: Segment) -> StoredText:
    return _json(one, "places", [(place.start, place.end, place.kind, place.label) for place in one.places])


def _json(one: Segment, what: str, value: Any) -> StoredText:
    try:
        return stored_text(_ENCODER.encode(value))
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"The {what} of node {one.uid!r} in group {one.group!r} is {value!r:.60}, which is no JSON value: {exc}."
        raise ConfigError(msg) from exc


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    msg = f"{type(value).__name__} is not among its types"
    raise TypeError(msg)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_as_dict)
