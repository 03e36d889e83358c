"""Uploads: files in one multipart request, large files in parts, and the keys that make repeated
requests harmless.

Names of files are never paths. A received file is stored under the digest of its content, below the
service's state folder, so that another web process or a restart continues, and equal files are
stored once.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import re
import shutil
import time
import unicodedata
import uuid
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, create_model
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MAX_BOUNDARY_LENGTH, MultipartParser, parse_options_header
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from lazyrag.data.encoding import to_dict
from lazyrag.document import Document
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.ingest.sync import PlannedStep, SyncPlan, plan_files
from lazyrag.server.api.search import list_of, model_of
from lazyrag.server.core.body import Body as StrictModel
from lazyrag.server.core.guard import BOOK, job_key
from lazyrag.server.core.names import file_name
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, public_error
from lazyrag.server.core.service import Service, location_of, needs, service_of
from lazyrag.server.jobs import Jobs, documents_of
from lazyrag.storage.arrays import sync_folder
from lazyrag.types import State
from lazyrag.validation import normal_name

router = APIRouter(prefix="/api/v1", tags=["uploads"])

R = TypeVar("R")

KEPT_S = 24 * 3600
"""How long idempotency keys, unfinished uploads and files of failed jobs are kept."""
MOST_FILES = 1_000
"""In one multipart request."""
_MOST_FIELDS = 100
MOST_PARTS = 100_000
_GRACE_S = 60  # from the storing of a file to its job
_BLOCK = 1 << 20
_METADATA_BYTES = 1 << 20
_NAME_BYTES = 255
_SUFFIX = re.compile(r"(\.[A-Za-z0-9]{1,10}){1,2}$")
_ESCAPED = re.compile("%(?:22|0A|0D)")
"""What browsers send for a quotation mark and line breaks in the name of a file; they escape no
``%``."""
_OVERRIDES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that let a name look like another one."""

# Names and places


def checked_nesting(value: Any, most: int = 16) -> Any:
    """JSON that is not nested too deeply for those who read it.

    Raises:
        ValueError: If it is.
    """
    for one in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        if not most:
            raise ValueError("must not be nested more than 16 times")
        checked_nesting(one, most - 1)
    return value


Nested = Annotated[dict[str, Any], AfterValidator(checked_nesting)]
"""A JSON object, such as metadata."""
_METADATA = TypeAdapter(dict[str, Nested])


def checked_name(name: str) -> str:
    """The name of a file as the id of a document, in composed characters (NFC): a Mac sends
    decomposed ones.

    Raises:
        ProblemError: 422 if it leads elsewhere, or has characters that no name needs.

    Example:
        >>> checked_name("teas/green.md")
        'teas/green.md'
    """
    name = normal_name(name)
    shown = ascii(name[:80])
    remedy = "Use a relative name of at most 255 bytes with forward slashes."
    if not name.strip() or len(name.encode("utf-8", "surrogatepass")) > _NAME_BYTES:
        raise ProblemError(
            422, f"The name of a file must have 1 to {_NAME_BYTES} bytes; got {shown}.", remedy
        )
    if any(
        unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"} or one in _OVERRIDES for one in name
    ):
        raise ProblemError(422, f"The name {shown} contains control characters.", remedy)
    if "\\" in name or {"", ".", ".."} & set(name.split("/")):
        raise ProblemError(422, f"The name {shown} is no relative name.", remedy)
    return name


def stored_path(folder: Path, content_hash: str, name: str) -> Path:
    """Where a received file is stored; loaders need its suffix."""
    suffix = _SUFFIX.search(name)
    return folder / "files" / f"{content_hash}{suffix.group().lower() if suffix else ''}"


def uploaded_file(call: Call, identity: str) -> Path | None:
    """The uploaded file that a document's live version is made of; None if it was not uploaded."""
    table = call.whole._indexer.ledger.documents
    row = table.find(identity)
    if row is None or row.status != "live":
        return None
    live = next(
        (one.content_hash for one in table.versions(row.id) if one.number == row.version),
        row.content_hash,
    )
    path = stored_path(call.folder, live, identity)
    return path if live and path.is_file() else None


