"""Records, of a database or an API, as items: their text, their identity, their metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence
from typing import Any

from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders.encoding import clean
from lazyrag.loaders.leaves import Mapping, Value, leaves
from lazyrag.loaders.selection import Pair, Selection
from lazyrag.sources.items import FailedItem, SourceItem, plain
from lazyrag.validation import text_list

_MOST_NAMES = 50


class Number(str):
    """A number as it is written, so that its text stays that one."""

    __slots__ = ()

    @property
    def value(self) -> int | float | None:
        """The number; None for one that no program could compare."""
        try:
            return int(self)
        except ValueError:
            return plain(float(self)) if len(self) < 400 else None


class RecordForm:
    """How a record becomes an item.

    Args:
        identity: Names of the fields that tell records apart; one as a text.
        template: A text with names of fields in braces, as in ``"{name} costs {price}"``; None for all ``fields``, a
            line ``name: value`` for each.
        fields: The fields that become text, in this order; () for all.
        metadata: The fields that become metadata.

    Raises:
        ConfigError: If the identity names no field, or another one is of the wrong kind.

    Example:
        >>> form = RecordForm("id", "{tea} costs {price}", metadata=["price"])
        >>> item = form.item({"id": 7, "tea": "Sencha", "price": 12.5}, "row 1")
        >>> item.identity, item.content.decode(), item.metadata
        ('7', 'Sencha costs 12.5', {'price': 12.5})
    """

    def __init__(
        self,
        identity: str | Sequence[str],
        template: str | None = None,
        fields: Sequence[str] = (),
        metadata: Sequence[str] = (),
    ) -> None:
        self.identity = text_list("identity", [identity] if isinstance(identity, str) else identity)
        if not self.identity:
            msg = "identity names no field; give those that tell records apart, such as 'id'."
            raise ConfigError(msg)
        self._selection = Selection(fields, template)
        self.metadata = text_list("metadata", metadata)
        self._missing = dict.fromkeys([*self.identity, *self._selection.wanted, *self.metadata])
        self._known: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All fields that it names."""
        return tuple(dict.fromkeys([*self.identity, *self._selection.wanted, *self.metadata]))

    def item(self, record: AnyMapping[str, Any] | Mapping, where: str) -> SourceItem | FailedItem:
        """One record.

        Args:
            record: A row by column, or an object of JSON.
            where: Where it stands, for messages.
        """
        pairs = list(leaves(record if isinstance(record, Mapping) else _nested(record)))
        self._look_for_missing(pairs)
        values = [_value_at(record, name) for name in self.identity]
        if any(value is None or value == "" for value in values):
            names = ", ".join(map(repr, self.identity))
            return FailedItem(where, f"Its identity ({names}) is empty. Name fields that each record has.")
        identity = str(values[0]) if len(values) == 1 else json.dumps(list(map(str, values)), ensure_ascii=False)
        text = self._selection.text_of([pair for pair in pairs if pair[1].strip()], "\n")
        if not text.strip():
            return FailedItem(identity, "It holds no text in the fields that were named.", transient=False)
        metadata = {name: plain(_value_at(record, name)) for name in self.metadata}
        return SourceItem(identity, clean(text).encode("utf-8", "replace"), ".txt", metadata)

    def check_all_found(self) -> None:
        """Called after the last record: a name that none of them has is a misspelt one.

        Raises:
            LoadError: Naming it, and the fields that there are.
        """
        if self._known:
            for name in self._missing:
                msg = f"No record has the field {name!r}. {known_names(name, self._known)}"
                raise LoadError(msg)

    def _look_for_missing(self, pairs: list[Pair]) -> None:
        for name in list(self._missing):
            if Selection((name,)).text_of(pairs, "\n") or any(path == name for path, _ in pairs):
                del self._missing[name]
        if len(self._known) < _MOST_NAMES:
            self._known.update(dict.fromkeys(path for path, _ in pairs))


def json_value(data: bytes, what: str) -> Value:
    """An answer as JSON, its numbers as they are written.

    Args:
        data: The answer.
        what: What it is the answer of, for the message.

    Raises:
        LoadError: If it is none.
    """
    try:
        value: Value = json.loads(
            data, object_pairs_hook=Mapping, parse_int=Number, parse_float=Number, parse_constant=lambda _: None
        )
    except (ValueError, RecursionError) as exc:
        msg = f"{what} is no JSON ({type(exc).__name__}: {exc!s:.100})."
        raise LoadError(msg) from exc
    return value


def value_at(value: Value, path: str) -> Value:
    """The value at a path of names; None where nothing is there.

    Args:
        value: Any value.
        path: Names with dots between them; "" for the value itself.

    Example:
        >>> value_at(json_value(b'{"data": {"next": "abc"}}', "It"), "data.next")
        'abc'
    """
    for name in path.split(".") if path else ():
        value = dict(value.items).get(name) if isinstance(value, Mapping) else None
    return value


def _value_at(record: AnyMapping[str, Any] | Mapping, name: str) -> Any:
    """A field as metadata has it. A name that is a field's own comes before one that is a path."""
    if not isinstance(record, Mapping):
        return record.get(name)
    own = dict(record.items)
    return _as_python(own[name] if name in own else value_at(record, name))


def _as_python(value: Value) -> Any:
    if isinstance(value, Number):
        return value.value
    if isinstance(value, list):
        return [_as_python(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _as_python(one) for name, one in value.items}
    return value


def _nested(record: AnyMapping[str, Any]) -> Mapping:
    """A row as JSON would have it; bytes are no text."""
    return Mapping([(str(name), _cell(value)) for name, value in record.items()])


def _cell(value: Any) -> Value:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return None
    if isinstance(value, (list, tuple)):
        return [_cell(one) for one in value]
    if isinstance(value, AnyMapping):
        return _nested(value)
    as_date = getattr(value, "isoformat", None)
    return as_date() if callable(as_date) else str(value)
