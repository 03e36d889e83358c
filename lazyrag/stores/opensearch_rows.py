"""Collections and segments as OpenSearch keeps them: the shape of an index, a document for each segment.

OpenSearch gives a document back as it was written, byte by byte, if it is asked for all of it. A segment is read from
its key, from the fields that are there for filters, and from one text that OpenSearch does not look at: a JSON list of
what these do not tell, see `segment_text`. The rest of the document is there to be searched.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lazyrag.data.fields import Schema
from lazyrag.data.segment import EMPTY, Place, ReadOnly, Segment, content_text, digest
from lazyrag.errors import ConfigError, SchemaMismatchError
from lazyrag.stores.opensearch_filters import FIELD, PRESENT, WHOLE, index_fields, index_type, untold
from lazyrag.stores.segment_rows import read_schema, schema_text
from lazyrag.text.analyzers import term_function

KEY: Final = "key"
SEGMENT: Final = "segment"
TERMS: Final = "terms"

_META = "lazyrag"
_LAYOUT = 2  # of what a document consists
_SIMILARITY = "lazyrag"
_LONGEST_TERM = 200  # characters; OpenSearch's tokenizer splits what has more than 255


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What a collection's documents look like.

    Args:
        schema: The fields that filters read.
        analysers: Names of the registered analysers whose terms are indexed, sorted.
    """

    schema: Schema
    analysers: tuple[str, ...]

    def body(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What creates the index: its mapping, and its settings, the user's before ours."""
        no_search = {"type": "keyword", "index": False, "doc_values": False}
        terms = {
            "type": "text",
            "analyzer": "whitespace",
            "index_options": "freqs",
            "similarity": _SIMILARITY,
        }
        mapping = {
            "dynamic": False,
            "_meta": {_META: {"layout": _LAYOUT, "schema": schema_text(self.schema), "analysers": [*self.analysers]}},
            "properties": {
                KEY: {"type": "keyword"},
                SEGMENT: no_search,
                PRESENT: {"type": "keyword"},
                FIELD: _object({name: {"type": index_type(field)} for name, field in self.schema.items()}),
                WHOLE: _object(
                    {name: {"type": "keyword"} for name, field in self.schema.items() if field.element_type}
                ),
                TERMS: _object(dict.fromkeys(self.analysers, terms)),
            },
        }
        # Those of our own BM25.
        similarity = {"type": "BM25", "k1": 1.5, "b": 0.75}
        ours = {f"index.similarity.{_SIMILARITY}.{name}": value for name, value in similarity.items()}
        return {"settings": {**ours, **settings}, "mappings": mapping}


def shape_of(mapping: Mapping[str, Any], collection: str = "") -> Shape | None:
    """The shape of an index with that mapping; None for an index that was not made here.

    Args:
        mapping: As OpenSearch tells it.
        collection: Name of the index, for messages.

    Raises:
        SchemaMismatchError: If its documents are laid out as another version of lazyrag does.
    """
    kept = mapping.get("_meta", {}).get(_META)
    if kept is None:
        return None
    layout = kept.get("layout", 1)
    if layout != _LAYOUT:
        msg = (
            f"Collection {collection!r} in OpenSearch has rows of layout {layout}, written by another version of "
            f"lazyrag; this one reads {_LAYOUT}. Drop it and read the files again, or use the version that wrote it."
        )
        raise SchemaMismatchError(msg, store="opensearch", collection=collection)
    return Shape(read_schema(kept["schema"]), tuple(kept["analysers"]))


def writer(shape: Shape) -> Callable[[Segment], str]:
    """A function from a segment to its document, as a line of JSON.

    Raises:
        NotRegisteredError: If an analyser of the collection is not registered in this program.
    """
    analysers = {name: term_function(name) for name in shape.analysers}

    def document(segment: Segment) -> str:
        indexed = index_fields({name: segment.fields.get(name) for name in shape.schema})
        found = {KEY: segment.key, SEGMENT: segment_text(segment, indexed[FIELD]), **indexed}
        if analysers:
            text = content_text(segment.content)
            found[TERMS] = {name: joined_terms(terms_of(text)) for name, terms_of in analysers.items()}
        return _DOCUMENT_ENCODER.encode(found)

    return document


def joined_terms(terms: Sequence[str]) -> str:
    """Terms as a text that OpenSearch's whitespace tokenizer takes apart again; the odd ones as digests.

    Example:
        >>> joined_terms(["绿茶", "tea"])
        '绿茶 tea'
    """
    joined = " ".join(terms)
    if joined.split() == [*terms] and _is_utf8(joined) and len(max(terms, key=len, default="")) <= _LONGEST_TERM:
        return joined
    return " ".join(term if _is_plain(term) else digest([term]) for term in terms)


def segment_text(segment: Segment, indexed: Mapping[str, Any]) -> str:
    """What the key and the indexed fields of a segment do not tell, as JSON: a list, which ends with what is not empty.

    Its parts are group, document_id, path, parent, number, content, metadata, other fields, span and places.

    Args:
        segment: The segment.
        indexed: Its fields as filters find them, by name.

    Raises:
        ConfigError: If it holds what is no JSON value.
    """
    _, _, group, document_id, path, parent, number, content, metadata, fields, span, places = segment
    parts: list[Any] = [group, document_id, path, parent, number, content]
    more: list[Any] = [metadata, untold(fields, indexed), span, [dataclasses.astuple(place) for place in places]]
    while more and not more[-1]:
        more.pop()
    parts += [part or None for part in more]
    try:
        text = _ENCODER.encode(parts)
        return text if _is_utf8(text) else _ASCII_ENCODER.encode(parts)
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"Node {segment.uid!r} in group {segment.group!r} holds what is no JSON value: {exc}."
        raise ConfigError(msg) from exc


def read_segment(source: Mapping[str, Any]) -> Segment:
    """The segment of which `writer` made a document.

    Args:
        source: The whole document.

    Example:
        >>> one = Segment("u", 1, "block", "d", "a.txt", None, 1, 0, fields={"tags": ("a",)}, span=(0, 1))
        >>> read_segment(json.loads(writer(Shape({}, ()))(one))) == one
        True
    """
    kept = json.loads(source[SEGMENT])
    group, document_id, path, parent, number, content, metadata, others, span, places = kept + [None] * (10 - len(kept))
    uid, _, build = source[KEY].rpartition("-")
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**source[FIELD], **(others or {})}.items()
    }
    return Segment(
        uid,
        int(build),
        group,
        document_id,
        path,
        parent,
        number,
        content,
        ReadOnly(metadata) if metadata else EMPTY,
        ReadOnly(fields),
        span and tuple(span),
        tuple(Place(*place) for place in places or ()),
    )


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "dynamic": False, "properties": dict(properties)}


def _is_plain(term: str) -> bool:
    return len(term) <= _LONGEST_TERM and [term] == term.split() and _is_utf8(term)


def _is_utf8(text: str) -> bool:
    """Whether it has no half of a surrogate pair."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    msg = f"{type(value).__name__} is not among its types"
    raise TypeError(msg)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_as_dict)
_DOCUMENT_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_as_dict)  # it escapes what UTF-8 does not have
