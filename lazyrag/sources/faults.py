"""What goes wrong with the network."""

from __future__ import annotations

from lazyrag.errors import LoadError


class FetchError(LoadError):
    """A URL could not be fetched.

    Args:
        message: What was given, what is allowed, what to do; without secrets.
        url: The URL, without its query.
        status: The status of the answer, 0 where none came.
        transient: Whether the same request may succeed later.
        retry_after_s: How long the server asks to wait, None where it does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        url: str = "",
        status: int = 0,
        transient: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, path=url)
        self.status = status
        self.transient = transient
        self.retry_after_s = retry_after_s
