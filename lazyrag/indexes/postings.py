"""Rows and postings of indexes: keys, fields, inverted lists with counts or weights, live rows, and
top-k selection.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from lazyrag.data.filters import And, Condition, Filter, Not, matches
from lazyrag.data.segment import EMPTY, ReadOnly
from lazyrag.errors import StoreError
from lazyrag.storage.arrays import Arrays, unload
from lazyrag.types import (
    AnyArray,
    AnyFloatArray,
    AnyIntArray,
    BoolArray,
    ByteArray,
    Fields,
    FieldValue,
    Float32Array,
    FloatArray,
    IndexArray,
    Int32Array,
    Int64Array,
    KeyArray,
    Ranking,
)
from lazyrag.validation import require

if TYPE_CHECKING:
    from numpy.typing import NDArray


V_co = TypeVar("V_co", covariant=True)
P = TypeVar("P", bound="VectorPart[Any]")
N = TypeVar("N", bound="np.integer[Any]")

Allocate: TypeAlias = Callable[[tuple[int, ...], Any], AnyArray]
"""Allocates an array of a shape and a dtype: `numpy.empty`, or one on disk."""
Mask: TypeAlias = BoolArray
"""One boolean for each row of a part: shape (n,)."""

Masks: TypeAlias = "Sequence[Mask | None]"
"""For each part, which of its rows count; None: all of them."""

CodeBlock: TypeAlias = "tuple[Int64Array, Int32Array, int]"
"""A number from 0 on for each occurrence of a term, the row that it belongs to, and how many rows
there are."""

FieldColumn: TypeAlias = "tuple[Int32Array, list[FieldValue]]"
"""The number of each line's value, and the distinct values; None is a missing one."""

_MAX_CACHED_MASKS = 64
_BATCH_BYTES = 1 << 16


def encoded_keys(keys: Sequence[str]) -> KeyArray:
    """Keys as fixed-width UTF-8, which sorts as text does.

    Raises:
        ConfigError: If a key ends in a NUL, with which numpy pads.

    Example:
        >>> encoded_keys(["b", "é"]).dtype.itemsize
        2
    """
    padded = next((key for key in keys if key.endswith("\0")), None)
    require(padded is None, "A key", padded, "a text that does not end in a NUL")
    try:
        return np.array(keys, np.bytes_)  # plain ASCII, in one go
    except UnicodeEncodeError:
        return np.array([key.encode("utf-8", "surrogatepass") for key in keys], np.bytes_)


def decoded_keys(keys: KeyArray) -> list[str]:
    """Keys as text again.

    Example:
        >>> decoded_keys(encoded_keys(["b", "绿茶"]))
        ['b', '绿茶']
    """
    return [key.decode("utf-8", "surrogatepass") for key in keys.tolist()]


def text_array(text: str) -> ByteArray:
    """A text as (bytes,) uint8, to be kept beside other arrays.

    Example:
        >>> array_text(text_array("绿茶"))
        '绿茶'
    """
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def array_text(array: ByteArray) -> str:
    """The text that `text_array` was given.

    Raises:
        StoreError: If the array is not a text.
    """
    return _decoded(array.tobytes())


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        raise StoreError(
            "An array of an index is not a text: its file is damaged."
            " Run docs.maintenance.verify() and repair()."
        ) from exc


def pick(arrays: Arrays, *names: str) -> list[AnyArray]:
    """Some of the arrays.

    Raises:
        StoreError: If one is missing.
    """
    missing = [name for name in names if name not in arrays]
    if missing:
        raise StoreError(
            f"A part of an index lacks the arrays {', '.join(missing)}; it has"
            f" {', '.join(sorted(arrays)) or 'none'}. Its file is damaged or of another kind: build"
            " the index again."
        )
    return [arrays[name] for name in names]


