"""Changes of what is live, inside the transaction that makes them: the intervals of builds, the
counters of groups and indexes, and the live rows of keyword parts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyrag.errors import StoreError
from lazyrag.indexes.postings import Mask, alive_mask, dead_bits, pick
from lazyrag.ledger.lease import select_in
from lazyrag.ledger.tree import live_rows_of
from lazyrag.storage.arrays import Arrays, damage_of
from lazyrag.stores.liveness import FOREVER, live_numbers
from lazyrag.stores.sqlite import StoreFile
from lazyrag.types import IndexArray, Int32Array, Int64Array

UNKNOWN = -1
"""Number of live rows of a keyword part that was damaged when builds in it were replaced: nobody
knows which rows are live until it is repaired."""


@dataclass(frozen=True, slots=True)
class PartBuilds:
    """The builds in a part of a keyword index, in the order of their rows.

    Args:
        numbers: (b,) int64, the builds.
        ends: (b,) int64, for each the number of the row after its last one.
        order: (b,) the builds by ascending number; None if they are ascending.
    """

    numbers: Int64Array
    ends: Int64Array
    order: IndexArray | None = None

    @classmethod
    def of(cls, numbers: Int64Array, ends: Int64Array) -> PartBuilds:
        """The builds of a part, which need not be in ascending order."""
        is_ascending = bool((numbers[:-1] < numbers[1:]).all())
        return cls(numbers, ends, None if is_ascending else numbers.argsort())

    @property
    def sizes(self) -> Int64Array:
        """(b,) int64, the number of rows of each build."""
        return np.diff(self.ends, prepend=0)

    def rows_of(self, builds: Mask) -> Mask:
        """(n,) bool: the rows of some builds, given a mask of the builds."""
        return np.repeat(builds, self.sizes)

    def find(self, numbers: Int64Array) -> tuple[IndexArray, Mask]:
        """(k,) the places of some builds, and (k,) whether the part has them."""
        places = np.searchsorted(self.numbers, numbers, sorter=self.order)
        places = np.minimum(places, len(self.numbers) - 1)
        if self.order is not None:
            places = self.order[places]
        return places, self.numbers[places] == numbers


def count_terms(lengths: Int32Array, rows: Mask) -> int:
    """The number of terms in some rows of a part.

    Args:
        lengths: (n,) the number of terms of each row.
        rows: (n,) bool, which of them count.
    """
    return int(lengths[np.flatnonzero(rows)].sum(dtype=np.int64))


def live_state(
    builds: PartBuilds, lengths: Int32Array, live: Mask
) -> tuple[int, int, bytes | None]:
    """The live rows of a part, given a mask of its live builds: their number, that of their terms,
    and the bits of the dead rows.
    """
    alive = builds.rows_of(live)
    return int(np.count_nonzero(alive)), count_terms(lengths, alive), dead_bits(alive)


class TermParts:
    """The parts of keyword indexes in a store file, each opened once.

    Args:
        file: The open store file.
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        # By rows that were committed: the number of another one may be given out again.
        self._arrays: dict[int, Arrays] = {}
        self._builds: dict[int, PartBuilds] = {}

    def open_all(self, ledger: int) -> None:
        """Open the parts of a ledger, and close those that were merged or deleted.

        A transaction that marks rows calls it before it begins: opening may take a download, and
        others wait for the transaction.
        """
        with self.file.reading_own() as connection:
            parts = connection.execute(
                "SELECT term_part.id FROM term_part JOIN space ON space.id = space JOIN node_group"
                " ON node_group.id = node_group WHERE ledger = ?",
                (ledger,),
            ).fetchall()
        self.forget([part for (part,) in parts])
        for (part,) in parts:
            with suppress(StoreError):  # the transaction raises it, if it needs this part
                self.builds(part)

    def arrays(self, part: int) -> Arrays:
        """The arrays of a part, by its row.

        Raises:
            StoreError: If it is gone, or its file is missing or damaged.
        """
        arrays = self._arrays.get(part)
        if arrays is None:
            file, content = self._row(part, "file, arrays")
            arrays = self.file.arrays.open(file, content)
            if not self.file.is_writing():
                self._arrays[part] = arrays
        return arrays

    def builds(self, part: int) -> PartBuilds:
        """The builds of a part. Those of releases before format 4 are in its row.

        Raises:
            StoreError: See `arrays`.
        """
        builds = self._builds.get(part)
        if builds is None:
            [pairs] = self._row(part, "builds")
            if pairs:
                table = np.frombuffer(pairs, "<i8").reshape(-1, 2)
                numbers = np.ascontiguousarray(table[:, 0])
                ends = np.cumsum(table[:, 1])
            else:
                numbers, ends = pick(self.arrays(part), "builds", "ends")
            builds = PartBuilds.of(numbers, ends)
            if not self.file.is_writing():
                self._builds[part] = builds
        return builds

    def lengths(self, part: int) -> Int32Array:
        """(n,) int32, the number of terms of each row of a part.

        Raises:
            StoreError: See `arrays`.
        """
        lengths: Int32Array
        [lengths] = pick(self.arrays(part), "lengths")
        return lengths

    def damage(self, part: int) -> str:
        """Check all of a part; "" if it is undamaged, else what is wrong."""
        file, content = self._row(part, "file, arrays")
        return self.file.arrays.check(file) if content is None else damage_of(content, file)

    def ensure_damaged(self, part: int) -> None:
        """Read all of a part that cannot be opened, to see whether it is missing or damaged.

        Raises:
            StoreError: If not, or if it cannot be read: nobody knows what it contains then.
        """
        file, content = self._row(part, "file, arrays")
        if content is None:
            self.file.arrays.ensure_damaged(file)
        elif not damage_of(content, file):
            msg = f"A part of an index in {self.file.address} cannot be opened. Try again."
            raise StoreError(msg, store=self.file.address)

    def forget(self, present: Collection[int]) -> None:
        """Close the parts that are not among the present ones."""
        self.close({*self._arrays, *self._builds}.difference(present))

    def close(self, parts: Iterable[int]) -> None:
        """Close some parts. They are opened again when they are needed."""
        for part in parts:
            self._arrays.pop(part, None)
            self._builds.pop(part, None)

    def _row(self, part: int, columns: str) -> tuple[Any, ...]:
        with self.file.reading_own() as connection:
            row: tuple[Any, ...] | None = connection.execute(
                f"SELECT {columns} FROM term_part WHERE id = ?",  # noqa: S608
                (part,),
            ).fetchone()
        if row is None:
            msg = "A part of an index was merged into another one meanwhile. Try again."
            raise StoreError(msg, store=self.file.address)
        return row


