"""Zip containers, read within limits: what office and e-book files are."""

from __future__ import annotations

import posixpath
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from lxml import etree

from lazyrag.data.segment import Place
from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, known_suffix, load_file, reading
from lazyrag.loaders.detect import decode

Element: TypeAlias = etree._Element
"""An element of a part that is XML; comments, instructions and entities have no text as their tag."""

MOST_ENTRIES = 50_000
"""Entries in one container."""
MOST_RATIO = 200
"""Unpacked bytes for each packed one of an entry, from `SMALL_ENTRY` on; sheets of equal cells come to 50."""
SMALL_ENTRY = 1 << 20

_CHUNK = 1 << 16
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError)


class Archive:
    """An open container. Entries are read in pieces, so that a header that lies about sizes costs nothing.

    Args:
        file: The zip file.
        what: What the container should be, for messages: ``"Word document"``.
        save_as: What to do about a damaged one, for messages.
    """

    def __init__(self, file: zipfile.ZipFile, what: str, save_as: str) -> None:
        self.infos = file.infolist()
        self.names = tuple(info.filename for info in self.infos)
        self._known = frozenset(self.names)
        self._file = file
        self._what = what
        self._save_as = save_as
        self._reading = reading()
        if len(self.names) > MOST_ENTRIES:
            msg = (
                f"The {what} holds {len(self.names)} entries; at most {MOST_ENTRIES} are read. Split it, or {save_as}."
            )
            raise LoadError(msg)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def read(self, name: str) -> bytes:
        """The bytes of an entry.

        Raises:
            LoadError: If there is no such entry, it is damaged or encrypted, or unpacks to more than is allowed.
        """
        return b"".join(self.pieces(name))

    def xml(self, name: str) -> Element:
        """The root element of an entry that is XML. Entities are not expanded, and nothing else is fetched.

        Raises:
            LoadError: If it cannot be read, see `read`, or is no XML.
        """
        parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
        try:
            return etree.fromstring(self.read(name), parser)
        except etree.XMLSyntaxError as exc:
            msg = f"The {self._what} is damaged: its part {name} is no XML that can be read ({exc})."
            raise LoadError(self._advised(msg)) from exc

    def check(self, names: Iterable[str] | None = None) -> None:
        """Read entries without keeping them, before a library that knows no limits does.

        Args:
            names: Which; None for all.

        Raises:
            LoadError: As `read`.
        """
        for name in self.names if names is None else names:
            for _ in self.pieces(name):
                pass

    def pieces(self, entry: str | zipfile.ZipInfo) -> Iterator[bytes]:
        """The bytes of an entry, piece by piece; see `read`. Of several with one name, the name stands for the last."""
        name = entry if isinstance(entry, str) else entry.filename
        try:
            info = self._file.getinfo(entry) if isinstance(entry, str) else entry
        except KeyError as exc:
            msg = f"The file is no {self._what}: it is of another format, as it lacks the part {name}."
            raise LoadError(self._advised(msg)) from exc
        size = 0
        try:
            with self._file.open(info) as stream:
                while piece := stream.read(_CHUNK):
                    size += len(piece)
                    self._reading.count_unpacked(len(piece), self._what)
                    self._weigh(name, size, info.compress_size)
                    yield piece
        except RuntimeError as exc:  # how zipfile says that it wants a password
            msg = f"The {self._what} is encrypted and needs a password. Save it again without one."
            raise LoadError(msg) from exc
        except _DAMAGE as exc:
            msg = f"The {self._what} is damaged: its part {name} cannot be unpacked ({exc})."
            raise LoadError(self._advised(msg)) from exc

    def _weigh(self, name: str, size: int, packed: int) -> None:
        if size > SMALL_ENTRY and size > MOST_RATIO * packed:
            self._reading.exceeded = True
            msg = (
                f"The {self._what} is packed like a zip bomb: its part {name} unpacks to more than {MOST_RATIO} times "
                "its size. If it is what you want to read, save it again from the program that it comes from."
            )
            raise LoadError(msg)

    def _advised(self, problem: str) -> str:
        return f"{problem} {self._save_as[:1].upper()}{self._save_as[1:]}."


@contextmanager
def open_archive(path: Path, what: str, suffix: str) -> Iterator[Archive]:
    """Open a zip container.

    Args:
        path: An existing file.
        what: What it should be, for messages: ``"Word document"``.
        suffix: How it should be saved again where it is none: ``".docx"``.

    Raises:
        LoadError: If it is no zip file, is cut off, is encrypted, or holds too many entries.
    """
    with path.open("rb") as stream:
        if stream.read(2) != b"PK":  # zipfile finds the small archives inside of old office files, too
            raise LoadError(_no_archive(path, what, suffix))
        try:
            with zipfile.ZipFile(stream) as file:
                yield Archive(file, what, f"save it again as {suffix}")
        except zipfile.BadZipFile as exc:
            raise LoadError(_no_archive(path, what, suffix)) from exc


