"""Which sources an answer cites, whether there are such sources, and whether they say what is quoted from them."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lazyrag.data.result import Citation, Hit
from lazyrag.errors import ConfigError, GenerationError
from lazyrag.generation.markers import Marker, MarkerScanner, Scanned, place_of, rewritten, scan, source_of
from lazyrag.text.analyzers import english_terms
from lazyrag.text.sentences import CJK_LETTERS, last_break, sentence_spans
from lazyrag.validation import whole_number

CLAIM_CHARACTERS = 600
"""How far before its marker a claim is looked for."""

_LONGEST_SNIPPET = 200


def claim_before(text: str) -> str:
    """The claim that a marker at the end of a text cites for: its sentence so far, without other markers.

    A marker that stands behind the full stop belongs to the sentence before it.

    Args:
        text: The answer up to the marker; only the last `CLAIM_CHARACTERS` are read.

    Example:
        >>> claim_before("Tea is old. Pour it at 80 degrees. [1]")
        'Pour it at 80 degrees.'
    """
    text = text[-CLAIM_CHARACTERS:]
    text = _without(text, scan(text).markers)
    sentences = [text[start:end].strip() for start, end in sentence_spans(text)]
    return next((one for one in reversed(sentences) if any(map(str.isalnum, one))), "")


def snippet(source: str, claim: str) -> str:
    """The words of a source that a claim rests on: the sentence that shares the most terms with it.

    Args:
        source: Text of the source.
        claim: What is claimed, in Chinese or English.

    Returns:
        A stretch of the source, at most 200 characters; the first of equals, so its beginning where nothing is shared.

    Example:
        >>> snippet("Tea is old. Water of 80 degrees is best.", "Pour the water at 80 degrees")
        'Water of 80 degrees is best.'
    """
    wanted = set(english_terms(claim))
    best, most = "", -1
    for piece in _pieces(source):
        shared = len(wanted.intersection(english_terms(piece))) if wanted else 0
        if shared > most:
            best, most = piece, shared
    return best


def cited_with(
    text: str, markers: Sequence[Marker], spans: Sequence[tuple[int, int]], *, sources: int
) -> list[tuple[int, ...]]:
    """For each stretch of an answer, the numbers of sources that its sentences cite, in their order, each once.

    Args:
        text: The answer.
        markers: Its markers.
        spans: Start and end of each stretch.
        sources: How many sources there are; other numbers are left out.

    Example:
        >>> text = "“Tea is old.” [2] It is."
        >>> cited_with(text, scan(text).markers, [(1, 12)], sources=2)
        [(2,)]
    """
    starts: list[int] = []
    worded: list[int] = []  # of each sentence: itself, or the last one before it that has words
    for number, (start, end) in enumerate(sentence_spans(text)):
        starts.append(start)
        has_words = any(map(str.isalnum, text[start:end]))
        worded.append(number if has_words or number == 0 else worded[-1])
    numbers: dict[int, dict[int, None]] = {}
    current, behind, claims = -1, 0, False  # the sentence, where its last marker ends, whether words stand before it
    for marker in markers:
        sentence = bisect_right(starts, marker.start) - 1
        if sentence != current:
            current, behind, claims = sentence, starts[sentence], False
        claims = claims or any(map(str.isalnum, text[behind : marker.start]))
        behind = marker.end
        begins_line = text[max(0, marker.start - 9) : marker.start].rstrip(" \t")[-1:] == "\n"
        cited = dict.fromkeys(number for number in marker.numbers if 1 <= number <= sources)
        if claims or begins_line or sentence == 0:
            numbers.setdefault(sentence, {}).update(cited)
        if not claims and sentence > 0:  # it stands behind the full stop
            numbers.setdefault(worded[sentence - 1], {}).update(cited)
    found = []
    for start, end in spans:
        first, last = bisect_right(starts, start) - 1, bisect_right(starts, max(start, end - 1)) - 1
        found.append(tuple({number: None for one in range(first, last + 1) for number in numbers.get(one, ())}))
    return found


def _pieces(text: str) -> Iterator[str]:
    """The sentences of a text, long ones in pieces, without the white space around them."""
    for start, end in sentence_spans(text):
        at = start
        while at < end:
            cut = end if end - at <= _LONGEST_SNIPPET else last_break(text, at, at + _LONGEST_SNIPPET)
            piece = text[at:cut].strip()
            if piece:
                yield piece
            at = cut


def _without(text: str, markers: Sequence[Marker]) -> str:
    pieces, at = [], 0
    for marker in markers:
        pieces.append(text[at : marker.start])
        at = marker.end
    return "".join([*pieces, text[at:]])


_LONGEST = 1000
# Each body leaves out its own opening mark, so that marks which nothing closes cost no more than the text's length.
# Straight marks stand at the edge of a word, or are inches; a single mark within a word is an apostrophe.
_QUOTATION = re.compile(
    rf"“([^“”\n]{{1,{_LONGEST}}})”|「([^「」\n]{{1,{_LONGEST}}})」|『([^『』\n]{{1,{_LONGEST}}})』"
    rf"|«([^«»\n]{{1,{_LONGEST}}})»|(?<![A-Za-z0-9])\"([^\"\n]{{1,{_LONGEST}}})\"(?![A-Za-z0-9])"
    rf"|(?<!\w)‘([^‘\n]{{1,{_LONGEST}}}?)’(?!\w)"
)
_ELISION = re.compile(r"\[\s*(?:\.{3,}|…+)\s*\]|\(\s*(?:\.{3,}|…+)\s*\)|（\s*…+\s*）|\.{3,}|…+|。{3,}")
_CJK = re.compile(f"[{CJK_LETTERS}]")
_WORD = re.compile(r"\w+")
_FEWEST_WORDS = 3
_FEWEST_CJK = 4
_DASHES = frozenset("‐‑‒–—−")


@dataclass(frozen=True, slots=True)
class QuoteCheck:
    """What became of one quotation in an answer.

    Args:
        quote: Its words, without the marks.
        indices: The numbers of the sources that its sentence cites.
        found: The number of the source it stands in: one of ``indices`` if it can be; None if it stands in none.
        span: Its start and end in that source's text; None if it stands in none.

    Example:
        >>> QuoteCheck("water of 80 degrees", (1,), 2, (10, 29)).ok
        False
    """

    quote: str
    indices: tuple[int, ...]
    found: int | None
    span: tuple[int, int] | None

    @property
    def ok(self) -> bool:
        """Whether it stands in a source that its sentence cites."""
        return self.found in self.indices

    @property
    def problem(self) -> str:
        """What is wrong, as a sentence; "" if it stands where its sentence says."""
        if self.ok:
            return ""
        shown = self.quote if len(self.quote) <= 60 else self.quote[:60] + "..."
        cited = " and ".join(f"[{index}]" for index in self.indices)
        where = f"it stands in [{self.found}]" if self.found is not None else "it stands in none of the sources"
        return f"The words {shown!r} are quoted from {cited}, but {where}."


def quotations(text: str) -> list[tuple[int, int]]:
    """Start and end, without the marks, of each quotation that is long enough to be one.

    Marks are “ ”, ‘ ’, straight double ones, 「 」, 『 』 and « »; 《 》 marks a title. A quotation stands in one line
    and has at least three words or four Chinese characters: shorter ones name a thing, or keep a distance from it.

    Example:
        >>> text = '"Pour it at 80 degrees", says the "expert".'
        >>> [text[start:end] for start, end in quotations(text)]
        ['Pour it at 80 degrees']
    """
    found = []
    for match in _QUOTATION.finditer(text):
        start, end = match.span(match.lastindex or 0)
        cjk = len(_CJK.findall(text, start, end))
        words = len(_WORD.findall(text, start, end))
        if cjk >= _FEWEST_CJK or words >= _FEWEST_WORDS:
            found.append((start, end))
    return found


class QuotedText:
    """A text in which quotations are looked up; it is read once, however many they are.

    Letters are compared after NFKC and case folding. White space and punctuation only part words, and between Chinese
    characters not even that; they count within numbers: 1.5 is not 15, and -5 is not 5.

    Args:
        text: The text of a source.

    Example:
        >>> QuotedText("Use water of about 80 degrees.").span("WATER of ... 80 degrees")
        (4, 29)
    """

    def __init__(self, text: str) -> None:
        self._plain, self._places = _plain(text)

    def span(self, quote: str) -> tuple[int, int] | None:
        """Start and end of a quotation in the text; None if it does not stand there.

        Args:
            quote: Its words; behind dots, ``...`` or ``……``, words may have been left out: its parts stand in order.
        """
        start, at = -1, 0
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
        return self._places[start], self._places[at - 1] + 1

    def _find(self, words: str, at: int) -> int:
        """The first place at or behind another one at which words stand, whole ones; -1 if there is none."""
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
    """What of a text is compared.

    Example:
        >>> plain("The Tea-Grower's Handbook.pdf") == plain("the tea-grower's handbook pdf")
        True
    """
    return _plain(text)[0]


def _plain(text: str) -> tuple[str, list[int]]:
    """What of a text is compared, and the place of each of its characters in the text."""
    plain: list[str] = []
    places: list[int] = []
    parted = False
    for place, character in enumerate(text):
        for one in unicodedata.normalize("NFKC", character).casefold():
            if not one.isalnum() and unicodedata.category(one)[0] in "PZCM" and one != "%":
                kept = _of_number(text, place, one)
                if not kept:
                    parted = parted or unicodedata.category(one)[0] in "PZC"
                    continue
                one = kept  # noqa: PLW2901  all dashes are one
            if parted and plain and _one_word(plain[-1], one):
                plain.append(" ")
                places.append(place)
            parted = False
            plain.append(one)
            places.append(place)
    return "".join(plain), places


def _of_number(text: str, place: int, character: str) -> str:
    """A dot, comma, colon, slash or dash within a number, or the minus before one; "" for other punctuation."""
    before, behind = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    if not behind.isdigit():
        return ""
    if character in _DASHES or character == "-":
        return "-" if before.isdigit() or not before.isalnum() else ""
    return character if before.isdigit() and character in ".,:/" else ""


def _one_word(character: str, following: str) -> bool:
    """Whether two neighbours would be read as one word: letters or digits that are not Chinese."""
    return character.isalnum() and following.isalnum() and not _CJK.match(character) and not _CJK.match(following)


@dataclass(frozen=True, slots=True)
class ResolvedCitations:
    """The citations of an answer, and what is wrong with them.

    Args:
        citations: A citation for each source that is cited, in the order in which the answer first names them.
        problems: Malformed markers, numbers without a source, and quotations that do not stand where the answer says: a
            sentence each, each once.

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


