"""Spec 002, the prepare module: every test quotes the sentence it checks and says what is expected.

That RAGAS itself uses what it is given is checked with the real package by tests/with_ragas.
"""

from __future__ import annotations

import pytest

from lazyrag import GenerationResult, RAGInterface, RetrievalResult
from lazyrag.evaluation import prepare
from lazyrag.evaluation.interface import FIELDS
from tests.interpreter import ROOT

IDS = ["n1", "n2"]
CANDIDATES = ["80 degrees", "80"]
RECORDS = [{"user_input": "How hot?", "reference": "80 degrees", "reference_context_ids": ["n1"]}, {"user_input": "q"}]
IN_RAGAS = (ROOT / "tests" / "with_ragas" / "test_ragas.py").read_text(encoding="utf-8")


class Whole(RAGInterface):
    """A system that gives ids and candidates."""

    def retrieve_with_metadata(self, query):
        """Two contexts with ids."""
        return RetrievalResult(["a", "b"], IDS)

    def generate_with_metadata(self, query, contexts):
        """Two candidates."""
        return GenerationResult(CANDIDATES[0], CANDIDATES)


class Bare(RAGInterface):
    """A system that gives texts alone."""

    def retrieve(self, query):
        """One context."""
        return ["a"]

    def generate(self, query, contexts):
        """The context."""
        return contexts[0]


def test_ids_are_handed_on():
    """「系统应当将context_ids传递给SingleTurnSample」: the very list, as retrieved_context_ids, in each sample."""
    samples = prepare(RECORDS, Whole())
    assert all(sample.retrieved_context_ids is IDS for sample in samples)
    assert samples[0].reference_context_ids == ["n1"]


def test_ragas_reads_the_ids():
    """「RAGAS应当能够使用这些ID进行评测」: its two metrics by ids run on such samples in an environment with it."""
    assert "def test_metrics_by_ids_use_our_ids(" in IN_RAGAS
    assert {"retrieved_context_ids", "reference_context_ids"} <= {*prepare(RECORDS, Whole())[0].to_dict()}


def test_candidates_are_handed_on():
    """「系统应当将multi_responses传递给SingleTurnSample」: the very list, in each sample."""
    assert all(sample.multi_responses is CANDIDATES for sample in prepare(RECORDS, Whole()))


def test_ragas_gets_the_candidates():
    """「RAGAS应当能够使用这些答案进行评测」: they are in its samples; the response, which metrics read, is one."""
    assert "def test_candidates_reach_ragas(" in IN_RAGAS
    sample = prepare(RECORDS, Whole())[0]
    assert sample.response == sample.multi_responses[0]


def test_a_system_without_metadata_is_prepared():
    """「系统应当正常工作」: an old system gives samples with what it knows."""
    samples = prepare(RECORDS, Bare())
    assert [sample.retrieved_contexts for sample in samples] == [["a"], ["a"]]
    assert [sample.response for sample in samples] == ["a", "a"]
    assert samples[0].reference == "80 degrees"


@pytest.mark.parametrize("field", ["retrieved_context_ids", "multi_responses", *FIELDS[8:], "reference_contexts"])
def test_what_is_not_given_is_none(field):
    """「可选字段应当为None」: not an empty list, which would say that nothing was found."""
    assert [getattr(sample, field) for sample in prepare(RECORDS, Bare())] == [None, None]
