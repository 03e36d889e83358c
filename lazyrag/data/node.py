"""Nodes as users see them, and their locations in a file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, Protocol, TypeVar
from weakref import ref

from lazyrag.data.segment import (
    EMPTY,
    HIDDEN,
    IMAGE,
    LAZY_ROOT_NAME,
    NOT_SHOWN,
    Content,
    Location,
    Locations,
    ReadOnly,
    Segment,
    Span,
    check_content,
    check_names,
    content_text,
    copy_value,
    digest,
)
from lazyrag.data.suggestions import SuggestsNames
from lazyrag.errors import ConfigError, StaleNodeError, StoreError
from lazyrag.types import Embedding, JsonObject, Metadata
from lazyrag.validation import known_arguments, validate_string

SOURCE_LOCATION = "source_location"
"""Name of the metadata with a chunk's place in the source text of its file, where that is not the
document's text."""


def innermost(locations: Sequence[Location]) -> list[Location]:
    """Locations in order, without those that enclose the next one: a page in an archive's member
    names the member, too.

    Example:
        >>> member, page = Location(0, 9, "member", "a.pdf"), Location(0, 9, "page", "a.pdf > 1")
        >>> [location.kind for location in innermost([member, page])]
        ['page']
    """
    pairs = itertools.zip_longest(locations, locations[1:])
    return [
        location
        for location, after in pairs
        if after is None or not (location.start <= after.start and after.end <= location.end)
    ]


def _describe_lines(text: str, start: int, end: int) -> str:
    first = text.count("\n", 0, start) + 1
    last = first + text.count("\n", start, end)
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _covering_heading(touched: Sequence[Location], start: int) -> str:
    """The label of the deepest heading above all of a text from a start; "" without one."""
    headings = [location for location in touched if location.kind == "heading"]
    if headings and headings[0].start > start:
        return ""
    paths = [heading.label.split(" > ") for heading in headings]
    same = itertools.takewhile(lambda titles: len(set(titles)) == 1, zip(*paths, strict=False))
    return " > ".join(titles[0] for titles in same)


def describe_span(source: Segment, span: Span) -> str:
    """The place of a stretch of a root node's text, as `DocNode.location` names it."""
    node = DocNode(text=content_text(source.content)[slice(*span)], span=span)
    return node._describe(source, _shown(node._touched(source)))


def _describe_range(first: Location, last: Location) -> str:
    if first.kind == last.kind == "time":
        return "–".join(
            [
                first.label.replace("-", "–").split("–")[0],
                last.label.replace("-", "–").split("–")[-1],
            ]
        )
    if first is last:
        return f"{first.kind} {first.label}"
    if first.kind != last.kind:  # a row of one sheet, and the next sheet
        return f"{first.kind} {first.label} to {last.kind} {last.label}"
    reach = "-" if first.label.isdecimal() else " to "
    return f"{first.kind}s {first.label}{reach}{last.label}"


class NodeSource(Protocol):
    """Source of a node's neighbours and vectors. Everything it returns is in the reader's scope."""

    @property
    def document_token(self) -> object:
        """Identifies the Document: the same object for every reader of it."""

    @property
    def is_closed(self) -> bool:
        """Whether the Document is closed, so that nothing can be read."""

    def parent(self, segment: Segment) -> DocNode | None:
        """The parent, None for a root; StaleNodeError if it is gone or out of scope."""

    def children(self, segment: Segment) -> dict[str, list[DocNode]]:
        """The children by group, in order, for the groups that are built."""

    def root(self, segment: Segment) -> DocNode:
        """The root node of the segment's document."""

    def source(self, segment: Segment) -> Segment | None:
        """The segment in whose text the segment's span counts; None without a span or out of
        scope.
        """

    def show(self, segment: Segment) -> DocNode:
        """The segment as a node; StaleNodeError if it is out of scope."""

    def file_metadata(self, segment: Segment) -> JsonObject:
        """The metadata of the segment's file; empty if its root node is out of scope."""

    def source_texts(self, segment: Segment, kind: bool | str = True) -> Sequence[tuple[str, str]]:
        """For a root node whose text its loader rendered, while groups are built: the texts of the
        file itself.

        Pairs (name, text): "" names the file, others are the files inside of it. Empty for other
        nodes. Of the kind ``"pictures"`` it is a list of its pictures.
        """

    def image(self, segment: Segment, file: str | PathLike[str] | None = None) -> bytes:
        """The bytes of the picture of a node of the group ``image``; StaleNodeError if it is gone
        or out of scope.
        """

    def embeddings(self, segment: Segment) -> Mapping[str, Embedding]:
        """The vectors by embed key, for the keys that are embedded."""


