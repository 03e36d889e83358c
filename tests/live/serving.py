"""Start the real servers of build/live, wait until they answer, and stop them with all their
children.

Each server is a process group of its own, on loopback. Milvus listens on all interfaces, whatever
its settings say: run it in a network namespace, as run.py does.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.live.install import LIVE, MILVUS_BINARIES, OPENSEARCH_JARS, python_of

START_S = 120.0
STOP_S = 10.0
_POLL_S = 0.1
_LOG = "server.log"
_LOG_END = 4000


@dataclass
class Server:
    """A running server.

    Args:
        name: What it is, for messages.
        folder: Where its data and its log lie.
        process: What was started: the leader of the process group.
        addresses: Where it answers: ``http://127.0.0.1:port``, one for each node. Filled once it
            does.
    """

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    addresses: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where it, or its first node, answers."""
        return self.addresses[0]

    @property
    def port(self) -> int:
        """The port of that address: give it to the server that is started next over the same
        folder.
        """
        return int(self.address.rpartition(":")[2])

    @property
    def log_end(self) -> str:
        """The last lines of what it has said."""
        return (self.folder / _LOG).read_text(encoding="utf-8", errors="replace")[-_LOG_END:]

    def kill(self) -> None:
        """End it as a power cut does: it gets no chance to write anything."""
        self._stop(signal.SIGKILL)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within, it takes connections and answers nothing."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self, sign: int = signal.SIGTERM) -> None:
        """End it and its children, by force where it takes long. TimeoutError if some of them stay
        all the same.
        """
        for one in (sign, signal.SIGKILL):
            self._stop(one)
            if not members(self.process.pid):
                return
        msg = f"{self.name}: the processes {members(self.process.pid)} cannot be ended."
        raise TimeoutError(msg)

    def _stop(self, sign: int) -> None:
        if members(self.process.pid):
            os.killpg(self.process.pid, sign)
        until = time.monotonic() + STOP_S
        # Waiting for the leader takes its entry from the table of processes; its children may take
        # longer.
        while (
            self.process.poll() is None or members(self.process.pid)
        ) and time.monotonic() < until:
            time.sleep(_POLL_S)


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state parent group ...", and a name may hold anything.
            state, _, its_group = (
                stat.read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()[:3]
            )
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


@contextmanager
def chroma_server(folder: Path, port: int | None = None) -> Iterator[Server]:
    """``chroma run`` over a folder.

    Args:
        folder: Where it keeps its data; it is made where it is not there. The same for all servers
            here.
        port: None for any that is free. The same for all servers here.
    """
    port = port or free_port()
    program = python_of("env").with_name("chroma")
    command = [
        program,
        "run",
        "--path",
        folder / "data",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with _running("chroma", folder, command) as server:
        _wait(server, lambda: [f"http://127.0.0.1:{port}/api/v2/heartbeat"])
        server.addresses = (f"http://127.0.0.1:{port}",)
        yield server


@contextmanager
def milvus_server(folder: Path, port: int | None = None) -> Iterator[Server]:
    """The full Milvus server over a folder."""
    port = port or free_port()
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    if not (data / "bin").exists():
        (data / "bin").symlink_to(MILVUS_BINARIES)
    command = [
        python_of("milvus-server").with_name("milvus-server"),
        "--data",
        data,
        "--proxy-port",
        str(port),
    ]
    # TERM takes its child half a minute.
    with _running("milvus", folder, command, stop_by=signal.SIGKILL) as server:
        _wait(server, lambda: _milvus_health(server))
        server.addresses = (f"http://127.0.0.1:{port}",)
        yield server


@contextmanager
def opensearch_server(
    folder: Path,
    port: int | None = None,
    *,
    nodes: int = 1,
    settings: Sequence[str] = (),
    plugin: str = "",
    cluster: str = "",
    joins: bool = False,
) -> Iterator[Server]:
    """OpenSearch over a folder, all nodes of a process in one JVM.

    Args:
        folder: See `chroma_server`.
        port: Of the first node.
        nodes: How many.
        settings: More lines of ``opensearch.yml``.
        plugin: The class of one.
        cluster: The name of a cluster of several processes.
        joins: Whether another process has made that cluster.
    """
    # The runner takes no port above 9299, and gives node n the one at base + n.
    base = (port or free_port(9200, 9299 - nodes)) - 1
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    is_alone = nodes == 1 and not cluster
    lines = "\n".join([*_opensearch_settings(is_alone, joins), *settings, ""])
    (conf / "opensearch.yml").write_text(lines, encoding="utf-8")
    options = ("-basePath", folder / "home", "-confPath", conf, "-numOfNode", str(nodes))
    more = ("-pluginTypes", plugin) if plugin else ()
    command = [
        *("java", "-Xms512m", "-Xmx512m", "-Dio.netty.noUnsafe=true", "-Dlog4j2.disable.jmx=true"),
        *("-cp", f"{OPENSEARCH_JARS}/*", "org.codelibs.opensearch.runner.OpenSearchRunner"),
        *(*options, "-baseHttpPort", str(base), "-clusterName", cluster or f"lazyrag-{base}"),
        *more,
    ]
    with _running("opensearch", folder, command) as server:
        _wait(
            server,
            lambda: [
                f"{one}{_OPENSEARCH_HEALTH}({nodes})"
                for one in _opensearch_addresses(server, nodes)
            ],
        )
        server.addresses = _opensearch_addresses(server, nodes)
        yield server


def knn_server(folder: Path, port: int | None = None) -> AbstractContextManager[Server]:
    """An OpenSearch that has the k-NN plug-in, with Lucene's engine: it lacks native libraries."""
    return opensearch_server(folder, port, plugin="org.opensearch.knn.plugin.KNNPlugin")


_POSTGRES_PROGRAMS = Path("/usr/lib/postgresql")


def find_postgres() -> Path:
    """The folder of PostgreSQL's programs: those of the newest version that Debian has
    installed.
    """
    found = sorted(_POSTGRES_PROGRAMS.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        msg = "PostgreSQL is not installed: apt-get install postgresql"
        raise FileNotFoundError(msg)
    return found[-1].parent


def pgvector_server(folder: Path, port: int | None = None) -> AbstractContextManager[Server]:
    """A PostgreSQL that has the extension pgvector."""
    [programs] = LIVE.glob("pgvector/lib/python*/site-packages/pgserver/pginstall/bin")
    return postgres_server(folder, port, programs)


@contextmanager
def postgres_server(
    folder: Path, port: int | None = None, programs: Path | None = None
) -> Iterator[Server]:
    """PostgreSQL over a folder, which does not wait for the disk; its address has the user and the
    password.

    Args:
        folder: See `chroma_server`.
        port: See `chroma_server`.
        programs: The folder of its programs; None for Debian's.
    """
    port, programs, data = port or free_port(), programs or find_postgres(), folder / "data"
    # it refuses to run as root
    owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    if not data.exists():
        data.mkdir(mode=0o700)
        password = folder / "password"
        password.write_text("s@crets", encoding="utf-8")
        if owner:
            shutil.chown(data, **owner)
        make = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "lazyrag",
            "-A",
            "scram-sha-256",
            "--pwfile",
            password,
            "-E",
            "UTF8",
        ]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd="/", **owner)
    settings = (
        "fsync=off",
        "full_page_writes=off",
        "max_connections=200",
        f"unix_socket_directories={data}",
    )
    options = [argument for one in settings for argument in ("-c", one)]
    command = [programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), *options]
    with _running("postgres", folder, command, stop_by=signal.SIGINT, **owner) as server:
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        until = time.monotonic() + START_S
        while subprocess.run(ready, check=False).returncode:
            if server.process.poll() is not None or time.monotonic() > until:
                msg = f"PostgreSQL does not answer. The end of its log:\n{server.log_end}"
                raise RuntimeError(msg)
            time.sleep(_POLL_S)
        server.addresses = (f"postgresql://lazyrag:s%40crets@127.0.0.1:{port}/postgres",)
        yield server


