"""Words that only queries of nothing else search for."""

from __future__ import annotations

# The common words that Lucene's English analyser leaves out, and question words. These are rare in
# the texts that answer, so their idf would be high; leaving them out raises recall@1 on XQuAD from
# .930 to .936 in English and from .931 to .940 in Chinese (benchmarks/recall.py).
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then"
    " there these they this to was will with how what when where which who whom whose why".split()
)
QUESTION_WORDS = frozenset(
    "什么 哪 哪个 哪些 哪里 哪儿 哪位 哪种 哪一 谁 多少 如何 怎么 怎样 怎么样 "
    "为什么 为何 何时 何处 何种 是否 吗 呢".split()
)

STOP_MARK = "\ue000"
"""Before a stop word that is a term: it does not count in the lengths of texts."""


def plain_term(term: str) -> str:
    """A term as people read it.

    Example:
        >>> plain_term(STOP_MARK + "who"), plain_term("tea")
        ('who', 'tea')
    """
    return term.removeprefix(STOP_MARK)
