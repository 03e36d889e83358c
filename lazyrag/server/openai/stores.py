"""OpenAI's vector stores: a set is a vector store, a document one of its files, a node of its group
a chunk.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

import lazyrag.server.openai.protocol as openai
from lazyrag.data.encoding import ErrorInfo
from lazyrag.data.fields import Schema
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.errors import NotRegisteredError
from lazyrag.ledger.field_keys import merged_metadata
from lazyrag.pipeline.tracing import retrieval_span
from lazyrag.server.api.search import Question
from lazyrag.server.core.body import Name
from lazyrag.server.core.problems import ProblemError, public_error
from lazyrag.server.core.service import require_unrestricted
from lazyrag.server.core.set_request import SetRequest, reply, validate_size
from lazyrag.server.core.sets import CHUNK_SIZES, create_set, delete_set, records, runtime_sets
from lazyrag.server.core.upload_files import stored_path
from lazyrag.server.jobs import Job
from lazyrag.server.openai.files import documents_with, known_file
from lazyrag.server.openai.protocol import (
    Changing,
    CursorPaging,
    Id,
    Model,
    in_pool,
    now,
)
from lazyrag.types import JsonObject
from lazyrag.validation import without_none

router = APIRouter(prefix="/v1/vector_stores", tags=["openai"], default_response_class=Response)

_OPEN_S = 10.0  # how long a request waits for a new set
_LOOK_S = 0.05
_ACTIVE_S = 60  # accuracy of the last activity
_FILES_OF_JOB = 100
_STATES = ("in_progress", "completed", "failed", "cancelled")
Pages: TypeAlias = Annotated[CursorPaging, Depends()]
FileFilter: TypeAlias = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None, Query()
]
Include = Annotated[
    Literal["details"] | None,
    Query(description="Adds node, raw score and location to each result."),
]


class StoreExpiration(Model):
    """After how many days without a search or a new file the store expires."""

    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=365)


class ChunkSizes(Model):
    """Sizes in tokens; neighbours share at most half of a chunk."""

    max_chunk_size_tokens: int = Field(ge=100, le=4096)
    chunk_overlap_tokens: int = Field(ge=0)


class Chunking(Model):
    """How a file is split: ``auto`` as the set does, ``static`` into chunks of given sizes."""

    type: Literal["auto", "static"]
    static: ChunkSizes | None = None


class StoreChange(Model):
    """What changes of a vector store."""

    name: Name | None = None
    expires_after: StoreExpiration | None = None
    metadata: openai.Metadata = None


class NewStore(StoreChange):
    """A vector store, and the files in it."""

    description: Annotated[str, Field(max_length=2_000)] | None = None
    file_ids: list[str] = Field(default=[], max_length=500)
    chunking_strategy: Chunking | None = None


class AttributesChange(Model):
    """New attributes of a file, instead of all that it has."""

    attributes: openai.Attributes


class NewStoreFile(Model):
    """A file for a vector store."""

    file_id: str
    attributes: openai.Attributes = None
    chunking_strategy: Chunking | None = None


class NewBatch(Model):
    """Files for a vector store: ids with common attributes, or each with its own."""

    file_ids: list[str] = Field(default=[], max_length=2_000)
    files: list[NewStoreFile] = Field(default=[], max_length=2_000)
    attributes: openai.Attributes = None
    chunking_strategy: Chunking | None = None


class RankingOptions(Model):
    """How to rank. There is one ranker; its scores are from 0 to 1."""

    ranker: Literal["none", "auto", "default-2024-11-15"] = "auto"
    score_threshold: float = Field(default=0.0, ge=0, le=1)


class StoreSearch(Model):
    """A search of a vector store; the query is never rewritten, see ``search_query`` of the
    response.
    """

    query: Question | Annotated[list[Question], Field(min_length=1, max_length=16)]
    filters: openai.Filters | None = None
    max_num_results: int = Field(default=10, ge=1, le=50)
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: bool = False

    def queries(self) -> list[str]:
        """The queries, of which there may be one alone."""
        return [self.query] if isinstance(self.query, str) else self.query


# Vector stores


@dataclass(frozen=True)
class OpenedStore:
    """A vector store as the principal of a request sees it.

    Args:
        id: Its id.
        call: The request about its set.
        created: When it was created, in seconds since 1970.
        active: When it was used.
        details: Its name, description, metadata, and the days after which it expires.
        is_made: Whether it was created at run time.
    """

    id: str
    call: SetRequest
    created: int
    active: int
    details: JsonObject
    is_made: bool

    @property
    def expires_at(self) -> int | None:
        """When it expires; None for never."""
        return self.active + 86_400 * self.details["days"] if self.details.get("days") else None

    def use(self) -> None:
        """Note that it is active.

        Raises:
            ProblemError: 400 if it has expired.
        """
        if self.expires_at is not None and self.expires_at <= now():
            remedy = "Change its expires_after, or create another one."
            raise ProblemError(
                400, "The vector store has expired.", remedy, param="vector_store_id"
            )
        if self.active + _ACTIVE_S < now():
            records(self.call.service).write(
                "UPDATE store SET active = ? WHERE id = ?", now(), self.id
            )

    def attached(self, condition: str, *values: Any) -> list[JsonObject]:
        """Records of attached files that the principal sees, the newest first."""
        query = f"SELECT * FROM attached WHERE store = ? AND {condition}"  # noqa: S608
        query += " ORDER BY number DESC"
        rows = records(self.call.service).select(query, self.id, *values)
        return [row for row in rows if openai.sees(self.call.principal, row["labels"])]

    @property
    def schema(self) -> Schema:
        """The declared fields of its documents."""
        return self.call.unrestricted.reader.fields


def _store(call: SetRequest, store_id: str, name: str) -> OpenedStore:
    """A vector store; one of the configuration gets its record when it is first asked for."""
    docs = call.service.view(name, call.principal)
    table = records(call.service)
    query = "SELECT created, active, details FROM store WHERE id = ?"
    rows = table.select(query, store_id)
    if not rows:
        table.write("INSERT OR IGNORE INTO store VALUES (?, ?, ?, '{}')", store_id, now(), now())
        rows = table.select(query, store_id)
    [row] = rows
    of_set = replace(call, name=name, docs=docs)
    is_made = runtime_sets(call.service).find(name) is not None
    return OpenedStore(
        store_id, of_set, row["created"], row["active"], json.loads(row["details"]), is_made
    )


async def open_store(call: SetRequest, vector_store_id: str) -> OpenedStore:
    """A vector store by id; waits for one that was just created.

    Raises:
        ProblemError: 404 if there is none that the principal may see, 503 if it cannot be read yet.
    """
    name = (await call.run(openai.store_ids, call.service)).get(vector_store_id)
    if name is None:
        raise openai.unknown("vector store", vector_store_id)
    until = time.monotonic() + _OPEN_S
    # another thread opens it
    while name not in call.service.sets and time.monotonic() < until:  # noqa: ASYNC110
        await anyio.sleep(_LOOK_S)
    call.request.state.dataset = name  # for the audit log
    try:
        return await call.run(_store, call, vector_store_id, name)
    except ProblemError as problem:
        if problem.status == 503:
            raise
        raise openai.unknown("vector store", vector_store_id) from None


def _dependency(face: Any) -> Any:
    async def find(call: face, vector_store_id: Id) -> OpenedStore:
        return await open_store(call, vector_store_id)

    find.__annotations__["call"] = face
    return Depends(find)


Reading: TypeAlias = Annotated[OpenedStore, _dependency(openai.Reading)]
Writing: TypeAlias = Annotated[OpenedStore, _dependency(openai.Writing)]
Administration: TypeAlias = Annotated[OpenedStore, _dependency(openai.Administration)]


def _store_object(store: OpenedStore) -> JsonObject:
    details = store.details
    files = _all_files(store)
    counts = _counts(files)
    status = "in_progress" if counts["in_progress"] else "completed"
    if store.expires_at is not None and store.expires_at <= now():
        status = "expired"
    description = {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created,
        "last_active_at": store.active,
        "name": details.get("name", store.call.name),
        "description": details.get("description"),
        "metadata": details.get("metadata") or {},
        "usage_bytes": sum(file["usage_bytes"] for file in files),
        "status": status,
        "file_counts": counts,
        "expires_at": store.expires_at,
    }
    if store.expires_at is not None:
        description["expires_after"] = {"anchor": "last_active_at", "days": details["days"]}
    return description


def _all_files(store: OpenedStore) -> list[JsonObject]:
    return [file for file, _ in _entries(store, store.attached("1"), None)]


def _counts(files: Sequence[JsonObject]) -> dict[str, int]:
    counts = Counter(file["status"] for file in files)
    return {**{status: counts[status] for status in _STATES}, "total": len(files)}


@router.get("")
@in_pool
def list_vector_stores(call: openai.Reading, paging: Pages) -> JsonObject:
    """List the vector stores."""
    stores: dict[str, OpenedStore] = {}
    for store_id, name in openai.store_ids(call.service).items():
        with suppress(ProblemError):  # its labels do not restrict every set
            stores[store_id] = _store(call, store_id, name)
    ordered = sorted(stores.values(), key=lambda store: store.created)
    page = paging.page([{"id": store.id} for store in ordered])
    return {**page, "data": [_store_object(stores[row["id"]]) for row in page["data"]]}


def _details(change: StoreChange, *names: str) -> JsonObject:
    """What is recorded of a vector store."""
    details: JsonObject = change.model_dump(include=set(names) & change.model_fields_set)
    if "expires_after" in details:
        del details["expires_after"]
        details["days"] = change.expires_after and change.expires_after.days
    return details


def _record(
    call: SetRequest, store_id: str, created: int, active: int, details: JsonObject
) -> None:
    row = {"id": store_id, "created": created, "active": active, "details": json.dumps(details)}
    records(call.service).insert("store", [row])


@router.post("")
async def create_vector_store(call: openai.Administration, new: NewStore) -> Response:
    """Create a vector store, which is a new set, and add files to it."""

    def create() -> str:
        for file_id in new.file_ids:
            known_file(call, file_id)
        allowed = re.sub(r"[^\w. -]+", "-", new.name or "").strip("_.- ")[:80].rstrip()
        name = allowed or f"store-{secrets.token_hex(4)}"
        try:
            created = create_set(call.service, name, call.principal)
        except ProblemError as problem:
            if problem.status != 409:
                raise
            created = create_set(call.service, f"{name}-{secrets.token_hex(4)}", call.principal)
        details = _details(new, "description", "metadata", "expires_after")
        store_id = f"vs_{created.id}"
        _record(call, store_id, created.created, now(), {"name": new.name or ""} | details)
        return store_id

    store = await open_store(call, await call.run(create))
    if new.file_ids:
        files = [
            NewStoreFile(file_id=file_id, chunking_strategy=new.chunking_strategy)
            for file_id in new.file_ids
        ]
        await call.run(_attach, store, files)
    return reply(await call.run(_store_object, store))


@router.get("/{vector_store_id}")
@in_pool
def get_vector_store(store: Reading) -> JsonObject:
    """Get a vector store."""
    return _store_object(store)


@router.post("/{vector_store_id}")
@in_pool
def modify_vector_store(store: Writing, change: StoreChange) -> JsonObject:
    """Change name, metadata or expiration."""
    require_unrestricted(store.call.principal, "Others use the vector store, too.")
    changes = _details(change, "metadata", "expires_after", "name")
    if change.name is None:
        changes.pop("name", None)
    changed = replace(store, active=now(), details={**store.details, **changes})
    _record(store.call, store.id, store.created, changed.active, changed.details)
    return _store_object(changed)


@router.delete("/{vector_store_id}")
@in_pool
def delete_vector_store(store: Administration) -> JsonObject:
    """Delete a vector store that was created at run time, with its documents; files stay."""
    delete_set(store.call.service, store.call.name, store.call.principal)
    return {"id": store.id, "object": "vector_store.deleted", "deleted": True}


# Files of a vector store


def _attach(store: OpenedStore, new_files: Sequence[NewStoreFile], batch: str = "") -> None:
    """Submit the jobs that add files."""
    store.use()
    call = store.call
    rows = []
    paths = {}
    for new in new_files:
        file, path = known_file(call, new.file_id)
        metadata = openai.metadata_of(new.attributes, store.schema)
        metadata |= _chunk_sizes(store, new.chunking_strategy)
        metadata = without_none(metadata)
        identity, metadata = _identity(store, new.file_id, file["filename"], metadata)
        target = stored_path(call.folder, new.file_id[5:37], file["filename"])
        paths[identity] = str(_copied(path, target))
        row = {
            "store": store.id,
            "file": new.file_id,
            "identity": identity,
            "bytes": file["bytes"],
            "batch": batch,
            "labels": openai.labels_of(call.principal),
            "metadata": json.dumps(metadata),
            "created": now(),
        }
        rows.append(row)
    call.request.state.documents = list(paths)  # for the audit log
    for start in range(0, len(rows), _FILES_OF_JOB):
        rows_of_job = rows[start : start + _FILES_OF_JOB]
        arguments = {
            "files": {row["identity"]: paths[row["identity"]] for row in rows_of_job},
            "metadata": {row["identity"]: json.loads(row["metadata"]) for row in rows_of_job},
        }
        job = call.jobs.submit("add_files", arguments, key=call.key("attach"))
        records(call.service).insert("attached", [{**row, "job": job.id} for row in rows_of_job])


def _copied(path: Path | None, target: Path) -> Path:
    """Copy a file to the uploads of a set, unless it is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path is None or not path.is_file():
        raise ProblemError(
            404, "The file is no longer stored.", "Upload it again.", param="file_id"
        )
    if not target.exists():
        draft = target.with_name(f"{secrets.token_hex(8)}.part")
        shutil.copyfile(path, draft)
        draft.replace(target)
    target.touch()  # for `sweep`
    return target


