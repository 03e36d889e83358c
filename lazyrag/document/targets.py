"""What documents are to be brought to: from what is defined, what is live and what is asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.definitions import Definitions
from lazyrag.document.fingerprint import fingerprint
from lazyrag.document.ledger.ledger import Ledger
from lazyrag.document.ledger.tree import LiveGroup, LiveSpace, SpaceKey, Tree
from lazyrag.document.nodes import NodeStore
from lazyrag.document.step import Step
from lazyrag.document.work import GroupTarget, Targets, TermsTarget, VectorsTarget
from lazyrag.errors import IngestionWarning, warn_user
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.stores.segment_rows import schema_text
from lazyrag.text.analyzers import analysers, term_function


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What has to be built before something that was asked for is there.

    Args:
        targets: What the documents are brought to.
        groups: Rows of the groups that become live.
        spaces: Rows of the spaces that become live.
        dropped: Rows of the groups in whose place they come.
        names: Names of the groups, with the revisions of their definitions.
        steps: What is done, in order.
    """

    targets: Targets
    groups: tuple[int, ...]
    spaces: tuple[int, ...]
    dropped: tuple[int, ...]
    names: Mapping[str, tuple[int, ...]]
    steps: tuple[Step, ...]


class TargetMaker:
    """Makes targets.

    Args:
        definitions: What is defined.
        ledger: What is live.
        nodes: Where collections are made.
        embedders: What embeds the nodes, by embed key.
        identities: Of the embed callables, by embed key.
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

    def space_key(self, step: Step) -> SpaceKey | None:
        """What the space that a step makes is found by; None where it makes none, or cannot."""
        if step.analyser is not None:
            return ("terms", step.analyser, _analyser_identity(step.analyser)) if step.analyser in analysers else None
        if step.embed_key is not None:
            known = self._identities.get(step.embed_key)
            return None if known is None else ("vectors", step.embed_key, known)
        return None

    def of_live(self) -> Targets:
        """All that is live, as far as this program defines it: what a changed file is brought to."""
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        partial_groups = [group.id for name, group in tree.groups.items() if name not in current]
        partial_spaces = [space.id for one in partial_groups for space in _spaces_of(tree, one)]
        terms, vectors = [], []
        for name, group in current.items():
            for space in group.spaces.values():
                target = self._space_target(space, group.id, step_of(name, space))
                if target is None:
                    partial_spaces.append(space.id)
                elif isinstance(target, TermsTarget):
                    terms.append(target)
                else:
                    vectors.append(target)
        groups = [self._group_target(one, current) for name, one in current.items() if name != LAZY_ROOT_NAME]
        root = current[LAZY_ROOT_NAME]
        names = {group.id: name for name, group in tree.groups.items()}
        return Targets(
            root.id, root.collection, names, groups, terms, vectors, tuple(partial_groups), tuple(partial_spaces)
        )

    def of_root(self) -> Rebuild | None:
        """The root group by the present fields, where it is not live yet."""
        live = self._ledger.tree.groups.get(LAZY_ROOT_NAME)
        if live is not None and self._definitions.is_current(live):
            return None
        return self._rebuild([LAZY_ROOT_NAME], None)

    def of_step(self, step: Step) -> Rebuild:
        """A group or an index that is not there, or not whole, with the groups above it that are not either.

        Where a group was there by another definition, all that is live beneath it is built anew as well.
        """
        self._warn_of_window(step)
        with self._definitions.held():
            return self._of_step(step)

    def _warn_of_window(self, step: Step) -> None:
        """Say once, before a group is embedded, that its chunks may be larger than what the model reads whole."""
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

    def _of_step(self, step: Step) -> Rebuild:
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        line = [LAZY_ROOT_NAME, *(one.name for one in reversed(self._definitions.line(step.group)))]
        wanted = [name for name in line if name not in current or not current[name].whole]
        stale = {name for name in wanted if name in tree.groups and name not in current}
        for name in tree.groups:
            if name not in current and name not in wanted and self._definitions.is_defined(name):
                above = {one.name for one in self._definitions.line(name)}
                if above & stale:
                    wanted.append(name)
                    wanted += [one for one in above if one not in wanted and one not in current]
        return self._rebuild(wanted, step, line)

    def _rebuild(self, wanted: list[str], step: Step | None, line: list[str] | None = None) -> Rebuild:
        tree = self._ledger.tree
        current = self._definitions.current(tree)
        ordered = sorted({*wanted, *(line or ())}, key=lambda name: (len(self._definitions.line(name)), name))
        made: dict[str, LiveGroup] = {}
        dropped: list[int] = []
        terms: list[TermsTarget] = []
        vectors: list[VectorsTarget] = []
        steps: list[Step] = []
        spaces: list[int] = []
        for name in ordered:
            live = tree.groups.get(name)
            if name not in wanted:
                made[name] = current[name]
                continue
            made[name] = self._opened(name, made, live)
            if live is not None and live.id != made[name].id:
                dropped.append(live.id)
            steps.append(Step(name))
            for space in live.spaces.values() if live is not None else ():
                again = step_of(name, space)
                if again != step:
                    self._open_space(made[name], again, terms, vectors, steps, spaces)
        if step is not None and (step.analyser is not None or step.embed_key is not None):
            self._open_space(made[step.group], step, terms, vectors, steps, spaces)
        groups = [self._group_target(group, made) for name, group in made.items() if name != LAZY_ROOT_NAME]
        names = {group.id: name for name, group in (*tree.groups.items(), *made.items())}
        root = made[LAZY_ROOT_NAME]
        targets = Targets(root.id, root.collection, names, groups, terms, vectors, visible=False)
        rows = tuple(made[name].id for name in ordered if name in wanted)
        again_dropped = [group.id for name, group in tree.groups.items() if _hangs_on(tree, name, dropped)]
        kept = {group.id for group in made.values()}
        gone = tuple(one for one in dict.fromkeys([*dropped, *again_dropped]) if one not in kept)
        revisions = {name: self._definitions.revisions(name) for name in wanted}
        return Rebuild(targets, rows, tuple(spaces), gone, revisions, tuple(steps))

    def _opened(self, name: str, made: Mapping[str, LiveGroup], live: LiveGroup | None) -> LiveGroup:
        parent = None if name == LAZY_ROOT_NAME else made[self._definitions.line(name)[0].parent]
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
        return LiveGroup(
            number, name, None if parent is None else parent.name, fingerprint_now, collection, whole=False
        )

    def _open_space(
        self,
        group: LiveGroup,
        step: Step,
        terms: list[TermsTarget],
        vectors: list[VectorsTarget],
        steps: list[Step],
        spaces: list[int],
    ) -> None:
        key = self.space_key(step)
        if key is None:
            return
        kind, name, identity = key
        collection = ""
        if kind == "vectors":
            # Other vectors of the same key, or other nodes by the same definition, lie in other collections.
            collection = self._definitions.collections(group.name, name)(f"{identity}/{group.id}")
        number, dimension = self._ledger.groups.open_space(group.id, kind, name, identity, collection)
        space = LiveSpace(number, kind, name, identity, collection, dimension, whole=False)
        target = self._space_target(space, group.id, step)
        if isinstance(target, TermsTarget):
            terms.append(target)
        elif target is not None:
            vectors.append(target)
        steps.append(step)
        spaces.append(number)

    def _space_target(self, space: LiveSpace, group: int, step: Step) -> TermsTarget | VectorsTarget | None:
        if self.space_key(step) != space.key:
            return None
        if space.kind == "terms":
            return TermsTarget(space.id, group, step, term_function(space.name))
        embedder = self._embedders[space.name]
        return VectorsTarget(space.id, group, step, space.identity, space.collection, space.dimension, embedder)

    def _group_target(self, group: LiveGroup, groups: Mapping[str, LiveGroup]) -> GroupTarget:
        definition = self._definitions.line(group.name)[0]
        parent = groups[definition.parent].id
        return GroupTarget(
            group.id,
            group.name,
            parent,
            group.collection,
            definition.transform,
            definition.sees_nodes,
            path_told=definition.path_told,
            asks_models=bool(getattr(definition.given, "calls_per_node", 0)),
        )


def step_of(group: str, space: LiveSpace) -> Step:
    """What is done to make a space over a group."""
    return Step(group, analyser=space.name) if space.kind == "terms" else Step(group, embed_key=space.name)


def _spaces_of(tree: Tree, group: int) -> list[LiveSpace]:
    return [space for one in tree.groups.values() if one.id == group for space in one.spaces.values()]


def _hangs_on(tree: Tree, name: str, rows: list[int]) -> bool:
    """Whether a live group stands beneath one of some others."""
    above: str | None = name
    while above is not None:
        group = tree.groups[above]
        if group.id in rows:
            return True
        above = group.parent
    return False


def _analyser_identity(name: str) -> str:
    """Of what an analyser's name stands for, which somebody may register anew."""
    analyser = analysers[name]
    return analyser.identity or _identity_of(analyser.terms)


@functools.lru_cache(maxsize=64)  # asked for with every question
def _identity_of(terms_of: Callable[[str], list[str]]) -> str:
    return fingerprint(terms_of).value
