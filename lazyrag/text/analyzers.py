"""Analyzers for English and Chinese: text to index terms. An index stores its analyzer's name; a
query must use it.
"""

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
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_letters
from typing import Any, TypeAlias, cast

from lazyrag.errors import TransformError
from lazyrag.registry import Registry
from lazyrag.text.scripts import (
    FOREIGN_WORDS,
    UNSPACED_LETTERS,
    Language,
    cluster_terms,
    folded,
    is_latin,
    is_unspaced,
    latin_language,
    latin_term,
    mark_letters,
    new_stemmer,
    script_language,
    script_term,
)
from lazyrag.text.sentences import CJK_LETTERS, is_boundary
from lazyrag.text.stop_words import QUESTION_WORDS, STOP_MARK, STOP_WORDS, plain_term
from lazyrag.validation import require, validate_mapping, validate_texts

TermFunction: TypeAlias = Callable[[str], list[str]]
"""The terms of a text, in order."""


@dataclass(frozen=True, slots=True)
class Analyser:
    """A named function from text to terms.

    Args:
        name: Stored with every index.
        terms: From text to its terms, in order and with repetitions.
        identity: Version of its behaviour: an index of another identity is rebuilt. "" takes the
            function's code instead, so that any edit of it counts.
        stop_words: From text to the words that `terms` leaves out, each with a `STOP_MARK` before
            it. They are indexed, too: a query of nothing else searches them.
        query_terms: From a query to its terms, where they are fewer than those of a text with the
            same words; None for `terms`.
    """

    name: str
    terms: TermFunction
    identity: str = ""
    stop_words: TermFunction | None = None
    query_terms: TermFunction | None = None


_ASCII_WORDS = re.compile("[a-z0-9]+(?:'[a-z0-9]+)*")
_CACHED_STEMS = 1 << 18
_CACHED_TEXT = 1 << 16  # characters

_LETTER = rf"[^\W_{CJK_LETTERS}{UNSPACED_LETTERS}]"
# Few texts have a number with thousands separators, and looking for it in the others takes no time.
_MAYBE_GROUPED = re.compile(r",(?<=[0-9],)[0-9]{3}(?![0-9])")
_GROUP_SEPARATOR = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")

# In words such as FY2018, 3M2018, Q42018; and FY18.
_YEAR = re.compile("(?:(?<=[a-z])|(?<=q[1-4])|(?<=h[12]))(?:19|20)[0-9]{2}(?![0-9])")
_FISCAL_YEAR = re.compile("(?<=fy)[0-9]{2}(?![0-9])")

# The capital that begins a part of a name such as FileName or HTTPServer; not of iPhone or PDFs.
_PART_OF_NAME = re.compile("[A-Z](?:(?<=[a-z]{2}.)|(?<=[A-Z].)(?=[a-z]{2}))")
_END_OF_NAME = re.compile("[^A-Za-z]|$")

# Unicode's Default_Ignorable_Code_Point: soft hyphens, zero-width characters, marks of direction,
# variation selectors.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)


@functools.cache
def _word() -> str:
    letters = f"{_LETTER}(?:{_LETTER}|[{mark_letters()}])*"
    return f"{letters}(?:['’]{letters})*|[{UNSPACED_LETTERS}]+"


@functools.cache
def _runs() -> re.Pattern[str]:  # takes 10 ms, and ASCII texts do not need it
    return re.compile(rf"(?P<cjk>[{CJK_LETTERS}]+)|{_word()}")


@functools.cache
def _words() -> re.Pattern[str]:
    return re.compile(_word())


@functools.cache
def _grouped_numbers() -> re.Pattern[str]:
    """Pattern of a number with thousands separators, with what is behind it in the word."""
    return re.compile(
        rf"(?<!{_LETTER})(?<!{_LETTER}['’])([1-9][0-9]{{0,2}})((?:,[0-9]{{3}})+)(?!,?[0-9])"
        rf"({_LETTER}*(?:['’]{_LETTER}+)*)"
    )


def with_joined_numbers(text: str) -> str:
    """A text whose numbers with thousands separators are written without, with all groups but the
    first behind them.

    There are as many words as before, so that the lengths of texts do not change.

    Example:
        >>> with_joined_numbers("$4,200 for 1,234,567km")
        '$4200 200 for 1234567km 234 567km'
    """
    return _grouped_numbers().sub(_join_number, text) if _MAYBE_GROUPED.search(text) else text