def replace_builds(
    connection: sqlite3.Connection,
    parts: TermParts,
    ledger: int,
    changes: int,
    begun: Collection[int] = (),
    ended: Collection[int] = (),
) -> None:
    """Make some builds live and others not, with all that is counted of them.

    Args:
        connection: In a writing transaction.
        parts: The parts of keyword indexes in the file.
        ledger: Row of the ledger.
        changes: Value of the ledger's counter of changes from which on it is so.
        begun: Numbers of builds that are not live.
        ended: Numbers of live builds.
    """
    # Of keyword parts: a new build is in none before it is live.
    is_live = dict.fromkeys(ended, False)
    query = "SELECT number FROM build WHERE until NOT IN (0, ?) AND number IN (?*)"
    if again := select_in(connection, query, begun, FOREVER):
        is_live |= {number: True for (number,) in again}
        # An interval has no gap: a reader of the state before asks again.
        connection.execute("UPDATE ledger SET removals = removals + 1 WHERE id = ?", (ledger,))
    connection.executemany(
        "UPDATE build SET until = ? WHERE number = ?", [(changes, number) for number in ended]
    )
    connection.executemany(
        "UPDATE build SET since = ?, until = ? WHERE number = ?",
        [(changes, FOREVER, number) for number in begun],
    )
    groups = set()
    for builds, sign in ((begun, 1), (ended, -1)):
        if builds:
            groups |= _count(connection, builds, sign)
    if is_live:
        _mark_rows(connection, parts, groups, is_live)


