"""Chroma is killed or damaged: the next program goes on by itself, and rebuilds what cannot be
read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.repair import check_damage, check_kills


@pytest.mark.slow
def test_kills_at_random_instants(tmp_path: Path) -> None:
    """A few; a hundred: ``python -m tests.crash.kills --store chroma``."""
    check_kills("chroma", 6, tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("chroma", None), ("chroma/chroma.sqlite3", None), ("chroma/chroma.sqlite3", b"\xa5" * 65536)],
)
def test_damaged_files_are_rebuilt(tmp_path: Path, name: str, content: bytes | None) -> None:
    """A file that is gone or garbage: the next sync rebuilds all from the ledger, and says so."""
    check_damage("chroma", name, content, tmp_path)
