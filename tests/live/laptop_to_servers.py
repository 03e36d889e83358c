"""The cookbook's script on stores, run on a real one."""

from __future__ import annotations

from pathlib import Path

from tests.interpreter import ROOT, python

_SCRIPT = ROOT / "cookbook" / "07_from_a_laptop_to_servers.py"


def check_answers(folder: Path, *arguments: str) -> None:
    """Run it twice in a folder: it compares its answers itself, and the second time finds everything there.

    Args:
        folder: Where it makes its files.
        arguments: Its own.
    """
    for added in ("20 added", "0 added, 20 unchanged"):
        done = python(str(_SCRIPT), *arguments, cwd=folder)
        assert (done.returncode, done.stderr) == (0, "")
        last = [line for line in done.stdout.splitlines() if "failed" in line][-1]
        assert last.endswith(f": {added}, 0 failed, 0 skipped")
