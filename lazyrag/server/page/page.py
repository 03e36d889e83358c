"""The web page: how its parts are rendered and guarded, and the list of sets. Other parts have
modules of their own.

A page calls the functions behind the API's routes, and renders one template; a fragment is a part
of the same page.
"""

from __future__ import annotations

import datetime as dt
import functools
import gzip
import hashlib
import hmac
import json
import mimetypes
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, unquote, urlencode

import anyio
import jinja2
from fastapi import APIRouter, Depends, Request
from markupsafe import Markup
from pydantic import Field, TypeAdapter
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from lazyrag._version import __version__
from lazyrag.document import Document
from lazyrag.read.rows import dataset_folder
from lazyrag.server.core.access import COOKIE
from lazyrag.server.core.names import file_name
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.service import Administrator, Reader, Service, service_of
from lazyrag.server.core.set_request import SetRequest
from lazyrag.server.jobs import Jobs
from lazyrag.text.sentences import resolve_language
from lazyrag.types import JsonObject

FOLDER = Path(__file__).parent
Facts: TypeAlias = dict[str, Any]
"""Variables of a template by name."""
LANGUAGES = {"en": "English", "zh": "中文"}
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_FRAGMENT = re.compile(r"fragment=([a-z_]+)")
_VISIT = "lazyrag_visit"
_SET = re.compile(r"(?:/.*)?/s/([^/]+)")
_NOTICE = "lazyrag_notice"
_Flash = TypeAdapter(
    Annotated[list[Annotated[str, Field(max_length=1000)]], Field(min_length=2, max_length=3)]
)
_YEAR_S = 365 * 86_400
_THEMES = ("light", "dark")

router = APIRouter(include_in_schema=False)


@functools.cache
def _static_files() -> tuple[str, Mapping[str, tuple[bytes, str]]]:
    """A stamp of all static files, and these by name, with their media types."""
    folder = FOLDER / "static"
    files = {
        path.relative_to(folder).as_posix(): (
            path.read_bytes(),
            mimetypes.guess_type(path.name)[0] or "text/plain",
        )
        for path in sorted(folder.rglob("*.*"))
    }
    return hashlib.sha256(repr(files).encode()).hexdigest()[:12], files


@router.get("/static/{stamp}/{name:path}")
async def static_file(request: Request, stamp: str, name: str) -> Response:
    """A style sheet, script or icon; kept for ever, as the address has a stamp of the content."""
    current, files = _static_files()
    if name not in files:
        raise ProblemError(404, f"There is no file {name!a}.")
    body, kind = files[name]
    lasting = "public, max-age=31536000, immutable" if stamp == current else "no-cache"
    return _compressed(request, Response(body, 200, {"Cache-Control": lasting}, kind))


def _compressed(request: Request, response: Response) -> Response:
    if "gzip" in request.headers.get("accept-encoding", "") and len(response.body) > 1000:
        response.body = gzip.compress(bytes(response.body), 5, mtime=0)
        response.headers.update(
            {"Content-Encoding": "gzip", "Content-Length": str(len(response.body))}
        )
    response.headers["Vary"] = ", ".join(
        filter(None, [response.headers.get("vary"), "Accept-Encoding"])
    )
    return response


# Texts and templates


@functools.cache
def catalogue(language: str) -> Mapping[str, str]:
    """The texts of a language by key."""
    texts: dict[str, str] = json.loads(
        (FOLDER / "locales" / f"{language}.json").read_text(encoding="utf-8")
    )
    return texts


def translate(language: str, key: str, /, **slots: Any) -> str:
    """A text; of ``key.one`` and ``key.other`` the one for the slot ``count``. An unknown key is
    its own text.
    """
    texts = catalogue(language)
    plural = f"{key}.{'one' if slots.get('count') == 1 else 'other'}"
    text = texts.get(plural) or texts.get(f"{key}.other") or texts.get(key, key)
    if not slots:
        return text
    values = {
        name: format_number(value) if isinstance(value, (int, float)) else value
        for name, value in slots.items()
    }
    return text.format_map(values)


