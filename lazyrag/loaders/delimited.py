"""Tables as text files: comma-separated values and their kin."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import find_encoding
from lazyrag.loaders.selection import Pair, RecordWriter, Selection
from lazyrag.validation import known_arguments

# In this order where several fit alike: a comma is also the decimal mark between semicolons.
_DELIMITERS = "\t;|,"
_DECLARED = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)  # Excel's first line
_NUMBER = re.compile(r"[-+(]?[¥$€£￥]?\s?[-+]?\d[\d.,'\s]*(?:[eE][-+]?\d+)?\s?[%％)元]?|[-+]?[.,]\d+")
_YEAR = re.compile(r"(?:19|20)\d\d")
_SAMPLE = 1 << 16
_SAMPLE_ROWS = 200


@known_arguments
class CsvLoader:
    r"""Reads a table; each row becomes a line ``header: value; header: value`` and a place.

    Empty cells are left out, and a line end inside a cell becomes a space. What stands above the header is kept as it
    is. The columns' names become the metadata ``columns``, the number of rows ``rows``.

    Args:
        delimiter: What stands between two cells; None finds it out: tab, semicolon, bar or comma.
        header: Whether there is a row of names; None finds it out, and takes one for given where fields are selected.
        fields: Columns to take, in this order; () takes all.
        template: A text with columns in braces, as in ``"{name} costs {price}"``, instead of ``header: value``.

    Raises:
        ConfigError: If the delimiter is not one character, or fields or template cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "prices.csv")
        ...     _ = path.write_text("tea;price\nSencha;12,50\n", encoding="utf-8")
        ...     CsvLoader().load(path).text, CsvLoader(template="{tea} costs {price}").load(path).text
        ('tea: Sencha; price: 12,50', 'Sencha costs 12,50')
    """

    def __init__(
        self,
        delimiter: str | None = None,
        *,
        header: bool | None = None,
        fields: Sequence[str] = (),
        template: str | None = None,
    ) -> None:
        if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"'):
            msg = f"delimiter is {delimiter!r:.80}; give one character other than a line end or quotation mark."
            raise ConfigError(msg)
        if header not in (None, True, False):
            msg = f"header is {header!r:.80}; give True, False, or None to find it out."
            raise ConfigError(msg)
        self._delimiter = delimiter
        self._header = header
        self._selection = Selection(fields, template)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        text = read.text
        declared = _DECLARED.match(text)
        usual = "\t" if path.suffix.lower() == ".tsv" else ","
        delimiter = self._delimiter or (declared[1] if declared else _sniffed(text, usual))
        rows = _rows(text, delimiter)
        if declared:
            next(rows)
        sample = list(islice(rows, _SAMPLE_ROWS))
        at = self._header_at([row for _, row in sample])
        header = None if at is None else [_folded(name) for name in sample[at][1]]
        writer = RecordWriter(self._selection, len(text), joined_by="; ", between="\n")
        count = 0
        for number, row in _without(sample, at):
            count += _add(writer, number, row, header if at is not None and number > sample[at][0] else None)
        for number, row in rows:
            count += _add(writer, number, row, header)
        return writer.loaded({**({"columns": header} if header else {}), "rows": count, **read.metadata})

    def _header_at(self, sample: list[list[str]]) -> int | None:
        """Where among the first rows the names stand; None where there are none."""
        wanted = self._header
        if wanted is None and self._selection.wanted:
            wanted = True
        if wanted is False:
            return None
        width = _usual_width(sample)
        # A title above a table fills its first cell only.
        at = next((at for at, row in enumerate(sample) if any(map(str.strip, row[1:] if width > 1 else row))), None)
        if at is None or wanted:
            return at
        return at if _is_header(sample[at], sample[at + 1 :]) else None


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows with their numbers from 1, empty ones too, so that numbers are those of a spreadsheet."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        yield from enumerate(reader, start=1)
    except csv.Error as exc:
        msg = (
            f"The table cannot be read at line {reader.line_num} ({exc}). A quotation mark may not be closed. Mend the "
            "line; longer cells are read after csv.field_size_limit(...)."
        )
        raise LoadError(msg) from exc


def _without(sample: list[tuple[int, list[str]]], at: int | None) -> list[tuple[int, list[str]]]:
    return sample if at is None else sample[:at] + sample[at + 1 :]


def _add(writer: RecordWriter, number: int, row: list[str], header: list[str] | None) -> int:
    """Add a row; 1 if it holds anything, else 0."""
    names = header or []
    record: list[Pair] = [
        (names[column] if column < len(names) else "", _folded(cell)) for column, cell in enumerate(row) if cell.strip()
    ]
    if record:
        writer.add(record, "row", str(number))
    return int(bool(record))


def _folded(cell: str) -> str:
    """A cell's text on one line."""
    if "\n" not in cell and "\r" not in cell:
        return cell.strip()
    return " ".join(line.strip() for line in cell.replace("\r", "\n").split("\n") if line.strip())


def _sniffed(text: str, usual: str) -> str:
    """The delimiter that cuts most rows of the beginning into the same number of cells.

    csv.Sniffer guesses by the frequency of characters, raises where it cannot, and takes a letter where it errs.
    """
    best = 0.0
    delimiter = usual
    for candidate in _DELIMITERS:
        share = _regularity(text[:_SAMPLE], candidate)
        if share > best:
            best, delimiter = share, candidate
    return delimiter


def _regularity(sample: str, delimiter: str) -> float:
    """Share of rows that have as many cells as most have, 0.0 where that is one."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    try:
        rows = list(islice(reader, _SAMPLE_ROWS))
    except csv.Error:  # reading the file will say it
        return 0.0
    filled = [len(row) for row in rows if any(cell.strip() for cell in row)]
    if len(filled) > 2 and len(sample) == _SAMPLE:
        filled.pop()  # it may be cut off
    [(width, times)] = Counter(filled).most_common(1) or [(1, 0)]
    return times / len(filled) if width > 1 else 0.0


def _usual_width(rows: list[list[str]]) -> int:
    """Cells of most rows that hold anything."""
    widths = Counter(len(row) for row in rows if any(cell.strip() for cell in row))
    return widths.most_common(1)[0][0] if widths else 0


def _is_header(first: list[str], below: list[list[str]]) -> bool:
    """Whether a row names the columns.

    A column of numbers tells it: beneath a name they differ in kind, beneath another number they do not. Where no
    column tells it, names are filled, unlike each other and above more than one column.
    """
    body = [row for row in below if any(cell.strip() for cell in row)]
    if not body:
        return False
    votes = 0
    for column, cell in enumerate(map(str.strip, first)):
        values = [row[column].strip() for row in body if column < len(row) and row[column].strip()]
        if 2 * sum(bool(_NUMBER.fullmatch(value)) for value in values) > len(values):
            is_name = not _NUMBER.fullmatch(cell)
            if _YEAR.fullmatch(cell):  # years may be names
                is_name = 2 * sum(bool(_YEAR.fullmatch(value)) for value in values) <= len(values)
            votes += 1 if is_name and cell else -1 if cell else 0
    names = [cell.strip() for cell in first]
    return votes > 0 or (votes == 0 and len(names) > 1 and all(names) and len(set(names)) == len(names))
