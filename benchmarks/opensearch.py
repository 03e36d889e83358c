"""A Document on OpenSearch beside opensearch-py: ingestion and keyword queries of the same rows.

    python benchmarks/opensearch.py [--nodes 20000]

The server is started on this machine, over an empty folder, with a heap of 512 MB. Both sides write
the same rows, ours from texts of ten lines, ``parallel_bulk`` from what is then in the indexes: it
has nothing to split and no terms to compute. Seconds are until a search sees the rows, after a
smaller load of each side. Queries take turns: ours through a Retriever, the client's as a ``match``
of the server's English analyser; ``restricted`` to a tenth of the rows. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpus import make_corpus, make_queries
from opensearchpy import OpenSearch, helpers
from results import Row, save, table
from timing import interleaved, median_ms, quantile_ms
from workers import cpu_of, own_cpu

from lazyrag import DataType, DocField, Document, Retriever
from tests.live.serving import Server, opensearch_server

LINES = 10  # of a document
QUERIES = 100
TOPK = 10
WARM_UP = 300  # queries, until the server's JVM has compiled its code
FIRST_LINES = 3_000  # of a load that is not reported
COPY = "copy_"
COLUMNS = ("what", "nodes", "seconds", "cpu_s", "server_cpu_s", "per_cpu_s", "p50_ms", "p95_ms")


class Stopwatch:
    """Measures steps, with the CPU seconds of this process and of a server."""

    def __init__(self, server: Server) -> None:
        self._group = server.process.pid
        self.rows: list[Row] = []

    def time(self, what: str, nodes: int, step: Callable[[], object]) -> None:
        """Run a step, and note it."""
        cpu = own_cpu()
        server_cpu = cpu_of(self._group)
        began = time.perf_counter()
        step()
        seconds = time.perf_counter() - began
        cpu = own_cpu() - cpu
        server_cpu = cpu_of(self._group) - server_cpu
        figures = (what, nodes, seconds, cpu, server_cpu, nodes / cpu)
        self.rows.append(dict(zip(COLUMNS, figures, strict=False)))
        print(f"{what}: {seconds:.1f} s", flush=True)


def copy_rows(client: OpenSearch, collections: list[str]) -> tuple[int, Callable[[], None]]:
    """How many rows some indexes have, and a step that writes them into copies of these indexes,
    whose ``text`` the server analyses.
    """
    rows: list[dict[str, Any]] = []
    for collection in collections:
        mapping = client.indices.get_mapping(index=collection)[collection]["mappings"]
        mapping["properties"]["text"] = {"type": "text", "analyzer": "english"}
        similarity = {"lazyrag": {"type": "BM25", "k1": 1.5, "b": 0.75}}
        settings = {"index": {"similarity": similarity, "refresh_interval": "-1"}}
        copy = COPY + collection.split("_")[2]
        client.indices.delete(index=copy, params={"ignore_unavailable": "true"})
        client.indices.create(index=copy, body={"settings": settings, "mappings": mapping})
        hits = helpers.scan(client, index=collection, size=1_000)
        rows += [{"_index": copy, "_id": hit["_id"], **hit["_source"]} for hit in hits]

    def write() -> None:
        """In its default batches of 500, by four threads, as ours."""
        deque(helpers.parallel_bulk(client, rows), maxlen=0)
        client.indices.refresh(index=f"{COPY}*")

    return len(rows), write


def ingest(
    watch: Stopwatch, client: OpenSearch, docs: Document, lines: list[str], prefix: str
) -> None:
    """Measure an ingestion of both sides, of documents of ten lines."""
    starts = range(0, len(lines), LINES)
    texts = {f"{prefix}{start:08}": "\n".join(lines[start : start + LINES]) for start in starts}
    fields = {name: {"year": number % 10} for number, name in enumerate(texts)}
    rows = len(lines) + len(texts)
    watch.time("ingestion, lazyrag", rows, lambda: docs.add_texts(texts, fields))
    rows, write = copy_rows(client, sorted(client.indices.get_alias(index="lr_bench_*")))
    watch.time("ingestion, parallel_bulk", rows, write)


def measure_queries(docs: Document, client: OpenSearch, queries: list[str]) -> list[Row]:
    """Milliseconds of each kind of query."""
    view = docs.restricted({"year": 3}, statistics="shared")
    everything = Retriever(docs, "line", "bm25", topk=TOPK)
    restricted = Retriever(view, "line", "bm25", topk=TOPK)

    def search(query: str, *filters: Any) -> Any:
        """With whole documents, as ours."""
        wanted = {"must": [{"match": {"text": query}}], "filter": list(filters)}
        body = {"query": {"bool": wanted}, "size": TOPK}
        return client.search(index=f"{COPY}line", body=body)

    year = {"term": {"field.year": 3}}
    candidates: dict[str, Callable[[str], object]] = {
        "keyword, client": search,
        "keyword, lazyrag": everything,
        "restricted, client": lambda query: search(query, year),
        "restricted, lazyrag": restricted,
    }
    for number in range(WARM_UP):
        for candidate in candidates.values():
            candidate(queries[number % len(queries)])
    jobs = [dict.fromkeys(candidates, query) for query in queries]
    seconds = interleaved(candidates, jobs)
    return [
        {"what": what, "p50_ms": median_ms(some), "p95_ms": quantile_ms(some, 0.95)}
        for what, some in seconds.items()
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=20_000)
    options = parser.parse_args()
    logging.getLogger("opensearch").setLevel(logging.ERROR)
    corpus = make_corpus("en", options.nodes)
    with (
        tempfile.TemporaryDirectory() as scratch,
        opensearch_server(Path(scratch, "server")) as server,
    ):
        index_kwargs = {"analysers": ["en"]}
        kwargs = {"uris": [*server.addresses], "client_kwargs": {}, "index_kwargs": index_kwargs}
        conf = {
            "segment_store": {"type": "opensearch", "kwargs": kwargs},
            "ledger": str(Path(scratch, "ledger.db")),
        }
        watch = Stopwatch(server)
        client = OpenSearch([*server.addresses])
        years = {"year": DocField(DataType.INT32)}
        with Document(store_conf=conf, name="bench", doc_fields=years) as docs:
            docs.create_node_group("line", transform=str.splitlines)
            docs.add_texts({"first": "tea"}, {"first": {"year": 0}})
            docs.activate_group("line")
            lines = corpus.texts()
            ingest(watch, client, docs, lines[:FIRST_LINES], "first")
            watch.rows.clear()
            ingest(watch, client, docs, lines[FIRST_LINES:], "")
            watch.rows += measure_queries(docs, client, make_queries(corpus, QUERIES))
            version = client.info()["version"]["number"]
    print(table(watch.rows, COLUMNS))
    save(f"opensearch-{options.nodes}", watch.rows, versions={"opensearch": version})
    return 0


if __name__ == "__main__":
    sys.exit(main())
