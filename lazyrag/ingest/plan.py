"""Build plans: the groups and indexes that documents are brought to, from definitions and what is
live.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lazyrag.data.fields import schema_text
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, IngestionWarning, warn_user
from lazyrag.groups.fingerprint import fingerprint
from lazyrag.groups.node_group import TEXT_MARK, Definitions, IndexText, Step, model_identity
from lazyrag.ledger.ledger import Ledger
from lazyrag.ledger.tree import IndexKey, IndexKind, LiveGroup, LiveGroups, LiveIndex, Tree, View
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.read.nodes import NodeStore
from lazyrag.text.analyzers import TermFunction, analysers
from lazyrag.text.term_codes import TermCodes
from lazyrag.transforms.base import TransformCallable


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """A group to build.

    Args:
        id: Its row in the ledger.
        name: Its name.
        parent: Row of the group above it.
        collection: Of its segments.
        transform: Makes its nodes.
        sees_nodes: Whether the transform is called with nodes; else it sees nothing but content.
        reuses_texts: Whether nodes are used again by their parents' texts: one call saved is worth
            reading the store.
        path_key: The part of a document's path that the transform reads; None if it reads nothing
            of it.
        ref: Row of the group whose nodes the transform receives, too; 0 for none.
        reads_source: Whether the transform reads the source text of files; ``"pictures"`` for their
            pictures.
        fingerprint: Of its definition and of those above it.
    """

    id: int
    name: str
    parent: int
    collection: str
    transform: TransformCallable
    sees_nodes: bool
    reuses_texts: bool = False
    path_key: Callable[[str], str] | None = None
    ref: int = 0
    reads_source: bool | str = False
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class TermsTarget:
    """A keyword index to build.

    Args:
        id: Its row in the ledger.
        group: Row of its group.
        step: The step that builds it.
        terms: Gives its terms numbers.
        text: What it reads of a node.
    """

    id: int
    group: int
    step: Step
    terms: TermCodes
    text: IndexText


@dataclass(slots=True)
class VectorsTarget:
    """A vector index to build.

    Args:
        id: Its row in the ledger.
        group: Row of its group.
        step: The step that builds it.
        identity: Of the embed callable.
        collection: Of the vectors.
        dimension: Of the vectors, or `SPARSE`; 0 until the first one is written.
        embedder: The embed callable.
        text: What it reads of a node.
    """

    id: int
    group: int
    step: Step
    identity: str
    collection: str
    dimension: int
    embedder: CheckedEmbedder
    text: IndexText


IndexTarget: TypeAlias = "TermsTarget | VectorsTarget"


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The groups and indexes that documents are brought to.

    Args:
        root: Row of the root group.
        root_collection: Of the root nodes.
        names: Names of groups by row: those of the plan, and all live ones.
        groups: The groups, parents first, without the root group.
        indexes: The indexes over them.
        partial_groups: Rows of live groups that this program does not define, or defines
            differently: a document's new version has no nodes in them.
        partial_indexes: The same for indexes.
        visible: Whether readers see the result; False while groups and indexes are built that are
            not complete yet.
    """

    root: int
    root_collection: str
    names: Mapping[int, str]
    groups: Sequence[GroupTarget] = ()
    indexes: Sequence[IndexTarget] = ()
    partial_groups: Sequence[int] = ()
    partial_indexes: Sequence[int] = ()
    visible: bool = True

    @property
    def terms(self) -> list[TermsTarget]:
        """The keyword indexes."""
        return [target for target in self.indexes if isinstance(target, TermsTarget)]

    @property
    def vectors(self) -> list[VectorsTarget]:
        """The vector indexes."""
        return [target for target in self.indexes if isinstance(target, VectorsTarget)]

    @property
    def rows(self) -> set[int]:
        """Rows of the root group and the groups."""
        return {self.root, *(target.id for target in self.groups)}

    def line(self, group: int) -> list[int]:
        """Rows of a group and those above it, the root group last."""
        parents = {target.id: target.parent for target in self.groups}
        line = [group]
        while line[-1] != self.root:
            line.append(parents[line[-1]])
        return line

    def sources_of(self, target: GroupTarget) -> list[int]:
        """Rows of all groups that a group's nodes are made of: the parent first, the root group
        last.
        """
        line = self.line(target.parent)
        if target.ref:
            line[-1:] = [row for row in self.line(target.ref) if row not in line[:-1]]
        return line

    def collection(self, group: int) -> str:
        """The collection of a group's segments."""
        if group == self.root:
            return self.root_collection
        return next(target.collection for target in self.groups if target.id == group)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The work before a requested group or index is complete.

    Args:
        plan: What documents are brought to. Its indexes become live.
        groups: Rows of the groups that become live.
        dropped: Rows of the groups that they replace.
        names: Names of the groups, with the revisions of their definitions.
        steps: The steps, in order.
    """

    plan: BuildPlan
    groups: tuple[int, ...]
    dropped: tuple[int, ...]
    names: Mapping[str, tuple[int, ...]]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BuildPlanner:
    """Plans builds.

    Args:
        definitions: The group definitions.
        ledger: The ledger.
        nodes: The stores, in which collections are created.
        embedders: Embed callables by embed key.
        identities: Their identities by embed key.
    """

    definitions: Definitions
    ledger: Ledger
    nodes: NodeStore
    embedders: dict[str, CheckedEmbedder]
    identities: dict[str, str]

    def index_key(self, step: Step) -> IndexKey | None:
        """The key of the index that a step builds; None if it builds none, or its analyser or
        embedding is unknown.
        """
        if step.analyser is not None:
            kind: IndexKind = "terms"
            name = step.analyser
            model = _analyser_identity(name) if name in analysers else None
        else:
            kind = "vectors"
            name = step.embed_key or ""
            model = self.identities.get(name)
        try:
            text = self.definitions.index_text(step).identity
        except ConfigError:  # raised when it is built
            return None
        if model is None:
            return None
        identity = f"{model}{TEXT_MARK}{text}" if text else model
        return kind, name, identity

    def known_fields(self, step: Step) -> Sequence[str] | None:
        """The fields that an index reads before the texts of nodes; None if it reads more than
        stored nodes tell.
        """
        try:
            text = self.definitions.index_text(step)
        except ConfigError:  # raised when it is built
            return None
        if text.write or text.group:
            return None
        if text.identity and self.definitions.graph[step.group].parent != LAZY_ROOT_NAME:
            return None
        return text.fields

    def live_index(self, view: View, step: Step) -> LiveIndex | None:
        """The index that a step builds, as far as it is live; None if it builds none."""
        step = self.served(step, view.tree) if view.tree.switched else step
        group = view.groups.get(step.group)
        key = self.index_key(step)
        return group.indexes.get(key) if group is not None and key is not None else None

    def served(self, step: Step, tree: Tree) -> Step:
        """The step that builds what serves a step: that of another embed key, if its own was
        switched to that one.
        """
        key = tree.switched.get(step.embed_key or "")
        return replace(step, embed_key=key) if key in self.embedders else step

    def plan_live(self) -> BuildPlan:
        """Plan for a changed file: all live groups and indexes, as far as this program defines
        them.
        """
        tree = self.ledger.tree
        current = self.definitions.current(tree)
        partial_groups = []
        partial_indexes = []
        indexes = []
        for name, group in tree.groups.items():
            if name not in current:
                partial_groups.append(group.id)
                partial_indexes += [index.id for index in group.indexes.values()]
        for name, group in current.items():
            for index in group.indexes.values():
                target = self._index_target(index, group.id, index_step(name, index))
                if target is None:
                    partial_indexes.append(index.id)
                else:
                    indexes.append(target)
        plan = self._build_plan(tree, current, indexes)
        return replace(plan, partial_groups=partial_groups, partial_indexes=partial_indexes)

    def plan_first(self, steps: Iterable[Step]) -> BuildPlan:
        """Plan for the first files of an empty store: with the groups and indexes of steps, which
        become live later.
        """
        plan = self.plan_live()
        names = dict(plan.names)
        groups = {group.id: group for group in plan.groups}
        indexes = {index.id: index for index in plan.indexes}
        for step in steps:
            first = self.plan_step(step).plan
            names |= first.names
            groups |= {group.id: group for group in first.groups}
            indexes |= {index.id: index for index in first.indexes}
        return replace(
            plan, names=names, groups=list(groups.values()), indexes=list(indexes.values())
        )

    def reason(self, step: Step) -> str:
        """Why a step is to be done for every document; "" if it is done.

        One of ``"code of function f"``, ``"parameter p: 1 -> 2"``, ``"model a -> b"``,
        ``"missing"``, ``"asked for"``; ``"built by an earlier release"`` if that has not stored
        what it consisted of.
        """
        group = self.ledger.tree.groups.get(step.group)
        if group is None:
            return "missing"
        if not self.definitions.is_current(group):
            described, fields = self.ledger.groups.descriptions().get(group.id, ("", ""))
            has_same_fields = fields in ("", schema_text(self.nodes.schema))
            return self.definitions.reason(group, described, has_same_fields)
        key = self.index_key(step)
        if key is not None and key not in group.indexes:
            return _index_reason(group, key)
        target = group if key is None else group.indexes[key]
        return "" if target.complete else "missing"

    def plan_preview(self) -> BuildPlan:
        """Plan for the present definitions of live groups whose transforms call no model; opens no
        rows.

        Groups that are not built by these definitions have negative ids.
        """
        tree = self.ledger.tree
        definitions = self.definitions
        names = set()
        for name in filter(definitions.is_defined, tree.groups):
            for group in definitions.needed(name):
                line = definitions.needed(group.name)
                if not any(above.may_call_model for above in line):
                    names.add(group.name)
        groups = {LAZY_ROOT_NAME: tree.groups[LAZY_ROOT_NAME]}
        for number, name in enumerate(self.parents_first(names), start=1):
            live = tree.groups.get(name)
            if live is None or not definitions.is_current(live):
                live = LiveGroup(-number, name, None, "", "", complete=False)
            groups[name] = live
        return self._build_plan(tree, groups)

    def plan_root(self, tree: Tree) -> Rebuild:
        """Plan for the root group with the present fields."""
        return self._plan(tree, {}, [LAZY_ROOT_NAME])

    def plan_step(self, step: Step) -> Rebuild:
        """Plan for a group or index that is missing or incomplete, with the groups above it.

        If a group was live under another definition, everything live below it is rebuilt too.
        """
        self._warn_of_window(step)
        with self.definitions.graph.locked():
            needed = self.definitions.needed(step.group)[::-1]
            if step != Step(step.group):
                child = self.definitions.index_text(step).group
                needed += self.definitions.needed(child)[::-1] if child else []
            names = [LAZY_ROOT_NAME, *(group.name for group in needed)]
            line = list(dict.fromkeys(names))
            tree = self.ledger.tree
            current = self.definitions.current(tree)
            return self._plan(tree, current, self._outdated_groups(tree, current, line), step, line)

    def _outdated_groups(self, tree: Tree, current: LiveGroups, line: Sequence[str]) -> list[str]:
        """Groups to build for some groups: those that are not complete, and live ones below
        replaced ones.
        """
        live = tree.groups
        outdated = [name for name in line if name not in current or not current[name].complete]
        replaced = {name for name in outdated if name in live and name not in current}
        for name in live:
            if name in current or name in outdated or not self.definitions.is_defined(name):
                continue
            above = {group.name for group in self.definitions.needed(name)}
            if above & replaced:
                outdated.append(name)
                outdated += above.difference(outdated, current)
        return outdated

    def _warn_of_window(self, step: Step) -> None:
        """Warn once, before a group is embedded, if its chunks may exceed the model's window."""
        checked = self.embedders.get(step.embed_key or "")
        if checked is None or step.group == LAZY_ROOT_NAME:
            return
        embedder = getattr(checked.embedder, "embedder", checked.embedder)  # behind a cache
        window = embedder.max_tokens
        size = getattr(self.definitions.graph[step.group].user_transform, "chunk_size", None)
        if window is None or size is None or size <= window:
            return
        if getattr(embedder, "too_long", None) == "split":
            return
        msg = (
            f"The chunks of {step.group!r} have up to {size} tokens as their counter counts, and"
            f" the embed of key {step.embed_key!r} reads {window} at once: it may cut or refuse"
            f" longer ones. Define a group with chunk_size={window} or less, or use a model that"
            " reads more."
        )
        warn_user(msg, IngestionWarning)

    def _plan(
        self,
        tree: Tree,
        current: LiveGroups,
        outdated: list[str],
        step: Step | None = None,
        line: Sequence[str] = (),
    ) -> Rebuild:
        """Plan to build groups, with their indexes, and a step; the groups of a line are part of
        the plan in any case.
        """
        names = {*outdated, *line}
        for name in outdated:
            names.update(group.name for group in self.definitions.needed(name))
        ordered = self.parents_first(names)
        groups = {}
        replaced = []
        steps = []
        indexes = []
        for name in ordered:
            if name not in outdated:
                groups[name] = current[name]
                continue
            live = tree.groups.get(name)
            groups[name] = self._open_group(name, groups, live)
            if live is not None and live.id != groups[name].id:
                replaced.append(live.id)
            steps.append(Step(name))
            opened = [] if live is None else self._reopen_indexes(groups[name], live, step)
            indexes += opened
            steps += [target.step for target in opened]
        if step is not None:
            opened = self._open_index(groups[step.group], step)
            indexes += opened
            steps += [target.step for target in opened]
        plan = replace(self._build_plan(tree, groups, indexes), visible=False)
        return Rebuild(
            plan,
            tuple(groups[name].id for name in ordered if name in outdated),
            _dropped_groups(tree, groups, replaced),
            {name: self.definitions.revisions(name) for name in outdated},
            tuple(steps),
        )

    def _build_plan(
        self, tree: Tree, groups: LiveGroups, indexes: Sequence[IndexTarget] = ()
    ) -> BuildPlan:
        """Plan to bring documents to some groups and indexes."""
        root = groups[LAZY_ROOT_NAME]
        all_groups = (*tree.groups.values(), *groups.values())
        return BuildPlan(
            root.id,
            root.collection,
            {group.id: group.name for group in all_groups},
            [self._group_target(group, groups) for group in groups.values() if group is not root],
            indexes,
        )

    def describe(self, plan: BuildPlan) -> str:
        """A plan as JSON, for `described` in another process with the same definitions."""
        groups = [(plan.root, LAZY_ROOT_NAME, plan.root_collection)]
        groups += [(group.id, group.name, group.collection) for group in plan.groups]
        indexes = []
        for index in plan.indexes:
            key = self.index_key(index.step)
            stored = getattr(index, "collection", ""), getattr(index, "dimension", 0)
            indexes.append((index.id, index.group, key, *stored))
        description = {
            "names": list(plan.names.items()),
            "groups": [(*group, self.definitions.fingerprint(group[1])) for group in groups],
            "indexes": indexes,
            "partial_groups": plan.partial_groups,
            "partial_indexes": plan.partial_indexes,
            "visible": plan.visible,
        }
        return json.dumps(description)

    def described(self, description: str) -> BuildPlan:
        """The plan of another process, with the transforms and embedders of this one.

        Raises:
            ConfigError: If this process defines one of its groups or indexes differently.
        """
        stored = json.loads(description)
        names = dict(map(tuple, stored["names"]))
        groups = {}
        for number, name, collection, digest in stored["groups"]:
            is_defined = name == LAZY_ROOT_NAME or self.definitions.is_defined(name)
            if not is_defined or self.definitions.fingerprint(name) != digest:
                raise _defined_differently(f"node group {name!r}")
            groups[name] = LiveGroup(number, name, None, digest, collection, complete=False)
        indexes = []
        for number, group, key, collection, dimension in stored["indexes"]:
            kind, index_name, identity = key
            index = LiveIndex(
                number, kind, index_name, identity, collection, dimension, complete=False
            )
            target = self._index_target(index, group, index_step(names[group], index))
            if target is None:
                raise _defined_differently(f"index {index_name!r} of {names[group]!r}")
            indexes.append(target)
        return replace(
            self._build_plan(Tree(), groups, indexes),
            names=names,
            partial_groups=stored["partial_groups"],
            partial_indexes=stored["partial_indexes"],
            visible=stored["visible"],
        )

    def parents_first(self, names: Iterable[str]) -> list[str]:
        """Names of groups, each after those above it."""
        return sorted(names, key=lambda name: (len(self.definitions.needed(name)), name))

    def _reopen_indexes(
        self, group: LiveGroup, live: LiveGroup, requested: Step | None
    ) -> list[IndexTarget]:
        """Open the rows of the indexes that a group had, but for a requested one."""
        indexes = []
        for index in live.indexes.values():
            step = index_step(group.name, index)
            if step != requested:
                indexes += self._open_index(group, step)
        return indexes

    def _open_group(self, name: str, groups: LiveGroups, live: LiveGroup | None) -> LiveGroup:
        """Open the row and the collection of a group."""
        parent_id = None
        parent_name = None
        if name != LAZY_ROOT_NAME:
            parent_name = self.definitions.graph[name].parent
            parent_id = groups[parent_name].id
        digest = self.definitions.fingerprint(name)
        is_same = live is not None and live.fingerprint == digest
        fresh = is_same and self.definitions.is_replaced(name)
        number, collection = self.open_group(name, parent_id, digest, fresh=fresh)
        return LiveGroup(number, name, parent_name, digest, collection, complete=False)

    def open_group(
        self, name: str, parent: int | None, fingerprint: str, *, fresh: bool = False
    ) -> tuple[int, str]:
        """Open the row and the collection of a group by a definition; see `GroupTable.open`."""
        collections = self.definitions.collections(name, fingerprint)
        fields = schema_text(self.nodes.schema)
        opened = self.ledger.groups.open(
            name, parent, fingerprint, fields, collections, fresh=fresh
        )
        self.nodes.segments.create(opened[1], self.nodes.schema)
        return opened

    def _open_index(self, group: LiveGroup, step: Step) -> list[IndexTarget]:
        """Open the row of a step's index; [] if it has none, or its analyser or embedding is
        unknown.
        """
        key = self.index_key(step)
        if key is None:
            return []
        index = self.open_index(group.name, group.fingerprint, group.id, key)
        target = self._index_target(index, group.id, step)
        return [] if target is None else [target]

    def open_index(self, group: str, fingerprint: str, row: int, key: IndexKey) -> LiveIndex:
        """Open the row of an index over a group."""
        kind, name, identity = key
        collection = ""
        if kind == "vectors":
            # Other vectors of the same key, or other nodes by the same definition, lie in other
            # collections.
            collection_of = self.definitions.collections(group, fingerprint, name)
            collection = collection_of(f"{identity}/{row}")
        number, dimension = self.ledger.groups.open_index(row, kind, name, identity, collection)
        return LiveIndex(number, kind, name, identity, collection, dimension, complete=False)

    def _index_target(self, index: LiveIndex, group: int, step: Step) -> IndexTarget | None:
        if self.index_key(step) != index.key:
            return None
        text = self.definitions.index_text(step)
        if index.kind == "terms":
            return TermsTarget(index.id, group, step, TermCodes(index.name), text)
        embedder = self.embedders[index.name]
        return VectorsTarget(
            index.id, group, step, index.identity, index.collection, index.dimension, embedder, text
        )

    def _group_target(self, group: LiveGroup, groups: LiveGroups) -> GroupTarget:
        definition = self.definitions.graph[group.name]
        transform = definition.user_transform
        calls_model = bool(getattr(transform, "calls_per_node", 0))
        is_below_root = definition.parent == LAZY_ROOT_NAME
        return GroupTarget(
            group.id,
            group.name,
            groups[definition.parent].id,
            group.collection,
            definition.transform,
            definition.sees_nodes,
            path_key=getattr(transform, "path_key", None),
            reuses_texts=definition.memo or calls_model,
            ref=0 if definition.ref is None else groups[definition.ref].id,
            reads_source=is_below_root and getattr(transform, "reads_source", False),
            fingerprint=group.fingerprint,
        )


