"""Pictures in files: found with captions and alternative texts, and read again by their place in
the file.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import posixpath
import re
import struct
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyrag.data.pictures import FoundPicture, FoundPictures
from lazyrag.errors import LazyRAGError, LoadError, remade_error
from lazyrag.loaders.archives import (
    Archive,
    Element,
    attribute,
    local_name,
    open_archive,
    related,
    relations,
)
from lazyrag.loaders.base import check_pages, is_built_in, reading
from lazyrag.loaders.detect import clean, decode
from lazyrag.loaders.media import SUFFIXES
from lazyrag.loaders.slides import TITLES, role_of, slide_parts
from lazyrag.types import JsonObject

if TYPE_CHECKING:
    from lazyrag.loaders.pdf import PdfFile

MIN_SIDE = 64
"""Pixels of the shorter side: smaller pictures are icons, bullets and rules."""
MAX_REPEATS = 3
"""Places with the same picture from which it is a logo or a background."""
MAX_PIXELS = 40_000_000
MAX_BYTES = 32 << 20
MAX_PICTURES = 5_000
_MAX_NOTES = 20
_MAX_CAPTION = 500
WHOLE_PAGE = 0.9  # of its area: a scan or a background, which `lazyrag.read.page_image` shows
LINK = "link:"
_DATA = "data:"

_CAPTION = re.compile(
    r"(?:fig(?:ure|\.)?|abb(?:ildung|\.)|photo(?:graph)?|chart|diagram|illustration|plate"
    r"|图表?|圖|図|그림|рис(?:унок|\.)?)\s*\d",
    re.IGNORECASE,
)


Described: TypeAlias = tuple[str, int, int, str]
"""Media type, width, height and digest of a picture."""


class _Drawn(NamedTuple):
    """A picture as a file shows it."""

    place: str
    describe: Callable[[], Described]
    caption: str = ""
    alternative: str = ""
    where: str = ""


def has_pictures(suffix: str) -> bool:
    """Whether files of a suffix are searched for pictures."""
    return suffix in _FORMATS


def find_pictures(
    path: Path, suffix: str, loader: Any = None, *, linked: bool = False
) -> FoundPictures:
    """Find the pictures of a file. One is in memory at a time; what cannot be read is noted.

    Args:
        path: The file.
        suffix: Of its format.
        loader: What reads its text: a PdfLoader with a password opens the file.
        linked: Whether pictures beside a page belong to it.
    """
    found_pictures = FoundPictures()
    pictures = _FORMATS[suffix](path, loader)
    if not linked:
        pictures = (picture for picture in pictures if not picture.place.startswith(LINK))
    notes = found_pictures.notes
    while len(found_pictures.pictures) < MAX_PICTURES:
        try:
            picture = next(pictures, None)
        except Exception as exc:  # noqa: BLE001  noted: the libraries have many errors
            notes.append(f"pictures left out: {_reason(exc)}")
            break
        if picture is None:
            break
        try:
            kind, width, height, digest = picture.describe()
        except Exception as exc:  # noqa: BLE001  noted: the libraries have many errors
            notes.append(f"picture {picture.place[:80] or path.name} left out: {_reason(exc)}")
            continue
        if min(width, height) >= MIN_SIDE:
            caption, alternative = (
                " ".join(clean(text).split())[:_MAX_CAPTION] for text in picture[2:4]
            )
            found_pictures.pictures.append(
                FoundPicture(
                    picture.place, digest, kind, width, height, caption, alternative, picture.where
                )
            )
    else:
        notes.append(f"pictures left out: only the first {MAX_PICTURES:,} are read")
    times = Counter(picture.digest for picture in found_pictures.pictures)
    found_pictures.pictures = [
        picture for picture in found_pictures.pictures if times[picture.digest] < MAX_REPEATS
    ]
    if more := len(notes[_MAX_NOTES:]):
        notes[_MAX_NOTES:] = [f"{more:,} more notes of pictures"]
    return found_pictures


def _reason(exc: Exception) -> str:
    """Why a picture cannot be read; memory is no property of a picture, so that error is raised."""
    if isinstance(exc, MemoryError):
        raise exc
    return (
        str(exc)
        if isinstance(exc, LazyRAGError)
        else f"It is damaged ({type(exc).__name__}: {exc})."
    )


def read_picture(path: Path, suffix: str, place: str, loader: Any = None) -> bytes:
    """Read the bytes of a picture.

    Args:
        path: The file that `find_pictures` read.
        suffix: See `find_pictures`.
        place: See `FoundPicture`.
        loader: See `find_pictures`.

    Raises:
        LoadError: If it cannot be read.
    """
    try:
        if suffix == ".pdf":
            return _read_of_pdf(path, place, loader)
        if suffix in _PACKED:
            with open_archive(path, "document", suffix) as archive:
                return _checked(archive.pieces(place))
        if place.startswith(LINK):
            return _linked(path, place.removeprefix(LINK))
        if place.startswith(_DATA):
            return _embedded(_PAGES[suffix](path)[int(place.removeprefix(_DATA))][0])
        return _read_file(path)
    except Exception as exc:
        raise LoadError(
            f"The picture {place!r:.100} of {path.name!r} cannot be read. {_reason(exc)}"
        ) from exc


def picture_format(data: bytes) -> tuple[str, int, int]:
    """Media type, width and height of a picture, by its header.

    Raises:
        LoadError: If it is cut off, or of a format that models do not see.

    Example:
        >>> picture_format(b"GIF89a" + bytes([80, 0, 64, 0]) + b";")
        ('image/gif', 80, 64)
    """
    kind = ""
    ends = True
    size = None
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        kind = "png"
        size = _unpacked(">16x2I", data)
        ends = b"IEND" in data[-64:]
    elif data.startswith(b"\xff\xd8"):
        kind = "jpeg"
        size = _jpeg_header(data)[:2]
        ends = b"\xff\xd9" in data[-4096:]
    elif data.startswith((b"GIF87a", b"GIF89a")):
        kind = "gif"
        size = _unpacked("<6x2H", data)
        ends = b";" in data[-64:]
    elif data.startswith(b"BM"):
        kind = "bmp"
        size = _unpacked("<18x2i", data)
        size = size and (abs(size[0]), abs(size[1]))
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "webp"
        size = _webp_size(data)
        ends = len(data) >= 8 + int.from_bytes(data[4:8], "little")
    if not kind:
        raise LoadError(
            "It is of a format that vision models do not read, such as EMF, WMF, SVG or TIFF."
        )
    if size is None or not ends or not all(size):
        raise LoadError("It is damaged: cut off, or without a size.")
    return f"image/{kind}", size[0], size[1]


def _described(read: Callable[..., bytes], *arguments: Any) -> Described:
    data = read(*arguments)
    kind, width, height = picture_format(data)
    check_pixels(width, height)
    return kind, width, height, hashlib.sha256(data).hexdigest()


def check_pixels(width: int, height: int) -> None:
    """Refuse a picture that would fill the memory of a program that opens it."""
    if width * height > MAX_PIXELS:
        raise LoadError(f"It has {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} are read.")


def _unpacked(form: str, data: bytes) -> tuple[int, int] | None:
    size: tuple[int, int] | None = (
        struct.unpack_from(form, data) if len(data) >= struct.calcsize(form) else None
    )
    return size


def _jpeg_header(data: bytes) -> tuple[int, int, int]:
    """Width, height and number of colours; zeros if there is no header."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width, colours = struct.unpack_from(">2HB", data, at + 5)
            return width, height, colours
        has_length = marker not in (0x01, 0xFF, *range(0xD0, 0xD9))
        at += (
            2 + int.from_bytes(data[at + 2 : at + 4]) if has_length else 1 if marker == 0xFF else 2
        )
    return 0, 0, 0


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<2H", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _checked(pieces: Iterable[bytes]) -> bytes:
    chunks = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_BYTES:
            raise LoadError(f"It has more than {MAX_BYTES >> 20} MiB.")
        chunks.append(piece)
    return b"".join(chunks)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _checked([file.read(MAX_BYTES + 1)])
    except OSError as exc:
        raise LoadError(f"It cannot be read: {exc.strerror or exc}.") from exc


