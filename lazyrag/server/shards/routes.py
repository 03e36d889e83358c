"""Routes for other machines: the changes of a set for replicas, and its documents for gateways."""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lazyrag.data.encoding import to_dict
from lazyrag.document import Document
from lazyrag.document.reader import Reader
from lazyrag.document.replica import Place, changes_after
from lazyrag.document.shards import shard_mark
from lazyrag.errors import ConfigError
from lazyrag.server.problems import ProblemError
from lazyrag.server.routes_search import Filters, as_json, filter_of
from lazyrag.server.service import Principal, needs, service_of

router = APIRouter(prefix="/api/v1", tags=["reader"])


class Following(BaseModel):
    """How far a replica has got."""

    model_config = ConfigDict(extra="forbid")
    place: Place = Place()
    groups: Annotated[list[str], Field(max_length=1_000)] = []
    has_rows: bool = False


@router.post("/sets/{set}/_changes")
async def changes(
    set: str,  # noqa: A002
    body: Following,
    request: Request,
    principal: Annotated[Principal, needs("read")],
) -> Response:
    """The documents of a set that changed after a place, with nodes and vectors: for replicas."""
    if principal.labels is not None:
        raise ProblemError(403, "A replica copies all documents.", "Use a token without labels.")
    service = service_of(request)

    def run() -> Any:
        reader = reader_of(service.view(set, principal))
        found = reader.read(lambda snapshot: changes_after(snapshot, body.place, body.groups, has_rows=body.has_rows))
        found["shard"] = shard_mark(service.sets[set])
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        return Response(text.encode("utf-8", "surrogatepass"), media_type="application/json")

    return await service.run(run)


def reader_of(docs: Document) -> Reader:
    """The reader of a set with one store.

    Raises:
        ConfigError: If the set has several.
    """
    if docs.shards:
        msg = "The set has several shards, which are read one by one."
        raise ConfigError(f"{msg} Use Document(url=[...]) with their addresses, or the HTTP API of this service.")
    return docs.reader


class CatalogueCall(BaseModel):
    """A call of a method that lists documents."""

    model_config = ConfigDict(extra="forbid")
    method: Literal["documents", "document", "versions", "status", "grep"]
    arguments: list[str | int | None] = []
    options: dict[str, int | bool] = {}
    scope: Filters = None
    where: Filters = None


@router.post("/sets/{set}/_catalogue")
async def catalogue(
    set: str,  # noqa: A002
    body: CatalogueCall,
    request: Request,
    principal: Annotated[Principal, needs("read")],
) -> Response:
    """The documents of a set, as `Document` lists them: for gateways."""
    service = service_of(request)

    def run() -> Any:
        docs, scope = service.view(set, principal), filter_of(body.scope)
        docs = docs if scope is None else docs.restricted(scope)
        more = {"filters": filter_of(body.where)} if body.where is not None else {}
        method = getattr(docs, body.method)
        try:
            inspect.signature(method).bind(*body.arguments, **more, **body.options)
        except TypeError as exc:
            raise ProblemError(422, f"{body.method}: {exc}.", "Send the arguments of the method of Document.") from exc
        return as_json(to_dict(method(*body.arguments, **more, **body.options)))

    return await service.run(run)