def format_number(value: float | None) -> str:
    """``1,284``; "–" for None. Both languages group by thousands."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def format_size(value: float | None) -> str:
    """``7.6 KB``."""
    if value is None:
        return "–"
    units = ["B", "KB", "MB", "GB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        del units[0]
    digits = 1 if value < 10 and units[0] != "B" else 0
    return f"{value:,.{digits}f} {units[0]}"


def format_duration(language: str, seconds: float) -> str:
    """``1.4 s``."""
    if seconds >= 60:
        return translate(language, "time.min", n=f"{seconds // 60:.0f}", s=f"{seconds % 60:02.0f}")
    unit, value = ("s", seconds) if seconds >= 1 else ("ms", 1000 * seconds)
    return translate(language, f"time.{unit}", n=f"{value:.1f}" if value < 10 else f"{value:.0f}")


def format_when(language: str, value: dt.datetime | float | str | None) -> Markup | str:
    """A ``<time>``: relative up to three days, else the date."""
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        at = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
    else:
        at = dt.datetime.fromtimestamp(value, dt.timezone.utc)
    at = at.astimezone(dt.timezone.utc)
    ago = (dt.datetime.now(dt.timezone.utc) - at).total_seconds()
    text = f"{at:%Y-%m-%d}" if language == "zh" else f"{at.day} {at:%b %Y}"
    for unit, size, end in _UNITS:
        if abs(ago) < end:
            way = "ago" if ago > 0 else "ahead"
            key = f"time.{way}.{unit}" if size else "time.now"
            text = translate(language, key, count=max(1, int(abs(ago) // (size or 1))))
            break
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat("T", "seconds"), f"{at:%Y-%m-%d %H:%M:%S} UTC", text
    )


_UNITS = (("", 0, 45), ("minute", 60, 3600), ("hour", 3600, 86_400), ("day", 86_400, 4 * 86_400))


def format_place(language: str, location: str) -> str:
    """A node's location in the reader's language: the innermost heading, and pages, lines, rows or
    slides.
    """
    first = _FIRST.match(location)
    rest = location[first.end() :] if first else location
    match = _PLACE.fullmatch(rest)
    heading, kind, numbers = match.groups() if match else (rest, "", "")
    parts = [_format_unit(language, *first.groups())] if first else []
    parts += [heading.rpartition(" > ")[2]] if heading else []
    parts += [_format_unit(language, kind, numbers)] if kind else []
    return ("，" if language == "zh" else ", ").join(parts)


def _format_unit(language: str, kind: str, numbers: str) -> str:
    count = 1 if numbers.isdecimal() else 2
    return translate(language, f"place.{kind}", count=count, n=numbers.replace("-", "–"))


_FIRST = re.compile(r"(page|slide|sheet)s? ([\d-]+), ")
_PLACE = re.compile(r"(?:(.*), )?(page|line|row|slide|sheet)s? ([\d-]+)", re.DOTALL)


@functools.cache
def _environment(language: str) -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(FOLDER / "templates")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=format_number,
        quoted=functools.partial(json.dumps, ensure_ascii=False),
        listed=("、" if language == "zh" else ", ").join,
        size=format_size,
        when=functools.partial(format_when, language),
        duration=functools.partial(format_duration, language),
    )
    t = functools.partial(translate, language)

    def stage_name(name: str) -> str:
        return t(f"stage.{name}").removeprefix("stage.")

    def lang_of(text: str) -> str:
        return "zh-CN" if resolve_language("auto", text) == "zh" else "en"

    environment.globals.update(
        t=t,
        lang=language,
        languages=LANGUAGES,
        place=functools.partial(format_place, language),
        stage_name=stage_name,
        stage_is_vector=("cosine", "ip", "l2", "vector", "max_sim", "Retriever").__contains__,
        lang_of=lang_of,
    )
    return environment


def translator(request: Request) -> Callable[..., str]:
    """`translate` in the language of a request."""
    return functools.partial(translate, language_of(request))


def language_of(request: Request) -> str:
    """The language of a request: the query, the cookie, ``Accept-Language``."""
    accepted = request.headers.get("accept-language", "").split(",")
    candidates = [
        request.query_params.get("lang"),
        request.cookies.get("lazyrag_lang"),
        *(language.strip()[:2].lower() for language in accepted),
    ]
    return next((str(language) for language in candidates if language in LANGUAGES), "en")


def url_of(request: Request, *parts: str, **query: Any) -> str:
    """A URL of this page: ``url("s", set, "files", id, after=3)``, below the path of a proxy; None
    is left out.
    """
    path = quote("/".join(map(str, parts)).lstrip("/"), safe="/~:@!$&'()*,;=", errors="replace")
    pairs = [(name, value) for name, value in query.items() if value is not None and value != ""]
    url = f"{root_of(request)}/{path}"
    return f"{url}?{urlencode(pairs, doseq=True)}" if pairs else url


async def render(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page, or the fragment of it that the request names: ``fragments/NAME.html`` with the page's
    context.

    Args:
        request: The request.
        template: Name of the template.
        status: The HTTP status.
        context: Its variables, and ``page`` (the entry of the navigation), ``set`` (the name of the
            set), and ``fragments`` (names of the fragments that the page has).
    """
    return await service_of(request).run(_render, request, template, status, context)


