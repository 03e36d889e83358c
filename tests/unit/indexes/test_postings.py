"""The rows of an index: blocks that never change, which rows live, filters' masks, the best of many
scores.
"""

from __future__ import annotations

import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Condition, Not
from lazyrag.data.filters import And, Or, matches
from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes.postings import (
    FieldTable,
    LiveRows,
    RowBlock,
    best_rows,
    contenders,
    decoded_keys,
    encoded_keys,
    ranked,
)

SEVEN = Condition("n", "eq", 7)
# every character there is, half surrogate pairs included
_ANY_CHARACTER = st.characters(codec=None)
_KEYS = st.lists(
    st.text(_ANY_CHARACTER, max_size=6).filter(lambda key: not key.endswith("\0")),
    unique=True,
    max_size=8,
)
_VALUES = (
    st.none() | st.text(_ANY_CHARACTER, max_size=5) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.text(max_size=3), max_size=3).map(tuple)
)  # fmt: skip
_FIELDS = st.dictionaries(st.sampled_from(["n", "作者", "a b"]), _VALUES, max_size=3)


@given(_KEYS)
def test_keys_are_kept_and_sort_as_text(keys):
    """Any text but one that ends in a NUL comes back as it was, and the order of the bytes is that
    of the texts.
    """
    encoded = encoded_keys(keys)
    assert decoded_keys(encoded) == keys
    assert decoded_keys(np.sort(encoded)) == sorted(keys)


def test_a_key_that_ends_in_a_nul_is_refused():
    """Numpy would cut it, and two keys become one."""
    with pytest.raises(ConfigError, match="NUL"):
        encoded_keys(["a", "a\0"])
    assert decoded_keys(encoded_keys(["a\0b"])) == ["a\0b"]


def _typed(fields):
    """Fields with the types of their values, which equality would not tell apart."""
    return [{name: (type(value), value) for name, value in one.items()} for one in fields]


@given(st.lists(_FIELDS, max_size=6))
def test_fields_come_back_from_their_text_as_they_were(fields):
    """Every value that a field can hold, its type included."""
    table = FieldTable.of_text(FieldTable(fields).text())
    assert _typed(table.values()) == _typed(fields)
    assert table.lines() == FieldTable(fields).lines()


_CONDITIONS = st.builds(
    Condition, st.sampled_from("ab"), st.sampled_from(["eq", "ne"]), st.sampled_from([None, 0, 1])
) | st.builds(Condition, st.sampled_from("ab"), st.just("exists"), st.booleans())
_FILTERS = st.recursive(
    _CONDITIONS,
    lambda parts: (
        st.builds(lambda some: And(*some), st.lists(parts, max_size=3))
        | st.builds(lambda some: Or(*some), st.lists(parts, max_size=3))
        | st.builds(Not, parts)
    ),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from([None, 0, 1, (1, 2)]))),
    _FILTERS,
)
def test_a_mask_says_what_the_reference_says(fields, bound_filter):
    """Of new rows, of rows that were read from arrays, and of joined ones."""
    block = RowBlock.of([f"{number:02}" for number in range(len(fields))], fields)
    expected = [matches(bound_filter, line) for line in fields]
    stored = RowBlock.from_arrays(block.arrays())
    for rows in (block, stored, RowBlock.joined([stored])):
        assert rows.mask(bound_filter).tolist() == expected


def test_a_filter_keeps_one_column_of_the_fields():
    """Of 20,000 lines of 200 bytes it keeps the numbers of the values, and the values once."""
    fields = [{"year": 2000 + number % 20, "title": f"{number:0200}"} for number in range(20_000)]
    stored = RowBlock.of([f"{number:05}" for number in range(20_000)], fields).arrays()
    block = RowBlock.from_arrays(stored)
    tracemalloc.start()
    try:
        assert block.mask(Condition("year", "eq", 2003)).sum() == 1_000
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * len(fields)
    assert peak < 100 * len(fields)


@given(_KEYS, _KEYS)
def test_a_block_finds_its_keys_and_no_others(keys, others):
    """Also keys that are longer than all of its own, or begin with one of them; from its arrays as
    well.
    """
    block = RowBlock.of(keys, None)
    wanted = [
        *others,
        *keys,
        *(key + "x" for key in keys),
        *(key[:-1] for key in keys if not key[:-1].endswith("\0")),
    ]
    expected = [keys.index(key) if key in keys else -1 for key in wanted]
    for one in (block, RowBlock.from_arrays(block.arrays())):
        assert one.find(encoded_keys(wanted)).tolist() == expected


def test_joined_blocks_share_the_lines_of_equal_fields():
    """Equal fields of two blocks are one line; fields without rows are left out; every row keeps
    its own.
    """
    fields = [{"n": 1}, {"n": 2}, {"n": 3}]
    first = RowBlock.of(["a", "b", "c"], fields)
    second = RowBlock.of(["dd", "e"], [{"n": 3}, {"n": True}])
    block = RowBlock.joined([first.select(np.array([True, False, True])), second])
    assert decoded_keys(block.keys) == ["a", "c", "dd", "e"]
    assert block.fields.lines() == ['{"n":1}', '{"n":3}', '{"n":true}']
    assert [block.fields.values()[number]["n"] for number in block.field_ids] == [1, 3, 3, True]


