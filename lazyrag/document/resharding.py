"""Move documents between shards: another number of them, and export, import and dump of a sharded Document.

Nothing is loaded, transformed or embedded: nodes and vectors are copied as they are. Keyword indexes are built at the
first query.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from lazyrag.data.fields import BUILT_IN_FIELDS, read_schema
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment
from lazyrag.document.changes import PathLike, copy_selection
from lazyrag.document.document import Document
from lazyrag.document.export import (
    ExportedGroup,
    ExportedSpace,
    Exporter,
    Importer,
    encode_document,
    encode_node,
    export,
    folder_path,
)
from lazyrag.document.indexer import Indexer
from lazyrag.document.lease import WAIT_S, LedgerConnection
from lazyrag.document.ledger import DocumentRow, copied_groups
from lazyrag.document.report import OnProgress, ProgressMeter, during_call
from lazyrag.document.shards import MAX_SHARDS, ShardedDocument, read_shards, shard_conf, shard_of, write_note
from lazyrag.errors import ConfigError
from lazyrag.stores.config import StoreConf
from lazyrag.types import Embedding
from lazyrag.validation import known_keywords, require, validate_integer
from lazyrag.values import dataclass

_CACHE = ".embeddings"
_BESIDE = (".d", ".graphs", ".selection", ".results", f"{_CACHE}-wal", f"{_CACHE}-shm", _CACHE, "-wal", "-shm", "")
"""What lies beside a store file, by the end of its name; the file itself comes last."""


class _Live:
    """The live state of several stores as one, as far as documents are wanted."""

    def __init__(self, indexers: Sequence[Indexer], wanted: Callable[[str], bool] = lambda _: True) -> None:
        self._parts = [(one, one.ledger.tree) for one in indexers]
        own = [[one for one in tree.in_order() if wanted(one.identity)] for _, tree in self._parts]
        self._place = {one.uid: part for part, some in zip(self._parts, own, strict=True) for one in some}
        self._rows = [one.ledger.documents.all() for one in indexers]
        self.uids = [one.uid for one in heapq.merge(*own, key=lambda one: one.identity)]
        rows = (row for some in self._rows for row in some.values())
        self.excluded = [row for row in rows if row.status == "excluded" and wanted(row.identity)]
        self.groups = [
            self._group(name) for name in dict.fromkeys(name for _, tree in self._parts for name in tree.groups)
        ]

    def _group(self, name: str) -> ExportedGroup:
        own = [tree.groups[name] for _, tree in self._parts if name in tree.groups]
        if len({(one.fingerprint, one.parent) for one in own}) > 1:
            raise ConfigError(f"The shards have different definitions of {name!r}. Call sync() and activate_group().")
        spaces = {
            space.name: ExportedSpace(space.name, space.identity, space.dimension, "", "")
            for one in own
            for space in one.indexes.values()
            if space.kind == "vectors" and space.complete and space.dimension
        }
        return ExportedGroup(name, own[0].parent, own[0].fingerprint, "", tuple(spaces.values()))

    def nodes(self, group: str, uid: str) -> list[Segment]:
        """The nodes of a document."""
        indexer, tree = self._place[uid]
        found = tree.groups.get(group)
        if found is None or uid not in found.builds:
            return []
        return indexer.nodes.of_build(found.collection, found.builds[uid])

    def vectors(self, group: str, space: ExportedSpace, uid: str) -> dict[str, Embedding]:
        """The vectors of a document's nodes, by uid of the node."""
        indexer, tree = self._place[uid]
        found = tree.groups.get(group)
        if found is None or uid not in found.builds:
            return {}
        build = found.builds[uid]
        uids = dict(zip(build.keys, build.uids, strict=True))
        spaces = (one for one in found.indexes.values() if (one.name, one.identity) == (space.name, space.identity))
        rows = (row for one in spaces if one.dimension for row in indexer.nodes.vectors.get(one.collection, build.keys))
        return {uids[row.key]: row.vector for row in rows}

    def documents(self) -> Iterator[dict[str, Any]]:
        """The documents as an export has them."""
        inputs: dict[tuple[int, int], dict[str, str]] = {}
        for number, (indexer, tree) in enumerate(self._parts):
            for group in tree.groups.values():
                for build in indexer.ledger.builds.live_in(group.id):
                    inputs.setdefault((number, build.document), {})[group.name] = build.input
        numbers = {id(tree): number for number, (_, tree) in enumerate(self._parts)}
        for uid in self.uids:
            tree = self._place[uid][1]
            number, document = numbers[id(tree)], tree.documents[uid]
            yield {**encode_document(self._rows[number][document.identity]), "inputs": inputs[number, document.id]}


