"""Call every route of the OpenAPI document with many inputs, right and wrong ones, and look at what
comes back.

    python tests/server/fuzz.py [--examples 20] [--seed 1]

No response may be a failure of the service (5xx) or differ from the OpenAPI document, and every
error must be a problem of RFC 9457, or below /v1 have OpenAI's form. Schemathesis is installed into
build/ci/schemathesis first, as it pins what others must not; where that is done already, no network
is needed. The service runs in a process of its own over a small set, without a chat model.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "ci" / "schemathesis"
PACKAGE = "schemathesis>=4.32,<5"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,unsupported_method"
)
HOOKS = '''
import json, os
import schemathesis

KNOWN = json.loads(os.environ["KNOWN_PARAMETERS"])

@schemathesis.check
def errors_are_problems(ctx, response, case):
    """Every error is a problem, with the id that its response carries; below /v1 it has OpenAI's form."""
    if response.status_code >= 400 and case.path.startswith("/v1/"):
        error = response.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"} and error["message"], error
    elif response.status_code >= 400:
        assert response.headers["content-type"] == ["application/problem+json"], response.headers
        body = response.json()
        assert body["status"] == response.status_code and body["detail"], body
        assert [body["request_id"]] == response.headers["x-request-id"], body

def known(value):
    """The value with names that exist, in most cases: of unknown ones every route says the same."""
    if isinstance(value, list):
        return [known(one) for one in value]
    if not isinstance(value, dict):
        return value
    chosen = hash(str(value)) % 4
    return {key: KNOWN[key] if chosen and key in KNOWN and one else known(one) for key, one in value.items()}

@schemathesis.hook
def map_path_parameters(context, path_parameters):
    own = {"token_id": "0" * 12} if "token_id" in (path_parameters or {}) else {}  # not that of the run
    return known(path_parameters) | own if own else known(path_parameters)

@schemathesis.hook
def map_query(context, query):
    return known(query)

@schemathesis.hook
def map_body(context, body):
    return known(body)
'''
TEXTS = {
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.\n\n## Storage\n\nKeep tea dry and dark.\n",
    "coffee.txt": "Coffee is ground fine for espresso and coarse for the press.",
    "茶.txt": "绿茶用八十度的水冲泡。红茶用开水。",
}


def serve(folder: Path, port: int) -> None:
    """Serve a small set with a token; the jobs that are submitted run in a thread."""
    import uvicorn

    from lazyrag import Document
    from lazyrag.server.app import create_app
    from lazyrag.server.core.access import Access
    from lazyrag.server.core.service import Service
    from lazyrag.server.core.sets import SetFollower, runtime_sets
    from lazyrag.server.jobs import Worker

    files = folder / "files"
    files.mkdir()
    for name, text in TEXTS.items():
        (files / name).write_text(text, encoding="utf-8")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}}
    with Document(files, store_conf=conf) as docs:
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        stop = threading.Event()
        threading.Thread(target=Worker(docs).run, args=(stop,), daemon=True).start()
        access = Access(folder / "state", requests_per_s=1e6)
        access.denials = access.requests  # many inputs are denied, and each is to be looked at
        (folder / "token").write_text(access.create("admin")[1], encoding="utf-8")
        service = Service({"notes": docs}, folder / "state", access=access)
        follower = SetFollower(runtime_sets(service), service, write=True)
        threading.Thread(target=follower.run, args=(stop,), daemon=True).start()
        app = create_app(service)
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
        stop.set()


def schemathesis() -> str:
    """The path of the program, installed if it is not there."""
    program = TOOL / "bin" / "schemathesis"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", TOOL], check=True)
        subprocess.run([TOOL / "bin" / "python", "-m", "pip", "install", "-q", PACKAGE], check=True)
    return str(program)


def main() -> int:
    """Run it; the status is that of schemathesis."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=20, help="inputs for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a regular expression of paths")
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(Path(given.serve[0]), int(given.serve[1]))
        return 0
    program = schemathesis()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        service = subprocess.Popen([sys.executable, __file__, "--serve", folder, str(port)])
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz", service)
            token = f"Bearer {Path(folder, 'token').read_text(encoding='utf-8')}"
            hooks = Path(folder) / "hooks"
            hooks.mkdir()
            (hooks / "service_hooks.py").write_text(HOOKS, encoding="utf-8")
            url = f"http://127.0.0.1:{port}"
            command = [
                program,
                "run",
                f"{url}/openapi.json",
                "--checks",
                f"{CHECKS},errors_are_problems",
            ]
            command += ["--max-examples", str(given.examples), "--seed", str(given.seed)]
            command += [
                "--request-timeout",
                "60",
                "--suppress-health-check",
                "all",
                "--no-color",
                "--generation-database",
                "none",
            ]
            command += ["--header", f"Authorization: {token}"]
            command += ["--include-path-regex", given.only] if given.only else []
            uid = get(f"{url}/api/v1/sets/notes/nodes", token)["nodes"][0]["uid"]
            question = {"question": "How hot is the water?", "texts": ["eighty degrees"]}
            golden = get(f"{url}/api/v1/sets/notes/golden", token, question)["id"]
            names = {"name": "notes", "document_id": "coffee.txt", "document": "coffee.txt"}
            names |= {
                "set": "notes",
                "uid": uid,
                "hit": uid,
                "path": "tea.md",
                "group": "MediumChunk",
            }
            store = get(f"{url}/v1/vector_stores", token)["data"][0]["id"]
            file = get(f"{url}/v1/vector_stores/{store}/files", token)["data"][0]["id"]
            names |= {"vector_store_id": store, "file_id": file}
            known = json.dumps({**names, "retriever": "bm25", "number": golden})
            more = {
                "SCHEMATHESIS_HOOKS": "service_hooks",
                "PYTHONPATH": str(hooks),
                "KNOWN_PARAMETERS": known,
            }
            more |= {"PYTHONHASHSEED": "0"}
            return subprocess.run(
                command, env={**os.environ, **more}, cwd=folder, check=False
            ).returncode
        finally:
            service.terminate()
            service.wait(timeout=60)


def get(url: str, token: str = "", body: Any = None) -> Any:
    """The JSON of a route."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": token} if token else {}
    request = Request(url, data, {"content-type": "application/json", **headers})  # noqa: S310  served here
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def wait_for(url: str, service: subprocess.Popen[bytes]) -> None:
    """Wait until the service answers."""
    for _ in range(300):
        if service.poll() is not None:
            sys.exit(f"The service ended with status {service.returncode}.")
        try:
            get(url)
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit("The service does not answer.")


if __name__ == "__main__":
    sys.exit(main())
