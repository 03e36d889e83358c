"""The stored versions of a document."""

from __future__ import annotations

import datetime as dt
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
    rows = indexer.ledger.documents.named(one for one in identities if isinstance(one, str))
    identities = [normal_name(one) if isinstance(one, str) else one for one in identities]
    for identity in identities:
        row = rows.get(identity) if isinstance(identity, str) else None
        if row is None or row.status != "live":
            live = [
                name for name, one in indexer.ledger.documents.all().items() if one.status == "live"
            ]
            raise ConfigError(
                f"There is no document {identity!r}. {known_names(str(identity), live[:50])}"
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
    return [
        DocumentVersion(
            identity,
            one.number,
            dt.datetime.fromtimestamp(one.created_at, dt.timezone.utc),
            one.number == row.version,
        )
        for one in indexer.ledger.documents.versions(row.id)
    ]
