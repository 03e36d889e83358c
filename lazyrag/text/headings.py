"""Headings as places: what stands under which heading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lazyrag.data.segment import Place


class Heading(NamedTuple):
    """A heading: where its line starts in the text, its level from 1, its words."""

    start: int
    level: int
    title: str


def heading_places(headings: Sequence[Heading], length: int) -> tuple[Place, ...]:
    """The stretches under each heading, up to the next one, labelled with the path of headings above.

    Args:
        headings: In the text's order.
        length: The text's length.

    Example:
        >>> [place.label for place in heading_places([Heading(0, 1, "Tea"), Heading(9, 2, "Picking")], 20)]
        ['Tea', 'Tea > Picking']
    """
    places = []
    path: list[Heading] = []
    for number, heading in enumerate(headings):
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        end = headings[number + 1].start if number + 1 < len(headings) else length
        places.append(Place(heading.start, end, "heading", " > ".join(one.title for one in path)))
    return tuple(places)
