"""Documents of specification 004: views of nodes and hits, metadata conditions, extraction and
chunking.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, TypeAlias

from lazyrag.data.fields import DataType, Schema
from lazyrag.data.filters import And, Filter, FilterLike, Or
from lazyrag.data.filters import Condition as FieldCondition
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.data.segment import Segment, check_names, copy_value, digest
from lazyrag.document.document import Document as Collection
from lazyrag.errors import ConfigError
from lazyrag.ranking.fusion import Normalisation, normalised
from lazyrag.sources.extract import ExtractSetting
from lazyrag.sources.extract import extract as extract_items
from lazyrag.transforms.dify_rules import Rule
from lazyrag.types import JsonMapping, JsonObject, Metadata
from lazyrag.validation import (
    is_list_of,
    known_arguments,
    require,
    validate_choice,
    validate_integer,
    without_none,
)

MAX_TOP_K = 100
"""Maximum number of documents of a search (spec 004, section 9)."""

_ROUNDING = 1e-6  # a cosine of float32 vectors may pass 1 by less


def validate_threshold(score_threshold: Any) -> float:
    """Return the lowest score to keep, in [0, 1]; 0.0 for None.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> validate_threshold(None)
        0.0
    """
    return 0.0 if score_threshold is None else unit_score(score_threshold, "score_threshold")


def unit_score(score: Any, name: str = "score") -> float:
    """Return a score in [0, 1]; rounding errors beyond a bound are clipped.

    Args:
        score: The number.
        name: Its name in messages.

    Raises:
        ConfigError: If it is not a number in that range.

    Example:
        >>> unit_score(1.0000001)
        1.0
    """
    is_number = isinstance(score, numbers.Real) and not isinstance(score, bool)
    require(
        is_number and -_ROUNDING <= score <= 1 + _ROUNDING,
        name,
        score,
        "a number from 0 to 1",
        "Normalise the scores of a complete result: Document.from_nodes(nodes, normalise='max').",
    )
    return min(max(float(score), 0.0), 1.0)


def unit_scores(scores: Sequence[float], normalise: Normalisation) -> list[float]:
    """Normalise the scores of one result to [0, 1], in their order.

    Args:
        scores: Finite numbers; higher is better.
        normalise: See `lazyrag.ranking.fusion.normalised`. ``"max"`` divides by the best;
            ``"none"`` is for scores that are already in [0, 1].

    Raises:
        ConfigError: If a score is outside [0, 1] after that.

    Example:
        >>> unit_scores([8.0, 2.0], "max")
        [1.0, 0.25]
    """
    return [unit_score(score) for _, score in normalised(list(enumerate(scores)), normalise)]


def clipped_cosine(cosine: float) -> float:
    """Convert a cosine to a score in [0, 1]; negative ones become 0.

    Example:
        >>> clipped_cosine(-0.3), clipped_cosine(0.8)
        (0.0, 0.8)
    """
    return 0.0 if math.isnan(cosine) else min(max(cosine, 0.0), 1.0)


def exact_number(value: Any) -> float | None:
    """Parse a number or its text, integers without rounding. None if it is not a finite number.

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
"""Known providers of documents."""


