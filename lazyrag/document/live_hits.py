"""The live ones among what a store's search finds."""

from __future__ import annotations

from collections.abc import Callable

from lazyrag.data.segment import key_build
from lazyrag.document.ledger.tree import LiveGroup, Tree
from lazyrag.errors import ConfigError, StoreError
from lazyrag.stores.protocol import Store
from lazyrag.typing import Ranking


def live_hits(
    tree: Tree, group: LiveGroup, collection: str, store: Store, topk: int, search: Callable[[int], Ranking]
) -> Ranking:
    """The best live nodes. Where what is not live yet, or no more, is among them, more is fetched.

    Args:
        tree: What is live.
        group: The group that is ranked.
        collection: Where the store has its nodes, or their vectors.
        store: The store, which tells how many rows there are.
        topk: How many are wanted.
        search: The store's best rows, so many.

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
        if len(live) >= topk or len(hits) < depth:
            return live[:topk]
        stored = store.count(collection)
        depth = max(2 * depth, topk + stored - sum(build.size for build in group.builds.values()))
