"""The lexical index: held to rank_bm25 and bm25s after any history of changes."""

from __future__ import annotations

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from lazyrag import Condition, Not
from lazyrag.errors import ConfigError
from lazyrag.indexes import bm25, rare_terms
from lazyrag.indexes.bm25 import BM25, LexicalIndex, LexicalState

LUCENE, OKAPI = BM25(), BM25(variant="okapi")
MODELS = pytest.mark.parametrize("model", [LUCENE, OKAPI], ids=lambda one: one.variant)


def _by_rank_bm25(documents: list[list[str]], query: list[str], model: BM25) -> list[float]:
    with np.errstate(invalid="ignore"):  # where b is 1 it divides 0 by 0 for empty rows
        return BM25Okapi(documents, k1=model.k1, b=model.b).get_scores(query).tolist()


def _by_bm25s(documents: list[list[str]], query: list[str], model: BM25) -> list[float]:
    oracle = bm25s.BM25(method="lucene", k1=model.k1, b=model.b, dtype="float64")
    oracle.index(documents, show_progress=False)
    return oracle.get_scores(query).tolist()


def _expected(held: dict[str, list[str]], query: list[str], model: BM25) -> dict[str, float]:
    """Score of every row that shares a term with the query."""
    documents = list(held.values())
    if not any(documents) or not query:
        return {}
    oracle = _by_bm25s if model.variant == "lucene" else _by_rank_bm25
    scores = dict(zip(held, oracle(documents, query, model), strict=True))
    return {key: score for key, score in scores.items() if not set(query).isdisjoint(held[key])}


def _check(index: LexicalIndex, held: dict[str, list[str]], query: list[str], model: BM25) -> None:
    """The index ranks exactly the rows that share a term, with the oracle's scores, best first,
    ties by key.
    """
    expected = _expected(held, query, model)
    found = index.state.search(query, len(held) + 5, model=model)
    assert dict(found) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert found == sorted(found, key=lambda item: (-item[1], item[0]))
    assert len(found) == len(expected)
    for topk in (1, 2, 5):
        assert index.state.search(query, topk, model=model) == found[:topk]


