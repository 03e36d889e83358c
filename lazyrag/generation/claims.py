"""Statements of answers, compared with their sources by rule: numbers, names, negation, opposites,
order, words.

English and Chinese. Of other languages, and where a statement and its source differ in language,
only numbers, dates and names are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import NamedTuple, TypeAlias

from lazyrag.data.result import Finding, Statement, Verdict
from lazyrag.data.segment import Span
from lazyrag.errors import GenerationError, sentence
from lazyrag.generation.claim_numbers import compare_dates, compare_numbers, compare_periods
from lazyrag.generation.claim_opposites import (
    compare_having,
    compare_modes,
    compare_negation,
    compare_opposites,
)
from lazyrag.generation.claim_text import (
    CLAUSE,
    MIN_CLAUSE_WORDS,
    MIN_COVERAGE,
    ClaimPair,
    Mismatch,
    Passage,
    Text,
    Word,
    fold,
    han_nouns,
    is_han,
)
from lazyrag.generation.claim_words import (
    ENGLISH_FUNCTION_WORDS,
    FIRST_WORDS,
    GENERAL_NOUNS,
    GERMAN_WORDS,
    HAN_FUNCTION_WORDS,
    HAN_GENERAL_NOUNS,
    MONTHS,
    OPINIONS,
)
from lazyrag.generation.quantities import blanks, narrow, unit_of

# Names

_CODE = re.compile(
    r"[A-Za-z]+[-_.]?\d[\w.-]*|(?<![\w-])--?[a-z][\w-]+|[A-Za-z_]\w*(?:[_./]\w+)+|\b[IVX]{2,}\b"
    r"|\b[A-Za-z]+[a-z][A-Z]\w+",
    re.ASCII,
)
_SENTENCE_BEGINS = re.compile(
    r"""(?:^|[!?:*“"(|]|(?<!\b[A-Z])(?<!\b[A-Z][a-z])(?<!\b[A-Z][a-z]{2})\.)\W*$"""  # Rev. Paul T.
)


_ABBREVIATION = re.compile(r"[a-z](?:\.[a-z])+")  # a.m, e.g
_MIN_NAME_IN_TITLE = 4  # as a part of a word: generalmills_2022.pdf


def compare_names(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names, codes and options of a statement that the source lacks."""
    source = pair.passage.scope
    for start, end in _names(pair.claim):
        word = fold(narrow(pair.claim.text[start:end])).strip(".-")
        if _ABBREVIATION.fullmatch(word):
            continue
        is_in_title = len(word) >= _MIN_NAME_IN_TITLE and word in pair.passage.title
        bounded = rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])"
        if is_in_title or re.search(bounded, f"{source.text}\n{pair.passage.title}"):
            continue
        is_code = _CODE.fullmatch(pair.claim.text[start:end]) is not None
        parts = [part for part in re.split(r"[-'’.]", word) if len(part) > 2]
        is_known = parts and all(part in source.text for part in parts)
        if not is_code and (is_known or word in source.initials or source.match_name(word)):
            continue
        yield Mismatch("name", (start, end))
    yield from _mixed_names(pair)


_TWO_NAMES = re.compile(r"(?=\b(?!The )([A-Z][\w’'-]+) ([A-Z][\w’'-]+))")


def _mixed_names(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names whose two words are those of two other names in the source: "Ella Mead" of Ella
    Toone and Beth Mead.
    """
    pairs = {match.groups() for match in _TWO_NAMES.finditer(pair.passage.text)}
    for match in _TWO_NAMES.finditer(pair.claim.text):
        first, second = match.groups()
        firsts = {start for start, end in pairs if end == second}
        seconds = {end for start, end in pairs if start == first}
        if firsts and seconds and first not in firsts:
            yield Mismatch("name", (match.start(1), match.end(2)))


def _names(claim: Text) -> Iterator[Span]:
    """Names of a statement: identifiers, and words with a capital inside a sentence, or with
    another one behind them.
    """
    text = narrow(claim.text)
    codes = [
        match.span()
        for match in _CODE.finditer(text)
        if not all(unit_of(part.lower())[0] for part in re.split(r"[/_.]", match[0]))
    ]
    yield from codes
    for token in claim.content:
        if not text[token.start].isupper():
            continue
        is_code = any(start <= token.start < end for start, end in codes)
        if is_code or claim.is_number(token.start):
            continue
        begins = _SENTENCE_BEGINS.search(text, max(0, token.start - 8), token.start)
        follows = re.match(r"(?:['’]s)?\s+[A-Z]", text[token.end : token.end + 5])
        if not begins or (follows and token.word not in FIRST_WORDS):
            yield token.span


_QUOTED = re.compile(
    r"“([^“”]{2,20})”|「([^「」]{2,20})」|《([^《》]{2,20})》|(?<!\w)`([^`]{2,40})`"
)


def compare_quotations(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names in quotation marks that the source lacks, such as those of titles and options."""
    text = pair.passage.text + pair.passage.title
    source = "".join(fold(narrow(text)).split())
    for match in _QUOTED.finditer(pair.claim.text):
        start, end = match.span(match.lastindex or 0)
        words = "".join(fold(narrow(pair.claim.text[start:end])).split()).strip(".,;。，；、'\"")
        if words not in source:
            yield Mismatch("name", (start, end))


# Order and words

_PASSIVE = re.compile(r"\bby\b|被|由|受")
_COMPLETE_NAME = re.compile(
    r"[A-Z][\w’'-]*(?:\.?\s+(?:(?:of|de|von|van|the|la)\s+)?[A-Z][\w’'-]*)*"
)
_MAX_TERMS_BETWEEN = 4
_NEXT_CLAUSE = re.compile(r"(?:[;；,，和与而但]|\b(?:and|while|but)\b)\s*$")


def compare_order(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find two names that the source has the other way round about the same words, in a clause."""
    claim = pair.claim
    best = pair.best
    names = [
        match.span()
        for match in _COMPLETE_NAME.finditer(claim.text)
        if match[0].lower() not in MONTHS
    ]
    names += [(noun.start, noun.end) for noun in han_nouns(claim.text) if noun.is_name]
    for left, right in pairwise(sorted(names)):
        first_name = claim.text[slice(*right)]
        second_name = claim.text[slice(*left)]
        first = best.text.find(first_name)
        second = best.text.find(second_name)
        is_unique = best.text.count(first_name) == best.text.count(second_name) == 1
        span = (left[1], right[0])
        if not is_unique or first >= second or _NEXT_CLAUSE.search(claim.between(*span)):
            continue
        source_span = (best.start + first + len(first_name), best.start + second)
        terms = _terms_between(claim, span)
        is_same = terms <= _terms_between(best, source_span)
        is_passive = _PASSIVE.search(claim.between(*span)) is not None
        source_is_passive = _PASSIVE.search(best.between(*source_span)) is not None
        if 0 < len(terms) <= _MAX_TERMS_BETWEEN and is_same and is_passive == source_is_passive:
            swapped = (best.start + first, best.start + second + len(second_name))
            yield Mismatch("order", (left[0], right[1]), swapped)


def _terms_between(text: Text, span: Span) -> set[str]:
    tokens = text.content[text.number_at(span[0]) : text.number_at(span[1])]
    return {token.term for token in tokens if token.start >= span[0]}


_MIN_SHARE_OF_CLAUSES = 0.7
_MOST_CLAUSES = 20


def compare_roles(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find two clauses that have exchanged words: "A rose and B fell" where the source has "A fell
    and B rose". The source must have most of their words, as a paraphrase may have others of any
    clause.
    """
    sources = [clause for part in pair.around for clause in _clauses_by_term(part)]
    for first, second in pairwise(_clauses_by_term(pair.claim)):
        terms = first.keys() | second.keys()
        for left, right in combinations(sources[:_MOST_CLAUSES], 2):
            covered = terms & (left.keys() | right.keys())
            is_known = len(covered) >= _MIN_SHARE_OF_CLAUSES * len(terms)
            if is_known and _are_crossed(first, second, left, right):
                yield Mismatch("order", _span_of(first, second), _span_of(left, right))
                return


_Clause: TypeAlias = dict[str, Word]


def _are_crossed(first: _Clause, second: _Clause, left: _Clause, right: _Clause) -> bool:
    """Whether each of two clauses has words of both clauses of a source, which do not begin with
    those of the same: "In Rome Ben and Ann won" has only another order than "In Rome Ann and Ben
    won".
    """
    sides = _sides(first, second, left, right)
    others = _sides(second, first, left, right)
    return {True, False} == set(sides) == set(others) and sides[0] != others[0]


def _sides(clause: _Clause, other: _Clause, left: _Clause, right: _Clause) -> list[bool]:
    """For each word that only this clause of a statement and one clause of a source have, whether
    the latter is the left one.
    """
    terms = [term for term in clause if term not in other]
    return [term in left for term in terms if (term in left) != (term in right)]


def _clauses_by_term(text: Text) -> list[_Clause]:
    """The content words of each clause by term, without numbers."""
    clauses: dict[int, _Clause] = {}
    for number, token in enumerate(text.content):
        if not text.is_number(token.start):
            clause = clauses.setdefault(text.columns[number] - number, {})
            clause.setdefault(token.term, token)
    return [*clauses.values()]


def _span_of(first: _Clause, last: _Clause) -> Span:
    return next(iter(first.values())).start, next(reversed(last.values())).end


_MIN_CLAUSE_COVERAGE = 0.2
_FEW_WORDS = 5
_MIN_COVERAGE_OF_FEW = 0.55


def compare_words(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find clauses, or a complete statement, that have few words of the source. Those with a number
    are left to `compare_numbers`.
    """
    scope = pair.passage.scope
    content = pair.claim.content
    absent = []
    start = 0
    for match in CLAUSE.finditer(pair.claim.text):
        tokens = [token for token in content if start <= token.start < match.start()]
        is_clause = len(tokens) >= MIN_CLAUSE_WORDS
        if is_clause and scope.coverage(tokens) < _MIN_CLAUSE_COVERAGE:
            absent.append(tokens)
        start = match.end()
    least = MIN_COVERAGE if len(content) > _FEW_WORDS else _MIN_COVERAGE_OF_FEW
    if not absent and scope.coverage(content) < least:
        absent.append(content)
    for tokens in absent:
        start, end = tokens[0].start, tokens[-1].end
        places = [number.start for number in pair.claim.quantities if number.number != 1]
        if not any(start <= place < end for place in places):
            yield Mismatch("words", (start, end))


_PHRASE = re.compile(
    r"\b(?!for (?:short|good|example|instance|free|now)|on average|of the box"
    r"|in (?:general|total|full|fact|particular|addition|practice|turn|contrast|detail|advance"
    r"|writing|a row|person|cash|time|use)|on (?:time|foot|request|site|top)|by (?:hand|now)"
    r"|by default|at (?:all|least|most|first|last|once|times|present)|of (?:course|date))"
    r"(?:(?:is|are|was|were|be|as|to) (?=an? |the )|(?:by|of|in|for|from|at|with|on|into|and|or) )"
    r"(?:an? |the |its |their |his |her )?"
    r"(?=([\w“\"`'’-]+(?: [\w”\"`'’-]+){0,3})\W*(?:[.,;](?!\w)|$))"
)


def compare_phrases(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find nouns of a statement that the source lacks where it has the words around them."""
    if is_han(pair.claim.text):
        yield from _absent_nouns(pair)
        return
    scope = pair.passage.scope
    for match in _PHRASE.finditer(pair.claim.text):
        start, end = match.span(1)
        tokens = [token for token in pair.claim.tokens if start <= token.start < end]
        is_general = bool(tokens) and tokens[-1].word in GENERAL_NOUNS
        is_time = pair.claim.is_number(start)
        if not tokens or is_general or is_time or unit_of(tokens[-1].word)[0]:
            continue
        is_acronym = pair.claim.text[end - 1].isupper()  # which compare_names looks at
        is_absent = all(token.term and not scope.match_name(token.word) for token in tokens)
        if is_absent and not is_acronym:
            yield Mismatch("words", (start, end))


def _absent_nouns(pair: ClaimPair) -> Iterator[Mismatch]:
    """Find names and nouns of a Chinese statement that the source lacks."""
    around = "".join(part.scope.text for part in pair.around)
    text = pair.passage.scope.text
    for noun in han_nouns(pair.claim.text):
        is_unit = pair.claim.is_number(noun.start)
        is_general = noun.tag != "nt" and noun.word.endswith(HAN_GENERAL_NOUNS)
        is_known = is_general or noun.word in HAN_FUNCTION_WORDS or noun.is_in(text)
        if is_unit or is_known or noun.is_cut_wrongly(pair.claim.text, text):
            continue
        if noun.is_strange(pair.claim.text, text) or noun.is_replaced(pair.claim.text, around):
            yield Mismatch("name" if noun.is_name else "words", (noun.start, noun.end))


RULES = (
    compare_numbers,
    compare_dates,
    compare_periods,
    compare_names,
    compare_quotations,
    compare_order,
    compare_roles,
    compare_phrases,
    compare_words,
)
RULES_OF_CLAUSES = (compare_having, compare_negation, compare_modes, compare_opposites)
"""Each clause is compared with the sentence that has most of its words."""


# Verdicts

Judge: TypeAlias = Callable[[str, str], Verdict]
"""A second opinion: the verdict on a statement (first) by the text of a source."""

_OPINION = re.compile(rf"\W*(?:{OPINIONS})")
_RANKS: Sequence[Verdict] = ("not_checkable", "not_found", "contradicted", "supported")
_MIN_WORDS = 2
_MIN_WORDS_OF_LANGUAGE = 6
MAX_STATEMENT = 2_000
"""Characters of a statement that is compared."""


def tidy(text: str) -> str:
    """A statement for people: without marks of Markdown, and spaces in place of its markers.

    Example:
        >>> tidy("80 degrees    .")
        '80 degrees.'
    """
    return re.sub(r"\*\*|`|\s+(?=[.,;:!?。，；：！？]|$)", "", " ".join(text.split()))


def is_opinion(text: str) -> bool:
    """Whether a sentence is a question, a greeting, or says what somebody thinks.

    Example:
        >>> [is_opinion(text) for text in ("I hope this helps!", "希望对您有帮助。", "Tea is old.")]
        [True, True, False]
    """
    return text.endswith(("?", "？")) or _OPINION.match(text) is not None


# Words that name the source as such, which are left blank.
_LEAD_IN = re.compile(
    r"(?i:\b(?:according to|based on|as stated in|per) the (?:passage|text|documents?|documentation"
    r"|sources?|article|report|context|guide|manual|page|file)\b,?)"
    r"|(?:根据|据|按照)(?:文档|文中|资料|原文|文章|文件|材料|上文|报告|手册)"
    r"(?:所述|记载|介绍|说明|描述)?[，,]?"
)


class Judgement(NamedTuple):
    """The verdict on a statement by one source."""

    verdict: Verdict
    pair: ClaimPair
    mismatches: Sequence[Mismatch]


def compare(claim: Text, passage: Passage) -> Judgement:
    """Compare a statement with a source by all rules."""
    pair = _beside(claim, passage)
    if _is_verbatim(claim, passage):
        return Judgement("supported", pair, ())
    mismatches = [mismatch for rule in RULES for mismatch in rule(pair)]
    for clause in claim.clauses:
        clause_pair = _beside(clause, passage)
        mismatches += [mismatch for rule in RULES_OF_CLAUSES for mismatch in rule(clause_pair)]
    is_covered = pair.coverage >= MIN_COVERAGE
    if _is_foreign(claim, passage):
        has_names = claim.words.isdisjoint(GERMAN_WORDS)  # its nouns have capitals
        kinds = ("number", "date", "name") if has_names else ("number", "date")
        mismatches = [mismatch for mismatch in mismatches if mismatch.kind in kinds]
    elif not is_covered:  # the source is about something else
        mismatches = [mismatch._replace(source_span=None) for mismatch in mismatches]
        is_covered = True
    return Judgement(_verdict(mismatches, is_covered=is_covered), pair, mismatches)


_QUOTATION_MARKS = '“”「」«»" '


def _is_verbatim(claim: Text, passage: Passage) -> bool:
    """Whether a statement is a sentence or line of a source, or a quotation from it."""
    words = claim.text.strip("| \r\n")
    if words[:1] in _QUOTATION_MARKS and words[-1:] in _QUOTATION_MARKS:
        quoted = " ".join(words.strip(_QUOTATION_MARKS).split())
        return quoted in " ".join(passage.text.split())
    return words in passage.statements


def _beside(claim: Text, passage: Passage) -> ClaimPair:
    number = passage.best_sentence(claim)
    best = passage.sentences[number]
    coverage = best.scope.coverage(claim.content)
    return ClaimPair(claim, passage, best, passage.around(number), coverage)


def _verdict(mismatches: Sequence[Mismatch], *, is_covered: bool) -> Verdict:
    if any(mismatch.source_span for mismatch in mismatches):
        return "contradicted"
    if mismatches:
        return "not_found"
    return "supported" if is_covered else "not_checkable"


def _is_foreign(claim: Text, passage: Passage) -> bool:
    """Whether a statement is in another language than its source, or in one without rules."""
    tokens = claim.tokens
    wide = sum(is_han(token.word) for token in tokens)
    if wide:
        return wide * 2 > len(tokens) and not is_han(passage.text)
    letters = [token.word for token in tokens if token.word.isalpha()]
    if any(ord(word[0]) > 0x24F for word in letters):  # beyond Latin
        return True
    is_english = any(not token.term or token.word in ENGLISH_FUNCTION_WORDS for token in tokens)
    return len(letters) >= _MIN_WORDS_OF_LANGUAGE and not is_english


class StatementChecker:
    """Compares statements with sources, each of which is prepared once.

    Args:
        texts: The texts of the sources, in the order of their numbers.
        judge: A second opinion on statements whose words are not found; None for the rules alone.
        titles: What names each source, such as its path: names and years in it are known.

    Example:
        >>> checker = StatementChecker(["Pour green tea at 80 degrees."])
        >>> print(checker.check("Pour it at 90 degrees.", (1,)))
        Contradicted: Pour it at 90 degrees. (“90” against “80”)
    """

    def __init__(
        self, texts: Sequence[str], judge: Judge | None = None, titles: Sequence[str] = ()
    ) -> None:
        self._texts = texts
        self._titles = titles or [""] * len(texts)
        self._judge = judge
        self._passages: dict[int, Passage] = {}
        self.problems: list[str] = []

    def check(self, text: str, indices: Sequence[int], start: int = 0) -> Statement:
        """Compare a statement with the sources that it cites, or with all if it cites none.

        Args:
            text: The statement, with spaces in place of its markers.
            indices: Numbers of the cited sources.
            start: Its start in the answer.
        """
        plain = tidy(text)
        statement = Statement(plain, (start, start + len(text)), "not_checkable", tuple(indices))
        if len(text) > MAX_STATEMENT or is_opinion(plain):
            return statement
        claim = Text(_LEAD_IN.sub(blanks, text))
        if len(claim.content) < _MIN_WORDS:
            return statement
        judgements = {number: self._compare(claim, number) for number in indices}
        index = _best(judgements)
        proposed = 0
        if not index or judgements[index].verdict != "supported":
            supporting = self._supporting(claim, indices)
            proposed = _best(supporting)
            if not indices and proposed:
                index = proposed
                judgements = supporting
        if not index:
            is_fact = bool(claim.quantities) or any(True for _ in _names(claim))
            return replace(statement, verdict="not_found" if is_fact else "not_checkable")
        return self._complete(statement, judgements[index], index, proposed)

    def _compare(self, claim: Text, number: int) -> Judgement:
        if number not in self._passages:
            self._passages[number] = Passage(self._texts[number - 1], self._titles[number - 1])
        return compare(claim, self._passages[number])

    def _supporting(self, claim: Text, indices: Sequence[int]) -> dict[int, Judgement]:
        """The sources that support a statement, and are not among those it cites."""
        others = set(range(1, len(self._texts) + 1)).difference(indices)
        judgements = {number: self._compare(claim, number) for number in sorted(others)}
        return {
            number: judgement
            for number, judgement in judgements.items()
            if judgement.verdict == "supported"
        }

    def _ask(self, text: str, source: str) -> Verdict:
        """The second opinion. Its failure is a problem, and leaves the statement not found."""
        try:
            return self._judge(text, source) if self._judge else "not_found"
        except GenerationError as exc:
            self.problems.append(sentence(f"A statement has no second opinion: {exc}"))
            return "not_found"

    def _complete(
        self, statement: Statement, judgement: Judgement, index: int, proposed: int
    ) -> Statement:
        verdict = judgement.verdict
        passage = judgement.pair.passage.text
        best = judgement.pair.best
        findings = [
            _finding(mismatch, judgement.pair, statement.span[0])
            for mismatch in judgement.mismatches
        ]
        if verdict == "not_found" and {finding.kind for finding in findings} == {"words"}:
            verdict = self._ask(statement.text, passage)
            findings = [] if verdict == "supported" else findings
        quote = "" if verdict == "not_found" else best.text.strip()
        start = best.start + best.text.index(quote)
        return replace(
            statement,
            verdict=verdict,
            index=index,
            quote=quote,
            quote_span=(start, start + len(quote)),
            findings=tuple(findings),
            proposed=proposed,
        )


def _best(judgements: dict[int, Judgement]) -> int:
    """Number of the source that decides most; 0 without any."""

    def rank(number: int) -> tuple[int, float]:
        judgement = judgements[number]
        return _RANKS.index(judgement.verdict), judgement.pair.coverage

    return max(judgements, key=rank, default=0)


def _finding(mismatch: Mismatch, pair: ClaimPair, offset: int) -> Finding:
    start, end = mismatch.span
    source_span = mismatch.source_span or (0, 0)
    return Finding(
        mismatch.kind,
        pair.claim.text[start:end],
        (offset + start, offset + end),
        pair.passage.text[slice(*source_span)],
        source_span,
    )
