"""Specification 003, reciprocal rank fusion and weighted fusion. Each docstring quotes the sentence
that it tests.
"""

from __future__ import annotations

import inspect

import pytest

from lazyrag.errors import ConfigError
from lazyrag.ranking import ReciprocalRankFusion
from lazyrag.ranking.fusion import rrf, weighted

VECTORS = [("doc1", 0.9), ("doc3", 0.8), ("doc2", 0.7)]
BM25 = [("doc2", 12.0), ("doc1", 7.5), ("doc4", 3.0)]


def test_the_signature():
    """「def fuse(self, rankings: List[List[Tuple[str, float]]], k: int = 60) -> List[Tuple[str,
    float]]」
    """
    parameters = list(inspect.signature(ReciprocalRankFusion.fuse).parameters.values())
    assert [one.name for one in parameters] == ["self", "rankings", "k"]
    assert parameters[2].default == 60
    fused = ReciprocalRankFusion().fuse([VECTORS, BM25])
    assert isinstance(fused, list)
    assert all(type(uid) is str and type(score) is float for uid, score in fused)


def test_the_formula():
    """「RRF Score = sum(1 / (k + rank_i))」, ranks from 1: 「ranks=[1,2,3]」."""
    fused = dict(ReciprocalRankFusion().fuse([VECTORS, BM25], k=10))
    assert fused == pytest.approx(
        {"doc1": 1 / 11 + 1 / 12, "doc2": 1 / 13 + 1 / 11, "doc3": 1 / 12, "doc4": 1 / 13},
        rel=1e-15,
    )


def test_the_worked_example():
    """「doc1: 1/(60+1) + 1/(60+2) = 0.0328」 is a slip: the terms it gives add up to 0.0325. The
    others are as it says, doc2's 0.0322 cut off after four digits.
    """
    fused = ReciprocalRankFusion().fuse([VECTORS, BM25])
    scores = dict(fused)
    assert scores["doc1"] == pytest.approx(1 / (60 + 1) + 1 / (60 + 2))
    assert round(scores["doc1"], 4) == 0.0325
    assert int(scores["doc2"] * 1e4) == 322
    assert round(scores["doc3"], 4) == 0.0161
    assert round(scores["doc4"], 4) == 0.0159


def test_the_final_order():
    """「最终排序: [doc1, doc2, doc3, doc4]」"""
    fused = ReciprocalRankFusion().fuse([VECTORS, BM25])
    assert [uid for uid, _ in fused] == ["doc1", "doc2", "doc3", "doc4"]


def test_a_ranking_without_it_adds_nothing():
    """「doc3: 1/(60+2) + 0」「doc4: 0 + 1/(60+3)」"""
    scores = dict(ReciprocalRankFusion().fuse([VECTORS, BM25]))
    assert scores["doc3"] == 1 / 62
    assert scores["doc4"] == 1 / 63


def test_several_rankings():
    """「融合多种排序结果」: more than two, of any lengths; the class gives what the function gives."""
    rankings = [VECTORS, BM25, [("doc4", 1.0)], []]
    assert ReciprocalRankFusion().fuse(rankings) == rrf(rankings)
    assert dict(ReciprocalRankFusion().fuse(rankings))["doc4"] == pytest.approx(1 / 63 + 1 / 61)
    assert ReciprocalRankFusion().fuse([]) == []
    assert ReciprocalRankFusion().fuse([VECTORS]) == [
        (uid, 1 / (60 + i)) for i, (uid, _) in enumerate(VECTORS, 1)
    ]


def test_the_constant_is_checked():
    """Not in the specification: k = 0 would still divide, -1 by zero; both are refused."""
    with pytest.raises(ConfigError, match="> 0, usually 60"):
        ReciprocalRankFusion().fuse([VECTORS], k=-1)


def test_weighted_by_the_specifications_weights():
    """「vector_weight: float = 0.7, bm25_weight: float = 0.3」: 0.7 of the vectors' and 0.3 of BM25's
    scores, which the specification does not bring to one range; here each is brought to 0..1 first.
    """
    fused = weighted([VECTORS, BM25], weights=[0.7, 0.3])
    assert dict(fused) == pytest.approx(
        {"doc1": 0.7 + 0.3 * 0.5, "doc3": 0.7 * 0.5, "doc2": 0.3, "doc4": 0.0}
    )
