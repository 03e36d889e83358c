"""The steps of ingestion."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from lazyrag.data.fields import Schema
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, digest
from lazyrag.document.fingerprint import Fingerprint, code_text, fingerprint
from lazyrag.document.tree import LiveGroup, Tree
from lazyrag.errors import AlreadyRegisteredError, ConfigError, NotRegisteredError, known_names, nearest
from lazyrag.stores.protocol import collection_name
from lazyrag.transforms.base import (
    AdaptiveTransform,
    Entry,
    NodeTransform,
    TransformArgs,
    listed_transforms,
    reads_text_only,
    transforms,
)
from lazyrag.transforms.splitters import SentenceSplitter

_revisions = itertools.count(1)
_ROOT_SPELLINGS = frozenset([LAZY_ROOT_NAME, "lazyllm-root"])


def group_name(name: str) -> str:
    """A group's name with both spellings of the root group's brought to one.

    Example:
        >>> group_name("lazyllm-root")
        'lazyllm_root'
    """
    if not isinstance(name, str) or not name.strip():
        msg = f"A node group's name is a non-empty text, not {name!r}."
        raise ConfigError(msg)
    return LAZY_ROOT_NAME if name in _ROOT_SPELLINGS else name


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A named set of nodes: every node of the parent group, transformed.

    Args:
        name: Its name.
        parent: Name of the parent group.
        transform: From a parent node to what `lazyrag.transforms.base.run_transform` reads.
        fingerprint: Of the transform and its parameters, the parent's left out.
        version: What the user says tells it from others that look the same; None where nothing was said.
        revision: A number of its own, in this process, for a definition of which something cannot be seen and for
            which no version speaks; 0 for others. It is never stored.
        sees_nodes: Whether the transform looks at nodes; else it sees nothing but their content.
        given: What the user gave as the transform, instantiated.
        path_told: What of a document's path decides about the result; None where nothing does.
    """

    name: str
    parent: str
    transform: Callable[[DocNode], Any]
    fingerprint: Fingerprint
    version: str | None = None
    revision: int = 0
    sees_nodes: bool = False
    given: Any = None
    path_told: Callable[[str], str] | None = None

    def differs_from(self, other: NodeGroup) -> str:
        """In what two definitions of one name differ; "" if they are the same, as far as one can tell."""
        if self.parent != other.parent:
            return "another parent"
        if self.fingerprint.value != other.fingerprint.value:
            return "another transform"
        if self.version is not None or not self.fingerprint.tells_apart(other.fingerprint):
            return ""
        names = ", ".join(repr(name) for name, _ in self.fingerprint.unseen)
        return f"the same code over other objects ({names}), which may or may not do the same"


def make_group(
    name: str, transform: Any, parent: str, *, trans_node: bool, version: str | None, kwargs: dict[str, Any]
) -> NodeGroup:
    """A group from what a user gave as its transform.

    Raises:
        ConfigError: If the name, the transform or its parameters are none.
        NotRegisteredError: If a transform is named that is not registered.
    """
    name = group_name(name)
    if name == LAZY_ROOT_NAME:
        msg = f"{LAZY_ROOT_NAME!r} is the group of whole documents, which loaders make. Choose another name."
        raise ConfigError(msg)
    if version is not None and not isinstance(version, str):
        msg = f"version is {version!r}; give a text, such as '2' or the name of a model."
        raise ConfigError(msg)
    entries = listed_transforms(name, transform)
    if entries is None:
        made, on_node, sees_nodes, mark = _made(name, transform, kwargs, trans_node=trans_node, version=version)
    else:
        made, on_node, sees_nodes, mark = _made_of(name, entries, kwargs, trans_node=trans_node, version=version)
    told = getattr(made, "path_told", None)
    return NodeGroup(
        name, group_name(parent), on_node, mark, version, sees_nodes=sees_nodes, given=made, path_told=told
    )


def _made(
    name: str, transform: Any, kwargs: dict[str, Any], *, trans_node: bool, version: str | None
) -> tuple[Any, Callable[[DocNode], Any], bool, Fingerprint]:
    """A transform: instantiated, as a function of nodes, whether it sees those, and its fingerprint."""
    made = _instantiated(name, transform, kwargs)
    is_given_nodes = isinstance(made, NodeTransform) or trans_node
    sees_nodes = is_given_nodes and not reads_text_only(made)
    if is_given_nodes:
        on_node = made
    else:

        def on_node(node: DocNode) -> Any:
            return made(node.content)

    return made, on_node, sees_nodes, fingerprint(made, "node" if trans_node else "content", version or "")


