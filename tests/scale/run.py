"""Kill workers and drivers of local Dask and Ray clusters at random points; what is stored has to
be the same.

    python tests/scale/run.py launchers [--kills 3] [--engines dask ray] [--per-run 1] [--seed S]

Each run ingests a folder by a cluster of two workers, while processes are killed with SIGKILL: two
of three kills hit the worker that did something last, every third one the driver, which is then
started again. At the end the export has to be byte-equal to that of a run without a launcher. A
killed worker may cost the batches that it held, two. A killed driver may cost what a batch of
documents loads and transforms in 5 seconds, here all of it, but no texts embedded again other than
those of the batches in flight, two for each worker. The exit status is 1 if any of this does not
hold.

The packages of the clusters are installed into an environment of their own, build/scale/env, the
first time.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clusters import WAIT_S, cluster, environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENT = ROOT / "build" / "scale" / "env"
WORKERS = 2
HELD = 2  # batches of a worker: one that it works on, and one that waits for it or to be fetched
EMBED_S = "0.005"
FILES, LINES, LINE_BYTES = 20, 12, 2_000
BATCH_BYTES = {"load": 1 << 19, "lines": 1 << 18, "titled": 1 << 18, "embed": 1 << 15}
"""Bytes of a batch, as lazyrag/launchers/work.py has them: no batch has more items than fit."""


def write_corpus(folder: Path) -> None:
    """Write files whose lines are all different, and one that cannot be read."""
    folder.mkdir()
    chance = random.Random(7)
    words = [f"word{number}" for number in range(3_000)]
    for at in range(FILES):
        lines = [
            " ".join([f"{at}-{line}", *chance.choices(words, k=LINE_BYTES // 8)])
            for line in range(LINES)
        ]
        (folder / f"{at:03}.noted").write_text("\n".join(lines))
    (folder / "bad.noted").write_text("unreadable")


def drive(
    folder: Path, store: Path | str, launcher: str, log: Path, export: Path
) -> subprocess.Popen[bytes]:
    """Start the driver; it exports what is stored at the end."""
    command = [
        sys.executable,
        str(HERE / "driver.py"),
        str(folder),
        str(store),
        launcher,
        str(export),
    ]
    env = environment(log) | {"SCALE_EMBED_S": EMBED_S, "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(command, env=env, start_new_session=True)


def noted(log: Path) -> dict[str, list[tuple[int, str]]]:
    """What workers have done: processes and hashes, by kind."""
    found = {}
    for kind in BATCH_BYTES:
        path = log / kind
        lines = path.read_text().splitlines() if path.exists() else []
        found[kind] = [
            (int(line.split()[0]), line.split()[1]) for line in lines if len(line.split()) == 2
        ]
    return found


def last_workers(log: Path) -> list[int]:
    """The processes that did something, the last one first."""
    paths = sorted(log.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    lines = [line.split() for path in paths for line in path.read_text().splitlines()]
    return list(dict.fromkeys(int(line[0]) for line in reversed(lines) if len(line) == 2))


def export_of(store: Path) -> Path:
    """The folder of a store's export."""
    return Path(f"{store}.export")


def exported(folder: Path) -> dict[str, bytes]:
    """The files of an export."""
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file()
    }


