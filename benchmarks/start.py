"""How long a program waits before lazyrag is there: fresh interpreters, interleaved, medians.

    python benchmarks/start.py

The figures include the interpreter's own start, which stands first. Processor time depends less on
what else runs. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

from results import Row, save, table
from timing import spread

PROGRAMS = {
    "python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import lazyrag": ["-c", "import lazyrag"],
    "from lazyrag import Document": ["-c", "from lazyrag import Document"],
    "from lazyrag import Document, Retriever": ["-c", "from lazyrag import Document, Retriever"],
    "from lazyrag import RAGPipeline": ["-c", "from lazyrag import RAGPipeline"],
    "lazyrag --version": ["-m", "lazyrag", "--version"],
    "lazyrag --help": ["-m", "lazyrag", "--help"],
}


def processor_seconds() -> float:
    """Of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print and save the medians of fifteen rounds: time, and processor time."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for _ in range(15):
        for name, arguments in PROGRAMS.items():
            began, cpu = time.perf_counter(), processor_seconds()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            taken[name].append((time.perf_counter() - began, processor_seconds() - cpu))
    rows: list[Row] = []
    goals = {name: spread([1000 * cpu for _, cpu in times]) for name, times in taken.items()}
    for name, times in taken.items():
        took, cpu = (1000 * statistics.median(column) for column in zip(*times, strict=True))
        rows.append({"program": name, "ms": took, "cpu_ms": cpu})
    print(table(rows, ("program", "ms", "cpu_ms")))
    save("start", rows, goals=goals)


if __name__ == "__main__":
    main()
