"""What changed in a dataset since it was last read: files found beside what the ledger knows of them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.errors import ConfigError, DatasetPathError, missing_package, sentence
from lazyrag.loaders.directory import FoundFile, Listing, Signature, find_files, signature_of

_RACY_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT's) ticks every two seconds
_FEW_FILES = 10  # so many may go at once, whatever share of the dataset they are


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What the ledger knows of a file.

    Args:
        identity: Its path relative to the dataset, or the id a user gave.
        signature: What it looked like before it was hashed; None if it could not be looked at.
        content_hash: Digest of what it held.
        seen_ns: Wall-clock time at which the signature was taken or shortly before, in nanoseconds since 1970.
        mark: Digest of what else makes its document: its loader, and what the user says of it.
    """

    identity: str
    signature: Signature | None
    content_hash: str
    seen_ns: int
    mark: str

    @property
    def racy(self) -> bool:
        """Whether it may have changed since without its signature showing it.

        So it is where it was modified within two seconds before it was seen, or in the future: the file system's clock
        may not have ticked between that modification and the next. Two seconds later it cannot be racy again, if
        nobody touches it.

        Source:
            https://git-scm.com/docs/racy-git
        """
        return self.signature is None or self.seen_ns - self.signature.mtime_ns < _RACY_NS

    def vouches_for(self, file: FoundFile) -> bool:
        """Whether a file of this identity surely holds what it held."""
        return not self.racy and self.signature == file.signature


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file as it is found, beside what is known of it.

    Args:
        file: The file; its signature is from before it was hashed.
        content_hash: Digest of what it holds.
        mark: Digest of its loader and of what the user says of it.
        known: What the ledger knows: of the file it was moved from if it was moved, nothing if it was added.
    """

    file: FoundFile
    content_hash: str
    mark: str
    known: KnownFile | None = None

    def to_know(self, seen_ns: int) -> KnownFile:
        """What the ledger is to know of it from now on.

        Args:
            seen_ns: When the file was found, see `lazyrag.loaders.directory.Listing`.
        """
        return KnownFile(self.file.identity, self.file.signature, self.content_hash, seen_ns, self.mark)


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of every file. A file that is found stands in one of the first seven, a known one in one of all.

    Args:
        added: Not known before.
        changed: Other content.
        remarked: The same content, another mark: to be loaded anew, and embedded only where the text is another.
        touched: The same content and mark, but only hashing could tell: the ledger has to renew the signature, or it
            will be hashed again.
        unchanged: Nothing to do.
        moved: A new identity that has the content of one that is gone, which stands in ``known`` and nowhere else.
        unreadable: Files that had to be hashed and could not be, with the error. A known one stays as it is.
        deleted: No longer there.
        withheld: No longer there either, but so many at once that they stay until someone confirms it.
        unseen: Not found, but in a folder that could not be listed. They stay.
    """

    added: tuple[ComparedFile, ...] = ()
    changed: tuple[ComparedFile, ...] = ()
    remarked: tuple[ComparedFile, ...] = ()
    touched: tuple[ComparedFile, ...] = ()
    unchanged: tuple[ComparedFile, ...] = ()
    moved: tuple[ComparedFile, ...] = ()
    unreadable: tuple[tuple[FoundFile, OSError], ...] = ()
    deleted: tuple[KnownFile, ...] = ()
    withheld: tuple[KnownFile, ...] = ()
    unseen: tuple[KnownFile, ...] = ()


