"""Node groups: their definitions, the graph of them, and the fingerprints by which a ledger knows
them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

from lazyrag.data.fields import Schema
from lazyrag.data.node import DocNode
from lazyrag.data.segment import IMAGE, LAZY_ROOT_NAME, TABLE, digest
from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    NotRegisteredError,
    known_names,
    nearest,
)
from lazyrag.groups.fingerprint import Fingerprint, changed_parts, code_text, fingerprint
from lazyrag.ledger.tree import LiveGroup, Tree
from lazyrag.progress.blocks import acquired
from lazyrag.stores.protocol import collection_name
from lazyrag.transforms.base import (
    AdaptiveTransform,
    Entry,
    Limited,
    Memo,
    NodeTransform,
    TransformArgs,
    TransformCallable,
    listed_transforms,
    reads_text_only,
    transforms,
)
from lazyrag.transforms.pictures import PictureExtractor
from lazyrag.transforms.splitters import SectionSplitter
from lazyrag.transforms.tables import TableExtractor
from lazyrag.types import AnyCallable, Keywords
from lazyrag.validation import (
    is_list_of,
    keyword_names,
    require,
    validate_boolean,
    validate_integer,
    validate_text,
)

_revisions = itertools.count(1)
_changes = itertools.count(1)
_INDEX_TEXT = "1"  # incremented when the text of equal fields changes
_ROOT_NAMES = frozenset([LAZY_ROOT_NAME, "lazyllm-root"])
# Arguments of create_node_group.
_KEYWORDS = (
    "name transform parent trans_node ref num_workers memo replace version index_fields index_text"
).split()


def group_name(name: str) -> str:
    """Return a group's name, with one spelling for the root group.

    Example:
        >>> group_name("lazyllm-root")
        'lazyllm_root'
    """
    validate_text("The name of a node group", name)
    return LAZY_ROOT_NAME if name in _ROOT_NAMES else name


class IndexText(NamedTuple):
    """What an index reads of a node: fields of its document, and a text in place of its own.

    Args:
        fields: Names of the fields that come before the text.
        write: Returns the text of a node; None takes its own.
        group: Name of a child group whose texts come before the node's own; "" for none.
        identity: Distinguishes it from others; "" if it is the node's own text.
    """

    fields: tuple[str, ...] = ()
    write: Callable[[DocNode], str] | None = None
    group: str = ""
    identity: str = ""

    @property
    def is_fields(self) -> bool:
        """Whether it is fields and the node's own text, which follow from what is stored."""
        return bool(self.fields) and self.write is None and not self.group


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Definition of a node group: every node of the parent group, transformed.

    Args:
        name: Its name.
        parent: Name of the parent group.
        transform: From a parent node to what `lazyrag.transforms.base.run_transform` reads.
        fingerprint: Of the transform and its parameters, without the parent.
        version: The user's version; None for none.
        revision: A number that is unique in this process, if part of the definition is invisible to
            fingerprints and it has no version; otherwise 0. Never stored.
        sees_nodes: Whether the transform receives nodes instead of their content.
        user_transform: The user's transform, instantiated.
        ref: Name of the group whose nodes the transform receives, too.
        memo: Whether results are used again by the parents' texts.
        index_fields: Names of the fields that its indexes read, by embed key, ``"bm25"``, or
            ``"*"`` for all others.
        index_text: A function or the name of a child group, see `IndexText`; None for the node's
            own text.
        index_text_digest: Of that function's code, or the name.
    """

    name: str
    parent: str
    transform: TransformCallable
    fingerprint: Fingerprint
    version: str | None = None
    revision: int = 0
    sees_nodes: bool = False
    user_transform: Any = None
    ref: str | None = None
    memo: bool = False
    index_fields: tuple[tuple[str, tuple[str, ...]], ...] = ()
    index_text: Callable[[DocNode], str] | str | None = None
    index_text_digest: str = ""

    @property
    def above(self) -> list[str]:
        """Names of the groups that its nodes are made of."""
        return [self.parent] if self.ref is None else [self.parent, self.ref]

    @property
    def parts(self) -> dict[str, str]:
        """What its fingerprint covers, by name."""
        return {
            **self.fingerprint.parts,
            "parameter parent": repr(self.parent),
            "parameter ref": repr(self.ref),
            "parameter version": repr(self.version),
            "parameter trans_node": repr(self.sees_nodes),
        }

    @property
    def may_call_model(self) -> bool:
        """Whether its transform calls a model, or something invisible to fingerprints, which may be
        one.
        """
        transform = self.user_transform
        if getattr(transform, "calls_per_node", 0) or hasattr(transform, "embed"):
            return True
        if self.fingerprint.unseen:
            return True
        return any(part.startswith("model ") for part in self.parts)

    def differs_from(self, other: NodeGroup) -> str:
        """Return the difference to another definition of the name; "" if no difference is
        visible.
        """
        if self.above != other.above:
            return "another parent" if self.parent != other.parent else "another ref"
        if self.fingerprint.value != other.fingerprint.value:
            return "another transform"
        if self.index_fields != other.index_fields:
            return "other index_fields"
        if self.index_text_digest != other.index_text_digest:
            return "another index_text"
        if self.version is not None or not self.fingerprint.tells_apart(other.fingerprint):
            return ""
        names = ", ".join(repr(name) for name, _ in self.fingerprint.unseen)
        return f"the same code over other objects ({names}), which may or may not do the same"


class GroupOptions(NamedTuple):
    """Arguments of create_node_group that apply to each of its transforms."""

    trans_node: bool = False
    version: str | None = None
    num_workers: int = 0
    memo: bool = False
    ref: str | None = None
    index_fields: Any = ()
    index_text: Callable[[DocNode], str] | str | None = None


_DEFAULTS = GroupOptions()


def make_group(
    name: str,
    transform: Any,
    parent: str,
    kwargs: Keywords,
    options: GroupOptions = _DEFAULTS,
) -> NodeGroup:
    """Define a group from a user's transform.

    Raises:
        ConfigError: If the name, the transform or its parameters are invalid.
        NotRegisteredError: If a named transform is not registered.
    """
    name = group_name(name)
    if name == LAZY_ROOT_NAME:
        raise ConfigError(
            f"{name!r} is the group of whole documents, made by loaders. Choose another name."
        )
    _, version, workers, memo, ref, index_fields, index_text = options
    is_valid = version is None or isinstance(version, str)
    require(is_valid, "version", version, "a text such as '2', or None")
    entries = listed_transforms(name, transform)
    parent = group_name(parent)
    validate_integer("num_workers", workers, 0)
    if ref is not None:
        options = options._replace(ref=group_name(ref))
        is_other = options.ref not in (parent, name)
        require(is_other, "ref", ref, "a group other than this one and its parent")
    is_valid = not (validate_boolean("memo", memo) and ref)
    require(is_valid, "memo", memo, "False with ref=", "Results depend on more there.")
    is_valid = index_text is None or callable(index_text) or isinstance(index_text, str)
    expected = "a function of a node, the name of a child group, or None"
    require(is_valid, "index_text", index_text, expected)
    if entries is None:
        group = _prepare(name, parent, transform, kwargs, options)
    else:
        group = _prepare_entries(name, parent, entries, kwargs, options)
    digits = group.fingerprint
    text_digest = index_text if isinstance(index_text, str) else ""
    if callable(index_text):
        of_text = fingerprint(index_text)
        text_digest = of_text.value
        unseen = [(f"index_text: {part}", value) for part, value in of_text.unseen]
        digits = dataclasses.replace(digits, unseen=(*digits.unseen, *unseen))
    return dataclasses.replace(
        group,
        index_fields=_fields_by_key(index_fields),
        index_text=index_text,
        index_text_digest=text_digest,
        fingerprint=digits,
    )


def _fields_by_key(index_fields: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    by_key = index_fields
    if not isinstance(index_fields, Mapping):
        by_key = {"*": index_fields} if index_fields else {}
    expected = (
        "a list of names such as ['path', 'title', 'headings'], or a mapping from embed keys and"
        " 'bm25' to lists"
    )
    is_valid = all(isinstance(key, str) and is_list_of(names, str) for key, names in by_key.items())
    require(is_valid, "index_fields", index_fields, expected)
    return tuple((key, tuple(names)) for key, names in sorted(by_key.items()))


def _prepare(
    name: str, parent: str, transform: Any, kwargs: Keywords, options: GroupOptions
) -> NodeGroup:
    trans_node, version, workers, memo, ref, *_ = options
    prepared = _instantiate(name, transform, kwargs, workers)
    receives_nodes = isinstance(prepared, NodeTransform) or trans_node
    if memo:
        _require_text_only(prepared)
    digits = fingerprint(prepared, "node" if trans_node else "content", version or "")
    sees_nodes = ref is not None or (receives_nodes and not memo and not reads_text_only(prepared))
    on_node = prepared if receives_nodes else functools.partial(_on_content, prepared)
    if ref is not None:
        on_node = _with_ref(name, prepared, receives_nodes=receives_nodes)
    workers = workers or getattr(prepared, "_num_workers", 0)
    if workers and getattr(prepared, "num_workers", 0) != workers:  # which has threads of its own
        on_node = Limited(on_node, workers)
    if memo and not getattr(prepared, "calls_per_node", 0):  # which caches by itself
        on_node = Memo(on_node)
    return NodeGroup(
        name,
        parent,
        on_node,
        digits,
        version,
        sees_nodes=sees_nodes,
        user_transform=prepared,
        ref=ref,
        memo=memo,
    )


def _require_text_only(transform: object) -> None:
    """Refuse memo for a transform that reads more than the text by which memo caches."""
    if getattr(transform, "reads_source", False):
        reads = "source"
    elif hasattr(type(transform), "path_key"):
        reads = "path"
    else:
        return
    raise ConfigError(
        f"memo must be False for {type(transform).__name__}: it reads the file's {reads}, and memo"
        " caches by text."
    )


def _with_ref(name: str, transform: Any, *, receives_nodes: bool) -> TransformCallable:
    """Return the function that calls a transform with a node and the related nodes of its group's
    ref.
    """
    call = transform.transform if isinstance(transform, NodeTransform) else transform
    names, takes_any = keyword_names(call, skip=1)
    expected = "a function or method with a parameter ref, such as f(text, ref)"
    require(takes_any or "ref" in names, f"The transform of {name!r}", transform, expected)
    return functools.partial(_on_node_with_ref, call, receives_nodes)


def _on_content(function: Callable[[Any], Any], node: DocNode) -> Any:
    return function(node.content)


def _on_node_with_ref(call: AnyCallable, receives_nodes: bool, node: DocNode) -> Any:
    source = cast("Any", node.reader)
    value = node if receives_nodes else node.content
    return call(value, ref=source.ref_nodes(node.segment))


def _prepare_entries(
    name: str,
    parent: str,
    entries: Sequence[TransformArgs],
    kwargs: Keywords,
    options: GroupOptions,
) -> NodeGroup:
    """Prepare a list of transforms by pattern. A single one without pattern is equal to its
    transform.
    """
    if kwargs:
        keyword = next(iter(kwargs))
        msg = f"create_node_group({name!r}) got the keyword {keyword!r} beside TransformArgs;"
        raise ConfigError(
            f"{msg} give TransformArgs(f, kwargs={kwargs!r:.80}). {known_names(keyword, _KEYWORDS)}"
        )
    ready = []
    values = []
    unseen = []
    parts = {}
    sees_nodes = False
    for number, args in enumerate(entries):
        as_node = options.trans_node if args.trans_node is None else args.trans_node
        entry_options = options._replace(
            trans_node=as_node, num_workers=args.num_workers or options.num_workers
        )
        group = _prepare(name, parent, args.f, dict(args.kwargs), entry_options)
        if len(entries) == 1 and args.pattern is None:
            return group
        ready.append(Entry(group.transform, args, group.user_transform))
        sees_nodes |= group.sees_nodes
        pattern = Fingerprint(repr(args.pattern))
        if callable(args.pattern):
            pattern = fingerprint(args.pattern)
        label = f"transform[{number}]"
        for digits in (group.fingerprint, pattern):
            values.append(digits.value)
            unseen += [(f"{label}.{part}", value) for part, value in digits.unseen]
        for part, text in group.fingerprint.parts.items():
            if part != "transform":
                parts[f"{part} of {label}"] = text
        parts[f"parameter pattern of {label}"] = pattern.value
    adaptive = AdaptiveTransform(ready)
    combined = Fingerprint(digest(["list", *values]), tuple(unseen), parts)
    return dataclasses.replace(
        group,
        transform=adaptive,
        fingerprint=combined,
        sees_nodes=sees_nodes,
        user_transform=adaptive,
    )


def _instantiate(name: str, transform: Any, kwargs: Keywords, workers: int) -> AnyCallable:
    """Return the callable behind a name, a class, an instance or a function."""
    if isinstance(transform, str):
        transform = transforms[transform]
    if isinstance(transform, type):
        try:
            parameters = inspect.signature(transform)
            if workers and "num_workers" in parameters.parameters:
                kwargs = {"num_workers": workers, **kwargs}
            parameters.bind(**kwargs)
        except TypeError as exc:
            raise ConfigError(_wrong_parameters(name, transform, kwargs, exc)) from exc
        transform = transform(**kwargs)
    elif kwargs:
        keyword = next(iter(kwargs))
        msg = (
            f"create_node_group({name!r}) got the keyword {keyword!r}, which only a transform class"
            " takes."
        )
        raise ConfigError(f"{msg} {known_names(keyword, _KEYWORDS)}")
    if callable(getattr(transform, "create_groups", None)):
        msg = f"The transform of {name!r} is {transform!r:.80}, which creates groups itself."
        raise ConfigError(f"{msg} Call its create_groups(docs, {name!r}).")
    argument = f"The transform of {name!r}"
    expected = (
        "a function, a NodeTransform class or instance, the name of a registered transform, or"
        " TransformArgs"
    )
    require(callable(transform), argument, transform, expected)
    is_async = inspect.iscoroutinefunction(transform) or inspect.isasyncgenfunction(transform)
    require(not is_async, argument, transform, "a function that is not asynchronous")
    checked: AnyCallable = transform
    return checked


def _wrong_parameters(name: str, transform: type, kwargs: Keywords, exc: TypeError) -> str:
    parameters = [
        parameter for parameter in inspect.signature(transform).parameters if parameter != "self"
    ]
    unknown = [keyword for keyword in kwargs if keyword not in parameters]
    msg = (
        f"create_node_group({name!r}): {transform.__name__} cannot be made with {kwargs!r} ({exc})."
        f" Its parameters: {', '.join(parameters) or 'none'}."
    )
    near = nearest(unknown[0], parameters) if unknown else None
    return f"{msg} Did you mean {near!r}?" if near else msg


class GroupGraph:
    """Definitions of groups by name, which may shadow those of a base.

    Args:
        base: Definitions to fall back to: a class's for an instance.
    """

    changes: ClassVar[int] = 0
    """Another number after every definition in any graph."""

    def __init__(self, base: GroupGraph | None = None) -> None:
        self._lock: Any = threading.RLock() if base is None else base._lock
        self._groups: ChainMap[str, NodeGroup] = ChainMap(
            {}, *(base._groups.maps if base is not None else ())
        )

    def locked(self, timeout_s: float = -1) -> AbstractContextManager[bool]:
        """Prevent other threads from defining groups; yields False, and prevents none, after a
        timeout.
        """
        return acquired(self._lock, timeout_s)

    def define(self, group: NodeGroup, *, replace: bool) -> None:
        """Add a definition. Repeating one has no effect.

        Raises:
            NotRegisteredError: If the parent is not defined.
            ConfigError: If the group would be its own ancestor.
            AlreadyRegisteredError: If another definition has the name here and ``replace`` is
                false.
        """
        with self.locked():
            self._refuse_cycle(group)
            present = self._groups.maps[0].get(group.name)
            if present is not None:
                difference = group.differs_from(present)
                if not difference:
                    if group.memo != present.memo:
                        same = dataclasses.replace(group, revision=present.revision)
                        self._groups[group.name] = same
                    return
                if not replace:
                    raise AlreadyRegisteredError(
                        f"The node group {group.name!r} is defined already, with {difference}. Pass"
                        " replace=True to rebuild it, or choose another name. Definitions with the"
                        " same code and the same version='...' are equal."
                    )
            if group.fingerprint.unseen and group.version is None:
                group = dataclasses.replace(group, revision=next(_revisions))
            self._groups[group.name] = group
            GroupGraph.changes = next(_changes)

    def _refuse_cycle(self, group: NodeGroup) -> None:
        def visit(line: list[str]) -> None:
            if line[-1] == group.name:
                names = " <- ".join([group.name, *line])
                raise ConfigError(
                    f"{group.name!r} would be its own ancestor: {names}. Choose another parent."
                )
            if line[-1] != LAZY_ROOT_NAME:
                for above in self[line[-1]].above:
                    visit([*line, above])

        for name in group.above:
            visit([name])

    def __getitem__(self, name: str) -> NodeGroup:
        group = self._groups.get(name)
        if group is not None:
            return group
        msg = f"There is no node group {name!r}. {known_names(str(name), (*self, LAZY_ROOT_NAME))}"
        raise NotRegisteredError(f"{msg} Define it with create_node_group.")

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._groups))

    def line(self, name: str) -> list[str]:
        """Return a group and its ancestors, the root group last.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If definitions of class and instance together form a circle.
        """
        return [*(group.name for group in self.definitions(name)), LAZY_ROOT_NAME]

    def definitions(self, name: str) -> list[NodeGroup]:
        """Return the definitions of a group and its ancestors, without the root group.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If definitions of class and instance together form a circle.
        """
        line = []
        while name != LAZY_ROOT_NAME:
            line.append(self[name])
            name = line[-1].parent
            if name in [group.name for group in line]:
                names = " <- ".join([*(group.name for group in line), name])
                raise ConfigError(
                    f"The node groups {names} form a circle. Redefine one with replace=True."
                )
        return line


INDEX_FIELDS = {"*": ("title", "headings"), "bm25": ("path", "title", "headings")}
"""Fields that the indexes of the built-in groups read. Without the path a moved file is not
embedded again."""


def built_in_groups() -> GroupGraph:
    """Return the groups that every Document has: three of spec 001, tables and pictures."""
    graph = GroupGraph()
    options = GroupOptions(index_fields=INDEX_FIELDS)
    for name, size, overlap in (
        ("FineChunk", 128, 12),
        ("MediumChunk", 256, 25),
        ("CoarseChunk", 1024, 100),
    ):
        kwargs = {"chunk_size": size, "chunk_overlap": overlap}
        group = make_group(name, SectionSplitter, LAZY_ROOT_NAME, kwargs, options)
        graph.define(group, replace=False)
    for name, extractor in ((TABLE, TableExtractor), (IMAGE, PictureExtractor)):
        graph.define(make_group(name, extractor, LAZY_ROOT_NAME, {}), replace=False)
    return graph


class Definitions:
    """A Document's group definitions by fingerprint, as its ledger stores them.

    A difference that is invisible to fingerprints (a client, a model) counts only within this
    process, when one definition replaces another. A later process takes the stored definition for
    its own.

    Args:
        document: Name of the Document.
        token: Returns what distinguishes its ledger from others with that name.
        graph: Its group definitions.
        schema: The filterable fields: nodes carry their values, so a change of fields changes all
            nodes.
    """

    def __init__(
        self, document: str, token: Callable[[], str], graph: GroupGraph, schema: Schema
    ) -> None:
        self.graph = graph
        self._document = document
        self._token = token
        self._root = schema_digest(schema)
        # revisions of the definitions that built a live group
        self._accepted: dict[str, tuple[int, ...]] = {}
        self._fingerprints: dict[str, str] = {}
        self._needed: dict[str, list[NodeGroup]] = {}
        self._changes = -1

    def needed(self, name: str) -> list[NodeGroup]:
        """Return the definitions of a group and of all that its nodes are made of: its ancestors,
        refs and theirs.

        A group needs more groups than each of those that it needs, so that their number is an order
        to build in.

        Raises:
            NotRegisteredError: If one is not defined.
            ConfigError: If definitions form a circle.
        """
        if self._changes != GroupGraph.changes:
            self._fingerprints = {}
            self._needed = {}
            self._changes = GroupGraph.changes
        needed = self._needed.get(name)
        if needed is not None:
            return needed
        groups: dict[str, NodeGroup] = {}
        todo = [name]
        while todo:
            for group in self.graph.definitions(todo.pop()):
                if group.name == name and groups:
                    raise ConfigError(
                        f"The node group {name!r} is made of itself. Redefine one with"
                        " replace=True."
                    )
                if group.name not in groups:
                    groups[group.name] = group
                    todo += group.above[1:]
        self._needed[name] = list(groups.values())
        return self._needed[name]

    def fingerprint(self, name: str) -> str:
        """Return the fingerprint of a group's definition and of those above it, equal in every
        process.

        Raises:
            NotRegisteredError: If the group or an ancestor is not defined.
            ConfigError: If definitions form a circle.
        """
        needed = self.needed(name)
        value = self._fingerprints.get(name)
        if value is None:
            refs = [f"ref={group.ref}" for group in needed if group.ref is not None]
            line = digest([*(f"{group.name}={group.fingerprint.value}" for group in needed), *refs])
            value = self._fingerprints[name] = digest([line, self._root])
        return value

    def index_text(self, step: Step) -> IndexText:
        """Return what the index of a step reads of a node.

        Raises:
            ConfigError: If the child group that it names is not defined, or is not below the group.
        """
        if step.group not in self.graph:  # the root group, or one that this program does not define
            return IndexText()
        group = self.graph[step.group]
        key = "bm25" if step.embed_key is None else step.embed_key
        by_key = dict(group.index_fields)
        reader = group.index_text
        fields = by_key.get(key, by_key.get("*", ()))
        if not fields and reader is None:
            return IndexText()
        child = group_name(reader) if isinstance(reader, str) else ""
        of_text = group.index_text_digest
        if child:
            above = self.graph.line(child)[1:] if child in self.graph else ()
            if group.name not in above:
                problem = f"index_text of {group.name!r} must be a function or a group below"
                msg = f"{problem} {group.name!r}; got {reader!r}."
                raise ConfigError(f"{msg} Define that group with create_node_group.")
            of_text = self.fingerprint(child)
        text_digest = digest([_INDEX_TEXT, *fields, "", of_text, group.version or ""])
        return IndexText(fields, reader if callable(reader) else None, child, text_digest)

    def is_defined(self, name: str) -> bool:
        """Whether a group and its ancestors are defined."""
        try:
            self.needed(name)
        except (NotRegisteredError, ConfigError):
            return False
        return True

    def is_current(self, group: LiveGroup) -> bool:
        """Whether the present definition would give the same nodes as a live group."""
        try:
            needed = self.needed(group.name)
        except (NotRegisteredError, ConfigError):
            return False
        known = self._fingerprints.get(group.name)  # no call: every query comes through here
        if (known or self.fingerprint(group.name)) != group.fingerprint:
            return False
        revisions = tuple([group.revision for group in needed])
        return self._accepted.setdefault(group.name, revisions) == revisions

    def is_replaced(self, name: str) -> bool:
        """Whether this process replaced the definition by one that differs in what fingerprints
        cannot see.
        """
        revisions = self.revisions(name)
        return self._accepted.setdefault(name, revisions) != revisions

    def revisions(self, name: str) -> tuple[int, ...]:
        """Return what distinguishes a group's definition in this process from others with the same
        fingerprint.
        """
        return tuple(group.revision for group in self.needed(name))

    def accept(self, name: str, revisions: tuple[int, ...]) -> None:
        """Record the revisions of the definition that built the live group."""
        self._accepted[name] = revisions

    def current(self, tree: Tree) -> dict[str, LiveGroup]:
        """Return the groups of a tree that are current, each after those that its nodes are made
        of.
        """
        current = {name: group for name, group in tree.groups.items() if self.is_current(group)}
        # other threads may have cleared it
        needed = {name: self._needed.get(name, ()) for name in current}
        refs = {name: _refs(groups) for name, groups in needed.items()}
        if not any(refs.values()):
            return current
        in_order = sorted(current, key=lambda name: len(needed[name]))
        return {name: current[name] for name in in_order if current.keys() >= refs[name]}

    def all_fingerprints(self) -> dict[str, str]:
        """Return the fingerprints of all groups that are defined with their ancestors, by name."""
        fingerprints = {}
        for name in (LAZY_ROOT_NAME, *self.graph):
            with suppress(NotRegisteredError, ConfigError):
                fingerprints[name] = self.fingerprint(name)
        return fingerprints

    def described(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return fingerprint and parts, as JSON, of the definitions of some groups; without the
        root group.
        """
        defined = [name for name in names if name != LAZY_ROOT_NAME]
        return {name: (self.fingerprint(name), json.dumps(self._parts(name))) for name in defined}

    def _parts(self, name: str) -> dict[str, dict[str, str]]:
        return {group.name: group.parts for group in self.needed(name)}

    def reason(self, group: LiveGroup, described: str, fields: bool) -> str:
        """Return why a live group is not current.

        Args:
            group: The group.
            described: Its parts as JSON, as the ledger stores them; "" from an earlier release.
            fields: Whether the filterable fields are those that it was built with.
        """
        if not self.is_defined(group.name):
            return "not defined by this program"
        if self.fingerprint(group.name) == group.fingerprint:
            return "asked for"  # replace=True, with a difference that fingerprints cannot see
        before: dict[str, dict[str, str]] = json.loads(described or "{}")
        changes = {
            name: changed_parts(before.get(name, {}), now)
            for name, now in self._parts(group.name).items()
        }
        reasons = []
        for name, text in changes.items():
            if before and text:
                reasons.append(text if name == group.name else f"{text} of {name}")
        if not fields:
            reasons.append("parameter fields")
        return "; ".join(reasons) or "built by an earlier release"

    def collections(
        self, name: str, fingerprint: str, embed_key: str | None = None
    ) -> Callable[[str], str]:
        """Return a function from a suffix to a collection's name, for a group's segments or
        vectors.
        """
        definition = self._token() + fingerprint
        return lambda suffix: collection_name(self._document, name, definition + suffix, embed_key)


