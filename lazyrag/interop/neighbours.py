"""What the adapters of other packages have in common: nodes out, texts in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.data.segment import copy_value, digest
from lazyrag.document.document import Document
from lazyrag.document.report import IngestReport
from lazyrag.errors import ConfigError
from lazyrag.retrieval.stages import NodeRetriever

T = TypeVar("T")


def checked_retriever(retriever: Any) -> NodeRetriever:
    """What finds nodes.

    Raises:
        ConfigError: If it is no callable, or gives texts or dicts.

    Example:
        >>> checked_retriever(lambda query, filters=None, topk=None: [])("tea")
        []
    """
    output_format = getattr(retriever, "output_format", None)
    if isinstance(retriever, type) or not callable(retriever) or output_format is not None:
        given = f"gives {output_format!r}" if output_format is not None else f"is {retriever!r:.80}"
        msg = f"The retriever {given}; give one of nodes: Retriever(docs, group), or (query, filters, topk) -> nodes."
        raise ConfigError(msg)
    return cast("NodeRetriever", retriever)


def checked_nodes(given: Iterable[Any], kind: type[T], what: str) -> list[T]:
    """Objects of another package, each of the kind that is needed.

    Raises:
        ConfigError: If one is not.

    Example:
        >>> checked_nodes(["tea"], str, "texts")
        ['tea']
    """
    found = list(given) if isinstance(given, Iterable) else [given]
    wrong = [one for one in found if not isinstance(one, kind)]
    if wrong:
        msg = f"Among the {what} is {wrong[0]!r:.80} ({type(wrong[0]).__name__}); give a list of {what}."
        raise ConfigError(msg)
    return found


def node_metadata(node: DocNode) -> dict[str, Any]:
    """The metadata of a node's file, overlaid with its own; beside them where it stands, where the names are free.

    Example:
        >>> node_metadata(DocNode(text="tea", metadata={"season": "spring"}, score=0.5))
        {'season': 'spring', 'score': 0.5}
    """
    hit = Hit.from_node(node)
    known: dict[str, Any] = copy_value(dict(hit.metadata))
    more = {"source": hit.source, "group": node.group, "document_id": hit.document_id, "score": node.score}
    for name, value in more.items():
        if value not in (None, ""):
            known.setdefault(name, value)
    return known


def add_pieces(docs: Document, pieces: Iterable[tuple[str | None, str, Mapping[str, Any]]]) -> IngestReport:
    """Take texts of another package into a Document, in one step.

    Args:
        docs: The Document.
        pieces: Id, text and metadata of each. One without an id gets one made of the other two. A score belongs to a
            question and is not kept; one of the six fields that every file has here becomes ``"original_<name>"``.

    Raises:
        ConfigError: If two have one id, a text is blank, or metadata cannot be kept.

    Example:
        >>> docs = Document()
        >>> print(add_pieces(docs, [("a", "green tea", {})]))
        1 added, 0 failed, 0 skipped
    """
    texts: dict[str, str] = {}
    metadata: dict[str, Mapping[str, Any]] = {}
    for given, text, told in pieces:
        own = {f"original_{name}" if name in BUILT_IN_FIELDS else name: told[name] for name in told if name != "score"}
        known = given or digest([text, repr(sorted(own.items()))])
        if known in texts:
            if given is None and texts[known] == text:
                continue
            msg = f"Two pieces have the id {known!r:.80}; give each one of its own."
            raise ConfigError(msg)
        texts[known], metadata[known] = text, own
    return docs.add_texts(texts, metadata)