def compare(
    found: Iterable[FoundFile],
    known: Iterable[KnownFile],
    *,
    unlisted: Collection[str],
    content_hash: Callable[[FoundFile], str],
    mark: Callable[[FoundFile], str],
    max_deleted: float,
) -> Changes:
    """Find out which files were added, changed, moved and deleted, hashing only those that are in doubt.

    A file is looked at first, hashed next and loaded last, and the ledger gets the signature of that first look. Then a
    file that is renewed meanwhile no longer fits its signature, or is `KnownFile.racy`, and is hashed again the next
    time. Looking at it once more after loading, and writing down no signature (None) where it is another, also covers
    one that was renewed for loading only and put back after.

    Args:
        found: The files that are there, each with its signature.
        known: What the ledger knows.
        unlisted: Identities of folders that could not be listed; what is known beneath them is not taken for deleted.
        content_hash: Hashes a file, with `lazyrag.loaders.directory.hash_file` for one. Called at most once for each,
            and not at all for one that surely holds what it held; an OSError makes the file unreadable.
        mark: The present mark of a file, called at most once for each. What it raises is not caught.
        max_deleted: Share of the known files in [0, 1] that may go at once. If all of them are gone, or more than ten
            and more than this share, they are withheld; 1 lets everything go.

    Returns:
        All files sorted out; those that are found in the order of ``found``, the others in order of identity.

        Which of several files with one content was moved where is settled by names: files whose name (the last part of
        the identity) is the same first, then in order of identity. Empty files never count as moved.

    Raises:
        ConfigError: If ``max_deleted`` is no share.

    Example:
        >>> from pathlib import Path
        >>> files = [FoundFile("new/tea.txt", Path("tea.txt"), Signature(9, 5, 1))]
        >>> ledger = [KnownFile("old/tea.txt", Signature(9, 5, 1), "f00d", 7, "")]
        >>> here = {"unlisted": (), "content_hash": lambda file: "f00d", "mark": lambda file: "", "max_deleted": 0.5}
        >>> [(one.known.identity, one.file.identity) for one in compare(files, ledger, **here).moved]
        [('old/tea.txt', 'new/tea.txt')]
    """
    check_max_deleted(max_deleted)
    gone = {file.identity: file for file in known}
    known_count = len(gone)
    kinds: defaultdict[str, list[ComparedFile]] = defaultdict(list)
    unreadable: list[tuple[FoundFile, OSError]] = []
    for file in found:
        before = gone.pop(file.identity, None)
        try:
            content = before.content_hash if before and before.vouches_for(file) else content_hash(file)
        except OSError as exc:
            unreadable.append((file, exc))
            continue
        now = ComparedFile(file, content, mark(file), before)
        kinds[_kind(now)].append(now)

    not_found = sorted(gone.values(), key=lambda file: file.identity)
    unseen = {file.identity for file in not_found if _lies_in(file.identity, unlisted)}
    origins = _origins(kinds["added"], [file for file in not_found if file.identity not in unseen])
    explained = unseen.union(file.identity for file in origins.values())
    lost = tuple(file for file in not_found if file.identity not in explained)
    withhold = _too_many(len(lost), known_count, max_deleted)
    return Changes(
        added=tuple(now for now in kinds["added"] if now.file.identity not in origins),
        changed=tuple(kinds["changed"]),
        remarked=tuple(kinds["remarked"]),
        touched=tuple(kinds["touched"]),
        unchanged=tuple(kinds["unchanged"]),
        moved=tuple(
            replace(now, known=origins[now.file.identity]) for now in kinds["added"] if now.file.identity in origins
        ),
        unreadable=tuple(unreadable),
        deleted=() if withhold else lost,
        withheld=lost if withhold else (),
        unseen=tuple(file for file in not_found if file.identity in unseen),
    )


def check_max_deleted(max_deleted: float) -> None:
    """Refuse what is no share of the known files.

    Raises:
        ConfigError: If it is none.
    """
    is_number = isinstance(max_deleted, (int, float)) and not isinstance(max_deleted, bool)
    if not is_number or not 0 <= max_deleted <= 1:
        msg = f"max_deleted is {max_deleted!r}; give a share of the known files from 0 to 1. 1 lets all of them go."
        raise ConfigError(msg)


def _kind(now: ComparedFile) -> str:
    """Which of the kinds of `Changes` a file that could be read belongs to, moves apart."""
    if now.known is None:
        return "added"
    if now.content_hash != now.known.content_hash:
        return "changed"
    if now.mark != now.known.mark:
        return "remarked"
    return "unchanged" if now.known.vouches_for(now.file) else "touched"


def _lies_in(identity: str, folders: Collection[str]) -> bool:
    return f"{identity}/".startswith(tuple(f"{folder}/" for folder in folders))


def _origins(added: Iterable[ComparedFile], gone: Sequence[KnownFile]) -> dict[str, KnownFile]:
    """Where files came from that are new here: one that is gone and had the same content, for each at most one.

    Returns:
        From the new identity to the file that is gone.
    """
    new = sorted((now for now in added if _holds_something(now.file)), key=lambda now: now.file.identity)
    old = [file for file in gone if _holds_something(file)]
    origins: dict[str, KnownFile] = {}
    for key in (_content_and_name, _content):
        taken = {file.identity for file in origins.values()}
        left: defaultdict[tuple[str, ...], deque[KnownFile]] = defaultdict(deque)
        for file in old:
            if file.identity not in taken:
                left[key(file.content_hash, file.identity)].append(file)
        for now in new:
            same = left.get(key(now.content_hash, now.file.identity))
            if same and now.file.identity not in origins:
                origins[now.file.identity] = same.popleft()
    return origins


