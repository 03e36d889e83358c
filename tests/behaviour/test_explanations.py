"""Explanations, traces and reasons are the recorded ones."""

from __future__ import annotations

import pytest

from tests.behaviour import answers, goldens
from tests.behaviour.retrievers import CASES
from tests.behaviour.store_kinds import STORES

EXPLAINED = [name for name, case in CASES.items() if case.explains]
OTHERS = [name for name in STORES if name != "memory"]
QUICK = (
    "bm25",
    "bm25 target section",
    "bm25 two Documents",
    "sparse",
    "climbing",
    "BM25Retriever in memory",
    "hybrid weighted",
    "MultiQuery",
    "Feedback",
    "chain AutoMerge",
    "chain of all",
)


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", QUICK)
def test_of_each_kind(library_on, name):
    """What `explain`, `trace` and `why_not` say of twenty queries."""
    goldens.check("explanations", answers.explanation_rows(library_on("memory"), [name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPLAINED)
def test_of_every_retriever(library_on, name):
    """The same, for all of them."""
    goldens.check("explanations", answers.explanation_rows(library_on("memory"), [name]))


@pytest.mark.slow
@pytest.mark.parametrize("store", OTHERS)
@pytest.mark.parametrize("name", QUICK)
def test_on_other_stores(library_on, name, store):
    """One of each kind on stores that are not memory."""
    lib = library_on(store)
    if not answers.fits(lib, CASES[name]):
        pytest.skip("this store keeps no sparse vectors, or ranks in its own way")
    goldens.check("explanations", answers.explanation_rows(lib, [name]))
