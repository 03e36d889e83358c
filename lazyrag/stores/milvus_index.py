"""Index settings of Milvus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError
from lazyrag.stores.protocol import VectorSchema
from lazyrag.types import JsonObject, Keywords
from lazyrag.validation import require, validate_choice, validate_mapping

IndexKwargs: TypeAlias = "Keywords | Sequence[Keywords] | None"
"""One dict for all embed keys, or one for each, with its ``embed_key``."""

_KEYS = ("embed_key", "index_type", "metric_type", "params", "search_params")
_DENSE = (
    "AUTOINDEX",
    "DISKANN",
    "FLAT",
    "GPU_BRUTE_FORCE",
    "GPU_CAGRA",
    "GPU_IVF_FLAT",
    "GPU_IVF_PQ",
    "HNSW",
    "HNSW_PQ",
    "HNSW_PRQ",
    "HNSW_SQ",
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_RABITQ",
    "IVF_SQ8",
    "SCANN",
)
_SPARSE = ("SPARSE_INVERTED_INDEX", "SPARSE_WAND")
_ALLOWED = {
    "dense": ("FLAT", _DENSE),
    "sparse": ("SPARSE_INVERTED_INDEX", (*_SPARSE, "AUTOINDEX")),
}
"""By the kind of vectors, the default type and all."""
_METRICS = ("COSINE", "IP", "L2")


class IndexSettings:
    """Settings of indexes, from ``index_kwargs``.

    Args:
        index_kwargs: A dict with any of the keys ``index_type``, ``metric_type``, ``params`` (to
            build the index with), ``search_params`` and ``embed_key``; or a list of them, each with
            another ``embed_key``. The default is exact: ``FLAT``, and ``SPARSE_INVERTED_INDEX`` for
            sparse vectors.

    Raises:
        ConfigError: If a key or an index is unknown, or a value is of the wrong type.

    Example:
        >>> entry = {"embed_key": "vec1", "index_type": "HNSW", "params": {"M": 16}}
        >>> settings = IndexSettings([entry])
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec1")).type
        'HNSW'
        >>> settings.choice(VectorSchema(2, "cosine", {}, embed_key="vec2")).type
        'FLAT'
    """

    def __init__(self, index_kwargs: IndexKwargs) -> None:
        is_list = isinstance(index_kwargs, (list, tuple))
        entries: Any = index_kwargs if is_list else [index_kwargs or {}]
        self._by_embed_key: dict[str | None, Keywords] = {}
        for entry in entries:
            _check_entry(entry)
            embed_key = entry.get("embed_key")
            if is_list and embed_key is None:
                raise ConfigError(
                    f"Each entry of a list in index_kwargs needs an 'embed_key'; got {entry!r}."
                )
            if embed_key in self._by_embed_key:
                raise ConfigError(
                    f"index_kwargs has two entries for the embed key {embed_key!r}. Remove one of"
                    " them."
                )
            self._by_embed_key[embed_key] = entry

    @property
    def are_exact(self) -> bool:
        """Whether every configured index finds the true nearest rows."""
        return all(_choice(entry, "FLAT").is_exact for entry in self._by_embed_key.values())

    def choice(self, schema: VectorSchema) -> IndexChoice:
        """The index of a collection.

        Raises:
            ConfigError: If the index is for other vectors or for another metric.
        """
        entry = self._by_embed_key.get(schema.embed_key, self._by_embed_key.get(None, {}))
        kind = "sparse" if schema.is_sparse else "dense"
        default, allowed = _ALLOWED[kind]
        chosen = _choice(entry, default)
        if chosen.type not in allowed:
            raise ConfigError(
                f"index_type must be one of {', '.join(allowed)} for {kind} vectors; got"
                f" {chosen.type!r}. For vectors of both kinds pass a list of dicts, each with its"
                " 'embed_key'."
            )
        metric = entry.get("metric_type")
        if metric is not None and metric.lower() != schema.metric:
            raise ConfigError(
                f"metric_type must be {schema.metric.upper()!r} for this collection; got"
                f" {metric!r}. Leave it out."
            )
        return chosen


def _choice(entry: Keywords, default: str) -> IndexChoice:
    kind = entry.get("index_type", default).upper()
    return IndexChoice(kind, dict(entry.get("params", {})), dict(entry.get("search_params", {})))


def _check_entry(entry: Any) -> None:
    validate_mapping("index_kwargs", entry, _KEYS)
    for name in ("params", "search_params"):
        validate_mapping(f"index_kwargs[{name!r}]", entry.get(name, {}))
    for name, choices in (
        ("embed_key", None),
        ("index_type", (*_DENSE, *_SPARSE)),
        ("metric_type", _METRICS),
    ):
        value = entry.get(name, "")
        require(isinstance(value, str), f"index_kwargs[{name!r}]", value, "a text")
        if choices and name in entry:
            validate_choice(f"index_kwargs[{name!r}]", value.upper(), choices)


_EXACT = ("FLAT", *_SPARSE)
# of sparse indexes: the share of weights that they leave out
_DROPPING = ("drop_ratio_build", "drop_ratio_search")
_DEPTHS = {  # parameters of a search that must be at least its number of rows
    **dict.fromkeys(("HNSW", "HNSW_PQ", "HNSW_PRQ", "HNSW_SQ"), "ef"),
    "DISKANN": "search_list",
    "SCANN": "reorder_k",
}


_MIN_DEPTH = 64


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index of a collection.

    Args:
        type: Milvus's name of it.
        params: Parameters to build it with.
        search_params: Parameters of searches.
    """

    type: str
    params: Keywords
    search_params: Keywords

    @property
    def is_exact(self) -> bool:
        """Whether it finds the true nearest rows."""
        drops = any(map(self.params.get, _DROPPING)) or any(map(self.search_params.get, _DROPPING))
        return self.type in _EXACT and not drops

    def params_for(self, depth: int) -> JsonObject:
        """The parameters of a search for that many rows.

        Example:
            >>> IndexChoice("HNSW", {}, {}).params_for(100)
            {'ef': 100}
            >>> IndexChoice("FLAT", {}, {}).params_for(100)
            {}
        """
        name = _DEPTHS.get(self.type)
        if name is None:
            return {**self.search_params}
        least = int(self.search_params.get(name, _MIN_DEPTH))
        return {**self.search_params, name: max(depth, least)}
