"""Pictures of documents, as loaders find them and the group ``image`` refers to them."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

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
        return json.dumps(
            [[asdict(picture) for picture in self.pictures], self.notes], ensure_ascii=False
        )

    @classmethod
    def parse(cls, text: str) -> FoundPictures:
        """What `write` wrote."""
        pictures, notes = json.loads(text)
        return cls([FoundPicture(**settings) for settings in pictures], notes)


def write_png(image: np.ndarray, *, is_blue_first: bool = False) -> bytes:
    """Write an array (height, width) or (height, width, 3 or 4) of uint8 as PNG, without
    transparency.
    """
    image = image.reshape(*image.shape[:2], -1)[:, :, :3]
    image = image[:, :, ::-1] if is_blue_first else image
    height, width, colours = image.shape
    rows = zlib.compressobj(6)
    packed = b"".join([*(rows.compress(b"\0" + row.tobytes()) for row in image), rows.flush()])
    header = struct.pack(">2I5B", width, height, 8, 2 if colours == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
