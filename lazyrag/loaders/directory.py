"""Files of a dataset: listing, signatures, hashes, built-in metadata."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lazyrag.data.fields import mime_type
from lazyrag.errors import DatasetPathError

STORE_FOLDER = ".lazyrag"
"""The folder in which the command line keeps its store; not a part of any dataset."""

_BLOCK_BYTES = 1 << 18
_LEADS_OUT = "link to a file outside of the dataset; pass follow_links=True to read it"
_LEADS_NOWHERE = (errno.ELOOP, errno.ENOTDIR)  # of a link; a missing target is no error in os.scandir


class Signature(NamedTuple):
    """A cheap check for changes of a file.

    Equal signatures mean equal content, except for a file that was written in place with the same length, and either
    within a tick of the file system's clock (see `lazyrag.document.changes.KnownFile`) or with its time reset.

    Args:
        size: In bytes.
        mtime_ns: Time of last modification, in nanoseconds since 1970.
        inode: Number in the file system, which differs after a replacement. 0 on systems without.
    """

    size: int
    mtime_ns: int
    inode: int


class FoundFile(NamedTuple):
    """One file of a dataset.

    Args:
        identity: Its path relative to the dataset, with forward slashes, or the user's id.
        raw_path: Its path as found: a text or a path.
        signature: At the time of listing; None if unknown.
    """

    identity: str
    raw_path: str | os.PathLike[str]
    signature: Signature | None = None

    @property
    def path(self) -> Path:
        """The path, created on demand: a Path takes six times the memory of a text."""
        return Path(self.raw_path)


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a folder at one time.

    Args:
        found: The files, sorted by identity.
        skipped: Pairs (relative path, reason), sorted.
        unreadable: Relative paths of folders that could not be listed and links that could not be followed, sorted;
            also in ``skipped``. Known files below them may still exist.
        seen_ns: Wall-clock time before the listing, in nanoseconds since 1970.
        folders: The files by folder and name, for the next listing.
    """

    found: tuple[FoundFile, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()
    seen_ns: int = 0
    folders: Mapping[str, Mapping[str, FoundFile]] = field(default_factory=dict, compare=False, repr=False)


def find_files(folder: str | os.PathLike[str], before: Listing | None = None, *, follow_links: bool = False) -> Listing:
    """List the files below a folder, with their signatures.

    Skips hidden files and folders (the folder itself may be hidden), lock files of office programs, links to folders
    or out of the folder, and everything that is not a regular file.

    Args:
        folder: An existing folder.
        before: An earlier listing; its files with the same signature are taken over, as the same objects.
        follow_links: Include links to files outside of the folder.

    Raises:
        DatasetPathError: If the folder itself cannot be listed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "tea.txt").write_text("Green tea", encoding="utf-8")
        ...     [file] = find_files(folder).found
        >>> file.identity, file.signature.size
        ('tea.txt', 9)
    """
    seen_ns = time.time_ns()  # before the listing: an early time is on the safe side
    folders: dict[str, dict[str, FoundFile]] = {}
    skipped: list[tuple[str, str]] = []
    unreadable: list[str] = []
    pending = [(os.fspath(folder), "")]
    inside = os.path.realpath(folder).rstrip(os.sep) + os.sep
    while pending:
        current, prefix = pending.pop()
        try:
            with os.scandir(current) as scan:
                entries = [entry for entry in scan if entry.name != STORE_FOLDER]
        except OSError as exc:
            if not prefix:
                msg = f"The dataset's folder {folder} cannot be listed ({exc.strerror}). Pass an existing folder."
                raise DatasetPathError(msg) from exc
            unreadable.append(prefix[:-1])
            skipped.append((prefix[:-1], f"cannot be listed: {exc.strerror}"))
            continue
        known_here = before.folders.get(current, {}) if before is not None else {}
        here = folders[current] = {}
        for entry in entries:
            name = entry.name
            known = known_here.get(name)
            if known is not None and _is_same(known, entry):
                here[name] = known
                continue
            identity = prefix + name  # Path.relative_to takes 5 us for each
            try:
                reason = _reason_to_skip(entry, "" if follow_links else inside)
                is_folder = not reason and entry.is_dir(follow_symlinks=False)
            except OSError as exc:
                unreadable.append(identity)
                reason = f"cannot be looked at: {exc.strerror}"
            if reason:
                skipped.append((identity, reason))
            elif is_folder:
                pending.append((entry.path, identity + "/"))
            else:
                here[name] = FoundFile(identity, entry.path, signature_of(entry))
    if before is not None and folders == before.folders:
        found = before.found
    else:  # sorted by identity, which no two files share
        found = tuple(sorted(file for here in folders.values() for file in here.values()))
    return Listing(found, tuple(sorted(skipped)), tuple(sorted(unreadable)), seen_ns, folders)


def _is_same(known: FoundFile, entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat()
    except OSError:
        return False
    same = known.signature == (status.st_size, status.st_mtime_ns, status.st_ino)
    return same and entry.is_file(follow_symlinks=False)


def signature_of(file: str | os.PathLike[str]) -> Signature | None:
    """The signature of a file, or of a link's target; None if it cannot be read.

    Take it before reading the file, so that a later check sees a change in between.

    Args:
        file: A path, or an entry of `os.scandir`, which on some systems has its status already.

    Example:
        >>> signature_of("no/such/file") is None
        True
    """
    try:
        status = file.stat() if isinstance(file, os.DirEntry) else os.stat(file)  # noqa: PTH116  also takes texts
    except OSError:  # reading the file reports the same error
        return None
    return Signature(status.st_size, status.st_mtime_ns, status.st_ino)


def hash_file(path: str | os.PathLike[str]) -> str:
    """Hash a file: BLAKE2b, 16 bytes, as 32 hexadecimal digits.

    Where the system allows it (on Linux, for the owner), the time of last access stays.

    Raises:
        OSError: If the file is missing, unreadable, or not a regular file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "empty").write_bytes(b"")
        ...     hash_file(Path(folder, "empty"))
        'cae66941d9efbd404e4d88758ea67670'
    """
    hasher = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0, opener=_open_unnoticed) as file:
        _check_regular(os.fstat(file.fileno()))
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


def built_in_metadata(path: Path) -> dict[str, Any]:
    """The six built-in metadata fields (spec 001).

    The creation date is the birth time if the system stores it, else the earlier of ctime and mtime.

    Raises:
        OSError: If the file is missing, unreadable, or not a regular file.
    """
    status = path.stat()
    _check_regular(status)
    born = getattr(status, "st_birthtime", min(status.st_ctime, status.st_mtime))
    return {
        "file_name": path.name,
        "file_type": mime_type(path.suffix),
        "file_size": status.st_size,
        "creation_date": day_of(born),
        "last_modified_date": day_of(status.st_mtime),
        "last_accessed_date": day_of(status.st_atime),
    }


def _reason_to_skip(entry: os.DirEntry[str], inside: str) -> str:
    """Why an entry is skipped; "" for a file or folder. Raises OSError if its type is unknown.

    Args:
        entry: The entry.
        inside: The path that the targets of links begin with; "" for any.
    """
    if entry.name.startswith("."):
        return "hidden"
    if entry.name.startswith("~$"):
        return "lock file of an office program"
    if entry.is_dir(follow_symlinks=False):
        return ""
    try:
        if entry.is_file():
            leads_out = entry.is_symlink() and not os.path.realpath(entry.path).startswith(inside)
            return _LEADS_OUT if leads_out else ""
        linked_folder = entry.is_dir()
    except OSError as exc:
        if exc.errno not in _LEADS_NOWHERE:
            raise
        linked_folder = False
    if linked_folder:
        return "link to a folder"
    return "link that leads nowhere" if entry.is_symlink() and not Path(entry.path).exists() else "not a regular file"


def _open_unnoticed(path: str, flags: int) -> int:
    """Open without updating the access time, and without blocking on a pipe."""
    flags |= getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:  # only the owner may do that
        return os.open(path, flags)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would block for ever
        raise OSError(errno.EINVAL, "it is not a regular file")


def day_of(seconds: float) -> str:
    """A time in seconds since 1970 as an ISO day."""
    return dt.datetime.fromtimestamp(seconds).date().isoformat()  # noqa: DTZ006  in the user's time zone
