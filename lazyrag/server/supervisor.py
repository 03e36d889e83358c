"""``lazyrag serve``: a supervisor, one writer process and web processes; and
`Document(manager=True)`, one program.

The supervisor imports what its processes need once, and forks them. A child process gets its
configuration as one line of JSON on its standard input, which stays open: its end means that the
supervisor has ended. The web processes share one listening socket, which the supervisor binds once.
"""

from __future__ import annotations

import functools
import gc
import ipaddress
import itertools
import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, IngestionError, LazyRAGError, ReadOnlyError, StoreError
from lazyrag.server import load
from lazyrag.server.core import config as configs
from lazyrag.server.core.config import Config, ServerConfig, SetConfig, make_state, open_set
from lazyrag.server.jobs import Jobs
from lazyrag.types import Keywords

if TYPE_CHECKING:
    import uvicorn

    from lazyrag.document import Document, IngestReport
    from lazyrag.server.core.service import Service

log = logging.getLogger("lazyrag.server")

_MESSAGE_BYTES = 32 << 10  # of a failed process
_BIND_WAIT_S = 10.0  # the processes of a killed supervisor may still hold the port
_STEADY_S = 10.0  # a process that ran this long starts again at once
_MAX_PAUSE_S = 5.0
_TICK_S = 0.05
_LASTS = 100  # tries to open a set, which are seconds
_RETRY_S = 0.1
_LOOK_S = 1.0
# Windows has no SIGHUP
_SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
_NO_STORE = "The writer process has not made the store of a set yet."


# The supervisor


def serve(
    path: Path, store: Path | None, options: Keywords, show: Callable[[str, bool], None]
) -> None:
    """Run the service until SIGINT or SIGTERM; SIGHUP reads the configuration again and restarts
    the processes.

    Args:
        path: A folder, or a configuration file; the modules that it names are found beside it.
        store: Folder of the index of a folder.
        options: Values that take precedence in ``[server]``.
        show: Called when the service is ready, with the URL and whether requests need a token.

    Raises:
        ConfigError: If the configuration cannot work, the address cannot be used, or the state
            folder is in use.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "lazyrag serve needs Linux or macOS. On Windows use WSL, or Document(manager=True)."
        )
    path = path.expanduser().absolute()
    load = functools.partial(configs.read_config, path, store=store, **options)
    config = load()
    if path.is_file():
        os.chdir(path.parent)
        sys.path.insert(0, str(path.parent))
    _log_to_stderr("supervisor", as_json=config.server.log == "json")
    if config.server.host not in ("127.0.0.1", "::1", "localhost"):
        from lazyrag.server.core.access import Access, check_bind

        check_bind(config.server.host, Access(config.server.state), path)
    wait_s = _BIND_WAIT_S / 5 if config.server.port is None else _BIND_WAIT_S
    with (
        _sole(config.server.state),
        listen(config.server.host, config.server.port, wait_s) as listener,
    ):
        _Supervisor(load, listener, show).run()


class _Child:
    """A process of the service that is started again when it ends."""

    def __init__(self, role: str, listener: socket.socket) -> None:
        self.role = role
        self.listener = listener
        self.pid = 0  # while it does not run
        self.pipe = self.stdin = -1
        self.is_ready = self.is_open = self.is_stopping = False
        self.refusal = ""
        self.began = self.due = 0.0
        self.failures = 0

    def start(self, config: Config) -> None:
        """Start the process, with the module path of this one."""
        self.pipe, ready = os.pipe()
        stdin_fd, self.stdin = os.pipe()
        os.set_blocking(self.pipe, False)
        self.is_ready = False
        self.is_stopping = False
        self.began = time.monotonic()
        # until the child has no handlers of the supervisor
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.pid = os.fork()
        if not self.pid:
            try:
                _run_forked(self.role, stdin_fd, ready, self.listener.fileno())
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(ready)
        os.close(stdin_fd)
        with suppress(BrokenPipeError):
            os.write(self.stdin, config.model_dump_json().encode() + b"\n")

    def stop(self) -> None:
        """Ask it to end."""
        if self.pid:
            self.is_stopping = True
            os.kill(self.pid, signal.SIGTERM)

    def check(self, now: float) -> None:
        """See whether it is ready, or has ended, after which it is due again."""
        if not self.pid:
            return
        has_ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        # a letter when it is ready, or why its configuration cannot work
        with suppress(BlockingIOError):
            message = os.read(self.pipe, _MESSAGE_BYTES).decode(errors="replace")
            self.is_ready = self.is_ready or message in ("+", "o")
            self.is_open = self.is_open or message == "o"
            self.refusal = message if len(message) > 1 else ""
        if has_ended:
            fails = not self.is_stopping and now - self.began < _STEADY_S
            self.failures = self.failures + 1 if fails else 0
            self.due = now + min(_RETRY_S * 2**self.failures, _MAX_PAUSE_S) if fails else now
            if not self.is_stopping and not self.refusal:
                log.warning("%s process %d ended (%d)", self.role, self.pid, has_ended.si_status)
            self.release()

    def release(self) -> None:
        """End it, and close its pipes."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.stdin)
            os.close(self.pipe)
            self.pid = 0
            self.is_ready = False


