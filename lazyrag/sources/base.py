"""Sources: items of a database, an API or a website, written as files into a folder that a Document
reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.data.segment import EMPTY, Locations
from lazyrag.errors import ConfigError, IngestionWarning, LoadError, warn_user
from lazyrag.loaders import load_file
from lazyrag.loaders.detect import clean
from lazyrag.loaders.directory import Signature, signature_of
from lazyrag.loaders.records import FieldSelection, OrderedFields, RecordValue, SoughtFields, leaves
from lazyrag.progress.blocks import contextmanager
from lazyrag.types import JsonMapping, Metadata, PathLike
from lazyrag.validation import folder_path, known_arguments, require, validate_texts


class FetchError(LoadError):
    """A URL could not be fetched.

    Args:
        message: The problem and the way out, without secrets.
        url: The URL, without its query.
        status: The HTTP status; 0 without a response.
        transient: Whether the same request may succeed later.
        retry_after_s: The server's ``Retry-After``.
    """

    def __init__(
        self,
        message: str,
        *,
        url: str = "",
        status: int = 0,
        transient: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, path=url)
        self.status = status
        self.transient = transient
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One record or page, as a file of the folder.

    Args:
        identity: Its stable identifier, such as a record's key or a page's URL.
        content: Bytes of the file.
        suffix: Of the file; it decides which loader reads it.
        metadata: Texts, numbers, booleans, None, and lists of these.
    """

    identity: str
    content: bytes
    suffix: str = ".txt"
    metadata: Metadata = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item that could not be fetched.

    Args:
        identity: Its identifier.
        error: The problem and the way out.
        transient: Whether the next run may succeed.
        gone: Whether the source says that it no longer exists; its file is removed.
    """

    identity: str
    error: str
    transient: bool = True
    gone: bool = False


@dataclass(frozen=True, slots=True)
class CutShort:
    """The run ended early; items that it did not return may still exist.

    Args:
        reason: The limit, or the failure.
    """

    reason: str


Event: TypeAlias = "SourceItem | FailedItem | CutShort"


class Source(Protocol):
    """Produces items."""

    @property
    def name(self) -> str:
        """Identifies the source to its folder: equal in each run, without secrets."""

    def items(self) -> Iterator[Event]:
        """All items, in the same order if nothing changed."""


class BaseSource(Source, Protocol):
    """`load` and `fetch` of the built-in sources."""

    def load(self) -> Iterator[LoadedItem]:
        """The items as text, with their metadata."""
        return load_items(self)

    def fetch(self, folder: PathLike) -> FetchReport:
        """Write each item into a file of a folder; see `lazyrag.sources.fetch`."""
        return fetch(self, folder)


@dataclass(frozen=True, slots=True)
class LoadedItem:
    """An item as text.

    Args:
        identity: Its stable identifier.
        text: The complete text.
        locations: Headings or pages, as stretches of the text.
        metadata: Of the source and the file; the source takes precedence.
    """

    identity: str
    text: str
    locations: Locations = ()
    metadata: Metadata = field(default_factory=lambda: EMPTY)


def load_items(source: Source) -> Iterator[LoadedItem]:
    """Load the items of a source as text. Items that fail are skipped with a warning.

    Raises:
        LoadError: If the source itself cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        for event in source.items():
            if isinstance(event, SourceItem):
                try:
                    loaded = _loaded(event, Path(folder, f"item{event.suffix}"))
                except LoadError as exc:
                    warn_user(f"{event.identity}: {exc}", IngestionWarning)
                else:
                    yield loaded
            elif isinstance(event, FailedItem):
                warn_user(f"{event.identity}: {event.error}", IngestionWarning)
            else:
                warn_user(f"{source.name} was cut short: {event.reason}", IngestionWarning)


def _loaded(item: SourceItem, path: Path) -> LoadedItem:
    """Load an item with the loader of its suffix, which takes a path."""
    path.write_bytes(item.content)
    loaded = load_file(path)
    return LoadedItem(
        item.identity, loaded.text, loaded.locations, {**loaded.metadata, **item.metadata}
    )


def digest(text: str) -> str:
    """A short hash for a source's name, which must not show secrets.

    Example:
        >>> digest("SELECT 1") == digest("SELECT 2")
        False
    """
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()


