"""The service as deploy/Dockerfile installs it: it embeds, asks, speaks MCP and reads a workbook.

    python tests/server/container.py PROGRAM

PROGRAM is `lazyrag` of another environment. Prints what holds; a check that fails raises.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import httpx2 as httpx
import openpyxl
from mcp import Client
from pytest_httpserver import HTTPServer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.model_server import KEY, Model  # noqa: E402  they are found in the root
from tests.server.running import serving, wait_for  # noqa: E402

CONFIG = """
[server]
port = 0
processes = 1

[models]
chat = "openai:chat"

[sets.notes]
path = "notes"
embed = "openai:embed"
"""


def main() -> int:
    """Start the program beside a model server, and use it."""
    program = os.path.abspath(sys.argv[1])  # noqa: PTH100  of a link, not its target
    with tempfile.TemporaryDirectory() as place, HTTPServer(threaded=True) as server:
        folder, model = Path(place), Model(server)
        (folder / "notes").mkdir()
        (folder / "serve.toml").write_text(CONFIG, encoding="utf-8")
        book = openpyxl.Workbook()
        for row in (("tea", "price"), ("sencha", 12)):
            book.active.append(row)
        book.save(folder / "notes" / "prices.xlsx")
        os.environ.update(OPENAI_BASE_URL=model.url, OPENAI_API_KEY=KEY)
        os.chdir(folder)  # the checkout is not on the program's path
        with serving(folder / "notes", config=folder / "serve.toml", program=[program]) as service:
            service.wait_until_ready()
            url = f"{service.url}/api/v1/sets/notes"
            query = {"query": "sencha", "group": "MediumChunk"}
            wait_for(
                lambda: "prices.xlsx" in httpx.post(f"{url}/search", json=query, timeout=60).text,
                "vectors",
            )
            answer = httpx.post(f"{url}/answers", json={"question": "What is sencha?"}, timeout=60)
            assert answer.json()["state"] == "SUCCESS", answer.text
            assert "12" in asyncio.run(_grep(f"{service.url}/mcp"))
            paths = {request.path for request in model.requests}
            assert paths == {"/v1/embeddings", "/v1/chat/completions"}, paths
    print("the service embeds, asks, speaks MCP and reads a workbook")
    return 0


async def _grep(url: str) -> str:
    async with Client(url) as client:
        return str(await client.call_tool("grep", {"text": "sencha"}))


if __name__ == "__main__":
    sys.exit(main())