def _chunk_sizes(store: OpenedStore, chunking: Chunking | None) -> JsonObject:
    """The metadata of a file for its chunks."""
    if chunking is None or (chunking.type, chunking.static) == ("auto", None):
        return {}
    sizes = chunking.static
    if (
        sizes is None
        or chunking.type != "static"
        or 2 * sizes.chunk_overlap_tokens > sizes.max_chunk_size_tokens
    ):
        got = "no static sizes"
        if sizes is not None:
            got = f"{sizes.chunk_overlap_tokens} of {sizes.max_chunk_size_tokens}"
        msg = f"chunk_overlap_tokens must be at most half of max_chunk_size_tokens; got {got}."
        raise ProblemError(400, msg, "Give both in static.", param="chunking_strategy")
    if not store.is_made:
        msg = "The configuration defines the chunks of this vector store."
        raise ProblemError(400, msg, "Leave chunking_strategy out.", param="chunking_strategy")
    return {"chunking": [sizes.max_chunk_size_tokens, sizes.chunk_overlap_tokens]}


def _identity(
    store: OpenedStore, file_id: str, name: str, metadata: JsonObject
) -> tuple[str, JsonObject]:
    """The id and the metadata of a file's document: of the one that there is, with its labels, or
    of a new one.
    """
    before = {row["identity"]: row for row in reversed(store.attached("file = ?", file_id))}
    for _, identity in reversed(_entries(store, list(before.values()))):
        info = store.call.find(identity)
        labels = list(info.labels) if info else json.loads(before[identity]["labels"] or "[]")
        return identity, metadata | ({"labels": labels} if labels else {})
    return store.call.authorize_addition(f"{file_id}/{name}", metadata, secrets.token_hex(8))


