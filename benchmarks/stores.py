"""Our stores beside their bare clients: the same rows, queries, index, batches and consistency;
medians and ratios.

    python benchmarks/stores.py [--rows 10000] [--rounds 5] [store ...]
    python benchmarks/stores.py --documents [--rows 100000] [file postgres opensearch milvus ...]

Rows are real MiniLM vectors with three fields, in OpenSearch texts with three fields; they are
written in batches, of which ours and the bare client's take turns, and then both are asked the
same. ``search`` is the backend's own search on both sides; ``exact`` is ours alone, beside the bare
client's search: what it costs to fetch beyond ties and to score again, and in a Chroma of at most
10,000 rows to ask for all of them. Each side has a process of its own, and both the same server.
With ``--documents`` a whole Document on each engine stands beside its bare client: texts of 60 words
with vectors and a field, in documents of ten. Both write a first part that is not reported, then the
rest, one after the other; a new process of each opens what is there and answers; then they take
turns with keyword, vector, hybrid and restricted searches. The file has no bare client, and the
tried Milvus no keyword search: there restricted searches are those by vectors.

`tests/live/install.py` installs the stores; servers run in a network of their own, see
tests/live/run.py. Results go to build/bench, a file for each store.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from corpus import RETRIEVAL, make_corpus
from engine import Engine, open_engines
from results import Row, save, table
from timing import median_ms, quantile_ms, ratios, take_turns
from vectors import make_queries, make_vectors, questions, real_texts
from vectors import save as save_vectors
from workers import cpu_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.live.serving import (
    Server,
    chroma_server,
    knn_server,
    milvus_server,
    opensearch_server,
    pgvector_server,
    postgres_server,
)

BATCH = 500
QUERIES = 20
LIVE = "live/env"
OURS, BARE = "ours", "bare"
IN_NAMESPACE = "LAZYRAG_BENCH_NAMESPACE"
NAMESPACES = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
COLUMNS = ("what", "bare_ms", "ours_ms", "x", "p95_x", "same")
MOST = 1.25


@dataclass(frozen=True)
class Beside:
    """A store and its bare client.

    Args:
        kinds: The class of each in ``engines/stores.py``.
        asked: What is measured beside which method of the bare client.
        server: Starts its server; None for one in the process.
        texts: Whether its rows are texts.
        most: Rows; where a search takes longer than the machine's patience.
    """

    kinds: dict[str, str]
    asked: dict[str, str]
    server: Callable[[Path], Any] | None = None
    texts: bool = False
    most: int = 10_000_000


PLAIN = {"search": "search", "filtered": "filtered", "get": "get"}
EXACT = {**PLAIN, "exact": "search", "exact_filtered": "filtered"}
RESCORED = {**EXACT, "rescored": "search", "rescored_filtered": "filtered"}
CHROMA = {OURS: "LazyragChroma", BARE: "BareChroma"}
MILVUS = {OURS: "LazyragMilvus", BARE: "BareMilvus"}
TEXTS = {OURS: "LazyragOpenSearch", BARE: "BareOpenSearch"}
POSTGRES = {OURS: "LazyragPostgres", BARE: "BarePostgres"}
PGVECTOR = {OURS: "LazyragPgvector", BARE: "BarePgvector"}
ROWS = {OURS: "LazyragOpenSearchRows", BARE: "BareOpenSearchRows"}
STORES = {
    "chroma": Beside(CHROMA, RESCORED),
    "chroma-server": Beside(CHROMA, RESCORED, chroma_server),
    # it takes 0.1 s to read as many, until they are flushed
    "milvus-lite": Beside(MILVUS, EXACT, most=2_000),
    "milvus-server": Beside(MILVUS, EXACT, milvus_server),
    "postgres-text": Beside(POSTGRES, PLAIN, postgres_server, texts=True),
    "pgvector": Beside(PGVECTOR, EXACT, pgvector_server),
    "opensearch": Beside(ROWS, {"get": "get"}, opensearch_server, texts=True),
    "opensearch-text": Beside(TEXTS, PLAIN, opensearch_server, texts=True),
}


def file_conf(folder: Path, server: Server | None) -> dict[str, Any]:
    """The ``store_conf`` of a file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}}


def postgres_conf(folder: Path, server: Server) -> dict[str, Any]:
    """All of it is in the database."""
    uri = f"{server.address}?schema=ours"
    return {"segment_store": {"type": "postgresql", "kwargs": {"uri": uri, "analysers": ["en"]}}}


def opensearch_conf(folder: Path, server: Server) -> dict[str, Any]:
    """Nodes and vectors are in the cluster."""
    settings = {"number_of_replicas": 0}
    kwargs = {"uris": [server.address], "client_kwargs": {}, "index_kwargs": {"settings": settings}}
    texts = {**kwargs, "index_kwargs": {"settings": settings, "analysers": ["en"]}}
    return {
        "segment_store": {"type": "opensearch", "kwargs": texts},
        "vector_store": {"type": "opensearch", "kwargs": kwargs},
        "ledger": str(folder / "ledger.db"),
    }


