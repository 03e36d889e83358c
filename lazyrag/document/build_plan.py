"""Build plans: the groups and indexes that documents are brought to, from definitions and what is live."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.fingerprint import fingerprint
from lazyrag.document.groups import Definitions, Step
from lazyrag.document.ledger import Ledger
from lazyrag.document.nodes import NodeStore
from lazyrag.document.tree import IndexKey, LiveGroup, LiveIndex, Tree
from lazyrag.errors import IngestionWarning, warn_user
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.stores.sqlite import schema_text
from lazyrag.text.analyzers import analysers, term_function


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
        asks_models: Whether it calls models, so that one call saved is worth reading the store.
        path_key: The part of a document's path that the transform reads; None if it reads nothing of it.
    """

    id: int
    name: str
    parent: int
    collection: str
    transform: Callable[[DocNode], Any]
    sees_nodes: bool
    asks_models: bool = False
    path_key: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class TermsTarget:
    """A keyword index to build.

    Args:
        id: Its row in the ledger.
        group: Row of its group.
        step: The step that builds it.
        terms_of: From a text to its terms.
    """

    id: int
    group: int
    step: Step
    terms_of: Callable[[str], list[str]]


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
    """

    id: int
    group: int
    step: Step
    identity: str
    collection: str
    dimension: int
    embedder: CheckedEmbedder


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The groups and indexes that documents are brought to.

    Args:
        root: Row of the root group.
        root_collection: Of the root nodes.
        names: Names of groups by row: those of the plan, and all live ones.
        groups: The groups, parents first, without the root group.
        terms: Keyword indexes over them.
        vectors: Vector indexes over them.
        partial_groups: Rows of live groups that this program does not define, or defines differently: a document's new
            version has no nodes in them.
        partial_indexes: The same for indexes.
        visible: Whether readers see the result; False while groups and indexes are built that are not complete yet.
    """

    root: int
    root_collection: str
    names: Mapping[int, str]
    groups: Sequence[GroupTarget] = ()
    terms: Sequence[TermsTarget] = ()
    vectors: Sequence[VectorsTarget] = ()
    partial_groups: Sequence[int] = ()
    partial_indexes: Sequence[int] = ()
    visible: bool = True

    @property
    def indexes(self) -> tuple[TermsTarget | VectorsTarget, ...]:
        """Indexes of both kinds."""
        return (*self.terms, *self.vectors)

    @property
    def rows(self) -> set[int]:
        """Rows of the root group and the groups."""
        return {self.root, *(one.id for one in self.groups)}

    def line(self, target: GroupTarget) -> list[int]:
        """Rows of the groups above a target, the root group last."""
        parents = {one.id: one.parent for one in self.groups}
        line = [target.parent]
        while line[-1] != self.root:
            line.append(parents[line[-1]])
        return line

    def collection(self, group: int) -> str:
        """The collection of a group's segments."""
        if group == self.root:
            return self.root_collection
        return next(one.collection for one in self.groups if one.id == group)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The work before a requested group or index is complete.

    Args:
        plan: What documents are brought to.
        groups: Rows of the groups that become live.
        indexes: Rows of the indexes that become live.
        dropped: Rows of the groups that they replace.
        names: Names of the groups, with the revisions of their definitions.
        steps: The steps, in order.
    """

    plan: BuildPlan
    groups: tuple[int, ...]
    indexes: tuple[int, ...]
    dropped: tuple[int, ...]
    names: Mapping[str, tuple[int, ...]]
    steps: tuple[Step, ...]


@dataclass(slots=True)
class _OpenedIndexes:
    """The indexes of a `Rebuild`, while it is planned."""

    terms: list[TermsTarget] = field(default_factory=list)
    vectors: list[VectorsTarget] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class BuildPlanner:
    """Plans builds.

    Args:
        definitions: The group definitions.
        ledger: The ledger.
        nodes: The stores, in which collections are created.
        embedders: Embed callables by embed key.
        identities: Their identities by embed key.
    """

    def __init__(
        self,
        definitions: Definitions,
        ledger: Ledger,
        nodes: NodeStore,
        embedders: Mapping[str, CheckedEmbedder],
        identities: Mapping[str, str],
    ) -> None:
        self._definitions = definitions
        self._ledger = ledger
        self._nodes = nodes
        self._embedders = embedders
        self._identities = identities

    def index_key(self, step: Step) -> IndexKey | None:
        """The key of the index that a step builds; None if it builds none, or its analyser or embedding is unknown."""
        if step.analyser is not None:
            return ("terms", step.analyser, _analyser_identity(step.analyser)) if step.analyser in analysers else None
        if step.embed_key is not None:
            known = self._identities.get(step.embed_key)
            return None if known is None else ("vectors", step.embed_key, known)
        return None

    def plan_live(self) -> BuildPlan:
        """Plan for a changed file: all live groups and indexes, as far as this program defines them."""
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        other = [group for name, group in tree.groups.items() if name not in current]
        partial_indexes = [index.id for group in other for index in group.indexes.values()]
        terms, vectors = [], []
        for name, group in current.items():
            for index in group.indexes.values():
                target = self._index_target(index, group.id, index_step(name, index))
                if target is None:
                    partial_indexes.append(index.id)
                elif isinstance(target, TermsTarget):
                    terms.append(target)
                else:
                    vectors.append(target)
        root = current[LAZY_ROOT_NAME]
        return BuildPlan(
            root.id,
            root.collection,
            {group.id: name for name, group in tree.groups.items()},
            [self._group_target(one, current) for name, one in current.items() if name != LAZY_ROOT_NAME],
            terms,
            vectors,
            tuple(group.id for group in other),
            tuple(partial_indexes),
        )

    def plan_root(self) -> Rebuild | None:
        """Plan for the root group with the present fields; None if it is live."""
        live = self._ledger.tree.groups.get(LAZY_ROOT_NAME)
        if live is not None and self._definitions.is_current(live):
            return None
        return self._plan([LAZY_ROOT_NAME], None)

    def plan_step(self, step: Step) -> Rebuild:
        """Plan for a group or index that is missing or incomplete, with the groups above it.

        If a group was live under another definition, everything live below it is rebuilt too.
        """
        self._warn_of_window(step)
        with self._definitions.held():
            tree = self._ledger.tree
            current = self._definitions.current(tree)
            line = [LAZY_ROOT_NAME, *(one.name for one in reversed(self._definitions.line(step.group)))]
            wanted = [name for name in line if name not in current or not current[name].complete]
            stale = {name for name in wanted if name in tree.groups and name not in current}
            for name in tree.groups:
                if name not in current and name not in wanted and self._definitions.is_defined(name):
                    above = {one.name for one in self._definitions.line(name)}
                    if above & stale:
                        wanted.append(name)
                        wanted += [one for one in above if one not in wanted and one not in current]
            return self._plan(wanted, step, line)

    def _warn_of_window(self, step: Step) -> None:
        """Warn once, before a group is embedded, if its chunks may exceed the model's window."""
        checked = self._embedders.get(step.embed_key or "")
        if checked is None or step.group == LAZY_ROOT_NAME:
            return
        embedder = getattr(checked.embedder, "embedder", checked.embedder)  # behind a cache
        window, size = embedder.max_tokens, getattr(self._definitions.line(step.group)[0].given, "chunk_size", None)
        if window is None or size is None or size <= window or getattr(embedder, "too_long", None) == "split":
            return
        warn_user(
            f"The chunks of {step.group!r} have up to {size} tokens as their counter counts, and the embed of key "
            f"{step.embed_key!r} reads {window} at once: it may cut or refuse longer ones. Define a group with "
            f"chunk_size={window} or less, or use a model that reads more.",
            IngestionWarning,
        )

    def _plan(self, wanted: list[str], step: Step | None, line: Sequence[str] = ()) -> Rebuild:
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        ordered = sorted({*wanted, *line}, key=lambda name: (len(self._definitions.line(name)), name))
        groups: dict[str, LiveGroup] = {}
        dropped: list[int] = []
        steps: list[Step] = []
        opened = _OpenedIndexes()
        for name in ordered:
            live = tree.groups.get(name)
            if name not in wanted:
                groups[name] = current[name]
                continue
            groups[name] = self._open_group(name, groups, live)
            if live is not None and live.id != groups[name].id:
                dropped.append(live.id)
            steps.append(Step(name))
            for index in live.indexes.values() if live is not None else ():
                again = index_step(name, index)
                if again != step and self._open_index(groups[name], again, opened):
                    steps.append(again)
        has_index = step is not None and (step.analyser is not None or step.embed_key is not None)
        if step is not None and has_index and self._open_index(groups[step.group], step, opened):
            steps.append(step)
        dropped += [group.id for name, group in tree.groups.items() if _is_below(tree, name, dropped)]
        kept = {group.id for group in groups.values()}
        root = groups[LAZY_ROOT_NAME]
        plan = BuildPlan(
            root.id,
            root.collection,
            {group.id: name for name, group in (*tree.groups.items(), *groups.items())},
            [self._group_target(group, groups) for name, group in groups.items() if name != LAZY_ROOT_NAME],
            opened.terms,
            opened.vectors,
            visible=False,
        )
        return Rebuild(
            plan,
            tuple(groups[name].id for name in ordered if name in wanted),
            tuple(opened.rows),
            tuple(one for one in dict.fromkeys(dropped) if one not in kept),
            {name: self._definitions.revisions(name) for name in wanted},
            tuple(steps),
        )

    def _open_group(self, name: str, groups: Mapping[str, LiveGroup], live: LiveGroup | None) -> LiveGroup:
        """Open the row and the collection of a group."""
        parent = None if name == LAZY_ROOT_NAME else groups[self._definitions.line(name)[0].parent]
        fingerprint_now = self._definitions.fingerprint(name)
        number, collection = self._ledger.groups.open(
            name,
            None if parent is None else parent.id,
            fingerprint_now,
            schema_text(self._nodes.schema),
            self._definitions.collections(name),
            fresh=live is not None and live.fingerprint == fingerprint_now and self._definitions.is_replaced(name),
        )
        self._nodes.segments.create(collection, self._nodes.schema)
        above = None if parent is None else parent.name
        return LiveGroup(number, name, above, fingerprint_now, collection, complete=False)

    def _open_index(self, group: LiveGroup, step: Step, opened: _OpenedIndexes) -> bool:
        """Open the row of an index; False if its analyser or embedding is unknown."""
        key = self.index_key(step)
        if key is None:
            return False
        kind, name, identity = key
        collection = ""
        if kind == "vectors":
            # Other vectors of the same key, or other nodes by the same definition, lie in other collections.
            collection = self._definitions.collections(group.name, name)(f"{identity}/{group.id}")
        number, dimension = self._ledger.groups.open_space(group.id, kind, name, identity, collection)
        index = LiveIndex(number, kind, name, identity, collection, dimension, complete=False)
        target = self._index_target(index, group.id, step)
        if isinstance(target, TermsTarget):
            opened.terms.append(target)
        elif target is not None:
            opened.vectors.append(target)
        opened.rows.append(number)
        return True

    def _index_target(self, index: LiveIndex, group: int, step: Step) -> TermsTarget | VectorsTarget | None:
        if self.index_key(step) != index.key:
            return None
        if index.kind == "terms":
            return TermsTarget(index.id, group, step, term_function(index.name))
        embedder = self._embedders[index.name]
        return VectorsTarget(index.id, group, step, index.identity, index.collection, index.dimension, embedder)

    def _group_target(self, group: LiveGroup, groups: Mapping[str, LiveGroup]) -> GroupTarget:
        definition = self._definitions.line(group.name)[0]
        return GroupTarget(
            group.id,
            group.name,
            groups[definition.parent].id,
            group.collection,
            definition.transform,
            definition.sees_nodes,
            path_key=definition.path_key,
            asks_models=bool(getattr(definition.given, "calls_per_node", 0)),
        )


def index_step(group: str, index: LiveIndex) -> Step:
    """The step that builds an index of a group."""
    return Step(group, analyser=index.name) if index.kind == "terms" else Step(group, embed_key=index.name)


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
def _identity_of(terms_of: Callable[[str], list[str]]) -> str:
    return fingerprint(terms_of).value
