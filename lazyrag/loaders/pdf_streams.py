"""Limits of the compressed streams of a PDF, checked before pdfium, which has no limits of its own, unpacks them."""

from __future__ import annotations

import base64
import itertools
import mmap
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lazyrag.errors import LoadError

MAX_STREAM = 1 << 26
"""Bytes of an unpacked stream; Chinese fonts reach a third of it. Pictures are exempt, since no text is in them."""

_PIECE = 1 << 16
_UNPACKED_PIECE = 1 << 20
_MAX_FILTERS = 8
_DICTIONARY = 2048  # bytes before a stream that are searched for its type
_STREAM = re.compile(rb"(?<!end)stream\r?\n")
_PICTURE = re.compile(rb"/Subtype\s*/Image\b")
_ASCII85 = re.compile(rb"/(?:A85|ASCII85Decode)\b")
_BLANKS = bytes.maketrans(b"\0\t\n\f\r", b"     ")
# Beginnings of strings, and of operators that paint or save state: pdfium holds 200 to 600 bytes for each. Counting
# them is ten times as fast as a regular expression.
_OBJECTS = (b"(", b"<", b" S", b" s", b" f", b" F", b" B", b" b", b" q", b" Do")
_LETTERS = b"(<SsfFBbqD"
_TEXT = bytes(range(32, 127)) + b"\t\n\f\r"


def count_objects(path: Path, max_objects: int, check_time: Callable[[], None]) -> int:
    """Count strings and painting operators in the streams of a PDF. Encrypted streams cannot be read.

    Args:
        path: The file.
        max_objects: Maximum number in one stream.
        check_time: Called before each stream; raises when time is over.

    Raises:
        LoadError: If a stream is too large, or has too many objects.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return 0
        total = 0
        with data:
            for found in _STREAM.finditer(data):
                check_time()
                total += _checked(_unpacked(data, found.start(), found.end()), max_objects)
        return total


def _checked(pieces: Iterable[bytes], max_objects: int) -> int:
    """The number of objects in a stream, if it is within the limits."""
    size = objects = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_STREAM:
            most_mib = MAX_STREAM >> 20
            msg = f"A stream of the PDF unpacks to more than {most_mib} MiB. Save the PDF again with another program."
            raise LoadError(msg)
        most = len(piece) - len(piece.translate(None, _LETTERS))
        objects += _count(piece) if 64 * most > len(piece) else most
        if objects > max_objects:
            raise too_many_objects(max_objects)
    return objects


def too_many_objects(most: int) -> LoadError:
    """The error for a page with too many strings and lines."""
    return LoadError(
        f"A page of the PDF has more than {most:,} strings and lines, for each of which up to 600 bytes are needed. "
        "Split it, or allow more: PdfLoader(max_objects=...)."
    )


def _count(piece: bytes) -> int:
    return sum(map(piece.translate(_BLANKS).count, _OBJECTS))


def _unpacked(data: mmap.mmap, keyword: int, start: int) -> Iterator[bytes]:
    """The unpacked bytes of a stream; of a picture none."""
    dictionary = data[max(0, keyword - _DICTIONARY) : keyword].rpartition(b" obj")[2]
    if b"/Filter" not in dictionary:
        end = data.find(b"endstream", start)
        yield from (data[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
        return
    if _ASCII85.search(dictionary):
        packed = iter([_decoded(data, start)])
    else:
        packed = (data[at : at + _PIECE] for at in range(start, len(data), _PIECE))
    pieces = _inflated(packed)
    for _ in range(_MAX_FILTERS):
        first = next(pieces, b"")
        if _PICTURE.search(dictionary) and first.translate(None, _TEXT):
            return  # a content stream that pretends to be a picture is text
        if not _is_zlib(first):
            yield from itertools.chain([first], pieces)
            return
        pieces = _inflated(itertools.chain([first], pieces))


def _decoded(data: mmap.mmap, start: int) -> bytes:
    stop = data.find(b"~>", start)
    try:
        return base64.a85decode(data[start : stop if stop >= 0 else len(data)])
    except ValueError:
        return b""


def _is_zlib(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Inflate piece by piece, up to the end of the data or its first flaw; nothing if it is not zlib's."""
    inflating = zlib.decompressobj()
    for piece in pieces:
        packed = piece
        while packed:
            try:
                unpacked = inflating.decompress(packed, _UNPACKED_PIECE)
            except zlib.error:
                return
            if unpacked:
                yield unpacked
            if inflating.eof:
                return
            packed = inflating.unconsumed_tail