def _run_forked(role: str, stdin_fd: int, *fds: int) -> None:
    """Run a child process, which has its standard input and some other files of the supervisor.

    macOS: libraries of the system do not work after a fork, so that Python begins anew.
    """
    os.setsid()
    os.dup2(stdin_fd, 0)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if sys.platform == "darwin":
        for fd in fds:
            os.set_inheritable(fd, True)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from lazyrag.server.supervisor import child;"
            " child(*sys.argv[1:])"
        )
        os.execv(sys.executable, [sys.executable, "-c", code, role, *map(str, fds)])  # noqa: S606
    for low, high in itertools.pairwise((2, *sorted(fds), 1 << 16)):
        os.closerange(low + 1, high)
    with suppress(OSError):  # for ps
        Path("/proc/self/comm").write_text(f"lazyrag {role}", encoding="utf-8")
    child(role, *fds)


class _Supervisor:
    def __init__(
        self, load: Callable[[], Config], listener: socket.socket, show: Callable[[str, bool], None]
    ) -> None:
        self.config = load()
        self.load = load
        self.show = show
        self.url = url_of(listener, self.config.server.root_path)
        roles = ["web", "writer", *["web"] * (self.config.server.processes - 1)]
        self.children = [_Child(role, listener) for role in roles]
        self.signals: set[int] = set()
        self.deadline = 0.0  # of the shutdown
        self.refusal = ""
        self.is_shown = False
        _warn_of_labels(self.config)

    def run(self) -> None:
        """Start the processes, and start those again that end, until a signal, or until one finds
        an error.
        """
        for handled in _SIGNALS:
            signal.signal(handled, lambda number, _: self.signals.add(number))
        if sys.platform != "darwin":
            import lazyrag.server.app  # noqa: F401  it imports what the processes need

            gc.freeze()  # so that the processes share the memory
        try:
            while self._tend():
                time.sleep(_TICK_S)
        finally:
            for child in self.children:
                child.release()
        if self.refusal:
            raise ConfigError(self.refusal)

    def _tend(self) -> bool:
        """Handle signals and ended processes; return whether to go on."""
        now = time.monotonic()
        signals = self.signals
        self.signals = set()
        if signals & {signal.SIGINT, signal.SIGTERM}:
            if self.deadline:  # asked twice
                return False
            self._stop(now)
        elif signal.SIGHUP in signals and not self.deadline:
            self._reload()
        for child in self.children:
            child.check(now)
            if child.refusal and not self.deadline:
                self.refusal = child.refusal
                self._stop(now)
        if self.deadline:
            return now < self.deadline and any(child.pid for child in self.children)
        self._start_due(now)
        return True

    def _start_due(self, now: float) -> None:
        """Start the processes that do not run, and report when the service is ready."""
        ready = [child for child in self.children if child.is_ready]
        # the others would delay the first answer
        for child in self.children if ready else self.children[:2]:
            if not child.pid and now >= child.due:
                child.start(self.config)
        if not self.is_shown and {child.role for child in ready} == {"writer", "web"}:
            self.is_shown = True
            self.show(self.url, not any(child.is_open for child in self.children))

    def _stop(self, now: float) -> None:
        self.deadline = now + self.config.server.shutdown_s + 1
        for child in self.children:
            child.stop()

    def _reload(self) -> None:
        try:
            self.config = self.load()
        except LazyRAGError as exc:
            log.warning("The configuration is not read again. %s", exc)
            return
        _warn_of_labels(self.config)
        for child in self.children:  # the listening socket, which holds requests meanwhile, stays
            child.stop()


