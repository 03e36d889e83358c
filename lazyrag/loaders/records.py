"""Records: CSV, JSON and XML loaders, selection of fields, and JSON with line numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, TypeAlias
from xml.parsers import expat

from lazyrag.data.segment import Location
from lazyrag.data.tables import FoundTable, is_header, packed_row
from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders.base import LoadedFile, SourceLoader, reading
from lazyrag.loaders.detect import clean, decode, find_encoding
from lazyrag.text.structure import Value as JsonValue
from lazyrag.text.structure import json_values, xml_elements
from lazyrag.types import JsonObject
from lazyrag.validation import known_arguments, require, validate_boolean, validate_texts

MAX_LOCATED_DEPTH = 50
"""Nesting of located values."""

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class LocatedValue:
    """A value with its line.

    Args:
        value: A dict from text to `LocatedValue`, a list of these, a text, a number, a boolean,
            None.
        line: Its first line, from 1.
    """

    value: Any
    line: int


def located_json(text: str) -> LocatedValue:
    r"""Parse JSON, with the lines of all values.

    Raises:
        ConfigError: If it is not JSON, has a duplicate name, or is nested too deep; the message
            begins with the line.

    Example:
        >>> located_json('{\n"topk": 3}').value["topk"]
        LocatedValue(value=3, line=2)
    """
    try:
        json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as exc:
        raise ConfigError(
            f"line {exc.lineno}: This is not JSON ({exc.msg}, column {exc.colno}). Fix it."
        ) from exc
    except RecursionError as exc:
        raise nested_too_deep(1) from exc
    breaks = [match.start() for match in re.finditer("\n", text)]
    try:
        [value] = json_values(text)
    except ValueError as exc:  # it is JSON, so that only its depth is left
        raise nested_too_deep(1) from exc
    return _located(text, value, breaks, 1)


def nested_too_deep(line: int) -> ConfigError:
    """The error for values nested too deep."""
    return ConfigError(
        f"line {line}: Values are nested more than {MAX_LOCATED_DEPTH} deep. Write them flatter."
    )


def named_twice(name: str, line: int) -> ConfigError:
    """The error for a duplicate name in a mapping."""
    return ConfigError(f"line {line}: {name!r} is given twice. Leave one of them out.")


def _located(text: str, value: JsonValue, breaks: list[int], depth: int) -> LocatedValue:
    """A parsed value, with the lines that end at these positions."""
    line = bisect_right(breaks, value.value) + 1
    if depth > MAX_LOCATED_DEPTH:
        raise nested_too_deep(line)
    if value.kind == "array":
        return LocatedValue(
            [_located(text, child, breaks, depth + 1) for child in value.children], line
        )
    if value.kind != "object":
        return LocatedValue(json.loads(text[value.value : value.end]), line)
    members: dict[str, LocatedValue] = {}
    for child in value.children:
        name, _ = _DECODER.raw_decode(text, child.start)
        if name in members:
            raise named_twice(name, bisect_right(breaks, child.start) + 1)
        members[name] = _located(text, child, breaks, depth + 1)
    return LocatedValue(members, line)


def _no_number(name: str) -> None:
    raise ConfigError(f"line 1: {name} is not a number in JSON. Replace it.")


Pair = tuple[str, str]
"""A field's name and value, as text. The name of a value without one is ""."""

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
_INDEX = re.compile(r"\[\d+\]")
_MAX_GROWTH = 20
_ALWAYS_ALLOWED = 10_000_000
_MAX_NAMES = 50
_STEPS_PER_RECORD = 9


