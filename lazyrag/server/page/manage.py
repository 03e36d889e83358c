"""The pages that manage: files with uploads and deletions, node groups, evaluations."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import ValidationError
from starlette.responses import Response

from lazyrag.data.segment import LAZY_ROOT_NAME, root_uid
from lazyrag.document import DocumentInfo
from lazyrag.errors import LazyRAGError
from lazyrag.evaluation.golden import GoldenQuestion, JudgedQuestion, has_answer
from lazyrag.evaluation.metrics import compare
from lazyrag.server.api import answers, documents, uploads
from lazyrag.server.api.search import Scope, SearchOptions
from lazyrag.server.api.uploads import Administration, Call, Reading, Writing
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.jobs import Jobs
from lazyrag.server.page import page
from lazyrag.server.page.page import Form
from lazyrag.stores.sqlite import read_text

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
_DEPTH = 10
_FEW = 20
_LIKELY = 0.05
_MEASURES: dict[str, Callable[[float], float]] = {
    "mrr": lambda rank: 1 / rank,
    "first5": lambda rank: float(rank <= 5),
    "first": lambda rank: float(rank == 1),
}
"""From the rank of the first right passage; the first one decides."""

# Files: the table


@router.get("/files")
async def show_files(
    call: Reading,
    book: answers.Book,
    q: str = "",
    status: str = "",
    label: str = "",
    after: str = "",
) -> Response:
    """The files, failed ones first."""
    return await _files(call, book, q=q, status=status, label=label, after=after)


async def _files(
    call: Call,
    book: answers.Book,
    *,
    q: str = "",
    status: str = "",
    label: str = "",
    after: str = "",
    **more: Any,
) -> Response:
    if call.principal.may("write"):
        await _finish_deletions(call, book)
    facts = await call.run(_file_facts, call, book, q, status.upper(), label, after)
    facts |= {"q": q, "label": label, "after": after, "dialog": None, **more}
    return await page.render(
        call.request, "files.html", page="files", set=call.name, fragments=("files",), **facts
    )


def _file_facts(
    call: Call, book: answers.Notebook, q: str, status: str, label: str, after: str
) -> dict[str, Any]:
    stamp = _stamp(call, book)
    jobs = [job for state in _UNFINISHED for job in documents.own_jobs(call, None, 20, state)]
    if q:
        rows, following = _named(call, q, status, after)
    else:
        rows, following = _listed(call, status, label, after)
    if not (q or label or after) and status in ("", "WAITING"):
        rows = [*rows[: sum(one.status == "FAILED" for one in rows)], *_coming(call, jobs, rows),
                *rows[sum(one.status == "FAILED" for one in rows) :]]  # fmt: skip
    return {
        "rows": rows,
        "following": following,
        "counts": _counts(call),
        "shown": status if status in _ORDER else "",
        "jobs": jobs,
        "now": time.time(),
        "undo_s": UNDO_S,
        "deletions": [
            one
            for one in book.records(_scope(call), "deletion")
            if one["principal"] == call.principal.id
        ],
        "purges": [job for job in documents.own_jobs(call, None, 20) if job.kind == "purge"],
        "skipped": _skipped(call),
        "folder": call.principal.labels is None and call.whole._indexer.dataset.folder is not None,
        "has_labels": "labels" in call.docs.reader.fields,
        "stamp": stamp,
    }


def _listed(
    call: Call, status: str, label: str, after: str
) -> tuple[list[DocumentInfo], str | None]:
    """A page of the documents by state, then path; and where the next page begins."""
    states = [one for one in _ORDER if status in ("", one)] or _ORDER
    number, _, last = after.partition("~")
    found: list[tuple[int, DocumentInfo]] = []
    where = {"labels": [label]} if label else None
    for at in range(int(number) if number.isdecimal() else 0, len(states)):
        limit = _ROWS + 1 - len(found)
        found += [
            (at, call.public(one))
            for one in call.docs.documents(last or None, limit, states[at], where)
        ]
        last = ""
        if len(found) > _ROWS:
            section, one = found[_ROWS - 1]
            return [info for _, info in found[:_ROWS]], f"{section}~{one.id}"
    return [info for _, info in found], None


_FIND = (  # the index alone has the paths; whether a document is there is looked up after that
    "SELECT identity FROM document WHERE ledger = :ledger AND identity > :after AND"
    " instr(lower(identity), :text) > 0 UNION SELECT identity FROM failure WHERE ledger = :ledger"
    " AND identity > :after AND instr(lower(identity), :text) > 0 ORDER BY identity LIMIT :limit"
)


def _named(call: Call, text: str, status: str, after: str) -> tuple[list[DocumentInfo], str | None]:
    """A page of the documents with a text in their path."""
    found: list[DocumentInfo] = []
    while len(found) <= _ROWS:
        if call.principal.labels is None:
            values = {"after": after, "text": text.lower(), "limit": _ROWS + 1}
            names = [read_text(row[0]) for row in _rows(call, _FIND, **values)]
            after = names[-1] if names else ""
            seen = [one for one in map(call.find, names) if one is not None]
            is_last = len(names) <= _ROWS
        else:
            seen = call.docs.documents(after or None, _MANY)
            is_last = len(seen) < _MANY
            after = seen[-1].id if seen else ""
            seen = [one for one in seen if text.lower() in one.id.lower()]
        found += [one for one in seen if one.status in ((status,) if status else _SHOWN)]
        if is_last:
            break
    return found[:_ROWS], found[_ROWS - 1].id if len(found) > _ROWS else None


def _rows(call: Call, query: str, **values: Any) -> list[Any]:
    """Rows of the ledger of a set with one store."""
    ledger = call.whole._indexer.ledger
    with ledger.reading() as connection:
        return connection.execute(
            query, {"ledger": ledger.id or ledger.find_row(), **values}
        ).fetchall()


_COUNT = (
    "SELECT status, count(*) FROM document WHERE ledger = :ledger AND status IN ('live', 'new')"
    " GROUP BY status UNION ALL SELECT 'failed ' || ifnull(status, ''), count(*) FROM (SELECT"
    " DISTINCT identity AS one FROM failure WHERE ledger = :ledger) AS failed LEFT JOIN document ON"
    " ledger = :ledger AND identity = one GROUP BY status"
)


def _counts(call: Call) -> dict[str, int]:
    """How many files are in which state; for a principal with labels up to a thousand."""
    if call.principal.labels is not None:
        found = {one: len(call.docs.documents(None, _MANY, one)) for one in ("FAILED", "SUCCESS")}
        return {"": sum(found.values()), **found, "WORKING": 0}
    indexer = call.whole._indexer
    state = repr(_rows(call, _CHANGED))
    known = _counted.get(indexer)
    if known is None or known[0] != state:  # it reads every row
        known = _counted[indexer] = state, dict(_rows(call, _COUNT))
    count = known[1]
    failed = sum(n for one, n in count.items() if one in ("failed live", "failed new", "failed "))
    ready, new = (count.get(one, 0) - count.get(f"failed {one}", 0) for one in ("live", "new"))
    return {"": failed + ready + new, "FAILED": failed, "WORKING": new, "SUCCESS": ready}


def _coming(call: Call, jobs: Sequence[Any], rows: Sequence[DocumentInfo]) -> list[DocumentInfo]:
    """Files of unfinished uploads that no row of the ledger has yet."""
    shown = {one.id for one in rows}
    adding = (job for job in jobs if job.kind == "add_files")
    names = (
        (name, job.state)
        for job in adding
        for name in list(job.arguments["files"])[:_ROWS]
        if name not in shown
    )
    return [DocumentInfo(name, name, state) for name, state in names if call.find(name) is None][
        :_ROWS
    ]


def _skipped(call: Call) -> list[tuple[str, str]]:
    """What the last sync left out, and why, but hidden files."""
    if call.principal.labels is not None:
        return []
    syncs = (job for job in Jobs(call.whole).list(limit=50) if job.kind == "sync")
    found = next((job.result["skipped"] for job in syncs if job.result), ())
    return [(path, why) for path, why in found if why != "hidden" and "delete_files" not in why]


# Files: live


@router.get("/events")
async def events(
    call: Reading,
    book: answers.Book,
    since: str = "",
    last_event_id: Annotated[str, Header(max_length=40)] = "",
) -> Response:
    """Events that something of what the page shows has changed; each has the id of the state."""

    async def body() -> AsyncIterator[bytes]:
        last = last_event_id or since
        spoke = time.monotonic()
        yield KEEPALIVE_COMMENT  # so that the connection is known to stand
        while not await call.request.is_disconnected():
            if (stamp := await call.run(_stamp, call, book)) != last:
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


def _stamp(call: Call, book: answers.Notebook) -> str:
    """The state of what the principal sees of files and jobs: equal if nothing has changed."""
    jobs = [(job.id, job.state, repr(job.progress)) for job in documents.own_jobs(call, None, 5)]
    own = [one["id"] for one in book.records(_scope(call), "deletion")]
    if call.principal.labels is None:
        table: Any = [tuple(row) for row in _rows(call, _CHANGED)]
    else:
        table = [(one.id, one.version, one.status) for one in call.docs.documents(None, _ROWS)]
    return uploads.digest_of(jobs, own, repr(table))[:16]


# Files: changes


@router.post("/files")
async def add(
    call: Writing,
    book: answers.Book,
    next: str = "",  # noqa: A002  the name in the address
    csrf: str = "",
) -> Response:
    """Add files, as the page's form sends them; or hold them while the page shows what they would
    cost.
    """
    page.check_csrf(call.request, csrf)
    form = await uploads.receive_form(call.request, call.service, call.folder)
    labels = page.split_labels(form.fields.get("labels", b"").decode("utf-8", "replace"))
    metadata = {one.name: {"labels": labels} for one in form.files} if labels else {}
    key = await call.run(
        call.key, [(one.name, one.content_hash, one.bytes) for one in form.files], metadata
    )
    if form.fields.get("dry"):
        return await _hold(call, book, form.files, metadata, key)
    return await _added(call, form.files, metadata, key, "start" if next == "start" else "files")


async def _added(
    call: Call, files: list[Any], metadata: dict[str, Any], key: str, target: str = "files"
) -> Response:
    found = json.loads(bytes((await uploads.add_files(call, files, metadata, key)).body))["files"]
    refused = [f"{one['name']}: {one['problem']['detail']}" for one in found if one["problem"]]
    added = len(found) - len(refused)
    notice = (
        "warn" if refused else "info",
        _t(call, "files.added", count=added),
        " ".join(refused[:3]),
    )
    return page.redirect(call.request, "s", call.name, target, notice=notice)


async def _hold(
    call: Call, book: answers.Book, files: list[Any], metadata: dict[str, Any], key: str
) -> Response:
    """Estimate received files, and keep them until they are confirmed, or some minutes are over."""
    estimate = json.loads(bytes((await uploads.add_files(call, files, metadata, key, 0.0)).body))
    until = time.time() + _HELD_S
    for one in files:
        if one.problem is None:  # `sweep` leaves it until then
            os.utime(uploads.stored_path(call.folder, one.content_hash, one.name), (until, until))
    for old in await call.run(book.records, _scope(call), "upload", is_own=True):
        await call.run(book.take, old["id"])
    own = [{**one.model_dump(), "content_hash": one.content_hash} for one in files]
    held = {"files": own, "metadata": metadata, "key": key, "estimate": estimate}
    number = (await call.run(book.add, _scope(call), "upload", held))["id"]
    return page.redirect(call.request, "s", call.name, "files", "upload", number=number)


@router.get("/files/upload")
async def show_upload(
    call: Writing, book: answers.Book, number: str, price: str | None = None
) -> Response:
    """What received files would cost."""
    held = await call.run(book.record, _scope(call), "upload", number)
    estimate = held["estimate"]
    price = _price(call, price)
    estimate["cost"] = (
        estimate["tokens"] * page.price_of(price) / 1e6 if page.price_of(price) else None
    )
    return await _files(call, book, dialog="upload", held=held, estimate=estimate, price=price)


@router.post("/files/upload")
async def confirm_upload(call: Writing, book: answers.Book, form: Form) -> Response:
    """Add files that were held."""
    held = await call.run(book.record, _scope(call), "upload", str(form.get("number")))
    await call.run(book.take, held["id"])
    files = [
        uploads.FileResult(**{**one, "problem": None})
        for one in held["files"]
        if not one["problem"]
    ]
    return await _added(call, files, held["metadata"], held["key"])


def _price(call: Call, given: str | None) -> str:
    """The price that a form has, else the one that Settings have for the set's first model."""
    if given is not None:
        return given
    prices = page.notes_of(page.models_file(call.service))
    known = (
        prices.get(f"{call.name}/{one}", {}).get("price") for one in call.docs.reader.embed_keys
    )
    return "".join([f"{one:g}" for one in known if one][:1])


