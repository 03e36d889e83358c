"""Compare the figures of house.py with their bounds, and with the best values reached.

    python tools/budgets.py [--list KIND] [--record]

The exit status is 1 where a figure is worse than both its bound and the value in `reached.json`:
what was reached is not lost again. `--record` writes better values there. `--list branchy` and the
like name the places that are counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import house

REACHED = Path(__file__).with_name("reached.json")
BOUNDS: house.Figures = {
    "tokens": 585_000,
    "tokens a statement": 10.4,
    "tokens a statement, densest package": 12,
    "lines over 100 columns": 40,
    "nested comprehensions, per 1,000 statements": 1.5,
    "tuple assignments, per 1,000 statements": 1,
    "functions over 15 branches": 20,
    "generic names": 0.003,
    "class names used twice": 5,
    "files over 700 code lines": 0,
    "._indexer in server": 0,
    "packages without a layer": 0,
    "edges upward": 0,
    "registry entries upward": 1,
    "modules imported by a string": 2,
    "circles among modules": 0,
    "names of Document": 34,
    "parameters of Document": 14,
    "names at the top level": 50,
    "BM25 in memory: modules": 15,
    "BM25 in memory: calls": 80,
    "hybrid in memory: modules": 24,
    "hybrid in memory: calls": 250,
    "BM25 on file: modules": 18,
    "BM25 on file: calls": 110,
    "hybrid on file: modules": 25,
    "hybrid on file: calls": 280,
    "a .txt on file: modules": 34,
    "a .txt on file: calls": 1_600,
    "test lines with public imports only": 0.6,
}
"""What each figure may be at most; of the tests' lines, at least."""
AT_LEAST = frozenset({"test lines with public imports only"})


def is_within(name: str, value: float, bound: float) -> bool:
    """Whether a figure meets a bound."""
    return value >= bound if name in AT_LEAST else value <= bound


def better(name: str, first: float, second: float) -> float:
    """The better of two values of a figure."""
    return max(first, second) if name in AT_LEAST else min(first, second)


def find_lost(figures: house.Figures, reached: house.Figures) -> list[str]:
    """The figures that meet neither their bound nor the value that was reached."""
    return [
        name
        for name, bound in BOUNDS.items()
        if not is_within(name, figures[name], bound)
        and not is_within(name, figures[name], reached.get(name, bound))
    ]


def format_table(figures: house.Figures, reached: house.Figures) -> str:
    """A line for each figure."""
    lines = [f"{'':<46}{'measured':>10}{'reached':>10}{'bound':>10}"]
    for name, bound in BOUNDS.items():
        row = (
            f"{name:<46}{figures[name]:>10,.10g}{reached.get(name, bound):>10,.10g}{bound:>10,.10g}"
        )
        lines.append(row if is_within(name, figures[name], bound) else f"{row}  missed")
    return "\n".join(lines)


def main() -> int:
    """Measure, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", metavar="KIND", help="name the places of a kind, such as branchy")
    parser.add_argument("--record", action="store_true", help="write better values to reached.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(house.ROOT))  # this checkout, whichever is installed
    figures, places = house.measure()
    reached: house.Figures = json.loads(REACHED.read_text(encoding="utf-8"))
    if options.list:
        print(*places.get(options.list, sorted(places)), sep="\n")
        return 0
    print(format_table(figures, reached))
    if options.record:
        best = {
            name: better(name, figures[name], reached.get(name, figures[name])) for name in BOUNDS
        }
        REACHED.write_text(json.dumps(best, indent=1) + "\n", encoding="utf-8")
        return 0
    lost = find_lost(figures, reached)
    print(f"\nLost: {', '.join(lost)}." if lost else "\nNothing that was reached is lost.")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