class FileResult(BaseModel):
    """What became of a file of a request: the id of its document, or the problem for which it is
    refused.
    """

    name: str
    id: str | None = None
    bytes: int = 0
    problem: dict[str, Any] | None = None
    content_hash: str = Field(default="", exclude=True)

    def refuse(self, problem: ProblemError) -> None:
        """Note why it is refused."""
        self.problem = {
            "status": problem.status,
            "detail": problem.detail,
            "remedy": problem.remedy,
        }


class Form:
    """A multipart request: files go to disk while they arrive, other fields to memory."""

    def __init__(self, content_type: str, folder: Path, limit: int) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or b"boundary" not in options:
            raise ProblemError(
                415, "Files must be sent as multipart/form-data.", "curl -F file=@tea.pdf does so."
            )
        self.files: list[FileResult] = []
        self.fields: dict[str, bytes] = {}
        self.is_complete = False
        self._folder = folder
        self._limit = limit
        # not among the files before there is a job for them
        self._drafts = folder / "incoming" / uuid.uuid4().hex
        self._out: BinaryIO | None = None
        self._hash = hashlib.blake2b(digest_size=16)
        self._field = ""
        self._line = b""
        self._disposition = b""
        names = "header_field header_value header_end headers_finished part_data part_end end"
        calls: Any = {f"on_{name}": getattr(self, f"_{name}") for name in names.split()}
        self._parser = MultipartParser(options[b"boundary"][:MAX_BOUNDARY_LENGTH], calls)

    def write(self, data: bytes) -> None:
        """Take a block of the body."""
        try:
            self._parser.write(data)
        except FormParserError as exc:
            raise ProblemError(
                422, f"The multipart body is malformed: {exc}.", "Send it again."
            ) from exc

    def store(self) -> None:
        """Give the accepted files their names."""
        (self._folder / "files").mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(self.files):
            if file.problem is None:
                os.utime(self._drafts / str(number))  # for `sweep`
                (self._drafts / str(number)).replace(
                    stored_path(self._folder, file.content_hash, file.name)
                )
        sync_folder(self._folder / "files")

    def close(self) -> None:
        """Remove what was not stored."""
        if self._out is not None:
            self._out.close()
        shutil.rmtree(self._drafts, ignore_errors=True)

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._line += data[start:end]

    _header_value = _header_field

    def _header_end(self) -> None:
        name = b"content-disposition"
        if self._line[: len(name)].lower() == name:
            self._disposition = self._line[len(name) :]
        self._line = b""

    def _headers_finished(self) -> None:
        options = parse_options_header(self._disposition)[1]
        self._disposition = b""
        self._field = (
            "" if b"filename" in options else options.get(b"name", b"").decode("utf-8", "replace")
        )
        if b"filename" not in options:
            if len(self.fields) > _MOST_FIELDS:
                raise ProblemError(
                    413, f"The form has more than {_MOST_FIELDS} fields.", "Send fewer."
                )
            return
        if len(self.files) == MOST_FILES:
            raise ProblemError(
                413, f"A request has at most {MOST_FILES} files.", "Send several requests."
            )
        sent = options[b"filename"].decode("utf-8", "replace")
        file = FileResult(name=_ESCAPED.sub(lambda match: unquote(match.group()), sent))
        self.files.append(file)
        try:
            file.name = checked_name(file.name)
        except ProblemError as problem:
            file.refuse(problem)
            return
        self._hash = hashlib.blake2b(digest_size=16)
        self._drafts.mkdir(parents=True, exist_ok=True)
        self._out = (self._drafts / str(len(self.files) - 1)).open("xb")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field:
            self.fields[self._field] = self.fields.get(self._field, b"") + data[start:end]
            if sum(map(len, self.fields.values())) > _METADATA_BYTES:
                raise ProblemError(
                    413, f"The field {self._field!a:.80} is too large.", "At most 1 MiB is allowed."
                )
        elif self._out is not None:
            file = self.files[-1]
            file.bytes += end - start
            if file.bytes <= self._limit:
                _write(self._out, memoryview(data)[start:end], self._hash)
            elif file.problem is None:
                file.refuse(_too_large(self._limit))
                self._out.truncate(0)

    def _part_end(self) -> None:
        if self._out is not None:
            self.files[-1].content_hash = self._hash.hexdigest()
            self._out.flush()
            os.fsync(self._out.fileno())
            self._out.close()
            self._out = None

    def _end(self) -> None:
        self.is_complete = True


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[BinaryIO]:
    """A file in the making, which is removed unless it is stored."""
    path = folder / "incoming" / uuid.uuid4().hex
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as out:
            yield out
    finally:
        path.unlink(missing_ok=True)


