"""Maximal marginal relevance, held against its formula, candidate by candidate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lazyrag.errors import ConfigError
from lazyrag.ranking.fusion import min_max
from lazyrag.ranking.mmr import mmr, mmr_of_similarities

RANKING = [("a", 0.9), ("b", 0.89), ("c", 0.5), ("d", 0.1)]
VECTORS = np.array([[1, 0, 0], [2, 0.02, 0], [0, 3, 0], [0, 0, 1]])


def by_the_formula(ranking, similarity, lam, topk):
    """MMR as the paper writes it, one candidate after the other, with what `mmr` says of ties and
    negative cosines.
    """
    relevance = dict(min_max(ranking))
    position = {uid: number for number, (uid, _) in enumerate(ranking)}
    chosen = []
    while len(chosen) < min(topk, len(ranking)):
        left = [uid for uid in sorted(position) if uid not in dict(chosen)]
        scores = [
            lam * relevance[uid]
            - (1 - lam)
            * max([0.0, *(similarity(position[uid], position[one]) for one, _ in chosen)])
            for uid in left
        ]
        best = max(range(len(left)), key=lambda at: (scores[at], -at))
        chosen.append((left[best], scores[best]))
    return chosen


def cosine_of(rows):
    """The cosine of two rows, in Python."""

    def cosine(one, other):
        length = math.sqrt(math.fsum(rows[one] ** 2)) * math.sqrt(math.fsum(rows[other] ** 2))
        return math.fsum(rows[one] * rows[other]) / length if length else 0.0

    return cosine


def test_what_says_the_same_comes_later():
    """b is nearly a, so c and d come before it; alone by relevance it would be second."""
    assert [uid for uid, _ in mmr(RANKING, VECTORS, lam=0.5)] == ["a", "c", "d", "b"]
    assert [uid for uid, _ in mmr(RANKING, VECTORS, lam=1.0)] == ["a", "b", "c", "d"]


def test_scores_are_those_of_the_formula():
    """Relevance is brought to 0..1 by min-max: a has 1, c 0.5, d 0; b's cosine with a is nearly
    1.
    """
    chosen = mmr(RANKING, VECTORS, lam=0.5)
    cosine = 2 / math.hypot(2, 0.02)
    expected = [0.5, 0.25, 0.0, 0.5 * (0.79 / 0.8) - 0.5 * cosine]
    assert [score for _, score in chosen] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("normalise", "lowest", "first"),
    [("none", None, 0.45), ("max", None, 0.5), ("theoretical", -1.0, 0.5)],
)
def test_scores_may_be_taken_otherwise(normalise, lowest, first):
    """Cosines as they are, or by the measure's bounds."""
    assert mmr(RANKING, VECTORS, normalise=normalise, lowest=lowest)[0] == (
        "a",
        pytest.approx(first),
    )


_tables = st.integers(0, 7).flatmap(
    lambda count: st.tuples(
        st.permutations("abcdefg"[:count]),
        st.lists(st.integers(-3, 3), min_size=count, max_size=count).map(
            lambda scores: sorted(scores, reverse=True)
        ),
        hnp.arrays(np.float64, (count, 3), elements=st.integers(-2, 2)),
    )
)


@given(_tables, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.integers(1, 8))
def test_it_is_the_formula(table, lam, topk):
    """On small numbers, where ties are many: the same scores in the same places. It is a ranking:
    best first, ties by uid, each candidate once.
    """
    uids, scores, vectors = table
    ranking = list(zip(uids, map(float, scores), strict=True))
    chosen = mmr(ranking, vectors, lam=lam, topk=topk)
    expected = by_the_formula(ranking, cosine_of(vectors), lam, topk)
    assert [score for _, score in chosen] == pytest.approx(
        [score for _, score in expected], abs=1e-12
    )
    assert chosen == sorted(chosen, key=lambda item: (-item[1], item[0]))
    assert len({uid for uid, _ in chosen}) == min(topk, len(ranking))


@given(_tables, st.sampled_from([0.0, 0.5, 1.0]))
def test_by_similarities_it_is_exactly_the_formula(table, lam):
    """With the table given there is no rounding of cosines: equal uid by uid, ties included."""
    uids, scores, vectors = table
    ranking = list(zip(uids, map(float, scores), strict=True))
    similarities = np.clip(vectors @ vectors.T, 0, 4) / 4
    chosen = mmr_of_similarities(ranking, similarities, lam=lam)
    assert chosen == by_the_formula(
        ranking, lambda one, other: similarities[one, other], lam, len(ranking)
    )


