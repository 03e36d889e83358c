"""Containers: zip-based formats read within limits, files within files, and `ZipLoader`."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import math
import posixpath
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

from lxml import etree

from lazyrag.data.segment import Location
from lazyrag.errors import LoadError, NoReaderError
from lazyrag.loaders.base import (
    PART_ERRORS,
    LoadedFile,
    joined_file,
    known_suffix,
    load_file,
    nested_locations,
    part_problem,
    reading,
)
from lazyrag.loaders.detect import clean, decode
from lazyrag.types import JsonObject, Metadata

Element: TypeAlias = etree._Element
"""An XML element; the tag of comments, instructions and entities is not a text."""

MAX_ENTRIES = 50_000
"""Entries in one container."""
MAX_RATIO = 200
"""Compression ratio of an entry from `SMALL_ENTRY` on; sheets of equal cells reach 50."""
SMALL_ENTRY = 1 << 20

_CHUNK = 1 << 16
_OOXML = frozenset([".docx", ".pptx", ".xlsx"])
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError)


class Archive:
    """An open container. Entries are read in pieces, so wrong sizes in headers do no harm.

    Args:
        file: The zip file.
        what: Kind of the file, for messages: ``"Word document"``.
        save_as: Advice for a damaged one, for messages.
        source: The zip file for libraries: its path, or its bytes.
    """

    def __init__(
        self, file: zipfile.ZipFile, kind: str, save_as: str, source: str | io.BytesIO = ""
    ) -> None:
        self.source = source
        self.infos = file.infolist()
        self.names = tuple(info.filename for info in self.infos)
        self._known = frozenset(self.names)
        self._file = file
        self._kind = kind
        self._save_as = save_as
        self._reading = reading()
        self.tolerated = self._reading.tolerated
        if len(self.names) > MAX_ENTRIES:
            raise LoadError(
                f"The {kind} holds {len(self.names)} entries; at most {MAX_ENTRIES} are read. Split"
                f" it, or {save_as}."
            )

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def restrict(self, names: Iterable[str]) -> None:
        """Treat all other parts as missing."""
        self._known = frozenset(names)

    def optional(self, name: str) -> Iterable[Element]:
        """The children of an XML part; none, with a note, if it is damaged; none if the name is
        "".
        """
        with self.tolerated(f"part {name}"):
            return self.xml(name) if name else ()
        return ()

    def read(self, name: str) -> bytes:
        """Read an entry.

        Raises:
            LoadError: If it is missing, damaged, encrypted, or exceeds a limit.
        """
        return b"".join(self.pieces(name))

    def xml(self, name: str) -> Element:
        """Parse an XML entry, without entities and network access.

        Raises:
            LoadError: If it cannot be read, see `read`, or is not XML.
        """
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
        )
        data = self.read(name)
        self._reading.spend(data.count(b"<"))
        try:
            return etree.fromstring(data, parser)
        except etree.XMLSyntaxError as exc:
            raise self._invalid(name, exc) from exc

    def elements(self, name: str, *tags: str) -> Iterator[Element]:
        """Parse an XML entry in one pass, without entities and network access.

        Args:
            name: The entry.
            tags: Local names of elements that are not within each other.

        Yields:
            Elements of these names, in order of their ends. Each loses its content when the next
            one is asked for.

        Raises:
            LoadError: See `xml`; after the elements before the damage.
        """
        parser = etree.XMLPullParser(
            ("end",),
            tag=[f"{{*}}{tag}" for tag in tags],
            resolve_entities=False,
            no_network=True,
            remove_comments=True,
            remove_pis=True,
        )
        for piece in itertools.chain(self.pieces(name), (b"",)):
            self._reading.spend(piece.count(b"<"))
            problem = None
            try:
                parser.feed(piece) if piece else parser.close()
            except etree.XMLSyntaxError as exc:
                problem = exc
            events = cast("Iterator[tuple[str, Element]]", parser.read_events())
            for _, element in events:
                yield element
                _remove(element)
            if problem:
                raise self._invalid(name, problem) from problem

    def pieces(self, entry: str | zipfile.ZipInfo) -> Iterator[bytes]:
        """Read an entry piece by piece; see `read`. Of several entries of one name, the name means
        the last.
        """
        name = entry if isinstance(entry, str) else entry.filename
        try:
            info = self._file.getinfo(entry) if isinstance(entry, str) else entry
        except KeyError as exc:
            msg = (
                f"The file is no {self._kind}: it is of another format, as it lacks the part"
                f" {name}."
            )
            raise LoadError(self._advised(msg)) from exc
        size = 0
        try:
            with self._file.open(info) as stream:
                while piece := stream.read(_CHUNK):
                    size += len(piece)
                    self._reading.count_unpacked(len(piece), self._kind)
                    self._check_ratio(name, size, info.compress_size)
                    yield piece
        except RuntimeError as exc:  # zipfile's error for a missing password
            raise LoadError(
                f"The {self._kind} is encrypted and needs a password. Save it again without one."
            ) from exc
        except _DAMAGE as exc:
            msg = f"The {self._kind} is damaged: its part {name} cannot be unpacked ({exc})."
            raise LoadError(self._advised(msg)) from exc

    def _invalid(self, name: str, error: Exception) -> LoadError:
        msg = f"The {self._kind} is damaged: its part {name} is not valid XML ({error})."
        return LoadError(self._advised(msg))

    def _check_ratio(self, name: str, size: int, packed: int) -> None:
        if size > SMALL_ENTRY and size > MAX_RATIO * packed:
            self._reading.exceeded = True
            problem = f"its part {name} unpacks to more than {MAX_RATIO} times its size"
            hint = "If you trust it, save it again from its program."
            raise LoadError(f"The {self._kind} is packed like a zip bomb: {problem}. {hint}")

    def _advised(self, problem: str) -> str:
        return f"{problem} {self._save_as[:1].upper()}{self._save_as[1:]}."


def _remove(element: Element) -> None:
    """Free an element that has been read, and what is before it."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]