def end_groups(connection: sqlite3.Connection, groups: Sequence[int]) -> None:
    """End the builds of groups that were dropped: no reader of a later state asks for them."""
    ended = [(group, group, FOREVER) for group in groups]
    connection.executemany(
        "UPDATE build SET until = (SELECT changes FROM ledger JOIN node_group ON ledger ="
        " ledger.id WHERE node_group.id = ?) WHERE node_group = ? AND until = ?",
        ended,
    )


def _count(connection: sqlite3.Connection, builds: Collection[int], sign: int) -> set[int]:
    """Add builds to the counters of their groups and indexes, or subtract them; returns the
    groups.
    """
    groups = select_in(
        connection,
        "SELECT count(*), sum(size), sum(CASE WHEN size > 0 THEN 1 ELSE 0 END), node_group FROM"
        " build WHERE number IN (?*) GROUP BY node_group",
        builds,
    )
    connection.executemany(
        "UPDATE node_group SET documents = documents + ?, nodes = nodes + ?, filled = filled + ?"
        " WHERE id = ?",
        [
            (sign * live, sign * nodes, sign * filled, group)
            for live, nodes, filled, group in groups
        ],
    )
    indexes = select_in(
        connection,
        "SELECT sum(size), space FROM covered JOIN build ON number = build WHERE build IN (?*)"
        " GROUP BY space",
        builds,
    )
    _add_nodes(connection, [(sign * nodes, index) for nodes, index in indexes])
    return {group for *_, group in groups}


CoveredBuild: TypeAlias = tuple[int, int]
"""Number of an index, and of a build that it contains."""


def _add_nodes(connection: sqlite3.Connection, nodes: Iterable[tuple[int, int]]) -> None:
    """Add numbers of nodes to the counters of indexes."""
    connection.executemany("UPDATE space SET nodes = nodes + ? WHERE id = ?", nodes)


def cover(connection: sqlite3.Connection, pairs: Collection[CoveredBuild]) -> None:
    """Enter pairs (index, build) of builds that indexes contain from now on."""
    if not pairs:
        return
    new = {*pairs} - _present(connection, pairs)
    connection.executemany("INSERT INTO covered VALUES (?, ?)", sorted(new))
    _add_nodes(connection, _live_nodes(connection, new, 1))


def uncover(connection: sqlite3.Connection, pairs: Collection[CoveredBuild]) -> None:
    """Remove pairs (index, build) from the builds that indexes contain."""
    present = _present(connection, pairs)
    connection.executemany("DELETE FROM covered WHERE space = ? AND build = ?", sorted(present))
    _add_nodes(connection, _live_nodes(connection, present, -1))


def _present(connection: sqlite3.Connection, pairs: Collection[CoveredBuild]) -> set[CoveredBuild]:
    """Those of some pairs (index, build) that are entered."""
    query = "SELECT space, build FROM covered WHERE build IN (?*)"
    return {*pairs}.intersection(select_in(connection, query, {build for _, build in pairs}))


def _live_nodes(
    connection: sqlite3.Connection, pairs: Collection[CoveredBuild], sign: int
) -> list[tuple[int, int]]:
    """The numbers of live nodes in pairs (index, build), times a sign, each with the index."""
    query = "SELECT number, size FROM build WHERE until = ? AND number IN (?*)"
    sizes = dict(select_in(connection, query, {build for _, build in pairs}, FOREVER))
    return [(sign * sizes.get(build, 0), index) for index, build in pairs]


def among_live(connection: sqlite3.Connection, builds: Collection[int]) -> set[int]:
    """Those of some builds that are live."""
    query = "SELECT number FROM build WHERE until = ? AND number IN (?*)"
    return {number for (number,) in select_in(connection, query, builds, FOREVER)}


