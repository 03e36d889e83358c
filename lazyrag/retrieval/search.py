"""How a similarity gets at the nodes it ranks: through an index, or one by one."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lazyrag.data.filters import Filter
from lazyrag.document.nodes import VectorWay
from lazyrag.document.reader import Reader
from lazyrag.errors import ConfigError, RetrievalError, TransformError
from lazyrag.indexes.bm25 import BM25, Variant
from lazyrag.retrieval.query_vectors import QueryVectors
from lazyrag.text.terms import term_function
from lazyrag.typing import Embedding, Metric, Ranking


@dataclass(frozen=True, slots=True)
class Question:
    """What a Retriever asks of a search.

    Args:
        query: A text that is not blank.
        group: The node group to rank.
        readers: Of n Documents.
        filters: n bound filters, or None where there is none.
        topk: How many nodes of each Document are wanted, at least 1.
        embed_key: The embed key to search by; None where texts are compared.
        query_vectors: Makes the query's vectors.
    """

    query: str
    group: str
    readers: Sequence[Reader]
    filters: Sequence[Filter | None]
    topk: int
    embed_key: str | None = None
    query_vectors: QueryVectors = field(default_factory=QueryVectors)

    def vectors(self) -> list[Embedding]:
        """The query's vector for each Document; one call for those that share an embedder."""
        if self.embed_key is None:
            return []
        found: dict[int, Embedding] = {}
        embedders = [reader.embedders([self.embed_key])[0] for reader in self.readers]
        for one in embedders:
            if id(one.given) not in found:
                found[id(one.given)] = self.query_vectors.of(one, self.query, self.embed_key)
        return [found[id(one.given)] for one in embedders]


class Search(Protocol):
    """Ranks the nodes of a group."""

    def rank(self, question: Question) -> list[Ranking]:
        """For each Document the pairs (key, score) of its best nodes, best first, ties by key.

        At least the question's topk best ones, as far as there are any.
        """


class TermSearch:
    """BM25 on an index over terms; several Documents are ranked by common statistics.

    Args:
        analyser: Name of the registered analyser.
        k1: See `BM25`.
        b: See `BM25`.
        variant: See `BM25`.

    Raises:
        NotRegisteredError: If there is no such analyser.
        ConfigError: If a parameter of BM25 is out of its range.
    """

    def __init__(self, analyser: str, k1: float = 1.5, b: float = 0.75, variant: Variant = "lucene") -> None:
        self.analyser = analyser
        self._terms_of = term_function(analyser)
        self._model = BM25(k1, b, variant)

    def terms(self, query: str) -> list[str]:
        """The terms that are looked for.

        Raises:
            RetrievalError: If the analyser fails.
        """
        return _terms(self._terms_of, query)

    def rank(self, question: Question) -> list[Ranking]:
        """See `Search.rank`; only nodes that share a term with the query."""
        terms = self.terms(question.query)
        if not terms:
            return [[] for _ in question.readers]
        group, model = question.group, self._model
        together = None
        if len(question.readers) > 1:
            known = [reader.statistics(group, self.analyser, terms, model) for reader in question.readers]
            together = functools.reduce(operator.add, known)
        return [
            reader.rank_terms(group, self.analyser, terms, question.topk, wanted, model, together)
            for reader, wanted in zip(question.readers, question.filters, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class TextSearch:
    """The segment store's own ranking of texts, by the terms of an analyser.

    Args:
        analyser: Name of the registered analyser.
    """

    analyser: str

    def terms(self, query: str) -> list[str]:
        """The terms that are looked for.

        Raises:
            RetrievalError: If the analyser fails.
        """
        return _terms(term_function(self.analyser), query)

    def rank(self, question: Question) -> list[Ranking]:
        """See `Search.rank`.

        Raises:
            ConfigError: If several Documents are asked: their scores do not compare.
            UnsupportedError: If the segment store does not rank by text, or has no terms of the analyser.
        """
        if len(question.readers) > 1:
            msg = (
                f"index='native' was asked for over {len(question.readers)} Documents; a server ranks each by its own "
                "statistics, so that scores do not compare. Ask one Document, or use index='default'."
            )
            raise ConfigError(msg)
        [reader], [wanted] = question.readers, question.filters
        terms = self.terms(question.query)
        return [reader.rank_text(question.group, self.analyser, terms, question.topk, wanted) if terms else []]


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """The vector store's own search.

    Args:
        metric: What the vectors must be ranked by; None for whatever they are.
        way: Exactly; approximately, by the one that may miss some of the nearest, dense vectors only; or natively, as
            the store finds them.
    """

    metric: Metric | None = None
    way: VectorWay = "exact"

    def rank(self, question: Question) -> list[Ranking]:
        """See `Search.rank`; sparse vectors only of nodes that share a dimension with the query.

        Raises:
            ConfigError: If the vectors are ranked by another metric, or those of several Documents by two.
            UnsupportedError: If a vector store has no approximate search.
            MissingDependencyError: If that needs a package which is not installed.
        """
        self._check_metric(question)
        group, embed_key, topk = question.group, str(question.embed_key), question.topk
        return [
            reader.rank_vectors(group, embed_key, vector, topk, wanted, way=self.way)
            for reader, vector, wanted in zip(question.readers, question.vectors(), question.filters, strict=True)
        ]

    def _check_metric(self, question: Question) -> None:
        embed_key = str(question.embed_key)
        known = [reader.metric(question.group, embed_key) for reader in question.readers]
        found = sorted({metric for metric in known if metric is not None})
        if len(found) > 1:
            msg = (
                f"Under the embed key {embed_key!r} the vectors of one Document are dense and those of another are "
                "sparse. Their scores do not compare. Ask each by a Retriever of its own."
            )
            raise ConfigError(msg)
        if self.way == "approximate" and "ip" in found:
            msg = (
                f"index='ann' searches dense vectors, and those under the embed key {embed_key!r} are sparse. "
                "Use index='default', which is fast for them at any size."
            )
            raise ConfigError(msg)
        if self.metric is not None and found not in ([], [self.metric]):
            kind, told = ("sparse", "inner product") if found == ["ip"] else ("dense", "cosine")
            msg = (
                f"similarity={self.metric!r} was asked for, and the vectors under the embed key {embed_key!r} are "
                f"{kind}: they are ranked by {told}. Leave similarity out, give similarity={found[0]!r}, or choose "
                "other keys with embed_keys=[...]."
            )
            raise ConfigError(msg)


def _terms(terms_of: Callable[[str], list[str]], query: str) -> list[str]:
    try:
        return terms_of(query)
    except TransformError as exc:
        raise RetrievalError(str(exc)) from exc
