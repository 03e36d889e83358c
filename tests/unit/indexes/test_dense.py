"""The dense index: held to float64 arithmetic after any history of changes."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Condition, Not
from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes.dense import METRICS, DenseBlock, DenseIndex, DenseState
from lazyrag.storage.arrays import ArrayFiles
from tests.interpreter import python

EVERY_METRIC = pytest.mark.parametrize("metric", METRICS)


def _oracle(vectors: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    """Scores in float64, by the textbook."""
    vectors, query = vectors.astype(np.float64), np.asarray(query, np.float64)
    if metric == "ip":
        return (vectors * query).sum(axis=1)
    if metric == "l2":
        return 1 / (1 + np.sqrt(((vectors - query) ** 2).sum(axis=1)))
    lengths = np.sqrt((vectors**2).sum(axis=1)) * np.sqrt((query**2).sum())
    products = (vectors * query).sum(axis=1)
    return np.divide(products, lengths, out=np.zeros(len(vectors)), where=lengths > 0)


def _check(
    index: DenseIndex, held: dict[str, np.ndarray], query: np.ndarray, topk: int
) -> list[tuple[str, float]]:
    """The topk best rows by the oracle, with its scores, best first, ties by key."""
    found = index.state.search(query, topk)
    keys = sorted(held)
    assert len(found) == min(topk, len(held))
    if not held:
        return found
    expected = dict(
        zip(
            keys,
            _oracle(np.stack([held[key] for key in keys]), query, index.state.metric),
            strict=True,
        )
    )
    tolerance = 1e-9 * (1 + max(map(abs, expected.values())))
    assert dict(found) == pytest.approx(
        {key: expected[key] for key, _ in found}, rel=1e-9, abs=tolerance
    )
    assert found == sorted(found, key=lambda item: (-item[1], item[0]))
    last_key, last = found[-1]
    inside = {key for key, _ in found}
    for key in keys:
        if key not in inside:
            assert expected[key] <= last + tolerance
            assert key > last_key or not np.array_equal(held[key], held[last_key])
    return found


_keys = st.sampled_from([f"k{number}" for number in range(10)])
_numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 0.1, 3.0, -7.25, 100.0])
_vectors = st.lists(_numbers, min_size=3, max_size=3)
_changes = st.lists(
    st.tuples(st.just("add"), st.dictionaries(_keys, _vectors, min_size=1, max_size=6))
    | st.tuples(st.just("delete"), st.lists(_keys, min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


@EVERY_METRIC
@given(_changes, _vectors, st.integers(1, 12))
def test_scores_equal_float64_after_any_changes(metric, changes, query, topk):
    """Adding, replacing and deleting in any order leaves what float64 arithmetic on the live
    vectors says.
    """
    index, held = DenseIndex(3, metric), {}
    for kind, change in changes:
        if kind == "add":
            vectors = {key: np.array(vector, np.float32) for key, vector in change.items()}
            index.add(list(vectors), np.stack(list(vectors.values())))
            held |= vectors
        else:
            present = {key for key in change if key in held}
            assert index.delete(change) == len(present)
            held = {key: vector for key, vector in held.items() if key not in present}
        assert len(index) == len(held)
    _check(index, held, np.array(query), topk)
    rows = index.state.get(sorted(held))
    assert [key for key, _, _ in rows] == sorted(held)
    assert all(np.array_equal(vector, held[key]) for key, vector, _ in rows)


def _clustered(rows: int, dimension: int, seed: int) -> np.ndarray:
    """Vectors in tight clusters, so that many scores differ in the last digits of float32 only."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((8, dimension))
    return (
        centres[rng.integers(0, 8, rows)] + 1e-6 * rng.standard_normal((rows, dimension))
    ).astype(np.float32)


