"""A Document in several stores: documents are distributed by a hash of their id, and searched as one.

Each shard is a Document with a ledger, a writer and indexes of its own. `Retriever` asks the shards of a
`ShardedDocument` with common statistics, so that uids, scores and order are those of one store.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import inspect
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Segment
from lazyrag.document.changes import Dataset, PathLike, make_dataset
from lazyrag.document.document import Document
from lazyrag.document.groups import GroupGraph
from lazyrag.document.indexer import Indexer
from lazyrag.document.load_files import Readers
from lazyrag.document.reader import Reader
from lazyrag.document.report import IngestReport
from lazyrag.document.snapshot import NOTHING, LocalSnapshot, Needs, NodeKey, Snapshot, read
from lazyrag.document.tree import View
from lazyrag.errors import IngestionError, IngestionWarning, sentence, warn_user
from lazyrag.loaders.directory import Listing
from lazyrag.stores.config import StoreConf
from lazyrag.validation import known_arguments, validate_integer, validate_text

if TYPE_CHECKING:
    from typing import Self

R = TypeVar("R")
MAX_SHARDS = 1_000


def shard_of(document_id: str, shards: int) -> int:
    """The shard of a document, from 0: the first 8 bytes of its id's SHA-256, as a share of ``shards``.

    With twice as many shards, each shard is split in two.

    Example:
        >>> [shard_of("tea.txt", shards) for shards in (1, 2, 4, 8)]
        [0, 0, 1, 3]
    """
    first = hashlib.sha256(document_id.encode("utf-8", "surrogatepass")).digest()[:8]
    return int.from_bytes(first, "big") * shards >> 64


# Reading


class ShardedSnapshot(Snapshot):
    """One state of several shards, with the methods of a `LocalSnapshot` that reads of a Document call."""

    __slots__ = ("_shards",)
    document_index = -1

    def __init__(self, read: Any, parts: Sequence[LocalSnapshot]) -> None:
        super().__init__(read, parts)
        self._shards = dict(enumerate(parts))

    def _of(self, node: Segment) -> Any:
        return self._shards[shard_of(node.path, len(self._shards))]

    def walk(
        self, group: str, filters: FilterLike | None, wanted: Mapping[str, Collection[Any]] = EMPTY
    ) -> Iterator[DocNode]:
        """See `LocalSnapshot.walk`."""
        walks = (part.walk(group, filters, wanted) for part in self.parts)
        return heapq.merge(*walks, key=lambda node: node.path)  # a document's nodes are of one shard, and stay in order

    def find(self, uid: str) -> list[tuple[NodeKey, Segment]]:
        """See `LocalSnapshot.find`."""
        return [one for part in self.parts for one in part.find(uid)]

    def hit(self, segment: Segment, score: float | None, merged_from: tuple[str, ...] = ()) -> DocNode:
        """See `LocalSnapshot.hit`."""
        found: DocNode = self._of(segment).hit(segment, score, merged_from)
        return found

    def related_nodes(self, nodes: Sequence[DocNode], target: str) -> list[list[Segment]]:
        """See `LocalSnapshot.related_nodes`."""
        by_part = {id(part): [node for node in nodes if self._of(node.segment) is part] for part in self.parts}
        found = {id(part): iter(part.related_nodes(by_part[id(part)], target)) for part in self.parts}
        return [next(found[id(self._of(node.segment))]) for node in nodes]

    def windows(
        self, nodes: Sequence[DocNode], before: int, after: int, *, merge: bool
    ) -> list[tuple[int, list[DocNode]]]:
        """See `LocalSnapshot.windows`."""
        found = []
        for part in self.parts:
            ranks = [rank for rank, node in enumerate(nodes) if self._of(node.segment) is part]
            own = part.windows([nodes[rank] for rank in ranks], before, after, merge=merge)
            found += [(ranks[rank], window) for rank, window in own]
        return sorted(found, key=lambda one: one[0])


class ShardedReader(Reader):
    """The shards of a Document within a scope, read together.

    Args:
        indexer: What stands for the indexers of the shards.
        parts: Their readers.
    """

    def __init__(self, indexer: ShardedIndexer, parts: Sequence[Reader]) -> None:
        super().__init__(cast("Indexer", indexer), parts[0].scope)
        self.parts = parts

    @property
    def schema(self) -> Any:
        """See `Reader.schema`."""
        return self.parts[0].schema

    def report(self) -> IngestReport | None:
        """See `Reader.report`."""
        reports = [one for part in self.parts if (one := part.report()) is not None]
        return merge_reports(reports) if reports else None

    def narrowed(self, filters: FilterLike) -> ShardedReader:
        """See `Reader.narrowed`."""
        return ShardedReader(cast("Any", self.indexer), [part.narrowed(filters) for part in self.parts])

    def embedders(self, keys: Sequence[str] | None) -> list[Any]:
        """See `Reader.embedders`."""
        return self.parts[0].embedders(keys)

    def line(self, group: str) -> list[str]:
        """See `Reader.line`."""
        return self.parts[0].line(group)

    def build(self, needs: Needs) -> View:
        """Build what is needed in every shard; the state of the first one."""
        views = [part.build(needs) for part in self.parts]
        return views[0]

    def read(self, body: Callable[[LocalSnapshot], R], needs: Needs = NOTHING) -> R:
        """See `Reader.read`."""
        return read(
            dict.fromkeys(self.parts, needs),
            lambda snapshot: body(cast("LocalSnapshot", ShardedSnapshot(snapshot._read, snapshot.parts))),
        )

    def show(self, segment: Segment) -> DocNode:
        """See `Reader.show`."""
        return self.parts[shard_of(segment.path, len(self.parts))].show(segment)


class ShardReader(Reader):
    """The reader of one shard: that all of its few documents failed is no error, as long as others' succeed."""

    others: Sequence[Reader] = ()

    def narrowed(self, filters: FilterLike) -> Reader:
        """See `Reader.narrowed`."""
        made = super().narrowed(filters)
        cast("ShardReader", made).others = [Reader.narrowed(one, filters) for one in self.others]
        return made

    def build(self, needs: Needs) -> View:
        """See `Reader.build`."""
        try:
            return super().build(needs)
        except IngestionError as exc:
            if not any(_has_built(one, needs) for one in self.others if one.indexer is not self.indexer):
                raise
            warn_user(sentence(exc), IngestionWarning)
            return self._empty_view(needs)