# Zip containers


def _describer(archive: Archive) -> Callable[[str], Callable[[], Described]]:
    """What describes parts: a logo on each slide is read once."""

    @functools.cache
    def describe(name: str) -> Described:
        return _described(_checked, archive.pieces(name))

    return lambda name: functools.partial(describe, name)


def _drawings(archive: Archive, part: str) -> Iterator[tuple[Element, str, str]]:
    """The pictures of a part of an office file: the element, the part with the bytes, the
    alternative text.
    """
    relation_of = relations(archive, part)
    for element in archive.xml(part).iter("{*}blip", "{*}imagedata"):
        if any(local_name(above) == "Fallback" for above in element.iterancestors()):
            continue
        relation = relation_of.get(attribute(element, "embed") or attribute(element, "id"))
        if relation is None or relation.target not in archive:
            continue
        alternative = ""
        for above in element.iterancestors("{*}pic", "{*}inline", "{*}anchor", "{*}shape"):
            named = (
                above.find("{*}docPr") if local_name(above) != "pic" else above.find("*/{*}cNvPr")
            )
            named = above if local_name(above) == "shape" else named
            if not alternative and named is not None:
                alternative = named.get("descr") or named.get("alt") or named.get("title") or ""
        yield element, relation.target, alternative


def _docx(path: Path, _: Any) -> Iterator[_Drawn]:
    with open_archive(path, "Word document", ".docx") as archive:
        describe = _describer(archive)
        for element, target, alternative in _drawings(archive, related(archive, "officeDocument")):
            paragraph = next(element.iterancestors("{*}p"), None)
            yield _Drawn(target, describe(target), _caption_near(paragraph), alternative)


