"""Write the golden files anew, from what this commit does in memory.

    python -m tests.behaviour.record               all of them: some minutes
    python -m tests.behaviour.record hits dumps    these
    python -m tests.behaviour.record --show "bm25 / none" 3     print the hits of a block of
    queries, to compare commits

A golden file changes only in a commit that says which behaviour it changes, and why.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.behaviour import answers, canonical, dumps, goldens
from tests.behaviour.definitions import definition_rows
from tests.behaviour.library import Library, open_library
from tests.behaviour.make_stores import stores_rows
from tests.behaviour.queries import BLOCKS, FILTERS
from tests.behaviour.retrievers import CASES
from tests.behaviour.store_kinds import STORES


def _dumps(lib: Library, folder: Path) -> Iterator[dict[str, Any]]:
    yield from dumps.library_rows(lib)
    yield from dumps.cookbook_rows(folder, None)


RECORDS: dict[str, Callable[[Library, Path], Iterator[dict[str, Any]]]] = {
    "dumps": _dumps,
    "definitions": lambda lib, folder: definition_rows(folder),
    "stores": lambda lib, folder: stores_rows(folder),
    "hits": lambda lib, folder: answers.hit_rows(lib, range(len(BLOCKS))),
    "restricted": lambda lib, folder: answers.restricted_rows(lib),
    "explanations": lambda lib, folder: answers.explanation_rows(lib),
}


def show(lib: Library, key: str, number: int) -> None:
    """Print the hits that a retriever gives for the queries of a block, in full."""
    name, _, label = key.rpartition(" / ")
    case = CASES[name]
    retriever = case.make(lib)
    for query in BLOCKS[number]:
        found = retriever(query, filters=FILTERS[label]) if case.filters else retriever(query)
        print(canonical.as_json([query, canonical.plain(found, case.decimals)]))


def main() -> None:
    """Record, or show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join(RECORDS)}; all of them if left out"
    )
    parser.add_argument("--show", nargs=2, metavar=("KEY", "BLOCK"))
    given = parser.parse_args()
    if unknown := set(given.names) - set(RECORDS):
        parser.error(f"no golden file {', '.join(unknown)}; known: {', '.join(RECORDS)}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lib = open_library(stack, folder, STORES["memory"].conf_of)
        if given.show:
            show(lib, given.show[0], int(given.show[1]))
            return
        for name in given.names or RECORDS:
            goldens.save(name, RECORDS[name](lib, folder))
            print(goldens.FOLDER / f"{name}.jsonl")


if __name__ == "__main__":
    main()
