"""The pages that manage: files with uploads and deletions, node groups."""

from __future__ import annotations

import asyncio
import json
import os
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from starlette.responses import Response

from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.document import DocumentInfo
from lazyrag.errors import LazyRAGError
from lazyrag.read.rows import dataset_file, select_rows
from lazyrag.server.api import answers, documents, uploads
from lazyrag.server.core.set_request import Administration, Reading, SetRequest, Writing, digest_of
from lazyrag.server.core.upload_files import FileResult, stored_path
from lazyrag.server.page import page
from lazyrag.server.page.page import Facts, Form, text_of
from lazyrag.stores.sqlite import read_text
from lazyrag.types import JsonObject

router = APIRouter(prefix="/s/{set}", include_in_schema=False)

_ROWS = 50
_NODES = 20
_MANY = 1_000
UNDO_S = 10.0
"""How long a deletion can be undone."""
_LOOK_S = 0.5
_COMMENT_S = 15.0
_HELD_S = 900.0
_ORDER: Any = ("FAILED", "WORKING", "WAITING", "SUCCESS")
_SHOWN: Any = (*_ORDER, "DELETING")
_UNFINISHED: Any = ("WORKING", "WAITING")
_tasks: set[asyncio.Task[None]] = set()

# Files: the table


class FilesQuery(BaseModel):
    """Which files are shown: those with a text in their path, or of a state, or with a label."""

    q: str = ""
    status: str = ""
    label: str = ""
    after: str = ""


@router.get("/files")
async def show_files(call: Reading, query: Annotated[FilesQuery, Query()]) -> Response:
    """The files, failed ones first."""
    return await _files(call, query)


async def _files(call: SetRequest, query: FilesQuery | None = None, **more: Any) -> Response:
    query = query or FilesQuery()
    if call.principal.may("write"):
        await _finish_deletions(call)
    facts = await call.run(_file_facts, call, query)
    facts |= {"q": query.q, "label": query.label, "after": query.after, "dialog": None, **more}
    return await page.render_set(call, "files.html", page="files", fragments=("files",), **facts)


def _file_facts(call: SetRequest, query: FilesQuery) -> Facts:
    status = query.status.upper()
    stamp = _stamp(call)
    jobs = []
    for state in _UNFINISHED:
        jobs += documents.own_jobs(call, None, 20, state)
    if query.q:
        rows, following = _named(call, query.q, status, query.after)
    else:
        rows, following = _listed(call, status, query.label, query.after)
    if not (query.q or query.label or query.after) and status in ("", "WAITING"):
        failed = sum(info.status == "FAILED" for info in rows)
        rows[failed:failed] = _coming(call, jobs, rows)
    recent_jobs = documents.own_jobs(call, None, 20)
    return {
        "rows": rows,
        "following": following,
        "counts": _counts(call),
        "shown": status if status in _ORDER else "",
        "jobs": jobs,
        "now": time.time(),
        "undo_s": UNDO_S,
        "deletions": call.records("deletion", is_own=True),
        "purges": [job for job in recent_jobs if job.kind == "purge"],
        "skipped": _skipped(call),
        "folder": page.has_folder(call),
        "has_labels": "labels" in call.docs.reader.fields,
        "stamp": stamp,
    }


def _listed(
    call: SetRequest, status: str, label: str, after: str
) -> tuple[list[DocumentInfo], str | None]:
    """A page of the documents by state, then path; and where the next page begins."""
    states = [state for state in _ORDER if status in ("", state)] or _ORDER
    number, _, last = after.partition("~")
    where = {"labels": [label]} if label else None
    rows: list[tuple[int, DocumentInfo]] = []
    for section in range(int(number) if number.isdecimal() else 0, len(states)):
        limit = _ROWS + 1 - len(rows)
        of_state = call.docs.documents(last or None, limit, states[section], where)
        rows += [(section, call.hide_error_details(info)) for info in of_state]
        last = ""
        if len(rows) > _ROWS:
            break
    infos = [info for _, info in rows[:_ROWS]]
    following = None
    if len(rows) > _ROWS:
        section = rows[_ROWS - 1][0]
        following = f"{section}~{infos[-1].id}"
    return infos, following