def _content_and_name(content_hash: str, identity: str) -> tuple[str, ...]:
    return content_hash, identity.rpartition("/")[2]


def _content(content_hash: str, _identity: str) -> tuple[str, ...]:
    return (content_hash,)


def _holds_something(file: FoundFile | KnownFile) -> bool:
    """Whether it is known not to be empty: all empty files look like moved ones to each other."""
    return file.signature is not None and file.signature.size > 0


def _too_many(lost: int, known: int, max_deleted: float) -> bool:
    """Whether so many files are missing that a folder that was not mounted is likelier than their deletion."""
    if max_deleted >= 1 or lost == 0:
        return False
    return lost == known or (lost > _FEW_FILES and lost / known > max_deleted)


PathLike: TypeAlias = "str | os.PathLike[str]"
FileMetadata: TypeAlias = "Mapping[str, Mapping[str, Any]] | Callable[[Path], Mapping[str, Any] | None] | None"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where a Document's files come from.

    Args:
        where: The folder or file, for messages; "" where there is none, or several.
        list_files: Lists them anew.
        metadata: What the user says of them: a mapping by identity, or a function of the file's `pathlib.Path`.
        folder: The folder, if it is one.
        is_given: Whether there is a dataset at all; else nothing is looked after, and nothing that is known is gone.
    """

    where: str
    list_files: Callable[[], Listing]
    metadata: FileMetadata = None
    folder: Path | None = None
    is_given: bool = True

    def lies_in(self, path: Path) -> str:
        """The identity of a file within the dataset's folder; "" for one that lies elsewhere."""
        if self.folder is None:
            return ""
        try:
            return path.absolute().relative_to(self.folder).as_posix()
        except ValueError:
            return ""

    def said_of(self, file: FoundFile) -> Mapping[str, Any]:
        """What the user says of a file.

        Raises:
            ConfigError: If the function raises, or the metadata is no mapping or names a built-in field.
        """
        said: Any
        if callable(self.metadata):
            try:
                said = self.metadata(file.path)
            except Exception as exc:
                msg = sentence(f"file_metadata raised {type(exc).__name__}: {exc}")
                raise ConfigError(msg) from exc
        else:
            said = (self.metadata or {}).get(file.identity)
        if said is None:
            return {}
        if not isinstance(said, Mapping):
            msg = f"file_metadata gave {said!r}; a mapping of names to values is needed, or None."
            raise ConfigError(msg)
        built_in = [name for name in said if name in BUILT_IN_FIELDS]
        if built_in:
            msg = f"file_metadata gives {built_in[0]!r}, which is read from the file system. Use another name."
            raise ConfigError(msg)
        return said

    def unused_names(self, files: Sequence[FoundFile]) -> list[str]:
        """Keys of the metadata mapping that name no file: misspelt ones, most likely."""
        known = {file.identity for file in files}
        return [] if not isinstance(self.metadata, Mapping) else [str(one) for one in self.metadata if one not in known]


def make_dataset(
    dataset_path: PathLike | None,
    doc_files: Sequence[PathLike] | Mapping[str, PathLike] | None,
    file_metadata: FileMetadata,
) -> Dataset:
    """A Document's dataset from its arguments, its paths checked.

    Raises:
        DatasetPathError: If a path is not there.
        ConfigError: If an argument is of the wrong kind, or both paths and files are given.
    """
    if not (file_metadata is None or callable(file_metadata) or isinstance(file_metadata, Mapping)):
        msg = f"file_metadata is {file_metadata!r}; give a mapping by path, or a function of the path."
        raise ConfigError(msg)
    if dataset_path is not None and doc_files is not None:
        msg = "Document got dataset_path and doc_files; give one of them."
        raise ConfigError(msg)
    if isinstance(file_metadata, Mapping):
        own_ids = isinstance(doc_files, Mapping)
        file_metadata = {_identity(name, own_ids): said for name, said in file_metadata.items()}
    if doc_files is not None:
        files = named_files(doc_files, "doc_files")
        return Dataset("", lambda: _looked_at(files), file_metadata)
    if dataset_path is None:
        return Dataset("", lambda: _looked_at(()), file_metadata, is_given=False)
    path = _existing(dataset_path, "dataset_path")
    if path.is_dir():
        return Dataset(os.fspath(dataset_path), lambda: find_files(path), file_metadata, path)
    return Dataset(os.fspath(dataset_path), lambda: _looked_at([FoundFile(path.name, path)]), file_metadata)


