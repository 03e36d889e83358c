"""Detection of encodings (`decode`) and of formats by content (`sniff`).

Formats have three kinds of signs, of falling weight: magic bytes (PDF, archives, images); marks of
text formats (HTML, XML, RTF); and looks (JSON, a mail, plain text), which count only without a
known suffix.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from lazyrag.errors import LoadError
from lazyrag.types import JsonObject

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, as it begins with its mark
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_SAMPLE = 1 << 16
_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\x1b")
_CONTROLS = bytes(code for code in range(32) if code not in _TEXT_CONTROLS) + b"\x7f"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(f"[{re.escape(_CONTROLS.decode())}]")


class Decoded(NamedTuple):
    """Text and its encoding, by Python's name, and how sure that is."""

    text: str
    encoding: str
    confidence: float = 1.0

    @property
    def metadata(self) -> JsonObject:
        """The encoding, unless it is UTF-8, and a note if it is a guess."""
        guess = f"encoding: guessed {self.encoding}, confidence {self.confidence:.2f}"
        notes = {"notes": [guess]} if self.confidence < _SURE else {}
        return {} if self.encoding == "utf-8" else {"encoding": self.encoding, **notes}


def decode(data: bytes, *, declared: str | None = None) -> str:
    """Decode bytes: by byte order mark, as UTF-8, as declared, as East Asian, by statistics, in
    this order.

    A few invalid bytes in UTF-8 become U+FFFD. NUL and other control characters, which break stores
    and terminals, become spaces. Line ends stay.

    Args:
        data: A file's bytes.
        declared: The encoding that the file names.

    Raises:
        LoadError: If the bytes are not text.

    Example:
        >>> decode("绿茶".encode("gb18030"))
        '绿茶'
    """
    return find_encoding(data, declared=declared).text


def decode_lossy(data: bytes, declared: str | None = None) -> str:
    """As `decode`; bytes that are not text become U+FFFD."""
    try:
        return decode(data, declared=declared)
    except LoadError:
        return data.decode("ascii", "replace")


def find_encoding(data: bytes, *, declared: str | None = None) -> Decoded:
    """As `decode`, with the name of the encoding.

    Raises:
        LoadError: If the bytes are not text.

    Example:
        >>> find_encoding("绿茶".encode("gb18030"))
        Decoded(text='绿茶', encoding='gb18030', confidence=0.75)
    """
    text, encoding, *confidence = _decoded(data, declared)
    if len(data.translate(None, _CONTROLS)) < len(data):  # a twentieth of the pattern's time
        text = _CONTROL.sub(" ", text)
    return Decoded(text, encoding, *confidence)


def clean(text: str) -> str:
    r"""Replace control characters by spaces, and lone surrogates by U+FFFD: escapes of a format may
    yield them.

    Example:
        >>> clean("tea\0\ud83c")
        'tea \ufffd'
    """
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", text))


_SURE = 0.8
# samples begin so many bytes before the first that is not ASCII
_ASCII = bytes(range(1, 0x80))
_BEFORE = 64
_MANY = 40  # East Asian characters, which no other text is by chance
_SureDecoding: TypeAlias = tuple[str, str]
"""A text and its encoding."""
_Decoding: TypeAlias = "_SureDecoding | tuple[str, str, float]"
"""As `Decoded`, with any control characters."""


def _decoded(data: bytes, declared: str | None) -> _Decoding:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _strictly(data, encoding), encoding.removesuffix("-sig")
    decoding = (
        _utf16_without_mark(data)
        or _as_utf8(data)
        or _damaged_utf8(data)
        or _as_declared(data, declared)
    )
    if decoding is None and _control_share(data) < 0.01:
        start = max(0, len(data) - len(data.lstrip(_ASCII)) - _BEFORE)
        guess = _by_language(data[start:])
        if guess is not None:
            text, *encoding_and_confidence = guess
            return (data[:start].decode("ascii") + text, *encoding_and_confidence)
    if decoding is None:
        from lazyrag.loaders.alphabets import utf16_or_32

        decoding = utf16_or_32(data)
    if decoding is None:
        raise LoadError(_BINARY)
    return decoding


