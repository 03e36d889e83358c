"""Query four shards over HTTP and one index: uids, scores and order are equal to the last bit; times of both.

    python benchmarks/shards_http.py [--queries 10000] [--documents 4000] [--shards 4]

Starts a service for each shard, each a process with one web process, on this machine. Then one of them is killed: the
next answer is an error that names it, or with ``partial=True`` what one index of the other documents gives, and an
answer from a replica is the complete one again. The exit status is 1 if any of this does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles

from lazyrag import Document, HybridRetriever, Retriever
from lazyrag.document.project import label_fields
from lazyrag.document.shards import shard_of
from lazyrag.errors import StoreConnectionError

WORDS = 3_000
ANALYSERS = ("en", "zh")
WAIT_S = 90.0


def embed(text: str) -> list[float]:
    """A vector without a model: counts of letters."""
    return [1.0, *(float(text.count(one)) for one in "0123456789")]


embed.identity = "counts of digits"  # type: ignore[attr-defined]


def texts(documents: int) -> dict[str, str]:
    """Documents of words, the frequent ones far more frequent than the others."""
    chance = random.Random(1)
    words = [f"w{number}" for number in range(WORDS)]
    picks = [chance.choices(words, [1 / (rank + 1) for rank in range(WORDS)], k=60) for _ in range(documents)]
    return {f"{number:05}.txt": " ".join(pick) for number, pick in enumerate(picks)}


def queries(count: int) -> list[str]:
    """Different queries of four words; in every tenth one a word is twice."""
    chance = random.Random(2)
    picks = [[f"w{int(WORDS * chance.random() ** 2)}" for _ in range(4)] for _ in range(count)]
    return [" ".join([*pick[:3], pick[number % 10 and 3]]) for number, pick in enumerate(picks)]


def conf(store: Path) -> dict[str, object]:
    """The ``store_conf`` of a file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}


@contextmanager
def service(folder: Path, table: str, modules: Path):
    """A service of a configuration: its process and its address."""
    folder.mkdir()
    (folder / "service.toml").write_text(f"[server]\nport = 0\nprocesses = 1\n{table}", encoding="utf-8")
    code = "from lazyrag.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", str(folder / "service.toml"), "--json"]
    env = os.environ | {"PYTHONPATH": f"{modules}{os.pathsep}{Path(__file__).resolve().parents[1]}"}
    log = (folder / "log").open("w")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env, text=True, start_new_session=True)
    try:
        late = threading.Timer(WAIT_S, process.kill)
        late.start()
        found = next(filter(None, (re.search(r"http://[\d.:]+", line) for line in process.stdout)), None)
        late.cancel()
        if found is None:
            raise RuntimeError(f"A service did not begin. {(folder / 'log').read_text()[-2_000:]}")
        yield process, found.group()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def cpu_ms(processes: list[subprocess.Popen]) -> float:
    """CPU time of services so far, with their processes."""
    ticks, pids = 0, [one.pid for one in processes]
    while pids:
        pid = pids.pop()
        columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(columns[11]) + int(columns[12])
        pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return 1e3 * ticks / os.sysconf("SC_CLK_TCK")


def kill(process: subprocess.Popen) -> None:
    """Kill a service with its processes."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def wait_for(url: str, documents: int) -> None:
    """Wait until a service has so many documents."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{url}/api/v1/sets/default") as answer:  # noqa: S310  it is http
            if json.load(answer)["documents"] == documents:
                return
        time.sleep(0.2)
    raise RuntimeError(f"The replica has not copied {documents} documents.")


def ranked(retriever, query: str) -> list[tuple[str, float]]:
    """Uids and scores."""
    return [(node.uid, node.score) for node in retriever(query)]


def timed(retriever, asked: list[str]) -> tuple[list[list[tuple[str, float]]], list[float]]:
    """Results and times in ms."""
    found, times = [], []
    for query in asked:
        began = time.perf_counter()
        found.append(ranked(retriever, query))
        times.append((time.perf_counter() - began) * 1e3)
    return found, times


def shown(name: str, times: list[float]) -> None:
    """Print a line of times."""
    cuts = quantiles(times, n=100)
    print(f"{name:28} p50 {cuts[49]:7.2f} ms   p95 {cuts[94]:7.2f} ms   p99 {cuts[98]:7.2f} ms", flush=True)


