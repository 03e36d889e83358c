"""The keyword indexes of a Document: immutable parts that its ledger lists, and their live rows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lazyrag.errors import StoreError
from lazyrag.indexes.bm25 import LexicalState, TermPart
from lazyrag.indexes.tiers import tail_to_join
from lazyrag.ledger.ledger import Ledger, NewPart
from lazyrag.ledger.tree import LiveGroup, LiveIndex, TermPartRow, Tree
from lazyrag.storage.arrays import damage_of
from lazyrag.text.term_codes import TermCodes
from lazyrag.types import Fields

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MAX_PARTS = 8
_FULL_ROWS = 1 << 19  # of a part that is joined with no other: bounds the memory that joining takes
# a part below that is stored in its row: a file of its own would cost more
_SMALL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class BuildTerms:
    """The terms of one build's nodes.

    Args:
        build: Its number.
        keys: n keys.
        codes: The numbers of all their terms.
        rows: For each of these the key that it belongs to, by its place.
        terms: Gave the terms numbers.
        fields: The filterable fields of each key.
    """

    build: int
    keys: Sequence[str]
    codes: NDArray[np.int64]
    rows: NDArray[np.int32]
    terms: TermCodes
    fields: Sequence[Fields]


class TermIndexes:
    """Reads and extends the keyword indexes of a ledger.

    A part has the nodes of some builds, one build after the other, and is never changed; its live
    rows are those of live builds.

    Args:
        ledger: The ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._parts: dict[int, TermPart] = {}
        self._planning = threading.Lock()  # no transaction is begun while it is held
        # parts that are being merged; others leave them alone until then
        self._joining: set[int] = set()
        self._states: dict[int, tuple[tuple[int, ...], NDArray[np.int64], LexicalState]] = {}

    def state(self, tree: Tree, group: LiveGroup, index: LiveIndex) -> LexicalState:
        """The index in one state of the tree."""
        numbers = tree.live_numbers(group)
        ids = tuple(part.id for part in index.parts)
        previous = self._states.get(index.id)
        if (
            previous is not None
            and previous[0] == ids
            and (previous[1] is numbers or np.array_equal(previous[1], numbers))
        ):
            return previous[2]
        parts = self.parts(tree, group, index)
        with self._lock:
            state = LexicalState(
                [part for part, _ in parts],
                [mask for _, mask in parts],
                previous=previous[2] if previous is not None else None,
            )
            self._states[index.id] = ids, numbers, state
            self._forget(tree)
        return state

    def parts(
        self, tree: Tree, group: LiveGroup, index: LiveIndex
    ) -> list[tuple[TermPart, NDArray[np.bool_]]]:
        """The parts of an index, with masks of their live rows in one state of the tree."""
        numbers = tree.live_numbers(group)
        with self._lock:
            return [
                (self._part(row), np.repeat(_are_in(row.builds, numbers), row.rows))
                for row in index.parts
            ]

    def extended(self, group: int, index: int, builds: list[BuildTerms]) -> list[NewPart]:
        """Make the part of some builds' terms, to be entered into the ledger; small parts before it
        are merged in.

        The terms of all of them have one numbering. The list is emptied: merging needs their
        memory.

        Array files are on disk when this returns. `release` the parts when they are entered, or
        given up.
        """
        own = [one for one in builds if one.keys]
        if not own:
            return []
        numbers = np.array([one.build for one in own], np.int64)
        rows = np.array([len(one.keys) for one in own], np.int64)
        part = TermPart.of_codes(
            [key for one in own for key in one.keys],
            [(one.codes, one.rows, len(one.keys)) for one in own],
            own[0].terms.terms,
            [fields for one in own for fields in one.fields],
        )
        own.clear()
        builds.clear()
        tree = self._ledger.tree
        live = next((one for one in tree.groups.values() if one.id == group), None)
        with self._ledger.reading():
            known = next(
                (one.parts for one in (live.indexes.values() if live else ()) if one.id == index),
                (),
            )
            before = self._ledger.groups.term_parts(index, known)
            sizes = [*(int(row.rows.sum()) for row in before), len(part)]
            living = (
                sum(sizes)
                if live is None
                else self._count_live(tree.live_numbers(live), before) + len(part)
            )
            count = tail_to_join(sizes, living, _MAX_PARTS, full=_FULL_ROWS)
            # stores of earlier releases have many parts that were full then
            if 2 * living >= sum(sizes):
                count = next(
                    (few for few in range(2, count) if sum(sizes[-few:]) >= _FULL_ROWS), count
                )
            tail = before[len(before) + 1 - count :] if count else ()
            merged = [
                row
                for row in before
                if any(row is one for one in tail) or np.isin(row.builds, numbers).any()
            ]
            with self._planning:
                merged = [row for row in merged if row.id not in self._joining]
                self._joining.update(row.id for row in merged)
            # A build that comes again was damaged: its old rows are dropped.
            held = {number for row in merged for number in row.builds.tolist()}
            in_use = np.array(self._ledger.builds.not_dead(held) if held else (), np.int64)
            small = {row.id: self._inline(row) for row in merged if row.id not in self._parts}
        if merged:
            with self._lock:  # not in the transaction: others read parts while they hold it
                parts = [self._part(row, small.get(row.id)) for row in merged]
                for row in merged:
                    # a writer that answers no query would hold every part it ever merged
                    del self._parts[row.id]
            masks = [np.isin(row.builds, in_use) & ~np.isin(row.builds, numbers) for row in merged]
            row_masks = [np.repeat(mask, row.rows) for row, mask in zip(merged, masks, strict=True)]
            part = TermPart.joined(
                [*parts, part], [*row_masks, None], self._ledger.file.arrays.scratch
            )
            pairs = list(zip(merged, masks, strict=True))
            numbers = np.concatenate([*(row.builds[mask] for row, mask in pairs), numbers])
            rows = np.concatenate([*(row.rows[mask] for row, mask in pairs), rows])
        pairs_of_part = np.ascontiguousarray(np.stack([numbers, rows], axis=1), "<i8").tobytes()
        name, content = self._ledger.file.arrays.write_or_inline(part.arrays(), _SMALL_BYTES)
        old = tuple(row.file for row in merged if row.in_file and row.file != name)
        return [
            NewPart(
                index, name, content, len(part), pairs_of_part, tuple(row.id for row in merged), old
            )
        ]

    def release(self, parts: Sequence[NewPart]) -> None:
        """Let others merge the parts before some parts again."""
        with self._planning:
            self._joining.difference_update(*(part.replaces for part in parts))

    def _count_live(self, live: NDArray[np.int64], parts: Sequence[TermPartRow]) -> int:
        """The number of rows of live builds in some parts; of all builds if most live, which saves
        looking at each.
        """
        if 4 * len(live) >= 3 * sum(len(row.builds) for row in parts):
            return sum(int(row.rows.sum()) for row in parts)
        return sum(int(row.rows[_are_in(row.builds, live)].sum()) for row in parts)

    def damage(self, row: TermPartRow) -> str:
        """Check all of a part; "" if it is undamaged, else what is wrong."""
        inline = self._ledger.groups.part_arrays(row.id)
        return (
            self._ledger.file.arrays.check(row.file)
            if inline is None
            else damage_of(inline, row.file)
        )

    def _inline(self, row: TermPartRow) -> bytes | None:
        return None if row.in_file else self._ledger.groups.part_arrays(row.id)

    def _part(self, row: TermPartRow, inline: bytes | None = None) -> TermPart:
        """A part, opened once; the caller holds the lock."""
        part = self._parts.get(row.id)
        if part is None:
            try:
                inline = inline or self._inline(row)
                part = TermPart.from_arrays(self._ledger.file.arrays.open(row.file, inline))
            except (ValueError, IndexError, TypeError) as exc:
                raise self._damaged(f"cannot be read ({exc})") from exc
            if len(part) != int(row.rows.sum()):
                raise self._damaged(
                    f"has {len(part)} rows where the ledger lists {int(row.rows.sum())}"
                )
            self._parts[row.id] = part
        return part

    def _damaged(self, how: str) -> StoreError:
        msg = (
            f"A part of a keyword index in {self._ledger.file.address} {how}. Run verify() and"
            " repair()."
        )
        return StoreError(msg, store=self._ledger.file.address)

    def _forget(self, tree: Tree) -> None:
        """Close the parts that the tree does not list any more."""
        listed = {
            part.id
            for group in tree.groups.values()
            for index in group.indexes.values()
            for part in index.parts
        }
        indexes = {index.id for group in tree.groups.values() for index in group.indexes.values()}
        self._parts = {number: part for number, part in self._parts.items() if number in listed}
        self._states = {
            number: state for number, state in self._states.items() if number in indexes
        }


def _are_in(builds: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the builds whose numbers are among ascending ones; `numpy.isin` would sort both."""
    if not len(numbers):
        return np.zeros(len(builds), np.bool_)
    mask: NDArray[np.bool_] = numbers.take(np.searchsorted(numbers, builds), mode="clip") == builds
    return mask
