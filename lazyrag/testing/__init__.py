"""What tests of this package and of others' stores import: the store contracts.

A store's own test module subclasses a contract and says how a store is made::

    from lazyrag.testing import SegmentStoreContract

    class TestMyStore(SegmentStoreContract):
        def make_store(self):
            return MySegmentStore(...)

        def reopen_store(self, store):  # where the store declares to be persistent
            return MySegmentStore(...)  # another object over the same rows

Or it has no test module, and pytest's command line names the store (`lazyrag.testing.plugin`)::

    pytest --pyargs lazyrag.testing.suites --lazyrag-segment-store my_package.store:make_store

It needs pytest. `lazyrag.testing.differential`, which compares a store with a reference, needs Hypothesis as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyrag.testing.suites import SegmentStoreContract, VectorStoreContract

__all__ = ["SegmentStoreContract", "VectorStoreContract"]

# Imported on first use: the plug-in lies in this package, and every run of pytest imports it (decision 64).
_HOMES = {
    "SegmentStoreContract": "lazyrag.testing.suites",
    "VectorStoreContract": "lazyrag.testing.suites",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'lazyrag.testing' has no attribute {name!r}. Known: {', '.join(__all__)}."
        raise AttributeError(msg)
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