def _as_utf8(data: bytes) -> _Decoding | None:
    """UTF-8, or what is valid UTF-8 as well: 7-bit encodings with escapes, UTF-16 of small
    alphabets.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    controls = _control_share(data)
    if controls > 0.01 or b"\x1b" in data or b"~{" in data:
        from lazyrag.loaders.alphabets import by_escapes, utf16_or_32  # rarely needed

        decoding = by_escapes(data) or (utf16_or_32(data) if controls > 0.01 else None)
        if decoding is not None:
            return decoding
    if controls > 0.3:
        raise LoadError(_BINARY)
    return text, "utf-8"


def _by_language(data: bytes) -> _Decoding | None:
    """The text in the encoding that suits a language; that of an alphabet if it is sure, else the
    East Asian one.
    """
    from lazyrag.loaders.alphabets import LOW, by_letters, by_marks

    typed = by_marks(data)
    if typed is not None:
        return typed
    asian = _east_asian(data)
    if asian is not None and _count_wide(asian[0][:_SAMPLE]) > _MANY:
        return asian
    latin = by_letters(data)
    if latin is not None and latin.confidence > LOW:
        is_clear = asian is None or _ALONE.sub("", asian[0]).isascii()
        if is_clear and _is_mostly_ascii(data[:_SAMPLE]):
            return latin
    elif not _is_mostly_ascii(data[:_SAMPLE]):
        latin = None
    return _by_script(data, asian, latin)


def _by_script(
    data: bytes, asian: _SureDecoding | None, latin: _Decoding | None
) -> _Decoding | None:
    """The text in the most likely of several encodings, without a clear language."""
    from lazyrag.loaders.alphabets import by_alphabet, utf16_or_32

    spelled = by_alphabet(data)
    if spelled is not None and spelled.encoding == "cp874" and spelled.confidence > _SURE:
        return spelled
    if asian is not None:
        confidence = 1 - 0.5 / _count_wide(asian[0][:_SAMPLE])
        return *asian, round(confidence * (1.0 if spelled is None else 0.85), 2)
    return (
        utf16_or_32(data)
        or spelled
        or _japanese_without_kana(data)
        or latin
        or _mostly_simplified(data)
    )


def _count_wide(text: str) -> int:
    """The number of characters beyond ASCII."""
    return len(text) - len(text.encode("ascii", "ignore"))


def _is_mostly_ascii(sample: bytes) -> bool:
    """Whether more letters of a sample are in ASCII than beyond."""
    high = sum(byte > 0x7F for byte in sample)
    return sum(map(sample.lower().count, _ASCII_LETTERS)) > high


_ALONE = re.compile(
    r"(?<![^\x00-\x7f])(?:(?<=[A-Za-z])[^\x00-\x7f]|[^\x00-\x7f](?=[A-Za-z]))(?![^\x00-\x7f])"
)
"""A character beyond ASCII within a word of ASCII letters, which is none of East Asia."""
_ASCII_LETTERS = [bytes([code]) for code in range(ord("a"), ord("z") + 1)]


def _strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as exc:
        problem = (
            f"The file says it is {encoding}, which byte {exc.start} contradicts ({exc.reason})"
        )
        raise LoadError(f"{problem}. Save it again as UTF-8.") from exc


def _damaged_utf8(data: bytes) -> _SureDecoding | None:
    """UTF-8 with a few invalid bytes, which become U+FFFD. Other encodings hardly ever form valid
    sequences.
    """
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    wide = _count_wide(text)
    whole = len(_WESTERN.findall(text))
    is_western = whole + broken == wide and _is_mostly_ascii(data[:_SAMPLE])
    is_utf8 = wide >= 11 * broken or (is_western and whole >= 2 * broken)
    return (text, "utf-8") if is_utf8 else None


_WESTERN = re.compile("[\xc0-\u017f\u2013-\u2026€]")


# Names that mean a superset, as in browsers.
_SUPERSETS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "shift_jis": "cp932",
}


def _as_declared(data: bytes, declared: str | None) -> _SureDecoding | None:
    if declared is None:
        return None
    try:
        name = codecs.lookup(declared).name
        name = _SUPERSETS.get(name, name)
        return data.decode(name), name
    except (LookupError, ValueError):  # unknown, not an encoding of text, or wrong
        return None


def _utf16_without_mark(data: bytes) -> _SureDecoding | None:
    """UTF-16 with mostly Latin letters and white space: every other byte is 0."""
    sample = data[:_SAMPLE]
    if len(sample) < 4 or len(data) % 2:
        return None
    for offset, encoding in ((0, "utf-16-be"), (1, "utf-16-le")):
        high = sample[offset::2]
        low = sample[1 - offset :: 2]
        if high.count(0) > 0.4 * len(high) and low.count(0) < 0.05 * len(low):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError:
                return None
    return None


def _east_asian(data: bytes) -> _SureDecoding | None:
    """The text in the East Asian encoding in which it consists of everyday characters, else None.

    A few characters suffice, where statistics over bytes guess. Japanese is recognized by kana,
    Korean by Hangul alone; the rest is Chinese if possible, simplified before traditional.
    """
    for encoding, suits in (
        ("cp932", _is_japanese),
        ("euc_jp", _is_japanese),
        ("cp949", _is_korean),
        ("gb18030", _is_simplified),
        ("big5", _is_traditional),
    ):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if suits(text[:_SAMPLE]):
            return text, encoding
    return None


def _is_japanese(text: str) -> bool:
    """Whether a fifth of the characters are hiragana or full-width katakana, hardly any half-width
    or rare kanji.

    Two bytes of Chinese or Korean are two half-width katakana in Shift-JIS.
    """
    wide = [character for character in text if not character.isascii()]
    kana = sum("\u3041" <= character <= "\u30fe" for character in wide)
    halves = sum("\uff61" <= character <= "\uff9f" for character in wide)
    rare = sum(_lead(character, "shift_jis") >= 0x98 for character in wide)
    return (
        len(wide) >= 2
        and kana >= 0.2 * len(wide)
        and halves <= 0.1 * len(wide)
        and rare <= 0.2 * len(wide)
    )


def _is_korean(text: str) -> bool:
    """Whether nearly all letters are common Korean syllables, a tenth of them the most frequent
    ones.

    Of Chinese bytes, six of ten characters are common syllables, but few are frequent ones.
    """
    letters = [character for character in text if character.isalpha() and not character.isascii()]
    syllables = sum(_lead(character, "euc_kr") in range(0xB0, 0xC9) for character in letters)
    frequent = sum(character in _FREQUENT_SYLLABLES for character in letters)
    return len(letters) >= 2 and syllables >= 0.95 * len(letters) and frequent >= 0.1 * len(letters)


_FREQUENT_SYLLABLES = frozenset("이다는의에을를가은도고하지로한기어사리인나서자해시대과있그니수정")


def _is_simplified(text: str) -> bool:
    """Whether nearly all characters are in GB 2312, few of them in its rarer half."""
    wide = [character for character in text if not character.isascii()]
    leads = [_lead(character, "gb2312") for character in wide]
    common = sum(lead in range(0xA1, 0xA4) or lead in range(0xB0, 0xF8) for lead in leads)
    rare = sum(lead >= 0xD8 for lead in leads)
    # Accented letters are between plain ones: "Größe" would have a Chinese character.
    alone = len(_CJK_BETWEEN_LATIN.findall(text))
    most_rare = 0.35
    if len(wide) < 10:
        most_rare = 1.0 if len(wide) < 5 else 0.5
    return common >= 0.95 * len(wide) and rare <= most_rare * len(wide) and alone <= 0.2 * len(wide)


def _mostly_simplified(data: bytes) -> _Decoding | None:
    """Chinese with many rare characters."""
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return None
    leads = [_lead(character, "gb2312") for character in text[:_SAMPLE] if not character.isascii()]
    common = sum(lead in range(0xA1, 0xA4) or lead in range(0xB0, 0xD8) for lead in leads)
    return (text, "gb18030", 0.7) if common >= 0.5 * len(leads) else None


def _is_traditional(text: str) -> bool:
    """Whether nearly all characters are punctuation or common characters of Big5."""
    wide = [character for character in text if not character.isascii()]
    common = sum(_lead(character, "big5") in range(0xA1, 0xC7) for character in wide)
    return common >= 0.9 * len(wide)


_CJK_BETWEEN_LATIN = re.compile(
    r"[A-Za-z][\u4e00-\u9fff][a-z]|[A-Za-z][\u4e00-\u9fff](?![\u3400-\u9fff])(?=[^\w\s]|$)"
)


def _lead(character: str, encoding: str) -> int:
    """The first byte of a character in an encoding; 0 if it has none."""
    try:
        return character.encode(encoding)[0]
    except UnicodeEncodeError:
        return 0


def _japanese_without_kana(data: bytes) -> _SureDecoding | None:
    """Japanese names in Shift-JIS: nine of ten common kanji, no half-width letter.

    Comes last, because most Chinese bytes are such kanji as well.
    """
    try:
        text = data.decode("cp932")
    except UnicodeDecodeError:
        return None
    wide = [character for character in text[:_SAMPLE] if not character.isascii()]
    everyday = sum(_lead(character, "cp932") in range(0x81, 0x99) for character in wide)
    halves = sum("\uff61" <= character <= "\uff9f" for character in wide)
    return (
        (text, "cp932") if len(wide) >= 2 and not halves and everyday >= 0.9 * len(wide) else None
    )


_BINARY = (
    "The file is not text in any known encoding. Give it the right suffix, or save it again as"
    " UTF-8."
)


def _control_share(data: bytes) -> float:
    sample = data[:_SAMPLE]
    return (len(sample) - len(sample.translate(None, _CONTROLS))) / max(1, len(sample))


_HEAD = 4096
_SNIFFED_BYTES = 1 << 20
_MIN_LENGTH = 16  # bytes: fewer that are not UTF-8 may be anything

_OLE = bytes.fromhex("d0cf11e0a1b11ae1")
_OLE_STREAMS = {
    name.encode("utf-16-le"): suffix
    for name, suffix in {
        "EncryptedPackage": "",  # an encrypted Office file: its loader reports it
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
    "[Content_Types].xml": "",  # a container of a program, not an archive
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
_ANY_MAGIC = re.compile(  # one search instead of twenty
    b"|".join(
        b"(?P<_%s>%s)" % (suffix[1:].encode(), pattern) for suffix, pattern in _MAGIC.items()
    ),
    re.DOTALL,
)
_ZIPPED = {
    ".docm",
    ".dotx",
    ".xlsm",
    *_ZIP_MEMBERS.values(),
    *_MIME_MEMBERS.values(),
} - {""}
_BINARY_SUFFIXES = {".pdf", ".zip", ".jpeg", ".tif", *_MAGIC, *_ZIPPED, *_OLE_STREAMS.values()} - {
    ""
}
# Containers of audio and video, whose first bytes do not show the content.
_ALIKE = (
    frozenset([".3gp", ".m4a", ".m4b", ".m4v", ".mov", ".mp4"]),
    frozenset([".oga", ".ogg", ".ogv", ".opus"]),
)

_PDF = re.compile(rb"(?:^|[\r\n])%PDF-\d\.\d")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")

_HTML = re.compile(r"<!doctype\s+html|<html[\s>]", re.IGNORECASE)
_XML = re.compile(r"\s*<\?xml\s")
_RTF = re.compile(r"\{\\rtf\d")
_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*[{\["\]])')
_HEADER = re.compile(r"([A-Za-z][\w-]*):[ \t]?.*(?:\r?\n[ \t]+.*)*\r?(?:\n|$)")
_MAIL_HEADERS = frozenset(
    [
        "from",
        "to",
        "cc",
        "subject",
        "date",
        "received",
        "message-id",
        "mime-version",
        "return-path",
        "delivered-to",
    ]
)


def is_binary(suffix: str) -> bool:
    """Whether a suffix is that of a binary format, as far as content is detected.

    Example:
        >>> is_binary(".xlsx"), is_binary(".yaml")
        (True, False)
    """
    return suffix in _BINARY_SUFFIXES


@dataclass(frozen=True, slots=True)
class Sniffed:
    """The format of a file by its content.

    Args:
        suffix: The usual suffix; there may be no loader for it.
        sure: Whether it outweighs any other suffix: no text begins like this.
        marked: Whether it outweighs suffixes of binary formats.
    """

    suffix: str
    sure: bool = False
    marked: bool = False

    def decides(self, suffix: str) -> bool:
        """Whether the content decides for a suffix without loader. Looks do not suffice for images:
        it may be damaged.

        Example:
            >>> Sniffed(".txt").decides(".conf"), Sniffed(".txt").decides(".png")
            (True, False)
        """
        return self.sure or self.marked or suffix not in _BINARY_SUFFIXES

    def outweighs(self, suffix: str) -> bool:
        """Whether the content outweighs another suffix. A container without the members of its
        format is damaged.

        Example:
            >>> page = Sniffed(".html", marked=True)
            >>> page.outweighs(".pdf"), page.outweighs(".txt")
            (True, False)
        """
        if suffix == self.suffix or (self.suffix == ".zip" and suffix in _ZIPPED):
            return False
        if any(suffix in some and self.suffix in some for some in _ALIKE):
            return False
        return self.sure or (self.marked and suffix in _BINARY_SUFFIXES)


def sniff(path: Path, *, suffix: str = "") -> Sniffed | None:
    """Detect the format of a file by its content; None for an unknown, empty or damaged one.

    Args:
        path: An existing file.
        suffix: Its suffix, if there is a loader for it: only formats that can outweigh it are
            looked for.

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
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  Path.open takes twice as long
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
        return None if suffix and suffix not in _BINARY_SUFFIXES else _text(file, head)


