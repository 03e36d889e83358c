"""Settings from the environment, by pydantic-settings; the only module that imports it."""

from __future__ import annotations

from typing import Any

from lazyrag.errors import ConfigError, missing_package
from lazyrag.pipeline.defaults import PipelineSettings, as_settings

try:
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings, SettingsConfigDict
except ModuleNotFoundError as missing:
    raise missing_package("Settings", missing, "settings") from missing

_DEFAULT = PipelineSettings()


class Settings(BaseSettings):
    """Spec 003's settings, read from variables such as ``LAZYRAG_RAG_TOP_K`` where they are not given here.

    Nothing is read at import, and a file only where one is named: ``Settings(_env_file=".env")``. What the fields mean
    stands at `PipelineSettings`.

    Raises:
        pydantic.ValidationError: If a value is not of its kind; it is a ValueError.
        ConfigError: If a value is out of its range.

    Example:
        >>> Settings(rag_top_k=8).rag_top_k, Settings().hybrid_fusion_method
        (8, 'rrf')
    """

    model_config = SettingsConfigDict(env_prefix="LAZYRAG_", frozen=True, extra="forbid")

    rag_top_k: int = _DEFAULT.rag_top_k
    rag_rerank_top_k: int = _DEFAULT.rag_rerank_top_k
    rag_max_context_tokens: int = _DEFAULT.rag_max_context_tokens
    rag_use_reranker: bool = _DEFAULT.rag_use_reranker
    rag_use_hybrid_search: bool = _DEFAULT.rag_use_hybrid_search
    reranker_model: str = _DEFAULT.reranker_model
    reranker_batch_size: int = _DEFAULT.reranker_batch_size
    hybrid_vector_weight: float = _DEFAULT.hybrid_vector_weight
    hybrid_bm25_weight: float = _DEFAULT.hybrid_bm25_weight
    hybrid_fusion_method: str = _DEFAULT.hybrid_fusion_method

    def model_post_init(self, _: Any, /) -> None:
        """Hold the values to the ranges of `PipelineSettings`."""
        as_settings(self)


def read_settings(env_file: str | None = None) -> PipelineSettings:
    """Settings of the environment as a plain value.

    Args:
        env_file: A file of further variables; those of the environment go before it.

    Raises:
        ConfigError: If a value cannot be read, or is out of its range; the message names the variable.
    """
    try:
        made: Any = Settings
        return as_settings(made(_env_file=env_file))  # the keyword is pydantic-settings' own
    except ValidationError as exc:
        wrong = exc.errors()[0]
        name = "LAZYRAG_" + "_".join(map(str, wrong["loc"])).upper()
        msg = f"The setting {name} is {wrong.get('input')!r:.60}: {wrong['msg']}."
        raise ConfigError(msg) from exc
