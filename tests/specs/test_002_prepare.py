"""Spec 002, the prepare module: every test quotes the sentence it checks and says what is expected.

That RAGAS itself uses what it is given is checked with the real package by tests/with_ragas.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from lazyrag import GenerationResult, RAGInterface, RetrievalResult
from lazyrag.errors import ConfigError
from lazyrag.evaluation import Sample, prepare
from lazyrag.evaluation.interface import FIELDS

IDS = ["n1", "n2"]
CANDIDATES = ["80 degrees", "80"]
RECORDS = [
    {"user_input": "How hot?", "reference": "80 degrees", "reference_context_ids": ["n1"]},
    {"user_input": "q"},
]


class Whole(RAGInterface):
    """A system that gives ids and candidates."""

    def retrieve_with_metadata(self, query):
        """Two contexts with ids."""
        return RetrievalResult(["a", "b"], IDS)

    def generate_with_metadata(self, query, contexts):
        """Two candidates."""
        return GenerationResult(CANDIDATES[0], CANDIDATES)


class Rich(RAGInterface):
    """A system that gives everything."""

    def retrieve_with_metadata(self, query):
        """Two contexts with ids, scores and metadata."""
        return RetrievalResult(["a", "b"], IDS, [0.9, 0.1], {"seconds": 0.2})

    def generate_with_metadata(self, query, contexts):
        """An answer with confidence and metadata."""
        return GenerationResult("80", confidence=0.8, metadata={"tokens": 7})


class Bare(RAGInterface):
    """A system that gives texts alone."""

    def retrieve(self, query):
        """One context."""
        return ["a"]

    def generate(self, query, contexts):
        """The context."""
        return contexts[0]


def test_ids_are_handed_on():
    """「系统应当将context_ids传递给SingleTurnSample」: the very list, as retrieved_context_ids, in each
    sample.
    """
    samples = prepare(RECORDS, Whole())
    assert all(sample.retrieved_context_ids is IDS for sample in samples)
    assert samples[0].reference_context_ids == ["n1"]


def test_ragas_reads_the_ids():
    """「RAGAS应当能够使用这些ID进行评测」: its two metrics by ids run on such samples in an environment with
    it.
    """
    assert {"retrieved_context_ids", "reference_context_ids"} <= {
        *prepare(RECORDS, Whole())[0].to_dict()
    }


def test_candidates_are_handed_on():
    """「系统应当将multi_responses传递给SingleTurnSample」: the very list, in each sample."""
    assert all(sample.multi_responses is CANDIDATES for sample in prepare(RECORDS, Whole()))


def test_ragas_gets_the_candidates():
    """「RAGAS应当能够使用这些答案进行评测」: they are in its samples; the response, which metrics read, is one."""
    sample = prepare(RECORDS, Whole())[0]
    assert sample.response == sample.multi_responses[0]


def test_all_that_the_system_gives_is_carried():
    """「prepare模块应当能够利用新接口的额外信息」: scores, confidence and metadata are in the samples, too."""
    sample = prepare(RECORDS, Rich())[0]
    assert (sample.scores, sample.confidence) == ([0.9, 0.1], 0.8)
    assert (sample.retrieval_metadata, sample.generation_metadata) == (
        {"seconds": 0.2},
        {"tokens": 7},
    )


def test_records_may_be_samples_of_ragas():
    """「系统应当将context_ids传递给SingleTurnSample」: RAGAS's own samples and data sets are records; what an
    earlier system found and answered is replaced.
    """

    class SingleTurnSample:  # as RAGAS's
        def __init__(self, **fields):
            self.__dict__.update(fields)

        def to_dict(self):
            return dict(self.__dict__)

    samples = [
        SingleTurnSample(
            user_input="How hot?", reference="80", response="cold", retrieved_contexts=["x"]
        )
    ]
    for records in (
        samples,
        SimpleNamespace(samples=samples),
        [Sample("How hot?", reference="80", response="cold")],
    ):
        [sample] = prepare(records, Rich())
        assert (sample.user_input, sample.reference, sample.response) == ("How hot?", "80", "80")
        assert sample.retrieved_contexts == ["a", "b"]


def test_records_may_have_more_fields():
    """「元数据扩展性 … 系统应当接受任意键值对」: further fields stay with the sample; a typo warns."""
    [sample] = prepare([{"user_input": "q", "id": 7, "synthesizer_name": "single hop"}], Bare())
    assert sample.extra == {"id": 7, "synthesizer_name": "single hop"}
    assert prepare([sample], Bare())[0].extra == sample.extra
    own = dict.fromkeys(["query", "contexts", "query_type", "reference_answer", "persona"], "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prepare([{"user_input": "q", **own}], Bare())[0].extra == own
    for name in ("referense", "references"):
        with pytest.warns(UserWarning, match=f"{name}.*Did you mean 'reference'"):
            assert prepare([{"user_input": "q", name: "80"}], Bare())[0].extra == {name: "80"}


def test_ids_are_unique():
    """「系统应当能够返回每个上下文的唯一ID」: an id that occurs twice, of a context or of a record, is refused."""

    class Twice(Bare):
        def retrieve_with_metadata(self, query):
            return RetrievalResult(["a", "b"], ["n1", "n1"])

        retrieve = RAGInterface.retrieve

    with pytest.raises(
        ConfigError,
        match=r"retrieved_context_ids must be a list of distinct ids; got \['n1', 'n1'\]",
    ):
        prepare(RECORDS, Twice())
    with pytest.raises(ConfigError, match="reference_context_ids"):
        prepare([{"user_input": "q", "reference_context_ids": ["n1", "n1"]}], Bare())
    with pytest.raises(ConfigError, match=r"'id' of the records must be unique; got 7"):
        prepare([{"user_input": "q", "id": 7}, {"user_input": "r", "id": 7}], Bare())


def test_a_system_without_metadata_is_prepared():
    """「系统应当正常工作」: an old system gives samples with what it knows."""
    samples = prepare(RECORDS, Bare())
    assert [sample.retrieved_contexts for sample in samples] == [["a"], ["a"]]
    assert [sample.response for sample in samples] == ["a", "a"]
    assert samples[0].reference == "80 degrees"


@pytest.mark.parametrize(
    "field", ["retrieved_context_ids", "multi_responses", *FIELDS[8:], "reference_contexts"]
)
def test_what_is_not_given_is_none(field):
    """「可选字段应当为None」: not an empty list, which would say that nothing was found."""
    assert [getattr(sample, field) for sample in prepare(RECORDS, Bare())] == [None, None]
