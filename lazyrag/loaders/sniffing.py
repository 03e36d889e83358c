"""What a file is by its first bytes, where its suffix says nothing or something else.

Three kinds of signs, of falling weight: marks that no text begins with (a PDF's, an archive's, a picture's); marks of
formats that are text (HTML, XML, RTF); and looks (JSON, a mail, plain text), which count only where no suffix is known.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lazyrag.errors import LoadError

_HEAD = 4096
_SAMPLE = 1 << 20
_SHORTEST = 16  # bytes: fewer that are no UTF-8 may be anything

_OLE = bytes.fromhex("d0cf11e0a1b11ae1")
_OLE_STREAMS = {
    name.encode("utf-16-le"): suffix
    for name, suffix in {
        "EncryptedPackage": "",  # a locked file of Office: its loader says so
        "WordDocument": ".doc",
        "PowerPoint Document": ".ppt",
        "Workbook": ".xls",
        "__properties_version1.0": ".msg",
        "Book": ".xls",
    }.items()
}
_ZIP_MEMBERS = {
    "word/document.xml": ".docx",
    "ppt/presentation.xml": ".pptx",
    "xl/workbook.xml": ".xlsx",
    "META-INF/container.xml": ".epub",
    "xl/workbook.bin": ".xlsb",
    "visio/document.xml": ".vsdx",
    "Index/Document.iwa": ".pages",
    "AndroidManifest.xml": ".apk",
    "META-INF/MANIFEST.MF": ".jar",
    "[Content_Types].xml": "",  # a program's own container: no archive of files to be read
    "mimetype": "",
}
_MIME_MEMBERS = {
    b"application/epub+zip": ".epub",
    b"application/vnd.oasis.opendocument.spreadsheet": ".ods",
    b"application/vnd.oasis.opendocument.text": ".odt",
    b"application/vnd.oasis.opendocument.presentation": ".odp",
}
_MAGIC: Mapping[str, bytes] = {
    ".7z": rb"7z\xbc\xaf\x27\x1c",
    ".avi": rb"RIFF....AVI ",
    ".bmp": rb"BM....\0\0\0\0",
    ".bz2": rb"BZh[1-9]1AY&SY",
    ".exe": rb"MZ.{1,200}\0",
    ".elf": rb"\x7fELF",
    ".flac": rb"fLaC\0",
    ".gif": rb"GIF8[79]a",
    ".gz": rb"\x1f\x8b\x08",
    ".jpg": rb"\xff\xd8\xff",
    ".m4a": rb"....ftypM4A",
    ".mkv": rb"\x1a\x45\xdf\xa3",
    ".mp3": rb"ID3[\x02-\x04].|\xff[\xfb\xf3\xf2][\x10-\xeb]",
    ".heic": rb"....ftyp(?:hei[cx]|mif1)",
    ".avif": rb"....ftypavif",
    ".mp4": rb"....ftyp",
    ".ogg": rb"OggS\0",
    ".parquet": rb"PAR1[\x15\x17]",
    ".png": rb"\x89PNG\r\n\x1a\n",
    ".rar": rb"Rar!\x1a\x07",
    ".sqlite": rb"SQLite format 3\0",
    ".tiff": rb"II\*\0|MM\0\*",
    ".wav": rb"RIFF....WAVE",
    ".webp": rb"RIFF....WEBP",
    ".xz": rb"\xfd7zXZ\0",
}
_ANY_MAGIC = re.compile(  # one look instead of twenty
    b"|".join(b"(?P<_%s>%s)" % (suffix[1:].encode(), pattern) for suffix, pattern in _MAGIC.items()), re.DOTALL
)
_ZIPPED = {".xlsm", *_ZIP_MEMBERS.values(), *_MIME_MEMBERS.values()} - {""}
_BINARY = {".pdf", ".zip", ".jpeg", ".tif", *_MAGIC, *_ZIPPED, *_OLE_STREAMS.values()} - {""}
# Containers of sound and film, of which the first bytes do not tell for sure what is in them.
_ALIKE = (frozenset([".3gp", ".m4a", ".m4b", ".m4v", ".mov", ".mp4"]), frozenset([".oga", ".ogg", ".ogv", ".opus"]))

_PDF = re.compile(rb"(?:^|[\r\n])%PDF-\d\.\d")
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\x1b") + b"\x7f"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")

_HTML = re.compile(r"<!doctype\s+html|<html[\s>]", re.IGNORECASE)
_XML = re.compile(r"\s*<\?xml\s")
_RTF = re.compile(r"\{\\rtf\d")
_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*[{\["\]])')
_HEADER = re.compile(r"([A-Za-z][\w-]*):[ \t]?.*(?:\r?\n[ \t]+.*)*\r?(?:\n|$)")
_MAIL_HEADERS = frozenset(
    ["from", "to", "cc", "subject", "date", "received", "message-id", "mime-version", "return-path", "delivered-to"]
)


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What a file is by its content.

    Args:
        suffix: That of such files; it need not be one that a loader reads.
        sure: Whether it outweighs any other suffix: no text begins like this.
        marked: Whether it outweighs the suffix of a format that is no text.
    """

    suffix: str
    sure: bool = False
    marked: bool = False

    def decides(self, suffix: str) -> bool:
        """Whether a file is to be read as what it is, where no loader reads its suffix.

        Looks are not enough for what is called a picture: it may be a damaged one.

        Example:
            >>> Sniffed(".txt").decides(".conf"), Sniffed(".txt").decides(".png")
            (True, False)
        """
        return self.sure or self.marked or suffix not in _BINARY

    def outweighs(self, suffix: str) -> bool:
        """Whether a file that is called otherwise is to be read as what it is.

        A container without the members that tell its kind stays what it is called: it is damaged.

        Example:
            >>> Sniffed(".html", marked=True).outweighs(".pdf"), Sniffed(".html", marked=True).outweighs(".txt")
            (True, False)
        """
        if suffix == self.suffix or (self.suffix == ".zip" and suffix in _ZIPPED):
            return False
        if any(suffix in some and self.suffix in some for some in _ALIKE):
            return False
        return self.sure or (self.marked and suffix in _BINARY)


