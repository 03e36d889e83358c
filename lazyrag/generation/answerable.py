"""Whether a library answers a question at all: a probability, from the texts that were found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lazyrag.text.analyzers import chinese_terms, query_terms

WEAK_BELOW = 0.15
"""The probability below which an answer is weak, unless you pass ``abstain_at``."""

# fitted on the even questions of XQuAD (en, zh), CMRC 2018 and the documentation trees, each with
# and without the document that answers it; see benchmarks/abstain.py
_TEXTS = 6
_BEST = 6.5
_LEAD = 6.2
_BIAS = -4.7
_OTHER_TERM = 0.3
"""Weight of a term that is no word, such as a pair of Chinese characters of two words."""


def answerable(query: str, texts: Sequence[str]) -> float:
    """Estimate the probability that a library answers a question.

    It compares words, so that a question in other words than the text's gets a low one. The best
    text of a library without the answer has fewer of the question's terms, and no lead over the
    other texts.

    Args:
        query: The question.
        texts: What was found for it, best first; six are read.

    Returns:
        From 0 to 1, for as many questions with an answer as without one.

    Example:
        >>> texts = ["Green tea wants water of 80 degrees.", "Coffee is hot.", "Tea is old."]
        >>> answerable("What water does green tea want?", texts) > 0.9
        True
        >>> answerable("Who repairs the roof of the barn?", texts) < 0.1
        True
    """
    words = query_terms(query)
    weights = {term: 1.0 if term in words else _OTHER_TERM for term in chinese_terms(query)}
    total = math.fsum(weights.values())
    if not total or not texts:
        return 0.0
    shares = sorted(
        math.fsum(weights[term] for term in weights.keys() & chinese_terms(text)) / total
        for text in texts[:_TEXTS]
    )
    best = shares.pop()
    others = math.fsum(shares) / len(shares) if shares else best / 2
    return 1 / (1 + math.exp(-(_BEST * best + _LEAD * (best - others) + _BIAS)))


def is_weak(query: str, texts: Sequence[str], below: float = WEAK_BELOW) -> bool:
    """Whether a library does not seem to answer a question: the probability is below a limit."""
    return answerable(query, texts) < below
