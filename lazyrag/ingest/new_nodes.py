"""The nodes of a new build: root nodes of files and texts, nodes below them, and their digests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema, check_value, parse_value
from lazyrag.data.node import DocNode
from lazyrag.data.segment import (
    EMPTY,
    LAZY_ROOT_NAME,
    Location,
    Segment,
    Span,
    check_metadata,
    child_uids,
    content_text,
    digest,
    root_uid,
)
from lazyrag.errors import (
    ConfigError,
    LazyRAGError,
    LoadError,
    TransformError,
)
from lazyrag.ingest.pending import MISFIT, PendingVersion, Root, VersionReader
from lazyrag.ingest.plan import BuildPlan, GroupTarget
from lazyrag.ledger.tables import BuildRow, DocumentRow
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.directory import (
    FoundFile,
    built_in_metadata,
    signature_of,
)
from lazyrag.transforms.base import Draft, run_transforms
from lazyrag.types import Fields

# Root nodes

_MAX_READS = 3  # of a file that changes while it is read


def file_root(
    load: Callable[[FoundFile], LoadedFile],
    file: FoundFile,
    row: DocumentRow,
    user_metadata: Mapping[str, Any] | LazyRAGError,
    schema: Schema,
    build: int,
) -> Root:
    """Load a file into the root node of its document.

    Args:
        load: Loads it.
        file: The file, with the signature that it had before it was hashed.
        row: The document's row.
        user_metadata: Metadata from ``file_metadata``, or the error that it raised.
        schema: The filterable fields.
        build: Number of the build.

    Raises:
        LoadError: If the file cannot be read.
        ConfigError: If a field's value does not fit, or metadata cannot be stored.
    """
    if isinstance(user_metadata, LazyRAGError):
        raise user_metadata
    for _ in range(_MAX_READS):  # metadata and text have to be of one version of the file
        before = signature_of(file.raw_path)
        # before reading, which may change the time of last access
        built_in = _file_system_metadata(file)
        loaded = load(file)
        if signature_of(file.raw_path) == before:
            break
    from_loader = check_metadata(_typed_metadata(loaded, schema))
    from_user = check_metadata(user_metadata)
    metadata = {**from_loader, **from_user, **json.loads(row.updates), **built_in}
    segment = root_segment(file.identity, loaded, metadata, schema, build)
    # else it may have been another while it was read
    unchanged = signature_of(file.raw_path) == file.signature
    row = replace(
        row,
        signature=file.signature if unchanged else None,
        loaded=json.dumps(dict(from_loader)) if from_loader else "{}",
        user_metadata=json.dumps(dict(from_user)) if from_user else "{}",
    )
    return Root(segment, row)


def _typed_metadata(loaded: LoadedFile, schema: Schema) -> dict[str, Any]:
    """Metadata of a loader, with its values of declared fields parsed; those that do not fit are
    noted.
    """
    metadata = dict(loaded.metadata)
    misfits = list[str]()
    for name, declared in schema.items():
        value = metadata.pop(name, None) if name in metadata else loaded.fields.get(name)
        if value is None or name in BUILT_IN_FIELDS:
            continue
        try:
            metadata[name] = parse_value(name, declared, value)
        except ConfigError as exc:
            misfits.append(f"{MISFIT}{exc}")
    if misfits:
        metadata["notes"] = [*metadata.get("notes", ()), *misfits]
    return metadata


def text_root(row: DocumentRow, text: str, today: str, schema: Schema, build: int) -> Root:
    """The root node of a text that was added as such; its metadata are in the row."""
    built_in = {
        "file_name": row.identity,
        "file_type": "text/plain",
        "file_size": len(text.encode("utf-8", "surrogatepass")),
        "creation_date": today,
        "last_modified_date": today,
        "last_accessed_date": today,
    }
    return Root(
        root_segment(
            row.identity, LoadedFile(text), _metadata(row, built_in, built_in), schema, build
        ),
        row,
    )


def renewed_root(
    before: Segment, row: DocumentRow, schema: Schema, build: int, *, file: FoundFile | None = None
) -> Root:
    """A root node with the text of another one, and the metadata in a row.

    Args:
        before: The root node that has the text.
        row: The document's row.
        schema: The filterable fields.
        build: Number of the build.
        file: The file as it is now; None keeps the built-in metadata of ``before``.

    Raises:
        LoadError: If the file cannot be accessed.
        ConfigError: If a field's value does not fit.
    """
    metadata = {name: before.metadata[name] for name in BUILT_IN_FIELDS if name in before.metadata}
    built_in = metadata if file is None else _file_system_metadata(file)
    loaded = LoadedFile(str(before.content), before.locations, json.loads(row.loaded))
    # the fields may have changed
    row = replace(row, loaded=json.dumps(_typed_metadata(loaded, schema)))
    return Root(
        root_segment(row.identity, loaded, _metadata(row, {}, built_in), schema, build), row
    )


def _metadata(
    row: DocumentRow, first: Mapping[str, Any], built_in: Mapping[str, Any]
) -> dict[str, Any]:
    """A document's metadata; later parts take precedence."""
    stored = (json.loads(text) for text in (row.loaded, row.user_metadata, row.updates))
    metadata = dict(first)
    for part in (*stored, built_in):
        metadata.update(part)
    return metadata


