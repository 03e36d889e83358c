"""The web page's parts for whoever operates the service: log-in, first run, Activity, Settings, More."""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from lazyrag.errors import LazyRAGError
from lazyrag.server.access import COOKIE, SESSION_S
from lazyrag.server.page import (
    Form,
    change_defaults,
    defaults_of,
    language_of,
    redirect,
    render,
    set_cookie,
    translate,
    visible_sets,
)
from lazyrag.server.problems import ProblemError, problem_of
from lazyrag.server.routes_access import _access_of, _whole
from lazyrag.server.routes_documents import OwnJob, _own_job, cancel_job, own_jobs, retry_job
from lazyrag.server.service import SCOPES, Principal, Service, needs, service_of
from lazyrag.server.uploads import Administration, Call, Reading, Writing, reply

router = APIRouter(include_in_schema=False)

_PAGE = 50
_SECRET = "lazyrag_secret"  # noqa: S105  the name of the cookie that carries a new token to the next page, once
_ADMIN = Annotated[Principal, needs("admin")]
_PERIODS = ("", "12h", "30d", "90d", "365d")
_KINDS = {
    "WAITING": "wait",
    "WORKING": "run",
    "DELETING": "run",
    "SUCCESS": "ok",
    "DELETED": "ok",
    "FAILED": "err",
    "CANCELED": "skip2",
}


# Log-in, More


@router.get("/login")
async def show_login(request: Request, next: str = "/") -> Response:  # noqa: A002  the name in the address
    """The form for a token."""
    return await render(request, "login.html", next=_local(next))


@router.post("/login")
async def log_in(request: Request, form: Form) -> Response:
    """Exchange a token for a session; one that `lazyrag serve` put into the address is valid once."""
    service, access = service_of(request), _access_of(request)
    find = access.take_once if form.get("once") else access.of_token
    principal = await service.run(find, str(form.get("token", "")).strip())
    target = _local(str(form.get("next", "/")))
    if principal is None:
        return await render(request, "login.html", 401, next=target, invalid=True)
    request.state.principal = principal
    response = redirect(request, target)
    session = await service.run(access.open_session, principal)
    set_cookie(request, response, COOKIE, session, max_age=SESSION_S, httponly=True)
    return response


@router.post("/logout")
async def log_out(request: Request, _: Form) -> Response:
    """End the session."""
    if session := request.cookies.get(COOKIE):
        await service_of(request).run(_access_of(request).end_session, session)
    response = redirect(request, "login")
    response.delete_cookie(COOKIE, request.scope.get("root_path") or "/", httponly=True, samesite="strict")
    return response


