"""What a Document holds, in figures."""

from __future__ import annotations

from dataclasses import dataclass

from lazyrag.document.builder import Builder


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A node group as far as it is built.

    Args:
        name: Its name.
        is_current: Whether it is what its definition would give now.
        is_whole: Whether it was built for every document.
        documents: How many documents have nodes in it.
        nodes: How many nodes it has.
        indexes: What is indexed: analysers and embed keys.
    """

    name: str
    is_current: bool
    is_whole: bool
    documents: int
    nodes: int
    indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """What a Document holds.

    Args:
        name: Of the Document.
        documents: How many documents are live.
        groups: The node groups that are built.
        failed: Pairs (document, stage) of what failed when it was last tried.
        waiting: Builds that are live no more and wait to be removed.
        writer: The program that is writing; "" for none.
    """

    name: str
    documents: int
    groups: tuple[GroupStatus, ...]
    failed: tuple[tuple[str, str], ...]
    waiting: int
    writer: str

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.documents} documents, {len(self.failed)} failed steps"]
        for group in self.groups:
            notes = ["" if group.is_current else "defined otherwise now", "" if group.is_whole else "not whole"]
            told = ", ".join([*group.indexes, *(note for note in notes if note)])
            lines.append(f"  {group.name}: {group.nodes} nodes" + (f" ({told})" if told else ""))
        return "\n".join(lines)


def status_of(builder: Builder) -> DocumentStatus:
    """What a Document holds; nothing is loaded or built for it."""
    tree = builder.ledger.tree
    groups = []
    for name in sorted(tree.groups):
        group = tree.groups[name]
        groups.append(
            GroupStatus(
                name,
                builder.definitions.is_current(group),
                group.whole,
                sum(not build.is_empty for build in group.builds.values()),
                sum(build.size for build in group.builds.values()),
                tuple(sorted(space.name for space in group.spaces.values() if space.whole)),
            )
        )
    failed = tuple((identity, stage) for identity, stage, _, _ in builder.ledger.documents.failures())
    return DocumentStatus(
        builder.name,
        len(tree.documents),
        tuple(groups),
        failed,
        len(builder.ledger.builds.dead(float("inf"))),
        builder.ledger.writer(),
    )