def resolve(response: str, sources: Sequence[Hit]) -> ResolvedCitations:
    """Match the markers of an answer with its sources: `CitationManager.resolve`."""
    scanned = scan(response)
    seen: set[int] = set()
    citations: list[Citation] = []
    for marker in scanned.markers:
        before = response[max(0, marker.start - CLAIM_CHARACTERS) : marker.start]
        citations += new_citations(marker, before, sources, seen)
    problems = [problem for marker in scanned.markers if (problem := marker_problem(marker, len(sources)))]
    problems += [check.problem for check in quote_checks(response, scanned, sources) if not check.ok]
    return ResolvedCitations(tuple(citations), tuple(dict.fromkeys(problems)))


def new_citations(marker: Marker, before: str, sources: Sequence[Hit], seen: set[int]) -> Iterator[Citation]:
    """The citations of a marker for sources that were not cited yet.

    Args:
        marker: The marker.
        before: The answer before it, `CLAIM_CHARACTERS` of it at least.
        sources: The sources by their numbers.
        seen: Numbers that were cited; the new ones are added.
    """
    new = [number for number in marker.numbers if 1 <= number <= len(sources) and number not in seen]
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
            place=place_of(hit),
        )


def marker_problem(marker: Marker, sources: int) -> str:
    """What is wrong with a marker, as a sentence, given how many sources there are; "" if nothing is."""
    if marker.fault:
        return marker.fault
    missing = [number for number in marker.numbers if not 1 <= number <= sources]
    if not missing:
        return ""
    given = {0: "no sources", 1: "only [1]"}.get(sources, f"[1] to [{sources}]")
    named = ", ".join(f"[{number}]" for number in missing[:3]) + (", ..." if len(missing) > 3 else "")
    are = "is no source" if len(missing) == 1 else "are no sources"
    return f"The answer cites {named}, which {are}; it was given {given}."


