"""Which sources an answer cites, whether there are such sources, and whether they say what is quoted from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lazyrag.data.result import Hit
from lazyrag.errors import ConfigError
from lazyrag.generation.citation_stream import CitationStream
from lazyrag.generation.hit_names import place_of, source_of
from lazyrag.generation.marker_scanner import scan
from lazyrag.generation.markers import Marker, rewritten
from lazyrag.generation.quotes import QuoteCheck
from lazyrag.generation.resolved import ResolvedCitations, checked_sources, marker_problem, quote_checks, resolve
from lazyrag.validation import whole_number

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
