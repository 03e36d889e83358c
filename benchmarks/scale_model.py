"""A model to a billion nodes: unit costs measured here, machines and money computed, queries over shards simulated.

    python benchmarks/scale_model.py [--nodes 40000] [--queries 400] [--costs build/bench/scale-model.json]
        [--shard-nodes 10000000] [--rate 20] [--core-hour 0.04] [--gb-month 0.08] [--check]

1. Calibrate, with the corpus of scale.py: CPU time for each chunk of reading, splitting, terms, storing vectors and
   embedding (all-MiniLM-L6-v2 if the shared data has it), bytes on disk and in a reader, CPU time of a query, fixed and
   for a million nodes. --costs takes those of an earlier run instead.
2. Validate: the same nodes in 1, 2 and 4 shards, each a service (`Document(manager=True)`) in a process of its own,
   read by `Document(url=[...])`; queries take turns, and between them requests that do nothing, whose times are the
   simulation's network (and the load of the machine). The simulation gets the CPU costs of 1 and 2 shards, and a factor
   from what it says of 1. Printed: its error for each number of shards; --check fails where p50 is more than 50 % off
   for 4 shards, which it has not seen. CPU time is compared, too: it says something on a busy machine as well.
3. Model: shards, machines, disk, hours and money from a million nodes to a billion, with prices as inputs; p50 and p99
   of queries that arrive at random, with stragglers (1 % of requests take 10 times as long) and with hedging (a request
   that takes longer than the 95th percentile is sent to a replica as well).
"""

from __future__ import annotations

import argparse
import functools
import heapq
import http.client
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import scale
from results import Row, load, save, table
from vectors import MODEL

from lazyrag import Document, Retriever

SIZES = [10**power for power in range(6, 10)]
SHARDS = (1, 2, 4)
STRAGGLERS, SLOWER, HEDGE_QUANTILE = 0.01, 10.0, 0.95
WORST = 0.5
QUIET = 0.15  # of the cores may be used by other programs, so that latencies are compared
BUSY = 0.5  # of a machine's time, at most
BLOCK = 10  # queries, before it is another's turn
KEY_BYTES = 40
LEAST = 4 * scale.BLOCK  # nodes, of which a quarter is measured, too
ROUNDS = 2  # of requests to each shard: statistics, then ranking


@dataclass(frozen=True)
class Costs:
    """Unit costs: CPU milliseconds for 1,000 chunks, bytes for a chunk, CPU milliseconds for a query."""

    read_ms: float
    split_ms: float
    terms_ms: float
    vectors_ms: float
    embed_ms: float
    text_bytes: float
    terms_bytes: float
    vector_bytes: float
    reader_bytes: float
    bm25_ms: float
    bm25_ms_per_million: float
    dense_ms: float
    dense_ms_per_million: float
    request_ms: float
    gateway_ms: float
    gateway_ms_per_shard: float


# Calibrate


def cpu_ms(function: Callable[[], object]) -> float:
    """CPU milliseconds of a call, in all threads."""
    started = time.process_time()
    function()
    return 1_000 * (time.process_time() - started)


def query_ms(retriever: Retriever, queries: Sequence[str]) -> list[float]:
    """CPU milliseconds of each query, warm."""
    for query in queries:
        retriever(query)
    return [cpu_ms(lambda query=query: retriever(query)) for query in queries]


def embed_ms() -> float:
    """CPU milliseconds to embed 1,000 chunks with the model of the shared data; nan without it."""
    if not MODEL.exists():
        return math.nan
    from lazyrag.models.onnx import OnnxEmbedder

    model, texts = OnnxEmbedder(MODEL, batch_size=8, too_long="cut"), scale.block_of_lines(0)[:64]
    model.embed(texts[:8])
    return 1_000 / len(texts) * cpu_ms(lambda: model.embed(texts))


