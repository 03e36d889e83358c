"""Comparing the ledger with what the stores and files really hold."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, key_build, key_uid
from lazyrag.document.indexer import Builder
from lazyrag.document.ingest import input_digest, output_digest, root_digest
from lazyrag.document.ledger import BuildRow
from lazyrag.document.report import Findings, Problem, ProblemKind, pages
from lazyrag.document.sync import bring_lacking, synchronise
from lazyrag.document.tree import Build, LiveGroup, LiveSpace, Tree
from lazyrag.errors import StoreBusyError, StoreError
from lazyrag.stores.protocol import Checkable, VectorRow
from lazyrag.types import SPARSE, Embedding

if TYPE_CHECKING:
    from lazyrag.indexes.bm25 import TermPart


_VOLATILE = "last_accessed_date"


def canonical_dump(builder: Builder) -> Iterator[str]:
    """A line for each document, node, vector and indexed node that is live, as JSON, in a fixed order.

    Left out is what says nothing of the content: numbers of builds and versions, times at which something was done,
    ``last_accessed_date``, and how rows are dealt to files. So a Document that was interrupted, resumed and repaired
    has the dump of one that was made in one go.

    Args:
        builder: Of the Document. Nothing is built for it.
    """
    tree = builder.ledger.tree
    for document in tree.documents.values():
        yield _line("document", {"identity": document.identity, "uid": document.uid})
    for name in sorted(tree.groups):
        group = tree.groups[name]
        yield _line("group", {"name": name, "parent": group.parent, "fingerprint": group.fingerprint})
        for build in tree.builds(group):
            for segment in builder.nodes.of_build(group.collection, build):
                yield _line("node", _told(segment))
        for key in sorted(group.spaces):
            space = group.spaces[key]
            yield _line("space", {"kind": space.kind, "name": space.name, "identity": space.identity})
            told = _vectors if space.kind == "vectors" else _terms
            held = told(builder, tree, group, space)
            yield from (_line(space.kind, {"uid": uid, "holds": held[uid]}) for uid in sorted(held))


def _line(kind: str, value: Mapping[str, Any]) -> str:
    return json.dumps({"is": kind, **value}, sort_keys=True, ensure_ascii=True)


def _told(segment: Segment) -> dict[str, Any]:
    return {
        "uid": segment.uid,
        "path": segment.path,
        "group": segment.group,
        "parent": segment.parent,
        "number": segment.number,
        "content": segment.content,
        "metadata": {name: value for name, value in segment.metadata.items() if name != _VOLATILE},
        "fields": {name: value for name, value in segment.fields.items() if name != _VOLATILE},
        "span": segment.span,
        "places": [[place.start, place.end, place.kind, place.label] for place in segment.places],
    }


def _vectors(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace) -> dict[str, str]:
    """Digests of the vectors of live nodes, by uid."""
    if not space.dimension:
        return {}
    keys = [key for build in tree.builds(group) for key in build.keys]
    rows = builder.nodes.vectors.get(space.collection, keys)
    return {key_uid(row.key): hashlib.blake2b(_bytes_of(row.vector), digest_size=16).hexdigest() for row in rows}


def _bytes_of(vector: Embedding) -> bytes:
    """The same bytes for equal vectors: the numbers, or the dimensions in order and their weights."""
    if not isinstance(vector, dict):
        return np.ascontiguousarray(vector, "<f4").tobytes()
    ordered = sorted(vector)
    weights = np.array([vector[dimension] for dimension in ordered], "<f4")
    return np.array(ordered, "<u8").tobytes() + weights.tobytes()


def _terms(builder: Builder, tree: Tree, group: LiveGroup, space: LiveSpace) -> dict[str, dict[str, int]]:
    """How often each live node has each of its terms, by uid."""
    live = tree.live_set(group)
    found: dict[str, dict[str, int]] = {}
    for part, _ in builder.terms.parts(tree, group, space):
        for key, terms in _terms_of_rows(part).items():
            if key_build(key) in live:
                found[key_uid(key)] = dict(sorted(terms.items()))
    return found


def _terms_of_rows(part: TermPart) -> dict[str, dict[str, int]]:
    keys = [key.decode() for key in part.keys.tolist()]
    found: dict[str, dict[str, int]] = {key: {} for key in keys}
    by_row: defaultdict[int, dict[str, int]] = defaultdict(dict)
    postings = part.postings
    for number, term in enumerate(part.vocabulary.terms()):
        first, last = int(postings.starts[number]), int(postings.starts[number + 1])
        for row, count in zip(postings.rows[first:last].tolist(), postings.values[first:last].tolist(), strict=True):
            by_row[row][term] = int(count)
    for row, terms in by_row.items():
        found[keys[row]] = terms
    return found


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A node group as far as it is built.

    Args:
        name: Its name.
        is_current: Whether it is what its definition would give now.
        is_whole: Whether it was built for every document.
        documents: How many documents have nodes in it.
        nodes: How many nodes it has.
        indexes: What is indexed: analysers and embed keys.
    """

    name: str
    is_current: bool
    is_whole: bool
    documents: int
    nodes: int
    indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """What a Document holds.

    Args:
        name: Of the Document.
        documents: How many documents are live.
        groups: The node groups that are built.
        failed: Pairs (document, stage) of what failed when it was last tried.
        waiting: Builds that are live no more and wait to be removed.
        writer: The program that is writing; "" for none.
    """

    name: str
    documents: int
    groups: tuple[GroupStatus, ...]
    failed: tuple[tuple[str, str], ...]
    waiting: int
    writer: str

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.documents} documents, {len(self.failed)} failed steps"]
        for group in self.groups:
            notes = ["" if group.is_current else "defined otherwise now", "" if group.is_whole else "not whole"]
            told = ", ".join([*group.indexes, *(note for note in notes if note)])
            lines.append(f"  {group.name}: {group.nodes} nodes" + (f" ({told})" if told else ""))
        return "\n".join(lines)