def _file_system_metadata(file: FoundFile) -> Mapping[str, Any]:
    name = file.identity.rpartition("/")[2]
    suffix = file.path.suffix.lower()
    # An id that looks like the file's name is one: uploads are stored under other names.
    named = {"file_name": name} if suffix and name.lower().endswith(suffix) else {}
    try:
        return {**built_in_metadata(file.path), **named}
    except OSError as exc:
        msg = (
            f"The file cannot be looked at ({exc.strerror}). Check that it exists and may be read."
        )
        raise LoadError(msg, path=str(file.path)) from exc


def root_segment(
    identity: str, loaded: LoadedFile, metadata: dict[str, Any], schema: Schema, build: int
) -> Segment:
    """The root node of a document.

    Args:
        identity: The document's.
        loaded: Its text, and the places in it.
        metadata: Its metadata.
        schema: The filterable fields.
        build: Number of its build.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be stored.
    """
    fields = {}
    for name, declared in schema.items():
        value = check_value(name, declared, metadata.get(name))
        value = fields[name] = declared.default_value if value is None else value
        if value is not None:
            metadata[name] = value
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
        locations=(*loaded.locations, *loaded.tables),
    )


# Nodes below the root

NodesByText: TypeAlias = dict["tuple[str, str] | None", tuple[Segment, Sequence[Segment]]]
"""Nodes with the node above them, by that one's content."""


ToDo: TypeAlias = tuple[PendingVersion, BuildRow, NodesByText]
"""A document to transform, its new build, and nodes to use again."""


def content_key(segment: Segment) -> tuple[str, str]:
    """The type and the text of a node's content."""
    return type(segment.content).__name__, content_text(segment.content)


def make_nodes(
    reader: VersionReader,
    target: GroupTarget,
    version: PendingVersion,
    number: int,
    plan: BuildPlan,
    reusable: NodesByText,
    made_drafts: Iterator[list[Draft]] | None = None,
) -> tuple[list[int], list[Segment]]:
    """Transform a document: returns how many nodes each parent gave, and the nodes.

    Args:
        reader: Reads what the transform asks for.
        target: The group.
        version: The document.
        number: Number of the build.
        plan: What the document is brought to.
        reusable: Nodes of earlier builds to use again.
        made_drafts: What a launcher has made of the other parents; None calls the transform.
    """
    schema = reader.nodes.schema
    parents = version.segments[target.parent]
    keys = [content_key(parent) if reusable else None for parent in parents]
    if made_drafts is None:
        source = reader.source_of(version, plan, target)
        new = [
            DocNode.from_segment(parent, source)
            for parent, key in zip(parents, keys, strict=True)
            if key not in reusable
        ]
        made_drafts = run_transforms(target.transform, new)
    segments: list[Segment] = []
    counts: list[int] = []
    for parent, key in zip(parents, keys, strict=True):
        before = len(segments)
        try:
            if key in reusable:
                children = _children_again(reusable[key], parent, number, schema, before)
            else:
                drafts = next(made_drafts)
                children = child_segments(
                    parent, target.name, number, drafts, schema, before=before
                )
        except (TransformError, ConfigError) as exc:
            # of a batch of nodes it may be another's
            uid = getattr(exc, "uid", "") or parent.uid
            raise TransformError(str(exc), group=target.name, uid=uid) from (exc.__cause__ or exc)
        segments += children
        counts.append(len(children))
    return counts, segments