class Document:
    """A document or a piece of one: text and metadata (spec 004, section 1).

    It is a view of a `lazyrag.DocNode`; `lazyrag.Document` is a collection of files. As in the
    specification it is mutable, so it has no hash; ``in`` and ``==`` compare text and metadata.

    Args:
        page_content: The text, of 1 to 100,000 characters.
        metadata: Names to values, not copied; None for {}. A ``provider`` must be ``"dify"`` or
            ``"external"``.

    Attributes:
        children: The parts by which a parent is searched, see `transform`; in a result, those that
            were found. Equality ignores them.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> doc = Document("Green tea", {"source": "tea.md"})
        >>> doc.provider, doc == Document("Green tea")
        ('dify', False)
    """

    __slots__ = ("children", "metadata", "page_content", "provider")

    def __init__(self, page_content: str, metadata: JsonObject | None = None) -> None:
        is_valid = isinstance(page_content, str) and 0 < len(page_content) <= MAX_CHARACTERS
        require(
            is_valid,
            "page_content",
            page_content,
            f"a text of 1 to {MAX_CHARACTERS:,} characters",
            "Cut longer files into paragraphs: lazyrag.interop.dify.extract(setting, rule=rule).",
        )
        require(
            metadata is None or isinstance(metadata, dict), "metadata", metadata, "a dict or None"
        )
        self.page_content = page_content
        self.metadata: JsonObject = check_names(metadata or {})
        self.provider = self.metadata.get("provider", "dify")
        validate_choice("provider", self.provider, PROVIDERS)
        self.children: list[Document] = []

    def __str__(self) -> str:
        return f"Document(content={self.page_content[:50]}..., metadata={self.metadata})"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document):
            return False
        return self.page_content == other.page_content and self.metadata == other.metadata

    __hash__ = None  # type: ignore[assignment]  # mutable

    @classmethod
    def from_node(cls, node: DocNode, dataset_id: str = "") -> Document:
        """Make a view of a node.

        Its metadata are those of the file and the node, ``doc_id`` and ``doc_hash``; for a node in
        a tree also ``document_id``, ``position`` (from 0), ``source`` and, for a PDF, ``page``; if
        known ``dataset_id`` and ``score``.

        Raises:
            ConfigError: If the text is too long, or the score is outside [0, 1]; see `from_nodes`.

        Example:
            >>> Document.from_node(DocNode(text="Green tea", uid="7")).metadata["doc_id"]
            '7'
        """
        return cls(node.text, metadata_of(node, dataset_id))

    @classmethod
    def from_nodes(
        cls, nodes: Iterable[DocNode], dataset_id: str = "", *, normalise: Normalisation = "max"
    ) -> list[Document]:
        """Make views of all nodes of one result, in their order, with scores normalised to [0, 1].

        Args:
            nodes: The result of a retriever or a reranker.
            dataset_id: Id of their data set.
            normalise: See `lazyrag.ranking.fusion.normalised`. ``"max"`` divides by the best score,
                so that 0 stays 0; ``"none"`` is for scores that are already in [0, 1].

        Raises:
            ConfigError: If a score is outside [0, 1] after that, or a text is too long.

        Example:
            >>> nodes = [DocNode(text="tea", score=8.0), DocNode(text="coffee", score=2.0)]
            >>> [document.metadata["score"] for document in Document.from_nodes(nodes)]
            [1.0, 0.25]
        """
        nodes = list(nodes)
        scores = iter(
            unit_scores([node.score for node in nodes if node.score is not None], normalise)
        )
        scored = (node if node.score is None else node.with_score(next(scores)) for node in nodes)
        return [cls.from_node(node, dataset_id) for node in scored]

    def with_score(self, score: float) -> Document:
        """Return a copy with another ``metadata["score"]`` and the same children."""
        document = Document(self.page_content, {**self.metadata, "score": score})
        document.children = self.children
        return document

    def to_node(self) -> DocNode:
        """Convert to a node outside any tree, with the metadata's ``doc_id`` as uid and ``score``
        as score.

        `from_node` restores a document that it made.

        Raises:
            ConfigError: If a node cannot have a value.

        Example:
            >>> Document("Green tea", {"doc_id": "7", "score": 0.5}).to_node().score
            0.5
        """
        uid = self.metadata.get("doc_id")
        require(
            uid is None or (isinstance(uid, str) and uid != ""),
            "metadata['doc_id']",
            uid,
            "a text, not empty",
        )
        score = self.metadata.get("score")
        metadata = {name: value for name, value in self.metadata.items() if name != "score"}
        score = None if score is None else unit_score(score)
        return DocNode(text=self.page_content, metadata=metadata, uid=uid, score=score)


