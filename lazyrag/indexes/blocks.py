"""What every row of an index has, whatever it ranks by: a key, and the fields that filters read."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazyrag.data.filters import Filter, matches
from lazyrag.data.readonly import ReadOnly
from lazyrag.data.segment import EMPTY
from lazyrag.errors import ConfigError, StoreError
from lazyrag.storage.array_format import Arrays
from lazyrag.typing import Fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

Mask: TypeAlias = "NDArray[np.bool_]"
"""One truth value for each row of a part: shape (n,)."""

_MOST_CACHED_MASKS = 64


def encoded_keys(keys: Sequence[str]) -> NDArray[np.bytes_]:
    """Keys as fixed-width UTF-8, which sorts as text does.

    Raises:
        ConfigError: If a key ends in a NUL, which is what numpy fills the width up with.

    Example:
        >>> encoded_keys(["b", "é"]).dtype.itemsize
        2
    """
    cut = next((key for key in keys if key.endswith("\0")), None)
    if cut is not None:
        msg = f"A key is {cut!r:.80}; give one that does not end in a NUL."
        raise ConfigError(msg)
    try:
        return np.array(keys, np.bytes_)  # plain ASCII, in one go
    except UnicodeEncodeError:
        return np.array([key.encode("utf-8", "surrogatepass") for key in keys], np.bytes_)


def decoded_keys(keys: NDArray[np.bytes_]) -> list[str]:
    """Keys as text again.

    Example:
        >>> decoded_keys(encoded_keys(["b", "绿茶"]))
        ['b', '绿茶']
    """
    return [key.decode("utf-8", "surrogatepass") for key in keys.tolist()]


def text_array(text: str) -> NDArray[np.uint8]:
    """A text as (bytes,) uint8, to be kept beside other arrays.

    Example:
        >>> array_text(text_array("绿茶"))
        '绿茶'
    """
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)


def array_text(array: NDArray[np.uint8]) -> str:
    """The text that `text_array` was given.

    Raises:
        StoreError: If the array holds no text.
    """
    try:
        return array.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        msg = "An array of an index holds no text: its file is damaged. Run verify() and repair()."
        raise StoreError(msg) from exc


def pick(arrays: Arrays, *names: str) -> list[NDArray[Any]]:
    """Some of the arrays.

    Raises:
        StoreError: If one is missing.
    """
    missing = [name for name in names if name not in arrays]
    if missing:
        msg = (
            f"A part of an index lacks the arrays {', '.join(missing)}; it has {', '.join(sorted(arrays)) or 'none'}. "
            "Its file is damaged or of another kind: build the index again."
        )
        raise StoreError(msg)
    return [arrays[name] for name in names]


class FieldTable:
    """Distinct fields, each also as a line of JSON: lines are what is kept and moved, values are what filters read.

    Either form is made of the other when it is first asked for.

    Example:
        >>> FieldTable.of_text(FieldTable([{"tags": ("a", "b")}]).text()).values()
        [{'tags': ('a', 'b')}]
    """

    __slots__ = ("_lines", "_text", "_values")

    def __init__(self, values: Sequence[Fields] | None = None, lines: Sequence[str] | None = None) -> None:
        self._values = None if values is None else list(values)
        self._lines = None if lines is None else list(lines)
        self._text: NDArray[np.uint8] | None = None

    @classmethod
    def of_text(cls, text: NDArray[np.uint8]) -> FieldTable:
        """The table of which `text` was written; nothing is decoded yet."""
        table = cls()
        table._text = text
        return table

    def values(self) -> list[Fields]:
        """The fields; not to be changed."""
        if self._values is None:
            decoded = json.loads(f"[{','.join(self.lines())}]")
            self._values = [
                ReadOnly({name: tuple(value) if isinstance(value, list) else value for name, value in one.items()})
                for one in decoded
            ]
        return self._values

    def lines(self) -> list[str]:
        """The fields as JSON, a line for each."""
        if self._lines is None:
            if self._text is not None:
                text = array_text(self._text)
                self._lines = text.split("\n") if text else []
            else:
                self._lines = [
                    json.dumps(dict(one), ensure_ascii=False, separators=(",", ":")) for one in self._values or ()
                ]
        return self._lines

    def text(self) -> NDArray[np.uint8]:
        """All lines as (bytes,) uint8."""
        return text_array("\n".join(self.lines())) if self._text is None else self._text


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The keys and fields of a part's rows, numbered from 0; never changed, so what is worked out of it stays true.

    Args:
        keys: (n,) bytes of fixed width, distinct, see `encoded_keys`.
        field_ids: (n,) int32, numbers of lines of the table.
        fields: The distinct fields; the rows of one file share a line.
        masks: What `mask` found for the last filters, in the order in which they were first asked.
        orders: Filled when keys are first looked for: the rows in the order of their keys; None if they lie so.
        remembering: Held while ``masks`` changes.
    """

    keys: NDArray[np.bytes_]
    field_ids: NDArray[np.int32]
    fields: FieldTable
    masks: dict[Filter, Mask] = field(default_factory=dict, repr=False, compare=False)
    orders: list[NDArray[np.intp] | None] = field(default_factory=list, repr=False, compare=False)
    remembering: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, keys: Sequence[str], fields: Sequence[Fields] | None) -> RowBlock:
        """New rows; fields default to none for each. Those of one file should share one object."""
        numbers: dict[int, int] = {}
        distinct: list[Fields] = []
        found = []
        for one in fields if fields is not None else [EMPTY] * len(keys):
            number = numbers.get(id(one))  # comparing the mappings would cost more than it saves
            if number is None:
                number = numbers[id(one)] = len(distinct)
                distinct.append(one)
            found.append(number)
        return cls(encoded_keys(keys), np.array(found, np.int32), FieldTable(distinct))

    @classmethod
    def joined(cls, blocks: Sequence[RowBlock]) -> RowBlock:
        """Several blocks as one, in their order; equal fields share a line, and lines without rows are left out."""
        numbers: dict[str, int] = {}
        ids = []
        for block in blocks:
            lines = block.fields.lines()
            new = np.zeros(len(lines), np.int32)
            used = np.flatnonzero(np.bincount(block.field_ids, minlength=len(lines)))
            new[used] = [numbers.setdefault(lines[number], len(numbers)) for number in used.tolist()]
            ids.append(new[block.field_ids])
        keys = np.concatenate([block.keys for block in blocks])
        return cls(keys, np.concatenate(ids), FieldTable(lines=list(numbers)))

    def kept(self, rows: Mask | NDArray[np.intp]) -> RowBlock:
        """Some of the rows, by mask or by number."""
        return RowBlock(self.keys[rows], self.field_ids[rows], self.fields)

    def mask(self, filter: Filter) -> Mask:  # noqa: A002  the word of the domain
        """(n,) bool, true for the rows that a bound filter lets through; it is evaluated once for each line."""
        mask = self.masks.get(filter)
        if mask is None:
            values = self.fields.values()
            verdicts = np.fromiter((matches(filter, one) for one in values), np.bool_, len(values))
            mask = verdicts[self.field_ids] if len(self) else np.zeros(0, np.bool_)
            with self.remembering:
                if len(self.masks) >= _MOST_CACHED_MASKS:
                    self.masks.pop(next(iter(self.masks)))  # the oldest
                self.masks[filter] = mask
        return mask

    def find(self, keys: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """(k,) the row of each key; -1 where there is none."""
        if not len(self):
            return np.full(len(keys), -1)
        order = self._order()
        # In this block's width, or numpy would copy the block. A key that is cut here is not equal below.
        at = self.keys.searchsorted(keys.astype(self.keys.dtype), sorter=order)
        at = np.minimum(at, len(self) - 1)
        rows = at if order is None else order[at]
        return np.where(self.keys[rows] == keys, rows, -1)

    def after(self, key: NDArray[np.bytes_], limit: int, alive: Mask | None) -> NDArray[np.intp]:
        """The rows of the next keys that are greater than one, in the order of keys.

        Args:
            key: (1,) see `encoded_keys`; it need not be there.
            limit: At most so many.
            alive: Of each row, whether it counts; None where all do.
        """
        order = self._order()
        # In this block's width: what is equal to a key that was cut, is less than the whole key.
        [first] = self.keys.searchsorted(key.astype(self.keys.dtype), side="right", sorter=order).tolist()
        last = min(first + limit, len(self)) if alive is None else len(self)
        rows = np.arange(first, last) if order is None else order[first:last]
        return rows if alive is None else rows[alive[rows]][:limit]

    def _order(self) -> NDArray[np.intp] | None:
        """The rows in the order of their keys; None if they lie so."""
        if not self.orders:  # several threads may find it at once; each finds the same
            lie_so = bool((self.keys[:-1] < self.keys[1:]).all())
            self.orders.append(None if lie_so else self.keys.argsort())
        return self.orders[0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` makes an equal block of."""
        return {"keys": self.keys, "field_ids": self.field_ids, "fields": self.fields.text()}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> RowBlock:
        """A block over arrays, which may lie in a file; none is read yet.

        Raises:
            StoreError: If arrays are missing, or of lengths that do not go together.
        """
        keys, field_ids, fields = pick(arrays, "keys", "field_ids", "fields")
        if keys.dtype.kind != "S" or keys.shape != field_ids.shape or keys.ndim != 1:
            msg = f"A part of an index has {keys.shape} keys ({keys.dtype}) and {field_ids.shape} numbers of fields."
            raise StoreError(msg)
        return cls(keys, field_ids, FieldTable.of_text(fields))
