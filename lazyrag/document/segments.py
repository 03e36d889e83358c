"""From files and drafts to segments: what a node of the tree is made of."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema, check_value
from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    Place,
    Segment,
    Span,
    check_metadata,
    child_uids,
    content_text,
    digest,
    root_uid,
)
from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.directory import FoundFile, built_in_metadata
from lazyrag.transforms.base import Draft
from lazyrag.types import Fields

_VOLATILE = "last_accessed_date"
_SORTED = json.JSONEncoder(sort_keys=True, default=str)  # json.dumps would make one each time


@dataclass(frozen=True, slots=True)
class FileMetadataParts:
    """What a document's metadata is made of, each part before those that precede it.

    Args:
        loaded: What the loader found.
        said: What ``file_metadata`` gave.
        updates: What ``update_metadata`` gave.
        built_in: The six fields that the file system gives.
    """

    loaded: Mapping[str, Any]
    said: Mapping[str, Any]
    updates: Mapping[str, Any]
    built_in: Mapping[str, Any]

    def merged(self) -> dict[str, Any]:
        """All of it."""
        return {**self.loaded, **self.said, **self.updates, **self.built_in}


def looked_at(file: FoundFile) -> Mapping[str, Any]:
    """What the file system says of a file.

    Raises:
        LoadError: If it cannot be looked at.
    """
    try:
        return built_in_metadata(file.path)
    except OSError as exc:
        msg = f"The file cannot be looked at ({exc.strerror}). Check that it exists and may be read."
        raise LoadError(msg, path=str(file.path)) from exc


def root_segment(identity: str, loaded: LoadedFile, parts: FileMetadataParts, schema: Schema, build: int) -> Segment:
    """The root node of a document.

    Args:
        identity: The document's.
        loaded: Its text, and the places in it.
        parts: Its metadata.
        schema: The filterable fields.
        build: Number of the build it is.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be kept.
    """
    metadata = parts.merged()
    fields = _file_fields(metadata, schema)
    metadata.update((name, value) for name, value in fields.items() if value is not None)
    uid = root_uid(identity)
    return Segment(
        uid=uid,
        build=build,
        group=LAZY_ROOT_NAME,
        document_id=uid,
        path=identity,
        parent=None,
        number=1,
        content=loaded.text,
        metadata=check_metadata(metadata),
        fields=fields,
        places=loaded.places,
    )


def child_segments(
    parent: Segment, group: str, build: int, drafts: Sequence[Draft], schema: Schema, *, before: int
) -> list[Segment]:
    """What a group makes of one node.

    Args:
        parent: The node.
        group: Name of the group.
        build: Number of the build they are part of.
        drafts: What the transform returned.
        schema: The filterable fields.
        before: How many nodes of the group precede them in the document.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be kept.
    """
    uids = child_uids(parent.uid, group, range(1, len(drafts) + 1))
    return [
        Segment(
            uid=uid,
            build=build,
            group=group,
            document_id=parent.document_id,
            path=parent.path,
            parent=parent.uid,
            number=number,
            content=draft.content,
            metadata=check_metadata(draft.metadata) if draft.metadata else EMPTY,
            fields=_own_fields(parent.fields, draft.metadata, schema) if draft.metadata else parent.fields,
            span=_span(parent, draft),
        )
        for number, (uid, draft) in enumerate(zip(uids, drafts, strict=True), start=before + 1)
    ]


def rebound_segments(
    before: Sequence[Segment],
    parents_before: Sequence[Segment],
    parents: Sequence[Segment],
    counts: Sequence[int],
    build: int,
    schema: Schema,
) -> list[Segment]:
    """Nodes that were made of equal parents, as nodes of these: what the transform would return again.

    Args:
        before: The nodes, in order.
        parents_before: The nodes above them.
        parents: The nodes above them now, as many.
        counts: How many each of these has.
        build: Number of the build they are part of.
        schema: The filterable fields.
    """
    rest = iter(before)
    group = before[0].group if before else ""
    return [
        node._replace(
            uid=uid,
            build=build,
            document_id=parent.document_id,
            path=parent.path,
            parent=parent.uid,
            fields=_own_fields(parent.fields, node.metadata, schema) if node.metadata else parent.fields,
            span=_moved_span(node.span, parent_before, parent),
        )
        for parent_before, parent, count in zip(parents_before, parents, counts, strict=True)
        for uid, node in zip(
            child_uids(parent.uid, group, range(1, count + 1)), itertools.islice(rest, count), strict=True
        )
    ]


def _moved_span(span: Span | None, parent_before: Segment, parent: Segment) -> Span | None:
    """A span in a parent's source, where an equal parent stands elsewhere."""
    if span is None:
        return None
    shift = (parent.span or (0, 0))[0] - (parent_before.span or (0, 0))[0]
    return span[0] + shift, span[1] + shift


