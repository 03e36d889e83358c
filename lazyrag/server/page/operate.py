"""The parts of the web page for operators: log-in, first run, Activity, Settings, More."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import time
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from lazyrag.document import Document
from lazyrag.errors import LazyRAGError
from lazyrag.models import Endpoint
from lazyrag.read import outline
from lazyrag.read.rows import dataset_folder, embedders_by_key
from lazyrag.server.api.access import Whole, access_of, require_whole, sign_in
from lazyrag.server.api.documents import OwnJob, cancel_job, own_job, own_jobs, retry_job
from lazyrag.server.core.access import COOKIE
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.service import Reader, Service, service_of
from lazyrag.server.core.set_request import Administration, Reading, SetRequest, Writing, reply
from lazyrag.server.page import page
from lazyrag.server.page.page import Facts, Form, text_of
from lazyrag.text.sentences import resolve_language

router = APIRouter(include_in_schema=False)

_PAGE = 50
_DAYS = 14
# the cookie that carries a new token to the next page, once
_SECRET = "lazyrag_secret"  # noqa: S105  it is a name


# Log-in, More


@router.get("/login")
async def show_login(
    request: Request,
    next: str = "/",  # noqa: A002  the name in the address
    other: bool = False,
) -> Response:
    """The form for a token; who is signed in, and wants no other token, goes on."""
    if request.state.principal.id != "anonymous" and not other:
        return _onward(request, next)
    return await page.render(request, "login.html", page="login", next=_local(next), invalid=False)


@router.post("/login")
async def log_in(request: Request, form: Form) -> Response:
    """Exchange a token for a session; one from the address is valid once."""
    service = service_of(request)
    access = access_of(request)
    target = _local(str(form.get("next", "/")))
    find = access.take_once if form.get("once") else access.of_token
    principal = await service.run(find, text_of(form, "token").strip())
    if principal is None:
        return await page.render(
            request, "login.html", 401, page="login", next=target, invalid=True
        )
    is_more = principal.is_unrestricted and principal.may(request.state.principal.scope)
    if form.get("once") and request.state.principal.id != "anonymous" and not is_more:
        return _onward(request, target)  # a link of someone else must not change who a browser is
    request.state.principal = principal
    return await sign_in(request, _onward(request, target), principal)


@router.post("/logout")
async def log_out(request: Request, _: Form) -> Response:
    """End the session."""
    await service_of(request).run(access_of(request).end_session, request.cookies.get(COOKIE, ""))
    response = page.redirect(request, "login")
    response.delete_cookie(COOKIE, page.root_of(request) or "/")
    return response


def _local(target: str) -> str:
    """A page of this service: never another site. Browsers leave out tabs and line breaks of
    addresses.
    """
    return target if re.fullmatch(r"/(?!/)[^\\\x00-\x20\x7f]*", target) else "/"


def _onward(request: Request, target: str) -> Response:
    """To the page that wanted a log-in, which is quoted already."""
    return RedirectResponse(f"{page.root_of(request)}{_local(target)}", 303)


@router.get("/more")
async def more(request: Request, _: Reader) -> Response:
    """The menu of phones."""
    return await page.render(request, "more.html", page="more", set=_last_set(request))


def _last_set(request: Request, chosen: str | None = None) -> str | None:
    """The set around pages of the whole service: a chosen one, the last one, any."""
    names = service_of(request).names(request.state.principal)
    last = unquote(request.cookies.get("lazyrag_set", ""))
    return next((name for name in (chosen, last, *names) if name in names), None)


# First run


async def first_run(call: SetRequest) -> Response | None:
    """The first steps in place of the page Ask, as long as no document can be searched."""
    if await call.run(call.docs.documents, limit=1, status="SUCCESS"):
        return None
    return await start(call)


@router.get("/s/{set}/start")
async def start(call: Reading) -> Response:
    """The three steps from an empty set to an answer."""
    facts = await call.run(_first_facts, call)
    fragments = ("first_steps",)
    return await page.render_set(call, "first_run.html", page="ask", fragments=fragments, **facts)


def _first_facts(call: SetRequest) -> Facts:
    return {
        "ready": call.docs.documents(limit=100, status="SUCCESS"),
        "failed": call.docs.documents(limit=100, status="FAILED"),
        "jobs": own_jobs(call, None, 1, "WORKING") + own_jobs(call, None, 1, "WAITING"),
        "questions": suggestions(call.docs, page.language_of(call.request)),
        "has_folder": page.has_folder(call),
    }


def suggestions(docs: Document, language: str) -> list[str]:
    """Up to three questions about headings, or names, of documents: no model is needed for them.

    Those in the reader's language come first, and then headings before names.
    """
    ranks = {}
    for info in docs.documents(status="SUCCESS", limit=24):
        with suppress(LazyRAGError):
            heading = _longest_heading(docs, info.id)
            text = heading or info.id.rpartition("/")[2].rpartition(".")[0] or info.id
            ranks[text] = (resolve_language("auto", text) != language, not heading)
    best = sorted(ranks, key=ranks.__getitem__)[:3]
    return [page.translate(language, "ask.suggestion", heading=text) for text in best]


def _longest_heading(docs: Document, identity: str) -> str:
    """The longest heading of a document below its title that is short enough for a question."""
    headings = [
        _NUMBERING.sub("", location.label.rpartition(" > ")[2])
        for location in outline(docs, identity)
        if location.kind == "heading"
    ]
    return max((text for text in headings[1:] if 4 <= len(text) <= 40), key=len, default="")


_NUMBERING = re.compile(r"^(?:[\d.]+|第?[一二三四五六七八九十]+[、章节.])[\s、.]*|^[#\s]+")


# Activity


@router.get("/s/{set}/activity")
async def activity(call: Writing, after: str | None = None) -> Response:
    """Jobs, the newest first."""
    jobs = await call.run(own_jobs, call, after, _PAGE + 1)
    following = call.job_id(jobs[_PAGE - 1]) if len(jobs) > _PAGE else None
    return await _activity(call, "jobs", jobs=jobs[:_PAGE], following=following, first=after)


async def _activity(call: SetRequest, tab: str, **context: Any) -> Response:
    names = await call.run(_names, call)
    context |= {
        "tab": tab,
        "names": names,
        "job_id": call.job_id,
        "submitter": _submitter,
        "fragments": (tab,),
    }
    return await page.render_set(call, f"activity_{tab}.html", page="activity", **context)


def _submitter(job: Any) -> str:
    """The id of the principal who submitted a job; "" for the service itself."""
    with suppress(ValueError, TypeError, LookupError):  # a key of someone's own
        return str(json.loads(str(job.key).rpartition(":")[0])[0])  # see `job_key`
    return ""


def _names(call: SetRequest) -> dict[str, str]:
    """Names of principals by id, as far as the principal may know them."""
    names = {"local": page.translator(call.request)("act.local")}
    access = call.service.access
    if access is not None and call.principal.is_administrator:
        names |= {token.id: token.name or token.id for token in access.tokens()}
    return names


@router.post("/s/{set}/activity/{job_id}/{action}")
async def change_job(call: Writing, job: OwnJob, action: str, _: Form) -> Response:
    """Cancel a job, run it again, or retry what failed in it."""
    if action == "retry-failed" and call.principal.is_unrestricted:
        await call.submit_job("retry_failed", {})
    elif action in ("cancel", "retry"):
        await (cancel_job if action == "cancel" else retry_job)(call, job)
    else:
        raise ProblemError(404, f"There is no action {action!a}.")
    return page.to_set(call, "activity")


@router.get("/s/{set}/activity/audit")
async def audit(
    call: Administration,
    before: Annotated[int, Query(ge=1, le=2**53)] = 2**53,
    by: str = "",
    action: str = "",
    check: bool = False,
) -> Response:
    """The audit log, the newest first, of all sets."""
    access = access_of(call.request)
    more = {"before": before, "by": by, "action": action, "newest": True}
    rows = await call.run(access.audit, call.principal, limit=_PAGE + 1, **more)
    checked = None
    if check and call.principal.is_unrestricted:
        checked = await call.run_slow(access.verify_audit)
    following = rows[_PAGE - 1].id if len(rows) > _PAGE else None
    return await _activity(
        call, "audit", rows=rows[:_PAGE], checked=checked, following=following, **more
    )


@router.get("/s/{set}/activity/certificates")
async def certificates(call: Administration) -> Response:
    """Deletion certificates of the last 30 days."""
    require_whole(call.principal)
    jobs = await call.run(call.jobs.list, None, 1000, "DELETED")
    return await _activity(
        call, "certificates", jobs=[job for job in jobs if job.kind == "purge" and job.result]
    )


@router.get("/s/{set}/activity/certificates/{job_id}")
async def certificate(call: Administration, job_id: str) -> Response:
    """A deletion certificate; with ``.json`` behind its number as a file, to be kept."""
    require_whole(call.principal)
    number = job_id.removesuffix(".json")
    job = await own_job(call, number)
    if job.kind != "purge" or not job.result:
        raise ProblemError(
            404, f"There is no deletion certificate {number!a}.", "List those of the set."
        )
    if number == job_id:
        return await _activity(call, "certificate", job=job)
    disposition = f'attachment; filename="certificate-{job.id}.json"'
    return reply(job.result, headers={"Content-Disposition": disposition})


@router.get("/s/{set}/activity/health")
async def health(call: Administration) -> Response:
    """Sizes, the last verification, latencies, and the jobs of the last two weeks."""
    require_whole(call.principal)
    contents = await call.run_slow(call.docs.status)
    jobs = await call.run(call.jobs.list, None, 1000)
    today = dt.datetime.now(dt.timezone.utc).date()
    counts = Counter((job.created.date(), job.state == "FAILED") for job in jobs if job.is_finished)
    dates = [today - dt.timedelta(ago) for ago in range(_DAYS)]
    days = [(day, counts[day, False], counts[day, True]) for day in dates]
    verified = next((job for job in jobs if job.kind == "verify" and job.state == "SUCCESS"), None)
    state = call.service.state
    return await _activity(
        call,
        "health",
        contents=contents,
        days=days,
        verified=verified,
        latencies=call.service.metrics.latencies(),
        process=str(os.getpid()),
        free=shutil.disk_usage(state if state.exists() else ".").free,
    )


@router.post("/s/{set}/activity/health")
async def maintain(call: Administration, form: Form) -> Response:
    """Verify, repair or compact the stores, as a job."""
    require_whole(call.principal)
    if (action := form.get("action")) not in ("verify", "repair", "compact"):
        raise ProblemError(404, f"There is no action {action!a}.")
    await call.submit_job(str(action), {})
    return page.to_set(call, "activity")


# Settings


async def _settings(request: Request, tab: str, status: int = 200, **context: Any) -> Response:
    context = {"set": _last_set(request), "tab": tab, **context}
    return await page.render(request, f"settings_{tab}.html", status, page="settings", **context)


def _saved(request: Request, tab: str, key: str, **query: Any) -> Response:
    """The answer to a form of the settings that has changed something."""
    notice = ("ok", page.translator(request)(key))
    return page.redirect(request, "settings", tab, notice=notice, **query)


@router.get("/settings")
async def settings(request: Request, _: Whole) -> Response:
    """The first page of the settings."""
    return page.redirect(request, "settings", "tokens")


@router.get("/settings/tokens")
async def tokens(request: Request, _: Whole) -> Response:
    """Tokens; a new one's secret once."""
    return await _tokens(request)