def ingest_costs(folder: Path, nodes: int) -> dict[str, float]:
    """CPU of each step of ingestion, bytes on disk, and CPU of queries on so many nodes."""
    files, store = folder / "files", folder / "stored"
    files.mkdir()
    store.mkdir()
    for texts in scale.documents(0, nodes):
        for name, text in texts.items():
            (files / f"{name}.txt").write_text(text, encoding="utf-8")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store / "store.db")}}}
    docs = Document(files, embed=scale.Embedder(), store_conf=conf)
    docs.create_node_group("line", transform=scale.lines)
    embedding = cpu_ms(lambda: scale.Embedder().embed(scale.block_of_lines(0))) / scale.BLOCK * 1_000
    size = scale.stored(store)[0]
    found: dict[str, float] = {}
    steps: list[tuple[str, Callable[[], object]]] = [
        ("read", docs.sync),
        ("split", lambda: docs.activate_group("line")),
        ("terms", lambda: docs.activate_group("line", analysers=["en"])),
        ("vectors", lambda: docs.activate_group("line", embed_keys=docs.embed_keys)),
    ]
    for name, step in steps:
        found[f"{name}_ms"] = cpu_ms(step) / nodes * 1_000
        before, size = (
            size,
            sum(path.stat().st_size for path in store.rglob("*") if "embeddings" not in path.name) / 1e6,
        )
        found[f"{name}_bytes"] = (size - before) * 1e6 / nodes
    found["vectors_ms"] = max(0.0, found["vectors_ms"] - embedding)
    found["vectors_bytes"] = 5.0 * scale.DIMENSION + 28 + KEY_BYTES  # float32 and a code each, and facts of a row
    queries = scale.queries()
    for name, similarity in (("bm25", "bm25"), ("dense", "cosine")):
        found[f"{name}_ms"] = statistics.mean(query_ms(Retriever(docs, "line", similarity=similarity), queries[:100]))
    docs.close()
    return found


def line_through(small: tuple[float, float], large: tuple[float, float]) -> tuple[float, float]:
    """Value at 0, at least 0, and slope of the line through two points."""
    slope = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
    return max(0.0, small[1] - slope * small[0]), slope


# Shards that are measured


