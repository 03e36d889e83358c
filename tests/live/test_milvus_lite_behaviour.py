"""The recorded behaviour with vectors in a file of Milvus Lite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.live.behaviour import StoreBehaviour


class TestInAFile(StoreBehaviour):
    """Segments and ledger lie beside the file."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """Nothing but the vector store."""
        return {"vector_store": {"type": "milvus", "kwargs": {"uri": str(folder / "vectors.db")}}}
