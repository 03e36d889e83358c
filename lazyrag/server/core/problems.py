"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

import lazyrag.errors as all_errors
from lazyrag.data.encoding import ErrorInfo
from lazyrag.errors import LazyRAGError
from lazyrag.server.core.config import expectation

_STATUS: Mapping[type[LazyRAGError], int] = {
    all_errors.NotRegisteredError: 404,
    all_errors.DatasetPathError: 404,
    all_errors.StaleNodeError: 404,
    all_errors.AlreadyRegisteredError: 409,
    all_errors.SchemaMismatchError: 409,
    all_errors.ReadOnlyError: 409,
    all_errors.ConfigError: 400,
    all_errors.MissingDependencyError: 501,
    all_errors.UnsupportedError: 501,
    all_errors.LoadError: 422,
    all_errors.StoreBusyError: 503,
    all_errors.StoreConnectionError: 503,
    all_errors.EmbeddingError: 502,
    all_errors.GenerationError: 502,
}
_PLACE = re.compile(r"\s*\((in <)?Document '.*$", re.DOTALL)
"""The end of a message that names the Document's folder."""
_INVALID = "invalid_request_error"
_OPENAI_STATUS = {422: 400}  # its clients raise BadRequestError for what is not valid
_OPENAI_TYPES: Mapping[int, tuple[str, str | None]] = {
    401: (_INVALID, "invalid_api_key"),
    403: (_INVALID, "insufficient_permissions"),
    404: (_INVALID, "not_found"),
    429: ("requests", "rate_limit_exceeded"),
    507: ("insufficient_quota", "insufficient_quota"),
}


_BUILD = """Build it: POST /api/v1/sets/NAME/activate, such as {"names": ["FineChunk"]}."""


class ProblemError(Exception):
    """An error with its HTTP status.

    Args:
        status: The HTTP status, 400 to 599.
        detail: What is wrong, in one sentence.
        remedy: The way out, in one sentence; "" for none.
        headers: Headers of the response.
        more: Extension members of the problem.
    """

    def __init__(
        self, status: int, detail: str, remedy: str = "", *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.remedy = remedy
        self.headers = dict(headers or {})
        self.more = more

    def response(self, scope: Mapping[str, Any]) -> Response:
        """The response to a request: ``application/problem+json``, or what OpenAI's clients read.

        Args:
            scope: The request, see ASGI.
        """
        path, headers = scope["path"], self.headers
        face = f"{path.removeprefix(scope.get('root_path', '').rstrip('/'))}/".split("/")[1]
        if face == "v1":
            status, body, kind = _OPENAI_STATUS.get(self.status, self.status), self.as_openai(), "application/json"
        else:
            status, kind = self.status, "application/problem+json"
            body = {
                "type": "about:blank",
                "title": HTTPStatus(status).phrase,  # as RFC 9457 wants it of "about:blank"
                "status": status,
                "detail": self.detail,
                "remedy": self.remedy,
                "instance": path,
                "request_id": scope["state"]["request_id"],
                **self.more,
            }
            if face == "dify":  # which takes any status but 403 and 404 for a good token
                status = 403 if status == 401 else status
                body |= {"error_code": self._dify_code(scope), "error_msg": f"{self.detail} {self.remedy}".strip()}
            elif face == "v2":  # Cohere's
                body["message"] = f"{self.detail} {self.remedy}".strip()
        text = json.dumps(body, ensure_ascii=False).encode(errors="replace")  # it may quote half a surrogate pair
        return Response(text, status, headers, kind)

    def _dify_code(self, scope: Mapping[str, Any]) -> int:
        has_token = any(name == b"authorization" and b" " in value.strip() for name, value in scope["headers"])
        return {401: 1002 if has_token else 1001, 403: 1002, 404: 2001}.get(self.status, self.status)

    def as_openai(self) -> dict[str, Any]:
        """The error as OpenAI writes it; ``param`` and ``code`` are extension members of the problem."""
        kind, code = _OPENAI_TYPES.get(self.status, ("server_error" if self.status >= 500 else _INVALID, None))
        fields = [one["field"].partition(".")[2] for one in self.more.get("errors", ())]
        named = {"param": self.more.get("param", next(iter(fields), None)), "code": self.more.get("code", code)}
        return {"error": {"message": f"{self.detail} {self.remedy}".strip(), "type": kind, **named}}


def problem_of(error: Exception) -> ProblemError:
    """The problem that an error becomes; what is no error of this package says nothing of its text."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return ProblemError(422, "A text has half a surrogate pair, which is no character.", "Send valid Unicode.")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return ProblemError(507, "The disk of the service is full.", "Free some space, and send the request again.")
    what = str(error).partition(" cannot ")[2].partition(":")[0]
    if what and isinstance(error, all_errors.ReadOnlyError):
        return ProblemError(409, f"The set's writer has not done this yet: {what}.", _BUILD, error="ReadOnlyError")
    for kind in type(error).__mro__:
        if kind in _STATUS or kind is LazyRAGError:
            status = _STATUS.get(kind, 500)
            found = ErrorInfo.from_message(kind.__name__, _PLACE.sub("", str(error)))
            headers = {"Retry-After": "1"} if status == 503 else None
            detail = all_errors.sentence(found.detail)
            return ProblemError(status, detail, found.remedy, headers=headers, error=type(error).__name__)
    return ProblemError(500, "An unexpected error occurred.", "The service's log has the details under the request id.")


def describe_field(error: Mapping[str, Any]) -> str:
    """Describe an error of pydantic: ``topk must be greater than or equal to 1; got 0``."""
    where, *path = map(str, error["loc"])
    name = ".".join(path) or f"The {where}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is no field of the {where}"
    if error["type"] == "json_invalid":
        return f"The body is no valid JSON ({error['ctx']['error']} at character {name})"
    found = expectation(error)
    return f"{name} {found}" if found.startswith("must") else f"{name}: {found}"


def with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """Describe problems in an OpenAPI document: the response of every operation where no other is described."""
    texts = ("type", "title", "detail", "remedy", "instance", "request_id")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemDetails"] = {
        "type": "object",
        "description": "An error (RFC 9457). `remedy` is the way out, or empty.",
        "properties": {**{name: {"type": "string"} for name in texts}, "status": {"type": "integer"}},
        "required": [*texts, "status"],
    }
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            content = {"application/problem+json": {"schema": schema}}
            operation["responses"].setdefault("default", {"description": "A problem.", "content": content})
    return document
