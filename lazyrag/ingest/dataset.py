"""The files of a dataset: which ones it has, what changed since they were read, and events of
further changes.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.errors import ConfigError, DatasetPathError, StoreError, optional_package, sentence
from lazyrag.loaders.directory import (
    IGNORE_FILES,
    FoundFile,
    Listing,
    Selection,
    Signature,
    find_files,
    signature_of,
)
from lazyrag.loaders.remote import list_remote
from lazyrag.storage.arrays import sync_folder
from lazyrag.types import Metadata, PathLike
from lazyrag.validation import (
    known_arguments,
    normal_name,
    require,
    validate_boolean,
    validate_range,
    validate_text,
    with_normal_names,
)

if TYPE_CHECKING:
    from lazyrag.ledger.tables import DocumentRow
    from lazyrag.stores.sqlite import StoreFile

FileMetadata: TypeAlias = "Mapping[str, Metadata] | Callable[[Path], Metadata | None] | None"

# the coarsest clock of a file system in use (FAT's) ticks every two seconds
_RACY_NS = 2_000_000_000
_EVERYTHING = Selection()
_FEW_FILES = 10  # may be deleted at once, independent of their share of the dataset


@known_arguments
@dataclass(frozen=True, slots=True)
class FileSelection:
    """Which files of its folder a Document reads.

    The first three are stored in the store's file; None is what was stored.

    Args:
        include: Only files that match one of these patterns of gitignore, such as
            ``["*.md", "docs/"]``; [] for all.
        exclude: Not these files and folders. A file ``.lazyragignore`` in the folder or below has
            such patterns, too; ``node_modules``, ``__pycache__``, virtual environments and minified
            CSS and JavaScript are left out.
        use_gitignore: Leave out what the folder's ``.gitignore`` files name.
        follow_links: Read symbolic links in the folder that lead to files outside of it. By default
            they are skipped, and reported in `IngestReport.skipped`. Links to folders are never
            followed.

    Raises:
        ConfigError: If an argument has the wrong type, or a pattern is invalid.

    Example:
        >>> FileSelection(["*.md"], exclude=["drafts/"]).follow_links
        False
    """

    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    use_gitignore: bool | None = None
    follow_links: bool = False

    def __post_init__(self) -> None:
        validate_boolean("follow_links", self.follow_links)
        self.applied_to(_EVERYTHING)

    def applied_to(self, stored: Selection) -> Selection:
        """Return a stored selection with what is chosen here."""
        return stored.changed(
            include=self.include, exclude=self.exclude, use_gitignore=self.use_gitignore
        )


@dataclass(frozen=True, slots=True)
class Dataset:
    """The source of a Document's files.

    Args:
        where: The folder or file, for messages; "" for none or several.
        list_files: Lists them.
        metadata: User metadata: a mapping by identity, or a function of the file's `pathlib.Path`.
        folder: The folder, if it is one.
        is_given: Whether there is a dataset at all; without one, nothing counts as deleted.
        follow_links: Whether links out of the folder are read.
        selection: What is chosen of the folder.
        is_chosen: Whether the user chose it now, and not before.
        store_selection: Stores a selection.
    """

    where: str
    list_files: Callable[[], Listing]
    metadata: FileMetadata = None
    folder: Path | None = None
    is_given: bool = True
    follow_links: bool = False
    selection: Selection = _EVERYTHING
    is_chosen: bool = False
    store_selection: Callable[[Selection], None] = lambda _: None

    def selected(self, store: StoreFile, name: str, files: FileSelection) -> Dataset:
        """Return the dataset with what the user chose of its folder, now or before.

        Args:
            store: The file of the ledger, beside which the choice is stored.
            name: Of the Document.
            files: What is chosen now.

        Raises:
            ConfigError: If there is no folder to choose from.
            StoreError: If the stored choice cannot be read.
        """
        is_chosen = files != FileSelection(follow_links=files.follow_links)
        if self.folder is None:
            hint = "It selects files of a folder: pass dataset_path=."
            require(not is_chosen, "files", files, "None without a folder", hint)
        stored = _read_selections(store).get(name, Selection())
        save = functools.partial(_write_selection, store, name)
        dataset = replace(self, is_chosen=is_chosen, store_selection=save)
        return dataset.with_selection(files.applied_to(stored))

    def with_selection(self, chosen: Selection) -> Dataset:
        """Return the dataset with other files chosen of its folder."""
        files = self.list_files
        if self.folder is not None:
            files = functools.partial(
                find_files, self.folder, follow_links=self.follow_links, selection=chosen
            )
        return replace(self, list_files=files, selection=chosen)

    def relative_path(self, path: Path) -> str:
        """Return the identity of a file in the dataset's folder; "" for a file elsewhere, or a
        hidden one.
        """
        if self.folder is None or not path.absolute().is_relative_to(self.folder):
            return ""
        inside = path.absolute().relative_to(self.folder)
        return (
            ""
            if any(part.startswith(".") for part in inside.parts)
            else normal_name(inside.as_posix())
        )

    def find(self, identity: str) -> FoundFile | None:
        """Return a file by its identity; None if there is none."""
        path = None if self.folder is None else self.folder / identity
        if path is None or not path.exists():  # its name may be written in another normal form
            for file in self.list_files().files:
                if file.identity == identity:
                    return file
        return None if path is None else FoundFile(identity, path)

    def metadata_of(self, file: FoundFile) -> Metadata:
        """Return the user's metadata of a file.

        Raises:
            ConfigError: If the function raises, or the metadata is not a mapping or names a
                built-in field.
        """
        if callable(self.metadata):
            try:
                metadata: Any = self.metadata(file.path)
            except Exception as exc:
                raise ConfigError(
                    sentence(f"file_metadata raised {type(exc).__name__}: {exc}")
                ) from exc
        else:
            metadata = (self.metadata or {}).get(file.identity)
        return {} if metadata is None else validate_user_metadata(file.identity, metadata)


def validate_user_metadata(identity: str, metadata: Any) -> Metadata:
    """Return a user's metadata of a file if it is a mapping and overrides no built-in field.

    Raises:
        ConfigError: If it does not.
    """
    require(
        isinstance(metadata, Mapping),
        f"The metadata of {identity!r}",
        metadata,
        "a mapping of names to values",
    )
    for name in metadata:
        if name in BUILT_IN_FIELDS:
            raise ConfigError(
                f"The metadata of {identity!r} has the key {name!r}, which is built in. Rename it."
            )
    return metadata  # type: ignore[no-any-return]


def make_dataset(
    dataset_path: PathLike | None,
    doc_files: Sequence[PathLike] | Mapping[str, PathLike] | None,
    file_metadata: FileMetadata,
    *,
    follow_links: bool = False,
) -> Dataset:
    """Return the dataset that a Document's arguments describe.

    Raises:
        DatasetPathError: If a path does not exist.
        ConfigError: If an argument has the wrong type, or both paths and files are given.
    """
    is_valid = (
        file_metadata is None or callable(file_metadata) or isinstance(file_metadata, Mapping)
    )
    require(
        is_valid, "file_metadata", file_metadata, "a mapping by path, or a function of the path"
    )
    if dataset_path is not None and doc_files is not None:
        raise ConfigError("Document got both dataset_path and doc_files; pass one of them.")
    if isinstance(file_metadata, Mapping):
        has_ids = isinstance(doc_files, Mapping)
        named = {_metadata_key(name, has_ids): metadata for name, metadata in file_metadata.items()}
        file_metadata = with_normal_names("file_metadata", named)
    if doc_files is not None:
        files = find_named_files(doc_files, "doc_files")
        return Dataset("", lambda: _with_signatures(files), file_metadata)
    if dataset_path is None:
        return Dataset("", Listing, file_metadata, is_given=False)
    if isinstance(dataset_path, str) and "://" in dataset_path:
        return Dataset(dataset_path, lambda: list_remote(dataset_path), file_metadata)
    path = _existing_path(dataset_path, "dataset_path")
    if path.is_dir():
        listing = functools.partial(find_files, path, follow_links=follow_links)
        return Dataset(
            os.fspath(dataset_path), listing, file_metadata, path, follow_links=follow_links
        )
    return Dataset(
        os.fspath(dataset_path), lambda: _with_signatures([_single_file(path)]), file_metadata
    )


def _read_selections(store: StoreFile) -> dict[str, Selection]:
    """Read what was chosen, by name of Document."""
    if store.is_server:
        with store.reading() as connection:
            return {
                name: Selection().changed(**json.loads(chosen))
                for name, chosen in connection.execute("SELECT name, chosen FROM selection")
            }
    file = Path(f"{store.path}.selection")
    try:
        if store.path is None or not file.exists():
            return {}
        stored = json.loads(file.read_text(encoding="utf-8"))
        return {name: Selection().changed(**chosen) for name, chosen in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError) as exc:
        raise StoreError(
            f"{file} cannot be read ({exc}). Delete it, and pass include=, exclude= and"
            " use_gitignore= again."
        ) from exc


def _write_selection(store: StoreFile, name: str, chosen: Selection) -> None:
    if store.path is None or _read_selections(store).get(name) == chosen:
        return
    if store.is_server:
        with store.writing(durable=True) as connection:
            query = (
                "INSERT INTO selection VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET chosen ="
                " excluded.chosen"
            )
            connection.execute(query, (name, json.dumps(asdict(chosen))))
        return
    file = Path(f"{store.path}.selection")
    draft = Path(f"{store.path}.selection.new")
    with store.writing():  # other programs write the choices of other Documents
        selections = {**_read_selections(store), name: chosen}
        to_store = {document: asdict(selection) for document, selection in selections.items()}
        with draft.open("w", encoding="utf-8") as out:
            json.dump(to_store, out)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
        sync_folder(file.parent)


def copy_selection(source: StoreFile, target: StoreFile, name: str) -> None:
    """Copy what was chosen for a Document to another ledger's file."""
    chosen = _read_selections(source).get(name)
    if chosen is not None:
        _write_selection(target, name, chosen)