def run(kinds: list[str], kills: int, per_run: int, seed: int) -> int:
    """Kill so many times for each kind of cluster; print figures and return the exit status."""
    chance = random.Random(seed)
    scratch = Path(tempfile.mkdtemp(prefix="lazyrag-scale-"))
    folder, log = scratch / "files", scratch / "log"
    write_corpus(folder)
    log.mkdir()
    began = time.monotonic()
    if drive(folder, scratch / "none.db", "none", log, scratch / "expected").wait():
        return 1
    expected = exported(scratch / "expected")
    reference = noted(log)
    print(
        f"without a launcher: {time.monotonic() - began:.1f} s, {len(reference['embed'])} texts embedded"
    )
    # at least, in bytes; a line is sent with its share of the document
    sizes = {"load": 6_000, "lines": LINE_BYTES * 5, "titled": LINE_BYTES * 2, "embed": 500}
    most = {kind: size // sizes[kind] + 1 for kind, size in BATCH_BYTES.items()}
    failed = False
    for kind in kinds:
        began = time.monotonic()
        with cluster(kind, log) as made:
            print(f"{kind}: started in {time.monotonic() - began:.1f} s", flush=True)
            number = attempt = 0
            while number < kills:
                shutil.rmtree(log)
                log.mkdir()
                attempt += 1  # a kill may come too late
                store = scratch / f"{kind}-{attempt}.db"
                started = time.monotonic()
                victims = [
                    "driver" if at % 3 == 2 else "worker"
                    for at in range(number, min(number + per_run, kills))
                ]

                def start(made=made, store=store):
                    return drive(folder, store, made.launcher, log, export_of(store))

                def kill(_victim, _driver, made=made):
                    return any(made.kill(pid) for pid in last_workers(log))

                status, counts = ingest_and_kill(
                    start, kill, victims, log, count_notes(reference), chance
                )
                number += counts.total()
                extra = {
                    name: len(found) - len(reference[name]) for name, found in noted(log).items()
                }
                allowed = HELD * (counts["worker"] + WORKERS * counts["driver"])
                same = status == 0 and exported(export_of(store)) == expected
                within = all(
                    extra[name] <= allowed * most[name]
                    for name in extra
                    if name == "embed" or not counts["driver"]
                )
                failed |= not (same and within)
                print(
                    f"{kind}: {dict(counts)} killed, {time.monotonic() - started:.1f} s, "
                    f"export {'equal' if same else 'DIFFERENT'}, done again {extra}"
                    f"{'' if within else f' MORE THAN {allowed} BATCHES of {most}'}",
                    flush=True,
                )
        print(f"{kind}: {time.monotonic() - began:.1f} s in all", flush=True)
    shutil.rmtree(scratch, ignore_errors=True)
    return int(failed)


def ingest_and_kill(
    start: Callable[[], subprocess.Popen[bytes]],
    kill: Callable[[str, subprocess.Popen[bytes]], bool],
    victims: Sequence[str],
    log: Path,
    notes: int,
    chance: random.Random,
) -> tuple[int, collections.Counter[str]]:
    """Ingest a folder and kill meanwhile, at random points of the work.

    Args:
        start: Starts the driver.
        kill: Kills a victim other than the driver, given its name and the driver; returns whether
            there was one.
        victims: What is killed, in this order; "driver" is started again.
        log: Where work leaves notes.
        notes: How many notes the whole work leaves.
        chance: The points.

    Returns:
        The exit status of the driver, and how many were killed by name.
    """
    counts: collections.Counter[str] = collections.Counter()
    driver = start()
    points = sorted(chance.randrange(1, notes) for _ in victims)
    for point, victim in zip(points, victims, strict=True):
        while driver.poll() is None and count_notes(noted(log)) < point:
            time.sleep(0.02)
        if driver.poll() is not None:
            break
        if victim == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            driver = start()
            counts[victim] += 1
        else:
            counts[victim] += kill(victim, driver)
    return driver.wait(WAIT_S * 3), counts


def count_notes(notes: dict[str, list[tuple[int, str]]]) -> int:
    """The number of notes of all kinds."""
    return sum(map(len, notes.values()))


def has_engines(python: Path) -> bool:
    """Whether an interpreter imports the package and the engines."""
    test = [str(python), "-c", "import lazyrag, distributed, ray"]
    return (
        python.exists()
        and subprocess.run(test, cwd=ROOT, capture_output=True, check=False).returncode == 0
    )


def main() -> int:
    """Run in the environment that has the engines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["launchers"])
    parser.add_argument("--kills", type=int, default=3, help="for each engine")
    parser.add_argument(
        "--per-run", type=int, default=1, help="kills while a folder is ingested once"
    )
    parser.add_argument("--engines", nargs="+", default=["dask", "ray"], choices=["dask", "ray"])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    if not has_engines(Path(sys.executable)):
        python = ENVIRONMENT / "bin" / "python"
        if not has_engines(python):
            subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            # in CI a new wheel, as others install the tree meanwhile
            made = (ROOT / "setup.cfg").stat().st_mtime
            wheels = [
                one
                for one in (ROOT / "build" / "ci" / "dist").glob("*.whl")
                if one.stat().st_mtime > made
            ]
            package = [f"{wheels[-1]}[dask,ray]"] if wheels else ["-e", f"{ROOT}[dask,ray]"]
            subprocess.run([*pip, *package], check=True)
            if not has_engines(python):
                sys.exit(
                    f"{python} cannot import lazyrag, distributed and ray after they were installed."
                )
        return subprocess.run([str(python), *sys.argv], check=False).returncode
    print(f"seed {given.seed}")
    if given.kills and "dask" in given.engines:
        subprocess.run([sys.executable, str(ROOT / "cookbook" / "28_dask.py")], check=True)
    return run(given.engines, given.kills, given.per_run, given.seed)


if __name__ == "__main__":
    sys.exit(main())
