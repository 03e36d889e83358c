"""Read-only copies of a Document of a service: `Replica` follows its changes.

The service sends documents in the order in which they changed, each with its nodes and vectors. The replica writes them
as ingestion does, so that each becomes live in one transaction, and computes keyword indexes itself; it loads,
transforms and embeds nothing. Where it has got to is stored beside its store: after a crash it goes on from there.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote

from lazyrag.data.fields import schema_text
from lazyrag.data.segment import LAZY_ROOT_NAME, digest
from lazyrag.document.build_plan import GroupTarget, VectorsTarget
from lazyrag.document.document import Document
from lazyrag.document.export import child_counts, decode_document, encode_document
from lazyrag.document.ingest import IngestionEngine, MakeRoot, PendingVersion, Root, _Batch
from lazyrag.document.ledger import DOCUMENT_COLUMNS, BuildRow, DocumentRow, document_row
from lazyrag.document.remote import (
    Connection,
    decode_segment,
    decode_vector,
    encode_segment,
    encode_vector,
)
from lazyrag.document.shards import shard_mark
from lazyrag.document.snapshot import LocalSnapshot
from lazyrag.errors import ConfigError, StaleNodeError, StoreError
from lazyrag.models.embedding import length_of
from lazyrag.stores.protocol import VectorRow
from lazyrag.validation import require, validate_text
from lazyrag.values import dataclass

if TYPE_CHECKING:
    from lazyrag.document.indexer import Indexer
    from lazyrag.document.tree import LiveGroup

log = logging.getLogger("lazyrag.replica")

_PAGE = 200
"""Documents of one response; and of one transaction of the replica."""
_PAGE_NODES = 2_000
_POLL_S = 0.5
_MAX_PAUSE_S = 30.0


class Place(NamedTuple):
    """A place in the order of changes.

    Args:
        changed: Counter of changes.
        row: The document's row, among those of one change.
        token: Of the store, whose counter it is.
    """

    changed: int = 0
    row: int = 0
    token: str = ""


# The service's side


def changes_after(
    snapshot: LocalSnapshot, place: Sequence[Any], groups: Sequence[str], *, has_rows: bool = False
) -> dict[str, Any]:
    """The documents that changed after a place, in the order of their changes: the answer to a replica.

    Args:
        snapshot: A state of the whole Document.
        place: See `Place`.
        groups: The groups whose nodes and vectors are wanted, besides the root group.
        has_rows: Return digests of the rows of all documents by uid, and no documents.
    """
    ledger, tree = snapshot.indexer.ledger, snapshot.state.view.tree
    changed, row, token = place
    if token != ledger.token or changed > tree.changes:  # another store, or an older one from a backup
        changed = row = 0
    query = (
        f"SELECT changed, {DOCUMENT_COLUMNS} FROM document WHERE ledger = ? AND (changed, id) > (?, ?) "  # noqa: S608
        "AND changed <= ? ORDER BY changed, id LIMIT ?"
    )
    found = ledger.select(query, (ledger.id, changed, row, tree.changes, 0 if has_rows else _PAGE))
    live = {name: group for name, group in tree.groups.items() if name in (LAZY_ROOT_NAME, *groups)}
    documents: list[dict[str, Any]] = []
    gone: list[str] = []
    size = 0
    for at, *columns in found:
        changed, known = at, document_row(tuple(columns))
        row = known.id
        if known.uid not in tree.documents:
            gone.append(known.uid)
            continue
        documents.append(_encoded(snapshot, known, live))
        size += sum(len(nodes) for nodes in documents[-1]["nodes"].values())
        if size >= _PAGE_NODES:
            break
    is_last = len(documents) + len(gone) == len(found) < _PAGE
    rows = _row_digests(snapshot.indexer) if has_rows else {}
    if rows and ledger.select("SELECT 1 FROM document WHERE ledger = ? AND changed > ?", (ledger.id, tree.changes)):
        raise StaleNodeError("Documents have changed meanwhile.")  # the read begins again
    return {
        "place": [tree.changes if is_last else changed, 2**62 if is_last else row, ledger.token],
        "is_last": is_last,
        "fields": schema_text(snapshot.source.schema),
        "groups": {name: group.fingerprint for name, group in live.items()},
        "documents": documents,
        "gone": gone,
        "count": len(tree.documents),
        "opened": ledger.program.id,
        "rows": rows,
    }


def _row_digests(indexer: Indexer) -> dict[str, str]:
    """Digests of the rows of live documents, by uid: copies have equal ones."""
    rows = indexer.ledger.documents.all().values()
    return {row.uid: digest([json.dumps(encode_document(row), sort_keys=True)]) for row in rows if row.status == "live"}


def _encoded(snapshot: LocalSnapshot, row: DocumentRow, groups: Mapping[str, LiveGroup]) -> dict[str, Any]:
    nodes: dict[str, list[Any]] = {}
    vectors: dict[str, list[Any]] = {}
    builds: dict[str, list[str]] = {}
    inputs = {one.node_group: one for one in snapshot.indexer.ledger.builds.live([row.id]).get(row.id, {}).values()}
    for name, group in groups.items():
        build = group.builds.get(row.uid)
        if build is None:
            continue
        segments = snapshot.indexer.nodes.of_build(group.collection, build)
        nodes[name] = [encode_segment(one) for one in segments]
        entry = inputs.get(group.id)
        if entry is None or entry.number != build.number:
            raise StaleNodeError("The document has changed meanwhile.")  # the read begins again
        builds[name] = [entry.input, entry.output]
        for index in group.indexes.values():
            if index.kind == "vectors" and index.dimension:
                rows = snapshot.indexer.nodes.vectors.get(index.collection, [one.key for one in segments])
                found = {one.key: encode_vector(one.vector) for one in rows}
                vectors[f"{name}/{index.name}/{index.identity}"] = [found.get(one.key) for one in segments]
    return {"row": encode_document(row), "nodes": nodes, "vectors": vectors, "builds": builds}


# The replica's side


@dataclass(slots=True, eq=False)
class _Received(PendingVersion):
    """A document from the service.

    Args:
        data: See `_encoded`.
    """

    data: Mapping[str, Any] = field(default_factory=dict)


class _ReplicaEngine(IngestionEngine):
    """Writes what a service sends in place of what transforms and embed callables return."""

    def _transform(self, target: GroupTarget, batch: _Batch) -> None:
        versions = cast("Sequence[_Received]", batch.versions)
        for version, number in zip(versions, batch.numbers[target.id], strict=True):
            above, rows = version.current.get(target.parent), version.data["nodes"].get(target.name)
            if above is None or rows is None:
                version.current.pop(target.id, None)  # the step failed there
                continue
            known, (input_hash, output) = version.current.get(target.id), version.data["builds"][target.name]
            if known is not None and (known.parent, known.input, known.output) == (above.number, input_hash, output):
                continue
            self._fetch([version], target.parent, batch.plan)
            own = [decode_segment(row)._replace(build=number) for row in rows]
            counts = child_counts(own, [one.uid for one in version.segments[target.parent]])
            row = BuildRow(number, version.row.id, target.id, above.number, above.root, input_hash, json.dumps(counts))
            batch.add(version, row, own)

    def _embed(self, target: VectorsTarget, batch: _Batch) -> None:
        for version in cast("Sequence[_Received]", self._uncovered(target, batch)):
            name = batch.plan.names[target.group]
            sent = version.data["vectors"].get(f"{name}/{target.step.embed_key}/{target.identity}", ())
            pairs = [
                (segment, decode_vector(one))
                for segment, one in zip(version.segments[target.group], sent, strict=False)
                if one is not None
            ]
            if not pairs:
                continue
            if not target.dimension:
                target.dimension = length_of(pairs[0][1])
                self.nodes.create_vectors(target.collection, target.dimension, target.step.embed_key or "")
                self.ledger.groups.set_dimension(target.id, target.dimension)
            rows = [VectorRow(segment.key, vector, segment.fields) for segment, vector in pairs]
            self.nodes.vectors_to_write.upsert(target.collection, rows)
            version.covered.append((target.id, version.current[target.group].number))


class Replica:
    """Keeps a Document equal to one of a service: a copy on another machine that serves more queries.

    After this, build the groups and indexes that are to be copied, with `Document.activate_group`: the Document must
    define them as the service does, with the same fields and models. Nothing else may write to it.

    Args:
        docs: An empty Document without files, or one that followed the same service before.
        url: Of the service.
        name: Of the service's Document; None for ``"default"``.
        token: An access token that may read all documents.

    Raises:
        ConfigError: If the Document has files or documents of its own.
    """

    def __init__(self, docs: Document, url: str, name: str | None = None, token: str | None = None) -> None:
        require(isinstance(docs, Document) and not docs.shards, "docs", docs, "a Document with one store")
        self._indexer = indexer = docs._unrestricted("Replica")
        self._shard = shard_mark(docs)
        self._connection = Connection(url, token)
        self._path = f"sets/{quote('default' if name is None else validate_text('name', name), safe='')}/_changes"
        self._engine = _ReplicaEngine(
            **{one.name: getattr(indexer.engine, one.name) for one in dataclasses.fields(IngestionEngine)}
        )
        path = indexer.ledger.file.path
        self._file = None if path is None else Path(f"{path}.replica.json")
        self._place = Place()
        if self._file is not None and self._file.exists():
            self._place = Place(*json.loads(self._file.read_text(encoding="utf-8")))
        elif indexer.ledger.tree.documents or indexer.dataset.folder is not None:
            msg = f"{indexer.where} has documents or files of its own, which following {url} would delete."
            raise ConfigError(f"{msg} Use an empty Document without files.")
        self._store_place(self._place)
        self._equal_at: float | None = None
        self._compared: set[str] = set()  # openings of the service's store since when all documents were compared
        self._compare_at = 0.0
        indexer.is_synced = True  # its documents have no files here

    @property
    def lag_s(self) -> float | None:
        """How many seconds ago it was equal to the service's Document; None if it was not yet."""
        return None if self._equal_at is None else time.monotonic() - self._equal_at

    def pull(self) -> int:
        """Copy what has changed since the last call, and return the number of documents.

        It can be interrupted at any point: the next call goes on from there.

        Raises:
            StoreConnectionError: If the service does not answer.
            ConfigError: If a group, the fields or a model differ from the service's.
            StoreBusyError: If another program writes the store.
        """
        indexer, count, begun = self._indexer, 0, time.monotonic()
        while True:
            answer = self._ask()
            count += len(answer["documents"]) + len(answer["gone"])
            if answer["documents"] or answer["gone"]:
                with indexer.writing():
                    self._write(answer["documents"], answer["gone"])
            self._store_place(Place(*answer["place"]))
            if not answer["is_last"]:
                continue
            is_known = answer["opened"] in self._compared or begun < self._compare_at
            if (is_known and len(indexer.ledger.tree.documents) == answer["count"]) or not self._begins_anew():
                self._equal_at = begun
                return count

    def run(self, stop: Event, *, poll_s: float = _POLL_S) -> None:
        """Follow the service until an event is set. While the service does not answer, what was copied is served.

        Args:
            stop: The event.
            poll_s: How long to wait between two requests, in seconds.
        """
        pause_s = poll_s
        while not stop.wait(pause_s):
            try:
                self.pull()
                pause_s = poll_s
            except StoreError as exc:
                pause_s = min(max(1.0, 2 * pause_s), _MAX_PAUSE_S)
                log.warning("%s cannot follow: %s", self._indexer.where, exc)

    def _ask(self, *, has_rows: bool = False) -> dict[str, Any]:
        """Request changes, or digests of all documents, and check that definitions are the same."""
        names = [one for one in self._indexer.definitions.current(self._indexer.ledger.tree) if one != LAZY_ROOT_NAME]
        answer: dict[str, Any] = self._connection.post(
            self._path, {"place": list(self._place), "groups": names, "has_rows": has_rows}
        )
        where = f"The service at {self._connection.url}"
        if answer["fields"] != schema_text(self._indexer.nodes.schema):
            raise ConfigError(f"{where} has other doc_fields than {self._indexer.where}. Pass the same ones.")
        if tuple(answer["shard"] or ()) != (self._shard or ()):
            raise ConfigError(f"{where} has another shard, {answer['shard']}, than {self._indexer.where}.")
        own = self._indexer.ledger.tree.groups
        for name in names if answer["count"] else ():
            if name not in answer["groups"]:
                raise StoreError(f"{where} has not built the group {name!r}. Build it there first.")
            if answer["groups"][name] != own[name].fingerprint:
                raise ConfigError(f"{where} defines the group {name!r} differently. Define it alike.")
        return answer

    def _write(self, documents: Sequence[Mapping[str, Any]], gone: Collection[str]) -> None:
        """Write documents and delete others; the caller holds the lease."""
        indexer = self._indexer
        indexer.ensure_root()
        plan = indexer.planner.plan_live()
        versions = [_Received(row := decode_document(one["row"]), _root_of(one, row), data=one) for one in documents]
        self._engine.ingest(versions, plan, "follow", len(versions))
        live = indexer.ledger.tree.documents
        if ids := [live[uid].id for uid in gone if uid in live]:
            indexer.ledger.documents.tombstone(ids, "deleted")
        indexer.purge()

    def _begins_anew(self) -> bool:
        """Compare all documents with the service's, which may have been restored from a backup when it was started:
        delete what it has no more, and begin anew if it has others.
        """
        begun = time.monotonic()
        answer = self._ask(has_rows=True)
        own = _row_digests(self._indexer)
        with self._indexer.writing():
            self._write((), own.keys() - answer["rows"].keys())
        if tuple(answer["place"]) != self._place:  # something has changed meanwhile: compared later
            self._compare_at = 20 * (time.monotonic() - begun) + time.monotonic()  # a busy service has other work
            return False
        self._compared.add(answer["opened"])
        differs = not own.items() >= answer["rows"].items()
        if differs:
            self._store_place(Place())
        return differs

    def _store_place(self, place: Place) -> None:
        self._place = place
        if self._file is not None:
            new = self._file.with_name(self._file.name + ".new")
            new.write_text(json.dumps(place), encoding="utf-8")
            new.replace(self._file)


def _root_of(data: Mapping[str, Any], row: DocumentRow) -> MakeRoot:
    [root] = data["nodes"][LAZY_ROOT_NAME]
    return lambda number: Root(decode_segment(root)._replace(build=number), row)
