"""Recovery of damaged PDFs: their objects are found by their marks, and written to a file that
engines open.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain

_MAX_STREAM = 1 << 26  # bytes of unpacked streams
_OBJECT = re.compile(rb"(?<![\d.])(\d{1,8})[\0\s]{1,9}\d{1,5}[\0\s]{1,9}obj\b")
_KIND = re.compile(rb"/Type\s*/(\w+)")
_KIDS = re.compile(rb"/Kids\s*\[([^\]]*)\]?")
_CONTENTS = re.compile(rb"/Contents\s*\[?((?:\s*\d{1,8}\s+\d{1,5}\s+R)+)")
_REFERENCE = re.compile(rb"(\d{1,8})\s+\d{1,5}\s+R\b")
_COUNT = re.compile(rb"/(N|First)\s+(\d{1,7})\b")
_STREAM = re.compile(rb"stream\r?\n?")
_OUTLINES = re.compile(rb"/Outlines\s+(\d{1,8}\s+\d{1,5}\s+R)")
_INFO = re.compile(rb"/Info\s+(\d{1,8}\s+\d{1,5}\s+R)")
_MAX_PAGES = 100_000
_LOST = "It is missing from the damaged file."
_EMPTY_PAGE = b"<< /Type /Page /MediaBox [0 0 1 1] >>"

Objects = dict[int, bytes]


def recovered(data: bytes) -> tuple[bytes, dict[int, str]] | None:
    """A PDF of all pages whose objects are left, and what is lost of pages, by number; None if no
    page is left.

    Lost pages are blank, so that the others keep their numbers.

    Args:
        data: A file that cannot be opened, not encrypted.
    """
    objects = dict(_objects(data))
    left = _MAX_STREAM
    for number, packed in list(objects.items()):
        if _kind(packed) == b"ObjStm":
            unpacked = _unpacked(packed, left)
            left -= sum(map(len, unpacked.values()))
            for inner, body in unpacked.items():
                objects.setdefault(inner, body)
            del objects[number]
    pages = _pages(objects)
    if b"/Encrypt" in data or not any(page in objects for page in pages):
        return None
    lost = {
        number: reason
        for number, page in enumerate(pages, start=1)
        if (reason := _reason(objects, page))
    }
    return _written(objects, pages, data), lost


def _objects(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and text of each object, up to its end or the next one; of several with a number the
    last counts.
    """
    starts = list(_OBJECT.finditer(data))
    ends = [*(start.start() for start in starts[1:]), len(data)][: len(starts)]
    for header, following in zip(starts, ends, strict=True):
        end = data.rfind(b"endobj", header.end(), following)
        body = data[header.end() : end if end >= 0 else following].strip()
        is_cut = _STREAM.search(body) is not None and b"endstream" not in body
        if body and _kind(body) != b"XRef":
            yield int(header[1]), body + b"\nendstream" if is_cut else body


def _kind(body: bytes) -> bytes:
    match = _KIND.search(body, 0, 4096)
    return match[1] if match else b""


def _unpacked(body: bytes, most: int) -> Objects:
    """The objects in a compressed stream, as far as it is whole."""
    start = _STREAM.search(body)
    numbers = {
        name: int(value) for name, value in _COUNT.findall(body[: start.start() if start else 0])
    }
    if start is None or b"First" not in numbers or most <= 0:
        return {}
    try:
        text = zlib.decompressobj().decompress(body[start.end() :], most)
    except zlib.error:
        return {}
    first = numbers[b"First"]
    table = list(map(int, re.findall(rb"\d{1,9}", text[:first])))[: 2 * numbers.get(b"N", 0)]
    offsets = [*table[1::2], len(text)]
    bodies = {}
    for number, at, end in zip(table[::2], offsets, offsets[1:], strict=False):
        inner = text[first + at : first + end].strip()
        if inner:
            bodies[number] = inner
    return bodies


def _pages(objects: Objects) -> list[int]:
    """Numbers of the pages in order: as the page tree lists them, lost ones too; then those that it
    does not list.
    """
    kinds = {number: _kind(body) for number, body in objects.items()}
    kids: dict[int, list[int]] = {}
    for number, kind in kinds.items():
        match = _KIDS.search(objects[number]) if kind == b"Pages" else None
        if match:
            kids[number] = list(map(int, _REFERENCE.findall(match[1])))
    below = set(chain.from_iterable(kids.values()))
    pages: dict[int, None] = {}
    pending = [number for number in kids if number not in below][::-1]
    seen = set()
    while pending and len(pages) < _MAX_PAGES:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        if kids.get(number):
            pending += kids[number][::-1]
        elif kinds.get(number, b"Page") == b"Page":
            pages[number] = None
    others = (number for number, kind in kinds.items() if kind == b"Page")
    return list({**pages, **dict.fromkeys(others)})[:_MAX_PAGES]


def _reason(objects: Objects, page: int) -> str:
    """What is lost of a page; "" if nothing is."""
    if page not in objects:
        return _LOST
    match = _CONTENTS.search(objects[page])
    contents = list(map(int, _REFERENCE.findall(match[1]))) if match else []
    if not contents or any(number in objects for number in contents):
        return ""
    return "Its content is missing from the damaged file."


def _written(objects: Objects, pages: Sequence[int], data: bytes) -> bytes:
    """The objects as a file, with a page tree and a table of their own."""
    tree = max(objects) + 1
    kids = b" ".join(b"%d 0 R" % page for page in pages)
    bodies_with_outlines = filter(None, map(_OUTLINES.search, objects.values()))
    match = next(bodies_with_outlines, None)
    outlines = b"/Outlines %s" % match[1] if match else b""
    added = {
        tree: b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), kids),
        tree + 1: b"<< /Type /Catalog /Pages %d 0 R %s >>" % (tree, outlines),
    }
    parts = [b"%PDF-1.7\n"]
    at = 9
    places = {}
    for number, body in {**dict.fromkeys(pages, _EMPTY_PAGE), **objects, **added}.items():
        part = b"%d 0 obj\n%s\nendobj\n" % (number, body)
        places[number] = at
        parts.append(part)
        at += len(part)
    table = [b"xref\n0 1\n0000000000 65535 f \n"]
    table += [
        b"%d 1\n%010d 00000 n \n" % (number, places[number]) for number in sorted(places) if number
    ]
    info = _INFO.findall(data)
    trailer = b"trailer\n<< /Size %d /Root %d 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
    table.append(trailer % (tree + 2, tree + 1, b"/Info %s" % info[-1] if info else b"", at))
    return b"".join([*parts, *table])
