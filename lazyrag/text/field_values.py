"""The values of fields as a dictionary: what names and metadata say of documents."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from lazyrag.data.fields import BUILT_IN_FIELDS, Schema
from lazyrag.data.segment import digest
from lazyrag.text.dates import Period, find_periods, read_edition, replaced_paths, title_key
from lazyrag.text.stop_words import STOP_WORDS
from lazyrag.types import JsonObject

NamedValue: TypeAlias = "tuple[str, Any]"
"""A field, and a value of it."""

DERIVED_FIELDS = ("name", "title", "year", "quarter", "date", "file_name")
"""The fields of the dictionary that nobody declares."""
SERIES = "series of"
REPLACED = "replaced by"
AMENDED = "amended by"
"""No names of fields: by these values documents are found that may supersede another one."""
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}$")
WORDS = re.compile(r"[^\W_\u3400-\u9fff]+(?:[&.][^\W_\u3400-\u9fff]+)*")
_CAMEL = re.compile("(?<=[a-z]{2})(?=[A-Z])")  # no iPhone
HAN = re.compile("[\u3400-\u9fff]{2,}")
MOST_JOINED = 4
MOST_HAN = 8
LEAST_CLOSE = 5  # letters of a word that may be misspelt
_MOST_STORED = 200  # letters of a key
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode

LAST_CHARACTER = "\U0010ffff"
"""Sorted after all others."""


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
        matching = (value for name, value in self.names.items() if name.startswith(key[:-1]))
        return min(matching, default=None)


@dataclass(frozen=True, slots=True)
class Inference:
    """What a question says about the documents that answer it.

    Args:
        values: The values that it names.
        levels: Names of files by how well their documents match: above 0, at most 1.
        note: Who chose the values, where it is not the rules.

    Example:
        >>> str(Inference([("company", "3M"), ("year", "2018")], {}))
        'company: 3M, year: 2018'
    """

    values: Sequence[NamedValue]
    levels: Mapping[float, Collection[str]]
    note: str = ""

    def __str__(self) -> str:
        return ", ".join(self.choices()) + self.note

    def choices(self) -> list[str]:
        """The values as `infer_filters` takes them."""
        return [f"{field}: {value}" for field, value in self.values]


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


def is_correctable(name: str) -> bool:
    """Whether questions may misspell a name."""
    return len(name) >= LEAST_CLOSE and name.isalpha() and not HAN.match(name)


def make_entry(
    identity: str, metadata: JsonObject, schema: Schema, *, is_text: bool = False
) -> DictionaryEntry:
    """The entry of a document.

    Args:
        identity: Its path or id.
        metadata: Its metadata.
        schema: The fields.
        is_text: Whether it is no file: its id is its file's name, too.
    """
    merged = {"file_name": identity if is_text else identity.rpartition("/")[2], **metadata}
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
        if field in ("name", "title"):
            values["name"].update([text for _, text in _naming_words(words, runs)])
        # keyword search finds the words of undated names as well
        if periods or field in schema:
            for name, text in _names_of(words, runs):
                names.setdefault(name, (field, text))
    for field, text in itertools.chain(
        *map(values_of, periods), _other_values(identity, merged, schema)
    ):
        values[field].add(text)
    return DictionaryEntry(DatedFile(merged["file_name"], frozenset(periods)), names, values)


def _other_values(identity: str, metadata: JsonObject, schema: Schema) -> Iterator[NamedValue]:
    """The title, and by what a document is found that may supersede another one."""
    if "title" not in schema and metadata.get("title"):
        yield "title", str(metadata["title"])
    if series := read_edition(identity).series:
        yield SERIES, series
    for beside, path in replaced_paths(metadata.get("supersedes"), identity):
        yield REPLACED, beside
        yield REPLACED, path
    if amended := metadata.get("amends"):
        yield AMENDED, title_key(str(amended).rpartition(", ")[0])


def values_of(period: Period) -> Iterator[NamedValue]:
    """A period as values of fields."""
    year, quarter, day = period
    if year:
        yield "year", year
    if quarter:
        yield "quarter", f"Q{quarter}"
    if day:
        yield "date", day


def _split(label: str) -> tuple[list[str], list[str]]:
    """The words and the Chinese runs of a label."""
    runs = [] if label.isascii() else HAN.findall(label)
    return WORDS.findall(_CAMEL.sub(" ", label)), runs


def _naming_words(words: Iterable[str], runs: Iterable[str]) -> Iterator[NamedValue]:
    """The words and runs that may name something, in small letters and as written."""
    for word in words:
        name = word.lower()
        if len(name) > 1 and not name.isdigit() and name not in STOP_WORDS:
            yield name, word
    for run in runs:
        if len(run) <= MOST_HAN:
            yield run, run


def _names_of(words: Sequence[str], runs: Iterable[str]) -> Iterator[NamedValue]:
    """By what a label may be named, each with the text that people see.

    Names are its words, its first words joined, their initials (``".gm"``), and the beginnings and
    ends of Chinese runs.
    """
    for run in runs:
        for length in range(2, min(len(run), MOST_HAN) + 1):
            yield run[:length], run
            yield run[-length:], run
    yield from _naming_words(words, ())
    for length in range(2, min(len(words), MOST_JOINED) + 1):
        first = words[:length]
        shown = " ".join(first)
        yield "".join(first).lower(), shown
        yield "." + "".join([word[0] for word in first]).lower(), shown


def without_a_letter(word: str) -> list[str]:
    """What a word may be with one letter left out."""
    return [word[:at] + word[at + 1 :] for at in range(len(word))]