@pytest.mark.sample(3)
@EVERY_METRIC
@pytest.mark.parametrize("topk", [1, 10, 500])
def test_close_vectors_are_told_apart(metric, topk):
    """Where float32 would shuffle neighbours, the ranking is that of float64."""
    vectors = _clustered(2000, 48, 11)
    index = DenseIndex(48, metric)
    keys = [f"{number:04d}" for number in range(2000)]
    for start in range(0, 2000, 300):
        index.add(keys[start : start + 300], vectors[start : start + 300])
    query = vectors[17].astype(np.float64) + 1e-7
    found = _check(index, dict(zip(keys, vectors, strict=True)), query, topk)
    exact = _oracle(vectors, query, metric)
    order = np.argsort(-exact, kind="stable")[:topk]
    assert sum(keys[at] == key for at, (key, _) in zip(order, found, strict=True)) >= 0.95 * topk


@EVERY_METRIC
def test_equal_vectors_tie_wherever_they_lie(metric):
    """Copies of a vector anywhere in the matrix have one score, and at the boundary the smaller
    keys are in.
    """
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((1000, 37)).astype(np.float32)
    copies = rng.choice(1000, 40, replace=False)
    vectors[copies] = vectors[copies[0]]
    keys = [f"{number:04d}" for number in rng.permutation(1000)]
    index = DenseIndex(37, metric)
    index.add(keys[:333], vectors[:333])
    index.add(keys[333:], vectors[333:])
    query = vectors[copies[0]] * np.float32(1.3)
    if metric == "ip":
        query = query * 10  # so that the copies are the best by inner product as well
    found = index.state.search(query, 1000)
    scores = {score for key, score in found if keys.index(key) in set(copies.tolist())}
    assert len(scores) == 1
    first = next(at for at, (_, score) in enumerate(found) if score in scores)
    boundary = index.state.search(query, first + 15)
    assert [key for key, _ in boundary[first:]] == sorted(keys[at] for at in copies)[:15]


def test_scores_by_hand():
    """Cosine, inner product and 1 / (1 + distance) of vectors that one can check by eye."""
    vectors = np.array([[3, 4], [0, 0], [-3, -4], [4, -3], [6, 8]], np.float32)
    expected = {
        "cosine": {"a": 1.0, "b": 0.0, "c": -1.0, "d": 0.0, "e": 1.0},
        "ip": {"a": 25.0, "b": 0.0, "c": -25.0, "d": 0.0, "e": 50.0},
        "l2": {"a": 1.0, "b": 1 / 6, "c": 1 / 11, "d": 1 / (1 + 50**0.5), "e": 1 / 6},
    }
    for metric in METRICS:
        index = DenseIndex(2, metric)
        index.add(list("abcde"), vectors)
        found = index.state.search(np.array([3, 4]), 9)
        assert dict(found) == pytest.approx(expected[metric])
        assert found == sorted(found, key=lambda item: (-item[1], item[0]))


@EVERY_METRIC
def test_vectors_without_length_are_ranked_like_others(metric):
    """A zero vector has cosine 0 to everything, and so has everything to a zero query; nothing is
    nan.
    """
    index = DenseIndex(2, metric)
    held = {"a": [0, 0], "b": [1, 0], "c": [-1, 0], "d": [0, 0]}
    index.add(list(held), np.array(list(held.values()), np.float32))
    for query in ([1, 0], [0, 0]):
        for topk in (1, 2, 4):
            _check(
                index,
                {key: np.array(one, np.float32) for key, one in held.items()},
                np.array(query),
                topk,
            )


def test_a_cosine_stays_in_its_range():
    """Rounding does not lift the cosine of a vector with itself above 1."""
    vectors = np.random.default_rng(5).standard_normal((500, 19)).astype(np.float32)
    index = DenseIndex(19, "cosine")
    index.add([str(number) for number in range(500)], vectors)
    for number in range(0, 500, 25):
        for query in (vectors[number], -vectors[number]):
            scores = [score for _, score in index.state.search(query, 500)]
            assert -1.0 <= min(scores) <= max(scores) <= 1.0


