"""Top-k of very large keyword indexes by the postings of a query's rare terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazyrag.indexes.postings import Mask, Postings, kth_largest, sorted_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

# rows are cleared and looked through in the time in which one posting is sorted
ROWS_A_POSTING = 64
_PROBES = 4  # rows that are scored for each requested row, for a bound on the worst of the best
_MAX_PEAKS = 10_000

Peaks: TypeAlias = "dict[Any, float]"
"""Largest contributions of terms, by where their postings are; shared by the queries of an
index."""


@dataclass(frozen=True, slots=True)
class RareTerms:
    """The rows of a query's rare terms, whose number grows slower than that of all rows.

    A row without these terms scores no more than the other terms can add together. Once enough rows
    score more than that, the best ones are among the rows of the rare terms.

    Args:
        parts: Postings of each part, and the contributions of each posting, up to an error.
        firsts: The number of each part's row 0, and that of all rows.
        terms: For each of the query's terms its range of postings in each part.
        weights: Of each of them, above 0.
        slack: Largest relative error of a score, times 2.
        peaks: Of terms in these parts; it is filled here.

    Source:
        MaxScore: Turtle, Flood: Query Evaluation: Strategies and Optimizations, 1995,
            doi:10.1016/0306-4573(95)00020-H.
    """

    parts: Sequence[tuple[Postings, NDArray[np.float32]]]
    firsts: Sequence[int]
    terms: Sequence[tuple[tuple[int, int], ...]]
    weights: Sequence[float]
    slack: float
    peaks: Peaks

    def candidates(self, topk: int, mask: Mask | None) -> NDArray[np.int32] | None:
        """Rows among which the topk best are, ascending; None if adding up all postings is faster.

        Args:
            topk: At least 1.
            mask: Of the rows that may be found; None for all.
        """
        sizes = [sum(end - start for start, end in ranges) for ranges in self.terms]
        order = sorted((at for at, size in enumerate(sizes) if size), key=sizes.__getitem__)
        most = [self.weights[at] * self._peak(self.terms[at]) * (1.0 + self.slack) for at in order]
        rows = np.zeros(0, np.int32)
        scores = np.zeros(0, np.float32)
        postings = 0
        for taken, at in enumerate(order, start=1):
            postings += sizes[at]
            if postings * ROWS_A_POSTING > self.firsts[-1]:
                return None
            part_rows, added = self._postings(at)
            rows, scores = _sums_by_row(
                np.concatenate([rows, part_rows]), np.concatenate([scores, added])
            )
            missing = sum(most[taken:])
            rest = order[taken:]
            if missing > sum(most[:taken]):  # no row scores more than that yet
                continue
            visible = rows
            lower = scores
            if mask is not None:
                seen = mask[rows]
                visible = rows[seen]
                lower = scores[seen]
            if len(visible) < topk:
                if rest:
                    continue
                return visible
            probed = lower >= kth_largest(lower, min(len(lower), _PROBES * topk))
            best = visible[probed]
            full = lower[probed]
            for term in rest:
                full = full + self._lookup(term, best)
            bound = kth_largest(full, topk) * (1.0 - self.slack)
            if bound <= missing:
                continue
            return self._narrow(visible, lower, bound, rest, most[taken:])
        return None

    def _narrow(
        self,
        rows: NDArray[np.int32],
        scores: NDArray[np.float32],
        bound: float,
        terms: Sequence[int],
        most: Sequence[float],
    ) -> NDArray[np.int32]:
        """The rows that may reach a bound, after looking up the terms that are not added yet.

        Args:
            rows: The rows.
            scores: Of each row, without these terms.
            bound: The least score of the best rows.
            terms: Not added yet.
            most: What each of them adds at most.
        """
        for number, term in enumerate(terms):
            left = scores * (1.0 + self.slack) + sum(most[number:]) >= bound
            rows = rows[left]
            scores = scores[left] + self._lookup(term, rows)
        return rows[scores * (1.0 + self.slack) >= bound]

    def _lookup(self, term: int, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """What a term adds to the scores of some rows, which are ascending."""
        added = np.zeros(len(rows), np.float32)
        ends = rows.searchsorted(self.firsts).tolist()
        for number, (start, end) in enumerate(self.terms[term]):
            some = slice(ends[number], ends[number + 1])
            if some.start < some.stop and start < end:
                postings, contributions = self.parts[number]
                term_rows = postings.rows[start:end]
                local = rows[some] - np.int32(self.firsts[number])
                at = term_rows.searchsorted(local)
                added[some] = contributions[start:end].take(at, mode="clip") * (
                    term_rows.take(at, mode="clip") == local
                )
        return added * np.float32(self.weights[term])

    def _postings(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The rows of a term, and what it adds to the score of each."""
        places = [
            (part, first, start, end)
            for part, first, (start, end) in zip(
                self.parts, self.firsts, self.terms[term], strict=False
            )
            if start < end
        ]
        rows = [
            postings.rows[start:end] + np.int32(first)
            for (postings, _), first, start, end in places
        ]
        added = [contributions[start:end] for (_, contributions), _, start, end in places]
        return np.concatenate(rows), np.concatenate(added) * np.float32(self.weights[term])

    def _peak(self, ranges: tuple[tuple[int, int], ...]) -> float:
        """The largest contribution of a term."""
        peak = self.peaks.get(ranges)
        if peak is None:
            pairs = zip(self.parts, ranges, strict=True)
            peak = max(
                float(numbers[start:end].max(initial=0.0)) for (_, numbers), (start, end) in pairs
            )
            if len(self.peaks) >= _MAX_PEAKS:
                self.peaks.clear()
            self.peaks[ranges] = peak
        return peak


def _sums_by_row(
    rows: NDArray[np.int32], added: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Each row once, ascending, with the sum of what is added to it."""
    order = sorted_order(rows)
    rows = rows[order]
    firsts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    return rows[firsts], np.add.reduceat(added[order], firsts)
