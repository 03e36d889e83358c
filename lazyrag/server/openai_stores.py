"""OpenAI's vector stores: a set is a vector store, a document one of its files, a node of its group a chunk."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from lazyrag.data.encoding import ErrorInfo
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document import DocumentInfo
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.pipeline.tracing import retrieval_span
from lazyrag.server.openai_common import (
    Attributes,
    Chunking,
    ChunkingFound,
    Cursor,
    Filters,
    Id,
    Limit,
    Metadata,
    Model,
    Order,
    State,
    Time,
    attributes_of,
    deleted_model,
    file_id_of,
    filter_of,
    labels_of,
    list_model,
    metadata_of,
    now,
    or_404,
    page,
    records,
    sees,
    store_id,
    unknown,
)
from lazyrag.server.openai_files import Reader, documents_with, known_file, time_of
from lazyrag.server.problems import ProblemError
from lazyrag.server.routes_search import MAX_QUERY, MAX_TEXT
from lazyrag.server.service import Principal, Service, needs, service_of
from lazyrag.server.sets import CHUNK_SIZES, create_set, delete_set, made_sets
from lazyrag.server.uploads import Call, reply, stored_path

router = APIRouter(prefix="/v1/vector_stores", tags=["openai"])

_OPEN_S = 10.0  # how long a request waits for a new set
_CHANGE_S = 30.0  # and for a change of a document
_LOOK_S = 0.05
_ACTIVE_S = 60  # accuracy of the last activity
_FILES_OF_JOB = 100
_KEYWORD_SCORE = 5.0  # a keyword score of so much becomes 0.5
Administrator: TypeAlias = Annotated[Principal, needs("admin")]
FileFilter = Annotated[Literal["in_progress", "completed", "failed", "cancelled"] | None, Query()]
Include = Annotated[Literal["details"] | None, Query(description="Adds node, score and location to each result.")]


class StoreExpiration(Model):
    """After how many days without a search or a new file the store expires."""

    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=365)


class NewStore(Model):
    """A vector store, and the files in it."""

    name: Annotated[str, Field(max_length=200)] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None
    file_ids: list[str] = Field(default=[], max_length=500)
    chunking_strategy: Chunking | None = None
    expires_after: StoreExpiration | None = None
    metadata: Metadata = None


class StoreChange(Model):
    """What changes of a vector store."""

    name: Annotated[str, Field(max_length=200)] | None = None
    expires_after: StoreExpiration | None = None
    metadata: Metadata = None


class FileCounts(BaseModel):
    """Numbers of files by status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class VectorStore(BaseModel):
    """A vector store."""

    id: str
    object: Literal["vector_store"]
    created_at: Time
    name: str
    description: str | None
    usage_bytes: int
    file_counts: FileCounts
    status: Literal["expired", "in_progress", "completed"]
    expires_after: StoreExpiration = None  # type: ignore[assignment]  # left out without one
    expires_at: Time | None
    last_active_at: Time | None
    metadata: Metadata


class NewStoreFile(Model):
    """A file for a vector store."""

    file_id: str
    attributes: Attributes = None
    chunking_strategy: Chunking | None = None


class NewBatch(Model):
    """Files for a vector store: ids with common attributes, or each with its own."""

    file_ids: list[str] = Field(default=[], max_length=2_000)
    files: list[NewStoreFile] = Field(default=[], max_length=2_000)
    attributes: Attributes = None
    chunking_strategy: Chunking | None = None


class AttributesChange(Model):
    """New attributes of a file, instead of all that it has."""

    attributes: Attributes


class FileError(BaseModel):
    """Why a file failed, and the way out."""

    code: Literal["server_error", "unsupported_file", "invalid_file"]
    message: str


class StoreFile(BaseModel):
    """A file of a vector store."""

    id: str
    object: Literal["vector_store.file"]
    usage_bytes: int
    created_at: Time
    vector_store_id: str
    status: State
    last_error: FileError | None
    chunking_strategy: ChunkingFound
    attributes: Attributes


