"""Bodies of requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from lazyrag.errors import ConfigError
from lazyrag.validation import named_filters


class Body(BaseModel):
    """A request's body: unknown names are refused, as they are likely to be misspelt. ``where``
    means ``filters``.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, values: Any) -> Any:
        if "filters" not in cls.model_fields or not isinstance(values, dict):
            return values
        try:
            return named_filters(values)
        except ConfigError as exc:
            raise ValueError(str(exc)) from exc
