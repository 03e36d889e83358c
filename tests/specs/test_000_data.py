"""Spec 000, `RAGData`: its fields and their names, who reads what first, and what became of the
older formats.
"""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, get_type_hints  # noqa: UP035  as the specification writes them

import pytest

from lazyrag import Document, Retriever
from lazyrag import operators as ops
from lazyrag.errors import ConfigError
from lazyrag.operators import (
    OperatorChain,
    QAPromptor,
    RAGData,
    RefinerOperator,
    RerankOperator,
    RetrieveOperator,
)

FIELDS = {
    "query": str,
    "question": Dict[str, Any],  # noqa: UP006
    "references": List[str],  # noqa: UP006
    "retrieval_results": List[Dict[str, Any]],  # noqa: UP006
    "retrieval_docs": List[str],  # noqa: UP006
    "retrieval_time": float,
    "reranking_results": List[Dict[str, Any]],  # noqa: UP006
    "reranking_docs": List[str],  # noqa: UP006
    "reranking_time": float,
    "refining_results": List[Dict[str, Any]],  # noqa: UP006
    "refining_docs": List[str],  # noqa: UP006
    "refining_time": float,
    "prompt": str,
    "generated": str,
    "generation_time": float,
    "input": Any,
}


def in_order(query, documents, top_n):
    """A rerank model that leaves the order as it is."""
    return [(at, 1.0 - at / 10) for at in range(len(documents))]


def chain():
    """All stages, over three texts."""
    docs = Document()
    docs.add_texts(
        {
            "绿茶.txt": "绿茶用八十度的水冲泡。",
            "红茶.txt": "红茶用沸水冲泡。",
            "水.txt": "山上的水很甜。",
        }
    )
    found = RetrieveOperator(Retriever(docs, "FineChunk", "bm25_chinese"))
    shorter = RerankOperator(in_order) >> RefinerOperator("extractive", budget=12)
    return found >> shorter >> QAPromptor() >> ops.OpenAIGenerator(lambda prompt: "八十度。")


def test_every_operator_takes_a_dict_and_gives_one():
    """「所有算子均采用 **字典(dict)** 作为输入输出格式,遵循统一的字段命名规范。」"""
    data: Any = {"query": "绿茶用几度的水?"}
    for one in chain().operators:
        assert type(data := one.execute(data)) is dict
    assert set(data) == set(FIELDS) - {"question", "references", "input"}


def test_every_stage_stays_in_the_data():
    """「**可追溯性**: 每个阶段的输出都保留在数据流中,便于调试和分析」: nothing is lost."""
    data: Any = {"query": "绿茶用几度的水?", "question": {"id": "q1"}}
    for one in chain().operators:
        after = one.execute(data)
        assert {name: after[name] for name in data} == data
        assert all(after[name] is data[name] for name in data)
        data = after


def test_the_types_stand_in_a_typed_dict():
    """「**类型安全**: 使用 TypedDict 定义明确的数据类型」: the fields and types of the document."""
    assert get_type_hints(RAGData) == FIELDS
    assert RAGData.__required_keys__ == frozenset()
    assert RAGData(query="茶?") == {"query": "茶?"}


def test_fields_are_named_after_stage_and_type():
    """「采用 `{stage}_{type}` 模式,避免字段名冲突」: what the stages append is called so."""
    data = chain().execute({"query": "绿茶用几度的水?"})
    expected = {
        f"{stage}_{kind}" for stage in ops.STAGES[:3] for kind in ("results", "docs", "time")
    }
    assert set(data) == expected | {"query", "prompt", "generated", "generation_time"}


def test_the_stages_are_these():
    """「**stage**: 处理阶段 (retrieval, reranking, refining, generation)」."""
    assert ops.STAGES == ("retrieval", "reranking", "refining", "generation")


def test_a_reranker_reads_refined_texts_before_retrieved_ones():
    """「Reranker 会优先从 `refining_docs` 读取,其次是 `retrieval_docs`」."""
    rerank = RerankOperator(in_order)
    both = {"query": "茶", "refining_docs": ["精"], "retrieval_docs": ["原"]}
    assert rerank(both)["reranking_docs"] == ["精"]
    assert rerank({**both, "refining_docs": []})["reranking_docs"] == ["原"]


def test_a_refiner_reads_reranked_texts_before_retrieved_ones():
    """「Refiner 会优先从 `reranking_docs` 读取,其次是 `retrieval_docs`」; the right answers are no
    documents.
    """
    refine = RefinerOperator()
    both = {
        "query": "茶",
        "reranking_docs": ["排"],
        "retrieval_docs": ["原"],
        "references": ["答案"],
    }
    assert refine(both)["refining_docs"] == ["排"]
    assert refine({**both, "reranking_docs": []})["refining_docs"] == ["原"]
    assert refine({"query": "茶", "references": ["答案"]})["refining_docs"] == []


def test_a_promptor_reads_the_last_stage_that_has_texts():
    """「`refining_docs` (最高优先级,使用精炼后的文档)」, then the others; empty lists fall through."""
    data = {
        "query": "茶?",
        "refining_docs": ["精炼"],
        "reranking_docs": ["重排"],
        "retrieval_docs": ["检索"],
    }
    assert "精炼" in QAPromptor()(data)["prompt"]
    assert "重排" in QAPromptor()({**data, "refining_docs": []})["prompt"]
    assert "检索" in QAPromptor()({**data, "refining_docs": [], "reranking_docs": []})["prompt"]


