"""Records as text: which of their fields, in which form, and never more text than a file can reasonably give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from lazyrag.data.segment import Place
from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders.base import LoadedFile
from lazyrag.validation import text_list

Pair = tuple[str, str]
"""A field's name and its value, as text. The name of a value that has none is ""."""

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
_INDEX = re.compile(r"\[\d+\]")
_MOST_GROWTH = 20
_ALWAYS_ALLOWED = 10_000_000
_MOST_NAMES = 50


class Selection:
    """Which fields of a record become text, and in which form; what loaders of records share.

    Args:
        fields: Names of the fields to take, in this order; () takes all. The name of a nested field is its path, as in
            ``"address.city"``; a path also takes what lies beneath it, and without its indexes it takes all elements.
        template: A text with names of fields in braces, as in ``"{name} costs {price}"``, instead of ``name: value``.
            A field that a record does not have leaves nothing; braces are doubled to be kept.

    Raises:
        ConfigError: If the fields are no list of names, the template is no text or names no field, or both are given.

    Example:
        >>> Selection(template="{tea} at {degrees} C").text_of([("tea", "Sencha"), ("degrees", "70")], "; ")
        'Sencha at 70 C'
    """

    def __init__(self, fields: Sequence[str] = (), template: str | None = None) -> None:
        self.fields = text_list("fields", fields)
        self.template = template
        named: tuple[str, ...] = ()
        if template is not None:
            named = tuple(match for match in _BRACES.findall(template) if match) if isinstance(template, str) else ()
            if not named:
                msg = f"template is {template!r:.80}; give a text with names of fields in braces, as in '{{name}}'."
                raise ConfigError(msg)
            if self.fields:
                msg = f"fields={list(fields)!r:.80} and template={template!r:.80} are both given; give one of them."
                raise ConfigError(msg)
        self.wanted = (*self.fields, *named)

    def text_of(self, record: Sequence[Pair], joined_by: str) -> str:
        """A record's text, "" where nothing of it was selected.

        Args:
            record: Its fields, in order.
            joined_by: What stands between two fields; a template has its own.
        """
        if self.template is not None:
            filled = _BRACES.sub(lambda found: self._filled(found, record), self.template)
            return filled if any(_belongs(path, name) for path, _ in record for name in self.wanted) else ""
        taken = [one for name in self.fields for one in record if _belongs(one[0], name)] if self.fields else record
        return joined_by.join(f"{name}: {value}" if name else value for name, value in taken)

    @staticmethod
    def _filled(found: re.Match[str], record: Sequence[Pair]) -> str:
        if found[1] is None:
            return found[0][0]  # a doubled brace
        return ", ".join(value for path, value in record if _belongs(path, found[1]))


class SoughtFields:
    """The selected fields that were not met yet, and the names of those that were: a misspelt one is told by them.

    Args:
        selection: What was selected.

    Example:
        >>> sought = SoughtFields(Selection(["tea"]))
        >>> sought.meet(["tea", "degrees"])
        >>> sought.check()
    """

    def __init__(self, selection: Selection) -> None:
        self._missing = dict.fromkeys(selection.wanted)
        self._known: dict[str, None] = {}

    def meet(self, paths: Iterable[str]) -> None:
        """Some fields are there; the name of a value that has none is ""."""
        if not self._missing:
            return
        for path in paths:
            for name in [name for name in self._missing if _belongs(path, name)]:
                del self._missing[name]
            if path and len(self._known) < _MOST_NAMES:
                self._known.setdefault(_INDEX.sub("", path))

    def check(self) -> None:
        """Say which field is missing.

        Raises:
            LoadError: If a selected field was never met.
        """
        for name in self._missing:
            msg = f"No record has the field {name!r}. {known_names(name, self._known)}"
            raise LoadError(msg)


class RecordWriter:
    r"""Collects the texts of a file's records, each with its place.

    Args:
        selection: What becomes text.
        source_length: Characters of the file. The text may be longer, as names are repeated, but not without bound.
        joined_by: What stands between two fields of a record.
        between: What stands between two records.

    Example:
        >>> writer = RecordWriter(Selection(), 100, joined_by="; ", between="\n")
        >>> writer.add([("tea", "Sencha"), ("degrees", "70")], "row", "2")
        >>> writer.loaded({}).text
        'tea: Sencha; degrees: 70'
    """

    def __init__(self, selection: Selection, source_length: int, *, joined_by: str, between: str) -> None:
        self._selection = selection
        self._most = most_text(source_length)
        self._joined_by = joined_by
        self._between = between
        self._texts: list[str] = []
        self._places: list[Place] = []
        self._length = 0
        self._spent = 0  # characters of texts and labels
        self._sought = SoughtFields(selection)

    def add(self, record: Iterable[Pair], kind: str, label: str) -> None:
        """Add a record; blank values, and a record without text, are passed over.

        Raises:
            LoadError: If the text grows far beyond the file.
        """
        filled = []
        length = self._spent
        for name, value in record:
            length += len(name) + len(value) + 1
            # Said before it is made: a long name before each of many short values is the bomb of such formats.
            if length > self._most:
                msg = (
                    f"As text the file would have more than {self._most:,} characters, as it repeats long names or "
                    "values. Shorten or split it."
                )
                raise LoadError(msg)
            if value.strip():
                filled.append((name, value))
        self._sought.meet(path for path, _ in filled)
        text = self._selection.text_of(filled, self._joined_by)
        if not text.strip():
            return
        start = self._length + (len(self._between) if self._texts else 0)
        self._texts.append(text)
        self._places.append(Place(start, start + len(text), kind, label))
        self._length = start + len(text)
        self._spent += len(text) + len(label)

    def loaded(self, metadata: dict[str, Any]) -> LoadedFile:
        """All of it.

        Raises:
            LoadError: If a selected field was in no record.
        """
        self._sought.check()
        return LoadedFile(self._between.join(self._texts), tuple(self._places), metadata)


def most_text(source_length: int) -> int:
    """How many characters of text a file of some characters may give.

    Example:
        >>> most_text(1_000_000)
        20000000
    """
    return max(_ALWAYS_ALLOWED, _MOST_GROWTH * source_length)


def _belongs(path: str, name: str) -> bool:
    """Whether a field is the named one or lies beneath it; a name without indexes stands for all elements."""
    return _starts(path, name) or ("[" in path and _starts(_INDEX.sub("", path), name))


def _starts(path: str, name: str) -> bool:
    return path.startswith(name) and path[len(name) : len(name) + 1] in ("", ".", "[")
