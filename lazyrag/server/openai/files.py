"""OpenAI's files and uploads. The id of a file is made of its content, name, purpose and labels."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

import lazyrag.server.openai.protocol as openai
from lazyrag.server.api.documents import FILE_HEADERS, file_of
from lazyrag.server.api.uploads import receive_form
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Service
from lazyrag.server.core.set_request import SetRequest, reply
from lazyrag.server.core.sets import records
from lazyrag.server.core.upload_files import Form, assemble, checked_name, stored_path
from lazyrag.server.jobs import Jobs
from lazyrag.server.openai.protocol import Id, Model, Reading, Writing, in_pool, now
from lazyrag.types import JsonObject

router = APIRouter(prefix="/v1", tags=["openai"], default_response_class=Response)

UPLOAD_S = 3_600
"""How long an upload in parts may take, in seconds."""
_SWEEP_S = 60
_FIELD = re.compile(r"(\w+)\[(\w+)\]")
_PART = re.compile("part_[0-9a-f]{32}")
Purpose: TypeAlias = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class FileExpiration(Model):
    """When a file is deleted, in seconds from its creation."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3_600, le=2_592_000)


class NewFile(Model):
    """Fields of a form with a file."""

    purpose: Purpose
    expires_after: FileExpiration | None = None


class NewPartedUpload(NewFile):
    """A file that will arrive in parts."""

    filename: str
    bytes: int = Field(ge=1, lt=1 << 63)
    mime_type: str


class Completion(Model):
    """The parts of an upload in their order."""

    part_ids: list[str] = Field(min_length=1, max_length=100_000)
    md5: str | None = None


def _shared_fields(row: JsonObject) -> JsonObject:
    """What files and uploads have in common."""
    return {name: row[name] for name in ("id", "bytes", "filename", "purpose")}


def file_object(row: JsonObject) -> JsonObject:
    """A file as OpenAI writes it."""
    file = {
        **_shared_fields(row),
        "object": "file",
        "created_at": row["created"],
        "status": "processed",
    }
    if row["expires"] is not None:
        file["expires_at"] = row["expires"]
    return file


def _add(call: SetRequest, new: NewFile, filename: str, size: int, content_hash: str) -> JsonObject:
    """Record a stored file. An equal one stays the same, and lasts at least as long as it did."""
    labels = openai.labels_of(call.principal)
    end = new.expires_after
    record: JsonObject = {
        "id": openai.file_id(content_hash, filename, new.purpose, labels),
        "labels": labels,
        "filename": filename,
        "purpose": new.purpose,
        "bytes": size,
        "content_hash": content_hash,
        "created": now(),
        "expires": now() + end.seconds if end else None,
    }
    if before := _find(call, record["id"]):
        ends = (before["expires"], record["expires"])
        record["created"] = before["created"]
        record["expires"] = None if None in ends else max(ends)
    records(call.service).insert("file", [record])
    return record


def _find(call: SetRequest, file_id: str) -> JsonObject | None:
    """The record of an uploaded file; None if there is none that the principal sees."""
    query = "SELECT * FROM file WHERE id = ? AND ifnull(expires, 1e12) > ?"
    rows = records(call.service).select(query, file_id, now())
    return next((row for row in rows if openai.sees(call.principal, row["labels"])), None)


def _path(service: Service, row: JsonObject) -> Path:
    return stored_path(records(service).folder, row["content_hash"], row["filename"])


def documents_with(
    call: SetRequest, file_id: str, only: str | None = None
) -> Iterator[tuple[SetRequest, str]]:
    """The visible documents of all sets, or of one, that are made of a file."""
    if not re.fullmatch("file-[0-9a-f]{40}", file_id):
        return
    content_hash = file_id[5:37]
    for name in sorted(call.service.sets) if only is None else [only]:
        try:
            view = call.service.view(name, call.principal)
            of_set = replace(call, name=name, docs=view)
            identities = of_set.table.with_content(content_hash)
        except (ProblemError, KeyError):
            continue  # its labels do not restrict every set; another request has deleted it
        for identity in identities:
            is_same = openai.file_id_of(identity, content_hash)[0] == file_id
            if is_same and of_set.find(identity) is not None:
                yield of_set, identity


def known_file(call: SetRequest, file_id: str) -> tuple[JsonObject, Path | None]:
    """A file and its content: an uploaded one, or one that a document of a set is made of.

    Raises:
        ProblemError: 404 if there is none that the principal sees.
    """
    if (row := _find(call, file_id)) is not None:
        return row, _path(call.service, row)
    for of_set, identity in documents_with(call, file_id):
        attached_id, filename = openai.file_id_of(identity, "")
        if attached_id == file_id:  # the uploaded file is gone
            continue
        info = of_set.docs.documents(ids=[identity])[0]
        file = {
            "id": file_id,
            "filename": filename,
            "bytes": info.bytes or 0,
            "purpose": "assistants",
            "created": int(dt.datetime.fromisoformat(info.updated).timestamp()),
            "expires": None,
        }
        return file, file_of(of_set, identity)
    raise openai.unknown("File object", file_id)