def _has_built(reader: Reader, needs: Needs) -> bool:
    try:
        return bool(Reader.build(reader, needs).tree.documents)
    except IngestionError:
        return False


class ShardedIndexer:
    """What stands for the indexers of shards where a Document's own is used.

    Args:
        shards: The shards.
        where: The Document as messages name it.
        dataset: All of its files.
    """

    def __init__(self, shards: Sequence[Document], where: str, dataset: Dataset) -> None:
        self.shards = shards
        self.where = where
        self.dataset = dataset
        self.name = shards[0].name

    @property
    def embedders(self) -> Any:
        """Embed callables by embed key."""
        return self.shards[0]._indexer.embedders

    @property
    def ledger(self) -> Any:
        """The ledger of the first shard, which has the jobs."""
        return self.shards[0]._indexer.ledger

    @property
    def is_closed(self) -> bool:
        """Whether a shard is closed."""
        return any(shard._indexer.is_closed for shard in self.shards)


def merge_reports(reports: Iterable[IngestReport]) -> IngestReport:
    """The reports of shards as one."""
    listed = list(reports)
    merged: dict[str, Any] = {}
    for one in fields(IngestReport):
        values = [getattr(report, one.name) for report in listed]
        if one.name in ("reasons", "rebuilt"):
            merged[one.name] = {name: why for value in values for name, why in value.items()}
        elif one.name == "failed":
            merged[one.name] = tuple(
                sorted(itertools.chain(*values), key=lambda failure: (failure.path, failure.stage))
            )
        else:
            merged[one.name] = tuple(sorted({*itertools.chain(*values)}))
    return IngestReport(**merged)


# Stores


@dataclass(frozen=True, slots=True)
class ShardDataset(Dataset):
    """The files of a dataset that are one shard's.

    Args:
        number: Number of the shard, from 0.
        shards: How many there are.
        store: Matches the paths of all shards' store files; None in memory.
    """

    number: int = 0
    shards: int = 1
    store: re.Pattern[str] | None = None

    def with_selection(self, chosen: Any) -> Dataset:
        """See `Dataset.with_selection`."""
        everything = Dataset.with_selection(self, chosen)
        return replace(everything, list_files=functools.partial(self._list_own, everything.list_files))

    def _list_own(self, list_files: Callable[[], Listing]) -> Listing:
        listing, store = list_files(), self.store
        found = [one for one in listing.found if shard_of(one.identity, self.shards) == self.number]
        if store is not None:
            found = [one for one in found if store.match(os.fspath(one.raw_path)) is None]
        skipped = [one for one in listing.skipped if shard_of(one[0], self.shards) == self.number]
        return replace(listing, found=tuple(found), skipped=tuple(skipped))


def shard_conf(conf: StoreConf, number: int, shards: int) -> StoreConf:
    """The stores of one shard: files and folders on this machine are numbered, ``store.db`` is ``store-0-of-4.db``.

    Stores on a server are shared: the names of their collections have the token of the shard's ledger.
    """

    def numbered(path: Any) -> Any:
        return None if path is None else shard_path(path, number, shards)

    def of_store(choice: Any) -> Any:
        paths = ["uri"] if choice.uri is not None else []
        if choice.location is not None and not choice.location.is_server:
            paths = [name for name in ("uri", "dir") if name in choice.kwargs]
        return replace(choice, kwargs={**choice.kwargs, **{name: numbered(choice.kwargs[name]) for name in paths}})

    return replace(conf, segment=of_store(conf.segment), vector=of_store(conf.vector), ledger=numbered(conf.ledger))


