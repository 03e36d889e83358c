"""OpenAI's files and uploads. The id of a file is made of its content, name, purpose and labels."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from lazyrag.server.openai_common import (
    Cursor,
    Id,
    Model,
    Order,
    Time,
    deleted_model,
    digest,
    file_id_of,
    labels_of,
    list_model,
    now,
    or_404,
    page,
    records,
    sees,
    unknown,
)
from lazyrag.server.problems import ProblemError
from lazyrag.server.routes_documents import _FILE_HEADERS, _file_of
from lazyrag.server.service import Principal, Service, needs, service_of
from lazyrag.server.uploads import Call, Form, assemble, checked_name, receive_form, reply, stored_path

router = APIRouter(prefix="/v1", tags=["openai"])

Purpose: TypeAlias = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
PurposeFound: TypeAlias = Literal[Purpose, "assistants_output", "batch_output", "fine-tune-results"]
UPLOAD_S = 3_600
"""How long an upload in parts may take, in seconds."""
_SWEEP_S = 60
Reader: TypeAlias = Annotated[Principal, needs("read")]
Writer: TypeAlias = Annotated[Principal, needs("write")]


class FileExpiration(Model):
    """When a file is deleted, in seconds from its creation."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3_600, le=2_592_000)


class NewFile(Model):
    """Fields of a form with a file."""

    purpose: Purpose
    expires_after: FileExpiration | None = None


class OpenAIFile(BaseModel):
    """A file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: Time
    expires_at: Time = 0
    filename: str
    purpose: PurposeFound
    status: Literal["uploaded", "processed", "error"]
    status_details: str = ""


class NewUpload(Model):
    """A file that will arrive in parts."""

    filename: str
    purpose: Purpose
    bytes: int = Field(ge=1, lt=1 << 63)
    mime_type: str
    expires_after: FileExpiration | None = None


class Upload(BaseModel):
    """An upload in parts."""

    id: str
    object: Literal["upload"]
    bytes: int
    created_at: Time
    expires_at: Time
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    file: OpenAIFile | None = None


class UploadPart(BaseModel):
    """A part of an upload."""

    id: str
    object: Literal["upload.part"]
    upload_id: str
    created_at: Time


class Completion(Model):
    """The parts of an upload in their order."""

    part_ids: list[str] = Field(min_length=1, max_length=100_000)
    md5: str | None = None


_BINARY = {"type": "string", "format": "binary"}


def _form(required: list[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


_EXPIRES = {"$ref": "#/components/schemas/FileExpiration"}
_purpose = NewFile.model_json_schema()["properties"]["purpose"]
_FILE_FORM = _form(["file", "purpose"], file=_BINARY, purpose=_purpose, expires_after=_EXPIRES)
_PART_FORM = _form(["data"], data=_BINARY)
_FIELD = re.compile(r"(\w+)\[(\w+)\]")


def _fields_of(form: Form) -> NewFile:
    """The fields of a form; ``expires_after[seconds]`` is one of an object."""
    found: dict[str, Any] = {}
    for name, value in form.fields.items():
        match, text = _FIELD.fullmatch(name), value.decode("utf-8", "replace")
        if match and isinstance(inner := found.setdefault(match[1], {}), dict):
            inner[match[2]] = text
        else:
            found[name] = text
    try:
        return NewFile.model_validate(found)
    except ValidationError as exc:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in exc.errors()]) from exc


def file_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """A file as OpenAI writes it."""
    found = {one: row[one] for one in ("id", "bytes", "filename", "purpose")}
    expires = {"expires_at": row["expires"]} if row["expires"] is not None else {}
    return {**found, "object": "file", "created_at": row["created"], **expires, "status": "processed"}


def add_file(service: Service, principal: Principal, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Record a stored file; ``wanted`` has its filename, purpose, bytes, content_hash, and for how long it lasts."""
    row = {one: wanted[one] for one in ("filename", "purpose", "bytes", "content_hash")}
    row |= {"labels": labels_of(principal), "created": now()}
    row["expires"] = None if wanted["lasts"] is None else now() + wanted["lasts"]
    row["id"] = f"file-{row['content_hash']}{digest(row['filename'], row['purpose'], row['labels'])}"
    records(service).insert("file", [row])
    return row


