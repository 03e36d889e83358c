"""The keyword indexes of a Document: immutable parts that its ledger lists, and their live rows."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lazyrag.errors import StoreError
from lazyrag.indexes.bm25 import LexicalState, TermPart
from lazyrag.indexes.postings import Mask, alive_mask
from lazyrag.indexes.tiers import tail_to_join
from lazyrag.ledger.ledger import Ledger, NewPart
from lazyrag.ledger.liveness import UNKNOWN, PartBuilds
from lazyrag.ledger.tree import (
    LiveGroup,
    LiveIndex,
    TermPartRow,
    Tree,
    damaged_part,
)
from lazyrag.storage.database import batches_reaching
from lazyrag.text.term_codes import TermCodes
from lazyrag.types import AnyArray, Fields, Int32Array, Int64Array

_SLICE_CHARACTERS = 1 << 16  # that are analysed together: other threads of Python wait so long
_PART_CHARACTERS = 1 << 23  # of a build whose terms are made parts: its occurrences take more
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
        parts: The terms of many nodes instead, which take less memory; () for those of few.
    """

    build: int
    keys: Sequence[str]
    codes: Int64Array
    rows: Int32Array
    terms: TermCodes
    fields: Sequence[Fields]
    parts: Sequence[TermPart] = ()


@dataclass(frozen=True, slots=True)
class _Merge:
    """Parts that a new one replaces.

    Args:
        parts: The parts.
        masks: For each of them, which of its builds are in use, and do not come again.
    """

    parts: Sequence[TermPartRow]
    masks: Sequence[Mask]


