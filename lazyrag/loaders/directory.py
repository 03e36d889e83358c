"""Which files a dataset consists of, and what the file system says of each."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyrag.data.fields import mime_type
from lazyrag.errors import DatasetPathError

_BLOCK_BYTES = 1 << 18
_LEADS_NOWHERE = (errno.ELOOP, errno.ENOTDIR)  # of a link; that its target is missing is no error to os.scandir


@dataclass(frozen=True, slots=True)
class Signature:
    """What tells cheaply whether a file is still the one that was read.

    Two equal ones mean the same content, but for a file that was written in place with the same length, and either
    within a tick of the file system's clock (see `lazyrag.document.changes.KnownFile`) or with its time put back.

    Args:
        size: In bytes.
        mtime_ns: Time of last modification, in nanoseconds since 1970.
        inode: Its number in the file system: another one where a file was replaced. 0 where there are none.
    """

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file of a dataset.

    Args:
        identity: Its path relative to the dataset, with forward slashes, or the id a user gave.
        place: Where it lies.
        signature: What it looked like when it was found; None if nobody looked, or it could not be looked at.
    """

    identity: str
    place: str | os.PathLike[str]
    signature: Signature | None = None

    @property
    def path(self) -> Path:
        """Where it lies. Made when it is asked for: a Path takes six times the memory of a text."""
        return Path(self.place)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds at one time.

    Args:
        found: The files, in order of identity.
        skipped: Pairs (relative path, reason) of what was passed over, in that order.
        unlisted: Relative paths of folders that could not be listed, and of links that could not be followed, sorted.
            They stand in ``skipped`` as well. What was known of them, or beneath them, may still be there.
        seen_ns: Wall-clock time, in nanoseconds since 1970, just before the first of them was looked at.
    """

    found: tuple[FoundFile, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    unlisted: tuple[str, ...] = ()
    seen_ns: int = 0


def find_files(folder: str | os.PathLike[str]) -> Listing:
    """The files beneath a folder with their signatures, and what was passed over.

    Hidden files and folders beneath it are passed over (its own ancestors may be hidden), and so are office programs'
    lock files, links to folders and whatever is no regular file.

    Args:
        folder: An existing folder.

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
    seen_ns = time.time_ns()  # before the first look: a time too early only casts more doubt on a signature
    found: list[FoundFile] = []
    skipped: list[tuple[str, str]] = []
    unlisted: list[str] = []
    pending = [(os.fspath(folder), "")]
    while pending:
        current, prefix = pending.pop()
        try:
            with os.scandir(current) as scan:
                entries = list(scan)
        except OSError as exc:
            if not prefix:
                msg = f"The dataset's folder {folder} cannot be listed ({exc.strerror}). Give an existing folder."
                raise DatasetPathError(msg) from exc
            unlisted.append(prefix[:-1])
            skipped.append((prefix[:-1], f"cannot be listed: {exc.strerror}"))
            continue
        for entry in entries:
            identity = prefix + entry.name  # Path.relative_to takes 5 us for each
            try:
                reason = _why_not(entry)
                is_folder = not reason and entry.is_dir(follow_symlinks=False)
            except OSError as exc:
                unlisted.append(identity)
                reason = f"cannot be looked at: {exc.strerror}"
            if reason:
                skipped.append((identity, reason))
            elif is_folder:
                pending.append((entry.path, identity + "/"))
            else:
                found.append(FoundFile(identity, entry.path, signature_of(entry)))
    found.sort(key=lambda file: file.identity)
    return Listing(tuple(found), tuple(sorted(skipped)), tuple(sorted(unlisted)), seen_ns)


def signature_of(file: str | os.PathLike[str]) -> Signature | None:
    """What a file looks like now, a link's target in its place; None if it cannot be looked at.

    To be taken before the file is read, so that a change in between is seen the next time.

    Args:
        file: A path, or an entry of `os.scandir`, which on some systems has been looked at already.

    Example:
        >>> signature_of("no/such/file") is None
        True
    """
    try:
        status = file.stat() if isinstance(file, os.DirEntry) else os.stat(file)  # noqa: PTH116  also takes texts
    except OSError:  # whoever reads it next will meet the same error, and report it
        return None
    return Signature(status.st_size, status.st_mtime_ns, status.st_ino)


def hash_file(path: str | os.PathLike[str]) -> str:
    """A digest of what a file holds: BLAKE2b, 16 bytes, as 32 hexadecimal digits.

    Where the system allows it (on Linux, to a file's owner), the reading leaves the time of last access alone.

    Raises:
        OSError: If the file is gone, may not be read, or is no regular file.

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

    The creation date is the birth time where the system keeps one, else the earlier of the times of last change of
    content and of entry.

    Raises:
        OSError: If the file is gone, may not be looked at, or is no regular file.
    """
    status = path.stat()
    _check_regular(status)
    born = getattr(status, "st_birthtime", min(status.st_ctime, status.st_mtime))
    return {
        "file_name": path.name,
        "file_type": mime_type(path.suffix),
        "file_size": status.st_size,
        "creation_date": _day(born),
        "last_modified_date": _day(status.st_mtime),
        "last_accessed_date": _day(status.st_atime),
    }


def _why_not(entry: os.DirEntry[str]) -> str:
    """Why an entry is passed over; "" for a file or a folder. An OSError if the system does not tell what it is."""
    if entry.name.startswith("."):
        return "hidden"
    if entry.name.startswith("~$"):
        return "lock file of an office program"
    if entry.is_dir(follow_symlinks=False):
        return ""
    try:
        if entry.is_file():
            return ""
        linked_folder = entry.is_dir()
    except OSError as exc:
        if exc.errno not in _LEADS_NOWHERE:
            raise
        linked_folder = False
    if linked_folder:
        return "link to a folder"
    return "link that leads nowhere" if entry.is_symlink() else "not a regular file"


def _open_unnoticed(path: str, flags: int) -> int:
    """Open without counting as an access, and without waiting for the other end of what turns out to be a pipe."""
    flags |= getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:  # others than a file's owner may not ask for that
        return os.open(path, flags)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise OSError(errno.EINVAL, "it is no regular file")


def _day(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds).date().isoformat()  # noqa: DTZ006  days as the user's clock has them