def find_file(service: Service, principal: Principal, file_id: str) -> dict[str, Any] | None:
    """The record of an uploaded file; None if there is none that the principal sees."""
    query = "SELECT * FROM file WHERE id = ? AND ifnull(expires, 1e12) > ?"
    return next((row for row in records(service).select(query, file_id, now()) if sees(principal, row["labels"])), None)


def file_path(service: Service, row: Mapping[str, Any]) -> Path:
    """Where the content of an uploaded file is stored."""
    return stored_path(records(service).folder, row["content_hash"], row["filename"])


def documents_with(
    service: Service, principal: Principal, file_id: str, only: str | None = None
) -> Iterator[tuple[Call, str]]:
    """The visible documents of all sets, or of one, that are made of a file."""
    if re.fullmatch("file-[0-9a-f]{40}", file_id):
        for name in sorted(service.sets) if only is None else [only]:
            try:
                call = Call(None, service, name, principal, service.view(name, principal), None)  # type: ignore[arg-type]
                identities = call.whole._indexer.ledger.documents.with_content(file_id[5:37])
            except (ProblemError, KeyError):  # its labels do not restrict every set; another request has deleted it
                continue
            for identity in identities:
                if file_id_of(identity, file_id[5:37])[0] == file_id and call.find(identity) is not None:
                    yield call, identity


def known_file(service: Service, principal: Principal, file_id: str) -> tuple[dict[str, Any], Path | None]:
    """A file and its content: an uploaded one, or one that a document of a set is made of.

    Raises:
        ProblemError: 404 if there is none that the principal sees.
    """
    row = find_file(service, principal, file_id)
    if row is not None:
        return row, file_path(service, row)
    for call, identity in documents_with(service, principal, file_id):
        info = call.docs.document(identity)
        known = {"filename": file_id_of(identity, "")[1], "bytes": info.bytes or 0, "created": time_of(info.updated)}
        return {"id": file_id, "purpose": "assistants", "expires": None, **known}, _file_of(call, identity)
    raise unknown("File object", file_id)


def time_of(text: str) -> int:
    """Seconds since 1970 of an ISO time; 0 for none."""
    return int(dt.datetime.fromisoformat(text).timestamp()) if text else 0


def remove_file(service: Service, principal: Principal, row: Mapping[str, Any]) -> None:
    """Delete a file, and the documents that are made of it in all sets, as far as the principal sees them."""
    own = records(service)
    for call, identity in documents_with(service, principal, row["id"]):
        call.whole.jobs.submit("delete_files", {"documents": [identity]})
    own.write(("DELETE FROM file WHERE id = ?", (row["id"],)))
    path = file_path(service, row)
    rest = own.select("SELECT filename, content_hash FROM file WHERE content_hash = ?", row["content_hash"])
    if path not in [file_path(service, one) for one in rest]:
        path.unlink(missing_ok=True)


def sweep(service: Service) -> None:
    """Delete expired files and uploads, unless this or another process did so less than a minute ago."""
    own = records(service)
    stamp = own.folder / "swept"
    if stamp.exists() and now() - stamp.stat().st_mtime < _SWEEP_S:
        return
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    for row in own.select("SELECT * FROM file WHERE expires <= ?", now()):
        remove_file(service, Principal(), row)
    for row in own.select("SELECT id FROM upload WHERE status = 'pending' AND created < ?", now() - UPLOAD_S):
        own.write(("UPDATE upload SET status = 'expired' WHERE id = ?", (row["id"],)))
        shutil.rmtree(own.folder / "unfinished" / row["id"], ignore_errors=True)


