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
from lazyrag.server.api.access import access_of, require_whole
from lazyrag.server.api.answers import Book
from lazyrag.server.api.documents import OwnJob, cancel_job, own_job, own_jobs, retry_job
from lazyrag.server.api.uploads import Administration, Call, Reading, Writing, reply
from lazyrag.server.core.access import COOKIE, SESSION_S
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, problem_of
from lazyrag.server.core.service import Service, needs, service_of
from lazyrag.server.jobs import Jobs
from lazyrag.server.page import page
from lazyrag.server.page.page import Form
from lazyrag.text.sentences import resolve_language

router = APIRouter(include_in_schema=False)

_PAGE = 50
_DAYS = 14
_SECRET = "lazyrag_secret"  # noqa: S105  the name of the cookie that carries a new token to the next page, once
_READ = Annotated[Principal, needs("read")]
_ADMIN = Annotated[Principal, needs("admin")]


# Log-in, More


@router.get("/login")
async def show_login(request: Request, next: str = "/", other: bool = False) -> Response:  # noqa: A002  the name in the address
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
    principal = await service.run(find, str(form.get("token", "")).strip())
    if principal is None:
        return await page.render(
            request, "login.html", 401, page="login", next=target, invalid=True
        )
    is_more = principal.labels is None and principal.may(request.state.principal.scope)
    if form.get("once") and request.state.principal.id != "anonymous" and not is_more:
        return _onward(request, target)  # a link of someone else must not change who a browser is
    request.state.principal = principal
    return await _signed_in(request, _onward(request, target), principal)


async def _signed_in(request: Request, response: Response, principal: Principal) -> Response:
    session = await service_of(request).run(access_of(request).open_session, principal)
    page.set_cookie(request, response, COOKIE, session, max_age=SESSION_S, httponly=True)
    return response


@router.post("/logout")
async def log_out(request: Request, _: Form) -> Response:
    """End the session."""
    await service_of(request).run(access_of(request).end_session, request.cookies.get(COOKIE, ""))
    response = page.redirect(request, "login")
    response.delete_cookie(COOKIE, request.scope.get("root_path") or "/")
    return response


def _local(target: str) -> str:
    """A page of this service: never another site. Browsers leave out tabs and line breaks of
    addresses.
    """
    return target if re.fullmatch(r"/(?!/)[^\\\x00-\x20\x7f]*", target) else "/"


def _onward(request: Request, target: str) -> Response:
    """To the page that wanted a log-in, which is quoted already."""
    return RedirectResponse(
        f"{request.scope.get('root_path', '').rstrip('/')}{_local(target)}", 303
    )


@router.get("/more")
async def more(request: Request, _: _READ) -> Response:
    """The menu of phones."""
    return await page.render(request, "more.html", page="more", set=_last_set(request))


def _last_set(request: Request, chosen: str | None = None) -> str | None:
    """The set around pages of the whole service: a chosen one, the last one, any."""
    names = service_of(request).names(request.state.principal)
    last = unquote(request.cookies.get("lazyrag_set", ""))
    return next((one for one in (chosen, last, *names) if one in names), None)


# First run


async def first_run(call: Call) -> Response | None:
    """The first steps in place of the page Ask, as long as no document can be searched."""
    return (
        None
        if await call.run(call.docs.documents, limit=1, status="SUCCESS")
        else await start(call)
    )


@router.get("/s/{set}/start")
async def start(call: Reading) -> Response:
    """The three steps from an empty set to an answer."""
    facts = await call.run(_first_facts, call)
    fragments = ("first_steps",)
    return await page.render(
        call.request, "first_run.html", page="ask", set=call.name, fragments=fragments, **facts
    )


def _first_facts(call: Call) -> dict[str, Any]:
    ready, failed = (call.docs.documents(limit=100, status=one) for one in ("SUCCESS", "FAILED"))
    jobs = [*own_jobs(call, None, 1, "WORKING"), *own_jobs(call, None, 1, "WAITING")]
    has_folder = call.principal.labels is None and call.whole._indexer.dataset.folder is not None
    questions = suggestions(call.docs, page.language_of(call.request))
    return {
        "ready": ready,
        "failed": failed,
        "jobs": jobs,
        "questions": questions,
        "has_folder": has_folder,
    }


