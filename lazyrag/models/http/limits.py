"""How often something may be done."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from lazyrag.validation import whole_number

WINDOW_S = 60.0


class RateLimit:
    """At most n starts in any 60 seconds, in the order they were asked for.

    Of the last n starts the oldest must be 60 seconds ago before the next may follow. So the first n start at once, and
    no stretch of 60 seconds, wherever it begins, holds more than n; a bucket of tokens would let up to 2 n through. It
    belongs to one event loop, and neither knows nor limits what other processes do.

    Args:
        per_minute: n, at least 1; as many times are kept.
        clock: Seconds that never run backwards.
        sleep: Waits so many of them; at least as long, or it is asked again.

    Raises:
        ConfigError: If n is out of its range.

    Example:
        >>> times = []
        >>> async def pass_time(seconds):
        ...     times.append(seconds)
        >>> limit = RateLimit(2, clock=lambda: sum(times), sleep=pass_time)
        >>> async def five():
        ...     for _ in range(5):
        ...         await limit.wait()
        >>> asyncio.run(five())
        >>> times
        [60.0, 60.0]
    """

    def __init__(
        self,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.per_minute = whole_number("requests_per_minute", per_minute, 1)
        self._clock = clock
        self._sleep = sleep
        self._starts: deque[float] = deque(maxlen=self.per_minute)
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until a start is allowed, and count it; whoever is cancelled while waiting takes nobody's place."""
        async with self._turn:
            while (pause := self._pause()) > 0:
                await self._sleep(pause)
            self._starts.append(self._clock())

    def _pause(self) -> float:
        if len(self._starts) < self.per_minute:
            return 0.0
        return self._starts[0] + WINDOW_S - self._clock()
