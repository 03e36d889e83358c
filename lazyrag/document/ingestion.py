"""Bringing documents to their next version: roots, groups, indexes, and one transaction that makes them live.

What is made is written beside what is live, and noted in the ledger before; after a crash it is found there and used
again, or purged. Only the last step, the flip, changes what anybody sees.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.document.indexing import Indexing
from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.ledger.rows import BuildRow, DocumentRow, Flip, NewPart
from lazyrag.document.ledger.tree import Build
from lazyrag.document.nodes import NodeStore
from lazyrag.document.pool import ordered
from lazyrag.document.reuse import EarlierNodes
from lazyrag.document.segments import child_segments, input_digest, output_digest, rebound_segments, root_digest
from lazyrag.document.step import LOADING, Step
from lazyrag.document.term_spaces import TermSpaces
from lazyrag.document.work import NOT_THE_FILES_FAULT, Batch, GroupTarget, Root, Targets, Work, WorkSource
from lazyrag.errors import ConfigError, LazyRAGError, StoreBusyError, StoreError, TransformError
from lazyrag.transforms.base import run_transforms

_WRITTEN_EVERY_S = 5.0  # so that a crash costs no more than that of what slow transforms made


class Ingestion:
    """Brings documents to targets, a batch at a time. Who uses it holds the ledger's lease.

    Args:
        ledger: The ledger.
        nodes: The stores.
        terms: The lexical indexes.
        tree: What stands for the Document's tree, for the nodes that transforms see.
        workers: How many threads call loaders and transforms; 1: none.
        keep_versions: How many versions of a document before the live one are kept.
    """

    def __init__(
        self, ledger: Ledger, nodes: NodeStore, terms: TermSpaces, tree: object, *, workers: int, keep_versions: int
    ) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._terms = terms
        self._tree = tree
        self._workers = workers
        self._keep_versions = keep_versions
        self._indexing = Indexing(ledger, nodes, self._fetch_all)

    def bring(self, batch: Batch) -> None:
        """Bring documents to their targets and make them live, in one transaction.

        A document whose step fails is reported and left out of that step. One that was live before stays as it was, if
        it would lose something by that.
        """
        works, targets = batch.works, batch.targets
        try:
            self._make_roots(batch)
            for group in targets.groups:
                self._transform(group, batch)
            for vectors in targets.vectors:
                self._indexing.embed(vectors, batch)
            for terms in targets.terms:
                self._indexing.analyse(terms, batch)
        except BaseException:
            # An interrupt, or a store that fails: what is complete need not be done again.
            with suppress(StoreError):
                self._flip([work for work in works if _is_complete(work, targets)], targets)
            raise
        self._flip(works, targets)

    def _make_roots(self, batch: Batch) -> None:
        loading = [work for work in batch.works if work.make_root is not None]
        if not loading:
            return
        numbers = self._ledger.builds.reserve(len(loading))

        def make(item: tuple[Work, int]) -> Root:
            work, number = item
            return work.new_root(number)

        made: list[tuple[Work, Root]] = []
        try:
            for (work, _), result in ordered(batch.executor, self._workers, make, zip(loading, numbers, strict=True)):
                batch.tick(LOADING)
                if isinstance(result, Exception):
                    batch.fail(LOADING, work, _expected(result))
                else:
                    made.append((work, result))
        finally:
            self._write_roots(made, batch.targets)

    def _write_roots(self, made: Sequence[tuple[Work, Root]], targets: Targets) -> None:
        """Write root nodes, or find those that are written already."""
        registered = self._ledger.documents.register([root.row for _, root in made])
        written = self._known_builds(targets.root, [row.id for row in registered])
        new: list[tuple[Work, BuildRow, list[Segment]]] = []
        for (work, root), row in zip(made, registered, strict=True):
            work.row = row
            told = root_digest(root.segment)
            known = work.before.get(targets.root)
            if known is None or known.input != told:
                known = written.get((row.id, None, told))
            if known is not None:
                unchanged = known == work.before.get(targets.root)
                work.current = dict(work.before) if unchanged else {**work.current, targets.root: known}
                work.segments[targets.root] = [root.segment._replace(build=known.number)]
                continue
            number = root.segment.build
            new.append((work, BuildRow(number, row.id, targets.root, None, number, told, "[1]"), [root.segment]))
        self._write(targets.root_collection, new)

    def _transform(self, target: GroupTarget, batch: Batch) -> None:
        works, targets = batch.works, batch.targets
        ready = [work for work in works if target.id not in work.current and target.parent in work.current]
        if not ready:
            return
        above_it = targets.line(target)
        for group in above_it:
            self._fetch_all(ready, group, targets)
        documents = {row.id for work in ready for row in work.sources}
        written = self._known_builds(target.id, documents)
        numbers = self._ledger.builds.reserve(len(ready))
        new: list[tuple[Work, BuildRow, list[Segment]]] = []
        to_do: list[tuple[Work, int, str, EarlierNodes]] = []
        for work, number in zip(ready, numbers, strict=True):
            above = work.current[target.parent]
            line = [work.segments[group] for group in above_it]
            told = input_digest(line, sees_nodes=target.sees_nodes, path_told=target.path_told)
            known = written.get((work.row.id, above.number, told))
            if known is not None:
                work.current[target.id] = known
                continue
            same = [written.get((row.id, None, told)) for row in work.sources]
            copied = next((one for one in same if one is not None), None)
            if copied is not None:
                row = BuildRow(number, work.row.id, target.id, above.number, above.root, told, copied.counts)
                new.append((work, row, self._copied(copied, work.segments[target.parent], number, target, targets)))
            else:
                to_do.append((work, number, told, self._earlier(written.values(), told, work, target, targets)))

        def transform(item: tuple[Work, int, str, EarlierNodes]) -> tuple[list[int], list[Segment]]:
            work, number, _, earlier = item
            return self._transformed(target, work, number, targets, earlier)

        since = time.monotonic()
        try:
            for (work, number, told, _), result in ordered(batch.executor, self._workers, transform, to_do):
                batch.tick(Step(target.name))
                if isinstance(result, Exception):
                    batch.fail(Step(target.name), work, _expected(result))
                    continue
                counts, segments = result
                above = work.current[target.parent]
                row = BuildRow(number, work.row.id, target.id, above.number, above.root, told, json.dumps(counts))
                new.append((work, row, segments))
                if time.monotonic() - since > _WRITTEN_EVERY_S:
                    self._write(target.collection, new)
                    new, since = [], time.monotonic()
        finally:
            self._write(target.collection, new)

    def _copied(
        self, copied: BuildRow, parents: Sequence[Segment], number: int, target: GroupTarget, targets: Targets
    ) -> list[Segment]:
        """The nodes of a build that was made of equal parents, as nodes of these."""
        before, parents_before = self._with_parents(copied, target, targets)
        counts = json.loads(copied.counts)
        return rebound_segments(before, parents_before, parents, counts, number, self._nodes.schema)

    def _with_parents(
        self, row: BuildRow, target: GroupTarget, targets: Targets
    ) -> tuple[list[Segment], list[Segment]]:
        """The nodes of a build, and those above them."""
        build = self._ledger.builds.with_parents([row.number])[row.number]
        nodes = self._nodes.of_build(target.collection, build)
        return nodes, self._nodes.of_build(targets.collection(target.parent), build.parent) if build.parent else []

    def _earlier(
        self, written: Iterable[BuildRow], told: str, work: Work, target: GroupTarget, targets: Targets
    ) -> EarlierNodes:
        """What is worth being used again of what a document had in a group: where models made it of texts alone.

        What of its path decides, behind the slash of the inputs, has to be the same.
        """
        if target.sees_nodes or not target.asks_models:
            return EarlierNodes()
        documents = {row.id for row in work.sources}
        by_path = told.partition("/")[2]
        rows = [row for row in written if row.document in documents and row.input.partition("/")[2] == by_path]
        if not rows:
            return EarlierNodes()
        newest = max(rows, key=lambda row: row.number)
        return EarlierNodes(*self._with_parents(newest, target, targets), newest.counts)

    def _transformed(
        self, target: GroupTarget, work: Work, number: int, targets: Targets, earlier: EarlierNodes
    ) -> tuple[list[int], list[Segment]]:
        """How many nodes each parent gave, and the nodes."""
        source = WorkSource(self._tree, work, targets, lambda one, group: self._segments(one, group, targets))
        parents = work.segments[target.parent]
        new = [DocNode.from_segment(above, source) for above in parents if above not in earlier]
        drafts_of_new = run_transforms(target.transform, new)
        made: list[Segment] = []
        counts: list[int] = []
        for above in parents:
            try:
                if above in earlier:
                    own = earlier.of(above, number, self._nodes.schema, before=len(made))
                else:
                    drafts = next(drafts_of_new)
                    own = child_segments(above, target.name, number, drafts, self._nodes.schema, before=len(made))
            except (TransformError, ConfigError) as exc:
                uid = getattr(exc, "uid", "") or above.uid  # where several were asked for at once it may be another's
                raise TransformError(str(exc), group=target.name, uid=uid) from (exc.__cause__ or exc)
            made += own
            counts.append(len(own))
        return counts, made

    def _flip(self, works: Sequence[Work], targets: Targets) -> None:
        flips: list[Flip] = []
        looked_at: list[DocumentRow] = []  # whose files were read, and gave what is live already
        going: list[Work] = []
        for work in works:
            if not work.current or (work.has_new_root and _would_lose(work, targets)):
                continue
            root = work.current[targets.root]
            new_version = work.is_new_version = work.has_new_root
            gone = (work.moved_from.id,) if work.moved_from is not None else ()
            if new_version or work.covered or work.current != dict(work.before):
                builds = {group: row.number for group, row in work.current.items()}
                covered = tuple(work.covered)
                number = root.number if new_version else None
                flips.append(Flip(work.row, builds, covered, number, gone, work.version_hash))
            elif work.make_root is not None:
                looked_at.append(work.row)
            going.append(work)
        parts: list[NewPart] = []
        for target in targets.terms:
            terms = [work.terms[target.id] for work in going if target.id in work.terms]
            parts += self._terms.extended(target.group, target.id, terms)
        if flips:
            partial = any(one.root is not None for one in flips)
            self._ledger.flip(
                flips,
                parts,
                keep_versions=self._keep_versions,
                partial_groups=targets.partial_groups if partial else (),
                partial_spaces=targets.partial_spaces if partial else (),
                visible=targets.visible,
            )
            self._ledger.file.arrays.retire(name for part in parts for name in part.retired)
        if looked_at:
            self._ledger.documents.note_files(looked_at)
        for work in going:
            work.flipped = True

    def _write(self, collection: str, new: Sequence[tuple[Work, BuildRow, list[Segment]]]) -> None:
        """Note builds, write their nodes, note that the store has them."""
        if not new:
            return
        new = [(work, row._replace(output=output_digest(segments)), segments) for work, row, segments in new]
        self._ledger.builds.begin([row for _, row, _ in new])
        self._nodes.segments.upsert(collection, [segment for _, _, segments in new for segment in segments])
        self._ledger.builds.acknowledge([row.number for _, row, _ in new])
        for work, row, segments in new:
            work.current[row.node_group] = row
            work.segments[row.node_group] = segments

    def _known_builds(self, group: int, documents: Iterable[int]) -> dict[tuple[int, int | None, str], BuildRow]:
        """Written builds by (document, parent, input), and the newest by (document, None, input)."""
        found: dict[tuple[int, int | None, str], BuildRow] = {}
        for row in self._ledger.builds.written(group, set(documents)):
            found[row.document, row.parent, row.input] = row
            found[row.document, None, row.input] = row
        return found

    def _segments(self, work: Work, group: int, targets: Targets) -> list[Segment]:
        self._fetch_all([work], group, targets)
        return work.segments[group]

    def _fetch_all(self, works: Sequence[Work], group: int, targets: Targets) -> None:
        """Have the nodes of a group at hand for all of some documents."""
        missing = [work for work in works if group not in work.segments]
        if missing:
            rows = [work.current[group] for work in missing]
            found = self._segments_of(rows, targets.collection(group))
            for work, row in zip(missing, rows, strict=True):
                work.segments[group] = found[row.number]

    def _segments_of(self, rows: Sequence[BuildRow], collection: str) -> dict[int, list[Segment]]:
        builds = self._ledger.builds.with_parents([row.number for row in rows])
        own: list[Build] = [builds[row.number] for row in rows]
        nodes = self._nodes.of_builds(collection, own)
        return {build.number: segments for build, segments in zip(own, nodes, strict=True)}


def _is_complete(work: Work, targets: Targets) -> bool:
    """Whether a document has all that it is to be brought to, as far as that did not fail."""
    if targets.root not in work.current:
        return False
    for group in targets.groups:
        failed = Step(group.name) in work.failures
        if group.id not in work.current and group.parent in work.current and not failed:
            return False
    covered = {space for space, _ in work.covered}
    for space in targets.spaces:
        row = work.current.get(space.group)
        is_new = row is not None and row != work.before.get(space.group)
        if is_new and space.id not in covered and space.step not in work.failures:
            return False
    return True


def _would_lose(work: Work, targets: Targets) -> bool:
    """Whether a document's new version lacks something that its live one has, because a step failed."""
    had = {targets.names.get(group) for group in (*work.before, *work.moved_before)}
    return any(step.group in had for step in work.failures)


def _expected(error: Exception) -> LazyRAGError:
    """An error of a file's own; another one is raised.

    Raises:
        Exception: If no other file would do better, or nobody expected it.
    """
    if not isinstance(error, LazyRAGError) or isinstance(error, (*NOT_THE_FILES_FAULT, StoreBusyError)):
        raise error
    return error


def batches(
    works: Iterable[Work], size_of: Callable[[Work], int], most: int, bytes_at_once: int
) -> Iterator[list[Work]]:
    """Works in batches that bound what is in memory at a time.

    Args:
        works: In order.
        size_of: How large a document is, in bytes.
        most: Documents in a batch.
        bytes_at_once: A batch ends with the document that passes it.
    """
    batch: list[Work] = []
    total = 0
    for work in works:
        batch.append(work)
        total += size_of(work)
        if len(batch) >= most or total >= bytes_at_once:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