def part_words(text: str) -> list[str]:
    """The words of the parts of names in camel case, each name once, in small letters.

    Args:
        text: ASCII, or in composed form.

    Example:
        >>> part_words("An HTTPServer, getFileName")
        ['http', 'server', 'get', 'file', 'name']
    """
    names = []
    end = 0
    for match in _PART_OF_NAME.finditer(text):
        if match.start() < end:  # another part of the last name
            continue
        start = end + len(text[end : match.start()].rstrip(ascii_letters))
        end = _END_OF_NAME.search(text, match.end()).start()  # type: ignore[union-attr]
        names.append(_PART_OF_NAME.sub(r" \g<0>", text[start:end]))
    return " ".join(dict.fromkeys(names)).lower().split()


def _join_number(match: re.Match[str]) -> str:
    first, others, end = match.groups()
    return f"{first}{others.replace(',', '')}{end}{others.replace(',', ' ')}{end}"


@functools.cache
def _ignorable() -> re.Pattern[str]:
    return re.compile(f"[{_IGNORABLE}]+")


class _Terms(dict[str, str]):
    """Cache of the terms of words in normal form, with spaces between those of a word; "" for stop
    words.

    Args:
        language: The language of texts of Latin letters that the words are from.
        is_query: Whether the words are from a query.
    """

    def __init__(self, language: Language, *, is_query: bool) -> None:
        super().__init__()
        self._language = language
        self._is_query = is_query
        self._stem = new_stemmer("en")

    def __missing__(self, word: str) -> str:
        if len(self) >= _CACHED_STEMS:
            self.clear()
        if word.isascii() and self._language == "en":  # the usual case
            terms = "" if word in STOP_WORDS else self._stem(word)
        else:
            terms = self._terms_of(word)
        if not terms.isalpha() and not terms.isdigit():
            terms = " ".join(
                [terms, *_YEAR.findall(terms), *map(_full_year, _FISCAL_YEAR.findall(terms))]
            )
        self[word] = terms
        return terms

    def _terms_of(self, word: str) -> str:
        if not word.isascii():
            if is_unspaced(word):
                return " ".join(cluster_terms(word))
            script = script_language(word)
            if script:
                return script_term(word, script)
        if self._language == "en" or not is_latin(word):
            return "" if word in STOP_WORDS else self._stem_folded(word)
        term = latin_term(word, self._language)
        if self._is_query or not term:
            return term
        # A query of a word or two may not tell its language: its terms are those of English.
        return " ".join(dict.fromkeys([term, self._stem_folded(word)]))

    def _stem_folded(self, word: str) -> str:
        return self._stem(folded(word) if is_latin(word) else word)


def _full_year(digits: str) -> str:
    return f"19{digits}" if digits >= "70" else f"20{digits}"


@dataclass(slots=True)
class _ParsedText:
    """A text's words, and what follows from them.

    Args:
        text: The text.
        words: Those of its words that are not of Chinese, Japanese or Korean letters, in normal
            form, and behind them those in names.
        runs: In order the words without those in names, and runs of Chinese, Japanese or Korean
            letters, each with whether it is such a run; () for ASCII.
        language: See `text_language`.
        pairs: See `pair_terms`.
        terms: The terms of each word, with spaces between them; "" for stop words.
    """

    text: str
    words: list[str]
    runs: Sequence[tuple[str, bool]]
    language: Language
    pairs: list[str]
    terms: list[str]


class _ThreadState(threading.local):
    """Caches of one thread, which need no lock."""

    def __init__(self) -> None:
        self.english = _Terms("en", is_query=False)
        self.parsed = _ParsedText("", [], (), "en", [], [])  # the last text
        self._caches: dict[tuple[Language, bool], _Terms] = {}

    def terms(self, language: Language, *, is_query: bool = False) -> _Terms:
        """The cache of the terms of words in texts, or queries, of a language."""
        if language == "en":
            return self.english
        terms = self._caches.get((language, is_query))
        if terms is None:
            terms = self._caches[language, is_query] = _Terms(language, is_query=is_query)
        return terms


