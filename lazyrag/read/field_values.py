"""The values of fields that a reader may see: what a question names of them, and how often each
occurs.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from lazyrag.ledger.field_keys import ValuesRow
from lazyrag.read.catalogue import SCANNED, live_rows, matching_documents
from lazyrag.read.scope import Reader
from lazyrag.text.dates import Period, find_periods
from lazyrag.text.field_values import (
    HAN,
    LEAST_CLOSE,
    MOST_HAN,
    MOST_JOINED,
    WORDS,
    DatedFile,
    DictionaryEntry,
    Inference,
    NamedValue,
    read_value,
    value_key,
    values_of,
    without_a_letter,
)
from lazyrag.text.stop_words import STOP_WORDS

_ASKING = frozenset(
    "can could did do does find give had has have list may me might must my our shall should show"
    " tell us we would you your".split()
)
"""Words that begin questions, and are names in capitals only."""
_MOST_ASKED = 1_000  # characters of a question that are looked at
_LEAST_PREFIX = 3
_MOST_DAYS = 60  # between an event and what reports it
_MOST_NAMED = 2_500  # documents that a name may select
_EXACT = 1.0
"""Level of a document of the period that a question names."""
_ENDING = 0.9
"""Level of the last quarter of the year that a question names."""
_WITHIN = 0.5
"""Level of another part of that year, and of documents where the question names no period."""
_NEAR = 0.25
"""Level of other years that the question names, and of those beside the last one."""
_WITHOUT_NAMES = 0.5
"""Share of a level that is left where the question names only a period."""
_ALL = 2**31 - 1


def infer_values(
    reader: Reader, question: str, choice: Sequence[str] = (), *, is_wide: bool = False
) -> Inference | None:
    """What a question names of the values of visible documents, see `_infer`; None for nothing that
    tells them apart, or if the ledger has no keys of them yet.
    """
    view = reader.indexer.now()
    ledger = reader.indexer.ledger
    if not ledger.field_keys.are_current(view.tree):
        return None
    # else filters may read root nodes, which may have to be built
    transaction = ledger.reading() if reader.scope is None else nullcontext()
    with transaction:
        inference = _infer(question, VisibleDictionary(reader), choice, is_wide=is_wide)
    return inference if inference.levels or (is_wide and inference.values) else None


def count_values(reader: Reader, field: str) -> dict[Any, int]:
    """The values of a field, each with the number of visible documents that have it."""
    view = reader.indexer.now()
    ledger = reader.indexer.ledger
    keys = ledger.field_keys
    ledger.id = ledger.id or ledger.find_row()
    if keys.are_current(view.tree):
        pairs = keys.values(field)
    else:  # nobody has written the file since it was made without keys, or for other fields
        pairs = [
            (value_key(field, value), number)
            for number, entry in keys.entries()
            for value in entry.values.get(field, ())
        ]
    dictionary = VisibleDictionary(reader)
    visible = dictionary.visible({number for _, number in pairs})
    documents_of: dict[str, list[int]] = {}
    for key, number in pairs:
        if number in visible:
            documents_of.setdefault(key, []).append(number)
    counts: Counter[Any] = Counter()
    for key, documents in documents_of.items():
        value = read_value(key, partial(dictionary.entry, documents[0]))
        if value is not None:
            counts[value] += len(documents)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0]))))


class VisibleDictionary:
    """Looks up the documents that a reader may see, by number."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.keys = reader.indexer.ledger.field_keys
        self._view = reader.indexer.last_view

    def documents(self, keys: Collection[str]) -> Mapping[str, Collection[int]]:
        """The documents of each key that has some; more than `_MOST_NAMED` may be cut."""
        # hidden documents must not decide which visible ones are among so many
        limit = _MOST_NAMED + 1 if self._reader.scope is None else _ALL
        documents_of = self.keys.documents(keys, limit)
        visible = self.visible(set().union(*documents_of.values()))
        seen = ((key, documents & visible) for key, documents in documents_of.items())
        return {key: documents for key, documents in seen if documents}

    def rows(self, field: str, value: str | None = None) -> list[ValuesRow]:
        """The rows of the visible documents that have a value of a field, or any value."""
        if not self.keys.are_current(self._view.tree):
            return []
        if value is None:
            numbers = {number for _, number in self.keys.values(field)}
        else:
            key = value_key(field, value)
            numbers = self.keys.documents([key], _ALL).get(key, set())
        return self.keys.rows(self.visible(numbers))

    def entries(self, documents: Collection[int]) -> Mapping[int, DictionaryEntry]:
        """What is known of documents."""
        rows = self.keys.rows(documents)
        return {row.id: row.entry(self.keys.schema) for row in rows}

    def entry(self, document: int) -> DictionaryEntry | None:
        """The entry of a document; None if it was removed."""
        return self.entries([document]).get(document)

    def tells_apart(self, count: int) -> bool:
        """Whether so many documents are a selection: at least one, at most half of all, and at
        most `_MOST_NAMED`.
        """
        return 0 < count <= _MOST_NAMED and self._has_documents(2 * count)

    def visible(self, documents: set[int]) -> set[int]:
        """Those of some documents that may be seen; the state remembers them."""
        scope = self._reader.scope
        if scope is None:
            return documents
        known: dict[int, bool] = self._view.handles.setdefault(("visible", scope), {})
        rows = self.keys.rows(documents - known.keys())
        names = set(matching_documents(self._reader, rows, scope))
        known.update({row.id: row.identity in names for row in rows})
        return {number for number in documents if known.get(number)}

    def _has_documents(self, count: int) -> bool:
        """Whether so many documents may be seen; counts no more of them than it must."""
        scope = self._reader.scope
        if scope is None:
            return count <= self._view.tree.document_count
        handles = self._view.handles
        key = "number of documents", scope
        counted, after = handles.get(key, (0, ""))
        while counted < count and after is not None:
            rows = live_rows(self._reader.indexer.ledger, "identity > ?", after)
            counted += len(matching_documents(self._reader, rows, scope))
            after = rows[-1].identity if len(rows) == SCANNED else None
            handles[key] = counted, after
        return bool(counted >= count)