@known_arguments
@dataclass(frozen=True, slots=True)
class DocumentSegment:
    """A piece of a document, as a data set stores it or a search finds it (spec 004, section 1).

    Args:
        id: Uid of the node.
        dataset_id: The data set: the name of the collection of documents.
        document_id: Uid of the document's root node.
        content: Its text.
        position: Its position in the document, from 0.
        score: In [0, 1]; None without a search.
        metadata: Other metadata.

    Raises:
        ConfigError: If the position is negative, or the score out of range.

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
    metadata: Metadata = field(default_factory=dict)

    def __post_init__(self) -> None:
        validate_integer("position", self.position, 0)
        if self.score is not None:
            object.__setattr__(self, "score", unit_score(self.score))

    @classmethod
    def from_hit(cls, hit: Hit, dataset_id: str = "") -> DocumentSegment:
        """Make a segment of a hit.

        Raises:
            ConfigError: If its score is outside [0, 1].
        """
        score = None if math.isnan(hit.score) else hit.score
        metadata = copy_value({"source": hit.source, **hit.metadata})
        return cls(
            hit.id, dataset_id, hit.document_id, hit.text, max(hit.chunk_id - 1, 0), score, metadata
        )

    @classmethod
    def from_segment(cls, segment: Segment, dataset_id: str = "") -> DocumentSegment:
        """Make a segment of a stored one, without a score."""
        return cls.from_hit(Hit.from_node(DocNode.from_segment(segment, None)), dataset_id)

    def to_document(self) -> Document:
        """Convert to a document; the fields of the segment take precedence over its metadata."""
        fields: JsonObject = {
            "doc_id": self.id,
            "doc_hash": doc_hash(self.content),
            "dataset_id": self.dataset_id,
            "document_id": self.document_id,
            "position": self.position,
        }
        if self.score is not None:
            fields["score"] = self.score
        return Document(self.content, {**copy_value(dict(self.metadata)), **fields})


def metadata_of(node: DocNode, dataset_id: str = "") -> JsonObject:
    """Return the metadata of `Document.from_node`, for a text of any length.

    Raises:
        ConfigError: If the score is outside [0, 1].

    Example:
        >>> metadata_of(DocNode(text="Green tea", uid="7"), "teas")["dataset_id"]
        'teas'
    """
    metadata = copy_value({**node.global_metadata, **node.metadata})
    if node.group:
        metadata |= {"document_id": node.document_id, "position": node.number - 1}
        metadata.setdefault("source", node.path)
        pages = [location.label for location in node.locations if location.kind == "page"]
        pages = [label for label in pages if label.isdecimal()]
        if pages:
            metadata.setdefault("page", int(pages[0]))
    metadata |= {"doc_id": node.uid, "doc_hash": doc_hash(node.text)}
    if dataset_id:
        metadata["dataset_id"] = dataset_id
    if node.score is not None:
        metadata["score"] = unit_score(node.score)
    return metadata


def doc_hash(text: str) -> str:
    """Return the MD5 of a text in UTF-8, as 32 hexadecimal digits. Not for security.

    Example:
        >>> doc_hash("Green tea")
        'd72a3c4411382f08477154aab007d9d3'
    """
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


LogicalOperator: TypeAlias = Literal["and", "or"]
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)
_NO_VALUE = ("empty", "not empty")
_KEYS = ("logical_operator", "conditions")
_NUMBERS = (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
_SAME = {"==": "=", "!=": "≠", ">=": "≥", "<=": "≤"}


@known_arguments
@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one field of the metadata.

    Args:
        name: The field.
        comparison_operator: One of `COMPARISONS`.
        value: The value to compare with. For ``in`` and ``not in`` a list, or a text with commas;
            for ``=`` ``≠`` ``>`` ``<`` ``≥`` ``≤`` a number, or its text; none for ``empty`` and
            ``not empty``. Integers are exact.

    Raises:
        ConfigError: If the operator is unknown, or the value does not fit it.

    Example:
        >>> Condition("year", "≥", "2020").to_filter()
        Condition('year', 'ge', 2020)
    """

    name: str
    comparison_operator: str
    value: Any = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.name, str) and self.name != "", "name", self.name, "the name of a field"
        )
        operator = _SAME.get(self.comparison_operator, self.comparison_operator)
        validate_choice("comparison_operator", operator, COMPARISONS)
        object.__setattr__(self, "comparison_operator", operator)
        if (self.value is None) != (operator in _NO_VALUE):
            needed = "takes no value" if operator in _NO_VALUE else "needs a value"
            raise ConfigError(
                f"The comparison {operator!r} on {self.name!r} {needed}; got {self.value!r:.80}."
            )
        self.to_filter()  # validates the value

    def to_filter(self, fields: Schema | None = None) -> Filter:
        """Convert to a filter of this package.

        Args:
            fields: The fields of the data set. For number fields, ``in`` and ``not in`` parse texts
                as numbers.

        Raises:
            ConfigError: If such a text is not a number.
        """
        value = self.value
        field = (fields or {}).get(self.name)
        is_number = field is not None and (field.element_type or field.data_type) in _NUMBERS
        if self.comparison_operator in ("in", "not in") and is_number:
            values = _values(self.name, value)
            value = [
                _number(self.name, element) if isinstance(element, str) else element
                for element in values
            ]
        return _FILTERS[self.comparison_operator](self.name, value)