_thread = _ThreadState()


def english_terms(text: str) -> list[str]:
    """Terms of English text: words, case folded, stemmed by Snowball, without stop words.

    Runs of Chinese, Japanese or Korean letters become their characters and pairs of neighbours, so
    that mixed text can be searched. Numbers are terms without their thousands separators, and years
    in words such as FY2018 are terms, too, and the parts of names such as FileName. Invisible
    characters do not count.

    Example:
        >>> english_terms("The teas are drying on 竹架")
        ['tea', 'dri', '竹', '架', '竹架']
        >>> english_terms("$4,200 in FY18")
        ['4200', '200', 'fy18', '2018']
        >>> english_terms("fileNames")
        ['filenam', 'file', 'name']
    """
    return _terms(text, _characters_and_pairs)


def chinese_terms(text: str) -> list[str]:
    """Terms of Chinese text: every character, every pair of neighbours, and jieba's search-mode
    words of three characters and more; without question words. Other words as in English.

    Example:
        >>> chinese_terms("合作社 teas")
        ['合', '作', '社', '合作', '作社', '合作社', 'tea']
    """
    return _terms(text, _characters_pairs_and_words)


def _terms(text: str, cjk_terms: TermFunction, *, is_query: bool = False) -> list[str]:
    parsed = _parse(text)
    terms_of_words = parsed.terms
    if is_query and parsed.language != "en":
        terms_of = _thread.terms(parsed.language, is_query=True)
        terms_of_words = [terms_of[word.replace("’", "'")] for word in parsed.words]
    if text.isascii():
        return " ".join(terms_of_words).split()
    terms = [*parsed.pairs]
    remaining = iter(terms_of_words)
    for run, is_cjk in parsed.runs:
        terms += cjk_terms(run) if is_cjk else next(remaining).split()
    return terms + " ".join(remaining).split()


def _parse(text: str) -> _ParsedText:
    """Parse a text, unless it is the last one of this thread: an index asks for the terms of a text
    and then for its stop words, by one analyser and then by another.
    """
    parsed = _thread.parsed
    if parsed.text == text:
        return parsed
    if text.isascii():
        words = ascii_words(text)
        is_english = FOREIGN_WORDS.isdisjoint(words)
        language = "en" if is_english else text_language(text, words)
        terms_of = _thread.english if is_english else _thread.terms(language)
        words += part_words(text)
        terms = [terms_of[word] for word in words]
        parsed = _ParsedText(text, words, (), language, [], terms)
    else:
        parsed = _parse_unicode(text)
    if len(text) <= _CACHED_TEXT:
        _thread.parsed = parsed
    return parsed


def _parse_unicode(text: str) -> _ParsedText:
    composed = composed_form(text)
    matches = _runs().finditer(with_joined_numbers(composed.casefold()))
    runs = [(match.group(), match.lastgroup is not None) for match in matches]
    words = [run for run, is_cjk in runs if not is_cjk]
    language = text_language(text, words)
    pairs = pair_terms(words, language)
    words += part_words(composed)
    terms_of = _thread.terms(language)
    terms = [terms_of[word.replace("’", "'")] for word in words]
    return _ParsedText(text, words, runs, language, pairs, terms)


WORDS_READ = 200
"""Words of a text that decide on its language."""


def text_language(text: str, words: Sequence[str]) -> Language:
    """The language of a text of Latin letters, see `latin_language`.

    Args:
        text: The text.
        words: Its words, in normal form; the first 200 decide.
    """
    return "en" if is_plainly_english(text) else latin_language(words[:WORDS_READ])


def is_plainly_english(text: str) -> bool:
    """Whether a text needs no look at its words: it has "the" twice and ASCII characters alone."""
    return text.isascii() and text.count(" the ") > 1


def pair_terms(words: Sequence[str], language: Language) -> list[str]:
    """The terms of neighbouring words: in Vietnamese, whose words are often two syllables with a
    space between them.

    Example:
        >>> pair_terms(["trà", "xanh"], "vi"), pair_terms(["green", "tea"], "en")
        (['trà_xanh'], [])
    """
    if language != "vi":
        return []
    return [f"{word}_{following}" for word, following in pairwise(words)]


