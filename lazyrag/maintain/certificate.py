"""Deletion certificates: purge a document, and scan the stores' files for what could be left of
it.
"""

from __future__ import annotations

import datetime as dt
import functools
import glob
import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lazyrag.data.segment import content_text, root_uid
from lazyrag.errors import ConfigError, DatasetPathError
from lazyrag.indexes.bm25 import TermPart
from lazyrag.ingest.documents import delete_files
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.report import pages
from lazyrag.ingest.term_index import arrays_with_builds
from lazyrag.ingest.verify import STORE_FILES, compact
from lazyrag.ledger.jobs import forget_jobs
from lazyrag.ledger.ledger import Ledger, NewPart, write_part
from lazyrag.ledger.liveness import PartBuilds
from lazyrag.ledger.tables import DocumentRow
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding_cache import CachedEmbedder
from lazyrag.progress.blocks import contextmanager
from lazyrag.stores.chroma_encoding import unit_vectors
from lazyrag.stores.protocol import local_path
from lazyrag.stores.tables import VECTOR_PARTS
from lazyrag.types import Embedding, Int64Array, JsonMapping, PathLike, UInt64Array
from lazyrag.validation import normal_name, require, validate_text

_WINDOW = 32
_DISTINCT = 8  # bytes of a window at least: runs of zeros, spaces or rules are in every file
_MAX_WINDOWS = 400_000
_SHORTEST_PATH = 6
_PIECE = 1 << 20
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ELSEWHERE = (
    "backups, exports and copies of the stores' files",
    "the document's own file, and what other programs hold in memory or have logged",
)


class CheckedPlace(NamedTuple):
    """A place that was searched.

    Args:
        place: A file, a folder, or the rows of a store.
        bytes: How many bytes were scanned; 0 for rows, which were queried by their keys.
        found: How many pieces of the document are there, which no live document has as well; for
            rows, their number.
    """

    place: str
    bytes: int
    found: int


