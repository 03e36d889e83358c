"""What indexes read of nodes, and embedding it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from lazyrag.data.segment import LAZY_ROOT_NAME, Location, Segment, content_text
from lazyrag.ingest.pending import PendingSource, PendingVersion
from lazyrag.ingest.plan import BuildPlan, IndexTarget
from lazyrag.loaders import SOURCE_SUFFIXES
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import Embedded
from lazyrag.text.indentation import enclosing_lines
from lazyrag.transforms.tables import document_tables
from lazyrag.validation import require


class FieldReader:
    """Reads the fields of a document's nodes that indexes read before their text.

    Args:
        names: As ``index_fields`` of `Document.create_node_group`.
        root: The root node of the document.
        is_file: Whether its path is that of a file, not an id, whose words say nothing.
    """

    def __init__(self, names: Sequence[str], root: Segment, *, is_file: bool = True) -> None:
        self._names = names
        self._root = root
        self._headings = _Labels(_headings(root) if "headings" in names else ())
        self._tables = _Labels(_table_headers(root) if "headings" in names else ())
        self._prefixes: dict[str | None, str] = {}  # of nodes without metadata, by their heading
        self._path = ""
        if is_file:
            words = _WORD.findall(root.path.rpartition(".")[0] or root.path)
            self._path = " ".join(word for word in words if not word.isdecimal())

    def read(self, node: Segment, source: Segment | None, text: str) -> str:
        """The fields that a node has, each once, and a text; its headings if its span counts in the
        root node.
        """
        heading = None
        if node.span is not None and source is not None and source.group == LAZY_ROOT_NAME:
            start = node.span[0]
            header = self._tables.label_at(start - 1)  # a node that begins with its table has it
            heading = "\n".join(filter(None, [self._headings.label_at(start), header]))
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
        if value is None:
            return ""
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_WORD = re.compile(r"[^\W_]+")


def _headings(root: Segment) -> Iterator[Location]:
    """What stands above the texts of a document: its headings, in source code the first lines of
    the blocks around them.
    """
    if PurePath(root.path).suffix.lower() in SOURCE_SUFFIXES:
        yield from enclosing_lines(content_text(root.content))
    else:
        yield from (location for location in root.locations if location.kind == "heading")


def _table_headers(root: Segment) -> Iterator[Location]:
    """The tables whose rows do not have the names of their columns, each with its caption and these
    names.
    """
    text = content_text(root.content)
    if "|" not in text or PurePath(root.path).suffix.lower() in SOURCE_SUFFIXES:
        return
    for place, table, _ in document_tables(root):
        last_row = text[place.start : place.end].rstrip().rpartition("\n")[2]
        if "|" in last_row and not table.sheet:
            header = "\n".join(filter(None, [table.caption, " | ".join(table.names)]))
            yield Location(place.start, place.end, place.kind, header)


class _Labels:
    """Locations in the order of their starts."""

    def __init__(self, locations: Iterable[Location]) -> None:
        self._locations = list(locations)
        self._starts = [location.start for location in self._locations]

    def label_at(self, place: int) -> str:
        """The label of the last location that begins at or before a place, if it reaches it."""
        at = bisect_right(self._starts, place) - 1
        if at >= 0 and place < self._locations[at].end:
            return self._locations[at].label
        return ""


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
    texts_below = {}
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
    texts: Mapping[PendingVersion, Sequence[str]],
    vectors_by_text: Mapping[str, Embedded],
    on_nodes: Callable[[int], None],
) -> Iterator[tuple[PendingVersion, Sequence[Embedded]]]:
    """Embed documents together; yields each with the result for each of its texts, as soon as all
    are there.

    A batch need not end where a file does, and models that pad prefer to choose texts of equal
    length among many. So documents come in any order.

    Args:
        embedder: The embed callable.
        dimension: The length that vectors must have, or `SPARSE`; 0 if it is not known yet.
        texts: Documents with their texts, at least one each.
        vectors_by_text: Vectors of texts that need not be embedded again.
        on_nodes: Called with the number of further texts that have a result.
    """
    users: dict[str, list[PendingVersion]] = {}  # the documents with a text, once for each time
    missing = {}
    for version, version_texts in texts.items():
        missing[version] = len(version_texts)
        for text in version_texts:
            users.setdefault(text, []).append(version)
    results = {}

    def enter(text: str, result: Embedded) -> Iterator[tuple[PendingVersion, Sequence[Embedded]]]:
        results[text] = result
        on_nodes(len(users[text]))
        for version in users[text]:
            missing[version] -= 1
            if not missing[version]:
                yield version, [results[version_text] for version_text in texts[version]]

    for text in users:
        if text in vectors_by_text:
            yield from enter(text, vectors_by_text[text])
    distinct = [text for text in users if text not in results]
    for batch in embedder.batches(distinct, dimension):
        for position, result in zip(batch.positions, batch.results, strict=True):
            yield from enter(distinct[position], result)