def _defined_differently(target: str) -> ConfigError:
    return ConfigError(
        f"This worker defines the {target} differently than the program that planned the work, or"
        " not at all. Run the same code, models and release in both."
    )


def index_step(group: str, index: LiveIndex) -> Step:
    """The step that builds an index of a group."""
    if index.kind == "terms":
        return Step(group, analyser=index.name)
    return Step(group, embed_key=index.name)


def _index_reason(group: LiveGroup, key: IndexKey) -> str:
    """Why a group lacks an index that is to have a key; "missing" if it never had one like it."""
    similar = [index.identity for index in group.indexes.values() if index.key[:2] == key[:2]]
    if not similar:
        return "missing"
    old = model_identity(similar[-1])
    new = model_identity(key[2])
    if old == new:
        return "parameter index_fields or index_text"
    return f"model {old} -> {new}" if key[0] == "vectors" else f"code of function {key[1]}"


def _dropped_groups(tree: Tree, groups: LiveGroups, replaced: Sequence[int]) -> tuple[int, ...]:
    """Rows of the groups that are replaced, and of the live ones below them; without those of a
    plan's groups.
    """
    in_use = {group.id for group in groups.values()}
    below = [group.id for name, group in tree.groups.items() if _is_below(tree, name, replaced)]
    return tuple(row for row in dict.fromkeys([*replaced, *below]) if row not in in_use)


def _is_below(tree: Tree, name: str, rows: Sequence[int]) -> bool:
    """Whether a live group is one of some others, or below one of them."""
    above: str | None = name
    while above is not None:
        group = tree.groups[above]
        if group.id in rows:
            return True
        above = group.parent
    return False


def _analyser_identity(name: str) -> str:
    """Identity of the analyser that is registered under a name now."""
    analyser = analysers[name]
    return analyser.identity or _identity_of(analyser.terms)


@functools.lru_cache(maxsize=64)  # every query needs it
def _identity_of(terms_of: TermFunction) -> str:
    return fingerprint(terms_of).value