async def _tokens(
    request: Request, status: int = 200, form: Any = None, error: Any = None
) -> Response:
    access = access_of(request)
    secret = request.cookies.get(_SECRET)
    run = service_of(request).run
    response = await _settings(
        request,
        "tokens",
        status,
        tokens=(await run(access.tokens))[::-1],
        secret=secret,
        is_open=not await run(access.is_closed),
        now=time.time(),
        form=form or {},
        error=error,
    )
    if secret:
        response.headers["Cache-Control"] = "no-store"
        response.delete_cookie(_SECRET, f"{page.root_of(request)}/settings")
    return response


@router.post("/settings/tokens")
async def create_token(request: Request, form: Form, principal: Whole) -> Response:
    """Create a token. The first one closes the service, so this browser gets a session of it."""
    service = service_of(request)
    access = access_of(request)
    fields = {name: text_of(form, name).strip() for name in ("name", "scope", "expires", "labels")}
    labels = page.split_labels(fields["labels"]) or None
    is_first = not await service.run(access.is_closed)
    try:
        if is_first and (fields["scope"] != "admin" or labels):
            raise ProblemError(422, page.translator(request)("set.first_is_admin"))  # noqa: TRY301
        token, text = await service.run(
            access.create,
            fields["scope"],
            name=fields["name"],
            labels=labels,
            expires=fields["expires"] or None,
            by=principal.id,
        )
    except (LazyRAGError, ProblemError) as exc:
        return await _tokens(request, 422, fields, problem_of(exc))
    response = page.redirect(request, "settings", "tokens")
    path = f"{page.root_of(request)}/settings"
    page.set_cookie(request, response, _SECRET, text, max_age=120, httponly=True, path=path)
    return await sign_in(request, response, Principal(token.id)) if is_first else response


