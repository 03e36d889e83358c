"""How sure an answer is, in [0, 1]: by the model's own probabilities, or by how far its candidates agree."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from lazyrag.generation.marker_scanner import without_markers
from lazyrag.text.sentences import CJK_LETTERS

_ABOVE_ZERO = 0.01
"""Rounding brings logarithms of sure tokens to just above 0. A larger one is of no probability."""
_NIL = -1000.0
"""A mean of logarithms from here on downwards is of a probability that floats tell as 0 (exp(-746) is)."""

# A word of any script is one token; of Chinese, Japanese and Korean each character is. The analysers of the indexes do
# not serve here: they leave out "not" and "no", and stem, so that answers that contradict each other would agree.
_LETTER = rf"[^\W_{CJK_LETTERS}]"
_TOKEN = re.compile(rf"[{CJK_LETTERS}]|{_LETTER}+(?:['’]{_LETTER}+|(?<=\d)[.,](?=\d){_LETTER}+)*")


def likelihood(logprobs: Sequence[float]) -> float | None:
    """How likely a model holds its answer to be: the geometric mean of its tokens' probabilities.

    exp(mean of log p(token)), the likelihood normalised by length, so that long answers do not count as unsure for
    being long.

    Args:
        logprobs: Natural logarithms of the tokens' probabilities, each at most 0; minus infinity is a 0.

    Returns:
        In [0, 1]; None where there is no token, or a value is no logarithm of a probability.

    Source:
        Malinin, Gales: Uncertainty Estimation in Autoregressive Structured Prediction, ICLR 2021, arXiv:2002.07650.

    Example:
        >>> likelihood([0.0, 0.0]), round(likelihood([-0.1, -0.3]), 3), likelihood([])
        (1.0, 0.819, None)
    """
    if not logprobs or any(math.isnan(one) or one > _ABOVE_ZERO for one in logprobs):
        return None
    # What a server may send, minus infinity and the largest of floats too, sums within their range: one token that
    # brings the mean to `_NIL` by itself has said all.
    lowest = _NIL * len(logprobs)
    return math.exp(math.fsum(min(max(one, lowest), 0.0) for one in logprobs) / len(logprobs))


def agreement(candidates: Sequence[str]) -> list[float]:
    """How far each candidate agrees with the others: the mean of `overlap` with each of them.

    Args:
        candidates: At least two texts.

    Returns:
        For each of them a number in [0, 1]; the order of the others does not matter.

    Source:
        Agreement of samples as a sign of being right: Wang et al.: Self-Consistency Improves Chain of Thought
        Reasoning in Language Models, ICLR 2023, arXiv:2203.11171.

    Example:
        >>> [round(one, 2) for one in agreement(["80 degrees [1].", "80 degrees [2]", "boiling"])]
        [0.5, 0.5, 0.0]
    """
    counts = [_counts(text) for text in candidates]
    return [
        math.fsum(_f1(one, other) for j, other in enumerate(counts) if j != i) / (len(counts) - 1)
        for i, one in enumerate(counts)
    ]


def overlap(first: str, second: str) -> float:
    """Token F1 of two answers, in [0, 1].

    Tokens are words, and single characters of Chinese, Japanese and Korean, in one case; punctuation and markers of
    citations do not count. 1 means the same tokens, in any order; two answers without a token agree.

    Source:
        Rajpurkar et al.: SQuAD, EMNLP 2016, doi:10.18653/v1/D16-1264; by characters in Chinese: Cui et al.: A
        Span-Extraction Dataset for Chinese Machine Reading Comprehension, EMNLP 2019, doi:10.18653/v1/D19-1600.

    Example:
        >>> overlap("水温是80度[1]。", "水温是80度【2】"), round(overlap("可以", "不可以"), 2)
        (1.0, 0.8)
    """
    return _f1(_counts(first), _counts(second))


def _counts(text: str) -> Counter[str]:
    return Counter(_TOKEN.findall(unicodedata.normalize("NFKC", without_markers(text)).casefold()))


def _f1(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0
