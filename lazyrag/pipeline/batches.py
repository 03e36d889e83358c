"""Many questions at once, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from lazyrag.errors import ConfigError, LazyRAGError, known_names
from lazyrag.validation import whole_number

T = TypeVar("T")
Q = TypeVar("Q")

OnError: TypeAlias = Literal["raise", "collect"]
"""What becomes of an error: it ends all questions, or stands in the place of its own."""


async def each_query(
    ask: Callable[[str], Awaitable[T]], queries: Sequence[str], concurrency: int, on_error: OnError
) -> list[T | LazyRAGError]:
    """`each` for questions.

    Raises:
        ConfigError: If queries are no list of texts, or as in `each`.
    """
    if isinstance(queries, str) or not isinstance(queries, Sequence) or not all(isinstance(q, str) for q in queries):
        msg = f"queries is {queries!r:.60}; give a list of texts."
        raise ConfigError(msg)
    return await each(ask, queries, concurrency, on_error)


async def each(
    ask: Callable[[Q], Awaitable[T]], many: Sequence[Q], concurrency: int, on_error: OnError
) -> list[T | LazyRAGError]:
    """Do the same for each of many, a bounded number at a time.

    Cancelling ends all of them.

    Args:
        ask: What is done for one.
        many: What it is done for.
        concurrency: How many at once, at least 1.
        on_error: ``"collect"`` keeps errors of this package in their places; others, which are faults of a program,
            are raised in any case.

    Returns:
        What each of them gave, in their order.

    Raises:
        ConfigError: If an argument is out of its range.
    """
    if on_error not in get_args(OnError):
        msg = f"on_error is {on_error!r:.60}. {known_names(str(on_error), get_args(OnError))}"
        raise ConfigError(msg)
    gate = asyncio.Semaphore(whole_number("concurrency", concurrency, 1))
    over: list[BaseException] = []

    async def one(given: Q) -> Any:
        async with gate:
            if over:  # the gate opened because another one failed
                raise asyncio.CancelledError
            try:
                return await ask(given)
            except LazyRAGError as exc:
                if on_error == "collect":
                    return exc
                over.append(exc)
                raise
            except BaseException as exc:
                over.append(exc)
                raise

    tasks = [asyncio.ensure_future(one(given)) for given in many]
    try:
        found: list[T | LazyRAGError] = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found
