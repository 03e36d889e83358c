"""Files of a dataset: choosing and listing them, signatures, hashes, built-in metadata."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import heapq
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyrag.data.fields import mime_type
from lazyrag.errors import ConfigError, DatasetPathError
from lazyrag.types import JsonObject, PathLike
from lazyrag.validation import normal_name, require, validate_boolean, validate_texts

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

Rules: TypeAlias = "tuple[str, str, GitIgnoreSpec]"
"""Patterns of one ignore file, with the identity of its folder and a slash ("" for the dataset's),
and its name."""

STORE_FOLDER = ".lazyrag"
"""The folder in which the command line keeps its store; not a part of any dataset."""

IGNORE_FILES = (".gitignore", ".lazyragignore")
_LEFT_OUT_FOLDERS = frozenset({"node_modules", "__pycache__"})
_LEFT_OUT_SUFFIXES = (".min.css", ".min.js")
_ENVIRONMENT = "pyvenv.cfg"  # in every virtual environment
_BLOCK_BYTES = 1 << 18
_LEADS_OUT = "link to a file outside of the dataset; pass follow_links=True to read it"
# of a link; a missing target is no error in os.scandir
_LEADS_NOWHERE = (errno.ELOOP, errno.ENOTDIR)


class Signature(NamedTuple):
    """A cheap check for changes of a file.

    Equal signatures mean equal content, except for a file that was written in place with the same
    length, and either within a tick of the file system's clock (see
    `lazyrag.ingest.dataset.KnownFile`) or with its time reset.

    Args:
        size: In bytes.
        mtime_ns: Time of last modification, in nanoseconds since 1970.
        inode: Number in the file system, which differs after a replacement. 0 on systems without.
    """

    size: int
    mtime_ns: int
    inode: int


class RemotePath(str):
    """URL of a file of object storage, see `lazyrag.loaders.remote`."""

    __slots__ = ()


class FoundFile(NamedTuple):
    """One file of a dataset.

    Args:
        identity: Its path relative to the dataset, with forward slashes, or the user's id; in NFC.
        raw_path: Its path as found: a text or a path.
        signature: At the time of listing; None if unknown.
    """

    identity: str
    raw_path: PathLike
    signature: Signature | None = None

    @property
    def path(self) -> Path:
        """The path, created on demand: a Path takes six times the memory of a text."""
        return Path(self.raw_path)


@dataclass(slots=True)
class Listing:
    """The content of a folder at one time.

    Args:
        files: The files, in order of identity. Those of a folder are found as they are iterated
            over, once; what follows is complete after that.
        skipped: Pairs (relative path, reason).
        unreadable: Relative paths of folders that could not be listed and links that could not be
            followed; also in ``skipped``. Known files below them may still exist.
        seen_ns: Wall-clock time before the listing, in nanoseconds since 1970.
        left_out: Identities in ``skipped`` that the selection leaves out: documents of files there
            are deleted.
        clashes: Files whose identity differs from that of a found file only by its normal form,
            each with that file: these fail.
    """

    files: Iterable[FoundFile] = ()
    skipped: list[tuple[str, str]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    seen_ns: int = 0
    left_out: set[str] = field(default_factory=set)
    clashes: list[tuple[FoundFile, FoundFile]] = field(default_factory=list)

    def leaves_out(self, identity: str) -> bool:
        """Whether the selection leaves out a file, or a folder that it is in."""
        return bool(self.left_out) and any(
            identity[:at] in self.left_out
            for at in range(1, len(identity) + 1)
            if identity[at : at + 1] in ("/", "")
        )


# Choosing


@dataclass(frozen=True, slots=True)
class Selection:
    """What a user chose of a folder, as patterns of gitignore.

    Args:
        include: Only files that match one of them; () for all.
        exclude: Not these files and folders; takes precedence over ignore files.
        use_gitignore: Whether ``.gitignore`` files apply, beside ``.lazyragignore``.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    use_gitignore: bool = False

    def changed(self, **choices: Any) -> Selection:
        """Return it with what a user gave; None leaves a value as it is.

        Raises:
            ConfigError: If a value has the wrong type, or a pattern is invalid.
        """
        values = {
            name: getattr(self, name) if choices.get(name) is None else choices[name]
            for name in self.__slots__
        }
        for name in ("include", "exclude"):
            values[name] = tuple(map(normal_name, validate_texts(name, values[name])))
            wrong = [pattern for pattern in values[name] if not _is_pattern(pattern)]
            require(not wrong, name, wrong, "patterns of gitignore such as '*.md'")
        return Selection(
            **{
                **values,
                "use_gitignore": validate_boolean("use_gitignore", values["use_gitignore"]),
            }
        )


