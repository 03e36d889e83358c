"""The cookbook's scripts on stores, run on real ones."""

from __future__ import annotations

from pathlib import Path

from tests.interpreter import ROOT, python

_ALL_STORES = "07_from_a_laptop_to_servers.py"


def check_answers(folder: Path, *arguments: str) -> None:
    """Run the script on all stores twice in a folder: the second time finds everything there.

    Args:
        folder: Where it makes its files.
        arguments: Its own.
    """
    for added in ("20 added", "0 added, 20 unchanged"):
        last = [
            line
            for line in check_script(folder, _ALL_STORES, *arguments).splitlines()
            if "failed" in line
        ][-1]
        assert last.endswith(f": {added}, 0 failed, 0 skipped")


def check_script(folder: Path, name: str, *arguments: str) -> str:
    """Run a script in a folder: it compares its answers itself. What it says.

    Args:
        folder: Where it makes its files.
        name: Of the script in the cookbook.
        arguments: Its own.
    """
    done = python(str(ROOT / "cookbook" / name), *arguments, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
