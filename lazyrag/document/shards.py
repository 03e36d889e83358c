"""A Document in several stores: documents are distributed by a hash of their id, and searched as one.

Each shard is a Document with a ledger, a writer and indexes of its own. `Retriever` asks the shards of a
`ShardedDocument` with common statistics, so that uids, scores and order are those of one store.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib
import inspect
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import lazyrag.document.sync as syncing
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Segment
from lazyrag.document.catalogue import DocumentInfo, TextMatch
from lazyrag.document.changes import Dataset, PathLike, find_named_files, is_suspicious, make_dataset
from lazyrag.document.document import Document
from lazyrag.document.format_report import merge_formats
from lazyrag.document.groups import GroupGraph
from lazyrag.document.indexer import Indexer
from lazyrag.document.ledger import DocumentRow, Ledger, Version
from lazyrag.document.load_files import Readers
from lazyrag.document.reader import Reader
from lazyrag.document.report import IngestReport
from lazyrag.document.snapshot import NOTHING, LocalSnapshot, Needs, NodeKey, Snapshot, read
from lazyrag.document.sync import MAX_DELETED, OnError, SyncPlan
from lazyrag.document.tree import View
from lazyrag.document.verify import DocumentStatus, GroupStatus
from lazyrag.errors import ConfigError, IngestionError, IngestionWarning, StoreError, count, sentence, warn_user
from lazyrag.loaders.directory import Listing, hash_file
from lazyrag.storage.arrays import sync_folder
from lazyrag.storage.blocks import contextmanager
from lazyrag.storage.database import is_server
from lazyrag.stores.config import StoreConf
from lazyrag.validation import require, validate_integer, validate_text

if TYPE_CHECKING:
    from typing import Self

R = TypeVar("R")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])
MAX_SHARDS = 1_000


def shard_of(document_id: str, shards: int) -> int:
    """The shard of a document, from 0: the first 8 bytes of its id's SHA-256, as a share of ``shards``.

    With twice as many shards, each shard is split in two.

    Example:
        >>> [shard_of("tea.txt", shards) for shards in (1, 2, 4, 8)]
        [0, 0, 1, 2]
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

    def __getattr__(self, name: str) -> NoReturn:
        raise ConfigError("This reads one store, and the Document is in several. Over HTTP, serve each of its shards.")

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

    def prefetch_parents(self, segments: Sequence[Segment]) -> None:
        """See `LocalSnapshot.prefetch_parents`."""
        owns = [[one for one in segments if self._of(one) is part] for part in self.parts]
        self._each(lambda part, own: part.prefetch_parents(own), owns)

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
        indexer: The `ShardedIndexer` of the shards.
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
    warned: set[str] = frozenset()  # type: ignore[assignment]

    def narrowed(self, filters: FilterLike) -> Reader:
        """See `Reader.narrowed`."""
        made = super().narrowed(filters)
        cast("ShardReader", made).warned = self.warned
        cast("ShardReader", made).others = [Reader.narrowed(one, filters) for one in self.others]
        return made

    def build(self, needs: Needs) -> View:
        """See `Reader.build`."""
        try:
            return super().build(needs)
        except IngestionError as exc:
            if not any(_has_built(one, needs) for one in self.others if one.indexer is not self.indexer):
                raise
            if str(exc) not in self.warned:
                self.warned.add(str(exc))
                warn_user(sentence(exc), IngestionWarning)
            return self._empty_view(needs)


def _has_built(reader: Reader, needs: Needs) -> bool:
    try:
        return bool(Reader.build(reader, needs).tree.documents)
    except IngestionError:
        return False