_FIND = (  # the index alone has the paths; whether a document is there is looked up after that
    "SELECT identity FROM document WHERE ledger = :ledger AND identity > :after AND"
    " instr(lower(identity), :text) > 0 UNION SELECT identity FROM failure WHERE ledger = :ledger"
    " AND identity > :after AND instr(lower(identity), :text) > 0 ORDER BY identity LIMIT :limit"
)


def _named(
    call: SetRequest, text: str, status: str, after: str
) -> tuple[list[DocumentInfo], str | None]:
    """A page of the documents with a text in their path."""
    states = (status,) if status else _SHOWN
    infos: list[DocumentInfo] = []
    is_last = False
    while len(infos) <= _ROWS and not is_last:
        find = _find_paths if call.principal.is_unrestricted else _find_visible_paths
        named, after, is_last = find(call, text.lower(), after)
        infos += [info for info in named if info is not None and info.status in states]
    rows = infos[:_ROWS]
    return rows, rows[-1].id if len(infos) > _ROWS else None


_Found: TypeAlias = tuple[Sequence[DocumentInfo | None], str, bool]
"""Documents, the last path that was searched, and whether no other follows."""


def _find_paths(call: SetRequest, text: str, after: str) -> _Found:
    rows = _rows(call, _FIND, after=after, text=text, limit=_ROWS + 1)
    paths = [read_text(row[0]) for row in rows]
    last = paths[-1] if paths else ""
    return list(map(call.find, paths)), last, len(paths) <= _ROWS


def _find_visible_paths(call: SetRequest, text: str, after: str) -> _Found:
    infos = call.docs.documents(after or None, _MANY)
    named = [info for info in infos if text in info.id.lower()]
    last = infos[-1].id if infos else ""
    return named, last, len(infos) < _MANY


def _rows(call: SetRequest, query: str, **values: Any) -> list[Any]:
    """Rows of the ledger of a set with one store."""
    return select_rows(call.unrestricted.reader, query, **values)


_COUNT = (
    "SELECT status, count(*) FROM document WHERE ledger = :ledger AND status IN ('live', 'new')"
    " GROUP BY status UNION ALL SELECT 'failed ' || ifnull(status, ''), count(*) FROM (SELECT"
    " DISTINCT identity AS one FROM failure WHERE ledger = :ledger) AS failed LEFT JOIN document ON"
    " ledger = :ledger AND identity = one GROUP BY status"
)


def _counts(call: SetRequest) -> dict[str, int]:
    """How many files are in which state; for a principal with labels up to a thousand."""
    if not call.principal.is_unrestricted:
        counts = {
            state: len(call.docs.documents(None, _MANY, state)) for state in ("FAILED", "SUCCESS")
        }
        return {"": sum(counts.values()), **counts, "WORKING": 0}
    state = repr(_rows(call, _CHANGED))
    cached = _counted.get(call.unrestricted)
    if cached is None or cached[0] != state:  # it reads every row
        cached = state, dict(_rows(call, _COUNT))
        _counted[call.unrestricted] = cached
    numbers = Counter(cached[1])
    ready = numbers["live"] - numbers["failed live"]
    new = numbers["new"] - numbers["failed new"]
    failed = numbers["failed live"] + numbers["failed new"] + numbers["failed "]
    return {"": failed + ready + new, "FAILED": failed, "WORKING": new, "SUCCESS": ready}


def _coming(
    call: SetRequest, jobs: Sequence[Any], rows: Sequence[DocumentInfo]
) -> list[DocumentInfo]:
    """Files of unfinished uploads that no row of the ledger has yet."""
    listed = {info.id for info in rows}
    coming = []
    for job in jobs:
        names = list(job.arguments["files"])[:_ROWS] if job.kind == "add_files" else ()
        coming += [
            DocumentInfo(name, name, job.state)
            for name in names
            if name not in listed and call.find(name) is None
        ]
    return coming[:_ROWS]