class StoreBatch(BaseModel):
    """Files that were added together."""

    id: str
    object: Literal["vector_store.files_batch"]
    created_at: Time
    vector_store_id: str
    status: State
    file_counts: FileCounts


class RankingOptions(Model):
    """How to rank. There is one ranker; its scores are from 0 to 1."""

    ranker: Literal["none", "auto", "default-2024-11-15"] = "auto"
    score_threshold: float = Field(default=0, ge=0, le=1)


class StoreSearch(Model):
    """A search of a vector store; the query is never rewritten, see `search_query` of the response."""

    query: (
        Annotated[str, Field(max_length=MAX_QUERY)]
        | Annotated[list[Annotated[str, Field(max_length=MAX_QUERY)]], Field(min_length=1, max_length=16)]
    )
    filters: Filters | None = None
    max_num_results: int = Field(default=10, ge=1, le=50)
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: bool = False


class TextContent(BaseModel):
    """A text."""

    type: Literal["text"]
    text: str


class ResultDetails(BaseModel):
    """What a result has beyond OpenAI's form: its node, the retriever's score, and where the text is."""

    node: str
    score: float
    path: str
    location: str
    span: list[int] | None


class SearchResult(BaseModel):
    """A chunk that a search found."""

    file_id: str
    filename: str
    score: float = Field(ge=0, le=1)
    attributes: Attributes
    content: list[TextContent]
    details: ResultDetails = None  # type: ignore[assignment]  # left out unless it is wanted


class _Page(BaseModel):
    has_more: bool
    next_page: str | None


class SearchResults(_Page):
    """Results of a search, the best first."""

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[SearchResult]


class FileContent(_Page):
    """The text of a file."""

    object: Literal["vector_store.file_content.page"]
    data: list[TextContent]


_Stores, _Files = list_model("VectorStoreList", VectorStore), list_model("VectorStoreFileList", StoreFile)
_DeletedStore = deleted_model("DeletedVectorStore", "vector_store.deleted")
_DeletedFile = deleted_model("DeletedVectorStoreFile", "vector_store.file.deleted")


# Vector stores


@dataclass(frozen=True)
class Store:
    """A vector store as the principal of a request sees it.

    Args:
        id: Its id.
        call: The request about its set.
        record: What is recorded about it.
    """

    id: str
    call: Call
    record: Mapping[str, Any]

    @property
    def details(self) -> dict[str, Any]:
        """Its name, description, metadata, and the days after which it expires."""
        found: dict[str, Any] = json.loads(self.record["details"])
        return found

    @property
    def expires_at(self) -> int | None:
        """When it expires; None for never."""
        days = self.details.get("days")
        return None if days is None else self.record["active"] + 86_400 * days

    @property
    def is_made(self) -> bool:
        """Whether it was created at run time."""
        return made_sets(self.call.service).find(self.call.name) is not None

    def use(self) -> None:
        """Note that it is active.

        Raises:
            ProblemError: 400 if it has expired.
        """
        if self.expires_at is not None and self.expires_at <= now():
            msg = "The vector store has expired."
            raise ProblemError(400, msg, "Change its expires_after, or create another one.", param="vector_store_id")
        if self.record["active"] + _ACTIVE_S < now():
            records(self.call.service).write(("UPDATE store SET active = ? WHERE id = ?", (now(), self.id)))

    def attached(self, condition: str, *values: Any) -> list[dict[str, Any]]:
        """Records of attached files that the principal sees, the newest first."""
        query = f"SELECT * FROM attached WHERE store = ? AND {condition} ORDER BY number DESC"  # noqa: S608
        rows = records(self.call.service).select(query, self.id, *values)
        return [row for row in rows if sees(self.call.principal, row["labels"])]


def set_of(service: Service, vector_store_id: str) -> str | None:
    """The name of the set that a vector store is; None if there is none."""
    made = {f"vs_{one.id}": one.name for one in made_sets(service).list() if not one.deleted}
    names = (service.sets.keys() | service.pending.keys()) - set(made.values())
    found = made.get(vector_store_id)
    return found or next((one for one in names if store_id(service, one) == vector_store_id), None)