async def render_set(call: SetRequest, template: str, **context: Any) -> Response:
    """A page of a set, see `render`."""
    return await render(call.request, template, set=call.name, **context)


def _render(request: Request, template: str, status: int, context: Facts) -> Response:
    is_get = request.method in ("GET", "HEAD")
    if is_get and request.query_params.keys() & {"lang", "theme"}:
        return _switched(request)
    requested = _FRAGMENT.search(request.headers.get("accept", ""))
    fragment = requested[1] if requested and requested[1] in context.get("fragments", ()) else None
    visit = _visit(request) or secrets.token_hex(16)
    notice = _notice_of(request)
    variables = {
        **_variables(request),
        "csrf": _csrf(visit),
        "flash": notice,
        "frame": {} if fragment else _frame(request, context.get("set")),
        **context,
    }
    language = language_of(request)
    file = f"fragments/{fragment}.html" if fragment else template
    text = _environment(language).get_template(file).render(variables)
    response = Response(text, status, media_type="text/html")
    headers = {
        "Content-Security-Policy": CSP,
        "Vary": "Accept, Accept-Language, Cookie",
        "Content-Language": language,
    }
    if is_get and status == 200:
        headers["ETag"] = f'W/"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(None, 304, headers)
    if fragment:
        headers["X-Robots-Tag"] = "noindex"
    elif notice:
        response.delete_cookie(_NOTICE, root_of(request) or "/")
    response.headers.update(headers)
    _remember(request, response, visit, context.get("set"))
    return _compressed(request, response)


def _variables(request: Request) -> Facts:
    """The variables that every template has; a page's context replaces some."""
    theme = request.cookies.get("lazyrag_theme")
    return {
        "page": "",
        "set": None,
        "request": request,
        "url": functools.partial(url_of, request),
        "here": functools.partial(_here, request),
        "static": functools.partial(url_of, request, "static", _static_files()[0]),
        "root": root_of(request),
        "theme": theme if theme in _THEMES else "",
        "principal": request.state.principal,
        "has_session": COOKIE in request.cookies,
        "version": __version__,
    }


def _notice_of(request: Request) -> Sequence[str]:
    """The notice that the last form has left."""
    with suppress(ValueError, RecursionError):  # any browser can send any cookie
        return _Flash.validate_json(unquote(request.cookies.get(_NOTICE, "[]")))
    return ()


def _remember(request: Request, response: Response, visit: str, name: str | None) -> None:
    """Set the cookies of a visit and of the last set."""
    if not _visit(request):
        set_cookie(request, response, _VISIT, visit, httponly=True)
    if name and request.cookies.get("lazyrag_set") != quote(name):
        set_cookie(request, response, "lazyrag_set", quote(name))