def _write(out: BinaryIO, block: bytes | memoryview, *digests: Any) -> None:
    out.write(block)
    for digest in digests:
        digest.update(block)


def _store(out: BinaryIO, path: Path) -> None:
    """Give a complete file its name, durably."""
    out.flush()
    os.fsync(out.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(out.name).replace(path)
    sync_folder(path.parent)


def assemble(
    folder: Path, parts: Iterable[Path], name: str, digest: Any, expected: str | None
) -> str:
    """Put parts together to a stored file, and return its content hash.

    Args:
        folder: Of the uploads.
        parts: Files with the parts.
        name: Of the file.
        digest: A new object of `hashlib`.
        expected: The digest of the whole; None for any.

    Raises:
        ProblemError: 422 if it has another digest.
    """
    content = hashlib.blake2b(digest_size=16)
    with _draft(folder) as out:
        for one in parts:
            with one.open("rb") as part:
                while block := part.read(_BLOCK):
                    _write(out, block, content, digest)
        if expected not in {None, digest.hexdigest()}:
            msg = f"The file has another digest ({digest.name}) than was declared."
            raise ProblemError(422, msg, "Delete the upload and begin again.")
        _store(out, stored_path(folder, content.hexdigest(), name))
    return content.hexdigest()


def _save(folder: Path, path: Path, value: Any) -> None:
    """Write a JSON file, complete or not at all."""
    with _draft(folder) as out:
        out.write(json.dumps(value).encode())
        _store(out, path)


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """The body in blocks that are worth a change of threads."""
    block = bytearray()
    async for chunk in request.stream():
        block += chunk
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


# Requests about a set


IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]


