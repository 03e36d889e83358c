"""Specification 004's way in: from files to whole documents, and from those to the chunks of a vector store."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import digest
from lazyrag.document.document import Document as Collection
from lazyrag.errors import ConfigError, known_names
from lazyrag.interop.dify.documents import MAX_CHARACTERS, Document, doc_hash
from lazyrag.sources.extract import ExtractSetting
from lazyrag.sources.extract import extract as extract_items
from lazyrag.transforms.dify_rules import Rule
from lazyrag.validation import known_arguments

_MODES = ("automatic", "custom", "hierarchical")


@known_arguments
@dataclass(frozen=True, slots=True)
class ProcessRule:
    r"""How a data set cuts its documents (named by spec 004, defined by the system it describes).

    Args:
        mode: ``"automatic"``: as `lazyrag.Rule.automatic` does, unless there are rules; ``"custom"``: into one level;
            ``"hierarchical"``: into parents and children.
        rules: A `lazyrag.Rule`, or a mapping of its arguments.

    Raises:
        ConfigError: If the mode is unknown, or the rules do not fit it.

    Example:
        >>> ProcessRule("custom", {"segmentation": {"max_tokens": 200, "separator": "\n"}}).rule.segmentation
        Segmentation(max_tokens=200, chunk_overlap=0, separator='\n')
    """

    mode: str = "automatic"
    rules: Rule | Mapping[str, Any] | None = None
    rule: Rule = field(init=False, compare=False, repr=False)
    """The rule itself."""

    def __post_init__(self) -> None:
        if isinstance(self.rules, Rule):
            if self.mode not in _MODES:
                msg = f"The mode of a process rule is {self.mode!r:.80}. {known_names(str(self.mode), _MODES)}"
                raise ConfigError(msg)
            rule = self.rules
            needed = {"custom": "segmentation", "hierarchical": "subchunk_segmentation"}.get(self.mode)
            if needed is not None and getattr(rule, needed) is None:
                msg = f"A process rule of mode {self.mode!r} needs rules with {needed}."
                raise ConfigError(msg)
        else:
            rule = Rule.from_dict({"mode": self.mode, "rules": self.rules})
        object.__setattr__(self, "rule", rule)


def extract(
    setting: ExtractSetting, *, rule: Rule | ProcessRule | None = None, dataset_id: str = "", **options: Any
) -> list[Document]:
    """The files or pages that a setting names, whole or cut; `lazyrag.sources.extract` reads them.

    Args:
        setting: What is to be extracted.
        rule: How they are cut, as `transform` does it: the way of files that are longer than a document may be. None:
            they stay whole.
        dataset_id: Of the data set that they are for.
        options: The keywords of `lazyrag.sources.extract`.

    Returns:
        A document for each, with its ``source`` and ``doc_hash``; or with a rule the chunks of all.

    Raises:
        ConfigError: If one is blank, or is to stay whole and is longer than a document may be, or an argument does not
            fit.
        LoadError: If a file cannot be read.
    """
    made = None if rule is None else _checked_rule(rule)
    told = {"dataset_id": dataset_id} if dataset_id else {}
    items = [
        (item.text, {**item.metadata, "source": item.identity, "doc_hash": doc_hash(item.text), **told})
        for item in extract_items(setting, **options)
    ]
    if made is not None:
        return _cut(items, made, dataset_id)
    for text, metadata in items:
        if len(text) > MAX_CHARACTERS:
            msg = (
                f"{metadata['source']!r:.80} has {len(text):,} characters, and a document at most {MAX_CHARACTERS:,}. "
                "Cut it as it is read: extract(setting, rule=Rule.automatic()), which gives the chunks."
            )
            raise ConfigError(msg)
    return [Document(text, metadata) for text, metadata in items]


def transform(documents: Sequence[Document], rule: Rule | ProcessRule, dataset_id: str = "") -> list[Document]:
    r"""Cut documents into the chunks that are searched: those of a rule, its children where it makes any.

    Args:
        documents: Whole documents. Each is known by its ``doc_id``, else by its ``source``, else by its place.
        rule: How they are cleaned and cut.
        dataset_id: Of the data set that they are for.

    Returns:
        The chunks, document by document, each with its document's metadata and its own ``doc_id``, ``doc_hash``,
        ``document_id`` and ``position``. The same documents of the same data set give the same ids.

    Raises:
        ConfigError: If two documents have one id, one is blank, or the rule does not say how to cut.

    Example:
        >>> from lazyrag import Segmentation
        >>> rule = Rule(Segmentation(50, 0, "\n"))
        >>> chunks = transform([Document("Tea. " * 30 + "\n" + "Coffee. " * 30, {"source": "a.md"})], rule)
        >>> chunks[0].metadata["source"], [chunk.metadata["position"] for chunk in chunks] == [*range(len(chunks))]
        ('a.md', True)
    """
    made = _checked_rule(rule)
    whole = list(documents) if isinstance(documents, Iterable) else [None]
    if not all(isinstance(one, Document) for one in whole):
        msg = f"documents is {documents!r:.80}; give a list of lazyrag.interop.dify.Document."
        raise ConfigError(msg)
    return _cut([(one.page_content, one.metadata) for one in whole], made, dataset_id)


def _checked_rule(rule: Any) -> Rule:
    made = rule.rule if isinstance(rule, ProcessRule) else rule
    if not isinstance(made, Rule):
        msg = f"rule is {rule!r:.80}; give a Rule or a ProcessRule."
        raise ConfigError(msg)
    return made


def _cut(whole: Sequence[tuple[str, Mapping[str, Any]]], rule: Rule, dataset_id: str) -> list[Document]:
    """The chunks of texts with metadata; the texts may be longer than a document."""
    by_id: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for place, (text, metadata) in enumerate(whole):
        known = str(metadata.get("doc_id") or metadata.get("source") or f"document {place + 1}")
        if by_id.setdefault(known, (text, metadata))[1] is not metadata:
            msg = f"Two documents are known as {known!r:.80}; give each a doc_id of its own in its metadata."
            raise ConfigError(msg)
        if not text.strip():
            msg = f"The document {known!r:.80} is blank, so there is nothing to cut. Leave it out."
            raise ConfigError(msg)
    if not by_id:
        return []
    chunks: dict[str, list[Document]] = {known: [] for known in by_id}
    with Collection() as docs:
        docs.add_texts({known: text for known, (text, _) in by_id.items()})
        for node in docs.get_nodes(rule.create_groups(docs).child):
            chunks[node.path].append(_chunk(node, by_id[node.path][1], dataset_id))
    return [chunk for known in by_id for chunk in chunks[known]]


def _chunk(node: DocNode, metadata: Mapping[str, Any], dataset_id: str) -> Document:
    own = {
        "doc_id": str(uuid.UUID(hex=digest([dataset_id, node.uid]))),
        "doc_hash": doc_hash(node.text),
        "document_id": metadata.get("document_id", node.document_id),
        "position": node.number - 1,
    }
    return Document(node.text, {**metadata, **own, **({"dataset_id": dataset_id} if dataset_id else {})})