def status_of(builder: Builder) -> DocumentStatus:
    """What a Document holds; nothing is loaded or built for it."""
    tree = builder.ledger.tree
    groups = []
    for name in sorted(tree.groups):
        group = tree.groups[name]
        groups.append(
            GroupStatus(
                name,
                builder.definitions.is_current(group),
                group.whole,
                sum(not build.is_empty for build in group.builds.values()),
                sum(build.size for build in group.builds.values()),
                tuple(sorted(space.name for space in group.spaces.values() if space.whole)),
            )
        )
    failed = tuple((identity, stage) for identity, stage, _, _ in builder.ledger.documents.failures())
    return DocumentStatus(
        builder.name,
        len(tree.documents),
        tuple(groups),
        failed,
        len(builder.ledger.builds.dead(float("inf"))),
        builder.ledger.writer(),
    )


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
        stored = _format_dimension(lengths.most_common(1)[0][0])
        msg = f"the vectors {stored}, and by the ledger they {_format_dimension(space.dimension)}"
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


def _format_dimension(dimension: int) -> str:
    return "are sparse" if dimension == SPARSE else f"have {dimension} numbers"


_PATIENCE_S = 10.0


def verified(builder: Builder) -> Findings:
    """Look at all of a Document at one moment: while nobody writes, or, where it may only read, until nobody did.

    Raises:
        StoreBusyError: If another program writes all the time.
    """
    if not builder.ledger.file.read_only:
        with builder.writing():
            return look(builder)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        before = builder.ledger.file.changed()
        try:
            findings: Findings | None = look(builder)
        except LookupError:  # what was listed a moment ago is no more
            findings = None
        if findings is not None and (not findings.problems or before == builder.ledger.file.changed()):
            return findings
        if time.monotonic() > deadline:
            msg = f"{builder.where} is being changed while it is looked at. Call verify() when nobody writes."
            raise StoreBusyError(msg, store=str(builder.ledger.file.path))