T = TypeVar("T")
_MOST_ROOTS = 4


class Shown(dict[str, Any]):
    """What a hit has shown of its Document, by name: it is still there when the Document is
    closed.
    """

    __slots__ = ("__weakref__", "node", "roots")
    __hash__ = object.__hash__  # type: ignore[assignment]  # two of them are never the same
    node: tuple[Segment, NodeSource | None]
    roots: Roots


class Roots(dict[str, list[Segment]]):
    """Root nodes by key, read for hits."""

    __slots__ = ("__weakref__",)


class ShownHits(set["ref[Shown]"]):
    """What the hits of a Document have shown, as long as somebody has the hits."""

    last_roots = ref(Roots())
    """Those that hits have read last; they are released with the hits."""

    def root(self, key: str, read: Callable[[], list[Segment]]) -> list[Segment]:
        """Read a root node, that of a large table once for several hits."""
        roots = self.last_roots()
        if roots is None:
            return read()
        segments = roots.get(key)
        if segments is None:
            segments = read()
            if len(roots) >= _MOST_ROOTS:
                roots.clear()
            roots[key] = segments
        return segments


@known_arguments
class DocNode(SuggestsNames):
    """One piece of a document in the tree of node groups (spec 001).

    Retrieval returns light copies that carry scores; stored nodes cannot be changed through them.
    Nodes are equal if their uids are and they belong to the same Document. Text and metadata of a
    node that you make can be changed.

    A transform or a loader makes new nodes with `DocNode(text=..., metadata=..., span=...)`; the
    tree gives them their uid, group and parent.

    Args:
        content: Text, or another JSON value; ``text=`` is the same by another name.
        metadata: The node's own metadata.
        uid: By default computed from content and metadata.
        span: Position of the text in its parent's text: ``parent.text[start:end] == node.text``.
        embeddings: Vectors by embed key, for nodes outside a tree.
        score: A score, for nodes outside a tree.
        global_metadata: Metadata of its file, from a loader: see `global_metadata`.

    Raises:
        ConfigError: If both or neither of ``content`` and ``text`` are given, or the content is no
            JSON value.

    Example:
        >>> node = DocNode(text="Tea is picked in April.", metadata={"season": "spring"})
        >>> node.get_text(), node.metadata["season"], node.score
        ('Tea is picked in April.', 'spring', None)
    """

    __slots__ = (
        "_embed_key",
        "_embeddings",
        "_file_metadata",
        "_merged_from",
        "_metadata",
        "_reader",
        "_score",
        "_segment",
        "_shown",
        "_uid",
    )

    def __init__(
        self,
        content: Content | None = None,
        *,
        text: str | None = None,
        metadata: Metadata | None = None,
        uid: str | None = None,
        span: Span | None = None,
        embeddings: Mapping[str, Embedding] | None = None,
        score: float | None = None,
        global_metadata: Metadata | None = None,
    ) -> None:
        if (content is None) == (text is None):
            raise ConfigError(
                "A DocNode takes its text as content= or as text=: give exactly one of them."
            )
        value = check_content(text if content is None else content)
        checked = copy_value(dict(check_names(metadata))) if metadata else EMPTY
        location = None if span is None else _checked_span(span)
        self._segment = Segment(uid or "", 0, "", "", "", None, 0, value, checked, EMPTY, location)
        self._reader: NodeSource | None = None
        self._embeddings = embeddings
        self._embed_key: str | None = None
        self._metadata: JsonObject | None = None
        self._file_metadata = (
            copy_value(dict(check_names(global_metadata))) if global_metadata else None
        )
        self._uid = ""  # computed
        self._shown: Shown | None = None
        self._score = score
        self._merged_from: tuple[str, ...] = ()

    @classmethod
    def from_segment(
        cls,
        segment: Segment,
        reader: NodeSource | None,
        *,
        score: float | None = None,
        embeddings: Mapping[str, Embedding] | None = None,
        embed_key: str | None = None,
        merged_from: tuple[str, ...] = (),
    ) -> DocNode:
        """A node over a stored segment; internal.

        Args:
            segment: The stored value.
            reader: Source of its neighbours; None outside a tree.
            score: The score it carries.
            embeddings: Vectors instead of the stored ones.
            embed_key: The key whose vector `embedding` returns if there are several.
            merged_from: See `merged_from`.
        """
        node = cls.__new__(cls)
        node._segment = segment
        node._reader = reader
        node._embeddings = embeddings
        node._embed_key = embed_key
        node._metadata = node._file_metadata = node._shown = None
        node._uid = ""
        node._score = score
        node._merged_from = merged_from
        return node

    @classmethod
    def of_part(cls, text: str, span: Span) -> DocNode:
        """A new node of a part of its parent's text; internal: it takes a third of the
        constructor's time.
        """
        return cls.from_segment(
            Segment("", 0, "", "", "", None, 0, text, EMPTY, EMPTY, _checked_span(span)), None
        )

    @property
    def has_metadata(self) -> bool:
        """Whether it has metadata of its own; internal: a look at `metadata` makes a copy."""
        return bool(self._segment.metadata if self._metadata is None else self._metadata)

    def with_score(self, score: float | None) -> DocNode:
        """A copy that carries another score.

        Example:
            >>> DocNode(text="tea").with_score(0.5).score
            0.5
        """
        copied = _restored(
            type(self), self.segment, self._embeddings, score, getattr(self, "__dict__", {})
        )
        copied._reader = self._reader
        copied._embed_key = self._embed_key
        copied._merged_from = self._merged_from
        copied._file_metadata = self._file_metadata
        copied._shown = self._shown
        return copied

    def with_metadata(self, **metadata: Any) -> DocNode:
        """A copy that carries further metadata of its own.

        Example:
            >>> dict(DocNode(text="tea").with_metadata(checked=True).metadata)
            {'checked': True}
        """
        copied = self.with_score(self.score)
        segment = copied.segment
        copied._segment = segment._replace(metadata={**segment.metadata, **metadata})
        return copied

    @property
    def uid(self) -> str:
        """Deterministic id: the same file, group and place in the tree give the same one on every
        machine.
        """
        return self._segment.uid or self.segment.uid

    @property
    def group(self) -> str:
        """Name of its node group; "" outside a tree."""
        return self._segment.group

    @property
    def number(self) -> int:
        """Its ordinal among the nodes of its group in its document, from 1; 0 outside a tree."""
        return self._segment.number

    @property
    def document_id(self) -> str:
        """Uid of its document's root node."""
        return self._segment.document_id

    @property
    def path(self) -> str:
        """Its document: the file's path relative to the dataset, or the id a user gave."""
        return self._segment.path

    @property
    def segment(self) -> Segment:
        """The stored value behind this node."""
        segment = self._segment
        if self._metadata is not None and self._is_own:
            segment = segment._replace(metadata=copy_value(self._metadata))
        if not segment.uid:  # computed lazily: few nodes outside a tree need it
            if not self._uid or self._metadata is not None:  # which may have been changed
                self._uid = digest(
                    ["free", json.dumps(segment.content), repr(sorted(segment.metadata.items()))]
                )
            segment = segment._replace(uid=self._uid)
        return segment

    @property
    def reader(self) -> NodeSource | None:
        """Source of its neighbours; None outside a tree."""
        return self._reader

    @property
    def content(self) -> Content:
        """The content with its type: text, a number, another JSON value (a copy of it)."""
        return copy_value(self._segment.content)

    @property
    def text(self) -> str:
        """The content as text; writable in a node that you made.

        Example:
            >>> node = DocNode(text="Tea.")
            >>> node.text, node.metadata["season"] = "Green tea.", "spring"
            >>> node
            DocNode(no group#0: 'Green tea.')
        """
        return content_text(self._segment.content)

    @text.setter
    def text(self, text: str) -> None:
        """Set the text of a node that you made; its span goes."""
        validate_string("text", text)
        self._write(content=check_content(text), span=None)

    def get_text(self) -> str:
        """The content as text (spec 001)."""
        return content_text(self._segment.content)

    def get_content(self) -> str:
        r"""The content for a reader or an answering model: the text; for a question, with its
        answer.

        A question is a node below the root whose own metadata has the text ``"answer"``, as
        `lazyrag.LLMParser` makes them.

        Example:
            >>> DocNode(text="How hot?", metadata={"answer": "80 degrees."}).get_content()
            'query:\nHow hot?\nanswer:\n80 degrees.'
        """
        answer = self._segment.metadata.get("answer")
        if not isinstance(answer, str) or self._segment.group == LAZY_ROOT_NAME:
            return self.get_text()
        return f"query:\n{self.get_text()}\nanswer:\n{answer}"

    # `| Any` where None is the exception ("the Any trick" of typeshed): `node.score > 0.5`
    # type-checks without assert.
    @property
    def score(self) -> float | Any:
        """Score of the last retriever or reranker; None before."""
        return self._score

    @property
    def merged_from(self) -> tuple[str, ...]:
        """Uids of the nodes that `auto_merge` or `Document.window` replaced by it, in order; () for
        other nodes.
        """
        return self._merged_from

    @property
    def metadata(self) -> JsonObject:
        """Its own metadata, for a root node its file's; read-only but in a node that you made."""
        if self._metadata is None:
            stored = self._segment.metadata
            if self._reader is None and not self._segment.group:
                self._metadata = copy_value(dict(stored)) if stored else {}
                self._segment = self._segment._replace(metadata=self._metadata)
            else:
                self._metadata = ReadOnly(copy_value(dict(stored))) if stored else EMPTY
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: Metadata) -> None:
        """Set the metadata of a node that you made."""
        self._write(metadata=copy_value(dict(check_names(metadata))))
        self._metadata = None

    @property
    def global_metadata(self) -> JsonObject:
        """The metadata of its file, read-only: six built-in fields, declared fields, the loader's
        metadata.

        Empty if a restricted Document hides the root node. A loader sets it on the nodes that it
        makes: what they have in it becomes the file's metadata, whose declared fields filter all
        nodes of the file.
        """
        if self._is_own and self._file_metadata is None:
            self._file_metadata = {}
        if self._reader is None:
            return EMPTY if self._file_metadata is None else self._file_metadata
        return self._ask("global_metadata", self._reader.file_metadata)

    @global_metadata.setter
    def global_metadata(self, metadata: Metadata) -> None:
        """Set the metadata that a loader gives the file of a node."""
        self._write()
        self._file_metadata = copy_value(dict(check_names(metadata)))

    @property
    def _is_own(self) -> bool:
        """Whether it was made outside of a tree."""
        return self._reader is None and not self._segment.group

    def _write(self, **changes: Any) -> None:
        if not self._is_own:
            raise AttributeError(
                f"{self!r} is read-only. Change a copy of it: DocNode(text=..., metadata=...)."
            )
        self._segment = self._segment._replace(**changes)
        self._uid = ""

    @property
    def embeddings(self) -> Mapping[str, Any]:
        """Its vectors by embed key, as the model gave them: (dim,) float32, or dicts from dimension
        to float32 weight.

        Only keys that a search has used.
        """
        if self._embeddings is not None:
            return ReadOnly(self._embeddings)
        return (
            self._ask("embeddings", self._reader.embeddings) if self._reader is not None else EMPTY
        )

    @property
    def embedding(self) -> Any:
        """Its only vector; for a hit, the one it was found by.

        Raises:
            ConfigError: If it has none, or several; the message lists their keys.
        """
        vectors = self.embeddings if self._embeddings is None else self._embeddings
        if self._embed_key is not None and self._embed_key in vectors:
            return vectors[self._embed_key]
        if len(vectors) == 1:
            return next(iter(vectors.values()))
        if not vectors:
            msg = f"{self!r} has no embedding: no vector search has used its group yet."
        else:
            msg = (
                f"{self!r} has several embeddings; read node.embeddings[key] with one of:"
                f" {', '.join(sorted(vectors))}."
            )
        raise ConfigError(msg)

    @property
    def parent(self) -> DocNode | Any:
        """The node it was made of; None for a root node and outside a tree."""
        return self._ask("parent", self._reader.parent) if self._reader is not None else None

    def image(self, file: str | PathLike[str] | None = None) -> bytes:
        """Read the picture of a node of the group ``image`` from its document's file: PNG, JPEG,
        GIF, WebP or BMP.

        Args:
            file: The document's file, where this program does not know it, as for
                `lazyrag.read.marks`.

        Raises:
            ConfigError: If it is no such node, or this program does not know the file.
            StaleNodeError: If the node is gone, or a restricted Document hides it.
            LoadError: If the file is gone, or has changed since it was ingested.
        """
        # users' may have one
        if self._reader is None or not isinstance(self._segment.metadata.get(IMAGE), Mapping):
            raise ConfigError(
                f"{self!r} has no picture. Call image() of nodes of the group 'image' of a"
                " Document."
            )
        return self._reader.image(self._segment, file)

    @property
    def children(self) -> dict[str, list[DocNode]]:
        """The nodes made of it, by group and in order, for the groups that are built."""
        return self._ask("children", self._reader.children) if self._reader is not None else {}

    @property
    def root(self) -> DocNode:
        """The root node of its document: the whole text."""
        if self._reader is None:
            raise StaleNodeError(f"{self!r} belongs to no document.")
        return self._ask("root", self._reader.root)

    @property
    def span(self) -> Span | Any:
        """Start and end in the text of its `source`, in characters; None if a transform rewrote the
        text.
        """
        return self._segment.span

    @property
    def source(self) -> DocNode | Any:
        """The nearest ancestor whose text `span` counts in:
        ``source.text[start:end] == node.text``; None without span.

        It is the root node unless a group in between rewrites text: then it is that group's node.
        None if a restricted Document hides it.
        """
        reader = self._reader
        if reader is None or self.span is None:
            return None

        def show_source(segment: Segment) -> DocNode | None:
            source = reader.source(segment)
            return None if source is None else reader.show(source)

        return self._ask("source", show_source)

    @property
    def locations(self) -> Locations:
        """The pages or headings of its document that it touches, in order; () if unknown."""
        if self._segment.group == LAZY_ROOT_NAME:
            return _shown(self._segment.locations)
        if self._reader is None or self.span is None:
            return ()
        return self._ask("location", self._find_location)[1]

    @property
    def location(self) -> str:
        """Its place for people: ``"page 3"``, ``"rows 3-5"``, ``"Setup > Install, lines 12-20"``.

        In a PDF with an outline it is ``"page 3, Setup > Install"``. The heading is the deepest
        that covers the whole text: of a node under two headings the one above both. Of a chunk of a
        file's source text that differs from the document's, it is the place in the source. "" if
        unknown.
        """
        if self._reader is None or self.span is None:
            return str(self._segment.metadata.get(SOURCE_LOCATION, ""))
        return self._ask("location", self._find_location)[0]

    @property
    def hidden_text(self) -> Locations:
        """The stretches of its text that readers of the file do not see; their labels say why.

        Positions count in the node's text. () where a transform rewrote the text.
        """
        if self._segment.group == LAZY_ROOT_NAME:
            return self._hidden(self._segment.locations, 0)
        if self._reader is None or self.span is None:
            return ()
        return self._ask("location", self._find_location)[2]

    def _hidden(self, locations: Iterable[Location], offset: int) -> Locations:
        size = len(self.text)
        return tuple(
            location._replace(
                start=max(0, location.start - offset),
                end=min(size, location.end - offset),
            )
            for location in locations
            if location.kind == HIDDEN
        )

    def _find_location(self, segment: Segment) -> tuple[str, Locations, Locations]:
        source = None if self._reader is None else self._reader.source(segment)
        touched = self._touched(source)
        shown = _shown(touched)
        offset = segment.span[0] if segment.span else 0
        return self._describe(source, shown), shown, self._hidden(touched, offset)

    def _describe(self, source: Segment | None, touched: Sequence[Location]) -> str:
        if source is None or self.span is None or source.group != LAZY_ROOT_NAME:
            return ""
        start, end = self._inked_span(self.span)
        # which sections may begin or end within
        pages = [location for location in touched if location.kind == "page"]
        covering = _covering_heading(touched, start)
        locations = pages or innermost(touched)
        numbered = [location for location in locations if location.kind != "heading"]
        if numbered:
            under = f", {covering}" if pages and covering else ""
            return _describe_range(numbered[0], numbered[-1]) + under
        if len(locations) < len(touched):  # lines are counted from the beginning of what holds all
            return covering or touched[0].label
        lines = _describe_lines(content_text(source.content), start, end)
        return f"{covering}, {lines}" if covering else lines

    def _ask(self, name: str, read: Callable[[Segment], T]) -> T:
        """Read something from the Document; if that is closed, what a hit has shown before."""
        memory = self._shown
        if self._reader is not None and self._reader.is_closed:
            if memory is not None and name in memory:
                answer: T = memory[name]
                return answer
            raise StoreError(
                f"The Document of {self!r} is closed, so its {name} cannot be read. Read it before,"
                " or open it again."
            )
        answer = read(self._segment)
        if memory is not None:
            memory[name] = answer
        return answer

    def _touched(self, source: Segment | None) -> Locations:
        """The locations of a source that the span touches."""
        if source is None or self.span is None:
            return ()
        start, end = self._inked_span(self.span)
        return tuple(
            location
            for location in source.locations
            if location.start < end and start < location.end
        )

    def _inked_span(self, span: Span) -> Span:
        """The span without the white space at its ends, which may lie on another page or line."""
        text = self.text
        lead = len(text) - len(text.lstrip())
        return span[0] + lead, max(span[0] + lead, span[0] + len(text.rstrip()))

    @property
    def _document_token(self) -> object:
        return None if self._reader is None else self._reader.document_token

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DocNode)
            and other.uid == self.uid
            and other._document_token is self._document_token
        )

    def __hash__(self) -> int:
        return hash(self.uid)

    def __copy__(self) -> DocNode:
        return self.with_score(self._score) if self._is_own else self  # a node of a tree is a value

    def __deepcopy__(self, memo: dict[int, Any]) -> DocNode:
        return self.__copy__()

    def __reduce__(self) -> Any:
        if self._reader is not None:
            raise TypeError(
                f"{self!r} belongs to an open Document and cannot be sent elsewhere. Send"
                " Hit.from_node(node)."
            )
        state = dict(getattr(self, "__dict__", {}))
        return _restored, (type(self), self.segment, self._embeddings, self._score, state)

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import details

        score = "" if self.score is None else f" · {self.score:.3f}"
        place = self.location if isinstance(self.location, str) else ""
        label = ", ".join(part for part in (self.path, " ".join(place.split())) if part)
        return details(f"{label or self.uid}{score}", self.get_content(), is_open=True)

    def __repr__(self) -> str:
        text = self.text
        excerpt = text if len(text) <= 40 else text[:37] + "..."
        where = f"{self.group or 'no group'} {self.path}".strip()
        score = "" if self._score is None else f", score={self._score:.4f}"
        return f"DocNode({where}#{self.number}: {excerpt!r}{score})"


