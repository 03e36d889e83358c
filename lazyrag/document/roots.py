"""Making the root nodes of documents: from files, from texts, from what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema
from lazyrag.data.segment import Segment, check_metadata
from lazyrag.document.ledger.rows import DocumentRow
from lazyrag.document.segments import FileMetadataParts, looked_at, root_segment
from lazyrag.document.work import Root
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.directory import FoundFile, signature_of

_MOST_READS = 3  # of a file that changes while it is read


def file_root(
    load: Callable[[FoundFile], LoadedFile],
    file: FoundFile,
    row: DocumentRow,
    said: Mapping[str, Any],
    schema: Schema,
    build: int,
) -> Root:
    """The root node of a file's document: the file, loaded.

    Args:
        load: Loads it.
        file: The file, with the signature that it had before it was hashed.
        row: What the ledger is to know of it.
        said: What its user says of it.
        schema: The filterable fields.
        build: Number of the build.

    Raises:
        LoadError: If the file cannot be read.
        ConfigError: If a field's value does not fit, or metadata cannot be kept.
    """
    for _ in range(_MOST_READS):  # what is known of the file and its text are to be of one version
        before = signature_of(file.path)
        built_in = looked_at(file)  # before reading, which may change the time of last access
        loaded = load(file)
        if signature_of(file.path) == before:
            break
    parts = FileMetadataParts(check_metadata(loaded.metadata), check_metadata(said), json.loads(row.updates), built_in)
    segment = root_segment(file.identity, loaded, parts, schema, build)
    unchanged = signature_of(file.path) == file.signature  # else it may have been another while it was read
    row = replace(
        row,
        signature=file.signature if unchanged else None,
        loaded=_to_json(parts.loaded),
        said=_to_json(parts.said),
    )
    return Root(segment, row)


def text_root(row: DocumentRow, text: str, built_in: Mapping[str, Any], schema: Schema, build: int) -> Root:
    """The root node of a text that was added as such; its metadata stand in the row."""
    parts = FileMetadataParts(
        {**built_in, **json.loads(row.loaded)}, json.loads(row.said), json.loads(row.updates), built_in
    )
    return Root(root_segment(row.identity, LoadedFile(text), parts, schema, build), row)


def renewed_root(
    before: Segment, row: DocumentRow, schema: Schema, build: int, *, file: FoundFile | None = None
) -> Root:
    """A root node with the text of another one, and with what the ledger knows of its metadata.

    Args:
        before: The root node whose text it has.
        row: What the ledger is to know of the document.
        schema: The filterable fields.
        build: Number of the build.
        file: Where the file lies now; None for what the file system said before.

    Raises:
        LoadError: If the file cannot be looked at.
        ConfigError: If a field's value does not fit.
    """
    known = {name: before.metadata[name] for name in BUILT_IN_FIELDS if name in before.metadata}
    built_in = known if file is None else looked_at(file)
    parts = FileMetadataParts(json.loads(row.loaded), json.loads(row.said), json.loads(row.updates), built_in)
    loaded = LoadedFile(str(before.content), before.places)
    return Root(root_segment(row.identity, loaded, parts, schema, build), row)


def _to_json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata))
