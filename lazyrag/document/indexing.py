"""Bringing documents into the indexes over their groups: vectors, and terms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from lazyrag.data.segment import content_text
from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.nodes import NodeStore
from lazyrag.document.term_spaces import BuildTerms
from lazyrag.document.vectors import embed_documents
from lazyrag.document.work import NOT_THE_FILES_FAULT, Batch, Targets, TermsTarget, VectorsTarget, Work
from lazyrag.errors import LazyRAGError
from lazyrag.models.embedding import collected, length_of
from lazyrag.models.protocol import Embedded
from lazyrag.stores.protocol import VectorRow


class Indexing:
    """Embeds and analyses the nodes of documents.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        fetch: Has the nodes of a group at hand for all of some documents.
    """

    def __init__(self, ledger: Ledger, nodes: NodeStore, fetch: Callable[[Sequence[Work], int, Targets], None]) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._fetch = fetch

    def embed(self, target: VectorsTarget, batch: Batch) -> None:
        """Embed what a collection of vectors does not hold yet."""
        ready = self._ready(target, batch)
        known: dict[str, Embedded] = {}

        def texts() -> Iterator[tuple[Work, Sequence[str]]]:
            for work in ready:
                known.update(self._known_vectors(target, work, batch.targets))
                yield work, [content_text(one.content) for one in work.segments[target.group]]

        rows: list[VectorRow] = []
        done: list[Work] = []
        try:
            for work, results in embed_documents(target.embedder, target.dimension, texts(), known):
                batch.tick(target.step)
                try:
                    vectors = collected(results, target.embedder.name, target.dimension)
                except NOT_THE_FILES_FAULT:
                    raise
                except LazyRAGError as exc:
                    batch.fail(target.step, work, exc)
                    continue
                self._open_vectors(target, length_of(vectors[0]))
                own = zip(work.segments[target.group], vectors, strict=True)
                rows += [VectorRow(one.key, vector, one.fields) for one, vector in own]
                done.append(work)
        finally:
            if rows:
                self._nodes.vectors.upsert(target.collection, rows)
            for work in done:
                work.covered.append((target.id, work.current[target.group].number))

    def _open_vectors(self, target: VectorsTarget, dimension: int) -> None:
        if not target.dimension:
            self._nodes.create_vectors(target.collection, dimension, target.step.embed_key or "")
            self._ledger.groups.set_dimension(target.id, dimension)
            target.dimension = dimension

    def _known_vectors(self, target: VectorsTarget, work: Work, targets: Targets) -> Mapping[str, Embedded]:
        """The vectors of what is live of a document, by text: an unchanged text is not embedded again."""
        name = targets.names[target.group]
        group = self._ledger.tree.groups.get(name)
        space = (
            group.spaces.get(("vectors", str(target.step.embed_key), target.identity)) if group is not None else None
        )
        found: dict[str, Embedded] = {}
        for row in work.sources:
            build = group.builds.get(row.uid) if group is not None else None
            if build is None or group is None or space is None or not space.dimension:
                continue
            if build.number == work.current[target.group].number:
                continue
            texts = {one.key: content_text(one.content) for one in self._nodes.of_build(group.collection, build)}
            stored = self._nodes.vectors.get(space.collection, list(texts))
            found.update((texts[one.key], one.vector) for one in stored)
        return found

    def analyse(self, target: TermsTarget, batch: Batch) -> None:
        """Analyse what a lexical index does not hold yet; the terms stay with the documents until they become live."""
        ready = self._ready(target, batch)
        for work in ready:
            batch.tick(target.step)
            segments = work.segments[target.group]
            try:
                terms = [target.terms_of(content_text(one.content)) for one in segments]
            except LazyRAGError as exc:
                batch.fail(target.step, work, exc)
                continue
            number = work.current[target.group].number
            keys, fields = [one.key for one in segments], [one.fields for one in segments]
            work.terms[target.id] = BuildTerms(number, keys, terms, fields)
            work.covered.append((target.id, number))

    def _ready(self, target: TermsTarget | VectorsTarget, batch: Batch) -> list[Work]:
        """The documents whose build of a target's group has nodes that the target does not hold, these at hand."""
        having = {
            work.current[target.group].number: work
            for work in batch.works
            if target.group in work.current and any(json.loads(work.current[target.group].counts))
        }
        covered = self._ledger.builds.covered(target.id, having)
        ready = [work for number, work in having.items() if number not in covered]
        self._fetch(ready, target.group, batch.targets)
        return ready
