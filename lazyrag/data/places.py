"""Places that lie within other places."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from lazyrag.data.segment import Place


def innermost(places: Sequence[Place]) -> list[Place]:
    """Places in order, without those that enclose the next one: a page of a member of an archive names the member, too.

    Example:
        >>> member, page = Place(0, 9, "member", "a.pdf"), Place(0, 9, "page", "a.pdf > 1")
        >>> [place.kind for place in innermost([member, page])]
        ['page']
    """
    pairs = itertools.zip_longest(places, places[1:])
    return [one for one, after in pairs if after is None or not (one.start <= after.start and after.end <= one.end)]