def quote_checks(response: str, scanned: Scanned, sources: Sequence[Hit]) -> list[QuoteCheck]:
    """Look up each quotation whose sentence cites a source, names of files and titles apart."""
    spans = [span for span in quotations(response) if not _within(span[0], scanned.code)]
    starts = [marker.start for marker in scanned.markers]
    cited = cited_with(response, scanned.markers, spans, sources=len(sources))
    texts: dict[int, QuotedText] = {}
    names: set[str] | None = None
    checks = []
    for (start, end), indices in zip(spans, cited, strict=True):
        if not indices:
            continue
        quote = response[start:end]
        for marker in scanned.markers[bisect_left(starts, start) : bisect_left(starts, end)]:
            quote = quote.replace(marker.text, "")
        names = _names(sources) if names is None else names
        if plain(quote) in names:
            continue  # it names a source, and quotes nothing
        found, span = _find(quote.strip(), indices, sources, texts)
        checks.append(QuoteCheck(quote.strip(), indices, found, span))
    return checks


def _names(sources: Sequence[Hit]) -> set[str]:
    """What sources are called: their paths, their files' names, with and without ending, and their titles."""
    paths = [PurePosixPath(str(hit.source).replace("\\", "/")) for hit in sources if hit.source]
    titles = [title for hit in sources if isinstance(title := hit.metadata.get("title"), str)]
    told = [*titles, *(name for path in paths for name in (str(path), path.name, path.stem))]
    return {plain(name) for name in told} - {""}


