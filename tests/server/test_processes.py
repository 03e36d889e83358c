"""The processes of ``lazyrag serve``, and ``Document(manager=True)``."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys

import httpx2 as httpx
import openpyxl
import pytest
from mcp import Client

from lazyrag import Document, connect
from lazyrag.errors import ConfigError
from lazyrag.server.jobs import Jobs
from tests.server.running import is_running, serving, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture
def folder(tmp_path):
    """A folder with one file."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "tea.txt").write_text("Green tea is brewed at eighty degrees.")
    return tmp_path / "files"


def found(url, name, query):
    """Paths of what a search over HTTP finds."""
    answer = httpx.post(f"{url}/api/v1/sets/{name}/search", json={"query": query}, timeout=60)
    assert answer.status_code == 200, answer.text
    return [hit["path"] for hit in answer.json()["hits"]]


def reader(folder):
    """A read-only Document of the served folder."""
    from lazyrag.server.core.config import open_set, read_config

    config = read_config(folder)
    [(name, chosen)] = config.sets.items()
    return open_set(name, chosen, config.server.state, write=False)


@pytest.mark.slow
def test_a_folder_is_served_and_followed(folder):
    """A folder needs no configuration: it is indexed, changes are synced, SIGTERM ends all
    processes with status 0.
    """
    with serving(folder, "--port", "0", "--processes", "2") as running:
        assert "no token" in running.process.stdout.readline()
        running.wait_until_ready()
        wait_for(lambda: len(running.children("web")) == 2, "the second web process")
        assert len(running.children("writer")) == 1
        assert running.get("/healthz").headers.get("server") is None
        (folder / "coffee.txt").write_text("Coffee is ground fine.")
        wait_for(lambda: found(running.url, "files", "coffee") == ["coffee.txt"], "the new file")
        children = running.children()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
        assert not [pid for pid in children if is_running(pid)]


@pytest.mark.slow
def test_tables_of_a_served_folder_are_built_on_first_use(folder):
    """By a query over HTTP or MCP, without a request of an administrator."""
    (folder / "prices.csv").write_text("tea,EUR\ngreen,4.5\nblack,3\n")
    book = openpyxl.Workbook()
    book.active.append(["tea", "kg"])
    book.active.append(["green", 12])
    book.save(folder / "stock.xlsx")
    query = "SELECT tea, eur * kg AS value FROM prices JOIN stock USING (tea)"

    async def ask(url, **tool):
        async with Client(f"{url}/mcp") as client:
            return (await client.call_tool(**tool)).structured_content

    with serving(folder, "--port", "0", "--processes", "2") as running:
        running.wait_until_ready()
        rows = {"name": "collect", "arguments": {"query": "green", "per": "row"}}
        assert asyncio.run(ask(running.url, **rows))["total"] == 2
        answer = httpx.post(
            f"{running.url}/api/v1/sets/files/sql", json={"query": query}, timeout=60
        )
        [row] = answer.json()["rows"]
        assert row["values"] == {"tea": "green", "value": 54.0}
        assert {location["path"] for location in row["locations"]} == {"prices.csv", "stock.xlsx"}
    assert "stores the tables of all documents" in running.log.read_text()


@pytest.mark.slow
def test_the_state_folder_is_no_part_of_the_served_folder(folder):
    """Tokens, answers and uploads are no documents, and for no other users of the machine, wherever
    they lie.
    """
    state = folder / "index" / "serve"
    state.mkdir(parents=True)
    state.chmod(0o755)
    with serving(folder, "--store", str(state.parent), "--port", "0") as running:
        running.wait_until_ready()
        asked = httpx.post(
            f"{running.url}/api/v1/sets/files/answers", json={"question": "tea"}, timeout=30
        )
        assert asked.status_code == 200, asked.text
        # the next sync would see all files
        (folder / "coffee.txt").write_text("Coffee is ground fine.")
        wait_for(lambda: found(running.url, "files", "coffee") == ["coffee.txt"], "the new file")
        documents = running.get("/api/v1/sets/files/documents").json()["documents"]
        assert [one["id"] for one in documents if one["id"].startswith("index/serve/")] == []
        assert running.get("/api/v1/sets/files/files/index/serve/access.db").status_code == 404
        shown = {path.name for path in state.iterdir() if path.stat().st_mode & 0o077}
        assert shown == {"lock", ".lazyragignore"}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["web", "writer"])
