"""What is defined now, beside what is live: whether a live group is the one that its definition would give."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from lazyrag.data.fields import Schema
from lazyrag.data.segment import LAZY_ROOT_NAME, digest
from lazyrag.document.code import code_text
from lazyrag.document.group import GroupGraph, NodeGroup, identity
from lazyrag.document.ledger.tree import LiveGroup, Tree
from lazyrag.errors import ConfigError, NotRegisteredError
from lazyrag.stores.names import collection_name


class Definitions:
    """The groups that a Document defines, as its ledger knows them: by fingerprints.

    What a fingerprint cannot see (a client, a model) tells two definitions apart only within this process: when one is
    defined in the other's place. A later process takes the stored one for its own.

    Args:
        document: Name of the Document.
        token: Gives what tells its ledger apart from others with that name.
        graph: Its group definitions.
        schema: The filterable fields: nodes carry their values, so that other fields need other nodes.
    """

    def __init__(self, document: str, token: Callable[[], str], graph: GroupGraph, schema: Schema) -> None:
        self.graph = graph
        self._document = document
        self._token = token
        self._root = schema_digest(schema)
        self._accepted: dict[str, tuple[int, ...]] = {}  # revisions of the definitions that a live group was made by
        self._fingerprints: dict[str, str] = {}
        self._changes = -1

    def line(self, name: str) -> list[NodeGroup]:
        """A group's definition and those above it, without the root group's."""
        return [] if name == LAZY_ROOT_NAME else self.graph.definitions(name)

    def fingerprint(self, name: str) -> str:
        """Of a group's definition and those above it.

        Raises:
            NotRegisteredError: If the group, or one above it, is not defined.
            ConfigError: If definitions form a circle.
        """
        if self._changes != self.graph.changes:
            self._fingerprints = {}
            self._changes = self.graph.changes
        found = self._fingerprints.get(name)
        if found is None:
            found = self._fingerprints[name] = digest([identity(self.line(name)), self._root])
        return found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody defines anything meanwhile."""
        with ExitStack() as stack:
            for lock in sorted(self.graph.locks(), key=id):
                stack.enter_context(lock)
            yield

    def is_defined(self, name: str) -> bool:
        """Whether a group is defined, and those above it."""
        try:
            self.line(name)
        except (NotRegisteredError, ConfigError):
            return False
        return True

    def is_current(self, group: LiveGroup) -> bool:
        """Whether a live group is what its definition would give now."""
        return (
            self.is_defined(group.name)
            and self.fingerprint(group.name) == group.fingerprint
            and not self.is_replaced(group.name)
        )

    def is_replaced(self, name: str) -> bool:
        """Whether the definition was replaced in this process by one that differs in what a fingerprint cannot see."""
        revisions = self.revisions(name)
        return self._accepted.setdefault(name, revisions) != revisions

    def revisions(self, name: str) -> tuple[int, ...]:
        """What tells a group's present definition, in this process, from those of the same fingerprint before it."""
        return tuple(one.revision for one in self.line(name))

    def accept(self, name: str, revisions: tuple[int, ...]) -> None:
        """What is live of a group from now on was made by a definition of these revisions."""
        self._accepted[name] = revisions

    def sees_all(self, name: str) -> bool:
        """Whether fingerprints see all that decides about a group."""
        return not any(self.revisions(name))

    def current(self, tree: Tree) -> dict[str, LiveGroup]:
        """The groups of a tree that are what their definitions would give now."""
        return {name: group for name, group in tree.groups.items() if self.is_current(group)}

    def all_fingerprints(self) -> dict[str, str]:
        """Fingerprints of all groups, by name."""
        return {name: self.fingerprint(name) for name in (LAZY_ROOT_NAME, *self.graph) if self.is_defined(name)}

    def collections(self, name: str, embed_key: str | None = None) -> Callable[[str], str]:
        """From a suffix to the name of a collection for a group's segments, or its vectors under an embed key."""
        definition = self._token() + self.fingerprint(name)
        return lambda suffix: collection_name(self._document, name, definition + suffix, embed_key)


def schema_digest(schema: Schema) -> str:
    """Digest of the filterable fields.

    Example:
        >>> from lazyrag.data.fields import make_schema
        >>> schema_digest(make_schema({})) == schema_digest(make_schema(None))
        True
    """
    told: Mapping[str, object] = {
        name: [one.data_type.value, one.element_type and one.element_type.value, one.default_value, one.max_size]
        for name, one in schema.items()
    }
    return digest([json.dumps(told, sort_keys=True, default=str)])


def embed_identity(embedder: object, told: str) -> str:
    """Which model embeds: what it says of itself, else its name and code, never its closure.

    Args:
        embedder: What a user gave as embed.
        told: Its own ``identity`` or model name; "" where it says nothing.

    Example:
        >>> embed_identity(lambda text: [1.0], "") == embed_identity(lambda text: [2.0], "")
        False
    """
    if told:
        return told
    while isinstance(embedder, functools.partial):
        embedder = embedder.func
    function = getattr(embedder, "__func__", embedder)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004  its code is wanted
    return f"code:{digest([name, code_text(code) if code is not None else ''])}"
