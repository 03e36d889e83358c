"""YAML: `YamlLoader`, and YAML with line numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.detect import decode
from lazyrag.loaders.records import (
    MAX_DEPTH,
    MAX_LOCATED_DEPTH,
    JsonLoader,
    LocatedValue,
    OrderedFields,
    RecordValue,
    leaves,
    most_text,
    named_twice,
    nested_too_deep,
    read_value,
    too_deep,
)

# libyaml's parser, if PyYAML has it, is twenty times as fast. Neither creates objects for tags.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])


class YamlLoader(JsonLoader):
    r"""Reads YAML as `JsonLoader` reads JSON: each value becomes a line ``path: value``.

    Values stay as they are spelled, numbers and dates too; tags create no objects. Comments are
    skipped, aliases expanded, and each document of a file is a location.

    Args:
        records: Path to the list of records, such as ``"data.items"``; "" for the complete value.
        fields: Paths to read, in this order; () for all.
        template: A text with paths in braces, as in ``"{name} costs {price}"``, instead of
            ``path: value``.

    Raises:
        ConfigError: If records is not a text, or fields or template are invalid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.yaml")
        ...     _ = path.write_text("teas:\n- name: Sencha\n  price: 12.50", encoding="utf-8")
        ...     YamlLoader("teas", template="{name} costs {price}").load(path).text
        'Sencha costs 12.50'
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        text = decode(path.read_bytes())
        try:
            documents = list(_documents(text))
        except yaml.YAMLError as exc:
            if "nesting depth" in str(exc):  # libyaml has a lower limit, and reads ahead
                raise too_deep() from exc
            mark = getattr(exc, "problem_mark", None)
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            raise LoadError(
                f"The YAML breaks{where} ({getattr(exc, 'problem', None) or 'invalid character'})."
                " Fix it."
            ) from exc
        if len(documents) > 1 and not self._records:
            return read_value(list(documents), self._selection, len(text), kind="document")
        return read_value(
            documents[0] if documents else None, self._selection, len(text), path=self._records
        )


class _Open:
    """A list or mapping that is not closed."""

    __slots__ = ("anchor", "is_mapping", "size", "values")

    def __init__(self, anchor: str | None, *, is_mapping: bool) -> None:
        self.anchor = anchor
        self.is_mapping = is_mapping
        self.size = 1
        self.values: list[RecordValue] = []

    def value(self) -> RecordValue:
        """The complete list or mapping."""
        if not self.is_mapping:
            return self.values
        return OrderedFields(
            list(zip(map(_name, self.values[::2]), self.values[1::2], strict=True))
        )


def _documents(text: str) -> Iterator[RecordValue]:
    """The documents of a file, from the parser's events: without recursion and objects, with
    bounded aliases.

    Raises:
        LoadError: If values are nested too deep, contain themselves, or are much longer than the
            file through aliases.
    """
    # Values by anchor, with their expanded size; those without an anchor are under None.
    by_anchor: dict[str | None, tuple[RecordValue, int]] = {}
    within = []
    most = most_text(len(text))
    for event in yaml.parse(text, Loader=_PARSER):
        if isinstance(event, yaml.CollectionStartEvent):
            within.append(_Open(event.anchor, is_mapping=isinstance(event, yaml.MappingStartEvent)))
            if len(within) > MAX_DEPTH:
                raise too_deep()
            continue
        if isinstance(event, yaml.AliasEvent):
            value, size = _aliased(event.anchor, by_anchor)
        elif isinstance(event, yaml.ScalarEvent):
            is_null = not event.style and event.value in _NULLS  # plain, not quoted
            value = None if is_null else event.value
            size = len(event.value) + 1
            by_anchor[event.anchor] = value, size
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = within.pop()
            value = ended.value()
            size = ended.size
            by_anchor[ended.anchor] = value, size
        else:
            continue
        if not within:
            yield value
            continue
        within[-1].values.append(value)
        within[-1].size += size
        if within[-1].size > most:
            raise LoadError(
                f"Its aliases expand to more than {most:,} characters. Use fewer of them."
            )


def _aliased(
    anchor: str, by_anchor: dict[str | None, tuple[RecordValue, int]]
) -> tuple[RecordValue, int]:
    if anchor not in by_anchor:
        raise LoadError(
            f"The alias *{anchor:.80} has no anchor before it, or is inside it. Write its value."
        )
    return by_anchor[anchor]


def _name(key: RecordValue) -> str:
    """A key as text; merged values are at the mapping's own path."""
    return "" if key == "<<" else ", ".join(text for _, text in leaves(key) if text)


def located_yaml(text: str) -> LocatedValue:
    r"""Parse YAML of one document, with the lines of all values; tags create no objects.

    Raises:
        ConfigError: If it is not YAML, a name is not a text or duplicate, or values are nested too
            deep or in themselves; the message begins with the line.

    Example:
        >>> located_yaml("group: FineChunk\ntopk: 3").value["topk"]
        LocatedValue(value=3, line=2)
    """
    loader = _PARSER(text)
    try:
        node = loader.get_single_node()
        return LocatedValue(None, 1) if node is None else _located(loader, node, {}, 1)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ConfigError(
            f"line {line}: This is not YAML ({getattr(exc, 'problem', None) or exc}). Fix it."
        ) from exc
    finally:
        loader.dispose()


def _located(
    loader: yaml.SafeLoader, node: yaml.Node, located: dict[yaml.Node, LocatedValue], depth: int
) -> LocatedValue:
    """The value of a node; a node with aliases is read once."""
    if node in located:
        return located[node]
    line = node.start_mark.line + 1
    if depth > MAX_LOCATED_DEPTH:  # or it is in itself
        raise nested_too_deep(line)
    value: Any = None
    if isinstance(node, yaml.SequenceNode):
        value = [_located(loader, element, located, depth + 1) for element in node.value]
    elif isinstance(node, yaml.MappingNode):
        value = {}
        for key, inner in node.value:
            name = _located(loader, key, located, depth + 1)
            if not isinstance(name.value, str):
                raise ConfigError(
                    f"line {name.line}: The name {name.value!r:.40} is not a text. Put it in"
                    " quotes."
                )
            if name.value in value:
                raise named_twice(name.value, name.line)
            value[name.value] = _located(loader, inner, located, depth + 1)
    else:
        value = _scalar(loader, node, line)
    located[node] = LocatedValue(value, line)
    return located[node]


def _scalar(loader: yaml.SafeLoader, node: yaml.Node, line: int) -> Any:
    try:
        return loader.construct_object(node)
    except ValueError as exc:  # what looks like a day, and is none
        raise ConfigError(
            f"line {line}: {node.value!r:.40} cannot be read ({exc}). Put it in quotes if it is a"
            " text."
        ) from exc
