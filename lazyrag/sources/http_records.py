"""The records of a paged HTTP API."""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders.json_records import records_path
from lazyrag.loaders.leaves import Mapping as JsonObject
from lazyrag.loaders.leaves import Value
from lazyrag.sources.addresses import WebUrl, web_url
from lazyrag.sources.client import checked_seconds, make_client
from lazyrag.sources.exchange import Answer
from lazyrag.sources.faults import FetchError
from lazyrag.sources.folder import FetchReport, fetch
from lazyrag.sources.items import CutShort, Event, FailedItem, LoadedItem, digest, loaded_items
from lazyrag.sources.paging import LinkHeader, Paging, with_params
from lazyrag.sources.records import RecordForm, json_value, value_at
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from typing import Unpack

    from lazyrag.sources.client import WebOptions


class HttpRecordsSource:
    r"""The records that an HTTP API gives page by page as JSON; each is an item.

    Args:
        url: The URL of the first page.
        identity: The fields that tell records apart, by which an edited record is known again; one as a text.
        records: Path to the list of records in an answer, such as ``"data.items"``; "" if the answer is the list.
        paging: How the next page is asked for: `LinkHeader`, `NextLink`, `Cursor`, `PageNumber` or `Offset`.
        params: Parameters for the query of the first page.
        template: A text with paths in braces, as in ``"{name} costs {price}"``; None for ``fields``, a line
            ``path: value`` for each.
        fields: The paths that become text; () for all.
        metadata: The paths that become metadata.
        max_pages: Pages at most; a run that comes to a limit is cut short, and removes nothing.
        max_seconds: Seconds at most.
        max_total_bytes: Bytes of all answers at most.
        web: The keywords of `lazyrag.sources.client.WebClient`, such as ``headers`` and ``allow_private``.

    Raises:
        ConfigError: If a value is of the wrong kind.

    Example, with an API that pages as GitHub's does::

        issues = HttpRecordsSource(
            "https://api.github.com/repos/python/cpython/issues",
            identity="id", template="{title}\n\n{body}", metadata=["state", "html_url"],
            headers={"Authorization": f"Bearer {token}"},
        )
        issues.fetch("issues")
    """

    def __init__(
        self,
        url: str,
        *,
        identity: str | Sequence[str] = "id",
        records: str = "",
        paging: Paging | None = None,
        params: Mapping[str, object] | None = None,
        template: str | None = None,
        fields: Sequence[str] = (),
        metadata: Sequence[str] = (),
        max_pages: int = 1000,
        max_seconds: float = 3600.0,
        max_total_bytes: int = 1_000_000_000,
        **web: Unpack[WebOptions],
    ) -> None:
        if params is not None and not isinstance(params, Mapping):
            msg = f"params is of type {type(params).__name__}; give a mapping of names to values."
            raise ConfigError(msg)
        self._paging: Paging = LinkHeader() if paging is None else paging
        if isinstance(self._paging, type) or not callable(getattr(self._paging, "following", None)):
            msg = f"paging is {paging!r:.80}; give LinkHeader(), NextLink(...), Cursor(...), PageNumber() or Offset()."
            raise ConfigError(msg)
        own = web_url(url)
        self._url = with_params(own, {str(name): str(value) for name, value in (params or {}).items()})
        self._records = records_path(records)
        self._form = functools.partial(RecordForm, identity, template, fields, metadata)  # anew for each run
        self._form()
        self._max_pages = whole_number("max_pages", max_pages, 1)
        self._max_seconds = checked_seconds("max_seconds", max_seconds)
        self._max_total_bytes = whole_number("max_total_bytes", max_total_bytes, 1)
        self._client = make_client(HttpRecordsSource, own, web)

    def __repr__(self) -> str:
        return f"HttpRecordsSource({self._url.shown!r})"

    @property
    def name(self) -> str:
        """What a folder remembers it by."""
        return f"api {self._url.shown} {digest(f'{self._url.target} {self._records}')}"

    def items(self) -> Iterator[Event]:
        """The records, page by page. A page that cannot be had cuts the run short, the first one is an error.

        Raises:
            LoadError: If the first page cannot be had, or no record has a field that is named.
        """
        form = self._form()
        ends_at = time.monotonic() + self._max_seconds
        seen: set[WebUrl] = set()
        read: set[bytes] = set()
        total = 0
        url: WebUrl | None = self._paging.first(self._url)
        while url is not None:
            reason = self._reason_to_stop(url, seen, ends_at)
            if reason:
                yield CutShort(reason)
                return
            seen.add(url)
            try:
                answer, found, url = self._page(url)
            except LoadError as exc:
                if len(seen) == 1:
                    raise
                yield CutShort(f"page {len(seen)}: {exc}")
                return
            total += len(answer.body)
            if total > self._max_total_bytes:
                yield CutShort(f"there are more than max_total_bytes={self._max_total_bytes:,}")
                return
            mark = hashlib.blake2b(answer.body, digest_size=16).digest()
            if found and mark in read:
                yield CutShort(f"page {len(seen)} repeats an earlier one: the API does not take this paging")
                return
            read.add(mark)
            for number, record in enumerate(found, start=1):
                where = f"page {len(seen)}, record {number}"
                if isinstance(record, JsonObject):
                    yield form.item(record, where)
                else:
                    yield FailedItem(where, f"It is {record!r:.60}, not an object. Give the path to the records.")
        form.check_all_found()

    def load(self) -> Iterator[LoadedItem]:
        """The records as text, with their metadata."""
        return loaded_items(self)

    def fetch(self, folder: str | os.PathLike[str]) -> FetchReport:
        """Write each record into a file of a folder; see `lazyrag.sources.fetch`."""
        return fetch(self, folder)

    def _reason_to_stop(self, url: WebUrl, seen: set[WebUrl], ends_at: float) -> str:
        if url in seen:
            return f"page {len(seen)} leads back to {url.shown}, which was read before"
        if len(seen) >= self._max_pages:
            return f"there are more than max_pages={self._max_pages}"
        return f"max_seconds={self._max_seconds:g} are over" if time.monotonic() > ends_at else ""

    def _page(self, url: WebUrl) -> tuple[Answer, list[Value], WebUrl | None]:
        answer = self._client.get(url, accept="application/json")
        value = json_value(answer.body, f"The answer of {url.shown}")
        found = value_at(value, self._records)
        if not isinstance(found, list):
            known = [name for name, _ in value.items][:50] if isinstance(value, JsonObject) else []
            msg = f"The answer of {url.shown} has no list at {self._records!r}. {known_names(self._records, known)}"
            raise LoadError(msg, path=url.shown)
        try:
            return answer, found, self._paging.following(url, answer, value, len(found))
        except ConfigError as exc:
            msg = f"{url.shown} leads to what may not be asked. {exc}"
            raise FetchError(msg, url=url.shown) from exc
