"""YAML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.detect import decode
from lazyrag.loaders.records import DEEPEST as DEEPEST_LOCATED
from lazyrag.loaders.records import (
    MAX_DEPTH,
    Located,
    Mapping,
    Selection,
    Value,
    leaves,
    most_text,
    named_twice,
    nested_too_deep,
    read_value,
    records_path,
    too_deep,
)
from lazyrag.validation import known_arguments

# libyaml's parser, where PyYAML was built with it, is twenty times as fast. Neither makes objects of tags here.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])


@known_arguments
class YamlLoader:
    r"""Reads YAML as `JsonLoader` reads JSON: each value becomes a line ``path: value``.

    Values stay as they are written, numbers and dates too; no tag makes an object. Comments are left out, what an alias
    stands for is written out, and a file of several documents has a place for each.

    Args:
        records: Path to the list of records, such as ``"data.items"``; "" for the whole.
        fields: Paths of the values to take, in this order; () takes all.
        template: A text with paths in braces, as in ``"{name} costs {price}"``, instead of ``path: value``.

    Raises:
        ConfigError: If records is no text, or fields or template cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.yaml")
        ...     _ = path.write_text("teas:\n- name: Sencha\n  price: 12.50", encoding="utf-8")
        ...     YamlLoader("teas", template="{name} costs {price}").load(path).text
        'Sencha costs 12.50'
    """

    def __init__(self, records: str = "", *, fields: Sequence[str] = (), template: str | None = None) -> None:
        self._records = records_path(records)
        self._selection = Selection(fields, template)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        text = decode(path.read_bytes())
        try:
            documents = list(_documents(text))
        except yaml.YAMLError as exc:
            if "nesting depth" in str(exc):  # libyaml has a limit of its own, and reads ahead
                raise too_deep() from exc
            mark = getattr(exc, "problem_mark", None)
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            msg = f"The YAML breaks{where} ({getattr(exc, 'problem', None) or 'no character of YAML'}). Mend it."
            raise LoadError(msg) from exc
        if len(documents) > 1 and not self._records:
            return read_value(list(documents), self._selection, len(text), kind="document")
        return read_value(documents[0] if documents else None, self._selection, len(text), path=self._records)


class _Open:
    """A list or mapping whose end is still to come."""

    __slots__ = ("anchor", "is_mapping", "size", "values")

    def __init__(self, anchor: str | None, *, is_mapping: bool) -> None:
        self.anchor = anchor
        self.is_mapping = is_mapping
        self.size = 1
        self.values: list[Value] = []

    def value(self) -> Value:
        """What it is in the end."""
        if not self.is_mapping:
            return self.values
        return Mapping(list(zip(map(_name, self.values[::2]), self.values[1::2], strict=True)))


def _documents(text: str) -> Iterator[Value]:
    """The documents of a file, from the parser's events: no recursion, no objects, aliases counted.

    Raises:
        LoadError: If values are nested too deep, contain themselves, or grow far beyond the file through aliases.
    """
    # What has an anchor, with its size written out; None keeps what has none.
    known: dict[str | None, tuple[Value, int]] = {}
    within: list[_Open] = []
    most = most_text(len(text))
    for event in yaml.parse(text, Loader=_PARSER):
        if isinstance(event, yaml.CollectionStartEvent):
            within.append(_Open(event.anchor, is_mapping=isinstance(event, yaml.MappingStartEvent)))
            if len(within) > MAX_DEPTH:
                raise too_deep()
            continue
        if isinstance(event, yaml.AliasEvent):
            value, size = _aliased(event.anchor, known)
        elif isinstance(event, yaml.ScalarEvent):
            is_null = not event.style and event.value in _NULLS  # plain, not quoted
            value, size = known[event.anchor] = None if is_null else event.value, len(event.value) + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = within.pop()
            value, size = known[ended.anchor] = ended.value(), ended.size
        else:
            continue
        if not within:
            yield value
            continue
        within[-1].values.append(value)
        within[-1].size += size
        if within[-1].size > most:
            msg = f"Its aliases stand for more than {most:,} characters. Write fewer of them."
            raise LoadError(msg)


def _aliased(anchor: str, known: dict[str | None, tuple[Value, int]]) -> tuple[Value, int]:
    if anchor not in known:
        msg = f"The alias *{anchor:.80} stands for nothing before it, or for what it is in. Write its value instead."
        raise LoadError(msg)
    return known[anchor]


def _name(key: Value) -> str:
    """A key as text; what is merged in stands at the mapping's own path."""
    return "" if key == "<<" else ", ".join(text for _, text in leaves(key) if text)


def located_yaml(text: str) -> Located:
    r"""The value of a YAML text of one document, and of all that is in it, with lines; no tag makes an object.

    Raises:
        ConfigError: If it is no YAML, a name is no text or stands twice in a mapping, or values are nested too deep or
            in themselves; the message begins with the line.

    Example:
        >>> located_yaml("group: FineChunk\ntopk: 3").value["topk"]
        Located(value=3, line=2)
    """
    loader = _PARSER(text)
    try:
        node = loader.get_single_node()
        return Located(None, 1) if node is None else _located(loader, node, {}, 1)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        msg = f"line {line}: This is no YAML ({getattr(exc, 'problem', None) or exc}). Mend it."
        raise ConfigError(msg) from exc
    finally:
        loader.dispose()


def _located(loader: yaml.SafeLoader, node: yaml.Node, known: dict[yaml.Node, Located], depth: int) -> Located:
    """What a node stands for; one that aliases name is read once."""
    if node in known:
        return known[node]
    line = node.start_mark.line + 1
    if depth > DEEPEST_LOCATED:  # or it is in itself
        raise nested_too_deep(line)
    value: Any = None
    if isinstance(node, yaml.SequenceNode):
        value = [_located(loader, one, known, depth + 1) for one in node.value]
    elif isinstance(node, yaml.MappingNode):
        value = {}
        for key, held in node.value:
            name = _located(loader, key, known, depth + 1)
            if not isinstance(name.value, str):
                msg = f"line {name.line}: The name {name.value!r:.40} is no text. Put it in quotes."
                raise ConfigError(msg)
            if name.value in value:
                raise named_twice(name.value, name.line)
            value[name.value] = _located(loader, held, known, depth + 1)
    else:
        value = _scalar(loader, node, line)
    known[node] = Located(value, line)
    return known[node]


def _scalar(loader: yaml.SafeLoader, node: yaml.Node, line: int) -> Any:
    try:
        return loader.construct_object(node)
    except ValueError as exc:  # what looks like a day, and is none
        msg = f"line {line}: {node.value!r:.40} cannot be read ({exc}). Put it in quotes if it is a text."
        raise ConfigError(msg) from exc
