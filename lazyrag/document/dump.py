"""The canonical dump: what is live in a Document, as text that is equal wherever the Document is equal."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrag.data.segment import Segment, key_build, key_uid
from lazyrag.document.builder import Builder
from lazyrag.document.ledger.tree import LiveGroup, LiveSpace, Tree
from lazyrag.types import Embedding

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