def _entries(
    store: OpenedStore, attached: Sequence[JsonObject], documents: Sequence[str] | None = ()
) -> list[tuple[JsonObject, str]]:
    """Files of a store that the principal sees, oldest first, each with the id of its document.

    Args:
        store: The store.
        attached: Records of attached files, the newest first.
        documents: Ids of other documents; None for all.
    """
    table = store.call.table
    jobs = store.call.jobs
    find_job = functools.cache(jobs.get)
    records_by_id = {row["identity"]: row for row in reversed(attached)}
    errors = {
        identity: ErrorInfo.from_message(kind, text)
        for identity, _, kind, text in reversed(table.failures())
    }
    working = {identity for identity, state in jobs.working().items() if state != "DELETING"}
    rows, live = _rows(store, records_by_id, documents)
    created = table.created([rows[identity].id for identity in live - records_by_id.keys()])
    identities = live | records_by_id.keys()
    if documents is None and store.call.principal.is_unrestricted:
        identities |= (errors.keys() | working) - rows.keys()
    hidden = {identity for identity, row in rows.items() if row.status == "live"} - live
    entries = []
    for identity in identities - hidden:
        record = records_by_id.get(identity)
        is_live = identity in live
        status, error = _status(
            find_job, record, errors.get(identity), is_working=identity in working, is_live=is_live
        )
        if not status:
            continue  # deleted
        row = rows.get(identity)
        metadata = _metadata(row if is_live else None, record)
        file = {
            "id": openai.file_id_of(identity, row.content_hash if row else "")[0],
            "status": status,
            "usage_bytes": _size(row, record),
            "created_at": record["created"] if record else _created(row, created),
            **_described(store, status, metadata, error),
        }
        entries.append((file, identity))

    def position(entry: tuple[JsonObject, str]) -> tuple[int, int, str]:
        file, identity = entry
        record = records_by_id.get(identity)
        return file["created_at"], record["number"] if record else 0, identity

    return sorted(entries, key=position)


