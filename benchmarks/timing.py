"""Interleaved timing: the same queries for every candidate, in short blocks that take turns;
medians.
"""

from __future__ import annotations

import random
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Timed: TypeAlias = Callable[[Sequence[Any]], list[float]]
"""Answers a block of queries, one after the other, and gives the seconds that each took."""


def interleaved(
    candidates: Mapping[str, Callable[[Any], object]],
    queries: Sequence[Mapping[str, Any]],
    rounds: int = 3,
    block: int = 10,
) -> dict[str, list[float]]:
    """Seconds of each candidate for each query and round; the machine's moods hit all of them
    alike.

    Args:
        candidates: By name, a function of a query.
        queries: For each query what each candidate is called with, by name.
        rounds: How often everything is repeated.
        block: How many queries a candidate answers before it is another's turn, in random order.
    """
    for name, function in candidates.items():
        function(queries[0][name])  # warm
    return take_turns(
        {name: timed(function) for name, function in candidates.items()}, queries, rounds, block
    )


def take_turns(
    candidates: Mapping[str, Timed],
    queries: Sequence[Mapping[str, Any]],
    rounds: int = 3,
    block: int = 10,
) -> dict[str, list[float]]:
    """As `interleaved`, for candidates that measure themselves: engines in processes of their own.

    Blocks, because a candidate that is asked after another's long scan finds the processor's caches
    full of it.

    Returns:
        By name ``rounds * len(queries)`` seconds, those of a round in the order of the queries.
    """
    chance = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for start in range(0, len(queries), block):
            for name in chance.sample(list(candidates), len(candidates)):
                seconds[name] += candidates[name](
                    [query[name] for query in queries[start : start + block]]
                )
    return seconds


def timed(
    function: Callable[[Any], object], clock: Callable[[], float] = time.process_time
) -> Timed:
    """A function of one query, without threads, as one of a block. Its seconds are those of the
    processor; pass `process_tree_time` for a function that works in child processes.
    """

    def answer(queries: Sequence[Any]) -> list[float]:
        seconds = []
        for query in queries:
            started = clock()
            function(query)
            seconds.append(clock() - started)
        return seconds

    return answer


def process_tree_time() -> float:
    """Seconds of the processor of this process and its children, running and ended (Linux)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for thread in Path("/proc/self/task").iterdir():
        for pid in (thread / "children").read_text(encoding="ascii").split():
            seconds += time.clock_gettime(_cpu_clock(int(pid)))
    return seconds


def _cpu_clock(pid: int) -> int:
    """The id of a process's clock, as ``clock_getcpuclockid`` of the C library makes it."""
    return (~pid << 3) | 2


def median_ms(seconds: Sequence[float]) -> float:
    """The median in milliseconds."""
    return 1000 * statistics.median(seconds)


def spread(values: Sequence[float]) -> list[float]:
    """The median, the least and the most, as `report.py` shows them beside a goal."""
    return [statistics.median(values), min(values), max(values)]


def ratios(own: Sequence[float], other: Sequence[float], rounds: int) -> list[float]:
    """How many times as long as the other ours takes: the `spread` of the rounds' medians.

    Args:
        own: Seconds of all queries, round after round, as `interleaved` gives them.
        other: Those of the other.
        rounds: How many.
    """
    size = len(own) // rounds
    parts = [slice(at, at + size) for at in range(0, len(own), size)]
    return spread([statistics.median(own[part]) / statistics.median(other[part]) for part in parts])


def quantile_ms(seconds: Sequence[float], share: float) -> float:
    """The time in milliseconds that so large a share of the queries stays within, a share in (0,
    1].
    """
    ordered = sorted(seconds)
    return 1000 * ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
