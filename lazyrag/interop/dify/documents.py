"""Specification 004's `Document` and `DocumentSegment`: views of nodes and of hits."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import math
import numbers
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from lazyrag.data.fields import DataType, Schema
from lazyrag.data.filters import And, Filter, Or, both
from lazyrag.data.filters import Condition as FieldCondition
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.data.segment import Segment, check_names, copy_value
from lazyrag.errors import ConfigError, known_names
from lazyrag.models.embedding_cache import EmbeddingCache, VectorSpace, spec_names
from lazyrag.ranking.scores import Normalisation, normalised
from lazyrag.validation import known_arguments, known_keywords, whole_number

MAX_TOP_K = 100
"""The most documents that one search gives (spec 004, section 9)."""

_ROUNDING = 1e-6  # a cosine of float32 vectors may pass 1 by less


def checked_top_k(top_k: Any, name: str = "top_k") -> int:
    """How many documents a search gives, from 1 to 100.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> checked_top_k(4)
        4
    """
    return whole_number(name, top_k, 1, MAX_TOP_K)


def checked_threshold(score_threshold: Any) -> float:
    """The lowest score that is kept, in [0, 1]; None keeps all.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> checked_threshold(None)
        0.0
    """
    return 0.0 if score_threshold is None else unit_score(score_threshold, "score_threshold")


def checked_query(query: Any) -> str:
    """A question, which may be blank.

    Raises:
        ConfigError: If it is no text.

    Example:
        >>> checked_query("tea?")
        'tea?'
    """
    if not isinstance(query, str):
        msg = f"query is {query!r:.80}; give a text."
        raise ConfigError(msg)
    return query


def unit_score(score: Any, what: str = "score") -> float:
    """A score in [0, 1]; one that passes a bound by a rounding error becomes the bound.

    Args:
        score: The number.
        what: What it is, for the message.

    Raises:
        ConfigError: If it is no number in that range.

    Example:
        >>> unit_score(1.0000001)
        1.0
    """
    number = isinstance(score, numbers.Real) and not isinstance(score, bool)
    if not number or not -_ROUNDING <= float(score) <= 1 + _ROUNDING:
        msg = (
            f"{what} is {score!r}; specification 004 has numbers from 0 to 1. Scores of a whole result are brought "
            "there together: Document.from_nodes(nodes, normalise='max')."
        )
        raise ConfigError(msg)
    return min(max(float(score), 0.0), 1.0)


def unit_scores(scores: Sequence[float], normalise: Normalisation) -> list[float]:
    """The scores of one result in [0, 1], in their order.

    Args:
        scores: Finite numbers, a higher one being better.
        normalise: How they are brought there, see `lazyrag.ranking.scores.normalised`. ``"max"`` divides by the best;
            ``"none"`` leaves them, and they must lie there already.

    Raises:
        ConfigError: If a score lies outside of [0, 1] after that.

    Example:
        >>> unit_scores([8.0, 2.0], "max")
        [1.0, 0.25]
    """
    return [unit_score(score) for _, score in normalised(list(enumerate(scores)), normalise)]


def clipped_cosine(cosine: float) -> float:
    """A cosine as a score in [0, 1]: what points away from the query is no less relevant than any other matter.

    Example:
        >>> clipped_cosine(-0.3), clipped_cosine(0.8)
        (0.0, 0.8)
    """
    return 0.0 if math.isnan(cosine) else min(max(cosine, 0.0), 1.0)


def exact_number(value: Any) -> float | None:
    """A number, or a text of one; a whole one without rounding. None for what is none, or not finite.

    Example:
        >>> exact_number("9007199254740993"), exact_number(2.0), exact_number("nan")
        (9007199254740993, 2, None)
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not number.is_integer():
        return number if math.isfinite(number) else None
    digits = not isinstance(value, str) or value.strip().lstrip("+-").replace("_", "").isdecimal()
    return int(value if digits else number)