def test_a_process_that_dies_is_started_again(folder, role):
    """kill -9 of a process: another one takes its place and its work."""
    with serving(folder, "--port", "0", "--processes", "1") as running:
        running.wait_until_ready()
        [pid] = running.children(role)
        with reader(folder) as docs:
            os.kill(pid, signal.SIGKILL)
            job = Jobs(docs).submit("add_texts", {"texts": {"milk": "Oat milk foams."}})
            assert Jobs(docs).wait(job.id, timeout_s=30).state == "SUCCESS"
        running.wait_until_ready()
        assert running.children(role) != [pid]


@pytest.mark.slow
def test_children_end_with_their_supervisor(folder):
    """kill -9 of the supervisor: its children notice, end and free the port, and a new one starts
    there.
    """
    with serving(folder, "--port", "0", "--processes", "1") as running:
        running.wait_until_ready()
        children, port = running.children(), running.url.rpartition(":")[2]
        assert len(children) == 2
        running.process.kill()
        wait_for(
            lambda: not any(is_running(pid) for pid in children), "the end of the children", 10
        )
    with serving(folder, "--port", port, "--processes", "1") as running:
        running.wait_until_ready()


@pytest.mark.slow
def test_one_service_per_state_folder(folder):
    """A second service of a folder is refused with one line."""
    with serving(folder, "--port", "0", "--processes", "1"):
        command = [sys.executable, "-m", "lazyrag", "serve", str(folder), "--port", "0"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert second.stderr.startswith("Error: Another service uses")
    assert second.stderr.count("\n") == 1


@pytest.mark.slow
def test_other_addresses_need_a_token(folder):
    """A service that other machines could reach is refused as long as it has no token."""
    command = [
        sys.executable,
        "-m",
        "lazyrag",
        "serve",
        str(folder),
        "--port",
        "0",
        "--host",
        "192.0.2.1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "token" in done.stderr


@pytest.mark.slow
def test_a_configuration_that_cannot_work_ends_the_service(tmp_path, folder):
    """An error of a child process is printed once, and the exit status is 1."""
    config = tmp_path / "serve.toml"
    for line, name in (
        ("setup = 'no_such_module:define'", "no_such_module"),
        ("groups = ['Medium']", "MediumChunk"),
    ):
        config.write_text(f"[server]\nport = 0\n[sets.notes]\npath = 'files'\n{line}\n")
        command = [sys.executable, "-m", "lazyrag", "serve", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: sets.notes: ")
        assert name in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.share(3)
@pytest.mark.slow
def test_the_path_of_a_proxy(tmp_path, folder):
    """X-Forwarded-Prefix counts from configured proxies only, and the configured path takes
    precedence over it.
    """
    config = tmp_path / "serve.toml"
    server = "port = 0\nprocesses = 1\nlog = 'json'\n"
    config.write_text(f"[server]\n{server}proxies = ['127.0.0.1']\n[sets.notes]\npath = 'files'\n")
    forwarded = {"X-Forwarded-Prefix": "/rag"}
    with serving(folder, config=config) as running:
        assert running.get("/openapi.json", headers=forwarded).json()["servers"] == [
            {"url": "/rag"}
        ]
        assert running.get("/rag/healthz", headers=forwarded).status_code == 200
        assert '"process": "web"' in running.log.read_text()
    with serving(folder, "--port", "0", "--processes", "1", "--root-path", "/docs") as running:
        assert running.url.endswith("/docs")
        assert running.get("/healthz").status_code == 200
        assert running.get("/openapi.json", headers=forwarded).json()["servers"] == [
            {"url": "/docs"}
        ]


@pytest.mark.slow
def test_a_rule_that_widens_access_is_a_warning_at_the_start(tmp_path, folder):
    """In the log, which is on the terminal, with the set, whose name may have spaces; and after
    SIGHUP.
    """
    config = tmp_path / "serve.toml"
    labels = "labels = {'reports/*' = ['hr'], '*' = ['all']}"
    config.write_text(
        f"[server]\nport = 0\nprocesses = 1\n[sets.'my notes']\npath = 'files'\n{labels}\n"
    )
    said = "set my notes: A file that matches 'reports/*' and '*' has the labels of both: all, hr."
    with serving(folder, config=config) as running:
        assert running.log.read_text().count(said) == 1
        running.wait_until_ready()
        assert found(running.url, "my notes", "tea") == ["tea.txt"]
        with connect(running.url, name="my notes") as remote:
            assert [hit.path for hit in remote.search("tea")] == ["tea.txt"]
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: running.log.read_text().count(said) == 2, "the warning", 10)


@pytest.mark.slow
def test_reading_the_configuration_again(tmp_path, folder):
    """SIGHUP restarts the processes with the new configuration; one that cannot be read changes
    nothing.
    """
    config = tmp_path / "serve.toml"
    config.write_text("[server]\nport = 0\nprocesses = 1\n[sets.notes]\npath = 'files'\n")
    with serving(folder, config=config) as running:
        running.wait_until_ready()
        before = running.children()
        config.write_text("[server]\nprot = 0\n")
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "Unknown key server.prot" in running.log.read_text(), "the message", 10)
        assert running.children() == before
        config.write_text(
            "[server]\nport = 0\nprocesses = 1\nlog = 'json'\n[sets.notes]\npath = 'files'\n"
        )
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: not set(running.children()) & set(before), "other processes")
        running.wait_until_ready()
        wait_for(lambda: '"process": "web"' in running.log.read_text(), "the new format of the log")


