"""Open a Document's stores, and make the indexer that builds them."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lazyrag.data.fields import Schema
from lazyrag.errors import ConfigError, IngestionWarning, warn_user
from lazyrag.groups.node_group import Definitions, GroupGraph
from lazyrag.ingest.changes import ingest_changes
from lazyrag.ingest.dataset import Dataset, FileSelection
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.model_identity import check_probes, find_identities
from lazyrag.ingest.plan import BuildPlanner
from lazyrag.ingest.report import Options
from lazyrag.ledger.ledger import Ledger
from lazyrag.loaders.base import DEFAULT_LIMITS, LoadLimits
from lazyrag.loaders.process import resident_bytes
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.read.nodes import NodeStore
from lazyrag.stores.config import StoreConf
from lazyrag.stores.protocol import collection_prefix

if TYPE_CHECKING:
    from lazyrag.models.embedding_cache import EmbeddingCache

_GRACE_S = 10.0  # longer than a query takes; a read that takes longer starts again


def _check_limits(limits: LoadLimits, processes: int) -> None:
    """Refuse limits that nothing could enforce, except for the default ones."""
    for name in ("time_s", "memory_bytes"):
        value = getattr(limits, name)
        if value in (None, getattr(DEFAULT_LIMITS, name)):
            continue
        if not processes:
            raise ConfigError(
                f"limits has {name}={value!r}, which only a separate process can enforce. Add"
                f" processes=1 to LoadLimits, or pass {name}=0."
            )
        if name == "memory_bytes" and not resident_bytes(os.getpid()):
            raise ConfigError(
                f"limits has {name}={value!r}, which this system cannot measure. Pass {name}=0."
            )


def _refuse_shards(conf: StoreConf) -> None:
    """Refuse a store that an earlier release distributed over several files."""
    marker = Path(f"{conf.ledger_file}.shards")
    if conf.ledger_file is not None and marker.exists():
        raise ConfigError(
            f"{conf.ledger_file} is distributed over several stores, as lazyrag 0.2 made them. Run"
            " `lazyrag reshard --shards 1` with that release, then open it with this one."
        )


def open_indexer(
    name: str,
    dataset: Dataset,
    graph: GroupGraph,
    schema: Schema,
    embedders: Mapping[str, CheckedEmbedder],
    conf: StoreConf,
    options: Options,
    files: FileSelection,
) -> Indexer:
    """Open a Document's stores and its ledger.

    Raises:
        ConfigError: If a read-only Document would be in memory.
        StoreError: If a store cannot be opened.
    """
    _check_limits(options.limits, options.processes)
    _refuse_shards(conf)
    with ExitStack() as undo:
        stores = conf.open(read_only=options.read_only)
        undo.callback(stores.close)
        file = stores.ledger
        if options.read_only and file.path is None:
            raise ConfigError(
                "read_only=True opens the files of another program, but this Document is in memory."
                " Pass its store_conf, such as store_conf='tea.db'."
            )
        dataset = dataset.selected(file, name, files)
        ledger = Ledger(file, name, schema)
        nodes = NodeStore(
            stores.segments, stores.vectors, schema, conf.search, exact_rows=conf.exact_rows
        )
        definitions = Definitions(name, functools.cache(lambda: ledger.token), graph, schema)
        identities = find_identities(ledger, embedders)
        cached = dict(embedders)
        cache = None
        if file.path is not None and embedders and not options.read_only:
            from lazyrag.models.embedding_cache import EmbeddingCache

            cache = undo.enter_context(EmbeddingCache(Path(f"{file.path}.embeddings")))
            cached = {
                key: with_cache(embedder, cache, identities[key])
                for key, embedder in embedders.items()
            }
        planner = BuildPlanner(definitions, ledger, nodes, cached, identities)
        if file.path is not None:
            options = replace(options, grace_s=_GRACE_S)
        if not options.read_only:
            undo.callback(lambda: ledger.unclaim() if file.writer.is_in_place else None)
        check_probes(f"Document {name!r}", ledger, embedders, identities)
        close = undo.pop_all().close
        return Indexer(
            name,
            dataset,
            definitions,
            nodes,
            ledger,
            embedders,
            planner,
            options,
            close,
            cache,
            sync=ingest_changes,
            repair_lost=_repair_lost,
        )


def warn_of_namesake(indexer: Indexer) -> None:
    """Warn if another ledger has collections under a name that was derived from the dataset's
    path.
    """
    collections = getattr(indexer.nodes.segments, "collections", None)
    if collections is None or indexer.ledger.tree.groups:  # those of the own ledger
        return
    others = collections(collection_prefix(indexer.name))
    if others:
        warn_user(
            f"Another ledger has collections of a Document named {indexer.name!r} on the server,"
            f" such as {others[0]!r}. Those of this Document stay separate. Pass Document(name=...)"
            " to tell them apart, or store_conf['ledger'], if it is the ledger of the same"
            " Document.",
            IngestionWarning,
        )


def _repair_lost(indexer: Indexer) -> tuple[str, ...]:
    from lazyrag.ingest.verify import repair_lost

    return repair_lost(indexer)


def with_cache(embedder: CheckedEmbedder, cache: EmbeddingCache, identity: str) -> CheckedEmbedder:
    """Return an embedder that never embeds a text twice, even across restarts."""
    from lazyrag.models.embedding_cache import CachedEmbedder

    if isinstance(embedder.embedder, CachedEmbedder):
        return embedder
    cached = CachedEmbedder(embedder.embedder, cache, identity=identity)
    cached.checked_embedder.workers = embedder.workers
    return CheckedEmbedder(cached, embedder.name, embedder.key)
