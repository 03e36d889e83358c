"""The stored versions of a document."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.errors import ConfigError, known_names
from lazyrag.ledger.tables import DocumentRow
from lazyrag.read.source import LiveState
from lazyrag.validation import normal_name


def live_rows(indexer: LiveState, identities: Sequence[Any]) -> list[DocumentRow]:
    """Return the rows of live documents.

    Raises:
        ConfigError: If there is no such document.
    """
    rows = indexer.ledger.documents.named(
        identity for identity in identities if isinstance(identity, str)
    )
    identities = [normal_name(name) if isinstance(name, str) else name for name in identities]
    for identity in identities:
        row = rows.get(identity) if isinstance(identity, str) else None
        if row is None or row.status != "live":
            documents = itertools.islice(indexer.ledger.tree.documents(), 50)
            live = [document.identity for document in documents]
            raise ConfigError(
                f"There is no document {identity!r}. {known_names(str(identity), live)}"
            )
    return [rows[identity] for identity in identities]


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """One version of a document.

    Args:
        document: Its path relative to the dataset, or the user's id.
        number: From 1, incremented by each change.
        created_at: When it became live, in UTC.
        is_live: Whether queries see it.
    """

    document: str
    number: int
    created_at: dt.datetime
    is_live: bool


def list_versions(indexer: LiveState, identity: str) -> list[DocumentVersion]:
    """List the stored versions of a document, oldest first.

    Raises:
        ConfigError: If the document does not exist.
    """
    [row] = live_rows(indexer, [identity])
    return versions_of(indexer, row)


def versions_of(indexer: LiveState, row: DocumentRow) -> list[DocumentVersion]:
    """The stored versions of a document by its row, oldest first."""
    return [
        DocumentVersion(
            row.identity,
            version.number,
            dt.datetime.fromtimestamp(version.created_at, dt.timezone.utc),
            version.number == row.version,
        )
        for version in indexer.ledger.documents.versions(row.id)
    ]