@pytest.mark.slow
def test_the_first_ones_are_those_of_a_longer_answer():
    """A smaller topk cuts the list and changes nothing else."""
    rng = np.random.default_rng(7)
    ranking = [
        (f"n{number:03}", float(score))
        for number, score in enumerate(sorted(rng.random(60), reverse=True))
    ]
    vectors = rng.standard_normal((60, 32)).astype(np.float32)
    every = mmr(ranking, vectors, lam=0.6)
    expected = by_the_formula(ranking, cosine_of(vectors.astype(np.float64)), 0.6, 60)
    assert [uid for uid, _ in every] == [uid for uid, _ in expected]
    assert dict(every) == pytest.approx(dict(expected), abs=1e-12)
    assert mmr(ranking, vectors, lam=0.6, topk=10) == every[:10]


def test_the_order_of_candidates_does_not_count():
    """Shuffled candidates with their rows give the same answer, although two have the same vector
    and score.
    """
    ranking = [("b", 2.0), ("a", 2.0), ("c", 1.0), ("d", 0.5)]
    vectors = np.array([[1.0, 0.1], [1.0, 0.1], [0.3, 1.0], [0.2, -1.0]])
    expected = mmr(ranking, vectors)
    assert expected[0][0] == "a"
    for order in ([3, 1, 0, 2], [1, 0, 2, 3], [2, 3, 1, 0]):
        assert mmr([ranking[at] for at in order], vectors[order]) == expected


def test_opposites_are_no_better_than_other_matters():
    """A cosine of -1 counts as 0, so later ones never score higher than earlier ones."""
    assert mmr([("a", 1.0), ("b", 1.0)], [[1, 0], [-1, 0]]) == [("a", 0.5), ("b", 0.5)]


def test_a_row_of_zeros_is_like_nothing():
    """It has no direction, so no cosine: two of them do not repeat one another."""
    assert mmr([("a", 1.0), ("b", 1.0)], [[0, 0], [0, 0]]) == [("a", 0.5), ("b", 0.5)]


def test_sizes_do_not_count():
    """Vectors of any length, also such whose squares leave a float's range, count by their
    direction.
    """
    small, large = mmr(RANKING, VECTORS * 1e-200), mmr(RANKING, VECTORS * 1e200)
    assert [uid for uid, _ in small] == [uid for uid, _ in large] == ["a", "c", "d", "b"]


def test_of_nothing_nothing_is_chosen():
    """No candidate, no answer, whatever shape nothing has."""
    for nothing in ([], np.zeros((0, 384), np.float32)):
        assert mmr([], nothing) == []
    assert mmr_of_similarities([], []) == []
    assert mmr_of_similarities([], np.zeros((0, 0))) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lam": 1.1}, "lam must be .*got 1.1"),
        ({"lam": -0.1}, "lam must be .*got -0.1"),
        ({"lam": math.nan}, "lam must be .*got nan"),
        ({"lam": "0.5"}, "lam must be .*got '0.5'"),
        ({"topk": 0}, "topk"),
        ({"normalise": "minmax"}, "Did you mean 'min_max'"),
        ({"normalise": "theoretical"}, "lowest"),
    ],
)
def test_options_out_of_range_are_refused(options, told):
    """Each error shows what was given."""
    with pytest.raises(ConfigError, match=told):
        mmr(RANKING, VECTORS, **options)


def test_candidates_and_vectors_must_fit():
    """A row for each candidate, each candidate once, numbers only, finite ones."""
    with pytest.raises(ConfigError, match=r"4 candidates; got \(3, 3\)"):
        mmr(RANKING, VECTORS[:3])
    with pytest.raises(ConfigError, match="candidates; got"):
        mmr([], VECTORS)
    with pytest.raises(ConfigError, match=r"got \(4,\)"):
        mmr(RANKING, [1, 2, 3, 4])
    with pytest.raises(ConfigError, match="shape \\(n, n\\)"):
        mmr_of_similarities(RANKING, np.eye(3))
    with pytest.raises(ConfigError, match="has a uid twice"):
        mmr([*RANKING[:3], ("a", 0.2)], VECTORS)
    with pytest.raises(ConfigError, match="finite numbers"):
        mmr(RANKING, np.where(VECTORS == 3, np.nan, VECTORS))
    with pytest.raises(ConfigError, match="rows of the same length"):
        mmr(RANKING, [[1, 2], [3], [4], [5]])
    with pytest.raises(ConfigError, match="must be finite numbers; got"):
        mmr([("a", math.inf), *RANKING[1:]], VECTORS)