def _warn_of_labels(config: Config) -> None:
    """Log the rules that give documents more readers than one of them alone."""
    for name, chosen in config.sets.items():
        for overlap in chosen.label_overlaps():
            log.warning("set %s: %s", name, overlap)


@contextmanager
def _sole(state: Path) -> Iterator[None]:
    """Lock the state folder while the service runs.

    Raises:
        ConfigError: If another service has locked it, or it cannot be made.
    """
    import fcntl

    try:
        make_state(state)
        file = (state / "lock").open("w")
    except OSError as exc:
        raise ConfigError(
            f"The state folder {state} cannot be written ({exc.strerror}). Set server.state."
        ) from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise ConfigError(
                f"Another service uses {state}. Stop it, or set another server.state."
            ) from exc
        yield


def listen(host: str, port: int | None, wait_s: float = 0.0) -> socket.socket:
    """A listening socket; without a port at `DEFAULT_PORT`, or a free one if that is taken.

    Args:
        host: The address.
        port: The port; None for the default.
        wait_s: How long to wait for a port that is taken, in seconds.

    Raises:
        ConfigError: If the address cannot be used.
    """
    until = time.monotonic() + wait_s
    while True:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server(
                (host, configs.DEFAULT_PORT if port is None else port), family=family, backlog=2048
            )
        except OSError as exc:
            if time.monotonic() < until:
                time.sleep(_RETRY_S)
            elif port is None:
                port = 0
            else:
                raise ConfigError(
                    f"The service cannot listen on {host}, port {port}"
                    f" ({str(exc.strerror).partition(' (')[0]})."
                    " Choose another one, or a free one: --port 0, or Document(manager=True)."
                ) from exc
        else:
            # Its connections inherit it: asyncio sets it only where the protocol is named, and
            # without it responses wait 40 ms for the client's acknowledgement.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener


def url_of(listener: socket.socket, root_path: str = "") -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{root_path}"


# The child processes


def child(role: str, ready: str | int, listener: str | int) -> None:
    """Run a child process: the entry point of those that the supervisor starts."""
    pipe = int(ready)
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line.endswith(b"\n"):
        sys.exit(1)
    config = Config.model_validate_json(line)
    _log_to_stderr(role, as_json=config.server.log == "json")
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(
        target=_stop_at_end, args=(stop, config.server.shutdown_s), daemon=True
    ).start()
    run = (
        _write
        if role == "writer"
        else functools.partial(_answer, listener=socket.socket(fileno=int(listener)))
    )
    status = 1
    try:
        run(config, functools.partial(os.write, pipe), stop)
        status = 0
    except StoreError as exc:  # the next attempt may work
        log.error("%s", exc)  # noqa: TRY400
    except LazyRAGError as exc:
        os.write(pipe, str(exc).encode(errors="replace")[:_MESSAGE_BYTES])
    except Exception as exc:
        log.exception("the %s process ends by %s", role, type(exc).__name__)
    logging.shutdown()
    os._exit(status)  # a query in the pool, or a model, ends with the process


def _stop_at_end(stop: threading.Event, shutdown_s: float) -> None:
    """Stop when the supervisor has ended, however it did."""
    while os.read(0, 1):
        pass
    stop.set()
    time.sleep(shutdown_s)
    os._exit(1)


