"""Requests with several items: if one fails, its halves are tried, so that only the items at fault fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from lazyrag.models import concurrency
from lazyrag.models.openai.client import EndpointError

T = TypeVar("T")
R = TypeVar("R")

SendItems: TypeAlias = Callable[[list[T], "int | None"], Awaitable[list[R]]]
"""Sends items in one request, with at most so many retries (None for the endpoint's), and returns a result for each."""

_PROBES = 3


class Halving(Generic[T, R]):
    """Sends the items of one call; a request that fails for good is narrowed down to the items at fault.

    Where everything fails, halving would take two requests for each item. So the failure of a request with several
    items is checked first by an item alone: one that was accepted before, else up to three others, the shortest and two
    of medium length, as an item may be too short or too long. If none is accepted, the items are not at fault.

    Args:
        send: Sends items in one request.
        items: All items of the call, each with a length.
        size: Returns the length of an item.
    """

    def __init__(self, send: SendItems[T, R], items: Sequence[T], size: Callable[[T], int]) -> None:
        self.verdict: EndpointError | None = None
        """The error of all items that are not sent yet, once every request would fail alike."""
        self._send = send
        self._accepted: list[T] = []
        self._successes = 0
        by_length = sorted(items, key=size)
        indices = {len(items) * number // _PROBES for number in range(_PROBES)} if len(items) > 1 else set()
        self._probes = [by_length[index] for index in sorted(indices, reverse=True)]
        self._lock = asyncio.Lock()

    async def results(self, items: list[T]) -> list[R | EndpointError]:
        """Return for each item its result, or the error of its request."""
        if self.verdict is not None:
            return [self.verdict] * len(items)
        before = self._successes
        try:
            return list(await self._request(items))
        except EndpointError as exc:
            fault = exc
        if fault.hopeless:
            self.verdict = fault
        elif (len(items) > 1 or fault.refused) and not fault.unreachable:
            is_at_fault = self._successes > before or await self._accepts_another(fault)
            if is_at_fault and len(items) > 1:
                half = len(items) // 2
                parts = await concurrency.together(self.results(items[:half]), self.results(items[half:]))
                return [*parts[0], *parts[1]]
        return [self.verdict or fault] * len(items)

    async def _accepts_another(self, fault: EndpointError) -> bool:
        """Whether the server accepts another item alone, so that the items of a failed request are at fault."""
        async with self._lock:
            if self._accepted:
                return fault.refused or await self._probe(self._accepted[0]) is None
            faults = []
            while self._probes and not self._accepted and self.verdict is None:
                faults.append(await self._probe(self._probes.pop()))
            rejected = [one for one in faults if one is not None and one.refused and one.status == fault.status]
            if 1 < len(rejected) == len(faults):
                self.verdict = rejected[0]
            return bool(self._accepted) or fault.refused

    async def _probe(self, item: T) -> EndpointError | None:
        try:
            await self._request([item], retries=0)
        except EndpointError as exc:
            return exc
        return None

    async def _request(self, items: list[T], retries: int | None = None) -> list[R]:
        results = await self._send(items, retries)
        self._successes += 1
        self._accepted = items[:1]
        return results
