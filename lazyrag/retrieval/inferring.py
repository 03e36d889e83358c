"""`FieldRetriever`: prefers the documents that a question names by values of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from lazyrag.data.filters import Condition, Filter
from lazyrag.ranking.fusion import rank_by_sum
from lazyrag.read.field_values import infer_values
from lazyrag.read.snapshot import NodeKey, Snapshot
from lazyrag.retrieval.base import LazyStage, Query, WrappingRetriever
from lazyrag.retrieval.parts import PartsRetriever
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.text.field_values import Inference
from lazyrag.validation import validate_texts


class FieldRetriever(WrappingRetriever):
    """Searches with another retriever, and prefers the documents that the question means.

    Names, years, quarters and days in the question are looked up in the dictionary of
    `Document.field_values`. Nodes of the documents that match get a share of the best score on top
    of their own. Other nodes keep their scores, and no node is left out.

    Args:
        retriever: A `Retriever` or a `HybridRetriever`. Functions and similarities whose smaller
            scores are better rank as before.
        choice: Fields and values that are not to be inferred, ``["-year: 2018"]``, or the only
            ones, ``["name", "year: 2018"]``. All for [].

    Raises:
        ConfigError: If ``choice`` is no list of texts.
    """

    def __init__(self, retriever: NodeRetriever, choice: Sequence[str] = ()) -> None:
        self._choice = validate_texts("infer_filters", choice)
        super().__init__(retriever)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Infer what the question means, and run the retriever with it."""
        [retriever] = self.retrievers
        inference = self.infer(query.text)
        return retriever.run(replace(query, preference=inference), snapshot)

    def infer(self, question: str) -> Inference | None:
        """What a question names of the values of fields; None for nothing."""
        sources: Iterable[Any] = self.sources
        inferences = (infer_values(reader, question, self._choice) for reader in sources)
        return next(filter(None, inferences), None)


def inferred_values(retriever: Any, question: str) -> dict[str, list[str]]:
    """What a retriever, or one in it, infers from a question, by field."""
    values: dict[str, list[str]] = {}
    queries = [question]
    while not isinstance(retriever, FieldRetriever):
        if isinstance(retriever, PartsRetriever):
            queries = retriever.queries(question)
        inner: Sequence[Any] = getattr(retriever, "retrievers", ())
        if len(inner) != 1:
            return values
        [retriever] = inner
    for query in queries:
        inference = retriever.infer(query)
        for name, value in inference.values if inference else ():
            if str(value) not in values.setdefault(name, []):
                values[name].append(str(value))
    return values


def prefer(
    ranked: LazyStage,
    preference: Inference,
    rank_within: Callable[[Filter], LazyStage],
    topk: int,
) -> LazyStage:
    """Rank the nodes of preferred documents together with the best of all.

    Args:
        ranked: The best nodes of all, at least one.
        preference: The documents.
        rank_within: Ranks the nodes that satisfy a filter, by the same scores.
        topk: At most so many nodes.
    """
    source = ranked if ranked.group else ranked.inputs[0]
    best = abs(ranked.hits[0][1])
    stages = {0.0: ranked}
    for level, names in sorted(preference.levels.items(), reverse=True):
        stages[level] = rank_within(Condition("file_name", "in", sorted(names)))
    shares: dict[NodeKey, list[float]] = {}
    for number, (level, stage) in enumerate(stages.items()):
        for key, score in stage.hits:
            parts = shares.setdefault(key, [0.0] * len(stages))
            if not any(parts[1:]):  # else another document of that name matches better
                parts[number] = level * best + (0.0 if parts[0] else score)
    fused = LazyStage(
        "fusion",
        "fields",
        rank_by_sum(shares),
        ranked.snapshot,
        source.group,
        source.embed_key,
        tuple(stages.values()),
        {key: tuple(parts) for key, parts in shares.items()},
        {"inferred": str(preference)},
    )
    return fused.cut(topk)
