"""Bytes to text: which encoding a file is written in."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

import charset_normalizer

from lazyrag.errors import LoadError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

# What remains when Unicode and the East Asian encodings are excluded. Leaving out the rarer ones keeps
# the detector from reading French as Mac Central European.
_LEGACY = ["cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1256", "big5", "cp949"]

_SAMPLE = 1 << 16
_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\x1b")
_CONTROLS = bytes(code for code in range(32) if code not in _TEXT_CONTROLS) + b"\x7f"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(f"[{re.escape(_CONTROLS.decode())}]")


class Decoded(NamedTuple):
    """Text, and the encoding that it was found to be in, by Python's name."""

    text: str
    encoding: str

    @property
    def metadata(self) -> dict[str, str]:
        """What is told of a file: its encoding, unless that is UTF-8."""
        return {} if self.encoding == "utf-8" else {"encoding": self.encoding}


def decode(data: bytes, *, declared: str | None = None) -> str:
    """Text of some bytes: by byte order mark, as UTF-8, as declared, as East Asian, by statistics, in this order.

    UTF-8 with a few broken bytes is read all the same; they become U+FFFD.

    NUL and other control characters become spaces: stores and terminals choke on them.

    Args:
        data: A file's bytes.
        declared: An encoding that the file names itself.

    Returns:
        The text, line ends as they are.

    Raises:
        LoadError: If the bytes are no text.

    Example:
        >>> decode("绿茶".encode("gb18030"))
        '绿茶'
    """
    return find_encoding(data, declared=declared).text


def find_encoding(data: bytes, *, declared: str | None = None) -> Decoded:
    """As `decode`, with the name of the encoding.

    Raises:
        LoadError: If the bytes are no text.

    Example:
        >>> find_encoding("绿茶".encode("gb18030"))
        Decoded(text='绿茶', encoding='gb18030')
    """
    text, encoding = _decoded(data, declared)
    return Decoded(_CONTROL.sub(" ", text), encoding)


def clean(text: str) -> str:
    r"""What `decode` makes of control characters, for text in which a format's escapes may have put others.

    Halves of surrogate pairs, which no store can write, become U+FFFD.

    Example:
        >>> clean("tea\0\ud83c")
        'tea \ufffd'
    """
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", text))


def _decoded(data: bytes, declared: str | None) -> tuple[str, str]:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _strictly(data, encoding), encoding.removesuffix("-sig")
    wide = _utf16_without_mark(data)
    if wide is not None:
        return wide
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        if _control_share(data) > 0.3:
            raise LoadError(_BINARY)
        return text, "utf-8"
    found = _damaged_utf8(data) or _as_declared(data, declared) or _east_asian(data) or _by_statistics(data)
    found = found or _japanese_without_kana(data)
    if found is None:
        raise LoadError(_BINARY)
    return found


def _strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as exc:
        msg = (
            f"The file says it is {encoding}, which byte {exc.start} contradicts ({exc.reason}). "
            "Save it again as UTF-8."
        )
        raise LoadError(msg) from exc