def _skipped(call: SetRequest) -> list[tuple[str, str]]:
    """What the last sync left out, and why, but hidden files."""
    if not call.principal.is_unrestricted:
        return []
    syncs = (job for job in call.jobs.list(limit=50) if job.kind == "sync")
    skipped = next((job.result["skipped"] for job in syncs if job.result), ())
    return [(path, why) for path, why in skipped if why != "hidden" and "delete_files" not in why]


# Files: live


@router.get("/events")
async def events(
    call: Reading,
    since: str = "",
    last_event_id: Annotated[str, Header(max_length=40)] = "",
) -> Response:
    """Events that something of what the page shows has changed; each has the id of the state."""

    async def body() -> AsyncIterator[bytes]:
        last = last_event_id or since
        spoke = time.monotonic()
        yield KEEPALIVE_COMMENT  # so that the connection is known to stand
        while not await call.request.is_disconnected():
            if (stamp := await call.run(_stamp, call)) != last:
                yield format_sse_event(data_str="{}", event="change", id=stamp)
                last = stamp
                spoke = time.monotonic()
            elif time.monotonic() - spoke > _COMMENT_S:
                yield KEEPALIVE_COMMENT
                spoke = time.monotonic()
            await asyncio.sleep(_LOOK_S)

    return answers.event_stream(body())


_CHANGED = (
    "SELECT max(changed), (SELECT count(*) FROM failure WHERE ledger = :ledger) FROM document WHERE"
    " ledger = :ledger"
)
_counted: weakref.WeakKeyDictionary[Any, tuple[str, dict[str, int]]] = weakref.WeakKeyDictionary()


def _stamp(call: SetRequest) -> str:
    """The state of what the principal sees of files and jobs: equal if nothing has changed."""
    jobs = [(job.id, job.state, repr(job.progress)) for job in documents.own_jobs(call, None, 5)]
    deletions = [deletion["id"] for deletion in call.records("deletion")]
    if call.principal.is_unrestricted:
        table: Any = [tuple(row) for row in _rows(call, _CHANGED)]
    else:
        table = [(info.id, info.version, info.status) for info in call.docs.documents(None, _ROWS)]
    return digest_of(jobs, deletions, repr(table))[:16]


# Files: changes


@router.post("/files")
async def add(
    call: Writing,
    next: str = "",  # noqa: A002  the name in the address
    csrf: str = "",
) -> Response:
    """Add files, as the page's form sends them; or hold them while the page shows what they would
    cost.
    """
    page.check_csrf(call.request, csrf)
    form = await uploads.receive_form(call.request, call.service, call.folder)
    labels = page.split_labels(form.fields.get("labels", b"").decode("utf-8", "replace"))
    metadata = {file.name: {"labels": labels} for file in form.files} if labels else {}
    key = await uploads.key_of(call, form, metadata)
    if form.fields.get("dry"):
        return await _hold(call, form.files, metadata, key)
    return await _added(call, form.files, metadata, key, "start" if next == "start" else "files")


async def _added(
    call: SetRequest, files: list[Any], metadata: JsonObject, key: str, target: str = "files"
) -> Response:
    await uploads.add_files(call, files, metadata, key)
    refused = [f"{file.name}: {file.problem['detail']}" for file in files if file.problem]
    kind = "warn" if refused else "info"
    message = _t(call, "files.added", count=len(files) - len(refused))
    return page.to_set(call, target, notice=(kind, message, " ".join(refused[:3])))