def milvus_conf(folder: Path, server: Server) -> dict[str, Any]:
    """Nodes and keyword index are in a file."""
    vectors = {"type": "milvus", "kwargs": {"uri": server.address}}
    return {**file_conf(folder, server), "vector_store": vectors}


DOCUMENTS: dict[str, tuple[str, Callable[..., Any] | None, Callable[..., dict[str, Any]]]] = {
    "file": ("", None, file_conf),
    "postgres": ("WholePostgres", pgvector_server, postgres_conf),
    "opensearch": ("WholeOpenSearch", knn_server, opensearch_conf),
    "milvus": ("WholeMilvus", milvus_server, milvus_conf),
}
"""By engine: the bare client in ``engines/stores.py``, the server, and our ``store_conf``."""
UNSUPPORTED = {("milvus", BARE, "keyword"), ("milvus", BARE, "hybrid")}
SEARCHES = ("keyword", "vector", "hybrid", "restricted")
FIRST_ROWS = 5_000  # that are not reported: a JVM compiles its code meanwhile
QUESTIONS = 100
FIGURES = ("side", "rows_per_cpu_s", "cpu_s", "server_cpu_s", "peak_mb", "restart_cpu_s")
LATENCIES = tuple(f"{kind}_{share}" for kind in SEARCHES for share in ("p50", "p95"))


