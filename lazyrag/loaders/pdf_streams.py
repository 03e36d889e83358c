"""Limits of the compressed streams of a PDF, checked before pdfium, which has no limits of its own, unpacks them."""

from __future__ import annotations

import base64
import itertools
import mmap
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
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
_LENGTH = re.compile(rb"/Length\s+(\d+)\b(?!\s+\d+\s+R\b)")
_FILTER = re.compile(rb"/(ASCIIHex|AHx|ASCII85|A85|LZW|RunLength|RL|Flate|Fl)(?:Decode)?\b")
_PREDICTED_BYTES = 6  # for an object: differences of bytes cannot be counted as they are
_BLANKS = bytes.maketrans(b"\0\t\n\f\r", b"     ")
# Beginnings of strings, and of operators that paint or save state: pdfium holds 200 to 600 bytes for each. Counting
# them is ten times as fast as a regular expression.
_OBJECTS = (b"(", b"<", b" S", b" s", b" f", b" F", b" B", b" b", b" q", b" Do")
_LETTERS = b"(<SsfFBbqD"
_TEXT = bytes(range(32, 127)) + b"\t\n\f\r"


def count_objects(path: Path, max_objects: int, check_time: Callable[[], None]) -> int:
    """Count strings and painting operators in the streams of a PDF; in encrypted ones none.

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
                dictionary = data[max(0, found.start() - _DICTIONARY) : found.start()].rpartition(b" obj")[2]
                pieces = _unpacked(data, dictionary, found.end())
                total += _checked(pieces, max_objects, is_predicted=b"/Predictor" in dictionary)
        return total


def _checked(pieces: Iterable[bytes], max_objects: int, *, is_predicted: bool) -> int:
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
        if max(objects, size // _PREDICTED_BYTES if is_predicted else 0) > max_objects:
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


def _unpacked(data: mmap.mmap, dictionary: bytes, start: int) -> Iterator[bytes]:
    """The unpacked bytes of a stream; of a picture none."""
    if b"/Filter" not in dictionary:
        end = data.find(b"endstream", start)
        yield from (data[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
        return
    length = _LENGTH.search(dictionary)
    end = min(len(data), start + int(length[1])) if length else len(data)  # "endstream" may be within the data
    pieces: Iterator[bytes] = (data[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
    for name in _FILTER.findall(dictionary)[:_MAX_FILTERS] or [b"Flate"]:  # the filter may be an object of its own
        is_late = name == b"LZW" and re.search(rb"/EarlyChange\s+0\b", dictionary) is not None
        pieces = _DECODERS[name](pieces) if not is_late else _lzw_decoded(pieces, early=0)
    for _ in range(_MAX_FILTERS):
        first = next(pieces, b"")
        if _PICTURE.search(dictionary) and first.translate(None, _TEXT):
            return  # a content stream that pretends to be a picture is text
        if not _is_zlib(first):
            yield from itertools.chain([first], pieces)
            return
        pieces = _inflated(itertools.chain([first], pieces))


def _base85_decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packed = bytearray()
    for piece in pieces:
        packed += piece
        if b"~>" in packed[-len(piece) - 1 :]:
            break
    with suppress(ValueError):
        yield base64.a85decode(bytes(packed).partition(b"~>")[0])


def _hex_decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    digit = b""
    for piece in pieces:
        digits, end, _ = piece.partition(b">")
        digits = digit + digits.translate(None, b" \0\t\n\f\r")
        digit = digits[len(digits) // 2 * 2 :]
        try:
            yield bytes.fromhex(digits[: len(digits) // 2 * 2].decode("latin-1"))
        except ValueError:
            return
        if end:
            return


def _run_length_decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    held = b""
    for piece in pieces:
        packed, at, unpacked = held + piece, 0, bytearray()
        while at < len(packed):
            length = packed[at]
            stop = at + 2 + (length if length < 128 else 0)
            if length == 128 or stop > len(packed):
                break
            unpacked += packed[at + 1 : stop] if length < 128 else packed[at + 1 : stop] * (257 - length)
            at = stop
        yield bytes(unpacked)
        held = packed[at:]
        if held[:1] == b"\x80":
            return


def _lzw_decoded(pieces: Iterator[bytes], early: int = 1) -> Iterator[bytes]:
    """Decode LZW up to its end or first flaw.

    Source: ISO 32000-1, 7.4.4.
    """
    single = [bytes([code]) for code in range(256)] + [b"", b""]
    table, size, width, previous, unpacked = list(single), 258, 9, b"", bytearray()
    bits = held = 0
    for byte in itertools.chain.from_iterable(pieces):
        bits, held = bits << 8 | byte, held + 8
        if held < width:
            continue
        held -= width
        code, bits = bits >> held, bits & (1 << held) - 1
        if code == 256:
            table, size, width, previous = list(single), 258, 9, b""
            continue
        entry = table[code] if code < size else previous + previous[:1]
        if code > size or not entry:  # the end, or a flaw
            break
        if previous and size < 4096:
            table.append(previous + entry[:1])
            size += 1
            if width < 12 and size + early == 1 << width:
                width += 1
        previous = entry
        unpacked += entry
        if len(unpacked) >= _UNPACKED_PIECE:
            yield bytes(unpacked)
            unpacked.clear()
    yield bytes(unpacked)


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


_DECODERS: dict[bytes, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    **dict.fromkeys([b"ASCIIHex", b"AHx"], _hex_decoded),
    **dict.fromkeys([b"ASCII85", b"A85"], _base85_decoded),
    **dict.fromkeys([b"LZW"], _lzw_decoded),
    **dict.fromkeys([b"RunLength", b"RL"], _run_length_decoded),
    **dict.fromkeys([b"Flate", b"Fl"], _inflated),
}
