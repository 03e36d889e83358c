"""Exact BM25 on an inverted index of immutable parts."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Literal, TypeAlias

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import StoreError
from lazyrag.indexes.postings import (
    Allocate,
    CodeBlock,
    LiveRows,
    Mask,
    Masks,
    Postings,
    RowBlock,
    RowPart,
    Vocabulary,
    best_rows,
    contenders,
    decoded_keys,
    pick,
    ranked,
    scratch_zeros,
)
from lazyrag.indexes.rare_terms import Peaks, RareTerms
from lazyrag.indexes.tiers import TieredIndex
from lazyrag.storage.arrays import Arrays, unload
from lazyrag.text.stop_words import STOP_MARK
from lazyrag.types import (
    AnyArray,
    Fields,
    Float32Array,
    FloatArray,
    Int32Array,
    Int64Array,
    Ranking,
)
from lazyrag.validation import validate_choice, validate_integer, validate_range

Variant = Literal["lucene", "okapi"]
VARIANTS: tuple[Variant, ...] = ("lucene", "okapi")

_OKAPI_EPSILON = 0.25


@dataclass(frozen=True, slots=True)
class BM25:
    """BM25's parameters.

    Args:
        k1: Saturation of term frequency, >= 0.
        b: Weight of document length, in [0, 1].
        variant: ``"lucene"``: idf = ln(1 + (N - df + .5) / (df + .5)), never negative, and no
            factor (k1 + 1). ``"okapi"``: idf = ln((N - df + .5) / (df + .5)), a negative one
            replaced by .25 times the mean idf over the vocabulary, and the factor (k1 + 1):
            rank_bm25's BM25Okapi.

    Raises:
        ConfigError: If a value is out of its range.

    Source:
        Robertson, Zaragoza: The Probabilistic Relevance Framework, 2009, doi:10.1561/1500000019.
            Variants as in
        Kamphuis et al.: Which BM25 Do You Mean?, ECIR 2020, doi:10.1007/978-3-030-45442-5_4.
    """

    k1: float = 1.5
    b: float = 0.75
    variant: Variant = "lucene"

    def __post_init__(self) -> None:
        validate_range("k1 of BM25", self.k1, 0, expected="a finite number >= 0")
        validate_range("b of BM25", self.b, 0, 1)
        validate_choice("variant of BM25", self.variant, VARIANTS)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a collection for one query. Those of several indexes add up.

    Args:
        rows: Live rows.
        tokens: Their tokens together.
        frequencies: Live rows with each of the query's distinct terms, in the query's order.
        vocabulary: Number of live rows with each term, for the okapi variant; else empty.
    """

    rows: int
    tokens: int
    frequencies: tuple[int, ...]
    vocabulary: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Statistics) -> Statistics:
        rows = self.rows + other.rows
        tokens = self.tokens + other.tokens
        pairs = zip(self.frequencies, other.frequencies, strict=True)
        frequencies = tuple(first + second for first, second in pairs)
        return Statistics(rows, tokens, frequencies, self.vocabulary + other.vocabulary)

    def idf(self, model: BM25) -> list[float]:
        """The idf of each of the query's distinct terms under a variant."""
        total = self.rows
        if model.variant == "lucene":
            return [math.log1p((total - df + 0.5) / (df + 0.5)) for df in self.frequencies]
        raw = [_okapi_idf(total, df) for df in self.frequencies]
        if min(raw) >= 0:
            return raw
        # Many terms share a frequency, so the mean is taken over the distinct ones.
        counts = Counter(self.vocabulary.values())
        idf_sum = math.fsum(_okapi_idf(total, df) * times for df, times in counts.items())
        mean = idf_sum / len(self.vocabulary)
        floor = _OKAPI_EPSILON * mean
        return [value if value >= 0 else floor for value in raw]


def _okapi_idf(total: int, df: int) -> float:
    absent = total - df + 0.5
    present = df + 0.5
    return math.log(absent) - math.log(present)