def _no_archive(path: Path, what: str, suffix: str) -> str:
    """Why a file is no zip file, as far as its bytes say."""
    data = path.read_bytes()
    if data.startswith(_OLE) and _ENCRYPTED_PACKAGE in data:
        return f"The {what} is encrypted and needs a password. Save it again without one."
    if data.startswith(_OLE):
        return f"The file is no {what}: it is of another format, that of old office programs. Save it as {suffix}."
    return (
        f"The file is no {what}: it is cut off, encrypted, or of another format. Save it again as {suffix}."
        if data
        else f"The file is no {what}: it is empty. Save it again as {suffix}."
    )


def local_name(element: Element) -> str:
    """An element's name without its namespace, of which office formats have several each; "" for an entity.

    Example:
        >>> local_name(etree.fromstring('<a:t xmlns:a="urn:a"/>'))
        't'
    """
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


_SAFE_SUFFIX = re.compile(r"(?:\.\w{1,16}){1,3}$", re.ASCII)


class Members:
    """Reads files that lie within another one, each by way of a temporary file whose name is ours but for its suffix.

    They are read by the readers and loaders that read files of their names elsewhere, and share the limits of the file
    that they lie within.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, pieces: Iterable[bytes]) -> LoadedFile:
        """Read one of them.

        Args:
            name: Its path within the other file, whatever that is; no file of this name is written.
            pieces: What it holds.

        Raises:
            LoadError: If it cannot be read.
        """
        suffix = known_suffix(Path(name.replace("\\", "/").rpartition("/")[2]))
        path = self._folder / f"member{suffix if _SAFE_SUFFIX.match(suffix) else ''}"
        try:
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            return load_file(path, name=name)
        finally:
            path.unlink(missing_ok=True)


def with_attachments(
    text: str, said: Mapping[str, Any], attachments: Iterable[tuple[str, Callable[[], LoadedFile]]]
) -> LoadedFile:
    """A mail with its attachments behind it, each a place of kind ``attachment`` with its own places within.

    Args:
        text: Of the mail.
        said: Its metadata; names of attachments are added, and why one is not read.
        attachments: The name of each, and what loads it.
    """
    texts, places = [text], list[Place]()
    names: list[str] = []
    unread: dict[str, str] = {}
    length = len(text)
    for name, load in attachments:
        names.append(name)
        try:
            loaded = load()
        except LoadError as exc:
            unread[name] = str(exc)
            continue
        unread |= unread_within(loaded, name)
        head = f"\n\nAttachment: {name}\n"
        places += nested_places(loaded, length + len(head), "attachment", name)
        texts += (head, loaded.text)
        length += len(head) + len(loaded.text)
    more = {"attachments": names, "unread_attachments": unread}
    return LoadedFile("".join(texts), tuple(places), {**said, **{key: value for key, value in more.items() if value}})


@contextmanager
def members() -> Iterator[Members]:
    """Read files within a file; the temporary folder is gone after that."""
    with tempfile.TemporaryDirectory(prefix="lazyrag-") as folder:
        yield Members(Path(folder))


def nested_places(loaded: LoadedFile, start: int, kind: str, label: str) -> list[Place]:
    """The places of a text that stands within another one: the whole of it, then what it has itself.

    Args:
        loaded: The text with its places.
        start: Where it begins in the other one.
        kind: What it is there: ``"member"``.
        label: What it is called there; the labels of its own places stand behind it.

    Example:
        >>> page = LoadedFile("Green tea", (Place(0, 9, "page", "1"),))
        >>> [(place.start, place.kind, place.label) for place in nested_places(page, 20, "member", "teas.pdf")]
        [(20, 'member', 'teas.pdf'), (20, 'page', 'teas.pdf > 1')]
    """
    own = [
        Place(start + place.start, start + place.end, place.kind, f"{label} > {place.label}") for place in loaded.places
    ]
    return [Place(start, start + len(loaded.text), kind, label), *own]


def unread_within(loaded: LoadedFile, label: str) -> dict[str, str]:
    """What a file that lies within another one says of those within itself that were not read, and why.

    Args:
        loaded: The file.
        label: What it is called in the other one; the names of those within it stand behind it.

    Example:
        >>> unread_within(LoadedFile("Tea", metadata={"unread_members": {"a.exe": "No loader."}}), "teas.zip")
        {'teas.zip > a.exe': 'No loader.'}
    """
    told = (loaded.metadata.get(f"unread_{kind}") for kind in ("members", "attachments", "messages"))
    return {f"{label} > {name}": str(why) for some in told if isinstance(some, Mapping) for name, why in some.items()}


class Relation(NamedTuple):
    """What a part refers to: the last word of the relation's type, and the name of the other part."""

    kind: str
    target: str


