"""Comparing the ledger with what the stores and files really hold."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, key_build
from lazyrag.document.builder import Builder
from lazyrag.document.ledger.rows import BuildRow
from lazyrag.document.ledger.tree import Build, LiveGroup, LiveSpace, Tree
from lazyrag.document.segments import input_digest, root_digest
from lazyrag.errors import StoreError
from lazyrag.stores.protocol import Checkable, VectorRow

ProblemKind: TypeAlias = Literal["missing", "orphan", "stale", "dimension", "dangling", "damaged"]
"""What can be wrong:

- ``missing``: the ledger lists it, and the store or the index does not hold it;
- ``orphan``: a store holds it, and the ledger knows nothing of it;
- ``stale``: it was not made of what stands above it now;
- ``dimension``: a vector of another length than its collection's, or with a number that is not finite;
- ``dangling``: it names a parent or a document that is not live;
- ``damaged``: a file cannot be read, or does not hold what was written.
"""

R = TypeVar("R", Segment, VectorRow)

_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as the ledger says.

    Args:
        kind: What is wrong, see `ProblemKind`.
        where: The group, and the index over it if it is that.
        document: The document; "" where it is not known.
        what: The rest, for people.
    """

    kind: ProblemKind
    where: str
    document: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}{', ' + self.document if self.document else ''}: {self.what}"


@dataclass(slots=True)
class Findings:
    """What is wrong, and what has to be made anew for it.

    Args:
        problems: For people.
        builds: Live builds that are not what they should be, with all that was made of them.
        uncovered: Pairs (space, build) that a space does not hold as it should.
        parts: Parts of lexical indexes that cannot be used.
        spaces: Collections of vectors that cannot be used, by the space's row.
        segment_orphans: Keys by collection of segments.
        vector_orphans: Keys by collection of vectors.
    """

    problems: list[Problem] = field(default_factory=list)
    builds: set[int] = field(default_factory=set)
    uncovered: set[tuple[int, int]] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    spaces: dict[int, str] = field(default_factory=dict)
    segment_orphans: dict[str, list[str]] = field(default_factory=dict)
    vector_orphans: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: ProblemKind, where: str, document: str, what: str) -> None:
        """Enter a problem."""
        self.problems.append(Problem(kind, where, document, what))


def look(builder: Builder) -> Findings:
    """Look at all that is live, and at all that the stores hold."""
    tree = builder.ledger.tree
    findings = Findings()
    told = builder.ledger.file.damage()
    if told:
        findings.add("damaged", "the store file", "", told)
    roots = tree.groups.get(LAZY_ROOT_NAME)
    for document in tree.documents.values():
        if roots is None or document.uid not in roots.builds:
            findings.add(
                "missing", LAZY_ROOT_NAME, document.identity, "its root node; there is no source to read it from"
            )
    for group in tree.groups.values():
        _Look(builder, tree, group, findings).at_nodes()
        for space in group.spaces.values():
            if space.kind == "vectors":
                _look_at_vectors(builder, tree, group, space, findings)
            else:
                _look_at_terms(builder, tree, group, space, findings)
    return findings