@router.post("/settings/tokens/{token_id}/revoke")
async def revoke_token(request: Request, token_id: str, _: Form, principal: Whole) -> Response:
    """Revoke a token and its sessions."""
    await service_of(request).run(access_of(request).revoke, token_id, by=principal.id)
    return _saved(request, "tokens", "set.revoked")


@router.get("/settings/models")
async def models(request: Request, _: Whole) -> Response:
    """The models of all sets, with the state of their last calls."""
    service = service_of(request)
    name = _last_set(request)

    def find() -> Facts:
        notes = page.notes_of(page.models_file(service))
        for created, text in service.book.rows(_LAST_ANSWER) if service.chat else ():
            chat_note = notes.setdefault("", {})
            if created > chat_note.get("created", 0):
                answer = json.loads(text)
                is_ok = answer["state"] != "FAILED"
                detail = "" if is_ok else answer["problems"][-1]["detail"]
                chat_note.update(created=created, text=detail, is_ok=is_ok)
        return {
            "models": _models(service),
            "endpoint_of": _endpoint_of,
            "notes": notes,
            "failed": {name: _failed_stages(docs) for name, docs in service.sets.items()},
        }

    folder = dataset_folder(service.sets[name].reader) if name in service.sets else None
    return await _settings(
        request, "models", state=service.state, name=name, folder=folder, **await service.run(find)
    )


