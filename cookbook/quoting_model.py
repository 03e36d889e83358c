"""A chat model that can only quote, behind an endpoint that speaks OpenAI's protocol, for offline
scripts.

It reads a context of `lazyrag.ContextBuilder` and answers with the sentences that share most terms
with the question, each with the number of its source. A real model works the same way.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lazyrag.text.analyzers import chinese_terms
from lazyrag.text.sentences import sentence_spans

HEADING = r"^\[(?:资料|Source )(\d+)\]"
END = r"^\[(?:资料|Source )\d+\]|^问题：|^Question: |\Z"
SOURCE = re.compile(rf"{HEADING}[^\n]*\n(.*?)(?={END})", re.MULTILINE | re.DOTALL)
QUESTION = re.compile(r"^(?:问题：|Question: )(.*)$", re.MULTILINE)
SENTENCES = 2


def quote(prompt: str) -> str:
    """Return the sentences that share most terms with the question, as a cited answer."""
    terms = set(chinese_terms(QUESTION.findall(prompt)[-1]))
    found = []
    for number, text in SOURCE.findall(prompt):
        for start, end in sentence_spans(text):
            sentence = " ".join(text[start:end].split())
            shared = len(terms & set(chinese_terms(sentence)))
            if shared and sentence.endswith((".", "。", "；")):  # no heading
                stop = ". " if sentence.endswith(".") else "。"
                found.append((-shared, len(found), f"{sentence.rstrip('.。；')} [{number}]{stop}"))
    return (
        "".join(sentence for *_, sentence in sorted(found)[:SENTENCES]).strip()
        or "The sources do not say."
    )


class Endpoint(BaseHTTPRequestHandler):
    """POST /v1/chat/completions, complete or streamed by words."""

    def do_POST(self) -> None:
        """Respond like OpenAI's endpoint."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = quote(request["messages"][-1]["content"])
        if request.get("stream"):
            pieces = [{"delta": {"content": piece}} for piece in re.findall(r"\s*\S{1,8}", text)]
            events = [*pieces, {"delta": {}, "finish_reason": "stop"}]
            lines = [json.dumps({"choices": [{"index": 0, **event}]}) for event in events]
            self._send(
                "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
            )
        else:
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
            self._send(
                "application/json", json.dumps({"model": request["model"], "choices": [choice]})
            )

    def _send(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Serve the endpoint; yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