def _remove(call: SetRequest, row: JsonObject) -> None:
    """Delete a file, and the documents that are made of it in all sets, as far as the principal
    sees them.
    """
    tables = records(call.service)
    path = _path(call.service, row)
    sets = openai.store_ids(call.service)
    tables.write("DELETE FROM file WHERE id = ?", row["id"])
    documents = {(of_set.name, identity) for of_set, identity in documents_with(call, row["id"])}
    # also what is not added yet, or failed
    for attached in tables.select("SELECT * FROM attached WHERE file = ?", row["id"]):
        name = sets.get(attached["store"])
        if name in call.service.sets and openai.sees(call.principal, attached["labels"]):
            documents.add((name, attached["identity"]))
            tables.write("DELETE FROM attached WHERE number = ?", attached["number"])
    for name, identity in documents:
        jobs = Jobs(call.service.sets[name])
        jobs.submit("delete_files", {"documents": [identity]}, key=call.key("delete"))
    others = tables.select("SELECT filename, content_hash FROM file")
    if path not in [_path(call.service, other) for other in others]:
        path.unlink(missing_ok=True)


def _sweep(call: SetRequest) -> None:
    """Delete expired files and uploads, unless this or another process did so less than a minute
    ago.
    """
    tables = records(call.service)
    everything = replace(call, principal=Principal())
    stamp = tables.folder / "swept"
    if stamp.exists() and now() - stamp.stat().st_mtime < _SWEEP_S:
        return
    tables.folder.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    for row in tables.select("SELECT * FROM file WHERE expires <= ?", now()):
        _remove(everything, row)
    late = "SELECT id FROM upload WHERE status = 'pending' AND created < ?"
    for row in tables.select(late, now() - UPLOAD_S):
        tables.write("UPDATE upload SET status = 'expired' WHERE id = ?", row["id"])
        shutil.rmtree(tables.folder / "unfinished" / row["id"], ignore_errors=True)


class _FilePaging(openai.CursorPaging):
    def __init__(
        self,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: openai.Order = "desc",
        after: openai.Cursor = None,
    ) -> None:
        super().__init__(limit, order, after)


@router.get("/files")
@in_pool
def list_files(
    call: Reading, paging: Annotated[_FilePaging, Depends()], purpose: str | None = None
) -> Response:
    """List the uploaded files."""
    rows = records(call.service).select(
        "SELECT * FROM file WHERE ifnull(expires, 1e12) > ? ORDER BY rowid", now()
    )
    seen = [file_object(row) for row in rows if openai.sees(call.principal, row["labels"])]
    response = reply(paging.page([file for file in seen if purpose in (None, file["purpose"])]))
    response.background = BackgroundTask(call.run_slow, _sweep, call)
    return response


def _fields(form: Form) -> JsonObject:
    """The fields of a form with one file; ``expires_after[seconds]`` is one of an object."""
    if len(form.files) > 1:
        raise ProblemError(
            400, f"The form must have one file; got {len(form.files)}.", "Send one after the other."
        )
    if form.files[0].problem is not None:
        raise ProblemError(**form.files[0].problem, param="file")
    fields: JsonObject = {}
    for name, value in form.fields.items():
        match = _FIELD.fullmatch(name)
        text = value.decode("utf-8", "replace")
        inner = fields.setdefault(match[1], {}) if match else None
        if match and isinstance(inner, dict):
            inner[match[2]] = text
        else:
            fields[name] = text
    return fields


