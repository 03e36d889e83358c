"""Limits of the compressed streams of a PDF, checked before pdfium, which has no limits of its own, unpacks them."""

from __future__ import annotations

import itertools
import mmap
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from lazyrag.errors import LoadError

MAX_STREAM = 1 << 26
"""Bytes of an unpacked stream; Chinese fonts reach a third of it. Pictures are exempt, since no text is in them."""

_PIECE = 1 << 16
_UNPACKED_PIECE = 1 << 20
_MAX_FILTERS = 8
_DICTIONARY = 1 << 16  # bytes before a stream that are searched for its type
# As pdfium reads them: the data begin in the line after the keyword, whatever else is in its line.
_STREAM = re.compile(rb"(?<!end)stream")
_LINE_END = re.compile(rb"\r\n?|\n")
_END = re.compile(rb"[\0\s]{0,9}endstream")
_NUMBER = re.compile(rb"0*(\d+)[\0\s]+\d+[\0\s]+$")
_REFERENCE = re.compile(rb"\b0*(\d+)[\0\s]+\d+[\0\s]+R\b")
_ARRAY = re.compile(rb"\[[\0\s\dR]+\]")
_ESCAPED = re.compile(rb"#([0-9A-Fa-f]{2})")
_PICTURE = re.compile(rb"/Subtype\s*/Image\b")
_LENGTH = re.compile(rb"/Length\s+(\d{1,12})\b(\s+\d+\s+R\b)?")
_FILTERS = re.compile(rb"/Filter[^/\[]*?(\[[^\[\]]*|/\w+|\d+\s+\d+\s+R\b)")
_PREDICTED = re.compile(rb"/Predictor|/DecodeParms(?!\s*\[?\s*(?:<<|null))|/DecodeParms\s*\[[^\[\]]*\sR\b")
_FILTER = re.compile(rb"/(ASCIIHex|AHx|ASCII85|A85|LZW|RunLength|RL|Flate|Fl)(?:Decode)?\b")
_PREDICTED_BYTES = 6  # for an object: differences of bytes cannot be counted as they are
_BASE85 = re.compile(rb"[!-uz\0\s]*")
_POWERS_OF_85 = np.array([85**4, 85**3, 85**2, 85, 1], np.uint32)
_BLANK = b" \0\t\n\f\r\v"
_NOT_HEX = bytes(set(range(256)) - set(b"0123456789abcdefABCDEF"))
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
        total, objects, packed_objects = 0, dict[bytes, int](), list[bytes]()
        with data:
            for number, dictionary, start in _streams(data):
                check_time()
                is_predicted = _PREDICTED.search(dictionary) is not None
                filters = _filters(dictionary, data[start : start + 2])
                count = max(
                    _checked(_unpacked(data, dictionary, start, names), max_objects, is_predicted=is_predicted)
                    for names in filters
                )
                total += count
                objects[number] = max(objects.get(number, 0), count)
                if b"/ObjStm" in dictionary:
                    for names in filters:
                        packed_objects += _arrays(b"".join(_unpacked(data, dictionary, start, names)))
            for array in itertools.chain(_arrays(data), packed_objects):
                if sum(objects.get(number, 0) for number in _REFERENCE.findall(array)) > max_objects:
                    raise too_many_objects(max_objects)
        return total


def _arrays(data: bytes | mmap.mmap) -> Iterator[bytes]:
    """Arrays of references, as of the streams of a page."""
    return (found[0] for found in _ARRAY.finditer(data) if b"R" in found[0])


def _streams(data: mmap.mmap) -> Iterator[tuple[bytes, bytes, int]]:
    """The object number, the dictionary and the beginning of each stream."""
    start = 0
    for found in _STREAM.finditer(data):
        if found.start() >= start:
            end = _LINE_END.search(data, found.end())
            start = end.end() if end else len(data)
        object_start = data.rfind(b"obj", max(0, found.start() - _DICTIONARY), found.start())
        number = _NUMBER.search(data[max(0, object_start - 99) : max(0, object_start)])
        dictionary = data[max(object_start, found.start() - _DICTIONARY, 0) : found.start()]
        yield (
            number[1] if number else b"",
            _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), dictionary).translate(_BLANKS),
            start,
        )


def _filters(dictionary: bytes, beginning: bytes) -> set[tuple[bytes, ...]]:
    """The filters that a stream may have: more than one candidate if its dictionary is ambiguous."""
    values = _FILTERS.findall(dictionary)
    found = {tuple(_FILTER.findall(value)[:_MAX_FILTERS]) for value in values} or {()}
    if any(value.endswith(b"R") for value in values):  # the filter is an object of its own
        found |= {(name,) for name in _DECODERS}
    if _is_zlib(beginning):
        found = found - {()} | {(b"Flate",)}
    return found


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
        objects += sum(map(piece.translate(_BLANKS).count, _OBJECTS)) if 64 * most > len(piece) else most
        if max(objects, size // _PREDICTED_BYTES if is_predicted else 0) > max_objects:
            raise too_many_objects(max_objects)
    return objects


def too_many_objects(most: int) -> LoadError:
    """The error for a page with too many strings and lines."""
    problem = f"A page of the PDF has more than {most:,} strings and lines, each of up to 600 bytes in memory."
    return LoadError(f"{problem} Split it, or allow more: PdfLoader(max_objects=...).")


def _unpacked(data: mmap.mmap, dictionary: bytes, start: int, filters: tuple[bytes, ...]) -> Iterator[bytes]:
    """The unpacked bytes of a stream; of a picture none."""
    lengths = _LENGTH.findall(dictionary)
    ends = [start + int(length) for length, is_reference in lengths if not is_reference]
    # pdfium ignores a length that "endstream" does not follow; "endstream" may be within the data, which end themselves
    end = max((at for at in ends if _END.match(data, at)), default=0)
    if not filters:
        end = end or data.find(b"endstream", start)
    elif any(is_reference for _, is_reference in lengths):
        end = 0
    end = end if end > 0 else len(data)
    pieces: Iterator[bytes] = (data[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
    for name in filters:
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
    held = b""
    for piece in itertools.chain(pieces, [b"~"]):
        digits = _BASE85.match(piece)[0]  # type: ignore[index]
        held += digits.translate(None, _BLANK).replace(b"z", b"!!!!!")
        missing = -len(held) % 5 if len(digits) < len(piece) else 0
        held += b"u" * missing
        size = len(held) // 5 * 5
        values = (np.frombuffer(held, np.uint8, size).reshape(-1, 5) - 33) @ _POWERS_OF_85  # overflows as in pdfium
        yield values.astype(">u4").tobytes()[: -missing or None]
        held = held[size:]
        if len(digits) < len(piece):
            return


def _hex_decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    digit = b""
    for piece in pieces:
        digits, end, _ = piece.partition(b">")
        digits = digit + digits.translate(None, _NOT_HEX)  # pdfium ignores what else is there
        digit = digits[len(digits) // 2 * 2 :]
        yield bytes.fromhex(digits[: len(digits) // 2 * 2].decode("ascii"))
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