def _with_signatures(files: Sequence[FoundFile]) -> Listing:
    seen_ns = time.time_ns()
    return Listing(
        [file._replace(signature=signature_of(file.path)) for file in files], seen_ns=seen_ns
    )


def _metadata_key(name: Any, has_ids: bool) -> str:
    """Return a key of file_metadata as an identity: an id as it is, a path with forward slashes."""
    require(
        isinstance(name, (str, os.PathLike)),
        "A key of file_metadata",
        name,
        "a path relative to the dataset, or an id",
    )
    return str(name) if has_ids else PurePath(name).as_posix()


def find_named_files(files: Any, argument: str) -> list[FoundFile]:
    """Return the single files that an argument names, in order of identity.

    Args:
        files: A list of paths, or a mapping of ids to paths.
        argument: Name of the argument, for messages.

    Raises:
        ConfigError: If it is something else, or names a file twice.
        DatasetPathError: If a path does not exist.
    """
    if isinstance(files, Mapping):
        for identity in files:
            validate_text(f"An id of {argument}", identity)
        paths_by_id = with_normal_names(argument, files)
        named = [
            FoundFile(name, _existing_path(path, f"{argument}[{name!r}]"))
            for name, path in paths_by_id.items()
        ]
    else:
        is_list = isinstance(files, Iterable) and not isinstance(files, (str, bytes, os.PathLike))
        require(is_list, argument, files, "a list of paths or a mapping of ids to paths")
        named = [_single_file(_existing_path(path, argument)) for path in files]
    for name, count in Counter(file.identity for file in named).items():
        if count > 1:
            raise ConfigError(
                f"{argument} has several files named {name!r}. Pass a mapping of ids to paths."
            )
    for file in named:
        if file.path.is_dir():
            raise ConfigError(
                f"{argument} contains a folder: {file.path}. Pass single files, or a folder as"
                " dataset_path."
            )
    return sorted(named, key=lambda file: file.identity)


