"""Run the programs of other frameworks in docs/coming-from.md, each in its own environment. Needs a
package index.

python tests/coming_from.py                       all of them
python tests/coming_from.py haystack-ai           those whose packages contain this name
python tests/coming_from.py haystack-ai PYTHON    with an interpreter that has the packages
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "coming-from.md"
ENVIRONMENTS = ROOT / "build" / "coming-from"
PROGRAM = re.compile(r"^```python3\n(# pip install ([^\n]+)\n.*?)^```$", re.MULTILINE | re.DOTALL)
# LazyLLM's wheel has the merges of gpt2 under another name, and downloads them all the same.
FOR_LAZYLLM = r"""
import base64, functools, pathlib
import lazyllm, tiktoken

@functools.cache
def get_encoding(name):
    [path] = pathlib.Path(lazyllm.__file__).parent.rglob("r50k_base.tiktoken")
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, path.read_bytes().splitlines())}
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})

tiktoken.get_encoding = get_encoding
"""


def installed(packages: list[str]) -> Path:
    """The interpreter of an environment with some packages."""
    folder = ENVIRONMENTS / re.sub(r"\W.*", "", packages[0])
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def main(wanted: str = "", python: str = "") -> int:
    """Run the programs; the exit status is how many failed."""
    failed = 0
    for source, line in PROGRAM.findall(PAGE.read_text(encoding="utf-8")):
        packages = line.split()
        if not any(wanted in package for package in packages):
            continue
        program = FOR_LAZYLLM + source if packages[0].startswith("lazyllm") else source
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "cookbook" / "corpus", Path(folder, "cookbook", "corpus"))
            command = [python or str(installed(packages)), "-c", program]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        failed += done.returncode != 0
        print(f"{line}: {done.stderr if done.returncode else 'runs'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