def _children_again(
    stored: tuple[Segment, Sequence[Segment]],
    parent: Segment,
    build: int,
    schema: Schema,
    before: int,
) -> list[Segment]:
    """Nodes of an equal parent, as nodes of this one, numbered after those before them."""
    stored_parent, nodes = stored
    children = rebound_segments(nodes, [stored_parent], [parent], [len(nodes)], build, schema)
    return [
        child._replace(number=number) for number, child in enumerate(children, start=before + 1)
    ]


def reusable_nodes(
    reader: VersionReader,
    written: Iterable[BuildRow],
    input_hash: str,
    version: PendingVersion,
    target: GroupTarget,
    plan: BuildPlan,
) -> NodesByText:
    """Nodes of earlier builds to use again by their parent's text, where a model made them of
    texts alone.

    The part of the path that the transform reads (behind the slash of the input) has to be the
    same.
    """
    if target.sees_nodes or target.reads_source or not target.reuses_texts:
        return {}
    documents = {row.id for row in version.sources}
    by_path = input_hash.partition("/")[2]
    rows = [
        row
        for row in written
        if row.document in documents and row.input.partition("/")[2] == by_path
    ]
    if not rows:
        return {}
    newest = max(rows, key=lambda row: row.number)
    build = reader.ledger.builds.with_parents([newest.number])[newest.number]
    nodes = reader.nodes.of_build(target.collection, build)
    parents: Sequence[Segment] = ()
    if build.parent:
        parents = reader.nodes.of_build(plan.collection(target.parent), build.parent)
    nodes_by_text: NodesByText = {}
    start = 0
    for parent, count in zip(parents, json.loads(newest.counts), strict=False):
        nodes_by_text.setdefault(content_key(parent), (parent, nodes[start : start + count]))
        start += count
    return nodes_by_text


Copy: TypeAlias = tuple[PendingVersion, BuildRow, int]
"""A document, its new build, and the number of the build that is copied."""


def copied_nodes(
    reader: VersionReader, copies: Sequence[Copy], target: GroupTarget, plan: BuildPlan
) -> Iterator[tuple[Copy, list[Segment]]]:
    """Take over the nodes of earlier builds, which were made of equal parents."""
    with reader.reading():
        builds_before = reader.ledger.builds.with_parents({number for _, _, number in copies})
        builds = [builds_before[number] for _, _, number in copies]
        nodes_before = reader.nodes.of_builds(target.collection, builds)
        if target.parent == plan.root:  # whose nodes have no span that could differ
            parents_before = [version.segments[target.parent] for version, _, _ in copies]
        else:
            above = [build.parent for build in builds if build.parent is not None]
            parents_before = reader.nodes.of_builds(plan.collection(target.parent), above)
    for copy, nodes, parents in zip(copies, nodes_before, parents_before, strict=True):
        version, row, _ = copy
        counts = json.loads(row.counts)
        now = version.segments[target.parent]
        schema = reader.nodes.schema
        yield copy, rebound_segments(nodes, parents, now, counts, row.number, schema)


