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
from collections.abc import Mapping, Sequence
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
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.errors import NotRegisteredError
from lazyrag.pipeline.tracing import retrieval_span
from lazyrag.server.api.search import MAX_QUERY, MAX_TEXT
from lazyrag.server.api.uploads import Call, reply, stored_path
from lazyrag.server.core.problems import ProblemError, public_error
from lazyrag.server.core.sets import CHUNK_SIZES, create_set, delete_set, made_sets, records
from lazyrag.server.jobs import Jobs
from lazyrag.server.openai.files import documents_with, known_file
from lazyrag.server.openai.protocol import Changing, Id, Model, Paging, in_pool, now

router = APIRouter(prefix="/v1/vector_stores", tags=["openai"], default_response_class=Response)

_OPEN_S = 10.0  # how long a request waits for a new set
_LOOK_S = 0.05
_ACTIVE_S = 60  # accuracy of the last activity
_FILES_OF_JOB = 100
_STATES = ("in_progress", "completed", "failed", "cancelled")
Pages: TypeAlias = Annotated[Paging, Depends()]
FileFilter: TypeAlias = Annotated[
    Literal["in_progress", "completed", "failed", "cancelled"] | None, Query()
]
Name: TypeAlias = Annotated[str, Field(max_length=200)]
Question: TypeAlias = Annotated[str, Field(max_length=MAX_QUERY)]
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
    score_threshold: float = Field(default=0, ge=0, le=1)


class StoreSearch(Model):
    """A search of a vector store; the query is never rewritten, see ``search_query`` of the
    response.
    """

    query: Question | Annotated[list[Question], Field(min_length=1, max_length=16)]
    filters: openai.Filters | None = None
    max_num_results: int = Field(default=10, ge=1, le=50)
    ranking_options: RankingOptions = RankingOptions()
    rewrite_query: bool = False


# Vector stores


@dataclass(frozen=True)
class Store:
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
    call: Call
    created: int
    active: int
    details: dict[str, Any]
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

    def attached(self, condition: str, *values: Any) -> list[dict[str, Any]]:
        """Records of attached files that the principal sees, the newest first."""
        query = f"SELECT * FROM attached WHERE store = ? AND {condition} ORDER BY number DESC"  # noqa: S608
        rows = records(self.call.service).select(query, self.id, *values)
        return [row for row in rows if openai.sees(self.call.principal, row["labels"])]

    def row(self, identity: str) -> Any:
        """The ledger's row of a document; None for none."""
        return self.call.whole._indexer.ledger.documents.find(identity)


def _store(call: Call, own: str, name: str) -> Store:
    """A vector store; one of the configuration gets its record when it is first asked for."""
    docs = call.service.view(name, call.principal)
    query = "SELECT created, active, details FROM store WHERE id = ?"
    if not (found := records(call.service).select(query, own)):
        records(call.service).write(
            "INSERT OR IGNORE INTO store VALUES (?, ?, ?, '{}')", own, now(), now()
        )
        found = records(call.service).select(query, own)
    of_set = Call(call.request, call.service, name, call.principal, docs, None)
    row = found[0]
    is_made = made_sets(call.service).find(name) is not None
    return Store(own, of_set, row["created"], row["active"], json.loads(row["details"]), is_made)


async def open_store(call: Call, vector_store_id: str) -> Store:
    """A vector store by id; waits for one that was just created.

    Raises:
        ProblemError: 404 if there is none that the principal may see, 503 if it cannot be read yet.
    """
    name = (await call.run(openai.store_ids, call.service)).get(vector_store_id)
    if name is None:
        raise openai.unknown("vector store", vector_store_id)
    until = time.monotonic() + _OPEN_S
    while name not in call.service.sets and time.monotonic() < until:  # noqa: ASYNC110  another thread opens it
        await anyio.sleep(_LOOK_S)
    call.request.state.dataset = name  # for the audit log
    try:
        return await call.run(_store, call, vector_store_id, name)
    except ProblemError as problem:
        raise (
            problem if problem.status == 503 else openai.unknown("vector store", vector_store_id)
        ) from None


