"""A Document as plain files: export, import and the canonical dump, with one encoding of rows for
all of them.

An export is a folder: ``documents.jsonl``, ``nodes-<n>.jsonl`` for each group,
``vectors-<n>-<m>.npy`` (``.npz`` for sparse ones) with their uids in ``vectors-<n>-<m>.json``, and
``manifest.json``, which lists the groups, and the row count and SHA-256 of each file. Format 1 had
no checksums and is still read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import shutil
import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lazyrag.data.codec import decode_node, encode_node
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, key_build, key_uid, root_uid
from lazyrag.errors import ConfigError, LazyRAGError, StoreError
from lazyrag.groups.node_group import schema_digest
from lazyrag.indexes.bm25 import TermPart
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.pending import output_digest
from lazyrag.ledger.ledger import Flip
from lazyrag.ledger.tables import BuildRow, DocumentRow
from lazyrag.ledger.tree import LiveGroup, LiveIndex, Tree
from lazyrag.storage.arrays import sync_folder
from lazyrag.stores.protocol import VectorRow
from lazyrag.types import SPARSE, Embedding, Embeddings, SparseVector, Vector
from lazyrag.validation import require

if TYPE_CHECKING:
    from numpy.typing import NDArray


_FORMAT = 2
_FORMAT_WITHOUT_CHECKSUMS = 1
_MANIFEST = "manifest.json"
DOCUMENTS = "documents.jsonl"
_BATCH = 200  # documents; bounds memory
_VOLATILE = "last_accessed_date"
# Of a document, by their exported names.
_PLAIN_FIELDS = {
    "identity": "identity",
    "origin": "origin",
    "content_hash": "content_hash",
    "mark": "config_hash",
}
_JSON_FIELDS = {"loaded": "loaded", "updates": "updates", "said": "user_metadata"}


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


def export(write: Callable[[Path], object], folder: str | os.PathLike[str]) -> Path:
    """Write an export into a new folder by a function, all or nothing; see `Maintenance.export`."""
    target = folder_path(folder).absolute()
    if target.exists():
        raise ConfigError(
            f"{target} exists already. Pass the path of a folder that export() can create."
        )
    unfinished = target.with_name(target.name + ".unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        write(unfinished)
        for path in unfinished.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        sync_folder(unfinished)
        unfinished.replace(target)
        sync_folder(target.parent)
    except OSError as exc:
        msg = (
            f"The export to {target} cannot be written: {exc.strerror or exc}. No part of it"
            " remains."
        )
        raise StoreError(msg, store=str(target)) from exc
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def folder_path(folder: Any) -> Path:
    """Check the path of a folder."""
    is_path = isinstance(folder, (str, os.PathLike)) and bool(os.fspath(folder))
    require(is_path, "folder", folder, "the path of a folder")
    return Path(folder).expanduser()


class Exporter:
    """Writes an export into an empty folder."""

    def __init__(self, indexer: Indexer, folder: Path) -> None:
        self._indexer = indexer
        self._folder = folder
        self._tree = indexer.ledger.tree
        self._rows: dict[str, int] = {}  # by name of the file

    def run(self) -> None:
        """Write all files, the manifest last."""
        groups = self._write_groups()
        self._write_lines(DOCUMENTS, self._documents())
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

    def _write_groups(self) -> list[ExportedGroup]:
        return [
            self._write_group(number, group)
            for number, group in enumerate(self._tree.groups.values())
        ]

    def _write_group(self, number: int, group: LiveGroup) -> ExportedGroup:
        read_nodes = functools.partial(self._indexer.nodes.of_build, group.collection)
        segments = itertools.chain.from_iterable(map(read_nodes, self._tree.builds(group)))
        nodes = self._write_lines(f"nodes-{number}.jsonl", map(encode_node, segments))
        spaces = [
            self._write_vectors(f"vectors-{number}-{at}", group, space)
            for at, space in enumerate(group.indexes.values())
            if space.kind == "vectors" and space.complete and space.dimension
        ]
        return ExportedGroup(group.name, group.parent, group.fingerprint, nodes, tuple(spaces))

    def _write_vectors(self, name: str, group: LiveGroup, space: LiveIndex) -> ExportedSpace:
        def pairs() -> Iterator[tuple[str, Embedding]]:
            for build in self._tree.builds(group):
                vectors = {
                    row.key: row.vector
                    for row in self._indexer.nodes.vectors.get(space.collection, build.keys)
                }
                yield from (
                    (uid, vectors[key])
                    for uid, key in zip(build.uids, build.keys, strict=True)
                    if key in vectors
                )

        return self._write_space(name, pairs(), space)

    def _write_space(
        self, name: str, pairs: Iterable[tuple[str, Embedding]], space: LiveIndex | ExportedSpace
    ) -> ExportedSpace:
        count = 0

        def vectors() -> Iterator[Embedding]:
            nonlocal count
            with (self._folder / f"{name}.json").open("w", encoding="utf-8") as file:
                for count, (uid, vector) in enumerate(pairs, 1):
                    file.write(f"{'[' if count == 1 else ', '}{json.dumps(uid)}")
                    yield vector
                file.write("]" if count else "[]")

        file = write_vectors(self._folder, name, vectors(), space.dimension)
        self._rows |= dict.fromkeys((f"{name}.json", file), count)
        return ExportedSpace(space.name, space.identity, space.dimension, file, f"{name}.json")

    def _documents(self) -> Iterator[dict[str, Any]]:
        inputs: dict[int, dict[str, str]] = {
            document.id: {} for document in self._tree.documents.values()
        }
        for group in self._tree.groups.values():
            for build in self._indexer.ledger.builds.live_in(group.id):
                inputs[build.document][group.name] = build.input
        rows = self._indexer.ledger.documents.all()
        for document in self._tree.in_order():
            yield {**encode_document(rows[document.identity]), "inputs": inputs[document.id]}

    def _write_lines(self, name: str, values: Iterator[dict[str, Any]]) -> str:
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


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


# Import


def import_from(indexer: Indexer, folder: str | os.PathLike[str]) -> int:
    """Import what `export` wrote into an empty Document, all or nothing; see
    `Maintenance.import_from`.

    Lexical indexes are not exported; they are built at first use.
    """
    importer = Importer(indexer, folder_path(folder))
    with indexer.writing():
        if indexer.ledger.tree.documents:
            msg = (
                f"{indexer.where} contains documents already. Import into an empty Document, or one"
                " of another name."
            )
            raise ConfigError(msg)
        return importer.run()


class Importer:
    """Reads an export and writes it into an empty Document.

    Raises:
        ConfigError: If the folder is not an export, or has other fields.
        StoreError: If a file is missing, cut short or altered, or lies outside of the folder.
    """

    def __init__(self, indexer: Indexer, folder: Path) -> None:
        self._indexer = indexer
        self._folder = folder
        self._selection = indexer.dataset.selection
        self._groups, self._files = self._read_manifest()
        for name, expected in (self._files or {}).items():
            self._verify_file(name, expected)
        self._vectors: dict[tuple[str, str], dict[str, Embedding]] = {}
        self._nodes: dict[str, _NodeLines] = {}
        for group in self._groups:
            self._nodes[group.name] = _NodeLines(self._read_lines(group.nodes))
            for space in group.spaces:
                self._vectors[group.name, space.name] = self._read_vectors(space)
        self._documents = self._read_lines(DOCUMENTS)
        self._group_rows: dict[str, tuple[int, str]] = {}  # row and collection by name
        # the same by group and embed key
        self._index_rows: dict[tuple[str, str], tuple[int, str]] = {}

    def run(self) -> int:
        """Write everything, and make it live in one transaction; return the number of documents."""
        self._indexer.dataset = self._indexer.dataset.with_selection(self._selection)
        self._indexer.dataset.store_selection(self._selection)
        self._indexer.ensure_root()
        self._open_groups()
        flips: list[Flip] = []
        while documents := list(itertools.islice(self._documents, _BATCH)):
            flips += self._write(documents)
        if any(nodes.has_more for nodes in self._nodes.values()):
            raise self._damaged(DOCUMENTS, "it lacks documents that have nodes")
        ledger = self._indexer.ledger
        groups = [row for name, (row, _) in self._group_rows.items() if name != LAZY_ROOT_NAME]
        # still without documents
        ledger.switch(groups, [row for row, _ in self._index_rows.values()], [])
        ledger.flip(flips)
        return len(flips)

    def _read_manifest(self) -> tuple[list[ExportedGroup], dict[str, Any] | None]:
        """Return the groups, and row count and SHA-256 by name of file; format 1 has none."""
        try:
            manifest = json.loads(self._path(_MANIFEST).read_text(encoding="utf-8"))
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
        with self._decoding(_MANIFEST):
            if version == _FORMAT and manifest["sha256"] != _manifest_digest(manifest):
                raise self._damaged(_MANIFEST, "its content differs from its SHA-256")
            files = dict(manifest["files"]) if version == _FORMAT else None
            if manifest["fields"] != schema_digest(self._indexer.nodes.schema):
                msg = (
                    f"The export in {self._folder} was written with other doc_fields. Pass the same"
                    " ones to Document."
                )
                raise ConfigError(msg)
            if not self._indexer.dataset.is_chosen:
                self._selection = self._selection.changed(**manifest.get("selection", {}))
            groups = list(map(_decode_group, manifest["groups"]))
            names: list[str | None] = [None]
            for group in groups:
                is_root = group.name == LAZY_ROOT_NAME
                if group.parent not in names or is_root != (group.parent is None):
                    raise self._damaged(_MANIFEST, "its groups do not form a tree")
                names.append(group.name)
        return groups, files

    def _path(self, name: Any) -> Path:
        """Return the path of a file that a manifest names, which must be directly in the folder."""
        is_plain = (
            isinstance(name, str)
            and name not in ("", ".", "..")
            and not {"/", "\\", ":", "\0"} & set(name)
        )
        path = self._folder / name if is_plain else self._folder
        if not is_plain or path.is_symlink() or (path.exists() and not path.is_file()):
            raise self._damaged(_MANIFEST, f"{name!r} is not a file in the folder itself")
        return path

    def _verify_file(self, name: str, expected: Mapping[str, Any]) -> None:
        path = self._path(name)
        with self._decoding(name):
            if _file_digest(path) != expected["sha256"]:
                raise self._damaged(name, "its content differs from the SHA-256 in the manifest")
            if path.suffix == ".jsonl":
                with path.open("rb") as file:
                    if expected["rows"] != sum(1 for _ in file):
                        raise self._damaged(name, "its number of rows differs from the manifest")

    def _checked_path(self, name: Any) -> Path:
        path = self._path(name)
        if self._files is not None and name not in self._files:
            raise self._damaged(_MANIFEST, f"it has no checksum of {name!r}")
        return path

    def _read_vectors(self, space: ExportedSpace) -> dict[str, Embedding]:
        uids_path = self._checked_path(space.uids)
        path = self._checked_path(space.vectors)
        with self._decoding(space.vectors):
            uids = json.loads(uids_path.read_text(encoding="utf-8"))
            count = len(uids) if self._files is None else self._files[space.vectors]["rows"]
            return dict(zip(uids, read_vectors(path, count, space.dimension), strict=True))

    def _read_lines(self, name: Any) -> Iterator[dict[str, Any]]:
        path = self._checked_path(name)
        if not path.is_file():
            raise self._damaged(name, "it is missing")
        return self._decoded_lines(path)

    def _decoded_lines(self, path: Path) -> Iterator[dict[str, Any]]:
        with self._decoding(path.name), path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    @contextmanager
    def _decoding(self, name: str) -> Iterator[None]:
        """Report what cannot be decoded as damage of a file."""
        try:
            yield
        except LazyRAGError:
            raise
        except FileNotFoundError as exc:
            raise self._damaged(name, "it is missing") from exc
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            EOFError,
            zipfile.BadZipFile,
        ) as exc:
            raise self._damaged(
                name, f"it cannot be decoded ({type(exc).__name__}: {exc})"
            ) from exc

    def _damaged(self, name: str, reason: str) -> StoreError:
        msg = (
            f"{name} of the export in {self._folder} is damaged: {reason}. Nothing was imported."
            " Copy the export again."
        )
        return StoreError(msg, store=str(self._folder))

    def _open_groups(self) -> None:
        """Create the rows and collections of groups and vectors."""
        ledger = self._indexer.ledger
        nodes = self._indexer.nodes
        planner = self._indexer.planner
        root = ledger.tree.groups[LAZY_ROOT_NAME]
        self._group_rows[LAZY_ROOT_NAME] = (root.id, root.collection)
        for group in self._groups:
            if group.parent is not None:
                parent = self._group_rows[group.parent][0]
                self._group_rows[group.name] = planner.open_group(
                    group.name, parent, group.fingerprint
                )
            row = self._group_rows[group.name][0]
            for space in group.spaces:
                collections = planner.definitions.collections(
                    group.name, group.fingerprint, space.name
                )
                name = collections(f"{space.identity}/{row}")
                number, _ = ledger.groups.open_index(
                    row, "vectors", space.name, space.identity, name
                )
                nodes.create_vectors(name, space.dimension, space.name)
                ledger.groups.set_dimension(number, space.dimension)
                self._index_rows[group.name, space.name] = number, name

    def _write(self, documents: Sequence[dict[str, Any]]) -> list[Flip]:
        """Write some documents; return what has to become live of them."""
        ledger = self._indexer.ledger
        with self._decoding(DOCUMENTS):
            decoded = list(map(decode_document, documents))
            inputs = [dict(document["inputs"]) for document in documents]
            for of_groups in inputs:
                of_groups[LAZY_ROOT_NAME]  # every document has root nodes
        registered = ledger.documents.register(decoded)
        numbers = iter(ledger.builds.reserve(len(documents) * len(self._groups)))
        builds: dict[str, dict[str, BuildRow]] = {row.uid: {} for row in registered}
        uids: dict[tuple[str, str], list[str]] = {}  # by document and group
        covered: dict[str, list[tuple[int, int]]] = {row.uid: [] for row in registered}
        for group in self._groups:
            new: list[BuildRow] = []
            segments: list[Segment] = []
            row_of_group, collection = self._group_rows[group.name]
            for row, of_groups in zip(registered, inputs, strict=True):
                if group.name not in of_groups:
                    continue
                number = next(numbers)
                above: list[str] | None = None
                parent: BuildRow | None = None
                if group.parent is not None:
                    above = uids.get((row.uid, group.parent), [])
                    parent = builds[row.uid].get(group.parent)
                with self._decoding(group.nodes):
                    lines = self._nodes[group.name].of_document(row.uid)
                    nodes = [decode_node(line, number) for line in lines]
                    counts = child_counts(nodes, above)
                uids[row.uid, group.name] = [node.uid for node in nodes]
                build = BuildRow(
                    number,
                    row.id,
                    row_of_group,
                    None if parent is None else parent.number,
                    number if parent is None else parent.root,
                    of_groups[group.name],
                    json.dumps(counts),
                    output_digest(nodes),
                )
                builds[row.uid][group.name] = build
                new.append(build)
                segments += nodes
            ledger.builds.begin(new)
            self._indexer.nodes.segments.upsert(collection, segments)
            ledger.builds.acknowledge(build.number for build in new)
            for space in group.spaces:
                index_row = self._index_rows[group.name, space.name][0]
                for uid in self._write_embedded(group, space, segments):
                    covered[uid].append((index_row, builds[uid][group.name].number))
        flips: list[Flip] = []
        for row in registered:
            of_row = builds[row.uid]
            live = {build.node_group: build.number for build in of_row.values()}
            flips.append(Flip(row, live, covered[row.uid], of_row[LAZY_ROOT_NAME].number))
        return flips

    def _write_embedded(
        self, group: ExportedGroup, space: ExportedSpace, segments: list[Segment]
    ) -> set[str]:
        """Write the vectors of some nodes; return the ids of the nodes' documents."""
        vectors = self._vectors[group.name, space.name]
        collection = self._index_rows[group.name, space.name][1]
        embedded = [segment for segment in segments if segment.uid in vectors]
        rows = [VectorRow(node.key, vectors[node.uid], node.fields) for node in embedded]
        self._indexer.nodes.vectors_to_write.upsert(collection, rows)
        return {segment.document_id for segment in embedded}


