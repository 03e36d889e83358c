"""Type-check the code of the README, docs/ and cookbook/ with Pyright, as an editor shows it to
users.

    python tools/check_snippets.py [PAGE ...]

The Python blocks of a page become one file, in order and at their own lines, so that an error names
a line of the page. A block whose first line names a file (`# store.py`) is a module that later
blocks import. Exits with 1 if there are errors.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "snippets"
_BLOCK = re.compile(
    r"^( {0,3})(`{3,}|~{3,})\s*(?:python|py)\b[^\n]*\n(.*?)^ {0,3}\2\s*$", re.MULTILINE | re.DOTALL
)
_FILE_NAME = re.compile(r"# (\w+)\.py[ \t]*\n")
"""See `tests/docs/test_docs.py`, which runs the same blocks."""


def main(names: list[str]) -> int:
    """Write the files, run Pyright, print its errors by page and line."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = [ROOT / name for name in names] or [
        *sorted(ROOT.glob("README*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    files = {target: page for page in pages for target in write_page(page)}
    if not names:
        files |= {path: path for path in sorted((ROOT / "cookbook").glob("*.py"))}
    settings = {
        # Pyright ignores absolute paths.
        "include": [os.path.relpath(path, BUILD) for path in files],
        "typeCheckingMode": "basic",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(ROOT), str(ROOT / "cookbook")],
        "reportMissingImports": "warning",
        "reportMissingModuleSource": "none",
        "reportAttributeAccessIssue": "error",
    }
    config = BUILD / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    pyright = shutil.which(
        "pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    command = [
        *([pyright] if pyright else [sys.executable, "-m", "pyright"]),
        "--outputjson",
        "--project",
        str(config),
    ]
    found = json.loads(subprocess.run(command, capture_output=True, check=False, text=True).stdout)
    errors = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    for one in errors:
        page = files[Path(one["file"])].relative_to(ROOT)
        print(
            f"{page}:{one['range']['start']['line'] + 1}: {one['message']} [{one.get('rule', 'syntax')}]"
        )
    print(f"{len(errors)} errors in {len(files)} files")
    unread = len(files) - found["summary"]["filesAnalyzed"]
    if unread > 0:
        print(f"Pyright did not read {unread} of them")
    return bool(errors) or unread > 0


def write_page(page: Path) -> list[Path]:
    """Write the code of a page; return its files."""
    text = page.read_text(encoding="utf-8")
    folder = BUILD / "_".join(page.relative_to(ROOT).with_suffix("").parts).translate(
        {45: "_", 46: "_"}
    )
    folder.mkdir(parents=True)
    files: dict[str, list[str]] = {}
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(3))
        name = _FILE_NAME.match(block[3])
        rows = files.setdefault(name[1] if name else "page", [])
        rows += [""] * (line - len(rows))
        rows += block[3].split("\n")[:-1]
    for name, rows in files.items():
        (folder / f"{name}.py").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return [folder / f"{name}.py" for name in files]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
