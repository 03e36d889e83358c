"""Parts of a lexical index: however rows are dealt to them, written, opened and joined, the answers
are the same.
"""

from __future__ import annotations

import gc
import random
import weakref
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Condition
from lazyrag.errors import StoreError
from lazyrag.indexes import bm25
from lazyrag.indexes.bm25 import BM25, LexicalIndex, LexicalState, TermPart
from lazyrag.indexes.postings import Vocabulary
from lazyrag.indexes.tiers import tail_to_join, tidied, without
from lazyrag.storage.arrays import ArrayFiles

LUCENE, OKAPI = BM25(), BM25(variant="okapi")
EVEN = Condition("number", "eq", 0)
FILES = [{"number": 0}, {"number": 1}]
TERMS = ["tea", "绿", "茶", "绿茶", "cup", "x"]

_rows = st.lists(
    st.tuples(st.lists(st.sampled_from(TERMS), max_size=6), st.booleans()), min_size=1, max_size=14
)
_cuts = st.lists(st.integers(0, 14), max_size=4)
_queries = st.lists(st.sampled_from([*TERMS, "unheard"]), min_size=1, max_size=4)


def _fields(number: int) -> dict[str, int]:
    return FILES[number % 2]


def _dealt(rows, cuts) -> tuple[list[TermPart], list[np.ndarray]]:
    """The rows in parts, some of them perhaps without rows, and the masks of those that live."""
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts, masks = [], []
    for start, end in pairwise(bounds):
        own = range(start, end)
        keys = [f"k{(number * 5) % 17:02d}" for number in own]
        parts.append(
            TermPart.of_rows(keys, [rows[at][0] for at in own], [_fields(at) for at in own])
        )
        masks.append(np.array([rows[at][1] for at in own], np.bool_))
    return parts, masks


def _answers(state: LexicalState, query: list[str]) -> list[object]:
    """All that a state says to a query."""
    found: list[object] = [state.live, state.tokens]
    for model in (LUCENE, OKAPI):
        found += [state.statistics(query, model)]
        found += [
            state.search(query, topk, model=model, filter=wanted)
            for topk in (1, 3, 99)
            for wanted in (None, EVEN)
        ]
    return found


@given(_rows, _cuts, _queries)
def test_answers_do_not_depend_on_the_parts(rows, cuts, query):
    """Dead rows in any parts, joined parts, opened parts and a fresh part of the live rows say the
    same to the bit.
    """
    parts, masks = _dealt(rows, cuts)
    live = [at for at, (_, lives) in enumerate(rows) if lives]
    keys = [f"k{(number * 5) % 17:02d}" for number in live]
    fresh = TermPart.of_rows(keys, [rows[at][0] for at in live], [_fields(at) for at in live])
    expected = _answers(LexicalState([fresh], [None]), query)

    assert _answers(LexicalState(parts, masks), query) == expected
    joined = TermPart.joined(parts, masks)
    assert len(joined) == len(live)
    assert _answers(LexicalState([joined], [None]), query) == expected
    opened = [TermPart.from_arrays(part.arrays()) for part in parts]
    assert _answers(LexicalState(opened, masks), query) == expected
    twice = TermPart.joined(
        [TermPart.joined(opened[:2], [None] * len(opened[:2])), *opened[2:]],
        [None] * (len(opened[2:]) + 1),
    )
    assert _answers(LexicalState([twice], [np.concatenate(masks)]), query) == expected


@given(_rows, _cuts)
def test_joining_whole_parts_is_the_part_of_all_rows(rows, cuts):
    """The same arrays as if the rows had come at once, so that the same content gets the same
    file.
    """
    parts, _ = _dealt(rows, cuts)
    whole, _ = _dealt(rows, [])
    joined, expected = TermPart.joined(parts, [None] * len(parts)).arrays(), whole[0].arrays()
    assert joined.keys() == expected.keys()
    for name, array in expected.items():
        assert joined[name].dtype == array.dtype
        assert joined[name].tolist() == array.tolist()