def _dependency(face: Any) -> Any:
    async def find(call: face, vector_store_id: Id) -> Store:
        return await open_store(call, vector_store_id)

    find.__annotations__["call"] = face
    return Depends(find)


Reading: TypeAlias = Annotated[Store, _dependency(openai.Reading)]
Writing: TypeAlias = Annotated[Store, _dependency(openai.Writing)]
Administration: TypeAlias = Annotated[Store, _dependency(openai.Administration)]


def _store_object(store: Store) -> dict[str, Any]:
    details = store.details
    entries = _all_files(store)
    counts = _counts(entries)
    is_late = store.expires_at is not None and store.expires_at <= now()
    status = "expired" if is_late else "in_progress" if counts["in_progress"] else "completed"
    found = {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created,
        "last_active_at": store.active,
    }
    found |= {
        "name": details.get("name", store.call.name),
        "description": details.get("description"),
    }
    found |= {
        "metadata": details.get("metadata") or {},
        "usage_bytes": sum(one["usage_bytes"] for one in entries),
    }
    if store.expires_at is not None:
        found["expires_after"] = {"anchor": "last_active_at", "days": details["days"]}
    return {**found, "status": status, "file_counts": counts, "expires_at": store.expires_at}


def _all_files(store: Store) -> list[dict[str, Any]]:
    return [file for file, _ in _entries(store, store.attached("1"), None)]


