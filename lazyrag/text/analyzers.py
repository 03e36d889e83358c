"""Analyzers for English and Chinese: text to index terms. An index stores its analyzer's name; a query must use it."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import re
import threading
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import Stemmer

from lazyrag.errors import TransformError
from lazyrag.registry import Registry
from lazyrag.text.sentences import CJK_LETTERS
from lazyrag.validation import known_keywords, require, validate_mapping, validate_texts
from lazyrag.values import dataclass


@dataclass(frozen=True, slots=True)
class Analyser:
    """A named function from text to terms.

    Args:
        name: Stored with every index.
        terms: From text to its terms, in order and with repetitions.
        identity: Version of its behaviour: an index of another identity is rebuilt. "" takes the function's code
            instead, so that any edit of it counts.
    """

    name: str
    terms: Callable[[str], list[str]]
    identity: str = ""


# The common words that Lucene's English analyser leaves out, and question words. These are rare in the texts that
# answer, so their idf would be high; leaving them out raises recall@1 on XQuAD from .930 to .936 in English
# and from .931 to .940 in Chinese (benchmarks/recall.py).
_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with how what when where which who whom whose why".split()
)
_QUESTION_WORDS = frozenset(
    "什么 哪 哪个 哪些 哪里 哪儿 哪位 哪种 哪一 谁 多少 如何 怎么 怎样 怎么样 "
    "为什么 为何 何时 何处 何种 是否 吗 呢".split()
)
_ASCII_WORDS = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_CACHED_STEMS = 1 << 18


@functools.cache
def _runs() -> re.Pattern[str]:  # takes 10 ms, and ASCII texts do not need it
    word = rf"[^\W_{CJK_LETTERS}]+(?:['’][^\W_{CJK_LETTERS}]+)*"
    return re.compile(rf"(?P<cjk>[{CJK_LETTERS}]+)|{word}")


class _Stems(dict[str, str]):
    """Cache of the stems of English words; "" for stop words."""

    def __init__(self) -> None:
        super().__init__()
        self._stemmer = Stemmer.Stemmer("english", 0)

    def __missing__(self, word: str) -> str:
        if len(self) >= _CACHED_STEMS:
            self.clear()
        stem = self[word] = "" if word in _STOP_WORDS else str(self._stemmer.stemWord(word))
        return stem


class _ThreadState(threading.local):
    """Snowball's stemmers cannot be shared by threads."""

    def __init__(self) -> None:
        self.stems = _Stems()


_thread = _ThreadState()


def english_terms(text: str) -> list[str]:
    """Terms of English text: words, case folded, stemmed by Snowball, without stop words.

    Runs of Chinese, Japanese or Korean letters become their characters and pairs of neighbours, so that mixed text can
    be searched.

    Example:
        >>> english_terms("The teas are drying on 竹架")
        ['tea', 'dri', '竹', '架', '竹架']
    """
    return _terms(text, _characters_and_pairs)


def chinese_terms(text: str) -> list[str]:
    """Terms of Chinese text: every character, every pair of neighbours, and jieba's search-mode words of three
    characters and more; without question words. Other words as in English.

    Example:
        >>> chinese_terms("合作社 teas")
        ['合', '作', '社', '合作', '作社', '合作社', 'tea']
    """
    return _terms(text, _characters_pairs_and_words)


def _terms(text: str, cjk_terms: Callable[[str], list[str]]) -> list[str]:
    stems = _thread.stems
    if text.isascii():
        return [stem for word in _ASCII_WORDS.findall(text.lower()) if (stem := stems[word])]
    terms = []
    for run in _runs().finditer(_normal(text)):
        if run.lastgroup:
            terms += cjk_terms(run.group())
        elif stem := stems[run.group().replace("’", "'")]:
            terms.append(stem)
    return terms


def _characters_and_pairs(run: str) -> list[str]:
    return [*run, *map(operator.add, run, run[1:])]


def _characters_pairs_and_words(run: str, segmenter: Segmenter | None = None) -> list[str]:
    segmenter = segmenter or _segmenter()
    found = segmenter.words(run)
    if _QUESTION_WORDS.isdisjoint(found):  # the usual case
        return [*_characters_and_pairs(run), *_longer(found, segmenter)]
    terms: list[str] = []
    phrase: list[str] = []  # words up to the next question word: no pair crosses it
    for word in found:
        if word in _QUESTION_WORDS:
            terms += _characters_and_pairs("".join(phrase))
            phrase = []
        else:
            phrase.append(word)
            terms += _longer([word], segmenter)
    return _characters_and_pairs("".join(phrase)) + terms


def _longer(words: list[str], segmenter: Segmenter) -> list[str]:
    """Words of three characters and more, each after those inside it."""
    longer = [word for word in words if len(word) > 2]
    return [term for word in longer for term in (*_inner_words(word, 3, segmenter), word)] if longer else longer


