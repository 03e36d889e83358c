"""A Document as plain files: export, import and the canonical dump, with one encoding of rows for
all of them.

An export is a folder: ``documents.jsonl``, ``nodes-<n>.jsonl`` for each group,
``vectors-<n>-<m>.npy`` (``.npz`` for sparse ones) with their uids in ``vectors-<n>-<m>.json``, and
``manifest.json``, which lists the groups, and the row count and SHA-256 of each file. Format 1 had
no checksums and is still read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from lazyrag.data.codec import decode_node, encode_node
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, key_build, key_uid, root_uid
from lazyrag.errors import ConfigError, LazyRAGError, StoreError
from lazyrag.groups.node_group import schema_digest
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.pending import output_digest
from lazyrag.ledger.copies import CopiedBuild
from lazyrag.ledger.ledger import Flip
from lazyrag.ledger.tables import (
    BuildRow,
    DocumentRow,
    DocumentRows,
    acknowledge_builds,
    begin_builds,
    next_builds,
)
from lazyrag.ledger.tree import LiveGroup, LiveIndex, Tree
from lazyrag.maintain.copying import BATCH_ROWS, CollectionCopy, read_builds
from lazyrag.maintain.vector_files import read_vectors, vector_digest, write_vectors
from lazyrag.storage.arrays import sync_folder
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.protocol import VectorRow
from lazyrag.types import Embedding, JsonMapping, JsonObject, PathLike
from lazyrag.validation import folder_path

_FORMAT = 2
_FORMAT_WITHOUT_CHECKSUMS = 1
_MANIFEST = "manifest.json"
DOCUMENTS = "documents.jsonl"
_VOLATILE = "last_accessed_date"
_FILE_NAME = re.compile(r"[a-z0-9-]+\.[a-z]+")


@dataclass(frozen=True, slots=True)
class ExportedSpace:
    """Exported vectors of one group and embed key."""

    name: str
    identity: str
    dimension: int
    vectors: str
    uids: str


@dataclass(frozen=True, slots=True)
class ExportedGroup:
    """An exported group."""

    name: str
    parent: str | None
    fingerprint: str
    nodes: str
    spaces: tuple[ExportedSpace, ...]


# Export


def export(indexer: Indexer, folder: PathLike) -> Path:
    """Write an export into a new folder, all or nothing; see `Maintenance.export`."""
    target = folder_path(folder).absolute()
    if target.exists():
        raise ConfigError(
            f"{target} exists already. Pass the path of a folder that export() can create."
        )
    unfinished = target.with_name(target.name + ".unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with _one_state(indexer, "export()", indexer.ledger.documents.all) as state:
            _Exporter(indexer, unfinished, *state).run()
        for path in unfinished.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        sync_folder(unfinished)
        unfinished.replace(target)
        sync_folder(target.parent)
    except OSError as exc:
        raise StoreError(
            f"The export to {target} cannot be written: {exc.strerror or exc}. No part of it"
            " remains.",
            store=str(target),
        ) from exc
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


@contextmanager
def _one_state(indexer: Indexer, call: str, read: Callable[[], Any]) -> Iterator[tuple[Tree, Any]]:
    """The present state for a block that reads all of it, and what a function reads in it.

    Raises:
        StoreError: If documents were removed from it before the end of the block.
    """
    ledger = indexer.ledger
    with ledger.reading():
        tree, removals = ledger.reread()
        rows = read()

    def check() -> None:
        if ledger.reread()[1] != removals:
            msg = f"Documents of {indexer.where} were removed while they were exported."
            raise StoreError(f"{msg} Call {call} again.", store=ledger.file.address)

    try:
        yield tree, rows
    except (LazyRAGError, LookupError):
        check()
        raise
    check()


class _Exporter:
    """Writes an export of a state into an empty folder."""

    def __init__(self, indexer: Indexer, folder: Path, tree: Tree, documents: DocumentRows) -> None:
        self._indexer = indexer
        self._folder = folder
        self._tree = tree
        self._documents = documents
        self._rows: dict[str, int] = {}  # by name of the file
        # of each document, by group
        self._inputs: dict[str, dict[str, str]] = {
            document.uid: {} for document in self._tree.documents()
        }

    def run(self) -> None:
        """Write all files, the manifest last."""
        groups = [
            self._write_group(number, group)
            for number, group in enumerate(self._tree.groups.values())
        ]
        self._write_lines(DOCUMENTS, self._encoded_documents())
        manifest = {
            "lazyrag export": _FORMAT,
            "name": self._indexer.name,
            "fields": schema_digest(self._indexer.nodes.schema),
            "selection": dataclasses.asdict(self._indexer.dataset.selection),
            "groups": [dataclasses.asdict(group) for group in groups],
            "files": {
                name: {"rows": rows, "sha256": _file_digest(self._folder / name)}
                for name, rows in self._rows.items()
            },
        }
        manifest["sha256"] = _manifest_digest(manifest)
        (self._folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")

    def _write_group(self, number: int, group: LiveGroup) -> ExportedGroup:
        builds = list(self._tree.builds(group))
        rows = self._indexer.ledger.builds.rows([build.number for build in builds])
        for build in builds:
            self._inputs[build.document][group.name] = rows[build.number].input
        copied = [CopiedBuild(build, rows[build.number].output) for build in builds]
        batches = read_builds(self._indexer.nodes.segments, group.collection, copied)
        segments = chain.from_iterable(batches)
        nodes = self._write_lines(f"nodes-{number}.jsonl", map(encode_node, segments))
        # by their names: rows of indexes are made in any order
        spaces = [
            space
            for _, space in sorted(group.indexes.items())
            if space.kind == "vectors" and space.complete and space.dimension
        ]
        exported_spaces = tuple(
            self._write_vectors(f"vectors-{number}-{at}", space, copied)
            for at, space in enumerate(spaces)
        )
        return ExportedGroup(group.name, group.parent, group.fingerprint, nodes, exported_spaces)

    def _write_vectors(
        self, name: str, space: LiveIndex, builds: Sequence[CopiedBuild]
    ) -> ExportedSpace:
        numbers = [copied.build.number for copied in builds]
        covered = self._indexer.ledger.builds.covered(space.id, numbers)
        embedded = [copied for copied in builds if copied.build.number in covered]
        uids = list(chain.from_iterable(copied.build.uids for copied in embedded))
        batches = read_builds(self._indexer.nodes.vectors, space.collection, embedded)
        vectors = (row.vector for row in chain.from_iterable(batches))
        file = write_vectors(self._folder / name, vectors, len(uids), space.dimension).name
        (self._folder / f"{name}.json").write_text(json.dumps(uids), encoding="utf-8")
        self._rows |= dict.fromkeys((f"{name}.json", file), len(uids))
        return ExportedSpace(space.name, space.identity, space.dimension, file, f"{name}.json")

    def _encoded_documents(self) -> Iterator[JsonObject]:
        for document in self._tree.documents():
            row = encode_document(self._documents[document.identity])
            yield {**row, "inputs": self._inputs[document.uid]}

    def _write_lines(self, name: str, values: Iterator[JsonObject]) -> str:
        count = 0
        with (self._folder / name).open("w", encoding="utf-8") as file:
            for value in values:
                file.write(json.dumps(value) + "\n")
                count += 1
        self._rows[name] = count
        return name


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest_digest(manifest: JsonMapping) -> str:
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# Import


def import_from(indexer: Indexer, folder: PathLike) -> int:
    """Import what `export` wrote into an empty Document, all or nothing; see
    `Maintenance.import_from`.

    Lexical indexes are not exported; they are built at first use.
    """
    export_folder = _ExportFolder(folder_path(folder), schema_digest(indexer.nodes.schema))
    with indexer.writing():
        if indexer.ledger.tree.document_count:
            raise ConfigError(
                f"{indexer.where} contains documents already. Import into an empty Document, or one"
                " of another name."
            )
        return _Importer(indexer, export_folder).run()


class _ExportFolder:
    """The files of an export.

    Args:
        folder: Its path.
        fields: Digest of the fields that it must have.

    Raises:
        ConfigError: If the folder is not an export, or has other fields.
        StoreError: If a file is missing, cut short or altered, or lies outside of the folder.
    """

    def __init__(self, folder: Path, fields: str) -> None:
        self._folder = folder
        self._files: JsonMapping | None = None  # format 1 has no checksums
        manifest = self._read_manifest()
        with self.decoding(_MANIFEST):
            if manifest["lazyrag export"] == _FORMAT:
                if manifest["sha256"] != _manifest_digest(manifest):
                    raise self.damaged(_MANIFEST, "its content differs from its SHA-256")
                self._files = dict(manifest["files"])
            if manifest["fields"] != fields:
                msg = f"The export in {folder} was written with other doc_fields."
                raise ConfigError(f"{msg} Pass the same ones to Document.")
            self.selection: JsonMapping = manifest.get("selection", {})
            self.groups = list(map(_decode_group, manifest["groups"]))
            names: list[str | None] = [None]
            for group in self.groups:
                is_root = group.name == LAZY_ROOT_NAME
                if group.parent not in names or is_root != (group.parent is None):
                    raise self.damaged(_MANIFEST, "its groups do not form a tree")
                names.append(group.name)
        names_of_files = [DOCUMENTS]
        for group in self.groups:
            names_of_files.append(group.nodes)
            for space in group.spaces:
                names_of_files += [space.uids, space.vectors]
        for name in names_of_files:
            self._check_file(name)

    def _read_manifest(self) -> JsonObject:
        try:
            manifest: JsonObject = json.loads(self._path(_MANIFEST).read_text(encoding="utf-8"))
            version = manifest["lazyrag export"]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            msg = f"{self._folder} is not an export: {_MANIFEST} is missing or unreadable."
            raise ConfigError(f"{msg} Pass a folder that export() wrote.") from exc
        if version not in (_FORMAT, _FORMAT_WITHOUT_CHECKSUMS):
            msg = (
                f"The export in {self._folder} has format {version!r}; this release reads 1 and"
                f" {_FORMAT}."
            )
            raise ConfigError(f"{msg} Import it with the release that wrote it.")
        return manifest

    def _path(self, name: Any) -> Path:
        """Return the path of a file that a manifest names, which must be directly in the folder."""
        is_plain = isinstance(name, str) and _FILE_NAME.fullmatch(name)
        path = self._folder / name if is_plain else self._folder
        if not is_plain or path.is_symlink() or (path.exists() and not path.is_file()):
            raise self.damaged(_MANIFEST, f"{name!r} is not a file in the folder itself")
        return path

    def _check_file(self, name: Any) -> None:
        """Compare a file with the manifest."""
        path = self._path(name)
        with self.decoding(name), path.open("rb") as file:
            if self._files is None:
                return
            if name not in self._files:
                raise self.damaged(_MANIFEST, f"it has no checksum of {name!r}")
            if _file_digest(path) != self._files[name]["sha256"]:
                raise self.damaged(name, "its content differs from the SHA-256 in the manifest")
            if path.suffix == ".jsonl" and self._files[name]["rows"] != sum(1 for _ in file):
                raise self.damaged(name, "its number of rows differs from the manifest")

    def lines(self, name: str) -> Iterator[JsonObject]:
        """Yield the values of a file of JSON lines."""
        with self.decoding(name), (self._folder / name).open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def vectors(self, space: ExportedSpace) -> dict[str, Embedding]:
        """Read vectors by uid."""
        with self.decoding(space.vectors):
            uids = json.loads((self._folder / space.uids).read_text(encoding="utf-8"))
            count = len(uids) if self._files is None else self._files[space.vectors]["rows"]
            vectors = read_vectors(self._folder / space.vectors, count, space.dimension)
            return dict(zip(uids, vectors, strict=True))

    @contextmanager
    def decoding(self, name: str) -> Iterator[None]:
        """Report what cannot be decoded as damage of a file."""
        try:
            yield
        except LazyRAGError:
            raise
        except FileNotFoundError as exc:
            raise self.damaged(name, "it is missing") from exc
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            EOFError,
            zipfile.BadZipFile,
        ) as exc:
            raise self.damaged(name, f"it cannot be decoded ({type(exc).__name__}: {exc})") from exc

    def damaged(self, name: str, reason: str) -> StoreError:
        """Return the error for a damaged file."""
        msg = (
            f"{name} of the export in {self._folder} is damaged: {reason}. Nothing was imported."
            " Copy the export again."
        )
        return StoreError(msg, store=str(self._folder))


class _ImportedDocument(NamedTuple):
    """A document on its way into the ledger.

    Args:
        row: Its row.
        inputs: The input digests of its builds, by group.
        builds: Its builds, by group.
        uids: Uids of their nodes, by group.
        covered: Pairs (index, build).
    """

    row: DocumentRow
    inputs: Mapping[str, str]
    builds: dict[str | None, BuildRow]
    uids: dict[str | None, list[str]]
    covered: list[tuple[int, int]]

    def flip(self) -> Flip:
        """Return what has to become live of it."""
        live = {build.node_group: build.number for build in self.builds.values()}
        return Flip(self.row, live, self.covered, self.builds[LAZY_ROOT_NAME].number)


class _ImportedBuild(NamedTuple):
    """A build with its document and its nodes."""

    document: _ImportedDocument
    row: BuildRow
    nodes: list[Segment]


class _ImportedIndex(NamedTuple):
    """The row of an index, its collection, and its vectors by uid."""

    row: int
    copy: CollectionCopy
    vectors: Mapping[str, Embedding]


class _Importer:
    """Writes an export into an empty Document.

    Builds get new numbers. Those that an interrupted import has written keep theirs, so that only
    what it lacks is written.
    """

    def __init__(self, indexer: Indexer, folder: _ExportFolder) -> None:
        self._indexer = indexer
        self._folder = folder
        self._ledger = indexer.ledger
        self._documents: dict[str, _ImportedDocument] = {}  # by uid
        self._rows: dict[str | None, int] = {}  # of groups
        self._indexes: list[int] = []

    def run(self) -> int:
        """Write everything, and make it live in one transaction; return the number of documents."""
        dataset = self._indexer.dataset
        if not dataset.is_chosen:
            with self._folder.decoding(_MANIFEST):
                selection = dataset.selection.changed(**self._folder.selection)
            self._indexer.dataset = dataset.with_selection(selection)
        dataset.store_selection(self._indexer.dataset.selection)
        self._indexer.ensure_root()
        self._register_documents()
        for group in self._folder.groups:
            self._import_group(group)
        rows = [row for name, row in self._rows.items() if name != LAZY_ROOT_NAME]
        self._ledger.switch(rows, self._indexes, [])  # still without documents
        self._ledger.flip([document.flip() for document in self._documents.values()])
        return len(self._documents)

    def _register_documents(self) -> None:
        """Enter the documents, and find what an interrupted import has written of them."""
        rows = []
        inputs = []
        with self._folder.decoding(DOCUMENTS):
            for document in self._folder.lines(DOCUMENTS):
                rows.append(decode_document(document))
                inputs.append(dict(document["inputs"]))
                inputs[-1][LAZY_ROOT_NAME]  # every document has root nodes
        count = len(rows) * len(self._folder.groups)
        with self._ledger.writing() as connection:
            registered = self._ledger.documents.register(connection, rows)
            self._numbers = iter(next_builds(connection, count))
        for row, of_groups in zip(registered, inputs, strict=True):
            self._documents[row.uid] = _ImportedDocument(row, of_groups, {}, {}, [])
        never_live = [row.id for row in registered if not row.version]
        written = self._ledger.builds.written(never_live)
        self._written = {_build_key(build): build.number for build in written}

    def _import_group(self, group: ExportedGroup) -> None:
        """Write the nodes of a group, and their vectors."""
        nodes = CollectionCopy(self._indexer.nodes.segments, self._open_group(group))
        indexes = [self._open_index(group, space) for space in group.spaces]
        builds_read = self._read_builds(group)
        for batch in batches_reaching(builds_read, lambda build: len(build.nodes), BATCH_ROWS):
            with self._ledger.writing() as connection:
                begin_builds(connection, (build.row for build in batch))
            nodes.write(list(chain.from_iterable(build.nodes for build in batch)))
            with self._ledger.writing() as connection:
                acknowledge_builds(connection, (build.row.number for build in batch))
            for index in indexes:
                self._write_vectors(index, batch)

    def _write_vectors(self, index: _ImportedIndex, builds: Sequence[_ImportedBuild]) -> None:
        rows = []
        for build in builds:
            embedded = [node for node in build.nodes if node.uid in index.vectors]
            rows += [VectorRow(node.key, index.vectors[node.uid], node.fields) for node in embedded]
            if embedded:
                build.document.covered.append((index.row, build.row.number))
        index.copy.write(rows)

    def _open_group(self, group: ExportedGroup) -> str:
        """Create the row of a group; return its collection."""
        root = self._ledger.tree.groups[LAZY_ROOT_NAME]
        row = root.id
        collection = root.collection
        if group.parent is not None:
            parent = self._rows[group.parent]
            row, collection = self._indexer.planner.open_group(
                group.name, parent, group.fingerprint
            )
        self._rows[group.name] = row
        return collection

    def _open_index(self, group: ExportedGroup, space: ExportedSpace) -> _ImportedIndex:
        """Create the row and the collection of vectors."""
        nodes = self._indexer.nodes
        row = self._rows[group.name]
        index = self._indexer.planner.open_index(
            group.name, group.fingerprint, row, ("vectors", space.name, space.identity)
        )
        nodes.create_vectors(index.collection, space.dimension, space.name)
        self._ledger.groups.set_dimension(index.id, space.dimension)
        self._indexes.append(index.id)
        copy = CollectionCopy(nodes.vectors_to_write, index.collection)
        return _ImportedIndex(index.id, copy, self._folder.vectors(space))

    def _read_builds(self, group: ExportedGroup) -> Iterator[_ImportedBuild]:
        """Yield the builds of a group; those without nodes are the last."""
        documents = {
            uid: document
            for uid, document in self._documents.items()
            if group.name in document.inputs
        }
        with self._folder.decoding(group.nodes):
            lines = self._folder.lines(group.nodes)
            for uid, of_document in groupby(lines, itemgetter("document_id")):
                if uid not in documents:
                    raise self._folder.damaged(DOCUMENTS, "it lacks documents that have nodes")
                yield self._read_build(group, documents.pop(uid), list(of_document))
            for document in documents.values():
                yield self._read_build(group, document, [])

    def _read_build(
        self, group: ExportedGroup, document: _ImportedDocument, lines: Sequence[JsonObject]
    ) -> _ImportedBuild:
        parent = document.builds.get(group.parent)
        counts = [len(lines)]
        if group.parent is not None:
            counts = _child_counts(lines, document.uids.get(group.parent, []))
        row = BuildRow(
            0,
            document.row.id,
            self._rows[group.name],
            None if parent is None else parent.number,
            0,
            document.inputs[group.name],
            json.dumps(counts),
        )
        number = self._written.get(_build_key(row)) or next(self._numbers)
        nodes = [decode_node(line, number) for line in lines]
        root = number if parent is None else parent.root
        row = row._replace(number=number, root=root, output=output_digest(nodes))
        document.builds[group.name] = row
        document.uids[group.name] = [node.uid for node in nodes]
        return _ImportedBuild(document, row, nodes)


def _build_key(build: BuildRow) -> tuple[int, int, int | None, str]:
    """Return what the keys of a build's nodes follow from, but for its number."""
    return build.document, build.node_group, build.parent, build.counts