def _counts(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found = Counter(one["status"] for one in entries)
    return {**{one: found[one] for one in _STATES}, "total": len(entries)}


@router.get("")
@in_pool
def list_vector_stores(call: openai.Reading, paging: Pages) -> dict[str, Any]:
    """List the vector stores."""
    stores: dict[str, Store] = {}
    for own, name in openai.store_ids(call.service).items():
        with suppress(ProblemError):  # its labels do not restrict every set
            stores[own] = _store(call, own, name)
    found = paging.page(
        [{"id": one.id} for one in sorted(stores.values(), key=lambda one: one.created)]
    )
    return {**found, "data": [_store_object(stores[one["id"]]) for one in found["data"]]}


def _details(wanted: StoreChange, *names: str) -> dict[str, Any]:
    """What is recorded of a vector store."""
    found: dict[str, Any] = wanted.model_dump(include=set(names) & wanted.model_fields_set)
    if "expires_after" in found:
        found["days"] = wanted.expires_after and wanted.expires_after.days
    return {key: value for key, value in found.items() if key != "expires_after"}


@router.post("")
async def create_vector_store(call: openai.Administration, wanted: NewStore) -> Response:
    """Create a vector store, which is a new set, and add files to it."""

    def create() -> str:
        for file_id in wanted.file_ids:
            known_file(call, file_id)
        allowed = re.sub(r"[^\w. -]+", "-", wanted.name or "").strip("_.- ")[:80].rstrip()
        name = allowed or f"store-{secrets.token_hex(4)}"
        try:
            made = create_set(call.service, name, call.principal)
        except ProblemError as problem:
            if problem.status != 409:
                raise
            made = create_set(call.service, f"{name}-{secrets.token_hex(4)}", call.principal)
        details = {"name": wanted.name or ""} | _details(
            wanted, "description", "metadata", "expires_after"
        )
        row = {
            "id": f"vs_{made.id}",
            "created": made.created,
            "active": now(),
            "details": json.dumps(details),
        }
        records(call.service).insert("store", [row])
        return f"vs_{made.id}"

    store = await open_store(call, await call.run(create))
    if wanted.file_ids:
        files = [
            NewStoreFile(file_id=one, chunking_strategy=wanted.chunking_strategy)
            for one in wanted.file_ids
        ]
        await call.run(_attach, store, files)
    return reply(await call.run(_store_object, store))


@router.get("/{vector_store_id}")
@in_pool
def get_vector_store(call: Reading) -> dict[str, Any]:
    """Get a vector store."""
    return _store_object(call)


@router.post("/{vector_store_id}")
@in_pool
def modify_vector_store(call: Writing, wanted: StoreChange) -> dict[str, Any]:
    """Change name, metadata or expiration."""
    if call.call.principal.labels is not None:
        raise ProblemError(403, "Others use the vector store, too.", "Use a token without labels.")
    changes = _details(
        wanted, "metadata", "expires_after", *(("name",) if wanted.name is not None else ())
    )
    changed = replace(call, active=now(), details={**call.details, **changes})
    row = {
        "id": call.id,
        "created": call.created,
        "active": changed.active,
        "details": json.dumps(changed.details),
    }
    records(call.call.service).insert("store", [row])
    return _store_object(changed)


@router.delete("/{vector_store_id}")
@in_pool
def delete_vector_store(call: Administration) -> dict[str, Any]:
    """Delete a vector store that was created at run time, with its documents; files stay."""
    delete_set(call.call.service, call.call.name, call.call.principal)
    return {"id": call.id, "object": "vector_store.deleted", "deleted": True}


# Files of a vector store


def _attach(store: Store, wanted: Sequence[NewStoreFile], batch: str = "") -> None:
    """Submit the jobs that add files."""
    store.use()
    call = store.call
    rows = []
    files = {}
    for one in wanted:
        about, path = known_file(call, one.file_id)
        metadata = openai.metadata_of(one.attributes, call.whole.reader.fields) | _chunk_sizes(
            store, one.chunking_strategy
        )
        given = {key: value for key, value in metadata.items() if value is not None}
        identity, given = _identity(store, one.file_id, about["filename"], given)
        files[identity] = _copied(
            path, stored_path(call.folder, one.file_id[5:37], about["filename"])
        )
        row = {
            "store": store.id,
            "file": one.file_id,
            "identity": identity,
            "bytes": about["bytes"],
            "batch": batch,
        }
        labels = openai.labels_of(call.principal)
        rows.append({**row, "labels": labels, "metadata": json.dumps(given), "created": now()})
    call.request.state.documents = list(files)  # for the audit log
    for start in range(0, len(rows), _FILES_OF_JOB):
        some = rows[start : start + _FILES_OF_JOB]
        arguments = {"files": {row["identity"]: str(files[row["identity"]]) for row in some}}
        arguments["metadata"] = {row["identity"]: json.loads(row["metadata"]) for row in some}
        job = Jobs(call.whole).submit("add_files", arguments, key=call.key("attach"))
        records(call.service).insert("attached", [{**row, "job": job.id} for row in some])


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


def _chunk_sizes(store: Store, wanted: Chunking | None) -> dict[str, Any]:
    """The metadata of a file for its chunks."""
    if wanted is None or (wanted.type, wanted.static) == ("auto", None):
        return {}
    sizes = wanted.static if wanted.type == "static" else None
    if sizes is None or 2 * sizes.chunk_overlap_tokens > sizes.max_chunk_size_tokens:
        given = (
            wanted.static
            and f"{wanted.static.chunk_overlap_tokens} of {wanted.static.max_chunk_size_tokens}"
        )
        msg = (
            "chunk_overlap_tokens must be at most half of max_chunk_size_tokens; got"
            f" {given or 'no static sizes'}."
        )
        raise ProblemError(400, msg, "Give both in static.", param="chunking_strategy")
    if not store.is_made:
        msg = "The configuration defines the chunks of this vector store."
        raise ProblemError(400, msg, "Leave chunking_strategy out.", param="chunking_strategy")
    return {"chunking": [sizes.max_chunk_size_tokens, sizes.chunk_overlap_tokens]}


def _identity(
    store: Store, file_id: str, name: str, metadata: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The id and the metadata of a file's document: of the one that there is, with its labels, or
    of a new one.
    """
    before = {row["identity"]: row for row in reversed(store.attached("file = ?", file_id))}
    for _, identity in reversed(_entries(store, list(before.values()))):
        known = store.call.find(identity)
        labels = list(known.labels) if known else json.loads(before[identity]["labels"] or "[]")
        return identity, metadata | ({"labels": labels} if labels else {})
    return store.call.owned(f"{file_id}/{name}", metadata, secrets.token_hex(8))


def _entries(
    store: Store, attached: Sequence[dict[str, Any]], documents: Sequence[str] | None = ()
) -> list[tuple[dict[str, Any], str]]:
    """Files of a store that the principal sees, oldest first, each with the id of its document.

    Args:
        store: The store.
        attached: Records of attached files, the newest first.
        documents: Ids of other documents; None for all.
    """
    table = store.call.whole._indexer.ledger.documents
    jobs = Jobs(store.call.whole)
    own = {row["identity"]: row for row in reversed(attached)}
    failed = {
        one: ErrorInfo.from_message(kind, text) for one, _, kind, text in reversed(table.failures())
    }
    working = {one: state for one, state in jobs.working().items() if state != "DELETING"}
    rows, live = _rows(store, own, documents)
    created = table.created([rows[one].id for one in live - own.keys()])
    is_all = documents is None and store.call.principal.labels is None
    job = functools.cache(jobs.get)
    found: list[tuple[int, int, str, dict[str, Any]]] = []
    for one in (
        live | own.keys() | ((failed.keys() | working.keys()) - rows.keys() if is_all else set())
    ):
        row = rows.get(one)
        record = own.get(one)
        if one not in live and row is not None and row.status == "live":
            continue  # hidden
        status = "in_progress" if one in working else "failed" if one in failed else "completed"
        error = failed.get(one)
        if status == "completed" and one not in live:
            state = ""
            error = None
            with suppress(NotRegisteredError):  # finished ones are stored for 30 days
                state, error = (
                    (job(record["job"]).state, job(record["job"]).error) if record else ("", None)
                )
            if state not in ("CANCELED", "FAILED"):
                continue  # deleted
            status = "cancelled" if state == "CANCELED" else "failed"
        about = {"id": openai.file_id_of(one, row.content_hash if row else "")[0], "status": status}
        size = row.signature.size if row and row.signature else record["bytes"] if record else 0
        at = record["created"] if record else int(created.get(row.id, 0)) if row else 0
        metadata: dict[str, Any] = json.loads(record["metadata"]) if record else {}
        if row is not None and one in live:
            metadata = (
                json.loads(row.loaded) | json.loads(row.user_metadata) | json.loads(row.updates)
            )
        file = {
            **about,
            "usage_bytes": size,
            "created_at": at,
            **_described(store, status, metadata, error),
        }
        found.append((at, record["number"] if record else 0, one, file))
    return [(file, one) for _, _, one, file in sorted(found, key=lambda entry: entry[:3])]


def _rows(
    store: Store, own: Mapping[str, Any], documents: Sequence[str] | None
) -> tuple[dict[str, Any], set[str]]:
    """The ledger's rows of attached and other documents, and which of them the principal sees
    live.
    """
    call = store.call
    table = store.call.whole._indexer.ledger.documents
    if call.principal.labels is None:
        rows = table.all() if documents is None else table.named([*own, *documents])
        return rows, {one for one, row in rows.items() if row.status == "live"}
    seen = set(documents or ())
    after = None
    while documents is None and (page := call.docs.documents(after=after, limit=1_000)):
        after = page[-1].id
        seen = seen | {one.id for one in page}
    rows = table.named([*own, *seen])
    return rows, {
        one for one, row in rows.items() if row.status == "live" and (one in seen or call.find(one))
    }


def _described(
    store: Store, status: str, metadata: Mapping[str, Any], error: ErrorInfo | None
) -> dict[str, Any]:
    """The rest of a file's properties."""
    sizes = metadata.get("chunking") or (CHUNK_SIZES if store.is_made else None)
    static = (
        {"max_chunk_size_tokens": sizes[0], "chunk_overlap_tokens": sizes[1]} if sizes else None
    )
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
        "chunking_strategy": {"type": "static", "static": static} if static else {"type": "other"},
        "attributes": openai.attributes_of(metadata, store.call.whole.reader.fields),
    }


def _find(store: Store, file_id: str) -> tuple[dict[str, Any], str]:
    """A file of a store, and the id of its document.

    Raises:
        ProblemError: 404 if there is none.
    """
    found = _entries(store, store.attached("file = ?", file_id))
    for _, identity in () if found else documents_with(store.call, file_id, store.call.name):
        found = _entries(store, (), [identity])
    if found:
        return found[-1]
    raise openai.unknown("vector store file", file_id)


def _filtered(paging: Paging, rows: Sequence[dict[str, Any]], status: str | None) -> dict[str, Any]:
    return paging.page([one for one in rows if status in (None, one["status"])])


@router.get("/{vector_store_id}/files")
@in_pool
def list_vector_store_files(
    call: Reading,
    paging: Pages,
    filter: FileFilter = None,  # noqa: A002
) -> dict[str, Any]:
    """List the files of a vector store."""
    return _filtered(paging, _all_files(call), filter)


@router.post("/{vector_store_id}/files")
@in_pool
def create_vector_store_file(call: Writing, wanted: NewStoreFile) -> dict[str, Any]:
    """Add a file to a vector store."""
    _attach(call, [wanted])
    return _find(call, wanted.file_id)[0]


@router.get("/{vector_store_id}/files/{file_id}")
@in_pool
def get_vector_store_file(call: Reading, file_id: Id) -> dict[str, Any]:
    """Get a file of a vector store."""
    return _find(call, file_id)[0]


def _change(
    store: Store, identity: str, kind: str, arguments: Mapping[str, Any], value: dict[str, Any]
) -> Changing:
    store.call.request.state.documents = [identity]
    return Changing(Jobs(store.call.whole).submit(kind, arguments, key=store.call.key(kind)), value)


@router.post("/{vector_store_id}/files/{file_id}")
@in_pool
def update_vector_store_file(call: Writing, file_id: Id, wanted: AttributesChange) -> Changing:
    """Replace the attributes of a file."""
    found, identity = _find(call, file_id)
    changes = openai.metadata_of(wanted.attributes, call.call.whole.reader.fields)
    if found["status"] != "completed":
        raise ProblemError(
            409, f"The file is {found['status']}.", "Change it when it is completed."
        )
    value = {**found, "attributes": openai.attributes_of(changes, call.call.whole.reader.fields)}
    return _change(call, identity, "update_metadata", {"changes": {identity: changes}}, value)


@router.delete("/{vector_store_id}/files/{file_id}")
@in_pool
def delete_vector_store_file(call: Writing, file_id: Id) -> Any:
    """Remove a file from a vector store; the file itself stays."""
    found, identity = _find(call, file_id)
    value = {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}
    is_stored = found["status"] != "cancelled" or call.row(identity) is not None
    result = (
        _change(call, identity, "delete_files", {"documents": [identity]}, value)
        if is_stored
        else value
    )
    records(call.call.service).write(
        "DELETE FROM attached WHERE store = ? AND identity = ?", call.id, identity
    )
    return result


@router.get("/{vector_store_id}/files/{file_id}/content")
@in_pool
def get_vector_store_file_content(call: Reading, file_id: Id) -> dict[str, Any]:
    """Get the text of a file."""
    nodes = call.call.docs.get_nodes(
        LAZY_ROOT_NAME, document_ids=[root_uid(_find(call, file_id)[1])]
    )
    if sum(len(node.text) for node in nodes) > MAX_TEXT:
        raise ProblemError(
            413, f"The file has more than {MAX_TEXT:,} characters.", "Get its bytes instead."
        )
    data = [{"type": "text", "text": node.text} for node in nodes]
    return {
        "object": "vector_store.file_content.page",
        "data": data,
        "has_more": False,
        "next_page": None,
    }


# Batches


def _batch(store: Store, batch_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], set[str]]:
    """A batch, its files, and its jobs.

    Raises:
        ProblemError: 404 if there is none that the principal sees.
    """
    rows = store.attached("batch = ?", batch_id) if batch_id else []
    if not rows:
        raise openai.unknown("vector store file batch", batch_id)
    entries = [file for file, _ in _entries(store, rows)]
    counts = _counts(entries)
    status = "failed" if counts["failed"] == counts["total"] > 0 else "completed"
    status = next((one for one in ("in_progress", "cancelled") if counts[one]), status)
    found = {
        "id": batch_id,
        "object": "vector_store.files_batch",
        "created_at": rows[-1]["created"],
        "status": status,
    }
    return (
        {**found, "vector_store_id": store.id, "file_counts": counts},
        entries,
        {row["job"] for row in rows},
    )


