"""Terms of words in other scripts and languages than English and Chinese.

Words of Greek, Cyrillic, Arabic and Devanagari are stemmed by Snowball for the main language of the
script, words of Latin letters for the language of their text. Runs of Thai, Lao, Burmese and Khmer,
which have no spaces between words, become pairs and triples of letter clusters. Accents are folded,
so that ``Zurich`` finds Zürich.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection
from itertools import chain, filterfalse
from typing import TypeAlias

import Stemmer

Language: TypeAlias = str
"""An ISO 639-1 code."""

UNSPACED_LETTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f"  # Burmese
    "\u1780-\u17d3\u17dd"  # Khmer
)
"""Letters and vowel signs of scripts without spaces between words, as the inside of a character
class.
"""

_SNOWBALL = {
    "ar": "arabic",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "hi": "hindi",
    "it": "italian",
    "nl": "dutch",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "tr": "turkish",
}

# Words without content that tell a language of Latin letters from the others. They are no terms of
# its texts.
_FUNCTION_WORDS = {
    "en": "the of and to in is was what which who how when where why a an for on by with are"
    " were did does do from that as at it this be or not have has can",
    "de": "der die das und ist in zu den von mit nicht ein eine einer eines einem einen dem"
    " des auf für im sich auch als an es wie wer was wann wo warum welche welcher"
    " welches welchem welchen wurde wird war sind bei aus nach um hat oder über durch",
    "es": "el la los las de del que y en un una unos unas es por con para su se no al lo como"
    " más qué quién cuál cuáles cuándo dónde cómo cuántos fue era son o a le sus entre"
    " desde sobre",
    "fr": "le la les des un une et est en du que qui dans pour par sur au aux ce cette ne pas"
    " plus quel quelle où quand comment combien pourquoi son sa ses il elle se avec ou"
    " été",
    "it": "il lo la i gli le di che e un una in per con del della dei non è sono si da come"
    " chi quando dove perché quale quanti",
    "nl": "de het een en van in is op te dat die met voor niet aan zijn wat wie waar wanneer"
    " hoe welke er door naar",
    "pt": "a o as os de do da dos das que e em um uma para não por se no na qual quem quando"
    " onde como quantos foi são ou",
    "ro": "și în de la cu pe o un a al ale ai este sunt care ce din pentru nu mai au fost că"
    " se lui cine când unde cum câte câți cât prin ca sau după între era erau fi fost"
    " avut are sa său sale lor acest această aceste acestui cărui căror ei el dintre"
    " asupra",
    "tr": "ve bir bu için ile de da ne nedir kim kimdir hangi nerede nasıl kaç kaçta olarak"
    " olan mi mı mu mü çok gibi daha en ya ama değil neden idi oldu olduğu tarafından"
    " sonra önce kadar her o ise veya zaman var şey ilk göre arasında",
    "vi": "là và của các những được cho trong một có không với này đó từ đến ở ai gì nào khi"
    " đâu bao nhiêu thế như bị về tại người",
}
# Letters that few other languages of Latin letters have.
_TELLING_LETTERS = {
    "de": "äß",
    "es": "ñ",
    "fr": "œ",
    "pt": "ãõ",
    "ro": "ăîșțşţ",
    "tr": "ğışi\u0307",
    "vi": "ơưđạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}
_SCRIPT_FUNCTION_WORDS = {
    "ar": "في من على إلى عن ما ماذا متى أين كيف كم هل هو هي التي الذي أن إن كان كانت و أو مع"
    " هذا هذه لم لا أي لماذا تم بين",
    "el": "ο η το οι τα του της των τον την και σε με για από είναι που τι ποιος ποια ποιο"
    " ποιοι πότε πού πώς πόσο πόσα πόσες να δεν θα ως στο στη στην στον στα στις ένα μια"
    " ένας κατά",
    "hi": "का के की है हैं में से को और ने पर यह वह था थे थी कि एक भी क्या कौन कब कहाँ कैसे"
    " क्यों किस किसने कितने कितनी सा सी लिए गया हो कर इस उस",
    "ru": "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее"
    " мне было вот от меня о из ему кто когда где какой какая какие какое каким сколько"
    " почему чем был была были это этот для или при",
}

FREQUENT_WORDS = {
    "en": ("the", "of", "and"),
    "zh": ("的",),
    **{language: tuple(words.split()[:3]) for language, words in _SCRIPT_FUNCTION_WORDS.items()},
}
"""Words of most texts in English, and in languages that `main_language` detects by their script."""
# Frequent words that are no function words: their stems are in the indexes.
_FREQUENT_LATIN = {
    "de": "aber anderen beiden damals diese dieser jahre jahren jedoch können mehr neben nur seine"
    " seit sowie später teil unter werden wieder während zwei zwischen zwar",
    "es": "además ambos años cada dos durante ese esta estas este estos forma había hasta mayor"
    " mientras muchos otros parte primera puede también tanto tiene tres",
    "fr": "ainsi ans après aussi autres celui chaque comme deux depuis dont entre fait leur lors"
    " mais même notamment partie pendant peut plusieurs premier sont sous tout trois très",
    "it": "alcuni altri altro anche anni aveva così dopo due durante essere fu furono hanno loro"
    " mentre molti nel nella ogni parte prima primo quando questa questo stato sul tra",
    "nl": "aantal alle andere bij deel deze eerste geen heeft jaar jaren kan later meer na niet ook"
    " onder over sinds tot twee tussen uit veel waren was werd werden worden wordt zich",
    "pt": "além anos após até cada depois dois durante ela ele entre essa esta este foram grande"
    " já mais mas muitos numa outras parte pela pelo pode primeira também tem ter uma",
    "ro": "această ani anul aproape astfel atunci avea cea cel cele cei dar deși dintre două doi"
    " decât fiecare fie fost iar mult mulți parte poate primul timp timpul toate trei",
    "tr": "ancak arasındaki aynı ayrıca ardından bazı birçok bunun büyük diğer dönemde edildi"
    " eden etti ettiği fakat iki ilgili kabul kısa neden olur oluşan özellikle rağmen"
    " sadece yaptığı yer yeni yılında yüksek",
    "vi": "bắt biết cao chỉ cùng đã đang đầu hai hơn làm lại lên lớn mới năm nên nhất nhiều nước"
    " phải qua ra rất sau số sự theo thời trên trước vào việc vùng",
}
_FREQUENT_THAI = "ที่ การ และ ของ ใน เป็น ได้ ความ จาก ให้ มี ว่า"

# What the decomposition of a letter does not give.
_FOLDED_LETTERS = str.maketrans({"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ς": "σ"})
_FOLDED_ARABIC = str.maketrans("أإآٱىةؤئ", "اااايهوي", "\u0640")  # the last stretches words


@functools.cache
def mark_letters() -> str:
    """Combining marks that belong to words, as the inside of a character class."""
    planes = range(0x300, 0x1E00), range(0x20D0, 0x2100), range(0xA66F, 0xAC00)
    marks = [
        chr(code) for plane in planes for code in plane if unicodedata.category(chr(code))[0] == "M"
    ]
    return "".join(marks)


@functools.cache
def _cluster() -> re.Pattern[str]:
    """Pattern of a consonant with the vowels and marks before, above, below and behind it."""
    leading_vowels = "\u0e40-\u0e44\u0ec0-\u0ec4"
    return re.compile(f"[{leading_vowels}]?.[{mark_letters()}\u0e33\u0eb3]*")


@functools.cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{UNSPACED_LETTERS}]")


def is_unspaced(term: str) -> bool:
    """Whether a term is of a script without spaces between words: Thai, Lao, Burmese or Khmer."""
    return not term.isascii() and _unspaced().match(term) is not None


def cluster_terms(run: str) -> list[str]:
    """The pairs and triples of letter clusters of a run of `UNSPACED_LETTERS`; a single cluster as
    it is.

    Example:
        >>> cluster_terms("ชาเขียว")
        ['ชา', 'าเขี', 'เขีย', 'ยว', 'ชาเขี', 'าเขีย', 'เขียว']
    """
    clusters = _cluster().findall(run)
    if len(clusters) == 1:
        return clusters
    following = clusters[1:]
    pairs = map("".join, zip(clusters, following, strict=False))
    triples = map("".join, zip(clusters, following, clusters[2:], strict=False))
    return [*pairs, *triples]


def _languages_of_words() -> dict[str, tuple[Language, ...]]:
    languages: dict[str, tuple[Language, ...]] = {}
    for language, words in _FUNCTION_WORDS.items():
        for word in words.split():
            if len(word) > 1:  # single letters are in texts of every language
                languages[word] = (*languages.get(word, ()), language)
    return languages


_LANGUAGES_OF_WORDS = _languages_of_words()
FOREIGN_WORDS = frozenset(
    word for word, languages in _LANGUAGES_OF_WORDS.items() if languages != ("en",)
)
"""Function words of other languages than English: an ASCII text without them is taken for English.
"""


@functools.cache
def _languages_of_letters() -> dict[str, Language]:
    return {
        letter: language
        for language, letters in _TELLING_LETTERS.items()
        for letter in letters
        if not letter.isascii()
    }


def latin_language(words: Collection[str]) -> Language:
    """The language of a text of Latin letters; ``"en"`` unless another one is certain.

    Two different function words decide, and more than any other language has. Where some letters
    are not ASCII, one is enough if no other language has any.

    Args:
        words: Some of its words, in normal form.

    Example:
        >>> latin_language("wer hat das rad erfunden".split()), latin_language(["door", "handle"])
        ('de', 'en')
    """
    by_word = _LANGUAGES_OF_WORDS
    distinct = set(words)
    votes = Counter(chain.from_iterable(by_word[word] for word in by_word.keys() & distinct))
    is_ascii = "".join(distinct).isascii()
    if not is_ascii:
        by_letter = _languages_of_letters()
        for word in distinct:
            votes.update({by_letter[letter] for letter in by_letter.keys() & set(word)})
    if not votes:
        return "en"
    [(language, most), *others] = votes.most_common(2)
    second = others[0][1] if others else 0
    required = 2 if is_ascii or second else 1
    return language if most >= max(required, second + 1) else "en"


def new_stemmer(language: Language) -> Callable[[str], str]:
    """A function from word to stem by Snowball, which threads cannot share; the word itself where
    Snowball lacks the language.

    Example:
        >>> new_stemmer("en")("teas"), new_stemmer("es")("montañas")
        ('tea', 'montañ')
    """
    if language not in _SNOWBALL:
        return str
    stem: Callable[[str], str] = Stemmer.Stemmer(_SNOWBALL[language], 0).stemWord
    return stem


class _ThreadStemmers(threading.local):
    def __init__(self) -> None:
        self.stemmers: dict[Language, Callable[[str], str]] = {}


_thread = _ThreadStemmers()


def _stem(word: str, language: Language) -> str:
    if language not in _thread.stemmers:
        _thread.stemmers[language] = new_stemmer(language)
    return _thread.stemmers[language](word)


@functools.cache
def _function_words(language: Language) -> frozenset[str]:
    words = _FUNCTION_WORDS.get(language) or _SCRIPT_FUNCTION_WORDS.get(language, "")
    return frozenset(words.split())


def folded(word: str) -> str:
    """A word without accents.

    Example:
        >>> folded("zürich"), folded("straße"), folded("i\u0307stanbul")
        ('zurich', 'straße', 'istanbul')
    """
    letters = unicodedata.normalize("NFKD", word)
    return "".join(filterfalse(unicodedata.combining, letters)).translate(_FOLDED_LETTERS)


def script_language(word: str) -> Language:
    """The main language of the script of a word's first letter; "" for others than Greek, Cyrillic,
    Arabic and Devanagari.
    """
    letter = word[0]
    if "\u0370" <= letter < "\u0400" or "\u1f00" <= letter < "\u2000":
        return "el"
    if "\u0400" <= letter < "\u0530":
        return "ru"
    if "\u0600" <= letter < "\u0780":
        return "ar"
    if "\u0900" <= letter < "\u0980":
        return "hi"
    return ""


def main_language(text: str) -> Language:
    """The language of the script of most letters: ``"zh"``, ``"th"``, or that of `script_language`;
    of Latin letters that of its function words; "" for English and others.

    Example:
        >>> main_language("绿茶 of 武夷山怎么泡？"), main_language("green tea")
        ('zh', '')
        >>> main_language("Wer hat das Rad erfunden?")
        'de'
    """
    beginning = text[:_LETTERS_READ]
    languages = Counter(map(_letter_language, filter(str.isalpha, beginning)))
    language = max(languages, key=languages.__getitem__, default="")
    if language:
        return language
    by_words = latin_language(_LATIN_WORD.findall(beginning.lower()))
    return "" if by_words == "en" else by_words


_LATIN_WORD = re.compile(r"[^\W\d_]+")
_ALL_FUNCTION_WORDS = frozenset(chain.from_iterable(map(str.split, _FUNCTION_WORDS.values())))
_FOREIGN = sorted(_ALL_FUNCTION_WORDS - frozenset(_FUNCTION_WORDS["en"].split()))
FOREIGN_WORD = re.compile(rf"\b(?:{'|'.join(_FOREIGN)})\b", re.IGNORECASE)
"""A function word of another language of Latin letters than English."""


def frequent_terms(language: Language) -> list[str]:
    """Terms of most texts in a language that `main_language` detects, as indexes have them."""
    if language in FREQUENT_WORDS:
        return [*FREQUENT_WORDS[language]]
    if language == "th":
        return [*dict.fromkeys(chain.from_iterable(map(cluster_terms, _FREQUENT_THAI.split())))]
    terms = [latin_term(word, language) for word in _FREQUENT_LATIN[language].split()]
    return [*dict.fromkeys(filter(None, terms))]


LANGUAGES = (*FREQUENT_WORDS, "th", *_FREQUENT_LATIN)
"""The languages whose texts `frequent_terms` finds."""


_LETTERS_READ = 200


def _letter_language(letter: str) -> Language:
    if "\u4e00" <= letter < "\ua000":
        return "zh"
    return "th" if "\u0e01" <= letter < "\u0e80" else script_language(letter)


def is_latin(word: str) -> bool:
    """Whether the first letter of a word is Latin, or a digit."""
    return word[0] < "\u0250" or "\u1e00" <= word[0] < "\u1f00"


def script_term(word: str, language: Language) -> str:
    """The term of a word of Greek, Cyrillic, Arabic or Devanagari; "" for a function word.

    Example:
        >>> script_term("книги", "ru"), script_term("και", "el")
        ('книг', '')
    """
    if word in _function_words(language):
        return ""
    if language == "ar":
        word = "".join(filterfalse(unicodedata.combining, word)).replace("\u0640", "")
        return _stem(word, language).translate(_FOLDED_ARABIC)
    if language == "hi":
        # without the dots of borrowed consonants; both nasal signs are the same
        word = unicodedata.normalize("NFKD", word).replace("\u093c", "").replace("\u0901", "\u0902")
        return _stem(word, language)
    return folded(_stem(word.replace("ё", "е"), language))


def latin_term(word: str, language: Language) -> str:
    """The term of a word in a text of another language of Latin letters than English; "" for a
    function word.

    Example:
        >>> latin_term("häuser", "de"), latin_term("l'eau", "fr"), latin_term("istanbul'un", "tr")
        ('haus', 'eau', 'istanbul')
    """
    if word in _function_words(language):
        return ""
    if language == "tr":
        word = word.partition("'")[0]
    elif language in ("fr", "it"):
        word = word.rpartition("'")[2]
    term = _stem(word, language)
    return term if language == "vi" else folded(term)  # accents are tones in Vietnamese