MAX_CHARACTERS = 100_000
"""The longest `Document.page_content`."""

PROVIDERS = ("dify", "external")
"""Who may have provided a document."""


class Document:
    """A document, or one piece of one: a text and what is known of it (spec 004, section 1).

    It is a view of a `lazyrag.DocNode`; `lazyrag.Document` is a collection of files. As in the specification its
    attributes may be changed, so it has no hash; ``in`` and ``==`` compare text and metadata.

    Args:
        page_content: The text, of 1 to 100,000 characters.
        metadata: Names to values; None for nothing. It is held, not copied. ``provider`` among them is ``"dify"``, or
            ``"external"``.

    Raises:
        ConfigError: If an argument is none of these.

    Example:
        >>> doc = Document("Green tea", {"source": "tea.md"})
        >>> doc.provider, doc == Document("Green tea", {"source": "tea.md"}), doc == Document("Green tea")
        ('dify', True, False)
    """

    __slots__ = ("metadata", "page_content", "provider")

    def __init__(self, page_content: str, metadata: dict[str, Any] | None = None) -> None:
        if not isinstance(page_content, str) or not 0 < len(page_content) <= MAX_CHARACTERS:
            given = f"{len(page_content):,} characters" if isinstance(page_content, str) else repr(page_content)[:80]
            msg = f"page_content is {given}; give a text of 1 to {MAX_CHARACTERS:,} characters."
            if isinstance(page_content, str) and page_content:
                msg += " A longer file is cut as it is read: lazyrag.interop.dify.extract(setting, rule=rule)."
            raise ConfigError(msg)
        if metadata is not None and not isinstance(metadata, dict):
            msg = f"metadata is {metadata!r:.80}; give a dict of names to values, or None."
            raise ConfigError(msg)
        self.page_content = page_content
        self.metadata: dict[str, Any] = check_names(metadata or {})
        self.provider = self.metadata.get("provider", "dify")
        if self.provider not in PROVIDERS:
            msg = f"The provider of a document is {self.provider!r}. {known_names(str(self.provider), PROVIDERS)}"
            raise ConfigError(msg)

    def __str__(self) -> str:
        return f"Document(content={self.page_content[:50]}..., metadata={self.metadata})"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document):
            return False
        return self.page_content == other.page_content and self.metadata == other.metadata

    __hash__ = None  # type: ignore[assignment]  # as it can be changed

    @classmethod
    def from_node(cls, node: DocNode, dataset_id: str = "") -> Document:
        """The view of a node.

        Its metadata are the file's, overlaid with the node's own, and ``doc_id``, ``doc_hash``; of a node in a tree
        ``document_id``, ``position`` (from 0), ``source`` and, of a PDF, ``page`` as well; where they are known
        ``dataset_id`` and ``score``.

        Raises:
            ConfigError: If the text is too long, or the score lies outside of [0, 1]; see `from_nodes`.

        Example:
            >>> Document.from_node(DocNode(text="Green tea", uid="7")).metadata["doc_id"]
            '7'
        """
        return cls(node.text, metadata_of(node, dataset_id))

    @classmethod
    @known_keywords
    def from_nodes(
        cls, nodes: Iterable[DocNode], dataset_id: str = "", *, normalise: Normalisation = "max"
    ) -> list[Document]:
        """The views of all nodes of one result, in their order, their scores brought to [0, 1].

        Args:
            nodes: What a retriever or a reranker returned.
            dataset_id: Of the data set that they are of.
            normalise: See `lazyrag.ranking.scores.normalised`. ``"max"`` divides by the best score, so that 0 stays 0;
                ``"none"`` is for scores that lie there.

        Raises:
            ConfigError: If a score lies outside of [0, 1] after that, or a text is too long.

        Example:
            >>> nodes = [DocNode(text="tea", score=8.0), DocNode(text="coffee", score=2.0)]
            >>> [document.metadata["score"] for document in Document.from_nodes(nodes)]
            [1.0, 0.25]
        """
        found = list(nodes)
        scored = [node for node in found if node.score is not None]
        scores = iter(unit_scores([node.score for node in scored if node.score is not None], normalise))
        return [
            cls.from_node(node if node.score is None else node.with_score(next(scores)), dataset_id) for node in found
        ]

    def to_node(self) -> DocNode:
        """A node outside a tree, with the metadata's ``doc_id`` as uid and ``score`` as score.

        `from_node` makes an equal document of it, if this one was made by `from_node`.

        Raises:
            ConfigError: If a value is none that a node can hold.

        Example:
            >>> Document("Green tea", {"doc_id": "7", "score": 0.5}).to_node().score
            0.5
        """
        uid = self.metadata.get("doc_id")
        if uid is not None and (not isinstance(uid, str) or not uid):
            msg = f"The metadata has {uid!r:.80} as doc_id; give a text that is not empty."
            raise ConfigError(msg)
        score = self.metadata.get("score")
        own = {name: value for name, value in self.metadata.items() if name != "score"}
        return DocNode(
            text=self.page_content, metadata=own, uid=uid, score=None if score is None else unit_score(score)
        )