class _Look:
    """At the nodes of one group."""

    def __init__(self, builder: Builder, tree: Tree, group: LiveGroup, findings: Findings) -> None:
        self._builder = builder
        self._tree = tree
        self._group = group
        self._findings = findings
        self._names = {uid: document.identity for uid, document in tree.documents.items()}

    def at_nodes(self) -> None:
        held = self._held()
        known = set(self._builder.ledger.builds.known(self._group.id))
        rows = {row.number: row for row in self._builder.ledger.builds.live_in(self._group.id)}
        for build in self._tree.builds(self._group):
            self._at_build(build, rows[build.number], held)
        orphans = [key for key in held if key_build(key) not in known]
        if orphans:
            self._findings.segment_orphans[self._group.collection] = orphans
            self._findings.add("orphan", self._group.name, "", f"{len(orphans)} nodes, the first is {orphans[0]}")

    def _held(self) -> set[str]:
        """The keys of all rows of the collection."""
        store, collection = self._builder.nodes.segments, self._group.collection
        try:
            return {one.key for page in _pages(functools.partial(store.scan, collection)) for one in page}
        except StoreError as exc:
            self._findings.add("damaged", self._group.name, "", str(exc))
            return set()

    def _at_build(self, build: Build, row: BuildRow, held: set[str]) -> None:
        name = self._names.get(build.document, build.document)
        if self._group.parent is not None and build.parent is None:
            return self._wrong("dangling", build, name, "what it was made of is not live")
        missing = [key for key in build.keys if key not in held]
        if missing:
            return self._wrong("missing", build, name, f"{len(missing)} of {len(build.keys)} nodes")
        nodes = self._builder.nodes.of_build(self._group.collection, build)
        parents = set(build.parent.uids) if build.parent is not None else {None}
        astray = [
            one.uid
            for one in nodes
            if one.parent not in parents or one.document_id != build.document or one.group != self._group.name
        ]
        if astray:
            return self._wrong("dangling", build, name, f"node {astray[0]} hangs on {'nothing that is live'}")
        if row.input not in self._inputs(build, nodes):
            return self._wrong("stale", build, name, "it was not made of what stands above it now")
        return None

    def _inputs(self, build: Build, nodes: Sequence[Segment]) -> set[str]:
        """What the build's input must be, whether its transform saw nodes or content only."""
        if build.parent is None:
            return {root_digest(nodes[0])} if nodes else set()
        parent = self._tree.groups[str(self._group.parent)]
        root = build.parent
        while root.parent is not None:
            root = root.parent
        try:
            above = self._builder.nodes.of_build(parent.collection, build.parent)
            roots = self._builder.nodes.of_build(self._tree.groups[LAZY_ROOT_NAME].collection, root)
        except StoreError:
            return set()  # reported where it is missing
        return {input_digest(above, roots[0], sees_nodes=sees) for sees in (False, True)}

    def _wrong(self, kind: Literal["missing", "stale", "dangling"], build: Build, document: str, what: str) -> None:
        self._findings.builds.add(build.number)
        self._findings.add(kind, self._group.name, document, what)


def _look_at_vectors(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace, findings: Findings) -> None:
    if not space.dimension:
        return
    where = f"{group.name} by {space.name}"
    store = builder.nodes.vectors
    told = store.damage(space.collection) if isinstance(store, Checkable) else ""
    held: dict[str, bool] = {}
    try:
        for page in _pages(functools.partial(store.scan, space.collection)) if not told else ():
            held.update((row.key, _is_vector(row, space.dimension)) for row in page)
    except StoreError as exc:
        told = str(exc)
    if told:
        findings.spaces[space.id] = space.collection
        findings.add("damaged", where, "", told)
        return
    names = {uid: document.identity for uid, document in tree.documents.items()}
    covered = builder.ledger.builds.covered(space.id, {build.number for build in group.builds.values()})
    for build in tree.builds(group):
        own = [held.get(key) for key in build.keys if build.number in covered]
        if None in own or False in own:
            findings.uncovered.add((space.id, build.number))
            document = names.get(build.document, build.document)
            if None in own:
                findings.add("missing", where, document, f"{own.count(None)} of {len(own)} vectors")
            if False in own:
                told = f"{own.count(False)} of {len(own)} vectors have another length, or a number that is not finite"
                findings.add("dimension", where, document, told)
    known = set(builder.ledger.builds.known(group.id))
    orphans = [key for key in held if key_build(key) not in known]
    if orphans:
        findings.vector_orphans[space.collection] = orphans
        findings.add("orphan", where, "", f"{len(orphans)} vectors, the first is {orphans[0]}")


def _is_vector(row: VectorRow, dimension: int) -> bool:
    return row.vector.shape == (dimension,) and bool(np.isfinite(row.vector).all())


def _look_at_terms(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace, findings: Findings) -> None:
    where = f"{group.name} by {space.name}"
    held: dict[int, int] = {}
    for row in space.parts:
        told = builder.terms.damage(row)
        if told:
            findings.parts.add(row.id)
            findings.uncovered |= {(space.id, number) for number in row.builds.tolist()}
            findings.add("damaged", where, "", told)
        else:
            held.update(zip(row.builds.tolist(), row.rows.tolist(), strict=True))
    names = {uid: document.identity for uid, document in tree.documents.items()}
    covered = builder.ledger.builds.covered(space.id, {build.number for build in group.builds.values()})
    damaged = {number for at, number in findings.uncovered if at == space.id}
    for build in tree.builds(group):
        wanted = sum(json.loads(build.counts))
        if build.number in covered and build.number not in damaged and held.get(build.number, 0) != wanted:
            findings.uncovered.add((space.id, build.number))
            told = f"{held.get(build.number, 0)} of {wanted} nodes are indexed"
            findings.add("missing", where, names.get(build.document, build.document), told)


def _pages(scan: Callable[..., list[R]]) -> Iterator[list[R]]:
    """All rows of a collection, in pages."""
    after = ""
    while True:
        page = scan(after=after, limit=_PAGE)
        if page:
            yield page
            after = page[-1].key
        if len(page) < _PAGE:
            return