def shard_path(path: str | os.PathLike[str], number: int, shards: int) -> str:
    """The file or folder of a shard.

    Example:
        >>> shard_path("data/store.db", 0, 4)
        'data/store-0-of-4.db'
    """
    stem, suffix = os.path.splitext(os.fspath(path))  # noqa: PTH122  texts stay texts
    return f"{stem}-{number}-of-{shards}{suffix}"


class Shard(Document):
    """One store of a `ShardedDocument`, with the group definitions and readers of all."""

    def __init__(self, owner: ShardedDocument, number: int, shards: int, **arguments: Any) -> None:
        self._graph, self._file_readers = owner._graph, owner._file_readers
        self._number, self._shards = number, shards
        super().__init__(**arguments)
        self._reader = ShardReader(self._indexer)
        self._indexer.where += f", shard {number} of {shards}"

    def _own_part(self, dataset: Dataset, conf: StoreConf) -> tuple[Dataset, StoreConf]:
        path, number, shards = conf.ledger_file, self._number, self._shards
        stem, suffix = ("", "") if path is None else map(re.escape, os.path.splitext(path))  # noqa: PTH122
        store = None if path is None else re.compile(rf"{stem}(-\d+-of-\d+)?{suffix}")
        metadata = dataset.metadata
        if isinstance(metadata, Mapping):
            metadata = {name: one for name, one in metadata.items() if shard_of(name, shards) == number}
        values = {one.name: getattr(dataset, one.name) for one in fields(Dataset)}
        own = ShardDataset(**{**values, "metadata": metadata}, number=number, shards=shards, store=store)
        return own, shard_conf(conf, number, shards)


# The Document


def _routed(name: str) -> Any:
    """A method that the shard of its first argument, a document, has."""
    method = getattr(Document, name)
    first = list(inspect.signature(method).parameters)[1]

    @functools.wraps(method)
    def call(self: ShardedDocument, *args: Any, **kwargs: Any) -> Any:
        document = args[0] if args else kwargs.get(first)
        return getattr(self.shard_of(validate_text(first, document)), name)(*args, **kwargs)

    return call


@known_arguments
class ShardedDocument(Document):
    """See `Document`, ``shards``."""

    shards: tuple[Document, ...]
    """The shards, by number; each is a Document of its own."""

    def __init__(
        self,
        dataset_path: PathLike | None = None,
        embed: Any = None,
        manager: Any = False,
        launcher: Any = None,
        store_conf: Mapping[str, Any] | None = None,
        doc_fields: Any = None,
        name: str | None = None,
        doc_files: Any = None,
        file_metadata: Any = None,
        *,
        shards: int,
        server: int | None = None,
        **options: Any,
    ) -> None:
        self._graph, self._file_readers = GroupGraph(self._graph), Readers(self._file_readers)
        count, host = validate_integer("shards", shards, 1, MAX_SHARDS), self._host(manager, server)
        follow_links = bool(options.get("follow_links", False))
        dataset = make_dataset(dataset_path, doc_files, file_metadata, follow_links=follow_links)
        conf = StoreConf.parse(store_conf, dataset.folder)
        self.name = conf.check_use(name, dataset.folder, embeds=bool(embed))
        options |= {"launcher": launcher, "store_conf": store_conf, "doc_fields": doc_fields, "name": self.name}
        options |= {"dataset_path": dataset_path, "embed": embed, "doc_files": doc_files}
        options["file_metadata"] = dataset.metadata if doc_files is None else file_metadata
        with ExitStack() as undo:
            opened = []
            for number in range(count):
                opened.append(Shard(self, number, count, **options))
                undo.callback(opened[-1].close)
            self._join(opened, dataset)
            undo.pop_all()
        host()

    def _join(self, shards: Sequence[Document], dataset: Dataset) -> None:
        """Read and write some shards as one Document."""
        self.shards = tuple(shards)
        where = f"Document {self.name!r}" + (f" ({dataset.where})" if dataset.where else "")
        self._indexer = cast("Any", ShardedIndexer(self.shards, where, dataset))
        readers = [shard.reader for shard in self.shards]
        for reader in readers:
            if isinstance(reader, ShardReader):
                reader.others = readers
        self._reader = ShardedReader(cast("Any", self._indexer), readers)

    def shard_of(self, document: str) -> Document:
        """The shard that has a document, or would have it."""
        return self.shards[shard_of(document, len(self.shards))]

    document, versions, diff, rollback = map(_routed, ("document", "versions", "diff", "rollback"))
    purge, deletion_certificate = map(_routed, ("purge", "deletion_certificate"))
    outline, read, marks, page_image = map(_routed, ("outline", "read", "marks", "page_image"))

    def restricted(self, filters: FilterLike) -> Self:
        """See `Document.restricted`."""
        view = super().restricted(filters)
        view.shards = tuple(shard.restricted(filters) for shard in self.shards)
        return view

    def close(self) -> None:
        """See `Document.close`."""
        if self._reader.scope is None:
            with ExitStack() as stack:
                for shard in self.shards:
                    stack.callback(shard.close)
                for one in (self._watcher, self._service):
                    if one is not None:
                        stack.callback(one.close)
