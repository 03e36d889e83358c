"""Uploads: files in one multipart request, large files in parts, and the keys that make repeated
requests harmless.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from lazyrag.document.document import indexer_of
from lazyrag.ingest.sync import PlannedStep, SyncPlan, plan_files
from lazyrag.server.api.search import list_of, model_of
from lazyrag.server.core.body import Body as StrictModel
from lazyrag.server.core.body import make_model
from lazyrag.server.core.guard import BOOK
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Service
from lazyrag.server.core.set_request import SetRequest, Writing, reply
from lazyrag.server.core.upload_files import (
    BLOCK,
    MOST_PARTS,
    FileResult,
    Form,
    assemble,
    checked_name,
    draft,
    save_json,
    store_file,
    stored_path,
    too_large,
    write_block,
)
from lazyrag.types import JsonObject, State
from lazyrag.validation import normal_name

router = APIRouter(prefix="/api/v1", tags=["uploads"])

# Multipart


def checked_nesting(value: Any, most: int = 16) -> Any:
    """JSON that is not nested too deeply for those who read it.

    Raises:
        ValueError: If it is.
    """
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, list):
        children = value
    for nested in children:
        if not most:
            raise ValueError("must not be nested more than 16 times")
        checked_nesting(nested, most - 1)
    return value


Nested = Annotated[JsonObject, AfterValidator(checked_nesting)]
"""A JSON object, such as metadata."""
_METADATA = TypeAdapter(dict[str, Nested])


class JobModel(BaseModel):
    """A job, see `lazyrag.document.Job`."""

    id: str
    kind: str
    arguments: JsonObject
    state: State
    attempts: int
    progress: JsonObject | None
    error: JsonObject | None
    result: JsonObject | None
    created: dt.datetime
    updated: dt.datetime
    heartbeat: dt.datetime | None


class AddedFiles(BaseModel):
    """What became of each file of a request, and the job that adds them."""

    files: list[FileResult]
    job: JobModel


_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}
_TEXT = {"type": "string", "description": "JSON: metadata by name of file"}
_SCHEMA = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": _FILES, "metadata": _TEXT},
}
_Estimate = make_model(
    "Estimate",
    files=Any,
    steps=list_of(model_of(PlannedStep)),
    calls=int,
    tokens=int,
    cost=float | None,
)
ESTIMATED: dict[int | str, JsonObject] = {
    200: {"model": _Estimate, "description": "With `dry_run=1`."}
}
_FORM = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _SCHEMA}}}}


@router.post(
    "/sets/{set}/documents",
    status_code=202,
    response_model=AddedFiles,
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
    key = await key_of(call, form, metadata)
    return await add_files(call, form.files, metadata, key, price if dry_run else None)


async def key_of(call: SetRequest, form: Form, metadata: JsonObject) -> str:
    """The key of the job that adds the files of a form, see `SetRequest.key`."""
    files = [(file.name, file.content_hash, file.bytes) for file in form.files]
    return await call.run(call.key, files, metadata)


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """The body in blocks that are worth a change of threads."""
    block = bytearray()
    async for chunk in request.stream():
        block += chunk
        if len(block) >= BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


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


def _metadata_field(text: bytes) -> dict[str, JsonObject]:
    try:
        by_name = _METADATA.validate_json(text)
    except ValidationError as exc:
        remedy = 'Such as {"tea.pdf": {"year": 2025}}.'
        raise ProblemError(
            422, "The field metadata must be a JSON object by name of file.", remedy
        ) from exc
    return {normal_name(name): metadata for name, metadata in by_name.items()}


async def add_files(
    call: SetRequest,
    files: list[FileResult],
    metadata: Mapping[str, JsonObject],
    key: str,
    price: float | None = None,
) -> Response:
    """Submit the job that adds received files; with a price, estimate it."""
    paths: dict[str, str] = {}
    owned_metadata: dict[str, JsonObject] = {}

    def arrange(file: FileResult) -> None:
        identity, file_metadata = call.authorize_addition(
            file.name, metadata.get(file.name, {}), key
        )
        if identity in paths:
            raise ProblemError(
                409, "Another file of the request has this name.", "Rename one of them."
            )
        file.id = identity
        paths[identity] = str(stored_path(call.folder, file.content_hash, file.name))
        owned_metadata.update({identity: file_metadata} if file_metadata else {})

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
        plan = await call.run_slow(plan_files, indexer_of(call.unrestricted), paths)
        return reply({"files": results, **estimate(call, plan, price)})
    job = await call.run(
        call.jobs.submit,
        "add_files",
        {"files": paths, "metadata": owned_metadata},
        key=key,
    )
    return call.job_response(job, files=results)


def require_named(metadata: Iterable[str], names: Container[str], kind: str) -> None:
    """Refuse metadata of what is not sent: labels of a misspelt name would be lost.

    Raises:
        ProblemError: 422.
    """
    for name in metadata:
        if name not in names:
            raise ProblemError(
                422, f"metadata names {name!a}, which is none of the {kind}.", "Use the same names."
            )


def estimate(call: SetRequest, plan: SyncPlan, price: float) -> JsonObject:
    """What a plan says; to a principal with labels only of its own files, as the rest extrapolates
    from all others.
    """
    steps = [step for step in plan.steps if call.principal.is_unrestricted or step.step == "load"]
    tokens = sum(step.tokens for step in steps if step.step.startswith("embed "))
    cost = tokens * price / 1e6 if price else None
    return {
        "steps": steps,
        "calls": sum(step.calls for step in steps),
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

    def __init__(self, call: SetRequest, upload_id: str) -> None:
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
        about = {name: self.about[name] for name in ("name", "size", "part_size")}
        return UploadState(id=self.id, parts=self.parts, received=received, **about)

    def complete(self) -> FileResult:
        """Put the parts together, check the whole and store it. Idempotent.

        Raises:
            ProblemError: 409 if parts are missing, 422 if the whole has another digest than was
                declared.
        """
        about = self.about
        content_hash = about.get("content_hash", "")
        if (
            not content_hash
            or not stored_path(self.set_folder, content_hash, about["name"]).exists()
        ):
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
            save_json(self.set_folder, self.folder / "about", about)
        return FileResult(
            name=about["name"], bytes=about["size"], content_hash=about["content_hash"]
        )

    def remove_parts(self) -> None:
        """Give back their space."""
        for path in self.folder.glob("*.part"):
            path.unlink(missing_ok=True)


@router.post("/sets/{set}/uploads", status_code=201)
async def begin_upload(call: Writing, upload: NewUpload) -> UploadState:
    """Begin an upload in parts of ``part_size`` bytes; the last part is smaller."""
    upload = upload.model_copy(update={"name": checked_name(upload.name)})
    if upload.size > call.service.upload_bytes:
        raise too_large(call.service.upload_bytes)
    if -(-upload.size // upload.part_size) > MOST_PARTS:
        raise ProblemError(
            422, f"An upload has at most {MOST_PARTS:,} parts.", "Use a larger part_size."
        )

    def begin() -> UploadState:
        call.sweep()
        upload_id = call.key("upload", upload.model_dump()).rpartition(":")[2]
        about = call.folder / "unfinished" / upload_id / "about"
        if not about.exists():
            save_json(call.folder, about, {**upload.model_dump(), "principal": call.principal.id})
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
    with draft(call.folder) as out:
        try:
            async for block in _blocks(call.request):
                done += len(block)
                if done > expected:
                    break
                await call.run(write_block, out, block, digest)
        except ClientDisconnect as exc:
            raise ProblemError(400, "The request was cut off.", "Send the part again.") from exc
        if done != expected or digest.hexdigest() != x_content_sha256:
            msg = (
                f"Part {number} must have {expected:,} bytes with the given SHA-256; {done:,}"
                " arrived."
            )
            raise ProblemError(422, msg, "Send the part again.")
        await call.run(store_file, out, upload.folder / f"{number}.part")


@router.post("/sets/{set}/uploads/{upload_id}/complete", status_code=202, response_model=AddedFiles)
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


# Of documents


def uploaded_file(call: SetRequest, identity: str) -> Path | None:
    """The uploaded file that a document's live version is made of; None if it was not uploaded."""
    row = call.table.find(identity)
    if row is None or row.status != "live":
        return None
    hashes = {version.number: version.content_hash for version in call.table.versions(row.id)}
    content_hash = hashes.get(row.version, row.content_hash)
    path = stored_path(call.folder, content_hash, identity)
    return path if content_hash and path.is_file() else None


def purge_arguments(call: SetRequest, identity: str) -> JsonObject:
    """Remove the files of a document, and return the arguments of the job that purges it and
    searches all places.
    """
    remove_files(call, identity)
    state = call.service.state
    folders = (call.folder, state / "uploads" / ".openai", state / BOOK, state / "openai.db")
    return {"document": identity, "folders": [str(path) for path in folders if path.exists()]}


def remove_files(call: SetRequest, identity: str) -> None:
    """Remove the uploaded files of a document's versions, except those that other documents are
    made of.

    Those of versions that are not stored go as `sweep` removes them: a minute after they arrived.
    """
    call.sweep(every_s=0)
    rows = call.table.all()
    row = rows.pop(identity, None)
    if row is None:
        return
    hashes = {row.content_hash, *(version.content_hash for version in call.table.versions(row.id))}
    for content_hash in hashes - {other.content_hash for other in rows.values()} - {""}:
        for path in call.folder.glob(f"files/{content_hash}*"):
            path.unlink(missing_ok=True)
    for about in call.folder.glob("unfinished/*/about"):  # it has the name
        if json.loads(about.read_text(encoding="utf-8")).get("content_hash") in hashes:
            shutil.rmtree(about.parent)