def root_of(request: Request) -> str:
    """The path of a proxy, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _visit(request: Request) -> str | None:
    """What the CSRF token is bound to: the session, or a random cookie."""
    return request.cookies.get(COOKIE) or request.cookies.get(_VISIT)


def set_cookie(request: Request, response: Response, name: str, value: str, **more: Any) -> None:
    """Set a cookie of the page, for a year unless ``max_age`` says otherwise."""
    more = {"max_age": _YEAR_S, "path": root_of(request) or "/", "samesite": "strict", **more}
    response.set_cookie(name, value, secure=request.url.scheme == "https", **more)


def _switched(request: Request) -> Response:
    """Back to the same page in another language or theme."""
    response = RedirectResponse(_here(request, lang=None, theme=None), 303)
    for name, choices in (("lang", LANGUAGES), ("theme", (*_THEMES, "system"))):
        if (chosen := request.query_params.get(name)) in choices:
            set_cookie(request, response, f"lazyrag_{name}", str(chosen))
    return response


def _here(request: Request, **query: Any) -> str:
    """The URL of this page with other values in its query; None takes one out."""
    current = {name: request.query_params.getlist(name) for name in request.query_params}
    return url_of(
        request, request.scope["path"].removeprefix(root_of(request)), **{**current, **query}
    )


def _frame(request: Request, name: str | None) -> Facts:
    """What the frame shows of a set: its failed documents and the running job."""
    service: Service = request.app.state.service
    frame: Facts = {"sets": [], "failed": 0, "job": None}
    principal: Principal = request.state.principal
    if name is None:
        return {**frame, "sets": service.names(principal)[:20]}
    with suppress(ProblemError):
        docs = service.view(name, principal)
        frame["failed"] = len(docs.documents(status="FAILED", limit=100))
        if principal.is_unrestricted:
            running = Jobs(service.sets[name]).list(state="WORKING", limit=1)
            frame["job"] = running[0] if running else None
    return frame


# Guards


def _csrf(visit: str) -> str:
    return hashlib.sha256(f"csrf {visit}".encode()).hexdigest()[:32]


def check_csrf(request: Request, token: str | None) -> None:
    """Check that a form comes from a page that this browser got: ``{{ csrf }}``, in a field, query
    or header.

    Raises:
        ProblemError: 403 if it does not.
    """
    visit = _visit(request)
    if visit is None or not hmac.compare_digest(_csrf(visit).encode(), (token or "").encode()):
        raise ProblemError(
            403,
            "The form is too old, or not from this page.",
            "Reload the page, and send it again.",
        )


async def _form(request: Request) -> FormData:
    token = request.headers.get("x-csrf-token") or request.query_params.get("csrf")
    form = await request.form(max_files=0)
    check_csrf(request, token or text_of(form, "csrf"))
    return form


Form = Annotated[FormData, Depends(_form)]
"""The fields of a form that changes something, checked for its CSRF token."""


def redirect(request: Request, *parts: str, notice: Sequence[str] = (), **query: Any) -> Response:
    """The answer to a form: 303 to a page.

    Args:
        request: The request.
        parts: The page, see `url_of`.
        notice: What the page shows above its content, once: the kind, a sentence, and perhaps a
            second one.
        query: Its query.
    """
    response = RedirectResponse(url_of(request, *parts, **query), 303)
    if notice:
        set_cookie(request, response, _NOTICE, quote(json.dumps(notice)), max_age=60, httponly=True)
    return response


def text_of(form: FormData, name: str) -> str:
    """The text in a field of a form; "" if it has none."""
    return str(form.get(name, ""))


def to_set(call: SetRequest, *parts: str, **query: Any) -> Response:
    """`redirect` to a page of the set of a request."""
    return redirect(call.request, "s", call.name, *parts, **query)


async def problem_page(request: Request, problem: ProblemError) -> Response:
    """A problem as a page; without a valid token the way to the log-in, and from there to the
    marked words.
    """
    if problem.status == 401 and request.method in ("GET", "HEAD"):
        query = request.query_params
        mark = query.get("cite") or ("1" if "uid" in query else "")
        target = _here(request).removeprefix(root_of(request))
        if mark:
            target += f"#mark-{quote(mark)}"
        return redirect(request, "login", next=target)
    t = translator(request)
    match = _SET.match(request.scope["path"])
    name = unquote(match[1]) if match else None
    is_visible = name in service_of(request).names(request.state.principal)
    title = t(f"error.title.{problem.status}")
    if title.startswith("error."):
        title = t("error.title")
    is_route = not problem.detail.startswith("There is no route ")
    response = await render(
        request,
        "error.html",
        problem.status,
        set=name if is_visible else None,
        title=title,
        detail=problem.detail if is_route else t("error.no_page"),
        remedy=problem.remedy if is_route else "",
        request_id=request.state.request_id,
        code=problem.status,
    )
    response.headers.update(problem.headers)
    return response


def price_of(text: Any) -> float:
    """The number in a field for a price; 0 if there is none."""
    return float(text) if str(text or "").replace(".", "", 1).isdecimal() else 0.0


def has_folder(call: SetRequest) -> bool:
    """Whether the principal sees the folder of a set, which may have one."""
    if not call.principal.is_unrestricted:
        return False
    return dataset_folder(call.unrestricted.reader) is not None


def split_labels(text: str) -> list[str]:
    """The labels in a field of a form, with commas of either language between them."""
    return [label.strip() for label in text.replace("，", ",").split(",") if label.strip()]


# Defaults of a set


def retrievers_of(docs: Document) -> list[str]:
    """The retrievers that a set can be searched with."""
    vector_retrievers = ["hybrid", "vector"] if docs.reader.embed_keys else []
    return ["default", *vector_retrievers, "bm25", "bm25_chinese"]


def defaults_of(service: Service, name: str) -> JsonObject:
    """How a set is searched where nothing is chosen: ``group``, ``retriever``, ``topk``; ``before``
    it was changed.
    """
    defaults = {"group": "MediumChunk", "retriever": "default", "topk": 6, "before": None}
    return defaults | notes_of(_defaults_file(service, name))


def change_defaults(service: Service, docs: Document, name: str, **values: Any) -> None:
    """Change the defaults of a set, or take the last change back: without values."""
    if values:
        # which checks them
        service.retriever(docs, values["group"], values["retriever"], None, None)
    now = defaults_of(service, name)
    new = now["before"] or now
    if values:
        new = {**now, **values, "before": {**now, "before": None}}
    note(_defaults_file(service, name), new)


def _defaults_file(service: Service, name: str) -> Path:
    return service.state / "defaults" / f"{file_name(name)}.json"


def notes_of(path: Path) -> JsonObject:
    """A JSON file of the state folder; empty until something is noted."""
    with suppress(FileNotFoundError):
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def note(path: Path, value: JsonObject) -> None:
    """Replace a JSON file of the state folder."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)


