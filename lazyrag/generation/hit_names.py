"""What people call a hit: its file, and the place in it; always one line."""

from __future__ import annotations

from lazyrag.data.result import Hit


def place_of(hit: Hit) -> str:
    """Where in its file a hit stands; "" where that is not known, or is no text, as a null of a store of others.

    Example:
        >>> place_of(Hit("1", "tea", 1.0, metadata={"place": None})), place_of(Hit("1", "tea", 1.0))
        ('', '')
    """
    place = hit.metadata.get("place")
    return " ".join(place.split()) if isinstance(place, str) else ""


def source_of(hit: Hit) -> str:
    """File and place of a hit, as a person would look it up; "" where nothing is known.

    Example:
        >>> source_of(Hit("1", "tea", 1.0, "tea.pdf", metadata={"place": "page 3"}))
        'tea.pdf, page 3'
    """
    return ", ".join(one for one in (" ".join(str(hit.source).split()), place_of(hit)) if one)