class FieldSelection:
    """The fields of a record that become text, and their form.

    Args:
        fields: Field names, in this order; () for all. A nested field is named by its path, as in
            ``"address.city"``; a path includes everything below it, and without indexes all
            elements of lists.
        template: A text with field names in braces, as in ``"{name} costs {price}"``, instead of
            ``name: value``. A missing field leaves nothing; double braces stay.

    Raises:
        ConfigError: If fields is not a list of names, template is not a text with names, or both
            are given.

    Example:
        >>> selection = FieldSelection(template="{tea} at {degrees} C")
        >>> selection.text_of([("tea", "Sencha"), ("degrees", "70")], "; ")
        'Sencha at 70 C'
    """

    def __init__(self, fields: Sequence[str] = (), template: str | None = None) -> None:
        self.fields = validate_texts("fields", fields)
        self.template = template
        placeholders: list[str] = []
        if template is not None:
            if isinstance(template, str):
                placeholders = list(filter(None, _BRACES.findall(template)))
            require(
                bool(placeholders),
                "template",
                template,
                "a text with field names in braces, as in '{name}'",
            )
            if self.fields:
                raise ConfigError(
                    f"fields={list(fields)!r:.80} and template={template!r:.80} exclude each other."
                    " Pass one of them."
                )
        self.names = (*self.fields, *placeholders)

    def text_of(self, record: Sequence[Pair], joined_by: str) -> str:
        """Format a record; "" if it has none of the selected fields.

        Args:
            record: Its fields, in order.
            joined_by: Separator of fields without a template.
        """
        if self.template is not None:
            if not any(self._is_selected(path) for path, _ in record):
                return ""
            return _BRACES.sub(lambda match: self._filled(match, record), self.template)
        pairs = record
        if self.fields:
            pairs = []
            for name in self.fields:
                pairs += [pair for pair in record if _belongs(pair[0], name)]
        return joined_by.join(f"{name}: {value}" if name else value for name, value in pairs)

    def _is_selected(self, path: str) -> bool:
        return any(_belongs(path, name) for name in self.names)

    @staticmethod
    def _filled(match: re.Match[str], record: Sequence[Pair]) -> str:
        if match[1] is None:
            return match[0][0]  # a double brace
        return ", ".join(value for path, value in record if _belongs(path, match[1]))


class SoughtFields:
    """Finds misspelt field names: those that no record has.

    Args:
        names: The selected names.

    Example:
        >>> sought = SoughtFields(["tea"])
        >>> sought.meet(["tea", "degrees"])
        >>> sought.check()
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = dict.fromkeys(names)
        self.paths: dict[str, None] = {}

    def meet(self, paths: Iterable[str]) -> None:
        """Note the fields of a record."""
        if not self._missing:
            return
        for path in paths:
            for name in [name for name in self._missing if _belongs(path, name)]:
                del self._missing[name]
            if path and len(self.paths) < _MAX_NAMES:
                self.paths.setdefault(_INDEX.sub("", path))

    def check(self) -> None:
        """Check that each name was found.

        Raises:
            LoadError: If no record has one of them.
        """
        for name in self._missing:
            raise LoadError(f"No record has the field {name!r}. {known_names(name, self.paths)}")


_JOINED_AT_ONCE = 1 << 12


class JoinedText:
    r"""A text that grows by pieces, without the memory that each of them takes by itself.

    Args:
        between: Separator of the pieces.

    Example:
        >>> joined = JoinedText("\n")
        >>> joined.add("tea")
        >>> joined.add("rice")
        >>> joined.text()
        'tea\nrice'
    """

    def __init__(self, between: str) -> None:
        self._between = between
        self._text = ""
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Add a piece that is not empty."""
        self._pieces.append(piece)
        if len(self._pieces) >= _JOINED_AT_ONCE:
            self._join()

    def text(self) -> str:
        """The pieces so far."""
        self._join()
        return self._text

    def _join(self) -> None:
        block = self._between.join(self._pieces)
        text = self._text
        self._text = ""  # Python extends a text in place if nothing else refers to it
        if text and block:
            text += self._between
        text += block
        self._text = text
        self._pieces.clear()