def _log_to_stderr(role: str, *, as_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonLines(role, validate=False)
        if as_json
        else logging.Formatter(f"%(asctime)s {role} %(message)s")
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    warnings.formatwarning = lambda message, *_, **__: str(message)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object; the formatter's own format is the role of the process."""
        line = {
            "time": record.created,
            "level": record.levelname,
            "process": self._fmt,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _write(config: Config, ready: Callable[[bytes], object], stop: threading.Event) -> None:
    """Run the jobs of all sets, and submit a sync when their files change."""
    from lazyrag.server.core.guard import delete_old_answers, worker_of
    from lazyrag.server.core.runtime_sets import RuntimeSets
    from lazyrag.server.core.sets import SetFollower

    os.nice(5)  # queries go first
    sys.setswitchinterval(
        0.001
    )  # short jobs beside a long one, too: each of their statements waits for the interpreter
    state = config.server.state
    with ExitStack() as stack:
        follower = SetFollower(RuntimeSets(state, config.models.embed), None, write=True)
        works = [
            functools.partial(follower.run, stop),
            functools.partial(delete_old_answers, state, stop),
        ]
        for name, chosen in config.sets.items():
            try:
                docs = stack.enter_context(open_set(name, chosen, state, write=True))
            except LazyRAGError as exc:
                raise type(exc)(f"sets.{name}: {exc}") from exc
            worker = worker_of(name, docs, state)
            works += [
                functools.partial(worker.run, stop),
                functools.partial(_follow, docs, chosen, stop),
            ]
        pool = ThreadPoolExecutor(len(works))
        running = [pool.submit(work) for work in works]
        ready(b"+")
        while not stop.wait(_RETRY_S) and not any(future.done() for future in running):
            pass
        stop.set()
        ended, late = wait(running, config.server.shutdown_s)
        if late:  # the job continues at the next start
            os._exit(1)
        for future in ended:
            future.result()  # raises what ended it


def _follow(docs: Document, chosen: SetConfig, stop: threading.Event) -> None:
    """Submit the jobs that build a set's groups and keep it in sync, until an event is set."""
    from lazyrag.document.document import indexer_of
    from lazyrag.ingest.dataset import WatchedFiles, file_events, poll_files
    from lazyrag.ingest.report import IngestReport
    from lazyrag.ingest.watch import Watcher

    build = chosen.build_arguments(docs)
    indexer = indexer_of(docs)
    watched = WatchedFiles.of(indexer.dataset, indexer.ledger.file.path)

    def sync() -> IngestReport:
        waiting = {job.kind: job for job in Jobs(docs).list(state="WAITING")}
        for kind, arguments in (("sync", None), ("activate_group", build)):
            job = waiting.get(kind) or Jobs(docs).submit(kind, arguments)
            while not (job.is_finished or stop.is_set()):
                job = Jobs(docs).wait(job.id, timeout_s=_LOOK_S)
            if job.error is not None and job.state == "FAILED":
                raise IngestionError(f"The job {kind} failed: {job.error.type}.")
        return IngestReport()

    def events(ended: threading.Event) -> Iterator[bool]:
        if not (chosen.watch and chosen.path):
            return iter(lambda: ended.wait(_LOOK_S), True)
        if find_spec("watchfiles") is None:
            return poll_files(indexer.dataset, watched, ended, 0.2, 10.0)
        return file_events(watched, ended, 0.2)

    with Watcher(
        indexer.where, sync, events, 0.5, 10.0, on_error=lambda exc: log.error("%s", exc)
    ).start():
        stop.wait()


def _answer(
    config: Config,
    ready: Callable[[bytes], object],
    stop: threading.Event,
    *,
    listener: socket.socket,
) -> None:
    """Answer requests from read-only Documents, and open those as soon as the writer has made their
    stores.
    """
    from lazyrag.server.core.access import Access
    from lazyrag.server.core.runtime_sets import RuntimeSets
    from lazyrag.server.core.service import Service
    from lazyrag.server.core.sets import SetFollower

    limits = config.limits
    state = config.server.state
    hosts = config.server.allowed_hosts
    texts = config.server.audit_texts
    access = Access(state, hosts=hosts, requests_per_s=limits.requests_per_s, texts=texts)
    service = Service(
        {}, state, workers=limits.threads, chat=configs.open_chat(config.models), access=access
    )
    service.upload_bytes = limits.upload_mb << 20
    service.pending = dict.fromkeys(config.sets, _NO_STORE)
    service.runtime_sets = RuntimeSets(state, config.models.embed)
    service.rerank = configs.open_rerank(config.models)
    service.groups = {name: chosen.groups[0] for name, chosen in config.sets.items()}
    service.shared_statistics = frozenset(
        name for name, chosen in config.sets.items() if chosen.statistics == "shared"
    )
    server = _server(service, config.server, limits.connections)
    opened = threading.Event()

    def open_sets() -> None:
        failures: Counter[str] = Counter()
        while service.pending and not stop.wait(_RETRY_S if opened.is_set() else _RETRY_S / 5):
            for name in tuple(service.pending):
                _open_pending(service, name, config.sets[name], failures)
            if config.sets.keys() <= service.sets.keys() and not opened.is_set():
                opened.set()
                ready(b"+" if access.is_closed() else b"o")

    def close() -> None:
        stop.wait()
        server.should_exit = True

    follow = functools.partial(SetFollower(service.runtime_sets, service, write=False).run, stop)
    for work in (open_sets, follow, close):
        threading.Thread(target=work, daemon=True).start()
    server.run(sockets=[listener])


def _open_pending(service: Service, name: str, chosen: SetConfig, failures: Counter[str]) -> None:
    """Open a set, unless it has no store yet; it is pending until its groups are built.

    An error is logged when it lasts: for one of the configuration the writer ends the service.
    """
    try:
        if name not in service.sets:
            service.sets[name] = open_set(name, chosen, service.state, write=False)
        for group in chosen.groups:
            service.sets[name].get_nodes(group, limit=0)
        del service.pending[name]
    except Exception as exc:
        # anyone may read it
        reason = f"A set cannot be opened ({type(exc).__name__}): see the log."
        if type(exc) in (StoreError, ReadOnlyError):  # there is no index yet
            reason = "The writer process is building a set." if name in service.sets else _NO_STORE
        else:
            failures[f"{name} {exc}"] += 1
        if failures[f"{name} {exc}"] == _LASTS:
            log.warning("set %s: %s", name, exc, exc_info=not isinstance(exc, LazyRAGError))
        service.pending[name] = reason


# uvicorn


def _server(service: Service, config: ServerConfig, connections: int) -> uvicorn.Server:
    import uvicorn
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from lazyrag.server.app import create_app
    from lazyrag.server.core.middleware import TimedProtocol

    app: Any = create_app(service, root_path=config.root_path)
    if config.proxies:
        app = _Prefixed(ProxyHeadersMiddleware(app, config.proxies))
    graceful_s = max(round(config.shutdown_s) - 1, 1)
    settings = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        limit_concurrency=connections,
        timeout_graceful_shutdown=graceful_s,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    return uvicorn.Server(settings)


class _Prefixed:
    """Takes the path of a proxy from ``X-Forwarded-Prefix``, of configured proxies only."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if (
            scope["type"] == "http"
            and scope.get("client")
            and scope["client"][0] in self.app.trusted_hosts
        ):
            prefix = (
                dict(scope["headers"]).get(b"x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
            )
            if re.fullmatch(configs.ROOT_PATH, prefix):
                scope["root_path"] = prefix
        await self.app(scope, receive, send)


# In one program


class HostedService:
    """The service of one Document, within the program that has it: see ``Document(manager=True)``.

    Args:
        docs: The Document; it is read, written and embeds queries in this program.
        port: Port on 127.0.0.1; None for a free one.
        opens: Whether to open the page in the browser.
    """

    def __init__(self, docs: Document, port: int | None = None, *, opens: bool = False) -> None:
        load("core.service", "Document(manager=True)")  # names the extra where a package is missing
        from lazyrag.server.core.access import Access
        from lazyrag.server.core.guard import delete_old_answers, worker_of
        from lazyrag.server.core.service import Service
        from lazyrag.server.core.sets import SetFollower, runtime_sets

        try:
            listener = listen("127.0.0.1", port or 0)
        except ConfigError:
            docs.close()
            raise
        self.url = url_of(listener)
        self._stop = threading.Event()
        self._undo = ExitStack()
        self._undo.enter_context(listener)
        file = docs.reader.indexer.ledger.file
        scratch = self._undo.enter_context(tempfile.TemporaryDirectory())
        state = Path(f"{file.path}.serve" if file.path and not file.read_only else scratch)
        state.mkdir(mode=0o700, exist_ok=True)
        access = Access(state)
        service = Service({docs.name: docs}, state, access=access)
        self._server = _server(service, ServerConfig(processes=1, shutdown_s=5), 1000)
        works: list[Callable[..., object]] = [
            functools.partial(self._server.run, sockets=[listener]),
            functools.partial(delete_old_answers, state, self._stop),
        ]
        if not file.read_only:
            follower = SetFollower(runtime_sets(service), service, write=True)
            works += [
                functools.partial(worker_of(docs.name, docs, state).run, self._stop),
                functools.partial(follower.run, self._stop),
            ]
        self._threads = [
            threading.Thread(target=work, name=f"lazyrag {docs.name}", daemon=True)
            for work in works
        ]
        for thread in self._threads:
            thread.start()
        if opens:
            import webbrowser

            # Where tokens are needed, the address has one that is valid once, behind the #, which
            # is sent to no server.
            fragment = ""
            if access.is_closed():
                _, once = access.create("admin", name="browser", expires="12h")
                fragment = f"#token={once}"
            webbrowser.open(f"{self.url}/{fragment}")

    def close(self) -> None:
        """Finish requests and hand back the running job. Idempotent."""
        self._stop.set()
        self._server.should_exit = True
        for thread in self._threads:
            thread.join()
        self._undo.close()