class FieldTable:
    """Distinct fields, each also as a line of JSON: lines are stored and merged, filters read
    columns.

    Each form is made of another lazily.

    Example:
        >>> FieldTable.of_text(FieldTable([{"tags": ("a", "b")}]).text()).values()
        [{'tags': ('a', 'b')}]
    """

    __slots__ = ("_columns", "_lines", "_text", "_values")

    def __init__(
        self, values: Sequence[Fields] | None = None, lines: Sequence[str] | None = None
    ) -> None:
        self._values = None if values is None else list(values)
        self._lines = None if lines is None else list(lines)
        self._text: ByteArray | None = None
        self._columns: dict[str, FieldColumn] = {}

    @classmethod
    def of_text(cls, text: ByteArray) -> FieldTable:
        """The table of which `text` was written; nothing is decoded yet."""
        table = cls()
        table._text = text
        return table

    def values(self) -> list[Fields]:
        """The fields; not to be changed."""
        if self._values is None:
            self._values = [_freeze(fields) for fields in _parse(self.lines())]
        return self._values

    def column(self, name: str) -> FieldColumn:
        """One field of all lines; only this is kept of lines that were not decoded yet."""
        column = self._columns.get(name)
        if column is None:
            numbers: dict[FieldValue, int] = {}
            values = (_freeze_value(fields.get(name)) for fields in self._read())
            numbers_of_lines = (numbers.setdefault(value, len(numbers)) for value in values)
            column = np.fromiter(numbers_of_lines, np.int32), list(numbers)
            self._columns[name] = column
        return column

    def _read(self) -> Iterator[Mapping[str, Any]]:
        """The fields line by line; arrays may be lists."""
        if self._values is not None:
            yield from self._values
        elif self._text is None:
            yield from _parse(self.lines())
        else:
            for lines in _line_batches(self._text):
                yield from _parse(lines.split("\n"))

    def lines(self) -> list[str]:
        """The fields as JSON, a line for each."""
        if self._lines is None:
            if self._text is not None:
                text = array_text(self._text)
                self._lines = text.split("\n") if text else []
            else:
                self._lines = [
                    json.dumps(dict(value), ensure_ascii=False, separators=(",", ":"))
                    for value in self._values or ()
                ]
        return self._lines

    def text(self) -> ByteArray:
        """All lines as (bytes,) uint8."""
        return text_array("\n".join(self.lines())) if self._text is None else self._text


def _line_batches(text: ByteArray) -> Iterator[str]:
    """Some lines after others, without reading all of them at once."""
    incomplete = b""
    for start in range(0, len(text), _BATCH_BYTES):
        batch = incomplete + text[start : start + _BATCH_BYTES].tobytes()
        lines, _, incomplete = batch.rpartition(b"\n")
        if lines:
            yield _decoded(lines)
    if incomplete:
        yield _decoded(incomplete)


def _parse(lines: Sequence[str]) -> list[dict[str, Any]]:
    decoded: list[dict[str, Any]] = json.loads(f"[{','.join(lines)}]")
    return decoded


def _freeze(line: dict[str, Any]) -> Fields:
    """Fields that were read from JSON: lists become tuples again."""
    return ReadOnly({name: _freeze_value(value) for name, value in line.items()})