def _new_file(form: Form) -> NewFile:
    """What a form says of its file."""
    try:
        return NewFile.model_validate(_fields(form))
    except ValidationError as exc:
        raise RequestValidationError(
            [{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]
        ) from exc


@router.post("/files")
async def create_file(call: Writing) -> Response:
    """Upload a file."""
    form = await receive_form(call.request, call.service, records(call.service).folder, _new_file)
    [file] = form.files
    record = await call.run(_add, call, _new_file(form), file.name, file.bytes, file.content_hash)
    response = reply(file_object(record))
    response.background = BackgroundTask(call.run_slow, _sweep, call)
    return response


@router.get("/files/{file_id}")
@in_pool
def get_file(call: Reading, file_id: Id) -> JsonObject:
    """Get a file."""
    return file_object(known_file(call, file_id)[0])


@router.get("/files/{file_id}/content")
@in_pool
def get_file_content(call: Reading, file_id: Id) -> Response:
    """Get the bytes of a file."""
    row, path = known_file(call, file_id)
    if path is None or not path.is_file():
        raise ProblemError(404, "The file is no longer stored.", "Read its text instead.")
    name = row["filename"].encode("utf-8", "replace").decode()
    return FileResponse(
        path, media_type="application/octet-stream", headers=FILE_HEADERS, filename=name
    )


@router.delete("/files/{file_id}")
@in_pool
def delete_file(call: Writing, file_id: Id) -> JsonObject:
    """Delete a file, and its documents in all vector stores."""
    if (row := _find(call, file_id)) is None:
        known_file(call, file_id)
        msg = "The file was not uploaded here, but belongs to a document of a vector store."
        raise ProblemError(400, msg, "Delete it from the vector store.", param="file_id")
    _remove(call, row)
    return {"id": file_id, "object": "file", "deleted": True}


# Uploads


def _upload(call: SetRequest, upload_id: str) -> JsonObject:
    """An upload of the principal.

    Raises:
        ProblemError: 404 if there is none.
    """
    query = "SELECT * FROM upload WHERE id = ? AND principal = ?"
    for row in records(call.service).select(query, upload_id, call.principal.id):
        is_late = row["status"] == "pending" and row["created"] + UPLOAD_S <= now()
        return row | ({"status": "expired"} if is_late else {})
    raise openai.unknown("Upload", upload_id)


def _pending(call: SetRequest, upload_id: str) -> tuple[JsonObject, Path]:
    """An upload that takes parts, and their folder.

    Raises:
        ProblemError: 404 if there is none, 400 if it is not pending any more.
    """
    row = _upload(call, upload_id)
    if row["status"] != "pending":
        raise ProblemError(
            400, f"The upload is {row['status']}.", "Begin another one.", param="upload_id"
        )
    return row, records(call.service).folder / "unfinished" / upload_id


def _upload_object(row: JsonObject, file: JsonObject | None = None) -> JsonObject:
    upload = {
        **_shared_fields(row),
        "status": row["status"],
        "object": "upload",
        "created_at": row["created"],
        "expires_at": row["created"] + UPLOAD_S,
    }
    if file:
        upload["file"] = file_object(file)
    return upload


@router.post("/uploads")
@in_pool
def create_upload(call: Writing, new: NewPartedUpload) -> JsonObject:
    """Begin an upload in parts."""
    filename = checked_name(new.filename)
    if new.bytes > call.service.upload_bytes:
        msg = f"bytes must be at most {call.service.upload_bytes:,}; got {new.bytes:,}."
        raise ProblemError(413, msg, "Split the file.", param="bytes")
    row = {
        "id": f"upload_{secrets.token_hex(16)}",
        "principal": call.principal.id,
        "created": now(),
        "file": "",
        "purpose": new.purpose,
        "bytes": new.bytes,
        "filename": filename,
        "status": "pending",
        "lasts": new.expires_after.seconds if new.expires_after else None,
    }
    records(call.service).insert("upload", [row])
    return _upload_object(row)


@router.post("/uploads/{upload_id}/parts")
async def add_upload_part(call: Writing, upload_id: Id) -> Response:
    """Send a part; parts may arrive in any order and at the same time."""
    row, folder = await call.run(_pending, call, upload_id)
    part = f"part_{secrets.token_hex(16)}"
    is_complete = False
    try:
        await receive_form(call.request, call.service, folder / part, _fields)
        is_complete = sum(path.stat().st_size for path in folder.glob("*/files/*")) <= row["bytes"]
    finally:
        if not is_complete:
            shutil.rmtree(folder / part, ignore_errors=True)
    if not is_complete:
        msg = f"The parts have more than the declared {row['bytes']:,} bytes."
        raise ProblemError(400, msg, "Begin another upload.", param="data")
    return reply({"id": part, "object": "upload.part", "upload_id": upload_id, "created_at": now()})


@router.post("/uploads/{upload_id}/complete")
@in_pool
def complete_upload(call: Writing, upload_id: Id, completion: Completion) -> JsonObject:
    """Put the parts together; may be repeated."""
    row = _upload(call, upload_id)
    tables = records(call.service)
    if row["status"] == "completed" and (file_row := _find(call, row["file"])):
        return _upload_object(row, file_row)
    row, folder = _pending(call, upload_id)
    paths: list[Path] = []
    for part in completion.part_ids:
        if _PART.fullmatch(part):
            paths += (folder / part / "files").glob("*")
    if len(paths) != len(completion.part_ids):
        raise ProblemError(
            400, "part_ids names unknown parts.", "Send them first.", param="part_ids"
        )
    size = sum(path.stat().st_size for path in paths)
    if size != row["bytes"]:
        msg = f"The parts have {size:,} bytes, but {row['bytes']:,} were declared."
        raise ProblemError(
            400, msg, "Send what is missing, or begin another upload.", param="bytes"
        )
    content = assemble(
        tables.folder, paths, row["filename"], hashlib.md5(usedforsecurity=False), completion.md5
    )
    end = {"anchor": "created_at", "seconds": row["lasts"]} if row["lasts"] else None
    new = NewFile.model_validate({"purpose": row["purpose"], "expires_after": end})
    file = _add(call, new, row["filename"], size, content)
    tables.write(
        "UPDATE upload SET status = 'completed', file = ? WHERE id = ?", file["id"], upload_id
    )
    shutil.rmtree(folder, ignore_errors=True)
    return _upload_object({**row, "status": "completed"}, file)


@router.post("/uploads/{upload_id}/cancel")
@in_pool
def cancel_upload(call: Writing, upload_id: Id) -> JsonObject:
    """Abort an upload."""
    row, folder = _pending(call, upload_id)
    records(call.service).write("UPDATE upload SET status = 'cancelled' WHERE id = ?", upload_id)
    shutil.rmtree(folder, ignore_errors=True)
    return _upload_object({**row, "status": "cancelled"})