def _container(file: BinaryIO, head: bytes) -> Sniffed | None:
    """Detect a zip-based format by its members."""
    if head[30:38] == b"mimetype":
        for kind, suffix in _MIME_MEMBERS.items():
            if head.startswith(kind, 38):
                return Sniffed(suffix, sure=True)
    import zipfile  # with shutil and the compressors, slow to import

    try:
        with zipfile.ZipFile(file) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    suffix = next((suffix for name, suffix in _ZIP_MEMBERS.items() if name in names), ".zip")
    return Sniffed(suffix, sure=True) if suffix else None


def _compound(file: BinaryIO, head: bytes) -> Sniffed | None:
    """Detect an old office format by the first names in its directory."""
    shift = int.from_bytes(head[30:32], "little")
    first = int.from_bytes(head[48:52], "little")
    if shift not in (9, 12):
        return None
    file.seek((first + 1) << shift)
    directory = file.read(4 * _HEAD)
    suffix = next(
        (suffix for name, suffix in _OLE_STREAMS.items() if name + b"\0\0" in directory), ""
    )
    return Sniffed(suffix, sure=True) if suffix else None


def _text(file: BinaryIO, head: bytes) -> Sniffed | None:
    """Detect text formats."""
    data = head + file.read(_SNIFFED_BYTES - len(head))
    if len(data) == _SNIFFED_BYTES and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]  # do not cut a character in two
    if not data.strip():
        return None
    # UTF-16, which is half control characters
    wide = data.startswith(_WIDE_MARKS) or data[:2].count(0) == 1
    if not wide and len(data.translate(None, _CONTROLS)) < len(data):
        return _marked(head.decode("latin-1"))

    try:
        read = find_encoding(data)
    except LoadError:
        return None
    if len(data) < _MIN_LENGTH and not wide and read.encoding != "utf-8":
        return None
    return _marked(read.text[:_HEAD].removeprefix("\ufeff")) or _looks(read.text)


