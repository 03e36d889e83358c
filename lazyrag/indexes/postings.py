"""Postings: which rows have a term, and how often; or a dimension, and with which weight."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.errors import StoreError
from lazyrag.indexes.blocks import array_text, text_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lazyrag.indexes.blocks import Mask


class Vocabulary:
    """The distinct terms of a part; a term's number is its place among them.

    Example:
        >>> Vocabulary.of_text(Vocabulary(["green", "tea"]).text()).numbers()["tea"]
        1
    """

    __slots__ = ("_numbers", "_terms", "_text")

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self._terms: list[str] | None = list(terms)
        self._numbers: dict[str, int] | None = None
        self._text: NDArray[np.uint8] | None = None

    @classmethod
    def of_text(cls, text: NDArray[np.uint8]) -> Vocabulary:
        """The vocabulary of which `text` was written; nothing is decoded yet."""
        vocabulary = cls()
        vocabulary._terms, vocabulary._text = None, text
        return vocabulary

    def terms(self) -> list[str]:
        """The terms by number; not to be changed."""
        if self._terms is None:
            self._terms = [] if self._text is None else _read_terms(array_text(self._text))
        return self._terms

    def numbers(self) -> dict[str, int]:
        """The numbers by term; not to be changed."""
        if self._numbers is None:
            terms = self.terms()
            self._numbers = dict(zip(terms, range(len(terms)), strict=True))
        return self._numbers

    def text(self) -> NDArray[np.uint8]:
        """The terms as a JSON list, (bytes,) uint8."""
        if self._text is not None:
            return self._text
        return text_array(json.dumps(self.terms(), ensure_ascii=False, separators=(",", ":")))


def _read_terms(text: str) -> list[str]:
    try:
        terms: list[str] = json.loads(text)
    except ValueError as exc:
        msg = "The vocabulary of an index cannot be read: its file is damaged. Run verify() and repair()."
        raise StoreError(msg) from exc
    return terms


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of some rows, by term or by dimension; never changed. Both are numbered from 0.

    What is said of terms here is true of the dimensions of sparse vectors as well.

    Args:
        starts: (t + 1,) int64, where each term's postings begin; no term is without.
        rows: (p,) int32, for each term the rows that have it, ascending.
        values: (p,) for each of those how often it has it: unsigned, at least 1, as wide as the largest needs; or the
            weight of the dimension: float32, not 0.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[Any]

    @classmethod
    def of_rows(cls, flat: NDArray[np.int32], lengths: NDArray[np.int32]) -> Postings:
        """Postings of new rows, with counts.

        Args:
            flat: The term numbers of all rows, one row after the other; every number up to the largest occurs.
            lengths: How many of them belong to each row.
        """
        rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        pairs, counts = np.unique((flat.astype(np.int64) << 32) | rows, return_counts=True)
        sizes = np.bincount(pairs >> 32)
        narrow = counts.astype(np.min_scalar_type(counts.max(initial=1)))
        return cls(_starts(sizes), (pairs & 0xFFFFFFFF).astype(np.int32), narrow)

    @classmethod
    def of_weights(
        cls, flat: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]], weights: NDArray[np.float32]
    ) -> Postings:
        """Postings of new rows, with weights.

        Args:
            flat: The dimensions' numbers of all rows, one row after the other; every number up to the largest occurs.
            lengths: How many of them belong to each row, which has none twice.
            weights: One for each of them.
        """
        order = sorted_order(flat)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return cls(_starts(np.bincount(flat)), rows[order], weights[order])

    def kept(self, mask: Mask) -> tuple[Postings, NDArray[np.intp]]:
        """Without the postings of the other rows, whose numbers the rows behind them take; and the terms left."""
        of_kept = mask[self.rows]
        starts = np.append(0, np.cumsum(of_kept))[self.starts]
        left = np.flatnonzero(np.diff(starts))
        new_rows = np.cumsum(mask, dtype=np.int32) - np.int32(1)
        starts = np.append(starts[left], starts[-1])
        return Postings(starts, new_rows[self.rows[of_kept]], self.values[of_kept]), left

    @classmethod
    def joined(
        cls, parts: Sequence[Postings], first_rows: Sequence[int], numbers: Sequence[NDArray[np.intp]]
    ) -> Postings:
        """Several postings as one. Every posting is put at its place at once: nothing is sorted.

        Args:
            parts: Those of earlier rows first.
            first_rows: For each part the new number of its row 0.
            numbers: For each part the new numbers of its terms.
        """
        sizes = np.zeros(max((int(own.max(initial=-1)) + 1 for own in numbers), default=0), np.int64)
        for part, own in zip(parts, numbers, strict=True):
            sizes[own] += np.diff(part.starts)
        starts = _starts(sizes)
        free = starts[:-1].copy()
        rows = np.empty(starts[-1], np.int32)
        values = np.empty(starts[-1], np.result_type(np.uint8, *(part.values.dtype for part in parts)))
        for part, first, own in zip(parts, first_rows, numbers, strict=True):
            of_term = np.diff(part.starts)
            places = np.repeat(free[own] - part.starts[:-1], of_term) + np.arange(len(part.rows))
            rows[places] = part.rows + np.int32(first)
            values[places] = part.values
            free[own] += of_term
        return cls(starts, rows, values)


def sorted_order(numbers: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Places of numbers from 0 to 2**31 - 1 in ascending order, equal ones as they stand; at most 2**32 of them.

    It sorts pairs of number and place: for whole numbers numpy's sort takes a fifth of the time of its stable argsort.

    Example:
        >>> sorted_order(np.array([7, 0, 7])).tolist()
        [1, 0, 2]
    """
    pairs = (numbers.astype(np.int64) << 32) | np.arange(len(numbers))
    pairs.sort()
    return pairs & 0xFFFFFFFF


def _starts(sizes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