@known_arguments
@dataclass(frozen=True, slots=True)
class DocumentSegment:
    """One piece of a document, as a data set keeps it or as a search found it (spec 004, section 1).

    Args:
        id: Uid of the node.
        dataset_id: The data set, that is the name of the collection of documents.
        document_id: Uid of the document's root node.
        content: Its text.
        position: Where it stands in its document, from 0.
        score: In [0, 1]; None where nothing was asked.
        metadata: Whatever else is known.

    Raises:
        ConfigError: If the position is negative, or the score out of its range.

    Example:
        >>> DocumentSegment("7", "teas", "1", "Green tea", 0, 0.5).to_document().metadata["score"]
        0.5
    """

    id: str
    dataset_id: str
    document_id: str
    content: str
    position: int = 0
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole_number("position", self.position, 0)
        if self.score is not None:
            object.__setattr__(self, "score", unit_score(self.score))

    @classmethod
    def from_hit(cls, hit: Hit, dataset_id: str = "") -> DocumentSegment:
        """A hit as a segment.

        Raises:
            ConfigError: If its score lies outside of [0, 1].
        """
        score = None if math.isnan(hit.score) else hit.score
        metadata = copy_value({"source": hit.source, **hit.metadata})
        return cls(hit.id, dataset_id, hit.document_id, hit.text, max(hit.chunk_id - 1, 0), score, metadata)

    @classmethod
    def from_segment(cls, segment: Segment, dataset_id: str = "") -> DocumentSegment:
        """A stored segment, without a score."""
        return cls.from_hit(Hit.from_node(DocNode.from_segment(segment, None)), dataset_id)

    def to_document(self) -> Document:
        """The segment as a document; what the segment knows goes before its metadata."""
        known: dict[str, Any] = {
            "doc_id": self.id,
            "doc_hash": doc_hash(self.content),
            "dataset_id": self.dataset_id,
            "document_id": self.document_id,
            "position": self.position,
        }
        if self.score is not None:
            known["score"] = self.score
        return Document(self.content, {**copy_value(dict(self.metadata)), **known})


def metadata_of(node: DocNode, dataset_id: str = "") -> dict[str, Any]:
    """What `Document.from_node` knows of a node, however long its text is.

    Raises:
        ConfigError: If the score lies outside of [0, 1].

    Example:
        >>> metadata_of(DocNode(text="Green tea", uid="7"), "teas")["dataset_id"]
        'teas'
    """
    metadata = copy_value({**node.global_metadata, **node.metadata})
    if node.group:
        metadata |= {"document_id": node.document_id, "position": node.number - 1}
        metadata.setdefault("source", node.path)
        pages = [place.label for place in node.places if place.kind == "page" and place.label.isdecimal()]
        if pages:
            metadata.setdefault("page", int(pages[0]))
    metadata |= {"doc_id": node.uid, "doc_hash": doc_hash(node.text)}
    if dataset_id:
        metadata["dataset_id"] = dataset_id
    if node.score is not None:
        metadata["score"] = unit_score(node.score)
    return metadata


