"""Which hits go into a context, how much of each, and in which order."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lazyrag.data.result import Hit
from lazyrag.text.sentences import CJK_LETTERS, sentence_ends

_LONG = 1000  # characters
_FULL_STOPS = (".", "!", "?", "。", "！", "？", "…", "．")
_WORD_END = re.compile(rf"\S(?=\s)|[{CJK_LETTERS}]")

Order: TypeAlias = Literal["rank", "lost_in_the_middle", "document"]
"""How sources stand in a context: best first; the best at both ends; as they stand in their documents."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What became of the hits.

    Args:
        hits: What goes in, best first, each with the text that goes in.
        cut: Ids of those among them that were shortened.
        left_out: Ids of those for which there was no room.
        blank: Ids of those without a text.
        duplicates: Ids of those that say nothing new.
    """

    hits: tuple[Hit, ...]
    cut: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


class _Chosen:
    """What stands in a context already, to tell what would say nothing new beside it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._texts: set[str] = set()
        self._of_document: dict[str, list[str]] = {}

    def has(self, hit: Hit) -> bool:
        """Whether it has the hit's id, its text but for white space, or a text of its document that contains it."""
        if hit.id and hit.id in self._ids:
            return True
        text = _folded(hit.text)
        return text in self._texts or any(text in one for one in self._of_document.get(_named_document(hit), ()))

    def add(self, hit: Hit, kept: Hit) -> None:
        """A hit, and what of it went in: the text that was cut off is not there to contain another."""
        self._ids.add(hit.id)
        self._texts.add(_folded(hit.text))
        if document := _named_document(hit):
            self._of_document.setdefault(document, []).append(_folded(kept.text))


def _folded(text: str) -> str:
    return " ".join(text.split())


def _named_document(hit: Hit) -> str:
    return hit.document_id or hit.source


def pack(hits: Sequence[Hit], room: int, cost: Callable[[Hit], int], *, dedupe: bool) -> Packed:
    """Hits into a number of tokens, the best first.

    A hit that does not fit is shortened to the sentences that do, at most one of all hits; one of which not even the
    first sentence fits is left out, and those behind it, which may be shorter, are still tried. Where nothing at all
    would go in, the best one goes in up to a word if it is long and has no full stop: a table is better
    begun than not read.

    Args:
        hits: Best first.
        room: Tokens that they may take together.
        cost: Of a hit as it is written.
        dedupe: Whether hits are dropped that say nothing new beside those that went in: the same id, the same text but
            for white space, or a text that stands as a whole within one of the same document, as an overlapping
            chunk's does.
    """
    taken: list[Hit] = []
    cut: list[str] = []
    left_out: list[str] = []
    blank: list[str] = []
    duplicates: list[str] = []
    chosen = _Chosen()
    for hit in hits:
        if not hit.text.strip():
            blank.append(hit.id)
            continue
        if dedupe and chosen.has(hit):
            duplicates.append(hit.id)
            continue
        kept, needed = hit, cost(hit)
        if needed > room and not cut and (shorter := shortened(hit, room, cost)):
            cut.append(hit.id)
            kept, needed = shorter, cost(shorter)
        if needed > room:
            left_out.append(hit.id)
            continue
        taken.append(kept)
        chosen.add(hit, kept)
        room -= needed
    if not taken and left_out:
        best = next(hit for hit in hits if hit.text.strip())
        # Some counters count the whole as more than its parts: a little room stays.
        if _is_table(best.text) and (begun := beginning(best, room - max(8, room // 20), cost)):
            taken.append(begun)
            cut.append(best.id)
            left_out.remove(best.id)
    return Packed(tuple(taken), tuple(cut), tuple(left_out), tuple(blank), tuple(duplicates))


def shortened(hit: Hit, room: int, cost: Callable[[Hit], int]) -> Hit | None:
    """A hit with as many of its first sentences as fit; None where not one does, or its text is a single one."""
    ends = list(sentence_ends(hit.text))[:-1]
    low, high = 0, len(ends)  # so many sentences fit; so many may
    while low < high:
        middle = (low + high + 1) // 2
        if cost(_kept(hit, ends[middle - 1])) <= room:
            low = middle
        else:
            high = middle - 1
    return _kept(hit, ends[low - 1]) if low and hit.text[: ends[low - 1]].strip() else None


def _is_table(text: str) -> bool:
    """Whether a text is long and has no end of a sentence."""
    return len(text) > _LONG and len(list(sentence_ends(text))) == 1 and not text.rstrip().endswith(_FULL_STOPS)


def beginning(hit: Hit, room: int, cost: Callable[[Hit], int]) -> Hit | None:
    """A hit with as much of its beginning as fits, up to the end of a word; None where nothing does."""
    low, high = 0, len(hit.text)  # so many characters fit; so many may
    while low < high:
        middle = (low + high + 1) // 2
        if cost(_kept(hit, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    ends = [found.end() for found in _WORD_END.finditer(hit.text, 0, low)] if low < len(hit.text) else [low]
    while ends and cost(_kept(hit, ends[-1])) > room:  # fewer characters may be more tokens
        ends.pop()
    return _kept(hit, ends[-1]) if ends and hit.text[: ends[-1]].strip() else None


def _kept(hit: Hit, end: int) -> Hit:
    return dataclasses.replace(hit, text=hit.text[:end].rstrip())


def arranged(hits: Sequence[Hit], order: Order) -> list[Hit]:
    """Hits in the order in which they are to stand; they come best first.

    Source:
        The best at both ends, the least in the middle, where models read least: Liu et al.: Lost in the Middle: How
        Language Models Use Long Contexts, TACL 2024, arXiv:2307.03172.

    Example:
        >>> hits = [Hit(str(n), "", 1 / n) for n in range(1, 6)]
        >>> "".join(hit.id for hit in arranged(hits, "lost_in_the_middle"))
        '13542'
    """
    if order == "rank":
        return list(hits)
    if order == "lost_in_the_middle":
        return [*hits[::2], *hits[1::2][::-1]]
    # Documents in the order of their best hits; in each, as the nodes stand.
    documents = {key: at for at, key in reversed(list(enumerate(_document(hit) for hit in hits)))}
    return sorted(hits, key=lambda hit: (documents[_document(hit)], hit.chunk_id))


def _document(hit: Hit) -> str:
    return hit.document_id or hit.source or f"\0{hit.id}"
