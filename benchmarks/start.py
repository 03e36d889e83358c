"""How long a program waits before lazyrag is there: fresh interpreters, interleaved, medians.

    python benchmarks/start.py

The figures include the interpreter's own start, which stands first.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "python": "pass",
    "import numpy": "import numpy",
    "import lazyrag": "import lazyrag",
    "... and its Document, Retriever": "from lazyrag import Document, Retriever",
}


def main() -> None:
    """Print the medians of fifteen rounds, and what each adds to an empty interpreter."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(15):
        for name, program in PROGRAMS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            seconds[name].append(time.perf_counter() - started)
    empty = statistics.median(seconds["python"])
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:34} {1000 * median:6.0f} ms  (+{1000 * (median - empty):.0f})")


if __name__ == "__main__":
    main()