def main() -> int:  # noqa: PLR0915  the parts of one run
    """Compare, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--shards", type=int, default=4)
    options = parser.parse_args()
    work, count = Path(tempfile.mkdtemp(prefix="lazyrag-shards-")), options.shards
    all_texts, asked, failed = texts(options.documents), queries(options.queries), []

    def check(what: str, *, holds: bool) -> None:
        print(f"{'ok' if holds else 'FAILED':8}{what}", flush=True)
        if not holds:
            failed.append(what)

    modules = Path(__file__).resolve().parent
    with ExitStack() as stack:
        one = stack.enter_context(Document(store_conf=conf(work / "one.db"), embed=embed, doc_fields=label_fields()))
        one.add_texts(all_texts)
        one.activate_group("FineChunk", analysers=ANALYSERS, embed_keys=one.embed_keys)
        own = {"store_conf": conf(work / "store.db"), "embed": embed, "doc_fields": label_fields()}
        with Document(**own, shards=count) as sharded:
            sharded.add_texts(all_texts)
            sharded.activate_group("FineChunk", analysers=ANALYSERS, embed_keys=sharded.embed_keys)
        table = '[sets.default]\ngroups = ["FineChunk"]\nanalysers = ["en", "zh"]\nembed = "shards_http:embed"\n'
        table += f'store_conf = {{ segment_store = {{ type = "map", kwargs = {{ uri = "{work / "store.db"}" }} }} }}\n'
        tables = [f'{table}shard = "{number}/{count}"\n' for number in range(count)]
        services = [
            stack.enter_context(service(work / f"s{number}", own, modules)) for number, own in enumerate(tables)
        ]
        urls = [url for _, url in services]
        docs = stack.enter_context(Document(url=urls))

        retrievers = [Retriever(one_or_many, "FineChunk", similarity="bm25") for one_or_many in (one, docs)]
        for retriever in retrievers:
            timed(retriever, asked[:20])
        plain, plain_ms = timed(retrievers[0], asked)
        processes = [process for process, _ in services]
        before, used = time.process_time(), cpu_ms(processes)
        found, found_ms = timed(retrievers[1], asked)
        own, used = 1e3 * (time.process_time() - before) / len(asked), (cpu_ms(processes) - used) / len(asked) / count
        shown("one index", plain_ms)
        shown(f"{count} shards over HTTP", found_ms)
        print(f"CPU time of a query: client {own:.2f} ms, each shard {used:.2f} ms", flush=True)
        check(f"{len(asked):,} BM25 queries are equal to the last bit", holds=plain == found)
        few = asked[: max(50, len(asked) // 20)]
        for name in ("vector", "hybrid"):
            pair = [
                HybridRetriever.over(d, "FineChunk") if name == "hybrid" else Retriever(d, "FineChunk")
                for d in (one, docs)
            ]
            (plain, _), (found, times) = (timed(retriever, few) for retriever in pair)
            shown(f"{count} shards, {name}", times)
            check(f"{len(few):,} {name} queries are equal to the last bit", holds=plain == found)

        partial = stack.enter_context(Document(url=urls, partial=True))
        dead = count // 2
        own = tables[dead].replace("store.db", "replica.db") + f'follow = "{urls[dead]}"\n'
        _, replica = stack.enter_context(service(work / "replica", own, modules))
        expected, _ = timed(retrievers[0], few)
        wait_for(replica, sum(shard_of(name, count) == dead for name in all_texts))
        spread = stack.enter_context(
            Document(url=[[url, replica] if url == urls[dead] else url for url in urls], name="default")
        )
        found, _ = timed(Retriever(spread, "FineChunk", similarity="bm25"), few[:1])
        kill(services[dead][0])
        found, _ = timed(Retriever(spread, "FineChunk", similarity="bm25"), few)
        check("a replica answers for a shard that is down", holds=found == expected)
        try:
            retrievers[1](asked[0])
            check("a shard that is down is an error", holds=False)
        except StoreConnectionError as exc:
            check(f"a shard that is down is named: {exc}", holds=urls[dead] in str(exc))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rest = {name: text for name, text in all_texts.items() if shard_of(name, count) != dead}
            others = stack.enter_context(Document())
            others.add_texts(rest)
            expected, _ = timed(Retriever(others, "FineChunk", similarity="bm25"), few)
            found, _ = timed(Retriever(partial, "FineChunk", similarity="bm25"), few)
            explained = str(Retriever(partial, "FineChunk", similarity="bm25").explain(few[0]))
        check("partial=True answers as one index of the other documents", holds=expected == found)
        is_named = partial.missing == (urls[dead],) and urls[dead] in explained
        check("and names the shard", holds=is_named and any(urls[dead] in str(one.message) for one in caught))
    print(f"{len(failed)} failed." if failed else "Everything holds.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
