"""Records, of a database or an API, as items: their text, their identity, their metadata."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Mapping as AnyMapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS
from lazyrag.data.segment import EMPTY, Place
from lazyrag.errors import ConfigError, IngestionWarning, LoadError, known_names, warn_user
from lazyrag.loaders import load_file
from lazyrag.loaders.detect import clean
from lazyrag.loaders.directory import Signature, signature_of
from lazyrag.loaders.records import Mapping as Pairs
from lazyrag.loaders.records import Pair, Selection, Value, leaves
from lazyrag.validation import known_arguments, text_list


class FetchError(LoadError):
    """A URL could not be fetched.

    Args:
        message: What was given, what is allowed, what to do; without secrets.
        url: The URL, without its query.
        status: The status of the answer, 0 where none came.
        transient: Whether the same request may succeed later.
        retry_after_s: How long the server asks to wait, None where it does not say.
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
    """One record or page as it will lie in a folder.

    Args:
        identity: What it is known by from run to run, such as a record's key or a page's URL.
        content: Bytes of the file.
        suffix: Of the file, which says what loader reads it.
        metadata: What the source says of it: texts, numbers, True and False, None, and lists of these.
    """

    identity: str
    content: bytes
    suffix: str = ".txt"
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class FailedItem:
    """One that could not be had.

    Args:
        identity: What it is known by.
        error: Why not, and what to do.
        transient: Whether it may be there the next time.
        gone: Whether the source says that it is no longer there; its file goes, as if it had not been named.
    """

    identity: str
    error: str
    transient: bool = True
    gone: bool = False


@dataclass(frozen=True, slots=True)
class CutShort:
    """The source ended before its end; what it did not give may still be there.

    Args:
        reason: The limit, or what broke.
    """

    reason: str


Event: TypeAlias = "SourceItem | FailedItem | CutShort"


class Source(Protocol):
    """Where items come from."""

    @property
    def name(self) -> str:
        """What a folder remembers it by: the same for each run of the same source, and no secret in it."""

    def items(self) -> Iterator[Event]:
        """Everything it has, from the beginning, in the same order if nothing changed."""


