"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import errno
import json
import logging
import re
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Scope

import lazyrag.errors as all_errors
from lazyrag.data.encoding import ErrorInfo
from lazyrag.errors import LazyRAGError
from lazyrag.server.core.config import expectation
from lazyrag.types import JsonObject

log = logging.getLogger("lazyrag.server")
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
}
_UPSTREAM: Mapping[type[LazyRAGError], tuple[int, str]] = {
    all_errors.EmbeddingError: (502, "The embedding model of the service failed."),
    all_errors.GenerationError: (502, "The chat model of the service failed."),
    all_errors.TransformError: (500, "A transform of the service failed."),
    all_errors.RetrievalError: (500, "The service failed to search."),
    all_errors.StoreBusyError: (503, "Another program writes the store of the service."),
    all_errors.StoreConnectionError: (503, "A store of the service does not answer."),
    all_errors.StoreError: (500, "A store of the service failed."),
    LazyRAGError: (500, "The service failed."),
}
"""Errors whose messages may have the text, the address or a secret of another system: only the log
has them."""
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


_STEP = re.compile(r"(index|embed|transform) (.+?)(?: with (.+))?")
"""What a set's writer has to do, see `Step`."""
_OPTIONS = {"index": "analysers", "embed": "embed_keys"}


def local_path(scope: Scope) -> str:
    """The path of a request below the path of a proxy."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


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
        self,
        status: int,
        detail: str,
        remedy: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.remedy = remedy
        self.headers = dict(headers or {})
        self.more = more

    @property
    def message(self) -> str:
        """What is wrong and the way out."""
        return f"{self.detail} {self.remedy}".strip()

    def response(self, scope: Scope) -> Response:
        """The response to a request: ``application/problem+json``, or what OpenAI's clients read.

        Args:
            scope: The request, see ASGI.
        """
        path = scope["path"]
        headers = self.headers
        face = f"{local_path(scope)}/".split("/")[1]
        if face == "v1":
            status = _OPENAI_STATUS.get(self.status, self.status)
            body = self.as_openai()
            kind = "application/json"
        else:
            status = self.status
            kind = "application/problem+json"
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
                body |= {
                    "error_code": self._dify_code(scope),
                    "error_msg": self.message,
                }
            elif face == "v2":  # Cohere's
                body["message"] = self.message
        # it may quote half a surrogate pair
        text = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        return Response(text, status, headers, kind)

    def _dify_code(self, scope: Scope) -> int:
        has_token = any(
            name == b"authorization" and b" " in value.strip() for name, value in scope["headers"]
        )
        return {401: 1002 if has_token else 1001, 403: 1002, 404: 2001}.get(
            self.status, self.status
        )

    def as_openai(self) -> JsonObject:
        """The error as OpenAI writes it; ``param`` and ``code`` are extension members of the
        problem.
        """
        kind, code = _OPENAI_TYPES.get(
            self.status, ("server_error" if self.status >= 500 else _INVALID, None)
        )
        fields = [error["field"].partition(".")[2] for error in self.more.get("errors", ())]
        named = {
            "param": self.more.get("param", next(iter(fields), None)),
            "code": self.more.get("code", code),
        }
        return {"error": {"message": self.message, "type": kind, **named}}


def try_again(status: int, detail: str) -> ProblemError:
    """The problem of what will work in a moment."""
    return ProblemError(status, detail, "Try again in a moment.", headers={"Retry-After": "1"})


def problem_of(error: Exception) -> ProblemError:
    """The problem that an error becomes.

    What is no error of this package, or may come from another system, says nothing of its text:
    that goes to the log.
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return ProblemError(
            422, "A text has half a surrogate pair, which is no character.", "Send valid Unicode."
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return ProblemError(
            507, "The disk of the service is full.", "Free some space, and send the request again."
        )
    refused = str(error).partition(" cannot ")[2].partition(":")[0]
    if refused and isinstance(error, all_errors.ReadOnlyError):
        return ProblemError(
            409,
            f"The set's writer has not done this yet: {refused}.",
            _activation(refused),
            error="ReadOnlyError",
        )
    return _known_problem(error) or ProblemError(
        500,
        "An unexpected error occurred.",
        "The service's log has the details under the request id.",
    )


def _activation(step: str) -> str:
    """The request that does a step of ingestion."""
    match = _STEP.fullmatch(step)
    if match is None:
        return "Load the documents: POST /api/v1/sets/NAME/sync."
    kind, group, option = match.groups()
    body = {"names": [group]} | ({_OPTIONS[kind]: [option]} if option else {})
    return f"Build it: POST /api/v1/sets/NAME/activate with {json.dumps(body)}."


def _known_problem(error: Exception) -> ProblemError | None:
    """The problem of an error of this package; None for others."""
    for kind in type(error).__mro__:
        if kind in _UPSTREAM:
            status, detail = _UPSTREAM[kind]
            number = secrets.token_hex(4)
            log.error("error %s: %s: %s", number, type(error).__name__, error)
            remedy = f"The service's log has the details under {number}."
            headers = {"Retry-After": "1"} if status == 503 else None
            return ProblemError(status, detail, remedy, headers=headers, error=type(error).__name__)
        if kind in _STATUS:
            info = ErrorInfo.from_message(kind.__name__, _PLACE.sub("", str(error)))
            detail = all_errors.sentence(info.detail)
            return ProblemError(_STATUS[kind], detail, info.remedy, error=type(error).__name__)
    return None


def public_error(error: ErrorInfo | None, *, is_operator: bool) -> ErrorInfo | None:
    """A stored error as a principal may see it: only operators see what may come from another
    system.
    """
    if error is None or is_operator:
        return error
    kind = getattr(all_errors, error.type, None)
    classes = kind.__mro__ if isinstance(kind, type) else ()
    if any(cls in _STATUS for cls in classes):
        return error
    details = [_UPSTREAM[cls][1] for cls in classes if cls in _UPSTREAM]
    detail = details[0] if details else "An unexpected error occurred."
    return ErrorInfo(error.type, detail, "Ask the operator of the service, who sees the details.")


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
    expected = expectation(error)
    return f"{name} {expected}" if expected.startswith("must") else f"{name}: {expected}"


def with_problems(document: JsonObject) -> JsonObject:
    """Describe problems in an OpenAPI document: the response of every operation where no other is
    described.
    """
    texts = ("type", "title", "detail", "remedy", "instance", "request_id")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemDetails"] = {
        "type": "object",
        "description": "An error (RFC 9457). `remedy` is the way out, or empty.",
        "properties": {
            **{name: {"type": "string"} for name in texts},
            "status": {"type": "integer"},
        },
        "required": [*texts, "status"],
    }
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            content = {"application/problem+json": {"schema": schema}}
            operation["responses"].setdefault(
                "default", {"description": "A problem.", "content": content}
            )
    return document
