"""The sessions of docs/command-line.md, run again: every command prints what the page shows, within
80 columns.

python -m tests.unit.cli.test_sessions    rewrites the output of the pages; look at it before you
commit
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import huggingface_hub.constants
import pytest

from lazyrag.cli import terminal
from lazyrag.cli.commands import run
from tests.interpreter import ROOT

PAGES = [ROOT / "docs" / "command-line.md", ROOT / "docs" / "zh" / "command-line.md"]
_UNSET = ("LAZYRAG_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "HF_ENDPOINT", "XDG_CONFIG_HOME")
_SESSION = re.compile(r"```console\n(.*?)```", re.DOTALL)


def replayed(session: str) -> str:
    """A session with what its commands print now. Its commands are cd, echo into a file, and
    lazyrag, which may read a file.
    """
    shown: list[str] = []
    for line in session.splitlines():
        if not line.startswith("$ "):
            continue
        printed = io.StringIO()
        name, *arguments = shlex.split(line[2:])
        if name == "cd":
            os.chdir(Path(arguments[0]).expanduser())
        elif name == "echo":
            Path(arguments[2]).write_text(f"{arguments[0]}\n", encoding="utf-8")
        else:
            assert name == "lazyrag", line
            stdin = sys.stdin
            if "<" in arguments:
                *arguments, _, source = arguments
                stdin = io.StringIO(Path(source).read_text(encoding="utf-8"))
            with (
                mock.patch.object(sys, "stdin", stdin),
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
            ):
                run(arguments)
        shown += [line, *printed.getvalue().splitlines()]
    return "\n".join(shown) + "\n"


def replay(page: Path, home: Path) -> str:
    """A page with its sessions run in a home folder with the corpus of the cookbook as ~/tea."""
    shutil.copytree(ROOT / "cookbook" / "corpus", home / "tea")
    os.environ.update(HOME=str(home), COLUMNS="80", NO_COLOR="1")
    for name in _UNSET:
        os.environ.pop(name, None)
    huggingface_hub.constants.HF_HUB_CACHE = str(home / "hub")  # which the client reads once
    os.environ["MODELSCOPE_CACHE"] = str(home / "modelscope")
    os.chdir(home)
    text = page.read_text(encoding="utf-8")
    return _SESSION.sub(lambda found: f"```console\n{replayed(found[1])}```", text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder; the environment and the current folder are restored afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "COLUMNS", "NO_COLOR", "MODELSCOPE_CACHE", *_UNSET):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "")
    return tmp_path


@pytest.mark.sample(2)
@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_the_sessions_of_the_page_are_what_the_command_prints(page: Path, home: Path):
    """Character by character; see the module's docstring for how to renew them."""
    assert replay(page, home) == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_the_sessions_fit_80_columns(page: Path):
    """Wide characters count twice. Errors are one line, however long."""
    sessions = _SESSION.findall(page.read_text(encoding="utf-8"))
    assert len(sessions) > 5
    lines = [
        line
        for session in sessions
        for line in session.splitlines()
        if not line.startswith(("$", "Error:"))
    ]
    assert [line for line in lines if terminal.cells(line) > 80] == []


if __name__ == "__main__":
    for one in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            renewed = replay(one, Path(folder))
            os.chdir(ROOT)
        one.write_text(renewed, encoding="utf-8")
