"""Settings from the environment, by pydantic-settings; the only module that imports it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError, known_names, missing_package, sentence
from lazyrag.pipeline.defaults import PipelineSettings, as_settings

try:
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings, DotEnvSettingsSource, SettingsConfigDict
except ModuleNotFoundError as missing:
    raise missing_package("Settings", missing, "settings") from missing

_DEFAULT = PipelineSettings()
_PREFIX = "LAZYRAG_"
_FAMILIES = ("LAZYRAG_RAG_", "LAZYRAG_RERANKER_", "LAZYRAG_HYBRID_")


class Settings(BaseSettings):
    """Spec 003's settings, read from variables such as ``LAZYRAG_RAG_TOP_K`` where they are not given here.

    Nothing is read at import, and a file only where one is named: ``Settings(_env_file=".env")``. What the fields mean
    stands at `PipelineSettings`.

    Variables that begin as a setting does and are none, ``LAZYRAG_RAG_TOPK`` for example, are refused where they stand
    in the environment; see `read_settings` for files.

    Raises:
        pydantic.ValidationError: If a value is not of its kind, or out of its range; it is a ValueError.
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
        unknown = [name for name in values if not name.startswith("_") and name not in type(self).model_fields]
        if unknown:
            msg = f"Settings has no {unknown[0]!r:.60}. {known_names(unknown[0], type(self).model_fields)}"
            raise ConfigError(msg)
        _check_names(os.environ, "the environment")
        super().__init__(**values)

    def model_post_init(self, _: Any, /) -> None:
        """Hold the values to the ranges of `PipelineSettings`."""
        as_settings(self)


def read_settings(env_file: str | os.PathLike[str] | None = None) -> PipelineSettings:
    """Settings of the environment as a plain value.

    Args:
        env_file: A file of further variables, those of others among them; those of the environment go before it.

    Raises:
        ConfigError: If there is no such file, a variable is misspelt, or a value cannot be read or is out of its range;
            the message names the variable.
    """
    if env_file is not None:
        if not Path(env_file).is_file():
            msg = f"There is no file {os.fspath(env_file)!r} to read settings from."
            raise ConfigError(msg)
        _check_names(DotEnvSettingsSource(Settings, env_file=Path(env_file)).env_vars, os.fspath(env_file))
    try:
        made: Any = Settings
        return as_settings(made(_env_file=env_file))  # the keyword is pydantic-settings' own
    except ValidationError as exc:
        wrong = exc.errors()[0]
        inner = wrong.get("ctx", {}).get("error")
        if isinstance(inner, ConfigError):  # it begins with the name of the field, or of both
            name = next((one for one in Settings.model_fields if str(inner).startswith(one)), "")
            msg = f"{_PREFIX}{name.upper()}: {inner}"
        else:
            name = _PREFIX + "_".join(map(str, wrong["loc"])).upper()
            msg = f"The setting {name} is {wrong.get('input')!r:.60}: {sentence(wrong['msg'])}"
        raise ConfigError(msg) from exc


def _check_names(variables: Iterable[str], where: str) -> None:
    """Refuse a variable that begins as settings do and is none; its value is nobody's business."""
    known = [(_PREFIX + name).upper() for name in Settings.model_fields]
    for name in variables:
        if name.upper().startswith(_FAMILIES) and name.upper() not in known:
            msg = f"There is no setting {name}, which stands in {where}. {known_names(name.upper(), known)}"
            raise ConfigError(msg)
