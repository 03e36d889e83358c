"""The values of fields that a reader may see: what a question names, and how often each occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from lazyrag.ledger.tree import View
from lazyrag.read.catalogue import SCANNED, live_rows, matching_documents
from lazyrag.read.scope import Reader
from lazyrag.text.field_values import (
    MOST_NAMED,
    DatedFile,
    DictionaryEntry,
    Inference,
    infer,
    read_value,
    value_key,
)

_ALL = 2**31 - 1


def infer_values(reader: Reader, question: str) -> Inference | None:
    """What a question names of the values of visible documents; None for nothing, or if the ledger
    has no keys of them yet.
    """
    view = reader.indexer.now()
    ledger = reader.indexer.ledger
    if not ledger.field_keys.are_current(view.tree):
        return None
    # else filters may read root nodes, which may have to be built
    transaction = ledger.reading() if reader.scope is None else nullcontext()
    with transaction:
        return infer(question, _VisibleDictionary(reader, view))


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
    dictionary = _VisibleDictionary(reader, view)
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


class _VisibleDictionary:
    """The dictionary of the documents that a reader may see; see `Dictionary`."""

    def __init__(self, reader: Reader, view: View) -> None:
        self._reader = reader
        self._keys = reader.indexer.ledger.field_keys
        self._view = view

    def documents(self, keys: Collection[str]) -> Mapping[str, Collection[int]]:
        """See `Dictionary.documents`."""
        # hidden documents must not decide which visible ones are among so many
        limit = MOST_NAMED + 1 if self._reader.scope is None else _ALL
        documents_of = self._keys.documents(keys, limit)
        visible = self.visible(set().union(*documents_of.values()))
        seen = ((key, documents & visible) for key, documents in documents_of.items())
        return {key: documents for key, documents in seen if documents}

    def similar_names(self, words: Collection[str]) -> Mapping[str, Collection[str]]:
        """See `Dictionary.similar_names`."""
        return self._keys.similar_names(words)

    def entries(self, documents: Collection[int]) -> Mapping[int, DictionaryEntry]:
        """See `Dictionary.entries`."""
        rows = self._keys.rows(documents)
        return {row.id: row.entry(self._keys.schema) for row in rows}

    def files(self, documents: Collection[int]) -> Mapping[int, DatedFile]:
        """See `Dictionary.files`."""
        return self._keys.files(documents)

    def entry(self, document: int) -> DictionaryEntry | None:
        """The entry of a document; None if it was removed."""
        return self.entries([document]).get(document)

    def tells_apart(self, count: int) -> bool:
        """See `Dictionary.tells_apart`."""
        return 0 < count <= MOST_NAMED and self._has_documents(2 * count)

    def visible(self, documents: set[int]) -> set[int]:
        """Those of some documents that may be seen; the state remembers them."""
        scope = self._reader.scope
        if scope is None:
            return documents
        known: dict[int, bool] = self._view.handles.setdefault(("visible", scope), {})
        rows = self._keys.rows(documents - known.keys())
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