# Live rows of keyword parts


def _mark_rows(
    connection: sqlite3.Connection,
    parts: TermParts,
    groups: Collection[int],
    is_live: Mapping[int, bool],
) -> None:
    """Mark the rows of builds in all keyword parts of their groups."""
    query = (
        "SELECT term_part.id FROM term_part JOIN space ON space.id = space WHERE node_group IN (?*)"
    )
    for (part,) in select_in(connection, query, groups):
        _mark_part(connection, parts, part, is_live)


def _mark_part(
    connection: sqlite3.Connection, parts: TermParts, part: int, is_live: Mapping[int, bool]
) -> None:
    try:
        builds = parts.builds(part)
    except StoreError:
        parts.ensure_damaged(part)
        # Nobody knows which rows are of these builds: searches fail until it is repaired.
        connection.execute(
            "UPDATE term_state SET changed = changed + 1, live = ? WHERE part = ?", (UNKNOWN, part)
        )
        return
    numbers = np.fromiter(is_live.keys(), np.int64, len(is_live))
    places, are_present = builds.find(numbers)
    if not are_present.any():
        return
    size = int(builds.ends[-1])
    live, dead, tokens = live_rows_of(connection, part, parts.file.address)
    if live == UNKNOWN:
        return
    before = alive_mask(dead, size)
    before = np.ones(size, np.bool_) if before is None else before
    alive = before.copy()
    for number, place in zip(numbers[are_present], places[are_present], strict=True):
        start = builds.ends[place - 1] if place else 0
        alive[start : builds.ends[place]] = is_live[int(number)]
    if tokens is not None:
        lengths = parts.lengths(part)
        tokens += count_terms(lengths, alive & ~before)
        tokens -= count_terms(lengths, before & ~alive)
    connection.execute(
        "UPDATE term_state SET changed = changed + 1, live = ?, tokens = ?, dead = ?"
        " WHERE part = ?",
        (int(np.count_nonzero(alive)), tokens, dead_bits(alive), part),
    )


def live_builds_of(
    connection: sqlite3.Connection, parts: TermParts, numbers: Iterable[int]
) -> tuple[Int64Array, Mask]:
    """The builds in some parts, ascending, and which of them are live; without parts of which
    nobody knows it.
    """
    builds = [np.zeros(0, np.int64)]
    verdicts = [np.zeros(0, np.bool_)]
    for part in numbers:
        live, dead, _ = live_rows_of(connection, part, parts.file.address)
        if live == UNKNOWN:
            continue
        opened = parts.builds(part)
        alive = alive_mask(dead, int(opened.ends[-1]))
        builds.append(opened.numbers)
        verdicts.append(
            np.ones(len(opened.numbers), np.bool_) if alive is None else alive[opened.ends - 1]
        )
    joined = np.concatenate(builds)
    order = joined.argsort(kind="stable")
    return joined[order], np.concatenate(verdicts)[order]


def enter_state(
    connection: sqlite3.Connection,
    part: int,
    builds: PartBuilds,
    lengths: Int32Array,
    joined: tuple[Int64Array, Mask],
) -> None:
    """Enter the live rows of a new part.

    Args:
        connection: In a writing transaction.
        part: Its row.
        builds: Its builds.
        lengths: (n,) the number of terms of each row.
        joined: The builds of the parts that were merged into it, see `live_builds_of`.
    """
    numbers = builds.numbers
    joined_numbers, verdicts = joined
    is_live = np.zeros(len(numbers), np.bool_)
    unknown = np.arange(len(numbers))
    if len(joined_numbers):
        places = np.minimum(joined_numbers.searchsorted(numbers), len(joined_numbers) - 1)
        is_joined = joined_numbers[places] == numbers
        is_live[is_joined] = verdicts[places[is_joined]]
        unknown = np.flatnonzero(~is_joined)
    live = among_live(connection, numbers[unknown].tolist())
    is_live[unknown] = [number in live for number in numbers[unknown].tolist()]
    connection.execute(
        "INSERT INTO term_state VALUES (?, 1, ?, ?, ?)",
        (part, *live_state(builds, lengths, is_live)),
    )


