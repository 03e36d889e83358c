"""A local web server of which every byte can be chosen, honest or hostile."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import urllib.parse
from typing import NamedTuple


class Request(NamedTuple):
    """What was asked."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self):
        """Without the query."""
        return self.target.partition("?")[0]

    @property
    def params(self):
        """The query's parameters; of those that stand twice, the last."""
        return dict(urllib.parse.parse_qsl(self.target.partition("?")[2]))

    @property
    def json(self):
        """The body."""
        return json.loads(self.body)


class Web:
    """Routes by path, and the requests that came, in order.

    A route is a text (a page), a tuple (status, headers, body), bytes (the answer as it goes over
    the wire), something else for JSON, or a function of the request that gives one of these or an
    iterator of bytes, sent one by one.
    """

    def __init__(self, tls=None):
        self.routes = {}
        self.requests = []
        self._stopped = threading.Event()
        web = self

        class Handler(socketserver.StreamRequestHandler):
            """One request for each connection."""

            def handle(self):
                """Read it and answer."""
                with contextlib.suppress(OSError):  # whoever asks may have had enough
                    web._handle(self.rfile, self.connection)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.request_queue_size = 64
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self):
        """End what is still being sent, too."""
        self._stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def paths(self):
        """What was asked for, robots.txt aside."""
        return [request.target for request in self.requests if request.path != "/robots.txt"]

    def _handle(self, reader, connection):
        method, target, _ = reader.readline().decode("latin-1").split(" ")
        headers = {}
        while line := reader.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = reader.read(int(headers.get("content-length", 0)))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        route = self.routes.get(request.path, (404, {}, b"not here"))
        answer = route(request) if callable(route) else route
        for piece in [_wire(answer)] if not hasattr(answer, "__next__") else answer:
            if self._stopped.is_set():
                return
            connection.sendall(piece)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)


def _wire(answer):
    if isinstance(answer, bytes):
        return answer
    if isinstance(answer, str):
        answer = (200, {"Content-Type": "text/html; charset=utf-8"}, answer.encode())
    if not isinstance(answer, tuple):
        answer = (200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
    status, headers, body = answer
    headers = {"Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode("latin-1") + body