def _single_file(path: Path) -> FoundFile:
    return FoundFile(normal_name(path.name), path)


def _existing_path(path: Any, argument: str) -> Path:
    hint = "For several files use doc_files." if isinstance(path, (list, tuple)) else ""
    require(
        isinstance(path, (str, os.PathLike)) and bool(os.fspath(path)),
        argument,
        path,
        "a path",
        hint,
    )
    # the working directory may change before the first use
    absolute = Path(path).expanduser().absolute()
    name = f"{argument} {os.fspath(path)!r}"
    if not absolute.exists():
        hint = ""
        if set("*?[") & set(absolute.name):
            hint = "A glob is not expanded: pass its folder, and files=FileSelection([pattern]). "
        where = f" (looked for {absolute})" if os.fspath(path) != str(absolute) else ""
        raise DatasetPathError(
            f"{name} does not exist{where}. {hint}Pass an existing folder or file."
        )
    if not (absolute.is_dir() or absolute.is_file()):
        raise DatasetPathError(f"{name} is neither a folder nor a regular file. Pass one of those.")
    return absolute


# Comparing


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file in the ledger.

    Args:
        identity: Its path relative to the dataset, or the user's id.
        signature: Its signature before it was hashed; None if it could not be read.
        content_hash: Digest of its content.
        seen_ns: Wall-clock time at or shortly before the signature was taken, in nanoseconds since
            1970.
        config_hash: Digest of what else determines its document: its loader and the user's
            metadata.
    """

    identity: str
    signature: Signature | None
    content_hash: str
    seen_ns: int
    config_hash: str

    @property
    def racy(self) -> bool:
        """Whether it may have changed without a change of its signature.

        This is possible if it was modified within two seconds before it was seen, or in the future:
        the file system's clock may not have ticked between that modification and the next. Two
        seconds later it is no longer racy unless it is modified again.

        Source:
            https://git-scm.com/docs/racy-git
        """
        return self.signature is None or self.seen_ns - self.signature.mtime_ns < _RACY_NS

    def matches(self, file: FoundFile) -> bool:
        """Whether a file of this identity certainly has the same content."""
        return not self.racy and self.signature == file.signature


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A found file compared with the ledger.

    Args:
        file: The file; its signature is from before it was hashed.
        content_hash: Digest of its content.
        config_hash: Digest of its loader and the user's metadata.
        before: The file in the ledger: that of the old path for a moved file, None for an added
            one.
    """

    file: FoundFile
    content_hash: str
    config_hash: str
    before: KnownFile | None = None

    @property
    def identity(self) -> str:
        """Identity of the file."""
        return self.file.identity


