"""Spec 002, the results: every test quotes the sentence it checks and says what is expected."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import GenerationResult, Hit, RetrievalResult

ANYTHING = {
    "source": "a.txt",
    "nested": {"list": [1, 2.5, None]},
    "object": object(),
    "函数": len,
    3: "number",
}


def required(cls):
    """Fields without default."""
    return [
        one.name
        for one in dataclasses.fields(cls)
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    ]


def test_a_retrieval_needs_its_contexts():
    """「必需字段应当是contexts」: nothing else has to be given, and it has to be."""
    assert required(RetrievalResult) == ["contexts"]
    assert RetrievalResult(["a"]).contexts == ["a"]
    with pytest.raises(TypeError):
        RetrievalResult()


def test_a_retrieval_may_have_ids_scores_and_metadata():
    """「可选字段应当包括context_ids、scores、metadata」: by name, and None where they are left out."""
    full = RetrievalResult(["a"], context_ids=["1"], scores=[0.5], metadata={"k": "v"})
    assert (full.context_ids, full.scores, full.metadata) == (["1"], [0.5], {"k": "v"})
    bare = RetrievalResult(["a"])
    assert (bare.context_ids, bare.scores, bare.metadata) == (None, None, None)


def test_a_retrieval_converts():
    """「应当提供便捷的转换方法」: to a dict and back, of hits, and to hits."""
    full = RetrievalResult(["a"], ["1"], [0.5], {"k": "v"})
    assert RetrievalResult.from_dict(full.to_dict()) == full
    hit = Hit("1", "a", 0.5)
    assert RetrievalResult.from_hits([hit]).to_dict() == {**full.to_dict(), "metadata": None}
    assert list(full) == [hit]


def test_a_generation_needs_its_response():
    """「必需字段应当是response」: nothing else has to be given, and it has to be."""
    assert required(GenerationResult) == ["response"]
    assert GenerationResult("a").response == "a"
    with pytest.raises(TypeError):
        GenerationResult()


def test_a_generation_may_have_candidates_confidence_and_metadata():
    """「可选字段应当包括multi_responses、confidence、metadata」: by name, and None where they are left out."""
    full = GenerationResult("a", multi_responses=["a", "b"], confidence=0.5, metadata={"k": "v"})
    assert (full.multi_responses, full.confidence, full.metadata) == (["a", "b"], 0.5, {"k": "v"})
    bare = GenerationResult("a")
    assert (bare.multi_responses, bare.confidence, bare.metadata) == (None, None, None)


def test_a_generation_converts():
    """「应当提供便捷的转换方法」: to a dict and back."""
    full = GenerationResult("a", ["a", "b"], 0.5, {"k": "v"})
    assert GenerationResult.from_dict(full.to_dict()) == full


@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists), max_size=5
    )
)
def test_metadata_take_any_pairs(pairs):
    """「系统应当接受任意键值对」: what is given is there, in both results."""
    assert RetrievalResult(["a"], metadata=pairs).metadata == pairs
    assert GenerationResult("a", metadata=pairs).metadata == pairs


def test_metadata_are_not_restricted():
    """「不应当限制元数据的内容」: any objects under any keys, by reference, also through to_dict."""
    for made in (
        RetrievalResult(["a"], metadata=ANYTHING),
        GenerationResult("a", metadata=ANYTHING),
    ):
        assert made.metadata is ANYTHING
        assert made.to_dict()["metadata"] is ANYTHING
        assert type(made).from_dict(made.to_dict()).metadata is ANYTHING