def _damaged_utf8(data: bytes) -> tuple[str, str] | None:
    """UTF-8 with a few broken bytes, which become U+FFFD. Other encodings hardly ever form valid sequences."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    wide = len(text) - len(text.encode("ascii", "ignore")) - broken
    return (text, "utf-8") if wide >= 10 * broken else None


# Names that pages use for their own superset, as browsers read them.
_SUPERSETS = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252", "shift_jis": "cp932"}


def _as_declared(data: bytes, declared: str | None) -> tuple[str, str] | None:
    if declared is None:
        return None
    try:
        name = codecs.lookup(declared).name
        name = _SUPERSETS.get(name, name)
        return data.decode(name), name
    except (LookupError, ValueError):  # no encoding, or none of text, or not this one
        return None


def _utf16_without_mark(data: bytes) -> tuple[str, str] | None:
    """UTF-16 text of which every other byte is mostly 0: Latin letters and white space."""
    sample = data[:_SAMPLE]
    if len(sample) < 4 or len(data) % 2:
        return None
    for offset, encoding in ((0, "utf-16-be"), (1, "utf-16-le")):
        high, low = sample[offset::2], sample[1 - offset :: 2]
        if high.count(0) > 0.4 * len(high) and low.count(0) < 0.05 * len(low):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError:
                return None
    return None


def _east_asian(data: bytes) -> tuple[str, str] | None:
    """The text in the East Asian encoding whose everyday characters its double bytes are, else None.

    A text of a few characters is enough, where statistics over bytes guess. Japanese shows by its kana, Korean by
    having nothing but Hangul; what is left and could be Chinese is, simplified before traditional.
    """
    if _control_share(data) >= 0.01:
        return None
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
    """Whether a fifth of the characters are hiragana or full-width katakana, and none is a half-width one.

    Two bytes of Chinese or Korean are two half-width katakana in Shift-JIS.
    """
    wide = [character for character in text if not character.isascii()]
    kana = sum("\u3041" <= character <= "\u30fe" for character in wide)
    halves = sum("\uff61" <= character <= "\uff9f" for character in wide)
    return len(wide) >= 2 and kana >= 0.2 * len(wide) and halves <= 0.1 * len(wide)


def _is_korean(text: str) -> bool:
    """Whether nearly all letters are the syllables of everyday Korean, a tenth of them the most frequent ones.

    Bytes of Chinese are everyday syllables for six of ten characters, but seldom frequent ones.
    """
    letters = [character for character in text if character.isalpha() and not character.isascii()]
    syllables = sum(_lead(character, "euc_kr") in range(0xB0, 0xC9) for character in letters)
    frequent = sum(character in _FREQUENT_SYLLABLES for character in letters)
    return len(letters) >= 2 and syllables >= 0.95 * len(letters) and frequent >= 0.1 * len(letters)


_FREQUENT_SYLLABLES = frozenset("이다는의에을를가은도고하지로한기어사리인나서자해시대과있그니수정")


def _is_simplified(text: str) -> bool:
    """Whether nearly all characters are in GB 2312, the rarer half of it being the exception."""
    wide = [character for character in text if not character.isascii()]
    leads = [_lead(character, "gb2312") for character in wide]
    known = sum(lead in range(0xA1, 0xA4) or lead in range(0xB0, 0xF8) for lead in leads)
    rare = sum(lead >= 0xD8 for lead in leads)
    # Letters with accents stand between plain ones: "Größe" would hold a Chinese character.
    alone = len(_CJK_BETWEEN_LATIN.findall(text))
    most_rare = 1.0 if len(wide) < 5 else 0.5 if len(wide) < 10 else 0.35
    return known >= 0.95 * len(wide) and rare <= most_rare * len(wide) and alone <= 0.2 * len(wide)


def _is_traditional(text: str) -> bool:
    """Whether nearly all characters are Big5's punctuation or its everyday characters."""
    wide = [character for character in text if not character.isascii()]
    known = sum(_lead(character, "big5") in range(0xA1, 0xC7) for character in wide)
    return known >= 0.9 * len(wide)


_CJK_BETWEEN_LATIN = re.compile(r"[A-Za-z][\u4e00-\u9fff][a-z]|[A-Za-z][\u4e00-\u9fff](?![\u3400-\u9fff])(?=[^\w\s]|$)")


def _lead(character: str, encoding: str) -> int:
    """The first byte of a character in an encoding; 0 where it has none there."""
    try:
        return character.encode(encoding)[0]
    except UnicodeEncodeError:
        return 0


def _by_statistics(data: bytes) -> tuple[str, str] | None:
    if _control_share(data) >= 0.01:
        return None
    best = charset_normalizer.from_bytes(data[:_SAMPLE], cp_isolation=_LEGACY).best()
    if best is None:
        return None
    try:
        # The detector takes short Western texts for Central European ones, which share most letters.
        western = data.decode("cp1252") if best.encoding.startswith("cp125") else ""
        if western and _is_western(western):
            return western, "cp1252"
        return data.decode(best.encoding), best.encoding
    except UnicodeDecodeError:
        return None


def _japanese_without_kana(data: bytes) -> tuple[str, str] | None:
    """A list of Japanese names and places in Shift-JIS: everyday kanji, nine of ten, no half-width letter.

    Asked last, since most bytes of Chinese are such kanji as well.
    """
    if _control_share(data) >= 0.01:
        return None
    try:
        text = data.decode("cp932")
    except UnicodeDecodeError:
        return None
    wide = [character for character in text[:_SAMPLE] if not character.isascii()]
    everyday = sum(_lead(character, "cp932") in range(0x81, 0x99) for character in wide)
    halves = sum("\uff61" <= character <= "\uff9f" for character in wide)
    return (text, "cp932") if len(wide) >= 2 and not halves and everyday >= 0.9 * len(wide) else None


_WESTERN = frozenset("àáâãäåæçèéêëíîïñòóôõöøùúûüýÿœßªº€‚„…‘’“”–—«»¡¿©®°§·´\xa0")


def _is_western(text: str) -> bool:
    """Whether all letters beyond ASCII are those of Western European languages."""
    return all(character in _WESTERN for character in set(text.lower()) if not character.isascii())


_BINARY = (
    "The file holds bytes that are text in no known encoding. Give it its right suffix, or save it again as UTF-8."
)


def _control_share(data: bytes) -> float:
    sample = data[:_SAMPLE]
    return (len(sample) - len(sample.translate(None, _CONTROLS))) / max(1, len(sample))