ComparedFiles: TypeAlias = tuple[ComparedFile, ...]
"""Files that a sync treats alike."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Files by kind of change. A found file is in one of the first seven, a known one in one of
    all.

    Args:
        added: Not known before.
        changed: Changed content.
        reconfigured: Same content, changed config hash: loaded again, and embedded only if the text
            changes.
        touched: Same content and config hash, as hashing showed: the ledger renews the signature,
            so that the file is not hashed again.
        unchanged: Nothing to do.
        moved: A new identity with the content of a missing file, which is in ``before`` and nowhere
            else.
        unreadable: Files that had to be hashed and could not be, with the error. A known one stays
            as it is.
        deleted: Missing.
        withheld: Missing too, but so many at once that they are kept until the deletion is
            confirmed.
        unseen: Not found, but in a folder that could not be listed. They are kept.
    """

    added: ComparedFiles = ()
    changed: ComparedFiles = ()
    reconfigured: ComparedFiles = ()
    touched: ComparedFiles = ()
    unchanged: ComparedFiles = ()
    moved: ComparedFiles = ()
    unreadable: tuple[tuple[FoundFile, OSError], ...] = ()
    deleted: tuple[KnownFile, ...] = ()
    withheld: tuple[KnownFile, ...] = ()
    unseen: tuple[KnownFile, ...] = ()

    @property
    def to_load(self) -> ComparedFiles:
        """Files to load because they are new, or their content, loader or metadata changed."""
        return (*self.added, *self.changed, *self.reconfigured)

    @property
    def moves(self) -> tuple[tuple[str, str], ...]:
        """Old and new identities of moved files."""
        return tuple(
            (file.before.identity, file.identity) for file in self.moved if file.before is not None
        )


File = TypeVar("File", FoundFile, "ComparedFile")


