"""Scores over postings: what each posting gives, a fast pass that names candidates, an exact one that scores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazyrag.indexes.bm25 import BM25
from lazyrag.indexes.postings import Postings

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Common terms make most of a query's postings and little of its best scores. With more than this share of the weights
# left out, too many rows stay in question; with less, too many postings are added up (tried on real questions).
LATE_SHARE = 0.15
FEW_POSTINGS = 8_000  # to add up so many costs less than to look for what could be left out
POSTINGS_PER_LOOKUP = 24  # as many are added up in the time that one row's exact share of one term takes

_MOST_DRIFT = (
    2.0**-8
)  # of shares made for another mean; with more, more rows are candidates than making them anew costs
_AT_ONCE = 1 << 15  # postings whose shares are worked out together, so that what is between stays in the cache

Ranges: TypeAlias = "list[list[tuple[int, int]]]"
"""For each part of the postings, for each of a query's distinct terms: where its postings begin and end."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """How much of a term's weight its postings in a part give, which depends on the mean length of all rows.

    With every row that comes or goes the mean moves a little, and so would each share. A share made for another mean is
    wrong by no more than the means differ, so it goes on naming candidates; the norms that score them are of this mean.

    Args:
        norms: (n,) k1 (1 - b + b length / mean length) of each row, above 0.
        shares: (p,) tf / (tf + norm) of each posting; float32, at most 1.
        made_for: The k1, b and mean length that the shares are of.
        drift: Largest relative error of a share, at least 0.
    """

    norms: NDArray[np.float64]
    shares: NDArray[np.float32]
    made_for: tuple[float, float, float]
    drift: float = 0.0

    @classmethod
    def of(
        cls,
        postings: Postings,
        lengths: NDArray[np.int32],
        model: BM25,
        mean_length: float,
        near: Iterable[Saturation] = (),
    ) -> Saturation:
        """The saturation of a part's postings.

        Args:
            postings: The part's.
            lengths: (n,) how many terms each row has.
            model: BM25's parameters.
            mean_length: Of all rows.
            near: Others of the same postings, one of which may serve.
        """
        norms = model.k1 * (1.0 - model.b + model.b * lengths.astype(np.float64) / mean_length)
        norms = np.maximum(norms, np.finfo(np.float64).tiny)  # k1 may be 0, and 0 / 0 is no number
        for one in near:
            k1, b, mean = one.made_for
            drift = max(mean / mean_length, mean_length / mean) - 1.0
            if (k1, b) == (model.k1, model.b) and drift <= _MOST_DRIFT:
                return cls(norms, one.shares, one.made_for, drift)
        return cls(norms, _shares(postings, norms), (model.k1, model.b, mean_length))


def _shares(postings: Postings, norms: NDArray[np.float64]) -> NDArray[np.float32]:
    shares = np.empty(len(postings.rows), np.float32)
    for start in range(0, len(shares), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        counts = postings.values[some]
        shares[some] = counts / (counts + norms[postings.rows[some]])
    return shares


def split_terms(ranges: Ranges, weights: list[float]) -> tuple[list[int], list[int], int]:
    """A query's terms that occur here, rare ones first: those to add up at once, those that may not be needed, and how
    many postings the latter have.
    """
    sizes = [sum(end - start for start, end in of_term) for of_term in zip(*ranges, strict=True)]
    early = sorted((at for at, size in enumerate(sizes) if size), key=sizes.__getitem__)
    late: list[int] = []
    allowed = LATE_SHARE * sum(weights[at] for at in early)
    while early and weights[early[-1]] <= allowed:
        late.append(early.pop())
        allowed -= weights[late[-1]]
    postings = sum(sizes[at] for at in late)
    return (early, late, postings) if postings > FEW_POSTINGS else (early + late, [], 0)


def add_up(
    scores: NDArray[np.float32],
    postings: Postings,
    shares: NDArray[np.float32],
    ranges: list[tuple[int, int]],
    weights: list[float],
    terms: list[int],
) -> None:
    """Add some terms' shares to the scores of the rows of a part that have them."""
    for at in terms:
        start, end = ranges[at]
        if start < end:
            # The cast is for speed: add.at casts for itself, but slower.
            rows = postings.rows[start:end].astype(np.intp)
            np.add.at(scores, rows, shares[start:end] * np.float32(weights[at]))


def exact_scores(
    postings: Postings,
    norms: NDArray[np.float64],
    rows: NDArray[np.int32],
    ranges: list[tuple[int, int]],
    weights: list[float],
) -> NDArray[np.float64]:
    """Scores of some rows of a part in float64, summed in the order of the query's terms: equal texts get equal ones.

    Args:
        postings: The part's; it has some.
        norms: (n,) of its rows, see `Saturation`.
        rows: (m,) numbers in the part.
        ranges: Where each of the query's terms begins and ends.
        weights: Of each of them.
    """
    counts = _values(postings, rows, ranges)
    return _summed(np.array(weights)[:, None] * (counts / (counts + norms[rows])))


def exact_products(
    postings: Postings, rows: NDArray[np.int32], ranges: list[tuple[int, int]], weights: list[float]
) -> NDArray[np.float64]:
    """Inner products of some rows of a part with the query's weights; summed as in `exact_scores`."""
    products = np.array(weights)[:, None] * _values(postings, rows, ranges).astype(np.float64)
    return _summed(products) + 0.0  # -0.0 becomes 0.0


def _values(postings: Postings, rows: NDArray[np.int32], ranges: list[tuple[int, int]]) -> NDArray[Any]:
    """(terms, m) what the postings say of each of some rows, which are ascending; 0 where it has not the term."""
    bounds = np.array(ranges)
    at = np.array([postings.rows[start:end].searchsorted(rows) for start, end in ranges]) + bounds[:, :1]
    found = (postings.rows.take(at, mode="clip") == rows) & (at < bounds[:, 1:])
    values: NDArray[Any] = postings.values.take(at, mode="clip") * found
    return values


def _summed(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums along the first axis. `numpy.sum` may go pairwise, depending on the shape; accumulate goes one by one."""
    sums: NDArray[np.float64] = np.add.accumulate(shares, axis=0)[-1]
    return sums


def matching_rows(parts: Sequence[Postings], ranges: Ranges, firsts: Sequence[int]) -> NDArray[np.int32]:
    """Every row that shares a term with the query, ascending.

    Args:
        parts: Each with its postings.
        ranges: Where in them the query's terms are.
        firsts: The number of each part's row 0, and that of all rows.
    """
    touched = np.zeros(firsts[-1], np.bool_)
    for part, own, first in zip(parts, ranges, firsts, strict=False):
        for start, end in own:
            touched[part.rows[start:end] + np.int32(first)] = True
    return np.flatnonzero(touched).astype(np.int32)
