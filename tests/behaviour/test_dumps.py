"""What a Document holds is what was recorded, on every store."""

from __future__ import annotations

import pytest

from tests.behaviour import dumps, goldens
from tests.behaviour.store_kinds import STORES

STORE = [
    name if name == "memory" else pytest.param(name, marks=pytest.mark.slow) for name in STORES
]


@pytest.mark.slow
@pytest.mark.parametrize("store", STORE)
def test_the_samples(library_on, store):
    """Nodes, terms, vectors, fingerprints: one golden dump for all stores."""
    goldens.check("dumps", dumps.library_rows(library_on(store)))


@pytest.mark.slow
@pytest.mark.parametrize("store", STORE)
def test_the_cookbook(tmp_path, store):
    """The same of the cookbook's corpus."""
    kind = STORES[store]
    goldens.check("dumps", dumps.cookbook_rows(tmp_path, kind.conf_of(tmp_path / "store")))