def test_parts_are_joined_on_the_disk_as_in_memory(tmp_path):
    """What is moved is given back piece by piece: no posting may be lost with it, in parts, room or
    file.
    """
    files = ArrayFiles(tmp_path / "store.d")
    chance = np.random.default_rng(1)
    parts = []
    for first in (0, 4000, 8000):
        codes = chance.integers(0, 4000, 600_000)
        rows = chance.integers(0, 4000, 600_000).astype(np.int32)
        keys = [f"{first + row:05d}-1" for row in range(4000)]
        part = TermPart.of_codes(
            keys, [(codes, rows, 4000)], lambda found: [f"t{code}" for code in found.tolist()]
        )
        parts.append(TermPart.from_arrays(files.open(files.write(part.arrays()))))
    expected = TermPart.joined(parts, [None] * 3).arrays()
    joined = TermPart.joined(parts, [None] * 3, files.scratch)
    assert isinstance(joined.postings.rows.base, np.memmap)
    name = files.write(joined.arrays())
    assert files.check(name) == ""
    for found in (joined.arrays(), files.open(name)):
        for own, array in expected.items():
            assert np.array_equal(found[own], array)


@pytest.mark.slow
@given(
    _rows,
    st.lists(st.tuples(_cuts, st.randoms(use_true_random=False), _queries), min_size=2, max_size=4),
)
def test_what_a_state_takes_over_changes_no_answer(rows, steps):
    """A chain of states, each made after the one before it, with other parts or other live rows."""
    parts, _ = _dealt(rows, [5])
    previous = None
    for cuts, chance, query in steps:
        if chance.random() < 0.3:
            parts, _ = _dealt(rows, cuts)
        masks = [
            np.array([chance.random() < 0.7 for _ in range(len(part))], np.bool_) for part in parts
        ]
        state = LexicalState(parts, masks, previous)
        assert _answers(state, query) == _answers(LexicalState(parts, masks), query)
        previous = state


@pytest.fixture
def made(monkeypatch):
    """How many postings each part had whose term contributions were computed."""
    sizes = []
    original = bm25._contributions

    def spy(postings, norms):
        sizes.append(len(postings.rows))
        return original(postings, norms)

    monkeypatch.setattr(bm25, "_contributions", spy)
    return sizes


def test_what_still_holds_is_not_worked_out_again(made):
    """Where the mean length stays as it was, parts that stay keep their contributions; a new part
    gets its own.
    """
    first, second = TermPart.of_rows(["a"], [["x", "y"]]), TermPart.of_rows(["b"], [["x", "z"]])
    state = LexicalState([first], [None])
    before = state.search(["x"], 5)
    assert made == [2]
    later = LexicalState([first, second], [None, None], state)
    assert [key for key, _ in later.search(["x"], 5)] == ["a", "b"]
    assert made == [2, 2]
    longer = LexicalState([first, TermPart.of_rows(["c"], [["x"] * 8])], [None, None], later)
    longer.search(["x"], 5)
    assert made == [2, 2, 2, 1]
    assert state.search(["x"], 5) == before


@pytest.mark.slow
def test_a_mean_length_that_moves_a_little_costs_nothing(made):
    """Shares of a nearly equal mean name the candidates, through states without a question, too;
    the scores are those of the present mean, bit for bit. Where small steps have added up to a
    large one, they are worked out again.
    """
    chance = random.Random(1)
    words = [f"w{number}" for number in range(40)]
    rows = [chance.choices(words, k=chance.randint(5, 30)) for _ in range(2000)]
    part = TermPart.of_rows([f"{number:04d}" for number in range(2000)], rows)
    state = LexicalState([part], [None])
    state.search(["w1"], 3)
    assert len(made) == 1
    parts, worked_out = [part], []
    for step in range(60):
        parts = [*parts, TermPart.of_rows([f"n{step}"], [["w1"] * 40])]
        state = LexicalState(parts, [None] * len(parts), state)
        if step % 2:
            continue
        del made[:]
        for query in (["w1"], ["w1", "w2", "w3"], ["w4", "w9"]):
            found = state.search(query, 10)
            worked_out += [size for size in made if size == len(part.postings.rows)]
            assert found == LexicalState(parts, [None] * len(parts)).search(query, 10)
            del made[:]
    assert 1 <= len(worked_out) <= 15


@pytest.mark.slow
def test_a_state_does_not_keep_the_one_before_it():
    """A chain of thousands of states must not grow."""
    part = TermPart.of_rows(["a", "b"], [["x"], ["y"]])
    first = LexicalState([part], [None])
    first.search(["x"], 1)
    gone = weakref.ref(first)
    second = LexicalState([part], [None], first)
    del first
    gc.collect()
    assert gone() is None
    assert second.search(["x"], 1)[0][0] == "a"


