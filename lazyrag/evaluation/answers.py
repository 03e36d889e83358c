"""Measures of generated answers against references, in English and Chinese.

Texts are compared by tokens: case-folded words, and single characters of Chinese, Japanese and
Korean. Punctuation, citation markers (``[1]``) and English articles do not count. Unlike the terms
of an index, tokens are not stemmed and include "not". A measure without references, or without
texts to count, is None (unknown), not 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from lazyrag.errors import EvaluationError
from lazyrag.generation.generator import words
from lazyrag.text.tokens import TokenCounter, token_counters
from lazyrag.validation import is_list_of, require

_ARTICLES = frozenset({"a", "an", "the"})


def answer_tokens(text: str) -> list[str]:
    """Split a text into the tokens that answers are compared by.

    Source:
        Rajpurkar et al.: SQuAD, EMNLP 2016, doi:10.18653/v1/D16-1264; by characters in Chinese: Cui
        et al.: CMRC 2018, EMNLP 2019, doi:10.18653/v1/D19-1600.

    Example:
        >>> answer_tokens("The water, 80 degrees [1]."), answer_tokens("不是水。")
        (['water', '80', 'degrees'], ['不', '是', '水'])
    """
    return [token for token in words(text) if token not in _ARTICLES]


def exact_match(answer: str, references: Sequence[str]) -> float | None:
    """1.0 if an answer has the same tokens in the same order as a reference, else 0.0; None without
    references.

    Example:
        >>> exact_match("The tea.", ["Tea"]), exact_match("Green tea", ["tea"])
        (1.0, 0.0)
    """
    return _best(answer, references, lambda tokens, gold: float(tokens == gold))


def token_f1(answer: str, references: Sequence[str]) -> float | None:
    """Harmonic mean of precision and recall over tokens with repetitions, the best over the
    references.

    Example:
        >>> token_f1("green tea", ["tea"]), token_f1("深度学习", ["深度学习"])
        (0.6666666666666666, 1.0)
    """
    return _best(
        answer,
        references,
        lambda tokens, gold: 2 * _shared(tokens, gold) / (len(tokens) + len(gold)),
    )


def answer_accuracy(answer: str, references: Sequence[str]) -> float | None:
    """1.0 if the answer contains a reference's tokens in sequence, else 0.0.

    Example:
        >>> answer_accuracy("The capital of Germany is Berlin.", ["The capital of France is Paris"])
        0.0
        >>> answer_accuracy("答案是深度学习。", ["深度学习"])
        1.0
    """
    return _best(answer, references, _holds)


def overlap_accuracy(
    answer: str, references: Sequence[str], *, threshold: float = 0.3
) -> float | None:
    """1.0 if the answer has at least a share of a reference's distinct tokens, else 0.0.

    This is the accuracy of the reference operators, with tokens that work for Chinese too. At 0.3
    many wrong answers pass; `answer_accuracy` is stricter.

    Raises:
        EvaluationError: If the threshold is not above 0 and at most 1.

    Example:
        >>> references = ["The capital of France is Paris"]
        >>> overlap_accuracy("The capital of Germany is Berlin.", references)
        1.0
    """
    validate_threshold(threshold)
    return _best(
        answer, references, lambda tokens, gold: float(_share({*tokens}, {*gold}) >= threshold)
    )


def validate_threshold(threshold: float) -> None:
    """Raise an EvaluationError if a threshold is not above 0 and at most 1."""
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    is_share = is_number and 0 < threshold <= 1
    expected = "a number above 0 and at most 1"
    require(is_share, "threshold", threshold, expected, error=EvaluationError)


def answer_recall(answer: str, references: Sequence[str]) -> float | None:
    """Share of a reference's tokens, with repetitions, that the answer has; the best over the
    references.

    Example:
        >>> answer_recall("It is green.", ["green tea"])
        0.5
    """
    return _best(answer, references, lambda tokens, gold: _shared(tokens, gold) / len(gold))


def context_recall(contexts: Sequence[str], references: Sequence[str]) -> float | None:
    """Share of a reference's distinct tokens that occur in the contexts; the best over the
    references.

    It measures retrieval; `answer_recall` measures the answer.

    Example:
        >>> context_recall(["Green leaves.", "A cup of tea."], ["green tea"])
        1.0
    """
    return _best(
        "\n".join(_texts("contexts", contexts)),
        references,
        lambda tokens, gold: _share({*tokens}, {*gold}),
    )


def total_tokens(texts: Sequence[str], counter: TokenCounter | None = None) -> int:
    """Total number of tokens of texts; without a counter by ``"utf8"``.

    Example:
        >>> total_tokens(["绿茶", "tea"])
        3
    """
    counting = counter or token_counters["utf8"]
    return sum(counting.count(text) for text in _texts("texts", texts))


def compression_rate(
    before: Sequence[str], after: Sequence[str], counter: TokenCounter | None = None
) -> float | None:
    """Tokens after divided by tokens before: 0.3 keeps three tenths. None if there were none
    before.

    Example:
        >>> compression_rate(["绿茶绿茶绿"], ["绿"])
        0.2
    """
    tokens = total_tokens(before, counter)
    return total_tokens(after, counter) / tokens if tokens else None


def doc_ratio(before: Sequence[str], after: Sequence[str]) -> float | None:
    """Number of texts after divided by the number before. None if there were none before.

    Example:
        >>> doc_ratio(["a", "b"], ["a"])
        0.5
    """
    return len(_texts("after", after)) / len(before) if _texts("before", before) else None


def _best(
    answer: str, references: Sequence[str], measure: Callable[[list[str], list[str]], float]
) -> float | None:
    """Best value over the references that have a token."""
    require(isinstance(answer, str), "answer", answer, "a string", error=EvaluationError)
    tokens = answer_tokens(answer)
    golds = map(answer_tokens, _texts("references", references))
    return max((measure(tokens, gold) for gold in golds if gold), default=None)


def _texts(name: str, texts: Sequence[str]) -> Sequence[str]:
    require(is_list_of(texts, str), name, texts, "a list of strings", error=EvaluationError)
    return texts


def _holds(tokens: list[str], gold: list[str]) -> float:
    return float(
        any(tokens[at : at + len(gold)] == gold for at in range(len(tokens) - len(gold) + 1))
    )


def _share(tokens: set[str], gold: set[str]) -> float:
    return len(tokens & gold) / len(gold)


def _shared(tokens: list[str], gold: list[str]) -> int:
    return (Counter(tokens) & Counter(gold)).total()


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the known values; None if there is none.

    Example:
        >>> mean([1.0, None, 0.0]), mean([None])
        (0.5, None)
    """
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None