def _t(call: Call, key: str, **slots: Any) -> str:
    return page.translator(call.request)(key, **slots)


Chosen = Annotated[list[str], Query(alias="id")]


@router.get("/files/add")
@router.get("/files/delete")
@router.get("/files/labels")
@router.get("/files/retry")
async def show_change(call: Writing, book: answers.Book, chosen: Chosen = []) -> Response:  # noqa: B006
    """The form for new files; or ask before chosen files are deleted, or for their labels."""
    kind = call.request.url.path.rpartition("/")[2]
    if kind == "add":
        return await _files(call, book, dialog=kind)
    if not chosen:
        return page.redirect(
            call.request, "s", call.name, "files", notice=("info", _t(call, "files.none_chosen"))
        )
    await call.visible(*chosen)
    infos = [await call.run(call.find, one) for one in chosen]
    facts: dict[str, Any] = {"chosen": infos, "can_purge": await call.run(_can_purge, call, chosen)}
    return await _files(call, book, dialog=kind, **facts)


def _can_purge(call: Call, chosen: Sequence[str]) -> bool:
    """Whether a certificate is possible: the path of a file in the set's folder has to stay."""
    if not call.principal.may("admin") or call.principal.labels is not None:
        return False
    return all(
        row.origin != "dataset"
        for row in call.whole._indexer.ledger.documents.named(chosen).values()
    )