def _find(
    quote: str, indices: Sequence[int], sources: Sequence[Hit], texts: dict[int, QuotedText]
) -> tuple[int | None, tuple[int, int] | None]:
    """The first source a quotation stands in, those that are cited before the others."""
    for number in dict.fromkeys([*indices, *range(1, len(sources) + 1)]):
        if number not in texts:
            texts[number] = QuotedText(sources[number - 1].text)
        span = texts[number].span(quote)
        if span is not None:
            return number, span
    return None, None


def _within(at: int, stretches: Sequence[tuple[int, int]]) -> bool:
    """Whether a place lies in one of some stretches, which are in order."""
    before = bisect_left(stretches, (at + 1, 0))
    return before > 0 and at < stretches[before - 1][1]


def checked_sources(sources: Sequence[Hit]) -> Sequence[Hit]:
    """Sources that can be counted.

    Raises:
        ConfigError: If they are something else than hits.
    """
    if (
        isinstance(sources, str)
        or not isinstance(sources, Sequence)
        or not all(isinstance(one, Hit) for one in sources)
    ):
        msg = f"sources is {sources!r:.80}; give a sequence of Hit, such as the sources of a RAGContext."
        raise ConfigError(msg)
    return sources


_KEPT = 8 * CLAIM_CHARACTERS  # cut back only now and then: a cut copies what is kept


