"""Rankings of a snapshot: filter store hits to live builds, and merge rankings of several parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lazyrag.errors import ConfigError, StoreError
from lazyrag.ledger.tree import LiveGroup, Tree
from lazyrag.types import Ranking

NodeKey: TypeAlias = tuple[str, int, str]
"""A node of a snapshot: its uid, the number of its Document in the read, and the stores' key."""

Hits: TypeAlias = list[tuple[NodeKey, float]]
"""Keys with scores, best first."""


def merge_rankings(rankings: Sequence[Hits], topk: int, *, descend: bool = True) -> Hits:
    """Rankings of several parts as one: best first, ties by uid, then by the order of the parts."""
    if len(rankings) == 1:
        return rankings[0][:topk]
    sign = -1.0 if descend else 1.0
    ordered = []
    for position, ranking in enumerate(rankings):
        ordered += [(sign * score, key[0], position, key, score) for key, score in ranking]
    ordered.sort()
    return [(key, score) for *_, key, score in ordered[:topk]]


def keyed(ranking: Ranking, document_index: int) -> Hits:
    """A store's ranking with the keys of a snapshot."""
    # Inline for speed, see `key_uid`.
    return [((key.rpartition("-")[0], document_index, key), score) for key, score in ranking]


# Factors for the next depth. With half of the hits live or more, the missing ones are near; with
# less, a document was changed and its former nodes may be all of the nearest, or several versions
# are stored.
_DEEPER = 4
_FAR_DEEPER = 16

Search: TypeAlias = Callable[[int], Ranking]
"""A store's best rows, so many."""


def live_hits(
    tree: Tree,
    group: LiveGroup,
    collection: str,
    topk: int,
    search: Search,
    *,
    instead: Search | None = None,
) -> Ranking:
    """Filter store hits to live builds, over-fetching as needed.

    Args:
        tree: The live state.
        group: The group that is ranked.
        collection: Of its nodes, or of their vectors.
        topk: Number of hits.
        search: The store's search.
        instead: A search that reaches all rows, for a ``search`` that may not: used if hits that
            are not live leave too few.

    Raises:
        StoreError: If the store contradicts the ledger.
    """
    numbers = tree.owners.get(group.name) or tree.live_owners(group)
    depth = topk
    while True:
        try:
            hits = search(depth)
        except ConfigError as exc:  # the query is as the ledger says
            msg = (
                f"What is stored of {group.name!r} is not what was written ({exc}). Run verify()"
                " and repair()."
            )
            raise StoreError(msg, collection=collection) from exc
        live = [
            (key, score) for key, score in hits if int(key.rpartition("-")[2]) in numbers
        ]  # `key_build`, inline for speed
        if len(live) >= topk or len(live) == len(hits) < depth:
            return live[:topk]
        if len(hits) < depth:
            return live if instead is None else live_hits(tree, group, collection, topk, instead)
        depth *= _DEEPER if 2 * len(live) >= topk else _FAR_DEEPER