# Export, import, dump


class _ShardsExporter(Exporter):
    def __init__(self, indexers: Sequence[Indexer], folder: Path) -> None:
        super().__init__(indexers[0], folder)
        self._live = _Live(indexers)

    def _write_groups(self) -> list[ExportedGroup]:
        return [self._write_merged(number, group) for number, group in enumerate(self._live.groups)]

    def _write_merged(self, number: int, group: ExportedGroup) -> ExportedGroup:
        live = self._live
        lines = (encode_node(one) for uid in live.uids for one in live.nodes(group.name, uid))
        nodes = self._write_lines(f"nodes-{number}.jsonl", lines)
        spaces = []
        for at, space in enumerate(group.spaces):
            pairs = (pair for uid in live.uids for pair in live.vectors(group.name, space, uid).items())
            spaces.append(self._write_space(f"vectors-{number}-{at}", pairs, space))
        return ExportedGroup(group.name, group.parent, group.fingerprint, nodes, tuple(spaces))

    def _documents(self) -> Iterator[dict[str, Any]]:
        return self._live.documents()


def export_shards(indexers: Sequence[Indexer], folder: PathLike) -> Path:
    """Write the live state of shards as one export; see `Document.export`."""
    return export(lambda unfinished: _ShardsExporter(indexers, unfinished).run(), folder)