def _infer(
    question: str, dictionary: VisibleDictionary, choice: Sequence[str], *, is_wide: bool
) -> Inference:
    """What a question names; without levels if nothing tells the documents apart.

    Args:
        question: The question.
        dictionary: Where names and values are looked up.
        choice: Fields and values that are left out, ``"-year: 2018"``, or the only ones,
            ``"name"``. All of none.
        is_wide: Whether all words may be names, also those inside another name.
    """
    is_inferred = _filter_of(choice)
    periods, rest = find_periods(question[:_MOST_ASKED])
    asked = [*filter(any, (_chosen_part(period, is_inferred) for period in periods))]
    # in a question in small letters any word may be a name, if there is a date as well
    takes_all = is_wide or (bool(periods) and rest == rest.lower())
    named = _find_named(rest, dictionary, takes_all=takes_all, is_wide=is_wide)
    entries = dictionary.entries(set(map(min, named.values())))
    values: list[NamedValue] = []
    documents: set[int] = set()
    for key, members in named.items():
        entry = entries.get(min(members))  # it may be removed meanwhile
        value = entry.value_of(key) if entry else None
        if value is not None and is_inferred(value):
            values.append(value)
            documents = (documents & members) or (documents | members)
    weight = 1.0
    if not values:
        weight = _WITHOUT_NAMES
        keys = {value_key(*next(values_of(period))) for period in asked}
        documents = documents.union(*dictionary.documents(keys).values())
    if not dictionary.tells_apart(len(documents)):
        return Inference(values, {})
    files = dictionary.keys.files(documents)
    matching = {number: weight * _level(file.periods, asked) for number, file in files.items()}
    if any(matching.values()):
        values += itertools.chain.from_iterable(map(values_of, sorted(asked)))
    else:  # the question names no period, or none of theirs
        matching = dict.fromkeys(files, weight * _WITHIN)
    levels = _names_by_level(matching, files, documents, dictionary)
    return Inference(list(dict.fromkeys(values)), levels)


