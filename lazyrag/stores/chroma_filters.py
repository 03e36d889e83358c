"""Filters in Chroma's language, over the values that `lazyrag.stores.chroma_fields` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.filters import Condition, Filter
from lazyrag.stores.chroma_fields import MISSING, NATIVE, native_value
from lazyrag.stores.pushdown import Pushed, pushed_down
from lazyrag.types import Scalar

Where: TypeAlias = "dict[str, Any]"
"""A filter as Chroma takes it: one key, which is a metadata key, ``$and`` or ``$or``."""

REST = "lr_rest"
"""The metadata key of what else there is of a row: JSON, never empty."""

_ORDERINGS = {"gt": "$gt", "ge": "$gte", "lt": "$lt", "le": "$lte"}
_OPPOSITES = {
    one: other
    for pair in (("$eq", "$ne"), ("$in", "$nin"), ("$contains", "$not_contains"))
    for one, other in (pair, pair[::-1])
}
_REVERSED = {"$gt": "$lte", "$gte": "$lt", "$lt": "$gte", "$lte": "$gt"}

# SQLite answers behind Chroma's filters. Seen with 1.5.9: 40,000 values, 2,000 parts or 60 levels are errors.
_MOST_VALUES = 5_000
_MOST_PARTS = 200
_MOST_LEVELS = 12


def divided(filter: Filter | None, schema: Schema) -> Pushed[Where]:  # noqa: A002  the word of the domain
    """A bound filter, divided between Chroma and us; one that is too large for Chroma is all ours.

    Example:
        >>> divided(Condition("year", "gt", 2000), {"year": DocField(DataType.INT32)})
        Pushed(native={'f_year': {'$gt': 2000}}, rest=None)
    """
    pushed = pushed_down(filter, ChromaDialect(schema))
    if pushed.native is not None and not _fits(pushed.native):
        return Pushed(rest=filter)
    return pushed


@dataclass(frozen=True, slots=True)
class ChromaDialect:
    """Chroma's language of filters, over the fields of a schema; see `lazyrag.stores.pushdown.Dialect`.

    It orders numbers only, so that days are kept as numbers; it knows no parts of texts and no whole arrays.

    Args:
        schema: Of the collection.

    Example:
        >>> ChromaDialect({"year": DocField(DataType.INT32)}).condition(Condition("year", "exists"))
        {'lr_missing': {'$not_contains': 'year'}}
    """

    schema: Schema

    def condition(self, condition: Condition) -> Where | None:
        """See `lazyrag.stores.pushdown.Dialect.condition`."""
        name, op, value = condition.field, condition.op, condition.value
        field = self.schema.get(name)
        if field is None:
            return None
        if op == "exists":
            return _missing(name, value is False)
        if op in ("ne", "not in"):
            positive = self.condition(Condition(name, "eq" if op == "ne" else "in", value))
            return None if positive is None else self.negated(positive)
        if op == "in":
            return self._in(name, field, value)
        return _missing(name, True) if value is None else _comparison(name, field, op, value)

    def all_of(self, parts: Sequence[Where]) -> Where:
        """See `lazyrag.stores.pushdown.Dialect.all_of`."""
        return {"$and": list(parts)}

    def any_of(self, parts: Sequence[Where]) -> Where:
        """See `lazyrag.stores.pushdown.Dialect.any_of`."""
        return {"$or": list(parts)}

    def negated(self, part: Where) -> Where:
        """See `lazyrag.stores.pushdown.Dialect.negated`: Chroma has no "not", but each of its words has an opposite."""
        [(key, held)] = part.items()
        if key in ("$and", "$or"):
            return {"$or" if key == "$and" else "$and": [self.negated(one) for one in held]}
        [(op, value)] = held.items()
        if op in _OPPOSITES:
            return {key: {_OPPOSITES[op]: value}}  # these also hold where the key is not there
        return self.any_of([{key: {_REVERSED[op]: value}}, _missing(key.removeprefix(NATIVE), True)])

    def never(self) -> Where:
        """See `lazyrag.stores.pushdown.Dialect.never`."""
        return {REST: {"$eq": ""}}

    def _in(self, name: str, field: DocField, values: Sequence[Scalar | None]) -> Where:
        named = [native_value(field, one) for one in values if one is not None]
        key, parts = NATIVE + name, list[Where]()
        if field.element_type is not None:
            parts = [{key: {"$contains": one}} for one in named]
        elif named:
            parts = [{key: {"$in": named}}]
        if None in values:
            parts.append(_missing(name, True))
        if not parts:
            return self.never()
        return parts[0] if len(parts) == 1 else self.any_of(parts)


def _comparison(name: str, field: DocField, op: str, value: Any) -> Where | None:
    """``eq``, ``contains`` or an ordering with a value that is not None."""
    is_array = field.element_type is not None
    if is_array != (op == "contains") or (op in _ORDERINGS and field.data_type is DataType.VARCHAR):
        return None
    native = {"eq": "$eq", "contains": "$contains", **_ORDERINGS}[op]
    return {NATIVE + name: {native: native_value(field, value)}}


def _missing(name: str, is_missing: bool) -> Where:
    return {MISSING: {"$contains" if is_missing else "$not_contains": name}}


def _fits(where: Where) -> bool:
    levels, parts, values = _sizes(where)
    return levels <= _MOST_LEVELS and parts <= _MOST_PARTS and values <= _MOST_VALUES


def _sizes(where: Where) -> tuple[int, int, int]:
    """How many levels, parts and values there are."""
    [(key, held)] = where.items()
    if key not in ("$and", "$or"):
        [value] = held.values()
        return 1, 1, len(value) if isinstance(value, list) else 1
    levels, parts, values = zip(*map(_sizes, held), strict=True)
    return 1 + max(levels), 1 + sum(parts), sum(values)
