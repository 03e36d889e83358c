"""What the repair tests of embedded stores share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lazyrag.errors import IngestionWarning
from tests.crash import kills
from tests.crash.scenario import write_files


def check_kills(store: str, count: int, root: Path) -> None:
    """End programs at so many random instants: the next one goes on by itself."""
    tally = kills.kill(store, count, root)
    assert tally.survived == tally.kills == count, "\n".join(tally.problems)


def check_damage(store: str, name: str, content: bytes | None, root: Path) -> None:
    """Replace a file, or remove it for None: the next sync rebuilds all from the ledger, and says
    so.
    """
    write_files(root / "files")
    (root / "store").mkdir()
    request = {
        "store": store,
        "folder": str(root / "store"),
        "files": str(root / "files"),
        "state": "first",
    }
    before = kills.run({**request, "verify": True})
    assert (before["problems"], before["repaired"]) == ([], ())
    [path] = (root / "store").glob(name)
    if path.is_dir():
        shutil.rmtree(path)
    elif content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.warns(IngestionWarning, match="rebuil"):
        found = kills.run({**request, "verify": True})
    assert found["repaired"] == ("line by dense",)
    assert (found["answers"], found["problems"]) == (before["answers"], [])