@dataclass(frozen=True, slots=True)
class DeletionCertificate:
    """What was searched for a deleted document, and what was found.

    Searched for are all pieces of 32 bytes of its texts (UTF-8 and UTF-16), metadata and vectors,
    one after the other, so that no 63 bytes in a row remain unnoticed (of more than 12 MB, even
    samples); the keys of its nodes, which stand beside all that indexes and caches of rows hold;
    and its path.

    Args:
        document: Its path or id.
        checked: The places that were searched.
        not_checked: What cannot be checked, and should be by other means.
        pieces: How many different pieces were searched for.
        shared: How many of them are in the stores because live documents have the same text or
            vectors,
        notes: What else is worth knowing.
        made: When, in UTC.
    """

    document: str
    checked: tuple[CheckedPlace, ...]
    not_checked: tuple[str, ...]
    pieces: int
    shared: int
    notes: tuple[str, ...] = ()
    made: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the document was found."""
        return not any(place.found for place in self.checked)

    def __str__(self) -> str:
        scanned = sum(place.bytes for place in self.checked)
        pieces = sum(place.found for place in self.checked)
        result = f"{pieces} pieces found" if pieces else "nothing found"
        where = f"{len(self.checked)} places, {scanned:,} bytes, {self.made:%Y-%m-%d %H:%M:%S} UTC"
        lines = [f"{self.document}: {result} in {where}"]
        lines += [f"  {place.place}: {place.found} found" for place in self.checked if place.found]
        if self.shared:
            lines.append(f"  {self.shared} pieces are in live documents, too")
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  not checked: {place}" for place in self.not_checked]
        return "\n".join(lines)


def purge(indexer: Indexer, document: str, folders: Iterable[PathLike]) -> DeletionCertificate:
    """Delete a document and remove what is left of it; see `Maintenance.purge`."""
    places = _existing(folders)
    with indexer.writing():
        indexer.ensure_root()
        document = normal_name(validate_text("document", document))
        row = indexer.ledger.documents.find(document)
        if row is None:
            raise ConfigError(
                f"There is no document {document!r}. For one that is gone call"
                " deletion_certificate()."
            )
        needles = _Needles.of_row(indexer, row)
        if row.status == "live":
            delete_files(indexer, [document])
        else:  # what the ledger has of a hidden one
            indexer.ledger.documents.tombstone([row.id], row.status)
        keeps_path = _forget_row(indexer, row)
        with indexer.ledger.writing() as connection:
            forget_jobs(connection, indexer.ledger.id, [document])
        with _without_grace(indexer):
            indexer.purge()
            with indexer.ledger.writing() as connection:
                indexer.ledger.documents.delete_document_rows(connection)
            _rewrite_term_parts(indexer)
            _rewrite_vectors(indexer, needles.keys)
            compact(indexer)
            _remove_graphs(indexer.ledger)
        return _search(indexer, document, needles, places, (_KEPT,) if keeps_path else ())


def certify(
    indexer: Indexer,
    document: str,
    text: str | None,
    file: PathLike | None,
    folders: Iterable[PathLike],
) -> DeletionCertificate:
    """Search the stores for a document that is gone; see `Maintenance.deletion_certificate`."""
    document = normal_name(validate_text("document", document))
    row = indexer.ledger.documents.find(document)
    if row is not None and row.status == "live":
        raise ConfigError(
            f"The document {document!r} is not deleted. Call purge({document!r}), which deletes it."
        )
    if (text is None) == (file is None):
        raise ConfigError(
            "Pass either text= or file=, of the document as it was: what to search for."
        )
    needles = _Needles(document)
    if file is not None:
        needles.add_bytes(Path(file).read_bytes())
        text = indexer.loading.load(FoundFile(document, file)).text
    needles.add_text(validate_text("text", text))
    notes = (_KEPT,) if row is not None and row.status == "excluded" else ()
    return _search(indexer, document, needles, _existing(folders), notes)


def _existing(folders: Iterable[PathLike]) -> list[Path]:
    require(not isinstance(folders, (str, os.PathLike)), "folders", folders, "a list of paths")
    places = list(map(Path, folders))
    missing = [str(place) for place in places if not place.exists()]
    if missing:
        raise DatasetPathError(f"folders must be existing files and folders; got {missing[0]!r}.")
    # Beside a database lie its log and its index.
    beside = (
        place.parent.glob(f"{glob.escape(place.name)}*") for place in places if place.is_file()
    )
    return [*(place for place in places if place.is_dir()), *chain.from_iterable(beside)]


_KEPT = (
    "The file is still in the dataset's folder. The ledger keeps its path, so that sync() leaves it"
    " out: delete the file and call purge() again."
)


def _forget_row(indexer: Indexer, row: DocumentRow) -> bool:
    """Remove what the ledger has of a deleted document beside its builds; whether its path has to
    stay.
    """
    ledger = indexer.ledger
    file = indexer.dataset.find(row.identity) if row.origin == "dataset" else None
    keeps_path = row.origin == "dataset" and (
        not indexer.dataset.is_given or (file is not None and file.path.exists())
    )
    if not keeps_path:
        ledger.documents.tombstone([row.id], "deleted")
    with ledger.writing() as connection:
        connection.execute(
            "UPDATE document SET size = NULL, mtime_ns = NULL, inode = NULL, content_hash = '',"
            " mark = '', loaded = '{}', said = '{}', updates = '{}' WHERE id = ?",
            (row.id,),
        )
    ledger.documents.set_failures([row.identity], [])
    indexer.failures.forget(lambda _, identity: identity == row.identity)
    indexer.engine.added.pop(row.identity, None)
    return keeps_path


@contextmanager
def _without_grace(indexer: Indexer) -> Iterator[None]:
    """Remove dead rows and files at once: reads of other programs that still use them are
    repeated.
    """
    options = indexer.options
    indexer.options = replace(options, grace_s=0.0)
    try:
        yield
    finally:
        indexer.options = options


def _rewrite_term_parts(indexer: Indexer) -> None:
    """Write the parts of keyword indexes anew without rows of dead builds, which they keep until
    they are merged.
    """
    ledger = indexer.ledger
    spaces = ledger.select(
        "SELECT space.id FROM space JOIN node_group ON node_group.id = space.node_group "
        "WHERE space.kind = 'terms' AND node_group.ledger = ?",
        (ledger.id,),
    )
    for (index,) in spaces:
        for row in ledger.groups.term_parts(index):
            builds = ledger.parts.builds(row.id)
            alive = np.isin(builds.numbers, ledger.builds.not_dead(builds.numbers.tolist()))
            if alive.all():
                continue
            part = TermPart.from_arrays(ledger.parts.arrays(row.id))
            part = TermPart.joined([part], [builds.rows_of(alive)])
            builds = PartBuilds.of(builds.numbers[alive], np.cumsum(builds.sizes[alive]))
            arrays = arrays_with_builds(part, builds)
            name, content = ledger.file.arrays.write_or_inline(arrays, 0 if row.in_file else _PIECE)
            with ledger.writing() as connection:
                ledger.next_change(connection)
                new_part = NewPart(index, name, content, builds, part.lengths, (row.id,))
                write_part(connection, ledger.parts, new_part)


def _remove_graphs(ledger: Ledger) -> None:
    """Remove the graphs of approximate search over parts that are gone, which stay until the next
    one is written.
    """
    stems = {bundle.partition(".")[0] for (bundle,) in ledger.select(VECTOR_PARTS, ())}
    if ledger.file.path is None:
        return
    for graph in Path(f"{ledger.file.path}.graphs").glob("*"):
        if graph.name.partition(".")[0] not in stems:
            graph.unlink()


def _rewrite_vectors(indexer: Indexer, collections: Collection[str]) -> None:
    """Write collections of a vector store of another make anew, as its files keep deleted rows.

    If the program is killed meanwhile, the rows that are lost are built again, as after any loss.
    """
    nodes = indexer.nodes
    path = local_path(indexer.nodes.vectors)
    if path is None:
        return
    query = (
        "SELECT collection, dimension, name FROM space WHERE collection <> '' AND dimension <> 0"
    )
    spaces = indexer.ledger.select(query, ())
    for collection, dimension, embed_key in spaces:
        if collection not in collections:
            continue
        pages_of_rows = list(pages(functools.partial(nodes.vectors.scan, collection)))
        nodes.vectors_to_write.drop(collection)
        nodes.create_vectors(collection, dimension, embed_key)
        for rows in pages_of_rows:
            nodes.vectors.upsert(collection, rows)
    database = Path(path) if Path(path).is_file() else Path(path, "chroma.sqlite3")
    if database.exists():
        nodes.vectors.close()
        _clean_database(database)
        nodes.vectors.open()
        # the first read of an opened Chroma writes its graph once more
        for collection, _, _ in spaces:
            nodes.vectors.get(collection, [""])
        for header in database.parent.glob("*/header.bin") if Path(path).is_dir() else ():
            _clear_unused(header.parent)


def _clean_database(database: Path) -> None:
    """Remove what a closed Chroma, or a Milvus Lite of one file, keeps of rows and collections that
    it has deleted.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        if database.name != "chroma.sqlite3":
            connection.execute("VACUUM")
            return
        for statement in _CHROMA_LEFTOVERS:
            connection.execute(statement)
        connection.execute("VACUUM")
        segments = {name for (name,) in connection.execute("SELECT id FROM segments")}
    for header in database.parent.glob("*/header.bin"):
        if header.parent.name not in segments:
            shutil.rmtree(header.parent)