def opened(folder: Path, shards: int, *, read_only: bool = False) -> Document:
    """The Document of a folder, in so many shards."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}}
    docs = Document(store_conf=conf, shards=shards, read_only=read_only)
    docs.create_node_group("line", transform=scale.lines)
    return docs


def serve(folder: Path, shards: int, number: int) -> None:
    """Be the service of a shard until the standard input ends."""
    from lazyrag.server.supervisor import HostedService

    with opened(folder, shards, read_only=True) as docs:
        service = HostedService(docs.shards[number])
        print(service.url, flush=True)
        for _ in sys.stdin:
            print(json.dumps({"cpu_s": time.process_time(), "mb": scale.memory_mb("RssAnon")}), flush=True)
        service.close()


class Service:
    """The service of a shard, in a process of its own."""

    def __init__(self, folder: Path, shards: int, number: int) -> None:
        words = [sys.executable, __file__, "--serve", str(folder), str(shards), str(number)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._ask, self._answers = self._process.stdin, self._process.stdout

    @functools.cached_property
    def url(self) -> str:
        """Its address, once it listens."""
        return self._answers.readline().strip()

    def usage(self) -> dict[str, float]:
        """CPU seconds and private memory so far."""
        self._ask.write("\n")
        self._ask.flush()
        found: dict[str, float] = json.loads(self._answers.readline())
        return found

    def close(self) -> None:
        """End the process."""
        self._ask.close()
        self._process.wait()


def busy_s() -> float:
    """CPU seconds of all programs of the machine since it began; 0 where it does not say."""
    path = Path("/proc/stat")
    user, nice, system = path.read_text().split()[1:4] if path.exists() else (0, 0, 0)
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(stores: Sequence[tuple[Path, int]], queries: Sequence[str]) -> tuple[list[Row], list[float], float]:
    """Latency of queries, and the CPU time that shards and gateway take for one, of several stores that take turns; the
    seconds of requests that do nothing; and how many cores other programs used meanwhile.

    Args:
        stores: The folder of each, and its number of shards.
        queries: Each is asked of every store.
    """
    rows: list[Row] = [{"shards": shards, "seconds": [], "cpu": 0.0, "used": 0.0} for _, shards in stores]
    pings: list[float] = []
    with ExitStack() as stack:
        retrievers, shards = [], []
        for folder, count in stores:
            shards.append([stack.enter_context(closing(Service(folder, count, at))) for at in range(count)])
        for own in shards:
            docs = stack.enter_context(closing(Document(url=[shard.url for shard in own])))
            retrievers.append(Retriever(docs, "line", similarity="bm25", topk=10))
            for query in queries[:30]:
                retrievers[-1](query)
        address = urlsplit(shards[0][0].url).netloc
        connection = stack.enter_context(closing(http.client.HTTPConnection(address)))
        begun, busy = time.monotonic(), busy_s()
        for start in range(0, len(queries), BLOCK):
            for row, retriever, own in zip(rows, retrievers, shards, strict=True):
                used, cpu = [shard.usage() for shard in own], time.process_time()
                for query in queries[start : start + BLOCK]:
                    began = time.perf_counter()
                    retriever(query)
                    row["seconds"].append(time.perf_counter() - began)
                row["cpu"] += time.process_time() - cpu
                row["used"] += sum(shard.usage()["cpu_s"] for shard in own) - sum(one["cpu_s"] for one in used)
            for _ in range(BLOCK):
                began = time.perf_counter()
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                pings.append(time.perf_counter() - began)
        own_s = sum(row["cpu"] + row["used"] for row in rows)
        others = max(0.0, busy_s() - busy - own_s) / (time.monotonic() - begun)
        for row, own in zip(rows, shards, strict=True):
            per_query = 1_000 / len(queries)
            row["p50_ms"], row["p99_ms"] = (np.percentile(row.pop("seconds"), [50, 99]) * 1_000).tolist()
            row["gateway_ms"], row["shard_ms"] = row.pop("cpu") * per_query, row.pop("used") * per_query / len(own)
            row["mb"] = statistics.mean(shard.usage()["mb"] for shard in own)
    return rows, pings, others


def fill(folder: Path, nodes: int, shards: int) -> None:
    """Stores of shards with the documents of so many nodes."""
    folder.mkdir()
    with opened(folder, shards) as docs:
        docs.activate_group("line", analysers=["en"])
        for texts in scale.documents(0, nodes):
            docs.add_texts(texts)


# Simulate


class Simulation:
    """Queries over shards: events in the order of time, and cores that serve requests in the order of their arrival.

    Args:
        shards: How many.
        cores: Of each shard and of its replica.
        gateway_cores: Of the gateway; 0 if everything is on one machine.
        replicas: Of each shard; the second one gets hedged requests.
        gateway_s: CPU time of the gateway for each round of a query.
        network: Seconds that a request takes beside the time it is served, to draw from.
        hedge_s: After so long a request is sent to another replica as well.
    """

    def __init__(
        self,
        shards: int,
        *,
        cores: int,
        gateway_cores: int,
        gateway_s: float,
        network: Sequence[float],
        replicas: int = 1,
        hedge_s: float = math.inf,
    ) -> None:
        self.shards, self.gateway_s, self.hedge_s = shards, gateway_s, hedge_s
        self._network, self._chance = network, random.Random(3)
        self._free = [[0.0] * cores for _ in range(shards * replicas)]
        self._gateway = [0.0] * gateway_cores or self._free[0]
        if not gateway_cores:
            self._free = self._free[:1] * len(self._free)
        self._replicas = replicas
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()

    def run(self, arrivals: Sequence[float], demands: Callable[[], np.ndarray]) -> np.ndarray:
        """Latencies, in seconds.

        Args:
            arrivals: When queries come, ascending; with none of them waiting for another one.
            demands: CPU seconds of the next query's requests, and of those that are hedged, (2, ROUNDS, shards).
        """
        done: list[float] = []
        for at in arrivals:
            self._at(at, lambda now: self._begin(now, now, demands(), 0, done))
        while self._events:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return np.array(done)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    @staticmethod
    def _serve(cores: list[float], now: float, demand: float) -> float:
        """When a request is done that comes now; of the cores it is known when they are free."""
        end = max(now, cores[0]) + demand
        heapq.heapreplace(cores, end)
        return end

    def _begin(self, now: float, came: float, demand: np.ndarray, number: int, done: list[float]) -> None:
        if number == ROUNDS:
            done.append(now - came)
            return
        missing = set(range(self.shards))

        def reply(shard: int, later: float) -> None:
            if shard in missing:  # else its replica was faster
                missing.remove(shard)
                if not missing:
                    self._begin(later, came, demand, number + 1, done)

        def send(shard: int, replica: int, later: float, seconds: float) -> None:
            end = self._serve(self._free[shard * self._replicas + replica], later, seconds)
            end += self._chance.choice(self._network)
            self._at(end, lambda now: reply(shard, now))
            if not replica and self._replicas > 1 and end - later > self.hedge_s:
                usual = float(demand[1, number, shard])
                self._at(later + self.hedge_s, lambda now: shard in missing and send(shard, 1, now, usual))

        ready = self._serve(self._gateway, now, self.gateway_s)
        for shard in range(self.shards):
            self._at(ready, lambda later, shard=shard: send(shard, 0, later, float(demand[0, number, shard])))


def sampler(
    costs: Costs, shape: Sequence[float], nodes: float, shards: int, seed: int, *, stragglers: float = 0.0
) -> Any:
    """Draws the CPU seconds of a query's requests: a query is as heavy for each shard, relatively."""
    chance = np.random.default_rng(seed)
    request = costs.request_ms / 1_000
    search = (costs.bm25_ms + costs.bm25_ms_per_million * nodes / 1e6) / 1_000

    def draw() -> np.ndarray:
        found = (request + search * chance.choice(shape) / ROUNDS) * np.ones((ROUNDS, shards))
        return np.stack([np.where(chance.random(found.shape) < stragglers, found * SLOWER, found), found])

    return draw


