"""A local server that speaks OpenAI's protocol, and one that breaks off."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import traceback

from werkzeug import Response

KEY = "sk-a-key-that-nobody-may-see"
PATIENCE_S = 30.0  # how long a test waits for what should come at once


class Model:
    """Handlers for a threaded server of pytest-httpserver, with what they saw.

    Embeddings are (length of the text, 1); rerank scores are lengths; an answer repeats the
    question. ``faults`` are answered first, one for each request: functions of the request, or
    responses.
    """

    def __init__(self, server):
        server.clear()
        self.url = server.url_for("/v1")
        self.requests = []
        self.times = []
        self.faults = []
        self.most_at_once = 0
        self.hold_s = 0.0
        self._at_once = 0
        self._lock = threading.Lock()
        for path, answer in (
            ("/v1/embeddings", self.embeddings),
            ("/v1/chat/completions", self.chat),
            ("/v1/rerank", self.rerank),
        ):
            server.expect_request(path, method="POST").respond_with_handler(self._handler(answer))

    @property
    def bodies(self):
        """The JSON of every request, in order."""
        return [json.loads(request.get_data()) for request in self.requests]

    def _handler(self, answer):
        def handle(request):
            request.get_data()
            with self._lock:
                self.requests.append(request)
                self.times.append(time.monotonic())
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                fault = self.faults.pop(0) if self.faults else None
            try:
                time.sleep(self.hold_s)
                if fault is not None:
                    return (
                        fault(request)
                        if callable(fault) and not isinstance(fault, Response)
                        else fault
                    )
                return answer(request.get_json())
            finally:
                with self._lock:
                    self._at_once -= 1

        return handle

    def embeddings(self, body):
        """One vector for each text."""
        usage = {"prompt_tokens": 5 * len(body["input"]), "total_tokens": 5 * len(body["input"])}
        return answered(
            {
                "data": [item(index, text) for index, text in enumerate(body["input"])],
                "usage": usage,
            }
        )

    def chat(self, body):
        """Repeats the last message, in n candidates, or in a stream of words."""
        text = body["messages"][-1]["content"]
        if body.get("stream"):
            words = [piece(word) for word in text.split()]
            with_usage = body.get("stream_options", {}).get("include_usage")
            usage = (
                [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}]
                if with_usage
                else []
            )
            return streamed(*words, piece("", finish_reason="stop"), *usage, "[DONE]")
        message = {"role": "assistant", "content": text}
        choices = [
            {"index": n, "message": message, "finish_reason": "stop"}
            for n in range(body.get("n", 1))
        ]
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        return answered({"choices": choices, "model": "echo-1", "usage": usage})

    def rerank(self, body):
        """Longer is better."""
        scores = sorted(
            ((len(text), index) for index, text in enumerate(body["documents"])), reverse=True
        )
        results = [{"index": index, "relevance_score": float(score)} for score, index in scores]
        usage = {"total_tokens": 7 * len(results)}
        return answered({"results": results[: body["top_n"]], "usage": usage})


def item(index, text):
    """One embedding in an answer."""
    return {"index": index, "embedding": [float(len(text)), 1.0]}


def piece(text, index=0, **choice):
    """One event of a streamed answer."""
    return {"choices": [{"index": index, "delta": {"content": text}, **choice}]}


def answered(value, status=200, headers=None):
    """A response of JSON, or of the text as it is."""
    body = value if isinstance(value, str) else json.dumps(value)
    return Response(body, status, headers, content_type="application/json")


def failed(status, message="no", **headers):
    """A response that says what went wrong."""
    return answered(
        {"error": {"message": message}},
        status,
        {k.replace("_", "-"): v for k, v in headers.items()},
    )


def event(data):
    """An event of a stream, as bytes."""
    return f"data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n".encode()


def streamed(*events):
    """A response of server-sent events."""
    return Response(b"".join(map(event, events)), 200, content_type="text/event-stream")


class RawServer:
    """Sends bytes as they are to one connection after the other, and then cuts it or holds it open.

    Args:
        scripts: For each connection the bytes that answer it, or a function of the connection. The
            last one answers all that come after.
        hold: Whether connections stay open; ``gone`` is set when a client has closed one.
        again: Whether each connection takes further requests, with the same answer.
    """

    def __init__(self, *scripts, hold=False, again=False):
        self._scripts = scripts
        self._hold = hold
        self._again = again
        self._lock = threading.Lock()
        self.connections = 0
        self.open = 0  # of them
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self.requests = []
        self.asked = threading.Event()
        self.gone = threading.Event()

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        # where it is not connected, closing it wakes who waits for it
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                script = self._scripts[min(self.connections, len(self._scripts) - 1)]
                self.connections += 1
                with self._lock:
                    self.open += 1
                threading.Thread(
                    target=self._answer, args=(connection, script), daemon=True
                ).start()

    def _answer(self, connection, script):
        with connection:
            # a client that closes with unread data resets the connection
            with contextlib.suppress(OSError):
                self._answer_one(connection, script)
                while self._again and connection.recv(1, socket.MSG_PEEK):
                    self._answer_one(connection, script)
                while self._hold and connection.recv(4096):
                    pass
            if self._again or self._hold:
                self.gone.set()
        with self._lock:
            self.open -= 1

    def _answer_one(self, connection, script):
        self.requests.append(_request(connection))
        self.asked.set()
        if callable(script):
            script(connection)
        else:
            connection.sendall(script)


def _request(connection):
    """The head and the body of a request."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line[15:])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += _received(connection)
    return head, body


def _received(connection):
    """More bytes of a request; an OSError if the client has closed it."""
    if not (data := connection.recv(65536)):
        raise ConnectionResetError
    return data


def head(content_type="application/json", **headers):
    """The head of a successful answer, for a raw server."""
    lines = [b"HTTP/1.1 200 OK", b"Content-Type: " + content_type.encode()]
    lines += [f"{name.replace('_', '-')}: {value}".encode() for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def everything_shown(error):
    """All that a program may print of an error: texts, reprs and tracebacks of it and of what
    caused it.
    """
    shown, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        shown += [str(error), repr(error), repr(error.args)]
        shown += traceback.format_exception(error)
        error = error.__cause__ or error.__context__
    return "\n".join(shown)