def _clear_unused(folder: Path) -> None:
    """Overwrite the unused part of a graph's files: Chroma writes there what was in memory, such as
    deleted vectors.
    """
    version, _, size, count, width = struct.unpack(
        "<i4Q", (folder / "header.bin").read_bytes()[:36]
    )
    for name, bytes_each in (("data_level0.bin", width), ("length.bin", 4)):
        path = folder / name
        if version == 1 and path.stat().st_size == size * bytes_each:
            with path.open("r+b") as file:
                file.seek(count * bytes_each)
                file.write(bytes((size - count) * bytes_each))


# Chroma keeps the vectors, lists of metadata and log of dropped collections
# (chroma-core/chroma#7594).
_CHROMA_LEFTOVERS = (
    (
        "DELETE FROM embeddings_queue WHERE NOT EXISTS (SELECT 1 FROM collections WHERE"
        " instr(topic, collections.id))"
    ),
    "DELETE FROM embeddings WHERE segment_id NOT IN (SELECT id FROM segments)",
    "DELETE FROM embedding_metadata WHERE id NOT IN (SELECT id FROM embeddings)",
    "DELETE FROM embedding_metadata_array WHERE id NOT IN (SELECT id FROM embeddings)",
)


class _Needles:
    """The pieces of a document to search for.

    Args:
        document: Its path or id.
    """

    def __init__(self, document: str) -> None:
        self.windows: set[bytes] = set()
        paths = (document.encode("utf-8", "surrogatepass"), json.dumps(document)[1:-1].encode())
        self.paths = {path for path in paths if len(path) >= _SHORTEST_PATH}
        # of its nodes by collection, of segments or of vectors
        self.keys: dict[str, list[str]] = {}
        self.has_short_vectors = False
        self.add_bytes(root_uid(document).encode())

    @classmethod
    def of_row(cls, indexer: Indexer, row: DocumentRow) -> _Needles:
        """Those of all builds of a document that the stores have: live ones, versions and dead
        ones.
        """
        needles = cls(row.identity)
        ledger = indexer.ledger
        nodes = indexer.nodes
        builds = ledger.select(
            "SELECT build.number, node_group.collection, node_group.id FROM build JOIN node_group"
            " ON node_group.id = build.node_group WHERE document = ? AND node_group.status <>"
            " 'dropped'",
            (row.id,),
        )
        objects = ledger.builds.with_parents([number for number, _, _ in builds])
        for number, collection, group in builds:
            keys = [*objects[number].keys]
            needles.keys.setdefault(collection, []).extend(keys)
            for segment in nodes.segments.get(collection, keys):
                needles.add_bytes(segment.uid.encode())
                needles.add_text(content_text(segment.content))
                needles.add_text(_json(segment.metadata))
            for vectors in ledger.groups.vector_collections(group):
                needles.keys.setdefault(vectors, []).extend(keys)
                needles.add_vectors(row.vector for row in nodes.vectors.get(vectors, keys))
        for metadata in (row.loaded, row.user_metadata, row.updates):
            needles.add_text(metadata)
        return needles

    def add_text(self, text: str) -> None:
        """Add the windows of a text in both encodings."""
        self.add_bytes(
            text.encode("utf-8", "surrogatepass"), text.encode("utf-16-le", "surrogatepass")
        )

    def add_vectors(self, vectors: Iterable[Embedding]) -> None:
        """Add the windows of vectors."""
        for vector in vectors:
            data = _vector_bytes(vector)
            self.has_short_vectors |= len(data) < _WINDOW
            self.add_bytes(data)
            if not isinstance(vector, Mapping):  # Chroma stores them with length 1
                self.add_bytes(unit_vectors(vector[None], "cosine").tobytes())

    def add_bytes(self, *pieces: bytes) -> None:
        """Add the windows of some bytes."""
        for data in pieces:
            ends = range(_WINDOW, len(data) + 1, _WINDOW)
            step = max(1, -(-len(ends) // _MAX_WINDOWS))
            cut = (data[end - _WINDOW : end] for end in ends[::step])
            self.windows.update(window for window in cut if len(set(window)) >= _DISTINCT)


class _Scanner:
    """Finds windows in bytes, at any offset: a table of hashes of their first 8 bytes says where to
    look.
    """

    def __init__(self, windows: Collection[bytes], paths: Collection[bytes]) -> None:
        self._windows = windows
        self._paths = paths
        firsts = np.fromiter(
            (int.from_bytes(window[:8], "little") for window in windows), np.uint64, len(windows)
        )
        bits = min(24, max(16, len(windows).bit_length() + 7))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, np.bool_)
        self._table[self._slots(firsts)] = True

    def _slots(self, words: UInt64Array) -> Int64Array:
        return ((words * _FACTOR) >> self._shift).view(np.int64)

    def find(self, data: bytes) -> set[bytes]:
        """The windows and paths that are in some bytes."""
        matches = {path for path in self._paths if path in data}
        for shift in range(min(8, max(0, len(data) - 7))):
            words = np.frombuffer(data, "<u8", (len(data) - shift) // 8, shift)
            for at in np.flatnonzero(self._table.take(self._slots(words))).tolist():
                window = data[8 * at + shift : 8 * at + shift + _WINDOW]
                if window in self._windows:
                    matches.add(window)
        return matches

    def find_in_file(self, path: Path) -> tuple[int, set[bytes]]:
        """How many bytes a file has, and what is in it."""
        size = 0
        matches = set[bytes]()
        overlap = b""
        longest = max(map(len, (*self._paths, bytes(_WINDOW))))
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                size += len(piece)
                matches |= self.find(overlap + piece)
                overlap = (overlap + piece)[-longest:]
        return size, matches


def _other_caches(indexer: Indexer) -> Iterator[str]:
    """Yield the caches of embedders that are not files of the stores."""
    for key, embedder in indexer.embedders.items():
        user_object = embedder.user_object
        if isinstance(user_object, CachedEmbedder):
            yield f"the embedding cache that was given for the embed key {key!r}"
        model = getattr(user_object, "embedder", user_object)
        if getattr(model, "token_cache", None) is not None:
            yield f"the token vectors that the embedder of the embed key {key!r} has stored"


def _search(
    indexer: Indexer,
    document: str,
    needles: _Needles,
    folders: Iterable[Path],
    notes: tuple[str, ...],
) -> DeletionCertificate:
    """Search all places, and report."""
    scanner = _Scanner(needles.windows, needles.paths)
    scanned = [(place, *_scan(scanner, place)) for place in (*_places(indexer), *folders)]
    matches = set[bytes]().union(*(pieces for _, _, pieces in scanned))
    shared = _shared(indexer, matches, needles.paths) if matches else matches
    checked = [
        CheckedPlace(str(place), size, len(pieces - shared)) for place, size, pieces in scanned
    ]
    for kind, store in _stores(indexer):
        live = {collection for (collection,) in _collections(indexer, kind)}
        keys = {name: keys for name, keys in needles.keys.items() if name in live}
        rows = sum(len(store.get(name, keys[name])) for name in keys)
        checked.append(CheckedPlace(f"rows of the {kind} store", 0, rows))
    places = [place for place, _, _ in scanned]
    not_checked = (*_ELSEWHERE, *_list_unchecked(indexer, needles, places))
    pieces = len(needles.windows | needles.paths)
    return DeletionCertificate(
        document, tuple(checked), not_checked, pieces, len(matches & shared), notes
    )


def _stores(indexer: Indexer) -> list[tuple[str, Any]]:
    """The segment store and the vector store, with their kinds."""
    return [("segment", indexer.nodes.segments), ("vector", indexer.nodes.vectors)]


def _list_unchecked(indexer: Indexer, needles: _Needles, places: list[Path]) -> Iterator[str]:
    """Yield what of this search's stores and pieces could not be checked."""
    file = indexer.ledger.file
    if file.is_server:
        yield f"the server's files of {file.address}, which lose deleted rows later"
    for _, store in _stores(indexer):
        location = getattr(store, "location", None)
        if location is not None and location.is_server:
            address = location.address
            yield f"the files of the server at {address}: its rows were queried by their keys"
    if file.path is None:
        yield "the memory of this program, in which the store is"
    if needles.has_short_vectors:
        yield "vectors of fewer than 8 numbers, apart from their keys"
    if not needles.paths:
        yield f"its path, which has fewer than {_SHORTEST_PATH} bytes"
    yield from _other_caches(indexer)
    if any(next(place.rglob("*.parquet"), None) for place in places if place.is_dir()):
        yield "what the vector store has compressed"
    if any((place / "chroma.sqlite3").exists() for place in places):
        yield "unused memory of this program, which Chroma may write to its files until it ends"


def _places(indexer: Indexer) -> list[Path]:
    """Files and folders of the stores on this machine, with all that lies beside them under their
    names.
    """
    roots: list[Path | str | None] = [indexer.ledger.file.path]
    for _, store in _stores(indexer):
        if isinstance(store, STORE_FILES):
            roots.append(store.file.path)
        roots.append(local_path(store))
    places: set[Path] = set()
    for root in (Path(name) for name in roots if name is not None):
        places.update(path for path in root.parent.iterdir() if path.name.startswith(root.name))
    return sorted(places)


def _scan(scanner: _Scanner, place: Path) -> tuple[int, set[bytes]]:
    size = 0
    matches = set[bytes]()
    paths = [place] if place.is_file() else sorted(filter(Path.is_file, place.rglob("*")))
    for path in paths:
        with suppress(FileNotFoundError):  # a log that was closed meanwhile
            count, pieces = scanner.find_in_file(path)
            size += count
            matches |= pieces
    return size, matches


def _collections(indexer: Indexer, kind: str) -> list[Any]:
    """The collections in the store file's ledgers: of segments, or of vectors."""
    if kind == "segment":
        return indexer.ledger.select(
            "SELECT collection FROM node_group WHERE status <> 'dropped'", ()
        )
    return indexer.ledger.select(
        "SELECT collection FROM space WHERE collection <> '' AND dimension <> 0", ()
    )


def _shared(indexer: Indexer, pieces: set[bytes], paths: set[bytes]) -> set[bytes]:
    """Those of some pieces that live documents, of all Documents in the store, have as well."""
    scanner = _Scanner(pieces - paths, pieces & paths)
    shared = set[bytes]()
    nodes = indexer.nodes
    for (collection,) in _collections(indexer, "segment"):
        for segments in pages(functools.partial(nodes.segments.scan, collection)):
            for segment in segments:
                metadata = _json(segment.metadata)
                fields = _json(segment.fields)
                for text in (content_text(segment.content), segment.path, metadata, fields):
                    shared |= scanner.find(text.encode("utf-8", "surrogatepass"))
                    shared |= scanner.find(text.encode("utf-16-le", "surrogatepass"))
    for (collection,) in _collections(indexer, "vector"):
        for rows in pages(functools.partial(nodes.vectors.scan, collection)):
            shared = shared.union(*(scanner.find(_vector_bytes(row.vector)) for row in rows))
    return shared


def _json(values: JsonMapping) -> str:
    """A mapping as the store file has it."""
    return json.dumps(dict(values), ensure_ascii=False, separators=(",", ":"), default=str)


def _vector_bytes(vector: Embedding) -> bytes:
    """A vector as the store file has it; the numbers of a sparse one."""
    numbers = list(vector.values()) if isinstance(vector, Mapping) else vector
    return np.ascontiguousarray(numbers, np.float32).tobytes()