def models_file(service: Service) -> Path:
    """By model its ``price`` of a million tokens, and its last test: ``created``, ``text``,
    ``is_ok``.
    """
    return service.state / "models.json"


def page_of_nodes(
    docs: Document, group: str, offset: int, limit: int, ids: Sequence[str] | None = None
) -> Facts:
    """Some nodes of a group, perhaps of documents with some ids, and the offset of those that
    follow.
    """
    nodes = docs.get_nodes(group, document_ids=ids, limit=limit + 1, offset=offset)
    return {"nodes": nodes[:limit], "following": offset + limit if len(nodes) > limit else None}


# Sets


@router.get("/")
async def home(request: Request, principal: Reader) -> Response:
    """The last set that was used, the only one, or the list of sets."""
    names = service_of(request).names(principal)
    last = unquote(request.cookies.get("lazyrag_set", ""))
    if len(names) == 1 or last in names:
        return redirect(request, "s", last if last in names else names[0], "ask")
    return await list_sets(request, principal)


@router.get("/sets")
async def list_sets(request: Request, principal: Reader) -> Response:
    """The sets that the principal may read, with their numbers."""
    return await _sets(request, principal)


async def _sets(
    request: Request, principal: Principal, status: int = 200, **context: Any
) -> Response:
    service = service_of(request)
    rows = await service.run(
        lambda: [_set_row(service, name, principal) for name in service.names(principal)]
    )
    can_create = principal.is_administrator
    pending = sorted(set(service.pending) - set(service.sets)) if principal.is_unrestricted else []
    context = {"rows": rows, "pending": pending, "can_create": can_create, "error": None, **context}
    return await render(request, "sets.html", status, page="sets", **context)


@router.post("/sets")
async def new_set(request: Request, form: Form, principal: Administrator) -> Response:
    """Create a set, and go to its first steps."""
    from lazyrag.server.core.sets import create_set

    service = service_of(request)
    name = text_of(form, "name").strip()
    try:
        await service.run(create_set, service, name, principal)
    except ProblemError as problem:
        return await _sets(request, principal, problem.status, error=problem, name=name)
    with anyio.move_on_after(5):  # until this process has opened it
        while name not in service.sets:  # noqa: ASYNC110  another thread fills it
            await anyio.sleep(0.05)
    return redirect(request, "s", name, "ask")


def _set_row(service: Service, name: str, principal: Principal) -> Facts:
    docs = service.view(name, principal)
    row = {"name": name, "documents": None, "nodes": None, "failed": 0, "waiting": 0}
    if principal.is_unrestricted:
        status = docs.status()
        row["documents"] = status.documents
        row["nodes"] = sum(group.nodes for group in status.groups if group.nodes)
        row["failed"] = len(status.failed)
        row["waiting"] = status.waiting
    return row
