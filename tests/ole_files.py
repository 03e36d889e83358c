"""Compound files made by hand: what Outlook's mails and old office files are."""

from __future__ import annotations

import struct

_FREE, _END, _NONE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF
_SECTOR, _CUTOFF, _MINI = 512, 4096, 64


def _chain(table: list[int], blocks: int) -> int:
    """Enter a run of blocks into a table; where it begins."""
    start = len(table)
    table += [*range(start + 1, start + blocks), _END] if blocks else []
    return start if blocks else _END


def _padded(data: bytes, block: int) -> bytes:
    """The bytes up to the next whole block."""
    return data + b"\0" * (-len(data) % block)


def compound(tree: dict) -> bytes:
    """A compound file of folders (dicts) and streams (bytes), by name."""
    # name, kind, next, child, start, size
    entries: list[list] = [["Root Entry", 5, _NONE, _NONE, 0, 0]]
    contents: dict[int, bytes] = {}

    def enter(folder: dict, parent: int) -> None:
        previous = None
        for name, inside in folder.items():
            number = len(entries)
            entries.append([name, 1 if isinstance(inside, dict) else 2, _NONE, _NONE, 0, 0])
            if previous is None:
                entries[parent][3] = number
            else:
                entries[previous][2] = number
            previous = number
            if isinstance(inside, dict):
                enter(inside, number)
            else:
                contents[number] = inside

    enter(tree, 0)
    fat: list[int] = []
    mini_fat: list[int] = []
    mini, sectors = b"", b""
    for number, data in contents.items():
        entries[number][5] = len(data)
        if len(data) < _CUTOFF:
            entries[number][4] = _chain(mini_fat, -(-len(data) // _MINI))
            mini += _padded(data, _MINI)
        else:
            entries[number][4] = _chain(fat, -(-len(data) // _SECTOR))
            sectors += _padded(data, _SECTOR)
    entries[0][4:] = [_chain(fat, -(-len(mini) // _SECTOR)), len(mini)]
    sectors += _padded(mini, _SECTOR)
    table = _padded(struct.pack(f"<{len(mini_fat)}I", *mini_fat), _SECTOR)
    first_mini = _chain(fat, len(table) // _SECTOR)
    listed = _padded(b"".join(_entry(*entry) for entry in entries), _SECTOR)
    first_listed = _chain(fat, len(listed) // _SECTOR)
    sectors += table + listed
    tables = 1
    while len(fat) + tables > tables * 128:
        tables += 1
    starts = [len(fat) + number for number in range(tables)]
    fat += [0xFFFFFFFD] * tables
    fat += [_FREE] * (tables * 128 - len(fat))
    header = struct.pack("<8s16x5H6x", bytes.fromhex("d0cf11e0a1b11ae1"), 0x3E, 3, 0xFFFE, 9, 6)
    header += struct.pack(
        "<9I", 0, tables, first_listed, 0, _CUTOFF, first_mini, len(table) // _SECTOR, _END, 0
    )
    header += struct.pack("<109I", *starts, *[_FREE] * (109 - tables))
    return header + sectors + struct.pack(f"<{len(fat)}I", *fat)


def _entry(name: str, kind: int, following: int, child: int, start: int, size: int) -> bytes:
    """An entry of the directory."""
    named = (name + "\0").encode("utf-16-le")
    links = struct.pack("<HBB3I", len(named), kind, 1, _NONE, following, child)
    return named.ljust(64, b"\0") + links + b"\0" * 36 + struct.pack("<IQ", start, size)


def properties(values: dict[int, int], header: int = 32) -> bytes:
    """The table of an item's properties of fixed length, by number."""
    rows = (struct.pack("<HHIQ", 0x40, number, 6, value) for number, value in values.items())
    return b"\0" * header + b"".join(rows)