def simulated(
    costs: Costs, shape: Sequence[float], nodes: float, shards: int, count: int, *, rate: float = 0.0, **options: Any
) -> tuple[float, float]:
    """p50 and p99 in milliseconds of so many queries: at a rate for each second, or, at 0, one after the other."""
    stragglers = options.pop("stragglers", 0.0)
    gateway_s = (costs.gateway_ms + costs.gateway_ms_per_shard * shards) / ROUNDS / 1_000
    draw = sampler(costs, shape, nodes / shards, shards, 1, stragglers=stragglers)
    gaps = np.random.default_rng(2).exponential(1 / rate, count) if rate else np.full(count, 1e3)
    simulation = Simulation(shards, gateway_s=gateway_s, **options)
    p50, p99 = (np.percentile(simulation.run(np.cumsum(gaps).tolist(), draw), [50, 99]) * 1_000).tolist()
    return p50, p99


def calibrate(folder: Path, nodes: int, count: int) -> dict[str, Any]:
    """Unit costs, what 1, 2 and 4 shards took, how heavy queries are, relatively, and seconds of empty requests."""
    large, small = nodes, nodes // 4
    found = {}
    for name, size in (("large", large), ("small", small)):
        (folder / name).mkdir()
        found[name] = ingest_costs(folder / name, size)
    fits = {}
    for name in ("bm25", "dense"):
        ends = [(size / 1e6, found[which][f"{name}_ms"]) for which, size in (("small", small), ("large", large))]
        fits[name] = line_through(*ends)
    queries = (scale.queries() * (1 + count // scale.QUERIES))[:count]
    stores = [(folder / f"{shards}-shards", shards) for shards in SHARDS]
    for own, shards in stores:
        fill(own, large, shards)
    fill(folder / "quarter", small, 1)
    (*rows, quarter), pings, others = measure([*stores, (folder / "quarter", 1)], queries)
    with opened(*stores[0], read_only=True) as docs:
        each = query_ms(Retriever(docs, "line", similarity="bm25", topk=10), queries)
    _, per_node = line_through((small, quarter["mb"] * 2**20), (large, rows[0]["mb"] * 2**20))
    readings = [one for run in load("scale") for one in run["readings"] if one["similarity"] == "bm25"]
    if len(readings) > 1:  # of stores that are much larger
        least, most = (pick(readings, key=lambda one: one["nodes"]) for pick in (min, max))
        _, per_node = line_through(*((one["nodes"], one["private_mb"] * 2**20) for one in (least, most)))
        fits["bm25"] = line_through(*((one["nodes"] / 1e6, one["cpu_ms"]) for one in (least, most)))
    gateway, per_shard = line_through((1, rows[0]["gateway_ms"]), (2, rows[1]["gateway_ms"]))
    cost = found["large"]
    for run in load("scale"):  # without the files of parts that were merged a moment ago
        share = run["rows"][-1]["store_mb"] * 1e6 / run["rows"][-1]["nodes"]
        share /= sum(cost[f"{name}_bytes"] for name in ("read", "split", "terms"))
        cost |= {f"{name}_bytes": share * cost[f"{name}_bytes"] for name in ("read", "split", "terms")}
    costs = Costs(
        **{name: cost[name] for name in ("read_ms", "split_ms", "terms_ms", "vectors_ms")},
        embed_ms=embed_ms(),
        text_bytes=cost["read_bytes"] + cost["split_bytes"],
        terms_bytes=cost["terms_bytes"],
        vector_bytes=cost["vectors_bytes"],
        reader_bytes=per_node,
        bm25_ms=fits["bm25"][0],
        bm25_ms_per_million=fits["bm25"][1],
        dense_ms=fits["dense"][0],
        dense_ms_per_million=fits["dense"][1],
        request_ms=max(0.0, (quarter["shard_ms"] - found["small"]["bm25_ms"]) / ROUNDS),
        gateway_ms=gateway,
        gateway_ms_per_shard=per_shard,
    )
    usual = float(np.quantile(pings, 0.1))  # on a machine without other work
    shape = [one / statistics.mean(each) for one in each]
    return {
        "costs": asdict(costs),
        "measured": rows,
        "measured_nodes": nodes,
        "shape": shape,
        "pings": pings,
        "others": others,
        "ping": usual,
    }


def validate(known: dict[str, Any]) -> list[Row]:
    """What was measured beside what is simulated, times what makes it right for one shard."""
    costs = Costs(**known["costs"])
    network = [max(0.0, one - costs.request_ms / 1_000) for one in known["pings"]]
    cores = (os.cpu_count() or 1) - known["others"]
    common = {"cores": max(1, round(cores)), "gateway_cores": 0, "network": network}
    found = []
    for row in known["measured"]:
        p50, p99 = simulated(costs, known["shape"], known["measured_nodes"], row["shards"], 4_000, **common)
        search = costs.bm25_ms + costs.bm25_ms_per_million * known["measured_nodes"] / row["shards"] / 1e6
        shard = ROUNDS * costs.request_ms + search
        modelled = row["shards"] * shard + costs.gateway_ms + costs.gateway_ms_per_shard * row["shards"]
        cpu = row["shards"] * row["shard_ms"] + row["gateway_ms"]
        more = {"cpu_ms": cpu, "model_cpu_ms": modelled, "cpu_error": modelled / cpu - 1.0}
        found.append({**row, **more, "model_p50_ms": p50, "model_p99_ms": p99})
    for name in ("p50", "p99"):
        factor = found[0][f"{name}_ms"] / found[0][f"model_{name}_ms"]
        for row in found:
            row[f"{name}_factor"] = factor
            row[f"model_{name}_ms"] *= factor
            row[f"{name}_error"] = row[f"model_{name}_ms"] / row[f"{name}_ms"] - 1.0
    return found


def plan(known: dict[str, Any], nodes: int, options: argparse.Namespace) -> Row:
    """Machines, disk, hours, money and latency for so many nodes."""
    costs, shape = Costs(**known["costs"]), known["shape"]
    shards = math.ceil(nodes / options.shard_nodes)
    thousands = nodes / 1_000
    ingest_h = thousands * (costs.read_ms + costs.split_ms + costs.terms_ms + costs.vectors_ms) / 3.6e6
    embed_h = thousands * costs.embed_ms / 3.6e6
    disk_gb = nodes * (costs.text_bytes + costs.terms_bytes + costs.vector_bytes) / 1e9
    search = costs.bm25_ms + costs.bm25_ms_per_million * nodes / shards / 1e6
    shard = ROUNDS * costs.request_ms + search
    gateway = costs.gateway_ms + costs.gateway_ms_per_shard * shards
    copies, gateways = (math.ceil(options.rate * needed / 1_000 / options.cores / BUSY) for needed in (shard, gateway))
    machines = shards * copies + gateways
    common: dict[str, Any] = {
        "rate": options.rate, "cores": options.cores * copies, "gateway_cores": options.cores * gateways,
        "count": options.simulated, "network": [known["ping"]],
    }  # fmt: skip
    even = simulated(costs, shape, nodes, shards, **common)
    uneven = simulated(costs, shape, nodes, shards, stragglers=STRAGGLERS, **common)
    hedge_s = known["ping"] + (costs.request_ms + search * float(np.quantile(shape, HEDGE_QUANTILE)) / ROUNDS) / 1_000
    hedged = simulated(costs, shape, nodes, shards, stragglers=STRAGGLERS, replicas=2, hedge_s=hedge_s, **common)
    return {
        "nodes": nodes, "shards": shards, "machines": machines, "disk_gb": disk_gb,
        "ingest_core_h": ingest_h, "writer_h": ingest_h / shards, "embed_core_h": embed_h,
        "reader_gb": nodes / shards * costs.reader_bytes / 1e9, "query_cpu_ms": shards * shard + gateway,
        "build_usd": (ingest_h + embed_h) * options.core_hour,
        "month_usd": machines * options.cores * 730 * options.core_hour + disk_gb * copies * options.gb_month,
        "p50_ms": even[0], "p99_ms": even[1], "stragglers_p99_ms": uneven[1], "hedged_p99_ms": hedged[1],
    }  # fmt: skip


def main() -> int:
    """Calibrate, validate, model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=40_000, help="that unit costs are measured with; 40,000 times n")
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--costs", type=Path, help="unit costs of an earlier run, instead of measuring them")
    parser.add_argument("--shard-nodes", type=int, default=10_000_000, help="of a shard, at most")
    parser.add_argument("--rate", type=float, default=20.0, help="queries for each second")
    parser.add_argument("--simulated", type=int, default=1_000, help="queries")
    parser.add_argument("--cores", type=int, default=4, help="of a machine")
    parser.add_argument("--core-hour", type=float, default=0.04, help="price of a core with its memory, in dollars")
    parser.add_argument("--gb-month", type=float, default=0.08, help="price of disk, in dollars")
    parser.add_argument("--check", action="store_true", help="fail where 4 shards are far from the model")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)  # what the process of a shard does
    options = parser.parse_args()
    if options.serve:
        folder, *numbers = options.serve
        serve(Path(folder), *map(int, numbers))
        return 0
    if options.costs:
        known = json.loads(options.costs.read_text(encoding="utf-8"))["known"]
    else:
        with tempfile.TemporaryDirectory() as temporary:
            known = calibrate(Path(temporary), max(1, options.nodes // LEAST) * LEAST, options.queries)
    print(
        table([{"unit cost": name, "value": value} for name, value in known["costs"].items()], ("unit cost", "value"))
    )
    validated = validate(known)
    columns = ("shards", "p50_ms", "model_p50_ms", "p50_error", "p99_ms", "model_p99_ms", "p99_error")
    columns = (*columns, "cpu_ms", "model_cpu_ms", "cpu_error")
    print(table(validated, columns))
    rows = [plan(known, nodes, options) for nodes in SIZES]
    print(table(rows, list(rows[0])))
    save("scale-model", rows, known=known, validated=validated)
    errors = ["cpu_error"]
    if known["others"] > QUIET * (os.cpu_count() or 1):
        print(f"Other programs used {known['others']:.1f} cores: latencies say nothing. Repeat it on an idle machine.")
    else:
        errors.append("p50_error")
    return int(options.check and max(abs(validated[-1][name]) for name in errors) > WORST)


if __name__ == "__main__":
    sys.exit(main())