class CitationStream:
    """Finds citations in an answer that comes in pieces; `CitationManager.stream` makes one.

    A citation is handed out as soon as it is certain: with the character behind its closing bracket, which tells
    ``[1]`` from a link ``[1](https://...)``; or with the answer's end. Behind a backtick it waits until the line shows
    whether it is code. What is handed out is what `CitationManager.resolve` finds in the whole.

    Args:
        sources: The hits that the answer was made from, in the order of their numbers.

    Raises:
        ConfigError: If they are something else than hits.

    Example:
        >>> from lazyrag import Hit
        >>> stream = CitationStream([Hit("n", "Use water of 80 degrees.", 1.0)])
        >>> [citation.index for piece in ("80 degrees [", "1]", ".") for citation in stream.feed(piece)]
        [1]
        >>> stream.text, stream.finish().problems
        ('80 degrees [1].', ())
    """

    def __init__(self, sources: Sequence[Hit]) -> None:
        self._sources = checked_sources(sources)
        self._pieces: list[str] = []
        self._scanner = MarkerScanner()
        self._tail = ""  # the end of the text, for claims
        self._tail_begins = 0
        self._seen: set[int] = set()
        self._resolved: ResolvedCitations | None = None

    @property
    def text(self) -> str:
        """All that was fed."""
        return "".join(self._pieces)

    def feed(self, text: str) -> tuple[Citation, ...]:
        """The citations that a piece completes, each source once in an answer.

        Args:
            text: What is new; may be "".

        Raises:
            ConfigError: If it is no text.
            GenerationError: If the stream is finished.
        """
        if not isinstance(text, str):
            msg = f"A piece of the answer is {text!r:.80}; give a text."
            raise ConfigError(msg)
        if self._resolved is not None:
            msg = "The stream of citations is finished and was fed again; make one stream for each answer."
            raise GenerationError(msg)
        self._pieces.append(text)
        self._tail += text
        found = self._citations(self._scanner.feed(text))
        # The scanner holds back less than half of what is kept, and claims need the rest.
        if len(self._tail) > 2 * _KEPT:
            self._tail_begins += len(self._tail) - _KEPT
            self._tail = self._tail[-_KEPT:]
        return found

    def finish(self) -> ResolvedCitations:
        """The citations and problems of the whole, the last ones too; asked again, the same."""
        if self._resolved is None:
            self._resolved = resolve(self.text, self._sources)
        return self._resolved

    def _citations(self, markers: Sequence[Marker]) -> tuple[Citation, ...]:
        found: list[Citation] = []
        for marker in markers:
            at = marker.start - self._tail_begins
            before = self._tail[max(0, at - CLAIM_CHARACTERS) : at]
            found += new_citations(marker, before, self._sources, self._seen)
        return tuple(found)


_LARGEST = 10**9