def _decode_group(group: Mapping[str, Any]) -> ExportedGroup:
    spaces = tuple(ExportedSpace(**space) for space in group["spaces"])
    return ExportedGroup(**{**group, "spaces": spaces})


class _NodeLines:
    """Exported nodes of a group, document by document in the order of the documents."""

    def __init__(self, lines: Iterator[dict[str, Any]]) -> None:
        self._lines = lines
        self._next = next(lines, None)

    @property
    def has_more(self) -> bool:
        """Whether nodes are left."""
        return self._next is not None

    def of_document(self, uid: str) -> list[dict[str, Any]]:
        """Return the nodes of the next document."""
        nodes = []
        while self._next is not None and self._next["document_id"] == uid:
            nodes.append(self._next)
            self._next = next(self._lines, None)
        return nodes


def child_counts(nodes: Sequence[Segment], parents: Sequence[str] | None) -> list[int]:
    """Return the number of nodes below each parent; None stands for the parent of root nodes."""
    if parents is None:
        return [len(nodes)]
    counts = dict.fromkeys(parents, 0)
    for node in nodes:
        counts[str(node.parent)] += 1
    return list(counts.values())


# Dump


def canonical_dump(indexer: Indexer) -> Iterator[str]:
    """Yield a line of JSON for each live document, node, vector and indexed node, in a fixed order.

    Leaves out what is independent of the content: numbers of builds and versions, timestamps,
    ``last_accessed_date``, and how rows are distributed over files. An interrupted, resumed and
    repaired Document has the same dump as one that was built in one go. Builds nothing.
    """
    tree = indexer.ledger.tree
    for document in tree.in_order():
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


