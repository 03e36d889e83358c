"""Comparing the ledger with what the stores and files really hold."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Sequence

from lazyrag.data.segment import Segment, key_build
from lazyrag.document.builder import Builder
from lazyrag.document.findings import Findings, ProblemKind, pages
from lazyrag.document.ledger.rows import BuildRow
from lazyrag.document.ledger.tree import Build, LiveGroup, Tree
from lazyrag.document.segments import input_digest, output_digest, root_digest
from lazyrag.document.verify_spaces import look_at_terms, look_at_vectors
from lazyrag.errors import StoreBusyError, StoreError

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