def _made_of(
    name: str, entries: Sequence[TransformArgs], kwargs: dict[str, Any], *, trans_node: bool, version: str | None
) -> tuple[Any, Callable[[DocNode], Any], bool, Fingerprint]:
    """The same of entries. A single one without pattern is the transform that it names, as if given itself."""
    if kwargs:
        msg = (
            f"create_node_group({name!r}) got the keyword {next(iter(kwargs))!r} beside its transform's own arguments; "
            f"give TransformArgs(f, kwargs={kwargs!r:.80}). "
            f"{known_names(next(iter(kwargs)), ('name', 'transform', 'parent', 'trans_node', 'replace', 'version'))}"
        )
        raise ConfigError(msg)
    ready, marks, sees = [], [], []
    for args in entries:
        as_node = trans_node if args.trans_node is None else args.trans_node
        given, on_node, sees_nodes, mark = _made(name, args.f, dict(args.kwargs), trans_node=as_node, version=version)
        if len(entries) == 1 and args.pattern is None:
            return given, Entry(on_node, args, given) if args.num_workers else on_node, sees_nodes, mark
        ready.append(Entry(on_node, args, given))
        sees.append(sees_nodes)
        marks += [mark, fingerprint(args.pattern) if callable(args.pattern) else Fingerprint(repr(args.pattern))]
    unseen = tuple((f"transform[{at // 2}].{what}", one) for at, mark in enumerate(marks) for what, one in mark.unseen)
    whole = AdaptiveTransform(ready)
    return whole, whole, any(sees), Fingerprint(digest(["list", *(mark.value for mark in marks)]), unseen)