def _dump_line(kind: str, value: Mapping[str, Any]) -> str:
    return json.dumps({"is": kind, **value}, sort_keys=True, ensure_ascii=True)


def _vector_digests(
    indexer: Indexer, tree: Tree, group: LiveGroup, space: LiveIndex
) -> dict[str, Any]:
    """Return digests of the vectors of live nodes, by uid."""
    if not space.dimension:
        return {}
    keys = list(itertools.chain.from_iterable(build.keys for build in tree.builds(group)))
    rows = indexer.nodes.vectors.get(space.collection, keys)
    return {
        key_uid(row.key): hashlib.blake2b(_encode_vector(row.vector), digest_size=16).hexdigest()
        for row in rows
    }


def _term_counts(
    indexer: Indexer, tree: Tree, group: LiveGroup, space: LiveIndex
) -> dict[str, Any]:
    """Return the term frequencies of live nodes, by uid."""
    live = tree.live_owners(group)
    counts: dict[str, dict[str, int]] = {}
    for part, _ in indexer.terms.parts(tree, group, space):
        for key, terms in _terms_by_key(part).items():
            if key_build(key) in live:
                counts[key_uid(key)] = dict(sorted(terms.items()))
    return counts


def _terms_by_key(part: TermPart) -> dict[str, dict[str, int]]:
    by_row: list[dict[str, int]] = [{} for _ in range(len(part.keys))]
    postings = part.postings
    for number, term in enumerate(part.vocabulary.terms()):
        first = int(postings.starts[number])
        last = int(postings.starts[number + 1])
        for row, count in zip(
            postings.rows[first:last].tolist(), postings.values[first:last].tolist(), strict=True
        ):
            by_row[row][term] = int(count)
    return dict(zip((key.decode() for key in part.keys.tolist()), by_row, strict=True))