def _local(target: str) -> str:
    """A page of this service: never another site."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"


@router.get("/more")
async def more(request: Request, principal: Annotated[Principal, needs("read")], set: str | None = None) -> Response:  # noqa: A002
    """The menu of phones."""
    name = set if set in visible_sets(service_of(request), principal) else None
    return await render(request, "more.html", page="more", set=name)


# First run


async def first_run(call: Reading) -> Response | None:
    """The three steps of an empty set, instead of its page Ask; None if there are documents and no job."""
    facts = await call.run(_first_facts, call)
    if facts is None:
        return None
    return await render(call.request, "first_run.html", page="ask", set=call.name, fragments=("first_steps",), **facts)


@router.get("/s/{set}/start")
async def start(call: Reading) -> Response:
    """The steps, also when there are documents."""
    facts = await call.run(_first_facts, call, always=True)
    return await render(
        call.request, "first_run.html", page="ask", set=call.name, fragments=("first_steps",), **(facts or {})
    )


def _first_facts(call: Call, *, always: bool = False) -> dict[str, Any] | None:
    ready = call.docs.documents(limit=100, status="SUCCESS")
    if ready and not always:
        return None
    failed = call.docs.documents(limit=100, status="FAILED")
    unfinished = [job for state in ("WORKING", "WAITING") for job in own_jobs(call, None, 1, state)]
    progress = next((job.progress for job in unfinished if job.progress and job.progress.total), None)
    return {
        "ready": len(ready),
        "failed": len(failed),
        "working": bool(unfinished),
        "progress": progress,
        "questions": _suggestions(call, [one.id for one in ready[:12]]),
        "folder": call.principal.labels is None and call.whole._indexer.dataset.folder is not None,
    }


def _suggestions(call: Call, documents: Sequence[str]) -> list[str]:
    """Up to three questions about headings, or names, of documents: no model is needed for them."""
    t, found = functools.partial(translate, language_of(call.request)), []
    for one in documents:
        with suppress(LazyRAGError):
            titles = [place.label.rpartition(" > ")[2] for place in call.docs.outline(one) if place.kind == "heading"]
            stem = one.rpartition("/")[2].rpartition(".")[0] or one
            found.append(
                t("first.about", heading=max(titles[1:8] or titles or [stem], key=lambda text: min(len(text), 30)))
            )
    return list(dict.fromkeys(found))[:3]


# Activity


@router.get("/s/{set}/activity")
async def activity(call: Writing, after: str | None = None) -> Response:
    """Jobs, the newest first."""
    jobs = await call.run(own_jobs, call, after, _PAGE + 1)
    names = await call.run(_names, call)
    rows = [_job_row(call, job, names) for job in jobs[:_PAGE]]
    following = call.job_id(jobs[_PAGE - 1]) if len(jobs) > _PAGE else None
    live = any(not job.is_finished for job in jobs)
    return await _activity(call, "jobs", ("jobs",), rows=rows, following=following, first=after, live=live)


async def _activity(call: Call, tab: str, fragments: Sequence[str] = (), **context: Any) -> Response:
    whole = call.principal.may("admin") and call.principal.labels is None
    tabs = [one for one in ("jobs", "audit", "certificates", "health") if one == "jobs" or whole]
    return await render(
        call.request,
        f"activity_{tab}.html",
        page="activity",
        set=call.name,
        tab=tab,
        tabs=tabs,
        fragments=fragments,
        **context,
    )


def _names(call: Call) -> dict[str, str]:
    """Names of principals by id, as far as the principal may know them."""
    found = {"local": translate(language_of(call.request), "act.local")}
    if call.service.access is not None and call.principal.may("admin") and call.principal.labels is None:
        found |= {one.id: one.name or one.id for one in call.service.access.tokens()}
    return found


def _job_row(call: Call, job: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """A job as its row: what happened, in words."""
    t = functools.partial(translate, language_of(call.request))
    result, counts = job.result or {}, (job.result or {}).get("counts", {})
    state = "PART" if job.state == "SUCCESS" and counts.get("failed") else job.state
    by = str(job.key or "").partition(":")[0]
    words = [
        t(f"act.count.{name}", count=counts[name])
        for name in ("added", "updated", "deleted", "moved", "unchanged", "withheld", "failed")
        if counts.get(name)
    ]
    if job.kind == "verify" and job.state == "SUCCESS":
        words = [t("act.problems", count=counts.get("value", 0))]
    failed = [str(one.get("path", "")) for one in result.get("failed") or () if isinstance(one, dict)]
    return {
        "id": call.job_id(job),
        "kind": job.kind,
        "by": t("act.by", name=names.get(by, by)) if by else t("act.by_watcher"),
        "attempts": job.attempts,
        "status": "warn" if state == "PART" else _KINDS[job.state],
        "state": t(f"act.state.{state}"),
        "progress": job.progress if not job.is_finished and job.progress and job.progress.total else None,
        "result": ", ".join(words),
        "failed": ", ".join(failed[:3]) + (", …" if len(failed) > 3 else ""),
        "error": job.error,
        "certificate": job.kind == "purge" and job.result is not None,
        "created": job.created,
        "seconds": (job.updated - job.created).total_seconds() if job.is_finished else None,
        "can_cancel": not job.is_finished,
        "can_retry": job.state in ("FAILED", "CANCELED"),
        "can_retry_failed": state == "PART" and call.principal.labels is None,
    }


@router.post("/s/{set}/activity/{job_id}/{action}")
async def change_job(call: Writing, job: OwnJob, action: str, _: Form) -> Response:
    """Cancel a job, run it again, or retry what failed in it."""
    if action == "retry-failed" and call.principal.labels is None:
        await call.accept("retry_failed", {})
    elif action in ("cancel", "retry"):
        await (cancel_job if action == "cancel" else retry_job)(call, job)
    else:
        raise ProblemError(404, f"There is no action {action!a}.")
    return redirect(call.request, "s", call.name, "activity")


@router.get("/s/{set}/activity/audit")
async def audit(
    call: Administration,
    before: Annotated[int, Query(ge=1, le=2**53)] = 2**53,
    by: str = "",
    action: str = "",
    check: bool = False,
) -> Response:
    """The audit log, the newest first, of all sets."""
    access = _access_of(call.request)
    limits = {"before": before, "by": by, "action": action, "limit": _PAGE + 1, "newest": True}
    rows = await call.run(access.audit, call.principal, **limits)
    names = await call.run(_names, call)
    checked = await call.run_slow(access.verify_audit) if check and call.principal.labels is None else None
    following = rows[_PAGE - 1].id if len(rows) > _PAGE else None
    context = {"rows": rows[:_PAGE], "names": names, "checked": checked, "by": by, "action": action}
    return await _activity(call, "audit", ("audit",), **context, following=following, first=before < 2**53)


@router.get("/s/{set}/activity/certificates")
async def certificates(call: Administration) -> Response:
    """Deletion certificates of the last 30 days."""
    _whole(call.principal)
    jobs = await call.run(call.whole.jobs.list, None, 1000, "DELETED")
    found = [job for job in jobs if job.kind == "purge" and job.result]
    return await _activity(call, "certificates", rows=[(job, _is_clean(job)) for job in found])


def _is_clean(job: Any) -> bool:
    return not any(place["found"] for place in job.result["checked"])


async def _certificate(call: Administration, job_id: str) -> Any:
    _whole(call.principal)
    job = await _own_job(call, job_id)
    if job.kind != "purge" or not job.result:
        raise ProblemError(404, f"There is no deletion certificate {job_id!a}.", "List those of the set.")
    return job


@router.get("/s/{set}/activity/certificates/{job_id}.json")
async def certificate_file(call: Administration, job_id: str) -> Response:
    """A deletion certificate, to be kept."""
    job = await _certificate(call, job_id)
    headers = {"Content-Disposition": f'attachment; filename="certificate-{call.job_id(job)}.json"'}
    return reply(job.result, headers=headers)


@router.get("/s/{set}/activity/certificates/{job_id}")
async def certificate(call: Administration, job_id: str) -> Response:
    """A deletion certificate."""
    job = await _certificate(call, job_id)
    names = await call.run(_names, call)
    by = str(job.key or "").partition(":")[0]
    return await _activity(
        call, "certificate", number=call.job_id(job), job=job, by=names.get(by, by), is_clean=_is_clean(job)
    )


_DAYS = 14


@router.get("/s/{set}/activity/health")
async def health(call: Administration) -> Response:
    """Sizes, the last verification, latencies, and what happened in the last two weeks."""
    _whole(call.principal)
    status = await call.run_slow(call.docs.status)
    jobs = await call.run(call.whole.jobs.list, None, 1000)
    verified = next((job for job in jobs if job.kind == "verify" and job.state == "SUCCESS"), None)
    today = dt.datetime.now(dt.timezone.utc).date()
    days = [today - dt.timedelta(days=ago) for ago in range(_DAYS - 1, -1, -1)]
    done, failed = (
        Counter(job.created.date() for job in jobs if job.is_finished and (job.state == "FAILED") is is_failed)
        for is_failed in (False, True)
    )
    disk = shutil.disk_usage(call.service.state if call.service.state.exists() else ".")
    return await _activity(
        call,
        "health",
        contents=status,
        nodes=sum(group.nodes for group in status.groups),
        verified=_job_row(call, verified, {}) if verified else None,
        disk=disk,
        latencies=call.service.metrics.latencies(),
        process=os.getpid(),
        days=[(day, done[day], failed[day]) for day in days],
        series=json.dumps(
            [
                [int(time.mktime(day.timetuple())) for day in days],
                [done[day] for day in days],
                [failed[day] for day in days],
            ]
        ),
    )


@router.post("/s/{set}/activity/health/{action}")
async def maintain(call: Administration, action: str, _: Form) -> Response:
    """Verify, repair or compact the stores, as a job."""
    _whole(call.principal)
    if action not in ("verify", "repair", "compact"):
        raise ProblemError(404, f"There is no action {action!a}.")
    await call.accept(action, {})
    return redirect(call.request, "s", call.name, "activity")


# Settings


async def _settings(request: Request, tab: str, status: int = 200, **context: Any) -> Response:
    context = {"page": "settings", "set": _last_set(request), "tab": tab, **context}
    return await render(request, f"settings_{tab}.html", status, **context)


def _last_set(request: Request) -> str | None:
    """The set that the frame shows around pages of the whole service."""
    last = unquote(request.cookies.get("lazyrag_set", ""))
    names = visible_sets(service_of(request), request.state.principal)
    return last if last in names else next(iter(names), None)


@router.get("/settings")
async def settings(request: Request, _: _ADMIN) -> Response:
    """The first page of the settings."""
    return redirect(request, "settings", "tokens")


@router.get("/settings/tokens")
async def tokens(request: Request, principal: _ADMIN) -> Response:
    """Tokens; a new one's secret once."""
    return await _tokens(request, principal)