def _metadata(row: Any, record: JsonObject | None) -> JsonObject:
    """The metadata of a file: of its live document, else those that it was attached with."""
    if row is not None:
        return merged_metadata(row)
    metadata: JsonObject = json.loads(record["metadata"]) if record else {}
    return metadata


def _created(row: Any, created: Mapping[int, float]) -> int:
    return int(created.get(row.id, 0)) if row is not None else 0


def _status(
    find_job: Callable[[str], Job],
    record: JsonObject | None,
    error: ErrorInfo | None,
    *,
    is_working: bool,
    is_live: bool,
) -> tuple[str, ErrorInfo | None]:
    """The status and error of a file: of one that is not live from its job, "" if it was
    deleted.
    """
    if is_working:
        return "in_progress", None
    if error is not None:
        return "failed", error
    if is_live:
        return "completed", None
    if record is not None:
        with suppress(NotRegisteredError):  # finished ones are stored for 30 days
            job = find_job(record["job"])
            if job.state == "CANCELED":
                return "cancelled", None
            if job.state == "FAILED":
                return "failed", job.error
    return "", None


def _size(row: Any, record: JsonObject | None) -> int:
    """The bytes of a file: of what was loaded, else of what was attached."""
    if row is not None and row.signature:
        return int(row.signature.size)
    return int(record["bytes"]) if record is not None else 0


