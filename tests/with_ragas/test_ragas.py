"""Samples beside RAGAS's own: the same fields, and its metrics that need no model, on what our
retrievers find.

Needs the extra ragas: ``pytest tests/with_ragas``. Nothing is fetched.
"""

from __future__ import annotations

import dataclasses
import math
import warnings

import pytest
from ragas import EvaluationDataset, SingleTurnSample

from lazyrag import Document, GenerationResult, RAGInterface, RetrievalResult, Retriever
from lazyrag.evaluation import RetrieverRAG, Sample, evaluate, prepare, to_ragas_dataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some of them will move in ragas 1.0
    from ragas.metrics import (
        ExactMatch,
        IDBasedContextPrecision,
        IDBasedContextRecall,
        NonLLMContextPrecisionWithReference,
        NonLLMContextRecall,
        NonLLMStringSimilarity,
    )

# of ragas and what it is made of, which are not ours to quieten
pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = {
    "green.txt": "Steep green tea at 80 degrees for two minutes.",
    "black.txt": "Steep black tea in boiling water for four minutes.",
    "绿茶.txt": "绿茶用八十度的水冲泡两分钟。",
    "coffee.txt": "Roast coffee at 200 degrees.",
}


@pytest.fixture
def docs():
    """Four documents, each of one chunk."""
    docs = Document()
    docs.add_texts(TEXTS)
    return docs


@pytest.fixture
def records(docs):
    """Questions with the ids, the texts and the answers that are expected."""
    uids = {node.path: node.uid for node in docs.get_nodes("FineChunk")}

    def record(question, path, reference):
        return {
            "user_input": question,
            "reference": reference,
            "reference_contexts": [TEXTS[path]],
            "reference_context_ids": [uids[path]],
        }

    return [
        record("How hot is the water for green tea?", "green.txt", "80 degrees"),
        record("How long is black tea steeped?", "black.txt", "four minutes"),
        record("绿茶泡多久？", "绿茶.txt", "两分钟"),
    ]


@pytest.fixture
def rag(docs):
    """Two contexts for each question, and always the same answer."""
    return RetrieverRAG(
        Retriever(docs, "FineChunk", "bm25_chinese", topk=2), lambda text: "80 degrees"
    )


def test_the_fields_are_those_of_ragas():
    """Twelve names, in the same order, all of them optional."""
    assert [one.name for one in dataclasses.fields(Sample)][:12] == list(
        SingleTurnSample.model_fields
    )
    assert not any(one.is_required() for one in SingleTurnSample.model_fields.values())


def test_every_field_goes_through():
    """What we hold is what RAGAS holds, and both write the same dict."""
    sample = Sample(
        "q",
        ["a"],
        ["b"],
        ["1", 2],
        ["3"],
        "x",
        ["x", "y"],
        "y",
        {"score1": "bad"},
        "a guest",
        "formal",
        "short",
    )
    assert None not in dataclasses.astuple(sample)[:12]
    assert sample.to_ragas().to_dict() == sample.to_dict()
    assert set(sample.to_ragas().get_features()) == set(sample.to_dict())


def test_what_is_unknown_stays_unknown():
    """None in ours is None in RAGAS's; it is no feature there."""
    converted = Sample("q", retrieved_contexts=[]).to_ragas()
    assert converted.retrieved_context_ids is None
    assert converted.multi_responses is None
    assert converted.get_features() == ["user_input", "retrieved_contexts"]


def test_metrics_by_ids_use_our_ids(records, rag):
    """RAGAS's precision and recall by ids are what evaluate says of the same ids."""
    samples = prepare(records, rag)
    precision = [
        IDBasedContextPrecision().single_turn_score(sample.to_ragas()) for sample in samples
    ]
    recall = [IDBasedContextRecall().single_turn_score(sample.to_ragas()) for sample in samples]
    run = {
        sample.user_input: [(uid, 0.0) for uid in sample.retrieved_context_ids]
        for sample in samples
    }
    judgements = {
        one["user_input"]: dict.fromkeys(one["reference_context_ids"], 1) for one in records
    }
    ours = evaluate(run, judgements, ["recall", "precision@2"])
    assert recall == list(ours.values["recall"].values()) == [1.0, 1.0, 1.0]
    found = [len(sample.retrieved_context_ids) for sample in samples]
    assert [value * count / 2 for value, count in zip(precision, found, strict=True)] == list(
        ours.values["precision@2"].values()
    )