def sniff(path: Path, *, suffix: str = "") -> Sniffed | None:
    """What a file is by its content; None where that tells nothing: rubbish, an empty or damaged file.

    Args:
        path: An existing file.
        suffix: One that is to be outweighed: what could not do that is not looked for.

    Raises:
        OSError: If it cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "page.pdf")
        ...     _ = path.write_text("<!DOCTYPE html><p>Green tea</p>", encoding="utf-8")
        ...     sniff(path).suffix
        '.html'
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  Path's own takes twice the time of all else
        head = file.read(_HEAD)
        if head.startswith(b"PK\x03\x04"):
            return _container(file, head)
        if head.startswith(_OLE):
            return _compound(file, head)
        if b"%PDF-" in head and _PDF.search(head, 0, 1024):
            return Sniffed(".pdf", sure=head.startswith(b"%PDF-"))
        magic = _ANY_MAGIC.match(head)
        if magic and (b"\0" in head or any(byte >= 0x80 for byte in head[:16])):
            return Sniffed(f".{str(magic.lastgroup)[1:]}", sure=True)
        return None if suffix and suffix not in _BINARY else _text(file, head)


def _container(file: BinaryIO, head: bytes) -> Sniffed | None:
    """A zip file, by its members."""
    if head[30:38] == b"mimetype":
        found = next((suffix for kind, suffix in _MIME_MEMBERS.items() if head.startswith(kind, 38)), "")
        if found:
            return Sniffed(found, sure=True)
    try:
        with zipfile.ZipFile(file) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    suffix = next((suffix for name, suffix in _ZIP_MEMBERS.items() if name in names), ".zip")
    return Sniffed(suffix, sure=True) if suffix else None


def _compound(file: BinaryIO, head: bytes) -> Sniffed | None:
    """A file of old office programs, by the first names in its directory."""
    shift = int.from_bytes(head[30:32], "little")
    first = int.from_bytes(head[48:52], "little")
    if shift not in (9, 12):
        return None
    file.seek((first + 1) << shift)
    directory = file.read(4 * _HEAD)
    suffix = next((suffix for name, suffix in _OLE_STREAMS.items() if name + b"\0\0" in directory), "")
    return Sniffed(suffix, sure=True) if suffix else None


def _text(file: BinaryIO, head: bytes) -> Sniffed | None:
    """A file that may be text; what it says is looked at only if it is."""
    data = head + file.read(_SAMPLE - len(head))
    if len(data) == _SAMPLE and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]  # no character is cut in two
    if not data.strip():
        return None
    wide = data.startswith(_WIDE_MARKS) or data[:2].count(0) == 1  # UTF-16, which is half controls
    if not wide and len(data.translate(None, _CONTROLS)) < len(data):
        return _marked(head.decode("latin-1"))
    from lazyrag.loaders.encoding import decode  # its detector of encodings takes time to import

    try:
        text = decode(data)
    except LoadError:
        return None
    if len(data) < _SHORTEST and not wide and not _is_utf8(data):
        return None
    return _marked(text[:_HEAD].removeprefix("\ufeff")) or _looks(text)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _marked(text: str) -> Sniffed | None:
    if _HTML.match(text, _first_element(text)):
        return Sniffed(".html", marked=True)
    for suffix, pattern in ((".xml", _XML), (".rtf", _RTF)):
        if pattern.match(text):
            return Sniffed(suffix, marked=True)
    return None


def _first_element(text: str) -> int:
    """Where the first element begins, behind white space, comments and XML's declaration."""
    position = 0
    while True:
        position += len(text[position:]) - len(text[position:].lstrip())
        end = next((end for start, end in (("<!--", "-->"), ("<?xml", "?>")) if text.startswith(start, position)), None)
        found = -1 if end is None else text.find(end, position)
        if end is None or found < 0:
            return position
        position = found + len(end)


def _looks(text: str) -> Sniffed:
    start = text[:_HEAD].removeprefix("\ufeff")
    if _JSON.match(start):
        return Sniffed(".ipynb" if '"nbformat"' in text and '"cells"' in text else ".json")
    is_box = start.startswith("From ")
    position = start.find("\n") + 1 if is_box else 0
    names = set()
    while found := _HEADER.match(start, position):
        names.add(found[1].lower())
        position = found.end()
    if len(names & _MAIL_HEADERS) >= 2:
        return Sniffed(".mbox" if is_box else ".eml")
    return Sniffed(".txt")
