"""Milvus Lite is killed or damaged: the next program goes on by itself, and rebuilds what cannot be
read.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.live.repair import check_damage, check_kills

# Milvus Lite 2 keeps one file, 3 a folder; 2 does not tell a damaged file from one that another
# program has open.
DAMAGES: list[tuple[str, bytes | None]] = (
    [("milvus.db", None)]
    if version("milvus-lite").startswith("2.")
    else [
        ("milvus.db", None),
        ("milvus.db/collections/lr_default_line_*/manifest.json", None),
        ("milvus.db/collections/lr_default_line_*/schema.json", b"\xa5" * 99),
    ]
)


@pytest.mark.slow
def test_kills_at_random_instants(tmp_path: Path) -> None:
    """A few; a hundred: ``python -m tests.crash.kills --store milvus``."""
    check_kills("milvus", 4, tmp_path)


@pytest.mark.parametrize(("name", "content"), DAMAGES)
def test_damaged_files_are_rebuilt(tmp_path: Path, name: str, content: bytes | None) -> None:
    """A file that is gone or garbage: the next sync rebuilds all from the ledger, and says so."""
    check_damage("milvus", name, content, tmp_path)
