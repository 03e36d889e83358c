"""Splitting by a token counter of the user's own: our SentenceSplitter beside llama-index's with
the same function.

    python benchmarks/splitting.py [--rounds 5]

The counter is a regular expression that finds words and signs, the limit 256 of them with an
overlap of 25. The texts are paragraphs of Cranfield, XQuAD and CMRC 2018, joined to about 5,000
characters, as in ingest.py. Each has a process of its own; they take turns, and processor seconds
are compared. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from typing import Any

from corpus import RETRIEVAL
from engine import open_engines
from ingest import prose
from results import Row, save, table
from timing import spread

ENGINES = {"lazyrag": ("Lazyrag", None), "llama-index": ("LlamaIndex", "peers")}
LANGUAGES = {"en": 5, "zh": 15}
"""Paragraphs in a text, by language."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    rows: list[Row] = []
    goals = {}
    with ExitStack() as stack:
        engines, left_out = open_engines(stack, "splitting", ENGINES)
        versions = {name: engine.versions for name, engine in engines.items()}
        for language, count in LANGUAGES.items():
            some = prose(language)
            texts = ["\n\n".join(some[at : at + count]) for at in range(0, len(some), count)]
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
            for _ in range(options.rounds):
                for name, engine in engines.items():
                    found[name].append(engine.call("measure", texts=texts))
            for name, runs in found.items():
                took = statistics.median(run["cpu_s"] for run in runs)
                characters = sum(map(len, texts))
                rows.append(
                    {
                        "engine": f"{name}, {language}",
                        **runs[0],
                        "cpu_s": took,
                        "characters_s": characters / took,
                    }
                )
            if "llama-index" in found:
                taken = [[run["cpu_s"] for run in found[name]] for name in ENGINES]
                goals[language] = spread([a / b for a, b in zip(*taken, strict=True)])
    print(table(rows, ("engine", "cpu_s", "characters_s", "chunks", "largest")))
    save(
        "splitting", rows, goals=goals, versions=versions, left_out=left_out, rounds=options.rounds
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