async def _hold(call: SetRequest, files: list[Any], metadata: JsonObject, key: str) -> Response:
    """Estimate received files, and keep them until they are confirmed, or some minutes are over."""
    response = await uploads.add_files(call, files, metadata, key, 0.0)
    estimate = json.loads(bytes(response.body))
    until = time.time() + _HELD_S
    for file in files:
        if file.problem is None:  # `sweep` leaves it until then
            os.utime(stored_path(call.folder, file.content_hash, file.name), (until, until))
    for old in await call.run(call.records, "upload", is_own=True):
        await call.run(call.book.take, old["id"])
    received = [{**file.model_dump(), "content_hash": file.content_hash} for file in files]
    upload = {"files": received, "metadata": metadata, "key": key, "estimate": estimate}
    number = (await call.run(call.add_record, "upload", upload))["id"]
    return page.to_set(call, "files", "upload", number=number)


@router.get("/files/upload")
async def show_upload(call: Writing, number: str, price: str | None = None) -> Response:
    """What received files would cost."""
    upload = await call.run(call.record, "upload", number)
    estimate = upload["estimate"]
    price = _price(call, price)
    amount = page.price_of(price)
    estimate["cost"] = estimate["tokens"] * amount / 1e6 if amount else None
    return await _files(call, dialog="upload", held=upload, estimate=estimate, price=price)


@router.post("/files/upload")
async def confirm_upload(call: Writing, form: Form) -> Response:
    """Add files that were held."""
    upload = await call.run(call.record, "upload", str(form.get("number")))
    await call.run(call.book.take, upload["id"])
    files = [
        FileResult(**{**file, "problem": None}) for file in upload["files"] if not file["problem"]
    ]
    return await _added(call, files, upload["metadata"], upload["key"])


def _price(call: SetRequest, price: str | None) -> str:
    """The price that a form has, else the one that Settings have for the set's first model."""
    if price is not None:
        return price
    notes = page.notes_of(page.models_file(call.service))
    for key in call.docs.reader.embed_keys:
        if noted := notes.get(f"{call.name}/{key}", {}).get("price"):
            return f"{noted:g}"
    return ""


def _t(call: SetRequest, key: str, **slots: Any) -> str:
    return page.translator(call.request)(key, **slots)


Chosen = Annotated[list[str], Query(alias="id", default_factory=list)]


@router.get("/files/add")
@router.get("/files/delete")
@router.get("/files/labels")
@router.get("/files/retry")
async def show_change(call: Writing, ids: Chosen) -> Response:
    """The form for new files; or ask before chosen files are deleted, or for their labels."""
    kind = call.request.url.path.rpartition("/")[2]
    if kind == "add":
        return await _files(call, dialog=kind)
    if not ids:
        return page.to_set(call, "files", notice=("info", _t(call, "files.none_chosen")))
    await call.require_visible(*ids)
    infos = [await call.run(call.find, identity) for identity in ids]
    facts: Facts = {"chosen": infos, "can_purge": await call.run(_can_purge, call, ids)}
    return await _files(call, dialog=kind, **facts)


def _can_purge(call: SetRequest, chosen: Sequence[str]) -> bool:
    """Whether a certificate is possible: the path of a file in the set's folder has to stay."""
    if not call.principal.is_administrator:
        return False
    return all(row.origin != "dataset" for row in call.table.named(chosen).values())


@router.post("/files/labels")
async def change_labels(call: Writing, form: Form) -> Response:
    """Replace the labels of documents."""
    labels = page.split_labels(text_of(form, "labels"))
    changes = {str(identity): {"labels": labels or None} for identity in form.getlist("id")}
    await documents.update_metadata(call, documents.Metadata(changes=changes))
    return page.to_set(call, "files")


@router.post("/files/retry")
async def retry(call: Writing, form: Form) -> Response:
    """Try documents again: those that did not load alone, else everything that failed."""
    chosen = [str(identity) for identity in form.getlist("id")]
    paths = {identity: await call.run(_source, call, identity) for identity in chosen}
    infos = [await call.require_visible(identity) for identity in chosen]
    if chosen and all(paths.values()) and all(info.stage == "load" for info in infos):
        await call.submit_job("add_files", {"files": paths})
    else:
        documents.require_all(call)
        await call.submit_job("retry_failed", {})
    return page.to_set(call, "files")