# Encoding of rows


def encode_document(row: DocumentRow) -> dict[str, Any]:
    """Return a document as JSON, without its builds."""
    plain = {name: getattr(row, field) for name, field in _PLAIN_FIELDS.items()}
    return plain | {name: json.loads(getattr(row, field)) for name, field in _JSON_FIELDS.items()}


def decode_document(document: Mapping[str, Any]) -> DocumentRow:
    """Decode the row that `encode_document` encoded; it has no file on this machine."""
    fields = {field: document[name] for name, field in _PLAIN_FIELDS.items()}
    fields |= {field: json.dumps(document[name]) for name, field in _JSON_FIELDS.items()}
    # The file has not been seen on this machine: a sync compares the content.
    return DocumentRow(0, root_uid(document["identity"]), seen_ns=-1, **fields)


def write_vectors(folder: Path, name: str, vectors: Iterable[Embedding], dimension: int) -> str:
    """Write vectors of one kind to an array file, in order.

    Dense vectors become ``<name>.npy``: (n, dimension) float32. Sparse vectors become
    ``<name>.npz``: ``starts``, (n + 1,) int64, the start of each vector; ``dimensions``, uint64,
    ascending in each; ``weights``, float32, one per dimension.

    Args:
        folder: Folder of the file.
        name: Its name without suffix.
        vectors: Any number of vectors; only one of them is in memory.
        dimension: Their length, or `SPARSE`.

    Returns:
        The file's name.
    """
    if dimension == SPARSE:
        starts, dimensions, weights = _sparse_arrays(cast("Iterable[SparseVector]", vectors))
        np.savez(folder / f"{name}.npz", starts=starts, dimensions=dimensions, weights=weights)
        return f"{name}.npz"
    path = folder / f"{name}.npy"
    draft = folder / f"{name}.raw"
    with draft.open("wb") as file:
        for dense in cast("Iterable[Vector]", vectors):
            file.write(dense.astype("<f4").tobytes())
    mapped = np.memmap(draft, "<f4", "r") if draft.stat().st_size else np.empty(0, "<f4")
    np.save(path, mapped.reshape(-1, dimension), allow_pickle=False)
    del mapped
    draft.unlink()
    return path.name