@known_arguments
@dataclass(frozen=True, slots=True)
class MetadataCondition:
    """A filter on metadata (named by spec 004, defined by the system it describes).

    A missing value satisfies only ``empty``, not even the negations (``is not``, ``not in`` ...).

    Args:
        logical_operator: ``"and"``: all conditions must hold; ``"or"``: any of them.
        conditions: `Condition` objects, or mappings of their three arguments.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> conditions = [Condition("author", "is", "Luo"), Condition("year", ">", 2020)]
        >>> MetadataCondition("or", conditions).to_filter()
        Or(Condition('author', 'eq', 'Luo'), Condition('year', 'gt', 2020))
    """

    logical_operator: LogicalOperator = "and"
    conditions: Sequence[Condition | JsonMapping] = ()

    def __post_init__(self) -> None:
        validate_choice("logical_operator", self.logical_operator, LogicalOperator)
        is_valid = is_list_of(self.conditions, (Condition, Mapping))
        require(
            is_valid,
            "conditions",
            self.conditions,
            "a list of Condition(name, comparison_operator, value)",
        )
        conditions = [
            Condition(**item) if isinstance(item, Mapping) else item for item in self.conditions
        ]
        object.__setattr__(self, "conditions", tuple(conditions))

    @classmethod
    def from_dict(cls, values: JsonMapping) -> MetadataCondition:
        """Make a condition of JSON.

        Args:
            values: ``logical_operator`` and ``conditions``, each of which may be missing or None.

        Raises:
            ConfigError: If it has something else.

        Example:
            >>> condition = {"name": "author", "comparison_operator": "start with", "value": "Lu"}
            >>> values = {"conditions": [condition]}
            >>> MetadataCondition.from_dict(values).to_filter()
            And(Condition('author', 'ge', 'Lu'), Condition('author', 'lt', 'Lv'))
        """
        require(
            isinstance(values, Mapping),
            "values",
            values,
            "a mapping with logical_operator and conditions",
        )
        return cls(**without_none(values))

    def to_filter(self, fields: Schema | None = None) -> Filter | None:
        """Convert to a filter of this package; None without conditions. See
        `Condition.to_filter`.
        """
        filters = [
            condition.to_filter(fields)
            for condition in self.conditions
            if isinstance(condition, Condition)
        ]
        if len(filters) < 2:
            return filters[0] if filters else None
        return And(*filters) if self.logical_operator == "and" else Or(*filters)


def filter_of(
    condition: MetadataCondition | FilterLike | None, fields: Schema | None = None
) -> FilterLike | None:
    """Convert a `MetadataCondition` or its JSON to a filter; other filters are returned unchanged.

    Example:
        >>> filter_of(MetadataCondition()) is None
        True
    """
    if isinstance(condition, Mapping) and any(
        key in condition and key not in (fields or {}) for key in _KEYS
    ):
        condition = MetadataCondition.from_dict(condition)
    return condition.to_filter(fields) if isinstance(condition, MetadataCondition) else condition


def _present(name: str, condition: Filter) -> Filter:
    """A condition that a missing value does not satisfy, as negations in SQL."""
    return condition & FieldCondition(name, "exists")


def _text(name: str, value: Any) -> str:
    require(
        isinstance(value, str) and value != "",
        f"The value for {name!r}",
        value,
        "a text that is not empty",
    )
    return value  # type: ignore[no-any-return]  # validated above


def _number(name: str, value: Any) -> float:
    number = None if isinstance(value, bool) else exact_number(value)
    if number is None:
        is_huge = isinstance(value, int) and value.bit_length() > sys.float_info.max_exp
        description = f"an integer of {value.bit_length()} bits" if is_huge else f"{value!r:.80}"
        hint = "Compare texts by 'is' and 'is not'."
        raise ConfigError(
            f"The value for {name!r} must be a finite number; got {description}. {hint}"
        )
    return number


MakeFilter: TypeAlias = Callable[[str, Any], Filter]
"""Makes a filter from a field's name and the value to compare with."""