def doc_hash(text: str) -> str:
    """MD5 of a text in UTF-8, 32 hexadecimal digits: equal texts have equal ones. It keeps no secrets.

    Example:
        >>> doc_hash("Green tea")
        'd72a3c4411382f08477154aab007d9d3'
    """
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


LogicalOperator: TypeAlias = Literal["and", "or"]
_LOGICAL = ("and", "or")
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)
_NO_VALUE = ("empty", "not empty")
_AMONG = ("in", "not in")
_KEYS = ("logical_operator", "conditions")
_NUMBERS = (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
_SAME = {"==": "=", "!=": "≠", ">=": "≥", "<=": "≤"}


@known_arguments
@dataclass(frozen=True, slots=True)
class Condition:
    """What one name in the metadata must be like.

    Args:
        name: The name: a field that filters may read.
        comparison_operator: One of `COMPARISONS`.
        value: What to compare with. For ``in`` and ``not in`` a list, or a text with commas; for ``=`` ``≠`` ``>``
            ``<`` ``≥`` ``≤`` a number, or a text of one; none for ``empty`` and ``not empty``. Whole numbers are exact.

    Raises:
        ConfigError: If the operator is unknown, or the value does not go with it.

    Example:
        >>> Condition("year", "≥", "2020").to_filter()
        Condition('year', 'ge', 2020)
    """

    name: str
    comparison_operator: str
    value: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            msg = f"A condition's name is {self.name!r:.80}; give the name of a field."
            raise ConfigError(msg)
        told = self.comparison_operator
        operator = _SAME.get(told, told) if isinstance(told, str) else told
        if operator not in COMPARISONS:
            msg = f"The comparison_operator on {self.name!r} is {told!r:.80}. {known_names(str(told), COMPARISONS)}"
            raise ConfigError(msg)
        object.__setattr__(self, "comparison_operator", operator)
        if (self.value is None) != (operator in _NO_VALUE):
            needed = "takes no value" if operator in _NO_VALUE else "needs a value"
            msg = f"The comparison {operator!r} on {self.name!r} {needed}; it got {self.value!r:.80}."
            raise ConfigError(msg)
        self.to_filter()

    def to_filter(self, fields: Schema | None = None) -> Filter:
        """The same as a filter of this package.

        Args:
            fields: The fields of the data set. ``in`` and ``not in`` read texts as numbers where the field has numbers.

        Raises:
            ConfigError: If such a text is no number.
        """
        value, field = self.value, (fields or {}).get(self.name)
        if (
            self.comparison_operator in _AMONG
            and field is not None
            and (field.element_type or field.data_type) in _NUMBERS
        ):
            held = _values(self.name, value)
            value = [_number(self.name, one) if isinstance(one, str) else one for one in held]
        return _FILTERS[self.comparison_operator](self.name, value)


@known_arguments
@dataclass(frozen=True, slots=True)
class MetadataCondition:
    """Which documents a search may give, by their metadata (named by spec 004, defined by the system it describes).

    Whatever is missing in the metadata satisfies ``empty`` alone, the negations (``is not``, ``not in`` ...) neither.

    Args:
        logical_operator: ``"and"``: all conditions must hold; ``"or"``: any of them.
        conditions: `Condition` objects, or mappings of their three arguments.

    Raises:
        ConfigError: If an argument is none of these.

    Example:
        >>> MetadataCondition("or", [Condition("author", "is", "Luo"), Condition("year", ">", 2020)]).to_filter()
        Or(Condition('author', 'eq', 'Luo'), Condition('year', 'gt', 2020))
    """

    logical_operator: LogicalOperator = "and"
    conditions: Sequence[Condition | Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if self.logical_operator not in _LOGICAL:
            known = known_names(str(self.logical_operator), _LOGICAL)
            msg = f"logical_operator is {self.logical_operator!r:.80}. {known}"
            raise ConfigError(msg)
        if not isinstance(self.conditions, (list, tuple)):
            msg = f"conditions is {self.conditions!r:.80}; give a list of Condition."
            raise ConfigError(msg)
        object.__setattr__(self, "conditions", tuple(map(_condition, self.conditions)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MetadataCondition:
        """A condition from JSON.

        Args:
            values: ``logical_operator`` and ``conditions``, either of which may be left out or None.

        Raises:
            ConfigError: If it holds something else.

        Example:
            >>> told = {"conditions": [{"name": "author", "comparison_operator": "start with", "value": "Lu"}]}
            >>> MetadataCondition.from_dict(told).to_filter()
            And(Condition('author', 'ge', 'Lu'), Condition('author', 'lt', 'Lv'))
        """
        if not isinstance(values, Mapping):
            msg = f"A metadata condition is {values!r:.80}; give a mapping with logical_operator and conditions."
            raise ConfigError(msg)
        return cls(**{name: value for name, value in values.items() if value is not None})

    def to_filter(self, fields: Schema | None = None) -> Filter | None:
        """The same as a filter for a retriever; None where there is no condition. See `Condition.to_filter`."""
        filters = [one.to_filter(fields) for one in self.conditions if isinstance(one, Condition)]
        if len(filters) < 2:
            return filters[0] if filters else None
        return And(*filters) if self.logical_operator == "and" else Or(*filters)


def filter_of(
    condition: MetadataCondition | Filter | Mapping[str, Any] | None, fields: Schema | None = None
) -> Filter | Mapping[str, Any] | None:
    """What a retriever takes as filters: a `MetadataCondition`, or its JSON, translated; anything else as it is.

    Example:
        >>> filter_of(MetadataCondition()) is None
        True
    """
    if isinstance(condition, Mapping) and any(one in condition and one not in (fields or {}) for one in _KEYS):
        condition = MetadataCondition.from_dict(condition)
    return condition.to_filter(fields) if isinstance(condition, MetadataCondition) else condition


def _condition(given: Any) -> Condition:
    if isinstance(given, Condition):
        return given
    if isinstance(given, Mapping):
        return Condition(**given)
    msg = f"conditions holds {given!r:.80}; give Condition(name, comparison_operator, value)."
    raise ConfigError(msg)


def _there(name: str, held: Filter) -> Filter:
    """A negation that a missing value does not satisfy, as in SQL."""
    filters = both(held, FieldCondition(name, "exists"))
    return held if filters is None else filters


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        msg = f"The comparison on {name!r} is with {value!r:.80}; give a text that is not empty."
        raise ConfigError(msg)
    return value


def _number(name: str, value: Any) -> float:
    number = None if isinstance(value, bool) else exact_number(value)
    if number is None:
        big = isinstance(value, int) and value.bit_length() > sys.float_info.max_exp
        told = f"a whole number of {value.bit_length()} bits" if big else f"{value!r:.80}"
        msg = f"The comparison on {name!r} is with {told}; give a finite number. Texts are compared by 'is', 'is not'."
        raise ConfigError(msg)
    return number


def _values(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        msg = f"The comparison on {name!r} is with {value!r:.80}; give a list of values, or a text with commas."
        raise ConfigError(msg)
    return list(value)


def _starts(name: str, value: Any) -> Filter:
    """Texts are ordered by code point, so those with a prefix lie between it and the next text of its length."""
    prefix = _text(name, value)
    first = FieldCondition(name, "ge", prefix)
    kept = prefix.rstrip(_LAST)
    if not kept:
        return first
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return first & FieldCondition(name, "lt", kept[:-1] + chr(following))


def _ends(name: str, value: Any) -> Filter:
    msg = (
        f"'end with' on {name!r} is no filter that every store can apply. Keep the ending in a field of its own "
        f"(a file's suffix is file_type) and ask for that, or use 'contains' ({value!r:.40})."
    )
    raise ConfigError(msg)


def _ordered(op: str) -> Callable[[str, Any], Filter]:
    return lambda name, value: FieldCondition(name, op, _number(name, value))


_FILTERS: Mapping[str, Callable[[str, Any], Filter]] = {
    "contains": lambda name, value: FieldCondition(name, "contains", _text(name, value)),
    "not contains": lambda name, value: _there(name, ~FieldCondition(name, "contains", _text(name, value))),
    "start with": _starts,
    "end with": _ends,
    "is": lambda name, value: FieldCondition(name, "eq", value),
    "is not": lambda name, value: _there(name, FieldCondition(name, "ne", value)),
    "empty": lambda name, _: FieldCondition(name, "exists", False),
    "not empty": lambda name, _: FieldCondition(name, "exists"),
    "in": lambda name, value: FieldCondition(name, "in", _values(name, value)),
    "not in": lambda name, value: _there(name, FieldCondition(name, "not in", _values(name, value))),
    "=": _ordered("eq"),
    "≠": lambda name, value: _there(name, FieldCondition(name, "ne", _number(name, value))),
    ">": _ordered("gt"),
    "<": _ordered("lt"),
    "≥": _ordered("ge"),
    "≤": _ordered("le"),
    "before": lambda name, value: FieldCondition(name, "lt", value),
    "after": lambda name, value: FieldCondition(name, "gt", value),
}

COMPARISONS: tuple[str, ...] = tuple(_FILTERS)
"""What `Condition.comparison_operator` may be; ``== != >= <=`` are understood as well."""


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


@known_arguments
@dataclass
class Embedding:
    """One row of specification 004's table of cached embeddings (section 7).

    A program that has such a table reads its rows into this, and `keep_rows` takes them into an
    `lazyrag.EmbeddingCache`; `rows_of` gives those to be written to one. As in the specification it can be changed.

    Args:
        model_name: The model.
        hash: MD5 of the text, see `lazyrag.interop.dify.doc_hash`.
        provider_name: The model's provider.
        embedding_vector: The float32 numbers, little-endian, in Base64.
        id: The primary key; a new UUID where it is left out.
        created_at: When the row was made.
        updated_at: When its vector was set.

    Example:
        >>> row = Embedding("text-embedding-3-small", doc_hash("tea"), "openai")
        >>> row.set_embedding([0.5, 2.0])
        >>> row.embedding_vector, row.get_embedding()
        ('AAAAPwAAAEA=', [0.5, 2.0])
    """

    model_name: str
    hash: str
    provider_name: str
    embedding_vector: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: dt.datetime = field(default_factory=_now)
    updated_at: dt.datetime = field(default_factory=_now)

    def set_embedding(self, embedding: Sequence[float]) -> None:
        """Put a vector into the row.

        Raises:
            ConfigError: If it is not numbers, or one is not finite as a float32.
        """
        self.embedding_vector = base64.b64encode(_numbers(embedding).tobytes()).decode()
        self.updated_at = _now()

    def get_embedding(self) -> list[float]:
        """The row's vector.

        Raises:
            ConfigError: If the row holds none.
        """
        try:
            numbers: list[float] = np.frombuffer(base64.b64decode(self.embedding_vector, validate=True), "<f4").tolist()
        except (binascii.Error, ValueError, TypeError) as exc:
            msg = f"The row {self.id!r} holds no vector: {self.embedding_vector!r:.60}. Set one with set_embedding."
            raise ConfigError(msg) from exc
        if not numbers:
            msg = f"The row {self.id!r} holds no vector. Set one with set_embedding."
            raise ConfigError(msg)
        return numbers


def rows_of(cache: EmbeddingCache, space: VectorSpace, texts: Iterable[str]) -> list[Embedding]:
    """The table's rows of those texts that a cache has vectors of, in their order, one for each text.

    The cache knows texts by SHA-256 and the table by MD5, so the texts are needed.

    Args:
        cache: The cache.
        space: Which model's: ``VectorSpace("openai:text-embedding-3-small")``.
        texts: The texts.

    Raises:
        ConfigError: If the vectors are sparse, or texts is a single text.
        StoreError: If the cache cannot be read.
    """
    provider, model = spec_names(space.identity, space.dimension, space.normalised)
    asked = _distinct(texts)
    found: dict[str, Any] = dict(cache.get_many(space, asked))
    rows = []
    for text in asked:
        if text in found:
            row = Embedding(model, doc_hash(text), provider)
            row.set_embedding(found[text])
            rows.append(row)
    return rows


@known_keywords
def keep_rows(
    cache: EmbeddingCache, space: VectorSpace, rows: Iterable[Embedding], texts: Iterable[str], *, rename: bool = False
) -> int:
    """Take the vectors of some texts from rows of the table into a cache.

    Args:
        cache: The cache.
        space: Under which model they are kept; see `rows_of`.
        rows: Rows of one model and one provider, those of the space.
        texts: The texts; those that no row has the hash of are passed over.
        rename: Keep rows that call provider or model otherwise than the space does; you know them to be the same.

    Returns:
        How many texts have got a vector.

    Raises:
        ConfigError: If the rows are of several models, or of another one than the space; if two of one text differ, a
            vector does not fit the space, or texts is a single text.
        StoreError: If the cache cannot be written.
    """
    asked = _distinct(texts)
    by_hash: dict[str, Embedding] = {}
    models = set()
    for row in rows:
        models.add((row.provider_name, row.model_name))
        if by_hash.setdefault(row.hash, row).embedding_vector != row.embedding_vector:
            msg = f"The rows have two vectors under the hash {row.hash!r:.80}; give one row for each text."
            raise ConfigError(msg)
    if len(models) > 1:
        msg = f"The rows are of several models: {sorted(models)!r:.200}. Keep those of one at a time."
        raise ConfigError(msg)
    if not rename:
        for provider, model in models - _names(space):
            msg = (
                f"The rows are of the model {model!r:.80} of provider {provider!r:.80}, and the space is "
                f"{space.identity!r:.80}; vectors of two models do not compare. Give the rows' space, or say that "
                "only the names differ: keep_rows(..., rename=True)."
            )
            raise ConfigError(msg)
    found = {text: by_hash[doc_hash(text)] for text in asked if doc_hash(text) in by_hash}
    cache.put_many(space, {text: _numbers(row.get_embedding()) for text, row in found.items()})
    return len(found)


def _names(space: VectorSpace) -> set[tuple[str, str]]:
    """What the rows of a space may be called: as `rows_of` does, and without what it adds to the model's name."""
    provider, _, model = space.identity.partition(":")
    plain = (provider, model) if provider and model else ("", space.identity)
    return {plain, spec_names(space.identity, space.dimension, space.normalised)}


def _distinct(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        msg = f"texts is the text {texts!r:.80}; give a list of texts."
        raise ConfigError(msg)
    return list(dict.fromkeys(texts))


def _numbers(embedding: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        numbers = np.asarray(embedding, dtype=np.float64)
    except (TypeError, ValueError) as exc:
        msg = f"An embedding is {embedding!r:.80}; give a list of numbers."
        raise ConfigError(msg) from exc
    if numbers.ndim != 1 or not numbers.size or not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        msg = f"An embedding is {embedding!r:.80}; give a list of finite numbers of at most 32 bits' range."
        raise ConfigError(msg)
    return numbers.astype("<f4")
