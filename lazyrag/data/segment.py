"""Segments: nodes as a segment store holds them, and checks of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar, cast

from lazyrag.errors import ConfigError
from lazyrag.types import Fields, JsonObject, Metadata
from lazyrag.validation import normal_name, require

K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(dict[K, V]):
    """A dict that refuses to be changed; it can be copied, compared, pickled and written as JSON
    like any other.

    (A `types.MappingProxyType` can do none of the last two.)

    Example:
        >>> season = ReadOnly({"season": "spring"})
        >>> season["season"], season | {"year": 2024}
        ('spring', {'season': 'spring', 'year': 2024})
        >>> season["season"] = "autumn"
        Traceback (most recent call last):
        ...
        TypeError: This mapping is read-only. Change a copy of it: dict(...).
    """

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("This mapping is read-only. Change a copy of it: dict(...).")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[K, V]]]:
        return type(self), (dict(self),)

    def copy(self) -> dict[K, V]:
        """A dict of its own, to be changed at will."""
        return dict(self)


LAZY_ROOT_NAME = "lazyllm_root"
"""Name of the group of root nodes: one node per document, with its complete text."""
TABLE = "table"
"""Name of the group of tables, and kind of a root node's locations that hold one, which are not
shown as locations."""

HIDDEN = "hidden"
"""Kind of a root node's locations of text that readers of the file do not see; the label says
why. They are not shown as locations, either."""

LIST_ITEM = "list item"
"""Kind of a root node's locations of list items; the label is the level, from 1."""
CODE_BLOCK = "code block"
"""Kind of a root node's locations of code; the label is its language, "" if unknown."""
TITLE = "title"
"""Kind of a root node's locations of titles that begin no section, such as those of slides."""
NOTE_CALL = "note call"
"""Kind of a root node's locations of references to footnotes, such as ``[1]``; the label is the
note's."""

NOT_SHOWN = frozenset([TABLE, HIDDEN, LIST_ITEM, CODE_BLOCK, TITLE, NOTE_CALL])
"""Kinds of a root node's locations that are not shown as such."""

IMAGE = "image"
"""Name of the group of pictures, and of the metadata of its nodes that says where their bytes
are."""

Content: TypeAlias = "str | int | float | bool | Mapping[str, Any] | list[Any]"
"""Content of a node: text or another JSON value."""

Span: TypeAlias = tuple[int, int]
"""Start and end of a stretch of text, in characters, end excluded."""

EMPTY: ReadOnly[str, Any] = ReadOnly()

_FRAMES = [length.to_bytes(8, "little") for length in range(4096)]  # looked up faster than made


class Location(NamedTuple):
    """A named stretch of a document's text: a page, a row, or the text under a heading.

    A tuple, as a table has millions of rows.

    Args:
        start: First character in the document's text.
        end: One past the last character.
        kind: ``"page"``, ``"row"``, ``"heading"`` and the like; loaders may add kinds.
        label: ``"3"`` for a page, ``"Setup > Install"`` for a heading.
    """

    start: int
    end: int
    kind: str
    label: str


Locations: TypeAlias = tuple[Location, ...]
"""Named stretches of a text, in order."""


class Segment(NamedTuple):
    """One stored node. Values are never changed after they are written.

    A tuple, as there are many: it is made four times as fast as another value of twelve parts.

    Args:
        uid: The node's deterministic id.
        build: Number of the build that wrote it, at least 0; with the uid it makes the physical
            `key`.
        group: Name of its node group.
        document_id: Uid of the root node of its document.
        path: Identity of its document: the path relative to the dataset, or the id a user gave.
        parent: Uid of its parent; None for a root node.
        number: Its ordinal among the nodes of its group in its document, from 1.
        content: Text, or another JSON value.
        metadata: Its own metadata; for a root node, its file's.
        fields: The filterable fields: the file's, overlaid with the node's own.
        span: Its position in the text of its source, see `DocNode.source`; None if the text was
            rewritten.
        locations: For a root node: its pages or headings.
    """

    uid: str
    build: int
    group: str
    document_id: str
    path: str
    parent: str | None
    number: int
    content: Content
    metadata: Metadata = EMPTY
    fields: Fields = EMPTY
    span: Span | None = None
    locations: Locations = ()

    @property
    def key(self) -> str:
        """The physical key in a store."""
        return store_key(self.uid, self.build)


def store_key(uid: str, build: int) -> str:
    """A node's physical key. Keys sort as their uids do, since all uids have one length.

    Example:
        >>> store_key("a" * 32, 7)
        'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-7'
    """
    return f"{uid}-{build}"


def key_uid(key: str) -> str:
    """The uid in a physical key.

    Example:
        >>> key_uid(store_key("a" * 32, 7)) == "a" * 32
        True
    """
    return key.rpartition("-")[0]


def key_build(key: str) -> int:
    """The number of the build in a physical key.

    Example:
        >>> key_build(store_key("a" * 32, 7))
        7
    """
    return int(key.rpartition("-")[2])


def root_uid(document: str) -> str:
    """Uid of a document's root node, from the document's identity.

    Args:
        document: The path relative to the dataset, with forward slashes, or the user's id; in any
            normal form. Never an absolute path: a dataset that moves keeps its uids.

    Example:
        >>> root_uid("guide/setup.md") == root_uid("guide/setup.md") != root_uid("setup.md")
        True
    """
    return digest(["root", normal_name(document)])


