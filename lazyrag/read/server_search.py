"""Rankings that a segment store makes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lazyrag.data.filters import Filter
from lazyrag.data.segment import Segment
from lazyrag.ledger.tree import LiveGroup, View
from lazyrag.read.nodes import Verdicts, live_hits, make_searchable
from lazyrag.stores.protocol import FindsRows, NativeText, RanksInScope, RowScope
from lazyrag.types import Ranking

_MOST_ROWS = 20  # that are read with a ranking; of a deeper one few are shown


def rank_text(
    store: NativeText,
    view: View,
    verdicts: Verdicts,
    group: LiveGroup,
    analyser: str,
    terms: Sequence[str],
    topk: int,
    filter: Filter | None,  # noqa: A002
    rows: dict[str, Segment],
    scope: RowScope | None,
) -> Ranking:
    """The best live nodes of a group by a store's own full-text ranking: one request.

    Args:
        store: The segment store.
        view: The live state; see `make_searchable`.
        verdicts: Tells which builds are live.
        group: The group.
        analyser: Name of the registered analyser whose terms the store indexes.
        terms: Terms of the query.
        topk: Number of hits.
        filter: A bound filter.
        rows: Receives the nodes that the store returned with the ranking, by key.
        scope: The rows that statistics count, where they are not all rows.
    """
    collection = group.collection
    make_searchable(store, view, collection)
    if scope is not None and isinstance(store, RanksInScope):
        key = "size", collection, analyser, scope.filter
        size = view.handles.get(key)
        if size is None:
            size = view.handles[key] = store.measure(collection, analyser, scope)
        return store.search_scope(collection, analyser, terms, topk, scope, size, filter)

    def search(depth: int) -> Ranking:
        if depth > _MOST_ROWS or not isinstance(store, FindsRows):
            return store.search_text(collection, analyser, terms, depth, filter)
        pairs = store.find_rows(collection, analyser, terms, depth, filter)
        rows.update((row.key, row) for row, _ in pairs)
        return [(row.key, score) for row, score in pairs]

    return live_hits(verdicts, group, collection, topk, search)


def fetch_rows(
    get: Callable[[Sequence[str]], list[Segment]],
    keys: Sequence[str],
    rows: Mapping[str, Segment],
) -> list[Segment]:
    """The present nodes of some keys, in their order; only those that ``rows`` lacks are read."""
    missing = [key for key in keys if key not in rows]
    read = get(missing) if missing else []
    by_key = {**rows, **{segment.key: segment for segment in read}}
    return [by_key[key] for key in keys if key in by_key]
