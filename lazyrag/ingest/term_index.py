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


@dataclass(frozen=True, slots=True)
class _Merge:
    """Parts that a new one replaces.

    Args:
        parts: The parts.
        masks: For each of them, which of its builds are in use, and do not come again.
        inline: Contents of small parts that are not open, by the part's row.
    """

    parts: Sequence[TermPartRow]
    masks: Sequence[NDArray[np.bool_]]
    inline: dict[int, bytes | None]


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
        previous: LexicalState | None = None
        if index.id in self._states:
            ids_before, numbers_before, previous = self._states[index.id]
            if ids_before == ids and (
                numbers_before is numbers or np.array_equal(numbers_before, numbers)
            ):
                return previous
        parts = self.parts(tree, group, index)
        with self._lock:
            state = LexicalState(
                [part for part, _ in parts], [mask for _, mask in parts], previous=previous
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
        with_terms = [build for build in builds if build.keys]
        if not with_terms:
            return []
        numbers = np.array([build.build for build in with_terms], np.int64)
        rows = np.array([len(build.keys) for build in with_terms], np.int64)
        part = _new_part(with_terms)
        with_terms.clear()
        builds.clear()
        merge = self._plan_merge(group, index, numbers, len(part))
        if merge.parts:
            part = self._merged(merge, part)
            pairs = list(zip(merge.parts, merge.masks, strict=True))
            numbers = np.concatenate([*(row.builds[mask] for row, mask in pairs), numbers])
            rows = np.concatenate([*(row.rows[mask] for row, mask in pairs), rows])
        pairs_of_part = np.ascontiguousarray(np.stack([numbers, rows], axis=1), "<i8").tobytes()
        name, content = self._ledger.file.arrays.write_or_inline(part.arrays(), _SMALL_BYTES)
        replaced = tuple(row.id for row in merge.parts)
        retired = tuple(row.file for row in merge.parts if row.in_file and row.file != name)
        return [NewPart(index, name, content, len(part), pairs_of_part, replaced, retired)]

    def _plan_merge(
        self, group: int, index: int, new_builds: NDArray[np.int64], new_rows: int
    ) -> _Merge:
        """Choose the parts that a new one replaces: small ones at the end, and those with one of
        its builds.

        A build that comes again was damaged: its old rows are dropped.
        """
        tree = self._ledger.tree
        live_group = next((live for live in tree.groups.values() if live.id == group), None)
        with self._ledger.reading():
            parts = self._ledger.groups.term_parts(index, _live_parts(live_group, index))
            living = self._count_live(tree, live_group, parts) + new_rows
            tail = parts[len(parts) - _parts_to_join(parts, new_rows, living) :]
            tail_ids = {row.id for row in tail}
            merged = [
                row for row in parts if row.id in tail_ids or np.isin(row.builds, new_builds).any()
            ]
            with self._planning:
                merged = [row for row in merged if row.id not in self._joining]
                self._joining.update(row.id for row in merged)
            old_builds: set[int] = set()
            for row in merged:
                old_builds.update(row.builds.tolist())
            not_dead = self._ledger.builds.not_dead(old_builds) if old_builds else ()
            inline = {row.id: self._inline(row) for row in merged if row.id not in self._parts}
        in_use = np.setdiff1d(np.array(not_dead, np.int64), new_builds)
        return _Merge(merged, [np.isin(row.builds, in_use) for row in merged], inline)

    def _merged(self, merge: _Merge, part: TermPart) -> TermPart:
        """A part with the rows of others before its own."""
        with self._lock:  # not in the transaction: others read parts while they hold it
            parts = [self._part(row, merge.inline.get(row.id)) for row in merge.parts]
            for row in merge.parts:
                # a writer that answers no query would hold every part it ever merged
                del self._parts[row.id]
        pairs = zip(merge.parts, merge.masks, strict=True)
        row_masks = [np.repeat(mask, row.rows) for row, mask in pairs]
        return TermPart.joined([*parts, part], [*row_masks, None], self._ledger.file.arrays.scratch)

    def release(self, parts: Sequence[NewPart]) -> None:
        """Let others merge the parts before some parts again."""
        with self._planning:
            self._joining.difference_update(*(part.replaces for part in parts))

    def _count_live(self, tree: Tree, group: LiveGroup | None, parts: Sequence[TermPartRow]) -> int:
        """The number of rows of live builds in some parts; of all builds if most live, which saves
        looking at each.
        """
        if group is None:
            return _count_rows(parts)
        live = tree.live_numbers(group)
        if 4 * len(live) >= 3 * sum(len(row.builds) for row in parts):
            return _count_rows(parts)
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
            listed = _count_rows([row])
            if len(part) != listed:
                raise self._damaged(f"has {len(part)} rows where the ledger lists {listed}")
            self._parts[row.id] = part
        return part

    def _damaged(self, how: str) -> StoreError:
        msg = (
            f"A part of a keyword index in {self._ledger.file.address} {how}."
            " Run docs.maintenance.verify() and"
            " repair()."
        )
        return StoreError(msg, store=self._ledger.file.address)

    def _forget(self, tree: Tree) -> None:
        """Close the parts that the tree does not list any more."""
        parts: dict[int, TermPart] = {}
        states = {}
        for group in tree.groups.values():
            for index in group.indexes.values():
                if index.id in self._states:
                    states[index.id] = self._states[index.id]
                parts |= {
                    row.id: self._parts[row.id] for row in index.parts if row.id in self._parts
                }
        self._parts = parts
        self._states = states


def _are_in(builds: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the builds whose numbers are among ascending ones; `numpy.isin` would sort both."""
    if not len(numbers):
        return np.zeros(len(builds), np.bool_)
    mask: NDArray[np.bool_] = numbers.take(np.searchsorted(numbers, builds), mode="clip") == builds
    return mask


def _new_part(builds: Sequence[BuildTerms]) -> TermPart:
    keys: list[str] = []
    fields: list[Fields] = []
    for build in builds:
        keys += build.keys
        fields += build.fields
    codes = [(build.codes, build.rows, len(build.keys)) for build in builds]
    return TermPart.of_codes(keys, codes, builds[0].terms.terms, fields)


def _live_parts(group: LiveGroup | None, index: int) -> tuple[TermPartRow, ...]:
    indexes = group.indexes.values() if group is not None else ()
    return next((live.parts for live in indexes if live.id == index), ())


def _count_rows(parts: Sequence[TermPartRow]) -> int:
    return sum(int(row.rows.sum()) for row in parts)


def _parts_to_join(parts: Sequence[TermPartRow], new_rows: int, living: int) -> int:
    """How many parts at the end are merged into a new one, given the number of living rows in
    all.
    """
    sizes = [*(_count_rows([row]) for row in parts), new_rows]
    count = tail_to_join(sizes, living, _MAX_PARTS, full=_FULL_ROWS)
    # stores of earlier releases have many parts that were full then
    if 2 * living >= sum(sizes):
        for few in range(2, count):
            if sum(sizes[-few:]) >= _FULL_ROWS:
                count = few
                break
    return max(0, count - 1)