def _freeze_value(value: Any) -> FieldValue:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The keys and fields of a part's rows, numbered from 0. Immutable.

    Args:
        keys: (n,) bytes of fixed width, distinct, see `encoded_keys`.
        field_ids: (n,) int32, numbers of lines of the table.
        fields: The distinct fields; the rows of one file share a line.
        masks: Cached masks of the last filters.
        orders: Filled lazily: the rows in the order of their keys; None if they are sorted.
        remembering: Held while ``masks`` changes.
    """

    keys: KeyArray
    field_ids: Int32Array
    fields: FieldTable
    masks: dict[Filter, Mask] = field(default_factory=dict, repr=False, compare=False)
    orders: list[IndexArray | None] = field(default_factory=list, repr=False, compare=False)
    remembering: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, keys: Sequence[str], fields: Sequence[Fields] | None) -> RowBlock:
        """New rows; fields default to none for each. Those of one file should share one object."""
        numbers: dict[int, int] = {}
        distinct: list[Fields] = []
        field_ids = []
        if fields is None:
            fields = [EMPTY] * len(keys)
        for row_fields in fields:
            # By identity: comparing the mappings would cost more than it saves.
            number = numbers.get(id(row_fields))
            if number is None:
                number = numbers[id(row_fields)] = len(distinct)
                distinct.append(row_fields)
            field_ids.append(number)
        ids = np.array(field_ids, np.int32)
        return cls(encoded_keys(keys), ids, FieldTable(distinct))

    @classmethod
    def joined(cls, blocks: Sequence[RowBlock]) -> RowBlock:
        """Several blocks as one, in their order; equal fields share a line, and lines without rows
        are left out.
        """
        numbers: dict[str, int] = {}
        field_ids = []
        for block in blocks:
            lines = block.fields.lines()
            rows_of_line = np.bincount(block.field_ids, minlength=len(lines))
            used = np.flatnonzero(rows_of_line)
            used_lines = [lines[number] for number in used.tolist()]
            new_numbers = np.zeros(len(lines), np.int32)
            new_numbers[used] = [numbers.setdefault(line, len(numbers)) for line in used_lines]
            field_ids.append(new_numbers[block.field_ids])
        keys = np.concatenate([block.keys for block in blocks])
        fields = FieldTable(lines=list(numbers))
        return cls(keys, np.concatenate(field_ids), fields)

    def select(self, rows: Mask | IndexArray) -> RowBlock:
        """Some of the rows, by mask or by number."""
        return RowBlock(self.keys[rows], self.field_ids[rows], self.fields)

    def mask(self, filter: Filter) -> Mask:  # noqa: A002  the word of the domain
        """(n,) bool, true for the rows that a bound filter lets through; each condition is
        evaluated once for each distinct value.
        """
        mask = self.masks.get(filter)
        if mask is None:
            mask = self._evaluate(filter)
            with self.remembering:
                if len(self.masks) >= _MAX_CACHED_MASKS:
                    self.masks.pop(next(iter(self.masks)))  # the oldest
                self.masks[filter] = mask
        return mask

    def _evaluate(self, filter: Filter) -> Mask:  # noqa: A002  the word of the domain
        if isinstance(filter, Not):
            return ~self._evaluate(filter.filter)
        if isinstance(filter, Condition):
            numbers, values = self.fields.column(filter.field)
            passing = (matches(filter, {filter.field: value}) for value in values)
            verdicts = np.fromiter(passing, np.bool_, len(values))
            return verdicts[numbers[self.field_ids]]
        is_and = isinstance(filter, And)
        combine = np.logical_and if is_and else np.logical_or
        mask = np.full(len(self), is_and)
        for part in filter.filters:
            mask = combine(mask, self._evaluate(part))
        return mask

    def find(self, keys: KeyArray) -> IndexArray:
        """(k,) the row of each key; -1 if there is none."""
        if not len(self):
            return np.full(len(keys), -1)
        order = self._order()
        # In this block's width, or numpy would copy the block. A key that is cut here is not equal
        # below.
        cut_keys = keys.astype(self.keys.dtype)
        positions = self.keys.searchsorted(cut_keys, sorter=order)
        positions = np.minimum(positions, len(self) - 1)
        rows = positions if order is None else order[positions]
        is_present = self.keys[rows] == keys
        return np.where(is_present, rows, -1)

    def after(self, key: KeyArray, limit: int, alive: Mask | None) -> IndexArray:
        """The rows of the next keys that are greater than one, in the order of keys.

        Args:
            key: (1,) see `encoded_keys`; it need not be there.
            limit: At most so many.
            alive: Of each row, whether it counts; None where all do.
        """
        order = self._order()
        # In this block's width: a key that equals a truncated one is less than the full key.
        cut_key = key.astype(self.keys.dtype)
        [first] = self.keys.searchsorted(cut_key, side="right", sorter=order).tolist()
        end = min(first + limit, len(self)) if alive is None else len(self)
        rows = np.arange(first, end) if order is None else order[first:end]
        if alive is None:
            return rows
        live_rows = rows[alive[rows]]
        return live_rows[:limit]

    def _order(self) -> IndexArray | None:
        """The rows in the order of their keys; None if they are sorted."""
        if not self.orders:  # several threads may find it at once; each finds the same
            is_ascending = self.keys[:-1] < self.keys[1:]
            order = None if is_ascending.all() else self.keys.argsort()
            self.orders.append(order)
        return self.orders[0]

    def arrays(self) -> Arrays:
        """Arrays for `from_arrays`."""
        return {"keys": self.keys, "field_ids": self.field_ids, "fields": self.fields.text()}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> RowBlock:
        """A block over arrays, which may be memory-mapped; none is read yet.

        Raises:
            StoreError: If arrays are missing, or of lengths that do not go together.
        """
        keys, field_ids, fields = pick(arrays, "keys", "field_ids", "fields")
        if keys.dtype.kind != "S" or keys.shape != field_ids.shape or keys.ndim != 1:
            raise StoreError(
                f"A part of an index has {keys.shape} keys ({keys.dtype}) and {field_ids.shape}"
                " numbers of fields."
            )
        return cls(keys, field_ids, FieldTable.of_text(fields))


@dataclass(frozen=True, slots=True)
class RowPart:
    """Base of the parts of indexes: rows with keys and fields.

    Args:
        rows: Keys and fields.
    """

    rows: RowBlock

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> KeyArray:
        """(n,) the keys of the rows, UTF-8 of fixed width."""
        return self.rows.keys

    def find(self, keys: KeyArray) -> IndexArray:
        """(k,) the row of each key, see `encoded_keys`; -1 if there is none."""
        return self.rows.find(keys)


class Vocabulary:
    """The distinct terms of a part; a term's number is its place among them.

    Example:
        >>> Vocabulary.from_arrays(Vocabulary(["green", "tea"]).arrays()).find(["tea", "black"])
        [1, -1]
    """

    __slots__ = ("_arrays", "_numbers", "_terms", "_views")

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self._terms: list[str] | None = list(terms)
        self._numbers: dict[str, int] | None = None
        self._arrays: Arrays = {}
        self._views: list[Any] | None = None

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Vocabulary:
        """The vocabulary whose arrays these are; nothing is decoded yet. Older files have only its
        text.
        """
        vocabulary = cls()
        vocabulary._terms = None
        vocabulary._arrays = arrays
        return vocabulary

    def terms(self) -> list[str]:
        """The terms by number; not to be changed."""
        if self._terms is None:
            self._terms = _read_terms(array_text(self._arrays["vocabulary"]))
        return self._terms

    def find(self, terms: Sequence[str]) -> list[int]:
        """The number of each of some terms; -1 if it does not occur.

        In a file they are found by their CRCs: a dict of all terms would take most of a reader's
        memory.
        """
        if "term_crcs" not in self._arrays:
            if self._numbers is None:
                every = self.terms()
                self._numbers = dict(zip(every, range(len(every)), strict=True))
            return [self._numbers.get(term, -1) for term in terms]
        if self._views is None:  # an item of a view takes a third of the time of an array's
            kinds = {"term_crcs": "u4", "terms_by_crc": "i4", "term_ends": "i8", "vocabulary": "u1"}
            arrays = [np.asarray(self._arrays[name], kind) for name, kind in kinds.items()]
            self._views = [array.data for array in arrays]
        crcs, by_crc, ends, text = self._views
        pieces = []
        for term in terms:
            encoded = encode_basestring(term).encode("utf-8", "surrogatepass")
            crc = zlib.crc32(encoded)
            at = bisect_left(crcs, crc)
            number = -1
            while number < 0 and at < len(crcs) and crcs[at] == crc:
                candidate = by_crc[at]
                start = ends[candidate - 1] + 1 if candidate else 1
                if text[start : start + len(encoded)] == encoded:  # quotes included
                    number = candidate
                at += 1
            pieces.append(number)
        return pieces

    def arrays(self) -> Arrays:
        """The terms as a JSON list, where each ends in it, their CRCs ascending, and whose those
        are.
        """
        quoted = map(encode_basestring, self.terms())
        encoded = [term.encode("utf-8", "surrogatepass") for term in quoted]
        text = b"[%b]" % b",".join(encoded)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        crcs = np.fromiter(map(zlib.crc32, encoded), np.uint32, len(encoded))
        by_crc = crcs.argsort(kind="stable")
        return {
            "vocabulary": np.frombuffer(text, np.uint8),
            "term_ends": np.cumsum(lengths + 1),
            "term_crcs": crcs[by_crc],
            "terms_by_crc": by_crc.astype(np.int32),
        }


def _read_terms(text: str) -> list[str]:
    try:
        terms: list[str] = json.loads(text)
    except ValueError as exc:
        raise StoreError(
            "The vocabulary of an index cannot be read: its file is damaged."
            " Run docs.maintenance.verify() and"
            " repair()."
        ) from exc
    return terms


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of some rows, by term or by dimension; never changed. Both are numbered from 0.

    Terms here include dimensions of sparse vectors.

    Args:
        starts: (t + 1,) int64, the first posting of each term; every term has some.
        rows: (p,) int32, for each term the rows that have it, ascending.
        values: (p,) for each of those how often it has it: unsigned, at least 1, as wide as the
            largest needs; or the weight of the dimension: float32, not 0.
    """

    starts: Int64Array
    rows: Int32Array
    values: AnyArray

    @classmethod
    def of_codes(cls, blocks: Sequence[CodeBlock]) -> tuple[Postings, Int64Array]:
        """Postings of new rows, with counts, and the code of each of their terms."""
        row_count = sum(count for _, _, count in blocks)
        row_bits = row_count.bit_length()
        all_codes = [codes for codes, _, _ in blocks]
        largest = max((int(codes.max(initial=0)) for codes in all_codes), default=0)
        distinct = None
        if largest.bit_length() + row_bits > 63:
            distinct = np.unique(np.concatenate(all_codes))
        # Each occurrence as one number: the code in the high bits, the row in the low ones.
        pairs = np.empty(sum(map(len, all_codes)), np.int64)
        first_row = 0
        end = 0
        for codes, rows, count in blocks:
            start = end
            end += len(codes)
            block_pairs = pairs[start:end]
            block_pairs[:] = codes if distinct is None else distinct.searchsorted(codes)
            block_pairs <<= row_bits
            block_pairs |= rows + np.int64(first_row)
            first_row += count
        pairs.sort()  # in place: numpy.unique takes three times the memory
        is_first = _differs_from_previous(pairs)
        counts = np.diff(np.flatnonzero(is_first), append=len(pairs))
        narrowest = np.min_scalar_type(counts.max(initial=1))
        counts = counts.astype(narrowest)
        pairs = pairs[is_first]
        row_mask = (1 << row_bits) - 1
        posting_rows = (pairs & row_mask).astype(np.int32)
        pairs >>= row_bits
        starts = np.flatnonzero(_differs_from_previous(pairs))
        terms = pairs[starts]
        all_starts = np.append(starts, len(pairs))
        postings = cls(all_starts, posting_rows, counts)
        return postings, terms if distinct is None else distinct[terms]

    @classmethod
    def of_weights(
        cls,
        flat: AnyIntArray,
        lengths: AnyIntArray,
        weights: Float32Array,
    ) -> Postings:
        """Postings of new rows, with weights.

        Args:
            flat: The dimensions' numbers of all rows, one row after the other; every number up to
                the largest occurs.
            lengths: How many of them belong to each row, which has none twice.
            weights: One for each of them.
        """
        order = sorted_order(flat)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        starts = _starts(np.bincount(flat))
        return cls(starts, rows[order], weights[order])

    def select(self, mask: Mask) -> tuple[Postings, IndexArray]:
        """Without the postings of the other rows, whose numbers the rows behind them take; and the
        terms left.
        """
        is_left = mask[self.rows]
        left_before = np.append(0, np.cumsum(is_left))
        all_starts = left_before[self.starts]
        terms_left = np.flatnonzero(np.diff(all_starts))
        starts = np.append(all_starts[terms_left], all_starts[-1])
        new_rows = np.cumsum(mask, dtype=np.int32) - np.int32(1)
        rows = new_rows[self.rows[is_left]]
        return Postings(starts, rows, self.values[is_left]), terms_left

    @classmethod
    def joined(
        cls,
        parts: Sequence[Postings],
        first_rows: Sequence[int],
        numbers: Sequence[IndexArray],
        allocate: Allocate = np.empty,
    ) -> Postings:
        """Several postings as one. Every posting is put at its place at once: nothing is sorted.

        Of arrays in files, the given ones and those that are allocated, only what is just moved is
        in memory.

        Args:
            parts: Those of earlier rows first.
            first_rows: For each part the new number of its row 0.
            numbers: For each part the new numbers of its terms.
            allocate: Makes room for an array of a shape and a type.
        """
        term_count = max((int(terms.max(initial=-1)) + 1 for terms in numbers), default=0)
        sizes = np.zeros(term_count, np.int64)
        for part, part_numbers in zip(parts, numbers, strict=True):
            sizes[part_numbers] += np.diff(part.starts)
        starts = _starts(sizes)
        free = starts[:-1].copy()
        shape = (int(starts[-1]),)
        value_type = np.result_type(np.uint8, *(part.values.dtype for part in parts))
        rows = allocate(shape, np.int32)
        values = allocate(shape, value_type)
        for part, first, part_numbers in zip(parts, first_rows, numbers, strict=True):
            part_sizes = np.diff(part.starts)
            shifts = free[part_numbers] - part.starts[:-1]
            step_starts = np.arange(0, len(part.rows), _JOINED_AT_ONCE)
            steps = part.starts.searchsorted(step_starts).tolist()
            for start, end in itertools.pairwise([*steps, len(part_sizes)]):
                some = slice(int(part.starts[start]), int(part.starts[end]))
                posting_shifts = np.repeat(shifts[start:end], part_sizes[start:end])
                positions = posting_shifts + np.arange(some.start, some.stop)
                rows[positions] = part.rows[some] + np.int32(first)
                values[positions] = part.values[some]
                for mapped in (rows, values, part.rows, part.values):
                    unload(mapped)
            free[part_numbers] += part_sizes
        return cls(starts, rows, values)