def _shown(locations: Iterable[Location]) -> Locations:
    return tuple(location for location in locations if location.kind not in NOT_SHOWN)


def remember(nodes: Iterable[DocNode], hits: ShownHits) -> None:
    """Make nodes of a Document hits: they remember what they show."""
    roots = hits.last_roots()
    if roots is None:
        roots = Roots()
        hits.last_roots = ref(roots)
    for node in nodes:
        node._shown = memory = Shown()
        memory.node = node._segment, node._reader
        memory.roots = roots
        hits.add(ref(memory, hits.discard))


def show_all(hits: ShownHits) -> None:
    """Let the hits that are still in use show their location and their file's metadata."""
    for reference in hits.copy():  # other threads may still search, or drop hits
        memory = reference()
        if memory is not None:
            node = DocNode.from_segment(*memory.node)
            node._shown = memory
            with suppress(StaleNodeError):
                _ = node.location, node.global_metadata
            memory.roots = Roots()


def _restored(
    cls: type[DocNode],
    segment: Segment,
    embeddings: Mapping[str, Embedding] | None,
    score: float | None,
    attributes: Mapping[str, Any],
) -> DocNode:
    """A node outside a tree with the attributes of a subclass: unpickled, or a copy."""
    node = cls.from_segment(segment, None, score=score, embeddings=embeddings)
    for name, value in attributes.items():
        setattr(node, name, value)
    return node


def _checked_span(span: Any) -> Span:
    if isinstance(span, (tuple, list)) and len(span) == 2:
        start, end = span
        if type(start) is type(end) is int and 0 <= start <= end:
            return start, end
    raise ConfigError(
        f"span must be (start, end), two integers with 0 <= start <= end; got {span!r}."
    )