@contextmanager
def open_archive(path: Path, kind: str, suffix: str) -> Iterator[Archive]:
    """Open a zip container.

    Args:
        path: An existing file.
        kind: Kind of the file, for messages: ``"Word document"``.
        suffix: Its usual suffix, for messages: ``".docx"``.

    Raises:
        LoadError: If it is not a zip file, truncated, encrypted, or has too many entries.
    """
    with path.open("rb") as stream:
        # zipfile would also find small archives inside old office files
        if stream.read(2) != b"PK":
            raise LoadError(_no_archive(path, kind, suffix))
        try:
            with zipfile.ZipFile(stream) as file:
                archive = Archive(file, kind, f"save it again as {suffix}", str(path))
                usual = transitional(archive.names, archive.read) if suffix in _OOXML else None
                if usual is None:
                    yield archive
                else:
                    with zipfile.ZipFile(usual) as rewritten:
                        yield Archive(rewritten, kind, f"save it again as {suffix}", usual)
        except zipfile.BadZipFile as exc:
            raise LoadError(_no_archive(path, kind, suffix)) from exc


def _no_archive(path: Path, kind: str, suffix: str) -> str:
    data = path.read_bytes()
    if data.startswith(_OLE) and _ENCRYPTED_PACKAGE in data:
        return f"The {kind} is encrypted and needs a password. Save it again without one."
    if data.startswith(_OLE):
        return (
            f"The file is no {kind}: it is of another format, that of old office programs. Save it"
            f" as {suffix}."
        )
    return (
        f"The file is no {kind}: it is cut off, encrypted, or of another format. Save it again as"
        f" {suffix}."
    )


def local_name(element: Element) -> str:
    """An element's name without namespace; "" for an entity.

    Example:
        >>> local_name(etree.fromstring('<a:t xmlns:a="urn:a"/>'))
        't'
    """
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element, name: str) -> str:
    """The first attribute of a name in any namespace; "" without one."""
    suffix = f"}}{name}"
    return next(
        (str(value) for key, value in element.attrib.items() if str(key).endswith(suffix)), ""
    )


_SAFE_SUFFIX = re.compile(r"(?:\.\w{1,16}){1,3}$", re.ASCII)


@contextmanager
def member_folder() -> Iterator[Path]:
    """A temporary folder for `load_member`."""
    with tempfile.TemporaryDirectory(prefix="lazyrag-") as folder:
        yield Path(folder)


def load_member(folder: Path, name: str, pieces: Iterable[bytes]) -> LoadedFile:
    """Load a file within another file, with its own loader and the limits of the outer file.

    Args:
        folder: A temporary folder; the file written there has the suffix of the name, and a name of
            ours.
        name: Its path within the other file.
        pieces: Its bytes.

    Raises:
        LoadError: If it cannot be read, or there are too many members.
    """
    reading().count_member()
    suffix = known_suffix(name.replace("\\", "/").rpartition("/")[2])
    path = folder / f"member{suffix if _SAFE_SUFFIX.match(suffix) else ''}"
    try:
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        return load_file(path, name=name)
    finally:
        path.unlink(missing_ok=True)


