"""Filters: one syntax tree, one written semantics, one reference evaluator.

Every store is held to what `matches` says:

- Logic is two-valued. A missing field is None.
- ``eq`` and ``in`` match a missing field only if they name None; ``ne`` and ``not in`` are their
  negations, so they match a missing field unless they name None.
- ``gt``, ``ge``, ``lt``, ``le`` are false for a missing field. Text is ordered by code point, dates
  by day.
- On an ARRAY, ``in`` means that any element is among the values, ``contains`` that the value is an
  element, and ``eq`` that the whole arrays are equal. On text, ``contains`` means substring,
  case-sensitive.
- ``in range`` is true where the value, or any element of an ARRAY, is not below the first bound and
  below the second; it is false for a missing field.
- ``exists`` is true where the field is not missing; ``exists`` with False where it is.
- ``not`` negates: ``~Condition("year", ">", 2000)`` matches a missing year.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lazyrag.data.fields import (
    MIME_TYPES,
    UNKNOWN_MIME_TYPE,
    DataType,
    DocField,
    Schema,
    check_scalar,
    check_value,
    mime_type,
)
from lazyrag.errors import ConfigError, known_names
from lazyrag.types import Fields, FieldValue
from lazyrag.validation import normal_name, require

_SYMBOLS = {"==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
OPERATORS = ("eq", "ne", "in", "not in", "gt", "ge", "lt", "le", "in range", "contains", "exists")
_MISSING: Any = object()
_ORDERINGS = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}


class _Combinable:
    """Base of filters: joins them with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: Filter) -> And:
        return And(_as_filter(self), _as_filter(other))

    def __or__(self, other: Filter) -> Or:
        return Or(_as_filter(self), _as_filter(other))

    def __invert__(self) -> Not:
        return Not(_as_filter(self))

    def __bool__(self) -> bool:
        # `a and b` would be b alone, `a or b` a alone: a filter would be lost silently.
        raise ConfigError(
            f"{self!r} is neither true nor false by itself. Join filters with & | ~, not with and,"
            " or, not."
        )


@dataclass(frozen=True, slots=True)
class Condition(_Combinable):
    """One comparison of a field with a value.

    Args:
        field: Name of a built-in or declared field.
        op: One of eq ne in "not in" gt ge lt le "in range" contains exists; ``== != > >= < <=`` are
            accepted as well.
        value: The value to compare with: a list for ``in`` and ``not in``, two bounds for
            ``in range``, True or False for ``exists`` (default True), None for a missing field with
            ``eq`` and ``ne``.

    Raises:
        ConfigError: If the operator is unknown or the value does not suit it.

    Example:
        >>> Condition("year", ">=", 2002) & Condition("author", "in", ["A", "B"])
        And(Condition('year', 'ge', 2002), Condition('author', 'in', ('A', 'B')))
    """

    field: str
    op: str
    value: Any = _MISSING

    def __post_init__(self) -> None:
        op = _SYMBOLS.get(self.op, self.op) if isinstance(self.op, str) else self.op
        if op not in OPERATORS:
            hint = known_names(str(self.op), OPERATORS)
            raise ConfigError(
                f"A filter on {self.field!r} has the operator {self.op!r}. {hint} Also:"
                f" {' '.join(_SYMBOLS)}"
            )
        value = self.value
        name = f"The value of filter {op!r} on {self.field!r}"
        if value is _MISSING:
            if op != "exists":
                raise ConfigError(f"{name} is missing. Pass it: Condition(field, op, value).")
            value = True
        if op in ("in", "not in", "in range"):
            require(_is_list(value), name, value, "a list of values")
            value = tuple(value)
            require(op != "in range" or len(value) == 2, name, value, "a list of two bounds")
        elif isinstance(value, list):
            value = tuple(value)
        require(op != "exists" or isinstance(value, bool), name, value, "True or False")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "value", value)

    def __repr__(self) -> str:
        return f"Condition({self.field!r}, {self.op!r}, {self.value!r})"


class _Group(_Combinable):
    """Several filters joined by one word."""

    __slots__ = ("filters",)
    filters: tuple[Filter, ...]

    def __init__(self, *filters: Filter) -> None:
        self.filters = tuple(_as_filter(part) for part in filters)

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, _Group)
            and other.filters == self.filters
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.filters))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.filters))})"