@dataclass(frozen=True, slots=True)
class Call:
    """A request about a set.

    Args:
        request: The request.
        service: The service.
        name: The set.
        principal: Who sends it.
        docs: The set as the principal sees it.
        given_key: The ``Idempotency-Key``.
    """

    request: Request
    service: Service
    name: str
    principal: Principal
    docs: Document
    given_key: str | None

    @property
    def whole(self) -> Document:
        """The set with everything in it: for jobs, and for what was checked before."""
        return self.service.sets[self.name]

    @property
    def folder(self) -> Path:
        """The folder of the set's uploads; hidden, as a sync of a folder around it must not see
        it.
        """
        return self.service.state / "uploads" / f".set-{file_name(self.name)}"

    async def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """See `Service.run`."""
        return await self.service.run(function, *args, **kwargs)

    async def run_slow(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Run what takes seconds, a few calls at a time."""
        async with self.service.slow:
            return await self.service.run(function, *args, **kwargs)

    def find(self, identity: str) -> Any:
        """A visible document; None if there is none."""
        try:
            return self.public(self.docs.documents(ids=[identity])[0])
        except (ConfigError, NotRegisteredError):
            return None

    def public(self, found: Any) -> Any:
        """A document with its error as the principal may see it."""
        return replace(
            found, error=public_error(found.error, is_operator=self.principal.may("admin"))
        )

    async def visible(self, *identities: str) -> Any:
        """The last of some documents.

        Raises:
            ProblemError: 404; a hidden document is an unknown one.
        """
        found = None
        for identity in identities:
            found = await self.run(self.find, identity)
            if found is None:
                raise ProblemError(
                    404, f"There is no document {identity!a}.", "List the documents of the set."
                )
        return found

    def key(self, *parts: Any) -> str:
        """The key of a job that the principal submits; for 24 hours the same one for the same
        ``Idempotency-Key``.

        See `job_key`; `owns` recognises it.

        Args:
            parts: What the request wants.

        Raises:
            ProblemError: 422 if the key came with another request before.
        """
        nonce = uuid.uuid4().hex
        if self.given_key is not None:
            digest = digest_of(self.name, *parts)
            name = hashlib.sha256(f"{self.principal.id}\0{self.given_key}".encode()).hexdigest()
            path = self.service.state / "keys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # a missing one may be another request's a moment later
            if KEPT_S < _age(path) < float("inf"):
                path.unlink(missing_ok=True)
            with _draft(self.folder) as out, contextlib.suppress(FileExistsError):
                out.write(f"{digest} {nonce}".encode())
                out.flush()
                os.link(out.name, path)  # complete at once, and only if there is none
            before, nonce = path.read_text(encoding="ascii").split()
            if before != digest:
                msg = "This Idempotency-Key was sent with another request."
                raise ProblemError(422, msg, "Send a new key with each new request.")
        return self.key_of(nonce)

    def key_of(self, nonce: str) -> str:
        """The key of a job of the principal."""
        return job_key(self.principal.id, self.principal.labels, nonce)

    def owns(self, job: Any) -> bool:
        """Whether the principal may see a job: its own, or, as an administrator of all documents,
        any.
        """
        if self.principal.may("admin") and self.principal.labels is None:
            return True
        return str(job.key or "").startswith(self.key_of(""))

    def job(self, job_id: str) -> Any:
        """A job that the principal may see; None if there is none."""
        jobs = Jobs(self.whole)
        if self.principal.labels is not None:
            return jobs.find(self.key_of(job_id))
        with contextlib.suppress(NotRegisteredError):
            job = jobs.get(job_id)
            return job if self.owns(job) else None
        return None

    def job_id(self, job: Any) -> str:
        """The id under which the principal knows a job: numbers would count the jobs of others."""
        return str(job.id if self.principal.labels is None else job.key.rpartition(":")[2])

    def shown(self, job: Any) -> dict[str, Any]:
        """A job as JSON, without its key and the server's paths."""
        found: dict[str, Any] = to_dict(job) | {"id": self.job_id(job)}
        del found["key"]
        found["arguments"].pop("folders", None)
        if isinstance(found["arguments"].get("files"), dict):
            found["arguments"]["files"] = list(found["arguments"]["files"])
        return found

    async def accept(self, kind: str, arguments: Mapping[str, Any], **more: Any) -> Response:
        """Submit a job, and answer 202 with it."""

        def submit() -> Any:
            return Jobs(self.whole).submit(kind, dict(arguments), key=self.key(kind, arguments))

        return self.accepted(await self.run(submit), **more)

    def accepted(self, job: Any, **more: Any) -> Response:
        """The response with a submitted job; what is not needed any more of the uploads is removed
        after it.
        """
        self.request.state.documents = documents_of(job.kind, job.arguments)  # for the audit log
        headers = location_of(self.request, "get_job", set=self.name, job_id=self.job_id(job))
        response = reply(
            {**more, "job": self.shown(job)} if more else self.shown(job), 202, headers=headers
        )
        response.background = BackgroundTask(self.run_slow, sweep, self)
        return response

    def owned(self, name: str, metadata: Mapping[str, Any], key: str) -> tuple[str, dict[str, Any]]:
        """The id and the metadata with which the principal adds a document.

        A principal with labels replaces only what it sees. Everything else it adds gets a new id,
        whether or not there is a hidden document of that name, and its labels.

        Raises:
            ProblemError: 403 for labels that it does not have.
        """
        name = normal_name(name)
        if self.principal.labels is None:
            return name, dict(metadata)
        known = self.find(name)
        mine = set(self.principal.labels if known is None else known.labels)
        given = metadata.get("labels", sorted(mine))
        is_list = (
            isinstance(given, list) and all(isinstance(one, str) for one in given) and bool(given)
        )
        if not is_list or not set(given) <= mine or (known is not None and set(given) != mine):
            raise ProblemError(
                403,
                "The token does not allow these labels.",
                f"Allowed: {', '.join(sorted(mine))}.",
            )
        prefix = hashlib.blake2b(f"{key}/{name}".encode(), digest_size=4).hexdigest()
        return name if known is not None else f"~{prefix}/{name}", {**metadata, "labels": given}


def _call(scope: str) -> Any:
    allowed = needs(scope)

    async def make(
        request: Request,
        set: str,  # noqa: A002  the word of the paths
        principal: Principal = allowed,
        idempotency_key: IdempotencyKey = None,
    ) -> Call:
        service = service_of(request)
        return Call(request, service, set, principal, service.view(set, principal), idempotency_key)

    return Depends(make)


Reading = Annotated[Call, _call("read")]
Writing = Annotated[Call, _call("write")]
Administration = Annotated[Call, _call("admin")]


def digest_of(*parts: Any) -> str:
    """A digest of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def reply(value: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON; ASCII, as file names may have bytes that are no UTF-8."""
    return Response(json.dumps(to_dict(value)), status, dict(headers or {}), "application/json")


# Multipart


class JobModel(BaseModel):
    """A job, see `lazyrag.document.Job`."""

    id: str
    kind: str
    arguments: dict[str, Any]
    state: State
    attempts: int
    progress: dict[str, Any] | None
    error: dict[str, Any] | None
    result: dict[str, Any] | None
    created: dt.datetime
    updated: dt.datetime
    heartbeat: dt.datetime | None


_Added = create_model("AddedFiles", files=(list[FileResult], ...), job=(JobModel, ...))
_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}
_TEXT = {"type": "string", "description": "JSON: metadata by name of file"}
_SCHEMA = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": _FILES, "metadata": _TEXT},
}
_Estimate = create_model(
    "Estimate",
    files=(Any, ...),
    steps=(list_of(model_of(PlannedStep)), ...),
    calls=(int, ...),
    tokens=(int, ...),
    cost=(float | None, ...),
)
ESTIMATED: dict[int | str, dict[str, Any]] = {
    200: {"model": _Estimate, "description": "With `dry_run=1`."}
}
_FORM = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _SCHEMA}}}}


