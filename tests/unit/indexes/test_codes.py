"""Codes: their bounds hold for every row, so a search that reads little gives what one that reads
everything gives.
"""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag import Condition
from lazyrag.errors import StoreError
from lazyrag.indexes import dense
from lazyrag.indexes.dense import METRICS, Codes, CodeScan, DenseBlock, DenseState

EVERY_METRIC = pytest.mark.parametrize("metric", METRICS)
YEARS = [{"year": 2000 + number} for number in range(10)]


def decaying(rows: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Vectors whose length lies in few directions, as that of real embeddings does."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    spread = 0.9 ** np.arange(dimension) + 0.01
    return (rng.standard_normal((rows, dimension)) * spread @ turned).astype(np.float32)


def clustered(rows: int, dimension: int) -> np.ndarray:
    """Vectors that are nearly equal to one of a few."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((5, dimension))
    return (
        centres[rng.integers(0, 5, rows)] + 1e-4 * rng.standard_normal((rows, dimension))
    ).astype(np.float32)


def without_length(rows: int, dimension: int) -> np.ndarray:
    """Vectors of which every third is 0."""
    vectors = decaying(rows, dimension)
    vectors[::3] = 0
    return vectors


def of_all_lengths(rows: int, dimension: int) -> np.ndarray:
    """Vectors from as short to as long as float32 can say."""
    scale = 10.0 ** np.linspace(-36, 36, rows)[:, None]
    return (decaying(rows, dimension) * scale).astype(np.float32)


def even(rows: int, dimension: int) -> np.ndarray:
    """Vectors in all directions alike: the head says no more than any other third."""
    return np.random.default_rng(2).standard_normal((rows, dimension)).astype(np.float32)


def on_axes(rows: int, dimension: int) -> np.ndarray:
    """Vectors with one number that is not 0."""
    return np.eye(dimension, dtype=np.float32)[np.arange(rows) % dimension]


KINDS = [decaying, clustered, without_length, of_all_lengths, even, on_axes]


@pytest.fixture
def coded(monkeypatch):
    """Blocks have codes from 300 rows on."""
    monkeypatch.setattr(dense, "_CODED_FROM", 300)


def plain(block: DenseBlock) -> DenseBlock:
    """The same block without codes."""
    return DenseBlock(block.rows, block.matrix, block.norms)


def numbered(vectors: np.ndarray, first: int = 0) -> DenseBlock:
    """A block of rows with numbers as keys; every tenth is of one year."""
    keys = [f"{first + number:05d}" for number in range(len(vectors))]
    return DenseBlock.of_rows(keys, vectors, [YEARS[number % 10] for number in range(len(vectors))])


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [2, 33, 96])
def test_every_cosine_lies_within_its_bounds(kind, dimension):
    """By the head alone, and more closely by both; for rows of any kind, asked for one by one or
    all at once.
    """
    vectors = kind(400, dimension)
    exact = vectors.astype(np.float64)
    norms = np.sqrt((exact**2).sum(axis=1))
    codes = Codes.of_matrix(vectors, norms)
    rng = np.random.default_rng(3)
    queries = np.concatenate(
        [rng.standard_normal((5, dimension)), exact[[1, 200, 398]] / norms[[1, 200, 398], None]]
    )
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    cosines = np.divide(
        exact @ queries.T, norms[:, None], out=np.zeros((400, 8)), where=norms[:, None] > 0
    )
    some = np.flatnonzero(rng.random(400) < 0.3)
    for chosen in (slice(None), slice(2, 3)):
        for rows in (None, some):
            own = np.arange(400) if rows is None else rows
            scan = CodeScan(codes, queries[chosen])
            for number, expected in enumerate(cosines[own][:, chosen].T):
                near, errors = scan.heads(rows, number)
                assert np.all(np.abs(near - expected) <= errors)
                nearer, smaller = scan.tails(own, number, near)
                assert np.all(np.abs(nearer - expected) <= smaller)
                assert np.all(smaller <= errors + 1e-6)
                assert smaller.max() < 0.1


@pytest.mark.sample(20)
@EVERY_METRIC
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_a_search_that_reads_everything(coded, metric, kind):
    """Bit for bit, for few and many rows asked for, with and without a filter, for one query and
    for several.
    """
    block = numbered(kind(1500, 48))
    assert block.codes is not None
    fast, slow = (
        DenseState([block], [None], 48, metric),
        DenseState([plain(block)], [None], 48, metric),
    )
    rng = np.random.default_rng(4)
    queries = np.concatenate(
        [rng.standard_normal((3, 48)), block.matrix[[7, 300]], np.zeros((1, 48))]
    )
    for topk in (1, 10, 200):
        for wanted in (None, Condition("year", "le", 2006), Condition("year", "eq", 2003)):
            expected = [slow.search(query, topk, filter=wanted) for query in queries]
            assert [len(one) for one in expected] == [
                min(topk, 150 if wanted == Condition("year", "eq", 2003) else topk)
            ] * 6
            assert [fast.search(query, topk, filter=wanted) for query in queries] == expected
            assert fast.search_many(queries, topk, filter=wanted) == expected
            assert slow.search_many(queries, topk, filter=wanted) == expected


@pytest.mark.slow
@EVERY_METRIC
def test_blocks_with_and_without_codes_answer_together(coded, metric):
    """Large and small blocks, dead rows in each, equal vectors in several: as if all lived in
    one.
    """
    vectors = decaying(1400, 40)
    vectors[1200:1300] = vectors[:100]
    large, small, middle = (
        numbered(vectors[:800]),
        numbered(vectors[800:900], 800),
        numbered(vectors[900:], 900),
    )
    assert [one.codes is None for one in (large, small, middle)] == [False, True, False]
    rng = np.random.default_rng(5)
    masks = [rng.random(len(one)) < 0.7 for one in (large, small, middle)]
    parts = DenseState([large, small, middle], masks, 40, metric)
    joined = DenseBlock.joined([large, small, middle], masks)
    one = DenseState([plain(joined)], [None], 40, metric)
    assert len(parts) == len(one) == sum(int(mask.sum()) for mask in masks)
    for query in vectors[[0, 99, 850, 1000]]:
        for topk in (1, 12, 60):
            assert parts.search(query, topk) == one.search(query, topk)
            assert DenseState([joined], [None], 40, metric).search(query, topk) == one.search(
                query, topk
            )


@pytest.mark.slow
def test_many_queries_are_answered_as_one_by_one(coded):
    """More than are worth codes, and more than fit into memory at once."""
    block = numbered(decaying(900, 64))
    state = DenseState([block], [None], 64, "cosine")
    queries = decaying(70, 64, seed=9)
    expected = [state.search(query, 5) for query in queries]
    assert state.search_many(queries, 5) == expected
    assert state.search_many(queries[:0], 5) == []


def _bytes_read(state, query):
    """Bytes of vectors and codes that a search for five rows reads."""
    [(_, read)] = state._found(query[None], 5, None)
    return read


@pytest.mark.slow
def test_little_is_read(coded):
    """A sixth of the vectors at most in the median, where they are like embeddings; all of them
    without codes.
    """
    block = numbered(decaying(6000, 96))
    state, whole = (
        DenseState([block], [None], 96, "cosine"),
        DenseState([plain(block)], [None], 96, "cosine"),
    )
    queries = decaying(21, 96, seed=9)
    read = [_bytes_read(state, query) / block.matrix.nbytes for query in queries]
    assert np.median(read) < 1 / 6
    assert all(_bytes_read(whole, query) >= block.matrix.nbytes for query in queries)


def test_equal_vectors_have_equal_codes(coded):
    """The same rows give the same bytes, so that a block has one name wherever it is made."""
    first, again = numbered(decaying(400, 64)), numbered(decaying(400, 64))
    assert first.arrays().keys() == again.arrays().keys() >= {"rotation", "head", "tail", "facts"}
    assert all(
        np.array_equal(array, again.arrays()[name]) for name, array in first.arrays().items()
    )


def test_a_block_keeps_its_codes(coded):
    """They come back with the other arrays; a block that was written without is opened without."""
    block = numbered(decaying(400, 64))
    opened = DenseBlock.from_arrays(block.arrays())
    assert np.array_equal(opened.codes.head, block.codes.head)
    assert DenseBlock.from_arrays(plain(block).arrays()).codes is None


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["rotation", "head", "tail", "facts"])
def test_codes_that_do_not_go_with_the_vectors_are_refused(coded, name):
    """Arrays of other shapes, and missing ones."""
    arrays = numbered(decaying(400, 64)).arrays()
    with pytest.raises(StoreError, match="400 vectors of 64 numbers, and codes of shapes"):
        DenseBlock.from_arrays(arrays | {name: arrays[name][:-1]})
    if name != "head":
        with pytest.raises(StoreError, match=f"lacks the arrays {name}"):
            DenseBlock.from_arrays({key: array for key, array in arrays.items() if key != name})


@pytest.mark.slow
def test_a_rotation_serves_while_most_rows_are_those_it_was_chosen_for(coded):
    """In joining, the largest block's codes are taken over and the others' made by its rotation;
    not by one that was chosen for few rows. The answers are exact either way.
    """
    first, second = numbered(decaying(900, 48)), numbered(decaying(700, 48, seed=3), 900)
    few = numbered(even(400, 48), 5000)
    many = DenseBlock.of_rows(
        [f"m{number:05d}" for number in range(3000)], decaying(3000, 48, seed=4)
    )
    mask = np.arange(900) % 3 > 0
    joined = DenseBlock.joined([first, second], [mask, None])
    assert np.array_equal(joined.codes.rotation, first.codes.rotation) != np.array_equal(
        joined.codes.rotation, second.codes.rotation
    )
    larger = second  # 600 rows of the first are left
    positions = joined.find(larger.keys)
    assert np.array_equal(joined.codes.rotation, larger.codes.rotation)
    assert np.array_equal(joined.codes.head[positions], larger.codes.head)
    assert np.array_equal(joined.codes.facts[:, positions], larger.codes.facts)
    plain_many = plain(many)
    anew = DenseBlock.joined([few, plain_many], [None, None])
    assert not np.array_equal(anew.codes.rotation, few.codes.rotation)
    for block in (joined, anew):
        state, whole = (
            DenseState([block], [None], 48, "cosine"),
            DenseState([plain(block)], [None], 48, "cosine"),
        )
        for query in block.matrix[::371]:
            assert state.search(query, 7) == whole.search(query, 7)