def restore_state(
    connection: sqlite3.Connection, parts: TermParts, part: int, changes: int
) -> None:
    """Enter the live rows of a part that has lost them.

    Args:
        connection: In a writing transaction.
        parts: The parts of keyword indexes in the file.
        part: Its row.
        changes: The ledger's counter of changes, greater than any before: readers may remember the
            state that was lost.

    Raises:
        StoreError: If the part cannot be read, and is not damaged.
    """
    try:
        nothing = (np.zeros(0, np.int64), np.zeros(0, np.bool_))
        enter_state(connection, part, parts.builds(part), parts.lengths(part), nothing)
    except StoreError:
        parts.ensure_damaged(part)
        connection.execute("INSERT INTO term_state VALUES (?, 1, ?, NULL, NULL)", (part, UNKNOWN))
    connection.execute("UPDATE term_state SET changed = ? WHERE part = ?", (changes, part))


# Checks


class Correction(NamedTuple):
    """A statement that corrects what is counted or marked, and what is wrong."""

    problem: str
    query: str
    parameters: tuple[Any, ...]


def corrections(
    connection: sqlite3.Connection, parts: TermParts, group: int
) -> Iterator[Correction]:
    """What is counted wrongly of a group and its indexes, by the intervals of its builds."""
    query = (
        "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(CASE WHEN size > 0 THEN 1 ELSE 0"
        " END), 0) FROM build WHERE node_group = ? AND until = ?"
    )
    expected = tuple(map(int, connection.execute(query, (group, FOREVER)).fetchone()))
    query = "SELECT documents, nodes, filled FROM node_group WHERE id = ?"
    counted = connection.execute(query, (group,)).fetchone()
    if expected != counted:
        yield Correction(
            f"its counters are {counted} where {expected} are live",
            "UPDATE node_group SET documents = ?, nodes = ?, filled = ? WHERE id = ?",
            (*expected, group),
        )
    query = (
        "SELECT coalesce(sum(size), 0) FROM covered JOIN build ON number = build"
        " WHERE space = ? AND until = ?"
    )
    indexes = connection.execute("SELECT id, nodes FROM space WHERE node_group = ?", (group,))
    for index, nodes in indexes.fetchall():
        covered = int(connection.execute(query, (index, FOREVER)).fetchone()[0])
        if covered != nodes:
            yield Correction(
                f"an index counts {nodes} nodes where {covered} are live",
                "UPDATE space SET nodes = ? WHERE id = ?",
                (covered, index),
            )
    yield from _part_corrections(connection, parts, group)


def _part_corrections(
    connection: sqlite3.Connection, parts: TermParts, group: int
) -> Iterator[Correction]:
    rows = connection.execute(
        "SELECT part, live, tokens, dead FROM term_state JOIN term_part ON term_part.id = part"
        " JOIN space ON space.id = space WHERE node_group = ?",
        (group,),
    ).fetchall()
    numbers = live_numbers(connection, group) if rows else np.zeros(0, np.int64)
    for part, live, tokens, dead in rows:
        try:
            builds = parts.builds(part)
            lengths = parts.lengths(part)
        except StoreError:
            parts.ensure_damaged(part)
            continue  # reported with the part
        expected = live_state(builds, lengths, np.isin(builds.numbers, numbers))
        if (live, expected[1] if tokens is None else tokens, dead) != expected:
            counted_rows = "an unknown number of" if live == UNKNOWN else live
            yield Correction(
                f"a part of a keyword index has {counted_rows} live rows where {expected[0]} are"
                " live",
                "UPDATE term_state SET changed = changed + 1, live = ?, tokens = ?, dead = ?"
                " WHERE part = ?",
                (*expected, part),
            )
