"""What a test or a doctest registers, or defines on the Document class, is gone after it.

Here rather than in tests/, so that the examples in lazyrag/ are covered too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lazyrag import Document
from lazyrag.generation.refiners import refiners
from lazyrag.groups.node_group import NodeGroup, built_in_groups
from lazyrag.ingest.load_files import Readers
from lazyrag.loaders import loaders
from lazyrag.ranking.fusion import fusions
from lazyrag.retrieval import rerankers, similarities
from lazyrag.retrieval.similarity import indexes
from lazyrag.stores.protocol import segment_stores, vector_stores
from lazyrag.text.analyzers import analysers
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import transforms

REGISTRIES = (
    analysers,
    fusions,
    indexes,
    loaders,
    refiners,
    rerankers,
    segment_stores,
    similarities,
    token_counters,
    transforms,
    vector_stores,
)


def class_groups() -> dict[str, NodeGroup]:
    """The groups that every Document has."""
    return {name: Document._graph[name] for name in Document._graph}


BUILT_IN = class_groups()


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    with ExitStack() as stack:
        for registry in REGISTRIES:
            stack.enter_context(registry.isolated())
        yield
    Document._file_readers = Readers()
    if class_groups() != BUILT_IN:  # building it for each test would take a tenth of their time
        Document._graph = built_in_groups()
