"""One Document three times: keyword search, vector search with a local model, and with a model
behind an endpoint.

    python cookbook/04_models.py [FOLDER]

FOLDER contains an ONNX embedding model, such as all-MiniLM-L6-v2; you can also set
LAZYRAG_EMBED_MODEL. Without it the second part is skipped. The endpoint speaks OpenAI's protocol
and is served by this script, with the same model or, without one, pairs of letters: nothing is
downloaded, nothing leaves the machine. Needs the extras onnx and openai.
"""

import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from embedding import letter_pairs

from lazyrag import CachedEmbedder, Document, HttpEmbedder, OnnxEmbedder, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How do I keep a young dog from chasing the hens?"
folder = (sys.argv[1:] or [os.environ.get("LAZYRAG_EMBED_MODEL", "")])[0]
local = OnnxEmbedder(folder) if folder else None


class Endpoint(BaseHTTPRequestHandler):
    """POST /v1/embeddings."""

    calls = 0

    def do_POST(self):
        """Respond like OpenAI's endpoint."""
        Endpoint.calls += 1
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        vectors = local.embed(texts) if local else map(letter_pairs, texts)
        rows = [
            {"index": index, "embedding": vector.tolist()} for index, vector in enumerate(vectors)
        ]
        body = json.dumps({"data": rows, "model": "small"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


def ask(title, embed=None):
    """Print the top 3 chunks: vector search with an embedder, keyword search without."""
    docs = Document(CORPUS, embed=embed)
    nodes = Retriever(docs, "MediumChunk", similarity="cosine" if embed else "bm25", topk=3)(
        QUESTION
    )
    print(f"\n{title}: {QUESTION}")
    for node in nodes:
        print(
            f"  {node.score:6.3f}  {node.path}  [{node.location}]  {' '.join(node.text.split())[:60]}..."
        )
    return [node.uid for node in nodes]


# 1. Keyword search: nothing to install.
ask("bm25")

with tempfile.TemporaryDirectory() as temporary:
    # 2. A local model on the CPU. The cache is one file; a cached vector is never computed again.
    if local:
        ask("ONNX", CachedEmbedder(local, Path(temporary, "embeddings.db")))
    else:
        print("\nONNX: skipped, pass a folder with a model.")

    # 3. A model behind an endpoint: vLLM, Ollama, text-embeddings-inference or a provider; here the
    # class above.
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever).start()
    with HttpEmbedder(f"http://127.0.0.1:{server.server_port}/v1", "small") as embedder:
        cached = CachedEmbedder(embedder, Path(temporary, "embeddings.db"))
        first = ask("endpoint", cached)
        paid = Endpoint.calls
        again = ask("endpoint, once more", cached)
        cached.close()
    server.shutdown()
    server.server_close()

print(f"\n{paid} calls for the first Document, {Endpoint.calls - paid} for the second.")
assert first == again
assert paid > 0
assert Endpoint.calls == paid
