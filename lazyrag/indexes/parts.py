"""Exact BM25 over immutable parts: written once, opened memory-mapped, joined when they are many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import ConfigError, StoreError
from lazyrag.indexes import scoring
from lazyrag.indexes.blocks import Mask, RowBlock, pick
from lazyrag.indexes.bm25 import BM25, Statistics
from lazyrag.indexes.postings import Postings, Vocabulary
from lazyrag.indexes.rows import LiveRows, best_rows, check_new_rows, contenders, ranked, scratch_zeros
from lazyrag.indexes.scoring import Ranges, Saturation
from lazyrag.storage.array_format import Arrays
from lazyrag.typing import Fields, Ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Wanted: TypeAlias = tuple[float, float, float]
"""What a saturation depends on beside the part: k1, b, mean length."""


@dataclass(frozen=True, slots=True)
class TermPart:
    """The terms of some rows, by term; never changed. Rows and terms have numbers of its own, from 0.

    Args:
        rows: Keys and fields.
        lengths: (n,) int32, how many terms each row has, repetitions counted.
        vocabulary: Its distinct terms.
        postings: The rows of each of them.

    Example:
        >>> part = TermPart.of_rows(["a", "b"], [["green", "tea"], ["black", "tea", "tea"]])
        >>> again = TermPart.from_arrays(part.arrays())
        >>> LexicalState([again], [None]).search(["green"], 3) == LexicalState([part], [None]).search(["green"], 3)
        True
    """

    rows: RowBlock
    lengths: NDArray[np.int32]
    vocabulary: Vocabulary
    postings: Postings

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> NDArray[np.bytes_]:
        """(n,) the keys of the rows, UTF-8 of fixed width."""
        return self.rows.keys

    @classmethod
    def of_rows(
        cls, keys: Sequence[str], terms: Sequence[Sequence[str]], fields: Sequence[Fields] | None = None
    ) -> TermPart:
        """A part of new rows.

        Args:
            keys: n distinct keys.
            terms: The terms of each, in any order, with repetitions.
            fields: What filters read of each; the rows of one file should share one object. JSON values and tuples.

        Raises:
            ConfigError: If keys repeat or the lengths differ.
        """
        check_new_rows(keys, terms, fields)
        lengths = np.fromiter(map(len, terms), np.int32, len(terms))
        numbers: defaultdict[str, int] = defaultdict(count().__next__)  # a term that is new gets the next number
        each = map(numbers.__getitem__, chain.from_iterable(terms))
        flat = np.fromiter(each, np.int32, int(lengths.sum(dtype=np.int64)))
        return cls(RowBlock.of(keys, fields), lengths, Vocabulary(list(numbers)), Postings.of_rows(flat, lengths))

    @classmethod
    def joined(cls, parts: Sequence[TermPart], kept: Sequence[Mask | None]) -> TermPart:
        """Several parts as one, their rows in the same order.

        Args:
            parts: At least one.
            kept: For each of them a mask of the rows to keep; None for all.

        Raises:
            ConfigError: If there is no part, or a mask does not fit its part.
        """
        if not parts:
            msg = "TermPart.joined() got no parts; give at least one."
            raise ConfigError(msg)
        LiveRows([part.rows for part in parts], kept)  # refuses masks that do not fit
        left = [
            part if mask is None or mask.all() else part._kept(mask) for part, mask in zip(parts, kept, strict=True)
        ]
        numbers: dict[str, int] = {}
        new_numbers = [
            np.array([numbers.setdefault(term, len(numbers)) for term in part.vocabulary.terms()], np.intp)
            for part in left
        ]
        firsts = np.cumsum([0, *map(len, left)]).tolist()[:-1]
        return cls(
            RowBlock.joined([part.rows for part in left]),
            np.concatenate([part.lengths for part in left]),
            Vocabulary(list(numbers)),
            Postings.joined([part.postings for part in left], firsts, new_numbers),
        )

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key, see `encoded_keys`; -1 where there is none."""
        return self.rows.find(keys)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` makes an equal part of: arrays without objects, to be written to a file."""
        return {
            **self.rows.arrays(),
            "lengths": self.lengths,
            "vocabulary": self.vocabulary.text(),
            "starts": self.postings.starts,
            "rows": self.postings.rows,
            "counts": self.postings.values,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> TermPart:
        """A part over arrays, which may be memory-mapped; they are read when a query needs them.

        Raises:
            StoreError: If arrays are missing, or of lengths that do not go together.
        """
        lengths, vocabulary, starts, rows, counts = pick(arrays, "lengths", "vocabulary", "starts", "rows", "counts")
        block = RowBlock.from_arrays(arrays)
        postings = int(starts[-1]) if len(starts) else -1
        if not (len(lengths) == len(block) and len(rows) == len(counts) == postings):
            msg = (
                f"A part of an index has {len(block)} rows with {len(lengths)} lengths and {postings} postings with "
                f"{len(rows)} rows and {len(counts)} counts. Its file is damaged: build the index again."
            )
            raise StoreError(msg)
        return cls(block, lengths, Vocabulary.of_text(vocabulary), Postings(starts, rows, counts))

    def ranges(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        """For each of some terms where its postings begin and end; nowhere, if it does not occur."""
        numbers, starts = self.vocabulary.numbers(), self.postings.starts
        at = [numbers.get(term, -1) for term in terms]
        return [(0, 0) if number < 0 else (int(starts[number]), int(starts[number + 1])) for number in at]

    def _kept(self, mask: Mask) -> TermPart:
        postings, left = self.postings.kept(mask)
        terms = self.vocabulary.terms()
        vocabulary = Vocabulary([terms[number] for number in left.tolist()])
        return TermPart(self.rows.kept(mask), self.lengths[mask], vocabulary, postings)


class LexicalState:
    """What a query reads: some parts, and which of their rows live. Never changed, safe for any number of threads.

    Scores do not depend on how the rows are dealt to parts: the same rows give the same ranking, bit for bit.

    Args:
        parts: Their live rows have distinct keys.
        alive: For each part a mask that is false for dead rows; None where all live. Not to be changed afterwards.
        previous: An earlier state: what it has worked out and still holds is taken over, and not it itself.

    Raises:
        ConfigError: If a mask does not fit its part.

    Example:
        >>> part = TermPart.of_rows(["a", "b"], [["green", "tea"], ["black", "tea", "tea"]])
        >>> [key for key, _ in LexicalState([part], [np.array([False, True])]).search(["tea", "green"], 10)]
        ['b']
    """

    def __init__(
        self, parts: Sequence[TermPart], alive: Sequence[Mask | None], previous: LexicalState | None = None
    ) -> None:
        self.parts = tuple(parts)
        self._rows = LiveRows([part.rows for part in self.parts], alive)
        self.alive = tuple(None if mask is None or mask.all() else mask for mask in alive)
        self.tokens = sum(
            int((part.lengths if mask is None else part.lengths[mask]).sum(dtype=np.int64))
            for part, mask in zip(self.parts, self.alive, strict=True)
        )
        self._saturations: dict[_Wanted, tuple[Saturation, ...]] = {}
        # The live rows with each term: one entry, counted once a query under the okapi variant needs it.
        self._vocabulary: list[Counter[str]] = []
        # By part, those of earlier states: the mean length of all rows has moved little since.
        self._inherited: dict[int, list[Saturation]] = {}
        if previous is not None:
            self._inherited = {id(part): previous._known(part) for part in self.parts}

    def __len__(self) -> int:
        return self.live

    @property
    def live(self) -> int:
        """How many rows live."""
        return self._rows.live

    @property
    def _mean_length(self) -> float:
        return self.tokens / self.live

    def statistics(self, terms: Sequence[str], model: BM25 = BM25()) -> Statistics:
        """What these rows add to a query's statistics: the live ones only.

        Args:
            terms: The query's terms.
            model: The okapi variant needs the frequencies of the whole vocabulary.
        """
        distinct = list(dict.fromkeys(terms))
        return self._statistics(len(distinct), [part.ranges(distinct) for part in self.parts], model)

    def search(
        self,
        terms: Sequence[str],
        topk: int,
        *,
        filter: Filter | None = None,  # noqa: A002  the word of the domain
        model: BM25 = BM25(),
        statistics: Statistics | None = None,
    ) -> Ranking:
        """The best live rows that share a term with the query.

        Args:
            terms: The query's terms; one that stands twice counts twice.
            topk: At least 1.
            filter: A bound filter over the rows' fields. It narrows what is ranked and changes no statistic.
            model: BM25's parameters.
            statistics: Those of several indexes together; left out, this one's own.

        Returns:
            At most topk pairs (key, score), best first, ties by key.

        Raises:
            ConfigError: If topk is below 1.
        """
        if topk < 1:
            msg = f"topk is {topk}; give at least 1."
            raise ConfigError(msg)
        repeats = Counter(terms)
        distinct = list(repeats)
        ranges = [part.ranges(distinct) for part in self.parts]
        known = self._statistics(len(distinct), ranges, model) if statistics is None else statistics
        if not self.live or not any(known.frequencies):
            return []
        factor = model.k1 + 1.0 if model.variant == "okapi" else 1.0
        weights = [idf * times * factor for idf, times in zip(known.idf(model), repeats.values(), strict=True)]
        saturations = self._saturated(model, known.tokens / known.rows)
        rows = self._candidates(ranges, weights, saturations, topk, self._rows.mask(filter))
        rows.sort()
        scores = self._exact_scores(rows, ranges, weights, saturations)
        return ranked(self._rows.keys, rows, scores, topk)

    def _candidates(
        self,
        ranges: Ranges,
        weights: list[float],
        saturations: tuple[Saturation, ...],
        topk: int,
        mask: Mask | None,
    ) -> NDArray[np.int32]:
        """Rows among which the topk best are, by a float32 pass over the postings."""
        firsts = self._rows.firsts.tolist()
        if min(weights) <= 0:
            # Only okapi's idf can be 0 or less; then a score does not tell whether a row shares a term.
            rows = scoring.matching_rows([part.postings for part in self.parts], ranges, firsts)
            return rows if mask is None else rows[mask[rows]]
        scores = scratch_zeros(len(self._rows))

        def add_up(terms: list[int]) -> None:
            for number, (part, saturation) in enumerate(zip(self.parts, saturations, strict=True)):
                own = scores[firsts[number] : firsts[number + 1]]
                scoring.add_up(own, part.postings, saturation.shares, ranges[number], weights, terms)
            if mask is not None:
                np.multiply(scores, mask, out=scores)

        # Each of n terms is rounded when stored, weighted (twice) and added, all but the first: |error| <= (n + 2) u
        # score, with u = 2^-24, beside the drift. The rest is for the bounds, which are rounded, too.
        drift = max(saturation.drift for saturation in saturations)
        slack = 2.0 * ((len(weights) + 6) * 2.0**-24 + 1.01 * drift)
        early, late, postings = scoring.split_terms(ranges, weights)
        add_up(early)
        if late:
            # A term gives a row less than its weight. So rows far enough behind need not be told the late terms.
            found = contenders(
                scores,
                topk,
                slack=slack,
                missing=sum(weights[at] for at in late),
                at_most=postings // (scoring.POSTINGS_PER_LOOKUP * len(weights)),
            )
            if found is not None:
                return found
            add_up(late)
        return best_rows(scores, topk, slack=slack)

    def _exact_scores(
        self, rows: NDArray[np.int32], ranges: Ranges, weights: list[float], saturations: tuple[Saturation, ...]
    ) -> NDArray[np.float64]:
        """Scores of some rows, which are ascending."""
        scores = np.zeros(len(rows))
        ends = rows.searchsorted(self._rows.firsts).tolist()
        for number, (part, own, saturation) in enumerate(zip(self.parts, ranges, saturations, strict=True)):
            start, end = ends[number : number + 2]
            if start < end:  # such a row has a term, so its part has postings
                local = rows[start:end] - np.int32(self._rows.firsts[number])
                scores[start:end] = scoring.exact_scores(part.postings, saturation.norms, local, own, weights)
        return scores

    def _statistics(self, terms: int, ranges: Ranges, model: BM25) -> Statistics:
        frequencies = [0] * terms
        for part, own, mask in zip(self.parts, ranges, self.alive, strict=True):
            for at, (start, end) in enumerate(own):
                if mask is None:
                    frequencies[at] += end - start
                elif start < end:
                    frequencies[at] += int(np.count_nonzero(mask[part.postings.rows[start:end]]))
        vocabulary = self._live_vocabulary() if model.variant == "okapi" else Counter[str]()
        return Statistics(self.live, self.tokens, tuple(frequencies), vocabulary)

    def _live_vocabulary(self) -> Counter[str]:
        if not self._vocabulary:  # several threads may count it at once; each counts the same
            total: Counter[str] = Counter()
            for part, mask in zip(self.parts, self.alive, strict=True):
                postings = part.postings
                left = np.cumsum(np.append(0, mask[postings.rows])) if mask is not None else None
                counts = np.diff(postings.starts if left is None else left[postings.starts]).tolist()
                for term, count in zip(part.vocabulary.terms(), counts, strict=True):
                    if count:
                        total[term] += count
            self._vocabulary.append(total)
        return self._vocabulary[0]

    def _saturated(self, model: BM25, mean_length: float) -> tuple[Saturation, ...]:
        wanted = (model.k1, model.b, mean_length)
        found = self._saturations.get(wanted)
        if found is None:
            found = tuple(
                Saturation.of(part.postings, part.lengths, model, mean_length, self._known(part)) for part in self.parts
            )
            # Two at most: the rows' own, and that of a search over several Documents. The dict is never changed, since
            # a later state may be looking through it.
            self._saturations = {**(self._saturations if len(self._saturations) < 2 else {}), wanted: found}
        return found

    def _known(self, part: TermPart) -> list[Saturation]:
        """The saturations of a part that were worked out, here or before; the latest of each kind."""
        own = [
            saturation
            for of_parts in reversed(self._saturations.values())
            for one, saturation in zip(self.parts, of_parts, strict=True)
            if one is part
        ]
        return (own or self._inherited.get(id(part), []))[:2]