def suggestions(docs: Document, language: str) -> list[str]:
    """Up to three questions about headings, or names, of documents: no model is needed for them.

    Those in the reader's language come first, and then headings before names.
    """
    found: dict[str, tuple[bool, bool]] = {}
    for one in docs.documents(status="SUCCESS", limit=24):
        with suppress(LazyRAGError):
            titles = [
                place.label.rpartition(" > ")[2]
                for place in outline(docs, one.id)
                if place.kind == "heading"
            ]
            fit = [
                text
                for text in (_NUMBERING.sub("", title) for title in titles[1:])
                if 4 <= len(text) <= 40
            ]
            text = (
                max(fit, key=len) if fit else one.id.rpartition("/")[2].rpartition(".")[0] or one.id
            )
            found[text] = (resolve_language("auto", text) != language, not fit)
    return [
        page.translate(language, "ask.suggestion", heading=text)
        for text in sorted(found, key=found.__getitem__)[:3]
    ]


_NUMBERING = re.compile(r"^(?:[\d.]+|第?[一二三四五六七八九十]+[、章节.])[\s、.]*|^[#\s]+")


# Activity


@router.get("/s/{set}/activity")
async def activity(call: Writing, after: str | None = None) -> Response:
    """Jobs, the newest first."""
    jobs = await call.run(own_jobs, call, after, _PAGE + 1)
    following = call.job_id(jobs[_PAGE - 1]) if len(jobs) > _PAGE else None
    return await _activity(call, "jobs", jobs=jobs[:_PAGE], following=following, first=after)


async def _activity(call: Call, tab: str, **context: Any) -> Response:
    names = await call.run(_names, call)
    context |= {
        "tab": tab,
        "names": names,
        "job_id": call.job_id,
        "submitter": _submitter,
        "fragments": (tab,),
    }
    return await page.render(
        call.request, f"activity_{tab}.html", page="activity", set=call.name, **context
    )


def _submitter(job: Any) -> str:
    """The id of the principal who submitted a job; "" for the service itself."""
    with suppress(ValueError, TypeError, LookupError):  # a key of someone's own
        return str(json.loads(str(job.key).rpartition(":")[0])[0])  # see `job_key`
    return ""


def _names(call: Call) -> dict[str, str]:
    """Names of principals by id, as far as the principal may know them."""
    found = {"local": page.translator(call.request)("act.local")}
    access = call.service.access
    if access is not None and call.principal.may("admin") and call.principal.labels is None:
        found |= {one.id: one.name or one.id for one in access.tokens()}
    return found


@router.post("/s/{set}/activity/{job_id}/{action}")
async def change_job(call: Writing, job: OwnJob, action: str, _: Form) -> Response:
    """Cancel a job, run it again, or retry what failed in it."""
    if action == "retry-failed" and call.principal.labels is None:
        await call.accept("retry_failed", {})
    elif action in ("cancel", "retry"):
        await (cancel_job if action == "cancel" else retry_job)(call, job)
    else:
        raise ProblemError(404, f"There is no action {action!a}.")
    return page.redirect(call.request, "s", call.name, "activity")


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
    checked = (
        await call.run_slow(access.verify_audit)
        if check and call.principal.labels is None
        else None
    )
    following = rows[_PAGE - 1].id if len(rows) > _PAGE else None
    return await _activity(
        call, "audit", rows=rows[:_PAGE], checked=checked, following=following, **more
    )


@router.get("/s/{set}/activity/certificates")
async def certificates(call: Administration) -> Response:
    """Deletion certificates of the last 30 days."""
    require_whole(call.principal)
    jobs = await call.run(Jobs(call.whole).list, None, 1000, "DELETED")
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
    return reply(
        job.result,
        headers={"Content-Disposition": f'attachment; filename="certificate-{job.id}.json"'},
    )


@router.get("/s/{set}/activity/health")
async def health(call: Administration) -> Response:
    """Sizes, the last verification, latencies, and the jobs of the last two weeks."""
    require_whole(call.principal)
    contents = await call.run_slow(call.docs.status)
    jobs = await call.run(Jobs(call.whole).list, None, 1000)
    today = dt.datetime.now(dt.timezone.utc).date()
    counts = Counter((job.created.date(), job.state == "FAILED") for job in jobs if job.is_finished)
    dates = [today - dt.timedelta(ago) for ago in range(_DAYS)]
    days = [(day, counts[day, False], counts[day, True]) for day in dates]
    verified = next((job for job in jobs if job.kind == "verify" and job.state == "SUCCESS"), None)
    free = shutil.disk_usage(call.service.state if call.service.state.exists() else ".").free
    more = {
        "latencies": call.service.metrics.latencies(),
        "process": str(os.getpid()),
        "free": free,
    }
    return await _activity(call, "health", contents=contents, days=days, verified=verified, **more)


