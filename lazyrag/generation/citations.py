"""Citations of answers: their sources, their problems, and whether quotations are in the cited
sources.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from lazyrag.data.result import Citation, Hit, Statement, supersession_text
from lazyrag.data.segment import Span
from lazyrag.errors import GenerationError
from lazyrag.generation.claim_words import ENGLISH_FUNCTION_WORDS
from lazyrag.generation.claims import Judge, StatementChecker, tidy
from lazyrag.generation.judge import checked_judge
from lazyrag.generation.markers import (
    Marker,
    MarkerScanner,
    Scanned,
    replace_markers,
    rewritten,
    scan,
)
from lazyrag.text.analyzers import english_terms
from lazyrag.text.sentences import CJK_LETTERS, last_break, sentence_ends, sentence_spans
from lazyrag.validation import is_list_of, require, validate_integer, validate_string

# Claims

CLAIM_CHARACTERS = 600
"""Number of characters before a marker in which its claim is found."""

_MAX_SNIPPET_LENGTH = 200


def claim_before(text: str) -> str:
    """Return the claim of a marker at the end of a text: its sentence so far, without other
    markers.

    A marker after a full stop belongs to the sentence before it.

    Args:
        text: The answer up to the marker; only the last `CLAIM_CHARACTERS` are read.

    Example:
        >>> claim_before("Tea is old. Pour it at 80 degrees. [1]")
        'Pour it at 80 degrees.'
    """
    text = text[-CLAIM_CHARACTERS:]
    text = replace_markers(text, "")
    sentences = [text[start:end].strip() for start, end in sentence_spans(text)]
    return next(
        (sentence for sentence in reversed(sentences) if any(map(str.isalnum, sentence))), ""
    )


def snippet(source: str, claim: str) -> str:
    """Return the sentence of a source that shares the most terms with a claim.

    Args:
        source: Text of the source.
        claim: The claim, in Chinese or English.

    Returns:
        A part of the source, at most 200 characters; the first of equals, so its beginning if no
        term is shared.

    Example:
        >>> snippet("Tea is old. Water of 80 degrees is best.", "Pour the water at 80 degrees")
        'Water of 80 degrees is best.'
    """
    start, end = cited_span(source, claim)
    if start == end:
        start, end = next(_pieces(source), (0, 0))
    return source[start:end]


def cited_span(source: str, claim: str) -> Span:
    """Return start and end of the sentence of a source that shares the most content words with a
    claim.

    If none shares any, the span is empty, before the first letter. Articles, pronouns, auxiliary
    verbs, single Chinese characters and single digits are no content words.

    Example:
        >>> cited_span("Tea is old. Water is best.", "It is the best.")
        (12, 26)
        >>> cited_span("# Tea is old.", "It is hot.")
        (2, 2)
    """
    terms = set(filter(_is_content, english_terms(claim)))
    letter = re.search(r"[^\W_]", source)
    start = letter.start() if letter else 0
    best = (start, start)
    most = 0
    for span in _pieces(source):
        shared = len(terms.intersection(english_terms(source[slice(*span)])))
        if shared > most:
            best = span
            most = shared
    return best


_FUNCTION_CHARACTERS = frozenset(
    "的了是在和有也就不都这那们与以及或其而但被把于之我你他她它您吗呢吧啊着"
)


@functools.cache
def _function_terms() -> frozenset[str]:
    return frozenset(english_terms(" ".join(ENGLISH_FUNCTION_WORDS)))


def _is_content(term: str) -> bool:
    """Whether a term of a text is a content word, or a number of two digits and more."""
    return len(term) > 1 and term not in _function_terms() and _FUNCTION_CHARACTERS.isdisjoint(term)


_SORRY = r"(?:(?:i'?m |i am |we are )?sorry[,:]? (?:but )?|unfortunately,? )?"
_MATERIAL = (
    r"(?:the |these |this )?(?:given |provided |reference |available"
    r" )*(?:material|source|document|passage|context)s?"
)
_SORRY_ZH = r"(?:(?:很?抱歉|对不起|不好意思)[，,]?)?"
_MATERIAL_ZH = r"(?:在|根据|从)?(?:所?(?:给出|提供)的?|以上|上述|现有)?(?:参考)?(?:资料|材料|文档|上下文)[里中]?[，,]?"
_UNKNOWN = (
    r"(?:(?:really |just )?(?:do not|don't) know|(?:cannot|can't|couldn't)"
    r" (?:say|tell|answer|find)|am not sure)"
)
_ABOUT_IT = r"(?: (?:the|an|any|it|this|that|your|to|answer|question|information))*"
_SAY = (
    r"(?:say|state|specify|tell)(?="
    r" (?:what|how|when|where|who|why|which|whether|anything|it|this|that)\b)"
)
_GIVE = (
    r"(?:contain|provide|include|give|have)(?= (?:an? |the |any |enough |relevant )*"
    r"(?:answer|information|details?|anything|it|this|that)\b)"
)
_ABSENT_ZH = r"(?:没有?|未)能?(?:提到|提及|说明|给出|包含|涉及|找到|回答|相关|有关|关于|答案|足够)"
_NO_ANSWER = re.compile(
    rf"{_SORRY}(?:(?:i|we) {_UNKNOWN}{_ABOUT_IT}|i'm not sure{_ABOUT_IT}"
    r"|there(?: is|'s) no (?:answer|information)[^,;.]{0,80}"
    rf"|{_MATERIAL} (?:do|does|did) ?(?:not|n't) (?:answer|mention|{_SAY}|{_GIVE})[^,;.]{{0,80}})"
    rf"|{_SORRY_ZH}(?:我?们?(?:也|还)?(?:不知道|不清楚|不了解|不确定|无法回答|不能回答|没有答案)(?:这个|该|您的|你的)?(?:问题|答案)?"
    rf"|{_MATERIAL_ZH}(?:并|也|都)?{_ABSENT_ZH}[^，,；;。]{{0,40}})",
    re.IGNORECASE,
)


def is_statement(sentence: str) -> bool:
    """Whether a sentence states something: not a heading of a list, and not that there is no
    answer.

    Example:
        >>> texts = "Tea is old [1].", "I don't know.", "不知道。", "The steps are:"
        >>> [is_statement(text) for text in texts]
        [True, False, False, False]
    """
    plain = replace_markers(sentence, "").strip().replace("’", "'")
    if sum(map(str.isalnum, plain)) < _MIN_LETTERS or plain.endswith((":", "：")):
        return False
    return not _NO_ANSWER.fullmatch(plain.strip(' .。!！*_…~“”"'))


def cited_with(
    text: str, markers: Sequence[Marker], spans: Sequence[Span], *, sources: int
) -> list[tuple[int, ...]]:
    """Return, for each span of an answer, the numbers of sources that its sentences cite, in order,
    each once.

    Args:
        text: The answer.
        markers: Its markers.
        spans: Start and end of each span.
        sources: Number of sources; other numbers are left out.

    Example:
        >>> text = "“Tea is old.” [2] It is."
        >>> cited_with(text, scan(text).markers, [(1, 12)], sources=2)
        [(2,)]
    """
    starts, numbers = _cited_by_sentence(text, markers, sources)
    indices = []
    for start, end in spans:
        first = bisect_right(starts, start) - 1
        last = bisect_right(starts, max(start, end - 1)) - 1
        numbers_of_span: dict[int, None] = {}
        for sentence in range(first, last + 1):
            numbers_of_span.update(numbers.get(sentence, {}))
        indices.append(tuple(numbers_of_span))
    return indices


def _cited_by_sentence(
    text: str, markers: Sequence[Marker], sources: int
) -> tuple[list[int], dict[int, dict[int, None]]]:
    """The start of each sentence, and the numbers that it cites."""
    starts = []
    worded: list[int] = []  # by sentence: itself, or the last one before it that has words
    for number, (start, end) in enumerate(sentence_spans(text)):
        starts.append(start)
        has_words = any(map(str.isalnum, text[start:end]))
        worded.append(number if has_words or number == 0 else worded[-1])
    numbers: dict[int, dict[int, None]] = {}
    # the sentence, the end of its last marker, whether words precede
    current = -1
    behind = 0
    claims = False
    for marker in markers:
        sentence = bisect_right(starts, marker.start) - 1
        if sentence != current:
            current = sentence
            behind = starts[sentence]
            claims = False
        claims = claims or any(map(str.isalnum, text[behind : marker.start]))
        behind = marker.end
        begins_line = text[max(0, marker.start - 9) : marker.start].rstrip(" \t")[-1:] == "\n"
        cited = dict.fromkeys(number for number in marker.numbers if 1 <= number <= sources)
        if claims or begins_line or sentence == 0:
            numbers.setdefault(sentence, {}).update(cited)
        if not claims and sentence > 0:  # it follows the full stop
            numbers.setdefault(worded[sentence - 1], {}).update(cited)
    return starts, numbers


def _pieces(text: str) -> Iterator[Span]:
    """Split a text into stripped sentences, long ones into pieces."""
    for start, end in sentence_spans(text):
        at = start
        while at < end:
            cut = (
                end
                if end - at <= _MAX_SNIPPET_LENGTH
                else last_break(text, at, at + _MAX_SNIPPET_LENGTH)
            )
            piece = text[at:cut]
            if piece.strip():
                yield at + len(piece) - len(piece.lstrip()), at + len(piece.rstrip())
            at = cut


# Markers that stand in the sources

_TOKEN = re.compile(rf"[{CJK_LETTERS}]|[^\W_{CJK_LETTERS}]+")
_BEGINS = re.compile(r"""\n|[“「『«](?!.*[”」』»])|(?<![^\s(（])"(?=[^"\n]*$)""")
_ENDS = re.compile('[\n”」』»"]')
_AROUND = 200
_WORDS = 4
_FEW_WORDS = 2


def citing_markers(
    response: str, markers: Sequence[Marker], sources: Sequence[Hit]
) -> list[Marker]:
    """Return the markers of an answer that are not copied from a source, such as a reference of a
    paper.

    Example:
        >>> from lazyrag import Hit
        >>> text = "As Lu showed [1], tea is old [1]."
        >>> sources = [Hit("n", "As Lu showed [1].", 1.0)]
        >>> [marker.start for marker in citing_markers(text, scan(text).markers, sources)]
        [29]
    """
    texts = [hit.text for hit in sources]
    folded = "\n".join(texts).lower()
    marks = {text: text.lower() in folded for text in {marker.text for marker in markers}}
    citing = []
    for marker in markers:
        before = response[max(0, marker.start - _AROUND) : marker.start]
        behind = response[marker.end : marker.end + _AROUND]
        if not marks[marker.text] or not is_copied(marker, before, behind, texts):
            citing.append(marker)
    return citing


def is_copied(marker: Marker, before: str, behind: str, texts: Sequence[str]) -> bool:
    """Whether a text has a marker after the same words of its line or quotation, and before the
    same ones where fewer than two precede it.

    Args:
        marker: The marker.
        before: The answer before it.
        behind: The answer after it.
        texts: Those of the sources.
    """
    words = _words_before(before)
    pieces = [*words[-_WORDS:], marker.text]
    if len(words) < _FEW_WORDS:
        pieces += _TOKEN.findall(_ENDS.split(behind)[0])[:_WORDS]
    pattern = re.compile(r"[\W_]{0,9}".join(map(re.escape, pieces)), re.IGNORECASE)
    return len(pieces) > 2 and any(map(pattern.search, texts))  # noqa: PLR2004  two words


def _words_before(before: str) -> list[str]:
    """The words of the last line of a text, or of the quotation that is open in it."""
    return _TOKEN.findall(_BEGINS.split(before[-_AROUND:])[-1])


# Quotations

_MAX_LENGTH = 1000
# Each body excludes its own opening mark, so that unclosed marks take linear time. Straight marks
# are at the edge of a word, else they are inches; a single mark within a word is an apostrophe.
_QUOTATION = re.compile(
    rf"“([^“”\n]{{1,{_MAX_LENGTH}}})”"
    rf"|「([^「」\n]{{1,{_MAX_LENGTH}}})」"
    rf"|『([^『』\n]{{1,{_MAX_LENGTH}}})』"
    rf"|«([^«»\n]{{1,{_MAX_LENGTH}}})»"
    rf"|(?<![A-Za-z0-9])\"([^\"\n]{{1,{_MAX_LENGTH}}})\"(?![A-Za-z0-9])"
    rf"|(?<!\w)‘([^‘\n]{{1,{_MAX_LENGTH}}}?)’(?!\w)"
)
_ELISION = re.compile(
    r"\[\s*(?:\.{3,}|…+)\s*\]|\(\s*(?:\.{3,}|…+)\s*\)|（\s*…+\s*）|\.{3,}|…+|。{3,}"
)
_CJK = re.compile(f"[{CJK_LETTERS}]")
_WORD = re.compile(r"\w+")
_MIN_WORDS = 3
_MIN_LETTERS = 2
_MIN_CJK = 4
_DASHES = frozenset("‐‑‒–—−")


@dataclass(frozen=True, slots=True)
class QuoteCheck:
    """Result of checking one quotation of an answer.

    Args:
        quote: Its words, without the marks.
        indices: Numbers of the sources that its sentence cites.
        found: Number of a source that contains it, preferably one of ``indices``; None if there is
            none.
        span: Its start and end in that source's text, or None.

    Example:
        >>> QuoteCheck("water of 80 degrees", (1,), 2, (10, 29)).ok
        False
    """

    quote: str
    indices: tuple[int, ...]
    found: int | Any  # None is the exception, see `DocNode.score`
    span: Span | Any

    @property
    def ok(self) -> bool:
        """Whether a source that its sentence cites contains it."""
        return self.found in self.indices

    @property
    def problem(self) -> str:
        """The problem, as a sentence; "" if there is none."""
        if self.ok:
            return ""
        quote = self.quote if len(self.quote) <= 60 else self.quote[:60] + "..."
        cited = " and ".join(f"[{index}]" for index in self.indices)
        where = "no source contains them" if self.found is None else f"they are in [{self.found}]"
        return f"The words {quote!r} are quoted from {cited}, but {where}."


def quotations(text: str) -> list[Span]:
    """Find quotations, and return start and end of each without the marks.

    Marks are “ ”, ‘ ’, straight double ones, 「 」, 『 』 and « »; 《 》 marks a title. A quotation is
    within one line and has at least three words or four Chinese characters: shorter ones are names
    or scare quotes.

    Example:
        >>> text = '"Pour it at 80 degrees", says the "expert".'
        >>> [text[start:end] for start, end in quotations(text)]
        ['Pour it at 80 degrees']
    """
    spans = []
    for match in _QUOTATION.finditer(text):
        start, end = match.span(match.lastindex or 0)
        cjk = len(_CJK.findall(text, start, end))
        words = len(_WORD.findall(text, start, end))
        if cjk >= _MIN_CJK or words >= _MIN_WORDS:
            spans.append((start, end))
    return spans


class QuotedText:
    """A text to find quotations in, prepared once.

    Letters are compared after NFKC and case folding. White space and punctuation only separate
    words, between Chinese characters not even that. They count within numbers: 1.5 is not 15, and
    -5 is not 5.

    Args:
        text: The text of a source.

    Example:
        >>> QuotedText("Use water of about 80 degrees.").span("WATER of ... 80 degrees")
        (4, 29)
    """

    def __init__(self, text: str) -> None:
        self._plain, self._positions = _plain(text)

    def span(self, quote: str) -> Span | None:
        """Return start and end of a quotation in the text, or None.

        Args:
            quote: Its words; dots, ``...`` or ``……``, stand for omitted words.
        """
        start = -1
        at = 0
        for part in _ELISION.split(quote):
            words, _ = _plain(part)
            if not words:
                continue
            at = self._find(words, at)
            if at < 0:
                return None
            start = at if start < 0 else start
            at += len(words)
        if start < 0:
            return None
        return self._positions[start], self._positions[at - 1] + 1

    def _find(self, words: str, at: int) -> int:
        """Find complete words at or after an index; -1 if there are none."""
        at = self._plain.find(words, at)
        while at >= 0:
            end = at + len(words)
            if not _one_word(self._plain[at - 1 : at], words[0]) and not _one_word(
                words[-1], self._plain[end : end + 1]
            ):
                return at
            at = self._plain.find(words, at + 1)
        return -1


def plain(text: str) -> str:
    """Normalise a text for comparison.

    Example:
        >>> plain("The Tea-Grower's Handbook.pdf") == plain("the tea-grower's handbook pdf")
        True
    """
    return _plain(text)[0]


def _plain(text: str) -> tuple[str, list[int]]:
    """Normalise a text, and return the index of each character in the original."""
    plain: list[str] = []
    positions = []
    is_parted = False
    for position, character in enumerate(text):
        for letter in unicodedata.normalize("NFKC", character).casefold():
            if not letter.isalnum() and unicodedata.category(letter)[0] in "PZCM" and letter != "%":
                replacement = _of_number(text, position, letter)
                if not replacement:
                    is_parted = is_parted or unicodedata.category(letter)[0] in "PZC"
                    continue
                letter = replacement  # noqa: PLW2901  all dashes are one
            if is_parted and plain and _one_word(plain[-1], letter):
                plain.append(" ")
                positions.append(position)
            is_parted = False
            plain.append(letter)
            positions.append(position)
    return "".join(plain), positions


def _of_number(text: str, position: int, character: str) -> str:
    """Return punctuation within a number, or the minus before one; "" for other punctuation."""
    before = text[position - 1 : position] if position else ""
    behind = text[position + 1 : position + 2]
    if not behind.isdigit():
        return ""
    if character in _DASHES or character == "-":
        return "-" if before.isdigit() or not before.isalnum() else ""
    return character if before.isdigit() and character in ".,:/" else ""


def _one_word(character: str, following: str) -> bool:
    """Whether two neighbours belong to one word: letters or digits that are not Chinese."""
    return (
        character.isalnum()
        and following.isalnum()
        and not _CJK.match(character)
        and not _CJK.match(following)
    )


# Statements

MAX_STATEMENTS = 1_000
"""Number of statements of an answer that are checked; the others are not checkable."""

# Where a list item, a row or a heading begins; a heading; the head of a table.
_BLOCK = re.compile(
    r"\n(?=[ \t]*(?:[-*•|#>]|\d{1,3}[.)、]\s))|^[ \t]*#{1,6} .*$|^[ \t]*\|.*\n[ \t]*\|[ :|-]+$",
    re.MULTILINE,
)
_LEAD = re.compile(r"[\s>|]*(?:[-*•]\s+|\d{1,3}[.)、]\s+)?")


def statement_spans(text: str, code: Sequence[Span] = ()) -> list[Span]:
    r"""Return start and end of the sentences, list items and rows of an answer, without headings.

    Args:
        text: The answer.
        code: Start and end of its pieces of code: blocks are left out.

    Example:
        >>> text = "# Tea\n- Pour it.\n- Wait."
        >>> [text[start:end] for start, end in statement_spans(text)]
        ['Pour it.', 'Wait.']
    """
    blocks = [match.span() for match in _BLOCK.finditer(text)]
    blocks += [(start, end) for start, end in code if "\n" in text[start:end]]
    spans = []
    at = 0
    for first, last in [*sorted(blocks), (len(text), len(text))]:
        for start, end in sentence_spans(text[at:first]):
            sentence = text[at + start : at + end].rstrip()
            lead = _LEAD.match(sentence)
            words = sentence[lead.end() :] if lead else sentence
            if any(map(str.isalnum, words)):
                spans.append((at + start + len(sentence) - len(words), at + start + len(sentence)))
        at = max(at, last)
    return spans


def check_statements(
    text: str,
    scanned: Scanned,
    markers: Sequence[Marker],
    checker: StatementChecker,
    sources: int,
    *,
    offset: int = 0,
) -> Iterator[Statement]:
    """Compare the sentences of an answer with their sources.

    Args:
        text: The answer.
        scanned: Its markers and code.
        markers: Those of its markers that cite.
        checker: Compares them.
        sources: Number of sources.
        offset: Added to all places: where the text begins in the complete answer.
    """
    pieces = []
    at = 0
    for marker in markers:
        pieces += [text[at : marker.start], " " * (marker.end - marker.start)]
        at = marker.end
    plain = "".join([*pieces, text[at:]])
    spans = [
        (start, end)
        for start, end in statement_spans(text, scanned.code)
        if any(map(str.isalnum, plain[start:end]))
    ]
    starts = [marker.start for marker in markers]
    cited = cited_with(text, markers, spans, sources=sources)
    for number, ((start, end), indices) in enumerate(zip(spans, cited, strict=True)):
        words = start + len(plain[start:end]) - len(plain[start:end].lstrip())
        inside = dict.fromkeys(
            index
            for marker in markers[bisect_left(starts, words) : bisect_left(starts, end)]
            for index in marker.numbers
            if 1 <= index <= sources
        )
        sentence = plain[start:end].strip(" |\n\t")
        start += plain[start:end].index(sentence)  # noqa: PLW2901  behind markers
        end = start + len(sentence)  # noqa: PLW2901
        if number >= MAX_STATEMENTS or not is_statement(sentence):
            span = offset + start, offset + end
            yield Statement(tidy(sentence), span, "not_checkable", indices)
        else:
            yield checker.check(sentence, tuple(inside) or indices, offset + start)


# Resolution


@dataclass(frozen=True, slots=True)
class ResolvedCitations:
    """Citations of an answer, and their problems.

    Args:
        citations: A citation for each cited source, in the order of their first markers.
        problems: Malformed markers, numbers without a source, and quotations that the cited sources
            do not contain: a sentence each, each once.
        statements: The sentences of the answer, compared with the sources that they cite.

    Example:
        >>> from lazyrag import CitationManager, Hit
        >>> sources = [Hit("n", "Tea is old. Use water of 80 degrees.", 1.0)]
        >>> resolved = CitationManager().resolve("Water of 80 degrees [1][4].", sources)
        >>> [citation.text_snippet for citation in resolved.citations]
        ['Use water of 80 degrees.']
        >>> resolved.problems
        ('The answer cites [4], which is no source; it was given only [1].',)
    """

    citations: tuple[Citation, ...]
    problems: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()


def resolve(response: str, sources: Sequence[Hit], judge: Judge | None) -> ResolvedCitations:
    """Match the markers of an answer with its sources; see `CitationManager.resolve`."""
    scanned = scan(response)
    markers = citing_markers(response, scanned.markers, sources)
    seen: set[int] = set()
    citations: list[Citation] = []
    for marker in markers:
        before = response[max(0, marker.start - CLAIM_CHARACTERS) : marker.start]
        citations += new_citations(marker, before, sources, seen)
    problems = [marker_problem(marker, len(sources)) for marker in markers]
    problems += [check.problem for check in quote_checks(response, scanned, sources, markers)]
    opinion = checked_judge(judge) if judge else None
    checker = StatementChecker([hit.text for hit in sources], opinion, _titles(sources))
    statements = tuple(check_statements(response, scanned, markers, checker, len(sources)))
    problems += checker.problems
    return ResolvedCitations(
        tuple(citations), tuple(dict.fromkeys(filter(None, problems))), statements
    )


def _titles(sources: Sequence[Hit]) -> list[str]:
    """What names each source beside its text: its path, title and place."""
    fields = [
        (hit.source, hit.metadata.get("title"), hit.metadata.get("location")) for hit in sources
    ]
    return [" ".join(str(part) for part in parts if part) for parts in fields]


def new_citations(
    marker: Marker, before: str, sources: Sequence[Hit], seen: set[int]
) -> Iterator[Citation]:
    """Yield the citations of a marker for sources that were not cited before.

    Args:
        marker: The marker.
        before: The answer before it, at least the last `CLAIM_CHARACTERS`.
        sources: The sources in the order of their numbers.
        seen: Cited numbers; new ones are added.
    """
    new = [
        number for number in marker.numbers if 1 <= number <= len(sources) and number not in seen
    ]
    seen.update(new)
    claim = claim_before(before) if new else ""
    for number in new:
        hit = sources[number - 1]
        yield Citation(
            index=number,
            source=hit.source,
            document_id=hit.document_id,
            chunk_id=hit.chunk_id,
            text_snippet=snippet(hit.text, claim),
            uid=hit.id,
            location=hit.location,
            superseded=supersession_text(hit.metadata),
        )


def marker_problem(marker: Marker, sources: int) -> str:
    """Return the problem of a marker, as a sentence, given the number of sources; "" if there is
    none.
    """
    if marker.fault:
        return marker.fault
    missing = [number for number in marker.numbers if not 1 <= number <= sources]
    if not missing:
        return ""
    range_of_sources = {0: "no sources", 1: "only [1]"}.get(sources, f"[1] to [{sources}]")
    named = ", ".join(f"[{number}]" for number in missing[:3]) + (
        ", ..." if len(missing) > 3 else ""
    )
    are = "is no source" if len(missing) == 1 else "are no sources"
    return f"The answer cites {named}, which {are}; it was given {range_of_sources}."


def quote_checks(
    response: str, scanned: Scanned, sources: Sequence[Hit], markers: Sequence[Marker]
) -> list[QuoteCheck]:
    """Check each quotation whose sentence cites a source, except names of files and titles.

    Args:
        response: The answer.
        scanned: Its markers and code.
        sources: The hits in the order of their numbers.
        markers: Those of its markers that cite, see `citing_markers`.
    """
    spans = [span for span in quotations(response) if not _within(span[0], scanned.code)]
    starts = [marker.start for marker in markers]
    cited = cited_with(response, markers, spans, sources=len(sources))
    texts: dict[int, QuotedText] = {}
    names = None
    checks = []
    for (start, end), indices in zip(spans, cited, strict=True):
        if not indices:
            continue
        quote = response[start:end]
        for marker in markers[bisect_left(starts, start) : bisect_left(starts, end)]:
            quote = quote.replace(marker.text, "")
        names = _names(sources) if names is None else names
        if plain(quote) in names:
            continue  # it names a source, and quotes nothing
        quoted_in, span = _find(quote.strip(), indices, sources, texts)
        checks.append(QuoteCheck(quote.strip(), indices, quoted_in, span))
    return checks


def _names(sources: Sequence[Hit]) -> set[str]:
    """Names of sources: paths, file names with and without suffix, and titles."""
    paths = [PurePosixPath(str(hit.source).replace("\\", "/")) for hit in sources if hit.source]
    titles = [hit.metadata.get("title") for hit in sources]
    names = {plain(title) for title in titles if isinstance(title, str)}
    for path in paths:
        names.update(map(plain, (str(path), path.name, path.stem)))
    return names - {""}


def _find(
    quote: str, indices: Sequence[int], sources: Sequence[Hit], texts: dict[int, QuotedText]
) -> tuple[int | None, Span | None]:
    """The first source that contains a quotation, cited ones first."""
    for number in dict.fromkeys([*indices, *range(1, len(sources) + 1)]):
        if number not in texts:
            texts[number] = QuotedText(sources[number - 1].text)
        span = texts[number].span(quote)
        if span is not None:
            return number, span
    return None, None


def _within(at: int, spans: Sequence[Span]) -> bool:
    """Whether an index is within one of some sorted spans."""
    before = bisect_left(spans, (at + 1, 0))
    return before > 0 and at < spans[before - 1][1]


def _validate_sources(sources: Sequence[Hit]) -> Sequence[Hit]:
    is_valid = (
        isinstance(sources, Sequence)
        and not isinstance(sources, str)
        and is_list_of([*sources], Hit)
    )
    require(is_valid, "sources", sources, "a sequence of Hit, such as the sources of a RAGContext")
    return sources


def _validate_response(response: Any) -> str:
    validate_string("response", response)
    return response  # type: ignore[no-any-return]  # validated above


_KEPT = 8 * CLAIM_CHARACTERS  # cut only now and then, since a cut copies the rest


_BRACKETS = re.compile(r"(?:\s*[\[【［〔][^\]】］〕\n]*(?:[\]】］〕]|$))+")
_FENCES = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


class CitationStream:
    """Finds citations in a streamed answer; `CitationManager.stream` makes one.

    A citation is returned as soon as it is certain: with the character after its closing bracket,
    which distinguishes ``[1]`` from a link ``[1](https://...)``, or at the end of the answer. After
    a backtick it waits until the line shows whether it is code. The citations are those that
    `CitationManager.resolve` finds in the complete answer.

    Args:
        sources: The hits of the answer, in the order of their numbers.
        judge: See `CitationManager`; it is asked at the end.

    Raises:
        ConfigError: If they are not hits.

    Example:
        >>> from lazyrag import Hit
        >>> stream = CitationStream([Hit("n", "Use water of 80 degrees.", 1.0)])
        >>> stream.feed("80 degrees [")
        ()
        >>> [citation.index for citation in stream.feed("1].")]
        [1]
        >>> stream.text, stream.finish().problems
        ('80 degrees [1].', ())
    """

    def __init__(self, sources: Sequence[Hit], judge: Judge | None = None) -> None:
        self._sources = _validate_sources(sources)
        self._judge = judge
        self._texts = [hit.text for hit in self._sources]
        self._checker = StatementChecker(self._texts, titles=_titles(self._sources))
        self._checked = 0  # characters of the text whose statements were returned
        self._unchecked = ""  # the text behind them
        self._pieces: list[str] = []
        self._scanner = MarkerScanner()
        self._tail = ""  # the end of the text, for claims
        self._tail_begins = 0
        self._seen: set[int] = set()
        self._resolved: ResolvedCitations | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def feed(self, text: str) -> tuple[Citation, ...]:
        """Add a piece, and return the citations that it completes, each source once in an answer.

        Args:
            text: The new text; may be "".

        Raises:
            ConfigError: If it is not a string.
            GenerationError: If the stream is finished.
        """
        validate_string("text", text)
        if self._resolved is not None:
            raise GenerationError(
                "The citation stream is finished; make one stream for each answer."
            )
        self._pieces.append(text)
        self._unchecked += text
        self._tail += text
        markers = self._scanner.feed(text)
        citations = self._citations(markers)
        # The scanner holds back less than half of this, and claims need the rest.
        if len(self._tail) > 2 * _KEPT:
            self._tail_begins += len(self._tail) - _KEPT
            self._tail = self._tail[-_KEPT:]
        return citations

    def finish(self) -> ResolvedCitations:
        """Return the citations and problems of the complete answer. Idempotent."""
        if self._resolved is None:
            self._resolved = resolve(self.text, self._sources, self._judge)
        return self._resolved

    def statements(self) -> tuple[Statement, ...]:
        """Return the statements that the text so far completes, each once, without a second
        opinion.

        A sentence is complete when the next one has words, as citations may follow its full stop.
        `finish` returns all, by the complete answer: also those behind a paragraph of thousands of
        characters.
        """
        text = self._unchecked
        if len(text) > _KEPT:  # a text without sentences, which would be read again and again
            return ()
        for end in reversed(sentence_ends(text)[:-1]):
            if any(map(str.isalnum, _BRACKETS.sub("", text[end:]))):
                break
        else:
            return ()
        if len(_FENCES.findall(text, 0, end)) % 2:
            return ()
        # Markers behind a full stop belong to its sentence; at the beginning of a line to the next
        # one, too.
        behind = _BRACKETS.match(text, end)
        part = text[: behind.end() if behind else end]
        at = end if text[end - 1] == "\n" else len(part)
        offset = self._checked
        self._checked += at
        self._unchecked = text[at:]
        scanned = scan(part)
        markers = citing_markers(part, scanned.markers, self._sources)
        return tuple(
            check_statements(
                part, scanned, markers, self._checker, len(self._sources), offset=offset
            )
        )

    def _citations(self, markers: Sequence[Marker]) -> tuple[Citation, ...]:
        citations: list[Citation] = []
        for marker in markers:
            at = marker.start - self._tail_begins
            before = self._tail[max(0, at - CLAIM_CHARACTERS) : at]
            # What follows a marker after few words decides whether it is copied.
            is_undecided = len(_words_before(before)) < _FEW_WORDS and any(
                marker.text in text for text in self._texts
            )
            if is_undecided or is_copied(marker, before, "", self._texts):
                continue
            citations += new_citations(marker, before, self._sources, self._seen)
        return tuple(citations)


_LARGEST = 10**9


class CitationManager:
    """Reads, checks and rewrites the citations of answers (spec 003).

    Numbers count from 1: ``[1]`` is ``sources[0]``. Markers are [1], [1][2], [1, 2], [1-3], [[1]],
    [^1], [资料1], [Source 1] and similar ones, also in 【】, ［］ and 〔〕, with full-width digits, commas
    and dashes. Links, ``[1](https://...)``, Markdown code, and brackets without numbers are not
    markers.

    Args:
        judge: A second opinion on statements whose words are not in their sources: a function of a
            statement and the text of a source that returns a verdict, such as `chat_judge`; None
            for the rules alone.

    Example:
        >>> CitationManager().extract_citations("泡茶用80度的水[2]，三分钟[资料1，资料2]。")
        [2, 1]
    """

    def __init__(self, judge: Judge | None = None) -> None:
        require(judge is None or callable(judge), "judge", judge, "a function or None")
        self._judge = judge

    def extract_citations(self, response: str) -> list[int]:
        """Return the numbers that an answer cites, in the order of their first markers, each once.

        Includes 0 and numbers without a source, but no numbers of malformed markers.

        Args:
            response: The answer.

        Example:
            >>> CitationManager().extract_citations("Cool it [3]; pour it [1-3].")
            [3, 1, 2]
        """
        markers = scan(_validate_response(response)).markers
        return list(dict.fromkeys(chain.from_iterable(marker.numbers for marker in markers)))

    def format_citations(self, results: Sequence[Hit]) -> str:
        """Format the list of sources under an answer: a line with number, file and location for
        each.

        Args:
            results: The hits, in the order of their numbers.

        Raises:
            ConfigError: If they are not hits.

        Example:
            >>> hit = Hit("n", "...", 1.0, "tea.pdf", metadata={"location": "page 3"})
            >>> print(CitationManager().format_citations([hit]))
            [1] tea.pdf, page 3
        """
        numbered = enumerate(_validate_sources(results), start=1)
        return "\n".join(f"[{number}] {hit.label or hit.id}" for number, hit in numbered)

    def validate_citations(self, response: str, num_sources: int) -> bool:
        """Whether each marker of an answer is well-formed and each number has a source. True
        without markers.

        Args:
            response: The answer.
            num_sources: Number of sources, at least 0.

        Raises:
            ConfigError: If an argument is invalid.

        Example:
            >>> manager = CitationManager()
            >>> manager.validate_citations("[1][3]", 3), manager.validate_citations("[1][3]", 2)
            (True, False)
        """
        sources = validate_integer("num_sources", num_sources, 0)
        return not any(
            marker_problem(marker, sources) for marker in scan(_validate_response(response)).markers
        )

    def resolve(self, response: str, sources: Sequence[Hit]) -> ResolvedCitations:
        """Return the citations of an answer, their problems, and its statements, without warnings.

        Each statement has a verdict, see `lazyrag.data.result.Statement`. A citation's snippet is
        the sentence of the source that shares the most terms with the claim before the source's
        first marker.

        Args:
            response: The answer.
            sources: The hits of the answer, in the order of their numbers.

        Raises:
            ConfigError: If they are not hits.

        Example:
            >>> CitationManager().resolve("It is hot [2].", [Hit("n", "It is hot.", 1.0)]).problems
            ('The answer cites [2], which is no source; it was given only [1].',)
        """
        return resolve(_validate_response(response), _validate_sources(sources), self._judge)

    def check_quotes(self, response: str, sources: Sequence[Hit]) -> list[QuoteCheck]:
        """Check whether the cited sources contain the quotations of an answer.

        Only quotations in sentences with citations are checked, if they have at least three words
        or four Chinese characters. Case, white space and punctuation do not count; dots stand for
        omitted words.

        Args:
            response: The answer.
            sources: The hits of the answer, in the order of their numbers.

        Raises:
            ConfigError: If they are not hits.

        Example:
            >>> source = Hit("n", "Use water of 80 degrees.", 1.0)
            >>> checks = CitationManager().check_quotes("“Water of 90 degrees” [1].", [source])
            >>> [check.ok for check in checks]
            [False]
        """
        scanned = scan(_validate_response(response))
        markers = citing_markers(response, scanned.markers, _validate_sources(sources))
        return quote_checks(response, scanned, sources, markers)

    def renumber(self, response: str, mapping: Mapping[int, int | None]) -> str:
        """Replace the numbers of an answer's markers, in their style.

        Args:
            response: The answer.
            mapping: From old number to new, at least 1; None removes a number, and other numbers
                stay. A marker without numbers is removed with the space before it. Malformed
                markers stay.

        Raises:
            ConfigError: If the mapping is invalid.

        Example:
            >>> CitationManager().renumber("Cool it [1-3]; pour it [2].", {1: 1, 2: None, 3: 2})
            'Cool it [1-2]; pour it.'
        """
        require(
            isinstance(mapping, Mapping), "mapping", mapping, "a mapping such as {3: 1, 2: None}"
        )
        numbers = {}
        for old, new in mapping.items():
            validate_integer("A number to replace", old, 0)
            numbers[old] = (
                None
                if new is None
                else validate_integer(f"The new number of [{old}]", new, 1, _LARGEST)
            )
        markers = scan(_validate_response(response)).markers
        cited = self.extract_citations(response)
        expected = dict.fromkeys(numbers.get(number, number) for number in cited)
        expected.pop(None, None)
        written = _renumbered(response, markers, numbers, removed="")
        if self.extract_citations(written) == list(expected):
            return written
        # Text around a removed marker would be read as another marker: "[2[1]]" without [1].
        return _renumbered(response, markers, numbers, removed="[]")

    def stream(self, sources: Sequence[Hit]) -> CitationStream:
        """Find the citations of a streamed answer.

        Args:
            sources: The hits of the answer, in the order of their numbers.

        Raises:
            ConfigError: If they are not hits.

        Example:
            >>> stream = CitationManager().stream([Hit("n", "It is hot.", 1.0)])
            >>> stream.feed("Hot [1")
            ()
            >>> [citation.index for citation in stream.feed("]!")]
            [1]
        """
        return CitationStream(sources, self._judge)


def _renumbered(
    text: str, markers: Sequence[Marker], numbers: Mapping[int, int | None], *, removed: str
) -> str:
    """Replace the numbers of markers; ``removed`` replaces markers without numbers and the space
    before them.
    """
    pieces = []
    at = 0
    for marker in markers:
        new = marker.text if marker.fault else rewritten(marker, numbers)
        before = text[at : marker.start]
        pieces += [before if new or removed else before.rstrip(" \t\u3000"), new or removed]
        at = marker.end
    return "".join([*pieces, text[at:]])
