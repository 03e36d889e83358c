"""What a program pays to open a store and to answer once, and after changes, by the number of
documents: readers hold nothing that grows with it but mapped arrays and bits.

    python benchmarks/open.py [--documents 10000 100000] [--stores FOLDER] [--package FOLDER]
    python benchmarks/open.py --postgres --documents 1000 10000000

Documents have one node of so many words (--words), drawn from 5,000 words by Zipf's law. Each figure
is the median of fresh processes (--rounds); CPU seconds include the interpreter and the imports,
whose cost alone is in the first row. Stores are built once (minutes for 10^6) and stay in --stores.
With --postgres the store is in a PostgreSQL of this machine, started for it: a thousand documents are
ingested, and the rows of all others in the ledger, each with an empty build in the group, are made
by SQL (some ten minutes and 10 GB for 10^7).
With --package another checkout of lazyrag answers, for stores of its own. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from results import Row, save, table
from workers import cpu_of

from lazyrag.stores.sqlite import StoreFile
from tests.live.serving import postgres_server

ROOT = Path(__file__).resolve().parents[1]

INGESTED = 1_000  # documents of a store in PostgreSQL; the others are rows of the ledger
PORTION = 100_000  # rows of a statement
FILL = """
WITH rows AS (SELECT n, {base} + 2 * n AS number FROM generate_series({first}, {last}) AS n),
documents AS (
    INSERT INTO document (id, ledger, uid, identity, origin, status, loaded, version, since, until)
    SELECT n, 1, lpad(to_hex(n), 32, '0'), 'x' || lpad(n::text, 9, '0'), 'text', 'live',
        '{{"file_name":"x' || n || '"}}', 1, {changes}, 4611686018427387904 FROM rows
), roots AS (
    INSERT INTO build
    (number, document, node_group, root, input, output, counts, status, size, since, until)
    SELECT number, n, 1, number, md5(n::text), md5(n::text), '[1]', 'written', 1, {changes},
        4611686018427387904 FROM rows
), lines AS (
    INSERT INTO build
    (number, document, node_group, parent, root, input, output, counts, status, size, since, until)
    SELECT number + 1, n, 2, number, number, md5(n::text), md5(n::text), '[0]', 'written', 0,
        {changes}, 4611686018427387904 FROM rows
), keys AS (
    INSERT INTO field_key SELECT 1, '=file_name="x' || lpad(n::text, 9, '0') || '"', n FROM rows
)
INSERT INTO version SELECT n, 1, number, 0, '', '{{}}', '{{}}', '{{}}' FROM rows
"""
COUNT = """
UPDATE node_group SET documents = {count}, nodes = nodes + CASE id WHEN 1 THEN {added} ELSE 0 END,
    filled = filled + CASE id WHEN 1 THEN {added} ELSE 0 END;
UPDATE build_sequence SET next = {base} + 2 * {count} + 2;
SELECT setval(pg_get_serial_sequence('document', 'id'), {count})
"""
BUILD = """
import random, sys
from lazyrag import Document, Retriever
path, count, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
vocabulary = [f"word{number}" for number in range(5_000)]
weights = [1 / (number + 1) for number in range(5_000)]
generator = random.Random(0)
with Document(store_conf=path) as docs:
    docs.create_node_group("line", transform=lambda text: [text])
    for start in range(0, count, 10_000):
        texts = {
            f"{number:07}": " ".join(generator.choices(vocabulary, weights, k=words))
            for number in range(start, min(count, start + 10_000))
        }
        docs.add_texts(texts)
        if not start:
            Retriever(docs, "line", similarity="bm25")("word7")
"""
BEGIN = """
import gc, resource, sys, time
from lazyrag import Document, Retriever
def opened(**arguments):
    docs = Document(store_conf=sys.argv[1], **arguments)
    docs.create_node_group("line", transform=lambda text: [text])
    return docs, Retriever(docs, "line", similarity="bm25", topk=10)
def seconds(work, times=1):
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times
"""
END = "\nprint(figure, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
FIGURES = {
    "imports, CPU s": "figure = time.process_time()",
    "read-only: open + first answer, CPU s": """
docs, retriever = opened(read_only=True)
assert len(retriever("word7 word40 word900")) == 10
figure = time.process_time()
""",
    "writing: open + one text, CPU s": """
docs, retriever = opened()
docs.add_texts({"new": "word7 word40"})
figure = time.process_time()
""",
    "warm BM25, ms": """
docs, retriever = opened(read_only=True)
retriever("word7 word40 word900")
figure = 1e3 * seconds(lambda: retriever("word7 word40 word900"), 200)
""",
    "query after add, ms": """
docs, retriever = opened()
retriever("word7 word40 word900")
figures = []
for number in range(5):
    docs.add_texts({"new": f"word7 word40 {number}"})
    figures.append(1e3 * seconds(lambda: retriever("word7 word40 word900")))
figure = sorted(figures)[2]
""",
    "query after delete, ms": """
