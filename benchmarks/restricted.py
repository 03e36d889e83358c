"""Keyword search in a restricted Document, beside the same Document without restriction.

    python benchmarks/restricted.py [--nodes 100000] [--language en] [--shares 0.01 0.5] [--check]

A file has a hundred nodes and the field "label"; a scope shows a share of the files. Candidates
take turns. "cold_ms" is the slowest first query of some scopes that no query had before, in a
Document whose index is loaded. With --check a warm restricted query that takes more than twice the
unrestricted one, or a cold scope of more than a second, is an error. Results go to build/bench.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from corpus import LANGUAGES, make_corpus, make_queries
from results import Row, save, table
from timing import interleaved, median_ms, quantile_ms

from lazyrag import Condition, DataType, DocField, Document, Retriever

QUERIES = 60
PER_FILE = 100
TOPK = 10
COLD_SCOPES = 5
COLUMNS = ("scope", "p50_ms", "p95_ms", "x_unrestricted", "cold_ms")
MOST_TIMES, MOST_COLD_MS = 2.0, 1_000.0


def make_document(language: str, texts: list[str]) -> Document:
    """A Document in memory whose files are numbered at random by the field "label"."""
    docs = Document(doc_fields={"label": DocField(DataType.INT32)})
    docs.create_node_group("line", transform=str.splitlines)
    names = range(0, len(texts), PER_FILE)
    labels = random.Random(0).sample(range(len(names)), len(names))
    files = {f"{start:08}": "\n".join(texts[start : start + PER_FILE]) for start in names}
    docs.add_texts(
        files, metadata={name: {"label": label} for name, label in zip(files, labels, strict=True)}
    )
    Retriever(docs, "line", LANGUAGES[language]).build()
    return docs


def first_ms(docs: Document, share: float, files: int, language: str, queries: list[str]) -> float:
    """The slowest first query of some scopes."""
    took = []
    for number in range(COLD_SCOPES):
        low = number  # each scope another filter
        scope = Condition("label", ">=", low) & Condition("label", "<", low + round(share * files))
        retriever = Retriever(docs.restricted(scope), "line", LANGUAGES[language], topk=TOPK)
        started = time.perf_counter()
        assert retriever(queries[number])
        took.append(1e3 * (time.perf_counter() - started))
    return max(took)


def run(language: str, count: int, shares: list[float]) -> list[Row]:
    """Measure one language at one size."""
    corpus = make_corpus(language, count)
    queries = make_queries(corpus, QUERIES)
    docs = make_document(language, corpus.texts())
    files = -(-count // PER_FILE)
    views = {"unrestricted": docs}
    views |= {
        f"{share:.0%} visible": docs.restricted(Condition("label", "<", round(share * files)))
        for share in shares
    }
    candidates: dict[str, Any] = {
        name: Retriever(view, "line", LANGUAGES[language], topk=TOPK)
        for name, view in views.items()
    }
    candidates["unrestricted"](queries[0])
    cold = {
        f"{share:.0%} visible": first_ms(docs, share, files, language, queries) for share in shares
    }
    seconds = interleaved(candidates, [dict.fromkeys(candidates, query) for query in queries])
    base = median_ms(seconds["unrestricted"])
    rows: list[Row] = []
    for name, own in seconds.items():
        median = median_ms(own)
        row: Row = {
            "scope": name,
            "p50_ms": median,
            "p95_ms": quantile_ms(own, 0.95),
            "x_unrestricted": median / base,
        }
        rows.append(row | ({"cold_ms": cold[name]} if name in cold else {}))
    print(
        f"\n{language}, {count:,} nodes in {files:,} files, {QUERIES} queries\n{table(rows, COLUMNS)}"
    )
    save(f"restricted-{language}-{count:08}", rows)
    return rows


def main() -> None:
    """Measure, and check the bounds if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--language", nargs="+", choices=sorted(LANGUAGES), default=["en"])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.01, 0.5])
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    for language in given.language:
        rows = run(language, given.nodes, given.shares)
        if given.check:
            for row in rows:
                assert row["x_unrestricted"] <= MOST_TIMES, row
                assert row.get("cold_ms", 0.0) <= MOST_COLD_MS, row


if __name__ == "__main__":
    main()
