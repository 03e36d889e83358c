"""Removing what is not live any more from the stores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from lazyrag.ledger.ledger import Ledger
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.read.nodes import NodeStore
from lazyrag.stores.sqlite import MapFileSegmentStore

_BUILDS_AT_ONCE = 2_000  # bounds the memory of their keys


class Waste(NamedTuple):
    """Builds, groups and indexes to `purge`, with their collections; the group's row is behind a
    build's number.
    """

    builds: list[tuple[int, int, str]]
    groups: list[tuple[int, str]]
    indexes: list[tuple[int, str]]


def find_waste(ledger: Ledger, before: float) -> Waste:
    """What has been dead or dropped since before a time, in seconds since 1970."""
    with ledger.reading():
        return Waste(
            ledger.builds.dead(before),
            ledger.groups.dropped_groups(before),
            ledger.groups.dropped_indexes(before),
        )


def purge(ledger: Ledger, nodes: NodeStore, waste: Waste) -> None:
    """Remove dead builds, and dropped groups and indexes, from the stores.

    It may be killed at any instant: the rest is removed next time. Readers are notified first, so
    that a read that still uses them is repeated.

    Args:
        ledger: The ledger, whose lease is held.
        nodes: The stores.
        waste: What to remove, as found since the lease is held.
    """
    builds, groups, indexes = waste
    ledger.announce_removal()
    for index, collection in indexes:
        if collection:
            nodes.vectors_to_write.drop(collection)
        ledger.groups.delete_index_row(index)
    for group, collection in groups:
        for vectors in ledger.groups.vector_collections(group):
            nodes.vectors_to_write.drop(vectors)
        nodes.segments.drop(collection)
        ledger.groups.delete_group_row(group)
    # A build's keys follow from those above it, so all are removed from the stores before any from
    # the ledger.
    for (group, collection), of_group in itertools.groupby(builds, key=lambda build: build[1:]):
        numbers = [number for number, _, _ in of_group]
        for start in range(0, len(numbers), _BUILDS_AT_ONCE):
            raise_if_canceled()
            _delete_builds(
                ledger, nodes, group, collection, numbers[start : start + _BUILDS_AT_ONCE]
            )
    ledger.state()  # which need not be read anew as a whole, now that it knows what is gone
    ledger.builds.delete_build_rows(number for number, _, _ in builds)
    if groups:
        ledger.documents.delete_document_rows()


def _delete_builds(
    ledger: Ledger, nodes: NodeStore, group: int, collection: str, builds: Sequence[int]
) -> None:
    """Delete the nodes and vectors of some builds; their keys are computed only for a store that
    needs them.
    """
    vectors = ledger.groups.vector_collections(group)
    by_build = isinstance(nodes.segments, MapFileSegmentStore)
    keys: list[str] = []
    if vectors or not by_build:
        for build in ledger.builds.with_parents(builds).values():
            keys += build.keys
    for collection_of_vectors in vectors:
        nodes.vectors_to_write.delete(collection_of_vectors, keys=keys)
    if isinstance(nodes.segments, MapFileSegmentStore):
        nodes.segments.delete_builds(collection, builds)
    else:
        nodes.segments.delete(collection, keys=keys)