def _refs(groups: Iterable[NodeGroup]) -> set[str]:
    return {group.ref for group in groups if group.ref is not None}


def schema_digest(schema: Schema) -> str:
    """Return a digest of the filterable fields.

    Example:
        >>> from lazyrag.data.fields import make_schema
        >>> schema_digest(make_schema({})) == schema_digest(make_schema(None))
        True
    """
    fields: Mapping[str, object] = {
        name: [
            field.data_type.value,
            field.element_type and field.element_type.value,
            field.default_value,
            field.max_size,
        ]
        for name, field in schema.items()
    }
    return digest([json.dumps(fields, sort_keys=True, default=str)])


TEXT_MARK = " text="
"""In an index's identity, between the identity of its model or analyser and that of its
`IndexText`."""


def model_identity(identity: str) -> str:
    """Return the identity of the model or analyser of an index."""
    return identity.partition(TEXT_MARK)[0]


def embed_identity(embedder: object, identity: str) -> str:
    """Return the identity of an embedding model: its own, or its name, code and fingerprint.

    Args:
        embedder: The user's embed callable.
        identity: Its own ``identity`` or model name; "" for none.

    Example:
        >>> embed_identity(lambda text: [1.0], "") == embed_identity(lambda text: [2.0], "")
        False
    """
    if identity:
        return identity
    function = embedder
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if code is None:
        call = getattr(type(function), "__call__", None)  # noqa: B004
        code = getattr(call, "__code__", None)
    text = "" if code is None else code_text(code)
    return f"code:{digest([name, text])}/{fingerprint(embedder, is_model=True).value}"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of ingestion for every document.

    Args:
        group: The group that is built or indexed.
        analyser: Set for indexing the group's terms.
        embed_key: Set for embedding the group.
    """

    group: str
    analyser: str | None = None
    embed_key: str | None = None

    @property
    def activation(self) -> str:
        """The call that does the step."""
        arguments = repr(self.group)
        if self.embed_key is not None:
            arguments += f", embed_keys={[self.embed_key]}"
        elif self.analyser is not None:
            arguments += f", analysers={[self.analyser]}"
        return f"activate_group({arguments})"

    def __str__(self) -> str:
        if self.analyser is not None:
            return f"index {self.group} with {self.analyser}"
        if self.embed_key is not None:
            return f"embed {self.group} with {self.embed_key}"
        return "load" if self.group == LAZY_ROOT_NAME else f"transform {self.group}"


LOADING = Step(LAZY_ROOT_NAME)
"""The step from files to root nodes."""
