"""Comparing the ledger with what the indexes over groups really hold: vectors, and terms."""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np

from lazyrag.data.segment import key_build
from lazyrag.document.builder import Builder
from lazyrag.document.findings import Findings, pages
from lazyrag.document.ledger.tree import Build, LiveGroup, LiveSpace, Tree
from lazyrag.errors import StoreError
from lazyrag.stores.protocol import Checkable, VectorRow
from lazyrag.types import SPARSE


def look_at_vectors(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace, findings: Findings) -> None:
    """Look at the vectors of a group under an embed key."""
    where = f"{group.name} by {space.name}"
    due = _due(builder, tree, group, space)
    if not due and not space.dimension:
        return
    held, told = _held(builder, space)
    if told:
        findings.spaces[space.id] = space.collection
        findings.add("damaged", where, "", told)
        return
    names = {uid: document.identity for uid, document in tree.documents.items()}
    lengths = Counter(length for length in held.values() if length)
    if space.dimension and lengths and space.dimension not in lengths:
        findings.spaces[space.id] = space.collection
        msg = f"the vectors {_told(lengths.most_common(1)[0][0])}, and by the ledger they {_told(space.dimension)}"
        for build in due:
            findings.add("dimension", where, names.get(build.document, build.document), msg)
        return
    for build in due:
        own = [held.get(key) for key in build.keys]
        missing, wrong = own.count(None), sum(one not in {None, space.dimension} for one in own)
        document = names.get(build.document, build.document)
        if missing or wrong:
            findings.uncovered.add((space.id, build.number))
        if missing:
            findings.add("missing", where, document, f"{missing} of {len(own)} vectors")
        if wrong:
            told = f"{wrong} of {len(own)} vectors have another length or kind, or a number that is not finite"
            findings.add("dimension", where, document, told)
    known = set(builder.ledger.builds.known(group.id))
    orphans = [key for key in held if key_build(key) not in known]
    if orphans:
        findings.vector_orphans[space.collection] = orphans
        findings.add("orphan", where, "", f"{len(orphans)} vectors, the first is {orphans[0]}")


def look_at_terms(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace, findings: Findings) -> None:
    """Look at the lexical index over a group under an analyser."""
    where = f"{group.name} by {space.name}"
    parts: Counter[int] = Counter()
    rows: dict[int, int] = {}
    for row in space.parts:
        told = builder.terms.damage(row)
        if told:
            findings.parts.add(row.id)
            findings.add("damaged", where, "", told)
        else:
            parts.update(row.builds.tolist())
            rows.update(zip(row.builds.tolist(), row.rows.tolist(), strict=True))
    names = {uid: document.identity for uid, document in tree.documents.items()}
    for build in _due(builder, tree, group, space):
        if parts[build.number] == 1 and rows[build.number] == build.size:
            continue
        findings.uncovered.add((space.id, build.number))
        told = f"{rows.get(build.number, 0)} of {build.size} nodes are indexed, in {parts[build.number]} parts"
        findings.add("missing", where, names.get(build.document, build.document), told)
        # Where a part lists a build that is not right in it, none of what it lists can be told to be right.
        findings.parts |= {row.id for row in space.parts if build.number in row.builds}
    lost = [row for row in space.parts if row.id in findings.parts]
    findings.uncovered |= {(space.id, number) for row in lost for number in row.builds.tolist()}


def _due(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace) -> list[Build]:
    """The live builds that a space is to hold: all that have nodes and did not fail."""
    failed = {identity for identity, *_ in builder.ledger.documents.failures()}
    covered = builder.ledger.builds.covered(space.id, {build.number for build in group.builds.values()})
    due = []
    for build in tree.builds(group):
        try:
            has_nodes = bool(build.keys)
        except StoreError:  # reported with the nodes
            continue
        may_fail = tree.documents[build.document].identity in failed
        if has_nodes and (build.number in covered or (space.whole and not may_fail)):
            due.append(build)
    return due


def _held(builder: Builder, space: LiveSpace) -> tuple[dict[str, int], str]:
    """How long each stored vector is, `SPARSE` for sparse ones, 0 where a number is not finite; and what is damaged."""
    store = builder.nodes.vectors
    held: dict[str, int] = {}
    try:
        told = store.damage(space.collection) if isinstance(store, Checkable) else ""
        for page in pages(functools.partial(store.scan, space.collection)) if not told else ():
            held.update((row.key, _length(row)) for row in page)
    except StoreError as exc:
        return {}, str(exc)
    return held, told


def _length(row: VectorRow) -> int:
    if isinstance(row.vector, dict):
        return SPARSE if all(map(math.isfinite, row.vector.values())) else 0
    return len(row.vector) if row.vector.ndim == 1 and np.isfinite(row.vector).all() else 0


def _told(dimension: int) -> str:
    return "are sparse" if dimension == SPARSE else f"have {dimension} numbers"