def relations(archive: Archive, part: str = "") -> dict[str, Relation]:
    """What a part refers to inside of its container, by the id that it uses for it.

    Args:
        archive: The container.
        part: A part's name; "" for the container itself.

    Raises:
        LoadError: If the list of relations cannot be read.
    """
    folder, _, name = part.rpartition("/")
    listed = posixpath.join(folder, "_rels", f"{name}.rels")
    if listed not in archive:
        return {}
    return {
        relation.get("Id", ""): Relation(
            relation.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, relation.get("Target", ""))).lstrip("/"),
        )
        for relation in archive.xml(listed)
        if relation.get("TargetMode") != "External"
    }


def related(archive: Archive, kind: str, part: str = "") -> str:
    """The name of the first part of a kind that a part refers to; "" where there is none in the container."""
    targets = (relation.target for relation in relations(archive, part).values() if relation.kind == kind)
    return next((target for target in targets if target in archive), "")


def properties(archive: Archive) -> dict[str, str]:
    """Title and author, where the file's properties hold them.

    Raises:
        LoadError: If the properties cannot be read.
    """
    part = related(archive, "core-properties")
    said: dict[str, str] = {}
    for element in archive.xml(part) if part else ():
        name = {"title": "title", "creator": "author"}.get(local_name(element))
        value = (element.text or "").strip()
        if name and value:
            said[name] = value
    return said


_BREAK = "\n\n"
_MOST_TOLD = 100
_IS_UTF8 = 0x800


class ZipLoader:
    """Reads an archive member by member, each as a file of its name is read; each is a place of kind ``member``.

    Pages, headings and other places within a member are kept, their labels behind its path: ``teas.pdf > 3``. Hidden
    members are passed over. The number of the others becomes the metadata ``members``, and why one is not read is said
    in ``unread_members``. An archive that exceeds a limit is not read at all.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        now = reading()
        texts: list[str] = []
        places: list[Place] = []
        unread: dict[str, str] = {}
        position = 0
        with open_archive(path, "zip archive", ".zip") as archive, members() as inside:
            listed = [(info, shown) for info, shown in _shown(archive.infos) if not _is_passed_over(shown)]
            for info, shown in listed:
                try:
                    loaded = inside.load(shown, archive.pieces(info))
                except LoadError as exc:
                    if now.exceeded:
                        raise
                    unread[shown] = str(exc)
                    continue
                unread |= unread_within(loaded, shown)
                places += nested_places(loaded, position, "member", shown)
                texts.append(loaded.text)
                position += len(loaded.text) + len(_BREAK)
        if not texts:
            raise LoadError(_nothing_read(unread))
        return LoadedFile(_BREAK.join(texts), tuple(places), {"members": len(listed), **_told(unread)})


def _shown(infos: list[zipfile.ZipInfo]) -> list[tuple[zipfile.ZipInfo, str]]:
    """Members with their names as people know them: old programs write their own encoding."""
    files = [info for info in infos if not info.is_dir()]
    raw = [info.filename for info in files]
    foreign = [name for name in raw if not name.isascii()]
    if not foreign or any(info.flag_bits & _IS_UTF8 for info in infos):
        return list(zip(files, raw, strict=True))
    try:
        told = decode("\n".join(raw).encode("cp437")).split("\n")
    except (LoadError, UnicodeEncodeError):
        told = raw
    return list(zip(files, told if len(told) == len(raw) else raw, strict=True))


def _is_passed_over(name: str) -> bool:
    """Whether a folder's walk would pass over it, too."""
    parts = name.replace("\\", "/").split("/")
    return any(part.startswith(".") and part not in (".", "..") for part in parts) or (
        parts[0] == "__MACOSX" or posixpath.basename(name).startswith("~$")
    )


def _told(unread: dict[str, str]) -> dict[str, dict[str, str]]:
    told = dict(list(unread.items())[:_MOST_TOLD])
    if len(unread) > _MOST_TOLD:
        told["..."] = f"{len(unread) - _MOST_TOLD} more members are not read."
    return {"unread_members": told} if told else {}


def _nothing_read(unread: dict[str, str]) -> str:
    if not unread:
        return "The zip archive holds no files but hidden ones. Put what is to be read into it."
    name, why = next(iter(unread.items()))
    return f"None of the {len(unread)} members of the zip archive can be read. The first is {name!r}: {why}"
