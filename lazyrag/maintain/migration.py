"""Migrate Documents to other stores: rows are copied as they are, so that nothing is loaded or
embedded again.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from lazyrag.data.fields import read_schema
from lazyrag.data.segment import Segment, key_build
from lazyrag.errors import ConfigError, StoreError, UnsupportedError, known_names
from lazyrag.ingest.dataset import PathLike, copy_selection
from lazyrag.ingest.pending import output_digest
from lazyrag.ingest.report import pages
from lazyrag.ledger.copies import (
    CopiedBuild,
    CopiedGroup,
    begin_copies,
    copied_builds,
    copied_groups,
    copy_array_files,
    copy_ledgers,
)
from lazyrag.ledger.lease import WAIT_S, LedgerConnection
from lazyrag.ledger.tree import LiveIndex
from lazyrag.models.embedding_cache import EmbeddingCache
from lazyrag.progress.calls import OnProgress, ProgressMeter, during_call
from lazyrag.read.nodes import metric_of
from lazyrag.storage.arrays import flushed
from lazyrag.storage.database import batches_reaching
from lazyrag.stores.config import OpenStores, StoreConf
from lazyrag.stores.protocol import VectorRow, VectorSchema, collection_name, local_path
from lazyrag.types import SPARSE
from lazyrag.validation import is_list_of, known_keywords, require

R = TypeVar("R", Segment, VectorRow)

_BATCH_ROWS = 200  # may be whole documents' texts, and are in memory twice


@dataclass(frozen=True, slots=True)
class Migration:
    """Result of `migrate`.

    Args:
        names: Names of the Documents, sorted.
        segments: Number of rows of segments that were copied, and compared with the target.
        vectors: Number of vectors.
        present: Number of both that an earlier, interrupted call had copied.
    """

    names: tuple[str, ...]
    segments: int
    vectors: int
    present: int

    def __str__(self) -> str:
        copied = f"{', '.join(self.names)}: {self.segments} segments, {self.vectors} vectors"
        return copied + (f", {self.present} of them from an earlier call" if self.present else "")


@known_keywords
def migrate(
    source_conf: Mapping[str, Any] | PathLike,
    target_conf: Mapping[str, Any] | PathLike,
    *,
    names: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Migration:
    """Copy Documents to other stores, where they give the same answers.

    Copies segments, vectors, ledger, lexical indexes and the embedding cache as they are. Rows are
    compared with the ledger when they are read, and read back and compared after they are written.
    The source does not change; it cannot be written meanwhile, but it can be queried. The Documents
    appear in the target all at once, at the end; until then no other program can write there.
    Repeat an interrupted call to continue it: rows that are there already are compared, and not
    written again. Repeating a complete one changes nothing, as long as neither side has changed.

    Afterwards open the Document with ``store_conf=target_conf`` and its other arguments as before;
    on a server, a Document without a name is called ``name="default"``.

    Args:
        source_conf: The complete ``store_conf`` of the Documents.
        target_conf: Another one, whose ledger has no documents yet. Its stores may be shared
            servers.
        names: Names of the Documents; None for all in the source's ledger. A Document without a
            name is ``"default"``.
        on_progress: Called with a `Progress` every few hundred rows; a terminal also shows a
            progress bar.
        cancel: An event that stops the call between two batches of rows once it is set; the next
            call continues it.

    Raises:
        ConfigError: If a configuration is invalid, in memory, or equal to the other one; if the
            source has no such Document, or the target cannot store it.
        UnsupportedError: If there are sparse vectors and the target's vector store does not support
            them.
        StoreBusyError: If another program writes the source or the target.
        StoreError: If a store fails, the source lacks rows, the target contains other documents or
            another copy, or returns other rows than were written.
        CanceledError: If ``cancel`` is set.

    Example:
        >>> import tempfile
        >>> from lazyrag import Document, migrate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     old = {"segment_store": {"type": "map", "kwargs": {"uri": f"{folder}/old.db"}}}
        ...     new = {"segment_store": {"type": "map", "kwargs": {"uri": f"{folder}/new.db"}}}
        ...     with Document(store_conf=old) as docs:
        ...         _ = docs.add_texts({"tea.txt": "Green tea keeps for a year."})
        ...     print(migrate(old, new))
        ...     with Document(store_conf=new) as docs:
        ...         [node.text for node in docs.get_nodes()]
        default: 1 segments, 0 vectors
        ['Green tea keeps for a year.']
    """
    source = _parse_conf("source_conf", source_conf)
    target = _parse_conf("target_conf", target_conf)
    if source.ledger_file == target.ledger_file:
        msg = f"source_conf and target_conf have the same ledger, {target.ledger_file}."
        raise ConfigError(f"{msg} Configure another one for the target.")
    for path in source.paths:
        if not path.exists():
            msg = f"source_conf refers to {path}, which does not exist."
            raise ConfigError(f"{msg} Pass the complete store_conf of a Document.")
    is_names = names is None or (is_list_of(names, str) and bool(names))
    require(is_names, "names", names, "a list of names, or None for all")
    with ExitStack() as stack:
        stack.enter_context(during_call(on_progress, cancel))
        opened = stack.enter_context(closing(source.open()))
        ledgers = [LedgerConnection(opened.ledger, name) for name in _source_names(opened, names)]
        for here in ledgers:
            stack.enter_context(here.lease.held(WAIT_S))
        for here in ledgers:
            _refuse_unfit_target(here, target)
        into = stack.enter_context(closing(target.open()))
        copies = [_DocumentCopy(opened, into, here) for here in ledgers]
        for copy in copies:
            stack.enter_context(copy.there.lease.held(WAIT_S))
        _run_copies(copies, into)
        for here in ledgers:
            copy_selection(opened.ledger, into.ledger, here.name)
        _copy_cache(opened, into)  # last: it only saves calls
    return Migration(
        tuple(here.name for here in ledgers),
        sum(copy.segments for copy in copies),
        sum(copy.vectors for copy in copies),
        sum(copy.present for copy in copies),
    )


def _parse_conf(argument: str, conf: Any) -> StoreConf:
    is_conf = isinstance(conf, (Mapping, str, os.PathLike))
    require(is_conf, argument, conf, "the store_conf of a Document: a path, a URL or a mapping")
    parsed = StoreConf.parse(conf)
    if parsed.ledger_file is None:
        msg = f"{argument} describes a Document in memory, which cannot be migrated."
        raise ConfigError(
            f"{msg} Pass the store_conf of persistent stores: 'map' with a 'uri', a folder, a"
            " server."
        )
    return parsed


def _run_copies(copies: Sequence[_DocumentCopy], target: OpenStores) -> None:
    """Copy all rows, or only count them if an earlier call has copied them."""
    pairs = [(copy.here, copy.there) for copy in copies]
    is_complete = begin_copies(pairs)
    with flushed(local_path(target.vectors)):
        for copy in copies:
            copy.run(is_complete=is_complete)
    if is_complete:
        return
    renamed: dict[str, str] = {}
    for copy in copies:
        renamed |= copy.renamed
    copy_ledgers(pairs, renamed)


def _source_names(source: OpenStores, names: Iterable[str] | None) -> list[str]:
    """The names of the Documents to copy, sorted."""
    with source.ledger.reading() as connection:
        rows = connection.execute("SELECT name FROM ledger ORDER BY name")
        available = [name for (name,) in rows]
    path = source.ledger.path
    if not available:
        raise ConfigError(f"{path} contains no Document. Pass the store_conf of one.")
    requested = available if names is None else sorted({*names})
    for name in requested:
        if name not in available:
            hint = known_names(name, available)
            raise ConfigError(f"{path} contains no Document {name!r}. {hint}")
    return requested


def _refuse_unfit_target(here: LedgerConnection, target: StoreConf) -> None:
    """Check whether the target can store a Document, as far as possible before it is opened."""
    groups = copied_groups(here)
    indexes = chain.from_iterable(group.indexes for group in groups)
    embeds = any(index.kind == "vectors" for index in indexes)
    target.check_use(here.name, None, embeds=embeds)
    for group in groups:
        if not group.fields:
            msg = (
                f"The ledger of {here.name!r} was written by an earlier release, which did not"
                f" store the fields of group {group.name!r}. Open the Document once with this"
                " release and sync() it, or export() it."
            )
            raise ConfigError(msg)


def _copy_cache(source: OpenStores, target: OpenStores) -> None:
    """Copy the embedding cache, unless the target has one: programs may have it open."""
    source_cache = Path(f"{source.ledger.path}.embeddings")
    target_cache = Path(f"{target.ledger.path}.embeddings")
    if source_cache.exists() and not target_cache.exists():
        with EmbeddingCache(source_cache) as cache:
            cache.copy_to(target_cache)


class _DocumentCopy:
    """Copy of one Document."""

    def __init__(self, source: OpenStores, target: OpenStores, here: LedgerConnection) -> None:
        self.here = here
        self.there = LedgerConnection(target.ledger, here.name, copies=True)
        self.renamed: dict[str, str] = {}
        self.segments = self.vectors = self.present = 0
        self._source = source
        self._target = target
        indexes = chain.from_iterable(group.indexes for group in copied_groups(here))
        has_sparse = any(index.dimension == SPARSE for index in indexes)
        if has_sparse and "sparse" not in target.vectors.features:
            store = type(target.vectors).__name__
            msg = f"Document {here.name!r} has sparse vectors, which {store} does not support."
            raise UnsupportedError(f"{msg} Configure another vector store.", store=store)

    def run(self, *, is_complete: bool) -> None:
        """Copy all rows, and the array files of lexical indexes; the ledger's rows are copied last.

        Args:
            is_complete: Only count what an earlier call has copied: the target may be in use.
        """
        if is_complete:
            self._count()
            return
        for group in copied_groups(self.here):
            self._copy_segments(group)
            for index in group.indexes:
                if index.kind == "vectors":
                    self._copy_vectors(group, index)
        copy_array_files(self.here, self.there)

    def _count(self) -> None:
        for group in copied_groups(self.here):
            self.segments += _count_rows(copied_builds(self.here, group))
            for index in group.indexes:
                if index.kind == "vectors" and index.dimension:
                    self.vectors += _count_rows(copied_builds(self.here, group, index))
        self.present = self.segments + self.vectors

    def _copy_segments(self, group: CopiedGroup) -> None:
        copy = self._rename(group, group.collection)
        self._target.segments.create(copy, read_schema(group.fields))
        copied = _CollectionCopy(
            self._source.segments, self._target.segments, group.collection, copy, _SEGMENTS
        )
        self._run(copied, f"copy {group.name} of {self.here.name}", group)
        self.segments += copied.rows

    def _copy_vectors(self, group: CopiedGroup, index: LiveIndex) -> None:
        copy = self._rename(group, index.collection, index.name)
        if not index.dimension:  # nothing has been embedded yet
            return
        fields = read_schema(group.fields)
        dimension = index.dimension
        schema = VectorSchema(dimension, metric_of(dimension), fields, embed_key=index.name)
        self._target.vectors.create(copy, schema)
        copied = _CollectionCopy(
            self._source.vectors, self._target.vectors, index.collection, copy, _VECTORS
        )
        self._run(
            copied,
            f"copy {group.name} of {self.here.name}, embedded with {index.name!r}",
            group,
            index,
        )
        self.vectors += copied.rows

    def _run(
        self,
        copied: _CollectionCopy[Any],
        description: str,
        group: CopiedGroup,
        index: LiveIndex | None = None,
    ) -> None:
        # Builds are listed twice: together, with the uids of their nodes, they would take as much
        # memory as the nodes.
        total = _count_rows(copied_builds(self.here, group, index))
        with ProgressMeter(description, total, 1, unit="row") as meter:
            for done in copied.run(copied_builds(self.here, group, index)):
                meter.reach(done)
        self.present += copied.present

    def _rename(self, group: CopiedGroup, collection: str, embed_key: str | None = None) -> str:
        """Return the name of a collection's copy, which contains the token of its ledger."""
        name = collection_name(self.here.name, group.name, self.there.token + collection, embed_key)
        self.renamed[collection] = name
        return name


