"""Removing from the stores what is live no more."""

from __future__ import annotations

import itertools

from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.nodes import NodeStore

_BUILDS_AT_ONCE = 2_000  # bounds the memory of their keys


def purge(ledger: Ledger, nodes: NodeStore, before: float) -> int:
    """Remove builds that are dead, and groups and spaces that were dropped, since before a time.

    It may end at any instant: what is left is removed the next time. Readers are told before, so that one who still
    reads what goes does it again.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        before: Seconds since 1970.

    Returns:
        How many builds went one by one.
    """
    builds = ledger.builds.dead(before)
    groups = ledger.groups.dropped_groups(before)
    spaces = ledger.groups.dropped_spaces(before)
    if not (builds or groups or spaces):
        ledger.documents.forget_deleted()  # whose builds went just before a program ended
        return 0
    ledger.announce_removal()
    for space, collection in spaces:
        if collection:
            nodes.vectors.drop(collection)
        ledger.groups.forget_space(space)
    for group, collection in groups:
        for vectors in ledger.groups.vector_collections(group):
            nodes.vectors.drop(vectors)
        nodes.segments.drop(collection)
        ledger.groups.forget_group(group)
    # A build's keys follow from those above it, so that all go from the stores before any goes from the ledger.
    for (group, collection), of_group in itertools.groupby(builds, key=lambda one: one[1:]):
        numbers = [number for number, _, _ in of_group]
        for start in range(0, len(numbers), _BUILDS_AT_ONCE):
            some = ledger.builds.with_parents(numbers[start : start + _BUILDS_AT_ONCE])
            keys = [key for build in some.values() for key in build.keys]
            for vectors in ledger.groups.vector_collections(group):
                nodes.vectors.delete(vectors, keys=keys)
            nodes.segments.delete(collection, keys=keys)
    ledger.builds.forget(number for number, _, _ in builds)
    ledger.documents.forget_deleted()
    return len(builds)