def _decode_group(group: JsonMapping) -> ExportedGroup:
    spaces = tuple(ExportedSpace(**space) for space in group["spaces"])
    return ExportedGroup(**{**group, "spaces": spaces})


def _child_counts(lines: Sequence[JsonMapping], parents: Sequence[str]) -> list[int]:
    """Return the number of nodes below each parent."""
    counts = dict.fromkeys(parents, 0)
    for line in lines:
        counts[line["parent"]] += 1
    return list(counts.values())


# Dump


def canonical_dump(indexer: Indexer) -> Iterator[str]:
    """Yield a line of JSON for each live document, node, vector and indexed node, in a fixed order.

    Leaves out what is independent of the content: numbers of builds and versions, timestamps,
    ``last_accessed_date``, and how rows are distributed over files. An interrupted, resumed and
    repaired Document has the same dump as one that was built in one go. Builds nothing.
    """
    with _one_state(indexer, "dump()", lambda: None) as (tree, _):
        yield from _dump_lines(indexer, tree)


def _dump_lines(indexer: Indexer, tree: Tree) -> Iterator[str]:
    for document in tree.documents():
        yield _dump_line("document", {"identity": document.identity, "uid": document.uid})
    for name in sorted(tree.groups):
        group = tree.groups[name]
        yield _dump_line(
            "group", {"name": name, "parent": group.parent, "fingerprint": group.fingerprint}
        )
        for build in tree.builds(group):
            for segment in indexer.nodes.of_build(group.collection, build):
                node = encode_node(segment)
                del node["document_id"]
                node["metadata"].pop(_VOLATILE, None)
                node["fields"].pop(_VOLATILE, None)
                yield _dump_line("node", node)
        for key in sorted(group.indexes):
            space = group.indexes[key]
            yield _dump_line(
                "space", {"kind": space.kind, "name": space.name, "identity": space.identity}
            )
            describe = _vector_digests if space.kind == "vectors" else _term_counts
            held_by_uid = describe(indexer, tree, group, space)
            for uid in sorted(held_by_uid):
                yield _dump_line(space.kind, {"uid": uid, "holds": held_by_uid[uid]})


