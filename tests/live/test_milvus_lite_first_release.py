"""A store of the first release with vectors in Milvus Lite; written by version 3, which 2.5 does
not read.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from tests.behaviour.library import register
from tests.behaviour.test_stores import check_store

if not version("milvus-lite").startswith("2."):

    def test_a_store_of_the_first_release(tmp_path: Path) -> None:
        """It opens, holds what was recorded and answers as it did, and nothing is made anew."""
        register()
        check_store(tmp_path, "milvus-lite")
