"""Spec 004's weights of a hybrid search: how much vectors count, and how much keywords.

weights = Weights(VectorSetting(0.7, "openai", "text-embedding-3-small"), KeywordSetting(0.3))
weighted([vectors, keywords], weights=weights.shares)
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from lazyrag.arguments import known_arguments
from lazyrag.errors import ConfigError


@known_arguments
@dataclass(frozen=True, slots=True)
class VectorSetting:
    """How much vectors count in a hybrid search, and by which model they are made (spec 004).

    Args:
        vector_weight: From 0 to 1; together with the keyword weight it is 1.
        embedding_provider_name: Who provides the embed model; not blank.
        embedding_model_name: The model's name; not blank.

    Raises:
        ConfigError: If a value is out of its range. It is a `ValueError`, as spec 004 says.

    Example:
        >>> VectorSetting(0.7, "openai", "text-embedding-3-small").vector_weight
        0.7
    """

    vector_weight: float
    embedding_provider_name: str
    embedding_model_name: str

    def __post_init__(self) -> None:
        _check_weight("vector_weight", self.vector_weight)
        for name in ("embedding_provider_name", "embedding_model_name"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                msg = f"{name} is {value!r}; give a text that is not blank."
                raise ConfigError(msg)


@known_arguments
@dataclass(frozen=True, slots=True)
class KeywordSetting:
    """How much keywords count in a hybrid search (spec 004).

    Args:
        keyword_weight: From 0 to 1; together with the vector weight it is 1.

    Raises:
        ConfigError: If the weight is out of its range. It is a `ValueError`, as spec 004 says.

    Example:
        >>> KeywordSetting(0.3).keyword_weight
        0.3
    """

    keyword_weight: float

    def __post_init__(self) -> None:
        _check_weight("keyword_weight", self.keyword_weight)


@known_arguments
@dataclass(frozen=True, slots=True)
class Weights:
    """How much vectors and keywords count in a hybrid search (spec 004).

    Args:
        vector_setting: That of the vectors.
        keyword_setting: That of the keywords. The two weights add up to 1, to within 1e-6.

    Raises:
        ConfigError: If they do not, or something else was given. It is a `ValueError`, as spec 004 says.

    Example:
        >>> weights = Weights(VectorSetting(0.7, "openai", "text-embedding-3-small"), KeywordSetting(0.3))
        >>> weights.shares
        (0.7, 0.3)
    """

    vector_setting: VectorSetting
    keyword_setting: KeywordSetting

    def __post_init__(self) -> None:
        for name, kind in (("vector_setting", VectorSetting), ("keyword_setting", KeywordSetting)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                msg = f"{name} is {value!r:.80}; give a {kind.__name__}."
                raise ConfigError(msg)
        vector, keyword = self.shares
        if not abs(vector + keyword - 1.0) < 1e-6:
            msg = f"The vector weight {vector} and the keyword weight {keyword} add up to {vector + keyword}, not to 1."
            raise ConfigError(msg)

    @property
    def shares(self) -> tuple[float, float]:
        """The vector weight and the keyword weight, as `lazyrag.ranking.fusion.weighted` takes them."""
        return self.vector_setting.vector_weight, self.keyword_setting.keyword_weight


def _check_weight(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 <= float(value) <= 1:
        msg = f"{name} is {value!r}; give a number from 0 to 1."
        raise ConfigError(msg)
