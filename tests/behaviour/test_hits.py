"""Hits, their scores and their order are the recorded ones, on every store."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.behaviour import answers
from tests.behaviour.library import open_library
from tests.behaviour.queries import BLOCKS, FILTERS
from tests.behaviour.retrievers import CASES, RESTRICTED, SCOPES, Case, english
from tests.behaviour.store_kinds import STORES

ALL = range(len(BLOCKS))
QUICK = {"none": (13,), "range": (9,)}
"""Which blocks of queries the default run compares, by filter."""
FEW = {"none": (10,)}
SLICE = {"sqlite": 3, "split": 1, "chroma": 1, "milvus-lite": 1}
"""How many blocks of queries, for each filter, are compared on other stores than memory."""
FOLLOWED = ("bm25", "cosine", "cosine all keys", "sparse", "climbing", "hybrid rrf", "chain of all")


def _check(lib, name: str, blocks) -> None:
    case = CASES[name]
    if not answers.fits(lib, case):
        pytest.skip("this store keeps no sparse vectors, or ranks in its own way")
    for label in answers.filters_of(case):
        answers.check_hits(lib, name, label, blocks.get(label, ()))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_in_memory(library_on, name):
    """Some of the queries, under every filter."""
    _check(library_on("memory"), name, QUICK)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", CASES)
def test_in_a_store_file(library_on, name):
    """A few queries."""
    _check(library_on("sqlite"), name, FEW)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FOLLOWED)
def test_followers(library_on, folder_of, name):
    """Documents that only read a store file, which another one has open to write, give the same."""
    case = CASES[name]
    case.make(library_on("sqlite"))("tea")  # who only reads, builds nothing
    with ExitStack() as stack:
        following = open_library(
            stack, folder_of("sqlite"), STORES["sqlite"].conf_of, read_only=True
        )
        _check(following, name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_more_queries_in_memory(library_on, name):
    """Every query without a filter, a hundred under each filter."""
    _check(library_on("memory"), name, dict.fromkeys(FILTERS, range(5)) | {"none": ALL})


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("store", [name for name in SLICE if name in STORES])
def test_on_other_stores(library_on, store, name):
    """Queries under every filter on stores that are not memory."""
    _check(library_on(store), name, dict.fromkeys(FILTERS, range(SLICE[store])))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "store",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name == "memory" else pytest.mark.deep)
        for name in STORES
    ],
)
def test_all(library_on, store, name):
    """Every query under every filter on every store."""
    _check(library_on(store), name, dict.fromkeys(FILTERS, ALL))


@pytest.mark.sample(6)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted(library_on, name, scope):
    """What restricted Documents give; their scores are in a golden file of their own."""
    answers.check_restricted(library_on("memory"), name, scope, (0,))


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted_on_every_store(library_on, name, scope, store):
    """More queries of restricted Documents."""
    blocks = answers.RESTRICTED_BLOCKS if store == "memory" else (1,)
    answers.check_restricted(library_on(store), name, scope, blocks)


@pytest.mark.parametrize(
    "other",
    [
        lambda lib: english(lib, b=0.74),
        lambda lib: lambda query, filters: english(lib)(query, filters)[::-1],
    ],
    ids=["scores", "order"],
)
def test_a_difference_is_seen(library_on, monkeypatch, other):
    """In the hits that are there in full, and in the digests."""
    lib = library_on("memory")
    monkeypatch.setitem(CASES, "bm25", Case(other))
    with pytest.raises(AssertionError, match="then"):
        answers.check_hits(lib, "bm25", "none", ())
    monkeypatch.setattr(answers, "shown", lambda *_: [])
    with pytest.raises(AssertionError, match="block 3"):
        answers.check_hits(lib, "bm25", "none", (3,))