def with_attachments(
    text: str,
    metadata: Metadata,
    attachments: Iterable[tuple[str, Callable[[], LoadedFile]]],
) -> LoadedFile:
    """Append attachments to a mail, each as a location of kind ``attachment`` with its own
    locations.

    Args:
        text: Of the mail.
        metadata: Of the mail; names of attachments and reasons for unread ones are added.
        attachments: Name and load function of each.
    """
    texts = [text]
    locations = list[Location]()
    names = []
    unread = {}
    length = len(text)
    for name, load in attachments:
        names.append(name)
        try:
            loaded = load()
        except PART_ERRORS as exc:
            if reading().is_over:
                raise
            unread[name] = part_problem(exc)
            continue
        unread |= unread_within(loaded, name)
        head = f"\n\nAttachment: {name}\n"
        locations += nested_locations(loaded, length + len(head), "attachment", name)
        texts += (head, loaded.text)
        length += len(head) + len(loaded.text)
    more: JsonObject = {}
    if names:
        more["attachments"] = names
    if unread:
        more["unread_attachments"] = unread
    return LoadedFile("".join(texts), tuple(locations), {**metadata, **more})


def unread_within(loaded: LoadedFile, label: str) -> dict[str, str]:
    """The unread files of a nested file, with reasons. What is missing of it is noted for the outer
    file.

    Args:
        loaded: The nested file.
        label: Its label, the prefix of their names.

    Example:
        >>> nested = LoadedFile("Tea", metadata={"unread_members": {"a.exe": "No loader."}})
        >>> unread_within(nested, "teas.zip")
        {'teas.zip > a.exe': 'No loader.'}
    """
    notes = loaded.metadata.get("notes")
    for note in notes if isinstance(notes, list) else ():
        reading().note(f"{label}: {note}")
    unread: dict[str, str] = {}
    for kind in ("members", "attachments", "messages", "lines"):
        reasons = loaded.metadata.get(f"unread_{kind}")
        if isinstance(reasons, Mapping):
            unread |= {f"{label} > {name}": str(reason) for name, reason in reasons.items()}
    return unread


class Relation(NamedTuple):
    """A relation of a part: the last word of its type, and the target part."""

    kind: str
    target: str


def relations(archive: Archive, part: str = "") -> dict[str, Relation]:
    """Internal relations of a part, by id.

    Args:
        archive: The kind.
        part: A part's name; "" for the kind itself.

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
    """The first related part of a kind; "" without one."""
    targets = (
        relation.target for relation in relations(archive, part).values() if relation.kind == kind
    )
    return next((target for target in targets if target in archive), "")


_PROPERTIES = {"creator": "author", "lastModifiedBy": "last_modified_by"}
_DATES = frozenset(["created", "modified"])


def properties(archive: Archive, names: Iterable[str] = ("title", "author")) -> dict[str, str]:
    """Properties of an office file as metadata; all of them may fill declared fields.

    Args:
        archive: The file.
        names: Those that are metadata in any case.
    """
    values: dict[str, str] = {}
    for kind in ("core-properties", "custom-properties"):
        part = related(archive, kind)
        with archive.tolerated(f"properties ({part})"):
            for element in archive.xml(part) if part else ():
                name = element.get("name") or local_name(element)
                name = _PROPERTIES.get(name, name)
                text = (
                    " ".join(map(str, element.itertext())) if len(element) else element.text or ""
                )
                text = w3c_date(text) if name in _DATES else clean(text).strip()
                values.setdefault(name, text)
    filled = {name: text for name, text in values.items() if text}
    reading().fields |= filled
    return {name: filled[name] for name in names if name in filled}


def w3c_date(text: str) -> str:
    """A date of office files as ISO 8601 in UTC; "" for an invalid one.

    Example:
        >>> w3c_date("2024-05-01T10:00:00+02:00"), w3c_date("0001-01-01T00:00:00+14:00")
        ('2024-05-01T08:00:00+00:00', '')
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip()).replace(microsecond=0)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.timezone.utc)
        return aware.astimezone(dt.timezone.utc).isoformat()
    except (ValueError, OverflowError):  # the latter from zones before year 1 or after 9999
        return ""


_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")


def unescaped(text: str) -> str:
    r"""Decode the ``_xHHHH_`` escapes of Office files, and clean the text.

    Example:
        >>> unescaped("green_x000D_tea")
        'green\rtea'
    """
    return clean(_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text))


_MAX_LISTED = 100
_IS_UTF8 = 0x800