@router.post("/files/labels")
async def change_labels(call: Writing, form: Form) -> Response:
    """Replace the labels of documents."""
    labels = page.split_labels(str(form.get("labels", "")))
    changes = {str(one): {"labels": labels or None} for one in form.getlist("id")}
    await documents.update_metadata(call, documents.Metadata(changes=changes))
    return page.redirect(call.request, "s", call.name, "files")


@router.post("/files/retry")
async def retry(call: Writing, form: Form) -> Response:
    """Try documents again: those that did not load alone, else everything that failed."""
    chosen = [str(one) for one in form.getlist("id")]
    paths = {one: await call.run(_source, call, one) for one in chosen}
    infos = [await call.visible(one) for one in chosen]
    if chosen and all(paths.values()) and all(one.stage == "load" for one in infos):
        await call.accept("add_files", {"files": paths})
    else:
        documents.require_all(call)
        await call.accept("retry_failed", {})
    return page.redirect(call.request, "s", call.name, "files")


def _source(call: Call, identity: str) -> str | None:
    """The file that a document is made of; None for a text, or where it is gone."""
    found = call.whole._indexer.dataset.find(identity)
    if found is not None and found.path.is_file():
        return str(found.path)
    for job in documents.own_jobs(call, None, 200):
        path = job.arguments["files"].get(identity) if job.kind == "add_files" else None
        if path and Path(path).is_file():
            return str(path)
    uploaded = uploads.uploaded_file(call, identity)
    return str(uploaded) if uploaded else None