@EVERY_METRIC
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e18, 1e30], ids=str)
def test_all_finite_numbers_are_ranked_right(metric, scale):
    """Also where a product of two of them is beyond float32: any finite vector is allowed."""
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((200, 4)).astype(np.float32)
    vectors[::2] *= np.float32(scale)
    keys = [f"{number:03d}" for number in range(200)]
    index = DenseIndex(4, metric)
    index.add(keys, vectors)
    for query in (vectors[0], vectors[1]):
        exact = _oracle(vectors, query, metric)
        best = np.lexsort((np.arange(200), -exact))[:3]
        found = index.state.search(query, 3)
        assert [score for _, score in found] == pytest.approx(exact[best].tolist(), rel=1e-6, abs=0)


@EVERY_METRIC
@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (Condition("year", "eq", 2001), 1),
        (Condition("year", "ge", 2001), 9),
        (Not(Condition("year", "exists")), 0),
    ],
    ids=repr,
)
def test_a_filter_narrows_and_changes_no_score(metric, wanted, kept):
    """The filtered ranking is the whole one without the rows that do not match, whether few or many
    are left.
    """
    vectors = np.random.default_rng(4).standard_normal((600, 8)).astype(np.float32)
    keys = [f"{number:03d}" for number in range(600)]
    files = [{"year": None}] + [{"year": 2000 + number} for number in range(10)]
    index = DenseIndex(8, metric)
    index.add(keys, vectors, [files[number % 11] for number in range(600)])
    groups = {key: files[number % 11]["year"] for number, key in enumerate(keys)}
    allowed = {"1": {2001}, "9": set(range(2001, 2010)), "0": {None}}[str(kept)]
    query = vectors[3] * 2
    expected = [hit for hit in index.state.search(query, 600) if groups[hit[0]] in allowed]
    assert 0 < len(expected) < 600
    assert index.state.search(query, 600, filter=wanted) == expected
    assert index.state.search(query, 7, filter=wanted) == expected[:7]
    assert index.state.search(query, 7, filter=Condition("year", "eq", 1999)) == []


def test_get_gives_what_was_added():
    """In the order asked for, bit by bit, with its fields; unknown and deleted keys are left
    out.
    """
    vectors = np.random.default_rng(6).standard_normal((5, 3)).astype(np.float32)
    fields = [{"n": number} for number in range(5)]
    index = DenseIndex(3)
    index.add(list("abcde"), vectors, fields)
    index.delete(["b"])
    rows = index.state.get(["e", "zzz", "a", "b"])
    assert [(key, found["n"]) for key, _, found in rows] == [("e", 4), ("a", 0)]
    assert np.array_equal(rows[0][1], vectors[4])
    rows[0][1][:] = 0
    assert np.array_equal(index.state.get(["e"])[0][1], vectors[4])


def test_the_callers_matrix_may_change_afterwards():
    """The index keeps a copy, of any layout and number type."""
    index = DenseIndex(2, "ip")
    matrix = np.asfortranarray(np.array([[1, 2], [3, 4]]))
    index.add(["a", "b"], matrix)
    matrix[:] = 0
    assert index.state.search(np.array([1, 1]), 2) == [("b", 7.0), ("a", 3.0)]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_whole(number):
    """An error, and nothing is written."""
    index = DenseIndex(2)
    index.add(["a", "old"], np.array([[1, 0], [0, 1]], np.float32))
    before = index.state.search(np.array([1, 2]), 9)
    with pytest.raises(ConfigError, match="finite"):
        index.add(["a", "b"], np.array([[0, 0], [0, number]], np.float32))
    assert index.state.search(np.array([1, 2]), 9) == before
    assert len(index) == 2