def test_an_opened_part_is_read_where_it_lies(tmp_path):
    """Nothing is copied or decoded on opening; answers equal those before it was written."""
    terms = [[f"t{number % 50}", f"u{number % 7}", "tea"] for number in range(3000)]
    part = TermPart.of_rows([f"{number:05d}-1" for number in range(3000)], terms)
    files = ArrayFiles(tmp_path / "store.d")
    arrays = files.open(files.write(part.arrays()))
    opened = TermPart.from_arrays(arrays)
    state = LexicalState([opened], [None])
    assert len(opened) == len(state) == 3000
    assert opened.vocabulary._terms is None
    for name, own in (
        ("keys", opened.keys), ("rows", opened.postings.rows), ("counts", opened.postings.values),
        ("starts", opened.postings.starts), ("lengths", opened.lengths),
    ):  # fmt: skip
        assert np.shares_memory(own, arrays[name])
    assert _answers(state, ["tea", "t3", "u1"]) == _answers(
        LexicalState([part], [None]), ["tea", "t3", "u1"]
    )


@pytest.mark.parametrize("times", [1, 255, 256, 65_535, 65_536])
def test_a_term_may_stand_any_number_of_times(times):
    """Counts are as wide as they need to be, and no narrower: in memory, opened, joined with
    narrower ones.
    """
    part = TermPart.of_rows(["a"], [["x"] * times])
    other = TermPart.of_rows(["b"], [["x"]])
    assert part.postings.values.tolist() == [times]
    assert part.arrays()["counts"].itemsize == (1 if times < 256 else 2 if times < 65_536 else 4)
    assert TermPart.joined([other, part], [None, None]).postings.values.tolist() == [1, times]
    [(_, score)] = LexicalState([part], [None]).search(["x"], 1)
    # ln(4 / 3), length is the mean
    assert score == pytest.approx(0.28768207245178085 * times / (times + 1.5))


@given(st.lists(st.text(st.characters(codec=None), max_size=5), unique=True, max_size=8))
def test_a_vocabulary_comes_back_from_its_text(terms):
    """Any text is a term, half a surrogate pair and the empty one included."""
    arrays = Vocabulary(terms).arrays()
    older = {"vocabulary": arrays["vocabulary"]}  # files of earlier releases have no more
    wanted = [*terms, "", '"', ","]
    for again in map(Vocabulary.from_arrays, (arrays, older)):
        assert again.find(wanted) == [terms.index(term) if term in terms else -1 for term in wanted]
        assert again.terms() == terms


@pytest.mark.parametrize(
    "name", ["keys", "field_ids", "fields", "lengths", "vocabulary", "starts", "rows", "counts"]
)
def test_a_part_without_one_of_its_arrays_is_refused(name):
    """The error names what is missing and what to do."""
    arrays = TermPart.of_rows(["a"], [["x"]]).arrays()
    assert len(arrays) == 11
    del arrays[name]
    with pytest.raises(StoreError, match=f"lacks the arrays {name};.*build the index again"):
        TermPart.from_arrays(arrays)


@pytest.mark.parametrize(
    "name", ["field_ids", "lengths", "starts", "rows", "counts", "term_ends", "terms_by_crc"]
)
def test_a_part_whose_arrays_do_not_go_together_is_refused(name):
    """One of another part's in their midst is found on opening."""
    arrays = TermPart.of_rows(["a", "b"], [["x"], ["x", "y"]]).arrays()
    with pytest.raises(StoreError, match="A part of an index has"):
        TermPart.from_arrays(arrays | {name: arrays[name][:-1]})
    with pytest.raises(StoreError, match="A part of an index has"):
        TermPart.from_arrays(arrays | {name: arrays[name][:0]})


def test_a_state_outlives_the_changes_of_its_index():
    """Who holds a state sees the rows that lived then, whatever is added, deleted and joined
    afterwards.
    """
    index = LexicalIndex()
    index.add(["a", "b"], [["x"], ["x", "y"]])
    state = index.state
    before = _answers(state, ["x", "y"])
    index.delete(["a"])
    for number in range(50):
        index.add([f"n{number}"], [["x"]])
    assert _answers(state, ["x", "y"]) == before
    assert index.state.live == 51


def test_deleting_and_finding_leave_the_masks_that_were_given():
    """New masks are made; those of an earlier state are not touched; a dead row does not die
    again.
    """
    parts = [TermPart.of_rows(["b", "a"], [["x"], ["y"]]), TermPart.of_rows(["c"], [["x"]])]
    keys = parts[0].keys
    first, gone = without(parts, [None, None], keys[:1])
    assert (first[0].tolist(), first[1], gone) == ([False, True], None, 1)
    second, gone = without(parts, first, keys)
    assert (second[0].tolist(), first[0].tolist(), gone) == ([False, False], [False, True], 1)
    assert without(parts, second, keys) == (second, 0)


