"""Conformance tests for stores, for this package and for third parties. They need pytest.

A test module of a store subclasses a contract::

    from lazyrag.testing import SegmentStoreContract

    class TestMyStore(SegmentStoreContract):
        def make_store(self):
            return MySegmentStore(...)

        def reopen_store(self, store):  # for a store that declares to be persistent
            return MySegmentStore(...)  # another object over the same rows

Or the command line names the store (`lazyrag.testing.plugin`)::

    pytest -p lazyrag.testing.plugin --pyargs lazyrag.testing.suites --lazyrag-segment-store
    my_package.store:make_store
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("lazyrag.testing.suites")

from lazyrag.testing.suites import (  # noqa: E402  after the line above
    SegmentStoreContract,
    VectorStoreContract,
)

__all__ = ["SegmentStoreContract", "VectorStoreContract"]
