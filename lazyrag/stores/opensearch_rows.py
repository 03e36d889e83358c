"""Collections and segments as OpenSearch keeps them: the shape of an index, a document for each segment.

What is read comes from one text, the segment as JSON, which OpenSearch stores and does not look at: numbers, None and
empty lists come back as they were. The other fields are there to be searched.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lazyrag.data.content import content_text
from lazyrag.data.fields import Schema
from lazyrag.data.readonly import ReadOnly
from lazyrag.data.segment import EMPTY, Place, Segment, digest
from lazyrag.errors import ConfigError
from lazyrag.stores.opensearch_filters import FIELD, PRESENT, WHOLE, index_fields, index_type
from lazyrag.stores.segment_rows import read_schema, schema_text
from lazyrag.text.terms import term_function

KEY: Final = "key"
SEGMENT: Final = "segment"
TERMS: Final = "terms"

_META = "lazyrag"
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
            "_meta": {_META: {"schema": schema_text(self.schema), "analysers": list(self.analysers)}},
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


def shape_of(mapping: Mapping[str, Any]) -> Shape | None:
    """The shape of an index with that mapping; None for an index that was not made here."""
    kept = mapping.get("_meta", {}).get(_META)
    return None if kept is None else Shape(read_schema(kept["schema"]), tuple(kept["analysers"]))


def writer(shape: Shape) -> Callable[[Segment], str]:
    """A function from a segment to its document, as a line of JSON.

    Raises:
        NotRegisteredError: If an analyser of the collection is not registered in this program.
    """
    analysers = {name: term_function(name) for name in shape.analysers}

    def document(segment: Segment) -> str:
        text = content_text(segment.content)
        return json.dumps(
            {
                KEY: segment.key,
                SEGMENT: segment_text(segment),
                **index_fields({name: segment.fields.get(name) for name in shape.schema}),
                TERMS: {name: joined_terms(terms_of(text)) for name, terms_of in analysers.items()},
            },
            ensure_ascii=False,
        )

    return document


def joined_terms(terms: Sequence[str]) -> str:
    """Terms as a text that OpenSearch's whitespace tokenizer takes apart again; the odd ones as digests.

    Example:
        >>> joined_terms(["绿茶", "tea"])
        '绿茶 tea'
    """
    return " ".join(term if _is_plain(term) else digest([term]) for term in terms)


def segment_text(segment: Segment) -> str:
    """A segment as JSON, with all that it holds.

    Raises:
        ConfigError: If it holds what is no JSON value.
    """
    whole = segment._asdict()
    whole["places"] = [dataclasses.astuple(place) for place in segment.places]
    try:
        text = _ENCODER.encode(whole)
        return text if _is_utf8(text) else _ASCII_ENCODER.encode(whole)
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"Node {segment.uid!r} in group {segment.group!r} holds what is no JSON value: {exc}."
        raise ConfigError(msg) from exc


def read_segment(text: str) -> Segment:
    """The segment that `segment_text` got.

    Example:
        >>> one = Segment("u", 1, "block", "d", "a.txt", None, 1, 0, fields={"tags": ("a",)}, span=(0, 1))
        >>> read_segment(segment_text(one)) == one
        True
    """
    kept = json.loads(text)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in kept["fields"].items()}
    kept |= {
        "metadata": ReadOnly(kept["metadata"]) if kept["metadata"] else EMPTY,
        "fields": ReadOnly(fields),
        "span": kept["span"] and tuple(kept["span"]),
        "places": tuple(Place(*place) for place in kept["places"]),
    }
    return Segment(**kept)


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
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_as_dict)  # it escapes what UTF-8 does not have
