"""What a figure was measured on: processor, memory, versions, commit."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
READ_MB = 384


def describe() -> dict[str, Any]:
    """The machine and the program, as they are now; what memory gives is measured."""
    one, two = (read_bandwidth(threads) for threads in (1, 2))
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory_bytes() / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "read_gb_per_s": {"1 thread": round(one, 1), "2 threads": round(two, 1)},
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sqlite": sqlite3.sqlite_version,
        "commit": commit(),
    }


def read_bandwidth(threads: int, rounds: int = 7) -> float:
    """GB/s of reading an array that no cache holds, its maximum taken by so many threads; the
    median.
    """
    array = np.ones(READ_MB * 2**18, np.float32)
    return array.nbytes / 1e9 / read_time(array, threads, rounds)


def read_time(array: np.ndarray, threads: int, rounds: int = 7) -> float:
    """Seconds to read an array once, its maximum taken by so many threads; the median."""
    slices = np.array_split(array.reshape(-1), threads)
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            started = time.perf_counter()
            list(pool.map(np.max, slices))
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def cpu_model() -> str:
    """The processor's name for itself."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def memory_bytes() -> int:
    """Of the whole machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def commit() -> str:
    """The checkout's commit, with a plus sign where files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    return (
        git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain") else "")
        or "unknown"
    )