_EVERYTHING = Selection()


def _spec(patterns: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # takes 30 ms, and most folders need none

    return GitIgnoreSpec.from_lines(patterns)


def _is_pattern(pattern: str) -> bool:
    try:
        return _spec([pattern]) is not None
    except (ValueError, re.error):  # pathspec lets the second pass, as of "[z-a]"
        return False


# Listing


def find_files(
    folder: PathLike, *, follow_links: bool = False, selection: Selection = _EVERYTHING
) -> Listing:
    """List the files below a folder, with their signatures.

    Skips hidden files and folders (the folder itself may be hidden), lock files of office programs,
    links to folders or out of the folder, everything that is not a regular file, and what the
    selection leaves out.

    Args:
        folder: An existing folder.
        follow_links: Include links to files outside of the folder.
        selection: What the user chose of the folder.

    Returns:
        The listing. Iterating over its files raises a DatasetPathError if the folder itself cannot
        be listed, and a ConfigError if an ignore file cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "tea.txt").write_text("Green tea", encoding="utf-8")
        ...     [file] = find_files(folder).files
        >>> file.identity, file.signature.size
        ('tea.txt', 9)
    """
    inside = "" if follow_links else os.path.realpath(folder).rstrip(os.sep) + os.sep
    # an early time is on the safe side
    listing = Listing(seen_ns=time.time_ns())
    listing.files = _Walk(inside, selection, listing).files(os.fspath(folder))
    return listing


_Folder: TypeAlias = tuple[str, str, tuple[Rules, ...]]
"""Path of a folder, the beginning of identities in it, and the rules from above."""


class _Walk:
    """A listing in progress.

    Args:
        inside: The path that the targets of links begin with; "" for any.
        selection: What the user chose.
        listing: Where other things than files are noted.
    """

    def __init__(self, inside: str, selection: Selection, listing: Listing) -> None:
        self._inside = inside
        self._include = _spec(selection.include) if selection.include else None
        self._exclude = (("", "exclude=", _spec(selection.exclude)),) if selection.exclude else ()
        self._ignore_files = IGNORE_FILES if selection.use_gitignore else IGNORE_FILES[1:]
        self._listing = listing

    def files(self, folder: str) -> Iterator[FoundFile]:
        """Yield the files below a folder in order of identity; of those with the same one, the
        first.
        """
        last: FoundFile | None = None
        for file in self._files_below((folder, "", ())):
            if last is not None and file.identity == last.identity:
                self._listing.clashes.append((file, last))
            else:
                last = file
                yield file

    def _files_below(self, folder: _Folder) -> Iterator[FoundFile]:
        pending = [self._contents(*folder)]
        while pending:
            for content in pending[-1]:
                if isinstance(content, FoundFile):
                    yield content
                elif len(content) == 1:
                    pending.append(self._contents(*content[0]))
                    break
                else:
                    yield from heapq.merge(*map(self._files_below, content))
            else:
                pending.pop()

    def _contents(
        self, path: str, prefix: str, above: tuple[Rules, ...]
    ) -> Iterator[FoundFile | list[_Folder]]:
        """Yield the files in one folder, and the folders, in order of identity; folders whose names
        differ only by their normal form together.

        Raises:
            DatasetPathError: If the dataset's folder cannot be listed.
            ConfigError: If an ignore file in it cannot be read: what it leaves out must not be
                ingested.
        """
        try:
            with os.scandir(path) as scan:
                entries = [entry for entry in scan if entry.name != STORE_FOLDER]
        except OSError as exc:
            if not prefix:
                raise DatasetPathError(
                    f"The dataset's folder {path} cannot be listed ({exc.strerror}). Pass an"
                    " existing folder."
                ) from exc
            self._note_unreadable(prefix[:-1], f"cannot be listed: {exc.strerror}")
            return
        if prefix and _ENVIRONMENT in map(attrgetter("name"), entries):
            self._leave_out(prefix[:-1], "virtual environment")
            return
        rules = (*above, *self._own_rules(entries, prefix))
        keyed = sorted(map(_sort_key, entries), reverse=True)
        del entries  # an entry keeps what was read of it
        folders: list[_Folder] = []
        while keyed:
            key, _, entry = keyed.pop()
            path = prefix + key
            if not self._skips(entry, path, rules):
                if key.endswith("/"):
                    folders.append((entry.path, path, rules))
                else:
                    yield FoundFile(path, entry.path, signature_of(entry))
            if folders and not (keyed and keyed[-1][0] == key):
                yield folders
                folders = []

    def _skips(self, entry: os.DirEntry[str], path: str, rules: tuple[Rules, ...]) -> bool:
        """Whether a file or folder is skipped, which is noted. The path is relative, that of a
        folder with a slash at its end.
        """
        identity = path.removesuffix("/")
        try:
            reason = _reason_to_skip(entry, self._inside)
        except OSError as exc:
            self._note_unreadable(identity, f"cannot be looked at: {exc.strerror}")
            return True
        if reason:
            self._listing.skipped.append((identity, reason))
        else:
            reason = self._reason(path, rules)
            if reason:
                self._leave_out(identity, reason)
        return bool(reason)

    def _own_rules(self, entries: Sequence[os.DirEntry[str]], prefix: str) -> Iterator[Rules]:
        """Yield the rules of the ignore files in a folder, the strongest last; report lines that
        are no pattern.
        """
        for name, path in sorted(
            (entry.name, entry.path)
            for entry in entries
            if entry.name in self._ignore_files
            and not (entry.name == ".gitignore" and entry.is_dir())  # which git passes over, too
        ):
            try:
                lines = normal_name(
                    Path(path).read_text(encoding="utf-8", errors="replace")
                ).splitlines()
            except OSError as exc:
                raise ConfigError(
                    f"The ignore file {path} cannot be read ({exc.strerror}). Make it a readable"
                    " file, or remove it."
                ) from exc
            wrong = {
                number: line for number, line in enumerate(lines, start=1) if not _is_pattern(line)
            }
            reason = "line {} of {} is no pattern of gitignore: {!r}. Correct or remove it"
            where = prefix + name
            self._listing.skipped += [
                (where, reason.format(number, where, line)) for number, line in wrong.items()
            ]
            yield (
                prefix,
                name,
                _spec(line for number, line in enumerate(lines, start=1) if number not in wrong),
            )

    def _reason(self, path: str, rules: tuple[Rules, ...]) -> str:
        """Return why a file or folder is left out; "" if it is not."""
        is_folder = path.endswith("/")
        for prefix, source, spec in reversed((*rules, *self._exclude)):
            verdict = spec.check_file(path[len(prefix) :]).include
            if verdict:
                return f"excluded by {source}"
            if verdict is not None:
                break
        else:
            name = path.removesuffix("/").rpartition("/")[2]
            if name in _LEFT_OUT_FOLDERS if is_folder else name.endswith(_LEFT_OUT_SUFFIXES):
                return "built-in skip list"
        is_included = is_folder or self._include is None or self._include.match_file(path)
        return "" if is_included else "not included"

    def _leave_out(self, identity: str, reason: str) -> None:
        self._listing.left_out.add(identity)
        self._listing.skipped.append((identity, reason))

    def _note_unreadable(self, identity: str, reason: str) -> None:
        self._listing.unreadable.append(identity)
        self._listing.skipped.append((identity, reason))


def _sort_key(entry: os.DirEntry[str]) -> tuple[str, str, os.DirEntry[str]]:
    """Return an entry with what it is sorted by in its folder, so that identities are in order: its
    name in NFC, that of a folder with a slash as in git; then its name as it is.
    """
    name = normal_name(entry.name)
    try:
        if entry.is_dir(follow_symlinks=False):
            name += "/"
    except OSError:  # it is skipped
        pass
    return name, entry.name, entry


def signature_of(file: PathLike) -> Signature | None:
    """The signature of a file, or of a link's target; None if it cannot be read.

    Take it before reading the file, so that a later check sees a change in between.

    Args:
        file: A path, or an entry of `os.scandir`, which on some systems has its status already.

    Example:
        >>> signature_of("no/such/file") is None
        True
    """
    try:
        # which also takes texts
        status = file.stat() if isinstance(file, os.DirEntry) else os.stat(file)  # noqa: PTH116
    except OSError:  # reading the file reports the same error
        return None
    return Signature(status.st_size, status.st_mtime_ns, status.st_ino)


def hash_file(path: PathLike) -> str:
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


def built_in_metadata(path: Path) -> JsonObject:
    """The six built-in metadata fields (spec 001).

    The creation date is the birth time if the system stores it, else the earlier of ctime and
    mtime.

    Raises:
        OSError: If the file is missing, unreadable, or not a regular file.
    """
    status = path.stat()
    _check_regular(status)
    born = getattr(status, "st_birthtime", min(status.st_ctime, status.st_mtime))
    return {
        "file_name": normal_name(path.name),
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
    return (
        "link that leads nowhere"
        if entry.is_symlink() and not Path(entry.path).exists()
        else "not a regular file"
    )


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
    moment = dt.datetime.fromtimestamp(seconds)  # noqa: DTZ006  in the user's time zone
    return moment.date().isoformat()