@pytest.mark.parametrize("missing", ["keys", "field_ids", "fields"])
def test_a_block_without_one_of_its_arrays_is_refused(missing):
    """The error names what is missing."""
    arrays = RowBlock.of(["a"], None).arrays()
    del arrays[missing]
    with pytest.raises(StoreError, match=f"lacks the arrays {missing}"):
        RowBlock.from_arrays(arrays)


def test_a_block_whose_arrays_do_not_go_together_is_refused():
    """As many numbers of fields as keys, which are bytes."""
    arrays = RowBlock.of(["a", "b"], None).arrays()
    for other in ({"keys": arrays["keys"][:1]}, {"keys": np.arange(2)}):
        with pytest.raises(StoreError, match="keys"):
            RowBlock.from_arrays(arrays | other)


def _live(*parts: tuple[str, list | None, list | None]) -> LiveRows:
    """Rows whose keys are single letters, with fields and masks."""
    blocks = [RowBlock.of(list(keys), fields) for keys, fields, _ in parts]
    return LiveRows(
        blocks, [None if mask is None else np.array(mask, np.bool_) for _, _, mask in parts]
    )


def test_rows_are_numbered_on_from_part_to_part():
    """Keys are found by number in any order, over parts with keys of any width and parts without
    rows.
    """
    rows = LiveRows(
        [RowBlock.of(keys, None) for keys in (["a", "b"], [], ["绿茶"], ["d", "e"])], [None] * 4
    )
    assert len(rows) == rows.live == 5
    assert rows.keys(np.array([4, 0, 2, 1])) == ["e", "a", "绿茶", "b"]
    assert rows.keys(np.array([], np.intp)) == []
    assert LiveRows([], []).keys(np.array([], np.intp)) == []


def test_fields_of_one_file_are_evaluated_once(monkeypatch):
    """Rows that share a Fields object share its verdict, and the next rows over the same block ask
    nothing again.
    """
    asked = []

    def spy(filter, fields):  # noqa: A002  as in the package
        asked.append(fields["n"])
        return matches(filter, fields)

    monkeypatch.setattr("lazyrag.indexes.postings.matches", spy)
    shared, other = {"n": 7}, {"n": 8}
    block = RowBlock.of([str(number) for number in range(100)], [shared] * 60 + [other] * 40)
    assert LiveRows([block], [None]).mask(SEVEN).tolist() == [True] * 60 + [False] * 40
    assert LiveRows([block], [np.arange(100) > 50]).mask(SEVEN).sum() == 9
    assert asked == [7, 8]


def test_a_mask_leaves_dead_rows_out():
    """With or without a filter only live rows are let through; no mask is needed where all are."""
    fields = [{"n": 7}, {"n": 7}, {"n": 8}]
    assert _live(("abc", fields, None), ("d", None, [True])).mask(None) is None
    rows = _live(("abc", fields, [False, True, True]), ("d", [{"n": 7}], None))
    assert rows.live == 3
    assert rows.mask(None).tolist() == [False, True, True, True]
    assert rows.mask(SEVEN).tolist() == [False, True, False, True]
    assert rows.mask(Not(SEVEN)).tolist() == [False, False, True, False]
    assert _live(("", None, None)).mask(SEVEN).tolist() == []


def test_more_filters_than_are_remembered_are_answered_right():
    """Each of 200 filters gets its own mask, also when asked again."""
    fields = [{"n": number} for number in range(10)]
    block = RowBlock.of(list("abcdefghij"), fields)
    for _ in range(2):
        for number in range(200):
            wanted = Condition("n", "ge", number % 10)
            assert block.mask(wanted).tolist() == [matches(wanted, one) for one in fields]


def test_the_last_filters_are_remembered():
    """After many filters the newest one's mask is kept, the oldest one's is not, and memory stays
    bounded.
    """
    block = RowBlock.of(list("abc"), [{"n": 1}, {"n": 2}, {"n": 3}])
    wanted = [Condition("n", "ge", number) for number in range(200)]
    made = [block.mask(one) for one in wanted]
    assert block.mask(wanted[-1]) is made[-1]
    assert block.mask(wanted[0]) is not made[0]
    assert len(block.masks) < 100


