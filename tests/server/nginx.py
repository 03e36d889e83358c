"""The service behind nginx of the distribution: under a sub-path, with nginx's own buffering.

    python tests/server/nginx.py

The configuration of nginx is the one of docs/service.md. Prints what holds; a check that fails
raises.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
from mcp import Client

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lazyrag.server.core.config import open_set, read_config  # noqa: E402  they are found in the root
from lazyrag.server.jobs import Jobs  # noqa: E402
from tests.server.running import serving, wait_for  # noqa: E402

MAIN = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[str]:
    """nginx before a service; the URL of its sub-path."""
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    location, *_ = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    location = location.replace("http://127.0.0.1:8400", upstream)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, port=port, location=location))
    process = subprocess.Popen(
        [shutil.which("nginx") or "nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    )
    url = f"http://127.0.0.1:{port}/rag"
    try:
        wait_for(lambda: httpx.get(f"{url}/healthz", timeout=60).status_code == 200, "nginx", 20)
        yield url
    finally:
        process.terminate()
        process.wait(60)


async def search_by_mcp(url: str, mode: str) -> list[dict[str, str]]:
    """Results of a search by the SDK's client."""
    async with Client(f"{url}/mcp", mode=mode) as client:
        found: list[dict[str, str]] = (
            await client.call_tool("search", {"query": "tea"})
        ).structured_content["results"]
        return found


def main() -> int:
    """Check the service behind nginx; return the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "files").mkdir()
        (root / "files" / "tea.txt").write_text("Green tea is brewed at eighty degrees.")
        (root / "serve.toml").write_text(
            "[server]\nport = 0\nprocesses = 1\nproxies = ['127.0.0.1']\n[sets.notes]\npath = 'files'\n"
        )
        config = read_config(root / "serve.toml")
        with (
            serving(root / "files", config=root / "serve.toml") as running,
            nginx(root, running.url) as url,
        ):
            running.wait_until_ready()
            assert httpx.get(f"{url}/openapi.json", timeout=60).json()["servers"] == [
                {"url": "/rag"}
            ]
            assert httpx.get(f"{url}/api/v1/sets/notes/documents", timeout=60).status_code == 200
            found = httpx.post(
                f"{url}/api/v1/sets/notes/search", json={"query": "green tea"}, timeout=60
            )
            assert found.status_code == 200, found.text
            assert "eighty degrees" in found.text
            print("requests pass under the sub-path")
            for mode in ("legacy", "2026-07-28"):
                [passage] = asyncio.run(search_by_mcp(url, mode))
                start, _, page = passage["url"].partition("/s/")
                assert start == "http://127.0.0.1/rag", passage  # of $host
                assert 'id="mark-1"' in httpx.get(f"{url}/s/{page}", timeout=60).text, passage
            print("MCP clients of both eras pass, and get addresses under the sub-path")
            [writer] = running.children("writer")
            with open_set("notes", config.sets["notes"], config.server.state, write=False) as docs:
                os.kill(writer, signal.SIGSTOP)  # the job waits until it goes on
                try:
                    job = Jobs(docs).submit("sync")
                    address = f"{url}/api/v1/sets/notes/jobs/{job.id}/events"
                    with httpx.stream("GET", address, timeout=60) as events:
                        lines = (line for line in events.iter_lines() if line.startswith("event:"))
                        assert next(lines) == "event: progress"  # would time out in a buffer
                        print("an event passes while its stream is open")
                        os.kill(writer, signal.SIGCONT)
                        assert [*lines][-1] == "event: done"
                        print("the stream ends with its job")
                finally:
                    os.kill(writer, signal.SIGCONT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
