"""The claims of benchmarks/data: the set keeps its shape, and its bounds can be met and missed."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.interpreter import ROOT

BENCHMARKS = ROOT / "benchmarks"
COUNTS = {
    "supported_question": 25,
    "supported_statement": 25,
    "number": 5,
    "unit": 4,
    "date": 5,
    "name": 5,
    "negation": 5,
    "opposite": 5,
    "addition": 4,
    "swap": 4,
    "same_passage": 13,
}
"""Claims of each kind, in each language and half."""


@pytest.fixture(name="script")
def import_script(monkeypatch: pytest.MonkeyPatch):
    """The module benchmarks/claims.py; its neighbours are unloaded after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import claims

    yield claims
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_each_half_has_the_same_kinds(script):
    """In both languages; no claim and no id comes twice, also not in the sets c and d."""
    every = script.read_claims()
    assert len({claim.claim for claim in every}) == len({claim.id for claim in every}) == len(every)
    claims = [claim for claim in every if claim.half in {"a", "b"}]
    counts = Counter((claim.language, claim.half, claim.kind) for claim in claims)
    assert counts == {
        (language, half, kind): count
        for language in ("en", "zh")
        for half in ("a", "b")
        for kind, count in COUNTS.items()
    }


def test_no_passage_and_no_document_is_in_both_halves(script):
    """Rules chosen on half a and set c have not seen the texts of half b and set d."""
    claims = script.read_claims()
    for field in ("passage", "source"):
        seen = {getattr(claim, field) for claim in claims if claim.half in {"a", "c"}}
        unseen = {getattr(claim, field) for claim in claims if claim.half in {"b", "d"}}
        assert seen.isdisjoint(unseen)


def test_altered_claims_name_the_altered_words(script):
    """`wrong` is in the claim, `right` in the passage; an addition has nothing to put right."""
    for claim in script.read_claims():
        assert bool(claim.wrong) is not claim.is_supported, claim.id
        assert claim.wrong in claim.claim, claim.id
        assert claim.right in claim.passage, claim.id
        assert bool(claim.right) is (not claim.is_supported and claim.kind != "addition"), claim.id
        assert claim.claim not in claim.passage, claim.id


def test_an_invented_name_or_date_is_not_in_the_passage(script):
    """Nor an added fact; the words of `same_passage` are, and belong to another thing."""
    for claim in script.read_claims():
        if claim.kind in {"name", "number", "unit", "date", "addition", "counterfactual"}:
            assert claim.wrong not in claim.passage, claim.id


def test_a_checker_that_knows_the_answers_meets_every_bound(script):
    """And one that calls everything supported misses the bounds of altered claims only."""
    claims = script.read_claims()
    altered = {claim.claim for claim in claims if not claim.is_supported}

    def knows(claim, passages):
        return "contradicted" if claim in altered else "supported"

    rows = script.rows_of(script.run(knows, claims))
    halves = {(claim.language, claim.half) for claim in claims}
    assert {(row["language"], row["half"]) for row in rows} == halves
    assert script.missed_bounds(rows) == []
    trusting = script.rows_of(script.run(lambda claim, passages: "supported", claims))
    assert len(script.missed_bounds(trusting)) == 36
    strict = script.rows_of(script.run(lambda claim, passages: "not_found", claims))
    assert all("above" in line for line in script.missed_bounds(strict))
    assert len(script.missed_bounds(strict)) == 18