def ascii_words(text: str) -> list[str]:
    """The words of an ASCII text, in small letters."""
    return _ASCII_WORDS.findall(with_joined_numbers(text).lower())


def normal_words(normal: str) -> list[str]:
    """The words in a text in normal form that are not of Chinese, Japanese or Korean letters."""
    return _words().findall(with_joined_numbers(normal))


def word_terms(word: str, language: Language = "en", *, is_query: bool = False) -> list[str]:
    """The terms of a word in normal form; [] for a stop word.

    Args:
        word: The word.
        language: The language of its text, see `text_language`.
        is_query: Whether the text is a query.

    Example:
        >>> word_terms("fy2018"), word_terms("the")
        (['fy2018', '2018'], [])
    """
    return _thread.terms(language, is_query=is_query)[word.replace("’", "'")].split()


def english_stop_words(text: str) -> list[str]:
    """The stop words of a text, in order and with repetitions, each with a `STOP_MARK`.

    Example:
        >>> english_stop_words("Is it?") == [STOP_MARK + "is", STOP_MARK + "it"]
        True
    """
    parsed = _parse(text)
    pairs = zip(parsed.words, parsed.terms, strict=True)
    return [STOP_MARK + word for word, terms in pairs if not terms]


def chinese_stop_words(text: str, segmenter: Segmenter | None = None) -> list[str]:
    """The stop words and question words of a text, each with a `STOP_MARK`."""
    terms = english_stop_words(text)
    segmenter = segmenter or chinese_segmenter()
    for run, is_cjk in _parse(text).runs:
        if is_cjk:
            words = segmenter.words(run)
            terms += [STOP_MARK + word for word in words if word in QUESTION_WORDS]
    return terms


def _characters_and_pairs(run: str) -> list[str]:
    return [*run, *map(operator.add, run, run[1:])]


def _characters_pairs_and_words(run: str, segmenter: Segmenter | None = None) -> list[str]:
    segmenter = segmenter or chinese_segmenter()
    words = segmenter.words(run)
    if QUESTION_WORDS.isdisjoint(words):  # the usual case
        return [*_characters_and_pairs(run), *longer_terms(words, segmenter)]
    terms = []
    phrase: list[str] = []  # words up to the next question word: no pair crosses it
    for word in words:
        if word in QUESTION_WORDS:
            terms += _characters_and_pairs("".join(phrase))
            phrase = []
        else:
            phrase.append(word)
            terms += longer_terms([word], segmenter)
    return _characters_and_pairs("".join(phrase)) + terms


def longer_terms(words: list[str], segmenter: Segmenter) -> list[str]:
    """Words of three characters and more, each after the dictionary's words of three inside it, as
    jieba's search mode finds them.
    """
    terms: list[str] = []
    for word in words:
        if len(word) > 3:
            triples = [word[start : start + 3] for start in range(len(word) - 2)]
            terms += filter(segmenter.is_word, triples)
        if len(word) > 2:
            terms.append(word)
    return terms


analysers: Registry[Analyser] = Registry("analyser", entry_point_group="lazyrag.analysers")
# Of the words of a query in another language of Latin letters only the stems of that language.
english_query_terms = functools.partial(_terms, cjk_terms=_characters_and_pairs, is_query=True)
chinese_query_terms = functools.partial(
    _terms, cjk_terms=_characters_pairs_and_words, is_query=True
)
# Raise the number when the terms of any text change: users' indexes are rebuilt then, and only
# then.
analysers.register(
    "en", Analyser("en", english_terms, "en/4", english_stop_words, english_query_terms)
)
analysers.register(
    "zh", Analyser("zh", chinese_terms, "zh/4", chinese_stop_words, chinese_query_terms)
)


def query_terms(query: str) -> frozenset[str]:
    """Terms of a query to mark in texts: of Chinese ones the words, as pairs of characters that are
    none mislead.
    """
    terms = chinese_terms(query) or chinese_stop_words(query)
    wide = {term for term in terms if _is_cjk(term)}
    longer = {term for term in wide if len(term) > 1}
    others = frozenset(term for term in terms if not _is_cjk(term))
    return others | (longer.intersection(words(normal_form(query))) or longer or wide)