def test_a_program_serves_its_document():
    """Document(manager=True) serves from the program, in-memory Documents with lambdas too, until
    it is closed.
    """
    docs = Document(manager=True)
    docs.create_node_group("shout", transform=lambda text: text.upper())
    assert httpx.get(f"{docs.status().url}/readyz", timeout=60).status_code == 200
    job = Jobs(docs).submit("add_texts", {"texts": {"tea": "Green tea."}})
    assert Jobs(docs).wait(job.id, timeout_s=30).state == "SUCCESS"
    assert [node.text for node in docs.get_nodes("shout")] == ["GREEN TEA."]
    assert found(docs.status().url, "default", "green") == ["tea"]
    url = docs.status().url
    docs.close()
    docs.close()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/healthz", timeout=60)


def test_the_port_of_a_program(tmp_path):
    """server= chooses the port; one that is taken is an error; without a service there is no
    URL.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}"):
            Document(manager=port)
    with Document(manager=port) as docs:
        assert docs.status().url == f"http://127.0.0.1:{port}"
    with Document() as docs:
        assert docs.status().url is None
    with pytest.raises(ConfigError, match="manager must be"):
        Document(manager="page")


def test_ui_opens_the_page(monkeypatch):
    """manager="ui" opens the service in the browser."""
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with Document(manager="ui") as docs:
        assert opened == [f"{docs.status().url}/"]


def test_a_large_request_head_is_refused():
    """A request whose head does not fit is refused, and others are answered."""
    with Document(manager=True) as docs:
        with socket.create_connection(
            ("127.0.0.1", int(docs.status().url.rpartition(":")[2])), timeout=10
        ) as large:
            large.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000)
            assert large.recv(100).startswith(b"HTTP/1.1 400")
        assert httpx.get(f"{docs.status().url}/healthz", timeout=60).status_code == 200