async def open_store(request: Request, vector_store_id: str, principal: Principal) -> Store:
    """A vector store by id; waits for one that was just created.

    Raises:
        ProblemError: 404 if there is none that the principal may see, 503 if it cannot be read yet.
    """
    service = service_of(request)
    name = or_404(await service.run(set_of, service, vector_store_id), "vector store", vector_store_id)
    until = time.monotonic() + _OPEN_S
    while name not in service.sets and time.monotonic() < until:  # noqa: ASYNC110  another thread opens it
        await anyio.sleep(_LOOK_S)
    try:
        docs = service.view(name, principal)
    except ProblemError as problem:
        if problem.status == 503:
            raise
        raise unknown("vector store", vector_store_id) from None
    request.state.dataset = name
    call = Call(request, service, name, principal, docs, None)
    return Store(vector_store_id, call, await service.run(_record, service, vector_store_id))


def _record(service: Service, vector_store_id: str) -> dict[str, Any]:
    """What is recorded about a vector store; those of the configuration get a record when they are first asked for."""
    insert = "INSERT OR IGNORE INTO store VALUES (?, ?, ?, '{}')"
    query = "SELECT * FROM store WHERE id = ?"
    if not (found := records(service).select(query, vector_store_id)):
        records(service).write((insert, (vector_store_id, now(), now())))
        found = records(service).select(query, vector_store_id)
    return found[0]


def _dependency(scope: str) -> Any:
    allowed = needs(scope)

    async def find(request: Request, vector_store_id: Id, principal: Principal = allowed) -> Store:
        return await open_store(request, vector_store_id, principal)

    return Depends(find)


Reading: TypeAlias = Annotated[Store, _dependency("read")]
Writing: TypeAlias = Annotated[Store, _dependency("write")]


def _store_object(store: Store) -> dict[str, Any]:
    found, details, entries = store.record, store.details, list(_entries(store))
    counts = _counts(entries)
    status = "in_progress" if counts["in_progress"] else "completed"
    policy = {"anchor": "last_active_at", "days": details["days"]} if details.get("days") else None
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": found["created"],
        "name": details.get("name", store.call.name),
        "description": details.get("description"),
        "usage_bytes": sum(one["usage_bytes"] for one in entries),
        "file_counts": counts,
        "status": "expired" if store.expires_at is not None and store.expires_at <= now() else status,
        **({} if policy is None else {"expires_after": policy}),
        "expires_at": store.expires_at,
        "last_active_at": found["active"],
        "metadata": details.get("metadata") or {},
    }