@pytest.mark.parametrize(
    ("query", "topk", "message"),
    [
        (np.zeros(3), 1, "must be 2 finite numbers"),
        (np.zeros((1, 2)), 1, "must be 2 finite numbers"),
        (np.array([np.nan, 0]), 1, "must be 2 finite numbers"),
        (np.array([0, np.inf]), 1, "must be 2 finite numbers"),
        (np.zeros(2), 0, "topk must be an integer >= 1; got 0"),
        (np.zeros(2), -1, "topk must be an integer >= 1; got -1"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(query, topk, message):
    """Also by an index without rows."""
    index = DenseIndex(2)
    for _ in range(2):
        with pytest.raises(ConfigError, match=message):
            index.state.search(query, topk)
        index.add(["a"], np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    ("dimension", "metric", "message"),
    [
        (0, "cosine", "dimension must be an integer >= 1; got 0"),
        (-1, "ip", "dimension must be an integer >= 1; got -1"),
        (2, "euclid", "cosine, ip, l2"),
        (2, None, "cosine, ip, l2"),
    ],
)
def test_an_index_needs_a_dimension_and_a_metric(dimension, metric, message):
    """The error lists the metrics."""
    with pytest.raises(ConfigError, match=message):
        DenseIndex(dimension, metric)


def test_an_index_without_rows_finds_nothing():
    """Before the first row and after the last one is gone."""
    index = DenseIndex(2)
    assert index.state.search(np.ones(2), 3) == []
    index.add([], np.zeros((0, 2), np.float32))
    assert len(index) == 0
    index.add(["a"], np.ones((1, 2), np.float32))
    assert index.delete(["a", "a", "b"]) == 1
    assert index.state.search(np.ones(2), 3) == []
    assert index.state.get(["a"]) == []


@EVERY_METRIC
def test_results_are_the_same_before_and_after_dead_rows_are_cleared_away(metric):
    """Deleting row by row, down to none, is always what a fresh index says."""
    vectors = np.random.default_rng(8).standard_normal((70, 5)).astype(np.float32)
    held = {f"{number:02d}": vector for number, vector in enumerate(vectors)}
    index = DenseIndex(5, metric)
    index.add(list(held), vectors)
    for number, key in enumerate(list(held)):
        index.delete([key])
        del held[key]
        if number % 5 == 0:
            _check(index, held, vectors[0], 4)
    index.add(["back"], vectors[:1])
    _check(index, {"back": vectors[0]}, vectors[0], 4)


@pytest.mark.sample(3)
@EVERY_METRIC
@pytest.mark.parametrize("cuts", [[], [1, 100, 350], [0, 0, 399]], ids=str)
def test_answers_do_not_depend_on_the_blocks(metric, cuts):
    """However rows are dealt to blocks, dead or left out in joining, opened or not: the same hits,
    bit for bit.
    """
    rng = np.random.default_rng(21)
    vectors = _clustered(400, 16, 3)
    vectors[50] = vectors[300]
    keys = [f"{number:03d}" for number in rng.permutation(400)]
    files = [{"year": 2000 + number} for number in range(3)]
    fields = [files[number % 3] for number in range(400)]
    alive = rng.random(400) < 0.8
    kept = np.flatnonzero(alive)
    fresh = DenseBlock.of_rows(
        [keys[at] for at in kept], vectors[kept], [fields[at] for at in kept]
    )
    expected = DenseState([fresh], [None], 16, metric)

    bounds = [0, *cuts, 400]
    blocks, masks = [], []
    lives = dict(zip(keys, alive.tolist(), strict=True))
    for start, end in pairwise(bounds):
        blocks.append(DenseBlock.of_rows(keys[start:end], vectors[start:end], fields[start:end]))
        masks.append(np.array([lives[key.decode()] for key in blocks[-1].keys.tolist()], np.bool_))
    opened = [DenseBlock.from_arrays(block.arrays()) for block in blocks]
    joined = DenseBlock.joined(opened, masks)
    assert joined.keys.tolist() == sorted(joined.keys.tolist())
    for state in (DenseState(opened, masks, 16, metric), DenseState([joined], [None], 16, metric)):
        assert len(state) == len(kept)
        for query in (vectors[17], vectors[50], -vectors[8]):
            for topk in (1, 9, 400):
                for wanted in (None, Condition("year", "eq", 2001), Condition("year", "eq", 1999)):
                    assert state.search(query, topk, filter=wanted) == expected.search(
                        query, topk, filter=wanted
                    )
        assert state.matching(Condition("year", "ge", 2000)) != []
        assert sorted(state.matching(Condition("year", "eq", 2002))) == sorted(
            expected.matching(Condition("year", "eq", 2002))
        )


def test_pages_give_every_live_row_once_in_key_order():
    """Over blocks whose keys alternate, some of them dead, a key dead in one block and alive in
    another; any limit.
    """
    vectors = np.arange(12, dtype=np.float32)[:, None]
    first = DenseBlock.of_rows(
        [f"k{number}" for number in (8, 2, 4, 0, 6)], vectors[:5], [{"n": 1}] * 5
    )
    second = DenseBlock.of_rows(
        [f"k{number}" for number in (1, 2, 9, 3)], vectors[5:9], [{"n": 2}] * 4
    )
    # k2 was replaced, k8 and k9 deleted; rows lie in the order of their keys: k0 k2 k4 k6 k8 and k1
    # k2 k3 k9
    masks = [np.array([True, False, True, True, False]), np.array([True, True, True, False])]
    state = DenseState([first, second], masks, 1, "ip")
    expected = [
        ("k0", 3.0, 1),
        ("k1", 5.0, 2),
        ("k2", 6.0, 2),
        ("k3", 8.0, 2),
        ("k4", 2.0, 1),
        ("k6", 4.0, 1),
    ]
    for limit in (1, 2, 5, 6, 100):
        seen = []
        while page := state.page(seen[-1][0] if seen else "", limit):
            assert len(page) <= limit
            seen += page
        assert [(key, float(vector[0]), fields["n"]) for key, vector, fields in seen] == expected
    assert state.page("k5", 1)[0][0] == "k6"


def test_an_opened_block_is_searched_where_it_lies(tmp_path):
    """Opening copies nothing; what get() gives is a copy that may be changed."""
    vectors = np.random.default_rng(3).standard_normal((500, 8)).astype(np.float32)
    block = DenseBlock.of_rows([f"{number:03d}" for number in range(500)], vectors)
    files = ArrayFiles(tmp_path / "store.d")
    arrays = files.open(files.write(block.arrays()))
    opened = DenseBlock.from_arrays(arrays)
    assert opened.matrix is arrays["matrix"]
    state = DenseState([opened], [None], 8, "cosine")
    assert state.search(vectors[7], 3) == DenseState([block], [None], 8, "cosine").search(
        vectors[7], 3
    )
    [(_, vector, _)] = state.get(["007"])
    vector[:] = 0
    assert np.array_equal(state.get(["007"])[0][1], vectors[7])


@pytest.mark.parametrize(
    "change",
    [("matrix", lambda one: one[:1]), ("norms", lambda one: one[:1]), ("matrix", np.ravel)],
)
def test_a_block_whose_arrays_do_not_go_together_is_refused(change):
    """As many vectors and norms as keys; a missing array is named."""
    arrays = DenseBlock.of_rows(["a", "b"], np.ones((2, 3), np.float32)).arrays()
    name, cut = change
    with pytest.raises(StoreError, match="A part of an index has 2 keys"):
        DenseBlock.from_arrays(arrays | {name: cut(arrays[name])})
    with pytest.raises(StoreError, match=f"lacks the arrays {name}"):
        DenseBlock.from_arrays({key: array for key, array in arrays.items() if key != name})


@pytest.mark.slow
def test_small_blocks_are_joined():
    """Rows that come one by one, some replaced, are soon in few blocks, and half of what lies there
    lives.
    """
    index = DenseIndex(2)
    for number in range(600):
        index.add([f"{number % 400:03d}"], np.array([[number, 1]], np.float32))
    assert len(index) == 400
    assert len(index.state.parts) <= 16
    assert sum(map(len, index.state.parts)) <= 800
    assert index.state.get(["199"])[0][1].tolist() == [599.0, 1.0]


@pytest.fixture
def hasty():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def _read_while(write, read) -> list:
    """What two readers saw while a writer was at work; what they raised is raised."""
    done = threading.Event()

    def keep_reading() -> list:
        seen = []
        while not done.is_set():
            seen.append(read())
        return seen

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(keep_reading) for _ in range(2)]
        try:
            write()
        finally:
            done.set()
        return [one for reader in readers for one in reader.result()]


@pytest.mark.slow
@EVERY_METRIC
@pytest.mark.usefixtures("hasty")
def test_a_reader_sees_one_state(metric):
    """While rows come and go, every answer is the answer to one of the states; never a mix."""
    vectors = np.random.default_rng(9).standard_normal((700, 6)).astype(np.float32)
    keys = [f"{number:03d}" for number in range(700)]
    index = DenseIndex(6, metric)
    index.add(keys[:300], vectors[:300])
    query = vectors[0] + vectors[500]
    without = index.state.search(query, 20)
    index.add(keys[300:], vectors[300:])
    with_all = index.state.search(query, 20)
    assert without != with_all

    def write() -> None:
        for _ in range(60):
            index.delete(keys[300:])
            index.add(keys[300:], vectors[300:])

    seen = _read_while(write, lambda: index.state.search(query, 20))
    assert len(seen) > 5
    assert [one for one in seen if one not in (without, with_all)] == []


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_a_reader_of_a_replaced_row_sees_the_old_or_the_new_one():
    """Replacing is one change: at no moment is a row missing."""
    keys = [f"{number:03d}" for number in range(300)]
    index = DenseIndex(4, "ip")
    index.add(keys, np.ones((300, 4), np.float32))

    def write() -> None:
        for number in range(150):
            index.add(keys, np.full((300, 4), number, np.float32))

    seen = _read_while(write, lambda: len(index.state.search(np.ones(4), 1000)))
    assert len(seen) > 5
    assert set(seen) == {300}


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_get_gives_each_key_its_own_vector_while_rows_are_cleared_away():
    """Row numbers change when dead rows go; a reader never gets another key's vector."""
    keep, drop = [f"a{number}" for number in range(300)], [f"b{number}" for number in range(400)]
    index = DenseIndex(1, "ip")
    index.add(drop, np.full((400, 1), -1, np.float32))
    index.add(keep, np.arange(300, dtype=np.float32)[:, None])

    def write() -> None:
        for _ in range(60):
            index.delete(drop)
            index.add(drop, np.full((400, 1), -1, np.float32))

    seen = _read_while(write, lambda: index.state.get(keep))
    assert len(seen) > 5
    assert [
        (key, float(vector[0]))
        for rows in seen
        for key, vector, _ in rows
        if key != f"a{int(vector[0])}"
    ] == []


_FAULTS = """
import resource
import sys
from pathlib import Path
import numpy as np
from lazyrag.indexes.dense import DenseBlock, DenseState
from lazyrag.storage.arrays import ArrayFiles
arrays = ArrayFiles(Path(sys.argv[1]), read_only=True).open(sys.argv[2])
state = DenseState([DenseBlock.from_arrays(arrays)], [None], 64, "cosine")
faults = []
for query in np.random.default_rng(1).standard_normal((40, 64), np.float32):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    state.search(query, 10)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sum(faults[20:]) / 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it counts glibc's page faults")
def test_a_query_reuses_the_memory_of_the_one_before(tmp_path):
    """In a fresh process, whose allocator no other work has warmed."""
    keys = [f"{number:05}" for number in range(50_000)]
    vectors = np.random.default_rng(0).standard_normal((len(keys), 64), np.float32)
    name = ArrayFiles(tmp_path).write(DenseBlock.of_rows(keys, vectors).arrays())
    answer = python("-c", _FAULTS, str(tmp_path), name)
    assert float(answer.stdout) <= 10