analysers: Registry[Analyser] = Registry("analyser", entry_point_group="lazyrag.analysers")
# Raise the number when the terms of any text change: users' indexes are rebuilt then, and only then.
analysers.register("en", Analyser("en", english_terms, "en/1"))
analysers.register("zh", Analyser("zh", chinese_terms, "zh/1"))


def query_terms(query: str) -> frozenset[str]:
    """Terms of a query to mark in texts: of Chinese ones the words, as pairs of characters that are none mislead."""
    terms = chinese_terms(query)
    wide = {one for one in terms if _is_cjk(one)}
    longer = {one for one in wide if len(one) > 1}
    return frozenset(one for one in terms if not _is_cjk(one)) | (longer.intersection(words(query)) or longer or wide)


def term_spans(text: str, terms: frozenset[str]) -> list[tuple[int, int, str]]:
    """Spans of a query's terms in a text, in order, each with its term."""
    folded = text.casefold()
    folded = folded if len(folded) == len(text) else text.lower() if len(text.lower()) == len(text) else text
    found = [
        (match.start(), match.end(), stem[0])
        for match in re.finditer(r"[^\W_]+(?:['’][^\W_]+)?", text)
        if (stem := english_terms(match.group())) and len(stem) == 1 and stem[0] in terms
    ]
    for term in filter(_is_cjk, terms):
        found += [(match.start(), match.end(), term) for match in re.finditer(re.escape(term), folded)]
    return sorted(found)


def _is_cjk(term: str) -> bool:
    return not term.isascii() and re.search(f"[{CJK_LETTERS}]", term) is not None


@known_keywords
def register_chinese_analyser(
    name: str,
    *,
    words: Sequence[str] = (),
    synonyms: Mapping[str, Sequence[str]] | None = None,
    replace: bool = False,
) -> Analyser:
    """Register a variant of the analyser ``"zh"``, for ``Retriever(..., "bm25_chinese", analyser=name)``.

    Words and synonyms are part of the identity of an index: with others it is built anew.

    Args:
        name: Its name.
        words: Words that the dictionary lacks, of at least two Chinese characters.
        synonyms: A word to a list of others of the same meaning, Chinese or not. Each of them finds all of them, and
            entries that share a word are one. English words are compared by their stems: ``"cat"`` means cats, too.
        replace: Replace another analyser of that name.

    Raises:
        ConfigError: If a word is invalid.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> analyser = register_chinese_analyser("zh-food", synonyms={"土豆": ["马铃薯", "potato"]}, replace=True)
        >>> set(analyser.terms("马铃薯")) & set(analyser.terms("Potato soup")) & set(analyser.terms("土豆"))
        {'=土豆'}
    """
    user_words = tuple(dict.fromkeys(validate_texts("words", words)))
    wrong = next((word for word in user_words if len(word) < 2 or not re.fullmatch(_HAN, word)), None)
    require(wrong is None, "words", wrong, "words of at least two Chinese characters")
    means: dict[str, str] = {}
    groups = validate_mapping("synonyms", {} if synonyms is None else synonyms)
    for word in validate_texts("The words of synonyms", [*groups]):
        group = {_stemmed(one) for one in (word, *validate_texts(f"synonyms[{word!r}]", groups[word]))}
        joined = {means[one] for one in group & means.keys()}
        group.update(one for one, term in means.items() if term in joined)
        means.update(dict.fromkeys(group, min(joined, default=f"={word}")))
    longest_first = map(re.escape, sorted(means, key=len, reverse=True))
    pattern = re.compile(
        "|".join(rf"(?<![a-z0-9]){one}(?![a-z0-9])" if one.isascii() else one for one in longest_first)
    )

    @functools.cache
    def segmenter() -> Segmenter:
        with _lock:
            return _loaded(user_words)

    def terms_of(text: str) -> list[str]:
        terms = _terms(text, lambda run: _characters_pairs_and_words(run, segmenter()))
        return terms + [means[one] for one in pattern.findall(_stemmed(text))] if means else terms

    changes = json.dumps([sorted(user_words), sorted(means.items())], ensure_ascii=False)
    identity = f"zh/1+stems+{hashlib.blake2b(changes.encode(), digest_size=16).hexdigest()}"
    return analysers.register(name, Analyser(name, terms_of, identity), replace=replace)


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _stemmed(text: str) -> str:
    """Normal form of a text with ASCII words as their stems."""
    stems = _thread.stems
    return _ASCII_WORDS.sub(lambda word: stems[word[0]] or word[0], _normal(text).strip())