class RecordWriter:
    r"""Collects the texts of a file's records, each with its place.

    Args:
        selection: The fields that become text.
        source_length: Characters of the file. The text may be longer, as names are repeated, up to
            a bound.
        joined_by: Separator of fields.
        between: Separator of records.

    Example:
        >>> writer = RecordWriter(FieldSelection(), 100, joined_by="; ", between="\n")
        >>> writer.add([("tea", "Sencha"), ("degrees", "70")], "row", "2")
        >>> writer.loaded({}).text
        'tea: Sencha; degrees: 70'
    """

    def __init__(
        self, selection: FieldSelection, source_length: int, *, joined_by: str, between: str
    ) -> None:
        self._selection = selection
        self._most = most_text(source_length)
        self._joined_by = joined_by
        self._between = between
        self._text = JoinedText(between)
        self._locations: list[Location] = []
        self._length = 0
        self._spent = 0  # characters of texts and labels
        self._sought = SoughtFields(selection.names)
        self.fields = RecordFields()

    def add(self, record: Iterable[Pair], kind: str, label: str) -> None:
        """Add a record. Blank values and records without text are skipped.

        Raises:
            LoadError: If the text is much longer than the file.
        """
        filled = []
        length = self._spent
        reading().spend(_STEPS_PER_RECORD)
        for name, value in record:
            length += len(name) + len(value) + 1
            # Checked before formatting: a long name repeated for many short values is the bomb of
            # such formats.
            if length > self._most:
                problem = (
                    "As text, with its names repeated, the file would have more than"
                    f" {self._most:,} characters"
                )
                raise LoadError(f"{problem}. Shorten long names or values, or split it.")
            if value.strip():
                filled.append((name, value))
        self._sought.meet(path for path, _ in filled)
        text = self._selection.text_of(filled, self._joined_by)
        if not text.strip():
            return
        start = self._length + (len(self._between) if self._length else 0)
        self._text.add(text)
        self._locations.append(Location(start, start + len(text), kind, label))
        self._length = start + len(text)
        self._spent += len(text) + len(label)

    def loaded(self, metadata: JsonObject) -> LoadedFile:
        """The collected text.

        Raises:
            LoadError: If no record has one of the selected fields.
        """
        self._sought.check()
        locations = tuple(self._locations)
        return LoadedFile(self._text.text(), locations, metadata, fields=self.fields.values())


_MAX_VALUES = 10_000