def _counts(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found = Counter(one["status"] for one in entries)
    return {**{one: found[one] for one in ("in_progress", "completed", "failed", "cancelled")}, "total": len(entries)}


@router.get("", response_model=_Stores)
async def list_vector_stores(
    request: Request,
    principal: Reader,
    limit: Limit = 20,
    order: Order = "desc",
    after: Cursor = None,
    before: Cursor = None,
) -> Response:
    """List the vector stores."""
    service = service_of(request)

    def find() -> dict[str, Any]:
        stores = {}
        for name in service.sets:
            with suppress(ProblemError):  # its labels do not restrict every set
                call = Call(request, service, name, principal, service.view(name, principal), None)
                own = store_id(service, name)
                stores[own] = Store(own, call, _record(service, own))
        rows = sorted(stores.values(), key=lambda one: (one.record["created"], one.id))
        found = page([{"id": one.id} for one in rows], after, before, order, limit)
        return {**found, "data": [_store_object(stores[one["id"]]) for one in found["data"]]}

    async with service.slow:
        return reply(await service.run(find))


@router.post("", response_model=VectorStore)
async def create_vector_store(request: Request, principal: Administrator, wanted: NewStore) -> Response:
    """Create a vector store, which is a new set, and add files to it."""
    service = service_of(request)
    slug = re.sub(r"[^\w.-]+", "-", wanted.name or "").strip("_.-")[:80]
    details = {"name": wanted.name or "", "description": wanted.description, "metadata": wanted.metadata}
    details["days"] = wanted.expires_after.days if wanted.expires_after else None  # type: ignore[assignment]

    def create() -> str:
        for file_id in wanted.file_ids:
            known_file(service, principal, file_id)
        name = slug or f"store-{secrets.token_hex(4)}"
        try:
            made = create_set(service, name, principal)
        except ProblemError as problem:
            if problem.status != 409:
                raise
            made = create_set(service, f"{name}-{secrets.token_hex(4)}", principal)
        row = {"id": f"vs_{made.id}", "created": made.created, "active": now(), "details": json.dumps(details)}
        records(service).insert("store", [row])
        return f"vs_{made.id}"

    store = await open_store(request, await service.run(create), principal)
    if wanted.file_ids:
        files = [NewStoreFile(file_id=one, chunking_strategy=wanted.chunking_strategy) for one in wanted.file_ids]
        await service.run(_attach, store, files)
    return reply(await service.run(_store_object, store))


@router.get("/{vector_store_id}", response_model=VectorStore)
async def get_vector_store(store: Reading) -> Response:
    """Get a vector store."""
    return reply(await store.call.run_slow(_store_object, store))


@router.post("/{vector_store_id}", response_model=VectorStore)
async def modify_vector_store(store: Writing, wanted: StoreChange) -> Response:
    """Change name, metadata or expiration."""
    if store.call.principal.labels is not None:
        raise ProblemError(403, "Others use the vector store, too.", "Use a token without labels.")
    changes: dict[str, Any] = wanted.model_dump(include=wanted.model_fields_set & {"name", "metadata"})
    if "expires_after" in wanted.model_fields_set:
        changes["days"] = wanted.expires_after.days if wanted.expires_after else None
    kept = {key: value for key, value in changes.items() if value is not None or key != "name"}

    def change() -> dict[str, Any]:
        row = {**store.record, "active": now(), "details": json.dumps({**store.details, **kept})}
        records(store.call.service).insert("store", [row])
        return _store_object(Store(store.id, store.call, row))

    return reply(await store.call.run_slow(change))


@router.delete("/{vector_store_id}", response_model=_DeletedStore)
async def delete_vector_store(request: Request, vector_store_id: Id, principal: Administrator) -> Response:
    """Delete a vector store that was created at run time, with its documents; files stay."""
    store, service = await open_store(request, vector_store_id, principal), service_of(request)

    def delete() -> None:
        delete_set(service, store.call.name, principal)
        gone = (vector_store_id,)
        removal = ("DELETE FROM attached WHERE store = ?", gone)
        records(service).write(removal, ("DELETE FROM store WHERE id = ?", gone))

    await service.run(delete)
    return reply({"id": vector_store_id, "object": "vector_store.deleted", "deleted": True})


# Files of a vector store


def _attach(store: Store, wanted: Sequence[NewStoreFile], batch: str = "") -> None:
    """Submit the jobs that add files."""
    call, rows = store.call, []
    store.use()
    fields = call.whole.fields
    for one in wanted:
        about, path = known_file(call.service, call.principal, one.file_id)
        metadata = {key: value for key, value in metadata_of(one.attributes, fields).items() if value is not None}
        if one.chunking_strategy is not None and one.chunking_strategy.type == "static":
            metadata["chunking"] = _chunk_sizes(store, one.chunking_strategy.static)
        identity, metadata = _identity(store, one.file_id, about["filename"], metadata)
        target = _copied(path, stored_path(call.folder, one.file_id[5:37], about["filename"]))
        row = {"store": store.id, "file": one.file_id, "identity": identity, "labels": labels_of(call.principal)}
        rows.append({**row, "bytes": about["bytes"], "metadata": json.dumps(metadata), "batch": batch, "path": target})
    call.request.state.documents = [row["identity"] for row in rows]  # for the audit log
    call.require_unclaimed(*call.request.state.documents)
    for start in range(0, len(rows), _FILES_OF_JOB):
        some = rows[start : start + _FILES_OF_JOB]
        files = {row["identity"]: str(row.pop("path")) for row in some}
        given = {row["identity"]: json.loads(row["metadata"]) for row in some}
        job = call.whole.jobs.submit("add_files", {"files": files, "metadata": given}, key=call.key("attach"))
        records(call.service).insert("attached", [{**row, "job": job.id, "created": now()} for row in some])


def _copied(path: Path | None, target: Path) -> Path:
    """Copy a file to the uploads of a set, unless it is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path is None or not path.is_file():
        raise ProblemError(404, "The file is no longer stored.", "Upload it again.", param="file_id")
    if not target.exists():
        draft = target.with_name(f"{secrets.token_hex(8)}.part")
        shutil.copyfile(path, draft)
        draft.replace(target)
    target.touch()  # for `sweep`
    return target


def _chunk_sizes(store: Store, wanted: Any) -> list[int]:
    size, overlap = wanted.max_chunk_size_tokens, wanted.chunk_overlap_tokens
    if 2 * overlap > size:
        msg = f"chunk_overlap_tokens must be at most half of max_chunk_size_tokens; got {overlap} and {size}."
        raise ProblemError(400, msg, param="chunking_strategy")
    if not store.is_made:
        msg = "The configuration defines the chunks of this vector store."
        raise ProblemError(400, msg, "Leave chunking_strategy out.", param="chunking_strategy")
    return [size, overlap]


def _identity(store: Store, file_id: str, name: str, metadata: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id and the metadata of a file's document: of the one that there is, with its labels, or of a new one."""
    call = store.call
    for before in store.attached("file = ?", file_id):
        if _entry(store, before) is not None:
            known = call.find(before["identity"])
            labels = list(known.labels) if known else json.loads(before["labels"] or "[]")
            return before["identity"], metadata | ({"labels": labels} if labels else {})
    return call.owned(f"{file_id}/{name}", metadata, secrets.token_hex(8))


def _entries(store: Store) -> Iterator[dict[str, Any]]:
    """All files of a store that the principal sees: its documents, and what is not one yet, or never was."""
    attached: dict[str, dict[str, Any]] = {}
    for row in store.attached("1"):
        attached.setdefault(row["identity"], row)
    after = None
    while infos := store.call.docs.documents(after=after, limit=1_000):
        after = infos[-1].id
        rows = store.call.whole._indexer.ledger.documents.named([one.id for one in infos])
        for info in infos:
            yield _described(store, info, rows.get(info.id), attached.pop(info.id, None))
    for row in attached.values():
        if (found := _entry(store, row)) is not None:
            yield found


def _entry(store: Store, attached: Mapping[str, Any]) -> dict[str, Any] | None:
    """An attached file; None if it was deleted, or hidden, since."""
    call, identity = store.call, attached["identity"]
    row = call.whole._indexer.ledger.documents.named([identity]).get(identity)
    if row is not None and row.status == "live" and call.find(identity) is None:
        return None
    job, info = None, None
    with suppress(NotRegisteredError):  # finished ones are stored for 30 days
        job = call.whole.jobs.get(attached["job"])
    with suppress(ConfigError, NotRegisteredError):
        info = call.whole.document(identity)
    if info is not None and info.status in ("SUCCESS", "FAILED") and (job is None or job.is_finished):
        return _described(store, info, row, attached)
    if job is None or (job.is_finished and job.state not in ("CANCELED", "FAILED")):
        return None
    status = {"CANCELED": "cancelled", "FAILED": "failed"}.get(job.state, "in_progress")
    return _file_object(store, attached, json.loads(attached["metadata"]), status, job.error)


def _described(store: Store, info: DocumentInfo, row: Any, attached: Mapping[str, Any] | None) -> dict[str, Any]:
    """A document as a file of a store."""
    status = {"SUCCESS": "completed", "FAILED": "failed"}.get(info.status, "in_progress")
    metadata: dict[str, Any] = {} if attached is None else json.loads(attached["metadata"])
    if row is not None:
        metadata = json.loads(row.loaded) | json.loads(row.user_metadata) | json.loads(row.updates)
    own = {"file": file_id_of(info.id, row.content_hash if row else "")[0], "bytes": info.bytes or 0}
    own["created"] = time_of(info.updated) if attached is None else attached["created"]
    return _file_object(store, own, metadata, status, info.error)


def _file_object(
    store: Store, own: Mapping[str, Any], metadata: Mapping[str, Any], status: str, error: ErrorInfo | None
) -> dict[str, Any]:
    sizes = metadata.get("chunking") or (CHUNK_SIZES if store.is_made else None)
    static = {"max_chunk_size_tokens": sizes[0], "chunk_overlap_tokens": sizes[1]} if sizes else None
    code, text = "server_error", f"{error.detail} {error.remedy}".strip() if error else "The file failed."
    if error is not None and error.type in ("LoadError", "NoReaderError"):
        is_unknown = error.type == "NoReaderError" or error.detail.startswith("No loader")
        code = "unsupported_file" if is_unknown else "invalid_file"
    return {
        "id": own["file"],
        "object": "vector_store.file",
        "usage_bytes": own["bytes"],
        "created_at": own["created"],
        "vector_store_id": store.id,
        "status": status,
        "last_error": {"code": code, "message": text} if status == "failed" else None,
        "chunking_strategy": {"type": "static", "static": static} if static else {"type": "other"},
        "attributes": attributes_of(metadata, store.call.whole.fields),
    }


def _find(store: Store, file_id: str) -> tuple[dict[str, Any], str]:
    """A file of a store, and the id of its document.

    Raises:
        ProblemError: 404 if there is none.
    """
    for row in store.attached("file = ?", file_id):
        if (found := _entry(store, row)) is not None:
            return found, row["identity"]
    for _, identity in documents_with(store.call.service, store.call.principal, file_id, store.call.name):
        known = store.call.whole._indexer.ledger.documents.named([identity]).get(identity)
        return _described(store, store.call.docs.document(identity), known, None), identity
    raise unknown("vector store file", file_id)


def _sorted(entries: Iterable[dict[str, Any]], status: str | None) -> list[dict[str, Any]]:
    found = [one for one in entries if status in (None, one["status"])]
    return sorted(found, key=lambda one: (one["created_at"], one["id"]))


async def _settle(store: Store, kind: str, arguments: Mapping[str, Any]) -> None:
    """Submit a job, and wait for it."""
    jobs = store.call.whole.jobs
    job = await store.call.run(jobs.submit, kind, arguments, key=store.call.key(kind))
    until = time.monotonic() + _CHANGE_S
    while not job.is_finished and time.monotonic() < until:
        await anyio.sleep(_LOOK_S)
        job = await store.call.run(jobs.get, job.id)


@router.get("/{vector_store_id}/files", response_model=_Files)
async def list_vector_store_files(
    store: Reading,
    limit: Limit = 20,
    order: Order = "desc",
    after: Cursor = None,
    before: Cursor = None,
    filter: FileFilter = None,  # noqa: A002  the name in the API
) -> Response:
    """List the files of a vector store."""
    rows = await store.call.run_slow(lambda: _sorted(_entries(store), filter))
    return reply(page(rows, after, before, order, limit))


@router.post("/{vector_store_id}/files", response_model=StoreFile)
async def create_vector_store_file(store: Writing, wanted: NewStoreFile) -> Response:
    """Add a file to a vector store."""
    await store.call.run(_attach, store, [wanted])
    return reply((await store.call.run(_find, store, wanted.file_id))[0])


@router.get("/{vector_store_id}/files/{file_id}", response_model=StoreFile)
async def get_vector_store_file(store: Reading, file_id: Id) -> Response:
    """Get a file of a vector store."""
    return reply((await store.call.run(_find, store, file_id))[0])


@router.post("/{vector_store_id}/files/{file_id}", response_model=StoreFile)
async def update_vector_store_file(store: Writing, file_id: Id, wanted: AttributesChange) -> Response:
    """Replace the attributes of a file."""
    found, identity = await store.call.run(_find, store, file_id)
    changes = metadata_of(wanted.attributes, store.call.whole.fields)
    if found["status"] != "completed":
        raise ProblemError(409, f"The file is {found['status']}.", "Change it when it is completed.")
    await store.call.changeable(identity)
    store.call.request.state.documents = [identity]
    await _settle(store, "update_metadata", {"changes": {identity: changes}})
    return reply({**found, "attributes": attributes_of(changes, store.call.whole.fields)})


@router.delete("/{vector_store_id}/files/{file_id}", response_model=_DeletedFile)
async def delete_vector_store_file(store: Writing, file_id: Id) -> Response:
    """Remove a file from a vector store; the file itself stays."""
    call = store.call
    found, identity = await call.run(_find, store, file_id)
    await call.run(call.require_unclaimed, identity)
    call.request.state.documents = [identity]
    if found["status"] in ("completed", "in_progress") or await call.run(call.find, identity) is not None:
        await _settle(store, "delete_files", {"documents": [identity]})
    removal = "DELETE FROM attached WHERE store = ? AND identity = ?"
    await call.run(records(call.service).write, (removal, (store.id, identity)))
    return reply({"id": file_id, "object": "vector_store.file.deleted", "deleted": True})


@router.get("/{vector_store_id}/files/{file_id}/content", response_model=FileContent)
async def get_vector_store_file_content(store: Reading, file_id: Id) -> Response:
    """Get the text of a file."""

    def read() -> list[DocNode]:
        identity = _find(store, file_id)[1]
        found: list[DocNode] = store.call.docs.get_nodes(LAZY_ROOT_NAME, document_ids=[identity])
        return found

    texts = [node.text for node in await store.call.run_slow(read)]
    if sum(map(len, texts)) > MAX_TEXT:
        raise ProblemError(413, f"The file has more than {MAX_TEXT:,} characters.", "Get its bytes instead.")
    data = [{"type": "text", "text": one} for one in texts]
    return reply({"object": "vector_store.file_content.page", "data": data, "has_more": False, "next_page": None})


# Batches


def _batch(store: Store, batch_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], set[str]]:
    """A batch, its files, and its jobs.

    Raises:
        ProblemError: 404 if there is none that the principal sees.
    """
    rows = store.attached("batch = ?", batch_id) if batch_id else []
    or_404(rows or None, "vector store file batch", batch_id)
    entries = [one for row in rows if (one := _entry(store, row)) is not None]
    counts = _counts(entries)
    status = "failed" if counts["failed"] == counts["total"] > 0 else "completed"
    status = next((one for one in ("in_progress", "cancelled") if counts[one]), status)
    about = {"object": "vector_store.files_batch", "created_at": rows[-1]["created"], "vector_store_id": store.id}
    found = {"id": batch_id, **about, "status": status, "file_counts": counts}
    return found, entries, {row["job"] for row in rows}