class ShardedIndexer:
    """The indexers of several shards, as far as a Document uses its own one.

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

    @cached_property
    def ledger(self) -> ShardedLedger:
        """Of all shards."""
        return ShardedLedger([shard._indexer.ledger for shard in self.shards])

    @property
    def is_closed(self) -> bool:
        """Whether a shard is closed."""
        return any(shard._indexer.is_closed for shard in self.shards)

    def __getattr__(self, name: str) -> NoReturn:
        msg = f"{self.where} is in several stores, and this works in one of them. Use its shards: docs.shards."
        raise ConfigError(msg)


class ShardedLedger:
    """The documents in the ledgers of shards, and the ledger of the first one, which has the jobs."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        self._ledgers = ledgers
        self.documents = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledgers[0], name)

    def _rows(self, found: Sequence[Mapping[str, DocumentRow]]) -> dict[str, DocumentRow]:
        """Rows with numbers that differ in all shards."""
        count = len(self._ledgers)
        numbered = (one for number, rows in enumerate(found) for one in ((number, row) for row in rows.values()))
        return {row.identity: replace(row, id=row.id * count + number) for number, row in numbered}

    def named(self, identities: Iterable[str]) -> dict[str, DocumentRow]:
        """See `DocumentTable.named`."""
        names = list(identities)
        return self._rows([one.documents.named(names) for one in self._ledgers])

    def all(self) -> dict[str, DocumentRow]:
        """See `DocumentTable.all`."""
        return self._rows([one.documents.all() for one in self._ledgers])

    def versions(self, document: int) -> list[Version]:
        """See `DocumentTable.versions`."""
        number, shard = divmod(document, len(self._ledgers))
        return self._ledgers[shard].documents.versions(number)

    def created(self, numbers: Collection[int]) -> dict[int, float]:
        """See `DocumentTable.created`."""
        count = len(self._ledgers)
        pairs = ((one, *divmod(one, count)) for one in numbers)
        found = ((one, self._ledgers[shard].documents.created([number])) for one, number, shard in pairs)
        return {one: next(iter(times.values())) for one, times in found if times}

    def content_hashes(self) -> set[str]:
        """See `DocumentTable.content_hashes`."""
        return set().union(*(one.documents.content_hashes() for one in self._ledgers))

    def with_content(self, content_hash: str) -> list[str]:
        """See `DocumentTable.with_content`."""
        return [name for one in self._ledgers for name in one.documents.with_content(content_hash)]

    def failures(self) -> list[tuple[str, str, str, str]]:
        """See `DocumentTable.failures`."""
        return sorted(failure for one in self._ledgers for failure in one.documents.failures())


def merge_reports(reports: Iterable[IngestReport]) -> IngestReport:
    """The reports of shards as one."""
    listed = list(reports)
    merged: dict[str, Any] = {}
    for one in fields(IngestReport):
        values = [getattr(report, one.name) for report in listed]
        if one.name in ("reasons", "rebuilt", "notes"):
            merged[one.name] = {name: why for value in values for name, why in value.items()}
        elif one.name == "failed":
            merged[one.name] = tuple(
                sorted(itertools.chain(*values), key=lambda failure: (failure.path, failure.stage))
            )
        else:
            merged[one.name] = tuple(sorted({*itertools.chain(*values)}))
    return IngestReport(**merged)


def _part(values: Mapping[str, V], names: Iterable[str]) -> dict[str, V]:
    return {name: values[name] for name in names if name in values}


def _summed(items: Iterable[R], name: str, numbers: Sequence[str]) -> list[R]:
    """Values with one name as one of them, whose numbers are the sums."""
    found: dict[str, Any] = {}
    for one in items:
        known = found.get(getattr(one, name))
        sums = {number: getattr(one, number) + getattr(known, number, 0) for number in numbers}
        found[getattr(one, name)] = replace(cast("Any", one), **sums)
    return list(found.values())


def merge_plans(plans: Sequence[SyncPlan]) -> SyncPlan:
    """The plans of shards as one."""
    steps = _summed((one for plan in plans for one in plan.steps), "step", ("documents", "nodes", "tokens", "calls"))
    diffs = [one for plan in plans for one in plan.diffs]
    embed: dict[str, Counter[str]] = {}
    for one in diffs:
        embed.setdefault(one.group, Counter()).update(one.embed)
    summed = [replace(one, embed=embed[one.group]) for one in _summed(diffs, "group", ("stay", "come", "go"))]
    unseen = dict.fromkeys(one for plan in plans for one in plan.unseen)
    report = merge_reports(plan.files for plan in plans)
    formats = merge_formats((one for plan in plans for one in plan.formats), report.skipped)
    return SyncPlan(report, tuple(steps), tuple(unseen), tuple(summed), formats)