class RecordFields:
    """The values of the fields of records: each name with its value, or with the list of its
    different ones.

    Example:
        >>> fields = RecordFields()
        >>> fields.add([("tea", "Sencha"), ("from", "Uji")])
        >>> fields.add([("tea", "Bancha"), ("from", "Uji")])
        >>> fields.values()
        {'tea': ['Sencha', 'Bancha'], 'from': 'Uji'}
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[str, None]] = {}
        self._lists: set[str] = set()

    def add(self, record: Iterable[tuple[str, str | list[str]]]) -> None:
        """Add the fields of a record; blank values are skipped."""
        for name, value in record:
            values = self._values.setdefault(name, {})
            if isinstance(value, list):
                self._lists.add(name)
            if len(values) >= _MAX_VALUES:
                continue
            for text in value if isinstance(value, list) else [value]:
                if text.strip():
                    values[text] = None

    def add_value(self, value: RecordValue) -> None:
        """Add a mapping; its nested values are skipped."""
        if not isinstance(value, OrderedFields):
            return
        for name, inner in value.items:
            texts = list(map(_leaf, inner)) if isinstance(inner, list) else _leaf(inner)
            if isinstance(texts, str):
                self.add([(name, clean(texts))])
            elif texts and None not in texts:
                self.add([(name, [clean(text) for text in texts if text])])

    def values(self) -> dict[str, str | list[str]]:
        """The values by name, except for those of very many different ones."""
        values = {}
        for name, seen in self._values.items():
            if 0 < len(seen) < _MAX_VALUES:
                texts = list(seen)
                values[name] = texts if len(texts) > 1 or name in self._lists else texts[0]
        return values


def most_text(source_length: int) -> int:
    """Maximum length of the text of a file.

    Example:
        >>> most_text(1_000_000)
        20000000
    """
    return max(_ALWAYS_ALLOWED, _MAX_GROWTH * source_length)


def _belongs(path: str, name: str) -> bool:
    """Whether a field is the named one or below it; a name without indexes means all elements."""
    return _starts(path, name) or ("[" in path and _starts(_INDEX.sub("", path), name))


def _starts(path: str, name: str) -> bool:
    return path.startswith(name) and path[len(name) : len(name) + 1] in ("", ".", "[")


# In this order if several fit equally: a comma may be the decimal mark between semicolons.
_DELIMITERS = "\t;|,"
_DECLARED = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)  # Excel's first line
_SAMPLE = 1 << 16
_SAMPLE_ROWS = 200
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_MAX_UNCLOSED = 1 << 17
"""Characters of a cell with line ends, in a file with an unclosed quotation mark."""


@known_arguments
class CsvLoader:
    r"""Reads a table; each row becomes a line ``header: value; header: value`` and a location.

    Empty cells are skipped, and a line end inside a cell becomes a space. Rows above the header
    stay as they are. The columns' names become the metadata ``columns``, the number of rows
    ``rows``.

    Args:
        delimiter: Between cells; None detects it: tab, semicolon, bar or comma.
        header: Whether there is a header; None detects it, and assumes one if fields are selected.
        fields: Columns to read, in this order; () for all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of
            ``header: value``.

    Raises:
        ConfigError: If the delimiter is not one character, or fields or template are invalid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "prices.csv")
        ...     _ = path.write_text("tea;price\nSencha;12,50\n", encoding="utf-8")
        ...     CsvLoader().load(path).text
        ...     CsvLoader(template="{tea} costs {price}").load(path).text
        'tea: Sencha; price: 12,50'
        'Sencha costs 12,50'
    """

    def __init__(
        self,
        delimiter: str | None = None,
        *,
        header: bool | None = None,
        fields: Sequence[str] = (),
        template: str | None = None,
    ) -> None:
        is_valid = delimiter is None or (
            isinstance(delimiter, str) and len(delimiter) == 1 and delimiter not in '\r\n"'
        )
        require(is_valid, "delimiter", delimiter, "one character, no line end or quotation mark")
        require(
            header in (None, True, False), "header", header, "True, False, or None to detect it"
        )
        self._delimiter = delimiter
        self._header = header
        self._selection = FieldSelection(fields, template)

    load_source = SourceLoader.load

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        decoded = find_encoding(path.read_bytes())
        length = len(decoded.text)
        about = decoded.metadata
        rows = self._rows(decoded.text, "\t" if path.suffix.lower() == ".tsv" else ",")
        del decoded  # the rows keep the text as long as they need it
        sample = list(islice(rows, _SAMPLE_ROWS))
        at = self._header_at([row for _, row in sample])
        header: list[str] = []
        header_number = 0
        if at is not None:
            header_number, names = sample[at]
            header = [_folded(name) for name in names]
        writer = RecordWriter(self._selection, length, joined_by="; ", between="\n")
        body = JoinedText(",")  # of JSON: many small texts take several times as much
        count = 0
        spend = reading().spend
        for number, row in chain(sample, rows):
            cells = tuple(map(_folded, row))
            if number == header_number or not any(cells):
                continue
            count += 1
            spend(1 + len(cells))
            column_names: Sequence[str] = ()
            if number > header_number:
                body.add(packed_row(cells))
                column_names = header[: len(cells)]
            named = zip_longest(column_names, cells, fillvalue="")
            pairs = [(name, cell) for name, cell in named if cell]
            writer.add(pairs, "row", str(number))
            writer.fields.add(pair for pair in pairs if pair[0])
        metadata: JsonObject = {"columns": header} if header else {}
        loaded = writer.loaded({**metadata, "rows": count, **about})
        table = FoundTable(tuple(header), (), int(at is not None))
        packed = body.text()
        tables = (table.location(0, len(loaded.text), packed),) if packed else ()
        return replace(loaded, tables=tables)

    def _rows(self, text: str, usual: str) -> Iterator[tuple[int, list[str]]]:
        """The rows with their numbers from 1, empty ones too, as in a spreadsheet."""
        declared = _DECLARED.match(text)
        delimiter = self._delimiter or (declared[1] if declared else _sniffed(text, usual))
        csv.field_size_limit(_MAX_FIELD)  # the default refuses pages
        lines = (match[0] for match in _LINE.finditer(text))  # a StringIO takes 4 bytes a character
        reader = csv.reader(lines, delimiter=delimiter)
        is_unclosed = text.count('"') % 2 == 1
        line = 0
        for number, row in enumerate(reader, start=1):
            has_breaks = reader.line_num > line + 1
            if is_unclosed and has_breaks and max(map(len, row)) > _MAX_UNCLOSED:
                msg = f"The table cannot be read at line {line + 1} (a cell has no end)."
                raise LoadError(f"{msg} Close its quotation mark.")
            line = reader.line_num
            if number > 1 or not declared:
                yield number, row

    def _header_at(self, sample: list[list[str]]) -> int | None:
        """Index of the header among the first rows; None without one."""
        has_header = self._header
        if has_header is None and self._selection.names:
            has_header = True
        if has_header is False:
            return None
        # A title above a table fills only the first cell.
        [(width, _)] = Counter(_widths(sample)).most_common(1) or [(1, 0)]
        start = int(width > 1)
        for at, row in enumerate(sample):
            if any(map(str.strip, row[start:])):
                return at if has_header or is_header(row, sample[at + 1 :]) else None
        return None


def _folded(cell: str) -> str:
    """A cell's text on one line."""
    if "\n" not in cell and "\r" not in cell:
        return cell.strip()
    return " ".join(line.strip() for line in cell.replace("\r", "\n").split("\n") if line.strip())


