"""Which hits go into a context, how much of each, and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lazyrag.data.result import Hit
from lazyrag.text.sentences import sentence_ends

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
    """

    hits: tuple[Hit, ...]
    cut: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()


def distinct(hits: Sequence[Hit]) -> tuple[list[Hit], list[str]]:
    """Hits without those that say nothing new, and the ids of these.

    Nothing new: the same id, the same text but for white space, or a text that stands as a whole within a better hit of
    the same document, as that of an overlapping chunk does.
    """
    kept: list[Hit] = []
    dropped: list[str] = []
    seen: set[str] = set()
    within: dict[str, list[str]] = {}
    for hit in hits:
        text = " ".join(hit.text.split())
        own = within.setdefault(hit.document_id or hit.source, [])
        known_place = bool(hit.document_id or hit.source)
        if (hit.id and hit.id in seen) or f"\0{text}" in seen or (known_place and any(text in one for one in own)):
            dropped.append(hit.id)
            continue
        seen |= {hit.id, f"\0{text}"}
        own.append(text)
        kept.append(hit)
    return kept, dropped


def pack(hits: Sequence[Hit], room: int, cost: Callable[[Hit], int]) -> Packed:
    """Hits into a number of tokens, the best first.

    A hit that does not fit is shortened to the sentences that do, at most one of all hits; one of which not even the
    first sentence fits is left out, and those behind it, which may be shorter, are still tried.

    Args:
        hits: Best first.
        room: Tokens that they may take together.
        cost: Of a hit as it is written.
    """
    taken: list[Hit] = []
    cut: list[str] = []
    left_out: list[str] = []
    blank = [hit.id for hit in hits if not hit.text.strip()]
    for hit in hits:
        if not hit.text.strip():
            continue
        needed = cost(hit)
        if needed > room and not cut and (shorter := shortened(hit, room, cost)):
            cut.append(hit.id)
            hit, needed = shorter, cost(shorter)  # noqa: PLW2901  it is the shorter one that is taken
        if needed > room:
            left_out.append(hit.id)
            continue
        taken.append(hit)
        room -= needed
    return Packed(tuple(taken), tuple(cut), tuple(left_out), tuple(blank))


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
