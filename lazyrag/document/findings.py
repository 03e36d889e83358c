"""What can be wrong with a store, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from lazyrag.data.segment import Segment
from lazyrag.stores.protocol import VectorRow

ProblemKind: TypeAlias = Literal["missing", "orphan", "stale", "dimension", "dangling", "damaged"]
"""What can be wrong:

- ``missing``: the ledger lists it, and the store or the index does not hold it;
- ``orphan``: a store holds it, and the ledger knows nothing of it;
- ``stale``: it was not made of what stands above it now;
- ``dimension``: a vector of another length or kind than its collection's, or with a number that is not finite;
- ``dangling``: it names a parent or a document that is not live;
- ``damaged``: it cannot be read, or is not what was written.
"""

R = TypeVar("R", Segment, VectorRow)

_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as the ledger says.

    Args:
        kind: What is wrong, see `ProblemKind`.
        where: The group, and the index over it if it is that.
        document: The document; "" where it is not known.
        what: The rest, for people.
    """

    kind: ProblemKind
    where: str
    document: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}{', ' + self.document if self.document else ''}: {self.what}"


@dataclass(slots=True)
class Findings:
    """What is wrong, and what has to be made anew for it.

    Args:
        problems: For people.
        builds: Live builds that are not what they should be, with all that was made of them.
        uncovered: Pairs (space, build) that a space does not hold as it should.
        parts: Parts of lexical indexes that cannot be used.
        spaces: Collections of vectors that cannot be used, by the space's row.
        segment_orphans: Keys by collection of segments.
        vector_orphans: Keys by collection of vectors.
    """

    problems: list[Problem] = field(default_factory=list)
    builds: set[int] = field(default_factory=set)
    uncovered: set[tuple[int, int]] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    spaces: dict[int, str] = field(default_factory=dict)
    segment_orphans: dict[str, list[str]] = field(default_factory=dict)
    vector_orphans: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: ProblemKind, where: str, document: str, what: str) -> None:
        """Enter a problem."""
        self.problems.append(Problem(kind, where, document, what))


def pages(scan: Callable[..., list[R]]) -> Iterator[list[R]]:
    """All rows of a collection, in pages."""
    after = ""
    while True:
        page = scan(after=after, limit=_PAGE)
        if page:
            yield page
            after = page[-1].key
        if len(page) < _PAGE:
            return