@router.post(
    "/sets/{set}/documents",
    status_code=202,
    response_model=_Added,
    responses=ESTIMATED,
    openapi_extra=_FORM,
)
async def upload_files(
    call: Writing, dry_run: bool = False, price: Annotated[float, Query(ge=0)] = 0
) -> Response:
    """Add files; each one gets its own result, and a file that is refused does not hold up the
    others.

    With ``dry_run=1`` nothing is added: the response estimates model calls, tokens and, at a
    ``price`` of a million embedded tokens, cost.
    """
    form = await receive_form(call.request, call.service, call.folder)
    metadata = _metadata_field(form.fields.get("metadata", b"{}"))
    key = await call.run(
        call.key, [(one.name, one.content_hash, one.bytes) for one in form.files], metadata
    )
    return await add_files(call, form.files, metadata, key, price if dry_run else None)


async def receive_form(
    request: Request, service: Service, folder: Path, check: Callable[[Form], Any] = lambda _: None
) -> Form:
    """Receive a multipart request; its files are stored below a folder, unless a check raises an
    error.

    Raises:
        ProblemError: If it has no files, or is none.
    """
    form = Form(request.headers.get("content-type", ""), folder, service.upload_bytes)
    try:
        async for block in _blocks(request):
            await service.run(form.write, block)
        if not form.is_complete or not form.files:
            raise ProblemError(
                422, "The form has no files, or ends early.", "Send at least one file."
            )
        check(form)
        await service.run(form.store)
    except ClientDisconnect as exc:
        raise ProblemError(400, "The request was cut off.", "Send it again, or in parts.") from exc
    finally:
        await service.run(form.close)
    return form