def _source(call: SetRequest, identity: str) -> str | None:
    """The file that a document is made of; None for a text, or where it is gone."""
    dataset_path = dataset_file(call.unrestricted.reader, identity)
    if dataset_path is not None:
        return str(dataset_path)
    for job in documents.own_jobs(call, None, 200):
        if job.kind != "add_files":
            continue
        path = job.arguments["files"].get(identity)
        if path and Path(path).is_file():
            return str(path)
    uploaded = uploads.uploaded_file(call, identity)
    return str(uploaded) if uploaded else None


@router.post("/files/delete")
async def delete(call: Writing, form: Form) -> Response:
    """Hide documents at once, and remove them when nobody has undone it for some seconds."""
    chosen = list(dict.fromkeys(str(identity) for identity in form.getlist("id")))
    await call.require_visible(*chosen or [""])
    undo = {identity: await call.run(_before, call, identity) for identity in chosen}
    purge = bool(form.get("purge")) and await call.run(_can_purge, call, chosen)
    await documents.delete_documents(call, documents.Documents(documents=chosen))
    body = {"documents": undo, "purge": purge}
    deletion = await call.run(call.add_record, "deletion", body)
    task = asyncio.create_task(_finish_later(call, deletion))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return page.to_set(call, "files")


def _before(call: SetRequest, identity: str) -> JsonObject:
    """What brings a document back: its file or its text, and its metadata."""
    row = call.table.find(identity)
    metadata = {**json.loads(row.user_metadata), **json.loads(row.updates)} if row else {}
    path = _source(call, identity)
    if path is not None:
        if call.folder in Path(path).parents:
            os.utime(path)  # `sweep` leaves it for a minute
        return {"file": path, "metadata": metadata}
    roots = call.docs.get_nodes(LAZY_ROOT_NAME, document_ids=[root_uid(identity)])
    return {"text": "".join(root.text for root in roots), "metadata": metadata}


async def _finish_later(call: SetRequest, deletion: JsonObject) -> None:
    await asyncio.sleep(UNDO_S)
    await call.run(_finish, call, deletion)


async def _finish_deletions(call: SetRequest) -> None:
    """Finish what a process that has ended since has begun."""
    for deletion in await call.run(call.records, "deletion", is_own=True):
        if time.time() - deletion["created"] > UNDO_S + 5:
            await call.run(_finish, call, deletion)


def _finish(call: SetRequest, deletion: JsonObject) -> None:
    if not call.book.take(deletion["id"]) or not deletion["purge"]:
        return
    fresh = replace(call, idempotency_key=None)
    for identity in deletion["documents"]:
        arguments = uploads.purge_arguments(fresh, identity)
        call.jobs.submit("purge", arguments, key=fresh.key("purge", arguments))


@router.post("/files/undo")
async def undo(call: Writing, form: Form) -> Response:
    """Bring deleted documents back."""
    number = str(form.get("deletion"))
    records = await call.run(call.records, "deletion", record_id=number)
    if not records or not await call.run(call.book.take, records[0]["id"]):
        return page.to_set(call, "files", notice=("warn", _t(call, "files.too_late")))
    documents_before = records[0]["documents"]
    for kind in ("file", "text"):
        contents = {}
        metadata = {}
        for name, before in documents_before.items():
            if kind in before:
                contents[name] = before[kind]
                if before["metadata"]:
                    metadata[name] = before["metadata"]
        if contents:
            await call.submit_job(f"add_{kind}s", {f"{kind}s": contents, "metadata": metadata})
    notice = ("ok", _t(call, "files.undone", count=len(documents_before)))
    return page.to_set(call, "files", notice=notice)