def _rows(
    store: OpenedStore, attached: JsonObject, documents: Sequence[str] | None
) -> tuple[JsonObject, set[str]]:
    """The ledger's rows of attached and other documents, and which of them the principal sees
    live.
    """
    call = store.call
    table = store.call.table
    if call.principal.is_unrestricted:
        rows = table.all() if documents is None else table.named([*attached, *documents])
        return rows, {identity for identity, row in rows.items() if row.status == "live"}
    visible = set(documents or ())
    after = None
    while documents is None and (page := call.docs.documents(after=after, limit=1_000)):
        after = page[-1].id
        visible.update(info.id for info in page)
    rows = table.named([*attached, *visible])
    live = {
        identity
        for identity, row in rows.items()
        if row.status == "live" and (identity in visible or call.find(identity))
    }
    return rows, live


def _described(
    store: OpenedStore, status: str, metadata: JsonObject, error: ErrorInfo | None
) -> JsonObject:
    """The rest of a file's properties."""
    chunking: JsonObject = {"type": "other"}
    if sizes := metadata.get("chunking") or (store.is_made and CHUNK_SIZES):
        static = {"max_chunk_size_tokens": sizes[0], "chunk_overlap_tokens": sizes[1]}
        chunking = {"type": "static", "static": static}
    error = public_error(error, is_operator=store.call.principal.may("admin"))
    code = "server_error"
    text = f"{error.detail} {error.remedy}".strip() if error else "The file failed."
    if error is not None and error.type in ("LoadError", "LoaderEndedError"):
        is_unknown = error.detail.startswith(("No loader", "No text extractor"))
        code = "unsupported_file" if is_unknown else "invalid_file"
    return {
        "object": "vector_store.file",
        "vector_store_id": store.id,
        "last_error": {"code": code, "message": text} if status == "failed" else None,
        "chunking_strategy": chunking,
        "attributes": openai.attributes_of(metadata, store.schema),
    }


