"""Segments as the rows of a store file: what is JSON, what is text, what several of them share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.readonly import ReadOnly
from lazyrag.data.segment import EMPTY, Content, Place, Segment, digest
from lazyrag.errors import ConfigError
from lazyrag.typing import Fields

StoredText: TypeAlias = "str | bytes"
"""A text; as UTF-8 where it has half a surrogate pair, which SQLite's texts cannot."""


class OriginRow(NamedTuple):
    """What the segments of one build share, as a row holds it."""

    digest: bytes
    node_group: StoredText
    document_id: StoredText
    path: StoredText
    fields: StoredText


class SegmentRow(NamedTuple):
    """One segment as a row holds it; its origin is a position or the number of a row."""

    key: StoredText
    origin: int
    build: int
    parent: StoredText | None
    number: int
    is_json: int
    content: StoredText
    metadata: StoredText
    span_start: int | None
    span_end: int | None
    places: StoredText


class Origin(NamedTuple):
    """What the segments of one build share, as it is read."""

    group: str
    document_id: str
    path: str
    fields: Fields


def encoded(segments: Mapping[str, Segment]) -> tuple[list[OriginRow], list[SegmentRow]]:
    """Rows for segments, and for what they share.

    What several segments hold as one object is written as JSON once.

    Args:
        segments: By key.

    Returns:
        The origins, and the segments in their order, each with the position of its origin.

    Raises:
        ConfigError: If content, metadata or fields are no JSON values.

    Example:
        >>> origins, rows = encoded({"u-1": Segment("u", 1, "block", "d", "a.txt", None, 1, 0)})
        >>> origins[0].path, rows[0].key, rows[0].origin, rows[0].content
        ('a.txt', 'u-1', 0, '0')
    """
    origins: dict[tuple[str, str, str, int], tuple[int, OriginRow]] = {}
    texts: dict[int, StoredText] = {}  # by the id of an object: the segments keep them alive
    rows: list[SegmentRow] = []
    for key, one in segments.items():
        shared = (one.group, one.document_id, one.path, id(one.fields))
        known = origins.get(shared)
        if known is None:
            known = origins[shared] = (len(origins), _origin_row(one))
        metadata = texts.get(id(one.metadata))
        if metadata is None:
            metadata = texts[id(one.metadata)] = _json(one, "metadata", one.metadata)
        is_json = not isinstance(one.content, str)
        content = _json(one, "content", one.content) if is_json else stored_text(str(one.content))
        places = _json(one, "places", [(p.start, p.end, p.kind, p.label) for p in one.places]) if one.places else "[]"
        start, end = one.span or (None, None)
        parent = None if one.parent is None else stored_text(one.parent)
        rows.append(
            SegmentRow(
                stored_text(key),
                known[0],
                one.build,
                parent,
                one.number,
                is_json,
                content,
                metadata,
                start,
                end,
                places,
            )
        )
    return [row for _, row in origins.values()], rows


def decoded(row: Iterable[Any], origins: Mapping[int, Origin]) -> Segment:
    """The segment in a row, equal to the one that was written.

    Args:
        row: The columns of a `SegmentRow`.
        origins: By their numbers; with this row's.
    """
    key, number, build, parent, ordinal, is_json, content, metadata, start, end, places = row
    origin = origins[number]
    text = read_text(content)
    held: Content = json.loads(text) if is_json else text
    return Segment(
        read_text(key)[: -len(str(build)) - 1],  # what comes before "-" and the build
        build,
        origin.group,
        origin.document_id,
        origin.path,
        None if parent is None else read_text(parent),
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


def schema_of(text: str) -> Schema:
    """The fields of which `schema_text` made a text.

    Example:
        >>> schema_of('{"year":["int32",null,null,null]}')["year"].data_type
        <DataType.INT32: 'int32'>
    """
    return {
        name: DocField(DataType(kind), element and DataType(element), default, max_size)
        for name, (kind, element, default, max_size) in json.loads(text).items()
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