def merge_statuses(parts: Sequence[DocumentStatus]) -> DocumentStatus:
    """The states of shards as one."""
    by_name: dict[str, list[GroupStatus]] = {}
    for group in itertools.chain.from_iterable(part.groups for part in parts):
        by_name.setdefault(group.name, []).append(group)
    groups = [
        replace(
            one,
            is_current=all(part.is_current for part in by_name[one.name]),
            is_complete=all(part.is_complete for part in by_name[one.name]),
            indexes=tuple(sorted(set.intersection(*(set(part.indexes) for part in by_name[one.name])))),
            reason=next((part.reason for part in by_name[one.name] if part.reason), ""),
        )
        for one in _summed((one for own in by_name.values() for one in own), "name", ("documents", "nodes"))
    ]
    [whole] = _summed(parts, "name", ("documents", "waiting"))
    writer = next((part.writer for part in parts if part.writer), "")
    failed = itertools.chain.from_iterable(part.failed for part in parts)
    ordered = sorted(groups, key=lambda one: one.name)
    return replace(whole, groups=tuple(ordered), failed=tuple(sorted(failed)), writer=writer)


def merge_dumps(dumps: Iterable[Iterator[str]]) -> Iterator[str]:
    """The dumps of shards as the one that a single store has."""
    merged = heapq.merge(*map(_keyed_lines, dumps), key=lambda pair: pair[0])
    return (line for line, _ in itertools.groupby(line for _, line in merged))