def _caption_near(paragraph: Element | None) -> str:
    """The caption of a picture: of its own paragraph, of the one below, or of the one above."""
    if paragraph is None:
        return ""
    reading().spend(sum(1 for _ in paragraph.iter()))
    for neighbour in (paragraph, paragraph.getnext(), paragraph.getprevious()):
        if neighbour is None or not isinstance(neighbour.tag, str):
            continue
        text = " ".join("".join(_words(neighbour)).split())
        style = next(
            (attribute(named, "val") for named in neighbour.iterfind("{*}pPr/{*}pStyle")),
            attribute(neighbour, "style-name"),
        )
        if text and (
            _CAPTION.match(text) or style.lower().startswith(("caption", "illustration", "figure"))
        ):
            return text
    return ""


def _words(paragraph: Element) -> Iterator[str]:
    for element in paragraph.iter():
        kind = local_name(element)
        if kind in {"title", "desc", "binary-data"}:
            continue
        if kind == "t" or "opendocument" in str(element.tag):
            yield element.text or ""
        if "opendocument" in str(element.tag) and element is not paragraph:
            yield element.tail or ""


def _pptx(path: Path, _: Any) -> Iterator[_Drawn]:
    with open_archive(path, "presentation", ".pptx") as archive:
        describe = _describer(archive)
        main = related(archive, "officeDocument")
        for number, slide in enumerate(slide_parts(archive, main), start=1):
            shapes = archive.xml(slide).iterfind(".//{*}sp")
            titles = (shape for shape in shapes if role_of(shape) in TITLES)
            title = next(("".join(_words(shape)) for shape in titles), "")
            for _, target, alternative in _drawings(archive, slide):
                yield _Drawn(target, describe(target), title, alternative, f"slide {number}")


def _odt(path: Path, _: Any) -> Iterator[_Drawn]:
    with open_archive(path, "text document", ".odt") as archive:
        describe = _describer(archive)
        for image in archive.xml("content.xml").iter("{*}image"):
            target = posixpath.normpath(attribute(image, "href") or ".")
            frame = image.getparent()
            if frame is None or target not in archive:
                continue
            alternative = frame.findtext("{*}desc") or frame.findtext("{*}title") or ""
            paragraph = next(frame.iterancestors("{*}p"), None)
            yield _Drawn(target, describe(target), _caption_near(paragraph), alternative)


# Markup

_MARKDOWN = re.compile(
    r"!\[(?P<alt>(?:[^\[\]\\]|\\.){0,1000})\]"
    r"\(\s*<?(?P<to>[^\s<>()]+)>?(?:\s+[\"'](?P<title>[^\"']*)[\"'])?\s*\)"
)


def _of_markdown(path: Path) -> list[tuple[str, str, str]]:
    """Address, caption and alternative text of each picture."""
    matches = _MARKDOWN.finditer(decode(path.read_bytes()))
    return [(match["to"], match["title"] or "", match["alt"]) for match in matches]


def _of_html(path: Path) -> list[tuple[str, str, str]]:
    """See `_of_markdown`."""
    from lazyrag.loaders.html import parse_html  # other files are read without it

    page = parse_html(decode(path.read_bytes()))
    images = []
    captions: dict[Element, str | None] = {}
    for image in page.iter("img"):
        figure = next(image.iterancestors("figure"), None)
        if figure is not None and figure not in captions:
            caption = figure.find(".//figcaption")
            captions[figure] = (
                None if caption is None else "".join(map(str, caption.itertext()))[:_MAX_CAPTION]
            )
        words = None if figure is None else captions[figure]
        if words is None:
            words = image.get("title") or ""
        images.append((image.get("src") or "", words, image.get("alt") or ""))
    return images


def _markup(addresses: Addresses, path: Path, _: Any) -> Iterator[_Drawn]:
    for number, (address, caption, alternative) in enumerate(addresses(path)):
        if address[:5].lower() == _DATA:
            yield _Drawn(
                f"{_DATA}{number}",
                functools.partial(_described, _embedded, address),
                caption,
                alternative,
            )
        elif _linked_file(path, address) is not None:
            yield _Drawn(
                LINK + address,
                functools.partial(_described, _linked, path, address),
                caption,
                alternative,
            )


