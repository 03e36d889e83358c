"""Mending what `verify` finds: what can be made again is made again, what nobody knows of is removed."""

from __future__ import annotations

from collections.abc import Sequence

from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.builder import Builder
from lazyrag.document.findings import Findings, Problem
from lazyrag.document.sync import bring_lacking, synchronise
from lazyrag.document.verify import look

_ROUNDS = 3  # what was missing may have hidden that something else is stale


def repair(builder: Builder) -> tuple[Problem, ...]:
    """Mend what can be mended; done again, it finds nothing to do.

    Groups and indexes are made anew from what they were made of, root nodes from their files. What is left is what has
    no source any more: a text that was added as such, a file that is gone or fails.

    Args:
        builder: Of the Document; nobody else writes.

    Returns:
        What is still wrong.
    """
    with builder.writing():
        builder.open_root()
        for _ in range(_ROUNDS):
            findings = look(builder)
            if not findings.problems:
                break
            _discard(builder, findings)
            if _lost_roots(builder):
                synchronise(builder)
            else:
                bring_lacking(builder)
            builder.purge()
        builder.ledger.file.collect_array_files(older_than_s=builder.options.grace_s)
        return tuple(look(builder).problems)


def _discard(builder: Builder, findings: Findings) -> None:
    """Let go of all that is not what it should be."""
    nodes, ledger = builder.nodes, builder.ledger
    for group in ledger.tree.groups.values():
        nodes.segments.create(group.collection, nodes.schema)  # where it is gone as a whole
    if findings.segment_orphans or findings.vector_orphans or findings.spaces:
        ledger.announce_removal()
    for collection, keys in findings.segment_orphans.items():
        nodes.segments.delete(collection, keys=keys)
    for collection, keys in findings.vector_orphans.items():
        nodes.vectors.delete(collection, keys=keys)
    for space, collection in findings.spaces.items():
        nodes.vectors.drop(collection)
        ledger.groups.empty_space(space)
    if findings.parts:
        ledger.groups.discard_parts(findings.parts)
    if findings.uncovered:
        ledger.builds.uncover(findings.uncovered)
    if findings.builds:
        ledger.builds.discard(findings.builds)


def _lost_roots(builder: Builder) -> Sequence[str]:
    """Documents whose root node had to go: their files have to be read again."""
    root = builder.ledger.tree.groups[LAZY_ROOT_NAME]
    lost = [uid for uid in builder.ledger.tree.documents if uid not in root.builds]
    if lost:
        builder.ledger.documents.forget_files(lost)
    return lost
