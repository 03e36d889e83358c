"""Who sends a request, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass

SCOPES = ("read", "write", "admin")
"""Each includes those before it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request.

    Args:
        id: For the audit log: the id of the token, or ``"local"``.
        scope: One of `SCOPES`.
        labels: Only documents with one of these labels exist for it; None for all.
    """

    id: str = "local"
    scope: str = "admin"
    labels: tuple[str, ...] | None = None

    def may(self, scope: str) -> bool:
        """Whether its scope includes another one."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    @property
    def is_unrestricted(self) -> bool:
        """Whether all documents exist for it."""
        return self.labels is None

    @property
    def is_administrator(self) -> bool:
        """Whether it may do everything, and with all documents."""
        return self.is_unrestricted and self.may("admin")
