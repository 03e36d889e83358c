"""What changed in a dataset since it was last read: files found beside what the ledger knows of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from lazyrag.errors import ConfigError
from lazyrag.loaders.directory import FoundFile, Signature

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