def _values(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    expected = "a list of values, or a text with commas"
    require(isinstance(value, (list, tuple)), f"The value for {name!r}", value, expected)
    return list(value)


def _starts(name: str, value: Any) -> Filter:
    """Texts are ordered by code point: those with a prefix are between it and the next text of its
    length.
    """
    prefix = _text(name, value)
    first = FieldCondition(name, "ge", prefix)
    start = prefix.rstrip(_LAST)
    if not start:
        return first
    following = ord(start[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return first & FieldCondition(name, "lt", start[:-1] + chr(following))


def _ends(name: str, value: Any) -> Filter:
    hint = (
        f"Filter on a field with the ending, such as file_type, or use 'contains' ({value!r:.40})."
    )
    raise ConfigError(f"'end with' on {name!r} is not supported by every store. {hint}")


def _any_value(_: str, value: Any) -> Any:
    return value


def _compare(
    op: str, read: Callable[[str, Any], Any] = _any_value, *, needs_field: bool = False
) -> MakeFilter:
    """Make the filter of a comparison from a field's name and the value as `read` validates it."""

    def make_filter(name: str, value: Any) -> Filter:
        condition = FieldCondition(name, op, read(name, value))
        return _present(name, condition) if needs_field else condition

    return make_filter


def _contains_not(name: str, value: Any) -> Filter:
    return _present(name, ~FieldCondition(name, "contains", _text(name, value)))


_FILTERS: Mapping[str, MakeFilter] = {
    "contains": _compare("contains", _text),
    "not contains": _contains_not,
    "start with": _starts,
    "end with": _ends,
    "is": _compare("eq"),
    "is not": _compare("ne", needs_field=True),
    "empty": lambda name, _: FieldCondition(name, "exists", False),
    "not empty": lambda name, _: FieldCondition(name, "exists"),
    "in": _compare("in", _values),
    "not in": _compare("not in", _values, needs_field=True),
    "=": _compare("eq", _number),
    "≠": _compare("ne", _number, needs_field=True),
    ">": _compare("gt", _number),
    "<": _compare("lt", _number),
    "≥": _compare("ge", _number),
    "≤": _compare("le", _number),
    "before": _compare("lt"),
    "after": _compare("gt"),
}

COMPARISONS: tuple[str, ...] = tuple(_FILTERS)
"""Values of `Condition.comparison_operator`; ``== != >= <=`` are accepted as well."""


_NEEDED = {"automatic": None, "custom": "segmentation", "hierarchical": "subchunk_segmentation"}
"""Modes, and the part of a rule that each needs."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ProcessRule:
    r"""Chunking of a data set's documents (named by spec 004, defined by the system it describes).

    Args:
        mode: ``"automatic"``: `lazyrag.transforms.Rule.automatic`, unless there are rules;
            ``"custom"``: one level; ``"hierarchical"``: parents and children.
        rules: A `lazyrag.transforms.Rule`, or a mapping of its arguments.

    Raises:
        ConfigError: If the mode is unknown, or does not fit the rules.

    Example:
        >>> segmentation = {"max_tokens": 200, "separator": "\n"}
        >>> ProcessRule("custom", {"segmentation": segmentation}).rule.segmentation
        Segmentation(max_tokens=200, chunk_overlap=0, separator='\n')
    """

    mode: str = "automatic"
    rules: Rule | JsonMapping | None = None
    rule: Rule = field(init=False, compare=False, repr=False)
    """The resulting rule."""

    def __post_init__(self) -> None:
        if isinstance(self.rules, Rule):
            rule = self.rules
            needed = _NEEDED[validate_choice("mode", self.mode, _NEEDED)]
            if needed is not None and getattr(rule, needed) is None:
                raise ConfigError(
                    f"A process rule of mode {self.mode!r} needs rules with {needed}."
                )
        else:
            rule = Rule.from_dict({"mode": self.mode, "rules": self.rules})
        object.__setattr__(self, "rule", rule)


def extract(
    setting: ExtractSetting,
    *,
    rule: Rule | ProcessRule | None = None,
    dataset_id: str = "",
    **options: Any,
) -> list[Document]:
    """Extract files or pages with `lazyrag.sources.extract`, as complete documents or as chunks.

    Args:
        setting: The files or pages.
        rule: A rule to cut them as `transform` does, needed for files longer than `MAX_CHARACTERS`.
            None: complete documents.
        dataset_id: Id of their data set.
        options: The keywords of `lazyrag.sources.extract`.

    Returns:
        A document for each, with its ``source`` and ``doc_hash``; with a rule, the chunks of all.

    Raises:
        ConfigError: If a text is blank, or too long for one document, or an argument is invalid.
        LoadError: If a file cannot be read.
    """
    chunking = None if rule is None else _validate_rule(rule)
    more = {"dataset_id": dataset_id} if dataset_id else {}
    items = [
        (
            item.text,
            {**item.metadata, "source": item.identity, "doc_hash": doc_hash(item.text), **more},
        )
        for item in extract_items(setting, **options)
    ]
    if chunking is not None:
        return _chunks(items, chunking, dataset_id)
    for text, metadata in items:
        if len(text) > MAX_CHARACTERS:
            sizes = f"{len(text):,} characters, and a document at most {MAX_CHARACTERS:,}"
            hint = "Cut it while reading: extract(setting, rule=Rule.automatic())."
            raise ConfigError(f"{metadata['source']!r:.80} has {sizes}. {hint}")
    return [Document(text, metadata) for text, metadata in items]


def transform(
    documents: Sequence[Document], rule: Rule | ProcessRule, dataset_id: str = ""
) -> list[Document]:
    r"""Cut documents into the chunks of a rule. If it makes children, chunks are parents that have
    `Document.children`.

    Args:
        documents: Complete documents, identified by ``doc_id``, else by ``source``, else by their
            number.
        rule: How to clean and cut them.
        dataset_id: Id of their data set.

    Returns:
        The chunks, document by document, each with its document's metadata and its own ``doc_id``,
        ``doc_hash`` and ``position``; ``document_id`` is the document's, else its ``doc_id``. The
        same documents of the same data set give the same ids.

    Raises:
        ConfigError: If two documents have one id, one is blank, or the rule has no segmentation.

    Example:
        >>> from lazyrag.transforms import Segmentation
        >>> rule = Rule(Segmentation(50, 0, "\n"))
        >>> text = "Tea. " * 30 + "\n" + "Coffee. " * 30
        >>> chunks = transform([Document(text, {"source": "a.md"})], rule)
        >>> chunks[0].metadata["source"], chunks[1].metadata["position"]
        ('a.md', 1)
    """
    chunking = _validate_rule(rule)
    complete = list(documents) if isinstance(documents, Iterable) else documents
    expected = "a list of lazyrag.interop.dify.Document"
    require(is_list_of(complete, Document), "documents", documents, expected)
    return _chunks(
        [(document.page_content, document.metadata) for document in complete], chunking, dataset_id
    )


def _validate_rule(rule: Any) -> Rule:
    chunking = rule.rule if isinstance(rule, ProcessRule) else rule
    require(isinstance(chunking, Rule), "rule", rule, "a Rule or a ProcessRule")
    return chunking


def _chunks(texts: Sequence[tuple[str, Metadata]], rule: Rule, dataset_id: str) -> list[Document]:
    """Cut texts with metadata; the texts may be longer than a document."""
    by_id: dict[str, tuple[str, Metadata]] = {}
    for number, (text, metadata) in enumerate(texts, start=1):
        name = str(metadata.get("doc_id") or metadata.get("source") or f"document {number}")
        if by_id.setdefault(name, (text, metadata))[1] is not metadata:
            raise ConfigError(
                f"Two documents have the id {name!r:.80}; give each a doc_id of its own in its"
                " metadata."
            )
        if not text.strip():
            raise ConfigError(f"The document {name!r:.80} is blank. Leave it out.")
    if not by_id:
        return []
    chunks: dict[str, dict[str, Document]] = {name: {} for name in by_id}
    with Collection() as docs:
        docs.add_texts({name: text for name, (text, _) in by_id.items()})
        groups = rule.create_groups(docs)
        for node in docs.get_nodes(groups.parent):
            chunks[node.path][node.uid] = _chunk(node, by_id[node.path][1], dataset_id)
        if groups.child != groups.parent:
            for node in docs.get_nodes(groups.child):
                parent = chunks[node.path][node.parent.uid]
                parent.children.append(_chunk(node, parent.metadata, dataset_id))
    return [*chain.from_iterable(by_uid.values() for by_uid in chunks.values())]


def _chunk(node: DocNode, metadata: Metadata, dataset_id: str) -> Document:
    fields = {
        "doc_id": str(uuid.UUID(hex=digest([dataset_id, node.uid]))),
        "doc_hash": doc_hash(node.text),
        "document_id": metadata.get("document_id") or metadata.get("doc_id") or node.document_id,
        "position": node.number - 1,
    }
    return Document(
        node.text, {**metadata, **fields, **({"dataset_id": dataset_id} if dataset_id else {})}
    )
