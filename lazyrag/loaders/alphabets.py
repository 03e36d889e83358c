"""Encodings that bytes alone hardly show: of alphabets in the upper half of a byte, of escapes,
UTF-16 without a mark.

A candidate is judged by its words: whether each is of one script and spelled as that script allows,
and how many letters are frequent ones.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_SAMPLE = 1 << 12


class Guess(NamedTuple):
    """A text, its encoding by Python's name, and how sure that is, from 0 to 1."""

    text: str
    encoding: str
    confidence: float = 1.0


class _Alphabet(NamedTuple):
    """A pattern of well-formed words, and the letters, the most frequent ones first."""

    word: re.Pattern[str]
    letters: str


_FINAL = "ךםןףץ"  # Hebrew letters at the end of a word alone
_CONSONANTS = "бвгджзклмнпрстфхцчшщ"  # after which й does not stand
_ARABIC = "ءآأؤإئابتثجحخدذرزسشصضطظعغفقكلمنهويپچژکگی"
_THAI_TAIL = "\u0e30-\u0e39\u0e45\u0e47-\u0e4d"  # vowels and marks behind or above a consonant
_THAI = rf"(?:[\u0e40-\u0e44]?[\u0e01\u0e02\u0e04\u0e06-\u0e2e][{_THAI_TAIL}]*[\u0e2f\u0e46]?)"
_ALPHABETS = {
    "Cyrillic": _Alphabet(
        re.compile(rf"(?![ьъы])[А-ЯЁЂ-Џ]?(?:[а-яёђ-џґ](?<![{_CONSONANTS}]й))+(?<!ъ)|[А-ЯЁЂ-Џ]+"),
        "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъёіїєўґђјљњћџ",
    ),
    "Greek": _Alphabet(
        re.compile(r"[Α-ΫΆΈΉΊΌΎΏ]?(?:[α-ωά-ώΐΰϊϋ](?<!ς))*[α-ωά-ώΐΰϊϋ]|[Α-Ϋ]+"),
        "αοιετσνηυρπκμλςίόδγάήχθύώέφξζβψϊϋΐΰ",
    ),
    "Hebrew": _Alphabet(
        re.compile(rf"(?:[א-ת](?<![{_FINAL}])[\u05b0-\u05c7]*)*[א-ת][\u05b0-\u05c7]*"),
        "יוהלארתבשמםנעחדקןפכגטצסזךףץ",
    ),
    "Arabic": _Alphabet(
        re.compile(rf"(?:[{_ARABIC}][\u064b-\u0652]*)*[{_ARABIC}ةى][\u064b-\u0652]*"),
        "اليمنوترهبةعدسفكقحجأشصىخطذضغثزظئءإؤآیکپگچژ",
    ),
    "Thai": _Alphabet(
        re.compile(rf"{_THAI}+"), "านรอกเงมยลวดท่ส้ตะปบคิีหัแจใไพำช์ขูุ็ืโซถผึญณธศภฟษฉฝ๊ๆฐ๋ฎฮฬฏฆฒฑฌ"
    ),
}
_CANDIDATES = {
    "cp1251": "Cyrillic", "koi8_r": "Cyrillic", "iso8859_5": "Cyrillic", "cp866": "Cyrillic",
    "cp1253": "Greek", "iso8859_7": "Greek", "cp1255": "Hebrew", "cp862": "Hebrew",
    "cp1256": "Arabic", "iso8859_6": "Arabic", "cp874": "Thai",
}  # fmt: skip
_FOREIGN = re.compile(
    r"[^\W\d_]+(?:[^\W\d_]|[\u05b0-\u05c7\u064b-\u0652\u0e30-\u0e4e])*|[^\x00-\x7f]"
)
_PUNCTUATION = frozenset("«»“”„‘’–—…•№·°©®\xa0€§،؛؟\u200e\u200f־״׳₪\u0e3f")
_LEAST = 0.35
_FREQUENT = 0.78  # how near to the most frequent letter those of a text are on average
_CAPITALS = 0.6  # a text in capitals is rarer than one in another encoding
_SHARPNESS = 6