@router.post("/{vector_store_id}/file_batches")
@in_pool
def create_file_batch(call: Writing, wanted: NewBatch) -> dict[str, Any]:
    """Add files to a vector store together."""
    common: dict[str, Any] = {
        "attributes": wanted.attributes,
        "chunking_strategy": wanted.chunking_strategy,
    }
    if bool(wanted.file_ids) == bool(wanted.files) or (wanted.files and any(common.values())):
        msg = (
            "Either file_ids must name files, with attributes and chunking_strategy for all of"
            " them,"
        )
        raise ProblemError(
            400, f"{msg} or files, each of which may have its own.", param="file_ids"
        )
    files = wanted.files or [NewStoreFile(file_id=one, **common) for one in wanted.file_ids]
    batch_id = f"vsfb_{secrets.token_hex(16)}"
    _attach(call, list({one.file_id: one for one in files}.values()), batch_id)
    return _batch(call, batch_id)[0]


@router.get("/{vector_store_id}/file_batches/{batch_id}")
@in_pool
def get_file_batch(call: Reading, batch_id: Id) -> dict[str, Any]:
    """Get a batch."""
    return _batch(call, batch_id)[0]


@router.post("/{vector_store_id}/file_batches/{batch_id}/cancel")
@in_pool
def cancel_file_batch(call: Writing, batch_id: Id) -> dict[str, Any]:
    """Cancel a batch: what is not begun is not added."""
    for job in _batch(call, batch_id)[2]:
        with suppress(NotRegisteredError):
            Jobs(call.call.whole).cancel(job)
    return _batch(call, batch_id)[0]


