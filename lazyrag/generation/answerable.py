"""Whether a library answers a question at all: a probability, from the texts that were found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from lazyrag.text.analyzers import chinese_terms, query_terms

WEAK_BELOW = 0.25
"""The probability below which an answer is weak, unless you pass ``abstain_at``."""

# fitted on the even questions of XQuAD (en, zh), CMRC 2018 and the documentation trees: each of its
# library, of that without the document that answers it, and of another library; see
# benchmarks/abstain.py
_TEXTS = 6
_BEST = 10.9
_BIAS = -3.9
_OTHER_TERM = 0.3
"""Weight of a term that is no word, such as a pair of Chinese characters of two words."""
_FILLERS = frozenset(
    "一个 多久 多长 多大 多高 几个 几次 几年 哪年 应该 可以 能够 需要 请问 时候 一般 通常 大约"
    " 大概 可能 怎么办 我 我们"
    " i my me we our can could should would may need get got do doe happen mani much long often"
    " usual mean".split()
)
"""Terms of questions that the answering text often lacks."""


def answerable(query: str, texts: Sequence[str], names: Sequence[str] = ()) -> float:
    """Estimate the probability that a library answers a question.

    It is a logistic function of the share of the question's terms that are in the best text or its
    name. A term counts the more, the fewer of the texts have it, and most if none does. As words
    are compared, a question in other words than the text's gets a low probability.

    Args:
        query: The question.
        texts: What was found for it, best first; six are read.
        names: The file of each text: a question may name the invoice whose total it asks for.

    Returns:
        From 0 to 1, for as many questions with an answer as without one.

    Example:
        >>> texts = ["Green tea wants water of 80 degrees.", "Coffee is hot.", "Tea is old."]
        >>> answerable("What water does green tea want?", texts) > 0.9
        True
        >>> answerable("Who repairs the roof of the barn?", texts) < 0.1
        True
    """
    named = [*zip_longest(names, texts, fillvalue="")]
    terms_of_texts = [frozenset(chinese_terms(" ".join(parts))) for parts in named[:_TEXTS]]
    words = query_terms(query)
    weights = {}
    for term in set(chinese_terms(query)) - _FILLERS:
        frequency = sum(term in terms for terms in terms_of_texts)
        rarity = math.log1p((len(terms_of_texts) + 1) / (frequency + 0.5))
        weights[term] = rarity if term in words else _OTHER_TERM * rarity
    total = math.fsum(weights.values())
    if not total or not terms_of_texts:
        return 0.0
    best = max(
        math.fsum(weights[term] for term in weights.keys() & terms) for terms in terms_of_texts
    )
    return 1 / (1 + math.exp(-(_BEST * best / total + _BIAS)))


def is_weak(query: str, texts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a library does not seem to answer a question: the probability is below a limit."""
    return answerable(query, texts, names) < WEAK_BELOW