def _marked(text: str) -> Sniffed | None:
    if _HTML.match(text, _first_element(text)):
        return Sniffed(".html", marked=True)
    for suffix, pattern in ((".xml", _XML), (".rtf", _RTF)):
        if pattern.match(text):
            return Sniffed(suffix, marked=True)
    return None


def _first_element(text: str) -> int:
    """Position of the first element, after white space, comments and the XML declaration."""
    position = 0
    while True:
        position = len(text) - len(text[position:].lstrip())
        if text.startswith("<!--", position):
            closing = "-->"
        elif text.startswith("<?xml", position):
            closing = "?>"
        else:
            return position
        end = text.find(closing, position)
        if end < 0:
            return position
        position = end + len(closing)


def _looks(text: str) -> Sniffed:
    start = text[:_HEAD].removeprefix("\ufeff")
    if _JSON.match(start):
        return Sniffed(".ipynb" if '"nbformat"' in text and '"cells"' in text else ".json")
    is_box = start.startswith("From ")
    position = start.find("\n") + 1 if is_box else 0
    names = set()
    while header := _HEADER.match(start, position):
        names.add(header[1].lower())
        position = header.end()
    if len(names & _MAIL_HEADERS) >= 2:
        return Sniffed(".mbox" if is_box else ".eml")
    return Sniffed(".txt")