def sorted_order(numbers: AnyIntArray) -> Int64Array:
    """Stable argsort of numbers from 0 to 2**31 - 1; at most 2**32 of them.

    It sorts pairs of number and position: for integers numpy's sort takes a fifth of the time of
    its stable argsort.

    Example:
        >>> sorted_order(np.array([7, 0, 7])).tolist()
        [1, 0, 2]
    """
    high_bits = numbers.astype(np.int64) << 32
    pairs = high_bits | np.arange(len(numbers))
    pairs.sort()
    return pairs & 0xFFFFFFFF


def _differs_from_previous(numbers: Int64Array) -> Mask:
    is_new = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=is_new[1:])
    return is_new


def _starts(sizes: AnyIntArray) -> Int64Array:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


_JOINED_AT_ONCE = 1 << 17  # postings
_GROUP_SIZE = 64

_scratch = threading.local()
_LARGEST_KEPT = 31 << 20  # bytes; glibc takes no threshold above 32 MiB


@functools.cache
def keep_freed_memory() -> None:
    """Let this process reuse the memory of a query's arrays for the next query.

    glibc returns large blocks to the system as soon as they are freed, so that each query would
    wait for thousands of page faults. It adapts its threshold to the largest block that was freed:
    this one, which is never written. Other allocators ignore it.
    """
    np.empty(_LARGEST_KEPT, np.uint8)