docs, retriever = opened()
retriever("word7 word40 word900")
figures = []
for number in range(5):
    docs.add_texts({"new": "word7"})
    docs.delete_files(["new"])
    figures.append(1e3 * seconds(lambda: retriever("word7 word40 word900")))
figure = sorted(figures)[2]
""",
    "status(), ms": """
docs, retriever = opened(read_only=True)
retriever("word7")
figure = 1e3 * seconds(docs.status, 5)
""",
    "read-only: open + first answer again, ms": """
docs, retriever = opened(read_only=True)
retriever("word7")
docs.close()
def again():
    docs, retriever = opened(read_only=True)
    assert len(retriever("word7 word40 word900")) == 10
    docs.close()
figure = 1e3 * seconds(again, 5)
""",
    "its memory, MB": """
kept = []
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20
def again():
    docs, retriever = opened(read_only=True)
    assert len(retriever("word7 word40 word900")) == 10
    kept.append((docs, retriever))
again()
before = resident()
again()
figure = resident() - before
""",
    "restricted BM25, ms": """
docs, _ = opened(read_only=True)
view = docs.restricted({"file_name": ["0000007", "0000008"]})
retriever = Retriever(view, "line", similarity="bm25", topk=10)
assert len(retriever("word0")) == 2
figure = 1e3 * seconds(lambda: retriever("word0 word40"), 20)
""",
    "find(uid), ms": """
docs, retriever = opened(read_only=True)
[node, *_] = retriever("word7")
figure = 1e3 * seconds(lambda: docs.reader.held(node.uid), 3)
""",
}


def run(script: str, package: Path, *arguments: str) -> str:
    """What a script prints in a fresh process with a checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=package
    )
    return result.stdout


def fill(url: str, count: int) -> None:
    """Enter documents into the ledger of a store in PostgreSQL, until it has that many."""
    file = StoreFile(url)
    try:
        with file.writing() as connection:
            query = "SELECT changes, next FROM ledger, build_sequence"
            [(changes, base)] = connection.run(query).fetchall()
        for first in range(INGESTED + 1, count + 1, PORTION):
            last = min(first + PORTION - 1, count)
            with file.writing() as connection:
                connection.run(FILL.format(base=base, first=first, last=last, changes=changes))
        with file.writing() as connection:
            added = max(0, count - INGESTED)
            for statement in COUNT.format(count=count, added=added, base=base).split(";"):
                connection.run(statement)
            connection.run("ANALYZE")
    finally:
        file.close()


def measure(
    store: str, count: int, package: Path, rounds: int, server: int | None = None
) -> list[Row]:
    """All figures for one store, with the CPU seconds of a server's process group meanwhile."""
    rows: list[Row] = []
    for name, body in FIGURES.items():
        values = []
        peaks = []
        server_cpu = []
        for _ in range(rounds):
            before = cpu_of(server) if server else 0.0
            value, peak = map(float, run(BEGIN + body + END, package, store).split())
            values.append(value)
            peaks.append(peak)
            server_cpu.append((cpu_of(server) if server else 0.0) - before)
        row = {
            "documents": count,
            "figure": name,
            "median": round(statistics.median(values), 3),
            "peak MB": round(statistics.median(peaks)),
            "server CPU s": round(statistics.median(server_cpu), 2),
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def measure_postgres(options: argparse.Namespace) -> list[Row]:
    """All figures for stores in PostgreSQL, each in a schema of its own."""
    folder = options.stores / "postgres"
    shutil.rmtree(folder, ignore_errors=True)
    rows: list[Row] = []
    with postgres_server(folder / "server") as server:
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        for count in options.documents:
            url = f"{server.address}?schema=with{count}"
            run(BUILD, options.package, url, str(min(count, INGESTED)), str(options.words))
            fill(url, count)
            print(f"filled with {count}", flush=True)
            group = server.process.pid
            rows += measure(url, count, options.package, options.rounds, group)
    shutil.rmtree(folder)
    return rows


def main() -> None:
    """Build what is missing, measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", type=Path, default=Path(tempfile.gettempdir(), "lazyrag-open"))
    parser.add_argument("--package", type=Path, default=ROOT)
    parser.add_argument("--postgres", action="store_true", help="stores in PostgreSQL")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.postgres:
        rows = measure_postgres(options)
    for count in () if options.postgres else options.documents:
        folder = options.stores / f"{count}-{options.words}"
        folder.mkdir(parents=True, exist_ok=True)
        store = folder / "store.db"
        if not store.exists():
            building = folder / "building.db"
            run(BUILD, options.package, str(building), str(count), str(options.words))
            for path in sorted(folder.glob("building.db*")):
                path.rename(folder / path.name.replace("building", "store"))
        rows += measure(str(store), count, options.package, options.rounds)
    print(table(rows, ("documents", "figure", "median", "peak MB", "server CPU s")))
    save("open-postgres" if options.postgres else "open", rows)


if __name__ == "__main__":
    main()