def pair_by_identity(
    files: Iterable[File], documents: Iterable[DocumentRow]
) -> Iterator[tuple[str, File | None, DocumentRow | None]]:
    """Pair files with the documents of the same identity; both come and go in order of identity.

    Yields:
        Each identity with its file and its document; None for the one that is missing.
    """
    rows = iter(documents)
    row = next(rows, None)
    for file in files:
        identity = file.identity
        while row is not None and row.identity < identity:
            yield row.identity, None, row
            row = next(rows, None)
        if row is not None and row.identity == identity:
            yield identity, file, row
            row = next(rows, None)
        else:
            yield identity, file, None
    while row is not None:
        yield row.identity, None, row
        row = next(rows, None)


def compare(
    files: Iterable[FoundFile],
    known_files: Iterable[KnownFile],
    *,
    unlisted: Collection[str],
    content_hash: Callable[[FoundFile], str],
    config_hash: Callable[[FoundFile], str],
    max_deleted: float,
    settled: int = 0,
) -> Changes:
    """Find added, changed, moved and deleted files, and hash only those in doubt.

    The order is: take signatures, hash, load; the ledger stores the first signature. A file that is
    modified meanwhile then differs from its signature, or is `KnownFile.racy`, and is hashed again
    the next time. Taking the signature again after loading, and storing None if it differs, also
    covers a file that was replaced only while it was loaded.

    Args:
        files: The files, each with its signature.
        known_files: The files in the ledger.
        unlisted: Identities of folders that could not be listed; known files below them do not
            count as deleted.
        content_hash: Hashes a file, e.g. with `lazyrag.loaders.directory.hash_file`. Called at most
            once per file, and not for a file that certainly has the same content; an OSError makes
            the file unreadable.
        config_hash: Hashes a file's loader and user metadata, called at most once per file. Its
            errors are not caught.
        max_deleted: Share of the known files in [0, 1] that may disappear at once. If all of them
            are missing, or more than ten and more than this share, they are withheld; 1 allows any
            deletion.
        settled: Number of further known files, which are unchanged.

    Returns:
        The changes; found files in the order of ``files``, the others in order of identity.

        Among several files with one content, moves are assigned by name: equal file names (the last
        part of the identity) first, then in order of identity. Empty files never count as moved.

    Raises:
        ConfigError: If ``max_deleted`` is out of range.

    Example:
        >>> from pathlib import Path
        >>> files = [FoundFile("new/tea.txt", Path("tea.txt"), Signature(9, 5, 1))]
        >>> ledger = [KnownFile("old/tea.txt", Signature(9, 5, 1), "f00d", 7, "")]
        >>> hashes = {"content_hash": lambda file: "f00d", "config_hash": lambda file: ""}
        >>> changes = compare(files, ledger, unlisted=(), max_deleted=0.5, **hashes)
        >>> changes.moves
        (('old/tea.txt', 'new/tea.txt'),)
    """
    validate_max_deleted(max_deleted)
    missing = {file.identity: file for file in known_files}
    known_count = len(missing) + settled
    kinds: defaultdict[str, list[ComparedFile]] = defaultdict(list)
    unreadable: list[tuple[FoundFile, OSError]] = []
    for file in files:
        before = missing.pop(file.identity, None)
        try:
            content = before.content_hash if before and before.matches(file) else content_hash(file)
        except OSError as exc:
            unreadable.append((file, exc))
            continue
        now = ComparedFile(file, content, config_hash(file), before)
        kinds[_kind(now)].append(now)
    unseen, not_found = _split_unseen(missing.values(), unlisted)
    new = kinds.pop("new", [])
    origins = _origins(new, not_found)
    for compared in new:
        if compared.identity in origins:
            kinds["moved"].append(replace(compared, before=origins[compared.identity]))
        else:
            kinds["added"].append(compared)
    moved_from = {origin.identity for origin in origins.values()}
    lost = tuple(file for file in not_found if file.identity not in moved_from)
    withhold = is_suspicious(len(lost), known_count, max_deleted)
    return Changes(
        **{kind: tuple(compared_files) for kind, compared_files in kinds.items()},
        unreadable=tuple(unreadable),
        deleted=() if withhold else lost,
        withheld=lost if withhold else (),
        unseen=tuple(unseen),
    )


def validate_max_deleted(max_deleted: float) -> None:
    """Check a share of the known files that may be deleted at once."""
    validate_range("max_deleted", max_deleted, 0, 1)