def root_digest(root: Segment) -> str:
    """Digest of all that a root node is, but for the time of last access, which reading may change."""
    told = [{name: value for name, value in one.items() if name != _VOLATILE} for one in (root.metadata, root.fields)]
    return digest([content_text(root.content), _SORTED.encode([*told, _told(root.places)])])


def output_digest(nodes: Sequence[Segment]) -> str:
    """Digest of a build's nodes, as a store is to keep them; the time of last access counts here as well."""
    shared: dict[str, int] = {}  # path and fields, which most nodes of a build have in common
    seen: dict[tuple[str, int], int] = {}  # the same by the fields' object, as which they mostly come
    parts: list[str] = []
    for one in nodes:
        common = seen.get((one.path, id(one.fields)))
        if common is None:
            told = _SORTED.encode([one.path, dict(one.fields)])
            common = seen[one.path, id(one.fields)] = shared.setdefault(told, len(shared))
        kind, text = _content_told(one)
        start, end = one.span or ("", "")
        rest = _SORTED.encode([dict(one.metadata), _told(one.places)]) if one.metadata or one.places else ""
        # The parts of a node, and nodes, cannot run into each other: the length of what is free stands before it.
        parts.append(
            f"{common} {one.uid}-{one.build} {one.parent} {one.number} {start} {end} {kind} {len(text)} {text}{rest}"
        )
    return digest([*shared, "".join(parts)])


def _content_told(one: Segment) -> tuple[str, str]:
    """A node's content as text, and what kind of value it is."""
    content = one.content
    return ("", content) if isinstance(content, str) else (type(content).__name__, _SORTED.encode(content))


def _told(places: Iterable[Place]) -> list[tuple[int, int, str, str]]:
    return [(place.start, place.end, place.kind, place.label) for place in places]


def input_digest(
    line: Sequence[Sequence[Segment]], *, sees_nodes: bool, path_told: Callable[[str], str] | None = None
) -> str:
    """Digest of what a transform can see of the nodes it is called with.

    The six built-in fields are left out: a file that is moved or touched costs no transform. So is what stands beside
    or beneath a node, which may not be made yet.

    Args:
        line: The document's nodes of the parent group, of the group above that and so on; the root node last.
        sees_nodes: Whether it is called with nodes, through which it reaches those above; else it sees nothing but the
            parents' content.
        path_told: What of the document's path it reads; None for nothing.
    """
    parts = [str(len(line[0])), *itertools.chain.from_iterable(map(_content_told, line[0]))]
    if sees_nodes:
        for nodes in line:
            parts += [_metadata_text(one) for one in nodes]
            parts += [_SORTED.encode([one.span, one.number]) for one in nodes]
        parts += [told for nodes in line[1:] for one in nodes for told in _content_told(one)]
        parts += [_SORTED.encode([place.start, place.end, place.kind, place.label]) for place in line[-1][0].places]
    # Behind a slash, so that who does not know the transform can compare the rest.
    return digest(parts) + ("" if path_told is None else f"/{path_told(line[-1][0].path)}")


def _metadata_text(segment: Segment) -> str:
    own = {name: value for name, value in segment.metadata.items() if name not in BUILT_IN_FIELDS}
    return _SORTED.encode(own)


def _file_fields(metadata: Mapping[str, Any], schema: Schema) -> Fields:
    """A file's filterable fields: checked, defaults filled in, None where there is neither value nor default."""
    fields = {}
    for name, field in schema.items():
        value = check_value(name, field, metadata.get(name))
        fields[name] = field.default_value if value is None else value
    return fields


def _own_fields(above: Fields, metadata: Mapping[str, Any], schema: Schema) -> Fields:
    """A node's fields: those of the node above it, overlaid with its own metadata's declared ones."""
    own = {
        name: check_value(name, schema[name], value)
        for name, value in metadata.items()
        if name in schema and name not in BUILT_IN_FIELDS and value is not None
    }
    return {**above, **own} if own else above


def _span(parent: Segment, draft: Draft) -> Span | None:
    """The draft's span in its source: the parent's source if the parent has a span there, else the parent."""
    if draft.span is None or parent.span is None:
        return draft.span
    start = parent.span[0]
    return start + draft.span[0], start + draft.span[1]
