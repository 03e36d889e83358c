"""Putting a Document together: stores, ledger, models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from lazyrag.data.fields import Schema
from lazyrag.document.builder import Builder
from lazyrag.document.dataset import Dataset
from lazyrag.document.definitions import Definitions, embed_identity
from lazyrag.document.group import GroupGraph
from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.loading_process import resident_bytes
from lazyrag.document.nodes import NodeStore
from lazyrag.document.options import Options
from lazyrag.document.progress import OnProgress
from lazyrag.document.readers import Readers
from lazyrag.document.sync import synchronise
from lazyrag.document.targets import TargetMaker
from lazyrag.errors import ConfigError
from lazyrag.loaders.limits import DEFAULT_LIMITS, LoadLimits
from lazyrag.models.cache import EmbeddingCache
from lazyrag.models.cached import CachedEmbedder
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.stores.conf import StoreConf
from lazyrag.validation import whole_number, yes_or_no

_GRACE_S = 10.0  # longer than a query takes; who reads for longer does it again
_MOST_WORKERS = 4


def make_options(
    *,
    workers: int | None,
    processes: int,
    keep_versions: int,
    read_only: bool,
    on_progress: OnProgress | None,
    limits: LoadLimits | None,
    readers: Readers,
) -> Options:
    """A Document's arguments on how it ingests, checked."""
    if on_progress is not None and not callable(on_progress):
        msg = f"on_progress is {on_progress!r}; give a function that takes a Progress, or None."
        raise ConfigError(msg)
    threads = min(_MOST_WORKERS, os.cpu_count() or 1) if workers is None else whole_number("workers", workers, 1)
    processes = whole_number("processes", processes, 0)
    return Options(
        workers=threads,
        processes=processes,
        limits=_checked_limits(limits, processes),
        readers=readers,
        keep_versions=whole_number("keep_versions", keep_versions, 0),
        read_only=yes_or_no("read_only", read_only),
        on_progress=on_progress,
    )


def _checked_limits(limits: LoadLimits | None, processes: int) -> LoadLimits:
    """Limits of one file; those that nothing would hold are refused, but for the default ones."""
    if limits is None:
        return DEFAULT_LIMITS
    if not isinstance(limits, LoadLimits):
        msg = f"limits is {limits!r}; give a LoadLimits, or None for the default ones."
        raise ConfigError(msg)
    for name in ("time_s", "memory_bytes"):
        value = getattr(limits, name)
        if value in (None, getattr(DEFAULT_LIMITS, name)):
            continue
        if not processes:
            msg = (
                f"limits has {name}={value!r}, and only another process can be held to it. "
                f"Give processes=1 or more, or {name}=0."
            )
            raise ConfigError(msg)
        if name == "memory_bytes" and not resident_bytes(os.getpid()):
            msg = f"limits has memory_bytes={value!r}, and this system does not tell it. Give memory_bytes=0."
            raise ConfigError(msg)
    return limits


def open_builder(
    name: str,
    dataset: Dataset,
    graph: GroupGraph,
    schema: Schema,
    embedders: Mapping[str, CheckedEmbedder],
    conf: StoreConf,
    options: Options,
) -> Builder:
    """Open a Document's stores and its ledger.

    Raises:
        ConfigError: If it is to be read only and lies in memory.
        StoreError: If a store cannot be opened.
    """
    with ExitStack() as undo:
        stores = conf.open(read_only=options.read_only)
        undo.callback(stores.close)
        file = stores.ledger
        if options.read_only and file.path is None:
            msg = (
                "read_only=True opens what another program keeps on disk, and this Document lies in memory. "
                "Give store_conf={'segment_store': {'type': 'map', 'kwargs': {'uri': ...}}}."
            )
            raise ConfigError(msg)
        ledger = Ledger(file, name)
        nodes = NodeStore(stores.segments, stores.vectors, schema)
        definitions = Definitions(name, lambda: ledger.token, graph, schema)
        identities = {key: embed_identity(one.given, one.embedder.identity) for key, one in embedders.items()}
        remembering = dict(embedders)
        if file.path is not None and embedders and not options.read_only:
            cache = undo.enter_context(EmbeddingCache(Path(f"{file.path}.embeddings")))
            remembering = {key: _remembering(one, cache, identities[key]) for key, one in embedders.items()}
        targets = TargetMaker(definitions, ledger, nodes, remembering, identities)
        if file.path is not None:
            options = replace(options, grace_s=_GRACE_S)
        closing = undo.pop_all()

        def close() -> None:
            with closing:
                if not options.read_only:
                    ledger.unclaim()

        builder = Builder(name, dataset, definitions, nodes, ledger, embedders, targets, options, close)
        builder.on_sync = lambda: synchronise(builder)
        return builder


def _remembering(embedder: CheckedEmbedder, cache: EmbeddingCache, identity: str) -> CheckedEmbedder:
    """An embedder that never embeds a text twice, whatever becomes of this process."""
    if isinstance(embedder.embedder, CachedEmbedder):
        return embedder
    return CheckedEmbedder(CachedEmbedder(embedder.embedder, cache, identity=identity), embedder.name, embedder.key)