@router.post("/s/{set}/activity/health")
async def maintain(call: Administration, form: Form) -> Response:
    """Verify, repair or compact the stores, as a job."""
    require_whole(call.principal)
    if (action := form.get("action")) not in ("verify", "repair", "compact"):
        raise ProblemError(404, f"There is no action {action!a}.")
    await call.accept(str(action), {})
    return page.redirect(call.request, "s", call.name, "activity")


# Settings


async def _settings(request: Request, tab: str, status: int = 200, **context: Any) -> Response:
    require_whole(request.state.principal)
    context = {"set": _last_set(request), "tab": tab, **context}
    return await page.render(request, f"settings_{tab}.html", status, page="settings", **context)


@router.get("/settings")
async def settings(request: Request, _: _ADMIN) -> Response:
    """The first page of the settings."""
    return page.redirect(request, "settings", "tokens")


@router.get("/settings/tokens")
async def tokens(request: Request, _: _ADMIN) -> Response:
    """Tokens; a new one's secret once."""
    return await _tokens(request)


async def _tokens(
    request: Request, status: int = 200, form: Any = None, error: Any = None
) -> Response:
    access = access_of(request)
    secret = request.cookies.get(_SECRET)
    found, is_closed = await service_of(request).run(lambda: (access.tokens(), access.is_closed()))
    more = {
        "secret": secret,
        "is_open": not is_closed,
        "now": time.time(),
        "form": form or {},
        "error": error,
    }
    response = await _settings(request, "tokens", status, tokens=found[::-1], **more)
    if secret:
        response.headers["Cache-Control"] = "no-store"
        response.delete_cookie(_SECRET, f"{request.scope.get('root_path', '')}/settings")
    return response


@router.post("/settings/tokens")
async def create_token(request: Request, form: Form, principal: _ADMIN) -> Response:
    """Create a token. The first one closes the service, so this browser gets a session of it."""
    require_whole(principal)
    service = service_of(request)
    access = access_of(request)
    given = {
        name: str(form.get(name, "")).strip() for name in ("name", "scope", "expires", "labels")
    }
    labels = page.split_labels(given["labels"]) or None
    is_first = not await service.run(access.is_closed)
    try:
        if is_first and (given["scope"] != "admin" or labels):
            raise ProblemError(422, page.translator(request)("set.first_is_admin"))  # noqa: TRY301
        chosen = {"name": given["name"], "labels": labels, "expires": given["expires"] or None}
        token, text = await service.run(access.create, given["scope"], **chosen, by=principal.id)
    except (LazyRAGError, ProblemError) as exc:
        return await _tokens(request, 422, given, problem_of(exc))
    response = page.redirect(request, "settings", "tokens")
    path = f"{request.scope.get('root_path', '')}/settings"
    page.set_cookie(request, response, _SECRET, text, max_age=120, httponly=True, path=path)
    return await _signed_in(request, response, Principal(token.id)) if is_first else response


@router.post("/settings/tokens/{token_id}/revoke")
async def revoke_token(request: Request, token_id: str, _: Form, principal: _ADMIN) -> Response:
    """Revoke a token and its sessions."""
    require_whole(principal)
    await service_of(request).run(access_of(request).revoke, token_id, by=principal.id)
    return page.redirect(
        request, "settings", "tokens", notice=("ok", page.translator(request)("set.revoked"))
    )


@router.get("/settings/models")
async def models(request: Request, book: Book, _: _ADMIN) -> Response:
    """The models of all sets, with the state of their last calls."""
    service = service_of(request)
    name = _last_set(request)

    def find() -> dict[str, Any]:
        notes = page.notes_of(page.models_file(service))
        last = book.rows(_LAST_ANSWER)
        for created, answer in (
            (created, json.loads(text)) for created, text in last if service.chat
        ):
            if created > notes.get("", {}).get("created", 0):
                is_ok = answer["state"] != "FAILED"
                own = {
                    "created": created,
                    "text": "" if is_ok else answer["problems"][-1]["detail"],
                    "is_ok": is_ok,
                }
                notes[""] = {**notes.get("", {}), **own}
        failed = {
            one: [stage for _, stage in docs.status().failed] for one, docs in service.sets.items()
        }
        return {
            "models": _models(service),
            "endpoint_of": _endpoint_of,
            "notes": notes,
            "failed": failed,
        }

    folder = service.sets[name]._indexer.dataset.folder if name in service.sets else None
    return await _settings(
        request, "models", state=service.state, name=name, folder=folder, **await service.run(find)
    )


