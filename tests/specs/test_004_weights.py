"""Specification 004, section 5: weights of a hybrid search. Each docstring quotes the sentence that
it tests.
"""

from __future__ import annotations

import dataclasses

import pytest

from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.ranking import KeywordSetting, VectorSetting, Weights
from lazyrag.ranking.fusion import weighted


def both(vector=0.7, keyword=0.3):
    """Weights of a model that spec 004 names."""
    return Weights(
        vector_setting=VectorSetting(
            vector_weight=vector,
            embedding_provider_name="openai",
            embedding_model_name="text-embedding-3-small",
        ),
        keyword_setting=KeywordSetting(keyword_weight=keyword),
    )


def test_the_fields():
    """「vector_setting / keyword_setting」, 「vector_weight / embedding_provider_name /
    embedding_model_name」 and 「keyword_weight」: all required, in this order.
    """
    for kind, names in (
        (Weights, ["vector_setting", "keyword_setting"]),
        (VectorSetting, ["vector_weight", "embedding_provider_name", "embedding_model_name"]),
        (KeywordSetting, ["keyword_weight"]),
    ):
        fields = dataclasses.fields(kind)
        assert [field.name for field in fields] == names
        assert all(field.default is dataclasses.MISSING for field in fields)
        with pytest.raises(TypeError):
            kind()


def test_the_example():
    """「创建权重配置（70% 向量，30% 关键词）」"""
    weights = both()
    assert weights.vector_setting.vector_weight == 0.7
    assert weights.vector_setting.embedding_provider_name == "openai"
    assert weights.vector_setting.embedding_model_name == "text-embedding-3-small"
    assert weights.keyword_setting.keyword_weight == 0.3


@pytest.mark.parametrize("weight", [-0.0001, 1.0001, float("nan"), float("inf"), True, "0.5", None])
def test_a_weight_lies_between_0_and_1(weight):
    """「0.0-1.0」: "vector_weight must be between 0.0 and 1.0", a ValueError that shows what was
    given.
    """
    with pytest.raises(ValueError, match=r"^vector_weight must be between 0\.0 and 1\.0; got"):
        VectorSetting(weight, "openai", "text-embedding-3-small")
    with pytest.raises(ValueError, match=r"^keyword_weight must be between 0\.0 and 1\.0; got"):
        KeywordSetting(weight)


@pytest.mark.parametrize("weight", [0, 0.0, 1, 1.0])
def test_the_bounds_are_weights(weight):
    """「0.0-1.0」, both included."""
    assert both(weight, 1 - weight).shares == (weight, 1 - weight)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_names_are_not_blank(name):
    """「embedding_provider_name … 非空」「embedding_model_name … 非空」"""
    with pytest.raises(ValueError, match=r"embedding_provider_name must be .* not blank"):
        VectorSetting(0.5, name, "text-embedding-3-small")
    with pytest.raises(ValueError, match=r"embedding_model_name must be .* not blank"):
        VectorSetting(0.5, "openai", name)


@pytest.mark.parametrize(
    ("vector", "keyword"), [(0.7, 0.2), (0.7, 0.4), (0.0, 0.0), (1.0, 1.0), (0.7, 0.3 + 2e-6)]
)
def test_the_weights_add_up_to_1(vector, keyword):
    """「与 keyword_weight 之和为 1」: "Sum of vector_weight and keyword_weight must be 1.0"."""
    with pytest.raises(
        ValueError, match=r"^Sum of vector_weight and keyword_weight must be 1\.0; got"
    ):
        both(vector, keyword)


@pytest.mark.parametrize(
    ("vector", "keyword"), [(0.7, 0.3), (0.1 + 0.2, 0.7), (0.7, 0.3 - 9e-7), (0.7, 0.3 + 9e-7)]
)
def test_a_rounding_is_no_error(vector, keyword):
    """「abs(total_weight - 1.0) < 1e-6」"""
    assert both(vector, keyword).shares == (vector, keyword)


def test_the_weighted_score():
    """「final_score = vector_score * vector_weight + keyword_score * keyword_weight」"""
    weights = both()
    vectors, keywords = {"a": 0.9, "b": 0.4}, {"a": 0.1, "b": 0.8}
    fused = dict(
        weighted(
            [list(vectors.items()), list(keywords.items())],
            weights=weights.shares,
            normalise="none",
        )
    )
    for uid, score in fused.items():
        assert score == pytest.approx(
            vectors[uid] * weights.vector_setting.vector_weight
            + keywords[uid] * weights.keyword_setting.keyword_weight
        )


def test_they_are_values():
    """Not in the specification: equal where their numbers are, and nobody changes them behind a
    retriever's back.
    """
    assert both() == both()
    assert hash(both()) == hash(both())
    with pytest.raises(dataclasses.FrozenInstanceError):
        both().keyword_setting.keyword_weight = 0.4


def test_what_is_no_setting_is_refused():
    """Not in the specification: a dict in a setting's place, or a misspelt name, is an error that
    says what to give.
    """
    with pytest.raises(ConfigError, match="must be a VectorSetting"):
        Weights({"vector_weight": 0.7}, KeywordSetting(0.3))
    with pytest.raises(ConfigError, match="must be a KeywordSetting"):
        Weights(VectorSetting(0.7, "openai", "text-embedding-3-small"), 0.3)
    with pytest.raises(UnknownKeywordError, match="Did you mean 'keyword_weight'"):
        KeywordSetting(keyword_wait=0.3)