@router.get("/files/sync")
async def show_sync(call: Writing, price: str | None = None) -> Response:
    """What a sync of the folder would do and cost."""
    documents.require_all(call)
    plan = await call.run_slow(call.docs.plan)
    price = _price(call, price)
    estimate = uploads.estimate(call, plan, page.price_of(price))
    return await _files(call, dialog="sync", plan=plan, estimate=estimate, price=price)


@router.post("/files/sync")
async def sync(call: Writing, form: Form) -> Response:
    """Sync the folder; with ``all`` also where many files are missing."""
    documents.require_all(call)
    await call.submit_job("sync", {"max_deleted": 1.0} if form.get("all") else {})
    return page.to_set(call, "files")


# Groups


@router.get("/groups")
async def groups(
    call: Reading,
    group: str = "",
    build: str = "",
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> Response:
    """The tree of node groups, and nodes of one of them."""
    facts = await call.run_slow(_tree, call)
    if group in facts["by_name"] and facts["by_name"][group]["nodes"]:
        facts |= await call.run_slow(page.page_of_nodes, call.docs, group, offset, _NODES)
    facts = {"group": group, "nodes": (), "following": None, **facts, "offset": offset}
    build = build if build in facts["by_name"] and call.principal.may("admin") else ""
    return await page.render_set(call, "groups.html", page="groups", build=build, **facts)


def _tree(call: SetRequest) -> Facts:
    docs = call.docs
    status = documents.status_of(call)
    built = {group["name"]: group for group in status["groups"]}
    failed = [stage.partition(" ")[2].partition(" with ")[0] for _, stage in status["failed"]]
    working = set()
    for job in documents.own_jobs(call, None, 5, "WORKING"):
        working.update(job.arguments.get("names", ()))
    by_name = {}
    for name in docs.groups:
        line = docs.reader.line(name)
        group = {
            "nodes": 0,
            "indexes": (),
            "reason": "",
            **built.get(name, {}),
            "name": name,
            "parent": line[1] if len(line) > 1 else None,
            "failed": failed.count(name),
            "mean": None,
            "sample": "",
        }
        group["state"] = _group_state(built.get(name), group["failed"])
        if name in working:
            group["state"] = "run"
        by_name[name] = group
        if group["nodes"]:
            with suppress(LazyRAGError):
                nodes = docs.get_nodes(name, limit=_NODES)
                group["mean"] = sum(len(node.text) for node in nodes) // max(1, len(nodes))
                group["sample"] = nodes[0].text
    return {"by_name": by_name, "root": LAZY_ROOT_NAME}


def _group_state(group: JsonObject | None, failed: int) -> str:
    if failed:
        return "err"
    if group is None:
        return "wait"
    is_ready = group.get("is_current", True) and group.get("is_complete", True)
    return "ok" if is_ready else "warn"


@router.post("/groups/build")
async def build_group(call: Administration, form: Form) -> Response:
    """Build a group with keyword indexes, as a job."""
    documents.require_all(call)
    await call.submit_job(
        "activate_group", {"names": [str(form.get("group"))], "analysers": ["en", "zh"]}
    )
    return page.to_set(call, "groups")


@router.get("/nodes/{uid}")
async def node(call: Reading, uid: str, group: str | None = None) -> Response:
    """A node with its parent, neighbours and children."""

    def find() -> Facts:
        node = call.node(uid, group)
        ancestors = []
        ancestor = node.parent
        while ancestor is not None:
            ancestors.append(ancestor)
            ancestor = ancestor.parent
        window = call.docs.window(node, 1, 1)
        at = next((n for n, other in enumerate(window) if other.uid == node.uid), 0)
        children = node.children.items()
        return {
            "node": node,
            "line": ancestors,
            "before": window[:at],
            "behind": window[at + 1 :],
            "below": {name: (nodes[:_NODES], len(nodes)) for name, nodes in children if nodes},
        }

    return await page.render_set(call, "node.html", page="groups", **await call.run(find))