def _metadata_field(text: bytes) -> dict[str, dict[str, Any]]:
    try:
        by_name = _METADATA.validate_json(text)
    except ValidationError as exc:
        remedy = 'Such as {"tea.pdf": {"year": 2025}}.'
        raise ProblemError(
            422, "The field metadata must be a JSON object by name of file.", remedy
        ) from exc
    return {normal_name(name): metadata for name, metadata in by_name.items()}


async def add_files(
    call: Call,
    files: list[FileResult],
    metadata: Mapping[str, Mapping[str, Any]],
    key: str,
    price: float | None = None,
) -> Response:
    """Submit the job that adds received files; with a price, estimate it."""
    paths: dict[str, str] = {}
    given: dict[str, dict[str, Any]] = {}

    def arrange(file: FileResult) -> None:
        identity, own = call.owned(file.name, metadata.get(file.name, {}), key)
        if identity in paths:
            raise ProblemError(
                409, "Another file of the request has this name.", "Rename one of them."
            )
        file.id = identity
        paths[identity] = str(stored_path(call.folder, file.content_hash, file.name))
        given.update({identity: own} if own else {})

    require_named(metadata, {file.name for file in files}, "files")
    for file in files:
        try:
            if file.problem is None:
                await call.run(arrange, file)
        except ProblemError as problem:
            file.refuse(problem)
    results = [file.model_dump() for file in files]
    if not paths:
        raise ProblemError(**next(file.problem for file in files if file.problem), files=results)
    if price is not None:
        plan = await call.run_slow(plan_files, call.whole._indexer, paths)
        return reply({"files": results, **estimate(call, plan, price)})
    job = await call.run(
        Jobs(call.whole).submit, "add_files", {"files": paths, "metadata": given}, key=key
    )
    return call.accepted(job, files=results)


def require_named(metadata: Iterable[str], names: Container[str], what: str) -> None:
    """Refuse metadata of what is not sent: labels of a misspelt name would be lost.

    Raises:
        ProblemError: 422.
    """
    for one in metadata:
        if one not in names:
            raise ProblemError(
                422, f"metadata names {one!a}, which is none of the {what}.", "Use the same names."
            )


def estimate(call: Call, plan: SyncPlan, price: float) -> dict[str, Any]:
    """What a plan says; to a principal with labels only of its own files, as the rest extrapolates
    from all others.
    """
    steps = [one for one in plan.steps if call.principal.labels is None or one.step == "load"]
    tokens = sum(one.tokens for one in steps if one.step.startswith("embed "))
    cost = tokens * price / 1e6 if price else None
    return {
        "steps": steps,
        "calls": sum(one.calls for one in steps),
        "tokens": tokens,
        "cost": cost,
    }


# In parts


class NewUpload(StrictModel):
    """A file that will arrive in parts."""

    name: str
    size: int = Field(ge=1)
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    part_size: int = Field(default=8 << 20, ge=1 << 16, le=1 << 30)
    metadata: Nested = Field(default_factory=dict)


class UploadState(BaseModel):
    """An upload: the numbers of the parts that have arrived, of ``parts``."""

    id: str
    name: str
    size: int
    part_size: int
    parts: int
    received: list[int]