def _find(store: OpenedStore, file_id: str) -> tuple[JsonObject, str]:
    """A file of a store, and the id of its document.

    Raises:
        ProblemError: 404 if there is none.
    """
    entries = _entries(store, store.attached("file = ?", file_id))
    for _, identity in () if entries else documents_with(store.call, file_id, store.call.name):
        entries = _entries(store, (), [identity])
    if entries:
        return entries[-1]
    raise openai.unknown("vector store file", file_id)


def _filtered(paging: CursorPaging, rows: Sequence[JsonObject], status: str | None) -> JsonObject:
    return paging.page([row for row in rows if status in (None, row["status"])])


@router.get("/{vector_store_id}/files")
@in_pool
def list_vector_store_files(
    store: Reading,
    paging: Pages,
    filter: FileFilter = None,  # noqa: A002
) -> JsonObject:
    """List the files of a vector store."""
    return _filtered(paging, _all_files(store), filter)


@router.post("/{vector_store_id}/files")
@in_pool
def create_vector_store_file(store: Writing, new: NewStoreFile) -> JsonObject:
    """Add a file to a vector store."""
    _attach(store, [new])
    return _find(store, new.file_id)[0]


@router.get("/{vector_store_id}/files/{file_id}")
@in_pool
def get_vector_store_file(store: Reading, file_id: Id) -> JsonObject:
    """Get a file of a vector store."""
    return _find(store, file_id)[0]


def _change(
    store: OpenedStore,
    identity: str,
    kind: str,
    arguments: JsonObject,
    value: JsonObject,
) -> Changing:
    store.call.request.state.documents = [identity]
    return Changing(store.call.jobs.submit(kind, arguments, key=store.call.key(kind)), value)


@router.post("/{vector_store_id}/files/{file_id}")
@in_pool
def update_vector_store_file(store: Writing, file_id: Id, change: AttributesChange) -> Changing:
    """Replace the attributes of a file."""
    file, identity = _find(store, file_id)
    changes = openai.metadata_of(change.attributes, store.schema)
    if file["status"] != "completed":
        raise ProblemError(409, f"The file is {file['status']}.", "Change it when it is completed.")
    attributes = openai.attributes_of(changes, store.schema)
    value = {**file, "attributes": attributes}
    return _change(store, identity, "update_metadata", {"changes": {identity: changes}}, value)


@router.delete("/{vector_store_id}/files/{file_id}")
@in_pool
def delete_vector_store_file(store: Writing, file_id: Id) -> Any:
    """Remove a file from a vector store; the file itself stays."""
    file, identity = _find(store, file_id)
    value = {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}
    is_stored = file["status"] != "cancelled" or store.call.table.find(identity) is not None
    result: JsonObject | Changing = value
    if is_stored:
        result = _change(store, identity, "delete_files", {"documents": [identity]}, value)
    records(store.call.service).write(
        "DELETE FROM attached WHERE store = ? AND identity = ?", store.id, identity
    )
    return result


@router.get("/{vector_store_id}/files/{file_id}/content")
@in_pool
def get_vector_store_file_content(store: Reading, file_id: Id) -> JsonObject:
    """Get the text of a file."""
    nodes = store.call.docs.get_nodes(
        LAZY_ROOT_NAME, document_ids=[root_uid(_find(store, file_id)[1])]
    )
    validate_size(nodes, "The file has", "Get its bytes instead.")
    data = [{"type": "text", "text": node.text} for node in nodes]
    return {
        "object": "vector_store.file_content.page",
        "data": data,
        "has_more": False,
        "next_page": None,
    }


# Batches


def _batch(store: OpenedStore, batch_id: str) -> tuple[JsonObject, list[JsonObject], set[str]]:
    """A batch, its files, and its jobs.

    Raises:
        ProblemError: 404 if there is none that the principal sees.
    """
    rows = store.attached("batch = ?", batch_id) if batch_id else []
    if not rows:
        raise openai.unknown("vector store file batch", batch_id)
    files = [file for file, _ in _entries(store, rows)]
    counts = _counts(files)
    status = "failed" if counts["failed"] == counts["total"] > 0 else "completed"
    batch = {
        "id": batch_id,
        "object": "vector_store.files_batch",
        "created_at": rows[-1]["created"],
        "status": next((state for state in ("in_progress", "cancelled") if counts[state]), status),
        "vector_store_id": store.id,
        "file_counts": counts,
    }
    return batch, files, {row["job"] for row in rows}