@router.post("/{vector_store_id}/file_batches", response_model=StoreBatch)
async def create_file_batch(store: Writing, wanted: NewBatch) -> Response:
    """Add files to a vector store together."""
    common: dict[str, Any] = {"attributes": wanted.attributes, "chunking_strategy": wanted.chunking_strategy}
    if bool(wanted.file_ids) == bool(wanted.files):
        raise ProblemError(400, "file_ids or files must have a file, and not both.", param="file_ids")
    if wanted.files and any(common.values()):
        msg = "attributes and chunking_strategy of the batch are for file_ids."
        raise ProblemError(400, msg, "Give them with each of the files.", param="files")
    files = wanted.files or [NewStoreFile(file_id=one, **common) for one in wanted.file_ids]
    batch_id = f"vsfb_{secrets.token_hex(16)}"
    await store.call.run_slow(_attach, store, list({one.file_id: one for one in files}.values()), batch_id)
    return reply((await store.call.run_slow(_batch, store, batch_id))[0])


@router.get("/{vector_store_id}/file_batches/{batch_id}", response_model=StoreBatch)
async def get_file_batch(store: Reading, batch_id: Id) -> Response:
    """Get a batch."""
    return reply((await store.call.run_slow(_batch, store, batch_id))[0])


@router.post("/{vector_store_id}/file_batches/{batch_id}/cancel", response_model=StoreBatch)
async def cancel_file_batch(store: Writing, batch_id: Id) -> Response:
    """Cancel a batch: what is not begun is not added."""

    def cancel() -> dict[str, Any]:
        for job in _batch(store, batch_id)[2]:
            with suppress(NotRegisteredError):
                store.call.whole.jobs.cancel(job)
        return _batch(store, batch_id)[0]

    return reply(await store.call.run_slow(cancel))


