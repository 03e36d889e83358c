"""What the service has for other machines: the changes of a set, for replicas."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lazyrag.document.replica import Place, changes_after
from lazyrag.server.problems import ProblemError
from lazyrag.server.service import Principal, needs, service_of

router = APIRouter(prefix="/api/v1", tags=["reader"])


class Following(BaseModel):
    """How far a replica has got."""

    model_config = ConfigDict(extra="forbid")
    place: Place = Place()
    groups: Annotated[list[str], Field(max_length=1_000)] = []
    uids: bool = False


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
        reader = service.view(set, principal).reader
        found = reader.read(lambda snapshot: changes_after(snapshot, body.place, body.groups, uids=body.uids))
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        return Response(text.encode("utf-8", "surrogatepass"), media_type="application/json")

    return await service.run(run)
