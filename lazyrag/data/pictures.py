"""Pictures of documents, as loaders find them and the group ``image`` refers to them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

PICTURES = "pictures"
"""Kind of source that transforms read: the pictures of a file, see `FoundPictures`."""
LINKED_PICTURES = "linked pictures"
"""The same with those that lie beside a page."""


@dataclass(frozen=True, slots=True)
class FoundPicture:
    """A picture of a file.

    Args:
        place: Where its bytes are in the file, for `read_picture`; "" for the file itself.
        digest: SHA-256 of its stored bytes.
        media_type: Such as ``"image/png"``.
        width: In pixels.
        height: In pixels.
        caption: Its caption; "" for none.
        alternative: Its alternative text; "" for none.
        where: Its page or slide, such as ``"page 3"``; "" if the file has none.
    """

    place: str
    digest: str
    media_type: str
    width: int
    height: int
    caption: str = ""
    alternative: str = ""
    where: str = ""


@dataclass(slots=True)
class FoundPictures:
    """The pictures of a file.

    Args:
        pictures: In order.
        notes: What was left out, and why.
    """

    pictures: list[FoundPicture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self) -> str:
        """As JSON."""
        return json.dumps([[asdict(one) for one in self.pictures], self.notes], ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> FoundPictures:
        """What `write` wrote."""
        pictures, notes = json.loads(text)
        return cls([FoundPicture(**one) for one in pictures], notes)
