"""The citations of an answer with their sources, and all that is wrong with them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from lazyrag.data.result import Citation, Hit
from lazyrag.errors import ConfigError
from lazyrag.generation.claims import CLAIM_CHARACTERS, cited_with, claim_before, snippet
from lazyrag.generation.hit_names import place_of
from lazyrag.generation.marker_scanner import Scanned, scan
from lazyrag.generation.markers import Marker
from lazyrag.generation.quotes import QuoteCheck, QuotedText, plain, quotations


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