def _count_rows(builds: Iterable[CopiedBuild]) -> int:
    return sum(copied.build.size for copied in builds)


def _list_keys(builds: Iterable[CopiedBuild]) -> list[str]:
    return list(chain.from_iterable(copied.build.keys for copied in builds))


class _Rows(Protocol[R]):
    """The methods that segment and vector stores share."""

    def count(self, collection: str) -> int: ...
    def get(self, collection: str, keys: Sequence[str]) -> list[R]: ...
    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[R]: ...
    def upsert(self, collection: str, rows: Sequence[R]) -> None: ...
    def delete(self, collection: str, *, keys: Sequence[str]) -> int: ...


@dataclass(frozen=True, slots=True)
class _Kind(Generic[R]):
    """Comparison of rows of one kind.

    Args:
        is_complete: Whether the source's rows are those of the ledger.
        is_equal: Whether the target's rows are those of the source.
    """

    is_complete: Callable[[CopiedBuild, list[R]], bool]
    is_equal: Callable[[CopiedBuild, list[R], list[R]], bool]


class _CollectionCopy(Generic[R]):
    """Copy of a collection in another store.

    Args:
        source: The source store.
        target: The target store.
        collection: Name of the collection in the source.
        copy: Name of the existing copy in the target.
        kind: Kind of the rows.
    """

    def __init__(
        self, source: _Rows[R], target: _Rows[R], collection: str, copy: str, kind: _Kind[R]
    ) -> None:
        self._source: _Rows[R] = source
        self._target: _Rows[R] = target
        self._collection = collection
        self._copy = copy
        self._kind: _Kind[R] = kind
        self.rows = 0  # in the copy
        self.present = 0  # of them from an earlier run

    def run(self, builds: Iterable[CopiedBuild]) -> Iterator[int]:
        """Copy the builds' rows; yield the number of finished ones.

        Raises:
            StoreError: If the source lacks rows, or the target returns other rows than were
                written.
        """
        fresh = not self._target.count(self._copy)
        numbers: set[int] = set()
        for batch in batches_reaching(builds, lambda copied: copied.build.size, _BATCH_ROWS):
            numbers.update(copied.build.number for copied in batch)
            keys = _list_keys(batch)
            rows = self._by_build(batch, self._source.get(self._collection, keys))
            for copied in batch:
                if not self._kind.is_complete(copied, rows[copied.build.number]):
                    raise self._incomplete(copied, len(rows[copied.build.number]))
            missing = batch if fresh else self._differing(batch, rows)
            self.present += _count_rows(batch) - _count_rows(missing)
            if missing:
                of_builds = (rows[copied.build.number] for copied in missing)
                self._target.upsert(self._copy, list(chain.from_iterable(of_builds)))
                self._refuse_differing(_count_rows(self._differing(missing, rows)))
            self.rows += len(keys)
            yield self.rows
        if not fresh:
            self._remove_others(numbers)
        self._refuse_differing(abs(self._target.count(self._copy) - self.rows))

    def _differing(
        self, builds: Sequence[CopiedBuild], rows: dict[int, list[R]]
    ) -> list[CopiedBuild]:
        """Return the builds that the copy lacks, or has otherwise."""
        by_build = self._by_build(builds, self._target.get(self._copy, _list_keys(builds)))
        differing: list[CopiedBuild] = []
        for copied in builds:
            number = copied.build.number
            if not self._kind.is_equal(copied, rows[number], by_build[number]):
                differing.append(copied)
        return differing

    @staticmethod
    def _by_build(builds: Sequence[CopiedBuild], rows: Sequence[R]) -> dict[int, list[R]]:
        by_build: dict[int, list[R]] = {copied.build.number: [] for copied in builds}
        for row in rows:
            by_build[key_build(row.key)].append(row)
        return by_build

    def _remove_others(self, numbers: set[int]) -> None:
        """Delete rows of an earlier run whose builds are no longer in the ledger."""
        for page in pages(functools.partial(self._target.scan, self._copy)):
            self._target.delete(
                self._copy, keys=[row.key for row in page if key_build(row.key) not in numbers]
            )

    def _incomplete(self, copied: CopiedBuild, count: int) -> StoreError:
        build = copied.build
        store = type(self._source).__name__
        msg = (
            f"{store} in source_conf has {count} rows of group {build.group!r} of document"
            f" {build.document}, and the ledger lists {build.size}, or others. Check that"
            " source_conf is the complete store_conf of the Document; if it is, open it, and run"
            " docs.maintenance.verify() and repair(). The target is not complete."
        )
        return StoreError(msg, store=store, collection=self._collection)

    def _refuse_differing(self, wrong: int) -> None:
        if wrong:
            store = type(self._target).__name__
            msg = (
                f"{store} does not return what was written to it: {wrong} rows of {self._copy!r}"
                " differ."
            )
            msg += " The source did not change. Repair the target, and call migrate() again."
            raise StoreError(msg, store=store, collection=self._copy)


def _is_output(copied: CopiedBuild, rows: list[Segment]) -> bool:
    return output_digest(rows) == copied.output


def _same_vectors(_: CopiedBuild, rows: list[VectorRow], others: list[VectorRow]) -> bool:
    return len(rows) == len(others) and all(map(_same_vector, rows, others))


def _same_vector(row: VectorRow, other: VectorRow) -> bool:
    vector: Any = row.vector
    other_vector: Any = other.vector
    same = (
        vector == other_vector if isinstance(vector, dict) else np.array_equal(vector, other_vector)
    )
    return bool(same) and _typed(row.fields) == _typed(other.fields)


def _typed(fields: Mapping[str, Any]) -> dict[str, tuple[type, Any]]:
    """Return fields with types: 1, 1.0 and True are equal, but not for a filter."""
    return {name: (type(value), value) for name, value in fields.items()}


_SEGMENTS: _Kind[Segment] = _Kind(_is_output, lambda copied, _, rows: _is_output(copied, rows))
_VECTORS: _Kind[VectorRow] = _Kind(
    lambda copied, rows: len(rows) == copied.build.size, _same_vectors
)