@router.get("/{vector_store_id}/file_batches/{batch_id}/files", response_model=_Files)
async def list_batch_files(
    store: Reading,
    batch_id: Id,
    limit: Limit = 20,
    order: Order = "desc",
    after: Cursor = None,
    before: Cursor = None,
    filter: FileFilter = None,  # noqa: A002
) -> Response:
    """List the files of a batch."""
    rows = await store.call.run_slow(lambda: _sorted(_batch(store, batch_id)[1], filter))
    return reply(page(rows, after, before, order, limit))


# Search


@dataclass(frozen=True)
class Hit:
    """A hit of a search.

    Args:
        node: The node; its score is the retriever's.
        score: From 0 to 1, in the same order.
        file_id: Its file.
        filename: The name of that.
        attributes: The attributes of that.
    """

    node: DocNode
    score: float
    file_id: str
    filename: str
    attributes: dict[str, Any]


def search(store: Store, wanted: StoreSearch, queries: Sequence[str]) -> list[Hit]:
    """Search a vector store: the best hits of all queries."""
    store.use()
    docs, name, fields = store.call.docs, store.call.name, store.call.whole.fields
    retriever = store.call.service.retriever(docs, store.call.service.group_of(name), "default", None, None)
    where, topk = filter_of(wanted.filters, fields), wanted.max_num_results
    best: dict[str, tuple[float, DocNode]] = {}
    for query in queries:
        with retrieval_span(name, query, topk):
            nodes = retriever(query, where, topk)
        for node in nodes:
            raw = max(node.score or 0.0, 0.0)
            score = min(raw, 1.0) if docs.embed_keys else raw / (raw + _KEYWORD_SCORE)
            if score >= wanted.ranking_options.score_threshold:
                best[node.uid] = max(best.get(node.uid, (score, node)), (score, node), key=lambda one: one[0])
    ranked = sorted(best.values(), key=lambda one: (-one[0], one[1].uid))[:topk]
    rows = store.call.whole._indexer.ledger.documents.named({node.path for _, node in ranked})
    hits = []
    for score, node in ranked:
        row = rows.get(node.path)
        file_id, filename = file_id_of(node.path, row.content_hash if row else "")
        hits.append(Hit(node, score, file_id, filename, attributes_of(node.segment.fields, fields)))
    return hits


@router.post("/{vector_store_id}/search", response_model=SearchResults)
async def search_vector_store(store: Reading, wanted: StoreSearch, include: Include = None) -> Response:
    """Search a vector store."""
    queries = [wanted.query] if isinstance(wanted.query, str) else wanted.query

    def result(hit: Hit) -> dict[str, Any]:
        found = {"file_id": hit.file_id, "filename": hit.filename, "score": hit.score, "attributes": hit.attributes}
        found["content"] = [{"type": "text", "text": hit.node.text}]
        node = hit.node
        details = {"node": node.uid, "score": node.score, "path": node.path, "location": node.location}
        return found if include is None else {**found, "details": {**details, "span": node.span}}

    def find() -> list[dict[str, Any]]:
        return store.call.docs.reader.read(lambda _: list(map(result, search(store, wanted, queries))))

    data = await store.call.run(find)
    shown = {"object": "vector_store.search_results.page", "search_query": queries, "data": data}
    return reply({**shown, "has_more": False, "next_page": None})
