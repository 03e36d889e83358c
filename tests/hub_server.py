"""A local server with one model repository, in the layout of the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """Serves ``folder`` as the repository ``identifier``; records requests and can misbehave.

    Args:
        folder: The files of the repository; ONNX graphs are LFS files, served by a redirect.
        identifier: ``"organisation/name"``.
    """

    daemon_threads = True

    def __init__(self, folder: Path, identifier: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.identifier = identifier
        self.status: tuple[int, str] | None = None  # of every answer, with its X-Error-Code
        self.cut: dict[str, int] = {}  # of a file: how many transfers break off in the middle
        self.damaged: set[str] = set()
        self.slow: set[str] = set()  # never end
        self.transfers: list[tuple[str, str | None]] = []  # file, Range
        self.requests = 0
        self.started = threading.Event()

    @property
    def url(self) -> str:
        """Value of HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self) -> dict[str, bytes]:
        """The repository."""
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer from the API, the resolver or the store of large files."""
        hub = self.server
        hub.requests += 1
        path = unquote(urlsplit(self.path).path)
        if hub.status:
            status, code = hub.status
            self._send(status, b"", {"X-Error-Code": code} if code else {})
        elif path in {f"/api/models/{hub.identifier}{end}" for end in ("", "/revision/main")}:
            siblings = [self._entry(name, content) for name, content in hub.files().items()]
            found = {
                "id": hub.identifier,
                "sha": COMMIT,
                "siblings": siblings,
                "tags": [],
                "private": False,
            }
            self._send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})
        elif path.startswith(f"/{hub.identifier}/resolve/"):
            self._resolve(path.split("/resolve/")[1].partition("/")[2])
        elif path.startswith("/store/"):
            self._transfer(path.removeprefix("/store/"))
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _entry(self, name: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        entry: dict[str, Any] = {
            "rfilename": name,
            "size": len(content),
            "blobId": hashlib.sha256(content).hexdigest()[:40],
        }
        if name.endswith(".onnx"):
            entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
        return entry

    def _resolve(self, name: str) -> None:
        content = self.server.files().get(name)
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(content).hexdigest()[:40]}"'}
        if not name.endswith(".onnx"):
            self._transfer(name, headers)
            return
        headers["X-Linked-Size"] = str(len(content))
        headers["X-Linked-Etag"] = f'"{hashlib.sha256(content).hexdigest()}"'
        self._send(
            302,
            b"",
            {
                **headers,
                "Location": self.server.url.replace("127.0.0.1", "localhost") + f"/store/{name}",
            },
        )

    def _transfer(self, name: str, headers: dict[str, str] | None = None) -> None:
        hub, content, asked = self.server, self.server.files()[name], self.headers.get("Range")
        if self.command == "GET":
            hub.transfers.append((name, asked))
        if name in hub.damaged:
            content = bytes(len(content))
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        more = (
            {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if asked else {}
        )
        part = content[start:]
        sent = part
        if self.command == "GET" and (name in hub.slow or hub.cut.get(name, 0) > 0):
            hub.cut[name] = hub.cut.get(name, 0) - 1
            sent = part[: len(part) // 2]
        self._send(206 if asked else 200, sent, {**(headers or {}), **more}, length=len(part))
        if len(sent) < len(part):
            self.wfile.flush()
            if name in hub.slow:
                hub.started.set()
                threading.Event().wait(30)
            self.close_connection = True

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@contextmanager
def hub_server(folder: Path, identifier: str) -> Iterator[HubServer]:
    """A running server."""
    with HubServer(folder, identifier) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
