"""What an answer claims where it cites: the sentence of a marker, and the words of a source that it rests on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lazyrag.generation.marker_scanner import scan
from lazyrag.generation.markers import Marker
from lazyrag.text.analyzers import english_terms
from lazyrag.text.sentences import last_break, sentence_spans

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