class CitationManager:
    """Reads, checks and rewrites the citations of answers (spec 003).

    Numbers count from 1: ``[1]`` is ``sources[0]``. Read as markers are [1], [1][2], [1, 2], [1-3], [[1]], [^1],
    [资料1], [Source 1] and their like, also in 【】, ［］ and 〔〕, with full-width digits, commas and dashes. No
    markers are links, ``[1](https://...)``, what stands in Markdown's code, and brackets without numbers.

    Example:
        >>> CitationManager().extract_citations("泡茶用80度的水[2]，三分钟[资料1，资料2]。")
        [2, 1]
    """

    def extract_citations(self, response: str) -> list[int]:
        """The numbers that an answer cites, in the order in which it first names them, each once.

        They are those that are written: 0 and numbers without a source are among them. Malformed markers name none.

        Args:
            response: The answer.

        Example:
            >>> CitationManager().extract_citations("Cool it [3]; pour it [1-3].")
            [3, 1, 2]
        """
        markers = scan(_text(response)).markers
        return list(dict.fromkeys(number for marker in markers for number in marker.numbers))

    def format_citations(self, results: Sequence[Hit]) -> str:
        """The list of sources under an answer: a line with number, file and place for each.

        Args:
            results: The hits, in the order of their numbers.

        Raises:
            ConfigError: If they are something else than hits.

        Example:
            >>> hit = Hit("n", "...", 1.0, "tea.pdf", metadata={"place": "page 3"})
            >>> print(CitationManager().format_citations([hit]))
            [1] tea.pdf, page 3
        """
        return "\n".join(
            f"[{number}] {source_of(hit) if hit.source else ', '.join(filter(None, (hit.id, place_of(hit))))}"
            for number, hit in enumerate(checked_sources(results), start=1)
        )

    def validate_citations(self, response: str, num_sources: int) -> bool:
        """Whether each marker of an answer is well-formed and each number has a source; so, too, if there are none.

        Args:
            response: The answer.
            num_sources: How many sources there are, at least 0.

        Raises:
            ConfigError: If that is no such number.

        Example:
            >>> manager = CitationManager()
            >>> manager.validate_citations("[1][3]", 3), manager.validate_citations("[1][3]", 2)
            (True, False)
        """
        sources = whole_number("num_sources", num_sources, 0)
        return not any(marker_problem(marker, sources) for marker in scan(_text(response)).markers)

    def resolve(self, response: str, sources: Sequence[Hit]) -> ResolvedCitations:
        """The sources that an answer cites, and all that is wrong with its citations. Nothing is warned of.

        A citation's snippet is the sentence of the source that shares the most terms with what the answer says before
        it first cites the source.

        Args:
            response: The answer.
            sources: The hits it was made from, in the order of their numbers.

        Raises:
            ConfigError: If they are something else than hits.

        Example:
            >>> CitationManager().resolve("It is hot [2].", [Hit("n", "It is hot.", 1.0)]).problems
            ('The answer cites [2], which is no source; it was given only [1].',)
        """
        return resolve(_text(response), checked_sources(sources))

    def check_quotes(self, response: str, sources: Sequence[Hit]) -> list[QuoteCheck]:
        """Whether the quotations of an answer stand in the sources that their sentences cite.

        Quotations are checked where their sentence cites a source; they have at least three words or four Chinese
        characters. Case, white space and punctuation do not count; dots stand for words that were left out.

        Args:
            response: The answer.
            sources: The hits it was made from, in the order of their numbers.

        Raises:
            ConfigError: If they are something else than hits.

        Example:
            >>> source = Hit("n", "Use water of 80 degrees.", 1.0)
            >>> [check.ok for check in CitationManager().check_quotes("“Water of 90 degrees” [1].", [source])]
            [False]
        """
        return quote_checks(_text(response), scan(response), checked_sources(sources))

    def renumber(self, response: str, mapping: Mapping[int, int | None]) -> str:
        """An answer with other numbers in its markers, their style kept.

        Args:
            response: The answer.
            mapping: From old number to new, at least 1; None drops a number, and one that is not named stays. A marker
                without numbers goes, with the space before it. Malformed markers stay as they are.

        Raises:
            ConfigError: If the mapping has something else in it.

        Example:
            >>> CitationManager().renumber("Cool it [1-3]; pour it [2].", {1: 1, 2: None, 3: 2})
            'Cool it [1-2]; pour it.'
        """
        if not isinstance(mapping, Mapping):
            msg = f"mapping is {mapping!r:.80}; give a mapping from old number to new, such as {{3: 1, 2: None}}."
            raise ConfigError(msg)
        numbers = {
            whole_number("A number to replace", old, 0): None
            if new is None
            else whole_number(f"The new number of [{old}]", new, 1, _LARGEST)
            for old, new in mapping.items()
        }
        markers = scan(_text(response)).markers
        cited = (numbers.get(number, number) for marker in markers for number in marker.numbers)
        wanted = list(dict.fromkeys(number for number in cited if number is not None))
        written = _replaced(response, markers, numbers, dropped="")
        if self.extract_citations(written) == wanted:
            return written
        # What stood around a marker that went would now be read as another: "[2[1]]" without [1].
        return _replaced(response, markers, numbers, dropped="[]")

    def stream(self, sources: Sequence[Hit]) -> CitationStream:
        """Find the citations of one answer while it is being written.

        Args:
            sources: The hits it is made from, in the order of their numbers.

        Raises:
            ConfigError: If they are something else than hits.

        Example:
            >>> stream = CitationManager().stream([Hit("n", "It is hot.", 1.0)])
            >>> [citation.index for piece in ("Hot [1", "]", "!") for citation in stream.feed(piece)]
            [1]
        """
        return CitationStream(sources)


def _replaced(text: str, markers: Sequence[Marker], numbers: Mapping[int, int | None], *, dropped: str) -> str:
    """A text with other markers; in the place of those that go, and of the space before them, something else."""
    pieces, at = [], 0
    for marker in markers:
        new = marker.text if marker.fault else rewritten(marker, numbers)
        before = text[at : marker.start]
        pieces += [before if new or dropped else before.rstrip(" \t\u3000"), new or dropped]
        at = marker.end
    return "".join([*pieces, text[at:]])


def _text(response: Any) -> str:
    if not isinstance(response, str):
        msg = f"response is {response!r:.80}; give the answer's text."
        raise ConfigError(msg)
    return response
