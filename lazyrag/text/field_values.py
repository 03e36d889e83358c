"""The values of fields as a dictionary: what names and metadata say of documents, and which of them
a question means.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema
from lazyrag.data.segment import digest
from lazyrag.text.dates import Period, find_periods
from lazyrag.text.stop_words import STOP_WORDS
from lazyrag.types import JsonObject

NamedValue: TypeAlias = "tuple[str, str]"
"""A field, and a value of it as people see it."""

DERIVED_FIELDS = ("name", "year", "quarter", "date", "file_name")
"""The fields of the dictionary that nobody declares."""
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}$")
_WORDS = re.compile(r"[^\W_\u3400-\u9fff]+(?:[&.][^\W_\u3400-\u9fff]+)*")
_CAMEL = re.compile("(?<=[a-z]{2})(?=[A-Z])")  # no iPhone
_HAN = re.compile("[\u3400-\u9fff]{2,}")
_ASKING = frozenset(
    "can could did do does find give had has have list may me might must my our shall should show"
    " tell us we would you your".split()
)
"""Words that begin questions, and are names in capitals only."""
_MOST_ASKED = 1_000  # characters of a question that are looked at
_MOST_JOINED = 4
_MOST_HAN = 8
_LEAST_PREFIX = 3
_LEAST_CLOSE = 5  # letters of a word that may be misspelt
_MOST_STORED = 200  # letters of a key
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
_MOST_DAYS = 60  # between an event and what reports it

LAST_CHARACTER = "\U0010ffff"
"""Sorted after all others."""

MOST_NAMED = 2_500
"""Maximum number of documents that a name may select."""

EXACT = 1.0
"""Level of a document of the period that a question names."""
ENDING = 0.9
"""Level of the last quarter of the year that a question names."""
WITHIN = 0.5
"""Level of another part of that year, and of documents where the question names no period."""
NEAR = 0.25
"""Level of other years that the question names, and of those beside the last one."""


class DatedFile(NamedTuple):
    """What decides how well a document matches.

    Args:
        name: Its file's name, by which filters find its nodes.
        periods: The years, quarters and days in its name, title and fields.
    """

    name: str
    periods: frozenset[Period]


class DictionaryEntry(NamedTuple):
    """What is known of a document.

    Args:
        file: Its file.
        names: By what a question may name it.
        values: Its values by field.
    """

    file: DatedFile
    names: Mapping[str, NamedValue]
    values: Mapping[str, set[Any]]

    def index_keys(self) -> set[str]:
        """By what it is looked up: its names and values."""
        keys = {name for name in self.names if len(name) <= _MOST_STORED}
        for field, values in self.values.items():
            keys.update(value_key(field, value) for value in values)
        return keys

    def value_of(self, key: str) -> NamedValue | None:
        """The value that a name stands for, or the first that begins with ``"mgm*"``; None where
        the document has changed since the key was looked up.
        """
        if not key.endswith("*"):
            return self.names.get(key)
        matching = (value for name, value in self.names.items() if in_range(key, name))
        return min(matching, default=None)


class Dictionary(Protocol):
    """Looks up documents by number."""

    def documents(self, keys: Collection[str]) -> Mapping[str, Collection[int]]:
        """The documents of each key that has some; more than `MOST_NAMED` may be cut."""

    def similar_names(self, words: Collection[str]) -> Mapping[str, Collection[str]]:
        """For each word the names from which one letter was left out."""

    def entries(self, documents: Collection[int]) -> Mapping[int, DictionaryEntry]:
        """What is known of documents."""

    def files(self, documents: Collection[int]) -> Mapping[int, DatedFile]:
        """The files and periods of documents."""

    def tells_apart(self, count: int) -> bool:
        """Whether so many documents are a selection: at least one, at most `MOST_NAMED`, and at
        most half of all.
        """


@dataclass(frozen=True, slots=True)
class Inference:
    """What a question says about the documents that answer it.

    Args:
        values: The values that it names.
        levels: Names of files by how well their documents match: above 0, at most 1.

    Example:
        >>> str(Inference([("company", "3M"), ("year", "2018")], {}))
        'company: 3M, year: 2018'
    """

    values: Sequence[NamedValue]
    levels: Mapping[float, Collection[str]]

    def __str__(self) -> str:
        return ", ".join(map(": ".join, self.values))


def value_key(field: str, value: object) -> str:
    """The key of a value; for a long one of its digest, see `read_value`.

    Example:
        >>> value_key("year", 2018)
        '=year=2018'
    """
    text = _encode(value)
    if _HALF_PAIR.search(text):  # names of files that are no UTF-8
        text = json.dumps(value, default=str)
    return f"={field}={text if len(text) <= _MOST_STORED else '#' + digest([text])}"


def read_value(key: str, read_entry: Callable[[], DictionaryEntry | None]) -> Any:
    """The value of a key; that of a digest is looked up in the entry of a document, and None if it
    has changed since.
    """
    _, field, text = key.split("=", 2)
    if not text.startswith("#"):
        return json.loads(text)
    entry = read_entry()
    values = entry.values.get(field, ()) if entry else ()
    return next((value for value in values if value_key(field, value) == key), None)


def key_range(key: str) -> tuple[str, str]:
    """The first and the last key that a key stands for: ``"mgm*"`` for all that begin so."""
    return key, f"{key[:-1]}{LAST_CHARACTER}" if key.endswith("*") else key


def in_range(key: str, name: str) -> bool:
    """Whether a key stands for a name."""
    first, last = key_range(key)
    return first <= name <= last


def is_correctable(name: str) -> bool:
    """Whether questions may misspell a name."""
    return len(name) >= _LEAST_CLOSE and name.isalpha() and not _HAN.match(name)


def make_entry(
    identity: str, metadata: Sequence[str], schema: Schema, *, is_text: bool = False
) -> DictionaryEntry:
    """The entry of a document.

    Args:
        identity: Its path or id.
        metadata: Its metadata as JSON; later ones take precedence.
        schema: The fields.
        is_text: Whether it is no file: its id is its file's name, too.
    """
    merged: JsonObject = {"file_name": identity if is_text else identity.rpartition("/")[2]}
    for text in metadata:
        if text != "{}":
            merged.update(json.loads(text))
    values: dict[str, set[Any]] = defaultdict(set, file_name={merged["file_name"]})
    labels = [("name", part) for part in _SUFFIX.sub("", identity).split("/")]
    labels.append(("title", str(merged.get("title", ""))))
    for field in schema.keys() - BUILT_IN_FIELDS:
        value = merged.get(field, schema[field].default_value)
        members = value if isinstance(value, (list, tuple)) else [value]
        # others do not fit their field, which was noted
        members = [member for member in members if isinstance(member, (str, int, float))]
        values[field].update(members)
        labels += [(field, str(member)) for member in members]
    periods: set[Period] = set()
    undated: list[tuple[str, str]] = []
    for field, label in labels:
        named, rest = find_periods(label)
        finer = {year for year, quarter, day in named if quarter or day}
        periods.update(set(named) - set(map(Period, finer)))
        undated.append((field, rest))
    names: dict[str, NamedValue] = {}
    for field, rest in undated:
        words, runs = _split(rest)
        if field == "name":
            values[field].update([text for _, text in _naming_words(words, runs)])
        # keyword search finds the words of undated names as well
        if periods or field in schema:
            for name, text in _names_of(words, runs):
                names.setdefault(name, (field, text))
    for field, text in itertools.chain.from_iterable(map(_values_of, periods)):
        values[field].add(int(text) if field == "year" else text)
    return DictionaryEntry(DatedFile(merged["file_name"], frozenset(periods)), names, values)


def _values_of(period: Period) -> Iterator[NamedValue]:
    """A period as values of fields."""
    year, quarter, day = period
    if year:
        yield "year", str(year)
    if quarter:
        yield "quarter", f"Q{quarter}"
    if day:
        yield "date", day


def _split(label: str) -> tuple[list[str], list[str]]:
    """The words and the Chinese runs of a label."""
    runs = [] if label.isascii() else _HAN.findall(label)
    return _WORDS.findall(_CAMEL.sub(" ", label)), runs


def _naming_words(words: Iterable[str], runs: Iterable[str]) -> Iterator[NamedValue]:
    """The words and runs that may name something, in small letters and as written."""
    for word in words:
        name = word.lower()
        if len(name) > 1 and not name.isdigit() and name not in STOP_WORDS:
            yield name, word
    for run in runs:
        if len(run) <= _MOST_HAN:
            yield run, run


def _names_of(words: Sequence[str], runs: Iterable[str]) -> Iterator[NamedValue]:
    """By what a label may be named, each with the text that people see.

    Names are its words, its first words joined, their initials (``".gm"``), and the beginnings and
    ends of Chinese runs.
    """
    for run in runs:
        for length in range(2, min(len(run), _MOST_HAN) + 1):
            yield run[:length], run
            yield run[-length:], run
    yield from _naming_words(words, ())
    for length in range(2, min(len(words), _MOST_JOINED) + 1):
        first = words[:length]
        shown = " ".join(first)
        yield "".join(first).lower(), shown
        yield "." + "".join([word[0] for word in first]).lower(), shown


def infer(question: str, dictionary: Dictionary) -> Inference | None:
    """What a question names; None for nothing that tells the documents apart."""
    asked, rest = find_periods(question[:_MOST_ASKED])
    named = _find_named(rest, dictionary, is_dated=bool(asked))
    documents: set[int] = set()
    for members in named.values():
        documents = (documents & members) or (documents | members)
    if not named:
        keys = {value_key(*_first_value(period)) for period in asked}
        documents = documents.union(*dictionary.documents(keys).values())
    if not dictionary.tells_apart(len(documents)):
        return None
    first_of = {key: min(members) for key, members in named.items()}
    files = dictionary.files(documents)
    matching = {number: _level(file.periods, asked) for number, file in files.items()}
    entries = dictionary.entries(set(first_of.values()))
    # others may be removed meanwhile
    named_values = [
        entries[number].value_of(key) for key, number in first_of.items() if number in entries
    ]
    values = [value for value in named_values if value is not None]
    if any(matching.values()):
        values += itertools.chain.from_iterable(map(_values_of, sorted(asked)))
    else:  # the question names no period, or none of theirs
        matching = dict.fromkeys(files, WITHIN)
    key_of = {
        number: value_key("file_name", files[number].name)
        for number, level in matching.items()
        if level
    }
    namesakes = dictionary.documents(set(key_of.values()))
    levels: dict[float, set[str]] = defaultdict(set)
    for number, key in key_of.items():
        if documents.issuperset(namesakes.get(key, ())):  # else a filter would find others, too
            level = matching[number] if named else matching[number] / 2
            levels[level].add(files[number].name)
    return Inference(list(dict.fromkeys(values)), levels) if levels else None


def _first_value(period: Period) -> tuple[str, Any]:
    return ("year", period.year) if period.year else ("quarter", f"Q{period.quarter}")


def _find_named(text: str, dictionary: Dictionary, *, is_dated: bool) -> dict[str, set[int]]:
    """The keys that a question names, with their documents; where they overlap, the longest."""
    # in a question in small letters any word may be a name, if there is a date as well
    takes_all = is_dated and text == text.lower()
    spans = [*_spans(text, takes_all=takes_all), *_han_spans(text)]
    forms = {text[slice(*span)]: _forms(text[slice(*span)]) for span in spans}
    documents_of = dict(dictionary.documents(set(itertools.chain.from_iterable(forms.values()))))
    similar = {
        words: [keys[0], *without_a_letter(keys[0])]
        for words, keys in forms.items()
        if _may_be_misspelt(keys) and keys[0] not in documents_of
    }
    names_like = dictionary.similar_names(set(itertools.chain.from_iterable(similar.values())))
    corrected: set[str] = set()
    for words, rests in similar.items():
        close = [name for rest in rests for name in (rest, *sorted(names_like.get(rest, ())))]
        corrections = [name for name in close if name[0] == rests[0][0]]
        forms[words] += corrections
        corrected.update(corrections)
    documents_of.update(dictionary.documents(corrected - documents_of.keys()))
    spans.sort(key=lambda span: span[0] - span[1])  # the longest first
    taken: set[int] = set()
    named: dict[str, set[int]] = {}
    for span in spans:
        for key in forms[text[slice(*span)]]:
            members = set(documents_of.get(key, ()))
            if taken.isdisjoint(range(*span)) and dictionary.tells_apart(len(members)):
                taken.update(range(*span))
                named[key] = members
    return named


def _spans(text: str, *, takes_all: bool) -> Iterator[tuple[int, int]]:
    """Where up to four words may be a name."""
    words = list(_WORDS.finditer(text))
    for number, first in enumerate(words):
        for last in words[number : number + _MOST_JOINED]:
            if takes_all or (_is_name(first[0]) and _is_name(last[0])):
                yield first.start(), last.end()


def _han_spans(text: str) -> Iterator[tuple[int, int]]:
    for run in _HAN.finditer(text):
        for start in range(*run.span()):
            for end in range(start + 2, min(run.end(), start + _MOST_HAN) + 1):
                yield start, end


def _forms(words: str) -> list[str]:
    """The keys that some words may stand for, the surest first."""
    if _HAN.fullmatch(words):
        return [words]
    letters = re.sub(r"[\W_]", "", words)
    small = letters.lower()
    is_common = small in STOP_WORDS or (small in _ASKING and not words.isupper())
    if len(small) < 2 or is_common or small.isdigit():
        return []
    capitals = re.sub("[^A-Z]", "", letters).lower()
    forms = [small]
    if " " not in words and capitals:
        forms.append(f".{capitals}")
    if " " not in words and capitals == small and len(small) >= _LEAST_PREFIX:
        forms.append(f"{small}*")
    return forms


def _may_be_misspelt(keys: Sequence[str]) -> bool:
    return bool(keys) and len(keys[0]) >= _LEAST_CLOSE and not _HAN.match(keys[0])


def _is_name(word: str) -> bool:
    """Whether a word of a question may be of a name: it has a capital letter or a digit."""
    return word != word.lower() or not word.isalpha()


def without_a_letter(word: str) -> list[str]:
    """What a word may be with one letter left out."""
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


def _level(periods: Iterable[Period], asked: Sequence[Period]) -> float:
    """How well a document of some periods answers a question about others."""
    last = max(asked, default=Period(0)).year
    pairs = itertools.product(periods, asked)
    return max((_level_of(period, other, last) for period, other in pairs), default=0.0)


def _level_of(period: Period, asked: Period, last: int) -> float:
    if not asked.year:
        return EXACT * (period.quarter == asked.quarter)
    if asked.day and period.day:
        days = dt.date.fromisoformat(period.day) - dt.date.fromisoformat(asked.day)
        if 0 <= days.days <= _MOST_DAYS:
            return EXACT
    if period.year != asked.year or asked.year < last:
        return NEAR * (period.year == asked.year or abs(period.year - last) == 1)
    if period[1:] == asked[1:]:
        return EXACT
    return ENDING if (period.quarter, *asked[1:]) == (4, 0, "") else WITHIN