def _failed_stages(docs: Document) -> list[str]:
    return [stage for _, stage in docs.status().failed]


_LAST_ANSWER = (
    "SELECT created, data FROM event JOIN answer ON id = answer WHERE name = 'done' ORDER BY 1 DESC"
    " LIMIT 1"
)


def _models(service: Service) -> dict[str, tuple[str, str, Any]]:
    """The models by id: the set, the embed key, the model; the chat model has neither set nor
    key.
    """
    models = {}
    if service.chat is not None:
        models[""] = ("", "", service.chat)
    for name, docs in service.sets.items():
        for key, embed in embedders_by_key(docs.reader).items():
            models[f"{name}/{key}"] = (name, key, embed.embedder)
    return models


def _endpoint_of(model: Any) -> Endpoint | None:
    """The endpoint of a model; a model of the user may have anything under that name."""
    endpoint = getattr(model, "endpoint", None)
    return endpoint if isinstance(endpoint, Endpoint) else None


@router.post("/settings/models")
async def check_model(request: Request, form: Form, _: Whole) -> Response:
    """Call a model once, or note its price."""
    service = service_of(request)
    t = page.translator(request)
    chosen = str(form.get("model"))
    name, _key, model = _models(service).get(chosen, ("", "", None))
    path = page.models_file(service)
    notes = page.notes_of(path)
    if "price" in form:
        notes[chosen] = {**notes.get(chosen, {}), "price": page.price_of(form.get("price"))}
        await service.run(page.note, path, notes)
        return _saved(request, "models", "models.price_saved")
    began = time.perf_counter()

    def ask() -> str:
        if name:
            return t("models.dims", n=str(len(model.embed(["tea"])[0])))
        answer = (model.chat if hasattr(model, "chat") else model)("Answer with the word OK.")
        text = str(getattr(answer, "text", answer))
        return text[:200]

    try:
        notice = ["ok", t("models.works"), await service.run(ask)]
    except Exception as exc:  # noqa: BLE001  a model may raise anything, and the page shows it
        notice = ["err", t("models.fails"), f"{type(exc).__name__}: {exc}"]
    notice[1] = notice[1].format(ms=f"{1000 * (time.perf_counter() - began):,.0f}")
    outcome = {"created": time.time(), "text": " ".join(notice[1:]), "is_ok": notice[0] == "ok"}
    await service.run(page.note, path, {**notes, chosen: {**notes.get(chosen, {}), **outcome}})
    return page.redirect(request, "settings", "models", notice=notice)


