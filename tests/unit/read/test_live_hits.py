"""What is not live is left out of what a store finds, and never shortens the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.segment import store_key
from lazyrag.errors import ConfigError, StoreError
from lazyrag.ledger.tree import LiveGroup
from lazyrag.read.nodes import live_hits

BUILDS = 12


class Rows:
    """A store's ranking, best first, of which a search reaches only so many rows; notes what it is
    asked for.
    """

    def __init__(self, builds, reached=None):
        """One row for each number of a build."""
        self.ranking = [
            (store_key(f"{at:032x}", build), -float(at)) for at, build in enumerate(builds)
        ]
        self.reached = len(builds) if reached is None else reached
        self.asked = []

    def __call__(self, depth):
        """The best of those that are reached."""
        self.asked.append(depth)
        return self.ranking[: min(depth, self.reached)]

    def live(self, numbers):
        """What a reader may see of them."""
        return [
            (key, score) for key, score in self.ranking if int(key.rpartition("-")[2]) in numbers
        ]


def found(numbers, topk, search, instead=None):
    """What is found of the builds with some numbers."""
    group = LiveGroup(1, "line", None, "f", "c", complete=True)
    return live_hits(
        lambda builds: {build: build in numbers for build in builds},
        group,
        "c",
        topk,
        search,
        instead=instead,
    )


@given(
    st.lists(st.integers(0, BUILDS), max_size=300),
    st.sets(st.integers(0, BUILDS)),
    st.integers(1, 40),
    st.integers(0, 300),
)
def test_the_best_live_rows_are_found_wherever_they_stand(builds, numbers, topk, reached):
    """They are those of the whole ranking without what is not live. A search that reaches few rows
    keeps its answer, unless that is short and it reached some that are not live: they hide nothing.
    """
    rows, partly = Rows(builds), Rows(builds, reached)
    wanted = rows.live(numbers)[:topk]
    assert found(numbers, topk, rows) == wanted
    seen = partly(len(builds))
    own = [pair for pair in seen if pair in rows.live(numbers)]
    is_hidden = len(own) < min(topk, len(seen))
    assert found(numbers, topk, partly, instead=rows) == (wanted if is_hidden else own[:topk])


def test_without_rows_that_are_not_live_the_store_is_asked_once():
    """Nothing more is fetched, be it a full answer, or a short one that is all there is."""
    for topk in (5, 50):
        rows = Rows([1] * 20)
        assert len(found({1}, topk, rows)) == min(topk, 20)
        assert rows.asked == [topk]


def test_kept_versions_do_not_make_every_question_read_all_of_them():
    """With three dead rows beside each live one, some hundred of 40,000 are fetched for the ten
    best.
    """
    rows = Rows([1, 2, 3, 4] * 10_000)
    assert found({4}, 10, rows) == rows.live({4})[:10]
    assert sum(rows.asked) < 200


@pytest.mark.slow
def test_many_dead_rows_before_the_first_live_one_are_passed_in_few_steps():
    """Of 5,000 dead rows that are the best, no more than 16 times as many are fetched."""
    rows = Rows([1] * 5_000 + [2] * 90_000)
    assert found({2}, 10, rows) == rows.live({2})[:10]
    assert len(rows.asked) <= 4
    assert rows.asked[-1] <= 16 * 5_010


def test_a_query_that_the_store_refuses_is_the_stores_trouble():
    """The query is as the ledger says, so that what is stored is not."""

    def refuse(depth):
        raise ConfigError(f"a vector of another length, asked for {depth}")

    with pytest.raises(StoreError, match=r"another length.*verify\(\)"):
        found({1}, 3, refuse)