def _keyed_lines(lines: Iterator[str]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Lines of a dump, each with its place in the order of all lines."""
    above: tuple[Any, ...] = ()
    for number, line in enumerate(lines):
        value = json.loads(line)
        kind = value["is"]
        if kind == "group":
            above = 1, value["name"]
        elif kind == "space":
            above = *above[:2], 2, (value["kind"], value["name"], value["identity"])
        own = {"group": (0,), "node": (1, value.get("path"), number), "space": ("",)}.get(kind, (value.get("uid"),))
        yield ((0, value["identity"]) if kind == "document" else (*above, *own)), line


# Stores

_LISTINGS: ContextVar[dict[Any, Listing] | None] = ContextVar("listings", default=None)
"""During a sync of all shards, the listing of the folder, which is made once: by what decides for the Document."""


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
        return replace(everything, list_files=partial(self._list_own, everything.list_files))

    def _list_own(self, list_files: Callable[[], Listing]) -> Listing:
        listings, store = _LISTINGS.get(), self.store
        listing = list_files() if listings is None or self.withholds not in listings else listings[self.withholds]
        if listings is not None:
            listing = listings.setdefault(self.withholds, listing)  # the first one is unfiltered
        files = [one for one in listing.found if store is None or store.match(os.fspath(one.raw_path)) is None]
        found = tuple(one for one in files if shard_of(one.identity, self.shards) == self.number)
        first = shard_of(files[0].identity, self.shards) if files else 0  # reports them: it has a file, if any has
        return replace(listing, found=found, skipped=listing.skipped if self.number == first else ())


def shard_conf(conf: StoreConf, number: int, shards: int) -> StoreConf:
    """The stores of one shard: files and folders on this machine are numbered, ``store.db`` is ``store-0-of-4.db``.

    Stores on a server are shared: the names of their collections have the token of the shard's ledger.
    """

    def numbered(path: Any) -> Any:
        require(not is_server(path), "shards", shards, "None with a store in PostgreSQL", "Only files are numbered.")
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


def read_shards(path: Path) -> int | None:
    """The number of shards of a store file; None for one that has none, or does not exist.

    Raises:
        StoreError: If the file with the number is damaged.
    """
    try:
        return int(json.loads(Path(f"{path}.shards").read_text(encoding="utf-8"))["shards"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as exc:
        raise StoreError(f"{path}.shards cannot be read ({exc}). It has the number of stores beside it.") from exc


def write_note(path: str, value: Mapping[str, Any]) -> None:
    """Write a small JSON file in one step."""
    draft = Path(f"{path}.new")
    draft.parent.mkdir(parents=True, exist_ok=True)
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(draft.parent)


class Shard(Document):
    """One store of a `ShardedDocument`, with the group definitions and readers of all."""

    def __init__(self, owner: ShardedDocument, number: int, shards: int, **arguments: Any) -> None:
        self._graph, self._file_readers = owner._graph, owner._file_readers
        self._owner, self._number, self._shards = owner, number, shards
        super().__init__(**arguments)
        reader = self._reader = ShardReader(self._indexer)
        reader.warned = set()
        self._indexer.where += f", shard {number} of {shards}"

    def _own_part(self, dataset: Dataset, conf: StoreConf) -> tuple[Dataset, StoreConf]:
        path, number, shards = conf.ledger_file, self._number, self._shards
        stem, suffix = ("", "") if path is None else map(re.escape, os.path.splitext(path))  # noqa: PTH122
        store = None if path is None else re.compile(rf"{stem}(-\d+-of-\d+)?{suffix}([-.]|$)")
        metadata = dataset.metadata
        if isinstance(metadata, Mapping):
            metadata = {name: one for name, one in metadata.items() if shard_of(name, shards) == number}
        values = {one.name: getattr(dataset, one.name) for one in fields(Dataset)}
        values |= {"metadata": metadata, "withholds": self._owner._withholds}
        own = ShardDataset(**values, number=number, shards=shards, store=store)
        return own, shard_conf(conf, number, shards)


Shard.__name__ = "Document"  # as errors name it


def shard_mark(docs: Document) -> tuple[int, int] | None:
    """The number of a shard and how many there are; None for a Document that is no shard."""
    return (docs._number, docs._shards) if isinstance(docs, Shard) else None


# The Document


def _routed(name: str) -> Any:
    """A method that the shard of its first argument, a document, has."""
    method = getattr(Document, name)
    first = list(inspect.signature(method).parameters)[1]

    @wraps(method)
    def call(self: ShardedDocument, *args: Any, **kwargs: Any) -> Any:
        document = args[0] if args else kwargs.get(first)
        return getattr(self.shard_of(validate_text(first, document)), name)(*args, **kwargs)

    return call


def _gathered(name: str, merge: Callable[[list[Any]], Any]) -> Any:
    """A method that every shard has, one after the other."""

    @wraps(getattr(Document, name))
    def call(self: ShardedDocument, *args: Any, **kwargs: Any) -> Any:
        self._unrestricted(name)
        return merge([getattr(shard, name)(*args, **kwargs) for shard in self.shards])

    return call


def _joined(parts: list[tuple[R, ...]]) -> tuple[R, ...]:
    return tuple(itertools.chain.from_iterable(parts))


def _signed(method: F) -> F:
    """Decorator: a method with the signature of a Document's; the shards check keywords."""
    cast("Any", method).__wrapped__ = getattr(Document, method.__name__)
    return method


class ShardedDocument(Document):
    """Several stores as one Document; made by ``Document(..., shards=K)``, whose methods it has."""

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
        number, host = validate_integer("shards", shards, 1, MAX_SHARDS), self._host(manager, server)
        follow_links = bool(options.get("follow_links", False))
        dataset = make_dataset(dataset_path, doc_files, file_metadata, follow_links=follow_links)
        conf = StoreConf.parse(store_conf, dataset.folder)
        self.name = conf.check_use(name, dataset.folder, embeds=bool(embed))
        self._claim(conf.ledger_file, number, is_new=not options.get("read_only"))
        if launcher is not None:
            launcher = importlib.import_module("lazyrag.launchers.work").make_engine(launcher)
        options |= {"launcher": launcher, "store_conf": store_conf, "doc_fields": doc_fields, "name": self.name}
        options |= {"dataset_path": dataset_path, "embed": embed, "doc_files": doc_files}
        options["file_metadata"] = file_metadata
        with ExitStack() as undo:
            opened = []
            for one in range(number):
                opened.append(Shard(self, one, number, **options))
                undo.callback(opened[-1].close)
            self._join(opened, dataset)
            undo.pop_all()
        host()

    def _claim(self, path: Path | None, shards: int, *, is_new: bool) -> None:
        """Check that the stores at a path are so many, or may be made.

        Raises:
            ConfigError: If they are not.
        """
        if path is None:
            return
        known = read_shards(path)
        hint = f"Run: lazyrag reshard --shards {shards}, or lazyrag.document.reshard(store_conf, {shards})."
        require(known in (None, shards), "shards", shards, f"{known}, the number of the stores of {path}", hint)
        if known is None and is_new:
            require(not path.exists(), "shards", shards, f"left out: {path} is one store", hint)
            write_note(f"{path}.shards", {"shards": shards})

    def _join(self, shards: Sequence[Document], dataset: Dataset) -> None:
        """Read and write some shards as one Document."""
        self.shards = tuple(shards)
        self._withheld: dict[float, bool] = {}  # by max_deleted
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

    def _split(self, documents: Iterable[str]) -> list[tuple[Document, list[str]]]:
        """Documents by their shard, without shards that have none of them."""
        own: list[list[str]] = [[] for _ in self.shards]
        for name in documents:
            own[shard_of(name, len(self.shards))].append(name)
        return [(shard, names) for shard, names in zip(self.shards, own, strict=True) if names]

    def _whole(self, method: str) -> Sequence[Document]:
        """The shards, unless this is a view, which cannot see all that the method concerns."""
        self._unrestricted(method)
        return self.shards

    def _ingest(self, shards: Iterable[tuple[Document, Any]], call: Callable[[Document, Any], R]) -> list[R]:
        """Call a function for some shards, one after the other. That every file of one failed is no error, if there
        are documents in others: those that can be ingested are.
        """
        done, failed = [], []
        for shard, argument in shards:
            try:
                done.append(call(shard, argument))
            except IngestionError as exc:
                failed.append(exc)
        if failed and not any(shard._indexer.ledger.tree.documents for shard in self.shards):
            raise failed[0]
        for one in failed:
            warn_user(sentence(one), IngestionWarning)
        return done

    # Methods that one shard has: that of the document

    document, versions, diff, rollback = map(_routed, ("document", "versions", "diff", "rollback"))
    purge, deletion_certificate = map(_routed, ("purge", "deletion_certificate"))
    outline, read, marks, page_image = map(_routed, ("outline", "read", "marks", "page_image"))

    # Ingestion

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """List the files once for all shards, and decide once whether missing ones are kept."""
        self._withheld.clear()
        before = _LISTINGS.get()
        try:
            _LISTINGS.set({})
            yield
        finally:
            _LISTINGS.set(before)

    @_signed
    def sync(
        self,
        *,
        on_error: OnError = "collect",
        max_deleted: float = MAX_DELETED,
        max_calls: int | None = None,
        **options: Any,
    ) -> IngestReport:
        """See `Document.sync`; one shard after the other."""
        shards = self._whole("sync")
        if max_calls is not None:
            syncing.refuse_calls(self.plan(max_deleted=max_deleted).calls, max_calls)
        options["max_deleted"] = max_deleted
        with self._comparing():
            if on_error == "raise":
                return merge_reports([one.sync(on_error=on_error, **options) for one in shards])
            reports = self._ingest(((one, options) for one in shards), lambda one, given: one.sync(**given))
        return merge_reports(reports) if options.get("dry_run") else self.last_report

    def plan(self, *, max_deleted: float = MAX_DELETED, diff: bool = False) -> SyncPlan:
        """See `Document.plan`."""
        with self._comparing():
            return merge_plans([one.plan(max_deleted=max_deleted, diff=diff) for one in self._whole("plan")])

    def _withholds(self, max_deleted: float) -> bool:
        """Whether missing files are kept: the share of all shards' files counts. One answer for all of a sync."""
        if max_deleted not in self._withheld:
            known, lost, new = 0, [], []
            for shard in self.shards:
                indexer = shard._indexer
                listing = indexer.dataset.list_files()
                found = {file.identity: file for file in listing.found}
                rows = indexer.ledger.documents.all().values()
                own = [row for row in rows if row.status == "live" and row.origin == "dataset"]
                known += len(own)
                lost += [one for one in own if one.identity not in found and not listing.leaves_out(one.identity)]
                new += [found[name] for name in found.keys() - {row.identity for row in own}]
            sizes = {row.signature.size for row in lost if row.signature is not None}
            hashes = {hash_file(file.path) for file in new if file.signature and file.signature.size in sizes}
            gone = sum(
                row.content_hash not in hashes for row in lost
            )  # the others were moved, perhaps to another shard
            self._withheld[max_deleted] = is_suspicious(gone, known, max_deleted)
        return self._withheld[max_deleted]

    @_signed
    def add_files(
        self, files: Any, metadata: Mapping[str, Mapping[str, Any]] | None = None, **during: Any
    ) -> IngestReport:
        """See `Document.add_files`."""
        self._whole("add_files")
        inside = self._indexer.dataset.relative_path
        found = {inside(one.path) or one.identity: one.raw_path for one in find_named_files(files, "files")}
        given = syncing.check_metadata_of(metadata, list(found))

        def add(shard: Document, names: list[str]) -> IngestReport:
            return shard.add_files({name: found[name] for name in names}, _part(given, names), **during)

        return merge_reports(self._ingest(self._split(found), add))

    @_signed
    def add_texts(
        self, texts: Mapping[str, str], metadata: Mapping[str, Mapping[str, Any]] | None = None, **during: Any
    ) -> IngestReport:
        """See `Document.add_texts`."""
        self._whole("add_texts")
        given = syncing.check_texts(texts, metadata)
        parts = self._split(texts)
        for shard, names in parts:
            syncing.text_rows(shard._indexer, names)

        def add(shard: Document, names: list[str]) -> IngestReport:
            return shard.add_texts(_part(texts, names), _part(given, names), **during)

        return merge_reports(self._ingest(parts, add))

    @_signed
    def delete_files(self, documents: Iterable[str], **during: Any) -> IngestReport:
        """See `Document.delete_files`."""
        self._whole("delete_files")
        parts = self._split(syncing.check_names(documents))
        for shard, names in parts:
            syncing.deletable(shard._indexer, names)
        return merge_reports([shard.delete_files(names, **during) for shard, names in parts])

    @_signed
    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]]) -> IngestReport:
        """See `Document.update_metadata`."""
        self._whole("update_metadata")
        require(isinstance(changes, Mapping), "changes", changes, "a mapping of files or ids to metadata")
        syncing.check_metadata_of(changes, list(changes))
        parts = self._split(changes)
        for shard, names in parts:
            syncing.live_rows(shard._indexer, names)
        reports = self._ingest(parts, lambda shard, names: shard.update_metadata(_part(changes, names)))
        return merge_reports(reports)

    # Maintenance

    status = _gathered("status", merge_statuses)
    verify, repair = _gathered("verify", _joined), _gathered("repair", _joined)
    compact, dump = _gathered("compact", lambda _: None), _gathered("dump", merge_dumps)

    def retry_failed(self) -> IngestReport:
        """See `Document.retry_failed`."""
        return merge_reports([shard.retry_failed() for shard in self.shards])

    @_signed
    def documents(
        self, after: str | None = None, limit: int = 100, status: str | None = None, where: FilterLike | None = None
    ) -> list[DocumentInfo]:
        """See `Document.documents`."""
        pages = [shard.documents(after, limit, status, where) for shard in self.shards]
        return list(itertools.islice(heapq.merge(*pages, key=lambda one: one.id), limit))

    @_signed
    def export(self, folder: PathLike) -> Path:
        """See `Document.export`."""
        above = importlib.import_module("lazyrag.document.resharding")  # it is built on sharded Documents
        return cast("Path", above.export_shards([shard._indexer for shard in self._whole("export")], folder))

    @_signed
    def import_from(self, folder: PathLike) -> int:
        """See `Document.import_from`; all or nothing in each shard."""
        above = importlib.import_module("lazyrag.document.resharding")
        return int(above.import_shards([shard._indexer for shard in self._whole("import_from")], folder))

    # Search and life

    @_signed
    def grep(self, text: str, where: FilterLike | None = None, **options: Any) -> list[TextMatch]:
        """See `Document.grep`."""
        found = [shard.grep(text, where, **options) for shard in self.shards]
        merged = heapq.merge(*found, key=lambda one: one.path)
        return list(itertools.islice(merged, options.get("limit", 100)))

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

    def __repr__(self) -> str:
        where = f"{self._indexer.where}, {count(len(self.shards), 'shard')}"
        if self._reader.scope is not None:
            return f"<{where}, restricted>"
        documents = sum(len(shard._indexer.ledger.tree.documents) for shard in self.shards)
        return f"<{where}: {count(documents, 'document')}>"