@dataclass(frozen=True, slots=True)
class LoadedItem:
    """An item as text.

    Args:
        identity: What it is known by from run to run.
        text: The whole text.
        places: Headings or pages, as stretches of the text.
        metadata: What the source and the file itself say; the source comes first.
    """

    identity: str
    text: str
    places: tuple[Place, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


def loaded_items(source: Source) -> Iterator[LoadedItem]:
    """The items of a source as text, one after the other. What fails is warned of, and passed over.

    Args:
        source: Any source.

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
    """An item through the loader of its suffix, which takes a path."""
    path.write_bytes(item.content)
    loaded = load_file(path)
    return LoadedItem(item.identity, loaded.text, loaded.places, {**loaded.metadata, **item.metadata})


def digest(text: str) -> str:
    """Eight digits that tell texts apart in a source's name, without showing what may be secret in them.

    Example:
        >>> digest("SELECT 1") == digest("SELECT 2")
        False
    """
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()


def plain(value: Any) -> Any:
    """A value as metadata has it: what JSON knows, and texts of the rest.

    Args:
        value: Of a record.

    Example:
        >>> import datetime, decimal
        >>> plain(datetime.date(2026, 4, 1)), plain(decimal.Decimal("2.50")), plain([1, None])
        ('2026-04-01', 2.5, [1, None])
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
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


_MOST_NAMES = 50


class Number(str):
    """A number as it is written, so that its text stays that one."""

    __slots__ = ()

    @property
    def value(self) -> int | float | None:
        """The number; None for one that no program could compare."""
        try:
            return int(self)
        except ValueError:
            return plain(float(self)) if len(self) < 400 else None


class RecordForm:
    """How a record becomes an item.

    Args:
        identity: Names of the fields that tell records apart; one as a text.
        template: A text with names of fields in braces, as in ``"{name} costs {price}"``; None for all ``fields``, a
            line ``name: value`` for each.
        fields: The fields that become text, in this order; () for all.
        metadata: The fields that become metadata.

    Raises:
        ConfigError: If the identity names no field, or another one is of the wrong kind.

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
        self.identity = text_list("identity", [identity] if isinstance(identity, str) else identity)
        if not self.identity:
            msg = "identity names no field; give those that tell records apart, such as 'id'."
            raise ConfigError(msg)
        self._selection = Selection(fields, template)
        self.metadata = text_list("metadata", metadata)
        self._missing = dict.fromkeys([*self.identity, *self._selection.wanted, *self.metadata])
        self._known: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All fields that it names."""
        return tuple(dict.fromkeys([*self.identity, *self._selection.wanted, *self.metadata]))

    def item(self, record: AnyMapping[str, Any] | Pairs, where: str) -> SourceItem | FailedItem:
        """One record.

        Args:
            record: A row by column, or an object of JSON.
            where: Where it stands, for messages.
        """
        pairs = list(leaves(record if isinstance(record, Pairs) else _nested(record)))
        self._look_for_missing(pairs)
        values = [_value_at(record, name) for name in self.identity]
        if any(value is None or value == "" for value in values):
            names = ", ".join(map(repr, self.identity))
            return FailedItem(where, f"Its identity ({names}) is empty. Name fields that each record has.")
        identity = str(values[0]) if len(values) == 1 else json.dumps(list(map(str, values)), ensure_ascii=False)
        text = self._selection.text_of([pair for pair in pairs if pair[1].strip()], "\n")
        if not text.strip():
            return FailedItem(identity, "It holds no text in the fields that were named.", transient=False)
        metadata = {name: plain(_value_at(record, name)) for name in self.metadata}
        return SourceItem(identity, clean(text).encode("utf-8", "replace"), ".txt", metadata)

    def check_all_found(self) -> None:
        """Called after the last record: a name that none of them has is a misspelt one.

        Raises:
            LoadError: Naming it, and the fields that there are.
        """
        if self._known:
            for name in self._missing:
                msg = f"No record has the field {name!r}. {known_names(name, self._known)}"
                raise LoadError(msg)

    def _look_for_missing(self, pairs: list[Pair]) -> None:
        for name in list(self._missing):
            if Selection((name,)).text_of(pairs, "\n") or any(path == name for path, _ in pairs):
                del self._missing[name]
        if len(self._known) < _MOST_NAMES:
            self._known.update(dict.fromkeys(path for path, _ in pairs))


def json_value(data: bytes, what: str) -> Value:
    """An answer as JSON, its numbers as they are written.

    Args:
        data: The answer.
        what: What it is the answer of, for the message.

    Raises:
        LoadError: If it is none.
    """
    try:
        value: Value = json.loads(
            data,
            object_pairs_hook=Pairs,
            parse_int=Number,
            parse_float=Number,
            parse_constant=lambda _: None,
        )
    except (ValueError, RecursionError) as exc:
        msg = f"{what} is no JSON ({type(exc).__name__}: {exc!s:.100})."
        raise LoadError(msg) from exc
    return value


def value_at(value: Value, path: str) -> Value:
    """The value at a path of names; None where nothing is there.

    Args:
        value: Any value.
        path: Names with dots between them; "" for the value itself.

    Example:
        >>> value_at(json_value(b'{"data": {"next": "abc"}}', "It"), "data.next")
        'abc'
    """
    for name in path.split(".") if path else ():
        value = dict(value.items).get(name) if isinstance(value, Pairs) else None
    return value


def _value_at(record: AnyMapping[str, Any] | Pairs, name: str) -> Any:
    """A field as metadata has it. A name that is a field's own comes before one that is a path."""
    if not isinstance(record, Pairs):
        return record.get(name)
    own = dict(record.items)
    return _as_python(own[name] if name in own else value_at(record, name))


def _as_python(value: Value) -> Any:
    if isinstance(value, Number):
        return value.value
    if isinstance(value, list):
        return [_as_python(one) for one in value]
    if isinstance(value, Pairs):
        return {name: _as_python(one) for name, one in value.items}
    return value


def _nested(record: AnyMapping[str, Any]) -> Pairs:
    """A row as JSON would have it; bytes are no text."""
    return Pairs([(str(name), _cell(value)) for name, value in record.items()])


def _cell(value: Any) -> Value:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return None
    if isinstance(value, (list, tuple)):
        return [_cell(one) for one in value]
    if isinstance(value, AnyMapping):
        return _nested(value)
    as_date = getattr(value, "isoformat", None)
    return as_date() if callable(as_date) else str(value)
