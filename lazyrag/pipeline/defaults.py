"""Settings of pipelines as plain values, with their defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from lazyrag.errors import ConfigError
from lazyrag.ranking.fusion import fusions
from lazyrag.validation import (
    known_arguments,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_range,
    validate_text,
)


@known_arguments
@dataclasses.dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Spec 003's settings and their defaults. `lazyrag.pipeline.Settings` reads the same from the
    environment.

    Args:
        rag_top_k: Number of hits to retrieve, at least 1.
        rag_rerank_top_k: Number of hits that the reranker keeps, at least 1.
        rag_max_context_tokens: Tokens of a context, at least 1.
        rag_use_reranker: Whether contexts use reranked hits, if there is a reranker.
        rag_use_hybrid_search: Whether `RAGPipeline.over` uses hybrid search, or vector search
            alone.
        reranker_model: A cross-encoder: a folder, or a name in the hub's cache on this machine. Or
            the name of a registered reranker that needs no keywords, such as ``"MaxSimReranker"``.
        reranker_batch_size: Number of pairs that a cross-encoder reads at once, at least 1.
        hybrid_vector_weight: Weight of vector search, if the fusion has weights; at least 0.
        hybrid_bm25_weight: Weight of keyword search, likewise.
        hybrid_fusion_method: The name of a registered fusion.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> PipelineSettings(rag_top_k=8).rag_max_context_tokens
        2000
    """

    rag_top_k: int = 5
    rag_rerank_top_k: int = 3
    rag_max_context_tokens: int = 2000
    rag_use_reranker: bool = True
    rag_use_hybrid_search: bool = False
    reranker_model: str = "BAAI/bge-reranker-large"
    reranker_batch_size: int = 32
    hybrid_vector_weight: float = 0.7
    hybrid_bm25_weight: float = 0.3
    hybrid_fusion_method: str = "rrf"

    def __post_init__(self) -> None:
        for name in (
            "rag_top_k",
            "rag_rerank_top_k",
            "rag_max_context_tokens",
            "reranker_batch_size",
        ):
            validate_integer(name, getattr(self, name), 1)
        for name in ("rag_use_reranker", "rag_use_hybrid_search"):
            validate_boolean(name, getattr(self, name))
        for name in ("hybrid_vector_weight", "hybrid_bm25_weight"):
            validate_range(name, getattr(self, name), 0)
        if not self.hybrid_vector_weight + self.hybrid_bm25_weight:
            raise ConfigError(
                "hybrid_vector_weight and hybrid_bm25_weight are both 0; at least one must be"
                " above 0."
            )
        validate_text("reranker_model", self.reranker_model)
        validate_choice("hybrid_fusion_method", self.hybrid_fusion_method, fusions)


def as_settings(settings: Any) -> PipelineSettings:
    """Convert `Settings` to `PipelineSettings`; None to the defaults.

    Raises:
        ConfigError: If it is neither, or a value is out of range.
    """
    if settings is None:
        return PipelineSettings()
    if isinstance(settings, PipelineSettings):
        return settings
    names = [field.name for field in dataclasses.fields(PipelineSettings)]
    is_valid = all(hasattr(settings, name) for name in names)
    require(is_valid, "settings", settings, "PipelineSettings(...) or Settings(...)")
    return PipelineSettings(**{name: getattr(settings, name) for name in names})


SEARCH_SETTINGS = (
    "rag_use_hybrid_search",
    "hybrid_vector_weight",
    "hybrid_bm25_weight",
    "hybrid_fusion_method",
)
RERANKER_SETTINGS = ("reranker_model", "reranker_batch_size")
_DEFAULTS = PipelineSettings()


def reset(settings: PipelineSettings, names: Sequence[str]) -> PipelineSettings:
    """Return the settings with the defaults of some."""
    return dataclasses.replace(settings, **{name: getattr(_DEFAULTS, name) for name in names})


def require_defaults(settings: PipelineSettings, names: Sequence[str], why: str) -> None:
    """Refuse settings that have no effect.

    Args:
        settings: The settings.
        names: Those that have no effect.
        why: The reason.

    Raises:
        ConfigError: If one of them is not the default.
    """
    for name in names:
        if (value := getattr(settings, name)) != getattr(_DEFAULTS, name):
            raise ConfigError(f"The setting {name}={value!r} has no effect: {why}. Remove it.")