def child_uids(parent: str, group: str, ordinals: Iterable[int]) -> list[str]:
    """Uids of nodes that a group made of a parent.

    Args:
        parent: The parent's uid.
        group: Name of the group.
        ordinals: Which of the nodes, from 1.

    Example:
        >>> child_uids("a" * 32, "block", [2]) == [digest(["a" * 32, "block", "2"])]
        True
    """
    above = _framed((parent, group))  # done once: it is most of what each digest is of
    numbers = [b"%d" % ordinal for ordinal in ordinals]
    return [
        hashlib.blake2b(above + _frame(len(number)) + number, digest_size=16).hexdigest()
        for number in numbers
    ]


M = TypeVar("M", bound=Mapping[str, Any])


def check_metadata(metadata: Metadata) -> Metadata:
    """Metadata that every store can keep: names to JSON values, as a read-only copy.

    Raises:
        ConfigError: If a name is no text or a value no JSON value.

    Example:
        >>> check_metadata({"tags": ["a"]})["tags"]
        ['a']
    """
    for name, value in check_names(metadata).items():
        _check_json(f"Metadata {name!r}", value)
    return ReadOnly(copy_value(dict(metadata)))


def check_names(metadata: M) -> M:
    """Metadata as it came, if it is a mapping whose names are all text.

    Raises:
        ConfigError: If it is not.
    """
    require(isinstance(metadata, Mapping), "Metadata", metadata, "a mapping of names to values")
    others = [name for name in metadata if not isinstance(name, str)]
    require(not others, "Metadata names", others, "strings")
    return metadata


def copy_value(value: V) -> V:
    """A JSON value with lists and mappings of its own, so that nobody changes a stored one.

    Example:
        >>> tags = ["a"]
        >>> copy_value({"tags": tags})["tags"] is tags
        False
    """
    if isinstance(value, str):
        return value
    copied: Any = value
    if isinstance(value, Mapping):
        copied = {key: copy_value(member) for key, member in value.items()}
    elif isinstance(value, (list, tuple)):
        copied = [copy_value(member) for member in value]
    return cast("V", copied)


_ENCODED_AT_ONCE = 1 << 20


def digest(parts: Iterable[str], *, pieces: Sequence[str] = ()) -> str:
    """32 hexadecimal digits over some strings, each framed by its length so that no two lists
    collide by joining.

    Args:
        parts: The strings. Large ones are not copied as a whole.
        pieces: Of one more string; () for none.

    Example:
        >>> digest(["ab", "c"]) == digest(["a", "bc"])
        False
        >>> digest(["ab", "c"]) == digest(["ab"], pieces=["", "c"])
        True
    """
    texts = list(parts)
    if sum(map(len, texts)) + sum(map(len, pieces)) <= _ENCODED_AT_ONCE:
        framed = _framed([*texts, "".join(pieces)] if pieces else texts)
        return hashlib.blake2b(framed, digest_size=16).hexdigest()
    hasher = hashlib.blake2b(digest_size=16)
    for string in filter(None, [*([text] for text in texts), pieces]):
        hasher.update(_frame(sum(map(len, _encoded(string)))))
        for data in _encoded(string):
            hasher.update(data)
    return hasher.hexdigest()


def _encoded(pieces: Sequence[str]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _ENCODED_AT_ONCE):
            yield piece[start : start + _ENCODED_AT_ONCE].encode("utf-8", "surrogatepass")


def _framed(texts: Sequence[str]) -> bytes:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    if max(map(len, encoded), default=0) < len(_FRAMES):  # no calls: there are many digests
        return b"".join([_FRAMES[len(data)] + data for data in encoded])
    return b"".join([_frame(len(data)) + data for data in encoded])


def _frame(length: int) -> bytes:
    return _FRAMES[length] if length < len(_FRAMES) else length.to_bytes(8, "little")


def check_content(value: Any) -> Content:
    """A node's content, checked: text or another JSON value; numpy scalars become Python's.

    Raises:
        ConfigError: If it is something else.
    """
    if isinstance(value, str):
        return str.__str__(value)  # a subclass, such as numpy's, becomes plain text
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    _check_json("A node's content", value)
    checked: Content = copy_value(value)
    return checked


def common_metadata(metadata: Sequence[Metadata]) -> JsonObject:
    """The values that several metadata share.

    Example:
        >>> common_metadata([{"kind": "tea", "page": 1}, {"kind": "tea", "page": 2}])
        {'kind': 'tea'}
    """
    common = dict(metadata[0]) if metadata else {}
    for values in metadata:
        common = {
            name: value
            for name, value in common.items()
            if name in values and values[name] == value
        }
    return common


def _check_json(name: str, value: Any) -> None:
    if value is None or type(value) in (str, int, bool):  # as most are
        return
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise ConfigError(
            f"{name} must be a string or another JSON value; got {value!r:.60}"
            f" ({type(value).__name__})."
        ) from exc


def content_text(content: Content) -> str:
    """Content as text: text as it is, numbers as Python writes them, mappings and lists as JSON.

    Example:
        >>> content_text("a"), content_text(0), content_text({"名": 1})
        ('a', '0', '{"名": 1}')
    """
    if isinstance(content, str):
        return content
    if isinstance(content, (Mapping, list)):
        return json.dumps(content, ensure_ascii=False)
    return str(content)