def _filter_of(choice: Sequence[str]) -> Callable[[NamedValue], bool]:
    """Whether a value is among a choice, see `_infer`."""
    removed = {text[1:].strip() for text in choice if text.startswith("-")}
    only = {text for text in choice if not text.startswith("-")}

    def is_chosen(value: NamedValue) -> bool:
        names = {value[0], f"{value[0]}: {value[1]}"}
        return names.isdisjoint(removed) and (not only or not names.isdisjoint(only))

    return is_chosen


def _chosen_part(period: Period, is_chosen: Callable[[NamedValue], bool]) -> Period:
    """What is left of a period without its values that are not chosen."""
    fields = {value[0] for value in values_of(period) if is_chosen(value)}
    day = period.day * ({"year", "date"} <= fields)
    year = period.year * ("year" in fields)
    return Period(year, period.quarter * ("quarter" in fields), day)


def _names_by_level(
    matching: Mapping[int, float],
    files: Mapping[int, DatedFile],
    documents: set[int],
    dictionary: VisibleDictionary,
) -> dict[float, set[str]]:
    """The names of files by the level of their documents, above 0; without those that documents
    beyond `documents` have, too: a filter would find these.
    """
    key_of = {
        number: value_key("file_name", files[number].name)
        for number, level in matching.items()
        if level
    }
    namesakes = dictionary.documents(set(key_of.values()))
    levels: dict[float, set[str]] = defaultdict(set)
    for number, key in key_of.items():
        if documents.issuperset(namesakes.get(key, ())):
            levels[matching[number]].add(files[number].name)
    return levels


def _find_named(
    text: str, dictionary: VisibleDictionary, *, takes_all: bool, is_wide: bool
) -> dict[str, set[int]]:
    """The keys that a question names, with their documents, the longest first; see `_infer`."""
    spans = [*_spans(text, takes_all=takes_all), *_han_spans(text)]
    forms = {text[slice(*span)]: _forms(text[slice(*span)]) for span in spans}
    documents_of = dict(dictionary.documents(set(itertools.chain.from_iterable(forms.values()))))
    similar = {
        words: [keys[0], *without_a_letter(keys[0])]
        for words, keys in forms.items()
        if _may_be_misspelt(keys) and keys[0] not in documents_of
    }
    names_like = dictionary.keys.similar_names(set(itertools.chain.from_iterable(similar.values())))
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
                if not is_wide:
                    taken.update(range(*span))
                named[key] = members
    return named


def _spans(text: str, *, takes_all: bool) -> Iterator[tuple[int, int]]:
    """Where up to four words may be a name."""
    words = list(WORDS.finditer(text))
    for number, first in enumerate(words):
        for last in words[number : number + MOST_JOINED]:
            if takes_all or (_is_name(first[0]) and _is_name(last[0])):
                yield first.start(), last.end()


def _han_spans(text: str) -> Iterator[tuple[int, int]]:
    for run in HAN.finditer(text):
        for start in range(*run.span()):
            for end in range(start + 2, min(run.end(), start + MOST_HAN) + 1):
                yield start, end


def _forms(words: str) -> list[str]:
    """Return the keys that words may name, the most certain first."""
    if HAN.fullmatch(words):
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
    return bool(keys) and len(keys[0]) >= LEAST_CLOSE and not HAN.match(keys[0])


def _is_name(word: str) -> bool:
    """Whether a word of a question may be of a name: it has a capital letter or a digit."""
    return word != word.lower() or not word.isalpha()


def _level(periods: Iterable[Period], asked: Sequence[Period]) -> float:
    """How well a document of some periods answers a question about others."""
    last = max(asked, default=Period(0)).year
    pairs = itertools.product(periods, asked)
    return max((_level_of(period, other, last) for period, other in pairs), default=0.0)


def _level_of(period: Period, asked: Period, last: int) -> float:
    if not asked.year:
        return _EXACT * (period.quarter == asked.quarter)
    if asked.day and period.day:
        days = dt.date.fromisoformat(period.day) - dt.date.fromisoformat(asked.day)
        if 0 <= days.days <= _MOST_DAYS:
            return _EXACT
    if period.year != asked.year or asked.year < last:
        return _NEAR * (period.year == asked.year or abs(period.year - last) == 1)
    if period[1:] == asked[1:]:
        return _EXACT
    return _ENDING if (period.quarter, *asked[1:]) == (4, 0, "") else _WITHIN