@router.get("/files", response_model=list_model("FileList", OpenAIFile))
async def list_files(
    request: Request,
    principal: Reader,
    purpose: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Order = "desc",
    after: Cursor = None,
) -> Response:
    """List the uploaded files."""
    service = service_of(request)

    def find() -> dict[str, Any]:
        query = "SELECT * FROM file WHERE ifnull(expires, 1e12) > ? ORDER BY created, id"
        rows = [row for row in records(service).select(query, now()) if sees(principal, row["labels"])]
        wanted = [file_object(row) for row in rows if purpose in (None, row["purpose"])]
        return page(wanted, after, None, order, limit)

    response = reply(await service.run(find))
    response.background = BackgroundTask(service.run, sweep, service)
    return response


@router.post("/files", response_model=OpenAIFile, openapi_extra=_FILE_FORM)
async def create_file(request: Request, principal: Writer) -> Response:
    """Upload a file."""
    service = service_of(request)
    form = await receive_form(request, service, records(service).folder)
    wanted, file = _fields_of(form), _sole(form)
    lasts = wanted.expires_after.seconds if wanted.expires_after else None
    about = {"filename": file.name, "bytes": file.bytes, "content_hash": file.content_hash}
    row = await service.run(add_file, service, principal, {**about, "purpose": wanted.purpose, "lasts": lasts})
    response = reply(file_object(row))
    response.background = BackgroundTask(service.run, sweep, service)
    return response


def _sole(form: Form) -> Any:
    [file, *others] = form.files
    if others:
        raise ProblemError(400, f"The form must have one file; got {len(form.files)}.", "Send one after the other.")
    if file.problem is not None:
        raise ProblemError(**file.problem, param="file")
    return file


@router.get("/files/{file_id}", response_model=OpenAIFile)
async def get_file(request: Request, principal: Reader, file_id: Id) -> Response:
    """Get a file."""
    service = service_of(request)
    return reply(file_object((await service.run(known_file, service, principal, file_id))[0]))


@router.get("/files/{file_id}/content", response_class=FileResponse)
async def get_file_content(request: Request, principal: Reader, file_id: Id) -> Response:
    """Get the bytes of a file."""
    service = service_of(request)
    row, path = await service.run(known_file, service, principal, file_id)
    if path is None or not path.is_file():
        raise ProblemError(404, "The file is no longer stored.", "Read its text instead.")
    name = row["filename"].encode("utf-8", "replace").decode()
    return FileResponse(path, media_type="application/octet-stream", headers=_FILE_HEADERS, filename=name)


@router.delete("/files/{file_id}", response_model=deleted_model("DeletedFile", "file"))
async def delete_file(request: Request, principal: Writer, file_id: Id) -> Response:
    """Delete a file, and its documents in all vector stores."""
    service = service_of(request)

    def remove() -> None:
        row = find_file(service, principal, file_id)
        if row is None:
            known_file(service, principal, file_id)
            msg = "The file was not uploaded here, but belongs to a document of a vector store."
            raise ProblemError(400, msg, "Delete it from the vector store.", param="file_id")
        remove_file(service, principal, row)

    await service.run(remove)
    return reply({"id": file_id, "object": "file", "deleted": True})


# Uploads


def _upload(service: Service, principal: Principal, upload_id: str, *, is_pending: bool = True) -> dict[str, Any]:
    """An upload of the principal.

    Raises:
        ProblemError: 404 if there is none, 400 if it is not pending any more.
    """
    found = records(service).select("SELECT * FROM upload WHERE id = ? AND principal = ?", upload_id, principal.id)
    row: dict[str, Any] = or_404(next(iter(found), None), "Upload", upload_id)
    if row["status"] == "pending" and row["created"] + UPLOAD_S <= now():
        row["status"] = "expired"
    if is_pending and row["status"] != "pending":
        raise ProblemError(400, f"The upload is {row['status']}.", "Begin another one.", param="upload_id")
    return row