@router.post("/files/delete")
async def delete(call: Writing, book: answers.Book, form: Form) -> Response:
    """Hide documents at once, and remove them when nobody has undone it for some seconds."""
    chosen = list(dict.fromkeys(str(one) for one in form.getlist("id")))
    await call.visible(*chosen or [""])
    undo = {one: await call.run(_before, call, one) for one in chosen}
    purge = bool(form.get("purge")) and await call.run(_can_purge, call, chosen)
    await documents.delete_documents(call, documents.Documents(documents=chosen))
    made = await call.run(book.add, _scope(call), "deletion", {"documents": undo, "purge": purge})
    task = asyncio.create_task(_finish_later(call, book, made))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return page.redirect(call.request, "s", call.name, "files")


def _before(call: Call, identity: str) -> dict[str, Any]:
    """What brings a document back: its file or its text, and its metadata."""
    row = call.whole._indexer.ledger.documents.find(identity)
    metadata = {**json.loads(row.user_metadata), **json.loads(row.updates)} if row else {}
    path = _source(call, identity)
    if path is not None:
        if call.folder in Path(path).parents:
            os.utime(path)  # `sweep` leaves it for a minute
        return {"file": path, "metadata": metadata}
    text = "".join(
        one.text for one in call.docs.get_nodes(LAZY_ROOT_NAME, document_ids=[root_uid(identity)])
    )
    return {"text": text, "metadata": metadata}


