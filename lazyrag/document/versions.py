"""The versions of a document that are kept, and going back to one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace

from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.builder import Builder
from lazyrag.document.ledger.rows import DocumentRow, Version
from lazyrag.document.work import Root, Work
from lazyrag.errors import ConfigError, IngestionError, known_names, sentence


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """One state of a document.

    Args:
        document: Its path relative to the dataset, or the id a user gave.
        number: From 1, one more with each change.
        created_at: When it became live, in UTC.
        is_live: Whether it is the one that readers see.
    """

    document: str
    number: int
    created_at: dt.datetime
    is_live: bool


def versions_of(builder: Builder, identity: str) -> list[DocumentVersion]:
    """The versions of a document that are kept, oldest first.

    Raises:
        ConfigError: If there is no such document.
    """
    row = _row(builder, identity)
    return [
        DocumentVersion(
            identity, one.number, dt.datetime.fromtimestamp(one.created_at, dt.timezone.utc), one.number == row.version
        )
        for one in builder.ledger.documents.versions(row.id)
    ]


def roll_back(builder: Builder, identity: str, number: int | None) -> DocumentVersion:
    """Make an earlier version of a document live again, until its file changes.

    Its nodes are still in the stores, those of groups that were built or redefined since are made of its text.

    Raises:
        ConfigError: If there is no such document, or the version is not kept.
        IngestionError: If a group cannot be made of it.
    """
    with builder.writing():
        builder.open_root()
        row = _row(builder, identity)
        kept = builder.ledger.documents.versions(row.id)
        wanted = _wanted(identity, row, kept, number)
        # The row keeps what is known of the file: as long as that does not change, a sync finds nothing to do.
        changed = replace(row, loaded=wanted.loaded, said=wanted.said, updates=wanted.updates)
        work = Work(changed, _make(builder, changed, wanted))
        work.version_hash = wanted.content_hash
        builder.bringer.bring([work], builder.targets.of_live(), "roll back", 1)
        if not work.flipped:
            step, error = next(iter(work.failures.items()))
            msg = f"{identity!r} cannot be rolled back to version {wanted.number}: to {step} failed: {sentence(error)}"
            raise IngestionError(msg) from error
        builder.purge()
    return versions_of(builder, identity)[-1]


def _wanted(identity: str, row: DocumentRow, kept: list[Version], number: int | None) -> Version:
    before = [one for one in kept if one.number < row.version]
    found = [one for one in before if number is None or one.number == number]
    if not found:
        told = ", ".join(str(one.number) for one in before) or "none"
        asked = "an earlier version" if number is None else f"version {number!r}"
        msg = (
            f"{identity!r} cannot go back to {asked}: it is not kept. The live one is {row.version}; kept before it: "
            f"{told}. Document(keep_versions=n) keeps n."
        )
        raise ConfigError(msg)
    return found[-1]


def _make(builder: Builder, row: DocumentRow, wanted: Version) -> Callable[[int], Root]:
    def make(build: int) -> Root:
        root = builder.ledger.builds.with_parents([wanted.root])[wanted.root]
        collection = builder.ledger.tree.groups[LAZY_ROOT_NAME].collection
        return Root(builder.stored_root(collection, root)._replace(build=build), row)

    return make


def _row(builder: Builder, identity: str) -> DocumentRow:
    live = {name: row for name, row in builder.ledger.documents.all().items() if row.status == "live"}
    if identity not in live:
        msg = f"There is no document {identity!r}. {known_names(str(identity), list(live)[:50])}"
        raise ConfigError(msg)
    return live[identity]
