"""What indexes read of nodes, and embedding it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from lazyrag.data.segment import (
    LAZY_ROOT_NAME,
    Segment,
    content_text,
)
from lazyrag.ingest.pending import PendingSource, PendingVersion
from lazyrag.ingest.plan import BuildPlan, IndexTarget
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import Embedded
from lazyrag.storage.database import batches_reaching
from lazyrag.validation import require

D = TypeVar("D", bound=Hashable)


class FieldReader:
    """Reads the fields of a document's nodes that indexes read before their text.

    Args:
        names: ``"path"``, ``"title"``, ``"headings"``, or names of metadata of the node or its
            file.
        root: The root node of the document.
        is_file: Whether its path is that of a file, not an id, whose words say nothing.
    """

    def __init__(self, names: Sequence[str], root: Segment, *, is_file: bool = True) -> None:
        self._names = names
        self._root = root
        self._headings = [location for location in root.locations if location.kind == "heading"]
        self._starts = [location.start for location in self._headings]
        self._prefixes: dict[str | None, str] = {}  # of nodes without metadata, by their heading
        words = _WORD.findall(root.path.rpartition(".")[0] or root.path) if is_file else ()
        self._path = " ".join(word for word in words if not word.isdecimal())

    def read(self, node: Segment, source: Segment | None, text: str) -> str:
        """The fields that a node has, each once, and a text; its headings if its span counts in the
        root node.
        """
        heading: str | None = None
        if node.span is not None and source is not None and source.group == LAZY_ROOT_NAME:
            at = bisect_right(self._starts, node.span[0]) - 1
            heading = (
                self._headings[at].label
                if at >= 0 and node.span[0] < self._headings[at].end
                else ""
            )
        prefix = None if node.metadata else self._prefixes.get(heading)
        if prefix is None:
            fields = (self._read(name, node, heading) for name in self._names)
            prefix = "".join(f"{line}\n" for line in dict.fromkeys(filter(None, fields)))
            if not node.metadata:
                self._prefixes[heading] = prefix
        return prefix + text

    def _read(self, name: str, node: Segment, heading: str | None) -> str:
        if name == "path":
            return self._path
        if name == "headings":
            # Without a span in the root node it is of a splitter of source texts.
            return str(node.metadata.get("heading", "")) if heading is None else heading
        value = node.metadata.get(name, self._root.metadata.get(name))
        return (
            ""
            if value is None
            else ", ".join(map(str, value))
            if isinstance(value, list)
            else str(value)
        )


_WORD = re.compile(r"[^\W_]+")


def field_texts(
    names: Sequence[str], root: Segment, nodes: Iterable[Segment], *, is_file: bool = True
) -> list[str]:
    """The texts of nodes right below a root node, each after its fields."""
    fields = FieldReader(names, root, is_file=is_file)
    return [fields.read(node, root, content_text(node.content)) for node in nodes]


def read_index_texts(
    target: IndexTarget, version: PendingVersion, plan: BuildPlan, source: PendingSource
) -> list[str]:
    """What an index reads of a document's nodes, if that is not their own text alone."""
    index_text = target.text
    segments = version.segments[target.group]
    root = source.root(segments[0]).segment
    fields = FieldReader(index_text.fields, root, is_file=version.row.origin != "text")
    texts_below: dict[str, list[str]] = {}
    if index_text.group:
        texts_below = source.texts_below(plan, target.group, index_text.group)
    write = index_text.write
    texts = []
    for segment in segments:
        text = content_text(segment.content) if write is None else write(source.show(segment))
        if not isinstance(text, str) or not text:
            expected = "a function that returns a non-empty string"
            require(False, "index_text", write, expected, f"Got {text!r:.60}.")  # noqa: FBT003
        if texts_below:
            text = "\n".join([*texts_below.get(segment.uid, ()), text])
        if index_text.fields:
            text = fields.read(segment, source.source(segment), text)
        texts.append(text)
    return texts


def embed_documents(
    embedder: CheckedEmbedder,
    dimension: int,
    texts: Iterable[tuple[D, Sequence[str]]],
    vectors_by_text: Mapping[str, Embedded],
    on_nodes: Callable[[int], None],
    at_once: int,
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    """Embed documents; yields each with the result for each of its texts, as soon as all are there.

    Texts of several documents are embedded together: a batch need not end where a file does, and
    models that pad prefer to choose texts of equal length among many. So documents come in any
    order.

    Args:
        embedder: The embed callable.
        dimension: The length that vectors must have, or `SPARSE`; 0 if it is not known yet.
        texts: Documents with their texts, at least one each.
        vectors_by_text: Vectors of texts that need not be embedded again; looked up again for
            every few documents.
        on_nodes: Called with the number of further texts that have a result.
        at_once: How many texts are embedded together.
    """
    for some in batches_reaching(texts, lambda pair: len(pair[1]), at_once):
        yield from _embed_together(embedder, dimension, dict(some), vectors_by_text, on_nodes)


def _embed_together(
    embedder: CheckedEmbedder,
    dimension: int,
    texts: Mapping[D, Sequence[str]],
    vectors_by_text: Mapping[str, Embedded],
    on_nodes: Callable[[int], None],
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    users: dict[str, list[D]] = {}  # the documents that have a text, once for each time
    for document, document_texts in texts.items():
        for text in document_texts:
            users.setdefault(text, []).append(document)
    missing = {document: len(document_texts) for document, document_texts in texts.items()}
    results: dict[str, Embedded] = {}

    def enter(text: str, result: Embedded) -> Iterator[tuple[D, Sequence[Embedded]]]:
        results[text] = result
        on_nodes(len(users[text]))
        for document in users[text]:
            missing[document] -= 1
            if not missing[document]:
                yield document, [results[document_text] for document_text in texts[document]]

    for text in users:
        if text in vectors_by_text:
            yield from enter(text, vectors_by_text[text])
    distinct = [text for text in users if text not in results]
    for batch in embedder.batches(distinct, dimension):
        for position, result in zip(batch.positions, batch.results, strict=True):
            yield from enter(distinct[position], result)