class And(_Group):
    """True if every part is true; without parts, always.

    Example:
        >>> And() == And()
        True
    """

    __slots__ = ()


class Or(_Group):
    """True if any part is true; without parts, never.

    Example:
        >>> Condition("year", "<", 2000) | Condition("year", ">", 2020)
        Or(Condition('year', 'lt', 2000), Condition('year', 'gt', 2020))
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Not(_Combinable):
    """True if its part is false.

    Example:
        >>> ~Condition("author", "exists")
        Not(Condition('author', 'exists', True))
    """

    filter: Filter

    def __post_init__(self) -> None:
        _as_filter(self.filter)

    def __repr__(self) -> str:
        return f"Not({self.filter!r})"


Filter: TypeAlias = "Condition | And | Or | Not"
FilterLike: TypeAlias = "Filter | Mapping[str, Any]"


def parse_filter(filters: FilterLike | None) -> Filter | None:
    """Parse spec 001's ``{field: [v1, v2]}``: every field must have one of its values. A scalar is
    a list of one.

    Args:
        filters: A mapping, a filter (returned as it is), or None. An empty mapping means no filter.

    Raises:
        ConfigError: If it is something else.

    Example:
        >>> parse_filter({"author": ["A", "B"], "year": 2002})
        And(Condition('author', 'in', ('A', 'B')), Condition('year', 'in', (2002,)))
    """
    if filters is None or isinstance(filters, (Condition, And, Or, Not)):
        return filters
    require(
        isinstance(filters, Mapping),
        "filters",
        filters,
        "a mapping such as {'author': ['A', 'B']} or a Condition",
    )
    conditions = []
    for name, value in filters.items():
        require(
            not isinstance(value, Mapping),
            f"The filter on {name!r}",
            value,
            "a value or a list of values",
            f"For anything else write a Condition, such as Condition({name!r}, '>', 2000).",
        )
        conditions.append(Condition(name, "in", value if _is_list(value) else (value,)))
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(*conditions)


def both(first: Filter | None, second: Filter | None) -> Filter | None:
    """The conjunction of two filters; either may be None.

    Example:
        >>> both(None, Condition("year", "eq", 2002))
        Condition('year', 'eq', 2002)
    """
    if first is None or second is None:
        return second if first is None else first
    return And(first, second)


def field_names(filter: Filter) -> list[str]:  # noqa: A002
    """The field of each condition of a filter; ``And()``, made of an empty list of rules, has none.

    Example:
        >>> field_names(And()), field_names(~Condition("year", "exists"))
        ([], ['year'])
    """
    if isinstance(filter, Condition):
        return [filter.field]
    parts = (filter.filter,) if isinstance(filter, Not) else filter.filters
    return list(itertools.chain.from_iterable(map(field_names, parts)))


def bind_filter(filter: Filter, schema: Schema) -> Filter:  # noqa: A002  the word of the domain
    """Check a filter against a schema and convert its values to the stored form.

    Args:
        filter: Any filter.
        schema: The built-in and declared fields.

    Returns:
        An equal filter whose values `matches` and every store compare directly.

    Raises:
        ConfigError: If a field is not in the schema, or an operator or value does not suit the
            field's type.

    Example:
        >>> from lazyrag.data.fields import make_schema
        >>> bind_filter(Condition("file_type", "eq", ".pdf"), make_schema(None))
        Condition('file_type', 'eq', 'application/pdf')
    """
    if isinstance(filter, Not):
        return Not(bind_filter(filter.filter, schema))
    if isinstance(filter, (And, Or)):
        return type(filter)(*(bind_filter(part, schema) for part in filter.filters))
    if not isinstance(filter.field, str) or filter.field not in schema:
        raise ConfigError(
            f"Unknown filter field {filter.field!r}. {known_names(str(filter.field), schema)}"
            " Declare others with Document(doc_fields=...)."
        )
    if filter.op == "exists":
        return filter
    return Condition(filter.field, filter.op, _bind_value(filter, schema[filter.field]))


def matches(filter: Filter, fields: Fields) -> bool:  # noqa: A002
    """Whether a node's fields satisfy a bound filter: the reference that every store is held to.

    Args:
        filter: A filter from `bind_filter`.
        fields: The node's fields; a name that is absent is missing.

    Example:
        >>> matches(Not(Condition("year", "gt", 2000)), {"year": None})
        True
    """
    if isinstance(filter, Condition):
        return _holds(filter.op, fields.get(filter.field), filter.value)
    if isinstance(filter, And):
        return all(matches(part, fields) for part in filter.filters)
    if isinstance(filter, Or):
        return any(matches(part, fields) for part in filter.filters)
    return not matches(filter.filter, fields)


def _holds(op: str, stored: FieldValue, value: Any) -> bool:
    if op == "exists":
        return (stored is not None) is value
    if op in ("eq", "ne"):
        return bool(stored == value) == (op == "eq")
    if op in ("in", "not in"):
        is_in = stored in value
        if isinstance(stored, tuple):
            is_in = any(element in value for element in stored)
        return is_in == (op == "in")
    if op == "in range":
        low, high = value
        elements: Any = stored if isinstance(stored, tuple) else (stored,)
        return stored is not None and any(low <= element < high for element in elements)
    if op == "contains":
        return isinstance(stored, (str, tuple)) and value in stored
    return stored is not None and bool(_ORDERINGS[op](stored, value))


def _bind_value(condition: Condition, field: DocField) -> Any:
    name = condition.field
    op = condition.op
    value = condition.value
    scalar_type = field.element_type or field.data_type
    is_array = field.element_type is not None
    if op in ("in", "not in"):
        return tuple(
            None if member is None else _bind_scalar(name, scalar_type, member) for member in value
        )
    if op == "contains":
        _require_containable(name, field, value)
        # a part of a MIME type is no suffix
        return _in_normal_form(name, check_scalar(name, scalar_type, value))
    if op in _ORDERINGS or op == "in range":
        _require_ordered(name, field, op)
        bounds = value if op == "in range" else (value,)
        bound = tuple(_bind_scalar(name, scalar_type, limit) for limit in bounds)
        return bound if op == "in range" else bound[0]
    if is_array and value is not None:
        return check_value(name, DocField(DataType.ARRAY, field.element_type), value)
    return None if value is None else _bind_scalar(name, scalar_type, value)


def _require_ordered(name: str, field: DocField, op: str) -> None:
    """Check the field of a filter by order; arrays have none, their elements may."""
    is_single = field.element_type is None or op == "in range"
    require(
        is_single and (field.element_type or field.data_type) is not DataType.BOOLEAN,
        f"The field of filter {op!r}",
        field.data_type.name,
        "ordered",
        f"It is {name!r}.",
    )


def _require_containable(name: str, field: DocField, value: Any) -> None:
    """Check the field and the value of a filter 'contains'."""
    require(
        field.element_type is not None or field.data_type is DataType.VARCHAR,
        "The field of filter 'contains'",
        field.data_type.name,
        "text or an array",
        f"It is {name!r}.",
    )
    scalar_type = field.element_type or field.data_type
    require(
        not isinstance(value, tuple),
        f"The filter 'contains' on {name!r}",
        value,
        f"one {scalar_type.name}",
        "For any of several values use 'in'.",
    )


def _bind_scalar(name: str, data_type: DataType, value: Any) -> Any:
    if name == "file_type" and isinstance(value, str) and "/" not in value:
        return _suffix_as_mime_type(value)
    return _in_normal_form(name, check_scalar(name, data_type, value))


def _in_normal_form(name: str, value: Any) -> Any:
    return normal_name(value) if name == "file_name" else value


def _suffix_as_mime_type(suffix: str) -> str:
    mime = mime_type(suffix)
    if mime == UNKNOWN_MIME_TYPE:
        msg = (
            f"The filter on 'file_type' names {suffix!r}, neither a MIME type nor a known suffix. "
        )
        raise ConfigError(msg + known_names("." + suffix.lstrip("."), MIME_TYPES))
    return mime


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _as_filter(value: Any) -> Filter:
    require(
        isinstance(value, (Condition, And, Or, Not)),
        "A filter",
        value,
        "a Condition, And, Or or Not",
    )
    filter: Filter = value  # noqa: A001
    return filter