_LAST_ANSWER = (
    "SELECT created, data FROM event JOIN answer ON id = answer WHERE name = 'done' ORDER BY 1 DESC"
    " LIMIT 1"
)


def _models(service: Service) -> dict[str, tuple[str, str, Any]]:
    """The models by id: the set, the embed key, the model; the chat model has neither set nor
    key.
    """
    embedders = (
        (name, key, one)
        for name, docs in service.sets.items()
        for key, one in docs._indexer.embedders.items()
    )
    found = {f"{name}/{key}": (name, key, one.embedder) for name, key, one in embedders}
    return found if service.chat is None else {"": ("", "", service.chat), **found}


def _endpoint_of(model: Any) -> Endpoint | None:
    """The endpoint of a model; a model of the user may have anything under that name."""
    endpoint = getattr(model, "endpoint", None)
    return endpoint if isinstance(endpoint, Endpoint) else None


@router.post("/settings/models")
async def check_model(request: Request, form: Form, principal: _ADMIN) -> Response:
    """Call a model once, or note its price."""
    require_whole(principal)
    service = service_of(request)
    t = page.translator(request)
    chosen = str(form.get("model"))
    (name, _, model), path = _models(service).get(chosen, ("", "", None)), page.models_file(service)
    notes = page.notes_of(path)
    if "price" in form:
        notes[chosen] = {**notes.get(chosen, {}), "price": page.price_of(form.get("price"))}
        await service.run(page.note, path, notes)
        return page.redirect(request, "settings", "models", notice=("ok", t("models.price_saved")))
    began = time.perf_counter()

    def ask() -> str:
        if name:
            return t("models.dims", n=str(len(model.embed(["tea"])[0])))
        answer = (model.chat if hasattr(model, "chat") else model)("Answer with the word OK.")
        return str(getattr(answer, "text", answer))[:200]

    try:
        notice = ["ok", t("models.works"), await service.run(ask)]
    except Exception as exc:  # noqa: BLE001  a model may raise anything, and the page shows it
        notice = ["err", t("models.fails"), f"{type(exc).__name__}: {exc}"]
    notice[1] = notice[1].format(ms=f"{1000 * (time.perf_counter() - began):,.0f}")
    own = {"created": time.time(), "text": " ".join(notice[1:]), "is_ok": notice[0] == "ok"}
    await service.run(page.note, path, {**notes, chosen: {**notes.get(chosen, {}), **own}})
    return page.redirect(request, "settings", "models", notice=notice)


@router.get("/settings/retrieval")
async def retrieval(request: Request, principal: _ADMIN, set: str | None = None) -> Response:  # noqa: A002
    """How the sets are searched where nothing is chosen, and what it costs."""
    service = service_of(request)
    name = _last_set(request, set)
    facts = await service.run(_retrieval_facts, service, name) if name else {}
    return await _settings(request, "retrieval", set=name, names=service.names(principal), **facts)


def _retrieval_facts(service: Service, name: str) -> dict[str, Any]:
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
async def change_retrieval(request: Request, form: Form, principal: _ADMIN) -> Response:
    """Change the defaults of a set, or take the last change back."""
    require_whole(principal)
    service = service_of(request)
    name = str(form.get("set", ""))
    values: dict[str, Any] = {}
    if not form.get("undo"):
        topk = str(form.get("topk", ""))
        if not (topk.isdecimal() and 1 <= int(topk) <= 100):
            raise ProblemError(422, f"topk must be an integer from 1 to 100; got {topk!a:.20}.")
        values = {
            "group": str(form.get("group")),
            "retriever": str(form.get("retriever")),
            "topk": int(topk),
        }
    await service.run(page.change_defaults, service, service.view(name, principal), name, **values)
    text = page.translator(request)("set.undone" if form.get("undo") else "set.saved")
    return page.redirect(request, "settings", "retrieval", notice=("ok", text), set=name)


@router.get("/settings/network")
async def network(request: Request, _: _ADMIN) -> Response:
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
async def gallery(request: Request, _: _READ) -> Response:
    """All components in all states."""
    if os.environ.get("LAZYRAG_GALLERY") != "1":
        raise ProblemError(404, f"There is no page {request.url.path}.")
    return await page.render(request, "gallery.html", page="gallery")