@router.get("/settings/retrieval")
async def retrieval(
    request: Request,
    principal: Whole,
    set: str | None = None,  # noqa: A002
) -> Response:
    """How the sets are searched where nothing is chosen, and what it costs."""
    service = service_of(request)
    name = _last_set(request, set)
    facts = await service.run(_retrieval_facts, service, name) if name else {}
    return await _settings(request, "retrieval", set=name, names=service.names(principal), **facts)


def _retrieval_facts(service: Service, name: str) -> Facts:
    docs = service.sets[name]
    chosen = page.defaults_of(service, name)
    sample = []
    groups = [group.name for group in docs.status().groups if group.nodes] or [chosen["group"]]
    with suppress(LazyRAGError):
        sample = [len(node.text) for node in docs.get_nodes(chosen["group"], limit=50)]
    mean = sum(sample) // max(1, len(sample))
    return {
        "chosen": chosen,
        "groups": groups,
        "embed_keys": docs.reader.embed_keys,
        "characters": mean,
    }


@router.post("/settings/retrieval")
async def change_retrieval(request: Request, form: Form, principal: Whole) -> Response:
    """Change the defaults of a set, or take the last change back."""
    service = service_of(request)
    name = text_of(form, "set")
    values = {}
    if not form.get("undo"):
        topk = text_of(form, "topk")
        if not (topk.isdecimal() and 1 <= int(topk) <= 100):
            raise ProblemError(422, f"topk must be an integer from 1 to 100; got {topk!a:.20}.")
        values = {
            "group": str(form.get("group")),
            "retriever": str(form.get("retriever")),
            "topk": int(topk),
        }
    await service.run(page.change_defaults, service, service.view(name, principal), name, **values)
    key = "set.undone" if form.get("undo") else "set.saved"
    return _saved(request, "retrieval", key, set=name)


@router.get("/settings/network")
async def network(request: Request, _: Whole) -> Response:
    """How the service is reached, and which limits it has."""
    service = service_of(request)
    access = access_of(request)
    is_open = not await service.run(access.is_closed)
    address = str(request.base_url).rstrip("/")
    return await _settings(
        request, "network", service=service, access=access, is_open=is_open, address=address
    )


# Components, for tests


@router.get("/_gallery")
async def gallery(request: Request, _: Reader) -> Response:
    """All components in all states."""
    if os.environ.get("LAZYRAG_GALLERY") != "1":
        raise ProblemError(404, f"There is no page {request.url.path}.")
    return await page.render(request, "gallery.html", page="gallery")