def child_segments(
    parent: Segment, group: str, build: int, drafts: Sequence[Draft], schema: Schema, *, before: int
) -> list[Segment]:
    """The nodes that a transform made of one node.

    Args:
        parent: The node.
        group: Name of the group.
        build: Number of their build.
        drafts: What the transform returned.
        schema: The filterable fields.
        before: How many nodes of the group precede them in the document.

    Raises:
        ConfigError: If a field's value does not fit, or metadata cannot be stored.
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
            fields=(
                _own_fields(parent.fields, draft.metadata, schema)
                if draft.metadata
                else parent.fields
            ),
            span=_shifted(draft.span, parent.span[0]) if parent.span else draft.span,
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
    """Nodes that were made of equal parents, as nodes of these: what the transform would return
    again.

    Args:
        before: The nodes, in order.
        parents_before: The nodes above them.
        parents: The nodes above them now, as many.
        counts: How many each of these has.
        build: Number of their build.
        schema: The filterable fields.
    """
    rest = iter(before)
    group = before[0].group if before else ""
    segments: list[Segment] = []
    for parent_before, parent, count in zip(parents_before, parents, counts, strict=True):
        uids = child_uids(parent.uid, group, range(1, count + 1))
        shift = (parent.span or (0, 0))[0] - (parent_before.span or (0, 0))[0]
        segments += [
            node._replace(
                uid=uid,
                build=build,
                document_id=parent.document_id,
                path=parent.path,
                parent=parent.uid,
                fields=(
                    _own_fields(parent.fields, node.metadata, schema)
                    if node.metadata
                    else parent.fields
                ),
                span=_shifted(node.span, shift),
            )
            for uid, node in zip(uids, itertools.islice(rest, count), strict=True)
        ]
    return segments


def _shifted(span: Span | None, by: int) -> Span | None:
    return None if span is None else (span[0] + by, span[1] + by)


def _own_fields(above: Fields, metadata: Mapping[str, Any], schema: Schema) -> Fields:
    """A node's fields: those of the node above it, overlaid with the declared ones in its own
    metadata.
    """
    declared = {
        name: check_value(name, schema[name], value)
        for name, value in metadata.items()
        if name in schema and name not in BUILT_IN_FIELDS and value is not None
    }
    return {**above, **declared} if declared else above


_VOLATILE = "last_accessed_date"
_SORTED = json.JSONEncoder(sort_keys=True, default=str)  # json.dumps would make one each time


def root_digest(root: Segment) -> str:
    """Digest of a root node, without the time of last access, which reading may change."""
    metadata = {name: value for name, value in root.metadata.items() if name != _VOLATILE}
    fields = {name: value for name, value in root.fields.items() if name != _VOLATILE}
    rest = _SORTED.encode([metadata, fields, _location_rows(root.locations)])
    return digest([content_text(root.content), rest])


def output_digest(nodes: Sequence[Segment]) -> str:
    """Digest of a build's nodes as a store holds them, the time of last access included."""
    shared: dict[str, int] = {}  # path and fields, which most nodes of a build have in common
    # the same by the fields' object, as which they mostly come
    seen: dict[tuple[str, int], int] = {}
    parts: list[str] = []
    for node in nodes:
        common = seen.get((node.path, id(node.fields)))
        if common is None:
            text = _SORTED.encode([node.path, dict(node.fields)])
            common = seen[node.path, id(node.fields)] = shared.setdefault(text, len(shared))
        kind, text = _typed_content(node)
        start, end = node.span or ("", "")
        rest = (
            _SORTED.encode([dict(node.metadata), _location_rows(node.locations)])
            if node.metadata or node.locations
            else ""
        )
        # The parts of a node, and nodes, cannot run into each other: free text is preceded by its
        # length.
        parts.append(
            f"{common} {node.uid}-{node.build} {node.parent} {node.number} {start} {end} {kind}"
            f" {len(text)} {text}{rest}"
        )
    return digest([*shared, "".join(parts)])


def input_digest(
    line: Sequence[Sequence[Segment]],
    *,
    sees_nodes: bool,
    path_key: Callable[[str], str] | None = None,
    source: str = "",
) -> str:
    """Digest of everything that a transform can see.

    The six built-in fields are left out, so that a file that is moved or touched costs no
    transform; so are the nodes beside or below, which may not be made yet.

    Args:
        line: The document's nodes of the parent group, of the group above that and so on; the root
            node last.
        sees_nodes: Whether it is called with nodes, through which it reaches those above; else it
            sees nothing but the parents' content.
        path_key: The part of the document's path that it reads; None for nothing.
        source: Digest of the file whose source text it reads; "" for none.
    """
    parts = [str(len(line[0]))]
    for node in line[0]:
        parts += _typed_content(node)
    if sees_nodes:
        for nodes in line:
            for node in nodes:
                metadata = {
                    name: value
                    for name, value in node.metadata.items()
                    if name not in BUILT_IN_FIELDS
                }
                parts.append(_SORTED.encode(metadata))
            parts += [_SORTED.encode([node.span, node.number]) for node in nodes]
        for nodes in line[1:]:
            for node in nodes:
                parts += _typed_content(node)
        parts += map(_SORTED.encode, _location_rows(line[-1][0].locations))
    # After a slash, so that the rest can be compared without the transform.
    by_path = "" if path_key is None else path_key(line[-1][0].path)
    rest = f"{by_path} source {source}" if source else by_path
    return digest(parts) + ("" if path_key is None and not source else f"/{rest}")


def _typed_content(node: Segment) -> tuple[str, str]:
    """The type of a node's content ("" for text), and the content as text."""
    content = node.content
    if isinstance(content, str):
        return "", content
    return type(content).__name__, _SORTED.encode(content)


def _location_rows(locations: Iterable[Location]) -> list[tuple[int, int, str, str]]:
    return [(location.start, location.end, location.kind, location.label) for location in locations]
