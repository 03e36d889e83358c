"""Filterable fields: their types and checks, the six built-in ones, and MIME types of files."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError
from lazyrag.types import FieldValue, Scalar
from lazyrag.validation import known_arguments, require, validate_integer


class DataType(enum.Enum):
    """Type of a field. FLOAT is 32 bits wide, DOUBLE 64; DATE is an ISO day such as ``2024-05-01``.

    Example:
        >>> DocField(DataType.ARRAY, element_type=DataType.VARCHAR, max_size=20).data_type
        <DataType.ARRAY: 'array'>
    """

    BOOLEAN = "boolean"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    VARCHAR = "varchar"
    DATE = "date"
    ARRAY = "array"


@known_arguments
@dataclass(frozen=True, slots=True)
class DocField:
    """Declaration of a field that files or nodes carry and filters read (spec 001).

    Args:
        data_type: Type of the field.
        element_type: Type of an ARRAY's elements, not ARRAY. Required for an ARRAY, and only
            allowed for it.
        default_value: Stored if a file has no value; None leaves the field missing.
        max_size: Maximum number of characters of a VARCHAR or of an ARRAY's VARCHAR elements, or of
            elements of another ARRAY. None for no bound.

    Raises:
        ConfigError: If the arguments do not fit together.

    Example:
        >>> DocField(DataType.VARCHAR, max_size=128, default_value=" ").max_size
        128
    """

    data_type: DataType
    element_type: DataType | None = None
    default_value: Any = None
    max_size: int | None = None

    def __post_init__(self) -> None:
        element = self.element_type
        names = ", ".join(f"DataType.{data_type.name}" for data_type in DataType)
        require(
            isinstance(self.data_type, DataType), "data_type", self.data_type, f"one of {names}"
        )
        require(
            element is None or isinstance(element, DataType),
            "element_type",
            element,
            f"one of {names}",
        )
        hint = "DataType.ARRAY needs one, and no other type takes one."
        is_needed = self.data_type is DataType.ARRAY
        require(
            is_needed == (element is not None),
            "element_type",
            element,
            "given for an ARRAY only",
            hint,
        )
        require(element is not DataType.ARRAY, "element_type", element, "another type than ARRAY")
        if self.max_size is not None:
            object.__setattr__(self, "max_size", validate_integer("max_size", self.max_size, 1))
        if self.default_value is not None:
            object.__setattr__(
                self, "default_value", check_value("default_value", self, self.default_value)
            )


Schema: TypeAlias = Mapping[str, DocField]

BUILT_IN_FIELDS: Schema = MappingProxyType(
    {
        "file_name": DocField(DataType.VARCHAR),
        "file_type": DocField(DataType.VARCHAR),
        "file_size": DocField(DataType.INT64),
        "creation_date": DocField(DataType.DATE),
        "last_modified_date": DocField(DataType.DATE),
        "last_accessed_date": DocField(DataType.DATE),
    }
)
"""The fields every file has (spec 001): name, MIME type, size in bytes, three ISO days in local
time."""


def make_schema(doc_fields: Mapping[str, DocField] | None) -> Schema:
    """The built-in fields and the declared ones.

    Raises:
        ConfigError: If a name is not an identifier or is built in, or a value is not a DocField.

    Example:
        >>> sorted(make_schema({"year": DocField(DataType.INT32)}))[-1]
        'year'
    """
    require(
        doc_fields is None or isinstance(doc_fields, Mapping),
        "doc_fields",
        doc_fields,
        "a mapping to DocFields",
    )
    declared = dict(doc_fields or {})
    built_in = f"Built in are {', '.join(sorted(BUILT_IN_FIELDS))}."
    for name, field in declared.items():
        is_name = isinstance(name, str) and name.isidentifier()
        require(is_name, "The names of doc_fields", name, "identifiers, such as 'author' or '作者'")
        require(
            name not in BUILT_IN_FIELDS,
            "The names of doc_fields",
            name,
            "others than the built-in ones",
            built_in,
        )
        require(isinstance(field, DocField), f"doc_fields[{name!r}]", field, "a DocField")
    return MappingProxyType({**BUILT_IN_FIELDS, **declared})


def schema_text(schema: Schema) -> str:
    """Encode a schema as JSON: the same text for equal schemas. Stores and the ledger contain it.

    Example:
        >>> schema_text({"year": DocField(DataType.INT32)})
        '{"year":["int32",null,null,null]}'
    """
    return json.dumps(
        {
            name: (
                field.data_type.value,
                field.element_type and field.element_type.value,
                field.default_value,
                field.max_size,
            )
            for name, field in sorted(schema.items())
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def read_schema(text: str) -> Schema:
    """Decode the text that `schema_text` made.

    Example:
        >>> read_schema('{"year":["int32",null,null,null]}')["year"].data_type.name
        'INT32'
    """
    return {
        name: DocField(
            DataType(data_type), element_type and DataType(element_type), default_value, max_size
        )
        for name, (data_type, element_type, default_value, max_size) in json.loads(text).items()
    }


def check_value(name: str, field: DocField, value: Any) -> FieldValue:
    """Check a value against its field, and convert it to the form that stores and filters compare.

    None stays None (missing). A FLOAT is rounded to 32 bits, a date becomes its ISO day, a list
    becomes a tuple.

    Args:
        name: The field's name, for messages.
        field: Its declaration.
        value: The value of a file, a loader, a node or a filter.

    Raises:
        ConfigError: If the value is of another type or out of its range.

    Example:
        >>> check_value("day", DocField(DataType.DATE), dt.date(2024, 5, 1))
        '2024-05-01'
    """
    if value is None:
        return None
    if field.element_type is None:
        return check_scalar(name, field.data_type, value, max_size=field.max_size)
    is_list = hasattr(value, "__iter__") and not isinstance(
        value, (str, bytes, Mapping, set, frozenset)
    )
    require(is_list, f"Field {name!r}", value, f"a list (ARRAY of {field.element_type.name})")
    text = field.element_type is DataType.VARCHAR
    elements = tuple(
        check_scalar(name, field.element_type, element, max_size=field.max_size if text else None)
        for element in value
    )
    fits = field.max_size is None or text or len(elements) <= field.max_size
    require(fits, f"Field {name!r}", elements, f"of at most {field.max_size} elements (max_size)")
    return elements


def parse_value(name: str, field: DocField, value: Any) -> FieldValue:
    """Parse a value of a file by the declared type of its field: files spell numbers, dates and
    lists as text.

    Args:
        name: The field's name, for messages.
        field: Its declaration.
        value: A text, a list of texts, or a value of the type itself.

    Raises:
        ConfigError: If the text does not spell a value of the type.

    Example:
        >>> parse_value("year", DocField(DataType.INT32), " 2002 ")
        2002
        >>> tags = DocField(DataType.ARRAY, element_type=DataType.VARCHAR)
        >>> parse_value("tags", tags, "green, black")
        ('green', 'black')
    """
    if field.element_type is not None:
        if isinstance(value, str):
            value = [part for part in map(str.strip, _LIST_MARKS.split(value)) if part]
        is_list = isinstance(value, (list, tuple))
        return check_value(
            name,
            field,
            [_parsed(field.element_type, element) for element in value] if is_list else value,
        )
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return check_value(name, field, _parsed(field.data_type, value))


_LIST_MARKS = re.compile(r"[,;，；、]")
_INTEGER = re.compile(r"[-+]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_DAY = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T\s].*)?", re.ASCII)
_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _parsed(data_type: DataType, value: Any) -> Any:
    """The value that a text spells; the text itself if it spells none of the type."""
    if data_type is DataType.VARCHAR and isinstance(value, (bool, int, float)):
        return str(value)
    if not isinstance(value, str) or data_type is DataType.VARCHAR:
        return value
    text = value.strip()
    if data_type is DataType.BOOLEAN:
        return _BOOLEANS.get(text.lower(), value)
    if data_type is DataType.DATE:
        day = _DAY.fullmatch(text)
        return f"{day[1]}-{day[2]:0>2}-{day[3]:0>2}" if day else value
    if data_type in (DataType.INT32, DataType.INT64):
        return int(text) if _INTEGER.fullmatch(text) else value
    return float(text) if _NUMBER.fullmatch(text) else value


def check_scalar(
    name: str, data_type: DataType, value: Any, *, max_size: int | None = None
) -> Scalar:
    """Check a scalar; see `check_value`."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar
    convert, expected = _SCALARS[data_type]
    checked: Scalar | None = convert(value)
    if checked is None:
        raise ConfigError(
            f"Field {name!r} is {data_type.name}; {value!r:.100} ({type(value).__name__}) is not."
            f" {expected}"
        )
    if max_size is not None and isinstance(checked, str) and len(checked) > max_size:
        excerpt = f"{len(checked)}: {checked[:40]!r}..."
        raise ConfigError(
            f"Field {name!r} must have at most {max_size} characters (max_size); got {excerpt}"
        )
    return checked


