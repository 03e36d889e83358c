"""The extractive refiner: the sentences that answer best, as they stand."""

from __future__ import annotations

from collections.abc import Sequence

from lazyrag.errors import GenerationError
from lazyrag.models.bm25_rerank import Bm25RerankModel
from lazyrag.models.protocol import RerankModel
from lazyrag.models.rerank import RerankCallable, as_rerank_model, checked_ranking
from lazyrag.text.sentences import is_boundary, sentence_spans
from lazyrag.text.tokens import TokenCounter, fitting


def scores_of(query: str, texts: Sequence[str], model: RerankModel | RerankCallable | None) -> list[float]:
    """The score of each text for a query, in their order; by the words in common where there is no model.

    Raises:
        GenerationError: If the model has no score for a text.
    """
    asked = Bm25RerankModel() if model is None else as_rerank_model(model)
    scores = dict(checked_ranking(asked(query, list(texts), len(texts)), len(texts), repr(asked))) if texts else {}
    if len(scores) < len(texts):
        msg = f"{asked!r} got {len(texts)} texts and has scores for {len(scores)}; a refiner needs one for each."
        raise GenerationError(msg)
    return [scores[at] for at in range(len(texts))]


def cut(text: str, limit: int, counter: TokenCounter) -> str:
    """The beginning of a text that has at most so many tokens: whole sentences if one fits, else whole characters.

    Example:
        >>> from lazyrag.text.tokens import token_counters
        >>> cut("绿茶好。红茶也好。", 5, token_counters["utf8"])
        '绿茶好。'
    """
    end = fitting(counter).fit_forward(text, 0, limit)
    if end >= len(text):
        return text
    sentences = [last for _, last in sentence_spans(text) if last <= end]
    if not sentences:
        while end > 0 and not is_boundary(text, end):
            end -= 1
    return text[: sentences[-1] if sentences else end].rstrip()


def refine_by_sentences(
    query: str,
    texts: Sequence[str],
    *,
    budget: int,
    counter: TokenCounter,
    model: RerankModel | RerankCallable | None = None,
) -> list[str]:
    """The best sentences of all texts that fit together, in the order they stand in; others may stand between them.

    Sentences that do not fit are passed over. If not even one fits, the best one is cut.

    Args:
        query: What they are to answer.
        texts: n texts.
        budget: Tokens at most.
        counter: Counts them.
        model: Scores sentences; None: BM25 among them.

    Returns:
        One text for each, "" where no sentence is left.
    """
    spans = [(at, span) for at, text in enumerate(texts) for span in sentence_spans(text) if text[slice(*span)].strip()]
    sentences = [texts[at][slice(*span)].strip() for at, span in spans]
    scores = scores_of(query, sentences, model)
    best_first = sorted(range(len(spans)), key=lambda one: (-scores[one], one))
    chosen: list[list[tuple[int, int]]] = [[] for _ in texts]
    tokens = [0] * len(texts)
    for one in best_first:
        at, span = spans[one]
        tried = sorted([*chosen[at], span])
        count = counter.count(_joined(texts[at], tried))
        if sum(tokens) - tokens[at] + count <= budget:
            chosen[at], tokens[at] = tried, count
    if spans and not any(chosen):
        at, _ = spans[best_first[0]]
        return [cut(sentences[best_first[0]], budget, counter) if one == at else "" for one in range(len(texts))]
    return [_joined(text, kept) for text, kept in zip(texts, chosen, strict=True)]


def _joined(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The stretches of a text: neighbours as they stand, the others on lines of their own."""
    runs: list[tuple[int, int]] = []
    for start, end in spans:
        if runs and runs[-1][1] == start:
            runs[-1] = runs[-1][0], end
        else:
            runs.append((start, end))
    return "\n".join(text[start:end].strip() for start, end in runs)