class _ShardImporter(Importer):
    """Imports the documents of one shard."""

    def __init__(self, indexer: Indexer, folder: Path, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        super().__init__(indexer, folder)

    def _read_lines(self, name: Any) -> Iterator[dict[str, Any]]:
        lines = super()._read_lines(name)  # of documents, or of their nodes
        return (one for one in lines if self._wanted(str(one.get("identity", one.get("path")))))


def import_shards(indexers: Sequence[Indexer], folder: PathLike) -> int:
    """Import an export into empty shards; see `Document.import_from`."""
    count = len(indexers)
    importers = [
        _ShardImporter(indexer, folder_path(folder), _filter(number, count)) for number, indexer in enumerate(indexers)
    ]
    with ExitStack() as stack:
        for indexer in indexers:
            stack.enter_context(indexer.writing())
        for indexer in indexers:
            if indexer.ledger.tree.documents:
                msg = f"{indexer.where} contains documents already. Import into an empty Document."
                raise ConfigError(msg)
        return sum(importer.run() for importer in importers)


def _filter(number: int, shards: int) -> Callable[[str], bool]:
    return lambda identity: shard_of(identity, shards) == number


# Another number of shards


class _Copy(Importer):
    """Imports documents of live shards instead of an export."""

    def __init__(self, indexer: Indexer, live: _Live) -> None:  # there is no folder with a manifest
        self._indexer, self._live = indexer, live
        self._folder, self._files = Path(), None
        self._selection = indexer.dataset.selection
        self._groups = live.groups
        self._vectors = {(group.name, space.name): {} for group in live.groups for space in group.spaces}
        self._nodes: Any = {group.name: _LiveNodes(self, group) for group in live.groups}
        self._documents = live.documents()
        self._group_rows: dict[str, tuple[int, str]] = {}
        self._index_rows: dict[tuple[str, str], tuple[int, str]] = {}

    def run(self) -> int:
        """See `Importer.run`; files that `delete_files` excluded stay so."""
        self._indexer.ensure_root()
        documents = self._indexer.ledger.documents
        rows = documents.register([DocumentRow(0, row.uid, row.identity, row.origin) for row in self._live.excluded])
        documents.tombstone([row.id for row in rows], "excluded")
        return super().run()

    def _write(self, documents: Sequence[dict[str, Any]]) -> Any:
        for vectors in self._vectors.values():
            vectors.clear()
        return super()._write(documents)


@dataclass(frozen=True, slots=True)
class _LiveNodes:
    copy: _Copy
    group: ExportedGroup
    has_more: bool = False

    def of_document(self, uid: str) -> list[dict[str, Any]]:
        """See `lazyrag.document.export`; loads the vectors as well."""
        live = self.copy._live
        for space in self.group.spaces:
            self.copy._vectors[self.group.name, space.name].update(live.vectors(self.group.name, space, uid))
        return [encode_node(one) for one in live.nodes(self.group.name, uid)]


class _Stores(ShardedDocument):
    """Shards whose number need not be the one that is noted beside the store."""

    def _claim(self, path: Path | None, shards: int, *, is_new: bool) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Resharding:
    """Result of `reshard`.

    Args:
        before: The number of shards before; 0 for one store without shards.
        shards: The number now.
        documents: How many documents were distributed.
        present: How many of them an earlier, interrupted call had written.
    """

    before: int
    shards: int
    documents: int
    present: int

    def __str__(self) -> str:
        if self.before == self.shards:
            return f"There are {self.shards} shards already."
        before = f"{self.before} shards" if self.before else "one store"
        again = f", {self.present} of them by an earlier call" if self.present else ""
        return f"{self.documents} documents from {before} to {self.shards} shards{again}"


@known_keywords
def reshard(
    store_conf: Mapping[str, Any],
    shards: int,
    *,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Resharding:
    """Distribute the documents of a store, or of shards, over another number of shards.

    Nothing is loaded, transformed or embedded. The new stores are written beside the old ones, and replace them in one
    step at the end; then the old ones are removed. Repeat an interrupted call to continue it: complete shards are not
    written again, as long as the old ones have not changed. Earlier versions of documents, jobs and the embedding cache
    are not copied, and keyword indexes are built at the first query. Programs that have the Document open can read it
    until the switch, and have to open it again.

    Args:
        store_conf: The `store_conf` of the Document: without numbers in its paths.
        shards: The new number.
        on_progress: Called with a `Progress` after each shard.
        cancel: An event that stops the call once it is set; the next call continues it.

    Raises:
        ConfigError: If there is no store, or it is in memory.
        StoreBusyError: If another program writes it.
        CanceledError: If ``cancel`` is set.

    Example:
        >>> import pathlib, tempfile
        >>> from lazyrag import Document
        >>> from lazyrag.document import reshard
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     conf = {"segment_store": {"type": "map", "kwargs": {"uri": pathlib.Path(folder, "store.db")}}}
        ...     with Document(store_conf=conf, shards=2) as docs:
        ...         _ = docs.add_texts({"tea": "Green tea.", "coffee": "Coffee."})
        ...     print(reshard(conf, 3))
        ...     with Document(store_conf=conf, shards=3) as docs:
        ...         [node.path for node in docs.get_nodes()]
        2 documents from 2 shards to 3 shards
        ['coffee', 'tea']
    """
    wanted = validate_integer("shards", shards, 1, MAX_SHARDS)
    conf = StoreConf.parse(store_conf)
    path = conf.ledger_file
    if path is None:
        raise ConfigError("store_conf describes a Document in memory. Make it anew with another number of shards.")
    known = read_shards(path)
    require(known is not None or path.exists(), "store_conf", str(path), "that of an existing Document")
    done = present = 0
    if known != wanted:
        with during_call(on_progress, cancel), ExitStack() as stack:
            sources = [_open(stack, store_conf, name, known) for name in _names(conf, known)]
            done, present = _copy_all(stack, store_conf, path, sources, (known, wanted))
        write_note(f"{path}.shards", {"shards": wanted})  # the switch
    _remove_others(conf, path, wanted)
    return Resharding(known or 0, wanted, done, present)


def _copy_all(
    stack: ExitStack,
    store_conf: Mapping[str, Any],
    path: Path,
    sources: Sequence[Sequence[Document]],
    numbers: tuple[int | None, int],
) -> tuple[int, int]:
    """Write all new shards, and return the number of their documents, and how many were there already."""
    known, wanted = numbers
    indexers = [[one._indexer for one in some] for some in sources]
    for one in itertools.chain.from_iterable(indexers):
        stack.enter_context(one.ledger.lease.held(WAIT_S))
    state = [[[one.ledger.token, one.ledger.tree.changes] for one in some] for some in indexers]
    _begin(StoreConf.parse(store_conf), path, {"to": wanted, "of": state}, known)
    total = sum(len(one.ledger.tree.documents) for some in indexers for one in some)
    done = present = 0
    with ProgressMeter("reshard", total, 1, None, unit="file") as meter:
        for some in indexers:
            fields = some[0].nodes.schema
            targets = _open(stack, store_conf, some[0].name, wanted, fields)
            for number, target in enumerate(targets):
                indexer, live = target._indexer, _Live(some, _filter(number, wanted))
                copy_selection(some[0].ledger.file, indexer.ledger.file, indexer.name)
                if indexer.ledger.tree.documents:
                    present += len(live.uids)
                else:
                    with indexer.writing():
                        _Copy(indexer, live).run()
                done += len(live.uids)
                meter.reach(done)
    return done, present


def _names(conf: StoreConf, shards: int | None) -> list[str]:
    """The names of the Documents in the first store."""
    opened = closing((conf if shards is None else shard_conf(conf, 0, shards)).open())
    with opened as stores, stores.ledger.reading() as connection:
        return [name for (name,) in connection.execute("SELECT name FROM ledger ORDER BY name")]


def _open(
    stack: ExitStack,
    store_conf: Mapping[str, Any],
    name: str,
    shards: int | None,
    fields: Mapping[str, Any] | None = None,
) -> Sequence[Document]:
    """Open the stores of a Document, with the fields that they have."""
    if fields is None:
        conf = StoreConf.parse(store_conf)
        with closing((conf if shards is None else shard_conf(conf, 0, shards)).open()) as stores:
            groups = copied_groups(LedgerConnection(stores.ledger, name))
        fields = next((read_schema(one.fields) for one in groups if one.name == LAZY_ROOT_NAME and one.fields), {})
    own = {field: one for field, one in fields.items() if field not in BUILT_IN_FIELDS}
    given: dict[str, Any] = {"store_conf": store_conf, "name": name, "doc_fields": own}
    docs = stack.enter_context(Document(**given) if shards is None else _Stores(**given, shards=shards))
    return docs.shards or (docs,)


def _begin(conf: StoreConf, path: Path, plan: Mapping[str, Any], known: int | None) -> None:
    """Note what is being done; remove what a call has left that did something else."""
    note = Path(f"{path}.reshard")
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) == plan:
        return
    _remove_others(conf, path, known)
    write_note(str(note), plan)


def _remove_others(conf: StoreConf, path: Path, shards: int | None) -> None:
    """Remove the stores of other numbers of shards; for None those of all."""
    pattern = re.compile(rf"{re.escape(path.stem)}-(\d+)-of-(\d+){re.escape(path.suffix)}")
    matches = [found for one in path.parent.iterdir() if (found := pattern.fullmatch(one.name))]
    others = [shard_conf(conf, int(one[1]), int(one[2])) for one in matches if int(one[2]) != shards]
    if shards is not None and path.exists():
        _remove(conf, is_numbered=False)
    for other in others:
        _remove(other)
    Path(f"{path}.reshard").unlink(missing_ok=True)


def _remove(conf: StoreConf, *, is_numbered: bool = True) -> None:
    """Remove stores: collections on servers, then files; that of the ledger, which lists the collections, last.

    Without a number, a folder may be that of other Documents too: its collections are removed, and it stays.
    """
    locations = [one for one in (conf.segment.location, conf.vector.location) if one is not None]
    kept = [] if is_numbered else [Path(one.address).expanduser().resolve() for one in locations if not one.is_server]
    if kept or any(one.is_server for one in locations):
        with closing(conf.open()) as stores:
            ledger = LedgerConnection(stores.ledger, "")
            for (name,) in ledger.select("SELECT collection FROM node_group", ()):
                stores.segments.drop(name)
            for (name,) in ledger.select("SELECT collection FROM space WHERE collection <> ''", ()):
                stores.vectors.drop(name)
    for path in (one for one in reversed(conf.paths) if one not in kept):
        for suffix in _BESIDE:
            one = Path(f"{path}{suffix}")
            if one.is_dir():
                shutil.rmtree(one)
            else:
                one.unlink(missing_ok=True)
