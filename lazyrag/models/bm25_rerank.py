"""BM25 as a rerank model: the words that a few candidates share with a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import rank_bm25

from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.models.rerank_prompts import checked_choice
from lazyrag.text.analyzers import term_function
from lazyrag.text.sentences import spoken
from lazyrag.validation import known_arguments

Variant: TypeAlias = Literal["plus", "okapi", "l"]

_VARIANTS: Mapping[str, Any] = {"plus": rank_bm25.BM25Plus, "okapi": rank_bm25.BM25Okapi, "l": rank_bm25.BM25L}


@known_arguments
class Bm25RerankModel:
    """BM25 over the candidates alone, by the library rank-bm25: a `RerankModel` without a model.

    Terms are counted in the candidates, not in the whole collection: a word that all of them have hardly tells them
    apart. Where nothing is in common, all scores are 0.

    Args:
        analyser: Name of the registered analyser that turns text into terms; ``"auto"``: ``"zh"`` for a query with
            Chinese in it, else ``"en"``.
        variant: ``"plus"`` has no negative weights, whatever few documents there are; ``"okapi"`` and ``"l"`` are the
            library's others.

    Raises:
        NotRegisteredError: If there is no such analyser.
        ConfigError: If there is no such variant.

    Source:
        Lv, Zhai: Lower-Bounding Term Frequency Normalization, CIKM 2011, doi:10.1145/2063576.2063584.

    Example:
        >>> Bm25RerankModel()("green teas", ["a cup of coffee", "a cup of green tea"], top_n=1)[0][0]
        1
    """

    def __init__(self, *, analyser: str = "auto", variant: Variant = "plus") -> None:
        self.analyser = analyser
        self.variant: Variant = checked_choice("variant", variant, Variant)
        if analyser != "auto":
            term_function(analyser)

    def __repr__(self) -> str:
        return f"Bm25RerankModel(analyser={self.analyser!r}, variant={self.variant!r})"

    @property
    def identity(self) -> str:
        """Analyser and variant."""
        return f"bm25:{self.analyser}:{self.variant}"

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            min(top_n, n) pairs (index into documents, score), best first, ties by index.

        Raises:
            ConfigError: If the query is blank, or no texts are given.
        """
        checked_query(query)
        found, most = checked_documents(documents, top_n)
        terms_of = term_function(spoken("auto", query) if self.analyser == "auto" else self.analyser)
        asked, told = terms_of(query), [terms_of(document) for document in found]
        if set(asked).isdisjoint(term for terms in told for term in terms):
            return [(place, 0.0) for place in range(most)]
        scores = _VARIANTS[self.variant](told).get_scores(asked)
        return checked_ranking(list(enumerate(map(float, scores))), len(found), repr(self))[:most]
