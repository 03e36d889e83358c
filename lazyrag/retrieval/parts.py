"""`PartsRetriever`: searches each part of a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lazyrag.data.node import DocNode
from lazyrag.ranking.fusion import rank_by_sum
from lazyrag.read.snapshot import Hits, NodeKey, Snapshot
from lazyrag.retrieval.base import (
    DEFAULT_TOPK,
    LazyStage,
    LoadedStage,
    Query,
    WrappingRetriever,
    load_from,
)
from lazyrag.retrieval.stages import NodeRetriever
from lazyrag.text.question_parts import split_question


class PartsRetriever(WrappingRetriever):
    """Searches for a question and for each of its parts, and takes hits from all in turn.

    The first hit is that of the complete question. A question without parts is searched as by the
    retriever alone; see `lazyrag.text.question_parts.split_question`.

    Args:
        retriever: A `Retriever`, `HybridRetriever` or `FieldRetriever`. One whose smaller scores
            are better searches all questions as they are.
        split: From a question to its parts: rules, or ``QueryRewriter(model, "split")``.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> texts = {"a": "Black coffee.", "b": "Black coffee!", "c": "Tea from the hills."}
        >>> _ = docs.add_texts(texts)
        >>> retriever = Retriever(docs, "FineChunk", "bm25", topk=2)
        >>> [node.path for node in retriever("black coffee versus tea")]
        ['a', 'b']
        >>> [node.path for node in PartsRetriever(retriever)("black coffee versus tea")]
        ['a', 'c']
    """

    def __init__(
        self,
        retriever: NodeRetriever,
        split: Callable[[str], Sequence[str]] = split_question,
    ) -> None:
        super().__init__(retriever)
        self._split = split

    def queries(self, question: str) -> list[str]:
        """The question, and its parts if it has several."""
        parts = self._split(question) if self.higher_is_better else []
        return [question, *parts] if len(parts) > 1 else [question]

    def prepare(self, query: Query) -> None:
        """Prepare the retriever for each query."""
        for text in self._queries(query):
            self.retrievers[0].prepare(replace(query, text=text))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retriever for each query."""
        [retriever] = self.retrievers
        texts = self._queries(query)
        if len(texts) == 1:
            return retriever.run(query, snapshot)
        limit = query.topk or self.own_topk or DEFAULT_TOPK
        inputs = []
        for number, text in enumerate(texts):
            ranked = retriever.run(replace(query, text=text, topk=limit), snapshot)
            name = f"part {number}" if number else "question"
            inputs.append(ranked.then("step", name, settings={"query": text}))
            if isinstance(inputs[-1], LoadedStage):
                inputs[-1].set_hits()
        shares = _take_in_turn([stage.hits for stage in inputs])
        merged = _MergedStage("queries", "parts", rank_by_sum(shares), snapshot)
        merged.inputs = tuple(inputs)
        merged.contributions = shares
        merged.settings = {"parts": texts[1:]}
        return merged.cut(limit)

    def _queries(self, query: Query) -> list[str]:
        """The queries, split once a call."""
        key = id(self), query.text
        if key not in query.memo:
            query.memo[key] = self.queries(query.text)
        return list(query.memo[key])


class _MergedStage(LazyStage):
    """Hits of several stages; each is loaded by the first that has it."""

    __slots__ = ()

    def load(self, hits: Hits) -> list[DocNode]:
        """See `LazyStage.load`."""
        return load_from(self.inputs, hits)


def _take_in_turn(rankings: Sequence[Hits]) -> dict[NodeKey, tuple[float, ...]]:
    """For each hit 1 / its turn, from the ranking whose turn comes first."""
    turns: dict[NodeKey, tuple[int, int]] = {}
    for number, ranking in enumerate(rankings):
        for rank, (key, _) in enumerate(ranking):
            turn = rank * len(rankings) + number + 1, number
            turns[key] = min(turn, turns.get(key, turn))
    numbers = range(len(rankings))
    return {
        key: tuple(1 / turn if at == number else 0.0 for at in numbers)
        for key, (turn, number) in turns.items()
    }
