"""Vectors in array files: what is written is read, and equal vectors have equal digests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.maintain.vector_files import read_vectors, vector_digest, write_vectors
from lazyrag.types import SPARSE

NUMBERS = st.floats(-1e6, 1e6, width=32)
DENSE = st.lists(st.lists(NUMBERS, min_size=3, max_size=3), max_size=5)
SPARSE_VECTORS = st.lists(st.dictionaries(st.integers(0, 2**64 - 1), NUMBERS, max_size=4))


@given(DENSE)
def test_dense_vectors(tmp_path_factory, rows):
    """They come back in order, as numpy writes arrays."""
    path = tmp_path_factory.mktemp("dense") / "vectors"
    vectors = [np.array(row, np.float32) for row in rows]
    file = write_vectors(path, iter(vectors), len(vectors), 3)
    assert file.name == "vectors.npy"
    assert read_vectors(file, len(rows), 3).tolist() == [vector.tolist() for vector in vectors]
    np.save(path.with_name("numpy.npy"), np.array(vectors, "<f4").reshape(-1, 3))
    assert file.read_bytes() == path.with_name("numpy.npy").read_bytes()


@given(SPARSE_VECTORS)
def test_sparse_vectors(tmp_path_factory, vectors):
    """The same, empty ones too; dimensions are in order."""
    path = tmp_path_factory.mktemp("sparse") / "vectors"
    file = write_vectors(path, iter(vectors), len(vectors), SPARSE)
    assert file.name == "vectors.npz"
    read = read_vectors(file, len(vectors), SPARSE)
    assert read == vectors
    assert all(list(vector) == sorted(vector) for vector in read)


@pytest.mark.parametrize(("count", "dimension"), [(3, 2), (2, 3)])
def test_another_shape(tmp_path, count, dimension):
    """An array of another number or length is refused."""
    file = write_vectors(tmp_path / "vectors", [np.zeros(2, np.float32)] * 2, 2, 2)
    with pytest.raises(ValueError, match="shape"):
        read_vectors(file, count, dimension)


def test_another_number_of_sparse_vectors(tmp_path):
    """It is refused, too."""
    file = write_vectors(tmp_path / "vectors", [{1: 2.0}], 1, SPARSE)
    with pytest.raises(ValueError, match="1 sparse vectors"):
        read_vectors(file, 2, SPARSE)


@given(st.dictionaries(st.integers(0, 2**64 - 1), NUMBERS, min_size=1))
def test_the_digest_of_a_sparse_vector(vector):
    """It depends on what the vector says, not on the order in which it says it."""
    assert vector_digest(dict(reversed(vector.items()))) == vector_digest(vector)
    [first, *_] = vector
    assert vector_digest({**vector, first: vector[first] + 1e7}) != vector_digest(vector)


@given(st.lists(NUMBERS, min_size=1))
def test_the_digest_of_a_dense_vector(numbers):
    """Arrays of other types and strides with the same numbers have the same."""
    vector = np.array(numbers, np.float32)
    expected = vector_digest(vector)
    assert vector_digest(np.repeat(vector, 2)[::2]) == expected
    assert vector_digest(vector.astype(">f4")) == expected
    assert vector_digest(vector + np.float32(1e7)) != expected