def term_function(name: str) -> Callable[[str], list[str]]:
    """Return the function of a registered analyser, with its results validated.

    Args:
        name: Of the analyser.

    Returns:
        A function from text to terms that raises a TransformError if the analyser raises, or returns anything but a
        list of texts.

    Raises:
        NotRegisteredError: If no analyser has the name.
        ConfigError: If the registered object is not an `Analyser`.

    Example:
        >>> term_function("en")("Green teas")
        ['green', 'tea']
    """
    analyser = analysers[name]
    require(isinstance(analyser, Analyser), f"The analyser {name!r}", analyser, f"an Analyser({name!r}, function)")

    def terms_of(text: str) -> list[str]:
        try:
            terms = analyser.terms(text)
        except Exception as exc:
            raise TransformError(f"The analyser {name!r} raised {type(exc).__name__}: {exc}") from exc
        if not isinstance(terms, list) or not {*map(type, terms)} <= {str}:
            raise TransformError(f"The analyser {name!r} must return a list of texts; it returned {terms!r:.60}.")
        return terms

    return terms_of


_lock = threading.Lock()
_HAN = "([\u4e00-\u9fd5]+)"  # jieba's Chinese letters; it splits all others into single characters


def words(text: str) -> list[str]:
    """Split a run of Chinese text into words as jieba does.

    Args:
        text: Letters of `lazyrag.text.sentences.CJK_LETTERS` and nothing else.

    Example:
        >>> words("茶叶合作社")
        ['茶叶', '合作社']
    """
    return _segmenter().words(text)


def inner_words(word: str, length: int) -> list[str]:
    """The dictionary's words of a given length inside a longer word, as jieba's search mode finds them.

    Example:
        >>> inner_words("中国科学院", 3)
        ['科学院']
    """
    return _inner_words(word, length, _segmenter())


def _inner_words(word: str, length: int, segmenter: Segmenter) -> list[str]:
    if len(word) <= length:
        return []
    pieces = [word[start : start + length] for start in range(len(word) - length + 1)]
    return list(filter(segmenter.is_word, pieces))


class RustSegmenter:
    """Jieba's algorithm and dictionary in Rust (rjieba).

    Args:
        user_words: Words that are added to the dictionary.

    Example:
        >>> RustSegmenter().words("䲟可当鱼") == PythonSegmenter().words("䲟可当鱼")
        True
    """

    def __init__(self, user_words: Sequence[str] = ()) -> None:
        import rjieba

        jieba = rjieba.Jieba()
        for word in user_words:
            jieba.add_word(word, None, None)
        self._cut = jieba.cut
        self._is_han = re.compile(_HAN).fullmatch
        self.is_word = jieba.has_word

    def words(self, text: str) -> list[str]:
        """See `words`."""
        if self._is_han(text):
            return self._cut(text)
        # It takes more characters for Chinese than jieba does, and would join a rare one to its neighbours.
        pieces = enumerate(re.split(_HAN, text))
        return [word for at, piece in pieces for word in (self._cut(piece) if at % 2 else piece)]


class PythonSegmenter:
    """Jieba itself: the reference, and the fallback without rjieba.

    Args:
        user_words: Words that are added to the dictionary.

    Example:
        >>> PythonSegmenter().is_word("科学院")
        True
    """

    def __init__(self, user_words: Sequence[str] = ()) -> None:
        import logging

        with warnings.catch_warnings():
            # jieba's source has escapes that newer Pythons warn about, and it tries the deprecated pkg_resources.
            warnings.simplefilter("ignore")
            import jieba

        jieba.setLogLevel(logging.WARNING)
        # A tokenizer of our own: words that an application adds to jieba's shared one would change our index's terms.
        self._tokenizer: Any = jieba.Tokenizer()
        # jieba itself would cache its dictionary as a marshalled file in the shared temporary folder and trust any file
        # there; reading the dictionary takes half a second and is safe.
        self._tokenizer.FREQ, self._tokenizer.total = self._tokenizer.gen_pfdict(self._tokenizer.get_dict_file())
        self._tokenizer.initialized = True
        for word in user_words:
            self._tokenizer.add_word(word)

    def words(self, text: str) -> list[str]:
        """See `words`."""
        found: list[str] = self._tokenizer.lcut(text)
        return found

    def is_word(self, text: str) -> bool:
        """Whether the dictionary has a word; beginnings of words have a frequency of 0."""
        return bool(self._tokenizer.FREQ.get(text))


Segmenter: TypeAlias = RustSegmenter | PythonSegmenter


@functools.cache
def _segmenter() -> Segmenter:
    with _lock:  # of several threads one reads the dictionary
        return _loaded()


@functools.cache
def _loaded(user_words: tuple[str, ...] = ()) -> Segmenter:
    try:
        return RustSegmenter(user_words)
    except (ImportError, TypeError):  # a release of rjieba without, or with another add_word
        return PythonSegmenter(user_words)
