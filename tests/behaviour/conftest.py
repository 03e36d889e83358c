"""The sample Documents, open once for each store."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

import pytest

from tests.behaviour.library import open_library, register
from tests.behaviour.store_kinds import STORES


@pytest.fixture(scope="package")
def folder_of(tmp_path_factory: pytest.TempPathFactory):
    """A function that gives the folder of the sample Documents on a store."""
    return cache(tmp_path_factory.mktemp)


@pytest.fixture(scope="package")
def library_on(folder_of):
    """A function that opens the sample Documents on a store, once."""
    opened = {}
    with ExitStack() as stack:

        def on(name: str):
            store = STORES[name]
            if name not in opened:
                opened[name] = open_library(
                    stack,
                    folder_of(name),
                    store.conf_of,
                    has_sparse=store.has_sparse,
                    is_map=store.is_map,
                )
            return opened[name]

        yield on


@pytest.fixture(autouse=True)
def _registered(_isolated: None):
    """The samples' similarities are there in every test."""
    register()
