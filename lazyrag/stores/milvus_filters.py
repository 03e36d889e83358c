"""Filters as Milvus's expressions, without any character in them that would need escaping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lazyrag.data.fields import DocField, Schema
from lazyrag.data.filters import Condition, Filter
from lazyrag.errors import StoreError
from lazyrag.stores.milvus_schema import KEY, ROW, columns_of
from lazyrag.stores.milvus_texts import CUT, field_text, plain_text
from lazyrag.stores.pushdown import Pushed, pushed_down
from lazyrag.types import FieldValue

_ORDERINGS = {"gt": (">", "<="), "ge": (">=", "<"), "lt": ("<", ">="), "le": ("<=", ">")}
_MOST_VALUES = 10_000  # in one list: beyond, messages grow too long, and we look ourselves


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition in Milvus's language, and its negation.

    Milvus Lite 2.5 cannot negate all that it can say; both are written side by side, and no expression has a ``not``
    in front of it.

    Args:
        text: What holds.
        negation: What holds where that does not.
    """

    text: str
    negation: str


NEVER = f'{KEY} < ""'
ALWAYS = f'{KEY} >= ""'
IS_ASIDE = f'{ROW} >= "1"'
NOT_ASIDE = f'{ROW} < "1"'


def literal(text: str) -> str:
    """A text in quotes: the one way by which values get into expressions.

    Only what `plain_text` and `field_text` write is let through, which is letters, digits and full stops: servers of
    different versions unescape texts by different rules, and nothing that is written here depends on them.

    Raises:
        StoreError: If the text holds anything else.

    Example:
        >>> literal("s27")
        '"s27"'
    """
    if not text or (text.isascii() and text.replace(".", "").isalnum()):
        return f'"{text}"'
    msg = f"{text!r:.80} cannot stand in an expression of Milvus: a value is to be encoded before. This is a bug."
    raise StoreError(msg, store="milvus")


def key_among(keys: Sequence[str]) -> str:
    """What holds for the rows of some keys, at least one.

    Example:
        >>> key_among(["a", "b"])
        'key in ["a","b"]'
    """
    return f"{KEY} in [{','.join(literal(plain_text(key)) for key in keys)}]"


def key_after(key: str) -> str:
    """What holds for the rows behind a key.

    Example:
        >>> key_after("a")
        'key > "a"'
    """
    return f"{KEY} > {literal(plain_text(key))}"


def all_of(*texts: str) -> str:
    """What holds where each of some expressions does.

    Example:
        >>> all_of('f0 > ""', "")
        'f0 > ""'
    """
    given = [text for text in texts if text]
    return given[0] if len(given) == 1 else " and ".join(f"({text})" for text in given)


class MilvusDialect:
    """See `Dialect`. Every field's column holds `field_text`, of which the first `CUT` characters.

    A literal that is shorter than that compares with the cut text as with the whole: they differ, if at all, within
    its length or right behind it. Longer ones, and what looks into texts and arrays, are left to us.

    Args:
        fields: Of the collection.

    Example:
        >>> from lazyrag.data.fields import DataType
        >>> dialect = MilvusDialect({"author": DocField(DataType.VARCHAR)})
        >>> dialect.condition(Condition("author", "in", ["a", None]))
        Expression(text='f0 in ["sa",""]', negation='f0 not in ["sa",""]')
    """

    def __init__(self, fields: Schema) -> None:
        self._fields = fields
        self._columns = columns_of(fields)

    def condition(self, condition: Condition) -> Expression | None:
        """See `Dialect.condition`."""
        column, op, value = self._columns.get(condition.field), condition.op, condition.value
        if column is None or op == "contains":
            return None
        field = self._fields[condition.field]
        if op == "exists":
            return _either(f'{column} != ""', f'{column} == ""', is_first=value)
        if op in ("in", "not in"):
            return self._among(column, field, value, is_in=op == "in")
        text = _short(field, value)
        return None if text is None else _compared(column, op, text)

    def all_of(self, parts: Sequence[Expression]) -> Expression:
        """See `Dialect.all_of`."""
        return Expression(
            _joined(" and ", [one.text for one in parts]), _joined(" or ", [one.negation for one in parts])
        )

    def any_of(self, parts: Sequence[Expression]) -> Expression:
        """See `Dialect.any_of`."""
        return Expression(
            _joined(" or ", [one.text for one in parts]), _joined(" and ", [one.negation for one in parts])
        )

    def negated(self, part: Expression) -> Expression:
        """See `Dialect.negated`."""
        return Expression(part.negation, part.text)

    def never(self) -> Expression:
        """See `Dialect.never`."""
        return Expression(NEVER, ALWAYS)

    def _among(self, column: str, field: DocField, values: Sequence[FieldValue], *, is_in: bool) -> Expression | None:
        if field.element_type is not None or len(values) > _MOST_VALUES:
            return None  # of an array any element may be meant
        texts = [_short(field, one) for one in dict.fromkeys(values)]
        if None in texts:
            return None
        if not texts:  # Milvus Lite 2.5 fails on an empty list
            return _either(NEVER, ALWAYS, is_first=is_in)
        listed = f"[{','.join(map(str, texts))}]"
        return _either(f"{column} in {listed}", f"{column} not in {listed}", is_first=is_in)


def divided(filter: Filter | None, fields: Schema) -> tuple[str, Filter | None]:  # noqa: A002  the word of the domain
    """A bound filter as an expression, "" where it asks nothing of Milvus, and what is left to us.

    Example:
        >>> from lazyrag.data.fields import DataType
        >>> divided(Condition("year", "exists"), {"year": DocField(DataType.INT32)})
        ('f0 != ""', None)
    """
    pushed: Pushed[Expression] = pushed_down(filter, MilvusDialect(fields))
    return ("" if pushed.native is None else pushed.native.text), pushed.rest


def _compared(column: str, op: str, text: str) -> Expression:
    if op in ("eq", "ne"):
        return _either(f"{column} == {text}", f"{column} != {text}", is_first=op == "eq")
    sign, inverse = _ORDERINGS[op]
    if op in ("gt", "ge"):  # the "" of a missing value comes before all others
        return Expression(f"{column} {sign} {text}", f"{column} {inverse} {text}")
    return Expression(f'{column} {sign} {text} and {column} != ""', f'{column} {inverse} {text} or {column} == ""')


def _either(first: str, second: str, *, is_first: bool) -> Expression:
    return Expression(first, second) if is_first else Expression(second, first)


def _joined(word: str, texts: Sequence[str]) -> str:
    return word.join(f"({text})" for text in texts)


def _short(field: DocField, value: FieldValue) -> str | None:
    """A value's literal; None where it is so long that its column may hold only its beginning."""
    text = field_text(field, value)
    return literal(text) if len(text) < CUT else None