async def _finish_later(call: Call, book: answers.Notebook, deletion: Mapping[str, Any]) -> None:
    await asyncio.sleep(UNDO_S)
    await call.run(_finish, call, book, deletion)


async def _finish_deletions(call: Call, book: answers.Notebook) -> None:
    """Finish what a process that has ended since has begun."""
    for one in await call.run(book.records, _scope(call), "deletion"):
        if one["principal"] == call.principal.id and time.time() - one["created"] > UNDO_S + 5:
            await call.run(_finish, call, book, one)


def _finish(call: Call, book: answers.Notebook, deletion: Mapping[str, Any]) -> None:
    if not book.take(deletion["id"]) or not deletion["purge"]:
        return
    fresh = replace(call, given_key=None)
    for identity in deletion["documents"]:
        arguments = uploads.purge_arguments(fresh, identity)
        Jobs(call.whole).submit("purge", arguments, key=fresh.key("purge", arguments))


@router.post("/files/undo")
async def undo(call: Writing, book: answers.Book, form: Form) -> Response:
    """Bring deleted documents back."""
    records = await call.run(book.records, _scope(call), "deletion", one=str(form.get("deletion")))
    if not records or not await call.run(book.take, records[0]["id"]):
        return page.redirect(
            call.request, "s", call.name, "files", notice=("warn", _t(call, "files.too_late"))
        )
    found = records[0]
    for kind in ("file", "text"):
        given = {name: one[kind] for name, one in found["documents"].items() if kind in one}
        metadata = {
            name: one["metadata"]
            for name, one in found["documents"].items()
            if kind in one and one["metadata"]
        }
        if given:
            await call.accept(f"add_{kind}s", {f"{kind}s": given, "metadata": metadata})
    notice = ("ok", _t(call, "files.undone", count=len(found["documents"])))
    return page.redirect(call.request, "s", call.name, "files", notice=notice)


@router.get("/files/sync")
async def show_sync(call: Writing, book: answers.Book, price: str | None = None) -> Response:
    """What a sync of the folder would do and cost."""
    documents.require_all(call)
    plan = await call.run_slow(call.docs.plan)
    price = _price(call, price)
    estimate = uploads.estimate(call, plan, page.price_of(price))
    return await _files(call, book, dialog="sync", plan=plan, estimate=estimate, price=price)


@router.post("/files/sync")
async def sync(call: Writing, form: Form) -> Response:
    """Sync the folder; with ``all`` also where many files are missing."""
    documents.require_all(call)
    await call.accept("sync", {"max_deleted": 1.0} if form.get("all") else {})
    return page.redirect(call.request, "s", call.name, "files")


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
    shown = {"group": group, "nodes": (), "following": None, **facts, "offset": offset}
    build = build if build in facts["by_name"] and call.principal.may("admin") else ""
    return await page.render(
        call.request, "groups.html", page="groups", set=call.name, build=build, **shown
    )