def _embedded(address: str) -> bytes:
    head, _, data = address.partition(",")
    if len(data) > 2 * MAX_BYTES:
        raise LoadError(f"It has more than {MAX_BYTES >> 20} MiB.")
    raw = urllib.parse.unquote_to_bytes(data)
    if not head.lower().endswith(";base64"):
        return raw
    try:
        return base64.b64decode(b"".join(raw.split()) + b"==")
    except binascii.Error as exc:
        raise LoadError("It is damaged: its address is not base64.") from exc


def _linked_file(path: Path, address: str) -> Path | None:
    """The file of a relative address in the folder of a page or below, unless it is a document of
    its own.
    """
    parts = urllib.parse.urlsplit(address)
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return None
    try:
        folder = path.parent.resolve()
        file = (folder / urllib.parse.unquote(parts.path)).resolve()
        inside = file.relative_to(folder).parts if file.is_file() else ()  # else a ValueError
    except (OSError, ValueError):
        return None
    is_hidden = any(part.startswith(".") for part in inside)
    if not inside or is_hidden or _FORMATS.get(file.suffix.lower()) is not _itself:
        return None
    return None if _is_document(file) else file


def _is_document(file: Path) -> bool:
    """Whether a user's loader or reader reads a file."""
    if not is_built_in(file.suffix.lower()):
        return True
    readers = reading().readers
    # patterns may name folders
    names = ["/".join(file.parts[at:]) for at in range(1, len(file.parts))]
    return readers is not None and any(readers(name, file.name) for name in names)


def _linked(path: Path, address: str) -> bytes:
    file = _linked_file(path, address)
    if file is None:
        raise LoadError(f"The file {address!r} is gone, or is a document of its own.")
    return _read_file(file)


Addresses: TypeAlias = Callable[[Path], list[tuple[str, str, str]]]


def _itself(path: Path, _: Any) -> Iterator[_Drawn]:
    yield _Drawn("", functools.partial(_described, _read_file, path))


# PDF


def _pdf(path: Path, loader: Any) -> Iterator[_Drawn]:
    with closing(_opened(path, loader)) as file:
        check_pages(file.count)
        for index in range(file.count):
            for place, described, error, *texts in file.pictures(index):
                yield _Drawn(place, functools.partial(_described_there, described, error), *texts)


def _described_there(described: Described, error: JsonObject | None) -> Described:
    if error is not None:
        raise remade_error(error)
    return described


def _opened(path: Path, loader: Any) -> PdfFile:
    from lazyrag.loaders.pdf import PdfLoader

    return (loader if isinstance(loader, PdfLoader) else PdfLoader()).open(path)


def describe_object(picture: Any) -> Described:
    """Describe a picture on a page of a PDF."""
    width, height = picture.get_px_size()
    check_pixels(width, height)
    stored = picture.get_data()
    if len(stored) > MAX_BYTES:
        raise LoadError(f"It has more than {MAX_BYTES >> 20} MiB.")
    kind = "image/png" if jpeg_of(picture) is None else "image/jpeg"
    return kind, width, height, hashlib.sha256(stored).hexdigest()


def jpeg_of(picture: Any) -> bytes | None:
    """The JPEG file that a picture is stored as; None if it is stored otherwise, or with colours
    for printing.
    """
    *packing, last = picture.get_filters() or [""]
    # others might unpack to gigabytes
    if last != "DCTDecode" or not {*packing} <= {"ASCII85Decode", "ASCIIHexDecode"}:
        return None
    data = bytes(picture.get_data(decode_simple=True))
    picture_format(data)
    return None if _jpeg_header(data)[2] == 4 else data


def caption_among(text: str) -> str:
    """The caption that begins in a text, at most three lines; "" without one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if _CAPTION.match(line)), len(lines))
    last = next(
        (at for at in range(first, len(lines)) if lines[at].endswith((".", "。"))), first + 2
    )
    return " ".join(lines[first : min(last, first + 2) + 1])


def _read_of_pdf(path: Path, place: str, loader: Any) -> bytes:
    page, number = map(int, place.split("/"))
    with closing(_opened(path, loader)) as file:
        return file.picture(page - 1, number)


_PACKED = {
    **dict.fromkeys((".docm", ".docx", ".dotx"), _docx),
    ".pptx": _pptx,
    ".odt": _odt,
}
_PAGES: dict[str, Addresses] = {
    ".md": _of_markdown,
    ".markdown": _of_markdown,
    ".htm": _of_html,
    ".html": _of_html,
}
_FORMATS: dict[str, Callable[[Path, Any], Iterator[_Drawn]]] = {
    ".pdf": _pdf,
    **_PACKED,
    **{suffix: functools.partial(_markup, addresses) for suffix, addresses in _PAGES.items()},
    **dict.fromkeys(SUFFIXES["image"], _itself),
}
"""By suffix, what finds the pictures of a file, given the loader of its text."""