@given(st.lists(st.integers(1, 1000), max_size=12), st.integers(1, 16), st.floats(0, 1))
def test_the_tail_that_is_joined_leaves_parts_in_tiers(sizes, most, share):
    """What is left is at most so many parts; the joined one is at most half of the one before it,
    and no part that could have stayed is joined.
    """
    live = round(share * sum(sizes))
    count = tail_to_join(sizes, live, most)
    if 2 * live < sum(sizes):
        assert count == len(sizes)
        return
    assert count != 1
    stay, joined = sizes[: len(sizes) - count], sum(sizes[len(sizes) - count :])
    left = [*stay, joined] if count else sizes
    assert len(left) <= max(most, 1)
    if len(left) > 1:
        assert left[-2] >= 2 * left[-1]


@given(st.lists(st.integers(1, 1000), max_size=12), st.integers(1, 16), st.integers(1, 1000))
def test_full_parts_stay(sizes, most, full):
    """What stands behind the last full part is joined as if nothing stood before it, so no more
    than that is moved.
    """
    at = max((number for number, size in enumerate(sizes, start=1) if size >= full), default=0)
    behind = sizes[at:]
    assert tail_to_join(sizes, sum(sizes), most, full=full) == tail_to_join(
        behind, sum(behind), most
    )
    assert tail_to_join(sizes, 0, most, full=full) == len(sizes)  # all are dead


@pytest.mark.slow
def test_rows_are_moved_a_logarithmic_number_of_times():
    """A thousand rows that come one by one are written eleven times each at most, and leave few
    parts.
    """
    parts, alive, moved = [], [], []

    def join(some, masks):
        moved.append(sum(map(len, some)))
        return TermPart.joined(some, masks)

    for number in range(1000):
        parts, alive = tidied(
            [*parts, TermPart.of_rows([str(number)], [["x"]])], [*alive, None], join, most=16
        )
    assert sum(map(len, parts)) == 1000
    assert len(parts) <= 10
    assert sum(moved) <= 11 * 1000


class TestScopes:
    """`LexicalState.restricted_to`: an index that never held what a filter leaves out."""

    def test_equal_to_an_index_of_what_is_left(self):
        """Rankings and scores are the same floats, however much longer or shorter the texts that
        are left are.
        """
        rng = random.Random(5)
        words = [f"w{number}" for number in range(60)]
        rows = [
            (
                f"{number:04}",
                rng.choices(words, k=rng.randint(1, 6) if number % 3 else rng.randint(30, 90)),
                number % 3,
            )
            for number in range(600)
        ]
        fields = [{"kind": kind} for _, _, kind in rows]
        keys, terms = [key for key, _, _ in rows], [some for _, some, _ in rows]
        half = len(rows) // 2
        parts = [
            TermPart.of_rows(keys[:half], terms[:half], fields[:half]),
            TermPart.of_rows(keys[half:], terms[half:], fields[half:]),
        ]
        whole = LexicalState(parts, [None, None])
        for kind in range(3):
            own = [at for at, (_, _, one) in enumerate(rows) if one == kind]
            alone = LexicalState(
                [TermPart.of_rows([keys[at] for at in own], [terms[at] for at in own])], [None]
            )
            scoped = whole.restricted_to(Condition("kind", "eq", kind))
            for query in (["w1"], ["w2", "w3", "w3"], words[:8]):
                for model in (BM25(), BM25(variant="okapi"), BM25(k1=0.9, b=1.0)):
                    assert scoped.statistics(query, model) == alone.statistics(query, model)
                    assert scoped.search(query, 7, model=model) == alone.search(
                        query, 7, model=model
                    )

    def test_kept_by_last_use(self):
        """The scopes that were used last are kept, and keep no number for each posting."""
        part = TermPart.of_rows(["a", "b"], [["tea"], ["tea", "salt"]], [{"kind": 1}, {"kind": 2}])
        whole = LexicalState([part], [None])
        first = whole.restricted_to(Condition("kind", "eq", 1))
        for number in range(2, 80):
            whole.restricted_to(Condition("kind", "ne", number))
            assert whole.restricted_to(Condition("kind", "eq", 1)) is first
        assert whole.restricted_to(Condition("kind", "ne", 79)).search(["tea"], 5)
        first.search(["tea"], 5)
        [own], [shared] = first._saturations.values(), whole._saturations.values()
        assert own[0].contributions is shared[0].contributions
