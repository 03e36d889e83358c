"""Documents whose vectors lie in a file of Milvus Lite answer as those in memory do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.live.documents import StoreDocuments


class TestInAFile(StoreDocuments):
    """Segments and ledger lie beside the file."""

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """Nothing but the vector store."""
        return {"vector_store": {"type": "milvus", "kwargs": {"uri": str(folder / "vectors.db")}}}
