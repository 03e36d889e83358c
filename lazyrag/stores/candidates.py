"""An exact ranking from a backend's own search: its nearest rows are candidates, scored again by our kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lazyrag.data.filters import Filter, matches
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.vector_kinds import part_of_rows, searched, state_of
from lazyrag.types import Embedding, Ranking

_SPARE = 16  # rows beyond those asked for, so that a boundary without ties is seen at the first look
_WIDER = 4  # times as many candidates where those before did not settle it
_ROUNDING = 2.0**-24  # of one float32 operation
_OPERATIONS = 64.0  # by which two float32 products of some hundred numbers differ at most, as it turns out


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row as a backend ranked it.

    Args:
        row: The row, with the vector that is stored and all its fields.
        worth: What the backend ranked it by, higher being nearer: the cosine, the inner product, or for L2 the negative
            square of the distance.
    """

    row: VectorRow
    worth: float


Fetch: TypeAlias = Callable[[int], Sequence[Candidate]]
"""The n nearest rows as a backend ranks them, best first: fewer only where there are no more."""


def exact_ranking(
    query: Embedding,
    topk: int,
    schema: VectorSchema,
    fetch: Fetch,
    *,
    rest: Filter | None = None,
    rounding: float = 0.0,
) -> Ranking:
    """The ranking that the ``map`` store gives, if the backend's is right but for rounding and the order of ties.

    Candidates are fetched until the worth of the last one is below that of the topk-th by more than both can be off;
    then they are scored in float64 from the stored vectors, and ordered by score and key.

    Args:
        query: (dimension,) finite, or a dict where the collection is sparse; checked.
        topk: At least 1.
        schema: Of the collection.
        fetch: The backend's search.
        rest: The part of a bound filter that the backend has not looked at.
        rounding: By how much a worth may be off beside the errors of float32 products: where a backend tells one minus
            the product, what that difference loses.

    Returns:
        See `VectorStore.search`.
    """
    depth = topk + _SPARE
    while True:
        found = fetch(depth)
        kept = [one for one in found if rest is None or matches(rest, one.row.fields)]
        if len(found) < depth or _is_settled(query, topk, schema, found, kept, rounding):
            return ranking_of(query, topk, schema, [one.row for one in kept])
        depth *= _WIDER


def ranking_of(query: Embedding, topk: int, schema: VectorSchema, rows: Sequence[VectorRow]) -> Ranking:
    """The best of some rows by our own kernel; see `VectorStore.search`."""
    if not rows:
        return []
    state = state_of([part_of_rows(rows, schema.dimension)], [None], schema.dimension, schema.metric)
    [ranking] = searched(state, [query] if isinstance(query, dict) else query[None], topk, None)
    return ranking


def _is_settled(
    query: Embedding,
    topk: int,
    schema: VectorSchema,
    found: Sequence[Candidate],
    kept: Sequence[Candidate],
    rounding: float,
) -> bool:
    """Whether no row behind the last candidate can be among the topk best of those that are kept."""
    if len(kept) < topk:
        return False
    largest = max(_length(one.row.vector) for one in found)
    length = _length(query)
    scale = {"cosine": 1.0, "ip": length * largest, "l2": (length + largest) ** 2}[schema.metric]
    return kept[topk - 1].worth - found[-1].worth > 2.0 * (_OPERATIONS * _ROUNDING * scale + rounding)


def _length(vector: Embedding) -> float:
    numbers = np.fromiter(vector.values(), np.float64) if isinstance(vector, dict) else vector.astype(np.float64)
    return float(np.linalg.norm(numbers))
