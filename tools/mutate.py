"""Change the code that promises rest on, one operator at a time, and see whether its tests notice.

    python tools/mutate.py [--count 200] [--seed 1] [PART ...]

Draws a sample of the mutants that cosmic-ray makes of each part, runs the part's tests with each,
and prints the mutants that survived, as diffs, and the share that was killed. Works on a copy in
build/mutants, where cosmic-ray is installed too. One mutant takes as long as the part's tests up to
the first failure.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "mutants"

PARTS: dict[str, tuple[str, str, str]] = {
    "filters": ("lazyrag/data/filters.py", "", "filters fields postings"),
    "push-down": (
        "lazyrag/stores/protocol.py",
        "push_down _push_down_or _native_or_rest _negate _join",
        "pushdown milvus_filters opensearch_filters",
    ),
    "ledger": (
        "lazyrag/ledger/ledger.py",
        "",
        "ledger two_ledgers converging sync versions migration verify status export read/snapshot",
    ),
    "tables": (
        "lazyrag/ledger/tables.py",
        "",
        "ledger two_ledgers converging sync versions migration verify status export read/snapshot",
    ),
    "lease": ("lazyrag/ledger/lease.py", "", "lease documents/processes two_ledgers"),
    "snapshot": (
        "lazyrag/read/snapshot.py",
        "",
        "read/snapshot scope windows live_hits find bm25 document node_group directions node stages",
    ),
}
"""Name of a part to its module, its functions ("" for all), and its test modules, in tests/."""

_NO_MUTANTS = ("ReplaceBinaryOperator_BitOr", "NoOp")
"""Operators that are not sampled: ``|`` stands in annotations mostly, which are never evaluated."""


def main(arguments: list[str]) -> int:
    """Run the sample; exits with 1 if tests fail without a mutant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--count", type=int, default=200, help="mutants in all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    options = parser.parse_args(arguments)
    names = options.parts or list(PARTS)
    tree, tool = BUILD / "tree", BUILD / "env" / "bin"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(
        ROOT,
        tree,
        ignore=shutil.ignore_patterns(
            ".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis"
        ),
    )
    if not (tool / "cosmic-ray").exists():
        subprocess.run([sys.executable, "-m", "venv", str(BUILD / "env")], check=True)
        subprocess.run(
            [str(tool / "python"), "-m", "pip", "install", "-q", "cosmic-ray"], check=True
        )
    killed = tried = 0
    for number, name in enumerate(names):
        count = options.count * (number + 1) // len(names) - options.count * number // len(names)
        outcomes = run_part(name, count, options.seed, tree, tool)
        survived = [diff for outcome, diff in outcomes if outcome == "SURVIVED"]
        for diff in survived:
            print(
                "\n".join(line for line in diff.splitlines() if line.startswith(("@@", "+", "-"))),
                end="\n\n",
            )
        print(f"{name}: {len(outcomes) - len(survived)} of {len(outcomes)} killed", flush=True)
        killed, tried = killed + len(outcomes) - len(survived), tried + len(outcomes)
    print(f"{killed} of {tried} mutants killed ({killed / tried:.0%})")
    return 0


def find_tests(tree: Path, names: list[str]) -> list[Path]:
    """The test modules of these names: ``"lease"``, or ``"ledger/lease"`` where several have it."""
    paths: list[Path] = []
    for name in names:
        folder, _, module = name.rpartition("/")
        paths += sorted((tree / "tests").rglob(f"{folder}/test_{module}.py".lstrip("/")))
    return paths


def run_part(name: str, count: int, seed: int, tree: Path, tool: Path) -> list[tuple[str, str]]:
    """Run a sample of one part's mutants.

    Returns:
        The outcome of each, and its diff.
    """
    module, functions, tests = PARTS[name]
    files = [str(path.relative_to(tree)) for path in find_tests(tree, tests.split())]
    command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider {' '.join(files)}"
    config, session = BUILD / f"{name}.toml", BUILD / f"{name}.sqlite"
    config.write_text(
        f"[cosmic-ray]\nmodule-path = {json.dumps(module)}\ntimeout = 180.0\nexcluded-modules = []\n"
        f'test-command = {json.dumps(command)}\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    session.unlink(missing_ok=True)
    run = [str(tool / "cosmic-ray")]
    subprocess.run([*run, "init", str(config), str(session)], cwd=tree, check=True)
    with sqlite3.connect(session) as connection:
        rows = connection.execute(
            "SELECT job_id, operator_name, definition_name FROM mutation_specs "
            "ORDER BY operator_name, operator_args, occurrence"
        ).fetchall()
        jobs = [
            job
            for job, operator, function in rows
            if not any(word in operator for word in _NO_MUTANTS)
            and (not functions or function in functions.split())
        ]
        sample = random.Random(seed).sample(jobs, min(count, len(jobs)))
        for table in ("mutation_specs", "work_items"):
            marks = ", ".join("?" * len(sample))
            connection.execute(f"DELETE FROM {table} WHERE job_id NOT IN ({marks})", sample)  # noqa: S608
    subprocess.run([*run, "baseline", str(config)], cwd=tree, check=True)
    subprocess.run([*run, "exec", str(config), str(session)], cwd=tree, check=True)
    with sqlite3.connect(session) as connection:
        return connection.execute("SELECT test_outcome, diff FROM work_results").fetchall()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
