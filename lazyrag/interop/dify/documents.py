"""Specification 004's `Document` and `DocumentSegment`: views of nodes and of hits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.data.segment import Segment, check_names, copy_value
from lazyrag.errors import ConfigError, known_names
from lazyrag.interop.dify.ranges import unit_score, unit_scores
from lazyrag.ranking.scores import Normalisation
from lazyrag.validation import known_arguments, known_keywords, whole_number

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