def _sniffed(text: str, usual: str) -> str:
    """The delimiter that splits most of the first rows into equally many cells.

    csv.Sniffer goes by the frequency of characters, raises if it fails, and sometimes returns a
    letter.
    """
    best = 0.0
    delimiter = usual
    for candidate in _DELIMITERS:
        share = _regularity(text[:_SAMPLE], candidate)
        if share > best:
            best = share
            delimiter = candidate
    return delimiter


_MAX_FIELD = (1 << 31) - 1  # the largest long of C on Windows


def _regularity(sample: str, delimiter: str) -> float:
    """Share of rows with the most frequent number of cells, 0.0 if that is one."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    try:
        rows = list(islice(reader, _SAMPLE_ROWS))
    except csv.Error:  # reading the file reports it
        return 0.0
    filled = _widths(rows)
    if len(filled) > 2 and len(sample) == _SAMPLE:
        filled.pop()  # it may be cut off
    [(width, times)] = Counter(filled).most_common(1) or [(1, 0)]
    return times / len(filled) if width > 1 else 0.0


def _widths(rows: list[list[str]]) -> list[int]:
    """The numbers of cells of filled rows."""
    return [len(row) for row in rows if any(map(str.strip, row))]


MAX_DEPTH = 200
"""Levels of nesting that are read. Python's own JSON parser ends at about a thousand."""
_MAX_PATH_LENGTH = 10_000
_MAX_UNREAD = 100  # lines in the metadata


@dataclass(frozen=True, slots=True)
class OrderedFields:
    """A mapping of a file, in order, with duplicate names.

    Args:
        items: Pairs (name, value).
    """

    items: list[tuple[str, RecordValue]]