def _instantiated(name: str, transform: Any, kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The callable behind a name, a class, an instance or a function."""
    if isinstance(transform, str):
        transform = transforms[transform]
    if isinstance(transform, type):
        try:
            inspect.signature(transform).bind(**kwargs)
        except TypeError as exc:
            raise ConfigError(_wrong_parameters(name, transform, kwargs, exc)) from exc
        transform = transform(**kwargs)
    elif kwargs:
        msg = (
            f"create_node_group({name!r}) got the keyword {next(iter(kwargs))!r}, which only a transform class takes. "
            f"{known_names(next(iter(kwargs)), ('name', 'transform', 'parent', 'trans_node', 'replace', 'version'))}"
        )
        raise ConfigError(msg)
    if callable(getattr(transform, "create_groups", None)):
        told = f"The transform of {name!r} is {transform!r:.80}"
        msg = f"{told}, which writes groups itself: create_groups(docs, {name!r})."
        raise ConfigError(msg)
    if not callable(transform):
        msg = (
            f"The transform of {name!r} is {transform!r}; give a function, a NodeTransform class or instance, "
            "another callable, the name of a registered transform, TransformArgs, or a list of those."
        )
        raise ConfigError(msg)
    if inspect.iscoroutinefunction(transform) or inspect.isasyncgenfunction(transform):
        msg = f"The transform of {name!r} is asynchronous; give a function that returns its nodes."
        raise ConfigError(msg)
    made: Callable[..., Any] = transform
    return made


def _wrong_parameters(name: str, transform: type, kwargs: dict[str, Any], exc: TypeError) -> str:
    known = [parameter for parameter in inspect.signature(transform).parameters if parameter != "self"]
    unknown = [keyword for keyword in kwargs if keyword not in known]
    near = nearest(unknown[0], known) if unknown else None
    return (
        f"create_node_group({name!r}): {transform.__name__} cannot be made with {kwargs!r} ({exc}). "
        f"Its parameters: {', '.join(known) or 'none'}." + (f" Did you mean {near!r}?" if near else "")
    )


class GroupGraph:
    """Definitions of groups by name, over those of a base that they may shadow.

    Args:
        base: Definitions to fall back to: a class's for an instance.
    """

    def __init__(self, base: GroupGraph | None = None) -> None:
        self._base = base
        self.lock = threading.RLock()
        self._groups: dict[str, NodeGroup] = {}
        self.revision = 0  # grows with every definition here

    @property
    def changes(self) -> int:
        """Grows with every definition here or in the base."""
        return self.revision + (self._base.changes if self._base else 0)

    def line_of_bases(self) -> list[GroupGraph]:
        """The graph, its base, the base of that one and so on."""
        return [self, *(self._base.line_of_bases() if self._base is not None else ())]

    def define(self, group: NodeGroup, *, replace: bool) -> None:
        """Enter a definition. The same one again changes nothing.

        Raises:
            NotRegisteredError: If the parent is not defined.
            ConfigError: If the group would stand above itself.
            AlreadyRegisteredError: If another group has the name here and ``replace`` is false.
        """
        with ExitStack() as stack:  # what is checked holds until it is entered
            for lock in sorted(self.locks(), key=id):
                stack.enter_context(lock)
            self._define(group, replace=replace)

    def _define(self, group: NodeGroup, *, replace: bool) -> None:
        if group.parent not in {LAZY_ROOT_NAME, group.name}:
            self[group.parent]  # raises where it is not defined
        line = [group.name]
        parent = group.parent
        while parent != LAZY_ROOT_NAME:
            if parent == group.name:
                msg = f"{group.name!r} would stand above itself: {' <- '.join([*line, parent])}. Choose another parent."
                raise ConfigError(msg)
            line.append(parent)
            parent = self[parent].parent
        present = self._groups.get(group.name)
        if present is not None:
            difference = group.differs_from(present)
            if not difference:
                return
            if not replace:
                msg = (
                    f"The node group {group.name!r} is defined already, with {difference}. Pass replace=True to build "
                    "it anew, or choose another name. Definitions of the same code and the same version='...' are one."
                )
                raise AlreadyRegisteredError(msg)
        if group.fingerprint.unseen and group.version is None:
            group = dataclasses.replace(group, revision=next(_revisions))
        self._groups[group.name] = group
        self.revision += 1

    def __getitem__(self, name: str) -> NodeGroup:
        group = self._groups.get(name)
        if group is not None:
            return group
        if self._base is not None and name in self._base:
            return self._base[name]
        msg = (
            f"There is no node group {name!r}. {known_names(str(name), (*self, LAZY_ROOT_NAME))} "
            "Define it with create_node_group."
        )
        raise NotRegisteredError(msg)

    def __contains__(self, name: object) -> bool:
        return name in self._groups or (self._base is not None and name in self._base)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._groups, *(self._base or ())}))

    def line(self, name: str) -> list[str]:
        """A group and those above it, the root group last.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If definitions of class and instance together form a circle.
        """
        return [*(group.name for group in self.definitions(name)), LAZY_ROOT_NAME]

    def definitions(self, name: str) -> list[NodeGroup]:
        """The definitions of a group and of those above it, without the root group; each is looked up once.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If definitions of class and instance together form a circle.
        """
        line: list[NodeGroup] = []
        while name != LAZY_ROOT_NAME:
            line.append(self[name])
            name = line[-1].parent
            if name in [group.name for group in line]:
                names = " <- ".join([*(group.name for group in line), name])
                msg = f"The node groups {names} form a circle. Redefine one with replace=True."
                raise ConfigError(msg)
        return line

    def locks(self) -> list[Any]:
        """The locks of this graph and its bases; while they are held, nothing is defined."""
        return [self.lock, *(self._base.locks() if self._base is not None else ())]


def identity(line: Sequence[NodeGroup]) -> str:
    """Digest of a group's definition and those above it, equal in every process."""
    return digest([f"{group.name}={group.fingerprint.value}" for group in line])


def built_in_groups() -> GroupGraph:
    """The three groups that every Document has (spec 001)."""
    graph = GroupGraph()
    for name, size, overlap in (("FineChunk", 128, 12), ("MediumChunk", 256, 25), ("CoarseChunk", 1024, 100)):
        kwargs = {"chunk_size": size, "chunk_overlap": overlap}
        group = make_group(name, SentenceSplitter, LAZY_ROOT_NAME, trans_node=False, version=None, kwargs=kwargs)
        graph.define(group, replace=False)
    return graph


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


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done for every document.

    Args:
        group: The group it makes or indexes.
        analyser: Set for indexing the group's terms.
        embed_key: Set for embedding the group.
    """

    group: str
    analyser: str | None = None
    embed_key: str | None = None

    def __str__(self) -> str:
        if self.analyser is not None:
            return f"index {self.group} with {self.analyser}"
        if self.embed_key is not None:
            return f"embed {self.group} with {self.embed_key}"
        return "load" if self.group == LAZY_ROOT_NAME else f"transform {self.group}"


LOADING = Step(LAZY_ROOT_NAME)
"""Files into root nodes."""
