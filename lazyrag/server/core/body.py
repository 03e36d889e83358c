"""Bodies of requests, and models of responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

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


def make_model(name: str, /, **fields: Any) -> Any:
    """Make a model from the types of its fields, which are required. A pair of a type and a default
    or a `Field` is that of another one; names with underscores are options of `create_model`.
    """
    for field, kind in [*fields.items()]:
        if not isinstance(kind, tuple) and not field.startswith("__"):
            fields[field] = (kind, ...)
    return create_model(name, **fields)


Name = Annotated[str, Field(max_length=200)]


class SearchOptions(Body):
    """How to search. `default` is hybrid search if the set has embeddings, else keyword search."""

    group: Name = "MediumChunk"
    retriever: Annotated[
        Name, Field(description="`default`, `hybrid`, `vector`, or the name of a similarity.")
    ] = "default"
    embed_keys: Annotated[list[Name] | None, Field(max_length=16, description="Null for all.")] = (
        None
    )
    target: Annotated[Name | None, Field(description="Map the hits to this group.")] = None
    infer_filters: Annotated[
        bool | tuple[Name, ...],
        Field(
            description="Whether the default retriever prefers documents that the query names; a"
            ' list has what is not inferred, `"-year: 2018"`, or all that is, `"name"`.',
        ),
    ] = True
    as_of: Annotated[
        str | None,
        Field(
            max_length=10,
            description="An ISO day: documents dated after it are left out, and before an older"
            " version of a document comes the one in force.",
        ),
    ] = None
    parts: Annotated[
        Literal["auto", "off"],
        Field(description="Whether the default retriever searches the parts of a query."),
    ] = "auto"