RecordValue: TypeAlias = "str | bool | list[RecordValue] | OrderedFields | None"
"""A nested value. Numbers are texts, as the file spells them; None means no value."""


class TooDeepError(LoadError):
    """Values are nested too deep."""


def too_deep() -> TooDeepError:
    """The error for values nested too deep."""
    return TooDeepError(f"Its values are nested deeper than {MAX_DEPTH} levels. Flatten it.")


def leaves(value: RecordValue, path: str = "") -> Iterator[Pair]:
    """The leaf values with their paths, in order; a list of texts alone is one leaf.

    Args:
        value: Any value.
        path: Its own path.

    Returns:
        Pairs (path, text), with "" for no value; control characters are spaces, as in `decode`.

    Raises:
        LoadError: If it is nested too deep, or names are absurdly long.

    Example:
        >>> tea = OrderedFields([("name", "Sencha"), ("seen", ["Uji", "Kyoto"])])
        >>> list(leaves(OrderedFields([("tea", tea), ("n", [["1"]])])))
        [('tea.name', 'Sencha'), ('tea.seen', 'Uji, Kyoto'), ('n[0]', '1')]
    """
    # A stack of its own: recursion would depend on the caller's stack.
    pending: list[Iterator[tuple[str, RecordValue]]] = [iter([(path, value)])]
    while pending:
        for at, inner in pending[-1]:
            if len(at) > _MAX_PATH_LENGTH:
                raise LoadError(
                    f"A value's path has more than {_MAX_PATH_LENGTH:,} characters. Shorten it."
                )
            leaf = _leaf(inner)
            if leaf is None:
                pending.append(_inside(at, inner))
                break
            yield clean(at), clean(leaf)
        else:
            pending.pop()
        if len(pending) > MAX_DEPTH:
            raise too_deep()


def _leaf(value: RecordValue) -> str | None:
    """The text of a leaf, "" for no value; None if the value is not a leaf."""
    if isinstance(value, str):
        return value
    if isinstance(value, OrderedFields):
        return None if value.items else ""
    if isinstance(value, list):
        if not all(item is None or isinstance(item, (str, bool)) for item in value):
            return None
        return ", ".join(text for item in value if (text := _leaf(item)))
    return "" if value is None else str(value).lower()


def _inside(path: str, value: RecordValue) -> Iterator[tuple[str, RecordValue]]:
    if isinstance(value, OrderedFields):
        yield from (
            (f"{path}.{name}" if path and name else path or name, inner)
            for name, inner in value.items
        )
    elif isinstance(value, list):
        yield from ((f"{path}[{number}]", inner) for number, inner in enumerate(value))


@known_arguments
class JsonLoader:
    r"""Reads JSON: each value becomes a line ``path: value``, such as ``orders[0].tea: Sencha``.

    The elements of a list are records with an empty line between them, and each is a place; so is
    each name of an object. Numbers stay as they are spelled, duplicate names stay, null and empty
    values are skipped. A file with a value in each line is read as by `JsonLinesLoader`. The number
    of records becomes the metadata ``records``.

    Args:
        records: Path to the list of records, such as ``"data.items"``; "" for the complete value.
        fields: Paths within a record to read, in this order; () for all. A path includes everything
            below it, and without indexes all elements of lists.
        template: A text with paths in braces, as in ``"{name} costs {price}"``, instead of
            ``path: value``.

    Raises:
        ConfigError: If records is not a text, or fields or template are invalid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.json")
        ...     teas = '{"teas": [{"name": "Sencha", "from": {"town": "Uji"}}]}'
        ...     _ = path.write_text(teas, encoding="utf-8")
        ...     JsonLoader().load(path).text
        ...     JsonLoader("teas", template="{name} of {from.town}").load(path).text
        'teas[0].name: Sencha\nteas[0].from.town: Uji'
        'Sencha of Uji'
    """

    def __init__(
        self, records: str = "", *, fields: Sequence[str] = (), template: str | None = None
    ) -> None:
        self._records = records_path(records)
        self._selection = FieldSelection(fields, template)

    load_source = SourceLoader.load

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        text = decode(path.read_bytes())
        try:
            value = _parsed(text)
        except json.JSONDecodeError as exc:
            if exc.msg == "Extra data" and not self._records:
                loaded = read_lines(text, self._selection)
                count = sum(1 for line in text.split("\n") if line.strip())
                # at least half of the lines are records
                if count <= 2 * loaded.metadata["records"]:
                    return loaded
            raise LoadError(
                f"The JSON breaks at line {exc.lineno}, column {exc.colno} ({exc.msg}). Fix it."
            ) from exc
        return read_value(value, self._selection, len(text), path=self._records)