class LiveRows:
    """The rows of several parts, numbered consecutively, and which of them are live. Immutable.

    Args:
        blocks: The parts' rows.
        alive: For each part a mask that is false for dead rows; None where all live.

    Example:
        >>> blocks = [RowBlock.of(["a", "b"], None), RowBlock.of(["c"], None)]
        >>> rows = LiveRows(blocks, [np.array([True, False]), None])
        >>> rows.live, rows.keys(np.array([2, 0]))
        (2, ['c', 'a'])
    """

    __slots__ = ("alive", "blocks", "firsts", "live")

    def __init__(self, blocks: Sequence[RowBlock], alive: Masks) -> None:
        keep_freed_memory()
        self.blocks = tuple(blocks)
        self.firsts = np.cumsum([0, *map(len, blocks)])
        self.live = len(self)
        self.alive: Mask | None = None  # of all rows; None where all live
        if any(mask is not None for mask in alive):
            masks = [
                np.ones(len(block), np.bool_) if mask is None else mask
                for block, mask in zip(blocks, alive, strict=True)
            ]
            alive_rows = np.concatenate(masks)
            self.live = int(np.count_nonzero(alive_rows))
            self.alive = alive_rows if self.live < len(alive_rows) else None

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def mask(self, filter: Filter | None) -> Mask | None:  # noqa: A002  the word of the domain
        """(n,) bool, true for live rows that the bound filter lets through; None if that is every
        row.
        """
        if filter is None or not self.blocks:
            return self.alive
        masks = [block.mask(filter) for block in self.blocks]
        mask = masks[0] if len(masks) == 1 else np.concatenate(masks)
        return mask if self.alive is None else mask & self.alive

    def by_part(self, rows: NDArray[N]) -> list[tuple[int, slice, NDArray[N]]]:
        """For each part with some of the rows, which are ascending: its number, their places among
        them, and its own numbers of them.
        """
        ends = rows.searchsorted(self.firsts).tolist()
        parts = []
        for number, first in enumerate(self.firsts[:-1].tolist()):
            start, end = ends[number : number + 2]
            if start < end:
                parts.append((number, slice(start, end), rows[start:end] - first))
        return parts

    def keys(self, rows: AnyIntArray) -> list[str]:
        """The keys of some rows, in their order."""
        if len(self.blocks) == 1:
            return decoded_keys(self.blocks[0].keys[rows])
        block_numbers = self.firsts.searchsorted(rows, side="right") - 1
        block_rows = rows - self.firsts[block_numbers]
        places = zip(block_numbers.tolist(), block_rows.tolist(), strict=True)
        keys = [self.blocks[number].keys[row] for number, row in places]
        return decoded_keys(np.array(keys, np.bytes_))

    def find(self, keys: KeyArray) -> IndexArray:
        """(k,) the row of each key that lives, see `encoded_keys`; -1 for the others."""
        row_of_key = np.full(len(keys), -1)
        for block, first in zip(self.blocks, self.firsts[:-1], strict=True):
            block_rows = block.find(keys)
            is_live = block_rows >= 0
            rows = np.where(is_live, block_rows + first, -1)
            if self.alive is not None:
                is_live = is_live & self.alive[rows]
            row_of_key[is_live] = rows[is_live]
        return row_of_key

    def page(self, after: str, limit: int) -> list[str]:
        """The next ``limit`` keys of live rows that are greater than one, in order."""
        start = encoded_keys([after])
        keys = [np.zeros(0, np.bytes_)]
        for block, first in zip(self.blocks, self.firsts[:-1].tolist(), strict=True):
            end = first + len(block)
            alive = None if self.alive is None else self.alive[first:end]
            next_rows = block.after(start, limit, alive)
            keys.append(block.keys[next_rows])
        next_keys = np.sort(np.concatenate(keys))
        return decoded_keys(next_keys[:limit])


