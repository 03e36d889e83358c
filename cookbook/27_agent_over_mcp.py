"""An agent over MCP: it searches a folder, reads around the passage, searches again, and cites what
it read.

`lazyrag mcp FOLDER` serves the tools, as for Claude, an IDE or any client of the Model Context
Protocol. Here the client is a loop of thirty lines; `decide` takes the place of a chat model that
calls tools. Needs the extra mcp.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import TextContent

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How often is the chimney of the dryer swept?"


def decide(question, steps):
    """The next tool with its arguments, or the answer. A chat model gets the tools and the steps so
    far.
    """
    if not steps:
        return "search", {"query": "dryer chimney", "limit": 3}
    if len(steps) == 1:  # a passage says something; what stands around it?
        best = steps[0][2]["results"][0]
        return "fetch", {"id": best["id"]}
    if len(steps) == 2:  # does anything else say it?
        return "grep", {"text": "Wei Guoqiang", "limit": 5}
    best, around = steps[0][2]["results"][0], steps[1][2]["text"]
    line = next(line for line in re.split(r"\.\s", around) if "chimney" in line)
    return "answer", {
        "text": f"{' '.join(line.split())} [1].",
        "sources": [f"{best['path']}, {best['location']}"],
    }


async def ask(client, question, max_steps=8):
    """Let the model call tools until it answers. Every result comes as structured content."""
    steps = []
    while len(steps) < max_steps:
        tool, arguments = decide(question, steps)
        if tool == "answer":
            return arguments, steps
        result = await client.call_tool(tool, arguments)
        if result.is_error:  # the text says what to do: a model tries again
            raise RuntimeError(result.content[0].text)
        steps.append((tool, arguments, result.structured_content))
        print(f"{tool} {arguments}")
    raise RuntimeError(f"No answer after {max_steps} steps.")


async def main(folder):
    """Start the server as a command, list its tools, ask."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "lazyrag", "mcp", str(folder)]
    )
    async with Client(command) as client:
        tools = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        print(
            *(
                f"{name}: {(description or '').splitlines()[0]}"
                for name, description in tools.items()
            ),
            sep="\n",
        )
        print(f"\n{QUESTION}")
        answer, steps = await ask(client, QUESTION)
        unknown = await client.call_tool("fetch", {"id": "nothing"})
        [mistake] = [part.text for part in unknown.content if isinstance(part, TextContent)]
        print(f"\n{answer['text']}\n[1] {answer['sources'][0]}\n\nA mistake: {mistake}")
        return tools, answer, steps, unknown


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(shutil.copytree(CORPUS, Path(temporary, "tea")))
    # The server only reads.
    subprocess.run(
        [sys.executable, "-m", "lazyrag", "index", str(folder)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    tools, answer, steps, unknown = asyncio.run(main(folder))

assert {"search", "fetch", "grep", "outline", "read"} <= set(tools)
assert "add_text" not in tools  # nothing is written unless you allow it
assert [tool for tool, *_ in steps] == ["search", "fetch", "grep"]
assert answer["sources"][0].startswith("workshop/machine-maintenance-manual.pdf")
assert "chimney" in answer["text"]
assert unknown.is_error
