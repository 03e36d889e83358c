"""The sparse index."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.filters import bind_filter, matches, parse_filter
from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes.postings import encoded_keys
from lazyrag.indexes.sparse import SparseIndex, SparsePart, SparseState
from lazyrag.storage.arrays import decoded, encoded, joined
from lazyrag.testing.samples import SCHEMA

YEARS = [{"year": year} for year in (2001, 2002, 2003)]
FILTER = bind_filter(parse_filter({"year": [2001, 2003]}), SCHEMA)

_weights = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(bool)
# so that many scores are equal
_small = st.integers(-4, 4).filter(bool).map(lambda number: number / 4)
_vectors = st.dictionaries(st.integers(0, 8), _small, max_size=6)
_rows = st.dictionaries(st.text("abc", min_size=1, max_size=3), _vectors, max_size=30)


def plain(rows, query, topk):
    """The ranking by inner products in plain Python, added up by ascending dimension."""
    found = []
    for key, vector in rows.items():
        shared = sorted(
            vector.keys() & {dimension for dimension, weight in query.items() if weight}
        )
        score = 0.0
        for dimension in shared:
            score += query[dimension] * vector[dimension]
        if shared:
            found.append((key, score))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:topk]


def index_of(rows, fields=None):
    """An index with all rows in one part."""
    index = SparseIndex()
    index.add(list(rows), list(rows.values()), fields)
    return index


def seeded(count, *, dimensions, weights, negative=False, seed=0):
    """That many seeded vectors, with common dimensions and rare ones."""
    chance = np.random.default_rng(seed)
    rows = {}
    for number in range(count):
        own = np.unique((dimensions * chance.random(weights) ** 3).astype(np.int64))
        values = chance.normal(size=len(own)) if negative else chance.random(len(own)) + 0.01
        rows[f"k{number:05d}"] = dict(
            zip(own.tolist(), values.astype(np.float32).tolist(), strict=True)
        )
    return rows


@given(_rows, _vectors, st.integers(1, 12))
def test_rankings_are_those_of_plain_python(rows, query, topk):
    """Keys, scores bit for bit, order and ties; only rows that share a dimension, also at 0 and
    below.
    """
    assert index_of(rows).state.search(query, topk) == plain(rows, query, topk)


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=2),
        st.dictionaries(st.integers(0, 5), _weights, max_size=4),
        max_size=12,
    ),
    st.dictionaries(st.integers(0, 5), _weights, max_size=4),
    st.integers(1, 4),
)
def test_weights_of_any_size_are_ranked_exactly(rows, query, topk):
    """The smallest and the largest float32 numbers beside each other, of either sign."""
    assert index_of(rows).state.search(query, topk) == plain(rows, query, topk)


@pytest.mark.slow
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("topk", [1, 10, 400])
def test_many_rows_are_ranked_as_numpy_ranks_them(negative, topk):
    """Thousands of rows, with common dimensions that are left for later: keys and scores are those
    of a product.
    """
    rows = seeded(6000, dimensions=300, weights=40, negative=negative)
    matrix = np.zeros((len(rows), 300))
    for number, vector in enumerate(rows.values()):
        matrix[number, list(vector)] = list(vector.values())
    index = index_of(rows)
    for query in seeded(12, dimensions=300, weights=15, negative=negative, seed=1).values():
        asked = np.zeros(300)
        asked[list(query)] = list(query.values())
        products = matrix @ asked
        touched = np.flatnonzero((matrix[:, list(query)] != 0).any(axis=1))
        best = touched[np.argsort(-products[touched], kind="stable")][:topk]
        found = index.state.search(query, topk)
        assert [int(key[1:]) for key, _ in found] == best.tolist()
        assert [score for _, score in found] == pytest.approx(products[best], rel=1e-12)


@pytest.mark.slow
def test_common_dimensions_of_little_weight_still_count():
    """Where rare dimensions decide, the common ones are left for later, and scores are whole
    nevertheless.
    """
    rows = {
        f"k{number:05d}": {0: 0.01 + number / 1e8, 1 + number % 500: 1.0}
        for number in range(20_000)
    }
    query = {0: 0.1, 7: 5.0}
    assert index_of(rows).state.search(query, 12) == plain(
        {
            key: {at: float(np.float32(weight)) for at, weight in one.items()}
            for key, one in rows.items()
        },
        {0: float(np.float32(0.1)), 7: 5.0},
        12,
    )


@given(_rows, _vectors, st.integers(1, 12), st.data())
def test_parts_do_not_matter(rows, query, topk, data):
    """However rows are dealt to parts, written to files and joined, the ranking is the same bit for
    bit.
    """
    items = list(rows.items())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=4)))
    pieces = [
        dict(items[start:end]) for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True)
    ]
    parts = [SparsePart.of_rows(list(piece), list(piece.values())) for piece in pieces]
    expected = index_of(rows).state.search(query, topk)
    assert SparseState(parts, [None] * len(parts)).search(query, topk) == expected
    again = [SparsePart.from_arrays(part.arrays()) for part in parts]
    assert (
        SparseState([SparsePart.joined(again, [None] * len(again))], [None]).search(query, topk)
        == expected
    )


@given(_rows, _vectors, st.integers(1, 12), st.sets(st.text("abc", min_size=1, max_size=3)))
def test_deleted_rows_are_as_if_they_had_never_been(rows, query, topk, gone):
    """By mask, and by joining without them: neither ranked nor read."""
    left = {key: vector for key, vector in rows.items() if key not in gone}
    part = SparsePart.of_rows(list(rows), list(rows.values()))
    mask = np.array([key not in gone for key in rows], np.bool_)
    for state in (
        SparseState([part], [mask]),
        SparseState([SparsePart.joined([part], [mask])], [None]),
    ):
        assert len(state) == len(left)
        assert state.search(query, topk) == plain(left, query, topk)
        assert {key: vector for key, vector, _ in state.get(list(rows))} == left


@given(_rows, _vectors, st.integers(1, 12))
def test_filters_come_before_the_best(rows, query, topk):
    """A filtered ranking is that of the rows which the filter lets through."""
    fields = [YEARS[number % 3] for number in range(len(rows))]
    left = {
        key: vector
        for (key, vector), own in zip(rows.items(), fields, strict=True)
        if matches(FILTER, own)
    }
    index = index_of(rows, fields)
    assert index.state.search(query, topk, filter=FILTER) == plain(left, query, topk)
    assert set(index.state.matching(FILTER)) == {*left}


@pytest.mark.slow
@pytest.mark.parametrize("negative", [False, True])
def test_a_filter_over_many_rows(negative):
    """With thousands of rows as well, whatever the signs."""
    rows = seeded(4000, dimensions=200, weights=20, negative=negative)
    fields = [YEARS[number % 3] for number in range(len(rows))]
    index = index_of(rows, fields)
    index.delete(list(rows)[::5])
    left = {key: vector for at, (key, vector) in enumerate(rows.items()) if at % 5 and at % 3 != 1}
    assert 0 < len(left) < len(rows)
    for query in seeded(8, dimensions=200, weights=8, negative=negative, seed=2).values():
        assert index.state.search(query, 10, filter=FILTER) == plain(left, query, 10)


@given(
    st.lists(st.tuples(st.text("abcd", min_size=1, max_size=2), st.none() | _vectors), max_size=40),
    _vectors,
)
def test_an_index_that_grows_and_shrinks_is_always_exact(changes, query):
    """After each addition, replacement and deletion it holds and ranks what is there."""
    index, rows = SparseIndex(), {}
    for key, vector in changes:
        if vector is None:
            assert index.delete([key, key, "unknown"]) == (rows.pop(key, None) is not None)
        else:
            index.add([key], [vector])
            rows[key] = vector
    assert len(index) == len(rows)
    assert index.state.search(query, 100) == plain(rows, query, 100)
    assert {key: vector for key, vector, _ in index.state.get(list(rows))} == rows


def test_pages_come_in_the_order_of_keys():
    """Whatever order rows were written and deleted in, over all parts."""
    index = SparseIndex()
    names = [f"{number * 37 % 101:03d}" for number in range(101)]
    for start in range(0, 101, 20):
        some = names[start : start + 20]
        index.add(some, [{1: 1.0}] * len(some), [{"year": int(name)} for name in some])
    index.delete(names[:10])
    seen, last = [], ""
    while page := index.state.page(last, 7):
        assert len(page) <= 7
        seen += page
        last = page[-1][0]
    assert [(key, fields["year"]) for key, _, fields in seen] == [
        (name, int(name)) for name in sorted(names[10:])
    ]


def test_vectors_come_back_as_they_were_written():
    """Dimensions to the largest, weights as float32, without zeros; an empty vector stays, and is
    not found.
    """
    index = SparseIndex()
    index.add(["a", "b", "c"], [{2**64 - 1: 0.1, 0: -2.0, 5: 0.0}, {}, {5: 1e-60}])
    read = {key: vector for key, vector, _ in index.state.get(["a", "b", "c"])}
    assert read == {"a": {0: -2.0, 2**64 - 1: float(np.float32(0.1))}, "b": {}, "c": {}}
    assert [key for key, _ in index.state.search({0: 1.0, 5: 1.0, 2**64 - 1: 1.0}, 10)] == ["a"]
    assert (
        index.state.search({}, 10)
        == index.state.search({77: 1.0}, 10)
        == index.state.search({0: 0.0}, 10)
        == []
    )


def test_a_part_is_the_same_over_a_file():
    """Written as an array file and opened again it has equal rows, and nothing of it was copied."""
    rows = seeded(50, dimensions=40, weights=6)
    part = SparsePart.of_rows(list(rows), list(rows.values()), [YEARS[0]] * 50)
    name, pieces = encoded(part.arrays())
    opened = SparsePart.from_arrays(decoded(joined(pieces), name))
    assert [opened.vector(at) for at in range(50)] == list(rows.values())
    assert opened.find(encoded_keys(["k00007", "x"])).tolist() == [7, -1]
    for array in (opened.dimensions, opened.postings.values, opened.positions, opened.lowest):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    "name", ["dimensions", "weights", "places", "row_starts", "highest", "starts"]
)
def test_arrays_that_do_not_go_together_are_refused(name):
    """A missing array, or one of another length, is a StoreError."""
    arrays = SparsePart.of_rows(["a", "b"], [{1: 1.0}, {2: 1.0}]).arrays()
    with pytest.raises(StoreError, match="damaged"):
        SparsePart.from_arrays(arrays | {name: arrays[name][:0]})
    del arrays[name]
    with pytest.raises(StoreError, match=name):
        SparsePart.from_arrays(arrays)


@pytest.mark.parametrize(
    "bad", [{-1: 1.0}, {1.5: 1.0}, {2**64: 1.0}, {1: math.nan}, {1: 1e39}, {1: "much"}]
)
def test_what_is_no_sparse_vector_is_refused(bad):
    """A ConfigError, and nothing is added; in a query as well."""
    index = index_of({"a": {1: 1.0}})
    with pytest.raises(ConfigError, match=r"(?i)sparse vector"):
        index.add(["b", "c"], [{1: 1.0}, bad])
    with pytest.raises(ConfigError, match=r"(?i)sparse vector"):
        index.state.search(bad, 1)
    assert len(index) == 1


def test_topk_is_at_least_1():
    """Asking for nothing is an error."""
    part = SparsePart.of_rows(["a"], [{1: 1.0}])
    with pytest.raises(ConfigError, match="topk"):
        SparseState([part], [None]).search({1: 1.0}, 0)
