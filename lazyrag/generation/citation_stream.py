"""Citations of an answer while it is being written."""

from __future__ import annotations

from collections.abc import Sequence

from lazyrag.data.result import Citation, Hit
from lazyrag.errors import ConfigError, GenerationError
from lazyrag.generation.claims import CLAIM_CHARACTERS
from lazyrag.generation.marker_scanner import MarkerScanner
from lazyrag.generation.markers import Marker
from lazyrag.generation.resolved import ResolvedCitations, checked_sources, new_citations, resolve

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
