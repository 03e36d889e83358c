"""Ingestion of specification 004: files as complete documents, and documents as chunks for a vector store."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import digest
from lazyrag.document.document import Document as Collection
from lazyrag.errors import ConfigError
from lazyrag.interop.dify.documents import MAX_CHARACTERS, Document, doc_hash
from lazyrag.sources.extract import ExtractSetting
from lazyrag.sources.extract import extract as extract_items
from lazyrag.transforms.dify_rules import Rule
from lazyrag.validation import is_list_of, known_arguments, require, validate_choice

_NEEDED = {"automatic": None, "custom": "segmentation", "hierarchical": "subchunk_segmentation"}
"""Modes, and the part of a rule that each needs."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ProcessRule:
    r"""Chunking of a data set's documents (named by spec 004, defined by the system it describes).

    Args:
        mode: ``"automatic"``: `lazyrag.transforms.Rule.automatic`, unless there are rules; ``"custom"``: one level;
            ``"hierarchical"``: parents and children.
        rules: A `lazyrag.transforms.Rule`, or a mapping of its arguments.

    Raises:
        ConfigError: If the mode is unknown, or does not fit the rules.

    Example:
        >>> ProcessRule("custom", {"segmentation": {"max_tokens": 200, "separator": "\n"}}).rule.segmentation
        Segmentation(max_tokens=200, chunk_overlap=0, separator='\n')
    """

    mode: str = "automatic"
    rules: Rule | Mapping[str, Any] | None = None
    rule: Rule = field(init=False, compare=False, repr=False)
    """The resulting rule."""

    def __post_init__(self) -> None:
        if isinstance(self.rules, Rule):
            rule = self.rules
            needed = _NEEDED[validate_choice("mode", self.mode, _NEEDED)]
            if needed is not None and getattr(rule, needed) is None:
                raise ConfigError(f"A process rule of mode {self.mode!r} needs rules with {needed}.")
        else:
            rule = Rule.from_dict({"mode": self.mode, "rules": self.rules})
        object.__setattr__(self, "rule", rule)


def extract(
    setting: ExtractSetting, *, rule: Rule | ProcessRule | None = None, dataset_id: str = "", **options: Any
) -> list[Document]:
    """Extract files or pages with `lazyrag.sources.extract`, as complete documents or as chunks.

    Args:
        setting: The files or pages.
        rule: A rule to cut them as `transform` does, needed for files longer than `MAX_CHARACTERS`. None: complete
            documents.
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
        (item.text, {**item.metadata, "source": item.identity, "doc_hash": doc_hash(item.text), **more})
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


def transform(documents: Sequence[Document], rule: Rule | ProcessRule, dataset_id: str = "") -> list[Document]:
    r"""Cut documents into the chunks to search: those of a rule, or its children if it makes any.

    Args:
        documents: Complete documents, identified by ``doc_id``, else by ``source``, else by their number.
        rule: How to clean and cut them.
        dataset_id: Id of their data set.

    Returns:
        The chunks, document by document, each with its document's metadata and its own ``doc_id``, ``doc_hash``,
        ``document_id`` and ``position``. The same documents of the same data set give the same ids.

    Raises:
        ConfigError: If two documents have one id, one is blank, or the rule has no segmentation.

    Example:
        >>> from lazyrag.transforms import Segmentation
        >>> rule = Rule(Segmentation(50, 0, "\n"))
        >>> chunks = transform([Document("Tea. " * 30 + "\n" + "Coffee. " * 30, {"source": "a.md"})], rule)
        >>> chunks[0].metadata["source"], [chunk.metadata["position"] for chunk in chunks] == [*range(len(chunks))]
        ('a.md', True)
    """
    chunking = _validate_rule(rule)
    complete = list(documents) if isinstance(documents, Iterable) else documents
    expected = "a list of lazyrag.interop.dify.Document"
    require(is_list_of(complete, Document), "documents", documents, expected)
    return _chunks([(one.page_content, one.metadata) for one in complete], chunking, dataset_id)


def _validate_rule(rule: Any) -> Rule:
    chunking = rule.rule if isinstance(rule, ProcessRule) else rule
    require(isinstance(chunking, Rule), "rule", rule, "a Rule or a ProcessRule")
    return chunking


def _chunks(texts: Sequence[tuple[str, Mapping[str, Any]]], rule: Rule, dataset_id: str) -> list[Document]:
    """Cut texts with metadata; the texts may be longer than a document."""
    by_id: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for number, (text, metadata) in enumerate(texts, start=1):
        name = str(metadata.get("doc_id") or metadata.get("source") or f"document {number}")
        if by_id.setdefault(name, (text, metadata))[1] is not metadata:
            raise ConfigError(f"Two documents have the id {name!r:.80}; give each a doc_id of its own in its metadata.")
        if not text.strip():
            raise ConfigError(f"The document {name!r:.80} is blank. Leave it out.")
    if not by_id:
        return []
    chunks: dict[str, list[Document]] = {name: [] for name in by_id}
    with Collection() as docs:
        docs.add_texts({name: text for name, (text, _) in by_id.items()})
        for node in docs.get_nodes(rule.create_groups(docs).child):
            chunks[node.path].append(_chunk(node, by_id[node.path][1], dataset_id))
    return [chunk for of_one in chunks.values() for chunk in of_one]


def _chunk(node: DocNode, metadata: Mapping[str, Any], dataset_id: str) -> Document:
    own = {
        "doc_id": str(uuid.UUID(hex=digest([dataset_id, node.uid]))),
        "doc_hash": doc_hash(node.text),
        "document_id": metadata.get("document_id", node.document_id),
        "position": node.number - 1,
    }
    return Document(node.text, {**metadata, **own, **({"dataset_id": dataset_id} if dataset_id else {})})
