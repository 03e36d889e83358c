"""Run the tests of this folder against real servers: install them, start them, test, stop them.

    python tests/live/run.py [--coverage] [part ...]

Each part is the test files of its name, in the environment and beside the server that they need.
All of it runs in namespaces of its own: no network but loopback, which Milvus would otherwise serve
to all, and no process that outlives them. That needs Linux and the right to make them, which root
has on most machines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from tests.live.install import install, python_of  # noqa: E402  they are found in the root
from tests.live.serving import (  # noqa: E402
    Server,
    chroma_server,
    knn_server,
    milvus_server,
    opensearch_server,
    pgvector_server,
    postgres_server,
)

_NAMESPACES = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_NONE_SELECTED = 5  # exit code of pytest
_INSIDE = "--inside"
_AT_ONCE = 2  # parts


@dataclass(frozen=True)
class Part:
    """What belongs to one kind of store.

    Args:
        environment: The environment that its tests run in.
        tests: Its test files, as a pattern.
        workers: How many processes run them at once: for those that mostly wait for a server.
        alone: Whether it has a network of its own, for tests that start servers whose ports are
            always the same.
        needs: What else has to be installed.
        variable: The environment variable that tells tests where its server answers.
        server: Starts the server over a folder.
    """

    environment: str
    tests: str
    workers: int = 0
    alone: bool = False
    needs: tuple[str, ...] = ()
    variable: str = ""
    server: Callable[[Path], AbstractContextManager[Server]] | None = None


# The longest first.
PARTS = {
    "milvus": Part(
        "env",
        "test_milvus_server*.py",
        workers=14,
        needs=("milvus-server",),
        variable="LAZYRAG_LIVE_MILVUS",
        server=milvus_server,
    ),
    "chroma": Part(
        "env", "test_chroma*.py", workers=2, variable="LAZYRAG_LIVE_CHROMA", server=chroma_server
    ),
    "milvus-killed": Part("env", "test_milvus_killed*.py", alone=True, needs=("milvus-server",)),
    "milvus3": Part("env", "test_milvus_lite*.py", workers=3),
    "milvus25": Part("milvus25", "test_milvus_lite*.py", workers=3),
    "opensearch": Part(
        "env",
        "test_opensearch*.py",
        needs=("opensearch",),
        variable="LAZYRAG_LIVE_OPENSEARCH",
        server=opensearch_server,
    ),
    "knn": Part(
        "env",
        "test_knn*.py",
        needs=("opensearch",),
        variable="LAZYRAG_LIVE_OPENSEARCH",
        server=knn_server,
    ),
    "postgres": Part(
        "env", "test_postgres*.py", variable="LAZYRAG_POSTGRES", server=postgres_server
    ),
    "pgvector": Part(
        "env",
        "test_pgvector*.py",
        needs=("pgvector",),
        variable="LAZYRAG_POSTGRES",
        server=pgvector_server,
    ),
}


def main() -> int:
    """Install, go into the namespaces, and there run what was asked for; 1 if any test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"some of: {' '.join(PARTS)}; all without"
    )
    parser.add_argument(
        "--coverage", action="store_true", help="measure it, into .coverage.* files in the root"
    )
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.parts or parts_of_slice()
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"{unknown[0]!r} is none of: {' '.join(PARTS)}")
    if not asked.inside:
        _check_namespaces()
        for name in names:
            for needed in (PARTS[name].environment, *PARTS[name].needs):
                install(needed)
        sys.stdout.flush()
        os.execvp(
            "unshare", ["unshare", *_NAMESPACES, sys.executable, __file__, _INSIDE, *sys.argv[1:]]
        )
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    runner = ("-m", "coverage", "run", "-m", "pytest") if asked.coverage else ("-m", "pytest")
    names.sort(key=[*PARTS].index)
    # most of the time one of them waits for its server
    at_once = [name for name in names if name != "knn"]
    alone = [name for name in names if name == "knn"]
    with ThreadPoolExecutor(_AT_ONCE) as executor:
        passed = [*executor.map(lambda name: run_part(name, runner), at_once)]
    # two clusters of OpenSearch at once take each other's requests
    passed += [run_part(name, runner) for name in alone]
    names = at_once + alone
    failed = [name for name, good in zip(names, passed, strict=True) if not good]
    print("\n" + (f"failed: {' '.join(failed)}" if failed else f"passed: {' '.join(names)}"))
    return int(bool(failed))


def parts_of_slice() -> list[str]:
    """All parts; where LAZYRAG_SLICE chooses some of the tests, those with one of the two versions
    of Milvus Lite.
    """
    number = os.environ.get("LAZYRAG_SLICE", "").partition("/")[0]
    if not number:
        return [*PARTS]
    # halves of the tests go by the remainder: see conftest
    left_out = ("milvus3", "milvus25")[int(number) // 2 % 2]
    return [name for name in PARTS if name != left_out]


def run_part(name: str, runner: tuple[str, ...]) -> bool:
    """Whether the tests of a part pass; with the end of the server's log where they do not."""
    part = PARTS[name]
    files = sorted(map(str, HERE.glob(part.tests)))
    workers = ("-n", str(part.workers), "--dist", "worksteal") if part.workers else ()
    network = (
        ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"')
        if part.alone
        else ()
    )
    command = [
        *network,
        python_of(part.environment),
        *runner,
        "-q",
        "-m",
        "not deep",
        *workers,
        *files,
    ]
    output = f"\n== {name}: {' '.join(Path(file).name for file in files)}\n"
    with tempfile.TemporaryDirectory(prefix="lazyrag-live-") as folder:
        with part.server(Path(folder)) if part.server else nullcontext() as server:
            environment = {**os.environ, **({part.variable: server.address} if server else {})}
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                check=False,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        output += done.stdout
        if server and done.returncode:
            output += f"\nThe end of the server's log:\n{server.log_end}"
    print(output, flush=True)
    # Of a file with a single test, a slice may select none.
    is_empty = done.returncode == _NONE_SELECTED and "LAZYRAG_SLICE" in os.environ
    return done.returncode == 0 or is_empty


def _check_namespaces() -> None:
    """Exit with what is needed, if it is not there."""
    missing = [program for program in ("unshare", "ip") if shutil.which(program) is None]
    if missing:
        sys.exit(f"This needs {' and '.join(missing)}: apt-get install util-linux iproute2")
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "true"], check=False, capture_output=True, text=True
    )
    if tried.returncode:
        sys.exit(
            f"unshare {' '.join(_NAMESPACES)} said: {tried.stderr.strip()}\n"
            "The real servers run in a network and a process namespace of their own. Run this as root; in a container, "
            "with the right to make namespaces (CAP_SYS_ADMIN: docker run --privileged)."
        )


if __name__ == "__main__":
    sys.exit(main())