def _kind(now: ComparedFile) -> str:
    """Return the field of `Changes` that a file belongs to; "new" if it is added or moved."""
    if now.before is None:
        return "new"
    if now.content_hash != now.before.content_hash:
        return "changed"
    if now.config_hash != now.before.config_hash:
        return "reconfigured"
    return "unchanged" if now.before.matches(now.file) else "touched"


def _split_unseen(
    missing: Iterable[KnownFile], unlisted: Iterable[str]
) -> tuple[list[KnownFile], list[KnownFile]]:
    """Return the missing files in folders that could not be listed, and the others; in order of
    identity.
    """
    prefixes = tuple(f"{folder}/" for folder in unlisted)
    unseen: list[KnownFile] = []
    not_found: list[KnownFile] = []
    for file in sorted(missing, key=lambda file: file.identity):
        is_unseen = f"{file.identity}/".startswith(prefixes)
        (unseen if is_unseen else not_found).append(file)
    return unseen, not_found


def _origins(added: Iterable[ComparedFile], missing: Sequence[KnownFile]) -> dict[str, KnownFile]:
    """Match added files with missing files of the same content, each at most once.

    Returns:
        The missing files by new identity.
    """
    new = sorted(
        (file for file in added if _is_not_empty(file.file)), key=lambda file: file.identity
    )
    old = [file for file in missing if _is_not_empty(file)]
    origins: dict[str, KnownFile] = {}
    for part in (lambda identity: identity.rpartition("/")[2], lambda _: ""):  # equal names first
        taken = {file.identity for file in origins.values()}
        left: defaultdict[tuple[str, str], deque[KnownFile]] = defaultdict(deque)
        for known_file in old:
            if known_file.identity not in taken:
                left[known_file.content_hash, part(known_file.identity)].append(known_file)
        for file in new:
            same = left.get((file.content_hash, part(file.identity)))
            if same and file.identity not in origins:
                origins[file.identity] = same.popleft()
    return origins


def _is_not_empty(file: FoundFile | KnownFile) -> bool:
    """Whether a file is known to have content: all empty files would look like moves of each
    other.
    """
    return file.signature is not None and file.signature.size > 0


def is_suspicious(lost: int, total: int, max_deleted: float) -> bool:
    """Whether so many files are missing that an unmounted folder is more likely than their
    deletion.
    """
    if max_deleted >= 1 or lost == 0:
        return False
    return lost == total or (lost > _FEW_FILES and lost / total > max_deleted)


# Events

_STEP_S = 0.05


def is_of_store(path: str, store: str) -> bool:
    """Whether a file is the store's own, or lies beside it: its name goes on with a hyphen or a
    dot.
    """
    if not store or path[len(store) :][:1] not in ("", "-", "."):
        return False
    start = path[: len(store)]
    if start == store or start.casefold() != store.casefold():
        return start == store
    with suppress(OSError):  # macOS and Windows find a file by its name in any case
        return os.path.samefile(start, store)  # noqa: PTH121  called for each file of a folder
    return False


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The paths to watch, and which events concern a dataset.

    Args:
        folder: The dataset's folder; None for single files.
        files: The single files.
        store: Prefix of the store's own files; "" for a store in memory.
    """

    folder: str | None
    files: frozenset[str]
    store: str = ""

    @classmethod
    def of(cls, dataset: Dataset, store: Path | None) -> WatchedFiles:
        """Return the watched files of a dataset.

        Args:
            dataset: With a folder, or files.
            store: The store's file; None in memory.
        """
        # Systems report events by real paths, also for a watched link.
        prefix = "" if store is None else os.path.realpath(store)
        if dataset.folder is not None:
            return cls(os.path.realpath(dataset.folder), frozenset(), prefix)
        paths = (file.path for file in dataset.list_files().files)
        return cls(
            None, frozenset(str(path.parent.resolve() / path.name) for path in paths), prefix
        )

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders to watch: the dataset's with everything below it, or those of its single files.

        A file is watched through its folder, as most programs save by replacing the file with a new
        one.
        """
        if self.folder is not None:
            return (self.folder,)
        return tuple(sorted({str(Path(file).parent) for file in self.files}))

    def concerns(self, path: str) -> bool:
        """Whether an event at a path may change the result of a sync: not for hidden or the store's
        own files.
        """
        if is_of_store(path, self.store):
            return False
        if self.folder is None:
            return path in self.files
        # The folder itself is ".", and hidden by that: files in it have events of their own. A Path
        # has no part for it.
        parts = os.path.relpath(path, self.folder).split(os.sep)  # noqa: PTH206
        if parts[-1] in IGNORE_FILES:
            del parts[-1]
        return not any(part.startswith((".", "~$")) for part in parts)