def read_vectors(path: Path, count: int, dimension: int) -> Embeddings:
    """Read what `write_vectors` wrote.

    Args:
        path: The file.
        count: The expected number of vectors.
        dimension: Their expected length, or `SPARSE`.

    Raises:
        ValueError: If number or length differ.
    """
    if dimension != SPARSE:
        matrix = np.load(path, allow_pickle=False, mmap_mode="r")
        if matrix.shape != (count, dimension) or matrix.dtype != np.dtype("<f4"):
            raise ValueError(f"shape {matrix.shape} for {count} nodes of dimension {dimension}")
        return cast("Embeddings", matrix)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        starts, dimensions, weights = (arrays[name] for name in ("starts", "dimensions", "weights"))
    if len(starts) != count + 1 or not len(dimensions) == len(weights) == starts[-1]:
        raise ValueError(
            f"{len(starts) - 1} sparse vectors with {len(weights)} weights for {count} nodes"
        )
    pairs = list(zip(dimensions.tolist(), weights.tolist(), strict=True))
    return [dict(pairs[start:end]) for start, end in pairwise(starts.tolist())]


def _sparse_arrays(
    vectors: Iterable[SparseVector],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    starts = array("q", [0])
    dimensions = array("Q")
    weights = array("f")
    for vector in vectors:
        row = sorted(vector.items())
        dimensions.extend(number for number, _ in row)
        weights.extend(weight for _, weight in row)
        starts.append(len(weights))
    return np.array(starts, "<i8"), np.array(dimensions, "<u8"), np.array(weights, "<f4")


def _encode_vector(vector: Embedding) -> bytes:
    """Return the same bytes for equal vectors."""
    if not isinstance(vector, dict):
        return np.ascontiguousarray(vector, "<f4").tobytes()
    _, dimensions, weights = _sparse_arrays([vector])
    return dimensions.tobytes() + weights.tobytes()
