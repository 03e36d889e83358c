"""Routes of sets, documents and jobs. Everything that writes is a job of the set, which the writer
process runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Body, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field
from starlette.responses import FileResponse, Response

from lazyrag.data.encoding import to_dict
from lazyrag.data.node import DocNode
from lazyrag.data.segment import IMAGE
from lazyrag.document import Document, DocumentInfo, DocumentVersion, Marks, VersionDiff
from lazyrag.ingest.changes import MAX_DELETED
from lazyrag.read import marks, page_image
from lazyrag.read.rows import dataset_file, is_in_dataset
from lazyrag.server.api import uploads
from lazyrag.server.api.search import (
    JsonFilter,
    Limit,
    OldJsonFilter,
    count_nodes,
    json_filter,
    list_of,
    model_of,
)
from lazyrag.server.api.uploads import JobModel, Nested
from lazyrag.server.core.body import Body as StrictModel
from lazyrag.server.core.body import make_model
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Reader, require_unrestricted, service_of
from lazyrag.server.core.set_request import (
    Administration,
    Reading,
    SetRequest,
    Writing,
    digest_of,
    reply,
)
from lazyrag.server.core.upload_files import checked_name
from lazyrag.types import JsonObject, State

router = APIRouter(prefix="/api/v1", tags=["documents"])

_LOOK_S = 0.3  # between two looks at a job
_PAGE = 1_000
_Position = Annotated[int, Query(ge=0)]
_SHOWN_AS = {
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".txt": "text/plain; charset=utf-8",
}
FILE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cache-Control": "private, no-cache",
}


class SetInfo(BaseModel):
    """A set: its node groups, declared fields and embed keys."""

    name: str
    groups: list[str]
    fields: dict[str, str]
    embed_keys: list[str]


class OneSet(SetInfo):
    """A set with the number of its documents."""

    documents: int


class Sets(BaseModel):
    """The sets that a principal may read."""

    sets: list[SetInfo]


class GroupCount(BaseModel):
    """Numbers of documents and nodes of a node group."""

    name: str
    documents: int
    nodes: int
    is_current: bool = True
    is_complete: bool = True
    indexes: list[str] = []
    reason: str = ""
    agreement: float | None = None


class Status(BaseModel):
    """The status of a set."""

    name: str
    documents: int
    groups: list[GroupCount]
    failed: list[tuple[str, str]]
    waiting: int = 0
    writer: str = ""


class DocumentGroup(BaseModel):
    """A node group of one document."""

    status: State
    nodes: int


_Document = model_of(DocumentInfo, groups=dict[str, DocumentGroup])
_Diff = model_of(VersionDiff)
_Marks = model_of(Marks)
_Documents = make_model("Documents", documents=list_of(_Document), next=str | None)
_Versions = make_model("Versions", versions=list_of(model_of(DocumentVersion)))
_Jobs = make_model("Jobs", jobs=list[JobModel], next=str | None)
_accepted: Any = {"status_code": 202, "response_model": JobModel}


class AddedTexts(BaseModel):
    """The ids of added texts, and the job that adds them."""

    ids: dict[str, str]
    job: JobModel


class _Png(Response):
    media_type = "image/png"


# Sets


@router.get("/sets", response_model=Sets)
async def list_sets(request: Request, principal: Reader) -> Response:
    """The sets that the principal may read."""
    service = service_of(request)
    names = service.names(principal)
    return reply({"sets": [_set_info(name, service.view(name, principal)) for name in names]})


@router.get("/sets/{set}", response_model=OneSet)
async def get_set(call: Reading) -> Response:
    """A set with the number of its documents."""
    status = await call.run_slow(status_of, call)
    return reply({**_set_info(call.name, call.docs), "documents": status["documents"]})


@router.get("/sets/{set}/status", response_model=Status)
async def get_status(call: Reading) -> Response:
    """Numbers of documents and nodes, and failures."""
    return reply(await call.run_slow(status_of, call))


def _set_info(name: str, docs: Document) -> JsonObject:
    fields = {field_name: field.data_type.name for field_name, field in docs.reader.fields.items()}
    return {
        "name": name,
        "groups": list(docs.groups),
        "fields": fields,
        "embed_keys": list(docs.reader.embed_keys),
    }


def status_of(call: SetRequest) -> JsonObject:
    """The status of what a principal sees: of everything from the ledger's tree, else from its
    documents.
    """
    if call.principal.is_unrestricted:
        status = to_dict(call.docs.status())
        del status["url"]  # the client has it
        del status["errors"]  # documents have them
        return {**status, "name": call.name}
    failed: list[tuple[str, str]] = []
    count, groups = count_nodes(call.docs, failed)
    return {"name": call.name, "documents": count, "groups": groups, "failed": failed}


# Documents


@router.get("/sets/{set}/documents", response_model=_Documents)
async def list_documents(
    call: Reading,
    after: str | None = None,
    limit: Limit = 100,
    status: State | None = None,
    filters: JsonFilter = None,
    where: OldJsonFilter = None,
) -> Response:
    """A page of documents, by id; ``next`` is the ``after`` of the page that follows."""
    condition = json_filter(filters, where)
    page = await call.run(
        call.docs.documents, after=after, limit=limit, status=status, filters=condition
    )
    return _reply_with_tag(
        call,
        {
            "documents": [*map(call.hide_error_details, page)],
            "next": page[-1].id if len(page) == limit else None,
        },
    )


@router.get("/sets/{set}/documents/{document_id:path}", response_model=_Document)
async def get_document(call: Reading, document_id: str) -> Response:
    """A document."""
    return _reply_with_tag(call, await call.require_visible(document_id))


@router.get("/sets/{set}/versions/{document_id:path}", response_model=_Versions)
async def get_versions(call: Reading, document_id: str) -> Response:
    """The stored versions of a document, oldest first."""
    await call.require_visible(document_id)
    return reply({"versions": await call.run(call.docs.versions.list, document_id)})


@router.get("/sets/{set}/diffs/{document_id:path}", response_model=_Diff)
async def get_diff(
    call: Reading,
    document_id: str,
    before: Annotated[int, Query(ge=1)],
    after: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    """Compare two versions of a document; the second is the live one by default."""
    await call.require_visible(document_id)
    return reply(await call.run_slow(call.docs.versions.diff, document_id, before, after))


@router.get("/sets/{set}/files/{document_id:path}", response_class=FileResponse)
async def get_file(call: Reading, document_id: str) -> Response:
    """The file of a document, to be saved: a browser never shows it as a page."""
    path = await _visible_file(call, document_id)
    if path is None:
        raise ProblemError(404, "The document has no file any more.", "Read its text instead.")
    kind = _SHOWN_AS.get(path.suffix.lower(), "application/octet-stream")
    saved_as = document_id.rpartition("/")[2].encode("utf-8", "replace").decode()
    return FileResponse(path, media_type=kind, headers=FILE_HEADERS, filename=saved_as)


async def _visible_file(call: SetRequest, document_id: str) -> Path | None:
    await call.require_visible(document_id)
    return await call.run(file_of, call, document_id)


def file_of(call: SetRequest, identity: str) -> Path | None:
    """The file of a live document: an upload, or a file of the dataset that no link replaces."""
    uploaded = uploads.uploaded_file(call, identity)
    if uploaded is not None:
        return uploaded
    reader = call.unrestricted.reader
    path = dataset_file(reader, identity)
    return path if path is not None and is_in_dataset(reader, path) else None


@router.get("/sets/{set}/pages/{document_id:path}", response_class=_Png)
async def get_page_image(
    call: Reading,
    document_id: str,
    page: Annotated[int, Query(ge=1)] = 1,
    width: Annotated[int, Query(ge=16, le=4096)] = 1024,
) -> Response:
    """The picture of a page, as PNG."""
    path = await _visible_file(call, document_id)
    image = await call.run_slow(page_image, call.docs, document_id, page, width=width, file=path)
    return _Png(image, headers=FILE_HEADERS)


@router.get("/sets/{set}/images/{uid}", response_class=Response)
async def get_image(call: Reading, uid: str) -> Response:
    """The picture of a node of the group ``image``."""
    node, data = await call.run_slow(_image, call, uid)
    return Response(data, media_type=node.metadata["media_type"], headers=FILE_HEADERS)


def _image(call: SetRequest, uid: str) -> tuple[DocNode, bytes]:
    reader = call.docs.reader
    segment = next(
        (candidate for candidate in reader.held(uid) if IMAGE in candidate.metadata), None
    )
    if segment is None:
        raise ProblemError(404, "There is no such picture.", "Search the group 'image' again.")
    node = reader.show(segment)
    return node, node.image(file_of(call, node.path))


@router.get("/sets/{set}/marks/{document_id:path}", response_model=_Marks)
async def get_marks(call: Reading, document_id: str, start: _Position, end: _Position) -> Response:
    """Locate a span of the text: boxes on pages, from 0 to 1, or characters of the shown text."""
    path = await _visible_file(call, document_id)
    return reply(await call.run_slow(marks, call.docs, document_id, (start, end), file=path))


def _reply_with_tag(call: SetRequest, value: Any) -> Response:
    """A value with a tag of what this principal sees of it; 304 if the client has it."""
    response = reply(value)
    content = f"{call.principal.labels!r}".encode() + bytes(response.body)
    tag = hashlib.sha256(content).hexdigest()[:32]
    headers = {
        "ETag": f'"{tag}"',
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, Cookie",
    }
    client_tags = call.request.headers.get("if-none-match", "")
    if client_tags == "*" or f'"{tag}"' in client_tags:
        return Response(None, 304, headers)
    response.headers.update(headers)
    return response


# Changes


class Documents(StrictModel):
    """Ids of documents."""

    documents: list[str] = Field(min_length=1, max_length=10_000)


class Metadata(StrictModel):
    """Metadata by document; None removes a value."""

    changes: dict[str, Nested] = Field(min_length=1, max_length=10_000)


class Texts(StrictModel):
    """Texts by id, and their metadata."""

    texts: dict[str, str] = Field(min_length=1, max_length=10_000)
    metadata: dict[str, Nested] = Field(default_factory=dict)


class Rollback(StrictModel):
    """A document, and the version to go back to; None for the one before."""

    document: str
    version: int | None = Field(default=None, ge=1)


class Purge(StrictModel):
    """A document to remove for good."""

    document: str


class Sync(StrictModel):
    """Bounds of a sync, see `Document.sync`."""

    max_deleted: float = Field(default=MAX_DELETED, ge=0, le=1)
    max_calls: int | None = Field(default=None, ge=0)


@router.post("/sets/{set}/delete", **_accepted)
async def delete_documents(call: Writing, body: Documents) -> Response:
    """Delete documents."""
    await call.require_visible(*body.documents)
    return await call.submit_job("delete_files", {"documents": body.documents})


@router.delete("/sets/{set}/documents/{document_id:path}", **_accepted)
async def delete_document(call: Writing, document_id: str) -> Response:
    """Delete a document."""
    await call.require_visible(document_id)
    return await call.submit_job("delete_files", {"documents": [document_id]})


@router.post("/sets/{set}/metadata", **_accepted)
async def update_metadata(call: Writing, body: Metadata) -> Response:
    """Change metadata of documents."""
    await call.require_visible(*body.changes)
    if any("labels" in change for change in body.changes.values()):
        require_unrestricted(call.principal, "A token with labels cannot change labels.")
    return await call.submit_job("update_metadata", {"changes": body.changes})


@router.post("/sets/{set}/rollback", **_accepted)
async def roll_back(call: Writing, body: Rollback) -> Response:
    """Make an earlier version of a document live again, with the labels that it had."""
    require_all(call)
    await call.require_visible(body.document)
    return await call.submit_job("rollback", body.model_dump())


@router.post("/sets/{set}/purge", **_accepted)
async def purge(call: Administration, body: Purge) -> Response:
    """Delete a document and its uploaded file so that no byte of it remains, with a certificate."""
    require_all(call)
    return await call.submit_job(
        "purge", await call.run(uploads.purge_arguments, call, body.document)
    )


@router.post("/sets/{set}/texts", status_code=202, response_model=AddedTexts)
async def add_texts(call: Writing, body: Texts) -> Response:
    """Add texts; the response has the id of each."""
    ids, job = await call.run(submit_texts, call, body)
    return call.job_response(job, ids=ids)


def submit_texts(call: SetRequest, body: Texts) -> tuple[dict[str, str], Any]:
    """Submit the job that adds texts; returns their ids by name, and the job."""
    key = call.key("add_texts", body.model_dump())
    uploads.require_named(body.metadata, body.texts, "texts")
    ids: dict[str, str] = {}
    metadata: dict[str, JsonObject] = {}
    for name in body.texts:
        identity, text_metadata = call.authorize_addition(
            checked_name(name), body.metadata.get(name, {}), key
        )
        if identity in ids.values():
            raise ProblemError(409, f"Two texts have the name {identity!a}.", "Rename one of them.")
        ids[name] = identity
        metadata |= {identity: text_metadata} if text_metadata else {}
    texts = {ids[name]: text for name, text in body.texts.items()}
    return ids, call.jobs.submit("add_texts", {"texts": texts, "metadata": metadata}, key=key)


@router.post("/sets/{set}/sync", responses=uploads.ESTIMATED, **_accepted)
async def sync(
    call: Writing,
    body: Annotated[Sync | None, Body()] = None,
    dry_run: bool = False,
    price: Annotated[float, Query(ge=0)] = 0,
) -> Response:
    """Ingest what changed in the set's folder; with ``dry_run=1``, only estimate it, as for
    uploads.
    """
    require_all(call)
    bounds = body or Sync()
    if dry_run:
        plan = await call.run_slow(call.docs.plan, max_deleted=bounds.max_deleted)
        return reply({"files": plan.files, **uploads.estimate(call, plan, price)})
    return await call.submit_job("sync", bounds.model_dump())


def require_all(call: SetRequest) -> None:
    """Refuse what concerns all documents to a principal with labels."""
    require_unrestricted(call.principal, "This concerns documents that the token does not see.")


_ACTIONS: Mapping[str, tuple[str, Any, str]] = {
    "retry": ("retry_failed", Writing, "Try failed documents and steps again."),
    "verify": ("verify", Administration, "Compare the ledger with the stores."),
    "repair": ("repair", Administration, "Fix what a verification finds."),
    "compact": ("compact", Administration, "Give back the space of what is not live any more."),
    "activate": (
        "activate_group",
        Administration,
        "Build groups: ``names``, ``embed_keys``, ``analysers``.",
    ),
    "change-model": (
        "change_model",
        Administration,
        "Change the embedding model in the background.",
    ),
}


def _action(kind: str, who: Any, summary: str) -> Callable[..., Any]:
    async def act(call: SetRequest, arguments: JsonObject | None = None) -> Response:
        require_all(call)
        return await call.submit_job(kind, arguments or {})

    act.__doc__ = summary
    act.__annotations__ = {
        "call": who,
        "arguments": Annotated[Nested | None, Body()],
        "return": Response,
    }
    return act


for _path, (_kind, _who, _summary) in _ACTIONS.items():
    router.post(f"/sets/{{set}}/{_path}", name=_kind, **_accepted)(_action(_kind, _who, _summary))


# Jobs


async def own_job(call: Reading, job_id: str) -> Any:
    """A job that a principal submitted; administrators see all.

    Raises:
        ProblemError: 404 if there is none.
    """
    job = await call.run(call.job, job_id)
    if job is None:
        raise ProblemError(404, f"There is no job {job_id!a}.", "List the jobs of the set.")
    return job


OwnJob = Annotated[Any, Depends(own_job)]


def own_jobs(
    call: SetRequest, after: str | None, limit: int, state: State | None = None
) -> list[Any]:
    """A page of the jobs that a principal submitted, the newest first; administrators see all."""
    jobs: list[Any] = []
    last = None if after is None else getattr(call.job(after), "id", "")
    while len(jobs) < limit and (page := call.jobs.list(after=last, limit=_PAGE, state=state)):
        last = page[-1].id
        jobs += [job for job in page if call.owns(job)]
    return jobs[:limit]


@router.get("/sets/{set}/jobs", response_model=_Jobs)
async def list_jobs(
    call: Reading, after: str | None = None, limit: Limit = 100, state: State | None = None
) -> Response:
    """A page of jobs, the newest first."""
    jobs = await call.run(own_jobs, call, after, limit, state)
    following = call.job_id(jobs[-1]) if len(jobs) == limit else None
    return _reply_with_tag(
        call, {"jobs": [call.describe_job(job) for job in jobs], "next": following}
    )


@router.get("/sets/{set}/jobs/{job_id}", response_model=JobModel)
async def get_job(call: Reading, job: OwnJob) -> Response:
    """A job."""
    return reply(call.describe_job(job))


@router.post("/sets/{set}/jobs/{job_id}/cancel", response_model=JobModel)
async def cancel_job(call: Writing, job: OwnJob) -> Response:
    """Cancel a job: at once if it waits, else at the next safe point."""
    return reply(call.describe_job(await call.run(call.jobs.cancel, job.id)))


@router.post("/sets/{set}/jobs/{job_id}/retry", response_model=JobModel)
async def retry_job(call: Writing, job: OwnJob) -> Response:
    """Run a failed or cancelled job again."""
    return reply(call.describe_job(await call.run(call.jobs.retry, job.id)))


@router.get("/sets/{set}/jobs/{job_id}/events", response_class=EventSourceResponse)
async def get_job_events(
    call: Reading, job: OwnJob, last_event_id: Annotated[str | None, Header()] = None
) -> AsyncIterator[ServerSentEvent]:
    """Stream a job: an event for each change (``progress``), and one at its end (``done``).

    Every event is the whole job: after ``Last-Event-ID`` the present one is all that was missed.
    """
    while True:
        state = digest_of(job.state, job.attempts, to_dict(job.progress))[:16]
        if state != last_event_id or job.is_finished:
            kind = "done" if job.is_finished else "progress"
            yield ServerSentEvent(raw_data=json.dumps(call.describe_job(job)), event=kind, id=state)
        if job.is_finished:
            return
        last_event_id = state
        await anyio.sleep(_LOOK_S)
        job = await call.run(call.jobs.get, job.id)
