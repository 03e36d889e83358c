"""JSON: one value in a file, or one in each line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import clean, decode
from lazyrag.loaders.leaves import Mapping, Value, leaves, too_deep
from lazyrag.loaders.selection import RecordWriter, Selection
from lazyrag.validation import known_arguments


@known_arguments
class JsonLoader:
    r"""Reads JSON: each value becomes a line ``path: value``, such as ``orders[0].tea: Sencha``.

    The elements of a list are records, an empty line between them, and each is a place; so is each name of an object.
    Numbers stay as they are written, names that stand twice stay twice, null and what is empty is left out. A file with
    a value in each line is read as one of `JsonLinesLoader`. The number of records becomes the metadata ``records``.

    Args:
        records: Path to the list of records, such as ``"data.items"``; "" for the whole.
        fields: Paths, from the record on, of the values to take, in this order; () takes all. A path takes what lies
            beneath it, too, and without indexes all elements of lists.
        template: A text with paths in braces, as in ``"{name} costs {price}"``, instead of ``path: value``.

    Raises:
        ConfigError: If records is no text, or fields or template cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.json")
        ...     _ = path.write_text('{"teas": [{"name": "Sencha", "from": {"town": "Uji"}}]}', encoding="utf-8")
        ...     JsonLoader().load(path).text
        ...     JsonLoader("teas", template="{name} of {from.town}").load(path).text
        'teas[0].name: Sencha\nteas[0].from.town: Uji'
        'Sencha of Uji'
    """

    def __init__(self, records: str = "", *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._records = records_path(records)
        self._selection = Selection(fields, template)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        text = decode(path.read_bytes())
        try:
            value = _parsed(text)
        except json.JSONDecodeError as exc:
            if exc.msg == "Extra data" and not self._records:
                return read_lines(text, self._selection)
            msg = f"The JSON breaks at line {exc.lineno}, column {exc.colno} ({exc.msg}). Write it anew."
            raise LoadError(msg) from exc
        return read_value(value, self._selection, len(text), path=self._records)


@known_arguments
class JsonLinesLoader:
    r"""Reads a value of JSON in each line; each is a record and a place, an empty line between them.

    A record becomes lines ``path: value``, as with `JsonLoader`. Their number becomes the metadata ``records``.

    Args:
        fields: Paths of the values to take, in this order; () takes all.
        template: A text with paths in braces, as in ``"{name} costs {price}"``, instead of ``path: value``.

    Raises:
        ConfigError: If fields or template cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.jsonl")
        ...     _ = path.write_text('{"tea": "Sencha", "price": 12.50}', encoding="utf-8")
        ...     JsonLinesLoader().load(path).text
        'tea: Sencha\nprice: 12.50'
    """

    def __init__(self, *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._selection = Selection(fields, template)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return read_lines(decode(path.read_bytes()), self._selection)


def records_path(records: str) -> str:
    """A path to records, checked.

    Raises:
        ConfigError: If it is no text.
    """
    if not isinstance(records, str):
        msg = f"records is {records!r:.80}; give a path such as 'data.items', or '' for the whole."
        raise ConfigError(msg)
    return records


def read_value(value: Value, selection: Selection, length: int, *, path: str = "", kind: str = "item") -> LoadedFile:
    """A nested value as text: the elements of a list as records, else each name of a mapping as a place.

    Args:
        value: What a file holds.
        selection: What becomes text. Where it names fields, a mapping is one record.
        length: Characters of the file.
        path: Path to the records.
        kind: Kind of a record's place.

    Raises:
        LoadError: If there is nothing at the path, or the text grows far beyond the file.
    """
    value = _at(value, path)
    if isinstance(value, Mapping) and not selection.wanted:
        writer = RecordWriter(selection, length, joined_by="\n", between="\n")
        for name, inner in value.items:
            writer.add(leaves(inner, name), "key", clean(name))
        return writer.loaded({})
    writer = RecordWriter(selection, length, joined_by="\n", between="\n\n")
    records = value if isinstance(value, list) else [value]
    for number, record in enumerate(records, start=1):
        writer.add(leaves(record), kind, str(number))
    return writer.loaded({"records": len(records)})


def read_lines(text: str, selection: Selection) -> LoadedFile:
    """A text with a value of JSON in each line.

    Raises:
        LoadError: If a line holds something else; it names the line.
    """
    writer = RecordWriter(selection, len(text), joined_by="\n", between="\n\n")
    count = 0
    for number, line in enumerate(text.split("\n"), start=1):  # the other line ends may stand inside a JSON text
        if not line.strip():
            continue
        try:
            value = _parsed(line)
        except json.JSONDecodeError as exc:
            msg = f"Line {number} is no JSON: it breaks at column {exc.colno} ({exc.msg}). Mend or delete the line."
            raise LoadError(msg) from exc
        writer.add(leaves(value), "line", str(number))
        count += 1
    return writer.loaded({"records": count})


def _parsed(text: str) -> Value:
    try:
        # Numbers stay texts: 1.10 is a version, and a number of a million digits takes an hour to convert.
        value: Value = json.loads(
            text, object_pairs_hook=Mapping, parse_int=str, parse_float=str, parse_constant=str, strict=False
        )
    except RecursionError as exc:
        raise too_deep() from exc
    return value


def _at(value: Value, path: str) -> Value:
    """The value at a path of names."""
    for name in path.split(".") if path else ():
        inner = dict(value.items) if isinstance(value, Mapping) else {}
        if name not in inner:
            msg = f"There is no {name!r} of the path {path!r} to the records. {known_names(name, list(inner)[:50])}"
            raise LoadError(msg)
        value = inner[name]
    return value
