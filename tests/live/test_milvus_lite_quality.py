"""Vectors in a file of Milvus Lite answer real questions as well as those in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.live.quality import StoreQuality


class TestInAFile(StoreQuality):
    """Segments and ledger lie beside the file."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """Nothing but the vector store."""
        return {"vector_store": {"type": "milvus", "kwargs": {"uri": str(folder / "vectors.db")}}}