class VectorPart(Protocol[V_co]):
    """A part of a vector index."""

    @property
    def rows(self) -> RowBlock:
        """Keys and fields."""

    def vector(self, row: int) -> V_co:
        """The vector of a row."""


class VectorRows(Generic[P, V_co]):
    """The live rows of some parts of a vector index, found by key.

    Args:
        parts: Their live rows have distinct keys.
        alive: For each part a mask that is false for dead rows; None where all live. Not to be
            changed afterwards.
    """

    def __init__(self, parts: Sequence[P], alive: Masks) -> None:
        self.parts = tuple(parts)
        self.alive = tuple(alive)
        self._rows = LiveRows([part.rows for part in self.parts], alive)

    def __len__(self) -> int:
        return self._rows.live

    def get(self, keys: Sequence[str]) -> list[tuple[str, V_co, Fields]]:
        """Key, vector and fields of those keys that are live, in the order of the keys."""
        rows = self._rows.find(encoded_keys(keys)).tolist()
        return [self._row(key, row) for key, row in zip(keys, rows, strict=True) if row >= 0]

    def page(self, after: str, limit: int) -> list[tuple[str, V_co, Fields]]:
        """Key, vector and fields of the next ``limit`` live rows whose key is greater than one, in
        key order.
        """
        return self.get(self._rows.page(after, limit))

    def matching(self, filter: Filter) -> list[str]:  # noqa: A002  the word of the domain
        """The keys of the live rows that a bound filter lets through."""
        mask = self._rows.mask(filter)
        if mask is None:
            return []
        return self._rows.keys(np.flatnonzero(mask))

    def _row(self, key: str, row: int) -> tuple[str, V_co, Fields]:
        firsts = self._rows.firsts
        number = int(firsts.searchsorted(row, side="right")) - 1
        part = self.parts[number]
        block = part.rows
        block_row = row - int(firsts[number])
        fields = block.fields.values()[block.field_ids[block_row]]
        return key, part.vector(block_row), fields


