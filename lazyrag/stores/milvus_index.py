"""``index_kwargs`` of the Milvus store: which index a collection of vectors gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, known_names
from lazyrag.stores.protocol import VectorSchema

IndexKwargs: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"
"""One dict for all embed keys, or one for each, with its ``embed_key``."""

_KEYS = ("embed_key", "index_type", "metric_type", "params", "search_params")
_DENSE = (
    *("AUTOINDEX", "DISKANN", "FLAT", "GPU_BRUTE_FORCE", "GPU_CAGRA", "GPU_IVF_FLAT", "GPU_IVF_PQ", "HNSW", "HNSW_PQ"),
    *("HNSW_PRQ", "HNSW_SQ", "IVF_FLAT", "IVF_PQ", "IVF_RABITQ", "IVF_SQ8", "SCANN"),
)
_SPARSE = ("SPARSE_INVERTED_INDEX", "SPARSE_WAND")
_EXACT = ("FLAT", *_SPARSE)
_DROPPING = ("drop_ratio_build", "drop_ratio_search")  # of sparse indexes: the weights that they leave out
_DEPTHS = {  # what a search must set to at least the number of rows that it asks for
    **dict.fromkeys(("HNSW", "HNSW_PQ", "HNSW_PRQ", "HNSW_SQ"), "ef"),
    "DISKANN": "search_list",
    "SCANN": "reorder_k",
}
_LEAST_DEPTH = 64


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index of a collection.

    Args:
        type: Milvus's name of it.
        params: What it is built with.
        search_params: What searches give it.
    """

    type: str
    params: Mapping[str, Any]
    search_params: Mapping[str, Any]

    @property
    def is_exact(self) -> bool:
        """Whether it finds the true nearest rows."""
        return self.type in _EXACT and not any(
            params.get(name) for params in (self.params, self.search_params) for name in _DROPPING
        )

    def params_for(self, depth: int) -> dict[str, Any]:
        """What a search for that many rows gives it.

        Example:
            >>> IndexChoice("HNSW", {}, {}).params_for(100), IndexChoice("FLAT", {}, {}).params_for(100)
            ({'ef': 100}, {})
        """
        name = _DEPTHS.get(self.type)
        wanted = {} if name is None else {name: max(depth, int(self.search_params.get(name, _LEAST_DEPTH)))}
        return {**self.search_params, **wanted}


class IndexSettings:
    """``index_kwargs``, checked.

    Args:
        index_kwargs: A dict with any of the keys ``index_type``, ``metric_type``, ``params`` (what the index is built
            with), ``search_params`` and ``embed_key``; or a list of them, each with another ``embed_key``. What is
            left out is exact: ``FLAT``, and ``SPARSE_INVERTED_INDEX`` for sparse vectors.

    Raises:
        ConfigError: If a key or an index is unknown, or a value is of the wrong kind.

    Example:
        >>> settings = IndexSettings([{"embed_key": "vec1", "index_type": "HNSW", "params": {"M": 16}}])
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec1")).type
        'HNSW'
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec2")).type
        'FLAT'
    """

    def __init__(self, index_kwargs: IndexKwargs) -> None:
        several = isinstance(index_kwargs, (list, tuple))
        entries: Sequence[Any] = index_kwargs if isinstance(index_kwargs, (list, tuple)) else [index_kwargs or {}]
        self._by_embed_key: dict[str | None, Mapping[str, Any]] = {}
        for entry in entries:
            _check_entry(entry)
            embed_key = entry.get("embed_key")
            if several and embed_key is None:
                msg = f"index_kwargs has the entry {entry!r} without an 'embed_key'; in a list each one needs its own."
                raise ConfigError(msg)
            if embed_key in self._by_embed_key:
                msg = f"index_kwargs has two entries for the embed key {embed_key!r}; give one for each."
                raise ConfigError(msg)
            self._by_embed_key[embed_key] = entry

    @property
    def are_exact(self) -> bool:
        """Whether every index that is asked for finds the true nearest rows."""
        return all(_choice(entry, "FLAT").is_exact for entry in self._by_embed_key.values())

    def choice(self, schema: VectorSchema) -> IndexChoice:
        """The index of a collection.

        Raises:
            ConfigError: If what is asked for is none for such vectors, or for another metric.
        """
        entry = self._by_embed_key.get(schema.embed_key, self._by_embed_key.get(None, {}))
        default, allowed = ("SPARSE_INVERTED_INDEX", (*_SPARSE, "AUTOINDEX")) if schema.is_sparse else ("FLAT", _DENSE)
        found = _choice(entry, default)
        if found.type not in allowed:
            kind = "sparse" if schema.is_sparse else "dense"
            msg = (
                f"index_kwargs asks for the index {found.type!r} over {kind} vectors, which takes one of "
                f"{', '.join(allowed)}. For vectors of both kinds give a list of dicts, each with its 'embed_key'."
            )
            raise ConfigError(msg)
        metric = entry.get("metric_type")
        if metric is not None and str(metric).lower() != schema.metric:
            msg = (
                f"index_kwargs asks for the metric {metric!r}; the vectors of this collection are ranked by "
                f"{schema.metric.upper()!r}. Leave 'metric_type' out, or give that."
            )
            raise ConfigError(msg)
        return found


def _choice(entry: Mapping[str, Any], default: str) -> IndexChoice:
    kind = str(entry.get("index_type", default)).upper()
    return IndexChoice(kind, dict(entry.get("params", {})), dict(entry.get("search_params", {})))


def _check_entry(entry: Any) -> None:
    if not isinstance(entry, Mapping):
        msg = f"index_kwargs has {entry!r}; give a mapping, or a list of mappings."
        raise ConfigError(msg)
    for name in entry:
        if name not in _KEYS:
            known = known_names(str(name), _KEYS)
            msg = f"index_kwargs has the key {name!r}. {known} Options of an index go to 'params'."
            raise ConfigError(msg)
    for name in ("params", "search_params"):
        if not isinstance(entry.get(name, {}), Mapping):
            msg = f"index_kwargs[{name!r}] is {entry[name]!r}; give a mapping."
            raise ConfigError(msg)
    for name in ("embed_key", "index_type", "metric_type"):
        if not isinstance(entry.get(name, ""), str):
            msg = f"index_kwargs[{name!r}] is {entry[name]!r}; give a text."
            raise ConfigError(msg)
    kind = entry.get("index_type", "FLAT")
    if kind.upper() not in (*_DENSE, *_SPARSE):
        msg = f"index_kwargs['index_type'] is {kind!r}. {known_names(kind, (*_DENSE, *_SPARSE))}"
        raise ConfigError(msg)
    metric = entry.get("metric_type", "COSINE")
    if metric.upper() not in ("COSINE", "IP", "L2"):
        msg = f"index_kwargs['metric_type'] is {metric!r}. {known_names(metric, ('COSINE', 'IP', 'L2'))}"
        raise ConfigError(msg)
