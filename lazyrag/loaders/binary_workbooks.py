"""Rows of the sheets of .xlsb workbooks, record by record: MS-XLSB, the Excel Binary File Format.

Names of records are those of the specification, section 2.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import Archive, related, relations
from lazyrag.loaders.base import reading
from lazyrag.loaders.cells import Cell, Row
from lazyrag.loaders.tables import Merge
from lazyrag.loaders.workbooks import EPOCHS, FORMATS, Style, Workbook, number_cell, style_of

Record: TypeAlias = tuple[int, bytes]
"""The number of a kind of record, and its data."""

_BRT_ROW_HDR = 0
_BRT_CELL_RK = 2
_BRT_FMLA_ERROR = 11
_BRT_SST_ITEM = 19
_BRT_FMT = 44
_BRT_XF = 47
_BRT_WB_PROP = 153
_BRT_BUNDLE_SH = 156
_BRT_MERGE_CELL = 176
_BRT_BEGIN_CELL_XFS = 617
_BRT_END_CELL_XFS = 618
_MAX_HEAD = 6
"""Bytes of a record's number and size."""


def _records(archive: Archive, part: str) -> Iterator[Record]:
    """The records of a part.

    Raises:
        LoadError: If it ends within one.
    """
    data = b""
    at = 0
    for piece in archive.pieces(part):
        data = data[at:] + piece
        at = 0
        reading().spend(len(piece) >> 3)
        while (head := _head(data, at)) is not None:
            number, start, end = head
            if end > len(data):
                break
            yield number, data[start:end]
            at = end
    if at < len(data):
        raise LoadError(f"its part {part} ends within a record")


def _head(data: bytes, at: int) -> tuple[int, int, int] | None:
    """The number of the record at a place, and the start and the end of its data; None if its first
    bytes are not there. Number and size have seven bits a byte, the lowest first.
    """
    head = data[at : at + _MAX_HEAD]
    if not head:
        return None
    length = 1 + (head[0] >> 7)
    number = head[0] & 0x7F
    if length == 2 and len(head) > 1:
        number |= (head[1] & 0x7F) << 7
    size = 0
    for shift in range(4):
        if length >= len(head):
            return None
        byte = head[length]
        length += 1
        size |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            break
    return number, at + length, at + length + size


def _text(data: bytes, at: int = 0) -> tuple[str, int]:
    """A text with its length before it (XLWideString), and where it ends."""
    (length,) = struct.unpack_from("<I", data, at)
    end = at + 4 + 2 * length
    if end > len(data):
        raise LoadError("a text is longer than its record")
    return data[at + 4 : end].decode("utf-16-le", "replace"), end


def read_binary_workbook(archive: Archive, main: str) -> Workbook:
    """Read what the sheets share, as far as it is not damaged.

    Args:
        archive: The file.
        main: Its part with the list of sheets.
    """
    strings = []
    part = related(archive, "sharedStrings", main)
    with archive.tolerated(f"part {part}"):
        for number, data in _records(archive, part) if part else ():
            if number == _BRT_SST_ITEM:
                strings.append(_text(data, 1)[0])
    styles: list[Style] = []
    part = related(archive, "styles", main)
    with archive.tolerated(f"part {part}"):
        styles += _styles(archive, part) if part else ()
    is_1904 = False
    for number, data in _records(archive, main):
        if number == _BRT_WB_PROP:
            is_1904 = data[:1] != b"" and data[0] & 1 == 1
    return Workbook(strings, styles, EPOCHS[is_1904])


def _styles(archive: Archive, part: str) -> Iterator[Style]:
    codes = dict(FORMATS)
    is_inside = False
    for number, data in _records(archive, part):
        if number == _BRT_FMT:
            codes[struct.unpack_from("<H", data)[0]] = _text(data, 2)[0]
        elif number in (_BRT_BEGIN_CELL_XFS, _BRT_END_CELL_XFS):
            is_inside = number == _BRT_BEGIN_CELL_XFS
        elif number == _BRT_XF and is_inside:
            yield style_of(codes.get(struct.unpack_from("<H", data, 2)[0], ""))