def test_ids_that_are_expected_and_not_found_lower_recall(records, rag):
    """The metric reads our ids, and would see wrong ones."""
    records[0]["reference_context_ids"].append("f" * 32)
    [sample] = prepare(records[:1], rag)
    assert IDBasedContextRecall().single_turn_score(sample.to_ragas()) == 0.5


def test_metrics_without_a_model_read_the_texts(records, rag):
    """Contexts and answers beside the expected ones, by the similarity of strings."""
    samples = [sample.to_ragas() for sample in prepare(records, rag)]
    assert [NonLLMContextRecall().single_turn_score(sample) for sample in samples] == [
        1.0,
        1.0,
        1.0,
    ]
    assert all(
        NonLLMContextPrecisionWithReference().single_turn_score(sample) > 0.4 for sample in samples
    )
    assert ExactMatch().single_turn_score(samples[0]) == 1.0
    assert NonLLMStringSimilarity().single_turn_score(samples[0]) == 1.0
    assert NonLLMStringSimilarity().single_turn_score(samples[1]) < 0.5


def test_a_system_without_ids_is_measured_by_texts_alone(records):
    """The old interface: metrics by texts work, a metric by ids finds none."""

    class Old(RAGInterface):
        def retrieve(self, query):
            return [TEXTS["green.txt"]]

        def generate(self, query, contexts):
            return contexts[0]

    sample = prepare(records, Old())[0].to_ragas()
    assert sample.retrieved_context_ids is None
    assert NonLLMContextRecall().single_turn_score(sample) == 1.0
    with pytest.raises(AssertionError):
        IDBasedContextRecall().single_turn_score(sample)


def test_nothing_found_is_not_unknown(records, rag):
    """A system that finds nothing gives an empty list of ids, of which RAGAS knows no precision."""

    class Blind(RetrieverRAG):
        def retrieve_with_metadata(self, query):
            return RetrievalResult([], [])

    [sample] = prepare(
        records[:1], Blind(lambda query, filters=None, topk=None: []), generate=False
    )
    assert sample.retrieved_context_ids == []
    assert math.isnan(IDBasedContextPrecision().single_turn_score(sample.to_ragas()))
    assert IDBasedContextRecall().single_turn_score(sample.to_ragas()) == 0.0


def test_candidates_reach_ragas(records, rag):
    """All of them, in order; no metric of RAGAS reads them, its samples carry them."""

    class Several(RetrieverRAG):
        def generate_with_metadata(self, query, contexts):
            return GenerationResult("x", ["x", "y"])

    several = Several(lambda query, filters=None, topk=None: [])
    assert [sample.to_ragas().multi_responses for sample in prepare(records, several)] == [
        ["x", "y"]
    ] * 3


def test_samples_are_a_dataset(records, rag):
    """As many samples, with the features of each."""
    dataset = to_ragas_dataset(prepare(records, rag))
    assert isinstance(dataset, EvaluationDataset)
    assert len(dataset) == 3
    assert {"user_input", "retrieved_context_ids", "reference_context_ids"} <= set(
        dataset.features()
    )


def test_a_data_set_of_ragas_is_prepared(records, rag):
    """RAGAS's samples, and its data set of them, are records as mappings are."""
    samples = [SingleTurnSample(**record) for record in records]
    expected = [sample.to_ragas() for sample in prepare(records, rag)]
    assert [sample.to_ragas() for sample in prepare(samples, rag)] == expected
    assert [
        sample.to_ragas() for sample in prepare(EvaluationDataset(samples=samples), rag)
    ] == expected
