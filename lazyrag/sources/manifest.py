"""What a folder knows of the source that fills it: one hidden file, written line by line."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.directory import Signature, signature_of

MANIFEST = ".lazyrag-source.jsonl"
_NEW_MANIFEST = ".lazyrag-source.new"
_LOCK = ".lazyrag-source.lock"
_FORMAT = 1
_FILE_NAME = re.compile(r"[a-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one file.

    Args:
        identity: Of the item that it holds.
        metadata: What the source says of it.
    """

    identity: str
    metadata: Mapping[str, Any]


class Manifest:
    """The entries of a folder by file name. A file is entered before it is written, and struck off after it is gone.

    Args:
        folder: An existing folder.
        source: Name of the source that fills it.

    Raises:
        ConfigError: If another source has files in it.
        LoadError: If the manifest is damaged.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self._folder = folder
        self._source = source
        owner, self.entries = read_manifest(folder)
        if owner != source and self.entries:
            msg = (
                f"The folder {folder} is filled from {owner!r}, not from {source!r}; each run would delete the other's "
                "files. Give a folder for each source; they may lie beside each other in the dataset's folder. If it "
                "is the same source, changed, delete the folder and fetch anew: what is equal is not embedded again."
            )
            raise ConfigError(msg)
        self.compact()
        self._file: TextIO = (folder / MANIFEST).open("a", encoding="utf-8", newline="\n")

    def close(self) -> None:
        """Write nothing more."""
        self._file.close()

    def enter(self, name: str, entry: Entry) -> None:
        """Enter a file, or what is new about it."""
        self.entries[name] = entry
        self._append(_line(name, entry))

    def strike(self, name: str) -> None:
        """Strike a file off that is gone."""
        del self.entries[name]
        self._append(json.dumps({"name": name}))

    def compact(self) -> None:
        """Write it anew, a line for each file, in the place of the old one."""
        lines = [json.dumps({"source": self._source, "format": _FORMAT}, ensure_ascii=False)]
        lines += [_line(name, self.entries[name]) for name in sorted(self.entries)]
        new = self._folder / _NEW_MANIFEST
        with new.open("w", encoding="utf-8", newline="\n") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._folder / MANIFEST)

    def _append(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()


def _line(name: str, entry: Entry) -> str:
    told = {"name": name, "identity": entry.identity, "metadata": dict(entry.metadata)}
    return json.dumps(told, ensure_ascii=True, allow_nan=False)


def read_manifest(folder: Path) -> tuple[str, dict[str, Entry]]:
    """The name of the source that fills a folder, and its entries; "" and nothing where there is no manifest.

    Raises:
        LoadError: If it is damaged. Half a line at its end is not: that is what is left when a program is killed.
    """
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", {}
    *lines, half = text.split("\n")
    del half
    entries: dict[str, Entry] = {}
    try:
        head = json.loads(lines[0])
        source = head["source"]
        if head["format"] != _FORMAT:
            msg = (
                f"{folder / MANIFEST} has the format {head['format']!r}; this release reads {_FORMAT}. Use a newer one."
            )
            raise LoadError(msg, path=str(folder / MANIFEST))
        for line in lines[1:]:
            told = json.loads(line)
            name = _file_name(told["name"])
            if "identity" in told:
                entries[name] = Entry(told["identity"], told["metadata"])
            else:
                entries.pop(name, None)
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        msg = (
            f"{folder / MANIFEST} is damaged ({type(exc).__name__}). Delete it together with the files of its folder, "
            "and fetch anew; what has the same content is not embedded again."
        )
        raise LoadError(msg, path=str(folder / MANIFEST)) from exc
    return str(source), entries


def _file_name(name: str) -> str:
    """A name that leads to nothing outside of the folder: what it names may be removed."""
    if not _FILE_NAME.fullmatch(name):
        raise ValueError
    return name


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other programs from filling the folder; the lock of one that is killed goes with it.

    Raises:
        LoadError: If another one does.
    """
    # SQLite's lock on a file of its own: the one lock of the standard library that is the same on all systems.
    with closing(sqlite3.connect(folder / _LOCK, timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as exc:
            msg = f"Another program fills the folder {folder} ({exc}). Wait until it is done."
            raise LoadError(msg, path=str(folder)) from exc
        yield


def metadata_of(folder: str | Path) -> Callable[[Path], Mapping[str, Any] | None]:
    """What sources say of the files that they wrote, as the ``file_metadata`` of a Document.

    Args:
        folder: The folder that a source fills, or one in which such folders lie.

    Returns:
        A function of a file's path: its metadata with the item's identity as ``source``; None for other files. It reads
        the manifests, each anew when it has changed.

    Raises:
        ConfigError: If the folder is no path.

    Example:
        >>> import tempfile
        >>> from lazyrag.sources import SourceItem, fetch
        >>> class Teas:
        ...     name = "teas"
        ...     def items(self):
        ...         yield SourceItem("7", b"Sencha", metadata={"price": 12})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = fetch(Teas(), folder)
        ...     [path] = Path(folder).glob("*.txt")
        ...     metadata_of(folder)(path)
        {'source': '7', 'price': 12}
    """
    if not isinstance(folder, (str, os.PathLike)):
        msg = f"folder is {folder!r:.80}; give the path of a folder that a source fills."
        raise ConfigError(msg)
    top = Path(folder).expanduser().absolute()
    known: dict[Path, tuple[Signature | None, dict[str, Entry]]] = {}

    def said_of(path: Path) -> Mapping[str, Any] | None:
        where = Path(path).absolute().parent
        if where != top and top not in where.parents:
            return None
        signature = signature_of(where / MANIFEST)
        if where not in known or known[where][0] != signature:
            known[where] = signature, read_manifest(where)[1] if signature else {}
        entry = known[where][1].get(Path(path).name)
        if entry is None:
            return None
        # A name that a Document keeps for the file system would fail it.
        said = {f"item_{name}" if name in BUILT_IN_FIELDS else name: value for name, value in entry.metadata.items()}
        return {"source": entry.identity, **said}

    return said_of