def _looked_at(files: Sequence[FoundFile]) -> Listing:
    """Single files with their signatures; one that cannot be looked at is there without."""
    seen_ns = time.time_ns()
    return Listing(tuple(replace(file, signature=signature_of(file.path)) for file in files), seen_ns=seen_ns)


def _identity(name: Any, own_ids: bool) -> str:
    """A key of file_metadata as files are known: an id as it is, a path relative and with forward slashes."""
    if not isinstance(name, (str, os.PathLike)):
        msg = f"file_metadata has the key {name!r}; keys are paths relative to the dataset, or ids given in doc_files."
        raise ConfigError(msg)
    return str(name) if own_ids else PurePath(name).as_posix()


def named_files(doc_files: Sequence[PathLike] | Mapping[str, PathLike], what: str) -> list[FoundFile]:
    """Single files from an argument, in order of identity.

    Raises:
        ConfigError: If it is none, or names a file twice.
        DatasetPathError: If a path is not there.
    """
    if isinstance(doc_files, (str, os.PathLike)):
        msg = f"{what} is one path ({os.fspath(doc_files)!r}); give a list of paths. One file may be the dataset_path."
        raise ConfigError(msg)
    if not isinstance(doc_files, Iterable):
        msg = f"{what} is {doc_files!r}; give a list of paths, or a mapping of ids of your own to paths."
        raise ConfigError(msg)
    if isinstance(doc_files, Mapping):
        strange = [identity for identity in doc_files if not isinstance(identity, str) or not identity.strip()]
        if strange:
            msg = f"{what} has the id {strange[0]!r}; ids are texts, not blank."
            raise ConfigError(msg)
        files = [FoundFile(name, _existing(path, f"{what}[{name!r}]")) for name, path in doc_files.items()]
    else:
        paths = [_existing(path, what) for path in doc_files]
        files = [FoundFile(path.name, path) for path in paths]
    twice = sorted(name for name, times in Counter(file.identity for file in files).items() if times > 1)
    if twice:
        msg = f"{what} has several files named {twice[0]!r}. Give a mapping of ids of your own to paths."
        raise ConfigError(msg)
    folders = [file.path for file in files if file.path.is_dir()]
    if folders:
        msg = f"{what} names a folder: {folders[0]}. Give single files; a whole folder goes as dataset_path."
        raise ConfigError(msg)
    return sorted(files, key=lambda file: file.identity)


def _existing(path: Any, what: str) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        hint = " For several files use doc_files." if isinstance(path, (list, tuple)) else ""
        msg = f"{what} is {path!r} ({type(path).__name__}); give a path.{hint}"
        raise ConfigError(msg)
    if not os.fspath(path):
        msg = f"{what} is an empty text; give a path. The current folder is '.'."
        raise ConfigError(msg)
    found = Path(path).expanduser().absolute()  # the working directory may change before the first use
    if found.exists() and not (found.is_dir() or found.is_file()):
        msg = f"{what} {os.fspath(path)!r} is neither a folder nor a regular file. Give one of those."
        raise DatasetPathError(msg)
    if not found.exists():
        msg = f"{what} {os.fspath(path)!r} does not exist (looked for {found}). Give an existing folder or file."
        raise DatasetPathError(msg)
    return found


_STEP_S = 0.05
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system in use counts in steps of two seconds


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """What is watched, and which events in it concern a dataset.

    Args:
        folder: The dataset's folder; None for single files.
        files: The single files.
        store: Path with which those of the store's own files begin; "" where it lies in memory.
    """

    folder: str | None
    files: frozenset[str]
    store: str = ""

    @classmethod
    def of(cls, dataset: Dataset, store: Path | None) -> WatchedFiles:
        """Those of a dataset.

        Args:
            dataset: With a folder, or files.
            store: The store's file; None where it lies in memory.
        """
        # Systems tell events by real paths, whatever path was given to be watched.
        own = "" if store is None else os.path.realpath(store)
        if dataset.folder is not None:
            return cls(os.path.realpath(dataset.folder), frozenset(), own)
        files = (file.path for file in dataset.list_files().found)
        return cls(None, frozenset(str(one.parent.resolve() / one.name) for one in files), own)

    @property
    def places(self) -> tuple[str, ...]:
        """Folders to watch: the dataset's with all beneath it, or those that its single files lie in.

        A file is watched through its folder, as most programs save by putting a new file in the old one's place.
        """
        if self.folder is not None:
            return (self.folder,)
        return tuple(sorted({str(Path(one).parent) for one in self.files}))

    def concerns(self, path: str) -> bool:
        """Whether an event at a path may change what a sync finds: not in hidden files, nor in the store's own."""
        if self.store and path.startswith(self.store):
            return False
        if self.folder is None:
            return path in self.files
        # The folder itself is ".", and hidden by that: what is new in it is told by its own name.
        parts = os.path.relpath(path, self.folder).split(os.sep)  # noqa: PTH206  Path has no part for "."
        return not any(part.startswith((".", "~$")) for part in parts)


