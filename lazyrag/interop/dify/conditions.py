"""Specification 004's `MetadataCondition`, and the filter that it says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lazyrag.data.fields import DataType, Schema
from lazyrag.data.filters import And, Filter, Or, both
from lazyrag.data.filters import Condition as FieldCondition
from lazyrag.errors import ConfigError, known_names
from lazyrag.interop.dify.ranges import exact_number
from lazyrag.validation import known_arguments

LogicalOperator: TypeAlias = Literal["and", "or"]
_LOGICAL = ("and", "or")
_LAST = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)
_NO_VALUE = ("empty", "not empty")
_AMONG = ("in", "not in")
_KEYS = ("logical_operator", "conditions")
_NUMBERS = (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
_SAME = {"==": "=", "!=": "≠", ">=": "≥", "<=": "≤"}


@known_arguments
@dataclass(frozen=True, slots=True)
class Condition:
    """What one name in the metadata must be like.

    Args:
        name: The name: a field that filters may read.
        comparison_operator: One of `COMPARISONS`.
        value: What to compare with. For ``in`` and ``not in`` a list, or a text with commas; for ``=`` ``≠`` ``>``
            ``<`` ``≥`` ``≤`` a number, or a text of one; none for ``empty`` and ``not empty``. Whole numbers are exact.

    Raises:
        ConfigError: If the operator is unknown, or the value does not go with it.

    Example:
        >>> Condition("year", "≥", "2020").to_filter()
        Condition('year', 'ge', 2020)
    """

    name: str
    comparison_operator: str
    value: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            msg = f"A condition's name is {self.name!r:.80}; give the name of a field."
            raise ConfigError(msg)
        told = self.comparison_operator
        operator = _SAME.get(told, told) if isinstance(told, str) else told
        if operator not in COMPARISONS:
            msg = f"The comparison_operator on {self.name!r} is {told!r:.80}. {known_names(str(told), COMPARISONS)}"
            raise ConfigError(msg)
        object.__setattr__(self, "comparison_operator", operator)
        if (self.value is None) != (operator in _NO_VALUE):
            needed = "takes no value" if operator in _NO_VALUE else "needs a value"
            msg = f"The comparison {operator!r} on {self.name!r} {needed}; it got {self.value!r:.80}."
            raise ConfigError(msg)
        self.to_filter()

    def to_filter(self, fields: Schema | None = None) -> Filter:
        """The same as a filter of this package.

        Args:
            fields: The fields of the data set. ``in`` and ``not in`` read texts as numbers where the field has numbers.

        Raises:
            ConfigError: If such a text is no number.
        """
        value, field = self.value, (fields or {}).get(self.name)
        if (
            self.comparison_operator in _AMONG
            and field is not None
            and (field.element_type or field.data_type) in _NUMBERS
        ):
            held = _values(self.name, value)
            value = [_number(self.name, one) if isinstance(one, str) else one for one in held]
        return _FILTERS[self.comparison_operator](self.name, value)


@known_arguments
@dataclass(frozen=True, slots=True)
class MetadataCondition:
    """Which documents a search may give, by their metadata (named by spec 004, defined by the system it describes).

    Whatever is missing in the metadata satisfies ``empty`` alone, the negations (``is not``, ``not in`` ...) neither.

    Args:
        logical_operator: ``"and"``: all conditions must hold; ``"or"``: any of them.
        conditions: `Condition` objects, or mappings of their three arguments.

    Raises:
        ConfigError: If an argument is none of these.

    Example:
        >>> MetadataCondition("or", [Condition("author", "is", "Luo"), Condition("year", ">", 2020)]).to_filter()
        Or(Condition('author', 'eq', 'Luo'), Condition('year', 'gt', 2020))
    """

    logical_operator: LogicalOperator = "and"
    conditions: Sequence[Condition | Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if self.logical_operator not in _LOGICAL:
            known = known_names(str(self.logical_operator), _LOGICAL)
            msg = f"logical_operator is {self.logical_operator!r:.80}. {known}"
            raise ConfigError(msg)
        if not isinstance(self.conditions, (list, tuple)):
            msg = f"conditions is {self.conditions!r:.80}; give a list of Condition."
            raise ConfigError(msg)
        object.__setattr__(self, "conditions", tuple(map(_condition, self.conditions)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MetadataCondition:
        """A condition from JSON.

        Args:
            values: ``logical_operator`` and ``conditions``, either of which may be left out or None.

        Raises:
            ConfigError: If it holds something else.

        Example:
            >>> told = {"conditions": [{"name": "author", "comparison_operator": "start with", "value": "Lu"}]}
            >>> MetadataCondition.from_dict(told).to_filter()
            And(Condition('author', 'ge', 'Lu'), Condition('author', 'lt', 'Lv'))
        """
        if not isinstance(values, Mapping):
            msg = f"A metadata condition is {values!r:.80}; give a mapping with logical_operator and conditions."
            raise ConfigError(msg)
        return cls(**{name: value for name, value in values.items() if value is not None})

    def to_filter(self, fields: Schema | None = None) -> Filter | None:
        """The same as a filter for a retriever; None where there is no condition. See `Condition.to_filter`."""
        filters = [one.to_filter(fields) for one in self.conditions if isinstance(one, Condition)]
        if len(filters) < 2:
            return filters[0] if filters else None
        return And(*filters) if self.logical_operator == "and" else Or(*filters)


def filter_of(
    condition: MetadataCondition | Filter | Mapping[str, Any] | None, fields: Schema | None = None
) -> Filter | Mapping[str, Any] | None:
    """What a retriever takes as filters: a `MetadataCondition`, or its JSON, translated; anything else as it is.

    Example:
        >>> filter_of(MetadataCondition()) is None
        True
    """
    if isinstance(condition, Mapping) and any(one in condition and one not in (fields or {}) for one in _KEYS):
        condition = MetadataCondition.from_dict(condition)
    return condition.to_filter(fields) if isinstance(condition, MetadataCondition) else condition


def _condition(given: Any) -> Condition:
    if isinstance(given, Condition):
        return given
    if isinstance(given, Mapping):
        return Condition(**given)
    msg = f"conditions holds {given!r:.80}; give Condition(name, comparison_operator, value)."
    raise ConfigError(msg)


def _there(name: str, held: Filter) -> Filter:
    """A negation that a missing value does not satisfy, as in SQL."""
    filters = both(held, FieldCondition(name, "exists"))
    return held if filters is None else filters


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        msg = f"The comparison on {name!r} is with {value!r:.80}; give a text that is not empty."
        raise ConfigError(msg)
    return value


def _number(name: str, value: Any) -> float:
    number = None if isinstance(value, bool) else exact_number(value)
    if number is None:
        big = isinstance(value, int) and value.bit_length() > sys.float_info.max_exp
        told = f"a whole number of {value.bit_length()} bits" if big else f"{value!r:.80}"
        msg = f"The comparison on {name!r} is with {told}; give a finite number. Texts are compared by 'is', 'is not'."
        raise ConfigError(msg)
    return number


def _values(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        msg = f"The comparison on {name!r} is with {value!r:.80}; give a list of values, or a text with commas."
        raise ConfigError(msg)
    return list(value)


def _starts(name: str, value: Any) -> Filter:
    """Texts are ordered by code point, so those with a prefix lie between it and the next text of its length."""
    prefix = _text(name, value)
    first = FieldCondition(name, "ge", prefix)
    kept = prefix.rstrip(_LAST)
    if not kept:
        return first
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return first & FieldCondition(name, "lt", kept[:-1] + chr(following))


def _ends(name: str, value: Any) -> Filter:
    msg = (
        f"'end with' on {name!r} is no filter that every store can apply. Keep the ending in a field of its own "
        f"(a file's suffix is file_type) and ask for that, or use 'contains' ({value!r:.40})."
    )
    raise ConfigError(msg)


def _ordered(op: str) -> Callable[[str, Any], Filter]:
    return lambda name, value: FieldCondition(name, op, _number(name, value))


_FILTERS: Mapping[str, Callable[[str, Any], Filter]] = {
    "contains": lambda name, value: FieldCondition(name, "contains", _text(name, value)),
    "not contains": lambda name, value: _there(name, ~FieldCondition(name, "contains", _text(name, value))),
    "start with": _starts,
    "end with": _ends,
    "is": lambda name, value: FieldCondition(name, "eq", value),
    "is not": lambda name, value: _there(name, FieldCondition(name, "ne", value)),
    "empty": lambda name, _: FieldCondition(name, "exists", False),
    "not empty": lambda name, _: FieldCondition(name, "exists"),
    "in": lambda name, value: FieldCondition(name, "in", _values(name, value)),
    "not in": lambda name, value: _there(name, FieldCondition(name, "not in", _values(name, value))),
    "=": _ordered("eq"),
    "≠": lambda name, value: _there(name, FieldCondition(name, "ne", _number(name, value))),
    ">": _ordered("gt"),
    "<": _ordered("lt"),
    "≥": _ordered("ge"),
    "≤": _ordered("le"),
    "before": lambda name, value: FieldCondition(name, "lt", value),
    "after": lambda name, value: FieldCondition(name, "gt", value),
}

COMPARISONS: tuple[str, ...] = tuple(_FILTERS)
"""What `Condition.comparison_operator` may be; ``== != >= <=`` are understood as well."""
