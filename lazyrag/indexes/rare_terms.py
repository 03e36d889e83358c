"""Top-k of very large keyword indexes by the postings of a query's rare terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lazyrag.indexes.postings import Mask, Postings, kth_largest, sorted_order
from lazyrag.types import Float32Array, FloatArray, Int32Array

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

    parts: Sequence[tuple[Postings, Float32Array]]
    firsts: Sequence[int]
    terms: Sequence[tuple[tuple[int, int], ...]]
    weights: Sequence[float]
    slack: float
    peaks: Peaks

    def candidates(self, topk: int, mask: Mask | None) -> Int32Array | None:
        """Rows among which the topk best are, ascending; None if adding up all postings is faster.

        Args:
            topk: At least 1.
            mask: Of the rows that may be found; None for all.
        """
        sizes = [_count_postings(ranges) for ranges in self.terms]
        occurring = [term for term, size in enumerate(sizes) if size]
        order = sorted(occurring, key=sizes.__getitem__)
        most = [
            self.weights[term] * self._peak(self.terms[term]) * (1.0 + self.slack) for term in order
        ]
        rows = np.zeros(0, np.int32)
        scores = np.zeros(0, np.float32)
        postings = 0
        for taken, rarest in enumerate(order, start=1):
            postings += sizes[rarest]
            if postings * ROWS_A_POSTING > self.firsts[-1]:
                return None
            term_rows, added = self._postings(rarest)
            all_rows = np.concatenate([rows, term_rows])
            all_scores = np.concatenate([scores, added])
            rows, scores = _sums_by_row(all_rows, all_scores)
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
            probes = min(len(lower), _PROBES * topk)
            is_probe = lower >= kth_largest(lower, probes)
            best = visible[is_probe]
            best_scores = lower[is_probe]
            for term in rest:
                best_scores = best_scores + self._lookup(term, best)
            bound = kth_largest(best_scores, topk) * (1.0 - self.slack)
            if bound <= missing:
                continue
            return self._narrow(visible, lower, bound, rest, most[taken:])
        return None

    def _narrow(
        self,
        rows: Int32Array,
        scores: Float32Array,
        bound: float,
        terms: Sequence[int],
        most: Sequence[float],
    ) -> Int32Array:
        """The rows that may reach a bound, after looking up the terms that are not added yet.

        Args:
            rows: The rows.
            scores: Of each row, without these terms.
            bound: The least score of the best rows.
            terms: Not added yet.
            most: What each of them adds at most.
        """
        margin = 1.0 + self.slack
        for number, term in enumerate(terms):
            missing = sum(most[number:])
            left = scores * margin + missing >= bound
            rows = rows[left]
            scores = scores[left] + self._lookup(term, rows)
        is_near = scores * margin >= bound
        return rows[is_near]

    def _lookup(self, term: int, rows: Int32Array) -> Float32Array:
        """What a term adds to the scores of some rows, which are ascending."""
        added = np.zeros(len(rows), np.float32)
        ends = rows.searchsorted(self.firsts).tolist()
        for number, (start, end) in enumerate(self.terms[term]):
            some = slice(ends[number], ends[number + 1])
            if some.start < some.stop and start < end:
                postings, contributions = self.parts[number]
                term_rows = postings.rows[start:end]
                term_contributions = contributions[start:end]
                part_rows = rows[some] - np.int32(self.firsts[number])
                positions = term_rows.searchsorted(part_rows)
                is_present = term_rows.take(positions, mode="clip") == part_rows
                added[some] = term_contributions.take(positions, mode="clip") * is_present
        return added * np.float32(self.weights[term])

    def _postings(self, term: int) -> tuple[Int32Array, Float32Array]:
        """The rows of a term, and what it adds to the score of each."""
        rows = []
        added = []
        for number, (start, end) in enumerate(self.terms[term]):
            if start < end:
                postings, contributions = self.parts[number]
                rows.append(postings.rows[start:end] + np.int32(self.firsts[number]))
                added.append(contributions[start:end])
        weight = np.float32(self.weights[term])
        return np.concatenate(rows), np.concatenate(added) * weight

    def _peak(self, ranges: tuple[tuple[int, int], ...]) -> float:
        """The largest contribution of a term."""
        peak = self.peaks.get(ranges)
        if peak is None:
            peak = 0.0
            for (_, contributions), (start, end) in zip(self.parts, ranges, strict=True):
                part_peak = float(contributions[start:end].max(initial=0.0))
                peak = max(peak, part_peak)
            if len(self.peaks) >= _MAX_PEAKS:
                self.peaks.clear()
            self.peaks[ranges] = peak
        return peak


def _count_postings(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)


def _sums_by_row(rows: Int32Array, added: FloatArray) -> tuple[Int32Array, Float32Array]:
    """Each row once, ascending, with the sum of what is added to it."""
    order = sorted_order(rows)
    rows = rows[order]
    is_first = np.append(True, rows[1:] != rows[:-1])
    firsts = np.flatnonzero(is_first)
    return rows[firsts], np.add.reduceat(added[order], firsts)