class ZipLoader:
    """Reads an archive member by member, each with its own loader; each is a location of kind
    ``member``.

    Locations in a member are labelled with its path: ``teas.pdf > 3``. Hidden members are skipped.
    The number of the others becomes the metadata ``members``, the unread ones, with reasons,
    ``unread_members``. An archive that exceeds a limit is not read at all.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        state = reading()
        files = []
        unread = {}
        has_failed = False
        with open_archive(path, "zip archive", ".zip") as archive, member_folder() as folder:
            listed = [(info, name) for info, name in _named(archive.infos) if not _is_hidden(name)]
            for info, name in listed:
                try:
                    loaded = load_member(folder, name, archive.pieces(info))
                except LoadError as exc:
                    if state.exceeded:
                        raise
                    unread[name] = str(exc)
                    has_failed = has_failed or not isinstance(exc, NoReaderError)
                    continue
                unread |= unread_within(loaded, name)
                files.append((loaded, "member", name))
        if not files:
            if has_failed:
                raise LoadError(_nothing_read(unread))
            raise NoReaderError(_nothing_read(unread), reason="archive without a readable file")
        return joined_file(files, {"members": len(listed), **_listed(unread)})

    load_source = load


def _named(infos: list[zipfile.ZipInfo]) -> list[tuple[zipfile.ZipInfo, str]]:
    """Members with decoded names: old programs use other encodings than the standard's."""
    files = [info for info in infos if not info.is_dir()]
    raw = [info.filename for info in files]
    if all(map(str.isascii, raw)) or any(info.flag_bits & _IS_UTF8 for info in infos):
        return list(zip(files, raw, strict=True))
    try:
        names = decode("\n".join(raw).encode("cp437")).split("\n")
    except (LoadError, UnicodeEncodeError):
        names = raw
    return list(zip(files, names if len(names) == len(raw) else raw, strict=True))


def _is_hidden(name: str) -> bool:
    """Whether a folder's walk would skip it, too."""
    parts = name.replace("\\", "/").split("/")
    return any(part.startswith(".") and part not in (".", "..") for part in parts) or (
        parts[0] == "__MACOSX" or posixpath.basename(name).startswith("~$")
    )


def _listed(unread: dict[str, str]) -> dict[str, dict[str, str]]:
    listed = dict(list(unread.items())[:_MAX_LISTED])
    if len(unread) > _MAX_LISTED:
        listed["..."] = f"{len(unread) - _MAX_LISTED} more members are not read."
    return {"unread_members": listed} if listed else {}


def _nothing_read(unread: dict[str, str]) -> str:
    if not unread:
        return "The zip archive holds no files but hidden ones."
    name, why = next(iter(unread.items()))
    return (
        f"None of the {len(unread)} members of the zip archive can be read. The first is {name!r}:"
        f" {why}"
    )


_STRICT = b"http://purl.oclc.org/ooxml/"
_NAMESPACE = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_USUAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_PACKAGE_RELATIONS = "_rels/.rels"


def transitional(names: Sequence[str], read: Callable[[str], bytes]) -> io.BytesIO | None:
    """A package of strict OOXML (ISO 29500) with the namespaces of the usual form; None if it has
    that already.

    Args:
        names: Of its parts.
        read: Reads a part.
    """
    if _PACKAGE_RELATIONS not in names or _STRICT not in read(_PACKAGE_RELATIONS):
        return None
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            data = read(name)
            file.writestr(
                name, _NAMESPACE.sub(_USUAL, data) if name.endswith((".xml", ".rels")) else data
            )
    return target


_NO_WORDS = re.compile(
    r"\S+\.(?:png|jpe?g|gif|bmp|tiff?|webp|svg|emf|wmf)|cover|icon|image|img|logo|photo|picture"
    r"|图片|图像|封面",
    re.IGNORECASE,
)


def picture_text(alternative: str | None) -> str:
    """The alternative text of a picture as a line; "" for none, for its kind and for the name of
    its file.

    Example:
        >>> picture_text("A tea garden"), picture_text("IMG_2041.jpg")
        ('[Image: A tea garden]', '')
    """
    words = " ".join((alternative or "").split())
    return f"[Image: {words}]" if words and not _NO_WORDS.fullmatch(words) else ""


def by_place(group: Element) -> list[Element]:
    """The shapes of a group in rows from top to bottom, each from left to right; grouping stores
    them in any order.
    """
    placed = []
    for shape in group:
        offset = shape.find(".//{*}xfrm/{*}off")
        size = shape.find(".//{*}xfrm/{*}ext")
        placed.append((_number(offset, "y"), _number(offset, "x"), _number(size, "cy"), shape))
    placed.sort(key=lambda box: box[:2])
    rows: list[list[tuple[float, Element]]] = []
    lowest = -math.inf
    for top, left, height, shape in placed:
        if not rows or top >= lowest:
            rows.append([])
            lowest = top + height / 2
        rows[-1].append((left, shape))
    for row in rows:
        row.sort(key=lambda pair: pair[0])
    return [shape for _, shape in itertools.chain.from_iterable(rows)]


def _number(element: Element | None, name: str) -> float:
    text = "" if element is None else element.get(name, "")
    return float(text) if re.fullmatch(r"-?\d{1,12}", text, re.ASCII) else 0.0