@router.post("/{vector_store_id}/file_batches")
@in_pool
def create_file_batch(store: Writing, new: NewBatch) -> JsonObject:
    """Add files to a vector store together."""
    common: JsonObject = {
        "attributes": new.attributes,
        "chunking_strategy": new.chunking_strategy,
    }
    if bool(new.file_ids) == bool(new.files) or (new.files and any(common.values())):
        msg = (
            "Either file_ids must name files, with attributes and chunking_strategy for all of"
            " them,"
        )
        raise ProblemError(
            400, f"{msg} or files, each of which may have its own.", param="file_ids"
        )
    files = new.files or [NewStoreFile(file_id=file_id, **common) for file_id in new.file_ids]
    batch_id = f"vsfb_{secrets.token_hex(16)}"
    _attach(store, list({file.file_id: file for file in files}.values()), batch_id)
    return _batch(store, batch_id)[0]


@router.get("/{vector_store_id}/file_batches/{batch_id}")
@in_pool
def get_file_batch(store: Reading, batch_id: Id) -> JsonObject:
    """Get a batch."""
    return _batch(store, batch_id)[0]


@router.post("/{vector_store_id}/file_batches/{batch_id}/cancel")
@in_pool
def cancel_file_batch(store: Writing, batch_id: Id) -> JsonObject:
    """Cancel a batch: what is not begun is not added."""
    for job in _batch(store, batch_id)[2]:
        with suppress(NotRegisteredError):
            store.call.jobs.cancel(job)
    return _batch(store, batch_id)[0]


@router.get("/{vector_store_id}/file_batches/{batch_id}/files")
@in_pool
def list_batch_files(
    store: Reading,
    batch_id: Id,
    paging: Pages,
    filter: FileFilter = None,  # noqa: A002
) -> JsonObject:
    """List the files of a batch."""
    return _filtered(paging, _batch(store, batch_id)[1], filter)


# Search


def search(store: OpenedStore, request: StoreSearch, *, with_details: bool) -> list[JsonObject]:
    """Search a vector store: the best results of all queries, with scores from 0 to 1 in the order
    of the retriever's.
    """
    store.use()
    call = store.call
    docs = call.docs
    topk = request.max_num_results
    group = call.service.group_of(call.name)
    retriever = call.service.default_retriever(docs, group)
    where = openai.filter_of(request.filters, docs.reader.fields)
    best = dict[str, tuple[float, DocNode]]()
    for query in request.queries():
        with retrieval_span(call.name, query, topk):
            nodes = retriever(query, where, topk)
        for node in nodes:
            score = openai.unit_score(node.score, by_keywords=not docs.reader.embed_keys)
            if score >= max(request.ranking_options.score_threshold, best.get(node.uid, (0.0,))[0]):
                best[node.uid] = score, node
    ranked = sorted(best.values(), key=lambda scored: (-scored[0], scored[1].uid))[:topk]
    rows = store.call.table.named({node.path for _, node in ranked})
    results = []
    for score, node in ranked:
        content_hash = rows[node.path].content_hash if node.path in rows else ""
        file_id, filename = openai.file_id_of(node.path, content_hash)
        result: JsonObject = {
            "file_id": file_id,
            "filename": filename,
            "score": score,
            "attributes": openai.attributes_of(node.segment.fields, docs.reader.fields),
            "content": [{"type": "text", "text": node.text}],
        }
        if with_details:
            result["details"] = {
                "node": node.uid,
                "score": node.score,
                "path": node.path,
                "location": node.location,
                "superseded_by": node.metadata.get("superseded_by", ""),
                "span": node.span,
            }
        results.append(result)
    return results


@router.post("/{vector_store_id}/search")
async def search_vector_store(
    store: Reading, request: StoreSearch, include: Include = None
) -> Response:
    """Search a vector store."""
    data = await store.call.run(
        store.call.docs.reader.read,
        lambda _: search(store, request, with_details=include is not None),
    )
    page = {
        "object": "vector_store.search_results.page",
        "search_query": request.queries(),
        "data": data,
        "has_more": False,
        "next_page": None,
    }
    return reply(page)
