"""Sources into folders: a file for each item, which a Document reads as any other."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lazyrag.errors import ConfigError, LoadError
from lazyrag.sources.items import CutShort, FailedItem, Source, SourceItem, plain
from lazyrag.sources.manifest import Entry, Manifest, locked
from lazyrag.validation import known_arguments

_TEMPORARY = ".lazyrag-source.tmp"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 60
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9_-]{1,16}){1,3}")


@known_arguments
@dataclass(frozen=True, slots=True)
class FetchReport:
    """What a run of a source did to a folder; identities of items, in the order of the run.

    Args:
        added: New ones.
        updated: Those of which the text or the metadata is another one.
        unchanged: Those whose files were not touched.
        removed: Those that the source has no longer.
        failed: Those that could not be had, each with its error.
        kept: Those that the run did not come across and that stay, because it was not complete.
        cut_short: Why the run ended before the source did; "" if it came to the end.

    Example:
        >>> print(FetchReport(added=("1",), unchanged=("2", "3")))
        1 added, 0 updated, 2 unchanged, 0 removed, 0 failed
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    kept: tuple[str, ...] = ()
    cut_short: str = ""

    def __str__(self) -> str:
        counts = [
            f"{len(getattr(self, name))} {name}" for name in ("added", "updated", "unchanged", "removed", "failed")
        ]
        counts += [f"{len(self.kept)} kept"] if self.kept else []
        counts += [f"cut short: {self.cut_short}"] if self.cut_short else []
        return ", ".join(counts)

    @property
    def is_complete(self) -> bool:
        """Whether the folder now holds exactly what the source has, but for what failed and was not there before."""
        return not self.cut_short and not self.kept


def fetch(source: Source, folder: str | os.PathLike[str]) -> FetchReport:
    """Write the items of a source into a folder, each as a file, so that the folder holds what the source has.

    Files whose content is the same are not touched, others are replaced in one step. What the source has no longer is
    removed, but only if the run came to its end and nothing failed that was there before. A run that breaks off leaves
    whole files, and the next one goes on from them. Files that no source wrote are left alone.

    Args:
        source: Any source; one for each folder.
        folder: The folder, which is made if it is not there.

    Raises:
        ConfigError: If it is no source, or another source fills the folder.
        LoadError: If the source cannot be read, the folder cannot be written, or another program writes it now.

    Example:
        >>> import tempfile
        >>> class Teas:
        ...     name = "teas"
        ...     def items(self):
        ...         yield SourceItem("green/1", b"Sencha")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(fetch(Teas(), folder))
        ...     print(fetch(Teas(), folder))
        1 added, 0 updated, 0 unchanged, 0 removed, 0 failed
        0 added, 0 updated, 1 unchanged, 0 removed, 0 failed
    """
    if isinstance(source, type) or not isinstance(getattr(source, "name", None), str) or not hasattr(source, "items"):
        msg = f"source is {source!r:.80}; give a source, such as DatabaseSource(...), or what has name and items()."
        raise ConfigError(msg)
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        msg = f"folder is {folder!r:.80}; give the path of a folder."
        raise ConfigError(msg)
    path = Path(folder).expanduser().absolute()
    if path.exists() and not path.is_dir():
        msg = f"folder is {os.fspath(folder)!r}, which is a file. Give the path of a folder."
        raise ConfigError(msg)
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        with _writing(path):
            manifest = Manifest(path, source.name)
        with closing(manifest):
            report = _Run(path, manifest).of(source)
            with _writing(path):
                manifest.compact()
    return report


def file_name(identity: str, suffix: str) -> str:
    """The name of an item's file: readable, and another one for each identity, on file systems without case too.

    Args:
        identity: Any text.
        suffix: Of the file.

    Example:
        >>> file_name("https://example.com/tea?id=7", ".html")
        'https-example-com-tea-id-7-338977c5b41e48e6bc7e.html'
    """
    slug = _NOT_IN_NAMES.sub("-", identity[:400].lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{slug or 'item'}-{digest}{suffix}"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What the file system refuses, as an error of ours; a source's own errors are its own."""
    try:
        yield
    except OSError as exc:
        msg = f"The folder {folder} cannot be filled ({exc.strerror or exc}). Make room, or give another one."
        raise LoadError(msg, path=str(folder)) from exc


class _Run:
    """One run into a folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._before = {entry.identity for entry in manifest.entries.values()}
        self._seen: dict[str, str] = {}  # identities by file name
        self._done: dict[str, list[str]] = {"added": [], "updated": [], "unchanged": [], "removed": []}
        self._failed: list[FailedItem] = []

    def of(self, source: Source) -> FetchReport:
        """Take all items in, and remove what is gone."""
        cut_short = ""
        for event in source.items():
            if isinstance(event, CutShort):
                cut_short = cut_short or event.reason
            elif isinstance(event, FailedItem):
                self._failed.append(event)
            else:
                with _writing(self._folder):
                    self._take(event)
        # One that failed may lead to others: while it may come back, nothing is known to be gone.
        in_doubt = cut_short or any(
            not one.gone and (one.transient or one.identity in self._before) for one in self._failed
        )
        with _writing(self._folder):
            kept = self._remove_vanished(all_of_them=not in_doubt)
        done = {name: tuple(identities) for name, identities in self._done.items()}
        return FetchReport(**done, failed=tuple(self._failed), kept=tuple(kept), cut_short=cut_short)

    def _take(self, item: SourceItem) -> None:
        name = file_name(_checked(item).identity, item.suffix)
        path = self._folder / name
        same_text = _holds(path, item.content)
        if name in self._seen:
            # Records move while pages are turned: one that comes twice and is the same is one.
            if not same_text:
                error = "Another item of this run has the same identity. Name fields that tell items apart."
                self._failed.append(FailedItem(item.identity, error))
            return
        self._seen[name] = item.identity
        entry = Entry(item.identity, {str(key): plain(value) for key, value in item.metadata.items()})
        if same_text and self._manifest.entries.get(name) == entry:
            self._done["unchanged"].append(item.identity)
            return
        self._manifest.enter(name, entry)
        if not same_text:
            temporary = self._folder / _TEMPORARY
            temporary.write_bytes(item.content)
            temporary.replace(path)
        self._done["updated" if item.identity in self._before else "added"].append(item.identity)

    def _remove_vanished(self, *, all_of_them: bool) -> list[str]:
        """Remove what was not seen, or only what was seen as another kind of file; returns what stays."""
        seen = set(self._seen.values())
        kept = []
        for name, entry in list(self._manifest.entries.items()):
            if name in self._seen:
                continue
            if not all_of_them and entry.identity not in seen:
                kept.append(entry.identity)
                continue
            (self._folder / name).unlink(missing_ok=True)
            self._manifest.strike(name)
            if entry.identity not in seen:
                self._done["removed"].append(entry.identity)
        return kept


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False


def _checked(item: SourceItem) -> SourceItem:
    if not isinstance(item, SourceItem) or not isinstance(item.identity, str) or not item.identity:
        msg = f"A source gave {item!r:.80}; it gives SourceItems with an identity, FailedItems and CutShort."
        raise LoadError(msg)
    if not isinstance(item.content, (bytes, bytearray)):
        msg = f"A source gave the item {item.identity!r:.80} with {type(item.content).__name__} as content; give bytes."
        raise LoadError(msg)
    if not _SUFFIX.fullmatch(item.suffix):
        msg = f"A source gave an item with the suffix {item.suffix!r:.40}; suffixes are such as '.txt'."
        raise LoadError(msg)
    return item