def content_terms(text: str) -> frozenset[str]:
    """Terms of a text's content words that texts in every language with these words have: of Latin
    letters their English stems, of Chinese words their pairs of neighbouring characters.

    Example:
        >>> sorted(content_terms("Are the teas 4,200 合作社的"))
        ['4200', 'tea', '作社', '合作']
    """
    composed = _GROUP_SEPARATOR.sub("", composed_form(text))
    runs = [*_runs().finditer(composed.casefold())]
    others = [run.group() for run in runs if not run.lastgroup]
    language = text_language(text, others)
    others += part_words(composed)
    terms = []
    for word in others:
        if word_terms(word, language, is_query=True):
            terms += word_terms(word)
    wide = []
    for run in runs:
        wide += words(run.group()) if run.lastgroup else []
    wide = [word for word in wide if word not in QUESTION_WORDS]
    longer = [word for word in wide if len(word) > 1]
    for word in longer or wide:
        terms += map(operator.add, word, word[1:]) if longer else [word]
    return frozenset(terms)


def term_spans(text: str, terms: frozenset[str]) -> list[tuple[int, int, str]]:
    """Spans of a query's terms in a text, in order, each with its term.

    Example:
        >>> term_spans("It costs $4,200.", query_terms("4200"))
        [(10, 15, '4200')]
    """
    normal, starts, ends = _in_normal_form(text)
    matches = [*_words().finditer(normal), *_grouped_numbers().finditer(normal)]
    language = text_language(text, [match.group() for match in matches])
    spans = []
    for match in matches:
        if is_unspaced(match.group()):
            continue
        name = text[starts[match.start()] : ends[match.end() - 1]]
        for word in [*normal_words(match.group()), *part_words(composed_form(name))]:
            matching = terms.intersection(word_terms(word, language) or [STOP_MARK + word])
            spans += [(match.start(), match.end(), term) for term in matching]
    # else they are words: these are cut from runs of letters without spaces
    for term in terms:
        if _is_cjk(term) or is_unspaced(term):
            spans += [
                (match.start(), match.end(), term)
                for match in re.finditer(re.escape(plain_term(term)), normal)
            ]
    return sorted((starts[first], ends[last - 1], term) for first, last, term in spans)


def aligned(text: str, form: Callable[[str], str]) -> tuple[str, Sequence[int], Sequence[int]]:
    r"""A text in some form, and where the piece of each of its characters begins and ends in the
    text.

    Example:
        >>> aligned("cafe\u0301s", normal_form)[1:]
        ([0, 1, 2, 3, 5], [1, 2, 3, 5, 6])
    """
    cuts = [
        at for at in range(len(text)) if is_boundary(text, at) and not _ignorable().match(text, at)
    ]
    pieces = []
    starts = []
    ends = []
    for start, end in pairwise([*cuts, len(text)]):
        piece = form(text[start:end])
        pieces.append(piece)
        starts += [start] * len(piece)
        ends += [end] * len(piece)
    return "".join(pieces), starts, ends