def _upload_object(row: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> dict[str, Any]:
    found = {one: row[one] for one in ("id", "bytes", "filename", "purpose", "status")}
    times = {"created_at": row["created"], "expires_at": row["created"] + UPLOAD_S}
    return {**found, "object": "upload", **times, "file": None if file is None else file_object(file)}


@router.post("/uploads", response_model=Upload)
async def create_upload(request: Request, principal: Writer, wanted: NewUpload) -> Response:
    """Begin an upload in parts."""
    service = service_of(request)
    checked_name(wanted.filename)
    if wanted.bytes > service.upload_bytes:
        raise ProblemError(413, f"bytes must be at most {service.upload_bytes:,}.", "Split the file.", param="bytes")
    about = wanted.model_dump(include={"filename", "purpose", "bytes"}) | {"created": now(), "status": "pending"}
    about |= {"lasts": wanted.expires_after.seconds if wanted.expires_after else None, "file": ""}
    row = {"id": f"upload_{secrets.token_hex(16)}", "principal": principal.id, **about}
    await service.run(records(service).insert, "upload", [row])
    return reply(_upload_object(row))


@router.post("/uploads/{upload_id}/parts", response_model=UploadPart, openapi_extra=_PART_FORM)
async def add_upload_part(request: Request, principal: Writer, upload_id: Id) -> Response:
    """Send a part; parts may arrive in any order and at the same time."""
    service = service_of(request)
    row = await service.run(_upload, service, principal, upload_id)
    part = f"part_{secrets.token_hex(16)}"
    folder = records(service).folder / "unfinished" / row["id"]
    stored = sum(path.stat().st_size for path in folder.glob("*/files/*"))
    try:
        form = await receive_form(request, service, folder / part)
        size = _sole(form).bytes
    except BaseException:
        shutil.rmtree(folder / part, ignore_errors=True)
        raise
    if stored + size > row["bytes"]:
        shutil.rmtree(folder / part, ignore_errors=True)
        raise ProblemError(400, f"The parts have more than {row['bytes']:,} bytes.", "Begin another one.", param="data")
    return reply({"id": part, "object": "upload.part", "upload_id": row["id"], "created_at": now()})


@router.post("/uploads/{upload_id}/complete", response_model=Upload)
async def complete_upload(request: Request, principal: Writer, upload_id: Id, wanted: Completion) -> Response:
    """Put the parts together; may be repeated."""
    service, own = service_of(request), records(service_of(request))

    def complete() -> dict[str, Any]:
        row = _upload(service, principal, upload_id, is_pending=False)
        if row["status"] == "completed" and (file := find_file(service, principal, row["file"])):
            return _upload_object(row, file)
        row, folder = _upload(service, principal, upload_id), own.folder / "unfinished" / upload_id
        paths = [next((folder / one / "files").glob("*"), None) for one in wanted.part_ids if _is_part(one)]
        found = [path for path in paths if path is not None]
        if len(found) != len(wanted.part_ids):
            raise ProblemError(400, "part_ids names unknown parts.", "Send them first.", param="part_ids")
        size = sum(path.stat().st_size for path in found)
        if size != row["bytes"]:
            msg = f"The parts have {size:,} bytes, but {row['bytes']:,} were declared."
            raise ProblemError(400, msg, "Send what is missing, or begin another upload.", param="bytes")
        md5 = hashlib.md5(usedforsecurity=False)
        row["content_hash"] = assemble(own.folder, found, row["filename"], md5, wanted.md5)
        file = add_file(service, principal, row)
        own.write(("UPDATE upload SET status = 'completed', file = ? WHERE id = ?", (file["id"], upload_id)))
        shutil.rmtree(folder, ignore_errors=True)
        return _upload_object({**row, "status": "completed"}, file)

    return reply(await service.run(complete))


def _is_part(part_id: str) -> bool:
    return re.fullmatch("part_[0-9a-f]{32}", part_id) is not None


@router.post("/uploads/{upload_id}/cancel", response_model=Upload)
async def cancel_upload(request: Request, principal: Writer, upload_id: Id) -> Response:
    """Abort an upload."""
    service, own = service_of(request), records(service_of(request))

    def cancel() -> dict[str, Any]:
        row = _upload(service, principal, upload_id)
        own.write(("UPDATE upload SET status = 'cancelled' WHERE id = ?", (upload_id,)))
        shutil.rmtree(own.folder / "unfinished" / upload_id, ignore_errors=True)
        return _upload_object({**row, "status": "cancelled"})

    return reply(await service.run(cancel))
