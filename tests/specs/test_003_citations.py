"""Spec 003, task 5 (引用标注): every test quotes the sentence it checks and says what is expected."""

from __future__ import annotations

import dataclasses
import inspect

from lazyrag import Citation, CitationManager, RetrievalResult

SOURCES = RetrievalResult(["用八十度的水泡茶。", "等三分钟。"], context_ids=["a", "b"])


def test_fields_of_a_citation():
    """「index: int / source: str / document_id: str / chunk_id: int / text_snippet: str」: first, in
    this order.
    """
    names = [one.name for one in dataclasses.fields(Citation)]
    assert names[:5] == ["index", "source", "document_id", "chunk_id", "text_snippet"]


def test_extract_citations():
    """「从回复中提取引用标记 [1], [2]...」: the numbers as a list."""
    assert CitationManager().extract_citations("用八十度的水[1]，等三分钟[2]。") == [1, 2]


def test_format_citations():
    """「格式化引用列表」: a text with a line for each result."""
    assert CitationManager().format_citations(SOURCES).splitlines() == ["[1] a", "[2] b"]


def test_validate_citations():
    """「验证引用是否有效」: True if each number has a source, else False."""
    assert CitationManager().validate_citations("[1][2]", num_sources=2) is True
    assert CitationManager().validate_citations("[1][3]", num_sources=2) is False


def test_signatures():
    """「extract_citations(response)」「format_citations(results)」「validate_citations(response,
    num_sources)」.
    """
    for name, parameters in {
        "extract_citations": ["response"],
        "format_citations": ["results"],
        "validate_citations": ["response", "num_sources"],
    }.items():
        assert list(inspect.signature(getattr(CitationManager(), name)).parameters) == parameters


def test_citations_in_the_answer():
    """「请基于上述资料回答，并在回答中标注引用来源（如[1]、[2]）。」: such an answer's citations are its sources."""
    resolved = CitationManager().resolve("用八十度的水[1]，等三分钟[2]。", SOURCES)
    assert [(one.index, one.uid) for one in resolved.citations] == [(1, "a"), (2, "b")]
    assert resolved.problems == ()
