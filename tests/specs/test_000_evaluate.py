"""Spec 000, evaluation: what each evaluator reads and gives, in Chinese as in English, and that it
changes nothing.
"""

from __future__ import annotations

import copy
import json

import pytest

from lazyrag.operators import (
    AccuracyEvaluate,
    CompressionRateEvaluate,
    ContextRecallEvaluate,
    EMEvaluate,
    F1Evaluate,
    LatencyEvaluate,
    QAPromptor,
    TokenCountEvaluate,
    evaluate_traces,
)

TRACE = {
    "query": "绿茶用几度的水?",
    "question": {"id": "q001"},
    "references": ["八十度"],
    "retrieval_docs": ["绿茶用八十度的水。", "山上有云。"],
    "retrieval_time": 0.5,
    "refining_docs": ["八十度的水"],
    "refining_time": 0.25,
    "generated": "用八十度的水。",
    "generation_time": 1.0,
}
EVALUATORS = [
    AccuracyEvaluate,
    TokenCountEvaluate,
    CompressionRateEvaluate,
    LatencyEvaluate,
    ContextRecallEvaluate,
    F1Evaluate,
    EMEvaluate,
]


@pytest.mark.parametrize("kind", EVALUATORS)
def test_evaluators_change_nothing(kind):
    """「各评估器读取相应字段进行评估,不修改 data」: the very dict comes back, as it was."""
    data = copy.deepcopy(TRACE)
    evaluator = kind()
    assert evaluator.execute(data) is data
    assert data == TRACE
    assert evaluator.report.names == ["q001"]


def test_accuracy_reads_answer_and_references():
    """「generated = data.get("generated") references = data.get("references")」: right is what holds
    a reference.
    """
    accuracy = AccuracyEvaluate()
    assert accuracy.measure(TRACE) == {"accuracy": 1.0}
    assert accuracy.measure({**TRACE, "generated": "用七十度的水。"}) == {"accuracy": 0.0}


def test_a_wrong_answer_is_not_right_for_its_common_words():
    """Two thirds of the words in common are no right answer, unless a threshold says so."""
    data = {
        "generated": "The capital of Germany is Berlin.",
        "references": ["The capital of France is Paris."],
    }
    assert AccuracyEvaluate().measure(data) == {"accuracy": 0.0}
    assert AccuracyEvaluate(threshold=0.3).measure(data) == {"accuracy": 1.0}


def test_tokens_are_counted_of_the_latest_texts():
    """「读取优先级: refining_docs > reranking_docs > retrieval_docs」."""
    count = TokenCountEvaluate()
    assert count.measure(TRACE) == {"token_count_utf8": 5}
    assert count.measure({**TRACE, "refining_docs": [], "reranking_docs": ["八十"]}) == {
        "token_count_utf8": 2
    }
    assert count.measure({**TRACE, "refining_docs": []}) == {"token_count_utf8": 14}


def test_compression_compares_lengths():
    """「对比检索和精炼的文档长度」: of texts, in tokens; the ratio of their numbers has a name of its own."""
    values = CompressionRateEvaluate().measure(TRACE)
    assert values == {"compression_rate": 5 / 14, "doc_ratio": 0.5}
    assert CompressionRateEvaluate().measure({**TRACE, "refining_docs": []}) == {
        "compression_rate": 0.0,
        "doc_ratio": 0.0,
    }


def test_latency_adds_up_stages():
    """「累加各阶段耗时」: all that there are; `total_latency` is the document's sum of two."""
    values = LatencyEvaluate().measure(TRACE)
    assert values["latency"] == 1.75
    assert values["total_latency"] == 1.25
    assert "reranking_time" not in values


def test_context_recall_looks_for_the_references_words():
    """「检查生成答案是否包含参考答案中的关键信息」: in the answer, and in the texts."""
    recall = ContextRecallEvaluate()
    assert recall.measure({**TRACE, "generated": "七十度"}) == {
        "context_recall": 2 / 3,
        "found_recall": 1.0,
    }


def test_chinese_answers_are_measured_by_characters():
    """F1 and EM mean the same in Chinese as in English: 2 of 4 and 2 of 3 characters in common."""
    data = {"generated": "绿茶的水", "references": ["绿茶叶"]}
    assert F1Evaluate().measure(data) == {"f1": pytest.approx(4 / 7)}
    assert EMEvaluate().measure({"generated": "绿茶。", "references": ["绿茶"]}) == {"em": 1.0}


@pytest.mark.parametrize("kind", EVALUATORS)
def test_what_is_missing_is_not_0(kind):
    """A trace without the fields has None for each measure."""
    values = kind().measure({"query": "茶?"})
    assert values.pop("total_latency", 0.0) == 0.0  # by the document's formula
    assert set(values.values()) == {None}


def test_an_empty_answer_counts():
    """An answer that is there and blank is wrong, which is not the same as none."""
    assert AccuracyEvaluate().measure({"generated": "", "references": ["八十度"]}) == {
        "accuracy": 0.0
    }


def test_a_report_over_a_data_set(tmp_path):
    """Means over the traces that have a value, how many these are, a row for each; JSON and a
    picture of them.
    """
    wrong = {**TRACE, "question": {"id": "q002"}, "generated": "七十度", "refining_time": 0.75}
    report = evaluate_traces([TRACE, wrong, {"query": "没有答案的问题"}])
    assert report.means["accuracy"] == 0.5
    assert report.counts["accuracy"] == 2
    assert report.means["refining_time"] == 0.5
    assert report.names == ["q001", "q002", "没有答案的问题"]
    assert "| accuracy | 0.5000 | 2 of 3 |" in report.table()
    report.to_json(tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert told["rows"][2] == {
        "name": "没有答案的问题",
        **dict.fromkeys(report.rows[2]),
        "total_latency": 0.0,
    }
    picture = report.plot(tmp_path / "report.svg")
    assert picture.startswith("<svg")
    assert picture.count("<rect") == len(report.measures)


def test_evaluators_stand_in_a_chain():
    """「经过 Evaluate」: the step's trace goes on unchanged, and the report has the values."""
    accuracy = AccuracyEvaluate()
    done = (QAPromptor() >> accuracy >> F1Evaluate()).execute(TRACE)
    assert set(done) == {*TRACE, "prompt"}
    assert accuracy.report.means == {"accuracy": 1.0}
