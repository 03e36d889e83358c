"""Routes of access: browser sessions, tokens, the audit log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from lazyrag.server.core.access import COOKIE, SESSION_S, Access, AuditCheck, AuditRow, Token
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Administrator, Reader, service_of

router = APIRouter(prefix="/api/v1", tags=["access"])


class Login(BaseModel):
    """A token."""

    token: str = Field(max_length=200)


class NewToken(BaseModel):
    """A token to create."""

    scope: str = "read"
    name: str = ""
    labels: list[str] | None = None
    expires: str | None = Field(
        None, description="A period such as '12h', '90d' or '8w'; null for never."
    )


class CreatedToken(BaseModel):
    """A token with its text, which is shown once."""

    token: Token
    text: str


class AuditPage(BaseModel):
    """Rows of the audit log."""

    rows: list[AuditRow]
    next: int | None


def access_of(request: Request) -> Access:
    """The tokens and the audit log of the service."""
    access = service_of(request).access
    if access is None:
        raise ProblemError(
            501, "The service was started without access control.", "Pass access= to Service."
        )
    return access


def require_whole(principal: Administrator) -> Principal:
    """An administrator of all documents: tokens and the chain are not limited to some."""
    if not principal.is_unrestricted:
        raise ProblemError(403, "This needs a token without labels.", "Use another token.")
    return principal


Whole = Annotated[Principal, Depends(require_whole)]


@router.post("/session", response_model=Principal)
async def log_in(request: Request, login: Login) -> Response:
    """Exchange a token for a cookie, for browsers."""
    find = access_of(request).of_token
    principal = await service_of(request).run(find, login.token.strip())
    if principal is None:
        raise ProblemError(401, "The token is not valid.", "Create one: lazyrag token create")
    request.state.principal = principal
    return await sign_in(request, JSONResponse(asdict(principal)), principal)


async def sign_in(request: Request, response: Response, principal: Principal) -> Response:
    """Set the cookie of a new browser session, and return the response."""
    session = await service_of(request).run(access_of(request).open_session, principal)
    path = request.scope.get("root_path") or "/"
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, session, SESSION_S, path=path, secure=secure, httponly=True, samesite="strict"
    )
    return response


@router.get("/session")
async def get_session(principal: Reader) -> Principal:
    """The principal of this request."""
    return principal


@router.delete("/session", status_code=204)
async def log_out(request: Request, _: Reader) -> Response:
    """End the browser session."""
    if session := request.cookies.get(COOKIE):
        await service_of(request).run(access_of(request).end_session, session)
    response = Response(status_code=204)
    response.delete_cookie(
        COOKIE, request.scope.get("root_path") or "/", httponly=True, samesite="strict"
    )
    return response


@router.get("/tokens")
async def list_tokens(request: Request, _: Whole) -> list[Token]:
    """All tokens, without their secrets."""
    return await service_of(request).run(access_of(request).tokens)


@router.post("/tokens", status_code=201)
async def create_token(request: Request, new: NewToken, principal: Whole) -> CreatedToken:
    """Create a token; its text is shown once."""
    create = access_of(request).create
    token, text = await service_of(request).run(create, **new.model_dump(), by=principal.id)
    return CreatedToken(token=token, text=text)


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(request: Request, token_id: str, principal: Whole) -> None:
    """Revoke a token and its sessions, from the next request on."""
    await service_of(request).run(access_of(request).revoke, token_id, by=principal.id)


@router.get("/audit")
async def list_audit(
    request: Request,
    principal: Administrator,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditPage:
    """Rows of the audit log, oldest first; a token with labels sees its own."""
    rows = await service_of(request).run(
        access_of(request).audit, principal, after=after, limit=limit
    )
    return AuditPage(rows=rows, next=rows[-1].id if len(rows) == limit else None)


@router.get("/audit/check")
async def check_audit(request: Request, _: Whole) -> AuditCheck:
    """Check the chain of hashes of the audit log."""
    return await service_of(request).run(access_of(request).verify_audit)
