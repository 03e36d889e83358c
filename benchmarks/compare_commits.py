"""Compare the working tree with another commit: queries, ingestion and opening, side by side in one
run.

    python benchmarks/compare_commits.py [COMMIT] [--nodes 1000 100000] [--only NAME ...] [--quick]
        [--check RATIO]

The other commit (default: HEAD) is checked out into a temporary git worktree. Each side runs in a
process of its own, with the same interpreter and the same driver (`engines/reading.py`), and builds
the same Documents; only the package differs. Sides take turns in the order A B B A, so that what
else the machine does hits both. The table shows medians in milliseconds and their ratio: below 1,
the working tree is faster. The column "answers" tells whether both sides find the same nodes with
the same scores. Nodes are lines of real English texts, 100 files of them, resampled; vectors are
made without a model. --only measures the queries whose names begin with one of those given, such as
docs.search, in more rounds, and nothing else. --quick measures 1,000 nodes only, in fewer rounds.
With --check the exit status is 1 where a ratio is above the one given: for people, as a shared
machine is too noisy for CI. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from corpus import RETRIEVAL, make_corpus, make_queries
from engine import Engine
from machine import ROOT
from results import Row, figure, save, table

SIZES = (1_000, 100_000)
FILES = 100
FEW_FILES, FEW_LINES = 200, 5
COMPARED = 20  # queries whose answers are compared
COLUMNS = ("figure", "before_ms", "now_ms", "ratio", "answers")


class Plan:
    """How often everything is measured.

    Args:
        queries: How many queries one side answers before it is the other's turn.
        rounds: How often each side has its two turns of queries.
        slow_rounds: The same for opening, adding and ingesting.
    """

    def __init__(self, *, queries: int, rounds: int, slow_rounds: int) -> None:
        self.queries, self.rounds, self.slow_rounds = queries, rounds, slow_rounds


FULL = Plan(queries=30, rounds=4, slow_rounds=3)
FEW = Plan(queries=30, rounds=10, slow_rounds=0)
QUICK = Plan(queries=30, rounds=2, slow_rounds=3)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary git worktree at a commit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "before")
        git("worktree", "add", "--quiet", "--detach", str(path), commit)
        try:
            yield path
        finally:
            git("worktree", "remove", "--force", str(path))


def git(*words: str) -> str:
    """What git prints in this checkout."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def write_lines(folder: Path, texts: Sequence[str], files: int) -> str:
    """Texts as lines of so many files; returns the folder."""
    folder.mkdir(parents=True)
    per_file = -(-len(texts) // files)
    for number, start in enumerate(range(0, len(texts), per_file)):
        lines = "\n".join(texts[start : start + per_file])
        (folder / f"{number:05}.txt").write_text(lines, encoding="utf-8")
    return str(folder)


def side_by_side(
    before: Engine, now: Engine, measure: Callable[[Engine, int], list[float]], rounds: int
) -> Row:
    """Medians and their ratio, of calls in the order A B B A.

    Args:
        before: The engine of the other commit.
        now: That of the working tree.
        measure: Seconds, from an engine and the number of its turn.
        rounds: How often.
    """
    seconds: dict[str, list[float]] = {before.name: [], now.name: []}
    turns = {before.name: 0, now.name: 0}
    for _ in range(rounds):
        for engine in (before, now, now, before):
            seconds[engine.name] += measure(engine, turns[engine.name])
            turns[engine.name] += 1
    medians = {name: 1000 * statistics.median(own) for name, own in seconds.items()}
    first, second = medians[before.name], medians[now.name]
    return {"before_ms": first, "now_ms": second, "ratio": second / first}


def run(root: Path, count: int, plan: Plan, only: tuple[str, ...] = ()) -> list[Row]:
    """Measure everything, or some queries, at one size.

    Args:
        root: The checkout of the other commit.
        count: How many nodes.
        plan: How often.
        only: With what names of queries begin; () for everything.
    """
    corpus = make_corpus("en", count + FEW_FILES * FEW_LINES)
    texts, queries = corpus.texts(), make_queries(corpus, max(plan.queries, COMPARED))
    own, few = texts[:count], texts[count:]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        few_files = write_lines(folder / "few", few, FEW_FILES)
        sides = []
        for name, where in (("before", root), ("now", ROOT)):
            engine = stack.enter_context(Engine("reading", "Reading", root=where))
            engine.name = name
            assert Path(engine.versions["package"]) == where.resolve() / "lazyrag", engine.versions
            engine.call("load", dataset=write_lines(folder / name, own, FILES), few_files=few_files)
            sides.append(engine)
        before, now = sides
        rows = []
        for name in before.call("figures"):
            if only and not name.startswith(only):
                continue
            answers = (
                "" if "explain" in name else compare_answers(before, now, name, queries[:COMPARED])
            )
            asked = {"figure": name, "queries": queries[: plan.queries]}
            row = side_by_side(
                before, now, lambda one, _, given=asked: one.call("query", **given), plan.rounds
            )
            rows.append({"figure": name, "nodes": count, **row, "answers": answers})
        slow: dict[str, Callable[[Engine, int], list[float]]] = {
            "first query after open": lambda one, turn: one.call(
                "first_query", query=queries[turn]
            ),
            "add a .txt, first answer": lambda one, turn: one.call("add_file", text=few[turn]),
            f"ingest {FEW_FILES} files": lambda one, turn: one.call("ingest", query=queries[turn]),
        }
        for name, measure in () if only else slow.items():
            rows.append(
                {
                    "figure": name,
                    "nodes": count,
                    **side_by_side(before, now, measure, plan.slow_rounds),
                }
            )
    return rows


def compare_answers(before: Engine, now: Engine, name: str, queries: Sequence[str]) -> str:
    """Whether both sides find the same nodes, in the same order, with the same scores."""
    first, second = (
        engine.call("answers", figure=name, queries=list(queries)) for engine in (before, now)
    )
    different = sum(one != other for one, other in zip(first, second, strict=True))
    return f"{different} of {len(first)} differ" if different else "same"


def main() -> int:
    """Measure, print, and with --check judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "commit", nargs="?", default="HEAD", help="what to compare the working tree with; HEAD"
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", help=f"sizes; default {' '.join(map(str, SIZES))}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="1,000 nodes and fewer rounds: about half a minute"
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="NAME", help="queries whose names begin so"
    )
    parser.add_argument(
        "--check", type=float, metavar="RATIO", help="fail if a ratio is above this one"
    )
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    commit = git("rev-parse", "--short=10", f"{options.commit}^{{commit}}")
    plan = FEW if options.only else FULL
    if options.quick:
        plan = QUICK
    rows: list[Row] = []
    with checkout(commit) as root:
        for count in options.nodes or (SIZES[:1] if options.quick else SIZES):
            rows += (found := run(root, count, plan, tuple(options.only)))
            print(
                f"\n{figure(count)} nodes; before: {commit}, now: the working tree\n{table(found, COLUMNS)}",
                flush=True,
            )
    save("compare-commits", rows, before=commit)
    slow = [row for row in rows if options.check is not None and row["ratio"] > options.check]
    for row in slow:
        print(
            f"{row['figure']} at {figure(row['nodes'])} nodes: {row['ratio']:.2f} times, over {options.check:g}"
        )
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