async def _tokens(request: Request, principal: Principal, status: int = 200, **context: Any) -> Response:
    _whole(principal)
    service, access = service_of(request), _access_of(request)
    found, is_open = await service.run(access.tokens), not await service.run(access.is_closed)
    secret, now = request.cookies.get(_SECRET), time.time()
    rows = [(one, "revoked" if one.revoked else "expired" if (one.expires or now) < now else "") for one in found]
    rows = [row for row in reversed(rows) if not row[1]] + [row for row in reversed(rows) if row[1]]
    context = {"rows": rows, "secret": secret, "is_open": is_open, "scopes": SCOPES, "periods": _PERIODS, **context}
    response = await _settings(request, "tokens", status, **{"form": {}, "error": None, **context})
    if secret:
        response.headers["Cache-Control"] = "no-store"
        response.delete_cookie(_SECRET, f"{request.scope.get('root_path', '')}/settings")
    return response


@router.post("/settings/tokens")
async def create_token(request: Request, form: Form, principal: _ADMIN) -> Response:
    """Create a token. The first one closes the service, so this browser gets a session of it."""
    _whole(principal)
    service, access = service_of(request), _access_of(request)
    labels = [one for one in str(form.get("labels", "")).replace("，", ",").split(",") if one.strip()]
    chosen = {name: str(form.get(name, "")) for name in ("name", "scope", "expires")}
    is_first = not await service.run(access.is_closed)
    shown = {**chosen, "labels": ", ".join(labels)}
    if is_first and (chosen["scope"] != "admin" or labels):
        problem = ProblemError(422, translate(language_of(request), "set.first_is_admin"))
        return await _tokens(request, principal, 422, form=shown, error=problem)
    try:
        token, text = await service.run(
            access.create,
            chosen["scope"],
            name=chosen["name"].strip(),
            labels=[one.strip() for one in labels] or None,
            expires=chosen["expires"] or None,
            by=principal.id,
        )
    except LazyRAGError as exc:
        return await _tokens(request, principal, 422, form=shown, error=problem_of(exc))
    response = redirect(request, "settings", "tokens")
    if is_first:
        session = await service.run(access.open_session, Principal(token.id, token.scope, token.labels))
        set_cookie(request, response, COOKIE, session, max_age=SESSION_S, httponly=True)
    path = f"{request.scope.get('root_path', '')}/settings"
    set_cookie(request, response, _SECRET, text, max_age=120, httponly=True, path=path)
    return response