def run_documents(name: str, count: int, rounds: int) -> None:
    """Measure a Document on one engine beside the engine's own client."""
    bare, start_server, conf_of = DOCUMENTS[name]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # PostgreSQL runs as another user
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        paths = save_vectors(folder, make_vectors(count)[0], make_queries(QUESTIONS))
        corpus = make_corpus("en", count)
        words = questions()
        order = np.random.default_rng(1).permutation(len(words))[:QUESTIONS]  # as `make_queries`
        paths |= write_lines(folder, corpus.texts(), [words[number] for number in order])
        server = stack.enter_context(start_server(folder / "server")) if start_server else None
        positions = {OURS: json.dumps(conf_of(folder, server))}
        kinds = {OURS: ("LazyragDocument", LIVE)}
        if server is not None:
            # first, since it creates the extension pgvector, which ours looks for
            positions = {BARE: server.address, **positions}
            kinds = {BARE: (bare, LIVE), **kinds}
        engines, left_out = open_engines(stack, "stores", kinds)
        rows: dict[str, Row] = {}
        first = min(FIRST_ROWS, count // 2)
        for side, engine in engines.items():
            engine.call("load", position=positions[side], **paths)
            engine.call("write", first=0, behind=first)
        for side, engine in engines.items():
            before = cpu_of(server.process.pid) if server else 0.0
            figures = engine.call("write", first=first, behind=count)
            after = cpu_of(server.process.pid) if server else 0.0
            speed = (count - first) / figures["cpu_s"]
            rows[side] = {"side": side, "rows_per_cpu_s": speed, "server_cpu_s": after - before}
            rows[side] |= figures
        for side, kind in kinds.items():
            with Engine("stores", *kind) as reader:
                seconds = reader.call("restart", position=positions[side], **paths)
                rows[side]["restart_cpu_s"] = seconds
        jobs = list(range(QUESTIONS))
        for kind in SEARCHES:
            asking = [side for side in engines if (name, side, kind) not in UNSUPPORTED]
            for side in asking:
                engines[side].times(kind, jobs * 2)
            seconds = asked(engines, dict.fromkeys(asking, kind), jobs, rounds)
            for side, some in seconds.items():
                rows[side][f"{kind}_p50"] = median_ms(some)
                rows[side][f"{kind}_p95"] = quantile_ms(some, 0.95)
    columns = (*FIGURES, *LATENCIES)
    print(f"\n{name}, {count:,} rows, {QUESTIONS} questions; ms", flush=True)
    print(table([*rows.values()], FIGURES), table([*rows.values()], ("side", *LATENCIES)), sep="\n")
    save(f"documents-{name}", [*rows.values()], columns=columns, nodes=count, left_out=left_out)


def run(name: str, count: int, rounds: int) -> list[Row]:
    """Measure one store."""
    beside = STORES[name]
    count = min(count, beside.most)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # PostgreSQL runs as another user
        paths = save_texts(folder, count) if beside.texts else save_rows(folder, count)
        server = stack.enter_context(beside.server(folder / "server")) if beside.server else None
        wanted = {side: (kind, LIVE) for side, kind in beside.kinds.items()}
        engines, left_out = open_engines(stack, "stores", wanted)
        if left_out:
            return []
        for side, engine in engines.items():
            engine.call(
                "load", position=server.address if server else str(folder / f"{side}.db"), **paths
            )
        ingested = ingest(engines, count)
        jobs = list(range(QUERIES))
        rows = [row("upsert", ingested, batch=min(BATCH, count))]
        goals = {}
        for ours, bare in beside.asked.items():
            seconds = asked(engines, {OURS: ours, BARE: bare}, jobs, rounds)
            rows.append(row(ours, seconds))
            goals[ours] = ratios(seconds[OURS], seconds[BARE], rounds)
            if not ours.startswith("get"):
                rows[-1]["same"] = agreement(engines, {OURS: ours, BARE: bare}, jobs)
        versions = {side: engine.versions for side, engine in engines.items()}
    for one in rows:
        one.update(store=name, nodes=count)
    print(f"\n{name}, {count:,} rows, {QUERIES} queries\n{table(rows, COLUMNS)}", flush=True)
    save(f"stores-{name}", rows, goals=goals, left_out=left_out, versions=versions)
    return rows


def save_rows(folder: Path, count: int) -> dict[str, str]:
    """Files of vectors and queries."""
    return save_vectors(folder, make_vectors(count)[0], make_queries(QUERIES))


def save_texts(folder: Path, count: int) -> dict[str, str]:
    """Files of texts and questions, one in each line."""
    texts = random.Random(0).sample(real_texts(), count)
    return write_lines(folder, texts, random.Random(1).sample(questions(), QUERIES))


def write_lines(folder: Path, texts: list[str], questions: list[str]) -> dict[str, str]:
    """Both as files for engines, one in each line."""
    paths = {}
    for name, some in {"texts": texts, "questions": questions}.items():
        paths[name] = str(folder / f"{name}.txt")
        Path(paths[name]).write_text(
            "\n".join(" ".join(text.split()) for text in some), encoding="utf-8"
        )
    return paths


def ingest(engines: dict[str, Engine], count: int) -> dict[str, list[float]]:
    """Seconds of each batch; the sides take turns, in random order."""
    chance = random.Random(0)
    seconds: dict[str, list[float]] = {side: [] for side in engines}
    for first in range(0, count, BATCH):
        for side in chance.sample([*engines], len(engines)):
            seconds[side].append(
                engines[side].call("ingest", first=first, behind=min(first + BATCH, count))
            )
    return seconds


def asked(
    engines: dict[str, Engine], methods: dict[str, str], jobs: list[int], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each query, by side."""
    candidates = {
        side: lambda some, side=side, method=method: engines[side].times(method, some)
        for side, method in methods.items()
    }
    return take_turns(candidates, [dict.fromkeys(methods, job) for job in jobs], rounds)


def agreement(engines: dict[str, Engine], methods: dict[str, str], jobs: list[int]) -> float:
    """The mean share of our keys that the bare client finds, too."""
    found = {
        side: engines[side].call("answers", of=method, jobs=jobs)
        for side, method in methods.items()
    }
    contributions = [
        len({*ours} & {*bare}) / len(ours)
        for ours, bare in zip(found[OURS], found[BARE], strict=True)
        if ours
    ]
    return sum(contributions) / len(contributions)


def row(what: str, seconds: dict[str, list[float]], **facts: Any) -> Row:
    """A line of the table; x: how many times as long as the bare client ours takes."""
    ours, bare = seconds[OURS], seconds[BARE]
    return {
        "what": what,
        "bare_ms": median_ms(bare),
        "ours_ms": median_ms(ours),
        "x": median_ms(ours) / median_ms(bare),
        "p95_x": quantile_ms(ours, 0.95) / quantile_ms(bare, 0.95),
        **facts,
    }


def main() -> int:
    """Measure those that were asked for; with --check 1 if one of them takes too long."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "stores", nargs="*", metavar="store", help=f"some of: {' '.join(STORES)}; all without"
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--documents", action="store_true", help="Documents beside bare clients")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail where ours without rescoring takes over {MOST} x",
    )
    options = parser.parse_args()
    known = DOCUMENTS if options.documents else STORES
    if unknown := [name for name in options.stores if name not in known]:
        parser.error(f"{unknown[0]!r} is none of: {' '.join(known)}")
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", *NAMESPACES, sys.executable, *sys.argv])  # noqa: S606, S607  from the PATH
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # noqa: S607
    if options.documents:
        for name in options.stores or DOCUMENTS:
            run_documents(name, options.rows, options.rounds)
        return 0
    slow = []
    for name in options.stores or STORES:
        rows = run(name, options.rows, options.rounds)
        slow += [
            f"{name} {one['what']} {one['x']:.2f}"
            for one in rows
            if one["x"] > MOST and not one["what"].startswith(("exact", "rescored"))
        ]
    print(f"\nover {MOST} x without rescoring: {', '.join(slow) or 'none'}")
    return int(options.check and bool(slow))


if __name__ == "__main__":
    sys.exit(main())