def _integer(value: Any, bits: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << (bits - 1)) <= value < (1 << (bits - 1)) else None


def _real_number(value: Any, *, single: bool) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
        if single:
            number = float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def validate_day(name: str, value: Any) -> str:
    """Return a day as ISO text.

    Raises:
        ConfigError: If it is none.

    Example:
        >>> validate_day("as_of", dt.date(2024, 5, 1))
        '2024-05-01'
    """
    day = _iso_day(value)
    hint = "Of a year or a month, pass the last day."
    require(day is not None, name, value, "a day such as '2024-05-01'", hint)
    return day or ""


def _iso_day(value: Any) -> str | None:
    if isinstance(value, dt.datetime):
        value = value.date()
    if isinstance(value, dt.date):
        return value.isoformat()
    if not isinstance(value, str):
        return None
    try:
        return value if dt.date.fromisoformat(value).isoformat() == value else None
    except ValueError:
        return None


_SCALARS: Mapping[DataType, tuple[Callable[[Any], Scalar | None], str]] = {
    DataType.BOOLEAN: (
        lambda value: value if isinstance(value, bool) else None,
        "Give True or False.",
    ),
    DataType.INT32: (
        lambda value: _integer(value, 32),
        "Give an integer from -2147483648 to 2147483647.",
    ),
    DataType.INT64: (lambda value: _integer(value, 64), "Give an integer of at most 64 bits."),
    DataType.FLOAT: (
        lambda value: _real_number(value, single=True),
        "Give a finite number of at most 32 bits' range.",
    ),
    DataType.DOUBLE: (lambda value: _real_number(value, single=False), "Give a finite number."),
    DataType.VARCHAR: (lambda value: value if isinstance(value, str) else None, "Give text."),
    DataType.DATE: (_iso_day, "Give a datetime.date or an ISO day such as '2024-05-01'."),
}
"""Functions from a value to the form that is stored, None for one that does not fit; and what to
give, for messages."""