def _tree(call: Call) -> dict[str, Any]:
    docs = call.docs
    status = documents.status_of(call)
    built = {one["name"]: one for one in status["groups"]}
    failed = [stage.partition(" ")[2].partition(" with ")[0] for _, stage in status["failed"]]
    working = [
        one
        for job in documents.own_jobs(call, None, 5, "WORKING")
        for one in job.arguments.get("names", ())
    ]
    found: dict[str, dict[str, Any]] = {}
    for name in docs.groups:
        line = docs.reader.line(name)
        own = built.get(name, {})
        broken = failed.count(name)
        state = "run" if name in working else "err" if broken else "ok" if own else "wait"
        if state == "ok" and not (own.get("is_current", True) and own.get("is_complete", True)):
            state = "warn"
        parent = line[1] if len(line) > 1 else None
        own = {
            "nodes": 0,
            "indexes": (),
            "reason": "",
            **own,
            "name": name,
            "parent": parent,
            "state": state,
        }
        found[name] = {**own, "failed": broken, "mean": None, "sample": ""}
        if own["nodes"]:
            with suppress(LazyRAGError):
                some = docs.get_nodes(name, limit=_NODES)
                found[name] |= {
                    "mean": sum(len(one.text) for one in some) // max(1, len(some)),
                    "sample": some[0].text,
                }
    return {"by_name": found, "root": LAZY_ROOT_NAME}


@router.post("/groups/build")
async def build_group(call: Administration, form: Form) -> Response:
    """Build a group with keyword indexes, as a job."""
    documents.require_all(call)
    await call.accept(
        "activate_group", {"names": [str(form.get("group"))], "analysers": ["en", "zh"]}
    )
    return page.redirect(call.request, "s", call.name, "groups")


@router.get("/nodes/{uid}")
async def node(call: Reading, uid: str, group: str | None = None) -> Response:
    """A node with its parent, neighbours and children."""

    def find() -> dict[str, Any]:
        found = _scope(call).node(uid, group)
        line = [found]
        while (above := line[-1].parent) is not None:
            line.append(above)
        window = call.docs.window(found, 1, 1)
        at = next((n for n, one in enumerate(window) if one.uid == found.uid), 0)
        below = {name: (some[:_NODES], len(some)) for name, some in found.children.items() if some}
        return {
            "node": found,
            "line": line[1:],
            "before": window[:at],
            "behind": window[at + 1 :],
            "below": below,
        }

    return await page.render(
        call.request, "node.html", page="groups", set=call.name, **await call.run(find)
    )


# Evaluations


def _scope(call: Call) -> Scope:
    return Scope(call.service, call.principal, call.name, call.docs)


@router.get("/evaluate")
async def evaluate(
    call: Writing,
    book: answers.Book,
    run: str = "",
    show: str = "changed",
    group: str = "",
    retriever: str = "",
) -> Response:
    """Two configurations side by side: the last comparison, or another one."""

    def find() -> dict[str, Any]:
        scope = _scope(call)
        chosen = page.defaults_of(call.service, call.name)
        runs = [one for one in book.records(scope, "comparison") if run in ("", one["id"])]
        last = runs[-1] if runs else None
        names = [one["name"] for one in documents.status_of(call)["groups"] if one["nodes"]]
        b = (
            {"group": group, "retriever": retriever}
            if group
            else last["b"]
            if last
            else {**chosen, "group": ""}
        )
        questions = book.records(scope, "golden")
        found = (
            described(last["rows"], show)
            if last
            else {"rows": [], "tally": {}, "verdict": None, "measures": []}
        )
        can_use = call.principal.may("admin") and call.principal.labels is None
        return {"chosen": chosen, "groups": names, "retrievers": page.retrievers_of(call.docs), "b": b, "last": last,
                "show": show,
                "golden": len(questions), "can_use": can_use, **found}  # fmt: skip

    return await page.render(
        call.request,
        "evaluate.html",
        page="evaluate",
        set=call.name,
        fragments=("questions",),
        **await call.run(find),
    )