def dead_bits(alive: Mask | None) -> bytes | None:
    """A part's dead rows as stored in the table.

    Example:
        >>> dead_bits(np.array([True, False, True])), dead_bits(np.array([True]))
        (b'@', None)
    """
    return None if alive is None or alive.all() else np.packbits(~alive).tobytes()


def alive_mask(dead: bytes | None, size: int) -> Mask | None:
    """Inverse of `dead_bits`: the mask of a part's live rows; None if all are live.

    Example:
        >>> alive_mask(b"@", 3).tolist()
        [True, False, True]
    """
    if dead is None:
        return None
    alive: Mask = np.unpackbits(np.frombuffer(dead, np.uint8), count=size) == 0
    return alive


def scratch_zeros(n: int) -> Float32Array:
    """An array of zeros that this thread reuses for every query; new memory costs more than
    clearing it.
    """
    buffer: Float32Array | None = getattr(_scratch, "buffer", None)
    if buffer is None or len(buffer) < n:
        buffer = _scratch.buffer = np.zeros(n + n // 4, np.float32)
    scores = buffer[:n]
    scores.fill(0.0)
    return scores


def best_rows(scores: Float32Array, topk: int, *, slack: float) -> Int32Array:
    """Every row that can be among the topk best, given scores with a relative error.

    Args:
        scores: (n,) float32, at least 0; rows with 0 are out.
        topk: At least 1.
        slack: Largest relative error of a score, times 2.

    Returns:
        Row numbers, in no particular order.
    """
    rows = contenders(scores, topk, slack=slack)
    if rows is None:
        rows = cut(np.flatnonzero(scores), scores, topk, slack=slack, missing=0.0)
    return rows


def contenders(
    scores: Float32Array,
    topk: int,
    *,
    slack: float,
    missing: float = 0.0,
    max_candidates: int | None = None,
) -> Int32Array | None:
    """Every row that can be among the topk best when more is added to the scores.

    Split the scores into groups of 64; the k-th largest group maximum is a lower bound of the k-th
    best score. Only the rows of groups above it are candidates. (A plain partition is slow on
    scores that are mostly 0.)

    Args:
        scores: (n,) float32. Rows that are out have 0; others may have less than that.
        topk: At least 1.
        slack: Largest relative error of a score, times 2.
        missing: By how much, beside that, a row can gain on another one at most.
        max_candidates: Largest number of rows that is worth returning; None for no limit.

    Returns:
        Row numbers, in no particular order; None if they are more than ``max_candidates``, or the
        groups give no bound: a row with 0 or less can be among the best, or there are few groups
        compared with topk.
    """
    groups = len(scores) // _GROUP_SIZE
    if groups <= 4 * topk:
        return None
    grouped = groups * _GROUP_SIZE  # the rows behind these are in no group
    columns = scores[:grouped].reshape(_GROUP_SIZE, groups)  # each is a group
    maxima = columns.max(axis=0)
    kth_maximum = float(np.partition(maxima, -topk)[-topk])
    bound = kth_maximum * (1.0 - slack) - missing
    if bound <= 0.0:
        return None
    tall = np.flatnonzero(maxima >= bound)
    if max_candidates is not None and len(tall) > max_candidates:  # each of them has a row at least
        return None
    layer, column = np.nonzero(columns[:, tall] >= bound)
    rows_of_groups = layer * groups + tall[column]
    rest = np.flatnonzero(scores[grouped:] >= bound) + grouped
    candidates = np.concatenate([rows_of_groups, rest])
    rows = cut(candidates, scores, topk, slack=slack, missing=missing)
    if max_candidates is not None and len(rows) > max_candidates:
        return None
    return rows


def kth_largest(values: AnyFloatArray, k: int) -> float:
    """The k-th largest of some values, by the groups of `contenders` if they are many.

    Args:
        values: (n,) not nan.
        k: In [1, n].
    """
    groups = len(values) // _GROUP_SIZE
    if groups > 4 * k:
        columns = values[: groups * _GROUP_SIZE].reshape(_GROUP_SIZE, groups)
        maxima = columns.max(axis=0)
        bound = np.partition(maxima, -k)[-k]
        values = values[values >= bound]
    return float(np.partition(values, -k)[-k])


def cut(
    rows: AnyIntArray,
    scores: Float32Array,
    topk: int,
    *,
    slack: float,
    missing: float,
) -> Int32Array:
    """Those of some rows, the topk best among them, that can be among the topk best; see
    `contenders`.
    """
    if len(rows) > topk:
        values = scores[rows]
        kth_score = float(np.partition(values, -topk)[-topk])
        bound = kth_score * (1.0 - slack) - missing
        rows = rows[values >= bound]
    return rows.astype(np.int32)


def ranked(
    keys: Callable[[AnyIntArray], Sequence[str]],
    rows: AnyIntArray,
    scores: FloatArray,
    topk: int,
) -> Ranking:
    """The topk best of some rows as a ranking: best first, ties by key.

    Args:
        keys: Returns the keys of rows; called only with rows that can be in the ranking.
        rows: (m,) candidate rows.
        scores: (m,) their scores.
        topk: At least 1.
    """
    if len(rows) > topk:
        kth_score = np.partition(scores, -topk)[-topk]
        is_best = scores >= kth_score
        rows = rows[is_best]
        scores = scores[is_best]
    negatives = (-scores).tolist()
    best = sorted(zip(negatives, keys(rows), strict=True))
    return [(key, -negative) for negative, key in best[:topk]]