# Our own table: those of operating systems and of Python's releases differ, and ``file_type`` is
# stored and filtered.

UNKNOWN_MIME_TYPE = "application/octet-stream"

_SUFFIXES = {
    "text/asciidoc": ".adoc .asciidoc",
    "text/x-shellscript": ".bash .sh",
    "image/bmp": ".bmp",
    "text/x-c": ".c .h",
    "text/x-c++": ".cc .cpp .cxx .hpp",
    "text/x-csharp": ".cs",
    "text/css": ".css",
    "text/csv": ".csv",
    "text/x-dart": ".dart",
    "application/msword": ".doc",
    "application/vnd.ms-word.document.macroenabled.12": ".docm",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.template": ".dotx",
    "message/rfc822": ".eml",
    "application/epub+zip": ".epub",
    "audio/flac": ".flac",
    "image/gif": ".gif",
    "text/x-go": ".go",
    "text/html": ".htm .html",
    "application/x-ipynb+json": ".ipynb",
    "text/x-java": ".java",
    "text/x-julia": ".jl",
    "image/jpeg": ".jpeg .jpg",
    "text/javascript": ".js .jsx .mjs",
    "application/json": ".json",
    "application/x-ndjson": ".jsonl .ndjson",
    "text/x-kotlin": ".kt",
    "text/x-lua": ".lua",
    "audio/mp4": ".m4a",
    "text/markdown": ".markdown .md",
    "application/mbox": ".mbox",
    "video/x-matroska": ".mkv",
    "video/quicktime": ".mov",
    "audio/mpeg": ".mp3",
    "video/mp4": ".mp4",
    "application/vnd.ms-outlook": ".msg",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/vnd.oasis.opendocument.presentation": ".odp",
    "application/vnd.oasis.opendocument.text": ".odt",
    "audio/ogg": ".ogg",
    "text/org": ".org",
    "application/pdf": ".pdf",
    "text/x-php": ".php",
    "text/x-perl": ".pl",
    "image/png": ".png",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "text/x-powershell": ".ps1",
    "text/x-python": ".py .pyi",
    "text/x-r": ".r",
    "text/x-ruby": ".rb",
    "text/x-rust": ".rs",
    "text/x-rst": ".rst",
    "application/rtf": ".rtf",
    "text/x-scala": ".scala",
    "text/x-sql": ".sql",
    "application/x-subrip": ".srt",
    "image/svg+xml": ".svg",
    "text/x-swift": ".swift",
    "text/x-tex": ".tex",
    "text/plain": ".text .txt",
    "image/tiff": ".tif .tiff",
    "application/toml": ".toml",
    "text/x-typescript": ".ts .tsx",
    "text/tab-separated-values": ".tsv",
    "audio/wav": ".wav",
    "text/vtt": ".vtt",
    "video/webm": ".webm",
    "image/webp": ".webp",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": ".xlsb",
    "application/vnd.ms-excel.sheet.macroenabled.12": ".xlsm",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/xml": ".xml",
    "application/yaml": ".yaml .yml",
    "application/zip": ".zip",
}
MIME_TYPES: dict[str, str] = {}
for _name, _suffixes in _SUFFIXES.items():
    MIME_TYPES |= dict.fromkeys(_suffixes.split(), _name)


def mime_type(suffix: str) -> str:
    """The MIME type of a file suffix, with or without its dot, in any case; `UNKNOWN_MIME_TYPE` if
    unknown.

    Example:
        >>> mime_type("PDF"), mime_type(".md"), mime_type("")
        ('application/pdf', 'text/markdown', 'application/octet-stream')
    """
    return MIME_TYPES.get("." + suffix.lower().lstrip("."), UNKNOWN_MIME_TYPE)
