"""The stores that the contracts test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

MakeStore: TypeAlias = Callable[[Path], Any]
"""Create a closed store. Use the path, or its last component as a name on a server. Must be empty
for a new path."""


KINDS = ("segment", "vector")


@dataclass(frozen=True)
class StoreFactory:
    """How stores of one kind are made.

    Args:
        make: Makes an empty store from an unused path.
        reopen: Makes another one over the rows of the first, from the same path.
    """

    make: MakeStore
    reopen: MakeStore


FACTORIES = pytest.StashKey[dict[str, StoreFactory]]()


def factory_of(config: pytest.Config, kind: str) -> StoreFactory:
    """The factory that the command line names; the test fails if the plug-in is not loaded."""
    if FACTORIES not in config.stash:
        pytest.fail(
            "lazyrag.testing.suites needs a plug-in. Run pytest with -p lazyrag.testing.plugin.",
            pytrace=False,
        )
    return config.stash[FACTORIES][kind]