def _dump_line(kind: str, value: JsonMapping) -> str:
    return json.dumps({"is": kind, **value}, sort_keys=True, ensure_ascii=True)


def _vector_digests(indexer: Indexer, tree: Tree, group: LiveGroup, space: LiveIndex) -> JsonObject:
    """Return digests of the vectors of live nodes, by uid."""
    if not space.dimension:
        return {}
    keys = list(chain.from_iterable(build.keys for build in tree.builds(group)))
    rows = indexer.nodes.vectors.get(space.collection, keys)
    return {key_uid(row.key): vector_digest(row.vector) for row in rows}


def _term_counts(indexer: Indexer, tree: Tree, group: LiveGroup, space: LiveIndex) -> JsonObject:
    """Return the term frequencies of live nodes, by uid."""
    live = {*tree.live_numbers(group).tolist()}
    counts = {}
    for part, _ in indexer.terms.parts(space):
        counts_of_rows: list[dict[str, int]] = []
        for key in part.keys.tolist():
            counts_of_rows.append({})
            if key_build(key.decode()) in live:
                counts[key_uid(key.decode())] = counts_of_rows[-1]
        postings = part.postings
        ranges = pairwise(postings.starts.tolist())
        for term, (first, last) in zip(part.vocabulary.terms(), ranges, strict=True):
            rows = postings.rows[first:last].tolist()
            for row, count in zip(rows, postings.values[first:last].tolist(), strict=True):
                counts_of_rows[row][term] = int(count)
    return counts


# Encoding of rows


def encode_document(row: DocumentRow) -> JsonObject:
    """Return a document as JSON, without its builds."""
    return {
        "identity": row.identity,
        "origin": row.origin,
        "content_hash": row.content_hash,
        "mark": row.config_hash,
        "loaded": json.loads(row.loaded),
        "updates": json.loads(row.updates),
        "said": json.loads(row.user_metadata),
    }


def decode_document(document: JsonMapping) -> DocumentRow:
    """Decode the row that `encode_document` encoded; it has no file on this machine."""
    return DocumentRow(
        0,
        root_uid(document["identity"]),
        document["identity"],
        document["origin"],
        seen_ns=-1,  # the file has not been seen on this machine: a sync compares the content
        content_hash=document["content_hash"],
        config_hash=document["mark"],
        loaded=json.dumps(document["loaded"]),
        user_metadata=json.dumps(document["said"]),
        updates=json.dumps(document["updates"]),
    )