def plain(value: Any) -> Any:
    """Convert a record's value for metadata: JSON types, and texts of all others.

    Example:
        >>> import datetime, decimal
        >>> plain(datetime.date(2026, 4, 1)), plain(decimal.Decimal("2.50")), plain([1, None])
        ('2026-04-01', 2.5, [1, None])
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    as_date: Callable[[], str] | None = getattr(value, "isoformat", None)
    if callable(as_date):
        return as_date()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return number if number - number == 0 else None  # NaN and the infinities compare with nothing


MANIFEST = ".lazyrag-source.jsonl"
_NEW_MANIFEST = ".lazyrag-source.new"
_LOCK = ".lazyrag-source.lock"
_FORMAT = 1
_FILE_NAME = re.compile(r"[a-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """The item of one file.

    Args:
        identity: Of the item.
        metadata: Of the item.
    """

    identity: str
    metadata: Metadata


class Manifest:
    """The entries of a folder by file name. A file is entered before it is written, and removed
    after it is deleted.

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
            problem = (
                f"is filled from {owner!r}, not from {source!r}; each run would delete the other's"
                " files"
            )
            hint = (
                "Give each source a folder of its own; if it is the same source, changed, delete"
                " the folder first."
            )
            raise ConfigError(f"The folder {folder} {problem}. {hint}")
        self.compact()
        self._file: TextIO = (folder / MANIFEST).open("a", encoding="utf-8", newline="\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def enter(self, name: str, entry: ManifestEntry) -> None:
        """Add or update a file."""
        self.entries[name] = entry
        self._append(_line(name, entry))

    def remove(self, name: str) -> None:
        """Remove a deleted file."""
        del self.entries[name]
        self._append(json.dumps({"name": name}))

    def compact(self) -> None:
        """Rewrite the manifest with one line for each file, atomically."""
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


def _line(name: str, entry: ManifestEntry) -> str:
    fields = {"name": name, "identity": entry.identity, "metadata": dict(entry.metadata)}
    return json.dumps(fields, ensure_ascii=True, allow_nan=False)


def read_manifest(folder: Path) -> tuple[str, dict[str, ManifestEntry]]:
    """Read the source's name and the entries of a folder; "" and {} without a manifest.

    Raises:
        LoadError: If it is damaged. Half a line at its end is no damage: a killed program leaves
            it.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", {}
    *lines, _ = text.split("\n")
    entries = {}
    try:
        head = json.loads(lines[0])
        source = head["source"]
        if head["format"] != _FORMAT:
            problem = (
                f"has the format {head['format']!r}; this release reads {_FORMAT}. Use a newer one."
            )
            raise LoadError(f"{path} {problem}", path=str(path))
        for line in lines[1:]:
            fields = json.loads(line)
            name = _file_name(fields["name"])
            if "identity" in fields:
                entries[name] = ManifestEntry(fields["identity"], fields["metadata"])
            else:
                entries.pop(name, None)
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        raise LoadError(
            f"{path} is damaged ({type(exc).__name__})."
            " Delete it together with the files of its folder, and fetch anew; equal content is not"
            " embedded again.",
            path=str(path),
        ) from exc
    return str(source), entries


def _file_name(name: str) -> str:
    """Refuse names that lead out of the folder: files of the manifest may be removed."""
    if not _FILE_NAME.fullmatch(name):
        raise ValueError
    return name


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder against other programs. The lock of a killed program ends with it.

    Raises:
        LoadError: If another program holds it.
    """
    # SQLite's is the one lock of the standard library that works the same on all systems.
    lock = sqlite3.connect(folder / _LOCK, timeout=0, isolation_level=None)
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as exc:
            msg = f"Another program fills the folder {folder} ({exc}). Wait until it is done."
            raise LoadError(msg, path=str(folder)) from exc
        yield
    finally:
        lock.close()


def metadata_of(folder: str | Path) -> Callable[[Path], Metadata | None]:
    """Metadata of the items in a folder, for ``file_metadata`` of a Document.

    Args:
        folder: The folder of a source, or a parent of such folders.

    Returns:
        A function of a file's path: its metadata with the item's identity as ``source``; None for
        other files. Manifests are read again when they change.

    Raises:
        ConfigError: If the folder is not a path.

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
    top = folder_path(folder).absolute()
    manifests: dict[Path, tuple[Signature | None, dict[str, ManifestEntry]]] = {}

    def metadata(path: Path) -> Metadata | None:
        where = Path(path).absolute().parent
        if where != top and top not in where.parents:
            return None
        signature = signature_of(where / MANIFEST)
        if where not in manifests or manifests[where][0] != signature:
            manifests[where] = signature, read_manifest(where)[1] if signature else {}
        entry = manifests[where][1].get(Path(path).name)
        if entry is None:
            return None
        # A Document refuses metadata with names of its own file fields.
        values = {
            f"item_{name}" if name in BUILT_IN_FIELDS else name: value
            for name, value in entry.metadata.items()
        }
        return {"source": entry.identity, **values}

    return metadata


_TEMPORARY = ".lazyrag-source.tmp"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_MAX_SLUG_LENGTH = 60
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9_-]{1,16}){1,3}")


@known_arguments
@dataclass(frozen=True, slots=True)
class FetchReport:
    """Result of `fetch`: identities of items, in the order of the run.

    Args:
        added: New items.
        updated: Items whose text or metadata changed.
        unchanged: Items whose files were not touched.
        removed: Items that the source no longer has.
        failed: Items that could not be fetched, with their errors.
        retained: Items that an incomplete run did not see; their files are not deleted.
        cut_short: Why the run ended early; "" if it did not.

    Example:
        >>> print(FetchReport(added=("1",), unchanged=("2", "3")))
        1 added, 0 updated, 2 unchanged, 0 removed, 0 failed
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    retained: tuple[str, ...] = ()
    cut_short: str = ""

    def __str__(self) -> str:
        names = ("added", "updated", "unchanged", "removed", "failed")
        counts = [f"{len(getattr(self, name))} {name}" for name in names]
        counts += [f"{len(self.retained)} retained"] if self.retained else []
        counts += [f"cut short: {self.cut_short}"] if self.cut_short else []
        return ", ".join(counts)

    @property
    def is_complete(self) -> bool:
        """Whether the folder now equals the source, except for new items that failed."""
        return not self.cut_short and not self.retained


def fetch(source: Source, folder: PathLike) -> FetchReport:
    """Write the items of a source into a folder, one file each, and remove the files of deleted
    items.

    Files with equal content are not touched, others are replaced atomically. Files are removed only
    by a complete run in which no earlier item failed. An interrupted run leaves complete files; the
    next run continues from them. Files that no source wrote are left alone.

    Args:
        source: Any source; one for each folder.
        folder: The folder; created if missing.

    Raises:
        ConfigError: If source is not a source, or the folder belongs to another one.
        LoadError: If the source cannot be read, the folder cannot be written, or another program is
            writing it.

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
    is_source = isinstance(getattr(source, "name", None), str) and hasattr(source, "items")
    is_source = is_source and not isinstance(source, type)
    require(
        is_source, "source", source, "an object with a name and items(), as DatabaseSource(...) has"
    )
    path = folder_path(folder).absolute()
    require(path.is_dir() or not path.exists(), "folder", str(folder), "a folder", "It is a file.")
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        with _writing(path):
            manifest = Manifest(path, source.name)
        with closing(manifest):
            report = _FolderSync(path, manifest).of(source)
            with _writing(path):
                manifest.compact()
    return report


def file_name(identity: str, suffix: str) -> str:
    """The name of an item's file: readable and unique, on case-insensitive file systems too.

    Example:
        >>> file_name("https://example.com/tea?id=7", ".html")
        'https-example-com-tea-id-7-338977c5b41e48e6bc7e.html'
    """
    slug = _NOT_IN_NAMES.sub("-", identity[:400].lower()).strip("-")[:_MAX_SLUG_LENGTH].strip("-")
    digest = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{slug or 'item'}-{digest}{suffix}"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn OSErrors of the folder into LoadErrors; errors of the source pass."""
    try:
        yield
    except OSError as exc:
        raise LoadError(
            f"The folder {folder} cannot be filled ({exc.strerror or exc}). Make room, or give"
            " another one.",
            path=str(folder),
        ) from exc


class _FolderSync:
    """One run into a folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._before = {entry.identity for entry in manifest.entries.values()}
        self._seen: dict[str, str] = {}  # identities by file name
        self._done: dict[str, list[str]] = {
            "added": [],
            "updated": [],
            "unchanged": [],
            "removed": [],
        }
        self._failed: list[FailedItem] = []

    def of(self, source: Source) -> FetchReport:
        """Write all items, then remove the files of deleted ones."""
        cut_short = ""
        for event in source.items():
            if isinstance(event, CutShort):
                cut_short = cut_short or event.reason
            elif isinstance(event, FailedItem):
                self._failed.append(event)
            else:
                with _writing(self._folder):
                    self._take(event)
        # A failed page may link to others: until it comes back, none of them counts as deleted.
        in_doubt = cut_short or any(
            not item.gone and (item.transient or item.identity in self._before)
            for item in self._failed
        )
        with _writing(self._folder):
            unseen = self._remove_missing(is_complete=not in_doubt)
        done = {name: tuple(identities) for name, identities in self._done.items()}
        return FetchReport(
            **done, failed=tuple(self._failed), retained=tuple(unseen), cut_short=cut_short
        )

    def _take(self, item: SourceItem) -> None:
        name = file_name(_checked(item).identity, item.suffix)
        path = self._folder / name
        same_text = _holds(path, item.content)
        if name in self._seen:
            # Records move between pages during the run: an equal repetition is the same item.
            if not same_text:
                error = (
                    "Another item of this run has the same identity. Name fields that tell items"
                    " apart."
                )
                self._failed.append(FailedItem(item.identity, error))
            return
        self._seen[name] = item.identity
        entry = ManifestEntry(
            item.identity, {str(key): plain(value) for key, value in item.metadata.items()}
        )
        if same_text and self._manifest.entries.get(name) == entry:
            self._done["unchanged"].append(item.identity)
            return
        self._manifest.enter(name, entry)
        if not same_text:
            temporary = self._folder / _TEMPORARY
            temporary.write_bytes(item.content)
            temporary.replace(path)
        self._done["updated" if item.identity in self._before else "added"].append(item.identity)

    def _remove_missing(self, *, is_complete: bool) -> list[str]:
        """Remove files of items that were not seen, or have another suffix now; return the items
        that stay.
        """
        seen = set(self._seen.values())
        unseen = []
        for name, entry in list(self._manifest.entries.items()):
            if name in self._seen:
                continue
            if not is_complete and entry.identity not in seen:
                unseen.append(entry.identity)
                continue
            (self._folder / name).unlink(missing_ok=True)
            self._manifest.remove(name)
            if entry.identity not in seen:
                self._done["removed"].append(entry.identity)
        return unseen


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False


def _checked(item: SourceItem) -> SourceItem:
    if not isinstance(item, SourceItem) or not isinstance(item.identity, str) or not item.identity:
        raise LoadError(
            f"A source gave {item!r:.80}; it gives SourceItems with an identity, FailedItems and"
            " CutShort."
        )
    if not isinstance(item.content, (bytes, bytearray)):
        raise LoadError(
            f"A source gave the item {item.identity!r:.80} with {type(item.content).__name__} as"
            " content; give bytes."
        )
    if not _SUFFIX.fullmatch(item.suffix):
        raise LoadError(
            f"A source gave an item with the suffix {item.suffix!r:.40}; give one such as '.txt'."
        )
    return item


class Number(str):
    """A JSON number as it is spelled, so that its text stays the same."""

    __slots__ = ()

    @property
    def value(self) -> int | float | None:
        """The number; None if it is out of range."""
        try:
            return int(self)
        except ValueError:
            return plain(float(self)) if len(self) < 400 else None


class RecordForm:
    """Converts records to items.

    Args:
        identity: Names of the fields that identify a record; a single one as a text.
        template: A text with field names in braces, as in ``"{name} costs {price}"``; None for a
            line ``name: value`` for each of ``fields``.
        fields: The fields that become text, in this order; () for all.
        metadata: The fields that become metadata.

    Raises:
        ConfigError: If an argument is of the wrong kind, or identity is empty.

    Example:
        >>> form = RecordForm("id", "{tea} costs {price}", metadata=["price"])
        >>> item = form.item({"id": 7, "tea": "Sencha", "price": 12.5}, "row 1")
        >>> item.identity, item.content.decode(), item.metadata
        ('7', 'Sencha costs 12.5', {'price': 12.5})
    """

    def __init__(
        self,
        identity: str | Sequence[str],
        template: str | None = None,
        fields: Sequence[str] = (),
        metadata: Sequence[str] = (),
    ) -> None:
        self.identity = validate_texts(
            "identity", [identity] if isinstance(identity, str) else identity
        )
        require(
            bool(self.identity),
            "identity",
            identity,
            "the fields that identify a record, such as 'id'",
        )
        self._selection = FieldSelection(fields, template)
        self.metadata = validate_texts("metadata", metadata)
        self.names = tuple(dict.fromkeys([*self.identity, *self._selection.names, *self.metadata]))
        self._sought = SoughtFields(self.names)

    def item(self, record: JsonMapping | OrderedFields, where: str) -> SourceItem | FailedItem:
        """Convert a record.

        Args:
            record: A row by column, or a JSON object.
            where: Its position, for messages.
        """
        pairs = list(leaves(record if isinstance(record, OrderedFields) else _nested(record)))
        self._sought.meet(path for path, _ in pairs)
        values = [_value_at(record, name) for name in self.identity]
        if any(value is None or value == "" for value in values):
            names = ", ".join(map(repr, self.identity))
            return FailedItem(
                where, f"Its identity ({names}) is empty. Name fields that each record has."
            )
        identity = (
            str(values[0])
            if len(values) == 1
            else json.dumps(list(map(str, values)), ensure_ascii=False)
        )
        text = self._selection.text_of([pair for pair in pairs if pair[1].strip()], "\n")
        if not text.strip():
            return FailedItem(
                identity, "It holds no text in the fields that were named.", transient=False
            )
        metadata = {name: plain(_value_at(record, name)) for name in self.metadata}
        return SourceItem(identity, clean(text).encode("utf-8", "replace"), ".txt", metadata)

    def check_all_found(self) -> None:
        """Check, after the last record, that each field name was found.

        Raises:
            LoadError: If no record has one of them: it is misspelt.
        """
        if self._sought.paths:  # there were records
            self._sought.check()


def json_value(data: bytes, response: str) -> RecordValue:
    """Parse JSON, its numbers as `Number`.

    Args:
        data: The response.
        response: Its name, for the message.

    Raises:
        LoadError: If it is not JSON.
    """
    try:
        value: RecordValue = json.loads(
            data,
            object_pairs_hook=OrderedFields,
            parse_int=Number,
            parse_float=Number,
            parse_constant=lambda _: None,
        )
    except (ValueError, RecursionError) as exc:
        raise LoadError(f"{response} is no JSON ({type(exc).__name__}: {exc!s:.100}).") from exc
    return value


def value_at(value: RecordValue, path: str) -> RecordValue:
    """The value at a path of names with dots; None if there is none. The path "" is the value
    itself.

    Example:
        >>> value_at(json_value(b'{"data": {"next": "abc"}}', "It"), "data.next")
        'abc'
    """
    for name in path.split(".") if path else ():
        value = dict(value.items).get(name) if isinstance(value, OrderedFields) else None
    return value


def _value_at(record: JsonMapping | OrderedFields, name: str) -> Any:
    """A field as a Python value. A field name takes precedence over a path."""
    if not isinstance(record, OrderedFields):
        return record.get(name)
    members = dict(record.items)
    return _as_python(members[name] if name in members else value_at(record, name))


def _as_python(value: RecordValue) -> Any:
    if isinstance(value, Number):
        return value.value
    if isinstance(value, list):
        return [_as_python(element) for element in value]
    if isinstance(value, OrderedFields):
        return {name: _as_python(member) for name, member in value.items}
    return value


def _nested(record: JsonMapping) -> OrderedFields:
    """A row as a JSON object; bytes become None."""
    return OrderedFields([(str(name), _cell(value)) for name, value in record.items()])


def _cell(value: Any) -> RecordValue:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return None
    if isinstance(value, (list, tuple)):
        return [_cell(element) for element in value]
    if isinstance(value, Mapping):
        return _nested(value)
    as_date = getattr(value, "isoformat", None)
    return as_date() if callable(as_date) else str(value)
