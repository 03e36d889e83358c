"""What a sync would do and cost, before it does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.builder import Builder
from lazyrag.document.ledger.tree import LiveSpace
from lazyrag.document.report import IngestReport
from lazyrag.document.step import LOADING, Step
from lazyrag.document.sync import MAX_DELETED, compare_files, would_report
from lazyrag.document.targets import step_of
from lazyrag.errors import LazyRAGError
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding import batch_size_of
from lazyrag.text.tokens import token_counters

_BYTES_A_TOKEN = 3  # of the default counter


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a sync, as far as one can tell before.

    Args:
        step: What is done: ``"load"``, ``"transform <group>"``, ``"embed <group> with <embed key>"``, ...
        documents: For how many documents.
        nodes: About how many nodes it makes, embeds or indexes.
        tokens: About how many tokens they have together, counted as the default counter does.
        calls: About how many calls of a model that is: of an embed callable, one for each batch, at most; of a chat
            model, as many for each node as the transform's ``calls_per_node`` says.
    """

    step: str
    documents: int
    nodes: int
    tokens: int
    calls: int

    def __str__(self) -> str:
        calls = f", {self.calls} calls" if self.calls else ""
        return f"{self.step}: {self.documents} documents, about {self.nodes} nodes, {self.tokens} tokens{calls}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sync would do.

    Args:
        files: What it would report of the files.
        steps: What it would do, in order. Numbers of nodes are those of other documents by the size of their texts,
            until something is made: only the loaders are called for a plan.
        unseen: What decides about results and no fingerprint sees: pairs (group, reader or embed key, what). Where it
            changes, nothing is made anew; ``version=`` or an attribute ``identity`` tells.
    """

    files: IngestReport
    steps: tuple[PlannedStep, ...]
    unseen: tuple[tuple[str, str], ...]

    @property
    def calls(self) -> int:
        """Calls of models, at most, as far as one can tell."""
        return sum(step.calls for step in self.steps)

    def __str__(self) -> str:
        lines = [str(self.files), *map(str, self.steps)]
        return "\n".join([*lines, *(f"not seen of {name}: {what}" for name, what in self.unseen)])


def make_plan(builder: Builder, max_deleted: float = MAX_DELETED) -> Plan:
    """Plan a sync; nothing is changed, no transform and no model is called."""
    compared = compare_files(builder, max_deleted)
    changes = compared.changes
    files = [one.file for one in itertools.chain(changes.added, changes.changed, changes.remarked)]
    with builder.loading.running(len(files)):
        tokens = _tokens(builder, files)
    size = sum(file.signature.size for file in files if file.signature is not None)
    loading = [PlannedStep(str(LOADING), len(files), len(files), tokens, 0)] if files else []
    steps = [*loading, *_steps(builder, len(files), size, tokens)]
    return Plan(would_report(compared), tuple(steps), tuple(_unseen(builder)))


def _tokens(builder: Builder, files: Sequence[FoundFile]) -> int:
    """How many tokens the texts of files have, as far as they can be loaded; a sync would report the others."""
    counter = token_counters["utf8"]
    total = 0
    for file in files:
        with suppress(LazyRAGError):
            total += counter.count(builder.loading.load(file).text)
    return total


def _steps(builder: Builder, documents: int, size: int, tokens: int) -> Iterator[PlannedStep]:
    """What is done for so many files, of so many bytes and tokens together, and where a definition has changed."""
    tree, definitions = builder.ledger.tree, builder.definitions
    known = _size(builder)
    share = size / known if known else 0.0
    names = [name for name in tree.groups if name != LAZY_ROOT_NAME and definitions.is_defined(name)]
    for name in sorted(names, key=lambda one: (len(definitions.line(one)), one)):
        group = tree.groups[name]
        again = 0.0 if definitions.is_current(group) else 1.0
        count = documents + round(again * len(group.builds))
        if not count:
            continue
        live = sum(build.size for build in group.builds.values())
        nodes = max(documents, math.ceil((share + again) * live))
        weight = tokens + round(again * known / _BYTES_A_TOKEN)
        above = tree.groups.get(str(group.parent))
        parents = sum(build.size for build in above.builds.values()) if above is not None else 0
        per_node = getattr(definitions.line(name)[0].given, "calls_per_node", 0)
        calls = per_node * max(documents, math.ceil((share + again) * parents))
        yield PlannedStep(str(Step(name)), count, nodes, weight, calls)
        for space in group.spaces.values():
            yield PlannedStep(str(step_of(name, space)), count, nodes, weight, _calls(builder, space, nodes))


def _size(builder: Builder) -> int:
    """How many bytes the files of the live documents have together."""
    rows = builder.ledger.documents.all().values()
    return sum(row.signature.size for row in rows if row.status == "live" and row.signature is not None)


def _calls(builder: Builder, space: LiveSpace, nodes: int) -> int:
    embedder = builder.embedders.get(space.name) if space.kind == "vectors" else None
    return 0 if embedder is None else -(-nodes // batch_size_of(embedder.embedder, 1))


def _unseen(builder: Builder) -> Iterator[tuple[str, str]]:
    for reader in builder.loading.readers.all():
        if reader.version is None:
            name = f"reader {reader.pattern}"
            yield from ((name, f"{what} ({type(held).__name__})") for what, held in reader.fingerprint.unseen)
    for name in builder.graph:
        if builder.definitions.is_defined(name):
            definition = builder.definitions.line(name)[0]
            if definition.version is None:
                yield from ((name, f"{what} ({type(held).__name__})") for what, held in definition.fingerprint.unseen)
    for key, embedder in builder.embedders.items():
        if not embedder.embedder.identity:
            yield key, "which model its embed callable asks (its name and code are seen)"