@router.post("/evaluate")
async def run_comparison(call: Writing, book: answers.Book, form: Form) -> Response:
    """Run the golden questions with the configuration in use and with another one."""
    chosen = page.defaults_of(call.service, call.name)
    scope = _scope(call)
    a = {one: chosen[one] for one in ("group", "retriever")}
    b = {one: str(form.get(one, a[one])) for one in a}
    options = [SearchOptions.model_validate(one) for one in (a, b)]

    def run() -> str:
        began = time.perf_counter()
        stored, golden, reports = answers.judged_golden(scope, book, options)
        rows = []
        for own, question, *judged in zip(
            stored, golden.questions, *(one.questions for one in reports), strict=True
        ):
            expected = [*own["texts"], *own["references"]]
            file = next((one["path"] for one in own["spans"]), "")
            ranks = [_rank_of(question, one) for one in judged]
            rows.append(
                {
                    "question": own["question"],
                    "expected": expected[:1],
                    "file": file,
                    "ranks": ranks,
                }
            )
        made = {"a": a, "b": b, "rows": rows, "seconds": round(time.perf_counter() - began, 3)}
        return str(book.add(scope, "comparison", made)["id"])

    return page.redirect(call.request, "s", call.name, "evaluate", run=await call.run_slow(run))


def _rank_of(question: GoldenQuestion, judged: JudgedQuestion) -> int | None:
    """The rank of the first passage that answers a question; None if none of the first ten does."""
    if question.locations:
        reciprocal = judged.values.get(f"span_MRR@{_DEPTH}", 0.0)
        return round(1 / reciprocal) if reciprocal else None
    for rank, hit in enumerate(judged.found[:_DEPTH], start=1):
        if hit.id in question.ids or (
            question.references and has_answer([hit.text], question.references)
        ):
            return rank
    return None


def described(rows: Sequence[Mapping[str, Any]], show: str) -> dict[str, Any]:
    """What the page shows of a comparison's rows: measures, a verdict by the first of them,
    questions.
    """
    measures: list[dict[str, Any]] = []
    for name, value in _MEASURES.items():
        a, b = (
            {at: value(one["ranks"][n] or math.inf) for at, one in enumerate(rows)} for n in (0, 1)
        )
        found = compare(a, b)
        word = "same" if not found.wins + found.losses else "open" if found.p >= _LIKELY else ""
        own = {
            "name": name,
            "state": word or ("better" if found.difference > 0 else "worse"),
            **asdict(found),
        }
        measures.append({**own, "sums": [sum(one.values()) for one in (a, b)]})
    state = measures[0]["state"]
    verdict = {
        **measures[0],
        "state": "few" if len(rows) < _FEW and state != "same" else state,
        "questions": len(rows),
    }
    changed = [
        {**one, "change": (one["ranks"][0] or _DEPTH + 1) - (one["ranks"][1] or _DEPTH + 1)}
        for one in rows
    ]
    kinds = {"changed": [one for one in changed if one["change"]], "all": changed}
    kinds["missed"] = [one for one in changed if not one["ranks"][1]]
    shown = sorted(kinds.get(show, kinds["changed"]), key=lambda one: -one["change"])
    return {
        "measures": measures,
        "verdict": verdict,
        "rows": shown,
        "tally": {k: len(v) for k, v in kinds.items()},
    }


@router.post("/evaluate/use")
async def use(call: Administration, form: Form) -> Response:
    """Use a configuration from now on, or take that back."""
    documents.require_all(call)
    values = {} if form.get("undo") else {one: str(form.get(one)) for one in ("group", "retriever")}
    await call.run(page.change_defaults, call.service, call.docs, call.name, **values)
    notice = ("ok", _t(call, "eval.used" if values else "eval.unused"))
    return page.redirect(call.request, "s", call.name, "evaluate", notice=notice)


