"""Selection of the best parts of texts within a budget of tokens, in the order of the texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lazyrag.generation.extractive import rank_units
from lazyrag.generation.units import units_of
from lazyrag.text.analyzers import query_terms, term_spans
from lazyrag.text.question_parts import split_question
from lazyrag.text.sentences import is_boundary, sentence_spans
from lazyrag.text.tokens import TokenCounter, with_fit_methods


def cut(text: str, limit: int, counter: TokenCounter) -> str:
    """Cut a text to a number of tokens: to complete sentences if one fits, else to complete
    characters.

    Example:
        >>> from lazyrag.text.tokens import token_counters
        >>> cut("绿茶好。红茶也好。", 5, token_counters["utf8"])
        '绿茶好。'
    """
    end = with_fit_methods(counter).fit_forward(text, 0, limit)
    if end >= len(text):
        return text
    sentences = [last for _, last in sentence_spans(text) if last <= end]
    if not sentences:
        while end > 0 and not is_boundary(text, end):
            end -= 1
    return text[: sentences[-1] if sentences else end].rstrip()


_CUT_FLOOR = 0.25  # of the budget; measured by benchmarks/refine.py
_MAX_TERMS = 500
# of words that spaces divide
_INSIDE_WORD = re.compile(r"(?<=[^\W\u1100-\U0010ffff])[^\W\u1100-\U0010ffff]")


def passage(text: str, terms: frozenset[str], limit: int, counter: TokenCounter) -> tuple[int, int]:
    """Find the span of at most a number of tokens that has the most distinct terms; the first of
    several.

    Example:
        >>> from lazyrag.text.tokens import token_counters
        >>> text = "Far up in the hills green tea grows."
        >>> text[slice(*passage(text, query_terms("green tea"), 4, token_counters["utf8"]))].strip()
        'green tea'
    """
    counting = with_fit_methods(counter)
    spans = term_spans(text, terms)[:_MAX_TERMS]
    most = 0
    first = 0
    last = 0
    for _, end, _ in spans:
        start = _word_boundary(text, counting.fit_backward(text, end, limit), 1)
        count = len({term for begin, stop, term in spans if start <= begin and stop <= end})
        if count > most:
            most = count
            first = start
    if most:
        last = _word_boundary(text, counting.fit_forward(text, first, limit), -1)
    return (first, last) if last > first else (0, len(cut(text, limit, counter)))


def _word_boundary(text: str, position: int, step: int) -> int:
    while not is_boundary(text, position) or _INSIDE_WORD.match(text, position):
        position += step
    return position


class Piece(NamedTuple):
    """A selected part: its number among the parts of all texts, plus 0.5 if it is cut, and its
    text.
    """

    order: float
    text: str


class SelectedPieces:
    """Pieces of texts within a budget of tokens.

    Args:
        query: The query.
        texts: Number of texts.
        budget: Maximum number of tokens.
        counter: Counts the tokens.
        join: Makes one text of the pieces of a text.
    """

    def __init__(
        self,
        query: str,
        texts: int,
        budget: int,
        counter: TokenCounter,
        join: Callable[[Sequence[Piece]], str],
    ) -> None:
        self.pieces: list[list[Piece]] = [[] for _ in range(texts)]
        self._terms = query_terms(query)
        self._budget = budget
        self._counter = counter
        self._join = join
        self._tokens = [0] * texts

    def add(self, at: int, others: Sequence[Piece], piece: Piece, *, may_cut: bool) -> bool:
        """Select a piece beside others of its text; whether it is selected.

        A piece that does not fit is cut, while a quarter of the budget is left.
        """
        if self._replace(at, [*others, piece]):
            return True
        limit = self._budget - sum(self._tokens)
        if not may_cut or limit < _CUT_FLOOR * self._budget:
            return False
        for fewer in range(limit, 0, -1):  # the tokens of two texts do not add up to those of both
            start, end = passage(piece.text, self._terms, fewer, self._counter)
            excerpt = Piece(piece.order + 0.5, piece.text[start:end].strip())
            if excerpt.text and self._replace(at, [*others, excerpt]):
                return True
        return False

    def texts(self) -> list[str]:
        """What is selected of each text."""
        return list(map(self._join, self.pieces))

    def _replace(self, at: int, pieces: Sequence[Piece]) -> bool:
        tried = sorted(pieces)
        count = self._counter.count(self._join(tried))
        if sum(self._tokens) - self._tokens[at] + count > self._budget:
            return False
        self.pieces[at] = tried
        self._tokens[at] = count
        return True


def join_sentences(pieces: Sequence[Piece]) -> str:
    """Join neighbours unchanged, others as separate lines."""
    runs: list[str] = []
    last = -1.0
    for piece in pieces:
        if runs and piece.order == last + 1 and piece.order % 1 == 0:  # not cut
            runs[-1] += piece.text
        else:
            runs.append(piece.text)
        last = piece.order
    return "\n".join(run.strip() for run in runs)


def refine_best_first(
    query: str,
    texts: Sequence[str],
    *,
    budget: int,
    counter: TokenCounter,
    ranks: Sequence[int] | None = None,
    cuts: bool = True,
) -> list[str]:
    r"""Select sentences, list items, rows of tables and blocks of code by how well they answer a
    query, the best one first, each followed by the heading above it, and a row by its header.

    They are ranked as for quotations: by their terms, their neighbours and the rank of their text.
    While a quarter of the budget is left, one that does not fit is cut to the passage with most of
    the query's terms; others are skipped. Repetitions are left out. The query's parts take turns,
    see `lazyrag.text.question_parts.split_question`.

    Args:
        query: The query.
        texts: n texts, best first.
        budget: Maximum number of tokens.
        counter: Counts the tokens.
        ranks: The rank of each text, from 0; None: 0, 1, and so on.
        cuts: Whether one that does not fit is cut.

    Returns:
        One text for each, in its order, "" if nothing is left.

    Example:
        >>> from lazyrag.text.tokens import token_counters
        >>> text = "# Tea\n\nIt is old. Green tea wants water of 80 degrees."
        >>> counter = token_counters["utf8"]
        >>> refine_best_first("How hot is green tea?", [text], budget=17, counter=counter)
        ['# Tea\nGreen tea wants water of 80 degrees.']
    """
    selection = SelectedPieces(query, len(texts), budget, counter, join_sentences)
    units = list(map(units_of, texts))
    seen = set()

    def take(source: int, number: int, *, may_cut: bool) -> bool:
        of_text = units[source]
        unit = of_text[number]
        words = "".join(texts[source][unit.start : unit.end].split())
        before = of_text[number - 1].end if number else unit.start
        piece = Piece(number, texts[source][before : unit.end])
        if words in seen or not selection.add(
            source, selection.pieces[source], piece, may_cut=may_cut
        ):
            return False
        seen.add(words)
        return True

    rankings = [rank_units(part, texts, ranks) for part in split_question(query)]
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*rankings))
    for ranked in filter(None, in_turn):
        number = units[ranked.source].index(ranked.unit)
        if take(ranked.source, number, may_cut=cuts):
            for kind in ("header", "heading"):
                above = [at for at in range(number) if units[ranked.source][at].kind == kind]
                if above and (kind == "heading" or ranked.unit.kind == "row"):
                    take(ranked.source, above[-1], may_cut=False)
    return selection.texts()