@known_arguments
class SelectingLoader:
    """Constructor of loaders of records that take nothing but a selection."""

    def __init__(self, *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._selection = FieldSelection(fields, template)


class JsonLinesLoader(SelectingLoader):
    r"""Reads a JSON value in each line; each is a record and a location, with an empty line between
    them.

    A record becomes lines ``path: value``, as with `JsonLoader`. Their number becomes the metadata
    ``records``; lines that are no JSON or nested too deep are left out and become ``unread_lines``,
    with the reason.

    Args:
        fields: Paths to read, in this order; () for all.
        template: A text with paths in braces, as in ``"{name} costs {price}"``, instead of
            ``path: value``.

    Raises:
        ConfigError: If fields or template are invalid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.jsonl")
        ...     _ = path.write_text('{"tea": "Sencha", "price": 12.50}', encoding="utf-8")
        ...     JsonLinesLoader().load(path).text
        'tea: Sencha\nprice: 12.50'
    """

    load_source = SourceLoader.load

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return read_lines(decode(path.read_bytes()), self._selection)


def records_path(records: str) -> str:
    """Check a path to records.

    Raises:
        ConfigError: If it is not a text.
    """
    require(isinstance(records, str), "records", records, "a path such as 'data.items', or ''")
    return records


def read_value(
    value: RecordValue,
    selection: FieldSelection,
    length: int,
    *,
    path: str = "",
    kind: str = "item",
) -> LoadedFile:
    """Convert a nested value: the elements of a list become records, else each name of a mapping a
    place.

    Args:
        value: The content of a file.
        selection: The fields that become text. If it names fields, a mapping is one record.
        length: Characters of the file.
        path: Path to the records.
        kind: Kind of a record's place.

    Raises:
        LoadError: If there is nothing at the path, or the text is much longer than the file.
    """
    value = _at(value, path)
    records = value if isinstance(value, list) else [value]
    mapping = value if isinstance(value, OrderedFields) and not selection.names else None
    between = "\n\n" if mapping is None else "\n"
    writer = RecordWriter(selection, length, joined_by="\n", between=between)
    for record in records:
        writer.fields.add_value(record)
    if mapping is not None:
        for name, inner in mapping.items:
            writer.add(leaves(inner, name), "key", clean(name))
        return writer.loaded({})
    for number, record in enumerate(records, start=1):
        writer.add(leaves(record), kind, str(number))
    return writer.loaded({"records": len(records)})


def read_lines(text: str, selection: FieldSelection) -> LoadedFile:
    """Read JSON lines. A damaged one is left out, and reported in the metadata ``unread_lines``.

    Raises:
        LoadError: If no line can be read.
    """
    writer = RecordWriter(selection, len(text), joined_by="\n", between="\n\n")
    count = 0
    unread = {}
    # other line ends may be inside a JSON text
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = _parsed(line)
            writer.add(leaves(value), "line", str(number))
            writer.fields.add_value(value)
        except TooDeepError as exc:
            unread[str(number)] = str(exc)
        except json.JSONDecodeError as exc:
            unread[str(number)] = (
                f"It is not JSON: it breaks at column {exc.colno} ({exc.msg}). Fix or delete the"
                " line."
            )
        else:
            count += 1
    if unread and not count:
        first, problem = next(iter(unread.items()))
        raise LoadError(f"No line can be read. Line {first}: {problem}")
    reported = {"unread_lines": dict(islice(unread.items(), _MAX_UNREAD))} if unread else {}
    return writer.loaded({"records": count, **reported})


def _parsed(text: str) -> RecordValue:
    try:
        # Numbers stay texts: 1.10 is a version, and a number of a million digits takes an hour to
        # convert.
        value: RecordValue = json.loads(
            text,
            object_pairs_hook=OrderedFields,
            parse_int=str,
            parse_float=str,
            parse_constant=str,
            strict=False,
        )
    except RecursionError as exc:
        raise too_deep() from exc
    return value


def _at(value: RecordValue, path: str) -> RecordValue:
    """The value at a path of names."""
    for name in path.split(".") if path else ():
        inner = dict(value.items) if isinstance(value, OrderedFields) else {}
        if name not in inner:
            raise LoadError(
                f"There is no {name!r} of the path {path!r} to the records."
                f" {known_names(name, list(inner)[:50])}"
            )
        value = inner[name]
    return value


_DECLARED_ENCODING = re.compile(rb"<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)")


@known_arguments
class XmlLoader:
    r"""Reads XML: each element with text becomes a line ``name: text`` and a location, labelled
    with its XPath.

    An element with text of its own is read together with all elements inside; its text is stripped.
    Its attributes, and those of other elements, are lines ``name@attribute: value``. Comments are
    skipped. Files that declare entities are refused, except for short texts and pictures. The
    root's name becomes the metadata ``root``.

    Args:
        names: Write element names before their texts; False suits books, True data.
        attributes: Read attributes.

    Raises:
        ConfigError: If an argument is not a boolean.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.xml")
        ...     tea = "<teas><tea from='Uji'>Sencha, <b>green</b></tea></teas>"
        ...     _ = path.write_text(tea, encoding="utf-8")
        ...     XmlLoader().load(path).text
        ...     XmlLoader(names=False, attributes=False).load(path).text
        'tea@from: Uji\ntea: Sencha, green'
        'Sencha, green'
    """

    def __init__(self, *, names: bool = True, attributes: bool = True) -> None:
        self._names = validate_boolean("names", names)
        self._attributes = validate_boolean("attributes", attributes)

    def load_source(self, path: Path) -> LoadedFile:
        """Read the source."""
        data = path.read_bytes()
        declared = _DECLARED_ENCODING.match(data)
        return LoadedFile(decode(data, declared=declared[1].decode() if declared else None))

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        text = self.load_source(path).text
        try:
            elements, pieces = xml_elements(text)
        except expat.ExpatError as exc:
            raise LoadError(
                f"The XML breaks at line {exc.lineno}, column {exc.offset + 1} ({exc}). Fix it."
            ) from exc
        except RecursionError as exc:
            raise too_deep() from exc
        except ValueError as exc:
            raise LoadError(
                f"The XML {exc}; it is not read. Save it with its entities replaced."
            ) from exc
        writer = RecordWriter(FieldSelection(), len(text), joined_by="", between="\n")
        at = 0
        while at < len(elements):
            element = elements[at]
            name = element.name if self._names else ""
            if self._attributes:
                attributes = element.attributes
                for attribute, value in zip(attributes[::2], attributes[1::2], strict=True):
                    pair = (name and f"{name}@{attribute}", value.strip())
                    writer.add([pair], "element", f"{element.path()}/@{attribute}")
            if element.has_text:
                inner = "".join(pieces[element.first : element.last])
                writer.add([(name, inner.strip())], "element", element.path())
            at = element.behind if element.has_text else at + 1  # those inside are part of its text
        return writer.loaded({"root": elements[0].name})
