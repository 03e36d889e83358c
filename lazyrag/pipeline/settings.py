"""Settings from the environment, by pydantic-settings; the only module that imports it."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError, known_names, missing_package, sentence
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