@router.post("/settings/tokens/{token_id}/revoke")
async def revoke_token(request: Request, token_id: str, _: Form, principal: _ADMIN) -> Response:
    """Revoke a token and its sessions."""
    _whole(principal)
    await service_of(request).run(_access_of(request).revoke, token_id, by=principal.id)
    notice = ("ok", translate(language_of(request), "set.revoked"))
    return redirect(request, "settings", "tokens", notice=notice)


@router.get("/settings/models")
async def models(request: Request, principal: _ADMIN) -> Response:
    """The models of all sets."""
    _whole(principal)
    found = _models(service_of(request))
    return await _settings(request, "models", rows=[_model_row(*one) for one in found])


def _models(service: Service) -> list[tuple[str, str, str, Any]]:
    """The models: an id, the set, the embed key, the model; the chat model has neither set nor key."""
    found: list[tuple[str, str, str, Any]] = [("chat", "", "", service.chat)] if service.chat is not None else []
    for name, docs in sorted(service.sets.items()):
        for key, one in docs._indexer.embedders.items():
            found.append((f"{quote(name, safe='')}/{quote(key, safe='')}", name, key, one))
    return found


def _model_row(one: str, name: str, key: str, model: Any) -> dict[str, Any]:
    inner = getattr(model, "embedder", model)
    endpoint = getattr(inner, "endpoint", None)
    return {
        "id": one,
        "set": name,
        "key": key,
        "model": getattr(inner, "model", None) or str(getattr(inner, "identity", "")) or type(inner).__name__,
        "address": getattr(endpoint, "base_url", None),
        "rate": getattr(endpoint, "requests_per_minute", None),
        "concurrency": getattr(endpoint, "concurrency", None),
    }