def free_port(first: int = 0, last: int = 0) -> int:
    """A port of loopback that nobody listens at: between two, or any."""
    for port in range(first, last + 1):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    msg = f"All ports from {first} to {last} are taken."
    raise OSError(msg)


@contextmanager
def _running(
    name: str,
    folder: Path,
    command: Sequence[str | Path],
    *,
    stop_by: int = signal.SIGTERM,
    **owner: str,
) -> Iterator[Server]:
    """A started program, which is gone afterwards whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOG).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **owner,
        )
    server = Server(name, folder, process)
    try:
        yield server
    finally:
        server.stop(stop_by)


def _wait(server: Server, pages: Callable[[], Sequence[str]]) -> None:
    """Until all pages answer with success; there are none as long as the server has not said where
    it is.
    """
    until = time.monotonic() + START_S
    while not (known := pages()) or not all(map(_answers, known)):
        if server.process.poll() is not None:
            msg = f"{server.name} ended with {server.process.returncode}. The end of its log:\n{server.log_end}"
            raise RuntimeError(msg)
        if time.monotonic() > until:
            msg = f"{server.name} does not answer after {START_S:g} s. The end of its log:\n{server.log_end}"
            raise TimeoutError(msg)
        time.sleep(_POLL_S)


def _answers(page: str) -> bool:
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def _milvus_health(server: Server) -> list[str]:
    """Its page of health is at the first free port from 9091: what it told its child."""
    for pid in members(server.process.pid):
        environment = Path(f"/proc/{pid}/environ")
        port = (
            re.search(rb"\0METRICS_PORT=(\d+)\0", environment.read_bytes())
            if environment.exists()
            else None
        )
        if port:
            return [f"http://127.0.0.1:{int(port[1])}/healthz"]
    return []


_OPENSEARCH_HEALTH = "/_cluster/health?timeout=1s&wait_for_status=yellow&wait_for_nodes=ge"


def _opensearch_settings(is_alone: bool, joins: bool) -> list[str]:
    lines = ["network.host: 127.0.0.1", "cluster.routing.allocation.disk.threshold_enabled: false"]
    if is_alone:
        return [*lines, "discovery.type: single-node"]
    # They take the first free ports from 9300 for talking to each other.
    seeds = ", ".join(f'"127.0.0.1:{port}"' for port in range(9300, 9306))
    lines.append(f"discovery.seed_hosts: [{seeds}]")
    if not joins:  # the runner calls the first node of each process so
        lines.append('cluster.initial_cluster_manager_nodes: ["Node 1"]')
    return lines


def _opensearch_addresses(server: Server, nodes: int) -> tuple[str, ...]:
    """Where its nodes answer, once all of them have said so."""
    said = (server.folder / _LOG).read_text(encoding="utf-8", errors="replace")
    # later nodes say it through the first one's logger
    ports = re.findall(r"HTTP Port: +(\d+)$", said, re.MULTILINE)
    return tuple(f"http://127.0.0.1:{port}" for port in ports) if len(ports) == nodes else ()
