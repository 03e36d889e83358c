"""What a pipeline does where nothing is said: spec 003's settings, as a plain value."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from lazyrag.errors import ConfigError, known_names
from lazyrag.ranking.fusion import fusions
from lazyrag.validation import known_arguments, whole_number, yes_or_no


@known_arguments
@dataclasses.dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Spec 003's settings and their defaults. `lazyrag.Settings` reads the same from the environment.

    Args:
        rag_top_k: How many hits a question is asked for, at least 1.
        rag_rerank_top_k: How many the reranker leaves, at least 1.
        rag_max_context_tokens: Tokens of a context, at least 1.
        rag_use_reranker: Whether contexts are made of reranked hits, where there is a reranker.
        rag_use_hybrid_search: Whether `RAGPipeline.over` asks by meaning and by words, or by meaning alone.
        reranker_model: The cross-encoder of `RAGPipeline.over`: a folder, or a name in the hub's cache on this machine.
        reranker_batch_size: How many pairs it reads at once, at least 1.
        hybrid_vector_weight: Of the ranking by meaning, where the method weighs; at least 0.
        hybrid_bm25_weight: Of the ranking by words, likewise.
        hybrid_fusion_method: The name of a registered fusion.

    Raises:
        ConfigError: If a value is out of its range.

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
        for name in ("rag_top_k", "rag_rerank_top_k", "rag_max_context_tokens", "reranker_batch_size"):
            whole_number(name, getattr(self, name), 1)
        for name in ("rag_use_reranker", "rag_use_hybrid_search"):
            yes_or_no(name, getattr(self, name))
        for name in ("hybrid_vector_weight", "hybrid_bm25_weight"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                msg = f"{name} is {value!r:.60}; give a number of at least 0."
                raise ConfigError(msg)
        if not self.hybrid_vector_weight + self.hybrid_bm25_weight:
            msg = "hybrid_vector_weight and hybrid_bm25_weight are both 0; give one of them a weight."
            raise ConfigError(msg)
        if not isinstance(self.reranker_model, str) or not self.reranker_model.strip():
            msg = f"reranker_model is {self.reranker_model!r:.60}; give a folder, or a model's name."
            raise ConfigError(msg)
        if self.hybrid_fusion_method not in fusions:
            msg = (
                f"hybrid_fusion_method is {self.hybrid_fusion_method!r:.60}. "
                f"{known_names(str(self.hybrid_fusion_method), fusions)}"
            )
            raise ConfigError(msg)


def as_settings(given: Any) -> PipelineSettings:
    """Settings as they are, those read from the environment as the same value; None as the defaults.

    Raises:
        ConfigError: If it is neither, or a value is out of its range.
    """
    if given is None:
        return PipelineSettings()
    if isinstance(given, PipelineSettings):
        return given
    names = [field.name for field in dataclasses.fields(PipelineSettings)]
    missing = [name for name in names if not hasattr(given, name)]
    if missing:
        msg = f"settings is {given!r:.60}, which has no {missing[0]}; give PipelineSettings(...) or Settings(...)."
        raise ConfigError(msg)
    return PipelineSettings(**{name: getattr(given, name) for name in names})
