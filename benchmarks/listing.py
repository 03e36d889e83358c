"""How long a page of the list of documents takes: plain, by state, by label, and as a restricted
Document.

    python benchmarks/listing.py [--documents 100000] [--check]

The ledger is filled with copies of the rows of one document, so that it is made in seconds; listing
reads no store. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

from results import Row, save, table

from lazyrag import DataType, DocField, Document
from lazyrag.data.segment import root_uid
from lazyrag.document import DocumentInfo

LABELS = {"labels": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}
LIMIT = 100
MOST_MS = 20.0
FOUND_DIRECTLY = 4  # pages that skip no document; for the others the time grows with what they skip


def marks(values: Collection[object]) -> str:
    """The places of values in a statement."""
    return ", ".join("?" * len(values))


def fill(path: Path, documents: int) -> None:
    """Copy one document's rows: every tenth has the label "rare", every hundredth failed."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}
    with Document(store_conf=conf, doc_fields=LABELS) as docs:
        docs.add_texts(
            {"text": "Green tea.\n" * 50},
            metadata={"text": {"labels": ["usual"], "author": "A. Author"}},
        )
        docs.activate_group("FineChunk", "CoarseChunk")
    with closing(sqlite3.connect(path)) as connection, connection:
        [names] = [[row[1] for row in connection.execute("PRAGMA table_info(document)")]]
        [template] = connection.execute("SELECT * FROM document").fetchall()
        row = dict(zip(names, template, strict=True))
        rows = connection.execute("SELECT number FROM build WHERE until <> 0").fetchall()
        live = [number for (number,) in rows]
        [version] = connection.execute("SELECT * FROM version").fetchall()
        for number in range(2, documents + 1):
            name = f"folder-{number % 97:02}/file-{number:06}.md"
            said = '{"labels": ["rare"]}' if number % 10 == 0 else row["said"]
            values = {
                **row,
                "id": number,
                "identity": name,
                "uid": root_uid(name),
                "said": said,
                "size": number,
            }
            connection.execute(f"INSERT INTO document VALUES ({marks(values)})", [*values.values()])  # noqa: S608
            for at, build in enumerate(live):
                columns = (
                    "node_group, parent, root, input, output, counts, status, size, since, until"
                )
                new = 10 * number + at
                copy = f"INSERT INTO build (number, document, {columns}) SELECT ?, ?, {columns} FROM build"  # noqa: S608
                connection.execute(f"{copy} WHERE number = ?", (new, number, build))
            connection.execute(
                f"INSERT INTO version VALUES ({marks(version)})",  # noqa: S608
                (number, *version[1:]),
            )
            if number % 100 == 0:
                error = (
                    row["ledger"],
                    name,
                    "transform FineChunk",
                    "TransformError",
                    "It failed. Fix it.",
                    time.time(),
                )
                connection.execute("INSERT INTO failure VALUES (?, ?, ?, ?, ?, ?)", error)


def pages(page: Callable[[str | None], list[DocumentInfo]]) -> tuple[list[float], int]:
    """The seconds of processor time of each page, and the number of documents."""
    took, after, count = [], None, 0
    while True:
        began = time.process_time()
        found = page(after)
        took.append(time.process_time() - began)
        count += len(found)
        if len(found) < LIMIT:
            return took, count
        after = found[-1].id


def main() -> None:
    """Measure every page, and check the bound if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail if a page without filter takes over {MOST_MS:g} ms",
    )
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        began = time.perf_counter()
        fill(path, given.documents)
        print(f"{given.documents} documents after {time.perf_counter() - began:.1f} s")
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}
        with Document(store_conf=conf, doc_fields=LABELS, read_only=True) as docs:
            rare = docs.restricted({"labels": "rare"})
            kinds: dict[str, Callable[[str | None], list[DocumentInfo]]] = {
                "all": lambda after: docs.documents(after, LIMIT),
                "status FAILED": lambda after: docs.documents(after, LIMIT, status="FAILED"),
                "status SUCCESS": lambda after: docs.documents(after, LIMIT, status="SUCCESS"),
                "status WAITING": lambda after: docs.documents(after, LIMIT, status="WAITING"),
                "where a label of 10 %": lambda after: docs.documents(
                    after, LIMIT, filters={"labels": "rare"}
                ),
                "restricted to 10 %": lambda after: rare.documents(after, LIMIT),
                "where a label of none": lambda after: docs.documents(
                    after, LIMIT, filters={"labels": "none"}
                ),
            }
            for name, page in kinds.items():
                took, count = pages(page)
                ms = sorted(1000 * one for one in took)
                worst = ms[-1]
                rows.append(
                    {
                        "pages": name,
                        "count": len(ms),
                        "documents": count,
                        "p50_ms": statistics.median(ms),
                    }
                )
                rows[-1] |= {
                    "p99_ms": ms[int(0.99 * (len(ms) - 1))],
                    "max_ms": worst,
                    "first_ms": 1000 * took[0],
                }
    print(table(rows, ("pages", "count", "documents", "p50_ms", "p99_ms", "max_ms", "first_ms")))
    save("listing", rows)
    if given.check:
        for row in rows[:FOUND_DIRECTLY]:
            assert row["p99_ms"] <= MOST_MS, row


if __name__ == "__main__":
    main()
