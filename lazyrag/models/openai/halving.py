"""Requests with several texts: if one fails, its halves are tried, so that only the texts at fault
fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from lazyrag.models import concurrency
from lazyrag.models.openai.client import EndpointError
from lazyrag.models.protocols import single_try

R = TypeVar("R")

SendTexts: TypeAlias = Callable[[list[str]], Awaitable[list[R]]]
"""Sends texts in one request, and returns a result for each."""

_PROBES = 3


class Halving(Generic[R]):
    """Sends the texts of one call; a request that fails for good is narrowed down to the texts at
    fault.

    Where everything fails, halving would take two requests for each text. So the failure of a
    request with several texts is checked first by a text alone: one that was accepted before, else
    up to three others, the shortest and two of medium length, as a text may be too short or too
    long. If none is accepted, the texts are not at fault.

    Args:
        send: Sends texts in one request.
        texts: All texts of the call.
    """

    def __init__(self, send: SendTexts[R], texts: Sequence[str]) -> None:
        self.verdict: EndpointError | None = None
        """The error of all texts that are not sent yet, once every request would fail alike."""
        self._send = send
        self._accepted: list[str] = []
        self._successes = 0
        by_length = sorted(texts, key=len)
        indices = (
            {len(texts) * number // _PROBES for number in range(_PROBES)}
            if len(texts) > 1
            else set()
        )
        self._probes = [by_length[index] for index in sorted(indices, reverse=True)]
        self._lock = asyncio.Lock()

    async def results(self, texts: list[str]) -> list[R | EndpointError]:
        """Return for each text its result, or the error of its request."""
        if self.verdict is not None:
            return [self.verdict] * len(texts)
        before = self._successes
        try:
            return list(await self._request(texts))
        except EndpointError as exc:
            fault = exc
        if fault.hopeless:
            self.verdict = fault
        elif (len(texts) > 1 or fault.refused) and not fault.unreachable:
            is_at_fault = self._successes > before or await self._accepts_another(fault)
            if is_at_fault and len(texts) > 1:
                half = len(texts) // 2
                parts = await concurrency.together(
                    self._half(texts[:half]), self._half(texts[half:])
                )
                return [*parts[0], *parts[1]]
        return [self.verdict or fault] * len(texts)

    async def _half(self, texts: list[str]) -> list[R | EndpointError]:
        """Results of a half, which is halved again without retries, in a task of its own; a single
        text has them.
        """
        single_try.set(len(texts) > 1)
        return await self.results(texts)

    async def _accepts_another(self, fault: EndpointError) -> bool:
        """Whether the server accepts another text alone, so that the texts of a failed request are
        at fault.
        """
        async with self._lock:
            if self._accepted:
                return fault.refused or await self._probe(self._accepted[0]) is None
            faults = []
            while self._probes and not self._accepted and self.verdict is None:
                faults.append(await self._probe(self._probes.pop()))
            rejected = [
                failed
                for failed in faults
                if failed is not None and failed.refused and failed.status == fault.status
            ]
            if 1 < len(rejected) == len(faults):
                self.verdict = rejected[0]
            return bool(self._accepted) or fault.refused

    async def _probe(self, text: str) -> EndpointError | None:
        token = single_try.set(True)
        try:
            await self._request([text])
        except EndpointError as exc:
            return exc
        finally:
            single_try.reset(token)
        return None

    async def _request(self, texts: list[str]) -> list[R]:
        results = await self._send(texts)
        self._successes += 1
        self._accepted = texts[:1]
        return results
