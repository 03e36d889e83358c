"""How long a program waits before lazyrag is there: fresh interpreters, interleaved, medians.

    python benchmarks/start.py

The figures include the interpreter's own start, which stands first. Processor time does not depend on what else runs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

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
    """Print the medians of fifteen rounds: time, and processor time."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for _ in range(15):
        for name, arguments in PROGRAMS.items():
            began, cpu = time.perf_counter(), processor_seconds()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            taken[name].append((time.perf_counter() - began, processor_seconds() - cpu))
    for name, times in taken.items():
        took, cpu = (1000 * statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:40} {took:6.0f} ms, processor {cpu:4.0f} ms")


if __name__ == "__main__":
    main()
