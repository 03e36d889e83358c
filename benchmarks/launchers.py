"""How much faster documents are embedded by 1 and 2 workers of each launcher than by the program
itself.

    python benchmarks/launchers.py [--texts 1200] [--launchers none 1 2 dask ray] [--check]

The model takes 5 ms for a text and embeds one text at a time, as a model on a device of its worker
does. Dask and Ray are those of build/scale/env, see tests/scale/run.py; without them, pass
--launchers none 1 2. Prints seconds without the start of clusters and processes, which a first
ingestion has begun, and the CPU seconds of all processes with it. With --check, the exit status is
1 if two processes are not 1.8 times as fast as one. Results go to build/bench.
Workers that write the store themselves: benchmarks/workers.py.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "scale"))

import scale_work
from clusters import cluster, environment
from results import Row, save, table

from lazyrag import Document

EMBED_S = "0.005"
START_S = 8.0  # until both workers of a cluster have joined
WORTH = 1.8
COLUMNS = ("launcher", "texts", "seconds", "texts_per_s", "times", "cpu_s")


def cpu_s() -> float:
    """CPU time so far, with that of the processes that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure_launcher(name: str, texts: int) -> float:
    """See `measure`; starts the cluster of a name."""
    with ExitStack() as stack:
        launcher: Any = int(name) if name.isdecimal() else None
        if name in ("dask", "ray"):
            launcher = stack.enter_context(cluster(name, Path(os.environ["SCALE_LOG"]))).launcher
            time.sleep(START_S)
        return measure(launcher, texts)


def measure(launcher: Any, texts: int) -> float:
    """Seconds to ingest and embed so many texts, after a first time; the better one of two."""
    with tempfile.TemporaryDirectory() as scratch:
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": f"{scratch}/store.db"}}}
        with Document(
            None, scale_work.embed, store_conf=conf, launcher=launcher, workers=1
        ) as docs:
            docs.create_node_group("line", transform=scale_work.lines)
            # As many batches as let every worker of a cluster import the package and open the
            # model.
            docs.add_texts(
                {
                    f"first {number}": f"first {number} of tea {'water ' * 5000}"
                    for number in range(8)
                }
            )
            docs.activate_group("line", embed_keys=docs.reader.embed_keys)
            took = []
            for turn in range(2):
                lines = [
                    f"{turn} {at} green tea is brewed at eighty degrees " * 8 for at in range(texts)
                ]
                began = time.perf_counter()
                docs.add_texts(
                    {f"{turn} {at}": "\n".join(lines[at : at + 20]) for at in range(0, texts, 20)}
                )
                docs.get_nodes("line")
                took.append(time.perf_counter() - began)
            return min(took)


def main() -> int:
    """Measure the launchers one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=1200)
    parser.add_argument("--launchers", nargs="*", default=["none", "1", "2", "dask", "ray"])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    rows: list[Row] = []
    measures = {
        name: functools.partial(measure_launcher, name, given.texts) for name in given.launchers
    }
    seconds: dict[str, float] = {}
    for name, measured in measures.items():
        before = cpu_s()
        with tempfile.TemporaryDirectory() as log:
            os.environ.update(environment(Path(log)) | {"SCALE_EMBED_S": EMBED_S})
            seconds[name] = took = measured()
        times = next(iter(seconds.values())) / took
        figures = name, given.texts, took, given.texts / took, times, cpu_s() - before
        print(f"{name}: {took:.2f} s", flush=True)
        rows.append(dict(zip(COLUMNS, figures, strict=True)))
    print(table(rows, COLUMNS))
    save("launchers", rows)
    return int(given.check and {"1", "2"} <= seconds.keys() and seconds["1"] / seconds["2"] < WORTH)


if __name__ == "__main__":
    sys.exit(main())