class TermIndexes:
    """Reads and extends the keyword indexes of a ledger.

    A part has the nodes of some builds, one build after the other, and is never changed; its live
    rows are those of live builds.

    Args:
        ledger: The ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.merges = True
        """Whether new parts are merged with small ones before them; not in a worker, as several
        may choose the same: the driver calls `merged`."""
        self._lock = threading.Lock()
        self._parts: dict[int, TermPart] = {}
        self._planning = threading.Lock()  # no transaction is begun while it is held
        # parts that are being merged; others leave them alone until then
        self._joining: set[int] = set()
        self._states: dict[int, tuple[tuple[tuple[int, int], ...], LexicalState]] = {}

    def state(self, tree: Tree, index: LiveIndex) -> LexicalState:
        """The index in one state of the tree."""
        versions = tuple((part.id, part.changed) for part in index.parts)
        previous = None
        if index.id in self._states:
            versions_before, previous = self._states[index.id]
            if versions_before == versions:
                return previous
        parts = self.parts(index)
        tokens = [part.tokens for part in index.parts]
        with self._lock:
            state = LexicalState(
                [part for part, _ in parts],
                [mask for _, mask in parts],
                previous=previous,
                tokens=None if None in tokens else sum(filter(None, tokens)),
            )
            self._states[index.id] = versions, state
            self._forget(tree)
        return state

    def parts(self, index: LiveIndex) -> list[tuple[TermPart, Mask | None]]:
        """The parts of an index, with masks of their live rows; None if all are live."""
        if any(row.live == UNKNOWN for row in index.parts):
            how = "was damaged when documents were deleted or replaced"
            raise damaged_part(self._ledger.file.address, how)
        with self._lock:
            return [(self._part(row), alive_mask(row.dead, row.rows)) for row in index.parts]

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
        with_terms.sort(key=lambda build: len(build.parts))
        numbers = np.array([build.build for build in with_terms], np.int64)
        rows = np.array([len(build.keys) for build in with_terms], np.int64)
        parts = [part for build in with_terms for part in build.parts]
        small = [build for build in with_terms if not build.parts]
        if small:
            parts.insert(0, _new_part(small))
            small.clear()
        with_terms.clear()
        builds.clear()
        merge = self._plan_merge(group, index, numbers, int(rows.sum()))
        part = parts[0]
        if merge.parts or len(parts) > 1:
            part = self._join(merge, parts)
        return [self._write_part(index, part, merge, numbers, rows)]

    def merged(self, group: int, index: int) -> list[NewPart]:
        """Merge the small parts at the end of an index; [] if there is nothing to merge. See
        `extended`.
        """
        nothing = np.array([], np.int64)
        merge = self._plan_merge(group, index, nothing, 0)
        if len(merge.parts) < 2:
            with self._planning:
                self._joining.difference_update(row.id for row in merge.parts)
            return []
        return [self._write_part(index, self._join(merge, []), merge, nothing, nothing)]

    def _write_part(
        self,
        index: int,
        part: TermPart,
        merge: _Merge,
        numbers: Int64Array,
        rows: Int64Array,
    ) -> NewPart:
        """Write a part, given the new builds in it with their numbers of rows."""
        pairs = list(zip(merge.parts, merge.masks, strict=True))
        merged = [(self._ledger.parts.builds(row.id), mask) for row, mask in pairs]
        numbers = np.concatenate([*(builds.numbers[mask] for builds, mask in merged), numbers])
        rows = np.concatenate([*(builds.sizes[mask] for builds, mask in merged), rows])
        builds = PartBuilds.of(numbers, np.cumsum(rows))
        name, content = self._ledger.file.arrays.write_or_inline(
            arrays_with_builds(part, builds), _SMALL_BYTES
        )
        replaced = tuple(row.id for row in merge.parts)
        retired = tuple(row.file for row in merge.parts if row.in_file and row.file != name)
        return NewPart(index, name, content, builds, part.lengths, replaced, retired)

    def _plan_merge(self, group: int, index: int, new_builds: Int64Array, new_rows: int) -> _Merge:
        """Choose the parts that a new one replaces: small ones at the end, and those with one of
        its builds.

        A build that comes again was damaged: its old rows are dropped.
        """
        tree = self._ledger.tree
        live_group = next((live for live in tree.groups.values() if live.id == group), None)
        with self._ledger.reading():
            parts = self._ledger.groups.term_parts(index, _live_parts(live_group, index))
            living = sum(max(0, row.live) for row in parts) + new_rows
            joined = _parts_to_join(parts, new_rows, living) if self.merges else 0
            tail = parts[len(parts) - joined :]
            tail_ids = {row.id for row in tail}
            builds_of = self._readable_builds(parts, tail_ids)
            merged = [
                row
                for row in parts
                if row.id in builds_of
                and (row.id in tail_ids or builds_of[row.id].find(new_builds)[1].any())
            ]
            with self._planning:
                merged = [row for row in merged if row.id not in self._joining]
                self._joining.update(row.id for row in merged)
            builds = [builds_of[row.id].numbers for row in merged]
            old_builds = set()
            for numbers in builds:
                old_builds.update(numbers.tolist())
            not_dead = self._ledger.builds.not_dead(old_builds) if old_builds else ()
        in_use = np.setdiff1d(np.array(not_dead, np.int64), new_builds)
        return _Merge(merged, [np.isin(numbers, in_use) for numbers in builds])

    def _readable_builds(
        self, rows: Sequence[TermPartRow], tail: Collection[int]
    ) -> dict[int, PartBuilds]:
        """The builds of the undamaged ones of some parts, by their rows: repair makes the others
        again. Those of the tail are to be read as a whole.
        """
        builds = {}
        for row in rows:
            if not row.changed:
                continue
            try:
                if row.id in tail:
                    self._ledger.parts.arrays(row.id)
                builds[row.id] = self._ledger.parts.builds(row.id)
            except StoreError:
                self._ledger.parts.ensure_damaged(row.id)
        return builds

    def _join(self, merge: _Merge, new_parts: Sequence[TermPart]) -> TermPart:
        """Parts as one, with new ones after them."""
        with self._lock:  # not in the transaction: others read parts while they hold it
            parts = [self._part(row) for row in merge.parts]
            for row in merge.parts:
                # a writer that answers no query would hold every part it ever merged
                del self._parts[row.id]
        pairs = zip(merge.parts, merge.masks, strict=True)
        row_masks = [self._ledger.parts.builds(row.id).rows_of(mask) for row, mask in pairs]
        masks = [*row_masks, *(None for _ in new_parts)]
        return TermPart.joined([*parts, *new_parts], masks, self._ledger.file.arrays.scratch)

    def release(self, parts: Sequence[NewPart]) -> None:
        """Let others merge the parts before some parts again."""
        with self._planning:
            self._joining.difference_update(*(part.replaces for part in parts))

    def _part(self, row: TermPartRow) -> TermPart:
        """A part, opened once; the caller holds the lock."""
        address = self._ledger.file.address
        if not row.changed:
            raise damaged_part(address)
        part = self._parts.get(row.id)
        if part is None:
            try:
                part = TermPart.from_arrays(self._ledger.parts.arrays(row.id))
            except (ValueError, IndexError, TypeError) as exc:
                raise damaged_part(address, f"cannot be read ({exc})") from exc
            if len(part) != row.rows:
                how = f"has {len(part)} rows where the ledger lists {row.rows}"
                raise damaged_part(address, how)
            self._parts[row.id] = part
        return part

    def _forget(self, tree: Tree) -> None:
        """Close the parts that the tree does not list any more."""
        parts: dict[int, TermPart] = {}
        states = {}
        listed: set[int] = set()
        for group in tree.groups.values():
            for index in group.indexes.values():
                listed.update(row.id for row in index.parts)
                if index.id in self._states:
                    states[index.id] = self._states[index.id]
                parts |= {
                    row.id: self._parts[row.id] for row in index.parts if row.id in self._parts
                }
        self._parts = parts
        self._states = states
        self._ledger.parts.forget(listed)


def arrays_with_builds(part: TermPart, builds: PartBuilds) -> dict[str, AnyArray]:
    """The arrays of a part for its file, with its builds."""
    return {**part.arrays(), "builds": builds.numbers, "ends": builds.ends}


def build_terms(
    build: int,
    keys: Sequence[str],
    fields: Sequence[Fields],
    texts: Sequence[str],
    terms: TermCodes,
) -> BuildTerms:
    """Analyse the nodes of a build.

    Args:
        build: Its number.
        keys: The nodes' keys, at least one.
        fields: Their filterable fields.
        texts: What the index reads of each.
        terms: Gives the terms numbers.
    """
    if sum(map(len, texts)) <= _PART_CHARACTERS:
        return BuildTerms(build, keys, *_encoded(terms, texts), terms, fields)
    part_terms = TermCodes(terms.analyser)  # whose numbers are forgotten: parts have the terms
    parts = []
    first = 0
    for some in batches_reaching(texts, len, _PART_CHARACTERS):
        end = first + len(some)
        block = (*_encoded(part_terms, some), len(some))
        part = TermPart.of_codes(keys[first:end], [block], part_terms.terms, fields[first:end])
        parts.append(part)
        part_terms.shrink()
        first = end
    nothing = np.array([], np.int64)
    return BuildTerms(build, keys, nothing, nothing.astype(np.int32), part_terms, fields, parts)


def _encoded(terms: TermCodes, texts: Iterable[str]) -> tuple[Int64Array, Int32Array]:
    """See `TermCodes.encode`: in slices, as one call keeps other threads waiting."""
    codes: list[Int64Array] = []
    rows: list[Int32Array] = []
    first = 0
    for some in batches_reaching(texts, len, _SLICE_CHARACTERS):
        numbers, places = terms.encode(some)
        codes.append(numbers)
        rows.append(places + np.int32(first))
        first += len(some)
    return np.concatenate(codes), np.concatenate(rows)


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


def _parts_to_join(parts: Sequence[TermPartRow], new_rows: int, living: int) -> int:
    """How many parts at the end are merged into a new one, given the number of living rows in
    all.
    """
    if not new_rows and parts:  # the last one is merged with those before it
        return 1 + _parts_to_join(parts[:-1], parts[-1].rows, living)
    sizes = [*(row.rows for row in parts), new_rows]
    count = tail_to_join(sizes, living, _MAX_PARTS, full=_FULL_ROWS)
    # stores of earlier releases have many parts that were full then
    if 2 * living >= sum(sizes):
        for few in range(2, count):
            if sum(sizes[-few:]) >= _FULL_ROWS:
                count = few
                break
    return max(0, count - 1)