@router.get("/{vector_store_id}/file_batches/{batch_id}/files")
@in_pool
def list_batch_files(
    call: Reading,
    batch_id: Id,
    paging: Pages,
    filter: FileFilter = None,  # noqa: A002
) -> dict[str, Any]:
    """List the files of a batch."""
    return _filtered(paging, _batch(call, batch_id)[1], filter)


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


def search(store: Store, wanted: StoreSearch) -> list[Hit]:
    """Search a vector store: the best hits of all queries."""
    store.use()
    docs = store.call.docs
    name = store.call.name
    topk = wanted.max_num_results
    retriever = store.call.service.retriever(
        docs, store.call.service.group_of(name), "default", None, None
    )
    where = openai.filter_of(wanted.filters, docs.reader.fields)
    best = dict[str, tuple[float, DocNode]]()
    for query in [wanted.query] if isinstance(wanted.query, str) else wanted.query:
        with retrieval_span(name, query, topk):
            nodes = retriever(query, where, topk)
        for node in nodes:
            score = openai.unit_score(node.score, by_keywords=not docs.reader.embed_keys)
            if score >= max(wanted.ranking_options.score_threshold, best.get(node.uid, (0.0,))[0]):
                best[node.uid] = score, node
    ranked = sorted(best.values(), key=lambda one: (-one[0], one[1].uid))[:topk]
    rows = store.call.whole._indexer.ledger.documents.named({node.path for _, node in ranked})
    hits = []
    for score, node in ranked:
        file = openai.file_id_of(
            node.path, rows[node.path].content_hash if node.path in rows else ""
        )
        hits.append(
            Hit(node, score, *file, openai.attributes_of(node.segment.fields, docs.reader.fields))
        )
    return hits


@router.post("/{vector_store_id}/search")
async def search_vector_store(
    store: Reading, wanted: StoreSearch, include: Include = None
) -> Response:
    """Search a vector store."""

    def result(hit: Hit) -> dict[str, Any]:
        found = {
            "file_id": hit.file_id,
            "filename": hit.filename,
            "score": hit.score,
            "attributes": hit.attributes,
        }
        node = hit.node
        found["content"] = [{"type": "text", "text": hit.node.text}]
        if include:
            details = {
                "node": node.uid,
                "score": node.score,
                "path": node.path,
                "location": node.location,
            }
            found["details"] = {**details, "span": node.span}
        return found

    data = await store.call.run(
        store.call.docs.reader.read, lambda _: list(map(result, search(store, wanted)))
    )
    queries = [wanted.query] if isinstance(wanted.query, str) else wanted.query
    found = {"object": "vector_store.search_results.page", "search_query": queries, "data": data}
    return reply({**found, "has_more": False, "next_page": None})
