"""Binary workbooks (.xlsb), which nothing that is installed writes."""

from __future__ import annotations

import datetime as dt
import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_FIRST_DAY = dt.date(1899, 12, 30)


def _record(number: int, data: bytes = b"") -> bytes:
    """A record (MS-XLSB 2.1.4): its number and its size, seven bits a byte."""
    head = [number] if number < 0x80 else [number & 0x7F | 0x80, number >> 7]
    size = len(data)
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + data


def _wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def _relations(targets: Sequence[tuple[str, str]]) -> str:
    """The list of a part's relations: kinds and targets."""
    lines = [
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    ]
    return f'<Relationships xmlns="{_PACKAGE}">{"".join(lines)}</Relationships>'


def _cell(column: int, value: object, strings: list[str]) -> bytes:
    """A cell: a text by its number, an integer in four bytes, a float, a date with its style."""
    place = struct.pack("<II", column, isinstance(value, dt.date))
    if isinstance(value, dt.date):
        return _record(5, place + struct.pack("<d", (value - _FIRST_DAY).days))
    if isinstance(value, bool):
        return _record(4, place + bytes([value]))
    if isinstance(value, int):
        return _record(2, place + struct.pack("<i", value << 2 | 2))
    if isinstance(value, float):
        return _record(5, place + struct.pack("<d", value))
    strings.append(str(value))
    return _record(7, place + struct.pack("<I", len(strings) - 1))


def binary_workbook(
    sheets: Mapping[str, Sequence[Sequence[object]]],
    merges: Sequence[tuple[int, int, int, int]] = (),
) -> bytes:
    """A workbook as .xlsb; sheets with names that begin with "_" are hidden.

    Args:
        sheets: Names to rows.
        merges: First and last row, first and last column of merged cells, in all sheets.
    """
    strings: list[str] = []
    targets = []
    bundles = b""
    parts: dict[str, bytes | str] = {}
    for number, (name, rows) in enumerate(sheets.items(), 1):
        state = struct.pack("<II", name.startswith("_"), number)
        bundles += _record(156, state + _wide(f"rId{number}") + _wide(name))
        targets.append(("worksheet", f"worksheets/sheet{number}.bin"))
        cells = b""
        for at, row in enumerate(rows):
            cells += _record(0, struct.pack("<I", at) + bytes(13))
            cells += b"".join(_cell(column, value, strings) for column, value in enumerate(row))
        ranges = b"".join(
            _record(176, struct.pack("<IIII", *(place - 1 for place in merge))) for merge in merges
        )
        parts[f"xl/worksheets/sheet{number}.bin"] = b"".join(
            [_record(129), _record(145), cells, _record(146), ranges, _record(130)]
        )
    targets += [("sharedStrings", "sharedStrings.bin"), ("styles", "styles.bin")]
    items = b"".join(_record(19, b"\0" + _wide(text)) for text in strings)
    parts["xl/sharedStrings.bin"] = _record(159) + items + _record(160)
    formats = [struct.pack("<HH", 0, code) + bytes(12) for code in (0, 14)]
    styles = b"".join(_record(47, form) for form in formats)
    parts["xl/styles.bin"] = _record(617) + styles + _record(618)
    parts["xl/workbook.bin"] = _record(131) + _record(143) + bundles + _record(144) + _record(132)
    parts["xl/_rels/workbook.bin.rels"] = _relations(targets)
    parts["_rels/.rels"] = _relations([("officeDocument", "xl/workbook.bin")])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()