@router.get("/evaluate/golden")
async def golden(
    call: Writing, book: answers.Book, edit: str = "", question: str = "", tab: str = ""
) -> Response:
    """Golden questions; and judgements of answers that may become some."""

    def find() -> dict[str, Any]:
        scope = _scope(call)
        known = book.records(scope, "golden")
        used = {one["feedback"] for one in known} | {
            one["feedback"] for one in book.records(scope, "dismissed")
        }
        candidates = [
            one for one in book.records(scope, "feedback") if one["id"] not in used and one["query"]
        ]
        edited = next((one for one in known if one["id"] == edit), None)
        return {
            "known": known,
            "candidates": candidates,
            "edited": edited,
            "question": question,
            "tab": tab,
        }

    return await page.render(
        call.request, "golden.html", page="evaluate", set=call.name, **await call.run(find)
    )


@router.post("/evaluate/golden")
async def change_golden(call: Writing, book: answers.Book, form: Form) -> Response:
    """Add, edit or delete a golden question; confirm or dismiss a candidate."""
    scope = _scope(call)
    action = str(form.get("action", "add"))
    number = str(form.get("number", ""))
    tab = "candidates" if action in ("dismiss", "confirm") else None
    if action == "dismiss":
        await call.run(book.add, scope, "dismissed", {"feedback": number})
    elif action == "delete":
        await answers.delete_golden(number, scope, book)
    else:
        wanted = {one: str(form.get(one, "")).strip() for one in ("question", "answer", "file")}
        wanted |= {"feedback": number} if action == "confirm" else {}
        body = await call.run(_labelled, call, wanted)
        await call.run_slow(
            answers.store_golden, scope, book, body, number if action == "edit" else ""
        )
    return page.redirect(call.request, "s", call.name, "evaluate", "golden", tab=tab)


def _labelled(call: Call, wanted: Mapping[str, Any]) -> answers.GoldenBody:
    """A golden question of a question, an answer and perhaps its file; or one in the form of the
    API.
    """
    own = {one: wanted[one] for one in answers.GoldenBody.model_fields if wanted.get(one)}
    answer = str(wanted.get("answer") or "")
    file = str(wanted.get("file") or "")
    if answer:
        own["references"] = [answer]
        texts = call.docs.get_nodes(LAZY_ROOT_NAME, document_ids=[root_uid(file)]) if file else ()
        starts = [(one.path, one.text.find(answer)) for one in texts]
        own["spans"] = [
            {"path": path, "start": at, "end": at + len(answer)} for path, at in starts if at >= 0
        ]
    try:
        return answers.GoldenBody.model_validate(own)
    except ValidationError as exc:
        raise ProblemError(422, _t(call, "eval.bad_question", n=str(wanted)[:60])) from exc


@router.post("/evaluate/import")
async def import_golden(call: Writing, book: answers.Book, request: Request) -> Response:
    """Add the golden questions of a JSON file; known ones are left as they are."""
    async with request.form(max_files=1) as form:
        file: Any = form.get("file")
        text = await file.read() if hasattr(file, "read") else str(file)
        page.check_csrf(request, str(form.get("csrf", "")))
    try:
        given = json.loads(text)
        given = given["questions"] if isinstance(given, dict) else given
        wanted = [dict(one) for one in given][: answers.MAX_GOLDEN]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ProblemError(422, _t(call, "eval.bad_file"), _t(call, "eval.import_hint")) from exc
    added = 0
    refused = []
    for one in wanted:
        try:
            await answers.add_golden(await call.run(_labelled, call, one), _scope(call), book)
            added += 1
        except (ProblemError, LazyRAGError) as exc:
            refused.append(f"{str(one.get('question', ''))[:60]}: {getattr(exc, 'detail', exc)}")
    notice = (
        "warn" if refused else "ok",
        _t(call, "eval.imported", count=added),
        " ".join(refused[:2])[:400],
    )
    return page.redirect(call.request, "s", call.name, "evaluate", "golden", notice=notice)
