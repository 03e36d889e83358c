"""A disk that loses what was not flushed: the recorded calls of a process, and the states that a
power cut can leave.

Strict where file systems are kinder: flushing a file secures its content and not its name, flushing
a folder secures its names; names and writes that were not flushed are lost or kept in any
combination, a write also by sectors.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

_SECTOR = 512
_HEAD = struct.Struct("=6Q")


class Call(IntEnum):
    """The calls that `recorder.c` records."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    SYNC = 5
    RENAME = 6
    LINK = 7
    UNLINK = 8
    MKDIR = 9
    RMDIR = 10
    MARK = 11


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded call."""

    call: Call
    inode: int
    offset: int
    path: str
    data: bytes

    @property
    def target(self) -> str:
        """The new path of a renamed file."""
        return self.data.decode()


def read_log(path: Path) -> list[Record]:
    """All records, in the order of the calls."""
    data = path.read_bytes()
    records, at = [], 0
    while at < len(data):
        call, inode, offset, first, second, _ = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        records.append(
            Record(
                Call(call),
                inode,
                offset,
                data[at : at + first].decode(),
                data[at + first : at + first + second],
            )
        )
        at += first + second
    return records


@dataclass(slots=True, eq=False)
class Change:
    """A change of a file's content that was not flushed yet; ``data`` is None where only the size
    changes.
    """

    offset: int
    data: bytes | None
    grows: bool = False

    def apply(self, content: bytearray, sectors: Callable[[int], bool] | None = None) -> None:
        """Apply it; of a torn write, only the sectors for which the function is true."""
        if self.data is None:
            if not self.grows:
                del content[self.offset :]
            content.extend(bytes(max(0, self.offset - len(content))))
            return
        content.extend(bytes(max(0, self.offset + len(self.data) - len(content))))
        start = self.offset
        while start < self.offset + len(self.data):
            end = min((start // _SECTOR + 1) * _SECTOR, self.offset + len(self.data))
            if sectors is None:
                end = self.offset + len(self.data)
            if sectors is None or sectors(start // _SECTOR):
                content[start:end] = self.data[start - self.offset : end - self.offset]
            start = end


@dataclass(slots=True, eq=False)
class File:
    """A file: its flushed content, and what was done to it since."""

    certain: bytearray
    pending: list[Change] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Folder:
    """A folder: its flushed names, and those that programs see."""

    certain: dict[str, File | Folder] = field(default_factory=dict)
    now: dict[str, File | Folder] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Naming:
    """A change of names that was not flushed yet, whole or not at all: folder, name, and what has
    it from then on.
    """

    changes: list[tuple[Folder, str, File | Folder | None]]

    @property
    def folders(self) -> set[int]:
        """The folders that it changes."""
        return {id(folder) for folder, _, _ in self.changes}


Tree: TypeAlias = "dict[str, bytes | None]"
"""Paths relative to the root, with the content of files; None for folders."""


class Disk:
    """A folder, replayed call by call.

    Args:
        root: The folder before the recorded process began; all of it is taken for flushed.
    """

    def __init__(self, root: Path) -> None:
        self._path = str(root)
        self._by_inode: dict[int, File | Folder] = {}
        self._namings: list[Naming] = []
        self._root = self._read(root)

    def _read(self, path: Path) -> Folder:
        folder = Folder()
        self._by_inode[path.stat().st_ino] = folder
        for one in path.iterdir():
            if one.is_dir():
                node: File | Folder = self._read(one)
            else:
                node = self._by_inode[one.stat().st_ino] = File(bytearray(one.read_bytes()))
            folder.certain[one.name] = folder.now[one.name] = node
        return folder

    def apply(self, record: Record) -> None:
        """Replay one call."""
        node = self._by_inode.get(record.inode)
        match record.call:
            case Call.CREATE:
                node = self._by_inode[record.inode] = File(bytearray())
                self._name(self._slot(record.path, node))
            case Call.MKDIR:
                node = self._by_inode[record.inode] = Folder()
                self._name(self._slot(record.path, node))
            case Call.LINK:
                self._name(self._slot(record.path, self._by_inode[record.inode]))
            case Call.UNLINK | Call.RMDIR:
                self._name(self._slot(record.path, None))
            case Call.RENAME:
                moved = self._by_inode[record.inode]
                self._name(self._slot(record.path, None), self._slot(record.target, moved))
            case Call.SYNC:
                self._sync(node)
            case Call.WRITE if isinstance(node, File):
                node.pending.append(Change(record.offset, record.data))
            case Call.TRUNCATE | Call.ALLOCATE if isinstance(node, File):
                node.pending.append(Change(record.offset, None, grows=record.call is Call.ALLOCATE))

    def _slot(
        self, path: str, node: File | Folder | None
    ) -> tuple[Folder, str, File | Folder | None]:
        *folders, name = path.removeprefix(self._path).strip("/").split("/")
        folder = self._root
        for one in folders:
            below = folder.now[one]
            assert isinstance(below, Folder)
            folder = below
        return folder, name, node

    def _name(self, *changes: tuple[Folder, str, File | Folder | None]) -> None:
        for folder, name, node in changes:
            _set(folder.now, name, node)
        self._namings.append(Naming(list(changes)))

    def _sync(self, node: File | Folder | None) -> None:
        if isinstance(node, File):
            for change in node.pending:
                change.apply(node.certain)
            node.pending.clear()
        elif node is not None:
            wanted, due = {id(node)}, set()
            # what was named before in the same folders is flushed with it
            for naming in reversed(self._namings):
                if naming.folders & wanted:
                    wanted |= naming.folders
                    due.add(id(naming))
            for naming in self._namings:
                if id(naming) in due:
                    for folder, name, named in naming.changes:
                        _set(folder.certain, name, named)
            self._namings = [naming for naming in self._namings if id(naming) not in due]

    @property
    def is_certain(self) -> bool:
        """Whether a power cut would take nothing."""
        return not self._namings and not any(file.pending for file in self.files())

    def files(self) -> list[File]:
        """The files that there are or were."""
        return [node for node in self._by_inode.values() if isinstance(node, File)]

    def namings(self) -> list[Naming]:
        """The changes of names that were not flushed."""
        return self._namings

    def state(self, keep: Keep) -> Tree:
        """What a power cut leaves.

        Args:
            keep: What of the rest was written by then.
        """
        names: dict[int, dict[str, File | Folder]] = {}
        for naming in self._namings:
            if keep.naming(naming):
                for folder, name, node in naming.changes:
                    _set(names.setdefault(id(folder), dict(folder.certain)), name, node)
        tree: Tree = {}
        self._fill(tree, "", self._root, names, keep)
        return tree

    def _fill(
        self,
        tree: Tree,
        path: str,
        folder: Folder,
        names: dict[int, dict[str, File | Folder]],
        keep: Keep,
    ) -> None:
        for name, node in names.get(id(folder), folder.certain).items():
            if isinstance(node, Folder):
                tree[path + name] = None
                self._fill(tree, f"{path}{name}/", node, names, keep)
            elif not name.endswith("-shm"):  # SQLite makes it anew after a restart of the machine
                content = bytearray(node.certain)
                for change, sectors in keep.changes(node):
                    change.apply(content, sectors)
                tree[path + name] = bytes(content)


def _set(names: dict[str, File | Folder], name: str, node: File | Folder | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class Keep:
    """Chooses what survives of that which was not flushed.

    Args:
        way: ``"nothing"``; ``"all"``; ``"files"``: all or nothing of each file and folder;
            ``"first"``: of each the first changes, as when they are written back in order;
            ``"all but one"`` change; ``"some"``: any changes, and of writes any sectors.
        seed: Of the random choice.
    """

    WAYS = ("nothing", "files", "first", "some", "all but one", "all")

    def __init__(self, way: str, seed: str, disk: Disk) -> None:
        self._way = way
        self._random = random.Random(f"{way} {seed}")
        self._share = self._random.choice((0.1, 0.5, 0.9))
        self._coins: dict[int, bool] = {}
        pending: list[object] = [change for file in disk.files() for change in file.pending]
        pending += disk.namings()
        self._lost = self._random.choice(pending) if pending else None
        self._named = self._random.randint(0, len(disk.namings()))

    def naming(self, naming: Naming) -> bool:
        """Whether names were changed."""
        match self._way:
            case "files":
                return self._coin(naming.changes[0][0])
            case "first":
                self._named -= 1
                return self._named >= 0
            case "some":
                return self._random.random() < self._share
            case "all but one":
                return naming is not self._lost
        return self._way == "all"

    def changes(self, file: File) -> Iterator[tuple[Change, Callable[[int], bool] | None]]:
        """The changes of a file that were made; of torn writes with a choice of sectors."""
        match self._way:
            case "files":
                kept = file.pending if self._coin(file) else []
            case "first":
                kept = file.pending[: self._random.randint(0, len(file.pending))]
            case "some":
                for change in file.pending:
                    if self._random.random() < self._share:
                        is_torn = self._random.random() < 0.5
                        yield (
                            change,
                            (lambda _: self._random.random() < self._share) if is_torn else None,
                        )
                return
            case "all but one":
                kept = [change for change in file.pending if change is not self._lost]
            case _:
                kept = file.pending if self._way == "all" else []
        yield from ((change, None) for change in kept)

    def _coin(self, node: File | Folder) -> bool:
        return self._coins.setdefault(id(node), self._random.random() < 0.5)