def test_the_order_is_written_once():
    """「data.get("refining_docs") or data.get("reranking_docs") or data.get("retrieval_docs", [])」
    is latest_docs.
    """
    data = {"refining_docs": [], "reranking_docs": ["b"], "retrieval_docs": ["c"]}
    assert ops.latest_docs(data) == ("reranking", ["b"])
    assert ops.latest_docs({"query": "茶"}) == ("", [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("retrieved_docs", "retrieval_docs"),
        ("refined_docs", "refining_docs"),
        ("refine_time", "refining_time"),
        ("generate_time", "generation_time"),
        ("pred", "generated"),
        ("golds", "references"),
    ],
)
def test_old_names_become_new_ones(old, new):
    """「如果你的代码使用了旧的字段名,请按以下映射更新」: from_legacy does; an operator names it."""
    value: Any = ["茶"]
    given = {"query": "茶?", old: value}
    assert ops.from_legacy(given) == {"query": "茶?", new: value}
    assert given == {"query": "茶?", old: value}
    with pytest.raises(ConfigError, match=f"{old}.*{new}.*from_legacy"):
        QAPromptor()(given)


def test_results_are_told_apart_by_the_caller():
    """「`results` | `retrieval_results` 或 `refining_results` | 根据上下文判断」: nothing is guessed."""
    given = {"query": "茶?", "results": [{"text": "茶"}]}
    assert ops.from_legacy(given, results_of="refining")["refining_results"] == [{"text": "茶"}]
    assert ops.from_legacy(given, results_of="retrieval")["retrieval_results"] == [{"text": "茶"}]
    with pytest.raises(ConfigError, match="results_of='retrieval'"):
        ops.from_legacy(given)


def test_tuples_are_refused():
    """「**Tuple 格式**: 旧版本支持 `(query, docs)` 元组格式,现已移除」: the error shows the dict to give instead."""
    with pytest.raises(
        ConfigError, match=r"\(query, docs\) is no longer supported.*retrieval_docs"
    ):
        QAPromptor().execute(("茶?", ["茶"]))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Tuples are no longer supported"):
        ops.from_legacy(("茶?", ["茶"]))  # type: ignore[arg-type]


def test_nested_metrics_are_refused():
    """「**嵌套 metrics**: 如 `refine_metrics.refine_time`,已扁平化为 `refining_time`」: refused, with the
    flat name.
    """
    given = {"query": "茶?", "refine_metrics": {"refine_time": 0.1}}
    for call in (QAPromptor().execute, ops.from_legacy):
        with pytest.raises(ConfigError, match="refining_time"):
            call(given)
    assert QAPromptor()({"query": "茶?", "custom_metrics": {"a": 1}})["custom_metrics"] == {"a": 1}


def test_results_without_a_stage_are_refused():
    """「**多义字段**: 如 `results` 在不同阶段有不同含义,已拆分为明确的 `{stage}_results`」."""
    with pytest.raises(ConfigError, match="retrieval_results or refining_results"):
        QAPromptor()({"query": "茶?", "results": []})


def test_a_function_over_the_data_is_an_operator():
    """「def my_operator(data: RAGData) -> RAGData」: as it is written there, one may stand in a
    chain.
    """

    def my_operator(data: RAGData) -> RAGData:
        docs = data.get("retrieval_docs", [])
        data.update({"custom_count": len(docs)})  # type: ignore[typeddict-unknown-key]
        return data

    given = {"query": "茶?", "retrieval_docs": ["a", "b"]}
    data: Any = (my_operator >> QAPromptor()).execute(given)
    assert data["custom_count"] == 2
    assert "prompt" in data
    assert given == {"query": "茶?", "retrieval_docs": ["a", "b"]}

    class MyOperator:
        def execute(self, data: RAGData) -> RAGData:
            return my_operator(data)

    data = OperatorChain(MyOperator(), QAPromptor()).execute(given)
    assert data["custom_count"] == 2


def test_replacing_a_standard_field_is_an_error():
    """「❌ 错误: 覆盖旧字段 data["retrieval_docs"] = new_docs」: a function that does is refused by name."""

    def forgetful(data):
        data["retrieval_docs"] = ["new"]
        return data

    with pytest.raises(ConfigError, match="forgetful\\) would overwrite 'retrieval_docs'"):
        ops.OperatorChain(forgetful)({"query": "茶?", "retrieval_docs": ["old"]})


def test_a_stage_that_is_skipped_is_passed_over():
    """「如果没有 reranking 阶段,promptor 会直接读取 `retrieval_docs`」."""
    assert "绿茶" in QAPromptor()({"query": "茶?", "retrieval_docs": ["绿茶"]})["prompt"]


def test_results_and_docs_say_the_same():
    """「为什么需要同时保留 results 和 docs 字段」: row i of the results is about text i, in every stage."""
    data: Any = chain().execute({"query": "绿茶用几度的水?"})
    for stage in ops.STAGES[:3]:
        assert [row["text"] for row in data[f"{stage}_results"]] == data[f"{stage}_docs"] != []


def test_fields_of_ones_own_go_through():
    """「可以在 data 中添加任意字段」: they are in the result, the same objects."""
    own = object()
    assert chain().execute({"query": "绿茶", "custom_my_field": own})["custom_my_field"] is own  # type: ignore[typeddict-item]


def test_the_names_of_the_document_are_there():
    """All operators that the document names can be imported from one place."""
    named = (
        "Wiki18FAISSRetriever ChromaRetriever MilvusRetriever BGEReranker LLMbased_Reranker RefinerOperator QAPromptor "
        "OpenAIGenerator AccuracyEvaluate TokenCountEvaluate CompressionRateEvaluate LatencyEvaluate "
        "ContextRecallEvaluate"
    )
    for name in named.split():
        assert inspect.isclass(getattr(ops, name))
        assert issubclass(getattr(ops, name), ops.Operator)
