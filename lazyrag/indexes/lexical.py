"""Exact BM25 on an inverted index that grows and shrinks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from lazyrag.data.filters import Filter
from lazyrag.indexes.blocks import encoded_keys
from lazyrag.indexes.bm25 import BM25, Statistics
from lazyrag.indexes.parts import LexicalState, TermPart
from lazyrag.indexes.tiers import tidied, without
from lazyrag.typing import Fields, Ranking

_MOST_PARTS = 8


class LexicalIndex:
    """An inverted index that ranks by BM25: exact at every moment, incremental, safe for concurrent readers.

    Rows are added and deleted under their keys. Deleted rows leave the statistics at once. A filter narrows what is
    ranked and changes no statistic.

    Example:
        >>> index = LexicalIndex()
        >>> index.add(["a", "b"], [["green", "tea"], ["black", "tea", "tea"]])
        >>> [key for key, _ in index.search(["green"], 10)]
        ['a']
    """

    def __init__(self) -> None:
        self._state = LexicalState([], [])
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return self._state.live

    @property
    def state(self) -> LexicalState:
        """The index as it is now, which no later change touches."""
        return self._state

    def add(self, keys: Sequence[str], terms: Sequence[Sequence[str]], fields: Sequence[Fields] | None = None) -> None:
        """Add rows; a key that is present is replaced.

        Args:
            keys: n distinct keys.
            terms: The terms of each, in any order, with repetitions.
            fields: What filters read of each; the rows of one file should share one object.

        Raises:
            ConfigError: If keys repeat or the lengths differ.
        """
        part = TermPart.of_rows(keys, terms, fields)
        if len(part):
            with self._writing:
                state = self._state
                alive, _ = without(state.parts, state.alive, part.keys)
                parts, alive = tidied([*state.parts, part], [*alive, None], TermPart.joined, _MOST_PARTS)
                self._state = LexicalState(parts, alive, state)

    def delete(self, keys: Iterable[str]) -> int:
        """Delete rows; unknown keys are passed over. Returns how many went."""
        wanted = list(dict.fromkeys(keys))
        with self._writing:
            state = self._state
            alive, gone = without(state.parts, state.alive, encoded_keys(wanted))
            if gone:
                parts, alive = tidied(state.parts, alive, TermPart.joined, _MOST_PARTS)
                self._state = LexicalState(parts, alive, state)
            return gone

    def statistics(self, terms: Sequence[str], model: BM25 = BM25()) -> Statistics:
        """What this index adds to a query's statistics; see `LexicalState.statistics`."""
        return self._state.statistics(terms, model)

    def search(
        self,
        terms: Sequence[str],
        topk: int,
        *,
        filter: Filter | None = None,  # noqa: A002  the word of the domain
        model: BM25 = BM25(),
        statistics: Statistics | None = None,
    ) -> Ranking:
        """The best rows that share a term with the query; see `LexicalState.search`."""
        return self._state.search(terms, topk, filter=filter, model=model, statistics=statistics)