def test_filters_may_be_asked_by_several_threads():
    """Threads that push each other's masks out all get right ones."""
    fields = [{"n": number} for number in range(10)]
    block = RowBlock.of(list("abcdefghij"), fields)

    def ask(thread: int) -> list[int]:
        return [
            int(block.mask(Condition("n", "ge", turn % 10 + thread * 1e-6 * turn)).sum())
            for turn in range(400)
        ]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            counts = list(pool.map(ask, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert counts[0] == [10 - turn % 10 for turn in range(400)]
    assert counts[1][1:] == [
        sum(n >= turn % 10 + 1e-6 * turn for n in range(10)) for turn in range(1, 400)
    ]
    assert len(block.masks) < 100


def test_without_fields_everything_is_missing():
    """Rows that were added without fields meet a filter that asks for missing values."""
    block = RowBlock.of(["a", "b"], None)
    assert block.mask(Condition("n", "eq", None)).tolist() == [True, True]
    assert block.mask(SEVEN).tolist() == [False, False]


def _scores(size: int, zeros: float, levels: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, levels + 1, size).astype(np.float32) / levels
    scores[rng.random(size) < zeros] = 0.0
    return scores


@given(
    st.sampled_from([0, 1, 63, 64, 65, 320, 321, 640, 2000]),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    st.sampled_from([1, 3, 1000]),
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5, 40, 3000]),
    st.sampled_from([0.0, 0.01]),
)
def test_no_row_that_can_be_among_the_best_is_left_out(size, zeros, levels, seed, topk, slack):
    """Every row whose score is at least the topk-th best, less the error, is there; rows with 0
    never are.
    """
    scores = _scores(size, zeros, levels, seed)
    found = best_rows(scores, topk, slack=slack)
    assert len(set(found.tolist())) == len(found)
    positive = np.sort(scores[scores > 0])[::-1].astype(np.float64)
    bound = positive[topk - 1] * (1 - slack) if len(positive) >= topk else 0.0
    needed = set(
        np.flatnonzero((scores > 0) & (scores.astype(np.float64) >= bound + 1e-6)).tolist()
    )
    if len(positive) < topk:
        needed = set(np.flatnonzero(scores).tolist())
    assert needed <= set(found.tolist())
    assert (scores[found] > 0).all()
    at_bound = {
        number
        for number in np.flatnonzero(scores).tolist()
        if len(positive) >= topk and scores[number] == positive[topk - 1]
    }
    assert at_bound <= set(found.tolist())


@given(
    st.sampled_from([320, 700, 2000]),
    st.sampled_from([0.0, 0.5, 0.99]),
    st.sampled_from([3, 1000]),
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5, 40]),
    st.sampled_from([0.0, 0.1, 0.5, 1.5]),
    st.sampled_from([None, 3, 60]),
)
def test_whatever_is_added_the_best_are_among_the_contenders(
    size, zeros, levels, seed, topk, missing, max_candidates
):
    """Rows that reach the topk best once up to a known amount is added to each score are all named,
    or none is.
    """
    scores = _scores(size, zeros, levels, seed)
    found = contenders(scores, topk, slack=1e-6, missing=missing, max_candidates=max_candidates)
    if found is None:
        return
    assert max_candidates is None or len(found) <= max_candidates
    assert len({*found.tolist()}) == len(found) >= topk
    rng = np.random.default_rng(seed)
    for added in (rng.random(size) * missing, (rng.random(size) < 0.5) * missing):
        final = scores + added
        best = final >= np.sort(final)[::-1][topk - 1]
        assert {*np.flatnonzero(best).tolist()} <= {*found.tolist()}


def test_contenders_are_named_only_where_they_are_few_and_certain():
    """A few rows far ahead are the contenders; none are named if rows with 0 could win or too many
    are close.
    """
    scores = np.zeros(10_000, np.float32)
    scores[:5000] = 0.2
    scores[[7, 70, 700, 7000]] = [3.0, 2.0, 2.5, 1.9]
    assert sorted(contenders(scores, 2, slack=0.0, missing=0.5).tolist()) == [7, 70, 700]
    assert sorted(contenders(scores, 2, slack=0.0, missing=0.5, max_candidates=3).tolist()) == [
        7,
        70,
        700,
    ]
    assert contenders(scores, 2, slack=0.0, missing=0.5, max_candidates=2) is None
    assert contenders(scores, 2, slack=0.0, missing=2.5) is None
    assert contenders(scores, 2, slack=0.0, missing=2.4, max_candidates=100) is None
    assert len(contenders(scores, 2, slack=0.0, missing=2.4)) == 5001


def test_few_rows_are_left_to_look_at():
    """From a hundred thousand rows with distinct scores, about as many are kept as asked for."""
    scores = np.random.default_rng(3).permutation(100_000).astype(np.float32)
    assert (
        sorted(best_rows(scores, 10, slack=0.0).tolist(), key=lambda row: -scores[row])
        == np.argsort(-scores)[:10].tolist()
    )


@pytest.mark.parametrize(
    ("topk", "expected", "named"),
    [
        (1, [("a", 2.0)], [0, 3]),
        (3, [("a", 2.0), ("b", 2.0), ("d", 1.0)], [0, 3, 4]),
        (9, [("a", 2.0), ("b", 2.0), ("d", 1.0), ("c", -1.0)], [0, 2, 3, 4]),
    ],
)
def test_a_ranking_is_ordered_by_score_then_key(topk, expected, named):
    """At most topk of them, as Python numbers; only rows that may be among them are asked for their
    keys.
    """
    keys = ["b", "x", "c", "a", "d"]
    asked = []

    def names(rows):
        asked.extend(rows.tolist())
        return [keys[row] for row in rows]

    found = ranked(names, np.array([0, 2, 3, 4]), np.array([2.0, -1.0, 2.0, 1.0]), topk)
    assert found == expected
    assert asked == named
    assert all(type(score) is float for _, score in found)