def file_events(watched: WatchedFiles, stop: threading.Event, tick_s: float) -> Iterator[bool]:
    """Yield repeatedly whether files have changed, from the operating system's events.

    Changes between two steps are reported by the next one. If a folder disappears, the function
    waits for it.

    Args:
        watched: The paths to watch.
        stop: Ends the iteration shortly after it is set.
        tick_s: Longest time between two steps, in seconds.

    Yields:
        False when watching has begun; then whether a relevant file has changed since the step
        before.

    Raises:
        MissingDependencyError: If watchfiles is not installed.
        DatasetPathError: If the operating system refuses to watch.
    """
    with optional_package("Document.watch without poll_s", "watch"):
        from watchfiles import watch

    missed = False  # whether something may have changed while nothing was watched
    while not stop.is_set():
        seen = _inodes(watched.folders)
        if None in seen:
            yield not missed  # once: the disappearance is a change, too
            missed = True
            stop.wait(tick_s)
            continue
        changes = watch(
            *watched.folders,
            watch_filter=None,  # no step is made for filtered events
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
            changed = missed
            missed = True
            for paths in changes:
                yield changed or any(watched.concerns(path) for _, path in paths)
                changed = False
                # systems watch folders, not their later namesakes
                if _inodes(watched.folders) != seen:
                    yield True
                    break
        except FileNotFoundError:  # gone since the check
            stop.wait(tick_s)
        except (OSError, RuntimeError) as exc:
            raise DatasetPathError(
                f"{', '.join(watched.folders)} cannot be watched ({exc}). Raise the system's limit"
                " of watched files (on Linux fs.inotify.max_user_watches), or pass poll_s= to use"
                " polling."
            ) from exc
        finally:
            changes.close()


def poll_files(
    dataset: Dataset, watched: WatchedFiles, stop: threading.Event, tick_s: float, poll_s: float
) -> Iterator[bool]:
    """Yield the same as `file_events` from periodic listings: for network folders, which have no
    events.

    Compares the signatures that a sync compares, and follows links. A file counts as changed once
    more when its modification is two seconds old: before that, another change may have left the
    same signature.

    Args:
        dataset: Its files are listed.
        watched: Which of them are relevant.
        stop: Ends the iteration.
        tick_s: Longest time between two steps, in seconds.
        poll_s: Time between two listings, in seconds.
    """
    seen = _poll(dataset, watched)
    yield False
    left_s = poll_s
    while not stop.wait(min(tick_s, left_s)):
        left_s -= min(tick_s, left_s)
        if left_s > 0:
            yield False
            continue
        before = seen
        seen = _poll(dataset, watched)
        left_s = poll_s
        yield seen != before


def _inodes(folders: tuple[str, ...]) -> list[tuple[int, int] | None]:
    """Return the folders' device and inode; None for a missing one."""
    inodes: list[tuple[int, int] | None] = []
    for folder in folders:
        try:
            status = os.stat(folder)  # noqa: PTH116  many times a second
        except OSError:
            inodes.append(None)
        else:
            inodes.append((status.st_dev, status.st_ino))
    return inodes


def _poll(dataset: Dataset, watched: WatchedFiles) -> int | None:
    """Return a digest of every file's signature, and of whether it is reliable; None if the folder
    cannot be listed.
    """
    digest = 0
    try:
        listing = dataset.list_files()
        for file in listing.files:
            if watched.store and is_of_store(os.path.realpath(file.raw_path), watched.store):
                continue
            is_reliable = (
                file.signature is not None and listing.seen_ns - file.signature.mtime_ns >= _RACY_NS
            )
            digest = hash((digest, os.fspath(file.raw_path), file.signature, is_reliable))
    except DatasetPathError:
        return None
    return digest