def look(builder: Builder) -> Findings:
    """Look at all that is live, and at all that the stores hold; nobody writes meanwhile."""
    tree = builder.ledger.tree
    findings = Findings()
    told = builder.ledger.file.damage()
    if told:
        findings.add("damaged", "the store file", "", told)
    for group in tree.groups.values():
        try:
            _Look(builder, tree, group, findings).at_nodes()
            for space in group.spaces.values():
                look_at = look_at_vectors if space.kind == "vectors" else look_at_terms
                look_at(builder, tree, group, space, findings)
        except StoreError as exc:  # a page of the file, or a server that does not answer: the rest may be read
            findings.add("damaged", group.name, "", str(exc))
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
        """Compare the live builds of the group, and then all that its collection holds."""
        held = self._held()
        rows = {row.number: row for row in self._builder.ledger.builds.live_in(self._group.id)}
        for build in self._tree.builds(self._group):
            try:
                self._at_build(build, rows[build.number], held.pop(build.number, set()))
            except StoreError as exc:  # the ledger contradicts itself
                self._wrong("dangling", build, str(exc))
        self._at_missing()
        known = set(self._builder.ledger.builds.known(self._group.id))
        self._report_orphans([key for number, keys in held.items() if number not in known for key in keys])

    def _held(self) -> defaultdict[int, set[str]]:
        """The keys of all rows of the collection, by build."""
        store, collection = self._builder.nodes.segments, self._group.collection
        held: defaultdict[int, set[str]] = defaultdict(set)
        try:
            for page in pages(functools.partial(store.scan, collection)):
                for one in page:
                    held[key_build(one.key)].add(one.key)
        except StoreError as exc:
            self._findings.add("damaged", self._group.name, "", str(exc))
        return held

    def _at_build(self, build: Build, row: BuildRow, held: set[str]) -> None:
        if self._group.parent is not None and build.parent is None:
            return self._wrong("dangling", build, "what it was made of is not live")
        self._report_orphans(sorted(held - set(build.keys)))
        missing = len(set(build.keys) - held)
        if missing:
            return self._wrong("missing", build, f"{missing} of {len(build.keys)} nodes")
        nodes = self._builder.nodes.of_build(self._group.collection, build)
        parents = set(build.parent.uids) if build.parent is not None else {None}
        astray = [one.uid for one in nodes if one.parent not in parents or one.document_id != build.document]
        if astray:
            return self._wrong("dangling", build, f"node {astray[0]} hangs on nothing that is live")
        if row.output != output_digest(nodes):
            return self._wrong("damaged", build, "its nodes are not those that were written")
        if row.input.partition("/")[0] not in self._inputs(build, nodes):
            return self._wrong("stale", build, "it was not made of what stands above it now")
        return None

    def _at_missing(self) -> None:
        """Documents that the group has nothing of, though nothing failed."""
        if not self._group.whole:
            return
        parent = self._tree.groups.get(self._group.parent or "")
        failed = {identity for identity, *_ in self._builder.ledger.documents.failures()}
        rows = self._builder.ledger.documents.all()
        for uid, document in self._tree.documents.items():
            is_due = parent is None or uid in parent.builds
            if is_due and uid not in self._group.builds and document.identity not in failed:
                lost = parent is None and rows[document.identity].origin != "dataset"
                what = "all of it; it has no source to be made of again, so add it once more" if lost else "all of it"
                self._findings.add("missing", self._group.name, document.identity, what)

    def _inputs(self, build: Build, nodes: Sequence[Segment]) -> set[str]:
        """What the build's input must be, whether its transform saw nodes or content only."""
        if build.parent is None:
            return {root_digest(nodes[0])} if nodes else set()
        line: list[list[Segment]] = []
        above: Build | None = build.parent
        try:
            while above is not None:
                line.append(self._builder.nodes.of_build(self._tree.groups[above.group].collection, above))
                above = above.parent
        except StoreError:
            return set()  # reported where it is missing
        return {input_digest(line, sees_nodes=sees) for sees in (False, True)}

    def _report_orphans(self, keys: Sequence[str]) -> None:
        if keys:
            self._findings.segment_orphans.setdefault(self._group.collection, []).extend(keys)
            self._findings.add("orphan", self._group.name, "", f"{len(keys)} nodes, the first is {keys[0]}")

    def _wrong(self, kind: ProblemKind, build: Build, what: str) -> None:
        self._findings.builds.add(build.number)
        self._findings.add(kind, self._group.name, self._names.get(build.document, build.document), what)


_ROUNDS = 3  # what was missing may have hidden that something else is stale


def repair(builder: Builder) -> tuple[Problem, ...]:
    """Mend what can be mended; done again, it finds nothing to do.

    Groups and indexes are made anew from what they were made of, root nodes from their files. What is left is what has
    no source any more: a text that was added as such, a file that is gone or fails.

    Args:
        builder: Of the Document; nobody else writes.

    Returns:
        What is still wrong.
    """
    with builder.writing():
        builder.open_root()
        for _ in range(_ROUNDS):
            findings = look(builder)
            if not findings.problems:
                break
            _discard(builder, findings)
            if _lost_roots(builder):
                synchronise(builder)
            else:
                bring_lacking(builder)
            builder.purge()
        builder.ledger.file.collect_array_files(older_than_s=builder.options.grace_s)
        return tuple(look(builder).problems)


def _discard(builder: Builder, findings: Findings) -> None:
    """Let go of all that is not what it should be."""
    nodes, ledger = builder.nodes, builder.ledger
    for group in ledger.tree.groups.values():
        nodes.segments.create(group.collection, nodes.schema)  # where it is gone as a whole
    if findings.segment_orphans or findings.vector_orphans or findings.spaces:
        ledger.announce_removal()
    for collection, keys in findings.segment_orphans.items():
        nodes.segments.delete(collection, keys=keys)
    for collection, keys in findings.vector_orphans.items():
        nodes.vectors.delete(collection, keys=keys)
    for space, collection in findings.spaces.items():
        nodes.vectors.drop(collection)
        ledger.groups.empty_space(space)
    if findings.parts:
        ledger.groups.discard_parts(findings.parts)
    if findings.uncovered:
        ledger.builds.uncover(findings.uncovered)
    if findings.builds:
        ledger.builds.discard(findings.builds)


def _lost_roots(builder: Builder) -> Sequence[str]:
    """Documents whose root node had to go: their files have to be read again."""
    root = builder.ledger.tree.groups[LAZY_ROOT_NAME]
    lost = [uid for uid in builder.ledger.tree.documents if uid not in root.builds]
    if lost:
        builder.ledger.documents.forget_files(lost)
    return lost