_documents = st.lists(st.sampled_from(["tea", "绿", "茶", "绿茶", "cup", "x"]), max_size=8)
_keys = st.sampled_from([f"k{number}" for number in range(12)])
_changes = st.lists(
    st.tuples(st.just("add"), st.dictionaries(_keys, _documents, min_size=1, max_size=6))
    | st.tuples(st.just("delete"), st.lists(_keys, min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)
_queries = st.lists(st.sampled_from(["tea", "绿", "茶", "cup", "unheard"]), min_size=1, max_size=4)


def _changed(changes) -> tuple[LexicalIndex, dict[str, list[str]]]:
    """An index after some changes, and what it should hold."""
    index, held = LexicalIndex(), {}
    for kind, change in changes:
        if kind == "add":
            index.add(list(change), list(change.values()))
            held = {key: document for key, document in held.items() if key not in change} | change
        else:
            present = {key for key in change if key in held}
            assert index.delete(change) == len(present)
            held = {key: document for key, document in held.items() if key not in present}
    assert len(index) == len(held)
    return index, held


@MODELS
@given(_changes, _queries)
def test_scores_equal_the_oracles_after_any_changes(model, changes, query):
    """Adding, replacing and deleting in any order leaves what a fresh index over the rows would
    say.
    """
    index, held = _changed(changes)
    _check(index, held, query, model)


@MODELS
@given(_changes, _queries, st.floats(0, 3), st.floats(0, 1))
def test_scores_equal_the_oracles_for_any_parameters(model, changes, query, k1, b):
    """Every k1 and b, the ends of their ranges included."""
    index, held = _changed(changes)
    # With k1 = 0 rank_bm25 divides 0 by 0 for every term that a row lacks.
    lowest = 0.001 if model.variant == "okapi" else 0.0
    chosen = BM25(max(round(k1, 3), lowest), round(b, 3), model.variant)
    expected = _expected(held, query, chosen)
    assert dict(index.state.search(query, 100, model=chosen)) == pytest.approx(
        expected, rel=1e-6, abs=1e-12
    )


def _corpus(size: int, seed: int) -> dict[str, list[str]]:
    """Documents with rare and common terms; many of them equal, so that there are ties at every
    rank.
    """
    rng = random.Random(seed)
    terms = [f"t{number}" for number in range(200)]
    weights = [1 / (number + 1) for number in range(200)]
    distinct = [rng.choices(terms, weights, k=rng.randint(1, 30)) for _ in range(size * 2 // 3)]
    documents = distinct + rng.choices(distinct[:40], k=size - len(distinct))
    rng.shuffle(documents)
    return {f"{number * 7919 % size:05d}": document for number, document in enumerate(documents)}


@pytest.mark.sample(10)
@MODELS
@pytest.mark.parametrize(
    "query",
    [["t0"], ["t150"], ["t0", "t1", "t9"], ["t3", "t3", "t40"], ["t0", "never"]],
    ids=" ".join,
)
def test_scores_equal_the_oracles_on_a_large_index(model, query):
    """Thousands of rows in several parts, some replaced, some deleted: the same scores, order and
    ties at any depth.
    """
    held = _corpus(3000, 5)
    index = LexicalIndex()
    keys = list(held)
    for start in range(0, len(keys), 700):
        index.add(keys[start : start + 700], [["stale", "t0"]] * len(keys[start : start + 700]))
    for start in range(0, len(keys), 450):
        chunk = keys[start : start + 450]
        index.add(chunk, [held[key] for key in chunk])
    index.delete(keys[::9])
    held = {key: document for number, (key, document) in enumerate(held.items()) if number % 9}

    expected = _expected(held, query, model)
    full = index.state.search(query, len(held), model=model)
    assert dict(full) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert full == sorted(full, key=lambda item: (-item[1], item[0]))
    for topk in (1, 2, 7, 40, 300):
        assert index.state.search(query, topk, model=model) == full[:topk]


class Crowd:
    """Rows with many common terms and some rare ones, a third of them equal to others; what they
    should score.
    """

    def __init__(self, size: int = 8000) -> None:
        rng = np.random.default_rng(11)
        chances = np.concatenate(
            [np.linspace(0.7, 0.3, 8), np.linspace(0.1, 0.02, 12), np.full(60, 0.001)]
        )
        self.terms = (
            [f"common{n}" for n in range(8)]
            + [f"mid{n}" for n in range(12)]
            + [f"rare{n}" for n in range(60)]
        )
        counts = (rng.random((size, 80)) < chances) * rng.integers(1, 5, (size, 80))
        counts[rng.permutation(size)[: size // 3]] = counts[rng.integers(0, 50, size // 3)]
        keys = [f"{number * 7919 % size:05d}" for number in range(size)]
        rows = [
            [term for term, n in zip(self.terms, row, strict=True) for _ in range(n)]
            for row in counts.tolist()
        ]
        alive = rng.random(size) < 0.9
        self.year = {key: 2000 + number % 4 for number, key in enumerate(keys)}
        fields = [{"year": 2000 + number} for number in range(4)]
        self.whole, self.halves = LexicalIndex(), [LexicalIndex(), LexicalIndex()]
        for start in range(0, size, 2500):
            part = slice(start, min(start + 2500, size))
            own = [fields[number % 4] for number in range(part.start, part.stop)]
            for index in (self.whole, self.halves[start > size // 2]):
                index.add(keys[part], rows[part], own)
        for index in (self.whole, *self.halves):
            index.delete([key for key, lives in zip(keys, alive, strict=True) if not lives])
        self.keys = [key for key, lives in zip(keys, alive, strict=True) if lives]
        self.counts = counts[alive].astype(np.float64)
        lengths = self.counts.sum(axis=1, keepdims=True)
        self.contributions = self.counts / (
            self.counts + LUCENE.k1 * (0.25 + 0.75 * lengths / lengths.mean())
        )

    def scores(self, query: list[str], model: BM25) -> dict[str, float]:
        """Every row that shares a term, by the formula over the whole table."""
        total, df = len(self.counts), (self.counts > 0).sum(axis=0)
        if model.variant == "lucene":
            idf = np.log1p((total - df + 0.5) / (df + 0.5))
        else:
            idf = np.log(total - df + 0.5) - np.log(df + 0.5)
            idf[idf < 0] = 0.25 * idf[df > 0].mean()
            idf *= model.k1 + 1
        columns = [self.terms.index(term) for term in query]
        sums = self.contributions[:, columns] @ idf[columns]
        return {
            self.keys[row]: float(sums[row])
            for row in np.flatnonzero(self.contributions[:, columns].any(axis=1))
        }


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    """One for all tests; they only read it."""
    return Crowd()


def _of(kind: str, count: int, least: int, most: int):
    return st.lists(
        st.sampled_from([f"{kind}{n}" for n in range(count)]), min_size=least, max_size=most
    )


_crowd_queries = st.tuples(
    _of("common", 8, 1, 8), _of("mid", 12, 0, 2), _of("rare", 60, 0, 4)
).flatmap(lambda kinds: st.permutations(kinds[0] + kinds[1] + kinds[2]))
# As it is; leaving out whatever can be left out, however little it saves; and by rare terms alone.
_eager = pytest.mark.parametrize("share", [None, 0.9, "rare"])


def _rare_first(patch: pytest.MonkeyPatch) -> None:
    """As indexes of millions of rows do."""
    patch.setattr(bm25, "MANY_ROWS", 0)
    patch.setattr(rare_terms, "ROWS_A_POSTING", 0)


@pytest.mark.slow
@_eager
@MODELS
@settings(max_examples=30)
@given(query=_crowd_queries, topk=st.sampled_from([1, 2, 3, 10, 40, 46, 47, 1000]), data=st.data())
def test_common_terms_change_no_answer(crowd, share, model, query, topk, data):
    """However many common terms a query has, the best are the same keys, scores and ties as at full
    depth, which are the formula's; with filters, dead rows and statistics in common, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        if share == "rare":
            _rare_first(patch)
        elif share is not None:
            patch.setattr(bm25, "LATE_SHARE", share)
            patch.setattr(bm25, "FEW_POSTINGS", 0)
            patch.setattr(bm25, "POSTINGS_PER_LOOKUP", 1)
        full = crowd.whole.state.search(query, len(crowd.keys), model=model)
        expected = crowd.scores(query, model)
        assert {key for key, _ in full} == expected.keys()
        np.testing.assert_allclose(
            [score for _, score in full], [expected[key] for key, _ in full], rtol=1e-9
        )
        assert crowd.whole.state.search(query, topk, model=model) == full[:topk]

        year = data.draw(st.sampled_from([2001, 2003]))
        of_year = [(key, score) for key, score in full if crowd.year[key] == year]
        wanted = Condition("year", "eq", year)
        assert 0 < len(of_year) < len(full)
        assert crowd.whole.state.search(query, topk, model=model, filter=wanted) == of_year[:topk]

        known = crowd.halves[0].state.statistics(query, model) + crowd.halves[1].state.statistics(
            query, model
        )
        both = [
            hit
            for half in crowd.halves
            for hit in half.state.search(query, topk, model=model, statistics=known)
        ]
        assert sorted(both, key=lambda hit: (-hit[1], hit[0]))[:topk] == full[:topk]


def test_common_terms_may_decide():
    """The row that is ahead by its rare terms loses to one that makes up for it by common ones."""
    commons, rares = [f"common{n}" for n in range(10)], [f"rare{n}" for n in range(6)]
    rng = random.Random(4)
    held = {"ahead": rares * 8, "better": rares * 4 + commons * 30}
    held |= {f"{n:04d}": [term for term in commons if rng.random() < 0.5] for n in range(8000)}
    index = LexicalIndex()
    index.add(list(held), list(held.values()))
    model = BM25(b=0.0)  # so that length does not weigh
    by_rares = index.state.search(rares, 2, model=model)
    assert [key for key, _ in by_rares] == ["ahead", "better"]
    found = index.state.search(rares + commons, 1, model=model)
    assert found == index.state.search(rares + commons, 8000, model=model)[:1]
    assert found[0][0] == "better"


@pytest.mark.slow
def test_common_terms_are_left_out_where_that_is_safe(crowd, monkeypatch):
    """Rare terms decide: only few rows are scored. Where common terms could lift others, nothing is
    left out.
    """
    scored = []
    exact = LexicalState._exact_scores

    def spy(state, rows, *rest):
        scored.append(len(rows))
        return exact(state, rows, *rest)

    monkeypatch.setattr(LexicalState, "_exact_scores", spy)
    outcomes = []
    named = bm25.contenders

    def contenders(*args, **kwargs):
        outcomes.append(named(*args, **kwargs))
        return outcomes[-1]

    monkeypatch.setattr(bm25, "contenders", contenders)
    commons = ["common0", "common1", "common2"]
    crowd.whole.state.search([*commons, "rare0", "rare1"], 3)
    assert [one is not None for one in outcomes] == [True]
    assert 3 <= scored[0] < 100
    crowd.whole.state.search([*commons, "rare0", "rare1"], 40)  # more than have a rare term
    assert [one is not None for one in outcomes] == [True, False]
    crowd.whole.state.search(commons, 3)
    assert len(outcomes) == 2


def test_millions_of_rows_are_ranked_by_the_postings_of_rare_terms(crowd, monkeypatch):
    """The same keys, scores and ties, while no array as long as the index is filled; also when
    every term is needed.
    """
    queries = [
        ["rare0", "mid3", "common1"],
        ["common0", "rare1", "rare2"],
        ["mid1", "mid2", "mid1"],
        ["common4"],
    ]
    year = Condition("year", "eq", 2001)
    asked = [
        (query, topk, wanted) for query in queries for topk in (1, 7, 60) for wanted in (None, year)
    ]
    search = crowd.whole.state.search
    expected = [search(query, topk, filter=wanted) for query, topk, wanted in asked]
    _rare_first(monkeypatch)
    monkeypatch.setattr(bm25, "scratch_zeros", None)
    assert all(expected)
    assert [search(query, topk, filter=wanted) for query, topk, wanted in asked] == expected


def test_equal_texts_tie_wherever_they_lie():
    """Rows with the same terms in another order, written at other times, have one score; the key
    decides.
    """
    index = LexicalIndex()
    index.add(["z", "m"], [["a", "b", "b"], ["c"]])
    for number in range(40):
        index.add([f"n{number:02d}"], [["d"] * (number % 5 + 1)])
    index.add(["a", "q"], [["b", "a", "b"], ["b", "b", "a"]])
    found = index.state.search(["b", "a", "d"], 3)
    assert [key for key, _ in found] == ["a", "q", "z"]
    assert len({score for _, score in found}) == 1
    assert [key for key, _ in index.state.search(["b", "a"], 2)] == ["a", "q"]


def test_bm25_by_hand():
    """Two rows, the formula of Lucene's variant written out."""
    index = LexicalIndex()
    index.add(["a", "b"], [["green", "tea"], ["black", "tea", "tea", "cup"]])
    # N = 2, df(green) = 1, df(tea) = 2, mean length 3
    [(key, score)] = index.state.search(["green"], 5)
    assert (key, score) == (
        "a",
        pytest.approx(0.6931471805599453 * 1 / (1 + 1.5 * (0.25 + 0.75 * 2 / 3))),
    )
    tea = dict(index.state.search(["tea"], 5))
    idf = 0.1823215567939546  # ln(1 + 0.5 / 2.5)
    assert tea["a"] == pytest.approx(idf / (1 + 1.5 * 0.75))
    assert tea["b"] == pytest.approx(idf * 2 / (2 + 1.5 * 1.25))


@MODELS
def test_a_row_without_a_common_term_is_never_ranked(model):
    """There is no padding: three rows match, so three are returned, also where okapi's scores are 0
    or less.
    """
    index = LexicalIndex()
    index.add(list("abcdef"), [["tea"], ["tea", "cup"], ["cup"], [], ["other"], ["tea"]])
    assert sorted(key for key, _ in index.state.search(["tea"], 100, model=model)) == [
        "a",
        "b",
        "f",
    ]
    assert index.state.search(["unheard"], 5, model=model) == []
    assert index.state.search([], 5, model=model) == []


def test_matching_rows_score_above_zero():
    """Lucene's idf is never negative: a term that every row has still counts a little."""
    index = LexicalIndex()
    index.add(list("abc"), [["tea"], ["tea", "tea"], ["tea", "cup"]])
    assert all(score > 0 for _, score in index.state.search(["tea"], 5))


def test_a_term_that_stands_twice_in_the_query_counts_twice():
    """The query is a list, not a set."""
    index = LexicalIndex()
    index.add(["a", "b", "c"], [["tea"], ["cup"], ["x"]])
    assert dict(index.state.search(["tea", "tea"], 1))["a"] == pytest.approx(
        2 * dict(index.state.search(["tea"], 1))["a"]
    )


@pytest.mark.parametrize(
    ("k1", "b", "variant"),
    [(-0.1, 0.75, "lucene"), (1.5, -0.1, "lucene"), (1.5, 1.1, "lucene"), (float("nan"), 0.75, "lucene"),
     (float("inf"), 0.75, "lucene"), (1.5, 0.75, "bm25+"), (1.5, 0.75, "Okapi")],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(k1, b, variant):
    """K1 >= 0, b in [0, 1], a known variant."""
    with pytest.raises(ConfigError, match="BM25"):
        BM25(k1, b, variant)


def _with_fields(held: dict[str, list[str]]) -> LexicalIndex:
    index = LexicalIndex()
    files = [{"year": year} for year in (2001, 2002, 2003)] + [{"year": None}]
    index.add(list(held), list(held.values()), [files[number % 4] for number in range(len(held))])
    return index


@MODELS
@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (Condition("year", "eq", 2002), {1}),
        (Condition("year", "in", (2001, None)), {0, 3}),
        (Not(Condition("year", "ge", 2002)), {0, 3}),
        (Condition("year", "exists"), {0, 1, 2}),
    ],
    ids=repr,
)
def test_a_filter_narrows_and_changes_no_score(model, wanted, kept):
    """The filtered ranking is the whole one without the rows that do not match: statistics stay
    those of all rows.
    """
    held = _corpus(400, 3)
    index = _with_fields(held)
    group = {key: number % 4 for number, key in enumerate(held)}
    for query in (["t0", "t5"], ["t30"]):
        whole = index.state.search(query, 1000, model=model)
        expected = [(key, score) for key, score in whole if group[key] in kept]
        assert 0 < len(expected) < len(whole)
        assert index.state.search(query, 1000, filter=wanted, model=model) == expected
        assert index.state.search(query, 3, filter=wanted, model=model) == expected[:3]


def test_a_filter_holds_after_changes():
    """Deleted rows do not come back through a filter, new and replaced ones go by their new
    fields.
    """
    index = LexicalIndex()
    wanted = Condition("year", "eq", 2002)
    index.add(list("abcd"), [["tea"]] * 4, [{"year": 2002}] * 3 + [{"year": 2003}])
    assert [key for key, _ in index.state.search(["tea"], 9, filter=wanted)] == ["a", "b", "c"]
    index.delete(["a"])
    index.add(["b", "e"], [["tea"]] * 2, [{"year": 2003}, {"year": 2002}])
    assert [key for key, _ in index.state.search(["tea"], 9, filter=wanted)] == ["c", "e"]
    index.delete(["c", "d"])
    assert [key for key, _ in index.state.search(["tea"], 9, filter=wanted)] == ["e"]
    assert [key for key, _ in index.state.search(["tea"], 9, filter=Not(wanted))] == ["b"]


def test_a_filter_that_nothing_meets_finds_nothing():
    """An empty answer, no error."""
    index = _with_fields(_corpus(20, 3))
    assert index.state.search(["t0"], 5, filter=Condition("year", "eq", 1999)) == []


@MODELS
@given(st.lists(st.dictionaries(_keys, _documents, max_size=6), min_size=1, max_size=3), _queries)
def test_indexes_that_share_statistics_are_one_index(model, parts, query):
    """Rows dealt to several indexes, some of them empty, score exactly as in one."""
    named = [
        {f"{number}-{key}": document for key, document in part.items()}
        for number, part in enumerate(parts)
    ]
    indexes, whole = [], LexicalIndex()
    for part in named:
        indexes.append(LexicalIndex())
        indexes[-1].add(list(part), list(part.values()))
        whole.add(list(part), list(part.values()))
    together = indexes[0].state.statistics(query, model)
    for index in indexes[1:]:
        together += index.state.statistics(query, model)
    found = [
        hit
        for index in indexes
        for hit in index.state.search(query, 50, model=model, statistics=together)
    ]
    assert sorted(found) == sorted(whole.state.search(query, 50, model=model))


@MODELS
def test_an_index_without_rows_adds_nothing(model):
    """An empty Document beside a full one changes no statistic and no result."""
    full, empty = LexicalIndex(), LexicalIndex()
    full.add(list("abc"), [["tea"], ["tea", "cup"], ["x"]])
    query = ["tea", "cup", "never"]
    for first, second in ((full, empty), (empty, full)):
        together = first.state.statistics(query, model) + second.state.statistics(query, model)
        assert full.state.search(query, 9, model=model, statistics=together) == full.state.search(
            query, 9, model=model
        )
        assert empty.state.search(query, 9, model=model, statistics=together) == []


def test_statistics_count_live_rows_only():
    """Deleted and replaced rows weigh nothing any more; unknown terms have frequency 0."""
    index = LexicalIndex()
    index.add(list("abc"), [["tea", "cup"], ["tea"], ["x"] * 4])
    index.delete(["c"])
    index.add(["b"], [["cup", "cup", "cup"]])
    known = index.state.statistics(["tea", "cup", "x", "tea", "never"])
    assert (known.rows, known.tokens, known.frequencies) == (2, 5, (1, 2, 0, 0))
    assert index.state.statistics(["tea"], OKAPI).vocabulary == {"tea": 1, "cup": 2}


def test_delete_says_how_many_went():
    """Unknown keys are passed over, a key named twice goes once, a deleted one is unknown."""
    index = LexicalIndex()
    index.add(list("abcd"), [["tea"]] * 4)
    assert index.delete(["a", "a", "zzz"]) == 1
    assert index.delete(["a"]) == 0
    assert index.delete([]) == 0
    assert len(index) == 3
    assert [key for key, _ in index.state.search(["tea"], 9)] == ["b", "c", "d"]


@MODELS
def test_results_are_the_same_before_and_after_dead_rows_are_cleared_away(model):
    """Deleting row by row, down to none and up again, is always what a fresh index says."""
    held = _corpus(60, 9)
    index = LexicalIndex()
    index.add(list(held), list(held.values()))
    for number, key in enumerate(list(held)):
        index.delete([key])
        del held[key]
        if number % 7 == 0 and held:
            _check(index, held, ["t0", "t2", "t11"], model)
    assert len(index) == 0
    assert index.state.search(["t0"], 5, model=model) == []
    index.add(["back"], [["t0"]])
    _check(index, {"back": ["t0"]}, ["t0"], model)


@pytest.fixture
def hasty():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def _read_while(write, read, readers: int = 3) -> list:
    """What readers saw while a writer was at work; what they raised is raised."""
    seen, errors, done = [], [], threading.Event()

    def keep_reading() -> None:
        try:
            while not done.is_set():
                seen.append(read())
        except Exception as exc:  # noqa: BLE001  whatever it is, the test shows it
            errors.append(exc)

    threads = [threading.Thread(target=keep_reading) for _ in range(readers)]
    for thread in threads:
        thread.start()
    try:
        write()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return seen


@pytest.mark.slow
@MODELS
@pytest.mark.usefixtures("hasty")
def test_a_reader_sees_one_state(model):
    """While rows come and go, every answer is the answer to one of the states, scores included;
    never a mix.
    """
    base, extra = (
        _corpus(300, 1),
        {f"x{key}": document for key, document in _corpus(400, 2).items()},
    )
    query = ["t0", "t4", "t17"]
    index = LexicalIndex()
    index.add(list(base), list(base.values()))
    without = index.state.search(query, 20, model=model)
    index.add(list(extra), list(extra.values()))
    with_extra = index.state.search(query, 20, model=model)
    assert without != with_extra

    def write() -> None:
        for _ in range(30):
            index.delete(list(extra))
            index.add(list(extra), list(extra.values()))

    seen = _read_while(write, lambda: index.state.search(query, 20, model=model))
    assert len(seen) > 5
    assert [one for one in seen if one not in (without, with_extra)] == []


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_a_reader_of_a_replaced_row_sees_the_old_or_the_new_one():
    """Replacing is one change: at no moment is a row missing."""
    keys = [f"k{number:03d}" for number in range(300)]
    index = LexicalIndex()
    index.add(keys, [["tea"]] * 300)

    def write() -> None:
        for number in range(60):
            index.add(keys, [["tea"] * (number % 2 + 1)] * 300)

    seen = _read_while(write, lambda: len(index.state.search(["tea"], 1000)))
    assert len(seen) > 5
    assert set(seen) == {300}


@pytest.mark.usefixtures("hasty")
def test_the_first_queries_may_come_at_the_same_time():
    """What is counted once, for the first query, is counted right when several threads are
    first.
    """
    held = _corpus(600, 4)
    query = ["t0", "t1", "t2"]
    alone = LexicalIndex()
    alone.add(list(held), list(held.values()))
    expected = alone.state.search(query, 5, model=OKAPI)
    for _ in range(15):
        index = LexicalIndex()
        index.add(list(held), list(held.values()))
        barrier = threading.Barrier(4)

        def first_query(index=index, barrier=barrier):
            barrier.wait()
            return index.state.search(query, 5, model=OKAPI)

        with ThreadPoolExecutor(4) as pool:
            found = [future.result() for future in [pool.submit(first_query) for _ in range(4)]]
        assert found == [expected] * 4
        assert index.state.search(query, 5, model=OKAPI) == expected


@pytest.mark.parametrize("topk", [0, -1])
def test_a_topk_below_one_is_an_error(topk):
    """It names the bound."""
    index = LexicalIndex()
    index.add(["a", "b", "c"], [["tea"], ["tea", "cup"], ["tea"]])
    with pytest.raises(ConfigError, match="topk must be an integer >= 1"):
        index.state.search(["tea"], topk)