# A fast float32 pass over postings finds candidates, an exact float64 pass scores them.

# Common terms have most of a query's postings and contribute little to its best scores. With more
# than this share of the weights left out, too many rows stay candidates; with less, too many
# postings are added up (tried).
LATE_SHARE = 0.15
FEW_POSTINGS = 8_000  # adding up so many costs less than looking for terms to leave out
# as many are added up in the time that one row's exact contribution of one term takes
POSTINGS_PER_LOOKUP = 24

MANY_ROWS = 1 << 21  # from which a query's rare terms are tried first, see `RareTerms`
_MAX_CACHE_DRIFT = 2.0**-8
"""Reuse cached term contributions if the mean length changed by at most this factor."""
# postings whose contributions are computed together: temporary arrays stay in the CPU cache
_BATCH_SIZE = 1 << 15


def _mean_length(tokens: int, rows: int) -> float:
    return max(1, tokens) / rows  # rows of stop words alone have no tokens


PartRanges: TypeAlias = "list[tuple[int, int]]"
"""For each of a query's distinct terms: the range of its postings in a part."""

Ranges: TypeAlias = "list[PartRanges]"
"""The ranges in each part."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Saturation of term frequencies in a part, which depends on the mean length of all rows.

    Each added or deleted row changes the mean a little, and with it each contribution. One for
    another mean is wrong by no more than the means differ, so it still serves to find candidates;
    the norms that score them are of this mean.

    Args:
        norms: (n,) k1 (1 - b + b length / mean length) of each row, above 0.
        contributions: (p,) tf / (tf + norm) of each posting; float32, at most 1.
        computed_for: The k1, b and mean length of the contributions.
        drift: Largest relative error of a contribution, at least 0.
    """

    norms: FloatArray
    contributions: Float32Array
    computed_for: tuple[float, float, float]
    drift: float = 0.0

    @classmethod
    def of(
        cls,
        postings: Postings,
        lengths: Int32Array,
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
        norms = _norms(model.k1, model.b, lengths, mean_length)
        for saturation in near:
            k1, b, mean = saturation.computed_for
            drift = _drift(mean, mean_length)
            if (k1, b) == (model.k1, model.b) and drift <= _MAX_CACHE_DRIFT:
                return cls(norms, saturation.contributions, saturation.computed_for, drift)
        contributions = _contributions(postings, norms)
        return cls(norms, contributions, (model.k1, model.b, mean_length))

    def moved(self, lengths: Int32Array, mean_length: float) -> Saturation:
        """The same contributions for another mean length, however far it is; see `of`."""
        k1, b, mean = self.computed_for
        norms = _norms(k1, b, lengths, mean_length)
        drift = _drift(mean, mean_length)
        return Saturation(norms, self.contributions, self.computed_for, drift)


def _drift(mean: float, mean_length: float) -> float:
    """Largest relative error of contributions that were computed for another mean length."""
    growth = mean_length / mean
    shrinkage = mean / mean_length
    return max(shrinkage, growth) - 1.0


def _norms(k1: float, b: float, lengths: Int32Array, mean_length: float) -> FloatArray:
    exact_lengths = lengths.astype(np.float64)
    norms = k1 * (1.0 - b + b * exact_lengths / mean_length)
    smallest = np.finfo(np.float64).tiny
    return np.maximum(norms, smallest)  # k1 may be 0, and 0 / 0 is no number


def _contributions(postings: Postings, norms: FloatArray) -> Float32Array:
    contributions = np.empty(len(postings.rows), np.float32)
    for start in range(0, len(contributions), _BATCH_SIZE):
        some = slice(start, start + _BATCH_SIZE)
        counts = postings.values[some]
        row_norms = norms[postings.rows[some]]
        contributions[some] = counts / (counts + row_norms)
        for mapped in (postings.rows, postings.values):  # queries look into few of them
            unload(mapped)
    return contributions


def split_terms(ranges: Ranges, weights: list[float]) -> tuple[list[int], list[int], int]:
    """A query's terms that occur here, rare ones first: those to add up at once, those that may not
    be needed, and how many postings the latter have.
    """
    sizes = [0] * len(weights)
    for part_ranges in ranges:
        for term, (start, end) in enumerate(part_ranges):
            sizes[term] += end - start
    occurring = [term for term, size in enumerate(sizes) if size]
    early = sorted(occurring, key=sizes.__getitem__)
    late = []
    allowed = LATE_SHARE * sum(weights[term] for term in early)
    while early and weights[early[-1]] <= allowed:
        term = early.pop()
        late.append(term)
        allowed -= weights[term]
    postings = sum(sizes[term] for term in late)
    if postings > FEW_POSTINGS:
        return early, late, postings
    return early + late, [], 0


def add_up(
    scores: Float32Array,
    postings: Postings,
    contributions: Float32Array,
    ranges: PartRanges,
    weights: list[float],
    terms: list[int],
) -> None:
    """Add some terms' contributions to the scores of the rows of a part that have them."""
    for term in terms:
        start, end = ranges[term]
        if start < end:
            # The cast is for speed: add.at casts for itself, but slower.
            rows = postings.rows[start:end].astype(np.intp)
            weight = np.float32(weights[term])
            added = contributions[start:end] * weight
            np.add.at(scores, rows, added)


def exact_scores(
    postings: Postings,
    norms: FloatArray,
    rows: Int32Array,
    ranges: PartRanges,
    weights: list[float],
) -> FloatArray:
    """Scores of some rows of a part in float64, summed in the order of the query's terms: equal
    texts get equal ones.

    Args:
        postings: The part's; it has some.
        norms: (n,) of its rows, see `Saturation`.
        rows: (m,) numbers in the part.
        ranges: Where each of the query's terms begins and ends.
        weights: Of each of them.
    """
    counts = _values(postings, rows, ranges)
    saturated = counts / (counts + norms[rows])
    term_weights = np.array(weights)[:, None]
    return _summed(term_weights * saturated)


def exact_products(
    postings: Postings, rows: Int32Array, ranges: PartRanges, weights: list[float]
) -> FloatArray:
    """Inner products of some rows of a part with the query's weights; summed as in
    `exact_scores`.
    """
    values = _values(postings, rows, ranges).astype(np.float64)
    term_weights = np.array(weights)[:, None]
    sums = _summed(term_weights * values)
    return sums + 0.0  # -0.0 becomes 0.0


def _values(postings: Postings, rows: Int32Array, ranges: PartRanges) -> AnyArray:
    """(terms, m) values of the postings of some ascending rows; 0 if a row lacks the term."""
    bounds = np.array(ranges)
    offsets = [postings.rows[start:end].searchsorted(rows) for start, end in ranges]
    positions = np.array(offsets) + bounds[:, :1]
    is_same_row = postings.rows.take(positions, mode="clip") == rows
    is_present = is_same_row & (positions < bounds[:, 1:])
    values: AnyArray = postings.values.take(positions, mode="clip") * is_present
    return values


def _summed(contributions: FloatArray) -> FloatArray:
    """Sums along the first axis, in order. `numpy.sum` may add pairwise, depending on the shape."""
    sums: FloatArray = np.add.accumulate(contributions, axis=0)[-1]
    return sums


def matching_rows(parts: Sequence[Postings], ranges: Ranges, firsts: Sequence[int]) -> Int32Array:
    """Every row that shares a term with the query, ascending.

    Args:
        parts: Each with its postings.
        ranges: Where in them the query's terms are.
        firsts: The number of each part's row 0, and that of all rows.
    """
    touched = np.zeros(firsts[-1], np.bool_)
    for part, part_ranges, first in zip(parts, ranges, firsts, strict=False):
        for start, end in part_ranges:
            rows = part.rows[start:end] + np.int32(first)
            touched[rows] = True
    return np.flatnonzero(touched).astype(np.int32)


# whose statistics are cached: some 10 bytes for each row and 4 for each term, of index and scope
_MAX_SCOPES = 64
_MAX_CANDIDATE_DRIFT = 0.25
"""Above it, score every matching row exactly."""

_SaturationKey: TypeAlias = tuple[float, float, float]
"""Key of a saturation of a part: k1, b, mean length."""

_TERM_ARRAYS = ("term_ends", "term_crcs", "terms_by_crc")
"""Arrays with an item for each term; older files lack them."""


@dataclass(frozen=True, slots=True)
class TermPart(RowPart):
    """The terms of some rows, by term; never changed. Rows and terms have numbers of its own, from
    0.

    Args:
        rows: Keys and fields.
        lengths: (n,) int32, how many terms each row has, repetitions counted; without stop words,
            see `STOP_MARK`.
        vocabulary: Its distinct terms.
        postings: The rows of each of them.

    Example:
        >>> part = TermPart.of_rows(["a", "b"], [["green", "tea"], ["black", "tea", "tea"]])
        >>> restored = TermPart.from_arrays(part.arrays())
        >>> [key for key, _ in LexicalState([restored], [None]).search(["green"], 3)]
        ['a']
    """

    lengths: Int32Array
    vocabulary: Vocabulary
    postings: Postings

    @classmethod
    def of_rows(
        cls,
        keys: Sequence[str],
        terms: Sequence[Sequence[str]],
        fields: Sequence[Fields] | None = None,
    ) -> TermPart:
        """A part of new rows.

        Args:
            keys: n distinct keys.
            terms: The terms of each, in any order, with repetitions.
            fields: What filters read of each; the rows of one file should share one object. JSON
                values and tuples.

        Raises:
            ConfigError: If keys repeat or the lengths differ.
        """
        row_count = len(terms)
        lengths = np.fromiter(map(len, terms), np.int32, row_count)
        term_count = int(lengths.sum(dtype=np.int64))
        # a term that is new gets the next number
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        flat_terms = chain.from_iterable(terms)
        codes = np.fromiter(map(numbers.__getitem__, flat_terms), np.int64, term_count)
        rows = np.arange(row_count, dtype=np.int32).repeat(lengths)
        block = (codes, rows, row_count)
        return cls.of_codes(keys, [block], lambda _: list(numbers), fields)

    @classmethod
    def of_codes(
        cls,
        keys: Sequence[str],
        blocks: Sequence[CodeBlock],
        terms: Callable[[Int64Array], list[str]],
        fields: Sequence[Fields] | None = None,
    ) -> TermPart:
        """A part of new rows.

        Args:
            keys: n distinct keys.
            blocks: Numbers of their terms, n rows in all.
            terms: Returns the terms with some numbers.
            fields: See `of_rows`.
        """
        postings, codes = Postings.of_codes(blocks)
        lengths = np.zeros(len(keys), np.int32)
        first = 0
        for _, rows, row_count in blocks:
            end = first + row_count
            lengths[first:end] = np.bincount(rows, minlength=row_count)
            first = end
        vocabulary = terms(codes)
        stop_words = [number for number, term in enumerate(vocabulary) if STOP_MARK in term]
        for number in stop_words:
            start, end = postings.starts[number : number + 2].tolist()
            lengths[postings.rows[start:end]] -= postings.values[start:end]
        block = RowBlock.of(keys, fields)
        return cls(block, lengths, Vocabulary(vocabulary), postings)

    @classmethod
    def joined(
        cls,
        parts: Sequence[TermPart],
        masks: Masks,
        allocate: Allocate = np.empty,
    ) -> TermPart:
        """Several parts as one, their rows in the same order.

        Args:
            parts: At least one.
            masks: For each of them a mask of the rows to keep; None for all.
            allocate: See `Postings.joined`.

        Raises:
            ConfigError: If there is no part, or a mask does not fit its part.
        """
        kept_parts = [
            part if mask is None or mask.all() else part._select(mask)
            for part, mask in zip(parts, masks, strict=True)
        ]
        numbers: dict[str, int] = {}
        new_numbers = []
        for part in kept_parts:
            terms = part.vocabulary.terms()
            part_numbers = [numbers.setdefault(term, len(numbers)) for term in terms]
            new_numbers.append(np.array(part_numbers, np.intp))
        rows = RowBlock.joined([part.rows for part in kept_parts])
        lengths = np.concatenate([part.lengths for part in kept_parts])
        firsts = np.cumsum([0, *map(len, kept_parts)]).tolist()[:-1]
        part_postings = [part.postings for part in kept_parts]
        postings = Postings.joined(part_postings, firsts, new_numbers, allocate)
        return cls(rows, lengths, Vocabulary(list(numbers)), postings)

    def arrays(self) -> Arrays:
        """Arrays for `from_arrays`, to be written to a file."""
        return {
            **self.rows.arrays(),
            "lengths": self.lengths,
            **self.vocabulary.arrays(),
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
        lengths, _, starts, rows, counts = pick(
            arrays, "lengths", "vocabulary", "starts", "rows", "counts"
        )
        block = RowBlock.from_arrays(arrays)
        size = int(starts[-1]) if len(starts) else -1
        term_count = len(starts) - 1
        term_arrays = [arrays[name] for name in _TERM_ARRAYS if name in arrays]
        has_all_lengths = len(lengths) == len(block)
        has_all_postings = len(rows) == len(counts) == size
        has_all_terms = all(len(array) == term_count for array in term_arrays)
        if not (has_all_lengths and has_all_postings and has_all_terms):
            raise StoreError(
                f"A part of an index has {len(block)} rows with {len(lengths)} lengths and"
                f" {size} postings with {len(rows)} rows and {len(counts)} counts. Its file is"
                " damaged: build the index again."
            )
        vocabulary = Vocabulary.from_arrays(arrays)
        return cls(block, lengths, vocabulary, Postings(starts, rows, counts))

    def ranges(self, terms: Sequence[str]) -> PartRanges:
        """The range of postings of each of some terms; (0, 0) if it does not occur."""
        starts = self.postings.starts
        numbers = self.vocabulary.find(terms)
        return [
            (0, 0) if number < 0 else (int(starts[number]), int(starts[number + 1]))
            for number in numbers
        ]

    def _select(self, mask: Mask) -> TermPart:
        postings, left = self.postings.select(mask)
        terms = self.vocabulary.terms()
        terms_left = [terms[number] for number in left.tolist()]
        rows = self.rows.select(mask)
        return TermPart(rows, self.lengths[mask], Vocabulary(terms_left), postings)


class LexicalState:
    """Some parts, and which of their rows are live. Immutable, and safe for any number of threads.

    Scores do not depend on the distribution of rows to parts: the same rows give the same ranking,
    bit for bit.

    Args:
        parts: Their live rows have distinct keys.
        alive: For each part a mask that is false for dead rows; None if all are live. Not to be
            changed afterwards.
        previous: An earlier state, whose computed values are reused.
        restricts: The state that this one restricts, see `restricted_to`; with the same parts.
        tokens: The number of terms of the live rows; None counts them.

    Example:
        >>> part = TermPart.of_rows(["a", "b"], [["green", "tea"], ["black", "tea", "tea"]])
        >>> state = LexicalState([part], [np.array([False, True])])
        >>> [key for key, _ in state.search(["tea", "green"], 10)]
        ['b']
    """

    def __init__(
        self,
        parts: Sequence[TermPart],
        alive: Masks,
        previous: LexicalState | None = None,
        *,
        restricts: LexicalState | None = None,
        tokens: int | None = None,
    ) -> None:
        self.parts = tuple(parts)
        self._rows = LiveRows([part.rows for part in self.parts], alive)
        self.live = self._rows.live
        self.alive = tuple(None if mask is None or mask.all() else mask for mask in alive)
        self.tokens = self._count_tokens() if tokens is None else tokens
        self._saturations: dict[_SaturationKey, tuple[Saturation, ...]] = {}
        self._scoped: dict[Filter, LexicalState] = {}
        self._restricts = restricts
        # The live rows with each term: one entry, counted once a query under the okapi variant
        # needs it.
        self._vocabulary: list[Counter[str]] = []
        self._peaks: dict[_SaturationKey, Peaks] = {}
        # by part, of each term; -1 where not counted yet
        self._frequencies: dict[int, Int32Array] = {}
        # By part, those of earlier states: the mean length of all rows has moved little since.
        self._inherited: dict[int, list[Saturation]] = {}
        if previous is not None:
            self._inherited = {id(part): previous._recent(part) for part in self.parts}

    def __len__(self) -> int:
        return self.live

    def _count_tokens(self) -> int:
        tokens = 0
        for part, mask in zip(self.parts, self.alive, strict=True):
            live_lengths = part.lengths if mask is None else part.lengths[mask]
            tokens += int(live_lengths.sum(dtype=np.int64))
        return tokens

    def restricted_to(self, scope: Filter) -> LexicalState:
        """The same index with only the live rows that satisfy a bound filter.

        Its statistics, and so its scores, are those of an index without the other rows. The last
        ones are cached.
        """
        cached = self._scoped
        restricted = cached.get(scope)
        if restricted is None or next(reversed(cached)) is not scope:
            if restricted is None:
                alive = []
                for part, mask in zip(self.parts, self.alive, strict=True):
                    in_scope = part.rows.mask(scope)
                    alive.append(in_scope if mask is None else in_scope & mask)
                restricted = LexicalState(self.parts, alive, restricts=self)
            others = [(other, state) for other, state in cached.items() if other != scope]
            latest = dict(others[1 - _MAX_SCOPES :])
            # A new dict: other threads may be reading the old one.
            self._scoped = {**latest, scope: restricted}
        return restricted

    def statistics(self, terms: Sequence[str], model: BM25 = BM25()) -> Statistics:
        """Statistics of the live rows for a query.

        Args:
            terms: The query's terms.
            model: The okapi variant needs the frequencies of the whole vocabulary.
        """
        distinct = list(dict.fromkeys(terms))
        ranges = [part.ranges(distinct) for part in self.parts]
        return self._statistics(len(distinct), ranges, model)

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
            terms: The query's terms; one that occurs twice counts twice.
            topk: At least 1.
            filter: A bound filter over the rows' fields. It narrows what is ranked and changes no
                statistic.
            model: BM25's parameters.
            statistics: Of several indexes together; by default this one's.

        Returns:
            At most topk pairs (key, score), best first, ties by key.

        Raises:
            ConfigError: If topk is below 1.
        """
        if topk < 1:
            validate_integer("topk", topk, 1)
        repeats = Counter(terms)
        distinct = list(repeats)
        ranges = [part.ranges(distinct) for part in self.parts]
        if statistics is None:
            statistics = self._statistics(len(distinct), ranges, model)
        if not self.live or not any(statistics.frequencies):
            return []
        factor = model.k1 + 1.0 if model.variant == "okapi" else 1.0
        idf_and_times = zip(statistics.idf(model), repeats.values(), strict=True)
        weights = [idf * times * factor for idf, times in idf_and_times]
        mean_length = _mean_length(statistics.tokens, statistics.rows)
        saturations = self._saturated(model, mean_length)
        mask = self._rows.mask(filter)
        rows = self._candidates(ranges, weights, saturations, topk, mask)
        rows.sort()
        scores = self._exact_scores(rows, ranges, weights, saturations)
        return ranked(self._rows.keys, rows, scores, topk)

    def holders(self, terms: Sequence[str]) -> list[str]:
        """The keys of the live rows that have all of some terms, at least one.

        Example:
            >>> part = TermPart.of_rows(["a", "b"], [["tea"], ["tea", "hot"]])
            >>> LexicalState([part], [None]).holders(["hot", "tea"])
            ['b']
        """
        keys = []
        for part, mask in zip(self.parts, self.alive, strict=True):
            rows_of_terms = [part.postings.rows[slice(*ends)] for ends in part.ranges(terms)]
            rows = functools.reduce(np.intersect1d, rows_of_terms)
            keys += decoded_keys(part.keys[rows if mask is None else rows[mask[rows]]])
        return keys

    def _candidates(
        self,
        ranges: Ranges,
        weights: list[float],
        saturations: tuple[Saturation, ...],
        topk: int,
        mask: Mask | None,
    ) -> Int32Array:
        """Rows among which the topk best are, by a float32 pass over the postings."""
        firsts = self._rows.firsts.tolist()
        row_count = firsts[-1]
        drift = max(saturation.drift for saturation in saturations)
        if min(weights) <= 0 or drift > _MAX_CANDIDATE_DRIFT:
            # Only okapi's idf can be 0 or less; then the score of a row that shares a term may be
            # 0. And contributions that are too far from the true ones, as a scope may have them,
            # find no candidates.
            rows = matching_rows([part.postings for part in self.parts], ranges, firsts)
            return rows if mask is None else rows[mask[rows]]
        # Each of n terms is rounded when stored, weighted (twice) and added, all but the first:
        # |error| <= (n + 2) u score, with u = 2^-24, beside the drift. The rest is for the bounds,
        # which are rounded, too.
        rounding = (len(weights) + 6) * 2.0**-24
        slack = 2.0 * (rounding + 1.01 * drift)
        parts = [
            (part.postings, saturation.contributions)
            for part, saturation in zip(self.parts, saturations, strict=True)
        ]
        if row_count >= MANY_ROWS:
            term_ranges = list(zip(*ranges, strict=True))
            peaks = self._peaks.setdefault(saturations[0].computed_for, {})
            rare_terms = RareTerms(parts, firsts, term_ranges, weights, slack, peaks)
            rows_of_rare_terms = rare_terms.candidates(topk, mask)
            if rows_of_rare_terms is not None:
                return rows_of_rare_terms
        scores = scratch_zeros(row_count)

        def add_terms(terms: list[int]) -> None:
            for number, (postings, contributions) in enumerate(parts):
                part_scores = scores[firsts[number] : firsts[number + 1]]
                add_up(part_scores, postings, contributions, ranges[number], weights, terms)
            if mask is not None:
                np.multiply(scores, mask, out=scores)

        early, late, late_postings = split_terms(ranges, weights)
        add_terms(early)
        if late:
            # A term adds less than its weight to a row. So rows far enough behind do not need the
            # late terms.
            missing = sum(weights[term] for term in late)
            most = late_postings // (POSTINGS_PER_LOOKUP * len(weights))
            best = contenders(scores, topk, slack=slack, missing=missing, max_candidates=most)
            if best is not None:
                return best
            add_terms(late)
        return best_rows(scores, topk, slack=slack)

    def _exact_scores(
        self,
        rows: Int32Array,
        ranges: Ranges,
        weights: list[float],
        saturations: tuple[Saturation, ...],
    ) -> FloatArray:
        """Scores of some rows, which are ascending."""
        scores = np.zeros(len(rows))
        # as `LiveRows.by_part`, without a call in each query
        ends = rows.searchsorted(self._rows.firsts).tolist()
        for number, part in enumerate(self.parts):
            start, end = ends[number : number + 2]
            if start < end:  # such a row has a term, so its part has postings
                part_rows = rows[start:end] - np.int32(self._rows.firsts[number])
                norms = saturations[number].norms
                scores[start:end] = exact_scores(
                    part.postings, norms, part_rows, ranges[number], weights
                )
        return scores

    def _statistics(self, terms: int, ranges: Ranges, model: BM25) -> Statistics:
        frequencies = [0] * terms
        for number, mask in enumerate(self.alive):
            for term, (start, end) in enumerate(ranges[number]):
                if mask is None:
                    frequencies[term] += end - start
                elif start < end:
                    frequencies[term] += self._frequency(number, mask, start, end)
        vocabulary = self._live_vocabulary() if model.variant == "okapi" else Counter[str]()
        return Statistics(self.live, self.tokens, tuple(frequencies), vocabulary)

    def _frequency(self, number: int, mask: Mask, start: int, end: int) -> int:
        """How many live rows of a part are in a term's postings; counted once."""
        postings = self.parts[number].postings
        frequencies = self._frequencies.get(number)
        if frequencies is None:
            frequencies = self._frequencies[number] = np.full(len(postings.starts), -1, np.int32)
        term = postings.starts.searchsorted(start)
        if frequencies[term] < 0:
            frequencies[term] = np.count_nonzero(mask[postings.rows[start:end]])
        return int(frequencies[term])

    def _live_vocabulary(self) -> Counter[str]:
        if not self._vocabulary:  # several threads may count it at once; each counts the same
            total: Counter[str] = Counter()
            for part, mask in zip(self.parts, self.alive, strict=True):
                starts = part.postings.starts
                if mask is not None:
                    live_before = np.cumsum(np.append(0, mask[part.postings.rows]))
                    starts = live_before[starts]
                frequencies = np.diff(starts).tolist()
                for term, frequency in zip(part.vocabulary.terms(), frequencies, strict=True):
                    if frequency and not term.startswith(STOP_MARK):
                        total[term] += frequency
            self._vocabulary.append(total)
        return self._vocabulary[0]

    def _saturated(self, model: BM25, mean_length: float) -> tuple[Saturation, ...]:
        key = (model.k1, model.b, mean_length)
        saturations = self._saturations.get(key)
        if saturations is None:
            saturations = self._compute_saturations(model, mean_length)
            # Two at most: the rows' own, and that of a search over several Documents. The dict is
            # never changed, since a later state may be reading it.
            cached = self._saturations if len(self._saturations) < 2 else {}
            self._saturations = {**cached, key: saturations}
        return saturations

    def _compute_saturations(self, model: BM25, mean_length: float) -> tuple[Saturation, ...]:
        complete = self._restricts
        if complete is None:
            return tuple(
                Saturation.of(part.postings, part.lengths, model, mean_length, self._recent(part))
                for part in self.parts
            )
        # A scope takes the contributions of all rows, however far their mean is from its own:
        # one number for each posting would be too much to cache for each scope.
        shared = complete._saturated(model, _mean_length(complete.tokens, complete.live))
        return tuple(
            saturation.moved(part.lengths, mean_length)
            for saturation, part in zip(shared, self.parts, strict=True)
        )

    def _recent(self, part: TermPart) -> list[Saturation]:
        """The computed saturations of a part, here or in an earlier state; the latest ones."""
        recent = []
        for saturations in reversed(self._saturations.values()):
            pairs = zip(self.parts, saturations, strict=True)
            recent += [saturation for owner, saturation in pairs if owner is part]
        if not recent:
            recent = self._inherited.get(id(part), [])
        return recent[:2]


_MAX_PARTS = 8


class LexicalIndex(TieredIndex[TermPart, LexicalState]):
    """An inverted index that ranks by BM25: exact at every moment, incremental, safe for concurrent
    readers.

    Rows are added and deleted by key. Deleted rows leave the statistics at once. A filter narrows
    what is ranked and changes no statistic.

    Example:
        >>> index = LexicalIndex()
        >>> index.add(["a", "b"], [["green", "tea"], ["black", "tea", "tea"]])
        >>> [key for key, _ in index.state.search(["green"], 10)]
        ['a']
    """

    def __init__(self) -> None:
        super().__init__(LexicalState, TermPart.joined, _MAX_PARTS)

    def add(
        self,
        keys: Sequence[str],
        terms: Sequence[Sequence[str]],
        fields: Sequence[Fields] | None = None,
    ) -> None:
        """Add rows; a key that is present is replaced. See `TermPart.of_rows`."""
        self._add_part(TermPart.of_rows(keys, terms, fields))
