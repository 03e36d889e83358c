"""The live ones among what a store's search finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lazyrag.data.segment import key_build
from lazyrag.document.ledger.tree import LiveGroup, Tree
from lazyrag.errors import ConfigError, StoreError
from lazyrag.typing import Ranking

# How many times as many rows are looked through next. Where half is live or more, what is missing is soon there; where
# less is, a document was changed, and all of the nearest may be what it was before, or several versions are kept.
_DEEPER = 4
_FAR_DEEPER = 16

Search: TypeAlias = Callable[[int], Ranking]
"""A store's best rows, so many."""


def live_hits(
    tree: Tree, group: LiveGroup, collection: str, topk: int, search: Search, *, instead: Search | None = None
) -> Ranking:
    """The best live nodes. Where what is not live yet, or no more, is among them, more is fetched.

    Args:
        tree: What is live.
        group: The group that is ranked.
        collection: Where the store has its nodes, or their vectors.
        topk: How many are wanted.
        search: The store's search.
        instead: One of the store that reaches all rows, where ``search`` may not: it answers in place of an answer that
            would be short since some of what was reached is not live.

    Raises:
        StoreError: If what is stored is not as the ledger says.
    """
    numbers = tree.live_set(group)
    depth = topk
    while True:
        try:
            hits = search(depth)
        except ConfigError as exc:  # the query is as the ledger says
            msg = f"What is stored of {group.name!r} is not what was written ({exc}). Run verify() and repair()."
            raise StoreError(msg, collection=collection) from exc
        live = [(key, score) for key, score in hits if key_build(key) in numbers]
        if len(live) >= topk or len(live) == len(hits) < depth:
            return live[:topk]
        if len(hits) < depth:
            return live if instead is None else live_hits(tree, group, collection, topk, instead)
        depth *= _DEEPER if 2 * len(live) >= topk else _FAR_DEEPER
