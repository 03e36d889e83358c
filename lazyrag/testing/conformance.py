"""The contracts of stores, as tests of the store that pytest's command line names. See `lazyrag.testing.plugin`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lazyrag.testing.plugin import named_store
from lazyrag.testing.segment_store import SegmentStoreContract
from lazyrag.testing.vector_store import VectorStoreContract


class TestSegmentStore(SegmentStoreContract):
    """The store of ``--lazyrag-segment-store``."""

    @pytest.fixture(autouse=True)
    def _named(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.named = named_store(pytestconfig, "segment", tmp_path)

    def make_store(self) -> Any:
        """An empty one."""
        return self.named.make()

    def reopen_store(self, store: object) -> Any:  # noqa: ARG002  the place tells which rows
        """As a later program makes it."""
        return self.named.reopen()

    def share_store(self, store: object) -> Any:  # noqa: ARG002
        """As another program makes it meanwhile."""
        return self.named.reopen()


class TestVectorStore(VectorStoreContract):
    """The store of ``--lazyrag-vector-store``."""

    @pytest.fixture(autouse=True)
    def _named(self, pytestconfig: pytest.Config, tmp_path: Path) -> None:
        self.named = named_store(pytestconfig, "vector", tmp_path)

    def make_store(self) -> Any:
        """An empty one."""
        return self.named.make()

    def reopen_store(self, store: object) -> Any:  # noqa: ARG002
        """As a later program makes it."""
        return self.named.reopen()

    def share_store(self, store: object) -> Any:  # noqa: ARG002
        """As another program makes it meanwhile."""
        return self.named.reopen()