class _Upload:
    """An unfinished upload, as files in a folder: what was declared, and the parts that have
    arrived.

    Raises:
        ProblemError: 404 if there is none, or it belongs to another principal.
    """

    def __init__(self, call: Call, upload_id: str) -> None:
        self.id = upload_id
        self.set_folder = call.folder
        self.folder = call.folder / "unfinished" / upload_id
        try:
            is_id = re.fullmatch("[0-9a-f]{32}", upload_id) is not None
            self.about = (
                json.loads((self.folder / "about").read_text(encoding="utf-8")) if is_id else {}
            )
        except FileNotFoundError:
            self.about = {}
        if self.about.get("principal") != call.principal.id:
            msg = f"There is no unfinished upload {upload_id!a}."
            raise ProblemError(404, msg, "Uploads are kept for 24 hours; begin another one.")
        self.parts = -(-self.about["size"] // self.about["part_size"])

    def state(self) -> UploadState:
        """What has arrived."""
        received = sorted(int(path.stem) for path in self.folder.glob("*.part"))
        about = {one: self.about[one] for one in ("name", "size", "part_size")}
        return UploadState(id=self.id, parts=self.parts, received=received, **about)

    def complete(self) -> FileResult:
        """Put the parts together, check the whole and store it. Idempotent.

        Raises:
            ProblemError: 409 if parts are missing, 422 if the whole has another digest than was
                declared.
        """
        about = self.about
        known = about.get("content_hash", "")
        if not known or not stored_path(self.set_folder, known, about["name"]).exists():
            missing = sorted({*range(1, self.parts + 1)} - {*self.state().received})
            if missing:
                msg = f"{len(missing)} of {self.parts} parts are missing."
                raise ProblemError(
                    409, msg, "Send them, then complete the upload.", missing=missing[:1000]
                )
            parts = [self.folder / f"{number}.part" for number in range(1, self.parts + 1)]
            about["content_hash"] = assemble(
                self.set_folder, parts, about["name"], hashlib.sha256(), about["sha256"]
            )
            _save(self.set_folder, self.folder / "about", about)
        return FileResult(
            name=about["name"], bytes=about["size"], content_hash=about["content_hash"]
        )

    def remove_parts(self) -> None:
        """Give back their space."""
        for path in self.folder.glob("*.part"):
            path.unlink(missing_ok=True)


def _too_large(limit: int) -> ProblemError:
    return ProblemError(
        413, f"The file has more than {limit:,} bytes.", "Split it, or raise the service's limit."
    )


@router.post("/sets/{set}/uploads", status_code=201)
async def begin_upload(call: Writing, upload: NewUpload) -> UploadState:
    """Begin an upload in parts of ``part_size`` bytes; the last part is smaller."""
    upload = upload.model_copy(update={"name": checked_name(upload.name)})
    if upload.size > call.service.upload_bytes:
        raise _too_large(call.service.upload_bytes)
    if -(-upload.size // upload.part_size) > MOST_PARTS:
        raise ProblemError(
            422, f"An upload has at most {MOST_PARTS:,} parts.", "Use a larger part_size."
        )

    def begin() -> UploadState:
        sweep(call)
        upload_id = call.key("upload", upload.model_dump()).rpartition(":")[2]
        about = call.folder / "unfinished" / upload_id / "about"
        if not about.exists():
            _save(call.folder, about, {**upload.model_dump(), "principal": call.principal.id})
        return _Upload(call, upload_id).state()

    return await call.run(begin)


@router.get("/sets/{set}/uploads/{upload_id}")
async def get_upload(call: Writing, upload_id: str) -> UploadState:
    """List the parts that have arrived, to continue after a cut."""
    return await call.run(lambda: _Upload(call, upload_id).state())


@router.put("/sets/{set}/uploads/{upload_id}/parts/{number}", status_code=204)
async def put_part(
    call: Writing,
    upload_id: str,
    number: int,
    x_content_sha256: Annotated[str, Header(pattern="^[0-9a-f]{64}$")],
) -> None:
    """Send a part, in any order; sending it again replaces it. ``X-Content-SHA256`` is checked on
    arrival.
    """
    upload = await call.run(_Upload, call, upload_id)
    if not 1 <= number <= upload.parts or "content_hash" in upload.about:
        raise ProblemError(422, f"The upload takes parts 1 to {upload.parts} until it is complete.")
    start = (number - 1) * upload.about["part_size"]
    size = upload.about["part_size"]
    expected = min(size, upload.about["size"] - start)
    digest = hashlib.sha256()
    done = 0
    with _draft(call.folder) as out:
        try:
            async for block in _blocks(call.request):
                done += len(block)
                if done > expected:
                    break
                await call.run(_write, out, block, digest)
        except ClientDisconnect as exc:
            raise ProblemError(400, "The request was cut off.", "Send the part again.") from exc
        if done != expected or digest.hexdigest() != x_content_sha256:
            msg = (
                f"Part {number} must have {expected:,} bytes with the given SHA-256; {done:,}"
                " arrived."
            )
            raise ProblemError(422, msg, "Send the part again.")
        await call.run(_store, out, upload.folder / f"{number}.part")


@router.post("/sets/{set}/uploads/{upload_id}/complete", status_code=202, response_model=_Added)
async def complete_upload(call: Writing, upload_id: str) -> Response:
    """Check the file and add it; may be repeated."""
    upload = await call.run(_Upload, call, upload_id)
    file = await call.run_slow(upload.complete)
    answer = await add_files(
        call, [file], {file.name: upload.about["metadata"]}, call.key_of(upload_id)
    )
    await call.run(upload.remove_parts)  # not before there is a job
    return answer


@router.delete("/sets/{set}/uploads/{upload_id}", status_code=204)
async def delete_upload(call: Writing, upload_id: str) -> None:
    """Abort an upload."""
    upload = await call.run(_Upload, call, upload_id)
    await call.run(shutil.rmtree, upload.folder)


# Removal


def sweep(call: Call, *, every_s: float = 60) -> None:
    """Remove what is not needed any more of a set's uploads: unfinished ones, and files of deleted
    documents.

    Args:
        call: A request about the set.
        every_s: Do nothing if this or another process did so less than so many seconds ago.
    """
    folder = call.folder
    stamp = folder / "swept"
    if _age(stamp) < every_s or not folder.exists():
        return
    stamp.touch()
    for old in [
        *folder.glob("unfinished/*"),
        *folder.glob("incoming/*"),
        *call.service.state.glob("keys/*"),
    ]:
        if _age(old) > KEPT_S:
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
    files = [path for path in folder.glob("files/*") if _age(path) > _GRACE_S]
    if not files:
        return
    docs = call.whole
    needed = {path for state in _PENDING for path in _job_files(docs, state)}
    hashes = docs._indexer.ledger.documents.content_hashes()
    for path in files:
        if (
            path.name.partition(".")[0] not in hashes
            and str(path) not in needed
            and _age(path) > _GRACE_S
        ):
            path.unlink(missing_ok=True)


def purge_arguments(call: Call, identity: str) -> dict[str, Any]:
    """Remove the files of a document, and return the arguments of the job that purges it and
    searches all places.
    """
    remove_files(call, identity)
    state = call.service.state
    places = (call.folder, state / "uploads" / ".openai", state / BOOK, state / "openai.db")
    return {"document": identity, "folders": [str(one) for one in places if one.exists()]}


def remove_files(call: Call, identity: str) -> None:
    """Remove the uploaded files of a document's versions, except those that other documents are
    made of.

    Those of versions that are not stored go as `sweep` removes them: a minute after they arrived.
    """
    sweep(call, every_s=0)
    table = call.whole._indexer.ledger.documents
    rows = table.all()
    row = rows.pop(identity, None)
    if row is not None:
        own = {row.content_hash, *(one.content_hash for one in table.versions(row.id))}
        for digest in own - {one.content_hash for one in rows.values()} - {""}:
            for path in call.folder.glob(f"files/{digest}*"):
                path.unlink(missing_ok=True)
        for about in call.folder.glob("unfinished/*/about"):  # it has the name
            if json.loads(about.read_text(encoding="utf-8")).get("content_hash") in own:
                shutil.rmtree(about.parent)


_PENDING = ("WAITING", "WORKING", "FAILED", "CANCELED")


def _job_files(docs: Document, state: Any) -> Iterator[str]:
    """The files of jobs that wait, or may be retried."""
    after = None
    while page := Jobs(docs).list(after=after, limit=500, state=state):
        for job in page:
            if job.kind == "add_files" and (
                state in _PENDING[:2] or time.time() - job.updated.timestamp() < KEPT_S
            ):
                yield from job.arguments["files"].values()
        after = page[-1].id


def _age(path: Path) -> float:
    """Seconds since a file was changed; no end of them for one that does not exist."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