def _in_normal_form(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """A text in normal form, aligned."""
    normal = normal_form(text)
    visible = without_ignorable(text)
    if len(normal) == len(visible) == len(text) and unicodedata.is_normalized(
        "NFKC", _narrowed(visible)
    ):
        return normal, range(len(text)), range(1, len(text) + 1)
    return aligned(text, normal_form)


def _is_cjk(term: str) -> bool:
    return not term.isascii() and re.search(f"[{CJK_LETTERS}]", term) is not None


def register_chinese_analyser(
    name: str,
    *,
    words: Sequence[str] = (),
    synonyms: Mapping[str, Sequence[str]] | None = None,
    replace: bool = False,
) -> Analyser:
    """Register a variant of the analyser ``"zh"``, for ``Retriever(...,
    "bm25_chinese", analyser=name)``.

    Words and synonyms are part of the identity of an index: with others it is built anew.

    Args:
        name: Its name.
        words: Words that the dictionary lacks, of at least two Chinese characters.
        synonyms: A word to a list of others of the same meaning, Chinese or not. Each of them finds
            all of them, and entries that share a word are one. English words are compared by their
            stems: ``"cat"`` means cats, too.
        replace: Replace another analyser of that name.

    Raises:
        ConfigError: If a word is invalid.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> synonyms = {"土豆": ["马铃薯", "potato"]}
        >>> analyser = register_chinese_analyser("zh-food", synonyms=synonyms, replace=True)
        >>> set(analyser.terms("马铃薯")) & set(analyser.terms("Potato soup"))
        {'=土豆'}
    """
    user_words = tuple(dict.fromkeys(validate_texts("words", words)))
    wrong = next(
        (word for word in user_words if len(word) < 2 or not re.fullmatch(_HAN, word)), None
    )
    require(wrong is None, "words", wrong, "words of at least two Chinese characters")
    means: dict[str, str] = {}
    groups = validate_mapping("synonyms", {} if synonyms is None else synonyms)
    for word in validate_texts("The words of synonyms", [*groups]):
        synonyms_of_word = validate_texts(f"synonyms[{word!r}]", groups[word])
        group = {*map(_stemmed, (word, *synonyms_of_word))}
        joined = {means[term] for term in group & means.keys()}
        group.update(word for word, term in means.items() if term in joined)
        means.update(dict.fromkeys(group, min(joined, default=f"={word}")))
    longest_first = map(re.escape, sorted(means, key=len, reverse=True))
    pattern = re.compile(
        "|".join(
            rf"(?<![a-z0-9]){word}(?![a-z0-9])" if word.isascii() else word
            for word in longest_first
        )
    )

    @functools.cache
    def segmenter() -> Segmenter:
        with _lock:
            return _loaded(user_words)

    def with_synonyms(text: str, *, is_query: bool = False) -> list[str]:
        terms = _terms(
            text, lambda run: _characters_pairs_and_words(run, segmenter()), is_query=is_query
        )
        return terms + [means[word] for word in pattern.findall(_stemmed(text))] if means else terms

    query_terms = functools.partial(with_synonyms, is_query=True)

    def stop_words(text: str) -> list[str]:
        return chinese_stop_words(text, segmenter())

    changes = json.dumps([sorted(user_words), sorted(means.items())], ensure_ascii=False)
    identity = f"zh/4+stems+{hashlib.blake2b(changes.encode(), digest_size=16).hexdigest()}"
    analyser = Analyser(name, with_synonyms, identity, stop_words, query_terms)
    return analysers.register(name, analyser, replace=replace)


_MARKS = tuple((mark, unicodedata.normalize("NFKC", mark)) for mark in "，：；！？（）…～")


def without_ignorable(text: str) -> str:
    r"""A text without the characters that nobody sees.

    Example:
        >>> without_ignorable("refri\xadgerator")
        'refrigerator'
    """
    return _ignorable().sub("", text)


def normal_form(text: str) -> str:
    """A text as it is searched: NFKC, case folded, without characters that nobody sees."""
    return composed_form(text).casefold()


def composed_form(text: str) -> str:
    """A text in normal form, but for its capitals."""
    return unicodedata.normalize("NFKC", _narrowed(without_ignorable(text)))


def _narrowed(text: str) -> str:
    # most Chinese texts are normal then, which is seen in a tenth of the time
    for wide, narrow in _MARKS:
        text = text.replace(wide, narrow)
    return text


def _stemmed(text: str) -> str:
    """Normal form of a text with ASCII words as their stems."""
    return _ASCII_WORDS.sub(
        lambda word: (word_terms(word[0]) or [word[0]])[0], normal_form(text).strip()
    )


def term_function(name: str, *, stop_words: bool = False, is_query: bool = False) -> TermFunction:
    """Return the function of a registered analyser, with its results validated.

    Args:
        name: Of the analyser.
        stop_words: Add the text's stop words, as an index does.
        is_query: Return the function for queries.

    Returns:
        A function from text to terms that raises a TransformError if the analyser raises, or
        returns anything but a list of texts.

    Raises:
        NotRegisteredError: If no analyser has the name.
        ConfigError: If the registered object is not an `Analyser`.

    Example:
        >>> term_function("en")("Green teas")
        ['green', 'tea']
    """
    analyser = analysers[name]
    require(
        isinstance(analyser, Analyser),
        f"The analyser {name!r}",
        analyser,
        f"an Analyser({name!r}, function)",
    )
    functions = [(is_query and analyser.query_terms) or analyser.terms]
    if stop_words and analyser.stop_words is not None:
        functions.append(analyser.stop_words)

    def terms_of(text: str) -> list[str]:
        all_terms = []
        for function in functions:
            try:
                terms = function(text)
            except Exception as exc:
                raise TransformError(
                    f"The analyser {name!r} raised {type(exc).__name__}: {exc}"
                ) from exc
            if not isinstance(terms, list) or not {*map(type, terms)} <= {str}:
                raise TransformError(
                    f"The analyser {name!r} must return a list of texts; it returned {terms!r:.60}."
                )
            all_terms += terms
        return all_terms

    return terms_of


def matching_function(name: str, query: str) -> TermFunction:
    """Return the function of an analyser for a query and the texts compared with it.

    It leaves out stop words unless the query has no other term.

    Example:
        >>> terms_of = matching_function("en", "The Who")
        >>> {*terms_of("The Who")} <= {*terms_of("Those are the people who sing")}
        True
    """
    terms_of = term_function(name)
    return terms_of if terms_of(query) else term_function(name, stop_words=True)


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
    return chinese_segmenter().words(text)


def tagged_words(text: str) -> list[tuple[str, str]]:
    """Split Chinese text into words, each with jieba's tag: ``nr`` for a person, ``ns`` for a
    place.

    Example:
        >>> tagged_words("王伟在北京")
        [('王伟', 'nr'), ('在', 'p'), ('北京', 'ns')]
    """
    return chinese_segmenter().tag(text)


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
        self.cut = jieba.cut  # of lines of jieba's Chinese letters
        self._is_han = re.compile(_HAN).fullmatch
        self.is_word = jieba.has_word
        self.frequency = jieba.suggest_freq
        self.tag = jieba.tag

    def words(self, text: str) -> list[str]:
        """See `words`."""
        if self._is_han(text):
            return self.cut(text)
        # It takes more characters for Chinese than jieba does, and would join a rare one to its
        # neighbours.
        pieces = enumerate(re.split(_HAN, text))
        words: list[str] = []
        for at, piece in pieces:
            words += self.cut(piece) if at % 2 else piece
        return words


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
            # jieba's source has escapes that newer Pythons warn about, and it tries the deprecated
            # pkg_resources.
            warnings.simplefilter("ignore")
            import jieba

        jieba.setLogLevel(logging.WARNING)
        # A tokenizer of our own: words that an application adds to jieba's shared one would change
        # our index's terms.
        self._tokenizer: Any = jieba.Tokenizer()
        # jieba itself would cache its dictionary as a marshalled file in the shared temporary
        # folder and trust any file there; reading the dictionary takes half a second and is safe.
        self._tokenizer.FREQ, self._tokenizer.total = self._tokenizer.gen_pfdict(
            self._tokenizer.get_dict_file()
        )
        self._tokenizer.initialized = True
        # How often the dictionary's texts have a word; about 1 for others.
        self.frequency = self._tokenizer.suggest_freq
        self.cut = self.words
        for word in user_words:
            self._tokenizer.add_word(word)

    def words(self, text: str) -> list[str]:
        """See `words`."""
        return cast("list[str]", self._tokenizer.lcut(text))

    def tag(self, text: str) -> list[tuple[str, str]]:
        """See `tagged_words`."""
        import jieba.posseg

        return [tuple(pair) for pair in jieba.posseg.POSTokenizer(self._tokenizer).lcut(text)]

    def is_word(self, text: str) -> bool:
        """Whether the dictionary has a word; beginnings of words have a frequency of 0."""
        return bool(self._tokenizer.FREQ.get(text))


Segmenter: TypeAlias = RustSegmenter | PythonSegmenter


@functools.cache
def chinese_segmenter() -> Segmenter:
    """The segmenter of this process."""
    with _lock:  # of several threads one reads the dictionary
        return _loaded()


@functools.cache
def _loaded(user_words: tuple[str, ...] = ()) -> Segmenter:
    try:
        return RustSegmenter(user_words)
    except (ImportError, TypeError):  # a release of rjieba without, or with another add_word
        return PythonSegmenter(user_words)