def by_alphabet(data: bytes) -> Guess | None:
    """The text in an encoding in which nearly all words are of one alphabet and well spelled; None
    if there is none.
    """
    sample = data[:_SAMPLE]
    high = sum(byte > 0x7F for byte in sample)
    scores: dict[str, float] = {}
    for encoding, script in _CANDIDATES.items():
        text = sample.decode(encoding, "replace")
        score = _score(text, _ALPHABETS[script])
        is_decoded = text.count("\ufffd") <= high // 100
        if score >= _LEAST and is_decoded and (script != "Thai" or _is_thai(text)):
            scores[encoding] = score
    if not scores:
        return None
    best = max(scores, key=scores.__getitem__)
    letters = _letters(sample, best)
    rivals = [score for name, score in scores.items() if _letters(sample, name) != letters]
    text = data.decode(best, "replace")
    if best == "cp1255":
        text = _in_logical_order(text)
    weight = scores[best] ** _SHARPNESS
    share = weight / (weight + max(rivals, default=0.0) ** _SHARPNESS)
    return Guess(text, best, round(scores[best] * share, 2))


def _is_thai(text: str) -> bool:
    """Whether Thai letters carry as many marks as in words: two bytes of Chinese or Japanese are
    Thai letters, too.
    """
    counts = Counter(character for character in text if "\u0e01" <= character <= "\u0e5b")
    letters = counts.total()
    vowels = sum(
        count
        for character, count in counts.items()
        if character in "ะาำเแโใไ" or unicodedata.category(character) == "Mn"
    )
    return (
        letters > 4
        and 0.25 <= vowels / letters <= 0.65
        and max(counts.values()) <= max(2, letters // 4)
    )


def _letters(sample: bytes, encoding: str) -> str:
    return "".join(
        character for character in sample.decode(encoding, "replace") if character.isalpha()
    )


def _score(text: str, alphabet: _Alphabet) -> float:
    """From 0 to 1: the share of letters beyond ASCII in well-formed words, by how usual the letters
    are.
    """
    letters = good = frequent = 0.0
    for match in _FOREIGN.finditer(text):
        word = match[0]
        if word.isascii() or word in _PUNCTUATION:
            continue
        letters += len(word)
        if alphabet.word.fullmatch(word):
            good += len(word) * (_CAPITALS if len(word) > 1 and word.isupper() else 1.0)
            frequent += sum(
                1 - max(0, alphabet.letters.find(letter)) / len(alphabet.letters)
                for letter in word.lower()
            )
    if not letters:
        return 0.0
    return good / letters * min(1.0, frequent / letters / _FREQUENT) ** 3 * (1 - 0.5 / letters)


def _in_logical_order(text: str) -> str:
    """Hebrew text; that of old pages is stored as it stands on paper, so that words begin with
    their last letters.
    """
    words = re.findall("[א-ת]{2,}", text[:_SAMPLE])
    first = sum(word[0] in _FINAL for word in words)
    last = sum(word[-1] in _FINAL for word in words)
    if first <= 2 * last + 1:
        return text
    from lazyrag.loaders.bidi import logical_order, mirrored  # rarely needed

    reordered = []
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        ordered = mirrored([body[at] for at in logical_order(body, right_to_left=True)])
        reordered.append("".join(ordered) + line[len(body) :])
    return "".join(reordered)


_WESTERN = (
    "éèàêçœôâîûùïëüæÿ", "üäöß", "óíáéñúü", "ãçáéóíêõúâàôü", "àèòùéìó", "äöå", "øåæé", "íáðþöæéóýú",
    "ëéïèöüó", "àéèòíóçúïü",
    "éüàäöèßçêôáñóíâîû",  # of texts in several languages
)  # fmt: skip
_CENTRAL = ("łęążśćóńź", "íáéěřčžýšůúťóňď", "áíéčšžúýľôťäňóďŕĺ", "éáöóőüíúű", "čšžćđ", "ăîâşţ")
_LATIN: Mapping[str, tuple[float, Sequence[str]]] = {
    "cp1252": (1.0, _WESTERN),
    "cp1250": (0.3, _CENTRAL),
    "cp1254": (0.3, ("ıüşöğçİâîû",)),
    "cp1257": (0.1, ("ėšųžįąčūę", "āīēšņļūžģķč", "äõöüšž")),
    "iso8859_2": (0.1, _CENTRAL),
    "mac_roman": (0.05, _WESTERN),
    "cp850": (0.02, _WESTERN),
    "cp852": (0.02, _CENTRAL),
}
"""How usual an encoding is, and the letters beyond ASCII of languages that are written in it,
frequent ones first."""
_C1 = re.compile("[\x80-\x9f]")
_UNLIKELY = math.log(0.0005)
_EDGE = math.log(0.05)
_FITTING = math.log(0.02)
LOW = 0.3
"""Confidence of Latin letters of no language."""
_MARKS = _PUNCTUATION | {"¿", "¡", "´", "£"}


_TYPED = re.compile(
    r"""(?<![^\s(\[\-–—"'‘“/>*=:,])[“‘„](?=\S)|(?<=[^\s{|}~])[”“’](?!\w)|(?<!\s\s)’(?=[a-z\d])"""
    r"|(?:(?<=[\w\s,.;:!?)\]\"'’”])|^)[–—](?=[\w\s,.;(\[\"'‘“<]|$)"
    r"|(?<![{|}~])…(?=[\s)”’.!?]|$)|(?<!\w)[•·](?=\s)"
    r"|£(?=\s?\d)|€(?!\w)|€(?=\d)|(?<=[\d\s(])°(?=[CFNSEW]?\b|\W|$)|(?:(?<=[\d\s(])|^)±(?=[\d\s])"
    r"|(?<![a-z])[½¼¾](?![a-z])|§(?=[\d\s])|©(?=[\d\s])|(?<=\w)[®™](?!\w)|(?<=[\dm])[²³](?!\w)"
    r"|(?<=\w)\xa0(?=[^\w\s]|\d)|(?<=[^\w\s]|\d)\xa0(?=\S)",
    re.ASCII | re.MULTILINE,
)


def by_marks(data: bytes) -> Guess | None:
    """English in Windows-1252: no letters beyond ASCII, but quotation marks, dashes and the like
    where they belong.
    """
    sample = data[:_SAMPLE]
    high = sum(byte > 0x7F for byte in sample)
    if len(re.findall(rb"[0-9A-Za-z]", sample)) < 2 * high:
        return None
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    others = [character for character in _TYPED.sub("", text[:_SAMPLE]) if not character.isascii()]
    is_typed = 5 * len(others) <= high and not any(map(str.isalpha, others))
    return Guess(text, "cp1252", 0.9) if is_typed else None


def by_letters(data: bytes) -> Guess | None:
    """The text in the encoding of Latin letters by whose languages its letters are most likely;
    None without letters.

    A naive Bayes classifier: letters are as likely as their rank in a language says (Zipf's law).
    Signs and capitals within a word are unlikely.
    """
    guesses: dict[str, tuple[float, float, str]] = {}
    count = 1
    for encoding, (prior, languages) in _LATIN.items():
        try:
            text = data[:_SAMPLE].decode(encoding)
        except UnicodeDecodeError:
            continue
        if _C1.search(text):
            continue
        letters = [
            (text[at - 1 : at], letter, text[at + 1 : at + 2])
            for at, letter in enumerate(text)
            if letter > "\x7f"
        ]
        if any(letter.isalpha() for _, letter, _ in letters):
            count = len(letters)
            likelihood = max(_log_likelihood(language, letters) for language in languages)
            guesses.setdefault(text, (likelihood + math.log(prior), likelihood / count, encoding))
    if not guesses:
        return None
    best, mean, encoding = max(guesses.values())
    total = sum(math.exp(likelihood - best) for likelihood, _, _ in guesses.values())
    confidence = 1 / total * (1 - 0.2 / count)
    if mean <= _FITTING:
        confidence = min(LOW, confidence)
    try:
        return Guess(data.decode(encoding), encoding, round(confidence, 2))
    except UnicodeDecodeError:
        return None


def _log_likelihood(language: str, letters: Sequence[tuple[str, str, str]]) -> float:
    """How likely letters are in a language, each with the characters beside it."""
    return sum(_likelihood(language, before, letter, after) for before, letter, after in letters)


@functools.cache
def _likelihood(language: str, before: str, letter: str, after: str) -> float:
    if not letter.isalpha():
        is_inside = before.isalpha() and after.isalpha() and letter != "’"
        return _EDGE if letter in _MARKS and not is_inside else _UNLIKELY
    rank = language.find(letter if letter in language else letter.lower())
    if rank < 0 or (
        letter.isupper() and before.isalpha() and (before.islower() or after.islower())
    ):
        return _UNLIKELY
    return -math.log((rank + 1.5) * sum(1 / (at + 1.5) for at in range(len(language))))


_HZ = re.compile(rb"~\{(?:[\x21-\x77][\x21-\x7e])+~\}")


def by_escapes(data: bytes) -> Guess | None:
    """The text of 7-bit encodings with escapes: ISO-2022-JP, ISO-2022-KR, HZ; None without any."""
    names = []
    if b"\x1b$)C" in data:
        names = ["iso2022_kr"]
    elif b"\x1b$" in data or b"\x1b(I" in data:
        names = ["iso2022_jp_2", "iso2022_jp_ext", "iso2022_jp_2004"]
    elif b"~{" in data and data.isascii() and data.count(b"~{") == len(_HZ.findall(data)):
        names = ["hz"]
    for name in names:
        try:
            text = data.decode(name)
        except UnicodeDecodeError:
            continue
        if name != "hz" or _is_everyday(
            [character for character in text if not character.isascii()], "CJK", 0.5
        ):
            return Guess(text, name if name != "iso2022_jp_2" else "iso2022_jp")
    return None


_UNUSUAL_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_JAPANESE = frozenset(["CJK", "HIRAGANA", "KATAKANA"])
_COMMON_SCRIPTS = _JAPANESE | {
    "HANGUL",
    "CYRILLIC",
    "GREEK",
    "HEBREW",
    "ARABIC",
    "THAI",
    "LATIN",
}


def utf16_or_32(data: bytes) -> Guess | None:
    """The text in UTF-16 or UTF-32 without a mark, in any script; None if it does not look like
    one.
    """
    if len(data) % 2 or len(data) < 4:
        return None
    encodings = []
    for name in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        try:
            sample = data[: _SAMPLE // 4 * 4].decode(name)
        except UnicodeDecodeError as exc:
            if exc.start < _SAMPLE - 4 or len(data) < _SAMPLE:
                continue
            sample = data[: exc.start].decode(name)
        if sample and _is_usual(sample):
            encodings.append(name)
    try:
        return (
            Guess(data.decode(encodings[0]), encodings[0], 1 / len(encodings))
            if encodings
            else None
        )
    except UnicodeDecodeError:
        return None


def _is_usual(text: str) -> bool:
    """Whether a text is of everyday letters of one or two scripts."""
    letters = [character for character in text if ord(character) > 0x7F]
    scripts = Counter(filter(_COMMON_SCRIPTS.__contains__, map(_script, letters)))
    if not scripts:
        return False
    main = max(scripts, key=scripts.__getitem__)
    related = {main} if main == "HANGUL" else _JAPANESE | {main}
    in_main = sum(scripts[script] for script in related)
    punctuation = sum(
        letter in _PUNCTUATION or unicodedata.category(letter)[0] in "PNZS" for letter in letters
    )
    if in_main + punctuation < 0.97 * len(letters) or _UNUSUAL_CONTROL.search(text):
        return False
    if main == "HANGUL" or main in _JAPANESE:
        return _is_everyday(letters, main)
    return in_main >= 2


def _script(letter: str) -> str:
    """The first word of a character's name, which is its script."""
    return re.split("[ -]", unicodedata.name(letter, "NONE"), maxsplit=1)[0]


def _is_everyday(letters: list[str], main: str, least: float = 0.85) -> bool:
    """Whether East Asian characters are frequent ones: any bytes are some character in UTF-16."""
    if main == "HANGUL":
        return sum(letter in _SYLLABLES for letter in letters) >= 0.15 * len(letters)
    frequent = sum(_is_common(letter) for letter in letters)
    return frequent >= (least if len(letters) > 4 else 1.0) * len(letters)


_SYLLABLES = frozenset("이다는의에을를가은도고하지로한기어사리인나서자해시대과있그니수정으만한들")


def _is_common(character: str) -> bool:
    """Whether a character is kana, punctuation or in the frequent part of GB 2312, Big5 or
    Shift-JIS.
    """
    if "\u3000" <= character <= "\u30ff" or "\uff01" <= character <= "\uff5e":
        return True
    for encoding, first, last in (
        ("gb2312", 0xB0, 0xD7),
        ("big5", 0xA4, 0xB8),
        ("shift_jis", 0x88, 0x97),
    ):
        try:
            if first <= character.encode(encoding)[0] <= last:
                return True
        except UnicodeEncodeError:
            continue
    return False