def listed_sheets(archive: Archive, main: str) -> Iterator[tuple[str, str, bool]]:
    """The name of each sheet, its part, "" without one, and whether it is hidden."""
    targets = relations(archive, main)
    for number, data in _records(archive, main):
        if number == _BRT_BUNDLE_SH:
            (state,) = struct.unpack_from("<I", data)
            relation, end = _text(data, 8)
            name, _ = _text(data, end)
            target = targets.get(relation)
            yield name, "" if target is None else target.target, state != 0


class BinarySheetReader:
    """Reads the rows of a sheet, and its merged cells.

    Args:
        workbook: What all sheets share.
    """

    def __init__(self, workbook: Workbook) -> None:
        self.merges: list[Merge] = []
        self._workbook = workbook

    def rows(self, archive: Archive, part: str) -> Iterator[Row]:
        """The rows with cells; values as displayed.

        Raises:
            LoadError: If a cell is outside of the sheet, or the sheet ends within a record.
            struct.error: If a record is too short.
        """
        row = 0
        cells: list[Cell] = []
        for number, data in _records(archive, part):
            if number == _BRT_ROW_HDR:
                if cells:
                    yield row, cells
                row = struct.unpack_from("<I", data)[0] + 1
                cells = []
            elif number == _BRT_MERGE_CELL:
                top, bottom, left, right = struct.unpack_from("<IIII", data)
                self.merges.append((top + 1, bottom + 1, left + 1, right + 1))
            elif _BRT_CELL_RK <= number <= _BRT_FMLA_ERROR:
                self._enter(cells, number, data)
        if cells:
            yield row, cells

    def _enter(self, cells: list[Cell], number: int, data: bytes) -> None:
        """Put a cell into its row."""
        column, style = struct.unpack_from("<II", data)
        if column >= _MAX_COLUMNS:
            raise LoadError(f"a cell is in column {column + 1}; a sheet has {_MAX_COLUMNS}")
        cells += [None] * (column + 1 - len(cells))
        cells[column] = _READERS[number](self._workbook, style & 0xFFFFFF, data[8:])


_MAX_COLUMNS = 16_384


def _rk(workbook: Workbook, style: int, data: bytes) -> Cell:
    """A number in four bytes: 30 bits of an integer or of a float, perhaps a hundred times it."""
    (packed,) = struct.unpack_from("<I", data)
    value: float = struct.unpack_from("<i", data)[0] >> 2
    if not packed & 2:
        (value,) = struct.unpack("<d", bytes(4) + struct.pack("<I", packed & 0xFFFFFFFC))
    return number_cell(value / 100 if packed & 1 else value, workbook, style)


def _real(workbook: Workbook, style: int, data: bytes) -> Cell:
    return number_cell(struct.unpack_from("<d", data)[0], workbook, style)


def _shared(workbook: Workbook, _: int, data: bytes) -> Cell:
    (number,) = struct.unpack_from("<I", data)
    return workbook.strings[number] if number < len(workbook.strings) else None


def _inline(_: Workbook, __: int, data: bytes) -> Cell:
    return _text(data)[0]


def _bool(_: Workbook, __: int, data: bytes) -> Cell:
    return data[:1] != b"\0"


def _error(_: Workbook, __: int, data: bytes) -> Cell:
    return _ERRORS.get(data[0], "#ERROR!") if data else None


_ERRORS = {
    0: "#NULL!",
    7: "#DIV/0!",
    15: "#VALUE!",
    23: "#REF!",
    29: "#NAME?",
    36: "#NUM!",
    42: "#N/A",
}
_READERS: dict[int, Callable[[Workbook, int, bytes], Cell]] = {
    _BRT_CELL_RK: _rk,
    3: _error,  # BrtCellError
    4: _bool,  # BrtCellBool
    5: _real,  # BrtCellReal
    6: _inline,  # BrtCellSt
    7: _shared,  # BrtCellIsst
    8: _inline,  # BrtFmlaString
    9: _real,  # BrtFmlaNum
    10: _bool,  # BrtFmlaBool
    _BRT_FMLA_ERROR: _error,
}