def events_of_system(watched: WatchedFiles, stop: threading.Event, tick_s: float) -> Iterator[bool]:
    """Whether something has changed, again and again, as the operating system tells it.

    What changes between two steps is not lost: it is told by the next. A folder that goes away is waited for.

    Args:
        watched: What is to be watched.
        stop: Ends it, within a moment.
        tick_s: After so many seconds there is a step, though nothing has changed.

    Yields:
        At the first step, that watching has begun (False); whether anything that concerns the dataset has changed since
        the step before.

    Raises:
        MissingDependencyError: If watchfiles is not installed.
        DatasetPathError: If the system refuses to watch.
    """
    try:
        from watchfiles import watch
    except ModuleNotFoundError as exc:
        raise missing_package("Document.watch without poll_s", exc, "watch") from exc

    missed = False  # whether something may have changed while nobody watched
    while not stop.is_set():
        seen = _inodes(watched.places)
        if None in seen:
            yield not missed  # once: that it went away is a change, too
            missed = True
            stop.wait(tick_s)
            continue
        changes = watch(
            *watched.places,
            watch_filter=None,  # what it holds back, it does not step for
            step=round(1000 * min(_STEP_S, tick_s)),
            debounce=round(1000 * tick_s),
            rust_timeout=round(1000 * tick_s),
            yield_on_timeout=True,
            stop_event=stop,
            debug=False,
            raise_interrupt=False,
            force_polling=False,
            recursive=watched.folder is not None,
            ignore_permission_denied=True,
        )
        try:
            changed, missed = missed, True
            for paths in changes:
                yield changed or any(watched.concerns(path) for _, path in paths)
                changed = False
                if _inodes(watched.places) != seen:  # the system watches folders, not what has their names later
                    yield True
                    break
        except FileNotFoundError:  # gone since it was looked for
            stop.wait(tick_s)
        except (OSError, RuntimeError) as exc:
            msg = (
                f"{', '.join(watched.places)} cannot be watched ({exc}). Raise the system's limit of watched files "
                "(on Linux fs.inotify.max_user_watches), or pass poll_s=, which looks by itself."
            )
            raise DatasetPathError(msg) from exc
        finally:
            changes.close()


def events_by_looking(
    dataset: Dataset, watched: WatchedFiles, stop: threading.Event, tick_s: float, poll_s: float
) -> Iterator[bool]:
    """The same, found by listing all files every so often: for network folders, whose systems tell of no event.

    It looks by the same signatures as a sync does, and follows links. A file counts as changed once more when its
    modification is two seconds old: before that, another one may have left the same signature.

    Args:
        dataset: Its files are listed.
        watched: Which of them concern it.
        stop: Ends it.
        tick_s: Seconds from step to step, at most.
        poll_s: Seconds from look to look.
    """
    seen = _look(dataset, watched)
    yield False
    left_s = poll_s
    while not stop.wait(min(tick_s, left_s)):
        left_s -= min(tick_s, left_s)
        if left_s > 0:
            yield False
            continue
        before, seen = seen, _look(dataset, watched)
        left_s = poll_s
        yield seen != before


def _inodes(places: tuple[str, ...]) -> list[tuple[int, int] | None]:
    """Which folders these are now; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for place in places:
        try:
            status = os.stat(place)  # noqa: PTH116  many times a second
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found


def _look(dataset: Dataset, watched: WatchedFiles) -> dict[str, tuple[Signature | None, bool]] | None:
    """Every file's signature, and whether it can be trusted; None if the folder cannot be listed."""
    try:
        listing = dataset.list_files()
    except DatasetPathError:
        return None
    return {
        os.fspath(file.place): (
            file.signature,
            file.signature is not None and listing.seen_ns - file.signature.mtime_ns >= _SETTLED_NS,
        )
        for file in listing.found
        if not (watched.store and os.path.realpath(file.place).startswith(watched.store))
    }
