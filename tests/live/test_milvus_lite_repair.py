"""Milvus Lite is killed or damaged: the next program goes on by itself, and rebuilds what cannot be read."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from lazyrag.errors import IngestionWarning
from tests.crash import kills
from tests.crash.scenario import write_files

STORE = "milvus"


@pytest.mark.slow
def test_kills_at_random_instants(tmp_path: Path) -> None:
    """A few; a hundred: ``python -m tests.crash.kills --store milvus``."""
    tally = kills.kill(STORE, 4, tmp_path)
    assert tally.survived == tally.kills == 4, "\n".join(tally.problems)


# Milvus Lite 2 keeps one file, 3 a folder; 2 does not tell a damaged file from one that another program has open.
DAMAGES: list[tuple[str, bytes | None]] = (
    [("milvus.db", None)]
    if version("milvus-lite").startswith("2.")
    else [
        ("milvus.db", None),
        ("milvus.db/collections/lr_default_line_*/manifest.json", None),
        ("milvus.db/collections/lr_default_line_*/schema.json", b"\xa5" * 99),
    ]
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_rebuilt(tmp_path: Path, damage: tuple[str, bytes | None]) -> None:
    """A file that is gone or garbage: the next sync rebuilds all from the ledger, and says so."""
    name, content = damage
    write_files(tmp_path / "files")
    (tmp_path / "store").mkdir()
    request = {"store": STORE, "folder": str(tmp_path / "store"), "files": str(tmp_path / "files"), "state": "first"}
    before = kills.run({**request, "verify": True})
    assert (before["problems"], before["repaired"]) == ([], ())
    [path] = (tmp_path / "store").glob(name)
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
