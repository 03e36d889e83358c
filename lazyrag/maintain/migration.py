"""Migrate Documents to other stores: rows are copied as they are, so that nothing is loaded or
embedded again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from lazyrag.data.fields import read_schema
from lazyrag.errors import ConfigError, UnsupportedError, known_names
from lazyrag.ingest.dataset import copy_selection
from lazyrag.ledger.copies import (
    CopiedGroup,
    begin_copies,
    copied_builds,
    copied_groups,
    copied_names,
    copy_array_files,
    copy_ledgers,
)
from lazyrag.ledger.lease import WAIT_S, LedgerConnection
from lazyrag.ledger.liveness import TermParts
from lazyrag.ledger.tables import BuildTable
from lazyrag.ledger.tree import LiveIndex
from lazyrag.maintain.copying import CollectionCopy, RowStore, read_builds
from lazyrag.models.embedding_cache import EmbeddingCache
from lazyrag.progress.calls import OnProgress, ProgressMeter, during_call
from lazyrag.read.nodes import metric_of
from lazyrag.storage.arrays import flushed
from lazyrag.stores.config import OpenStores, StoreConf
from lazyrag.stores.protocol import VectorSchema, local_path
from lazyrag.types import SPARSE, JsonMapping, PathLike
from lazyrag.validation import is_list_of, known_keywords, require


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
    source_conf: JsonMapping | PathLike,
    target_conf: JsonMapping | PathLike,
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
        pairs = [(copy.here, copy.there) for copy in copies]
        is_complete = begin_copies(pairs)
        if not is_complete:
            with flushed(local_path(into.vectors)):
                for copy in copies:
                    copy.run()
            copy_ledgers(pairs)
        for here in ledgers:
            copy_selection(opened.ledger, into.ledger, here.name)
        _copy_cache(opened, into)  # last: it only saves calls
    segments = sum(copy.segments for copy in copies)
    vectors = sum(copy.vectors for copy in copies)
    present = segments + vectors if is_complete else sum(copy.present for copy in copies)
    return Migration(tuple(here.name for here in ledgers), segments, vectors, present)


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
            raise ConfigError(
                f"The ledger of {here.name!r} was written by an earlier release, which did not"
                f" store the fields of group {group.name!r}. Open the Document once with this"
                " release and sync() it, or export() it."
            )


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
        self.segments = self.vectors = self.present = 0
        self._source = source
        self._target = target
        self._names = copied_names(here, self.there)
        self._builds = BuildTable(here, TermParts(here.file))
        for group in copied_groups(here):
            self.segments += self._builds.count_rows(group.id)
            for index in group.embedded:
                self._refuse_sparse(index)
                self.vectors += self._builds.count_rows(group.id, index.id)

    def _refuse_sparse(self, index: LiveIndex) -> None:
        """Raise if the index has sparse vectors, and the target's store does not support them."""
        if index.dimension == SPARSE and "sparse" not in self._target.vectors.features:
            store = type(self._target.vectors).__name__
            msg = f"Document {self.here.name!r} has sparse vectors, which {store} does not support."
            raise UnsupportedError(f"{msg} Configure another vector store.", store=store)

    def run(self) -> None:
        """Copy all rows, and the array files of lexical indexes; the ledger's rows are copied
        last.
        """
        for group in copied_groups(self.here):
            fields = read_schema(group.fields)
            self._target.segments.create(self._names[group.collection], fields)
            self._copy_rows(group, None, self._source.segments, self._target.segments)
            for index in group.embedded:
                dimension = index.dimension
                schema = VectorSchema(dimension, metric_of(dimension), fields, embed_key=index.name)
                self._target.vectors.create(self._names[index.collection], schema)
                self._copy_rows(group, index, self._source.vectors, self._target.vectors)
        copy_array_files(self.here, self.there)

    def _copy_rows(
        self, group: CopiedGroup, index: LiveIndex | None, source: RowStore, target: RowStore
    ) -> None:
        """Copy the segments of a group, or the vectors of an index over it."""
        label = f"copy {group.name} of {self.here.name}"
        collection = group.collection
        total = self._builds.count_rows(group.id)
        if index is not None:
            label += f", embedded with {index.name!r}"
            collection = index.collection
            total = self._builds.count_rows(group.id, index.id)
        copy = CollectionCopy(target, self._names[collection])
        done = 0
        with ProgressMeter(label, total, 1, unit="row") as meter:
            for rows in read_builds(source, collection, copied_builds(self.here, group, index)):
                self.present += copy.write(rows)
                done += len(rows)
                meter.reach(done)
        copy.remove_others(copied_builds(self.here, group, index), done)