@router.post("/settings/models")
async def check_model(request: Request, form: Form, principal: _ADMIN) -> Response:
    """Call a model once."""
    _whole(principal)
    service = service_of(request)
    found = next((one for one in _models(service) if one[0] == form.get("model")), None)
    if found is None:
        raise ProblemError(404, "There is no such model.", "Reload the page.")
    t = functools.partial(translate, language_of(request))
    began = time.perf_counter()
    try:
        async with service.slow:
            said = await service.run(_call_model, found[3], is_chat=found[0] == "chat")
    except Exception as exc:  # noqa: BLE001  whatever a model of the user raises
        problem = problem_of(exc)
        detail = problem.detail if isinstance(exc, LazyRAGError) else f"{type(exc).__name__}: {exc}"
        return redirect(request, "settings", "models", notice=("err", t("models.fails"), f"{detail} {problem.remedy}"))
    took = f"{1000 * (time.perf_counter() - began):,.0f}"
    notice = ("ok", t("models.works", ms=took), said if found[0] == "chat" else t("models.dims", n=said))
    return redirect(request, "settings", "models", notice=notice)


def _call_model(model: Any, *, is_chat: bool) -> str:
    if is_chat:
        answer = model.chat("Answer with the word OK.") if hasattr(model, "chat") else model("Answer with the word OK.")
        return str(getattr(answer, "text", answer))[:200]
    return str(len(model.embed(["tea"], input_type="query")[0]))


@router.get("/settings/retrieval")
async def retrieval(request: Request, principal: _ADMIN, set: str | None = None) -> Response:  # noqa: A002
    """How the sets are searched where nothing is chosen, and what it costs."""
    service = service_of(request)
    names = visible_sets(service, principal)
    name = set if set in names else _last_set(request)
    facts = await service.run(_retrieval_facts, service, name, principal) if name else {}
    return await _settings(request, "retrieval", set=name, names=names, **facts)


def _retrieval_facts(service: Service, name: str, principal: Principal) -> dict[str, Any]:
    docs, chosen = service.view(name, principal), defaults_of(service, name)
    groups = [group.name for group in service.sets[name].status().groups if group.nodes] or [chosen["group"]]
    with suppress(LazyRAGError):
        sample = docs.get_nodes(chosen["group"], limit=50)
        mean = sum(len(node.text) for node in sample) / len(sample) if sample else 0
        return {"chosen": chosen, "groups": groups, "embed_keys": docs.embed_keys, "characters": int(mean)}
    return {"chosen": chosen, "groups": groups, "embed_keys": docs.embed_keys, "characters": 0}


@router.post("/settings/retrieval")
async def change_retrieval(request: Request, form: Form, principal: _ADMIN) -> Response:
    """Change the defaults of a set, or take the last change back."""
    _whole(principal)
    service, name = service_of(request), str(form.get("set", ""))
    docs = service.view(name, principal)
    values: dict[str, Any] = {}
    if not form.get("undo"):
        topk = str(form.get("topk", ""))
        if not (topk.isdecimal() and 1 <= int(topk) <= 100):
            raise ProblemError(422, f"topk must be an integer from 1 to 100; got {topk!a:.20}.")
        values = {"group": str(form.get("group")), "retriever": str(form.get("retriever")), "topk": int(topk)}
        await service.run(service.retriever, docs, values["group"], values["retriever"], None, None)
    await service.run(functools.partial(change_defaults, service, name, **values))
    notice = ("ok", translate(language_of(request), "set.undone" if form.get("undo") else "set.saved"))
    return redirect(request, "settings", "retrieval", notice=notice, set=name)


@router.get("/settings/network")
async def network(request: Request, principal: _ADMIN) -> Response:
    """How the service is reached, and which limits it has."""
    _whole(principal)
    service, access = service_of(request), _access_of(request)
    facts = {
        "address": str(request.base_url).rstrip("/"),
        "hosts": sorted(access.hosts),
        "is_open": not await service.run(access.is_closed),
        "requests_per_s": access.requests.rate,
        "upload_bytes": service.upload_bytes,
        "workers": service.workers,
        "state": service.state,
    }
    return await _settings(request, "network", facts=facts)


# Components, for tests


@router.get("/_gallery")
async def gallery(request: Request, _: Annotated[Principal, needs("read")]) -> Response:
    """All components in all states."""
    if os.environ.get("LAZYRAG_GALLERY") != "1":
        raise ProblemError(404, f"There is no page {request.url.path}.")
    return await render(request, "gallery.html", page="gallery")
