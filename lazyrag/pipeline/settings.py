"""Settings of pipelines read from the environment by pydantic-settings."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError, known_names, optional_package, sentence
from lazyrag.pipeline.defaults import PipelineSettings, as_settings
from lazyrag.types import PathLike
from lazyrag.validation import validate_choice

with optional_package("Settings", "settings"):
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings, DotEnvSettingsSource, SettingsConfigDict

_DEFAULT = PipelineSettings()
_PREFIX = "LAZYRAG_"
_FAMILIES = ("LAZYRAG_RAG_", "LAZYRAG_RERANKER_", "LAZYRAG_HYBRID_")


class Settings(BaseSettings):
    """Spec 003's settings, read from variables such as ``LAZYRAG_RAG_TOP_K`` unless they are
    passed.

    Nothing is read at import, and a file only if you name one: ``Settings(_env_file=".env")``. The
    fields are those of `PipelineSettings`.

    Misspelt variables of the environment, such as ``LAZYRAG_RAG_TOPK``, are refused; see
    `read_settings` for files.

    Raises:
        pydantic.ValidationError: If a value has the wrong type, or is out of range; it is a
        ValueError.
        ConfigError: If a variable is misspelt.

    Example:
        >>> Settings(rag_top_k=8).rag_top_k, Settings().hybrid_fusion_method
        (8, 'rrf')
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore")

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

    def __init__(self, **values: Any) -> None:
        for name in values:
            if not name.startswith("_"):
                validate_choice("setting", name, type(self).model_fields)
        _validate_variables(os.environ, "the environment")
        super().__init__(**values)

    def model_post_init(self, _: Any, /) -> None:
        """Validate the values by `PipelineSettings`."""
        as_settings(self)


def read_settings(env_file: PathLike | None = None) -> PipelineSettings:
    """Read settings from the environment as a plain value.

    Args:
        env_file: A file with more variables; other variables in it are ignored. The environment
            takes precedence.

    Raises:
        ConfigError: If there is no such file, a variable is misspelt, or a value is invalid; the
            message names the variable.
    """
    if env_file is not None:
        if not Path(env_file).is_file():
            raise ConfigError(f"There is no file {os.fspath(env_file)!r} to read settings from.")
        _validate_variables(
            DotEnvSettingsSource(Settings, env_file=Path(env_file)).env_vars, os.fspath(env_file)
        )
    try:
        settings_class: Any = Settings
        # the keyword is pydantic-settings' own
        return as_settings(settings_class(_env_file=env_file))
    except ValidationError as exc:
        wrong = exc.errors()[0]
        inner = wrong.get("ctx", {}).get("error")
        if isinstance(inner, ConfigError):  # it has the name of the field, or of both weights
            name = next((field for field in Settings.model_fields if field in str(inner)), "")
            raise ConfigError(f"{_PREFIX}{name.upper()}: {inner}") from exc
        name = _PREFIX + "_".join(map(str, wrong["loc"])).upper()
        raise ConfigError(
            f"The setting {name} is {wrong.get('input')!r:.60}: {sentence(wrong['msg'])}"
        ) from exc


def _validate_variables(variables: Iterable[str], where: str) -> None:
    """Refuse a variable with the prefix of settings that is none. Values are not shown."""
    allowed = [(_PREFIX + name).upper() for name in Settings.model_fields]
    for name in variables:
        if name.upper().startswith(_FAMILIES) and name.upper() not in allowed:
            raise ConfigError(
                f"There is no setting {name}, found in {where}."
                f" {known_names(name.upper(), allowed)}"
            )
